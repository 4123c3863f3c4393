//! `lobster run`, and everything that is no other command.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use lobster_runtime::envelope::{Envelope, Failure, FailureKind};
use lobster_runtime::json;
use lobster_runtime::language::source::has_workflow_extension;
use lobster_runtime::runtime::{
    Planned, PolicySources, RunRequest, RunResult, Runtime, Target, WorkflowFileError, tidied, workflow_file,
};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{Gate, GateFilter, GateKind, GateStatus, RunId};
use serde_json::{Value, json};

use super::run_hints;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::logging;
use crate::render::harmless;
use crate::terminal::{self, Left};

/// Runs a workflow file or a pipeline.
///
/// A single word that names a workflow file (.lobster, .yaml, .yml, .json) is
/// run as one; anything else is pipeline text. `run` itself may be left out.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster run inbox-triage.lobster --args-json '{\"folder\":\"inbox\"}'
  lobster run --mode tool \"exec --json --shell 'inbox list --json' | where unread=true | approve --prompt 'Archive?'\"
  lobster \"exec --shell 'ls -1' | head --n 3 | json\"")]
pub(crate) struct Args {
    /// `tool` answers with one JSON envelope on stdout; `human` (default) is for a terminal.
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// The workflow file, whatever its words look like.
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Arguments of the workflow, a JSON object; `-` reads it from stdin.
    #[arg(long, value_name = "JSON")]
    args_json: Option<String>,
    /// One argument of the workflow; repeat it for more.
    #[arg(long, value_name = "NAME=VALUE")]
    arg: Vec<String>,
    /// The policy for native commands; it can only be stricter than `LOBSTER_POLICY`.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Told of each new question, with JSON on stdin (`LOBSTER_NOTIFY`).
    #[arg(long, value_name = "COMMAND")]
    notify: Option<String>,
    /// Shows what would run, and runs nothing.
    #[arg(long)]
    dry_run: bool,
    /// Does every step, whatever the action cache knows; what they give is still cached (`LOBSTER_NO_CACHE`).
    #[arg(long)]
    no_cache: bool,
    /// Pipeline text, whatever it looks like; `-` reads it from stdin.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["file", "words"])]
    pipeline: Option<String>,
    /// A workflow file, or the words of a pipeline.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// The words of `run`, sorted out.
#[derive(Debug, Default, PartialEq)]
struct Words {
    mode: Option<String>,
    file: Option<String>,
    args_json: Option<String>,
    args: Vec<String>,
    policy: Option<String>,
    pipeline: Option<String>,
    notify: Option<String>,
    log: logging::Options,
    no_cache: bool,
    dry_run: bool,
    /// `--dry-run` that came after a word: ours only if the word is a file.
    late_dry_run: bool,
    rest: Vec<String>,
}

/// Options of ours are taken out wherever they stand, as the incumbent does,
/// but only until the name of a pipeline command has been seen: after that
/// they belong to the command.
fn scan(words: &[String], is_stage: impl Fn(&str) -> bool) -> Words {
    let mut out = Words::default();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        // `lobster openclaw.invoke … --args-json X`: the command's own option.
        let in_stage = out.rest.first().is_some_and(|first| is_stage(first));
        let mut value = |name: &str| -> Option<Option<String>> {
            if word == name {
                return Some(words.next().cloned());
            }
            word.strip_prefix(name)
                .and_then(|rest| rest.strip_prefix('='))
                .map(|value| Some(value.to_owned()))
        };
        if let Some(mode) = value("--mode") {
            out.mode = mode.or(out.mode);
        } else if in_stage {
            out.rest.push(word.clone());
        } else if let Some(file) = value("--file") {
            out.file = file.filter(|file| !file.is_empty());
        } else if let Some(args) = value("--args-json") {
            out.args_json = args.filter(|args| !args.is_empty());
        } else if let Some(policy) = value("--policy") {
            out.policy = policy;
        } else if let Some(pipeline) = value("--pipeline") {
            out.pipeline = pipeline;
        } else if let Some(notify) = value("--notify") {
            out.notify = Some(notify.unwrap_or_default());
        } else if let Some(filter) = value("--log") {
            out.log.log = filter;
        } else if let Some(format) = value("--log-format") {
            out.log.log_format = format;
        } else if let Some(arg) = value("--arg") {
            out.args.extend(arg);
        } else if word == "--no-cache" {
            out.no_cache = true;
        } else if word == "--dry-run" && out.rest.is_empty() {
            out.dry_run = true;
        } else if word == "--dry-run" {
            out.late_dry_run = true;
        } else {
            out.rest.push(word.clone());
        }
    }
    out
}

