//! `lobster run`, and all words that are no other command.

use std::path::{Path, PathBuf};

use lobster_runtime::code::Code;
use lobster_runtime::envelope::{Envelope, Failure, FailureKind};
use lobster_runtime::language::plan::{ChangesMode, Plan};
use lobster_runtime::language::source::has_workflow_extension;
use lobster_runtime::runtime::{
    Planned, PolicySources, RunRequest, Runtime, Target, WorkflowFileError, tidy_path, workflow_file,
};
use lobster_runtime::stage::Mode;
use serde_json::{Value, json};

use super::run_hints;
use crate::events;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::live;
use crate::logging;
use crate::option_values;
use crate::prepare;
use crate::render::print_to_stderr;
use crate::reply::ResultPrinter;
use crate::which;

/// Runs a workflow file or a pipeline.
///
/// A single word that ends in .lobster, .yaml, .yml or .json names a workflow file. Anything else is the text
/// of a pipeline. The word `run` is optional.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster run inbox-triage.lobster --args-json '{\"folder\":\"inbox\"}'
  lobster run --mode tool \"exec --json --shell 'inbox list --json' | where unread=true | approve --prompt 'Archive?'\"
  lobster \"exec --shell 'ls -1' | head --n 3 | json\"")]
pub(crate) struct Args {
    /// `human` (default) prints for people; `tool` prints one JSON envelope on stdout, for programs.
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// The workflow file, under any name.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// The arguments of the workflow as a JSON object; `-` reads it from stdin.
    #[arg(long, value_name = "JSON")]
    args_json: Option<String>,
    /// One argument of the workflow; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    arg: Vec<String>,
    /// A policy for native commands. It can make `LOBSTER_POLICY` stricter, never looser.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Runs this command for each new question, which it gets as JSON on stdin (`LOBSTER_NOTIFY`).
    #[arg(long, value_name = "COMMAND")]
    notify: Option<String>,
    /// Writes each event of the run as one line of JSON: `jsonl` to stderr, `jsonl:FILE` appended to a file
    /// (`LOBSTER_EVENTS`).
    #[arg(long, value_name = "FORMAT[:FILE]")]
    events: Option<String>,
    /// Prints what would run, without running it.
    #[arg(long)]
    dry_run: bool,
    /// Commits a step's changes to files together if the step succeeds, like `changes: staged`. `lobster
    /// undo` reverts them.
    #[arg(long)]
    staged: bool,
    /// Like `--staged`, but shows the diff of consecutive steps and asks first, like `changes: review`.
    #[arg(long)]
    review: bool,
    /// Runs the steps on top of each other's changes and commits nothing. Ends before a step with other
    /// effects.
    #[arg(long)]
    preview: bool,
    /// Runs every step, even if its result is cached. Results are still added to the cache
    /// (`LOBSTER_NO_CACHE`).
    #[arg(long)]
    no_cache: bool,
    /// The text of a pipeline; `-` reads it from stdin.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["file", "words"])]
    pipeline: Option<String>,
    /// A workflow file, or the words of a pipeline.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// The parsed words of `run`.
#[derive(Debug, Default, PartialEq)]
struct Words {
    mode: Option<String>,
    file: Option<String>,
    args_json: Option<String>,
    args: Vec<String>,
    policy: Option<String>,
    pipeline: Option<String>,
    notify: Option<String>,
    events: Option<String>,
    log: logging::Options,
    no_cache: bool,
    staged: bool,
    review: bool,
    preview: bool,
    dry_run: bool,
    /// `--dry-run` after a word: an option of `run` only if the word is a file.
    late_dry_run: bool,
    rest: Vec<String>,
}

/// Takes lobster's options out of the words, like the incumbent, but only up to the name of a pipeline
/// command: after it they belong to that command.
fn scan_words(words: &[String], is_stage: impl Fn(&str) -> bool) -> Result<Words, CommandError> {
    let mut out = Words::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        // In `lobster openclaw.invoke … --args-json X` the option belongs to the command.
        let in_stage = out.rest.first().is_some_and(|first| is_stage(first));
        let mut takes =
            |name: &str, into: &mut Option<String>| option_values::take_value(name, word, &mut words, into);
        if takes("--mode", &mut out.mode)? {
            continue;
        }
        if in_stage {
            out.rest.push(word.clone());
            continue;
        }
        if takes("--file", &mut out.file)?
            || takes("--args-json", &mut out.args_json)?
            || takes("--policy", &mut out.policy)?
            || takes("--pipeline", &mut out.pipeline)?
            || takes("--notify", &mut out.notify)?
            || takes("--events", &mut out.events)?
            || takes("--log", &mut out.log.log)?
            || takes("--log-format", &mut out.log.log_format)?
        {
            continue;
        }
        if let Some(arg) = option_values::match_option("--arg", word, &mut words)? {
            out.args.push(arg);
            continue;
        }
        match word.as_str() {
            "--staged" => out.staged = true,
            "--review" => out.review = true,
            "--preview" => out.preview = true,
            "--no-cache" => out.no_cache = true,
            "--dry-run" if out.rest.is_empty() => out.dry_run = true,
            "--dry-run" => out.late_dry_run = true,
            _ => out.rest.push(word.clone()),
        }
    }
    // Like the incumbent, ignores an empty file name and empty arguments.
    out.file = out.file.filter(|file| !file.is_empty());
    out.args_json = out.args_json.filter(|args| !args.is_empty());
    Ok(out)
}

