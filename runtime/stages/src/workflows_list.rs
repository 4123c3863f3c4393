//! `workflows.list`: lists the named workflows that are built in.

use serde_json::json;

use super::each::emit_items;
use super::workflows_run::NAMED;
use lobster_stage::{Host, Sink, Stage, StageKind, StageSpec, Stop};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "workflows.list",
    description: "List available Lobster workflows",
    help: "\
Usage:
  workflows.list

Gives one item for each named workflow that `workflows.run` knows.
",
    flags: &[],
    args_schema: || json!({"type": "object", "properties": {}, "required": []}),
    examples: || json!([{"args": {}, "description": "All named workflows"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |_| Ok(Box::new(List)),
};

struct List;

impl Stage for List {
    fn end_input(&mut self, _host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let list = NAMED.iter().map(|workflow| {
            json!({
                "name": workflow.name,
                "description": workflow.description,
                "argsSchema": (workflow.args_schema)(),
                "examples": (workflow.examples)(),
                "sideEffects": [],
            })
        });
        emit_items(list, out)
    }
}

#[cfg(test)]
mod tests {
    use super::super::recording_host::{RecordingHost, run};
    use super::*;

    #[test]
    fn lists_both_in_order() {
        let items = run(&SPEC, &json!({}), vec![json!(1)], &mut RecordingHost::new()).unwrap();
        let names: Vec<_> = items.iter().map(|item| item["name"].as_str()).collect();
        assert_eq!(names, [Some("github.pr.monitor"), Some("github.pr.monitor.notify")]);
        assert_eq!(items[1]["argsSchema"]["required"], json!(["repo", "pr"]));
        assert_eq!(items[0]["argsSchema"]["properties"]["pr"]["type"], "number");
    }
}
