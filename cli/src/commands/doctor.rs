//! `lobster doctor`

use std::io::Write;

use lobster_runtime::engine::Output;
use lobster_runtime::envelope::{Envelope, Failure, FailureKind, PROTOCOL_VERSION};
use lobster_runtime::json;
use lobster_runtime::runtime::{RunRequest, Target};
use lobster_runtime::sandbox::{Sandbox, SandboxConfig};
use lobster_runtime::stage::Mode;
use serde_json::json;

use crate::COMPATIBLE_WITH;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::table;

/// Checks that lobster can work here: the shell, the state directory, the store.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Attacks the sandbox of this host and says which of its promises hold.
    #[arg(long)]
    sandbox: bool,
    /// Words that come back in the answer.
    notes: Vec<String>,
}

pub(crate) fn run(notes: &[String]) -> CommandResult {
    if let [first, rest @ ..] = notes
        && first == "--sandbox"
    {
        return attack(rest.iter().any(|word| word == "--json"));
    }
    let reply = crate::reply::Reply { mode: Mode::Tool };
    let runtime = prepare::runtime(Mode::Tool)?;
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
    super::gates::tell_of_incumbent(&runtime);
    reply.envelope(&envelope)
}

/// Attacks our own sandbox and tells what came of it.
fn attack(as_json: bool) -> CommandResult {
    let checkup = Sandbox::new(SandboxConfig::default()).doctor().map_err(CommandError::failed)?;
    let mut out = std::io::stdout().lock();
    if as_json {
        writeln!(out, "{}", json::pretty(&checkup))?;
    } else {
        let mut rows = vec![["PROMISE", "RESULT", "ATTACK", ""].map(str::to_owned).to_vec()];
        for finding in &checkup.findings {
            let verdict = json::js_string(&json!(finding.verdict));
            rows.push(vec![
                finding.promise.name().to_owned(),
                verdict,
                finding.action.clone(),
                finding.detail.clone(),
            ]);
        }
        for line in table::lines(&rows) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(if checkup.is_sound() { Exit::OK } else { Exit::FAILED })
}
