//! Services that runs share: settings, the store, the sandbox, commands.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use lobster_component::{CompileLimits, CompilerProgram, Component, Engine, EngineConfig};
use serde_json::{Map, Value};

use super::audience::{Notify, Progress, Prompter, Screen, Shown};
use super::background::Background;
use super::env::Env;
use super::path::StepPath;
use super::surroundings::{PolicyFileUsed, Surroundings};
use crate::envelope::{Envelope, Failure};
use crate::known_settings::{COMPILE_MEMORY, COMPILE_TIME};
use crate::mcp;
use crate::secrets::{self, Reader, SecretError, Secrets};
use lobster_base::cancel::CancelToken;
use lobster_base::config::config_file;
use lobster_base::credential::CredentialGrant;
use lobster_base::digest::Digest;
use lobster_base::file_digests::FileDigests;
use lobster_base::json;
use lobster_credentials::login::HeldLogin;
use lobster_executor::stdio::{ExecutorProgram, StdioExecutor};
use lobster_executor::{Executor, LocalExecutor, SecretSource};
use lobster_language::plan::{Plan, SecretGrant};
use lobster_observe::audit::Trail;
use lobster_observe::telemetry::{Exporter, RunTrace};
use lobster_policy::{AuditPlaces, MARKS_OUTSIDE, Policy};
use lobster_sandbox::Sandbox;
use lobster_stage::{Mode, Registry, StageError};
use lobster_store::{RunId, Store, StoreError, home_dir};

/// Set once this process has warned that its store was rolled back.
static HAS_WARNED: AtomicBool = AtomicBool::new(false);

/// The caller of runs.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The caller's name in the history; `None` means `LOBSTER_ACTOR`.
    pub actor: Option<String>,
    /// Further facts about the caller in the run's first record.
    pub detail: Value,
}

/// Everything that an execution uses besides its plan.
pub struct Services {
    pub mode: Mode,
    pub env: Env,
    /// The caller's working directory, absolute.
    pub cwd: PathBuf,
    pub state_dir: PathBuf,
    pub registry: Registry,
    pub cancel: CancelToken,
    pub caller: Caller,
    /// A person at a terminal, if there is one.
    pub prompter: Option<Box<dyn Prompter>>,
    pub notes: Arc<dyn Fn(&str) + Send + Sync>,
    pub screen: Option<Screen>,
    pub progress: Option<Box<dyn Progress>>,
    pub sandbox: Arc<Sandbox>,
    /// The operator's program that executes native effects, if it is not this process.
    pub executor_program: Option<Arc<ExecutorProgram>>,
    /// The operator's command that is notified of new questions.
    pub notify: Option<Notify>,
    pub background: Background,
    /// The rules for native processes.
    pub policy: Arc<Policy>,
    /// The files that the policy came from; no step may change them.
    pub policy_files: Vec<PolicyFileUsed>,
    /// The directory from which the project's policy was searched, if there is one.
    pub place: Option<PathBuf>,
    /// True if that policy was trusted when it was read.
    pub project_is_trusted: Option<bool>,
    /// The secrets that the operator has named.
    pub secrets: Arc<Secrets>,
    pub store: OnceLock<Store>,
    pub components: OnceLock<Engine>,
    /// The program that compiles components.
    pub compiler: Option<CompilerProgram>,
    /// Components that were checked before the run. They are held so that the run need not load them again.
    pub checked: Mutex<Vec<Component>>,
    /// The digests of files that have not changed since they were read.
    pub files: Arc<FileDigests>,
}

impl Services {
    /// The facts that decisions depend on besides the plan, in this process.
    pub(crate) fn surroundings(&self) -> Surroundings {
        Surroundings {
            home: self.env.get("HOME").unwrap_or_else(|| "/".to_owned()),
            state: self.state_dir.display().to_string(),
            protected: self.protected_paths(),
            policies: self.policy_files.clone(),
            project_is_trusted: self.project_is_trusted,
            terminal: (!self.policy.is_open())
                .then(|| self.env.terminal_variables(&|text| self.is_clear(text))),
        }
    }

