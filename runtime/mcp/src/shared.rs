//! What all sessions of a server have in common: what the folders hold, who is connected, whose turn it is.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lobster_runtime::cancel::CancelToken;
use lobster_runtime::runtime::Runtime;
use lobster_runtime::sync::lock;
use rmcp::RoleServer;
use rmcp::service::Peer;
use tokio::sync::watch;

use super::catalogue::{Catalogue, Sources};
use super::gates::Approvals;
use super::guard::Guard;
use super::tasks::Tasks;
use super::turns::Turns;

/// What all sessions of a server share.
pub(super) struct Shared {
    pub(super) runtime: Runtime,
    pub(super) sources: Sources,
    pub(super) guard: Guard,
    pub(super) approvals: Approvals,
    /// For calls that name no limit: of `run`, and of typed tools.
    pub(super) default_time: Option<Duration>,
    /// Show runs of others, too.
    pub(super) all_runs: bool,
    /// Shows a line to the operator.
    pub(super) say: fn(&str),
    /// What the folders hold.
    current: Mutex<Arc<Catalogue>>,
    /// What was last listed to anybody.
    pub(super) listed: Mutex<Arc<Catalogue>>,
    /// Counts changes of the list.
    pub(super) changes: watch::Sender<u64>,
    pub(super) peers: Mutex<Vec<Peer<RoleServer>>>,
    pub(super) turns: Turns,
    /// Whether a call was made since memory was given back.
    pub(super) has_worked: AtomicBool,
    /// Calls that outlast their requests.
    pub(super) tasks: Tasks,
    /// Ends with the server.
    pub(super) ending: CancelToken,
}

impl Shared {
    pub(super) fn new(
        runtime: Runtime,
        sources: Sources,
        guard: Guard,
        approvals: Approvals,
        default_time: Option<Duration>,
        all_runs: bool,
        say: fn(&str),
    ) -> Self {
        let catalogue = Arc::new(Catalogue::read(&runtime, &sources, default_time));
        for problem in &catalogue.problems {
            say(&format!("warning: {problem}"));
        }
        let ending = runtime.cancel().child();
        Self {
            ending,
            tasks: Tasks::default(),
            runtime,
            sources,
            guard,
            approvals,
            default_time,
            all_runs,
            say,
            current: Mutex::new(Arc::clone(&catalogue)),
            listed: Mutex::new(catalogue),
            changes: watch::Sender::new(0),
            peers: Mutex::default(),
            turns: Turns::new(),
            has_worked: AtomicBool::new(false),
        }
    }

    /// What the folders hold now; read again only if something changed.
    pub(super) fn current(&self) -> Arc<Catalogue> {
        let known = Arc::clone(&lock(&self.current));
        if !known.is_stale(&self.sources) {
            return known;
        }
        let fresh = Arc::new(Catalogue::read(&self.runtime, &self.sources, self.default_time));
        for problem in fresh.problems.iter().filter(|problem| !known.problems.contains(problem)) {
            (self.say)(&format!("warning: {problem}"));
        }
        *lock(&self.current) = Arc::clone(&fresh);
        if fresh.digest != known.digest {
            self.changes.send_modify(|count| *count += 1);
        }
        fresh
    }

    /// Whether no call is under way or was since this was asked last.
    fn is_idle(&self) -> bool {
        !self.has_worked.swap(false, Ordering::Relaxed) && self.turns.are_free()
    }

    /// Tells clients when other workflows are registered, while there are clients.
    pub(super) async fn watch_registered(self: Arc<Self>) {
        const PAUSE: Duration = Duration::from_secs(1);
        let mut changes = self.changes.subscribe();
        loop {
            tokio::time::sleep(PAUSE).await;
            lock(&self.peers).retain(|peer| !peer.is_transport_closed());
            if lock(&self.peers).is_empty() && self.changes.receiver_count() < 2 {
                continue;
            }
            let shared = Arc::clone(&self);
            if tokio::task::spawn_blocking(move || drop(shared.current())).await.is_err() {
                return;
            }
            if changes.has_changed().unwrap_or(false) {
                changes.mark_unchanged();
                self.tell_peers().await;
            }
        }
    }

    /// Tells all clients that the list of tools is another one.
    async fn tell_peers(&self) {
        let peers = {
            let mut peers = lock(&self.peers);
            peers.retain(|peer| !peer.is_transport_closed());
            peers.clone()
        };
        for peer in peers {
            // A client that does not read must not keep the others from hearing it.
            let told = peer.notify_tool_list_changed();
            let _ = tokio::time::timeout(Duration::from_secs(2), told).await;
        }
    }

    /// Looks at the folders from time to time, tells clients when a list changed, and gives
    /// memory back when calls have ceased.
    pub(super) async fn watch_folders(self: Arc<Self>) {
        const PAUSE: Duration = Duration::from_secs(1);
        /// Pauses without a call, after which there may be none for a while.
        const IDLE: u32 = 15;
        let mut changes = self.changes.subscribe();
        let mut idle = IDLE;
        loop {
            tokio::time::sleep(PAUSE).await;
            idle = if self.is_idle() { idle.saturating_add(1) } else { 0 };
            let shared = Arc::clone(&self);
            let look = move || {
                drop(shared.current());
                if idle == IDLE
                    && let Ok(store) = shared.runtime.store()
                {
                    store.give_back_memory();
                }
            };
            if tokio::task::spawn_blocking(look).await.is_err() {
                return;
            }
            if changes.has_changed().unwrap_or(false) {
                changes.mark_unchanged();
                self.tell_peers().await;
            }
        }
    }
}
