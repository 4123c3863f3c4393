//! The catalogue of tools: the server's own, and one for each workflow and each component of the
//! operator's directories. Each tool has a digest over everything that it shows and runs, so that a
//! changed tool is noticed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, SystemTime};

use lobster_runtime::call::Call;
use lobster_runtime::cancel::CancelReason;
use lobster_runtime::component::{self, Component, Patience, cancelled_by};
use lobster_runtime::digest::Digest;
use lobster_runtime::engine::Caller;
use lobster_runtime::json;
use lobster_runtime::language::plan::Workflow;
use lobster_runtime::language::source::has_workflow_extension;
use lobster_runtime::runtime::Runtime;
use lobster_runtime::store::service::{Registered, Service};
use lobster_runtime::text::{self, Count};
use lobster_serve::workflows::Content;
use rmcp::model::{MetaObject, Tool};
use serde_json::{Map, Value, json};

use super::Options;
use super::builtin::{self, BuiltinTool};
use super::call;
use super::hints::{self, Reach};
use super::schema::{self, Layout};

/// The key of a digest in `_meta`.
pub(super) const DIGEST: &str = "lobster/digest";

/// Longest name of a tool; some model interfaces accept no more.
const MAX_NAME: usize = 64;

/// The program of a tool.
#[derive(Clone)]
pub(super) enum ToolProgram {
    Builtin(BuiltinTool),
    Workflow {
        file: PathBuf,
    },
    /// A workflow that the service starts under this name.
    Registered {
        name: String,
    },
    /// The component is kept, so that it stays loaded.
    Component {
        file: PathBuf,
        component: Component,
        layout: Layout,
    },
}

/// A tool with its program.
#[derive(Clone)]
pub(super) struct CatalogueEntry {
    pub(super) tool: Tool,
    pub(super) program: ToolProgram,
    /// Digest over everything that it runs.
    pub(super) runs: Digest,
    /// Digest over everything that it runs and shows.
    pub(super) digest: Digest,
}

/// A file with its size and time when it was read: a cheap test for changes.
type Stamp = (PathBuf, Option<(u64, SystemTime)>);

/// All tools at one time, by name.
#[derive(Default)]
pub(super) struct Catalogue {
    pub(super) entries: BTreeMap<String, Arc<CatalogueEntry>>,
    pub(super) digest: Option<Digest>,
    /// Files that could not become tools, with reasons.
    pub(super) problems: Vec<String>,
    stamps: Vec<Stamp>,
    /// Digest over the registered versions that were read.
    versions: Option<Digest>,
}

/// Reads one file with a runtime that is cancelled at the time limit of a call: a component that
/// compiles for minutes must not delay the start of the server.
fn with_time_limit<T>(runtime: &Runtime, call_time: Option<Duration>, read: impl FnOnce(&Runtime) -> T) -> T {
    let time = call_time.unwrap_or(Duration::from_millis(call::TIMEOUT_MS));
    let cancel = runtime.cancel().child_token();
    let bounded = runtime.for_call(Call {
        cwd: std::env::current_dir().unwrap_or_default(),
        caller: Caller::default(),
        cancel: cancel.clone(),
        notes: Box::new(|line| tracing::info!("{line}")),
        progress: None,
    });
    let (done, ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                let ms = time.as_millis();
                cancel.cancel(CancelReason::Timeout(format!(
                    "loading it took longer than {ms} ms, the time of a call; `lobster step compile` compiles a component ahead"
                )));
            }
        });
        let read = read(&bounded);
        drop(done);
        read
    })
}

