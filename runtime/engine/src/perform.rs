//! Executes a plan: its pipeline, or the steps of its workflow.

use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};

use super::binding::Asker;
use super::budget;
use super::path::StepPath;
use super::pipeline::{self, PipelineContext, PipelineInput};
use super::run::Run;
use super::value::RunOutput;
use super::workflow::Frame;
use crate::kinds::pile::Pile;
use lobster_base::code::Code;
use lobster_base::sync::lock;
use lobster_language::plan::{ChangesMode, Plan, Workflow};
use lobster_models::cost::{CostLimit, CostTracker, LimitAction, Spending};
use lobster_models::pricing::Pricing;
use lobster_stage::{StageError, Stop};
use lobster_store::Event;

/// Executes a plan and returns its output, without recording the end in the journal.
pub fn output_of(run: &Run<'_>, plan: &Plan, args: &Map<String, Value>) -> Result<RunOutput, Stop> {
    run.keep_host_functions()?;
    match plan {
        Plan::Pipeline(pipeline) => {
            let place = PipelineContext {
                path: StepPath::root(),
                env: run.services.env.clone(),
                cwd: run.cwd.clone(),
                asker: Asker::Pipeline,
                cancel: run.cancel.clone(),
                capture: run.services.screen.is_none(),
                cost: None,
                account: budget::of_run(run, None)?,
                extras: None,
                pile: Pile::of_run(ChangesMode::Direct),
            };
            // In tool mode the last rendering is the result, unless items follow it.
            pipeline::run_pipeline(run, pipeline, PipelineInput::Nothing, place).map(|done| {
                match done.rendered.last_output() {
                    Some(rendering) if done.items.len() == 0 => rendering,
                    Some(_) | None => RunOutput::from_items(done.items),
                }
            })
        }
        Plan::Workflow(workflow) => workflow_output(run, workflow, args),
    }
}

fn workflow_output(run: &Run<'_>, workflow: &Workflow, args: &Map<String, Value>) -> Result<RunOutput, Stop> {
    let services = run.services;
    let cost = cost_tracker(run, workflow, &StepPath::root(), None)?;
    let account = budget::of_run(run, Some(workflow))?;
    let least_changes = workflow.least_changes.unwrap_or(ChangesMode::Direct);
    let pile = Pile::of_run(least_changes);
    let frame = Frame {
        run,
        workflow,
        args,
        env: services.env.clone(),
        cwd: run.cwd.clone(),
        path: StepPath::root(),
        active: vec![std::fs::canonicalize(&workflow.file).unwrap_or_else(|_| workflow.file.clone())],
        cost: Arc::clone(&cost),
        account,
        least_changes,
        pile: Arc::clone(&pile),
    };
    let last = frame.run_steps(&run.cancel)?;
    pile.commit_waiting(run, &run.cancel)?;
    if let Some(meta) = lock(&cost).summary() {
        run.append_unsynced(Event::Note { path: None, text: "cost".to_owned(), detail: meta })?;
    }
    Ok(match last {
        Some(record) => record.into_output()?,
        None => RunOutput::empty(),
    })
}

/// A new tracker. In a resumed run the journal adds the earlier costs again when their steps are reached; calls that
/// no step repeats are added from the beginning.
///
/// # Errors
/// If the workflow's limit stops runs and the operator's table of prices is invalid.
pub(super) fn cost_tracker(
    run: &Run<'_>,
    workflow: &Workflow,
    path: &StepPath,
    parent: Option<(&Arc<Mutex<CostTracker>>, &str)>,
) -> Result<Arc<Mutex<CostTracker>>, Stop> {
    let (pricing, bad) = Pricing::configured(|name| run.services.env.get(name));
    let limit = workflow.cost_limit.as_ref().map(|limit| CostLimit {
        max_usd: limit.max_usd,
        action: if limit.stop { LimitAction::Stop } else { LimitAction::Warn },
        allows_unpriced: limit.allows_unpriced,
    });
    for bad in bad {
        if limit.is_some_and(|limit| limit.action == LimitAction::Stop) {
            let message = format!("cost_limit of the workflow stops at a bad table of prices: {bad}");
            return Err(StageError::permanent(message).with_code(Code::Setting).into());
        }
        run.services.print_note(&bad.warning());
    }
    let tracker = CostTracker::new(pricing, limit, Spending::default());
    Ok(Arc::new(Mutex::new(match parent {
        Some((parent, step)) => {
            let earlier = lock(parent).take_earlier(|place| StepPath::from(place).is_within(path));
            tracker.with_earlier(earlier).nested_in(Arc::clone(parent), step)
        }
        None => tracker.with_earlier(run.paid_earlier()),
    })))
}
