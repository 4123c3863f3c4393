//! Hides a value that a server sends back: byte by byte, so that lengths sent before remain correct.

use memchr::memmem;

/// Replacement of each byte.
const HIDDEN: u8 = b'*';

/// Overwrites values in bytes that arrive in pieces.
#[derive(Clone, Default)]
pub struct EchoMask {
    needles: Vec<Vec<u8>>,
    /// The end of the bytes so far, if it may be the start of a value.
    held: Vec<u8>,
}

/// Does not print the values.
impl std::fmt::Debug for EchoMask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EchoMask").finish_non_exhaustive()
    }
}

impl EchoMask {
    pub(super) fn new(values: impl IntoIterator<Item = String>) -> Self {
        let mut needles: Vec<Vec<u8>> = values.into_iter().map(String::into_bytes).collect();
        needles.retain(|needle| !needle.is_empty());
        needles.dedup();
        Self { needles, held: Vec::new() }
    }

    /// Returns the next piece with the values hidden. The start of a value at its end is held back until more arrives;
    /// nothing else is.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        self.hide_values(&mut bytes);
        let keep = self.needles.iter().map(|needle| longest_beginning(needle, &bytes)).max().unwrap_or(0);
        self.held = bytes.split_off(bytes.len() - keep);
        bytes
    }

    /// Returns the bytes held back, at the end of the stream.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Hides the values in a whole text.
    pub fn hide_values(&self, bytes: &mut [u8]) {
        for needle in &self.needles {
            let mut from = 0;
            while let Some(at) = bytes.get(from..).and_then(|rest| memmem::find(rest, needle)) {
                let found = from + at..from + at + needle.len();
                bytes[found.clone()].fill(HIDDEN);
                from = found.end;
            }
        }
    }
}

/// The number of bytes at the end of `bytes` that are a prefix of `needle`, but not all of it.
fn longest_beginning(needle: &[u8], bytes: &[u8]) -> usize {
    let most = needle.len().saturating_sub(1).min(bytes.len());
    (1..=most).rev().find(|length| bytes.ends_with(&needle[..*length])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_hidden_however_it_is_cut() {
        let text = b"a secret, sec and secretsecret secre";
        let expected = b"a ******, sec and ************ secre";
        for size in 1..text.len() {
            let mut mask = EchoMask::new(["secret".to_owned()]);
            let mut given = Vec::new();
            for piece in text.chunks(size) {
                given.extend(mask.push(piece));
            }
            given.extend(mask.finish());
            assert_eq!(given, expected, "pieces of {size}");
        }
    }

    #[test]
    fn only_what_may_be_a_value_is_held_back() {
        let mut mask = EchoMask::new(["abcd".to_owned(), "xy".to_owned()]);
        assert_eq!(mask.push(b"data: 1\n\n"), b"data: 1\n\n");
        assert_eq!(mask.push(b"ab"), b"");
        assert_eq!(mask.push(b"ab"), b"ab");
        assert_eq!(mask.push(b"cdx"), b"****");
        assert_eq!(mask.finish(), b"x");
    }
}
