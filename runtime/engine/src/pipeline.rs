//! Drives pipelines: items are pushed from stage to stage.

use lobster_base::code::Code;
use lobster_executor::failed_outcome;
use std::cell::{Cell, RefCell};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lobster_component::{DirGrant, Grants, Limits, LoadError, read_file};
use serde_json::{Value, json};

use super::action::{ActionRecord, Preimage};
use super::binding::{Asker, GateQuestion, Identity};
use super::budget::Budget;
use super::env::Env;
use super::kinds::component::{self, JobInput};
use super::path::StepPath;
use super::requests::Requests;
use super::reuse::Reuse;
use super::run::Run;
use super::unseen::UnseenEnd;
use super::value::{ItemSpool, Items, Rendered, Text};
use crate::kinds::pile::Pile;
use crate::kinds::{mcp, native, readable, restore_terminal, user_state};
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::json;
use lobster_base::json::raw::RawItem;
use lobster_base::sync::lock;
use lobster_base::text::{self, Count};
use lobster_language::pipeline::{self, Pipeline};
use lobster_language::plan::{ChangesMode, Extras};
use lobster_models::budget::Account;
use lobster_models::cost::CostTracker;
use lobster_stage::{
    Answer, Commit, ComponentCall, ComponentDir, ComponentProgram, Destination, EffectAction, EffectHost,
    Flow, Host, Mode, NativeCommand, NativeOutcome, Payload, Question, Registry, Rendering, Sink, Spool,
    Stage, StageArgs, StageError, Stop, Token, ToolCall, WorstCase, read_raw,
};
use lobster_store::{StepOutcome, StepStatus};

/// The context in which a pipeline runs.
#[derive(Clone)]
pub(crate) struct PipelineContext {
    pub(crate) path: StepPath,
    pub(crate) env: Env,
    pub(crate) cwd: PathBuf,
    pub(crate) asker: Asker,
    pub(crate) cancel: CancelToken,
    /// True if the output of renderers is kept instead of shown.
    pub(crate) capture: bool,
    /// The tracker that adds up the costs of model calls, and the step's name in it.
    pub(crate) cost: Option<(Arc<Mutex<CostTracker>>, String)>,
    /// The budgets for model calls.
    pub(crate) account: Arc<Account>,
    /// The step's settings for its effects.
    pub(crate) extras: Option<Extras>,
    /// The changes that wait.
    pub(crate) pile: Arc<Pile>,
}

impl PipelineContext {
    /// True if the author declares that repeating the effects is the same as performing them once.
    fn is_idempotent(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.idempotent)
    }
}

/// The input of the first stage.
#[derive(Clone, Debug)]
pub(crate) enum PipelineInput {
    Nothing,
    /// An array's elements, or the one value.
    Value(Arc<Value>),
    Items(Items),
}

/// The result of a pipeline.
pub(crate) struct Done {
    pub(crate) items: Items,
    /// The captured output of renderers.
    pub(crate) rendered: Rendered,
}

/// The reason why pipeline text did not run to the end of the pipeline.
pub(crate) enum TextStop {
    Syntax(String),
    Stop(Stop),
}

/// Parses and runs pipeline text.
pub(crate) fn run_text(
    run: &Run<'_>,
    text: &str,
    input: PipelineInput,
    place: PipelineContext,
) -> Result<Done, TextStop> {
    let pipeline = pipeline::parse(text).map_err(|error| TextStop::Syntax(error.to_string()))?;
    run_pipeline(run, &pipeline, input, place).map_err(TextStop::Stop)
}

/// Builds every stage, which checks names and arguments, without running anything.
pub(crate) fn build(
    registry: &Registry,
    pipeline: &Pipeline,
) -> Result<Vec<Box<dyn Stage + Send>>, StageError> {
    let refused = |error: StageError| error.or_code(Code::BadArguments);
    pipeline.stages.iter().map(|call| registry.build(&call.name, &call.args).map_err(refused)).collect()
}

