//! Questions and their answers. A process of lobster gives the answer, as from the command line: under the run's own
//! policy and with the same checks.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::time::Duration;

use axum::http::StatusCode;
use lobster_runtime::engine::QuestionView;
use lobster_runtime::json;
use lobster_runtime::store::{Gate, GateAnswer, GateFilter, GateStatus, iso};
use lobster_runtime::text::{Count, prefix};
use serde_json::{Value, json};

use super::super::answer::workflow_of_run;
use super::access::check_yes;
use super::state::ROWS;
use super::{App, Asked, Problem, RouteReply};
use crate::access::issue_voucher;
use crate::program::{self, Behalf};

/// The longest reason of a rejection, in characters.
const REASON: usize = 2000;

/// Time limit for recording an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Seconds after which an answer that was not recorded in time may be given again.
const PAUSE: u32 = 5;

/// Time limit for a process to report that it could not give its answer.
const TOO_LATE: Duration = Duration::from_secs(3);

/// The arguments of `lobster resume` for an approval and a rejection.
const YES: &[&str] = &["--approve", "yes"];
const NO: &[&str] = &["--approve", "no"];

fn approval_json(gate: &Gate) -> Value {
    json!({
        "id": gate.id,
        "run": gate.run.to_string(),
        "path": gate.path,
        "kind": gate.kind,
        "status": gate.status,
        "prompt": gate.question.get("prompt"),
        "digest": gate.binding,
        "requiredApprover": gate.required_approver,
        "createdAt": iso(gate.created_at),
        "expiresAt": gate.expires_at.map(iso),
        "answer": gate.answer,
        "answeredBy": gate.answered_by,
        "answeredAt": gate.answered_at.map(iso),
    })
}

pub(in super::super) fn list(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let status = asked.query("all").is_none().then_some(GateStatus::Open);
    let mut rows = Vec::new();
    for gate in app.store.list_approvals(&GateFilter { status, run: None, limit: ROWS })? {
        let workflow = workflow_of_run(app, gate.run)?;
        if asked.may_read(workflow.as_deref()) {
            let mut row = approval_json(&gate);
            row["workflow"] = workflow.into();
            rows.push(row);
        }
    }
    Ok(RouteReply::json(&json!({ "gates": rows })))
}

pub(in super::super) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let gate = app.store.find_gate(asked.param("approval"))?;
    let view = QuestionView::of_gate(&app.store, &gate)?;
    let mut shown = approval_json(&gate);
    shown["question"] = gate.question.clone();
    shown["facts"] = json!(view.facts);
    shown["then"] = json!(view.then);
    Ok(RouteReply::json(&shown))
}

pub fn answer_approval(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let gate = app.store.find_gate(asked.param("approval"))?;
    let body = &asked.json;
    if gate.status != GateStatus::Open {
        return Err(already_closed(&gate));
    }
    // An approval is valid only for the version that was shown.
    let digest = gate.binding.to_string();
    if body["digest"].as_str() != Some(digest.as_str()) {
        return Err(Problem::conflict(
            "changed",
            "the question has changed since it was shown; read it again",
        )
        .with_details(json!({ "digest": digest })));
    }
    let (words, answer): (&[&str], _) = match (body["decision"].as_str(), body.get("response")) {
        (Some("approve"), None) => (YES, Some(GateAnswer::Approved)),
        (Some("reject"), None) => (NO, Some(GateAnswer::Rejected)),
        (Some("cancel"), None) => (&["--cancel", "true"], None),
        (Some("respond"), Some(value)) => {
            (&["--response-json", "-"], Some(GateAnswer::Response(value.clone())))
        }
        _ => return Err(Problem::bad_request("`response` goes with the decision `respond` and no other")),
    };
    let reason = body["reason"].as_str().map(str::trim).filter(|reason| !reason.is_empty());
    if reason.is_some() && body["decision"] != "reject" {
        return Err(Problem::bad_request("`reason` goes with the decision `reject` and with no other"));
    }
    if matches!(body["decision"].as_str(), Some("approve" | "respond")) {
        check_yes(app, asked, &gate)?;
    }
    let by = asked.actor.as_ref().map(|actor| (actor.name.as_str(), actor.credential.as_str()));
    let now = give_answer(app, &gate, &Given { words, answer, reason }, by.unwrap_or_default())?;
    Ok(RouteReply::json(&approval_json(&now)))
}

/// Gives a person's approval or rejection of a question in its current version. `by` is the name and the credential.
///
/// # Errors
/// Fails if the question is closed, or if this person's answer is not valid.
pub fn decide_approval(app: &App, gate: &Gate, is_yes: bool, by: (&str, &str)) -> Result<Gate, Problem> {
    if gate.status != GateStatus::Open {
        return Err(already_closed(gate));
    }
    if is_yes && app.confirms_by_passkey {
        let why = "this server requires a passkey for approvals, in the console";
        return Err(Problem::new(StatusCode::FORBIDDEN, "passkey", why));
    }
    let (words, answer) = if is_yes { (YES, GateAnswer::Approved) } else { (NO, GateAnswer::Rejected) };
    give_answer(app, gate, &Given { words, answer: Some(answer), reason: None }, by)
}

