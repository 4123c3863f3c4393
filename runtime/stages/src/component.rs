//! `component`: runs a WebAssembly program as a stage.

use lobster_component::Ceilings;
use serde_json::{Map, Value};

use super::describe::Arg;
use lobster_base::json;
use lobster_base::quantity::{Bytes, Span, parse_count};
use lobster_language::pipeline::StageCall;
use lobster_stage::{
    ComponentCall, ComponentDir, ComponentGrants, ComponentProgram, Flag, Flow, Host, Sink, Spool, Stage,
    StageArgs, StageError, StageKind, StageSpec, Stop, args_schema, refuse_unknown, words_schema,
};

/// The limits that `component` and `js` take.
pub(super) static LIMIT_OPTIONS: [Arg; 4] = [
    Arg::text("fuel", "Most WebAssembly operations, such as 2_000_000_000"),
    Arg::text("memory", "Most memory, such as 64MiB"),
    Arg::text("output", "Most output, such as 8MiB"),
    Arg::text("timeout", "Longest time, such as 5s"),
];

pub(super) static SPEC: StageSpec = StageSpec {
    name: "component",
    description: "Run a WebAssembly component over the items, sandboxed",
    help: "Usage:
  ... | component ./step.wasm [--arg NAME=VALUE]... [--args-json JSON] | ...
  component ./step.wasm --grant-read ./data:/data
  component ./step.wasm --input-json '[{\"a\":1}]' | ...

The file is relative to the working directory; `blake3:DIGEST` names a component of the store.
The component reads the input items, and its output is passed on: items as items, bytes as one text. \
    With --input-json it reads those items (or that one) instead. A value of --arg is read as JSON if it is \
    JSON, otherwise as text.

With --text the items must be texts, which the component reads as lines of bytes: for steps that read
a file, such as csv, mime and html-text. `exec` gives each line that is not empty, with --all-lines
each line.
  exec cat prices.csv | component ./csv.wasm --text | where 'price>10'
  exec --all-lines -- cat message.eml | component ./mime.wasm --text

Without grants it sees nothing of the machine, so its outcome is cached and may be reused.
  --grant-read DIR[:GUEST]   a directory to read     --grant-env NAME       a variable
  --grant-write DIR[:GUEST]  a directory to write    --grant-net HOST:PORT  a host to connect to
  --grant-clock              the real clock          --grant-random         real randomness
Limits, which replace the defaults; the policy and the component's description can lower them:
  --fuel N       most WebAssembly operations    --output SIZE    most output: 8MiB
  --memory SIZE  most memory: 64MiB             --timeout TIME   longest time: 5s
All options may be given several times. `lobster step inspect FILE` shows what a component needs.
",
    flags: &[
        Flag { name: "arg", value: Some("NAME=VALUE"), help: "One argument" },
        Flag { name: "args-json", value: Some("JSON"), help: "All arguments as an object" },
        Flag { name: "input-json", value: Some("JSON"), help: "Items to read instead of the input" },
        Flag { name: "text", value: None, help: "Read the items, which are texts, as lines of bytes" },
        Flag { name: "fuel", value: Some("N"), help: "Most WebAssembly operations" },
        Flag { name: "memory", value: Some("SIZE"), help: "Most memory" },
        Flag { name: "output", value: Some("SIZE"), help: "Most output" },
        Flag { name: "timeout", value: Some("TIME"), help: "Longest time" },
        Flag { name: "grant-read", value: Some("DIR[:GUEST]"), help: "A directory it may read" },
        Flag { name: "grant-write", value: Some("DIR[:GUEST]"), help: "A directory it may write" },
        Flag { name: "grant-env", value: Some("NAME"), help: "A variable it may see" },
        Flag { name: "grant-net", value: Some("HOST:PORT"), help: "A host it may connect to" },
        Flag { name: "grant-clock", value: None, help: "The real clock" },
        Flag { name: "grant-random", value: None, help: "Real randomness" },
    ],
    args_schema: || {
        let own = [
            Arg::text("arg", "One argument as NAME=VALUE"),
            Arg::text("args-json", "All arguments as a JSON object"),
            Arg::text("input-json", "The items to read, as JSON"),
            Arg::switch("text", "Read text items as lines of bytes"),
        ];
        let grants = [
            Arg::text("grant-read", "DIR[:GUEST] it may read"),
            Arg::text("grant-write", "DIR[:GUEST] it may write"),
            Arg::text("grant-env", "Variable it may see"),
            Arg::text("grant-net", "HOST:PORT it may connect to"),
            Arg::switch("grant-clock", "The real clock"),
            Arg::switch("grant-random", "Real randomness"),
        ];
        let words = ("_", words_schema(Some("First word: the component's file, or blake3: and its digest")));
        let options = own.iter().chain(&LIMIT_OPTIONS).chain(&grants).map(Arg::to_property);
        args_schema(&[words].into_iter().chain(options).collect::<Vec<_>>(), &["_"])
    },
    examples: || serde_json::json!([{"args": {"_": ["./classify.wasm"], "arg": "model=small"}, "description": "Classify the items"}]),
    side_effects: Some(&[]),
    kind: StageKind::Effect,
    build: |args| {
        Ok(Box::new(ComponentStage { call: Some(parse_call(args)?), given: given_input(args)?, input: None }))
    },
};

