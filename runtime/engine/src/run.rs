//! One execution of a plan, and its memory. [`super::effects`] makes sure that each effect happens once.
//!
//! Execution is deterministic apart from effects and answers, which are journaled under their [`StepPath`]. So a
//! stopped run is resumed by executing its plan again from the beginning: the journal answers for everything that it
//! knows, and the work continues with the first thing that it does not know.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use lobster_component::Component;
use serde_json::{Value, json};

use super::activity::Activity;
use super::approval::identity_from_env;
use super::binding::PendingGate;
use super::binding::{Binding, Identity, KnownAnswer};
use super::env::Env;
use super::overseer::Overseer;
use super::path::StepPath;
use super::recall::{Recall, SUMMARY};
use super::services::Services;
use super::surroundings::Surroundings;
use crate::kinds::mcp_servers::Servers;
use crate::known_settings::INITIATED_BY;
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::sync::lock;
use lobster_executor::Scratch;
use lobster_executor::failed_outcome;
use lobster_executor::{Executor, Order, OrderId, Outcome, SecretSource, SessionEnd};
use lobster_models::Spend;
use lobster_models::ledger::RESERVED;
use lobster_observe::telemetry::{RunTrace, TRACEPARENT};
use lobster_stage::{Destination, Registry, StageError, Stop, Token, store_failure};
use lobster_store::{
    Durability, Event, NewWait, Record as JournalRecord, RunClaim, RunId, StepOutcome, StepStatus, Store,
    StoreError, Sweep,
};

/// The treatment of an effect that an earlier process started and did not end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupted {
    /// Stop and report it: a person decides.
    #[default]
    Ask,
    /// Run it again, unless one of its processes is still running.
    Retry,
    /// Run it again in any case.
    RetryAnyway,
    /// Treat it as failed without running it again.
    Skip,
}

/// The work of a run: the blobs of its plan and of its arguments, if it has any.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Task {
    pub plan: Digest,
    pub args: Option<Digest>,
}

/// One execution.
pub struct Run<'s> {
    pub services: &'s Services,
    pub(crate) store: Store,
    pub id: RunId,
    pub task: Task,
    /// Start of relative paths: the caller's directory, or the directory of the interrupted run.
    pub cwd: PathBuf,
    /// The policy that answers are bound to.
    pub policy: Digest,
    /// The facts for decisions, as they were when the run began.
    pub(crate) surroundings: Surroundings,
    /// True if an agent started it over MCP.
    pub(crate) is_of_agent: bool,
    /// Stops all work of this execution, and nothing else in its process.
    pub(super) cancel: CancelToken,
    /// The person who started it, even if another person resumed it.
    initiated_by: Option<String>,
    overseer: Option<Arc<dyn Overseer>>,
    interrupted: Interrupted,
    pub(super) recall: Mutex<Recall>,
    /// Events whose loss would only cost recomputation; written with the next durable one.
    buffered: Mutex<Buffered>,
    /// Questions that could not be answered at once.
    pub(super) pending: Mutex<Vec<PendingGate>>,
    /// The waits at which the run was left; it is resumed when they are over.
    left_at: Mutex<Vec<(StepPath, NewWait)>>,
    pub(super) activity: Activity,
    /// Time of the last answer that this execution knows, in milliseconds since 1970.
    pub(super) knows_until: i64,
    /// Questions whose answers were taken over from another run.
    pub(super) unconfirmed: Mutex<Vec<PendingGate>>,
    failed_at: Mutex<Option<StepPath>>,
    did_effect: AtomicBool,
    rendered: AtomicBool,
    /// True if a person at the terminal rejected it.
    refused: AtomicBool,
    /// Values that components keep during an execution that is not recorded.
    scratch: Scratch,
    /// Paths whose work must not be repeated.
    once_only: Mutex<Vec<StepPath>>,
    /// Components in use, by digest or by file.
    components: Mutex<HashMap<String, Component>>,
    /// Servers whose tools this execution calls.
    pub(crate) servers: Servers,
    /// Values that this execution has decided and recorded so far.
    kept: Mutex<HashMap<StepPath, Value>>,
    /// The commands of this execution.
    pub(super) registry: OnceLock<Registry>,
    /// True if nothing is taken from the action cache.
    pub(super) cache_disabled: bool,
    /// The trace of its spans, if they are exported.
    pub(crate) trace: Option<RunTrace>,
    /// The executor of its effects.
    executor: Box<dyn Executor + 's>,
    /// Removes files that killed processes have left in the state directory.
    _sweep: Option<Sweep>,
    /// The claim that keeps other processes from executing this run.
    _claim: Option<RunClaim>,
}

