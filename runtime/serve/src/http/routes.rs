//! The table of routes. Every route in it is served, described and tested; there are no others.

use serde_json::{Value, json};

use super::api::{access, events, gates, runs, schedules, state, workflows};
use super::{App, Asked, Problem, RouteReply};
use crate::access::Verb;
use crate::hooks;

/// The access rule of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Open to anyone who can connect; the route does its own checks.
    Open,
    /// Requires this right for this object.
    To(Verb, Of),
}

/// The object of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    List,
    Everything,
    /// `{workflow}`.
    Workflow,
    /// The workflow of `{run}`.
    Run,
    /// The workflow of `{run}`, to execute its steps again; if the version is not registered now, only authors may.
    Rerun,
    /// The workflow of `{approval}`.
    Gate,
}

/// The body of a request.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    Nothing,
    /// JSON of this schema.
    Json(fn() -> Value),
    /// Raw bytes.
    Bytes,
    /// The fields of a form, in the encoding of browsers.
    Form,
}

/// The handler of a route.
#[derive(Clone, Copy)]
pub enum Handler {
    Call(fn(&App, &Asked) -> Result<RouteReply, Problem>),
    /// The records of `{run}` as a stream.
    Records,
    /// A stream of the runs that have new records or progress.
    Changes,
    /// The Model Context Protocol.
    Agents,
}

/// One route.
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub access: Access,
    pub summary: &'static str,
    pub takes: Takes,
    /// Fields of the query.
    pub query: &'static [&'static str],
    /// The status on success.
    pub status: u16,
    pub handler: Handler,
    /// True if the route is for people, so that errors are pages as well.
    pub is_page: bool,
}

const READ_LIST: Access = Access::To(Verb::Read, Of::List);
const READ_RUN: Access = Access::To(Verb::Read, Of::Run);
const OPERATE: Access = Access::To(Verb::Operate, Of::Workflow);
const AUTHOR: Access = Access::To(Verb::Register, Of::Workflow);
const ADMINISTER: Access = Access::To(Verb::Administer, Of::Everything);

const fn get(
    path: &'static str,
    access: Access,
    summary: &'static str,
    call: fn(&App, &Asked) -> Result<RouteReply, Problem>,
) -> Route {
    let takes = Takes::Nothing;
    Route {
        method: "GET",
        path,
        access,
        summary,
        takes,
        query: &[],
        status: 200,
        handler: Handler::Call(call),
        is_page: false,
    }
}

const fn post(
    path: &'static str,
    access: Access,
    summary: &'static str,
    takes: Takes,
    status: u16,
    call: fn(&App, &Asked) -> Result<RouteReply, Problem>,
) -> Route {
    let handler = Handler::Call(call);
    Route { method: "POST", path, access, summary, takes, query: &[], status, handler, is_page: false }
}

const fn with_query(mut route: Route, query: &'static [&'static str]) -> Route {
    route.query = query;
    route
}

/// A method of the address for agents.
const fn agent_route(method: &'static str, summary: &'static str, takes: Takes) -> Route {
    Route {
        method,
        path: "/mcp",
        access: Access::To(Verb::Converse, Of::List),
        summary,
        takes,
        query: &[],
        status: 200,
        handler: Handler::Agents,
        is_page: false,
    }
}

/// The routes that accept an agent's token: an agent reads, starts registered workflows, and cancels. All other routes
/// refuse it.
const FOR_AGENTS: [(&str, &str); 20] = [
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("GET", "/api/v1/openapi.json"),
    ("GET", "/api/v1/me"),
    ("POST", "/api/v1/logout"),
    ("GET", "/api/v1/workflows"),
    ("GET", "/api/v1/workflows/{workflow}"),
    ("POST", "/api/v1/workflows/{workflow}/runs"),
    ("GET", "/api/v1/workflows/{workflow}/schedules/{schedule}/ticks"),
    ("GET", "/api/v1/runs"),
    ("GET", "/api/v1/runs/{run}"),
    ("POST", "/api/v1/runs/{run}/cancel"),
    ("GET", "/api/v1/runs/{run}/events"),
    ("GET", "/api/v1/runs/{run}/stream"),
    ("GET", "/api/v1/changes"),
    ("GET", "/api/v1/approvals"),
    ("GET", "/api/v1/approvals/{approval}"),
    ("GET", "/api/v1/schedules"),
    ("GET", "/api/v1/waits"),
];

