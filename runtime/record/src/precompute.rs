//! The other processors during a replay. One thread executes the plan from its
//! beginning; meanwhile the others compute recorded pure steps from the end on, those
//! that their action alone decides, until they meet.

use std::collections::{HashMap, HashSet};
use std::num::NonZero;
use std::sync::Mutex;

use super::recording::Recording;
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::digest::Digest;
use lobster_base::sync::lock;
use lobster_engine::kinds::component::compute_recorded;
use lobster_engine::run::Run;
use lobster_store::{StepOutcome, StepStatus};

/// Fewer steps than this are computed sooner than a thread has begun.
const WORTH_IT: usize = 32;

/// Values may nest deeply; the memory is only reserved until it is used.
const STACK: usize = 64 << 20;

/// What was computed ahead of the plan.
#[derive(Default)]
pub(super) struct Precomputed {
    /// What an action gave, until the plan comes to it.
    computed: Mutex<HashMap<Digest, StepOutcome>>,
    /// What the plan has come to.
    reached: Mutex<HashSet<Digest>>,
}

impl Precomputed {
    /// Does `work`, which executes the plan, while other threads compute steps of its record.
    pub(super) fn beside<T>(&self, run: &Run<'_>, recording: &Recording, work: impl FnOnce() -> T) -> T {
        let actions = actions(recording);
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get) - 1;
        if actions.len() < WORTH_IT || threads == 0 {
            return work();
        }
        let left = Mutex::new(actions);
        let cancel = run.services.cancel.child();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let thread = std::thread::Builder::new().stack_size(STACK);
                // A thread that cannot be had is one less.
                let _ = thread.spawn_scoped(scope, || self.help(run, &left, &cancel));
            }
            let result = work();
            cancel.cancel(CancelReason::Superseded);
            result
        })
    }

    fn help(&self, run: &Run<'_>, left: &Mutex<Vec<Digest>>, cancel: &CancelToken) {
        while !cancel.is_cancelled() {
            let Some(action) = lock(left).pop() else { return };
            if lock(&self.reached).contains(&action) {
                return; // here they meet
            }
            if let Some(outcome) = compute_recorded(run, &action, cancel) {
                lock(&self.computed).insert(action, outcome);
            }
        }
    }

    /// What an action gave, if it was computed: for one step, an equal one is computed for itself.
    pub(super) fn take(&self, action: &Digest) -> Option<StepOutcome> {
        lock(&self.reached).insert(*action);
        lock(&self.computed).remove(action)
    }
}

/// The actions of pure steps that succeeded, in the order of the journal.
fn actions(recording: &Recording) -> Vec<Digest> {
    let mut seen = HashSet::new();
    // A loop's rounds can keep all processors busy themselves.
    let steps = recording.in_order().into_iter().filter(|(path, _)| !path.contains('['));
    steps
        .map(|(_, step)| step)
        .filter(|step| !step.effect)
        .filter(|step| step.outcome.as_ref().is_some_and(|outcome| outcome.status == StepStatus::Ok))
        .filter_map(|step| step.action)
        .filter(|action| seen.insert(*action))
        .collect()
}
