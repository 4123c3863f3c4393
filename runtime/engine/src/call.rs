//! Calls on a runtime that serves many. Each call has its own directory, caller and cancellation, and shares the
//! store, the policy, the sandbox and loaded components.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};

use crate::beginning::Beginning;
use crate::origin::Origin;
use crate::own_tokens;
use crate::runtime::{Planned, Runtime};
use crate::services::Services;
use crate::{Caller, Notes, Progress};
use lobster_base::cancel::CancelToken;
use lobster_language::pipeline::Pipeline;
use lobster_language::plan::Plan;
use lobster_policy::Policy;
use lobster_store::{Durability, Event, RunId, RunStatus, Store, StoreError};

/// The differences between a call and the runtime that it is made on.
pub struct Call {
    /// Start of relative paths; absolute.
    pub cwd: PathBuf,
    pub caller: Caller,
    /// Cancelled when this call has to end.
    pub cancel: CancelToken,
    pub notes: Notes,
    pub progress: Option<Box<dyn Progress>>,
}

impl Runtime {
    /// A runtime for one call.
    #[must_use]
    pub fn for_call(&self, call: Call) -> Self {
        let services = &self.services;
        Self {
            services: Services {
                cwd: call.cwd,
                caller: call.caller,
                notes: Arc::from(call.notes),
                screen: None,
                progress: call.progress,
                notify: services.notify.clone(),
                ..services.silent_copy(call.cancel)
            },
        }
    }

    /// The same runtime under another policy, with the policy's own secrets and audit trail.
    #[must_use]
    pub fn with_policy(mut self, policy: Policy) -> Self {
        let services = &mut self.services;
        let tokens = own_tokens::find_names(&services.env, &services.cwd);
        let secrets = services.secrets.under_policy(&policy, &services.env, &tokens);
        services.env = services.env.clone().with_withheld(secrets.withheld_variables());
        services.secrets = Arc::new(secrets);
        services.policy = Arc::new(policy);
        // It is opened again at its next use, with the new secrets and the new trail.
        services.store = OnceLock::new();
        self
    }

    /// The detail of a run's first event here, beside its task: the person who started it, and the facts for
    /// decisions.
    ///
    /// # Errors
    /// If the store cannot be written.
    pub fn beginning_detail(&self, store: &Store) -> Result<Value, StoreError> {
        let mut detail = self.recorded_surroundings(store)?;
        self.services.surroundings().add_to_detail(&mut detail);
        if let Some(origin) = Origin::of_process(&self.services.env, &self.services.caller) {
            origin.add_to_detail(&mut detail);
        }
        Ok(detail)
    }

    /// True if every policy file of this runtime was part of the run's first policy, with the same content: no policy
    /// was added since. A run that began elsewhere began under none of them.
    #[must_use]
    pub fn began_under_policies(&self, run: RunId) -> bool {
        let recorded = self.read_beginning(run).and_then(|beginning| beginning.surroundings());
        recorded.is_some_and(|recorded| recorded.covers_policy(&self.services.surroundings()))
    }

    /// The directory in which the project's policy of a recorded run was searched; resuming the run must search there
    /// again.
    #[must_use]
    pub fn recorded_place(&self, run: RunId) -> Option<PathBuf> {
        self.read_beginning(run)?.detail().get("place").and_then(Value::as_str).map(PathBuf::from)
    }

    fn read_beginning(&self, run: RunId) -> Option<Beginning> {
        Beginning::from_journal(&self.store().ok()?, run).ok()?
    }

    /// The same runtime, without reading from the action cache. Its outcomes are still cached.
    #[must_use]
    pub fn without_cache(mut self) -> Self {
        self.services.env = crate::reuse::without_cache(&self.services.env);
        self
    }

    /// Keeps a component in the store, so that `blake3:<digest>` names it.
    ///
    /// # Errors
    /// If the component cannot be written.
    pub fn keep_component(&self, bytes: &[u8]) -> Result<lobster_base::digest::Digest, StoreError> {
        crate::keep_component(&self.store()?, bytes)
    }

    /// Records a request that was refused before it ran, so that the operator finds it in the history as a failed run.
    ///
    /// # Errors
    /// If the record cannot be written.
    pub fn record_refusal(&self, name: &str, reason: &str, request: &Value) -> Result<RunId, StoreError> {
        let plan = Plan::Pipeline(Pipeline { stages: Vec::new() });
        let run = self.begin_run(
            &Planned { plan, args: Map::new(), given: BTreeSet::new(), name: name.to_owned() },
            None,
        )?;
        let detail = json!({ "code": "refused", "request": request });
        let ended = Event::RunEnded {
            status: RunStatus::Failed,
            output: None,
            error: Some(format!("refused: {reason}")),
            detail,
        };
        run.store.append_events(run.id, vec![ended], Durability::Synced)?;
        Ok(run.id)
    }
}
