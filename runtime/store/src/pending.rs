//! Small blobs and outcomes on their way into the database.
//!
//! Small blobs and the outcomes of pure actions do not justify a separate transaction. They wait here for the next
//! one, and readers find them here until it has ended.

use std::collections::HashMap;
use std::sync::Arc;

use super::Store;
use super::blob::Blob;
use super::db::Durability;
use super::error::StoreError;
use lobster_base::digest::Digest;
use lobster_base::sync::lock;

/// Most bytes that wait for the next transaction; above this they get a separate one.
const PENDING_MAX: usize = 4 * 1024 * 1024;

#[derive(Default)]
pub(super) struct Pending {
    /// For the next transaction.
    waiting: Batch,
    /// In a transaction that has not ended, so other connections do not see it yet.
    committing: Option<Arc<Batch>>,
}

/// Blobs and outcomes of one transaction.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) blobs: HashMap<Digest, Arc<[u8]>>,
    /// Files that are in place but not in the table yet.
    pub(super) files: HashMap<Digest, u64>,
    /// By action.
    pub(super) outcomes: HashMap<Digest, KnownOutcome>,
    /// Of `blobs` and `outcomes` together.
    bytes: usize,
}

/// The outcome of an action, as stored in the cache.
#[derive(Clone)]
pub(super) struct KnownOutcome {
    /// The outcome as JSON.
    pub(super) text: Arc<str>,
    /// In milliseconds since 1970.
    pub(super) created: i64,
    /// In milliseconds since 1970; `None` means never.
    pub(super) expires: Option<i64>,
}

/// A blob that is not in the database yet.
pub(super) enum Held {
    Bytes(Arc<[u8]>),
    /// Its size; the bytes are in its file.
    File(u64),
}

impl Store {
    /// Writes everything held back to the database, lazily.
    ///
    /// # Errors
    /// If it cannot be written; it is then still held.
    pub fn flush_pending(&self) -> Result<(), StoreError> {
        if lock(&self.inner.pending).nothing_waits() {
            return Ok(());
        }
        self.write_transaction(Durability::Lazy, |_| Ok(()))
    }
}

impl Pending {
    pub(super) fn nothing_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Holds a small blob for the next transaction; true if too much is waiting now.
    pub(super) fn hold_blob(&mut self, digest: Digest, bytes: &[u8]) -> bool {
        self.waiting.hold_blob(digest, bytes.into())
    }

    pub(super) fn has_files(&self) -> bool {
        !self.waiting.files.is_empty()
    }

    /// Holds the row of a blob whose file is in place.
    pub(super) fn hold_file(&mut self, blob: Blob) {
        self.waiting.files.insert(blob.digest, blob.len);
    }

    /// Holds the outcome of an action; true if too much is waiting now.
    pub(super) fn hold_outcome(&mut self, action: Digest, outcome: KnownOutcome) -> bool {
        self.waiting.hold_outcome(action, outcome)
    }

    pub(super) fn find_blob(&self, digest: &Digest) -> Option<Held> {
        self.all_batches().find_map(|batch| {
            let bytes = batch.blobs.get(digest).map(|bytes| Held::Bytes(Arc::clone(bytes)));
            bytes.or_else(|| batch.files.get(digest).copied().map(Held::File))
        })
    }

    pub(super) fn find_outcome(&self, action: &Digest) -> Option<KnownOutcome> {
        self.all_batches().find_map(|batch| batch.outcomes.get(action).cloned())
    }

    /// Both batches, the newer first.
    fn all_batches(&self) -> impl Iterator<Item = &Batch> {
        [Some(&self.waiting), self.committing.as_deref()].into_iter().flatten()
    }

    /// Starts a transaction with everything that is waiting.
    pub(super) fn begin_transaction(&mut self) -> Arc<Batch> {
        let batch = Arc::new(std::mem::take(&mut self.waiting));
        self.committing = Some(Arc::clone(&batch));
        batch
    }

    /// Ends the transaction. If it was not committed, its content waits for the next one; newer entries take
    /// precedence.
    pub(super) fn end_transaction(&mut self, committed: bool) {
        let Some(batch) = self.committing.take().filter(|_| !committed) else { return };
        for (digest, bytes) in &batch.blobs {
            self.waiting.hold_blob(*digest, Arc::clone(bytes));
        }
        self.waiting.files.extend(&batch.files);
        for (action, outcome) in &batch.outcomes {
            if !self.waiting.outcomes.contains_key(action) {
                self.waiting.hold_outcome(*action, outcome.clone());
            }
        }
    }
}

impl Batch {
    fn is_empty(&self) -> bool {
        self.blobs.is_empty() && self.files.is_empty() && self.outcomes.is_empty()
    }

    fn hold_blob(&mut self, digest: Digest, bytes: Arc<[u8]>) -> bool {
        let more = bytes.len();
        if self.blobs.insert(digest, bytes).is_none() {
            self.bytes += more;
        }
        self.bytes > PENDING_MAX
    }

    fn hold_outcome(&mut self, action: Digest, outcome: KnownOutcome) -> bool {
        self.bytes += outcome.text.len();
        if let Some(old) = self.outcomes.insert(action, outcome) {
            self.bytes -= old.text.len();
        }
        self.bytes > PENDING_MAX
    }
}

/// Sorts rows by digest, in the order of the index: a transaction then goes through the index once, instead of
/// starting at its root for each row.
pub(super) fn in_index_order<T>(rows: impl Iterator<Item = T>, digest: impl Fn(&T) -> &Digest) -> Vec<T> {
    let mut rows: Vec<T> = rows.collect();
    rows.sort_unstable_by(|a, b| digest(a).as_bytes().cmp(digest(b).as_bytes()));
    rows
}