/// Most buffered events: a transaction costs the store about the same with a hundred events or some thousands.
const MAX_BUFFERED: usize = 4096;

/// Longest time for which an event is buffered. After a crash, at most this much has to be computed again, besides the
/// running step.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Events whose loss would only cost recomputation, until they are written.
#[derive(Default)]
struct Buffered {
    events: Vec<Event>,
    /// Time of the first of them.
    since: Option<Instant>,
}

impl Buffered {
    /// Adds an event; returns true if the events should be written now.
    fn push_event(&mut self, event: Event) -> bool {
        self.events.push(event);
        let since = *self.since.get_or_insert_with(Instant::now);
        self.events.len() >= MAX_BUFFERED || since.elapsed() >= MAX_WAIT
    }
}

/// True if the first record names an agent as the caller.
fn is_of_agent(caller: &Value) -> bool {
    caller["via"] == "mcp"
}

impl<'s> Run<'s> {
    /// A run that has just been created.
    pub(crate) fn fresh(
        services: &'s Services,
        store: Store,
        claim: Option<RunClaim>,
        id: RunId,
        task: Task,
    ) -> Self {
        let executor = services.executor(&store);
        Self {
            services,
            executor,
            _sweep: claim.as_ref().map(|_| store.start_sweep()),
            trace: services.run_trace(id, services.env.get(TRACEPARENT).as_deref()),
            knows_until: store.clock_ms(),
            left_at: Mutex::default(),
            activity: Activity::default(),
            store,
            id,
            task,
            cwd: services.cwd.clone(),
            policy: services.policy_digest(),
            surroundings: services.surroundings(),
            is_of_agent: is_of_agent(&services.caller.detail),
            cancel: services.cancel.child_token(),
            initiated_by: services.env.non_blank(INITIATED_BY.name),
            overseer: None,
            interrupted: Interrupted::Ask,
            recall: Mutex::default(),
            buffered: Mutex::default(),
            pending: Mutex::default(),
            unconfirmed: Mutex::default(),
            failed_at: Mutex::default(),
            did_effect: AtomicBool::new(false),
            rendered: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            scratch: Arc::default(),
            once_only: Mutex::default(),
            components: Mutex::default(),
            servers: Servers::default(),
            kept: Mutex::default(),
            registry: OnceLock::new(),
            cache_disabled: super::reuse::is_off(&services.env),
            _claim: claim,
        }
    }

    /// A run that continues from its journal.
    pub fn from_journal(
        services: &'s Services,
        store: Store,
        claim: Option<RunClaim>,
        id: RunId,
        task: Task,
        journal: &[JournalRecord],
        interrupted: Interrupted,
    ) -> Self {
        let mut run = Self { interrupted, ..Self::fresh(services, store, claim, id, task) };
        // Settings from the beginning stay valid even if another caller resumes the run: it still belongs to the agent
        // and to its trace.
        if let Some(Event::RunStarted { detail, .. }) = journal.first().map(|record| &record.event) {
            run.cache_disabled |= super::reuse::was_off(&detail["settings"]);
            run.is_of_agent = is_of_agent(&detail["caller"]);
            let initiator = detail["settings"][INITIATED_BY.name].as_str().map(str::trim);
            if let Some(by) = initiator.filter(|by| !by.is_empty()) {
                run.initiated_by = Some(by.to_owned());
            }
            run.trace = services.run_trace(id, detail["traceparent"].as_str());
            if let Some(recorded) = Surroundings::from_detail(detail) {
                run.surroundings = recorded;
            }
        }
        // Later answers are found by the next execution.
        run.knows_until = journal.last().map_or(run.knows_until, |last| last.at);
        lock(&run.recall).read_journal(journal);
        run
    }

    /// The permitted approvers of gates that name none.
    pub(crate) fn default_identity(&self) -> Identity {
        identity_from_env(&self.services.env, self.initiated_by.as_deref())
    }

    /// The same execution with an overseer.
    pub fn with_overseer(mut self, overseer: Arc<dyn Overseer>) -> Self {
        self.overseer = Some(overseer);
        self
    }

