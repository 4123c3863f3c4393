//! What a person needs after a run has failed: which step, where it stands in the
//! file, its last words, and the next command.

use lobster_runtime::code::Code;
use lobster_runtime::envelope::Failure;
use lobster_runtime::language::plan::{Plan, Workflow};
use lobster_runtime::language::source::Source;
use lobster_runtime::replay::changes::changes_of_run;
use lobster_runtime::runtime::{Runtime, recorded};
use lobster_runtime::store::{Blob, Event, RunId, StepOutcome, StepStatus, Store};

use crate::render::{clip, one_line, say};

/// Lines of a failed step's stderr that are shown.
const LAST_WORDS: usize = 5;

/// Characters of each.
const LINE: usize = 160;

/// Longer streams are not read for their end.
const MAX_STREAM: u64 = 4 << 20;

/// Says it on stderr. What cannot be read is left out: the failure itself has been told.
pub(crate) fn print_where(runtime: &Runtime, run: RunId, failure: &Failure) {
    // These messages name the ways out themselves.
    if matches!(failure.code.known(), Some(Code::Interrupted | Code::Cancelled)) {
        return;
    }
    let Ok(store) = runtime.store() else { return };
    let short = run.short();
    let mut next = Vec::new();
    match failed_step(&store, run) {
        Some((path, outcome)) => {
            let place = place_of(&store, run, &path).map(|place| format!(", {place}")).unwrap_or_default();
            say(&format!("  step {}{place}", one_line(&path)));
            for line in last_words(&store, &outcome, &failure.message) {
                say(&format!("    {line}"));
            }
            next.push((format!("lobster logs {short} {}", shell_word(&path)), "its full output"));
        }
        None => next.push((format!("lobster show {short}"), "what happened, step by step")),
    }
    next.push((format!("lobster resume {short}"), "continues from there"));
    if has_changed_files(&store, run) {
        next.push((format!("lobster undo {short}"), "reverts its changes to files"));
    }
    // Of these, the message is all that there is to say.
    let says_it_all = [Code::Failed, Code::Request, Code::CommandFailed, Code::CommandError, Code::StepValue];
    if !failure.code.known().is_some_and(|code| says_it_all.contains(&code)) {
        next.push((format!("lobster help {}", failure.code), "what it means"));
    }
    let width = next.iter().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
    for (command, meaning) in next {
        say(&format!("  {command:width$}  {meaning}"));
    }
}

/// The innermost step that failed last.
fn failed_step(store: &Store, run: RunId) -> Option<(String, StepOutcome)> {
    let (records, _) = store.found_events(run).ok()?;
    let mut last: Option<(&str, &StepOutcome)> = None;
    for record in &records {
        let Event::StepEnded { path, outcome, .. } = &record.event else { continue };
        if !matches!(outcome.status, StepStatus::Failed | StepStatus::TimedOut | StepStatus::Refused) {
            continue;
        }
        // A loop or branch that fails for a step of its own has no words of its own.
        let is_around = last.is_some_and(|(inner, _)| {
            inner.strip_prefix(path.as_str()).is_some_and(|rest| rest.starts_with(['/', '[', '|', '#']))
        });
        if !is_around {
            last = Some((path, outcome));
        }
    }
    last.map(|(path, outcome)| (path.to_owned(), outcome.clone()))
}

/// Whether steps before the failure have committed changes.
fn has_changed_files(store: &Store, run: RunId) -> bool {
    changes_of_run(store, run)
        .is_ok_and(|steps| steps.iter().any(|step| step.committed && !step.set.is_empty()))
}

/// `flow.lobster:7`, if the file is still the one that was run.
fn place_of(store: &Store, run: RunId, path: &str) -> Option<String> {
    let Plan::Workflow(workflow) = recorded::<Plan>(store, &store.run(run).ok()?.plan).ok()? else {
        return None;
    };
    place_in(&workflow, path)
}

fn place_in(workflow: &Workflow, path: &str) -> Option<String> {
    let name = path.rsplit('/').next()?;
    let id = name.split(['[', '#', '|', '!']).next()?;
    let mut found = workflow.all_steps().into_iter().filter(|step| step.id == id);
    let (Some(step), None) = (found.next(), found.next()) else {
        return workflow.children.values().find_map(|child| place_in(child, path));
    };
    let bytes = std::fs::read(&workflow.file).ok()?;
    let source = Source::new(workflow.file.file_name()?.to_string_lossy(), &workflow.file, &bytes);
    (source.digest == workflow.source)
        .then(|| format!("{}:{}", source.name, source.position(step.span.start).0))
}

/// The end of what the step wrote to stderr, unless the message has it.
fn last_words(store: &Store, outcome: &StepOutcome, message: &str) -> Vec<String> {
    let Some(Blob { digest, len }) = outcome.stderr.filter(|blob| blob.len > 0) else { return Vec::new() };
    let Ok(bytes) = store.load(&digest, MAX_STREAM) else {
        return vec![format!("({len} bytes of stderr, too many to show their end)")];
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
