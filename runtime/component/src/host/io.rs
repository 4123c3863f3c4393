//! `lobster:step/io` and the standard streams: a program reads its input and writes its output in
//! bounded memory.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde::de::IgnoredAny;
use serde_json::Value;
use wasmtime::component::Resource;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdinStream, StdoutStream};
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use crate::host::step_wit::io as wit;
use crate::nesting::explain_rejected;
use crate::schema::Schema;
use crate::state::State;
use crate::{Input, Limits, OutputSink, RunError};
use lobster_base::sync::lock;

/// Most bytes that one call returns to the program, however many it requests.
const MAX_CHUNK: usize = 1 << 20;

/// Longest byte input that is passed as one text item.
const MAX_TEXT: u64 = 16 << 20;

/// Most memory that checking one item against a schema may take.
const MAX_CHECKED: usize = 32 << 20;

/// Most bytes that a standard stream reads or writes at once.
const STREAM_CHUNK: usize = 64 << 10;

/// Bytes of stderr that are kept for error messages.
const TAIL: usize = 8 << 10;

/// Streams of one run. Clones share the streams.
#[derive(Clone)]
pub(crate) struct Pipes {
    input: Arc<Mutex<InputPipe>>,
    output: Arc<Mutex<OutputPipe>>,
    stderr: Arc<Mutex<ErrPipe>>,
    /// Bytes moved that are not yet paid for.
    moved: Arc<AtomicU64>,
}

struct InputPipe {
    source: Input,
    /// Rest of an item that did not fit in the last `read`.
    pending: VecDeque<u8>,
    schema: Option<Arc<Schema>>,
    items: u64,
    failed: Option<String>,
}

struct OutputPipe {
    sink: Box<dyn OutputSink>,
    limits: Limits,
    bytes: u64,
    items: u64,
    form: Option<Form>,
    schema: Option<Arc<Schema>>,
    overflowed: bool,
    /// Reason why the last output was refused.
    refused: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Bytes,
    Items,
}

struct ErrPipe {
    sink: Box<dyn Write + Send>,
    limits: Limits,
    bytes: u64,
    tail: VecDeque<u8>,
}

/// Totals that the streams carried.
pub(crate) struct Carried {
    pub(crate) bytes: u64,
    pub(crate) items: u64,
}

impl Pipes {
    pub(crate) fn new(
        input: Input,
        output: Box<dyn OutputSink>,
        stderr: Box<dyn Write + Send>,
        limits: Limits,
        schemas: (Option<Arc<Schema>>, Option<Arc<Schema>>),
    ) -> Self {
        let input =
            InputPipe { source: input, pending: VecDeque::new(), schema: schemas.0, items: 0, failed: None };
        let output = OutputPipe {
            sink: output,
            limits,
            bytes: 0,
            items: 0,
            form: None,
            schema: schemas.1,
            overflowed: false,
            refused: None,
        };
        let stderr = ErrPipe { sink: stderr, limits, bytes: 0, tail: VecDeque::new() };
        Self {
            input: Arc::new(Mutex::new(input)),
            output: Arc::new(Mutex::new(output)),
            stderr: Arc::new(Mutex::new(stderr)),
            moved: Arc::default(),
        }
    }

