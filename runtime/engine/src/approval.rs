//! The question of a step's approval gate.

use serde_json::Value;

use super::binding::{Asker, GateQuestion, Identity};
use super::env::Env;
use super::known_settings::DIFFERENT_APPROVER;
use super::record::Record;
use lobster_base::json;
use lobster_base::text::{self, Count};
use lobster_language::plan::{Approval, Step};
use lobster_stage::{Question, Stop, store_failure};

/// Longest preview taken from a step's output, in UTF-16 units.
const MAX_PREVIEW: usize = 2000;

/// The question of a step's gate: its own text, with the step's output.
///
/// A step's output may supply the prompt, items and preview (`requiresApproval` or `prompt` in its JSON) only if the
/// file has none; it never decides who may answer.
pub(super) fn build_question(
    step: &Step,
    approval: &Approval,
    record: &Record,
    fallback: Identity,
) -> Result<GateQuestion, Stop> {
    let json = record.json()?.map(|value| &**value);
    let suggested = json.and_then(offered_question);
    let from_output = |key: &str| suggested.and_then(|map| map.get(key));
    let prompt = approval
        .prompt
        .clone()
        .or_else(|| from_output("prompt").and_then(Value::as_str).map(str::to_owned))
        .unwrap_or_else(|| format!("Approve {}?", step.id));
    let items = match (&approval.items, suggested, json) {
        (Some(items), _, _) => items.clone(),
        (None, Some(map), _) => map.get("items").and_then(Value::as_array).cloned().unwrap_or_default(),
        (None, None, Some(value)) => super::record::array_or_single(value.clone()),
        (None, None, None) => Vec::new(),
    };
    let preview = match (&approval.preview, suggested) {
        (Some(preview), _) => Some(preview.clone()),
        (None, Some(map)) => map.get("preview").and_then(Value::as_str).map(str::to_owned),
        (None, None) => preview_of(record, json)?,
    };
    let identity = Identity {
        initiated_by: non_blank(approval.initiated_by.as_deref()).or(fallback.initiated_by),
        required_approver: non_blank(approval.required_approver.as_deref()).or(fallback.required_approver),
        require_different_approver: approval.require_different_approver
            || fallback.require_different_approver,
        ..fallback
    };
    Ok(GateQuestion {
        question: Question::Approval {
            prompt,
            items,
            preview: preview.filter(|text| !text.is_empty()),
            emit: false,
        },
        identity,
        asker: Asker::Step(step.id.clone()),
    })
}

/// The question that a step's output offers.
fn offered_question(json: &Value) -> Option<&serde_json::Map<String, Value>> {
    let truthy = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
    let map = json.as_object()?;
    match map.get("requiresApproval").and_then(Value::as_object) {
        Some(inner) if inner.get("prompt").is_some_and(truthy) => Some(inner),
        _ => map.get("prompt").is_some_and(truthy).then_some(map),
    }
}

fn preview_of(record: &Record, json: Option<&Value>) -> Result<Option<String>, Stop> {
    let text = match (&record.stdout, json) {
        (Some(text), _) if !text.is_empty() => text.load().map_err(store_failure)?.trim().to_owned(),
        (_, Some(value)) => json::compact(value),
        _ => return Ok(None),
    };
    Ok(Some(text::prefix(&text, MAX_PREVIEW, Count::Utf16).to_owned()))
}

/// The operator's defaults for gates of a run that this person started.
pub(super) fn identity_from_env(env: &Env, initiated_by: Option<&str>) -> Identity {
    Identity {
        initiated_by: initiated_by.map(str::to_owned),
        required_approver: env.non_blank("LOBSTER_APPROVAL_REQUIRED_APPROVER"),
        // An unreadable setting permits nothing.
        require_different_approver: env.value_of(&DIFFERENT_APPROVER).map_or(true, Option::unwrap_or_default),
        ..Identity::default()
    }
}

fn non_blank(text: Option<&str>) -> Option<String> {
    text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}
