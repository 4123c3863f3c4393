//! `js`: inline JavaScript as a stage, in the sandbox of components.

use serde_json::{Map, Value};

use super::component::ComponentStage;
use super::{
    ComponentCall, ComponentGrants, ComponentProgram, StageError, StageKind, StageSpec, args_schema,
    words_schema,
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
",
    flags: &[],
    args_schema: || args_schema(&[("_", words_schema(Some("The code")))], &["_"]),
    examples: || serde_json::json!([{"args": {"_": ["input.map(m => m.subject)"]}, "description": "Keep the subjects"}]),
    side_effects: Some(&[]),
    kind: StageKind::Pure,
    build: |args| {
        // Words that were written without quotes are one piece of code.
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
        };
        Ok(Box::new(ComponentStage { call: Some(call), given: None, input: None }))
    },
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::fails;

    #[test]
    fn there_must_be_code() {
        for text in ["js", "js '  '"] {
            assert!(fails(text, json!([])).starts_with("js requires code"), "{text}");
        }
    }
}
