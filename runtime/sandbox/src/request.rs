//! The request: the process to run and its limits.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lobster_base::variable_name::check_variable_name;
use serde::{Deserialize, Serialize};

use super::{Confinement, SpawnError};

/// Standard input of a process.
#[derive(Debug, Default)]
pub enum Stdin {
    /// Nothing: end of file at once.
    #[default]
    Empty,
    /// This file, from its current offset.
    File(File),
}

/// Limits of a process and everything it starts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessLimits {
    /// Wall-clock time; the whole tree is ended when it has passed.
    pub wall: Option<Duration>,
    /// Time between SIGTERM to the process group and SIGKILL to the tree, when cancelled or out of time.
    pub term_grace: Duration,
    /// Time during which processes that outlive the main one may still write, as in `daemon & echo hi`.
    pub linger: Duration,
    /// Bytes of standard output; one more kills the tree.
    pub stdout_cap: u64,
    /// Bytes of standard error; one more kills the tree.
    pub stderr_cap: u64,
    /// CPU time of each process, rounded up to seconds (`RLIMIT_CPU`).
    pub cpu: Option<Duration>,
    /// Bytes of private memory of each process (`RLIMIT_DATA`), and of all memory of a confined tree if it
    /// can have a control group.
    pub memory: Option<u64>,
    /// Processes of the user (`RLIMIT_NPROC`; the kernel exempts root), and of a confined tree if it can have
    /// a control group.
    pub processes: Option<u64>,
    /// Bytes of any file it writes (`RLIMIT_FSIZE`).
    pub file_size: Option<u64>,
    /// Open descriptors of each process (`RLIMIT_NOFILE`).
    pub open_files: Option<u64>,
    /// Total bytes that it may add to its write roots. Measured from time to time; the tree is killed if it
    /// exceeds them.
    pub disk: Option<u64>,
}

impl Default for ProcessLimits {
    /// No limits, and the waiting times that the incumbent's users know.
    fn default() -> Self {
        Self {
            wall: None,
            term_grace: Duration::from_millis(250),
            linger: Duration::from_millis(100),
            stdout_cap: u64::MAX,
            stderr_cap: u64::MAX,
            cpu: None,
            memory: None,
            processes: None,
            file_size: None,
            open_files: None,
            disk: None,
        }
    }
}

impl ProcessLimits {
    /// True if the kernel must enforce any of them.
    pub(super) fn has_any(&self) -> bool {
        let sizes = [self.memory, self.processes, self.file_size, self.open_files];
        self.cpu.is_some() || sizes.iter().any(Option::is_some)
    }

    /// True if any of them can be enforced for a whole tree.
    pub(super) fn has_tree_limits(&self) -> bool {
        self.memory.is_some() || self.processes.is_some()
    }
}

/// Address of the [`Upstream`] inside the network of a jail. It differs from the proxy's, so that programs
/// can bypass the proxy for it.
pub const UPSTREAM: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 2), 3129);

/// A service that a confined process reaches at [`UPSTREAM`].
pub trait Upstream: fmt::Debug + Send + Sync {
    /// Answers on a listening socket until the returned value is dropped.
    ///
    /// # Errors
    /// If it cannot start.
    fn serve(&self, listener: TcpListener) -> io::Result<Box<dyn Send>>;
}

/// One process to run.
#[derive(Debug)]
pub struct SpawnRequest {
    /// Program and arguments. A program without a slash is looked up on the
    /// `PATH` of `env`, by the rules of `execvp`.
    pub argv: Vec<OsString>,
    /// The complete environment.
    pub env: Vec<(OsString, OsString)>,
    /// Working directory.
    pub cwd: PathBuf,
    /// Standard input.
    pub stdin: Stdin,
    /// Limits.
    pub limits: ProcessLimits,
    /// Access.
    pub confinement: Confinement,
    /// The service at [`UPSTREAM`], in a jail whose network is [`super::Net::Hosts`].
    pub upstream: Option<Arc<dyn Upstream>>,
}

impl SpawnRequest {
    /// Rejects strings that no kernel call can carry.
    pub(super) fn check_strings(&self) -> Result<(), SpawnError> {
        let has_nul = |text: &OsStr| text.as_encoded_bytes().contains(&0);
        if self.argv.first().is_none_or(|program| program.is_empty()) {
            return Err(SpawnError::NotFound { program: PathBuf::new() });
        }
        if self.argv.iter().any(|arg| has_nul(arg)) {
            return Err(SpawnError::NulByte { place: "an argument".into() });
        }
        if has_nul(self.cwd.as_os_str()) {
            return Err(SpawnError::NulByte { place: "the working directory".into() });
        }
        for path in self.confinement.jail_spec().into_iter().flat_map(super::JailSpec::all_paths) {
            if has_nul(path.as_os_str()) || !path.is_absolute() {
                let source = io::Error::from(io::ErrorKind::InvalidInput);
                return Err(SpawnError::Io {
                    doing: format!("confine to {path:?}: not an absolute path"),
                    source,
                });
            }
        }
        for (name, value) in &self.env {
            check_variable_name(name)?;
            if has_nul(value) {
                let place = format!("environment variable {}", name.to_string_lossy());
                return Err(SpawnError::NulByte { place });
            }
        }
        Ok(())
    }
}
