//! The state of a running run: a line for each step of the workflow, with counts of the steps inside
//! it. Built from events alone, so that the same events give the same lines.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use lobster_runtime::engine::Heard;
use lobster_runtime::language::plan::{Plan, Step, Work};
use lobster_runtime::replay::place::step_id;
use lobster_runtime::store::{Event, GateAnswer, StepOutcome, StepStatus};
use serde_json::Value;

/// The state of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mark {
    #[default]
    Running,
    Ok,
    /// Its result was reused: from the action cache, or from the run that this one was forked from.
    Reused,
    Skipped,
    Failed,
    /// A person rejected it.
    Rejected,
    /// Waiting for an answer.
    Waiting,
    /// Stopped because the run ended.
    Stopped,
}

/// One step of the workflow, including everything inside it.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) name: String,
    /// Its work, according to the plan or its kind.
    pub(super) what: String,
    pub(super) mark: Mark,
    pub(super) begun: Duration,
    pub(super) took: Option<Duration>,
    /// Bytes of its effects' results.
    pub(super) bytes: u64,
    /// The reason of its failure, or its answer.
    pub(super) note: Option<String>,
    /// The reason of the latest failure inside it, shown only if it fails itself.
    failure: Option<String>,
    /// Counted from 1.
    pub(super) attempt: u32,
    pub(super) fold: Option<Fold>,
    /// Running steps inside it, each with its place.
    running: Vec<String>,
    /// The latest line on stderr.
    words: String,
    effects: usize,
    reused: usize,
    /// The result of its latest own effect.
    last: Option<StepStatus>,
    /// It ended before this process continued the run.
    pub(super) is_earlier: bool,
}

/// A step with inner steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Fold {
    pub(super) kind: FoldKind,
    /// Steps in each round.
    per_round: usize,
    /// The total number of rounds or branches, if it is known.
    pub(super) all: Option<usize>,
    /// Finished inner steps.
    steps: usize,
    pub(super) failed: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum FoldKind {
    #[default]
    Steps,
    Branches,
    Rounds,
}

impl Fold {
    pub(super) fn rounds_done(&self) -> usize {
        self.steps / self.per_round.max(1)
    }
}

impl Line {
    fn new(name: &str, now: Duration) -> Self {
        Self { name: name.to_owned(), begun: now, attempt: 1, ..Self::default() }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.mark != Mark::Running
    }

    /// The inner step that began last, without the name of the line.
    pub(super) fn inner_step(&self) -> Option<Cow<'_, str>> {
        let place = self.running.last()?.strip_prefix(self.name.as_str())?;
        let name = step_id(place);
        (place.contains('/') && !name.is_empty()).then_some(name)
    }

    /// The latest line that it wrote to stderr.
    pub(super) fn stderr_line(&self) -> Option<&str> {
        Some(self.words.trim()).filter(|words| !words.is_empty() && !self.has_ended())
    }

    fn take_attempt(&mut self, attempt: u32) {
        if attempt <= self.attempt {
            return;
        }
        self.attempt = attempt;
        (self.bytes, self.effects, self.reused) = (0, 0, 0);
        (self.last, self.note, self.failure) = (None, None, None);
        if let Some(fold) = &mut self.fold {
            (fold.steps, fold.failed) = (0, 0);
        }
    }

    fn record_outcome(&mut self, outcome: &StepOutcome, now: Duration) {
        self.mark = match outcome.status {
            StepStatus::Ok if self.effects > 0 && self.reused == self.effects => Mark::Reused,
            StepStatus::Ok => Mark::Ok,
            StepStatus::Skipped => Mark::Skipped,
            StepStatus::Waiting => Mark::Waiting,
            StepStatus::Failed | StepStatus::TimedOut | StepStatus::Refused => Mark::Failed,
            StepStatus::Interrupted | StepStatus::Cancelled => Mark::Stopped,
        };
        if self.mark == Mark::Failed {
            let failure = self.failure.take().unwrap_or_else(|| failure_reason(outcome));
            self.note = self.note.take().or(Some(failure));
        }
        self.took = Some(match outcome.duration_us {
            0 => now.saturating_sub(self.begun),
            us => Duration::from_micros(us),
        });
        self.running.clear();
    }
}