    /// The id of the order for this attempt at an effect.
    pub(crate) fn order_id(&self, path: &StepPath) -> OrderId {
        OrderId { run: self.id, path: path.to_string(), attempt: path.attempt_number() }
    }

    /// Has the executor carry out an order. If its end was not seen, the outcome says so.
    pub(crate) fn carry_out(&self, order: Order, cancel: &CancelToken) -> Outcome {
        // A safeguard: without a journal nothing leaves the engine.
        if let Err(error) = self.check_performs(&order.id.place().into()) {
            return failed_outcome(&error).into();
        }
        self.executor.execute(order, cancel).unwrap_or_else(|error| error.to_outcome())
    }

    /// Checks that an effect which no record answers may be performed here.
    pub(super) fn check_performs(&self, path: &StepPath) -> Result<(), StageError> {
        if self.overseer().is_none_or(|overseer| overseer.can_perform(path)) {
            return Ok(());
        }
        let message = format!("{path} would be performed, and this execution performs nothing");
        Err(StageError::permanent(message).with_code(Code::Diverged))
    }

    /// True if an execution without a journal performs this effect, as `replay --live` does.
    pub(crate) fn performs_unjournaled(&self, path: &StepPath) -> bool {
        !self.is_journaled() && self.overseer().is_some_and(|overseer| overseer.can_perform(path))
    }

    /// Checks that a person may be asked about the command at this path.
    pub(crate) fn check_asks(&self, path: &StepPath) -> Result<(), Stop> {
        let checked = self.overseer().map_or(Ok(()), |overseer| overseer.check_asks(path));
        checked.inspect_err(|_| self.record_failure(path))
    }

    /// True if the session that an order of this run opened can still be used.
    pub(crate) fn has_session(&self, session: &OrderId) -> bool {
        // If the check fails, a new session is opened, and its error shows the problem.
        self.executor.has_session(session).unwrap_or(false)
    }

    /// The handle that ends the session of an order.
    pub(crate) fn session_end(&self, session: &OrderId) -> SessionEnd {
        self.executor.session_end(session)
    }

    /// The overseer of this execution.
    pub(crate) fn overseer(&self) -> Option<&dyn Overseer> {
        self.overseer.as_deref()
    }

    /// The memory in which components keep values instead of the store, if this execution is not recorded.
    pub(crate) fn scratch(&self) -> Option<Scratch> {
        (!self.is_journaled()).then(|| Arc::clone(&self.scratch))
    }

    /// The description of granted secrets in an action, in place of their values.
    pub(crate) fn named_secrets(&self, path: &StepPath, grants: &BTreeMap<String, String>) -> Value {
        let recorded = self.overseer().and_then(|overseer| overseer.recorded_secrets(path));
        self.services.secrets.describe_grants(grants, recorded.as_ref())
    }

    /// The value of a variable with a token: the secret that is granted as this variable, else the environment's. An
    /// answer from a record needs no value, so an unknown value is not looked up.
    pub(crate) fn find_token(&self, env: &Env, variable: &str) -> Result<Option<Token>, StageError> {
        match env.secrets().get(variable) {
            Some(secret) if self.overseer().is_some() => {
                let value = self.services.secrets.known_value(secret).unwrap_or_default();
                Ok(Some(Token { value, secret: Some(secret.clone()) }))
            }
            _ => self.token_to_send(env, variable),
        }
    }

    /// The same for a call that is made now.
    pub(crate) fn token_to_send(&self, env: &Env, variable: &str) -> Result<Option<Token>, StageError> {
        let Some(secret) = env.secrets().get(variable) else {
            return Ok(env.get(variable).map(Token::of_environment));
        };
        let grant = BTreeMap::from([(variable.to_owned(), secret.clone())]);
        let value = self.services.secret_values(&grant)?.into_iter().next().map(|(_, value)| value);
        Ok(value.map(|value| Token { value, secret: Some(secret.clone()) }))
    }

    /// The credential that the step is granted for a request to this destination. Like [`Run::find_token`], it is not
    /// looked up for an answer from a record.
    pub(crate) fn find_credential(
        &self,
        env: &Env,
        to: Destination<'_>,
    ) -> Result<Option<Token>, StageError> {
        match credential_for(env, to) {
            Some(secret) if self.overseer().is_some() => {
                let value = self.services.secrets.known_value(secret).unwrap_or_default();
                Ok(Some(Token { value, secret: Some(secret.to_owned()) }))
            }
            _ => self.credential_to_send(env, to),
        }
    }

