//! What a client is still sending when its request is already answered.
//!
//! A connection that is closed with bytes of the request unread is reset by the
//! kernel, and a reset may overtake the answer (RFC 9112, section 9.6). So a
//! refusal reads a bounded rest first.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use lobster_runtime::sync::lock;

/// The most of a rest that is read, in bytes.
const MOST: usize = 256 << 10;

/// How long a client may take to send the rest.
const PATIENCE: Duration = Duration::from_secs(2);

/// The body of a request, whose rest can be read by another than its reader.
pub struct Shared<B = Incoming>(Arc<Mutex<B>>);

impl<B> Clone for Shared<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B> Shared<B> {
    pub fn new(body: B) -> Self {
        Self(Arc::new(Mutex::new(body)))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Shared<B> {
    /// Reads what nobody has read, as far as it is worth it.
    pub async fn discard_rest(mut self) {
        let mut left = MOST;
        let reading = async {
            while let Some(Ok(frame)) = self.frame().await {
                let size = frame.data_ref().map_or(0, Bytes::len);
                left = match left.checked_sub(size) {
                    Some(left) if left > 0 => left,
                    _ => break,
                };
            }
        };
        let _ = tokio::time::timeout(PATIENCE, reading).await;
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Shared<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut *lock(&self.0)).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        lock(&self.0).is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        lock(&self.0).size_hint()
    }
}
