//! System call filters: what no ordinary program needs, and which sockets.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter, sock_filter,
};

/// Which socket families may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sockets {
    /// Unix sockets only: the network is the host's, and not granted.
    Unix,
    /// Internet sockets too: the network namespace is empty, or has only our proxy.
    Internet,
    /// Netlink too: the network is the host's, and granted.
    Host,
}

/// Calls that change the machine, look into other processes, or are known
/// chiefly for their vulnerabilities. All of them fail with `EPERM`.
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

/// Programs ready to be loaded.
pub(super) struct Filters {
    refused: BpfProgram,
    absent: BpfProgram,
}

impl Filters {
    /// Compiles the filters for this machine's architecture.
    pub(super) fn new(sockets: Sockets) -> io::Result<Self> {
        let refused = refused(sockets).map_err(io::Error::other)?;
        Ok(Self { refused, absent: absent() })
    }

    /// Loads them, for good. `no_new_privs` must be set.
    pub(super) fn apply(&self) -> io::Result<()> {
        for program in [&self.absent, &self.refused] {
            apply_filter(program).map_err(|error| match error {
                seccompiler::Error::Prctl(error) | seccompiler::Error::Seccomp(error) => error,
                error => io::Error::other(error),
            })?;
        }
        Ok(())
    }
}

fn refused(sockets: Sockets) -> Result<BpfProgram, seccompiler::BackendError> {
    use SeccompCmpArgLen::Dword;
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let condition = |argument, operator, value| SeccompCondition::new(argument, Dword, operator, value);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|number| (*number, Vec::new())).collect();

    let families: &[libc::c_int] = match sockets {
        Sockets::Unix => &[libc::AF_UNIX],
        Sockets::Internet => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6],
        Sockets::Host => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK],
    };
    let others = families
        .iter()
        .map(|family| condition(0, Ne, u64::from(family.unsigned_abs())))
        .collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(others)?]);

    // Pushing input into a terminal that a person will use later.
    let requests = [libc::TIOCSTI, libc::TIOCLINUX];
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

    SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM.unsigned_abs()),
        std::env::consts::ARCH.try_into()?,
    )?
    .try_into()
}

/// `clone3` hides its flags from filters, so it must seem not to exist: the C
/// library then uses `clone`. Likewise the x32 calls, a second set of numbers
/// on x86-64 that the other filter does not know.
fn absent() -> BpfProgram {
    let statement = |code: u32, jt, jf, k| sock_filter { code: code as u16, jt, jf, k };
    let load_number = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let jump = |test| libc::BPF_JMP | test | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    vec![
        statement(load_number, 0, 0, 0),
        statement(jump(libc::BPF_JEQ), 2, 0, libc::SYS_clone3 as u32),
        statement(jump(libc::BPF_JGE), 1, 0, 0x4000_0000),
        statement(give, 0, 0, libc::SECCOMP_RET_ALLOW),
        statement(give, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
    ]
}
