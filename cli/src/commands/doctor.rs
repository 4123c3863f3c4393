//! `lobster doctor`

use lobster_runtime::engine::Output;
use lobster_runtime::envelope::{Envelope, Failure, FailureKind, PROTOCOL_VERSION};
use lobster_runtime::runtime::{RunRequest, Target};
use lobster_runtime::steps::stages::Mode;
use serde_json::json;

use crate::COMPATIBLE_WITH;
use crate::exit::CommandResult;

/// Checks that lobster can work here: the shell, the state directory, the store.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Words that come back in the answer.
    notes: Vec<String>,
}

pub(crate) fn run(notes: &[String]) -> CommandResult {
    let reply = super::run::Reply { mode: Mode::Tool };
    let runtime = super::runtime(Mode::Tool)?;
    // Through the whole engine, as any pipeline: shell, sandbox, journal, store.
    let request =
        RunRequest { target: Target::Pipeline("exec --json --shell 'echo [1]'".to_owned()), args: None };
    let result = runtime.run(&request);
    let envelope = match result.envelope {
        Envelope::Done(output) if output.to_vec().is_ok_and(|items| items == [json!(1)]) => {
            let mut item =
                json!({ "toolMode": true, "protocolVersion": PROTOCOL_VERSION, "version": COMPATIBLE_WITH });
            if !notes.is_empty() {
                item["notes"] = json!(notes);
            }
            Envelope::Done(Output::from(vec![item]))
        }
        Envelope::Failed(failure) => Envelope::Failed(Failure { kind: FailureKind::Doctor, ..failure }),
        _ => Envelope::Failed(Failure {
            kind: FailureKind::Doctor,
            ..Failure::runtime("the shell answered `echo [1]` with something else")
        }),
    };
    reply.envelope(&envelope)
}
