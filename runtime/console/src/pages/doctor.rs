//! Checks of this server that change nothing.

use lobster_runtime::visible::harmless;
use lobster_serve::http::{App, Asked, Problem, RouteReply};
use maud::html;

use crate::shell::{self, RailPage};
use crate::words::{relative_time, state_label};

/// Waiting time after which a tick is late, in milliseconds.
const LATE: i64 = 60_000;

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let now = app.store.clock_ms();
    let mut checks: Vec<(&str, &str, String)> = Vec::new();
    match app.store.check_identity() {
        Ok(()) => checks.push((
            "Store",
            "ok",
            format!("{} is the store that others open", app.store.dir().display()),
        )),
        Err(error) => checks.push(("Store", "failed", error.to_string())),
    }
    match app.store.find_rollback() {
        Ok(None) => {
            checks.push(("History", "ok", "no record is older than one that was seen before".to_owned()))
        }
        Ok(Some(_)) => checks.push((
            "History",
            "failed",
            "the database is older than it was; see `lobster store verify`".to_owned(),
        )),
        Err(error) => checks.push(("History", "warning", error.to_string())),
    }
    let late = app
        .service
        .list_schedules()?
        .iter()
        .filter_map(|row| row.next.filter(|_| row.paused.is_none()))
        .min()
        .map_or(0, |next| now - next);
    checks.push(match late > LATE {
        true => ("Schedules", "failed", format!("a tick has waited for {}", crate::words::format_ms(late))),
        false => ("Schedules", "ok", "no tick is late".to_owned()),
    });
    checks.push(match app.runtime.policy().is_open() {
        true => ("Policy", "warning", "no policy is in force: commands run with all rights of this server; `lobster policy init` writes one".to_owned()),
        false => ("Policy", "ok", "a policy is in force".to_owned()),
    });
    checks.push(match asked.is_secure() {
        true => ("Transport", "ok", "browsers reach this server over TLS, its own or a proxy's".to_owned()),
        false => ("Transport", "ok", "plain HTTP, for this machine alone".to_owned()),
    });
    let files = if asked.may_read(None) { app.problems.to_sentences() } else { Vec::new() };
    checks.push(match files.is_empty() {
        true => ("Folders", "ok", "every workflow file in them can be started".to_owned()),
        false => ("Folders", "warning", files.join("\n")),
    });
    let servers = app.service.running_servers()?;
    let body = html! {
        div class="top" { div class="title" { h1 { "Doctor" } } }
        section class="card scroll" tabindex="0" {
            h2 class="hide" { "Checks" }
            table class="table checks" { tbody { @for (what, how, text) in &checks { tr { th scope="row" { (what) } td { (state_label(how, false)) } td class="prompt" { (harmless(text)) } } } } }
        }
        section {
            h2 { "Running servers of this store" }
            div class="card scroll" tabindex="0" { table class="table" {
                thead { tr { th scope="col" { "Address" } th scope="col" { "People reach it at" } th scope="col" class="num" { "Process" } th scope="col" { "Since" } th scope="col" { "Last seen" } } }
                tbody { @for server in &servers { tr { td { code { (server.listen) } } td { code { (server.url) } } td class="num" { (server.pid) } td { (relative_time(server.started_at, now)) } td { (relative_time(server.heard_at, now)) } } } }
            } }
        }
        p class="lead" { "To check that a step can be started and confined, run in a terminal: " code { "lobster doctor" } " and " code { "lobster doctor --sandbox" } "." }
    };
    Ok(shell::full_page(app, asked, "Doctor", RailPage::Doctor, &body))
}
