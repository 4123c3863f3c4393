//! Calls of functions that the program which started lobster lends to a run.

use std::time::Duration;

use serde_json::{Value, json};

use crate::adapter_answer;
use crate::channel::{Answer, Failure};
use crate::http::{self, Credential, Limits, Post, Secret};
use crate::pool::Asking;
use lobster_base::cancel::CancelToken;
use lobster_base::json;
use lobster_stage::HostFunctions;

/// A function takes as long as it likes: the time limit of its step and the signal of the caller end it.
const LIMITS: Limits = Limits { idle: Duration::from_secs(24 * 60 * 60), body: 256 << 20 };

/// Calls one function and returns what it gave; nothing is null.
///
/// # Errors
/// [`Failure::Request`] with the function's own message if it failed, else why there is no answer.
pub fn call(
    functions: &HostFunctions,
    (kind, name): (&str, &str),
    body: &Value,
    cancel: &CancelToken,
) -> Result<Value, Failure> {
    let broken = |why: &str| Failure::Request(format!("the program that started lobster {why}"));
    let mut url = http::parse_url(&functions.url).ok_or_else(|| {
        Failure::Request(format!(
            "the {kind} {name} is a function of the program that began this run: resume it there"
        ))
    })?;
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend([kind, name]);
    }
    let post = Post {
        url,
        headers: Vec::new(),
        credential: Secret::new(&functions.token).map(Credential::Bearer),
        body: json::compact(body),
    };
    // The function is a part of this machine, so no executor elsewhere is asked to reach it.
    let reply = http::post(&post, LIMITS, &|request| http::make(request, cancel)).map_err(Failure::Http)?;
    if !reply.is_success() {
        return Err(Failure::Status(reply));
    }
    let Ok(Value::Object(mut said)) = reply.json() else { return Err(broken("did not answer with JSON")) };
    match said.remove("threw") {
        Some(message) => Err(Failure::Request(json::js_string(&message))),
        None => Ok(said.remove("answer").unwrap_or_default()),
    }
}

/// Asks a model through the adapter of this name; `place` is what the adapter learns of the step.
///
/// # Errors
/// As [`call`], and if the answer lacks what every adapter's answer has.
pub fn ask(
    functions: &HostFunctions,
    name: &str,
    asking: &Asking<'_>,
    mut place: Value,
    cancel: &CancelToken,
) -> Result<Answer, Failure> {
    let payload = asking.request.payload(asking.retry);
    let worst = asking.request.worst_case(&payload);
    place["payload"] = payload;
    asking.bounds.call(Some(&worst), || {
        let answer = call(functions, ("adapter", name), &place, cancel)?;
        let result = adapter_answer::of_function(answer)?;
        let billed = result.get("model").and_then(Value::as_str).map(str::to_owned);
        Ok(Answer { result, billed })
    })
}

/// What a function learns of the step that calls it.
#[must_use]
pub fn place_of(effect: &lobster_stage::EffectHost<'_>, args: &lobster_stage::StageArgs) -> Value {
    json!({"args": args, "env": effect.plan_env, "cwd": effect.cwd.to_string_lossy()})
}
