//! Checks a stage for likely mistakes. The incumbent ignores unknown options, so for its commands they are warnings;
//! lobster's own commands reject them.

use serde_json::Value;

use super::registry::nearest_name;
use super::{Flag, StageArgs, StageError, StageSpec};

/// A part of a stage that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The part and the reason, in one line.
    pub message: String,
    /// The likely intention.
    pub help: Option<String>,
}

/// Commands that take no words besides their options.
const NO_WORDS: [&str; 10] = [
    "approve",
    "ask",
    "commands.list",
    "dedupe",
    "groupBy",
    "head",
    "json",
    "sort",
    "table",
    "workflows.list",
];

/// Commands that the incumbent does not have.
const OURS: [&str; 4] = ["component", "js", "llm.embed", "mcp.call"];

/// True if only lobster has the command, so that it may be strict.
pub fn is_ours(name: &str) -> bool {
    OURS.contains(&name)
}

/// Rejects unknown options of lobster's own commands, and values for switches.
pub fn refuse_unknown(name: &str, flags: &[Flag], args: &StageArgs) -> Result<(), StageError> {
    for (option, value) in &args.options {
        let Some(flag) = flags.iter().find(|flag| flag.name == option) else {
            let near = nearest_name(option, flags.iter().map(|flag| flag.name));
            let help = near.map(|known| format!("; did you mean --{known}?")).unwrap_or_default();
            return Err(StageError::permanent(format!("{name}: unknown option --{option}{help}")));
        };
        if let (None, Value::String(text)) = (flag.value, value) {
            return Err(StageError::permanent(format!(
                "{name} --{option} takes no value; write {text:?} before it"
            )));
        }
    }
    Ok(())
}

/// Succeeds if a secret that the step is granted as `variable` can reach the stage.
///
/// # Errors
/// The variables that the stage takes instead; an empty list if it takes no secret.
pub fn takes_secret(name: &str, args: &StageArgs, variable: &str) -> Result<(), &'static [&'static str]> {
    const GATEWAY: &[&str] = &["OPENCLAW_TOKEN", "CLAWD_TOKEN"];
    let taken: &[&str] = match name {
        // Processes have the whole environment of the step, and so does the program of a server.
        "exec" | "gog.gmail.search" | "gog.gmail.send" | "openclaw.agent" | "workflows.run" => return Ok(()),
        "mcp.call" if args.text_value("url").is_none() => return Ok(()),
        "mcp.call" => &[super::MCP_TOKEN],
        "openclaw.invoke" | "clawd.invoke" => GATEWAY,
        "llm_task.invoke" if args.text_value("provider").is_none() => GATEWAY,
        "llm.invoke" | "llm_task.invoke" | "llm.embed" => match args.text_value("provider").map(str::trim) {
            Some("openai" | "openai-responses") => &["OPENAI_API_KEY"],
            Some("azure") => &["AZURE_OPENAI_API_KEY"],
            Some("gemini") => &["GEMINI_API_KEY"],
            Some("anthropic") => &["ANTHROPIC_API_KEY"],
            Some("openclaw") => GATEWAY,
            Some("pi") => &["LOBSTER_PI_LLM_ADAPTER_TOKEN"],
            Some("http") => &["LOBSTER_LLM_ADAPTER_TOKEN"],
            // The environment decides, or a pool whose channels name their own variables.
            _ => return Ok(()),
        },
        "email.triage" if args.get("llm").is_some() => return Ok(()),
        "component" => {
            let granted =
                args.first_value(&["grant-env"]).map(lobster_base::json::js_string).unwrap_or_default();
            match granted.split(',').any(|granted| granted.trim() == variable) {
                true => return Ok(()),
                false => &[],
            }
        }
        _ => &[],
    };
    if taken.contains(&variable) { Ok(()) } else { Err(taken) }
}

/// Warnings about unknown options, and about words that have no effect.
#[must_use]
pub fn argument_warnings(spec: &StageSpec, args: &StageArgs) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (name, value) in &args.options {
        if is_ours(spec.name) || spec.flags.iter().any(|flag| flag.name == name) {
            continue;
        }
        let shown = match value {
            Value::String(text) if spec.name == "exec" => format!("--{name} {text}"),
            _ => format!("--{name}"),
        };
        let help = if spec.name == "exec" && !args.positional.is_empty() {
            Some("write `--` before the program to pass options to it: exec -- program --option".to_owned())
        } else {
            nearest_name(name, spec.flags.iter().map(|flag| flag.name))
                .map(|known| format!("did you mean --{known}?"))
        };
        warnings.push(Warning { message: format!("{}: unknown option {shown} is ignored", spec.name), help });
    }
    if NO_WORDS.contains(&spec.name) && !args.positional.is_empty() {
        let words = args.positional.join(" ");
        let help = match args.positional.as_slice() {
            [dashed, rest @ ..] if dashed.starts_with('-') => option_meant(spec, dashed, rest),
            _ => match spec.flags {
                [flag, ..] if flag.value.is_some() => Some(format!("did you mean --{} {words}?", flag.name)),
                _ => None,
            },
        };
        warnings.push(Warning { message: format!("{}: the words {words:?} are ignored", spec.name), help });
    }
    if let ("where", [_, further @ ..]) = (spec.name, args.positional.as_slice())
        && !further.is_empty()
    {
        warnings.push(Warning {
            message: format!(
                "where: the condition is one word; the words {:?} are ignored",
                further.join(" ")
            ),
            help: Some("quote it, or add another `| where`".to_owned()),
        });
    }
    warnings
}

/// The likely meaning of an option with a single dash: the options of lobster's commands have two.
fn option_meant(spec: &StageSpec, dashed: &str, rest: &[String]) -> Option<String> {
    let name = dashed.trim_start_matches('-');
    // `desc` is called `-r` in sort(1).
    let name = if spec.name == "sort" && name == "r" { "desc" } else { name };
    let mut starting = spec.flags.iter().filter(|flag| flag.name.starts_with(name));
    let flag = match (starting.next(), starting.next()) {
        (Some(flag), None) if !name.is_empty() => Some(flag),
        _ => None,
    };
    Some(match flag {
        Some(flag) if flag.value.is_some() => {
            let words: Vec<&str> = [flag.name].into_iter().chain(rest.iter().map(String::as_str)).collect();
            format!("did you mean --{}?", words.join(" "))
        }
        Some(flag) => format!("did you mean --{}?", flag.name),
        None => format!("options begin with two dashes; `lobster help {}` lists them", spec.name),
    })
}
