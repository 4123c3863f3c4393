//! Logging in and out, and the tokens of programs.

use axum::http::{HeaderValue, StatusCode, header};
use lobster_runtime::digest::Digest;
use lobster_runtime::store::service::{Counted, Credential, CredentialKind, NewCredential, Passkey, Signed};
use lobster_runtime::store::{Gate, iso};
use lobster_runtime::text::{Count, prefix};
use serde_json::{Value, json};

use super::super::COOKIE;
use super::{App, Asked, Problem, RouteReply};
use crate::access::{Grant, Role, Verb, grant_credential, hash_of, make_secret, new_credential};
use crate::passkeys::{self, Ceremony, CheckedSignature, Purpose, Said};

/// The longest id and digest of a question, in bytes.
const QUESTION: usize = 200;

const TWO_OF_IT: &str = "there is another key with the same secret, or it was revoked just now";

/// Validity of a passkey.
const PASSKEY_MS: i64 = 365 * DAY_MS;

/// Time after a login in which a passkey may be added, so that a thief of an older session cannot add a key.
const ADDING_MS: i64 = 10 * 60_000;

/// Duration of a session.
const SESSION_MS: i64 = 12 * 3_600_000;

const DAY_MS: i64 = 86_400_000;

/// A session without an owner yet.
fn empty_session(expires_at: i64) -> Grant {
    let expires_at = Some(expires_at);
    Grant { kind: CredentialKind::Session, name: String::new(), role: Role::Viewer, scope: None, expires_at }
}

pub fn login(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let link = hash_of(asked.json["link"].as_str().unwrap_or_default());
    let refused = || {
        let why = Problem::new(
            StatusCode::UNAUTHORIZED,
            "link",
            "the link was used or has expired; `lobster serve link` makes another one",
        );
        app.failures.count_failure(asked.door.peer, why)
    };
    // Guesses of strangers must not delay others at the store, so the link is only read here.
    if !app.service.find_credential(&link)?.is_some_and(|found| found.kind == CredentialKind::Link) {
        return Err(refused());
    }
    let secret = make_secret().map_err(Problem::failed)?;
    let expires_at = app.store.clock_ms() + SESSION_MS;
    // The link determines the owner and the rights.
    let session = new_credential(&empty_session(expires_at), &secret).map_err(Problem::failed)?;
    if !app.service.redeem_link(&link, &session, &asked.door.peer.to_string())? {
        return Err(refused());
    }
    open_session(asked, &secret, expires_at)
}

/// Opens a session in a browser.
fn open_session(asked: &Asked, secret: &str, expires_at: i64) -> Result<RouteReply, Problem> {
    let secure = if asked.is_secure() { "; Secure" } else { "" };
    let cookie = format!(
        "{COOKIE}={secret}; HttpOnly; SameSite=Strict; Path=/; Max-Age={}{secure}",
        SESSION_MS / 1000
    );
    let cookie = HeaderValue::from_str(&cookie).map_err(Problem::failed)?;
    Ok(RouteReply::json(&json!({ "expiresAt": iso(expires_at) })).with_header(header::SET_COOKIE, cookie))
}

// ---- passkeys

pub(in super::super) fn issue_challenge(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let question =
        asked.query("question").map(|question| prefix(question, QUESTION, Count::Bytes).to_owned());
    let purpose = question.map_or(Purpose::Access, Purpose::Yes);
    let challenge =
        app.challenges.issue_challenge(&purpose, app.store.clock_ms()).map_err(Problem::failed)?;
    Ok(RouteReply::json(&json!({ "challenge": challenge, "algorithms": passkeys::algorithm_numbers() })))
}

/// Decodes a binary field of the browser's message.
fn bytes_of(sent: &Value, name: &str) -> Result<Vec<u8>, Problem> {
    let text = sent[name].as_str().unwrap_or_default();
    passkeys::decode_base64url(text).ok_or_else(|| Problem::bad_request(format!("{name} must be base64url")))
}

/// Checks the signed data of a browser and its key.
fn check_signature(
    app: &App,
    said: &Said<'_>,
    ceremony: Ceremony,
    purpose: &Purpose,
) -> Result<CheckedSignature, Problem> {
    let is_ours = |origin: &str| app.hosts.has_keys(origin);
    let asked_for = (&app.challenges, purpose, app.store.clock_ms());
    passkeys::check_signature(said, ceremony, asked_for, is_ours).map_err(passkey_refused)
}

fn passkey_refused(why: &str) -> Problem {
    Problem::new(StatusCode::UNAUTHORIZED, "passkey", why)
}

