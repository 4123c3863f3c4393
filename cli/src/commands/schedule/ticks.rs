//! Ticks for people: the next times of a schedule, the outcomes of its ticks, and backfills.

use std::io::Write;
use std::path::Path;

use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use lobster_runtime::json;
use lobster_runtime::language::triggers::{Due, DueTick, Schedule};
use lobster_runtime::model::pricing::Pricing;
use lobster_runtime::stage::Mode;
use lobster_runtime::store::service::{ScheduleRow, Service, Tick, TickState};
use lobster_runtime::store::{RunId, iso};
use lobster_serve::schedule::{backfill_of, parse_spec, time_zones};
use lobster_serve::workflows::{self, Content};
use serde_json::{Value, json};

use super::{
    ORIGIN, find_schedule, parse_instant, run_initiator, schedule_as_json, state_text, tell_if_nobody_serves,
};
use crate::commands::cost::Sum;
use crate::exit::{CommandError, CommandResult, Exit, finish, print_json};
use crate::prepare;
use crate::render::pager::PagedOutput;
use crate::stdout::print_line;

/// Most ticks that one backfill starts.
const BACKFILL_AT_MOST: usize = 1000;

/// Silence in milliseconds after which a server may be gone: it reports every two seconds.
const SILENT_MS: i64 = 5_000;

/// The times of a schedule, in words.
pub(super) fn due_text(schedule: &Schedule) -> String {
    match &schedule.due {
        Due::Cron { pattern, timezone } => format!("{pattern} {timezone}"),
        Due::Every { ms } => format!("every {}", std::time::Duration::from_millis(*ms).as_secs_f64()) + " s",
    }
}

/// The other triggers of a workflow, in words.
pub(super) fn other_triggers(content: &Content) -> String {
    let triggers = &content.triggers;
    let webhooks = triggers.webhooks.iter().map(|hook| format!("webhook /hooks/{}", hook.path));
    let after = triggers.after.iter().map(|after| format!("after {}", after.workflow));
    let watch = triggers.watch.iter().map(|watch| format!("watch {}", watch.paths.join(" ")));
    webhooks.chain(after).chain(watch).collect::<Vec<_>>().join(", ")
}

/// The schedules that a word names: a registered one, or those of a file.
fn schedules_of(word: &str) -> Result<Vec<(String, Schedule)>, CommandError> {
    if Path::new(word).is_file() {
        let runtime = prepare::runtime(Mode::Human)?;
        let candidate = workflows::read_candidate(&runtime, Path::new(word)).map_err(CommandError::failed)?;
        let name = candidate.name;
        let named = |schedule: Schedule| (format!("{name}/{}", schedule.name), schedule);
        return Ok(candidate.workflow.triggers.schedules.into_iter().map(named).collect());
    }
    let service = prepare::service()?;
    let row = find_schedule(&service, word)?;
    Ok(vec![(row.display_name(), parse_schedule(&row)?)])
}

fn parse_schedule(row: &ScheduleRow) -> Result<Schedule, CommandError> {
    parse_spec(&row.spec).map_err(|error| CommandError::failed(format!("{}: {error}", row.display_name())))
}

pub(super) fn next(word: &str, count: usize, from: Option<&str>, as_json: bool) -> CommandResult {
    let now = Timestamp::now().as_millisecond();
    let from = from.map_or(Ok(now), |text| parse_instant(text, now))?;
    let schedules = schedules_of(word)?;
    if schedules.is_empty() {
        return Err(CommandError::usage(format!("{word} has no schedule")));
    }
    let mut out = PagedOutput::for_reader(as_json);
    let mut objects = Vec::new();
    for (title, schedule) in &schedules {
        let delay = i64::try_from(schedule.delay_ms(title)).unwrap_or(0);
        let after = Timestamp::from_millisecond(from - delay).unwrap_or(Timestamp::MAX);
        let ticks = schedule
            .ticks_after(after, &time_zones())
            .map_err(|error| CommandError::failed(error.to_string()))?;
        if !as_json && schedules.len() > 1 {
            writeln!(out, "{title}")?;
        }
        for tick in ticks.take(count) {
            let starts = tick.due.as_millisecond() + delay;
            let mark = mark_of(schedule, &tick);
            if as_json {
                objects.push(json!({
                    "schedule": title, "tick": tick.key(), "due": iso(tick.due.as_millisecond()),
                    "starts": iso(starts), "mark": mark,
                }));
                continue;
            }
            let mark = mark.map(|mark| format!("   {mark}")).unwrap_or_default();
            writeln!(out, "{}{mark}", local_time(schedule, starts))?;
        }
    }
    if as_json {
        writeln!(out, "{}", json::pretty(&objects))?;
    }
    finish(out)
}

