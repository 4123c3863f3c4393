//! What pipeline commands ("stages") and what runs them agree on.
//!
//! A stage is pushed its input item by item and pushes its output on, so items
//! flow and memory does not grow with them unless the stage itself must hold
//! them (`sort`). Whatever a stage does to the world goes through [`Host`]: an
//! effect runs through [`Host::effect`] or [`Host::native`], a question to a
//! person through [`Host::gate`]. The host journals them, and answers from the
//! journal when a run is resumed or replayed. So **a stage must be a function
//! of its arguments, its input and what the host answered**, and is simply run
//! again to get back to where it was.

#![deny(missing_docs)]

mod args;
mod byte_limit;
mod check;
mod error;
mod host_functions;
mod http;
mod registry;

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lobster_component::Ceilings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use args::{Flag, StageArgs, args_schema, option_schema, words_schema};
pub use byte_limit::{LimitError, MAX_OUTPUT, byte_limit, byte_setting};
pub use check::{Warning, check, takes_secret};
pub use check::{is_ours, refuse_unknown};
pub use error::{SharedError, StageError, Stop, explained, store_failure};
pub use host_functions::{BuildHostCommand, HOST_FUNCTIONS, HostFunctions};
pub use http::{HttpCredential, HttpError, HttpReply, HttpRequest, HttpSender};
pub use registry::{Registry, UnknownCommand};

pub use lobster_base::code::{Code, FailureCode};
pub use lobster_base::json::raw::RawItem;

use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;

/// Whether a consumer wants more items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// Go on.
    More,
    /// Nothing that comes now can change the result; producers may stop early.
    Enough,
}

/// Where a stage pushes its output.
pub trait Sink {
    /// Takes the next item.
    ///
    /// # Errors
    /// What a later stage failed with; the caller passes it on with `?`.
    fn item(&mut self, item: Value) -> Result<Flow, Stop>;

    /// Takes the next item as its text.
    ///
    /// # Errors
    /// As [`Sink::item`].
    fn raw(&mut self, item: RawItem<'_>) -> Result<Flow, Stop> {
        self.item(read_raw(item)?)
    }
}

/// The value of an item that came as its text.
pub fn read_raw(item: RawItem<'_>) -> Result<Value, StageError> {
    item.read().map_err(|error| StageError::new(format!("an item could not be read back: {error}")))
}

/// A running pipeline command.
pub trait Stage {
    /// Takes one input item. A stage that has returned [`Flow::Enough`] gets no more items.
    ///
    /// # Errors
    /// Why the stage, or one after it, cannot go on.
    fn item(&mut self, item: Value, host: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop>;

    /// Takes one input item as its text. For a stage that can decide by a part of it.
    ///
    /// # Errors
    /// As [`Stage::item`].
    fn raw(&mut self, item: RawItem<'_>, host: &mut dyn Host, out: &mut dyn Sink) -> Result<Flow, Stop> {
        self.item(read_raw(item)?, host, out)
    }

    /// The input has ended. Called exactly once, also after [`Flow::Enough`],
    /// but not after an error.
    ///
    /// # Errors
    /// As [`Stage::item`].
    fn end(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop>;
}

/// What a stage is, for the registry, `help`, `commands.list` and checks before a run.
pub struct StageSpec {
    /// The name that pipelines use: `where`, `state.get`.
    pub name: &'static str,
    /// One line; `help` prints `name — description`.
    pub description: &'static str,
    /// The rest of its help text: usage, notes, examples.
    pub help: &'static str,
    /// Its options. Anything else beginning with `--` is warned about.
    pub flags: &'static [Flag],
    /// JSON Schema of its arguments as `commands.list` shows it; `null` where it has none.
    pub args_schema: fn() -> Value,
    /// Examples as `commands.list` shows them (an array of `{args, description}`), or `null`.
    pub examples: fn() -> Value,
    /// Names of its side effects as `commands.list` shows them, or `None` where the list shows `null`.
    pub side_effects: Option<&'static [&'static str]>,
    /// What kind of work it is. (`template` is pure, yet with `--file` it reads
    /// the file through [`Host::effect`]: a call of the host counts, not the kind.)
    pub kind: StageKind,
    /// Checks the arguments and makes a stage ready for its first item. What
    /// can be known from the arguments alone is refused here, before any effect.
    pub build: fn(&StageArgs) -> Result<Box<dyn Stage + Send>, StageError>,
}

/// How the engine treats a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StageKind {
    /// A function of its input: never journaled, recomputed at will.
    Pure,
    /// Prints what passes ([`Host::render`]); otherwise pure.
    Renderer,
    /// Asks a person.
    Gate,
    /// Touches the world through [`Host::effect`] or [`Host::native`].
    Effect,
}

