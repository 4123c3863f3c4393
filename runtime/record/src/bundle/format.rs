//! Layout of a bundle.
//!
//! ```text
//! 16 bytes  "lobster bundle\n" and the version, 1
//! 32 bytes  BLAKE3 of the manifest
//!  8 bytes  length of the manifest, little-endian
//!           the manifest, JSON
//!           the texts of the journal's records, one after the other
//!           the blobs, one after the other
//! 112 bytes  if it is signed: "lobster signed\n" and the version, 1;
//!           the ed25519 public key; the signature of the first 48 bytes
//! ```
//!
//! The manifest has the length and digest of each record and blob, in the order of the file; only a
//! signature may follow the last blob. So each byte is either fixed or covered by a digest.

use serde::{Deserialize, Serialize};

use super::trees::Directory;
use lobster_base::digest::Digest;
use lobster_store::RunId;

/// Version of written bundles, and the latest version that can be read.
pub(super) const FORMAT: u8 = 1;

/// Beginning of every bundle of this version, with [`FORMAT`] at its end.
pub(super) const MAGIC: &[u8; 16] = b"lobster bundle\n\x01";

/// Largest manifest that is read, in bytes: enough for a million objects.
pub(super) const MAX_MANIFEST: u64 = 256 << 20;

/// Largest record that is read, in bytes.
pub(super) const MAX_RECORD: u64 = 256 << 20;

/// The manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    pub(super) run: RunId,
    pub(super) name: String,
    pub(super) records: Vec<RecordEntry>,
    pub(super) blobs: Vec<BlobEntry>,
    /// Steps whose payload was left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) redacted: Vec<String>,
    /// Blobs that were left out with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) left_out: Vec<LeftOut>,
    /// Directories that components could read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) directories: Vec<Directory>,
}

/// One record of the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RecordEntry {
    pub(super) len: u64,
    pub(super) digest: Digest,
    /// The hash that the chain has for it, if a part of it was redacted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) hash: Option<Digest>,
}

/// One blob that is not in the bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeftOut {
    pub(super) digest: Digest,
    /// Description for people.
    pub(super) what: String,
}

/// One blob.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BlobEntry {
    pub(super) len: u64,
    pub(super) digest: Digest,
    /// Description for people: `plan`, `stdout of step fetch` …
    pub(super) what: String,
}
