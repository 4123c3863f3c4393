//! `lobster resume`

use lobster_runtime::engine::{GateRef, Interrupted, Reply, ResumeRequest};
use lobster_runtime::envelope::Failure;
use lobster_runtime::json;
use lobster_runtime::runtime::Runtime;
use lobster_runtime::steps::stages::Mode;
use lobster_runtime::store::RunId;

use crate::exit::{CommandError, CommandResult};

/// Answers a question, or goes on with a run that failed or was interrupted.
///
/// Always answers with one JSON envelope on stdout.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster resume --id 4f90c468 --approve yes
  lobster resume --token eyJwcm90… --response-json '{\"decision\":\"approve\"}'
  lobster resume 018f3c2e                    a failed or killed run, from where it stopped")]
pub(crate) struct Args {
    /// The run to go on with, instead of a token: an id or the end of one.
    run: Option<String>,
    /// The resume token of the envelope.
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
    /// The short id of the approval; counts before the token.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// yes or no.
    #[arg(long, visible_alias = "decision", value_name = "YES|NO")]
    approve: Option<String>,
    /// The answer to an input request.
    #[arg(long, value_name = "JSON")]
    response_json: Option<String>,
    /// Calls the whole run off.
    #[arg(long)]
    cancel: bool,
    /// Runs a step again that had started when lobster was killed.
    #[arg(long)]
    retry_interrupted: bool,
    /// Takes such a step as failed without running it again.
    #[arg(long)]
    skip_interrupted: bool,
}

/// The words of `resume`, as the incumbent reads them: a value option takes
/// the next word whatever it is, the last one counts, unknown words do not.
#[derive(Debug, Default, PartialEq)]
struct Words {
    token: Option<String>,
    id: Option<String>,
    decision: Option<String>,
    response: Option<String>,
    cancel: bool,
    interrupted: Interrupted,
    run: Option<String>,
}

fn scan(words: &[String]) -> Result<Words, Failure> {
    let mut out = Words::default();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let (name, attached) = match word.split_once('=') {
            Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
            _ => (word.as_str(), None),
        };
        match name {
            "--token" => out.token = attached.or_else(|| words.next().cloned()),
            "--id" => out.id = attached.or_else(|| words.next().cloned()),
            "--approve" | "--decision" => {
                out.decision = Some(attached.or_else(|| words.next().cloned()).unwrap_or_default())
            }
            "--response-json" => {
                out.response = Some(attached.or_else(|| words.next().cloned()).unwrap_or_default())
            }
            "--cancel" => {
                let value = attached.or_else(|| words.next_if(|next| !next.starts_with("--")).cloned());
                out.cancel = match value.map(|value| value.trim().to_lowercase()).as_deref() {
                    None | Some("1" | "true" | "yes" | "y") => true,
                    Some("0" | "false" | "no" | "n") => false,
                    Some(_) => return Err(Failure::parse("resume --cancel must be true or false")),
                };
            }
            "--retry-interrupted" => out.interrupted = Interrupted::Retry,
            "--skip-interrupted" => out.interrupted = Interrupted::Skip,
            other if !other.starts_with('-') && out.run.is_none() => out.run = Some(word.clone()),
            _ => {}
        }
    }
    Ok(out)
}

fn request(words: Words) -> Result<ResumeRequest, Failure> {
    let gate = match (words.id.filter(|id| !id.is_empty()), words.token.filter(|token| !token.is_empty())) {
        (Some(id), _) => GateRef::Id(id),
        (None, Some(token)) => GateRef::Token(token),
        (None, None) => {
            return Err(Failure::parse("resume requires --token or --id (or the id of a run that failed)"));
        }
    };
    let decision = words.decision.filter(|decision| !decision.is_empty());
    let answers =
        usize::from(decision.is_some()) + usize::from(words.response.is_some()) + usize::from(words.cancel);
    if answers > 1 {
        return Err(Failure::parse("resume accepts only one of --approve, --response-json, or --cancel"));
    }
    let reply = match (decision, words.response, words.cancel) {
        (Some(word), _, _) => match word.to_lowercase().as_str() {
            "yes" | "y" => Reply::Approve,
            "no" | "n" => Reply::Reject,
            _ => return Err(Failure::parse("resume --approve must be yes or no")),
        },
        (None, Some(text), _) => Reply::Response(json::parse(&text).map_err(|error| {
            Failure::parse(format!("resume --response-json must be valid JSON ({error})"))
        })?),
        (None, None, true) => Reply::Cancel,
        (None, None, false) => {
            return Err(Failure::parse("resume requires --approve yes|no, --response-json, or --cancel"));
        }
    };
    Ok(ResumeRequest { gate, reply })
}

pub(crate) fn run(words: &[String]) -> CommandResult {
    let reply = super::run::Reply { mode: Mode::Tool };
    let words = match scan(words) {
        Ok(words) => words,
        Err(failure) => return reply.failure(&failure),
    };
    if let (Some(run), None, None) = (&words.run, &words.token, &words.id) {
        let runtime = runtime(|runtime| runtime.store().ok()?.find_run(run).ok())?;
        return reply.result(&runtime, runtime.resume_run(run, words.interrupted), false);
    }
    match request(words) {
        Ok(request) => {
            let runtime = runtime(|runtime| Some(runtime.open_gate(&request.gate).ok()?.run))?;
            reply.result(&runtime, runtime.resume(&request), false)
        }
        Err(failure) => reply.failure(&failure),
    }
}

/// A runtime under the policy that is named now, else the one that the run began under.
fn runtime(run: impl FnOnce(&Runtime) -> Option<RunId>) -> Result<Runtime, CommandError> {
    let runtime = super::runtime(Mode::Tool)?;
    if !runtime.policy().is_open() {
        return Ok(runtime);
    }
    let Some(run) = run(&runtime) else { return Ok(runtime) };
    Ok(match runtime.policy_of(run)? {
        Some(policy) => runtime.with_policy(policy),
        None => runtime,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(words: &[&str]) -> Option<Words> {
        scan(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()).ok()
    }

    #[test]
    fn a_value_option_takes_whatever_comes_next() {
        let words = scanned(&["--token", "--approve", "yes"]).unwrap_or_default();
        assert_eq!(
            (words.token.as_deref(), words.decision, words.run.as_deref()),
            (Some("--approve"), None, Some("yes"))
        );
    }

    #[test]
    fn cancel_reads_a_word_only_if_there_is_one() {
        assert_eq!(scanned(&["--cancel", "--token", "t"]).map(|w| w.cancel), Some(true));
        assert_eq!(scanned(&["--cancel", "No"]).map(|w| w.cancel), Some(false));
        assert_eq!(scanned(&["--cancel=maybe"]), None);
    }
}
