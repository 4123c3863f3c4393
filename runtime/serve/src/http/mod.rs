//! The HTTP side of the service: one table of routes, and what stands before all of them.
//!
//! A request is looked at in one order, whatever it asks for: the name that was called, the page that
//! calls, who it is, whether they may, its size and form; then it is answered. A route says what it
//! needs in the table; a test asks every route as everybody.

mod answer;
mod api;
mod guard;
mod openapi;
mod problem;
mod routes;
mod stream;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::routing::{MethodFilter, on};
use lobster_runtime::json;
use lobster_runtime::runtime::Runtime;
use lobster_runtime::store::Store;
use lobster_runtime::store::service::Service;
use serde_json::Value;

use crate::access::{Actor, Object, can};
use crate::hooks::Rates;
use crate::net::Door;
use crate::workers::Waker;

pub use guard::{COOKIE, Hosts};
pub use problem::Problem;
pub use routes::{Access, Of, Route, Takes, routes};

/// The largest body that is read, in bytes.
pub const MAX_BODY: usize = 1 << 20;

/// How long a client may take to send a body.
const BODY_TIME: Duration = Duration::from_secs(30);

/// What the routes work with.
pub struct App {
    pub(crate) store: Store,
    pub(crate) service: Service,
    /// Reads workflow files and finds secrets.
    pub(crate) runtime: Runtime,
    pub(crate) waker: Waker,
    pub(crate) hosts: Hosts,
    /// The program that executes runs.
    pub(crate) program: PathBuf,
    /// Files and folders that give nothing to start, and why.
    pub(crate) problems: crate::folders::Problems,
    /// Whether browsers reach the server over TLS.
    pub(crate) is_secure: bool,
    failures: guard::Failures,
    pub(crate) rates: Rates,
    started_at: i64,
    /// Requests by the first digit of what they were answered with.
    requests: [AtomicU64; 6],
}

/// What an [`App`] is made of.
pub struct AppSettings {
    pub store: Store,
    pub runtime: Runtime,
    pub waker: Waker,
    pub hosts: Hosts,
    pub program: PathBuf,
    pub problems: crate::folders::Problems,
    pub is_secure: bool,
}

impl App {
    /// What routes work with.
    ///
    /// # Errors
    /// When the store has no room for what a service keeps.
    pub fn new(settings: AppSettings) -> Result<Self, lobster_runtime::store::StoreError> {
        Ok(Self {
            service: settings.store.service()?,
            started_at: settings.store.clock_ms(),
            store: settings.store,
            runtime: settings.runtime,
            waker: settings.waker,
            hosts: settings.hosts,
            program: settings.program,
            problems: settings.problems,
            is_secure: settings.is_secure,
            failures: guard::Failures::default(),
            rates: Rates::default(),
            requests: Default::default(),
        })
    }
}

/// A request that was let in.
pub(crate) struct Asked {
    pub(crate) actor: Option<Actor>,
    pub(crate) door: Door,
    params: BTreeMap<String, String>,
    query: BTreeMap<String, String>,
    pub(crate) headers: HeaderMap,
    /// Null unless the route takes JSON.
    pub(crate) json: Value,
    pub(crate) body: Bytes,
}

impl Asked {
    pub(crate) fn param(&self, name: &str) -> &str {
        self.params.get(name).map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    /// A number of the query.
    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str, otherwise: N) -> Result<N, Problem> {
        match self.query(name) {
            None => Ok(otherwise),
            Some(text) => text.parse().map_err(|_| Problem::bad_request(format!("{name} must be a number"))),
        }
    }

    /// Who calls, for the history.
    pub(crate) fn name(&self) -> Option<&str> {
        self.actor.as_ref().map(|actor| actor.name.as_str())
    }

    /// From where, for the history.
    pub(crate) fn origin(&self) -> String {
        match &self.actor {
            Some(actor) => format!("{} {}", self.door.peer, actor.credential),
            None => self.door.peer.to_string(),
        }
    }

    /// Whether the caller may read something of a workflow; of none, if it belongs to none.
    pub(crate) fn may_read(&self, workflow: Option<&str>) -> bool {
        let object = workflow.map_or(Object::Everything, Object::Workflow);
        self.actor.as_ref().is_some_and(|actor| can(actor, crate::access::Verb::Read, object))
    }
}

/// What a route answers.
pub(crate) struct Reply {
    status: StatusCode,
    body: Body,
    content_type: &'static str,
    headers: Vec<(header::HeaderName, HeaderValue)>,
}

impl Reply {
    pub(crate) fn json(value: &Value) -> Self {
        Self::text("application/json", json::compact(value))
    }

    pub(crate) fn text(content_type: &'static str, text: String) -> Self {
        Self { status: StatusCode::OK, body: Body::from(text), content_type, headers: Vec::new() }
    }

    pub(crate) fn stream(body: Body) -> Self {
        Self { status: StatusCode::OK, body, content_type: "text/event-stream", headers: Vec::new() }
    }

    pub(crate) fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    pub(crate) fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    fn response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        response.headers_mut().extend(self.headers);
        response
    }
}

