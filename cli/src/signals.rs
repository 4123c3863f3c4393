//! Signals become cancellation: the first asks for an end, the second insists.

use std::sync::atomic::{AtomicI32, Ordering};

use lobster_runtime::cancel::{CancelReason, CancelToken};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;

/// The first signal that came, or 0.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Cancels `token` when the process is told to end.
pub(crate) fn watch(token: &CancelToken) -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
    let token = token.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let name = match signal {
                SIGINT => "SIGINT",
                SIGHUP => "SIGHUP",
                SIGQUIT => "SIGQUIT",
                _ => "SIGTERM",
            };
            let reason = CancelReason::Signal(name.to_owned());
            if FIRST.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                token.cancel(reason);
            } else {
                token.force(reason);
            }
        }
    })?;
    Ok(())
}

/// Names the process that this one ends with, as a host that runs workflows on its own behalf asks for.
const DIE_WITH_PARENT: &str = "LOBSTER_DIE_WITH_PARENT";

/// Has the kernel send SIGTERM when the parent dies, if the parent asked for it. Steps inherit
/// the variable, and are no children of that process: for them it means nothing.
pub(crate) fn die_with_parent() {
    #[cfg(target_os = "linux")]
    {
        let Some(asked) = std::env::var(DIE_WITH_PARENT).ok().and_then(|pid| pid.trim().parse::<i32>().ok())
        else {
            return;
        };
        if rustix::process::getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == asked) {
            // Without it the run goes on alone, which is what happens everywhere else.
            let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
        }
    }
}

/// The number of the first signal that came.
pub(crate) fn received() -> Option<i32> {
    Some(FIRST.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
}
