//! A project's own policy file, and a person's trust in it.
//!
//! An agent or anyone else who can write to a project can write its policy. So the file is fully valid only if its
//! bytes are the same that a person reviewed and trusted. Until then it may deny commands, but commands that it allows
//! need an approval (see `Settings::use_policies`).

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use lobster_base::digest::Digest;
use lobster_store::{StoreError, UserState, iso, system_clock};

/// Name of a project's policy file, in the workflow's directory or above.
pub const FILE_NAME: &str = "lobster.policy.toml";

/// The key under which trusted files are kept.
const KEY: &str = "policies";

/// A policy file, with its bytes, which are read once.
#[derive(Clone, Debug)]
pub struct ProjectPolicy {
    /// The real path, without links.
    pub path: PathBuf,
    pub text: String,
    pub digest: Digest,
}

/// A person's trust in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Exactly these bytes are trusted.
    Trusted,
    /// No version of the file was ever trusted.
    Unknown,
    /// Other bytes were trusted, at this time.
    Changed { trusted_at: String },
}

/// One trusted file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trusted {
    pub path: PathBuf,
    pub digest: Digest,
    pub at: String,
}

impl ProjectPolicy {
    /// The nearest policy file in `start` or a directory above it.
    ///
    /// # Errors
    /// If there is a file and it cannot be read.
    pub fn find_nearest(start: &Path) -> io::Result<Option<Self>> {
        let start = std::fs::canonicalize(start).unwrap_or_else(|_| start.to_owned());
        let found = start.ancestors().map(|dir| dir.join(FILE_NAME)).find(|path| path.is_file());
        found.map(|path| Self::read_file(&path)).transpose()
    }

    /// Reads one file.
    ///
    /// # Errors
    /// If it cannot be read, or is not text.
    pub fn read_file(path: &Path) -> io::Result<Self> {
        let path = std::fs::canonicalize(path)?;
        let text = std::fs::read_to_string(&path)?;
        Ok(Self { digest: Digest::of_bytes(text.as_bytes()), path, text })
    }
}

/// The files that the owner of a state directory trusts.
#[derive(Debug)]
pub struct TrustedPolicies(UserState);

impl TrustedPolicies {
    /// The record in a state directory.
    #[must_use]
    pub fn in_state_dir(state_dir: &Path) -> Self {
        Self(UserState::in_dir(&state_dir.join("store").join("trust")))
    }

    /// All trusted files.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn trusted_files(&self) -> Result<Vec<Trusted>, StoreError> {
        Ok(self.0.get(KEY)?.map(parse_trusted).unwrap_or_default())
    }

    /// A person's trust in this file.
    ///
    /// # Errors
    /// If the record cannot be read.
    pub fn trust_in(&self, file: &ProjectPolicy) -> Result<Trust, StoreError> {
        let known = self.trusted_files()?.into_iter().find(|known| known.path == file.path);
        Ok(match known {
            None => Trust::Unknown,
            Some(known) if known.digest == file.digest => Trust::Trusted,
            Some(known) => Trust::Changed { trusted_at: known.at },
        })
    }

    /// Trusts the current bytes of a file.
    ///
    /// # Errors
    /// If that cannot be recorded.
    pub fn trust_file(&self, file: &ProjectPolicy) -> Result<(), StoreError> {
        let entry = Trusted { path: file.path.clone(), digest: file.digest, at: iso((system_clock())()) };
        self.update_files(|known| {
            known.retain(|known| known.path != entry.path);
            known.push(entry);
        })
    }

    /// Withdraws trust; false if the file was not trusted.
    ///
    /// # Errors
    /// If that cannot be recorded.
    pub fn untrust_file(&self, path: &Path) -> Result<bool, StoreError> {
        let mut found = false;
        self.update_files(|known| {
            found = known.iter().any(|known| known.path == path);
            known.retain(|known| known.path != path);
        })?;
        Ok(found)
    }

    fn update_files(&self, change: impl FnOnce(&mut Vec<Trusted>)) -> Result<(), StoreError> {
        self.0.with_lock(KEY, |state| {
            let mut known = state.get()?.map(parse_trusted).unwrap_or_default();
            change(&mut known);
            state.set(&serde_json::to_value(&known).unwrap_or(Value::Null))
        })
    }
}

/// An unreadable record trusts nothing.
fn parse_trusted(value: Value) -> Vec<Trusted> {
    serde_json::from_value(value).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_belongs_to_the_bytes_and_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project/deep");
        std::fs::create_dir_all(&project).unwrap();
        let file = dir.path().join("project").join(FILE_NAME);
        std::fs::write(&file, "version = 1\n").unwrap();
        let trusted = TrustedPolicies::in_state_dir(&dir.path().join("state"));
        let found = ProjectPolicy::find_nearest(&project).unwrap().unwrap();
        assert_eq!(trusted.trust_in(&found).unwrap(), Trust::Unknown);
        trusted.trust_file(&found).unwrap();
        assert_eq!(trusted.trust_in(&found).unwrap(), Trust::Trusted);
        std::fs::write(&file, "version = 1\nprofile = \"readonly\"\n").unwrap();
        let found = ProjectPolicy::find_nearest(&project).unwrap().unwrap();
        assert!(matches!(trusted.trust_in(&found).unwrap(), Trust::Changed { .. }));
        let elsewhere = project.join(FILE_NAME);
        std::fs::write(&elsewhere, "version = 1\n").unwrap();
        assert_eq!(trusted.trust_in(&ProjectPolicy::read_file(&elsewhere).unwrap()).unwrap(), Trust::Unknown);
        assert!(trusted.untrust_file(&found.path).unwrap());
        assert!(!trusted.untrust_file(&found.path).unwrap());
        assert_eq!(trusted.trusted_files().unwrap(), []);
    }
}
