//! Cancellation: one tree of tokens, from the signals of the command line to each attempt of each step.
//!
//! A token is cancelled once, with a reason, and its descendants with it. Threads wait with [`CancelToken::sleep_or_cancel`],
//! tasks with [`CancelToken::cancelled`], and poll loops on the readable end of [`CancelToken::pollable_fd`].

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::sync::lock;
use rustix::event::{EventfdFlags, eventfd};
use serde::{Deserialize, Serialize};

/// Reason for stopping work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "why", content = "text", rename_all = "snake_case")]
pub enum CancelReason {
    /// The process received a signal, named as in `SIGTERM`.
    Signal(String),
    /// The client that waited for the work is gone, or has withdrawn its request.
    Lost(String),
    /// A time limit has passed; the text is the message of the resulting error.
    Timeout(String),
    /// A sibling decided the outcome (the first of `wait: any`, a failed neighbour).
    Superseded,
    /// A person or the embedding program requested it, with this text.
    Requested(String),
}

impl CancelReason {
    /// The error message of a cancelled step.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::Signal(name) => match limit_message(name) {
                Some(meaning) => format!("Received {name}: {meaning}"),
                None => format!("Received {name}"),
            },
            Self::Timeout(message) | Self::Requested(message) | Self::Lost(message) => message.clone(),
            Self::Superseded => "This operation was aborted".to_owned(),
        }
    }

    /// True if the work can continue later. A person and a rule of the file end it for good; a signal and a lost
    /// client do not.
    #[must_use]
    pub fn is_interruption(&self) -> bool {
        match self {
            Self::Signal(_) | Self::Lost(_) => true,
            Self::Timeout(_) | Self::Superseded | Self::Requested(_) => false,
        }
    }

    /// True for a limit of `lobster serve`: the service does not resume the run by itself.
    #[must_use]
    pub fn is_service_limit(&self) -> bool {
        matches!(self, Self::Signal(name) if limit_message(name).is_some())
    }

    /// The same reason for an executor, which may be older than [`Self::Lost`].
    #[must_use]
    pub fn for_executor(self) -> Self {
        match self {
            Self::Lost(text) => Self::Requested(text),
            other => other,
        }
    }
}

/// The limit of `lobster serve` that a run has reached, by the signal that ends it.
fn limit_message(name: &str) -> Option<&'static str> {
    match name {
        "SIGALRM" => Some("it worked for longer than `--max-time` of `lobster serve` allows"),
        "SIGUSR1" => Some("its processes had more in memory than `--max-memory` of `lobster serve` allows"),
        "SIGUSR2" => {
            Some("its processes used more time on processors than `--max-cpu` of `lobster serve` allows")
        }
        _ => None,
    }
}

#[derive(Default)]
struct State {
    reason: Option<CancelReason>,
    /// Set by a second signal, to stop waiting for a graceful end.
    forced: bool,
    children: Vec<Weak<Inner>>,
    /// Waiting tasks, by the numbers of their futures.
    tasks: BTreeMap<u64, Waker>,
    /// The number of the next future.
    next: u64,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    event: OnceLock<OwnedFd>,
    /// True if this node or an ancestor is cancelled after some time.
    has_limit: bool,
}

/// A node of the cancellation tree. Clones share it.
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Inner>);

impl CancelToken {
    /// A new root.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A token that is cancelled together with `self`, and can be cancelled alone.
    #[must_use]
    pub fn child_token(&self) -> Self {
        self.child_with(self.0.has_limit)
    }

    /// The same, for a node that will be cancelled after some time of this process.
    #[must_use]
    pub fn limited_child(&self) -> Self {
        self.child_with(true)
    }

    /// True if a time limit may cancel it.
    #[must_use]
    pub fn has_limit(&self) -> bool {
        self.0.has_limit
    }

    fn child_with(&self, has_limit: bool) -> Self {
        let child = Self(Arc::new(Inner { has_limit, ..Inner::default() }));
        let mut state = self.lock_state();
        if let Some(reason) = &state.reason {
            let mut own = child.lock_state();
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

    /// Cancels this node and its descendants. The first reason stays.
    pub fn cancel(&self, reason: CancelReason) {
        self.set(|state| {
            state.reason.get_or_insert(reason.clone());
        });
    }

    /// Cancels, and makes work that is ending gracefully stop at once.
    pub fn force_cancel(&self, reason: CancelReason) {
        self.set(|state| {
            state.reason.get_or_insert(reason.clone());
            state.forced = true;
        });
    }

    fn set(&self, change: impl Fn(&mut State)) {
        let mut pending = vec![self.clone()];
        while let Some(token) = pending.pop() {
            let mut state = token.lock_state();
            change(&mut state);
            let tasks = std::mem::take(&mut state.tasks);
            pending.extend(state.children.iter().filter_map(Weak::upgrade).map(CancelToken));
            if let Some(event) = token.0.event.get() {
                signal_event(event);
            }
            token.0.changed.notify_all();
            drop(state);
            tasks.into_values().for_each(Waker::wake);
        }
    }

    /// The reason, once cancelled.
    #[must_use]
    pub fn reason(&self) -> Option<CancelReason> {
        self.lock_state().reason.clone()
    }

    /// True once it has been cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.lock_state().reason.is_some()
    }

    /// True if work must stop without a graceful end.
    #[must_use]
    pub fn is_forced(&self) -> bool {
        self.lock_state().forced
    }

    /// Sleeps for `duration` or until cancelled; true if cancelled.
    pub fn sleep_or_cancel(&self, duration: Duration) -> bool {
        let deadline = Instant::now() + duration;
        let mut state = self.lock_state();
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

    /// Waits in a task until it is cancelled.
    #[must_use]
    pub fn cancelled(&self) -> Cancelled<'_> {
        Cancelled { token: self, number: None }
    }

    /// A descriptor that is readable once the token is cancelled or forced (an `eventfd`). It must only be polled,
    /// never read. After the first cancellation, a poller checks [`CancelToken::is_forced`] at intervals.
    ///
    /// # Errors
    /// If the process has no file descriptor left.
    pub fn pollable_fd(&self) -> io::Result<BorrowedFd<'_>> {
        if self.0.event.get().is_none() {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            let state = self.lock_state();
            let event = self.0.event.get_or_init(|| event);
            if state.reason.is_some() {
                signal_event(event);
            }
        }
        self.0.event.get().map(AsFd::as_fd).ok_or_else(|| io::Error::other("no event descriptor"))
    }

