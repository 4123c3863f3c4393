//! A run's journal as lines: one for each place with an action or a question, and each below the place that
//! contains it.

use std::collections::{HashMap, HashSet};

use lobster_base::digest::Digest;
use lobster_base::place::{containing_places, is_later_attempt};
use lobster_store::{Event, GateAnswer, Record, StepOutcome, StepStatus};
use serde_json::Value;

/// One line of the timeline.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Place in the run.
    pub path: String,
    /// Number of enclosing places with lines.
    pub depth: usize,
    /// Kind of step, as in the journal.
    pub kind: String,
    /// Its state, with earlier attempts: `ok (failed twice before)`.
    pub state: String,
    /// Statuses of earlier failed attempts.
    earlier: Vec<StepStatus>,
    /// Digest of its action's pre-image.
    pub action: Option<Digest>,
    /// Decision of the policy.
    pub decision: Value,
    /// Outcome of its latest attempt.
    pub outcome: Option<StepOutcome>,
    /// True for the summary of a composite step, which is not an effect itself.
    pub summary: bool,
    /// Periods of activity, in order of their beginning.
    pub spans: Vec<TimelineSpan>,
    /// Numbers of its records.
    pub records: Vec<u64>,
}

/// A period of activity, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineSpan {
    /// Beginning.
    pub begun: i64,
    /// End; none while it lasts.
    pub ended: Option<i64>,
    /// True while a person was awaited and nothing ran.
    pub is_wait: bool,
}

/// State of a step that began and has no recorded end.
const STARTED: &str = "started";

impl Line {
    fn begin_attempt(&mut self, kind: &str, action: Option<Digest>, decision: &Value) {
        self.turn_over();
        kind.clone_into(&mut self.kind);
        STARTED.clone_into(&mut self.state);
        self.action = action;
        self.decision = decision.clone();
    }

    fn open_span(&mut self, begun: i64, is_wait: bool) {
        self.spans.push(TimelineSpan { begun, ended: None, is_wait });
    }

    fn close_span(&mut self, at: i64, duration_us: u64) {
        match self.spans.last_mut() {
            Some(span) if span.ended.is_none() => span.ended = Some(at),
            // A pure step is recorded when it has ended.
            _ => {
                let begun = at - i64::try_from(duration_us / 1000).unwrap_or(0);
                self.spans.push(TimelineSpan { begun, ended: Some(at), is_wait: false });
            }
        }
    }

    fn turn_over(&mut self) {
        let before = match self.outcome.take() {
            Some(outcome) => Some(outcome.status),
            None => (self.state == STARTED).then_some(StepStatus::Interrupted),
        };
        self.earlier.extend(before.filter(|status| match status {
            StepStatus::Failed
            | StepStatus::Interrupted
            | StepStatus::Cancelled
            | StepStatus::TimedOut
            | StepStatus::Refused => true,
            StepStatus::Ok | StepStatus::Skipped | StepStatus::Waiting => false,
        }));
    }

    fn end_attempt(&mut self, outcome: &StepOutcome, summary: bool) {
        if self.outcome.is_some() {
            self.turn_over();
        }
        self.state = match outcome {
            outcome if outcome.is_edited() => "edited".to_owned(),
            outcome if outcome.cached => "cached".to_owned(),
            outcome => outcome.status.to_string(),
        };
        self.summary = summary;
        if let Some(kind) =
            outcome.detail.get("kind").and_then(Value::as_str).filter(|_| self.kind.is_empty())
        {
            kind.clone_into(&mut self.kind);
        }
        self.outcome = Some(outcome.clone());
    }

    /// The state with the earlier attempts, `ok (failed twice before)`.
    fn tell_earlier(&mut self) {
        let mut told: Vec<String> = Vec::new();
        for how in StepStatus::ALL {
            let times = self.earlier.iter().filter(|status| **status == how).count();
            match times {
                0 => {}
                1 => told.push(how.to_string()),
                2 => told.push(format!("{how} twice")),
                _ => told.push(format!("{how} {times} times")),
            }
        }
        if !told.is_empty() {
            self.state = format!("{} ({} before)", self.state, told.join(", "));
        }
    }
}

/// Internal places of the engine, which are not steps of the workflow.
const KEPT: [&str; 8] =
    ["!event", "!identity", "!plan", "!shown", "!undo-plan", "!undo-result", "!wait", "!winner"];

/// The lines of a journal. If no process executes the run, steps without an end are shown as interrupted.
#[must_use]
pub fn build_lines(journal: &[Record], is_running: bool) -> Vec<Line> {
    let mut timeline = Timeline::default();
    for record in journal {
        timeline.add_record(record);
    }
    timeline.into_lines(is_running)
}

/// Builds the lines of a journal record by record.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    lines: Vec<Line>,
    at: HashMap<String, usize>,
}

