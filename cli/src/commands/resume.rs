//! `lobster resume`

use lobster_runtime::engine::Interrupted;
use lobster_runtime::envelope::Failure;
use lobster_runtime::language::mistyped::nearest_name;
use lobster_runtime::replay::changes::Resolution;
use lobster_runtime::replay::{self, GateRef, Reply, ResumeRequest, Standing};
use lobster_runtime::runtime::Runtime;
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{RunId, end_with_run};

use super::changes;
use super::run_hints::options_of;
use crate::answering::author_by_token;
use crate::events;
use crate::exit::{CommandError, CommandResult};
use crate::live;
use crate::logging;
use crate::option_values;
use crate::prepare;
use crate::render::{harmless, print_to_stderr};
use crate::reply::ResultPrinter;
use crate::which;

/// Answers a question, or continues a run that failed or was interrupted.
///
/// Prints one JSON envelope, unless stdout is a terminal.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster resume --id 4f90c468 --approve yes
  lobster resume --token eyJwcm90… --response-json '{\"decision\":\"approve\"}'
  lobster resume 018f3c2e                    a failed or killed run, from where it stopped
  lobster resume @ --conflicts merge
  lobster resume 018f3c2e --cancel           ends a run for good")]
pub(crate) struct Args {
    /// The run to continue: an id, the end of an id, or @. Takes the place of a token.
    run: Option<String>,
    /// `human` prints for people; `tool` prints an envelope even at a terminal.
    #[arg(long, value_name = "MODE")]
    mode: Option<String>,
    /// The resume token of the envelope.
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// The short id of the approval; takes precedence over the token.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// The answer to an approval: yes or no.
    #[arg(long, visible_alias = "decision", value_name = "YES|NO")]
    approve: Option<String>,
    /// The answer to an input request; `-` reads it from stdin.
    #[arg(long, value_name = "JSON")]
    response_json: Option<String>,
    /// Cancels the run: no more of it is executed.
    #[arg(long)]
    cancel: bool,
    /// Re-runs an interrupted step: it had started when lobster was killed.
    #[arg(long)]
    retry_interrupted: bool,
    /// With `--retry-interrupted`: even if processes of the step are still running.
    #[arg(long, requires = "retry_interrupted")]
    even_if_running: bool,
    /// Marks an interrupted step as failed.
    #[arg(long)]
    skip_interrupted: bool,
    /// Commits although some of the files changed meanwhile: `keep` leaves these, `overwrite` overwrites
    /// them, `merge` puts both changes of a text together. Asks about reviewed changes again.
    #[arg(long, value_name = "HOW")]
    conflicts: Option<changes::Conflicts>,
    /// Continues a run that was imported unfinished. Asks questions again that were answered elsewhere. Use
    /// this only if nothing else continues the run.
    #[arg(long)]
    take_over: bool,
    /// For `lobster serve`, which continues the run itself: records the answer, or that the run is to be tried again,
    /// and ends with the status `waiting`.
    #[arg(long, hide = true)]
    hand_over: bool,
    /// Runs every remaining step, even if its result is cached (`LOBSTER_NO_CACHE`).
    #[arg(long)]
    no_cache: bool,
    /// Runs this command for each new question, which it gets as JSON on stdin (`LOBSTER_NOTIFY`).
    #[arg(long, value_name = "COMMAND")]
    notify: Option<String>,
    /// Writes the further events of the run, like `run --events` (`LOBSTER_EVENTS`).
    #[arg(long, value_name = "FORMAT[:FILE]")]
    events: Option<String>,
}

/// The parsed words of `resume`.
#[derive(Debug, Default, PartialEq)]
struct Words {
    token: Option<String>,
    id: Option<String>,
    decision: Option<String>,
    response: Option<String>,
    cancel: bool,
    retry_interrupted: bool,
    even_if_running: bool,
    skip_interrupted: bool,
    no_cache: bool,
    take_over: bool,
    hand_over: bool,
    conflicts: Option<String>,
    run: Option<String>,
    /// Options that `resume` does not have, and words after the id of a run.
    unread: Vec<String>,
    notify: Option<String>,
    events: Option<String>,
    mode: Option<String>,
    log: logging::Options,
}