/// The reason of a failure, in few words.
fn failure_reason(outcome: &StepOutcome) -> String {
    match (outcome.status, &outcome.code, outcome.exit, &outcome.error) {
        (StepStatus::TimedOut, ..) => "timeout".to_owned(),
        (_, Some(code), ..) => code.clone(),
        (_, None, Some(exit), _) if exit != 0 => format!("exit {exit}"),
        (_, None, _, Some(error)) => error.lines().next().unwrap_or_default().to_owned(),
        (_, None, _, None) => "failed".to_owned(),
    }
}

/// The totals of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) fuel: u64,
    pub(super) usd: Option<f64>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    lines: Vec<Line>,
    at: HashMap<String, usize>,
    outline: HashMap<String, (String, Option<Fold>)>,
    /// Places whose results are about to be reused.
    taken_over: Vec<String>,
    is_pipeline: bool,
    pub(super) sums: Sums,
}

/// The step that contains a place, and the rest of the path.
fn split_place(place: &str) -> (&str, &str) {
    place.split_at(place.find(['/', '[', '#', '|', '!']).unwrap_or(place.len()))
}

/// The attempt of the step, and the rest inside it.
fn split_attempt(rest: &str) -> (u32, &str) {
    let Some(after) = rest.strip_prefix('#') else { return (1, rest) };
    let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
    (after[..end].parse().unwrap_or(1), &after[end..])
}

/// True for a direct child, `/x` or `[3]/x`.
fn is_child(inside: &str) -> bool {
    let step = match inside.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, step)) => step,
        None => inside,
    };
    step.strip_prefix('/').is_some_and(|name| !name.contains(['/', '[', '|', '!', '#']))
}

