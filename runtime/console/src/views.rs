//! The data of a run's pages. A journal is parsed once: if a run continues, only its new records are parsed. The
//! earlier records are hashed each time, so that a page never shows a record that is not there.

use std::sync::{Arc, Mutex};

use lobster_runtime::digest::Digest;
use lobster_runtime::figures;
use lobster_runtime::language::plan::Plan;
use lobster_runtime::model::cost::{Ledger, Payment};
use lobster_runtime::replay::changes::tells_changes;
use lobster_runtime::replay::failure_after;
use lobster_runtime::replay::timeline::{Line, Timeline};
use lobster_runtime::runtime::load_recorded;
use lobster_runtime::store::{BrokenChain, ReadOn, ReadTo, Record, RunId, StepOutcome, Store, StoreError};
use lobster_runtime::sync::lock;
use serde_json::Value;

use crate::cache::Cache;

/// Bytes that the views of runs may take: about ten runs of 2,000 steps.
const VIEWS: usize = 16 << 20;

/// Bytes of text of the cached plans; in memory they take about four times as much.
const PLANS: usize = 1 << 20;

/// Approximate size of a view without lines.
const EMPTY: usize = 1024;

static RUNS: Cache<RunId, Arc<Mutex<Known>>> = Cache::new(VIEWS);

static PARSED: Cache<Digest, Arc<Plan>> = Cache::new(PLANS);

/// The data of a run's pages. Its lines have no values, decisions and statements; [`of_step`] reads those.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) lines: Vec<Line>,
    /// The innermost step of the last failure.
    pub(crate) failed: Option<(String, StepOutcome)>,
    /// Payments for model calls.
    pub(crate) payments: Vec<Payment>,
    /// The numbers of the records with changes to files.
    pub(crate) changes: Vec<u64>,
    /// The place where the journal's chain breaks. The rest is still shown.
    pub(crate) broken: Option<BrokenChain>,
}

/// The part of a journal that has been read.
#[derive(Clone, Default)]
struct Reading {
    timeline: Timeline,
    ledger: Ledger,
    failed: Option<(String, StepOutcome)>,
    changes: Vec<u64>,
}

/// Cached data of a run.
#[derive(Default)]
struct Known {
    read: ReadTo,
    /// None for a run that is over: if it is resumed, it is read from the beginning.
    reading: Option<Reading>,
    /// The view, and true if it was made while the run was executing.
    view: Option<(bool, Arc<View>)>,
}

impl Reading {
    fn read_record(&mut self, record: &Record) {
        if let Some(line) = self.timeline.add_record(record) {
            drop_details(line);
        }
        self.ledger.read_record(record);
        let last = self.failed.as_ref().map(|(path, _)| path.as_str());
        if let Some((path, outcome)) = failure_after(last, &record.event) {
            self.failed = Some((path.to_owned(), outcome.clone()));
        }
        if tells_changes(record) {
            self.changes.push(record.seq);
        }
    }

    fn into_view(self, is_running: bool) -> View {
        View {
            lines: self.timeline.into_lines(is_running),
            failed: self.failed,
            payments: self.ledger.payments().collect(),
            changes: self.changes,
            broken: None,
        }
    }
}

/// Drops large data that only the step's own page shows.
fn drop_details(line: &mut Line) {
    line.decision = Value::Null;
    if let Some(outcome) = &mut line.outcome {
        outcome.value = Value::Null;
        outcome.detail = Value::Null;
        if !outcome.enforcement.is_string() {
            outcome.enforcement =
                figures::summarize_enforcement(&outcome.enforcement).map_or(Value::Null, Value::String);
        }
    }
}

/// A summary of a step's enforcement.
pub(crate) fn enforcement_summary(outcome: &StepOutcome) -> Option<&str> {
    outcome.enforcement.as_str()
}

/// True if a journal of this length has not been read yet and would take a while.
pub(crate) fn takes_a_while(run: RunId, records: u64) -> bool {
    /// Number of records that are read in a few milliseconds.
    const FEW: u64 = 500;
    records > FEW && RUNS.get(&run).is_none()
}

