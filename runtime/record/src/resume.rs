//! Continues a run: from a gate with an answer, or from the point where it was interrupted.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::authors::check_author;
use super::copied::{Copied, record_resumption, wrong_state};
use super::directory::{check_directory, kept_directory, last_cwd};
use super::fork::overseer_of_fork;
use super::incumbent_gates::{self, IncumbentGate};
use super::left_running::refuse_while_running;
use super::part_of_changes::part_of_question;
use super::requests::{detail_of_retry, requested_retry, unused_answers};
use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::schema::Schema;
use lobster_changes::Resolution;
use lobster_engine::author::Author;
use lobster_engine::beginning::Beginning;
use lobster_engine::binding::GateQuestion;
use lobster_engine::envelope::{Envelope, Failure};
use lobster_engine::kinds::changes::{REFUSED, recover_commits, resolve_conflicts};
use lobster_engine::kinds::finished_commits::record_unseen_ends;
use lobster_engine::recall::Resolved;
use lobster_engine::recorded_plan::load_recorded;
use lobster_engine::run::{Run, Task};
use lobster_engine::runtime::{RunResult, Runtime, read_source};
use lobster_engine::token::{Token, TokenKind};
use lobster_engine::{Interrupted, execute_plan, notify_of_end};
use lobster_language::plan::Plan;
use lobster_policy::Policy;
use lobster_stage::Question;
use lobster_store::{
    Answerer, Durability, Event, Gate, GateAnswer, GateFilter, GateStatus, Record as JournalRecord, RunId,
    RunStatus, StepStatus, Store, StoreError,
};

/// Reference to a gate.
#[derive(Clone, Debug)]
pub enum GateRef {
    /// The token of an envelope.
    Token(String),
    /// The short id.
    Id(String),
}

/// Reply of a person to a gate.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Approve,
    /// Approves only the file changes at these places.
    ApproveOnly(Vec<PathBuf>),
    Reject,
    Response(Value),
    Cancel,
}

/// An answer to a gate.
#[derive(Clone, Debug)]
pub struct ResumeRequest {
    /// The question.
    pub gate: GateRef,
    /// The answer.
    pub reply: Reply,
    /// The author of the answer; none for the user of this process.
    pub author: Option<Author>,
}

/// The policy of a run's start, if it came from a file, so that it need not be named again when the run's
/// questions are answered.
///
/// # Errors
/// If the run's journal cannot be read, or its policy is no longer available.
pub fn policy_of(runtime: &Runtime, run: RunId) -> Result<Option<Policy>, Failure> {
    let store = runtime.store()?;
    let Some(beginning) = Beginning::from_journal(&store, run)? else { return Ok(None) };
    let detail = beginning.detail();
    let digest =
        |key: &str| detail.get(key).and_then(Value::as_str).and_then(|hex| hex.parse::<Digest>().ok());
    let (Some(named), Some(document)) = (digest("policy"), digest("policyFile")) else { return Ok(None) };
    if named == Policy::builtin().digest() {
        return Ok(None);
    }
    const MAX_POLICY: u64 = 16 << 20;
    let bytes = store.load_blob(&document, MAX_POLICY)?;
    let policy = Policy::load_recorded(&String::from_utf8_lossy(&bytes));
    let policy = policy.ok().filter(|policy| policy.digest() == named);
    policy.map(Some).ok_or_else(|| {
        Failure::new(
            Code::Recording,
            format!(
                "run {run} began under a policy that this lobster cannot read; give it with LOBSTER_POLICY"
            ),
        )
    })
}

/// The open gate of this reference.
///
/// # Errors
/// If there is no such gate, or none that can still be answered.
pub fn open_gate(runtime: &Runtime, gate: &GateRef) -> Result<Gate, Failure> {
    find_approval(runtime, gate, None).map(|(gate, _)| gate)
}

/// Checks that the user of this process may approve the gate's question. The workflow or the policy may
/// reserve that for others.
///
/// # Errors
/// A sentence that names the approvers.
pub fn check_approver(runtime: &Runtime, gate: &Gate) -> Result<(), String> {
    let question = serde_json::from_value::<GateQuestion>(gate.detail.clone())
        .map_err(|_| "this lobster cannot read who may approve this".to_owned())?;
    question.check_approver(runtime.services.env.non_blank("LOBSTER_APPROVAL_APPROVED_BY").as_deref())
}

