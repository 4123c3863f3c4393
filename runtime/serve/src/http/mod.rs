//! The HTTP side of the service: one table of routes, and the checks that precede all of them.
//!
//! Every request passes the same checks in the same order: host name, origin, caller, rights, size and form. Then it is
//! answered. The table states the requirements of a route, and a test calls every route as every kind of caller.

mod answer;
mod api;
mod changes;
mod guard;
mod hosts;
mod openapi;
mod problem;
mod proxy;
mod routes;
mod stream;
mod streamed_rest;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{RawPathParams, Request};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use axum::routing::{MethodFilter, on};
use http_body_util::combinators::BoxBody;
use lobster_runtime::engine::QuestionView;
use lobster_runtime::json;
use lobster_runtime::runtime::Runtime;
use lobster_runtime::store::Store;
use lobster_runtime::store::service::{CredentialKind, Service};
use serde_json::Value;

use crate::access::{Actor, Object, is_allowed};
use crate::net::Door;
use crate::passkeys::Challenges;
use crate::program::{self, Behalf, Started};
use crate::rate::Rates;
use crate::readiness::Readiness;
use crate::workers::Waker;

pub(crate) use changes::Watch as Changes;
pub use guard::COOKIE;
pub(crate) use guard::Failures;
pub(crate) use hosts::is_own_name;
pub use hosts::{Hosts, Reached};
pub use problem::Problem;
pub use proxy::{NamedByProxy, Rights};
pub use routes::{Access, Handler, Of, Route, Takes, routes};

pub use answer::{rerun_verb, run_of, workflow_of_run};

/// Operations that pages share with the API, with the same checks and the same trail.
pub mod acts {
    pub use super::api::access::{forget_passkey, login, logout, may_add_passkey, passkeys_of};
    pub use super::api::gates::{answer_approval as answer_gate, decide_approval as decide_gate};
    pub use super::api::runs::cancel_run;
    pub use super::api::schedules::{pause_schedule, resume_schedule};
    pub use super::api::workflows::{
        Cause, FileOfWorkflow, Saved, check_draft, enqueue_for, file_of as file_of_workflow, file_problem,
        register_file, save_file, start_run,
    };
}

/// The largest accepted body, in bytes.
pub const MAX_BODY: usize = 1 << 20;

/// Time limit for a body.
const BODY_TIME: Duration = Duration::from_secs(30);

/// The state that routes work with.
pub struct App {
    pub store: Store,
    pub service: Service,
    /// Reads workflow files and finds secrets.
    pub runtime: Runtime,
    pub waker: Waker,
    pub(crate) hosts: Hosts,
    /// The program that executes runs.
    pub program: PathBuf,
    /// Files and folders from which nothing can start, with the reasons.
    pub problems: crate::folders::Problems,
    /// The files that authors may save.
    pub files: crate::workflow_files::WorkflowFiles,
    /// The pages for people.
    pub(crate) pages: Option<&'static Pages>,
    /// The protocol for agents.
    pub(crate) agents: Option<Arc<dyn Agents>>,
    /// Formats everything that a question shows as text.
    pub(crate) question: Option<fn(&QuestionView) -> String>,
    /// True if the server accepts no more requests.
    pub(crate) is_ending: AtomicBool,
    pub(crate) changes: Changes,
    /// Live progress of running runs.
    pub tidings: crate::tidings::Tidings,
    /// The abilities that the server lacks now.
    pub(crate) readiness: Readiness,
    /// The names that a proxy gives to its callers.
    pub(crate) proxy: Option<NamedByProxy>,
    /// True if a person can approve only with a passkey that is unlocked for that approval.
    pub confirms_by_passkey: bool,
    /// Issues the challenges that passkeys sign.
    pub(crate) challenges: Challenges,
    pub(crate) failures: Failures,
    pub(crate) rates: Rates,
    pub(crate) started_at: i64,
    /// Counts of requests by the first digit of their status.
    pub(crate) requests: [AtomicU64; 6],
}

