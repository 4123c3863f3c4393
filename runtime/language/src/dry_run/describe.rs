//! Lines of the plan.

use std::fmt::Write;

use super::super::plan::{Approval, Grants, OnError, Retry, SecretGrant, Stdin, Step, Wait, Work, Workflow};
use super::super::template::{self, Reference};
use super::commands::{Nest, PipelinePosition};
use super::{Expectation, PlanError, Planner};
use lobster_base::credential::CredentialGrant;
use lobster_base::json;

const DEPENDS: &str = "  [contains step output refs — unknown at plan time]";
const UNKNOWN: &str = "  [output unknown at plan time]";
const DEFERRED: &str = "[command validation deferred — stage name depends on step output]";
const SKIPPED: &str = "[skipped — condition: false]";

/// Adds one line of the plan. A text in it may have several lines.
macro_rules! line {
    ($out:expr, $($arg:tt)*) => { $out.push(format!($($arg)*)) };
}

/// Contents of a sub-workflow on one line.
pub(super) fn summarize_contents(child: &Workflow) -> String {
    fn count_steps<'s>(steps: impl IntoIterator<Item = &'s Step>, gates: &mut usize) -> usize {
        let mut total = 0;
        for step in steps {
            total += 1;
            *gates += usize::from(step.approval.is_some() || matches!(step.work, Work::Input(_)));
            total += count_steps(step.work.inner_steps(), gates);
        }
        total
    }
    let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
    let mut gates = 0;
    let steps = count_steps(&child.steps, &mut gates);
    match gates {
        0 => format!("contains: {}", plural(steps, "step")),
        gates => format!("contains: {}, {}", plural(steps, "step"), plural(gates, "question")),
    }
}

