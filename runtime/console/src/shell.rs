//! The frame around all pages.

use axum::http::{HeaderName, HeaderValue, header};
use lobster_runtime::visible::harmless;
use lobster_serve::access::Verb;
use lobster_serve::http::{App, Asked, Problem, RouteReply};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::assets;
use crate::pages::problem;

/// A page of the rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RailPage {
    Now,
    Runs,
    Workflows,
    Schedules,
    Policy,
    Audit,
    Store,
    Doctor,
    /// A page outside the rail.
    Elsewhere,
}

/// The pages of the rail: place, name, address, key.
const RAIL: [&[(RailPage, &str, &str)]; 2] = [
    &[
        (RailPage::Now, "Now", "/"),
        (RailPage::Runs, "Runs", "/runs"),
        (RailPage::Workflows, "Workflows", "/workflows"),
        (RailPage::Schedules, "Schedules", "/schedules"),
    ],
    &[
        (RailPage::Policy, "Policy", "/policy"),
        (RailPage::Audit, "Audit", "/audit"),
        (RailPage::Store, "Store", "/store"),
        (RailPage::Doctor, "Doctor", "/doctor"),
    ],
];

/// Allows only resources of the server itself, no text that becomes code, and no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

const HTML: &str = "text/html; charset=utf-8";

/// Most open questions that are counted.
const COUNTED: usize = 100;

/// A page with the rail.
pub(crate) fn full_page(app: &App, asked: &Asked, title: &str, place: RailPage, body: &Markup) -> RouteReply {
    add_headers(RouteReply::bytes(HTML, frame_page(app, asked, title, place, body).0))
}

/// A page with the rail. If its body `takes_a_while`, the frame is sent before, and errors are reported in it.
pub(crate) fn full_or_streamed_page(
    app: &App,
    asked: &Asked,
    title: &str,
    place: RailPage,
    takes_a_while: bool,
    body: impl FnOnce(&App, &Asked) -> Result<Markup, Problem> + Send + 'static,
) -> Result<RouteReply, Problem> {
    /// Text never becomes a comment.
    const BODY: &str = "<!--body-->";
    if !takes_a_while {
        return Ok(full_page(app, asked, title, place, &body(app, asked)?));
    }
    let PreEscaped(page) = frame_page(app, asked, title, place, &PreEscaped(BODY.to_owned()));
    let (before, after) = page.split_once(BODY).unwrap_or((&page, ""));
    let after = after.to_owned();
    Ok(add_headers(RouteReply::streamed_rest(HTML, before.to_owned(), move |app, asked| {
        body(app, asked).unwrap_or_else(|problem| problem::explain(&problem)).0 + &after
    })))
}

