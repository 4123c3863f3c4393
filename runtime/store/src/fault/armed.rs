//! Fault points that `LOBSTER_FAULT` arms. Never part of the shipped program.
//!
//! `LOBSTER_FAULT=<n>:kill` ends the process with SIGKILL at the n-th point
//! (counted from 1), `<n>:fail` makes that point fail with an I/O error.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static PASSED: AtomicU64 = AtomicU64::new(0);

/// How many points this process has passed: the range of `n` worth trying.
#[allow(dead_code, reason = "only the store's own tests count")]
pub(crate) fn points_passed() -> u64 {
    PASSED.load(Ordering::Relaxed)
}

/// Passes a point named `what`.
pub(crate) fn pass(what: &'static str) -> io::Result<()> {
    static PLAN: OnceLock<Option<(u64, bool)>> = OnceLock::new();
    let nth = PASSED.fetch_add(1, Ordering::Relaxed) + 1;
    let plan = PLAN.get_or_init(|| {
        let text = std::env::var("LOBSTER_FAULT").ok()?;
        let (n, how) = text.split_once(':')?;
        Some((n.parse().ok()?, how == "kill"))
    });
    match plan {
        Some((n, true)) if *n == nth => {
            // Nothing may run after this line, as after a crash.
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            Ok(())
        }
        Some((n, false)) if *n == nth => Err(io::Error::other(format!("fault injected at {what}"))),
        _ => Ok(()),
    }
}
