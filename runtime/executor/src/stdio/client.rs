//! The executor that sends its orders to another program.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connection::{Connection, ExecutorProgram, Printed};
use super::message::{Request, send_chunks};
use crate::change_sets::{CHANGES, load_change_set};
use crate::progress::Progress;
use crate::{
    Executor, ExecutorError, HttpEnd, NO_CALLS, Order, OrderId, OrderText, Outcome, SecretSource, SessionEnd,
    Task,
};
use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;
use lobster_base::sync::lock;
use lobster_store::{Blob, BlobWriter, PARTIAL_STDOUT, Store, StoreError};

/// Interval at which a waiting thread checks for cancellation.
const GLANCE: Duration = Duration::from_millis(20);

/// Time that an executor has to end a cancelled order, in addition to the grace time of its process.
const CANCEL_TIME: Duration = Duration::from_secs(15);

/// Sends orders to a program, and fetches their outcomes and blobs.
pub struct StdioExecutor<'h> {
    program: Arc<ExecutorProgram>,
    store: Store,
    secrets: &'h dyn SecretSource,
    /// The watcher of orders.
    progress: Option<&'h dyn Progress>,
}

impl<'h> StdioExecutor<'h> {
    /// Starts nothing yet.
    pub fn new(program: Arc<ExecutorProgram>, store: Store, secrets: &'h dyn SecretSource) -> Self {
        Self { program, store, secrets, progress: None }
    }

    /// The same, with a watcher of the run.
    pub fn with_progress(self, progress: Option<&'h dyn Progress>) -> Self {
        Self { progress, ..self }
    }

    /// Sends a blob that the order names, unless the executor already has it from an earlier order.
    fn send_blob(&self, connection: &Connection, blob: Blob) -> Result<(), ExecutorError> {
        let executor = || connection.name().to_owned();
        let unreadable =
            |why: String| ExecutorError::NoBlob { executor: executor(), digest: blob.digest, why };
        let mut sent = lock(&connection.sent);
        if sent.contains(&blob.digest) {
            return Ok(());
        }
        let reader = self.store.open_blob(&blob.digest).map_err(|error| unreadable(error.to_string()))?;
        let send = |data, last| connection.send(&Request::Blob { digest: blob.digest, data, last });
        send_chunks(reader, send)?.map_err(|error| unreadable(error.to_string()))?;
        sent.insert(blob.digest);
        Ok(())
    }

    /// Takes over the blobs of an outcome, under their names in this store, which may know more secrets than the
    /// executor.
    fn take_blobs(&self, connection: &Connection, mut outcome: Outcome) -> Result<Outcome, ExecutorError> {
        let cut = outcome.step.detail.get(PARTIAL_STDOUT).cloned();
        let mut verbatim = true;
        let step = &mut outcome.step;
        for blob in [&mut step.stdout, &mut step.stderr, &mut step.output].into_iter().flatten() {
            let kept = self.take_blob(connection, *blob, false)?;
            verbatim &= kept == *blob;
            *blob = kept;
        }
        if let Some(blob) = cut.and_then(|cut| serde_json::from_value::<Blob>(cut).ok()) {
            let kept = self.take_blob(connection, blob, true)?;
            outcome.step.detail[PARTIAL_STDOUT] = serde_json::json!(kept);
        }
        self.take_calls(connection, &mut outcome)?;
        self.take_changes(connection, &outcome)?;
        for blob in &outcome.wrote {
            // The component's output names the blob, so it is kept under this name or not at all.
            if self.take_blob(connection, *blob, false)?.digest != blob.digest {
                let why = "it holds a secret, which is hidden here".to_owned();
                return Err(ExecutorError::NoBlob {
                    executor: connection.name().to_owned(),
                    digest: blob.digest,
                    why,
                });
            }
        }
        if let Some(values) = &mut outcome.values {
            *values = self.take_blob(connection, *values, false)?;
        }
        if let Some(HttpEnd::Reply { body, .. }) = &mut outcome.http
            && let OrderText::Blob(blob) = *body
        {
            *body = OrderText::Text(self.take_text(connection, blob)?);
        }
        // The executor's check was about other bytes.
        outcome.plain_json =
            outcome.plain_json.filter(|_| verbatim && self.store.blob_writer().is_verbatim());
        Ok(outcome)
    }