/// Answers a gate and continues its run.
pub fn answer_and_resume(runtime: &Runtime, request: &ResumeRequest) -> RunResult {
    let done = answer_approval(runtime, request, true).and_then(|answered| match answered {
        Answered::GoesOn(gate) => go_on(runtime, gate.run, Interrupted::Ask, Some(&gate), Copied::Refused),
        Answered::Ended(result) => Ok(result),
    });
    done.unwrap_or_else(RunResult::from)
}

/// Answers a gate without continuing its run, which is left to another process. A rejection ends the run as
/// usual.
pub fn record_answer(runtime: &Runtime, request: &ResumeRequest) -> RunResult {
    match answer_approval(runtime, request, false) {
        Ok(Answered::GoesOn(gate)) => left_result(gate.run),
        Ok(Answered::Ended(result)) => result,
        Err(failure) => failure.into(),
    }
}

/// Records that a run is to be retried, as [`resume_run`] does, without continuing it. The treatment of
/// interrupted effects applies to the present interrupted effects of the run.
pub fn record_retry(runtime: &Runtime, run: &str, interrupted: Interrupted) -> RunResult {
    match check_by_run(runtime, run, interrupted, None, true, Copied::Refused) {
        Ok((id, _)) => left_result(id),
        Err(failure) => failure.into(),
    }
}

/// The result of a run that another process will continue.
fn left_result(run: RunId) -> RunResult {
    RunResult { run: Some(run), envelope: Envelope::Waiting(Vec::new()), rendered: false }
}

/// The run of a gate, if the gate exists.
#[must_use]
pub fn run_of_gate(runtime: &Runtime, gate: &GateRef) -> Option<RunId> {
    let store = runtime.store().ok()?;
    match gate {
        GateRef::Id(id) => store.gate_by_id(id).ok().map(|gate| gate.run),
        GateRef::Token(text) => {
            store.approval_by_key(Token::decode(text).ok()?.key?).ok().map(|gate| gate.run)
        }
    }
}

/// Resumes a run that failed, was cancelled or was interrupted.
pub fn resume_run(runtime: &Runtime, run: &str, interrupted: Interrupted) -> RunResult {
    by_run(runtime, run, interrupted, None, Copied::Refused).unwrap_or_else(RunResult::from)
}

/// The same for a run whose file changes conflict with the present files. The committed change set is a
/// different one, and requires an approval if the first one did.
pub fn resume_conflicting(
    runtime: &Runtime,
    run: &str,
    interrupted: Interrupted,
    how: Resolution,
) -> RunResult {
    by_run(runtime, run, interrupted, Some(how), Copied::Refused).unwrap_or_else(RunResult::from)
}

/// Resumes an unfinished imported run and makes it a run of this store: like [`resume_run`], or like
/// [`resume_conflicting`] if `how` is given.
pub fn take_over(
    runtime: &Runtime,
    run: &str,
    interrupted: Interrupted,
    how: Option<Resolution>,
) -> RunResult {
    by_run(runtime, run, interrupted, how, Copied::TakenOver).unwrap_or_else(RunResult::from)
}

/// Cancels a run that no process is executing, and closes its open questions.
pub fn cancel_run(runtime: &Runtime, run: &str) -> RunResult {
    call_off(runtime, run).unwrap_or_else(RunResult::from)
}

