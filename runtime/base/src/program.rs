//! The two forms of a command.

use serde::{Deserialize, Serialize};

/// Form in which a process is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// Text for the shell (`LOBSTER_SHELL`, else `/bin/sh`).
    Shell(String),
    /// A program, looked up on `PATH`, with its arguments; no shell.
    Argv(Vec<String>),
}

impl Program {
    /// The command as errors and questions quote it.
    #[must_use]
    pub fn display_text(&self) -> String {
        match self {
            Self::Shell(text) => text.clone(),
            Self::Argv(argv) => argv.join(" "),
        }
    }
}
