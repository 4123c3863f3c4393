//! The runs that an agent may see: its own, unless the operator allows all.

use std::io::Read;

use lobster_runtime::json;
use lobster_runtime::replay::{Standing, Standings, read_standing, runs_with_standing};
use lobster_runtime::store::{
    Event, Gate, GateFilter, GateKind, GateStatus, RunFilter, RunSummary, Store, iso,
};
use serde_json::{Value, json};

use super::builtin::{RunsArgs, ShowArgs};
use super::call::MAX_ANSWER;
use super::service::Agent;

/// Most runs that are searched for one list.
const LOOKED_THROUGH: usize = 5000;

/// The store, with the limits on visible runs.
pub(super) struct History {
    pub(super) store: Store,
    /// Only runs of this actor.
    pub(super) of: Option<String>,
    /// Only runs that this agent of a service may see, regardless of who started them.
    pub(super) agent: Option<Agent>,
}

impl History {
    fn is_visible(&self, run: &RunSummary) -> bool {
        match &self.agent {
            Some(agent) => agent.may_see(run.id),
            None => self.of.is_none() || run.actor == self.of,
        }
    }

    pub(super) fn list_runs(&self, args: &RunsArgs) -> Result<Value, String> {
        let wanted = match &args.status {
            None => None,
            Some(word) => Some(word.parse::<Standing>().map_err(|_| {
                format!("status {word:?}: one of {}", Standing::ALL.map(Standing::as_str).join(", "))
            })?),
        };
        let before = args.before.as_deref().map(|run| self.store.find_run(run)).transpose();
        let filter = RunFilter {
            name: args.name.clone(),
            before: before.map_err(|error| error.to_string())?,
            limit: LOOKED_THROUGH,
            ..RunFilter::default()
        };
        let limit = args.limit.unwrap_or(20).clamp(1, 200);
        let mut runs = match wanted {
            None => self.store.list_runs(&filter).map_err(|error| error.to_string())?,
            Some(_) => {
                let found = runs_with_standing(&self.store, &filter, wanted);
                found.map_err(|error| error.to_string())?.into_iter().map(|(run, _)| run).collect()
            }
        };
        runs.retain(|run| self.is_visible(run));
        runs.truncate(limit);
        // Runs found by status have that status.
        let standings = Standings::of_runs(&self.store, if wanted.is_some() { &[] } else { &runs });
        let stands = |run: &RunSummary| wanted.unwrap_or_else(|| standings.standing(run));
        let runs: Vec<Value> = runs.iter().map(|run| run_summary(run, stands(run))).collect();
        Ok(json!({ "ok": true, "runs": runs }))
    }

    pub(super) fn show_run(&self, args: &ShowArgs) -> Result<Value, String> {
        let unknown = || format!("there is no run {:?} of yours", args.run);
        if let Some(start) = self.agent.as_ref().and_then(|agent| agent.start_that_waits(&args.run)) {
            return Ok(start);
        }
        let id = self.store.find_run(&args.run).map_err(|_| unknown())?;
        let run = self.store.run(id).map_err(|error| error.to_string())?;
        if !self.is_visible(&run) {
            return Err(unknown());
        }
        let mut shown = run_summary(&run, read_standing(&self.store, &run));
        shown["ok"] = json!(true);
        shown["steps"] = self.finished_steps(&run)?;
        let open = GateFilter { status: Some(GateStatus::Open), run: Some(id), limit: 0 };
        let gates = self.store.list_approvals(&open).map_err(|error| error.to_string())?;
        shown["gates"] = gates
            .iter()
            .map(|gate| json!({ "approvalId": gate.id, "kind": gate.kind, "step": gate.path, "request": gate.question }))
            .collect();
        if let Some(digest) = run.output {
            let max = args.max_stdout_bytes.unwrap_or(MAX_ANSWER);
            shown["output"] = self.read_output(&digest, max)?;
        }
        Ok(shown)
    }

    /// The newest open question of the run.
    pub(super) fn open_gate(&self, run: &RunSummary) -> Result<Option<Gate>, String> {
        let open = GateFilter { status: Some(GateStatus::Open), run: Some(run.id), limit: 1 };
        Ok(self.store.list_approvals(&open).map_err(|error| error.to_string())?.into_iter().next())
    }

    /// The answer of a run that succeeded or waits, in the form that its caller received.
    pub(super) fn run_envelope(&self, run: &RunSummary) -> Result<Value, String> {
        let mut envelope = json!({ "protocolVersion": 1, "ok": true, "status": "ok", "output": [] });
        if let Some(digest) = run.output {
            envelope["output"] = self.read_output(&digest, MAX_ANSWER)?;
        }
        let gate = self.open_gate(run)?;
        for (key, kind, status) in [
            ("requiresApproval", GateKind::Approval, "needs_approval"),
            ("requiresInput", GateKind::Input, "needs_input"),
        ] {
            envelope[key] = Value::Null;
            if let Some(gate) = gate.as_ref().filter(|gate| gate.kind == kind) {
                envelope["status"] = json!(status);
                envelope[key] = gate.question.clone();
                envelope[key]["approvalId"] = json!(gate.id);
            }
        }
        envelope["runId"] = json!(run.id.to_string());
        Ok(envelope)
    }

    /// The finished steps in the order of their ends.
    fn finished_steps(&self, run: &RunSummary) -> Result<Value, String> {
        let (journal, _) = self.store.found_events(run.id).map_err(|error| error.to_string())?;
        let steps = journal.iter().filter_map(|record| match &record.event {
            Event::StepEnded { path, outcome, .. } if !path.contains('!') => Some(json!({
                "step": path,
                "status": outcome.status,
                "cached": outcome.cached,
                "durationMs": outcome.duration_us / 1000,
                "error": outcome.error,
            })),
            _ => None,
        });
        Ok(steps.collect())
    }

    /// The run's output: items, or text that is not an item.
    fn read_output(&self, digest: &lobster_runtime::digest::Digest, max: usize) -> Result<Value, String> {
        let mut bytes = Vec::new();
        let reader = self.store.open_blob(digest).map_err(|error| error.to_string())?;
        reader.take(max as u64 + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() > max {
            return Err(format!("the output of the run exceeded maxStdoutBytes ({max})"));
        }
        let text = String::from_utf8_lossy(&bytes);
        let lines: Option<Vec<Value>> = text.lines().map(|line| json::parse(line).ok()).collect();
        Ok(lines.map_or_else(|| json!([text]), Value::Array))
    }
}

fn run_summary(run: &RunSummary, standing: Standing) -> Value {
    json!({
        "runId": run.id.to_string(),
        "name": run.name,
        "kind": run.kind,
        "status": standing.as_str(),
        "startedAt": iso(run.started_at),
        "endedAt": run.ended_at.map(iso),
        "actor": run.actor,
        "error": run.error,
    })
}
