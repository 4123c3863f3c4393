//! A run that a service is to begin, that was cancelled before it began, or that was refused: it has no
//! record, only a start.

use std::io::Write;

use lobster_runtime::json;

use crate::exit::{CommandResult, finish, print_json};
use crate::render::pager::PagedOutput;
use crate::render::question::{BOLD, DIM};
use crate::render::table::{self, Room};
use crate::render::{harmless, one_line, units};
use crate::which::Unbegun;

/// Shows the start, the reason for a refusal, and what to do.
pub(super) fn show(unbegun: &Unbegun, full: bool, as_json: bool) -> CommandResult {
    let mut out = PagedOutput::for_reader(as_json);
    if as_json {
        return print_json(&mut out, &unbegun.to_json());
    }
    let (start, room) = (&unbegun.start, Room::of_stdout());
    let state = room.paint(table::state_style(start.state.as_str()), start.state.as_str());
    writeln!(out, "{}  {state}", room.paint(BOLD, &one_line(&unbegun.workflow)))?;
    let actor = start.actor.as_ref().map(|actor| format!(" for {actor}")).unwrap_or_default();
    let mut facts = vec![
        ("run", start.run.to_string()),
        (
            "asked",
            format!(
                "{} by {}{actor}",
                units::format_time(start.queued_at, full),
                start.cause.replace('_', " ")
            ),
        ),
        ("args", json::compact(&start.args)),
    ];
    facts.extend(start.why.iter().map(|why| ("why", why.clone())));
    facts.push(("next", unbegun.next_action()));
    for (title, text) in facts {
        let title = room.paint(DIM, &format!("{title:<8}"));
        writeln!(out, "  {title} {}", harmless(&text).replace('\n', "\n           "))?;
    }
    finish(out)
}
