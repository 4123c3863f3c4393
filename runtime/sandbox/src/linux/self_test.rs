//! The outside of `probe` and `doctor`: prepares targets, runs the attacker unconfined and confined, and
//! compares the results.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};

use super::super::doctor::{Checkup, Finding, Probe, ProbeVerdict};
use super::super::{
    Confinement, Enforcement, EnforcementMode, ExitStatus, HELPER_ARGUMENT, JailSpec, OutputSinks, Ports,
    ProcessLimits, Promise, Replaced, SandboxConfig, SpawnError, SpawnRequest, Stdin,
};
use super::attack::{self, ACTIONS, ATTACK, HEARTBEAT, MARK, Results, SECRET, TREE_ACTIONS, Targets, VICTIM};
use super::{Sandbox, landlock};
use lobster_base::cancel::CancelToken;

/// Attacks in a shared network, in the order of the attacker.
pub(super) const PORT_ACTIONS: [&str; 5] = [
    "listen on a port that is not granted",
    "connect to a port that is not granted",
    "connect to it by TCP Fast Open",
    "connect to it by MPTCP",
    "send a datagram within the run's network",
];

/// Directories and files that an ordinary program needs to start.
const SYSTEM: [&str; 7] =
    ["/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/nix/store", "/run/current-system"];

/// A daemon beats every 5 ms; without a beat for this long it is dead.
const SILENCE: Duration = Duration::from_millis(200);

struct Kept(Vec<u8>);

impl OutputSinks for Kept {
    fn write_stdout(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.0.extend_from_slice(chunk);
        Ok(())
    }

    fn write_stderr(&mut self, _: &[u8]) -> io::Result<()> {
        Ok(())
    }
}

/// Confines a process that does nothing, and reports the enforced promises.
pub(super) fn probe_host(config: &SandboxConfig) -> Result<Probe, SpawnError> {
    // A separate sandbox, so that mechanisms that another one found missing are tried again.
    let sandbox = Sandbox::new(config.clone());
    // Paths that do not exist, so that these promises are made at all.
    let some = || vec![PathBuf::from("/nonexistent")];
    let mode = || EnforcementMode::Degrade { minimum: Vec::new() };
    let spec = || JailSpec {
        deny: some(),
        deny_patterns: vec!["/nonexistent/*".into()],
        protect: some(),
        mode: mode(),
        ..JailSpec::default()
    };
    let held = |confinement| {
        let mut request = test_request(Vec::new(), confinement);
        request.limits.processes = Some(4096);
        request.limits.memory = Some(1 << 30);
        request.limits.disk = Some(1 << 30);
        sandbox.run(&request, &mut Kept(Vec::new()), &CancelToken::new()).map(|exit| exit.enforcement)
    };
    Ok(Probe {
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        landlock_abi: landlock::version(),
        jail: held(Confinement::Jail(spec()))?,
        landlock_seccomp: held(Confinement::LandlockSeccomp(spec()))?,
    })
}

/// Attacks a jail of this host from inside.
pub(super) fn attack_jail(config: &SandboxConfig) -> Result<Checkup, SpawnError> {
    let probe = probe_host(config)?;
    let (control, unconfined) = attack_once(config, None)?;
    let (confined, enforcement) =
        attack_once(config, Some(EnforcementMode::Degrade { minimum: Vec::new() }))?;
    let finding = |promise: Promise, action: &str, sides: &Sides| {
        let possible = sides.control.get(action).is_some_and(String::is_empty);
        // Promises enforced by supervision alone apply to the unconfined attacker as well.
        let always = sides.unconfined.held.iter().any(|(held, _)| *held == promise);
        let refusal = sides.confined.get(action).map_or("the attacker did not report", String::as_str);
        let missing = sides.enforcement.missing.iter().find(|missing| missing.promise == promise);
        let (verdict, detail) = match (refusal, missing) {
            ("", Some(missing)) => (ProbeVerdict::Unenforceable, missing.why.clone()),
            ("", None) => (ProbeVerdict::Broken, "it succeeded".to_owned()),
            (refusal, _) if possible || always => (ProbeVerdict::Held, refusal.to_owned()),
            (refusal, _) => (ProbeVerdict::Impossible, refusal.to_owned()),
        };
        Finding { promise, action: action.to_owned(), verdict, detail }
    };
    let sides = Sides { control, unconfined, confined, enforcement };
    let mut findings: Vec<_> =
        ACTIONS.iter().map(|(promise, action, _)| finding(*promise, action, &sides)).collect();
    for (promise, role, action) in TREE_ACTIONS {
        let (control, unconfined) = exceed_once(config, role, action, false)?;
        let (confined, enforcement) = exceed_once(config, role, action, true)?;
        let sides = Sides { control, unconfined, confined, enforcement };
        findings.push(finding(promise, action, &sides));
    }
    let (control, unconfined) = exceed_once(config, attack::PORTS, "", false)?;
    let (confined, enforcement) = exceed_once(config, attack::PORTS, "", true)?;
    let sides = Sides { control, unconfined, confined, enforcement };
    findings.extend(PORT_ACTIONS.iter().map(|action| finding(Promise::NetPorts, action, &sides)));
    Ok(Checkup { probe, findings })
}

