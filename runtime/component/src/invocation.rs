//! What a run is given: data only, apart from the streams and services that
//! the engine lends it.

use lobster_base::sync::lock;
use lobster_credentials::Credential;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::{OpenedDirs, RunError};

/// One run of a component.
pub struct Invocation {
    /// The step's arguments: the text of a JSON object. Command programs ignore it.
    pub args: String,
    /// The command line after the program's name, which is always `step`.
    pub argv: Vec<String>,
    /// What the program reads.
    pub input: Input,
    /// Where its output goes.
    pub output: Box<dyn OutputSink>,
    /// Where stderr (and a step's stdout, which is talk and not data) goes.
    pub stderr: Box<dyn io::Write + Send>,
    /// What it may touch.
    pub grants: Grants,
    /// The directories of the grants, if they are open already because somebody
    /// decided about them.
    pub opened: Option<OpenedDirs>,
    /// What is added to the requests that it sends, and never reaches it.
    pub credentials: Vec<Credential>,
    /// What it may use up.
    pub limits: Limits,
    /// Whether its description may lower the limits.
    pub described_limits: bool,
    /// The root of all randomness it sees, unless `grants.random`.
    pub seed: [u8; 32],
    /// What the wall clock shows at the start, unless `grants.clock`.
    pub start_time: SystemTime,
    /// What the host does for a step.
    pub services: Arc<dyn HostServices>,
    /// Polled while the program runs, at least every few milliseconds.
    pub cancel: Cancel,
    /// Records or answers what an effect learns from the outside.
    pub trace: Option<Box<dyn HostCallTrace>>,
}

/// Gives the reason once the run should stop. It must answer at once.
pub type Cancel = Arc<dyn Fn() -> Option<String> + Send + Sync>;

impl Invocation {
    /// A run without input, grants or services: pure, with default limits.
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

/// What a program reads. Both forms stream. A source that blocks blocks the
/// run: only the source can end such a wait.
#[derive(Default)]
pub enum Input {
    #[default]
    Empty,
    Bytes(Box<dyn Read + Send>),
    /// JSON texts, each without a line break outside its strings.
    Items(Box<dyn Iterator<Item = io::Result<String>> + Send>),
}

/// Takes what a program puts out. An error ends the run.
pub trait OutputSink: Send {
    /// Some bytes. Never mixed with items.
    ///
    /// # Errors
    /// When the bytes cannot be kept.
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// One item: a JSON text on one line.
    ///
    /// # Errors
    /// When the item cannot be kept.
    fn item(&mut self, json: &str) -> io::Result<()>;
}

/// Bytes as they are, items as JSON Lines.
impl OutputSink for Vec<u8> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.extend_from_slice(bytes);
        Ok(())
    }

    fn item(&mut self, json: &str) -> io::Result<()> {
        self.extend_from_slice(json.as_bytes());
        self.push(b'\n');
        Ok(())
    }
}

/// A sink that its owner still holds after the run.
impl<S: OutputSink> OutputSink for Arc<Mutex<S>> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        lock(self).bytes(bytes)
    }

    fn item(&mut self, json: &str) -> io::Result<()> {
        lock(self).item(json)
    }
}

/// What a run may touch. The default is nothing.
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
    /// Whether the outcome depends on nothing but the action: no network, no
    /// real clock, no real randomness.
    #[must_use]
    pub fn is_pure(&self) -> bool {
        self.net.is_empty() && !self.clock && !self.random
    }
}

/// A directory of the host and the path the program sees it at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirGrant {
    pub host: PathBuf,
    pub guest: String,
}

/// What a run may use up. Each is a named error when reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// WebAssembly operations, roughly. The reproducible budget.
    pub fuel: u64,
    /// Bytes over all linear memories.
    pub memory: u64,
    /// Elements over all tables.
    pub tables: u64,
    /// Core instances, memories and tables of the program, each.
    pub instances: usize,
    /// Bytes of output, of items or of bytes; so much again of stderr and log lines.
    pub output: u64,
    /// Bytes written into granted directories, blobs and values of the run.
    pub files: u64,
    /// Wall-clock time of the whole run.
    pub wall: Duration,
    /// Wall-clock time of one wait in the host (network, timers).
    pub host_call: Duration,
    /// Whose they are, for whoever reaches one.
    pub set_by: LimitsSetBy,
}

/// Who set each of the [`Limits`] that can be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsSetBy {
    pub fuel: SetBy,
    pub memory: SetBy,
    pub output: SetBy,
    pub wall: SetBy,
}

/// Who set a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetBy {
    /// Nobody: it is the default.
    #[default]
    Default,
    /// The step, or whoever runs the program by itself.
    Step,
    /// The operator's policy.
    Policy,
    /// The program's own description.
    Description,
    /// The host, for all programs alike.
    Host,
}

/// Limits that somebody sets; what is absent stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ceilings {
    pub fuel: Option<u64>,
    pub memory: Option<u64>,
    pub output: Option<u64>,
    pub wall: Option<Duration>,
}

