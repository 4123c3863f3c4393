//! Questions and their answers. An answer is given by a process of lobster, as from the command line:
//! under the run's own policy, by the same checks.

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
use super::{App, Asked, Problem, Reply};
use crate::access::vouch;
use crate::program::{self, Behalf};

/// The longest reason of a no, in characters.
const REASON: usize = 2000;

/// How long an answer may take to be recorded.
const PATIENCE: Duration = Duration::from_secs(30);

/// After so many seconds an answer that was not recorded in time may be given again.
const PAUSE: u32 = 5;

/// How long a process that could not give its answer may take to say so.
const TOO_LATE: Duration = Duration::from_secs(3);

/// A yes and a no to an approval, as `lobster resume` takes them.
const YES: &[&str] = &["--approve", "yes"];
const NO: &[&str] = &["--approve", "no"];

fn object(gate: &Gate) -> Value {
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

pub(in super::super) fn list(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let status = asked.query("all").is_none().then_some(GateStatus::Open);
    let mut rows = Vec::new();
    for gate in app.store.gates(&GateFilter { status, run: None, limit: ROWS })? {
        let workflow = workflow_of_run(app, gate.run)?;
        if asked.may_read(workflow.as_deref()) {
            let mut row = object(&gate);
            row["workflow"] = workflow.into();
            rows.push(row);
        }
    }
    Ok(Reply::json(&json!({ "gates": rows })))
}

pub(in super::super) fn show(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let gate = app.store.find_gate(asked.param("gate"))?;
    let view = QuestionView::of_gate(&app.store, &gate)?;
    let mut shown = object(&gate);
    shown["question"] = gate.question.clone();
    shown["facts"] = json!(view.facts);
    shown["then"] = json!(view.then);
    Ok(Reply::json(&shown))
}

pub fn answer(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let gate = app.store.find_gate(asked.param("gate"))?;
    let body = &asked.json;
    if gate.status != GateStatus::Open {
        return Err(closed(&gate));
    }
    // What somebody says yes to is what they were shown.
    let digest = gate.binding.to_string();
    if body["digest"].as_str() != Some(digest.as_str()) {
        return Err(Problem::conflict(
            "changed",
            "the question is not the one that was shown; read it again",
        )
        .with(json!({ "digest": digest })));
    }
    let (words, answer): (&[&str], _) = match (body["decision"].as_str(), body.get("response")) {
        (Some("approve"), None) => (YES, Some(GateAnswer::Approved)),
        (Some("reject"), None) => (NO, Some(GateAnswer::Rejected)),
        (Some("cancel"), None) => (&["--cancel", "true"], None),
        (Some("respond"), Some(value)) => {
            (&["--response-json", "-"], Some(GateAnswer::Response(value.clone())))
        }
        _ => {
            return Err(Problem::bad_request(
                "`response` goes with the decision `respond` and with no other",
            ));
        }
    };
    let reason = body["reason"].as_str().map(str::trim).filter(|reason| !reason.is_empty());
    if reason.is_some() && body["decision"] != "reject" {
        return Err(Problem::bad_request("`reason` goes with the decision `reject` and with no other"));
    }
    if matches!(body["decision"].as_str(), Some("approve" | "respond")) {
        check_yes(app, asked, &gate)?;
    }
    let by = asked.actor.as_ref().map(|actor| (actor.name.as_str(), actor.credential.as_str()));
    let now = give(app, &gate, &Given { words, answer, reason }, by.unwrap_or_default())?;
    Ok(Reply::json(&object(&now)))
}

/// A person's yes or no to an approval that they were shown as it is. `by`: the name, and how it is known.
///
/// # Errors
/// When it is closed, or this person's answer does not count.
pub fn decide(app: &App, gate: &Gate, is_yes: bool, by: (&str, &str)) -> Result<Gate, Problem> {
    if gate.status != GateStatus::Open {
        return Err(closed(gate));
    }
    if is_yes && app.confirms_by_passkey {
        let why = "this server wants a yes confirmed with a passkey, in the console";
        return Err(Problem::new(StatusCode::FORBIDDEN, "passkey", why));
    }
    let (words, answer) = if is_yes { (YES, GateAnswer::Approved) } else { (NO, GateAnswer::Rejected) };
    give(app, gate, &Given { words, answer: Some(answer), reason: None }, by)
}

/// An answer as `lobster resume` takes it.
struct Given<'a> {
    words: &'a [&'a str],
    /// How it stands in the record; none calls the question off.
    answer: Option<GateAnswer>,
    /// Of a no.
    reason: Option<&'a str>,
}

