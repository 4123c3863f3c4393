//! Checks the components of a plan before anything runs: that they exist, are programs, accept their arguments, and
//! may get the grants of their steps. Everything that depends on a template or on an earlier step is checked during
//! the run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lobster_component::{
    Component, DirGrant, Grants, LoadError, MAX_PROGRAM, Patience, RunError, cancelled_by, open_file,
    read_file,
};
use serde_json::{Map, Value};

use crate::envelope::Failure;
use crate::services::Services;
use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::sync::lock;
use lobster_executor::component_lock;
use lobster_language::diagnostic::{Diagnostic, Severity};
use lobster_language::pipeline::{self, Pipeline};
use lobster_language::plan::{self, Step, Work, Workflow};
use lobster_language::source::Source;
use lobster_language::workflow::Places;
use lobster_language::{codes, template};
use lobster_policy::Verdict;
use lobster_stage::{ComponentCall, ComponentProgram, is_ours};
use lobster_stages::component_call;
use lobster_store::{Store, StoreError};

/// Adds to the plan the digest of each component with a fixed path, and returns the errors of its components. Grants
/// and arguments are only checked if all components were found. A missing program is reported now, unless the step
/// handles its failure.
pub(super) fn check_workflow(services: &Services, workflow: &mut Workflow) -> FoundComponent {
    let mut found = FoundComponent::default();
    pin_components(workflow, &mut found);
    if found.first_error().is_none() {
        // A step that sets a directory may contain others.
        let cwd = (!sets_cwd(workflow)).then_some(services.cwd.as_path());
        check_components(services, workflow, cwd, &mut found);
    }
    found
}

/// The findings about a workflow's components.
#[derive(Default)]
pub(super) struct FoundComponent {
    diagnostics: Vec<Diagnostic>,
    /// Grants that the policy would deny. The run reports these itself, so that the denial is recorded.
    denials: Vec<Diagnostic>,
}

impl FoundComponent {
    /// All findings, for a check of the file.
    pub(super) fn all_findings(self) -> Vec<Diagnostic> {
        self.diagnostics.into_iter().chain(self.denials).collect()
    }

    fn first_error(&self) -> Option<&Diagnostic> {
        self.diagnostics.iter().find(|diagnostic| diagnostic.severity == Severity::Error)
    }

    /// The first error as a failure of the run, or else the warnings.
    pub(super) fn into_warnings(self) -> Result<Vec<Diagnostic>, Failure> {
        match self.first_error() {
            Some(error) => Err(Failure::from(error)),
            None => Ok(self.diagnostics),
        }
    }

    fn push_problem(&mut self, problem: &Problem, at: Diagnostic) {
        if problem.is_denial { self.denials.push(at) } else { self.diagnostics.push(at) }
    }
}

/// An error of a component, and the field of its step that caused it.
struct Problem {
    message: String,
    fields: &'static [&'static str],
    is_denial: bool,
}

impl Problem {
    fn new(message: String, fields: &'static [&'static str]) -> Self {
        Self { message, fields, is_denial: false }
    }
}

fn pin_components(workflow: &mut Workflow, found: &mut FoundComponent) {
    let mut digests = BTreeMap::new();
    let base = base_directory(workflow).to_owned();
    for step in workflow.all_steps() {
        let Work::Component { component, .. } = &step.work else { continue };
        if !template::is_constant(component)
            || component.starts_with("blake3:")
            || digests.contains_key(component)
        {
            continue;
        }
        let path = base.join(component);
        match open_file(&path).and_then(Digest::of_reader) {
            Ok(digest) => {
                if let Err(error) = component_lock::check(&path, &digest) {
                    let message = format!("Workflow step {} component {component}: {error}", step.id);
                    let places = source_places(workflow);
                    found.diagnostics.push(places.step_error(
                        codes::COMPONENT,
                        step,
                        &["component"],
                        message,
                    ));
                }
                digests.insert(component.clone(), digest);
            }
            Err(_) if step.on_error.passes_over() => {}
            Err(error) => {
                let message = format!(
                    "Workflow step {} component {component}: cannot read {}: {error}",
                    step.id,
                    path.display()
                );
                let places = source_places(workflow);
                found.diagnostics.push(places.step_error(codes::COMPONENT, step, &["component"], message));
            }
        }
    }
    workflow.components = digests;
    workflow.children.values_mut().for_each(|child| pin_components(child, found));
}

