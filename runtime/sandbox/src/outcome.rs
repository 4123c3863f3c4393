//! How a run ended, or why it never began.

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
    fn stdout(&mut self, chunk: &[u8]) -> io::Result<()>;

    /// The next piece of standard error.
    ///
    /// # Errors
    /// As for [`OutputSinks::stdout`].
    fn stderr(&mut self, chunk: &[u8]) -> io::Result<()>;
}

/// One of the two output streams.
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

/// The main process's own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// It exited with this code, 0 to 255.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

/// What brought the end about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The main process ended without being told to.
    ByItself,
    /// The cancel token.
    Cancelled,
    /// The wall limit.
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

/// A process that ran and is gone, with all it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The main process's own end.
    pub status: ExitStatus,
    /// What brought it about.
    pub ended: Ended,
    /// From the request to the end of the last process.
    pub wall: Duration,
    /// User and system time of the whole tree.
    pub cpu: Duration,
    /// Largest resident set of any one process of the tree, in bytes.
    pub max_rss: u64,
    /// What was promised and what held.
    pub enforcement: Enforcement,
}

/// Nothing was started, or supervision broke. In either case nothing is left running.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No such program, in the given place or anywhere on the `PATH` of the step.
    #[error("program {program:?} not found: give its full path or check PATH of the step")]
    NotFound {
        /// As it was asked for.
        program: PathBuf,
    },
    /// The program exists but what must interpret or load it does not.
    #[error(
        "program {program:?} exists, but the interpreter named on its first line (or its loader) does not"
    )]
    NoInterpreter {
        /// As it was asked for.
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
    /// Somebody killed what watched over it, and so the process: how far it came is not known.
    #[error("its supervisor was killed, and the process with it: how far it came is not known")]
    SupervisorKilled,
    /// A string that C cannot carry.
    #[error(
        "{place} contains a NUL byte, which no program can receive there: pass the data by stdin or in a file"
    )]
    NulByte {
        /// Where.
        place: String,
    },
    /// A variable that would set another one.
    #[error(transparent)]
    VariableName(#[from] BadVariableName),
    /// The token was cancelled before anything started.
    #[error("{reason}")]
    Cancelled {
        /// The token's own words.
        reason: String,
    },
    /// A file that was approved is another one by now, or gone.
    #[error("{path:?} was replaced after it was approved; nothing was run")]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// The host cannot hold what was promised, and the mode is strict.
    #[error("refused to run: this host cannot enforce {}", by_reason(missing))]
    Sandbox {
        /// What is missing and why.
        missing: Vec<Missing>,
    },
    /// What answers inside the jail has no network of its own to answer in.
    #[error(
        "the step has credentials, and reaches their hosts by a network of its own, which this host does not let \
         lobster make (`lobster doctor` says why)"
    )]
    NoUpstream,
    /// This host cannot keep apart what the process changes.
    #[error("cannot keep apart what the step changes in files: {why}; run it with `changes: direct`")]
    Layer {
        /// What failed.
        why: String,
    },
    /// The kernel mounts no layer here; a copy of the directory would do.
    #[error(
        "cannot keep apart what the step changes in files: {why}; set LOBSTER_STATE_DIR to a directory on a file \
         system that takes layers (ext4, XFS, Btrfs, tmpfs), or run it with `changes: direct`"
    )]
    NoOverlay {
        /// What failed.
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
    /// Anything else the system refused.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was being done.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
}

/// What is missing, with each reason once.
fn by_reason(missing: &[Missing]) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for Missing { promise, why } in missing {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, promises)) => promises.push(promise.name()),
            None => reasons.push((why, vec![promise.name()])),
        }
    }
    let told = reasons.iter().map(|(why, promises)| format!("{} ({why})", promises.join(", ")));
    told.collect::<Vec<_>>().join("; ")
}

impl SpawnError {
    pub(super) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Io { doing, source }
    }
}