/// Results of the same attacks without and with a jail.
struct Sides {
    control: Results,
    unconfined: Enforcement,
    confined: Results,
    enforcement: Enforcement,
}

/// Runs an attacker that has its own kind of jail. Unconfined there are no limits.
fn exceed_once(
    config: &SandboxConfig,
    role: &str,
    action: &str,
    jailed: bool,
) -> Result<(Results, Enforcement), SpawnError> {
    let program = own_program()?;
    let room = tempfile::tempdir().map_err(SpawnError::io_error("make room for the attack"))?;
    let path = room.path().canonicalize().map_err(SpawnError::io_error("make room for the attack"))?;
    let confinement = if jailed {
        let mode = EnforcementMode::Degrade { minimum: Vec::new() };
        let write = vec![path.clone()];
        let ports = (role == attack::PORTS).then(|| Ports {
            network: role.to_owned(),
            listen: vec![attack::GRANTED_PORT],
            connect: Vec::new(),
        });
        Confinement::Jail(JailSpec {
            read: readable_paths(&program),
            write,
            ports,
            mode,
            ..JailSpec::default()
        })
    } else {
        Confinement::None
    };
    let argv = vec![program.into(), HELPER_ARGUMENT.into(), role.into(), path.into()];
    let mut request = test_request(argv, confinement);
    if jailed && role == attack::FILL {
        request.limits.disk = Some(attack::MOST_DISK);
    } else if jailed && role != attack::PORTS {
        request.limits.processes = Some(attack::MOST_PROCESSES);
        request.limits.memory = Some(attack::MOST_MEMORY);
    }
    let mut kept = Kept(Vec::new());
    let exit = Sandbox::new(config.clone()).run(&request, &mut kept, &CancelToken::new())?;
    let results = match exit.status {
        // The whole group, including the attacker.
        ExitStatus::Signal(libc::SIGKILL) => {
            let by = if role == attack::FILL { "the supervisor" } else { "the kernel" };
            Results::from([(action.to_owned(), format!("{by} killed all its processes"))])
        }
        _ => parse_results(&kept.0, exit.status)?,
    };
    Ok((results, exit.enforcement))
}

fn own_program() -> Result<PathBuf, SpawnError> {
    std::env::current_exe().map_err(SpawnError::io_error("find this executable"))
}

/// Files and directories that an attacker must be able to read.
fn readable_paths(program: &Path) -> Vec<PathBuf> {
    SYSTEM.iter().map(PathBuf::from).chain([program.to_owned()]).collect()
}

fn parse_results(text: &[u8], status: ExitStatus) -> Result<Results, SpawnError> {
    serde_json::from_slice(text).map_err(|error| SpawnError::Io {
        doing: format!("read the result of the attack (it ended with {status:?})"),
        source: error.into(),
    })
}

fn test_request(argv: Vec<OsString>, confinement: Confinement) -> SpawnRequest {
    SpawnRequest {
        argv,
        env: vec![(MARK.0.into(), MARK.1.into())],
        cwd: PathBuf::from("/"),
        stdin: Stdin::Empty,
        limits: ProcessLimits { wall: Some(Duration::from_secs(60)), ..ProcessLimits::default() },
        confinement,
        upstream: None,
    }
}

/// Targets of the attacks, in a temporary directory.
struct Victims {
    targets: Targets,
    udp: UdpSocket,
    process: Child,
    _tcp: TcpListener,
    _sockets: [UnixListener; 3],
    _mailboxes: [UnixDatagram; 2],
    _terminal: Option<OwnedFd>,
    _directory: tempfile::TempDir,
}

