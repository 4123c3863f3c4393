//! Reading shell text: the small language that dash, busybox ash and bash share.
//!
//! Words, quotes, `$x`, `$(…)`, pipes, lists, redirects, loops, conditions and
//! here-documents mean the same in every one of these shells, so their text has
//! one reading and one verdict. Anything else is *beyond* the language: a person
//! is asked, and the construct is named. Beyond the language the reader still
//! follows as much as it can, because a command that must never run must not
//! hide there; it never takes what it finds for the whole of the text.
//!
//! The reader runs nothing, and nothing that it does not know counts as harmless.

mod expand;
mod grammar;
mod walk;
mod words;

use std::cell::OnceCell;
use std::rc::Rc;

use super::analysis::TextSpan;

pub(crate) use self::expand::{is_evaluated, is_name};
pub(crate) use self::walk::LANGUAGE;

/// Brackets and keywords inside each other that the reader's own stack is sure to hold.
const MAX_DEPTH: usize = 100;

/// Commands one after another.
pub(crate) type List = Vec<Item>;

/// Pipelines that `&&` and `||` join; all but the first may not run.
#[derive(Debug)]
pub(crate) struct Item {
    pipelines: Vec<Vec<Command>>,
    background: bool,
}

#[derive(Debug)]
pub(crate) enum Command {
    Simple(Simple),
    Compound(Compound, Vec<Redirect>),
}

#[derive(Debug)]
pub(crate) enum Compound {
    Group(List),
    Subshell(List),
    /// Conditions with what they guard; a branch without commands as condition is `else`.
    If(Vec<(List, List)>),
    Loop {
        /// The loop ends when its condition is true.
        until: bool,
        condition: List,
        body: List,
    },
    For {
        name: String,
        words: Option<Vec<Word>>,
        body: List,
    },
    Case(Word, Vec<(Vec<Word>, List)>),
    /// Beyond the language; followed for what must never run.
    Function(String, Rc<Command>),
}

/// Assignments, the words of a command, and its redirects.
#[derive(Debug, Default)]
pub(crate) struct Simple {
    /// Several words are the elements of an array, which is beyond the language.
    assignments: Vec<(String, Vec<Word>)>,
    words: Vec<Word>,
    redirects: Vec<Redirect>,
}

#[derive(Debug)]
pub(crate) struct Redirect {
    descriptor: Option<i32>,
    target: Target,
}

#[derive(Debug)]
enum Target {
    Read(Word),
    Write(Word),
    ReadWrite(Word),
    /// Another descriptor; `None` closes this one.
    Duplicate(Option<i32>),
    /// Text that stands in the command; it is filled in when its lines are read.
    Document(Rc<OnceCell<Word>>),
}

/// One word as the text has it.
#[derive(Debug, Default)]
pub(crate) struct Word {
    parts: Vec<Part>,
    /// The words that it becomes if braces in it are expanded.
    alternatives: Vec<Word>,
    span: Option<TextSpan>,
}

#[derive(Debug)]
struct Part {
    piece: Piece,
    quoted: bool,
}

#[derive(Debug)]
enum Piece {
    Text(String),
    /// `~` or `~user`.
    Tilde(String),
    /// `$x`, `${x}`, `$1`, `$@`.
    Parameter(String),
    /// `$(…)` and backquotes.
    Code(List),
    /// `<(…)`, beyond the language.
    Process(List),
    /// An expansion beyond the language, with the words and the code in it.
    Beyond(Expansion, Vec<Part>),
}

/// What an expansion beyond the language may give.
#[derive(Debug)]
enum Expansion {
    Number,
    /// The value of this parameter, or the word if it has none.
    Default(String),
    /// The same, and the parameter is given the word.
    Assign(String),
    /// The word, if some parameter is set.
    Alternative(String),
    /// The value of this parameter, or an error.
    Checked(String),
    /// Something made of the value of this parameter.
    Changed(String),
    Unknown,
    /// `${x@P}` runs whatever the value says.
    Prompt,
    /// A character that cannot be shown.
    Unshowable,
}

/// A construct that is not of the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// The construct, for a message: "`[[`".
    pub(crate) what: &'static str,
    pub(crate) span: TextSpan,
}

/// What the reader found in a text.
#[derive(Debug)]
pub(crate) struct Script {
    /// The commands of the text; where it could not be followed to its end, every
    /// one that may stand in it, each by itself.
    pub(crate) list: List,
    /// The first construct beyond the language.
    pub(crate) beyond: Option<Beyond>,
    /// Every shell reports an error in the text.
    pub(crate) is_broken: bool,
    /// The list is the whole of the text.
    pub(crate) is_whole: bool,
}

