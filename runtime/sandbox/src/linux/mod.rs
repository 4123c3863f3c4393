//! Linux: the helper, its supervisors and the side that watches them.
//!
//! ```text
//! lobster ──► guard ──► helper ──fork──► supervisor ──spawn──► step
//!    ├──(control socket)───┘                    │
//!    └──(jobs: fds + memfd)─────────────────────┘
//! ```
//! The helper does nothing but fork, so parallel runs do not wait for each other. Each supervisor
//! communicates with lobster over its own socket. If that socket is closed, lobster is gone, and the
//! supervisor ends the step. A supervisor of unconfined steps runs one after the other; a supervisor in a
//! jail runs only one. If all of them are killed, the guard kills the leftover processes of the steps.

mod attack;
mod cgroup;
mod datagrams;
mod disk_use;
mod guard;
mod helper;
mod jail;
mod landlock;
mod launch;
mod listing;
mod mechanisms;
mod mount_stubs;
mod namespace_limits;
mod network;
mod seccomp;
mod self_test;
mod stopped;
mod supervisor;
mod sweep;
mod sys;
mod system_files;
mod tree;
mod watch;
mod wire;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, PidfdFlags, WaitOptions, pidfd_open, waitpid};

use super::doctor::{Checkup, Probe};
use super::{
    Enforcement, Exit, JailSpec, Lacking, Missing, Net, OutputSinks, Promise, SandboxConfig, SpawnError,
    SpawnRequest, Stdin,
};
use lobster_base::cancel::CancelToken;
use lobster_base::sync::lock;

use cgroup::{Entrance, Hierarchy, Lack, Leaf};
use mechanisms::{Wall, Walls};
pub(super) use mount_stubs::Placeholders;
use network::Network;
use sweep::SweptProcess;
use watch::Trouble;

pub(super) use helper::helper_main;

/// A running helper; dropping it closes its socket, which ends it.
#[derive(Debug)]
struct Helper {
    socket: Option<OwnedFd>,
    process: Process,
}

#[derive(Debug)]
enum Process {
    Forked(Pid),
    Started(Child),
}

/// The helpers, which make supervisors. A forked helper still has lobster's command line, which its children
/// would reveal in a jail, so it makes none for jails.
#[derive(Debug, Default)]
struct Helpers {
    forked: Option<Arc<Helper>>,
    started: Option<Arc<Helper>>,
}

/// A helper that was forked off before any thread was started, for the first sandbox that needs one.
static FORKED: Mutex<Option<Helper>> = Mutex::new(None);

/// See [`super::fork_helper`].
pub(super) fn fork_helper() -> io::Result<()> {
    let (socket, pid) = helper::fork_off()?;
    *lock(&FORKED) = Some(Helper { socket: Some(socket), process: Process::Forked(pid) });
    Ok(())
}

/// See [`super::release_helper`].
pub(super) fn release_helper() {
    let Some(mut helper) = lock(&FORKED).take() else { return };
    helper.socket = None;
    if let Some(pid) = helper.guard_pid() {
        stopped::wake_processes(pid);
    }
    // It ends by itself.
    std::mem::forget(helper);
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
        Ok(Self { socket: Some(ours), process: Process::Started(process) })
    }

    /// Process number of the guard.
    fn guard_pid(&self) -> Option<Pid> {
        match &self.process {
            Process::Forked(pid) => Some(*pid),
            Process::Started(child) => Pid::from_raw(i32::try_from(child.id()).ok()?),
        }
    }

    fn send_message(&self, message: &[u8], fds: &[&OwnedFd]) -> io::Result<()> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        datagrams::send(socket.as_fd(), message, &fds)
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.socket = None;
        let Some(pid) = self.guard_pid() else { return };
        // It ends at once when its socket is closed; waiting only collects it. If it is stopped, it is
        // continued.
        if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
            for round in 0..ROUNDS {
                let mut ended = [PollFd::new(&process, PollFlags::IN)];
                if !matches!(poll(&mut ended, Some(&ROUND)), Ok(0)) {
                    break;
                }
                stopped::wake_processes(pid);
                if round == ROUNDS - 2 {
                    stopped::kill_helper(pid);
                }
            }
        }
        let _ = match &mut self.process {
            Process::Started(child) => child.wait().map(drop),
            Process::Forked(pid) => waitpid(Some(*pid), WaitOptions::empty()).map(drop).map_err(Into::into),
        };
    }
}

