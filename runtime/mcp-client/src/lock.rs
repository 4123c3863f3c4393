//! `lobster.mcp.lock`: the tools of each server as a person reviewed them. A server whose tools differ now is not
//! called.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::text::{self, Count};

/// The pinned tools of all servers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lock {
    /// Format version; 1.
    pub version: u32,
    /// The tools by server and name.
    pub servers: BTreeMap<String, BTreeMap<String, PinnedTool>>,
}

/// A server's description of a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PinnedTool {
    /// BLAKE3 of the other fields and an empty digest, in canonical JSON.
    pub digest: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub input_schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
}

/// The reason why the lock cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("cannot use {}: {source}", .path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{} is not a lock file of this lobster: {message}", .path.display())]
    Wrong { path: PathBuf, message: String },
}

impl Lock {
    /// The lock's name, in the directory of the operator's file.
    pub const FILE: &str = "lobster.mcp.lock";

    /// Reads a lock; `None` if the file does not exist.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(path: &Path) -> Result<Option<Self>, LockError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(LockError::Io { path: path.to_owned(), source }),
        };
        let wrong = |message: String| LockError::Wrong { path: path.to_owned(), message };
        let lock: Self = json::parse_as(&text).map_err(|error| wrong(error.to_string()))?;
        if lock.version != 1 {
            return Err(wrong(format!("format {}", lock.version)));
        }
        Ok(Some(lock))
    }

    /// Writes the lock, all or nothing.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), LockError> {
        let io = |source: std::io::Error| LockError::Io { path: path.to_owned(), source };
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(dir).map_err(io)?;
        std::io::Write::write_all(&mut file, (json::pretty(self) + "\n").as_bytes()).map_err(io)?;
        file.persist(path).map_err(|error| io(error.error))?;
        Ok(())
    }
}

impl PinnedTool {
    /// The server's current description of a tool.
    #[must_use]
    pub fn from_tool(tool: &Tool) -> Self {
        let value = |value: Option<Value>| value.filter(|value| !value.is_null());
        let mut pinned = Self {
            digest: String::new(),
            title: tool.title.clone(),
            description: tool.description.as_ref().map(ToString::to_string),
            input_schema: Value::Object((*tool.input_schema).clone()),
            output_schema: tool.output_schema.as_ref().map(|schema| Value::Object((**schema).clone())),
            annotations: value(serde_json::to_value(&tool.annotations).ok()),
        };
        let digest = Digest::of_json(&pinned).map(|digest| digest.to_string()).unwrap_or_default();
        pinned.digest = format!("blake3:{digest}");
        pinned
    }

    /// The differences between the pinned and the current description; `None` if they are equal.
    #[must_use]
    pub fn describe_difference(&self, now: &Self) -> Option<String> {
        const SHOWN: usize = 800;
        let text = |value: Option<&Value>| {
            let text = value.map_or_else(|| "nothing".to_owned(), json::compact);
            text::clip(&text, SHOWN, Count::Bytes).into_owned()
        };
        let (was, is) = (serde_json::to_value(self), serde_json::to_value(now));
        let (Ok(was), Ok(is)) = (was, is) else { return Some("it cannot be compared".to_owned()) };
        let changes: Vec<String> = ["title", "description", "inputSchema", "outputSchema", "annotations"]
            .into_iter()
            .filter(|key| was.get(key) != is.get(key))
            .map(|key| format!("{key} was {} and is {}", text(was.get(key)), text(is.get(key))))
            .collect();
        (!changes.is_empty()).then(|| changes.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pinned_tool(description: &str) -> PinnedTool {
        let schema = json!({"type": "object"}).as_object().cloned().unwrap_or_default();
        PinnedTool::from_tool(&Tool::new("t", description.to_owned(), schema))
    }

    #[test]
    fn a_changed_description_is_told_with_both_texts() {
        let difference =
            pinned_tool("reads").describe_difference(&pinned_tool("reads, and mails it to me")).unwrap();
        assert_eq!(difference, r#"description was "reads" and is "reads, and mails it to me""#);
        assert_eq!(pinned_tool("reads").describe_difference(&pinned_tool("reads")), None);
    }

    #[test]
    fn a_lock_survives_writing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(Lock::FILE);
        assert_eq!(Lock::read(&path).unwrap(), None);
        let tools = BTreeMap::from([("t".to_owned(), pinned_tool("reads"))]);
        let lock = Lock { version: 1, servers: BTreeMap::from([("s".to_owned(), tools)]) };
        lock.write(&path).unwrap();
        assert_eq!(Lock::read(&path).unwrap(), Some(lock));
        std::fs::write(&path, "{}").unwrap();
        assert!(Lock::read(&path).is_err());
    }
}
