//! Loops over the items of an array.

use std::collections::HashMap;
use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::path::StepPath;
use super::record::{Json, Record, Scope};
use super::redacted::unknown;
use super::value::Text;
use super::workflow::{Enclosing, Frame};
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::sync::lock;
use lobster_language::plan::{Step, Work};
use lobster_stage::{StageError, Stop, store_failure};

/// Most rounds at once. More would seldom be faster, and each holds a component's memory.
const MAX_AT_ONCE: usize = 8;

/// Values may nest deeply; the memory is only reserved until it is used.
const STACK: usize = 64 << 20;

/// Which rounds are under way.
struct Rounds {
    next: AtomicUsize,
    /// The first round that failed so far.
    failed: AtomicUsize,
    under_way: Mutex<HashMap<usize, CancelToken>>,
}

impl Rounds {
    /// The next round, unless there is none or an earlier one has failed.
    fn begin<'i>(&self, items: &'i [Value], token: &CancelToken) -> Option<(usize, &'i Value)> {
        let mut under_way = lock(&self.under_way);
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        if index > self.failed.load(Ordering::Relaxed) {
            return None;
        }
        let item = items.get(index)?;
        under_way.insert(index, token.clone());
        Some((index, item))
    }

    /// A round is over. If it failed, what came after it ends too: a sequential
    /// loop would not have begun it.
    fn end(&self, index: usize, failed: bool) {
        let mut under_way = lock(&self.under_way);
        under_way.remove(&index);
        if !failed {
            return;
        }
        self.failed.fetch_min(index, Ordering::Relaxed);
        for (_, token) in under_way.iter().filter(|(other, _)| **other > index) {
            token.cancel(CancelReason::Superseded);
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
        let Work::ForEach { over, batch_size, pause_ms, .. } = &step.work else {
            return Ok(Record::new(&step.id));
        };
        let items = self.items(step, over, scope, path)?;
        let Value::Array(items) = &*items else { return Ok(Record::new(&step.id)) };
        if let Some(progress) = &self.run.services.progress {
            progress.rounds(path.as_str(), items.len());
        }
        let inside = Enclosing {
            env: enclosing.env.iter().chain(&step.env).cloned().collect(),
            cwd: step.cwd.clone().or_else(|| enclosing.cwd.clone()),
            reinject_args: true,
        };
        if items.len() > 1 && self.rounds_are_independent(step) {
            let rounds = self.rounds_at_once(items, path, cancel, |index, item, cancel| {
                self.round(step, scope, path, &inside, index, item, cancel)
            })?;
            return Ok(rounds_record(step, path, rounds));
        }
        let mut rounds = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            if let Some(pause) = pause_ms.filter(|pause| *pause > 0)
                && index > 0
                && (index as u64).is_multiple_of(*batch_size)
                && !self.run.remembers(&path.round(index))
                && cancel.wait(Duration::from_millis(pause))
            {
                return Err(Stop::Cancelled);
            }
            rounds.push(self.round(step, scope, path, &inside, index, item, cancel)?);
        }
        Ok(rounds_record(step, path, rounds))
    }

    /// Whether no round can be told from outside: all its steps are pure, and
    /// nobody waits, asks or counts between two rounds.
    fn rounds_are_independent(&self, step: &Step) -> bool {
        let Work::ForEach { pause_ms, steps, .. } = &step.work else { return false };
        pause_ms.is_none_or(|pause| pause == 0)
            && self.workflow.cost_limit.is_none()
            && steps.iter().all(is_pure)
    }

    /// Runs rounds on several threads. Results come in the order of the items,
    /// and so do failures: rounds begin in order, so when one fails, all before
    /// it have begun and are waited for, and the first of the failures counts.
    fn rounds_at_once(
        &self,
        items: &[Value],
        path: &StepPath,
        cancel: &CancelToken,
        round: impl Fn(usize, &Value, &CancelToken) -> Result<Option<Value>, Stop> + Sync,
    ) -> Result<Vec<Option<Value>>, Stop> {
        let rounds = Rounds {
            next: AtomicUsize::new(0),
            failed: AtomicUsize::new(usize::MAX),
            under_way: Mutex::default(),
        };
        let work = || {
            let own = cancel.child();
            let mut done = Vec::new();
            while let Some((index, item)) = rounds.begin(items, &own) {
                let result = round(index, item, &own);
                rounds.end(index, result.is_err());
                done.push((index, result));
            }
            done
        };
        let threads =
            std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_AT_ONCE).min(items.len());
        let span = tracing::Span::current();
        let work = || span.in_scope(work);
        let mut done = std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                // A thread that cannot be had is one less; this one does all there is to do.
                .filter_map(|_| std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).ok())
                .collect();
            let mut done = work();
            for other in others {
                match other.join() {
                    Ok(theirs) => done.extend(theirs),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            done
        });
        done.sort_unstable_by_key(|(index, _)| *index);
        let results: Result<Vec<_>, _> = done.into_iter().map(|(_, result)| result).collect();
        // Several rounds may have failed: a retry must take up all of them.
        results.inspect_err(|_| self.run.record_failure(path))
    }

    /// One round; none if what it gave was left out of the record.
    #[expect(clippy::too_many_arguments, reason = "one round of a loop is described by all of these")]
    fn round(
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
        let mut own = Scope::within(scope);
        own.insert(Arc::new(Record {
            stdout: Some(Text::inline(index.to_string())),
            json: Json::value(json!(index)),
            ..Record::new(index_var)
        }));
        let item = Arc::new(item.clone());
        // The item last: it is what a question at the beginning of the round is about.
        own.insert(Arc::new(Record {
            stdout: Some(Text::of_value(Arc::clone(&item))),
            json: Json::Value(Arc::clone(&item)),
            ..Record::new(item_var)
        }));
        self.sequence(steps, &mut own, &path.round(index), inside, cancel)?;
        let results = match results(steps, &own) {
            Ok(results) => results,
            Err(stop) => {
                self.run.recorded_end(path, stop)?;
                return Ok(None);
            }
        };
        // With the round's records gone, its values are taken and not copied.
        drop(own);
        let mut round = Map::new();
        round.insert(item_var.clone(), Arc::unwrap_or_clone(item));
        round.insert(index_var.clone(), json!(index));
        round.extend(results.into_iter().map(|(id, value)| (id.clone(), Arc::unwrap_or_clone(value))));
        Ok(Some(Value::Object(round)))
    }

    /// What the loop goes over; anything but an array is an error that names the kind.
    fn items(&self, step: &Step, over: &str, scope: &Scope<'_>, path: &StepPath) -> Result<Arc<Value>, Stop> {
        let found = self.resolve(over, scope).map_err(|error| self.failed(path, &error))?.load()?;
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

/// What the steps of one round gave.
fn results<'s>(steps: &'s [Step], scope: &Scope<'_>) -> Result<Vec<(&'s String, Arc<Value>)>, Stop> {
    let mut results = Vec::with_capacity(steps.len());
    for sub in steps {
        let Some(record) = scope.get_own(&sub.id).filter(|record| !record.skipped) else { continue };
        let value = match record.json()? {
            Some(value) => Arc::clone(value),
            None => match (&record.response, &record.stdout) {
                (Some(response), _) => Arc::new(response.clone()),
                (None, Some(text)) => {
                    Arc::new(Value::String(text.load().map_err(store_failure)?.to_string()))
                }
                (None, None) => continue,
            },
        };
        results.push((&sub.id, value));
    }
    Ok(results)
}

