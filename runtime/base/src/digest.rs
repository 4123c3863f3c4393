//! BLAKE3 digests, by which lobster names bytes and actions.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Serialize};

/// A 256-bit BLAKE3 digest. Printed and parsed as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The digest of all bytes of `reader`, in bounded memory.
    ///
    /// # Errors
    /// The reader's error.
    pub fn of_reader(reader: impl Read) -> io::Result<Self> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(reader)?;
        Ok(Self(*hasher.finalize().as_bytes()))
    }

    /// The digest of a value's canonical JSON (RFC 8785).
    ///
    /// # Errors
    /// If the value has no JSON form (a map with keys that are not strings).
    pub fn of_json(value: &impl Serialize) -> serde_json::Result<Self> {
        Ok(Self::of_bytes(&serde_json_canonicalizer::to_vec(value)?))
    }

    /// The raw 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 12 hex digits: enough for a person to tell two digests apart.
    #[must_use]
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl From<[u8; 32]> for Digest {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl From<blake3::Hash> for Digest {
    fn from(hash: blake3::Hash) -> Self {
        Self(*hash.as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "blake3:{self}")
    }
}

/// Text that is not 64 lower-case hex digits.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a BLAKE3 digest (64 lower-case hex digits)")]
pub struct DigestSyntaxError(String);

impl FromStr for Digest {
    type Err = DigestSyntaxError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let hex = text.strip_prefix("blake3:").unwrap_or(text).as_bytes();
        let mut bytes = [0; 32];
        let mut is_wrong = hex.len() != 64;
        for (byte, pair) in bytes.iter_mut().zip(hex.as_chunks().0) {
            let [high, low] = pair.map(|digit| VALUES[usize::from(digit)]);
            is_wrong |= (high | low) > 15;
            *byte = (high << 4) | (low & 15);
        }
        if is_wrong { Err(DigestSyntaxError(text.to_owned())) } else { Ok(Self(bytes)) }
    }
}

/// Values of the lower-case hexadecimal digits, and an invalid value for all other bytes: a journal has some digests
/// in each record, and must be read within milliseconds.
const VALUES: [u8; 256] = {
    let mut values = [0xff; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    values
};

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Hex;
        impl Visitor<'_> for Hex {
            type Value = Digest;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a BLAKE3 digest (64 lower-case hex digits)")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Digest, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Hex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_round_trips() {
        let digest = Digest::of_bytes(b"lobster");
        assert_eq!(digest.to_string().parse::<Digest>().ok(), Some(digest));
        assert_eq!(format!("blake3:{digest}").parse::<Digest>().ok(), Some(digest));
        assert!("xyz".parse::<Digest>().is_err());
        assert!(digest.to_string().to_uppercase().parse::<Digest>().is_err());
    }

    #[test]
    fn any_other_byte_at_any_place_is_refused() {
        let text = Digest::of_bytes(b"lobster").to_string();
        for at in 0..64 {
            for byte in 0..=255_u8 {
                let mut other = text.clone().into_bytes();
                other[at] = byte;
                let Ok(other) = String::from_utf8(other) else { continue };
                let is_digit = byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                assert_eq!(
                    other.parse::<Digest>().map(|digest| digest.to_string()).ok(),
                    is_digit.then_some(other)
                );
            }
        }
        for wrong in [&text[1..], &format!("{text}0"), &text.replacen('a', "ä", 1), ""] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn canonical_json_ignores_key_order() {
        let a = serde_json::json!({"a": 1, "b": [true, null]});
        let b = serde_json::json!({"b": [true, null], "a": 1});
        assert_eq!(Digest::of_json(&a).ok(), Digest::of_json(&b).ok());
    }
}
