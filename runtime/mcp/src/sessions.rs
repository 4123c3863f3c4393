//! Sessions of HTTP clients: what a session has started ends with it.
//!
//! A lost connection ends nothing, as the protocol requires: the client may come back for its answer. A
//! session ends when its client deletes it, or when for some time the client has neither sent a request
//! nor held a connection.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lobster_runtime::cancel::{CancelReason, CancelToken};
use lobster_runtime::sync::lock;
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, SessionConfig};
use rmcp::transport::streamable_http_server::session::{SessionId, SessionManager};

tokio::task_local! {
    /// The token of the server that was made for the request of this task.
    static MADE: RefCell<Option<CancelToken>>;
}

/// All sessions of a server.
pub(super) struct Sessions {
    pub(super) manager: Arc<LocalSessionManager>,
    known: Mutex<HashMap<String, Known>>,
    idle: Duration,
    /// Time between two looks for silent sessions.
    pause: Duration,
}

/// Precision of the end of a silent session.
const PAUSE: Duration = Duration::from_millis(500);

struct Known {
    cancel: CancelToken,
    /// The caller who may use it, if callers can be told apart.
    owner: Option<String>,
    /// Number of requests that are being answered.
    under_way: usize,
    /// Time at which the last of them ended.
    since: Instant,
}

impl Sessions {
    pub(super) fn new(idle: Duration) -> Self {
        let mut config = SessionConfig::default();
        // The library's own limit would end a session whose client waits for a long call.
        config.keep_alive = None;
        let mut manager = LocalSessionManager::default();
        manager.session_config = config;
        Self { manager: Arc::new(manager), known: Mutex::default(), idle, pause: PAUSE }
    }

    /// Notes that a server was made, for the session that may begin with it.
    pub(super) fn record_server(cancel: &CancelToken) {
        // Outside of a request it is not needed.
        let _ = MADE.try_with(|made| *made.borrow_mut() = Some(cancel.clone()));
    }

    /// Answers one request, and returns the token of the server that was made for it.
    pub(super) async fn watch_answer<T>(answer: impl Future<Output = T>) -> (T, Option<CancelToken>) {
        MADE.scope(RefCell::default(), async {
            let answer = answer.await;
            (answer, MADE.with(RefCell::take))
        })
        .await
    }

    /// Adds a session that has begun.
    pub(super) fn add_session(&self, id: &str, cancel: CancelToken, owner: Option<String>) {
        let known = Known { cancel, owner, under_way: 0, since: Instant::now() };
        lock(&self.known).insert(id.to_owned(), known);
    }

    /// True if the session exists and belongs to this caller.
    pub(super) fn is_of(&self, id: &str, owner: Option<&str>) -> bool {
        lock(&self.known).get(id).is_some_and(|known| known.owner.as_deref() == owner)
    }

    /// Marks a request of a session as running until the value is dropped.
    pub(super) fn hold_open(self: &Arc<Self>, id: &str) -> Option<HeldSession> {
        lock(&self.known).get_mut(id)?.under_way += 1;
        Some(HeldSession { sessions: Arc::clone(self), id: id.to_owned() })
    }

    /// Ends a session that its client has deleted.
    pub(super) fn end_deleted(&self, id: &str) {
        if let Some(known) = lock(&self.known).remove(id) {
            known.cancel.cancel(CancelReason::Lost("the client has ended its session".to_owned()));
        }
    }

    /// Ends sessions whose clients are gone.
    pub(super) async fn sweep_abandoned(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.pause).await;
            let over: Vec<(String, Known)> = lock(&self.known)
                .extract_if(|_, known| known.under_way == 0 && known.since.elapsed() >= self.idle)
                .collect();
            for (id, known) in over {
                let why = format!("the client was silent for {} s", self.idle.as_secs());
                known.cancel.cancel(CancelReason::Lost(why));
                let id: SessionId = id.into();
                if let Err(error) = self.manager.close_session(&id).await {
                    tracing::debug!("session {id} was over already: {error}");
                }
            }
        }
    }
}

/// A request that is being answered.
pub(super) struct HeldSession {
    sessions: Arc<Sessions>,
    id: String,
}

impl Drop for HeldSession {
    fn drop(&mut self) {
        if let Some(known) = lock(&self.sessions.known).get_mut(&self.id) {
            known.under_way = known.under_way.saturating_sub(1);
            known.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_idle_when_nothing_is_asked_and_nothing_answered() {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio.block_on(async {
            let sessions = Arc::new(Sessions {
                pause: Duration::from_millis(5),
                ..Sessions::new(Duration::from_millis(100))
            });
            let (gone, waits) = (CancelToken::new(), CancelToken::new());
            sessions.add_session("gone", gone.clone(), None);
            sessions.add_session("waits", waits.clone(), Some("ann".to_owned()));
            assert!(sessions.is_of("waits", Some("ann")) && !sessions.is_of("waits", Some("bob")));
            assert!(sessions.is_of("gone", None) && !sessions.is_of("nobody", None));
            let held = sessions.hold_open("waits").unwrap();
            let sweep = tokio::spawn(Arc::clone(&sessions).sweep_abandoned());
            tokio::time::sleep(Duration::from_millis(400)).await;
            assert!(gone.is_cancelled() && !waits.is_cancelled());
            drop(held);
            tokio::time::sleep(Duration::from_millis(400)).await;
            assert!(waits.is_cancelled() && sessions.hold_open("waits").is_none());
            sweep.abort();
        });
    }
}
