//! Bodies of requests that may have to be sent again with another token.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;

/// Longest body that is kept in memory until its request is answered, in bytes.
pub const MOST_KEPT: u64 = 64 << 10;

/// The body of a request.
#[derive(Debug)]
pub enum Sent<B> {
    /// No body.
    Nothing,
    /// The whole body, which can be sent again.
    Whole(Bytes),
    /// A body that streams while it is sent, so it can be sent only once.
    Stream(B),
}

impl<B: Body<Data = Bytes>> Sent<B> {
    /// Reads a short body whole if the request may have to be sent again. A body of unknown length may be endless and
    /// is streamed.
    ///
    /// # Errors
    /// Fails if the body breaks off.
    pub async fn from_body(body: B, may_be_again: bool) -> Result<Self, B::Error> {
        let is_short = body.size_hint().upper().is_some_and(|length| length <= MOST_KEPT);
        Ok(match may_be_again {
            _ if body.is_end_stream() => Self::Nothing,
            true if is_short => Self::Whole(body.collect().await?.to_bytes()),
            _ => Self::Stream(body),
        })
    }

    /// The same body for the same request, if it can be sent again.
    #[must_use]
    pub fn copy_to_resend(&self) -> Option<Self> {
        match self {
            Self::Nothing => Some(Self::Nothing),
            Self::Whole(bytes) => Some(Self::Whole(bytes.clone())),
            Self::Stream(_) => None,
        }
    }
}
