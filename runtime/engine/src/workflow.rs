//! Drives the steps of a workflow file, at every depth.

use lobster_base::code::Code;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Map, Value};

use super::binding::{Asker, GateQuestion};
use super::budget;
use super::env::{Env, split_argument_vars};
use super::path::StepPath;
use super::pipeline::{self, PipelineInput};
use super::record::{Json, Record, Scope};
use super::reuse::Reuse;
use super::run::Run;
use super::value::InputValue;
use super::value::Text;
use crate::kinds::changes;
use crate::kinds::mcp;
use crate::kinds::native;
use crate::kinds::pile::Pile;
use lobster_base::cancel::CancelToken;
use lobster_base::json;
use lobster_base::program::Program;
use lobster_base::sync::lock;
use lobster_language::plan::{Approval, ChangesMode, Extras, OnError, Step, Work, Workflow};
use lobster_language::template::{self, ExprError};
use lobster_models::budget::Account;
use lobster_models::cost::{BudgetVerdict, CostTracker};
use lobster_stage::{Answer, Payload, Question, StageError, Stop, ToolCall};
use lobster_store::{StepOutcome, StepStatus};

/// One workflow that is being executed: the requested file, or a child of it.
pub(crate) struct Frame<'f> {
    pub(super) run: &'f Run<'f>,
    pub(super) workflow: &'f Workflow,
    pub(super) args: &'f Map<String, Value>,
    /// The inherited environment: the process's, or the parent step's.
    pub(super) env: Env,
    /// The directory of steps without a `cwd`.
    pub(super) cwd: PathBuf,
    /// The path of this workflow in the run.
    pub(super) path: StepPath,
    /// The files being executed, outermost first, resolved.
    pub(super) active: Vec<PathBuf>,
    pub(super) cost: Arc<Mutex<CostTracker>>,
    /// The budgets for its model calls.
    pub(super) account: Arc<Account>,
    /// The least separation for changes to files; steps can only be stricter.
    pub(super) least_changes: ChangesMode,
    /// The changes that wait.
    pub(super) pile: Arc<Pile>,
}

/// The end of a step that did not stop the run.
pub(super) enum StepEnd {
    Completed(Arc<Record>),
    /// Skipped, by its condition or by the steps that it needs.
    Skipped,
    /// Failed, and the failure was ignored.
    Passed,
    /// Failed, and no later step runs.
    SkipRest,
}

