//! The directory of an action: relative to the directory of the run, or a path of the host.
//!
//! A step without paths of the host is the same action in every directory in which its workflow is run.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::HostText;

/// A directory in an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActionDirectory {
    /// Relative to the directory of the run; empty for that directory itself.
    Run(PathBuf),
    /// A path of this host.
    Host(PathBuf),
}

impl ActionDirectory {
    /// The place of `path` for a run in `run`.
    #[must_use]
    pub fn from_paths(run: &Path, path: &Path) -> Self {
        match path.strip_prefix(run) {
            Ok(below) => Self::Run(below.to_owned()),
            Err(_) => Self::Host(path.to_owned()),
        }
    }

    /// The form in actions: `{"run": "below"}`, or a path.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let text = |path: &PathBuf| json!(HostText::from(path.clone()));
        match self {
            Self::Run(below) => json!({ "run": text(below) }),
            Self::Host(path) => text(path),
        }
    }

    /// The directory that an action names, for a run in `run`; `None` if the action names none.
    #[must_use]
    pub fn resolve_directory(value: &Value, run: &Path) -> Option<PathBuf> {
        match value.get("run") {
            Some(below) => Some(run.join(below.as_str()?)),
            None => value.as_str().map(PathBuf::from),
        }
    }
}

/// The form of paths in native actions. A recorded run keeps its own form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NativeProfile {
    /// Paths of the host: actions without a profile.
    HostPaths,
    /// As [`ActionDirectory`]s.
    #[default]
    Places,
}

impl NativeProfile {
    /// The name in an action of this profile; the first profile had no name.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::HostPaths => None,
            Self::Places => Some("native@2"),
        }
    }

    /// The profile of a recorded action.
    #[must_use]
    pub fn of_action(action: &Value) -> Self {
        if action.get("profile").is_some() { Self::Places } else { Self::HostPaths }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_below_the_run_is_the_same_wherever_the_run_is() {
        let of =
            |run: &str, path: &str| ActionDirectory::from_paths(Path::new(run), Path::new(path)).to_json();
        assert_eq!(of("/a", "/a"), of("/b/c", "/b/c"));
        assert_eq!(of("/a", "/a/x"), json!({ "run": "x" }));
        assert_eq!(of("/a", "/ab"), json!("/ab"));
        for (run, path) in [("/a", "/a"), ("/a", "/a/x/y"), ("/a", "/"), ("/a", "/a/../x")] {
            let value = of(run, path);
            assert_eq!(
                ActionDirectory::resolve_directory(&value, Path::new(run)),
                Some(Path::new(run).join(path)),
                "{value}"
            );
        }
        assert_eq!(ActionDirectory::resolve_directory(&Value::Null, Path::new("/a")), None);
    }
}
