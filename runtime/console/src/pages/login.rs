//! Login with a one-time link, and logout.

use axum::http::{Method, header};
use lobster_serve::http::{App, Asked, Problem, RouteReply, acts};
use maud::html;
use serde_json::json;

use super::problem::typed_fields;
use crate::assets;
use crate::shell;

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    Ok(render_page(app, asked, None))
}

/// The login page, which callers without a session also see instead of other pages.
pub(crate) fn render_page(app: &App, asked: &Asked, wrong: Option<&str>) -> RouteReply {
    let is_elsewhere = !asked.target.starts_with("/login");
    let next = match asked.field("next").or_else(|| asked.query("next")) {
        Some(next) => next,
        // The address to which a form was sent is also the address of its page.
        None if is_elsewhere && [Method::GET, Method::POST].contains(&asked.method) => &asked.target,
        None => "/",
    };
    // The code of the problem, for programs.
    let problem = is_elsewhere.then_some("login");
    let body = html! {
        div class="top" data-problem=[problem] { (shell::brand_link()) }
        h1 { "Log in" }
        p class="lead" { "One-time links open this console. Print one where lobster runs:" }
        pre class="cmd" { "lobster serve link" }
        @if let Some(wrong) = wrong { div class="note is-bad" role="alert" { strong { (wrong) } } }
        form method="post" action="/login" class="answer" data-login="" {
            input type="hidden" name="next" value=(local_path(next));
            div class="field" {
                label for="link" { "Link" }
                input id="link" name="link" autocomplete="off" spellcheck="false" required placeholder="http://…/login#lob_…" aria-describedby="about-link";
                p id="about-link" { "Paste the whole link, or the part after its #. It works once, within a minute." }
            }
            button class="primary big" { "Log in" }
        }
        div class="answer" data-passkeys=(assets::url_of("passkey.js")) hidden {
            p class="muted" { "Or with a passkey, if you have added one on this device:" }
            button type="button" class="big" data-passkey="login" data-next=(local_path(next)) { "Log in with a passkey" }
            p role="alert" {}
        }
        @if asked.method == Method::POST && is_elsewhere {
            div class="note is-wait" {
                strong { "Your session had ended" }
                p { "Nothing was sent. Log in, and send it again: what you typed is below." }
            }
            (typed_fields(asked))
        }
    };
    shell::narrow_page(app, "Log in", &body)
}

/// Returns a path of this server, or `/` for anything else.
fn local_path(next: &str) -> &str {
    let is_local =
        next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\n', '\r', '\t']);
    if is_local { next } else { "/" }
}

pub(crate) fn open_session(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let link = asked.field("link").unwrap_or_default().trim();
    let secret = link.rsplit('#').next().unwrap_or_default();
    match acts::login(app, &asked.with_json(json!({ "link": secret }))) {
        Ok(reply) => Ok(redirect_with_cookie(&reply, local_path(asked.field("next").unwrap_or("/")))),
        Err(problem) => {
            let status = problem.status;
            Ok(render_page(app, asked, Some(&problem.detail)).with_status(status))
        }
    }
}

pub(crate) fn end_session(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    Ok(redirect_with_cookie(&acts::logout(app, asked)?, "/login"))
}

/// Redirects with the cookie that a reply sets.
fn redirect_with_cookie(reply: &RouteReply, address: &str) -> RouteReply {
    let cookie = reply.headers().iter().find(|(name, _)| *name == header::SET_COOKIE).cloned();
    let see = RouteReply::redirect_to(address);
    match cookie {
        Some((name, value)) => see.with_header(name, value),
        None => see,
    }
}

#[cfg(test)]
mod tests {
    use super::local_path;

    #[test]
    fn a_login_leads_to_this_server_only() {
        for bad in ["https://evil.example", "//evil.example", "/\\evil.example", "javascript:1", "", "/a\nb"]
        {
            assert_eq!(local_path(bad), "/", "{bad}");
        }
        assert_eq!(local_path("/runs?status=failed"), "/runs?status=failed");
    }
}
