//! Events of a run, as they are in its journal.
//!
//! Their JSON is kept for ever, so it only grows: new kinds and new optional fields are fine, changed meanings are
//! not. A kind that this version does not know is read as [`Event::Unknown`].

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::blob::Blob;
use super::error::StoreError;
use lobster_base::digest::Digest;
use lobster_base::json::{self, JsonError};

/// In the detail of [`Event::RunEnded`]: the effects that were cut off, none if the run stopped between two. Only a
/// run that can be resumed has it.
pub const CUT_OFF: &str = "cut_off";

/// True for the end of a run that was interrupted: it can be resumed. `end`: the detail of [`Event::RunEnded`].
#[must_use]
pub fn is_interrupted_end(end: &Value) -> bool {
    end[CUT_OFF].is_array()
}

/// True if a signal or a lost client stopped the run between two effects: the service that started it resumes it
/// without asking. A run that reached a limit of the service waits for a person. `end`: the detail of
/// [`Event::RunEnded`].
#[must_use]
pub fn is_resumed_by_service(end: &Value) -> bool {
    end[CUT_OFF].as_array().is_some_and(Vec::is_empty) && end["limit"] != true
}

/// The name of a run: a UUIDv7, so that names sort roughly by age.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RunId(pub(super) Uuid);

impl RunId {
    /// Environment variable that holds the id in every process that a run starts.
    pub const VARIABLE: &str = "LOBSTER_RUN_ID";

    /// A new, unique name.
    ///
    /// # Errors
    /// [`StoreError::ClockBeforeEpoch`]: a UUIDv7 (RFC 9562) begins with the
    /// milliseconds since 1970.
    pub(super) fn new() -> Result<Self, StoreError> {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(_) => Ok(Self(Uuid::now_v7())),
            Err(_) => Err(StoreError::ClockBeforeEpoch),
        }
    }

    /// The end of the name, which tells apart runs of the same minute. [`super::Store::find_run`] accepts it.
    #[must_use]
    pub fn short_id(&self) -> String {
        self.0.simple().to_string()[24..].to_owned()
    }

    /// The 16 bytes of the UUID.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run:{self}")
    }
}

impl FromStr for RunId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// Declares a closed set of words, each with one spelling in JSON, SQL and output.
#[doc(hidden)]
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, ::serde::Serialize, ::serde::Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// The spelling of the word.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }

            /// All words of the set.
            pub const ALL: [Self; [$($word,)*].len()] = [$(Self::$variant,)*];
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::UnknownWord;

            fn from_str(text: &str) -> Result<Self, $crate::UnknownWord> {
                Self::ALL.into_iter().find(|word| word.as_str() == text)
                    .ok_or_else(|| $crate::UnknownWord::new(text))
            }
        }
    };
}
pub(super) use words;

/// A word outside its set.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not one of the known words")]
pub struct UnknownWord(pub(super) String);

impl UnknownWord {
    /// For sets of words declared elsewhere.
    pub fn new(word: &str) -> Self {
        Self(word.to_owned())
    }
}

words! {
    /// State of a run.
    RunStatus {
        /// It is being executed, or its process died.
        Running = "running",
        /// It waits for a person.
        Waiting = "waiting",
        /// It completed.
        Ok = "ok",
        /// A step failed.
        Failed = "failed",
        /// It was cancelled or stopped.
        Cancelled = "cancelled",
    }
}

impl RunStatus {
    /// True if nothing more happens without a request.
    #[must_use]
    pub fn is_over(self) -> bool {
        matches!(self, Self::Ok | Self::Failed | Self::Cancelled)
    }
}

words! {
    /// Result of one attempt of a step.
    StepStatus {
        Ok = "ok",
        Failed = "failed",
        /// Its condition was false.
        Skipped = "skipped",
        /// It had started, and its end is unknown.
        Interrupted = "interrupted",
        Cancelled = "cancelled",
        TimedOut = "timed_out",
        /// The policy or a person rejected it.
        Refused = "refused",
        /// It waits at a gate.
        Waiting = "waiting",
    }
}

