//! Which blobs a program may open: those that it was given, that is, whose
//! digests stand in its arguments or in the input that it has read, and those
//! that it wrote itself. Knowing a digest, or guessing what a blob holds, opens
//! nothing: the store is full of what other steps and other runs left there.

use std::collections::HashSet;

use crate::Digest;

/// Hex digits of a digest.
const DIGITS: usize = 64;

/// How many digests are remembered at least. More than that ago, a program has
/// opened what it read of, or has to read of it again.
const REMEMBERED: usize = 100_000;

/// The digests that a run has seen, in bounded memory.
pub(crate) struct ReadableBlobs {
    /// A program that cannot open blobs costs nothing.
    watching: bool,
    recent: HashSet<Digest>,
    older: HashSet<Digest>,
    /// The hex digits that stand before what comes next.
    digits: Vec<u8>,
}

impl ReadableBlobs {
    /// What `args` name, if the program can open blobs at all.
    pub(crate) fn new(opens_blobs: bool, args: &str) -> Self {
        let mut given =
            Self { watching: opens_blobs, recent: HashSet::new(), older: HashSet::new(), digits: Vec::new() };
        given.text(args);
        given
    }

    /// A text by itself.
    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
        self.digits.clear();
    }

    /// A part of a stream, which goes on with the next part.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
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
                self.digest(digest);
            }
        }
    }

    /// A blob that the program wrote.
    pub(crate) fn digest(&mut self, digest: Digest) {
        if self.recent.len() == REMEMBERED {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(digest);
    }

    /// All that is remembered.
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

    fn digest(n: usize) -> Digest {
        blake3::hash(&n.to_le_bytes())
    }

    #[test]
    fn digests_are_found_wherever_they_stand() {
        let [a, b, c] = [1, 2, 3].map(digest);
        let given = ReadableBlobs::new(
            true,
            &format!(r#"{{"a":"blake3:{a}","b":["x","{}"]}}"#, b.to_hex().to_uppercase()),
        );
        assert!(given.holds(&a) && given.holds(&b) && !given.holds(&c));
        assert!(!ReadableBlobs::new(false, &c.to_hex()).holds(&c));
    }

    #[test]
    fn a_digest_may_be_cut_by_the_stream_but_not_put_together_from_texts() {
        let hex = digest(1).to_hex();
        let (begin, end) = hex.split_at(20);
        let mut given = ReadableBlobs::new(true, "{}");
        given.text(begin);
        given.text(end);
        assert!(!given.holds(&digest(1)));
        given.bytes(begin.as_bytes());
        given.bytes(end.as_bytes());
        assert!(given.holds(&digest(1)));
        // One digit more or less names something else.
        let mut given = ReadableBlobs::new(true, "{}");
        given.text(&format!("0{hex}"));
        given.text(&hex[1..]);
        assert!(!given.holds(&digest(1)));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut given = ReadableBlobs::new(true, "");
        (0..3 * REMEMBERED).for_each(|n| given.digest(digest(n)));
        assert!(given.recent.len() + given.older.len() <= 2 * REMEMBERED);
        assert!((2 * REMEMBERED..3 * REMEMBERED).all(|n| given.holds(&digest(n))));
        assert!(!given.holds(&digest(0)));
    }
}
