//! Runs parts of a run concurrently: branches, the rounds of a loop, the steps of a graph.

use std::sync::{Condvar, Mutex, PoisonError};

use lobster_base::sync::lock;
use lobster_stage::{StageError, Stop};
use lobster_store::Store;

use super::activity::Activity;

/// Stack of a thread. Values may nest deeply; the memory is only reserved until it is used.
const STACK: usize = 64 << 20;

/// The next turn of an idle thread.
pub(super) enum Turn<J> {
    /// Do this job.
    Do(J),
    /// Wait until a running job has ended.
    Await,
    /// Stop: no job is left.
    Over,
}

/// Decides which job begins next. It may return `Await` only while a job is running.
pub(super) trait Schedule<J, R>: Send {
    fn next(&mut self) -> Turn<J>;

    /// Reports the end of a job; returns true if its thread may take another one. A job that waits for a person keeps
    /// running until the person answers.
    fn finish_job(&mut self, job: &J, result: &R) -> bool;
}

struct State<J, R, S> {
    schedule: S,
    done: Vec<(J, R)>,
    /// True after a panic of a thread: the others do not wait for its results.
    is_broken: bool,
}

/// Does jobs on at most `width` threads, including this one. With the parts of a run in `of`, the threads share the
/// syncs of its store and are included in its activity. That helps jobs with effects and slows down jobs that only
/// compute.
pub(super) fn at_once<J: Send, R: Send>(
    width: usize,
    of: Option<(&Store, &Activity)>,
    schedule: impl Schedule<J, R>,
    work: impl Fn(&J) -> R + Sync,
) -> Vec<(J, R)> {
    let state = Mutex::new(State { schedule, done: Vec::new(), is_broken: false });
    let changed = Condvar::new();
    let (state, changed) = (&state, &changed);
    let (store, activity) = (of.map(|(store, _)| store), of.map(|(_, activity)| activity));
    let _waits_for_all = activity.map(Activity::mark_waiting);
    let run = |store: Option<&Store>| {
        let _broken = Broken { state, changed };
        let _busy = activity.map(Activity::mark_running);
        let mut now = lock(state);
        while !now.is_broken {
            match now.schedule.next() {
                Turn::Over => break,
                Turn::Await => {
                    // The syncs of other threads need not wait for an idle thread.
                    let _outside = store.map(Store::leave_commit_group);
                    let _paused = activity.map(Activity::mark_waiting);
                    now = changed.wait(now).unwrap_or_else(PoisonError::into_inner);
                }
                Turn::Do(job) => {
                    drop(now);
                    let result = work(&job);
                    now = lock(state);
                    let goes_on = now.schedule.finish_job(&job, &result);
                    now.done.push((job, result));
                    changed.notify_all();
                    if !goes_on {
                        break;
                    }
                }
            }
        }
    };
    let span = tracing::Span::current();
    std::thread::scope(|threads| {
        let _outside = store.map(Store::leave_commit_group);
        let mut places: Vec<_> = (0..width.max(1)).map(|_| store.map(Store::join_commit_group)).collect();
        let own = places.pop().flatten();
        for place in places {
            let (run, span) = (&run, span.clone());
            let body = move || {
                let (_span, _member) = (span.entered(), place.map(|place| place.become_member()));
                run(store);
            };
            // If a thread cannot be started, the others do its jobs; this one alone suffices.
            let _ = std::thread::Builder::new().stack_size(STACK).spawn_scoped(threads, body);
        }
        let member = own.map(|place| place.become_member());
        run(store);
        drop(member);
    });
    let mut state = lock(state);
    std::mem::take(&mut state.done)
}

/// Notifies the other threads if its thread panics.
struct Broken<'a, J, R, S> {
    state: &'a Mutex<State<J, R, S>>,
    changed: &'a Condvar,
}

impl<J, R, S> Drop for Broken<'_, J, R, S> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(self.state).is_broken = true;
            self.changed.notify_all();
        }
    }
}

/// The values of all parts, or the reason why the whole stops: the first part that ends the run, else the first that
/// failed, else a part that waits for a person.
pub(super) fn first_stop<R>(
    results: Vec<Result<R, Stop>>,
    reword: impl Fn(StageError) -> StageError,
) -> Result<Vec<R>, Stop> {
    let mut values = Vec::with_capacity(results.len());
    let mut stop = None;
    for result in results {
        match (result, &stop) {
            (Ok(value), _) => values.push(value),
            (Err(Stop::Failed(error)), None | Some(Stop::Paused)) => stop = Some(Stop::Failed(reword(error))),
            (Err(Stop::Failed(_) | Stop::Paused), Some(_)) => {}
            (Err(Stop::Paused), None) => stop = Some(Stop::Paused),
            (Err(other), None | Some(Stop::Paused | Stop::Failed(_))) => stop = Some(other),
            (Err(_), Some(_)) => {}
        }
    }
    stop.map_or(Ok(values), Err)
}
