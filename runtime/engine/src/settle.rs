//! From the end of an execution to its envelope.

use lobster_base::code::{Code, FailureCode};

use serde_json::{Map, Value, json};

use super::binding::{Asker, GateQuestion, KEPT, PendingGate, SetsGoing};
use super::known_settings::ENVELOPE_LIMIT;
use super::perform::output_of;
use super::run::Run;
use super::token::{Token, TokenKind};
use super::unseen::{self, Unseen};
use super::value::RunOutput;
use crate::envelope::{Envelope, Failure};
use lobster_base::cancel::CancelReason;
use lobster_base::json;
use lobster_base::text::{self, Count};
use lobster_language::plan::Plan;
use lobster_stage::{Mode, Question, StageError, Stop};
use lobster_store::{
    Blob, CUT_OFF, Durability, Event, Gate, GateFilter, GateKind, GateRecord, GateStatus, NewWait, RunStatus,
    StoreError, is_resumed_by_service, iso,
};

/// Executes a plan until it ends or has to wait.
pub fn execute_plan(run: &Run<'_>, plan: &Plan, args: &Map<String, Value>) -> Envelope {
    let _span = tracing::info_span!("run", id = %run.id).entered();
    let result = output_of(run, plan, args);
    let envelope = end_execution(run, plan, result).unwrap_or_else(|error| match error {
        // A person ended the run from another process, which has reported it.
        StoreError::CalledOff { .. } => Envelope::Cancelled,
        other => Envelope::Failed(other.into()),
    });
    run.services.export_trace(&run.store, run.id);
    run.services.redact_envelope(envelope)
}

/// Journals the end of the execution and returns its envelope.
fn end_execution(
    run: &Run<'_>,
    plan: &Plan,
    result: Result<RunOutput, Stop>,
) -> Result<Envelope, StoreError> {
    let failed_at = run.failed_at().map(|path| path.to_string());
    let end = |status, output: Option<Blob>, error: Option<String>, code: Option<&FailureCode>| {
        // A retry drops the outcomes at this path, and if the store failed, no step did.
        let failed_at =
            failed_at.as_ref().filter(|_| code.and_then(FailureCode::known_code) != Some(Code::Store));
        let mut detail = json!({ "failed_at": failed_at, "code": code });
        let interrupted_by = run.interrupted_by();
        if status != RunStatus::Ok {
            // Until a person decides about these effects, the run has not ended like one with a failed step.
            let unseen = run.unseen_effects()?;
            if let Some(by) =
                interrupted_by.filter(|_| code.and_then(FailureCode::known_code) == Some(Code::Cancelled))
            {
                (detail[CUT_OFF], detail["interrupted_by"]) = (json!([]), json!(by));
                if run.cancel.reason().is_some_and(|reason| reason.is_service_limit()) {
                    detail["limit"] = Value::Bool(true);
                }
            }
            tell_unseen(&mut detail, &unseen);
        }
        let resumes = is_resumed_by_service(&detail) && run.is_of_service();
        // After a power cut a run without effects can be computed again (E1).
        let durability = if status == RunStatus::Ok && !run.has_done_effects() {
            Durability::Lazy
        } else {
            Durability::Synced
        };
        run.journal_end(vec![Event::RunEnded { status, output, error, detail }], durability)?;
        // The service resumes the run, so there is nothing for a person to do.
        if !resumes {
            super::notify::notify_of_end(run.services, &run.store, run.id, status, failed_at.cloned(), code);
        }
        Ok::<_, StoreError>(())
    };
    // A person whose terminal was closed can answer elsewhere, if no work was interrupted.
    let result = match result {
        Err(Stop::Cancelled)
            if run.has_lost_its_terminal() && run.has_pending() && run.unseen_effects()?.is_empty() =>
        {
            Err(Stop::Paused)
        }
        other => other,
    };
    Ok(match result {
        Err(_) if run.is_refused() => {
            // As with an answer from another process.
            let mut detail = json!({
                "answer": "rejected",
                "actor": run.services.actor(),
                "message": run.services.env.non_blank("LOBSTER_MESSAGE_ID"),
            });
            tell_unseen(&mut detail, &run.unseen_effects()?);
            let ended = Event::RunEnded { status: RunStatus::Cancelled, output: None, error: None, detail };
            run.journal_end(vec![ended], Durability::Synced)?;
            super::notify::notify_of_end(run.services, &run.store, run.id, RunStatus::Cancelled, None, None);
            Envelope::Cancelled
        }
        Ok(output) => {
            end(RunStatus::Ok, keep_output(run, &output)?, None, None)?;
            Envelope::Done(output)
        }
        Err(Stop::Paused) => match pause_run(run, plan)? {
            Ok(envelope) => envelope,
            Err(error) => {
                let failure = Failure::from(error);
                end(RunStatus::Failed, None, Some(failure.message.clone()), Some(&failure.code))?;
                Envelope::Failed(failure)
            }
        },
        Err(Stop::Failed(error)) => {
            let failure = Failure::from(error);
            end(RunStatus::Failed, None, Some(failure.message.clone()), Some(&failure.code))?;
            Envelope::Failed(failure)
        }
        Err(Stop::Cancelled) => {
            let reason = run.cancel.reason();
            // Only a person or a rule ends a run for good.
            let interrupted = run.interrupted_by().is_some();
            let status = if interrupted { RunStatus::Failed } else { RunStatus::Cancelled };
            let message = reason.map_or_else(|| "cancelled".to_owned(), |reason| reason.message());
            end(status, None, Some(message.clone()), Some(&Code::Cancelled.into()))?;
            Envelope::Failed(Failure::new(Code::Cancelled, message))
        }
        Err(Stop::Interrupted) => {
            let message = unseen::question_text(&run.id.short_id(), &run.unseen_effects()?);
            end(RunStatus::Failed, None, Some(message.clone()), Some(&Code::Interrupted.into()))?;
            Envelope::Failed(Failure::new(Code::Interrupted, message))
        }
    })
}