impl Catalogue {
    /// Reads the directories, or the registered workflows of a service. Loading a file may take as long as a call.
    pub(super) fn read_tools(runtime: &Runtime, options: &Options, registered: Option<&Service>) -> Self {
        let mut catalogue = Self::default();
        let builtins = if registered.is_some() { &BuiltinTool::OF_SERVICE[..] } else { &BuiltinTool::OWN };
        for builtin in builtins.iter().copied().filter(|one| *one != BuiltinTool::Run || options.run) {
            let (tool, reach) = builtin::listed_tool(builtin);
            let runs = Digest::of_bytes(builtin.name().as_bytes());
            catalogue.add_tool(tool, reach, ToolProgram::Builtin(builtin), runs, None);
        }
        if let Some(service) = registered {
            catalogue.add_registered(service);
        }
        for dir in &options.workflows {
            for file in catalogue.tool_files(dir, has_workflow_extension) {
                with_time_limit(runtime, options.timeout, |runtime| catalogue.add_workflow(runtime, file));
            }
        }
        for dir in &options.components {
            let is_wasm = |path: &Path| path.extension().is_some_and(|extension| extension == "wasm");
            for file in catalogue.tool_files(dir, is_wasm) {
                with_time_limit(runtime, options.timeout, |runtime| catalogue.add_component(runtime, file));
            }
        }
        let all: BTreeMap<&String, String> =
            catalogue.entries.iter().map(|(name, entry)| (name, entry.digest.to_string())).collect();
        catalogue.digest = Digest::of_json(&all).ok();
        catalogue
    }

    /// True if a file or directory has changed since it was read, or another version is registered.
    pub(super) fn is_stale(&self, registered: Option<&Service>) -> bool {
        if let Some(service) = registered {
            return service.list_workflows().ok().is_some_and(|all| Some(versions_of(&all)) != self.versions);
        }
        self.stamps.iter().any(|(path, stamp)| stamp_of(path) != *stamp)
    }

    /// True if the file of this tool has changed since it was read.
    pub(super) fn is_entry_stale(&self, entry: &CatalogueEntry) -> bool {
        let file = match &entry.program {
            ToolProgram::Builtin(_) => return false,
            ToolProgram::Registered { .. } => return true,
            ToolProgram::Workflow { file } | ToolProgram::Component { file, .. } => file,
        };
        self.stamps.iter().any(|(path, stamp)| path == file && stamp_of(path) != *stamp)
    }

    pub(super) fn visible_tools(&self, is_seen: impl Fn(&CatalogueEntry) -> bool) -> Vec<Tool> {
        let seen = self.entries.values().filter(|entry| is_seen(entry));
        seen.map(|entry| entry.tool.clone()).collect()
    }

    /// The files of a directory that may become tools, by name.
    fn tool_files(&mut self, dir: &Path, fits: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        self.stamps.push((dir.to_owned(), stamp_of(dir)));
        let entries = match std::fs::read_dir(dir) {
            Ok(entries) => entries,
            Err(error) => {
                self.problems.push(format!("{}: {error}", dir.display()));
                return Vec::new();
            }
        };
        let mut files: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .filter(|path| fits(path) && path.is_file())
            .collect();
        files.sort();
        self.stamps.extend(files.iter().map(|path| (path.clone(), stamp_of(path))));
        files
    }

    fn add_registered(&mut self, service: &Service) {
        let all = match service.list_workflows() {
            Ok(all) => all,
            Err(error) => return self.problems.push(error.to_string()),
        };
        self.versions = Some(versions_of(&all));
        for workflow in all {
            let content = Content::from_registered(&workflow);
            let title = content.title.unwrap_or_else(|| workflow.name.clone());
            let about = content.description.unwrap_or_else(|| format!("Runs the workflow {title}."));
            let tool = Tool::new(tool_name(&workflow.name), about, schema::of_workflow(&content.args))
                .with_title(title)
                .with_raw_output_schema(Arc::new(schema::envelope_of_service()));
            let program = ToolProgram::Registered { name: workflow.name.clone() };
            self.add_tool(tool, Reach::ANYTHING, program, workflow.digest, Some(Path::new(&workflow.path)));
        }
    }

