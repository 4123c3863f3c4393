//! From an accepted request to its answer.

use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use lobster_runtime::schema::Schema;
use lobster_runtime::store::RunId;
use lobster_runtime::store::service::CredentialKind;
use serde_json::json;

use super::routes::{Access, Handler, Of, Route, Takes};
use super::{App, Asked, Problem, RouteReply, changes, run_blocking, stream, streamed_rest};
use crate::access::{Object, Verb, is_allowed};
use crate::rate::QUEUE_AT_MOST;

/// Checks that the caller may use this route for the object it names.
pub(super) fn check_access(app: &App, route: &Route, asked: &Asked) -> Result<(), Problem> {
    let Access::To(verb, of) = route.access else { return Ok(()) };
    let Some(actor) = &asked.actor else {
        return Err(Problem::new(
            StatusCode::UNAUTHORIZED,
            "login",
            "a token or a session is needed; `lobster serve token new` makes one",
        ));
    };
    let may_ask = actor.kind != CredentialKind::Agent || route.is_for_agents();
    let denied = |verb: Verb| {
        let needs = verb.required_role();
        let detail = match (verb, actor.kind) {
            (Verb::Converse, kind) if kind != CredentialKind::Agent => {
                "this is for agents, which have tokens of their own: `lobster serve token new --agent`"
                    .to_owned()
            }
            (_, CredentialKind::Agent) if verb != Verb::Converse && !may_ask => {
                format!("{} is an agent, which may only read and start runs", actor.name)
            }
            _ => format!("{} has the role {}; this needs {needs} for what it names", actor.name, actor.role),
        };
        Problem::new(StatusCode::FORBIDDEN, "role", detail)
    };
    // The role is checked first, so that a caller without it does not learn which objects exist.
    if !may_ask || !is_allowed(actor, verb, Object::List) {
        return Err(denied(verb));
    }
    let verb = match of {
        Of::Rerun => rerun_verb(app, run_of(app, asked)?)?,
        _ => verb,
    };
    let owner;
    let object = match of {
        Of::List => Object::List,
        Of::Everything => Object::Everything,
        Of::Workflow => Object::Workflow(asked.param("workflow")),
        Of::Run | Of::Rerun => {
            owner = workflow_of_run(app, run_of(app, asked)?)?;
            owner.as_deref().map_or(Object::Everything, Object::Workflow)
        }
        Of::Gate => {
            owner = workflow_of_run(app, app.store.find_gate(asked.param("approval"))?.run)?;
            owner.as_deref().map_or(Object::Everything, Object::Workflow)
        }
    };
    if is_allowed(actor, verb, object) { Ok(()) } else { Err(denied(verb)) }
}

impl App {
    /// Admits one more start, if its sender and the queue have room for it.
    ///
    /// # Errors
    /// Returns 429 with the seconds after which another start is accepted.
    pub(crate) fn admit_start(&self, sender: &str) -> Result<(), Problem> {
        let problem = |code, detail: String| Problem::new(StatusCode::TOO_MANY_REQUESTS, code, detail);
        self.rates.take_start(sender).map_err(|wait| {
            let seconds = u32::try_from(wait.as_secs() + 1).unwrap_or(u32::MAX);
            problem("rate", format!("{sender} starts too many runs")).retry_after(seconds)
        })?;
        if self.service.count_queued()? >= QUEUE_AT_MOST {
            let detail = format!("{QUEUE_AT_MOST} runs are queued already; nothing was started");
            return Err(problem("queue", detail).retry_after(30));
        }
        Ok(())
    }
}

/// Returns the run that a request names: a run that has begun, or a queued one.
///
/// # Errors
/// Fails if there is no such run.
pub fn run_of(app: &App, asked: &Asked) -> Result<RunId, Problem> {
    let text = asked.param("run");
    if let Ok(id) = text.parse::<RunId>()
        && app.service.start_of(id)?.is_some()
    {
        return Ok(id);
    }
    Ok(app.store.find_run(text)?)
}

/// Returns the name of a run's registered workflow.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn workflow_of_run(app: &App, run: RunId) -> Result<Option<String>, Problem> {
    let Some(start) = app.service.start_of(run)? else { return Ok(None) };
    Ok(app.service.workflow_by_number(start.workflow)?.map(|workflow| workflow.name))
}

/// Returns the right that is needed to fork or replay a run. An operator could start a run of the registered version
/// anyway. A run of any other version executes a text that only an author may register.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn rerun_verb(app: &App, run: RunId) -> Result<Verb, Problem> {
    let Some(start) = app.service.start_of(run)? else { return Ok(Verb::Register) };
    let workflow = app.service.workflow_by_number(start.workflow)?;
    let is_registered = workflow.is_some_and(|workflow| workflow.digest == start.digest);
    Ok(if is_registered { Verb::Operate } else { Verb::Register })
}

/// Records who requests a change before it is made, for all routes.
async fn record_request(app: Arc<App>, route: &'static Route, asked: Asked) -> Result<Asked, Problem> {
    run_blocking(move || {
        let object = format!("{} {}", route.method, route.path);
        app.service.note_request(
            &object,
            (asked.caller_name(), &asked.caller_origin()),
            json!(asked.params),
        )?;
        Ok(asked)
    })
    .await
}

/// Calls the route's handler.
pub(super) async fn call_handler(
    app: &Arc<App>,
    route: &'static Route,
    asked: Asked,
) -> Result<RouteReply, Problem> {
    let asked = match asked.actor.is_some() && route.is_noted() {
        true => record_request(Arc::clone(app), route, asked).await?,
        false => asked,
    };
    if let Takes::Json(schema) = route.takes {
        check_schema(&schema(), &asked)?;
    }
    let app = Arc::clone(app);
    match route.handler {
        Handler::Call(call) => {
            let (mut reply, app, asked) = run_blocking(move || Ok((call(&app, &asked)?, app, asked))).await?;
            if let Some((first, rest)) = reply.rest.take() {
                reply.body = streamed_rest::two_part_body(first, move || rest(&app, &asked));
            }
            let status = StatusCode::from_u16(route.status).unwrap_or(StatusCode::OK);
            Ok(if reply.status == StatusCode::OK { reply.with_status(status) } else { reply })
        }
        Handler::Records => stream::run_records(app, asked).await,
        Handler::Changes => changes::stream_changes(app, asked).await,
        Handler::Agents => {
            let Some(agents) = app.agents.clone() else {
                return Err(Problem::not_found("this server serves no agents"));
            };
            Ok(RouteReply::from_response(agents.answer_request(app, asked).await?.map(Body::new)))
        }
    }
}

fn check_schema(schema: &serde_json::Value, asked: &Asked) -> Result<(), Problem> {
    let schema = Schema::compile(schema).map_err(Problem::failed)?;
    match schema.first_error(&asked.json) {
        None => Ok(()),
        Some(why) => Err(Problem::bad_request(format!("the body does not fit: {why}"))),
    }
}
