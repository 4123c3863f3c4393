//! Commands that the steps of a recorded run started, and rules that people approved, as the basis of a
//! policy.

use std::collections::HashMap;
use std::path::PathBuf;

use serde_json::Value;

use lobster_base::json;
use lobster_engine::WORKFLOW_DIR;
use lobster_executor::ActionDirectory;
use lobster_policy::{DecisionEnv, Observed, ObservedStart, PROPOSED_RULE, Policy};
use lobster_store::{Event, RunId, Store, StoreError};

/// The native commands that a run started, with the files that they name.
///
/// # Errors
/// If its journal or an action cannot be read.
pub fn observed_commands(store: &Store, run: RunId, env: &DecisionEnv) -> Result<Observed, StoreError> {
    let (mut commands, mut starts) = (Vec::new(), Vec::new());
    let home = PathBuf::from(store.run(run)?.cwd);
    let records = store.all_events(run)?;
    let mut reached: HashMap<(&str, u32), Vec<String>> = HashMap::new();
    for record in &records {
        if let Event::StepEnded { path, attempt, outcome, .. } = &record.event {
            let hosts = outcome.enforcement.get("reached").and_then(Value::as_array).into_iter().flatten();
            let hosts = hosts.filter_map(Value::as_str).map(str::to_owned).collect();
            reached.insert((path.as_str(), *attempt), hosts);
        }
    }
    for record in &records {
        let Event::StepStarted { path, attempt, kind, action: Some(action), .. } = &record.event else {
            continue;
        };
        if kind != "native" {
            continue;
        }
        let bytes = store.load_blob(action, MAX_ACTION)?;
        let Ok(action) = json::parse(&String::from_utf8_lossy(&bytes)) else { continue };
        let words = action.get("argv").and_then(Value::as_array).into_iter().flatten();
        let argv: Vec<String> = words.filter_map(Value::as_str).map(str::to_owned).collect();
        let cwd = action.get("cwd").and_then(|cwd| ActionDirectory::resolve_directory(cwd, &home));
        let cwd = cwd.map(|cwd| cwd.display().to_string());
        let hosts = reached.get(&(path.as_str(), *attempt)).map_or(&[][..], Vec::as_slice);
        let dir = action
            .get("env")
            .and_then(|env| ActionDirectory::resolve_directory(env.get(WORKFLOW_DIR)?, &home));
        let vars = dir.map(|dir| (WORKFLOW_DIR.to_owned(), dir.display().to_string())).into_iter().collect();
        let start = ObservedStart { argv, cwd, vars };
        commands.extend(Policy::observe_commands(&start, hosts, env));
        starts.push(start);
    }
    Ok(Observed { run: run.to_string(), commands, starts })
}

/// The rules proposed by the approvals of a run, as text of a policy file.
///
/// # Errors
/// If its journal cannot be read.
pub fn rules_of_approvals(store: &Store, run: RunId) -> Result<Vec<String>, StoreError> {
    let rule = |event: &Event| match event {
        Event::Note { detail, .. } => detail.get(PROPOSED_RULE).and_then(Value::as_str).map(str::to_owned),
        _ => None,
    };
    Ok(store.all_events(run)?.iter().filter_map(|record| rule(&record.event)).collect())
}

/// The pre-image of an action is small, because it names data by digests.
const MAX_ACTION: u64 = 16 << 20;
