//! Exit codes and errors of commands.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use lobster_runtime::code::{Code, FailureCode};
use lobster_runtime::envelope::Failure;
use lobster_runtime::json;
use serde::Serialize;

/// The exit codes, on which people and programs rely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// 0 is success, 1 failed work, 2 a wrong request.
    Code(u8),
    /// Ended by a signal: 128 and the signal's number.
    Signal(i32),
}

impl Exit {
    pub(crate) const OK: Self = Self::Code(0);
    pub(crate) const FAILED: Self = Self::Code(1);
    pub(crate) const USAGE: Self = Self::Code(2);

    /// The exit code as the parent process sees it.
    pub(crate) fn exit_code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => u8::try_from(128 + number).unwrap_or(1),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.exit_code())
    }
}

/// A failure of a command, for a person.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) exit: Exit,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
    /// The code in an envelope, for programs.
    pub(crate) code: FailureCode,
}

impl CommandError {
    /// The request was wrong.
    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self { exit: Exit::USAGE, message: message.to_string(), hint: None, code: Code::Request.into() }
    }

    /// The work failed.
    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self { exit: Exit::FAILED, message: message.to_string(), hint: None, code: Code::Failed.into() }
    }

    /// The request names a file or directory that cannot be used.
    pub(crate) fn usage_at(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self::usage(format!("{}: {error}", path.display()))
    }

    /// The request names a file that cannot be read.
    pub(crate) fn unreadable(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self::usage(format!("cannot read {}: {error}", path.display()))
    }

    /// The work failed at a file or directory.
    pub(crate) fn failed_at(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self::failed(format!("{}: {error}", path.display()))
    }

    pub(crate) fn with_hint(mut self, hint: impl fmt::Display) -> Self {
        self.hint = Some(hint.to_string());
        self
    }

    /// Prints the error on stderr. A closed pipe is not an error: the reader has read enough.
    pub(crate) fn report(self) -> Exit {
        if self.message.is_empty() {
            return self.exit;
        }
        crate::render::print_to_stderr(&format!("Error: {}", self.message));
        if let Some(hint) = self.hint {
            crate::render::print_to_stderr(&format!("  {hint}"));
        }
        self.exit
    }
}

impl From<io::Error> for CommandError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { exit: Exit::OK, ..Self::failed("") };
        }
        Self::failed(error)
    }
}

impl From<Failure> for CommandError {
    fn from(failure: Failure) -> Self {
        let exit = Exit::Code(failure.kind.exit_code());
        Self { exit, message: failure.message, hint: None, code: failure.code }
    }
}

/// For commands that always answer with an envelope.
impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        let message = match error.hint {
            Some(hint) => format!("{}; {hint}", error.message),
            None => error.message,
        };
        match error.exit {
            Exit::USAGE => Self::parse_error(message).with_code(error.code),
            _ => Self::new(error.code, message),
        }
    }
}

impl From<lobster_runtime::store::StoreError> for CommandError {
    fn from(error: lobster_runtime::store::StoreError) -> Self {
        Failure::from(error).into()
    }
}

impl From<lobster_runtime::setting::BadSetting> for CommandError {
    fn from(error: lobster_runtime::setting::BadSetting) -> Self {
        Failure::from(error).into()
    }
}

/// The outcome of a command.
pub(crate) type CommandResult = Result<Exit, CommandError>;

/// Ends a command that has written all of its output.
pub(crate) fn finish(mut out: impl Write) -> CommandResult {
    out.flush()?;
    Ok(Exit::OK)
}

/// Answers a program with JSON.
pub(crate) fn print_json(out: &mut impl Write, answer: &impl Serialize) -> CommandResult {
    writeln!(out, "{}", json::pretty(answer))?;
    Ok(Exit::OK)
}