/// The open gate of this reference, and the kind of its run.
fn find_approval(
    runtime: &Runtime,
    gate: &GateRef,
    reply: Option<&Reply>,
) -> Result<(Gate, TokenKind), Failure> {
    let store = runtime.store()?;
    let cancel = matches!(reply, Some(Reply::Cancel));
    let foreign = |gate: Option<IncumbentGate>| {
        gate.map(|gate| Failure::new(Code::QuestionClosed, gate.explain_refusal(runtime.state_dir(), reply)))
    };
    let (gate, kind) = match gate {
        GateRef::Id(id) => match store.gate_by_id(id) {
            Ok(gate) if gate.status == GateStatus::Open => {
                let kind = kind_of_run(runtime, gate.run)?;
                (Ok(gate), kind)
            }
            Ok(_) | Err(StoreError::UnknownGate(_)) => {
                return Err(foreign(incumbent_gates::by_id(runtime.state_dir(), id)).unwrap_or_else(|| {
                    Failure::parse_error(format!("Approval ID \"{id}\" not found or expired"))
                }));
            }
            Err(error) => return Err(error.into()),
        },
        GateRef::Token(text) => {
            let token = Token::decode(text).map_err(|error| Failure::parse_error(error.to_string()))?;
            let gate = token
                .key
                .ok_or_else(|| StoreError::UnknownGate(String::new()))
                .and_then(|key| store.approval_by_key(key));
            if let Err(StoreError::UnknownGate(_)) = gate
                && let Some(foreign) = foreign(incumbent_gates::by_key(runtime.state_dir(), &token.state_key))
            {
                return Err(foreign);
            }
            (gate, token.kind)
        }
    };
    match gate {
        Ok(gate) if gate.status == GateStatus::Open => Ok((gate, kind)),
        Ok(gate) if gate.status == GateStatus::Expired => Err(Failure::new(
            Code::QuestionClosed,
            format!(
                "{}: it has expired; `lobster resume {}` asks again",
                not_found(kind, cancel),
                gate.run.short_id(),
            ),
        )),
        Ok(_) | Err(StoreError::UnknownGate(_)) => {
            Err(Failure::new(Code::QuestionClosed, not_found(kind, cancel)))
        }
        Err(error) => Err(error.into()),
    }
}

/// Effect of a recorded answer on its run.
enum Answered {
    GoesOn(Box<Gate>),
    Ended(RunResult),
}

/// `goes_on` is true if this process will continue the run, so that it needs the run's secrets in any case.
fn answer_approval(runtime: &Runtime, request: &ResumeRequest, goes_on: bool) -> Result<Answered, Failure> {
    let store = runtime.store()?;
    let cancel = matches!(request.reply, Reply::Cancel);
    let (gate, kind) = find_approval(runtime, &request.gate, Some(&request.reply))?;
    let question: GateQuestion = serde_json::from_value(gate.detail.clone())
        .map_err(|_| Failure::new(Code::Recording, format!("Invalid {} resume state", kind.word())))?;
    let author = request.author.clone().unwrap_or_else(|| Author::of_process(&runtime.services.env));
    check_author(runtime, gate.run, (&author, &request.reply))?;
    let claimed = || runtime.services.env.non_blank("LOBSTER_APPROVAL_APPROVED_BY");
    let approver = author.name.clone().or_else(claimed);
    let by = Answerer { name: approver.as_deref(), author: &author.detail };
    let lost = |error: StoreError| match error {
        StoreError::UnknownGate(_) | StoreError::ConsumedGate { .. } => {
            Failure::new(Code::QuestionClosed, not_found(kind, cancel))
        }
        other => other.into(),
    };
    let answer = match (&request.reply, &question.question) {
        (Reply::Cancel, _) => {
            store.refuse_gate(gate.key, None, by, end_event(runtime, "cancelled")).map_err(lost)?;
            return Ok(Answered::Ended(cancelled_result(runtime, &store, gate.run)));
        }
        (Reply::Reject, Question::Approval { .. }) => {
            let no = Some(GateAnswer::Rejected);
            let mut end = end_event(runtime, "rejected");
            // In the same transaction, so that the rejection is never recorded without its reason.
            if let (Event::RunEnded { detail, .. }, Some(reason)) =
                (&mut end, runtime.services.env.non_blank("LOBSTER_APPROVAL_REASON"))
            {
                detail["reason"] = store.hide_secrets(&reason).into();
            }
            store.refuse_gate(gate.key, no, by, end).map_err(lost)?;
            return Ok(Answered::Ended(cancelled_result(runtime, &store, gate.run)));
        }
        (Reply::Approve, Question::Approval { .. }) => {
            question.check_approver(approver.as_deref()).map_err(Failure::parse_error)?;
            GateAnswer::Approved
        }
        (Reply::ApproveOnly(places), Question::Approval { .. }) => {
            question.check_approver(approver.as_deref()).map_err(Failure::parse_error)?;
            let part = part_of_question(&store, &gate, places)?;
            if part.count == part.of {
                GateAnswer::Approved
            } else {
                GateAnswer::ApprovedPart { changes: part.changes }
            }
        }
        (Reply::Response(_), Question::Approval { .. }) => {
            return Err(Failure::parse_error(kind.wants_approval()));
        }
        (Reply::Approve | Reply::ApproveOnly(_) | Reply::Reject, Question::Input { .. }) => {
            return Err(Failure::parse_error(kind.wants_response()));
        }
        (Reply::Response(value), Question::Input { schema, .. }) => {
            let schema = Schema::compile(schema).map_err(|why| Failure::new(Code::Recording, why))?;
            GateAnswer::Response(
                question.check_response(value.clone(), &schema).map_err(Failure::parse_error)?,
            )
        }
    };
    // A rejection starts nothing, so it is accepted even if the journal is damaged.
    let journal = sound_journal(&store, gate.run)?;
    check_unedited(runtime, &gate)?;
    if goes_on && let Ok((_, plan, args)) = read_start(&store, gate.run, &journal) {
        // Secrets must not appear in the answer either. A missing secret is reported when the run continues.
        let _ = runtime.prepare_secrets(&plan, &args);
    }
    store.answer_gate(gate.key, answer, by).map_err(lost)?;
    Ok(Answered::GoesOn(Box::new(gate)))
}

