//! Facts about the environment of a command that a decision may use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::dialect::{Dialect, Shell};
use super::paths::normalise_path;

/// Lookup of program files. It is the only part of a decision that may read the file system, so it is
/// passed in.
pub trait Resolve: Send + Sync {
    /// Real path of the executable at `candidate`, with links followed; `None` if there is no
    /// executable file.
    fn real_path(&self, candidate: &Path) -> Option<PathBuf>;

    /// True if only the system's administrator can change the file at this real path or replace a directory above it.
    fn is_administrators(&self, _file: &Path) -> bool {
        false
    }
}

/// Looks programs up in this host's file system.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostPrograms;

impl Resolve for HostPrograms {
    fn real_path(&self, candidate: &Path) -> Option<PathBuf> {
        use std::os::unix::fs::PermissionsExt;
        let real = candidate.canonicalize().ok()?;
        let meta = real.metadata().ok()?;
        (meta.is_file() && meta.permissions().mode() & 0o111 != 0).then_some(real)
    }

    fn is_administrators(&self, file: &Path) -> bool {
        use std::os::unix::fs::MetadataExt;
        let is_roots = |path: &Path| {
            path.symlink_metadata().is_ok_and(|meta| {
                !meta.file_type().is_symlink() && meta.uid() == 0 && meta.mode() & 0o022 == 0
            })
        };
        file.is_absolute() && file.ancestors().all(is_roots)
    }
}

/// Treats every path as an executable whose real path is the path itself: for policy examples and
/// corpora, whose verdicts must not depend on installed programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct EveryProgram;

impl Resolve for EveryProgram {
    fn real_path(&self, candidate: &Path) -> Option<PathBuf> {
        Some(PathBuf::from(normalise_path("/", &candidate.to_string_lossy())))
    }
}

/// Place and environment of a proposed command.
///
/// All directories are absolute and without `.` or `..`.
#[derive(Clone)]
pub struct DecisionEnv {
    /// The workspace: `@workspace` in a policy.
    pub workspace: String,
    /// The home directory of the caller: `~` in a policy.
    pub home: String,
    /// The directory for scratch files: `@tmp` in a policy.
    pub tmp: String,
    /// lobster's own state: `@state` in a policy, never writable by a step.
    pub state: String,
    /// Further paths that no step may change, such as the policy file in use.
    pub protected: Vec<String>,
    /// Variables of the command. All others are unset.
    pub vars: BTreeMap<String, String>,
    /// Variables among them that the step's workflow sets. They are judged like assignments in the
    /// text.
    pub given: BTreeMap<String, String>,
    /// Lookup of program names.
    pub programs: Arc<dyn Resolve>,
    /// Shell that would be started for shell text.
    pub shell: Shell,
}

impl DecisionEnv {
    /// The fixture of the policy corpus: `HOME=/home/agent`, workspace `/srv/repo`, a private `/tmp`,
    /// all trusted programs installed, and bash for shell text.
    #[must_use]
    pub fn fixture() -> Self {
        let vars = [
            ("HOME", "/home/agent"),
            ("LANG", "C.UTF-8"),
            ("PATH", "/usr/bin:/bin"),
            ("TMPDIR", "/tmp"),
            ("USER", "agent"),
        ];
        Self {
            workspace: "/srv/repo".to_owned(),
            home: "/home/agent".to_owned(),
            tmp: "/tmp".to_owned(),
            state: "/home/agent/.local/state/lobster".to_owned(),
            protected: Vec::new(),
            vars: vars.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            given: BTreeMap::new(),
            programs: Arc::new(EveryProgram),
            shell: Shell::example(Dialect::Bash),
        }
    }

    /// The same environment with another shell.
    #[must_use]
    pub fn with_shell(self, shell: Shell) -> Self {
        Self { shell, ..self }
    }
}

impl std::fmt::Debug for DecisionEnv {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values of variables may be secret; names are enough here.
        f.debug_struct("DecisionEnv")
            .field("workspace", &self.workspace)
            .field("home", &self.home)
            .field("vars", &self.vars.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
