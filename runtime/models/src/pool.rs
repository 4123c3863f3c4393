//! Several channels under one name: the first healthy one answers.
//!
//! `LOBSTER_LLM_POOL` holds the channels of a pool, or several pools by name, as JSON, or names a file
//! that does. A channel that is overloaded, locked out or unreachable rests for a while and the next one
//! is asked; each hop is recorded with the answer.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::bounds::Bounds;
use super::channel::{Answer, Channel, Failure, Given, Provider, Variables};
use super::health::Health;
use super::pricing::Pricing;
use super::request::{Request, Retry};
use crate::http::HttpError;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_stage::{HttpSender, StageError};

/// The variable that holds the pool.
pub const VARIABLE: &str = "LOBSTER_LLM_POOL";

/// Rest of a channel after a temporary fault; a server's `Retry-After` overrides it.
const COOLDOWN: Duration = Duration::from_secs(30);

/// Rest after a fault that needs a repair: a refused key, a missing model.
const LOCKOUT: Duration = Duration::from_secs(300);

/// A channel as the operator writes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    provider: String,
    /// Used instead of the model that the command names.
    model: Option<String>,
    url: Option<String>,
    /// The variable that holds the token or key.
    key_env: Option<String>,
    /// Channels with a lower number are asked first.
    #[serde(default)]
    priority: i64,
    /// Longest silence of this channel; replaces `LOBSTER_HTTP_TIMEOUT_MS`.
    timeout_ms: Option<std::num::NonZeroU64>,
    /// Headers of every request.
    headers: Option<BTreeMap<String, String>>,
    /// The field of a chat completion that limits the answer.
    max_tokens_field: Option<String>,
    /// True if answers are requested as streams.
    stream: Option<bool>,
}

/// A request to a model, with its bounds.
pub struct Asking<'a> {
    pub request: &'a Request,
    pub retry: Option<&'a Retry>,
    pub bounds: Bounds<'a>,
    /// Makes the requests.
    pub send: &'a HttpSender<'a>,
}

impl Asking<'_> {
    /// Asks one channel, if the possible cost fits the budget.
    pub fn ask_channel(&self, channel: &Channel, request: &Request) -> Result<Answer, Failure> {
        let _span =
            tracing::info_span!("model", provider = channel.provider.name(), model = request.model).entered();
        let request = channel.limit_tokens(request, self.bounds.has_budget);
        let worst = self.bounds.has_budget.then(|| channel.worst_case(&request, self.retry)).flatten();
        self.bounds
            .call_if_affordable(worst.as_ref(), || channel.send_request(&request, self.retry, self.send))
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    List(Vec<Entry>),
    Object(Listed),
    Named(Named),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    pools: BTreeMap<String, Vec<Entry>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    channels: Vec<Entry>,
}

/// The channels in the order of their use.
#[derive(Debug)]
pub struct Pool {
    channels: Vec<(Entry, Channel)>,
}

