//! Which runs have new records, as server-sent events: what a page that is looked at needs to know to
//! read again. An event's id is the number of the newest record in the store, so a client that was cut
//! off, or slept, goes on without a gap.
//!
//! One task looks at the store for all clients, and only while there are some.

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
use super::stream::{Events, HEARTBEAT, STILL_HERE, WAITING, frame, last_event};
use super::{App, Asked, Problem, Reply, blocking, guard};

/// How often the store is looked at.
const PAUSE: Duration = Duration::from_millis(80);

/// Records looked at in one go.
const PAGE: usize = 2000;

/// The newest record, and the newest deed: by which credentials are made and ended.
type Newest = (u64, i64);

/// What is newest, for all who follow.
#[derive(Default)]
pub(super) struct Watch(std::sync::Mutex<Option<watch::Sender<Newest>>>);

impl Watch {
    /// What tells of newer ones.
    pub(super) fn subscribe(app: &Arc<App>) -> watch::Receiver<Newest> {
        let mut sender = lock(&app.changes.0);
        if let Some(sender) = &*sender
            && sender.receiver_count() > 0
        {
            return sender.subscribe();
        }
        let (new, receiver) = watch::channel((0, 0));
        *sender = Some(new.clone());
        tokio::spawn(look(Arc::clone(app), new));
        receiver
    }
}

/// Looks at the store until nobody follows.
async fn look(app: Arc<App>, sender: watch::Sender<Newest>) {
    while sender.receiver_count() > 0 {
        let of_app = Arc::clone(&app);
        if let Ok(newest) =
            blocking(move || Ok((of_app.store.newest_record()?, of_app.service.newest_deed()?))).await
        {
            sender.send_if_modified(|known| std::mem::replace(known, newest) != newest);
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The stream of changes that the caller may know of.
pub(super) async fn follow(app: Arc<App>, asked: Asked) -> Result<Reply, Problem> {
    let after: Option<u64> = match (last_event(&asked), asked.query("after")) {
        (Some(last), _) => Some(last),
        (None, Some(_)) => Some(asked.number("after", 0)?),
        (None, None) => None,
    };
    let newest = Watch::subscribe(&app);
    let of_app = Arc::clone(&app);
    let head = blocking(move || Ok(of_app.store.newest_record()?)).await?;
    // A number of another store is none of this one.
    let after = after.filter(|after| *after <= head);
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(send_changes(app, asked, (after.unwrap_or(head), after.is_none()), newest, sender));
    Ok(Reply::stream(Body::new(Events::new(receiver))))
}

async fn send_changes(
    app: Arc<App>,
    asked: Asked,
    (mut after, is_new): (u64, bool),
    mut newest: watch::Receiver<Newest>,
    sender: mpsc::Sender<Bytes>,
) {
    if is_new && sender.send(event(after, "now", &[])).await.is_err() {
        return;
    }
    let mut readable: BTreeMap<RunId, bool> = BTreeMap::new();
    let mut quiet = Instant::now();
    loop {
        let (of_app, of_asked, mut known) = (Arc::clone(&app), asked.clone(), std::mem::take(&mut readable));
        let page = blocking(move || {
            // Whoever may not ask any more is told nothing more.
            guard::check_still(
                &of_app.service,
                (&of_asked.method, &of_asked.headers),
                of_asked.actor.as_ref(),
            )?;
            let records = of_app.store.records_after(after, PAGE)?;
            let mut runs = Vec::new();
            for (_, run) in &records {
                let may = match known.get(run) {
                    Some(may) => *may,
                    None => of_asked.may_read(workflow_of_run(&of_app, *run)?.as_deref()),
                };
                known.insert(*run, may);
                if may && !runs.contains(run) {
                    runs.push(*run);
                }
            }
            Ok((records.last().map(|(number, _)| *number), runs, known))
        });
        let Ok((last, runs, known)) = page.await else { return };
        readable = known;
        if let Some(last) = last {
            after = last;
            if !runs.is_empty() {
                quiet = Instant::now();
                if sender.send(event(after, "runs", &runs)).await.is_err() {
                    return;
                }
            }
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

fn event(id: u64, name: &str, runs: &[RunId]) -> Bytes {
    let runs: Vec<String> = runs.iter().map(ToString::to_string).collect();
    frame(Some(id), name, &json::compact(&json!(runs)))
}
