//! JSON-RPC as lines on stdin and stdout, for clients of any kind: a line that is too long, not JSON or
//! not a message is answered with an error, and a client that disconnects ends its calls.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lobster_runtime::cancel::{CancelReason, CancelToken};
use lobster_runtime::sync::lock;
use rmcp::RoleServer;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ErrorCode, ErrorData, JsonRpcMessage, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::transport::Transport;
use rmcp::transport::io::{StdioReader, StdioWriter, stdio_pipes};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};

/// Longest message, in bytes.
pub(super) const MAX_MESSAGE: usize = 16 << 20;

/// Most open requests; a client that sends more gets an error.
const MAX_OPEN: usize = 512;

/// Time for calls to end after the client has closed its end: long enough for `printf … | lobster mcp`
/// to be answered.
const AFTER_EOF: Duration = Duration::from_secs(1);

/// The standard streams as a transport.
pub(super) struct StdioLines {
    from: BufReader<StdioReader>,
    to: Arc<tokio::sync::Mutex<StdioWriter>>,
    line: Vec<u8>,
    /// Messages of the last line.
    taken: VecDeque<Value>,
    /// True while the rest of a line that was too long is skipped.
    skipping: bool,
    /// True once the first request has come.
    begun: bool,
    open: Arc<Mutex<HashSet<RequestId>>>,
    session: CancelToken,
}

/// The error for a sender, with the id of the request if it is known.
type Refused = Box<(Option<RequestId>, ErrorData)>;

fn refuse_message(id: Option<RequestId>, error: ErrorData) -> Refused {
    Box::new((id, error))
}

enum Line {
    Whole,
    TooLong,
    End,
}

impl StdioLines {
    /// Cancels `session` when the client disconnects.
    pub(super) fn new(session: CancelToken) -> Self {
        let (from, to) = stdio_pipes();
        Self {
            from: BufReader::new(from),
            to: Arc::new(tokio::sync::Mutex::new(to)),
            line: Vec::new(),
            taken: VecDeque::new(),
            skipping: false,
            begun: false,
            open: Arc::default(),
            session,
        }
    }

    /// Fills `line`. The future may be dropped at any await; the next call continues.
    async fn next_line(&mut self) -> io::Result<Line> {
        loop {
            let available = self.from.fill_buf().await?;
            if available.is_empty() {
                return Ok(Line::End);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let take = end.map_or(available.len(), |at| at + 1);
            let fits = self.line.len() + take <= MAX_MESSAGE;
            if !self.skipping && fits {
                self.line.extend_from_slice(&available[..take]);
            }
            self.from.consume(take);
            if !fits {
                self.skipping = true;
                self.line = Vec::new();
            }
            if end.is_some() {
                return Ok(if std::mem::take(&mut self.skipping) { Line::TooLong } else { Line::Whole });
            }
        }
    }

    /// Takes the messages of a line, which protocol 2025-03-26 lets clients send as an array. Each is
    /// answered separately.
    fn take_line(&mut self) -> Result<(), Refused> {
        let line = std::mem::take(&mut self.line);
        let text = line.trim_ascii();
        if text.is_empty() {
            return Ok(());
        }
        let value: Value = lobster_runtime::json::parse_message(text).map_err(|error| {
            refuse_message(None, ErrorData::new(ErrorCode::PARSE_ERROR, format!("no JSON: {error}"), None))
        })?;
        match value {
            Value::Array(batch) if !batch.is_empty() => self.taken.extend(batch),
            single => self.taken.push_back(single),
        }
        Ok(())
    }

    /// Parses a message, or returns the error for its sender.
    fn parse_message(value: Value) -> Result<ClientJsonRpcMessage, Refused> {
        let id = value.get("id").and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
        let is_answer = value.get("method").is_none() && id.is_some();
        match serde_json::from_value::<ClientJsonRpcMessage>(value) {
            Ok(message) => Ok(message),
            // An answer that cannot be read still ends the wait for it.
            Err(_) if is_answer => {
                let error = ErrorData::invalid_request("the client's answer cannot be read", None);
                Ok(JsonRpcMessage::error(error, id))
            }
            Err(error) => {
                let error = ErrorData::invalid_request(format!("no message of this protocol: {error}"), None);
                Err(refuse_message(id, error))
            }
        }
    }

    /// True if the server handles a message; otherwise returns the error for its sender.
    fn admit_message(&mut self, message: &ClientJsonRpcMessage) -> Result<bool, Refused> {
        let mut open = lock(&self.open);
        match message {
            JsonRpcMessage::Request(request) => {
                self.begun = true;
                if open.len() >= MAX_OPEN {
                    let message = format!("more than {MAX_OPEN} requests are open; wait for answers");
                    let error = ErrorData::new(ErrorCode(-32000), message, None);
                    return Err(refuse_message(Some(request.id.clone()), error));
                }
                if !open.insert(request.id.clone()) {
                    let message = "a request with this id is open already";
                    let error = ErrorData::invalid_request(message, None);
                    return Err(refuse_message(Some(request.id.clone()), error));
                }
                Ok(true)
            }
            JsonRpcMessage::Notification(notification) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notification.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    open.remove(id);
                }
                Ok(self.begun)
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => Ok(self.begun),
        }
    }

    fn end_session(&self, why: &str, after: Duration) {
        let (session, why) = (self.session.clone(), why.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            session.cancel(CancelReason::Lost(why));
        });
    }
}

async fn write_message(
    to: &tokio::sync::Mutex<StdioWriter>,
    session: &CancelToken,
    message: &impl serde::Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    let mut to = to.lock().await;
    let written = async {
        to.write_all(&line).await?;
        to.flush().await
    };
    written.await.inspect_err(|_| session.cancel(CancelReason::Lost("the client is gone".to_owned())))
}

impl Transport<RoleServer> for StdioLines {
    type Error = io::Error;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let (to, open, session) = (Arc::clone(&self.to), Arc::clone(&self.open), self.session.clone());
        async move {
            let answered = match &item {
                JsonRpcMessage::Response(response) => Some(response.id.clone()),
                JsonRpcMessage::Error(error) => error.id.clone(),
                JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
            };
            let written = write_message(&to, &session, &item).await;
            if let Some(id) = answered {
                lock(&open).remove(&id);
            }
            written
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            let refused: Refused = if let Some(value) = self.taken.pop_front() {
                match Self::parse_message(value)
                    .and_then(|message| Ok((self.admit_message(&message)?, message)))
                {
                    Ok((true, message)) => return Some(message),
                    Ok((false, _)) => continue,
                    Err(refused) => refused,
                }
            } else {
                match self.next_line().await {
                    Ok(Line::Whole) => match self.take_line() {
                        Ok(()) => continue,
                        Err(refused) => refused,
                    },
                    Ok(Line::TooLong) => {
                        let message = format!("a message may have {MAX_MESSAGE} bytes at most");
                        refuse_message(None, ErrorData::invalid_request(message, None))
                    }
                    Ok(Line::End) => {
                        self.end_session("the client has closed its end", AFTER_EOF);
                        return None;
                    }
                    Err(error) => {
                        self.end_session(&format!("the client cannot be read: {error}"), Duration::ZERO);
                        return None;
                    }
                }
            };
            let (id, error) = *refused;
            let answer = json!({ "jsonrpc": "2.0", "id": id, "error": error });
            if write_message(&self.to, &self.session, &answer).await.is_err() {
                return None;
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        Ok(())
    }
}
