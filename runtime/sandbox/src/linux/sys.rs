//! System calls without a safe wrapper. All `unsafe` code of the sandbox is here.
//!
//! Callers are single-threaded processes (the helper and its forks), so a forked child may run ordinary code.
#![expect(unsafe_code, reason = "fork, execve, wait4, signal dispositions and signalfd have no safe wrapper")]

use std::ffi::{CStr, CString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::Duration;

use rustix::process::Pid;

use super::super::ExitStatus;
use super::tree::Usage;

/// The two sides of a fork.
pub(super) enum Fork {
    Parent(Pid),
    Child,
}

/// Forks this single-threaded process.
pub(super) fn fork() -> io::Result<Fork> {
    // SAFETY: the process has one thread, so no lock can be held by a thread
    // that the child does not have.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(Pid::from_raw(pid).map_or(Fork::Child, Fork::Parent)),
    }
}

/// Forks into new namespaces: `flags` as for `clone`. The child is the first
/// process of its process namespace.
pub(super) fn fork_into(flags: libc::c_int) -> io::Result<Fork> {
    let flags = libc::c_long::from(flags | libc::SIGCHLD);
    // SAFETY: as for `fork`; no stack is given, so the child gets a copy of
    // this one, and no thread or descriptor pointers are asked for.
    match unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) } {
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(i32::try_from(pid).ok().and_then(Pid::from_raw).map_or(Fork::Child, Fork::Parent)),
    }
}

/// Sends SIGKILL to every process of this namespace except its first, which calls this.
pub(super) fn kill_namespace() {
    // SAFETY: no memory is involved; the caller is process 1 of a namespace.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Brings the loopback interface of this network namespace up.
pub(super) fn loopback_up() -> io::Result<()> {
    let mut request = interface_request("lo");
    let flags = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).unwrap_or_default();
    change_interface(libc::SIOCSIFFLAGS as libc::Ioctl, &request)
}

/// Adds an address to the loopback interface.
pub(super) fn add_loopback_address(number: usize, address: std::net::Ipv4Addr) -> io::Result<()> {
    let mut request = interface_request(&format!("lo:{number}"));
    let mut data = [0; 14];
    for (to, from) in data.iter_mut().skip(2).zip(address.octets()) {
        *to = from.cast_signed();
    }
    let family = libc::sa_family_t::try_from(libc::AF_INET).unwrap_or_default();
    request.ifr_ifru.ifru_addr = libc::sockaddr { sa_family: family, sa_data: data };
    change_interface(libc::SIOCSIFADDR as libc::Ioctl, &request)
}

fn interface_request(name: &str) -> libc::ifreq {
    // SAFETY: all-zero bytes are a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request
}

fn change_interface(call: libc::Ioctl, request: &libc::ifreq) -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: the request is complete for this call and outlives it.
    match unsafe { libc::ioctl(socket.as_raw_fd(), call, request) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Adds attributes to a mount, and to all mounts below it if `recursive` (Linux 5.12).
pub(super) fn set_mount_attributes(mount: &OwnedFd, attributes: u32, recursive: bool) -> io::Result<()> {
    // The kernel's `mount_attr`: set, clear, propagation, user namespace.
    let change = [u64::from(attributes), 0, 0, 0];
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the descriptor is open, the path is an empty string, and the length is that of the structure.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            change.as_ptr(),
            size_of_val(&change),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Drops all capabilities for good, even for programs that it executes later.
pub(super) fn drop_capabilities() -> io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
    let current = capabilities(None)?;
    if current.permitted.contains(CapabilitySet::SETPCAP) {
        // Otherwise root would get them back with its next program.
        for capability in 0..64 {
            // SAFETY: no memory is involved.
            if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } == -1 {
                break;
            }
        }
    }
    rustix::thread::clear_ambient_capability_set()?;
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

/// Version of Landlock in this kernel.
pub(super) fn landlock_version() -> Option<u32> {
    // SAFETY: no ruleset is given, so no memory is involved.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<u8>(), 0, 1) };
    u32::try_from(version).ok()
}

/// Attacks of `doctor` that have no safe wrapper. None changes anything.
pub(super) fn try_call(number: libc::c_long) -> io::Result<()> {
    // SAFETY: every argument is an invalid one, so the call can only be
    // refused as such; no memory is involved.
    match unsafe { libc::syscall(number, -1, 0, 0, 0, 0, 0) } {
        -1 => match io::Error::last_os_error() {
            error if matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOSYS)) => {
                Err(error)
            }
            // The kernel got as far as checking the arguments.
            _ => Ok(()),
        },
        // Calls with any other result have nothing to return for such arguments.
        0 => Ok(()),
        descriptor => {
            // SAFETY: the call has just made this descriptor, and it has no other owner.
            drop(i32::try_from(descriptor).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
            Ok(())
        }
    }
}