/// One attempt of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Hop {
    channel: String,
    provider: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The reason for asking the next channel; `None` for the channel that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Pool {
    /// The pool of the environment, or the pool of this name in it, for the command `command`.
    pub fn from_env(
        command: &str,
        name: Option<&str>,
        variables: Variables<'_>,
        cwd: &Path,
    ) -> Result<Self, StageError> {
        let env = variables.env;
        let refuse = |text: String| StageError::permanent(format!("{command} {VARIABLE}: {text}"));
        let setting = env(VARIABLE)
            .map(|text| text.trim().to_owned())
            .filter(|text| !text.is_empty())
            .ok_or_else(|| refuse("not set, but provider=pool".to_owned()))?;
        let text = if setting.starts_with(['[', '{']) {
            setting
        } else {
            let path = cwd.join(&setting);
            std::fs::read_to_string(&path).map_err(|error| refuse(format!("{}: {error}", path.display())))?
        };
        let value = json::parse(&text).map_err(|error| refuse(error.to_string()))?;
        let mut entries = chosen_entries(&value, name).map_err(refuse)?;
        entries.sort_by_key(|entry| entry.priority);
        let channels = entries
            .into_iter()
            .map(|entry| {
                let wrong = |text: &str| refuse(format!("channel {:?} {text}", entry.name));
                let provider = Provider::from_name(&entry.provider)
                    .ok_or_else(|| wrong(&format!("has the unsupported provider {:?}", entry.provider)))?;
                let given = Given {
                    url: entry.url.as_deref(),
                    token: None,
                    key_env: entry.key_env.as_deref(),
                    timeout_ms: entry.timeout_ms.map(Into::into),
                    headers: entry.headers.as_ref(),
                    max_tokens_field: entry.max_tokens_field.as_deref(),
                    stream: entry.stream,
                };
                let channel = Channel::new(command, provider, given, variables)
                    .map_err(|error| wrong(&format!("cannot be used: {}", error.message)))?;
                Ok((entry, channel))
            })
            .collect::<Result<Vec<_>, StageError>>()?;
        if channels.is_empty() {
            return Err(refuse("has no channels".to_owned()));
        }
        Ok(Self { channels })
    }

    /// Asks one channel after the other until one answers or fails in a way that no other channel could
    /// avoid. Returns the channel that answered.
    pub fn ask_channels(
        &self,
        asking: &Asking<'_>,
        health: &Health,
        pricing: &Pricing,
    ) -> Result<(Answer, &Channel, Vec<Hop>), Failure> {
        let mut hops = Vec::new();
        let mut last = None;
        let mut asked = false;
        let prices = asking.bounds.has_budget.then_some(pricing);
        for (entry, channel) in self.order_channels(health, prices, asking.request.model.as_deref()) {
            let mut request = asking.request.clone();
            request.model = entry.model.clone().or(request.model);
            let hop = |error| Hop {
                channel: entry.name.clone(),
                provider: channel.provider.name(),
                model: request.model.clone(),
                error,
            };
            match asking.ask_channel(channel, &request) {
                Ok(answer) => {
                    hops.push(hop(None));
                    health.mark_healthy(&health_key(entry));
                    return Ok((answer, channel, hops));
                }
                Err(failure) => {
                    let next = next_after(&failure);
                    asked |= !matches!(failure, Failure::Budget(_));
                    let error = failure.message_for(&entry.name);
                    tracing::warn!(channel = entry.name, %error, ?next, "no answer");
                    if let Next::Rest(rest) = next {
                        health.rest_channel(&health_key(entry), &error, rest);
                    }
                    hops.push(hop(Some(error)));
                    // The first refusal has the reason; later ones may only repeat that it had been refused.
                    if !matches!((&last, &failure), (Some(Failure::Budget(_)), Failure::Budget(_))) {
                        last = Some(failure);
                    }
                    if next == Next::GiveUp {
                        break;
                    }
                }
            }
        }
        let tried: Vec<String> = hops.into_iter().filter_map(|hop| hop.error).collect();
        Err(match last {
            Some(failure) if tried.len() > 1 => {
                let tried = tried.join("; ");
                match failure {
                    Failure::Http(HttpError::Cancelled(_)) => failure,
                    // No channel was asked: that ends the run, as with a single channel.
                    Failure::Budget(_) if !asked => failure,
                    _ => Failure::Request(format!("no channel of the pool answered: {tried}")),
                }
            }
            Some(failure) => failure,
            None => Failure::Request("the pool has no channels".to_owned()),
        })
    }

    /// Healthy channels first, then the channels whose rest ends soonest: a pool of resting channels is
    /// still asked. Under a limit, channels without a price come last.
    fn order_channels(
        &self,
        health: &Health,
        prices: Option<&Pricing>,
        asked: Option<&str>,
    ) -> Vec<&(Entry, Channel)> {
        let resting = health.resting_channels();
        let is_unpriced = |entry: &Entry| {
            let model = entry.model.as_deref().or(asked);
            prices.is_some_and(|prices| model.and_then(|model| prices.rate(model)).is_none())
        };
        let mut order: Vec<_> = self.channels.iter().collect();
        order.sort_by_key(|(entry, _)| (is_unpriced(entry), resting.get(&health_key(entry)).copied()));
        order
    }
}

/// The variables with the keys of all pools' channels. An unreadable pool has none; the call that uses it
/// reports the reason.
pub fn key_variables(env: &dyn Fn(&str) -> Option<String>, cwd: &Path) -> Vec<String> {
    let Some(setting) = env(VARIABLE).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    else {
        return Vec::new();
    };
    let is_text = setting.starts_with(['[', '{']);
    let text = if is_text { Some(setting) } else { std::fs::read_to_string(cwd.join(&setting)).ok() };
    let file = text.and_then(|text| json::parse(&text).ok()).and_then(|value| File::deserialize(&value).ok());
    let channels: Vec<Entry> = match file {
        None => Vec::new(),
        Some(File::List(channels) | File::Object(Listed { channels })) => channels,
        Some(File::Named(named)) => named.pools.into_values().flatten().collect(),
    };
    channels.into_iter().filter_map(|entry| entry.key_env).collect()
}

