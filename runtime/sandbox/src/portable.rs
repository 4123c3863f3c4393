//! Other Unix systems, which have only process groups.
//!
//! A process that leaves the group is not killed with it, and nothing is killed if lobster itself is; the
//! enforcement statement reports that. On Linux this file is compiled only for its tests.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::doctor::{Checkup, Probe};
use super::{
    Confinement, Ended, Enforcement, Exit, ExitStatus, JailSpec, Mechanism, Missing, OutputSinks, Promise,
    SandboxConfig, SpawnError, SpawnRequest, Stdin, Stream,
};
use lobster_base::cancel::CancelToken;

/// Interval between checks for exits and cancellation.
const TICK: Duration = Duration::from_millis(5);

/// Chunks in flight between a reader and the sink, 64 KiB each.
const BACKLOG: usize = 2;

/// Reports that this system has no helper.
pub(super) fn helper_main() -> ExitCode {
    eprintln!("lobster: this system has no sandbox helper");
    ExitCode::from(2)
}

pub(super) fn fork_helper() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(super) fn release_helper() {}

/// Without mounts there are no placeholders.
#[derive(Debug, Default)]
pub(super) struct Placeholders;

impl Placeholders {
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        std::iter::empty()
    }

    pub(super) fn made(&self) -> Option<Instant> {
        None
    }
}

/// Starts processes directly.
#[derive(Debug)]
pub(super) struct Sandbox;

impl Sandbox {
    pub(super) fn new(_: SandboxConfig) -> Self {
        Self
    }

    pub(super) fn hold_placeholders(&self, _: &JailSpec) -> Placeholders {
        Placeholders
    }

    pub(super) fn probe_host(&self) -> Result<Probe, SpawnError> {
        Err(unsupported_error("probe the sandbox"))
    }

    pub(super) fn attack_jail(&self) -> Result<Checkup, SpawnError> {
        Err(unsupported_error("attack the sandbox"))
    }

    pub(super) fn warm_up(&self, _: bool) {}

    pub(super) fn run(
        &self,
        request: &SpawnRequest,
        sinks: &mut dyn OutputSinks,
        cancel: &CancelToken,
    ) -> Result<Exit, SpawnError> {
        let enforcement = enforcement_statement(request)?;
        let started = Instant::now();
        let mut child = start_child(request)?;
        let group = Pid::from_child(&child);
        let (sender, chunks) = sync_channel(BACKLOG);
        if let Some(pipe) = child.stdout.take() {
            pump_output(Stream::Stdout, pipe, sender.clone());
        }
        if let Some(pipe) = child.stderr.take() {
            pump_output(Stream::Stderr, pipe, sender);
        }
        let result = watch_child(&mut child, group, &chunks, request, sinks, cancel, started);
        let _ = kill_process_group(group, Signal::KILL);
        let status = child.wait().map_err(SpawnError::io_error("wait for the process"))?;
        Ok(Exit {
            ended: result?,
            status: match status.signal() {
                Some(signal) => ExitStatus::Signal(signal),
                None => ExitStatus::Code(status.code().unwrap_or_default()),
            },
            wall: started.elapsed(),
            cpu: Duration::ZERO,
            max_rss: 0,
            enforcement,
        })
    }
}

fn unsupported_error(doing: &str) -> SpawnError {
    let source = io::Error::new(io::ErrorKind::Unsupported, "lobster confines native steps on Linux only");
    SpawnError::Io { doing: doing.into(), source }
}

fn start_child(request: &SpawnRequest) -> Result<Child, SpawnError> {
    let [program, args @ ..] = request.argv.as_slice() else {
        return Err(SpawnError::NotFound { program: "".into() });
    };
    let stdin = match &request.stdin {
        Stdin::Empty => Stdio::null(),
        Stdin::File(file) => file.try_clone().map_err(SpawnError::io_error("duplicate stdin"))?.into(),
    };
    if !request.cwd.is_dir() {
        return Err(SpawnError::CwdMissing { path: request.cwd.clone() });
    }
    Command::new(program)
        .args(args)
        .env_clear()
        .envs(request.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&request.cwd)
        .process_group(0)
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => SpawnError::NotFound { program: program.into() },
            io::ErrorKind::PermissionDenied => {
                SpawnError::PermissionDenied { doing: "run", path: program.into() }
            }
            _ => SpawnError::Io { doing: format!("run {program:?}"), source },
        })
}

