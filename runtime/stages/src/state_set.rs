//! `state.set`: stores a value under a key.

use serde_json::{Value, json};

use super::describe::example_list;
use super::user_state;
use lobster_stage::{
    Flow, Host, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop, args_schema, words_schema,
};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "state.set",
    description: "Write a JSON value to Lobster state",
    help: "\
Usage:
  ... | state.set KEY

Stores the input under KEY and passes it on: the item itself if there is one,
otherwise the array of items.
",
    flags: &[],
    args_schema: || args_schema(&[("_", words_schema(Some("The key")))], &["_"]),
    examples: || example_list(&[(r#"{"_":["counter"]}"#, "Keep the input as counter")]),
    side_effects: Some(&["writes_state"]),
    kind: StageKind::Effect,
    build,
};

struct Set {
    key: String,
    items: Vec<Value>,
}

fn build(args: &StageArgs) -> Result<Box<dyn Stage + Send>, StageError> {
    let key = args.positional.first().filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| StageError::permanent("state.set requires a key"))?;
    Ok(Box::new(Set { key: key.clone(), items: Vec::new() }))
}

impl Stage for Set {
    fn process_item(&mut self, item: Value, _host: &mut dyn Host, _out: &mut dyn Sink) -> Result<Flow, Stop> {
        self.items.push(item);
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let value = as_value(std::mem::take(&mut self.items));
        host.perform_effect(user_state::write_effect(&self.key, &value), &mut |effect| {
            user_state::set(effect, &self.key, &value).map_err(user_state::to_stage_error)?;
            Ok(json!({}))
        })?;
        out.emit_item(value).map(drop)
    }
}

/// The stored value: a single item itself, any other number of items as an array.
pub(super) fn as_value(mut items: Vec<Value>) -> Value {
    if items.len() == 1 { items.remove(0) } else { Value::Array(items) }
}

#[cfg(test)]
mod tests {
    use super::super::recording_host::{RecordingHost, error_of, run};
    use super::*;

    #[test]
    fn keeps_one_item_as_it_is_and_others_as_an_array() {
        let mut host = RecordingHost::new();
        for (items, kept, text) in [
            (vec![json!({"a": 1})], json!({"a": 1}), "{\n  \"a\": 1\n}\n"),
            (vec![json!(1), json!(2)], json!([1, 2]), "[\n  1,\n  2\n]\n"),
            (vec![], json!([]), "[]\n"),
        ] {
            assert_eq!(run(&SPEC, &json!({"_": ["k"]}), items, &mut host).unwrap(), [kept]);
            assert_eq!(std::fs::read_to_string(host.state_dir().join("k.json")).unwrap(), text);
            host.start_new_run();
        }
        assert_eq!(error_of(run(&SPEC, &json!({}), vec![], &mut host)).message, "state.set requires a key");
    }

    #[test]
    fn a_resumed_run_does_not_write_again() {
        let mut host = RecordingHost::new();
        run(&SPEC, &json!({"_": ["k"]}), vec![json!(1)], &mut host).unwrap();
        std::fs::write(host.state_dir().join("k.json"), "2\n").unwrap();
        host.resume_run();
        assert_eq!(run(&SPEC, &json!({"_": ["k"]}), vec![json!(1)], &mut host).unwrap(), [json!(1)]);
        assert_eq!(std::fs::read_to_string(host.state_dir().join("k.json")).unwrap(), "2\n");
    }
}
