//! Lobster's side of one run: a single poll loop over both outputs, the
//! control socket, the cancel token and the clock.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread, read};
use rustix::pipe::fcntl_setpipe_size;

use super::super::proxy::Proxy;
use super::super::{Denial, Ended, HostPort, Net, OutputSinks, SpawnError, SpawnRequest, Stream};
use super::cgroup::Lack;
use super::datagrams;
use super::mechanisms::Wall;
use super::namespace_limits;
use super::wire::{News, Order, Report, Stage};
use lobster_base::cancel::CancelToken;

/// Size of one read.
const CHUNK: usize = 256 * 1024;

/// Size of a pipe, and of a pipe that was found full: a step with much output then waits less often. The
/// kernel may refuse it.
const PIPE: usize = 64 * 1024;
const LARGE_PIPE: usize = 1024 * 1024;

/// Interval between checks for a second signal during the grace after the first.
const FORCED_CHECK: Duration = Duration::from_millis(10);

/// If a supervisor sends nothing for this long after a kill, it is broken. This is longer than it keeps
/// killing.
const PATIENCE: Duration = Duration::from_secs(10);

/// Interval between checks for stopped supervisors.
const LOOK: Duration = Duration::from_secs(5);

/// Result of a run.
pub(super) struct FinishedProcess {
    pub(super) report: Report,
    pub(super) ended: Ended,
    pub(super) denied: Vec<Denial>,
    pub(super) reached: Vec<HostPort>,
    /// Control socket of the supervisor, if it waits for another job.
    pub(super) control: Option<OwnedFd>,
}

/// Reason why a run has no result to report.
pub(super) enum Trouble {
    Error(SpawnError),
    /// Nothing was started, because the host does not have this mechanism.
    Wall {
        wall: Wall,
        errno: i32,
        why: String,
    },
}

impl Trouble {
    pub(super) fn wall_failed(wall: Wall, errno: i32, detail: &str) -> Self {
        let refused = match wall {
            Wall::Namespaces => namespace_limits::explain_refusal(errno, detail),
            _ => None,
        };
        let why = refused.unwrap_or_else(|| format!("{detail}: {}", io::Error::from_raw_os_error(errno)));
        Self::Wall { wall, errno, why }
    }
}

impl From<Lack> for Trouble {
    fn from(Lack { errno, why }: Lack) -> Self {
        Self::Wall { wall: Wall::ControlGroup, errno, why }
    }
}

impl From<SpawnError> for Trouble {
    fn from(error: SpawnError) -> Self {
        Self::Error(error)
    }
}

enum Phase {
    Running,
    /// SIGTERM was sent; SIGKILL follows at this time.
    Terminating {
        kill_at: Instant,
    },
    /// SIGKILL was sent; the report must arrive before this time.
    Killing {
        give_up_at: Instant,
    },
}

struct Output {
    stream: Stream,
    /// `None` after the end of the output.
    pipe: Option<OwnedFd>,
    cap: u64,
    seen: u64,
    /// True if the rest is discarded.
    discard: bool,
}

/// One run, from the job's dispatch to its report.
pub(super) struct ProcessWatch<'a> {
    control: OwnedFd,
    outputs: [Output; 2],
    request: &'a SpawnRequest,
    deadline: Option<Instant>,
    phase: Phase,
    main_exited: bool,
    ended: Ended,
    failure: Option<SpawnError>,
    /// Continues lobster's own stopped processes; with the time of the next check.
    wake: &'a dyn Fn(),
    look_at: Instant,
    proxy: Option<Proxy>,
    /// Serves the upstream as long as this value is held.
    _upstream: Option<Box<dyn Send>>,
}

impl<'a> ProcessWatch<'a> {
    pub(super) fn new(
        control: OwnedFd,
        stdout: OwnedFd,
        stderr: OwnedFd,
        request: &'a SpawnRequest,
        started: Instant,
        wake: &'a dyn Fn(),
    ) -> Self {
        let limits = &request.limits;
        let output = |stream, pipe, cap| Output { stream, pipe: Some(pipe), cap, seen: 0, discard: false };
        Self {
            control,
            outputs: [
                output(Stream::Stdout, stdout, limits.stdout_cap),
                output(Stream::Stderr, stderr, limits.stderr_cap),
            ],
            request,
            deadline: limits.wall.and_then(|wall| started.checked_add(wall)),
            phase: Phase::Running,
            main_exited: false,
            ended: Ended::ByItself,
            failure: None,
            wake,
            look_at: Instant::now() + LOOK,
            proxy: None,
            _upstream: None,
        }
    }