fn pump_output(stream: Stream, mut pipe: impl Read + Send + 'static, chunks: SyncSender<(Stream, Vec<u8>)>) {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = pipe.read(&mut buffer) {
            if chunks.send((stream, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    });
}

fn watch_child(
    child: &mut Child,
    group: Pid,
    chunks: &Receiver<(Stream, Vec<u8>)>,
    request: &SpawnRequest,
    sinks: &mut dyn OutputSinks,
    cancel: &CancelToken,
    started: Instant,
) -> Result<Ended, SpawnError> {
    let limits = &request.limits;
    let deadline = limits.wall.and_then(|wall| started.checked_add(wall));
    let mut room = [limits.stdout_cap, limits.stderr_cap];
    let mut stopping: Option<(Ended, Instant)> = None;
    let mut linger_until: Option<Instant> = None;
    loop {
        match chunks.recv_timeout(TICK) {
            Ok((stream, chunk)) => {
                let left = &mut room[usize::from(stream == Stream::Stderr)];
                let wanted = &chunk[..chunk.len().min(usize::try_from(*left).unwrap_or(usize::MAX))];
                *left -= wanted.len() as u64;
                match stream {
                    Stream::Stdout => sinks.write_stdout(wanted),
                    Stream::Stderr => sinks.write_stderr(wanted),
                }
                .map_err(|source| SpawnError::Sink { stream, source })?;
                if wanted.len() < chunk.len() {
                    let cap = if stream == Stream::Stdout { limits.stdout_cap } else { limits.stderr_cap };
                    return Ok(Ended::OutputCap { stream, cap });
                }
            }
            // Both pipes have ended: wait only for the main process.
            Err(RecvTimeoutError::Disconnected) if linger_until.is_some() => break,
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = Instant::now();
        if linger_until.is_some_and(|until| now >= until) {
            break;
        }
        if linger_until.is_none()
            && child.try_wait().map_err(SpawnError::io_error("wait for the process"))?.is_some()
        {
            linger_until = Some(now + limits.linger);
        }
        if stopping.is_none() {
            let late = deadline.is_some_and(|deadline| now >= deadline).then_some(Ended::TimedOut);
            if let Some(ended) = cancel.is_cancelled().then_some(Ended::Cancelled).or(late) {
                let _ = kill_process_group(group, Signal::TERM);
                // A stopped process would not handle SIGTERM.
                let _ = kill_process_group(group, Signal::CONT);
                stopping = Some((ended, now + limits.term_grace));
            }
        }
        if let Some((ended, kill_at)) = stopping
            && (now >= kill_at || cancel.is_forced())
        {
            return Ok(ended);
        }
    }
    Ok(stopping.map_or(Ended::ByItself, |(ended, _)| ended))
}

fn enforcement_statement(request: &SpawnRequest) -> Result<Enforcement, SpawnError> {
    let tree = Missing {
        promise: Promise::TreeKill,
        why: "this system has only process groups: a process that makes its own session escapes, \
              and processes survive if lobster is killed"
            .into(),
    };
    if request.limits.has_any() {
        return Err(SpawnError::Io {
            doing: "set resource limits".into(),
            source: io::Error::new(io::ErrorKind::Unsupported, "not available on this system"),
        });
    }
    if request.confinement != Confinement::None {
        let why = "lobster confines native steps on Linux only";
        let missing = request.confinement.promises(&request.limits).into_iter();
        return Err(SpawnError::Sandbox {
            missing: missing.map(|promise| Missing { promise, why: why.into() }).collect(),
        });
    }
    Ok(Enforcement {
        asked: "none".into(),
        held: vec![(Promise::EnvScrub, vec![Mechanism::Exec]), (Promise::FdClose, vec![Mechanism::Exec])],
        missing: vec![tree],
        ..Enforcement::default()
    })
}