impl Model {
    /// The steps in the order in which they began.
    pub(super) fn lines(&self) -> &[Line] {
        &self.lines
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// True if the lines stay on the screen at the end; the text of a pipeline is there already.
    pub(super) fn is_lasting(&self) -> bool {
        !self.is_pipeline
    }

    /// The columns of the longest name.
    pub(super) fn widest_name(&self) -> usize {
        let names =
            self.lines.iter().map(|line| line.name.as_str()).chain(self.outline.keys().map(String::as_str));
        names.map(crate::render::text::display_width).max().unwrap_or(0)
    }

    /// Sets the plan.
    pub(super) fn set_plan(&mut self, plan: &Plan) {
        match plan {
            Plan::Pipeline(_) => self.is_pipeline = true,
            Plan::Workflow(workflow) => {
                self.outline = workflow
                    .steps
                    .iter()
                    .map(|step| (step.id.clone(), (step_summary(step), step_fold(step))))
                    .collect();
            }
        }
    }

    fn line_mut(&mut self, name: &str, now: Duration) -> &mut Line {
        let index = match self.at.get(name) {
            Some(index) => *index,
            None => {
                let mut line = Line::new(name, now);
                if let Some((what, fold)) = self.outline.get(name) {
                    line.what.clone_from(what);
                    line.fold.clone_from(fold);
                }
                self.lines.push(line);
                self.at.insert(name.to_owned(), self.lines.len() - 1);
                self.lines.len() - 1
            }
        };
        &mut self.lines[index]
    }

    /// Notes that something began at a place.
    pub(super) fn record_start(&mut self, place: &str, kind: &str, now: Duration) {
        let (name, rest) = split_place(place);
        let line = self.line_mut(name, now);
        line.take_attempt(split_attempt(rest).0);
        if line.is_earlier || line.has_ended() {
            // It failed and is retried.
            let (name, attempt) = (line.name.clone(), line.attempt);
            let (what, fold) = (line.what.clone(), line.fold.clone());
            *line = Line { what, fold, attempt, ..Line::new(&name, now) };
        }
        line.running.push(place.to_owned());
        if line.what.is_empty() {
            kind.clone_into(&mut line.what);
        }
    }

    pub(super) fn record_end(&mut self, place: &str) {
        if let Some(index) = self.at.get(split_place(place).0) {
            let line = &mut self.lines[*index];
            line.running.retain(|running| running != place);
        }
    }

    pub(super) fn count_rounds(&mut self, place: &str, count: usize, now: Duration) {
        let (name, rest) = split_place(place);
        let (attempt, inside) = split_attempt(rest);
        if !inside.is_empty() {
            return;
        }
        let line = self.line_mut(name, now);
        line.take_attempt(attempt);
        if let Some(fold) = &mut line.fold {
            fold.all = Some(count);
        }
    }

    /// Adds a report from a place.
    pub(super) fn record_report(&mut self, place: &str, heard: &Heard) {
        if let Some(index) = self.at.get(split_place(place).0) {
            self.lines[*index].words = heard.to_string();
        }
    }

    /// Adds an event of the journal.
    pub(super) fn record_event(&mut self, event: &Event, now: Duration) {
        match event {
            Event::StepStarted { path, detail, kind, .. } => {
                let (name, rest) = split_place(path);
                let line = self.line_mut(name, now);
                line.take_attempt(split_attempt(rest).0);
                if line.what.is_empty() {
                    kind.clone_into(&mut line.what);
                }
                if detail["reused"] == Value::Bool(true) {
                    self.taken_over.push(path.clone());
                }
            }
            Event::StepEnded { path, attempt: 0, outcome, .. } => self.end_step(path, outcome, now),
            Event::StepEnded { path, begun, outcome, .. } => {
                let from_begin =
                    begun.as_ref().is_some_and(|begun| begun.detail["reused"] == Value::Bool(true));
                let known = self.taken_over.iter().position(|taken| taken == path);
                let reused =
                    outcome.cached || from_begin || known.map(|at| self.taken_over.swap_remove(at)).is_some();
                self.record_effect(path, outcome, reused, now);
            }
            Event::GateAnswered { path, answer, by, .. } => {
                let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
                let word = match answer {
                    GateAnswer::Approved => "approved",
                    GateAnswer::ApprovedPart { .. } => "approved in part",
                    GateAnswer::Rejected => "rejected",
                    GateAnswer::Response(_) => "answered",
                };
                let line = self.line_mut(split_place(path).0, now);
                line.note = Some(format!("{word}{by}"));
                if *answer == GateAnswer::Rejected {
                    (line.mark, line.took) = (Mark::Rejected, None);
                }
            }
            Event::Note { path: None, text, detail } if text == "cost" => {
                self.sums.usd = detail["estimatedCostUsd"].as_f64();
            }
            Event::RunStarted { .. }
            | Event::RunResumed { .. }
            | Event::RunPaused { .. }
            | Event::RunEnded { .. }
            | Event::GateOpened { .. }
            | Event::GateClosed { .. }
            | Event::Decision { .. }
            | Event::RetryRequested { .. }
            | Event::Note { .. }
            | Event::Unknown(_) => {}
        }
    }

    /// Notes the end of a step.
    pub(super) fn end_step(&mut self, path: &str, outcome: &StepOutcome, now: Duration) {
        let (name, rest) = split_place(path);
        let line = self.line_mut(name, now);
        let (_, inside) = split_attempt(rest);
        // Earlier results are recalled from the journal, so the step ends again.
        if line.is_earlier {
            return;
        }
        if inside.is_empty() {
            line.record_outcome(outcome, now);
            return;
        }
        if let Some(fold) = line.fold.as_mut().filter(|_| is_child(inside)) {
            fold.steps += 1;
            fold.failed += usize::from(outcome.status == StepStatus::Failed);
        }
    }

    /// Notes the result of an effect, or of a pure step.
    fn record_effect(&mut self, path: &str, outcome: &StepOutcome, reused: bool, now: Duration) {
        // Internal effects of the engine, and questions.
        if path.contains('!') {
            return;
        }
        if let Some(fuel) = outcome.fuel.filter(|_| !reused) {
            self.sums.fuel = self.sums.fuel.saturating_add(fuel);
        }
        let (name, rest) = split_place(path);
        let line = self.line_mut(name, now);
        line.take_attempt(split_attempt(rest).0);
        line.effects += 1;
        line.reused += usize::from(reused);
        line.bytes += outcome.output.or(outcome.stdout).map_or(0, |blob| blob.len);
        line.last = Some(outcome.status);
        if matches!(outcome.status, StepStatus::Failed | StepStatus::TimedOut | StepStatus::Refused) {
            line.failure = Some(failure_reason(outcome));
        }
    }

    /// Notes that a question is open at this place.
    pub(super) fn wait_for_answer(&mut self, place: &str) {
        let name = split_place(place).0.to_owned();
        let line = self.line_mut(&name, Duration::ZERO);
        (line.mark, line.took, line.note) = (Mark::Waiting, None, None);
    }

    /// Marks everything so far as done before this process continued the run.
    pub(super) fn leave_to_earlier(&mut self) {
        self.sums = Sums::default();
        for line in self.lines.iter_mut().filter(|line| line.fold.is_none() && !line.has_ended()) {
            if line.last == Some(StepStatus::Ok) {
                line.mark = if line.reused == line.effects { Mark::Reused } else { Mark::Ok };
            }
        }
        // A step after a failed one shows that the failure was tolerated.
        let last = self.lines.len().saturating_sub(1);
        let mut index = 0;
        self.lines.retain(|line| {
            index += 1;
            let is_forgiven = line.mark == Mark::Failed && line.fold.is_none() && index <= last;
            is_forgiven || matches!(line.mark, Mark::Ok | Mark::Reused | Mark::Skipped)
        });
        self.at = self.lines.iter().enumerate().map(|(at, line)| (line.name.clone(), at)).collect();
        self.lines.iter_mut().for_each(|line| line.is_earlier = true);
        self.taken_over.clear();
    }

    /// Ends the run: steps without a recorded end failed, or were stopped with it.
    pub(super) fn end_run(&mut self, now: Duration) {
        for line in self.lines.iter_mut().filter(|line| !line.has_ended()) {
            let failed =
                matches!(line.last, Some(StepStatus::Failed | StepStatus::TimedOut | StepStatus::Refused));
            line.mark = if failed { Mark::Failed } else { Mark::Stopped };
            line.took = Some(now.saturating_sub(line.begun));
            line.running.clear();
        }
    }
}

/// The work of a step, in a few words of its author.
fn step_summary(step: &Step) -> String {
    let first = |text: &str| text.trim().lines().next().unwrap_or_default().trim().to_owned();
    match &step.work {
        Work::Nothing if step.approval.is_some() => "approval".to_owned(),
        Work::Nothing => String::new(),
        Work::Shell(text) | Work::Pipeline(text) => first(text),
        Work::Exec(words) => words.join(" "),
        Work::Workflow { path, .. } => path.clone(),
        Work::Component { component, .. } => component.clone(),
        Work::Mcp { tool, .. } => tool.clone(),
        Work::Js(_) => "js".to_owned(),
        Work::Parallel { .. } => "parallel".to_owned(),
        Work::ForEach { over, .. } => format!("for each of {over}"),
        Work::Repeat { until, .. } => format!("until {}", until.source_text()),
        Work::Switch { on, .. } => format!("switch {on}"),
        Work::Input(_) => "input".to_owned(),
        Work::Wait(wait) => format!("wait {}", wait.display_text()),
    }
}

fn step_fold(step: &Step) -> Option<Fold> {
    match &step.work {
        Work::Parallel { branches, .. } => Some(Fold {
            kind: FoldKind::Branches,
            per_round: 1,
            all: Some(branches.len()),
            ..Fold::default()
        }),
        // The number of rounds is not known yet.
        Work::ForEach { steps, .. } | Work::Repeat { steps, .. } => {
            Some(Fold { kind: FoldKind::Rounds, per_round: steps.len(), ..Fold::default() })
        }
        Work::Switch { .. } | Work::Workflow { .. } => {
            Some(Fold { kind: FoldKind::Steps, per_round: 1, ..Fold::default() })
        }
        Work::Nothing
        | Work::Shell(_)
        | Work::Pipeline(_)
        | Work::Exec(_)
        | Work::Component { .. }
        | Work::Mcp { .. }
        | Work::Js(_)
        | Work::Input(_)
        | Work::Wait(_) => None,
    }
}

#[cfg(test)]
mod tests;
