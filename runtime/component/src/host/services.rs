//! `lobster:step/host`: logs, progress, state and blobs; and the record of what
//! an effect learns from the outside.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex, MutexGuard};

use wasmtime::component::Resource;

use crate::host::filesystem::{MAX_OPEN, OpenTicket};
use crate::host::step_wit::host;
use crate::nesting::explain_rejected;
use crate::state::State;
use crate::{BlobError, BlobRead, BlobWrite, Digest, HostCall, HostCallTrace, HostServices, RunError};
use lobster_base::sync::lock;

pub(crate) type Services = Arc<dyn HostServices>;

/// Most bytes that one call returns to the program, however many it requests.
const MAX_CHUNK: u32 = 1 << 20;

#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct BlobReader {
    blob: Box<dyn BlobRead>,
    _ticket: OpenTicket,
}

#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct BlobWriter {
    /// Created by the first write, since the constructor cannot fail.
    blob: Option<(Box<dyn BlobWrite>, OpenTicket)>,
    written: u64,
}

fn too_many_open() -> BlobError {
    BlobError::Limit(format!("a step may have {MAX_OPEN} files and blobs open at once"))
}

fn blob_error(error: BlobError) -> host::BlobError {
    let code = match &error {
        BlobError::NotFound(_) => "not-found",
        BlobError::NotGranted(_) => "not-granted",
        BlobError::Limit(_) => "limit",
        BlobError::Io(_) => "io",
    };
    host::BlobError { code: code.to_owned(), message: error.to_string() }
}

impl host::Host for State {
    fn log(&mut self, level: host::Level, message: String, fields: String) -> wasmtime::Result<()> {
        self.pipes.count_moved(message.len() + fields.len());
        self.pipes.count_logged(message.len() + fields.len())?;
        self.services.log(level, &message, &fields);
        Ok(())
    }

    fn progress(&mut self, done: u64, total: Option<u64>, message: Option<String>) -> wasmtime::Result<()> {
        let length = message.as_ref().map_or(0, String::len);
        self.pipes.count_moved(length);
        self.pipes.count_logged(length)?;
        self.services.report_progress(done, total, message.as_deref());
        Ok(())
    }

    fn state_get(&mut self, key: String) -> wasmtime::Result<Option<String>> {
        self.read_state = true;
        self.read_values = true;
        let value = self.services.state_get(&key);
        self.pipes.count_moved(key.len() + value.as_ref().map_or(0, String::len));
        Ok(value)
    }

    fn state_set(&mut self, key: String, value: String) -> wasmtime::Result<()> {
        self.pipes.count_moved(key.len() + value.len());
        let fail = |message: String| {
            let code = "state".to_owned();
            Err(wasmtime::Error::new(RunError::Step(crate::StepError { code, message, retryable: false })))
        };
        if let Err(error) = serde_json::from_str::<serde::de::IgnoredAny>(&value) {
            let why = explain_rejected("the value is", &value, &error);
            return fail(format!("state-set({key:?}): {why}"));
        }
        self.spend_bytes(key.len() + value.len())?;
        match self.services.state_set(&key, &value) {
            Ok(()) => Ok(()),
            Err(error) => fail(format!("state-set({key:?}): {error}")),
        }
    }
}

impl host::HostBlobReader for State {
    fn open(&mut self, digest: String) -> wasmtime::Result<Result<Resource<BlobReader>, host::BlobError>> {
        // Checked before the store is asked, so that the answer does not reveal its contents.
        if !Digest::from_hex(&digest).is_ok_and(|digest| self.given.holds(&digest)) {
            return Ok(Err(blob_error(BlobError::NotGranted(digest))));
        }
        self.read_state = true;
        let Ok(ticket) = self.files.take_ticket() else { return Ok(Err(blob_error(too_many_open()))) };
        match self.services.blob_open(&digest) {
            Ok(blob) => Ok(Ok(self.table.push(BlobReader { blob, _ticket: ticket })?)),
            Err(error) => Ok(Err(blob_error(error))),
        }
    }

    fn size(&mut self, reader: Resource<BlobReader>) -> wasmtime::Result<u64> {
        Ok(self.table.get(&reader)?.blob.size())
    }

    fn read(
        &mut self,
        reader: Resource<BlobReader>,
        max: u32,
    ) -> wasmtime::Result<Result<Vec<u8>, host::BlobError>> {
        let blob = &mut self.table.get_mut(&reader)?.blob;
        let mut bytes = Vec::new();
        let read = blob.take(max.min(MAX_CHUNK).into()).read_to_end(&mut bytes);
        self.pipes.count_moved(bytes.len());
        Ok(read.map(|_| bytes).map_err(|error| blob_error(error.into())))
    }

    fn drop(&mut self, reader: Resource<BlobReader>) -> wasmtime::Result<()> {
        self.table.delete(reader)?;
        Ok(())
    }
}

impl host::HostBlobWriter for State {
    fn new(&mut self) -> wasmtime::Result<Resource<BlobWriter>> {
        Ok(self.table.push(BlobWriter { blob: None, written: 0 })?)
    }

    fn write(
        &mut self,
        writer: Resource<BlobWriter>,
        bytes: Vec<u8>,
    ) -> wasmtime::Result<Result<(), host::BlobError>> {
        self.pipes.count_moved(bytes.len());
        self.spend_bytes(bytes.len())?;
        let limit = self.stop.limits.output;
        let ticket = self.files.take_ticket();
        let writer = self.table.get_mut(&writer)?;
        writer.written = writer.written.saturating_add(bytes.len() as u64);
        if writer.written > limit {
            let error = BlobError::Limit(format!("a blob may have {limit} bytes (limits.output)"));
            return Ok(Err(blob_error(error)));
        }
        let result = match &mut writer.blob {
            Some((blob, _)) => blob.write_all(&bytes).map_err(BlobError::from),
            None => ticket.map_err(|_| too_many_open()).and_then(|ticket| {
                let mut blob = self.services.blob_create()?;
                blob.write_all(&bytes)?;
                writer.blob = Some((blob, ticket));
                Ok(())
            }),
        };
        Ok(result.map_err(blob_error))
    }

