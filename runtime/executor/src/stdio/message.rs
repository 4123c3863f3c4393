//! The messages between lobster and an executor program.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::progress::Heard;
use crate::{Order, OrderId, OrderState, Outcome};
use lobster_base::cancel::CancelReason;
use lobster_base::digest::Digest;
use lobster_store::OutputStream;

/// The version of the protocol. Both sides send theirs first, and end the connection if they differ.
pub const PROTOCOL: u64 = 1;

/// The longest line that either side reads, longer than the environment and arguments of any order.
pub const MAX_LINE: usize = 16 << 20;

/// Most bytes of a blob in one message.
pub const CHUNK: usize = 192 << 10;

/// A message from lobster to an executor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// The first message.
    Hello {
        /// [`PROTOCOL`] of lobster.
        protocol: u64,
        /// Its version, for people.
        version: String,
        /// True if it stores the output of processes while they run.
        #[serde(default)]
        output: bool,
    },
    /// The next bytes of a blob that orders will name.
    Blob {
        /// Its name.
        digest: Digest,
        /// The bytes, in base64.
        data: String,
        /// True for the last bytes.
        last: bool,
    },
    /// An order to be carried out.
    Submit {
        /// The order.
        order: Box<Order>,
        /// The values of the secrets that it names.
        #[serde(default)]
        secrets: BTreeMap<String, String>,
    },
    /// Answered when the order has ended.
    Wait {
        /// The order.
        id: OrderId,
    },
    /// Answered at once.
    Look {
        /// The order.
        id: OrderId,
    },
    /// Ends an order. There is no answer except its end.
    Cancel {
        /// The order.
        id: OrderId,
        /// The reason.
        reason: CancelReason,
        /// At once, without time to end gracefully.
        forced: bool,
    },
    /// Asks about the session that an order opened. Answered at once.
    Session {
        /// The order.
        session: OrderId,
    },
    /// Ends a session. Answered when it has ended.
    EndSession {
        /// The order that opened it.
        session: OrderId,
        /// The reason to end it at once; with `None` its calls may finish first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut_off: Option<String>,
    },
    /// Asks for a blob that an outcome names.
    Fetch {
        /// Names the answers.
        request: u64,
        /// The blob.
        digest: Digest,
    },
}

/// A message from an executor to lobster.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Reply {
    /// The first message.
    Hello {
        /// [`PROTOCOL`] of the executor.
        protocol: u64,
        /// Its version, for people.
        version: String,
        /// The kinds of tasks that it carries out.
        tasks: Vec<String>,
    },
    /// The order will be carried out.
    Accepted {
        /// The order.
        id: OrderId,
    },
    /// The order will not be carried out.
    Refused {
        /// The order.
        id: OrderId,
        /// The reason.
        why: String,
    },
    /// Progress of the order, for live display. It has no answer.
    Heard {
        /// The order.
        id: OrderId,
        /// The progress.
        said: Heard,
    },
    /// The process of the order printed this. Sent to a lobster whose hello asks for output. It has no answer.
    Printed {
        /// The order.
        id: OrderId,
        /// The stream.
        stream: OutputStream,
        /// The bytes, in base64; secrets that the executor knows are redacted.
        data: String,
    },
    /// The order has ended.
    Ended {
        /// The order.
        id: OrderId,
        /// Its outcome.
        outcome: Box<Outcome>,
    },
    /// The end of the order will not be seen.
    Unseen {
        /// The order.
        id: OrderId,
        /// The reason.
        why: String,
    },
    /// The state of an order.
    Standing {
        /// The order.
        id: OrderId,
        /// The state.
        standing: OrderState,
    },
    /// Answers about a session.
    Session {
        /// The order that opened it.
        session: OrderId,
        /// True if the session is open and can be used.
        open: bool,
    },
    /// The next bytes of a requested blob.
    Blob {
        /// The request that it answers.
        request: u64,
        /// The bytes, in base64.
        data: String,
        /// True for the last bytes.
        last: bool,
    },
    /// A requested blob cannot be sent.
    NoBlob {
        /// The request that it answers.
        request: u64,
        /// The reason.
        why: String,
    },
    /// The executor did not understand a message and ends.
    Error {
        /// The reason.
        why: String,
    },
}

/// Bytes as messages carry them.
pub(super) fn encode_bytes(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes that a message carries.
pub(super) fn decode_bytes(data: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(data).map_err(|error| format!("a blob's bytes are not base64: {error}"))
}

/// Sends `from` in pieces, each with a flag for the last one.
pub(super) fn send_chunks<E>(
    mut from: impl Read,
    mut send: impl FnMut(String, bool) -> Result<(), E>,
) -> Result<io::Result<()>, E> {
    let mut piece = vec![0; CHUNK];
    loop {
        let mut filled = 0;
        while filled < CHUNK {
            match from.read(&mut piece[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        // A full piece may be followed by an empty one, which is then the last.
        let last = filled < CHUNK;
        send(encode_bytes(&piece[..filled]), last)?;
        if last {
            return Ok(Ok(()));
        }
    }
}

/// The next line without its end; `None` at the end of the input.
///
/// # Errors
/// If the line is too long, or is not text.
pub(super) fn read_line(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let got = from.take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)?;
    if got == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else if line.len() > MAX_LINE {
        let message = format!("a line of more than {MAX_LINE} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    String::from_utf8(line)
        .map(Some)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a line that is not UTF-8"))
}

/// A message as a line.
pub(super) fn message_line(message: &impl Serialize) -> io::Result<String> {
    let mut line = serde_json::to_string(message)?;
    if line.len() >= MAX_LINE {
        let message = format!("a message of more than {MAX_LINE} bytes: the order is too large to be sent");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    line.push('\n');
    Ok(line)
}

/// Text of another program, shortened for a message.
pub(super) fn clip_text(text: &str) -> String {
    const MAX: usize = 200;
    let end = text.floor_char_boundary(MAX);
    let tail = if end < text.len() { "…" } else { "" };
    format!("{:?}{tail}", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_come_in_pieces_of_which_one_is_the_last() {
        for length in [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK] {
            let bytes: Vec<u8> = (0..length).map(|n| u8::try_from(n % 251).unwrap()).collect();
            let (mut got, mut ends) = (Vec::new(), Vec::new());
            let sent = send_chunks(&bytes[..], |data, last| {
                got.extend(decode_bytes(&data)?);
                ends.push(last);
                Ok::<(), String>(())
            });
            sent.unwrap().unwrap();
            assert_eq!(got, bytes, "{length}");
            assert_eq!(ends.iter().filter(|last| **last).count(), 1);
            assert_eq!(ends.last(), Some(&true));
        }
    }

    #[test]
    fn lines_are_bounded_text() {
        let long = vec![b'x'; MAX_LINE + 2];
        assert!(read_line(&mut &long[..]).is_err());
        assert!(read_line(&mut &b"\xff\n"[..]).is_err());
        let mut two = &b"a\nb"[..];
        assert_eq!(read_line(&mut two).unwrap().as_deref(), Some("a"));
        assert_eq!(read_line(&mut two).unwrap().as_deref(), Some("b"));
        assert_eq!(read_line(&mut two).unwrap(), None);
    }
}
