//! `commands.list`: what there is, for programs.

use serde_json::{Value, json};

use lobster_stage::{Flag, Flow, Host, Sink, Stage, StageKind, StageSpec, Stop, args_schema};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "commands.list",
    description: "List available Lobster pipeline commands",
    help: "Usage:\n  commands.list [--all]\n\n\
           Emits {name, description, argsSchema, examples, sideEffects} for each command; \
           with --all also for those that the incumbent does not have.\n",
    flags: &[Flag { name: "all", value: None, help: "Also the commands that only lobster has" }],
    args_schema: || args_schema(&[], &[]),
    examples: || json!([{"args": {}, "description": "All commands with their arguments"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |args| Ok(Box::new(CommandsList { all: args.switch("all") })),
};

/// Clients compare the list with the one they know, so these come on request only.
const OURS: [&str; 3] = ["component", "js", "mcp.call"];

struct CommandsList {
    all: bool,
}

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
        let shown = |spec: &&StageSpec| self.all || !OURS.contains(&spec.name);
        for command in host.registry().iter().filter(shown).map(list).collect::<Vec<_>>() {
            if out.item(command)? == Flow::Enough {
                break;
            }
        }
        Ok(())
    }
}
