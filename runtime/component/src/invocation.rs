//! Input of a run: data only, apart from the streams and services that the engine provides.

use lobster_base::cancel::CancelToken;
use lobster_base::sync::lock;
use lobster_credentials::Credential;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

pub use crate::host::step_wit::host::Level;
use crate::{OpenedDirs, RunError};

/// One run of a component.
pub struct Invocation {
    /// Arguments of the step: the text of a JSON object. Command programs ignore it.
    pub args: String,
    /// Command line after the program's name, which is always `step`.
    pub argv: Vec<String>,
    /// Input of the program.
    pub input: Input,
    /// Destination of its output.
    pub output: Box<dyn OutputSink>,
    /// Destination of stderr, and of a step's stdout, which is log output rather than data.
    pub stderr: Box<dyn io::Write + Send>,
    /// Resources that it may use.
    pub grants: Grants,
    /// Directories of the grants, if a permission check has already opened them.
    pub opened: Option<OpenedDirs>,
    /// Credentials that are added to its requests; the program never sees them.
    pub credentials: Vec<Credential>,
    /// Limits of its use of resources.
    pub limits: Limits,
    /// True if its description may lower the limits.
    pub described_limits: bool,
    /// Seed of all random bytes that it gets, unless `grants.random`.
    pub seed: [u8; 32],
    /// Start time of the wall clock, unless `grants.clock`.
    pub start_time: SystemTime,
    /// Services of the host for a step.
    pub services: Arc<dyn HostServices>,
    /// Polled while the program runs, at least every few milliseconds.
    pub cancel: Cancel,
    /// Records the answers that an effect gets from the outside, or replays recorded ones.
    pub trace: Option<Box<dyn HostCallTrace>>,
}

/// Returns the reason once the run should stop. It must return immediately.
pub type Cancel = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// Stops what polls it when `token` is cancelled.
#[must_use]
pub fn cancelled_by(token: &CancelToken) -> Cancel {
    let token = token.clone();
    Arc::new(move || token.reason().map(|reason| reason.message()))
}

impl Invocation {
    /// A pure run with default limits and without input, grants or services.
    #[must_use]
    pub fn new(args: impl Into<String>, output: Box<dyn OutputSink>) -> Self {
        Self {
            args: args.into(),
            argv: Vec::new(),
            input: Input::Empty,
            output,
            stderr: Box::new(io::sink()),
            grants: Grants::default(),
            opened: None,
            credentials: Vec::new(),
            limits: Limits::default(),
            described_limits: true,
            seed: [0; 32],
            start_time: SystemTime::UNIX_EPOCH + DEFAULT_START_TIME,
            services: Arc::new(NoServices),
            cancel: Arc::new(|| None),
            trace: None,
        }
    }
}

/// 2000-01-01T00:00:00Z: late enough for programs that refuse the year 1970.
const DEFAULT_START_TIME: Duration = Duration::from_secs(946_684_800);

/// Input of a program. Both forms stream. A source that blocks also blocks the run: only the source can
/// end such a wait.
#[derive(Default)]
pub enum Input {
    #[default]
    Empty,
    Bytes(Box<dyn Read + Send>),
    /// JSON texts, each without a line break outside its strings.
    Items(Box<dyn Iterator<Item = io::Result<String>> + Send>),
}

/// Receives the output of a program. An error ends the run.
pub trait OutputSink: Send {
    /// Writes bytes. Never mixed with items.
    ///
    /// # Errors
    /// The bytes cannot be stored.
    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Writes one item: a JSON text on one line.
    ///
    /// # Errors
    /// The item cannot be stored.
    fn write_item(&mut self, json: &str) -> io::Result<()>;
}

/// Bytes unchanged, items as JSON Lines.
impl OutputSink for Vec<u8> {
    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }

    fn write_item(&mut self, json: &str) -> io::Result<()> {
        self.extend_from_slice(json.as_bytes());
        self.push(b'\n');
        Ok(())
    }
}

/// A sink that its owner can still use after the run.
impl<S: OutputSink> OutputSink for Arc<Mutex<S>> {
    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        lock(self).write_bytes(bytes)
    }

    fn write_item(&mut self, json: &str) -> io::Result<()> {
        lock(self).write_item(json)
    }
}

/// Resources that a run may use. The default is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Directories to read.
    pub read: Vec<DirGrant>,
    /// Directories to read and write. Writes stay private until committed.
    pub write: Vec<DirGrant>,
    /// Environment variables, with their values.
    pub env: Vec<(String, String)>,
    /// `host:port` pairs to connect to.
    pub net: Vec<String>,
    /// The real clock instead of the virtual one.
    pub clock: bool,
    /// Real randomness instead of the seeded one.
    pub random: bool,
}

