//! `workflows.run`: runs a named workflow that is built in.

use serde_json::{Map, Value, json};

use super::describe::{Arg, command_schema, example_list};
use super::pr_monitor;
use lobster_base::json;
use lobster_stage::{Flag, Host, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "workflows.run",
    description: "Run a named Lobster workflow",
    help: "\
Usage:
  workflows.run --name github.pr.monitor --args-json '{\"repo\":\"owner/name\",\"pr\":1}'

`workflows.list` shows the names and what they take.
",
    flags: &[
        Flag { name: "name", value: Some("NAME"), help: "the workflow (or the first word)" },
        Flag { name: "args-json", value: Some("JSON"), help: "its arguments, an object" },
    ],
    args_schema: || {
        command_schema(&[
            Arg::text("name", "Workflow").required(),
            Arg::text("args-json", "Arguments as JSON"),
        ])
    },
    examples: || {
        example_list(&[(
            r#"{"name":"github.pr.monitor","args-json":"{\"repo\":\"owner/name\",\"pr\":1}"}"#,
            "Changes of a pull request",
        )])
    },
    side_effects: Some(&[]),
    kind: StageKind::Effect,
    build,
};

/// A workflow with a name.
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) args_schema: fn() -> Value,
    pub(super) examples: fn() -> Value,
    run: Work,
}

/// Runs a workflow with its arguments and returns its one item.
type Work = fn(&Map<String, Value>, &mut dyn Host) -> Result<Value, Stop>;

/// All named workflows, in the order of `workflows.list`.
pub(super) static NAMED: [Named; 2] = [
    Named {
        name: "github.pr.monitor",
        description: "Fetch PR state via gh, diff against last run, emit only on change.",
        args_schema: || {
            object_of(&[
                ("repo", "string", "owner/name"),
                ("pr", "number", "Number of the pull request"),
                ("key", "string", "State key of the last snapshot"),
                ("changesOnly", "boolean", "Say little when nothing has changed"),
                ("summaryOnly", "boolean", "Leave the snapshot out"),
            ])
        },
        examples: || example_list(&[(r#"{"repo":"owner/name","pr":1}"#, "Changes since the last run")]),
        run: pr_monitor::monitor_pr,
    },
    Named {
        name: "github.pr.monitor.notify",
        description: "Monitor a PR and emit a single human-friendly message when it changes.",
        args_schema: || {
            object_of(&[
                ("repo", "string", "owner/name"),
                ("pr", "number", "Number of the pull request"),
                ("key", "string", "State key of the last snapshot"),
            ])
        },
        examples: || {
            example_list(&[(r#"{"repo":"owner/name","pr":1}"#, "One line if something has changed")])
        },
        run: pr_monitor::notify_change,
    },
];

fn object_of(properties: &[(&str, &str, &str)]) -> Value {
    let properties: Map<String, Value> = properties
        .iter()
        .map(|(name, kind, about)| ((*name).to_owned(), json!({"type": kind, "description": about})))
        .collect();
    json!({"type": "object", "properties": properties, "required": ["repo", "pr"]})
}

struct Run {
    workflow: &'static Named,
    args: Map<String, Value>,
}

fn build(args: &StageArgs) -> Result<Box<dyn Stage + Send>, StageError> {
    let name = args.text_value("name").map(str::to_owned).or_else(|| args.positional.first().cloned());
    let name = name
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .ok_or_else(|| StageError::permanent("workflows.run requires --name"))?;
    let workflow = NAMED.iter().find(|workflow| workflow.name == name).ok_or_else(|| {
        let known: Vec<&str> = NAMED.iter().map(|workflow| workflow.name).collect();
        StageError::permanent(format!("Unknown workflow: {name} (there are {})", known.join(", ")))
    })?;
    let text =
        args.text_or_true("args-json").filter(|text| !text.is_empty()).unwrap_or_else(|| "{}".to_owned());
    let value = json::parse(&text).map_err(|error| {
        StageError::permanent(format!("workflows.run --args-json must be valid JSON ({error})"))
    })?;
    let Value::Object(args) = value else {
        return Err(StageError::permanent("workflows.run --args-json must be a JSON object"));
    };
    Ok(Box::new(Run { workflow, args }))
}

impl Stage for Run {
    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let item = (self.workflow.run)(&self.args, host)?;
        out.emit_item(item).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::recording_host::{RecordingHost, error_of, run};
    use super::*;

    #[test]
    fn refusals() {
        for (args, part) in [
            (json!({}), "workflows.run requires --name"),
            (json!({"name": true}), "workflows.run requires --name"),
            (json!({"name": "toString"}), "Unknown workflow: toString"),
            (json!({"name": "github.pr.monitor", "args-json": "{oops"}), "--args-json must be valid JSON"),
            (json!({"name": "github.pr.monitor", "args-json": "null"}), "--args-json must be a JSON object"),
            (json!({"_": ["github.pr.monitor"]}), "github.pr.monitor requires args.repo and args.pr"),
        ] {
            let error = error_of(run(&SPEC, &args, vec![], &mut RecordingHost::new()));
            assert!(error.message.contains(part), "{}", error.message);
        }
    }
}
