//! Slack in socket mode: an app's messages with buttons, and answers by them. Presses arrive over the app's own socket,
//! so the server needs no public address. Slack identifies the user who presses; the operator's file maps users to
//! people.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use lobster_runtime::json;
use lobster_runtime::text::{Count, clip};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::email::start_tls;
use super::replies::{Failures, Offer, Word, apply_answer, secret_value};
use super::send::{Message, call_service, error_chain, http_client};
use super::settings::Slack;
use crate::http::App;

/// Time limit of a method call.
const PATIENCE: Duration = Duration::from_secs(20);

/// Longest silence on a socket. Slack sends something every few seconds, so a socket that is silent for longer is dead.
const SILENCE: Duration = Duration::from_secs(90);

/// The longest text of one part of a message, in characters. Slack's limit is 3000.
const PART: usize = 2_900;

/// The longest text of a single line, in characters.
const LINE: usize = 280;

/// The largest message accepted from the socket, in bytes. It contains the whole message whose button was pressed.
const LARGEST: usize = 1 << 20;

/// Request of the socket to be opened again.
struct Again;

/// Sends a notice, with buttons if it can be answered here.
pub(super) async fn send(message: &Message, slack: &Slack) -> Result<(), String> {
    let offer = message.offer.as_ref().filter(|_| !slack.people.is_empty());
    let token = message.secret.as_deref().unwrap_or_default();
    call_method(slack, token, "chat.postMessage", &body_of(message, slack, offer)).await.map(drop)
}

fn body_of(message: &Message, slack: &Slack, offer: Option<&Offer>) -> Value {
    let (title, lines) = &message.text;
    let lines = offer.map_or_else(|| lines.clone(), |offer| message.with_all_of(offer));
    let mut blocks: Vec<Value> = split_text(&format!("{title}\n\n{lines}")).map(plain_block).collect();
    if let Some(offer) = offer {
        let digest = offer.gate.binding.to_string();
        let button = |label: &str, is_yes: bool| {
            json!({
                "type": "button", "action_id": if is_yes { "yes" } else { "no" },
                "text": { "type": "plain_text", "text": label }, "style": if is_yes { "primary" } else { "danger" },
                "value": Word::format_word(is_yes, &offer.gate.id, &digest),
            })
        };
        blocks.push(
            json!({ "type": "actions", "elements": [button("Approve", true), button("Reject", false)] }),
        );
    }
    json!({
        "channel": slack.channel, "text": escape_markup(&clip(title, LINE, Count::Chars)), "blocks": blocks,
        "mrkdwn": false, "parse": "none", "unfurl_links": false, "unfurl_media": false,
    })
}

/// Splits a text into parts that each fit into a block.
fn split_text(text: &str) -> impl Iterator<Item = String> + '_ {
    let mut left = text;
    std::iter::from_fn(move || {
        let end = left.char_indices().nth(PART).map_or(left.len(), |(at, _)| at);
        let (part, rest) = left.split_at(end);
        left = rest;
        (!part.is_empty()).then(|| part.to_owned())
    })
}

/// A text block without links, mentions or formatting.
fn plain_block(text: String) -> Value {
    json!({ "type": "section", "text": { "type": "plain_text", "text": text, "emoji": false } })
}

/// Escapes the summary of a message, which is the only text in which Slack interprets markup.
fn escape_markup(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Calls a method.
async fn call_method(slack: &Slack, token: &str, method: &str, body: &Value) -> Result<Value, String> {
    let url = format!("{}/{method}", slack.server.trim_end_matches('/'));
    let mut bearer =
        HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| "the token is not valid".to_owned())?;
    bearer.set_sensitive(true);
    let request = http_client()?
        .post(url)
        .header(AUTHORIZATION, bearer)
        .header(CONTENT_TYPE, "application/json; charset=utf-8")
        .body(json::compact(body));
    call_service(request, method, "error", PATIENCE).await
}

/// Processes presses for ever. If a press is processed twice, by two servers or after a crash, the second time finds
/// its question closed.
pub(super) async fn listen(app: &Arc<App>, target: &str, slack: &Slack) {
    let mut failures = Failures::default();
    loop {
        match listen_once(app, target, slack, &mut failures).await {
            // Slack requests that every few hours.
            Ok(Again) => {}
            Err(why) => failures.wait_to_retry(target, &why).await,
        }
    }
}

async fn listen_once(
    app: &Arc<App>,
    target: &str,
    slack: &Slack,
    failures: &mut Failures,
) -> Result<Again, String> {
    let token = secret_value(app, &slack.app_token).await?;
    let opened = call_method(slack, &token, "apps.connections.open", &json!({})).await?;
    let address = opened["url"].as_str().ok_or("Slack names no socket")?;
    let url = reqwest::Url::parse(address).map_err(|_| "Slack names an invalid socket")?;
    let host = url.host_str().unwrap_or_default().to_owned();
    let port = url.port_or_known_default().unwrap_or(443);
    let is_open = url.scheme() == "ws" && slack.is_local();
    if !is_open && url.scheme() != "wss" {
        return Err("Slack names a socket without TLS".to_owned());
    }
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port))
        .await
        .map_err(|error| error_chain(&error))?;
    match is_open {
        true => process_socket(app, target, slack, failures, (address, stream)).await,
        false => {
            process_socket(app, target, slack, failures, (address, start_tls(stream, &host).await?)).await
        }
    }
}

