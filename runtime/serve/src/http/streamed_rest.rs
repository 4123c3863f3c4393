//! An answer whose beginning is sent while its rest is still being made. So a browser already has the style and the
//! script of a page while a long record is read.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame};
use tokio::task::{JoinError, JoinHandle};

struct InTwo {
    first: Option<Bytes>,
    rest: Option<JoinHandle<String>>,
}

/// A body of both parts. Making the rest starts now.
pub(super) fn two_part_body(first: Bytes, rest: impl FnOnce() -> String + Send + 'static) -> Body {
    let rest = tokio::task::spawn_blocking(rest);
    Body::new(InTwo { first: Some(first), rest: Some(rest) })
}

impl HttpBody for InTwo {
    type Data = Bytes;
    type Error = JoinError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, JoinError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first))));
        }
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        let made = ready!(Pin::new(rest).poll(context));
        self.rest = None;
        if let Err(error) = &made {
            tracing::error!(%error, "the rest of an answer ended in a panic");
        }
        Poll::Ready(Some(made.map(|text| Frame::data(Bytes::from(text)))))
    }
}

impl Drop for InTwo {
    fn drop(&mut self) {
        // The client has gone. If making the rest has not begun, it is cancelled.
        if let Some(rest) = &self.rest {
            rest.abort();
        }
    }
}
