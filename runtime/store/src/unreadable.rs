//! Blobs of the record that this process wanted and could not have.
//!
//! Some readers go on without a blob: a list is worth having when one of its rows lacks a text. Whoever shows
//! the record asks here at the end, so that no reader can make less of it without anybody hearing of it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::Store;
use super::error::StoreError;
use lobster_base::digest::Digest;
use lobster_base::sync::lock;

/// As many are kept: a server reads for a long time.
const KEPT: usize = 100;

static MET: Mutex<BTreeMap<Digest, String>> = Mutex::new(BTreeMap::new());

/// What was wrong with each blob that this process wanted and that is damaged, lost or missing; not of those that
/// were left out of a bundle.
#[must_use]
pub fn unreadable_blobs() -> Vec<String> {
    lock(&MET).values().cloned().collect()
}

impl Store {
    /// Notes that a blob could not be had, and gives the same error.
    pub(super) fn note_unreadable(&self, error: StoreError) -> StoreError {
        let digest = match &error {
            StoreError::DamagedBlob { digest, .. } | StoreError::LostBlob { digest, .. } => *digest,
            StoreError::MissingBlob(digest) if !self.is_left_out(digest) => *digest,
            _ => return error,
        };
        // What a bundle lacks, its replay tells.
        if self.inner.scratch.is_none() {
            let mut met = lock(&MET);
            if met.len() < KEPT {
                met.entry(digest).or_insert_with(|| error.to_string());
            }
        }
        error
    }
}