/// Returns the view of a run.
///
/// # Errors
/// Fails if the run does not exist, or if the database cannot be read.
pub(crate) fn of_run(store: &Store, run: RunId, is_running: bool) -> Result<Arc<View>, StoreError> {
    let shared = RUNS.get(&run).unwrap_or_else(|| {
        let new: Arc<Mutex<Known>> = Arc::default();
        RUNS.put(run, Arc::clone(&new), EMPTY);
        new
    });
    // If two pages of a run are requested, one waits for the other's reading.
    let mut known = lock(&shared);
    let found = known.bring_up_to_date(store, run, is_running);
    if found.is_err() {
        *known = Known::default();
    }
    let size = known.approximate_size();
    drop(known);
    RUNS.put(run, shared, size);
    match found {
        Err(StoreError::BrokenChain { .. }) => {
            let (journal, broken) = store.found_events(run)?;
            let mut reading = Reading::default();
            journal.iter().for_each(|record| reading.read_record(record));
            Ok(Arc::new(View { broken, ..reading.into_view(is_running) }))
        }
        found => found,
    }
}

impl Known {
    fn bring_up_to_date(
        &mut self,
        store: &Store,
        run: RunId,
        is_running: bool,
    ) -> Result<Arc<View>, StoreError> {
        let Some((made_for, view)) = self.view.clone() else { return self.read_anew(store, run, is_running) };
        let mut reading = self.reading.take();
        let mut is_same = true;
        let found = store.read_on(run, self.read, |record| {
            is_same = false;
            if let Some(reading) = &mut reading {
                reading.read_record(&record);
            }
        })?;
        match (found, reading) {
            (ReadOn::To(_), reading) if is_same && made_for == is_running => {
                self.reading = reading;
                Ok(view)
            }
            (ReadOn::To(read), Some(reading)) => {
                self.read = read;
                Ok(self.store_view(reading, is_running))
            }
            (ReadOn::To(_), None) | (ReadOn::Other, _) => self.read_anew(store, run, is_running),
        }
    }

    fn read_anew(&mut self, store: &Store, run: RunId, is_running: bool) -> Result<Arc<View>, StoreError> {
        *self = Self::default();
        let mut reading = Reading::default();
        if let ReadOn::To(read) = store.read_on(run, self.read, |record| reading.read_record(&record))? {
            self.read = read;
        }
        Ok(self.store_view(reading, is_running))
    }

    fn store_view(&mut self, reading: Reading, is_running: bool) -> Arc<View> {
        self.reading = is_running.then(|| reading.clone());
        let view = Arc::new(reading.into_view(is_running));
        self.view = Some((is_running, Arc::clone(&view)));
        view
    }

    /// Approximate size in bytes.
    fn approximate_size(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let of = |line: &Line| {
            let outcome = line.outcome.as_ref().map_or(0, |outcome| {
                text(&outcome.error) + text(&outcome.code) + outcome.enforcement.as_str().map_or(0, str::len)
            });
            size_of::<Line>()
                + line.path.len()
                + 8 * line.records.len()
                + 24 * line.spans.len()
                + 64
                + outcome
        };
        let lines = self.view.as_ref().map_or(0, |(_, view)| view.lines.iter().map(of).sum());
        EMPTY + if self.reading.is_some() { 2 * lines } else { lines }
    }
}

/// Returns one step of a run with all data of its records, if the run has it.
///
/// # Errors
/// Fails if the database cannot be read.
pub(crate) fn of_step(
    store: &Store,
    run: RunId,
    (view, path): (&View, &str),
    is_running: bool,
) -> Result<Option<Line>, StoreError> {
    let Some(line) = view.lines.iter().find(|line| line.path == path) else { return Ok(None) };
    let mut timeline = Timeline::default();
    for record in store.events_at(run, &line.records)? {
        timeline.add_record(&record);
    }
    Ok(timeline.into_lines(is_running).pop())
}

/// Returns a plan of the record, if it can be read.
pub(crate) fn load_plan(store: &Store, digest: &Digest) -> Option<Arc<Plan>> {
    if let Some(plan) = PARSED.get(digest) {
        return Some(plan);
    }
    let plan = Arc::new(load_recorded::<Plan>(store, digest).ok()?);
    let size = store.blob_len(digest).ok().flatten().and_then(|len| usize::try_from(len).ok());
    PARSED.put(*digest, Arc::clone(&plan), size.unwrap_or(usize::MAX));
    Some(plan)
}
