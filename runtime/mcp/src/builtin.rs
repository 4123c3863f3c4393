//! The built-in tools: `run`, `resume`, `runs`, `show`, `cancel`.

use std::sync::Arc;

use lobster_runtime::replay::Standing;
use rmcp::model::{JsonObject, Tool};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::hints::Reach;
use super::schema;

/// A built-in tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BuiltinTool {
    /// Only for agents of the service, whose runs continue without their callers.
    Cancel,
    Resume,
    Run,
    Runs,
    Show,
}

impl BuiltinTool {
    pub(super) const ALL: [Self; 5] = [Self::Cancel, Self::Resume, Self::Run, Self::Runs, Self::Show];
    /// The tools of a server for one agent.
    pub(super) const OWN: [Self; 4] = [Self::Resume, Self::Run, Self::Runs, Self::Show];
    /// The tools of the service: none of them runs text written by an agent, and none answers a question.
    pub(super) const OF_SERVICE: [Self; 3] = [Self::Cancel, Self::Runs, Self::Show];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Resume => "resume",
            Self::Run => "run",
            Self::Runs => "runs",
            Self::Show => "show",
        }
    }
}

/// Arguments of `run`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RunArgs {
    pub(super) pipeline: Option<String>,
    pub(super) file: Option<String>,
    pub(super) args: Option<Value>,
    pub(super) cwd: Option<String>,
    #[serde(flatten)]
    pub(super) bounds: Bounds,
}

/// Time limit of a call, and size limit of its answer.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bounds {
    pub(super) timeout_ms: Option<u64>,
    pub(super) max_stdout_bytes: Option<usize>,
}

/// Arguments of `resume`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ResumeArgs {
    pub(super) token: Option<String>,
    pub(super) approval_id: Option<String>,
    pub(super) approve: Option<bool>,
    pub(super) response: Option<Value>,
    #[serde(default)]
    pub(super) cancel: bool,
    #[serde(flatten)]
    pub(super) bounds: Bounds,
}

/// Arguments of `runs`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RunsArgs {
    pub(super) status: Option<String>,
    pub(super) name: Option<String>,
    pub(super) limit: Option<usize>,
    pub(super) before: Option<String>,
}

/// Arguments of `show`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ShowArgs {
    pub(super) run: String,
    pub(super) max_stdout_bytes: Option<usize>,
}

/// Arguments of `cancel`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelArgs {
    pub(super) run: String,
}

/// Parses the arguments of a call.
///
/// # Errors
/// A sentence for the caller.
pub(super) fn parse_arguments<T: DeserializeOwned>(
    tool: BuiltinTool,
    given: Option<JsonObject>,
) -> Result<T, String> {
    let given = Value::Object(given.unwrap_or_default());
    serde_json::from_value(given).map_err(|error| {
        let fields: Vec<String> = argument_fields(tool).keys().cloned().collect();
        format!("{}: {error}; it takes {}", tool.name(), fields.join(", "))
    })
}

/// The listed form of the tool, with its possible effects.
pub(super) fn listed_tool(builtin: BuiltinTool) -> (Tool, Reach) {
    let (title, about, required, reach): (_, _, &[&str], _) = match builtin {
        BuiltinTool::Run => (
            "Run a workflow or pipeline",
            "Runs a lobster pipeline (`exec --json git status | where …`) or a workflow file as one \
             recorded operation under the operator's policy, and answers with its envelope. Status \
             `needs_approval` or `needs_input` means that a person has to answer before it continues.",
            &[],
            Reach::ANYTHING,
        ),
        BuiltinTool::Resume => (
            "Answer a waiting run",
            "Continues a waiting run: `approve` answers an approval, `response` answers a question, `cancel` \
             cancels the run. The operator decides if approvals may come this way; \
             never approve what a person has not approved.",
            &[],
            Reach::ANYTHING,
        ),
        BuiltinTool::Cancel => (
            "Cancel a run",
            "Cancels a run that has not ended, even if it is waiting.",
            &["run"],
            Reach::ANYTHING,
        ),
        BuiltinTool::Runs => (
            "List runs",
            "Lists the runs that were started through this server, newest first.",
            &[],
            Reach::PURE,
        ),
        BuiltinTool::Show => (
            "Show a run",
            "Shows the state of a run: its steps, its open questions, its output or error.",
            &["run"],
            Reach::PURE,
        ),
    };
    let takes = schema::closed_object(argument_fields(builtin), required);
    let mut tool = Tool::new(builtin.name(), about, takes).with_title(title);
    if matches!(builtin, BuiltinTool::Run | BuiltinTool::Resume) {
        tool = tool.with_raw_output_schema(Arc::new(schema::envelope(None)));
    }
    (tool, reach)
}

fn argument_fields(builtin: BuiltinTool) -> Map<String, Value> {
    let timeout = json!({
        "type": "integer", "minimum": 200,
        "description": "Time limit in milliseconds (20000). Time spent waiting for a person does not count.",
    });
    let size = json!({
        "type": "integer", "minimum": 1024,
        "description": "The most bytes in the answer (512000).",
    });
    let fields = match builtin {
        BuiltinTool::Run => json!({
            "pipeline": {"type": "string", "description": "Pipeline text, or the path of a workflow file."},
            "file": {"type": "string", "description": "A workflow file, instead of `pipeline`."},
            "args": {"type": "object", "description": "Arguments of the workflow file."},
            "cwd": {"type": "string", "description": "A directory inside the server's own, relative to it."},
            "timeoutMs": timeout,
            "maxStdoutBytes": size,
        }),
        BuiltinTool::Resume => json!({
            "token": {"type": "string", "description": "`resumeToken` of the envelope."},
            "approvalId": {"type": "string", "description": "`approvalId` of the envelope, instead of `token`."},
            "approve": {"type": "boolean", "description": "The person's answer to an approval. Unless the operator \
                trusts reports, true asks the person again, and false cancels the run in your name."},
            "response": {"description": "The person's answer to a question; fits its `responseSchema`."},
            "cancel": {"type": "boolean", "description": "Cancels the run."},
            "timeoutMs": timeout,
            "maxStdoutBytes": size,
        }),
        BuiltinTool::Cancel => json!({
            "run": {"type": "string", "description": "The run's id (`runId`)."},
        }),
        BuiltinTool::Runs => json!({
            "status": {"enum": Standing::ALL.map(Standing::as_str)},
            "name": {"type": "string", "description": "Only runs of this name."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 200, "description": "The most runs to list \
                (20)."},
            "before": {"type": "string", "description": "Only runs older than this one."},
        }),
        BuiltinTool::Show => json!({
            "run": {"type": "string", "description": "The run's id (`runId`), or its first or last digits."},
            "maxStdoutBytes": size,
        }),
    };
    match fields {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_arguments_are_told_what_there_is() {
        let given = json!({"pipline": "x"}).as_object().cloned();
        let error = parse_arguments::<RunArgs>(BuiltinTool::Run, given).err().unwrap_or_default();
        assert!(error.contains("pipline") && error.contains("timeoutMs"), "{error}");
        let given = json!({"pipeline": "x", "timeoutMs": 5}).as_object().cloned();
        let read = parse_arguments::<RunArgs>(BuiltinTool::Run, given);
        assert!(matches!(read, Ok(args) if args.bounds.timeout_ms == Some(5)), "flattened");
    }
}