/// A time in the zone of a schedule, or of this machine.
fn local_time(schedule: &Schedule, ms: i64) -> String {
    let zone = zone_of(schedule).unwrap_or_else(TimeZone::system);
    match Timestamp::from_millisecond(ms) {
        Ok(at) => at.to_zoned(zone).strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string(),
        Err(_) => iso(ms),
    }
}

fn zone_of(schedule: &Schedule) -> Option<TimeZone> {
    match &schedule.due {
        Due::Cron { timezone, .. } => time_zones().get(timezone).ok(),
        Due::Every { .. } => None,
    }
}

/// A remark on a tick near a change of the clocks.
fn mark_of(schedule: &Schedule, tick: &DueTick) -> Option<&'static str> {
    let zone = zone_of(schedule)?;
    if tick.is_second {
        return Some("the hour comes twice; this is the second time");
    }
    let at: Zoned = tick.due.to_zoned(zone.clone());
    if at.datetime() != tick.intended {
        return Some("the clock skips the time that was meant; this is right after the gap");
    }
    let changes = |days: i64| {
        let there = at.datetime().checked_add(jiff::Span::new().days(days)).ok()?;
        Some(there.to_zoned(zone.clone()).ok()?.offset() != at.offset())
    };
    changes(1).filter(|changes| *changes).map(|_| "the clock is changed within a day")
}

pub(super) fn backfill(word: &str, from: &str, to: Option<&str>, dry_run: bool) -> CommandResult {
    prepare::refuse_inside_a_run("backfill ticks")?;
    let service = prepare::service()?;
    let row = find_schedule(&service, word)?;
    let now = service.store().clock_ms();
    let from = parse_instant(from, now)?;
    let to = to.map_or(Ok(now), |text| parse_instant(text, now))?.min(now);
    if to <= from {
        let (from, to) = (iso(from), iso(to));
        return Err(CommandError::usage(format!("there is no time between --from {from} and {to}")));
    }
    let wanted = backfill_of(&service, &row, from, to, BACKFILL_AT_MOST + 1).map_err(CommandError::failed)?;
    if wanted.len() > BACKFILL_AT_MOST {
        return Err(CommandError::usage(format!(
            "there are more than {BACKFILL_AT_MOST} ticks between these times; give a shorter time"
        )));
    }
    if wanted.is_empty() {
        print_line(&format!("no tick between {} and {}", iso(from), iso(to)));
        return Ok(Exit::OK);
    }
    if dry_run {
        for (tick, _) in &wanted {
            print_line(&format!("{}  {}", iso(tick.due), tick.key));
        }
        return Ok(Exit::OK);
    }
    let runs = service.backfill_ticks(&row, &wanted, run_initiator()?.as_deref(), ORIGIN)?;
    for ((tick, _), run) in wanted.iter().zip(&runs) {
        match run {
            Some(run) => print_line(&format!("{}  run {run}", tick.key)),
            None => print_line(&format!("{}  had a run", tick.key)),
        }
    }
    if runs.iter().any(Option::is_some) {
        tell_if_nobody_serves(&service)?;
    }
    Ok(Exit::OK)
}

pub(super) fn explain_starts(word: &str, at: Option<&str>, count: usize, as_json: bool) -> CommandResult {
    let service = prepare::service()?;
    let row = find_schedule(&service, word)?;
    let schedule = parse_schedule(&row)?;
    let now = service.store().clock_ms();
    let mut ticks = match at {
        None => service.list_ticks(row.n, i64::MIN, count)?,
        Some(text) => {
            let at = parse_instant(text, now)?;
            let found = service.list_ticks(row.n, at, usize::MAX)?;
            found
                .into_iter()
                .filter(|tick| tick.due <= at && at <= tick.last.max(tick.due + 59_999))
                .collect()
        }
    };
    ticks.reverse();
    let standing = current_state(&service, &row, &schedule, now)?;
    let mut out = PagedOutput::for_reader(as_json);
    if as_json {
        let mut shown = schedule_as_json(&row);
        shown["ticks"] = ticks.iter().map(tick_object).collect();
        shown["now"] = json!(standing);
        return print_json(&mut out, &shown);
    }
    if ticks.is_empty() {
        writeln!(out, "{}", if at.is_some() { "no tick was due then" } else { "no tick was due yet" })?;
    }
    for tick in &ticks {
        writeln!(out, "{}", line_of(&service, &schedule, tick)?)?;
    }
    for line in standing {
        writeln!(out, "{line}")?;
    }
    finish(out)
}

