//! The actions of people and programs through the service, newest first.

use lobster_runtime::json;
use lobster_serve::http::{App, Asked, Problem, RouteReply};
use maud::html;
use serde_json::Value;

use crate::shell::{self, RailPage};
use crate::words::{clip_line, empty_placeholder, relative_time};

const ROWS: usize = 200;

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let now = app.store.clock_ms();
    let deeds = app.service.list_deeds(ROWS)?;
    let body = html! {
        div class="top" { div class="title" { h1 { "Audit" } } }
        p class="lead" { "Actions of people and programs through the service. Actions of runs are in their records: " code { "lobster audit" } "." }
        section class="card scroll" tabindex="0" id="deeds" data-live="" {
            h2 class="hide" { "Deeds" }
            @if deeds.is_empty() { (empty_placeholder("No actions yet", "Starts, answers, pauses and changes of access appear here.", None)) }
            @else { table class="table" {
                thead { tr { th scope="col" { "When" } th scope="col" { "Who" } th scope="col" { "Did" } th scope="col" { "To" } th scope="col" class="spare" { "From" } th scope="col" class="spare" { "Detail" } } }
                tbody { @for deed in &deeds { tr {
                    td { (relative_time(deed.at, now)) }
                    td { (clip_line(deed.actor.as_deref().unwrap_or("—"), 60)) }
                    td { strong { (deed.verb.replace('-', " ")) } }
                    td { code { (clip_line(&deed.object, 60)) } }
                    td class="spare muted" { (clip_line(deed.origin.as_deref().unwrap_or_default(), 60)) }
                    td class="spare" { @if !matches!(deed.detail, Value::Null) { code { (clip_line(&json::compact(&deed.detail), 120)) } } }
                } } }
            } }
        }
    };
    Ok(shell::full_page(app, asked, "Audit", RailPage::Audit, &body))
}
