//! `state.get`: emits the value of a key.

use serde_json::{Value, json};

use super::describe::example_list;
use super::user_state;
use lobster_stage::{
    Flow, Host, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop, args_schema, words_schema,
};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "state.get",
    description: "Read a JSON value from Lobster state",
    help: "\
Usage:
  state.get KEY

Gives the value that state.set or diff.last stored under KEY as one item, null if there is
none. Reads no input.
",
    flags: &[],
    args_schema: || args_schema(&[("_", words_schema(Some("The key")))], &["_"]),
    examples: || example_list(&[(r#"{"_":["counter"]}"#, "The value of counter")]),
    side_effects: Some(&["reads_state"]),
    kind: StageKind::Effect,
    build,
};

struct Get {
    key: String,
}

fn build(args: &StageArgs) -> Result<Box<dyn Stage + Send>, StageError> {
    let key = args.positional.first().filter(|key| !key.is_empty());
    let key = key.ok_or_else(|| StageError::permanent("state.get requires a key"))?;
    Ok(Box::new(Get { key: key.clone() }))
}

impl Stage for Get {
    fn process_item(&mut self, _: Value, _: &mut dyn Host, _: &mut dyn Sink) -> Result<Flow, Stop> {
        Ok(Flow::Enough)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let answer = host.perform_effect(user_state::read_effect(&self.key), &mut |effect| {
            Ok(json!({"value": user_state::get(effect, &self.key).map_err(user_state::to_stage_error)?}))
        })?;
        out.emit_item(answer["value"].clone()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::recording_host::{RecordingHost, error_of, run};
    use super::super::state_set;
    use super::*;

    #[test]
    fn gets_what_was_set_and_replays_what_it_saw() {
        let mut host = RecordingHost::new();
        assert_eq!(run(&SPEC, &json!({"_": ["A b"]}), vec![json!("x")], &mut host).unwrap(), [Value::Null]);
        host.start_new_run();
        run(&state_set::SPEC, &json!({"_": ["A b"]}), vec![json!([1, 2])], &mut host).unwrap();
        host.start_new_run();
        assert_eq!(run(&SPEC, &json!({"_": ["a_b"]}), vec![], &mut host).unwrap(), [json!([1, 2])]);
        std::fs::remove_file(host.state_dir().join("a_b.json")).unwrap();
        host.resume_run();
        assert_eq!(run(&SPEC, &json!({"_": ["a_b"]}), vec![], &mut host).unwrap(), [json!([1, 2])]);
    }

    #[test]
    fn refusals() {
        for (args, message) in [
            (json!({"key": "a"}), "state.get requires a key"),
            (json!({}), "state.get requires a key"),
            (json!({"_": ["///"]}), "state key is empty/invalid"),
        ] {
            let error = error_of(run(&SPEC, &args, vec![], &mut RecordingHost::new()));
            assert!(error.message.contains(message), "{}", error.message);
        }
        let mut host = RecordingHost::new();
        std::fs::write(host.state_dir().join("k.json"), "{oops").unwrap();
        error_of(run(&SPEC, &json!({"_": ["k"]}), vec![], &mut host));
    }
}