/// Outcome of one attempt of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepOutcome {
    pub status: StepStatus,
    /// The error message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// A stable error code, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Exit code of a native process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Blob>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Blob>,
    /// The output items, one JSON value per line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Blob>,
    /// A small result stored inline: the answer of an effect.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
    /// Fuel used by a component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// In bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
    pub duration_us: u64,
    /// Requested, enforced and unenforceable permissions.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub enforcement: Value,
    /// It came from the action cache.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cached: bool,
    /// Other data of the engine.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

impl StepOutcome {
    /// An outcome with only a status.
    #[must_use]
    pub fn new(status: StepStatus) -> Self {
        Self {
            status,
            error: None,
            code: None,
            exit: None,
            stdout: None,
            stderr: None,
            output: None,
            value: Value::Null,
            fuel: None,
            peak_memory: None,
            duration_us: 0,
            enforcement: Value::Null,
            cached: false,
            detail: Value::Null,
        }
    }

    /// True if a person edited the result in a fork, so no execution produced it.
    #[must_use]
    pub fn is_edited(&self) -> bool {
        self.detail.get("edited") == Some(&Value::Bool(true))
    }
}

/// Start of an attempt of a pure step, or of an effect that was answered and not performed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begun {
    /// The kind of step: `component`, `stage` …
    pub kind: String,
    /// Digest of the action's pre-image, which is a blob.
    pub action: Digest,
    /// An effect whose outcome was taken from the cache for an equal action.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub effect: bool,
    /// The policy's decision.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub decision: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

/// Something that happened in a run. Steps are named by paths: `fetch|2`, `loop[3]/sub`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Event {
    /// The first event; [`super::Store::create_run`] writes it.
    RunStarted {
        name: String,
        kind: String,
        /// Blob of the Plan that is executed.
        plan: Digest,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        args: Option<Digest>,
        mode: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        actor: Option<String>,
        cwd: String,
        /// The run that this one was forked from or is part of.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<RunId>,
        #[serde(default, skip_serializing_if = "Value::is_null")]
        detail: Value,
    },
    /// A process continued the run after a gate, a failure or a crash.
    RunResumed {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        #[serde(default, skip_serializing_if = "Value::is_null")]
        detail: Value,
    },
    /// The run cannot continue until a person answers.
    RunPaused {
        #[serde(default, skip_serializing_if = "Value::is_null")]
        detail: Value,
    },
    /// The run is over, unless a retry is requested.
    RunEnded {
        status: RunStatus,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<Blob>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
        #[serde(default, skip_serializing_if = "Value::is_null")]
        detail: Value,
    },
    /// An attempt is about to start. For an effect, this event is durable before the effect begins.
    StepStarted {
        path: String,
        /// Starts at 1.
        attempt: u32,
        /// The kind of step: `shell`, `component`, `http` …
        kind: String,
        /// Digest of the action's pre-image, which is a blob.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        action: Option<Digest>,
        /// It affects the outside world, so it is never repeated without asking.
        effect: bool,
        /// Its author declares that repeating it does no harm.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        idempotent: bool,
        /// The policy's decision.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        decision: Value,
        #[serde(default, skip_serializing_if = "Value::is_null")]
        detail: Value,
    },
    /// An attempt has ended.
    StepEnded {
        path: String,
        attempt: u32,
        /// Start of a pure step, or of an effect answered from the action cache: these have no separate start event,
        /// since losing it costs nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        begun: Option<Arc<Begun>>,
        outcome: Arc<StepOutcome>,
    },
    /// [`super::Store::open_gate`] writes it.
    GateOpened {
        path: String,
        /// The short id of the gate; the token stays secret.
        gate: String,
        kind: String,
        /// Digest to which the answer will be bound.
        binding: Digest,
        /// Blob of the question's JSON.
        question: Digest,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expires_at: Option<i64>,
    },
    /// A person answered, in this run or in the run that this one was forked from; [`super::Store::answer_gate`]
    /// writes it.
    GateAnswered {
        path: String,
        gate: String,
        binding: Digest,
        answer: super::gate::GateAnswer,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// Evidence of the author: a shell with its terminal and parents, a session, a token.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        author: Value,
        /// The run that was answered, if a fork takes over the answer. The answer then approves none of the fork's own
        /// effects.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<RunId>,
    },
    /// A gate was closed without an answer (cancelled, expired), or opened again.
    GateClosed {
        path: String,
        gate: String,
        status: super::gate::GateStatus,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        /// As for an answer.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        author: Value,
    },
    /// A decision of the policy, with its reason.
    Decision { path: String, decision: Value },
    /// A person requested that a failed or interrupted step be tried again (or be taken as done).
    RetryRequested {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
        #[serde(default, skip_serializing_if = "Value::is_null")]
        detail: Value,
    },
    /// Other information.
    Note {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<String>,
        text: String,
        #[serde(default, skip_serializing_if = "Value::is_null")]
        detail: Value,
    },
    /// An event written by a later lobster.
    #[serde(untagged)]
    Unknown(Value),
}

