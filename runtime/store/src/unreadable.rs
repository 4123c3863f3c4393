//! Blobs that this process needed and could not read.
//!
//! Some readers continue without a blob: a list is useful even if a row lacks a text. Commands that show the record
//! query this list at the end, so that no missing blob goes unreported.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::Store;
use super::error::StoreError;
use lobster_base::digest::Digest;
use lobster_base::sync::lock;

/// Most blobs that are remembered, since a server reads for a long time.
const KEPT: usize = 100;

static MET: Mutex<BTreeMap<Digest, String>> = Mutex::new(BTreeMap::new());

/// The errors of all blobs that this process needed and that are damaged, lost or missing, except blobs left out of a
/// bundle.
#[must_use]
pub fn unreadable_blobs() -> Vec<String> {
    lock(&MET).values().cloned().collect()
}

impl Store {
    /// Remembers that a blob could not be read, and returns the same error.
    pub(super) fn note_unreadable(&self, error: StoreError) -> StoreError {
        let digest = match &error {
            StoreError::DamagedBlob { digest, .. } | StoreError::LostBlob { digest, .. } => *digest,
            StoreError::MissingBlob(digest) if !self.is_left_out(digest) => *digest,
            _ => return error,
        };
        // Blobs missing from a bundle are reported by its replay.
        if self.inner.scratch.is_none() {
            let mut met = lock(&MET);
            if met.len() < KEPT {
                met.entry(digest).or_insert_with(|| error.to_string());
            }
        }
        error
    }
}
