//! Workflow files: from source to [`Workflow`].
//!
//! Loading has two passes. [`validate`] rejects what the incumbent rejects, in its order and with its
//! messages, so that clients that parse them keep working. [`step`] then builds the plan and rejects
//! mistakes that the incumbent finds only during the run, or never.

mod args;
mod budget;
mod control;
mod credentials;
mod doubts;
mod extensions;
mod fields;
mod js;
mod lint;
mod mistakes;
mod needs;
mod notify;
mod places;
mod schema;
mod secrets;
mod stage_calls;
mod step;
mod trigger_data;
mod triggers;
mod undo;
mod validate;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod trigger_tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::condition::Condition;
use super::diagnostic::{Checked, Diagnostic, Severity};
use super::plan::{CostLimit, Span, Step, Wait, Work, Workflow};
use super::source::{Data, MappingEntry, Node, Source};
use super::{codes, template};
use lobster_stage::Registry;
use step::Known;

pub use args::{
    ArgsError, argument_names, bind_args, check_args, check_declared, merge_args, reread_arguments,
};
use fields::nearest_field;
pub(crate) use lint::RECORD_FIELDS;
pub use lint::check;
pub use places::Places;
pub use schema::json_schema;
pub use undo::refers_to;

/// Returns the source of a sub-workflow by its path.
pub type Loader<'a> = &'a dyn Fn(&Path) -> io::Result<Arc<Source>>;

/// Limits on the depth and the total number of sub-workflows: a small set of files can refer to each
/// other so often that reading every call would never end.
const MAX_CHILD_DEPTH: usize = 32;
const MAX_CHILDREN: usize = 1000;

/// Most warnings about one file and its sub-workflows; more would not be read, and a hostile file could
/// cause very many.
const MAX_WARNINGS: usize = 200;

/// Reads a workflow file and the sub-workflows with fixed paths, and returns warnings about them.
///
/// A sub-workflow that cannot be read now is left out of `children`, with a warning: an earlier step
/// may create it. A sub-workflow that calls a file which is already being loaded is also left out,
/// because running it would not end.
///
/// Diagnostics of severity error describe certain failures of a run, such as a reference to a step that
/// is not an earlier one. Running should be refused (see [`certain_failure`]); drawing a graph need not
/// be.
///
/// # Errors
/// The first error in the file itself.
pub fn load(source: &Arc<Source>, loader: Loader<'_>) -> Checked<(Workflow, Vec<Diagnostic>)> {
    let mut loading = Loading::new(loader, None);
    let workflow = loading.load_file(source)?;
    Ok((workflow, loading.warnings))
}

/// Diagnostics of `check` that are not needed for a run: the run finds these errors itself, or they do
/// not change its effects.
const FOR_CHECK_ONLY: &[&str] = &[
    codes::STAGE_OPTION,
    codes::STAGE_AS_SHELL,
    codes::PASTED_ARGUMENT,
    codes::PASTED_REFERENCE,
    codes::TRIGGER,
    codes::TRIGGER_DATA,
];

/// Failures of steps that are left to the run if the file handles the failure.
const IF_NOT_PROVIDED_FOR: &[&str] = &[codes::UNKNOWN_COMMAND, codes::STAGE_ARGUMENTS, codes::CHILD_CYCLE];

/// Reads a workflow file to run it. The result includes the probable mistakes that would change the
/// effects of the run.
///
/// # Errors
/// As [`load`].
pub fn load_to_run(
    source: &Arc<Source>,
    loader: Loader<'_>,
    commands: &Registry,
) -> Checked<(Workflow, Vec<Diagnostic>)> {
    let mut loading = Loading::new(loader, Some(commands));
    let workflow = loading.load_file(source)?;
    let mut said = loading.warnings;
    said.retain(|said| {
        let is_provided_for = said.severity == Severity::Warning && IF_NOT_PROVIDED_FOR.contains(&said.code);
        !FOR_CHECK_ONLY.contains(&said.code) && !is_provided_for
    });
    Ok((workflow, said))
}

/// Reads a workflow file to draw it. A condition that no run could parse is a warning and is drawn as
/// written.
///
/// # Errors
/// As [`load`].
pub fn load_to_draw(source: &Arc<Source>, loader: Loader<'_>) -> Checked<(Workflow, Vec<Diagnostic>)> {
    let mut loading = Loading { is_for_drawing: true, ..Loading::new(loader, None) };
    let workflow = loading.load_file(source)?;
    Ok((workflow, loading.warnings))
}