/// Finds the passkey that signed the message for this purpose.
fn signed_by(app: &App, sent: &Value, purpose: &Purpose) -> Result<(Passkey, Signed), Problem> {
    let (client, authenticator) = (bytes_of(sent, "client")?, bytes_of(sent, "authenticator")?);
    let said = Said { client: &client, authenticator: &authenticator };
    let checked = check_signature(app, &said, Ceremony::Get, purpose)?;
    let Some(known) = app.service.find_passkey(&Digest::of_bytes(&bytes_of(sent, "id")?))? else {
        return Err(passkey_refused("this key is not known here; log in with a link, and add it"));
    };
    if !passkeys::has_signed(&known.key, &said, &bytes_of(sent, "signature")?) {
        return Err(passkey_refused("the signature was not made with the key"));
    }
    Ok((known, checked.signed))
}

/// Refuses what the store does not accept.
fn check_counted(counted: Counted) -> Result<(), Problem> {
    match counted {
        Counted::Counts => Ok(()),
        Counted::UsedBefore => Err(passkey_refused(passkeys::NOT_ASKED)),
        Counted::NotOne => Err(passkey_refused(TWO_OF_IT)),
    }
}

/// True if the caller is a person in a browser.
fn is_person(asked: &Asked) -> bool {
    asked.actor.as_ref().is_some_and(|actor| actor.kind == CredentialKind::Session)
}

/// Refuses an approval by a person who has not unlocked one of their passkeys for this very question, if the server
/// requires that.
pub(super) fn check_yes(app: &App, asked: &Asked, gate: &Gate) -> Result<(), Problem> {
    if !app.confirms_by_passkey || !is_person(asked) {
        return Ok(());
    }
    let sent = &asked.json["passkey"];
    if sent.is_null() {
        return Err(passkey_refused(
            "this server requires a passkey for approvals, in the console under its own name",
        ));
    }
    let (known, signed) = signed_by(app, sent, &Purpose::Yes(format!("{} {}", gate.id, gate.binding)))?;
    if Some(known.credential.name.as_str()) != asked.caller_name() {
        return Err(passkey_refused("the key belongs to another person"));
    }
    check_counted(app.service.note_signature(&known, &signed)?)
}

/// The valid passkeys of the caller.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn passkeys_of(app: &App, asked: &Asked) -> Result<Vec<Credential>, Problem> {
    let now = app.store.clock_ms();
    let counts = |one: &Credential| {
        let is_over = one.ended_at.is_some() || one.expires_at.is_some_and(|at| at <= now);
        !is_over && Some(one.name.as_str()) == asked.caller_name()
    };
    Ok(app.service.list_credentials(CredentialKind::Passkey)?.into_iter().filter(counts).collect())
}

pub(in super::super) fn list_passkeys(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let rows = passkeys_of(app, asked)?.into_iter().map(|one| {
        json!({
            "id": one.id, "role": one.role, "workflows": one.scope, "madeAt": iso(one.made_at),
            "expiresAt": one.expires_at.map(iso), "usedAt": one.used_at.map(iso),
        })
    });
    Ok(RouteReply::json(&json!({ "passkeys": rows.collect::<Vec<_>>() })))
}

/// True if the caller has logged in within the last minutes.
#[must_use]
pub fn may_add_passkey(app: &App, asked: &Asked) -> bool {
    let logged_in_at = asked.actor.as_ref().and_then(|actor| actor.logged_in_at);
    logged_in_at.is_some_and(|at| app.store.clock_ms() - at < ADDING_MS)
}

pub(in super::super) fn add_passkey(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let forbidden = |why| Problem::new(StatusCode::FORBIDDEN, "role", why);
    let Some(actor) = asked.actor.as_ref().filter(|actor| actor.logged_in_at.is_some()) else {
        return Err(forbidden(
            "only a person who has logged in here can add a passkey, not a program or a caller named by a proxy",
        ));
    };
    if !may_add_passkey(app, asked) {
        return Err(forbidden("a passkey can be added within ten minutes of a login: log in again"));
    }
    let sent = &asked.json;
    let (client, authenticator) = (bytes_of(sent, "client")?, bytes_of(sent, "authenticator")?);
    let said = Said { client: &client, authenticator: &authenticator };
    let checked = check_signature(app, &said, Ceremony::Create, &Purpose::Access)?;
    let key = bytes_of(sent, "key")?;
    let name = checked.made.filter(|_| passkeys::is_usable(&key));
    let name =
        name.ok_or_else(|| Problem::bad_request("the signatures of this kind of key are not supported"))?;
    let wanted = Grant {
        kind: CredentialKind::Passkey,
        name: actor.name.clone(),
        role: actor.role,
        scope: actor.scope.clone(),
        expires_at: Some(app.store.clock_ms() + PASSKEY_MS),
    };
    // The secret stays in the device, so the key is known by its id.
    let new = NewCredential {
        hash: Digest::of_bytes(&name),
        ..new_credential(&wanted, "").map_err(Problem::failed)?
    };
    match app.service.add_passkey(
        &new,
        (&key, &checked.signed),
        asked.caller_name(),
        &asked.caller_origin(),
    )? {
        Counted::NotOne => {
            return Err(Problem::new(StatusCode::CONFLICT, "passkey", "this key is already known"));
        }
        counted => check_counted(counted)?,
    }
    Ok(RouteReply::json(&json!({ "id": new.id, "expiresAt": wanted.expires_at.map(iso) })))
}

