//! Selects the run: an id or a part of one, `@` and similar words, or the choice of a person at a terminal.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use clap::builder::PossibleValue;
use lobster_runtime::replay::{Standing, read_standing};
use lobster_runtime::store::service::{Service, Start, StartState};
use lobster_runtime::store::{Event, RunFilter, RunId, RunSummary, Store, StoreError, iso};
use serde_json::{Value, json};

use crate::commands::doctor;
use crate::exit::CommandError;
use crate::render::{one_line, print_to_stderr, table, units};

/// Words that other programs use for the last run.
const LAST: &[&str] = &["-1", "current", "head", "HEAD", "last", "latest", "newest", "previous"];

/// Largest number of runs that can be counted back.
const MAX_BACK: usize = 10_000;

/// Runs that are read at once.
const PAGE: usize = 20;

/// Most runs in the list to choose from.
const CHOICES: usize = 9;

/// The run named by a text. The name is looked up once and the id is used from then on: the meaning of
/// `@` changes with each run.
pub(crate) fn run(store: &Store, text: &str) -> Result<RunId, CommandError> {
    let Some((name, back)) = parse_reference(text) else {
        return store.find_run(text).map_err(|error| {
            match (LAST.contains(&text), find_unbegun(store, text)) {
                (true, _) => CommandError::usage(error).with_hint("@ is the last run, @- the one before"),
                (false, Some(start)) => start.to_error(),
                (false, None) if matches!(error, StoreError::Damaged { .. }) => error.into(),
                (false, None) => CommandError::usage(error),
            }
        });
    };
    let runs = latest_runs(store, name, back + 1)?;
    match (runs.get(back), runs.len()) {
        (Some(run), _) => Ok(run.id),
        (None, 0) => Err(match name {
            None => CommandError::usage("no run is recorded yet"),
            Some(name) => CommandError::usage(format!("no run is named {name:?}"))
                .with_hint("`lobster runs` lists them; a workflow without `name:` has the name of its file"),
        }),
        (None, known) => Err(CommandError::usage(format!(
            "{text} is too far back: there {} only {}",
            if known == 1 { "is" } else { "are" },
            units::count_noun(known as u64, "such run")
        ))),
    }
}

/// A run that a service is to begin, or refused: it has no record.
pub(crate) struct Unbegun {
    pub(crate) start: Start,
    /// The name of its workflow.
    pub(crate) workflow: String,
}

impl Unbegun {
    fn from_start(service: &Service, start: Start) -> Self {
        let workflow = service.workflow_by_number(start.workflow).ok().flatten();
        let workflow =
            workflow.map_or_else(|| "a workflow that is gone".to_owned(), |workflow| workflow.name);
        Self { start, workflow }
    }

    /// The next action for a person.
    pub(crate) fn next_action(&self) -> String {
        match self.start.state {
            StartState::Refused => format!(
                "nothing of it was executed; put right what the reason names, then start it again, as with \
                 `lobster schedule run-now {}`",
                self.workflow
            ),
            StartState::Withdrawn => "nothing of it was executed".to_owned(),
            StartState::Queued | StartState::Taken | StartState::Parked | StartState::Over => {
                format!("`lobster console {}` shows it, `lobster serve` begins it", self.start.run.short_id())
            }
        }
    }

    /// All fields, for a program.
    pub(crate) fn to_json(&self) -> Value {
        let start = &self.start;
        json!({
            "id": start.run,
            "name": self.workflow,
            "kind": "start",
            "status": start.state.as_str(),
            "cause": start.cause,
            "actor": start.actor,
            "startedAt": iso(start.queued_at),
            "endedAt": start.ended_at.map(iso),
            "args": start.args,
            "error": start.why,
            "advice": self.next_action(),
        })
    }

    /// The error that explains why there are no steps.
    fn to_error(&self) -> CommandError {
        let (run, workflow) = (self.start.run, one_line(&self.workflow));
        let why = self.start.why.as_ref().map(|why| format!(": {}", one_line(why))).unwrap_or_default();
        let message = match self.start.state {
            StartState::Refused => format!("run {run} of {workflow} was refused and never began{why}"),
            StartState::Withdrawn => format!("run {run} of {workflow} was cancelled before it began{why}"),
            StartState::Queued | StartState::Taken | StartState::Parked | StartState::Over => {
                format!("run {run} is queued and has not begun{why}")
            }
        };
        CommandError::usage(message).with_hint(self.next_action())
    }
}

/// Most starts that are searched; older starts without a run are found only by their whole ids.
const UNBEGUN: usize = 1000;

/// The starts that a service has refused, the newest first.
pub(crate) fn refused_starts(store: &Store) -> Result<Vec<Unbegun>, StoreError> {
    let Some(service) = store.existing_service()? else { return Ok(Vec::new()) };
    let mut starts = service.starts_without_run(UNBEGUN)?;
    starts.retain(|start| start.state == StartState::Refused);
    Ok(starts.into_iter().map(|start| Unbegun::from_start(&service, start)).collect())
}