/// The first diagnostic of a certain failure.
#[must_use]
pub fn certain_failure(diagnostics: &[Diagnostic]) -> Option<&Diagnostic> {
    diagnostics.iter().find(|diagnostic| diagnostic.severity == Severity::Error)
}

struct Loading<'a> {
    loader: Loader<'a>,
    /// Paths from the root to the file that is being loaded.
    active: Vec<PathBuf>,
    loaded: usize,
    warnings: Vec<Diagnostic>,
    /// Commands of pipelines; if present, probable mistakes are also reported.
    lint: Option<&'a Registry>,
    /// Nothing will be run.
    is_for_drawing: bool,
    /// A call on the way to the current file may fail, and the run then continues.
    is_tolerated: bool,
}

impl<'a> Loading<'a> {
    fn new(loader: Loader<'a>, lint: Option<&'a Registry>) -> Self {
        Self {
            loader,
            active: Vec::new(),
            loaded: 0,
            warnings: Vec::new(),
            lint,
            is_for_drawing: false,
            is_tolerated: false,
        }
    }

    fn load_file(&mut self, source: &Arc<Source>) -> Checked<Workflow> {
        self.file_without(source, &BTreeSet::new())
    }

    /// Like [`Self::load_file`], without the diagnostics of the steps at `aside`.
    fn file_without(&mut self, source: &Arc<Source>, aside: &BTreeSet<usize>) -> Checked<Workflow> {
        let mut root = source.parse_tree()?;
        let aside = set_aside(&mut root, aside);
        doubts::warn_of_half_pairs(source, &root, &mut self.warnings);
        validate::check_workflow(source, &root)?;
        let mut lowering = Lowering {
            aside,
            source,
            warnings: &mut self.warnings,
            known: Known::default(),
            declared: HashSet::new(),
            arguments: HashSet::new(),
            variables: HashSet::new(),
            gates: HashMap::new(),
            line_printers: HashSet::new(),
            lint: self.lint,
            is_for_drawing: self.is_for_drawing,
            is_tolerated: self.is_tolerated,
        };
        let mut workflow = lowering.lower_workflow(&root)?;
        self.active.push(source.path.clone());
        let children = self.load_children(source, &workflow.steps);
        self.active.pop();
        workflow.children = children?;
        self.refuse_data_in_children(source, &workflow);
        Ok(workflow)
    }

    /// Index, among the steps of a file, of the step that an error is about.
    fn step_at(&self, source: &Arc<Source>, error: &Diagnostic) -> Option<usize> {
        let root = source.parse_tree().ok()?;
        let steps = root.get("steps").and_then(Node::as_list)?;
        steps
            .iter()
            .rposition(|step| step.span.start <= error.span.start && error.span.start <= step.span.end)
    }

    fn load_children(&mut self, source: &Arc<Source>, steps: &[Step]) -> Checked<BTreeMap<String, Workflow>> {
        let mut calls = Vec::new();
        collect_calls(steps, true, false, &mut calls);
        let mut children = BTreeMap::new();
        let directory = source.path.parent().unwrap_or(Path::new("")).to_owned();
        let mut strictest = BTreeMap::new();
        for call in &calls {
            let (fatal, tolerated) = strictest.entry(call.path).or_insert((false, true));
            (*fatal, *tolerated) = (*fatal || call.fatal, *tolerated && call.tolerated);
        }
        for Call { step, path: written, tolerated, .. } in calls {
            let path = directory.join(written);
            if self.active.contains(&path) {
                let is_tolerated = self.is_tolerated || tolerated;
                if self.lint.is_some() && step.when != Condition::Never {
                    self.warnings.push(cycle_diagnostic(source, step, written, is_tolerated));
                }
                continue;
            }
            let (fatal, tolerated) = strictest[written];
            if children.contains_key(written) {
                continue;
            }
            self.loaded += 1;
            if self.active.len() > MAX_CHILD_DEPTH || self.loaded > MAX_CHILDREN {
                let message =
                    format!("Workflow step {} calls sub-workflows too deeply or too many of them", step.id);
                return Err(Diagnostic::error(source, codes::CHILD_DEPTH, step.span, message));
            }
            let child = match (self.loader)(&path) {
                Ok(child) => child,
                Err(error) => {
                    let message = format!(
                        "Workflow step {} workflow file cannot be read now: {written}: {error}",
                        step.id
                    );
                    let warning = Diagnostic::warning(source, codes::CHILD_MISSING, step.span, message);
                    self.warnings
                        .push(warning.with_help("create the file, or let an earlier step create it"));
                    continue;
                }
            };
            let around = self.is_tolerated;
            self.is_tolerated |= tolerated;
            let read = self.load_file(&child);
            self.is_tolerated = around;
            match read {
                Ok(child) => {
                    children.insert(written.to_owned(), child);
                }
                // The step would always fail, and the file does not handle the failure.
                Err(error) if fatal => return Err(error),
                Err(error) => {
                    let message = format!(
                        "Workflow step {} workflow {written} cannot be used: {}",
                        step.id, error.message
                    );
                    self.warnings.push(Diagnostic::warning(source, codes::CHILD, step.span, message));
                }
            }
        }
        Ok(children)
    }
}

