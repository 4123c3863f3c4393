//! Plans and starts runs, and owns the services that they share.

mod components;
mod draft;
mod limits;
mod secrets;
mod undeclared;

use lobster_base::code::Code;
use std::collections::BTreeSet;
use std::io::{self, BufRead, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::Caller;
use crate::background::Background;
use crate::env::{EXECUTOR_VARIABLE, Env};
use crate::envelope::{Envelope, Failure};
use crate::known_settings::{HELLO, check_settings};
use crate::origin::Origin;
use crate::run::{Run, Task};
use crate::secrets::Secrets;
pub use crate::secrets::{LoginState, NamedSecret};
use crate::services::Services;
pub use crate::settings::{PolicyFileUsed, PolicySources, Settings};
pub use draft::Draft;
use lobster_base::cancel::CancelToken;
use lobster_base::json;
use lobster_base::regular_file;
use lobster_base::text::{self, Count};
use lobster_executor::stdio::{ExecutorProgram, HELLO_TIME, WorkerError, WorkerServices};
use lobster_language::diagnostic::Diagnostic;
use lobster_language::pipeline::{self, Pipeline};
use lobster_language::plan::{Plan, Work, Workflow};
use lobster_language::source::{Source, has_workflow_extension};
use lobster_language::{codes, workflow};
use lobster_observe::telemetry;
use lobster_policy::{AuditPlaces, DecisionEnv, Policy};
use lobster_sandbox::Sandbox;
use lobster_stage::{Mode, Registry};
use lobster_store::{NewRun, RunId, Store, StoreError, home_dir, state_dir};

/// The target of a run.
#[derive(Clone, Debug)]
pub enum Target {
    /// Pipeline text.
    Pipeline(String),
    /// A workflow file, relative to the settings' directory.
    File(PathBuf),
}

/// A run to start.
#[derive(Clone, Debug)]
pub struct RunRequest {
    /// The target that is run.
    pub target: Target,
    /// Arguments for a workflow file.
    pub args: Option<Value>,
}

/// The result of a run, and its id if it was recorded.
#[derive(Debug)]
pub struct RunResult {
    /// The run, if one was recorded.
    pub run: Option<RunId>,
    /// The envelope of the run.
    pub envelope: Envelope,
    /// True if a renderer has already shown something to a person.
    pub rendered: bool,
}

impl From<Failure> for RunResult {
    fn from(failure: Failure) -> Self {
        Self { run: None, envelope: Envelope::Failed(failure), rendered: false }
    }
}

/// Runs workflows and pipelines. It is cheap to make: the store, the sandbox's helper and the component engine start
/// when they are needed.
pub struct Runtime {
    /// The services of all runs.
    pub services: Services,
}

impl Runtime {
    /// Makes a runtime with these settings.
    ///
    /// # Errors
    /// If `main` did not begin with `lobster_runtime::init()`, a setting cannot be read, there is no state directory
    /// (neither `LOBSTER_STATE_DIR` nor a home), or a policy could not protect it.
    pub fn new(settings: Settings) -> Result<Self, Failure> {
        if !lobster_base::own_program::answers_as_helper() {
            let message = "this program has not called lobster_runtime::init() at the beginning of main: lobster starts it \
                           again for sandboxes and to compile components";
            return Err(Failure::new(Code::Setting, message));
        }
        let env = Env::from_inherited(settings.env);
        check_settings(&|name| env.get_bytes(name))?;
        let tokens = crate::own_tokens::find_names(&env, &settings.cwd);
        let place = crate::settings::secrets_place(&env);
        let secrets = Secrets::new(settings.secrets, place, &settings.policy, &env, &tokens);
        let inherited = crate::own_tokens::are_inherited(&env);
        let env = env.with_withheld(secrets.withheld_variables());
        let env =
            if inherited { env } else { env.with_own_tokens(crate::own_tokens::withheld_names(tokens)) };
        let Some(state_dir) = state_dir(&|name| env.get_bytes(name)).map(|dir| settings.cwd.join(dir)) else {
            return Err(Failure::new(
                Code::Setting,
                "no state directory: set LOBSTER_STATE_DIR, or HOME to the absolute path of a home",
            ));
        };
        if env.get_path("LOBSTER_STATE_DIR").is_none()
            && let Some(home) = home_dir(&|name| env.get_bytes(name)).filter(|home| !home.exists())
        {
            let message = format!(
                "the home {} does not exist: set LOBSTER_STATE_DIR, or HOME to a home",
                home.display()
            );
            return Err(Failure::new(Code::Setting, message));
        }
        if !settings.policy.is_open() {
            let own = settings.policy_files.iter().map(|file| &file.path).chain([&state_dir]);
            own.into_iter().try_for_each(|path| can_be_protected(path))?;
        }
        let executor_program = executor_of(&env)?.map(Arc::new);
        Ok(Self {
            services: Services {
                executor_program,
                mode: settings.mode,
                env,
                cwd: settings.cwd,
                state_dir,
                registry: settings.registry,
                cancel: settings.cancel,
                prompter: settings.prompter,
                notes: Arc::from(settings.notes),
                screen: settings.screen,
                progress: settings.progress,
                notify: settings.notify,
                background: Background::default(),
                caller: Caller::default(),
                sandbox: Arc::new(Sandbox::new(settings.sandbox)),
                policy: Arc::new(settings.policy),
                policy_files: settings.policy_files,
                place: settings.place,
                project_is_trusted: settings.project_is_trusted,
                secrets: Arc::new(secrets),
                store: OnceLock::new(),
                components: OnceLock::new(),
                compiler: settings.compiler,
                checked: Mutex::default(),
                files: Arc::default(),
            },
        })
    }

    /// The store of this runtime's state directory.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn store(&self) -> Result<Store, StoreError> {
        self.services.store()
    }

    /// The places that the policy names for the audit, outside the store.
    #[must_use]
    pub fn audit_places(&self) -> AuditPlaces {
        self.services.audit_places()
    }

    /// The state directory.
    #[must_use]
    pub fn state_dir(&self) -> &Path {
        &self.services.state_dir
    }

    /// The engine that loads components, with this state directory's code cache.
    #[must_use]
    pub fn components(&self) -> &lobster_component::Engine {
        self.services.components()
    }

    /// Cancelled when all work has to end.
    #[must_use]
    pub fn cancel(&self) -> &CancelToken {
        &self.services.cancel
    }

    /// Executes the orders of another lobster until `input` ends ([`WorkerServices::serve_orders`]).
    ///
    /// # Errors
    /// If the other side breaks the protocol, or there is no directory for blobs.
    pub fn serve_orders(&self, input: impl BufRead, output: impl Write + Send) -> Result<(), WorkerError> {
        let worker = WorkerServices {
            // Hidden from all steps, like the store itself.
            place: self.services.state_dir.join("store").join("workers"),
            hidden: self.services.secrets.redactions(),
            sandbox: Arc::clone(&self.services.sandbox),
            components: self.services.components().clone(),
            cancel: self.services.cancel.child_token(),
        };
        worker.serve_orders(input, output)
    }

    /// The current policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.services.policy
    }

    /// The facts about this process that a decision may use.
    #[must_use]
    pub fn decision_env(&self) -> DecisionEnv {
        self.decision_env_under(&self.services.policy)
    }

    /// The same, for a decision of another policy.
    #[must_use]
    pub fn decision_env_under(&self, policy: &Policy) -> DecisionEnv {
        let surroundings = self.services.surroundings();
        crate::kinds::decision_env(policy, &surroundings, &self.services.cwd, &self.services.env)
    }

    /// The commands that pipelines may use.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.services.registry
    }

    /// Reads and checks a request, without running anything.
    ///
    /// # Errors
    /// The first error in the request.
    pub fn plan_run(&self, request: &RunRequest) -> Result<Planned, Failure> {
        match &request.target {
            Target::Pipeline(text) => {
                let pipeline =
                    pipeline::parse(text).map_err(|error| Failure::parse_error(error.to_string()))?;
                self.plan_pipeline(pipeline, text)
            }
            Target::File(file) => {
                let path = self.services.cwd.join(file);
                let workflow = self.load_checked(&path)?;
                let given = request.args.clone().unwrap_or_else(|| Value::Object(Map::new()));
                let args = workflow::bind_args(&workflow, &given)
                    .map_err(|error| Failure::new(Code::WorkflowArguments, error.to_string()))?;
                let stem =
                    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
                let name = workflow.name.clone().unwrap_or(stem);
                let given = workflow::argument_names(&given);
                Ok(Planned { plan: Plan::Workflow(workflow), args, given, name })
            }
        }
    }

    /// Reads and checks a workflow file with everything that it uses.
    ///
    /// # Errors
    /// The first error in the file.
    pub fn read_workflow(&self, file: &Path) -> Result<Workflow, Failure> {
        self.load_checked(&self.services.cwd.join(file))
    }

    /// Checks a pipeline that is not text; `name` is the name of the run for people.
    ///
    /// # Errors
    /// An unknown command, or arguments that it refuses.
    pub fn plan_pipeline(&self, pipeline: Pipeline, name: &str) -> Result<Planned, Failure> {
        self.warn_about(&pipeline);
        crate::pipeline::build(&self.services.registry, &pipeline).map_err(Failure::from)?;
        components::check_pipeline(&self.services, &pipeline)?;
        Ok(Planned {
            plan: Plan::Pipeline(pipeline),
            args: Map::new(),
            given: BTreeSet::new(),
            name: in_one_line(name, MAX_PIPELINE_NAME),
        })
    }

    fn load_checked(&self, path: &Path) -> Result<Workflow, Failure> {
        let (mut workflow, warnings) =
            workflow::load_to_run(&source_of(path)?, &|path| read_source(path), &self.services.registry)
                .map_err(|diagnostic| Failure::from(&*diagnostic))?;
        if let Some(error) = workflow::certain_failure(&warnings) {
            return Err(Failure::from(error));
        }
        for warning in warnings {
            self.services.print_note(&format!("warning: {}", warning.one_line_with_snippet()));
        }
        for warning in components::check_workflow(&self.services, &mut workflow).into_warnings()? {
            self.services.print_note(&format!("warning: {}", warning.one_line_with_snippet()));
        }
        Ok(workflow)
    }

    /// Errors and warnings about the components of a workflow file and their arguments. A file with other errors is
    /// not checked.
    #[must_use]
    pub fn check_components(&self, path: &Path) -> Vec<Diagnostic> {
        let Ok((mut workflow, _)) = load_workflow(path) else { return Vec::new() };
        components::check_workflow(&self.services, &mut workflow).all_findings()
    }

    /// Warnings about a workflow file's budgets and limits: budgets that limit nothing, and model calls that a limit is
    /// certain to refuse.
    #[must_use]
    pub fn check_limits(&self, path: &Path) -> Vec<Diagnostic> {
        limits::check_file(&self.services.env, path)
    }

    /// Warns of options in a pipeline that no command reads.
    fn warn_about(&self, pipeline: &Pipeline) {
        for call in pipeline.stages.iter().filter(|call| !self.services.registry.is_of_host(&call.name)) {
            let Some(spec) = self.services.registry.get(&call.name) else { continue };
            for warning in lobster_stage::argument_warnings(spec, &call.args) {
                let help = warning.help.map(|help| format!(" ({help})")).unwrap_or_default();
                self.services.print_note(&format!("warning: {}{help}", warning.message));
            }
        }
    }

    /// A description of a run: the text of `--dry-run`. Runs nothing.
    ///
    /// # Errors
    /// If a step that may run is certain to fail.
    pub fn describe_plan(&self, planned: &Planned) -> Result<String, Failure> {
        match &planned.plan {
            Plan::Pipeline(pipeline) => Ok(pipeline.dry_run_text()),
            Plan::Workflow(workflow) => {
                let known = |name: &str| self.services.registry.get(name).is_some();
                lobster_language::dry_run::dry_run(workflow, &planned.args, &known)
                    .map_err(|error| Failure::new(Code::StepValue, error.to_string()))
            }
        }
    }

    /// Runs a target until it ends or asks its first question.
    pub fn run(&self, request: &RunRequest) -> RunResult {
        match self.plan_run(request) {
            Ok(planned) => {
                self.tell_reread(&planned, request, |_| false);
                self.run_planned(&planned)
            }
            Err(failure) => failure.into(),
        }
    }

    /// Warns of arguments that were given as text and are read as numbers or other values, except arguments that could
    /// only be given as text.
    pub fn tell_reread(&self, planned: &Planned, request: &RunRequest, is_text: impl Fn(&str) -> bool) {
        if let (Plan::Workflow(workflow), Some(given)) = (&planned.plan, &request.args) {
            for line in workflow::reread_arguments(workflow, given, is_text) {
                self.services.print_note(&format!("warning: {line}"));
            }
        }
    }

    /// Runs a request that [`Runtime::plan_run`] checked.
    pub fn run_planned(&self, planned: &Planned) -> RunResult {
        self.run_begun(planned, |runtime| runtime.begin_run(planned, None))
    }

    /// The same, under an id that was promised earlier. The id can be used once.
    pub fn run_promised(&self, planned: &Planned, id: RunId) -> RunResult {
        self.run_begun(planned, |runtime| runtime.begin_as(planned, None, Some(id)))
    }

    fn run_begun<'r>(
        &'r self,
        planned: &Planned,
        begin: impl FnOnce(&'r Self) -> Result<Run<'r>, StoreError>,
    ) -> RunResult {
        if let Err(failure) = self.prepare_secrets(&planned.plan, &planned.args) {
            return failure.into();
        }
        match begin(self) {
            Ok(run) => {
                let envelope = crate::execute_plan(&run, &planned.plan, &planned.args);
                RunResult { run: Some(run.id), envelope, rendered: run.has_rendered() }
            }
            Err(error) => Failure::from(error).into(),
        }
    }

    /// Finds the secrets that a plan grants, before anything is recorded or done.
    pub fn prepare_secrets(&self, plan: &Plan, args: &Map<String, Value>) -> Result<(), Failure> {
        Ok(self.services.prepare_secrets(plan, args)?)
    }

    /// The working directory in the record.
    ///
    /// # Errors
    /// If it has no UTF-8 form, since the record could not name it exactly.
    pub fn recorded_cwd(&self) -> Result<String, StoreError> {
        let cwd = &self.services.cwd;
        cwd.to_str().map(str::to_owned).ok_or_else(|| StoreError::NotUnicode { path: cwd.clone() })
    }

    /// Records that a run begins.
    pub fn begin_run(&self, planned: &Planned, parent: Option<RunId>) -> Result<Run<'_>, StoreError> {
        self.begin_as(planned, parent, None)
    }

    /// Finishes the commits that crashes interrupted, so that no run reads a half-finished change.
    pub fn finish_commits(&self, store: &Store) {
        if let Err(error) = crate::kinds::changes::recover_commits(store) {
            self.services.print_note(&format!(
                "warning: an earlier commit of changes to files is not finished: {error}"
            ));
        }
    }

    fn begin_as(
        &self,
        planned: &Planned,
        parent: Option<RunId>,
        promised: Option<RunId>,
    ) -> Result<Run<'_>, StoreError> {
        let cwd = self.recorded_cwd()?;
        if planned.starts_processes() {
            // Without a policy file nothing is confined.
            self.services.sandbox.warm_up(!self.services.policy_files.is_empty());
        }
        let store = self.services.store()?;
        self.finish_commits(&store);
        if let Plan::Workflow(workflow) = &planned.plan {
            components::store_pinned(&store, workflow)?;
        }
        let task = keep_task(&store, planned)?;
        let mut detail = self.beginning_detail(&store)?;
        // The questions of a fork go to the same people as those of its run.
        if let Some(origin) = parent.map(|parent| Origin::from_journal(&store, parent)).transpose()?.flatten()
        {
            origin.add_to_detail(&mut detail);
        }
        if !planned.args.is_empty() {
            detail[GIVEN_ARGS] = serde_json::json!(planned.given);
        }
        let new = NewRun {
            name: planned.name.clone(),
            kind: match planned.plan {
                Plan::Workflow(_) => "workflow".to_owned(),
                Plan::Pipeline(_) => "pipeline".to_owned(),
            },
            plan: task.plan,
            args: task.args,
            mode: match self.services.mode {
                Mode::Human => "human".to_owned(),
                Mode::Tool => "tool".to_owned(),
            },
            actor: self.services.actor(),
            cwd,
            parent,
            detail,
        };
        let (id, claim) = match promised {
            None => {
                let id = store.create_run(new)?;
                (id, store.claim_run(id)?)
            }
            // Another process with the same id sees at once that the run is being executed.
            Some(id) => {
                let claim = store.claim_run(id)?;
                store.create_run_as(id, new)?;
                (id, claim)
            }
        };
        Ok(Run::fresh(&self.services, store, Some(claim), id, task))
    }

    /// The caller, and the facts that a replay needs: the policy, and the environment's settings that decide how plans
    /// are executed.
    pub fn recorded_surroundings(&self, store: &Store) -> Result<Value, StoreError> {
        let message = self.services.env.non_blank("LOBSTER_MESSAGE_ID");
        let mut detail = message.map_or(Value::Null, |message| serde_json::json!({ "message": message }));
        let policy = store.put_blob(json::compact(self.services.policy.file()).as_bytes())?;
        detail["policy"] = self.services.policy_digest().to_string().into();
        detail["policyFile"] = policy.digest.to_string().into();
        if let Some(place) = &self.services.place {
            detail["place"] = place.display().to_string().into();
        }
        if !self.services.caller.detail.is_null() {
            detail["caller"] = self.services.caller.detail.clone();
        }
        // A later execution continues the same trace.
        let traced = self
            .services
            .env
            .get(telemetry::TRACEPARENT)
            .filter(|text| telemetry::trace_parent(text).is_some());
        if let Some(parent) = traced {
            detail["traceparent"] = parent.into();
        }
        detail["settings"] = Value::Object(self.services.env.lobster_settings());
        Ok(detail)
    }
}