    fn lock_state(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }
}

/// Future returned by [`CancelToken::cancelled`].
pub struct Cancelled<'t> {
    token: &'t CancelToken,
    /// The number under which the token stores its task.
    number: Option<u64>,
}

impl Future for Cancelled<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.token.lock_state();
        if state.reason.is_some() {
            return Poll::Ready(());
        }
        let number = self.number.unwrap_or(state.next);
        state.next = state.next.max(number + 1);
        state.tasks.insert(number, context.waker().clone());
        drop(state);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.token.lock_state().tasks.remove(&number);
        }
    }
}

fn signal_event(event: &OwnedFd) {
    // Writing to an eventfd fails only if its counter is full, and then it is readable already.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[test]
    fn reaches_descendants_but_not_ancestors() {
        let root = CancelToken::new();
        let child = root.child_token();
        let grandchild = child.child_token();
        child.cancel(CancelReason::Superseded);
        assert!(!root.is_cancelled());
        assert_eq!(grandchild.reason(), Some(CancelReason::Superseded));
        root.force_cancel(CancelReason::Signal("SIGTERM".into()));
        assert_eq!(child.reason(), Some(CancelReason::Superseded));
        assert!(child.is_forced());
        assert!(root.child_token().is_cancelled());
    }

    #[test]
    fn only_a_signal_and_a_lost_client_interrupt() {
        let (signal, text) = (|name: &str| CancelReason::Signal(name.into()), || "x".to_owned());
        for reason in [signal("SIGTERM"), signal("SIGINT"), signal("SIGHUP"), CancelReason::Lost(text())] {
            assert!(reason.is_interruption() && !reason.is_service_limit(), "{reason:?}");
        }
        for reason in ["SIGALRM", "SIGUSR1", "SIGUSR2"].map(signal) {
            assert!(reason.is_interruption() && reason.is_service_limit(), "{reason:?}");
        }
        let decided =
            [CancelReason::Timeout(text()), CancelReason::Superseded, CancelReason::Requested(text())];
        for reason in decided {
            assert!(!reason.is_interruption(), "{reason:?}");
        }
        assert_eq!(CancelReason::Lost(text()).for_executor(), CancelReason::Requested(text()));
    }

    #[test]
    fn wakes_sleepers_and_pollers() {
        let token = CancelToken::new();
        let sleeper = token.clone();
        let thread = std::thread::spawn(move || sleeper.sleep_or_cancel(Duration::from_secs(60)));
        token.cancel(CancelReason::Requested("stop".into()));
        assert!(thread.join().is_ok_and(|cancelled| cancelled));
        let fd = token.pollable_fd().map(|fd| fd.try_clone_to_owned());
        assert!(matches!(fd, Ok(Ok(_))));
        assert!(!CancelToken::new().sleep_or_cancel(Duration::from_millis(1)));
    }

    #[test]
    fn wakes_tasks_and_forgets_those_that_are_gone() {
        struct Counts(AtomicUsize);
        impl Wake for Counts {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let woken = Arc::new(Counts(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let root = CancelToken::new();
        let token = root.child_token();
        let mut first = pin!(token.cancelled());
        let mut second = pin!(token.cancelled());
        for _ in 0..3 {
            assert_eq!(first.as_mut().poll(&mut context), Poll::Pending);
            assert_eq!(second.as_mut().poll(&mut context), Poll::Pending);
            assert_eq!(pin!(token.cancelled()).poll(&mut context), Poll::Pending);
        }
        assert_eq!(token.lock_state().tasks.len(), 2);
        root.cancel(CancelReason::Superseded);
        assert_eq!(woken.0.load(Ordering::SeqCst), 2);
        assert_eq!(first.poll(&mut context), Poll::Ready(()));
        assert_eq!(pin!(token.child_token().cancelled()).poll(&mut context), Poll::Ready(()));
    }
}