    fn add_workflow(&mut self, runtime: &Runtime, file: PathBuf) {
        let workflow = match runtime.read_workflow(&file) {
            Ok(workflow) => workflow,
            Err(error) => return self.problems.push(format!("{}: {}", file.display(), error.message)),
        };
        let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let title = workflow.name.clone().unwrap_or_else(|| stem.clone());
        let about = workflow.description.clone().unwrap_or_else(|| format!("Runs the workflow {title}."));
        let tool = Tool::new(tool_name(&stem), about, schema::of_workflow(&workflow.args))
            .with_title(title)
            .with_raw_output_schema(Arc::new(schema::envelope(None)));
        self.stamps.extend(of_files(&workflow));
        let reach = hints::of_workflow(&workflow, runtime.registry());
        let runs = workflow_digest(&workflow);
        self.add_tool(tool, reach, ToolProgram::Workflow { file: file.clone() }, runs, Some(&file));
    }

    fn add_component(&mut self, runtime: &Runtime, file: PathBuf) {
        let loaded = component::read_file(&file).map_err(|error| error.to_string()).and_then(|bytes| {
            runtime.keep_component(&bytes).map_err(|error| error.to_string())?;
            runtime
                .components()
                .load_bytes_within(&bytes, &Patience::new(cancelled_by(runtime.cancel())))
                .map_err(|error| error.to_string())
        });
        let described = loaded.and_then(|component| {
            let description = component.describe().map_err(|error| error.to_string())?.cloned();
            Ok((component, description))
        });
        let (component, description) = match described {
            Ok(described) => described,
            Err(error) => return self.problems.push(format!("{}: {error}", file.display())),
        };
        let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let (takes, layout) = schema::of_component(description.as_ref());
        let item = description
            .as_ref()
            .and_then(|description| description.output_schema.as_deref())
            .and_then(|text| json::parse(text).ok());
        let about = description.map_or_else(
            || format!("Runs the component {stem} without any grants."),
            |description| description.summary,
        );
        let tool = Tool::new(tool_name(&stem), about, takes)
            .with_raw_output_schema(Arc::new(schema::envelope(item.as_ref())));
        let runs = Digest::from(component.digest());
        let program = ToolProgram::Component { file: file.clone(), component, layout };
        self.add_tool(tool, Reach::PURE, program, runs, Some(&file));
    }

    fn add_tool(
        &mut self,
        tool: Tool,
        reach: Reach,
        program: ToolProgram,
        runs: Digest,
        file: Option<&Path>,
    ) {
        let name = tool.name.to_string();
        if self.entries.contains_key(&name) {
            let file = file.map(|file| file.display().to_string()).unwrap_or_default();
            self.problems.push(format!("{file}: there is a tool named {name} already; rename the file"));
            return;
        }
        let tool = tool.annotate(reach.to_annotations());
        let shown = json!({ "tool": tool, "runs": runs });
        let digest = Digest::of_json(&shown).unwrap_or(runs);
        let meta = Map::from_iter([(DIGEST.to_owned(), json!(format!("blake3:{digest}")))]);
        let tool = tool.with_meta(MetaObject(meta));
        self.entries.insert(name, Arc::new(CatalogueEntry { tool, program, runs, digest }));
    }
}

/// A name that every client accepts: letters, digits, `_` and `-`. A changed name ends with digits that
/// depend on the original, so that two names never become equal, regardless of other names.
fn tool_name(stem: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let is_reserved = BuiltinTool::ALL.iter().any(|builtin| builtin.name() == stem);
    if stem.chars().all(fits) && (1..=MAX_NAME).contains(&stem.len()) && !is_reserved {
        return stem.to_owned();
    }
    let own: String = Digest::of_bytes(stem.as_bytes()).to_string().chars().take(8).collect();
    let words: Vec<&str> = stem.split(|c| !fits(c)).filter(|word| !word.is_empty()).collect();
    let readable: String = words.join("-").chars().take(MAX_NAME - own.len() - 1).collect();
    format!("{}-{own}", if readable.is_empty() { "workflow" } else { &readable })
}