/// Attaches to a process without stopping it, and detaches again.
pub(super) fn try_trace(pid: i32) -> io::Result<()> {
    // SAFETY: no memory of this process is involved.
    unsafe {
        if libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) == -1 {
            return Err(io::Error::last_os_error());
        }
        libc::ptrace(libc::PTRACE_DETACH, pid, 0, 0);
    }
    Ok(())
}

/// Makes a user namespace, for this thread only.
pub(super) fn try_user_namespace() -> io::Result<()> {
    // SAFETY: no memory or descriptors are shared differently afterwards.
    match unsafe { libc::unshare(libc::CLONE_NEWUSER) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// `truncate` by path, which needs no open file.
pub(super) fn truncate(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a NUL-terminated string that outlives the call.
    match unsafe { libc::truncate(path.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Opens a connection to the loopback interface by sending its first data.
pub(super) fn send_fast_open(socket: &OwnedFd, port: u16) -> io::Result<()> {
    let address = libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(std::net::Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    };
    // SAFETY: data and address are valid for the lengths given.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            b"x".as_ptr().cast(),
            1,
            libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL,
            (&raw const address).cast(),
            size_of_val(&address) as libc::socklen_t,
        )
    };
    if sent == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The stack of a process made by [`spawn`]. It runs a few calls and `execve`.
const SPAWN_STACK: usize = 256 * 1024;

/// Starts a process that runs `become_program` in this process's memory while this one waits until it has
/// called `execve` or exited. `posix_spawn` does the same; it is much cheaper than a fork.
pub(super) fn spawn(mut become_program: impl FnMut()) -> io::Result<Pid> {
    extern "C" fn enter<F: FnMut()>(argument: *mut libc::c_void) -> libc::c_int {
        // SAFETY: `argument` is the `become_program` of the suspended caller.
        let become_program = unsafe { &mut *argument.cast::<F>() };
        become_program();
        exit_now(127)
    }
    fn entry_point<F: FnMut()>(_: &F) -> extern "C" fn(*mut libc::c_void) -> libc::c_int {
        enter::<F>
    }
    let entry = entry_point(&become_program);
    // Unwritten parts are never read, so they need not be cleared.
    let mut stack = Vec::<u128>::with_capacity(SPAWN_STACK / size_of::<u128>());
    // SAFETY: the child has a separate stack, aligned and alive as long as this frame, which `CLONE_VFORK`
    // suspends until the child has left this memory. Both have one thread, so nothing runs in parallel to the
    // child here. It leaves by `execve` or `_exit`, never by returning or unwinding.
    let pid = unsafe {
        libc::clone(
            entry,
            stack.spare_capacity_mut().as_mut_ptr_range().end.cast(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut become_program).cast(),
        )
    };
    Pid::from_raw(pid).filter(|_| pid > 0).ok_or_else(io::Error::last_os_error)
}

/// Missing in the C library's flags, whose type is too small.
const CLONE_INTO_CGROUP: u64 = 1 << 33;

/// Like [`spawn`], but the process is in the control group (version 2, Linux 5.7) of this directory from its
/// first instruction on, and has separate memory.
pub(super) fn spawn_into(group: &OwnedFd, become_program: impl FnOnce()) -> io::Result<Pid> {
    // SAFETY: all-zero bytes are valid arguments, which request nothing.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = CLONE_INTO_CGROUP | u64::from(libc::CLONE_VFORK.unsigned_abs());
    arguments.exit_signal = u64::from(libc::SIGCHLD.unsigned_abs());
    arguments.cgroup = u64::from(group.as_raw_fd().unsigned_abs());
    // SAFETY: as for `fork_into`; the length is that of the arguments.
    match unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of_val(&arguments)) } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            become_program();
            exit_now(127)
        }
        pid => i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::Other.into()),
    }
}