impl Grants {
    /// True if the outcome depends only on the action: no network, no real clock, no real randomness.
    #[must_use]
    pub fn is_pure(&self) -> bool {
        self.net.is_empty() && !self.clock && !self.random
    }
}

/// A directory of the host and its path in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirGrant {
    pub host: PathBuf,
    pub guest: String,
}

/// Limits of a run. Reaching one is an error with its own name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Number of WebAssembly operations, roughly. The only limit that is reproducible.
    pub fuel: u64,
    /// Bytes over all linear memories.
    pub memory: u64,
    /// Elements over all tables.
    pub tables: u64,
    /// Core instances, memories and tables of the program; the limit is for each of the three.
    pub instances: usize,
    /// Bytes of output, whether items or bytes. The same limit applies separately to stderr and log
    /// lines.
    pub output: u64,
    /// Bytes written into granted directories, blobs and values of the run.
    pub files: u64,
    /// Wall-clock time of the whole run.
    pub wall: Duration,
    /// Wall-clock time of one wait in the host (network, timers).
    pub host_call: Duration,
    /// Origin of the limits, for the errors.
    pub set_by: LimitsSetBy,
}

/// Origin of each of the [`Limits`] that can be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsSetBy {
    pub fuel: SetBy,
    pub memory: SetBy,
    pub output: SetBy,
    pub wall: SetBy,
}

/// Origin of a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetBy {
    /// The default.
    #[default]
    Default,
    /// The step, or the user who runs the program by itself.
    Step,
    /// The operator's policy.
    Policy,
    /// The program's own description.
    Description,
    /// The host, for all programs alike.
    Host,
}

/// Limits set by one party; absent ones stay unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceilings {
    pub fuel: Option<u64>,
    pub memory: Option<u64>,
    pub output: Option<u64>,
    pub wall: Option<Duration>,
}

/// Default time limit of a run.
const DEFAULT_WALL: Duration = Duration::from_mins(2);

/// Fuel per second of the time limit: about as much as compiled code uses on a fast machine. A step
/// without a fuel limit therefore ends by time.
const FUEL_PER_SECOND: u64 = 10_000_000_000;

/// Default fuel of a run with this time limit: an exact number in JSON.
fn default_fuel(wall: Duration) -> u64 {
    wall.as_secs().max(DEFAULT_WALL.as_secs()).saturating_mul(FUEL_PER_SECOND).min(1 << 53)
}

impl Default for Limits {
    /// Enough for an ordinary step, and little enough that a broken one ends.
    fn default() -> Self {
        Self {
            fuel: default_fuel(DEFAULT_WALL),
            memory: 256 << 20,
            tables: 200_000,
            instances: 256,
            output: 64 << 20,
            files: 1 << 30,
            wall: DEFAULT_WALL,
            host_call: Duration::from_secs(30),
            set_by: LimitsSetBy::default(),
        }
    }
}

impl Limits {
    /// The defaults with the limits that the step sets. Default fuel follows the time limit.
    #[must_use]
    pub fn of_step(step: Ceilings) -> Self {
        fn set<T>(limit: &mut T, set_by: &mut SetBy, own: Option<T>) {
            if let Some(own) = own {
                (*limit, *set_by) = (own, SetBy::Step);
            }
        }
        let mut limits = Self::default();
        let Ceilings { fuel, memory, output, wall } = step;
        set(&mut limits.fuel, &mut limits.set_by.fuel, fuel);
        set(&mut limits.memory, &mut limits.set_by.memory, memory);
        set(&mut limits.output, &mut limits.set_by.output, output);
        set(&mut limits.wall, &mut limits.set_by.wall, wall);
        if fuel.is_none() {
            limits.fuel = default_fuel(limits.wall);
        }
        limits
    }

    /// The lower of these limits and the given ones. A limit that is equal keeps its origin.
    #[must_use]
    pub fn lowered_to(mut self, ceilings: Ceilings, by: SetBy) -> Self {
        fn lower_limit<T: PartialOrd>(limit: &mut T, set_by: &mut SetBy, ceiling: Option<T>, by: SetBy) {
            if let Some(ceiling) = ceiling.filter(|ceiling| ceiling < limit) {
                (*limit, *set_by) = (ceiling, by);
            }
        }
        let Ceilings { fuel, memory, output, wall } = ceilings;
        lower_limit(&mut self.fuel, &mut self.set_by.fuel, fuel, by);
        lower_limit(&mut self.memory, &mut self.set_by.memory, memory, by);
        lower_limit(&mut self.output, &mut self.set_by.output, output, by);
        lower_limit(&mut self.wall, &mut self.set_by.wall, wall, by);
        self
    }

