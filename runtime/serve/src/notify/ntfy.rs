//! ntfy: notices to a topic, with buttons that post to a second topic. The server subscribes to the second topic, so it
//! needs no public address.
//!
//! ntfy does not identify the person who posts; anyone who can read a notice can answer it. So each notice carries its
//! own secret, which is valid once, for this question in the version that was shown. Buttons are added only if the
//! topic's server requires authentication for reading, and then a single person is the reader.

use std::sync::Arc;
use std::time::Duration;

use lobster_runtime::digest::Digest;
use lobster_runtime::json;
use lobster_runtime::store::service::{CredentialKind, NewCredential};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::replies::{Failures, Offer, Refused, Word, apply_answer, secret_value};
use super::send::{Message, error_chain, http_client, post_text};
use super::settings::{Answerer, Ntfy, NtfyAnswers};
use crate::access::{make_id, make_secret};
use crate::http::App;

/// Longest validity of a secret, in milliseconds.
const COUNTS: i64 = 7 * 86_400_000;

/// Longest silence on a connection. ntfy sends a keepalive every 45 s.
const SILENCE: Duration = Duration::from_secs(120);

/// The longest line of the stream that is read, in bytes.
const LINE: usize = 64 << 10;

/// Time limit for a check of a topic.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends a notice, with buttons if it can be answered here.
pub(super) async fn send(message: &Message, target: &str, ntfy: &Ntfy) -> Result<(), String> {
    let mut headers = vec![("title", message.text.0.clone())];
    if message.content["type"] == "question" {
        headers.push(("priority", "high".to_owned()));
    }
    let link = message.content["link"].as_str();
    headers.extend(link.map(|link| ("click", link.to_owned())));
    headers.extend(message.secret.as_ref().map(|token| ("authorization", format!("Bearer {token}"))));
    let mut text = message.text.1.clone();
    if let (Some(answers), Some(offer)) = (&ntfy.answers, &message.offer) {
        match answer_buttons(target, ntfy, answers, offer, link).await {
            Ok(buttons) => {
                headers.push(("actions", json::compact(&buttons)));
                text = message.with_all_of(offer);
            }
            Err(why) => tracing::warn!(target, why, "the question is sent without buttons"),
        }
    }
    post_text(&ntfy.url, &headers, text).await
}

async fn answer_buttons(
    target: &str,
    ntfy: &Ntfy,
    answers: &NtfyAnswers,
    offer: &Offer,
    link: Option<&str>,
) -> Result<Value, String> {
    for url in [&ntfy.url, &answers.url] {
        check_private(url).await?;
    }
    let (app, gate, who) = (Arc::clone(&offer.app), offer.gate.clone(), answers.to_answerer());
    let (of, workflow) = (target.to_owned(), offer.workflow.clone());
    let making = tokio::task::spawn_blocking(move || {
        let secret = make_secret()?;
        let until = app.store.clock_ms() + COUNTS;
        let new = NewCredential {
            id: make_id(CredentialKind::Reply)?,
            kind: CredentialKind::Reply,
            hash: hash_of(&secret, &gate.id, &gate.binding, &of),
            name: who.name,
            role: who.role.as_str().to_owned(),
            scope: Some(vec![workflow]),
            expires_at: Some(gate.expires_at.map_or(until, |expires| expires.min(until))),
        };
        app.service.add_credential(&new, None, &format!("ntfy {of}")).map_err(|error| error.to_string())?;
        Ok::<_, String>(secret)
    });
    let secret = making.await.map_err(|error| error.to_string())??;
    let button = |label: &str, is_yes| {
        json!({
            "action": "http", "label": label, "url": answers.url, "method": "POST",
            "body": Word::format_word(is_yes, &offer.gate.id, &secret), "clear": true,
        })
    };
    let mut all = vec![button("Approve", true), button("Reject", false)];
    all.extend(link.map(|link| json!({ "action": "view", "label": "Open", "url": link })));
    Ok(Value::Array(all))
}

/// The digest by which the store knows a secret. It covers the question in the version that was shown, and the target.
fn hash_of(secret: &str, gate: &str, binding: &Digest, target: &str) -> Digest {
    Digest::of_bytes(format!("reply\n{secret}\n{gate}\n{binding}\n{target}").as_bytes())
}

/// Rejects a topic that anyone can read.
async fn check_private(url: &str) -> Result<(), String> {
    let asking = http_client()?.get(format!("{}/auth", url.trim_end_matches('/'))).send();
    let asked = tokio::time::timeout(PATIENCE, asking)
        .await
        .map_err(|_| "the topic's server is silent".to_owned())?;
    match asked.map_err(|error| error_chain(&error.without_url()))?.status() {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Ok(()),
        status if status.is_success() => {
            Err("anyone can read the topic, so answers cannot be attributed; protect it on its server"
                .to_owned())
        }
        status => Err(format!("it answered {status} to the check who may read the topic")),
    }
}

