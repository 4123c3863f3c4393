//! Connections that have not shown yet that they belong here. There is little
//! room for them, and the oldest makes way: however many somebody opens and
//! leaves half open, the next client is let in.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lobster_runtime::sync::lock;
use tokio::sync::Notify;

/// Connections at once without a request that was let in.
const ROOM: usize = 64;

/// One that came just now has its request on the way: among many that come at once, it must not go before it
/// was heard.
const GRACE: Duration = Duration::from_secs(1);

/// Connections at once that are that young.
const YOUNG: usize = 448;

/// The connections that wait for their first good request, and when they came.
#[derive(Default)]
pub struct Newcomers(Mutex<VecDeque<(Arc<Notify>, Instant)>>);

impl Newcomers {
    /// Lets one in; the oldest goes if there is no room.
    pub fn enter(self: &Arc<Self>) -> Newcomer {
        self.enter_at(Instant::now())
    }

    fn enter_at(self: &Arc<Self>, now: Instant) -> Newcomer {
        let go = Arc::new(Notify::new());
        let mut all = lock(&self.0);
        while let Some((_, came)) = all.front()
            && (all.len() >= ROOM + YOUNG
                || all.len() >= ROOM && now.saturating_duration_since(*came) >= GRACE)
        {
            all.pop_front().into_iter().for_each(|(oldest, _)| oldest.notify_one());
        }
        all.push_back((Arc::clone(&go), now));
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
        lock(&self.all.0).retain(|(other, _)| !Arc::ptr_eq(other, &self.go));
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
            let begun = Instant::now();
            let (known, oldest) = (all.enter_at(begun), all.enter_at(begun));
            known.belongs();
            let rest: Vec<_> = (0..ROOM - 1).map(|_| all.enter_at(begun)).collect();
            let went = |one: &Newcomer| {
                let go = Arc::clone(&one.go);
                async move {
                    let soon = std::time::Duration::from_millis(20);
                    tokio::time::timeout(soon, go.notified()).await.is_ok()
                }
            };
            // As long as it may have something to say.
            let _young = all.enter_at(begun);
            assert!(!went(&oldest).await);
            let _last = all.enter_at(begun + GRACE);
            assert!(went(&oldest).await && !went(&known).await);
            // However young they are, there is an end.
            let crowd: Vec<_> = (0..ROOM + YOUNG).map(|_| all.enter_at(begun + GRACE)).collect();
            assert!(went(&rest[ROOM - 2]).await && !went(&crowd[0]).await);
            let _one_more = all.enter_at(begun + GRACE);
            assert!(went(&crowd[0]).await);
        });
    }
}
