//! The Plan: what will be done, as plain data.
//!
//! A plan is serialisable, printable and complete: a run executes the plan that
//! it recorded and never reads its files again. Text that depends on arguments
//! or earlier results stays text here; the engine fills it in step by step
//! (`template`), because an argument's value may itself contain references.

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

/// What one run executes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(clippy::large_enum_variant, reason = "there is one plan a run, and it is passed by reference")]
pub enum Plan {
    /// A workflow file.
    Workflow(Workflow),
    /// A one-line pipeline.
    Pipeline(Pipeline),
}

/// Where something stands in its source: byte offsets, end exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

/// A workflow file, checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workflow {
    /// The file it was read from, absolute.
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
    /// Variables for every step, in file order; values are templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// Names of secrets that steps may ask for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Working directory of every step; `${arg}` is filled in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_limit: Option<CostLimit>,
    /// What calls of models may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// What starts the workflow under the service; a run does not look at it.
    #[serde(default, skip_serializing_if = "Triggers::is_empty")]
    pub triggers: Triggers,
    /// Who is told of its runs under the service, besides those who are told anyway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Told>,
    /// What becomes of the changes that its steps make to files, unless they say otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesMode>,
    /// The least of that, whatever it says and its steps say: who started it asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub least_changes: Option<ChangesMode>,
    /// Most steps at once, in a file whose steps say what they need.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u64>,
    pub steps: Vec<Step>,
    /// Sub-workflows whose path is fixed, by the path as written, read along with this file.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub children: BTreeMap<String, Workflow>,
    /// The components whose paths are fixed, by the path as written: the run
    /// uses these bytes, whatever becomes of the files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub components: BTreeMap<String, Digest>,
}

impl Workflow {
    /// Every step of this file, at every depth, outer ones first, and what undoes them.
    pub fn all_steps(&self) -> Vec<&Step> {
        let mut pending: Vec<&Step> = self.steps.iter().rev().collect();
        let mut all = Vec::new();
        while let Some(step) = pending.pop() {
            pending.extend(step.work.inside().into_iter().rev());
            pending.extend(step.extras.undo.as_deref());
            all.push(step);
        }
        all
    }
}

/// Somebody who is told of a workflow: a name that the operator gives a meaning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub target: String,
    /// Of what; empty: of what the operator says for this name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
}

/// A declared argument.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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

/// Keeps `Some(null)` apart from `None` in JSON.
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

/// One step. Branches of `parallel`, sub-steps of loops and the steps of the cases of `switch` are steps too.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub id: String,
    pub span: Span,
    pub work: Work,
    /// Asked after the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    #[serde(default, skip_serializing_if = "Condition::is_always")]
    pub when: Condition,
    /// The steps that end before this one begins; none in a file whose steps run in the order of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Stdin::is_none")]
    pub stdin: Stdin,
    /// On top of the workflow's variables; values are templates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// Per attempt, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    #[serde(default)]
    pub on_error: OnError,
    #[serde(default, skip_serializing_if = "Extras::is_default")]
    pub extras: Extras,
}

impl Step {
    /// A step that says nothing but its work.
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

/// The fields that the incumbent does not know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extras {
    /// `cache: true|false`; none leaves it to the kind of step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<bool>,
    /// How long a cached effect may be reused, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_ttl_ms: Option<u64>,
    /// Glob patterns of files that belong to the action.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub inputs: Vec<String>,
    /// An interrupted attempt may be repeated without asking.
    #[serde(default)]
    pub idempotent: bool,
    /// How long its processes have between SIGTERM and SIGKILL, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_grace_ms: Option<u64>,
    /// Secrets that reach this step as variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<SecretGrant>,
    /// Secrets that are added to what the step sends to a host, and do not reach it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialGrant>,
    /// What calls of models in the step may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grants: Option<Grants>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// What becomes of the changes that it makes to files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changes: Option<ChangesMode>,
    /// A change set that the step commits, and that is all it does. No file says this: an undo does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<Digest>,
    /// What undoes the step's other effects; `lobster undo` proposes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Box<Step>>,
    /// The step of another run whose effects this one undoes. No file says this: an undo does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<UndoneStep>,
}

/// A step of a run, as an undo of it names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndoneStep {
    /// The id of the run.
    pub run: String,
    /// The place of the step in it.
    pub step: String,
}

