//! Executes requests of pipeline commands.

use std::cell::Cell;
use std::time::{Duration, Instant};

use super::{Host, HttpEnd, HttpTask, OrderText, OrderToken, Outcome};
use crate::outcome::failed_outcome;
use crate::progress::Heard;
use lobster_base::cancel::CancelToken;
use lobster_models::http;
use lobster_stage::{HttpCredential, HttpError, HttpReply, HttpRequest, StageError, Token};
use lobster_store::{StepOutcome, StepStatus};

/// Interval between two reports of how much of an answer has arrived.
const TOLD_EVERY: Duration = Duration::from_millis(250);

/// Executes an order. A failed request is not a failure of the order; the command decides what it means.
pub(super) fn perform(task: &HttpTask, host: &Host<'_>, cancel: &CancelToken) -> Outcome {
    let request = match http_request(task, host) {
        Ok(request) => request,
        Err(error) => return failed_outcome(&error).into(),
    };
    let told = Cell::new(None::<Instant>);
    let tell = |characters| {
        if let Some(watcher) = host.watcher
            && told.get().is_none_or(|last| last.elapsed() >= TOLD_EVERY)
        {
            told.set(Some(Instant::now()));
            watcher.output_arrived(host.order, Heard::Answering(characters));
        }
    };
    let end = match http::make_telling(&request, &tell, cancel) {
        Ok(HttpReply { status, reason, retry_after, body }) => {
            HttpEnd::Reply { status, reason, retry_after, body: OrderText::Text(body) }
        }
        Err(error) => HttpEnd::Failed(error),
    };
    Outcome { http: Some(end), ..StepOutcome::new(StepStatus::Ok).into() }
}

fn http_request(task: &HttpTask, host: &Host<'_>) -> Result<HttpRequest, StageError> {
    let body = task.body.read_text(host.store).map_err(StageError::permanent_from)?;
    let credential = match &task.credential {
        None => None,
        Some(key) => {
            let secret = host.secrets.secret_values(&key.secrets)?.into_iter().next().map(|(_, value)| value);
            let value = secret.or_else(|| key.token.as_ref().map(|token| token.reveal().to_owned()));
            let header = key.header.clone();
            value.map(|value| HttpCredential { header, token: Token::of_environment(value) })
        }
    };
    Ok(HttpRequest {
        url: task.url.clone(),
        headers: task.headers.clone(),
        credential,
        body,
        idle: task.idle,
        max_body: task.max_body,
    })
}

impl HttpTask {
    /// A request as part of an order, with its body.
    pub fn new(request: &HttpRequest, body: OrderText) -> Self {
        let key = |credential: &HttpCredential| {
            let HttpCredential { header, token } = credential;
            let secrets = token.secret.iter().map(|name| ("token".to_owned(), name.clone())).collect();
            let is_secret = token.secret.is_some();
            let token = (!is_secret).then(|| OrderToken::from(token.value.clone()));
            super::HttpKey { header: header.clone(), token, secrets }
        };
        Self {
            url: request.url.clone(),
            headers: request.headers.clone(),
            credential: request.credential.as_ref().map(key),
            body,
            idle: request.idle,
            max_body: request.max_body,
        }
    }
}

impl HttpEnd {
    /// The reply or the error for the command. A long body has been fetched before.
    pub fn into_result(self) -> Result<HttpReply, HttpError> {
        match self {
            Self::Reply { status, reason, retry_after, body: OrderText::Text(body) } => {
                Ok(HttpReply { status, reason, retry_after, body })
            }
            Self::Reply { body: OrderText::Blob(blob), .. } => {
                Err(HttpError::Executor(format!("the body {} of an answer did not arrive", blob.digest)))
            }
            Self::Failed(error) => Err(error),
        }
    }
}