/// Processes the messages of one socket until it ends.
async fn process_socket<S: AsyncRead + AsyncWrite + Unpin>(
    app: &Arc<App>,
    target: &str,
    slack: &Slack,
    failures: &mut Failures,
    (address, stream): (&str, S),
) -> Result<Again, String> {
    let limits = WebSocketConfig::default().max_message_size(Some(LARGEST)).max_frame_size(Some(LARGEST));
    let opening = tokio_tungstenite::client_async_with_config(address, stream, Some(limits));
    // The address contains a ticket, so errors do not repeat it.
    let (mut socket, _) = match tokio::time::timeout(PATIENCE, opening).await {
        Ok(opened) => opened.map_err(|_| "the socket was not opened".to_owned())?,
        Err(_) => return Err("the socket does not answer".to_owned()),
    };
    loop {
        let frame = match tokio::time::timeout(SILENCE, socket.next()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(error_chain(&error)),
            Ok(None) => return Ok(Again),
            Err(_) => return Err(format!("the socket was silent for {} s", SILENCE.as_secs())),
        };
        let Frame::Text(text) = frame else { continue };
        let Ok(envelope) = json::parse(text.as_str()) else { continue };
        failures.reset_delay();
        if envelope["type"] == "disconnect" {
            return Ok(Again);
        }
        acknowledge_envelope(&mut socket, &envelope).await?;
        if envelope["type"] == "interactive" && envelope["payload"]["type"] == "block_actions" {
            process_press(app, target, slack, &envelope["payload"]).await;
        }
    }
}

/// Confirms an envelope. Slack sends it again unless it is confirmed within three seconds. Its content may be lost
/// after that: the person who pressed sees that nothing happened.
async fn acknowledge_envelope<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut WebSocketStream<S>,
    envelope: &Value,
) -> Result<(), String> {
    let Some(id) = envelope["envelope_id"].as_str() else { return Ok(()) };
    let said = json::compact(&json!({ "envelope_id": id }));
    socket.send(Frame::text(said)).await.map_err(|error| error_chain(&error))
}

/// Processes one press, and reports the result in the channel.
async fn process_press(app: &Arc<App>, target: &str, slack: &Slack, press: &Value) {
    let decided = apply_press(app, target, slack, press).await;
    let user = press["user"]["id"].as_str().unwrap_or_default();
    let channel = &press["channel"]["id"];
    let (method, body) = match &decided {
        // The question is closed, so the buttons are removed.
        Ok(said) => {
            let shown = press["message"]["blocks"].as_array().cloned().unwrap_or_default();
            let mut blocks: Vec<Value> =
                shown.into_iter().filter(|block| block["type"] != "actions").collect();
            blocks.push(plain_block(said.clone()));
            let text = escape_markup(said);
            (
                "chat.update",
                json!({ "channel": channel, "ts": press["message"]["ts"], "text": text, "blocks": blocks }),
            )
        }
        Err(why) => {
            tracing::warn!(target, user, why, "an answer was not accepted");
            let text = clip(why, LINE, Count::Chars).into_owned();
            let body = json!({ "channel": channel, "user": user, "text": escape_markup(&text), "blocks": [plain_block(text)] });
            ("chat.postEphemeral", body)
        }
    };
    let told = async { call_method(slack, &secret_value(app, &slack.token).await?, method, &body).await };
    if let Err(why) = told.await {
        tracing::info!(target, why, "the person who pressed could not be notified of the result");
    }
}

async fn apply_press(app: &Arc<App>, target: &str, slack: &Slack, press: &Value) -> Result<String, String> {
    let user = press["user"]["id"].as_str().unwrap_or_default();
    let person = slack.people.iter().find(|person| person.user == user);
    let who = person.ok_or("you are not allowed to answer here")?.to_answerer();
    if press["channel"]["id"].as_str() != Some(slack.channel.as_str()) {
        return Err("this is not the channel in which the question was asked".to_owned());
    }
    let data = press["actions"][0]["value"].as_str().unwrap_or_default().to_owned();
    let (app, place) = (Arc::clone(app), format!("slack {target} {user}"));
    let deciding = tokio::task::spawn_blocking(move || {
        let word = Word::parse_text(&data).ok_or("this button belongs to no question")?;
        let gate = app.store.find_gate(word.gate).map_err(|error| error.to_string())?;
        if word.proof != gate.binding.to_string() {
            return Err("the question is not the version that was shown".to_owned());
        }
        apply_answer(&app, &who, &place, &gate, word.is_yes).map_err(|refused| refused.why)
    });
    deciding.await.unwrap_or_else(|error| Err(format!("lobster broke off: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_whole_in_parts() {
        for text in ["", "a", &"ü".repeat(PART), &"üx".repeat(PART), &"x".repeat(3 * PART + 1)] {
            let all: Vec<String> = split_text(text).collect();
            assert_eq!(all.concat(), text);
            assert!(all.iter().all(|part| (1..=PART).contains(&part.chars().count())));
        }
        assert_eq!(escape_markup("<!channel> & <@U1>"), "&lt;!channel&gt; &amp; &lt;@U1&gt;");
    }
}