/// A call that never succeeds, whatever the path to it.
fn cycle_diagnostic(source: &Arc<Source>, step: &Step, written: &str, is_tolerated: bool) -> Diagnostic {
    let message =
        format!("Workflow step {} creates a cycle: {written} is being executed when the step runs", step.id);
    let said = match is_tolerated {
        true => Diagnostic::warning(source, codes::CHILD_CYCLE, step.span, message),
        false => *Diagnostic::error(source, codes::CHILD_CYCLE, step.span, message),
    };
    said.with_help("a workflow cannot call itself, directly or through others; use for_each to repeat steps")
}

/// A step that calls a fixed path.
struct Call<'s> {
    step: &'s Step,
    /// Path as written.
    path: &'s str,
    /// True if a failure of the step is a failure of the run.
    fatal: bool,
    /// True if the step, or a step around it, may fail and the run then continues.
    tolerated: bool,
}

/// Collects all calls of fixed paths, at any depth.
fn collect_calls<'s>(steps: &'s [Step], fatal: bool, tolerated: bool, calls: &mut Vec<Call<'s>>) {
    for step in steps {
        if let Some(undo) = &step.extras.undo {
            collect_calls(std::slice::from_ref(undo), false, true, calls);
        }
        let may_fail = step.on_error.passes_over() || step.when == Condition::Never;
        let (fatal, tolerated) = (fatal && !may_fail, tolerated || may_fail);
        match &step.work {
            Work::Workflow { path, .. } if template::is_constant(path) => {
                calls.push(Call { step, path, fatal, tolerated })
            }
            Work::Parallel { wait, branches, .. } => {
                collect_calls(branches, fatal && *wait == Wait::All, tolerated || *wait == Wait::Any, calls)
            }
            // A loop may have no items.
            Work::ForEach { steps, .. } => collect_calls(steps, false, tolerated, calls),
            Work::Repeat { steps, .. } => collect_calls(steps, fatal, tolerated, calls),
            Work::Switch { cases, default, .. } => {
                for steps in cases.iter().map(|case| &case.steps).chain(default) {
                    collect_calls(steps, false, tolerated, calls);
                }
            }
            Work::Workflow { .. }
            | Work::Nothing
            | Work::Shell(_)
            | Work::Exec(_)
            | Work::Pipeline(_)
            | Work::Component { .. }
            | Work::Js(_)
            | Work::Mcp { .. }
            | Work::Input(_)
            | Work::Wait(_) => {}
        }
    }
}

/// The second pass: builds the plan of a file that [`validate`] has accepted.
struct Lowering<'a> {
    source: &'a Arc<Source>,
    warnings: &'a mut Vec<Diagnostic>,
    /// Ids that the current step can refer to.
    known: Known,
    /// All ids of the file and all declared arguments, for lints.
    declared: HashSet<String>,
    arguments: HashSet<String>,
    /// Variables that the file sets for all its steps.
    variables: HashSet<String>,
    /// Steps that only ask, with the part of their record that has the answer.
    gates: HashMap<String, &'static str>,
    /// Steps whose output most likely ends with a line break.
    line_printers: HashSet<String>,
    /// Ids of steps that were set aside for their errors: nothing is known about them.
    aside: HashSet<String>,
    lint: Option<&'a Registry>,
    is_for_drawing: bool,
    /// The current step, or a step around it, may fail and the run then continues.
    is_tolerated: bool,
}

