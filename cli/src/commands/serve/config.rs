//! The file of `lobster serve --config`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lobster_runtime::budget::{MOST_USD, UsageLimits, nano_usd};
use lobster_runtime::quantity::{Bytes, Span};
use lobster_serve::access::Role;
use lobster_serve::http::{NamedByProxy, Rights};
use lobster_serve::notify::Recipient;
use lobster_serve::server::ProxySettings;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::exit::CommandError;

/// The settings of a server. Options on the command line override the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) listen: Option<String>,
    /// Relative to the file.
    #[serde(default)]
    pub(super) workflows: Vec<PathBuf>,
    #[serde(default)]
    pub(super) allow_host: Vec<String>,
    #[serde(default)]
    pub(super) behind_proxy: bool,
    /// Relative to the file, as is the key.
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    pub(super) max_runs: Option<u64>,
    pub(super) max_time: Option<String>,
    pub(super) max_memory: Option<String>,
    pub(super) max_cpu: Option<String>,
    pub(super) stop_after: Option<String>,
    #[serde(default)]
    pub(super) trust: bool,
    /// The beginning of links in notifications.
    pub(super) url: Option<String>,
    #[serde(default)]
    pub(super) notify: Vec<Recipient>,
    /// The budget of one day (UTC) for the model calls of all runs that the server starts.
    pub(super) budget: Option<ServerBudget>,
    /// The confirmation that a person's approval needs.
    pub(super) confirm: Option<Confirm>,
    /// A proxy in front of the server that names the caller.
    pub(super) proxy: Option<Proxy>,
}

/// `confirm`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Confirm {
    Passkey,
}

/// `[proxy]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proxy {
    /// The socket file to which it connects, relative to the file.
    socket: PathBuf,
    /// The user of the proxy, by name or number, if it is not the server's user.
    user: Option<String>,
    /// The header with the name of the caller.
    #[serde(default = "remote_user")]
    header: String,
    /// The rights of people; `*` is everyone else whom the proxy names.
    #[serde(default)]
    #[serde(deserialize_with = "people")]
    people: BTreeMap<String, Rights>,
}

fn remote_user() -> String {
    "Remote-User".to_owned()
}

/// The rights of people: a role, or a role for some workflows.
fn people<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Rights>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Within {
        role: Role,
        workflows: Vec<String>,
    }
    struct Person(Rights);
    struct Either;
    impl<'de> Visitor<'de> for Either {
        type Value = Person;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a role, or { role = ROLE, workflows = [NAME] }")
        }

        fn visit_str<E: de::Error>(self, role: &str) -> Result<Person, E> {
            Ok(Person(Rights { role: role.parse().map_err(E::custom)?, workflows: None }))
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Person, A::Error> {
            let Within { role, workflows } = Within::deserialize(MapAccessDeserializer::new(map))?;
            Ok(Person(Rights { role, workflows: Some(workflows) }))
        }
    }
    impl<'de> Deserialize<'de> for Person {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
            from.deserialize_any(Either)
        }
    }
    let people = BTreeMap::<String, Person>::deserialize(from)?;
    Ok(people.into_iter().map(|(name, Person(rights))| (name, rights)).collect())
}

impl Proxy {
    /// The settings of the proxy for the server.
    pub(super) fn into_settings(mut self) -> Result<ProxySettings, CommandError> {
        let wrong = |why: String| CommandError::usage(format!("[proxy]: {why}"));
        let header = self.header.parse().map_err(|_| wrong(format!("{:?} is not a header", self.header)))?;
        let others = self.people.remove("*");
        if self.people.is_empty() && others.is_none() {
            return Err(wrong(
                "no person has a role: [proxy.people] needs a line such as ann = \"approver\"".to_owned(),
            ));
        }
        let users = self.user.as_deref().map(|user| {
            let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
            number_of(user, &text)
                .ok_or_else(|| wrong(format!("{user:?} is not a user of this machine; give its number")))
        });
        Ok(ProxySettings {
            socket: self.socket,
            users: users.transpose()?.into_iter().collect(),
            named: NamedByProxy { header, people: self.people, others },
        })
    }
}