/// Routes with another method than GET that change nothing: they only check a text in the request.
const LOOKS_AT_TEXTS: [&str; 2] =
    ["/api/v1/workflows/{workflow}/check", "/api/v1/workflows/{workflow}/complete"];

impl Route {
    /// True if the route accepts an agent's token.
    pub(super) fn is_for_agents(&self) -> bool {
        FOR_AGENTS.contains(&(self.method, self.path))
    }

    /// True if the trail records the caller. Runs started by an agent's messages have their own entries.
    pub(super) fn is_noted(&self) -> bool {
        self.method != "GET" && !LOOKS_AT_TEXTS.contains(&self.path) && self.path != "/mcp"
    }
}

/// All routes.
#[must_use]
pub fn routes() -> &'static [Route] {
    ROUTES
}

static ROUTES: &[Route] = &[
    get("/healthz", Access::Open, "Reports if the server can use its store", state::health),
    get(
        "/readyz",
        Access::Open,
        "Lists the abilities that the server lacks now; 503 if there are any",
        state::check_readiness,
    ),
    get("/metrics", Access::To(Verb::Read, Of::Everything), "Figures for Prometheus", state::metrics),
    get("/api/v1/openapi.json", READ_LIST, "This description", state::openapi),
    post(
        "/api/v1/login",
        Access::Open,
        "Opens a session with the secret of a one-time link",
        Takes::Json(login_schema),
        200,
        access::login,
    ),
    post(
        "/api/v1/logout",
        READ_LIST,
        "Ends the session, or revokes the token",
        Takes::Nothing,
        200,
        access::logout,
    ),
    with_query(
        post(
            "/api/v1/passkeys/challenge",
            Access::Open,
            "A challenge that a key signs once, within five minutes: to log in, to be added, or to approve a `question` (its id and digest)",
            Takes::Nothing,
            200,
            access::issue_challenge,
        ),
        &["question"],
    ),
    post(
        "/api/v1/login/passkey",
        Access::Open,
        "Opens a session with a passkey's signature",
        Takes::Json(signed_schema),
        200,
        access::log_in_by_passkey,
    ),
    get("/api/v1/passkeys", READ_LIST, "Your passkeys", access::list_passkeys),
    post(
        "/api/v1/passkeys",
        READ_LIST,
        "Adds a passkey, which opens sessions with the rights of the current session",
        Takes::Json(passkey_schema),
        201,
        access::add_passkey,
    ),
    Route {
        method: "DELETE",
        path: "/api/v1/passkeys/{passkey}",
        access: READ_LIST,
        summary: "Removes one of your passkeys",
        takes: Takes::Nothing,
        query: &[],
        status: 200,
        handler: Handler::Call(access::forget_passkey),
        is_page: false,
    },
    get("/api/v1/me", READ_LIST, "The caller, with role and workflows", access::show_caller),
    get("/api/v1/servers", READ_LIST, "The running servers of this store", state::servers),
    get(
        "/api/v1/workflows",
        READ_LIST,
        "The registered workflows, and the problems of files",
        workflows::list,
    ),
    get(
        "/api/v1/workflows/{workflow}",
        Access::To(Verb::Read, Of::Workflow),
        "One workflow with its triggers and arguments",
        workflows::show,
    ),
    post(
        "/api/v1/workflows/{workflow}/runs",
        OPERATE,
        "Starts a run; it is durable when the answer arrives",
        Takes::Json(start_schema),
        202,
        workflows::start,
    ),
    post(
        "/api/v1/workflows/{workflow}/register",
        AUTHOR,
        "Registers the current file; the digest names the version that was read",
        Takes::Json(register_schema),
        200,
        workflows::register,
    ),
    get(
        "/api/v1/workflows/{workflow}/file",
        AUTHOR,
        "The text of the workflow's file, if it is in the server's folders",
        workflows::read_file,
    ),
    Route {
        method: "PUT",
        ..post(
            "/api/v1/workflows/{workflow}/file",
            AUTHOR,
            "Saves a text as the workflow's file, if the file has not changed since it was read; registers nothing",
            Takes::Json(file_schema),
            200,
            workflows::save_text,
        )
    },
    post(
        "/api/v1/workflows/{workflow}/check",
        AUTHOR,
        "Results of `check`, a dry run and `graph` for a text of the workflow's file; nothing is run",
        Takes::Json(text_schema),
        200,
        workflows::check_text,
    ),
    post(
        "/api/v1/workflows/{workflow}/complete",
        AUTHOR,
        "Completions at a position of such a text",
        Takes::Json(place_schema),
        200,
        workflows::complete_text,
    ),
    with_query(
        get("/api/v1/runs", READ_LIST, "Runs, newest first", runs::list),
        &["limit", "before", "status", "name"],
    ),
    get("/api/v1/runs/{run}", READ_RUN, "One run, which may still be queued", runs::show),
    post(
        "/api/v1/runs/{run}/cancel",
        Access::To(Verb::Operate, Of::Run),
        "Cancels a run",
        Takes::Nothing,
        202,
        runs::cancel_run,
    ),
    with_query(
        get("/api/v1/runs/{run}/events", READ_RUN, "The records of a run's journal", runs::list_records),
        &["after", "limit"],
    ),
    with_query(
        get(
            "/api/v1/runs/{run}/output",
            READ_RUN,
            "Output of the steps of a run, even while they run; optionally only of one `step` and the steps inside it",
            runs::show_output,
        ),
        &["step"],
    ),
    Route {
        method: "GET",
        path: "/api/v1/runs/{run}/stream",
        access: READ_RUN,
        summary: "The records as server-sent events until the run ends, and the `progress` of running steps; Last-Event-ID continues a broken stream",
        takes: Takes::Nothing,
        query: &["after"],
        status: 200,
        handler: Handler::Records,
        is_page: false,
    },
    Route {
        method: "GET",
        path: "/api/v1/changes",
        access: READ_LIST,
        summary: "Runs with new records, as server-sent events; Last-Event-ID continues a broken stream",
        takes: Takes::Nothing,
        query: &["after"],
        status: 200,
        handler: Handler::Changes,
        is_page: false,
    },
    with_query(get("/api/v1/approvals", READ_LIST, "Approvals and input requests", gates::list), &["all"]),
    get("/api/v1/approvals/{approval}", Access::To(Verb::Read, Of::Gate), "One of them in full", gates::show),
    post(
        "/api/v1/approvals/{approval}/answer",
        Access::To(Verb::Answer, Of::Gate),
        "Answers an approval or input request; the digest names the version that was shown",
        Takes::Json(answer_schema),
        200,
        gates::answer_approval,
    ),
    get("/api/v1/schedules", READ_LIST, "The schedules, each with its next due time", schedules::list),
    with_query(
        get(
            "/api/v1/workflows/{workflow}/schedules/{schedule}/ticks",
            Access::To(Verb::Read, Of::Workflow),
            "Results of a schedule's ticks, newest first",
            schedules::list_ticks,
        ),
        &["limit", "since"],
    ),
    post(
        "/api/v1/workflows/{workflow}/schedules/{schedule}/pause",
        OPERATE,
        "Pauses a schedule",
        Takes::Nothing,
        200,
        schedules::pause_schedule,
    ),
    post(
        "/api/v1/workflows/{workflow}/schedules/{schedule}/resume",
        OPERATE,
        "Resumes a paused schedule",
        Takes::Nothing,
        200,
        schedules::resume_schedule,
    ),
    post(
        "/api/v1/workflows/{workflow}/schedules/{schedule}/backfill",
        OPERATE,
        "Starts runs for past ticks that had none",
        Takes::Json(backfill_schema),
        202,
        schedules::backfill,
    ),
    with_query(
        get(
            "/api/v1/deliveries",
            Access::To(Verb::Read, Of::Everything),
            "Deliveries of webhooks",
            state::deliveries,
        ),
        &["limit"],
    ),
    post(
        "/api/v1/deliveries/{delivery}/redeliver",
        Access::To(Verb::Operate, Of::Everything),
        "Starts another run for an earlier delivery",
        Takes::Nothing,
        202,
        hooks::redeliver,
    ),
    post(
        "/api/v1/events",
        Access::To(Verb::Operate, Of::Everything),
        "Sends an event to the runs that wait for its name; it is durable when the answer arrives",
        Takes::Json(event_schema),
        202,
        events::send,
    ),
    with_query(
        get("/api/v1/waits", READ_LIST, "Times and events that parked runs wait for", events::list_waits),
        &["limit"],
    ),
    with_query(
        get(
            "/api/v1/notices",
            Access::To(Verb::Read, Of::Everything),
            "Notices, sent and pending, newest first",
            state::notices,
        ),
        &["limit"],
    ),
    get("/api/v1/tokens", ADMINISTER, "The tokens of programs, without their secrets", access::list_tokens),
    post(
        "/api/v1/tokens",
        ADMINISTER,
        "Makes a token; its secret is only in this answer",
        Takes::Json(token_schema),
        201,
        access::make_token,
    ),
    Route {
        method: "DELETE",
        path: "/api/v1/tokens/{token}",
        access: ADMINISTER,
        summary: "Revokes a token, or ends a session",
        takes: Takes::Nothing,
        query: &[],
        status: 200,
        handler: Handler::Call(access::revoke_token),
        is_page: false,
    },
    with_query(get("/api/v1/trail", ADMINISTER, "The trail, newest first", state::trail), &["limit"]),
    agent_route("POST", "A message of the Model Context Protocol, over streamable HTTP", Takes::Bytes),
    agent_route("GET", "Messages to an agent's session, as server-sent events", Takes::Nothing),
    agent_route("DELETE", "Ends an agent's session; its runs continue", Takes::Nothing),
    post(
        "/hooks/{*path}",
        Access::Open,
        "A delivery of a webhook, signed by its sender; it is durable when the answer arrives",
        Takes::Bytes,
        202,
        hooks::receive_delivery,
    ),
];

