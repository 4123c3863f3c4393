//! `lobster serve token` and `lobster serve link`: access for programs and browsers.

use std::io::Write;

use clap::Subcommand;
use lobster_runtime::runtime::Runtime;
use lobster_runtime::stage::Mode;
use lobster_runtime::store::iso;
use lobster_runtime::store::service::{CredentialKind, Service};
use lobster_serve::access::{Grant, Role, grant_credential};
use serde_json::{Value, json};

use crate::commands::schedule::current_actor;
use crate::console_link::server_url;
use crate::exit::{CommandError, CommandResult, Exit, finish, print_json};
use crate::prepare;
use crate::render::pager::PagedOutput;
use crate::render::print_to_stderr;
use crate::render::table::{Cell, Room, Table};
use crate::stdout::print_line;

/// Lifetime of a link.
const LINK_MS: i64 = 60_000;

const DAY_MS: i64 = 86_400_000;

const ORIGIN: &str = "command line";

#[derive(Debug, Subcommand)]
pub(super) enum TokenTask {
    /// Creates a token and prints it once.
    New {
        /// The owner's name in the history.
        #[arg(long, value_name = "NAME")]
        name: String,
        /// viewer, approver, operator, author or admin.
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// For an agent that speaks MCP: it can read or start runs (viewer or operator), and never answer.
        #[arg(long)]
        agent: bool,
        /// The number of days until the token expires.
        #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(i64).range(1..=3650))]
        days: i64,
        /// Only for this workflow; may be repeated.
        #[arg(long, value_name = "WORKFLOW")]
        workflow: Vec<String>,
    },
    /// Lists tokens and sessions, without their secrets.
    List {
        /// Prints a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Revokes a token or a session.
    Revoke {
        /// The id printed by `list`.
        id: String,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct LinkArgs {
    /// The person's name in the history.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// viewer, approver, operator, author or admin.
    #[arg(long, value_name = "ROLE", default_value = "admin")]
    role: Role,
    /// The address at which the browser reaches the server, if not the server's own.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
}

pub(super) fn run_token_task(task: &TokenTask) -> CommandResult {
    let runtime = prepare::runtime(Mode::Human)?;
    let service = runtime.store()?.service()?;
    match task {
        TokenTask::New { name, role, agent, days, workflow } => {
            let wanted = Grant {
                kind: if *agent { CredentialKind::Agent } else { CredentialKind::Token },
                name: name.clone(),
                role: *role,
                scope: (!workflow.is_empty()).then(|| workflow.clone()),
                expires_at: Some(service.store().clock_ms() + days * DAY_MS),
            };
            wanted.check_role().map_err(CommandError::usage)?;
            let (id, secret) = grant_access(&runtime, &service, &wanted)?;
            print_to_stderr(&format!(
                "{id} is shown once, and is valid until {}:",
                wanted.expires_at.map(iso).unwrap_or_default()
            ));
            print_line(&secret);
            Ok(Exit::OK)
        }
        TokenTask::List { json } => list_tokens(&service, *json),
        TokenTask::Revoke { id } => {
            if !service.revoke_credential(id, current_actor().as_deref(), ORIGIN)? {
                return Err(CommandError::usage(format!("there is no valid token or session {id:?}")));
            }
            print_line(&format!("{id} is revoked"));
            Ok(Exit::OK)
        }
    }
}

/// Grants access that this process may give: an agent could answer its own questions with a person's.
fn grant_access(
    runtime: &Runtime,
    service: &Service,
    wanted: &Grant,
) -> Result<(String, String), CommandError> {
    if wanted.kind != CredentialKind::Agent && wanted.role > Role::Viewer {
        prepare::refuse_agents(runtime, "make access that may answer questions")?;
    }
    grant_credential(service, wanted, current_actor().as_deref(), ORIGIN).map_err(CommandError::failed)
}

fn list_tokens(service: &Service, as_json: bool) -> CommandResult {
    let mut all = service.list_credentials(CredentialKind::Token)?;
    all.extend(service.list_credentials(CredentialKind::Agent)?);
    all.extend(service.list_credentials(CredentialKind::Session)?);
    all.extend(service.list_credentials(CredentialKind::Passkey)?);
    let now = service.store().clock_ms();
    let state = |one: &lobster_runtime::store::service::Credential| match (one.ended_at, one.expires_at) {
        (Some(_), _) => "revoked",
        (None, Some(expires)) if expires <= now => "expired",
        (None, _) => "active",
    };
    let mut out = PagedOutput::for_reader(as_json);
    if as_json {
        let rows: Vec<Value> = all
            .iter()
            .map(|one| {
                json!({
                    "id": one.id, "kind": one.kind, "name": one.name, "role": one.role, "workflows": one.scope,
                    "state": state(one), "madeBy": one.made_by, "madeAt": iso(one.made_at),
                    "expiresAt": one.expires_at.map(iso), "usedAt": one.used_at.map(iso),
                })
            })
            .collect();
        return print_json(&mut out, &rows);
    }
    if all.is_empty() {
        writeln!(out, "no token and no session")?;
        return Ok(Exit::OK);
    }
    let mut table = Table::new(&["ID", "STATE", "NAME", "ROLE", "WORKFLOWS", "EXPIRES", "USED"]);
    for one in &all {
        let scope = one.scope.as_ref().map_or_else(|| "all".to_owned(), |scope| scope.join(" "));
        let time = |at: Option<i64>| at.map_or_else(|| "-".to_owned(), iso);
        table.push(vec![
            one.id.as_str().into(),
            Cell::state_word(state(one)),
            one.name.as_str().into(),
            one.role.as_str().into(),
            scope.into(),
            time(one.expires_at).into(),
            time(one.used_at).into(),
        ]);
    }
    table.print_to(&mut out, Room::of_stdout())?;
    finish(out)
}

pub(super) fn create_link(args: &LinkArgs) -> CommandResult {
    let runtime = prepare::runtime(Mode::Human)?;
    let name = args.name.clone().or_else(current_actor).unwrap_or_else(|| "operator".to_owned());
    let url = match &args.url {
        Some(url) => Some(url.clone()),
        None => server_url(&runtime.store()?)?,
    };
    // A server that has not started yet has a minute to begin.
    let url = url.unwrap_or_else(|| format!("http://{}", super::LISTEN));
    print_line(&make_link(&runtime, &url, name, args.role)?);
    Ok(Exit::OK)
}

/// A link that logs in the user who started the server.
pub(in crate::commands) fn login_link(runtime: &Runtime, url: &str) -> Result<String, CommandError> {
    let name = current_actor().unwrap_or_else(|| "operator".to_owned());
    make_link(runtime, url, name, Role::Admin)
}

/// The same link, leading to another page than the first.
pub(in crate::commands) fn next_page(link: &str, page: &str) -> String {
    if page == "/" { link.to_owned() } else { link.replacen("/login#", &format!("/login?next={page}#"), 1) }
}

/// The secret follows the `#`, so that browsers do not send it and logs do not contain it.
fn make_link(runtime: &Runtime, url: &str, name: String, role: Role) -> Result<String, CommandError> {
    let service = runtime.store()?.service()?;
    let expires_at = Some(service.store().clock_ms() + LINK_MS);
    let wanted = Grant { kind: CredentialKind::Link, name, role, scope: None, expires_at };
    let (_, secret) = grant_access(runtime, &service, &wanted)?;
    Ok(format!("{}/login#{secret}", url.trim_end_matches('/')))
}
