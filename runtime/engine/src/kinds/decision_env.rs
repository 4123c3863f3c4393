//! The facts about a step that a policy decision may use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lobster_base::credential::ADDRESS;
use lobster_policy::{DecisionEnv, HostPrograms, Policy, Shell, expand_set_value};

use crate::env::Env;
use crate::surroundings::Surroundings;

/// Collects the facts that a decision may use. The workspace is the directory in which the run began, even if it is
/// resumed from another one.
pub(crate) fn decision_env(
    policy: &Policy,
    surroundings: &Surroundings,
    workspace: &Path,
    env: &Env,
) -> DecisionEnv {
    let vars: BTreeMap<String, String> = if policy.is_open() {
        env.child_vars()
            .filter_map(|(name, value)| Some((name.to_str()?.to_owned(), value.to_str()?.to_owned())))
            .collect()
    } else {
        let mut vars = policy.file().sandbox.env.set.clone();
        vars.entry("HOME".to_owned()).or_insert_with(|| "@step-home".to_owned());
        vars.extend(env.granted_values());
        // The address is known only when the step starts; `{url}` is its placeholder.
        vars.extend(env.credentials().iter().flat_map(|grant| grant.environment_for(ADDRESS)));
        vars
    };
    let mut given = env.granted_values();
    given.extend(env.credentials().iter().flat_map(|grant| grant.variables.clone()));
    let mut place = DecisionEnv {
        workspace: workspace.display().to_string(),
        home: surroundings.home.clone(),
        tmp: "/tmp".to_owned(),
        state: surroundings.state.clone(),
        protected: surroundings.protected.clone(),
        vars,
        given,
        programs: Arc::new(HostPrograms),
        shell: configured_shell(policy, env),
    };
    if !policy.is_open() {
        expand_set_values(policy, &mut place);
    }
    place
}

/// Expands the values that the policy sets, as the step will get them. Values of the plan stay as they are.
fn expand_set_values(policy: &Policy, place: &mut DecisionEnv) {
    for (name, value) in &policy.file().sandbox.env.set {
        if !place.given.contains_key(name) && place.vars.get(name) == Some(value) {
            let value = expand_set_value(value, place);
            place.vars.insert(name.clone(), value);
        }
    }
}

/// The shell that runs shell text: `LOBSTER_SHELL`, else `/bin/sh`. Under a policy `PATH` does not influence which
/// file that is.
fn configured_shell(policy: &Policy, env: &Env) -> Shell {
    let asked = env.non_blank("LOBSTER_SHELL").unwrap_or_else(|| "/bin/sh".to_owned());
    let search: Vec<PathBuf> = if policy.is_open() {
        env.get_passed("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
    } else {
        policy.file().programs.trusted_dirs.iter().map(PathBuf::from).collect()
    };
    Shell::find(&asked, policy, &search, &HostPrograms)
}