    /// An error drops the control socket, which kills the step.
    pub(super) fn until_the_end(
        mut self,
        sinks: &mut dyn OutputSinks,
        cancel: &CancelToken,
    ) -> Result<FinishedProcess, Trouble> {
        let mut buffer = Vec::with_capacity(CHUNK);
        let cancelled = cancel.pollable_fd().map_err(SpawnError::io_error("watch for cancellation"))?;
        loop {
            self.mind_the_clock(cancel)?;
            let timeout = Timespec::try_from(self.poll_timeout()).ok();
            let mut fds = vec![PollFd::new(&self.control, PollFlags::IN)];
            fds.extend(
                self.outputs.iter().filter_map(|o| Some(PollFd::new(o.pipe.as_ref()?, PollFlags::IN))),
            );
            if matches!(self.phase, Phase::Running) {
                fds.push(PollFd::from_borrowed_fd(cancelled, PollFlags::IN));
            }
            match poll(&mut fds, timeout.as_ref()) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(SpawnError::io_error("wait for the process")(error.into()).into()),
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            let news = ready[0];
            let mut readable = ready[1..].iter().copied();
            for index in 0..self.outputs.len() {
                if self.outputs[index].pipe.is_some() && readable.next() == Some(true) {
                    self.read_output(index, &mut buffer, sinks)?;
                }
            }
            if news && let Some(report) = self.receive_news()? {
                self.drain_outputs(&mut buffer, sinks)?;
                return match self.failure {
                    Some(failure) => Err(failure.into()),
                    None => Ok(FinishedProcess {
                        report,
                        ended: self.ended,
                        reached: self.proxy.as_ref().map(Proxy::reached_hosts).unwrap_or_default(),
                        denied: self.proxy.map(|proxy| proxy.denied_requests()).unwrap_or_default(),
                        control: report.reusable.then_some(self.control),
                    }),
                };
            }
        }
    }

    fn poll_timeout(&self) -> Duration {
        let now = Instant::now();
        let deadline = self.deadline.filter(|_| !self.main_exited);
        let left = |at: Instant| at.saturating_duration_since(now);
        let due = match self.phase {
            Phase::Running => deadline.map_or(LOOK, left),
            Phase::Terminating { kill_at } => left(kill_at).min(FORCED_CHECK),
            Phase::Killing { give_up_at } => left(give_up_at),
        };
        due.min(left(self.look_at))
    }

    /// Sends orders for cancellation and reached limits.
    fn mind_the_clock(&mut self, cancel: &CancelToken) -> Result<(), SpawnError> {
        let now = Instant::now();
        let grace = self.request.limits.term_grace;
        if now >= self.look_at {
            (self.wake)();
            self.look_at = now + LOOK;
        }
        match self.phase {
            // Nothing observes the step any more.
            Phase::Killing { give_up_at } if now >= give_up_at => Err(SpawnError::SupervisorKilled),
            Phase::Killing { .. } => Ok(()),
            Phase::Terminating { kill_at } => {
                if now >= kill_at || cancel.is_forced() {
                    self.start_killing();
                }
                Ok(())
            }
            Phase::Running if self.main_exited => {
                // The main process ended by itself. Leftover processes get the linger time, but only while
                // their output is open.
                if cancel.is_cancelled() || self.outputs.iter().all(|output| output.pipe.is_none()) {
                    self.start_killing();
                }
                Ok(())
            }
            Phase::Running => {
                self.ended = match self.deadline {
                    _ if cancel.is_cancelled() => Ended::Cancelled,
                    Some(deadline) if now >= deadline => Ended::TimedOut,
                    _ => return Ok(()),
                };
                if cancel.is_forced() || grace.is_zero() {
                    self.start_killing();
                } else {
                    self.send_order(Order::Terminate);
                    self.phase = Phase::Terminating { kill_at: now + grace };
                }
                Ok(())
            }
        }
    }

