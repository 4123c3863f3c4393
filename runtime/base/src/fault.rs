//! The one place that every write and sync of the store and every change of a commit passes, so
//! that an outside test can stop the process at each of them in turn. The shipped program
//! installs nothing here and looks at no variable.

use std::io;
use std::sync::OnceLock;

/// Called with the name of each point that is passed; an error makes it fail.
pub type FaultHook = fn(&'static str) -> io::Result<()>;

static HOOK: OnceLock<FaultHook> = OnceLock::new();

/// Has `hook` called at each point, for programs that test what becomes of the disk. Only the
/// first call counts.
pub fn install_fault_hook(hook: FaultHook) {
    let _ = HOOK.set(hook);
}

/// Passes a point named `what`.
#[inline]
pub fn point(what: &'static str) -> io::Result<()> {
    HOOK.get().map_or(Ok(()), |hook| hook(what))
}
