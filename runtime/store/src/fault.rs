//! The one place that every write and sync of the store passes, so that an
//! outside test can stop the process at each of them in turn.
//!
//! What happens there is a function that the program itself installs: the
//! shipped one installs none and looks at no variable, the one that the
//! black-box tests drive installs `armed`, as do the unit tests of this crate.

use std::io;
use std::sync::OnceLock;

#[cfg(test)]
pub(crate) mod armed;

/// Called with the name of each point that is passed; an error makes it fail.
pub type FaultHook = fn(&'static str) -> io::Result<()>;

static HOOK: OnceLock<FaultHook> = OnceLock::new();

/// Has `hook` called at each write and sync of the store; for programs that
/// test the store. Only the first call counts.
pub fn install_fault_hook(hook: FaultHook) {
    let _ = HOOK.set(hook);
}

/// Passes a point named `what`.
#[inline]
pub(super) fn point(what: &'static str) -> io::Result<()> {
    #[cfg(test)]
    let _ = HOOK.get_or_init(|| armed::pass);
    HOOK.get().map_or(Ok(()), |hook| hook(what))
}