    /// True if a text holds no secret that this process knows.
    pub(crate) fn is_clear(&self, text: &str) -> bool {
        self.secrets.check_clear("the environment holds", text).is_ok()
    }

    /// The paths that no step may change, as far as this process knows.
    pub(crate) fn protected_paths(&self) -> Vec<String> {
        let audit = self.audit_places();
        let places =
            self.policy_files.iter().map(|file| file.path.clone()).chain(audit.copy).chain(audit.anchor);
        places.map(|path| path.display().to_string()).collect()
    }

    /// The paths from which lobster reads its own settings and promises, by the names that lead there. Missing files
    /// are included, since a step could create them.
    pub(crate) fn own_places(&self) -> Vec<PathBuf> {
        let env = |name: &str| self.env.get(name);
        let settings = config_file(env, "").map(|file| file.components().collect());
        let named =
            ["LOBSTER_POLICY", "LOBSTER_ORG_POLICY", "LOBSTER_SECRETS", mcp::VARIABLE, "LOBSTER_LLM_POOL"];
        // A pool of models may be given as text instead of a file.
        let named = named
            .iter()
            .filter_map(|name| self.env.get_path(name))
            .filter(|path| !matches!(path.as_os_str().as_encoded_bytes().first(), Some(b'[' | b'{')));
        let places =
            [settings, self.marks_outside(), Some(PathBuf::from("/etc/lobster"))].into_iter().flatten();
        places.chain(named).map(|place| self.cwd.join(place)).collect()
    }

    /// The file in which stores record their promises, if there is a home.
    fn marks_outside(&self) -> Option<PathBuf> {
        let home = home_dir(&|name| self.env.get_bytes(name)).filter(|home| home.is_dir())?;
        Some(home.join(MARKS_OUTSIDE.trim_start_matches("~/")))
    }

    /// The same for a silent execution, which asks, shows and reports nothing.
    pub fn silent_copy(&self, cancel: CancelToken) -> Self {
        let nowhere: Screen = Box::new(|_| Ok(()));
        Self {
            mode: self.mode,
            env: self.env.clone(),
            cwd: self.cwd.clone(),
            state_dir: self.state_dir.clone(),
            registry: self.registry.clone(),
            cancel,
            caller: self.caller.clone(),
            prompter: None,
            notes: Arc::new(|_| {}),
            screen: self.screen.is_some().then_some(nowhere),
            progress: None,
            sandbox: Arc::clone(&self.sandbox),
            executor_program: self.executor_program.clone(),
            notify: None,
            background: Background::default(),
            policy: Arc::clone(&self.policy),
            policy_files: self.policy_files.clone(),
            place: self.place.clone(),
            project_is_trusted: self.project_is_trusted,
            secrets: Arc::clone(&self.secrets),
            store: self.store.get().cloned().map_or_else(OnceLock::new, OnceLock::from),
            components: OnceLock::from(self.components().clone()),
            compiler: self.compiler.clone(),
            checked: Mutex::default(),
            files: Arc::clone(&self.files),
        }
    }

    /// The store, opened on first use.
    pub(crate) fn store(&self) -> Result<Store, StoreError> {
        if let Some(store) = self.store.get() {
            return Ok(store.clone());
        }
        let store = Store::open_noted(&self.state_dir, self.marks_outside().as_deref())?;
        if let Some(warning) = store.rollback_warning()
            && !HAS_WARNED.swap(true, Ordering::Relaxed)
        {
            (self.notes)(&format!("Warning: {warning}"));
        }
        if !self.secrets.is_empty() {
            store.set_redactions(self.secrets.redactions());
        }
        let hidden = self.policy.file().audit.redact.clone();
        let message = self.env.non_blank("LOBSTER_MESSAGE_ID");
        if let Some(trail) = Trail::new(self.audit_places(), hidden, self.actor(), message) {
            store.add_witness(trail);
        }
        let store = self.store.get_or_init(|| store).clone();
        self.secrets.keep_out_of(&store);
        Ok(store)
    }

