//! The passkeys of the viewer: the list, adding one, removing one.

use lobster_serve::http::{App, Asked, Problem, RouteReply, acts};
use maud::html;

use crate::assets;
use crate::shell::{self, RailPage};
use crate::words::{empty_placeholder, relative_time};

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let now = app.store.clock_ms();
    let keys = acts::passkeys_of(app, asked)?;
    let is_person = asked.actor.as_ref().is_some_and(|actor| actor.logged_in_at.is_some());
    let name = asked.caller_name().unwrap_or_default();
    let body = html! {
        div class="top" { div class="title" { h1 { "Passkeys" } } }
        p class="lead" { "The key that a phone or computer keeps for you logs you in there, with a finger, a face or a PIN. It has the rights of the session that adds it, for a year." }
        section class="card scroll" tabindex="0" {
            h2 class="hide" { "Yours" }
            @if keys.is_empty() { (empty_placeholder("You have no passkey", "Add one on each device that you approve from.", None)) }
            @else { table class="table" {
                thead { tr { th scope="col" { "Key" } th scope="col" { "Role" } th scope="col" { "Added" } th scope="col" { "Used" } th scope="col" { "Until" } th scope="col" { span class="hide" { "Forget" } } } }
                tbody { @for key in &keys { tr {
                    td { code { (key.id) } }
                    td { (key.role) }
                    td { (relative_time(key.made_at, now)) }
                    td { @match key.used_at { Some(at) => (relative_time(at, now)), None => "never" } }
                    td { @if let Some(at) = key.expires_at { (relative_time(at, now)) } }
                    td { form method="post" action=(format!("/passkeys/{}/forget", key.id)) { button class="danger" data-confirm="Forget this passkey?" { "Forget" } } }
                } } }
            } }
        }
        @if !is_person {
            div class="note" { strong { "You are not logged in here" } p { "Passkeys are for people who log in here. A proxy or a token identifies you." } }
        } @else if !acts::may_add_passkey(app, asked) {
            div class="note" { strong { "Log in again to add one" } p { "A passkey can be added within ten minutes of a login, so that no one can add a key to a session that was left open." } }
        } @else {
            div data-passkeys=(assets::url_of("passkey.js")) hidden {
                button type="button" class="primary" data-passkey="add" data-name=(name) { "Add a passkey of this device" }
                p role="alert" {}
            }
            div class="note" data-no-passkeys="" hidden {
                strong { "Not at this address" }
                p { "Browsers keep passkeys for names: open the console over TLS, or as " code { "http://localhost" } "." }
            }
        }
    };
    Ok(shell::full_page(app, asked, "Passkeys", RailPage::Elsewhere, &body))
}

pub(crate) fn forget(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    acts::forget_passkey(app, asked)?;
    Ok(RouteReply::redirect_to("/passkeys"))
}
