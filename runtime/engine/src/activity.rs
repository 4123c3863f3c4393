//! Counts the threads of a run that are working.

use std::sync::atomic::{AtomicIsize, Ordering};

/// Number of threads of a run that are working, and not waiting for a time, an event or each other.
pub(super) struct Activity(AtomicIsize);

impl Default for Activity {
    /// One: the thread that executes the run.
    fn default() -> Self {
        Self(AtomicIsize::new(1))
    }
}

impl Activity {
    /// True if all threads wait: the run continues only when a time comes or an event arrives.
    pub(super) fn is_idle(&self) -> bool {
        self.0.load(Ordering::SeqCst) <= 0
    }

    /// Marks this thread as waiting until the returned value is dropped.
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

/// Adds a thread to the number, or takes one from it, while this value lives.
pub(super) struct Share<'a> {
    activity: &'a Activity,
    by: isize,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.activity.0.fetch_sub(self.by, Ordering::SeqCst);
    }
}