/// The start named by a text, if no run has begun for it.
pub(crate) fn find_unbegun(store: &Store, text: &str) -> Option<Unbegun> {
    /// Least number of digits of an id.
    const FEWEST: usize = 4;
    let service = store.existing_service().ok()??;
    let text = text.to_ascii_lowercase();
    let start = match text.parse::<RunId>() {
        Ok(run) => service.start_of(run).ok()?.filter(|_| store.run(run).is_err()),
        Err(_) if text.len() < FEWEST => None,
        Err(_) => {
            let mut starts = service.starts_without_run(UNBEGUN).ok()?.into_iter();
            starts.find(|start| start.run.to_string().ends_with(&text))
        }
    };
    Some(Unbegun::from_start(&service, start?))
}

/// The latest `count` runs, without the runs of lobster's self-checks.
fn latest_runs(store: &Store, name: Option<&str>, count: usize) -> Result<Vec<RunSummary>, CommandError> {
    let mut found = Vec::new();
    let mut filter =
        RunFilter { name: name.map(str::to_owned), limit: count.max(PAGE), ..RunFilter::default() };
    loop {
        let page = store.list_runs(&filter)?;
        filter.before = page.last().map(|run| run.id);
        let is_last = page.len() < filter.limit;
        found.extend(page.into_iter().filter(|run| name.is_some() || run.name != doctor::PROBE));
        if is_last || found.len() >= count {
            found.truncate(count);
            return Ok(found);
        }
    }
}

/// The same for a text that may be missing: then a person at a terminal chooses.
pub(crate) fn run_or_ask(store: &Store, text: Option<&str>, verb: &str) -> Result<RunId, CommandError> {
    match text {
        Some(text) => run(store, text),
        None => pick_run(store, verb, |_| true),
    }
}

/// Parses `@`, `@-`, `@-2`, `triage@-` into the number of runs to go back and the name. The last run is
/// `@`; the last run of a name is `NAME@` or `NAME@-`.
fn parse_reference(text: &str) -> Option<(Option<&str>, usize)> {
    let (name, back) = text.rsplit_once('@')?;
    let back = match back {
        "" => 0,
        "-" => 1,
        _ => back.strip_prefix('-')?.parse().ok().filter(|back| (1..=MAX_BACK).contains(back))?,
    };
    match name {
        "" => Some((None, back)),
        name => Some((Some(name), back.saturating_sub(1))),
    }
}

/// True if a person can choose.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Lets the person at the terminal choose one of the latest runs.
pub(crate) fn pick_run(
    store: &Store,
    verb: &str,
    fits: impl Fn(Standing) -> bool,
) -> Result<RunId, CommandError> {
    if !can_ask() {
        return Err(CommandError::usage(format!("{verb} needs a run"))
            .with_hint("@ is the last one, @- the one before; `lobster runs` lists them"));
    }
    let mut found: Vec<(RunSummary, Standing)> = Vec::new();
    for run in latest_runs(store, None, 100)? {
        let status = read_standing(store, &run);
        if fits(status) {
            found.push((run, status));
        }
        if found.len() == CHOICES {
            break;
        }
    }
    let rows: Vec<Vec<String>> = found
        .iter()
        .map(|(run, status)| {
            vec![run.id.short_id(), status.to_string(), units::format_age(run.started_at), run.name.clone()]
        })
        .collect();
    let chosen = pick_row(&rows, &format!("Which run should `{verb}` take?"))?;
    Ok(found[chosen].0.id)
}

/// The steps that a run executed, in their order.
pub(crate) fn executed_steps(store: &Store, run: RunId) -> Result<Vec<String>, StoreError> {
    let mut paths: Vec<String> = Vec::new();
    for record in store.found_events(run)?.0 {
        match &record.event {
            Event::StepStarted { path, .. } | Event::StepEnded { path, .. }
                if !path.contains('!') && !paths.contains(path) =>
            {
                paths.push(path.clone());
            }
            _ => {}
        }
    }
    Ok(paths)
}

/// The step of a run; if it is missing, a person at a terminal is asked.
pub(crate) fn step_or_ask(
    store: &Store,
    run: RunId,
    text: Option<&str>,
    verb: &str,
) -> Result<String, CommandError> {
    match text {
        Some(text) => Ok(text.to_owned()),
        None if !can_ask() => Err(CommandError::usage(format!("{verb} needs a step"))
            .with_hint(format!("`lobster show {}` lists the steps of the run", run.short_id()))),
        None => {
            let mut steps = executed_steps(store, run)?;
            let rows: Vec<Vec<String>> = steps.iter().map(|step| vec![step.clone()]).collect();
            Ok(steps.swap_remove(pick_row(&rows, &format!("Which step should `{verb}` take?"))?))
        }
    }
}