impl Victims {
    fn set_up(program: &Path) -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        let (outside, work) = (directory.path().join("outside"), directory.path().join("work"));
        fs::create_dir(&outside)?;
        for directory in ["guarded", "vault"] {
            fs::create_dir_all(work.join(directory))?;
        }
        for file in ["secret", "victim", "removable", "exchangeable", "input"] {
            fs::write(outside.join(file), "keep out")?;
        }
        let readable = directory.path().join("readable");
        fs::write(&readable, "read me")?;
        for file in ["denied", "vault/denied", "guarded/file"] {
            fs::write(work.join(file), "keep out")?;
        }
        Self::set_up_project(&work)?;
        fs::set_permissions(outside.join("victim"), Permissions::from_mode(0o644))?;
        let abstract_name = format!("lobster-doctor-{}", uuid::Uuid::new_v4().simple());
        let by_path = UnixListener::bind(outside.join("socket"))?;
        let by_name = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&abstract_name)?)?;
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        udp.set_nonblocking(true)?;
        let process = Command::new(program)
            .args([HELPER_ARGUMENT, VICTIM])
            .env(SECRET.0, SECRET.1)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let mailboxes = [&outside, &work].map(|place| UnixDatagram::bind(place.join("mailbox")));
        let [by_outside, by_work] = mailboxes;
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).ok();
        let name = terminal.as_ref().and_then(|terminal| {
            unlockpt(terminal).ok()?;
            ptsname(terminal, Vec::new()).ok()?.into_string().ok()
        });
        let targets = Targets {
            terminal: name.unwrap_or_default().into(),
            outside,
            readable,
            work,
            pid: process.id().cast_signed(),
            tcp: tcp.local_addr()?.port(),
            udp: udp.local_addr()?.port(),
            abstract_name,
        };
        let sockets = [by_path, by_name, UnixListener::bind(targets.work.join("socket"))?];
        Ok(Self {
            targets,
            udp,
            process,
            _tcp: tcp,
            _sockets: sockets,
            _mailboxes: [by_outside?, by_work?],
            _terminal: terminal,
            _directory: directory,
        })
    }

    /// Sets up the files in the write root that patterns must find.
    fn set_up_project(work: &Path) -> io::Result<()> {
        let project = work.join("project");
        for directory in ["project", ".git/hooks", "vendor/.git/hooks", "linked", "elsewhere"] {
            fs::create_dir_all(work.join(directory))?;
        }
        for file in ["project/.env", "project/settings"] {
            fs::write(work.join(file), attack::PATTERN_SECRET)?;
        }
        symlink("settings", project.join(".env.link"))?;
        fs::hard_link(project.join(".env"), project.join("other-name"))?;
        fs::write(work.join("linked/.git"), "gitdir: nowhere\n")?;
        // Replaced between the approval and the run.
        let [approved, other_name] = attack::APPROVED.map(|name| work.join(name));
        fs::write(&approved, attack::SWAPPED_SCRIPT)?;
        fs::set_permissions(&approved, Permissions::from_mode(0o755))?;
        fs::hard_link(approved, other_name)?;
        let copy = copy_of_approved(work);
        fs::write(&copy, attack::APPROVED_SCRIPT)?;
        fs::set_permissions(copy, Permissions::from_mode(0o755))
    }
}

/// The copy of the script that was made for the approval, outside the write root.
fn copy_of_approved(work: &Path) -> PathBuf {
    work.with_file_name("copy")
}

impl Drop for Victims {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs the attacker once; `None` is unconfined.
fn attack_once(
    config: &SandboxConfig,
    mode: Option<EnforcementMode>,
) -> Result<(Results, Enforcement), SpawnError> {
    let program = own_program()?;
    let victims =
        Victims::set_up(&program).map_err(SpawnError::io_error("set up the targets of the attack"))?;
    let targets = &victims.targets;
    let confinement = match mode {
        None => Confinement::None,
        Some(mode) => Confinement::Jail(JailSpec {
            read: readable_paths(&program).into_iter().chain([targets.readable.clone()]).collect(),
            write: vec![targets.work.clone()],
            deny: ["denied", "vault/denied"].map(|file| targets.work.join(file)).to_vec(),
            deny_patterns: attack::PATTERNS.map(str::to_owned).to_vec(),
            protect_repositories: true,
            replaced: vec![Replaced {
                path: targets.work.join(attack::APPROVED[0]),
                copy: copy_of_approved(&targets.work),
            }],
            protect: vec![targets.work.join("guarded/file"), targets.work.join(attack::ABSENT)],
            own_sockets: true,
            mode,
            ..JailSpec::default()
        }),
    };
    let text = serde_json::to_string(targets)
        .map_err(|error| SpawnError::io_error("describe the targets")(error.into()))?;
    let argv = vec![program.into(), HELPER_ARGUMENT.into(), ATTACK.into(), text.into()];
    let mut kept = Kept(Vec::new());
    let sandbox = Sandbox::new(config.clone());
    let input =
        fs::File::open(targets.outside.join("input")).map_err(SpawnError::io_error("open a target"))?;
    let request = SpawnRequest { stdin: Stdin::File(input), ..test_request(argv, confinement) };
    let exit = sandbox.run(&request, &mut kept, &CancelToken::new())?;
    let mut results = parse_results(&kept.0, exit.status)?;
    judge_from_outside(&victims, &mut results);
    Ok((results, exit.enforcement))
}

/// Corrects attacks whose success only the target sees.
fn judge_from_outside(victims: &Victims, results: &mut Results) {
    let arrived = victims.udp.recv(&mut [0; 64]).is_ok();
    correct_result(results, attack::DATAGRAM, arrived, "it never arrived");
    let heartbeat = victims.targets.work.join(HEARTBEAT);
    let beats = || fs::metadata(&heartbeat).map_or(0, |file| file.len());
    let before = beats();
    std::thread::sleep(SILENCE);
    correct_result(results, attack::OUTLIVE, beats() > before, "it died with the step");
}

fn correct_result(results: &mut Results, action: &str, succeeded: bool, refusal: &str) {
    let Some(result) = results.get_mut(action) else { return };
    if succeeded {
        result.clear();
    } else if result.is_empty() {
        *result = refusal.to_owned();
    }
}
