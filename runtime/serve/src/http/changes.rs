//! Server-sent events with the runs that have new records, so that an open page knows when to reload. An event's id is
//! the number of the newest record in the store, so a client whose connection broke, or that slept, continues without a
//! gap.
//!
//! One task checks the store for all clients, and only while there are clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use lobster_runtime::json;
use lobster_runtime::store::RunId;
use lobster_runtime::sync::lock;
use serde_json::json;
use tokio::sync::{mpsc, watch};

use super::answer::workflow_of_run;
use super::stream::{Events, HEARTBEAT, STILL_HERE, WAITING, event_frame, last_event};
use super::{App, Asked, Problem, RouteReply, run_blocking};

/// Interval at which the store is checked.
const PAUSE: Duration = Duration::from_millis(80);

/// Records read at a time.
const PAGE: usize = 2000;

/// A new record, in the form that is sent to followers.
#[derive(Clone)]
struct Change {
    number: u64,
    run: RunId,
    workflow: Option<Arc<str>>,
}

/// Result of the checks so far, shared by all followers, so that they need not read the store themselves.
#[derive(Clone, Default)]
pub(super) struct Newest {
    /// The newest deed. Creating and ending credentials are deeds.
    deed: i64,
    /// All records after this one are in `changes`.
    after: u64,
    changes: Arc<Vec<Change>>,
    /// Number of progress messages received from running runs.
    heard: u64,
}

/// Records that are kept for slow followers.
const KEPT: usize = 1000;

/// The newest changes, shared by all followers.
#[derive(Default)]
pub(crate) struct Watch(std::sync::Mutex<Option<watch::Sender<Newest>>>);

impl Watch {
    /// Returns a receiver of new changes.
    fn subscribe(app: &Arc<App>) -> watch::Receiver<Newest> {
        let mut sender = lock(&app.changes.0);
        if let Some(sender) = &*sender
            && sender.receiver_count() > 0
        {
            return sender.subscribe();
        }
        let (new, receiver) = watch::channel(Newest::default());
        *sender = Some(new.clone());
        tokio::spawn(watch_store(Arc::clone(app), new));
        receiver
    }
}

