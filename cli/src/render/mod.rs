//! Output for people.

pub(crate) mod pager;
pub(crate) mod table;
pub(crate) mod units;

use std::borrow::Cow;
use std::io::{self, Write};

pub(crate) use lobster_render::{question, text};
use lobster_runtime::text::Count;
pub(crate) use lobster_runtime::visible::{harmless, one_line};

/// The beginning of a long text.
pub(crate) fn clip(text: &str, max: usize) -> Cow<'_, str> {
    lobster_runtime::text::clip(text, max, Count::Chars)
}

/// Makes everything written to it [`harmless`]: for screens that quote other texts and have no colours
/// of their own.
pub(crate) struct Quoting<W: Write> {
    to: W,
    /// The beginning of an incomplete character.
    begun: Vec<u8>,
}

impl<W: Write> Quoting<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, begun: Vec::new() }
    }
}

impl<W: Write> Write for Quoting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend(bytes);
        let last = self.begun.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
        let whole = self.begun.len() - last;
        let cut = match std::str::from_utf8(&self.begun[whole..]) {
            // The next bytes may complete it.
            Err(error) if error.error_len().is_none() => whole,
            _ => self.begun.len(),
        };
        let text: Vec<u8> = self.begun.drain(..cut).collect();
        self.to.write_all(harmless(&String::from_utf8_lossy(&text)).as_bytes())?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let text = std::mem::take(&mut self.begun);
        self.to.write_all(String::from_utf8_lossy(&text).as_bytes())?;
        self.to.flush()
    }
}

/// Prints a line on stderr. A closed terminal is not an error.
pub(crate) fn print_to_stderr(line: &str) {
    crate::live::write_above_view(|| {
        let _ = writeln!(anstream::stderr().lock(), "{}", harmless(line));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_a_terminal_is_replaced_and_nothing_else() {
        assert_eq!(harmless("Grüße,\n\t你好 👩‍🚀"), "Grüße,\n\t你好 👩‍🚀");
        assert_eq!(harmless("delete\x1b[2K\rkeep\u{9b}1m\x07"), "delete�[2K�keep�1m�");
        assert_eq!(harmless("a\u{202e}b\u{2066}c\u{200b}d\u{feff}"), "a�b�c�d�");
        assert_eq!(one_line("a\nIt cannot\n\x1b[2J"), "a It cannot �[2J");
        let mut out = Quoting::new(Vec::new());
        let pieces: [&[u8]; 6] = [b"a\xc2", b"\x9bb \xc3", b"\xa9", b"\xf0\x9f", b"\xff\x1b", b"\xe2"];
        for bytes in pieces {
            out.write_all(bytes).unwrap();
        }
        out.flush().unwrap();
        assert_eq!(String::from_utf8(out.to).unwrap(), "a�b é����");
    }
}