fn rounds_record(step: &Step, path: &StepPath, rounds: Vec<Option<Value>>) -> Record {
    let Some(rounds) = rounds.into_iter().collect() else { return unknown(step, path) };
    let value = Arc::new(Value::Array(rounds));
    Record {
        stdout: Some(Text::of_value(Arc::clone(&value))),
        json: Json::Value(value),
        ..Record::new(&step.id)
    }
}

/// Whether a step computes its result and does nothing else.
fn is_pure(step: &Step) -> bool {
    let computes = match &step.work {
        Work::Nothing | Work::Component { .. } | Work::Js(_) => true,
        Work::Shell(_)
        | Work::Exec(_)
        | Work::Pipeline(_)
        | Work::Mcp { .. }
        | Work::Workflow { .. }
        | Work::Parallel { .. }
        | Work::ForEach { .. }
        | Work::Input(_)
        | Work::Wait(_) => false,
    };
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
        let rounds = Rounds {
            next: AtomicUsize::new(0),
            failed: AtomicUsize::new(usize::MAX),
            under_way: Mutex::default(),
        };
        let items = vec![Value::Null; 4];
        let tokens = [(); 3].map(|()| CancelToken::new());
        let begun: Vec<_> =
            tokens.iter().map(|token| rounds.begin(&items, token).map(|(index, _)| index)).collect();
        assert_eq!(begun, [Some(0), Some(1), Some(2)]);
        rounds.end(1, true);
        assert_eq!(tokens.each_ref().map(CancelToken::is_cancelled), [false, false, true]);
        assert!(rounds.begin(&items, &tokens[0]).is_none());
        rounds.end(2, true);
        assert_eq!(rounds.failed.load(Ordering::Relaxed), 1);
        rounds.end(0, true);
        assert_eq!(rounds.failed.load(Ordering::Relaxed), 0);
    }
}
