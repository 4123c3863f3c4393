//! The one place that every change of a commit to the disk passes, so that an outside test
//! can stop the process at each in turn. The shipped program installs nothing here.

use std::io;
use std::sync::OnceLock;

/// Called with the name of each point that is passed; an error makes it fail.
pub type FaultHook = fn(&'static str) -> io::Result<()>;

static HOOK: OnceLock<FaultHook> = OnceLock::new();

/// Has `hook` called at each change of the disk, for tests. Only the first call counts.
pub fn install_fault_hook(hook: FaultHook) {
    let _ = HOOK.set(hook);
}

/// Passes a point named `what`.
pub(crate) fn point(what: &'static str) -> io::Result<()> {
    HOOK.get().map_or(Ok(()), |hook| hook(what))
}