fn signed_schema() -> Value {
    let part = json!({ "type": "string", "description": "base64url" });
    json!({
        "type": "object", "required": ["id", "client", "authenticator", "signature"], "additionalProperties": false,
        "properties": { "id": part, "client": part, "authenticator": part, "signature": part },
    })
}

fn passkey_schema() -> Value {
    let part = json!({ "type": "string", "description": "base64url" });
    json!({
        "type": "object", "required": ["client", "authenticator", "key"], "additionalProperties": false,
        "properties": { "client": part, "authenticator": part, "key": part },
    })
}

fn login_schema() -> Value {
    json!({ "type": "object", "required": ["link"], "properties": { "link": { "type": "string" } } })
}

fn start_schema() -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": { "args": { "type": "object" } } })
}

fn register_schema() -> Value {
    json!({ "type": "object", "required": ["digest"], "properties": { "digest": { "type": "string" } } })
}

fn text_schema() -> Value {
    json!({ "type": "object", "required": ["text"], "additionalProperties": false, "properties": { "text": { "type": "string" } } })
}

fn place_schema() -> Value {
    json!({
        "type": "object",
        "required": ["text", "at"],
        "additionalProperties": false,
        "properties": {
            "text": { "type": "string" },
            "at": { "type": "integer", "minimum": 0, "description": "in units of UTF-16, as browsers count" },
        },
    })
}