/// Checks on an ending helper, and time between them. Together they take longer than a supervisor keeps
/// killing.
const ROUNDS: u32 = 12;
const ROUND: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The Linux side of [`super::Sandbox`].
#[derive(Debug)]
pub(super) struct Sandbox {
    config: SandboxConfig,
    /// Control sockets of supervisors outside any jail that wait for a job. Dropped before the helper, which
    /// waits for these supervisors.
    idle: Mutex<Vec<OwnedFd>>,
    helpers: Mutex<Helpers>,
    /// Mechanisms that this host was found to lack.
    lacking: Mutex<Vec<(Wall, String)>>,
    networks: network::Register,
    /// Directory listings remembered from earlier jails.
    listings: listing::Memory,
    /// Location for control groups, found when one is first needed.
    groups: OnceLock<Result<Hierarchy, Lack>>,
}

impl Sandbox {
    pub(super) fn new(config: SandboxConfig) -> Self {
        Self {
            config,
            helpers: Mutex::default(),
            idle: Mutex::default(),
            lacking: Mutex::new(Vec::new()),
            networks: network::Register::default(),
            listings: listing::Memory::default(),
            groups: OnceLock::new(),
        }
    }

    pub(super) fn warm_up(&self, jails: bool) {
        // The run that needs the helper reports its error.
        if jails {
            let _ = self.helper_for(datagrams::JAIL, None);
        } else if let Ok(control) = self.request_supervisor(datagrams::SUPERVISOR) {
            lock(&self.idle).push(control);
        }
    }

    pub(super) fn run(
        &self,
        request: &SpawnRequest,
        sinks: &mut dyn OutputSinks,
        cancel: &CancelToken,
    ) -> Result<Exit, SpawnError> {
        let started = Instant::now();
        let lacking = lock(&self.lacking).clone();
        let mut walls = Walls::wanted_for(&request.confinement, &request.limits, &lacking);
        let mut is_news = false;
        loop {
            // A missing mechanism is found before anything has run. The remaining mechanisms are judged
            // again; nothing runs with less than was promised.
            if let Err(refusal) = walls.check_mode(&request.confinement, &request.limits) {
                return Err(if is_news { self.whole_refusal(request, walls, refusal) } else { refusal });
            }
            if request.upstream.is_some() && !walls.has(Wall::Namespaces) {
                return Err(SpawnError::NoUpstream);
            }
            match self.attempt_run(request, &mut walls, started, sinks, cancel) {
                Ok(exit) => return Ok(exit),
                Err(Trouble::Error(error)) => return Err(error),
                Err(Trouble::Wall { wall, errno, why }) => {
                    if !walls.remove_wall(wall, &why) {
                        let source = io::Error::from_raw_os_error(errno);
                        return Err(SpawnError::Io { doing: format!("confine the process ({why})"), source });
                    }
                    is_news = true;
                    self.remember_lack(wall, errno, why);
                }
            }
        }
    }

    /// Remembers permanent refusals of the kernel, so that later runs need not find them again.
    fn remember_lack(&self, wall: Wall, errno: i32, why: String) {
        if matches!(
            errno,
            libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EINVAL | libc::EOPNOTSUPP | libc::EROFS
        ) {
            lock(&self.lacking).push((wall, why));
        }
    }

    /// A refusal that names everything that the host lacks. To find it, the remaining mechanisms are tried on
    /// a process that ends before it runs anything.
    fn whole_refusal(&self, request: &SpawnRequest, mut walls: Walls, first: SpawnError) -> SpawnError {
        let trial = SpawnRequest {
            argv: Vec::new(),
            env: Vec::new(),
            cwd: request.cwd.clone(),
            stdin: Stdin::Empty,
            limits: request.limits.clone(),
            confinement: request.confinement.clone(),
            upstream: None,
        };
        while let Err(Trouble::Wall { wall, errno, why }) =
            self.attempt_run(&trial, &mut walls, Instant::now(), &mut Nowhere, &CancelToken::new())
        {
            if !walls.remove_wall(wall, &why) {
                break;
            }
            self.remember_lack(wall, errno, why);
        }
        walls.check_mode(&request.confinement, &request.limits).err().unwrap_or(first)
    }

