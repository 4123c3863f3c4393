//! What is under way in a run.

use std::sync::atomic::{AtomicIsize, Ordering};

/// How many threads of a run do something, other than wait for a time or an event, or for each other.
pub(super) struct Activity(AtomicIsize);

impl Default for Activity {
    /// The thread that executes the run.
    fn default() -> Self {
        Self(AtomicIsize::new(1))
    }
}

impl Activity {
    /// Whether all threads wait: nothing goes on unless a time comes or somebody does something.
    pub(super) fn is_idle(&self) -> bool {
        self.0.load(Ordering::SeqCst) <= 0
    }

    /// This thread does nothing until what it gets is dropped.
    pub(super) fn pause(&self) -> Share<'_> {
        self.share(-1)
    }

    pub(super) fn begin(&self) -> Share<'_> {
        self.share(1)
    }

    fn share(&self, by: isize) -> Share<'_> {
        self.0.fetch_add(by, Ordering::SeqCst);
        Share { activity: self, by }
    }
}

/// A thread that counts, or does not, as long as this lives.
pub(super) struct Share<'a> {
    activity: &'a Activity,
    by: isize,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.activity.0.fetch_sub(self.by, Ordering::SeqCst);
    }
}