impl Planner<'_> {
    pub(super) fn top_step(
        &mut self,
        number: usize,
        step: &Step,
        out: &mut Vec<String>,
    ) -> Result<(), PlanError> {
        let skipped_need = self.skipped_need(step);
        let runs = if skipped_need.is_some() { Some(false) } else { self.will_run(step)? };
        if runs == Some(false) {
            match skipped_need {
                Some(need) => {
                    line!(out, "  {number}. {}  [skipped — it needs {need}, which is skipped]", step.id)
                }
                None => line!(out, "  {number}. {}  {SKIPPED}", step.id),
            }
            self.mark_visited(step, runs);
            return Ok(());
        }
        line!(out, "  {number}. {}  [{}]{}", step.id, kind_name(&step.work), runs_if(step, runs));
        if let Some(needs) = step.needs.as_ref().filter(|needs| !needs.is_empty()) {
            line!(out, "     needs: {}", needs.join(", "));
        }
        self.write_details(step, out)?;
        self.mark_visited(step, runs);
        Ok(())
    }

    fn write_details(&mut self, step: &Step, out: &mut Vec<String>) -> Result<(), PlanError> {
        let indent = "     ";
        match &step.work {
            Work::Nothing => {}
            Work::Parallel { wait, timeout_ms, branches } => {
                line!(out, "{indent}wait: {}", if *wait == Wait::Any { "any" } else { "all" });
                if let Some(timeout) = timeout_ms {
                    line!(out, "{indent}timeout: {timeout}ms");
                }
                self.write_branches(&step.id, branches, indent, out)?;
            }
            Work::ForEach { over, item_var, index_var, batch_size, pause_ms, concurrency, steps } => {
                line!(
                    out,
                    "{indent}for_each: {}{}",
                    self.fill_known(over),
                    self.deciding_note(step, "for_each", over)?
                );
                line!(out, "{indent}item_var: {item_var}, index_var: {index_var}");
                if *batch_size > 1 {
                    line!(out, "{indent}batch_size: {batch_size}");
                }
                if let Some(pause) = pause_ms {
                    line!(out, "{indent}pause_ms: {pause}");
                }
                if let Some(concurrency) = concurrency {
                    line!(out, "{indent}concurrency: {concurrency}");
                }
                line!(out, "{indent}sub-steps: {}", steps.len());
                self.sub_steps(&step.id, &[item_var, index_var], steps, "       ", out)?;
            }
            Work::Repeat { index_var, steps, .. } => {
                line!(out, "{indent}{}", repeat_line(&step.work));
                line!(out, "{indent}index_var: {index_var}");
                line!(out, "{indent}sub-steps: {}", steps.len());
                self.sub_steps(&step.id, &[index_var], steps, "       ", out)?;
            }
            Work::Switch { on, .. } => {
                line!(
                    out,
                    "{indent}switch: {}{}",
                    self.fill_known(on),
                    self.deciding_note(step, "switch", on)?
                );
                self.write_cases(step, indent, out)?;
            }
            Work::Input(input) => {
                line!(out, "{indent}prompt: {}", input.prompt);
                line!(out, "{indent}[input required]");
                return Ok(());
            }
            work => {
                let place = PipelinePosition { id: &step.id, nest: None };
                line!(out, "{indent}{}", self.work_line(work));
                self.work_notes(step, place, indent, out)?;
            }
        }
        self.write_settings(step, indent, out)
    }

    /// Line of a step that is not a container: `run: echo hi`.
    fn work_line(&self, work: &Work) -> String {
        let with_note = |key: &str, text: &str| {
            let shown = self.fill_known(text);
            let note = if self.depends_on_later_results(&shown) { DEPENDS } else { "" };
            format!("{key}: {shown}{note}")
        };
        match work {
            Work::Shell(text) => with_note("run", text),
            Work::Pipeline(text) => with_note("pipeline", text),
            Work::Workflow { path, .. } => with_note("workflow", path),
            Work::Component { component, .. } => with_note("component", component),
            Work::Js(text) => format!("js: {text}"),
            Work::Mcp { server, tool, .. } => format!("mcp: {server} {tool}"),
            Work::Exec(argv) => {
                let words: Vec<_> = argv.iter().map(|word| quote_word(&self.fill_known(word))).collect();
                format!("exec: {}", words.join(" "))
            }
            Work::Input(input) => format!("prompt: {}", input.prompt),
            Work::Wait(wait) => with_note("wait", &wait.display_text()),
            Work::Switch { on, .. } => format!("switch: {on}"),
            Work::Nothing | Work::Parallel { .. } | Work::ForEach { .. } | Work::Repeat { .. } => {
                String::new()
            }
        }
    }

    /// Checks the work and adds notes about it.
    fn work_notes(
        &self,
        step: &Step,
        place: PipelinePosition<'_>,
        indent: &str,
        out: &mut Vec<String>,
    ) -> Result<(), PlanError> {
        match &step.work {
            Work::Pipeline(text) => {
                if self.check_pipeline(place, &self.fill_known(text))? {
                    line!(out, "{indent}{DEFERRED}");
                }
            }
            Work::Workflow { path, args } => {
                if !args.is_empty() {
                    let names: Vec<&str> = args.keys().map(String::as_str).collect();
                    line!(out, "{indent}args: {}", names.join(", "));
                }
                line!(out, "{indent}{}", self.plan_child(step, path, args)?);
            }
            Work::Component { args, .. } | Work::Mcp { args, .. } if !args.is_empty() => {
                line!(out, "{indent}args: {}", json::compact(args));
            }
            Work::Nothing
            | Work::Shell(_)
            | Work::Exec(_)
            | Work::Component { .. }
            | Work::Js(_)
            | Work::Mcp { .. }
            | Work::Parallel { .. }
            | Work::ForEach { .. }
            | Work::Repeat { .. }
            | Work::Switch { .. }
            | Work::Input(_)
            | Work::Wait(_) => {}
        }
        Ok(())
    }

    /// Note about a reference to a step's output.
    fn note_of(&self, reference: &Reference) -> &'static str {
        if self.ended.contains(&reference.id) { "" } else { UNKNOWN }
    }

    /// Note about the text of a field on which the further course of a step depends.
    fn deciding_note(&self, step: &Step, field: &str, text: &str) -> Result<&'static str, PlanError> {
        Ok(match self.only_reference(text, &format!("Workflow step {} {field}", step.id))? {
            Some(reference) => self.note_of(&reference),
            None if self.depends_on_later_results(&template::fill_args(text, self.args)) => DEPENDS,
            None => "",
        })
    }

    /// Cases of a switch; only the chosen one, if arguments alone decide it.
    fn write_cases(&mut self, step: &Step, indent: &str, out: &mut Vec<String>) -> Result<(), PlanError> {
        let Work::Switch { on, cases, default } = &step.work else { return Ok(()) };
        let value = self.fill_known(on);
        let is_known = template::is_constant(&value);
        let taken = cases.iter().position(|case| case.value == value).filter(|_| is_known);
        for (index, case) in cases.iter().enumerate() {
            let skipped = is_known && taken != Some(index);
            self.write_case(&format!("case {}", case.value), &case.steps, skipped, (step, indent), out)?;
        }
        if let Some(steps) = default {
            self.write_case("default", steps, taken.is_some(), (step, indent), out)?;
        }
        Ok(())
    }

    fn write_case(
        &mut self,
        name: &str,
        steps: &[Step],
        skipped: bool,
        (of, indent): (&Step, &str),
        out: &mut Vec<String>,
    ) -> Result<(), PlanError> {
        match (skipped, steps.is_empty()) {
            (true, _) => line!(out, "{indent}{name}:  [skipped]"),
            (false, true) => line!(out, "{indent}{name}:  [nothing to do]"),
            (false, false) => {
                line!(out, "{indent}{name}:");
                self.sub_steps(&of.id, &[], steps, &format!("{indent}  "), out)?;
            }
        }
        Ok(())
    }

    /// Fields of a step besides its work.
    fn write_settings(&self, step: &Step, indent: &str, out: &mut Vec<String>) -> Result<(), PlanError> {
        if let Stdin::Text(text) = &step.stdin {
            let shown = self.fill_known(text);
            if let Some(reference) = self.only_reference(text, &format!("Workflow step {} stdin", step.id))? {
                line!(out, "{indent}stdin: {shown}{}", self.note_of(&reference));
            } else if self.depends_on_results(&shown) {
                let note = if self.depends_on_later_results(&shown) { DEPENDS } else { "" };
                line!(out, "{indent}stdin: {shown}{note}");
            }
        }
        if let Some(timeout) = step.timeout_ms {
            line!(out, "{indent}timeout: {timeout}ms");
        }
        match step.on_error {
            OnError::Stop => {}
            OnError::Continue => {
                line!(out, "{indent}on_error: continue");
            }
            OnError::SkipRest => {
                line!(out, "{indent}on_error: skip_rest");
            }
        }
        if let Some(retry) = step.retry.as_ref().filter(|retry| retry.max > 1) {
            line!(out, "{indent}{}", retry_line(retry));
        }
        if let Some(undo) = &step.extras.undo {
            line!(out, "{indent}undo: {}", self.branch_text(undo));
        }
        if let Some(grants) = &step.extras.grants {
            line!(out, "{indent}grants: {}", grants_line(grants));
        }
        if !step.extras.secrets.is_empty() {
            let secrets = step.extras.secrets.iter().map(|grant| match grant {
                SecretGrant { secret, variable } if secret == variable => secret.clone(),
                SecretGrant { secret, variable } => format!("{secret} as {variable}"),
            });
            line!(out, "{indent}secrets: {}", secrets.collect::<Vec<_>>().join(", "));
        }
        if !step.extras.credentials.is_empty() {
            let of = |grant: &CredentialGrant| format!("{} for {}", grant.secret, grant.host);
            let credentials: Vec<_> = step.extras.credentials.iter().map(of).collect();
            line!(out, "{indent}credentials: {}", credentials.join(", "));
        }
        if let Some(approval) = &step.approval {
            line!(out, "{indent}{}", approval_line(approval));
        }
        Ok(())
    }

    fn write_branches(
        &mut self,
        id: &str,
        branches: &[Step],
        indent: &str,
        out: &mut Vec<String>,
    ) -> Result<(), PlanError> {
        for branch in branches {
            let runs = self.will_run(branch)?;
            if runs == Some(false) {
                line!(out, "{indent}branch {}: {SKIPPED}", branch.id);
                continue;
            }
            let text = self.branch_text(branch);
            line!(out, "{indent}branch {}: {text}{}", branch.id, runs_if(branch, runs));
            let place = PipelinePosition { id, nest: Some(Nest::Branch(&branch.id)) };
            self.write_inner_lines(branch, place, &format!("{indent}  "), out)?;
        }
        Ok(())
    }

    /// `[shell] echo hi`: branches are described without the name of the field.
    fn branch_text(&self, branch: &Step) -> String {
        let told = self.work_line(&branch.work);
        let text = told.split_once(": ").map_or("", |(_, text)| text);
        let text = text.strip_suffix(DEPENDS).unwrap_or(text);
        match kind_name(&branch.work) {
            kind if text.is_empty() => format!("[{kind}]"),
            kind => format!("[{kind}] {text}"),
        }
    }

    fn sub_steps(
        &mut self,
        id: &str,
        variables: &[&String],
        steps: &[Step],
        indent: &str,
        out: &mut Vec<String>,
    ) -> Result<(), PlanError> {
        let outside = self.known.clone();
        self.known.extend(variables.iter().map(|name| ((*name).clone(), Expectation::Variable)));
        for (index, step) in steps.iter().enumerate() {
            let runs = self.will_run(step)?;
            let number = index + 1;
            if runs == Some(false) {
                line!(out, "{indent}{number}. {}  {SKIPPED}", step.id);
            } else {
                let told = self.work_line(&step.work);
                let told = told.strip_suffix(DEPENDS).unwrap_or(&told);
                let blank = if told.is_empty() { "" } else { " " };
                let kind = kind_name(&step.work);
                line!(out, "{indent}{number}. {}  [{kind}]{blank}{told}{}", step.id, runs_if(step, runs));
                let place = PipelinePosition { id, nest: Some(Nest::SubStep(&step.id)) };
                self.write_inner_lines(step, place, &format!("{indent}   "), out)?;
            }
            self.mark_visited(step, runs);
        }
        self.known = outside;
        Ok(())
    }

    /// Lines below the line of a branch or sub-step.
    fn write_inner_lines(
        &mut self,
        step: &Step,
        place: PipelinePosition<'_>,
        indent: &str,
        out: &mut Vec<String>,
    ) -> Result<(), PlanError> {
        match &step.work {
            Work::Parallel { branches, .. } => self.write_branches(&step.id, branches, indent, out)?,
            Work::ForEach { over, item_var, index_var, steps, .. } => {
                line!(
                    out,
                    "{indent}for_each: {}{}",
                    self.fill_known(over),
                    self.deciding_note(step, "for_each", over)?
                );
                self.sub_steps(&step.id, &[item_var, index_var], steps, indent, out)?;
            }
            Work::Repeat { index_var, steps, .. } => {
                line!(out, "{indent}{}", repeat_line(&step.work));
                self.sub_steps(&step.id, &[index_var], steps, indent, out)?;
            }
            Work::Switch { .. } => self.write_cases(step, indent, out)?,
            Work::Nothing
            | Work::Shell(_)
            | Work::Exec(_)
            | Work::Pipeline(_)
            | Work::Workflow { .. }
            | Work::Component { .. }
            | Work::Js(_)
            | Work::Mcp { .. }
            | Work::Input(_)
            | Work::Wait(_) => self.work_notes(step, place, indent, out)?,
        }
        if matches!(step.work, Work::Input(_)) {
            line!(out, "{indent}[input required]");
        }
        self.write_settings(step, indent, out)
    }
}

