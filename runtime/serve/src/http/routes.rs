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
const READ_WORKFLOW: Access = Access::To(Verb::Read, Of::Workflow);
const READ_ALL: Access = Access::To(Verb::Read, Of::Everything);
const OPERATE_ALL: Access = Access::To(Verb::Operate, Of::Everything);

type Call = fn(&App, &Asked) -> Result<RouteReply, Problem>;

const fn get(path: &'static str, access: Access, summary: &'static str, call: Call) -> Route {
    Route::new("GET", path, access, summary, Handler::Call(call))
}

const fn post(path: &'static str, access: Access, summary: &'static str, call: Call) -> Route {
    Route::new("POST", path, access, summary, Handler::Call(call))
}

const fn delete(path: &'static str, access: Access, summary: &'static str, call: Call) -> Route {
    Route::new("DELETE", path, access, summary, Handler::Call(call))
}

/// A method of the address for agents.
const fn agent_route(method: &'static str, summary: &'static str, takes: Takes) -> Route {
    Route::new(method, "/mcp", Access::To(Verb::Converse, Of::List), summary, Handler::Agents).taking(takes)
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
    /// A route without a body or a query, which answers 200.
    #[must_use]
    pub const fn new(
        method: &'static str,
        path: &'static str,
        access: Access,
        summary: &'static str,
        handler: Handler,
    ) -> Self {
        let takes = Takes::Nothing;
        Self { method, path, access, summary, takes, query: &[], status: 200, handler, is_page: false }
    }

    const fn taking(self, takes: Takes) -> Self {
        Self { takes, ..self }
    }

    const fn taking_json(self, schema: fn() -> Value) -> Self {
        self.taking(Takes::Json(schema))
    }

    const fn with_query(self, query: &'static [&'static str]) -> Self {
        Self { query, ..self }
    }

    const fn with_status(self, status: u16) -> Self {
        Self { status, ..self }
    }

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
    get("/metrics", READ_ALL, "Figures for Prometheus", state::metrics),
    get("/api/v1/openapi.json", READ_LIST, "This description", state::openapi),
    post("/api/v1/login", Access::Open, "Opens a session with the secret of a one-time link", access::login)
        .taking_json(login_schema),
    post("/api/v1/logout", READ_LIST, "Ends the session, or revokes the token", access::logout),
    Route {
        query: &["question"],
        ..post(
            "/api/v1/passkeys/challenge",
            Access::Open,
            "A challenge that a key signs once, within five minutes: to log in, to be added, or to approve a `question` (its id and digest)",
            access::issue_challenge,
        )
    },
    post(
        "/api/v1/login/passkey",
        Access::Open,
        "Opens a session with a passkey's signature",
        access::log_in_by_passkey,
    )
    .taking_json(signed_schema),
    get("/api/v1/passkeys", READ_LIST, "Your passkeys", access::list_passkeys),
    post(
        "/api/v1/passkeys",
        READ_LIST,
        "Adds a passkey, which opens sessions with the rights of the current session",
        access::add_passkey,
    )
    .taking_json(passkey_schema)
    .with_status(201),
    delete("/api/v1/passkeys/{passkey}", READ_LIST, "Removes one of your passkeys", access::forget_passkey),
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
        READ_WORKFLOW,
        "One workflow with its triggers and arguments",
        workflows::show,
    ),
    post(
        "/api/v1/workflows/{workflow}/runs",
        OPERATE,
        "Starts a run; it is durable when the answer arrives",
        workflows::start,
    )
    .taking_json(start_schema)
    .with_status(202),
    post(
        "/api/v1/workflows/{workflow}/register",
        AUTHOR,
        "Registers the current file; the digest names the version that was read",
        workflows::register,
    )
    .taking_json(register_schema),
    get(
        "/api/v1/workflows/{workflow}/file",
        AUTHOR,
        "The text of the workflow's file, if it is in the server's folders",
        workflows::read_file,
    ),
    Route {
        method: "PUT",
        takes: Takes::Json(file_schema),
        ..post(
            "/api/v1/workflows/{workflow}/file",
            AUTHOR,
            "Saves a text as the workflow's file, if the file has not changed since it was read; registers nothing",
            workflows::save_text,
        )
    },
    post(
        "/api/v1/workflows/{workflow}/check",
        AUTHOR,
        "Results of `check`, a dry run and `graph` for a text of the workflow's file; nothing is run",
        workflows::check_text,
    )
    .taking_json(text_schema),
    post(
        "/api/v1/workflows/{workflow}/complete",
        AUTHOR,
        "Completions at a position of such a text",
        workflows::complete_text,
    )
    .taking_json(place_schema),
    get("/api/v1/runs", READ_LIST, "Runs, newest first", runs::list)
        .with_query(&["limit", "before", "status", "name"]),
    get("/api/v1/runs/{run}", READ_RUN, "One run, which may still be queued", runs::show),
    post("/api/v1/runs/{run}/cancel", Access::To(Verb::Operate, Of::Run), "Cancels a run", runs::cancel_run)
        .with_status(202),
    get("/api/v1/runs/{run}/events", READ_RUN, "The records of a run's journal", runs::list_records)
        .with_query(&["after", "limit"]),
    Route {
        query: &["step"],
        ..get(
            "/api/v1/runs/{run}/output",
            READ_RUN,
            "Output of the steps of a run, even while they run; optionally only of one `step` and the steps inside it",
            runs::show_output,
        )
    },
    Route {
        query: &["after"],
        ..Route::new(
            "GET",
            "/api/v1/runs/{run}/stream",
            READ_RUN,
            "The records as server-sent events until the run ends, and the `progress` of running steps; Last-Event-ID continues a broken stream",
            Handler::Records,
        )
    },
    Route::new(
        "GET",
        "/api/v1/changes",
        READ_LIST,
        "Runs with new records, as server-sent events; Last-Event-ID continues a broken stream",
        Handler::Changes,
    )
    .with_query(&["after"]),
    get("/api/v1/approvals", READ_LIST, "Approvals and input requests", gates::list).with_query(&["all"]),
    get("/api/v1/approvals/{approval}", Access::To(Verb::Read, Of::Gate), "One of them in full", gates::show),
    post(
        "/api/v1/approvals/{approval}/answer",
        Access::To(Verb::Answer, Of::Gate),
        "Answers an approval or input request; the digest names the version that was shown",
        gates::answer_approval,
    )
    .taking_json(answer_schema),
    get("/api/v1/schedules", READ_LIST, "The schedules, each with its next due time", schedules::list),
    get(
        "/api/v1/workflows/{workflow}/schedules/{schedule}/ticks",
        READ_WORKFLOW,
        "Results of a schedule's ticks, newest first",
        schedules::list_ticks,
    )
    .with_query(&["limit", "since"]),
    post(
        "/api/v1/workflows/{workflow}/schedules/{schedule}/pause",
        OPERATE,
        "Pauses a schedule",
        schedules::pause_schedule,
    ),
    post(
        "/api/v1/workflows/{workflow}/schedules/{schedule}/resume",
        OPERATE,
        "Resumes a paused schedule",
        schedules::resume_schedule,
    ),
    post(
        "/api/v1/workflows/{workflow}/schedules/{schedule}/backfill",
        OPERATE,
        "Starts runs for past ticks that had none",
        schedules::backfill,
    )
    .taking_json(backfill_schema)
    .with_status(202),
    get("/api/v1/deliveries", READ_ALL, "Deliveries of webhooks", state::deliveries).with_query(&["limit"]),
    post(
        "/api/v1/deliveries/{delivery}/redeliver",
        OPERATE_ALL,
        "Starts another run for an earlier delivery",
        hooks::redeliver,
    )
    .with_status(202),
    post(
        "/api/v1/events",
        OPERATE_ALL,
        "Sends an event to the runs that wait for its name; it is durable when the answer arrives",
        events::send,
    )
    .taking_json(event_schema)
    .with_status(202),
    get("/api/v1/waits", READ_LIST, "Times and events that parked runs wait for", events::list_waits)
        .with_query(&["limit"]),
    get("/api/v1/notices", READ_ALL, "Notices, sent and pending, newest first", state::notices)
        .with_query(&["limit"]),
    get("/api/v1/tokens", ADMINISTER, "The tokens of programs, without their secrets", access::list_tokens),
    post(
        "/api/v1/tokens",
        ADMINISTER,
        "Makes a token; its secret is only in this answer",
        access::make_token,
    )
    .taking_json(token_schema)
    .with_status(201),
    delete("/api/v1/tokens/{token}", ADMINISTER, "Revokes a token, or ends a session", access::revoke_token),
    get("/api/v1/trail", ADMINISTER, "The trail, newest first", state::trail).with_query(&["limit"]),
    agent_route("POST", "A message of the Model Context Protocol, over streamable HTTP", Takes::Bytes),
    agent_route("GET", "Messages to an agent's session, as server-sent events", Takes::Nothing),
    agent_route("DELETE", "Ends an agent's session; its runs continue", Takes::Nothing),
    post(
        "/hooks/{*path}",
        Access::Open,
        "A delivery of a webhook, signed by its sender; it is durable when the answer arrives",
        hooks::receive_delivery,
    )
    .taking(Takes::Bytes)
    .with_status(202),
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
