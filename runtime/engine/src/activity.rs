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
    pub(super) fn mark_waiting(&self) -> Share<'_> {
        self.adjust_count(-1)
    }

    pub(super) fn mark_running(&self) -> Share<'_> {
        self.adjust_count(1)
    }

    fn adjust_count(&self, by: isize) -> Share<'_> {
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