fn file_schema() -> Value {
    json!({
        "type": "object",
        "required": ["text"],
        "additionalProperties": false,
        "properties": {
            "text": { "type": "string" },
            "was": { "type": "string", "description": "the digest of the file that was read; omitted for a new file" },
        },
    })
}

fn answer_schema() -> Value {
    json!({
        "type": "object",
        "required": ["decision", "digest"],
        "additionalProperties": false,
        "properties": {
            "decision": { "enum": ["approve", "reject", "respond", "cancel"] },
            "response": { "description": "the value, for `respond`" },
            "reason": { "type": "string", "description": "the reason, for `reject`; it is recorded with the run" },
            "digest": { "type": "string", "description": "the binding of the question that was shown" },
            "passkey": signed_schema(),
        },
    })
}

fn event_schema() -> Value {
    json!({
        "type": "object",
        "required": ["name"],
        "additionalProperties": false,
        "properties": { "name": { "type": "string" }, "data": { "description": "the value that the waiting steps get" } },
    })
}

fn backfill_schema() -> Value {
    json!({
        "type": "object",
        "required": ["from"],
        "additionalProperties": false,
        "properties": {
            "from": { "type": "string", "format": "date-time" },
            "to": { "type": "string", "format": "date-time" },
        },
    })
}

fn token_schema() -> Value {
    json!({
        "type": "object",
        "required": ["name", "role", "days"],
        "additionalProperties": false,
        "properties": {
            "name": { "type": "string", "minLength": 1, "maxLength": 100 },
            "role": { "enum": ["viewer", "approver", "operator", "author", "admin"] },
            "days": { "type": "integer", "minimum": 1, "maximum": 3650 },
            "workflows": { "type": "array", "items": { "type": "string" } },
            "agent": { "type": "boolean", "description": "it uses MCP, and never answers a question" },
        },
    })
}