/// A policy protects files by their names, which are text.
fn can_be_protected(path: &Path) -> Result<(), Failure> {
    if path.to_str().is_some() {
        return Ok(());
    }
    let message =
        format!("under a policy the name of {path:?} must be text (UTF-8): else no rule protects it");
    Err(Failure::new(Code::Setting, message))
}

/// The operator's executor, if there is one.
fn executor_of(env: &Env) -> Result<Option<ExecutorProgram>, Failure> {
    let Some(text) = env.non_blank(EXECUTOR_VARIABLE) else { return Ok(None) };
    let hello_time = env.value_of(&HELLO)?.map_or(HELLO_TIME, Duration::from_millis);
    Ok(Some(ExecutorProgram::new(executor_words(&text)?, hello_time)))
}

/// The words of a command: split at blanks, or a JSON list of strings if a word contains blanks.
fn executor_words(text: &str) -> Result<Vec<String>, Failure> {
    if !text.starts_with('[') {
        return Ok(text.split_whitespace().map(str::to_owned).collect());
    }
    let words: Vec<String> = serde_json::from_str(text).map_err(|error| {
        Failure::new(
            Code::Setting,
            format!("{EXECUTOR_VARIABLE} begins with [ and is not a JSON list of strings: {error}"),
        )
    })?;
    if words.first().is_none_or(String::is_empty) {
        return Err(Failure::new(Code::Setting, format!("{EXECUTOR_VARIABLE} names no program")));
    }
    Ok(words)
}