/// The chosen channels as the operator wrote them.
fn chosen_entries(setting: &Value, name: Option<&str>) -> Result<Vec<Entry>, String> {
    const FORM: &str = "must be a list of channels {name, provider, model?, url?, key_env?, priority?, timeout_ms?, headers?, max_tokens_field?, stream?}, \
                        or {\"pools\": {\"name\": [channels]}}";
    let mut pools = match File::deserialize(setting) {
        Ok(File::List(channels) | File::Object(Listed { channels })) => match name {
            None => return Ok(channels),
            Some(name) => return Err(format!("there is no pool {name:?}: the pool has no name")),
        },
        Ok(File::Named(named)) => named.pools,
        Err(_) => return Err(FORM.to_owned()),
    };
    let names = pools.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let name = match name {
        Some(name) => name.to_owned(),
        None if pools.len() == 1 => names.clone(),
        None => "default".to_owned(),
    };
    pools
        .remove(&name)
        .ok_or_else(|| format!("there is no pool {name:?}; there are: {names} (provider pool:NAME)"))
}

/// The name of a channel among all channels of a state directory. A digest, because an address may
/// contain a key.
fn health_key(entry: &Entry) -> String {
    let address = format!("{}\0{}", entry.provider, entry.url.as_deref().unwrap_or_default());
    format!("{} {}", entry.name, Digest::of_bytes(address.as_bytes()).short())
}

/// Consequence of a failure for the rest of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Another channel would not help: the request is wrong, the model or its adapter refused, or the
    /// call was cancelled.
    GiveUp,
    /// Another channel may succeed; this one is healthy.
    PassOver,
    /// This channel rests for this time.
    Rest(Duration),
}

fn next_after(failure: &Failure) -> Next {
    match failure {
        Failure::Http(HttpError::Cancelled(_)) | Failure::Remote(_) => Next::GiveUp,
        Failure::Budget(_) => Next::PassOver,
        Failure::Http(_) | Failure::Request(_) | Failure::Envelope(_) => Next::Rest(COOLDOWN),
        Failure::Status(reply) | Failure::Reported(reply) => match reply.status {
            401..=404 => Next::Rest(LOCKOUT),
            408 | 429 | 500..=599 => Next::Rest(reply.retry_after.unwrap_or(COOLDOWN)),
            _ => Next::GiveUp,
        },
    }
}

