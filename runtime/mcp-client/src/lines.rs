//! JSON-RPC over lines, with any kind of server. Output that is not part of the protocol is skipped, up to a limit. A
//! message that is too long ends the connection, since its call could not end otherwise.

use std::io;
use std::sync::{Arc, Mutex};

use lobster_base::sync::lock;
use rmcp::RoleClient;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;

/// Most bytes that are not messages, such as logs on the wrong stream.
const MAX_NOISE: usize = 1 << 20;

/// The reason why a connection ended, for the calls that wait on it.
pub(super) type Cause = Arc<Mutex<Option<String>>>;

/// Records the first cause.
pub(super) fn record_cause(cause: &Cause, text: impl Into<String>) {
    lock(cause).get_or_insert_with(|| text.into());
}

pub(super) struct Lines {
    from: BufReader<pipe::Receiver>,
    to: Arc<tokio::sync::Mutex<pipe::Sender>>,
    line: Vec<u8>,
    max: usize,
    noise: usize,
    cause: Cause,
}

impl Lines {
    pub(super) fn new(from: pipe::Receiver, to: pipe::Sender, max: usize, cause: Cause) -> Self {
        let to = Arc::new(tokio::sync::Mutex::new(to));
        Self { from: BufReader::new(from), to, line: Vec::new(), max, noise: 0, cause }
    }

    /// Reads the next line into `line`; false at the end. It can be dropped at any await.
    async fn next_line(&mut self) -> Result<bool, String> {
        loop {
            let available =
                self.from.fill_buf().await.map_err(|error| format!("it cannot be read: {error}"))?;
            if available.is_empty() {
                return Ok(false);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let take = end.map_or(available.len(), |at| at + 1);
            if self.line.len() + take > self.max {
                return Err(format!("it sent a message of more than {} bytes (max_bytes)", self.max));
            }
            self.line.extend_from_slice(&available[..take]);
            self.from.consume(take);
            if end.is_some() {
                return Ok(true);
            }
        }
    }
}

impl Transport<RoleClient> for Lines {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        let to = Arc::clone(&self.to);
        async move {
            let mut line = serde_json::to_vec(&item)?;
            line.push(b'\n');
            let mut to = to.lock().await;
            to.write_all(&line).await?;
            to.flush().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            match self.next_line().await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(cause) => {
                    record_cause(&self.cause, cause);
                    return None;
                }
            }
            let read = lobster_base::json::parse_message(self.line.trim_ascii());
            let length = self.line.len();
            self.line.clear();
            match read {
                Ok(message) => return Some(message),
                Err(_) => self.noise += length,
            }
            if self.noise > MAX_NOISE {
                record_cause(
                    &self.cause,
                    format!("it sent more than {MAX_NOISE} bytes that are not messages"),
                );
                return None;
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        Ok(())
    }
}
