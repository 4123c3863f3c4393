//! Calls functions that the program which started lobster provides to a run.

use std::time::Duration;

use serde_json::{Value, json};

use crate::adapter_answer;
use crate::channel::{Answer, Failure};
use crate::http::{self, HttpLimits, Post, RequestAuth, Secret};
use crate::pool::Asking;
use lobster_base::cancel::CancelToken;
use lobster_base::json;
use lobster_stage::HostFunctions;

/// A function has no limit of its own: the time limit of its step and the caller's signal end it.
const LIMITS: HttpLimits = HttpLimits { idle: Duration::from_secs(24 * 60 * 60), body: 256 << 20 };

/// Calls one function and returns its result; no result is null.
///
/// # Errors
/// [`Failure::Request`] with the function's own message if it failed, else with the reason for the
/// missing answer.
pub fn call_function(
    functions: &HostFunctions,
    (kind, name): (&str, &str),
    body: &Value,
    cancel: &CancelToken,
) -> Result<Value, Failure> {
    let broken = |why: &str| Failure::Request(format!("the program that started lobster {why}"));
    let mut url = http::parse_url(&functions.url).ok_or_else(|| {
        Failure::Request(format!(
            "the {kind} {name} is a function of the program that began this run: resume the run there"
        ))
    })?;
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend([kind, name]);
    }
    let post = Post {
        url,
        headers: Vec::new(),
        credential: Secret::new(&functions.token).map(RequestAuth::Bearer),
        body: json::compact(body),
    };
    // The function is on this machine, so no remote executor can reach it.
    let reply =
        http::post(&post, LIMITS, &|request| http::make_request(request, cancel)).map_err(Failure::Http)?;
    if !reply.is_success() {
        return Err(Failure::Status(reply));
    }
    let Ok(Value::Object(mut said)) = reply.body_json() else {
        return Err(broken("did not answer with JSON"));
    };
    match said.remove("threw") {
        Some(message) => Err(Failure::Request(json::js_string(&message))),
        None => Ok(said.remove("answer").unwrap_or_default()),
    }
}

/// Asks a model through the adapter of this name; `place` describes the step to the adapter.
///
/// # Errors
/// The errors of [`call_function`], and an answer without the required fields.
pub fn ask_adapter(
    functions: &HostFunctions,
    name: &str,
    asking: &Asking<'_>,
    mut place: Value,
    cancel: &CancelToken,
) -> Result<Answer, Failure> {
    let payload = asking.request.adapter_payload(asking.retry);
    let worst = asking.request.worst_case(&payload);
    place["payload"] = payload;
    asking.bounds.call_if_affordable(Some(&worst), || {
        let answer = call_function(functions, ("adapter", name), &place, cancel)?;
        let result = adapter_answer::of_function(answer)?;
        let billed = result.get("model").and_then(Value::as_str).map(str::to_owned);
        Ok(Answer { result, billed })
    })
}

/// Description of the calling step for a function.
#[must_use]
pub fn place_of(effect: &lobster_stage::EffectHost<'_>, args: &lobster_stage::StageArgs) -> Value {
    json!({"args": args, "env": effect.plan_env, "cwd": effect.cwd.to_string_lossy()})
}
