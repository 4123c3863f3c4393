//! An executor's process, and what it said that nobody has asked for yet.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::message::{PROTOCOL, Reply, Request, clipped, decode, line, read_line};
use crate::progress::Heard;
use crate::{ExecutorError, OrderId, Outcome, Standing};
use lobster_base::digest::Digest;
use lobster_base::sync::lock;
use lobster_store::{OutputLog, OutputStream, Redactor, StepOutcome, Store, StoreError};

/// How long an executor has to say hello, and for each answer that comes at once, unless `LOBSTER_EXECUTOR_HELLO_MS` says otherwise: on a
/// busy machine a program needs seconds to start.
pub const HELLO_TIME: Duration = Duration::from_secs(30);

/// How long it has to end once nobody talks to it any more.
const END_TIME: Duration = Duration::from_secs(2);

/// Pieces of a blob that wait for whoever asked for it.
const PIECES: usize = 4;

/// The operator's command for an executor, and its process while there is one.
#[derive(Debug)]
pub struct ExecutorProgram {
    argv: Vec<String>,
    hello_time: Duration,
    connection: Mutex<Option<Arc<Connection>>>,
}

impl ExecutorProgram {
    /// Starts nothing yet.
    pub fn new(argv: Vec<String>, hello_time: Duration) -> Self {
        Self { argv, hello_time, connection: Mutex::default() }
    }

    /// What errors call it.
    pub(super) fn name(&self) -> String {
        self.argv.join(" ")
    }

    /// The process that is there, if one is.
    pub(super) fn connected(&self) -> Option<Arc<Connection>> {
        lock(&self.connection).as_ref().filter(|there| there.is_alive()).map(Arc::clone)
    }

    /// The process that is there, or a new one.
    pub(super) fn connect(&self) -> Result<Arc<Connection>, ExecutorError> {
        let mut connection = lock(&self.connection);
        if let Some(there) = connection.as_ref().filter(|there| there.is_alive()) {
            return Ok(Arc::clone(there));
        }
        let fresh = Arc::new(Connection::start(&self.argv, self.hello_time)?);
        *connection = Some(Arc::clone(&fresh));
        Ok(fresh)
    }
}

/// Why nothing more comes from an executor.
#[derive(Clone, Debug)]
enum Over {
    /// It said something that is not a message.
    Garbled(String),
    /// It is gone.
    Died(String),
}

/// A piece of a blob: its bytes and whether it is the last; or why there is none.
pub(super) type Piece = Result<(Vec<u8>, bool), String>;

#[derive(Debug, Default)]
pub(super) struct Said {
    /// Answers to orders: none is that it was accepted.
    taken: HashMap<OrderId, Option<String>>,
    /// Of orders that somebody follows, what was heard last and not told yet.
    heard: HashMap<OrderId, Option<Heard>>,
    /// Where the output of orders is stored while it comes.
    printed: HashMap<OrderId, Arc<Mutex<Printed>>>,
    ended: HashMap<OrderId, Result<Outcome, String>>,
    standings: HashMap<OrderId, Standing>,
    /// Whether sessions are open that were asked for.
    sessions: HashMap<OrderId, bool>,
    pieces: HashMap<u64, SyncSender<Piece>>,
    over: Option<Over>,
}

/// Stores the output of an order. The executor may know of fewer secrets.
#[derive(Default)]
pub(super) struct Printed {
    log: Option<OutputLog>,
    redactors: [Option<Redactor>; 2],
}

impl std::fmt::Debug for Printed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Printed")
    }
}

impl Printed {
    /// In the name of this effect.
    pub(super) fn of(store: &Store, id: &OrderId) -> Self {
        Self {
            log: Some(store.output_log(id.run, &id.path)),
            redactors: [store.redactor(), store.redactor()],
        }
    }

    fn append(&mut self, stream: OutputStream, bytes: &[u8]) {
        let Some(log) = &mut self.log else { return };
        match &mut self.redactors[usize::from(stream == OutputStream::Stderr)] {
            None => log.append(stream, bytes),
            Some(redactor) => log.append(stream, &redactor.push_lines(bytes)),
        }
    }

    /// Names the parts of the output that the streams of the outcome do not have.
    pub(super) fn finish(mut self, outcome: &mut StepOutcome) -> Result<(), StoreError> {
        let Some(mut log) = self.log.take() else { return Ok(()) };
        for (stream, redactor) in [OutputStream::Stdout, OutputStream::Stderr].into_iter().zip(self.redactors)
        {
            if let Some(redactor) = redactor {
                // A process that was stopped may have printed the beginning of a secret last.
                log.append(stream, &redactor.finish_cut());
            }
        }
        let is_short = outcome.stderr.is_some_and(|stderr| stderr.len != log.stderr_len());
        log.finish(outcome, is_short)
    }
}