fn scan_words(words: &[String]) -> Result<Words, Failure> {
    let mut out = Words::default();
    let mut cancel: Option<&str> = None;
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let mut takes =
            |name: &str, into: &mut Option<String>| option_values::take_value(name, word, &mut words, into);
        if takes("--token", &mut out.token)?
            || takes("--id", &mut out.id)?
            || takes("--approve", &mut out.decision)?
            || takes("--decision", &mut out.decision)?
            || takes("--response-json", &mut out.response)?
            || takes("--notify", &mut out.notify)?
            || takes("--events", &mut out.events)?
            || takes("--conflicts", &mut out.conflicts)?
            || takes("--mode", &mut out.mode)?
            || takes("--log", &mut out.log.log)?
            || takes("--log-format", &mut out.log.log_format)?
        {
            continue;
        }
        let given = match word.strip_prefix("--cancel=") {
            None if word == "--cancel" => {
                Some(words.next_if(|next| !next.starts_with("--")).map_or("true", String::as_str))
            }
            attached => attached,
        };
        if let Some(value) = given {
            if cancel.replace(value).is_some() {
                return Err(Failure::parse_error("--cancel is given twice"));
            }
            continue;
        }
        match word.as_str() {
            "--retry-interrupted" => out.retry_interrupted = true,
            "--even-if-running" => out.even_if_running = true,
            "--skip-interrupted" => out.skip_interrupted = true,
            "--take-over" => out.take_over = true,
            "--hand-over" => out.hand_over = true,
            "--no-cache" => out.no_cache = true,
            other if !other.starts_with('-') && out.run.is_none() => out.run = Some(word.clone()),
            _ => out.unread.push(word.clone()),
        }
    }
    out.cancel = match cancel.map(|value| value.trim().to_lowercase()).as_deref() {
        None | Some("0" | "false" | "no" | "n") => false,
        Some("1" | "true" | "yes" | "y") => true,
        Some(_) => return Err(Failure::parse_error("resume --cancel must be true or false")),
    };
    Ok(out)
}

/// The options used with the id of a run.
const RUN_OPTIONS: &[&str] = &[
    "--cancel",
    "--conflicts",
    "--even-if-running",
    "--mode",
    "--no-cache",
    "--notify",
    "--retry-interrupted",
    "--skip-interrupted",
    "--take-over",
];

/// The options used with an answer to a question.
const ANSWER_OPTIONS: &[&str] = &[
    "--approve",
    "--cancel",
    "--decision",
    "--id",
    "--mode",
    "--no-cache",
    "--notify",
    "--response-json",
    "--token",
];