/// The number of a user, looked up by name in the text of `passwd`.
fn number_of(user: &str, passwd: &str) -> Option<u32> {
    let by_name = |line: &str| {
        let mut fields = line.split(':');
        (fields.next() == Some(user)).then(|| fields.nth(1)?.parse().ok()).flatten()
    };
    user.parse().ok().or_else(|| passwd.lines().find_map(by_name))
}

/// `[budget]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerBudget {
    calls: Option<u64>,
    tokens: Option<u64>,
    usd: Option<f64>,
    unpriced: Option<Unpriced>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unpriced {
    Allow,
    Refuse,
}

impl ServerBudget {
    /// The limits, and true if models without a price may be asked.
    pub(super) fn limit_terms(&self) -> (UsageLimits, bool) {
        let limits = UsageLimits { calls: self.calls, tokens: self.tokens, nano_usd: self.usd.map(nano_usd) };
        (limits, self.unpriced == Some(Unpriced::Allow))
    }
}

impl Config {
    pub(super) fn read(path: &Path) -> Result<Self, CommandError> {
        let wrong = |why: String| CommandError::usage(format!("--config {}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let mut config: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        let is_address = |url: &str| {
            let rest = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
            rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'))
        };
        if let Some(url) = config.url.as_deref().filter(|url| !is_address(url)) {
            return Err(wrong(format!("url = {url:?} must begin with https:// or http:// and a host")));
        }
        if config.max_runs == Some(0) {
            return Err(wrong("max_runs must be at least 1".to_owned()));
        }
        if let Some(budget) = &config.budget {
            if budget.usd.is_some_and(|usd| !(0.0..=MOST_USD).contains(&usd)) {
                return Err(wrong(format!("usd under [budget] must be dollars, from 0 to {MOST_USD}")));
            }
            if budget.limit_terms().0.is_empty() {
                return Err(wrong("[budget] limits nothing: it needs calls, tokens or usd".to_owned()));
            }
        }
        let mut names: Vec<_> = config.notify.iter().map(|target| &target.name).collect();
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(wrong(format!("two of [[notify]] have the name {:?}", twice[0])));
        }
        let here = path.parent().unwrap_or(Path::new("."));
        config.tls_cert = config.tls_cert.map(|file| here.join(file));
        config.tls_key = config.tls_key.map(|file| here.join(file));
        if let Some(proxy) = &mut config.proxy {
            proxy.socket = here.join(&proxy.socket);
        }
        config.workflows = config.workflows.iter().map(|dir| here.join(dir)).collect();
        Ok(config)
    }

    /// A memory size in the file.
    pub(super) fn parse_size(&self, name: &str, text: Option<&str>) -> Result<Option<Bytes>, CommandError> {
        let parse = |text: &str| {
            text.parse::<Bytes>().map_err(|error| CommandError::usage(format!("{name} = {text:?}: {error}")))
        };
        text.map(parse).transpose()
    }

    /// A duration in the file.
    pub(super) fn parse_duration(
        &self,
        name: &str,
        text: Option<&str>,
    ) -> Result<Option<Span>, CommandError> {
        let parse = |text: &str| {
            text.parse::<Span>().map_err(|error| CommandError::usage(format!("{name} = {text:?}: {error}")))
        };
        text.map(parse).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_known_by_name_and_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nwww-data:x:33:33::/var/www:/usr/sbin/nologin\nbroken\n";
        assert_eq!((number_of("www-data", passwd), number_of("1000", passwd)), (Some(33), Some(1000)));
        assert_eq!(
            (number_of("www", passwd), number_of("broken", passwd), number_of("", passwd)),
            (None, None, None)
        );
    }
}
