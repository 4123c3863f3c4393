//! The files that the service starts: found in folders, read, and registered by a person.
//!
//! A registration holds the digest of the plan, including sub-workflows and components. If a file gives another plan,
//! nothing starts it until a person registers it again.

use std::path::{Path, PathBuf};

use jiff::tz::TimeZoneDatabase;
use lobster_runtime::digest::Digest;
use lobster_runtime::json;
use lobster_runtime::language::diagnostic::Severity;
use lobster_runtime::language::plan::{ArgSpec, Plan, Told, Workflow};
use lobster_runtime::language::source::has_workflow_extension;
use lobster_runtime::language::triggers::Triggers;
use lobster_runtime::language::workflow;
use lobster_runtime::runtime::{Runtime, read_source};
use lobster_runtime::store::StoreError;
use lobster_runtime::store::service::{NewStart, Refuses, Registered, Registration, Service};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schedule::{Scheduler, specs_of};

/// Description of a registered version, from its file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// The title of the workflow, if the file has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<ArgSpec>,
    #[serde(default)]
    pub triggers: Triggers,
    /// Recipients of notices about its runs, in addition to the operator's recipients for all runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Told>,
}

impl Content {
    /// Reads the stored content of a registered workflow. Unreadable content is empty and starts nothing.
    #[must_use]
    pub fn from_registered(registered: &Registered) -> Self {
        json::parse_as(&registered.content).unwrap_or_default()
    }
}

/// A file that can be registered.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The name under which the service knows it: the stem of its file name.
    pub name: String,
    pub path: PathBuf,
    pub digest: Digest,
    pub workflow: Workflow,
}

/// Relation of a file to the registration under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// The same plan is registered.
    Registered,
    /// Nothing is registered under its name.
    New,
    /// Another plan of the file is registered.
    Changed(Registered),
    /// Another file is registered under this name.
    Other(Registered),
}

/// The digest by which a plan is registered.
#[must_use]
pub fn digest_of(plan: &Plan) -> Digest {
    Digest::of_bytes(json::compact(plan).as_bytes())
}

/// Returns the workflow files directly in a folder, sorted by name.
///
/// # Errors
/// Returns the reason why the folder cannot be read.
pub fn files_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries =
        std::fs::read_dir(folder).map_err(|error| format!("the folder {}: {error}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| has_workflow_extension(path) && path.is_file())
        .collect();
    files.sort();
    Ok(files)
}

/// Returns the name of a workflow, from its file name.
///
/// # Errors
/// Fails if the file's name contains characters that an address cannot have.
pub fn name_of(path: &Path) -> Result<String, String> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if stem.is_empty() || !stem.chars().all(fits) {
        return Err(format!(
            "{}: the service names a workflow after its file: rename it to letters, digits, `-`, `_` and `.`",
            path.display()
        ));
    }
    Ok(stem.to_owned())
}

/// Reads a file with everything that it refers to.
///
/// # Errors
/// Returns the first mistake, with its place.
pub fn read_candidate(runtime: &Runtime, path: &Path) -> Result<Candidate, String> {
    let path = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    let name = name_of(&path)?;
    let workflow = runtime.read_workflow(&path).map_err(|failure| failure.message)?;
    // Triggers do not matter to a run, but they do to the service.
    let source = read_source(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let checked = workflow::check(&source, &|path| read_source(path), runtime.registry());
    if let Some(wrong) = checked.diagnostics.iter().find(|found| found.severity == Severity::Error) {
        return Err(wrong.one_line_with_snippet());
    }
    let plan = Plan::Workflow(workflow);
    let digest = digest_of(&plan);
    match plan {
        Plan::Workflow(workflow) => Ok(Candidate { name, path, digest, workflow }),
        Plan::Pipeline(_) => Err(format!("{}: it is not a workflow", path.display())),
    }
}

/// Checks arguments against the declarations of a workflow.
///
/// # Errors
/// Returns the mismatch.
pub fn check_args(content: &Content, args: &Value) -> Result<(), String> {
    let Value::Object(given) = args else { return Err("the arguments must be an object".to_owned()) };
    if let Some(name) = given.keys().find(|name| !content.args.iter().any(|spec| spec.name == **name)) {
        return Err(format!("the workflow declares no argument {name:?}"));
    }
    workflow::check_args(&content.args, given).map_err(|error| error.to_string())
}

/// Makes a start of a registered version, by nobody and without a schedule.
#[must_use]
pub fn new_start(workflow: &Registered, cause: &str, detail: Value, args: Value) -> NewStart {
    NewStart {
        workflow: workflow.n,
        digest: workflow.digest,
        schedule: None,
        cause: cause.to_owned(),
        detail,
        args,
        actor: None,
        is_serial: false,
        refusal: None,
    }
}

/// Compares a candidate with the registration under its name.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn compare_registration(service: &Service, candidate: &Candidate) -> Result<Word, StoreError> {
    Ok(match service.find_workflow(&candidate.name)? {
        None => Word::New,
        Some(known) if Path::new(&known.path) != candidate.path => Word::Other(known),
        Some(known) if known.digest != candidate.digest => Word::Changed(known),
        Some(_) => Word::Registered,
    })
}

/// Registers a version. Due ticks of schedules that change are decided first, under their old terms.
///
/// # Errors
/// Fails if a schedule can never be due, another workflow has the path of a webhook, or the store cannot be written.
pub fn register(
    service: &Service,
    candidate: &Candidate,
    actor: Option<&str>,
    origin: &str,
) -> Result<(), String> {
    let zones = TimeZoneDatabase::from_env();
    let planned = &candidate.workflow;
    let content = Content {
        title: planned.name.clone(),
        description: planned.description.clone(),
        args: planned.args.clone(),
        triggers: planned.triggers.clone(),
        notify: planned.notify.clone(),
    };
    let path = candidate.path.to_str().ok_or_else(|| {
        format!("{}: the path is not UTF-8 text; rename the folder", candidate.path.display())
    })?;
    let failed = |error: StoreError| error.to_string();
    let now = service.store().clock_ms();
    let schedules = specs_of(&candidate.name, &planned.triggers, now, &zones)
        .map_err(|error| format!("{path}: {error}"))?;
    let scheduler = Scheduler::new(service.store()).map_err(failed)?;
    // A new workflow has nothing to settle, and reading all schedules takes time.
    let is_known = service.find_workflow(&candidate.name).map_err(failed)?.is_some();
    for row in if is_known { service.list_schedules().map_err(failed)? } else { Vec::new() } {
        let is_kept = schedules.iter().any(|new| new.name == row.name && new.spec == row.spec);
        if row.workflow_name == candidate.name && !is_kept {
            scheduler.settle_schedule(&row).map_err(failed)?;
        }
    }
    let registration = Registration {
        name: candidate.name.clone(),
        path: path.to_owned(),
        digest: candidate.digest,
        content: json::compact(&content),
        schedules,
    };
    let hooks = &planned.triggers.webhooks;
    let takes_path = |other: &Registered| {
        let taken = Content::from_registered(other).triggers.webhooks;
        let hook = hooks.iter().find(|hook| taken.iter().any(|one| one.path == hook.path))?;
        Some(format!(
            "{path}: the webhook path {:?} is already registered by {}; give one of them another path, or \
             `lobster schedule unregister {}`",
            hook.path, other.path, other.name
        ))
    };
    let refuses = (!hooks.is_empty()).then_some(&takes_path as Refuses<'_>);
    service.register_workflow(&registration, actor, origin, refuses).map_err(failed)?;
    Ok(())
}
