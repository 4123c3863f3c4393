//! Cancellation: one tree of tokens from the command line's signals down to
//! each attempt of each step.
//!
//! A token is cancelled once, with a reason; its descendants are cancelled
//! with it. Threads wait on it by [`CancelToken::wait`], poll loops by the
//! readable end of [`CancelToken::pollable`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use serde::{Deserialize, Serialize};

/// Why work was told to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", content = "text", rename_all = "snake_case")]
pub enum CancelReason {
    /// The process received a signal, named as in `SIGTERM`.
    Signal(String),
    /// A time limit passed; the text is the message of the resulting error.
    Timeout(String),
    /// A sibling decided the outcome (the first of `wait: any`, a failed neighbour).
    Superseded,
    /// The embedding program asked, with its own words.
    Requested(String),
}

impl CancelReason {
    /// The message of the error that a cancelled step ends with.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Signal(name) => format!("Received {name}"),
            Self::Timeout(message) | Self::Requested(message) => message.clone(),
            Self::Superseded => "This operation was aborted".to_owned(),
        }
    }
}

#[derive(Default)]
struct State {
    reason: Option<CancelReason>,
    /// Set by a second signal: stop waiting for a graceful end.
    forced: bool,
    children: Vec<Weak<Inner>>,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    event: OnceLock<OwnedFd>,
    /// It, or one above it, is cancelled when some time has passed.
    has_limit: bool,
}

/// A node of the cancellation tree. Clones are the same node.
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Inner>);

impl CancelToken {
    /// A root that nobody has cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A token that is cancelled when `self` is, and can be cancelled alone.
    #[must_use]
    pub fn child(&self) -> Self {
        self.child_with(self.0.has_limit)
    }

    /// The same, for one that is cancelled when some time of this process has passed.
    #[must_use]
    pub fn limited_child(&self) -> Self {
        self.child_with(true)
    }

    /// Whether a time limit may cancel it.
    #[must_use]
    pub fn has_limit(&self) -> bool {
        self.0.has_limit
    }

    fn child_with(&self, has_limit: bool) -> Self {
        let child = Self(Arc::new(Inner { has_limit, ..Inner::default() }));
        let mut state = self.lock();
        if let Some(reason) = &state.reason {
            let mut own = child.lock();
            own.reason = Some(reason.clone());
            own.forced = state.forced;
            drop(own);
        } else {
            state.children.retain(|c| c.strong_count() > 0);
            state.children.push(Arc::downgrade(&child.0));
        }
        drop(state);
        child
    }

    /// Cancels this node and all below it. The first reason stays.
    pub fn cancel(&self, reason: CancelReason) {
        self.set(|state| {
            state.reason.get_or_insert(reason.clone());
        });
    }

    /// Cancels, and tells those who are ending gracefully to stop at once.
    pub fn force(&self, reason: CancelReason) {
        self.set(|state| {
            state.reason.get_or_insert(reason.clone());
            state.forced = true;
        });
    }

    fn set(&self, change: impl Fn(&mut State)) {
        let mut pending = vec![self.clone()];
        while let Some(token) = pending.pop() {
            let mut state = token.lock();
            change(&mut state);
            pending.extend(state.children.iter().filter_map(Weak::upgrade).map(CancelToken));
            if let Some(event) = token.0.event.get() {
                signal(event);
            }
            token.0.changed.notify_all();
        }
    }

    /// The reason, once cancelled.
    #[must_use]
    pub fn reason(&self) -> Option<CancelReason> {
        self.lock().reason.clone()
    }

    /// Whether it has been cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.lock().reason.is_some()
    }

    /// Whether a graceful end is no longer wanted.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        self.lock().forced
    }

    /// Sleeps for `duration` or until cancelled; true when cancelled.
    pub fn wait(&self, duration: Duration) -> bool {
        let deadline = Instant::now() + duration;
        let mut state = self.lock();
        loop {
            if state.reason.is_some() {
                return true;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else {
                return false;
            };
            state = self.0.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A descriptor that is readable once the token is cancelled or forced
    /// (an `eventfd`). It must only be polled, never read. A poller that has
    /// seen the first cancellation watches [`CancelToken::is_forced`] by time.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn pollable(&self) -> io::Result<BorrowedFd<'_>> {
        if self.0.event.get().is_none() {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let state = self.lock();
            let event = self.0.event.get_or_init(|| event);
            if state.reason.is_some() {
                signal(event);
            }
        }
        self.0.event.get().map(AsFd::as_fd).ok_or_else(|| io::Error::other("no event descriptor"))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signal(event: &OwnedFd) {
    // An eventfd refuses a write only when its counter is full, and then it is readable already.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reaches_descendants_but_not_ancestors() {
        let root = CancelToken::new();
        let child = root.child();
        let grandchild = child.child();
        child.cancel(CancelReason::Superseded);
        assert!(!root.is_cancelled());
        assert_eq!(grandchild.reason(), Some(CancelReason::Superseded));
        root.force(CancelReason::Signal("SIGTERM".into()));
        assert_eq!(child.reason(), Some(CancelReason::Superseded));
        assert!(child.is_forced());
        assert!(root.child().is_cancelled());
    }

    #[test]
    fn wakes_sleepers_and_pollers() {
        let token = CancelToken::new();
        let sleeper = token.clone();
        let thread = std::thread::spawn(move || sleeper.wait(Duration::from_secs(60)));
        token.cancel(CancelReason::Requested("stop".into()));
        assert!(thread.join().is_ok_and(|cancelled| cancelled));
        let fd = token.pollable().map(|fd| fd.try_clone_to_owned());
        assert!(matches!(fd, Ok(Ok(_))));
        assert!(!CancelToken::new().wait(Duration::from_millis(1)));
    }
}
