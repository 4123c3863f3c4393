//! Reads shell text: the small language that dash, busybox ash and bash share.
//!
//! Words, quotes, `$x`, `$(…)`, pipes, lists, redirects, loops, conditions and here-documents mean the
//! same in all of these shells, so such text has one reading and one verdict. All other constructs are
//! *beyond* the language: a person is asked, and the construct is named. The reader still follows such
//! text as far as it can, because a forbidden command must not be hidden there, but it never takes the
//! result for the whole text.
//!
//! The reader runs nothing, and treats nothing unknown as harmless.

mod expand;
mod grammar;
mod walk;
mod words;

use std::cell::OnceCell;
use std::rc::Rc;

use super::analysis::TextSpan;

pub(crate) use self::expand::{is_evaluated, is_name};
pub(crate) use self::walk::LANGUAGE;

/// Nested brackets and keywords for which the reader's own stack is certain to suffice.
const MAX_DEPTH: usize = 100;

/// Commands in sequence.
pub(crate) type List = Vec<Item>;

/// Pipelines joined by `&&` and `||`; all but the first may be skipped.
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
    /// Conditions and their branches; a branch without commands as its condition is `else`.
    If(Vec<(List, List)>),
    Loop {
        /// True if the loop ends when its condition is true.
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
    /// Beyond the language; followed for forbidden commands.
    Function(String, Rc<Command>),
}

/// Assignments, words and redirects of a command.
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
    /// Text in the command itself, which is filled in when its lines are read.
    Document(Rc<OnceCell<Word>>),
}

/// One word of the text.
#[derive(Debug, Default)]
pub(crate) struct Word {
    parts: Vec<Part>,
    /// Words that result if its braces are expanded.
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

/// Possible results of an expansion beyond the language.
#[derive(Debug)]
enum Expansion {
    Number,
    /// The value of this parameter, or the word if it has none.
    Default(String),
    /// The same, and the parameter is set to the word.
    Assign(String),
    /// The word, if some parameter is set.
    Alternative(String),
    /// The value of this parameter, or an error.
    Checked(String),
    /// A changed form of this parameter's value.
    Changed(String),
    Unknown,
    /// `${x@P}` runs the value as code.
    Prompt,
    /// A character that cannot be displayed.
    Unshowable,
}

/// A construct that is not part of the language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// The construct, for a message: "`[[`".
    pub(crate) what: &'static str,
    pub(crate) span: TextSpan,
}

/// Result of reading a text.
#[derive(Debug)]
pub(crate) struct Script {
    /// Commands of the text. If the text could not be read to the end, every command that it may
    /// contain, each separately.
    pub(crate) list: List,
    /// The first construct beyond the language.
    pub(crate) beyond: Option<Beyond>,
    /// True if every shell reports a syntax error.
    pub(crate) is_broken: bool,
    /// True if the list is the whole text.
    pub(crate) is_whole: bool,
}

impl Script {
    /// True if every shell reads exactly this list.
    pub(crate) fn is_certain(&self) -> bool {
        self.beyond.is_none() && self.is_whole
    }

    /// Words of the text, if it is exactly one simple command.
    pub(crate) fn only_words(&self) -> Option<&[Word]> {
        let [Item { pipelines, background: false }] = self.list.as_slice() else { return None };
        let [pipeline] = pipelines.as_slice() else { return None };
        let [Command::Simple(simple)] = pipeline.as_slice() else { return None };
        let is_plain = self.is_certain() && simple.assignments.is_empty() && simple.redirects.is_empty();
        is_plain.then_some(&simple.words)
    }
}

/// The text is nested more deeply than the limit.
#[derive(Debug)]
pub(crate) struct TooDeep;

/// Reads `text`, whose nesting must not exceed `nesting`.
pub(crate) fn read_script(text: &str, nesting: usize) -> Result<Script, TooDeep> {
    let mut reader = Reader::new(text, nesting.min(MAX_DEPTH));
    let end = reader.read_program();
    let is_broken = matches!(end, Err(Stop::Syntax)) && reader.beyond.is_none();
    let (list, is_whole) = match end {
        Ok(list) => (list, true),
        Err(Stop::TooDeep) => return Err(TooDeep),
        Err(Stop::Syntax | Stop::Lost) => {
            (Reader::new(text, nesting.min(MAX_DEPTH)).scattered_commands(), false)
        }
    };
    Ok(Script { list, beyond: reader.beyond, is_broken, is_whole })
}

/// First character of `text` that cannot be displayed faithfully (a control, bidirectional or invisible
/// character), with its position.
pub(crate) fn find_unshowable(text: &str) -> Option<(usize, char)> {
    if text.bytes().all(|b| (b' '..0x7f).contains(&b) || b == b'\n' || b == b'\t') {
        return None;
    }
    let mut before = ' ';
    let mut characters = text.chars().enumerate().peekable();
    while let Some((at, c)) = characters.next() {
        let is_keycap = characters.peek().is_some_and(|(_, next)| *next == '\u{20e3}');
        // A variation selector belongs to a symbol; after a letter it only hides a difference.
        let is_lost = matches!(c, '\u{fe00}'..='\u{fe0f}') && before.is_ascii() && !is_keycap;
        if is_lost || is_unshowable(c) {
            return Some((at, c));
        }
        before = c;
    }
    None
}

/// True for a control, bidirectional or invisible character.
fn is_unshowable(c: char) -> bool {
    matches!(c,
        '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}')
}

/// Reason why reading stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The text is not valid shell text.
    Syntax,
    /// The reader does not know how shells read it.
    Lost,
    TooDeep,
}

type Read<T> = Result<T, Stop>;

/// A here-document whose body follows later.
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
    /// Commands are read for what they may contain; errors are skipped.
    lenient: bool,
    /// A position in bytes and in characters, from which other positions are counted.
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

    fn remaining_text(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn is_at(&self, text: &str) -> bool {
        self.bytes[self.at.min(self.bytes.len())..].starts_with(text.as_bytes())
    }

    /// Number of characters before a byte.
    fn characters_before(&mut self, at: usize) -> usize {
        let (byte, character) = if at >= self.counted.0 { self.counted } else { (0, 0) };
        let more = self.text.get(byte..at).map_or(0, |text| text.chars().count());
        self.counted = (at, character + more);
        self.counted.1
    }

    fn text_span(&mut self, start: usize, end: usize) -> TextSpan {
        TextSpan { start: self.characters_before(start), end: self.characters_before(end) }
    }

    /// Records a construct beyond the language at this position.
    fn flag_unsupported(&mut self, what: &'static str) {
        if self.beyond.is_none() {
            let end = self.remaining_text().chars().next().map_or(self.at, |c| self.at + c.len_utf8());
            let span = self.text_span(self.at, end);
            self.beyond = Some(Beyond { what, span });
        }
    }

    fn give_up<T>(&mut self, what: &'static str) -> Read<T> {
        self.flag_unsupported(what);
        Err(Stop::Lost)
    }

    /// Takes one character of any length in bytes.
    fn take_char(&mut self) -> Option<char> {
        let c = self.remaining_text().chars().next()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn one_level_deeper<T>(&mut self, inside: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
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

/// Length of the variable name at the start of `text`.
fn name_len(text: &str) -> usize {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return 0;
    }
    text.bytes().take_while(|b| is_name_byte(*b)).count()
}

#[cfg(test)]
mod tests;
