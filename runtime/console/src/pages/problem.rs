//! The page of an error: the problem, its reason, and the next step.

use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use lobster_runtime::visible::harmless;
use lobster_serve::http::{App, Asked, Problem, RouteReply};
use maud::{Markup, html};

use super::login;
use crate::shell::{self, RailPage};

/// A problem as a page.
pub(crate) fn show(app: &App, asked: &Asked, problem: &Problem) -> RouteReply {
    if problem.status == StatusCode::UNAUTHORIZED && problem.code == "login" {
        // A browser that follows a link from another site does not send the cookie. If the request is repeated from
        // here, it does.
        let from = asked.headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
        if asked.method == Method::GET && from.is_some_and(|from| from == "cross-site" || from == "same-site")
        {
            let again = HeaderValue::from_static("0");
            return login::render_page(app, asked, None)
                .with_header(HeaderName::from_static("refresh"), again);
        }
        return login::render_page(app, asked, None).with_status(StatusCode::UNAUTHORIZED);
    }
    let (title, _) = title_and_advice(problem);
    let body = html! {
        (explain(problem))
        (typed_fields(asked))
        div class="bar" {
            @if asked.method == Method::GET { a class="button" href=(asked.target) { "Try again" } }
            a class="button" href="/runs" { "Runs" }
            a class="button" href="/" { "Now" }
        }
    };
    let page = match asked.actor {
        Some(_) => shell::full_page(app, asked, &title, RailPage::Elsewhere, &body),
        None => shell::narrow_page(app, &title, &body),
    };
    page.with_status(problem.status)
}

/// The description of a problem, for any page.
pub(crate) fn explain(problem: &Problem) -> Markup {
    let (title, next) = title_and_advice(problem);
    html! {
        div class="top" { div class="title" { h1 { (title) } } }
        div class="note is-bad" data-problem=(problem.code) {
            strong { (problem.status.as_u16()) " · " (problem.code) }
            p class="prompt" { (harmless(&problem.detail)) }
            p { (next) }
        }
    }
}

/// A title and the next step.
fn title_and_advice(problem: &Problem) -> (String, Markup) {
    let (title, next) = match (problem.status, problem.code) {
        (StatusCode::NOT_FOUND, _) => (
            "Not found",
            html! { "It may have been removed: by retention, by " code { "lobster store gc" } ", or in another store. The id may also be incomplete." },
        ),
        (StatusCode::FORBIDDEN, "role") => (
            "Your role does not allow this",
            html! { "An admin can give you another one: " code { "lobster serve link --role ROLE" } "." },
        ),
        (StatusCode::FORBIDDEN, "refused") => {
            ("The answer was refused", html! { "Nothing was done. If the question was open, it still is." })
        }
        (StatusCode::FORBIDDEN, _) => {
            ("This request was refused", html! { "Open the console itself, and do it there." })
        }
        (StatusCode::CONFLICT, "changed") => (
            "It has changed since it was shown",
            html! { "Nothing was answered. Read it again and answer the current version." },
        ),
        (StatusCode::CONFLICT, _) => ("Someone was faster", html! { "Nothing was changed by you." }),
        (StatusCode::MISDIRECTED_REQUEST, _) => {
            ("This server has another name", html! { "Use the address that the server printed." })
        }
        (_, "outside") => (
            "This file cannot be edited here",
            html! { "Files are saved only in the folders that the server was started with." },
        ),
        (_, "workflow") => ("This file cannot start", html! { "Correct it, and register it again." }),
        (StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY, _) => {
            ("The request cannot be read", html! { "Correct it and send it again." })
        }
        (_, "store") => (
            "The store cannot be read",
            html! { code { "lobster store verify" } " lists what is damaged or missing; " code { "lobster store salvage" } " saves what can be read." },
        ),
        (StatusCode::SERVICE_UNAVAILABLE, _) => ("Not now", html! { "Try again in a few seconds." }),
        _ => ("The request failed", html! { "See the server's log." }),
    };
    (title.to_owned(), next)
}

/// Fields that contain no typed text.
const UNTYPED: [&str; 4] = ["digest", "decision", "next", "link"];

/// The text typed into a form that failed, so that it is not lost.
pub(crate) fn typed_fields(asked: &Asked) -> Markup {
    let fields: Vec<_> = asked
        .form
        .iter()
        .filter(|(name, value)| !UNTYPED.contains(&name.as_str()) && !value.trim().is_empty())
        .collect();
    html! {
        @if !fields.is_empty() {
            section {
                h2 { "What you typed" }
                @for (name, value) in fields {
                    div class="field" {
                        label for=(format!("kept-{name}")) { (name.trim_start_matches("f.")) }
                        textarea id=(format!("kept-{name}")) readonly { "\n" (value) }
                    }
                }
            }
        }
    }
}
