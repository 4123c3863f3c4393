//! The records of a run as server-sent events. The journal is the only source. The id of an event is the number of its
//! record, so a client whose connection broke continues there, with this server or another one.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame};
use lobster_runtime::json;
use lobster_runtime::store::{RunId, StoreError};
use serde_json::json;
use tokio::sync::mpsc;

use super::answer::run_of;
use super::{App, Asked, Problem, RouteReply, run_blocking};

/// Interval at which the journal is checked.
const PAUSE: Duration = Duration::from_millis(150);

/// Interval of comment lines, which keep intermediaries from closing a silent connection.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(15);

/// Records read at a time.
const PAGE: usize = 200;

/// The comment line.
pub(super) const STILL_HERE: Bytes = Bytes::from_static(b": still here\n\n");

/// Events that are buffered for a slow client.
pub(super) const WAITING: usize = 4;

/// Starts the stream of `{run}`.
pub(super) async fn run_records(app: Arc<App>, asked: Asked) -> Result<RouteReply, Problem> {
    let after: u64 = last_event(&asked).map_or_else(|| asked.query_number("after", 0), Ok)?;
    let of_run = Arc::clone(&app);
    let of_asked = asked.clone();
    let run = run_blocking(move || run_of(&of_run, &of_asked)).await?;
    let (sender, receiver) = mpsc::channel(WAITING);
    tokio::spawn(send_records(app, asked, (run, after), sender));
    Ok(RouteReply::event_stream(Body::new(Events(receiver))))
}

/// Sends new records until the run is over, the client is gone or its access ends.
async fn send_records(
    app: Arc<App>,
    asked: Asked,
    (run, mut after): (RunId, u64),
    sender: mpsc::Sender<Bytes>,
) {
    let mut quiet = Instant::now();
    let mut told = BTreeMap::new();
    loop {
        let (reader, of_asked) = (Arc::clone(&app), asked.clone());
        let page = run_blocking(move || {
            reader.check_still(&of_asked)?;
            match reader.store.run(run) {
                Ok(summary) => {
                    let records = reader.store.events_after(run, after, PAGE)?;
                    Ok((records, summary.status.is_over(), summary.records))
                }
                // The run is queued. If it never begins, the stream ends.
                Err(StoreError::UnknownRun(_)) => {
                    let start = reader.service.start_of(run)?;
                    Ok((Vec::new(), start.is_none_or(|start| start.state.is_over()), 0))
                }
                Err(error) => Err(error.into()),
            }
        });
        let (records, is_over, all) = match page.await {
            Ok(page) => page,
            Err(problem) => {
                let _ = sender.send(event_frame(None, "problem", &problem.detail)).await;
                return;
            }
        };
        let is_empty = records.is_empty();
        for record in records {
            after = record.seq;
            if sender.send(event_frame(Some(record.seq), record.event.kind(), &record.text)).await.is_err() {
                return;
            }
            quiet = Instant::now();
        }
        if is_over && after >= all {
            let _ = sender.send(event_frame(None, "end", "{}")).await;
            return;
        }
        for (place, said) in app.tidings.new_progress(run, &mut told) {
            let data = json::compact(&json!({"path": place, "said": said}));
            if sender.send(event_frame(None, "progress", &data)).await.is_err() {
                return;
            }
            quiet = Instant::now();
        }
        if quiet.elapsed() >= HEARTBEAT {
            quiet = Instant::now();
            if sender.send(STILL_HERE).await.is_err() {
                return;
            }
        }
        if is_empty {
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = sender.closed() => return,
            }
        }
    }
}

/// The last event that the client has received, according to its header.
pub(super) fn last_event(asked: &Asked) -> Option<u64> {
    asked.headers.get("last-event-id")?.to_str().ok()?.parse().ok()
}

/// One event. Its data fits on one line: JSON has line ends only between its parts.
pub(super) fn event_frame(id: Option<u64>, event: &str, data: &str) -> Bytes {
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    let data = data.replace(['\r', '\n'], " ");
    Bytes::from(format!("{id}event: {event}\ndata: {data}\n\n"))
}

/// A body made of the bytes from a channel.
pub(super) struct Events(mpsc::Receiver<Bytes>);

impl Events {
    pub(super) fn new(receiver: mpsc::Receiver<Bytes>) -> Self {
        Self(receiver)
    }
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}