/// What becomes of the changes that a step makes to files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangesMode {
    /// They are made as it goes, whether it succeeds or not.
    Direct,
    /// They are kept apart, and committed as a whole when it succeeds.
    Staged,
    /// They are kept apart, and committed as a whole when it succeeded and a person agreed to them.
    Review,
    /// They are kept apart and never committed. No file says this: `run --preview` does.
    Preview,
}

impl ChangesMode {
    /// Those that a workflow may say, by their names; each keeps more apart than the one before.
    pub const ALL: [(&'static str, Self); 3] =
        [("direct", Self::Direct), ("staged", Self::Staged), ("review", Self::Review)];

    /// The name in a workflow.
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
    /// Whether nothing is set.
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

/// A name alone is both.
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

/// What a step does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// Nothing but its gate; stdin becomes the result.
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
    /// A tool of another program, over the Model Context Protocol.
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
        /// Most rounds at once; none leaves it to what the steps do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        concurrency: Option<u64>,
        steps: Vec<Step>,
    },
    /// The same steps, until a condition holds.
    Repeat {
        /// Looked at after each round.
        until: Condition,
        /// The pause between two rounds, a duration; a template.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        every: Option<String>,
        /// Rounds in all, at least 1.
        max: u64,
        index_var: String,
        steps: Vec<Step>,
    },
    /// The steps of the one case that a value names.
    Switch {
        /// A template; exactly one reference is the value itself.
        on: String,
        cases: Vec<Case>,
        /// What is done for a value that no case names; without it, such a value is a failure.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default: Option<Vec<Step>>,
    },
    /// A question for structured input.
    Input(InputRequest),
    /// Nothing, later; stdin becomes the result, or what the event brings.
    Wait(WaitFor),
}

impl Work {
    /// The steps inside, one level down.
    #[must_use]
    pub fn inside(&self) -> Vec<&Step> {
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

/// A value of `switch`, and what is done for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Case {
    pub value: String,
    pub steps: Vec<Step>,
}

/// What a step waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitFor {
    /// A duration from when the run first comes here, such as `90s`; a template.
    Span(String),
    /// A time, RFC 3339 with an offset or a time zone; a template.
    Time(String),
    /// What somebody sends.
    Event {
        /// A template.
        name: String,
        /// A duration, after which the step fails; a template.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout: Option<String>,
    },
}

/// Which branches a parallel step waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    #[default]
    All,
    Any,
}

/// What a step reads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Nothing.
    #[default]
    None,
    /// A template; if it is exactly one reference, the value itself.
    Text(String),
    /// A value as it stands in the file.
    Literal(Value),
}

impl Stdin {
    /// Whether the step reads nothing.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// An approval gate.
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
    /// JSON Schema, known to compile.
    pub schema: Value,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "present")]
    pub defaults: Option<Value>,
}

/// When and how often a failed step is tried again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Retry {
    /// Attempts in all, at least 1.
    pub max: u64,
    pub exponential: bool,
    pub delay_ms: f64,
    pub max_delay_ms: f64,
    pub jitter: bool,
}

/// What a failure of the step does to the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// In plans of earlier versions `undo` also undid what the run had committed in files.
    #[default]
    #[serde(alias = "undo")]
    Stop,
    Continue,
    SkipRest,
}

impl OnError {
    /// Whether the run goes on after a failure.
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
    /// End the run when exceeded, instead of warning.
    pub stop: bool,
    /// `unpriced: allow`: with `stop`, models without a price are asked all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allows_unpriced: bool,
}

/// `budget`: the most that calls of models may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// In one run of the file, or in the step.
    #[serde(default, skip_serializing_if = "budget::Limits::is_empty")]
    pub limits: budget::Limits,
    /// In all runs of the file on one day, in UTC; only at the top of a file.
    #[serde(default, skip_serializing_if = "budget::Limits::is_empty")]
    pub day: budget::Limits,
    /// `unpriced: allow`: models without a price are asked though dollars are limited.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allows_unpriced: bool,
}

/// `grants`: what a step may touch. Nothing that is not listed.
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

/// A directory and where a component sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirGrant {
    /// Host directory, relative to the workflow file's; a template.
    pub from: String,
    /// Guest path; none means the path as written in `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// `limits`: ceilings a step asks for itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
    /// Bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Bytes of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
}
