//! The plan of a run, as plain data.
//!
//! A plan is serialisable, printable and complete: a run executes the plan that it recorded and never
//! reads its files again. Text that depends on arguments or earlier results stays text here. The engine
//! fills it in step by step (`template`), because the value of an argument may itself contain
//! references.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use lobster_stage::McpServer;

use super::condition::Condition;
use super::pipeline::Pipeline;
use super::triggers::Triggers;
use lobster_base::budget;
use lobster_base::credential::CredentialGrant;
use lobster_base::digest::Digest;

/// Plan of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "there is one plan a run, and it is passed by reference")]
pub enum Plan {
    /// A workflow file.
    Workflow(Workflow),
    /// A one-line pipeline.
    Pipeline(Pipeline),
}

/// Position in a source: byte offsets, with the end exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

/// A validated workflow file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workflow {
    /// Absolute path of the file.
    pub file: PathBuf,
    /// Digest of the file's bytes.
    pub source: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Declared arguments in file order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<ArgSpec>,
    /// Variables for all steps, in file order; values are templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// Names of secrets that steps may ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Working directory of all steps; `${arg}` is filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_limit: Option<CostLimit>,
    /// Limits of model calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Triggers of the workflow in the service; a run ignores them.
    #[serde(default, skip_serializing_if = "Triggers::is_empty")]
    pub triggers: Triggers,
    /// Recipients of notifications about its runs in the service, beside the usual ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Told>,
    /// Handling of the file changes of its steps, unless a step sets its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesMode>,
    /// Minimum isolation of file changes, even if the workflow or its steps set less. The person who
    /// starts the run requests it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_changes: Option<ChangesMode>,
    /// Most steps that run at the same time, in a file whose steps have `needs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
    pub steps: Vec<Step>,
    /// Sub-workflows with fixed paths, by the path as written, loaded with this file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<String, Workflow>,
    /// Components with fixed paths, by the path as written: the run uses these bytes, even if the files
    /// change.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, Digest>,
}

impl Workflow {
    /// All steps of this file at any depth, outer ones first, including their undo steps.
    pub fn all_steps(&self) -> Vec<&Step> {
        let mut pending: Vec<&Step> = self.steps.iter().rev().collect();
        let mut all = Vec::new();
        while let Some(step) = pending.pop() {
            pending.extend(step.work.inner_steps().into_iter().rev());
            pending.extend(step.extras.undo.as_deref());
            all.push(step);
        }
        all
    }
}

/// A recipient of notifications: a name that the operator defines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub target: String,
    /// Occasions; if empty, the operator's setting for this name applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
}

/// A declared argument.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ArgSpec {
    pub name: String,
    /// Present, possibly null, if the declaration has the key `default`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "present")]
    pub default: Option<Value>,
    #[serde(default)]
    pub required: bool,
    /// `string`, `number`, `integer`, `boolean`, `array` or `object`.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "type")]
    pub kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choices: Option<Vec<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}

/// Distinguishes `Some(null)` from `None` in JSON.
mod present {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use serde_json::Value;

    pub(super) fn serialize<S: Serializer>(value: &Option<Value>, serializer: S) -> Result<S::Ok, S::Error> {
        value.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
        Value::deserialize(deserializer).map(Some)
    }
}

/// One step. Branches of `parallel`, sub-steps of loops and steps in the cases of `switch` are also
/// steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub id: String,
    pub span: Span,
    pub work: Work,
    /// Approval requested after the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    #[serde(default, skip_serializing_if = "Condition::is_always")]
    pub when: Condition,
    /// Steps that must end before this one begins; `None` in a file whose steps run in file order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Stdin::is_none")]
    pub stdin: Stdin,
    /// Added to the variables of the workflow; values are templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Time limit per attempt, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub on_error: OnError,
    #[serde(default, skip_serializing_if = "Extras::is_default")]
    pub extras: Extras,
}

impl Step {
    /// A step with no fields except its work.
    #[must_use]
    pub fn new(id: impl Into<String>, span: Span, work: Work) -> Self {
        Self {
            id: id.into(),
            span,
            work,
            approval: None,
            when: Condition::Always,
            needs: None,
            stdin: Stdin::None,
            env: Vec::new(),
            cwd: None,
            retry: None,
            timeout_ms: None,
            on_error: OnError::Stop,
            extras: Extras::default(),
        }
    }
}

