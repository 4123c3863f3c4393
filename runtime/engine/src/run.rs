//! One execution of a plan: what it remembers. How an effect happens once is in [`super::effects`].
//!
//! Executing is deterministic apart from effects and answers, and those are
//! journaled under their [`StepPath`]. So a stopped run goes on by executing its
//! plan again from the beginning: whatever the journal knows is answered from
//! there, and the first thing it does not know is where the work continues.

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
use super::execute::{Executor, Order, OrderId, Outcome, SecretSource, SessionEnd};
use super::outcome::failed_outcome;
use super::overseer::Overseer;
use super::path::StepPath;
use super::recall::{Recall, SUMMARY};
use super::services::Services;
use super::surroundings::Surroundings;
use super::value::Scratch;
use crate::kinds::mcp_servers::Servers;
use crate::known_settings::INITIATED_BY;
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::sync::lock;
use lobster_models::Spend;
use lobster_models::ledger::RESERVED;
use lobster_observe::telemetry::{RunTrace, TRACEPARENT};
use lobster_stage::{Destination, Registry, StageError, Stop, Token, store_failure};
use lobster_store::{
    Durability, Event, NewWait, Record as JournalRecord, RunClaim, RunId, StepOutcome, StepStatus, Store,
    StoreError, Sweep,
};

/// What to do with an effect that an earlier process started and did not end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Interrupted {
    /// Stop and say so: a person decides.
    #[default]
    Ask,
    /// Run it again, unless a process of it is still running.
    Retry,
    /// Run it again in any case.
    RetryAnyway,
    /// Take it as failed without running it again.
    Skip,
}

/// What a run executes: the blobs of its plan and of its arguments, if it has any.
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
    /// Where relative paths start: the caller's directory, or the one that an interrupted run was in.
    pub cwd: PathBuf,
    /// The policy that answers are bound to.
    pub policy: Digest,
    /// What decisions about it depend on, as it was when the run began.
    pub(crate) surroundings: Surroundings,
    /// An agent started it over MCP.
    pub(crate) is_of_agent: bool,
    /// Stops this execution: all that is under way in it, and nothing else of its process.
    pub(super) cancel: CancelToken,
    /// The person who started it, whoever goes on with it.
    initiated_by: Option<String>,
    overseer: Option<Arc<dyn Overseer>>,
    interrupted: Interrupted,
    pub(super) recall: Mutex<Recall>,
    /// Events whose loss would only cost recomputation; written with the next durable one.
    buffered: Mutex<Buffered>,
    pending: Mutex<Vec<PendingGate>>,
    /// What it was left at, to go on when that is over.
    left_at: Mutex<Vec<(StepPath, NewWait)>>,
    pub(super) activity: Activity,
    /// Up to when this execution knows what was answered, in milliseconds since 1970.
    pub(super) knows_until: i64,
    /// Questions whose answers were taken over from another run.
    unconfirmed: Mutex<Vec<PendingGate>>,
    failed_at: Mutex<Option<StepPath>>,
    did_effect: AtomicBool,
    rendered: AtomicBool,
    /// A person at the terminal said no.
    refused: AtomicBool,
    /// Values that components keep during an execution that is not recorded.
    scratch: Scratch,
    /// Places where something was done that must not be done twice.
    once_only: Mutex<Vec<StepPath>>,
    /// Components in use, by digest or by the file they came from.
    components: Mutex<HashMap<String, Component>>,
    /// Servers whose tools this execution calls.
    pub(crate) servers: Servers,
    /// What this execution has found out and kept so far.
    kept: Mutex<HashMap<StepPath, Value>>,
    /// The commands that it uses.
    pub(super) registry: OnceLock<Registry>,
    /// Nothing is taken from the action cache.
    cache_disabled: bool,
    /// The trace that its spans go to, if they go anywhere.
    pub(crate) trace: Option<RunTrace>,
    /// What carries out its effects.
    executor: Box<dyn Executor + 's>,
    /// Removes what killed processes have left in the state directory.
    _sweep: Option<Sweep>,
    /// Nobody else executes this run meanwhile.
    _claim: Option<RunClaim>,
}

/// Lazy events are written at the latest when there are this many: a transaction
/// costs the store about the same whether it brings a hundred or some thousands.
const MAX_BUFFERED: usize = 4096;

