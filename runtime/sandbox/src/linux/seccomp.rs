//! System call filters, which refuse calls that ordinary programs do not need, and restrict sockets.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter, sock_filter,
};

/// Socket families that may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sockets {
    /// Unix sockets only: the network is the host's, and is not granted.
    Unix,
    /// Also internet sockets: the network namespace is empty, or has only our proxy.
    Internet,
    /// Also TCP, but no other internet protocol: the network is shared, and Landlock can restrict only TCP
    /// ports.
    Shared,
    /// Also netlink: the network is the host's, and is granted.
    Host,
}

/// Calls that change the machine, inspect other processes, or are known chiefly for their vulnerabilities.
/// All of them fail with `EPERM`.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_lookup_dcookie,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
];

/// Flags of `clone` and `unshare` that make a namespace.
const NAMESPACES: [libc::c_int; 8] = [
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWUTS,
    0x80, // CLONE_NEWTIME; shares its bit with part of clone's exit signal, so only `unshare` checks it
];

/// All kinds of sockets except streams.
const OTHER_SOCKETS: [libc::c_int; 6] = [
    libc::SOCK_DGRAM,
    libc::SOCK_RAW,
    libc::SOCK_RDM,
    libc::SOCK_SEQPACKET,
    libc::SOCK_DCCP,
    10, // SOCK_PACKET, which the C library's list calls out of date
];

/// Calls that set a mode, with the index of that argument.
const MODES: &[(libc::c_long, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mkdir, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (SYS_FCHMODAT2, 2),
    (libc::SYS_mkdirat, 2),
    (libc::SYS_mknodat, 2),
];

/// Calls that may make a file, with the indices of the flags and the mode.
const OPENS: &[(libc::c_long, u8, u8)] = &[
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
    (libc::SYS_openat, 2, 3),
];

/// Flags with which these calls make a file. Half of `O_TMPFILE` is `O_DIRECTORY`, which alone makes nothing.
const CREATING: [libc::c_int; 2] = [libc::O_CREAT, libc::O_TMPFILE & !libc::O_DIRECTORY];

/// The C library lists it only for some architectures; the number is the same on all of ours.
const SYS_FCHMODAT2: libc::c_long = 452;

/// Exchanges blocks of two files on ext4, and gives neither another time of change.
const EXT4_IOC_MOVE_EXT: u64 = 0xc028_660f;

/// First system call that has not been reviewed for lobster; calls up to `removexattrat` (466, Linux 6.13)
/// have been. Later calls have the same numbers on all our architectures.
const FIRST_UNKNOWN: u32 = 467;

/// Filters that are ready to be loaded.
pub(super) struct Filters {
    refused: BpfProgram,
    absent: BpfProgram,
}

impl Filters {
    /// Compiles the filters for this machine's architecture. `unix` permits unix sockets.
    pub(super) fn new(sockets: Sockets, unix: bool) -> io::Result<Self> {
        let refused = refusing_filter(sockets).map_err(io::Error::other)?;
        Ok(Self { refused, absent: hiding_filter(unix) })
    }

    /// Loads the filters for good. `no_new_privs` must be set.
    pub(super) fn load_filters(&self) -> io::Result<()> {
        for program in [&self.absent, &self.refused] {
            apply_filter(program).map_err(|error| match error {
                seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
                error => io::Error::other(error),
            })?;
        }
        Ok(())
    }
}

fn refusing_filter(sockets: Sockets) -> Result<BpfProgram, seccompiler::BackendError> {
    use SeccompCmpArgLen::Dword;
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let condition = |argument, operator, value| SeccompCondition::new(argument, Dword, operator, value);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|number| (*number, Vec::new())).collect();

    let families: &[libc::c_int] = match sockets {
        Sockets::Unix => &[libc::AF_UNIX],
        Sockets::Internet | Sockets::Shared => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6],
        Sockets::Host => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
    };
    let others = families
        .iter()
        .map(|family| condition(0, Ne, u64::from(family.unsigned_abs())))
        .collect::<Result<_, _>>()?;
    let mut refused_sockets = vec![SeccompRule::new(others)?];
    if sockets == Sockets::Shared {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let family = || condition(0, Eq, u64::from(family.unsigned_abs()));
            for kind in OTHER_SOCKETS {
                let kind = condition(1, MaskedEq(0xf), u64::from(kind.unsigned_abs()))?;
                refused_sockets.push(SeccompRule::new(vec![family()?, kind])?);
            }
            let tcp = u64::from(libc::IPPROTO_TCP.unsigned_abs());
            let other = vec![family()?, condition(2, Ne, 0)?, condition(2, Ne, tcp)?];
            refused_sockets.push(SeccompRule::new(other)?);
        }
        // A connection made by its first data, which Landlock does not see.
        let fast = u64::from(libc::MSG_FASTOPEN.unsigned_abs());
        for (call, flags) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
            rules.insert(call, vec![SeccompRule::new(vec![condition(flags, MaskedEq(fast), fast)?])?]);
        }
    }
    rules.insert(libc::SYS_socket, refused_sockets);

    // A lease on a file of the workspace delays other processes that open it.
    let lease = condition(1, Eq, u64::from(libc::F_SETLEASE.unsigned_abs()))?;
    rules.insert(libc::SYS_fcntl, vec![SeccompRule::new(vec![lease])?]);

    // The first two push input into a terminal that a person will use later.
    #[allow(clippy::unnecessary_cast, reason = "musl has another type of requests")]
    let requests = [libc::TIOCSTI as u64, libc::TIOCLINUX as u64, EXT4_IOC_MOVE_EXT];
    let ioctls = requests
        .iter()
        .map(|request| SeccompRule::new(vec![condition(1, Eq, *request)?]))
        .collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_ioctl, ioctls);

    let flag = |flag: &libc::c_int| {
        let bit = u64::from(flag.unsigned_abs());
        SeccompRule::new(vec![condition(0, MaskedEq(bit), bit)?])
    };
    rules.insert(libc::SYS_unshare, NAMESPACES.iter().map(flag).collect::<Result<_, _>>()?);
    rules.insert(libc::SYS_clone, NAMESPACES[..7].iter().map(flag).collect::<Result<_, _>>()?);

    // A mode that gives another user's rights to the process that runs the file.
    let mut refuse_modes = |call, mode: u8, creates: Option<u8>| -> Result<(), seccompiler::BackendError> {
        let mut combinations = Vec::new();
        for bit in [libc::S_ISUID, libc::S_ISGID].map(u64::from) {
            match creates {
                None => combinations.push(SeccompRule::new(vec![condition(mode, MaskedEq(bit), bit)?])?),
                // Without these flags, the mode is a leftover of the register.
                Some(flags) => {
                    for flag in CREATING.map(|flag| u64::from(flag.unsigned_abs())) {
                        let creating = condition(flags, MaskedEq(flag), flag)?;
                        combinations
                            .push(SeccompRule::new(vec![creating, condition(mode, MaskedEq(bit), bit)?])?);
                    }
                }
            }
        }
        rules.insert(call, combinations);
        Ok(())
    };
    for (call, mode) in MODES {
        refuse_modes(*call, *mode, None)?;
    }
    for (call, flags, mode) in OPENS {
        refuse_modes(*call, *mode, Some(*flags))?;
    }

    SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()
}

