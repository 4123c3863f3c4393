//! Use of the other processors during a replay. One thread executes the plan from its beginning. Meanwhile,
//! other threads compute recorded pure steps from the end backwards, as far as their action alone determines
//! the result, until the two meet.

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

/// Fewer steps than this are computed faster than a thread starts.
const WORTH_IT: usize = 32;

/// Values may be nested deeply; the memory is only reserved until it is used.
const STACK: usize = 64 << 20;

/// Outcomes computed ahead of the plan.
#[derive(Default)]
pub(super) struct Precomputed {
    /// Outcomes by action, until the plan reaches the action.
    computed: Mutex<HashMap<Digest, StepOutcome>>,
    /// Actions that the plan has reached.
    reached: Mutex<HashSet<Digest>>,
}

impl Precomputed {
    /// Calls `work`, which executes the plan, while other threads compute steps of its record.
    pub(super) fn run_beside<T>(&self, run: &Run<'_>, recording: &Recording, work: impl FnOnce() -> T) -> T {
        let actions = pure_actions(recording);
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get) - 1;
        if actions.len() < WORTH_IT || threads == 0 {
            return work();
        }
        let left = Mutex::new(actions);
        let cancel = run.services.cancel.child_token();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let thread = std::thread::Builder::new().stack_size(STACK);
                // If a thread cannot be started, there is one fewer.
                let _ = thread.spawn_scoped(scope, || self.compute_actions(run, &left, &cancel));
            }
            let result = work();
            cancel.cancel(CancelReason::Superseded);
            result
        })
    }

    fn compute_actions(&self, run: &Run<'_>, left: &Mutex<Vec<Digest>>, cancel: &CancelToken) {
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

    /// The outcome of an action, if it was computed. It is used for one step only; another step with the same
    /// action computes it again.
    pub(super) fn take_outcome(&self, action: &Digest) -> Option<StepOutcome> {
        lock(&self.reached).insert(*action);
        lock(&self.computed).remove(action)
    }
}

/// The actions of successful pure steps, in the order of the journal.
fn pure_actions(recording: &Recording) -> Vec<Digest> {
    let mut seen = HashSet::new();
    // The rounds of a loop can keep all processors busy by themselves.
    let steps = recording.in_order().into_iter().filter(|(path, _)| !path.contains('['));
    steps
        .map(|(_, step)| step)
        .filter(|step| !step.effect)
        .filter(|step| step.outcome.as_ref().is_some_and(|outcome| outcome.status == StepStatus::Ok))
        .filter_map(|step| step.action)
        .filter(|action| seen.insert(*action))
        .collect()
}
