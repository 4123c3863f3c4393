//! Printing of results and failures: one envelope for a program, text for a person.

use std::io::Write;
use std::sync::Mutex;

use lobster_runtime::code::Code;
use lobster_runtime::envelope::{Envelope, Failure, FailureKind};
use lobster_runtime::json;
use lobster_runtime::runtime::{RunResult, Runtime};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{Gate, GateFilter, GateKind, GateStatus, RunId};
use lobster_runtime::sync::lock;
use serde_json::{Value, json};

use crate::console_link::page_address;
use crate::exit::{CommandError, CommandResult, Exit, finish};
use crate::failed_run;
use crate::live;
use crate::render::print_to_stderr;
use crate::stdout::stdout;
use crate::terminal::{self, Left};

/// True while a program waits for an envelope that is not being printed yet.
static OWES_ENVELOPE: Mutex<bool> = Mutex::new(false);

/// The way in which results are printed.
pub(crate) struct ResultPrinter {
    pub(crate) mode: Mode,
}

/// Prints the envelope of a command that a second signal ends, if it has not printed one. From then on
/// the command does not print one either.
pub(crate) fn print_owed_envelope(signal: &str) {
    let owed = lock(&OWES_ENVELOPE);
    if *owed {
        let message =
            format!("Received {signal} twice, and ended without waiting for the run to be recorded");
        let failure = Failure::new(Code::Cancelled, message);
        let _ = Envelope::Failed(failure).write_json(&mut stdout());
        // The process ends here.
        std::mem::forget(owed);
    }
}

impl ResultPrinter {
    pub(crate) fn new(mode: Mode) -> Self {
        *lock(&OWES_ENVELOPE) = mode == Mode::Tool;
        Self { mode }
    }

    /// For commands that print an envelope to a program, and text at a terminal.
    pub(crate) fn for_reader() -> Self {
        Self::new(if stdout().is_terminal() { Mode::Human } else { Mode::Tool })
    }

    /// Prints the result of a run for a program or a person.
    pub(crate) fn report_result(
        &self,
        runtime: &Runtime,
        result: RunResult,
        pipeline: bool,
    ) -> CommandResult {
        live::end_view(runtime, result.run);
        let run = result.run;
        self.print_result(runtime, result, pipeline).map_err(|unprinted| match run {
            Some(run) => unprinted
                .with_hint(format!("the run itself has ended; `lobster show {}` shows it", run.short_id())),
            None => unprinted,
        })
    }

    fn print_result(&self, runtime: &Runtime, result: RunResult, pipeline: bool) -> CommandResult {
        match (&result.envelope, self.mode) {
            (Envelope::Failed(failure), mode) => {
                let exit = self.report_failure(failure);
                // The text of a pipeline is on the screen already.
                if mode == Mode::Human
                    && !pipeline
                    && let Some(run) = result.run
                {
                    failed_run::print_where(runtime, run, failure);
                }
                exit
            }
            (envelope, Mode::Tool) => self.print_envelope(envelope),
            (Envelope::Done(output), Mode::Human) => {
                // The result was already rendered; an empty workflow shows nothing.
                if result.rendered || (output.is_empty() && !pipeline) {
                    return Ok(Exit::OK);
                }
                print_pretty(output)
            }
            (Envelope::NeedsApproval(gate) | Envelope::NeedsInput(gate), Mode::Human) => {
                let left = terminal::how_left();
                if let Some(left) = &left {
                    say_left(runtime, result.run, left);
                }
                let approval = matches!(result.envelope, Envelope::NeedsApproval(_));
                match left {
                    Some(Left::Unanswered(_)) => Ok(Exit::FAILED),
                    Some(_) if stdout().is_terminal() => Ok(Exit::OK),
                    // The terminal is closed, so a printed request would not be read; the question is stored.
                    Some(Left::Gone) => print_request(gate, approval, pipeline).or(Ok(Exit::OK)),
                    Some(_) => print_request(gate, approval, pipeline),
                    None => report_waiting(runtime, gate, approval, pipeline),
                }
            }
            (Envelope::Waiting(waits), Mode::Human) => {
                let what: Vec<_> = waits.iter().map(shown_wait).collect();
                let run = result.run.map(|run| format!("Run {} ", run.short_id())).unwrap_or_default();
                print_to_stderr(&format!("{run}waits {}; `lobster serve` continues it", what.join(" and ")));
                Ok(Exit::OK)
            }
            // Only a rejection at the terminal cancels a run of a person this way; the incumbent fails then.
            (Envelope::Cancelled, Mode::Human) => {
                let run = result
                    .run
                    .map(|run| format!(": run {} is cancelled", run.short_id()))
                    .unwrap_or_default();
                print_to_stderr(&format!("Not approved{run}"));
                Ok(Exit::FAILED)
            }
        }
    }

