//! The common state of all sessions of a server: tools, clients and turns.

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

/// The state shared by all sessions of a server.
pub(super) struct Shared {
    pub(super) runtime: Runtime,
    pub(super) sources: Sources,
    pub(super) guard: Guard,
    pub(super) approvals: Approvals,
    /// Time limit of calls that name none: of `run`, and of typed tools.
    pub(super) default_time: Option<Duration>,
    /// Also shows runs of others.
    pub(super) all_runs: bool,
    /// Shows a line to the operator.
    pub(super) say: fn(&str),
    /// The current tools of the directories.
    current: Mutex<Arc<Catalogue>>,
    /// The catalogue that was listed last in any session.
    pub(super) listed: Mutex<Arc<Catalogue>>,
    /// Number of changes of the list.
    pub(super) changes: watch::Sender<u64>,
    pub(super) peers: Mutex<Vec<Peer<RoleServer>>>,
    pub(super) turns: Turns,
    /// True if a call was made since memory was last released.
    pub(super) has_worked: AtomicBool,
    /// Calls that outlast their requests.
    pub(super) tasks: Tasks,
    /// Cancelled at the end of the server.
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
        let catalogue = Arc::new(Catalogue::read_directories(&runtime, &sources, default_time));
        for problem in &catalogue.problems {
            say(&format!("warning: {problem}"));
        }
        let ending = runtime.cancel().child_token();
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

    /// The current tools of the directories, which are read again only if something changed.
    pub(super) fn current_catalogue(&self) -> Arc<Catalogue> {
        let known = Arc::clone(&lock(&self.current));
        if !known.is_stale(&self.sources) {
            return known;
        }
        let fresh = Arc::new(Catalogue::read_directories(&self.runtime, &self.sources, self.default_time));
        for problem in fresh.problems.iter().filter(|problem| !known.problems.contains(problem)) {
            (self.say)(&format!("warning: {problem}"));
        }
        *lock(&self.current) = Arc::clone(&fresh);
        if fresh.digest != known.digest {
            self.changes.send_modify(|count| *count += 1);
        }
        fresh
    }

    /// True if there was no call since the last look.
    fn is_idle(&self) -> bool {
        !self.has_worked.swap(false, Ordering::Relaxed) && self.turns.are_free()
    }

    /// Notifies clients of newly registered workflows, as long as there are clients.
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
            if tokio::task::spawn_blocking(move || drop(shared.current_catalogue())).await.is_err() {
                return;
            }
            if changes.has_changed().unwrap_or(false) {
                changes.mark_unchanged();
                self.tell_peers().await;
            }
        }
    }

    /// Notifies all clients that the list of tools has changed.
    async fn tell_peers(&self) {
        let peers = {
            let mut peers = lock(&self.peers);
            peers.retain(|peer| !peer.is_transport_closed());
            peers.clone()
        };
        for peer in peers {
            // A client that does not read must not delay the notifications of others.
            let told = peer.notify_tool_list_changed();
            let _ = tokio::time::timeout(Duration::from_secs(2), told).await;
        }
    }

    /// Checks the directories regularly, notifies clients of a changed list, and releases memory when
    /// there are no more calls.
    pub(super) async fn watch_folders(self: Arc<Self>) {
        const PAUSE: Duration = Duration::from_secs(1);
        /// Number of pauses without a call after which memory is released.
        const IDLE: u32 = 15;
        let mut changes = self.changes.subscribe();
        let mut idle = IDLE;
        loop {
            tokio::time::sleep(PAUSE).await;
            idle = if self.is_idle() { idle.saturating_add(1) } else { 0 };
            let shared = Arc::clone(&self);
            let look = move || {
                drop(shared.current_catalogue());
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