/// Fields that the incumbent does not know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extras {
    /// `cache: true|false`; `None` leaves it to the kind of step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<bool>,
    /// Time for which a cached effect may be reused, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_ttl_ms: Option<u64>,
    /// Glob patterns of files that belong to the action.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// An interrupted attempt may be repeated without a question.
    #[serde(default)]
    pub idempotent: bool,
    /// Time between SIGTERM and SIGKILL for its processes, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_grace_ms: Option<u64>,
    /// Secrets that this step receives as variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretGrant>,
    /// Secrets that are added to the step's requests to a host and that the step does not receive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialGrant>,
    /// Limits of model calls in the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Grants>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<StepLimits>,
    /// Handling of its file changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesMode>,
    /// Set by an undo, never by a file: the change set that this step commits, which is its only
    /// effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Digest>,
    /// Step that undoes the other effects; `lobster undo` proposes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Box<Step>>,
    /// Set by an undo, never by a file: the step of another run whose effects this one undoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<UndoneStep>,
}

/// Identifies the step of a run in an undo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoneStep {
    /// Id of the run.
    pub run: String,
    /// Path of the step in the run.
    pub step: String,
}

/// Handling of the file changes of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangesMode {
    /// Made while the step runs, whether it succeeds or not.
    Direct,
    /// Kept apart, and committed as a whole when the step succeeds.
    Staged,
    /// Kept apart, and committed as a whole when the step has succeeded and a person has approved them.
    Review,
    /// Kept apart and never committed. Set by `run --preview`, never by a file.
    Preview,
}

impl ChangesMode {
    /// Modes that a workflow can set, by their names; each isolates changes more than the one before.
    pub const ALL: [(&'static str, Self); 3] =
        [("direct", Self::Direct), ("staged", Self::Staged), ("review", Self::Review)];

    /// Name of the mode in a workflow.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Staged => "staged",
            Self::Review => "review",
            Self::Preview => "preview",
        }
    }
}

impl Extras {
    /// True if nothing is set.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A secret and the variable that holds it for one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "SecretForm", into = "SecretForm")]
pub struct SecretGrant {
    pub secret: String,
    pub variable: String,
}

/// A name alone is both secret and variable.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum SecretForm {
    Same(String),
    Named { secret: String, variable: String },
}

impl From<SecretForm> for SecretGrant {
    fn from(form: SecretForm) -> Self {
        match form {
            SecretForm::Same(name) => Self { variable: name.clone(), secret: name },
            SecretForm::Named { secret, variable } => Self { secret, variable },
        }
    }
}

impl From<SecretGrant> for SecretForm {
    fn from(grant: SecretGrant) -> Self {
        match grant {
            SecretGrant { secret, variable } if secret == variable => Self::Same(secret),
            SecretGrant { secret, variable } => Self::Named { secret, variable },
        }
    }
}

/// Work of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Only an approval or input request; stdin becomes the result.
    Nothing,
    /// Text for the shell.
    Shell(String),
    /// A program and its arguments, without a shell; each is a template.
    Exec(Vec<String>),
    /// Pipeline text; a template.
    Pipeline(String),
    /// Another workflow file.
    Workflow {
        /// A template.
        path: String,
        args: Map<String, Value>,
    },
    /// A WebAssembly component.
    Component {
        /// Path (a template), or `blake3:<digest>`.
        component: String,
        /// Text anywhere inside is a template.
        args: Map<String, Value>,
    },
    /// A tool of an MCP server.
    Mcp {
        server: McpServer,
        tool: String,
        /// Text anywhere inside is a template.
        args: Map<String, Value>,
    },
    /// Inline JavaScript over `input`, `args` and `steps`.
    Js(String),
    Parallel {
        wait: Wait,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
        branches: Vec<Step>,
    },
    ForEach {
        /// A reference to an array.
        over: String,
        item_var: String,
        index_var: String,
        batch_size: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pause_ms: Option<u64>,
        /// Most rounds at the same time; `None` leaves it to the kind of the steps.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        concurrency: Option<u64>,
        steps: Vec<Step>,
    },
    /// The same steps repeatedly, until a condition is true.
    Repeat {
        /// Evaluated after each round.
        until: Condition,
        /// Pause between two rounds, a duration; a template.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        every: Option<String>,
        /// Highest number of rounds, at least 1.
        max: u64,
        index_var: String,
        steps: Vec<Step>,
    },
    /// The steps of one case, chosen by a value.
    Switch {
        /// A template. If it is exactly one reference, the value itself is used.
        on: String,
        cases: Vec<Case>,
        /// Steps for a value without a case. If absent, such a value is a failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default: Option<Vec<Step>>,
    },
    /// A request for structured input.
    Input(InputRequest),
    /// A wait; then stdin, or the data of the event, becomes the result.
    Wait(WaitFor),
}

