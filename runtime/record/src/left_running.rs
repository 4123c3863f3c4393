//! Finds processes of a run's steps that are still running although no lobster executes the run. If all of
//! lobster's processes were killed at once, an effect may continue without them, and repeating it would
//! execute it twice at the same time.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

use super::copied::wrong_state;
use lobster_base::text::{self, Count};
use lobster_engine::envelope::Failure;
use lobster_store::RunId;

/// Processes that an error names.
const NAMED: usize = 5;

/// Bytes of a command that an error quotes.
const QUOTED: usize = 80;

/// Returns an error if a process of the run's steps is alive.
pub(crate) fn refuse_while_running(run: RunId) -> Result<(), Failure> {
    let left = left_running(run);
    if left.is_empty() {
        return Ok(());
    }
    let named: Vec<_> = left.iter().take(NAMED).map(|(pid, command)| format!("{pid} ({command})")).collect();
    let more = if left.len() > NAMED { format!(" and {} more", left.len() - NAMED) } else { String::new() };
    Err(wrong_state(format!(
        "run {run} is not continued, because processes of its interrupted step are still running: {}{more}. Wait \
         until they end, or end them; `lobster resume {} --retry-interrupted --even-if-running` repeats the step \
         beside them",
        named.join(", "),
        run.short_id()
    )))
}

/// The processes of this user that have the run's id in their environment, with their commands. The ancestors
/// of this process are left out, because a step may resume another run.
fn left_running(run: RunId) -> Vec<(u32, String)> {
    let wanted = format!("{}={run}", RunId::VARIABLE);
    let own = rustix::process::getuid().as_raw();
    let ancestors = process_ancestors();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let of_run = processes.filter_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        if ancestors.contains(&pid) || process.metadata().ok()?.uid() != own {
            return None;
        }
        let variables = fs::read(process.path().join("environ")).ok()?;
        variables.split(|byte| *byte == 0).find(|variable| *variable == wanted.as_bytes())?;
        let words = fs::read(process.path().join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&words).replace('\0', " ");
        let command = text::prefix(command.trim(), QUOTED, Count::Bytes).escape_debug().to_string();
        Some((pid, command))
    });
    of_run.collect()
}

/// This process and its ancestors.
fn process_ancestors() -> HashSet<u32> {
    let mut found = HashSet::new();
    let mut next = Some(std::process::id());
    while let Some(pid) = next.filter(|pid| *pid > 0 && found.insert(*pid)) {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The name may contain anything, but nothing after it contains a parenthesis.
        next = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
    }
    found
}