impl Timeline {
    /// Reads the next record of the journal and returns the line to which it belongs. The caller may shrink
    /// the line's outcome and decision, because later records need only the outcome's status and error.
    pub fn add_record(&mut self, record: &Record) -> Option<&mut Line> {
        let path = record.event.step_path()?;
        if path.contains("!approved:") || KEPT.iter().any(|kept| path.ends_with(kept)) {
            return None;
        }
        let Self { lines, at } = self;
        let mut taken = None;
        add_event(record.at, &record.event, || {
            let index = at.get(path).copied().unwrap_or_else(|| {
                lines.push(Line { path: path.to_owned(), ..Line::default() });
                at.insert(path.to_owned(), lines.len() - 1);
                lines.len() - 1
            });
            taken = Some(index);
            lines[index].records.push(record.seq);
            &mut lines[index]
        });
        taken.map(|index| &mut lines[index])
    }

    /// The lines. If no process executes the run, steps without an end are shown as interrupted.
    #[must_use]
    pub fn into_lines(self, is_running: bool) -> Vec<Line> {
        let mut lines = self.lines;
        for line in &mut lines {
            if line.state == STARTED && !is_running {
                StepStatus::Interrupted.as_str().clone_into(&mut line.state);
            }
            line.tell_earlier();
        }
        nest_lines(lines)
    }
}

/// Adds an event if it belongs on a line.
fn add_event<'l>(at: i64, event: &Event, line: impl FnOnce() -> &'l mut Line) {
    match event {
        Event::StepStarted { kind, action, decision, .. } => {
            let line = line();
            line.begin_attempt(kind, *action, decision);
            line.open_span(at, false);
        }
        Event::StepEnded { outcome, attempt, begun, .. } => {
            let line = line();
            let summary = *attempt == 0;
            match &mut line.outcome {
                // The step's own effect is on this line already; its summary adds the reason for its failure.
                Some(known) if summary && !line.summary => {
                    known.error = known.error.take().or_else(|| outcome.error.clone());
                    return;
                }
                _ => {}
            }
            if let Some(begun) = begun {
                line.begin_attempt(&begun.kind, Some(begun.action), &begun.decision);
            }
            if !summary && !outcome.cached {
                line.close_span(at, outcome.duration_us);
            }
            line.end_attempt(outcome, summary);
        }
        Event::GateOpened { gate, kind, .. } => {
            let line = line();
            line.kind.clone_from(kind);
            line.state = format!("waiting ({gate})");
            line.open_span(at, true);
        }
        Event::GateAnswered { answer, by, from, gate, .. } => {
            let by = match (by, gate.as_str()) {
                (Some(by), _) => Some(format!(" by {by}")),
                // Gate name of questions at the terminal.
                (None, "terminal") => Some(" at the terminal".to_owned()),
                (None, _) => None,
            };
            let run = from.map(|run| format!(" in run {}", run.short_id()));
            let who: String = by.into_iter().chain(run).collect();
            let what = match answer {
                GateAnswer::Approved => "approved",
                GateAnswer::ApprovedPart { .. } => "approved in part",
                GateAnswer::Rejected => "rejected",
                GateAnswer::Response(_) => "answered",
            };
            let line = line();
            if line.kind.is_empty() {
                line.kind = if what == "answered" { "input" } else { "approval" }.to_owned();
            }
            line.state = format!("{what}{who}");
            if line.spans.last().is_some_and(|span| span.is_wait) {
                line.close_span(at, 0);
            }
        }
        Event::GateClosed { status, .. } => {
            let line = line();
            line.state = status.to_string();
            if line.spans.last().is_some_and(|span| span.is_wait) {
                line.close_span(at, 0);
            }
        }
        Event::Decision { decision, .. } => {
            let line = line();
            line.kind = "policy".to_owned();
            line.state = decision.get("verdict").and_then(Value::as_str).unwrap_or("decided").to_owned();
            line.decision = decision.clone();
        }
        Event::RunStarted { .. }
        | Event::RunResumed { .. }
        | Event::RunPaused { .. }
        | Event::RunEnded { .. }
        | Event::RetryRequested { .. }
        | Event::Note { .. }
        | Event::Unknown(_) => {}
    }
}

/// Number of a loop's round.
fn round_number(place: &str) -> Option<usize> {
    place.strip_suffix(']')?.rsplit_once('[')?.1.parse().ok()
}

/// Sorts inner places directly below outer ones, rounds by their numbers, and others by their beginning.
fn nest_lines(mut lines: Vec<Line>) -> Vec<Line> {
    let paths: Vec<String> = lines.iter().map(|line| line.path.clone()).collect();
    let mut first: HashMap<&str, usize> = HashMap::new();
    for (order, path) in paths.iter().enumerate() {
        for place in containing_places(path) {
            first.entry(place).or_insert(order);
        }
    }
    let own: HashSet<&str> = paths.iter().map(String::as_str).collect();
    for line in &mut lines {
        let around = containing_places(&line.path).filter(|place| own.contains(place)).count() - 1;
        let beside = is_later_attempt(&line.path)
            && line.path.rsplit_once('#').is_some_and(|(first, _)| own.contains(first));
        line.depth = around - usize::from(beside);
    }
    lines.sort_by_cached_key(|line| {
        let key: Vec<(usize, String)> = containing_places(&line.path)
            .map(|place| (round_number(place).unwrap_or(first[place]), place.to_owned()))
            .collect();
        key
    });
    lines
}