/// What the text that a renderer shows is to a program.
#[derive(Clone, Copy, Debug)]
pub enum Rendering {
    /// Text, whatever it looks like.
    Text,
    /// A JSON list: its elements.
    List,
}

/// What a stage may use of the world.
pub trait Host {
    /// The value of a variable in the step's environment.
    fn env(&self, name: &str) -> Option<String>;

    /// The value of a variable that holds a token or a key: of the secret that the step is granted as
    /// this variable, else of its environment. Where effects are only answered from a record it may
    /// be blank; [`EffectHost::token`] never is.
    ///
    /// # Errors
    /// When the secret has no value.
    fn token(&self, variable: &str) -> Result<Option<Token>, StageError> {
        Ok(self.env(variable).map(Token::of_environment))
    }
    /// The credential that the step is granted for a request to this place, as [`Host::token`] has those of
    /// variables.
    ///
    /// # Errors
    /// When its secret has no value.
    fn credential(&self, _to: Destination<'_>) -> Result<Option<Token>, StageError> {
        Ok(None)
    }
    /// The step's working directory, absolute.
    fn cwd(&self) -> &Path;
    /// Whether a program reads the result (`--mode tool`, an embedding) or a person.
    fn mode(&self) -> Mode;
    /// Set when the work should end; long loops look at it.
    fn cancel(&self) -> &CancelToken;
    /// All known commands.
    fn registry(&self) -> &Registry;

    /// Performs an effect once per run. `action` says completely and without
    /// secrets what will be done; it is journaled before `perform` runs and the
    /// answer after it. On resume and replay the recorded answer comes back and
    /// `perform` is not called. Calls are matched by their order within the stage.
    ///
    /// # Errors
    /// What `perform` failed with (also recorded), or why the run must stop.
    fn effect(
        &mut self,
        action: EffectAction,
        perform: &mut dyn FnMut(&EffectHost<'_>) -> Result<Value, StageError>,
    ) -> Result<Value, Stop>;

    /// Runs a native process once per run, under policy and sandbox; stdout and
    /// stderr go to the store as they come.
    ///
    /// # Errors
    /// A refused or failed start, a timeout, a cap that was hit. A program that
    /// does not exist has the code [`Code::ProgramNotFound`], so that a stage can say
    /// what to install. A non-zero exit is not an error here: see [`NativeOutcome::exit`].
    fn native(&mut self, command: NativeCommand) -> Result<NativeOutcome, Stop>;

    /// Asks a person and returns the answer once it is there.
    ///
    /// # Errors
    /// [`Stop::Paused`] when nobody can answer now; a refusal.
    fn gate(&mut self, question: Question) -> Result<Answer, Stop>;

    /// Text that a renderer shows. A person sees it at once; a program finds it in the step's record.
    ///
    /// # Errors
    /// When it cannot be written.
    fn render(&mut self, text: &str, rendering: Rendering) -> Result<(), Stop>;

    /// A line for the person on stderr.
    fn note(&mut self, line: &str);

    /// Runs `commit` once the whole pipeline has succeeded (`diff.last` keeps
    /// its snapshot only then). Recorded like an effect.
    fn on_success(&mut self, action: EffectAction, commit: Commit);

    /// Says that something will now be done that must not be done twice (a
    /// mail is sent): from here on the step's `retry` does not try it again,
    /// whatever a later stage fails with.
    fn no_retry(&mut self) {}

    /// Whether a call of a model may be refused for what it could cost, so
    /// that it must say the most it will use.
    fn has_budget(&self) -> bool {
        false
    }

    /// A place for items that a component will read, which may be more than memory holds.
    ///
    /// # Errors
    /// When this host runs no components.
    fn spool(&mut self) -> Result<Box<dyn Spool>, Stop> {
        Err(StageError::permanent("components cannot be run here").into())
    }

    /// Runs a component once per run and pushes its output on; a pure one also
    /// answers from the cache.
    ///
    /// # Errors
    /// Why it cannot be loaded, may not have what it needs, or failed; what a later stage failed with.
    fn component(&mut self, call: ComponentCall, out: &mut dyn Sink) -> Result<(), Stop> {
        let _ = (call, out);
        Err(StageError::permanent("components cannot be run here").into())
    }

    /// Calls a tool of another program once per run.
    ///
    /// # Errors
    /// Why it cannot be called, or what it failed with.
    fn mcp(&mut self, call: ToolCall) -> Result<Value, Stop> {
        let _ = call;
        Err(StageError::permanent("tools of other programs cannot be called here").into())
    }

    /// Runs another pipeline command over `items` and returns what it emits
    /// (`email.triage --llm` uses `llm.invoke`).
    ///
    /// # Errors
    /// As the command itself.
    fn call(&mut self, name: &str, args: StageArgs, items: Vec<Value>) -> Result<Vec<Value>, Stop>;
}

/// An effect that is put off, see [`Host::on_success`].
pub type Commit = Box<dyn FnOnce(&EffectHost<'_>) -> Result<Value, StageError> + Send>;

/// What an effect may use while it runs.
pub struct EffectHost<'a> {
    /// Set when the work should end.
    pub cancel: &'a CancelToken,
    /// Where `state.get`, `state.set` and `diff.last` keep their values.
    pub state_dir: &'a Path,
    /// The step's environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The variables that the plan itself sets for the step.
    pub plan_env: &'a BTreeMap<String, String>,
    /// The value of a variable that holds a token or a key, as [`Host::token`] has it.
    pub token: &'a dyn Fn(&str) -> Result<Option<Token>, StageError>,
    /// Makes a request over HTTP.
    pub send: &'a HttpSender<'a>,
    /// The credential for a request to a place, as [`Host::credential`] has it.
    pub credential: &'a dyn Fn(Destination<'_>) -> Result<Option<Token>, StageError>,
    /// The step's working directory.
    pub cwd: &'a Path,
    /// Opens a file of the host for reading, as far as the policy lets a step read it.
    pub open: &'a dyn Fn(&Path) -> std::io::Result<std::fs::File>,
    /// Whether a policy is in force: then nothing counts that a step could have written.
    pub is_under_policy: bool,
    /// Puts aside what a call of a model may cost; refuses a call that might pass the run's limit.
    /// What is put aside counts as spent unless the effect's answer says otherwise.
    pub reserve: &'a dyn Fn(&WorstCase) -> Result<(), StageError>,
    /// Gives back what was put aside last: that call was certainly not computed.
    pub give_back: &'a dyn Fn(),
}

