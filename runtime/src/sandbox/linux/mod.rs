//! Linux: the helper, its supervisors and the side that watches them.
//!
//! ```text
//! lobster ──(jobs: fds + memfd)──► helper ──fork──► supervisor ──fork──► step
//!    └────────────── one control socket per step ─────────┘
//! ```
//! The helper does nothing but fork, so parallel runs do not wait for each
//! other. Each supervisor speaks to lobster over its own socket: losing that
//! socket means that lobster is gone, and so must be the step.

mod attack;
mod channel;
mod checkup;
mod helper;
mod jail;
mod landlock;
mod launch;
mod placeholder;
mod seccomp;
mod supervisor;
mod sys;
mod tree;
mod walls;
mod watch;
mod wire;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use super::doctor::{Checkup, Probe};
use super::{
    Enforcement, Exit, Missing, OutputSinks, Promise, SandboxConfig, SpawnError, SpawnRequest, Stdin,
};
use crate::cancel::CancelToken;

use placeholder::Placeholders;
use walls::{Wall, Walls};
use watch::Trouble;

pub(super) use helper::helper_main;

/// A running helper; dropping it closes its socket, which ends it.
#[derive(Debug)]
struct Helper {
    socket: Option<OwnedFd>,
    process: Child,
}

impl Helper {
    fn start(config: &SandboxConfig) -> io::Result<Self> {
        let (ours, theirs) = socket_pair()?;
        let process = Command::new(&config.helper)
            .arg0("lobster")
            .args(&config.helper_args)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self { socket: Some(ours), process })
    }

    fn send(&self, message: &[u8], fds: &[&OwnedFd]) -> io::Result<()> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        channel::send(socket.as_fd(), message, &fds)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.socket = None;
        // It ends at once on the closed socket; waiting only collects it.
        let _ = self.process.wait();
    }
}

/// The Linux side of [`super::Sandbox`].
#[derive(Debug)]
pub(super) struct Sandbox {
    config: SandboxConfig,
    helper: Mutex<Option<Arc<Helper>>>,
    /// What this host was found to lack.
    lacking: Mutex<Vec<(Wall, String)>>,
    placeholders: placeholder::Register,
}

impl Sandbox {
    pub(super) fn new(config: SandboxConfig) -> Self {
        Self {
            config,
            helper: Mutex::new(None),
            lacking: Mutex::new(Vec::new()),
            placeholders: placeholder::Register::default(),
        }
    }

    pub(super) fn warm(&self) {
        // A helper that cannot start is reported by the run that needs it.
        let _ = self.helper(None);
    }

    pub(super) fn run(
        &self,
        request: &SpawnRequest,
        sinks: &mut dyn OutputSinks,
        cancel: &CancelToken,
    ) -> Result<Exit, SpawnError> {
        let started = Instant::now();
        let lacking = self.lacking.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut walls = Walls::wanted(&request.confinement, &request.limits, &lacking);
        loop {
            // A missing mechanism shows before anything has run. What is left
            // without it is judged anew; less than was promised never runs.
            walls.check(&request.confinement, &request.limits)?;
            match self.attempt(request, &walls, started, sinks, cancel) {
                Ok(exit) => return Ok(exit),
                Err(Trouble::Error(error)) => return Err(error),
                Err(Trouble::Wall { wall, errno, why }) => {
                    if !walls.fall(wall, &why) {
                        let source = io::Error::from_raw_os_error(errno);
                        return Err(SpawnError::Io { doing: format!("confine the process ({why})"), source });
                    }
                    if matches!(
                        errno,
                        libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP
                    ) {
                        self.lacking.lock().unwrap_or_else(PoisonError::into_inner).push((wall, why));
                    }
                }
            }
        }
    }

    pub(super) fn probe(&self) -> Result<Probe, SpawnError> {
        checkup::probe(&self.config)
    }

    pub(super) fn doctor(&self) -> Result<Checkup, SpawnError> {
        checkup::doctor(&self.config)
    }