    /// The same for a call that is made now.
    pub(crate) fn credential_to_send(
        &self,
        env: &Env,
        to: Destination<'_>,
    ) -> Result<Option<Token>, StageError> {
        let Some(secret) = credential_for(env, to) else { return Ok(None) };
        let grant = BTreeMap::from([(secret.to_owned(), secret.to_owned())]);
        let value = self.services.secret_values(&grant)?.into_iter().next().map(|(_, value)| value);
        Ok(value.map(|value| Token { value, secret: Some(secret.to_owned()) }))
    }

    /// True if this execution writes to the run's journal.
    pub(crate) fn is_journaled(&self) -> bool {
        self.overseer.as_ref().is_none_or(|overseer| overseer.is_journaled())
    }

    /// Records the path of a failure, for a later retry.
    pub(super) fn locate_failure<T>(&self, path: &StepPath, result: Result<T, Stop>) -> Result<T, Stop> {
        if matches!(result, Err(Stop::Failed(_) | Stop::Cancelled)) {
            self.record_failure(path);
        }
        result
    }

    /// Records the path of the latest failure.
    pub(crate) fn record_failure(&self, path: &StepPath) {
        *lock(&self.failed_at) = Some(path.clone());
    }

    /// Drops a recorded failure inside this path that was handled: a later end of the run has another cause.
    pub(crate) fn clear_failure_within(&self, path: &StepPath) {
        let mut failed_at = lock(&self.failed_at);
        if failed_at.as_ref().is_some_and(|known| known.is_within(path)) {
            *failed_at = None;
        }
    }

    /// Records this path for a failure, unless the failure came from inside it.
    pub(crate) fn record_failure_if_new(&self, path: &StepPath) {
        let mut failed_at = lock(&self.failed_at);
        if !failed_at.as_ref().is_some_and(|known| known.is_within(path)) {
            *failed_at = Some(path.clone());
        }
    }

    /// The path of the latest failure.
    pub fn failed_at(&self) -> Option<StepPath> {
        lock(&self.failed_at).clone()
    }

    /// The treatment of effects that an earlier process began and did not end.
    pub(super) fn interrupted(&self) -> Interrupted {
        self.interrupted
    }

    /// Records that this execution begins an effect.
    pub(super) fn note_effect(&self) {
        self.did_effect.store(true, Ordering::Relaxed);
    }

    /// True if this execution has begun an effect itself.
    pub fn has_done_effects(&self) -> bool {
        self.did_effect.load(Ordering::Relaxed)
    }

    /// Marks a path whose work no retry may repeat.
    pub(crate) fn forbid_retry(&self, path: &StepPath) {
        lock(&self.once_only).push(path.clone());
    }

    /// True if the work inside this path may be retried.
    pub(crate) fn may_retry(&self, path: &StepPath) -> bool {
        !lock(&self.once_only).iter().any(|place| place.is_within(path))
    }

    /// Records that a person was shown something.
    pub(crate) fn note_rendered(&self) {
        self.rendered.store(true, Ordering::Relaxed);
    }

    /// True if a person was shown something.
    pub fn has_rendered(&self) -> bool {
        self.rendered.load(Ordering::Relaxed)
    }

    /// Stops all work, because a person rejected the run.
    pub(super) fn stop_rejected(&self) {
        self.refused.store(true, Ordering::Relaxed);
        self.cancel.cancel(CancelReason::Requested("Not approved".to_owned()));
    }

    /// True if a person at the terminal rejected the run.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// True if a question of this execution waits for an answer.
    pub(super) fn has_pending(&self) -> bool {
        !lock(&self.pending).is_empty()
    }

    /// True if the journal has the end of this attempt.
    pub(crate) fn has_recorded_end(&self, path: &StepPath) -> bool {
        let recall = lock(&self.recall);
        recall.ended.keys().any(|known| known.is_within(path))
    }

