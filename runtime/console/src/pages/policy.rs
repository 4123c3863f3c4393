//! The policy's decision about a command, the commands of the latest runs that it would have stopped, and rules that
//! would remove their questions. Nothing is run, and no policy is written: only the operator changes the policy.

use std::collections::BTreeMap;

use lobster_runtime::figures::count_noun;
use lobster_runtime::policy::{Observed, Policy, Proposal};
use lobster_runtime::replay::{observed_commands, rules_of_approvals};
use lobster_runtime::store::{RunFilter, RunId};
use lobster_runtime::visible::harmless;
use lobster_serve::http::{App, Asked, Problem, RouteReply};
use maud::{Markup, html};

use crate::shell::{self, RailPage};
use crate::words::{clip_line, empty_placeholder, state_label};

/// The choices for the number of latest runs.
const LATEST: [usize; 3] = [20, 100, 500];

/// Most commands that are listed.
const LISTED: usize = 200;

/// Longest command that is read, in bytes.
const MOST: usize = 16 << 10;

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let command = asked.query("command").unwrap_or_default();
    if command.len() > MOST {
        return Err(Problem::bad_request("the command is too long"));
    }
    let policy = app.runtime.policy();
    let env = app.runtime.decision_env();
    let decision = (!command.trim().is_empty()).then(|| policy.decide(&Proposal::shell(command), &env));
    let body = html! {
        div class="top" { div class="title" { h1 { "Policy" } } }
        p class="lead" { "The policy's decision about a command, with the reason. Nothing is run." }
        @if policy.is_open() { div class="note is-wait" { strong { "No policy is in force" } p { "Commands run with all rights of this server. " code { "lobster policy init" } " writes a policy to start from." } } }
        form method="get" action="/policy" class="card pad" {
            div class="field" { label for="command" { "Command, as a shell reads it" } textarea id="command" name="command" class="code" spellcheck="false" required { "\n" (command) } }
            div class="bar" { button class="primary" { "Explain" } }
        }
        @if let Some(decision) = &decision {
            section { header { h2 { "The decision" } (state_label(decision.verdict.as_str(), true)) } pre class="out" tabindex="0" { (harmless(&decision.explain(&env))) } }
        }
        (look_back(app, asked)?)
    };
    Ok(shell::full_page(app, asked, "Policy", RailPage::Policy, &body))
}

/// The form about recorded runs, and its result.
fn look_back(app: &App, asked: &Asked) -> Result<Markup, Problem> {
    let count = asked.query_number("latest", LATEST[0])?.min(LATEST[2]);
    let look = asked.query("look").unwrap_or_default();
    Ok(html! {
        section id="back" {
            h2 { "Recorded runs" }
            form method="get" action="/policy#back" class="card pad" {
                div class="bar" {
                    label for="latest" { "Latest" }
                    select id="latest" name="latest" { @for one in LATEST { option value=(one) selected[one == count] { (one) " runs" } } }
                    button name="look" value="stopped" { "What would be stopped" }
                    button name="look" value="rules" { "Propose rules" }
                }
            }
            @match look {
                "stopped" => { (list_stopped(app, count)?) }
                "rules" => { (propose_rules(app, count)?) }
                _ => {}
            }
        }
    })
}

/// Reads the commands of the latest runs, and counts the runs whose record cannot be read.
fn read_observations(app: &App, count: usize) -> Result<(Vec<RunId>, Vec<Observed>, usize), Problem> {
    let env = app.runtime.decision_env();
    let filter = RunFilter { limit: count, ..RunFilter::default() };
    let runs: Vec<RunId> = app.store.list_runs(&filter)?.into_iter().map(|run| run.id).collect();
    let found: Vec<Observed> =
        runs.iter().filter_map(|run| observed_commands(&app.store, *run, &env).ok()).collect();
    let unread = runs.len() - found.len();
    Ok((runs, found, unread))
}

fn unread_note(unread: usize) -> Markup {
    html! { @if unread > 0 { div class="note is-wait" { strong { (count_noun(unread as u64, "run")) " could not be read" } p { code { "lobster store verify" } " lists the damage." } } } }
}

/// Lists the commands that the policy would stop.
fn list_stopped(app: &App, count: usize) -> Result<Markup, Problem> {
    let (_, runs, unread) = read_observations(app, count)?;
    let env = app.runtime.decision_env();
    let difference = app.runtime.policy().check_against(&runs, &env);
    let unused: Vec<&String> = difference.unused_rules.iter().chain(&difference.unused_rights).collect();
    Ok(html! {
        (unread_note(unread))
        div class="card scroll" tabindex="0" {
            @if difference.stopped.is_empty() { (empty_placeholder("Nothing would be stopped", "The policy lets every command of these runs run as it did.", None)) }
            @else {
                table class="table" {
                    thead { tr { th scope="col" { "Decision" } th scope="col" { "Command" } th scope="col" { "Why" } th scope="col" { "Run" } } }
                    tbody {
                        @for one in difference.stopped.iter().take(LISTED) {
                            tr {
                                td { (state_label(one.verdict.as_str(), false)) }
                                td class="prompt" { code { (clip_line(&one.argv.join(" "), 300)) } }
                                td class="small prompt" { (clip_line(&one.reason, 300)) }
                                td { a href=(format!("/runs/{}", one.run)) { code { (one.run.to_string().get(..8).unwrap_or_default()) } } }
                            }
                        }
                    }
                }
            }
        }
        @if difference.stopped.len() > LISTED { p class="muted small" { "… and " (difference.stopped.len() - LISTED) " more; " code { "lobster policy check --against RUN" } " lists all." } }
        @if !unused.is_empty() && !app.runtime.policy().is_open() {
            details class="card pad" { summary { (count_noun(unused.len() as u64, "rule")) " that none of these runs needs" } ul { @for one in unused.iter().take(LISTED) { li { code { (clip_line(one, 200)) } } } } }
        }
    })
}

/// Proposes rules under which these runs need no questions, and rules that people have agreed to keep.
fn propose_rules(app: &App, count: usize) -> Result<Markup, Problem> {
    let (ids, runs, unread) = read_observations(app, count)?;
    let suggestion = Policy::suggest(&runs, &app.runtime.decision_env());
    let mut kept: BTreeMap<String, Vec<RunId>> = BTreeMap::new();
    for run in ids {
        for rule in rules_of_approvals(&app.store, run).unwrap_or_default() {
            kept.entry(rule).or_default().push(run);
        }
    }
    Ok(html! {
        (unread_note(unread))
        p class="muted" { "Read each rule: it lets the command run without a question from then on. They apply once they are in the policy file." }
        @if !kept.is_empty() {
            h3 { "Proposed at approved questions" }
            @for (rule, runs) in &kept {
                pre class="out" tabindex="0" { (harmless(rule)) }
                p class="small muted" { "approved in " @for run in runs.iter().take(8) { a href=(format!("/runs/{run}")) { code { (run.short_id()) } } " " } }
            }
        }
        h3 { "A policy for these runs" }
        pre class="out" tabindex="0" { (harmless(&suggestion.toml)) }
        div class="bar" { button type="button" class="js-only" data-copy=(suggestion.toml) { "Copy" } }
        @if !suggestion.uncovered.is_empty() {
            details class="card pad" { summary { (count_noun(suggestion.uncovered.len() as u64, "command")) " that it does not cover" } ul { @for one in suggestion.uncovered.iter().take(LISTED) { li { code { (clip_line(&one.argv.join(" "), 200)) } " " span class="muted small" { (clip_line(&one.reason, 200)) } } } } }
        }
    })
}
