//! The common state of all sessions of a server: tools, clients and turns.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lobster_runtime::cancel::CancelToken;
use lobster_runtime::runtime::Runtime;
use lobster_runtime::store::service::Service;
use lobster_runtime::sync::lock;
use rmcp::RoleServer;
use rmcp::service::Peer;
use tokio::sync::watch;

use super::Options;
use super::catalogue::Catalogue;
use super::tasks::Tasks;
use super::turns::Turns;

/// The state shared by all sessions of a server.
pub(super) struct Shared {
    pub(super) runtime: Runtime,
    pub(super) options: Options,
    /// The registered workflows of a service, which replace all other tools.
    registered: Option<Service>,
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
    pub(super) fn new(runtime: Runtime, options: Options, registered: Option<Service>) -> Self {
        let catalogue = Arc::new(Catalogue::read_tools(&runtime, &options, registered.as_ref()));
        for problem in &catalogue.problems {
            (options.say)(&format!("warning: {problem}"));
        }
        let ending = runtime.cancel().child_token();
        Self {
            ending,
            tasks: Tasks::default(),
            runtime,
            options,
            registered,
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
        if !known.is_stale(self.registered.as_ref()) {
            return known;
        }
        let fresh = Catalogue::read_tools(&self.runtime, &self.options, self.registered.as_ref());
        let fresh = Arc::new(fresh);
        for problem in fresh.problems.iter().filter(|problem| !known.problems.contains(problem)) {
            (self.options.say)(&format!("warning: {problem}"));
        }
        *lock(&self.current) = Arc::clone(&fresh);
        if fresh.digest != known.digest {
            self.changes.send_modify(|count| *count += 1);
        }
        fresh
    }

    /// Checks regularly for changed tools, and notifies clients of a changed list. A service does so only while there
    /// are clients; any other server also releases memory when there are no more calls.
    pub(super) async fn watch_tools(self: Arc<Self>) {
        const PAUSE: Duration = Duration::from_secs(1);
        /// Number of pauses without a call after which memory is released.
        const IDLE: u32 = 15;
        let is_of_service = self.registered.is_some();
        let mut changes = self.changes.subscribe();
        let mut idle = IDLE;
        loop {
            tokio::time::sleep(PAUSE).await;
            lock(&self.peers).retain(|peer| !peer.is_transport_closed());
            if is_of_service && lock(&self.peers).is_empty() && self.changes.receiver_count() < 2 {
                continue;
            }
            let is_idle = !self.has_worked.swap(false, Ordering::Relaxed) && self.turns.are_free();
            idle = if is_idle { idle.saturating_add(1) } else { 0 };
            let shared = Arc::clone(&self);
            let look = move || {
                drop(shared.current_catalogue());
                if idle == IDLE
                    && !is_of_service
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
                let peers = lock(&self.peers).clone();
                for peer in peers {
                    // A client that does not read must not delay the notifications of others.
                    let told = peer.notify_tool_list_changed();
                    let _ = tokio::time::timeout(Duration::from_secs(2), told).await;
                }
            }
        }
    }
}