/// The workflow files of a directory, by name.
pub(crate) fn workflow_files(folder: &Path) -> Vec<PathBuf> {
    /// Most files that are listed and searched.
    const MOST: usize = 1000;
    let entries = folder.read_dir().into_iter().flatten().flatten().take(MOST);
    let files = entries.map(|entry| entry.path());
    let mut files: Vec<PathBuf> = files
        .filter(|path| path.extension().is_some_and(|e| e == "lobster") && path.is_file())
        .map(|path| path.strip_prefix("./").map(Path::to_owned).unwrap_or(path))
        .collect();
    files.sort();
    files
}

/// Lets the person at the terminal choose a workflow file of this directory.
pub(crate) fn pick_file(verb: &str) -> Result<PathBuf, CommandError> {
    let mut files = workflow_files(Path::new("."));
    if !can_ask() || files.is_empty() {
        let error = CommandError::usage(format!("{verb} needs a workflow file"));
        let names: Vec<String> = files.iter().take(3).map(|file| file.display().to_string()).collect();
        return Err(match names.is_empty() {
            true => error.with_hint("this directory has none; `lobster init` writes a first one"),
            false => error.with_hint(format!("in this directory: {}", names.join(", "))),
        });
    }
    let rows: Vec<Vec<String>> = files.iter().map(|file| vec![file.display().to_string()]).collect();
    Ok(files.swap_remove(pick_row(&rows, &format!("Which file should `{verb}` take?"))?))
}

/// Writes a prompt as a whole: what a person types cannot appear in the middle of it.
fn show_prompt(prompt: &str) -> io::Result<()> {
    let mut err = io::stderr().lock();
    err.write_all(prompt.as_bytes())?;
    err.flush()
}

/// Asks on stderr and reads the next line, or fails with `without` at the end of input.
fn read_answer(question: &str, without: &str) -> Result<String, CommandError> {
    show_prompt(&format!("{question} "))?;
    let mut answer = String::new();
    if io::stdin().lock().read_line(&mut answer)? == 0 {
        print_to_stderr("");
        return Err(CommandError::usage(without));
    }
    Ok(answer)
}

/// Asks the person at the terminal until the text is accepted.
pub(crate) fn ask_text<T>(
    question: &str,
    accept: impl Fn(&str) -> Result<T, String>,
) -> Result<T, CommandError> {
    loop {
        let answer = read_answer(&one_line(question), "nothing was typed")?;
        match accept(answer.trim()) {
            Ok(accepted) => return Ok(accepted),
            Err(why) => print_to_stderr(&format!("{}: {why}", one_line(answer.trim()))),
        }
    }
}

/// Lets a person choose a row by its number; an empty answer is the first.
pub(crate) fn pick_row(rows: &[Vec<String>], question: &str) -> Result<usize, CommandError> {
    if rows.is_empty() {
        return Err(CommandError::usage("there is nothing to choose from"));
    }
    for (index, line) in table::align_rows(rows).into_iter().enumerate() {
        print_to_stderr(&format!("{:>3}  {line}", index + 1));
    }
    loop {
        let answer = read_answer(&format!("{} [1]", one_line(question)), "nothing was chosen")?;
        let chosen = match answer.trim() {
            "" => Some(1),
            "q" => return Err(CommandError::usage("nothing was chosen")),
            number => number.parse::<usize>().ok(),
        };
        match chosen.filter(|number| (1..=rows.len()).contains(number)) {
            Some(number) => return Ok(number - 1),
            None => print_to_stderr(&format!("Type a number from 1 to {}, or q to leave.", rows.len())),
        }
    }
}

/// True if the person at the terminal answers yes; any other answer means no.
pub(crate) fn ask_yes_no(question: &str) -> Result<bool, CommandError> {
    show_prompt(&format!("{question} [y/N] "))?;
    Ok(reads_yes()?)
}

/// True if the next line of stdin is yes.
pub(crate) fn reads_yes() -> io::Result<bool> {
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// Lets a person choose one of the values of an option, each with its help.
pub(crate) fn pick_value<T: ValueEnum + Copy>(question: &str) -> Result<T, CommandError> {
    let values = T::value_variants();
    let row = |value: PossibleValue| {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        vec![value.get_name().to_owned(), help]
    };
    let rows: Vec<_> = values.iter().filter_map(T::to_possible_value).map(row).collect();
    Ok(values[pick_row(&rows, question)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_run_is_at_and_older_ones_are_counted_from_it() {
        assert_eq!(parse_reference("@"), Some((None, 0)));
        assert_eq!(parse_reference("@-"), Some((None, 1)));
        assert_eq!(parse_reference("@-2"), Some((None, 2)));
        assert_eq!(parse_reference("triage@"), Some((Some("triage"), 0)));
        assert_eq!(parse_reference("triage@-"), Some((Some("triage"), 0)));
        assert_eq!(parse_reference("a b@c@-3"), Some((Some("a b@c"), 2)));
        for none in ["", "018f", "@x", "@--", "@-0", "@-x", "@-99999999", "a@b"] {
            assert_eq!(parse_reference(none), None, "{none}");
        }
    }
}