/// The field of a run's first event with the names of the given arguments; the others have the defaults of the
/// recorded plan.
pub const GIVEN_ARGS: &str = "givenArgs";

/// Stores the plan and the arguments of a run, and returns their digests.
pub fn keep_task(store: &Store, planned: &Planned) -> Result<Task, StoreError> {
    // A resumed run has to find exactly what it began with. It contains no secrets: a plan with a secret in clear text
    // does not begin.
    let plan = store.put_verbatim(json::compact(&planned.plan).as_bytes())?.digest;
    let args = match planned.args.is_empty() {
        true => None,
        false => Some(store.put_verbatim(json::compact(&planned.args).as_bytes())?.digest),
    };
    Ok(Task { plan, args })
}

/// A checked run with its arguments, not yet recorded.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The plan to execute.
    pub plan: Plan,
    /// The given arguments, and the defaults of the others.
    pub args: Map<String, Value>,
    /// The names of the arguments that were given.
    pub given: BTreeSet<String>,
    /// The name of the run for people.
    pub name: String,
}

impl Planned {
    /// True if the run is likely to start a process, so that preparing for it pays off.
    fn starts_processes(&self) -> bool {
        match &self.plan {
            Plan::Pipeline(pipeline) => pipeline.stages.iter().any(|stage| stage.name == "exec"),
            Plan::Workflow(workflow) => {
                workflow.all_steps().iter().any(|step| matches!(step.work, Work::Shell(_) | Work::Exec(_)))
            }
        }
    }
}