    /// The places that the policy names for the audit, outside the store.
    pub(crate) fn audit_places(&self) -> AuditPlaces {
        let home = self.env.get("HOME").map(PathBuf::from).unwrap_or_default();
        self.policy.file().audit.resolve_places(&self.state_dir, &home)
    }

    /// The component engine; making it costs nothing until it loads a component.
    pub(crate) fn components(&self) -> &Engine {
        self.components.get_or_init(|| {
            let code_cache = Some(self.state_dir.join("store").join("code"));
            let compiler = self.compiler.clone();
            let usual = CompileLimits::default();
            // Invalid values were refused at the start.
            let compile_limits = CompileLimits {
                memory: self.env.value_of(&COMPILE_MEMORY).ok().flatten().unwrap_or(usual.memory),
                time: self.env.value_of(&COMPILE_TIME).ok().flatten().unwrap_or(usual.time),
            };
            Engine::new(EngineConfig { code_cache, compiler, compile_limits, ..EngineConfig::default() })
        })
    }

    /// Reports that work began, and that it ended when the returned value is dropped.
    pub(crate) fn show_progress(&self, path: &StepPath, kind: &str) -> Shown<'_> {
        Shown(self.progress.as_deref().map(|progress| {
            progress.work_started(path.as_str(), kind);
            (progress, path.to_string())
        }))
    }

    /// The executor for the effects of a run whose blobs are in `store`.
    pub(crate) fn executor(&self, store: &Store) -> Box<dyn Executor + '_> {
        match &self.executor_program {
            None => {
                let (sandbox, components) = (Arc::clone(&self.sandbox), self.components().clone());
                let local = LocalExecutor::new(store.clone(), sandbox, components, self);
                Box::new(local.storing_output().with_progress(self.progress.as_deref()))
            }
            Some(program) => {
                let there = StdioExecutor::new(Arc::clone(program), store.clone(), self);
                Box::new(there.with_progress(self.progress.as_deref()))
            }
        }
    }

    /// True if a program of the operator executes orders.
    pub(crate) fn has_other_executor(&self) -> bool {
        self.executor_program.is_some()
    }

    /// The caller in the history.
    pub fn actor(&self) -> Option<String> {
        self.caller.actor.clone().or_else(|| self.env.non_blank("LOBSTER_ACTOR"))
    }

    /// Sends the spans of a finished execution to the collector, if there is one.
    pub(crate) fn export_trace(&self, store: &Store, run: RunId) {
        let exporter = match Exporter::from_env(&|name| self.env.get(name)) {
            Ok(None) => return,
            Ok(Some(exporter)) => exporter,
            Err(error) => return tracing::warn!(%error, "no spans are exported"),
        };
        let store = store.clone();
        self.background.start_task("telemetry", move || {
            if let Err(error) = exporter.export(&store, run) {
                tracing::warn!(%run, %error, "the spans of a run were not exported");
            }
        });
    }

    /// The trace of a run whose caller sent this `traceparent`, if its spans are exported.
    pub(crate) fn run_trace(&self, run: RunId, caller: Option<&str>) -> Option<RunTrace> {
        let exporter = Exporter::from_env(&|name| self.env.get(name)).ok().flatten();
        exporter.map(|_| RunTrace::new(run, caller))
    }

    pub(crate) fn print_note(&self, line: &str) {
        (self.notes)(&self.secrets.redactions().hide_in_text(line));
    }

    /// Finds the secrets that a plan grants, and refuses a plan that contains one in clear text.
    pub(crate) fn prepare_secrets(&self, plan: &Plan, args: &Map<String, Value>) -> Result<(), SecretError> {
        self.learn_secrets(secrets::grants_of(plan))?;
        self.learn_secrets(&self.grants_of_servers(plan))?;
        self.learn_credentials(secrets::credentials_of(plan))?;
        self.learn_credentials(&self.credentials_of_servers(plan))?;
        if self.secrets.is_empty() {
            return Ok(());
        }
        self.secrets.check_clear("the arguments of the run hold", &json::compact(args))?;
        self.secrets.check_clear("the workflow holds", &json::compact(plan))
    }

    /// The secrets that the operator's file grants to the MCP servers that a plan names.
    pub(crate) fn grants_of_servers(&self, plan: &Plan) -> Vec<SecretGrant> {
        self.servers_called_by(plan).flat_map(|server| server.secret_grants().collect::<Vec<_>>()).collect()
    }

    /// The credentials that the operator's file grants to these servers.
    pub(crate) fn credentials_of_servers(&self, plan: &Plan) -> Vec<CredentialGrant> {
        self.servers_called_by(plan)
            .flat_map(|server| server.granted_credentials().unwrap_or_default())
            .collect()
    }

    /// The servers of the operator's file that a plan names. An unreadable file has none; a call to a server reports
    /// the reason.
    fn servers_called_by(&self, plan: &Plan) -> impl Iterator<Item = mcp::ServerSpec> {
        let named = mcp::servers_of(plan);
        let config = (!named.is_empty()).then(|| mcp::read_operator_config(self, &self.cwd).ok()).flatten();
        let servers = config.into_iter().flat_map(|(_, config)| config.servers);
        servers.filter(move |(name, _)| named.contains(name)).map(|(_, server)| server)
    }

    /// Finds values, and hides them from now on.
    pub(crate) fn learn_secrets<'g>(
        &self,
        grants: impl IntoIterator<Item = &'g SecretGrant>,
    ) -> Result<(), SecretError> {
        self.secrets.learn_secrets(grants, &self.secret_reader())
    }

    /// Finds the values of credentials, and hides them from now on.
    pub(crate) fn learn_credentials<'g>(
        &self,
        grants: impl IntoIterator<Item = &'g CredentialGrant>,
    ) -> Result<(), SecretError> {
        self.secrets.learn_credentials(grants, &self.secret_reader())
    }

    /// Checks that a secret has a value.
    pub(crate) fn find_secret(&self, name: &str) -> Result<(), SecretError> {
        self.secrets.secret_value(name, &self.secret_reader()).map(drop)
    }

    /// The current value of a secret.
    pub(crate) fn current_secret(&self, name: &str) -> Result<String, Failure> {
        Ok(self.secrets.current_value(name, &self.secret_reader())?.to_string())
    }

    /// The variables of a step that was granted secrets.
    pub(crate) fn secret_variables(
        &self,
        grants: &BTreeMap<String, String>,
    ) -> Result<Vec<(String, String)>, SecretError> {
        if grants.is_empty() {
            return Ok(Vec::new());
        }
        self.secrets.variable_values(grants, &self.secret_reader())
    }

    /// An envelope without secrets. The output of steps comes from the store, which never has them.
    pub(crate) fn redact_envelope(&self, mut envelope: Envelope) -> Envelope {
        if self.secrets.is_empty() {
            return envelope;
        }
        let redactions = self.secrets.redactions();
        match &mut envelope {
            Envelope::Failed(failure) => {
                failure.message = redactions.hide_in_text(&failure.message).into_owned()
            }
            Envelope::NeedsApproval(request) | Envelope::NeedsInput(request) => {
                redactions.hide_in_value(request)
            }
            Envelope::Done(_) | Envelope::Waiting(_) | Envelope::Cancelled => {}
        }
        envelope
    }

    fn secret_reader(&self) -> Reader<'_> {
        Reader { env: &self.env, cwd: &self.cwd, sandbox: &self.sandbox, cancel: &self.cancel, servers: self }
    }

    /// The policy for decisions, as gates are bound to it.
    pub fn policy_digest(&self) -> Digest {
        self.policy.digest()
    }
}

impl SecretSource for Services {
    fn secret_values(&self, secrets: &BTreeMap<String, String>) -> Result<Vec<(String, String)>, StageError> {
        self.secret_variables(secrets).map_err(SecretError::into_failure)
    }

    fn secret_login(&self, secret: &str) -> Result<Option<Arc<HeldLogin>>, StageError> {
        self.secrets.find_login(secret, &self.secret_reader()).map_err(SecretError::into_failure)
    }
}
