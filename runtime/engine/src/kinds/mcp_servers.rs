//! The MCP servers that a run calls, for as long as the run lasts.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::Decided;
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::sync::lock;
use lobster_executor::{OrderId, SessionEnd};
use lobster_stage::McpServer;

/// Interval at which the watch over a server's approved files checks if the run is over.
const LOOK: Duration = Duration::from_millis(20);

/// A run's knowledge of its servers. The sessions are the executor's.
#[derive(Default)]
pub(crate) struct Servers(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The newest session with these secrets. A step may not use a session that has more secrets than the step is
    /// granted.
    newest: HashMap<(McpServer, BTreeMap<String, String>), OrderId>,
    /// Everything that sessions need. Another branch may still use a session that is not the newest.
    held: Vec<CalledServer>,
}

impl Servers {
    /// The newest session of this server with these secrets.
    pub(super) fn newest_session(
        &self,
        server: &McpServer,
        secrets: &BTreeMap<String, String>,
    ) -> Option<OrderId> {
        lock(&self.0).newest.get(&(server.clone(), secrets.clone())).cloned()
    }

    /// Keeps what a session needs until the run is over.
    pub(super) fn hold_session(
        &self,
        server: &McpServer,
        secrets: &BTreeMap<String, String>,
        session: OrderId,
        held: CalledServer,
    ) {
        let mut known = lock(&self.0);
        known.newest.insert((server.clone(), secrets.clone()), session);
        known.held.push(held);
    }
}

/// Resources of a session besides its executor: the home of its program, and the approval of its files.
pub(super) struct CalledServer {
    end: SessionEnd,
    over: CancelToken,
    watch: Option<JoinHandle<()>>,
    /// Released when the program has ended.
    _decided: Option<Arc<Decided>>,
}

impl CalledServer {
    /// A server that `end` stops. It is cut off when an approved file of its program is replaced, since it may then
    /// run code without approval.
    pub(super) fn new(end: SessionEnd, decided: Option<Decided>) -> std::io::Result<Self> {
        let (over, decided) = (CancelToken::new(), decided.map(Arc::new));
        let watch = match &decided {
            Some(watched) if watched.approved.is_some() => {
                let (watched, end, over) = (Arc::clone(watched), Arc::clone(&end), over.clone());
                let watch = move || {
                    let Some(held) = &watched.approved else { return };
                    let ((), changed) = held.run_guarded(&over, |stop| {
                        while !stop.is_cancelled() {
                            std::thread::sleep(LOOK);
                        }
                    });
                    if let Some(changed) = changed {
                        end(Some(&changed.to_string()));
                    }
                };
                Some(std::thread::Builder::new().name("mcp approval".to_owned()).spawn(watch)?)
            }
            Some(_) | None => None,
        };
        Ok(Self { end, over, watch, _decided: decided })
    }
}

impl Drop for CalledServer {
    fn drop(&mut self) {
        (self.end)(None);
        self.over.cancel(CancelReason::Superseded);
        if let Some(watch) = self.watch.take() {
            // It ends at its next check.
            let _ = watch.join();
        }
    }
}
