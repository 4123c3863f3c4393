//! Pipeline commands ("stages"), one file each. [`lobster_stage`] defines what a stage may do.

mod approve;
mod ask;
mod commands_list;
mod compare;
mod component;
mod date;
mod dedupe;
mod describe;
mod diff_last;
mod each;
mod effects;
mod email_triage;
pub mod exec;
mod filters;
mod gog_search;
mod gog_send;
mod group_by;
mod head;
mod host_command;
#[cfg(test)]
#[path = "../../models/src/http/testing.rs"]
mod http_server;
mod item_path;
mod js;
mod json;
mod llm;
mod llm_embed;
mod map;
mod mcp_call;
mod openclaw_agent;
mod openclaw_invoke;
mod pick;
mod pr_monitor;
#[cfg(test)]
mod recording_host;
mod sort;
mod state_get;
mod state_set;
mod table;
mod template;
#[cfg(test)]
mod testing;
mod text_arena;
mod tool;
mod user_state;
mod where_;
mod workflows_list;
mod workflows_run;

pub use ask::read_answer;
pub use component::component_call;
pub use host_command::HOST_COMMAND;

use lobster_stage::{HostFunctions, Registry};

/// All of lobster's own commands.
#[must_use]
pub fn builtin() -> Registry {
    let data = [
        &approve::SPEC,
        &ask::SPEC,
        &commands_list::SPEC,
        &component::SPEC,
        &dedupe::SPEC,
        &exec::SPEC,
        &group_by::SPEC,
        &head::SPEC,
        &js::SPEC,
        &json::SPEC,
        &map::SPEC,
        &pick::SPEC,
        &sort::SPEC,
        &table::SPEC,
        &template::SPEC,
        &where_::SPEC,
    ];
    Registry::new(data.into_iter().chain(effects::EFFECTS))
}

/// Adds the functions of the program that started lobster to the commands.
#[must_use]
pub fn with_host_functions(registry: Registry, functions: HostFunctions) -> Registry {
    registry.with_host_functions(functions, host_command::build)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lobster_language::pipeline::parse;
    use lobster_stage::argument_warnings;

    #[test]
    fn a_misspelt_command_is_named_with_its_neighbour() {
        for (name, message) in [
            ("wher", "Unknown command: wher (did you mean where?)"),
            ("group_by", "Unknown command: group_by (did you mean groupBy?)"),
            ("status", "Unknown command: status"),
            ("state", "Unknown command: state (did you mean state.get?)"),
            ("no.such", "Unknown command: no.such"),
        ] {
            assert_eq!(
                builtin().resolve_command(name).err().map(|e| e.to_string()).as_deref(),
                Some(message)
            );
        }
    }

    fn pipeline_warnings(text: &str) -> Vec<(String, Option<String>)> {
        let stages = parse(text).unwrap().stages;
        let registry = builtin();
        stages
            .iter()
            .flat_map(|stage| argument_warnings(registry.resolve_command(&stage.name).unwrap(), &stage.args))
            .map(|warning| (warning.message, warning.help))
            .collect()
    }

    #[test]
    fn unread_options_and_words_are_said() {
        let help = |text: &str| Some(text.to_owned());
        assert_eq!(
            pipeline_warnings("exec git log --oneline | head 2 | sort --dsc --key a | approve --limit 1"),
            [
                (
                    "exec: unknown option --oneline is ignored".to_owned(),
                    help("write `--` before the program to pass options to it: exec -- program --option")
                ),
                ("head: the words \"2\" are ignored".to_owned(), help("did you mean --n 2?")),
                ("sort: unknown option --dsc is ignored".to_owned(), help("did you mean --desc?")),
            ]
        );
        assert_eq!(pipeline_warnings("exec -- git log --oneline | where a=1 | template x y | json"), []);
        let ignored = "where: the condition is one word; the words \"b\" are ignored".to_owned();
        assert_eq!(pipeline_warnings("where a=1 b"), [(ignored, help("quote it, or add another `| where`"))]);
        let helps: Vec<_> =
            pipeline_warnings("head -n 3 | sort -r | sort -x").into_iter().map(|(_, help)| help).collect();
        assert_eq!(
            helps,
            [
                help("did you mean --n 3?"),
                help("did you mean --desc?"),
                help("options begin with two dashes; `lobster help sort` lists them")
            ]
        );
    }
}
