//! The secrets that the operator has named, for commands that list, check or compare them.

use std::collections::BTreeSet;
use std::path::Path;

use lobster_language::codes;
use lobster_language::diagnostic::Diagnostic;
use lobster_language::plan::{Plan, Step, Work, Workflow};
use lobster_language::workflow::Places;

use super::Runtime;
use crate::envelope::Failure;
use crate::secrets::{NamedSecret, SecretError};

impl Runtime {
    /// The secrets that the operator has named, and the file in which more can be named.
    #[must_use]
    pub fn named_secrets(&self) -> (Vec<NamedSecret>, &str) {
        (self.services.secrets.named_secrets(&self.services), self.services.secrets.secrets_file())
    }

    /// Finds the value of a secret without returning it.
    ///
    /// # Errors
    /// The reason why it has no value, as a run would report it.
    pub fn find_secret(&self, name: &str) -> Result<(), Failure> {
        Ok(self.services.find_secret(name)?)
    }

    /// The current values of secrets, for a program that runs for a long time: a replaced value is read again. The
    /// values are hidden in all later records.
    ///
    /// # Errors
    /// The reason why one of them has no value.
    pub fn secret_values(&self, names: &[String]) -> Result<Vec<String>, Failure> {
        names.iter().map(|name| self.services.current_secret(name)).collect()
    }

    /// The places in a workflow file that send a secret to a host which the operator does not allow. A file with other
    /// errors is not checked.
    #[must_use]
    pub fn check_secrets(&self, path: &Path) -> Vec<Diagnostic> {
        let (Ok((workflow, _)), Ok(source)) = (super::load_workflow(path), super::read_source(path)) else {
            return Vec::new();
        };
        let (services, places) = (&self.services, Places::new(source));
        let of_step = |step: &Step| {
            let granted =
                step.extras.secrets.iter().filter_map(|grant| services.secrets.refusal_reason(grant));
            let refusal = |grant| services.secrets.refusal_of_credential(grant, services);
            let used = step.extras.credentials.iter().filter_map(refusal);
            let found =
                granted.map(|error| ("secrets", error)).chain(used.map(|error| ("credentials", error)));
            let warn = |(field, error): (&str, SecretError)| {
                let message = format!("Workflow step {}: {error}", step.id);
                places.step_warning(codes::BOUND_SECRET, step, &[field], message)
            };
            found.map(warn).collect::<Vec<_>>()
        };
        workflow.all_steps().into_iter().flat_map(of_step).collect()
    }

    /// lobster's own keys that are set here and that steps do not receive ([`crate::own_tokens`]).
    #[must_use]
    pub fn withheld_keys(&self) -> Vec<&str> {
        self.services.env.withheld_tokens().collect()
    }

    /// Warns of commands that name such a key without a grant for it.
    #[must_use]
    pub fn check_withheld_keys(&self, path: &Path) -> Vec<Diagnostic> {
        let keys = self.withheld_keys();
        if keys.is_empty() {
            return Vec::new();
        }
        let (Ok((workflow, _)), Ok(source)) = (super::load_workflow(path), super::read_source(path)) else {
            return Vec::new();
        };
        let places = Places::new(source);
        let of_step = |step: &Step| {
            let text = match &step.work {
                Work::Shell(text) => text.clone(),
                Work::Exec(argv) => argv.join(" "),
                _ => return Vec::new(),
            };
            let is_granted = |key: &str| {
                step.env.iter().chain(&workflow.env).any(|(name, _)| name == key)
                    || step.extras.secrets.iter().any(|grant| grant.variable == key)
            };
            let named = keys.iter().filter(|key| text.contains(**key) && !is_granted(key));
            let warn = |key: &&str| {
                let message = format!("Workflow step {} does not receive {key}, which is set here", step.id);
                places
                    .step_warning(codes::WITHHELD, step, &["run", "command", "exec"], message)
                    .with_help(format!("grant it with `env: {{ {key}: ${key} }}`"))
            };
            named.map(warn).collect::<Vec<_>>()
        };
        workflow.all_steps().into_iter().flat_map(of_step).collect()
    }

    /// The secrets that are granted to the steps of a workflow, and to the MCP servers that it calls.
    #[must_use]
    pub fn secrets_of(&self, workflow: Workflow) -> BTreeSet<String> {
        let plan = Plan::Workflow(workflow);
        let steps = crate::secrets::grants_of(&plan).into_iter().map(|grant| grant.secret.clone());
        let servers = self.services.grants_of_servers(&plan).into_iter().map(|grant| grant.secret);
        let credentials = crate::secrets::credentials_of(&plan).into_iter().map(|grant| grant.secret.clone());
        let of_servers = self.services.credentials_of_servers(&plan).into_iter().map(|grant| grant.secret);
        steps.chain(servers).chain(credentials).chain(of_servers).collect()
    }
}