/// The hops as warnings for the call's record and the item.
pub fn hop_warnings(hops: &[Hop]) -> Vec<Value> {
    hops.iter()
        .filter_map(|hop| hop.error.as_ref())
        .map(|error| Value::from(format!("passed over: {error}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use lobster_base::code::Code;
    use serde_json::json;

    use super::*;
    use crate::http::testing::{Answer as Reply, Server};
    use lobster_stage::{Token, WorstCase};

    fn sample_pool(channels: &Value, vars: &[(&str, &str)]) -> Result<Pool, String> {
        let text = channels.to_string();
        let env = |name: &str| match name {
            VARIABLE => Some(text.clone()),
            _ => vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()),
        };
        let token = |name: &str| Ok(env(name).map(Token::of_environment));
        let variables = Variables { env: &env, token: &token, credential: &|_| Ok(None) };
        Pool::from_env("C", None, variables, Path::new("/")).map_err(|error| error.message)
    }

    /// A state directory, and asking in it.
    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn ask_pool(&self, pool: &Pool) -> Result<(Answer, Provider, Vec<Hop>), Failure> {
            self.ask_within(pool, &|_| Ok(()))
        }

        fn ask_within(
            &self,
            pool: &Pool,
            reserve: &dyn Fn(&WorstCase) -> Result<(), StageError>,
        ) -> Result<(Answer, Provider, Vec<Hop>), Failure> {
            let request = Request { prompt: "p".into(), model: Some("asked".into()), ..Request::default() };
            let asking = Asking {
                request: &request,
                retry: None,
                bounds: Bounds { has_budget: true, reserve, give_back: &|| () },
                send: &|request| {
                    crate::http::make_request(request, &lobster_base::cancel::CancelToken::new())
                },
            };
            let asked = pool.ask_channels(&asking, &Health::at(self.0.path()), &Pricing::default());
            asked.map(|(answer, channel, hops)| (answer, channel.provider, hops))
        }
    }

    fn ok_reply(text: &str) -> Reply {
        Reply::json(&json!({"output": {"text": text}}))
    }

    #[test]
    fn fails_over_and_leaves_the_sick_alone() {
        let sick = Server::start([Reply::new(429, "slow down"), ok_reply("sick")]);
        let well = Server::start([ok_reply("well")]);
        let channels = json!({"channels": [
            {"name": "f-well", "provider": "http", "url": well.url(""), "priority": 2, "model": "own"},
            {"name": "f-sick", "provider": "pi", "url": sick.url(""), "priority": 1, "key_env": "KEY"},
        ]});
        let pool = sample_pool(&channels, &[("KEY", "s3cret")]).unwrap();
        let place = Place::new();
        let (answer, provider, hops) = place.ask_pool(&pool).unwrap();
        assert_eq!(answer.result["output"]["text"], "well");
        assert_eq!(provider, Provider::Http);
        assert_eq!(
            json!(hops),
            json!([
                {"channel": "f-sick", "provider": "pi", "model": "asked", "error": "f-sick request failed: 429 Too Many Requests: slow down"},
                {"channel": "f-well", "provider": "http", "model": "own"},
            ])
        );
        assert_eq!(sick.requests()[0].header("authorization"), Some("Bearer s3cret"));
        assert_eq!(well.requests()[0].header("authorization"), None);
        assert_eq!(well.requests()[0].json()["model"], "own");
        // Another process with the same state also knows it.
        let (_, _, hops) = place.ask_pool(&pool).unwrap();
        assert_eq!(hops.len(), 1);
        assert_eq!(sick.requests().len(), 1);
        assert_eq!(Place::new().ask_pool(&pool).unwrap().0.result["output"]["text"], "sick");
    }

    #[test]
    fn every_fault_leads_to_the_next_channel() {
        for (name, fault, rests) in [
            ("overloaded", Reply::new(529, ""), true),
            ("refused", Reply::new(401, ""), true),
            ("silent", Reply::hang(), true),
            ("half", Reply::hang_after("HTTP/1.1 200 X\r\ncontent-length: 50\r\n\r\n{\"out"), true),
            ("cut", Reply::raw("HTTP/1.1 200 X\r\ncontent-length: 50\r\n\r\n{\"out"), true),
            ("chunk", Reply::raw("HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"out"), true),
            ("no json", Reply::new(200, "<html>"), true),
            ("other json", Reply::json(&json!({"hello": 1})), true),
            ("wrong", Reply::new(400, ""), false),
            ("denied", Reply::json(&json!({"error": {"message": "denied"}})), false),
        ] {
            let bad = Server::start([fault]);
            let good = Server::start([Reply::json(&json!({"choices": [{"message": {"content": "good"}}]}))]);
            let channel = |name: &str, server: &Server, timeout_ms: u64| json!({"name": name, "provider": "openai", "url": server.url(""), "timeout_ms": timeout_ms});
            // Only a silent server is given up early, even on a busy machine.
            let patience = if matches!(name, "silent" | "half") { 300 } else { 60_000 };
            let pool =
                sample_pool(&json!([channel(name, &bad, patience), channel("good", &good, 60_000)]), &[])
                    .unwrap();
            let place = Place::new();
            let answered = place.ask_pool(&pool);
            assert_eq!(answered.is_ok(), rests, "{name}");
            assert_eq!(Health::at(place.0.path()).resting_channels().len(), usize::from(rests), "{name}");
            if let Ok((answer, _, hops)) = answered {
                assert_eq!(
                    (answer.result["output"]["text"].as_str(), hops.len()),
                    (Some("good"), 2),
                    "{name}"
                );
            }
            assert_eq!(bad.requests().len(), 1, "{name}");
        }
    }

    #[test]
    fn a_channel_that_might_cost_too_much_is_passed_over_unasked() {
        let dear = Server::start([ok_reply("never")]);
        let cheap = Server::start([Reply::json(&json!({"choices": [{"message": {"content": "cheap"}}]}))]);
        let pool = sample_pool(
            &json!([
                {"name": "dear", "provider": "openai", "url": dear.url(""), "model": "dear"},
                {"name": "cheap", "provider": "openai", "url": cheap.url(""), "model": "cheap"},
            ]),
            &[],
        )
        .unwrap();
        let reserve = |worst: &WorstCase| {
            assert_eq!(worst.output_tokens, Some(4096));
            assert!(worst.input_tokens > 10);
            match worst.model.as_deref() {
                Some("dear") => Err(StageError::permanent("too dear").with_code(Code::CostLimit)),
                _ => Ok(()),
            }
        };
        let (_, _, hops) = Place::new().ask_within(&pool, &reserve).unwrap();
        assert_eq!(hops[0].error.as_deref(), Some("too dear"));
        assert!(dear.requests().is_empty());
        assert_eq!(cheap.requests()[0].json()["max_tokens"], 4096);
    }

    #[test]
    fn a_wrong_request_is_not_asked_elsewhere() {
        let first = Server::start([
            Reply::new(400, "bad"),
            Reply::json(&json!({"ok": false, "error": {"message": "denied"}})),
        ]);
        let second = Server::start([ok_reply("never")]);
        let pool = sample_pool(
            &json!([
                {"name": "w-first", "provider": "http", "url": first.url("")},
                {"name": "w-second", "provider": "http", "url": second.url("")},
            ]),
            &[],
        )
        .unwrap();
        for message in ["C request failed: 400 Bad Request: bad", "C remote error: denied"] {
            assert_eq!(Place::new().ask_pool(&pool).unwrap_err().message_for("C"), message);
        }
        assert!(second.requests().is_empty());
    }

    #[test]
    fn all_failures_are_told_and_a_resting_pool_is_still_asked() {
        let first = Server::start([Reply::new(503, "a"), ok_reply("back")]);
        let pool = sample_pool(
            &json!([
                {"name": "a-first", "provider": "http", "url": first.url("")},
                {"name": "a-second", "provider": "http", "url": "http://127.0.0.1:1"},
            ]),
            &[],
        )
        .unwrap();
        let place = Place::new();
        let message = place.ask_pool(&pool).unwrap_err().message_for("C");
        assert!(message.starts_with("C request failed: no channel of the pool answered: a-first request failed: 503 Service Unavailable: a; a-second request failed: fetch failed"), "{message}");
        assert_eq!(place.ask_pool(&pool).unwrap().0.result["output"]["text"], "back");
        assert_eq!(Health::at(place.0.path()).resting_channels().len(), 1, "who answers is well again");
    }

    #[test]
    fn pools_have_names() {
        let channel = |name: &str| json!([{"name": name, "provider": "http", "url": "http://h"}]);
        let named = |setting: &Value, name: Option<&str>| {
            chosen_entries(setting, name)
                .map(|channels| channels[0].name.clone())
                .unwrap_or_else(|error| error)
        };
        let two = json!({"pools": {"fast": channel("f"), "default": channel("d")}});
        assert_eq!(named(&two, Some("fast")), "f");
        assert_eq!(named(&two, None), "d");
        assert!(named(&two, Some("other")).contains("there are: default, fast"));
        assert_eq!(named(&json!({"pools": {"only": channel("o")}}), None), "o");
        assert!(
            named(&json!({"pools": {"a": channel("o"), "b": channel("o")}}), None)
                .contains("no pool \"default\"")
        );
        assert!(named(&channel("x"), Some("fast")).contains("has no name"));
        assert!(named(&json!({"pools": {}, "more": 1}), None).contains("must be a list"));
    }

    #[test]
    fn settings_are_checked() {
        for (channels, part) in [
            (json!([]), "has no channels"),
            (json!([{"name": "x"}]), "must be a list of channels"),
            (json!([{"name": "x", "provider": "http", "key": "secret"}]), "must be a list of channels"),
            (
                json!([{"name": "x", "provider": "nope"}]),
                "channel \"x\" has the unsupported provider \"nope\"",
            ),
            (json!([{"name": "x", "provider": "http"}]), "requires LOBSTER_LLM_ADAPTER_URL"),
            (json!([{"name": "x", "provider": "openai", "key_env": "NONE"}]), "needs the variable NONE"),
            (
                json!([{"name": "x", "provider": "openai", "url": "http://h.test", "key_env": "KEY"}]),
                "unencrypted",
            ),
        ] {
            let error = sample_pool(&channels, &[("KEY", "k")]).unwrap_err();
            assert!(error.starts_with("C LOBSTER_LLM_POOL: ") && error.contains(part), "{error}");
        }
        let env = |_: &str| Some("no/such/file.json".to_owned());
        assert!(
            Pool::from_env(
                "C",
                None,
                Variables { env: &env, token: &|_| Ok(None), credential: &|_| Ok(None) },
                Path::new("/")
            )
            .unwrap_err()
            .message
            .contains("/no/such/file.json")
        );
    }
}
