//! The HTTP requests of one effect, which the executor sends.

use std::cell::{Cell, RefCell};

use super::path::StepPath;
use super::run::Run;
use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;
use lobster_executor::{HttpTask, Order, OrderText, Task};
use lobster_stage::{HttpError, HttpReply, HttpRequest};
use lobster_store::StepOutcome;

pub(crate) struct Requests<'r, 's> {
    run: &'r Run<'s>,
    path: &'r StepPath,
    action: Digest,
    cancel: &'r CancelToken,
    made: Cell<u32>,
    /// The outcome of the effect if the executor lost a request.
    lost: RefCell<Option<StepOutcome>>,
}

impl<'r, 's> Requests<'r, 's> {
    /// The requests of the effect at `path`; none is sent yet.
    pub(crate) fn new(run: &'r Run<'s>, path: &'r StepPath, action: Digest, cancel: &'r CancelToken) -> Self {
        Self { run, path, action, cancel, made: Cell::new(0), lost: RefCell::default() }
    }

    /// Sends a request. After a lost request no other one is sent.
    pub(crate) fn send_request(&self, request: &HttpRequest) -> Result<HttpReply, HttpError> {
        if let Some(lost) = &*self.lost.borrow() {
            return Err(HttpError::Executor(lost.error.clone().unwrap_or_default()));
        }
        let mut id = self.run.order_id(self.path);
        let made = self.made.replace(self.made.get() + 1);
        if made > 0 {
            // Each request is an order of its own.
            id = id.of_request(made + 1);
        }
        let task = HttpTask::new(request, self.order_body(&request.body));
        let outcome = self
            .run
            .carry_out(Order { id, action: self.action, task: Task::Http(Box::new(task)) }, self.cancel);
        match outcome.http {
            Some(end) => end.into_result(),
            None => {
                let why = outcome.step.error.clone().unwrap_or_default();
                *self.lost.borrow_mut() = Some(outcome.step);
                Err(HttpError::Executor(why))
            }
        }
    }

    /// The body in the order. A body with a secret that no store may keep is only in the order itself.
    fn order_body(&self, text: &str) -> OrderText {
        if text.len() > OrderText::MAX_INLINE
            && let Ok(blob) = self.run.store.put_blob(text.as_bytes())
            && blob.digest == Digest::of_bytes(text.as_bytes())
        {
            return OrderText::Blob(blob);
        }
        OrderText::Text(text.to_owned())
    }

    /// The outcome of an effect whose request the executor lost.
    pub(crate) fn lost_outcome(&self) -> Option<StepOutcome> {
        self.lost.take()
    }
}
