//! The messages between a lobster and an executor that is a program of its own.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::progress::Heard;
use crate::{Order, OrderId, Outcome, Standing};
use lobster_base::cancel::CancelReason;
use lobster_base::digest::Digest;
use lobster_store::OutputStream;

/// The version of the protocol. Both sides say theirs first; other versions are not talked to.
pub const PROTOCOL: u64 = 1;

/// The longest line that either side reads: more than any order may have in its environment
/// and arguments.
pub const MAX_LINE: usize = 16 << 20;

/// Bytes of a blob that one message carries at most.
pub const CHUNK: usize = 192 << 10;

/// What a lobster says to an executor.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// The first message.
    Hello {
        /// [`PROTOCOL`] of the lobster.
        protocol: u64,
        /// Its version, for people.
        version: String,
        /// Whether it stores what processes print while they run.
        #[serde(default)]
        output: bool,
    },
    /// The next bytes of a blob that orders will name.
    Blob {
        /// Its name.
        digest: Digest,
        /// The bytes, in base64.
        data: String,
        /// Whether they are the last ones.
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
    /// Ends an order. There is no answer but its end.
    Cancel {
        /// The order.
        id: OrderId,
        /// Why.
        reason: CancelReason,
        /// At once, without time to end gracefully.
        forced: bool,
    },
    /// Asks for the session that an order opened. Answered at once.
    Session {
        /// The order.
        session: OrderId,
    },
    /// Ends a session. Answered when it has ended.
    EndSession {
        /// The order that opened it.
        session: OrderId,
        /// Why it ends at once; none lets calls come to their end.
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

/// What an executor says to a lobster.
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
        /// Why.
        why: String,
    },
    /// This is heard of the order, for who likes to know; nothing answers it.
    Heard {
        /// The order.
        id: OrderId,
        /// That.
        said: Heard,
    },
    /// The process of the order printed this: sent to a lobster whose hello asks for output. Nothing answers it.
    Printed {
        /// The order.
        id: OrderId,
        /// Where.
        stream: OutputStream,
        /// The bytes, in base64; secrets that the executor knows are redacted.
        data: String,
    },
    /// The order has ended.
    Ended {
        /// The order.
        id: OrderId,
        /// How.
        outcome: Box<Outcome>,
    },
    /// The end of the order will not be seen.
    Unseen {
        /// The order.
        id: OrderId,
        /// Why.
        why: String,
    },
    /// What has become of an order.
    Standing {
        /// The order.
        id: OrderId,
        /// That.
        standing: Standing,
    },
    /// Whether a session is open and of use.
    Session {
        /// The order that opened it.
        session: OrderId,
        /// That.
        open: bool,
    },
    /// The next bytes of a blob that was asked for.
    Blob {
        /// The request that it answers.
        request: u64,
        /// The bytes, in base64.
        data: String,
        /// Whether they are the last ones.
        last: bool,
    },
    /// A blob that was asked for cannot be given.
    NoBlob {
        /// The request that it answers.
        request: u64,
        /// Why.
        why: String,
    },
    /// The executor did not understand something and ends.
    Error {
        /// What.
        why: String,
    },
}

/// Bytes as messages carry them.
pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// The bytes that a message carries.
pub(super) fn decode(data: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(data).map_err(|error| format!("a blob's bytes are not base64: {error}"))
}

/// The pieces in which `from` is sent, each with whether it is the last.
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
        // A full piece may be followed by an empty one, which says that it was the last.
        let last = filled < CHUNK;
        send(encode(&piece[..filled]), last)?;
        if last {
            return Ok(Ok(()));
        }
    }
}

/// The next line without its end; none at the end of the input.
///
/// # Errors
/// When the line is too long, or is not text.
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
pub(super) fn line(message: &impl Serialize) -> io::Result<String> {
    let mut line = serde_json::to_string(message)?;
    if line.len() >= MAX_LINE {
        let message = format!("a message of more than {MAX_LINE} bytes: the order is too large to be sent");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    line.push('\n');
    Ok(line)
}

/// Somebody else's words, short enough for a message.
pub(super) fn clipped(text: &str) -> String {
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
                got.extend(decode(&data)?);
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
