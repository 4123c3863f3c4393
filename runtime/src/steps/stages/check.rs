//! What looks wrong in a stage but does not stop it: the incumbent ignores
//! options it does not know, so they are said and not refused.

use serde_json::Value;

use super::registry::nearest;
use super::{StageArgs, StageSpec};

/// Something in a stage that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// What and why, in one line.
    pub message: String,
    /// What was probably meant.
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

/// Options that nobody reads and words that have no effect.
#[must_use]
pub fn check(spec: &StageSpec, args: &StageArgs) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for (name, value) in &args.options {
        if spec.flags.iter().any(|flag| flag.name == name) {
            continue;
        }
        let shown = match value {
            Value::String(text) if spec.name == "exec" => format!("--{name} {text}"),
            _ => format!("--{name}"),
        };
        let help = if spec.name == "exec" && !args.positional.is_empty() {
            Some("write `--` before the program to pass options to it: exec -- program --option".to_owned())
        } else {
            nearest(name, spec.flags.iter().map(|flag| flag.name))
                .map(|known| format!("did you mean --{known}?"))
        };
        warnings.push(Warning { message: format!("{}: unknown option {shown} is ignored", spec.name), help });
    }
    if NO_WORDS.contains(&spec.name) && !args.positional.is_empty() {
        let words = args.positional.join(" ");
        let help = match spec.flags {
            [flag, ..] if flag.value.is_some() => Some(format!("did you mean --{} {words}?", flag.name)),
            _ => None,
        };
        warnings.push(Warning { message: format!("{}: the words {words:?} are ignored", spec.name), help });
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::super::builtin;
    use super::*;
    use crate::language::pipeline::parse;

    fn warnings(text: &str) -> Vec<(String, Option<String>)> {
        let stages = parse(text).unwrap().stages;
        let registry = builtin();
        stages
            .iter()
            .flat_map(|stage| check(registry.resolve(&stage.name).unwrap(), &stage.args))
            .map(|warning| (warning.message, warning.help))
            .collect()
    }

    #[test]
    fn unread_options_and_words_are_said() {
        let help = |text: &str| Some(text.to_owned());
        assert_eq!(
            warnings("exec git log --oneline | head 2 | sort --dsc --key a | approve --limit 1"),
            [
                (
                    "exec: unknown option --oneline is ignored".to_owned(),
                    help("write `--` before the program to pass options to it: exec -- program --option")
                ),
                ("head: the words \"2\" are ignored".to_owned(), help("did you mean --n 2?")),
                ("sort: unknown option --dsc is ignored".to_owned(), help("did you mean --desc?")),
            ]
        );
        assert_eq!(warnings("exec -- git log --oneline | where a=1 b | template x y | json"), []);
    }
}
