//! The table of routes. What is in it is served, described and tested; nothing else is.

use serde_json::{Value, json};

use super::api::{access, events, gates, runs, schedules, state, workflows};
use super::{App, Asked, Problem, Reply};
use crate::access::Verb;
use crate::hooks;

/// Who may ask a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anybody that can connect: the route knows by itself whom it trusts.
    Open,
    /// Whoever may do this to that.
    To(Verb, Of),
}

/// What a route is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    List,
    Everything,
    /// `{workflow}`.
    Workflow,
    /// The workflow of `{run}`.
    Run,
    /// The same, to execute its steps again: of a version that is not registered now, for authors alone.
    Rerun,
    /// The workflow of `{gate}`.
    Gate,
}

/// What a route reads of a body.
#[derive(Clone, Copy, Debug)]
pub enum Takes {
    Nothing,
    /// JSON of this schema.
    Json(fn() -> Value),
    /// The bytes as they are.
    Bytes,
    /// The fields of a form, as browsers send it.
    Form,
}

/// How a route answers.
#[derive(Clone, Copy)]
pub enum Handler {
    Call(fn(&App, &Asked) -> Result<Reply, Problem>),
    /// The records of `{run}`, as they come.
    Records,
    /// Which runs have new records or progress, as they come.
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
    /// What it answers if it does it.
    pub status: u16,
    pub handler: Handler,
    /// Whether it is for people: what goes wrong is a page, too.
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
    call: fn(&App, &Asked) -> Result<Reply, Problem>,
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
    call: fn(&App, &Asked) -> Result<Reply, Problem>,
) -> Route {
    let handler = Handler::Call(call);
    Route { method: "POST", path, access, summary, takes, query: &[], status, handler, is_page: false }
}

const fn with_query(mut route: Route, query: &'static [&'static str]) -> Route {
    route.query = query;
    route
}

/// One method of the place where agents are served.
const fn agents(method: &'static str, summary: &'static str, takes: Takes) -> Route {
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

/// The routes that take the token of an agent: it starts what is registered, reads, and cancels. Every other route
/// refuses it.
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
    ("GET", "/api/v1/gates"),
    ("GET", "/api/v1/gates/{gate}"),
    ("GET", "/api/v1/schedules"),
    ("GET", "/api/v1/waits"),
];

/// Routes of another method than GET that change nothing: they look at a text that is sent with them.
const LOOKS_AT_TEXTS: [&str; 2] =
    ["/api/v1/workflows/{workflow}/check", "/api/v1/workflows/{workflow}/complete"];

impl Route {
    /// True if the token of an agent is taken.
    pub(super) fn is_for_agents(&self) -> bool {
        FOR_AGENTS.contains(&(self.method, self.path))
    }

