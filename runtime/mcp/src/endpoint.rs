//! The protocol over HTTP, after authentication.

use std::convert::Infallible;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body as HttpBody, Bytes};
use lobster_runtime::cancel::CancelToken;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use super::server::McpServer;
use super::sessions::Sessions;

pub(super) type Body = http_body_util::combinators::BoxBody<Bytes, Infallible>;

/// The header that names a session.
const SESSION: &str = "mcp-session-id";

/// Answers authenticated requests, each in its session.
pub(super) struct Endpoint {
    service: StreamableHttpService<McpServer, LocalSessionManager>,
    sessions: Arc<Sessions>,
}

impl Endpoint {
    /// `make` returns a server for a session, and the token that ends with the session.
    pub(super) fn new(
        idle: Duration,
        config: StreamableHttpServerConfig,
        make: impl Fn() -> (McpServer, CancelToken) + Send + Sync + 'static,
    ) -> Self {
        let sessions = Arc::new(Sessions::new(idle));
        let made = move || {
            let (server, session) = make();
            Sessions::record_server(&session);
            Ok(server)
        };
        let service = StreamableHttpService::new(made, Arc::clone(&sessions.manager), config);
        Self { service, sessions }
    }

    /// Ends sessions whose clients are gone; never returns.
    pub(super) fn sweep_abandoned(&self) -> impl Future<Output = ()> + Send + use<> {
        Arc::clone(&self.sessions).sweep_abandoned()
    }

    /// Answers a request. A session belongs to the caller who began it, if callers can be told apart.
    pub(super) async fn handle_request<B>(&self, request: Request<B>, owner: Option<String>) -> Response<Body>
    where
        B: HttpBody + Send + 'static,
        B::Error: Display,
    {
        let session = session_of(request.headers());
        if let Some(id) = &session
            && owner.is_some()
            && !self.sessions.is_of(id, owner.as_deref())
        {
            // The same answer as for an unknown session.
            return plain_response(StatusCode::NOT_FOUND, "Session not found");
        }
        let held = session.as_deref().and_then(|id| self.sessions.hold_open(id));
        if let Some(id) = session.as_deref().filter(|_| request.method() == Method::DELETE) {
            self.sessions.end_deleted(id);
        }
        let (response, made) = Sessions::watch_answer(self.service.handle(request)).await;
        if let (None, Some(cancel), Some(id)) = (session, made, session_of(response.headers())) {
            self.sessions.add_session(&id, cancel, owner);
        }
        // The request is being answered until its body was sent.
        let holding = move |never: Infallible| {
            let _ = &held;
            never
        };
        response.map(|body| body.map_err(holding).boxed())
    }
}

fn session_of(headers: &HeaderMap) -> Option<String> {
    headers.get(SESSION)?.to_str().ok().map(str::to_owned)
}

pub(super) fn plain_response(status: StatusCode, text: &'static str) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *response.status_mut() = status;
    response
}
