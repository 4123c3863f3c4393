//! `on:`, what starts a workflow: its schedules, its webhooks, the end of other workflows, files.
//!
//! Plain data. Nothing here starts anything: `lobster run` runs a file with triggers as any other,
//! and the service acts on them. What could only be found out when a trigger is due is refused when
//! the file is checked.

mod catch_up;
pub mod cron;
mod ticks;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::plan::Span;

pub use catch_up::CatchUp;
pub(crate) use ticks::zone_names;
pub use ticks::{Tick, TickError, Ticks, is_zone};

/// What starts a workflow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Triggers {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub schedules: Vec<Schedule>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<Webhook>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<After>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub watch: Vec<Watch>,
}

impl Triggers {
    /// Whether nothing starts the workflow.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.schedules.is_empty()
            && self.webhooks.is_empty()
            && self.after.is_empty()
            && self.watch.is_empty()
    }
}

/// One entry of `schedule:`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Schedule {
    pub span: Span,
    /// Unique in the file; `schedule` if the file has one schedule and does not name it.
    pub name: String,
    pub due: Due,
    /// A start is put off by less than this; how much is the same for every tick of one schedule.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jitter_ms: u64,
    pub missed: Missed,
    #[serde(default)]
    pub overlap: Overlap,
    /// The arguments of the runs.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// When a schedule is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// A pattern that [`cron::parse`] takes, in the civil time of an IANA time zone.
    Cron { pattern: String, timezone: String },
    /// An interval in real time, in milliseconds.
    Every { ms: u64 },
}

/// What becomes of the ticks that were due while nobody served the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// None of them runs.
    Skip,
    /// The latest runs, if it is not older than the window.
    Last {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within_ms: Option<u64>,
    },
    /// The latest ones run, oldest first.
    All {
        /// At most so many.
        max: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within_ms: Option<u64>,
    },
}

/// What becomes of a tick that is due while an earlier run of its schedule has not ended.
/// A run that waits for a person, a time or an event has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Both run.
    Allow,
    /// The tick does not run.
    #[default]
    Skip,
    /// The tick runs when the earlier run has ended; at most `max` ticks wait, further ones do not run.
    Queue { max: u64 },
    /// The earlier run is cancelled.
    CancelPrevious,
}

/// One entry of `webhook:`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Webhook {
    pub span: Span,
    /// Segments joined by `/`, without one at the start.
    pub path: String,
    pub verify: Verify,
    /// The names of one secret, or of two that are both valid while one takes over from the other.
    pub secrets: Vec<String>,
    /// Arguments, each from a place in the body.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, Source>,
}

/// How the sender of a webhook's delivery is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verify {
    /// Standard Webhooks: `webhook-id`, `webhook-timestamp`, `webhook-signature`.
    Standard,
    /// `X-Hub-Signature-256`.
    Github,
    /// `Stripe-Signature`.
    Stripe,
    /// `X-Slack-Signature` and `X-Slack-Request-Timestamp`.
    Slack,
    /// The HMAC-SHA256 of the body, in hexadecimal, in a header.
    Hmac {
        /// In lower case.
        header: String,
    },
    /// The secret itself, in a header; `authorization` holds it after `Bearer `.
    Token {
        /// In lower case.
        header: String,
    },
}

/// Where the value of an argument comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A value that stands in the file.
    Value(Value),
    /// Keys and list positions, from the whole of what the trigger brings inwards.
    Path(Vec<String>),
}

impl Source {
    /// The value, if what the trigger brings has one.
    #[must_use]
    pub fn find<'v>(&'v self, brought: &'v Value) -> Option<&'v Value> {
        match self {
            Self::Value(value) => Some(value),
            Self::Path(path) => path.iter().try_fold(brought, |at, part| match at {
                Value::Object(map) => map.get(part),
                Value::Array(list) => list.get(part.parse::<usize>().ok()?),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
            }),
        }
    }
}

/// The arguments that a trigger gives, from what it brings. What is not there is left out, so that a
/// declared default holds; [`crate::workflow::bind_args`] compares the rest with the declarations.
#[must_use]
pub fn find_args(args: &BTreeMap<String, Source>, brought: &Value) -> Map<String, Value> {
    args.iter().filter_map(|(name, source)| Some((name.clone(), source.find(brought)?.clone()))).collect()
}

/// One entry of `after:`. It brings the envelope of the run that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct After {
    pub span: Span,
    /// The other file, relative to this one's directory.
    pub workflow: String,
    #[serde(default)]
    pub ended: Ended,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, Source>,
}

/// How the other workflow's run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    #[default]
    Ok,
    Failed,
    Any,
}

/// `watch:`. It brings `{"paths": [...]}`, the files that differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    pub span: Span,
    /// Glob patterns, relative to the file's directory.
    pub paths: Vec<String>,
    /// The run starts when nothing has changed for so long.
    pub settle_ms: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, Source>,
}
