//! The last line that a running process wrote, for live progress.

/// Bytes of a line that are kept; the end of a longer line is not shown.
const LINE: usize = 1000;

/// Finds the last line of a stream.
#[derive(Default)]
pub(super) struct LastLine {
    partial: Vec<u8>,
}

impl LastLine {
    /// The last line that these bytes complete, unless it is empty.
    pub(super) fn push_bytes(&mut self, bytes: &[u8]) -> Option<String> {
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
        let mut last = LastLine::default();
        assert_eq!(last.push_bytes(b"half a li"), None);
        assert_eq!(last.push_bytes(b"ne\r\nsecond\nthi"), Some("second".to_owned()));
        assert_eq!(last.push_bytes(b"rd\n  \n\n"), Some("third".to_owned()));
        assert_eq!(last.push_bytes("x".repeat(5000).as_bytes()), None);
        assert_eq!(last.push_bytes(b"\r"), Some("x".repeat(LINE)));
    }
}
