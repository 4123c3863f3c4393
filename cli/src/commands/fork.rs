//! `lobster fork`

use std::path::PathBuf;

use lobster_runtime::json;
use lobster_runtime::model::cost::PaidCall;
use lobster_runtime::replay::{self, ForkPlan, ForkRequest};
use lobster_runtime::stage::Mode;
use serde_json::{Map, Value};

use crate::events;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::live;
use crate::prepare;
use crate::render::print_to_stderr;
use crate::render::{one_line, units};
use crate::stdout::print_line;
use crate::which;

/// Starts a new run that reuses the results of unchanged steps from an earlier run.
///
/// Prints the plan on stderr, then the result as `lobster resume` does. Before an effect is re-run, the
/// questions that led to it are asked again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster fork 3f9a1c2b --from categorize
  lobster fork 3f9a1c2b --set args.limit=20 --dry-run
  lobster fork 3f9a1c2b --edit fetch=mails.json
  lobster fork 3f9a1c2b --workflow triage.lobster")]
pub(crate) struct Args {
    /// The run: an id, @ (the last), @- (the one before) or NAME@- (the last of NAME).
    run: Option<String>,
    /// Re-runs this step although it is unchanged; may be repeated.
    #[arg(long, value_name = "STEP")]
    from: Vec<String>,
    /// Changes an argument. VALUE is read as JSON if it is JSON, otherwise as text.
    #[arg(long, value_name = "args.NAME=VALUE", value_parser = parse_assignment)]
    set: Vec<(String, Value)>,
    /// Uses the content of the file as the result of the step.
    #[arg(long, value_name = "STEP=FILE", value_parser = parse_edit)]
    edit: Vec<(String, PathBuf)>,
    /// Uses this version of the workflow file.
    #[arg(long, value_name = "FILE")]
    workflow: Option<PathBuf>,
    /// Reads nothing from the action cache.
    #[arg(long)]
    no_cache: bool,
    /// Prints what would run, without running it.
    #[arg(long)]
    dry_run: bool,
    /// Prints the plan as a JSON object; only with --dry-run.
    #[arg(long, requires = "dry_run")]
    json: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let mut edit = Vec::new();
    for (step, file) in &args.edit {
        edit.push((step.clone(), std::fs::read(file).map_err(CommandError::unreadable(file))?));
    }
    let reply = crate::reply::ResultPrinter::for_reader();
    let run = which::run_or_ask(&prepare::runtime(Mode::Tool)?.store()?, args.run.as_deref(), "fork")?;
    let request = ForkRequest {
        run: run.to_string(),
        from: args.from.clone(),
        set: args.set.iter().cloned().collect::<Map<_, _>>(),
        edit,
        workflow: args.workflow.clone(),
    };
    let mut runtime = prepare::runtime_of_run(reply.mode, None, |_| Some(run))?;
    if args.no_cache {
        runtime = runtime.without_cache();
    }
    let plan = replay::plan_fork(&runtime, &request)?;
    if args.json {
        print_line(&json::pretty(&plan));
        return Ok(Exit::OK);
    }
    for line in plan_lines(&plan) {
        print_to_stderr(&one_line(&line));
    }
    if args.dry_run {
        return Ok(Exit::OK);
    }
    events::start_writing(&runtime, None)?;
    live::expect_plan_of(&runtime.store()?, run);
    let result = replay::execute_fork(&runtime, &plan);
    reply.report_result(&runtime, result, false)
}

/// The plan in lines for a person.
fn plan_lines(plan: &ForkPlan) -> Vec<String> {
    let list = |steps: &[String]| if steps.is_empty() { "nothing".to_owned() } else { steps.join(", ") };
    let mut lines = vec![format!("reused      {}", list(&plan.reused))];
    if !plan.edited.is_empty() {
        lines.push(format!("edited      {}", list(&plan.edited)));
    }
    if !plan.asked.is_empty() {
        lines.push(format!("asked       {}", list(&plan.asked)));
    }
    lines.push(format!("re-run      {}", list(&plan.done)));
    if !plan.effects.is_empty() {
        lines.push(
            "            and steps that read results of these effects, if the results change".to_owned(),
        );
    }
    if plan.more {
        lines.push("            and steps that the earlier run did not reach".to_owned());
    }
    if let Some(error) = &plan.fails {
        lines.push(format!("fails       {}", one_line(error)));
    }
    for effect in &plan.effects {
        lines.push(format!("effect      {}: {}", effect.step, effect.action));
    }
    let calls: Vec<_> = plan.effects.iter().flat_map(|effect| &effect.calls).collect();
    if !calls.is_empty() {
        let usd: f64 = calls.iter().filter_map(|call| call.cost_usd).sum();
        let tokens =
            |count: fn(&PaidCall) -> u64| units::format_count(calls.iter().map(|call| count(call)).sum());
        let unpriced = calls.iter().filter(|call| call.cost_usd.is_none()).count();
        let unpriced = if unpriced == 0 { String::new() } else { format!(", {unpriced} of unknown price") };
        lines.push(format!(
            "may cost    ${usd:.4}, as before: {} of models, {} tokens in, {} out{unpriced}",
            units::count_noun(calls.len() as u64, "call"),
            tokens(|call| call.input_tokens),
            tokens(|call| call.output_tokens),
        ));
    }
    if let Some(budget) = &plan.budget {
        if !budget.limits.is_empty() {
            let limits = budget.limits.display_text();
            lines.push(format!(
                "budget      {limits}, of which nothing is used: reused results are not counted again"
            ));
        }
        if !budget.day.is_empty() {
            lines.push(format!(
                "            {} for all runs of the file today (UTC)",
                budget.day.display_text()
            ));
        }
    }
    lines
}

/// Parses `args.limit=20`.
fn parse_assignment(text: &str) -> Result<(String, Value), String> {
    let wrong = || format!("{text:?} is not args.NAME=VALUE");
    let (name, value) = text.strip_prefix("args.").and_then(|rest| rest.split_once('=')).ok_or_else(wrong)?;
    if name.is_empty() {
        return Err(wrong());
    }
    Ok((name.to_owned(), json::parse(value).unwrap_or_else(|_| Value::from(value))))
}

/// Parses `fetch=mails.json`.
fn parse_edit(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((step, file)) if !step.is_empty() && !file.is_empty() => Ok((step.to_owned(), file.into())),
        _ => Err(format!("{text:?} is not STEP=FILE")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_json_or_text() {
        assert_eq!(parse_assignment("args.n=20"), Ok(("n".into(), json!(20))));
        assert_eq!(parse_assignment("args.who=you=me"), Ok(("who".into(), json!("you=me"))));
        assert!(["n=1", "args.=1", "args.n"].iter().all(|text| parse_assignment(text).is_err()));
        assert_eq!(parse_edit("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(["a", "=b", "a="].iter().all(|text| parse_edit(text).is_err()));
    }
}
