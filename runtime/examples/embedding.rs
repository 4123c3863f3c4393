//! lobster inside another program: a pipeline command of its own, a run that stops to ask a
//! person, and the answer with which it goes on.
//!
//!     cargo run -p lobster-runtime --example embedding
//!
//! `runtime/tests/embedding.rs` runs this file and holds what it prints.

use std::error::Error;
use std::process::ExitCode;

use lobster_runtime::code::{Code, FailureCode};
use lobster_runtime::envelope::Envelope;
use lobster_runtime::replay::{GateRef, Reply, ResumeRequest, answer_and_resume};
use lobster_runtime::runtime::{RunRequest, Runtime, Settings, Target};
use lobster_runtime::stage::{Flow, Host, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop};
use lobster_runtime::stages::builtin;
use serde_json::{Value, json};

/// What lobster knows of our command `shout`: its name, its help, and how one is made of its
/// arguments. `Pure` says that it does nothing but compute.
static SHOUT: StageSpec = StageSpec {
    name: "shout",
    description: "Make text loud",
    help: "Usage:\n  ... | shout\n",
    flags: &[],
    args_schema: || Value::Null,
    examples: || Value::Null,
    side_effects: None,
    kind: StageKind::Pure,
    build: |args: &StageArgs| match args.positional.first() {
        Some(word) => Err(StageError::permanent(format!("shout takes no words, not {word:?}"))),
        None => Ok(Box::new(Shout)),
    },
};

struct Shout;

impl Stage for Shout {
    /// Called for each item that comes in; what goes out is pushed into `out`.
    fn process_item(&mut self, item: Value, _host: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop> {
        match item.as_str() {
            Some(text) => out.emit_item(json!(text.to_uppercase())),
            None => Err(StageError::permanent(format!("shout wants text, not {item}")).into()),
        }
    }

    /// Called when no more items come. A command that needs all of them first pushes here.
    fn end_input(&mut self, _host: &mut dyn Host, _out: &mut dyn Sink) -> Result<(), Stop> {
        Ok(())
    }
}

pub(crate) fn main() -> ExitCode {
    // lobster starts this program again: to start processes, and to compile components.
    if let Some(code) = lobster_runtime::init() {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    // Where the state directory is, which policy is in force and so on, is read from the
    // environment, as the command line does it. Then our command joins the built-in ones.
    let mut settings = Settings::from_process()?;
    settings.registry = builtin().with_command(&SHOUT);
    let runtime = Runtime::new(settings)?;
    let pipeline = |text: &str| RunRequest { target: Target::Pipeline(text.to_owned()), args: None };

    // A run that asks ends with a question. Nothing of it stays in memory: the process could
    // end here and the answer be given tomorrow.
    let asks = "exec echo hello | shout | approve --prompt 'Say it?' | exec --stdin raw cat";
    let Envelope::NeedsApproval(question) = runtime.run(&pipeline(asks)).envelope else {
        return Err("the run did not stop for its approval".into());
    };
    println!("asked: {} {}", question["prompt"], question["items"]);

    // The token names the gate. The first `exec` is not run again: its result is on record.
    let token = question["resumeToken"].as_str().unwrap_or_default().to_owned();
    let answer = ResumeRequest { gate: GateRef::Token(token), reply: Reply::Approve, author: None };
    match answer_and_resume(&runtime, &answer).envelope {
        Envelope::Done(output) => println!("said: {}", Value::Array(output.to_vec()?)),
        other => return Err(format!("it did not end well: {other:?}").into()),
    }

    // A component is compiled in a process of its own and sees nothing but its input.
    match runtime.run(&pipeline("exec --json echo '[1, 2]' | js 'input.map(n => n + 1)'")).envelope {
        Envelope::Done(output) => println!("computed: {}", Value::Array(output.to_vec()?)),
        other => return Err(format!("it did not end well: {other:?}").into()),
    }

    // A failure has words for people and a code for programs.
    let Envelope::Failed(failure) = runtime.run(&pipeline("exec --json echo '[1]' | shout")).envelope else {
        return Err("a number was made loud".into());
    };
    println!("failed: {} ({})", failure.message, failure.code);
    if failure.code != FailureCode::Lobster(Code::CommandError) {
        return Err("a failed command has another code".into());
    }
    Ok(())
}