    /// Takes over a change set, with the contents that it names, unchanged: they are committed and not shown.
    fn take_changes(&self, connection: &Connection, outcome: &Outcome) -> Result<(), ExecutorError> {
        let Some(told) = outcome.step.detail.get(CHANGES) else { return Ok(()) };
        let garbled = |said: String| ExecutorError::Garbled { executor: connection.name().to_owned(), said };
        let blob: Blob = serde_json::from_value(told.clone())
            .map_err(|_| garbled(format!("{told} as the blob of a change set")))?;
        self.take_verbatim(connection, blob.digest)?;
        let set = load_change_set(&self.store, &blob.digest).map_err(|error| garbled(error.message))?;
        set.content_digests().iter().try_for_each(|content| self.take_verbatim(connection, *content))
    }

    fn take_verbatim(&self, connection: &Connection, digest: Digest) -> Result<(), ExecutorError> {
        self.take_into(connection, digest, self.store.verbatim_writer(), false).map(drop)
    }

    /// Takes over the record of a component's calls to the outside.
    fn take_calls(&self, connection: &Connection, outcome: &mut Outcome) -> Result<(), ExecutorError> {
        let Some(calls) = outcome.step.detail.get("host_calls").and_then(serde_json::Value::as_str) else {
            return Ok(());
        };
        if calls == NO_CALLS {
            return Ok(());
        }
        let garbled = |_| ExecutorError::Garbled {
            executor: connection.name().to_owned(),
            said: format!("{calls:?} as the digest of a record of calls"),
        };
        let digest: Digest = calls.parse().map_err(garbled)?;
        // Its length is not known here; nothing is allocated by it.
        let kept = self.take_blob(connection, Blob { digest, len: 0 }, false)?;
        outcome.step.detail["host_calls"] = serde_json::json!(kept.digest);
        Ok(())
    }

