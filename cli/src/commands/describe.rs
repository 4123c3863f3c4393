//! `lobster --describe`: describes all commands as one JSON document.
//!
//! Generated from the definitions that the program itself uses: the grammar of the command line, the
//! registry of pipeline commands, the schemas.

use std::io::Write;

use clap::{Arg, ArgAction, CommandFactory};
use lobster_runtime::envelope::{self, FailureKind, PROTOCOL_VERSION};
use lobster_runtime::json;
use lobster_runtime::language::{codes, workflow};
use lobster_runtime::policy::PolicyFile;
use lobster_runtime::stage::{StageKind, StageSpec};
use lobster_runtime::stages::builtin;
use serde_json::{Value, json};

use super::Cli;
use crate::COMPATIBLE_WITH;
use crate::exit::{CommandResult, finish};
use crate::stdout::stdout;

pub(crate) fn run() -> CommandResult {
    let mut out = std::io::BufWriter::new(stdout());
    json::write_pretty(&mut out, &describe_cli()).map_err(std::io::Error::from)?;
    out.write_all(b"\n")?;
    finish(out)
}

fn describe_cli() -> Value {
    let mut root = Cli::command();
    root.build();
    let failures = [FailureKind::Parse, FailureKind::Runtime, FailureKind::Doctor];
    json!({
        "name": "lobster",
        "version": env!("CARGO_PKG_VERSION"),
        "compatibleWith": COMPATIBLE_WITH,
        "protocolVersion": PROTOCOL_VERSION,
        "exitCodes": {
            "ok": 0,
            "errors": failures.map(|kind| json!({ "type": kind.name(), "exit": kind.exit_code() })),
            "signal": "128 and the number of the signal",
        },
        "commands": root.get_subcommands().filter(|one| !one.is_hide_set()).map(describe_command).collect::<Vec<_>>(),
        "stages": builtin().iter().map(describe_stage).collect::<Vec<_>>(),
        "codes": codes::all_pages().map(|page| json!({ "code": page.code, "title": page.title })).collect::<Vec<_>>(),
        "schemas": {
            "envelope": envelope::json_schema(),
            "workflow": workflow::json_schema(),
            "policy": PolicyFile::json_schema(),
        },
    })
}

fn describe_command(command: &clap::Command) -> Value {
    let arguments = command.get_arguments().filter(|arg| {
        !arg.is_hide_set() && !matches!(arg.get_action(), ArgAction::Help | ArgAction::Version)
    });
    let mut described = json!({
        "name": command.get_name(),
        "about": command.get_long_about().or_else(|| command.get_about()).map(ToString::to_string),
        "arguments": arguments.map(describe_argument).collect::<Vec<_>>(),
    });
    if let Some(examples) = command.get_after_help() {
        described["examples"] = examples.to_string().into();
    }
    if command.has_subcommands() {
        described["commands"] = command.get_subcommands().map(describe_command).collect();
    }
    described
}

fn describe_argument(arg: &Arg) -> Value {
    let takes_value = arg.get_action().takes_values();
    let choices: Vec<_> = arg
        .get_possible_values()
        .iter()
        .filter(|_| takes_value)
        .map(|value| value.get_name().to_owned())
        .collect();
    let mut described = json!({
        "name": arg.get_id().as_str(),
        "help": arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string),
        "required": arg.is_required_set(),
    });
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            described[name] = value;
        }
    };
    put("flag", arg.get_long().map(|long| format!("--{long}").into()));
    put("short", arg.get_short().map(|short| format!("-{short}").into()));
    put("aliases", arg.get_visible_aliases().filter(|names| !names.is_empty()).map(|names| json!(names)));
    put(
        "value",
        arg.get_value_names().filter(|_| takes_value).and_then(|names| Some(names.first()?.as_str().into())),
    );
    put("choices", Some(choices).filter(|choices| !choices.is_empty()).map(Value::from));
    let repeats = matches!(arg.get_action(), ArgAction::Append)
        || arg.get_num_args().is_some_and(|range| range.max_values() > 1);
    put("repeats", repeats.then_some(Value::Bool(true)));
    let default: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    put("default", default.first().map(|value| Value::from(value.as_ref())).filter(|_| takes_value));
    described
}

fn describe_stage(spec: &StageSpec) -> Value {
    json!({
        "name": spec.name,
        "description": spec.description,
        "kind": match spec.kind {
            StageKind::Pure => "pure",
            StageKind::Renderer => "renderer",
            StageKind::Gate => "gate",
            StageKind::Effect => "effect",
        },
        "sideEffects": spec.side_effects,
        "help": spec.help,
        "flags": spec.flags.iter().map(|flag| json!({ "flag": format!("--{}", flag.name), "value": flag.value, "help": flag.help })).collect::<Vec<_>>(),
        "argsSchema": (spec.args_schema)(),
        "examples": (spec.examples)(),
    })
}
