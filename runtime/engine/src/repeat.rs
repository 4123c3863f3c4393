//! Loops that end when a condition holds.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::for_each::round_results;
use super::path::StepPath;
use super::record::{Record, Scope};
use super::redacted::redacted_record;
use super::switch::skipped_record;
use super::workflow::{Enclosing, Frame};
use lobster_base::cancel::CancelToken;
use lobster_base::code::Code;
use lobster_base::sync::lock;
use lobster_language::plan::{Step, Work};
use lobster_language::wait;
use lobster_stage::{StageError, Stop};

impl Frame<'_> {
    /// Runs the steps until the condition holds; returns the result of the last round.
    pub(super) fn run_repeat(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let Work::Repeat { until, every, max, index_var, steps } = &step.work else {
            return Ok(Record::new(&step.id));
        };
        let max = usize::try_from(*max).unwrap_or(usize::MAX).max(1);
        let inside = Enclosing { reinject_args: true, ..enclosing.inside_step(step) };
        for index in 0.. {
            let round = path.round(index);
            if index > 0 && index.is_multiple_of(max) && !self.may_go_on(path, &round, index / max)? {
                self.run.record_failure(path);
                let message = format!(
                    "Workflow step {} repeat: its condition does not hold after {index} rounds: {}. `lobster \
                     resume` continues for as many rounds again.",
                    step.id,
                    until.source_text()
                );
                // Another attempt, if the author asked for one, begins from the first round.
                return Err(StageError::new(message).with_code(Code::RepeatLimit).into());
            }
            if let Some(every) = every.as_ref().filter(|_| index > 0) {
                let text = self.fill_template(every, scope, path)?;
                let decide = |now| wait::deadline_after(&text, now);
                self.wait_until(&format!("{} repeat.every", step.id), &round, &text, decide, cancel)?;
            }
            let mut own = Scope::nested_in(scope);
            own.insert_record(Arc::new(Record::of_value(index_var, Arc::new(json!(index)))));
            self.run_sequence(steps, &mut own, &round, &inside, cancel)?;
            for sub in steps {
                // Steps after a step with `skip_rest` have no record.
                if own.get_own(&sub.id).is_none() {
                    own.insert_record(Arc::new(skipped_record(sub)));
                }
            }
            let is_over = until.evaluate(&own).map_err(|error| self.expression_failure(path, &error))?;
            if is_over {
                return self.last_round(step, path, (index_var, index), steps, &own);
            }
        }
        Err(Stop::Cancelled)
    }

    /// True if more rounds than the maximum were requested, by resuming the run after it failed here. The request is
    /// recorded, so that a replay and a fork have as many rounds.
    fn may_go_on(&self, path: &StepPath, round: &StepPath, times: usize) -> Result<bool, Stop> {
        let place = round.gate("more");
        if self.run.recorded_value(&place).is_some()
            || self.run.overseer().is_some_and(|overseer| overseer.earlier_decision(&place).is_some())
        {
            return Ok(true);
        }
        let is_asked = lock(&self.run.recall).retries_at(path) >= times;
        if is_asked {
            self.run.record_value(&place, || Ok(json!(true)))?;
        }
        Ok(is_asked)
    }

    fn last_round(
        &self,
        step: &Step,
        path: &StepPath,
        (index_var, index): (&str, usize),
        steps: &[Step],
        scope: &Scope<'_>,
    ) -> Result<Record, Stop> {
        let results = match round_results(steps, scope) {
            Ok(results) => results,
            Err(stop) => {
                self.run.recorded_end(path, stop)?;
                return Ok(redacted_record(step, path));
            }
        };
        let mut round = Map::new();
        round.insert(index_var.to_owned(), json!(index));
        round.extend(results.into_iter().map(|(id, value)| (id.clone(), Arc::unwrap_or_clone(value))));
        Ok(Record::of_value(&step.id, Arc::new(Value::Object(round))))
    }
}