/// One digest over the registered versions.
fn versions_of(all: &[Registered]) -> Digest {
    let versions: Vec<(&str, String)> =
        all.iter().map(|workflow| (workflow.name.as_str(), workflow.digest.to_string())).collect();
    Digest::of_bytes(json::compact(&versions).as_bytes())
}

fn stamp_of(path: &Path) -> Option<(u64, SystemTime)> {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.len(), metadata.modified().ok()?))
}

/// The other files of a workflow.
fn of_files(workflow: &Workflow) -> Vec<Stamp> {
    let base = workflow.file.parent().unwrap_or(Path::new("/"));
    let mut files: Vec<Stamp> = workflow
        .components
        .keys()
        .map(|component| base.join(component))
        .chain(workflow.children.values().map(|child| child.file.clone()))
        .map(|path| (path.clone(), stamp_of(&path)))
        .collect();
    files.extend(workflow.children.values().flat_map(of_files));
    files
}

/// One digest over all files of a workflow: its own text, its children and its components.
pub(super) fn workflow_digest(workflow: &Workflow) -> Digest {
    fn digest_parts(workflow: &Workflow) -> Value {
        let children: Map<String, Value> =
            workflow.children.iter().map(|(path, child)| (path.clone(), digest_parts(child))).collect();
        json!({ "source": workflow.source, "children": children, "components": workflow.components })
    }
    Digest::of_json(&digest_parts(workflow)).unwrap_or(workflow.source)
}

/// The differences between a changed tool and its listed form.
pub(super) fn describe_difference(listed: &CatalogueEntry, now: Option<&CatalogueEntry>) -> String {
    let Some(now) = now else { return "it is gone, or can no longer be read".to_owned() };
    let mut changes = Vec::new();
    let (was, is) = (as_value(&listed.tool), as_value(&now.tool));
    for key in ["title", "description", "inputSchema", "outputSchema", "annotations"] {
        let (was, is) = (was.get(key), is.get(key));
        if was != is {
            let text = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), clip_value);
            changes.push(format!("{key} was {} and is {}", text(was), text(is)));
        }
    }
    if listed.runs != now.runs {
        changes.push(format!(
            "what it runs was blake3:{} and is blake3:{}",
            listed.runs.short(),
            now.runs.short()
        ));
    }
    if changes.is_empty() { "nothing visible".to_owned() } else { changes.join("; ") }
}

fn as_value(tool: &Tool) -> Value {
    serde_json::to_value(tool).unwrap_or(Value::Null)
}

fn clip_value(value: &Value) -> String {
    const MAX: usize = 600;
    text::clip(&json::compact(value), MAX, Count::Bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_suit_every_client() {
        let digits = |stem: &str| Digest::of_bytes(stem.as_bytes()).to_string()[..8].to_owned();
        assert_eq!(tool_name("inbox-triage_v2"), "inbox-triage_v2");
        assert_eq!(tool_name("inbox triage.v2"), format!("inbox-triage-v2-{}", digits("inbox triage.v2")));
        let long = "a".repeat(MAX_NAME);
        assert_eq!(tool_name(&long), long);
        // Stems of up to three parts, each plain or with characters that are not allowed.
        let parts = ["", "a", "b", " ", ".", "-", "_", "部", "署", "备份", "é", "\u{202e}", "run", &long];
        let parts = &parts;
        let stems: BTreeSet<String> = parts
            .iter()
            .flat_map(|a| parts.iter().flat_map(move |b| parts.iter().map(move |c| format!("{a}{b}{c}"))))
            .collect();
        let names: BTreeSet<String> = stems.iter().map(|stem| tool_name(stem)).collect();
        assert_eq!(names.len(), stems.len(), "no two stems share a name");
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let is_valid = |name: &String| (1..=MAX_NAME).contains(&name.len()) && name.chars().all(fits);
        assert!(names.iter().all(is_valid), "{names:?}");
        assert!(BuiltinTool::ALL.iter().all(|builtin| !names.contains(builtin.name())));
    }
}
