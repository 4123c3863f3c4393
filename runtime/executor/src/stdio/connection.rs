//! The process of an executor, and its messages that were not read yet.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::message::{PROTOCOL, Reply, Request, clip_text, decode_bytes, message_line, read_line};
use crate::progress::Heard;
use crate::{ExecutorError, OrderId, Outcome};
use lobster_base::digest::Digest;
use lobster_base::sync::lock;
use lobster_store::{OutputLog, OutputStream, Redactor, StepOutcome, Store, StoreError};

/// Time limit for an executor's hello and for each immediate answer, unless `LOBSTER_EXECUTOR_HELLO_MS` sets another:
/// on a busy machine a program needs seconds to start.
pub const HELLO_TIME: Duration = Duration::from_secs(30);

/// Time that it has to end after its stdin was closed.
const END_TIME: Duration = Duration::from_secs(2);

/// Pieces of a blob that are buffered for their receiver.
const PIECES: usize = 4;

/// The operator's command for an executor, and its process while it runs.
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

    /// The running process, if there is one.
    pub(super) fn running_connection(&self) -> Option<Arc<Connection>> {
        lock(&self.connection).as_ref().filter(|there| there.is_alive()).map(Arc::clone)
    }

    /// The running process, or a new one.
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

/// The reason why an executor sends nothing more.
#[derive(Clone, Debug)]
enum Over {
    /// It sent something that is not a message.
    Garbled(String),
    /// It is gone.
    Died(String),
}

/// A piece of a blob: its bytes and a flag for the last piece; or the reason why there is none.
pub(super) type Piece = Result<(Vec<u8>, bool), String>;

#[derive(Debug, Default)]
pub(super) struct SaidReplies {
    /// Answers to orders; `None` means accepted.
    taken: HashMap<OrderId, Option<String>>,
    /// The latest progress of followed orders that was not reported yet.
    heard: HashMap<OrderId, Option<Heard>>,
    /// The live storage of the output of orders.
    printed: HashMap<OrderId, Arc<Mutex<Printed>>>,
    ended: HashMap<OrderId, Result<Outcome, String>>,
    /// The answers about sessions: true if open.
    sessions: HashMap<OrderId, bool>,
    pieces: HashMap<u64, SyncSender<Piece>>,
    over: Option<Over>,
}

/// Stores the output of an order. The executor may know fewer secrets.
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
    /// Storage for this effect.
    pub(super) fn for_order(store: &Store, id: &OrderId) -> Self {
        Self {
            log: Some(store.output_log(id.run, &id.path)),
            redactors: [store.new_redactor(), store.new_redactor()],
        }
    }

    fn append_bytes(&mut self, stream: OutputStream, bytes: &[u8]) {
        let Some(log) = &mut self.log else { return };
        match &mut self.redactors[usize::from(stream == OutputStream::Stderr)] {
            None => log.append_piece(stream, bytes),
            Some(redactor) => log.append_piece(stream, &redactor.push_lines(bytes)),
        }
    }

    /// Adds to the outcome the parts of the output that its streams lack.
    pub(super) fn add_to_outcome(mut self, outcome: &mut StepOutcome) -> Result<(), StoreError> {
        let Some(mut log) = self.log.take() else { return Ok(()) };
        for (stream, redactor) in [OutputStream::Stdout, OutputStream::Stderr].into_iter().zip(self.redactors)
        {
            if let Some(redactor) = redactor {
                // The last output of a stopped process may be the beginning of a secret.
                log.append_piece(stream, &redactor.finish_cut());
            }
        }
        let is_short = outcome.stderr.is_some_and(|stderr| stderr.len != log.stderr_len());
        log.finish(outcome, is_short)
    }
}

