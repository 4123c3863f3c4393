//! What runs share: settings, the store, the sandbox, commands.

use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use lobster_component::{Allocation, Component, Engine, EngineConfig};

use super::env::Env;
use super::gate::Prompter;
use super::path::StepPath;
use crate::cancel::CancelToken;
use crate::digest::Digest;
use crate::policy::Policy;
use crate::sandbox::Sandbox;
use crate::steps::stages::{Mode, Registry};
use crate::store::{Store, StoreError};

/// Lines for the person on stderr: warnings, retries, plans.
pub type Notes = Box<dyn Fn(&str) + Send + Sync>;
/// Where renderers show their text to a person.
pub type Screen = Box<dyn Fn(&str) -> io::Result<()> + Send + Sync>;

/// Tells a person what is going on.
pub trait Progress: Send + Sync {
    /// Something that may take long begins at a place in the run.
    fn started(&self, place: &str, kind: &str);
    /// It is over.
    fn ended(&self, place: &str);
}

/// Tells that something is over when it goes.
pub(crate) struct Shown<'s>(Option<(&'s dyn Progress, String)>);

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        if let Some((progress, place)) = &self.0 {
            progress.ended(place);
        }
    }
}

/// Everything an execution uses besides its plan.
pub(crate) struct Services {
    pub(crate) mode: Mode,
    pub(crate) env: Env,
    /// The directory the caller stands in, absolute.
    pub(crate) cwd: PathBuf,
    pub(crate) state_dir: PathBuf,
    pub(crate) registry: Registry,
    pub(crate) cancel: CancelToken,
    /// Somebody at a terminal, if there is one.
    pub(crate) prompter: Option<Box<dyn Prompter>>,
    pub(crate) notes: Notes,
    pub(crate) screen: Option<Screen>,
    pub(crate) progress: Option<Box<dyn Progress>>,
    pub(crate) sandbox: Sandbox,
    /// What native processes may do.
    pub(crate) policy: Policy,
    /// The files that the policy came from; no step may change them.
    pub(crate) policy_files: Vec<PathBuf>,
    pub(crate) store: OnceLock<Store>,
    pub(crate) components: OnceLock<Engine>,
    /// Components that were looked at before the run; held, so that it need not load them again.
    pub(crate) checked: Mutex<Vec<Component>>,
}

impl Services {
    /// The store, opened at the first use.
    pub(crate) fn store(&self) -> Result<Store, StoreError> {
        if let Some(store) = self.store.get() {
            return Ok(store.clone());
        }
        let store = Store::open(&self.state_dir)?;
        Ok(self.store.get_or_init(|| store).clone())
    }

    /// The component engine; making it costs nothing until it loads something.
    pub(crate) fn components(&self) -> &Engine {
        self.components.get_or_init(|| {
            let code_cache = Some(super::component::code_cache(&self.state_dir));
            Engine::new(EngineConfig { code_cache, allocation: Allocation::OnDemand, staging: None })
        })
    }

    /// Tells a person that something began, and that it ended when the value goes.
    pub(crate) fn show_progress(&self, path: &StepPath, kind: &str) -> Shown<'_> {
        Shown(self.progress.as_deref().map(|progress| {
            progress.started(path.as_str(), kind);
            (progress, path.to_string())
        }))
    }

    pub(crate) fn note(&self, line: &str) {
        (self.notes)(line);
    }

    /// The policy that decisions are made under, as gates are bound to it.
    pub(crate) fn policy_digest(&self) -> Digest {
        self.policy.digest()
    }
}
