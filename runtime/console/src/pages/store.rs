//! What the store holds, and whether it is whole.

use std::time::Duration;

use axum::http::StatusCode;
use lobster_runtime::figures::{bytes, count};
use lobster_runtime::json;
use lobster_runtime::visible::harmless;
use lobster_serve::access::Verb;
use lobster_serve::http::{App, Asked, Problem, Reply};
use maud::{Markup, html};

use crate::program;
use crate::shell::{self, Place};

/// How long reading the whole store may take.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn show(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    page(app, asked, &html! {})
}

fn page(app: &App, asked: &Asked, report: &Markup) -> Result<Reply, Problem> {
    let stats = app.store.stats()?;
    let body = html! {
        div class="top" { div class="title" { h1 { "Store" } } code class="muted" { (app.store.dir().display()) } }
        div class="tiles" {
            a class="card tile" href="/runs" { b { (count(stats.runs)) } span { "runs" } }
            div class="card tile" { b { (count(stats.records)) } span { "records" } }
            a class="card tile" href="/" { b { (count(stats.open_gates)) } span { "open questions" } }
            div class="card tile" { b { (count(stats.cached_outcomes)) } span { "cached outcomes" } }
            div class="card tile" { b { (bytes(stats.blob_bytes)) } span { (count(stats.blobs)) " blobs" } }
        }
        (report)
        div class="split" {
            section {
                h2 { "Whether it is whole" }
                div class="card pad" {
                    p { "Reads every record and every blob, follows each chain of digests, and lists what is damaged or missing. It changes nothing." }
                    @if asked.may(Verb::Administer, None) { form method="post" action="/store/verify" { button class="primary" { "Verify now" } } }
                    @else { p class="muted" { "An admin can have it verified." } }
                }
            }
            section {
                h2 { "In a terminal" }
                div class="card pad" { @for command in ["store gc --older-than 30d --dry-run", "store backup DIR", "store salvage DIR"] { pre class="cmd" { "lobster " (command) } } }
            }
        }
    };
    Ok(shell::page(app, asked, "Store", Place::Store, &body))
}

pub(crate) fn verify(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let words = ["store", "verify", "--json"].map(str::to_owned);
    let said = program::start(app, asked, "/", &words)?.wait(PATIENCE, || false)?;
    let said = said.ok_or_else(|| {
        Problem::new(
            StatusCode::GATEWAY_TIMEOUT,
            "slow",
            "the store is too large for a page; use `lobster store verify`",
        )
    })?;
    let report = json::parse(&said.out).map(|report| json::pretty(&report)).unwrap_or_else(|_| said.why());
    let is_whole = said.code == Some(0);
    let report = html! {
        div class=(if is_whole { "note is-ok" } else { "note is-bad" }) {
            strong { @if is_whole { "The store is whole" } @else { "The store is damaged" } }
            details open[!is_whole] { summary { "The report" } pre class="out" tabindex="0" { (harmless(&report)) } }
        }
    };
    page(app, asked, &report)
}
