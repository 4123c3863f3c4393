//! Turns of calls: limits the calls that run at once, in total and per caller.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lobster_runtime::sync::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most calls that run at once; further calls wait.
pub(super) const AT_ONCE: usize = 64;

/// Most calls of one caller, so that others get turns as well.
const AT_ONCE_OF_ONE: usize = AT_ONCE / 2;

/// The turns of a server.
pub(super) struct Turns {
    all: Arc<Semaphore>,
    /// By the names of callers, while they hold or wait for a turn.
    own: Mutex<BTreeMap<Option<String>, Weak<Semaphore>>>,
}

/// The right to run, until it is dropped.
pub(super) struct CallTurn {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(AT_ONCE)), own: Mutex::default() }
    }

    /// Waits for a turn of this caller; `None` if the server is ending.
    pub(super) async fn take_turn(&self, caller: Option<&str>) -> Option<CallTurn> {
        // The caller's own limit first: callers that wait for the total limit never hold more than
        // their share.
        let own = self.caller_semaphore(caller).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(CallTurn { _all: all, _own: own })
    }

    fn caller_semaphore(&self, caller: Option<&str>) -> Arc<Semaphore> {
        let mut callers = lock(&self.own);
        let caller = caller.map(str::to_owned);
        if let Some(own) = callers.get(&caller).and_then(Weak::upgrade) {
            return own;
        }
        callers.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(AT_ONCE_OF_ONE));
        callers.insert(caller, Arc::downgrade(&own));
        own
    }

    /// Waits until no call is running, but not longer than `at_most`.
    pub(super) async fn wait_until_quiet(&self, at_most: Duration) {
        let all = u32::try_from(AT_ONCE).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(at_most, self.all.acquire_many(all)).await;
    }

    /// True if no call is running.
    pub(super) fn are_free(&self) -> bool {
        self.all.available_permits() == AT_ONCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_caller_takes_the_turns_of_the_others() {
        let turns = Turns::new();
        let mut taken = Vec::new();
        for _ in 0..AT_ONCE_OF_ONE {
            taken.push(turns.take_turn(Some("ann")).await.unwrap());
        }
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, turns.take_turn(Some("ann"))).await.is_err());
        let other = tokio::time::timeout(soon, turns.take_turn(Some("bob"))).await;
        assert!(other.is_ok_and(|turn| turn.is_some()));
        taken.clear();
        assert!(turns.are_free());
        assert!(tokio::time::timeout(soon, turns.take_turn(Some("ann"))).await.is_ok());
    }
}
