//! The interface between pipeline commands ("stages") and the code that runs them.
//!
//! A stage receives its input item by item and passes its output on, so memory does not grow with the number of items,
//! unless the stage itself must hold them (`sort`). All effects of a stage on the outside world go through [`Host`]:
//! [`Host::perform_effect`] or [`Host::run_native`] runs an effect, and [`Host::ask_person`] asks a person. The host journals them, and
//! answers from the journal when a run is resumed or replayed. **A stage must therefore be a function of its
//! arguments, its input and the host's answers**; running it again restores its state.

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
pub use check::{Warning, argument_warnings, takes_secret};
pub use check::{is_ours, refuse_unknown};
pub use error::{SharedError, StageError, Stop, command_failure, store_failure};
pub use host_functions::{BuildHostCommand, HOST_FUNCTIONS, HostFunctions};
pub use http::{HttpCredential, HttpError, HttpReply, HttpRequest, HttpSender};
pub use registry::{Registry, UnknownCommand};

pub use lobster_base::code::{Code, FailureCode};
pub use lobster_base::json::raw::RawItem;
pub use lobster_base::program::Program;

use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;

/// Tells a producer if more items are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flow {
    /// Continue.
    More,
    /// Later items cannot change the result, so producers may stop early.
    Enough,
}

/// Receiver of a stage's output.
pub trait Sink {
    /// Takes the next item.
    ///
    /// # Errors
    /// The failure of a later stage; the caller passes it on with `?`.
    fn emit_item(&mut self, item: Value) -> Result<Flow, Stop>;

    /// Takes the text of the next item.
    ///
    /// # Errors
    /// As [`Sink::emit_item`].
    fn emit_raw(&mut self, item: RawItem<'_>) -> Result<Flow, Stop> {
        self.emit_item(read_raw(item)?)
    }
}

/// Parses an item that was passed as text.
pub fn read_raw(item: RawItem<'_>) -> Result<Value, StageError> {
    item.parse_value().map_err(|error| StageError::new(format!("an item could not be read back: {error}")))
}

/// A running pipeline command.
pub trait Stage {
    /// Takes one input item; without an implementation it is ignored. A stage that has returned [`Flow::Enough`] gets
    /// no more items.
    ///
    /// # Errors
    /// The reason why the stage, or a later one, cannot continue.
    fn process_item(&mut self, _: Value, _: &mut dyn Host, _: &mut dyn Sink) -> Result<Flow, Stop> {
        Ok(Flow::More)
    }

    /// Takes the text of one input item, for a stage that needs only a part of it.
    ///
    /// # Errors
    /// As [`Stage::process_item`].
    fn process_raw(
        &mut self,
        item: RawItem<'_>,
        host: &mut dyn Host,
        out: &mut dyn Sink,
    ) -> Result<Flow, Stop> {
        self.process_item(read_raw(item)?, host, out)
    }

    /// Ends the input. Called exactly once, even after [`Flow::Enough`], but not after an error.
    ///
    /// # Errors
    /// As [`Stage::process_item`].
    fn end_input(&mut self, _: &mut dyn Host, _: &mut dyn Sink) -> Result<(), Stop> {
        Ok(())
    }
}

/// Description of a stage, for the registry, `help`, `commands.list` and checks before a run.
pub struct StageSpec {
    /// The name in pipelines: `where`, `state.get`.
    pub name: &'static str,
    /// One line; `help` prints `name — description`.
    pub description: &'static str,
    /// The rest of its help text: usage, notes, examples.
    pub help: &'static str,
    /// Its options. Other words that begin with `--` cause a warning.
    pub flags: &'static [Flag],
    /// JSON Schema of its arguments as shown by `commands.list`; `null` if it has none.
    pub args_schema: fn() -> Value,
    /// Examples as shown by `commands.list` (an array of `{args, description}`), or `null`.
    pub examples: fn() -> Value,
    /// Names of its side effects as shown by `commands.list`, or `None` if the list shows `null`.
    pub side_effects: Option<&'static [&'static str]>,
    /// Its kind of work. (`template` is pure, but with `--file` it reads the file through [`Host::perform_effect`]: the call
    /// decides, not the kind.)
    pub kind: StageKind,
    /// Checks the arguments and creates a stage that is ready for its first item. All errors that follow from the
    /// arguments alone are reported here, before any effect.
    pub build: fn(&StageArgs) -> Result<Box<dyn Stage + Send>, StageError>,
}