    fn attempt(
        &self,
        request: &SpawnRequest,
        walls: &Walls,
        started: Instant,
        sinks: &mut dyn OutputSinks,
        cancel: &CancelToken,
    ) -> Result<Exit, Trouble> {
        let _placeholders = match request.confinement.spec() {
            Some(spec) if walls.has(Wall::Namespaces) => {
                Some(Placeholders::stand_in(spec, &self.placeholders)?)
            }
            _ => None,
        };
        let mut job = wire::Job::from_request(request, walls);
        let temporary = match &mut job.confined {
            Some(confined) if !walls.has(Wall::Namespaces) && !confined.private.is_empty() => {
                Some(stand_in_for_private(confined, &mut job.env)?)
            }
            _ => None,
        };
        let pipes = || pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from);
        let (stdout, stdout_end) = pipes().map_err(SpawnError::io("open a pipe for stdout"))?;
        let (stderr, stderr_end) = pipes().map_err(SpawnError::io("open a pipe for stderr"))?;
        let (control, control_end) = socket_pair().map_err(SpawnError::io("open a control socket"))?;
        let job_file = job_file(&job.encode()).map_err(SpawnError::io("hand the request over"))?;
        let stdin = stdin_of(request)?;
        let message = match &job.confined {
            Some(confined) if walls.has(Wall::Namespaces) && confined.net_is_host() => {
                channel::JAIL_ON_HOST_NETWORK
            }
            Some(_) if walls.has(Wall::Namespaces) => channel::JAIL,
            _ => channel::JOB,
        };
        self.submit(message, &[&control_end, &job_file, &stdin, &stdout_end, &stderr_end])?;
        // Only the supervisor may hold these ends, or their closing would never be seen.
        drop((control_end, job_file, stdin, stdout_end, stderr_end));

        let watch = watch::Watch::new(control, stdout, stderr, request, started);
        let finished = watch.until_the_end(sinks, cancel)?;
        // What the step has made unreadable even for itself stays behind.
        drop(temporary);
        Ok(Exit {
            status: finished.report.status,
            ended: finished.ended,
            wall: started.elapsed(),
            cpu: finished.report.cpu,
            max_rss: finished.report.max_rss,
            enforcement: statement(request, walls, finished),
        })
    }

    /// Sends a job to the helper; one that died since the last run is replaced.
    fn submit(&self, message: &[u8], fds: &[&OwnedFd]) -> Result<(), SpawnError> {
        let first = self.helper(None)?;
        let Err(error) = first.send(message, fds) else { return Ok(()) };
        if !matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN)) {
            return Err(SpawnError::io("reach the sandbox helper")(error));
        }
        let second = self.helper(Some(&first))?;
        second
            .send(message, fds)
            .map_err(SpawnError::io("reach the sandbox helper (it ended as soon as it was started)"))
    }

    fn helper(&self, broken: Option<&Arc<Helper>>) -> Result<Arc<Helper>, SpawnError> {
        let mut slot = self.helper.lock().unwrap_or_else(PoisonError::into_inner);
        match &*slot {
            Some(helper) if broken.is_none_or(|broken| !Arc::ptr_eq(helper, broken)) => {
                Ok(Arc::clone(helper))
            }
            _ => {
                let doing = format!("start the sandbox helper {:?}", self.config.helper);
                let helper = Arc::new(Helper::start(&self.config).map_err(SpawnError::io(doing))?);
                *slot = Some(Arc::clone(&helper));
                Ok(helper)
            }
        }
    }
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

fn job_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("job", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Without a mount namespace no directory can be private; then the step gets
/// one temporary directory of its own, named in `TMPDIR`.
fn stand_in_for_private(
    confined: &mut wire::Confined,
    env: &mut Vec<Vec<u8>>,
) -> Result<tempfile::TempDir, SpawnError> {
    let doing = "make a temporary directory for the step";
    let directory = tempfile::tempdir().map_err(SpawnError::io(doing))?;
    let path = directory.path().canonicalize().map_err(SpawnError::io(doing))?;
    env.retain(|entry| !entry.starts_with(b"TMPDIR="));
    env.push([b"TMPDIR=", path.as_os_str().as_bytes()].concat());
    confined.write.push(path);
    Ok(directory)
}

fn stdin_of(request: &SpawnRequest) -> Result<OwnedFd, SpawnError> {
    match &request.stdin {
        Stdin::Empty => File::open("/dev/null").map_err(SpawnError::io("open /dev/null")),
        Stdin::File(file) => file.try_clone().map_err(SpawnError::io("duplicate stdin")),
    }
    .map(OwnedFd::from)
}

fn statement(request: &SpawnRequest, walls: &Walls, finished: watch::Finished) -> Enforcement {
    let (mut held, mut missing) = walls.judge(&request.confinement, &request.limits);
    let survivors = finished.report.survivors;
    if survivors > 0 {
        held.retain(|(promise, _)| *promise != Promise::TreeKill);
        let why = format!("{} processes could not be killed: they run as another user", survivors);
        missing.push(Missing { promise: Promise::TreeKill, why });
    }
    Enforcement { asked: request.confinement.name().into(), held, missing, denied: finished.denied }
}

/// Bytes that `execve` would have to copy, for the message of `E2BIG`.
fn exec_size(request: &SpawnRequest) -> usize {
    let args: usize = request.argv.iter().map(|arg| arg.as_bytes().len() + 1).sum();
    let env: usize = request.env.iter().map(|(k, v)| k.as_bytes().len() + v.as_bytes().len() + 2).sum();
    args + env
}