/// Runs a pipeline to the end.
pub(crate) fn run_pipeline(
    run: &Run<'_>,
    pipeline: &Pipeline,
    input: PipelineInput,
    place: PipelineContext,
) -> Result<Done, Stop> {
    let stages = build(run.registry(), pipeline)?;
    pin_components(run, pipeline, &place)?;
    let starts = matches!(input, PipelineInput::Nothing);
    let shared = Shared {
        run,
        place,
        rendered: RefCell::default(),
        has_failed: Cell::default(),
        deferred: RefCell::default(),
    };
    let mut slots: Vec<_> = stages
        .into_iter()
        .enumerate()
        .zip(&pipeline.stages)
        .map(|((index, stage), call)| Slot {
            stage,
            path: shared.place.path.stage(index),
            span: tracing::info_span!("stage", name = call.name, index),
            effects: 0,
            gates: 0,
            starts: starts && index == 0,
            enough: false,
        })
        .collect();
    let mut spool = ItemSpool::new(run.store.clone());
    feed_input(&mut slots, &shared, &mut spool, &input)?;
    finish_stages(&mut slots, &shared, &mut spool)?;
    for (path, action, commit) in shared.deferred.take() {
        shared.effect_at(&path, action, commit)?;
    }
    if shared.place.cancel.is_cancelled() {
        return Err(Stop::Cancelled);
    }
    Ok(Done { items: spool.finish()?, rendered: shared.rendered.take() })
}

/// Pins all components before any stage runs, so that a person who is asked in between approves what runs afterwards.
fn pin_components(run: &Run<'_>, pipeline: &Pipeline, place: &PipelineContext) -> Result<(), Stop> {
    for (index, call) in pipeline.stages.iter().enumerate() {
        let named = match call.args.positional.as_slice() {
            [named] if call.name == "component" && !named.starts_with("blake3:") => named,
            _ => continue,
        };
        run.record_value(&pin_path(&place.path.stage(index)), || {
            let path = place.cwd.join(named);
            let bytes = read_file(&path).map_err(|error| {
                let why = match error {
                    LoadError::Read { source, .. } => source.to_string(),
                    other => other.to_string(),
                };
                StageError::permanent(format!("component {}: {why}", path.display()))
                    .with_code(Code::Component)
            })?;
            component::store_component(&run.store, &bytes)
                .map(|digest| json!(digest))
                .map_err(StageError::permanent_from)
        })?;
    }
    Ok(())
}

/// The path under which the digest of a stage's component is kept.
fn pin_path(stage: &StepPath) -> StepPath {
    stage.gate("component")
}

fn feed_input(
    slots: &mut [Slot],
    shared: &Shared<'_, '_>,
    out: &mut ItemSpool,
    input: &PipelineInput,
) -> Result<(), Stop> {
    let items = match input {
        PipelineInput::Nothing => return Ok(()),
        PipelineInput::Items(items) => return items.for_each(|item| push_item(slots, shared, out, item)),
        PipelineInput::Value(value) => match &**value {
            Value::Array(items) => items.as_slice(),
            Value::Null => &[],
            single => std::slice::from_ref(single),
        },
    };
    for item in items {
        if push_item(slots, shared, out, item.clone())? == Flow::Enough {
            break;
        }
    }
    Ok(())
}

fn push_item(
    slots: &mut [Slot],
    shared: &Shared<'_, '_>,
    out: &mut ItemSpool,
    item: Value,
) -> Result<Flow, Stop> {
    let Some((slot, rest)) = slots.split_first_mut() else {
        out.push(item)?;
        return Ok(Flow::More);
    };
    slot.feed_stage(shared, rest, out, |stage, host, out| stage.process_item(item, host, out))
}

/// Like [`push_item`], for an item that has not been parsed yet.
fn push_raw(
    slots: &mut [Slot],
    shared: &Shared<'_, '_>,
    out: &mut ItemSpool,
    item: RawItem<'_>,
) -> Result<Flow, Stop> {
    let Some((slot, rest)) = slots.split_first_mut() else {
        out.push(read_raw(item)?)?;
        return Ok(Flow::More);
    };
    slot.feed_stage(shared, rest, out, |stage, host, out| stage.process_raw(item, host, out))
}