    fn start_killing(&mut self) {
        if !matches!(self.phase, Phase::Killing { .. }) {
            self.send_order(Order::Kill);
            self.phase = Phase::Killing { give_up_at: Instant::now() + PATIENCE };
        }
    }

    fn send_order(&self, order: Order) {
        // A supervisor that is gone has sent its report, or its closed socket is about to be seen.
        let _ = datagrams::send(self.control.as_fd(), order.encode(), &[]);
        (self.wake)();
    }

    /// Reads once from one pipe; returns the number of bytes.
    fn read_output(
        &mut self,
        index: usize,
        buffer: &mut Vec<u8>,
        sinks: &mut dyn OutputSinks,
    ) -> Result<usize, SpawnError> {
        buffer.clear();
        let output = &mut self.outputs[index];
        let Some(pipe) = &output.pipe else { return Ok(0) };
        let length = match read(pipe, spare_capacity(buffer)) {
            Ok(length) => length,
            Err(Errno::INTR) => return Ok(0),
            Err(error) => return Err(SpawnError::io_error(format!("read {}", output.stream))(error.into())),
        };
        if length == 0 {
            output.pipe = None;
            return Ok(0);
        }
        if length == PIPE {
            let _ = fcntl_setpipe_size(pipe, LARGE_PIPE);
        }
        let room = usize::try_from(output.cap - output.seen).unwrap_or(usize::MAX);
        let wanted = &buffer[..length.min(room)];
        output.seen += wanted.len() as u64;
        let (stream, cap) = (output.stream, output.cap);
        if !output.discard && !wanted.is_empty() {
            let kept = match stream {
                Stream::Stdout => sinks.write_stdout(wanted),
                Stream::Stderr => sinks.write_stderr(wanted),
            };
            if let Err(source) = kept {
                output.discard = true;
                self.failure.get_or_insert(SpawnError::Sink { stream, source });
                self.start_killing();
            }
        }
        if length > room && !self.outputs[index].discard {
            self.outputs[index].discard = true;
            if self.ended == Ended::ByItself {
                self.ended = Ended::OutputCap { stream, cap };
            }
            self.start_killing();
        }
        Ok(length)
    }

    /// Reads the output that dead processes have left in the pipes. Limited to what is there now, because a
    /// writer that could not be killed must not keep us here.
    fn drain_outputs(&mut self, buffer: &mut Vec<u8>, sinks: &mut dyn OutputSinks) -> Result<(), SpawnError> {
        for index in 0..self.outputs.len() {
            let Some(pipe) = &self.outputs[index].pipe else { continue };
            let mut left = ioctl_fionread(pipe).unwrap_or(0);
            while left > 0 {
                let length = self.read_output(index, buffer, sinks)?;
                if self.outputs[index].pipe.is_none() {
                    break;
                }
                left = left.saturating_sub(length as u64);
            }
        }
        Ok(())
    }

    /// Receives a message of the supervisor; returns its report if it is one.
    fn receive_news(&mut self) -> Result<Option<Report>, Trouble> {
        let (message, fds) = datagrams::receive(self.control.as_fd())
            .map_err(SpawnError::io_error("receive from the supervisor"))?
            .ok_or(SpawnError::SupervisorKilled)?;
        match News::decode(&message).map_err(SpawnError::io_error("read the supervisor's message"))? {
            News::Over(report) => Ok(Some(report)),
            News::MainExited => {
                self.main_exited = true;
                Ok(None)
            }
            News::DiskFull => {
                if self.ended == Ended::ByItself {
                    self.ended = Ended::DiskLimit { limit: self.request.limits.disk.unwrap_or_default() };
                }
                Ok(None)
            }
            // Never sent to the watcher of a step.
            News::Network => Ok(None),
            News::Listening => {
                let mut sockets = fds.into_iter();
                let proxy = sockets.next();
                if let Some(upstream) = &self.request.upstream
                    && let Some(listener) = sockets.next()
                {
                    let serving = upstream.serve(listener.into());
                    let serving = serving.map_err(SpawnError::io_error("serve the hosts of credentials"))?;
                    self._upstream = Some(serving);
                }
                if let (Some(proxy), Some(Net::Hosts(hosts))) =
                    (proxy, self.request.confinement.jail_spec().map(|spec| &spec.net))
                {
                    let proxy = Proxy::start(proxy, sockets, hosts);
                    self.proxy = Some(proxy.map_err(SpawnError::io_error("start the network proxy"))?);
                }
                Ok(None)
            }
            News::Failed { stage, errno, detail } => Err(self.explain_failure(stage, errno, &detail)),
        }
    }

