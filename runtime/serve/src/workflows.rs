//! The files that the service starts: found in folders, read, and registered on a person's word.
//!
//! What is registered is the digest of the plan, sub-workflows and components included. A file that
//! gives another plan is not started by anything until somebody registers it again.

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
use lobster_runtime::store::service::{Refuses, Registered, Registration, Service};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::schedule::{Scheduler, specs_of};

/// What a registered version says of itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// What people call it, if not by its file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<ArgSpec>,
    #[serde(default)]
    pub triggers: Triggers,
    /// Who is told of its runs, besides those whom the operator has told of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Told>,
}

impl Content {
    /// What is stored of a registered workflow. What cannot be read starts nothing.
    #[must_use]
    pub fn of(registered: &Registered) -> Self {
        json::parse_as(&registered.content).unwrap_or_default()
    }
}

/// A file that can be registered.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// By which the service knows it: the name of its file.
    pub name: String,
    pub path: PathBuf,
    pub digest: Digest,
    pub workflow: Workflow,
}

/// How a file stands to what is registered under its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// It is what was registered.
    Registered,
    /// Nobody has said anything about it.
    New,
    /// Another plan was registered.
    Changed(Registered),
    /// Another file was registered under this name.
    Other(Registered),
}

/// The digest by which a plan is registered.
#[must_use]
pub fn digest_of(plan: &Plan) -> Digest {
    Digest::of(json::compact(plan).as_bytes())
}

/// The workflow files directly in a folder, by name.
///
/// # Errors
/// Why the folder cannot be read.
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

/// The name of a workflow by its file.
///
/// # Errors
/// When the file's name cannot stand in an address.
pub fn name_of(path: &Path) -> Result<String, String> {
    let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if stem.is_empty() || !stem.chars().all(fits) {
        return Err(format!(
            "{}: the service calls a workflow by its file: rename it to letters, digits, `-`, `_` and `.`",
            path.display()
        ));
    }
    Ok(stem.to_owned())
}

/// Reads a file with all that it is made of.
///
/// # Errors
/// What is wrong with it, with its place.
pub fn read(runtime: &Runtime, path: &Path) -> Result<Candidate, String> {
    let path = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
    let name = name_of(&path)?;
    let workflow = runtime.workflow(&path).map_err(|failure| failure.message)?;
    // A run does not look at what starts it; the service does.
    let source = read_source(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let checked = workflow::check(&source, &|path| read_source(path), runtime.registry());
    if let Some(wrong) = checked.diagnostics.iter().find(|found| found.severity == Severity::Error) {
        return Err(wrong.one_line_with_snippet());
    }
    let plan = Plan::Workflow(workflow);
    let digest = digest_of(&plan);
    match plan {
        Plan::Workflow(workflow) => Ok(Candidate { name, path, digest, workflow }),
        Plan::Pipeline(_) => Err(format!("{}: it is no workflow", path.display())),
    }
}

/// Whether a run can be promised with these arguments.
///
/// # Errors
/// What does not fit the declarations.
pub fn check_args(content: &Content, args: &Value) -> Result<(), String> {
    let Value::Object(given) = args else { return Err("the arguments must be an object".to_owned()) };
    if let Some(name) = given.keys().find(|name| !content.args.iter().any(|spec| spec.name == **name)) {
        return Err(format!("the workflow declares no argument {name:?}"));
    }
    workflow::check_args(&content.args, given).map_err(|error| error.to_string())
}

/// How a candidate stands to what is registered.
///
/// # Errors
/// When the store cannot be read.
pub fn compare(service: &Service, candidate: &Candidate) -> Result<Word, StoreError> {
    Ok(match service.workflow(&candidate.name)? {
        None => Word::New,
        Some(known) if Path::new(&known.path) != candidate.path => Word::Other(known),
        Some(known) if known.digest != candidate.digest => Word::Changed(known),
        Some(_) => Word::Registered,
    })
}

/// Registers a version. What was due of schedules that change is decided before, as it was asked for.
///
/// # Errors
/// When a schedule cannot be due, another workflow has the path of a webhook, or the store cannot be written.
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
    // Of a workflow that is new there is nothing to settle; looking through all schedules takes its time.
    let is_known = service.workflow(&candidate.name).map_err(failed)?.is_some();
    for row in if is_known { service.schedules().map_err(failed)? } else { Vec::new() } {
        let is_kept = schedules.iter().any(|new| new.name == row.name && new.spec == row.spec);
        if row.workflow_name == candidate.name && !is_kept {
            scheduler.settle(&row).map_err(failed)?;
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
        let taken = Content::of(other).triggers.webhooks;
        let hook = hooks.iter().find(|hook| taken.iter().any(|one| one.path == hook.path))?;
        Some(format!(
            "{path}: the webhook {:?} is that of {}, which is registered; give one of them another path, or \
             `lobster schedule unregister {}`",
            hook.path, other.path, other.name
        ))
    };
    let refuses = (!hooks.is_empty()).then_some(&takes_path as Refuses<'_>);
    service.register(&registration, actor, origin, refuses).map_err(failed)?;
    Ok(())
}
