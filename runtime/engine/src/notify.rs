//! Notifies an operator's command of each new question and, on request, of the ends of runs.
//!
//! The command comes from the settings of the process, never from a workflow, a step's environment or data, and the
//! policy does not judge it. It is notified of a gate only after the gate is durable, it runs while the caller already
//! has its answer, and its outcome changes nothing in the run.

use std::ffi::OsString;
use std::io::{self, Seek, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::audience::{Notify, Occasions};
use super::env::NOTIFY_VARIABLE;
use super::question::{Fact, QuestionView};
use super::run::Run;
use super::services::Services;
use lobster_base::cancel::CancelToken;
use lobster_base::code::FailureCode;
use lobster_base::json;
use lobster_base::text::{self, Count};
use lobster_sandbox::{
    Confinement, Ended, ExitStatus, OutputSinks, ProcessLimits, Sandbox, SpawnRequest, Stdin,
};
use lobster_store::{Durability, Event, Gate, GateKind, RunId, RunStatus, RunSummary, Store, iso};

/// Time limit of the command, unless the settings say otherwise; the process does not end earlier than the command.
pub const NOTIFY_TIMEOUT: Duration = Duration::from_secs(5);

/// Most bytes of the command's output that are kept, for the warning if it fails.
const MAX_OUTPUT: usize = 4 << 10;

/// Most items in the message to the command, and most bytes of all of them.
const MAX_ITEMS: usize = 10;
const MAX_PREVIEW: usize = 16 << 10;

/// Time to wait until the run is released, so that the command can resume it.
const RELEASE: Duration = Duration::from_secs(2);

/// The data that the notifying thread needs.
struct Teller {
    notify: Notify,
    sandbox: Arc<Sandbox>,
    store: Store,
    notes: Arc<dyn Fn(&str) + Send + Sync>,
    env: Vec<(OsString, OsString)>,
    dir: PathBuf,
    run: RunId,
}

/// Notifies the command of new gates, if it is wanted.
pub(super) fn notify_of_gates(run: &Run<'_>, gates: Vec<Gate>) {
    let is_wanted = |occasions: &Occasions| occasions.question && !gates.is_empty();
    let Some(teller) = Teller::for_occasion(run.services, &run.store, run.id, is_wanted) else { return };
    run.services.background.start_task("notify", move || {
        teller.wait_for_release();
        for gate in &gates {
            let begun = Instant::now();
            let told = teller.store.run(gate.run).map_err(|error| error.to_string()).and_then(|summary| {
                teller.run_command(&teller.gate_message(gate, &summary), &summary, Some(&gate.id))
            });
            teller.report_outcome(Some((gate, begun)), told);
        }
    });
}

/// Notifies the command of the end of a run, if it is wanted: with the place of the run's last step, and the code of
/// the failure.
pub fn notify_of_end(
    services: &Services,
    store: &Store,
    run: RunId,
    status: RunStatus,
    failed_at: Option<String>,
    code: Option<&FailureCode>,
) {
    let is_wanted = |occasions: &Occasions| occasions.event_of(status).is_some();
    let Some(teller) = Teller::for_occasion(services, store, run, is_wanted) else { return };
    let code = code.cloned();
    services.background.start_task("notify", move || {
        let Some(event) = teller.notify.occasions.event_of(status) else { return };
        teller.wait_for_release();
        let told = teller.store.run(teller.run).map_err(|error| error.to_string()).and_then(|summary| {
            let message = teller.end_message(event, &summary, failed_at.as_deref(), code.as_ref());
            teller.run_command(&message, &summary, None)
        });
        teller.report_outcome(None, told);
    });
}

impl Teller {
    /// A notifier for this occasion, if the operator wants one.
    fn for_occasion(
        services: &Services,
        store: &Store,
        run: RunId,
        is_wanted: impl FnOnce(&Occasions) -> bool,
    ) -> Option<Self> {
        let notify = services.notify.clone().filter(|notify| is_wanted(&notify.occasions))?;
        let env = services.env.for_operator().filter(|(name, _)| *name != NOTIFY_VARIABLE);
        Some(Self {
            notify,
            sandbox: Arc::clone(&services.sandbox),
            store: store.clone(),
            notes: Arc::clone(&services.notes),
            env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
            // An agent can write to the caller's directory, where a relative name would find its file.
            dir: services.state_dir.clone(),
            run,
        })
    }

    /// The command may answer at once, and before that the run has to be released.
    fn wait_for_release(&self) {
        let begun = Instant::now();
        while self.store.is_claimed(self.run) && begun.elapsed() < RELEASE {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Reports the outcome on stderr and, for a question, in the journal. A finished run already has its last record.
    fn report_outcome(&self, gate: Option<(&Gate, Instant)>, told: Result<(), String>) {
        let failure = told.err();
        if let Some(why) = &failure {
            let what =
                gate.map_or_else(|| format!("run {}", self.run.short_id()), |(gate, _)| gate.id.clone());
            (self.notes)(&format!("warning: the notify command failed for {what}: {why}"));
        }
        tracing::info!(run = %self.run, gate = gate.map(|(gate, _)| &gate.id), failure, "notified");
        let Some((gate, begun)) = gate else { return };
        let event = Event::Note {
            path: Some(gate.path.clone()),
            text: "notified".to_owned(),
            detail: json!({
                "gate": gate.id,
                "ok": failure.is_none(),
                "durationMs": u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
            }),
        };
        if let Err(error) = self.store.append_events(self.run, vec![event], Durability::Lazy) {
            tracing::warn!(%error, "the notification is not in the journal");
        }
    }

    /// Runs the command with a message on its stdin.
    fn run_command(&self, message: &Value, summary: &RunSummary, gate: Option<&str>) -> Result<(), String> {
        let stdin = message_file(message).map_err(|error| error.to_string())?;
        let mut env = self.env.clone();
        env.push((RunId::VARIABLE.into(), self.run.to_string().into()));
        if let Some(gate) = gate {
            env.push(("LOBSTER_GATE_ID".into(), gate.into()));
        }
        // A resumed run works in the directory of the command that resumes it; most commands want this one.
        env.push(("LOBSTER_RUN_DIR".into(), summary.cwd.clone().into()));
        // lobster commands that the script runs must use the same store.
        env.retain(|(name, _)| name != "LOBSTER_STATE_DIR");
        env.push(("LOBSTER_STATE_DIR".into(), self.dir.clone().into()));
        let request = SpawnRequest {
            argv: ["/bin/sh", "-c", &self.notify.command].map(OsString::from).into(),
            env,
            cwd: self.dir.clone(),
            stdin: Stdin::File(stdin),
            limits: ProcessLimits { wall: Some(self.notify.timeout), ..ProcessLimits::default() },
            confinement: Confinement::None,
            upstream: None,
        };
        let mut said = Said::default();
        // The process may be ending because of a signal or a closed terminal, which is a reason to notify the
        // operator, so only the time limit stops the command.
        let never = CancelToken::new();
        let exit = self.sandbox.run(&request, &mut said, &never).map_err(|error| error.to_string())?;
        let what = match (exit.ended, exit.status) {
            (Ended::ByItself, ExitStatus::Code(0)) => return Ok(()),
            (Ended::TimedOut, _) => {
                format!("it took longer than {} ms and was ended", self.notify.timeout.as_millis())
            }
            (Ended::Cancelled, _) => "lobster was asked to end".to_owned(),
            (_, ExitStatus::Code(code)) => format!("it ended with code {code}"),
            (_, ExitStatus::Signal(signal)) => format!("signal {signal} ended it"),
        };
        let said = String::from_utf8_lossy(&said.0).trim().to_owned();
        Err(if said.is_empty() { what } else { format!("{what}: {said}") })
    }

    /// The message about an end: the run, its status and the commands to inspect it. It has no output of a step, since
    /// the operator's command passes it on to others.
    fn end_message(
        &self,
        event: &str,
        summary: &RunSummary,
        failed_at: Option<&str>,
        code: Option<&FailureCode>,
    ) -> Value {
        let id = summary.id.short_id();
        let mut commands = json!({ "show": format!("lobster show {id}") });
        if let Some(step) = failed_at {
            commands["logs"] = format!("lobster logs {id} {step}").into();
        }
        if event == "run_failed" {
            commands["resume"] = format!("lobster resume {id}").into();
        }
        json!({
            "event": event,
            "run": { "id": summary.id, "name": summary.name, "kind": summary.kind, "cwd": summary.cwd },
            "error": summary.error,
            "code": code,
            "failedAt": failed_at,
            "startedAt": iso(summary.started_at),
            "endedAt": summary.ended_at.map(iso),
            "durationMs": summary.ended_at.map(|ended| ended.saturating_sub(summary.started_at)),
            "stateDir": self.dir,
            "commands": commands,
        })
    }

    /// The message about a question: its text and the commands to answer it. It has no token, which would give every
    /// reader of the message the right to answer; an id is useful only with access to this store.
    fn gate_message(&self, gate: &Gate, summary: &RunSummary) -> Value {
        let id = &gate.id;
        let commands = match gate.kind {
            GateKind::Approval => json!({
                "show": format!("lobster approvals {id}"),
                "approve": format!("lobster resume --id {id} --approve yes"),
                "reject": format!("lobster resume --id {id} --approve no"),
                "cancel": format!("lobster resume --id {id} --cancel"),
            }),
            GateKind::Input => json!({
                "show": format!("lobster approvals {id}"),
                "answer": format!("lobster resume --id {id} --response-json JSON"),
                "cancel": format!("lobster resume --id {id} --cancel"),
            }),
        };
        let view = QuestionView::of_gate(&self.store, gate).ok();
        let (asks, facts) = match &view {
            Some(view) => (json!(view.kind), bounded_facts(&view.facts)),
            None => (Value::Null, Value::Null),
        };
        let question = &gate.question;
        let (items, count) = preview_items(question.get("items"));
        let text = |name: &str| question.get(name).cloned().unwrap_or_default();
        json!({
            "event": "gate_opened",
            "run": { "id": gate.run, "name": summary.name, "kind": summary.kind, "cwd": summary.cwd },
            "gate": {
                "id": id,
                "kind": gate.kind,
                "path": gate.path,
                "createdAt": iso(gate.created_at),
                "expiresAt": gate.expires_at.map(iso),
                "requiredApprover": gate.required_approver,
            },
            "prompt": text("prompt"),
            "preview": text("preview"),
            "items": items,
            "itemCount": count,
            "responseSchema": text("responseSchema"),
            "asks": asks,
            "facts": facts,
            "stateDir": self.dir,
            "commands": commands,
        })
    }
}

/// The facts of a question, as far as there is room; the number of omitted values is given.
fn bounded_facts(facts: &[Fact]) -> Value {
    let mut room = MAX_PREVIEW;
    let mut fit = |value: &String| {
        let shown = text::clip_telling_rest(value, room).into_owned();
        room -= text::prefix(value, room, Count::Bytes).len();
        shown
    };
    let fact = |fact: &Fact| {
        let shown: Vec<_> = fact.values.iter().take(MAX_ITEMS).map(&mut fit).collect();
        json!({ "label": fact.label, "values": shown, "more": fact.values.len() - shown.len() })
    };
    facts.iter().map(fact).collect()
}

/// The first items that are not too large, and the number of all items.
fn preview_items(items: Option<&Value>) -> (Vec<&Value>, usize) {
    let items = items.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut room = MAX_PREVIEW;
    let fitting = |item: &&Value| {
        let size = json::compact(item).len();
        room.checked_sub(size).is_some_and(|left| {
            room = left;
            true
        })
    };
    (items.iter().take(MAX_ITEMS).take_while(fitting).collect(), items.len())
}

fn message_file(message: &Value) -> io::Result<std::fs::File> {
    let mut file = tempfile::tempfile()?;
    file.write_all(json::compact(message).as_bytes())?;
    file.write_all(b"\n")?;
    file.rewind()?;
    Ok(file)
}

/// The beginning of the command's output.
#[derive(Default)]
struct Said(Vec<u8>);

impl OutputSinks for Said {
    fn write_stdout(&mut self, chunk: &[u8]) -> io::Result<()> {
        let room = MAX_OUTPUT.saturating_sub(self.0.len()).min(chunk.len());
        self.0.extend_from_slice(&chunk[..room]);
        Ok(())
    }

    fn write_stderr(&mut self, chunk: &[u8]) -> io::Result<()> {
        self.write_stdout(chunk)
    }
}
