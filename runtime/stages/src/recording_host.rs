//! A host for tests: it performs effects, records them, and answers from the record when it is resumed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

use lobster_base::cancel::CancelToken;
use lobster_stage::{
    Answer, Commit, EffectAction, EffectHost, Flow, Host, Mode, NativeCommand, NativeOutcome, Payload,
    Program, Question, Registry, Rendering, Sink, StageArgs, StageError, StageSpec, Stop,
};

type Natives = Box<dyn FnMut(&[String]) -> Result<(i32, String, String), StageError>>;

pub(super) struct RecordingHost {
    env: BTreeMap<String, String>,
    cwd: TempDir,
    state: TempDir,
    pub(super) cancel: CancelToken,
    registry: Registry,
    natives: Natives,
    /// Performed actions with their answers or failures.
    journal: Vec<(Action, Result<Value, StageError>)>,
    at: usize,
    commits: Vec<(EffectAction, Commit)>,
    pub(super) retry_forbidden: bool,
    pub(super) notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    Effect(EffectAction),
    Native(Vec<String>),
}

impl RecordingHost {
    pub(super) fn new() -> Self {
        Self {
            env: BTreeMap::new(),
            cwd: TempDir::new().unwrap(),
            state: TempDir::new().unwrap(),
            cancel: CancelToken::new(),
            registry: Registry::default(),
            natives: Box::new(|argv| panic!("unexpected process {argv:?}")),
            journal: Vec::new(),
            at: 0,
            commits: Vec::new(),
            retry_forbidden: false,
            notes: Vec::new(),
        }
    }

    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.env.insert(name.to_owned(), value.to_owned());
    }

    pub(super) fn unset_variable(&mut self, name: &str) {
        self.env.remove(name);
    }

    pub(super) fn register_commands(&mut self, specs: &[&'static StageSpec]) {
        self.registry = Registry::new(specs.iter().copied());
    }

    /// `natives` plays processes: exit code, stdout, stderr.
    pub(super) fn set_natives(
        &mut self,
        natives: impl FnMut(&[String]) -> Result<(i32, String, String), StageError> + 'static,
    ) {
        self.natives = Box::new(natives);
    }

    pub(super) fn state_dir(&self) -> &Path {
        self.state.path()
    }

    pub(super) fn recorded_actions(&self) -> Vec<Action> {
        self.journal.iter().map(|(action, _)| action.clone()).collect()
    }

    pub(super) fn recorded_effects(&self) -> Vec<(EffectAction, Value)> {
        self.journal
            .iter()
            .filter_map(|(action, answer)| match (action, answer) {
                (Action::Effect(effect), Ok(answer)) => Some((effect.clone(), answer.clone())),
                _ => None,
            })
            .collect()
    }

    pub(super) fn started_programs(&self) -> Vec<Vec<String>> {
        let program = |action| if let Action::Native(argv) = action { Some(argv) } else { None };
        self.recorded_actions().into_iter().filter_map(program).collect()
    }

    /// Starts again from the record without the failures: failed effects and processes with a nonzero
    /// exit code.
    pub(super) fn resume_run(&mut self) {
        self.journal.retain(|(action, answer)| match (action, answer) {
            (Action::Effect(_), Ok(_)) => true,
            (Action::Native(_), Ok(outcome)) => outcome[0] == 0,
            (_, Err(_)) => false,
        });
        self.at = 0;
        self.commits.clear();
    }

    /// Starts a new run in the same environment.
    pub(super) fn start_new_run(&mut self) {
        self.journal.clear();
        self.resume_run();
    }

    /// Completes the pipeline successfully.
    pub(super) fn complete_run(&mut self) {
        for (action, commit) in std::mem::take(&mut self.commits) {
            let mut commit = Some(commit);
            self.perform_effect(action, &mut |host| commit.take().unwrap()(host)).unwrap();
        }
    }

    fn record_or_replay(
        &mut self,
        action: Action,
        perform: impl FnOnce(&mut Self) -> Result<Value, StageError>,
    ) -> Result<Value, Stop> {
        let at = self.at;
        self.at += 1;
        if let Some((recorded, answer)) = self.journal.get(at) {
            assert_eq!(recorded, &action, "the stage acts differently when it is run again");
            return answer.clone().map_err(Stop::Failed);
        }
        let answer = perform(self);
        self.journal.push((action, answer.clone()));
        if self.cancel.is_cancelled() {
            return Err(Stop::Cancelled);
        }
        answer.map_err(Stop::Failed)
    }
}