/// Puts the components that a plan pinned into the store.
pub(crate) fn store_pinned(store: &Store, workflow: &Workflow) -> Result<(), StoreError> {
    let base = base_directory(workflow);
    for (component, digest) in &workflow.components {
        if store.blob_len(digest)?.is_some() {
            continue;
        }
        let path = base.join(component);
        let read = || crate::read_to_end(open_file(&path)?, MAX_PROGRAM);
        let bytes = read().map_err(|source| StoreError::Io { doing: "read", path, source })?;
        crate::keep_component(store, &bytes)?;
    }
    workflow.children.values().try_for_each(|child| store_pinned(store, child))
}

fn sets_cwd(workflow: &Workflow) -> bool {
    workflow.cwd.is_some()
        || workflow.all_steps().iter().any(|step| step.cwd.is_some())
        || workflow.children.values().any(sets_cwd)
}

fn base_directory(workflow: &Workflow) -> &Path {
    workflow.file.parent().unwrap_or(Path::new("/"))
}

/// Parses the file again for positions in it: plans only know where steps begin.
fn source_places(workflow: &Workflow) -> Places {
    let source = super::read_source(&workflow.file).unwrap_or_else(|_| {
        let name = workflow.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Arc::new(Source::new(name, &workflow.file, b""))
    });
    Places::new(source)
}

