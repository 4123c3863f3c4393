//! Webhooks: requests of other programs that start a workflow.
//!
//! A delivery is verified over its raw bytes before anything parses them. It is stored together with the start that it
//! causes before its sender gets a confirmation. Its content is data: only declared arguments are filled from it.

pub(crate) mod verify;

use axum::http::StatusCode;
use lobster_runtime::digest::Digest;
use lobster_runtime::json;
use lobster_runtime::language::triggers::{Verify, Webhook, find_args};
use lobster_runtime::store::service::{Accepted, NewDelivery, NewStart, Registered, SAME_DELIVERY_MS};
use serde_json::{Value, json};

use crate::http::{App, Asked, Problem, RouteReply};
use crate::workflows::{Content, check_args, new_start};

pub(crate) use verify::{Verified, verify_delivery};

/// Headers that are stored with a delivery.
const KEPT: [&str; 4] = ["content-type", "user-agent", "x-github-event", "x-github-delivery"];

/// Accepts a delivery.
pub(crate) fn receive_delivery(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let path = asked.param("path");
    // Strangers must not learn which addresses exist.
    let refused = || {
        Problem::new(
            StatusCode::UNAUTHORIZED,
            "signature",
            "the delivery is not signed as this webhook expects",
        )
    };
    let (workflow, hook) = find_webhook(app, path)?.ok_or_else(refused)?;
    let secrets = app.runtime.secret_values(&hook.secrets).map_err(|failure| {
        tracing::error!(
            workflow = workflow.name,
            error = failure.message,
            "the secret of a webhook cannot be read"
        );
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "secret", "the webhook cannot be verified now")
            .retry_after(60)
    })?;
    let now = app.store.clock_ms();
    let verified =
        verify_delivery(&hook.verify, &asked.headers, &asked.body, &secrets, now).map_err(|why| {
            tracing::warn!(workflow = workflow.name, path, why, "a delivery was refused");
            refused()
        })?;
    asked.door.mark_accepted();
    app.admit_start(&format!("webhook {path}"))?;
    let delivery = delivery_of(asked, &workflow, &hook, verified, now)?;
    match app.service.accept_delivery(&delivery)? {
        Accepted::New(run) => {
            app.waker.wake();
            Ok(RouteReply::json(&json!({ "run": run.to_string() })))
        }
        Accepted::Again(run) => {
            let body = json!({ "run": run.map(|run| run.to_string()), "duplicate": true });
            // Senders that compare codes see that it is a duplicate.
            Ok(RouteReply::json(&body).with_status(StatusCode::ALREADY_REPORTED))
        }
        Accepted::Differs => Err(Problem::conflict("duplicate", "another body was sent with this id before")),
    }
}

/// Finds the webhook at a path, with its workflow.
fn find_webhook(app: &App, path: &str) -> Result<Option<(Registered, Webhook)>, Problem> {
    for workflow in app.service.list_workflows()? {
        let content = Content::from_registered(&workflow);
        if let Some(hook) = content.triggers.webhooks.into_iter().find(|hook| hook.path == path) {
            return Ok(Some((workflow, hook)));
        }
    }
    Ok(None)
}

fn delivery_of(
    asked: &Asked,
    workflow: &Registered,
    hook: &Webhook,
    verified: Verified,
    now: i64,
) -> Result<NewDelivery, Problem> {
    let digest = Digest::of_bytes(&asked.body);
    let id = verified.id.unwrap_or_else(|| digest.to_string());
    let kept = KEPT.iter().filter_map(|name| Some((*name, asked.headers.get(*name)?.to_str().ok()?)));
    let headers: serde_json::Map<String, Value> =
        kept.map(|(name, value)| (name.to_owned(), value.into())).collect();
    let detail = json!({ "hook": hook.path, "delivery": id, "verify": name_of(&hook.verify) });
    let actor = format!("webhook:{}", hook.path);
    Ok(NewDelivery {
        hook: hook.path.clone(),
        id,
        body: asked.body.to_vec(),
        headers: json::compact(&headers),
        same_since: verified.is_timeless.then_some(now.saturating_sub(SAME_DELIVERY_MS)),
        start: start_of(workflow, hook, &asked.body, detail, actor)?,
    })
}

/// Builds the start for a body. The body is data: it fills declared arguments or starts nothing.
fn start_of(
    workflow: &Registered,
    hook: &Webhook,
    body: &[u8],
    detail: Value,
    actor: String,
) -> Result<NewStart, Problem> {
    let unusable = |why: String| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "arguments", why);
    let body = match hook.args.is_empty() {
        // No part of the body is used, so any body is accepted.
        true => Value::Null,
        false => {
            let text = std::str::from_utf8(body);
            let text = text.map_err(|_| unusable("the body is not UTF-8 text".to_owned()))?;
            json::parse(text).map_err(|error| unusable(format!("the body is not JSON: {error}")))?
        }
    };
    let args = Value::Object(find_args(&hook.args, &body));
    check_args(&Content::from_registered(workflow), &args).map_err(unusable)?;
    Ok(NewStart { actor: Some(actor), ..new_start(workflow, "webhook", detail, args) })
}

/// Starts another run for an earlier delivery.
pub(crate) fn redeliver(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let missing = || Problem::not_found("there is no such delivery of a webhook");
    let n = asked.param("delivery").parse().map_err(|_| missing())?;
    let delivery = app.service.find_delivery(n)?.ok_or_else(missing)?;
    let (workflow, hook) = find_webhook(app, &delivery.hook)?.ok_or_else(missing)?;
    let Some(body) = &delivery.body else {
        return Err(Problem::conflict(
            "forgotten",
            "the delivery is too old, and the server has deleted its body",
        ));
    };
    let detail = json!({ "hook": hook.path, "delivery": delivery.id, "redelivered": true });
    let start = start_of(&workflow, &hook, body, detail, asked.caller_name().unwrap_or_default().to_owned())?;
    app.admit_start(asked.caller_name().unwrap_or_default())?;
    let run = app.service.redeliver(&delivery, &start, &asked.caller_origin())?;
    app.waker.wake();
    Ok(RouteReply::json(&json!({ "run": run.to_string() })))
}

fn name_of(verify: &Verify) -> &'static str {
    match verify {
        Verify::Standard => "standard",
        Verify::Github => "github",
        Verify::Stripe => "stripe",
        Verify::Slack => "slack",
        Verify::Hmac { .. } => "hmac",
        Verify::Token { .. } => "token",
    }
}
