//! What the pages of a run are made of. A journal is read once: a run that goes on is read on from where it was
//! read to, and what was read before is hashed each time, so that a page never shows a record that is not there.

use std::sync::{Arc, Mutex};

use lobster_runtime::digest::Digest;
use lobster_runtime::figures;
use lobster_runtime::language::plan::Plan;
use lobster_runtime::model::cost::{Ledger, Payment};
use lobster_runtime::replay::changes::tells_changes;
use lobster_runtime::replay::failure_after;
use lobster_runtime::replay::timeline::{Line, Timeline};
use lobster_runtime::runtime::recorded;
use lobster_runtime::store::{BrokenChain, ReadOn, ReadTo, Record, RunId, StepOutcome, Store, StoreError};
use lobster_runtime::sync::lock;
use serde_json::Value;

use crate::cache::Cache;

/// Bytes that the views of runs may take: some ten runs of 2,000 steps.
const VIEWS: usize = 16 << 20;

/// Bytes of text of the plans that are kept; in memory they take some four times as much.
const PLANS: usize = 1 << 20;

/// About what a view without lines takes.
const EMPTY: usize = 1024;

static RUNS: Cache<RunId, Arc<Mutex<Known>>> = Cache::new(VIEWS);

static PARSED: Cache<Digest, Arc<Plan>> = Cache::new(PLANS);

/// A run as its pages show it. Its lines have no values, decisions and statements: [`of_step`] reads those.
#[derive(Debug, Default)]
pub(crate) struct View {
    pub(crate) lines: Vec<Line>,
    /// The innermost step that failed last.
    pub(crate) failed: Option<(String, StepOutcome)>,
    /// What models were paid for.
    pub(crate) payments: Vec<Payment>,
    /// The numbers of the records that tell what steps changed in files.
    pub(crate) changes: Vec<u64>,
    /// Where the journal stops being a chain. What is left of it is shown.
    pub(crate) broken: Option<BrokenChain>,
}

/// A journal as far as it was read.
#[derive(Clone, Default)]
struct Reading {
    timeline: Timeline,
    ledger: Ledger,
    failed: Option<(String, StepOutcome)>,
    changes: Vec<u64>,
}

/// What is known of a run.
#[derive(Default)]
struct Known {
    read: ReadTo,
    /// Of a run that is over there is nothing to go on with: it is read anew if it is taken up again.
    reading: Option<Reading>,
    /// With whether it was made for a run that is executed.
    view: Option<(bool, Arc<View>)>,
}

impl Reading {
    fn read(&mut self, record: &Record) {
        if let Some(line) = self.timeline.read(record) {
            slim(line);
        }
        self.ledger.read(record);
        let last = self.failed.as_ref().map(|(path, _)| path.as_str());
        if let Some((path, outcome)) = failure_after(last, &record.event) {
            self.failed = Some((path.to_owned(), outcome.clone()));
        }
        if tells_changes(record) {
            self.changes.push(record.seq);
        }
    }

    fn view(self, is_running: bool) -> View {
        View {
            lines: self.timeline.lines(is_running),
            failed: self.failed,
            payments: self.ledger.payments().collect(),
            changes: self.changes,
            broken: None,
        }
    }
}

/// Drops what is large and what only the page of the step itself shows.
fn slim(line: &mut Line) {
    line.decision = Value::Null;
    if let Some(outcome) = &mut line.outcome {
        outcome.value = Value::Null;
        outcome.detail = Value::Null;
        if !outcome.enforcement.is_string() {
            outcome.enforcement =
                figures::enforcement(&outcome.enforcement).map_or(Value::Null, Value::String);
        }
    }
}

/// What held a step of a view, in a few words.
pub(crate) fn enforced(outcome: &StepOutcome) -> Option<&str> {
    outcome.enforcement.as_str()
}

/// Whether a journal of so many records has not been read yet and takes a while.
pub(crate) fn takes_a_while(run: RunId, records: u64) -> bool {
    /// Read in some milliseconds.
    const FEW: u64 = 500;
    records > FEW && RUNS.get(&run).is_none()
}

/// The view of a run.
///
/// # Errors
/// When there is no such run, or the database cannot be read.
pub(crate) fn of_run(store: &Store, run: RunId, is_running: bool) -> Result<Arc<View>, StoreError> {
    let shared = RUNS.get(&run).unwrap_or_else(|| {
        let new: Arc<Mutex<Known>> = Arc::default();
        RUNS.put(run, Arc::clone(&new), EMPTY);
        new
    });
    // Of two pages of a run, one waits for what the other one reads.
    let mut known = lock(&shared);
    let found = known.bring_up_to_date(store, run, is_running);
    if found.is_err() {
        *known = Known::default();
    }
    let size = known.size();
    drop(known);
    RUNS.put(run, shared, size);
    match found {
        Err(StoreError::BrokenChain { .. }) => {
            let (journal, broken) = store.found_events(run)?;
            let mut reading = Reading::default();
            journal.iter().for_each(|record| reading.read(record));
            Ok(Arc::new(View { broken, ..reading.view(is_running) }))
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
                reading.read(&record);
            }
        })?;
        match (found, reading) {
            (ReadOn::To(_), reading) if is_same && made_for == is_running => {
                self.reading = reading;
                Ok(view)
            }
            (ReadOn::To(read), Some(reading)) => {
                self.read = read;
                Ok(self.keep(reading, is_running))
            }
            (ReadOn::To(_), None) | (ReadOn::Other, _) => self.read_anew(store, run, is_running),
        }
    }

    fn read_anew(&mut self, store: &Store, run: RunId, is_running: bool) -> Result<Arc<View>, StoreError> {
        *self = Self::default();
        let mut reading = Reading::default();
        if let ReadOn::To(read) = store.read_on(run, self.read, |record| reading.read(&record))? {
            self.read = read;
        }
        Ok(self.keep(reading, is_running))
    }

    fn keep(&mut self, reading: Reading, is_running: bool) -> Arc<View> {
        self.reading = is_running.then(|| reading.clone());
        let view = Arc::new(reading.view(is_running));
        self.view = Some((is_running, Arc::clone(&view)));
        view
    }

    /// About how many bytes it takes.
    fn size(&self) -> usize {
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

/// One step of a run with all that its records say, if the run has it.
///
/// # Errors
/// When the database cannot be read.
pub(crate) fn of_step(
    store: &Store,
    run: RunId,
    (view, path): (&View, &str),
    is_running: bool,
) -> Result<Option<Line>, StoreError> {
    let Some(line) = view.lines.iter().find(|line| line.path == path) else { return Ok(None) };
    let mut timeline = Timeline::default();
    for record in store.events_at(run, &line.records)? {
        timeline.read(&record);
    }
    Ok(timeline.lines(is_running).pop())
}

/// A plan of the record, if it can be read.
pub(crate) fn plan(store: &Store, digest: &Digest) -> Option<Arc<Plan>> {
    if let Some(plan) = PARSED.get(digest) {
        return Some(plan);
    }
    let plan = Arc::new(recorded::<Plan>(store, digest).ok()?);
    let size = store.blob_len(digest).ok().flatten().and_then(|len| usize::try_from(len).ok());
    PARSED.put(*digest, Arc::clone(&plan), size.unwrap_or(usize::MAX));
    Some(plan)
}