fn kind_name(work: &Work) -> &'static str {
    match work {
        Work::Nothing => "no-op",
        Work::Shell(_) => "shell",
        Work::Exec(_) => "exec",
        Work::Pipeline(_) => "pipeline",
        Work::Workflow { .. } => "workflow",
        Work::Component { .. } => "component",
        Work::Js(_) => "js",
        Work::Mcp { .. } => "mcp",
        Work::Parallel { .. } => "parallel",
        Work::ForEach { .. } => "for_each",
        Work::Repeat { .. } => "repeat",
        Work::Switch { .. } => "switch",
        Work::Input(_) => "input",
        Work::Wait(_) => "wait",
    }
}

/// `repeat: until $probe.json.ready == true, every 5s, at most 60 rounds`.
fn repeat_line(work: &Work) -> String {
    let Work::Repeat { until, every, max, .. } = work else { return String::new() };
    let every = every.as_ref().map(|every| format!(", every {every}")).unwrap_or_default();
    format!("repeat: until {}{every}, at most {max} rounds", until.source_text())
}

fn runs_if(step: &Step, runs: Option<bool>) -> String {
    match runs {
        None if step.when.is_always() => "  [skipped if what it needs is]".to_owned(),
        None => format!("  [runs if: {} — else skipped]", step.when.source_text()),
        Some(_) => String::new(),
    }
}