/// Refuses an answer inside a pipeline if the author has changed the file meanwhile, and leaves the gate
/// open. A run executes its recorded plan, but the answer is half of that pipeline's work, and the two halves
/// must not be mixed.
fn check_unedited(runtime: &Runtime, gate: &Gate) -> Result<(), Failure> {
    if !gate.path.contains('|') || gate.path.starts_with('|') {
        return Ok(());
    }
    let store = runtime.store()?;
    let summary = store.run(gate.run)?;
    let Plan::Workflow(workflow) = load_recorded::<Plan>(&store, &summary.plan)? else { return Ok(()) };
    match read_source(&workflow.file) {
        Ok(source) if source.digest != workflow.source => Err(Failure::new(
            Code::WorkflowChanged,
            format!(
                "workflow pipeline changed since input request: {} is not what it was when step '{}' asked; \
             undo the change, or run the workflow again",
                workflow.file.display(),
                gate.path
            ),
        )),
        _ => Ok(()),
    }
}

/// Resumes a run that does not wait at a gate.
fn by_run(
    runtime: &Runtime,
    text: &str,
    interrupted: Interrupted,
    how: Option<Resolution>,
    copied: Copied,
) -> Result<RunResult, Failure> {
    let (id, interrupted) = check_by_run(runtime, text, interrupted, how, false, copied)?;
    go_on(runtime, id, interrupted, None, copied)
}