    /// See [`super::Sandbox::hold_placeholders`]. A start reports its own errors.
    pub(super) fn hold_placeholders(&self, spec: &JailSpec) -> Placeholders {
        let has_namespaces = lock(&self.lacking).iter().all(|(wall, _)| *wall != Wall::Namespaces);
        let held = has_namespaces.then(|| Placeholders::stand_in(spec, &[]).ok());
        held.flatten().unwrap_or_default()
    }

    pub(super) fn probe_host(&self) -> Result<Probe, SpawnError> {
        self_test::probe_host(&self.config)
    }

    pub(super) fn attack_jail(&self) -> Result<Checkup, SpawnError> {
        self_test::attack_jail(&self.config)
    }

    fn attempt_run(
        &self,
        request: &SpawnRequest,
        walls: &mut Walls,
        started: Instant,
        sinks: &mut dyn OutputSinks,
        cancel: &CancelToken,
    ) -> Result<Exit, Trouble> {
        // The helper takes a while to make namespaces; everything else is prepared meanwhile.
        let network = match request.confinement.jail_spec().and_then(|spec| spec.ports.as_ref()) {
            Some(ports) if walls.has(Wall::Namespaces) => Some(self.shared_network(&ports.network)?),
            _ => None,
        };
        let confined = request
            .confinement
            .jail_spec()
            .map(|spec| self.supervisor_in(kind_of(spec, walls), network.as_deref()))
            .transpose()?;
        let mut found = SweptProcess::default();
        let _placeholders = match request.confinement.jail_spec() {
            Some(spec) if walls.has(Wall::Namespaces) => {
                found = sweep::walk_roots(spec, &self.listings);
                // A process that cannot make sockets reaches none.
                let is_of_sockets = |missing: &Missing| missing.promise == Promise::UnixDeny;
                walls.sockets_in_sight = found.missing.iter().any(is_of_sockets);
                if spec.unix.is_empty() {
                    found.missing.retain(|missing| !is_of_sockets(missing));
                }
                if !found.missing.is_empty() {
                    walls.open = std::mem::take(&mut found.missing);
                    walls.check_mode(&request.confinement, &request.limits)?;
                }
                Some(Placeholders::stand_in(spec, &found.stand_ins)?)
            }
            _ => None,
        };
        let leaf = walls.has(Wall::ControlGroup).then(|| self.make_leaf(request)).transpose()?;
        let mut job = wire::Job::from_request(request, &found, walls);
        let entrance = match leaf.as_ref().map(Leaf::open_entrance).transpose()? {
            None => Vec::new(),
            Some(Entrance::Directory(directory)) => {
                job.groups = wire::Groups::Directory;
                vec![directory]
            }
            Some(Entrance::Tasks(files)) => {
                job.groups = wire::Groups::Tasks;
                files
            }
        };
        let temporary = match &mut job.confined {
            Some(confined) if !walls.has(Wall::Namespaces) && !confined.private.is_empty() => {
                Some(stand_in_for_private(confined, &mut job.env)?)
            }
            _ => None,
        };
        let pipes = || pipe_with(PipeFlags::CLOEXEC).map_err(io::Error::from);
        let (stdout, stdout_end) = pipes().map_err(SpawnError::io_error("open a pipe for stdout"))?;
        let (stderr, stderr_end) = pipes().map_err(SpawnError::io_error("open a pipe for stderr"))?;
        let job_file = job_file(&job.encode()).map_err(SpawnError::io_error("hand the request over"))?;
        let stdin = stdin_of(request)?;
        let mut fds = [&job_file, &stdin, &stdout_end, &stderr_end].map(OwnedFd::as_fd).to_vec();
        fds.extend(entrance.iter().map(OwnedFd::as_fd));
        let control = match confined {
            Some(control) => hand_over_job(control, &fds)?,
            None => self.submit_job(&fds)?,
        };
        // Only the supervisor may hold these ends, or lobster would never see them closed.
        drop((job_file, stdin, stdout_end, stderr_end, entrance));

        let wake = || self.wake_helpers();
        let watch = watch::ProcessWatch::new(control, stdout, stderr, request, started, &wake);
        let mut finished = watch.until_the_end(sinks, cancel)?;
        lock(&self.idle).extend(finished.control.take());
        // Files that the step has made unreadable even for itself are left behind.
        drop(temporary);
        finished.denied.extend(leaf.iter().flat_map(|leaf| leaf.reached_limits(&request.limits)));
        drop(leaf);
        Ok(Exit {
            status: finished.report.status,
            ended: finished.ended,
            wall: started.elapsed(),
            cpu: finished.report.cpu,
            max_rss: finished.report.max_rss,
            enforcement: enforcement_statement(request, walls, finished),
        })
    }

