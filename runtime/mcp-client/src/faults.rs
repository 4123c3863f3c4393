//! Explains why a server could not be reached or did not answer, without terms of the library below.

use std::error::Error;

use lobster_base::request_error::request_causes;
use lobster_models::http::RequestError;
use rmcp::ServiceError;
use rmcp::model::ErrorCode;
use rmcp::service::ClientInitializeError;
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, HttpStatusError, InsufficientScopeError, StreamableHttpError,
};

/// The message for a server that has forgotten the session.
pub(super) const SESSION_LOST: &str = "it answers with HTTP 404: it does not know the session any more";

/// An error of a connection over HTTP.
type HttpFault = StreamableHttpError<RequestError>;

/// Explains why there is no connection.
pub(super) fn explain_connecting(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => explain_transport(error),
        other => other.to_string(),
    }
}

/// Explains why a request has no answer.
pub(super) fn explain_request(error: &ServiceError) -> String {
    match error {
        ServiceError::TransportSend(error) => explain_transport(error),
        other => other.to_string(),
    }
}

/// True if the server rejects the handshake as unknown, like servers that only speak 2026-07-28.
pub(super) fn knows_no_handshake(error: &ClientInitializeError) -> bool {
    let codes = [
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION,
        ErrorCode::METHOD_NOT_FOUND,
        // The headers that every request of that protocol needs are checked before its method.
        ErrorCode::HEADER_MISMATCH,
    ];
    matches!(error, ClientInitializeError::JsonRpcError(error) if codes.contains(&error.code))
}

/// True if the server refused the connection for lack of a valid login.
pub(super) fn connecting_refused(error: &ClientInitializeError) -> bool {
    matches!(error, ClientInitializeError::TransportError { error, .. } if is_unauthorized(error))
}

/// True if a request was refused for that reason.
pub(super) fn request_refused(error: &ServiceError) -> bool {
    matches!(error, ServiceError::TransportSend(error) if is_unauthorized(error))
}

/// True if every further request of the session would fail in the same way.
pub(super) fn has_lost_session(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else { return false };
    error_causes(error).any(|cause| matches!(cause.downcast_ref(), Some(HttpFault::SessionExpired)))
}

fn is_unauthorized(error: &DynamicTransportError) -> bool {
    error_causes(error).any(|cause| cause.is::<AuthRequiredError>() || cause.is::<InsufficientScopeError>())
}

fn error_causes(error: &DynamicTransportError) -> impl Iterator<Item = &(dyn Error + 'static)> {
    let first: &(dyn Error + 'static) = error.error.as_ref();
    std::iter::successors(Some(first), |&error| error.source())
}

fn explain_transport(error: &DynamicTransportError) -> String {
    let known = error_causes(error).find_map(|cause| match cause.downcast_ref::<HttpFault>() {
        Some(fault) => explain_http(fault),
        None => {
            cause.downcast_ref().map(|HttpStatusError { status, .. }| explain_status(&status.to_string()))
        }
    });
    known.unwrap_or_else(|| error.error.to_string())
}

fn explain_http(fault: &HttpFault) -> Option<String> {
    Some(match fault {
        HttpFault::Client(error) => request_causes(error),
        HttpFault::HttpStatus(HttpStatusError { status, .. }) => explain_status(&status.to_string()),
        HttpFault::SessionExpired => SESSION_LOST.to_owned(),
        HttpFault::UnexpectedServerResponse(said) => match said.strip_prefix("HTTP ") {
            Some(said) => explain_status(said),
            None => said.clone().into_owned(),
        },
        HttpFault::UnexpectedContentType(kind) => {
            let kind = kind.as_deref().unwrap_or("no content type");
            format!(
                "it answers with {kind} instead of JSON or events; there is no MCP server at this address"
            )
        }
        _ => return None,
    })
}

/// Explains an unsuccessful answer: its status, and its likely cause.
fn explain_status(said: &str) -> String {
    let said = said.trim_end_matches([' ', ':']);
    let moved = if said.starts_with('3') {
        "; redirects are not followed: name the address to which it leads"
    } else {
        ""
    };
    format!("it answers with HTTP {said}{moved}")
}
