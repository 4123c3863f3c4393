//! Signals become cancellation: the first requests an end, the second enforces it within a second,
//! regardless of what the process is doing. A signal that is ignored at the start (`nohup`) stays
//! ignored.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use lobster_runtime::cancel::{CancelReason, CancelToken};
use lobster_runtime::setting::Setting;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// The first signal received, or 0.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Time for an orderly end after the second signal.
const GRACE: Duration = Duration::from_millis(800);

/// Further time for printing the envelope.
const PRINTING: Duration = Duration::from_millis(150);

/// Cancels `token` when the process receives a signal. The server uses the last three signals to tell
/// which of its limits the run has reached.
pub(crate) fn watch(token: &CancelToken) -> std::io::Result<()> {
    let ignored = ignored_signals();
    let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2];
    let mut signals = Signals::new(wanted.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0))?;
    let token = token.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("SIGTERM");
            let reason = CancelReason::Signal(name.to_owned());
            match FIRST.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    // A store that another process keeps locked must not delay the end of this process.
                    lobster_runtime::store::shorten_patience();
                    token.cancel(reason);
                }
                Err(first) => {
                    token.force_cancel(reason);
                    // In a separate thread, so that waiting code cannot delay it. Processes of steps
                    // end with the sandbox's helper, which notices the end of this process.
                    let end = move || {
                        std::thread::sleep(GRACE);
                        // The output may have no reader, so a blocked write must not delay the end.
                        let (say, said) = std::sync::mpsc::channel();
                        let print = move || {
                            crate::reply::print_owed_envelope(name);
                            let _ = say.send(());
                        };
                        let _ = std::thread::Builder::new().name("envelope".to_owned()).spawn(print);
                        let _ = said.recv_timeout(PRINTING);
                        signal_hook::low_level::exit(128 + first);
                    };
                    if std::thread::Builder::new().name("end".to_owned()).spawn(end).is_err() {
                        signal_hook::low_level::exit(128 + first);
                    }
                }
            }
        }
    })?;
    Ok(())
}

/// The signals that the parent process set to be ignored, as bits: signal N is bit N - 1. Empty if the
/// system has no `/proc`.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The id of the process with which this process ends; set by a host that runs workflows on its own behalf.
pub(crate) const DIE_WITH_PARENT: Setting<i32> =
    Setting::new("LOBSTER_DIE_WITH_PARENT", "the id of a process", |pid| pid.parse().ok());

/// Makes the kernel send SIGTERM when the parent dies, if the parent asked for it. Steps inherit the
/// variable, but are not children of that process, so it has no effect on them.
pub(crate) fn die_with_parent() {
    #[cfg(target_os = "linux")]
    {
        let Ok(Some(asked)) = DIE_WITH_PARENT.read_env(|name| std::env::var_os(name)) else { return };
        if rustix::process::getppid().is_some_and(|parent| parent.as_raw_nonzero().get() == asked) {
            // Without it the run continues alone, as it does on other systems.
            let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
        }
    }
}

/// The number of the first signal received.
pub(crate) fn first_received() -> Option<i32> {
    Some(FIRST.load(Ordering::SeqCst)).filter(|signal| *signal != 0)
}