/// Where a request goes that is sent by POST over https.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'d> {
    /// A name or an address.
    pub host: &'d str,
    /// Usually that of https.
    pub port: u16,
    /// With its slash.
    pub path: &'d str,
}

/// A token or a key, and where it comes from. Only who sends it looks at the value.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The value.
    pub value: String,
    /// The secret that it is; none if it is a variable of the environment.
    pub secret: Option<String>,
}

impl Token {
    /// A variable of the environment.
    #[must_use]
    pub fn of_environment(value: String) -> Self {
        Self { value, secret: None }
    }
}

/// Without the value.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("secret", &self.secret).finish_non_exhaustive()
    }
}

/// All that decides an effect that is neither a process nor a component.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectAction {
    /// The kind: `http`, `state.get`, `llm`.
    pub kind: String,
    /// What will be done, without secrets: method, address, body, key.
    pub detail: Value,
    /// Doing it twice is the same as doing it once, so an interrupted one may be repeated unasked.
    pub idempotent: bool,
}

/// A process to run.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeCommand {
    /// Shell text, or a program with its arguments.
    pub program: Program,
    /// Bytes for its stdin; `None` is an empty stdin.
    pub stdin: Option<Payload>,
    /// Variables on top of the step's environment.
    pub env: Vec<(String, String)>,
    /// Most bytes kept of stdout; more is an error that says so. `None`: the runtime's default.
    pub max_output: Option<u64>,
    /// Its stdout should be JSON, so find out while it comes whether it is.
    pub json: bool,
    /// It hands a message or an order to somebody else, which stopping it does not take back.
    pub dispatches: bool,
}

/// Items on their way into a component. The host that made it takes it back as what it is.
pub trait Spool: Send {
    /// Takes the next item.
    ///
    /// # Errors
    /// When there are too many for memory and the store cannot take them.
    fn push(&mut self, item: Value) -> std::io::Result<()>;

    /// The host's own type.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// Where a tool is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpServer {
    /// A server of the operator's `lobster.mcp.toml`.
    Named(String),
    /// A program that speaks on its standard streams.
    Command(Vec<String>),
    /// Streamable HTTP.
    Url(String),
}

impl fmt::Display for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Command(argv) => f.write_str(&argv.join(" ")),
            // The query may hold a key.
            Self::Url(url) => f.write_str(url.split(['?', '#']).next().unwrap_or(url)),
        }
    }
}

/// A tool of another program and what it is called with.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Where the tool is.
    pub server: McpServer,
    /// Its name.
    pub tool: String,
    /// Its arguments.
    pub args: Map<String, Value>,
    /// An interrupted call may be repeated without asking.
    pub idempotent: bool,
}