    /// Records a value that later executions must use again. It is not an effect, so it needs no sync, and after a
    /// crash it may be decided again.
    pub fn record_value(
        &self,
        path: &StepPath,
        find: impl FnOnce() -> Result<Value, StageError>,
    ) -> Result<Value, Stop> {
        if let Some(outcome) = self.recorded_outcome(path) {
            return Ok(outcome.value.clone());
        }
        let value = find().inspect_err(|_| self.record_failure(path))?;
        let mut outcome = StepOutcome::new(StepStatus::Ok);
        outcome.value = value.clone();
        self.append_unsynced(ended_event(path, Arc::new(outcome)))?;
        lock(&self.kept).insert(path.clone(), value.clone());
        Ok(value)
    }

    /// The value recorded at a path, by this or an earlier execution.
    pub(crate) fn recorded_value(&self, path: &StepPath) -> Option<Value> {
        let now = lock(&self.kept).get(path).cloned();
        now.or_else(|| self.recorded_outcome(path).map(|outcome| outcome.value.clone()))
    }

    /// A component of this run, loaded on first use.
    pub(crate) fn load_component<E>(
        &self,
        key: &str,
        load: impl FnOnce() -> Result<Component, E>,
    ) -> Result<Component, E> {
        if let Some(component) = lock(&self.components).get(key) {
            return Ok(component.clone());
        }
        let component = load()?;
        lock(&self.components).insert(key.to_owned(), component.clone());
        Ok(component)
    }

    /// The outcome of a composite step or decision from the journal.
    pub(crate) fn recorded_outcome(&self, path: &StepPath) -> Option<Arc<StepOutcome>> {
        lock(&self.recall).ended.get(path).cloned()
    }

    /// Journals a step's summary for the history; it is recomputed, not recalled.
    pub(crate) fn record_summary(
        &self,
        path: &StepPath,
        mut outcome: StepOutcome,
        kind: &str,
    ) -> Result<(), Stop> {
        if let Some(overseer) = &self.overseer {
            overseer.report_summary(path, &outcome);
        }
        if !lock(&self.recall).summarised.insert(path.clone()) {
            return Ok(());
        }
        outcome.detail = json!({ "kind": kind });
        self.append_unsynced(Event::StepEnded {
            path: path.to_string(),
            attempt: SUMMARY,
            begun: None,
            outcome: Arc::new(outcome),
        })
    }

    /// Journals an event whose loss would only cost recomputation.
    pub fn append_unsynced(&self, event: Event) -> Result<(), Stop> {
        if !self.is_journaled() {
            return Ok(());
        }
        self.show_events(std::slice::from_ref(&event));
        let due = lock(&self.buffered).push_event(event);
        if due { self.append_events(Vec::new(), Durability::Lazy) } else { Ok(()) }
    }

    /// Journals the reserved cost of a model call, before the call.
    pub(crate) fn note_reserved(&self, path: &StepPath, detail: Value) -> Result<(), StageError> {
        let note = Event::Note { path: Some(path.to_string()), text: RESERVED.to_owned(), detail };
        self.append_events(vec![note], Durability::Synced).map_err(|stop| match stop {
            Stop::Failed(error) => error,
            _ => StageError::permanent("the run has ended").with_code(Code::Cancelled),
        })
    }

    /// The recorded costs of this run's earlier executions, with the path of each call.
    pub(super) fn paid_earlier(&self) -> Vec<(String, Spend)> {
        // A replay performs nothing, and its steps report all costs again.
        if self.is_journaled() { lock(&self.recall).paid_earlier() } else { Vec::new() }
    }

    /// Journals events after all buffered ones. Nothing is journaled once a person has ended the run.
    pub(crate) fn append_events(&self, events: Vec<Event>, durability: Durability) -> Result<(), Stop> {
        if self.is_journaled() {
            self.show_events(&events);
        }
        let mut all = self.take_buffered();
        all.extend(events);
        if all.is_empty() || !self.is_journaled() {
            return Ok(());
        }
        self.store.append_events(self.id, all, durability).map_err(|error| self.stop_by(error))
    }

    /// Stops this execution if a person has ended the run from another process.
    pub(super) fn check_not_called_off(&self) -> Result<(), Stop> {
        self.store.check_not_called_off(self.id).map_err(|error| self.stop_by(error))
    }

    /// Converts an error of the store into the stop of this execution.
    fn stop_by(&self, error: StoreError) -> Stop {
        if let StoreError::CalledOff { .. } = error {
            // All other work has to end as well.
            self.cancel.cancel(CancelReason::Requested(error.to_string()));
            return Stop::Cancelled;
        }
        store_failure(error)
    }

