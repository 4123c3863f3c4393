//! Lists the steps of a run that were granted secrets, so that their results can be reviewed before the run
//! is passed on.

use std::collections::{BTreeMap, BTreeSet};

use lobster_base::place::step_id;
use lobster_language::plan::{Plan, Workflow};
use lobster_store::Store;
use serde::Serialize;

use crate::recording::Recording;

/// A step, and the names of the secrets that it was granted or that were added to its requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GrantedSecrets {
    pub step: String,
    pub secrets: Vec<String>,
}

type Found = BTreeMap<String, BTreeSet<String>>;

/// The grants of the plan, and additional ones from the actions of steps: sub-workflows whose path came from
/// a result, and servers of the operator.
pub(super) fn granted_secrets(store: &Store, recording: &Recording) -> Vec<GrantedSecrets> {
    let mut found = Found::new();
    if let Ok(Plan::Workflow(workflow)) = recording.read_plan(store) {
        add_file(&mut found, &workflow);
    }
    for path in recording.steps.keys() {
        let Some(action) = recording.read_preimage(store, path) else { continue };
        let variables = action["secrets"].as_object().into_iter().flat_map(|variables| variables.values());
        let credentials = action["credentials"].as_array().into_iter().flatten();
        for secret in variables.chain(credentials).filter_map(|held| held["secret"].as_str()) {
            found.entry(step_id(path).into_owned()).or_default().insert(secret.to_owned());
        }
    }
    let granted = |(step, secrets): (String, BTreeSet<String>)| GrantedSecrets {
        step,
        secrets: secrets.into_iter().collect(),
    };
    found.into_iter().map(granted).collect()
}

fn add_file(found: &mut Found, workflow: &Workflow) {
    for step in workflow.all_steps() {
        let secrets = step.extras.secrets.iter().map(|grant| &grant.secret);
        for secret in secrets.chain(step.extras.credentials.iter().map(|grant| &grant.secret)) {
            found.entry(step.id.clone()).or_default().insert(secret.clone());
        }
    }
    workflow.children.values().for_each(|child| add_file(found, child));
}