fn retry_line(retry: &Retry) -> String {
    let backoff = if retry.exponential { "exponential" } else { "fixed" };
    let jitter = if retry.jitter { ", jitter" } else { "" };
    format!(
        "retry: up to {} attempts, {backoff} backoff (base: {}ms{jitter})",
        retry.max,
        json::float_text(retry.delay_ms)
    )
}

fn approval_line(approval: &Approval) -> String {
    let mut said = "[approval required]".to_owned();
    if let Some(approver) = &approval.required_approver {
        let _ = write!(said, "  by {approver}");
    }
    said
}

fn grants_line(grants: &Grants) -> String {
    let directories = |word: &str, list: &[super::super::plan::DirGrant]| {
        list.iter().map(|grant| format!("{word} {}", grant.from)).collect::<Vec<_>>()
    };
    let mut parts = directories("read", &grants.read);
    parts.extend(directories("write", &grants.write));
    parts.extend(grants.env.iter().map(|name| format!("env {name}")));
    parts.extend(grants.net.iter().map(|host| format!("net {host}")));
    parts.extend(grants.clock.then(|| "clock".to_owned()));
    parts.extend(grants.random.then(|| "random".to_owned()));
    if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") }
}

/// A word in a form that separates it from the words around it.
fn quote_word(word: &str) -> String {
    let plain =
        !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '\\'));
    if plain { word.to_owned() } else { json::compact(&word) }
}
