//! A host for tests: gives prepared answers, runs processes with `std`.

use lobster_base::code::Code;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::Value;

use super::builtin;
use lobster_base::cancel::CancelToken;
use lobster_language::pipeline::{StageCall, parse};
use lobster_stage::*;

pub(crate) struct FakeHost {
    pub(crate) env: HashMap<String, String>,
    pub(crate) cwd: PathBuf,
    pub(crate) mode: Mode,
    pub(crate) questions: Vec<Question>,
    pub(crate) rendered: Vec<String>,
    answers: Vec<Answer>,
    cancel: CancelToken,
    registry: Registry,
}

impl Default for FakeHost {
    fn default() -> Self {
        Self {
            env: HashMap::new(),
            cwd: std::env::current_dir().unwrap(),
            mode: Mode::Tool,
            questions: Vec::new(),
            rendered: Vec::new(),
            answers: Vec::new(),
            cancel: CancelToken::new(),
            registry: builtin(),
        }
    }
}

/// Collects each stage's output.
struct Collect(Vec<Value>);

impl Sink for Collect {
    fn emit_item(&mut self, item: Value) -> Result<Flow, Stop> {
        self.0.push(item);
        Ok(Flow::More)
    }
}

impl FakeHost {
    pub(crate) fn with_answer(mut self, answer: Answer) -> Self {
        self.answers.insert(0, answer);
        self
    }

    /// Runs a pipeline stage by stage over `items` (an array).
    pub(crate) fn drive_pipeline(&mut self, text: &str, items: Value) -> Result<Vec<Value>, Stop> {
        let stages = parse(text).map_err(|error| StageError::new(error.message))?.stages;
        self.drive_stages(&stages, items.as_array().unwrap().clone())
    }

    fn drive_stages(&mut self, stages: &[StageCall], mut items: Vec<Value>) -> Result<Vec<Value>, Stop> {
        let built = stages
            .iter()
            .map(|call| self.registry.build(&call.name, &call.args))
            .collect::<Result<Vec<_>, _>>()?;
        for mut stage in built {
            let mut out = Collect(Vec::new());
            for item in items {
                if stage.process_item(item, self, &mut out)? == Flow::Enough {
                    break;
                }
            }
            stage.end_input(self, &mut out)?;
            items = out.0;
        }
        Ok(items)
    }
}

impl Host for FakeHost {
    fn env_var(&self, name: &str) -> Option<String> {
        self.env.get(name).cloned()
    }

    fn working_dir(&self) -> &Path {
        &self.cwd
    }

    fn output_mode(&self) -> Mode {
        self.mode
    }

    fn cancel_token(&self) -> &CancelToken {
        &self.cancel
    }

    fn command_registry(&self) -> &Registry {
        &self.registry
    }

    fn perform_effect(
        &mut self,
        _: EffectAction,
        perform: &mut dyn FnMut(&EffectHost<'_>) -> Result<Value, StageError>,
    ) -> Result<Value, Stop> {
        let env = |name: &str| self.env.get(name).cloned();
        let host = EffectHost {
            cancel: &self.cancel,
            state_dir: &self.cwd,
            is_under_policy: false,
            env: &env,
            plan_env: &std::collections::BTreeMap::new(),
            token: &|name: &str| Ok(env(name).map(Token::of_environment)),
            credential: &|_| Ok(None),
            cwd: &self.cwd,
            open: &|path| std::fs::File::open(path),
            reserve: &|_| Ok(()),
            give_back: &|| (),
            send: &|request| lobster_models::http::make_request(request, &self.cancel),
        };
        Ok(perform(&host)?)
    }

    fn run_native(&mut self, command: NativeCommand) -> Result<NativeOutcome, Stop> {
        let mut process = match &command.program {
            Program::Shell(line) => {
                let mut process =
                    Command::new(self.env.get("LOBSTER_SHELL").map_or("/bin/sh", String::as_str));
                process.args(["-c", line]);
                process
            }
            Program::Argv(argv) => {
                let mut process = Command::new(&argv[0]);
                process.args(&argv[1..]);
                process
            }
        };
        process.current_dir(&self.cwd).stdin(match &command.stdin {
            None => Stdio::null(),
            Some(Payload::File(path)) => std::fs::File::open(path).unwrap().into(),
            Some(Payload::Bytes(bytes)) => {
                let mut file = tempfile::tempfile().unwrap();
                std::io::Write::write_all(&mut file, bytes).unwrap();
                std::io::Seek::rewind(&mut file).unwrap();
                file.into()
            }
        });
        let output = process
            .output()
            .map_err(|error| StageError::permanent_from(error).with_code(Code::ProgramNotFound))?;
        let payload = |bytes: Vec<u8>| Payload::Bytes(Arc::from(bytes));
        Ok(NativeOutcome {
            exit: output.status.code(),
            stdout: payload(output.stdout),
            stderr: payload(output.stderr),
            plain_json: None,
            blocked: Vec::new(),
            withheld: Vec::new(),
        })
    }

    fn ask_person(&mut self, question: Question) -> Result<Answer, Stop> {
        self.questions.push(question);
        self.answers.pop().ok_or(Stop::Paused)
    }

    fn show_text(&mut self, text: &str, _: Rendering) -> Result<(), Stop> {
        self.rendered.push(text.to_owned());
        Ok(())
    }

    fn print_note(&mut self, _: &str) {}

    fn on_success(&mut self, _: EffectAction, _: Commit) {}

    fn call_command(&mut self, name: &str, args: StageArgs, items: Vec<Value>) -> Result<Vec<Value>, Stop> {
        let call = StageCall { name: name.to_owned(), args, raw: String::new(), span: 0..0 };
        self.drive_stages(&[call], items)
    }
}

/// The output items.
pub(crate) fn run(text: &str, items: Value) -> Value {
    match FakeHost::default().drive_pipeline(text, items) {
        Ok(items) => items.into(),
        Err(stop) => panic!("{text}: {stop:?}"),
    }
}

/// The message of the failure.
pub(crate) fn failure_message(text: &str, items: Value) -> String {
    match FakeHost::default().drive_pipeline(text, items) {
        Err(Stop::Failed(error)) => error.message,
        other => panic!("{text}: {other:?}"),
    }
}

/// The texts shown by renderers.
pub(crate) fn rendered_texts(text: &str, items: Value) -> Vec<String> {
    let mut host = FakeHost::default();
    host.drive_pipeline(text, items).unwrap();
    host.rendered
}
