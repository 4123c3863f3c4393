//! The requests over HTTP of one effect, which the executor makes.

use std::cell::{Cell, RefCell};

use super::execute::{HttpTask, Order, OrderText, Task};
use super::path::StepPath;
use super::run::Run;
use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;
use lobster_stage::{HttpError, HttpReply, HttpRequest};
use lobster_store::StepOutcome;

pub(crate) struct Requests<'r, 's> {
    run: &'r Run<'s>,
    path: &'r StepPath,
    action: Digest,
    cancel: &'r CancelToken,
    made: Cell<u32>,
    /// How the order ended that the executor did not bring the end of home.
    lost: RefCell<Option<StepOutcome>>,
}

impl<'r, 's> Requests<'r, 's> {
    /// The requests of the effect at `path`, none of which is made yet.
    pub(crate) fn new(run: &'r Run<'s>, path: &'r StepPath, action: Digest, cancel: &'r CancelToken) -> Self {
        Self { run, path, action, cancel, made: Cell::new(0), lost: RefCell::default() }
    }

    /// Has one made. After one that was lost there is no other.
    pub(crate) fn send(&self, request: &HttpRequest) -> Result<HttpReply, HttpError> {
        if let Some(lost) = &*self.lost.borrow() {
            return Err(HttpError::Executor(lost.error.clone().unwrap_or_default()));
        }
        let mut id = self.run.order_id(self.path);
        let made = self.made.replace(self.made.get() + 1);
        if made > 0 {
            // Each is an order of its own.
            id = id.of_request(made + 1);
        }
        let task = HttpTask::new(request, self.body(&request.body));
        let outcome = self
            .run
            .carry_out(Order { id, action: self.action, task: Task::Http(Box::new(task)) }, self.cancel);
        match outcome.http {
            Some(end) => end.result(),
            None => {
                let why = outcome.step.error.clone().unwrap_or_default();
                *self.lost.borrow_mut() = Some(outcome.step);
                Err(HttpError::Executor(why))
            }
        }
    }

    /// The body as the order has it. Where it holds what no store may keep, it travels in the order alone.
    fn body(&self, text: &str) -> OrderText {
        if text.len() > OrderText::MAX_INLINE
            && let Ok(blob) = self.run.store.put(text.as_bytes())
            && blob.digest == Digest::of(text.as_bytes())
        {
            return OrderText::Blob(blob);
        }
        OrderText::Text(text.to_owned())
    }

    /// The outcome of an effect of which the executor lost a request.
    pub(crate) fn lost(&self) -> Option<StepOutcome> {
        self.lost.take()
    }
}
