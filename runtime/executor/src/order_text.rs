//! Text in an order or in its outcome.

use std::io;

use serde::{Deserialize, Serialize};

use super::strict_blob;
use lobster_store::{Blob, Store};

/// Text in the order's own line, or a blob if it is long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderText {
    /// The text itself.
    Text(String),
    /// The blob with the text.
    Blob(#[serde(deserialize_with = "strict_blob::read")] Blob),
}

impl OrderText {
    /// Longest text that is not a blob: even with escapes it fits into a line.
    pub const MAX_INLINE: usize = 2 << 20;
    /// Most bytes that are read from a blob, since they are held in memory.
    const MAX: u64 = 1 << 30;

    /// The blob with the text, if it is one.
    #[must_use]
    pub fn blob(&self) -> Option<Blob> {
        match self {
            Self::Text(_) => None,
            Self::Blob(blob) => Some(*blob),
        }
    }

    /// The whole text.
    ///
    /// # Errors
    /// The blob cannot be read, or holds no text.
    pub fn read_text(&self, store: &Store) -> io::Result<String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Blob(blob) => text_of(*blob, store),
        }
    }
}

/// The text in a blob.
pub(crate) fn text_of(blob: Blob, store: &Store) -> io::Result<String> {
    let bytes = store.load_blob(&blob.digest, OrderText::MAX).map_err(io::Error::other)?;
    String::from_utf8(bytes).map_err(io::Error::other)
}