fn finish_stages(slots: &mut [Slot], shared: &Shared<'_, '_>, out: &mut ItemSpool) -> Result<(), Stop> {
    let Some((slot, rest)) = slots.split_first_mut() else { return Ok(()) };
    if shared.place.cancel.is_cancelled() {
        return Err(Stop::Cancelled);
    }
    let _in = slot.span.clone().entered();
    let (stage, mut host) = slot.stage_and_host(shared);
    stage
        .end_input(&mut host, &mut Downstream { rest, shared, out })
        .map_err(|stop| shared.stage_failure(stop, host.path))?;
    finish_stages(rest, shared, out)
}

struct Slot {
    stage: Box<dyn Stage + Send>,
    path: StepPath,
    span: tracing::Span,
    /// The number of effects and gates that the stage has had; they are matched by their order.
    effects: usize,
    gates: usize,
    /// True for the first stage: it has no input, which differs from an empty input.
    starts: bool,
    enough: bool,
}

impl Slot {
    /// Passes an item to the stage, unless the stage has finished.
    fn feed_stage(
        &mut self,
        shared: &Shared<'_, '_>,
        rest: &mut [Slot],
        out: &mut ItemSpool,
        give: impl FnOnce(&mut dyn Stage, &mut dyn Host, &mut dyn Sink) -> Result<Flow, Stop>,
    ) -> Result<Flow, Stop> {
        if self.enough {
            return Ok(Flow::Enough);
        }
        if shared.place.cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        let _in = self.span.clone().entered();
        let (stage, mut host) = self.stage_and_host(shared);
        let flow = give(stage, &mut host, &mut Downstream { rest, shared, out })
            .map_err(|stop| shared.stage_failure(stop, host.path))?;
        self.enough = flow == Flow::Enough;
        Ok(flow)
    }

    /// The stage, and its host.
    fn stage_and_host<'h, 'r, 's>(
        &'h mut self,
        shared: &'h Shared<'r, 's>,
    ) -> (&'h mut (dyn Stage + Send), StageHost<'h, 'r, 's>) {
        let host = StageHost {
            shared,
            path: &self.path,
            effects: &mut self.effects,
            gates: &mut self.gates,
            starts: self.starts,
        };
        (&mut *self.stage, host)
    }
}

struct Downstream<'d, 'r, 's> {
    rest: &'d mut [Slot],
    shared: &'d Shared<'r, 's>,
    out: &'d mut ItemSpool,
}

impl Sink for Downstream<'_, '_, '_> {
    fn emit_item(&mut self, item: Value) -> Result<Flow, Stop> {
        push_item(self.rest, self.shared, self.out, item)
    }

    fn emit_raw(&mut self, item: RawItem<'_>) -> Result<Flow, Stop> {
        push_raw(self.rest, self.shared, self.out, item)
    }
}

struct Shared<'r, 's> {
    run: &'r Run<'s>,
    place: PipelineContext,
    rendered: RefCell<Rendered>,
    has_failed: Cell<bool>,
    /// Commits to perform after the whole pipeline has succeeded.
    deferred: RefCell<Vec<(StepPath, EffectAction, Commit)>>,
}

impl Shared<'_, '_> {
    /// Adds the stage to a failure and records its path: the stage in which it happened first, not an earlier stage
    /// that passes it on.
    fn stage_failure(&self, stop: Stop, path: &StepPath) -> Stop {
        let Stop::Failed(error) = stop else { return stop };
        if !self.has_failed.replace(true) {
            self.run.record_failure_if_new(path);
        }
        Stop::Failed(error.or_code(Code::CommandError))
    }