/// Replaces steps with steps that do nothing; returns all ids that they had.
fn set_aside(root: &mut Node, aside: &BTreeSet<usize>) -> HashSet<String> {
    let mut ids = HashSet::new();
    let Data::Map(entries) = &mut root.data else { return ids };
    let steps = entries.iter_mut().find(|entry| entry.key == "steps");
    let Some(Data::List(steps)) = steps.map(|entry| &mut entry.value.data) else { return ids };
    for at in aside {
        let Some(step) = steps.get_mut(*at) else { continue };
        lint::collect_step(step, &mut ids);
        let span = step.span;
        let text = |text: String| Node { data: Data::Text(text), span };
        let entry = |key: &str, value| MappingEntry { key: key.to_owned(), key_span: span, value };
        // An author's id cannot contain a line break.
        step.data = Data::Map(vec![
            entry("id", text(format!("set\naside {at}"))),
            entry("run", text("true".to_owned())),
        ]);
    }
    ids
}

impl Lowering<'_> {
    fn lower_workflow(&mut self, root: &Node) -> Checked<Workflow> {
        self.unknown_fields(root, fields::TOP_FIELDS, "the top of a workflow file");
        let text = |key: &str| root.get(key).and_then(Node::as_text).map(str::to_owned);
        let secrets = self.text_list(root, "secrets", "secrets")?;
        let args = self.arg_specs(root);
        self.declared_secrets(root, &secrets, &args)?;
        let triggers = self.lower_triggers(root, &args);
        let notify = self.lower_notify(root);
        if self.lint.is_some() {
            self.arguments = args.iter().map(|spec| spec.name.clone()).collect();
            self.variables = self.lower_env(root, "env")?.into_iter().map(|(name, _)| name).collect();
            lint::collect_ids(root, &mut self.declared);
            self.lint_one_variable(root, &args);
            self.lint_unfilled_variables(root);
        }
        let steps = self.file_steps(root, &secrets)?;
        Ok(Workflow {
            file: self.source.path.clone(),
            source: self.source.digest,
            name: text("name"),
            description: text("description"),
            args,
            env: self.lower_env(root, "env")?,
            cwd: self.lower_cwd(root, "cwd")?,
            cost_limit: self.cost_limit(root),
            budget: self.lower_budget(root, budget::BudgetOwner::File, "Workflow ")?,
            changes: root.get_some("changes").map(|node| self.changes_mode(node, "Workflow ")).transpose()?,
            least_changes: None,
            concurrency: step::whole_milliseconds(root.get_some("concurrency")),
            secrets,
            triggers,
            notify,
            steps,
            children: BTreeMap::new(),
            components: BTreeMap::new(),
        })
    }

    /// True if the limit of warnings is reached.
    fn is_full(&self) -> bool {
        self.warnings.len() >= MAX_WARNINGS
    }

    fn warn(&mut self, code: &'static str, span: Span, message: impl Into<String>) {
        self.warnings.push(Diagnostic::warning(self.source, code, span, message));
    }

    fn reject_node<T>(&self, code: &'static str, node: &Node, message: impl Into<String>) -> Checked<T> {
        Err(Diagnostic::error(self.source, code, node.span, message))
    }

    fn reject_type<T>(&self, node: &Node, message: impl Into<String>) -> Checked<T> {
        self.reject_node(codes::FIELD_TYPE, node, message)
    }

    fn reject_with_help<T>(
        &self,
        code: &'static str,
        span: Span,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Checked<T> {
        Err(Diagnostic::error(self.source, code, span, message).with_help(help).into())
    }

    fn cost_limit(&mut self, root: &Node) -> Option<CostLimit> {
        let node = root.get("cost_limit")?;
        self.unknown_fields(node, fields::COST_FIELDS, "cost_limit");
        Some(CostLimit {
            max_usd: node.get("max_usd").map_or(f64::NAN, validate::js_number_of),
            stop: node.get("action").and_then(Node::as_text) == Some("stop"),
            allows_unpriced: node.get("unpriced").and_then(Node::as_text) == Some("allow"),
        })
    }
}
