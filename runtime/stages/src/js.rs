//! `js`: runs inline JavaScript as a stage, in the sandbox of components.

use serde_json::{Map, Value};

use super::component::{ComponentStage, LIMIT_OPTIONS, parse_limits};
use super::describe::Arg;
use lobster_stage::{
    ComponentCall, ComponentGrants, ComponentProgram, Flag, StageError, StageKind, StageSpec, args_schema,
    refuse_unknown, words_schema,
};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "js",
    description: "Evaluate JavaScript over the items, sandboxed, without node",
    help: "Usage:
  ... | js 'input.filter(m => m.score > 0.8)' | ...
  js 'Array.from({length: 3}, (_, n) => ({n}))'

`input` is the array of all items that come in. The code is an expression, or a function body that
returns. An array is passed on item by item, undefined passes nothing. There is no clock, no file and
no network; Math.random is seeded, so the same input always gives the same items.

The whole input is held in memory. The limits are those of every component (2 minutes, 256 MiB,
fuel for the whole time), unless the stage sets its own; the policy can lower them:
  --fuel N       most WebAssembly operations    --output SIZE    most output: 8MiB
  --memory SIZE  most memory: 512MiB            --timeout TIME   longest time: 5s
In a workflow a `js:` step has `limits:` and `timeout_ms:` for this.
",
    flags: &[
        Flag { name: "fuel", value: Some("N"), help: "Most WebAssembly operations" },
        Flag { name: "memory", value: Some("SIZE"), help: "Most memory" },
        Flag { name: "output", value: Some("SIZE"), help: "Most output" },
        Flag { name: "timeout", value: Some("TIME"), help: "Longest time" },
    ],
    args_schema: || {
        let words = ("_", words_schema(Some("The code")));
        let options = LIMIT_OPTIONS.iter().map(Arg::to_property);
        args_schema(&[words].into_iter().chain(options).collect::<Vec<_>>(), &["_"])
    },
    examples: || serde_json::json!([{"args": {"_": ["input.map(m => m.subject)"]}, "description": "Keep the subjects"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |args| {
        refuse_unknown(SPEC.name, SPEC.flags, args)?;
        // Words without quotes form one piece of code.
        let code = args.positional.join(" ");
        if code.trim().is_empty() {
            return Err(StageError::permanent("js requires code: js 'input.length'"));
        }
        let mut given = Map::new();
        given.insert("code".to_owned(), Value::String(code));
        let call = ComponentCall {
            program: ComponentProgram::Js,
            args: given,
            grants: ComponentGrants::default(),
            input: None,
            text: false,
            limits: parse_limits(SPEC.name, args)?,
        };
        Ok(Box::new(ComponentStage { call: Some(call), given: None, input: None }))
    },
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::failure_message;

    #[test]
    fn there_must_be_code() {
        for text in ["js", "js '  '"] {
            assert!(failure_message(text, json!([])).starts_with("js requires code"), "{text}");
        }
    }
}