/// Refuses words that never became a request, in the form that fits them.
pub(crate) fn refuse(words: &[String], error: CommandError) -> CommandResult {
    let in_tool_mode = words.windows(2).any(|pair| pair[0] == "--mode" && pair[1] == "tool")
        || words.iter().any(|word| word == "--mode=tool");
    if in_tool_mode { Reply { mode: Mode::Tool }.failure(&error.into()) } else { Err(error) }
}

pub(crate) fn run(words: &[String]) -> CommandResult {
    let registry = lobster_runtime::stages::builtin();
    let words = scan(words, |name| registry.get(name).is_some());
    let mode = match words.mode.as_deref() {
        Some("tool") => Mode::Tool,
        None | Some("" | "human") => Mode::Human,
        Some(other) => {
            return Err(CommandError::usage(format!("--mode must be human or tool, not {other:?}")));
        }
    };
    let reply = Reply { mode };
    let request = request(&words);
    let place = match &request {
        Ok(RunRequest { target: Target::File(file), .. }) => file.parent().unwrap_or(Path::new(".")),
        _ => Path::new("."),
    };
    let policies = PolicySources { place: Some(place), run: words.policy.as_deref().map(Path::new) };
    let ready = logging::start(&words.log)
        .and_then(|()| super::runtime_telling(mode, &policies, words.notify.as_deref()));
    let runtime = match ready {
        Ok(runtime) if words.no_cache => runtime.without_cache(),
        Ok(runtime) => runtime,
        Err(error) if mode == Mode::Tool => return reply.failure(&error.into()),
        Err(error) => return Err(error),
    };
    let request = match request {
        Ok(request) => request,
        Err(failure) => return reply.failure(&failure),
    };
    let planned = runtime.plan(&request).and_then(|planned| {
        run_hints::refuse_undeclared(&planned, &words.args)?;
        Ok(planned)
    });
    match planned {
        Ok(planned) if words.dry_run || words.late_dry_run => dry_run(&runtime, &planned, &reply),
        Ok(planned) => reply.result(
            &runtime,
            runtime.run_planned(&planned),
            matches!(request.target, Target::Pipeline(_)),
        ),
        Err(failure) => {
            let exit = reply.failure(&failure);
            if mode == Mode::Human
                && matches!(request.target, Target::Pipeline(_))
                && let Some(hint) = run_hints::command_like(&words.rest)
            {
                super::say(&hint);
            }
            exit
        }
    }
}

fn request(words: &Words) -> Result<RunRequest, Failure> {
    if let Some(text) = &words.pipeline {
        if words.file.is_some() || !words.rest.is_empty() {
            return Err(Failure::parse("run accepts either --pipeline or a file or words, not both"));
        }
        return Ok(RunRequest { target: Target::Pipeline(or_stdin(text, "run --pipeline")?), args: None });
    }
    if words.file.is_none() {
        run_hints::refuse_words(&words.rest)?;
    }
    let positional = match words.rest.as_slice() {
        [only] if words.file.is_none() && !only.contains('|') => match workflow_file(Path::new(only)) {
            Ok(()) => Some(only),
            // More words are a pipeline that ends in the name of a file.
            Err(WorkflowFileError::Missing(path))
                if has_workflow_extension(&path) && !only.contains(char::is_whitespace) =>
            {
                return Err(Failure::runtime(format!("Unknown command: {only} (and there is no such file)")));
            }
            Err(_) => None,
        },
        _ => None,
    };
    if let Some(file) = &words.file {
        let path = std::env::current_dir().unwrap_or_default().join(file);
        workflow_file(&tidied(&path)).map_err(|error| Failure::parse(error.to_string()))?;
    }
    let target = match words.file.as_ref().or(positional) {
        Some(file) => Target::File(PathBuf::from(file)),
        None => return Ok(RunRequest { target: Target::Pipeline(words.rest.join(" ")), args: None }),
    };
    let mut args = match &words.args_json {
        None => Value::Null,
        Some(text) => json::parse(&or_stdin(text, "run --args-json")?)
            .map_err(|error| Failure::parse(format!("run --args-json must be valid JSON ({error})")))?,
    };
    if !args.is_null() && !args.is_object() {
        return Err(Failure::parse("run --args-json must be a JSON object, as in '{\"name\":\"value\"}'"));
    }
    for arg in &words.args {
        let (name, value) = arg
            .split_once('=')
            .ok_or_else(|| Failure::parse(format!("run --arg must be NAME=VALUE, not {arg:?}")))?;
        if args.is_null() {
            args = json!({});
        }
        args[name] = json!(value);
    }
    Ok(RunRequest { target, args: Some(args).filter(|args| !args.is_null()) })
}

