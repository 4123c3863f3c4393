//! Loops over the items of an array.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::at_once::{Schedule, Turn, at_once, first_stop};
use super::attempts::timeout_as_failure;
use super::path::StepPath;
use super::record::{Record, Scope};
use super::redacted::redacted_record;
use super::workflow::{Enclosing, Frame};
use crate::kinds::component;
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_language::plan::{Step, Work};
use lobster_stage::{StageError, Stop};

/// Most concurrent rounds of a pure loop, if the loop sets no number. More would seldom be faster, and each round
/// holds a component's memory.
const MAX_AT_ONCE: usize = 8;

/// A round, and the token that can end it early.
struct Round {
    index: usize,
    token: CancelToken,
}

/// The result of a round.
type Ending = Result<Option<Value>, Stop>;

/// The running rounds. They begin in order.
struct Rounds<'c> {
    count: usize,
    next: usize,
    /// The first round that failed so far.
    failed: usize,
    under_way: HashMap<usize, CancelToken>,
    cancel: &'c CancelToken,
    /// True if pure rounds are cancelled when an earlier round fails, since a sequential loop would not have begun
    /// them. Effects that have begun are never cancelled for this reason.
    gives_up: bool,
}

impl Schedule<Round, Ending> for Rounds<'_> {
    fn next(&mut self) -> Turn<Round> {
        let index = self.next;
        if index >= self.count || index > self.failed {
            return Turn::Over;
        }
        self.next += 1;
        let token = self.cancel.child_token();
        self.under_way.insert(index, token.clone());
        Turn::Do(Round { index, token })
    }

    fn finish_job(&mut self, round: &Round, result: &Ending) -> bool {
        self.under_way.remove(&round.index);
        match result {
            Ok(_) => true,
            Err(Stop::Paused) => false,
            Err(_) => {
                self.failed = self.failed.min(round.index);
                for (_, token) in self.under_way.iter().filter(|(other, _)| **other > round.index) {
                    if self.gives_up {
                        token.cancel(CancelReason::Superseded);
                    }
                }
                true
            }
        }
    }
}

impl Frame<'_> {
    /// Runs the sub-steps once for each item, in order.
    pub(super) fn for_each(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let Work::ForEach { over, batch_size, pause_ms, concurrency, .. } = &step.work else {
            return Ok(Record::new(&step.id));
        };
        let items = self.loop_items(step, over, scope, path)?;
        let Value::Array(items) = &*items else { return Ok(Record::new(&step.id)) };
        if let Some(progress) = &self.run.services.progress {
            progress.loop_started(path.as_str(), items.len());
        }
        let inside = Enclosing { reinject_args: true, ..enclosing.inside_step(step) };
        let is_pure = items.len() > 1 && self.rounds_are_independent(step, path, cancel);
        let width = match concurrency {
            Some(said) => usize::try_from(*said).unwrap_or(MAX_AT_ONCE),
            None if is_pure => std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_AT_ONCE),
            None => 1,
        };
        if items.len() > 1 && width > 1 {
            // Pure rounds change no files.
            let around = if is_pure {
                Vec::new()
            } else {
                inside.pile.commit_waiting(self.run, cancel)?;
                items.iter().map(|_| inside.for_branch()).collect()
            };
            let rounds =
                self.rounds_at_once(width, is_pure, items, path, cancel, |index, item, cancel| {
                    self.run_round(
                        step,
                        scope,
                        path,
                        around.get(index).unwrap_or(&inside),
                        index,
                        item,
                        cancel,
                    )
                })?;
            self.join_piles(path, &inside, &around, cancel)?;
            return Ok(rounds_record(step, path, rounds));
        }
        let mut rounds = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            if let Some(pause) = pause_ms.filter(|pause| *pause > 0)
                && index > 0
                && (index as u64).is_multiple_of(*batch_size)
                && !self.run.has_recorded_end(&path.round(index))
                && cancel.sleep_or_cancel(Duration::from_millis(pause))
            {
                return Err(Stop::Cancelled);
            }
            rounds.push(self.run_round(step, scope, path, &inside, index, item, cancel)?);
        }
        Ok(rounds_record(step, path, rounds))
    }

    /// True if the rounds cannot be distinguished from outside: all steps are pure and pass no values to other rounds,
    /// and there is no pause, question or cost limit between two rounds.
    fn rounds_are_independent(&self, step: &Step, path: &StepPath, cancel: &CancelToken) -> bool {
        let Work::ForEach { pause_ms, steps, .. } = &step.work else { return false };
        pause_ms.is_none_or(|pause| pause == 0)
            && self.workflow.cost_limit.is_none()
            && steps.iter().all(is_pure)
            && !steps
                .iter()
                .any(|sub| component::may_use_values(self, sub, &path.round(0).step(&sub.id), cancel))
    }

    /// Runs several rounds concurrently. Results are in the order of the items, and so are failures: rounds begin in
    /// order, so when one fails, all earlier rounds have begun and are waited for, and the first failure is reported.
    /// A round that waits for a person keeps running.
    fn rounds_at_once(
        &self,
        width: usize,
        is_pure: bool,
        items: &[Value],
        path: &StepPath,
        cancel: &CancelToken,
        round: impl Fn(usize, &Value, &CancelToken) -> Ending + Sync,
    ) -> Result<Vec<Option<Value>>, Stop> {
        let rounds = Rounds {
            count: items.len(),
            next: 0,
            failed: usize::MAX,
            under_way: HashMap::new(),
            cancel,
            gives_up: is_pure,
        };
        let of = (!is_pure).then_some((&self.run.store, &self.run.activity));
        let mut done = at_once(width.min(items.len()), of, rounds, |job: &Round| {
            let result = round(job.index, &items[job.index], &job.token);
            timeout_as_failure(result, &job.token)
        });
        done.sort_unstable_by_key(|(round, _)| round.index);
        // Rounds after the first failure were cancelled, and report only that.
        if is_pure
            && let Some(at) = done.iter().position(|(_, result)| matches!(result, Err(Stop::Failed(_))))
        {
            done.truncate(at + 1);
        }
        let results = done.into_iter().map(|(_, result)| result).collect();
        first_stop(results, |error| error).inspect_err(|_| {
            // A round that was cancelled is continued with the rest of the loop.
            if is_pure {
                self.run.record_failure(path);
            }
        })
    }

    /// One round; `None` if its result was left out of the record.
    #[expect(clippy::too_many_arguments, reason = "one round of a loop is described by all of these")]
    fn run_round(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        inside: &Enclosing,
        index: usize,
        item: &Value,
        cancel: &CancelToken,
    ) -> Result<Option<Value>, Stop> {
        let Work::ForEach { item_var, index_var, steps, .. } = &step.work else { return Ok(None) };
        let mut own = Scope::nested_in(scope);
        own.insert_record(Arc::new(Record::of_value(index_var, Arc::new(json!(index)))));
        let item = Arc::new(item.clone());
        // The item is added last, since a question at the beginning of the round is about it.
        own.insert_record(Arc::new(Record::of_value(item_var, Arc::clone(&item))));
        self.run_sequence(steps, &mut own, &path.round(index), inside, cancel)?;
        let results = match round_results(steps, &own) {
            Ok(results) => results,
            Err(stop) => {
                self.run.recorded_end(path, stop)?;
                return Ok(None);
            }
        };
        // Once the records of the round are dropped, its values can be moved out without a copy.
        drop(own);
        let mut round = Map::new();
        round.insert(item_var.clone(), Arc::unwrap_or_clone(item));
        round.insert(index_var.clone(), json!(index));
        round.extend(results.into_iter().map(|(id, value)| (id.clone(), Arc::unwrap_or_clone(value))));
        Ok(Some(Value::Object(round)))
    }

    /// The items of the loop; a value that is not an array is an error that names its type.
    fn loop_items(
        &self,
        step: &Step,
        over: &str,
        scope: &Scope<'_>,
        path: &StepPath,
    ) -> Result<Arc<Value>, Stop> {
        let found = self
            .resolve_text(over, scope)
            .map_err(|error| self.expression_failure(path, &error))?
            .load_value()?;
        let kind = match found.as_deref() {
            Some(Value::Array(_)) => return Ok(found.unwrap_or_default()),
            Some(Value::Object(_)) => "object",
            Some(Value::Bool(_)) => "boolean",
            Some(Value::Number(_)) => "number",
            Some(Value::String(_)) => "string",
            Some(Value::Null) | None => "undefined",
        };
        self.run.record_failure(path);
        Err(StageError::permanent(format!("Workflow step {} for_each: expected array, got {kind}", step.id))
            .into())
    }
}

