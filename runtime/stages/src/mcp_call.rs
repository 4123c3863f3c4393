//! `mcp.call`: calls a tool of another program over the Model Context Protocol.

use serde_json::{Map, Value};

use super::describe::{Arg, command_schema, example_list};
use super::each::{self, Each};
use lobster_base::json;
use lobster_stage::{
    Flag, Flow, Host, McpServer, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop, ToolCall,
    refuse_unknown,
};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "mcp.call",
    description: "Call a tool of an MCP server",
    help: "\
Usage:
  mcp.call --server files --tool read_file --args-json '{\"path\":\"a.txt\"}'
  ... | mcp.call --server tickets --tool create --each --item-key ticket
  mcp.call --command-json '[\"npx\",\"-y\",\"some-server\"]' --tool list

--server names a server of lobster.mcp.toml (LOBSTER_MCP_CONFIG), --command-json a program that
speaks on its standard streams, --url a server that speaks streamable HTTP. With --each there is
one call per input item, each recorded by itself; without it the input is ignored.

The result is the tool's structured content, else its text. A tool whose description or schema
is not what `lobster mcp lock` has pinned is not called.
",
    flags: &[
        Flag { name: "server", value: Some("NAME"), help: "a server of lobster.mcp.toml" },
        Flag { name: "command-json", value: Some("JSON"), help: "or: a program and its arguments" },
        Flag { name: "url", value: Some("URL"), help: "or: the address of a server" },
        Flag { name: "tool", value: Some("NAME"), help: "the tool" },
        Flag { name: "args-json", value: Some("JSON"), help: "the tool's arguments, {} by default" },
        Flag { name: "each", value: None, help: "one call per input item" },
        Flag { name: "item-key", value: Some("KEY"), help: "the argument that holds the item (item)" },
    ],
    args_schema: || {
        command_schema(&[
            Arg::text("server", "Name of the server"),
            Arg::text("command-json", "Program and arguments as JSON"),
            Arg::text("url", "Address of the server"),
            Arg::text("tool", "Tool name").required(),
            Arg::text("args-json", "Arguments as JSON"),
            Arg::switch("each", "One call per input item"),
            Arg::text("item-key", "Argument that holds the item"),
        ])
    },
    examples: || {
        example_list(&[(
            r#"{"server":"files","tool":"read_file","args-json":"{\"path\":\"a.txt\"}"}"#,
            "Read a file",
        )])
    },
    side_effects: Some(&["calls_mcp_tool"]),
    kind: StageKind::Effect,
    build: |args| Ok(Box::new(build(args)?)),
};

struct McpCall {
    call: ToolCall,
    each: Option<Each>,
}

fn build(args: &StageArgs) -> Result<McpCall, StageError> {
    refuse_unknown(SPEC.name, SPEC.flags, args)?;
    let refuse = |text: String| StageError::permanent(format!("mcp.call {text}"));
    let word = |flag| args.text_value(flag).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
    let server = match (word("server"), word("command-json"), word("url")) {
        (Some(name), None, None) => McpServer::Named(name),
        (None, Some(text), None) => {
            let argv = json::parse_as::<Vec<String>>(&text).ok().filter(|argv| !argv.is_empty());
            McpServer::Command(argv.ok_or_else(|| {
                refuse(
                    "--command-json must be a JSON list of texts, as in '[\"program\",\"argument\"]'"
                        .to_owned(),
                )
            })?)
        }
        (None, None, Some(url)) => McpServer::Url(url),
        _ => return Err(refuse("requires one of --server, --command-json and --url".to_owned())),
    };
    let tool = word("tool").ok_or_else(|| refuse("requires --tool".to_owned()))?;
    let given = match word("args-json").map(|text| json::parse(&text)) {
        None => Map::new(),
        Some(Ok(Value::Object(map))) => map,
        Some(Ok(_)) => return Err(refuse("--args-json must be a JSON object".to_owned())),
        Some(Err(error)) => return Err(refuse(format!("--args-json must be valid JSON ({error})"))),
    };
    let call = ToolCall { server, tool, args: given, idempotent: false };
    Ok(McpCall { call, each: Each::from_args(args) })
}

impl Stage for McpCall {
    fn process_item(&mut self, item: Value, host: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop> {
        let Some(each) = &mut self.each else { return Ok(Flow::More) };
        let call = ToolCall { args: each.call_arguments(&self.call.args, item), ..self.call.clone() };
        let answer = host.call_tool(call).map_err(|stop| each.explain_failure(stop))?;
        each.count_answer();
        // Each item is a requested call: a later stage that has enough items does not cancel it.
        each::hand_on(answer, out).map(|_| Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        if self.each.is_none() {
            each::hand_on(host.call_tool(self.call.clone())?, out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use lobster_language::pipeline::parse;

    #[test]
    fn mistakes_are_found_before_any_call() {
        for (text, part) in [
            ("mcp.call --tool t", "requires one of --server"),
            ("mcp.call --server s --url http://x --tool t", "requires one of --server"),
            ("mcp.call --server s", "requires --tool"),
            ("mcp.call --server s --tool t --args-json [1]", "must be a JSON object"),
            ("mcp.call --server s --tool t --args-json '{'", "must be valid JSON"),
            ("mcp.call --command-json npx --tool t", "must be a JSON list"),
            ("mcp.call --command-json '[]' --tool t", "must be a JSON list"),
        ] {
            let error = build(&parse(text).unwrap().stages[0].args).err().map(|error| error.message);
            assert!(error.as_ref().is_some_and(|error| error.contains(part)), "{text}: {error:?}");
        }
        let each = |text: &str| build(&parse(text).unwrap().stages[0].args).ok().and_then(|call| call.each);
        let args = |each: Each| Value::Object(each.call_arguments(&Map::new(), 1.into()));
        assert_eq!(each("mcp.call --server s --tool t --each").map(args), Some(json!({"item": 1})));
        let named = each("mcp.call --server s --tool t --each --item-key ticket");
        assert_eq!(named.map(args), Some(json!({"ticket": 1})));
        assert!(each("mcp.call --server s --tool t").is_none());
    }
}