/// True if the words begin like a command that answers a gate.
pub(crate) fn answers_gates(words: &[String]) -> bool {
    let mut words = words.iter().map(String::as_str);
    let task = words
        .next()
        .filter(|first| ["approvals", "gates"].contains(first))
        .and_then(|_| words.find(|word| !word.starts_with('-')));
    matches!(task, Some("approve" | "reject" | "answer"))
}

/// Reports words that could not become a request, in the form that fits them.
pub(crate) fn report_refusal(words: &[String], error: CommandError) -> CommandResult {
    let asks_for = |mode: &str| {
        words.windows(2).any(|pair| pair[0] == "--mode" && pair[1] == mode)
            || words.iter().any(|word| word.strip_prefix("--mode=") == Some(mode))
    };
    let first = words.first().map(String::as_str);
    // These commands print an envelope to a program without `--mode tool`.
    let tells_reader = matches!(first, Some("resume" | "fork" | "doctor")) || answers_gates(words);
    let in_tool_mode = asks_for("tool")
        || words == ["doctor"]
        || (tells_reader && !asks_for("human") && ResultPrinter::for_reader().mode == Mode::Tool);
    if !in_tool_mode {
        return Err(error);
    }
    let mut failure = Failure::from(error);
    if first == Some("doctor") && failure.kind == FailureKind::Runtime {
        failure.kind = FailureKind::Doctor;
    }
    ResultPrinter::new(Mode::Tool).report_failure(&failure)
}