/// Front ends besides the API.
#[derive(Clone, Default)]
pub struct Fronts {
    /// Pages for people.
    pub pages: Option<&'static Pages>,
    /// The protocol for agents.
    pub agents: Option<Arc<dyn Agents>>,
    /// Formats everything that a question shows as text, for places other than pages.
    pub question: Option<fn(&QuestionView) -> String>,
}

/// The pending answer of another protocol.
pub type Answering =
    Pin<Box<dyn Future<Output = Result<Response<BoxBody<Bytes, Infallible>>, Problem>> + Send>>;

/// The protocol for agents. The service checks callers and roles; the protocol does the rest.
pub trait Agents: Send + Sync {
    /// Answers an accepted request of an agent.
    fn answer_request(&self, app: Arc<App>, asked: Asked) -> Answering;
}

/// Pages that are served beside the API, with the same checks.
pub struct Pages {
    pub routes: &'static [Route],
    /// Makes the page for a problem. If a request was refused early, little of it is known.
    pub problem: fn(&App, &Asked, &Problem) -> RouteReply,
}

impl App {
    /// True if the server accepts no more requests and closes its connections.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    pub(crate) fn mark_ending(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Builds a command that runs lobster with these arguments, in the given directory if it exists. Its output is for
    /// a page.
    #[must_use]
    pub fn build_command(&self, behalf: &Behalf<'_>, cwd: &str, words: &[impl AsRef<OsStr>]) -> Command {
        let mut command = program::build_command(&self.program, behalf, words);
        command.env("NO_COLOR", "1");
        if Path::new(cwd).is_dir() {
            command.current_dir(cwd);
        }
        command
    }

    /// Starts the command. The dispatcher is woken when it has ended.
    ///
    /// # Errors
    /// Fails if no process can be started.
    pub fn start_process(&self, command: Command) -> Result<Started, Problem> {
        let waker = self.waker.clone();
        Started::spawn(command, move || waker.wake()).map_err(|error| {
            let why = format!("no process can be started now: {error}");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "processes", why).retry_after(5)
        })
    }

    /// Identifies the caller, if the service knows them.
    fn identify_caller(&self, asked: &Asked) -> Result<Option<Actor>, Problem> {
        let by_proxy = self.proxy.as_ref().filter(|_| asked.door.is_proxy);
        guard::check_caller(&self.service, by_proxy, (&asked.method, &asked.headers))
    }

    /// Checks access again while an answer is streamed: the session may have ended.
    pub(crate) fn check_still(&self, asked: &Asked) -> Result<(), Problem> {
        if self.identify_caller(asked)? == asked.actor {
            return Ok(());
        }
        Err(Problem::new(StatusCode::UNAUTHORIZED, "login", "the session or token is no longer valid"))
    }
}

/// A request.
#[derive(Clone)]
pub struct Asked {
    pub actor: Option<Actor>,
    pub(crate) door: Door,
    pub method: Method,
    /// The path and the query of the request.
    pub target: String,
    params: BTreeMap<String, String>,
    query: BTreeMap<String, String>,
    pub headers: HeaderMap,
    /// Null unless the route takes JSON.
    pub json: Value,
    /// The fields of a form, in their order.
    pub form: Vec<(String, String)>,
    pub body: Bytes,
}

impl Asked {
    fn new(
        door: Door,
        method: Method,
        uri: &axum::http::Uri,
        headers: HeaderMap,
        params: BTreeMap<String, String>,
    ) -> Self {
        Self {
            actor: None,
            door,
            method,
            target: uri.path_and_query().map_or_else(String::new, ToString::to_string),
            params,
            query: pairs_of(uri.query().unwrap_or_default()).into_iter().collect(),
            headers,
            json: Value::Null,
            form: Vec::new(),
            body: Bytes::new(),
        }
    }

