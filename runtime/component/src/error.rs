//! Errors of loading a component and of running it.

use lobster_base::code::Code;
use lobster_base::quantity::{Bytes, Span};
use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::SetBy;

/// Reason why bytes are not a program that runs as a step. The compiler process reports it as JSON.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
pub enum LoadError {
    #[serde(skip)]
    #[error("cannot read {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The message does not show the first bytes: the user may not be allowed to read the file.
    #[error("not WebAssembly: it does not start with \\0asm")]
    NotWasm,
    #[error(
        "WebAssembly of an unknown binary version ({version:02x?}): neither a core module (1) nor a component (13)"
    )]
    UnknownEncoding { version: [u8; 4] },
    #[error(
        "a library, not a program: a core WebAssembly module without `_start`; it exports {exports} for a host that calls these{imports}; a step is a command (`_start`) or a component of lobster:step or wasi:cli"
    )]
    Library { exports: String, imports: String },
    #[error("malformed WebAssembly: {message}")]
    Malformed { message: String },
    #[error(
        "the component exports neither `describe` and `run` of lobster:step nor `wasi:cli/run`; it exports {found}"
    )]
    MissingExport { found: String },
    #[error(
        "the component exports `{present}` but not `{missing}`, which the world lobster:step/step needs beside it"
    )]
    HalfAStep { present: Cow<'static, str>, missing: Cow<'static, str> },
    #[error("the component speaks {found}; this host speaks {spoken}")]
    UnsupportedVersion { found: String, spoken: Cow<'static, str> },
    #[error("the component imports `{import}`, which this host does not offer")]
    UnknownImport { import: String },
    #[error("the component does not fit the interfaces it names: {message}")]
    Mismatch { message: String },
    #[error(
        "the code cache {path} must be a directory that you alone can write: {why}; fix or remove it",
        path = path.display()
    )]
    CacheUnsafe { path: PathBuf, why: String },
    #[error("cannot start the WebAssembly engine: {message}")]
    Engine { message: String },
    #[error(
        "the program uses {proposals}, which this host does not run (docs/components.md lists what it runs)"
    )]
    Unsupported { proposals: String },
    #[error("the program is too much to compile: it has {found} {what}, and {limit} is the most")]
    TooComplex { what: Cow<'static, str>, found: u64, limit: u64 },
    #[error(
        "compiling the program took longer than {}: `lobster step compile FILE --timeout TIME` compiles it ahead with more, LOBSTER_COMPILE_TIME sets the limit for all programs",
        Span(*.limit)
    )]
    Timeout { limit: Duration },
    #[error(
        "compiling the program takes more than {} of memory: `lobster step compile FILE --memory SIZE` compiles it ahead with more, LOBSTER_COMPILE_MEMORY sets the limit for all programs",
        Bytes(*.limit)
    )]
    CompilerMemory { limit: u64 },
    #[serde(skip)]
    #[error("cancelled: {reason}")]
    Cancelled { reason: String },
    #[error("cannot compile the program: {message}")]
    Compiler { message: String },
}

/// A step's report of its own failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct StepError {
    /// Stable code for programs, such as `bad-input`.
    pub code: String,
    /// One sentence for people.
    pub message: String,
    /// True if the same call may succeed later.
    pub retryable: bool,
}

