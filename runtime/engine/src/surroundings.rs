//! The facts that decisions about a run depend on besides its plan. They are recorded when the run begins, so that an
//! answer from any process (another directory, shell or environment) is an answer to the same question.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use lobster_base::digest::Digest;

/// The field of a run's first event with these facts.
const FIELD: &str = "surroundings";

/// The paths that a decision names, as they were when the run began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Surroundings {
    /// `~` in a policy.
    pub(crate) home: String,
    /// `@state` in a policy.
    pub(crate) state: String,
    /// The paths that no step may change: the policies, and the places of the audit.
    pub(crate) protected: Vec<String>,
    /// The files that the policy came from, with the digests of their contents.
    #[serde(default)]
    pub(crate) policies: Vec<PolicyFileUsed>,
    /// True if the project's policy was trusted; `None` without such a policy.
    #[serde(default)]
    pub(crate) project_is_trusted: Option<bool>,
    /// The variables of the terminal and the locale that commands get under a policy; `None` without a policy, and in
    /// records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) terminal: Option<BTreeMap<String, String>>,
}

/// One file of a policy, with the digest of the text that was read and is used, even if the file has changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFileUsed {
    /// Its path, without links.
    pub path: PathBuf,
    /// `None` for a directory.
    pub digest: Option<Digest>,
}

impl Surroundings {
    /// The facts with which a run began; `None` for a record from before they were recorded.
    pub(crate) fn from_detail(detail: &Value) -> Option<Self> {
        serde_json::from_value(detail.get(FIELD)?.clone()).ok()
    }

    /// Adds them to the first event of a run.
    pub(crate) fn add_to_detail(&self, detail: &mut Value) {
        detail[FIELD] = serde_json::to_value(self).unwrap_or_default();
    }

    /// True if each file of the current policy was part of the recorded one, with the same content and the same trust.
    pub(crate) fn covers_policy(&self, now: &Self) -> bool {
        now.policies.iter().all(|file| self.policies.contains(file))
            && now.project_is_trusted.is_none_or(|_| now.project_is_trusted == self.project_is_trusted)
    }
}

impl PolicyFileUsed {
    /// A file whose content was read.
    #[must_use]
    pub fn from_content(path: &Path, content: &[u8]) -> Self {
        Self { digest: Some(Digest::of_bytes(content)), ..Self::from_directory(path) }
    }

    /// A directory that no step may change.
    #[must_use]
    pub fn from_directory(path: &Path) -> Self {
        Self { path: fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()), digest: None }
    }
}
