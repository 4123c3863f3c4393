//! Explains why an answer is no longer valid.

use serde_json::Value;

use super::binding::{GateQuestion, KnownAnswer};
use crate::question::WAITING_CHANGES;
use lobster_base::digest::Digest;
use lobster_store::{Event, RunId, Store};

/// The parts of a policy's question, by the names of their fields.
const PARTS: [(&str, &str); 10] = [
    ("command", "the command"),
    ("cwd", "the working directory"),
    ("commands", "the programs that it starts"),
    ("programs", "the content of a program"),
    ("files", "the content of a file that it runs"),
    ("trees", "the content of a file that it can read"),
    (WAITING_CHANGES, "the waiting changes of earlier steps"),
    ("passed", "the value of a variable that it gets"),
    ("grant", "its rights"),
    ("grants", "its rights"),
];

/// The difference between the approved question and the current one, as far as recorded.
pub(super) fn describe_difference(
    (store, run): (&Store, RunId),
    policy: &Digest,
    known: &KnownAnswer,
    now: &GateQuestion,
) -> String {
    if began_under(store, run).is_some_and(|began| began != policy.to_string()) {
        return "the policy changed".to_owned();
    }
    let asked = store.gate_by_id(&known.gate).ok();
    let asked = asked.and_then(|gate| serde_json::from_value::<GateQuestion>(gate.detail).ok());
    let Some(asked) = asked else { return "the question, its items or the plan changed".to_owned() };
    let (was, is) = (asked.request_fields(), now.request_fields());
    let mut changed = Vec::new();
    if was.get("prompt") != is.get("prompt") {
        changed.push("the question");
    }
    let items = |request: &serde_json::Map<String, Value>| {
        request.get("items").and_then(Value::as_array).cloned().unwrap_or_default()
    };
    for (was, is) in items(&was).iter().zip(&items(&is)) {
        changed.extend(
            PARTS.iter().filter(|(field, _)| was.get(*field) != is.get(*field)).map(|(_, words)| *words),
        );
    }
    changed.dedup();
    match changed.as_slice() {
        [] if was == is => "the plan or its arguments changed".to_owned(),
        [] => "its items changed".to_owned(),
        some => format!("{} changed", some.join(" and ")),
    }
}

/// The digest of the policy under which the run began.
pub(super) fn began_under(store: &Store, run: RunId) -> Option<String> {
    let first = store.events_after(run, 0, 1).ok()?;
    match &first.first()?.event {
        Event::RunStarted { detail, .. } => detail["policy"].as_str().map(str::to_owned),
        _ => None,
    }
}