    fn finish(&mut self, writer: Resource<BlobWriter>) -> wasmtime::Result<Result<String, host::BlobError>> {
        let blob = match self.table.delete(writer)?.blob {
            Some((blob, _)) => Ok(blob),
            None => self.services.blob_create(),
        };
        let digest = blob.and_then(BlobWrite::finish);
        if let Some(digest) = digest.as_ref().ok().and_then(|digest| Digest::from_hex(digest).ok()) {
            self.given.add_digest(digest);
        }
        Ok(digest.map_err(blob_error))
    }

    fn drop(&mut self, writer: Resource<BlobWriter>) -> wasmtime::Result<()> {
        self.table.delete(writer)?;
        Ok(())
    }
}

impl State {
    /// Charges the sizes of blobs and values to the write budget of the run.
    fn spend_bytes(&self, bytes: usize) -> wasmtime::Result<()> {
        let limit = self.stop.limits.files;
        let spent = self.files.stage.spend_bytes(bytes as u64);
        spent.map_err(|_| wasmtime::Error::new(RunError::FilesLimit { limit }))
    }
}

/// The trace of a run, shared by all functions that ask the outside. Without a trace, every answer is
/// live.
#[derive(Clone, Default)]
pub(crate) struct Tracer(Option<Arc<Mutex<Trace>>>);

struct Trace {
    inner: Box<dyn HostCallTrace>,
    calls: u64,
    /// Bytes in the record, or bytes that it had when it was made.
    recorded: u64,
    diverged: Option<RunError>,
}

/// Most bytes of requests and answers that are recorded for one run. They are kept in the store with
/// the run.
const MAX_RECORD: u64 = 256 << 20;

impl Tracer {
    pub(crate) fn new(trace: Option<Box<dyn HostCallTrace>>) -> Self {
        Self(trace.map(|inner| Arc::new(Mutex::new(Trace { inner, calls: 0, recorded: 0, diverged: None }))))
    }

    /// Returns an answer of fixed size: the recorded one, or a live one that is then recorded.
    pub(crate) fn traced_answer<const N: usize>(
        &self,
        function: &'static str,
        live: impl FnOnce() -> [u8; N],
    ) -> [u8; N] {
        let mut answer = [0; N];
        self.fill_answer(function, &mut answer, |buffer| buffer.copy_from_slice(&live()));
        answer
    }

    /// Like [`Tracer::traced_answer`], into a buffer. After a divergence the buffer is unchanged and the run
    /// ends at its next check.
    pub(crate) fn fill_answer(
        &self,
        function: &'static str,
        buffer: &mut [u8],
        live: impl FnOnce(&mut [u8]),
    ) {
        let Some(mut trace) = self.lock_trace() else { return live(buffer) };
        let size = (buffer.len() as u64).to_le_bytes();
        let call = HostCall { function, request: &size };
        trace.calls += 1;
        match trace.inner.recorded_answer(&call) {
            Ok(None) => {
                live(buffer);
                trace.inner.record_answer(&call, buffer);
                trace.count_recorded(size.len() + buffer.len());
            }
            Ok(Some(answer)) if answer.len() == buffer.len() => {
                buffer.copy_from_slice(&answer);
                trace.count_recorded(size.len() + buffer.len());
            }
            Ok(Some(answer)) => {
                let message =
                    format!("{function}: the record has {} bytes for {}", answer.len(), buffer.len());
                trace.record_divergence(message);
            }
            Err(message) => trace.record_divergence(message),
        }
    }

    /// True if there is a trace.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Recorded answer, if answers come from a record.
    pub(crate) fn recorded_answer(
        &self,
        function: &'static str,
        request: &[u8],
    ) -> Result<Option<Vec<u8>>, ()> {
        let Some(mut trace) = self.lock_trace() else { return Ok(None) };
        trace.calls += 1;
        let answer = trace.inner.recorded_answer(&HostCall { function, request });
        if let Ok(Some(answer)) = &answer {
            trace.count_recorded(request.len() + answer.len());
        }
        answer.map_err(|message| trace.record_divergence(message))
    }

    /// Records the world's answer to the call that was requested last.
    pub(crate) fn record_answer(&self, function: &'static str, request: &[u8], answer: &[u8]) {
        if let Some(mut trace) = self.lock_trace() {
            trace.inner.record_answer(&HostCall { function, request }, answer);
            trace.count_recorded(request.len() + answer.len());
        }
    }

    /// Error of a run whose record is full. A replay fails after the same call.
    pub(crate) fn overfull_error(&self) -> Option<RunError> {
        let is_full = self.lock_trace()?.recorded > MAX_RECORD;
        is_full.then_some(RunError::AnswersLimit { limit: MAX_RECORD })
    }

    pub(crate) fn take_divergence(&self) -> Option<RunError> {
        self.lock_trace()?.diverged.take()
    }

    fn lock_trace(&self) -> Option<MutexGuard<'_, Trace>> {
        self.0.as_ref().map(|trace| lock(trace))
    }
}

impl Trace {
    fn count_recorded(&mut self, bytes: usize) {
        self.recorded = self.recorded.saturating_add(bytes as u64);
    }

    fn record_divergence(&mut self, message: String) {
        let call = self.calls;
        self.diverged.get_or_insert(RunError::Diverged { call, message });
    }
}
