//! Executes a recorded action by itself: its pre-image names everything that determines its output.

use std::collections::BTreeMap;
use std::sync::Arc;

use lobster_component::{Grants, Limits};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::action::{NO_GRANTS, canonical_arguments};
use super::loading::{self, recorded_program};
use super::{Arguments, Job, JobInput, grants, inline};
use crate::binding::Asker;
use crate::kept_values::is_all_of_its_action;
use crate::kinds::pile::Pile;
use crate::overseer::{Profile, RecordedProgram};
use crate::recorded_plan::load_recorded;
use crate::reuse::Reuse;
use crate::run::Run;
use crate::value::{Items, StoreHandle, Text};
use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;
use lobster_language::plan::ChangesMode;
use lobster_store::{Blob, StepOutcome};

/// The parts of an action that are needed to execute it.
#[derive(Deserialize)]
struct Recorded {
    args: Map<String, Value>,
    given: Option<Digest>,
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

/// The arguments as the program got them, if they can be restored. The action has their members sorted, and the digest
/// of the original text if that differed.
fn as_given(args: Map<String, Value>, given: Option<Digest>, profile: Profile) -> Option<Arguments> {
    if !profile.tells_argument_text() {
        return args.is_empty().then(|| args.into());
    }
    let args = if profile.is_js() { inline::in_order(args)? } else { args };
    let args = Arguments::from(args);
    let (_, text) = canonical_arguments(&args.members, &args.text).ok()?;
    (text == given).then_some(args)
}

/// The outcome of a recorded action, if it follows from the action alone and is a success: the arguments can be
/// restored, there are no grants, the input is available, and no values are kept.
pub fn compute_recorded(run: &Run<'_>, action: &Digest, cancel: &CancelToken) -> Option<StepOutcome> {
    let recorded: Recorded = load_recorded(&run.store, action).ok()?;
    if recorded.grants.get() != NO_GRANTS || !recorded.secrets.is_null() {
        return None;
    }
    let args = as_given(recorded.args, recorded.given, recorded.program.profile)?;
    let blob = |digest: Digest| Some(Blob { digest, len: run.store.blob_len(&digest).ok()?? });
    let input = match recorded.input {
        None => JobInput::Empty,
        Some(RecordedInput::Bytes(digest)) => {
            JobInput::Bytes(Text::from_blob(&run.store, blob(digest)?).to_payload().ok()?)
        }
        Some(RecordedInput::Items(digest)) => {
            let store = StoreHandle(run.store.clone());
            JobInput::Items(Items::Stored { store, blob: blob(digest)?, count: 0 })
        }
    };
    let patience = loading::compile_patience(cancel);
    let mut job = Job {
        name: None,
        program: recorded_program(run, recorded.program, &patience).ok()?,
        args,
        input,
        grants: Grants::default(),
        opened: None,
        limits: Limits::default(),
        secrets: BTreeMap::new(),
        credentials: Vec::new(),
        withheld: Vec::new(),
        asker: Asker::Pipeline,
        reuse: Reuse::Never,
        idempotent: true,
        changes: ChangesMode::Direct,
        pile: Pile::of_run(ChangesMode::Direct),
        settles: true,
    };
    grants::recorded_limits(&recorded.program.limits, &mut job.limits);
    let outcome = super::run_in_process(run, job, *action, None, Some(Arc::default()), cancel);
    is_all_of_its_action(&outcome).then_some(outcome)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_taken_only_if_the_action_tells_their_text() {
        let told = |text: &str| {
            let members: Map<String, Value> = lobster_base::json::parse_as(text).unwrap();
            let (canonical, given) = canonical_arguments(&members.into(), text).unwrap();
            let recorded = lobster_base::json::parse_as(&canonical).unwrap();
            as_given(recorded, given, Profile::Component).map(|args| args.text)
        };
        for same in ["{}", r#"{"a":1,"b":[1.5,"x"]}"#] {
            assert_eq!(told(same).as_deref(), Some(same));
        }
        for lost in [r#"{"b":1,"a":1}"#, r#"{"a":1.0}"#, r#"{"a":9007199254740993}"#, r#"{"a":1e21}"#] {
            assert_eq!(told(lost), None, "{lost}");
        }
        let members: Map<String, Value> = lobster_base::json::parse_as(r#"{"a":1}"#).unwrap();
        assert!(as_given(members, None, Profile::ByName).is_none());
        assert!(as_given(Map::new(), None, Profile::ByKind).is_some());
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
