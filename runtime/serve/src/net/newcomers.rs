//! Connections without an accepted request. There is little room for them, and the oldest is closed for a newer one: a
//! client gets in, however many connections others open and leave half open.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lobster_runtime::sync::lock;
use tokio::sync::Notify;

/// Most connections at a time without an accepted request.
const ROOM: usize = 64;

/// Time for which a new connection is not displaced: its request may be on the way, even if many connections arrive at
/// once.
const GRACE: Duration = Duration::from_secs(1);

/// Additional connections that may be that young.
const YOUNG: usize = 448;

/// The connections without an accepted request, with their times of arrival.
#[derive(Default)]
pub struct Newcomers(Mutex<VecDeque<(Arc<Notify>, Instant)>>);

impl Newcomers {
    /// Adds a connection, and closes the oldest one if there is no room.
    pub fn add_connection(self: &Arc<Self>) -> Newcomer {
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

/// A connection without an accepted request.
pub struct Newcomer {
    go: Arc<Notify>,
    all: Arc<Newcomers>,
}

impl Newcomer {
    /// Marks the connection as accepted: a newer one does not displace it any more.
    pub fn mark_accepted(&self) {
        lock(&self.all.0).retain(|(other, _)| !Arc::ptr_eq(other, &self.go));
    }

    /// Waits until the connection must be closed.
    pub async fn must_go(&self) {
        self.go.notified().await;
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.mark_accepted();
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
            known.mark_accepted();
            let rest: Vec<_> = (0..ROOM - 1).map(|_| all.enter_at(begun)).collect();
            let went = |one: &Newcomer| {
                let go = Arc::clone(&one.go);
                async move {
                    let soon = Duration::from_millis(20);
                    tokio::time::timeout(soon, go.notified()).await.is_ok()
                }
            };
            // A young connection may still send its request.
            let _young = all.enter_at(begun);
            assert!(!went(&oldest).await);
            let _last = all.enter_at(begun + GRACE);
            assert!(went(&oldest).await && !went(&known).await);
            // Young connections have a limit as well.
            let crowd: Vec<_> = (0..ROOM + YOUNG).map(|_| all.enter_at(begun + GRACE)).collect();
            assert!(went(&rest[ROOM - 2]).await && !went(&crowd[0]).await);
            let _one_more = all.enter_at(begun + GRACE);
            assert!(went(&crowd[0]).await);
        });
    }
}
