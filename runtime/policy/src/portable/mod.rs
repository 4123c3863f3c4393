//! Text that dash, busybox ash and bash read alike.
//!
//! The analysis parses bash. The shell that is started may be another one, and
//! whatever the two read in two ways would run without having been judged. So
//! shell text is read a second time, by a small reader of the language that the
//! three shells share. It answers three questions: is the text written in that
//! language; which words, operators and nested code does it consist of; and, if
//! it is not, what would dash or ash read instead.
//!
//! The reader runs nothing and expands nothing. What it is not sure about is
//! *odd*: not portable, whatever the reason.

mod agree;
mod grammar;
mod judge;
mod words;

pub(crate) use agree::Skeleton;

use super::dialect::Dialect;

/// Deepest nesting that the reader follows; the parser's own limit is lower.
const MAX_DEPTH: usize = 200;

/// Whose reading is wanted where the shells differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// What POSIX says, as dash does it.
    Dash,
    /// busybox ash, which takes some of bash's constructs.
    Ash,
}

/// A construct that not every shell reads alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Oddity {
    /// The construct, for a message: "`[[`".
    pub(crate) what: &'static str,
    /// Where it stands, in bytes.
    pub(crate) at: usize,
}

/// Why reading stopped before the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// The shell reports a syntax error there and runs nothing of that line.
    Syntax,
    /// The reader does not know what the shell makes of it.
    Lost,
}

type Read<T> = Result<T, Stop>;

/// What the reader found.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The first construct that is not common to the shells.
    pub(crate) oddity: Option<Oddity>,
    /// The reader could not follow the shell to the end.
    pub(crate) lost: bool,
    /// The shell would report a syntax error.
    pub(crate) broken: bool,
    /// Words and operators in order.
    pub(crate) skeleton: Skeleton,
    /// The code of each substitution that stands directly in the text.
    pub(crate) codes: Vec<String>,
    /// What the shell would read, written so that every shell reads it so.
    pub(crate) rewritten: String,
}

impl Reading {
    /// Whether the text is written in the language that the shells share.
    pub(crate) fn is_portable(&self) -> bool {
        self.oddity.is_none() && !self.lost && !self.broken
    }
}

/// Reads `text` as the shell of `flavour` would.
pub(crate) fn read(text: &str, flavour: Flavour) -> Reading {
    let mut reader = Reader::new(text, flavour, 0);
    let end = reader.program();
    let whole = end.is_ok();
    if !whole {
        // Whole lines before the error have run by then.
        reader.out.truncate(reader.complete);
    }
    Reading {
        lost: end == Err(Stop::Lost) || reader.lost,
        broken: end == Err(Stop::Syntax),
        oddity: reader.oddity,
        skeleton: reader.skeleton,
        codes: reader.codes,
        rewritten: reader.out,
    }
}

/// What a shell of this dialect reads in a text if it may be another thing than what bash reads,
/// written so that every shell reads it so.
pub(crate) fn other_readings(text: &str, dialect: Dialect) -> Vec<String> {
    let flavours: &[Flavour] = match dialect {
        Dialect::Bash => &[],
        Dialect::Dash => &[Flavour::Dash],
        Dialect::Ash => &[Flavour::Ash],
        Dialect::Unknown => &[Flavour::Dash, Flavour::Ash],
    };
    let readings = flavours.iter().map(|flavour| read(text, *flavour));
    readings.filter(|reading| !reading.is_portable()).map(|reading| reading.rewritten).collect()
}

/// A here-document whose body is still to come.
struct Pending {
    delimiter: String,
    strip: bool,
    expand: bool,
}

struct Reader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    flavour: Flavour,
    oddity: Option<Oddity>,
    lost: bool,
    skeleton: Skeleton,
    codes: Vec<String>,
    out: String,
    /// How much of `out` consists of whole lines.
    complete: usize,
    pending: Vec<Pending>,
    depth: usize,
}

impl<'t> Reader<'t> {
    fn new(text: &'t str, flavour: Flavour, depth: usize) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            flavour,
            oddity: None,
            lost: false,
            skeleton: Skeleton::default(),
            codes: Vec::new(),
            out: String::with_capacity(text.len() + 16),
            complete: 0,
            pending: Vec::new(),
            depth,
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn peek_at(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn sees(&self, text: &str) -> bool {
        self.bytes[self.at.min(self.bytes.len())..].starts_with(text.as_bytes())
    }

    /// Notes that not every shell reads what stands here alike.
    fn odd(&mut self, what: &'static str) {
        let at = self.at;
        self.oddity.get_or_insert(Oddity { what, at });
    }

    fn lose<T>(&mut self, what: &'static str) -> Read<T> {
        self.odd(what);
        self.lost = true;
        Err(Stop::Lost)
    }

    /// Copies one character, however many bytes it has.
    fn copy_char(&mut self) {
        if let Some(c) = self.text[self.at..].chars().next() {
            self.out.push(c);
            self.at += c.len_utf8();
        }
    }

    fn deeper<T>(&mut self, inside: impl FnOnce(&mut Self) -> Read<T>) -> Read<T> {
        if self.depth >= MAX_DEPTH {
            return self.lose("nesting this deep");
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
