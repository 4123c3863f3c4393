//! Finds the failed step of a run and its position in the file.

use lobster_base::place::{is_within, step_id};
use lobster_engine::recorded_plan::load_recorded;
use lobster_language::plan::{Plan, Workflow};
use lobster_language::source::Source;
use lobster_store::{Event, Record, RunId, StepOutcome, StepStatus, Store};

/// Position of a step in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPlace {
    /// The name of the file.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// The lines of the file around it, each with its number.
    pub around: Vec<(usize, String)>,
}

/// The innermost step that failed last.
#[must_use]
pub fn failed_step(records: &[Record]) -> Option<(&str, &StepOutcome)> {
    let mut last: Option<(&str, &StepOutcome)> = None;
    for record in records {
        if let Some((path, outcome)) = failure_after(last.map(|(path, _)| path), &record.event) {
            last = Some((path, outcome));
        }
    }
    last
}

/// The step that failed according to an event, unless it failed only because of the inner step that failed
/// `last`.
#[must_use]
pub fn failure_after<'e>(last: Option<&str>, event: &'e Event) -> Option<(&'e str, &'e StepOutcome)> {
    let Event::StepEnded { path, outcome, .. } = event else { return None };
    if !matches!(outcome.status, StepStatus::Failed | StepStatus::TimedOut | StepStatus::Refused) {
        return None;
    }
    // A loop or branch that fails because of an inner step has no error of its own.
    let is_around = last.is_some_and(|inner| inner != path && is_within(inner, path));
    (!is_around).then_some((path.as_str(), outcome))
}

/// Position of a step of a run, if its file is still the one that was run.
#[must_use]
pub fn place_of_step(store: &Store, run: RunId, path: &str) -> Option<StepPlace> {
    place_in_plan(&load_recorded::<Plan>(store, &store.run(run).ok()?.plan).ok()?, path)
}

/// Position of a step of a plan, if the file is unchanged since the plan was made.
#[must_use]
pub fn place_in_plan(plan: &Plan, path: &str) -> Option<StepPlace> {
    match plan {
        Plan::Workflow(workflow) => place_in(workflow, path),
        Plan::Pipeline(_) => None,
    }
}

/// Lines to show before and after a step.
const AROUND: usize = 3;

fn place_in(workflow: &Workflow, path: &str) -> Option<StepPlace> {
    let id = step_id(path);
    let mut found = workflow.all_steps().into_iter().filter(|step| step.id == id);
    let (Some(step), None) = (found.next(), found.next()) else {
        return workflow.children.values().find_map(|child| place_in(child, path));
    };
    let bytes = std::fs::read(&workflow.file).ok()?;
    let source = Source::new(workflow.file.file_name()?.to_string_lossy(), &workflow.file, &bytes);
    if source.digest != workflow.source {
        return None;
    }
    let line = source.line_and_column(step.span.start).0;
    let text = String::from_utf8_lossy(&bytes);
    let around = text
        .lines()
        .enumerate()
        .map(|(at, text)| (at + 1, text.to_owned()))
        .filter(|(at, _)| at + AROUND >= line && *at <= line + AROUND)
        .collect();
    Some(StepPlace { file: source.name, line, around })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestState, workflow_text};

    #[test]
    fn the_step_is_found_whatever_its_id() {
        let place = TestState::new();
        let run = place.run(&workflow_text(
            "name: ids\nsteps:\n  - id: 100%\n    run: exit 0\n  - id: list\n    run: echo '[1]'\n  - id: each\n    for_each: $list.json\n    steps:\n      - id: a/b\n        run: exit 3\n",
        ));
        let store = place.runtime.store().unwrap();
        let run = run.parse().unwrap();
        let events = store.all_events(run).unwrap();
        let (failed, _) = failed_step(&events).unwrap();
        assert_eq!(failed, "each[0]/a%2Fb");
        let found = |path: &str| place_of_step(&store, run, path).map(|place| place.line);
        assert_eq!((found(failed), found("100%25#2")), (Some(10), Some(3)));
    }
}