/// An executor's process that has said hello.
#[derive(Debug)]
pub(super) struct Connection {
    name: String,
    tasks: Vec<String>,
    /// How long it has for what it answers at once.
    patience: Duration,
    child: Arc<Mutex<Child>>,
    stdin: Mutex<Option<ChildStdin>>,
    said: Arc<(Mutex<Said>, Condvar)>,
    requests: AtomicU64,
    /// Blobs that it was sent.
    pub(super) sent: Mutex<HashSet<Digest>>,
}

impl Connection {
    fn start(argv: &[String], hello_time: Duration) -> Result<Self, ExecutorError> {
        let name = argv.join(" ");
        let missing = |source| ExecutorError::Missing { executor: name.clone(), source };
        let no_command = || missing(io::Error::new(io::ErrorKind::InvalidInput, "no command is named"));
        let (program, words) = argv.split_first().ok_or_else(no_command)?;
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A key at the terminal is for this process, which tells the executor.
        let mut child = command.process_group(0).spawn().map_err(missing)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(missing(io::Error::other("it has no pipes")));
        };
        let child = Arc::new(Mutex::new(child));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let hello = Request::Hello { protocol: PROTOCOL, version, output: true };
        // What does not read will not say hello either, and that is told below.
        let _ = line(&hello).and_then(|line| stdin.write_all(line.as_bytes()));
        let (tell, told) = sync_channel(1);
        let said = Arc::new((Mutex::<Said>::default(), Condvar::new()));
        let reader = Reader { child: Arc::clone(&child), said: Arc::clone(&said) };
        std::thread::Builder::new()
            .name("executor".to_owned())
            .spawn(move || reader.read(stdout, &tell))
            .map_err(missing)?;
        let silent = |_| {
            kill(&child);
            Err(Hello::Silent)
        };
        let executor = name.clone();
        let tasks = match told.recv_timeout(hello_time).unwrap_or_else(silent) {
            Ok(tasks) => tasks,
            Err(Hello::Silent) => {
                return Err(ExecutorError::Silent { executor, patience: hello_time });
            }
            Err(Hello::Version(theirs)) => {
                return Err(ExecutorError::Version { executor, theirs, ours: PROTOCOL });
            }
            Err(Hello::Over(over)) => return Err(ExecutorError::Unsent(Box::new(error_of(&executor, over)))),
        };
        let stdin = Mutex::new(Some(stdin));
        Ok(Self {
            name,
            tasks,
            patience: hello_time,
            child,
            stdin,
            said,
            requests: AtomicU64::new(1),
            sent: Mutex::default(),
        })
    }

    /// What errors call it.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it carries out tasks of this kind.
    pub(super) fn can(&self, kind: &str) -> bool {
        self.tasks.iter().any(|task| task == kind)
    }

    fn is_alive(&self) -> bool {
        lock(&self.said.0).over.is_none()
    }

    /// Says something.
    pub(super) fn send(&self, request: &Request) -> Result<(), ExecutorError> {
        let refused =
            |error: io::Error| ExecutorError::Refused { executor: self.name.clone(), why: error.to_string() };
        let line = line(request).map_err(refused)?;
        let written = match lock(&self.stdin).as_mut() {
            Some(stdin) => stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if written.is_ok() {
            return Ok(());
        }
        // Whoever does not listen is ending, and how is about to be known.
        let gone = self.until(END_TIME, |said| said.over.clone());
        kill(&self.child);
        let over = gone.unwrap_or_else(|| Over::Died("closed its stdin".to_owned()));
        Err(error_of(&self.name, over))
    }

    /// Whether it takes the order.
    pub(super) fn taken(&self, id: &OrderId) -> Result<(), ExecutorError> {
        match self.next(|said| said.taken.remove(id))? {
            None => Ok(()),
            Some(why) => Err(ExecutorError::Refused { executor: self.name.clone(), why }),
        }
    }

    /// How the order ended, if that is known within so much time.
    pub(super) fn ended(
        &self,
        id: &OrderId,
        patience: Duration,
    ) -> Result<Option<Result<Outcome, String>>, ExecutorError> {
        let found =
            self.until(patience, |said| said.ended.remove(id).map(Ok).or_else(|| said.over.clone().map(Err)));
        found.transpose().map_err(|over| error_of(&self.name, over))
    }

    /// Has what is heard of the order remembered, until [`unfollow`](Self::unfollow).
    pub(super) fn follow(&self, id: &OrderId) {
        lock(&self.said.0).heard.insert(id.clone(), None);
    }

    /// What was heard last of the order since this was asked.
    pub(super) fn heard(&self, id: &OrderId) -> Option<Heard> {
        lock(&self.said.0).heard.get_mut(id)?.take()
    }

    /// Nobody asks any more how the order goes on.
    pub(super) fn unfollow(&self, id: &OrderId) {
        lock(&self.said.0).heard.remove(id);
    }

    /// Has the output of the order stored while it comes, until [`take_printed`](Self::take_printed).
    pub(super) fn store_printed(&self, id: &OrderId, printed: Printed) {
        lock(&self.said.0).printed.insert(id.clone(), Arc::new(Mutex::new(printed)));
    }

    /// What stored the output of the order.
    pub(super) fn take_printed(&self, id: &OrderId) -> Option<Printed> {
        let printed = lock(&self.said.0).printed.remove(id)?;
        // Who reads what the executor says may have it in hand for this moment.
        Some(std::mem::take(&mut *lock(&printed)))
    }

    /// What has become of the order.
    pub(super) fn standing(&self, id: &OrderId) -> Result<Standing, ExecutorError> {
        self.next(|said| said.standings.remove(id))
    }

    /// Whether a session is open, as the executor says in answer to a question for it.
    pub(super) fn session(&self, session: &OrderId) -> Result<bool, ExecutorError> {
        self.next(|said| said.sessions.remove(session))
    }

    /// Waits a little until the executor says that a session has ended.
    pub(super) fn session_ended(&self, session: &OrderId) {
        self.until(END_TIME, |said| {
            said.sessions.remove(session).map(drop).or(said.over.as_ref().map(|_| ()))
        });
    }

    /// Asks for a blob; its pieces come here.
    pub(super) fn fetch(&self, digest: Digest) -> Result<Receiver<Piece>, ExecutorError> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let (give, take) = sync_channel(PIECES);
        lock(&self.said.0).pieces.insert(request, give);
        self.send(&Request::Fetch { request, digest })?;
        Ok(take)
    }

    /// Why nothing more comes, for whoever was waiting for something.
    pub(super) fn why_over(&self) -> ExecutorError {
        let over = self.until(END_TIME, |said| said.over.clone());
        error_of(&self.name, over.unwrap_or_else(|| Over::Died("stopped answering".to_owned())))
    }

    /// Ends it with all that it is doing.
    pub(super) fn kill(&self) {
        kill(&self.child);
    }

    /// What answers at once. An executor that does not is killed: nobody could tell it from one that hangs.
    fn next<T>(&self, mut find: impl FnMut(&mut Said) -> Option<T>) -> Result<T, ExecutorError> {
        let said =
            self.until(self.patience, |said| find(said).map(Ok).or_else(|| said.over.clone().map(Err)));
        match said {
            Some(Ok(found)) => Ok(found),
            Some(Err(over)) => Err(error_of(&self.name, over)),
            None => {
                self.kill();
                let how = format!("did not answer within {} ms and was killed", self.patience.as_millis());
                Err(ExecutorError::Died { executor: self.name.clone(), how })
            }
        }
    }

    /// Waits so long until something was said.
    fn until<T>(&self, patience: Duration, mut find: impl FnMut(&mut Said) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + patience;
        let (said, changed) = &*self.said;
        let mut said: MutexGuard<'_, Said> = lock(said);
        loop {
            if let Some(found) = find(&mut said) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            said = changed.wait_timeout(said, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Connection {
    /// The end of its input ends an executor; one that does not end is killed.
    fn drop(&mut self) {
        drop(lock(&self.stdin).take());
        let ended = self.until(END_TIME, |said| said.over.clone());
        if ended.is_none() {
            kill(&self.child);
        }
    }
}

fn kill(child: &Mutex<Child>) {
    // One that is gone already cannot be killed.
    let _ = lock(child).kill();
}

fn error_of(executor: &str, over: Over) -> ExecutorError {
    let executor = executor.to_owned();
    match over {
        Over::Garbled(said) => ExecutorError::Garbled { executor, said },
        Over::Died(how) => ExecutorError::Died { executor, how },
    }
}

/// Why an executor did not say hello as it should.
enum Hello {
    Silent,
    Version(u64),
    Over(Over),
}

/// Reads what an executor says, in a thread of its own.
struct Reader {
    child: Arc<Mutex<Child>>,
    said: Arc<(Mutex<Said>, Condvar)>,
}

impl Reader {
    fn read(&self, stdout: ChildStdout, tell: &SyncSender<Result<Vec<String>, Hello>>) {
        let mut stdout = BufReader::with_capacity(64 << 10, stdout);
        let hello = match read_line(&mut stdout) {
            Ok(Some(text)) => read_hello(&text),
            Ok(None) => Err(Hello::Over(self.died())),
            Err(error) => Err(Hello::Over(Over::Garbled(error.to_string()))),
        };
        let is_welcome = hello.is_ok();
        // Nobody waits any more when it was too late.
        let is_awaited = tell.send(hello).is_ok();
        if !(is_welcome && is_awaited) {
            kill(&self.child);
            self.end(Over::Died("was not talked to".to_owned()));
            return self.reap();
        }
        let over = loop {
            let text = match read_line(&mut stdout) {
                Ok(Some(text)) => text,
                Ok(None) => break self.died(),
                Err(error) => break Over::Garbled(error.to_string()),
            };
            match serde_json::from_str::<Reply>(&text) {
                Ok(Reply::Error { why }) => break Over::Garbled(format!("it gave up: {}", clipped(&why))),
                Ok(reply) => {
                    if let Err(why) = self.take(reply) {
                        break Over::Garbled(why);
                    }
                }
                Err(error) => break Over::Garbled(format!("{} ({error})", clipped(&text))),
            }
        };
        kill(&self.child);
        self.end(over);
        self.reap();
    }

    fn take(&self, reply: Reply) -> Result<(), String> {
        let mut said = lock(&self.said.0);
        match reply {
            Reply::Hello { .. } => return Err("hello, twice".to_owned()),
            Reply::Accepted { id } => drop(said.taken.insert(id, None)),
            Reply::Refused { id, why } => drop(said.taken.insert(id, Some(why))),
            Reply::Heard { id, said: told } => {
                if let Some(known) = said.heard.get_mut(&id) {
                    *known = Some(told);
                }
            }
            Reply::Printed { id, stream, data } => {
                let bytes = decode(&data)?;
                if let Some(printed) = said.printed.get(&id).cloned() {
                    drop(said);
                    lock(&printed).append(stream, &bytes);
                }
                return Ok(());
            }
            Reply::Ended { id, outcome } => drop(said.ended.insert(id, Ok(*outcome))),
            Reply::Unseen { id, why } => drop(said.ended.insert(id, Err(why))),
            Reply::Standing { id, standing } => drop(said.standings.insert(id, standing)),
            Reply::Session { session, open } => drop(said.sessions.insert(session, open)),
            Reply::Blob { request, data, last } => {
                let bytes = decode(&data)?;
                let Some(give) = said.pieces.get(&request).cloned() else {
                    return Err(format!("bytes of a blob that nobody asked for (request {request})"));
                };
                if last {
                    said.pieces.remove(&request);
                }
                drop(said);
                // Who asked may have given up, which is no fault of the executor's.
                let _ = give.send(Ok((bytes, last)));
                return Ok(());
            }
            Reply::NoBlob { request, why } => {
                if let Some(give) = said.pieces.remove(&request) {
                    drop(said);
                    let _ = give.send(Err(why));
                    return Ok(());
                }
            }
            Reply::Error { .. } => {}
        }
        drop(said);
        self.said.1.notify_all();
        Ok(())
    }

    /// Nothing more will be said.
    fn end(&self, over: Over) {
        let mut said = lock(&self.said.0);
        said.over.get_or_insert(over);
        // Whoever waits for a piece sees that there is none.
        said.pieces.clear();
        drop(said);
        self.said.1.notify_all();
    }

    /// How it died, once it has closed its stdout.
    fn died(&self) -> Over {
        let deadline = Instant::now() + END_TIME;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = lock(&self.child).try_wait() {
                return Over::Died(match (status.code(), status.signal()) {
                    (Some(code), _) => format!("ended with code {code}"),
                    (None, Some(9)) => "was killed (SIGKILL)".to_owned(),
                    (None, signal) => format!("was ended by signal {}", signal.unwrap_or_default()),
                });
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Over::Died("closed its stdout".to_owned())
    }

    /// Leaves no dead child behind.
    fn reap(&self) {
        let deadline = Instant::now() + END_TIME;
        while Instant::now() < deadline {
            if !matches!(lock(&self.child).try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The kinds of tasks that the executor names in its first line.
fn read_hello(text: &str) -> Result<Vec<String>, Hello> {
    let garbled = || Hello::Over(Over::Garbled(clipped(text)));
    // Another version may say more than its number, and in another way.
    let value: Value = serde_json::from_str(text).map_err(|_| garbled())?;
    match value["protocol"].as_u64().filter(|_| value["type"] == "hello") {
        Some(PROTOCOL) => {}
        Some(theirs) => return Err(Hello::Version(theirs)),
        None => return Err(garbled()),
    }
    match serde_json::from_value(value) {
        Ok(Reply::Hello { tasks, .. }) => Ok(tasks),
        _ => Err(garbled()),
    }
}