/// Checks the store until there are no followers left.
async fn watch_store(app: Arc<App>, sender: watch::Sender<Newest>) {
    let mut known: Option<u64> = None;
    while sender.receiver_count() > 0 {
        let of_app = Arc::clone(&app);
        let found = run_blocking(move || {
            let deed = of_app.service.newest_deed()?;
            let head = of_app.store.newest_record()?;
            let Some(known) = known.filter(|known| *known <= head) else { return Ok((deed, head, None)) };
            Ok((deed, head, Some(changes_after(&of_app, known, head)?)))
        });
        match found.await {
            Ok((deed, head, None)) => {
                known = Some(head);
                let heard = app.tidings.message_count();
                let _ = sender.send(Newest { deed, after: head, changes: Arc::default(), heard });
            }
            Ok((deed, _, Some(new))) => {
                known = new.last().map(|change| change.number).or(known);
                let heard = app.tidings.message_count();
                sender.send_if_modified(|newest| newest.add_changes(deed, new, heard));
            }
            // The next check may succeed.
            Err(_) => {}
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reads the records after a number, with their workflows.
fn changes_after(app: &App, after: u64, head: u64) -> Result<Vec<Change>, Problem> {
    if after == head {
        return Ok(Vec::new());
    }
    let mut workflows: BTreeMap<RunId, Option<Arc<str>>> = BTreeMap::new();
    let mut found = Vec::new();
    for (number, run) in app.store.records_after(after, PAGE)? {
        let workflow = match workflows.get(&run) {
            Some(known) => known.clone(),
            None => workflow_of_run(app, run)?.map(Arc::from),
        };
        workflows.insert(run, workflow.clone());
        found.push(Change { number, run, workflow });
    }
    Ok(found)
}

impl Newest {
    /// Adds the result of a check. Returns true if it contained anything new.
    fn add_changes(&mut self, deed: i64, new: Vec<Change>, heard: u64) -> bool {
        if self.deed == deed && self.heard == heard && new.is_empty() {
            return false;
        }
        self.deed = deed;
        self.heard = heard;
        if !new.is_empty() {
            let mut all: Vec<Change> = self.changes.iter().cloned().chain(new).collect();
            let late = all.len().saturating_sub(KEPT);
            if let Some(last) = all.drain(..late).next_back() {
                self.after = last.number;
            }
            self.changes = Arc::new(all);
        }
        true
    }
}

/// Streams the changes that the caller may see.
pub(super) async fn stream_changes(app: Arc<App>, asked: Asked) -> Result<RouteReply, Problem> {
    let after: Option<u64> = match (last_event(&asked), asked.query("after")) {
        (Some(last), _) => Some(last),
        (None, Some(_)) => Some(asked.query_number("after", 0)?),
        (None, None) => None,
    };
    let newest = Watch::subscribe(&app);
    let of_app = Arc::clone(&app);
    let head = run_blocking(move || Ok(of_app.store.newest_record()?)).await?;
    // A number from another store has no meaning here.
    let after = after.filter(|after| *after <= head);
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(send_changes(app, asked, (after.unwrap_or(head), after.is_none()), newest, sender));
    Ok(RouteReply::event_stream(Body::new(Events::new(receiver))))
}

async fn send_changes(
    app: Arc<App>,
    asked: Asked,
    (mut after, is_new): (u64, bool),
    mut newest: watch::Receiver<Newest>,
    sender: mpsc::Sender<Bytes>,
) {
    if is_new && sender.send(runs_event(after, "now", &[])).await.is_err() {
        return;
    }
    let mut quiet = Instant::now();
    let mut checked = Instant::now();
    let mut deed = None;
    let mut heard = app.tidings.message_count();
    loop {
        let found = newest.borrow_and_update().clone();
        // The stream ends when the caller's access ends.
        if deed.replace(found.deed) != Some(found.deed) || checked.elapsed() >= HEARTBEAT {
            checked = Instant::now();
            let (of_app, of_asked) = (Arc::clone(&app), asked.clone());
            let still = run_blocking(move || of_app.check_still(&of_asked));
            if still.await.is_err() {
                return;
            }
        }
        let is_late = after < found.after;
        let new = if is_late {
            let of_app = Arc::clone(&app);
            match run_blocking(move || changes_after(&of_app, after, u64::MAX)).await {
                Ok(new) => new,
                Err(_) => return,
            }
        } else {
            found.changes.iter().filter(|change| change.number > after).cloned().collect()
        };
        let mut runs = Vec::new();
        for change in &new {
            after = change.number;
            if asked.may_read(change.workflow.as_deref()) && !runs.contains(&change.run) {
                runs.push(change.run);
            }
        }
        for (run, workflow) in app.tidings.runs_since(heard) {
            if asked.may_read(workflow.as_deref()) && !runs.contains(&run) {
                runs.push(run);
            }
        }
        heard = heard.max(found.heard);
        if !runs.is_empty() {
            quiet = Instant::now();
            if sender.send(runs_event(after, "runs", &runs)).await.is_err() {
                return;
            }
        }
        // Records of a removed run are missing and are skipped.
        if is_late && new.is_empty() {
            after = found.after;
        }
        if is_late {
            continue;
        }
        tokio::select! {
            changed = newest.changed() => if changed.is_err() { return },
            () = sender.closed() => return,
            () = tokio::time::sleep(HEARTBEAT.saturating_sub(quiet.elapsed())) => {
                quiet = Instant::now();
                if sender.send(STILL_HERE).await.is_err() {
                    return;
                }
            }
        }
    }
}

fn runs_event(id: u64, name: &str, runs: &[RunId]) -> Bytes {
    let runs: Vec<String> = runs.iter().map(ToString::to_string).collect();
    event_frame(Some(id), name, &json::compact(&json!(runs)))
}