impl Event {
    /// Parses the JSON of an event. Most events are starts and ends of steps: for them the type is determined before
    /// the fields are read, so the fields need not be buffered.
    pub(super) fn from_json(text: &str) -> Result<Self, JsonError> {
        #[derive(Deserialize)]
        struct StepStarted {
            path: String,
            attempt: u32,
            kind: String,
            #[serde(default)]
            action: Option<Digest>,
            effect: bool,
            #[serde(default)]
            idempotent: bool,
            #[serde(default)]
            decision: Value,
            #[serde(default)]
            detail: Value,
        }
        #[derive(Deserialize)]
        struct StepEnded {
            path: String,
            attempt: u32,
            #[serde(default)]
            begun: Option<Arc<Begun>>,
            outcome: Arc<StepOutcome>,
        }
        if text.starts_with(r#"{"type":"step_ended","#) {
            let StepEnded { path, attempt, begun, outcome } = json::parse_as(text)?;
            return Ok(Self::StepEnded { path, attempt, begun, outcome });
        }
        if text.starts_with(r#"{"type":"step_started","#)
            && let Ok(started) = json::parse_as(text)
        {
            let StepStarted { path, attempt, kind, action, effect, idempotent, decision, detail } = started;
            return Ok(Self::StepStarted {
                path,
                attempt,
                kind,
                action,
                effect,
                idempotent,
                decision,
                detail,
            });
        }
        json::parse_as(text)
    }

    /// The step that the event belongs to.
    #[must_use]
    pub fn step_path(&self) -> Option<&str> {
        match self {
            Self::StepStarted { path, .. }
            | Self::StepEnded { path, .. }
            | Self::GateOpened { path, .. }
            | Self::GateAnswered { path, .. }
            | Self::GateClosed { path, .. }
            | Self::Decision { path, .. } => Some(path),
            Self::RetryRequested { path, .. } | Self::Note { path, .. } => path.as_deref(),
            Self::RunStarted { .. }
            | Self::RunResumed { .. }
            | Self::RunPaused { .. }
            | Self::RunEnded { .. } => None,
            Self::Unknown(value) => value.get("path").and_then(Value::as_str),
        }
    }

    /// The name of its kind, as in its JSON.
    #[must_use]
    pub fn kind(&self) -> &str {
        match self {
            Self::RunStarted { .. } => "run_started",
            Self::RunResumed { .. } => "run_resumed",
            Self::RunPaused { .. } => "run_paused",
            Self::RunEnded { .. } => "run_ended",
            Self::StepStarted { .. } => "step_started",
            Self::StepEnded { .. } => "step_ended",
            Self::GateOpened { .. } => "gate_opened",
            Self::GateAnswered { .. } => "gate_answered",
            Self::GateClosed { .. } => "gate_closed",
            Self::Decision { .. } => "decision",
            Self::RetryRequested { .. } => "retry_requested",
            Self::Note { .. } => "note",
            Self::Unknown(value) => value.get("type").and_then(Value::as_str).unwrap_or("unknown"),
        }
    }

    /// For an event by which a person ended the run: `rejected` or `cancelled`.
    #[must_use]
    pub fn called_off(&self) -> Option<&str> {
        let Self::RunEnded { detail, .. } = self else { return None };
        detail.get("answer")?.as_str()
    }

    /// True if the event continues or ends the run, false if it reports on something begun earlier.
    pub(super) fn goes_on(&self) -> bool {
        match self {
            Self::RunStarted { .. }
            | Self::RunResumed { .. }
            | Self::RunPaused { .. }
            | Self::RunEnded { .. }
            | Self::StepStarted { .. }
            | Self::GateOpened { .. }
            | Self::RetryRequested { .. } => true,
            Self::StepEnded { .. }
            | Self::GateAnswered { .. }
            | Self::GateClosed { .. }
            | Self::Decision { .. }
            | Self::Note { .. }
            | Self::Unknown(_) => false,
        }
    }

    /// The status of the run after this event, if the event changes it.
    #[must_use]
    pub fn run_status(&self) -> Option<RunStatus> {
        match self {
            Self::RunStarted { .. } | Self::RunResumed { .. } => Some(RunStatus::Running),
            Self::RunPaused { .. } => Some(RunStatus::Waiting),
            Self::RunEnded { status, .. } => Some(*status),
            Self::StepStarted { .. }
            | Self::StepEnded { .. }
            | Self::GateOpened { .. }
            | Self::GateAnswered { .. }
            | Self::GateClosed { .. }
            | Self::Decision { .. }
            | Self::RetryRequested { .. }
            | Self::Note { .. }
            | Self::Unknown(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_text_of_an_event_is_stable() {
        let digest = Digest::of_bytes(b"");
        let mut outcome = StepOutcome::new(StepStatus::Failed);
        outcome.error = Some("no".into());
        outcome.value = json!({"b": 1, "a": 18_446_744_073_709_551_615_u64});
        let event = Event::StepEnded {
            path: "loop[3]/sub".into(),
            attempt: 2,
            begun: None,
            outcome: Arc::new(outcome),
        };
        let text = json::compact(&event);
        assert_eq!(
            text,
            r#"{"type":"step_ended","path":"loop[3]/sub","attempt":2,"outcome":{"status":"failed","error":"no","value":{"b":1,"a":18446744073709551615},"duration_us":0}}"#
        );
        assert_eq!(json::parse_as::<Event>(&text).ok().as_ref(), Some(&event));
        assert_eq!(Event::from_json(&text).ok(), Some(event));
        let started = format!(
            r#"{{"type":"step_started","path":"a","attempt":1,"kind":"shell","action":"{digest}","effect":true}}"#
        );
        assert_eq!(json::parse_as::<Event>(&started).map(|e| json::compact(&e)).ok(), Some(started.clone()));
        let whole = format!(
            r#"{},"idempotent":true,"decision":{{"verdict":"allow"}},"detail":[1.5]}}"#,
            started.strip_suffix('}').unwrap()
        );
        let later = r#"{"type":"step_started","path":"a","count":1}"#;
        for text in [&started, &whole, later] {
            assert_eq!(Event::from_json(text).ok(), json::parse_as(text).ok(), "{text}");
            assert_eq!(Event::from_json(text).map(|e| json::compact(&e)).ok().as_deref(), Some(text));
        }
    }

    #[test]
    fn unknown_kinds_and_fields_survive() {
        let text = r#"{"type":"teleported","path":"x","to":[1,2]}"#;
        let event = json::parse_as::<Event>(text);
        assert!(matches!(&event, Ok(Event::Unknown(v)) if v["to"] == json!([1, 2])));
        assert_eq!(event.map(|e| json::compact(&e)).ok().as_deref(), Some(text));
        let more = r#"{"type":"note","text":"hi","colour":"red"}"#;
        assert!(matches!(json::parse_as::<Event>(more), Ok(Event::Note { .. })));
    }
}