    /// True if the trail has who asked for it. The runs that an agent's messages start have entries of their own.
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
    get("/healthz", Access::Open, "Whether the server can use its store", state::health),
    get(
        "/readyz",
        Access::Open,
        "What the server cannot do now; 503 if there is anything",
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
            "What a key is to sign, once, within five minutes: to log in, to be added, or for a yes to a `question` (its id and digest)",
            Takes::Nothing,
            200,
            access::challenge,
        ),
        &["question"],
    ),
    post(
        "/api/v1/login/passkey",
        Access::Open,
        "Opens a session with what a passkey has signed",
        Takes::Json(signed_schema),
        200,
        access::log_in_by_passkey,
    ),
    get("/api/v1/passkeys", READ_LIST, "Your passkeys", access::passkeys),
    post(
        "/api/v1/passkeys",
        READ_LIST,
        "Keeps a passkey: it opens sessions with the rights of the one that adds it",
        Takes::Json(passkey_schema),
        201,
        access::add_passkey,
    ),
    Route {
        method: "DELETE",
        path: "/api/v1/passkeys/{passkey}",
        access: READ_LIST,
        summary: "Forgets a passkey of yours",
        takes: Takes::Nothing,
        query: &[],
        status: 200,
        handler: Handler::Call(access::forget_passkey),
        is_page: false,
    },
    get("/api/v1/me", READ_LIST, "Who calls, and what they may", access::me),
    get("/api/v1/servers", READ_LIST, "The servers that are at work on this store", state::servers),
    get(
        "/api/v1/workflows",
        READ_LIST,
        "The registered workflows, and what is wrong with files",
        workflows::list,
    ),
    get(
        "/api/v1/workflows/{workflow}",
        Access::To(Verb::Read, Of::Workflow),
        "One workflow: what starts it, and its arguments",
        workflows::show,
    ),
    post(
        "/api/v1/workflows/{workflow}/runs",
        OPERATE,
        "Starts a run; it is durable when this is answered",
        Takes::Json(start_schema),
        202,
        workflows::start,
    ),
    post(
        "/api/v1/workflows/{workflow}/register",
        AUTHOR,
        "Registers the file as it is now; the digest says which version was read",
        Takes::Json(register_schema),
        200,
        workflows::register,
    ),
    get(
        "/api/v1/workflows/{workflow}/file",
        AUTHOR,
        "The text of the workflow's file, where the server's folders have it",
        workflows::read_file,
    ),
    Route {
        method: "PUT",
        ..post(
            "/api/v1/workflows/{workflow}/file",
            AUTHOR,
            "Saves a text as the workflow's file, if the file is still the one that was read; registers nothing",
            Takes::Json(file_schema),
            200,
            workflows::save_text,
        )
    },
    post(
        "/api/v1/workflows/{workflow}/check",
        AUTHOR,
        "What `check`, a dry run and `graph` say of a text that would be the workflow's file; nothing is run",
        Takes::Json(text_schema),
        200,
        workflows::check_text,
    ),
    post(
        "/api/v1/workflows/{workflow}/complete",
        AUTHOR,
        "What could stand at a place of such a text",
        Takes::Json(place_schema),
        200,
        workflows::complete_text,
    ),
    with_query(
        get("/api/v1/runs", READ_LIST, "Runs, the newest first", runs::list),
        &["limit", "before", "status", "name"],
    ),
    get("/api/v1/runs/{run}", READ_RUN, "One run, also one that waits for its turn", runs::show),
    post(
        "/api/v1/runs/{run}/cancel",
        Access::To(Verb::Operate, Of::Run),
        "Has a run cancelled",
        Takes::Nothing,
        202,
        runs::cancel,
    ),
    with_query(
        get("/api/v1/runs/{run}/events", READ_RUN, "The records of a run's journal", runs::events),
        &["after", "limit"],
    ),
    with_query(
        get(
            "/api/v1/runs/{run}/output",
            READ_RUN,
            "What the steps of a run printed, also while they run; of one `step` and the steps inside it",
            runs::output,
        ),
        &["step"],
    ),
    Route {
        method: "GET",
        path: "/api/v1/runs/{run}/stream",
        access: READ_RUN,
        summary: "The records as server-sent events, until the run ends, and `progress` of steps before they end; Last-Event-ID goes on where it broke off",
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
        summary: "Which runs have new records, as server-sent events; Last-Event-ID goes on where it broke off",
        takes: Takes::Nothing,
        query: &["after"],
        status: 200,
        handler: Handler::Changes,
        is_page: false,
    },
    with_query(get("/api/v1/gates", READ_LIST, "Questions that wait for a person", gates::list), &["all"]),
    get("/api/v1/gates/{gate}", Access::To(Verb::Read, Of::Gate), "All that a question shows", gates::show),
    post(
        "/api/v1/gates/{gate}/answer",
        Access::To(Verb::Answer, Of::Gate),
        "Answers a question; the digest says what was shown",
        Takes::Json(answer_schema),
        200,
        gates::answer,
    ),
    get("/api/v1/schedules", READ_LIST, "The schedules, and when each is due next", schedules::list),
    with_query(
        get(
            "/api/v1/workflows/{workflow}/schedules/{schedule}/ticks",
            Access::To(Verb::Read, Of::Workflow),
            "What became of the ticks of a schedule, the newest first",
            schedules::ticks,
        ),
        &["limit", "since"],
    ),
    post(
        "/api/v1/workflows/{workflow}/schedules/{schedule}/pause",
        OPERATE,
        "Stops starting runs of a schedule",
        Takes::Nothing,
        200,
        schedules::pause,
    ),
    post(
        "/api/v1/workflows/{workflow}/schedules/{schedule}/resume",
        OPERATE,
        "Has a paused schedule go on",
        Takes::Nothing,
        200,
        schedules::resume,
    ),
    post(
        "/api/v1/workflows/{workflow}/schedules/{schedule}/backfill",
        OPERATE,
        "Starts the runs of past ticks that had none",
        Takes::Json(backfill_schema),
        202,
        schedules::backfill,
    ),
    with_query(
        get(
            "/api/v1/deliveries",
            Access::To(Verb::Read, Of::Everything),
            "What webhooks brought",
            state::deliveries,
        ),
        &["limit"],
    ),
    post(
        "/api/v1/deliveries/{delivery}/redeliver",
        Access::To(Verb::Operate, Of::Everything),
        "Starts another run for a delivery that came before",
        Takes::Nothing,
        202,
        hooks::redeliver,
    ),
    post(
        "/api/v1/events",
        Access::To(Verb::Operate, Of::Everything),
        "Sends an event to the runs that wait for its name; it is durable when this is answered",
        Takes::Json(event_schema),
        202,
        events::send,
    ),
    with_query(
        get("/api/v1/waits", READ_LIST, "What parked runs wait for, besides people", events::waits),
        &["limit"],
    ),
    with_query(
        get(
            "/api/v1/notices",
            Access::To(Verb::Read, Of::Everything),
            "What people were told or are to be told, the newest first",
            state::notices,
        ),
        &["limit"],
    ),
    get("/api/v1/tokens", ADMINISTER, "The tokens of programs, without their secrets", access::tokens),
    post(
        "/api/v1/tokens",
        ADMINISTER,
        "Makes a token; its secret is in this answer alone",
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
        handler: Handler::Call(access::revoke),
        is_page: false,
    },
    with_query(get("/api/v1/trail", ADMINISTER, "Who did what, the newest first", state::trail), &["limit"]),
    agents("POST", "A message of the Model Context Protocol, over streamable HTTP", Takes::Bytes),
    agents("GET", "What an agent's session is told meanwhile, as server-sent events", Takes::Nothing),
    agents("DELETE", "Ends an agent's session; the runs that it started go on", Takes::Nothing),
    post(
        "/hooks/{*path}",
        Access::Open,
        "A delivery of a webhook, signed by its sender; it is durable when this is answered",
        Takes::Bytes,
        202,
        hooks::receive,
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
            "was": { "type": "string", "description": "the digest of the file that was read; none for a new one" },
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
            "reason": { "type": "string", "description": "why, for `reject`; it stands in the record of the run" },
            "digest": { "type": "string", "description": "the binding of the question as it was shown" },
            "passkey": signed_schema(),
        },
    })
}

fn event_schema() -> Value {
    json!({
        "type": "object",
        "required": ["name"],
        "additionalProperties": false,
        "properties": { "name": { "type": "string" }, "data": { "description": "what the waiting steps get" } },
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
            "agent": { "type": "boolean", "description": "it speaks MCP, and never answers a question" },
        },
    })
}
