//! Branches that run concurrently.

use lobster_base::code::Code;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::at_once::{Schedule, Turn, at_once, first_stop};
use super::attempts::{timeout_as_failure, with_timeout};
use super::path::StepPath;
use super::record::{Json, Record, Scope};
use super::redacted::redacted_record;
use super::value::Text;
use super::workflow::{Enclosing, Frame};
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::sync::lock;
use lobster_language::plan::{Step, Wait, Work};
use lobster_stage::{StageError, Stop, store_failure};

/// The result of a branch: its record if it completed.
type Settled = Result<Option<Arc<Record>>, Stop>;

/// All branches begin at once.
struct Branches<'t> {
    count: usize,
    next: usize,
    race: Option<Race<'t>>,
}

/// The first branch that settles wins; the others are cancelled.
struct Race<'t> {
    tokens: &'t [CancelToken],
    first: Option<usize>,
}

impl Schedule<usize, Settled> for Branches<'_> {
    fn next(&mut self) -> Turn<usize> {
        if self.next == self.count || self.race.as_ref().is_some_and(|race| race.first.is_some()) {
            return Turn::Over;
        }
        self.next += 1;
        Turn::Do(self.next - 1)
    }

    fn finish_job(&mut self, index: &usize, result: &Settled) -> bool {
        if let Some(race) = self.race.as_mut().filter(|race| race.first.is_none())
            && !matches!(result, Err(Stop::Paused))
        {
            race.first = Some(*index);
            race.tokens.iter().for_each(|token| token.cancel(CancelReason::Superseded));
        }
        true
    }
}

