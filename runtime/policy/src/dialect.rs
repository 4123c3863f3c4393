//! Shells whose language the analysis knows, and the choice of the shell that would run.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Policy;
use super::decision_env::Resolve;
use super::paths::is_under;

/// Language of shell text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// dash: POSIX with few additions.
    Dash,
    /// The shell of busybox.
    Ash,
    /// bash, even under another name.
    Bash,
    /// Another shell: under a policy, its text is refused.
    Unknown,
}

impl Dialect {
    /// Language of the file that would run, with links followed. A name that several shells have, such
    /// as `sh`, does not decide it.
    #[must_use]
    pub fn of_file(real: &Path) -> Self {
        match real.file_name().and_then(|name| name.to_str()) {
            Some("dash") => Self::Dash,
            Some("busybox") => Self::Ash,
            Some("bash") => Self::Bash,
            Some(_) | None => Self::Unknown,
        }
    }

    /// Name of the shell.
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

/// Shell that would be started for shell text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shell {
    /// File of the shell, with links followed; the requested name if there is no such file.
    pub program: PathBuf,
    /// Language that it reads.
    pub dialect: Dialect,
}

impl Shell {
    /// A shell of this language, for examples that do not depend on the host.
    #[must_use]
    pub fn example(dialect: Dialect) -> Self {
        let program = match dialect {
            Dialect::Dash => "/usr/bin/dash",
            Dialect::Ash => "/usr/bin/busybox",
            Dialect::Bash | Dialect::Unknown => "/usr/bin/bash",
        };
        Self { program: program.into(), dialect }
    }

    /// File that `asked` names, and the language that it reads. The language is known only in a
    /// directory that the policy trusts: any program could be called `bash`. A name without a directory
    /// is looked up in `search`.
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

    /// Command line with which this shell runs `code` without loading anything else.
    #[must_use]
    pub fn command_line(&self, code: &str) -> Vec<String> {
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

    /// True for variables with which a shell would load code or read text differently. None of them
    /// reaches a shell that lobster starts under a policy.
    #[must_use]
    pub fn is_start_up_variable(name: &str) -> bool {
        START_UP.contains(&name) || name.starts_with("BASH_FUNC_")
    }

    /// True for variables and tables that decide which file a name runs, or from where code is loaded.
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