    /// Takes over text that is not kept here.
    fn take_text(&self, connection: &Connection, blob: Blob) -> Result<String, ExecutorError> {
        let mut bytes = Vec::new();
        self.receive_blob(connection, blob.digest, |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        String::from_utf8(bytes).map_err(|error| ExecutorError::Garbled {
            executor: connection.name().to_owned(),
            said: format!("an answer that is not UTF-8 ({error})"),
        })
    }

    /// Receives the bytes of a blob, and compares them with its digest.
    fn receive_blob(
        &self,
        connection: &Connection,
        digest: Digest,
        mut take: impl FnMut(&[u8]) -> Result<(), StoreError>,
    ) -> Result<(), ExecutorError> {
        let executor = || connection.name().to_owned();
        let pieces = connection.fetch_blob(digest)?;
        let mut hasher = blake3::Hasher::new();
        loop {
            let (bytes, last) = match pieces.recv() {
                Ok(Ok(piece)) => piece,
                Ok(Err(why)) => return Err(ExecutorError::NoBlob { executor: executor(), digest, why }),
                Err(_) => return Err(connection.why_over()),
            };
            hasher.update(&bytes);
            take(&bytes).map_err(|source| ExecutorError::Store { executor: executor(), source })?;
            if last {
                break;
            }
        }
        match Digest::from(*hasher.finalize().as_bytes()) {
            found if found == digest => Ok(()),
            found => Err(ExecutorError::WrongBlob { executor: executor(), digest, found }),
        }
    }

    /// Takes over a blob; with `cut`, it may end in the middle of a secret.
    fn take_blob(&self, connection: &Connection, blob: Blob, cut: bool) -> Result<Blob, ExecutorError> {
        let executor = || connection.name().to_owned();
        let store = |source: StoreError| ExecutorError::Store { executor: executor(), source };
        let known = self.store.blob_writer().is_verbatim().then(|| self.store.blob_len(&blob.digest));
        if let Some(Some(_)) = known.transpose().map_err(store)? {
            // The same bytes under the same name, written again so that gc keeps them.
            let mut reader = self.store.open_blob(&blob.digest).map_err(store)?;
            let mut writer = self.store.blob_writer();
            std::io::copy(&mut reader, &mut writer).map_err(|error| store(writer.store_error(error)))?;
            return writer.finish().map_err(store);
        }
        self.take_into(connection, blob.digest, self.store.blob_writer(), cut)
    }

    fn take_into(
        &self,
        connection: &Connection,
        digest: Digest,
        mut writer: BlobWriter,
        cut: bool,
    ) -> Result<Blob, ExecutorError> {
        let store = |source| ExecutorError::Store { executor: connection.name().to_owned(), source };
        self.receive_blob(connection, digest, |piece| {
            writer.write_all(piece).map_err(|error| writer.store_error(error))
        })?;
        if cut { writer.finish_cut() } else { writer.finish() }.map_err(store)
    }
}

impl Executor for StdioExecutor<'_> {
    fn execute(&self, order: Order, cancel: &CancelToken) -> Result<Outcome, ExecutorError> {
        let secrets = order.task.secrets();
        let values = self.secrets.secret_values(&secrets).map_err(ExecutorError::Secret)?;
        // By the names of the secrets, which the order has.
        let values = values.into_iter().filter_map(|(variable, value)| {
            let name = secrets.get(&variable)?;
            Some((name.clone(), value))
        });
        let secrets = values.collect();
        let connection = self.program.connect()?;
        if !connection.can_execute(order.task.kind()) {
            let why = format!("it carries out no {:?} tasks", order.task.kind());
            let refused = ExecutorError::Refused { executor: connection.name().to_owned(), why };
            return Err(ExecutorError::Unsent(Box::new(refused)));
        }
        for blob in order.task.blobs() {
            self.send_blob(&connection, blob)?;
        }
        let id = order.id.clone();
        let grace = match &order.task {
            Task::Native(task) => task.limits.term_grace,
            Task::Component(_) | Task::Mcp(_) | Task::Http(_) => Duration::ZERO,
        };
        if let Task::Native(_) = order.task {
            connection.store_printed(&id, Printed::for_order(&self.store, &id));
        }
        connection.send(&Request::Submit { order: Box::new(order), secrets })?;
        connection.wait_for_acceptance(&id)?;
        connection.follow_progress(&id);
        connection.send(&Request::Wait { id: id.clone() })?;
        // Time at which the order was cancelled, and true if it was forced.
        let mut told: Option<(Instant, bool)> = None;
        let ended = loop {
            if let Some(ended) = connection.wait_for_end(&id, GLANCE)? {
                break ended;
            }
            if let (Some(progress), Some(said)) = (self.progress, connection.take_progress(&id)) {
                progress.output_arrived(id.place(), &said);
            }
            if let Some(reason) = cancel.reason() {
                let forced = cancel.is_forced();
                if told.is_none_or(|(_, at_once)| forced && !at_once) {
                    let reason = reason.for_executor();
                    connection.send(&Request::Cancel { id: id.clone(), reason, forced })?;
                    told = Some((told.map_or_else(Instant::now, |(since, _)| since), forced));
                }
            }
            if told.is_some_and(|(since, _)| since.elapsed() > CANCEL_TIME + grace) {
                connection.kill();
                return Err(connection.why_over());
            }
        };
        connection.unfollow_progress(&id);
        let printed = connection.take_printed(&id);
        let executor = || connection.name().to_owned();
        let ended = ended.map_err(|why| {
            let how = format!("lost the order: {why},");
            ExecutorError::Died { executor: executor(), how }
        })?;
        let mut outcome = self.take_blobs(&connection, ended)?;
        let named = printed.map_or(Ok(()), |printed| printed.add_to_outcome(&mut outcome.step));
        named.map_err(|source| ExecutorError::Store { executor: executor(), source })?;
        Ok(outcome)
    }

    fn has_session(&self, session: &OrderId) -> Result<bool, ExecutorError> {
        // Asks the current process; the sessions of an earlier process ended with it.
        let connection = self.program.connect()?;
        connection.send(&Request::Session { session: session.clone() })?;
        connection.wait_for_session(session)
    }

    fn session_end(&self, session: &OrderId) -> SessionEnd {
        let (program, session) = (Arc::clone(&self.program), session.clone());
        Arc::new(move |cut_off| {
            // If the process is gone, its sessions have ended.
            let Some(connection) = program.running_connection() else { return };
            let request =
                Request::EndSession { session: session.clone(), cut_off: cut_off.map(str::to_owned) };
            if connection.send(&request).is_ok() {
                connection.session_ended(&session);
            }
        })
    }
}