    fn effect_at(
        &self,
        path: &StepPath,
        action: EffectAction,
        perform: impl FnOnce(&EffectHost<'_>) -> Result<Value, StageError>,
    ) -> Result<Value, Stop> {
        if ["state.set", "http", lobster_stages::HOST_COMMAND].contains(&action.kind.as_str()) {
            let what = format!("{path} changes something that no preview keeps apart ({})", action.kind);
            self.place.pile.make_way_for(self.run, &what, &self.place.cancel)?;
        }
        let record = ActionRecord {
            kind: action.kind.clone(),
            preimage: Preimage::from_json(&json!({ "kind": action.kind, "detail": action.detail }))?,
            decision: Value::Null,
            idempotent: action.idempotent || self.place.is_idempotent(),
            on_record: None,
            variables: Arc::default(),
        };
        let cancel = &self.place.cancel;
        let requests = Requests::new(self.run, path, record.preimage.digest, cancel);
        let budget = Budget::new(self.run, self.place.cost.as_ref(), &self.place.account);
        let result = self.run.perform_once(
            path,
            &record,
            || {
                let env = |name: &str| self.place.env.get(name);
                let state_dir = match user_state::directory(self.run.services, &self.place.env, &action.kind)
                {
                    Ok(dir) => dir,
                    Err(error) => return failed_outcome(&error),
                };
                let reserve = |worst: &WorstCase| {
                    let (detail, line) = budget.reserve(worst)?;
                    if let Some(line) = line {
                        self.run.services.print_note(&line);
                    }
                    self.run.note_reserved(path, detail)
                };
                let host = EffectHost {
                    reserve: &reserve,
                    give_back: &|| budget.give_back(),
                    cancel,
                    state_dir: &state_dir,
                    is_under_policy: !self.run.services.policy.is_open(),
                    env: &env,
                    plan_env: &self.place.env.granted_values(),
                    token: &|name| self.run.token_to_send(&self.place.env, name),
                    credential: &|to| self.run.credential_to_send(&self.place.env, to),
                    cwd: &self.place.cwd,
                    open: &|path| readable::open(self.run, path),
                    send: &|request| requests.send_request(request),
                };
                let given = perform(&host);
                let outcome = match (requests.lost_outcome(), given) {
                    // The command may have turned the error into another one.
                    (Some(lost), _) => budget.add_lost_calls(lost),
                    (None, Ok(value)) => {
                        let mut outcome = StepOutcome::new(StepStatus::Ok);
                        outcome.value = budget.add_paid_calls(value);
                        outcome
                    }
                    (None, Err(error)) => {
                        budget.add_lost_calls(effect_failed(error, cancel, record.idempotent))
                    }
                };
                budget.describe_outcome(&action, outcome)
            },
            |outcome| {
                budget.recall_costs(outcome);
                mcp::answer_value(outcome)
            },
        );
        budget.close(&action, result.as_ref().ok());
        result
    }
}

/// The outcome of an effect without a result. A call that was sent and got no answer may have had its effect.
fn effect_failed(error: StageError, cancel: &CancelToken, idempotent: bool) -> StepOutcome {
    let reason = cancel.reason();
    let is_lost = error.has_code(Code::UnknownEnd);
    match &reason {
        Some(CancelReason::Timeout(message)) if is_lost && !idempotent => {
            UnseenEnd::of_call(message).to_outcome()
        }
        Some(_) => StepOutcome::new(StepStatus::Cancelled),
        None if is_lost && !idempotent => UnseenEnd::of_call(error.message).to_outcome(),
        None if is_lost => failed_outcome(&StageError { code: None, ..error }),
        None => failed_outcome(&error),
    }
}

/// Text items as lines, for a component that reads bytes. The last line ends like the last item.
fn items_as_lines(run: &Run<'_>, items: &Items) -> Result<Payload, Stop> {
    const SHOWN: usize = 60;
    let mut writer = run.store.blob_writer();
    let mut number = 0_u64;
    items.for_each(|item| {
        number += 1;
        let Value::String(text) = item else {
            let message = format!(
                "component --text: item {number} is not text: {}",
                text::clip(&json::compact(&item), SHOWN, Count::Chars)
            );
            return Err(Stop::Failed(StageError::permanent(message).with_code(Code::BadInput)));
        };
        let gap = if number > 1 { "\n" } else { "" };
        writer.write_all(gap.as_bytes()).and_then(|()| writer.write_all(text.as_bytes()))?;
        Ok(Flow::More)
    })?;
    Text::from_blob(&run.store, writer.finish().map_err(lobster_stage::store_failure)?)
        .to_payload()
        .map_err(lobster_stage::store_failure)
}

struct StageHost<'h, 'r, 's> {
    shared: &'h Shared<'r, 's>,
    path: &'h StepPath,
    effects: &'h mut usize,
    gates: &'h mut usize,
    starts: bool,
}

impl StageHost<'_, '_, '_> {
    fn next_effect(&mut self) -> StepPath {
        let path = self.path.ordinal(*self.effects);
        *self.effects += 1;
        path
    }
}

