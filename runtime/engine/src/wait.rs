//! Steps that wait for a time.

use std::time::Duration;

use lobster_base::cancel::CancelToken;
use lobster_base::code::Code;
use lobster_language::plan::{Step, WaitFor};
use lobster_stage::{StageError, Stop};
use lobster_store::{Durability, Store};
use serde_json::json;

use super::path::StepPath;
use super::record::{Record, Scope};
use super::workflow::Frame;

/// How long the clock is not looked at: a machine that slept, or whose clock was
/// set, is noticed within this.
const LOOK: Duration = Duration::from_secs(5);

impl Frame<'_> {
    /// Waits, and hands on what it read. When it is over is decided once, when the run first comes here:
    /// it is in the journal before the wait begins, so whoever resumes or forks waits for the rest only.
    pub(super) fn wait(
        &self,
        step: &Step,
        wait: &WaitFor,
        scope: &Scope<'_>,
        path: &StepPath,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let text = self.fill(wait.text(), scope, path)?;
        let place = path.gate("wait");
        let decided = self.run.keep(&place, || {
            let earlier = self.run.overseer().and_then(|overseer| overseer.wait(&place));
            // Another duration or time is another wait.
            if let Some(earlier) = earlier.filter(|earlier| earlier["for"] == *text) {
                return Ok(earlier);
            }
            let until = wait.deadline(&text, now(&self.run.store)).map_err(|why| {
                let message = format!("Workflow step {} wait: {why}", step.id);
                StageError::permanent(message).with_code(Code::StepValue)
            })?;
            Ok(json!({ "for": text, "until": until }))
        })?;
        let deadline = decided["until"].as_u64().unwrap_or_default();
        // A replay shows what was; it waits for nothing.
        if self.run.journals() && now(&self.run.store) < deadline {
            self.run.append(Vec::new(), Durability::Synced)?;
            let outside = self.run.store.leave_commit_group();
            let cancelled = until(deadline, &self.run.store, cancel);
            drop(outside);
            if cancelled {
                return Err(Stop::Cancelled);
            }
        }
        self.carry(step, scope, path)
    }
}

/// Waits for a time of the clock, in milliseconds since 1970; true when cancelled.
fn until(deadline: u64, store: &Store, cancel: &CancelToken) -> bool {
    loop {
        let left = Duration::from_millis(deadline.saturating_sub(now(store)));
        if left.is_zero() {
            return cancel.is_cancelled();
        }
        if cancel.wait(left.min(LOOK)) {
            return true;
        }
    }
}

fn now(store: &Store) -> u64 {
    u64::try_from(store.clock_ms()).unwrap_or_default()
}
