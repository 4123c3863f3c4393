//! Several channels under one name: the first healthy one answers.
//!
//! `LOBSTER_LLM_POOL` holds the channels as JSON, or names a file that does. A
//! channel that is overloaded, locked out or out of reach is left alone for a
//! while and the next one is asked; each hop is recorded with the answer.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::channel::{Answer, Channel, Failure, Given, Provider};
use super::request::{Request, Retry};
use crate::cancel::CancelToken;
use crate::http::HttpError;
use crate::json;
use crate::steps::stages::StageError;

/// The variable that holds the pool.
pub(crate) const VARIABLE: &str = "LOBSTER_LLM_POOL";

/// How long a channel is left alone after a fault that passes by itself; a
/// server's `Retry-After` overrides it.
const COOLDOWN: Duration = Duration::from_secs(30);

/// How long after one that somebody has to mend: a refused key, a model that is not there.
const LOCKOUT: Duration = Duration::from_secs(300);

/// Longest that a server may ask to be left alone.
const LONGEST: Duration = Duration::from_secs(3600);

/// A channel as the operator writes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    provider: String,
    /// Asked instead of the model that the command names.
    model: Option<String>,
    url: Option<String>,
    /// The variable that holds the token or key.
    key_env: Option<String>,
    /// Channels with a lower number are asked first.
    #[serde(default)]
    priority: i64,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    List(Vec<Entry>),
    Object(Listed),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    channels: Vec<Entry>,
}

/// The channels, in the order they are asked.
#[derive(Debug)]
pub(crate) struct Pool {
    channels: Vec<(Entry, Channel)>,
}

/// One attempt of a call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Hop {
    channel: String,
    provider: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// Why the next channel was asked; none for the one that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Until when channels of this process are left alone, by name and address.
static RESTING: Mutex<BTreeMap<String, Instant>> = Mutex::new(BTreeMap::new());

impl Pool {
    /// The pool of the environment, for the command `command`.
    pub(crate) fn from_env(
        command: &str,
        env: &dyn Fn(&str) -> Option<String>,
        cwd: &Path,
    ) -> Result<Self, StageError> {
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
        let mut entries = match File::deserialize(&value) {
            Ok(File::List(entries)) => entries,
            Ok(File::Object(listed)) => listed.channels,
            Err(_) => {
                return Err(refuse(
                    "must be a list of channels {name, provider, model?, url?, key_env?, priority?}"
                        .to_owned(),
                ));
            }
        };
        entries.sort_by_key(|entry| entry.priority);
        let channels = entries
            .into_iter()
            .map(|entry| {
                let wrong = |text: &str| refuse(format!("channel {:?} {text}", entry.name));
                let provider = Provider::named(&entry.provider)
                    .ok_or_else(|| wrong(&format!("has the unsupported provider {:?}", entry.provider)))?;
                let key = match &entry.key_env {
                    Some(name) => {
                        Some(env(name).ok_or_else(|| wrong(&format!("needs the variable {name}")))?)
                    }
                    None => None,
                };
                let given = Given {
                    url: entry.url.as_deref(),
                    token: key.as_deref(),
                    token_is_for_url: key.is_some(),
                };
                let channel = Channel::new(command, provider, given, env)
                    .map_err(|error| wrong(&format!("cannot be used: {}", error.message)))?;
                Ok((entry, channel))
            })
            .collect::<Result<Vec<_>, StageError>>()?;
        if channels.is_empty() {
            return Err(refuse("has no channels".to_owned()));
        }
        Ok(Self { channels })
    }

    /// Asks one channel after the other until one answers or says that no
    /// channel could. The provider is that of the channel that answered.
    pub(crate) fn ask(
        &self,
        request: &Request,
        retry: Option<&Retry>,
        cancel: &CancelToken,
    ) -> Result<(Answer, Provider, Vec<Hop>), Failure> {
        let mut hops = Vec::new();
        let mut last = None;
        for (entry, channel) in self.order() {
            let mut request = request.clone();
            request.model = entry.model.clone().or(request.model);
            let hop = |error| Hop {
                channel: entry.name.clone(),
                provider: channel.provider.name(),
                model: request.model.clone(),
                error,
            };
            match channel.ask(&request, retry, cancel) {
                Ok(answer) => {
                    hops.push(hop(None));
                    return Ok((answer, channel.provider, hops));
                }
                Err(failure) => {
                    let Some(rest) = rest_after(&failure) else { return Err(failure) };
                    hops.push(hop(Some(failure.message(&entry.name))));
                    resting().insert(health_key(entry), Instant::now() + rest);
                    last = Some(failure);
                }
            }
        }
        let tried: Vec<String> = hops.into_iter().filter_map(|hop| hop.error).collect();
        Err(match last {
            Some(_) if tried.len() > 1 => {
                Failure::Request(format!("no channel of the pool answered: {}", tried.join("; ")))
            }
            Some(failure) => failure,
            None => Failure::Request("the pool has no channels".to_owned()),
        })
    }

    /// Healthy channels first, then those whose rest ends soonest: a pool whose
    /// channels all rest is still asked.
    fn order(&self) -> Vec<&(Entry, Channel)> {
        let resting = resting();
        let now = Instant::now();
        let mut order: Vec<_> = self.channels.iter().collect();
        order
            .sort_by_key(|(entry, _)| resting.get(&health_key(entry)).filter(|until| **until > now).copied());
        order
    }
}

