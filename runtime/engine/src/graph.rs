//! Files whose steps name the steps that they need: a step begins when the steps that it needs have ended.

use std::sync::{Arc, Mutex};

use lobster_base::cancel::CancelToken;
use lobster_base::sync::lock;
use lobster_stage::Stop;
use lobster_store::{StepOutcome, StepStatus};

use super::at_once::{Schedule, Turn, at_once, first_stop};
use super::record::{Record, Scope};
use super::workflow::{Enclosing, Frame, StepEnd, kind_name};
use lobster_language::plan::Step;

/// Most concurrent steps, if the file sets no number. Files that want more say so.
const MAX_AT_ONCE: usize = 64;

/// A step that is ready to begin.
struct Job {
    index: usize,
    /// True if the step is skipped, because a step that it needs was skipped.
    is_skipped: bool,
}

/// The state of a step.
#[derive(Clone, Copy, PartialEq)]
enum Standing {
    /// It has not begun.
    Open,
    UnderWay,
    /// The step has a record: it completed, or it failed and the failure was ignored.
    Done,
    /// It was skipped.
    Skipped,
    /// The step failed, and all steps that need it are skipped, regardless of their conditions.
    Closed,
    /// The step failed or waits for a person; steps that need it do not begin now.
    Stopped,
}

struct Graph<'w> {
    steps: &'w [Step],
    needs: &'w [Vec<usize>],
    standing: Vec<Standing>,
    /// True after a failure or the end of the run: no more steps begin.
    is_stopped: bool,
}

impl Graph<'_> {
    /// The job of a step that has not begun; `None` as long as a step that it needs has not ended.
    fn ready_job(&self, index: usize) -> Option<Job> {
        let standing = |need: &usize| self.standing[*need];
        let needs = &self.needs[index];
        let ended =
            |need: &usize| matches!(standing(need), Standing::Done | Standing::Skipped | Standing::Closed);
        if !needs.iter().all(ended) {
            return None;
        }
        let asks = |need: &usize| self.steps[index].asks_about(&self.steps[*need].id);
        let is_skipped = needs.iter().any(|need| match standing(need) {
            Standing::Closed => true,
            Standing::Skipped => !asks(need),
            Standing::Open | Standing::UnderWay | Standing::Done | Standing::Stopped => false,
        });
        Some(Job { index, is_skipped })
    }

    /// True if a step is skipped because a step that it needs failed with `skip_rest`.
    fn is_closed(&self, index: usize) -> bool {
        self.needs[index].iter().any(|need| self.standing[*need] == Standing::Closed)
    }
}

impl Schedule<Job, Result<StepEnd, Stop>> for Graph<'_> {
    fn next(&mut self) -> Turn<Job> {
        if self.is_stopped {
            return Turn::Over;
        }
        let mut open = (0..self.steps.len()).filter(|index| self.standing[*index] == Standing::Open);
        if let Some(job) = open.find_map(|index| self.ready_job(index)) {
            self.standing[job.index] = Standing::UnderWay;
            return Turn::Do(job);
        }
        let is_under_way = self.standing.contains(&Standing::UnderWay);
        if is_under_way && self.standing.contains(&Standing::Open) { Turn::Await } else { Turn::Over }
    }

    fn finish_job(&mut self, job: &Job, result: &Result<StepEnd, Stop>) -> bool {
        self.standing[job.index] = match result {
            Ok(_) if job.is_skipped && self.is_closed(job.index) => Standing::Closed,
            Ok(StepEnd::Skipped) => Standing::Skipped,
            Ok(StepEnd::Completed(_) | StepEnd::Passed) => Standing::Done,
            Ok(StepEnd::SkipRest) => Standing::Closed,
            Err(Stop::Paused) => Standing::Stopped,
            Err(_) => {
                self.is_stopped = true;
                Standing::Stopped
            }
        };
        !matches!(result, Err(Stop::Paused))
    }
}