impl Given<'_> {
    /// Whether a question stands as this answer of this person leaves it: of two that answer at once, one was first.
    /// `was_taken`: whether the process that gave it says so, which is asked where the record cannot tell.
    fn is_in(&self, gate: &Gate, name: &str, was_taken: impl FnOnce() -> bool) -> bool {
        let by = Some(name.trim()).filter(|name| !name.is_empty());
        gate.answered_by.as_deref() == by
            && match (&self.answer, &gate.answer) {
                (None, _) => gate.status == GateStatus::Cancelled,
                // The value of a secret in it is not recorded.
                (Some(GateAnswer::Response(given)), Some(GateAnswer::Response(recorded))) => {
                    given == recorded || was_taken()
                }
                (given, recorded) => gate.status == GateStatus::Answered && given == recorded,
            }
    }
}

/// Has a process give an answer, and waits until it is recorded. A run that the service has started goes on with a
/// worker then; any other one in this process.
fn give(
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
    let proof = vouch(&app.service, gate, (name, credential))
        .map_err(|why| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", why))?;
    let behalf = Behalf { proof: Some(&proof), ..Behalf::of_person(name, initiator) };
    let mut command = app.command(&behalf, &run.cwd, &words);
    if let Some(reason) = given.reason {
        command.env(program::REASON, prefix(reason, REASON, Count::Chars));
    }
    if let Some(GateAnswer::Response(value)) = &given.answer {
        command.stdin(file_of(value).map_err(|error| failed(&error))?);
    }
    let process = app.start(command)?;
    let is_closed = || app.store.gate(gate.key).is_ok_and(|now| now.status != GateStatus::Open);
    // One that hands the run over ends when the answer is recorded.
    let said = process.wait(PATIENCE, || start.is_none() && is_closed());
    let is_late = said.is_none() && !is_closed();
    let mut said = if is_late { process.end() } else { said };
    let now = app.store.gate(gate.key)?;
    if now.status != GateStatus::Open {
        // One that comes too late ends with an error, and soon. One whose answer counts ends well, or goes on.
        let was_taken = || {
            let end = said.as_ref().map(|said| said.code);
            let end = end.or_else(|| process.wait(TOO_LATE, || false).map(|said| said.code));
            end.is_none_or(|code| code == Some(0))
        };
        if !given.is_in(&now, name, was_taken) {
            return Err(closed(&now));
        }
        // A no has ended the run, and of two that give the same answer one has given it.
        let goes_on = given.answer.as_ref().is_some_and(|answer| *answer != GateAnswer::Rejected);
        if start.is_some() && goes_on && said.is_none_or(|said| said.code == Some(0)) {
            // It is recorded in any case, and the dispatcher finds it a little later.
            if let Err(error) = app.service.take_up(gate.run) {
                tracing::error!(%error, run = %gate.run, "a run that was answered cannot be taken up");
            }
        }
        app.waker.wake();
        return Ok(now);
    }
    if said.is_none() && !is_late {
        // It went on, and was of no use: the question is open again.
        said = process.wait(PATIENCE, || false);
    }
    let late = |why: &str| Problem::new(StatusCode::SERVICE_UNAVAILABLE, "late", why).retry_after(PAUSE);
    match said {
        Some(_) if is_late => {
            Err(late("the answer could not be recorded in time and does not count; give it again"))
        }
        Some(said) => Err(Problem::new(StatusCode::FORBIDDEN, "refused", said.why())),
        None => Err(late("it is not known whether the answer will be recorded; look at the question again")),
    }
}

fn closed(gate: &Gate) -> Problem {
    let by = gate.answered_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    Problem::conflict("closed", format!("question {} is {}{by}", gate.id, gate.status))
}

fn failed(error: &std::io::Error) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", error.to_string())
}

/// A value for a process to read.
fn file_of(value: &Value) -> std::io::Result<File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(json::compact(value).as_bytes())?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}