/// Loads the components that are certain to run, and checks the grants and arguments that are already known. They stay
/// loaded for the run. `cwd` is the directory of the pipelines, if all of them run in the same one.
fn check_components(
    services: &Services,
    workflow: &Workflow,
    cwd: Option<&Path>,
    found: &mut FoundComponent,
) {
    for step in workflow.all_steps() {
        let certain = !step.on_error.passes_over() && step.when.is_always();
        let refused = match &step.work {
            Work::Component { component, args } if certain => {
                look_at_step(services, workflow, step, component, args, found)
            }
            Work::Js(_) if certain => {
                let grants = known_grants(services, workflow, step);
                check_policy(services, crate::js_evaluator_digest, &grants).map_err(|problem| Problem {
                    message: format!("Workflow step {} js: {}", step.id, problem.message),
                    ..problem
                })
            }
            Work::Pipeline(text) if certain && template::is_constant(text) => {
                look_at_pipeline(services, workflow, step, text, cwd, found);
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(problem) = refused {
            let (places, message) = (source_places(workflow), problem.message.clone());
            let at = places.step_error(codes::COMPONENT, step, problem.fields, message);
            found.push_problem(&problem, at);
        }
    }
    workflow.children.values().for_each(|child| check_components(services, child, cwd, found));
}

fn look_at_step(
    services: &Services,
    workflow: &Workflow,
    step: &Step,
    component: &str,
    args: &Map<String, Value>,
    found: &mut FoundComponent,
) -> Result<(), Problem> {
    let Some(pinned) = workflow.components.get(component) else { return Ok(()) };
    let loaded =
        load_pinned(services, &base_directory(workflow).join(component), *pinned).map_err(|error| {
            Problem::new(format!("Workflow step {} component {component}: {error}", step.id), &["component"])
        })?;
    let name = format!("Workflow step {} component", step.id);
    check_args(&loaded, args, &name)?;
    let (grants, withheld) = admit_grants(&loaded, known_grants(services, workflow, step));
    for refused in withheld {
        let message = format!("Workflow step {} component {component}: not granted: {refused}", step.id);
        let places = source_places(workflow);
        let fields = ["grants"];
        found.diagnostics.push(places.step_warning(codes::UNASKED_GRANT, step, &fields, message));
    }
    let denied = may_start(services, &loaded, &grants, &name);
    lock(&services.checked).push(loaded);
    denied
}

/// Checks the components of a fixed pipeline, which are named in its text.
fn look_at_pipeline(
    services: &Services,
    workflow: &Workflow,
    step: &Step,
    text: &str,
    cwd: Option<&Path>,
    found: &mut FoundComponent,
) {
    // Errors in the text itself are reported elsewhere.
    let Ok(pipeline) = pipeline::parse(text) else { return };
    let Err((stage, problem)) = look_at_stages(services, &pipeline, cwd, |_| {}) else { return };
    let message = format!("Workflow step {} pipeline: {}", step.id, problem.message);
    let part = ("pipeline", pipeline.stages[stage].span.clone());
    found.push_problem(&problem, source_places(workflow).error_in(codes::COMPONENT, step, part, message));
}

/// Checks the components of a pipeline in the working directory, and its other stages that are lobster's own. The
/// errors of a pipeline in a file are reported by `language`.
pub(super) fn check_pipeline(services: &Services, pipeline: &Pipeline) -> Result<(), Failure> {
    for stage in pipeline.stages.iter().filter(|stage| is_ours(&stage.name)) {
        if services.registry.get(&stage.name).is_some() {
            // They are built again for the run. The incumbent's stages report their errors then.
            let built = services.registry.build(&stage.name, &stage.args);
            built.map_err(|error| Failure::new(Code::Component, error.message))?;
        }
    }
    let warn = |warning| services.print_note(&format!("warning: {warning}"));
    match look_at_stages(services, pipeline, Some(&services.cwd), warn) {
        Err((_, problem)) if !problem.is_denial => Err(Failure::new(Code::Component, problem.message)),
        _ => Ok(()),
    }
}

/// The first stage whose component could not run, with the reason.
fn look_at_stages(
    services: &Services,
    pipeline: &Pipeline,
    cwd: Option<&Path>,
    warn: impl Fn(String),
) -> Result<(), (usize, Problem)> {
    for (index, stage) in pipeline.stages.iter().enumerate() {
        let Some(call) = component_call(stage) else { continue };
        let Some(cwd) = cwd else { continue };
        look_at_stage(services, &call, cwd, &warn).map_err(|problem| (index, problem))?;
    }
    Ok(())
}

fn look_at_stage(
    services: &Services,
    call: &ComponentCall,
    cwd: &Path,
    warn: &impl Fn(String),
) -> Result<(), Problem> {
    let ComponentProgram::Named(file) = &call.program else { return Ok(()) };
    let name = format!("component {file}");
    let path = cwd.join(file);
    // An earlier step may create the file. If it is missing then, the stage itself reports that.
    if file.starts_with("blake3:") || !path.is_file() {
        return Ok(());
    }
    let wrong = |error: &dyn std::fmt::Display| Problem::new(format!("{name}: {error}"), &[]);
    let digest = open_file(&path)
        .and_then(Digest::of_reader)
        .map_err(|source| wrong(&LoadError::Read { path: path.clone(), source }))?;
    component_lock::check(&path, &digest).map_err(|error| wrong(&error))?;
    let loaded = load_pinned(services, &path, digest).map_err(|error| wrong(&error))?;
    let fitting = loaded.check_args(&json::compact(&call.args));
    fitting.or_else(ignore_transient).map_err(|error| Problem::new(format!("{name}: {error}"), &[]))?;
    let dirs = |dirs: &[lobster_stage::ComponentDir]| {
        let dirs = dirs.iter().map(|dir| (cwd.join(&dir.host), dir.guest.clone()));
        existing_directories(dirs)
    };
    let asked = &call.grants;
    let grants = Grants {
        read: dirs(&asked.read),
        write: dirs(&asked.write),
        env: step_variables(services, &asked.env, &[]),
        net: asked.net.clone(),
        clock: asked.clock,
        random: asked.random,
    };
    let (grants, withheld) = admit_grants(&loaded, grants);
    withheld.into_iter().for_each(|refused| warn(format!("{name}: not granted: {refused}")));
    let denied = may_start(services, &loaded, &grants, &name);
    lock(&services.checked).push(loaded);
    denied
}

/// The component in this file, which is read again only if it has to be compiled.
fn load_pinned(services: &Services, path: &Path, pinned: Digest) -> Result<Component, LoadError> {
    let patience = Patience::new(cancelled_by(&services.cancel));
    let fail = |source| LoadError::Read { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(fail)?.len();
    let digest = blake3::Hash::from_bytes(*pinned.as_bytes());
    services.components().load_known(digest, size, &patience, || {
        let bytes = read_file(path)?;
        if Digest::of_bytes(&bytes) != pinned {
            return Err(fail(std::io::Error::other("it has changed meanwhile")));
        }
        Ok(bytes.into())
    })
}

fn check_args(component: &Component, args: &Map<String, Value>, name: &str) -> Result<(), Problem> {
    let args = Value::Object(args.clone());
    if !is_constant(&args) {
        return Ok(());
    }
    component
        .check_args(&json::compact(&args))
        .or_else(ignore_transient)
        .map_err(|error| Problem::new(format!("{name}: {error}"), &["args", "component"]))
}

/// Ignores errors that depend on the moment, which only the run can report.
fn ignore_transient(error: RunError) -> Result<(), RunError> {
    let lasting = error.is_deterministic()
        || matches!(error, RunError::BadDescription { .. } | RunError::BadGrant { .. });
    if lasting { Err(error) } else { Ok(()) }
}

/// The grants of a step that are already known. A directory or a variable may still be created before the step runs,
/// so a missing one is not refused here.
fn known_grants(services: &Services, workflow: &Workflow, step: &Step) -> Grants {
    let Some(grants) = &step.extras.grants else { return Grants::default() };
    let dirs = |dirs: &[plan::DirGrant]| {
        let fixed = dirs.iter().filter(|dir| template::is_constant(&dir.from));
        existing_directories(fixed.map(|dir| {
            (base_directory(workflow).join(&dir.from), dir.to.clone().unwrap_or_else(|| dir.from.clone()))
        }))
    };
    let own: Vec<_> = workflow.env.iter().chain(&step.env).map(|(name, _)| name.as_str()).collect();
    Grants {
        read: dirs(&grants.read),
        write: dirs(&grants.write),
        env: step_variables(services, &grants.env, &own),
        net: grants.net.clone(),
        clock: grants.clock,
        random: grants.random,
    }
}

fn existing_directories(dirs: impl Iterator<Item = (PathBuf, String)>) -> Vec<DirGrant> {
    dirs.filter(|(host, _)| host.is_dir()).map(|(host, guest)| DirGrant { host, guest }).collect()
}

/// The variables that will reach a step; their values do not matter here.
fn step_variables(services: &Services, names: &[String], own: &[&str]) -> Vec<(String, String)> {
    let is_set = |name: &&String| own.contains(&name.as_str()) || services.env.get_passed(name).is_some();
    names.iter().filter(is_set).map(|name| (name.clone(), String::new())).collect()
}

/// The grants that a component gets, and the names of those that it does not get.
fn admit_grants(component: &Component, mut grants: Grants) -> (Grants, Vec<String>) {
    let withheld = match component.describe() {
        Ok(Some(description)) => crate::withhold_undeclared(description, &mut grants, &mut BTreeMap::new()),
        Ok(None) | Err(_) => Vec::new(),
    };
    (grants, withheld)
}

fn may_start(services: &Services, component: &Component, grants: &Grants, name: &str) -> Result<(), Problem> {
    component
        .check_grants(grants)
        .map_err(|error| Problem::new(format!("{name}: {error}"), &["grants", "component"]))?;
    check_policy(services, || component.digest().into(), grants)
        .map_err(|problem| Problem { message: format!("{name}: {}", problem.message), ..problem })
}

/// Checks that the policy lets a step give these grants. The contents of a directory may still change, so only the
/// directory itself is judged now.
fn check_policy(
    services: &Services,
    component: impl FnOnce() -> Digest,
    grants: &Grants,
) -> Result<(), Problem> {
    if *grants == Grants::default() {
        return Ok(());
    }
    let proposal = crate::component_proposal(component(), grants, &grants.open_dirs());
    let place =
        crate::kinds::decision_env(&services.policy, &services.surroundings(), &services.cwd, &services.env);
    let itself = |dir: &str, fits: &dyn Fn(&str) -> bool| fits(dir).then(|| dir.to_owned());
    let decision = services.policy.decide_component(&proposal, &place, &itself);
    match decision.verdict {
        Verdict::Allow | Verdict::Ask => Ok(()),
        Verdict::Deny => Err(Problem {
            message: crate::denial_error(&decision).message,
            fields: &["grants", "component"],
            is_denial: true,
        }),
    }
}

/// True if no text inside is a template.
fn is_constant(value: &Value) -> bool {
    match value {
        Value::String(text) => template::is_constant(text),
        Value::Array(items) => items.iter().all(is_constant),
        Value::Object(map) => map.values().all(is_constant),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}