/// Treatment of a stage by the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StageKind {
    /// A function of its input: never journaled, recomputed when needed.
    Pure,
    /// Prints its input ([`Host::show_text`]) and passes it on; otherwise pure.
    Renderer,
    /// Asks a person.
    Gate,
    /// Affects the outside world through [`Host::perform_effect`] or [`Host::run_native`].
    Effect,
}

/// Form of a renderer's text for programs.
#[derive(Clone, Copy, Debug)]
pub enum Rendering {
    /// Text, even if it looks like JSON.
    Text,
    /// A JSON list: its elements.
    List,
}

/// Access of a stage to the outside world.
pub trait Host {
    /// The value of a variable in the step's environment.
    fn env_var(&self, name: &str) -> Option<String>;

    /// The value of a variable that contains a token or a key: the secret that the step is granted as this variable,
    /// otherwise the variable of its environment. It may be blank if effects are only answered from a record;
    /// [`EffectHost::token`] never is.
    ///
    /// # Errors
    /// If the secret has no value.
    fn find_token(&self, variable: &str) -> Result<Option<Token>, StageError> {
        Ok(self.env_var(variable).map(Token::of_environment))
    }
    /// The credential that the step is granted for a request to this destination, as in [`Host::find_token`].
    ///
    /// # Errors
    /// If its secret has no value.
    fn find_credential(&self, _to: Destination<'_>) -> Result<Option<Token>, StageError> {
        Ok(None)
    }
    /// The step's working directory, absolute.
    fn working_dir(&self) -> &Path;
    /// Tells if a program reads the result (`--mode tool`, an embedding) or a person.
    fn output_mode(&self) -> Mode;
    /// Cancelled when the work should end; long loops check it.
    fn cancel_token(&self) -> &CancelToken;
    /// All known commands.
    fn command_registry(&self) -> &Registry;

    /// Performs an effect once per run. `action` describes the effect completely and without secrets; it is journaled
    /// before `perform` runs, and the answer afterwards. On resume and replay the recorded answer is returned, and
    /// `perform` is not called. Calls are matched by their order within the stage.
    ///
    /// # Errors
    /// The failure of `perform` (which is also recorded), or the reason why the run must stop.
    fn perform_effect(
        &mut self,
        action: EffectAction,
        perform: &mut dyn FnMut(&EffectHost<'_>) -> Result<Value, StageError>,
    ) -> Result<Value, Stop>;

    /// Runs a native process once per run, under policy and sandbox; stdout and stderr are stored as they arrive.
    ///
    /// # Errors
    /// A refused or failed start, a timeout, an exceeded limit. For a program that does not exist the code is
    /// [`Code::ProgramNotFound`], so that a stage can suggest what to install. A non-zero exit is not an error here:
    /// see [`NativeOutcome::exit`].
    fn run_native(&mut self, command: NativeCommand) -> Result<NativeOutcome, Stop>;

    /// Asks a person, and returns the answer once it is available.
    ///
    /// # Errors
    /// [`Stop::Paused`] if no answer can be given now; a rejection.
    fn ask_person(&mut self, question: Question) -> Result<Answer, Stop>;

    /// Shows the text of a renderer. A person sees it at once; a program finds it in the step's record.
    ///
    /// # Errors
    /// If it cannot be written.
    fn show_text(&mut self, text: &str, rendering: Rendering) -> Result<(), Stop>;

    /// Prints a line for the person on stderr.
    fn print_note(&mut self, line: &str);

    /// Runs `commit` once the whole pipeline has succeeded (`diff.last` keeps its snapshot only then). Recorded like
    /// an effect.
    fn on_success(&mut self, action: EffectAction, commit: Commit);

    /// Marks the start of something that must not be done twice (a mail is sent): from now on the step is not retried,
    /// even if a later stage fails.
    fn no_retry(&mut self) {}

    /// True if a model call may be refused because of its possible cost, so that it must state the most it will use.
    fn has_budget(&self) -> bool {
        false
    }

    /// A buffer for items that a component will read, which may exceed memory.
    ///
    /// # Errors
    /// If this host runs no components.
    fn create_spool(&mut self) -> Result<Box<dyn Spool>, Stop> {
        Err(StageError::permanent("components cannot be run here").into())
    }

    /// Runs a component once per run and passes its output on; a pure component may also be answered from the cache.
    ///
    /// # Errors
    /// The reason why it cannot be loaded, lacks a permission, or failed; or the failure of a later stage.
    fn run_component(&mut self, call: ComponentCall, out: &mut dyn Sink) -> Result<(), Stop> {
        let _ = (call, out);
        Err(StageError::permanent("components cannot be run here").into())
    }

    /// Calls a tool of another program once per run.
    ///
    /// # Errors
    /// The reason why it cannot be called, or its failure.
    fn call_tool(&mut self, call: ToolCall) -> Result<Value, Stop> {
        let _ = call;
        Err(StageError::permanent("tools of other programs cannot be called here").into())
    }

    /// Runs another pipeline command on `items` and returns its output (`email.triage --llm` uses `llm.invoke`).
    ///
    /// # Errors
    /// As the command itself.
    fn call_command(&mut self, name: &str, args: StageArgs, items: Vec<Value>) -> Result<Vec<Value>, Stop>;
}

/// A deferred effect, see [`Host::on_success`].
pub type Commit = Box<dyn FnOnce(&EffectHost<'_>) -> Result<Value, StageError> + Send>;

/// Access of a running effect to the outside world.
pub struct EffectHost<'a> {
    /// Cancelled when the work should end.
    pub cancel: &'a CancelToken,
    /// Directory of the values of `state.get`, `state.set` and `diff.last`.
    pub state_dir: &'a Path,
    /// The step's environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The variables that the plan itself sets for the step.
    pub plan_env: &'a BTreeMap<String, String>,
    /// The value of a variable that contains a token or a key, as in [`Host::find_token`].
    pub token: &'a dyn Fn(&str) -> Result<Option<Token>, StageError>,
    /// Sends an HTTP request.
    pub send: &'a HttpSender<'a>,
    /// The credential for a request to a destination, as in [`Host::find_credential`].
    pub credential: &'a dyn Fn(Destination<'_>) -> Result<Option<Token>, StageError>,
    /// The step's working directory.
    pub cwd: &'a Path,
    /// Opens a file of the host for reading, if the policy lets a step read it.
    pub open: &'a dyn Fn(&Path) -> std::io::Result<std::fs::File>,
    /// True if a policy is in force: then files that a step could have written are ignored.
    pub is_under_policy: bool,
    /// Reserves the possible cost of a model call; refuses a call that could exceed the run's limit. The reserved
    /// amount is treated as spent unless the effect's answer reports the actual use.
    pub reserve: &'a dyn Fn(&WorstCase) -> Result<(), StageError>,
    /// Releases the last reservation: that call was certainly not executed.
    pub give_back: &'a dyn Fn(),
}

