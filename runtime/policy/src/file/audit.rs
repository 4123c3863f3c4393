//! Audit settings in the document.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of the audit records.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// Directory for a copy of each audit entry: JSON lines, one file per day. Absolute, or below `~`
    /// or `@state`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Time by which a record must be on disk.
    pub sync: AuditSync,
    /// File for the heads of the hash chains. With it, `lobster audit verify` detects a store that was
    /// truncated or replaced. Absolute, or below `~` or `@state`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<String>,
    /// Values that `lobster audit` does not print and that are left out of the copy.
    pub redact: Vec<Redaction>,
}

/// Paths of the audit files outside of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPlaces {
    /// Directory of the copy.
    pub copy: Option<PathBuf>,
    /// File of the hash chain heads.
    pub anchor: Option<PathBuf>,
}

impl Audit {
    /// Paths on this host.
    #[must_use]
    pub fn resolve_places(&self, state: &Path, home: &Path) -> AuditPlaces {
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

/// Time by which a record must be on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuditSync {
    /// At a time that the system chooses.
    None,
    /// Before the process starts.
    Decision,
    /// After every record.
    Every,
}

/// Values that are left out of records.
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
