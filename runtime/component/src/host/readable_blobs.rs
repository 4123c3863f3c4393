//! Blobs that a program may open: blobs whose digests are in its arguments or in the input that it has
//! read, and blobs that it wrote itself. A digest that it knows from elsewhere, or computes from
//! guessed content, opens nothing: the store also holds blobs of other steps and other runs.

use std::collections::HashSet;

use crate::Digest;

/// Hex digits of a digest.
const DIGITS: usize = 64;

/// Minimum number of digests that are kept. To open a blob that was named more than this many digests
/// ago, the program has to read its digest again.
const REMEMBERED: usize = 100_000;

/// Digests that a run has seen, in bounded memory.
pub(crate) struct ReadableBlobs {
    /// False if the program cannot open blobs, which then costs nothing.
    watching: bool,
    recent: HashSet<Digest>,
    older: HashSet<Digest>,
    /// Hex digits at the end of the stream so far.
    digits: Vec<u8>,
}

impl ReadableBlobs {
    /// Starts with the digests in `args`, if the program can open blobs at all.
    pub(crate) fn new(opens_blobs: bool, args: &str) -> Self {
        let mut given =
            Self { watching: opens_blobs, recent: HashSet::new(), older: HashSet::new(), digits: Vec::new() };
        given.add_text(args);
        given
    }

    /// Adds a complete text.
    pub(crate) fn add_text(&mut self, text: &str) {
        self.add_bytes(text.as_bytes());
        self.digits.clear();
    }

    /// Adds a part of a stream; the next part continues it.
    pub(crate) fn add_bytes(&mut self, bytes: &[u8]) {
        if !self.watching {
            return;
        }
        for byte in bytes {
            if !byte.is_ascii_hexdigit() {
                self.digits.clear();
                continue;
            }
            if self.digits.len() == DIGITS {
                continue;
            }
            self.digits.push(*byte);
            if self.digits.len() == DIGITS
                && let Ok(digest) = Digest::from_hex(&self.digits)
            {
                self.add_digest(digest);
            }
        }
    }

    /// Adds a blob that the program wrote.
    pub(crate) fn add_digest(&mut self, digest: Digest) {
        if self.recent.len() == REMEMBERED {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(digest);
    }

    /// All digests that are kept.
    pub(crate) fn into_digests(self) -> impl Iterator<Item = Digest> {
        self.recent.into_iter().chain(self.older)
    }

    pub(crate) fn holds(&self, digest: &Digest) -> bool {
        self.recent.contains(digest) || self.older.contains(digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nth_digest(n: usize) -> Digest {
        blake3::hash(&n.to_le_bytes())
    }

    #[test]
    fn digests_are_found_wherever_they_stand() {
        let [a, b, c] = [1, 2, 3].map(nth_digest);
        let given = ReadableBlobs::new(
            true,
            &format!(r#"{{"a":"blake3:{a}","b":["x","{}"]}}"#, b.to_hex().to_uppercase()),
        );
        assert!(given.holds(&a) && given.holds(&b) && !given.holds(&c));
        assert!(!ReadableBlobs::new(false, &c.to_hex()).holds(&c));
    }

    #[test]
    fn a_digest_may_be_cut_by_the_stream_but_not_put_together_from_texts() {
        let hex = nth_digest(1).to_hex();
        let (begin, end) = hex.split_at(20);
        let mut given = ReadableBlobs::new(true, "{}");
        given.add_text(begin);
        given.add_text(end);
        assert!(!given.holds(&nth_digest(1)));
        given.add_bytes(begin.as_bytes());
        given.add_bytes(end.as_bytes());
        assert!(given.holds(&nth_digest(1)));
        // A text with one digit more or less is a different name.
        let mut given = ReadableBlobs::new(true, "{}");
        given.add_text(&format!("0{hex}"));
        given.add_text(&hex[1..]);
        assert!(!given.holds(&nth_digest(1)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut given = ReadableBlobs::new(true, "");
        (0..3 * REMEMBERED).for_each(|n| given.add_digest(nth_digest(n)));
        assert!(given.recent.len() + given.older.len() <= 2 * REMEMBERED);
        assert!((2 * REMEMBERED..3 * REMEMBERED).all(|n| given.holds(&nth_digest(n))));
        assert!(!given.holds(&nth_digest(0)));
    }
}
