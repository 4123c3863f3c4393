//! What the policy of this server says to a command, and why. Nothing is run.

use lobster_runtime::policy::{Proposal, Verdict};
use lobster_runtime::visible::harmless;
use lobster_serve::http::{App, Asked, Problem, Reply};
use maud::html;

use crate::shell::{self, Place};
use crate::words::state;

/// Longer commands are not read.
const MOST: usize = 16 << 10;

pub(crate) fn show(app: &App, asked: &Asked) -> Result<Reply, Problem> {
    let command = asked.query("command").unwrap_or_default();
    if command.len() > MOST {
        return Err(Problem::bad_request("the command is too long"));
    }
    let policy = app.runtime.policy();
    let decision = (!command.trim().is_empty())
        .then(|| policy.decide(&Proposal::shell(command), &app.runtime.decision_env()));
    let body = html! {
        div class="top" { div class="title" { h1 { "Policy" } } }
        p class="lead" { "What the policy of this server says to a command, and why. Nothing is run." }
        @if policy.is_open() { div class="note is-wait" { strong { "No policy is in force" } p { "Commands run with all rights of this server. " code { "lobster policy init" } " writes a policy to start from." } } }
        form method="get" action="/policy" class="card pad" {
            div class="field" { label for="command" { "Command, as a shell reads it" } textarea id="command" name="command" class="code" spellcheck="false" required { "\n" (command) } }
            div class="bar" { button class="primary" { "Explain" } }
        }
        @if let Some(decision) = &decision {
            @let word = match decision.verdict { Verdict::Allow => "allow", Verdict::Ask => "ask", Verdict::Deny => "deny" };
            section { header { h2 { "The decision" } (state(word, true)) } pre class="out" tabindex="0" { (harmless(&decision.explain())) } }
        }
    };
    Ok(shell::page(app, asked, "Policy", Place::Policy, &body))
}
