//! The program that `doctor` runs inside its own sandbox. It really tries everything that a step must not be
//! able to do, against targets prepared for it.
//!
//! It also runs unconfined, to distinguish a refusal from something that cannot work on this host at all. So
//! it must never harm anything but the targets.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{
    CWD, FileType, Mode, OFlags, RenameFlags, ResolveFlags, Timespec, Timestamps, XattrFlags, mkdirat,
    openat, openat2, renameat_with,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with};
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, WaitOptions, pidfd_getfd, pidfd_open, test_kill_process,
};
use serde::{Deserialize, Serialize};

use super::super::{HELPER_ARGUMENT, Promise};
use super::self_test::PORT_ACTIONS;
use super::sys;

/// The second arguments of the binary, after [`HELPER_ARGUMENT`].
pub(super) const ATTACK: &str = "attack";
pub(super) const VICTIM: &str = "victim";
const DAEMON: &str = "daemon";

/// Attacks on the limits of the tree, each by a separate attacker, because the kernel may kill all its
/// processes.
pub(super) const CROWD: &str = "crowd";
pub(super) const SWELL: &str = "swell";
pub(super) const FILL: &str = "fill";

/// Attacks on the port grants of a shared network, by a separate attacker.
pub(super) const PORTS: &str = "ports";

/// The port that it may listen on.
pub(super) const GRANTED_PORT: u16 = 3000;

/// Limits of these attackers.
pub(super) const MOST_PROCESSES: u64 = 32;
pub(super) const MOST_MEMORY: u64 = 128 << 20;
pub(super) const MOST_DISK: u64 = 32 << 20;

/// Memory of each process of [`SWELL`]; one process alone may take it.
const PIECE: usize = 48 << 20;

/// Size of each file of [`FILL`]; one file alone is within the limit.
const FILE: usize = 4 << 20;

/// Attacks on limits that only the whole tree can exceed: promise, attacker and description.
pub(super) const TREE_ACTIONS: [(Promise, &str, &str); 3] = [
    (Promise::TreeLimits, CROWD, "start more processes than the step may have"),
    (Promise::TreeLimits, SWELL, "take more memory than the step may have, in several processes"),
    (Promise::DiskLimit, FILL, "fill the write root with more than the step may add, in several files"),
];

/// A secret of the victim process.
pub(super) const SECRET: (&str, &str) = ("LOBSTER_DOCTOR_SECRET", "a victim's secret");

/// Patterns that the attacked jail denies.
pub(super) const PATTERNS: [&str; 3] = ["**/.env", "**/.env.*", "!**/.env.example"];

/// A protected path in the write root that does not exist.
pub(super) const ABSENT: &str = "guarded/absent";

/// An approved script in the write root, and its other name there.
pub(super) const APPROVED: [&str; 2] = ["approved", "approved-too"];

/// The approved script, and the script that replaces it before the attack.
pub(super) const APPROVED_SCRIPT: &str = "#!/bin/sh\necho approved\n";
pub(super) const SWAPPED_SCRIPT: &str = "#!/bin/sh\necho swapped\n";

/// Content of the files that the patterns deny.
pub(super) const PATTERN_SECRET: &str = "PASSWORD=of the victim";

/// Private directories of the attacker, as in the default [`super::super::JailSpec`].
const PRIVATE: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// The environment of the attacker.
pub(super) const MARK: (&str, &str) = ("LOBSTER_DOCTOR", "1");

/// Time limit for a connection to fail.
const PATIENCE: Duration = Duration::from_millis(500);

/// Locations of the targets.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Targets {
    /// A directory that is not granted: `secret`, `victim`,
    /// `removable`, `exchangeable`, `input`, `socket`.
    pub(super) outside: PathBuf,
    /// A read-only file.
    pub(super) readable: PathBuf,
    /// The write root, with `denied`, `vault/denied`, `guarded/file`, `socket`, files in `project` that
    /// patterns deny, repositories, and space.
    pub(super) work: PathBuf,
    /// A process outside, with [`SECRET`] in its environment.
    pub(super) pid: i32,
    /// Ports of the host's loopback interface.
    pub(super) tcp: u16,
    pub(super) udp: u16,
    /// A terminal.
    pub(super) terminal: PathBuf,
    /// Name of an abstract unix socket.
    pub(super) abstract_name: String,
}

/// Report of the attacker: an empty text for a success, otherwise the refusal.
pub(super) type Results = BTreeMap<String, String>;