/// Destination of a request sent by POST over https.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'d> {
    /// A name or an address.
    pub host: &'d str,
    /// Usually the port of https.
    pub port: u16,
    /// The path, with its leading slash.
    pub path: &'d str,
}

/// A token or a key, and its origin. Only the code that sends it reads the value.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The value.
    pub value: String,
    /// The name of the secret; `None` if it is a variable of the environment.
    pub secret: Option<String>,
}

impl Token {
    /// A variable of the environment.
    #[must_use]
    pub fn of_environment(value: String) -> Self {
        Self { value, secret: None }
    }
}

/// Does not print the value.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("secret", &self.secret).finish_non_exhaustive()
    }
}

/// Complete description of an effect that is neither a process nor a component.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffectAction {
    /// The kind: `http`, `state.get`, `llm`.
    pub kind: String,
    /// Description of the effect, without secrets: method, address, body, key.
    pub detail: Value,
    /// True if repeating it does no harm, so that an interrupted effect may be repeated without asking.
    pub idempotent: bool,
}

/// A process to run.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeCommand {
    /// Shell text, or a program with its arguments.
    pub program: Program,
    /// Bytes for its stdin; `None` is an empty stdin.
    pub stdin: Option<Payload>,
    /// Most bytes kept of stdout; more is an error with a message to that effect. `None` means the runtime's default.
    pub max_output: Option<u64>,
    /// True if stdout should be JSON, so that it is checked while it arrives.
    pub json: bool,
    /// True if it sends a message or an order to others, which stopping it does not undo.
    pub dispatches: bool,
}

/// Items on their way into a component. The host that created it converts it back to its own type.
pub trait Spool: Send {
    /// Takes the next item.
    ///
    /// # Errors
    /// If there are too many for memory and the store cannot take them.
    fn push_item(&mut self, item: Value) -> std::io::Result<()>;

