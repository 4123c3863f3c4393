//! `lobster gates`

use std::io::Write;

use lobster_runtime::engine::gate_token;
use lobster_runtime::json;
use lobster_runtime::steps::stages::Mode;
use lobster_runtime::store::{GateFilter, GateKind, GateStatus, iso};
use serde_json::{Value, json};

use crate::exit::{CommandResult, Exit};

/// Lists the questions that wait for a person, and how to answer each.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster gates
  lobster gates 4f90c468                   one gate, with everything that it asks about
  lobster resume --id 4f90c468 --approve yes")]
pub(crate) struct Args {
    /// Only this gate, by its short id, in full.
    id: Option<String>,
    /// An array of objects.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> CommandResult {
    let store = super::runtime(Mode::Human)?.store()?;
    store.expire_gates()?;
    let gates = match &args.id {
        Some(id) => vec![store.gate_by_id(id)?],
        None => store.gates(&GateFilter { status: Some(GateStatus::Open), ..GateFilter::default() })?,
    };
    let mut out = std::io::stdout().lock();
    if args.json {
        let shown: Vec<Value> = gates
            .iter()
            .map(|gate| {
                json!({
                    "id": gate.id,
                    "run": gate.run.to_string(),
                    "path": gate.path,
                    "kind": gate.kind,
                    "status": gate.status,
                    "createdAt": iso(gate.created_at),
                    "expiresAt": gate.expires_at.map(iso),
                    "requiredApprover": gate.required_approver,
                    "binding": gate.binding,
                    "request": gate.question,
                })
            })
            .collect();
        writeln!(out, "{}", json::pretty(&shown))?;
        return Ok(Exit::OK);
    }
    if gates.is_empty() {
        writeln!(out, "nothing waits for a person")?;
    }
    for gate in gates {
        let prompt = gate.question.get("prompt").map(json::js_string).unwrap_or_default();
        writeln!(out, "{}  {}  {prompt}", gate.id, gate.kind)?;
        writeln!(out, "  run {} at {}, since {}", gate.run.short(), gate.path, iso(gate.created_at))?;
        if args.id.is_some() {
            for line in json::pretty(&gate.question).lines() {
                writeln!(out, "  {line}")?;
            }
        } else if let Some(preview) = gate.question.get("preview").and_then(Value::as_str) {
            for line in preview.lines().take(5) {
                writeln!(out, "  | {line}")?;
            }
        }
        match gate.kind {
            GateKind::Approval => writeln!(out, "  lobster resume --id {} --approve yes|no", gate.id)?,
            GateKind::Input => {
                writeln!(
                    out,
                    "  lobster resume --token {} --response-json JSON",
                    gate_token(&store, &gate)?
                )?;
            }
        }
    }
    Ok(Exit::OK)
}