    /// Counts bytes that the run pays for in fuel.
    pub(crate) fn count_moved(&self, bytes: usize) {
        self.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes of log output that do not go to stderr.
    pub(crate) fn count_logged(&self, bytes: usize) -> wasmtime::Result<()> {
        lock(&self.stderr).count_bytes(bytes).map_err(wasmtime::Error::new)
    }

    /// Bytes moved since the last call of this function.
    pub(crate) fn take_moved(&self) -> u64 {
        self.moved.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn carried_output(&self) -> Carried {
        let output = lock(&self.output);
        Carried { bytes: output.bytes, items: output.items }
    }

    /// Error of a stream, even if the program ignored it.
    pub(crate) fn stream_failure(&self) -> Option<RunError> {
        if let Some(message) = lock(&self.input).failed.take() {
            return Some(RunError::InputFailed { message });
        }
        let output = lock(&self.output);
        output.overflowed.then(|| output.limits.output_exceeded())
    }

    /// Reason why the last output was refused; `None` if it was accepted.
    pub(crate) fn refused_output(&self) -> Option<String> {
        lock(&self.output).refused.clone()
    }

    pub(crate) fn stderr_tail(&self) -> String {
        let bytes: Vec<u8> = lock(&self.stderr).tail.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl InputPipe {
    fn record_failure(&mut self, error: &io::Error) -> wit::StreamError {
        self.failed.get_or_insert_with(|| error.to_string());
        stream_error("io", error.to_string())
    }

    /// Next item, checked against the schema.
    fn next_item(&mut self) -> wasmtime::Result<Option<io::Result<String>>> {
        let Input::Items(items) = &mut self.source else { return Ok(None) };
        let item = items.next();
        if let Some(Ok(item)) = &item {
            if let Some(schema) = &self.schema {
                let misfit = match parse_to_check(item) {
                    Ok(value) => schema.check_value(&value).err().map(|m| (m.path, m.message)),
                    Err(message) => Some(("$".to_owned(), message)),
                };
                if let Some((path, message)) = misfit {
                    let item = self.items + 1;
                    return Err(wasmtime::Error::new(RunError::BadInput { item, path, message }));
                }
            }
            self.items += 1;
        }
        Ok(item)
    }

    /// Up to `max` bytes; empty at the end. Items are returned as JSON Lines.
    fn read_chunk(&mut self, max: usize) -> wasmtime::Result<io::Result<Vec<u8>>> {
        let max = max.min(MAX_CHUNK);
        if let Input::Bytes(reader) = &mut self.source {
            return Ok(read_some(reader, max));
        }
        while self.pending.len() < max {
            match self.next_item()? {
                Some(Ok(item)) => {
                    self.pending.extend(item.as_bytes());
                    self.pending.push_back(b'\n');
                }
                Some(Err(error)) => return Ok(Err(error)),
                None => break,
            }
        }
        let take = max.min(self.pending.len());
        Ok(Ok(self.pending.drain(..take).collect()))
    }

    /// Up to `max` items; empty at the end. Byte input is one text item.
    fn next(&mut self, max: u32) -> wasmtime::Result<io::Result<Vec<String>>> {
        if let Input::Bytes(reader) = &mut self.source {
            let mut text = String::new();
            let read = reader.take(MAX_TEXT + 1).read_to_string(&mut text);
            self.source = Input::Empty;
            if text.len() as u64 > MAX_TEXT {
                let message = format!(
                    "the input is longer than {MAX_TEXT} bytes: take it with `read`, not as one item"
                );
                return Ok(Err(io::Error::other(message)));
            }
            return Ok(read.and_then(|size| {
                let item = serde_json::to_string(&text).map_err(io::Error::other)?;
                Ok(if size == 0 { Vec::new() } else { vec![item] })
            }));
        }
        let (mut items, mut size) = (Vec::new(), 0);
        while (items.len() as u64) < u64::from(max) && size < MAX_CHUNK {
            match self.next_item()? {
                Some(Ok(item)) => {
                    size += item.len();
                    items.push(item);
                }
                Some(Err(error)) => return Ok(Err(error)),
                None => break,
            }
        }
        Ok(Ok(items))
    }
}

/// Parses an item that is to be checked against a schema.
fn parse_to_check(item: &str) -> Result<Value, String> {
    let values = item.bytes().filter(|byte| matches!(byte, b',' | b':' | b'[' | b'{')).count();
    if item.len() + values * 4 * size_of::<Value>() > MAX_CHECKED {
        return Err(format!("it is too large to be checked ({} bytes, about {values} values)", item.len()));
    }
    lobster_base::json::parse_message(item.as_bytes())
        .map_err(|error| explain_rejected("it is", item, &error))
}

/// Reads at most `max` bytes. Programs request far more than is available, so the buffer is kept for
/// the next call.
fn read_some(reader: &mut dyn Read, max: usize) -> io::Result<Vec<u8>> {
    thread_local! {
        static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }
    let mut room = ROOM.take();
    if room.len() < max {
        room.resize(max, 0);
    }
    let read = loop {
        match reader.read(&mut room[..max]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => break result.map(|read| room[..read].to_vec()),
        }
    };
    ROOM.set(room);
    read
}

fn stream_error(code: &str, message: impl Into<String>) -> wit::StreamError {
    wit::StreamError { code: code.to_owned(), message: message.into() }
}

/// Result for the step of writing output; the outer error ends the run.
type Put = wasmtime::Result<Result<(), wit::StreamError>>;

impl OutputPipe {
    /// Reports output over the limit to the step once, so that it can write to stderr; the next write
    /// ends the run.
    fn admit_output(&mut self, form: Form, size: u64) -> Put {
        if *self.form.get_or_insert(form) != form {
            let message = "a step writes bytes or emits items, not both";
            return Ok(Err(stream_error("mixed-output", message)));
        }
        let limit = self.limits.output;
        if self.overflowed {
            return Err(wasmtime::Error::new(self.limits.output_exceeded()));
        }
        let bytes = self.bytes.saturating_add(size);
        if bytes > limit {
            self.overflowed = true;
            let message = format!("the step may put out {limit} bytes");
            return Ok(Err(stream_error("output-limit", message)));
        }
        self.bytes = bytes;
        Ok(Ok(()))
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Put {
        if let Err(refused) = self.admit_output(Form::Bytes, bytes.len() as u64)? {
            return Ok(Err(refused));
        }
        self.sink.write_bytes(bytes).map(Ok).map_err(sink_failed)
    }

    fn emit_items(&mut self, items: &[String]) -> Put {
        for item in items {
            if let Err(refused) = self.emit_one(item)? {
                return Ok(Err(refused));
            }
        }
        Ok(Ok(()))
    }

    /// Keeps the reason if output was refused, in case the program does not survive the refusal.
    fn keep_refusal(&mut self, put: Put) -> Put {
        self.refused = match &put {
            Ok(Err(refused)) => Some(refused.message.clone()),
            Ok(Ok(())) | Err(_) => None,
        };
        put
    }

    fn emit_one(&mut self, item: &str) -> Put {
        if let Err(refused) = self.admit_output(Form::Items, item.len() as u64 + 1)? {
            return Ok(Err(refused));
        }
        let number = self.items + 1;
        let invalid = |message: String| {
            Ok(Err(stream_error("invalid-json", format!("output item {number} is not usable: {message}"))))
        };
        if let Some(schema) = &self.schema {
            let value = match parse_to_check(item) {
                Ok(value) => value,
                Err(message) => return invalid(message),
            };
            if let Err(misfit) = schema.check_value(&value) {
                let (path, message) = (misfit.path, misfit.message);
                return Err(wasmtime::Error::new(RunError::BadOutput { item: number, path, message }));
            }
        } else if let Err(error) = serde_json::from_str::<IgnoredAny>(item) {
            return invalid(explain_rejected("it is", item, &error));
        }
        self.items += 1;
        // In valid JSON, a line break can only occur between tokens.
        let item = item.trim();
        let kept = if item.contains(['\n', '\r']) {
            self.sink.write_item(&item.replace(['\n', '\r'], " "))
        } else {
            self.sink.write_item(item)
        };
        kept.map(Ok).map_err(sink_failed)
    }
}

fn sink_failed(error: io::Error) -> wasmtime::Error {
    wasmtime::Error::new(RunError::OutputFailed { message: error.to_string() })
}

impl ErrPipe {
    fn count_bytes(&mut self, bytes: usize) -> Result<(), RunError> {
        let total = self.bytes.saturating_add(bytes as u64);
        if total > self.limits.output {
            return Err(self.limits.output_exceeded());
        }
        self.bytes = total;
        Ok(())
    }

    fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), RunError> {
        self.count_bytes(bytes.len())?;
        self.tail.extend(&bytes[bytes.len().saturating_sub(TAIL)..]);
        let excess = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..excess);
        // Losing log output is no reason to fail the step.
        if let Err(error) = self.sink.write_all(bytes) {
            tracing::debug!(%error, "cannot write the stderr of a step");
        }
        Ok(())
    }
}

/// The program's handle of its input; the run owns the stream itself.
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct StepInput;

/// The program's handle of its output.
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct StepOutput;

impl wit::Host for State {}

impl wit::HostInput for State {
    fn payload(&mut self, _: Resource<StepInput>) -> wasmtime::Result<wit::Payload> {
        Ok(match lock(&self.pipes.input).source {
            Input::Empty => wit::Payload::Empty,
            Input::Bytes(_) => wit::Payload::Bytes,
            Input::Items(_) => wit::Payload::Items,
        })
    }

    fn read(
        &mut self,
        _: Resource<StepInput>,
        max: u32,
    ) -> wasmtime::Result<Result<Vec<u8>, wit::StreamError>> {
        let mut input = lock(&self.pipes.input);
        let read = input.read_chunk(max as usize)?;
        self.pipes.count_moved(read.as_ref().map_or(0, Vec::len));
        self.given.add_bytes(read.as_deref().unwrap_or_default());
        Ok(read.map_err(|error| input.record_failure(&error)))
    }

    fn next(
        &mut self,
        _: Resource<StepInput>,
        max: u32,
    ) -> wasmtime::Result<Result<Vec<String>, wit::StreamError>> {
        let mut input = lock(&self.pipes.input);
        let items = input.next(max)?;
        self.pipes.count_moved(items.iter().flatten().map(String::len).sum());
        items.iter().flatten().for_each(|item| self.given.add_text(item));
        Ok(items.map_err(|error| input.record_failure(&error)))
    }

    fn drop(&mut self, input: Resource<StepInput>) -> wasmtime::Result<()> {
        self.table.delete(input)?;
        Ok(())
    }
}

impl wit::HostOutput for State {
    fn write(&mut self, _: Resource<StepOutput>, bytes: Vec<u8>) -> Put {
        self.pipes.count_moved(bytes.len());
        let mut output = lock(&self.pipes.output);
        let put = output.write_bytes(&bytes);
        output.keep_refusal(put)
    }

    fn emit(&mut self, _: Resource<StepOutput>, items: Vec<String>) -> Put {
        self.pipes.count_moved(items.iter().map(String::len).sum());
        let mut output = lock(&self.pipes.output);
        let put = output.emit_items(&items);
        output.keep_refusal(put)
    }

    fn drop(&mut self, output: Resource<StepOutput>) -> wasmtime::Result<()> {
        self.table.delete(output)?;
        Ok(())
    }
}

/// Target of a standard stream.
#[derive(Clone)]
pub(crate) enum Stdio {
    /// stdin of a command program.
    Input(Pipes),
    /// stdout of a command program.
    Output(Pipes),
    /// stderr, and the stdout of a step, whose output does not go to stdout.
    Talk(Pipes),
}

impl IsTerminal for Stdio {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdinStream for Stdio {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncRead + Send + Sync> {
        Box::new(tokio::io::empty())
    }

    fn p2_stream(&self) -> Box<dyn InputStream> {
        Box::new(self.clone())
    }
}

impl StdoutStream for Stdio {
    fn async_stream(&self) -> Box<dyn tokio::io::AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Stdio {
    async fn ready(&mut self) {}
}

#[async_trait]
impl InputStream for Stdio {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let Self::Input(pipes) = self else { return Err(StreamError::Closed) };
        if size == 0 {
            return Ok(Bytes::new());
        }
        let mut input = lock(&pipes.input);
        match input.read_chunk(size.min(STREAM_CHUNK)).map_err(StreamError::Trap)? {
            Ok(bytes) if bytes.is_empty() => Err(StreamError::Closed),
            Ok(bytes) => {
                pipes.count_moved(bytes.len());
                Ok(bytes.into())
            }
            Err(error) => {
                input.record_failure(&error);
                Err(StreamError::LastOperationFailed(wasmtime::Error::new(error)))
            }
        }
    }
}

#[async_trait]
impl OutputStream for Stdio {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        match self {
            Self::Output(pipes) => {
                pipes.count_moved(bytes.len());
                let mut output = lock(&pipes.output);
                let refused = output.write_bytes(&bytes).map_err(StreamError::Trap)?.is_err();
                if refused {
                    let exceeded = output.limits.output_exceeded();
                    return Err(StreamError::Trap(wasmtime::Error::new(exceeded)));
                }
                Ok(())
            }
            Self::Talk(pipes) => {
                pipes.count_moved(bytes.len());
                lock(&pipes.stderr)
                    .write_bytes(&bytes)
                    .map_err(|e| StreamError::Trap(wasmtime::Error::new(e)))
            }
            Self::Input(_) => Err(StreamError::Closed),
        }
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(STREAM_CHUNK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item_source(texts: &[&str]) -> Input {
        let texts: Vec<_> = texts.iter().map(|t| Ok((*t).to_owned())).collect();
        Input::Items(Box::new(texts.into_iter()))
    }

    fn input_pipe(source: Input) -> InputPipe {
        InputPipe { source, pending: VecDeque::new(), schema: None, items: 0, failed: None }
    }

    #[test]
    fn items_read_as_json_lines_in_any_portion() {
        let mut pipe = input_pipe(item_source(&["1", "[2]", "\"three\""]));
        let mut text = Vec::new();
        loop {
            let Ok(Ok(part)) = pipe.read_chunk(3) else { panic!("reads") };
            assert!(part.len() <= 3);
            if part.is_empty() {
                break;
            }
            text.extend(part);
        }
        assert_eq!(text, b"1\n[2]\n\"three\"\n");
    }

    #[test]
    fn bytes_are_one_text_item() {
        let mut pipe = input_pipe(Input::Bytes(Box::new(&b"a\"b"[..])));
        assert!(matches!(pipe.next(9), Ok(Ok(items)) if items == [r#""a\"b""#]));
        assert!(matches!(pipe.next(9), Ok(Ok(items)) if items.is_empty()));
        let mut bad = input_pipe(Input::Bytes(Box::new(&[0xff][..])));
        assert!(matches!(bad.next(1), Ok(Err(_))));
    }

    #[test]
    fn output_is_one_form_valid_and_bounded() {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let mut pipe = OutputPipe {
            sink: Box::new(kept.clone()),
            limits: Limits { output: 20, ..Limits::default() },
            bytes: 0,
            items: 0,
            form: None,
            schema: None,
            overflowed: false,
            refused: None,
        };
        let code = |put: Put| put.map(|r| r.err().map(|e| e.code)).ok().flatten();
        assert_eq!(code(pipe.emit_items(&["{\n \"a\": 1}".into()])), None);
        assert_eq!(code(pipe.emit_items(&["{".into()])), Some("invalid-json".into()));
        assert_eq!(code(pipe.write_bytes(b"x")), Some("mixed-output".into()));
        assert_eq!(code(pipe.emit_items(&["\"0123456789\"".into()])), Some("output-limit".into()));
        assert!(pipe.overflowed);
        assert_eq!(kept.lock().map(|k| k.clone()).unwrap_or_default(), b"{  \"a\": 1}\n");
    }
}
