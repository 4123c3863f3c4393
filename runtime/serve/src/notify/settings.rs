//! Recipients of notices: `[[notify]]` in the file of `lobster serve --config`.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use lobster_runtime::address::is_loopback;
use lobster_runtime::language::plan::Told;
use serde::Deserialize;

use crate::access::Role;

/// Settings of all notices.
#[derive(Clone, Debug, Default)]
pub struct NotifySettings {
    /// Address of the console, for links.
    pub url: Option<String>,
    pub targets: Vec<Recipient>,
}

/// A recipient.
#[derive(Clone, Debug)]
pub struct Recipient {
    pub name: String,
    pub(crate) on: Vec<String>,
    pub(crate) workflows: Option<Vec<String>>,
    pub(crate) quiet: Option<Quiet>,
    pub(crate) channel: Arc<Channel>,
}

/// The means of sending. Secrets are given by name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Channel {
    /// A program and its arguments. It gets the notice as JSON on its stdin.
    Command(Vec<String>),
    Webhook(Webhook),
    Ntfy(Ntfy),
    Email(Email),
    Telegram(Telegram),
    Slack(Slack),
}

/// A chat of a bot, with the people whose buttons are valid in it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Telegram {
    /// Name of the secret with the bot's token.
    pub(crate) token: String,
    pub(crate) chat: i64,
    /// Address of the server, if it is not Telegram's own.
    #[serde(default = "telegram_server")]
    pub(crate) server: String,
    #[serde(default)]
    pub(crate) people: Vec<Member<i64>>,
}

fn telegram_server() -> String {
    "https://api.telegram.org".to_owned()
}

/// A channel in which an app writes, with the people whose buttons are valid in it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slack {
    /// Name of the secret with the app's bot token, for writing.
    pub(crate) token: String,
    /// Name of the secret with the app-level token, for the socket.
    #[serde(default)]
    pub(crate) app_token: String,
    pub(crate) channel: String,
    /// Address of the server, if it is not Slack's own.
    #[serde(default = "slack_server")]
    pub(crate) server: String,
    #[serde(default)]
    pub(crate) people: Vec<Member<String>>,
}

fn slack_server() -> String {
    "https://slack.com/api".to_owned()
}

/// A user of Telegram or a member of a workspace, mapped to a person of lobster.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Member<Id> {
    pub(crate) user: Id,
    name: String,
    #[serde(default = "approver")]
    role: Role,
    workflows: Option<Vec<String>>,
}

/// The topic to which buttons post, with the person who presses them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NtfyAnswers {
    /// Address of the topic.
    pub(crate) url: String,
    person: String,
    #[serde(default = "approver")]
    role: Role,
    workflows: Option<Vec<String>>,
}

fn approver() -> Role {
    Role::Approver
}

/// A person whose answers are valid where a question was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answerer {
    /// The name in the history and in `requiredApprover`.
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) workflows: Option<Vec<String>>,
}

impl<Id: PartialEq + Display> Member<Id> {
    /// Checks that all people can answer, and that none is there twice.
    fn check_people(people: &[Self]) -> Result<(), String> {
        for (at, person) in people.iter().enumerate() {
            person.to_answerer().check_settings()?;
            if people[..at].iter().any(|other| other.user == person.user) {
                return Err(format!("people has the user {} twice", person.user));
            }
        }
        Ok(())
    }

    pub(crate) fn to_answerer(&self) -> Answerer {
        Answerer { name: self.name.clone(), role: self.role, workflows: self.workflows.clone() }
    }
}

impl NtfyAnswers {
    pub(crate) fn to_answerer(&self) -> Answerer {
        Answerer { name: self.person.clone(), role: self.role, workflows: self.workflows.clone() }
    }
}

