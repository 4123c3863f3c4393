//! The other side of the protocol: executes the orders that arrive on stdin.

use lobster_base::code::Code;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::message::{
    CHUNK, PROTOCOL, Reply, Request, clip_text, decode_bytes, encode_bytes, message_line, read_line,
    send_chunks,
};
use crate::progress::Heard;
use crate::{
    Executor, HttpEnd, LocalExecutor, Order, OrderId, OrderState, OrderText, Outcome, SecretSource, Watcher,
};
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::digest::Digest;
use lobster_base::sync::lock;
use lobster_component::Engine;
use lobster_credentials::login::HeldLogin;
use lobster_sandbox::Sandbox;
use lobster_stage::StageError;
use lobster_store::{BlobWriter, OutputStream, Redactions, Store, StoreError};

/// The kinds of tasks that a worker executes.
const TASKS: [&str; 4] = ["native", "component", "mcp", "http"];

/// The reason why a worker ends before its input does.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// There is no directory for the output of orders.
    #[error("the worker has no place for blobs in {}, below its state directory (LOBSTER_STATE_DIR): {source}", .place.display())]
    NoPlace { place: PathBuf, source: io::Error },
    /// The output of orders cannot be kept.
    #[error("the worker cannot keep blobs: {0}")]
    Store(#[from] StoreError),
    /// The connection to its lobster failed.
    #[error("the connection to the worker's lobster failed: {0}")]
    Io(#[from] io::Error),
    /// Its lobster sent something that is not a request.
    #[error("the worker received something that is not a request: {0}")]
    Garbled(String),
    /// Its lobster speaks another version of the protocol.
    #[error("the worker speaks version {PROTOCOL} of the protocol, its lobster speaks {0}")]
    Version(u64),
}

/// The resources with which a worker executes orders.
pub struct WorkerServices {
    /// The directory for the output of orders. Steps must not see it.
    pub place: PathBuf,
    /// Values that are hidden from the beginning.
    pub hidden: Redactions,
    /// Starts and confines processes.
    pub sandbox: Arc<Sandbox>,
    /// Loaded components.
    pub components: Engine,
    /// Cancelled when all orders have to end.
    pub cancel: CancelToken,
}

impl WorkerServices {
    /// Executes the orders that arrive on `input` until it ends, then ends those that are still running. Answers go to
    /// `output`.
    ///
    /// The permission for an order was decided by its sender; nothing is decided or recorded here.
    ///
    /// # Errors
    /// If the other side breaks the protocol, or there is no directory for blobs.
    pub fn serve_orders(self, input: impl BufRead, output: impl Write + Send) -> Result<(), WorkerError> {
        let store = Store::scratch_in(&self.place).map_err(|error| match error {
            StoreError::Unusable { path, source } => WorkerError::NoPlace { place: path, source },
            other => WorkerError::Store(other),
        })?;
        let secrets = SentSecrets::new(self.hidden, store.clone());
        let output = Mutex::new(output);
        let tells_output = AtomicBool::new(false);
        let local = LocalExecutor::new(store.clone(), self.sandbox, self.components, &secrets);
        let worker = Worker {
            store,
            secrets: &secrets,
            local: local.with_watcher(Tells(&output, &tells_output)),
            output: &output,
            tells_output: &tells_output,
            jobs: Mutex::default(),
            cancel: self.cancel.child_token(),
        };
        let served = std::thread::scope(|scope| {
            let served = worker.serve_requests(scope, input);
            // Their sender is gone, so their ends would not be seen.
            worker
                .cancel
                .force_cancel(CancelReason::Requested("the lobster that sent the order is gone".to_owned()));
            served
        });
        if let Err(error) = &served {
            // If the reader is gone, it needs no message.
            let _ = worker.send_reply(&Reply::Error { why: error.to_string() });
        }
        served
    }
}

/// Reports progress of orders, and the output of their processes if the other side wants it.
struct Tells<'w, W>(&'w Mutex<W>, &'w AtomicBool);

impl<W: Write + Send> Watcher for Tells<'_, W> {
    fn output_arrived(&self, order: &OrderId, said: Heard) {
        // If the reader is gone, the thread that reads orders notices that.
        let _ = write_reply(self.0, &Reply::Heard { id: order.clone(), said });
    }

    fn bytes_printed(&self, order: &OrderId, stream: OutputStream, bytes: &[u8]) {
        if self.1.load(Ordering::Relaxed) {
            for piece in bytes.chunks(CHUNK) {
                let _ = write_reply(
                    self.0,
                    &Reply::Printed { id: order.clone(), stream, data: encode_bytes(piece) },
                );
            }
        }
    }
}