    /// Prints a failure in the form that fits.
    pub(crate) fn report_failure(&self, failure: &Failure) -> CommandResult {
        match self.mode {
            Mode::Tool => self.print_envelope(&Envelope::Failed(failure.clone())),
            Mode::Human => {
                let label = if failure.kind == FailureKind::Parse { "Parse error" } else { "Error" };
                print_to_stderr(&format!("{label}: {}", failure.message));
                Ok(Exit::Code(failure.kind.exit_code()))
            }
        }
    }

    pub(crate) fn print_envelope(&self, envelope: &Envelope) -> CommandResult {
        let exit = Exit::Code(envelope.exit_code());
        *lock(&OWES_ENVELOPE) = false;
        let mut out = std::io::BufWriter::with_capacity(64 << 10, stdout());
        match envelope.write_json(&mut out) {
            Ok(()) => Ok(exit),
            Err(error) => match CommandError::from(error) {
                closed if closed.message.is_empty() => Ok(exit),
                error => Err(error),
            },
        }
    }
}

/// The event or time for which a run without a process waits.
fn shown_wait(wait: &Value) -> String {
    match (wait["event"].as_str(), wait["until"].as_str()) {
        (Some(event), Some(until)) => format!("for event {event}, until {until}"),
        (Some(event), None) => format!("for event {event}"),
        (None, Some(until)) => format!("until {until}"),
        (None, None) => "for a moment".to_owned(),
    }
}

/// Reports that a question was left waiting: the reason, and the commands that answer it.
fn say_left(runtime: &Runtime, run: Option<RunId>, left: &Left) {
    match left {
        Left::Later => print_to_stderr("Left waiting."),
        Left::Gone => print_to_stderr("Left waiting: there was no answer from the terminal."),
        Left::Unanswered(why) => print_to_stderr(&format!("Error: {why}. The question is left waiting.")),
    }
    let open = GateFilter { status: Some(GateStatus::Open), run, limit: 0 };
    let gates = run.and_then(|_| runtime.store().ok()?.list_approvals(&open).ok()).unwrap_or_default();
    for Gate { id, kind, .. } in gates {
        let answer = match kind {
            GateKind::Approval => format!("approve {id}  or: lobster approvals reject {id}"),
            GateKind::Input => format!("answer {id} JSON"),
        };
        print_to_stderr(&format!(
            "  lobster approvals show {id}     what is asked\n  lobster approvals {answer}"
        ));
        say_page(runtime, &id);
    }
}

/// Prints the console address of a question.
fn say_page(runtime: &Runtime, gate: &str) {
    let store = runtime.store().ok();
    if let Some(address) = store.and_then(|store| page_address(&store, &format!("questions/{gate}"))) {
        print_to_stderr(&format!("  {address}"));
    }
}

/// Reports that a person's run waits for an answer and that the terminal cannot ask.
fn report_waiting(runtime: &Runtime, gate: &Value, approval: bool, pipeline: bool) -> CommandResult {
    let token = gate.get("resumeToken").and_then(Value::as_str).unwrap_or_default();
    let how = if approval { "--approve yes|no" } else { "--response-json JSON" };
    print_to_stderr(&format!("Waiting for {}.", if approval { "approval" } else { "input" }));
    print_to_stderr(&match gate.get("approvalId").and_then(Value::as_str) {
        Some(id) => format!("  lobster resume --id {id} {how}"),
        None => format!("  lobster resume --token {token} {how}"),
    });
    if let Some(id) = gate.get("approvalId").and_then(Value::as_str) {
        say_page(runtime, id);
    }
    print_request(gate, approval, pipeline)
}

fn print_request(gate: &Value, approval: bool, pipeline: bool) -> CommandResult {
    if pipeline {
        // Without the token: the incumbent prints this shape.
        let mut shown = gate.clone();
        if let Some(map) = shown.as_object_mut() {
            map.shift_remove("resumeToken");
            map.shift_remove("approvalId");
        }
        return print_pretty(&json!([shown]));
    }
    let (requires_approval, requires_input) =
        if approval { (gate, &Value::Null) } else { (&Value::Null, gate) };
    print_pretty(&json!({
        "status": if approval { "needs_approval" } else { "needs_input" },
        "output": [],
        "requiresApproval": requires_approval,
        "requiresInput": requires_input,
    }))
}

fn print_pretty(value: &impl serde::Serialize) -> CommandResult {
    let mut out = std::io::BufWriter::with_capacity(64 << 10, stdout());
    json::write_pretty(&mut out, value).map_err(std::io::Error::from)?;
    out.write_all(b"\n")?;
    finish(out)
}