/// An answer in the form that `lobster resume` takes.
struct Given<'a> {
    words: &'a [&'a str],
    /// The recorded form; none cancels the run.
    answer: Option<GateAnswer>,
    /// The reason of a rejection.
    reason: Option<&'a str>,
}

impl Given<'_> {
    /// True if the question was closed by this answer of this person: if two people answer at once, one is first.
    /// `was_taken` reports the result of the process that gave the answer, for cases in which the record does not show
    /// it.
    fn is_in(&self, gate: &Gate, name: &str, was_taken: impl FnOnce() -> bool) -> bool {
        let by = Some(name.trim()).filter(|name| !name.is_empty());
        gate.answered_by.as_deref() == by
            && match (&self.answer, &gate.answer) {
                (None, _) => gate.status == GateStatus::Cancelled,
                // The value of a secret in the answer is not recorded.
                (Some(GateAnswer::Response(given)), Some(GateAnswer::Response(recorded))) => {
                    given == recorded || was_taken()
                }
                (given, recorded) => gate.status == GateStatus::Answered && given == recorded,
            }
    }
}

/// Lets a process give an answer, and waits until it is recorded. Afterwards a worker continues a run that the service
/// has started; any other run continues in this process.
fn give_answer(
    app: &App,
    gate: &Gate,
    given: &Given<'_>,
    (name, credential): (&str, &str),
) -> Result<Gate, Problem> {
    let run = app.store.run(gate.run)?;
    let start = app.service.start_of(gate.run)?;
    let mut words = vec!["resume", "--id", gate.id.as_str(), "--mode", "tool"];
    words.extend(given.words);
    words.extend(start.as_ref().map(|_| "--hand-over"));
    let initiator = start.as_ref().and_then(|start| start.actor.as_deref());
    let proof = issue_voucher(&app.service, gate, (name, credential)).map_err(Problem::failed)?;
    let behalf = Behalf { proof: Some(&proof), ..Behalf::of_person(name, initiator) };
    let mut command = app.build_command(&behalf, &run.cwd, &words);
    if let Some(reason) = given.reason {
        command.env(program::REASON, prefix(reason, REASON, Count::Chars));
    }
    if let Some(GateAnswer::Response(value)) = &given.answer {
        command.stdin(file_of(value).map_err(Problem::failed)?);
    }
    let process = app.start_process(command)?;
    let is_closed = || app.store.approval_by_key(gate.key).is_ok_and(|now| now.status != GateStatus::Open);
    // A process that hands the run over ends when the answer is recorded.
    let said = process.wait_for_exit(PATIENCE, || start.is_none() && is_closed());
    let is_late = said.is_none() && !is_closed();
    let mut said = if is_late { process.stop_process() } else { said };
    let now = app.store.approval_by_key(gate.key)?;
    if now.status != GateStatus::Open {
        // A process that comes too late soon ends with an error. If its answer was accepted, it succeeds or keeps
        // running.
        let was_taken = || {
            let end = said.as_ref().map(|said| said.code);
            let end = end.or_else(|| process.wait_for_exit(TOO_LATE, || false).map(|said| said.code));
            end.is_none_or(|code| code == Some(0))
        };
        if !given.is_in(&now, name, was_taken) {
            return Err(already_closed(&now));
        }
        // A rejection has ended the run. If two people give the same answer, one of them was first.
        let goes_on = given.answer.as_ref().is_some_and(|answer| *answer != GateAnswer::Rejected);
        if start.is_some() && goes_on && said.is_none_or(|said| said.code == Some(0)) {
            // The answer is recorded in any case, and the dispatcher finds it a little later.
            if let Err(error) = app.service.take_up(gate.run) {
                tracing::error!(%error, run = %gate.run, "an answered run cannot be resumed");
            }
        }
        app.waker.wake();
        return Ok(now);
    }
    if said.is_none() && !is_late {
        // The question was closed for a moment and is open again: the answer had no effect.
        said = process.wait_for_exit(PATIENCE, || false);
    }
    let late = |why: &str| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "late", why).retry_after(PAUSE);
    match said {
        Some(_) if is_late => {
            Err(late("the answer could not be recorded in time and has no effect; give it again"))
        }
        Some(said) => Err(Problem::new(StatusCode::FORBIDDEN, "refused", said.failure_reason())),
        None => Err(late("the answer may still be recorded; read the question again")),
    }
}

fn already_closed(gate: &Gate) -> Problem {
    let by = gate.answered_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    Problem::conflict("closed", format!("question {} is {}{by}", gate.id, gate.status))
}

/// A file with the value as JSON, for a process to read.
fn file_of(value: &Value) -> std::io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(json::compact(value).as_bytes())?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}