    /// A parameter of the path.
    #[must_use]
    pub fn param(&self, name: &str) -> &str {
        self.params.get(name).map(String::as_str).unwrap_or_default()
    }

    /// A field of the query.
    #[must_use]
    pub fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    /// A field of the form.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.form.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The same request with a JSON body, for calls of the API.
    #[must_use]
    pub fn with_json(&self, json: Value) -> Self {
        Self { json, ..self.clone() }
    }

    /// True if browsers use TLS on this connection.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.door.is_secure
    }

    /// A number from the query.
    ///
    /// # Errors
    /// Fails if the text is not a number.
    pub fn query_number<N: std::str::FromStr>(&self, name: &str, otherwise: N) -> Result<N, Problem> {
        match self.query(name) {
            None => Ok(otherwise),
            Some(text) => text.parse().map_err(|_| Problem::bad_request(format!("{name} must be a number"))),
        }
    }

    /// The caller's name, for the history.
    #[must_use]
    pub fn caller_name(&self) -> Option<&str> {
        self.actor.as_ref().map(|actor| actor.name.as_str())
    }

    /// The name of the calling agent, if the caller is one.
    #[must_use]
    pub fn agent_name(&self) -> Option<&str> {
        let agent = self.actor.as_ref().filter(|actor| actor.kind == CredentialKind::Agent);
        agent.map(|actor| actor.name.as_str())
    }

    /// The caller's address and credential, for the history.
    #[must_use]
    pub fn caller_origin(&self) -> String {
        match &self.actor {
            Some(actor) => format!("{} {}", self.door.peer, actor.credential),
            None => self.door.peer.to_string(),
        }
    }

    /// True if the caller may read objects of this workflow, or objects without a workflow.
    #[must_use]
    pub fn may_read(&self, workflow: Option<&str>) -> bool {
        self.has_right(crate::access::Verb::Read, workflow)
    }

    /// True if the caller has this right for objects of this workflow, or for objects without a workflow.
    #[must_use]
    pub fn has_right(&self, verb: crate::access::Verb, workflow: Option<&str>) -> bool {
        let object = workflow.map_or(Object::Everything, Object::Workflow);
        self.actor.as_ref().is_some_and(|actor| is_allowed(actor, verb, object))
    }
}

/// Makes the rest of an answer.
type Rest = Box<dyn FnOnce(&App, &Asked) -> String + Send>;

/// The answer of a route.
pub struct RouteReply {
    status: StatusCode,
    body: Body,
    content_type: &'static str,
    headers: Vec<(header::HeaderName, HeaderValue)>,
    /// The beginning of the body, and the function that makes its rest.
    rest: Option<(Bytes, Rest)>,
}

impl RouteReply {
    #[must_use]
    pub fn json(value: &Value) -> Self {
        Self::bytes("application/json", json::compact(value))
    }

    /// A body of bytes of any length.
    #[must_use]
    pub fn bytes(content_type: &'static str, body: impl Into<Body>) -> Self {
        Self { status: StatusCode::OK, body: body.into(), content_type, headers: Vec::new(), rest: None }
    }

    /// A text whose beginning is sent at once and whose rest takes a while. Errors in the rest must be reported in the
    /// text, because the status has been sent.
    #[must_use]
    pub fn streamed_rest(
        content_type: &'static str,
        first: String,
        rest: impl FnOnce(&App, &Asked) -> String + Send + 'static,
    ) -> Self {
        Self { rest: Some((first.into(), Box::new(rest))), ..Self::bytes(content_type, Body::empty()) }
    }

    /// Redirects a browser to another page of this server.
    #[must_use]
    pub fn redirect_to(path: &str) -> Self {
        let place = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
        Self::bytes("text/plain; charset=utf-8", String::new())
            .with_status(StatusCode::SEE_OTHER)
            .with_header(header::LOCATION, place)
    }

    /// The additional headers of the answer.
    #[must_use]
    pub fn headers(&self) -> &[(header::HeaderName, HeaderValue)] {
        &self.headers
    }

