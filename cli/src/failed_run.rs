//! Help after a failed run: the failed step, its place in the file, its last output on stderr, and the
//! next command.

use lobster_runtime::code::Code;
use lobster_runtime::envelope::Failure;
use lobster_runtime::replay::changes::changes_of_run;
use lobster_runtime::replay::{Standing, failed_step, place_of_step, read_standing};
use lobster_runtime::runtime::Runtime;
use lobster_runtime::store::{Blob, RunId, StepOutcome, Store, StoreError};

use crate::console_link::page_address;
use crate::render::{clip, one_line, print_to_stderr};

/// Most lines of a failed step's stderr that are shown.
const LAST_WORDS: usize = 5;

/// Most characters of each line.
const LINE: usize = 160;

/// The end of a longer stream is not shown.
const MAX_STREAM: u64 = 4 << 20;

/// Prints the help on stderr. Unreadable parts are left out: the failure itself was already reported.
pub(crate) fn print_where(runtime: &Runtime, run: RunId, failure: &Failure) {
    // These messages name the next commands themselves.
    if failure.code.known_code() == Some(Code::Interrupted) {
        return;
    }
    let Ok(store) = runtime.store() else { return };
    let short = run.short_id();
    if failure.code.known_code() == Some(Code::Cancelled) {
        if store.run(run).is_ok_and(|summary| read_standing(&store, &summary) == Standing::Interrupted) {
            print_to_stderr(&format!("  lobster resume {short}  continues from there"));
        }
        return;
    }
    let mut next = Vec::new();
    let records = store.found_events(run).map(|(records, _)| records).unwrap_or_default();
    match failed_step(&records) {
        Some((path, outcome)) => {
            let place = place_of_step(&store, run, path)
                .map(|place| format!(", {}:{}", place.file, place.line))
                .unwrap_or_default();
            print_to_stderr(&format!("  step {}{place}", one_line(path)));
            for line in last_words(&store, outcome, &failure.message) {
                print_to_stderr(&format!("    {line}"));
            }
            next.push((format!("lobster logs {short} {}", shell_word(path)), "its full output"));
        }
        None => next.push((format!("lobster show {short}"), "what happened, step by step")),
    }
    next.push((format!("lobster resume {short}"), "continues from there"));
    if has_changed_files(&store, run) {
        next.push((format!("lobster undo {short}"), "reverts its changes to files"));
    }
    // For these codes the message is complete.
    let says_it_all = [Code::Failed, Code::Request, Code::CommandFailed, Code::CommandError, Code::StepValue];
    if !failure.code.known_code().is_some_and(|code| says_it_all.contains(&code)) {
        next.push((format!("lobster help {}", failure.code), "what it means"));
    }
    let width = next.iter().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
    for (command, meaning) in next {
        print_to_stderr(&format!("  {command:width$}  {meaning}"));
    }
    if let Some(address) = page_address(&store, &format!("runs/{run}")) {
        print_to_stderr(&format!("  {address}"));
    }
}

/// True if steps before the failure have committed changes.
fn has_changed_files(store: &Store, run: RunId) -> bool {
    changes_of_run(store, run)
        .is_ok_and(|steps| steps.iter().any(|step| step.committed && !step.set.is_empty()))
}

/// The end of the step's stderr, unless the message contains it.
fn last_words(store: &Store, outcome: &StepOutcome, message: &str) -> Vec<String> {
    let Some(Blob { digest, len }) = outcome.stderr.filter(|blob| blob.len > 0) else { return Vec::new() };
    let bytes = match store.load_blob(&digest, MAX_STREAM) {
        Ok(bytes) => bytes,
        Err(StoreError::BlobTooLarge { .. }) => {
            return vec![format!("(the end of {len} bytes of stderr is not shown)")];
        }
        Err(error) => return vec![format!("(its stderr cannot be shown: {})", one_line(&error.to_string()))],
    };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let shown = &lines[lines.len().saturating_sub(LAST_WORDS)..];
    if shown.iter().all(|line| message.contains(line.trim())) {
        return Vec::new();
    }
    shown.iter().map(|line| clip(&one_line(line), LINE).into_owned()).collect()
}

/// A path as a word for a shell.
fn shell_word(path: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':');
    if path.chars().all(is_plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}