/// The values of secrets that came with orders.
struct SentSecrets {
    store: Store,
    known: Mutex<(BTreeMap<String, String>, Redactions)>,
}

impl SentSecrets {
    fn new(hidden: Redactions, store: Store) -> Self {
        if !hidden.is_empty() {
            store.set_redactions(hidden.clone());
        }
        Self { store, known: Mutex::new((BTreeMap::new(), hidden)) }
    }

    /// Adds values, and hides them from now on.
    fn add_secrets(&self, secrets: BTreeMap<String, String>) {
        if secrets.is_empty() {
            return;
        }
        let mut known = lock(&self.known);
        for (name, value) in secrets {
            let _ = known.1.add_secret(&name, &value);
            known.0.insert(name, value);
        }
        self.store.set_redactions(known.1.clone());
    }
}

impl SecretSource for SentSecrets {
    fn secret_values(&self, secrets: &BTreeMap<String, String>) -> Result<Vec<(String, String)>, StageError> {
        let known = lock(&self.known);
        let value = |(variable, name): (&String, &String)| {
            let value = known.0.get(name).ok_or_else(|| {
                StageError::permanent(format!("secret {name}: it did not arrive with the order"))
                    .with_code(Code::Secret)
            })?;
            Ok((variable.clone(), value.clone()))
        };
        secrets.iter().map(value).collect()
    }

    /// The sender of the orders has the logins.
    fn secret_login(&self, _: &str) -> Result<Option<Arc<HeldLogin>>, StageError> {
        Ok(None)
    }
}

/// The id of an order that is not understood, and the reason for refusing it. A later lobster may send other kinds of
/// tasks, and other fields.
fn explain_unreadable_order(text: &str, error: &serde_json::Error) -> Option<(OrderId, String)> {
    let order = serde_json::from_str::<serde_json::Value>(text).ok()?.get_mut("order")?.take();
    let id = serde_json::from_value(order["id"].clone()).ok()?;
    let kind = order["task"]["kind"].as_str().filter(|kind| !TASKS.contains(kind));
    let other = kind.map(|kind| format!("it carries out no {kind:?} tasks, only {}", TASKS.join(", ")));
    Some((id, other.unwrap_or_else(|| format!("it cannot read the order: {error}"))))
}

struct Worker<'w, W> {
    store: Store,
    secrets: &'w SentSecrets,
    local: LocalExecutor<'w>,
    output: &'w Mutex<W>,
    tells_output: &'w AtomicBool,
    jobs: Mutex<Jobs>,
    cancel: CancelToken,
}

#[derive(Default)]
struct Jobs {
    running: HashMap<OrderId, CancelToken>,
    ended: HashMap<OrderId, Result<Outcome, String>>,
    /// Orders whose end is reported as soon as it arrives.
    awaited: HashSet<OrderId>,
}

/// A blob that is being received.
struct Incoming {
    writer: BlobWriter,
    hasher: blake3::Hasher,
}