    /// True if a copy was to be mounted at this path.
    fn is_replaced(&self, path: &str) -> bool {
        let spec = self.request.confinement.jail_spec();
        spec.is_some_and(|spec| spec.replaced.iter().any(|file| file.path.display().to_string() == path))
    }

    fn explain_failure(&self, stage: Stage, errno: i32, detail: &str) -> Trouble {
        let program = PathBuf::from(self.request.argv.first().cloned().unwrap_or_default());
        let cwd = self.request.cwd.clone();
        let source = io::Error::from_raw_os_error(errno);
        let confined = self.request.confinement.jail_spec().is_some();
        let error = match (stage, errno) {
            (Stage::Namespaces, _) => return Trouble::wall_failed(Wall::Namespaces, errno, detail),
            (Stage::Landlock, _) => return Trouble::wall_failed(Wall::Landlock, errno, detail),
            (Stage::Seccomp, _) => return Trouble::wall_failed(Wall::Seccomp, errno, detail),
            (Stage::ProcessNumbers, _) => return Trouble::wall_failed(Wall::ProcessNumbers, errno, detail),
            (Stage::ControlGroup, _) => return Trouble::wall_failed(Wall::ControlGroup, errno, detail),
            (Stage::Layer, _) => SpawnError::NoOverlay { why: format!("{detail}: {source}") },
            (Stage::Root, _) if self.is_replaced(detail) => SpawnError::Replaced { path: detail.into() },
            (Stage::Root, libc::ELOOP) => SpawnError::Io {
                doing: format!("grant {detail:?} to the step"),
                source: io::Error::other("a symbolic link leads to it; name its real path"),
            },
            (Stage::Root, libc::ESTALE) => SpawnError::Io {
                doing: format!("grant {detail:?} to the step"),
                source: io::Error::other(
                    "the file was replaced while the step was starting; resume the run when nothing replaces \
                     it",
                ),
            },
            (Stage::Root, _) => SpawnError::Io { doing: format!("grant {detail:?} to the step"), source },
            // It exists, but not in the roots of the step.
            (Stage::Exec | Stage::Interpreter, libc::ENOENT)
                if confined && program.is_absolute() && program.exists() =>
            {
                SpawnError::PermissionDenied { doing: "run", path: program }
            }
            (Stage::Cwd, libc::ENOENT) if confined && cwd.exists() => {
                SpawnError::PermissionDenied { doing: "enter", path: cwd }
            }
            (Stage::Exec, libc::ENOENT | libc::ENOTDIR) => SpawnError::NotFound { program },
            (Stage::Interpreter, _) => SpawnError::NoInterpreter { program },
            (Stage::Exec, libc::EACCES | libc::EPERM) => {
                SpawnError::PermissionDenied { doing: "run", path: program }
            }
            (Stage::Exec, libc::E2BIG) => SpawnError::TooBig { bytes: super::exec_size(self.request) },
            (Stage::Exec, _) => SpawnError::Io { doing: format!("run {program:?}"), source },
            (Stage::Cwd, libc::ENOENT | libc::ENOTDIR) => SpawnError::CwdMissing { path: cwd },
            (Stage::Cwd, libc::EACCES | libc::EPERM) => {
                SpawnError::PermissionDenied { doing: "enter", path: cwd }
            }
            (Stage::Cwd, _) => SpawnError::Io { doing: format!("enter {cwd:?}"), source },
            (Stage::Limit, _) => SpawnError::Io { doing: format!("set the limit {detail}"), source },
            (Stage::Setup, _) => SpawnError::Io { doing: format!("start {program:?} ({detail})"), source },
        };
        error.into()
    }
}
