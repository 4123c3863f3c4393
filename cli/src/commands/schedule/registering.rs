//! `lobster schedule register` and `unregister`: record a person's decision on what the service starts.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use lobster_runtime::stage::Mode;
use lobster_serve::workflows::{self, Candidate, Content, Word};

use super::{ORIGIN, current_actor, ticks};
use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::harmless;
use crate::stdout::{print_line, stdout};
use crate::which;

pub(super) fn register_files(files: &[PathBuf], trust: bool) -> CommandResult {
    prepare::refuse_inside_a_run("register a workflow")?;
    let runtime = prepare::runtime(Mode::Human)?;
    prepare::refuse_agents(&runtime, "register a workflow")?;
    let service = runtime.store()?.service()?;
    let mut exit = Exit::OK;
    for file in files {
        let candidate = workflows::read_candidate(&runtime, file).map_err(CommandError::failed)?;
        let shown = harmless(&candidate.path.display().to_string()).into_owned();
        match workflows::compare_registration(&service, &candidate)? {
            Word::Registered => {
                print_line(&format!("{} is already registered: {shown}", candidate.name));
                continue;
            }
            Word::New => print_line(&format!("{} is new: {shown}", candidate.name)),
            Word::Changed(known) => print_line(&format!(
                "{} has changed since it was registered{}: {shown}",
                candidate.name,
                known.registered_by.map(|by| format!(" by {by}")).unwrap_or_default()
            )),
            Word::Other(known) => {
                print_line(&format!("{} would take the place of {}: {shown}", candidate.name, known.path));
            }
        }
        print_triggers(&candidate);
        if !trust && !ask_consent(&candidate)? {
            print_line("not registered");
            exit = Exit::FAILED;
            continue;
        }
        workflows::register(&service, &candidate, current_actor().as_deref(), ORIGIN)
            .map_err(CommandError::failed)?;
        print_line(&format!(
            "registered blake3:{}; a changed file will not be started",
            candidate.digest.short()
        ));
    }
    Ok(exit)
}

/// Prints the workflow's triggers and their arguments.
fn print_triggers(candidate: &Candidate) {
    let triggers = &candidate.workflow.triggers;
    for schedule in &triggers.schedules {
        print_line(&format!("  {:<10} {}", schedule.name, harmless(&ticks::due_text(schedule))));
    }
    let content = Content { triggers: triggers.clone(), ..Content::default() };
    let others = ticks::other_triggers(&content);
    if !others.is_empty() {
        print_line(&format!("  {}", harmless(&others)));
    }
}

fn ask_consent(candidate: &Candidate) -> Result<bool, CommandError> {
    if !io::stdin().is_terminal() {
        return Err(CommandError::failed("cannot ask: standard input is not a terminal")
            .with_hint("register it at a terminal; --trust is for operators who have read the file"));
    }
    write!(stdout(), "Let the service start it (blake3:{})? [y/N] ", candidate.digest.short())?;
    stdout().flush()?;
    Ok(which::reads_yes()?)
}

pub(super) fn unregister_workflow(name: &str) -> CommandResult {
    prepare::refuse_inside_a_run("unregister a workflow")?;
    if !prepare::service()?.unregister_workflow(name, current_actor().as_deref(), ORIGIN)? {
        return Err(CommandError::usage(format!("{name} is not registered")));
    }
    print_line(&format!("{name} is no longer registered"));
    Ok(Exit::OK)
}