/// The component run that a stage of this command asks for.
pub fn component_call(stage: &StageCall) -> Option<ComponentCall> {
    if stage.name == SPEC.name { parse_call(&stage.args).ok() } else { None }
}

fn parse_call(args: &StageArgs) -> Result<ComponentCall, StageError> {
    refuse_unknown(SPEC.name, SPEC.flags, args)?;
    let refuse = |message: String| Err(StageError::permanent(format!("component {message}")));
    let file = match args.positional.as_slice() {
        [file] => file.clone(),
        [] => return refuse("requires a file: component ./step.wasm".to_owned()),
        [_, extra, ..] => {
            return refuse(format!("takes one file; what is {extra:?}? (arguments: --arg NAME=VALUE)"));
        }
    };
    let texts = |name: &'static str| match args
        .all_values(name)
        .into_iter()
        .map(Value::as_str)
        .collect::<Option<Vec<_>>>()
    {
        Some(texts) => Ok(texts),
        None => Err(StageError::permanent(format!("component --{name} needs a value"))),
    };
    let mut given = match texts("args-json")?.last() {
        None => Map::new(),
        Some(text) => match json::parse(text) {
            Ok(Value::Object(map)) => map,
            Ok(_) => return refuse("--args-json must be a JSON object".to_owned()),
            Err(error) => return refuse(format!("--args-json is not JSON: {error}")),
        },
    };
    for text in texts("arg")? {
        let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return refuse(format!("--arg {text}: write NAME=VALUE"));
        };
        given.insert(name.to_owned(), json::parse(value).unwrap_or_else(|_| Value::String(value.to_owned())));
    }
    let dirs =
        |name: &'static str| texts(name)?.into_iter().map(parse_directory).collect::<Result<Vec<_>, _>>();
    let names =
        |name: &'static str| Ok::<_, StageError>(texts(name)?.into_iter().map(str::to_owned).collect());
    Ok(ComponentCall {
        program: ComponentProgram::Named(file),
        args: given,
        grants: ComponentGrants {
            read: dirs("grant-read")?,
            write: dirs("grant-write")?,
            env: names("grant-env")?,
            net: names("grant-net")?,
            clock: args.is_enabled("grant-clock"),
            random: args.is_enabled("grant-random"),
        },
        input: None,
        text: args.is_enabled("text"),
        limits: parse_limits(SPEC.name, args)?,
    })
}