/// Adds to the end of a run the effects that began and whose end was not seen, with the reasons.
fn tell_unseen(detail: &mut Value, unseen: &[Unseen]) {
    if unseen.is_empty() {
        return;
    }
    detail[CUT_OFF] = unseen.iter().map(|one| one.path.as_str()).collect();
    detail["unknown_ends"] = unseen
        .iter()
        .map(|one| json!({ "step": one.path, "reason": one.end.reason(), "end": one.end }))
        .collect();
}

/// Largest output that the history keeps in addition to the steps' own, in bytes of JSON.
const MAX_KEPT_OUTPUT: usize = 1 << 20;

/// Keeps an output for the history, unless it is large and not a step's own.
pub fn keep_output(run: &Run<'_>, output: &RunOutput) -> Result<Option<Blob>, StoreError> {
    if let Some(blob) = output.stored_blob() {
        return Ok(Some(blob));
    }
    let Ok(Some(lines)) = output.json_lines(MAX_KEPT_OUTPUT) else { return Ok(None) };
    run.store.put_blob(&lines).map(Some)
}

/// Opens the new gates, shows the first of them, and records the other waits.
///
/// A crash in between loses nothing: a waiting run without a gate and without a wait is resumed, and its waits are due
/// at once as long as there are gates to open.
fn pause_run(run: &Run<'_>, plan: &Plan) -> Result<Result<Envelope, StageError>, StoreError> {
    let mut pending = run.take_pending();
    pending.sort_by(|a, b| a.path.cmp(&b.path));
    let known = run.store.list_approvals(&GateFilter { status: None, run: Some(run.id), limit: 0 })?;
    // An answer arrived while this execution continued; the next execution will read it.
    let is_answered = |gate: &PendingGate| {
        known.iter().any(|other| {
            other.status == GateStatus::Answered
                && other.path == gate.path.as_str()
                && gate.binding.accepts_digest(other.binding)
                && other.answered_at.is_some_and(|at| at >= run.knows_until)
        })
    };
    let was_pending = !pending.is_empty();
    pending.retain(|gate| !is_answered(gate));
    let waits = run.take_left_at();
    if !waits.is_empty() && !pending.is_empty() {
        let at_once: Vec<_> =
            waits.iter().map(|wait| NewWait { due: Some(run.store.clock_ms()), ..wait.clone() }).collect();
        record_waits(run, &at_once)?;
    }
    let kind = match plan {
        Plan::Pipeline(_) => TokenKind::Pipeline,
        Plan::Workflow(_) => TokenKind::Workflow,
    };
    let waiting: Vec<_> = waits.iter().map(shown_wait).collect();
    let detail = if waiting.is_empty() { Value::Null } else { json!({ "waits": waiting }) };
    run.journal_end(vec![Event::RunPaused { detail }], Durability::Synced)?;
    let (mut shown, mut fresh) = (None, Vec::new());
    for gate in pending {
        let existing = known
            .iter()
            .find(|other| {
                other.status == GateStatus::Open
                    && other.path == gate.path.as_str()
                    && gate.binding.accepts_digest(other.binding)
            })
            .cloned();
        let opened = match existing {
            Some(open) => open,
            None => {
                let opened = open_request(run, &gate)?;
                tracing::info!(gate = opened.id, path = opened.path, "a person is asked");
                fresh.push(opened.clone());
                opened
            }
        };
        shown.get_or_insert((opened, gate));
    }
    super::notify::notify_of_gates(run, fresh);
    if !waits.is_empty() {
        record_waits(run, &waits)?;
    }
    let Some((opened, gate)) = shown else {
        if was_pending || !waits.is_empty() {
            return Ok(Ok(Envelope::Waiting(waiting)));
        }
        return Ok(Err(StageError::permanent("the run stopped for a person, but nothing was asked")));
    };
    Ok(request_envelope(run, kind, &opened, &gate))
}