/// A file that cannot be a workflow.
#[derive(Debug, thiserror::Error)]
pub enum WorkflowFileError {
    #[error("ENOENT: no such file or directory, stat '{}'", .0.display())]
    Missing(PathBuf),
    #[error("Workflow path is not a file: {}", .0.display())]
    NotAFile(PathBuf),
    #[error("Workflow file must end in .lobster, .yaml, .yml, or .json: {}", .0.display())]
    Extension(PathBuf),
    #[error("cannot read {}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
}

/// Checks that a path can be run as a workflow file.
///
/// # Errors
/// The reason why it cannot.
pub fn workflow_file(path: &Path) -> Result<(), WorkflowFileError> {
    let metadata = std::fs::metadata(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => WorkflowFileError::Missing(path.to_owned()),
        _ => WorkflowFileError::Unreadable { path: path.to_owned(), source },
    })?;
    if !metadata.is_file() {
        return Err(WorkflowFileError::NotAFile(path.to_owned()));
    }
    if !has_workflow_extension(path) {
        return Err(WorkflowFileError::Extension(path.to_owned()));
    }
    Ok(())
}

/// A path as errors print it: without `.`, and with each `..` resolved.
#[must_use]
pub fn tidy_path(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => match tidy.components().next_back() {
                Some(Component::Normal(_)) => {
                    tidy.pop();
                }
                Some(Component::RootDir) => {}
                Some(Component::Prefix(_) | Component::CurDir | Component::ParentDir) | None => {
                    tidy.push(part);
                }
            },
            part => tidy.push(part),
        }
    }
    tidy
}