/// Limits set by `--fuel`, `--memory`, `--output` and `--timeout`.
pub(super) fn parse_limits(stage: &str, args: &StageArgs) -> Result<Ceilings, StageError> {
    fn read_limit<T>(
        stage: &str,
        args: &StageArgs,
        name: &str,
        example: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, StageError> {
        let Some(value) = args.get(name) else { return Ok(None) };
        match value.as_str().and_then(read) {
            Some(limit) => Ok(Some(limit)),
            None => Err(StageError::permanent(format!("{stage} --{name} takes a value such as {example}"))),
        }
    }
    let size = |text: &str| Bytes::parse_or_bytes(text).ok().map(|bytes| bytes.0);
    Ok(Ceilings {
        fuel: read_limit(stage, args, "fuel", "2_000_000_000", parse_count)?,
        memory: read_limit(stage, args, "memory", "64MiB", size)?,
        output: read_limit(stage, args, "output", "8MiB", size)?,
        wall: read_limit(stage, args, "timeout", "5s", |text| text.parse::<Span>().ok().map(|span| span.0))?,
    })
}

/// The items of `--input-json`.
fn given_input(args: &StageArgs) -> Result<Option<Vec<Value>>, StageError> {
    let Some(text) = args.text_or_true("input-json") else { return Ok(None) };
    match json::parse(&text) {
        Ok(Value::Array(items)) => Ok(Some(items)),
        Ok(item) => Ok(Some(vec![item])),
        Err(error) => Err(StageError::permanent(format!("component --input-json is not JSON: {error}"))),
    }
}

fn parse_directory(text: &str) -> Result<ComponentDir, StageError> {
    match text.rsplit_once(':') {
        None if !text.is_empty() => Ok(ComponentDir { host: text.into(), guest: text.to_owned() }),
        Some((host, guest)) if !host.is_empty() && !guest.is_empty() => {
            Ok(ComponentDir { host: host.into(), guest: guest.to_owned() })
        }
        _ => Err(StageError::permanent(format!("component cannot grant {text:?}: write DIR or DIR:GUEST"))),
    }
}

/// A stage that runs a component once, over all of its input.
pub(super) struct ComponentStage {
    pub(super) call: Option<ComponentCall>,
    /// Items read instead of the input.
    pub(super) given: Option<Vec<Value>>,
    pub(super) input: Option<Box<dyn Spool>>,
}

impl Stage for ComponentStage {
    fn process_item(&mut self, item: Value, host: &mut dyn Host, _: &mut dyn Sink) -> Result<Flow, Stop> {
        if self.given.is_some() {
            return Ok(Flow::Enough);
        }
        let spool = match &mut self.input {
            Some(spool) => spool,
            none => none.insert(host.create_spool()?),
        };
        spool.push_item(item)?;
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let Some(call) = self.call.take() else { return Ok(()) };
        if let Some(items) = self.given.take() {
            let mut spool = host.create_spool()?;
            for item in items {
                spool.push_item(item)?;
            }
            self.input = Some(spool);
        }
        host.run_component(ComponentCall { input: self.input.take(), ..call }, out)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::failure_message;
    use super::*;
    use lobster_language::pipeline::parse;

    fn call_from_text(text: &str) -> Result<ComponentCall, String> {
        parse_call(&parse(text).unwrap().stages[0].args).map_err(|error| error.message)
    }

    #[test]
    fn repeated_options_all_count() {
        let call = call_from_text(
            "component a.wasm --arg n=1 --arg 'text=x=y' --args-json '{\"n\":0,\"z\":true}' --grant-read d \
             --grant-read e:/in --grant-net h:1 --grant-clock",
        )
        .unwrap();
        assert_eq!(Value::from(call.args), json!({"n": 1, "z": true, "text": "x=y"}));
        let dir = |host: &str, guest: &str| ComponentDir { host: host.into(), guest: guest.to_owned() };
        let wanted = ComponentGrants {
            read: vec![dir("d", "d"), dir("e", "/in")],
            net: vec!["h:1".to_owned()],
            clock: true,
            ..ComponentGrants::default()
        };
        assert_eq!(call.grants, wanted);
    }

    #[test]
    fn limits_have_units() {
        let limits =
            call_from_text("component a.wasm --fuel 2_000 --memory 5MiB --output 1000 --timeout 2s --text")
                .unwrap();
        let wall = Some(std::time::Duration::from_secs(2));
        let wanted = Ceilings { fuel: Some(2000), memory: Some(5 << 20), output: Some(1000), wall };
        assert_eq!((format!("{:?}", limits.limits), limits.text), (format!("{wanted:?}"), true));
    }

    #[test]
    fn mistakes_are_found_before_anything_runs() {
        for (text, part) in [
            ("component", "requires a file"),
            ("component a.wasm b=1", "what is \"b=1\"?"),
            ("component a.wasm --arg b", "write NAME=VALUE"),
            ("component a.wasm --arg", "--arg needs a value"),
            ("component a.wasm --args-json 1", "must be a JSON object"),
            ("component a.wasm --grant-read :x", "write DIR or DIR:GUEST"),
            ("component a.wasm --memry 5MiB", "unknown option --memry; did you mean --memory?"),
            ("component --text a.wasm", "--text takes no value; write \"a.wasm\" before it"),
            ("component a.wasm --fuel lots", "--fuel takes a value such as 2_000_000_000"),
            ("component a.wasm --memory", "--memory takes a value such as 64MiB"),
            ("js input --fule 1", "js: unknown option --fule; did you mean --fuel?"),
            (
                "mcp.call --server s --tool t --arg a",
                "mcp.call: unknown option --arg; did you mean --args-json?",
            ),
        ] {
            let message = failure_message(text, json!([]));
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