/// Ends the process without running destructors or exit handlers, which
/// belong to the process it was forked from.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` has no preconditions.
    unsafe { libc::_exit(code) }
}

/// Strings for `execve`: pointers with a final null, and the strings that they point to.
pub(super) struct Strings {
    pointers: Vec<*const libc::c_char>,
    strings: Vec<CString>,
}

impl Strings {
    pub(super) fn new(strings: Vec<CString>) -> Self {
        let pointers = strings.iter().map(|s| s.as_ptr()).chain([ptr::null()]).collect();
        Self { pointers, strings }
    }

    pub(super) fn as_slice(&self) -> &[CString] {
        &self.strings
    }
}

/// Replaces the process image; returns only on failure, with the reason.
pub(super) fn exec(program: &CStr, argv: &Strings, env: &Strings) -> io::Error {
    // SAFETY: both arrays end in a null pointer, and every other entry points
    // to a NUL-terminated string that `Strings` keeps as it is.
    unsafe { libc::execve(program.as_ptr(), argv.pointers.as_ptr(), env.pointers.as_ptr()) };
    io::Error::last_os_error()
}

fn change_mask(how: libc::c_int, fill: unsafe extern "C" fn(*mut libc::sigset_t) -> libc::c_int) {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `fill` initialises the set, and neither call can fail on a valid one.
    unsafe {
        fill(set.as_mut_ptr());
        libc::sigprocmask(how, set.as_ptr(), ptr::null_mut());
    }
}

/// Blocks every signal that can be blocked.
pub(super) fn block_signals() {
    change_mask(libc::SIG_SETMASK, libc::sigfillset);
}

/// Lets every signal through, as a program expects at its start.
pub(super) fn unblock_signals() {
    change_mask(libc::SIG_SETMASK, libc::sigemptyset);
}

/// Restores signals that the Rust runtime (SIGPIPE) or a parent such as `nohup` ignored, because ignored
/// signals stay ignored across `execve`.
pub(super) fn default_signals() {
    // The kernel's `sigaction`, four words: no handler, no flags, no mask. The C library's function would
    // refuse the two signals that it uses itself.
    let default = [0usize; 4];
    for signal in 1..=64 {
        // SAFETY: the default disposition runs no code of ours; the structure has the kernel's length;
        // signals that cannot be changed are refused.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null::<u8>(), 8) };
    }
}

/// A descriptor that is readable after a child has ended. Signals must be blocked.
pub(super) fn child_signals() -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is initialised by `sigemptyset`; the descriptor, if there is one, is new and ours.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGCHLD);
        match libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            -1 => Err(io::Error::last_os_error()),
            fd => Ok(OwnedFd::from_raw_fd(fd)),
        }
    }
}

/// Collects a child that has ended, with its status and the resources used by it and the children that it had
/// collected; `None` if there is none.
pub(super) fn collect_child() -> io::Result<Option<(Pid, ExitStatus, Usage)>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: both pointers are valid for the call, and all-zero bytes are a valid `rusage` if it is not
    // filled in.
    let (pid, usage) = unsafe {
        let pid = libc::wait4(-1, &raw mut status, libc::WNOHANG, usage.as_mut_ptr());
        (pid, usage.assume_init())
    };
    if pid == -1 {
        return Err(io::Error::last_os_error());
    }
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.unsigned_abs()) + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    let status = if libc::WIFSIGNALED(status) {
        ExitStatus::Signal(libc::WTERMSIG(status))
    } else {
        ExitStatus::Code(libc::WEXITSTATUS(status))
    };
    let usage = Usage {
        cpu: time(usage.ru_utime) + time(usage.ru_stime),
        max_rss: usage.ru_maxrss.unsigned_abs() * 1024,
    };
    Ok(Pid::from_raw(pid).map(|pid| (pid, status, usage)))
}

/// Closes every descriptor from `first` on.
pub(super) fn close_from(first: u32) {
    // SAFETY: the caller owns no descriptor in that range that it uses afterwards.
    if unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) } == 0 {
        return;
    }
    // Kernels before 5.9: one by one.
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| i64::from(*fd) >= i64::from(first))
        .collect();
    for fd in open {
        // SAFETY: as above; a number that is closed already is refused harmlessly.
        unsafe { libc::close(fd) };
    }
}
