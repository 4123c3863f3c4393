//! Whose turn it is: how many calls run at once, of all callers and of each.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use lobster_runtime::sync::lock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that run at once; more wait for their turn.
pub(super) const AT_ONCE: usize = 64;

/// Of one caller no more than these, so that others get a turn beside it.
const AT_ONCE_OF_ONE: usize = AT_ONCE / 2;

/// The turns of a server.
pub(super) struct Turns {
    all: Arc<Semaphore>,
    /// By the names of callers, while they have a turn or wait for one.
    own: Mutex<BTreeMap<Option<String>, Weak<Semaphore>>>,
}

/// May run until it is dropped.
pub(super) struct CallTurn {
    _all: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self { all: Arc::new(Semaphore::new(AT_ONCE)), own: Mutex::default() }
    }

    /// Waits for a turn of this caller; none if there are no more.
    pub(super) async fn take(&self, caller: Option<&str>) -> Option<CallTurn> {
        // Its own first: among those who wait for all, no caller has more than its share.
        let own = self.own(caller).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some(CallTurn { _all: all, _own: own })
    }

    fn own(&self, caller: Option<&str>) -> Arc<Semaphore> {
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

    /// Waits until no call is under way, at most so long.
    pub(super) async fn quiet(&self, at_most: Duration) {
        let all = u32::try_from(AT_ONCE).unwrap_or(u32::MAX);
        let _ = tokio::time::timeout(at_most, self.all.acquire_many(all)).await;
    }

    /// Whether no call is under way.
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
            taken.push(turns.take(Some("ann")).await.unwrap());
        }
        let soon = Duration::from_millis(20);
        assert!(tokio::time::timeout(soon, turns.take(Some("ann"))).await.is_err());
        let other = tokio::time::timeout(soon, turns.take(Some("bob"))).await;
        assert!(other.is_ok_and(|turn| turn.is_some()));
        taken.clear();
        assert!(turns.are_free());
        assert!(tokio::time::timeout(soon, turns.take(Some("ann"))).await.is_ok());
    }
}
