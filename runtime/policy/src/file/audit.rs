//! What the document says of the audit.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How decisions are recorded.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// A directory for a copy of each entry of the audit: JSON lines, a file a
    /// day. Absolute, or under `~` or `@state`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// When a record must be on disk.
    pub sync: AuditSync,
    /// A file for the heads of the hash chains, by which `lobster audit verify`
    /// notices a store that was cut or replaced. Absolute, or under `~` or `@state`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// What `lobster audit` does not print and the copy does not hold.
    pub redact: Vec<Redaction>,
}

/// Where the audit is kept beside the store, by full path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPlaces {
    /// The directory of the copy.
    pub copy: Option<PathBuf>,
    /// The file of the anchors.
    pub anchor: Option<PathBuf>,
}

impl Audit {
    /// The places on this host.
    #[must_use]
    pub fn places(&self, state: &Path, home: &Path) -> AuditPlaces {
        let full = |path: &String| match (path.strip_prefix("@state"), path.strip_prefix('~')) {
            (Some(rest), _) => state.join(rest.trim_start_matches('/')),
            (None, Some(rest)) => home.join(rest.trim_start_matches('/')),
            (None, None) => PathBuf::from(path),
        };
        AuditPlaces { copy: self.path.as_ref().map(full), anchor: self.anchor.as_ref().map(full) }
    }
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            path: None,
            sync: AuditSync::Decision,
            anchor: None,
            redact: vec![Redaction::SecretRefs, Redaction::UrlUserinfo, Redaction::HighEntropyArgs],
        }
    }
}

/// When a record must be on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditSync {
    /// Whenever the system gets to it.
    None,
    /// Before the process starts.
    Decision,
    /// Every record.
    Every,
}

/// What is kept out of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Redaction {
    /// Values of secret references.
    SecretRefs,
    /// User and password in URLs.
    UrlUserinfo,
    /// Arguments that look like keys.
    HighEntropyArgs,
}