impl Frame<'_> {
    /// Runs the steps of a graph; returns the record of the last step of the file that completed.
    ///
    /// A step sees the records of the steps that it needs, directly or indirectly, and no others: its work must not
    /// depend on which of two steps ends first.
    pub(super) fn run_graph(&self, cancel: &CancelToken) -> Result<Option<Arc<Record>>, Stop> {
        let steps = &self.workflow.steps;
        let (needs, order) = (self.workflow.needed_steps(), self.workflow.execution_order());
        let above = all_needs(&needs, &order);
        let records: Mutex<Vec<Option<Arc<Record>>>> = Mutex::new(vec![None; steps.len()]);
        // The changes to files of each step that are not committed yet.
        let piles = Mutex::new(steps.iter().map(|_| self.pile.of_step(&[])).collect::<Vec<_>>());
        let work = |job: &Job| {
            let step = &steps[job.index];
            if cancel.is_cancelled() {
                return Err(Stop::Cancelled);
            }
            let mut scope = Scope::default();
            for index in order.iter().filter(|index| above[job.index].contains(index)) {
                lock(&records)[*index].iter().for_each(|record| scope.insert_record(Arc::clone(record)));
            }
            let ended = match job.is_skipped {
                true => self.skip_step(step, &mut scope, &self.path),
                false => {
                    let needed = order.iter().filter(|index| above[job.index].contains(index));
                    let needed: Vec<_> = needed.map(|index| Arc::clone(&lock(&piles)[*index])).collect();
                    let pile = self.pile.of_step(&needed);
                    lock(&piles)[job.index] = Arc::clone(&pile);
                    let around = Enclosing::from_parts(Arc::clone(&pile), Arc::clone(&self.account));
                    let ended = self.run_step(step, &mut scope, &self.path, &around, cancel);
                    ended.and_then(|ended| pile.settle_step(self.run, cancel).map(|()| ended))
                }
            };
            lock(&records)[job.index] = scope.get_own(&step.id).cloned();
            ended
        };
        let graph =
            Graph { steps, needs: &needs, standing: vec![Standing::Open; steps.len()], is_stopped: false };
        let said = self.workflow.concurrency.and_then(|most| usize::try_from(most).ok());
        let width = said.unwrap_or(MAX_AT_ONCE).min(steps.len());
        let mut done = at_once(width, Some((&self.run.store, &self.run.activity)), graph, work);
        done.sort_by_key(|(job, _)| job.index);
        let results = done.into_iter().map(|(_, result)| result).collect();
        let completed = first_stop(results, |error| error)?.into_iter().filter_map(|ended| match ended {
            StepEnd::Completed(record) => Some(record),
            StepEnd::Skipped | StepEnd::Passed | StepEnd::SkipRest => None,
        });
        let last = completed.last();
        self.pile.take_over(&lock(&piles));
        Ok(last)
    }

    /// Skips a step.
    pub(super) fn skip_step(
        &self,
        step: &Step,
        scope: &mut Scope<'_>,
        at: &super::path::StepPath,
    ) -> Result<StepEnd, Stop> {
        let path = at.step(&step.id);
        scope.insert_record(Arc::new(super::switch::skipped_record(step)));
        let skipped = StepOutcome::new(StepStatus::Skipped);
        self.show_end(&path, &skipped);
        self.run.record_summary(&path, skipped, kind_name(&step.work))?;
        Ok(StepEnd::Skipped)
    }
}

/// For each step, all steps that it needs, directly or indirectly.
fn all_needs(needs: &[Vec<usize>], order: &[usize]) -> Vec<std::collections::BTreeSet<usize>> {
    let mut all = vec![std::collections::BTreeSet::new(); needs.len()];
    for &index in order {
        for &need in &needs[index] {
            let above = all[need].clone();
            all[index].extend(above);
            all[index].insert(need);
        }
    }
    all
}