/// Checks that a run without an open gate can be resumed, and records the request. `is_left` means that
/// another process resumes it.
fn check_by_run(
    runtime: &Runtime,
    text: &str,
    interrupted: Interrupted,
    how: Option<Resolution>,
    is_left: bool,
    copied: Copied,
) -> Result<(RunId, Interrupted), Failure> {
    let store = runtime.store()?;
    let id = store.find_run(text).map_err(|error| Failure::parse_error(error.to_string()))?;
    let summary = store.run(id)?;
    copied.ensure_taken_over(&store, id)?;
    let requested = requested_retry(&store, id)?;
    match summary.status {
        RunStatus::Ok => {
            return Err(wrong_state(format!(
                "run {id} has succeeded; there is nothing to resume. `lobster logs {id} --output` prints \
                 its result"
            )));
        }
        // It was interrupted during a wait, or killed between stopping and asking, or between an answer and
        // continuing.
        RunStatus::Waiting if !store.is_claimed(id) && !waits_for_people(&store, id)? => {}
        RunStatus::Waiting => {
            return Err(wrong_state(format!(
                "run {id} waits for a person; `lobster approvals` shows the question, and how to answer it"
            )));
        }
        RunStatus::Running if store.is_claimed(id) => {
            return Err(wrong_state(format!("run {id} is being executed by another process")));
        }
        RunStatus::Running if is_left && interrupted != Interrupted::Ask => {
            let (by, detail) = (runtime.services.actor(), detail_of_retry(interrupted));
            store.append_events(
                id,
                vec![Event::RetryRequested { path: None, by, detail }],
                Durability::Synced,
            )?;
        }
        RunStatus::Running => {}
        // A retry has been requested already, and no process has begun it.
        RunStatus::Failed | RunStatus::Cancelled
            if how.is_none()
                && interrupted == Interrupted::Ask
                && (requested.is_some() || has_unused_answer(&store, id)?) => {}
        RunStatus::Failed | RunStatus::Cancelled => {
            store.check_rollback()?;
            let journal = sound_journal(&store, id)?;
            refuse_called_off(&journal)?;
            refuse_undone(&journal)?;
            let failed_at = journal.iter().rev().find_map(|record| match &record.event {
                Event::RunEnded { detail, .. } => {
                    Some(detail.get("failed_at").and_then(Value::as_str).map(str::to_owned))
                }
                _ => None,
            });
            let event = Event::RetryRequested {
                path: failed_at.flatten(),
                by: runtime.services.actor(),
                detail: match how {
                    Some(how) => resolve_conflict(&store, &journal, id, how)?.to_detail(),
                    None if is_left => detail_of_retry(interrupted),
                    None => Value::Null,
                },
            };
            store.append_events(id, vec![event], Durability::Synced)?;
        }
    }
    let said = requested.filter(|_| interrupted == Interrupted::Ask);
    Ok((id, said.unwrap_or(interrupted)))
}

/// Change set to commit in place of the last conflicting one.
fn resolve_conflict(
    store: &Store,
    journal: &[JournalRecord],
    run: RunId,
    how: Resolution,
) -> Result<Resolved, Failure> {
    let refused = journal.iter().rev().find_map(|record| match &record.event {
        Event::StepEnded { outcome, .. } if outcome.status == StepStatus::Failed => {
            outcome.value.get(REFUSED)?.as_str()?.parse::<Digest>().ok()
        }
        _ => None,
    });
    let from = refused.ok_or_else(|| {
        wrong_state(format!("run {run} did not fail at a conflict of its changes to files"))
    })?;
    recover_commits(store).map_err(|error| Failure::new(Code::Changes, error.to_string()))?;
    Ok(Resolved { from, to: resolve_conflicts(store, &from, how)? })
}

/// Ends a run for good without executing any of it.
fn call_off(runtime: &Runtime, text: &str) -> Result<RunResult, Failure> {
    let store = runtime.store()?;
    let id = store.find_run(text).map_err(|error| Failure::parse_error(error.to_string()))?;
    if store.is_claimed(id) {
        return Err(wrong_state(format!(
            "run {id} is being executed by another process; interrupt that one"
        )));
    }
    settle_commits(&store, id)?;
    // Prevents other processes from resuming it meanwhile.
    let _claim = store.claim_run(id)?;
    let summary = store.run(id)?;
    match summary.status {
        RunStatus::Ok => {
            return Err(wrong_state(format!("run {id} has succeeded; there is nothing to cancel")));
        }
        RunStatus::Failed | RunStatus::Cancelled => refuse_called_off(&sound_journal(&store, id)?)?,
        RunStatus::Running | RunStatus::Waiting => {}
    }
    let name = runtime.services.env.non_blank("LOBSTER_APPROVAL_APPROVED_BY");
    let author = Author::of_process(&runtime.services.env).detail;
    let by = Answerer { name: name.as_deref(), author: &author };
    store.call_run_off(id, by, end_event(runtime, "cancelled"))?;
    Ok(cancelled_result(runtime, &store, id))
}

