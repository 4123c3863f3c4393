//! `diff.last`: compares the input with the input of the last run that succeeded.

use serde_json::{Value, json};

use super::describe::{Arg, command_schema, example_list, option};
use super::state_set::as_value;
use super::user_state;
use lobster_base::json;
use lobster_stage::{Flow, Host, Sink, Stage, StageArgs, StageError, StageKind, StageSpec, Stop};
use lobster_store::StoreError;

pub(super) static SPEC: StageSpec = StageSpec {
    name: "diff.last",
    description: "Compare current items to last stored snapshot",
    help: "\
Usage:
  ... | diff.last --key KEY

Gives {kind, key, changed, before, after}. The order of fields does not matter. The input becomes the new \
    snapshot when the whole pipeline has succeeded, so that no change is lost if a later command fails.
",
    flags: &[option("key", "KEY", "where the snapshot is kept (or the first word)")],
    args_schema: || command_schema(&[Arg::text("key", "State key of the snapshot").required()]),
    examples: || example_list(&[(r#"{"key":"inbox"}"#, "Check the inbox for changes")]),
    side_effects: Some(&["writes_state"]),
    kind: StageKind::Effect,
    build,
};

struct Diff {
    /// The key as it was given: a bare `--key` is shown as `true`.
    key: Value,
    items: Vec<Value>,
}

fn build(args: &StageArgs) -> Result<Box<dyn Stage + Send>, StageError> {
    let key = args.get("key").cloned().or_else(|| args.positional.first().map(|key| json!(key)));
    let key = key.filter(|key| key.as_str() != Some(""));
    let key = key.ok_or_else(|| StageError::permanent("diff.last requires --key"))?;
    Ok(Box::new(Diff { key, items: Vec::new() }))
}

impl Stage for Diff {
    fn process_item(&mut self, item: Value, _host: &mut dyn Host, _out: &mut dyn Sink) -> Result<Flow, Stop> {
        self.items.push(item);
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        let now = as_value(std::mem::take(&mut self.items));
        let found = compare_snapshot(&json::js_string(&self.key), now, host)?;
        out.emit_item(json!({
            "kind": "diff.last", "key": self.key, "changed": found.changed, "before": found.before, "after": found.after,
        }))
        .map(drop)
    }
}

/// A snapshot with the previous one.
pub(super) struct Compared {
    pub(super) changed: bool,
    pub(super) before: Value,
    pub(super) after: Value,
}

/// Compares `now` with the snapshot under `key` and makes it the next one when the pipeline succeeds.
pub(super) fn compare_snapshot(key: &str, now: Value, host: &mut dyn Host) -> Result<Compared, Stop> {
    let answer = host.perform_effect(user_state::read_effect(key), &mut |effect| {
        let before = match user_state::get(effect, key) {
            // Text that is not JSON is no snapshot: everything has changed.
            Err(StoreError::StateText { .. }) => Value::Null,
            other => other.map_err(user_state::to_stage_error)?,
        };
        Ok(json!({"value": before}))
    })?;
    let before = answer["value"].clone();
    let (kept_key, snapshot) = (key.to_owned(), now.clone());
    host.on_success(
        user_state::write_effect(key, &now),
        Box::new(move |effect| {
            user_state::set(effect, &kept_key, &snapshot).map_err(user_state::to_stage_error)?;
            Ok(json!({}))
        }),
    );
    Ok(Compared { changed: json::stable_text(&before) != json::stable_text(&now), before, after: now })
}

#[cfg(test)]
mod tests {
    use super::super::recording_host::{RecordingHost, error_of, run};
    use super::*;

    fn run_diff(host: &mut RecordingHost, items: Vec<Value>) -> Value {
        host.start_new_run();
        run(&SPEC, &json!({"key": "My Key"}), items, host).unwrap().remove(0)
    }

    #[test]
    fn the_snapshot_is_kept_only_when_the_pipeline_succeeds() {
        let mut host = RecordingHost::new();
        let first = run_diff(&mut host, vec![json!({"a": 1, "b": 2})]);
        assert_eq!(
            first,
            json!({"kind": "diff.last", "key": "My Key", "changed": true, "before": null, "after": {"a": 1, "b": 2}})
        );
        assert_eq!(run_diff(&mut host, vec![json!({"a": 1, "b": 2})]), first);
        host.complete_run();
        let second = run_diff(&mut host, vec![json!({"b": 2, "a": 1})]);
        assert_eq!((&second["changed"], &second["before"]), (&json!(false), &json!({"a": 1, "b": 2})));
        std::fs::write(host.state_dir().join("my_key.json"), "{oops").unwrap();
        assert_eq!(run_diff(&mut host, vec![])["before"], Value::Null);
    }

    #[test]
    fn keys() {
        let mut host = RecordingHost::new();
        assert_eq!(
            run(&SPEC, &json!({"key": true}), vec![json!(null)], &mut host).unwrap()[0]["key"],
            json!(true)
        );
        host.start_new_run();
        assert_eq!(
            run(&SPEC, &json!({"_": ["p"]}), vec![json!(null)], &mut host).unwrap()[0]["changed"],
            json!(false)
        );
        host.start_new_run();
        assert_eq!(error_of(run(&SPEC, &json!({}), vec![], &mut host)).message, "diff.last requires --key");
        assert_eq!(
            error_of(run(&SPEC, &json!({"key": "///"}), vec![], &mut host)).message,
            "state key is empty/invalid"
        );
    }
}
