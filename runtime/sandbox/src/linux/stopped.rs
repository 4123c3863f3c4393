//! Processes of lobster that were stopped (SIGSTOP): a stopped supervisor enforces no time limit, and a
//! stopped helper ends no run.

use std::ffi::CStr;
use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// The name of helpers and supervisors.
pub(super) const NAME: &CStr = c"lobster-sandbox";

/// Continues the guard `root`, its helper and their supervisors if they are stopped. A stopped step stays
/// stopped.
pub(super) fn wake_processes(root: Pid) {
    for (pid, is_stopped) in own_processes(root) {
        if is_stopped {
            tracing::warn!(pid = pid.as_raw_nonzero(), "a process of lobster was stopped, and continues");
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

/// Kills the helper below the guard `root` and its supervisors; the guard then kills their leftover
/// processes.
pub(super) fn kill_helper(root: Pid) {
    for (pid, _) in own_processes(root).into_iter().skip(1) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// `root` and lobster's processes below it, each with true if it is stopped.
fn own_processes(root: Pid) -> Vec<(Pid, bool)> {
    let (mut found, mut next) = (Vec::new(), vec![(root, 0)]);
    while let Some((pid, depth)) = next.pop() {
        let number = pid.as_raw_nonzero();
        let Ok(stat) = fs::read_to_string(format!("/proc/{number}/stat")) else { continue };
        // The name may contain anything, but nothing after it contains a parenthesis.
        let Some((name, rest)) = stat.rsplit_once(')') else { continue };
        let is_own = name.split_once('(').is_some_and(|(_, name)| name.as_bytes() == NAME.to_bytes());
        // The child of the guard is the helper, which may not have its name yet.
        if depth > 1 && !is_own {
            continue;
        }
        found.push((pid, rest.trim_start().starts_with('T')));
        let children = fs::read_to_string(format!("/proc/{number}/task/{number}/children"));
        let children = children.unwrap_or_default();
        let children = children.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        next.extend(children.map(|child| (child, depth + 1)));
    }
    found
}
