//! Telegram: a bot's messages with buttons, and answers by them. The server uses long polling, so it needs no public
//! address. Telegram identifies the user who presses; the operator's file maps users to people.

use std::sync::Arc;
use std::time::Duration;

use lobster_runtime::json;
use lobster_runtime::text::{Count, clip};
use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::replies::{Failures, Offer, Word, apply_answer, secret_value};
use super::send::{Message, call_service, http_client};
use super::settings::Telegram;
use crate::http::App;

/// Time for which Telegram keeps a request open without a press, in seconds.
const POLL: u64 = 25;

/// Digits of the digest in a button's data, which Telegram limits to 64 bytes: 128 bits.
const DIGITS: usize = 32;

/// The longest note that Telegram shows after a press, in characters.
const NOTE: usize = 190;

/// The longest message that is sent, in characters; slightly below Telegram's limit.
const MESSAGE: usize = 4_000;

/// Sends a notice, with buttons if it can be answered here.
pub(super) async fn send(message: &Message, telegram: &Telegram) -> Result<(), String> {
    let offer = message.offer.as_ref().filter(|_| !telegram.people.is_empty());
    let token = message.secret.as_deref().unwrap_or_default();
    call_method(telegram, token, "sendMessage", &body_of(message, telegram, offer)).await.map(drop)
}

fn body_of(message: &Message, telegram: &Telegram, offer: Option<&Offer>) -> Value {
    let (title, lines) = &message.text;
    let lines = offer.map_or_else(|| lines.clone(), |offer| message.with_all_of(offer));
    let text = clip(&format!("{title}\n\n{lines}"), MESSAGE, Count::Chars).into_owned();
    let mut body = json!({
        "chat_id": telegram.chat, "text": text, "link_preview_options": { "is_disabled": true },
    });
    if let Some(offer) = offer {
        let digest = offer.gate.binding.to_string();
        let digits = digest.get(..DIGITS).unwrap_or_default();
        let button = |label: &str, is_yes| json!({ "text": label, "callback_data": Word::format_word(is_yes, &offer.gate.id, digits) });
        let buttons = json!([[button("Approve", true), button("Reject", false)]]);
        body["reply_markup"] = json!({ "inline_keyboard": buttons });
    }
    body
}

/// Calls a method of the bot. The address contains the token, so it is left out of errors.
async fn call_method(telegram: &Telegram, token: &str, method: &str, body: &Value) -> Result<Value, String> {
    let url = format!("{}/bot{token}/{method}", telegram.server.trim_end_matches('/'));
    let request = http_client()?.post(url).header(CONTENT_TYPE, "application/json").body(json::compact(body));
    let answer = call_service(request, method, "description", Duration::from_secs(POLL + 20)).await?;
    Ok(answer["result"].clone())
}

/// Processes presses for ever. If a press is processed twice, by two servers or after a crash, the second time finds
/// its question closed.
pub(super) async fn listen(app: &Arc<App>, target: &str, telegram: &Telegram) {
    let mut failures = Failures::default();
    let mut offset = None::<i64>;
    loop {
        let asked = async {
            let token = secret_value(app, &telegram.token).await?;
            let mut body = json!({ "timeout": POLL, "allowed_updates": ["callback_query"] });
            if let Some(offset) = offset {
                body["offset"] = offset.into();
            }
            let updates = call_method(telegram, &token, "getUpdates", &body).await?;
            Ok::<_, String>((token, updates))
        };
        let (token, updates) = match asked.await {
            Ok(found) => found,
            Err(why) => {
                failures.wait_to_retry(target, &why).await;
                continue;
            }
        };
        failures.reset_delay();
        for update in updates.as_array().into_iter().flatten() {
            if let Some(id) = update["update_id"].as_i64() {
                offset = Some(offset.map_or(id + 1, |known| known.max(id + 1)));
            }
            if update["callback_query"].is_object() {
                process_press(app, target, telegram, &token, &update["callback_query"]).await;
            }
        }
    }
}

/// Processes one press, and reports the result to the person who pressed.
async fn process_press(app: &Arc<App>, target: &str, telegram: &Telegram, token: &str, press: &Value) {
    let (said, is_taken) = match apply_press(app, target, telegram, press).await {
        Ok(said) => (said, true),
        Err(why) => {
            let user = press["from"]["id"].as_i64();
            tracing::warn!(target, user, why, "an answer was not accepted");
            (why, false)
        }
    };
    let note = json!({
        "callback_query_id": press["id"], "text": clip(&said, NOTE, Count::Chars), "show_alert": !is_taken,
    });
    let noted = call_method(telegram, token, "answerCallbackQuery", &note).await;
    if is_taken {
        // The question is closed, so the buttons are removed.
        let message = json!({
            "chat_id": press["message"]["chat"]["id"], "message_id": press["message"]["message_id"],
            "reply_markup": { "inline_keyboard": [] },
        });
        let _ = call_method(telegram, token, "editMessageReplyMarkup", &message).await;
    }
    if let Err(why) = noted {
        tracing::info!(target, why, "the person who pressed could not be notified of the result");
    }
}

async fn apply_press(
    app: &Arc<App>,
    target: &str,
    telegram: &Telegram,
    press: &Value,
) -> Result<String, String> {
    let user = press["from"]["id"].as_i64();
    let person = telegram.people.iter().find(|person| Some(person.user) == user);
    let who = person.ok_or("you are not allowed to answer here")?.to_answerer();
    if press["message"]["chat"]["id"].as_i64() != Some(telegram.chat) {
        return Err("this is not the chat in which the question was asked".to_owned());
    }
    let data = press["data"].as_str().unwrap_or_default().to_owned();
    let (app, place) = (Arc::clone(app), format!("telegram {target} {}", user.unwrap_or_default()));
    let deciding = tokio::task::spawn_blocking(move || {
        let word = Word::parse_text(&data).ok_or("this button belongs to no question")?;
        let gate = app.store.find_gate(word.gate).map_err(|error| error.to_string())?;
        let digest = gate.binding.to_string();
        if word.proof.len() != DIGITS || !digest.starts_with(word.proof) {
            return Err("the question is not the version that was shown".to_owned());
        }
        apply_answer(&app, &who, &place, &gate, word.is_yes).map_err(|refused| refused.why)
    });
    deciding.await.unwrap_or_else(|error| Err(format!("lobster broke off: {error}")))
}
