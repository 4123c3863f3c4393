//! The last line that a process wrote, for those who follow it while it works.

use std::time::{Duration, Instant};

use lobster_store::Redactor;

/// Bytes of a line that are kept; the end of a longer one is not shown.
const LINE: usize = 1000;

/// Of a stream that holds back what may be a secret, its end is looked through for this part of the time.
const SHARE: u32 = 50;

/// So much more may be spent at the beginning.
const ADVANCE: Duration = Duration::from_millis(20);

/// Finds the last line of a stream.
pub(super) struct LastLine {
    partial: Vec<u8>,
    begun: Instant,
    spent: Duration,
}

impl LastLine {
    pub(super) fn new() -> Self {
        Self { partial: Vec::new(), begun: Instant::now(), spent: Duration::ZERO }
    }

    /// The last line that is complete with these bytes, unless it is empty.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Option<String> {
        let mut found = None;
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let room = LINE.saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") || piece.ends_with(b"\r") {
                found = text_of(&self.partial).or(found);
                self.partial.clear();
            }
        }
        found
    }

    /// The last complete line of what is held back, without secrets. None if that would cost too much now: a process
    /// that writes much is not held up by who follows it.
    pub(super) fn peek(&mut self, redactor: &Redactor) -> Option<String> {
        if self.spent > self.begun.elapsed() / SHARE + ADVANCE {
            return None;
        }
        let now = Instant::now();
        let seen = redactor.peek();
        self.spent += now.elapsed();
        let end = seen.iter().rposition(|byte| matches!(byte, b'\n' | b'\r'))?;
        seen[..end]
            .rsplit(|byte| matches!(byte, b'\n' | b'\r'))
            .find_map(|line| text_of(&line[..line.len().min(LINE)]))
    }
}

fn text_of(line: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(line);
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_when_they_are_complete() {
        let mut last = LastLine::new();
        assert_eq!(last.take(b"half a li"), None);
        assert_eq!(last.take(b"ne\r\nsecond\nthi"), Some("second".to_owned()));
        assert_eq!(last.take(b"rd\n  \n\n"), Some("third".to_owned()));
        assert_eq!(last.take("x".repeat(5000).as_bytes()), None);
        assert_eq!(last.take(b"\r"), Some("x".repeat(LINE)));
    }
}