    /// The host's own type.
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

/// Server of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum McpServer {
    /// A server from the operator's `lobster.mcp.toml`.
    Named(String),
    /// A program that uses its standard streams.
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

/// A tool of another program, and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The server of the tool.
    pub server: McpServer,
    /// Its name.
    pub tool: String,
    /// Its arguments.
    pub args: Map<String, Value>,
    /// True if an interrupted call may be repeated without asking.
    pub idempotent: bool,
}

/// The most that a model call can use. Its cost is known only afterwards, but it must be allowed beforehand.
#[derive(Clone, Debug, PartialEq)]
pub struct WorstCase {
    /// The model whose rate applies.
    pub model: Option<String>,
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens; `None` if the model chooses how many.
    pub output_tokens: Option<u64>,
}

/// A component to run.
pub struct ComponentCall {
    /// The component.
    pub program: ComponentProgram,
    /// Checked against the component's own schema.
    pub args: Map<String, Value>,
    /// Its permissions.
    pub grants: ComponentGrants,
    /// The items that it reads; `None` means no input at all.
    pub input: Option<Box<dyn Spool>>,
    /// True if the items are texts, which are read as bytes: as lines.
    pub text: bool,
    /// The limits set by the stage.
    pub limits: Ceilings,
}

/// Reference to a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ComponentProgram {
    /// A file relative to the working directory, or `blake3:` and a digest.
    Named(String),
    /// The evaluator of JavaScript.
    Js,
}

/// Permissions of a component. The default is none.
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

/// A directory, relative to the working directory, and its path for the component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentDir {
    /// The path in the host.
    pub host: PathBuf,
    /// The path for the component.
    pub guest: String,
}

/// Prefix of a hint about access that a command lacked in its sandbox, in messages and records.
pub const SANDBOX_BLOCKED: &str = Code::SandboxBlocked.as_str();

/// The variable by which a step grants the bearer token of an MCP server that it names by its address.
pub const MCP_TOKEN: &str = "MCP_TOKEN";

/// Shorter values are never hidden, since they could be ordinary words.
pub const SHORTEST_HIDDEN: usize = 12;

/// Bytes on their way into or out of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum Payload {
    /// Held in memory.
    Bytes(Arc<[u8]>),
    /// In the store, or in a temporary file that no longer changes.
    File(PathBuf),
}

impl Payload {
    /// A reader over the bytes, from the start.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn open(&self) -> std::io::Result<Box<dyn std::io::Read + Send>> {
        Ok(match self {
            Self::Bytes(bytes) => Box::new(std::io::Cursor::new(Arc::clone(bytes))),
            Self::File(path) => Box::new(std::fs::File::open(path)?),
        })
    }
}

/// Result of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeOutcome {
    /// The exit code, or `None` if a signal ended it.
    pub exit: Option<i32>,
    /// Its whole stdout.
    pub stdout: Payload,
    /// Its stderr (only the start and the end if it is long).
    pub stderr: Payload,
    /// True if stdout is JSON that a [`lobster_base::json::scanner::Scanner`] accepts; `None` if it is not known yet.
    pub plain_json: Option<bool>,
    /// The things that it probably missed in the sandbox, if it failed there.
    pub blocked: Vec<String>,
    /// Keys of lobster's own that are set and that it did not receive, if it failed.
    pub withheld: Vec<String>,
}

/// Reader of the result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A person.
    Human,
    /// A program: stdout contains one envelope.
    Tool,
}

/// A question to a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// Approval or rejection of items that the person is shown.
    Approval {
        /// The question itself.
        prompt: String,
        /// The items to approve.
        items: Vec<Value>,
        /// The same items as text, for people.
        #[serde(skip_serializing_if = "Option::is_none")]
        preview: Option<String>,
        /// True to never ask on the terminal, even if there is one (`--emit`).
        emit: bool,
    },
    /// A JSON value that matches a schema.
    Input {
        /// The question itself.
        prompt: String,
        /// The JSON Schema for the answer.
        schema: Value,
        /// The proposed answer.
        #[serde(skip_serializing_if = "Option::is_none")]
        defaults: Option<Value>,
        /// The subject of the question.
        #[serde(skip_serializing_if = "Option::is_none")]
        subject: Option<Value>,
        /// The items that were waiting in front of the question. A person without a terminal sees them; a program does
        /// not.
        items: Vec<Value>,
        /// True to never ask on the terminal (`--emit`).
        emit: bool,
    },
}

/// A person's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The approval was given, by this person if known.
    Approved {
        /// The person who gave it.
        by: Option<String>,
        /// The approved change set, if it is a part of the one that the question shows.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<Digest>,
    },
    /// The input, which matches the question's schema.
    Response(Value),
}