/// The error `resume RUN has no option "--polciy"`, with the similar option that exists.
fn unknown_word(form: &str, word: &str, options: &[&'static str]) -> Failure {
    let what = if word.starts_with('-') { "has no option" } else { "takes one run, not also" };
    let name = word.split('=').next().unwrap_or_default();
    let near = nearest_name(name, options.iter().copied()).filter(|_| word.starts_with("--"));
    let near = near.map(|near| format!("did you mean {near}? ")).unwrap_or_default();
    Failure::parse_error(format!("{form} {what} {word:?}; {near}`lobster resume --help` lists its options"))
}

/// The action for a run named by its id; here every word must be known.
#[derive(Clone, Copy, Debug, PartialEq)]
enum WithRun {
    GoOn(Interrupted, Option<Resolution>),
    Cancel,
}

fn with_run(words: &Words) -> Result<WithRun, Failure> {
    if let Some(word) = words.unread.first() {
        return Err(unknown_word("resume RUN", word, RUN_OPTIONS));
    }
    if words.decision.is_some() || words.response.is_some() {
        return Err(Failure::parse_error(
            "resume RUN does not answer questions; `lobster approvals` lists the open ones with the commands that \
             answer them",
        ));
    }
    let how = words.conflicts.as_deref().map(read_conflicts).transpose()?;
    if words.even_if_running && !words.retry_interrupted {
        return Err(Failure::parse_error("resume RUN --even-if-running goes with --retry-interrupted"));
    }
    match (words.cancel, words.retry_interrupted, words.skip_interrupted, how) {
        (false, false, false, how) => Ok(WithRun::GoOn(Interrupted::Ask, how)),
        (false, true, false, how) if words.even_if_running => {
            Ok(WithRun::GoOn(Interrupted::RetryAnyway, how))
        }
        (false, true, false, how) => Ok(WithRun::GoOn(Interrupted::Retry, how)),
        (false, false, true, how) => Ok(WithRun::GoOn(Interrupted::Skip, how)),
        (true, false, false, None) => Ok(WithRun::Cancel),
        (true, false, false, Some(_)) => {
            Err(Failure::parse_error("resume RUN takes only one of --conflicts and --cancel"))
        }
        _ => Err(Failure::parse_error(
            "resume RUN takes only one of --retry-interrupted, --skip-interrupted and --cancel",
        )),
    }
}

fn read_conflicts(word: &str) -> Result<Resolution, Failure> {
    let said = <changes::Conflicts as clap::ValueEnum>::from_str(word, false);
    said.map(Resolution::from).map_err(|_| {
        Failure::parse_error(format!("resume --conflicts must be keep, overwrite or merge, not {word:?}"))
    })
}

/// True if an unknown option of an answer is, or nearly is, an option that matters to a run: a person
/// who writes `--policy` or `--dry-run` expects an effect.
fn is_meant(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or_default();
    let known = [options_of("run"), options_of("resume")].concat();
    nearest_name(name, known.iter().map(String::as_str)).is_some()
}

/// The answer to a question. Like the incumbent, ignores words without any meaning.
fn build_request(words: Words) -> Result<ResumeRequest, Failure> {
    for option in words.unread.iter().filter(|word| word.starts_with('-')) {
        if is_meant(option) {
            return Err(unknown_word("resume", option, ANSWER_OPTIONS));
        }
        print_to_stderr(&format!("warning: resume: unknown option {} is ignored", harmless(option)));
    }
    let of_runs = [
        ("--conflicts", words.conflicts.is_some()),
        ("--retry-interrupted", words.retry_interrupted),
        ("--even-if-running", words.even_if_running),
        ("--skip-interrupted", words.skip_interrupted),
        ("--take-over", words.take_over),
    ];
    if let Some((option, _)) = of_runs.iter().find(|(_, given)| *given) {
        return Err(Failure::parse_error(format!("resume {option} goes with the id of a run that failed")));
    }
    let gate = match (words.id.filter(|id| !id.is_empty()), words.token.filter(|token| !token.is_empty())) {
        (Some(id), _) => GateRef::Id(id),
        (None, Some(token)) => GateRef::Token(token),
        (None, None) => {
            return Err(Failure::parse_error(
                "resume requires --token or --id (or the id of a run that failed)",
            ));
        }
    };
    let decision = words.decision.filter(|decision| !decision.is_empty());
    let answers =
        usize::from(decision.is_some()) + usize::from(words.response.is_some()) + usize::from(words.cancel);
    if answers > 1 {
        return Err(Failure::parse_error(
            "resume accepts only one of --approve, --response-json, or --cancel",
        ));
    }
    let reply = match (decision, words.response, words.cancel) {
        (Some(word), _, _) => match word.to_lowercase().as_str() {
            "yes" | "y" => Reply::Approve,
            "no" | "n" => Reply::Reject,
            _ => return Err(Failure::parse_error("resume --approve must be yes or no")),
        },
        (None, Some(text), _) => Reply::Response(prepare::json_option(&text, "resume --response-json")?),
        (None, None, true) => Reply::Cancel,
        (None, None, false) => {
            return Err(Failure::parse_error(
                "resume requires --approve yes|no, --response-json, or --cancel",
            ));
        }
    };
    Ok(ResumeRequest { gate, reply, author: None })
}

pub(crate) fn run(words: &[String]) -> CommandResult {
    end_with_run();
    let reply = ResultPrinter::for_reader();
    let words = match scan_words(words) {
        Ok(words) => words,
        Err(failure) => return reply.report_failure(&failure),
    };
    let reply = match words.mode.as_deref() {
        None => reply,
        Some("tool") => ResultPrinter::new(Mode::Tool),
        Some("human") => ResultPrinter::new(Mode::Human),
        Some(other) => {
            return reply.report_failure(&Failure::parse_error(format!(
                "resume --mode must be human or tool, not {other:?}"
            )));
        }
    };
    resume(words, &reply).unwrap_or_else(|failure| reply.report_failure(&failure))
}

/// Resumes what the words name, and reports the result. A failure means that nothing was resumed.
fn resume(mut words: Words, reply: &ResultPrinter) -> Result<CommandResult, Failure> {
    logging::start(&words.log, None).map_err(|error| Failure::parse_error(error.message))?;
    let notify = words.notify.clone();
    let no_cache = words.no_cache;
    let events = words.events.clone();
    let runtime_of = |find: &dyn Fn(&Runtime) -> Option<RunId>| -> Result<Runtime, CommandError> {
        let runtime = prepare::runtime_of_run(reply.mode, notify.as_deref(), find)?;
        events::start_writing(&runtime, events.as_deref())?;
        let runtime = if no_cache { runtime.without_cache() } else { runtime };
        if let Some(run) = find(&runtime).filter(|_| reply.mode == Mode::Human) {
            live::expect_rest_of(&runtime.store()?, run);
        }
        Ok(runtime)
    };
    if words.run.is_none() && words.token.is_none() && words.id.is_none() && which::can_ask() {
        let picked = prepare::runtime(Mode::Tool)
            .and_then(|runtime| Ok(runtime.store()?))
            .and_then(|store| which::pick_run(&store, "resume", can_go_on));
        words.run = Some(picked?.to_string());
    }
    if let (Some(run), None, None) = (&words.run, &words.token, &words.id) {
        let task = with_run(&words)?;
        let run = &resolve_run(run)?;
        let find = |runtime: &Runtime| runtime.store().ok()?.find_run(run).ok();
        let runtime = runtime_of(&find)?;
        let result = match task {
            WithRun::GoOn(interrupted, how) if words.take_over && !words.hand_over => {
                replay::take_over(&runtime, run, interrupted, how)
            }
            WithRun::GoOn(interrupted, None) if words.hand_over => {
                replay::record_retry(&runtime, run, interrupted)
            }
            WithRun::GoOn(interrupted, None) => replay::resume_run(&runtime, run, interrupted),
            WithRun::GoOn(interrupted, Some(how)) => {
                replay::resume_conflicting(&runtime, run, interrupted, how)
            }
            WithRun::Cancel => replay::cancel_run(&runtime, run),
        };
        return Ok(reply.report_result(&runtime, result, false));
    }
    let hand_over = words.hand_over;
    let mut request = build_request(words)?;
    let find = |runtime: &Runtime| replay::run_of_gate(runtime, &request.gate);
    let runtime = runtime_of(&find)?;
    request.author = author_by_token(&runtime, &request.gate)?;
    let answer = if hand_over { replay::record_answer } else { replay::answer_and_resume };
    Ok(reply.report_result(&runtime, answer(&runtime, &request), false))
}

/// True if `resume` can continue a run in this state.
fn can_go_on(standing: Standing) -> bool {
    matches!(standing, Standing::Failed | Standing::Interrupted)
}

/// The id of the run that `@` and similar words refer to. Other texts are returned unchanged; the
/// runtime reports their errors.
fn resolve_run(text: &str) -> Result<String, CommandError> {
    if !text.contains('@') {
        return Ok(text.to_owned());
    }
    Ok(which::run(&prepare::runtime(Mode::Tool)?.store()?, text)?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned_words(words: &[&str]) -> Option<Words> {
        scan_words(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).ok()
    }

    #[test]
    fn a_value_that_is_missing_or_given_twice_is_an_error() {
        for words in [
            &["--token", "--approve", "yes"][..],
            &["--token", "t", "--approve"],
            &["--id", "a", "--approve", "yes", "--decision=no"],
            &["--cancel", "yes", "--cancel=no"],
        ] {
            assert_eq!(scanned_words(words), None, "{words:?}");
        }
    }

    #[test]
    fn cancel_reads_a_word_only_if_there_is_one() {
        assert_eq!(scanned_words(&["--cancel", "--token", "t"]).map(|w| w.cancel), Some(true));
        assert_eq!(scanned_words(&["--cancel", "No"]).map(|w| w.cancel), Some(false));
        assert_eq!(scanned_words(&["--cancel=maybe"]), None);
    }

    #[test]
    fn a_run_takes_no_word_that_it_does_not_read() {
        let task = |words: &[&str]| {
            with_run(&scanned_words(words).unwrap_or_default()).map_err(|error| error.message)
        };
        assert_eq!(task(&["018f", "--skip-interrupted"]), Ok(WithRun::GoOn(Interrupted::Skip, None)));
        let merge = Ok(WithRun::GoOn(Interrupted::Ask, Some(Resolution::Merge)));
        assert_eq!(task(&["018f", "--conflicts", "merge"]), merge);
        assert_eq!(task(&["018f", "--cancel"]), Ok(WithRun::Cancel));
        assert_eq!(task(&["018f", "--cancel", "no"]), Ok(WithRun::GoOn(Interrupted::Ask, None)));
        for words in [
            &["018f", "--approve", "no"][..],
            &["018f", "--response-json", "{}"],
            &["018f", "--dry-run"],
            &["018f", "--retry-interrupted=no"],
            &["018f", "77b0"],
            &["018f", "--retry-interrupted", "--skip-interrupted"],
            &["018f", "--cancel", "--retry-interrupted"],
            &["018f", "--conflicts=theirs"],
            &["018f", "--cancel", "--conflicts=keep"],
        ] {
            assert!(task(words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn an_answer_takes_no_option_that_it_does_not_read() {
        let refused = |more: &[&str]| {
            let words = [&["--id", "4f90c468", "--approve", "yes"], more].concat();
            build_request(scanned_words(&words).unwrap_or_default()).err().map(|error| error.message)
        };
        assert_eq!(refused(&[]), None);
        assert_eq!(refused(&["please", "--mode", "tool"]), None);
        assert_eq!(refused(&["--force", "extra", "-Z"]), None);
        for (more, message) in [
            (&["--policy", "p.toml"][..], "resume has no option \"--policy\"; "),
            (&["--dry-run"], "resume has no option \"--dry-run\"; "),
            (&["--notfy=x"], "resume has no option \"--notfy=x\"; did you mean --notify? "),
            (&["please", "--polciy"], "resume has no option \"--polciy\"; "),
            (&["--conflicts", "keep"], "resume --conflicts goes with the id of a run"),
            (&["--retry-interrupted"], "resume --retry-interrupted goes with the id of a run"),
            (&["--skip-interrupted"], "resume --skip-interrupted goes with the id of a run"),
            (&["--take-over"], "resume --take-over goes with the id of a run"),
        ] {
            let said = refused(more).unwrap_or_default();
            assert!(said.starts_with(message), "{more:?}: {said}");
        }
    }
}