/// The router of the service. A console is merged into what this gives: pages that go through
/// [`App`] as the routes do.
pub fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    for route in routes() {
        let app = Arc::clone(app);
        let filter = MethodFilter::try_from(route.method()).unwrap_or(MethodFilter::GET);
        let handler = move |params: RawPathParams, request: Request| {
            let app = Arc::clone(&app);
            async move { respond(app, route, params, request).await }
        };
        router = router.route(route.path, on(filter, handler));
    }
    let (missing, wrong) = (Arc::clone(app), Arc::clone(app));
    router
        .fallback(move |request: Request| {
            let app = Arc::clone(&missing);
            async move { refuse(&app, &request, &Problem::not_found("there is nothing at this address")) }
        })
        .method_not_allowed_fallback(move |request: Request| {
            let app = Arc::clone(&wrong);
            async move {
                let problem = Problem::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "method",
                    "this address takes another method",
                );
                refuse(&app, &request, &problem)
            }
        })
}

/// Answers what no route takes. A stranger is told nothing but that.
fn refuse(app: &App, request: &Request, problem: &Problem) -> Response<Body> {
    let checked = guard::check_host(&app.hosts, request.headers())
        .and_then(|()| guard::check_origin(&app.hosts, request.method(), request.headers()));
    finish(app, checked.err().as_ref().unwrap_or(problem).response())
}

async fn respond(
    app: Arc<App>,
    route: &'static Route,
    params: RawPathParams,
    request: Request,
) -> Response<Body> {
    let answered = match let_in(&app, route, &params, request).await {
        Ok(asked) => answer::answer(&app, route, asked).await,
        Err(problem) => Err(problem),
    };
    let response = match answered {
        Ok(reply) => reply.response(),
        Err(problem) => {
            tracing::info!(route = route.path, code = problem.code, detail = problem.detail, "refused");
            problem.response()
        }
    };
    finish(&app, response)
}

/// Everything that is asked before a route is: the one order for all of them.
async fn let_in(
    app: &Arc<App>,
    route: &'static Route,
    params: &RawPathParams,
    request: Request,
) -> Result<Asked, Problem> {
    let (head, body) = request.into_parts();
    guard::check_host(&app.hosts, &head.headers)?;
    guard::check_origin(&app.hosts, &head.method, &head.headers)?;
    let door = head.extensions.get::<Door>().cloned();
    let door = door.ok_or_else(|| Problem::bad_request("where this comes from is not known"))?;
    let params = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut asked = Asked {
        actor: None,
        door,
        params,
        query: query_of(head.uri.query().unwrap_or_default()),
        headers: head.headers,
        json: Value::Null,
        body: Bytes::new(),
    };
    let (app, method) = (Arc::clone(app), head.method);
    // What reads the store must not keep other requests waiting.
    let mut asked = blocking(move || {
        asked.actor = guard::check_caller(&app.service, &method, &asked.headers)?;
        answer::check_access(&app, route, &asked)?;
        Ok(asked)
    })
    .await?;
    if asked.actor.is_some() {
        asked.door.belongs();
    }
    asked.body = read_body(&asked.headers, body).await?;
    match route.takes {
        Takes::Nothing if !asked.body.is_empty() => return Err(Problem::bad_request("this takes no body")),
        Takes::Nothing | Takes::Bytes => {}
        Takes::Json(_) => asked.json = parse_json(&asked.headers, &asked.body)?,
    }
    Ok(asked)
}

/// Does what may wait for the disk.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a request ended in a panic");
        Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed",
            "the server could not do it; its log says why",
        ))
    })
}

async fn read_body(headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    let too_large = || {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too_large",
            format!("a body may have at most {MAX_BODY} bytes"),
        )
    };
    let said = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if said.is_some_and(|said| said > MAX_BODY as u64) {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_TIME, axum::body::to_bytes(body, MAX_BODY)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(_)) => Err(too_large()),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", "the body did not come in time")),
    }
}

fn parse_json(headers: &HeaderMap, body: &Bytes) -> Result<Value, Problem> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content_type",
            "the body must be JSON, and say so: Content-Type: application/json",
        ));
    }
    let text = std::str::from_utf8(body).map_err(|_| Problem::bad_request("the body is not UTF-8 text"))?;
    let value =
        json::parse(text).map_err(|error| Problem::bad_request(format!("the body is not JSON: {error}")))?;
    if !value.is_object() {
        return Err(Problem::bad_request("the body must be a JSON object"));
    }
    Ok(value)
}

/// The fields of a query; `+` and `%` escapes as forms have them.
fn query_of(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (unescaped(name), unescaped(value))
        })
        .collect()
}

fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (byte, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(found)) => {
                out.push(found);
                at += 2;
            }
            (b'+', _) => out.push(b' '),
            (other, _) => out.push(*other),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// What every answer says to a browser: that it is no page, for nobody's frame and nobody's cache.
const HEADERS: [(&str, &str); 6] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-store"),
    (
        "content-security-policy",
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    ),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

fn finish(app: &App, mut response: Response<Body>) -> Response<Body> {
    let class = usize::from(response.status().as_u16() / 100);
    if let Some(count) = app.requests.get(class) {
        count.fetch_add(1, Ordering::Relaxed);
    }
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

impl Route {
    fn method(&self) -> Method {
        self.method.parse().unwrap_or(Method::GET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_a_form() {
        let query = query_of("a=1&b=x%20y+z&c&d=%zz%4&e=%E2%82%AC");
        assert_eq!(query["b"], "x y z");
        assert_eq!((query["c"].as_str(), query["d"].as_str(), query["e"].as_str()), ("", "%zz%4", "€"));
    }
}