impl Work {
    /// Steps inside, one level down.
    #[must_use]
    pub fn inner_steps(&self) -> Vec<&Step> {
        match self {
            Self::Parallel { branches: steps, .. }
            | Self::ForEach { steps, .. }
            | Self::Repeat { steps, .. } => steps.iter().collect(),
            Self::Switch { cases, default, .. } => {
                cases.iter().map(|case| &case.steps).chain(default).flatten().collect()
            }
            Self::Nothing
            | Self::Shell(_)
            | Self::Exec(_)
            | Self::Pipeline(_)
            | Self::Workflow { .. }
            | Self::Component { .. }
            | Self::Mcp { .. }
            | Self::Js(_)
            | Self::Input(_)
            | Self::Wait(_) => Vec::new(),
        }
    }
}

/// A value of `switch` and its steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    pub value: String,
    pub steps: Vec<Step>,
}

/// Condition that ends a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// A duration from the time when the run first reaches the step, such as `90s`; a template.
    Span(String),
    /// A time, RFC 3339 with an offset or a time zone; a template.
    Time(String),
    /// An event that is sent to the run.
    Event {
        /// A template.
        name: String,
        /// A duration after which the step fails; a template.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<String>,
    },
}

/// Branches for which a parallel step waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    #[default]
    All,
    Any,
}

/// Input of a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Nothing.
    #[default]
    None,
    /// A template. If it is exactly one reference, the value itself is used.
    Text(String),
    /// A literal value in the file.
    Literal(Value),
}

impl Stdin {
    /// True if the step has no input.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// An approval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<Vec<Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initiated_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_approver: Option<String>,
    #[serde(default)]
    pub require_different_approver: bool,
}

/// A request for structured input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InputRequest {
    pub prompt: String,
    /// JSON Schema that is known to compile.
    pub schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "present")]
    pub defaults: Option<Value>,
}

/// Retries of a failed step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// Total number of attempts, at least 1.
    pub max: u64,
    pub exponential: bool,
    pub delay_ms: f64,
    pub max_delay_ms: f64,
    pub jitter: bool,
}

/// Effect of the step's failure on the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// In plans of earlier versions, `undo` also undid the run's committed file changes.
    #[default]
    #[serde(alias = "undo")]
    Stop,
    Continue,
    SkipRest,
}

impl OnError {
    /// True if the run continues after a failure.
    #[must_use]
    pub fn passes_over(self) -> bool {
        match self {
            Self::Continue | Self::SkipRest => true,
            Self::Stop => false,
        }
    }
}

/// `cost_limit`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostLimit {
    pub max_usd: f64,
    /// If true, the run ends when the limit is exceeded; otherwise there is a warning.
    pub stop: bool,
    /// `unpriced: allow`: with `stop`, models without a price are still called.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allows_unpriced: bool,
}

/// `budget`: limits of model calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// In one run of the file, or in the step.
    #[serde(default, skip_serializing_if = "budget::UsageLimits::is_empty")]
    pub limits: budget::UsageLimits,
    /// In all runs of the file on one day in UTC; only at the top of a file.
    #[serde(default, skip_serializing_if = "budget::UsageLimits::is_empty")]
    pub day: budget::UsageLimits,
    /// `unpriced: allow`: models without a price are called although dollars are limited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allows_unpriced: bool,
}

/// `grants`: resources that a step may use. Everything else is denied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Grants {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<DirGrant>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<DirGrant>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// `host:port`, or `host` for the usual ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub net: Vec<String>,
    #[serde(default)]
    pub clock: bool,
    #[serde(default)]
    pub random: bool,
}

/// A directory and its path in the component.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirGrant {
    /// Host directory, relative to the directory of the workflow file; a template.
    pub from: String,
    /// Guest path; `None` is the path in `from` as written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// `limits`: limits that a step sets for itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepLimits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Bytes of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
}
