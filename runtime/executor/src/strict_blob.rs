//! Blobs in orders. A record may have more fields for a blob than this lobster knows; an order must not.

use lobster_base::digest::Digest;
use lobster_store::Blob;
use serde::{Deserialize, Deserializer};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    digest: Digest,
    len: u64,
}

impl From<Named> for Blob {
    fn from(Named { digest, len }: Named) -> Self {
        Self { digest, len }
    }
}

/// Reads one blob.
pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Blob, D::Error> {
    Named::deserialize(from).map(Blob::from)
}

/// Reads an optional blob.
pub(super) fn read_optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Blob>, D::Error> {
    Ok(Option::<Named>::deserialize(from)?.map(Blob::from))
}

/// Reads any number of blobs.
pub(super) fn read_list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Blob>, D::Error> {
    Ok(Vec::<Named>::deserialize(from)?.into_iter().map(Blob::from).collect())
}
