//! A recorded action, executed by itself: its pre-image names all that decides what it gives.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use lobster_component::{Grants, Limits};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::action::NO_GRANTS;
use super::loading::recorded_program;
use super::{Job, JobInput, grants};
use crate::cancel::CancelToken;
use crate::digest::Digest;
use crate::engine::gate::Asker;
use crate::engine::overseer::RecordedProgram;
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

/// What a recorded action gives, if that can be known from the action alone and
/// it succeeds: it has no arguments and no grants, its input is at hand, and it keeps no values.
pub(crate) fn compute(run: &Run<'_>, action: &Digest, cancel: &CancelToken) -> Option<StepOutcome> {
    let recorded: Recorded = recorded(&run.store, action).ok()?;
    // The action does not keep the order in which arguments were given, which a program can see.
    if !recorded.args.is_empty() || recorded.grants.get() != NO_GRANTS || !recorded.secrets.is_null() {
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
        args: recorded.args,
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