/// File in the write root to which a leftover daemon keeps writing.
pub(super) const HEARTBEAT: &str = "heartbeat";

/// Runs the role that the second argument names, if there is one.
pub(super) fn main(args: &[std::ffi::OsString]) -> Option<ExitCode> {
    let [role, rest @ ..] = args else { return None };
    match role.to_str()? {
        ATTACK => Some(run_attacks(rest.first()?.to_str()?)),
        VICTIM => {
            // Lives until lobster closes its end.
            let _ = io::stdin().read(&mut [0]);
            Some(ExitCode::SUCCESS)
        }
        CROWD => Some(report_attack(CROWD, start_children(2 * MOST_PROCESSES, 0))),
        SWELL => Some(report_attack(SWELL, start_children(2 * MOST_MEMORY / PIECE as u64, PIECE))),
        FILL => Some(report_attack(FILL, fill_disk(rest.first()?))),
        PORTS => Some(print_results(&attack_ports())),
        DAEMON => {
            write_heartbeats(rest.first()?);
            Some(ExitCode::SUCCESS)
        }
        _ => None,
    }
}

fn write_heartbeats(path: &std::ffi::OsStr) {
    let _ = rustix::process::setsid();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path) else { return };
        let _ = file.write_all(b".");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Succeeds if this many children exist at once, each with this many bytes of memory.
fn start_children(count: u64, bytes: usize) -> io::Result<()> {
    let (mut here, there) = io::pipe()?;
    let mut result = Ok(());
    for _ in 0..count {
        match sys::fork() {
            Ok(sys::Fork::Parent(_)) => {}
            Ok(sys::Fork::Child) => {
                drop(here);
                // Not zero, because the kernel would not allocate memory for zeros.
                let taken = vec![1u8; bytes];
                let _ = (&there).write_all(&[1]);
                std::thread::sleep(Duration::from_secs(30));
                drop(taken);
                sys::exit_now(0)
            }
            Err(error) => {
                result = Err(error);
                break;
            }
        }
        // One by one: each reports that it exists, unless the kernel kills one of them.
        if !is_told(&here, PATIENCE * 4) || has_lost_one() {
            result = Err(io::Error::other("the kernel killed a child"));
            break;
        }
        here.read_exact(&mut [0])?;
    }
    for child in super::tree::direct_children() {
        let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
    }
    result
}

/// Tries the attacks of [`PORT_ACTIONS`]. The kernel assigns the port that is not granted.
fn attack_ports() -> Results {
    let stream = || socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let open = || -> io::Result<(OwnedFd, u16)> {
        let socket = stream()?;
        rustix::net::listen(&socket, 8)?;
        let address = std::net::SocketAddr::try_from(rustix::net::getsockname(&socket)?)?;
        Ok((socket, address.port()))
    };
    let port = open();
    let to = || port.as_ref().map(|(_, port)| *port).map_err(|error| io::Error::other(error.to_string()));
    let attempts: [io::Result<()>; 5] = [
        std::net::TcpListener::bind(("127.0.0.1", GRANTED_PORT + 1)).map(drop),
        to().and_then(|port| TcpStream::connect_timeout(&([127, 0, 0, 1], port).into(), PATIENCE).map(drop)),
        to().and_then(|port| sys::send_fast_open(&stream()?, port)),
        to().and_then(connect_by_mptcp),
        UdpSocket::bind("127.0.0.1:0").map(drop),
    ];
    let told = attempts.map(|result| result.err().map(|error| error.to_string()).unwrap_or_default());
    PORT_ACTIONS.map(str::to_owned).into_iter().zip(told).collect()
}

fn connect_by_mptcp(port: u16) -> io::Result<()> {
    let mptcp = rustix::net::Protocol::from_raw(std::num::NonZero::new(262).ok_or(io::ErrorKind::Other)?);
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, Some(mptcp))?;
    Ok(rustix::net::connect(&socket, &std::net::SocketAddrV4::new([127, 0, 0, 1].into(), port))?)
}

/// Succeeds if twice the permitted size exists for a second. Every second file is removed while it is open.
fn fill_disk(directory: &std::ffi::OsStr) -> io::Result<()> {
    let piece = vec![1u8; FILE];
    let mut open = Vec::new();
    for number in 0..2 * MOST_DISK / FILE as u64 {
        let path = PathBuf::from(directory).join(format!("piece-{number}"));
        let mut file = File::create(&path)?;
        file.write_all(&piece)?;
        if number % 2 == 1 {
            fs::remove_file(&path)?;
            open.push(file);
        }
    }
    std::thread::sleep(PATIENCE * 3);
    Ok(())
}