/// Completes commits of a run that is ended for good, because no later process would.
fn settle_commits(store: &Store, id: RunId) -> Result<(), Failure> {
    let recovered = recover_commits(store);
    if store.has_unfinished_commit(id).map_err(|error| Failure::new(Code::Store, error.to_string()))? {
        let why = match recovered {
            Err(error) => error.to_string(),
            Ok(_) => "another process is finishing it; try again".to_owned(),
        };
        let message = format!(
            "run {id} is not cancelled, because a commit of its changes to files is not finished: {why}"
        );
        return Err(Failure::new(Code::Changes, message));
    }
    Ok(record_unseen_ends(store, id)?)
}

/// Returns an error if a person ended the run, by cancelling it or by rejecting a question.
fn refuse_called_off(journal: &[JournalRecord]) -> Result<(), Failure> {
    let end = journal.iter().rev().find(|record| matches!(record.event, Event::RunEnded { .. }));
    match end.and_then(|end| Some((end.run, end.event.called_off()?))) {
        Some((run, how)) => Err(StoreError::CalledOff { run: run.to_string(), how: how.to_owned() }.into()),
        None => Ok(()),
    }
}

/// Refuses such a run because the file changes of its steps no longer exist.
fn refuse_undone(journal: &[JournalRecord]) -> Result<(), Failure> {
    let is_undone = journal.iter().any(|record| match &record.event {
        Event::StepEnded { path, outcome, .. } => {
            path.ends_with("!undo!changes") && outcome.status == StepStatus::Ok
        }
        _ => false,
    });
    if !is_undone {
        return Ok(());
    }
    let id = journal.first().map(|record| record.run.to_string()).unwrap_or_default();
    let message = format!(
        "run {id} undid its changes to files when it failed (`on_error: undo`), so it cannot be continued; start the \
         workflow again"
    );
    Err(wrong_state(message))
}

/// The journal of a run that is to be continued. If its chain is damaged, finished steps may be missing and
/// would run again, so that is an error.
pub(crate) fn sound_journal(store: &Store, run: RunId) -> Result<Vec<JournalRecord>, Failure> {
    store.verified_events(run).map_err(|error| match error {
        broken @ StoreError::BrokenChain { .. } => Failure::new(Code::Recording, format!(
            "{broken}; it is not resumed, because effects could run twice. `lobster show {run}` shows what is \
             left; restore the store from a backup, or start a new run"
        )),
        other => other.into(),
    })
}

/// True if a run waits only for people, and none of them has answered.
///
/// # Errors
/// If its record cannot be read.
pub fn waits_for_people(store: &Store, run: RunId) -> Result<bool, Failure> {
    Ok(store.run(run)?.status == RunStatus::Waiting
        && has_open_gate(store, run)?
        && !was_left_in_a_wait(store, run)?
        && !has_unused_answer(store, run)?)
}

/// True if a question of a run has been answered, and the run has not continued since.
///
/// # Errors
/// If its record cannot be read.
pub fn has_unused_answer(store: &Store, run: RunId) -> Result<bool, Failure> {
    Ok(!unused_answers(store, &store.events_after(run, 0, usize::MAX)?)?.is_empty())
}

fn has_open_gate(store: &Store, run: RunId) -> Result<bool, Failure> {
    let open = GateFilter { status: Some(GateStatus::Open), run: Some(run), limit: 1 };
    Ok(!store.list_approvals(&open)?.is_empty())
}

/// True if a run waits for other things besides people. Parts of it may be able to continue without an
/// answer.
fn was_left_in_a_wait(store: &Store, run: RunId) -> Result<bool, Failure> {
    let journal = store.events_after(run, 0, usize::MAX)?;
    let last = journal.iter().rev().find_map(|record| match &record.event {
        Event::RunPaused { detail } => Some(!detail["waits"].is_null()),
        _ => None,
    });
    Ok(last.unwrap_or(false))
}

