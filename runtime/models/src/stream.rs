//! Answers of models that come as streams of events (`text/event-stream`), assembled into the JSON that
//! the provider would have sent without a stream.
//!
//! So the reader of an answer sees a single form, and records, prices and caches do not depend on how the
//! answer came. A stream that ends early is never taken for an answer.
//! <https://html.spec.whatwg.org/multipage/server-sent-events.html>

mod chat;
mod gemini;
mod messages;
mod responses;

use serde_json::{Map, Value, json};

use lobster_base::json;

/// Most bytes around each byte of an answer's text: an event for each token repeats names and ids of
/// several hundred bytes.
const AROUND: u64 = 64;

/// A stream that cannot be an answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamError {
    /// Larger than allowed.
    #[error("the answer is too large")]
    TooLarge,
    #[error("an event of its stream is not JSON")]
    NotJson,
    #[error("its stream ended before the answer did")]
    Unfinished,
}

/// Tells if more of a stream is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamFlow {
    More,
    /// The rest is no part of the answer.
    Last,
}

/// The answer so far in a provider's events.
trait Partial {
    /// Adds an event and tells if it is the last.
    fn add_event(&mut self, event: Value) -> StreamFlow;
    /// True if the answer is complete, although no event was marked as the last.
    fn is_complete(&self) -> bool;
    /// The text of the answer so far.
    fn text_so_far(&self) -> Text;
    /// The answer.
    fn into_answer(self: Box<Self>) -> Value;
}

/// Amount of text received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Text {
    characters: u64,
    /// Bytes of everything kept.
    bytes: u64,
}

impl Text {
    fn count_text(&mut self, text: &str) {
        self.characters += text.chars().count() as u64;
        self.bytes += text.len() as u64;
    }
}

/// Keeps the latest values of these fields: each chunk repeats them, or leaves them out.
fn keep_latest(kept: &mut Map<String, Value>, chunk: &mut Map<String, Value>, names: &[&str]) {
    for name in names {
        if let Some(value) = chunk.remove(*name).filter(|value| !value.is_null()) {
            kept.insert((*name).to_owned(), value);
        }
    }
}

/// An answer that is still arriving.
pub(crate) struct EventStream {
    limit: u64,
    received: u64,
    line: Vec<u8>,
    /// The last byte ended a line and may be the first of two.
    is_after_cr: bool,
    /// The incomplete event.
    name: String,
    data: String,
    partial: Option<Box<dyn Partial>>,
    error: Option<Value>,
    has_ended: bool,
}

