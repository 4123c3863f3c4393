//! Signals become cancellation: the first asks for an end, the second insists, and
//! has it within a second whatever the process is at. A signal that is ignored at the
//! start (`nohup`) stays ignored.

use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use lobster_runtime::cancel::{CancelReason, CancelToken};
use lobster_runtime::setting::Setting;
use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::Signals;

/// The first signal that came, or 0.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// How long after the second signal an orderly end may take.
const GRACE: Duration = Duration::from_millis(800);

/// How long the printing of the envelope may take after that.
const PRINTING: Duration = Duration::from_millis(150);

/// Cancels `token` when the process is told to end. The last three are how a server tells which of its limits
/// the run has reached.
pub(crate) fn watch(token: &CancelToken) -> std::io::Result<()> {
    let ignored = ignored_signals();
    let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGALRM, SIGUSR1, SIGUSR2];
    let mut signals = Signals::new(wanted.into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0))?;
    let token = token.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let name = match signal {
                SIGINT => "SIGINT",
                SIGHUP => "SIGHUP",
                SIGQUIT => "SIGQUIT",
                SIGALRM => "SIGALRM",
                SIGUSR1 => "SIGUSR1",
                SIGUSR2 => "SIGUSR2",
                _ => "SIGTERM",
            };
            let reason = CancelReason::Signal(name.to_owned());
            match FIRST.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    // A store that another process keeps locked must not keep this one from its end.
                    lobster_runtime::store::shorten_patience();
                    token.cancel(reason);
                }
                Err(first) => {
                    token.force(reason);
                    // A thread of its own, so that nothing that waits keeps it from its work.
                    // Processes of steps end with the sandbox's helper, which sees us gone.
                    let end = move || {
                        std::thread::sleep(GRACE);
                        // Nobody may read it, so its writing ends nothing.
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

/// The signals that whoever started this process has it ignore, as bits: signal N is bit N - 1. None where the
/// system has no `/proc`.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Names the process that this one ends with, as a host that runs workflows on its own behalf asks for.
pub(crate) const DIE_WITH_PARENT: Setting<i32> =
    Setting::new("LOBSTER_DIE_WITH_PARENT", "the id of a process", |pid| pid.parse().ok());

/// Has the kernel send SIGTERM when the parent dies, if the parent asked for it. Steps inherit
/// the variable, and are not children of that process: for them it means nothing.
pub(crate) fn die_with_parent() {
    #[cfg(target_os = "linux")]
    {
        let Ok(Some(asked)) = DIE_WITH_PARENT.value(|name| std::env::var_os(name)) else { return };
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
