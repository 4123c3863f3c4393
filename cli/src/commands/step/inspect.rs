//! `lobster step inspect`

use std::io::Write;
use std::path::PathBuf;

use lobster_runtime::component::{Capability, Component, Description, Kind};
use lobster_runtime::json;
use lobster_runtime::stage::Mode;
use serde_json::{Value, json};

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::{Quoting, one_line, units};
use crate::stdout::stdout;

/// Describes a component: what it is, what it can do and what it cannot do.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster step inspect classify.wasm")]
pub(super) struct Args {
    /// The component, or a WASI command module.
    file: PathBuf,
    /// Prints a JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Human)?;
    let component = super::load_component(&runtime, &args.file, &super::compile_patience(&runtime))?;
    let description = component.describe().map_err(|error| {
        CommandError::failed(format!("{}: {}", args.file.display(), super::describe_error(&error)))
    })?;
    let mut out = stdout();
    if args.json {
        writeln!(out, "{}", json::pretty(&program_as_json(&component, description)))?;
    } else {
        Quoting::new(out).write_all(describe_program(&component, description).as_bytes())?;
    }
    Ok(Exit::OK)
}

/// The description of a program, in lines.
pub(crate) fn describe_program(component: &Component, description: Option<&Description>) -> String {
    let seen = component.inspect();
    let mut text = String::new();
    let mut line = |line: String| {
        text.push_str(&line);
        text.push('\n');
    };
    match description {
        Some(step) => line(one_line(&format!("{} {} — {}", step.name, step.version, step.summary))),
        None => line("a command program: it has no description; it reads stdin and writes stdout".to_owned()),
    }
    line(String::new());
    line(format!("kind     {}", seen.kind.describe()));
    line(format!("digest   blake3:{}", seen.digest.to_hex()));
    line(format!("size     {}", units::format_bytes(seen.size)));
    line(format!("host     offers {}", seen.host));
    let mut list = |title: &str, items: &[String]| {
        if !items.is_empty() {
            line(format!("\n{title}"));
            for item in items {
                line(format!("  {item}"));
            }
        }
    };
    list("It can", &seen.can);
    list("It cannot", &seen.cannot);
    if let Some(step) = description {
        let wants: Vec<String> = step
            .wants
            .iter()
            .map(|want| {
                let need = if want.optional { "optional" } else { "needed" };
                let (_, _, what) = capability_forms(&want.capability);
                one_line(&format!("{what} ({need}): {}", want.reason))
            })
            .collect();
        list("It asks for these grants", &wants);
        list("Its own limits", &limit_lines(step));
        let mut schema = |title: &str, text: Option<&str>| {
            if let Some(text) = text {
                let pretty =
                    json::parse(text).map_or_else(|_| text.to_owned(), |schema| json::pretty(&schema));
                list(title, &pretty.lines().map(one_line).collect::<Vec<_>>());
            }
        };
        schema("Arguments (JSON Schema)", Some(&step.args_schema));
        schema("Input item (JSON Schema)", step.input_schema.as_deref());
        schema("Output item (JSON Schema)", step.output_schema.as_deref());
        let examples: Vec<String> = step
            .examples
            .iter()
            .map(|example| one_line(&format!("{}: --args-json '{}'", example.summary, example.args)))
            .collect();
        list("Examples", &examples);
    }
    list("Imports", &seen.imports);
    list("Exports", &seen.exports);
    text
}

fn limit_lines(step: &Description) -> Vec<String> {
    let mut limits = Vec::new();
    limits.extend(step.fuel.map(|fuel| format!("fuel {}", units::format_count(fuel))));
    limits.extend(step.memory.map(|memory| format!("memory {}", units::format_bytes(memory))));
    limits.extend(step.output.map(|output| format!("output {}", units::format_bytes(output))));
    limits.extend(
        step.timeout_ms.map(|ms| format!("time {}", units::format_duration(ms.saturating_mul(1000)))),
    );
    limits
}

/// A capability as a key with its value, for programs, and in words.
fn capability_forms(capability: &Capability) -> (&'static str, Value, String) {
    match capability {
        Capability::Read(path) => ("read", json!(path), format!("read a directory at {path}")),
        Capability::Write(path) => ("write", json!(path), format!("write a directory at {path}")),
        Capability::Env(name) => ("env", json!(name), format!("the variable {name}")),
        Capability::Net(host) => ("net", json!(host), format!("the network host {host}")),
        Capability::Clock => ("clock", json!(true), "the real clock".to_owned()),
        Capability::Random => ("random", json!(true), "real randomness".to_owned()),
    }
}

fn program_as_json(component: &Component, description: Option<&Description>) -> Value {
    let seen = component.inspect();
    let kind = match seen.kind {
        Kind::Step => "step",
        Kind::Command => "command",
        Kind::Module => "module",
    };
    let schema = |text: &str| json::parse(text).unwrap_or(Value::Null);
    let described = description.map(|step| {
        let wants: Vec<_> = step
            .wants
            .iter()
            .map(|want| {
                let (kind, value, _) = capability_forms(&want.capability);
                json!({ kind: value, "reason": want.reason, "optional": want.optional })
            })
            .collect();
        let examples: Vec<_> = step
            .examples
            .iter()
            .map(|example| {
                json!({
                    "summary": example.summary,
                    "args": schema(&example.args),
                    "input": example.input,
                    "output": example.output,
                })
            })
            .collect();
        json!({
            "name": step.name,
            "version": step.version,
            "summary": step.summary,
            "args": schema(&step.args_schema),
            "input": step.input_schema.as_deref().map(schema),
            "output": step.output_schema.as_deref().map(schema),
            "wants": wants,
            "limits": {
                "fuel": step.fuel, "memory": step.memory, "output": step.output, "timeoutMs": step.timeout_ms,
            },
            "examples": examples,
        })
    });
    json!({
        "kind": kind,
        "digest": format!("blake3:{}", seen.digest.to_hex()),
        "size": seen.size,
        "imports": seen.imports,
        "exports": seen.exports,
        "can": seen.can,
        "cannot": seen.cannot,
        "host": seen.host,
        "description": described,
    })
}
