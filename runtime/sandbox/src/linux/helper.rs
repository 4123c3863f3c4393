//! The helper process, which forks supervisors.
//!
//! It stays tiny and single-threaded. So forking it is cheap even if lobster is large, and it can make
//! namespaces.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::SocketType;
use rustix::process::{Pid, WaitOptions, getpid, set_child_subreaper, setsid, wait, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::jail::{JailIdentity, Obstacle};
use super::namespace_limits::MAKE_PROCESS;
use super::supervisor::run_jobs;
use super::wire::{News, Stage};
use super::{attack, datagrams, guard, stopped, sys, tree};

/// The namespaces of every jail.
const NAMESPACES: libc::c_int =
    libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

/// The helper's `main`.
pub(crate) fn helper_main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(2).collect();
    if let Some(code) = attack::main(&args) {
        return code;
    }
    match claim_socket().and_then(serve_requests) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lobster: the sandbox helper is started by lobster itself, not by hand ({error})");
            ExitCode::from(2)
        }
    }
}

/// Forks the helper off this process, which has one thread; that is much cheaper than starting a program.
/// Returns the helper's socket.
pub(super) fn fork_off() -> io::Result<(OwnedFd, Pid)> {
    // The directory itself has two links, and each thread adds one.
    if std::fs::metadata("/proc/self/task")?.nlink() != 3 {
        return Err(io::Error::other("this process has several threads"));
    }
    let (ours, theirs) = super::socket_pair()?;
    match sys::fork()? {
        sys::Fork::Parent(pid) => Ok((ours, pid)),
        sys::Fork::Child => {
            let code = match close_all_but(&theirs).and_then(serve_requests) {
                Ok(()) => 0,
                Err(_) => 2,
            };
            sys::exit_now(code)
        }
    }
}

/// Closes all inherited descriptors except the socket.
fn close_all_but(socket: &OwnedFd) -> io::Result<OwnedFd> {
    rustix::stdio::dup2_stdin(socket)?;
    let null = std::fs::File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    // Dropped here, because later its number is closed or belongs to the socket.
    drop(null);
    claim_socket()
}

/// Moves the socket away from standard input, which steps overwrite.
fn claim_socket() -> io::Result<OwnedFd> {
    let stdin = rustix::stdio::stdin();
    if rustix::net::sockopt::socket_type(stdin)? != SocketType::SEQPACKET {
        return Err(io::Error::other("its standard input is not the expected socket"));
    }
    sys::close_from(3);
    let socket = rustix::io::fcntl_dupfd_cloexec(stdin, 3)?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(socket)
}

fn serve_requests(socket: OwnedFd) -> io::Result<()> {
    // In a separate session: Ctrl-C at the terminal reaches only lobster, which decides. Signals are blocked,
    // so that only the closed socket ends the helper.
    let _ = setsid();
    sys::block_signals();
    sys::default_signals();
    let mut socket = Some(socket);
    let held = guard::continue_below(&mut socket)?;
    let socket = socket.ok_or(io::ErrorKind::NotConnected)?;
    let _ = setsid();
    let _ = rustix::thread::set_name(stopped::NAME);
    set_child_subreaper(Some(getpid()))?;
    let ended = sys::child_signals()?;
    let mut supervisors = HashSet::new();
    let identity = JailIdentity::current();
    loop {
        let mut fds = [PollFd::new(&socket, PollFlags::IN), PollFd::new(&ended, PollFlags::IN)];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let (asked, child) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
        if child {
            tree::drain_signals(&ended);
            collect_supervisors(&mut supervisors);
        }
        if asked {
            let Some((message, fds)) = datagrams::receive(socket.as_fd())? else {
                // Supervisors end with lobster; their resource use is charged to it.
                while !supervisors.is_empty() && collect_one(&mut supervisors) {}
                return Ok(());
            };
            let mut fds = fds.into_iter();
            let Some(control) = fds.next() else { continue };
            let network: Vec<OwnedFd> = fds.collect();
            let namespaces = match message.as_slice() {
                datagrams::JAIL => NAMESPACES | libc::CLONE_NEWNET,
                datagrams::JAIL_ON_HOST_NETWORK => NAMESPACES,
                datagrams::NETWORK => libc::CLONE_NEWUSER | libc::CLONE_NEWNET,
                // Made by a process that has entered the network.
                datagrams::JAIL_IN_NETWORK => 0,
                _ => 0,
            };
            let fork = if namespaces == 0 { sys::fork() } else { sys::fork_into(namespaces) };
            match fork {
                Ok(sys::Fork::Parent(pid)) => _ = supervisors.insert(pid),
                Ok(sys::Fork::Child) => {
                    drop((socket, ended));
                    match message.as_slice() {
                        datagrams::NETWORK => give_network(&control, identity),
                        datagrams::JAIL_IN_NETWORK => supervise_in(&network, &control, &held, identity),
                        _ => run_jobs(&control, &held, (namespaces != 0).then_some(identity)),
                    }
                }
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or_default();
                    let stage = if namespaces == 0 { Stage::Setup } else { Stage::Namespaces };
                    let news = News::Failed { stage, errno, detail: MAKE_PROCESS.into() };
                    let _ = datagrams::send(control.as_fd(), &news.encode(), &[]);
                }
            }
        }
    }
}

