//! Questions and their answers. An answer is given by a process of lobster, as from the command line:
//! under the run's own policy, by the same checks, and it goes on with the run.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use lobster_runtime::engine::QuestionView;
use lobster_runtime::json;
use lobster_runtime::store::{Gate, GateFilter, GateStatus, RunId, iso};
use lobster_runtime::text::{Count, prefix};
use serde_json::{Value, json};

use super::super::answer::workflow_of_run;
use super::access::check_yes;
use super::state::ROWS;
use super::{App, Asked, Problem, Reply};

/// The longest reason of a no, in characters.
const REASON: usize = 2000;

/// How long an answer may take to be recorded.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is read of what the process says.
const SAID: u64 = 64 << 10;

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
    let (body, name) = (&asked.json, asked.name().unwrap_or_default());
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
    let words: &[&str] = match (body["decision"].as_str(), body.get("response")) {
        (Some("approve"), None) => &["--approve", "yes"],
        (Some("reject"), None) => &["--approve", "no"],
        (Some("cancel"), None) => &["--cancel", "true"],
        (Some("respond"), Some(_)) => &["--response-json", "-"],
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
    let now = give(app, &gate, &Given { words, response: body.get("response"), reason }, name)?;
    Ok(Reply::json(&object(&now)))
}

/// A person's yes or no to an approval that they were shown as it is.
///
/// # Errors
/// When it is closed, or this person's answer does not count.
pub fn decide(app: &App, gate: &Gate, is_yes: bool, name: &str) -> Result<Gate, Problem> {
    if gate.status != GateStatus::Open {
        return Err(closed(gate));
    }
    if is_yes && app.confirms_by_passkey {
        let why = "this server wants a yes confirmed with a passkey, in the console";
        return Err(Problem::new(StatusCode::FORBIDDEN, "passkey", why));
    }
    let words = ["--approve", if is_yes { "yes" } else { "no" }];
    give(app, gate, &Given { words: &words, response: None, reason: None }, name)
}

/// An answer as `lobster resume` takes it.
struct Given<'a> {
    words: &'a [&'a str],
    response: Option<&'a Value>,
    /// Of a no.
    reason: Option<&'a str>,
}

/// Has a process give an answer, and waits until it is recorded.
fn give(app: &App, gate: &Gate, answer: &Given<'_>, name: &str) -> Result<Gate, Problem> {
    let run = app.store.run(gate.run)?;
    let mut command = Command::new(&app.program);
    command
        .args(["resume", "--id", &gate.id, "--mode", "tool"])
        .args(answer.words)
        .env("LOBSTER_APPROVAL_APPROVED_BY", name)
        .env("LOBSTER_ACTOR", name)
        .env_remove(RunId::VARIABLE)
        .env_remove("LOBSTER_APPROVAL_REASON")
        .process_group(0);
    if let Some(reason) = answer.reason {
        command.env("LOBSTER_APPROVAL_REASON", prefix(reason, REASON, Count::Chars));
    }
    if Path::new(&run.cwd).is_dir() {
        command.current_dir(&run.cwd);
    }
    let said = spawn(app, command, answer.response).map_err(|error| {
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed",
            format!("no process can be started: {error}"),
        )
    })?;
    let begun = Instant::now();
    loop {
        let now = app.store.gate(gate.key)?;
        if now.status != GateStatus::Open {
            // Of two that answer at once, one is told who was first.
            return if now.answered_by.as_deref().is_none_or(|by| by == name) {
                Ok(now)
            } else {
                Err(closed(&now))
            };
        }
        match said.ended.recv_timeout(Duration::from_millis(10)) {
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) if begun.elapsed() < PATIENCE => {}
            ended => {
                // It may have answered between the two looks.
                let now = app.store.gate(gate.key)?;
                if ended.is_ok() && now.status != GateStatus::Open {
                    return Ok(now);
                }
                return Err(Problem::new(StatusCode::FORBIDDEN, "refused", said.message()));
            }
        }
    }
}

fn closed(gate: &Gate) -> Problem {
    let by = gate.answered_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
    Problem::conflict("closed", format!("question {} is {}{by}", gate.id, gate.status))
}

/// A process that answers, and what it has said.
struct Answering {
    ended: std::sync::mpsc::Receiver<()>,
    said: File,
}

impl Answering {
    /// Why it did not answer: the message of its envelope.
    fn message(mut self) -> String {
        let mut text = Vec::new();
        let read =
            self.said.seek(SeekFrom::Start(0)).and_then(|_| (&self.said).take(SAID).read_to_end(&mut text));
        let envelope = read.ok().and_then(|_| json::parse(&String::from_utf8_lossy(&text)).ok());
        let message = envelope.and_then(|envelope| envelope["error"]["message"].as_str().map(str::to_owned));
        message.unwrap_or_else(|| "the answer was not taken; the server's log says why".to_owned())
    }
}

fn spawn(app: &App, mut command: Command, response: Option<&Value>) -> std::io::Result<Answering> {
    let said = tempfile::tempfile()?;
    let stdin = match response {
        None => Stdio::null(),
        Some(value) => {
            let mut file = tempfile::tempfile()?;
            file.write_all(json::compact(value).as_bytes())?;
            file.seek(SeekFrom::Start(0))?;
            file.into()
        }
    };
    let mut child = command.stdin(stdin).stdout(said.try_clone()?).stderr(tempfile::tempfile()?).spawn()?;
    let (done, ended) = std::sync::mpsc::channel();
    let waker = app.waker.clone();
    std::thread::Builder::new().name("answer".to_owned()).spawn(move || {
        let _ = child.wait();
        let _ = done.send(());
        waker.wake();
    })?;
    Ok(Answering { ended, said })
}