impl Host for RecordingHost {
    fn env_var(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }

    fn working_dir(&self) -> &Path {
        self.cwd.path()
    }

    fn output_mode(&self) -> Mode {
        Mode::Tool
    }

    fn cancel_token(&self) -> &CancelToken {
        &self.cancel
    }

    fn command_registry(&self) -> &Registry {
        &self.registry
    }

    fn perform_effect(
        &mut self,
        action: EffectAction,
        perform: &mut dyn FnMut(&EffectHost<'_>) -> Result<Value, StageError>,
    ) -> Result<Value, Stop> {
        self.record_or_replay(Action::Effect(action), |host| {
            let env = |name: &str| host.env.get(name).cloned();
            perform(&EffectHost {
                reserve: &|_| Ok(()),
                give_back: &|| (),
                cancel: &host.cancel,
                state_dir: host.state.path(),
                is_under_policy: false,
                env: &env,
                plan_env: &BTreeMap::new(),
                token: &|name: &str| Ok(env(name).map(lobster_stage::Token::of_environment)),
                credential: &|_| Ok(None),
                cwd: host.cwd.path(),
                open: &|path| std::fs::File::open(path),
                send: &|request| lobster_models::http::make_request(request, &host.cancel),
            })
        })
    }

    fn run_native(&mut self, command: NativeCommand) -> Result<NativeOutcome, Stop> {
        let Program::Argv(argv) = command.program else { panic!("no shell expected") };
        let answer = self.record_or_replay(Action::Native(argv.clone()), |host| {
            let (exit, stdout, stderr) = (host.natives)(&argv)?;
            Ok(serde_json::json!([exit, stdout, stderr]))
        })?;
        let (exit, stdout, stderr): (i32, String, String) = serde_json::from_value(answer).unwrap();
        let payload = |text: String| Payload::Bytes(Arc::from(text.into_bytes()));
        Ok(NativeOutcome {
            exit: (exit >= 0).then_some(exit),
            stdout: payload(stdout),
            stderr: payload(stderr),
            plain_json: None,
            blocked: Vec::new(),
            withheld: Vec::new(),
        })
    }

    fn ask_person(&mut self, _question: Question) -> Result<Answer, Stop> {
        Err(Stop::Paused)
    }

    fn show_text(&mut self, _text: &str, _: Rendering) -> Result<(), Stop> {
        Ok(())
    }

    fn print_note(&mut self, line: &str) {
        self.notes.push(line.to_owned());
    }

    fn on_success(&mut self, action: EffectAction, commit: Commit) {
        self.commits.push((action, commit));
    }

    fn no_retry(&mut self) {
        self.retry_forbidden = true;
    }

    fn call_command(&mut self, name: &str, args: StageArgs, items: Vec<Value>) -> Result<Vec<Value>, Stop> {
        let spec = self.registry.get(name).unwrap();
        run_args(spec, &args, items, self)
    }
}

struct Collected(Vec<Value>);

impl Sink for Collected {
    fn emit_item(&mut self, item: Value) -> Result<Flow, Stop> {
        self.0.push(item);
        Ok(Flow::More)
    }
}

/// Runs one stage over `items`; `args` are its options, positionals under `_`.
pub(super) fn run(
    spec: &'static StageSpec,
    args: &Value,
    items: Vec<Value>,
    host: &mut RecordingHost,
) -> Result<Vec<Value>, Stop> {
    run_args(spec, &serde_json::from_value(args.clone()).unwrap(), items, host)
}

fn run_args(
    spec: &'static StageSpec,
    args: &StageArgs,
    items: Vec<Value>,
    host: &mut RecordingHost,
) -> Result<Vec<Value>, Stop> {
    let mut stage = (spec.build)(args)?;
    let mut out = Collected(Vec::new());
    for item in items {
        if stage.process_item(item, host, &mut out)? == Flow::Enough {
            break;
        }
    }
    stage.end_input(host, &mut out)?;
    Ok(out.0)
}

/// The failure of a stage.
pub(super) fn error_of(result: Result<Vec<Value>, Stop>) -> StageError {
    match result {
        Err(Stop::Failed(error)) => error,
        other => panic!("expected a failure, not {other:?}"),
    }
}