/// Largest workflow file that is read, in bytes; the largest known one has 53 kB.
const MAX_SOURCE: u64 = 8 << 20;

/// Reads a source file.
///
/// # Errors
/// If the file cannot be read, or is larger than any real workflow file.
pub fn read_source(path: &Path) -> io::Result<Arc<Source>> {
    let file = regular_file::open(path)?;
    if file.metadata()?.len() > MAX_SOURCE {
        return Err(io::Error::other(format!("larger than {MAX_SOURCE} bytes, which no workflow file is")));
    }
    let bytes = crate::read_to_end(file, MAX_SOURCE)?;
    let name = path
        .file_name()
        .map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    Ok(Arc::new(Source::new(name, path, &bytes)))
}

/// Reads and checks a workflow file; also returns warnings.
///
/// # Errors
/// The first error in the file.
pub fn load_workflow(path: &Path) -> Result<(Workflow, Vec<Diagnostic>), Failure> {
    workflow::load(&source_of(path)?, &|path| read_source(path))
        .map_err(|diagnostic| Failure::from(&*diagnostic))
}

/// Reads a workflow file for a diagram. Also returns the errors of conditions that no run could read.
///
/// # Errors
/// As [`load_workflow`].
pub fn load_workflow_to_draw(path: &Path) -> Result<(Workflow, Vec<String>), Failure> {
    let source = source_of(path)?;
    let (workflow, said) = workflow::load_to_draw(&source, &|path| read_source(path))
        .map_err(|diagnostic| Failure::from(&*diagnostic))?;
    let unread = said.iter().filter(|said| said.code == codes::CONDITION);
    Ok((workflow, unread.map(Diagnostic::one_line_with_snippet).collect()))
}

fn source_of(path: &Path) -> Result<Arc<Source>, Failure> {
    workflow_file(path).map_err(|error| Failure::new(Code::WorkflowFile, error.to_string()))?;
    read_source(path)
        .map_err(|error| Failure::new(Code::WorkflowFile, format!("{}: {error}", path.display())))
}

/// Longest name of a run that is a pipeline's text, in characters.
const MAX_PIPELINE_NAME: usize = 120;

/// Text in one line of at most `max` characters.
pub fn in_one_line(text: &str, max: usize) -> String {
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    text::fit(&line, max, Count::Chars).into_owned()
}