/// True if there is something to read before this time has passed.
fn is_told(pipe: &io::PipeReader, patience: Duration) -> bool {
    let patience = Timespec::try_from(patience).ok();
    poll(&mut [PollFd::new(pipe, PollFlags::IN)], patience.as_ref()).is_ok_and(|ready| ready > 0)
}

/// True if a child has ended. The kernel may kill another child than the requesting one.
fn has_lost_one() -> bool {
    matches!(rustix::process::wait(WaitOptions::NOHANG), Ok(Some(_)))
}

/// Prints the result of this attacker's one attack.
fn report_attack(role: &str, result: io::Result<()>) -> ExitCode {
    let action = TREE_ACTIONS.iter().find(|(_, of, _)| *of == role).map_or(role, |(.., action)| action);
    let refusal = result.err().map(|error| error.to_string()).unwrap_or_default();
    print_results(&Results::from([(action.to_owned(), refusal)]))
}

fn run_attacks(targets: &str) -> ExitCode {
    let Ok(targets) = serde_json::from_str::<Targets>(targets) else { return ExitCode::FAILURE };
    let mut results = Results::new();
    for (_, name, action) in ACTIONS {
        let refusal = action(&targets).err().map(|error| error.to_string());
        results.insert((*name).to_owned(), refusal.unwrap_or_default());
    }
    print_results(&results)
}