/// Processes posted answers for ever. Answers that were posted while no server listened are processed as well, as long
/// as ntfy keeps them. A secret is valid once.
pub(super) async fn listen(app: &Arc<App>, target: &str, ntfy: &Ntfy, answers: &NtfyAnswers) {
    let mut failures = Failures::default();
    let mut since = "all".to_owned();
    loop {
        let why = match process_stream(app, target, ntfy, answers, &mut since, &mut failures).await {
            Ok(()) => "the stream has ended".to_owned(),
            Err(why) => why,
        };
        failures.wait_to_retry(target, &why).await;
    }
}

async fn process_stream(
    app: &Arc<App>,
    target: &str,
    ntfy: &Ntfy,
    answers: &NtfyAnswers,
    since: &mut String,
    failures: &mut Failures,
) -> Result<(), String> {
    let name = ntfy.token.as_deref().ok_or("the topic has no token")?;
    let token = secret_value(app, name).await?;
    let url = format!("{}/json?since={since}", answers.url.trim_end_matches('/'));
    let asking = http_client()?.get(url).bearer_auth(&token).send();
    let asked = tokio::time::timeout(SILENCE, asking).await.map_err(|_| "no answer".to_owned())?;
    let mut answer = asked.map_err(|error| error_chain(&error.without_url()))?;
    if !answer.status().is_success() {
        return Err(format!("it answered {}", answer.status()));
    }
    failures.reset_delay();
    let mut line = Vec::new();
    loop {
        let chunk =
            tokio::time::timeout(SILENCE, answer.chunk()).await.map_err(|_| "it fell silent".to_owned())?;
        let Some(chunk) = chunk.map_err(|error| error_chain(&error.without_url()))? else { return Ok(()) };
        for byte in chunk {
            match byte {
                b'\n' => {
                    let event =
                        json::parse(&String::from_utf8_lossy(&std::mem::take(&mut line))).unwrap_or_default();
                    if event["event"] == "message" {
                        process_message(app, target, ntfy, answers, &token, &event).await;
                        if let Some(id) = event["id"].as_str().filter(|id| is_plain(id)) {
                            id.clone_into(since);
                        }
                    }
                }
                _ if line.len() < LINE => line.push(byte),
                _ => return Err("a line of the stream is too long".to_owned()),
            }
        }
    }
}

/// True if an id can be part of an address.
fn is_plain(id: &str) -> bool {
    !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
}

/// Processes one message.
async fn process_message(
    app: &Arc<App>,
    target: &str,
    ntfy: &Ntfy,
    answers: &NtfyAnswers,
    token: &str,
    event: &Value,
) {
    let text = event["message"].as_str().unwrap_or_default().to_owned();
    let (deciding, of, who) = (Arc::clone(app), target.to_owned(), answers.to_answerer());
    let decided = tokio::task::spawn_blocking(move || apply_message(&deciding, &of, &who, &text)).await;
    match decided.unwrap_or(Ok(None)) {
        Ok(Some(said)) => tracing::debug!(target, said, "taken"),
        Ok(None) => tracing::info!(target, "a message to the topic is not an answer, or is a duplicate"),
        Err(why) => {
            // The person pressed a button and must not believe that it had an effect.
            let headers = [
                ("title", "The answer was not accepted".to_owned()),
                ("authorization", format!("Bearer {token}")),
            ];
            if let Err(error) = post_text(&ntfy.url, &headers, why.clone()).await {
                tracing::warn!(target, error, why, "an answer was not accepted, and its person not notified");
            }
        }
    }
}

/// Returns `None` if the message is not an answer of the person.
fn apply_message(app: &App, target: &str, who: &Answerer, text: &str) -> Result<Option<String>, String> {
    let Some(word) = Word::parse_text(text) else { return Ok(None) };
    let Ok(gate) = app.store.find_gate(word.gate) else { return Ok(None) };
    let hash = hash_of(word.proof, &gate.id, &gate.binding, target);
    let found = app.service.find_credential(&hash).map_err(|error| error.to_string())?;
    let Some(found) = found.filter(|one| one.kind == CredentialKind::Reply && one.name == who.name) else {
        return Ok(None);
    };
    let place = format!("ntfy {target}");
    let answered = apply_answer(app, who, &place, &gate, word.is_yes);
    if !matches!(answered, Err(Refused { is_for_now: true, .. })) {
        app.service
            .revoke_credential(&found.id, Some(&who.name), &place)
            .map_err(|error| error.to_string())?;
    }
    answered.map(Some).map_err(|refused| refused.why)
}