impl Host for StageHost<'_, '_, '_> {
    fn env_var(&self, name: &str) -> Option<String> {
        self.shared.place.env.get(name)
    }

    fn find_token(&self, variable: &str) -> Result<Option<Token>, StageError> {
        self.shared.run.find_token(&self.shared.place.env, variable)
    }

    fn find_credential(&self, to: Destination<'_>) -> Result<Option<Token>, StageError> {
        self.shared.run.find_credential(&self.shared.place.env, to)
    }

    fn working_dir(&self) -> &Path {
        &self.shared.place.cwd
    }

    fn output_mode(&self) -> Mode {
        self.shared.run.services.mode
    }

    fn cancel_token(&self) -> &CancelToken {
        &self.shared.place.cancel
    }

    fn command_registry(&self) -> &Registry {
        self.shared.run.registry()
    }

    fn perform_effect(
        &mut self,
        action: EffectAction,
        perform: &mut dyn FnMut(&EffectHost<'_>) -> Result<Value, StageError>,
    ) -> Result<Value, Stop> {
        let path = self.next_effect();
        self.shared.effect_at(&path, action, |host| perform(host))
    }

    fn run_native(&mut self, command: NativeCommand) -> Result<NativeOutcome, Stop> {
        let path = self.next_effect();
        let place = &self.shared.place;
        let job = native::Job {
            program: command.program,
            stdin: command.stdin,
            env: place.env.clone(),
            cwd: place.cwd.clone(),
            idempotent: place.is_idempotent(),
            stop_grace: native::stop_grace(place.extras.as_ref()),
            dispatches: command.dispatches,
            reuse: Reuse::Never,
            inputs: Vec::new(),
            max_output: command.max_output,
            json: command.json,
            asker: place.asker.clone(),
            missing_shell: "exec shell not found; check LOBSTER_SHELL or ComSpec",
            changes: place.extras.as_ref().and_then(|extras| extras.changes).unwrap_or(ChangesMode::Direct),
            pile: Arc::clone(&place.pile),
            // The stages after it use its results.
            settles: true,
        };
        let done = native::run(self.shared.run, &path, job, &place.cancel)?;
        Ok(NativeOutcome {
            exit: done.exit,
            stdout: done.stdout.to_payload().map_err(lobster_stage::store_failure)?,
            stderr: done.stderr.to_payload().map_err(lobster_stage::store_failure)?,
            plain_json: done.plain_json,
            blocked: done.blocked,
            withheld: done.withheld,
        })
    }

    fn has_budget(&self) -> bool {
        let place = &self.shared.place;
        place.account.is_limited()
            || place.cost.as_ref().is_some_and(|(cost, _)| lock(cost).can_refuse_calls())
    }

    fn create_spool(&mut self) -> Result<Box<dyn Spool>, Stop> {
        Ok(Box::new(ItemSpool::new(self.shared.run.store.clone())))
    }

    fn run_component(&mut self, call: ComponentCall, out: &mut dyn Sink) -> Result<(), Stop> {
        let path = self.next_effect();
        let place = &self.shared.place;
        let run = self.shared.run;
        let items = match call.input {
            Some(spool) => Some(ItemSpool::taken_back(spool)?.finish()?),
            None => None,
        };
        let input = match items {
            Some(items) if call.text => JobInput::Bytes(items_as_lines(run, &items)?),
            Some(items) => JobInput::Items(items),
            None if self.starts && call.program != ComponentProgram::Js => JobInput::Empty,
            None => JobInput::Items(Vec::new().into()),
        };
        let pinned = run.recorded_value(&pin_path(self.path));
        let program =
            component::of_stage(run, &path, &place.cwd, &call.program, pinned.as_ref(), &place.cancel)?;
        let dirs = |dirs: Vec<ComponentDir>| {
            let grant = |dir: ComponentDir| DirGrant { host: place.cwd.join(dir.host), guest: dir.guest };
            dirs.into_iter().map(grant).collect()
        };
        let (grants, env) = (call.grants, restore_terminal(run, &place.env));
        let mut secrets = place.env.secrets().clone();
        secrets.retain(|variable, _| grants.env.contains(variable));
        let job = component::Job {
            name: match &call.program {
                ComponentProgram::Named(name) => Some(name.clone()),
                ComponentProgram::Js => None,
            },
            program,
            args: call.args.into(),
            input,
            grants: Grants {
                read: dirs(grants.read),
                write: dirs(grants.write),
                env: grants
                    .env
                    .into_iter()
                    .filter_map(|name| Some((name.clone(), env.get_passed(&name)?)))
                    .collect(),
                net: grants.net,
                clock: grants.clock,
                random: grants.random,
            },
            opened: None,
            secrets,
            credentials: place.env.credentials().to_vec(),
            withheld: Vec::new(),
            asker: place.asker.clone(),
            limits: Limits::of_step(call.limits),
            reuse: match place.extras.as_ref().and_then(|extras| extras.cache) {
                Some(false) => Reuse::Never,
                Some(true) | None => Reuse::Pure,
            },
            idempotent: place.is_idempotent(),
            changes: place.extras.as_ref().and_then(|extras| extras.changes).unwrap_or(ChangesMode::Direct),
            pile: Arc::clone(&place.pile),
            settles: true,
        };
        let done = component::run_component(run, &path, job, &place.cancel)?;
        if let Some(items) = done.items {
            return items.for_each(|item| out.emit_item(item));
        }
        match done.bytes {
            Some(text) if !text.is_empty() => out
                .emit_item(Value::String(text.load().map_err(lobster_stage::store_failure)?.to_string()))
                .map(drop),
            _ => Ok(()),
        }
    }

    fn call_tool(&mut self, call: ToolCall) -> Result<Value, Stop> {
        let path = self.next_effect();
        let place = &self.shared.place;
        let what = format!("{path} calls the tool {} of {}", call.tool, call.server);
        place.pile.make_way_for(self.shared.run, &what, &place.cancel)?;
        let asker = place.asker.clone();
        let place = mcp::CallSite {
            env: &place.env,
            cwd: &place.cwd,
            asker,
            cancel: &place.cancel,
            is_whole_step: false,
        };
        mcp::call_tool(self.shared.run, &path, &call, place)
    }

    fn ask_person(&mut self, question: Question) -> Result<Answer, Stop> {
        let path = if *self.gates == 0 { self.path.clone() } else { self.path.ordinal(*self.gates) };
        *self.gates += 1;
        let identity = match self.shared.place.asker {
            Asker::Pipeline => Identity::default(),
            Asker::Step(_) => self.shared.run.default_identity(),
        };
        let question = GateQuestion { question, identity, asker: self.shared.place.asker.clone() };
        self.shared.run.ask_person(&path, question, &self.shared.place.cancel)
    }

    fn show_text(&mut self, text: &str, rendering: Rendering) -> Result<(), Stop> {
        match &self.shared.run.services.screen {
            Some(screen) if !self.shared.place.capture => {
                self.shared.run.note_rendered();
                Ok(screen(text)?)
            }
            _ => {
                self.shared.rendered.borrow_mut().push(text, rendering);
                Ok(())
            }
        }
    }

    fn print_note(&mut self, line: &str) {
        self.shared.run.services.print_note(line);
    }

    fn no_retry(&mut self) {
        if !self.shared.place.is_idempotent() {
            self.shared.run.forbid_retry(self.path);
        }
    }

    fn on_success(&mut self, action: EffectAction, commit: Commit) {
        let path = self.next_effect();
        self.shared.deferred.borrow_mut().push((path, action, commit));
    }

    fn call_command(&mut self, name: &str, args: StageArgs, items: Vec<Value>) -> Result<Vec<Value>, Stop> {
        let mut stage = self.command_registry().build(name, &args)?;
        let mut out = Collected(Vec::new());
        let mut wanted = true;
        for item in items {
            wanted = wanted && stage.process_item(item, self, &mut out)? == Flow::More;
        }
        stage.end_input(self, &mut out)?;
        Ok(out.0)
    }
}

struct Collected(Vec<Value>);

impl Sink for Collected {
    fn emit_item(&mut self, item: Value) -> Result<Flow, Stop> {
        self.0.push(item);
        Ok(Flow::More)
    }
}
