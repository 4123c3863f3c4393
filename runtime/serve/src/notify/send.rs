//! Sending of one notice.

use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lobster_runtime::digest::Digest;
use lobster_runtime::json;
use lobster_runtime::store::RunId;
use reqwest::RequestBuilder;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use ring::hmac;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

use super::replies::Offer;
use super::settings::Channel;
use super::{email, ntfy, slack, telegram};

/// Time limit of one attempt.
const PATIENCE: Duration = Duration::from_secs(30);

/// Everything that is needed to send a notice.
pub(super) struct Message {
    /// Name of the recipient's target.
    pub(super) target: String,
    /// The question, if it can be answered where it is read.
    pub(super) offer: Option<Offer>,
    pub(super) channel: Arc<Channel>,
    /// The value of the channel's secret, if it has one.
    pub(super) secret: Option<String>,
    pub(super) key: String,
    /// Time at which the notice was queued, in milliseconds since 1970.
    pub(super) at: i64,
    /// Title and lines.
    pub(super) text: (String, String),
    pub(super) content: Value,
    /// Directory in which commands run.
    pub(super) dir: PathBuf,
}

impl Message {
    /// The complete text of a question, with the link to its page.
    pub(super) fn with_all_of(&self, offer: &Offer) -> String {
        let link = self.content["link"].as_str().map(|link| format!("\n\n{link}"));
        offer.shown.clone() + &link.unwrap_or_default()
    }

    /// An id that is the same for every attempt, so that receivers can ignore duplicates.
    pub(super) fn notice_id(&self) -> String {
        let hex = Digest::of_bytes(format!("{} {}", self.key, self.at).as_bytes()).to_string();
        format!("msg_{}", hex.chars().filter(char::is_ascii_hexdigit).take(32).collect::<String>())
    }
}

/// Sends the notice.
///
/// # Errors
/// Returns the reason why it was not accepted.
pub(super) async fn send(message: &Message) -> Result<(), String> {
    let sending = async {
        match &*message.channel {
            Channel::Command(words) => run_command(message, words).await,
            Channel::Webhook(webhook) => {
                let body = json::compact(&message.content);
                let time = jiff::Timestamp::now().as_second().to_string();
                let headers = signature_headers(message, &time, &body);
                post_text(&webhook.url, &headers, body).await
            }
            Channel::Ntfy(ntfy) => ntfy::send(message, &message.target, ntfy).await,
            Channel::Telegram(telegram) => telegram::send(message, telegram).await,
            Channel::Slack(slack) => slack::send(message, slack).await,
            Channel::Email(settings) => email::send(message, settings).await,
        }
    };
    match tokio::time::timeout(PATIENCE, sending).await {
        Ok(sent) => sent,
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
    }
}

/// The headers of Standard Webhooks.
pub(super) fn signature_headers(message: &Message, time: &str, body: &str) -> Vec<(&'static str, String)> {
    let id = message.notice_id();
    let secret = message.secret.as_deref().unwrap_or_default();
    let key = match secret.strip_prefix("whsec_") {
        Some(encoded) => STANDARD.decode(encoded).unwrap_or_else(|_| secret.as_bytes().to_vec()),
        None => secret.as_bytes().to_vec(),
    };
    let signature =
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), format!("{id}.{time}.{body}").as_bytes());
    vec![
        ("content-type", "application/json".to_owned()),
        ("webhook-id", id),
        ("webhook-timestamp", time.to_owned()),
        ("webhook-signature", format!("v1,{}", STANDARD.encode(signature.as_ref()))),
    ]
}

pub(super) async fn post_text(
    url: &str,
    headers: &[(&'static str, String)],
    body: String,
) -> Result<(), String> {
    let mut request = http_client()?.post(url).header(CONTENT_TYPE, "text/plain; charset=utf-8").body(body);
    for (name, value) in headers {
        // Bytes, because a title may be in any language.
        let mut value =
            HeaderValue::from_bytes(value.as_bytes()).map_err(|_| format!("{name} is not valid"))?;
        value.set_sensitive(*name == AUTHORIZATION.as_str());
        request = request.header(HeaderName::from_static(name), value);
    }
    // The address is left out of stored errors: some addresses contain a key.
    let answer = request.send().await.map_err(|error| error_chain(&error.without_url()))?;
    match answer.status() {
        status if status.is_success() => Ok(()),
        status => Err(format!("it answered {status}")),
    }
}

/// The text of an error with all its sources.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    text
}

/// Sends a request to a service that answers `ok: true`, or names its reason in the field `reason`.
pub(super) async fn call_service(
    request: RequestBuilder,
    method: &str,
    reason: &str,
    patience: Duration,
) -> Result<Value, String> {
    let asking = async {
        let answer = request.send().await.map_err(|error| error_chain(&error.without_url()))?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| error_chain(&error.without_url()))?;
        let answer = json::parse(&text).map_err(|_| format!("it answered {status}"))?;
        let why = || answer[reason].as_str().map_or_else(|| format!("it answered {status}"), str::to_owned);
        if answer["ok"] == true { Ok(answer) } else { Err(why()) }
    };
    match tokio::time::timeout(patience, asking).await {
        Ok(answered) => answered,
        Err(_) => Err(format!("no answer to {method}")),
    }
}

pub(super) fn http_client() -> Result<&'static reqwest::Client, String> {
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    if let Some(client) = CLIENT.get() {
        return Ok(client);
    }
    // Fails only if another part of the process has chosen a provider, which is then used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let made = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .pool_max_idle_per_host(0)
        .user_agent(concat!("lobster/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| error_chain(&error))?;
    Ok(CLIENT.get_or_init(|| made))
}

/// Runs the operator's program with the notice on its stdin.
async fn run_command(message: &Message, words: &[String]) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("it cannot be run: {error}");
    let Some((program, args)) = words.split_first() else { return Err("no command".to_owned()) };
    let mut input = tempfile::tempfile().map_err(failed)?;
    input.write_all(json::compact(&message.content).as_bytes()).map_err(failed)?;
    input.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut child = tokio::process::Command::new(program)
        .args(args)
        .env("LOBSTER_NOTICE_ID", message.notice_id())
        .env("LOBSTER_NOTICE_TITLE", &message.text.0)
        .env("LOBSTER_NOTICE_TEXT", &message.text.1)
        .env_remove(RunId::VARIABLE)
        .current_dir(&message.dir)
        .process_group(0)
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(failed)?;
    let group = Group(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw));
    let status = child.wait().await.map_err(failed)?;
    drop(group);
    if status.success() { Ok(()) } else { Err(format!("it ended with {status}")) }
}

/// Kills the remaining processes of a command, even after a timeout.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