impl EventStream {
    /// An empty stream for an answer of at most `limit` bytes.
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            received: 0,
            line: Vec::new(),
            is_after_cr: false,
            name: String::new(),
            data: String::new(),
            partial: None,
            error: None,
            has_ended: false,
        }
    }

    /// The answer of a complete stream.
    pub(crate) fn parse_whole(text: &str, limit: u64) -> Result<Value, StreamError> {
        let mut stream = Self::new(limit);
        if stream.push(text.as_bytes())? == StreamFlow::More {
            stream.finish_input()?;
        }
        stream.into_answer()
    }

    /// True if a text consists of events, and cannot be JSON.
    pub(crate) fn is_events(text: &str) -> bool {
        let first = text.lines().map(str::trim_start).find(|line| !line.is_empty()).unwrap_or_default();
        ["data:", "event:", "id:", "retry:", ":"].iter().any(|field| first.starts_with(field))
    }

    /// Adds the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<StreamFlow, StreamError> {
        self.received = self.received.saturating_add(bytes.len() as u64);
        if self.received > self.limit.saturating_mul(AROUND) {
            return Err(StreamError::TooLarge);
        }
        for byte in bytes {
            let is_second = std::mem::replace(&mut self.is_after_cr, *byte == b'\r') && *byte == b'\n';
            match byte {
                _ if is_second => {}
                b'\r' | b'\n' => {
                    let line = std::mem::take(&mut self.line);
                    if self.take_line(&String::from_utf8_lossy(&line))? == StreamFlow::Last {
                        return Ok(StreamFlow::Last);
                    }
                }
                _ => {
                    self.line.push(*byte);
                    if (self.line.len() + self.data.len()) as u64 > self.limit {
                        return Err(StreamError::TooLarge);
                    }
                }
            }
        }
        Ok(StreamFlow::More)
    }

    /// Ends the input. An event that was cut in the middle is dropped.
    pub(crate) fn finish_input(&mut self) -> Result<(), StreamError> {
        let line = std::mem::take(&mut self.line);
        self.take_line(&String::from_utf8_lossy(&line))?;
        if json::parse(&self.data).is_ok() || is_done(&self.data) {
            self.dispatch_event()?;
        }
        Ok(())
    }

    /// True if the received data is an answer, even if nothing follows.
    pub(crate) fn is_complete(&self) -> bool {
        self.has_ended
            || self.error.is_some()
            || self.partial.as_ref().is_some_and(|partial| partial.is_complete())
    }

    /// The number of characters of the answer so far.
    pub(crate) fn character_count(&self) -> u64 {
        self.partial.as_ref().map_or(0, |partial| partial.text_so_far().characters)
    }

    /// The answer, as if it had come at once.
    pub(crate) fn into_answer(self) -> Result<Value, StreamError> {
        if !self.is_complete() {
            return Err(StreamError::Unfinished);
        }
        match (self.error, self.partial) {
            (Some(error), _) => Ok(json!({"error": error})),
            (None, Some(partial)) => Ok(partial.into_answer()),
            (None, None) => Err(StreamError::Unfinished),
        }
    }

    fn take_line(&mut self, line: &str) -> Result<StreamFlow, StreamError> {
        if line.is_empty() {
            return self.dispatch_event();
        }
        let line = line.trim_start_matches('\u{feff}');
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            // A comment, or a field for reconnecting clients.
            _ => {}
        }
        Ok(StreamFlow::More)
    }

    fn dispatch_event(&mut self) -> Result<StreamFlow, StreamError> {
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        if data.trim().is_empty() {
            return Ok(StreamFlow::More);
        }
        if is_done(&data) {
            // An incomplete answer has not ended here.
            return if self.is_complete() { Ok(StreamFlow::Last) } else { Err(StreamError::Unfinished) };
        }
        let event = json::parse(&data).map_err(|_| StreamError::NotJson)?;
        if let Some(error) = error_of(&name, &event) {
            self.error = Some(error);
            return Ok(StreamFlow::Last);
        }
        if self.partial.is_none() {
            self.partial = form_of(&event);
        }
        let Some(partial) = &mut self.partial else { return Ok(StreamFlow::More) };
        let flow = partial.add_event(event);
        if partial.text_so_far().bytes > self.limit {
            return Err(StreamError::TooLarge);
        }
        self.has_ended = flow == StreamFlow::Last;
        Ok(flow)
    }
}

/// True for OpenAI's last line, which is not JSON.
fn is_done(data: &str) -> bool {
    data.trim() == "[DONE]"
}

/// The error in an event, in the form of an error that is an answer by itself.
fn error_of(name: &str, event: &Value) -> Option<Value> {
    match event.get("error") {
        Some(Value::Null) | None => {}
        Some(Value::Object(error)) => return Some(Value::Object(error.clone())),
        Some(other) => return Some(json!({"message": json::js_string(other)})),
    }
    let is_error = name == "error" || event.get("type").and_then(Value::as_str) == Some("error");
    is_error.then(|| match event {
        // The kind of the event is not the kind of the error.
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != "type");
            Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
        }
        other => json!({"message": json::js_string(other)}),
    })
}

/// Recognises the provider by the first event with content.
fn form_of(event: &Value) -> Option<Box<dyn Partial>> {
    let has = |name: &str| event.get(name).is_some();
    match event.get("type").and_then(Value::as_str) {
        Some(kind) if kind.starts_with("response.") => return Some(Box::<responses::Partial>::default()),
        Some("message_start") => return Some(Box::<messages::Partial>::default()),
        _ => {}
    }
    if has("choices") {
        return Some(Box::<chat::Partial>::default());
    }
    ["candidates", "promptFeedback", "usageMetadata"]
        .into_iter()
        .any(has)
        .then(|| Box::<gemini::Partial>::default() as Box<dyn Partial>)
}

#[cfg(test)]
mod tests;
