//! A recorded action, executed by itself: its pre-image names all that decides what it gives.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use lobster_component::{Grants, Limits};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::action::NO_GRANTS;
use super::loading::recorded_program;
use super::{Job, JobInput, grants, inline};
use crate::cancel::CancelToken;
use crate::digest::Digest;
use crate::engine::gate::Asker;
use crate::engine::overseer::{Profile, RecordedProgram};
use crate::engine::reuse::Reuse;
use crate::engine::run::{Run, lock};
use crate::engine::value::{Items, StoreHandle, Text};
use crate::runtime::recorded;
use crate::store::{Blob, StepOutcome, StepStatus};

/// The parts of an action that say how to execute it.
#[derive(Deserialize)]
struct Recorded {
    args: Map<String, Value>,
    grants: Box<RawValue>,
    input: Option<RecordedInput>,
    #[serde(default)]
    secrets: Value,
    #[serde(flatten)]
    program: RecordedProgram,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum RecordedInput {
    Bytes(Digest),
    Items(Digest),
}

/// Whether a value stands in an action as the program got it: there, members of
/// objects have another order, and numbers may be written another way.
fn is_as_given(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => true,
        Value::Number(_) => false,
        Value::Array(items) => items.iter().all(is_as_given),
        Value::Object(map) => map.len() <= 1 && map.values().all(is_as_given),
    }
}

/// What a recorded action gives, if that can be known from the action alone and it
/// succeeds: its arguments can be told, it has no grants, its input is at hand, and it keeps no values.
pub(crate) fn compute(run: &Run<'_>, action: &Digest, cancel: &CancelToken) -> Option<StepOutcome> {
    let recorded: Recorded = recorded(&run.store, action).ok()?;
    if recorded.grants.get() != NO_GRANTS || !recorded.secrets.is_null() {
        return None;
    }
    let args = if recorded.program.profile == Profile::Js {
        inline::in_order(recorded.args)?
    } else {
        Some(recorded.args).filter(|args| args.len() <= 1)?
    };
    if !args.values().all(is_as_given) {
        return None;
    }
    let blob = |digest: Digest| Some(Blob { digest, len: run.store.blob_len(&digest).ok()?? });
    let input = match recorded.input {
        None => JobInput::Empty,
        Some(RecordedInput::Bytes(digest)) => {
            JobInput::Bytes(Text::stored(&run.store, blob(digest)?).payload().ok()?)
        }
        Some(RecordedInput::Items(digest)) => {
            let store = StoreHandle(run.store.clone());
            JobInput::Items(Items::Stored { store, blob: blob(digest)?, count: 0 })
        }
    };
    let mut job = Job {
        name: None,
        program: recorded_program(run, recorded.program).ok()?,
        args,
        input,
        grants: Grants::default(),
        limits: Limits::default(),
        secrets: BTreeMap::new(),
        withheld: Vec::new(),
        asker: Asker::Pipeline,
        reuse: Reuse::Never,
        idempotent: true,
    };
    grants::recorded_limits(&recorded.program.limits, &mut job.limits);
    let values = Arc::new(Mutex::new(HashMap::new()));
    let outcome = super::execute(run, job, *action, None, Some(Arc::clone(&values)), cancel);
    let alone = outcome.detail.get("read_state").is_none() && lock(&values).is_empty();
    (alone && outcome.status == StepStatus::Ok).then_some(outcome)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_canonical_json_writes_as_it_was_is_told_by_an_action() {
        for told in [json!(null), json!("1.0"), json!([true, []]), json!({ "a": { "b": ["c"] } })] {
            assert!(is_as_given(&told), "{told}");
        }
        for lost in [json!(1.0), json!([9_007_199_254_740_993_u64]), json!({ "a": [{ "c": "", "b": "" }] })] {
            assert!(!is_as_given(&lost), "{lost}");
        }
    }

    #[test]
    fn arguments_of_inline_code_stand_in_the_order_of_its_bindings() {
        let canonical = json!({ "args": {}, "as": "value", "code": "1", "input": null, "steps": {} });
        let Value::Object(canonical) = canonical else { unreachable!() };
        let ordered = inline::in_order(canonical.clone()).unwrap();
        assert_eq!(ordered.keys().collect::<Vec<_>>(), ["code", "input", "args", "steps", "as"]);
        let mut other = canonical;
        other.insert("more".to_owned(), Value::Null);
        assert_eq!(inline::in_order(other.clone()), None);
        other.clear();
        assert_eq!(inline::in_order(other), None);
    }
}
