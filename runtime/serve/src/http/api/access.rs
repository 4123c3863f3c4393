//! Logging in and out, and the tokens of programs.

use axum::http::{HeaderValue, StatusCode, header};
use lobster_runtime::store::iso;
use lobster_runtime::store::service::CredentialKind;
use serde_json::{Value, json};

use super::super::COOKIE;
use super::{App, Asked, Problem, Reply};
use crate::access::{Grant, Role, grant, hash_of, make_secret, new_credential};

/// How long a session lasts.
const SESSION_MS: i64 = 12 * 3_600_000;

const DAY_MS: i64 = 86_400_000;

fn failed(why: String) -> Problem {
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", why)
}

pub fn login(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    app.failures.check(asked.door.peer)?;
    let link = asked.json["link"].as_str().unwrap_or_default();
    let secret = make_secret().map_err(failed)?;
    let expires_at = app.store.clock_ms() + SESSION_MS;
    // Whose it is and what they may stands in the link.
    let session = Grant {
        kind: CredentialKind::Session,
        name: String::new(),
        role: Role::Viewer,
        scope: None,
        expires_at: Some(expires_at),
    };
    let session = new_credential(&session, &secret).map_err(failed)?;
    if !app.service.redeem(&hash_of(link), &session, &asked.door.peer.to_string())? {
        app.failures.note(asked.door.peer);
        return Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "link",
            "the link was used, or its time is over; `lobster serve link` makes another one",
        ));
    }
    let secure = if app.is_secure { "; Secure" } else { "" };
    let cookie = format!(
        "{COOKIE}={secret}; HttpOnly; SameSite=Strict; Path=/; Max-Age={}{secure}",
        SESSION_MS / 1000
    );
    let cookie = HeaderValue::from_str(&cookie).map_err(|error| failed(error.to_string()))?;
    Ok(Reply::json(&json!({ "expiresAt": iso(expires_at) })).header(header::SET_COOKIE, cookie))
}

pub fn logout(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    if let Some(actor) = &asked.actor {
        app.service.revoke(&actor.credential, asked.name(), &asked.origin())?;
    }
    let gone = HeaderValue::from_str(&format!("{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0"));
    let gone = gone.map_err(|error| failed(error.to_string()))?;
    Ok(Reply::json(&json!({})).header(header::SET_COOKIE, gone))
}

pub(in super::super) fn me(_: &App, asked: &Asked) -> Result<Reply, Problem> {
    let actor = asked.actor.as_ref().map(|actor| {
        json!({
            "name": actor.name, "role": actor.role.as_str(), "workflows": actor.scope,
            "credential": actor.credential, "kind": actor.kind,
        })
    });
    Ok(Reply::json(&actor.unwrap_or_default()))
}

pub(in super::super) fn tokens(app: &App, _: &Asked) -> Result<Reply, Problem> {
    let mut rows: Vec<Value> = Vec::new();
    for kind in [CredentialKind::Token, CredentialKind::Agent, CredentialKind::Session] {
        rows.extend(app.service.credentials(kind)?.into_iter().map(|one| {
            json!({
                "id": one.id, "kind": one.kind, "name": one.name, "role": one.role, "workflows": one.scope,
                "madeBy": one.made_by, "madeAt": iso(one.made_at), "expiresAt": one.expires_at.map(iso),
                "usedAt": one.used_at.map(iso), "endedAt": one.ended_at.map(iso),
            })
        }));
    }
    Ok(Reply::json(&json!({ "tokens": rows })))
}

pub(in super::super) fn make_token(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let body = &asked.json;
    let names = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|name| name.as_str().map(str::to_owned)).collect()
    };
    let role = body["role"].as_str().unwrap_or_default().parse().map_err(Problem::bad_request)?;
    let days = body["days"].as_i64().unwrap_or(1);
    let wanted = Grant {
        kind: if body["agent"] == true { CredentialKind::Agent } else { CredentialKind::Token },
        name: body["name"].as_str().unwrap_or_default().to_owned(),
        role,
        scope: body.get("workflows").map(names),
        expires_at: Some(app.store.clock_ms() + days * DAY_MS),
    };
    wanted.check().map_err(Problem::bad_request)?;
    let (id, secret) = grant(&app.service, &wanted, asked.name(), &asked.origin()).map_err(failed)?;
    Ok(Reply::json(&json!({ "id": id, "token": secret, "expiresAt": wanted.expires_at.map(iso) })))
}

pub(in super::super) fn revoke(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let id = asked.param("token");
    if !app.service.revoke(id, asked.name(), &asked.origin())? {
        return Err(Problem::not_found(format!("there is no token or session {id:?} that counts")));
    }
    Ok(Reply::json(&json!({})))
}
