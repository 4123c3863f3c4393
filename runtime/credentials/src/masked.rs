//! A body in which a value is hidden while it streams.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use lobster_base::credential::EchoMask;

/// The body of an answer to a request that was sent with a credential. Its length is that of the original body.
#[derive(Debug)]
pub struct Masked<B> {
    body: B,
    mask: EchoMask,
    /// Trailers, sent after the last bytes.
    trailers: Option<Frame<Bytes>>,
    is_over: bool,
}

impl<B> Masked<B> {
    /// Wraps `body` and hides what `mask` covers.
    pub fn new(body: B, mask: EchoMask) -> Self {
        Self { body, mask, trailers: None, is_over: false }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Masked<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        loop {
            if this.is_over {
                return Poll::Ready(this.trailers.take().map(Ok));
            }
            match ready!(Pin::new(&mut this.body).poll_frame(context)) {
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let clean = this.mask.push(&data);
                        if !clean.is_empty() {
                            return Poll::Ready(Some(Ok(Frame::data(clean.into()))));
                        }
                    }
                    Err(trailers) => this.trailers = Some(trailers),
                },
                None => {
                    this.is_over = true;
                    let rest = this.mask.finish();
                    if !rest.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(rest.into()))));
                    }
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
