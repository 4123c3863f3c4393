//! The hook that every write and sync of the store and every change of a commit passes, so that an outside test can
//! stop the process at each of them in turn. The released program installs no hook and reads no variable for it.

use std::io;
use std::sync::OnceLock;

/// Called with the name of each point; an error makes the point fail.
pub type FaultHook = fn(&'static str) -> io::Result<()>;

static HOOK: OnceLock<FaultHook> = OnceLock::new();

/// Installs a `hook` to be called at each point, for programs that test the state of the disk after a fault. Later
/// calls are ignored.
pub fn install_fault_hook(hook: FaultHook) {
    let _ = HOOK.set(hook);
}

/// Passes the point `what`.
#[inline]
pub fn point(what: &'static str) -> io::Result<()> {
    HOOK.get().map_or(Ok(()), |hook| hook(what))
}