/// The process of an executor that has sent its hello.
#[derive(Debug)]
pub(super) struct Connection {
    name: String,
    tasks: Vec<String>,
    /// Time limit for immediate answers.
    patience: Duration,
    child: Arc<Mutex<Child>>,
    stdin: Mutex<Option<ChildStdin>>,
    said: Arc<(Mutex<SaidReplies>, Condvar)>,
    requests: AtomicU64,
    /// Blobs that were sent to it.
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
        // A key at the terminal is for this process, which informs the executor.
        let mut child = command.process_group(0).spawn().map_err(missing)?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(missing(io::Error::other("it has no pipes")));
        };
        let child = Arc::new(Mutex::new(child));
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let hello = Request::Hello { protocol: PROTOCOL, version, output: true };
        // A program that does not read sends no hello either, which is reported below.
        let _ = message_line(&hello).and_then(|line| stdin.write_all(line.as_bytes()));
        let (tell, told) = sync_channel(1);
        let said = Arc::new((Mutex::<SaidReplies>::default(), Condvar::new()));
        let reader = Reader { child: Arc::clone(&child), said: Arc::clone(&said) };
        std::thread::Builder::new()
            .name("executor".to_owned())
            .spawn(move || reader.read_messages(stdout, &tell))
            .map_err(missing)?;
        let silent = |_| {
            kill_child(&child);
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

    /// Its name in errors.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// True if it executes tasks of this kind.
    pub(super) fn can_execute(&self, kind: &str) -> bool {
        self.tasks.iter().any(|task| task == kind)
    }

    fn is_alive(&self) -> bool {
        lock(&self.said.0).over.is_none()
    }

    /// Sends a message.
    pub(super) fn send(&self, request: &Request) -> Result<(), ExecutorError> {
        let refused =
            |error: io::Error| ExecutorError::Refused { executor: self.name.clone(), why: error.to_string() };
        let line = message_line(request).map_err(refused)?;
        let written = match lock(&self.stdin).as_mut() {
            Some(stdin) => stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if written.is_ok() {
            return Ok(());
        }
        // A process that does not read is ending, and its exit will be known soon.
        let gone = self.wait_until(END_TIME, |said| said.over.clone());
        kill_child(&self.child);
        let over = gone.unwrap_or_else(|| Over::Died("closed its stdin".to_owned()));
        Err(error_of(&self.name, over))
    }

    /// Waits for its acceptance of the order.
    pub(super) fn wait_for_acceptance(&self, id: &OrderId) -> Result<(), ExecutorError> {
        match self.next(|said| said.taken.remove(id))? {
            None => Ok(()),
            Some(why) => Err(ExecutorError::Refused { executor: self.name.clone(), why }),
        }
    }

    /// The end of the order, if it is known within `patience`.
    pub(super) fn wait_for_end(
        &self,
        id: &OrderId,
        patience: Duration,
    ) -> Result<Option<Result<Outcome, String>>, ExecutorError> {
        let found = self.wait_until(patience, |said| {
            said.ended.remove(id).map(Ok).or_else(|| said.over.clone().map(Err))
        });
        found.transpose().map_err(|over| error_of(&self.name, over))
    }

    /// Stores the progress of the order, until [`unfollow_progress`](Self::unfollow).
    pub(super) fn follow_progress(&self, id: &OrderId) {
        lock(&self.said.0).heard.insert(id.clone(), None);
    }

    /// The latest progress of the order since the previous call.
    pub(super) fn take_progress(&self, id: &OrderId) -> Option<Heard> {
        lock(&self.said.0).heard.get_mut(id)?.take()
    }

    /// Stops storing the progress of the order.
    pub(super) fn unfollow_progress(&self, id: &OrderId) {
        lock(&self.said.0).heard.remove(id);
    }

    /// Stores the output of the order while it arrives, until [`take_printed`](Self::take_printed).
    pub(super) fn store_printed(&self, id: &OrderId, printed: Printed) {
        lock(&self.said.0).printed.insert(id.clone(), Arc::new(Mutex::new(printed)));
    }

    /// Takes back the storage of the order's output.
    pub(super) fn take_printed(&self, id: &OrderId) -> Option<Printed> {
        let printed = lock(&self.said.0).printed.remove(id)?;
        // The reading thread may hold it at this moment.
        Some(std::mem::take(&mut *lock(&printed)))
    }

    /// The executor's answer about a session: true if it is open.
    pub(super) fn wait_for_session(&self, session: &OrderId) -> Result<bool, ExecutorError> {
        self.next(|said| said.sessions.remove(session))
    }

    /// Waits a short time for the message that a session has ended.
    pub(super) fn session_ended(&self, session: &OrderId) {
        self.wait_until(END_TIME, |said| {
            said.sessions.remove(session).map(drop).or(said.over.as_ref().map(|_| ()))
        });
    }

    /// Requests a blob; its pieces arrive through the returned channel.
    pub(super) fn fetch_blob(&self, digest: Digest) -> Result<Receiver<Piece>, ExecutorError> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let (give, take) = sync_channel(PIECES);
        lock(&self.said.0).pieces.insert(request, give);
        self.send(&Request::Fetch { request, digest })?;
        Ok(take)
    }

    /// The reason why nothing more arrives, for a caller that waits for a message.
    pub(super) fn why_over(&self) -> ExecutorError {
        let over = self.wait_until(END_TIME, |said| said.over.clone());
        error_of(&self.name, over.unwrap_or_else(|| Over::Died("stopped answering".to_owned())))
    }

    /// Ends the process with everything that it is doing.
    pub(super) fn kill(&self) {
        kill_child(&self.child);
    }

    /// Waits for an immediate answer. An executor that does not answer is killed, since it may hang.
    fn next<T>(&self, mut find: impl FnMut(&mut SaidReplies) -> Option<T>) -> Result<T, ExecutorError> {
        let said =
            self.wait_until(self.patience, |said| find(said).map(Ok).or_else(|| said.over.clone().map(Err)));
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

    /// Waits up to `patience` for a message that `find` accepts.
    fn wait_until<T>(
        &self,
        patience: Duration,
        mut find: impl FnMut(&mut SaidReplies) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + patience;
        let (said, changed) = &*self.said;
        let mut said: MutexGuard<'_, SaidReplies> = lock(said);
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
    /// An executor ends when its stdin is closed; otherwise it is killed.
    fn drop(&mut self) {
        drop(lock(&self.stdin).take());
        let ended = self.wait_until(END_TIME, |said| said.over.clone());
        if ended.is_none() {
            kill_child(&self.child);
        }
    }
}

fn kill_child(child: &Mutex<Child>) {
    // A process that is already gone cannot be killed.
    let _ = lock(child).kill();
}

fn error_of(executor: &str, over: Over) -> ExecutorError {
    let executor = executor.to_owned();
    match over {
        Over::Garbled(said) => ExecutorError::Garbled { executor, said },
        Over::Died(how) => ExecutorError::Died { executor, how },
    }
}

/// The reason why an executor sent no valid hello.
enum Hello {
    Silent,
    Version(u64),
    Over(Over),
}

/// Reads an executor's messages, in its own thread.
struct Reader {
    child: Arc<Mutex<Child>>,
    said: Arc<(Mutex<SaidReplies>, Condvar)>,
}

impl Reader {
    fn read_messages(&self, stdout: ChildStdout, tell: &SyncSender<Result<Vec<String>, Hello>>) {
        let mut stdout = BufReader::with_capacity(64 << 10, stdout);
        let hello = match read_line(&mut stdout) {
            Ok(Some(text)) => read_hello(&text),
            Ok(None) => Err(Hello::Over(self.wait_for_exit())),
            Err(error) => Err(Hello::Over(Over::Garbled(error.to_string()))),
        };
        let is_welcome = hello.is_ok();
        // If it was too late, the receiver is gone.
        let is_awaited = tell.send(hello).is_ok();
        if !(is_welcome && is_awaited) {
            kill_child(&self.child);
            self.record_end(Over::Died("was rejected".to_owned()));
            return self.reap_child();
        }
        let over = loop {
            let text = match read_line(&mut stdout) {
                Ok(Some(text)) => text,
                Ok(None) => break self.wait_for_exit(),
                Err(error) => break Over::Garbled(error.to_string()),
            };
            match serde_json::from_str::<Reply>(&text) {
                Ok(Reply::Error { why }) => break Over::Garbled(format!("it gave up: {}", clip_text(&why))),
                Ok(reply) => {
                    if let Err(why) = self.take_reply(reply) {
                        break Over::Garbled(why);
                    }
                }
                Err(error) => break Over::Garbled(format!("{} ({error})", clip_text(&text))),
            }
        };
        kill_child(&self.child);
        self.record_end(over);
        self.reap_child();
    }

    fn take_reply(&self, reply: Reply) -> Result<(), String> {
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
                let bytes = decode_bytes(&data)?;
                if let Some(printed) = said.printed.get(&id).cloned() {
                    drop(said);
                    lock(&printed).append_bytes(stream, &bytes);
                }
                return Ok(());
            }
            Reply::Ended { id, outcome } => drop(said.ended.insert(id, Ok(*outcome))),
            Reply::Unseen { id, why } => drop(said.ended.insert(id, Err(why))),
            Reply::Session { session, open } => drop(said.sessions.insert(session, open)),
            Reply::Blob { request, data, last } => {
                let bytes = decode_bytes(&data)?;
                let Some(give) = said.pieces.get(&request).cloned() else {
                    return Err(format!("bytes of a blob for an unknown request ({request})"));
                };
                if last {
                    said.pieces.remove(&request);
                }
                drop(said);
                // The receiver may have given up, which is not the executor's fault.
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
            // No standing is asked for.
            Reply::Standing { .. } | Reply::Error { .. } => {}
        }
        drop(said);
        self.said.1.notify_all();
        Ok(())
    }

    /// Records that there will be no more messages.
    fn record_end(&self, over: Over) {
        let mut said = lock(&self.said.0);
        said.over.get_or_insert(over);
        // Callers that wait for a piece see that there will be none.
        said.pieces.clear();
        drop(said);
        self.said.1.notify_all();
    }

    /// The way in which it ended, after it closed its stdout.
    fn wait_for_exit(&self) -> Over {
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

    /// Waits for the child, so that no zombie remains.
    fn reap_child(&self) {
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
    let garbled = || Hello::Over(Over::Garbled(clip_text(text)));
    // Another version may send more than its number, in another format.
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