fn frame_page(app: &App, asked: &Asked, title: &str, place: RailPage, body: &Markup) -> Markup {
    let open = open_questions(app, asked);
    let rail = html! {
        header class="rail" {
            (brand_link())
            nav aria-label="Pages" {
                @for (at, group) in RAIL.iter().enumerate() {
                    ul class=[(at > 0).then_some("group")] {
                        @for (of, name, href) in *group {
                            @if *of != RailPage::Audit || asked.has_right(Verb::Administer, None) {
                                li {
                                    a href=(href) aria-current=[(*of == place).then_some("page")] data-name=(name) {
                                        (name)
                                        @if *of == RailPage::Now && open > 0 {
                                            span class="count" { (open) span class="hide" { " open questions" } }
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            }
            div class="foot" {
                @if let Some(actor) = &asked.actor {
                    div class="who" { strong { (actor.name) } (actor.role) }
                }
                span class="pulse js-only" role="status" data-state="idle" { "connecting" }
                button type="button" class="plain js-only" data-palette="" { "Find " kbd { "Ctrl K" } }
                button type="button" class="plain js-only who" data-theme-switch="" { "Theme" }
                a href="/passkeys" class="plain who" data-name="Passkeys" { "Passkeys" }
                form method="post" action="/logout" class="who" { button class="plain" { "Log out" } }
            }
        }
    };
    html_document(
        app,
        title,
        "",
        &html! { (rail) main id="main" tabindex="-1" { (rollback_warning(app)) (body) } (palette_dialog()) },
    )
}

/// A warning at the top of every page if the store is older than its recorded state.
pub(crate) fn rollback_warning(app: &App) -> Markup {
    html! {
        @if let Some(warning) = app.store.rollback_warning() {
            div class="note is-bad" role="alert" { strong { "The store was rolled back" } p { (harmless(&warning)) } }
        }
    }
}

/// A narrow page for one thing, such as for phones.
pub(crate) fn narrow_page(app: &App, title: &str, body: &Markup) -> RouteReply {
    let page = html_document(app, title, "narrow", &html! { main id="main" tabindex="-1" { (body) } });
    add_headers(RouteReply::bytes(HTML, page.0))
}

fn open_questions(app: &App, asked: &Asked) -> usize {
    let asking = app.store.runs_that_ask(COUNTED).unwrap_or_default();
    let starts = app.service.starts_of(&asking).unwrap_or_default();
    let may = |run| asked.may_read(starts.get(run).and_then(|start| start.workflow.as_deref()));
    asking.iter().filter(|run| may(*run)).count()
}

pub(crate) fn brand_link() -> Markup {
    html! {
        a href="/" class="brand" data-name="Now" {
            (PreEscaped(BRAND))
            "lobster"
        }
    }
}

const BRAND: &str = r#"<svg viewBox="0 0 24 24" aria-hidden="true"><path fill="currentColor" d="M7 3c-2.500.5-4 2.400-4 4.500C3 9.600 4.500 11 6.500 11c.6 0 1-.1 1.500-.3V14a4 4 0 0 0 3 3.900V19l-2 2.500 1.200 1 1.800-2 1.800 2 1.200-1L13 19v-1.100a4 4 0 0 0 3-3.900v-3.300c.5.2.9.300 1.500.3 2 0 3.500-1.400 3.500-3.500C21 5.400 19.500 3.500 17 3l.5 3-2 1.300-2-1.800c-.5 1.500-.2 2.800.5 3.800v.7h-4v-.7c.7-1 1-2.300.5-3.800l-2 1.800-2-1.300z"/></svg>"#;

fn palette_dialog() -> Markup {
    html! {
        dialog id="palette" aria-label="Find a page" {
            input type="text" role="combobox" aria-expanded="true" aria-controls="places" aria-label="Go to"
                placeholder="Go to a page, a run, a workflow" autocomplete="off" {}
            ul id="places" role="listbox" aria-label="Places" {}
            p class="keys" { kbd { "g" } " then " kbd { "n" } " now, " kbd { "r" } " runs, " kbd { "w" } " workflows; " kbd { "j" } " " kbd { "k" } " move; " kbd { "t" } " theme" }
        }
    }
}

fn html_document(app: &App, title: &str, class: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="clock" content=(app.store.clock_ms());
                title { (title) " · lobster" }
                link rel="icon" href="/assets/icon.svg" type="image/svg+xml";
                link rel="stylesheet" href=(assets::url_of("console.css"));
                script type="module" src=(assets::url_of("console.js")) {}
            }
            body class=[(!class.is_empty()).then_some(class)] {
                a href="#main" class="skip" { "Skip to content" }
                (body)
            }
        }
    }
}

/// The headers of every page.
fn add_headers(page: RouteReply) -> RouteReply {
    let value = HeaderValue::from_static;
    page.with_header(header::CONTENT_SECURITY_POLICY, value(POLICY))
        // Without it, browsers do not send the origin of a form.
        .with_header(header::REFERRER_POLICY, value("same-origin"))
        .with_header(
            HeaderName::from_static("permissions-policy"),
            value("camera=(), microphone=(), geolocation=()"),
        )
}