fn tick_object(tick: &Tick) -> Value {
    json!({
        "tick": tick.key, "due": iso(tick.due), "count": tick.count, "lastDue": iso(tick.last),
        "state": tick.state, "reason": tick.reason, "run": tick.run.map(|run| run.to_string()),
        "decidedAt": iso(tick.at), "revision": tick.revision,
    })
}

fn line_of(service: &Service, schedule: &Schedule, tick: &Tick) -> Result<String, CommandError> {
    let mut line = format!("{}  {}", local_time(schedule, tick.due), state_text(tick.state));
    match tick.count {
        1 => {}
        0 => line += &format!(", until {}", local_time(schedule, tick.last)),
        more => line += &format!(" ×{more}, until {}", local_time(schedule, tick.last)),
    }
    if let Some(run) = tick.run {
        line += &format!(", run {}", run.short_id());
        let start = service.start_of(run)?;
        match start.and_then(|start| start.why) {
            // The run began, and continues only if a person resumes it.
            Some(why) if service.store().run(run).is_ok() => line += &format!(" does not continue: {why}"),
            Some(why) => line += &format!(" did not begin: {why}"),
            None => line += &run_cost(service, run),
        }
    }
    if let Some(reason) = &tick.reason {
        line += &format!(": {reason}");
    }
    if tick.state == TickState::CaughtUp {
        line += &format!(
            " ({} late)",
            crate::render::units::format_duration(u64::try_from((tick.at - tick.due) * 1000).unwrap_or(0))
        );
    }
    Ok(line)
}

/// The cost of a tick's run, once it has ended.
fn run_cost(service: &Service, run: RunId) -> String {
    let store = service.store();
    if !store.run(run).is_ok_and(|run| run.status.is_over()) {
        return String::new();
    }
    let Ok((journal, None)) = store.found_events(run) else { return String::new() };
    let prices = Pricing::configured(|name| std::env::var(name).ok()).0;
    match Sum::of_run(&journal, &prices) {
        None => ", no model was called".to_owned(),
        Some(sum) => format!(", {}", sum.to_line()),
    }
}

/// The current state of a schedule: the reason why it does not start runs, or its next time.
fn current_state(
    service: &Service,
    row: &ScheduleRow,
    schedule: &Schedule,
    now: i64,
) -> Result<Vec<String>, CommandError> {
    let mut lines = Vec::new();
    if let Some((at, by)) = &row.paused {
        let by = by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        lines.push(format!(
            "paused since {}{by}; `lobster schedule resume {}`",
            iso(*at),
            row.display_name()
        ));
    }
    let servers = service.running_servers()?;
    if servers.is_empty() {
        lines
            .push("no server is running on this store: nothing starts until `lobster serve` does".to_owned());
    }
    for server in servers {
        let silent = (now - server.heard_at).max(0);
        // A killed server cannot report its end.
        let heard = match silent > SILENT_MS {
            true => format!(", last active {} s ago", silent / 1000),
            false => String::new(),
        };
        lines.push(format!(
            "server {} listens on {}, process {}{heard}",
            server.id, server.listen, server.pid
        ));
    }
    for start in service.active_starts(row.n)? {
        lines.push(format!("run {} is {}", start.run.short_id(), start.state));
    }
    if let Some((at, was, is)) = service.last_rescheduling(row)?.filter(|(.., is)| row.next == Some(*is)) {
        lines.push(format!(
            "the rules of its time zone have changed: what was due at {} is due at {} (found {})",
            local_time(schedule, was),
            local_time(schedule, is),
            iso(at)
        ));
    }
    match row.next {
        Some(next) if next <= now => {
            lines.push(format!("due since {} and not decided", local_time(schedule, next)))
        }
        Some(next) => lines.push(format!("next {}", local_time(schedule, next))),
        None => {}
    }
    Ok(lines)
}