    pub(crate) fn event_stream(body: Body) -> Self {
        Self::bytes("text/event-stream", body)
    }

    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    #[must_use]
    pub fn with_header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// An answer that was made elsewhere.
    pub(crate) fn from_response(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        let headers = head.headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect();
        Self { status: head.status, headers, ..Self::bytes("", body) }
    }

    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(self.body);
        *response.status_mut() = self.status;
        if !self.content_type.is_empty() {
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        }
        response.headers_mut().extend(self.headers);
        response
    }
}

/// The router of the service and of its pages.
pub fn build_router(app: &Arc<App>) -> Router {
    let mut router = Router::new();
    let pages = app.pages.map_or(&[][..], |pages| pages.routes);
    for route in routes().iter().chain(pages) {
        let app = Arc::clone(app);
        let method: Method = route.method.parse().unwrap_or(Method::GET);
        let filter = MethodFilter::try_from(method).unwrap_or(MethodFilter::GET);
        let handler = move |params: RawPathParams, request: Request| {
            let app = Arc::clone(&app);
            async move { respond_to(app, route, params, request).await }
        };
        // The former address, which still works and is not described.
        if let Some(rest) = route.path.strip_prefix("/api/v1/approvals") {
            router = router.route(&format!("/api/v1/gates{rest}"), on(filter, handler.clone()));
        }
        router = router.route(route.path, on(filter, handler));
    }
    let (missing, wrong) = (Arc::clone(app), Arc::clone(app));
    router
        .fallback(move |request: Request| {
            let app = Arc::clone(&missing);
            async move { refuse_request(&app, &request, &Problem::not_found("there is nothing at this address")) }
        })
        .method_not_allowed_fallback(move |request: Request| {
            let app = Arc::clone(&wrong);
            async move {
                let problem = Problem::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "method",
                    "this address takes another method",
                );
                refuse_request(&app, &request, &problem)
            }
        })
}

/// Answers a request without a route. A stranger learns nothing else.
fn refuse_request(app: &App, request: &Request, problem: &Problem) -> Response<Body> {
    let is_secure = request.extensions().get::<Door>().is_some_and(|door| door.is_secure);
    let checked = guard::check_host(&app.hosts, request.headers())
        .and_then(|()| guard::check_origin(&app.hosts, is_secure, (request.method(), request.headers())));
    let problem = checked.err().unwrap_or_else(|| problem.clone());
    let headers = request.headers();
    let wants_page = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/html"));
    let asked = request.extensions().get::<Door>().cloned().map(|door| {
        Asked::new(door, request.method().clone(), request.uri(), headers.clone(), BTreeMap::new())
    });
    match asked.filter(|_| wants_page) {
        Some(asked) => finish_response(app, show_problem(app, true, &asked, &problem)),
        None => finish_response(app, problem.to_response()),
    }
}

/// The answer for a problem, for a program or a person.
fn show_problem(app: &App, is_page: bool, asked: &Asked, problem: &Problem) -> Response<Body> {
    match app.pages.filter(|_| is_page) {
        Some(pages) => (pages.problem)(app, asked, problem).into_response(),
        None => problem.to_response(),
    }
}

async fn respond_to(
    app: Arc<App>,
    route: &'static Route,
    params: RawPathParams,
    request: Request,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let Some(door) = head.extensions.get::<Door>().cloned() else {
        return finish_response(
            &app,
            Problem::bad_request("the origin of the connection is unknown").to_response(),
        );
    };
    let params = params.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let mut asked = Asked::new(door, head.method, &head.uri, head.headers, params);
    let answered = match let_in(&app, route, &mut asked, body).await {
        Ok(()) => answer::call_handler(&app, route, asked.clone()).await,
        Err(problem) => Err(problem),
    };
    let response = match answered {
        Ok(reply) => reply.into_response(),
        Err(problem) => {
            tracing::info!(route = route.path, code = problem.code, detail = problem.detail, "refused");
            show_problem(&app, route.is_page, &asked, &problem)
        }
    };
    finish_response(&app, response)
}

