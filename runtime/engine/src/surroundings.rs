//! What decisions about a run depend on besides its plan: recorded when it
//! begins, so that an answer can be given from any process (another directory,
//! another shell, another environment) and still be an answer to the same thing.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use lobster_base::digest::Digest;

/// The field of a run's first event that holds them.
const FIELD: &str = "surroundings";

/// The places that a decision names, as they were when the run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Surroundings {
    /// `~` in a policy.
    pub(crate) home: String,
    /// `@state` in a policy.
    pub(crate) state: String,
    /// What no step may change: the policies themselves, and where the audit is kept.
    pub(crate) protected: Vec<String>,
    /// The files that the policy came from, by content where they are files.
    #[serde(default)]
    pub(crate) policies: Vec<PolicyFileUsed>,
    /// Whether the project's policy was trusted, if there was one.
    #[serde(default)]
    pub(crate) project_is_trusted: Option<bool>,
}

/// One file of a policy, as it was used: with the digest of the text that was
/// read and is in force, whatever the file holds by now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFileUsed {
    /// Where it is, without links.
    pub path: PathBuf,
    /// None for a directory.
    pub digest: Option<Digest>,
}

impl Surroundings {
    /// Those that a run began with; none if its record is older than they are.
    pub(crate) fn recorded(detail: &Value) -> Option<Self> {
        serde_json::from_value(detail.get(FIELD)?.clone()).ok()
    }

    /// Adds them to the first event of a run.
    pub(crate) fn record(&self, detail: &mut Value) {
        detail[FIELD] = serde_json::to_value(self).unwrap_or_default();
    }

    /// Whether each file of the policy in force now was part of it then, and is
    /// what it was and as trusted as it was.
    pub(crate) fn cover(&self, now: &Self) -> bool {
        now.policies.iter().all(|file| self.policies.contains(file))
            && now.project_is_trusted.is_none_or(|_| now.project_is_trusted == self.project_is_trusted)
    }
}

impl PolicyFileUsed {
    /// A file whose content was just read.
    #[must_use]
    pub fn read(path: &Path, content: &[u8]) -> Self {
        Self { digest: Some(Digest::of(content)), ..Self::directory(path) }
    }

    /// A directory that no step may change.
    #[must_use]
    pub fn directory(path: &Path) -> Self {
        Self { path: fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()), digest: None }
    }
}
