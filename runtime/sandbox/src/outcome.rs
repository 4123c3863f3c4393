//! Results of a run, and reasons why a process did not start.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::{Enforcement, Missing};
use lobster_base::variable_name::BadVariableName;

/// Receives output while the process runs. A slow sink slows the process: the
/// pipe fills and its writes block.
pub trait OutputSinks {
    /// The next piece of standard output.
    ///
    /// # Errors
    /// An error ends the run: the tree is killed and [`SpawnError::Sink`] returned.
    fn write_stdout(&mut self, chunk: &[u8]) -> io::Result<()>;

    /// The next piece of standard error.
    ///
    /// # Errors
    /// As for [`OutputSinks::write_stdout`].
    fn write_stderr(&mut self, chunk: &[u8]) -> io::Result<()>;
}

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        })
    }
}

/// How the main process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited with this code, 0 to 255.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// Reason for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The main process ended by itself.
    ByItself,
    /// The cancel token was used.
    Cancelled,
    /// The wall limit was reached.
    TimedOut,
    /// More than `cap` bytes came on `stream`; the sink got the first `cap`.
    OutputCap {
        /// The stream that overflowed.
        stream: Stream,
        /// Its limit in bytes.
        cap: u64,
    },
    /// More than `limit` bytes were added to the write roots.
    DiskLimit {
        /// The limit in bytes.
        limit: u64,
    },
}

/// A process that ran and has ended, with everything it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// How the main process ended.
    pub status: ExitStatus,
    /// Reason for the end.
    pub ended: Ended,
    /// From the request to the end of the last process.
    pub wall: Duration,
    /// User and system time of the whole tree.
    pub cpu: Duration,
    /// Largest resident set of any one process of the tree, in bytes.
    pub max_rss: u64,
    /// Promises and their enforcement.
    pub enforcement: Enforcement,
}

/// Nothing was started, or supervision broke. In either case nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No such program, in the given place or anywhere on the `PATH` of the step.
    #[error("program {program:?} not found: give its full path or check PATH of the step")]
    NotFound {
        /// The name in the request.
        program: PathBuf,
    },
    /// The program exists, but its interpreter or loader does not.
    #[error(
        "program {program:?} exists, but the interpreter named on its first line (or its loader) does not"
    )]
    NoInterpreter {
        /// The name in the request.
        program: PathBuf,
    },
    /// The working directory does not exist or is not a directory.
    #[error("working directory {path:?} does not exist or is not a directory")]
    CwdMissing {
        /// The directory.
        path: PathBuf,
    },
    /// The kernel refused.
    #[error("no permission to {doing} {path:?}")]
    PermissionDenied {
        /// `run` or `enter`.
        doing: &'static str,
        /// The program or directory.
        path: PathBuf,
    },
    /// `E2BIG`.
    #[error(
        "arguments and environment are too big for the kernel ({bytes} bytes; one string may have 128 KiB): \
         pass the data by stdin or in a file"
    )]
    TooBig {
        /// Their total size.
        bytes: usize,
    },
    /// The supervisor, and with it the process, was killed by another program; the progress of the process is
    /// unknown.
    #[error("its supervisor was killed, and the process with it: it may have done part of its work")]
    SupervisorKilled,
    /// A string that C cannot carry.
    #[error(
        "{place} contains a NUL byte, which no program can receive there: pass the data by stdin or in a file"
    )]
    NulByte {
        /// Description of the string.
        place: String,
    },
    /// A variable whose name would set another one.
    #[error(transparent)]
    VariableName(#[from] BadVariableName),
    /// The token was cancelled before anything started.
    #[error("{reason}")]
    Cancelled {
        /// The token's own message.
        reason: String,
    },
    /// An approved file was replaced by another one, or is gone.
    #[error("{path:?} was replaced after it was approved; nothing was run")]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// A promise cannot be enforced on this host or for these files, and the mode is strict.
    #[error("refused to run: cannot enforce {}", by_reason(missing))]
    Sandbox {
        /// The missing promises and the reasons.
        missing: Vec<Missing>,
    },
    /// The jail has no network in which the upstream proxy could listen.
    #[error(
        "the step has credentials and needs a separate network to reach their hosts, which this host does not let \
         lobster make (`lobster doctor` shows the reason)"
    )]
    NoUpstream,
    /// This host cannot isolate the changes of the process.
    #[error("cannot isolate the file changes of the step: {why}; run it with `changes: direct`")]
    Layer {
        /// The reason.
        why: String,
    },
    /// The kernel cannot mount a layer here; a copy of the directory would work.
    #[error(
        "cannot isolate the file changes of the step: {why}; set LOBSTER_STATE_DIR to a directory on a file \
         system that supports layers (ext4, XFS, Btrfs, tmpfs), or run it with `changes: direct`"
    )]
    NoOverlay {
        /// The reason.
        why: String,
    },
    /// A sink failed; the tree was killed.
    #[error("cannot keep {stream} of the process: {source}")]
    Sink {
        /// The stream.
        stream: Stream,
        /// The sink's error.
        source: io::Error,
    },
    /// Any other refusal by the system.
    #[error("cannot {doing}: {source}")]
    Io {
        /// The failed operation.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
}

/// The missing promises, grouped by reason.
fn by_reason(missing: &[Missing]) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for Missing { promise, why } in missing {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, promises)) => promises.push(promise.to_string()),
            None => reasons.push((why, vec![promise.to_string()])),
        }
    }
    let told = reasons.iter().map(|(why, promises)| format!("{} ({why})", promises.join(", ")));
    told.collect::<Vec<_>>().join("; ")
}

impl SpawnError {
    pub(super) fn io_error(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}