impl Frame<'_> {
    /// The mode for a step's changes to files.
    pub(crate) fn changes_of(&self, step: &Step) -> ChangesMode {
        let said = step.extras.changes.or(self.workflow.changes).unwrap_or(ChangesMode::Direct);
        said.max(self.least_changes)
    }

    /// Runs all steps; returns the record of the last one that completed.
    pub(super) fn run_steps(&self, cancel: &CancelToken) -> Result<Option<Arc<Record>>, Stop> {
        let mut scope = Scope::default();
        let enclosing = Enclosing::from_parts(Arc::clone(&self.pile), Arc::clone(&self.account));
        let last = match self.workflow.is_graph() {
            true => self.run_graph(cancel)?,
            false => self.run_sequence(&self.workflow.steps, &mut scope, &self.path, &enclosing, cancel)?,
        };
        self.check_cost()?;
        Ok(last)
    }

    /// Runs steps one after the other.
    pub(super) fn run_sequence(
        &self,
        steps: &[Step],
        scope: &mut Scope<'_>,
        at: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Option<Arc<Record>>, Stop> {
        let mut last = None;
        for step in steps {
            if cancel.is_cancelled() {
                return Err(Stop::Cancelled);
            }
            match self.run_step(step, scope, at, enclosing, cancel)? {
                StepEnd::Completed(record) => last = Some(record),
                StepEnd::Skipped | StepEnd::Passed => {}
                StepEnd::SkipRest => break,
            }
        }
        Ok(last)
    }

    pub(super) fn run_step(
        &self,
        step: &Step,
        scope: &mut Scope<'_>,
        at: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<StepEnd, Stop> {
        let path = at.step(&step.id);
        let _span = tracing::info_span!("step", %path, kind = kind_name(&step.work)).entered();
        let wanted = step.when.evaluate(&*scope);
        if !wanted.or_else(|error| self.recorded_condition(&path, &error))? {
            return self.skip_step(step, scope, at);
        }
        let limited = budget::of_step(self.run, step, &path, &enclosing.account)
            .map(|account| enclosing.with_account(account));
        let enclosing = limited.as_ref().unwrap_or(enclosing);
        self.keep_reversal(step, scope, &path, enclosing)?;
        let begun = std::time::Instant::now();
        let result = match &step.work {
            Work::Input(_) => self.request_input(step, scope, &path, cancel),
            _ => self.run_attempts(step, scope, &path, enclosing, cancel),
        };
        let mut record = match self.or_recorded(step, &path, result) {
            Ok(record) => record,
            Err(Stop::Failed(error)) if step.on_error.passes_over() && !ends_the_run(&error) => {
                self.run.clear_failure_within(&path);
                self.record_summary(step, &path, StepStatus::Failed, Some(&error), begun)?;
                self.count_cost(&step.id, None)?;
                scope.insert_record(Arc::new(Record { error: Some(error.message), ..Record::new(&step.id) }));
                return Ok(if step.on_error == OnError::SkipRest {
                    StepEnd::SkipRest
                } else {
                    StepEnd::Passed
                });
            }
            Err(stop) => {
                let stop = match stop {
                    Stop::Failed(error) => Stop::Failed(error.or_code(Code::StepValue)),
                    other => other,
                };
                // If the store failed, the step did not, and its journal entry stays valid.
                if let Stop::Failed(error) = &stop
                    && !error.has_code(Code::Store)
                {
                    // Without a path, a retry would keep this summary.
                    self.run.record_failure_if_new(&path);
                    self.record_summary(step, &path, StepStatus::Failed, Some(error), begun)?;
                }
                return Err(stop);
            }
        };
        self.keep_result(step, &record, &path)?;
        let result = match &step.work {
            // The parts are charged under their own ids.
            Work::Parallel { .. }
            | Work::ForEach { .. }
            | Work::Repeat { .. }
            | Work::Switch { .. }
            | Work::Workflow { .. } => None,
            _ if self.workflow.cost_limit.is_some() => match record.json() {
                Ok(value) => value.map(|value| &**value),
                // The cost was added when it was recorded.
                Err(_) if !self.run.is_journaled() => None,
                Err(unreadable) => return Err(unreadable.into()),
            },
            _ => None,
        };
        self.count_cost(&step.id, result)?;
        if let Some(approval) = &step.approval {
            self.request_approval(step, approval, &mut record, &path, &enclosing.pile, cancel)
                .or_else(|stop| self.recorded_approval(&path, &mut record, stop))?;
        }
        self.record_summary(step, &path, StepStatus::Ok, None, begun)?;
        let record = Arc::new(record);
        scope.insert_record(Arc::clone(&record));
        Ok(StepEnd::Completed(record))
    }

    /// Asks a person about the result of a step.
    fn request_approval(
        &self,
        step: &Step,
        approval: &Approval,
        record: &mut Record,
        path: &StepPath,
        pile: &Pile,
        cancel: &CancelToken,
    ) -> Result<(), Stop> {
        let mut question =
            super::approval::build_question(step, approval, record, self.run.default_identity())?;
        // The permitted approvers are recorded when the question is first asked, and a resumed run keeps them.
        let identity = self.run.record_value(&path.gate("identity"), || {
            serde_json::to_value(&question.identity).map_err(StageError::permanent_from)
        })?;
        question.identity = serde_json::from_value(identity).map_err(lobster_stage::store_failure)?;
        record.initiated_by.clone_from(&question.identity.initiated_by);
        let waits = pile.render_for(self.run, path)?;
        if let Some((total, shown)) = &waits {
            shown.add_to_question(&mut question.question, total);
        }
        if let Answer::Approved { by, part } = self.run.ask_person(path, question, cancel)? {
            record.approved = true;
            record.approved_by = by;
            if let Some((total, _)) = waits {
                pile.commit_agreed(self.run, total, part, cancel)?;
            }
        }
        Ok(())
    }

    fn record_summary(
        &self,
        step: &Step,
        path: &StepPath,
        status: StepStatus,
        error: Option<&StageError>,
        begun: std::time::Instant,
    ) -> Result<(), Stop> {
        let own_effect = matches!(
            step.work,
            Work::Shell(_) | Work::Exec(_) | Work::Component { .. } | Work::Js(_) | Work::Mcp { .. }
        );
        let mut outcome = StepOutcome::new(status);
        outcome.duration_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        outcome.error = error.map(|error| error.message.clone());
        outcome.code = error.and_then(|error| error.code.as_ref().map(ToString::to_string));
        self.show_end(path, &outcome);
        if own_effect && error.is_none() {
            return Ok(()); // the effect itself is in the journal
        }
        self.run.record_summary(path, outcome, kind_name(&step.work))
    }

    pub(super) fn show_end(&self, path: &StepPath, outcome: &StepOutcome) {
        if let Some(progress) = &self.run.services.progress {
            progress.step_ended(path.as_str(), outcome);
        }
    }

    /// Adds the costs of a step's model calls, and compares the total with the limit.
    pub(super) fn count_cost(&self, id: &str, result: Option<&Value>) -> Result<(), Stop> {
        for warning in lock(&self.cost).step_done(id, result) {
            self.run.services.print_note(&warning);
        }
        self.check_cost()
    }

    fn check_cost(&self) -> Result<(), Stop> {
        let verdict = lock(&self.cost).check_limit();
        match verdict {
            BudgetVerdict::Within => Ok(()),
            BudgetVerdict::Warn(line) => {
                self.run.services.print_note(&line);
                Ok(())
            }
            BudgetVerdict::Stop(error) => Err(error.into()),
        }
    }

    /// One attempt of a step's work, of any kind.
    pub(super) fn run_attempt(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let env =
            self.step_env(step, scope, enclosing).map_err(|error| self.expression_failure(path, &error))?;
        let cwd = self.step_cwd(step, enclosing);
        match &step.work {
            Work::Nothing => {
                if let Some(set) = step.extras.commit {
                    changes::commit_step(self.run, path, set)
                        .inspect_err(|_| self.run.record_failure(path))?;
                }
                self.pass_input(step, scope, path)
            }
            Work::Shell(text) => {
                let text = self.fill_template(text, scope, path)?;
                if text.trim().is_empty() {
                    return self.pass_input(step, scope, path);
                }
                let stdin = self.stdin_payload(step, scope, path)?;
                self.run_process(step, Program::Shell(text), stdin, &env, &cwd, path, enclosing, cancel)
            }
            Work::Exec(argv) => {
                let words = argv.iter().map(|word| self.fill_template(word, scope, path));
                let argv: Vec<_> = words.collect::<Result<_, _>>()?;
                let stdin = self.stdin_payload(step, scope, path)?;
                self.run_process(step, Program::Argv(argv), stdin, &env, &cwd, path, enclosing, cancel)
            }
            Work::Pipeline(text) => {
                let text = self.fill_template(text, scope, path)?;
                enclosing.pile.commit_waiting(self.run, cancel)?;
                let input = self.pipeline_input(step, scope, path)?;
                let place = pipeline::PipelineContext {
                    path: path.clone(),
                    env,
                    cwd,
                    asker: Asker::Step(step.id.clone()),
                    cancel: cancel.clone(),
                    capture: true,
                    cost: Some((Arc::clone(&self.cost), step.id.clone())),
                    account: Arc::clone(&enclosing.account),
                    extras: Some(Extras { changes: Some(self.changes_of(step)), ..step.extras.clone() }),
                    pile: Arc::clone(&enclosing.pile),
                };
                let done = pipeline::run_text(self.run, &text, input, place).map_err(|stop| match stop {
                    pipeline::TextStop::Syntax(message) => Stop::Failed(StageError::permanent(format!(
                        "Workflow step {} pipeline parse failed: {message}",
                        step.id
                    ))),
                    pipeline::TextStop::Stop(stop) => stop,
                })?;
                self.of_pipeline(&step.id, done)
            }
            Work::Workflow { path: file, args } => {
                self.run_child(step, file, args, scope, path, &env, &cwd, enclosing, cancel)
            }
            Work::Component { .. } | Work::Js(_) => {
                super::kinds::component::run_step(self, step, scope, path, &env, &enclosing.pile, cancel)
            }
            Work::Mcp { server, tool, args } => {
                let what = format!("step {path} calls the tool {tool} of {server}");
                enclosing.pile.make_way_for(self.run, &what, cancel)?;
                let filled =
                    super::kinds::component::fill_all(self, &Value::Object(args.clone()), scope, path)?;
                let call = ToolCall {
                    server: server.clone(),
                    tool: tool.clone(),
                    args: filled.as_object().cloned().unwrap_or_default(),
                    idempotent: step.extras.idempotent,
                };
                let asker = Asker::Step(step.id.clone());
                let place = mcp::CallSite { env: &env, cwd: &cwd, asker, cancel, is_whole_step: true };
                let value = mcp::call_tool(self.run, path, &call, place).map_err(|stop| match stop {
                    Stop::Failed(error) => {
                        let message = format!("Workflow step {} {}", step.id, error.message);
                        Stop::Failed(error.with_message(message))
                    }
                    other => other,
                })?;
                let text = match &value {
                    Value::String(text) => text.clone(),
                    other => json::compact(other),
                };
                let mut record = Record { stdout: Some(Text::inline(text)), ..Record::new(&step.id) };
                record.json = if value.is_string() { Json::of_stdout() } else { Json::from_value(value) };
                Ok(record)
            }
            Work::Parallel { .. } => self.run_parallel(step, scope, path, enclosing, cancel),
            Work::ForEach { .. } => self.for_each(step, scope, path, enclosing, cancel),
            Work::Repeat { .. } => self.run_repeat(step, scope, path, enclosing, cancel),
            Work::Switch { .. } => self.run_switch(step, scope, path, enclosing, cancel),
            Work::Input(_) => self.request_input(step, scope, path, cancel),
            Work::Wait(wait) => self.run_wait(step, wait, scope, path, cancel),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a process is described by all of these")]
    fn run_process(
        &self,
        step: &Step,
        program: Program,
        stdin: Option<Payload>,
        env: &Env,
        cwd: &Path,
        path: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let shown = program.display_text();
        let job = native::Job {
            program,
            stdin,
            env: env.clone(),
            cwd: cwd.to_owned(),
            idempotent: step.extras.idempotent,
            stop_grace: native::stop_grace(Some(&step.extras)),
            dispatches: false,
            reuse: Reuse::from_extras(&step.extras),
            inputs: step
                .extras
                .inputs
                .iter()
                .map(|pattern| template::fill_args(pattern, self.args).into_owned())
                .collect(),
            max_output: step.extras.limits.as_ref().and_then(|limits| limits.output),
            json: false,
            asker: Asker::Step(step.id.clone()),
            missing_shell: "workflow shell not found; check LOBSTER_SHELL or ComSpec",
            changes: self.changes_of(step),
            pile: Arc::clone(&enclosing.pile),
            settles: false,
        };
        let done = native::run(self.run, path, job, cancel)?;
        if done.exit != Some(0) {
            let code = done.exit.map_or_else(|| "null".to_owned(), |code| code.to_string());
            let detail = done.failure_detail(&shown)?;
            self.run.record_failure(path);
            return Err(done
                .failure_with_hints(format!("workflow command failed ({code}): {detail}"))
                .into());
        }
        let json = Json::of_command((Arc::clone(&self.run.services.notes), path.clone()));
        Ok(Record { stdout: Some(done.stdout), json, ..Record::new(&step.id) })
    }

    /// The input of a step's pipeline.
    fn pipeline_input(&self, step: &Step, scope: &Scope<'_>, path: &StepPath) -> Result<PipelineInput, Stop> {
        if let Some(items) = self.large_stdin(step, scope) {
            return Ok(PipelineInput::Items(items));
        }
        let value = self.step_input(step, scope, path)?.load_value()?;
        Ok(value.map_or(PipelineInput::Nothing, PipelineInput::Value))
    }

    /// A pipeline's result as a step's record.
    fn of_pipeline(&self, id: &str, done: pipeline::Done) -> Result<Record, Stop> {
        let stdout = match done.rendered.all_text() {
            Some(text) => text,
            None => self.text_of(&done.items)?,
        };
        let json = match done.items.len() {
            0 => Json::of_stdout(),
            _ => Json::of_items(done.items),
        };
        Ok(Record { stdout: Some(stdout), json, ..Record::new(id) })
    }

    /// A step without work passes on its input.
    pub(super) fn pass_input(&self, step: &Step, scope: &Scope<'_>, path: &StepPath) -> Result<Record, Stop> {
        let mut record = Record::new(&step.id);
        if let Some(text) = self.large_text(step, scope)? {
            record.stdout = Some(text);
            record.json = Json::of_stdout();
            return Ok(record);
        }
        match self.step_input(step, scope, path)? {
            InputValue::Nothing => {}
            InputValue::Text(text) => {
                record.stdout = Some(text);
                record.json = Json::of_stdout();
            }
            InputValue::Json(value) => {
                record.stdout = Some(Text::of_value(Arc::clone(&value)));
                record.json = Json::Value(value);
            }
        }
        Ok(record)
    }

    /// A step that asks for structured input.
    fn request_input(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let Work::Input(request) = &step.work else { return Ok(Record::new(&step.id)) };
        let subject = if step.stdin.is_none() {
            self.previous_result(scope)?
        } else {
            self.step_input(step, scope, path)?.load_value()?.map_or(Value::Null, Arc::unwrap_or_clone)
        };
        let question = GateQuestion {
            question: Question::Input {
                prompt: request.prompt.clone(),
                schema: request.schema.clone(),
                defaults: request.defaults.clone(),
                subject: Some(subject.clone()),
                items: Vec::new(),
                emit: false,
            },
            identity: Default::default(),
            asker: Asker::Step(step.id.clone()),
        };
        let Answer::Response(response) = self.run.ask_person(path, question, cancel)? else {
            return Err(StageError::permanent(format!(
                "Workflow input step {} was answered by an approval",
                step.id
            ))
            .into());
        };
        Ok(Record { subject: Some(subject), response: Some(response), ..Record::new(&step.id) })
    }

    /// The result of the last completed step in this scope.
    fn previous_result(&self, scope: &Scope<'_>) -> Result<Value, Stop> {
        let Some(record) = scope.last_completed() else { return Ok(Value::Null) };
        Ok(record.main_value()?.map_or(Value::Null, Arc::unwrap_or_clone))
    }

    /// Text with its arguments and references resolved.
    pub(super) fn fill_template(
        &self,
        text: &str,
        scope: &Scope<'_>,
        path: &StepPath,
    ) -> Result<String, Stop> {
        template::fill_placeholders(text, self.args, scope)
            .map_err(|error| self.expression_failure(path, &error))
    }

    pub(super) fn expression_failure(&self, path: &StepPath, error: &ExprError) -> Stop {
        self.run.record_failure(path);
        match error {
            ExprError::Unreadable { .. } => lobster_stage::store_failure(error.clone()),
            ExprError::UnknownStep(_) | ExprError::NotInserted { .. } => {
                Stop::Failed(StageError::permanent_from(error.clone()))
            }
            ExprError::NotJson(_) => {
                Stop::Failed(StageError::permanent_from(error.clone()).with_code(Code::StepValue))
            }
        }
    }

    /// The environment of a step; see `docs/language.md` for the order of layers.
    pub(super) fn step_env(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        enclosing: &Enclosing,
    ) -> Result<Env, ExprError> {
        let (arguments, left_out) = split_argument_vars(self.args);
        let outer = self.env.without_vars(&left_out);
        let mut layers = arguments.clone();
        if let Some(dir) = self.workflow.file.parent() {
            layers.push((crate::env::WORKFLOW_DIR.to_owned(), dir.display().to_string()));
        }
        // A reference in a value is resolved to the step's value without this layer.
        let fill = |layers: &mut Vec<(String, String)>, vars: &[(String, String)]| {
            let env = outer.with_vars(layers.iter().cloned());
            let inserted = |name: &str| env.template_value(name, &self.run.services.policy);
            for (name, value) in vars {
                layers.push((name.clone(), template::fill_variable(value, self.args, scope, &inserted)?));
            }
            Ok(())
        };
        fill(&mut layers, &self.workflow.env)?;
        if !enclosing.env.is_empty() {
            fill(&mut layers, &enclosing.env)?;
            if enclosing.reinject_args {
                layers.extend(arguments);
            }
        }
        fill(&mut layers, &step.env)?;
        let env = outer.with_vars(layers).with_secrets(&step.extras.secrets);
        Ok(env.with_credentials(&step.extras.credentials))
    }

    pub(super) fn step_cwd(&self, step: &Step, enclosing: &Enclosing) -> PathBuf {
        let own = step.cwd.as_ref().or(enclosing.cwd.as_ref()).or(self.workflow.cwd.as_ref());
        match own {
            Some(dir) => self.run.cwd.join(&*template::fill_args(dir, self.args)),
            None => self.cwd.clone(),
        }
    }
}

/// The settings that a loop or a parallel step passes to the steps inside it.
#[derive(Clone, Debug)]
pub(super) struct Enclosing {
    pub(super) env: Vec<(String, String)>,
    pub(super) cwd: Option<String>,
    /// True for loops, which put the argument variables between their own variables and the sub-step's.
    pub(super) reinject_args: bool,
    /// The changes that wait in this sequence.
    pub(super) pile: Arc<Pile>,
    /// The budgets for model calls here.
    pub(super) account: Arc<Account>,
}

impl Enclosing {
    pub(super) fn from_parts(pile: Arc<Pile>, account: Arc<Account>) -> Self {
        Self { env: Vec::new(), cwd: None, reinject_args: false, pile, account }
    }

    /// The same for a step that has its own budget.
    fn with_account(&self, account: Arc<Account>) -> Self {
        Self { account, ..self.clone() }
    }

    /// The same for one of several concurrent parts, none of which sees the file changes of another.
    pub(super) fn for_branch(&self) -> Self {
        Self { pile: self.pile.new_branch(), ..self.clone() }
    }

    /// The same with the settings that a step passes to the steps inside it.
    pub(super) fn inside_step(&self, step: &Step) -> Self {
        Self {
            env: self.env.iter().chain(&step.env).cloned().collect(),
            cwd: step.cwd.clone().or_else(|| self.cwd.clone()),
            reinject_args: self.reinject_args,
            pile: Arc::clone(&self.pile),
            account: Arc::clone(&self.account),
        }
    }
}

/// True if an error is not the step's own, so that its `on_error` does not apply.
fn ends_the_run(error: &StageError) -> bool {
    matches!(error.known_code(), Some(Code::CostLimit | Code::Budget | Code::Store))
}

/// The name of a kind of work in the history.
pub(super) fn kind_name(work: &Work) -> &'static str {
    match work {
        Work::Nothing => "step",
        Work::Shell(_) | Work::Exec(_) => "native",
        Work::Pipeline(_) => "pipeline",
        Work::Workflow { .. } => "workflow",
        Work::Component { .. } => "component",
        Work::Js(_) => "js",
        Work::Mcp { .. } => "mcp",
        Work::Parallel { .. } => "parallel",
        Work::ForEach { .. } => "for_each",
        Work::Repeat { .. } => "repeat",
        Work::Switch { .. } => "switch",
        Work::Input(_) => "input",
        Work::Wait(_) => "wait",
    }
}