    /// The change set that is committed in place of this one, after a conflict; else this one.
    pub(crate) fn resolved_set(&self, set: Digest) -> Digest {
        lock(&self.recall).resolved_set(set)
    }

    /// Shows events to the watcher of the run.
    pub(super) fn show_events(&self, events: &[Event]) {
        if let Some(progress) = self.services.progress.as_deref().filter(|_| !events.is_empty()) {
            progress.events_recorded(events);
        }
    }

    /// True if an earlier execution began an effect at this path and did not see its end.
    pub(super) fn is_cut_off(&self, path: &StepPath) -> bool {
        lock(&self.recall).started.contains(path)
    }

    /// The same for an effect at this path or around it.
    pub(super) fn is_cut_off_around(&self, path: &StepPath) -> bool {
        lock(&self.recall).started.iter().any(|started| path.is_within(started))
    }

    /// Takes the buffered events.
    pub(crate) fn take_buffered(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.buffered)).events
    }

    /// The answer to the question at this path, if there is one; `binding` belongs to the current question.
    pub(crate) fn find_answer(
        &self,
        path: &StepPath,
        binding: &Binding,
    ) -> Result<Option<KnownAnswer>, Stop> {
        let known = lock(&self.recall).answers.get(path).cloned();
        match &self.overseer {
            Some(overseer) => overseer.replace_answer(path, binding, known),
            None => Ok(known),
        }
    }

    /// True if the question at this path was answered in this run.
    pub(crate) fn is_answered(&self, path: &StepPath) -> bool {
        lock(&self.recall).answers.get(path).is_some_and(|known| known.from.is_none())
    }

    /// Asks the questions again that were answered in other runs, before an effect is performed: those answers did not
    /// approve its repetition.
    pub(super) fn confirm_answers(&self) -> Result<(), Stop> {
        let unconfirmed = lock(&self.unconfirmed);
        if unconfirmed.is_empty() || !self.is_journaled() {
            return Ok(());
        }
        let mut pending = lock(&self.pending);
        for gate in unconfirmed.iter() {
            if !pending.iter().any(|other| other.path == gate.path) {
                pending.push(gate.clone());
            }
        }
        Err(Stop::Paused)
    }

    /// Adds a new answer, so that the rest of this execution sees it.
    pub(crate) fn remember_answer(&self, path: &StepPath, answer: KnownAnswer) {
        lock(&self.recall).answers.insert(path.clone(), answer);
    }

    /// Takes the registered questions, in the order of their paths in the plan.
    pub(crate) fn take_pending(&self) -> Vec<PendingGate> {
        std::mem::take(&mut *lock(&self.pending))
    }

    /// Records a wait at which the run is left; the service resumes the run later.
    pub(super) fn leave_at(&self, path: &StepPath, due: Option<u64>, event: Option<&str>) {
        let wait = NewWait {
            path: path.to_string(),
            due: due.map(|due| i64::try_from(due).unwrap_or(i64::MAX)),
            event: event.map(str::to_owned),
        };
        lock(&self.left_at).push((path.clone(), wait));
    }

    /// The recorded waits for times and events.
    pub(super) fn take_left_at(&self) -> Vec<NewWait> {
        let mut waits: Vec<_> =
            std::mem::take(&mut *lock(&self.left_at)).into_iter().map(|(_, wait)| wait).collect();
        waits.sort_by(|a, b| a.path.cmp(&b.path));
        waits
    }

    /// Drops questions and waits inside a path whose outcome no longer matters.
    pub(crate) fn drop_pending(&self, within: &StepPath) {
        lock(&self.pending).retain(|gate| !gate.path.is_within(within));
        lock(&self.left_at).retain(|(path, _)| !path.is_within(within));
    }
}

/// The journal event for the end of an effect.
pub(super) fn ended_event(path: &StepPath, outcome: Arc<StepOutcome>) -> Event {
    Event::StepEnded { path: path.to_string(), attempt: path.attempt_number(), begun: None, outcome }
}

/// The secret of the credential whose bounds allow a request to this destination.
fn credential_for<'e>(env: &'e Env, to: Destination<'_>) -> Option<&'e str> {
    let grant = env.credentials().iter().find(|grant| grant.host.is_for(to.host, to.port))?;
    grant.check_bounds("POST", to.path).is_ok().then_some(grant.secret.as_str())
}
