//! Branches that run at the same time.

use lobster_base::code::Code;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::attempts::{timeout_as_failure, with_timeout};
use super::path::StepPath;
use super::record::{Json, Record, Scope};
use super::redacted::unknown;
use super::value::Text;
use super::workflow::{Enclosing, Frame};
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_language::plan::{Step, Wait, Work};
use lobster_stage::{StageError, Stop, store_failure};

/// What a branch came to: its index, and its record if it completed.
type Settled = (usize, Result<Option<Arc<Record>>, Stop>);

impl Frame<'_> {
    /// Runs the branches of a parallel step. Their records become visible
    /// beside the step's own, through the record's `json` and by their ids.
    pub(super) fn parallel(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let Work::Parallel { wait, timeout_ms, branches } = &step.work else {
            return Ok(Record::new(&step.id));
        };
        let enclosing = Enclosing { env: step.env.clone(), cwd: step.cwd.clone(), reinject_args: false };
        let run = |cancel: &CancelToken| match wait {
            Wait::All => self.all(step, branches, scope, path, &enclosing, cancel),
            Wait::Any => self.any(step, branches, scope, path, &enclosing, cancel),
        };
        match timeout_ms {
            None => run(cancel),
            Some(limit) => {
                let message = format!("Parallel step {} timed out after {limit}ms", step.id);
                let result = with_timeout(cancel, Duration::from_millis(*limit), &message, run);
                match result {
                    // `all` rewords what a branch says; the step's own limit speaks for itself.
                    Err(Stop::Failed(error)) if is_by(&error, &message) => {
                        Err(StageError::new(message).with_code(Code::Timeout).into())
                    }
                    other => other,
                }
            }
        }
    }

    fn all(
        &self,
        step: &Step,
        branches: &[Step],
        scope: &Scope<'_>,
        path: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let mut settled: Vec<Settled> = std::thread::scope(|threads| {
            let (sender, receiver) = mpsc::channel();
            let place: Vec<_> = branches.iter().map(|_| self.run.store.join_commit_group()).collect();
            for ((index, branch), place) in branches.iter().enumerate().zip(place) {
                let (sender, span) = (sender.clone(), tracing::Span::current());
                threads.spawn(move || {
                    let (_span, _member) = (span.entered(), place.begin());
                    // The receiver outlives the branches: it is read until all senders are gone.
                    let _ = sender.send((index, self.branch(branch, scope, path, enclosing, cancel)));
                });
            }
            drop(sender);
            let _outside = self.run.store.leave_commit_group();
            receiver.iter().collect()
        });
        settled.sort_by_key(|(index, _)| *index);
        let mut records = Vec::with_capacity(branches.len());
        let mut stop = None;
        for (_, result) in settled {
            match (result, &stop) {
                (Ok(record), _) => records.extend(record),
                (Err(Stop::Failed(error)), None | Some(Stop::Paused)) => {
                    let message = format!("Parallel branch failed: {}", error.message);
                    stop = Some(Stop::Failed(error.reworded(message)));
                }
                (Err(Stop::Failed(_) | Stop::Paused), Some(_)) => {}
                (Err(other), _) => stop = Some(other),
            }
        }
        match stop {
            Some(stop) => Err(stop),
            None => self.merged(step, path, records),
        }
    }

    fn any(
        &self,
        step: &Step,
        branches: &[Step],
        scope: &Scope<'_>,
        path: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        // Which branch won is decided once; a resumed run takes the same one.
        let decided = path.gate("winner");
        if let Some(outcome) = self.run.remembered(&decided) {
            let index = outcome.value.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            let branch = branches.get(index).ok_or(Stop::Cancelled)?;
            let record = self.branch(branch, scope, path, enclosing, cancel)?;
            return self.merged(step, path, record.into_iter().collect());
        }
        let tokens: Vec<_> = branches.iter().map(|_| cancel.child()).collect();
        let first = std::thread::scope(|threads| {
            let (sender, receiver) = mpsc::channel::<Settled>();
            let place: Vec<_> = branches.iter().map(|_| self.run.store.join_commit_group()).collect();
            for (((index, branch), token), place) in branches.iter().enumerate().zip(&tokens).zip(place) {
                let (sender, span) = (sender.clone(), tracing::Span::current());
                threads.spawn(move || {
                    let (_span, _member) = (span.entered(), place.begin());
                    let _ = sender.send((index, self.branch(branch, scope, path, enclosing, token)));
                });
            }
            drop(sender);
            let _outside = self.run.store.leave_commit_group();
            let mut paused = None;
            let first = receiver.iter().find_map(|(index, result)| match result {
                Err(Stop::Paused) => {
                    paused = Some(Stop::Paused);
                    None
                }
                other => Some((index, other)),
            });
            for token in &tokens {
                token.cancel(CancelReason::Superseded);
            }
            first.ok_or_else(|| paused.unwrap_or(Stop::Cancelled))
        });
        let (index, result) = first?;
        self.run.drop_pending(path);
        let record = result?;
        self.run.keep(&decided, || Ok(json!(index)))?;
        self.merged(step, path, record.into_iter().collect())
    }

    /// The step's own record, through which those of its branches become visible.
    fn merged(&self, step: &Step, path: &StepPath, records: Vec<Arc<Record>>) -> Result<Record, Stop> {
        let value = match joined(&records) {
            Ok(json) => Arc::new(Value::Object(json)),
            Err(stop) => {
                self.run.recorded_end(path, stop)?;
                return Ok(Record { inner: records, ..unknown(step, path) });
            }
        };
        let any = matches!(step.work, Work::Parallel { wait: Wait::Any, .. });
        let stdout = match records.first().filter(|_| any) {
            Some(winner) => winner.stdout.clone(),
            None => Some(Text::of_value(Arc::clone(&value))),
        };
        Ok(Record { stdout, json: Json::Value(value), inner: records, ..Record::new(&step.id) })
    }

    fn branch(
        &self,
        branch: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Option<Arc<Record>>, Stop> {
        let mut own = Scope::within(scope);
        let result = self.sequence(std::slice::from_ref(branch), &mut own, path, enclosing, cancel);
        timeout_as_failure(result, cancel)
    }
}

/// Whether a failure is that of the time limit which says `limit`.
fn is_by(error: &StageError, limit: &str) -> bool {
    let first = error.first_words();
    first.is(Code::Timeout) && first.message == limit
}

/// What each branch gave, by its id.
fn joined(records: &[Arc<Record>]) -> Result<Map<String, Value>, Stop> {
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
