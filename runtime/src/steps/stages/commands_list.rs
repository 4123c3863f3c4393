//! `commands.list`: what there is, for programs.

use serde_json::{Value, json};

use super::{Flow, Host, Sink, Stage, StageKind, StageSpec, Stop, args_schema};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "commands.list",
    description: "List available Lobster pipeline commands",
    help: "Usage:\n  commands.list\n\nEmits {name, description, argsSchema, examples, sideEffects} for each command.\n",
    flags: &[],
    args_schema: || args_schema(&[], &[]),
    examples: || json!([{"args": {}, "description": "All commands with their arguments"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |_| Ok(Box::new(CommandsList)),
};

struct CommandsList;

impl Stage for CommandsList {
    fn item(&mut self, _: Value, _: &mut dyn Host, _: &mut dyn Sink) -> Result<Flow, Stop> {
        Ok(Flow::More)
    }

    fn end(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let list = |spec: &StageSpec| {
            json!({
                "name": spec.name,
                "description": spec.description,
                "argsSchema": (spec.args_schema)(),
                "examples": (spec.examples)(),
                "sideEffects": spec.side_effects,
            })
        };
        for command in host.registry().iter().map(list).collect::<Vec<_>>() {
            if out.item(command)? == Flow::Enough {
                break;
            }
        }
        Ok(())
    }
}