pub(crate) fn run(words: &[String]) -> CommandResult {
    let registry = lobster_runtime::stages::builtin();
    let words = match scan_words(words, |name| registry.get(name).is_some()) {
        Ok(words) => words,
        Err(error) => return report_refusal(words, error),
    };
    let mode = match words.mode.as_deref() {
        Some("tool") => Mode::Tool,
        None | Some("" | "human") => Mode::Human,
        Some(other) => {
            return Err(CommandError::usage(format!("--mode must be human or tool, not {other:?}")));
        }
    };
    let reply = ResultPrinter::new(mode);
    let names_nothing = words.file.is_none() && words.pipeline.is_none() && words.rest.is_empty();
    let words = match mode {
        Mode::Human if names_nothing && which::can_ask() => {
            Words { file: Some(which::pick_file("run")?.display().to_string()), ..words }
        }
        _ => words,
    };
    let request = build_request(&words);
    let place = match &request {
        Ok(RunRequest { target: Target::File(file), .. }) => file.parent().unwrap_or(Path::new(".")),
        _ => Path::new("."),
    };
    let policies = PolicySources { place: Some(place), run: words.policy.as_deref().map(Path::new) };
    let ready = logging::start(&words.log, None)
        .and_then(|()| prepare::runtime_telling(mode, &policies, words.notify.as_deref()));
    let runtime = match ready {
        Ok(runtime) if words.no_cache => runtime.without_cache(),
        Ok(runtime) => runtime,
        Err(error) if mode == Mode::Tool => return reply.report_failure(&error.into()),
        Err(error) => return Err(error),
    };
    let request = match request {
        Ok(request) => request,
        Err(failure) => return refuse_with_hint(&reply, &failure, &words.rest),
    };
    let planned = runtime.plan_run(&request).and_then(|planned| {
        planned.refuse_undeclared(words.args.iter().filter_map(|given| given.split('=').next()))?;
        let is_text = |name: &str| words.args.iter().any(|arg| arg.split('=').next() == Some(name));
        runtime.tell_reread(&planned, &request, is_text);
        let asked = [
            (words.preview, ChangesMode::Preview),
            (words.review, ChangesMode::Review),
            (words.staged, ChangesMode::Staged),
        ];
        match asked.into_iter().find(|(is_asked, _)| *is_asked) {
            Some((_, mode)) => keeping_apart(planned, mode),
            None => Ok(planned),
        }
    });
    match planned {
        Ok(planned) if words.dry_run || words.late_dry_run => dry_run(&runtime, &planned, &reply),
        Ok(planned) => {
            if let Err(error) = events::start_writing(&runtime, words.events.as_deref()) {
                return reply.report_failure(&error.into());
            }
            live::announce_plan(&planned.plan);
            let result = runtime.run_planned(&planned);
            let previewed = result.run.filter(|_| words.preview);
            let exit = reply.report_result(&runtime, result, matches!(request.target, Target::Pipeline(_)));
            if let Some(run) = previewed {
                super::changes::tell_preview(&runtime, run);
            }
            exit
        }
        Err(failure) if matches!(request.target, Target::Pipeline(_)) => {
            refuse_with_hint(&reply, &failure, &words.rest)
        }
        Err(failure) => reply.report_failure(&failure),
    }
}

/// Reports words that cannot run, with a suggestion for people.
fn refuse_with_hint(reply: &ResultPrinter, failure: &Failure, words: &[String]) -> CommandResult {
    let exit = reply.report_failure(failure);
    if reply.mode == Mode::Human
        && let Some(hint) = run_hints::command_like(words)
    {
        print_to_stderr(&hint);
    }
    exit
}

/// The same plan with file changes of its steps collected at least as strictly as `mode`.
fn keeping_apart(mut planned: Planned, mode: ChangesMode) -> Result<Planned, Failure> {
    match &mut planned.plan {
        Plan::Workflow(workflow) => workflow.least_changes = Some(mode),
        Plan::Pipeline(_) => {
            return Err(Failure::parse_error(format!(
                "--{} needs a workflow file: a step with `pipeline:` and `changes: {}` runs a pipeline",
                mode.name(),
                mode.min(ChangesMode::Review).name()
            )));
        }
    }
    Ok(planned)
}

fn build_request(words: &Words) -> Result<RunRequest, Failure> {
    if let Some(text) = &words.pipeline {
        if words.file.is_some() || !words.rest.is_empty() {
            return Err(Failure::parse_error("run accepts either --pipeline or a file or words, not both"));
        }
        return Ok(RunRequest {
            target: Target::Pipeline(prepare::or_stdin(text, "run --pipeline")?),
            args: None,
        });
    }
    if words.file.is_none() {
        run_hints::refuse_words(&words.rest)?;
    }
    let positional = match words.rest.as_slice() {
        [only] if words.file.is_none() && !only.contains('|') => match workflow_file(Path::new(only)) {
            Ok(()) => Some(only),
            // Several words form a pipeline that ends in the name of a file.
            Err(WorkflowFileError::Missing(path))
                if has_workflow_extension(&path) && !only.contains(char::is_whitespace) =>
            {
                return Err(Failure::new(
                    Code::UnknownCommand,
                    format!("Unknown command: {only} (and there is no such file)"),
                ));
            }
            Err(_) => None,
        },
        _ => None,
    };
    if let Some(file) = &words.file {
        let path = std::env::current_dir().unwrap_or_default().join(file);
        workflow_file(&tidy_path(&path)).map_err(|error| Failure::parse_error(error.to_string()))?;
    }
    let target = match words.file.as_ref().or(positional) {
        Some(file) => Target::File(PathBuf::from(file)),
        None => return Ok(RunRequest { target: Target::Pipeline(words.rest.join(" ")), args: None }),
    };
    let mut args = match &words.args_json {
        None => Value::Null,
        Some(text) => prepare::json_option(text, "run --args-json")?,
    };
    if !args.is_null() && !args.is_object() {
        return Err(Failure::parse_error(
            "run --args-json must be a JSON object, as in '{\"name\":\"value\"}'",
        ));
    }
    for arg in &words.args {
        let (name, value) = arg
            .split_once('=')
            .ok_or_else(|| Failure::parse_error(format!("run --arg must be NAME=VALUE, not {arg:?}")))?;
        if args.is_null() {
            args = json!({});
        }
        args[name] = json!(value);
    }
    Ok(RunRequest { target, args: Some(args).filter(|args| !args.is_null()) })
}