/// The most that a call of a model can use. What it costs is known only
/// afterwards; whether it may be made, before.
#[derive(Clone, Debug, PartialEq)]
pub struct WorstCase {
    /// The model whose rate holds.
    pub model: Option<String>,
    /// Tokens that are read.
    pub input_tokens: u64,
    /// Tokens that are written; none where whoever is asked chooses how many.
    pub output_tokens: Option<u64>,
}

/// A component to run.
pub struct ComponentCall {
    /// What runs.
    pub program: ComponentProgram,
    /// Checked against the component's own schema.
    pub args: Map<String, Value>,
    /// What it may touch.
    pub grants: ComponentGrants,
    /// The items it reads; `None` is no input at all.
    pub input: Option<Box<dyn Spool>>,
    /// The items are texts, and are read as bytes: as lines.
    pub text: bool,
    /// What the stage sets of its limits.
    pub limits: Ceilings,
}

/// Which component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComponentProgram {
    /// A file relative to the working directory, or `blake3:` and a digest.
    Named(String),
    /// The evaluator of JavaScript.
    Js,
}

/// What a component may touch. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComponentGrants {
    /// Directories to read.
    pub read: Vec<ComponentDir>,
    /// Directories to read and write.
    pub write: Vec<ComponentDir>,
    /// Names of variables.
    pub env: Vec<String>,
    /// `host:port`.
    pub net: Vec<String>,
    /// The real clock.
    pub clock: bool,
    /// Real randomness.
    pub random: bool,
}

/// A directory, relative to the working directory, and where a component sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentDir {
    /// Here.
    pub host: PathBuf,
    /// There.
    pub guest: String,
}

/// How a hint begins at what a command lacked in its sandbox, in messages and records.
pub const SANDBOX_BLOCKED: &str = Code::SandboxBlocked.as_str();

/// The variable as which a step grants the bearer token of an MCP server that it names by its address.
pub const MCP_TOKEN: &str = "MCP_TOKEN";

/// A shorter value is hidden nowhere: it could be an ordinary word.
pub const SHORTEST_HIDDEN: usize = 12;

/// How a process is named.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// Text for the shell (`LOBSTER_SHELL`, else `/bin/sh`).
    Shell(String),
    /// A program, looked up on `PATH`, with its arguments; no shell.
    Argv(Vec<String>),
}

/// Bytes on their way into or out of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// Held in memory.
    Bytes(Arc<[u8]>),
    /// In the store, or spooled to a file that nobody changes any more.
    File(PathBuf),
}

impl Payload {
    /// A reader over the bytes from their beginning.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(&self) -> std::io::Result<Box<dyn std::io::Read + Send>> {
        Ok(match self {
            Self::Bytes(bytes) => Box::new(std::io::Cursor::new(Arc::clone(bytes))),
            Self::File(path) => Box::new(std::fs::File::open(path)?),
        })
    }
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeOutcome {
    /// The exit code, or `None` when a signal ended it.
    pub exit: Option<i32>,
    /// Everything it wrote to stdout.
    pub stdout: Payload,
    /// What it wrote to stderr (the beginning and the end of it, when there was much).
    pub stderr: Payload,
    /// Whether stdout is JSON as a [`lobster_base::json::scanner::Scanner`] takes it, if that is known already.
    pub plain_json: Option<bool>,
    /// What it seems to have missed in the sandbox, if it failed there.
    pub blocked: Vec<String>,
    /// Keys of lobster's own that are set and that it did not receive, if it failed.
    pub withheld: Vec<String>,
}

/// Who reads the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A person.
    Human,
    /// A program: stdout carries one envelope.
    Tool,
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Yes or no, over items that the person is shown.
    Approval {
        /// The question itself.
        prompt: String,
        /// What it is about.
        items: Vec<Value>,
        /// The same as text, for people.
        #[serde(skip_serializing_if = "Option::is_none")]
        preview: Option<String>,
        /// Never ask on the terminal, even where there is one (`--emit`).
        emit: bool,
    },
    /// A JSON value that fits a schema.
    Input {
        /// The question itself.
        prompt: String,
        /// The JSON Schema that the answer must fit.
        schema: Value,
        /// What is proposed as the answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        defaults: Option<Value>,
        /// What it is about.
        #[serde(skip_serializing_if = "Option::is_none")]
        subject: Option<Value>,
        /// What was waiting in front of the question. A person without a
        /// terminal sees it; a program does not.
        items: Vec<Value>,
        /// Never ask on the terminal (`--emit`).
        emit: bool,
    },
}

/// What a person answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The approval was given, by this person if known.
    Approved {
        /// Who gave it.
        by: Option<String>,
        /// The change set that it is about, if that is a part of the one that the question shows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<Digest>,
    },
    /// The input, which fits the question's schema.
    Response(Value),
}