fn print_results(results: &Results) -> ExitCode {
    match serde_json::to_string(results) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

type Action = fn(&Targets) -> io::Result<()>;

/// Attacks whose success only their targets see.
pub(super) const DATAGRAM: &str = "send a datagram to the host";
pub(super) const OUTLIVE: &str = "outlive the step";

/// All attacks: the promise, the description, and the function. If the attacker cannot see the failure itself
/// (a datagram that never arrives), the target judges.
pub(super) const ACTIONS: &[(Promise, &str, Action)] = &[
    (Promise::FsRead, "read a file outside", |t| fs::read(t.outside.join("secret")).map(drop)),
    (Promise::FsRead, "list a directory outside", |t| {
        fs::read_dir(&t.outside)?.next().map_or(Ok(()), |e| e.map(drop))
    }),
    (Promise::FsRead, "read outside through a symbolic link", |t| {
        let link = t.work.join("link");
        let _ = symlink(t.outside.join("secret"), &link);
        fs::read(link).map(drop)
    }),
    (Promise::FsRead, "read outside through /proc/self/root", |t| {
        let inside = t.outside.strip_prefix("/").map_err(io::Error::other)?;
        fs::read(PathBuf::from("/proc/self/root").join(inside).join("secret")).map(drop)
    }),
    (Promise::FsWrite, "write to a file outside", |t| {
        OpenOptions::new().append(true).open(t.outside.join("victim"))?.write_all(b"x")
    }),
    (Promise::FsWrite, "create a file outside", |t| {
        let flags =
            OpenOptions::new().write(true).create(true).truncate(false).open(t.outside.join("created"));
        flags.map(drop)
    }),
    (Promise::FsWrite, "truncate a file outside", |t| sys::truncate(&t.outside.join("victim"))),
    (Promise::FsWrite, "remove a file outside", |t| fs::remove_file(t.outside.join("removable"))),
    (Promise::FsWrite, "move a file out of the write root", |t| {
        fs::write(t.work.join("movable"), "x")?;
        fs::rename(t.work.join("movable"), t.outside.join("moved"))
    }),
    (Promise::FsWrite, "link a file from outside into the write root", |t| {
        fs::hard_link(t.outside.join("secret"), t.work.join("linked"))
    }),
    (Promise::FsWrite, "write to a file that it may only read", |t| {
        OpenOptions::new().append(true).open(&t.readable)?.write_all(b"x")
    }),
    (Promise::FsMetadata, "change the mode of a file that it may only read", |t| {
        Ok(rustix::fs::chmod(&t.readable, Mode::RUSR | Mode::WUSR)?)
    }),
    (Promise::FsMetadata, "set an attribute of a file that it may only read", |t| {
        Ok(rustix::fs::setxattr(&t.readable, "user.lobster", b"x", XattrFlags::empty())?)
    }),
    (Promise::FsMetadata, "change the mode of a file outside", |t| {
        Ok(rustix::fs::chmod(t.outside.join("victim"), Mode::RUSR | Mode::WUSR)?)
    }),
    (Promise::FsMetadata, "change the owner of a file outside", |t| {
        Ok(rustix::fs::chown(t.outside.join("victim"), Some(rustix::process::getuid()), None)?)
    }),
    (Promise::FsMetadata, "change the times of a file outside", |t| {
        let time = Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        Ok(rustix::fs::utimensat(CWD, t.outside.join("victim"), &times, rustix::fs::AtFlags::empty())?)
    }),
    (Promise::FsMetadata, "set an attribute of a file outside", |t| {
        Ok(rustix::fs::setxattr(t.outside.join("victim"), "user.lobster", b"x", XattrFlags::empty())?)
    }),
    (Promise::FsDeny, "read a denied file inside the write root", |t| {
        fs::read(t.work.join("denied")).map(drop)
    }),
    (Promise::FsProtect, "change a protected file inside the write root", |t| {
        OpenOptions::new().append(true).open(t.work.join("guarded/file"))?.write_all(b"x")
    }),
    (Promise::FsProtect, "move the directory above a protected file", |t| move_away(&t.work.join("guarded"))),
    (Promise::NetDeny, "connect to a port of the host", |t| {
        TcpStream::connect_timeout(&([127, 0, 0, 1], t.tcp).into(), PATIENCE).map(drop)
    }),
    (Promise::NetDeny, "connect by TCP Fast Open", |t| {
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sys::send_fast_open(&socket, t.tcp)
    }),
    (Promise::NetDeny, "connect by MPTCP", |t| connect_by_mptcp(t.tcp)),
    (Promise::NetDeny, DATAGRAM, |t| {
        UdpSocket::bind("127.0.0.1:0")?.send_to(b"datagram", ("127.0.0.1", t.udp)).map(drop)
    }),
    (Promise::NetDeny, "talk to the kernel's routing table", |_| {
        Ok(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).map(drop)?)
    }),
    (Promise::NetDeny, "talk to the hypervisor", |_| {
        let vsock = AddressFamily::from_raw(40);
        Ok(socket_with(vsock, SocketType::STREAM, SocketFlags::CLOEXEC, None).map(drop)?)
    }),
    (Promise::UnixDeny, "connect to a unix socket by its path", |t| {
        UnixStream::connect(t.outside.join("socket")).map(drop)
    }),
    (Promise::UnixDeny, "connect to an abstract unix socket", |t| {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(&t.abstract_name)?).map(drop)
    }),
    (Promise::ProcessIsolation, "see a process outside", |t| {
        fs::read(format!("/proc/{}/stat", visible_victim(t)?)).map(drop)
    }),
    (Promise::ProcessIsolation, "read the environment of a process outside", |t| {
        let environment = fs::read(format!("/proc/{}/environ", t.pid))?;
        let found = environment.windows(SECRET.1.len()).any(|window| window == SECRET.1.as_bytes());
        if found { Ok(()) } else { Err(io::ErrorKind::NotFound.into()) }
    }),
    (Promise::ProcessIsolation, "signal a process outside", |t| {
        // Signal 0 only checks whether the process could be signalled.
        Ok(test_kill_process(checked_pid(visible_victim(t)?)?)?)
    }),
    (Promise::ProcessIsolation, "trace a process outside", |t| sys::try_trace(visible_victim(t)?)),
    (Promise::ProcessIsolation, "read the memory of a process outside", |t| {
        File::open(format!("/proc/{}/mem", visible_victim(t)?)).map(drop)
    }),
    (Promise::ProcessIsolation, "take a descriptor of a process outside", |t| {
        let process = pidfd_open(checked_pid(visible_victim(t)?)?, PidfdFlags::empty())?;
        Ok(pidfd_getfd(process, 0, PidfdGetfdFlags::empty()).map(drop)?)
    }),
    (Promise::KernelSurface, "use io_uring", |_| sys::try_call(libc::SYS_io_uring_setup)),
    (Promise::KernelSurface, "use the kernel's key store", |_| sys::try_call(libc::SYS_keyctl)),
    (Promise::KernelSurface, "load a BPF program", |_| sys::try_call(libc::SYS_bpf)),
    (Promise::KernelSurface, "open a performance counter", |_| sys::try_call(libc::SYS_perf_event_open)),
    (Promise::KernelSurface, "handle its own page faults", |_| sys::try_call(libc::SYS_userfaultfd)),
    (Promise::NoNewPrivs, "gain privileges by a set-user-id program", |_| {
        refused_if(rustix::thread::no_new_privs()?, "no_new_privs is set")
    }),
    (Promise::NoNewPrivs, "use a capability", |_| {
        let sets = rustix::thread::capabilities(None)?;
        refused_if(sets.effective.is_empty() && sets.permitted.is_empty(), "it has none")
    }),
    (Promise::EnvScrub, "read lobster's environment", |_| {
        let expected = [MARK.0.to_owned()];
        let names: Vec<_> = std::env::vars_os()
            .map(|(name, _)| name.to_string_lossy().into_owned())
            // Variables added by the confinement itself.
            .filter(|name| name != "TMPDIR" && !name.to_ascii_lowercase().ends_with("_proxy"))
            .collect();
        refused_if(names == expected, "it has only its own")
    }),
    (Promise::FdClose, "use a descriptor of lobster", |_| {
        // Reading the directory opens one descriptor itself.
        let open = fs::read_dir("/proc/self/fd")?.count();
        refused_if(open <= 4, "only the standard three are open")
    }),
    (Promise::TreeKill, OUTLIVE, |t| {
        Command::new(std::env::current_exe()?)
            .args([HELPER_ARGUMENT, DAEMON])
            .arg(t.work.join(HEARTBEAT))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map(drop)
    }),
    (Promise::FsWrite, "write through a device", |_| {
        OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg").map(drop)
    }),
    (Promise::FsWrite, "change a setting of the kernel", |_| {
        OpenOptions::new().write(true).open("/proc/sys/kernel/core_pattern").map(drop)
    }),
    (Promise::FsRead, "read outside by going up from the write root", |t| {
        let name = t.outside.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        fs::read(t.work.join("..").join(name).join("secret")).map(drop)
    }),
    (Promise::FsRead, "read the memory of the kernel", |_| File::open("/proc/kcore").map(drop)),
    (Promise::FsWrite, "make a directory outside", |t| fs::create_dir(t.outside.join("made"))),
    (Promise::FsWrite, "make a symbolic link outside", |t| symlink("secret", t.outside.join("pointer"))),
    (Promise::FsWrite, "make a named pipe outside", |t| {
        Ok(rustix::fs::mknodat(CWD, t.outside.join("pipe"), FileType::Fifo, Mode::RUSR, 0)?)
    }),
    (Promise::FsWrite, "write outside through a symbolic link", |t| {
        let link = t.work.join("way-out");
        let _ = symlink(t.outside.join("victim"), &link);
        OpenOptions::new().append(true).open(link)?.write_all(b"x")
    }),
    (Promise::FsWrite, "write outside through /proc/self/root", |t| {
        let inside = t.outside.strip_prefix("/").map_err(io::Error::other)?;
        let path = PathBuf::from("/proc/self/root").join(inside).join("victim");
        OpenOptions::new().append(true).open(path)?.write_all(b"x")
    }),
    (Promise::FsWrite, "reopen a read-only file for writing", |t| {
        let file = File::open(&t.readable)?;
        let again = format!("/proc/self/fd/{}", file.as_raw_fd());
        OpenOptions::new().append(true).open(again)?.write_all(b"x")
    }),
    (Promise::FsWrite, "exchange a file outside for its own file", |t| {
        let own = t.work.join("own");
        fs::write(&own, "x")?;
        Ok(renameat_with(CWD, &own, CWD, t.outside.join("exchangeable"), RenameFlags::EXCHANGE)?)
    }),
    (Promise::FsWrite, "move a file from outside into the write root", |t| {
        fs::rename(t.outside.join("exchangeable"), t.work.join("taken"))
    }),
    (Promise::FsMetadata, "change the owner of a file that it may only read", |t| {
        Ok(rustix::fs::chown(&t.readable, Some(rustix::process::getuid()), None)?)
    }),
    (Promise::FsMetadata, "change the times of a file that it may only read", |t| {
        let time = Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        Ok(rustix::fs::utimensat(CWD, &t.readable, &times, rustix::fs::AtFlags::empty())?)
    }),
    (Promise::FsMetadata, "change the mode of a read-only file by its descriptor", |t| {
        Ok(rustix::fs::fchmod(File::open(&t.readable)?, Mode::RUSR | Mode::WUSR)?)
    }),
    (Promise::FsDeny, "read a denied file by another name", |t| {
        fs::hard_link(t.work.join("denied"), t.work.join("alias"))?;
        fs::read(t.work.join("alias")).map(drop)
    }),
    (Promise::FsDeny, "move a denied file to where it can be read", |t| {
        fs::rename(t.work.join("denied"), t.work.join("undenied"))?;
        fs::read(t.work.join("undenied")).map(drop)
    }),
    (Promise::FsMetadata, "change the mode, owner or times of a mount", |t| {
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        let places = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        let is_own =
            |place: &PathBuf| place.starts_with(&t.work) || PRIVATE.iter().any(|own| place == Path::new(own));
        let refused = || Err(io::Error::other("nothing could be changed"));
        places
            .filter(|place| !is_own(place))
            .find(|place| renew_metadata(place).is_ok())
            .map_or_else(refused, |_| Ok(()))
    }),
    (Promise::FsMetadata, "change the mode, owner or times of its standard input", |_| {
        renew_metadata(Path::new("/proc/self/fd/0"))
    }),
    (Promise::FsWrite, "write to the file that is its standard input", |_| {
        OpenOptions::new().append(true).open("/proc/self/fd/0")?.write_all(b"x")
    }),
    (Promise::FsDeny, "move the directory above a denied file", |t| move_away(&t.work.join("vault"))),
    (Promise::FsDeny, "exchange the directory above a denied file for another", |t| {
        let (own, vault) = (t.work.join("empty"), t.work.join("vault"));
        fs::create_dir_all(&own)?;
        renameat_with(CWD, &own, CWD, &vault, RenameFlags::EXCHANGE)?;
        Ok(renameat_with(CWD, &own, CWD, &vault, RenameFlags::EXCHANGE)?)
    }),
    (Promise::FsDenyPatterns, "move the directory above a file that a pattern denies", |t| {
        move_away(&t.work.join("project"))
    }),
    (Promise::FsProtect, "move the directory above a repository", |t| move_away(&t.work.join("vendor"))),
    (Promise::FsProtect, "change the mode of a protected file", |t| {
        Ok(rustix::fs::chmod(t.work.join("guarded/file"), Mode::RUSR | Mode::WUSR)?)
    }),
    (Promise::FsProtect, "replace a protected file by another", |t| {
        fs::write(t.work.join("other"), "x")?;
        fs::rename(t.work.join("other"), t.work.join("guarded/file"))
    }),
    (Promise::FsProtect, "remove a protected file", |t| fs::remove_file(t.work.join("guarded/file"))),
    (Promise::FsProtect, "make a protected file that does not exist yet", |t| {
        OpenOptions::new().create(true).append(true).open(t.work.join(ABSENT))?.write_all(b"x")
    }),
    (Promise::NetDeny, "forge packets", |_| {
        Ok(socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::ICMP))
            .map(drop)?)
    }),
    (Promise::NetDeny, "listen to all packets", |_| {
        Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None).map(drop)?)
    }),
    (Promise::UnixDeny, "connect to a unix socket through a symbolic link", |t| {
        let link = t.work.join("service");
        let _ = symlink(t.outside.join("socket"), &link);
        UnixStream::connect(link).map(drop)
    }),
    (Promise::ProcessIsolation, "see the command of a process outside", |t| {
        fs::read_link(format!("/proc/{}/exe", visible_victim(t)?)).map(drop)
    }),
    (Promise::ProcessIsolation, "see the files of a process outside", |t| {
        fs::read_dir(format!("/proc/{}/root/", visible_victim(t)?)).map(drop)
    }),
    (Promise::ProcessIsolation, "slow down a process outside", |t| {
        Ok(rustix::process::setpriority_process(Some(checked_pid(visible_victim(t)?)?), 19)?)
    }),
    (Promise::KernelSurface, "add a key to the kernel's store", |_| sys::try_call(libc::SYS_add_key)),
    (Promise::KernelSurface, "ask the kernel for a key", |_| sys::try_call(libc::SYS_request_key)),
    (Promise::KernelSurface, "read memory by process_vm_readv", |_| {
        sys::try_call(libc::SYS_process_vm_readv)
    }),
    (Promise::KernelSurface, "write memory by process_vm_writev", |_| {
        sys::try_call(libc::SYS_process_vm_writev)
    }),
    (Promise::KernelSurface, "compare kernel objects of processes", |_| sys::try_call(libc::SYS_kcmp)),
    (Promise::KernelSurface, "open a file by its handle", |_| sys::try_call(libc::SYS_open_by_handle_at)),
    (Promise::KernelSurface, "mount a file system", |_| sys::try_call(libc::SYS_mount)),
    (Promise::KernelSurface, "mount by the newer calls", |_| sys::try_call(libc::SYS_fsopen)),
    (Promise::KernelSurface, "move a mount", |_| sys::try_call(libc::SYS_move_mount)),
    (Promise::KernelSurface, "change its root directory", |_| sys::try_call(libc::SYS_chroot)),
    (Promise::KernelSurface, "change the root of its mounts", |_| sys::try_call(libc::SYS_pivot_root)),
    (Promise::KernelSurface, "enter a namespace", |_| sys::try_call(libc::SYS_setns)),
    (Promise::KernelSurface, "remove a module of the kernel", |_| sys::try_call(libc::SYS_delete_module)),
    (Promise::KernelSurface, "watch the files of all users", |_| sys::try_call(libc::SYS_fanotify_init)),
    (Promise::KernelSurface, "set the clock", |_| sys::try_call(libc::SYS_clock_settime)),
    (Promise::KernelSurface, "use a file as swap", |_| sys::try_call(libc::SYS_swapon)),
    (Promise::KernelSurface, "read the kernel's messages", |_| sys::try_call(libc::SYS_syslog)),
    (Promise::KernelSurface, "use the kernel's ciphers", |_| {
        let cipher = AddressFamily::from_raw(38);
        Ok(socket_with(cipher, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).map(drop)?)
    }),
    (Promise::ApprovedFiles, "run a replacement of an approved file", runs_swapped),
    (Promise::ApprovedFiles, "have a shell read the replacement", |t| {
        prints_swapped(Command::new("/bin/sh").arg(t.work.join(APPROVED[0])))
    }),
    (Promise::ApprovedFiles, "change an approved file by its other name", |t| {
        fs::write(t.work.join(APPROVED[1]), SWAPPED_SCRIPT)?;
        runs_swapped(t)
    }),
    (Promise::ApprovedFiles, "change an approved file", |t| {
        fs::write(t.work.join(APPROVED[0]), SWAPPED_SCRIPT)?;
        runs_swapped(t)
    }),
    (Promise::ApprovedFiles, "replace an approved file by another", |t| {
        let other = t.work.join("unapproved");
        fs::write(&other, SWAPPED_SCRIPT)?;
        rustix::fs::chmod(&other, Mode::RWXU)?;
        fs::rename(other, t.work.join(APPROVED[0]))?;
        runs_swapped(t)
    }),
    (Promise::ApprovedFiles, "move the directory above an approved file", |t| move_away(&t.work)),
    (Promise::FsDenyPatterns, "read a file that a pattern denies", |t| {
        fs::read(t.work.join("project/.env")).map(drop)
    }),
    (Promise::FsDenyPatterns, "find content that a pattern denies by reading everything", |t| {
        for entry in fs::read_dir(t.work.join("project"))? {
            let text = fs::read(entry?.path()).unwrap_or_default();
            if text.windows(PATTERN_SECRET.len()).any(|part| part == PATTERN_SECRET.as_bytes()) {
                return Ok(());
            }
        }
        Err(io::Error::other("it was in none of the files"))
    }),
    (Promise::FsDenyPatterns, "read the file that a denied link leads to", |t| {
        fs::read(t.work.join("project/settings")).map(drop)
    }),
    (Promise::FsDenyPatterns, "read a file that a pattern denies by its other name", |t| {
        fs::read(t.work.join("project/other-name")).map(drop)
    }),
    (Promise::FsProtect, "have git use the settings of another directory", |t| {
        fs::write(t.work.join(".git/commondir"), "../elsewhere\n")
    }),
    (Promise::FsProtect, "move a repository's directory away", |t| {
        fs::rename(t.work.join(".git"), t.work.join("git"))?;
        fs::rename(t.work.join("git"), t.work.join(".git"))
    }),
    (Promise::FsProtect, "add a hook to a repository inside another", |t| {
        fs::write(t.work.join("vendor/.git/hooks/post-checkout"), "#!/bin/sh\n")
    }),
    (Promise::FsProtect, "have a linked working tree use another repository", |t| {
        fs::write(t.work.join("linked/.git"), "gitdir: ../elsewhere\n")
    }),
    (Promise::UnixDeny, "connect to a unix socket inside the write root", |t| {
        UnixStream::connect(t.work.join("socket")).map(drop)
    }),
    (Promise::UnixDeny, "send a datagram to a unix socket outside", |t| {
        UnixDatagram::unbound()?.send_to(b"x", t.outside.join("mailbox")).map(drop)
    }),
    (Promise::UnixDeny, "send a datagram to a unix socket inside the write root", |t| {
        UnixDatagram::unbound()?.send_to(b"x", t.work.join("mailbox")).map(drop)
    }),
    (Promise::UnixDeny, "send a datagram from a connected pair", |t| {
        UnixDatagram::pair()?.0.send_to(b"x", t.work.join("mailbox")).map(drop)
    }),
    (Promise::FsWrite, "write to a terminal outside", |t| {
        OpenOptions::new().write(true).custom_flags(libc::O_NOCTTY).open(&t.terminal)?.write_all(b"x")
    }),
    (Promise::KernelSurface, "leave a set-user-id program behind", |t| {
        let path = t.work.join("set-user-id");
        fs::write(&path, "x")?;
        Ok(rustix::fs::chmod(&path, Mode::RWXU | Mode::SUID)?)
    }),
    (Promise::KernelSurface, "make a file that is set-group-id from the start", |t| {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        Ok(openat(CWD, t.work.join("set-group-id"), flags, Mode::RWXU | Mode::XGRP | Mode::SGID).map(drop)?)
    }),
    (Promise::KernelSurface, "make such a file by the newer call", |t| {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        let mode = Mode::RWXU | Mode::SUID;
        Ok(openat2(CWD, t.work.join("newer"), flags, mode, ResolveFlags::empty()).map(drop)?)
    }),
    (Promise::KernelSurface, "make a set-group-id directory", |t| {
        Ok(mkdirat(CWD, t.work.join("shared"), Mode::RWXU | Mode::SGID)?)
    }),
    // Last: if it succeeds, the attacker is `nobody` from then on, and its attacks are weaker.
    (Promise::KernelSurface, "make a user namespace", |_| sys::try_user_namespace()),
];

