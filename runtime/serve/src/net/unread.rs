//! The rest of a request that is still arriving when its answer is ready.
//!
//! If a connection is closed with unread bytes of the request, the kernel resets it, and a reset may overtake the
//! answer (RFC 9112, section 9.6). So a limited amount of the rest is read before a refusal is sent.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use lobster_runtime::sync::lock;

/// Most bytes of the rest that are read.
const MOST: usize = 256 << 10;

/// Time limit for the rest.
const PATIENCE: Duration = Duration::from_secs(2);

/// The body of a request. A second reader can read what the first one leaves.
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
    /// Reads the unread rest of the body, up to the limits.
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