fn dry_run(runtime: &Runtime, planned: &Planned, reply: &ResultPrinter) -> CommandResult {
    match runtime.describe_plan(planned) {
        Ok(plan) => {
            print_to_stderr(plan.strip_suffix('\n').unwrap_or(&plan));
            match reply.mode {
                Mode::Tool => {
                    reply.print_envelope(&Envelope::Done(lobster_runtime::engine::RunOutput::empty()))
                }
                Mode::Human => Ok(Exit::OK),
            }
        }
        Err(failure) => reply.report_failure(&failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan_all(words: &[&str]) -> Result<Words, String> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        scan_words(&words, |name| name == "openclaw.invoke").map_err(|error| error.message)
    }

    fn scanned_words(words: &[&str]) -> Words {
        scan_all(words).unwrap()
    }

    #[test]
    fn options_are_ours_until_a_command_begins() {
        let words = scanned_words(&["--file=a.yaml", "--args-json", "{}", "x", "--mode=human"]);
        assert_eq!(
            (words.file.as_deref(), words.mode.as_deref(), words.args_json.as_deref()),
            (Some("a.yaml"), Some("human"), Some("{}"))
        );
        assert_eq!(words.rest, ["x"]);
        let words = scanned_words(&[
            "openclaw.invoke",
            "--args-json",
            "{}",
            "--file",
            "f",
            "--dry-run",
            "--mode",
            "tool",
        ]);
        assert_eq!(words.rest, ["openclaw.invoke", "--args-json", "{}", "--file", "f", "--dry-run"]);
        assert_eq!(words.mode.as_deref(), Some("tool"));
        assert!(!words.dry_run && !words.late_dry_run);
        let words = scanned_words(&["flow.lobster", "--review"]);
        assert!(words.review && !words.staged && words.rest == ["flow.lobster"]);
    }

    #[test]
    fn a_dry_run_may_come_last() {
        assert!(scanned_words(&["flow.lobster", "--dry-run"]).late_dry_run);
        assert!(scanned_words(&["--dry-run", "flow.lobster"]).dry_run);
        assert!(scanned_words(&["exec echo hi", "--dry-run"]).late_dry_run);
    }

    #[test]
    fn a_run_without_cache_may_be_asked_for_anywhere_before_a_command() {
        for words in [["--no-cache", "flow.lobster"], ["flow.lobster", "--no-cache"]] {
            let words = scanned_words(&words);
            assert!(words.no_cache && words.rest == ["flow.lobster"]);
        }
        let words = scanned_words(&["openclaw.invoke", "--no-cache"]);
        assert!(!words.no_cache && words.rest == ["openclaw.invoke", "--no-cache"]);
    }

    #[test]
    fn a_value_that_is_missing_or_given_twice_is_an_error() {
        for name in
            ["--mode", "--file", "--args-json", "--policy", "--pipeline", "--notify", "--events", "--log"]
        {
            let missing = Err(format!("{name} needs a value"));
            assert_eq!(scan_all(&["flow.lobster", name]), missing);
            // The next word is an option, whose own value would otherwise be ignored.
            assert_eq!(scan_all(&[name, "--policy=strict.toml", "flow.lobster"]), missing);
            assert_eq!(scan_all(&[name, "a", &format!("{name}=b")]), Err(format!("{name} is given twice")));
        }
        assert_eq!(scanned_words(&["--arg", "a=1", "--arg=b=--2"]).args, ["a=1", "b=--2"]);
        assert_eq!(scan_all(&["flow.lobster", "--arg"]), Err("--arg needs a value".to_owned()));
        assert_eq!(scanned_words(&["--file="]), Words::default());
    }
}
