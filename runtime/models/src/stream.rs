//! Answers of models that come as streams of events (`text/event-stream`), put together to the
//! JSON that the provider would have answered with had nobody asked for a stream.
//!
//! So whoever reads an answer reads one form of it, and what is recorded, priced and cached does not
//! depend on how the answer came. A stream that ends before its answer does is never taken for one.
//! <https://html.spec.whatwg.org/multipage/server-sent-events.html>

mod chat;
mod gemini;
mod messages;
mod responses;

use serde_json::{Map, Value, json};

use lobster_base::json;

/// How much may come around the text of an answer: an event for each token repeats names and ids of
/// several hundred bytes.
const AROUND: u64 = 64;

/// What of a stream cannot be an answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StreamError {
    /// More than may be read.
    #[error("the answer is too large")]
    TooLarge,
    #[error("an event of its stream is not JSON")]
    NotJson,
    #[error("its stream ended before the answer did")]
    Unfinished,
}

/// Whether more of a stream is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    More,
    /// What comes behind it is no part of the answer.
    Last,
}

/// What a provider's events say so far.
trait Partial {
    /// Takes an event in, and says whether it is the last.
    fn take(&mut self, event: Value) -> Flow;
    /// Whether all of the answer is there, although no event said that it was the last.
    fn is_complete(&self) -> bool;
    /// The text of the answer so far.
    fn text(&self) -> Text;
    /// The answer.
    fn finish(self: Box<Self>) -> Value;
}

/// How much text was received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Text {
    characters: u64,
    /// Of all that is kept.
    bytes: u64,
}

impl Text {
    fn count(&mut self, text: &str) {
        self.characters += text.chars().count() as u64;
        self.bytes += text.len() as u64;
    }
}

/// Keeps what a chunk says of these fields: each chunk repeats them, or leaves them out.
fn keep_latest(kept: &mut Map<String, Value>, chunk: &mut Map<String, Value>, names: &[&str]) {
    for name in names {
        if let Some(value) = chunk.remove(*name).filter(|value| !value.is_null()) {
            kept.insert((*name).to_owned(), value);
        }
    }
}

/// An answer that is on its way.
pub(crate) struct EventStream {
    limit: u64,
    received: u64,
    line: Vec<u8>,
    /// The last byte ended a line, as the first of two may.
    is_after_cr: bool,
    /// The event that is not complete yet.
    name: String,
    data: String,
    partial: Option<Box<dyn Partial>>,
    error: Option<Value>,
    has_ended: bool,
}

impl EventStream {
    /// Nothing yet of an answer of at most `limit` bytes.
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

    /// The answer of a stream that was received as a whole.
    pub(crate) fn whole(text: &str, limit: u64) -> Result<Value, StreamError> {
        let mut stream = Self::new(limit);
        if stream.push(text.as_bytes())? == Flow::More {
            stream.close()?;
        }
        stream.finish()
    }

    /// Whether a text is events, and cannot be JSON.
    pub(crate) fn is_events(text: &str) -> bool {
        let first = text.lines().map(str::trim_start).find(|line| !line.is_empty()).unwrap_or_default();
        ["data:", "event:", "id:", "retry:", ":"].iter().any(|field| first.starts_with(field))
    }

    /// Takes in the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<Flow, StreamError> {
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
                    if self.take_line(&String::from_utf8_lossy(&line))? == Flow::Last {
                        return Ok(Flow::Last);
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
        Ok(Flow::More)
    }

    /// No more will come. An event that was cut in the middle is none.
    pub(crate) fn close(&mut self) -> Result<(), StreamError> {
        let line = std::mem::take(&mut self.line);
        self.take_line(&String::from_utf8_lossy(&line))?;
        if json::parse(&self.data).is_ok() || is_done(&self.data) {
            self.dispatch()?;
        }
        Ok(())
    }

    /// Whether what has come is an answer, if nothing follows.
    pub(crate) fn is_complete(&self) -> bool {
        self.has_ended
            || self.error.is_some()
            || self.partial.as_ref().is_some_and(|partial| partial.is_complete())
    }

    /// The characters of the answer so far.
    pub(crate) fn characters(&self) -> u64 {
        self.partial.as_ref().map_or(0, |partial| partial.text().characters)
    }

    /// The answer, as if it had come at once.
    pub(crate) fn finish(self) -> Result<Value, StreamError> {
        if !self.is_complete() {
            return Err(StreamError::Unfinished);
        }
        match (self.error, self.partial) {
            (Some(error), _) => Ok(json!({"error": error})),
            (None, Some(partial)) => Ok(partial.finish()),
            (None, None) => Err(StreamError::Unfinished),
        }
    }

    fn take_line(&mut self, line: &str) -> Result<Flow, StreamError> {
        if line.is_empty() {
            return self.dispatch();
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
            // A comment, or what matters to those who connect again.
            _ => {}
        }
        Ok(Flow::More)
    }

    fn dispatch(&mut self) -> Result<Flow, StreamError> {
        let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
        if data.trim().is_empty() {
            return Ok(Flow::More);
        }
        if is_done(&data) {
            // Of an answer that is not complete this is no end.
            return if self.is_complete() { Ok(Flow::Last) } else { Err(StreamError::Unfinished) };
        }
        let event = json::parse(&data).map_err(|_| StreamError::NotJson)?;
        if let Some(error) = error_of(&name, &event) {
            self.error = Some(error);
            return Ok(Flow::Last);
        }
        if self.partial.is_none() {
            self.partial = form_of(&event);
        }
        let Some(partial) = &mut self.partial else { return Ok(Flow::More) };
        let flow = partial.take(event);
        if partial.text().bytes > self.limit {
            return Err(StreamError::TooLarge);
        }
        self.has_ended = flow == Flow::Last;
        Ok(flow)
    }
}

/// OpenAI's last line, which is no JSON.
fn is_done(data: &str) -> bool {
    data.trim() == "[DONE]"
}

/// The error that an event tells, in the form of one that is an answer of its own.
fn error_of(name: &str, event: &Value) -> Option<Value> {
    match event.get("error") {
        Some(Value::Null) | None => {}
        Some(Value::Object(error)) => return Some(Value::Object(error.clone())),
        Some(other) => return Some(json!({"message": json::js_string(other)})),
    }
    let is_error = name == "error" || event.get("type").and_then(Value::as_str) == Some("error");
    is_error.then(|| match event {
        // The kind of the event says nothing of the error's.
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(name, _)| *name != "type");
            Value::Object(fields.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>())
        }
        other => json!({"message": json::js_string(other)}),
    })
}

/// Who speaks so: the first event that says anything tells.
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
