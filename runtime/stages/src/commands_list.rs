//! `commands.list`: lists the commands for programs.

use serde_json::json;

use super::each::emit_items;
use lobster_stage::{Flag, Host, Sink, Stage, StageKind, StageSpec, Stop, args_schema, is_ours};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "commands.list",
    description: "List available Lobster pipeline commands",
    help: "Usage:\n  commands.list [--all]\n\n\
           Emits {name, description, argsSchema, examples, sideEffects} for each command; \
           --all adds the commands and options that the incumbent does not have.\n",
    flags: &[Flag { name: "all", value: None, help: "Add the commands and options that only lobster has" }],
    args_schema: || args_schema(&[], &[]),
    examples: || json!([{"args": {}, "description": "All commands with their arguments"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |args| Ok(Box::new(CommandsList { all: args.is_enabled("all") })),
};

/// Options that the incumbent's commands have only in lobster. Clients compare the list with the one they
/// know, so these options, like lobster's own commands, are listed on request only.
const OUR_OPTIONS: [(&[&str], &[&str]); 1] = [(
    &["llm.invoke", "llm_task.invoke"],
    &["prompt-file", "var", "vars-json", "system", "file", "effort", "seed", "stop"],
)];

struct CommandsList {
    all: bool,
}

impl Stage for CommandsList {
    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let schema = |spec: &StageSpec| {
            let mut schema = (spec.args_schema)();
            let ours = OUR_OPTIONS.iter().filter(|(names, _)| !self.all && names.contains(&spec.name));
            for option in ours.flat_map(|(_, options)| *options) {
                if let Some(properties) = schema["properties"].as_object_mut() {
                    properties.shift_remove(*option);
                }
            }
            schema
        };
        let list = |spec: &StageSpec| {
            json!({
                "name": spec.name,
                "description": spec.description,
                "argsSchema": schema(spec),
                "examples": (spec.examples)(),
                "sideEffects": spec.side_effects,
            })
        };
        let shown = |spec: &&StageSpec| self.all || !is_ours(spec.name);
        emit_items(host.command_registry().iter().filter(shown).map(list), out)
    }
}
