//! lobster inside another program: a command of its own, a run, an answer to its gate.
//!
//! `cargo run -p lobster-runtime --example embedding`

use std::error::Error;
use std::ffi::OsStr;
use std::process::ExitCode;

use lobster_runtime::envelope::Envelope;
use lobster_runtime::replay::{self, GateRef, Reply, ResumeRequest};
use lobster_runtime::runtime::{RunRequest, Runtime, Settings, Target};
use lobster_runtime::sandbox;
use lobster_runtime::stage::{Flow, Host, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop};
use lobster_runtime::stages::builtin;
use serde_json::{Value, json};

/// `shout`: makes every text item loud.
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
    fn item(&mut self, item: Value, _host: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop> {
        out.item(item.as_str().map_or(item.clone(), |text| json!(text.to_uppercase())))
    }

    fn end(&mut self, _host: &mut dyn Host, _out: &mut dyn Sink) -> Result<(), Stop> {
        Ok(())
    }
}

fn main() -> ExitCode {
    // Native steps are started by this very program under another first argument.
    if std::env::args_os().nth(1).as_deref() == Some(OsStr::new(sandbox::HELPER_ARGUMENT)) {
        return sandbox::helper_main();
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
    let mut settings = Settings::from_process()?;
    settings.registry = builtin().with(&SHOUT);
    let runtime = Runtime::new(settings).map_err(|failure| failure.message)?;

    let pipeline = "exec echo hello | shout | approve --prompt 'Say it?' | exec --stdin raw cat";
    let request = RunRequest { target: Target::Pipeline(pipeline.to_owned()), args: None };
    let Envelope::NeedsApproval(gate) = runtime.run(&request).envelope else {
        return Err("the run did not stop at its gate".into());
    };
    println!("asked: {} {}", gate["prompt"], gate["items"]);

    let token = gate["resumeToken"].as_str().unwrap_or_default().to_owned();
    let answer = ResumeRequest { gate: GateRef::Token(token), reply: Reply::Approve };
    match replay::resume(&runtime, &answer).envelope {
        Envelope::Done(output) => println!("said: {}", Value::Array(output.to_vec()?)),
        other => return Err(format!("{other:?}").into()),
    }
    Ok(())
}