/// Reason why a run gave no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("the step used up its fuel ({limit}); {}", FUEL.advice(*.set_by))]
    OutOfFuel { limit: u64, set_by: SetBy },
    #[error(
        "the step needs more memory than its limit: {asked} bytes asked, {limit} allowed; {}",
        MEMORY.advice(*.set_by)
    )]
    MemoryLimit { limit: u64, asked: u64, set_by: SetBy },
    #[error("the step's tables would grow to {asked} elements; {limit} are allowed to every program")]
    TableLimit { limit: u64, asked: u64 },
    #[error(
        "the component is made of more instances, memories or tables than {limit}, which every program is allowed"
    )]
    InstanceLimit { limit: usize },
    #[error("the step put out more than {limit} bytes; {}", OUTPUT.advice(*.set_by))]
    OutputLimit { limit: u64, set_by: SetBy },
    #[error(
        "the step wrote more than {limit} bytes (or 100000 names) into directories, blobs and values, which every program is allowed; the names themselves may take 64 MiB"
    )]
    FilesLimit { limit: u64 },
    #[error(
        "the step was given more than {limit} bytes of answers from outside (clock, random, net), the most that are recorded of one run"
    )]
    AnswersLimit { limit: u64 },
    #[error("the step holds more than {limit} handles (streams, blobs, files, requests); drop some")]
    HandleLimit { limit: usize },
    #[error(
        "the step passed {limit} bytes or more to the host in one call: a component can pass them in several calls; all that a js step returns is one call, so it must return less"
    )]
    HostCallTooLarge { limit: usize },
    #[error("the step ran longer than {limit:?}; {}", WALL.advice(*.set_by))]
    Timeout { limit: Duration, set_by: SetBy },
    #[error("the step waited longer than {limit:?} in one host call")]
    HostCallTimeout { limit: Duration },
    #[error("cancelled: {reason}")]
    Cancelled { reason: String },
    #[error("the step trapped: {message}{}", tail(.stderr))]
    Trap { message: String, stderr: String },
    /// Depends on the machine, so it is never cached or compared.
    #[error("the step's call stack is exhausted (endless recursion?)")]
    StackExhausted,
    /// Depends on the machine, so it is never cached or compared.
    #[error("the host has no memory left for the step: {message}")]
    HostMemory { message: String },
    #[error("the component imports `{import}` and the step has no grant for it; add {hint}")]
    NotGranted { import: String, hint: String },
    #[error("the component imports `{import}`, and what comes over it cannot be recorded for a replay")]
    NotRecordable { import: String },
    #[error("the grant {grant} cannot be given: {message}")]
    BadGrant { grant: String, message: String },
    #[error("{0}")]
    Step(StepError),
    #[error("the arguments do not fit the step: {path}: {message}")]
    BadArgs { path: String, message: String },
    /// Items are counted from 1.
    #[error("input item {item} does not fit the step: {path}: {message}")]
    BadInput { item: u64, path: String, message: String },
    /// Items are counted from 1.
    #[error("the step broke its own output schema with item {item}: {path}: {message}")]
    BadOutput { item: u64, path: String, message: String },
    #[error("{refusal} (the step trapped after this refusal: {trap})")]
    RefusedOutput { refusal: String, trap: String },
    #[error("the step's description is not usable: {message}")]
    BadDescription { message: String },
    #[error("cannot read the step's input: {message}")]
    InputFailed { message: String },
    #[error("cannot keep the step's output: {message}")]
    OutputFailed { message: String },
    #[error("cannot keep what the step wrote: {message}")]
    StageFailed { message: String },
    #[error("the run departed from its record at host call {call}: {message}")]
    Diverged { call: u64, message: String },
    #[error("the component could not be instantiated: {message}")]
    Instantiate { message: String },
}

/// Places where people set a limit.
struct Knob {
    step: &'static str,
    option: &'static str,
    policy: &'static str,
}

const FUEL: Knob =
    Knob { step: "limits.fuel", option: "--fuel", policy: "`fuel` in its [components.limits]" };
const MEMORY: Knob = Knob {
    step: "limits.memory",
    option: "--memory",
    policy: "`memory` in its [limits] or [components.limits]",
};
const OUTPUT: Knob =
    Knob { step: "limits.output", option: "--output", policy: "`output` in its [components.limits]" };
const WALL: Knob = Knob {
    step: "timeout_ms",
    option: "--timeout",
    policy: "`timeout` in its [limits] or [components.limits]",
};