/// `clone3` and `openat2` hide their arguments from filters, so they fail as if they did not exist, and
/// programs use the older calls. The same goes for every call newer than the reviewed ones, and for the x32
/// calls, a second set of numbers on x86-64 that the other filter does not know.
///
/// Without `unix` the kernel appears to have no unix sockets. Programs are prepared for that: they do without
/// the service, or replace it. Connected pairs can still be made, except for datagram pairs, which can send
/// to any socket that is in reach.
fn hiding_filter(unix: bool) -> BpfProgram {
    let statement = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let load = |offset| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
    let jump = |test| libc::BPF_JMP | test | libc::BPF_K;
    let give = |result| statement(libc::BPF_RET | libc::BPF_K, 0, 0, result);
    let refuse = |errno: libc::c_int| give(libc::SECCOMP_RET_ERRNO | errno.unsigned_abs());
    // The low halves of the first two arguments, in `seccomp_data`.
    let [family, kind] = if cfg!(target_endian = "little") { [16, 24] } else { [20, 28] };
    let hidden = if unix { u32::MAX } else { libc::AF_UNIX.unsigned_abs() };
    let mask = |bits| statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, bits);
    // Kinds of sockets whose peer never changes.
    let [stream, packets] = [libc::SOCK_STREAM, libc::SOCK_SEQPACKET].map(i32::unsigned_abs);
    vec![
        load(0),
        statement(jump(libc::BPF_JEQ), 5, 0, libc::SYS_clone3 as u32),
        statement(jump(libc::BPF_JEQ), 4, 0, libc::SYS_openat2 as u32),
        statement(jump(libc::BPF_JGE), 3, 0, FIRST_UNKNOWN),
        statement(jump(libc::BPF_JEQ), 3, 0, libc::SYS_socket as u32),
        statement(jump(libc::BPF_JEQ), 5, 0, libc::SYS_socketpair as u32),
        give(libc::SECCOMP_RET_ALLOW),
        refuse(libc::ENOSYS),
        // `socket`
        load(family),
        statement(jump(libc::BPF_JEQ), 8, 0, hidden),
        give(libc::SECCOMP_RET_ALLOW),
        // `socketpair`
        load(family),
        statement(jump(libc::BPF_JEQ), 0, 3, hidden),
        load(kind),
        mask(0xf),
        statement(jump(libc::BPF_JEQ), 0, 1, stream),
        give(libc::SECCOMP_RET_ALLOW),
        statement(jump(libc::BPF_JEQ), 1, 0, packets),
        refuse(libc::EAFNOSUPPORT),
        give(libc::SECCOMP_RET_ALLOW),
    ]
}