/// Executes a run again from its recorded plan; finished steps are answered from the journal.
fn go_on(
    runtime: &Runtime,
    id: RunId,
    interrupted: Interrupted,
    gate: Option<&Gate>,
    copied: Copied,
) -> Result<RunResult, Failure> {
    let store = runtime.store()?;
    store.check_rollback()?;
    // Before the claim, so that the journal read afterwards contains the end of its own commit.
    runtime.finish_commits(&store);
    let claim = store.claim_run(id)?;
    copied.ensure_taken_over(&store, id)?;
    let journal = sound_journal(&store, id)?;
    // Before the claim, any process could have ended it.
    refuse_called_off(&journal)?;
    if interrupted == Interrupted::Retry {
        refuse_while_running(id)?;
    }
    let (task, plan, args) = read_start(&store, id, &journal)?;
    let ready = check_directory(&store, id);
    if let Err(missing) = ready.and_then(|()| runtime.prepare_secrets(&plan, &args)) {
        if let Some(gate) = gate {
            store.reopen_gate(gate.key)?;
        }
        return Err(missing);
    }
    let answered = gate.map_or_else(|| unused_answers(&store, &journal), |gate| Ok(vec![gate.clone()]))?;
    let last = last_cwd(&store, id, &journal)?;
    let own = kept_directory(runtime, &store, id, || Ok(last.clone()))?;
    record_resumption(runtime, &store, id, own.is_none() && (gate.is_some() || last.is_none()))?;
    if let Some(service) = store.existing_service()? {
        service.note_resumed(id)?;
    }
    let mut run =
        Run::from_journal(&runtime.services, store.clone(), Some(claim), id, task, &journal, interrupted)
            .doubting_imports(&journal)?;
    // After a crash, the run may be resumed from a directory other than the one in which it was started.
    if let Some(dir) = own.or_else(|| last.filter(|_| gate.is_none())) {
        run.cwd = dir;
    }
    if let Some(fork) = overseer_of_fork(&store, &journal)? {
        run = run.with_overseer(fork);
    }
    let envelope = execute_plan(&run, &plan, &args);
    // An answer about an interrupted step is valid when the step is repeated, which a person requests next.
    let has_no_use = |failure: &Failure| failure.code.known_code() != Some(Code::Interrupted);
    if matches!(&envelope, Envelope::Failed(failure) if has_no_use(failure)) && !run.has_done_effects() {
        // No effect was executed because of the answers, so the person can give them again.
        for gate in &answered {
            store.reopen_gate(gate.key)?;
        }
    }
    Ok(RunResult { run: Some(id), envelope, rendered: run.has_rendered() })
}

/// The plan and arguments of a run.
fn read_start(
    store: &Store,
    id: RunId,
    journal: &[JournalRecord],
) -> Result<(Task, Plan, Map<String, Value>), Failure> {
    let task = journal.iter().find_map(|record| match &record.event {
        Event::RunStarted { plan, args, .. } => Some(Task { plan: *plan, args: *args }),
        _ => None,
    });
    let task = task.ok_or_else(|| {
        Failure::new(Code::Recording, format!("the journal of run {id} does not name its plan"))
    })?;
    let plan = load_recorded(store, &task.plan)?;
    let args = task.args.map_or_else(|| Ok(Map::new()), |digest| load_recorded(store, &digest))?;
    Ok((task, plan, args))
}

/// The end of a run that a person cancelled.
fn end_event(runtime: &Runtime, how: &str) -> Event {
    let env = &runtime.services.env;
    let detail = json!({
        "answer": how,
        "actor": runtime.services.actor(),
        "message": env.non_blank("LOBSTER_MESSAGE_ID"),
    });
    Event::RunEnded { status: RunStatus::Cancelled, output: None, error: None, detail }
}

fn cancelled_result(runtime: &Runtime, store: &Store, run: RunId) -> RunResult {
    notify_of_end(&runtime.services, store, run, RunStatus::Cancelled, None, None);
    RunResult { run: Some(run), envelope: Envelope::Cancelled, rendered: false }
}

fn kind_of_run(runtime: &Runtime, id: RunId) -> Result<TokenKind, Failure> {
    let summary = runtime.store().and_then(|store| store.run(id))?;
    Ok(if summary.kind == "pipeline" { TokenKind::Pipeline } else { TokenKind::Workflow })
}

fn not_found(kind: TokenKind, cancel: bool) -> String {
    if cancel {
        "Resume state not found".to_owned()
    } else {
        format!("{} resume state not found", kind.title())
    }
}