/// How long an event may wait for the next one: the most that a crash makes a run
/// compute again, besides the step that was under way.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Events whose loss would only cost recomputation, until they are written.
#[derive(Default)]
struct Buffered {
    events: Vec<Event>,
    /// When the first of them came.
    since: Option<Instant>,
}

impl Buffered {
    /// Takes an event; says whether it is time to write.
    fn push(&mut self, event: Event) -> bool {
        self.events.push(event);
        let since = *self.since.get_or_insert_with(Instant::now);
        self.events.len() >= MAX_BUFFERED || since.elapsed() >= MAX_WAIT
    }
}

/// Whether what the first record says of the caller is said of an agent.
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
            _sweep: claim.as_ref().map(|_| store.sweep()),
            trace: services.trace(id, services.env.get(TRACEPARENT).as_deref()),
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
            cancel: services.cancel.child(),
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

    /// A run that goes on from its journal.
    pub fn recalled(
        services: &'s Services,
        store: Store,
        claim: Option<RunClaim>,
        id: RunId,
        task: Task,
        journal: &[JournalRecord],
        interrupted: Interrupted,
    ) -> Self {
        let mut run = Self { interrupted, ..Self::fresh(services, store, claim, id, task) };
        // What was asked for at the beginning holds to the end, and whoever goes on with it: it is
        // still the agent's, and in its trace.
        if let Some(Event::RunStarted { detail, .. }) = journal.first().map(|record| &record.event) {
            run.cache_disabled |= super::reuse::was_off(&detail["settings"]);
            run.is_of_agent = is_of_agent(&detail["caller"]);
            let initiator = detail["settings"][INITIATED_BY.name].as_str().map(str::trim);
            if let Some(by) = initiator.filter(|by| !by.is_empty()) {
                run.initiated_by = Some(by.to_owned());
            }
            run.trace = services.trace(id, detail["traceparent"].as_str());
            if let Some(recorded) = Surroundings::recorded(detail) {
                run.surroundings = recorded;
            }
        }
        // What was answered after this was read is found by the next execution.
        run.knows_until = journal.last().map_or(run.knows_until, |last| last.at);
        lock(&run.recall).read(journal);
        run
    }

    /// Who may answer the gates that do not say it.
    pub(crate) fn default_identity(&self) -> Identity {
        identity_from_env(&self.services.env, self.initiated_by.as_deref())
    }

    /// The same execution, watched over.
    pub fn overseen(mut self, overseer: Arc<dyn Overseer>) -> Self {
        self.overseer = Some(overseer);
        self
    }

    /// The name of the order for this attempt at an effect.
    pub(crate) fn order_id(&self, path: &StepPath) -> OrderId {
        OrderId { run: self.id, path: path.to_string(), attempt: path.attempt_number() }
    }

    /// Has an order carried out. What nobody saw the end of says so.
    pub(crate) fn carry_out(&self, order: Order, cancel: &CancelToken) -> Outcome {
        let id = order.id.clone();
        // Whatever led here: without a journal nothing leaves the engine.
        if let Err(error) = self.check_performs(&id.place().into()) {
            return failed_outcome(&error).into();
        }
        let done = self.executor.submit(order).and_then(|()| self.executor.wait(&id, cancel));
        done.unwrap_or_else(|error| error.outcome())
    }

    /// Checks that an effect may be performed here, which no record can say.
    pub(super) fn check_performs(&self, path: &StepPath) -> Result<(), StageError> {
        if self.overseer().is_none_or(|overseer| overseer.performs(path)) {
            return Ok(());
        }
        let message = format!("{path} would be performed, and here nothing is");
        Err(StageError::permanent(message).with_code(Code::Diverged))
    }

    /// Whether the session that an order of this run opened is still of use.
    pub(crate) fn has_session(&self, session: &OrderId) -> bool {
        // One that cannot be asked for is opened anew, which tells what is wrong.
        self.executor.has_session(session).unwrap_or(false)
    }

    /// What ends the session that an order opens.
    pub(crate) fn session_end(&self, session: &OrderId) -> SessionEnd {
        self.executor.session_end(session)
    }

    /// Who watches over this execution.
    pub(crate) fn overseer(&self) -> Option<&dyn Overseer> {
        self.overseer.as_deref()
    }

    /// Where components keep values instead of the store, if this execution is not recorded.
    pub(crate) fn scratch(&self) -> Option<Scratch> {
        (!self.journals()).then(|| Arc::clone(&self.scratch))
    }

    /// What an action holds instead of the values of granted secrets.
    pub(crate) fn named_secrets(&self, path: &StepPath, grants: &BTreeMap<String, String>) -> Value {
        let recorded = self.overseer().and_then(|overseer| overseer.secrets(path));
        self.services.secrets.named(grants, recorded.as_ref())
    }

    /// The value of a variable that holds a token: of the secret that is granted as it, else of the
    /// environment. What is answered from a record needs no value, and gets none that is not known.
    pub(crate) fn token(&self, env: &Env, variable: &str) -> Result<Option<Token>, StageError> {
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
        let value = self.services.values(&grant)?.into_iter().next().map(|(_, value)| value);
        Ok(value.map(|value| Token { value, secret: Some(secret.clone()) }))
    }

    /// The credential that the step is granted for a request to this place. As with [`Run::token`], what is
    /// answered from a record needs no value.
    pub(crate) fn credential(&self, env: &Env, to: Destination<'_>) -> Result<Option<Token>, StageError> {
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
        let value = self.services.values(&grant)?.into_iter().next().map(|(_, value)| value);
        Ok(value.map(|value| Token { value, secret: Some(secret.to_owned()) }))
    }

    /// Whether this execution is written into the run's journal.
    pub(crate) fn journals(&self) -> bool {
        self.overseer.as_ref().is_none_or(|overseer| overseer.journals())
    }

    /// Remembers where a failure came from, for a later retry.
    pub(super) fn located<T>(&self, path: &StepPath, result: Result<T, Stop>) -> Result<T, Stop> {
        if matches!(result, Err(Stop::Failed(_) | Stop::Cancelled)) {
            self.record_failure(path);
        }
        result
    }

    /// Notes the place of the latest failure.
    pub(crate) fn record_failure(&self, path: &StepPath) {
        *lock(&self.failed_at) = Some(path.clone());
    }

    /// Forgets a failure inside this place that something made up for: whatever
    /// ends the run later is not there.
    pub(crate) fn clear_failure_within(&self, path: &StepPath) {
        let mut failed_at = lock(&self.failed_at);
        if failed_at.as_ref().is_some_and(|known| known.is_within(path)) {
            *failed_at = None;
        }
    }

    /// Notes a failure that came up at this place, unless it came from inside it.
    pub(crate) fn record_failure_if_new(&self, path: &StepPath) {
        let mut failed_at = lock(&self.failed_at);
        if !failed_at.as_ref().is_some_and(|known| known.is_within(path)) {
            *failed_at = Some(path.clone());
        }
    }

    /// The place of the latest failure.
    pub fn failed_at(&self) -> Option<StepPath> {
        lock(&self.failed_at).clone()
    }

    /// What to do with effects that an earlier process began and did not end.
    pub(super) fn interrupted(&self) -> Interrupted {
        self.interrupted
    }

    /// Notes that this execution begins an effect.
    pub(super) fn note_effect(&self) {
        self.did_effect.store(true, Ordering::Relaxed);
    }

    /// Whether this execution has begun any effect, as opposed to remembering it.
    pub fn has_done_effects(&self) -> bool {
        self.did_effect.load(Ordering::Relaxed)
    }

    /// Notes that something was done here that no retry may repeat.
    pub(crate) fn forbid_retry(&self, path: &StepPath) {
        lock(&self.once_only).push(path.clone());
    }

    /// Whether what was done inside this place may be tried again.
    pub(crate) fn may_retry(&self, path: &StepPath) -> bool {
        !lock(&self.once_only).iter().any(|place| place.is_within(path))
    }

    /// Notes that a person was shown something.
    pub(crate) fn note_rendered(&self) {
        self.rendered.store(true, Ordering::Relaxed);
    }

    /// Whether a person was shown something.
    pub fn has_rendered(&self) -> bool {
        self.rendered.load(Ordering::Relaxed)
    }

    /// Stops all that is under way, because a person said no.
    pub(super) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
        self.cancel.cancel(CancelReason::Requested("Not approved".to_owned()));
    }

    /// Whether a person at the terminal said no.
    pub(super) fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether a question waits that came up in this execution.
    pub(super) fn has_pending(&self) -> bool {
        !lock(&self.pending).is_empty()
    }

    /// Whether the journal knows how this attempt ended.
    pub(crate) fn remembers(&self, path: &StepPath) -> bool {
        let recall = lock(&self.recall);
        recall.ended.keys().any(|known| known.is_within(path))
    }

    /// Keeps a value that execution found out and must find the same again; not
    /// an effect, so it needs no sync and may be found out anew after a crash.
    pub fn keep(
        &self,
        path: &StepPath,
        find: impl FnOnce() -> Result<Value, StageError>,
    ) -> Result<Value, Stop> {
        if let Some(outcome) = self.remembered(path) {
            return Ok(outcome.value.clone());
        }
        let value = find().inspect_err(|_| self.record_failure(path))?;
        let mut outcome = StepOutcome::new(StepStatus::Ok);
        outcome.value = value.clone();
        self.append_unsynced(ended_event(path, Arc::new(outcome)))?;
        lock(&self.kept).insert(path.clone(), value.clone());
        Ok(value)
    }

    /// What was kept at a place, now or in an earlier execution.
    pub(crate) fn kept(&self, path: &StepPath) -> Option<Value> {
        let now = lock(&self.kept).get(path).cloned();
        now.or_else(|| self.remembered(path).map(|outcome| outcome.value.clone()))
    }

    /// A component that this run uses, loaded the first time it is asked for.
    pub(crate) fn loaded<E>(
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

    /// The outcome of a composite step or decision that was journaled earlier.
    pub(crate) fn remembered(&self, path: &StepPath) -> Option<Arc<StepOutcome>> {
        lock(&self.recall).ended.get(path).cloned()
    }

    /// Journals a step's summary for the history; it is recomputed, not recalled.
    pub(crate) fn summarise(
        &self,
        path: &StepPath,
        mut outcome: StepOutcome,
        kind: &str,
    ) -> Result<(), Stop> {
        if let Some(overseer) = &self.overseer {
            overseer.summary(path, &outcome);
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

    /// Journals something whose loss would only cost recomputation.
    pub fn append_unsynced(&self, event: Event) -> Result<(), Stop> {
        if !self.journals() {
            return Ok(());
        }
        self.show(std::slice::from_ref(&event));
        let due = lock(&self.buffered).push(event);
        if due { self.append(Vec::new(), Durability::Lazy) } else { Ok(()) }
    }

    /// Journals what a call of a model may cost, before it is made.
    pub(crate) fn note_reserved(&self, path: &StepPath, detail: Value) -> Result<(), StageError> {
        let note = Event::Note { path: Some(path.to_string()), text: RESERVED.to_owned(), detail };
        self.append(vec![note], Durability::Synced).map_err(|stop| match stop {
            Stop::Failed(error) => error,
            _ => StageError::permanent("the run has ended").with_code(Code::Cancelled),
        })
    }

    /// What earlier executions of this run paid models for, with the place of each call.
    pub(super) fn paid_earlier(&self) -> Vec<(String, Spend)> {
        // A replay performs nothing, and its steps tell everything again.
        if self.journals() { lock(&self.recall).paid_earlier() } else { Vec::new() }
    }

    /// Journals events after all that was buffered. Nothing goes on once a person has ended the run.
    pub(crate) fn append(&self, events: Vec<Event>, durability: Durability) -> Result<(), Stop> {
        if self.journals() {
            self.show(&events);
        }
        let mut all = self.take_buffered();
        all.extend(events);
        if all.is_empty() || !self.journals() {
            return Ok(());
        }
        self.store.append(self.id, all, durability).map_err(|error| self.stop_by(error))
    }

    /// Stops this execution if a person has ended the run from another process.
    pub(super) fn check_not_called_off(&self) -> Result<(), Stop> {
        self.store.check_not_called_off(self.id).map_err(|error| self.stop_by(error))
    }

    /// How an error of the store stops this execution.
    fn stop_by(&self, error: StoreError) -> Stop {
        if let StoreError::CalledOff { .. } = error {
            // What else is under way has to end, too.
            self.cancel.cancel(CancelReason::Requested(error.to_string()));
            return Stop::Cancelled;
        }
        store_failure(error)
    }

    /// The change set that is committed where this one was to be: another one after a conflict.
    pub(crate) fn resolved(&self, set: Digest) -> Digest {
        lock(&self.recall).resolved(set)
    }

    /// Shows events to whoever watches the run.
    pub(super) fn show(&self, events: &[Event]) {
        if let Some(progress) = self.services.progress.as_deref().filter(|_| !events.is_empty()) {
            progress.recorded(events);
        }
    }

    /// Whether nothing is to be taken from the action cache.
    pub(super) fn ignores_cache(&self) -> bool {
        self.cache_disabled
    }

    /// Whether an earlier execution began an effect here and did not see it end.
    pub(super) fn is_cut_off(&self, path: &StepPath) -> bool {
        lock(&self.recall).started.contains(path)
    }

    /// The same of an effect that a place belongs to.
    pub(super) fn is_cut_off_around(&self, path: &StepPath) -> bool {
        lock(&self.recall).started.iter().any(|started| path.is_within(started))
    }

    /// Takes what was held back.
    pub(crate) fn take_buffered(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.buffered)).events
    }

    /// The answer to a question at this place, if it was given; `binding` is what would be asked now.
    pub(crate) fn answer(&self, path: &StepPath, binding: &Binding) -> Result<Option<KnownAnswer>, Stop> {
        let known = lock(&self.recall).answers.get(path).cloned();
        match &self.overseer {
            Some(overseer) => overseer.answer(path, binding, known),
            None => Ok(known),
        }
    }

    /// Whether the question at this place was answered in this run.
    pub(crate) fn is_answered(&self, path: &StepPath) -> bool {
        lock(&self.recall).answers.get(path).is_some_and(|known| known.from.is_none())
    }

    /// Whether an answer stands in the journal, wherever it was given.
    pub(crate) fn has_answer(&self, path: &StepPath) -> bool {
        lock(&self.recall).answers.contains_key(path)
    }

    /// Notes a question whose answer was taken over.
    pub(crate) fn unconfirmed(&self, gate: PendingGate) {
        lock(&self.unconfirmed).push(gate);
    }

    /// Asks again what other runs were answered, now that an effect is about to
    /// be performed: nobody has approved that it happens once more.
    pub(super) fn confirm(&self) -> Result<(), Stop> {
        let unconfirmed = lock(&self.unconfirmed);
        if unconfirmed.is_empty() || !self.journals() {
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

    /// Remembers an answer that was just given, so that the rest of this execution sees it.
    pub(crate) fn remember_answer(&self, path: &StepPath, answer: KnownAnswer) {
        lock(&self.recall).answers.insert(path.clone(), answer);
    }

    /// Registers a question that nobody could answer now.
    pub(crate) fn pend(&self, gate: PendingGate) {
        lock(&self.pending).push(gate);
    }

    /// Takes the questions that came up, in the order of their places in the plan.
    pub(crate) fn take_pending(&self) -> Vec<PendingGate> {
        std::mem::take(&mut *lock(&self.pending))
    }

    /// Notes what the run waits for when it is left; somebody else takes it up again.
    pub(super) fn leave_at(&self, path: &StepPath, due: Option<u64>, event: Option<&str>) {
        let wait = NewWait {
            path: path.to_string(),
            due: due.map(|due| i64::try_from(due).unwrap_or(i64::MAX)),
            event: event.map(str::to_owned),
        };
        lock(&self.left_at).push((path.clone(), wait));
    }

    /// What the run waits for, besides people.
    pub(super) fn take_left_at(&self) -> Vec<NewWait> {
        let mut waits: Vec<_> =
            std::mem::take(&mut *lock(&self.left_at)).into_iter().map(|(_, wait)| wait).collect();
        waits.sort_by(|a, b| a.path.cmp(&b.path));
        waits
    }

    /// Forgets questions and waits inside a place whose outcome no longer matters.
    pub(crate) fn drop_pending(&self, within: &StepPath) {
        lock(&self.pending).retain(|gate| !gate.path.is_within(within));
        lock(&self.left_at).retain(|(path, _)| !path.is_within(within));
    }
}

/// The end of an effect, as the journal has it.
pub(super) fn ended_event(path: &StepPath, outcome: Arc<StepOutcome>) -> Event {
    Event::StepEnded { path: path.to_string(), attempt: path.attempt_number(), begun: None, outcome }
}

/// The secret of the credential for a request to this place, which is within its bounds.
fn credential_for<'e>(env: &'e Env, to: Destination<'_>) -> Option<&'e str> {
    let grant = env.credentials().iter().find(|grant| grant.host.is(to.host, to.port))?;
    grant.check("POST", to.path).is_ok().then_some(grant.secret.as_str())
}
