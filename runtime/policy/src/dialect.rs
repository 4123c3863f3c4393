//! The shells whose language the analysis knows, and which one would run.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Policy;
use super::decision_env::Resolve;
use super::paths::is_under;

/// Whose language shell text is read in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// dash: POSIX and little else.
    Dash,
    /// The shell of busybox.
    Ash,
    /// bash, under whatever name it is started.
    Bash,
    /// None of these: under a policy its text is refused.
    Unknown,
}

impl Dialect {
    /// By the file that would run, links followed. A name that several shells
    /// have, such as `sh`, tells nothing.
    #[must_use]
    pub fn of_file(real: &Path) -> Self {
        match real.file_name().and_then(|name| name.to_str()) {
            Some("dash") => Self::Dash,
            Some("busybox") => Self::Ash,
            Some("bash") => Self::Bash,
            Some(_) | None => Self::Unknown,
        }
    }

    /// The shell in words.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dash => "dash",
            Self::Ash => "busybox ash",
            Self::Bash => "bash",
            Self::Unknown => "the shell that would run it",
        }
    }
}

impl std::str::FromStr for Dialect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "dash" => Ok(Self::Dash),
            "ash" => Ok(Self::Ash),
            "bash" => Ok(Self::Bash),
            other => Err(format!("{other:?} is none of dash, ash and bash")),
        }
    }
}

/// The shell that would be started for shell text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shell {
    /// The file, links followed; what was asked for when there is no such file.
    pub program: PathBuf,
    /// The language it reads.
    pub dialect: Dialect,
}

impl Shell {
    /// A shell of this language, for examples that no host decides.
    #[must_use]
    pub fn example(dialect: Dialect) -> Self {
        let program = match dialect {
            Dialect::Dash => "/usr/bin/dash",
            Dialect::Ash => "/usr/bin/busybox",
            Dialect::Bash | Dialect::Unknown => "/usr/bin/bash",
        };
        Self { program: program.into(), dialect }
    }

    /// The file that `asked` names and the language it reads. Its language is
    /// only known in a directory that the policy trusts: anybody can call a
    /// program `bash`. A name without a directory is looked up in `search`.
    #[must_use]
    pub fn find(asked: &str, policy: &Policy, search: &[PathBuf], programs: &dyn Resolve) -> Self {
        let real = if asked.contains('/') {
            programs.real_path(Path::new(asked))
        } else {
            search.iter().find_map(|dir| programs.real_path(&dir.join(asked)))
        };
        let Some(program) = real else {
            return Self { program: asked.into(), dialect: Dialect::Unknown };
        };
        let trusted = program
            .to_str()
            .is_some_and(|path| policy.programs().trusted_dirs.iter().any(|dir| is_under(path, dir)));
        let dialect = if trusted { Dialect::of_file(&program) } else { Dialect::Unknown };
        Self { program, dialect }
    }

    /// How this shell is called with code that it runs, loading nothing else.
    #[must_use]
    pub fn argv(&self, code: &str) -> Vec<String> {
        let flags: &[&str] = match self.dialect {
            Dialect::Ash => &["sh", "-c"],
            Dialect::Bash => &["--noprofile", "--norc", "-c"],
            Dialect::Dash | Dialect::Unknown => &["-c"],
        };
        let program = self.program.to_string_lossy().into_owned();
        std::iter::once(program)
            .chain(flags.iter().map(|flag| (*flag).to_owned()))
            .chain([code.to_owned()])
            .collect()
    }

    /// Variables with which a shell would load code or read text differently.
    /// None reaches a shell that lobster starts under a policy.
    #[must_use]
    pub fn is_start_up_variable(name: &str) -> bool {
        START_UP.contains(&name) || name.starts_with("BASH_FUNC_")
    }

    /// Variables and tables that say which file a name runs, or from which
    /// places code is loaded.
    #[must_use]
    pub fn decides_what_runs(name: &str) -> bool {
        DECIDE_WHAT_RUNS.contains(&name) || CODE_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
    }
}

/// See [`Shell::is_start_up_variable`].
const START_UP: &[&str] = text_list!("lists/start-up-variables.txt");
/// See [`Shell::decides_what_runs`].
const DECIDE_WHAT_RUNS: &[&str] = text_list!("lists/shell-variables.txt");
const CODE_PREFIXES: &[&str] = &["LD_", "DYLD_", "BASH_FUNC_"];