/// The value of an option, or stdin for `-`: the kernel takes 128 KiB a word.
pub(super) fn or_stdin(value: &str, option: &str) -> Result<String, Failure> {
    if value != "-" {
        return Ok(value.to_owned());
    }
    std::io::read_to_string(std::io::stdin().lock())
        .map_err(|error| Failure::parse(format!("{option} - cannot read stdin: {error}")))
}

fn dry_run(runtime: &Runtime, planned: &Planned, reply: &Reply) -> CommandResult {
    match runtime.describe(planned) {
        Ok(plan) => {
            anstream::eprint!("{}", harmless(&plan));
            match reply.mode {
                Mode::Tool => reply.envelope(&Envelope::Done(lobster_runtime::engine::Output::empty())),
                Mode::Human => Ok(Exit::OK),
            }
        }
        Err(failure) => reply.failure(&failure),
    }
}

/// How results are told.
pub(crate) struct Reply {
    pub(crate) mode: Mode,
}

impl Reply {
    /// A result of a run, for the program or the person who asked.
    pub(crate) fn result(&self, runtime: &Runtime, result: RunResult, pipeline: bool) -> CommandResult {
        match (&result.envelope, self.mode) {
            (Envelope::Failed(failure), _) => self.failure(failure),
            (envelope, Mode::Tool) => self.envelope(envelope),
            (Envelope::Done(output), Mode::Human) => {
                // Whoever rendered has shown the result already; an empty workflow shows nothing.
                if result.rendered || (output.is_empty() && !pipeline) {
                    return Ok(Exit::OK);
                }
                print_pretty(output)
            }
            (Envelope::NeedsApproval(gate) | Envelope::NeedsInput(gate), Mode::Human) => {
                let left = terminal::left();
                if let Some(left) = &left {
                    say_left(runtime, result.run, left);
                }
                let approval = matches!(result.envelope, Envelope::NeedsApproval(_));
                match left {
                    Some(Left::Unanswered(_)) => Ok(Exit::FAILED),
                    Some(_) if std::io::stdout().is_terminal() => Ok(Exit::OK),
                    // Where the terminal went, nobody reads the request; the question is kept.
                    Some(Left::Gone) => print_request(gate, approval, pipeline).or(Ok(Exit::OK)),
                    Some(_) => print_request(gate, approval, pipeline),
                    None => waiting(gate, approval, pipeline),
                }
            }
            // Only a no at the terminal ends a run of a person in this way; the incumbent fails then.
            (Envelope::Cancelled, Mode::Human) => {
                let run =
                    result.run.map(|run| format!(": run {} is cancelled", run.short())).unwrap_or_default();
                super::say(&format!("Not approved{run}"));
                Ok(Exit::FAILED)
            }
        }
    }

    /// A failure, in the form that fits.
    pub(crate) fn failure(&self, failure: &Failure) -> CommandResult {
        match self.mode {
            Mode::Tool => self.envelope(&Envelope::Failed(failure.clone())),
            Mode::Human => {
                let label = if failure.kind == FailureKind::Parse { "Parse error" } else { "Error" };
                super::say(&format!("{label}: {}", failure.message));
                Ok(Exit::Code(failure.kind.exit_code()))
            }
        }
    }

    pub(crate) fn envelope(&self, envelope: &Envelope) -> CommandResult {
        let exit = Exit::Code(envelope.exit_code());
        let mut out = std::io::BufWriter::with_capacity(64 << 10, std::io::stdout().lock());
        match envelope.write(&mut out) {
            Ok(()) => Ok(exit),
            Err(error) => match CommandError::from(error) {
                closed if closed.message.is_empty() => Ok(exit),
                error => Err(error),
            },
        }
    }
}

