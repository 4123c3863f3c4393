//! Whether the process that executes a run is still there.

use serde_json::{Value, json};

use crate::store::{Event, Record, RunId, Store, StoreError};

/// This process, as no other process ever was: its id with its start time and the boot it belongs to.
pub(crate) fn this_process() -> Value {
    let pid = std::process::id();
    json!({ "pid": pid, "started": start_time(pid), "boot": boot_id() })
}

/// Whether the process that took the run up last still lives.
pub(crate) fn is_alive(journal: &[Record]) -> bool {
    let process = journal.iter().rev().find_map(|record| match &record.event {
        Event::RunStarted { detail, .. } | Event::RunResumed { detail, .. } => detail.get("process"),
        _ => None,
    });
    let Some(process) = process else { return false };
    let Some(pid) = process.get("pid").and_then(Value::as_u64).and_then(|pid| u32::try_from(pid).ok()) else {
        return false;
    };
    pid != std::process::id()
        && process.get("boot") == Some(&json!(boot_id()))
        && start_time(pid).is_some()
        && process.get("started") == Some(&json!(start_time(pid)))
}

/// Whether a run that is not over has lost its process.
///
/// # Errors
/// When its journal cannot be read.
pub fn is_interrupted(store: &Store, run: RunId) -> Result<bool, StoreError> {
    Ok(!is_alive(&store.events(run)?))
}

/// Start time in clock ticks since boot (`proc(5)`, field 22 of `stat`), unless the process is gone or a zombie.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may itself contain anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}