impl Knob {
    /// Advice about a limit that was reached.
    fn advice(&self, set_by: SetBy) -> String {
        let Self { step, option, policy } = self;
        match set_by {
            SetBy::Default => format!(
                "this is the default: give the step {step} (`step run`: {option}) if it should have more"
            ),
            SetBy::Step => {
                format!("the step sets this: raise its {step} (`step run`: {option}) if it should have more")
            }
            SetBy::Policy => format!("the policy sets this limit; its owner can raise {policy}"),
            SetBy::Description => {
                "the component's description sets this, and the lowest limit applies: only its author can raise it"
                    .to_owned()
            }
            SetBy::Host => "this limit is the same for every program".to_owned(),
        }
    }
}

fn tail(stderr: &str) -> String {
    let text = stderr.trim_end();
    if text.is_empty() { String::new() } else { format!("\nits last output on stderr:\n{text}") }
}

impl RunError {
    /// Stable name for programs and tests.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.code().as_str()
    }

    /// Code of this failure in the list that all failures share.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::OutOfFuel { .. } => Code::OutOfFuel,
            Self::MemoryLimit { .. } => Code::MemoryLimit,
            Self::TableLimit { .. } => Code::TableLimit,
            Self::InstanceLimit { .. } => Code::InstanceLimit,
            Self::OutputLimit { .. } => Code::OutputLimit,
            Self::FilesLimit { .. } | Self::AnswersLimit { .. } => Code::FilesLimit,
            Self::HandleLimit { .. } => Code::HandleLimit,
            Self::HostCallTooLarge { .. } => Code::HostCallTooLarge,
            Self::Timeout { .. } => Code::Timeout,
            Self::HostCallTimeout { .. } => Code::HostCallTimeout,
            Self::Cancelled { .. } => Code::Cancelled,
            Self::Trap { .. } => Code::Trap,
            Self::StackExhausted => Code::StackExhausted,
            Self::HostMemory { .. } => Code::HostMemory,
            Self::NotGranted { .. } => Code::NotGranted,
            Self::NotRecordable { .. } => Code::NotRecordable,
            Self::BadGrant { .. } => Code::BadGrant,
            Self::Step(_) => Code::StepError,
            Self::BadArgs { .. } => Code::BadArgs,
            Self::BadInput { .. } => Code::BadInput,
            Self::BadOutput { .. } | Self::RefusedOutput { .. } => Code::BadOutput,
            Self::BadDescription { .. } => Code::BadDescription,
            Self::InputFailed { .. } => Code::InputFailed,
            Self::OutputFailed { .. } => Code::OutputFailed,
            Self::StageFailed { .. } => Code::StageFailed,
            Self::Diverged { .. } => Code::Diverged,
            Self::Instantiate { .. } => Code::Instantiate,
        }
    }

    /// True if the same pure action would fail in the same way anywhere. Failures that depend on time,
    /// on a person or on the machine must not be cached.
    #[must_use]
    pub fn is_deterministic(&self) -> bool {
        match self {
            Self::OutOfFuel { .. }
            | Self::MemoryLimit { .. }
            | Self::TableLimit { .. }
            | Self::InstanceLimit { .. }
            | Self::OutputLimit { .. }
            | Self::FilesLimit { .. }
            | Self::AnswersLimit { .. }
            | Self::HandleLimit { .. }
            | Self::HostCallTooLarge { .. }
            | Self::Trap { .. }
            | Self::NotGranted { .. }
            | Self::NotRecordable { .. }
            | Self::Step(_)
            | Self::BadArgs { .. }
            | Self::BadInput { .. }
            | Self::BadOutput { .. }
            | Self::RefusedOutput { .. }
            | Self::BadDescription { .. } => true,
            Self::Timeout { .. }
            | Self::HostCallTimeout { .. }
            | Self::Cancelled { .. }
            | Self::StackExhausted
            | Self::HostMemory { .. }
            | Self::BadGrant { .. }
            | Self::InputFailed { .. }
            | Self::OutputFailed { .. }
            | Self::StageFailed { .. }
            | Self::Diverged { .. }
            | Self::Instantiate { .. } => false,
        }
    }
}