/// A question was left waiting: why, and how to answer it from anywhere.
fn say_left(runtime: &Runtime, run: Option<RunId>, left: &Left) {
    match left {
        Left::Later => super::say("Left waiting."),
        Left::Gone => super::say("Left waiting: the terminal gave no answer."),
        Left::Unanswered(why) => super::say(&format!("Error: {why}. The question is left waiting.")),
    }
    let open = GateFilter { status: Some(GateStatus::Open), run, limit: 0 };
    let gates = run.and_then(|_| runtime.store().ok()?.gates(&open).ok()).unwrap_or_default();
    for Gate { id, kind, .. } in gates {
        super::say(&match kind {
            GateKind::Approval => format!(
                "  lobster gates show {id}     what is asked\n  lobster gates approve {id}  or: lobster gates reject {id}"
            ),
            GateKind::Input => {
                format!("  lobster gates show {id}     what is asked\n  lobster gates answer {id} JSON")
            }
        });
    }
}

/// A person ran something that waits for a person, with nobody to ask now.
fn waiting(gate: &Value, approval: bool, pipeline: bool) -> CommandResult {
    let token = gate.get("resumeToken").and_then(Value::as_str).unwrap_or_default();
    let how = if approval { "--approve yes|no" } else { "--response-json JSON" };
    super::say(&format!("Waiting for {}.", if approval { "approval" } else { "input" }));
    super::say(&match gate.get("approvalId").and_then(Value::as_str) {
        Some(id) => format!("  lobster resume --id {id} {how}"),
        None => format!("  lobster resume --token {token} {how}"),
    });
    print_request(gate, approval, pipeline)
}

fn print_request(gate: &Value, approval: bool, pipeline: bool) -> CommandResult {
    if pipeline {
        // Without the token: this is the shape that the incumbent prints.
        let mut shown = gate.clone();
        if let Some(map) = shown.as_object_mut() {
            map.shift_remove("resumeToken");
            map.shift_remove("approvalId");
        }
        return print_pretty(&json!([shown]));
    }
    let (requires_approval, requires_input) =
        if approval { (gate, &Value::Null) } else { (&Value::Null, gate) };
    print_pretty(&json!({
        "status": if approval { "needs_approval" } else { "needs_input" },
        "output": [],
        "requiresApproval": requires_approval,
        "requiresInput": requires_input,
    }))
}

fn print_pretty(value: &impl serde::Serialize) -> CommandResult {
    let mut out = std::io::BufWriter::with_capacity(64 << 10, std::io::stdout().lock());
    json::write_pretty(&mut out, value).map_err(std::io::Error::from)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(Exit::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(words: &[&str]) -> Words {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        scan(&words, |name| name == "openclaw.invoke")
    }

    #[test]
    fn options_are_ours_until_a_command_begins() {
        let words = scanned(&["--file=a.yaml", "--mode", "tool", "--args-json", "{}", "x", "--mode=human"]);
        assert_eq!(
            (words.file.as_deref(), words.mode.as_deref(), words.args_json.as_deref()),
            (Some("a.yaml"), Some("human"), Some("{}"))
        );
        assert_eq!(words.rest, ["x"]);
        let words =
            scanned(&["openclaw.invoke", "--args-json", "{}", "--file", "f", "--dry-run", "--mode", "tool"]);
        assert_eq!(words.rest, ["openclaw.invoke", "--args-json", "{}", "--file", "f", "--dry-run"]);
        assert_eq!(words.mode.as_deref(), Some("tool"));
        assert!(!words.dry_run && !words.late_dry_run);
    }

    #[test]
    fn a_dry_run_may_come_last() {
        assert!(scanned(&["flow.lobster", "--dry-run"]).late_dry_run);
        assert!(scanned(&["--dry-run", "flow.lobster"]).dry_run);
        assert!(scanned(&["exec echo hi", "--dry-run"]).late_dry_run);
    }

    #[test]
    fn a_run_without_cache_may_be_asked_for_anywhere_before_a_command() {
        for words in [["--no-cache", "flow.lobster"], ["flow.lobster", "--no-cache"]] {
            let words = scanned(&words);
            assert!(words.no_cache && words.rest == ["flow.lobster"]);
        }
        let words = scanned(&["openclaw.invoke", "--no-cache"]);
        assert!(!words.no_cache && words.rest == ["openclaw.invoke", "--no-cache"]);
    }

    #[test]
    fn missing_values_change_nothing() {
        assert_eq!(scanned(&["--mode"]), Words::default());
        assert_eq!(scanned(&["--file="]), Words::default());
    }
}