/// Performs all checks before the route is called, in the same order for all routes.
async fn let_in(app: &Arc<App>, route: &'static Route, asked: &mut Asked, body: Body) -> Result<(), Problem> {
    guard::check_host(&app.hosts, &asked.headers)?;
    guard::check_origin(&app.hosts, asked.door.is_secure, (&asked.method, &asked.headers))?;
    let mut body = Some(body);
    let mut is_read = Ok(());
    if matches!(route.takes, Takes::Form)
        && let Some(body) = body.take()
    {
        // The form is read before the caller is known: if the session ends meanwhile, the typed text must not be lost.
        is_read = match read_body(&asked.headers, body).await {
            Ok(body) => form_of(&asked.headers, &body).map(|form| (asked.form, asked.body) = (form, body)),
            Err(problem) => Err(problem),
        };
    }
    let (of_app, known) = (Arc::clone(app), asked.clone());
    // Reading the store must not delay other requests.
    let (actor, access) = run_blocking(move || {
        let mut known = known;
        known.actor = of_app.identify_caller(&known)?;
        let access = answer::check_access(&of_app, route, &known);
        Ok((known.actor, access))
    })
    .await?;
    asked.actor = actor;
    access?;
    is_read?;
    if asked.actor.is_some() {
        asked.door.mark_accepted();
    }
    if let Some(body) = body {
        asked.body = read_body(&asked.headers, body).await?;
    }
    match route.takes {
        Takes::Nothing if !asked.body.is_empty() => return Err(Problem::bad_request("this takes no body")),
        Takes::Nothing | Takes::Bytes | Takes::Form => {}
        Takes::Json(_) => asked.json = parse_json(&asked.headers, &asked.body)?,
    }
    Ok(())
}

/// Runs work that may wait for the disk.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "a request ended in a panic");
        Err(Problem::failed("the server failed; see its log for the reason"))
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
    if !is_of_type(headers, "application/json") {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content_type",
            "the body must be JSON with Content-Type: application/json",
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

/// True if a header declares this type of the body.
fn is_of_type(headers: &HeaderMap, wanted: &str) -> bool {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(wanted)
}

/// Parses the fields of a form, in the encoding of browsers.
fn form_of(headers: &HeaderMap, body: &Bytes) -> Result<Vec<(String, String)>, Problem> {
    if !is_of_type(headers, "application/x-www-form-urlencoded") {
        return Err(Problem::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "content_type",
            "the body must be a form: Content-Type: application/x-www-form-urlencoded",
        ));
    }
    let text = std::str::from_utf8(body).map_err(|_| Problem::bad_request("the body is not UTF-8 text"))?;
    Ok(pairs_of(text))
}

/// Parses the fields of a query or a form, with `+` and `%` escapes.
fn pairs_of(query: &str) -> Vec<(String, String)> {
    form_urlencoded::parse(query.as_bytes()).into_owned().collect()
}

/// Default headers of every answer: no sniffing, no framing, no caching.
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

fn finish_response(app: &App, mut response: Response<Body>) -> Response<Body> {
    let class = usize::from(response.status().as_u16() / 100);
    if let Some(count) = app.requests.get(class) {
        count.fetch_add(1, Ordering::Relaxed);
    }
    for (name, value) in HEADERS {
        response.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_a_form() {
        let query: BTreeMap<_, _> =
            pairs_of("a=1&b=x%20y+z&c&d=%zz%4&e=%E2%82%AC&f=%+f").into_iter().collect();
        assert_eq!(query["b"], "x y z");
        assert_eq!((query["c"].as_str(), query["d"].as_str(), query["e"].as_str()), ("", "%zz%4", "€"));
        assert_eq!(query["f"], "% f", "a plus is a blank, not a sign");
    }
}