/// How long a run may take if nobody sets it.
const DEFAULT_WALL: Duration = Duration::from_mins(2);

/// Fuel for each second that a run may take: about as much as compiled code uses on a fast
/// machine, so that without a limit of its own a step ends by time.
const FUEL_PER_SECOND: u64 = 10_000_000_000;

/// The fuel of a run that may take this long, if nobody sets it: an exact number in JSON.
fn default_fuel(wall: Duration) -> u64 {
    wall.as_secs().max(DEFAULT_WALL.as_secs()).saturating_mul(FUEL_PER_SECOND).min(1 << 53)
}

impl Default for Limits {
    /// Enough for an ordinary step, little enough that a broken one ends.
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
    /// The defaults, but for what the step sets. Default fuel follows the time.
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

    /// The lower of these and what somebody else sets. What is equal stays whose it was.
    #[must_use]
    pub fn lowered(mut self, ceilings: Ceilings, by: SetBy) -> Self {
        fn lower<T: PartialOrd>(limit: &mut T, set_by: &mut SetBy, ceiling: Option<T>, by: SetBy) {
            if let Some(ceiling) = ceiling.filter(|ceiling| ceiling < limit) {
                (*limit, *set_by) = (ceiling, by);
            }
        }
        let Ceilings { fuel, memory, output, wall } = ceilings;
        lower(&mut self.fuel, &mut self.set_by.fuel, fuel, by);
        lower(&mut self.memory, &mut self.set_by.memory, memory, by);
        lower(&mut self.output, &mut self.set_by.output, output, by);
        lower(&mut self.wall, &mut self.set_by.wall, wall, by);
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

/// How loud a log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warn,
    Error,
}

/// What the host does for a step beyond its input and output. Blobs and state
/// default to "there are none".
pub trait HostServices: Send + Sync {
    /// A log line; `fields` is a JSON object or empty.
    fn log(&self, level: Level, message: &str, fields: &str) {
        let _ = (level, message, fields);
    }
    /// How far the step is.
    fn progress(&self, done: u64, total: Option<u64>, message: Option<&str>) {
        let _ = (done, total, message);
    }
    /// The JSON text kept under `key` in this workflow run.
    fn state_get(&self, key: &str) -> Option<String> {
        let _ = key;
        None
    }
    /// Keeps a JSON text for the rest of this workflow run.
    ///
    /// # Errors
    /// When it cannot be kept; this ends the step.
    fn state_set(&self, key: &str, json: &str) -> io::Result<()> {
        let _ = (key, json);
        Err(io::Error::new(io::ErrorKind::Unsupported, "this run keeps no state"))
    }
    /// Opens the blob with this BLAKE3 digest (64 hex digits), which the step
    /// was given or wrote itself.
    ///
    /// # Errors
    /// When there is none, or the step may not read it.
    fn blob_open(&self, digest: &str) -> Result<Box<dyn BlobRead>, BlobError> {
        Err(BlobError::NotFound(digest.to_owned()))
    }
    /// Starts a new blob.
    ///
    /// # Errors
    /// When the store cannot take one.
    fn blob_create(&self) -> Result<Box<dyn BlobWrite>, BlobError> {
        Err(BlobError::Io(io::Error::new(io::ErrorKind::Unsupported, "this run has no store")))
    }
}

/// The services of a run that has none: logs vanish, there is no state and no store.
pub struct NoServices;

impl HostServices for NoServices {}

/// A blob being read.
pub trait BlobRead: Read + Send {
    /// Its length in bytes.
    fn size(&self) -> u64;
}

/// A blob being written. Dropping it unfinished discards it.
pub trait BlobWrite: io::Write + Send {
    /// Closes the blob and gives its BLAKE3 digest in hex.
    ///
    /// # Errors
    /// When it cannot be made durable.
    fn finish(self: Box<Self>) -> Result<String, BlobError>;
}

/// Why the store did not do what a step asked.
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

/// One question whose answer comes from outside the program.
#[derive(Clone, Copy, Debug)]
pub struct HostCall<'a> {
    /// `wall-clock.now`, `random.get`, `resolve`, `http` …
    pub function: &'static str,
    /// What was asked.
    pub request: &'a [u8],
}

/// Records the answers an effect got from the outside, or gives recorded ones.
pub trait HostCallTrace: Send {
    /// The recorded answer to this, the next, call; `None` asks the world.
    ///
    /// # Errors
    /// When the record holds another call here: the run has diverged.
    fn recorded(&mut self, call: &HostCall<'_>) -> Result<Option<Vec<u8>>, String>;
    /// Keeps what the world answered.
    fn record(&mut self, call: &HostCall<'_>, answer: &[u8]);
}

/// A trace that its owner still holds after the run.
impl<T: HostCallTrace> HostCallTrace for Arc<Mutex<T>> {
    fn recorded(&mut self, call: &HostCall<'_>) -> Result<Option<Vec<u8>>, String> {
        lock(self).recorded(call)
    }

    fn record(&mut self, call: &HostCall<'_>, answer: &[u8]) {
        lock(self).record(call, answer);
    }
}