fn resting() -> std::sync::MutexGuard<'static, BTreeMap<String, Instant>> {
    RESTING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn health_key(entry: &Entry) -> String {
    format!("{}\0{}\0{}", entry.name, entry.provider, entry.url.as_deref().unwrap_or_default())
}

/// How long to leave a channel alone after a failure, `None` where another
/// channel would not do better: the request is wrong, the adapter said no, or
/// nobody waits any more.
fn rest_after(failure: &Failure) -> Option<Duration> {
    match failure {
        Failure::Http(HttpError::Cancelled(_)) | Failure::Remote(_) | Failure::Envelope(_) => None,
        Failure::Http(_) | Failure::Request(_) => Some(COOLDOWN),
        Failure::Status(reply) => match reply.status {
            401..=404 => Some(LOCKOUT),
            408 | 429 | 500..=599 => Some(reply.retry_after.unwrap_or(COOLDOWN).min(LONGEST)),
            _ => None,
        },
    }
}

/// The hops as the call's record and the item's warnings show them.
pub(crate) fn warnings(hops: &[Hop]) -> Vec<Value> {
    hops.iter()
        .filter_map(|hop| hop.error.as_ref())
        .map(|error| Value::from(format!("passed over: {error}")))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http::testing::{Answer as Reply, Server};

    fn pool(channels: &Value, vars: &[(&str, &str)]) -> Result<Pool, String> {
        let text = channels.to_string();
        let env = |name: &str| match name {
            VARIABLE => Some(text.clone()),
            _ => vars.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()),
        };
        Pool::from_env("C", &env, Path::new("/")).map_err(|error| error.message)
    }

    fn request() -> Request {
        Request { prompt: "p".into(), model: Some("asked".into()), ..Request::default() }
    }

    fn ok(text: &str) -> Reply {
        Reply::json(&json!({"output": {"text": text}}))
    }

    #[test]
    fn fails_over_and_leaves_the_sick_alone() {
        let sick = Server::start([Reply::new(429, "slow down"), ok("sick")]);
        let well = Server::start([ok("well")]);
        let channels = json!({"channels": [
            {"name": "f-well", "provider": "http", "url": well.url(""), "priority": 2, "model": "own"},
            {"name": "f-sick", "provider": "pi", "url": sick.url(""), "priority": 1, "key_env": "KEY"},
        ]});
        let pool = pool(&channels, &[("KEY", "k")]).unwrap();
        let (answer, provider, hops) = pool.ask(&request(), None, &CancelToken::new()).unwrap();
        assert_eq!(answer.result["output"]["text"], "well");
        assert_eq!(provider, Provider::Http);
        assert_eq!(
            json!(hops),
            json!([
                {"channel": "f-sick", "provider": "pi", "model": "asked", "error": "f-sick request failed: 429 Too Many Requests: slow down"},
                {"channel": "f-well", "provider": "http", "model": "own"},
            ])
        );
        assert_eq!(sick.requests()[0].header("authorization"), Some("Bearer k"));
        assert_eq!(well.requests()[0].header("authorization"), None);
        assert_eq!(well.requests()[0].json()["model"], "own");
        let (_, _, hops) = pool.ask(&request(), None, &CancelToken::new()).unwrap();
        assert_eq!(hops.len(), 1);
        assert_eq!(sick.requests().len(), 1);
    }

    #[test]
    fn a_wrong_request_is_not_asked_elsewhere() {
        let first = Server::start([
            Reply::new(400, "bad"),
            Reply::json(&json!({"ok": false, "error": {"message": "denied"}})),
        ]);
        let second = Server::start([ok("never")]);
        let pool = pool(
            &json!([
                {"name": "w-first", "provider": "http", "url": first.url("")},
                {"name": "w-second", "provider": "http", "url": second.url("")},
            ]),
            &[],
        )
        .unwrap();
        for message in ["C request failed: 400 Bad Request: bad", "C remote error: denied"] {
            assert_eq!(pool.ask(&request(), None, &CancelToken::new()).unwrap_err().message("C"), message);
        }
        assert!(second.requests().is_empty());
    }

    #[test]
    fn all_failures_are_told_and_a_resting_pool_is_still_asked() {
        let first = Server::start([Reply::new(503, "a"), ok("back")]);
        let pool = pool(
            &json!([
                {"name": "a-first", "provider": "http", "url": first.url("")},
                {"name": "a-second", "provider": "http", "url": "http://127.0.0.1:1"},
            ]),
            &[],
        )
        .unwrap();
        let message = pool.ask(&request(), None, &CancelToken::new()).unwrap_err().message("C");
        assert!(message.starts_with("C request failed: no channel of the pool answered: a-first request failed: 503 Service Unavailable: a; a-second request failed: fetch failed"), "{message}");
        assert_eq!(
            pool.ask(&request(), None, &CancelToken::new()).unwrap().0.result["output"]["text"],
            "back"
        );
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
            let error = pool(&channels, &[("KEY", "k")]).unwrap_err();
            assert!(error.starts_with("C LOBSTER_LLM_POOL: ") && error.contains(part), "{error}");
        }
        let env = |_: &str| Some("no/such/file.json".to_owned());
        assert!(
            Pool::from_env("C", &env, Path::new("/")).unwrap_err().message.contains("/no/such/file.json")
        );
    }
}
