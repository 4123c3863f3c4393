//! Change sets in the record: in outcomes, and in the actions of commits.

use std::io;

use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_changes::{BadChangeSet, ChangeSet, Content, Contents};
use lobster_stage::StageError;
use lobster_store::Store;

/// The kind of the effect.
pub const COMMIT: &str = "commit";

/// In the detail of an outcome: the blob of its change set. In the action of a commit: the digest of its change set.
pub const CHANGES: &str = "changes";

/// Largest change set that is read into memory; [`crate::Layers`] makes no larger one.
const MAX_CHANGE_SET: u64 = 64 << 20;

/// Loads the change set in a blob.
///
/// # Errors
/// If the blob is missing from the store, or is not a change set.
pub fn load_change_set(store: &Store, digest: &Digest) -> Result<ChangeSet, StageError> {
    let bytes = store.load_blob(digest, MAX_CHANGE_SET).map_err(|error| {
        StageError::permanent(format!("the change set cannot be read: {error}")).with_code(Code::Changes)
    })?;
    let set: ChangeSet = serde_json::from_slice(&bytes).map_err(|error| {
        StageError::permanent(format!("the blob does not hold a change set: {error}"))
            .with_code(Code::Changes)
    })?;
    set.check_valid()
        .map_err(|error: BadChangeSet| StageError::permanent(error.to_string()).with_code(Code::Changes))?;
    Ok(set)
}

/// The contents of change sets, in the store.
pub struct InStore<'s>(pub &'s Store);

impl Contents for InStore<'_> {
    fn open_content(&self, digest: &Digest) -> io::Result<Content<'_>> {
        let blob = self.0.open_blob(digest).map_err(io::Error::other)?;
        Ok(blob.into_file().map_or_else(|small| Content::Bytes(Box::new(small)), Content::File))
    }
}