    /// Continues helpers and supervisors that have been stopped.
    fn wake_helpers(&self) {
        let pids: Vec<Pid> = {
            let helpers = lock(&self.helpers);
            helpers.forked.iter().chain(&helpers.started).filter_map(|helper| helper.guard_pid()).collect()
        };
        pids.into_iter().for_each(stopped::wake_processes);
    }

    /// Makes a control group with the step's limits.
    fn make_leaf(&self, request: &SpawnRequest) -> Result<Leaf, Lack> {
        self.groups.get_or_init(Hierarchy::find).as_ref().map_err(Lack::clone)?.make_leaf(&request.limits)
    }

    /// Passes an unconfined job to a supervisor, preferably a waiting one, and returns its control socket.
    fn submit_job(&self, fds: &[BorrowedFd<'_>]) -> Result<OwnedFd, SpawnError> {
        while let Some(control) = lock(&self.idle).pop() {
            // A supervisor that is gone has never seen the job, so the next one is tried.
            if datagrams::send(control.as_fd(), datagrams::JOB, fds).is_ok() {
                return Ok(control);
            }
        }
        hand_over_job(self.request_supervisor(datagrams::SUPERVISOR)?, fds)
    }

    /// The network of this name, shared by all its users.
    fn shared_network(&self, name: &str) -> Result<Arc<Network>, Trouble> {
        self.networks.get(name, || {
            let control = self.request_supervisor(datagrams::NETWORK)?;
            let mut answer = [PollFd::new(&control, PollFlags::IN)];
            if matches!(poll(&mut answer, Some(&ROUND)), Ok(0)) {
                self.wake_helpers();
            }
            Network::receive_from(control)
        })
    }

    fn request_supervisor(&self, kind: &[u8]) -> Result<OwnedFd, SpawnError> {
        self.supervisor_in(kind, None)
    }

    /// Requests a new supervisor and returns its control socket. A helper that has died meanwhile is
    /// replaced.
    fn supervisor_in(&self, kind: &[u8], network: Option<&Network>) -> Result<OwnedFd, SpawnError> {
        let (control, control_end) = socket_pair().map_err(SpawnError::io_error("open a control socket"))?;
        let first = self.helper_for(kind, None)?;
        let fds: Vec<&OwnedFd> =
            [&control_end].into_iter().chain(network.into_iter().flat_map(Network::namespaces)).collect();
        match first.send_message(kind, &fds) {
            Err(error) if is_gone(&error) => {
                let second = self.helper_for(kind, Some(&first))?;
                second.send_message(kind, &fds).map_err(SpawnError::io_error(
                    "reach the sandbox helper (it ended as soon as it was started)",
                ))?;
            }
            other => other.map_err(SpawnError::io_error("reach the sandbox helper"))?,
        }
        Ok(control)
    }

    /// A helper for supervisors of this kind, but not the `broken` one.
    fn helper_for(&self, kind: &[u8], broken: Option<&Arc<Helper>>) -> Result<Arc<Helper>, SpawnError> {
        let mut helpers = lock(&self.helpers);
        let well = |helper: &&mut Arc<Helper>| broken.is_none_or(|broken| !Arc::ptr_eq(helper, broken));
        if kind == datagrams::SUPERVISOR {
            if helpers.forked.is_none() && self.config.helper == SandboxConfig::default().helper {
                helpers.forked = lock(&FORKED).take().map(Arc::new);
            }
            if let Some(helper) = helpers.forked.as_mut().filter(well) {
                return Ok(Arc::clone(helper));
            }
        }
        if let Some(helper) = helpers.started.as_mut().filter(well) {
            return Ok(Arc::clone(helper));
        }
        let doing = format!("start the sandbox helper {:?}", self.config.helper);
        let helper = Arc::new(Helper::start(&self.config).map_err(SpawnError::io_error(doing))?);
        helpers.started = Some(Arc::clone(&helper));
        Ok(helper)
    }
}

/// Discards the output of a process without output.
struct Nowhere;

impl OutputSinks for Nowhere {
    fn write_stdout(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn write_stderr(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// The request to the helper.
fn kind_of(spec: &JailSpec, walls: &Walls) -> &'static [u8] {
    match (walls.has(Wall::Namespaces), &spec.net) {
        (true, Net::Host) => datagrams::JAIL_ON_HOST_NETWORK,
        (true, Net::None) if spec.ports.is_some() => datagrams::JAIL_IN_NETWORK,
        (true, Net::None | Net::Hosts(_)) => datagrams::JAIL,
        (false, _) => datagrams::SUPERVISOR,
    }
}

/// Passes a job to a new supervisor.
fn hand_over_job(control: OwnedFd, fds: &[BorrowedFd<'_>]) -> Result<OwnedFd, SpawnError> {
    match datagrams::send(control.as_fd(), datagrams::JOB, fds) {
        // The supervisor could not be made, and the reason has been sent.
        Err(error) if is_gone(&error) => Ok(control),
        other => other.map(|()| control).map_err(SpawnError::io_error("hand the job over")),
    }
}

/// True if the other end is closed.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN))
}

fn socket_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

fn job_file(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("job", MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Without a mount namespace no directory can be private, so the step gets one temporary directory, named in
/// `TMPDIR`. It is in a directory that was made for the step alone, if there is one.
fn stand_in_for_private(
    confined: &mut wire::Confined,
    env: &mut Vec<Vec<u8>>,
) -> Result<tempfile::TempDir, SpawnError> {
    let doing = "make a temporary directory for the step";
    let place = confined.own.first().map_or_else(std::env::temp_dir, Clone::clone);
    let directory = tempfile::tempdir_in(place).map_err(SpawnError::io_error(doing))?;
    let path = directory.path().canonicalize().map_err(SpawnError::io_error(doing))?;
    env.retain(|entry| !entry.starts_with(b"TMPDIR="));
    env.push([b"TMPDIR=", path.as_os_str().as_bytes()].concat());
    confined.write.push(path);
    Ok(directory)
}

fn stdin_of(request: &SpawnRequest) -> Result<OwnedFd, SpawnError> {
    match &request.stdin {
        Stdin::Empty => File::open("/dev/null").map_err(SpawnError::io_error("open /dev/null")),
        Stdin::File(file) => file.try_clone().map_err(SpawnError::io_error("duplicate stdin")),
    }
    .map(OwnedFd::from)
}

fn enforcement_statement(
    request: &SpawnRequest,
    walls: &Walls,
    finished: watch::FinishedProcess,
) -> Enforcement {
    let (mut held, mut missing) = walls.split_promises(&request.confinement, &request.limits);
    let survivors = finished.report.survivors;
    if survivors > 0 {
        held.retain(|(promise, _)| *promise != Promise::TreeKill);
        let why = format!("{} processes could not be killed: they run as another user", survivors);
        missing.push(Missing { promise: Promise::TreeKill, why });
    }
    let lacking = walls
        .fallen
        .iter()
        .map(|(wall, why)| Lacking { mechanism: wall.name().into(), why: why.clone() })
        .collect();
    let reached = finished.reached.iter().map(ToString::to_string).collect();
    let asked = request.confinement.name().into();
    let layers = request.confinement.jail_spec().map_or(&[][..], |spec| &spec.layers);
    let has_copy = layers.iter().any(|layer| layer.copy.is_some());
    let changes = (!layers.is_empty()).then(|| if has_copy { "snapshot" } else { "overlay" }.to_owned());
    let denied = finished.denied;
    Enforcement { asked, held, missing, lacking, denied, reached, changes, ..Enforcement::default() }
}

/// Bytes that `execve` would have to copy, for the message of `E2BIG`.
fn exec_size(request: &SpawnRequest) -> usize {
    let args: usize = request.argv.iter().map(|arg| arg.as_bytes().len() + 1).sum();
    let env: usize = request.env.iter().map(|(k, v)| k.as_bytes().len() + v.as_bytes().len() + 2).sum();
    args + env
}
