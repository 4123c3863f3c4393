//! `component`: a WebAssembly program as a stage.

use serde_json::{Map, Value};

use super::{
    ComponentCall, ComponentDir, ComponentGrants, ComponentProgram, Flag, Flow, Host, Sink, Spool, Stage,
    StageArgs, StageError, StageKind, StageSpec, Stop, args_schema, option_schema, words_schema,
};
use crate::json;

pub(super) static SPEC: StageSpec = StageSpec {
    name: "component",
    description: "Run a WebAssembly component over the items, sandboxed",
    help: "Usage:
  ... | component ./step.wasm [--arg NAME=VALUE]... [--args-json JSON] | ...
  component ./step.wasm --grant-read ./data:/data
  component ./step.wasm --input-json '[{\"a\":1}]' | ...

The file is relative to the working directory; `blake3:DIGEST` names a component of the store.
The component reads the items that come in and its output goes on: items as items, bytes as one
text. With --input-json it reads those items (or that one) instead. A value of --arg that is JSON is taken as JSON, any other as text.

Without grants it sees nothing of the machine, so its outcome is cached and may be reused.
  --grant-read DIR[:GUEST]    a directory to read      --grant-env NAME    a variable
  --grant-write DIR[:GUEST]   a directory to write     --grant-net H:PORT  a host to connect to
  --grant-clock, --grant-random                        the real clock, real randomness
All options may be given several times. `lobster step inspect FILE` says what a component needs.
",
    flags: &[
        Flag { name: "arg", value: Some("NAME=VALUE"), help: "One argument" },
        Flag { name: "args-json", value: Some("JSON"), help: "All arguments as an object" },
        Flag { name: "input-json", value: Some("JSON"), help: "The items to read instead of those that come in" },
        Flag { name: "grant-read", value: Some("DIR[:GUEST]"), help: "A directory it may read" },
        Flag { name: "grant-write", value: Some("DIR[:GUEST]"), help: "A directory it may write" },
        Flag { name: "grant-env", value: Some("NAME"), help: "A variable it may see" },
        Flag { name: "grant-net", value: Some("HOST:PORT"), help: "A host it may connect to" },
        Flag { name: "grant-clock", value: None, help: "The real clock" },
        Flag { name: "grant-random", value: None, help: "Real randomness" },
    ],
    args_schema: || {
        args_schema(
            &[
                ("_", words_schema(Some("First word: the component's file, or blake3: and its digest"))),
                ("arg", option_schema("string", "One argument as NAME=VALUE", Value::Null)),
                ("args-json", option_schema("string", "All arguments as a JSON object", Value::Null)),
                ("input-json", option_schema("string", "The items to read, as JSON", Value::Null)),
                ("grant-read", option_schema("string", "DIR[:GUEST] it may read", Value::Null)),
                ("grant-write", option_schema("string", "DIR[:GUEST] it may write", Value::Null)),
                ("grant-env", option_schema("string", "Variable it may see", Value::Null)),
                ("grant-net", option_schema("string", "HOST:PORT it may connect to", Value::Null)),
                ("grant-clock", option_schema("boolean", "The real clock", Value::Null)),
                ("grant-random", option_schema("boolean", "Real randomness", Value::Null)),
            ],
            &["_"],
        )
    },
    examples: || serde_json::json!([{"args": {"_": ["./classify.wasm"], "arg": "model=small"}, "description": "Classify the items"}]),
    side_effects: Some(&[]),
    kind: StageKind::Effect,
    build: |args| Ok(Box::new(ComponentStage { call: Some(call(args)?), given: given_input(args)?, input: None })),
};

fn call(args: &StageArgs) -> Result<ComponentCall, StageError> {
    let refuse = |message: String| Err(StageError::permanent(format!("component {message}")));
    let file = match args.positional.as_slice() {
        [file] => file.clone(),
        [] => return refuse("requires a file: component ./step.wasm".to_owned()),
        [_, extra, ..] => {
            return refuse(format!("takes one file; what is {extra:?}? (arguments: --arg NAME=VALUE)"));
        }
    };
    let texts = |name: &'static str| match args
        .all(name)
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
    let dirs = |name: &'static str| texts(name)?.into_iter().map(directory).collect::<Result<Vec<_>, _>>();
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
            clock: args.switch("grant-clock"),
            random: args.switch("grant-random"),
        },
        input: None,
    })
}

/// The items of `--input-json`.
fn given_input(args: &StageArgs) -> Result<Option<Vec<Value>>, StageError> {
    let Some(text) = args.text("input-json") else { return Ok(None) };
    match json::parse(&text) {
        Ok(Value::Array(items)) => Ok(Some(items)),
        Ok(item) => Ok(Some(vec![item])),
        Err(error) => Err(StageError::permanent(format!("component --input-json is not JSON: {error}"))),
    }
}

fn directory(text: &str) -> Result<ComponentDir, StageError> {
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
    /// Read instead of what comes in.
    pub(super) given: Option<Vec<Value>>,
    pub(super) input: Option<Spool>,
}

impl Stage for ComponentStage {
    fn item(&mut self, item: Value, host: &mut dyn Host, _: &mut dyn Sink) -> Result<Flow, Stop> {
        if self.given.is_some() {
            return Ok(Flow::Enough);
        }
        let spool = match &mut self.input {
            Some(spool) => spool,
            none => none.insert(host.spool()?),
        };
        spool.push(item)?;
        Ok(Flow::More)
    }

    fn end(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let Some(call) = self.call.take() else { return Ok(()) };
        if let Some(items) = self.given.take() {
            let mut spool = host.spool()?;
            for item in items {
                spool.push(item)?;
            }
            self.input = Some(spool);
        }
        host.component(ComponentCall { input: self.input.take(), ..call }, out)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::fails;
    use super::*;
    use crate::language::pipeline::parse;

    fn read(text: &str) -> Result<ComponentCall, String> {
        call(&parse(text).unwrap().stages[0].args).map_err(|error| error.message)
    }

    #[test]
    fn repeated_options_all_count() {
        let call = read(
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
    fn mistakes_are_found_before_anything_runs() {
        for (text, part) in [
            ("component", "requires a file"),
            ("component a.wasm b=1", "what is \"b=1\"?"),
            ("component a.wasm --arg b", "write NAME=VALUE"),
            ("component a.wasm --arg", "--arg needs a value"),
            ("component a.wasm --args-json 1", "must be a JSON object"),
            ("component a.wasm --grant-read :x", "write DIR or DIR:GUEST"),
        ] {
            let message = fails(text, json!([]));
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
