//! Words from the store and the working directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lobster_runtime::language::source::has_workflow_extension;
use lobster_runtime::replay::read_standing;
use lobster_runtime::runtime::{load_workflow_to_draw, tidy_path};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{GateFilter, GateStatus, RunFilter, RunSummary, Store};
use serde_json::Value;

use super::Candidate;
use crate::render::units;
use crate::{prepare, which};

/// Runs that are offered, and searched for names.
const RUNS: usize = 30;

/// Most files of a directory that are looked at.
const FILES: usize = 2000;

pub(super) struct KnownWords {
    store: Option<Store>,
    folder: Option<PathBuf>,
}

impl KnownWords {
    /// The words known here. Does not create a store.
    pub(super) fn here() -> Self {
        let store = || {
            let runtime = prepare::runtime(Mode::Tool).ok()?;
            runtime.state_dir().join("store").exists().then(|| runtime.store().ok())?
        };
        Self { store: store(), folder: std::env::current_dir().ok() }
    }

    #[cfg(test)]
    pub(super) fn nothing() -> Self {
        Self { store: None, folder: None }
    }

    fn recent_runs(&self) -> Vec<RunSummary> {
        let filter = RunFilter { limit: RUNS, ..RunFilter::default() };
        self.store.as_ref().and_then(|store| store.list_runs(&filter).ok()).unwrap_or_default()
    }

    fn describe_run(&self, run: &RunSummary) -> String {
        let status = self.store.as_ref().map(|store| read_standing(store, run).as_str()).unwrap_or_default();
        format!("{}, {status}, {}", run.name, units::format_age(run.started_at))
    }

    /// Ids of runs, and the ways to name recent ones.
    pub(super) fn run_candidates(&self, current: &str) -> Vec<Candidate> {
        let recent = self.recent_runs();
        let mut found: Vec<Candidate> = Vec::new();
        for (text, run) in ["@", "@-"].iter().zip(&recent) {
            found.push(Candidate::new(*text, self.describe_run(run)));
        }
        if !current.is_empty() && !current.starts_with('@') {
            found.extend(self.name_candidates().into_iter().map(|name| {
                Candidate::new(format!("{}@-", name.text), format!("the last run of {}", name.text))
            }));
        }
        found.extend(recent.iter().map(|run| Candidate::new(run.id.short_id(), self.describe_run(run))));
        // Whole ids, if more than eight characters are typed.
        if current.len() > 8 {
            found.extend(recent.iter().map(|run| Candidate::new(run.id.to_string(), self.describe_run(run))));
        }
        found
    }

    /// Names of workflows that ran.
    pub(super) fn name_candidates(&self) -> Vec<Candidate> {
        let names: BTreeSet<String> = self.recent_runs().into_iter().map(|run| run.name).collect();
        names.into_iter().map(|name| Candidate::new(name, "")).collect()
    }

    /// Open questions.
    pub(super) fn approval_candidates(&self) -> Vec<Candidate> {
        let open = GateFilter { status: Some(GateStatus::Open), ..GateFilter::default() };
        let gates =
            self.store.as_ref().and_then(|store| store.list_approvals(&open).ok()).unwrap_or_default();
        let prompt =
            |question: &Value| question.get("prompt").and_then(Value::as_str).unwrap_or_default().to_owned();
        gates.into_iter().map(|gate| Candidate::new(gate.id, prompt(&gate.question))).collect()
    }

    /// Steps of the named run.
    pub(super) fn step_candidates(&self, run: Option<&str>) -> Vec<Candidate> {
        let paths = || {
            let store = self.store.as_ref()?;
            which::executed_steps(store, which::run(store, run?).ok()?).ok()
        };
        paths().unwrap_or_default().into_iter().map(|path| Candidate::new(path, "")).collect()
    }

    /// `NAME=` for each argument of a workflow file.
    pub(super) fn argument_candidates(&self, file: Option<&str>) -> Vec<Candidate> {
        let workflow = || {
            let path = self.folder.as_ref()?.join(file?);
            Some(load_workflow_to_draw(&tidy_path(&path)).ok()?.0)
        };
        let args = workflow().map(|workflow| workflow.args).unwrap_or_default();
        args.into_iter()
            .map(|arg| Candidate::new(format!("{}=", arg.name), arg.description.unwrap_or_default()))
            .collect()
    }

    pub(super) fn workflow_files(&self, current: &str) -> Vec<Candidate> {
        self.file_candidates(current, |path| {
            path.extension().is_some_and(|e| e == "lobster") || {
                has_workflow_extension(path) && !current.is_empty()
            }
        })
    }

    /// Files and directories that begin with the typed text.
    pub(super) fn file_candidates(&self, current: &str, fits: impl Fn(&Path) -> bool) -> Vec<Candidate> {
        let Some(here) = &self.folder else { return Vec::new() };
        let (folder, begin) =
            current.rsplit_once('/').map_or(("", current), |(folder, begin)| (folder, begin));
        let prefix = if current.contains('/') { format!("{folder}/") } else { String::new() };
        let place = if prefix == "/" { PathBuf::from("/") } else { here.join(folder) };
        let entries = std::fs::read_dir(place).into_iter().flatten().flatten().take(FILES);
        let mut found: Vec<Candidate> = entries
            .filter_map(|entry| {
                let name = entry.file_name().to_str()?.to_owned();
                let is_hidden = name.starts_with('.') && !begin.starts_with('.');
                let path = entry.path();
                match path.is_dir() {
                    _ if is_hidden => None,
                    true => Some(Candidate::new(format!("{prefix}{name}/"), "")),
                    false => fits(&path).then(|| Candidate::new(format!("{prefix}{name}"), "")),
                }
            })
            .collect();
        found.sort();
        found
    }
}
