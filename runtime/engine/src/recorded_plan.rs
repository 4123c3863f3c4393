//! The recorded beginning of a run: its plan and its arguments.

use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_store::Store;

use crate::envelope::Failure;

/// Reads a plan or arguments from the store.
pub fn load_recorded<T: serde::de::DeserializeOwned>(store: &Store, digest: &Digest) -> Result<T, Failure> {
    const MAX_PLAN: u64 = 64 << 20;
    let bytes = store.load_blob(digest, MAX_PLAN)?;
    json::parse_as(&String::from_utf8_lossy(&bytes))
        .map_err(|error| Failure::new(Code::Recording, error.to_string()))
}