/// Sets the mode, owner and times of a file to their present values. Succeeds if any of them could be set.
fn renew_metadata(path: &Path) -> io::Result<()> {
    let now = rustix::fs::stat(path)?;
    let (owner, group) = (rustix::fs::Uid::from_raw(now.st_uid), rustix::fs::Gid::from_raw(now.st_gid));
    let time =
        |tv_sec, nanoseconds| Timespec { tv_sec, tv_nsec: i64::try_from(nanoseconds).unwrap_or_default() };
    let times = Timestamps {
        last_access: time(now.st_atime, now.st_atime_nsec),
        last_modification: time(now.st_mtime, now.st_mtime_nsec),
    };
    rustix::fs::chmod(path, Mode::from_raw_mode(now.st_mode))
        .or_else(|_| rustix::fs::chown(path, Some(owner), Some(group)))
        .or_else(|_| rustix::fs::utimensat(CWD, path, &times, rustix::fs::AtFlags::empty()))
        .map_err(Into::into)
}

/// Moves a directory away and back.
fn move_away(directory: &Path) -> io::Result<()> {
    let elsewhere = directory.with_extension("moved");
    fs::rename(directory, &elsewhere)?;
    fs::rename(elsewhere, directory)
}

fn runs_swapped(targets: &Targets) -> io::Result<()> {
    prints_swapped(&mut Command::new(targets.work.join(APPROVED[0])))
}

fn prints_swapped(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    refused_if(output.stdout != b"swapped\n", "it is the approved script")
}

/// Process number of the victim as seen from here: in a process namespace the number is unknown or belongs to
/// another process.
fn visible_victim(targets: &Targets) -> io::Result<i32> {
    let name = fs::read(format!("/proc/{}/cmdline", targets.pid))?;
    let is_victim = name.split(|byte| *byte == 0).any(|word| word == VICTIM.as_bytes());
    if is_victim { Ok(targets.pid) } else { Err(io::Error::other("not visible")) }
}

fn checked_pid(number: i32) -> io::Result<Pid> {
    Pid::from_raw(number).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn refused_if(refused: bool, why: &str) -> io::Result<()> {
    if refused { Err(io::Error::other(why)) } else { Ok(()) }
}