    pub(crate) fn out_of_fuel(&self) -> RunError {
        RunError::OutOfFuel { limit: self.fuel, set_by: self.set_by.fuel }
    }

    pub(crate) fn memory_exceeded(&self, asked: u64) -> RunError {
        RunError::MemoryLimit { limit: self.memory, asked, set_by: self.set_by.memory }
    }

    pub(crate) fn output_exceeded(&self) -> RunError {
        RunError::OutputLimit { limit: self.output, set_by: self.set_by.output }
    }

    pub(crate) fn timed_out(&self) -> RunError {
        RunError::Timeout { limit: self.wall, set_by: self.set_by.wall }
    }
}

/// Services of the host for a step, beyond its input and output. By default there are no blobs and no
/// state.
pub trait HostServices: Send + Sync {
    /// A log line; `fields` is a JSON object or empty.
    fn log(&self, level: Level, message: &str, fields: &str) {
        let _ = (level, message, fields);
    }
    /// Reports the progress of the step.
    fn report_progress(&self, done: u64, total: Option<u64>, message: Option<&str>) {
        let _ = (done, total, message);
    }
    /// JSON text stored under `key` in this workflow run.
    fn state_get(&self, key: &str) -> Option<String> {
        let _ = key;
        None
    }
    /// Stores a JSON text for the rest of this workflow run.
    ///
    /// # Errors
    /// The text cannot be stored; this ends the step.
    fn state_set(&self, key: &str, json: &str) -> io::Result<()> {
        let _ = (key, json);
        Err(io::Error::new(io::ErrorKind::Unsupported, "this run keeps no state"))
    }
    /// Opens the blob with this BLAKE3 digest (64 hex digits), which the step was given or wrote
    /// itself.
    ///
    /// # Errors
    /// There is no such blob, or the step may not read it.
    fn blob_open(&self, digest: &str) -> Result<Box<dyn BlobRead>, BlobError> {
        Err(BlobError::NotFound(digest.to_owned()))
    }
    /// Starts a new blob.
    ///
    /// # Errors
    /// The store cannot take one.
    fn blob_create(&self) -> Result<Box<dyn BlobWrite>, BlobError> {
        Err(BlobError::Io(io::Error::new(io::ErrorKind::Unsupported, "this run has no store")))
    }
}

/// Services of a run that has none: logs are dropped, and there is no state and no store.
pub struct NoServices;

impl HostServices for NoServices {}

/// A blob being read.
pub trait BlobRead: Read + Send {
    /// Length in bytes.
    fn size(&self) -> u64;
}

/// A blob being written. Dropping it unfinished discards it.
pub trait BlobWrite: io::Write + Send {
    /// Closes the blob and returns its BLAKE3 digest in hex.
    ///
    /// # Errors
    /// The blob cannot be made durable.
    fn finish(self: Box<Self>) -> Result<String, BlobError>;
}

/// Reason why the store did not do what a step requested.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error("there is no blob {0}")]
    NotFound(String),
    #[error("this step was not given blob {0}: neither its arguments nor the input that it read name it")]
    NotGranted(String),
    #[error("{0}")]
    Limit(String),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// One question to the world outside the program.
#[derive(Clone, Copy, Debug)]
pub struct HostCall<'a> {
    /// `wall-clock.now`, `random.get`, `resolve`, `http` …
    pub function: &'static str,
    /// Content of the question.
    pub request: &'a [u8],
}

/// Records the answers that an effect gets from the outside, or returns recorded ones.
pub trait HostCallTrace: Send {
    /// Recorded answer to this call, the next one; `None` asks the world.
    ///
    /// # Errors
    /// The record has a different call here: the run has diverged.
    fn recorded_answer(&mut self, call: &HostCall<'_>) -> Result<Option<Vec<u8>>, String>;
    /// Records the world's answer.
    fn record_answer(&mut self, call: &HostCall<'_>, answer: &[u8]);
}

/// A trace that its owner can still use after the run.
impl<T: HostCallTrace> HostCallTrace for Arc<Mutex<T>> {
    fn recorded_answer(&mut self, call: &HostCall<'_>) -> Result<Option<Vec<u8>>, String> {
        lock(self).recorded_answer(call)
    }

    fn record_answer(&mut self, call: &HostCall<'_>, answer: &[u8]) {
        lock(self).record_answer(call, answer);
    }
}