/// Sends the namespaces of this process, which exist as long as a process holds them.
fn give_network(control: &OwnedFd, identity: JailIdentity) -> ! {
    match identity.set_up_network() {
        Ok([user, net]) => {
            let _ = datagrams::send(control.as_fd(), &News::Network.encode(), &[user.as_fd(), net.as_fd()]);
        }
        Err(obstacle) => report_failure(control, obstacle),
    }
    sys::exit_now(0)
}

/// Makes a jail in a network. Its owner, the user namespace, has to be entered first; the process that did
/// that cannot be the jail's own.
fn supervise_in(network: &[OwnedFd], control: &OwnedFd, guard: &OwnedFd, identity: JailIdentity) -> ! {
    let enter = || -> io::Result<sys::Fork> {
        let [user, net] = network else { return Err(io::ErrorKind::InvalidInput.into()) };
        move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
        move_into_link_name_space(net.as_fd(), Some(LinkNameSpaceType::Network))?;
        sys::fork_into(NAMESPACES)
    };
    match enter() {
        Ok(sys::Fork::Child) => run_jobs(control, guard, Some(identity)),
        Ok(sys::Fork::Parent(pid)) => {
            // Reports its end as if it were the helper's own child.
            let status = loop {
                match waitpid(Some(pid), WaitOptions::empty()) {
                    Err(Errno::INTR) => {}
                    other => break other,
                }
            };
            let ended_well = matches!(status, Ok(Some((_, status))) if status.exit_status() == Some(0));
            sys::exit_now(i32::from(!ended_well))
        }
        Err(error) => {
            let detail = MAKE_PROCESS.to_owned();
            report_failure(control, Obstacle { stage: Stage::Namespaces, error, detail });
            sys::exit_now(0)
        }
    }
}

fn report_failure(control: &OwnedFd, Obstacle { stage, error, detail }: Obstacle) {
    let news = News::Failed { stage, errno: error.raw_os_error().unwrap_or_default(), detail };
    let _ = datagrams::send(control.as_fd(), &news.encode(), &[]);
}

/// Waits for a child to end; false without a child.
fn collect_one(supervisors: &mut HashSet<Pid>) -> bool {
    match wait(WaitOptions::empty()) {
        Ok(Some((pid, _))) => {
            supervisors.remove(&pid);
            true
        }
        Ok(None) | Err(Errno::INTR) => true,
        Err(_) => false,
    }
}

/// Collects ended supervisors. If one was killed, no supervisor watches the processes of its step any more,
/// so they are killed here.
fn collect_supervisors(supervisors: &mut HashSet<Pid>) {
    let mut orphaned = false;
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        if supervisors.remove(&pid) {
            orphaned |= status.exit_status() != Some(0);
        } else {
            orphaned = true;
        }
    }
    if orphaned {
        for pid in tree::direct_children().into_iter().filter(|pid| !supervisors.contains(pid)) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
