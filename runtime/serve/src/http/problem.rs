//! Errors in the format of RFC 9457: `application/problem+json`.

use std::fmt::Display;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use lobster_runtime::json;
use lobster_runtime::store::StoreError;
use serde_json::{Value, json};

/// An error answer.
#[derive(Clone, Debug)]
pub struct Problem {
    pub status: StatusCode,
    /// A name for programs.
    pub code: &'static str,
    /// A sentence for people: the problem and its remedy.
    pub detail: String,
    /// Further fields for programs.
    pub more: Box<Value>,
    /// Seconds after which a retry may succeed.
    pub retry_after: Option<u32>,
}

impl Problem {
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), more: Box::default(), retry_after: None }
    }

    #[must_use]
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    #[must_use]
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", detail)
    }

    /// A failure of the server itself.
    #[must_use]
    pub fn failed(detail: impl Display) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", detail.to_string())
    }

    #[must_use]
    pub fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    #[must_use]
    pub fn with_details(mut self, more: Value) -> Self {
        *self.more = more;
        self
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// The error as an answer.
    #[must_use]
    pub fn to_response(&self) -> Response<Body> {
        let mut body = json!({
            "type": format!("urn:lobster:problem:{}", self.code),
            "title": self.status.canonical_reason().unwrap_or("Error"),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        });
        if let (Value::Object(body), Value::Object(more)) = (&mut body, &*self.more) {
            body.extend(more.clone());
        }
        let mut response = Response::new(Body::from(json::compact(&body)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"lobster\""));
        }
        response
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let detail = error.to_string();
        match error {
            StoreError::UnknownRun(_) | StoreError::UnknownGate(_) => Self::not_found(detail),
            StoreError::AmbiguousRun { .. }
            | StoreError::AmbiguousGate { .. }
            | StoreError::ShortGate { .. } => Self::bad_request(detail),
            StoreError::Busy { .. } | StoreError::Full { .. } | StoreError::NotDurable { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "store", detail).retry_after(5)
            }
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "store", detail),
        }
    }
}
