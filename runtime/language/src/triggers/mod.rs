//! `on:`, the triggers of a workflow: schedules, webhooks, the end of other workflows, files.
//!
//! This is plain data and starts nothing: `lobster run` runs a file with triggers like any other, and
//! the service acts on them. A mistake that would otherwise appear only when a trigger is due is
//! rejected when the file is checked.

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

/// Triggers of a workflow.
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
    /// True if the workflow has no triggers.
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
    /// Unique in the file; `schedule` if the file has one schedule without a name.
    pub name: String,
    pub due: Due,
    /// A start is delayed by less than this; the delay is the same for all ticks of one schedule.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub jitter_ms: u64,
    pub missed: Missed,
    #[serde(default)]
    pub overlap: Overlap,
    /// Arguments of the runs.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub args: Map<String, Value>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Times at which a schedule is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Due {
    /// A pattern that [`cron::parse`] takes, in the civil time of an IANA time zone.
    Cron { pattern: String, timezone: String },
    /// An interval in real time, in milliseconds.
    Every { ms: u64 },
}

/// Handling of ticks that were missed because no server was running.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// None of the ticks runs.
    Skip,
    /// The latest tick runs, if it is not older than the window.
    Last {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within_ms: Option<u64>,
    },
    /// The latest ticks run, oldest first.
    All {
        /// Most ticks that run.
        max: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within_ms: Option<u64>,
    },
}

/// Handling of a tick that is due before an earlier run of its schedule has ended. A run that waits for
/// a person, a time or an event has not ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Both run.
    Allow,
    /// The tick does not run.
    #[default]
    Skip,
    /// The tick runs when the earlier run has ended; at most `max` ticks wait, and further ones do not
    /// run.
    Queue { max: u64 },
    /// The earlier run is cancelled.
    CancelPrevious,
}

/// One entry of `webhook:`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Webhook {
    pub span: Span,
    /// Segments joined by `/`, without a leading `/`.
    pub path: String,
    pub verify: Verify,
    /// Names of one secret, or of two that are both valid during a rotation.
    pub secrets: Vec<String>,
    /// Arguments, each with its position in the body.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, Source>,
}

/// Authentication of the sender of a delivery.
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
    /// HMAC-SHA256 of the body, in hexadecimal, in a header.
    Hmac {
        /// Name of the header in lower case.
        header: String,
    },
    /// The secret itself in a header; `authorization` has it after `Bearer `.
    Token {
        /// Name of the header in lower case.
        header: String,
    },
}

/// Source of an argument's value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A value in the file.
    Value(Value),
    /// Keys and list positions, from the outermost level of the trigger's data inwards.
    Path(Vec<String>),
}

impl Source {
    /// The value, if the trigger's data has it.
    #[must_use]
    pub fn find_value<'v>(&'v self, brought: &'v Value) -> Option<&'v Value> {
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

/// Arguments from the data of a trigger. Missing values are left out, so that declared defaults apply;
/// [`crate::workflow::bind_args`] checks the others against the declarations.
#[must_use]
pub fn find_args(args: &BTreeMap<String, Source>, brought: &Value) -> Map<String, Value> {
    args.iter()
        .filter_map(|(name, source)| Some((name.clone(), source.find_value(brought)?.clone())))
        .collect()
}

/// One entry of `after:`. Its data is the envelope of the run that ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct After {
    pub span: Span,
    /// The other file, relative to the directory of this one.
    pub workflow: String,
    #[serde(default)]
    pub ended: Ended,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, Source>,
}

/// Outcome of the other workflow's run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    #[default]
    Ok,
    Failed,
    Any,
}

/// `watch:`. Its data is `{"paths": [...]}`, the files that differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    pub span: Span,
    /// Glob patterns, relative to the directory of the file.
    pub paths: Vec<String>,
    /// The run starts when nothing has changed for this time.
    pub settle_ms: u64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub args: BTreeMap<String, Source>,
}