impl Frame<'_> {
    /// Runs the branches of a parallel step. Their records become visible together with the step's own, through the
    /// record's `json` and by their ids.
    pub(super) fn run_parallel(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        around: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let Work::Parallel { wait, timeout_ms, branches } = &step.work else {
            return Ok(Record::new(&step.id));
        };
        // A branch cannot settle changes that other branches see.
        around.pile.commit_waiting(self.run, cancel)?;
        let enclosing = Enclosing {
            env: step.env.clone(),
            cwd: step.cwd.clone(),
            reinject_args: false,
            pile: Arc::clone(&around.pile),
            account: Arc::clone(&around.account),
        };
        let run = |cancel: &CancelToken| match wait {
            Wait::All => self.run_all_branches(step, branches, scope, path, &enclosing, cancel),
            Wait::Any => self.race_branches(step, branches, scope, path, &enclosing, cancel),
        };
        match timeout_ms {
            None => run(cancel),
            Some(limit) => {
                let message = format!("Parallel step {} timed out after {limit}ms", step.id);
                let result = with_timeout(cancel, Duration::from_millis(*limit), &message, run);
                match result {
                    // `all` rewords the message of a branch, but not the message of the step's own time limit.
                    Err(Stop::Failed(error)) if is_by(&error, &message) => {
                        Err(StageError::new(message).with_code(Code::Timeout).into())
                    }
                    other => other,
                }
            }
        }
    }

    fn run_all_branches(
        &self,
        step: &Step,
        branches: &[Step],
        scope: &Scope<'_>,
        path: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let inside = isolated_branches(branches, enclosing);
        let all = Branches { count: branches.len(), next: 0, race: None };
        let mut settled =
            at_once(branches.len(), Some((&self.run.store, &self.run.activity)), all, |index: &usize| {
                self.run_branch(&branches[*index], scope, path, &inside[*index], cancel)
            });
        settled.sort_by_key(|(index, _)| *index);
        let results = settled.into_iter().map(|(_, result)| result).collect();
        let records = first_stop(results, |error| {
            let message = format!("Parallel branch failed: {}", error.message);
            error.with_message(message)
        })?;
        self.join_piles(path, enclosing, &inside, cancel)?;
        self.merge_records(step, path, records.into_iter().flatten().collect())
    }

    fn race_branches(
        &self,
        step: &Step,
        branches: &[Step],
        scope: &Scope<'_>,
        path: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        // The winner is decided once; a resumed run takes the same branch.
        let decided = path.gate("winner");
        if let Some(outcome) = self.run.recorded_outcome(&decided) {
            let index = outcome.value.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            let branch = branches.get(index).ok_or(Stop::Cancelled)?;
            let inside = isolated_branches(std::slice::from_ref(branch), enclosing);
            let around = inside.first().unwrap_or(enclosing);
            let record = self.run_branch(branch, scope, path, around, cancel)?;
            self.join_piles(path, enclosing, &inside, cancel)?;
            return self.merge_records(step, path, record.into_iter().collect());
        }
        let inside = isolated_branches(branches, enclosing);
        let tokens: Vec<_> = branches.iter().map(|_| cancel.child_token()).collect();
        let race =
            Branches { count: branches.len(), next: 0, race: Some(Race { tokens: &tokens, first: None }) };
        let first = Mutex::new(None);
        let settled =
            at_once(branches.len(), Some((&self.run.store, &self.run.activity)), race, |index: &usize| {
                let result =
                    self.run_branch(&branches[*index], scope, path, &inside[*index], &tokens[*index]);
                if !matches!(result, Err(Stop::Paused)) {
                    lock(&first).get_or_insert(*index);
                }
                result
            });
        let winner = *lock(&first);
        let is_paused = settled.iter().any(|(_, result)| matches!(result, Err(Stop::Paused)));
        let first = settled.into_iter().find(|(index, _)| Some(*index) == winner);
        let first = first.ok_or(if is_paused { Stop::Paused } else { Stop::Cancelled });
        let (index, result) = first?;
        self.run.drop_pending(path);
        let record = result?;
        self.run.record_value(&decided, || Ok(json!(index)))?;
        self.join_piles(path, enclosing, inside.get(index..=index).unwrap_or_default(), cancel)?;
        self.merge_records(step, path, record.into_iter().collect())
    }

    /// Joins the file changes of the branches.
    pub(super) fn join_piles(
        &self,
        path: &StepPath,
        around: &Enclosing,
        inside: &[Enclosing],
        cancel: &CancelToken,
    ) -> Result<(), Stop> {
        let piles: Vec<_> = inside.iter().map(|inside| Arc::clone(&inside.pile)).collect();
        around
            .pile
            .join_branches(self.run, &piles, cancel)
            .inspect_err(|_| self.run.record_failure_if_new(path))
    }

    /// The step's own record, which makes the records of its branches visible.
    fn merge_records(&self, step: &Step, path: &StepPath, records: Vec<Arc<Record>>) -> Result<Record, Stop> {
        let value = match branch_results(&records) {
            Ok(json) => Arc::new(Value::Object(json)),
            Err(stop) => {
                self.run.recorded_end(path, stop)?;
                return Ok(Record { inner: records, ..redacted_record(step, path) });
            }
        };
        let any = matches!(step.work, Work::Parallel { wait: Wait::Any, .. });
        let stdout = match records.first().filter(|_| any) {
            Some(winner) => winner.stdout.clone(),
            None => Some(Text::of_value(Arc::clone(&value))),
        };
        Ok(Record { stdout, json: Json::Value(value), inner: records, ..Record::new(&step.id) })
    }

    fn run_branch(
        &self,
        branch: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Option<Arc<Record>>, Stop> {
        let mut own = Scope::nested_in(scope);
        let result = self.run_sequence(std::slice::from_ref(branch), &mut own, path, enclosing, cancel);
        timeout_as_failure(result, cancel)
    }
}

/// The enclosing state of each branch: no branch sees the file changes of another.
fn isolated_branches(branches: &[Step], around: &Enclosing) -> Vec<Enclosing> {
    branches.iter().map(|_| around.for_branch()).collect()
}

/// True if a failure comes from the time limit with the message `limit`. The journal keeps only the text and the code,
/// and a replay waits for nothing, so the text has to be compared.
fn is_by(error: &StageError, limit: &str) -> bool {
    let first = error.first_words();
    first.has_code(Code::Timeout) && first.message == limit
}

/// The result of each branch, by its id.
fn branch_results(records: &[Arc<Record>]) -> Result<Map<String, Value>, Stop> {
    let mut json = Map::new();
    for record in records {
        let value = match (record.json()?, &record.response, &record.stdout) {
            (Some(value), _, _) => Value::clone(value),
            (None, Some(response), _) => response.clone(),
            (None, None, Some(text)) if !text.is_empty() => {
                Value::String(text.load().map_err(store_failure)?.to_string())
            }
            (None, None, _) => continue,
        };
        json.insert(record.id.clone(), value);
    }
    Ok(json)
}