fn record_waits(run: &Run<'_>, waits: &[NewWait]) -> Result<(), StoreError> {
    run.store.service()?.replace_waits(run.id, run.store.run(run.id)?.started_at, waits)
}

/// A wait in the journal and in the envelope.
fn shown_wait(wait: &NewWait) -> Value {
    json!({ "path": wait.path, "until": wait.due.map(iso), "event": wait.event })
}

fn open_request(run: &Run<'_>, gate: &PendingGate) -> Result<Gate, StoreError> {
    let mut detail = serde_json::to_value(&gate.question).unwrap_or(Value::Null);
    let going = match &gate.going {
        Some(shown) => shown.clone(),
        None => run.sets_going(gate)?,
    };
    if going != SetsGoing::default() {
        detail[KEPT] = json!(going);
    }
    run.store.open_gate(GateRecord {
        run: run.id,
        path: gate.path.to_string(),
        kind: match gate.question.question {
            Question::Approval { .. } => GateKind::Approval,
            Question::Input { .. } => GateKind::Input,
        },
        question: Value::Object(gate.question.request_fields()),
        binding: gate.binding.digest,
        expires_at: gate.question.identity.ttl_ms.map(|ttl| run.store.clock_ms().saturating_add(ttl)),
        required_approver: gate.question.identity.required_approver.clone(),
        detail,
    })
}

fn request_envelope(
    run: &Run<'_>,
    kind: TokenKind,
    opened: &Gate,
    gate: &PendingGate,
) -> Result<Envelope, StageError> {
    let token = Value::String(Token::encode(kind, opened.key));
    let mut request = gate.question.request_fields();
    match gate.question.question {
        Question::Approval { .. } => {
            request.insert("resumeToken".into(), token);
            request.insert("approvalId".into(), json!(opened.id));
            Ok(Envelope::NeedsApproval(Value::Object(request)))
        }
        Question::Input { .. } => {
            fit_subject(run, &gate.question, &mut request)?;
            if let (Mode::Human, Asker::Pipeline, Question::Input { items, .. }) =
                (run.services.mode, &gate.question.asker, &gate.question.question)
            {
                request.insert("items".into(), json!(items));
            }
            request.insert("resumeToken".into(), token);
            Ok(Envelope::NeedsInput(Value::Object(request)))
        }
    }
}

/// Largest envelope of an input request, and largest subject in it, in bytes; the incumbent's numbers.
const MAX_ENVELOPE: usize = 512_000;
const MAX_SUBJECT: usize = 192_000;
/// Bytes that the token adds to an envelope, in the incumbent's calculation.
const TOKEN_ALLOWANCE: usize = 220;
const SUBJECT_PREVIEW: usize = 2000;

/// Shortens the subject of a workflow step until the envelope fits; the recorded question stays whole.
fn fit_subject(
    run: &Run<'_>,
    question: &GateQuestion,
    request: &mut Map<String, Value>,
) -> Result<(), StageError> {
    let Asker::Step(id) = &question.asker else { return Ok(()) };
    let Some(subject) = request.get("subject").cloned() else { return Ok(()) };
    let max = run
        .services
        .env
        .value_of(&ENVELOPE_LIMIT)
        .map_err(StageError::permanent_from)?
        .unwrap_or(MAX_ENVELOPE);
    let size = |request: &Map<String, Value>| {
        json::pretty(&Envelope::NeedsInput(Value::Object(request.clone()))).len() + TOKEN_ALLOWANCE
    };
    if size(request) <= max {
        return Ok(());
    }
    let json = json::compact(&subject);
    let cut = |preview: String| json!({ "truncated": true, "bytes": json.len(), "preview": preview });
    if json.len() > MAX_SUBJECT {
        request.insert("subject".into(), cut(text::prefix(&json, SUBJECT_PREVIEW, Count::Utf16).to_owned()));
    }
    if size(request) > max {
        request.insert("subject".into(), cut("[subject omitted: envelope size limit]".to_owned()));
    }
    if size(request) > max {
        return Err(StageError::permanent(format!(
            "Workflow input step {id} needs_input envelope exceeds {max} bytes even after subject truncation"
        )));
    }
    Ok(())
}

impl Run<'_> {
    /// The signal or the lost client that stopped this execution, if no person or rule ended the run.
    fn interrupted_by(&self) -> Option<String> {
        match self.cancel.reason().filter(CancelReason::is_interruption)? {
            CancelReason::Signal(name) => Some(name),
            _ => Some("the client".to_owned()),
        }
    }

    /// True if the service started the run.
    fn is_of_service(&self) -> bool {
        let service = self.store.existing_service().ok().flatten();
        service.and_then(|service| service.start_of(self.id).ok().flatten()).is_some()
    }

    /// Journals the end of this execution after all buffered events.
    fn journal_end(&self, events: Vec<Event>, durability: Durability) -> Result<(), StoreError> {
        self.show_events(&events);
        let mut all = self.take_buffered();
        all.extend(events);
        self.store.append_events(self.id, all, durability)
    }
}