/// Removes a passkey of the caller.
///
/// # Errors
/// Fails if there is no valid passkey with this id, or if the store cannot be written.
pub fn forget_passkey(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let id = asked.param("passkey");
    let is_own = passkeys_of(app, asked)?.iter().any(|one| one.id == id);
    if !is_own || !app.service.revoke_credential(id, asked.caller_name(), &asked.caller_origin())? {
        return Err(Problem::not_found(format!("you have no valid passkey {id:?}")));
    }
    Ok(RouteReply::json(&json!({})))
}

pub(in super::super) fn log_in_by_passkey(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    // An unreadable store is not a failed attempt.
    let count_failed = |why: Problem| match why.status.is_client_error() {
        true => app.failures.count_failure(asked.door.peer, why),
        false => why,
    };
    let (known, signed) = signed_by(app, &asked.json, &Purpose::Access).map_err(count_failed)?;
    let (secret, expires_at) = (make_secret().map_err(Problem::failed)?, app.store.clock_ms() + SESSION_MS);
    // The passkey determines the owner and the rights.
    let session = new_credential(&empty_session(expires_at), &secret).map_err(Problem::failed)?;
    let counted = app.service.log_in_by_passkey(&known, &signed, &session, &asked.door.peer.to_string())?;
    check_counted(counted).map_err(count_failed)?;
    open_session(asked, &secret, expires_at)
}

pub fn logout(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    if let Some(actor) = &asked.actor {
        app.service.revoke_credential(&actor.credential, asked.caller_name(), &asked.caller_origin())?;
    }
    let gone = HeaderValue::from_str(&format!("{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0"));
    let gone = gone.map_err(Problem::failed)?;
    Ok(RouteReply::json(&json!({})).with_header(header::SET_COOKIE, gone))
}

pub(in super::super) fn show_caller(_: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let actor = asked.actor.as_ref().map(|actor| {
        json!({
            "name": actor.name, "role": actor.role.as_str(), "workflows": actor.scope,
            "credential": actor.credential, "kind": actor.kind,
        })
    });
    Ok(RouteReply::json(&actor.unwrap_or_default()))
}

pub(in super::super) fn list_tokens(app: &App, _: &Asked) -> Result<RouteReply, Problem> {
    let mut rows: Vec<Value> = Vec::new();
    for kind in
        [CredentialKind::Token, CredentialKind::Agent, CredentialKind::Session, CredentialKind::Passkey]
    {
        rows.extend(app.service.list_credentials(kind)?.into_iter().map(|one| {
            json!({
                "id": one.id, "kind": one.kind, "name": one.name, "role": one.role, "workflows": one.scope,
                "madeBy": one.made_by, "madeAt": iso(one.made_at), "expiresAt": one.expires_at.map(iso),
                "usedAt": one.used_at.map(iso), "endedAt": one.ended_at.map(iso),
            })
        }));
    }
    Ok(RouteReply::json(&json!({ "tokens": rows })))
}

pub(in super::super) fn make_token(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
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
    wanted.check_role().map_err(Problem::bad_request)?;
    let may_answer = wanted.kind == CredentialKind::Token && wanted.role >= Verb::Answer.required_role();
    if app.confirms_by_passkey && is_person(asked) && may_answer {
        let why = "a token answers without a passkey, so where approvals require one, \
                   `lobster serve token new` makes it, on the machine itself";
        return Err(Problem::new(StatusCode::FORBIDDEN, "passkey", why));
    }
    let (id, secret) = grant_credential(&app.service, &wanted, asked.caller_name(), &asked.caller_origin())
        .map_err(Problem::failed)?;
    Ok(RouteReply::json(&json!({ "id": id, "token": secret, "expiresAt": wanted.expires_at.map(iso) })))
}

pub(in super::super) fn revoke_token(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let id = asked.param("token");
    if !app.service.revoke_credential(id, asked.caller_name(), &asked.caller_origin())? {
        return Err(Problem::not_found(format!("there is no valid token or session {id:?}")));
    }
    Ok(RouteReply::json(&json!({})))
}