impl<'w, W: Write + Send> Worker<'w, W> {
    fn serve_requests<'scope>(
        &'scope self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        mut input: impl BufRead,
    ) -> Result<(), WorkerError> {
        self.exchange_hello(&mut input)?;
        let mut incoming: HashMap<Digest, Incoming> = HashMap::new();
        while let Some(text) = read_line(&mut input)? {
            let request = match serde_json::from_str::<Request>(&text) {
                Ok(request) => request,
                Err(error) => match explain_unreadable_order(&text, &error) {
                    Some((id, why)) => {
                        self.send_reply(&Reply::Refused { id, why })?;
                        continue;
                    }
                    None => return Err(WorkerError::Garbled(format!("{} ({error})", clip_text(&text)))),
                },
            };
            match request {
                Request::Hello { .. } => return Err(WorkerError::Garbled("hello, twice".to_owned())),
                Request::Blob { digest, data, last } => {
                    let bytes = decode_bytes(&data).map_err(WorkerError::Garbled)?;
                    let blob = incoming.entry(digest).or_insert_with(|| Incoming {
                        writer: self.store.verbatim_writer(),
                        hasher: blake3::Hasher::new(),
                    });
                    blob.hasher.update(&bytes);
                    blob.writer.write_all(&bytes)?;
                    if last && let Some(blob) = incoming.remove(&digest) {
                        let found = Digest::from(*blob.hasher.finalize().as_bytes());
                        if found != digest {
                            let why = format!("bytes with the digest {found} came as the blob {digest}");
                            return Err(WorkerError::Garbled(why));
                        }
                        blob.writer.finish()?;
                    }
                }
                Request::Submit { order, secrets } => self.submit_order(scope, *order, secrets)?,
                Request::Wait { id } => self.tell_end(id)?,
                Request::Look { id } => {
                    let standing = self.order_standing(&id);
                    self.send_reply(&Reply::Standing { id, standing })?;
                }
                Request::Cancel { id, reason, forced } => {
                    if let Some(token) = lock(&self.jobs).running.get(&id) {
                        if forced { token.force_cancel(reason) } else { token.cancel(reason) }
                    }
                }
                Request::Session { session } => {
                    let open = self.local.has_session(&session).unwrap_or(false);
                    self.send_reply(&Reply::Session { session, open })?;
                }
                Request::EndSession { session, cut_off } => {
                    let end = self.local.session_end(&session);
                    // A server may take long to end.
                    scope.spawn(move || {
                        end(cut_off.as_deref());
                        let _ = self.send_reply(&Reply::Session { session, open: false });
                    });
                }
                Request::Fetch { request, digest } => self.send_blob(request, &digest)?,
            }
        }
        Ok(())
    }

    /// Sends the hello, and reads the other side's.
    fn exchange_hello(&self, input: &mut impl BufRead) -> Result<(), WorkerError> {
        let tasks = TASKS.map(str::to_owned).to_vec();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.send_reply(&Reply::Hello { protocol: PROTOCOL, version, tasks })?;
        let Some(text) = read_line(input)? else { return Ok(()) };
        // Another version may send more than its number, in another format.
        let hello: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        self.tells_output.store(hello["output"] == true, Ordering::Relaxed);
        match hello["protocol"].as_u64().filter(|_| hello["type"] == "hello") {
            Some(PROTOCOL) => Ok(()),
            Some(theirs) => Err(WorkerError::Version(theirs)),
            None => Err(WorkerError::Garbled(clip_text(&text))),
        }
    }

    fn submit_order<'scope>(
        &'scope self,
        scope: &'scope std::thread::Scope<'scope, '_>,
        order: Order,
        secrets: BTreeMap<String, String>,
    ) -> io::Result<()> {
        let id = order.id.clone();
        if let Err(why) = self.check_blobs(&order) {
            return self.send_reply(&Reply::Refused { id, why });
        }
        let token = {
            let mut jobs = lock(&self.jobs);
            if jobs.running.contains_key(&id) || jobs.ended.contains_key(&id) {
                drop(jobs);
                return self.send_reply(&Reply::Accepted { id });
            }
            let token = self.cancel.child_token();
            jobs.running.insert(id.clone(), token.clone());
            token
        };
        self.secrets.add_secrets(secrets);
        let started = std::thread::Builder::new()
            .name("order".to_owned())
            .spawn_scoped(scope, move || self.carry_out(&order, &token));
        match started {
            Ok(_) => self.send_reply(&Reply::Accepted { id }),
            Err(error) => {
                lock(&self.jobs).running.remove(&id);
                self.send_reply(&Reply::Refused { id, why: error.to_string() })
            }
        }
    }

    /// Checks that everything that the order names is there.
    fn check_blobs(&self, order: &Order) -> Result<(), String> {
        for blob in order.task.blobs() {
            match self.store.blob_len(&blob.digest) {
                Ok(Some(_)) => {}
                Ok(None) => return Err(format!("the blob {} that it names did not arrive", blob.digest)),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn carry_out(&self, order: &Order, token: &CancelToken) {
        let (id, mut outcome) = (order.id.clone(), self.local.carry_out(order, token));
        let result = if self.cancel.is_cancelled() {
            // The other side did not stop it, so for the run its end is unknown.
            Err("the worker was stopped".to_owned())
        } else {
            self.shorten_body(&mut outcome);
            Ok(outcome)
        };
        let is_awaited = {
            let mut jobs = lock(&self.jobs);
            jobs.running.remove(&id);
            jobs.ended.insert(id.clone(), result);
            jobs.awaited.contains(&id)
        };
        if is_awaited {
            // If the reader is gone, the other thread notices that.
            let _ = self.tell_end(id);
        }
    }

    /// Replaces the long body of an answer by a blob.
    fn shorten_body(&self, outcome: &mut Outcome) {
        if let Some(HttpEnd::Reply { body, .. }) = &mut outcome.http
            && let OrderText::Text(text) = body
            && text.len() > OrderText::MAX_INLINE
            && let Ok(blob) = self.store.put_verbatim(text.as_bytes())
        {
            *body = OrderText::Blob(blob);
        }
    }

    /// Reports the end of an order, now or when it arrives. A reported end is forgotten.
    fn tell_end(&self, id: OrderId) -> io::Result<()> {
        let result = {
            let mut jobs = lock(&self.jobs);
            match jobs.ended.remove(&id) {
                Some(result) => {
                    jobs.awaited.remove(&id);
                    Some(result)
                }
                None if jobs.running.contains_key(&id) => {
                    jobs.awaited.insert(id.clone());
                    None
                }
                None => Some(Err("it was never accepted here".to_owned())),
            }
        };
        match result {
            None => Ok(()),
            Some(Ok(outcome)) => {
                let ended = Reply::Ended { id: id.clone(), outcome: Box::new(outcome) };
                match self.send_reply(&ended) {
                    // Longer than the longest line: without this message the end would not be known there.
                    Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                        self.send_reply(&Reply::Unseen { id, why: error.to_string() })
                    }
                    said => said,
                }
            }
            Some(Err(why)) => self.send_reply(&Reply::Unseen { id, why }),
        }
    }

    fn order_standing(&self, id: &OrderId) -> OrderState {
        let jobs = lock(&self.jobs);
        match jobs.ended.get(id) {
            Some(Ok(outcome)) => OrderState::Ended(Box::new(outcome.clone())),
            Some(Err(_)) => OrderState::Lost,
            None if jobs.running.contains_key(id) => OrderState::Running,
            None => OrderState::Unknown,
        }
    }

    fn send_blob(&self, request: u64, digest: &Digest) -> io::Result<()> {
        let no_blob = |why: String| self.send_reply(&Reply::NoBlob { request, why });
        let reader = match self.store.open_blob(digest) {
            Ok(reader) => reader,
            Err(error) => return no_blob(error.to_string()),
        };
        match send_chunks(reader, |data, last| self.send_reply(&Reply::Blob { request, data, last }))? {
            Ok(()) => Ok(()),
            Err(error) => no_blob(error.to_string()),
        }
    }

    fn send_reply(&self, reply: &Reply) -> io::Result<()> {
        write_reply(self.output, reply)
    }
}

fn write_reply(output: &Mutex<impl Write>, reply: &Reply) -> io::Result<()> {
    let line = message_line(reply)?;
    let mut output = lock(output);
    output.write_all(line.as_bytes())?;
    output.flush()
}
