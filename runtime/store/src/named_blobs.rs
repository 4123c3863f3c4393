//! Sets of fixed size that record which blobs are named.
//!
//! A digest is named if its 64 hex digits occur in a kept text. Errors go in one direction only: a text that merely
//! looks like a digest keeps a blob, and so does a collision in the set, but a named blob is never missed. Neither are
//! the blobs that it names in turn, because no collision can make a blob seem to have been read.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::path::Path;

use lobster_base::digest::Digest;
use lobster_base::regular_file;

/// Bits in the set: 8 MiB. With a million live blobs, a collision keeps one dead blob in 75,000; the next collection,
/// with other live blobs, may remove it.
const BITS: usize = 1 << 26;

/// Blobs remembered as read, at 16 bytes each. A blob with the same slot replaces an earlier one, which is then read
/// again. That only costs time, since the names in a blob never change.
const READ: usize = 1 << 20;

/// A blob that names others is JSON of at most this size: plans, actions, manifests.
pub(super) const NAMES_AT_MOST: u64 = 16 * 1024 * 1024;

/// Hex digits of a digest.
const HEX: usize = 64;

/// A Bloom filter over digests, which serve as their own hash values, and the set of blobs that were read.
pub(super) struct Marks {
    named: Vec<u64>,
    read: Vec<[u8; 16]>,
    /// Randomises the slots in `read`, so that an attacker cannot create blobs that all share a slot.
    places: RandomState,
}

impl Marks {
    pub(super) fn new() -> Self {
        Self::with_room_for(READ)
    }

    pub(super) fn with_room_for(read: usize) -> Self {
        Self { named: vec![0; BITS / 64], read: vec![[0; 16]; read], places: RandomState::new() }
    }

    fn bit_positions(digest: &Digest) -> impl Iterator<Item = (usize, u64)> + '_ {
        digest.as_bytes().chunks_exact(4).take(4).map(|four| {
            let bit = four.iter().fold(0_usize, |n, byte| n << 8 | usize::from(*byte)) % BITS;
            (bit / 64, 1 << (bit % 64))
        })
    }

    /// Adds a digest; true if it may be new.
    pub(super) fn add(&mut self, digest: &Digest) -> bool {
        let mut new = false;
        for (word, bit) in Self::bit_positions(digest) {
            new |= self.named[word] & bit == 0;
            self.named[word] |= bit;
        }
        new
    }

    pub(super) fn may_contain(&self, digest: &Digest) -> bool {
        Self::bit_positions(digest).all(|(word, bit)| self.named[word] & bit != 0)
    }

    /// Marks a blob as being read; false if it was certainly read before.
    pub(super) fn begin_to_read(&mut self, digest: &Digest) -> bool {
        let at = (self.places.hash_one(digest.as_bytes()) % self.read.len() as u64) as usize;
        let name = &digest.as_bytes()[..16];
        let was_read = self.read[at] == name;
        self.read[at].copy_from_slice(name);
        !was_read
    }
}

/// Calls `found` for every digest in `text`.
pub(super) fn digests_in(text: &[u8], mut found: impl FnMut(Digest)) {
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let mut at = 0;
    while let Some(window) = text.get(at..at + HEX) {
        // The last byte that is not a hex digit rules out all earlier starts.
        if let Some(bad) = window.iter().rposition(|byte| !is_hex(*byte)) {
            at += bad + 1;
            continue;
        }
        let longer = text[at + HEX..].iter().take_while(|byte| is_hex(**byte)).count();
        if longer == 0
            && let Some(digest) = std::str::from_utf8(window).ok().and_then(|hex| hex.parse().ok())
        {
            found(digest);
        }
        at += HEX + longer;
    }
}

pub(super) fn looks_like_json(content: &[u8]) -> bool {
    matches!(content.first(), Some(b'{' | b'['))
}

/// The content of a file that looks like JSON; empty for other files.
pub(super) fn read_json(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = vec![0];
    let mut file = regular_file::open_own(File::options().read(true), path)?;
    file.read_exact(&mut content)?;
    if looks_like_json(&content) {
        file.take(NAMES_AT_MOST).read_to_end(&mut content)?;
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(text: &str) -> Vec<Digest> {
        let mut found = Vec::new();
        digests_in(text.as_bytes(), |digest| found.push(digest));
        found
    }

    #[test]
    fn finds_digests_of_exactly_64_digits() {
        let (a, b) = (Digest::of_bytes(b"a"), Digest::of_bytes(b"b"));
        assert_eq!(all(&format!(r#"{{"x":"{a}","y":["blake3:{b}"],"z":"{a}"}}"#)), [a, b, a]);
        assert_eq!(all(&format!("{a}")), [a]);
        assert_eq!(all(&format!("{a}{b}")), []);
        assert_eq!(all(&format!("{a}0")), []);
        assert_eq!(all(&a.to_string()[1..]), []);
        assert_eq!(all(&format!("{}\n{b}", &a.to_string()[1..])), [b]);
        assert_eq!(all(&a.to_string().to_uppercase()), []);
        assert_eq!(all(""), []);
    }

    proptest! {
        #[test]
        fn finds_them_anywhere(before in "[^0-9a-f]*|[a-f]{1,70}[^0-9a-f]", after in "([^0-9a-f].*)?", seed in any::<u64>()) {
            let digest = Digest::of_bytes(&seed.to_le_bytes());
            let text = format!("{before}{digest}{after}");
            prop_assert!(all(&text).contains(&digest));
        }
    }

    #[test]
    fn marked_digests_are_never_missed() {
        let mut marks = Marks::new();
        let digest = |i: u32| Digest::of_bytes(&i.to_le_bytes());
        assert!((0..10_000).all(|i| marks.add(&digest(i))));
        assert!((0..10_000).all(|i| marks.may_contain(&digest(i)) && !marks.add(&digest(i))));
        assert_eq!((10_000..60_000).filter(|i| marks.may_contain(&digest(*i))).count(), 0);
    }
}
