//! Fault points armed by `LOBSTER_FAULT`. Never part of the released program.
//!
//! `LOBSTER_FAULT=<n>:kill` ends the process with SIGKILL at the n-th point (starting at 1), `<n>:fail` makes that
//! point fail with an I/O error, `<n>:stop` stops the process there until it receives SIGCONT. A name in place of the
//! number means the first point of that name.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};

static PASSED: AtomicU64 = AtomicU64::new(0);

/// Number of points that this process has passed: the useful range of `n`.
#[allow(dead_code, reason = "only the store's own tests count")]
pub(crate) fn points_passed() -> u64 {
    PASSED.load(Ordering::Relaxed)
}

/// Passes the fault point `what`.
pub(crate) fn pass(what: &'static str) -> io::Result<()> {
    static PLAN: OnceLock<Option<(String, String)>> = OnceLock::new();
    static MET: AtomicBool = AtomicBool::new(false);
    let nth = PASSED.fetch_add(1, Ordering::Relaxed) + 1;
    let plan = PLAN.get_or_init(|| {
        let text = std::env::var("LOBSTER_FAULT").ok()?;
        let (place, how) = text.split_once(':')?;
        Some((place.to_owned(), how.to_owned()))
    });
    let Some((place, how)) = plan else { return Ok(()) };
    let is_here = place.parse().map_or(place == what, |n: u64| n == nth);
    if !is_here || MET.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    let signal = match how.as_str() {
        // No code may run after this line, as after a crash.
        "kill" => Signal::KILL,
        "stop" => Signal::STOP,
        _ => return Err(io::Error::other(format!("fault injected at {what}"))),
    };
    let _ = kill_process(getpid(), signal);
    // The signal may be delivered to another thread, which on a busy machine may have to wait for its turn.
    std::thread::sleep(Duration::from_secs(1));
    Ok(())
}
