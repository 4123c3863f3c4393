//! Actions: everything that determines what a step does, and the digest that names it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::overseer::RecordedOutside;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_stage::{Stop, store_failure};

/// An action as the journal keeps it.
pub(crate) struct ActionRecord {
    /// `native`, `http`, `component` …
    pub(crate) kind: String,
    pub(crate) preimage: Preimage,
    /// The policy's decision about it.
    pub(crate) decision: Value,
    pub(crate) idempotent: bool,
    /// The recorded answers that a component gets instead of the outside world; only components have them.
    pub(crate) on_record: Option<RecordedOutside>,
    /// The variables that the plan sets, whose digests are in the pre-image.
    pub(crate) variables: Arc<BTreeMap<String, String>>,
}

/// The pre-image of an action digest: canonical JSON (RFC 8785), written once.
pub struct Preimage {
    pub(crate) canonical: String,
    /// BLAKE3 of `canonical`: the action digest.
    pub(crate) digest: Digest,
}

impl Preimage {
    pub(crate) fn from_json(value: &Value) -> Result<Self, Stop> {
        Ok(Self::of_canonical(serde_json_canonicalizer::to_string(value).map_err(store_failure)?))
    }

    /// Makes a pre-image of text that is already canonical.
    pub(crate) fn of_canonical(canonical: String) -> Self {
        let digest = Digest::of_bytes(canonical.as_bytes());
        Self { canonical, digest }
    }

    /// The action as a value that can be searched.
    pub fn to_json(&self) -> Value {
        json::parse(&self.canonical).unwrap_or_default()
    }
}
