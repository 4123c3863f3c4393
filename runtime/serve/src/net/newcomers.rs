//! Connections that have not shown yet that they belong here. There is little
//! room for them, and the oldest makes way: however many somebody opens and
//! leaves half open, the next client is let in.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use lobster_runtime::sync::lock;
use tokio::sync::Notify;

/// Connections at once without a request that was let in.
const ROOM: usize = 64;

/// The connections that wait for their first good request.
#[derive(Default)]
pub struct Newcomers(Mutex<VecDeque<Arc<Notify>>>);

impl Newcomers {
    /// Lets one in; the oldest goes if there is no room.
    pub fn enter(self: &Arc<Self>) -> Newcomer {
        let go = Arc::new(Notify::new());
        let mut all = lock(&self.0);
        if all.len() >= ROOM
            && let Some(oldest) = all.pop_front()
        {
            oldest.notify_one();
        }
        all.push_back(Arc::clone(&go));
        Newcomer { go, all: Arc::clone(self) }
    }
}

/// One connection.
pub struct Newcomer {
    go: Arc<Notify>,
    all: Arc<Newcomers>,
}

impl Newcomer {
    /// Its first request was let in: it makes way for nobody any more.
    pub fn belongs(&self) {
        lock(&self.all.0).retain(|other| !Arc::ptr_eq(other, &self.go));
    }

    /// Waits until it must go.
    pub async fn must_go(&self) {
        self.go.notified().await;
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.belongs();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_makes_way_unless_it_belongs() {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio.block_on(async {
            let all = Arc::new(Newcomers::default());
            let (known, oldest) = (all.enter(), all.enter());
            known.belongs();
            let rest: Vec<_> = (0..ROOM - 1).map(|_| all.enter()).collect();
            let went = |one: &Newcomer| {
                let go = Arc::clone(&one.go);
                async move {
                    let soon = std::time::Duration::from_millis(20);
                    tokio::time::timeout(soon, go.notified()).await.is_ok()
                }
            };
            assert!(!went(&oldest).await);
            let _last = all.enter();
            assert!(went(&oldest).await && !went(&known).await && !went(&rest[0]).await);
        });
    }
}
