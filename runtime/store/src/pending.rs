//! What is on its way into the database.
//!
//! Small blobs and the outcomes of pure actions are not worth a transaction of
//! their own. They wait here for the next one, and readers find them here until
//! it has ended.

use std::collections::HashMap;
use std::sync::Arc;

use super::Store;
use super::blob::Blob;
use super::db::Durability;
use super::error::StoreError;
use lobster_base::digest::Digest;
use lobster_base::sync::lock;

/// Bytes that wait for the next transaction; beyond this they get one of their own.
const PENDING_MAX: usize = 4 * 1024 * 1024;

#[derive(Default)]
pub(super) struct Pending {
    /// For the next transaction.
    waiting: Batch,
    /// In a transaction that has not ended: no other connection sees it yet.
    committing: Option<Arc<Batch>>,
}

/// What one transaction takes along.
#[derive(Default)]
pub(super) struct Batch {
    pub(super) blobs: HashMap<Digest, Arc<[u8]>>,
    /// Files that are in place but not in the table yet.
    pub(super) files: HashMap<Digest, u64>,
    /// By their actions.
    pub(super) outcomes: HashMap<Digest, KnownOutcome>,
    /// Of `blobs` and `outcomes`, together.
    bytes: usize,
}

/// What an action gave, as the cache keeps it.
#[derive(Clone)]
pub(super) struct KnownOutcome {
    /// The outcome as JSON.
    pub(super) text: Arc<str>,
    /// Milliseconds since 1970.
    pub(super) created: i64,
    /// Milliseconds since 1970; never, if none.
    pub(super) expires: Option<i64>,
}

/// What is held of a blob that is not in the database yet.
pub(super) enum Held {
    Bytes(Arc<[u8]>),
    /// Its size; the bytes are in its file.
    File(u64),
}

impl Store {
    /// Hands everything held back to the database, lazily.
    ///
    /// # Errors
    /// When it cannot be written; it is then still held.
    pub fn flush(&self) -> Result<(), StoreError> {
        if lock(&self.inner.pending).nothing_waits() {
            return Ok(());
        }
        self.write(Durability::Lazy, |_| Ok(()))
    }
}

impl Pending {
    pub(super) fn nothing_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Holds a small blob for the next transaction; says whether too much waits for it now.
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

    /// Holds what an action gave; says whether too much waits now.
    pub(super) fn hold_outcome(&mut self, action: Digest, outcome: KnownOutcome) -> bool {
        self.waiting.hold_outcome(action, outcome)
    }

    pub(super) fn find(&self, digest: &Digest) -> Option<Held> {
        self.batches().find_map(|batch| {
            let bytes = batch.blobs.get(digest).map(|bytes| Held::Bytes(Arc::clone(bytes)));
            bytes.or_else(|| batch.files.get(digest).copied().map(Held::File))
        })
    }

    pub(super) fn outcome(&self, action: &Digest) -> Option<KnownOutcome> {
        self.batches().find_map(|batch| batch.outcomes.get(action).cloned())
    }

    /// The newest first.
    fn batches(&self) -> impl Iterator<Item = &Batch> {
        [Some(&self.waiting), self.committing.as_deref()].into_iter().flatten()
    }

    /// A transaction takes along what waits.
    pub(super) fn begin(&mut self) -> Arc<Batch> {
        let batch = Arc::new(std::mem::take(&mut self.waiting));
        self.committing = Some(Arc::clone(&batch));
        batch
    }

    /// The transaction is over. What it did not commit waits for the next one,
    /// beside what came meanwhile and is newer.
    pub(super) fn end(&mut self, committed: bool) {
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

/// Rows in the order of the index over their digests: a transaction then goes
/// through the index once, instead of once a row from its root.
pub(super) fn in_index_order<T>(rows: impl Iterator<Item = T>, digest: impl Fn(&T) -> &Digest) -> Vec<T> {
    let mut rows: Vec<T> = rows.collect();
    rows.sort_unstable_by(|a, b| digest(a).as_bytes().cmp(digest(b).as_bytes()));
    rows
}
