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

/// The number of the first signal that came.
pub(crate) fn received() -> Option<i32> {
    Some(FIRST.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
}