/// The results of one round's steps.
pub(super) fn round_results<'s>(
    steps: &'s [Step],
    scope: &Scope<'_>,
) -> Result<Vec<(&'s String, Arc<Value>)>, Stop> {
    let mut results = Vec::with_capacity(steps.len());
    for sub in steps {
        let Some(record) = scope.get_own(&sub.id).filter(|record| !record.skipped) else { continue };
        results.extend(record.main_value()?.map(|value| (&sub.id, value)));
    }
    Ok(results)
}

fn rounds_record(step: &Step, path: &StepPath, rounds: Vec<Option<Value>>) -> Record {
    let Some(rounds) = rounds.into_iter().collect() else { return redacted_record(step, path) };
    Record::of_value(&step.id, Arc::new(Value::Array(rounds)))
}

/// True if a step only computes its result.
fn is_pure(step: &Step) -> bool {
    let computes = matches!(step.work, Work::Nothing | Work::Component { .. } | Work::Js(_));
    let live = step.extras.grants.as_ref().is_some_and(|grants| {
        grants.clock || grants.random || !grants.net.is_empty() || !grants.write.is_empty()
    });
    computes && !live && step.extras.secrets.is_empty() && step.approval.is_none() && step.retry.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_begins_after_a_failed_round_and_what_is_ahead_of_it_ends() {
        for gives_up in [true, false] {
            let cancel = CancelToken::new();
            let mut rounds = Rounds {
                count: 5,
                next: 0,
                failed: usize::MAX,
                under_way: HashMap::new(),
                cancel: &cancel,
                gives_up,
            };
            let begin = |rounds: &mut Rounds<'_>| match rounds.next() {
                Turn::Do(round) => Some(round),
                Turn::Await | Turn::Over => None,
            };
            let begun: Vec<Round> = (0..3).filter_map(|_| begin(&mut rounds)).collect();
            assert_eq!(begun.iter().map(|round| round.index).collect::<Vec<_>>(), [0, 1, 2]);
            let failure = || Err(Stop::Failed(StageError::new("no")));
            assert!(!rounds.finish_job(&begun[0], &Err(Stop::Paused)), "a question keeps its place");
            assert!(rounds.finish_job(&begun[1], &failure()));
            let cancelled: Vec<bool> = begun.iter().map(|round| round.token.is_cancelled()).collect();
            assert_eq!(cancelled, [false, false, gives_up]);
            assert!(begin(&mut rounds).is_none());
            rounds.finish_job(&begun[2], &failure());
            assert_eq!(rounds.failed, 1);
        }
    }
}