impl Script {
    /// True if every shell reads exactly this list.
    pub(crate) fn is_certain(&self) -> bool {
        self.beyond.is_none() && self.is_whole
    }

    /// The words of the text if it is one simple command and nothing else.
    pub(crate) fn only_words(&self) -> Option<&[Word]> {
        let [Item { pipelines, background: false }] = self.list.as_slice() else { return None };
        let [pipeline] = pipelines.as_slice() else { return None };
        let [Command::Simple(simple)] = pipeline.as_slice() else { return None };
        let is_plain = self.is_certain() && simple.assignments.is_empty() && simple.redirects.is_empty();
        is_plain.then_some(&simple.words)
    }
}

/// The text nests more deeply than is followed.
#[derive(Debug)]
pub(crate) struct TooDeep;

/// Reads `text`, in which nothing may nest deeper than `nesting`.
pub(crate) fn read(text: &str, nesting: usize) -> Result<Script, TooDeep> {
    let mut reader = Reader::new(text, nesting.min(MAX_DEPTH));
    let end = reader.read_program();
    let is_broken = matches!(end, Err(Stop::Syntax)) && reader.beyond.is_none();
    let (list, is_whole) = match end {
        Ok(list) => (list, true),
        Err(Stop::TooDeep) => return Err(TooDeep),
        Err(Stop::Syntax | Stop::Lost) => (Reader::new(text, nesting.min(MAX_DEPTH)).scattered(), false),
    };
    Ok(Script { list, beyond: reader.beyond, is_broken, is_whole })
}

/// The first character of `text` that cannot be shown faithfully, with its
/// position: control characters, bidirectional and invisible ones.
pub(crate) fn unshowable(text: &str) -> Option<(usize, char)> {
    if text.bytes().all(|b| (b' '..0x7f).contains(&b) || b == b'\n' || b == b'\t') {
        return None;
    }
    text.chars().enumerate().find(|(_, c)| {
        matches!(c,
            '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
            | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
    })
}

/// Why reading stopped before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The text is no shell text.
    Syntax,
    /// The reader does not know what shells make of it.
    Lost,
    TooDeep,
}

type Read<T> = Result<T, Stop>;

/// A here-document whose body is still to come.
struct Pending {
    delimiter: String,
    strip: bool,
    expand: bool,
    body: Rc<OnceCell<Word>>,
}

struct Reader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    beyond: Option<Beyond>,
    pending: Vec<Pending>,
    depth: usize,
    nesting: usize,
    /// Commands are read for what may stand in them; what is wrong is skipped.
    lenient: bool,
    /// A place in bytes and in characters, from which others are counted.
    counted: (usize, usize),
}

impl<'t> Reader<'t> {
    fn new(text: &'t str, nesting: usize) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            beyond: None,
            pending: Vec::new(),
            depth: 0,
            nesting,
            lenient: false,
            counted: (0, 0),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn is_at(&self, text: &str) -> bool {
        self.bytes[self.at.min(self.bytes.len())..].starts_with(text.as_bytes())
    }

    /// How many characters are in front of a byte.
    fn characters(&mut self, at: usize) -> usize {
        let (byte, character) = if at >= self.counted.0 { self.counted } else { (0, 0) };
        let more = self.text.get(byte..at).map_or(0, |text| text.chars().count());
        self.counted = (at, character + more);
        self.counted.1
    }

    fn span(&mut self, start: usize, end: usize) -> TextSpan {
        TextSpan { start: self.characters(start), end: self.characters(end) }
    }

    /// Notes that a construct beyond the language is here.
    fn beyond(&mut self, what: &'static str) {
        if self.beyond.is_none() {
            let end = self.rest().chars().next().map_or(self.at, |c| self.at + c.len_utf8());
            let span = self.span(self.at, end);
            self.beyond = Some(Beyond { what, span });
        }
    }

    fn lose<T>(&mut self, what: &'static str) -> Read<T> {
        self.beyond(what);
        Err(Stop::Lost)
    }

    /// Takes one character, however many bytes it has.
    fn take_char(&mut self) -> Option<char> {
        let c = self.rest().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn deeper<T>(&mut self, inside: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth >= self.nesting {
            return Err(Stop::TooDeep);
        }
        self.depth += 1;
        let result = inside(self);
        self.depth -= 1;
        result
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'<' | b'>' | b'(' | b')')
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The length of the variable name that `text` begins with.
fn name_len(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.bytes().take_while(|b| is_name_byte(*b)).count()
}

#[cfg(test)]
mod tests;