impl Answerer {
    fn check_settings(&self) -> Result<(), String> {
        if self.name.trim().is_empty() {
            return Err("a person who answers needs a name".to_owned());
        }
        match self.role >= Role::Approver {
            true => Ok(()),
            false => Err(format!("{} is a {} and cannot answer", self.name, self.role)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Webhook {
    pub(crate) url: String,
    pub(crate) secret: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ntfy {
    /// Address of the topic.
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    pub(crate) answers: Option<NtfyAnswers>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Email {
    /// HOST:PORT.
    pub(crate) server: String,
    #[serde(default)]
    pub(crate) tls: Tls,
    pub(crate) from: String,
    pub(crate) to: Vec<String>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

/// Encryption of the connection to a mail server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Tls {
    /// TLS from the first byte.
    Implicit,
    /// TLS after STARTTLS; without it, nothing is sent.
    #[default]
    Starttls,
    /// No encryption, for a server on this machine.
    None,
}

/// Hours in which nothing is sent.
#[derive(Clone, Debug)]
pub(crate) struct Quiet {
    from: Time,
    to: Time,
    zone: TimeZone,
    /// Kinds of notices that are sent nevertheless.
    except: Vec<String>,
}

/// Kinds of notices.
const KINDS: [&str; 4] = ["question", "ok", "failed", "missed"];

/// The raw fields of `[[notify]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    #[serde(default)]
    on: Option<Vec<String>>,
    workflows: Option<Vec<String>>,
    command: Option<Vec<String>>,
    webhook: Option<Webhook>,
    ntfy: Option<Ntfy>,
    email: Option<Email>,
    telegram: Option<Telegram>,
    slack: Option<Slack>,
    quiet_hours: Option<String>,
    #[serde(default)]
    quiet_except: Vec<String>,
    timezone: Option<String>,
}

impl<'de> Deserialize<'de> for Recipient {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Written::deserialize(from)?.into_target().map_err(serde::de::Error::custom)
    }
}

impl Written {
    fn into_target(self) -> Result<Recipient, String> {
        let name = self.name;
        let wrong = |why: &str| Err(format!("notify {name:?}: {why}"));
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        {
            return wrong("a name has letters, digits, `-`, `_` and `.`");
        }
        let on = self.on.unwrap_or_else(|| ["question", "failed", "missed"].map(str::to_owned).to_vec());
        let mut kinds = on.iter().chain(&self.quiet_except);
        if let Some(unknown) = kinds.find(|kind| !KINDS.contains(&kind.as_str())) {
            return wrong(&format!("{unknown:?} is not one of {}", KINDS.join(", ")));
        }
        let mut channels: Vec<Channel> = Vec::new();
        channels.extend(self.command.map(Channel::Command));
        channels.extend(self.webhook.map(Channel::Webhook));
        channels.extend(self.ntfy.map(Channel::Ntfy));
        channels.extend(self.email.map(Channel::Email));
        channels.extend(self.telegram.map(Channel::Telegram));
        channels.extend(self.slack.map(Channel::Slack));
        let channel = match (channels.pop(), channels.is_empty()) {
            (Some(channel), true) => channel,
            _ => return wrong("it needs exactly one of command, webhook, ntfy, email, telegram and slack"),
        };
        if let Err(why) = channel.check_settings() {
            return wrong(&why);
        }
        let quiet = self.quiet_hours.as_ref();
        let quiet =
            quiet.map(|hours| Quiet::parse(hours, self.timezone.as_deref(), self.quiet_except.clone()));
        let quiet = match quiet.transpose() {
            Ok(quiet) => quiet,
            Err(why) => return wrong(&why),
        };
        Ok(Recipient { name, on, workflows: self.workflows, quiet, channel: Arc::new(channel) })
    }
}

impl Channel {
    /// The name of the secret that the channel needs.
    pub(crate) fn secret_name(&self) -> Option<&str> {
        match self {
            Self::Command(_) => None,
            Self::Webhook(webhook) => Some(&webhook.secret),
            Self::Ntfy(ntfy) => ntfy.token.as_deref(),
            Self::Email(email) => email.password.as_deref(),
            Self::Telegram(telegram) => Some(&telegram.token),
            Self::Slack(slack) => Some(&slack.token),
        }
    }

    /// True if a question can be answered where it is read.
    pub(crate) fn takes_answers(&self) -> bool {
        match self {
            Self::Command(_) | Self::Webhook(_) | Self::Email(_) => false,
            Self::Ntfy(ntfy) => ntfy.answers.is_some(),
            Self::Telegram(telegram) => !telegram.people.is_empty(),
            Self::Slack(slack) => !slack.people.is_empty(),
        }
    }

    fn check_settings(&self) -> Result<(), String> {
        match self {
            Self::Command(words) => match words.first().map(PathBuf::from) {
                Some(program) if program.is_absolute() => Ok(()),
                Some(_) => Err("command needs the absolute path of its program".to_owned()),
                None => Err("command is empty".to_owned()),
            },
            Self::Webhook(Webhook { url, .. }) => check_url(url, false),
            Self::Ntfy(ntfy) => ntfy.check_settings(),
            Self::Telegram(telegram) => telegram.check_settings(),
            Self::Slack(slack) => slack.check_settings(),
            Self::Email(email) => email.check_settings(),
        }
    }
}

impl Ntfy {
    fn check_settings(&self) -> Result<(), String> {
        check_url(&self.url, self.token.is_some())?;
        let Some(answers) = &self.answers else { return Ok(()) };
        check_url(&answers.url, true)?;
        if self.token.is_none() {
            return Err("answers needs a token, and topics that cannot be read without one".to_owned());
        }
        if answers.url.trim_end_matches('/') == self.url.trim_end_matches('/') {
            return Err("answers.url must be another topic than url".to_owned());
        }
        answers.to_answerer().check_settings()
    }
}

impl Telegram {
    fn check_settings(&self) -> Result<(), String> {
        check_url(&self.server, true)?;
        Member::check_people(&self.people)
    }
}

impl Slack {
    fn check_settings(&self) -> Result<(), String> {
        check_url(&self.server, true)?;
        if self.channel.trim().is_empty() {
            return Err("channel is empty: it is the id of a channel, such as C0123456789".to_owned());
        }
        if !self.people.is_empty() && self.app_token.is_empty() {
            return Err(
                "people needs an app_token, by which the app opens its socket (socket mode)".to_owned()
            );
        }
        Member::check_people(&self.people)
    }

    /// True if the server is on this machine, so that no network is involved.
    pub(crate) fn is_local(&self) -> bool {
        check_url(&self.server, true).is_ok() && self.server.starts_with("http:")
    }
}

/// Checks an address. A secret must not be sent over a network unencrypted.
fn check_url(text: &str, has_secret: bool) -> Result<(), String> {
    let url = reqwest::Url::parse(text).map_err(|error| format!("url = {text:?}: {error}"))?;
    let is_local = is_loopback(url.host_str().ok_or_else(|| format!("url = {text:?} names no host"))?);
    match url.scheme() {
        "https" => Ok(()),
        "http" if !has_secret || is_local => Ok(()),
        "http" => Err(format!("url = {text:?} would send its token in the clear: use https")),
        other => Err(format!("url = {text:?}: {other} is neither https nor http")),
    }
}

impl Email {
    fn check_settings(&self) -> Result<(), String> {
        let port = self.server.rsplit_once(':').map(|(_, port)| port.parse::<u16>().is_ok());
        if port != Some(true) {
            return Err(format!("server = {:?} is not HOST:PORT", self.server));
        }
        let is_address = |text: &&String| {
            let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '<' | '>' | ',' | ';' | '"');
            text.split_once('@').is_some_and(|(who, at)| !who.is_empty() && !at.is_empty())
                && text.chars().all(plain)
        };
        if let Some(wrong) = self.to.iter().chain([&self.from]).find(|text| !is_address(text)) {
            return Err(format!("{wrong:?} is not an address such as ann@example.org"));
        }
        if self.to.is_empty() {
            return Err("to is empty".to_owned());
        }
        match (&self.user, &self.password, self.tls) {
            (Some(_), Some(_), Tls::None) if !self.is_local() => {
                Err("the password would go over the network in the clear: tls = \"starttls\" or \"implicit\""
                    .to_owned())
            }
            (Some(_), Some(_), _) | (None, None, _) => Ok(()),
            (Some(_), None, _) | (None, Some(_), _) => Err("user and password go together".to_owned()),
        }
    }

    fn is_local(&self) -> bool {
        let host = self.server.rsplit_once(':').map_or("", |(host, _)| host);
        is_loopback(host)
    }
}

impl Recipient {
    /// True if the target gets notices of this kind for a workflow, by the operator's settings or because the workflow
    /// names the target.
    pub(crate) fn wants_notice(&self, kind: &str, workflow: &str, named: &[Told]) -> bool {
        let is_usual = self.on.iter().any(|on| on == kind);
        let is_named = named.iter().filter(|told| told.target == self.name);
        is_usual && self.workflows.as_ref().is_none_or(|all| all.iter().any(|one| one == workflow))
            || is_named.into_iter().any(|told| match told.on.is_empty() {
                true => is_usual,
                false => told.on.iter().any(|on| on == kind),
            })
    }

    /// The time at which a notice of an event now is sent.
    pub(crate) fn due_time(&self, kind: &str, now: i64) -> i64 {
        self.quiet.as_ref().map_or(now, |quiet| quiet.due_time(kind, now))
    }
}

impl Quiet {
    pub(crate) fn parse(hours: &str, zone: Option<&str>, except: Vec<String>) -> Result<Self, String> {
        let wrong = || format!("quiet_hours = {hours:?} is not written as in \"22:00-07:00\"");
        let (from, to) = hours.split_once('-').ok_or_else(wrong)?;
        let time = |text: &str| text.trim().parse::<Time>().map_err(|_| wrong());
        let (from, to) = (time(from)?, time(to)?);
        if from == to {
            return Err(format!("quiet_hours = {hours:?} has no end"));
        }
        let zone = match zone {
            None => TimeZone::system(),
            Some(name) => TimeZone::get(name).map_err(|_| format!("timezone = {name:?} is not known"))?,
        };
        Ok(Self { from, to, zone, except })
    }

    /// Returns `now`, or the end of the quiet hours that contain it.
    pub(crate) fn due_time(&self, kind: &str, now: i64) -> i64 {
        let Ok(at) = Timestamp::from_millisecond(now).map(|at| at.to_zoned(self.zone.clone())) else {
            return now;
        };
        let time = at.time();
        let is_quiet = match self.from < self.to {
            true => self.from <= time && time < self.to,
            false => time >= self.from || time < self.to,
        };
        if !is_quiet || self.except.iter().any(|one| one == kind) {
            return now;
        }
        let ends_today = time < self.to;
        let day = if ends_today { Ok(at.date()) } else { at.date().checked_add(1.day()) };
        let end = day.and_then(|day| day.to_datetime(self.to).to_zoned(self.zone.clone()));
        end.map_or(now, |end| end.timestamp().as_millisecond())
    }
}
