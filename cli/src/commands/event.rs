//! `lobster event`

use std::io::{Read, Write};

use clap::Subcommand;
use lobster_runtime::json;
use lobster_runtime::language::wait::event_name;
use lobster_runtime::store::iso;
use lobster_runtime::store::service::MAX_EVENT_DATA;
use serde_json::{Value, json};

use crate::exit::{CommandError, CommandResult, Exit, finish, print_json};
use crate::prepare;
use crate::render::pager::PagedOutput;
use crate::render::table::{Room, Table};
use crate::stdout::print_line;

use super::schedule::{ORIGIN, current_actor};

/// Sends events to runs that wait for them (`wait: {event: NAME}`).
///
/// Every run that waits for the name takes the event once. It may be sent before the step begins, but not
/// before the run does.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster event send ready
  lobster event send paid/4711 --data '{\"amount\": 12}'
  lobster event send report --data - < report.json
  lobster event list")]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Sends an event; it is on disk when this returns.
    Send {
        /// Letters, digits and . _ - / :
        name: String,
        /// The data for the waiting steps, as JSON (default: null); `-` reads it from stdin.
        #[arg(long, value_name = "JSON")]
        data: Option<String>,
    },
    /// Lists the latest events, and the times and events that runs wait for.
    List {
        /// The most rows of each list.
        #[arg(long, short = 'n', value_name = "N", default_value_t = 20)]
        count: usize,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args) -> CommandResult {
    match &args.task {
        Task::Send { name, data } => send_event(name, data.as_deref()),
        Task::List { count, json } => list_events(*count, *json),
    }
}

fn send_event(name: &str, data: Option<&str>) -> CommandResult {
    prepare::refuse_inside_a_run("send an event")?;
    let name = event_name(name).map_err(CommandError::usage)?;
    let data = match data {
        None => Value::Null,
        Some(text) => parse_data(text)?,
    };
    let sent = prepare::service()?.send_event(name, &data, current_actor().as_deref(), ORIGIN)?;
    let runs = match sent.waiting {
        0 => "no run waits for it".to_owned(),
        1 => "1 run continues".to_owned(),
        more => format!("{more} runs continue"),
    };
    print_line(&format!("event {} sent: {name}; {runs}", sent.n));
    Ok(Exit::OK)
}

/// Parses the data of an event, given directly or on stdin.
fn parse_data(text: &str) -> Result<Value, CommandError> {
    let read;
    let text = match text {
        "-" => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().take(MAX_EVENT_DATA as u64 + 1).read_to_end(&mut bytes)?;
            read = String::from_utf8(bytes).map_err(|_| CommandError::usage("the data is not UTF-8 text"))?;
            &read
        }
        text => text,
    };
    if text.len() > MAX_EVENT_DATA {
        return Err(CommandError::usage(format!(
            "the data is larger than {MAX_EVENT_DATA} bytes; send the name of a file or a digest instead"
        )));
    }
    json::parse(text).map_err(|error| {
        CommandError::usage(format!("--data must be JSON: {error}")).with_hint("text is written '\"text\"'")
    })
}

fn list_events(count: usize, as_json: bool) -> CommandResult {
    let service = prepare::service()?;
    let (events, waits) = (service.list_events(count)?, service.list_waits(count)?);
    let mut out = PagedOutput::for_reader(as_json);
    if as_json {
        let events: Vec<_> = events
            .iter()
            .map(|one| json!({ "n": one.n, "name": one.name, "data": one.data, "at": iso(one.at), "by": one.by }))
            .collect();
        let waits: Vec<_> = waits
            .iter()
            .map(|one| {
                json!({ "run": one.run.to_string(), "path": one.path, "until": one.due.map(iso), "event": one.event })
            })
            .collect();
        return print_json(&mut out, &json!({ "events": events, "waits": waits }));
    }
    if events.is_empty() && waits.is_empty() {
        writeln!(out, "no event was sent, and no run waits for a time or an event")?;
        return Ok(Exit::OK);
    }
    if !events.is_empty() {
        let mut table = Table::new(&["SENT", "BY", "NAME", "DATA"]);
        for one in &events {
            let by = one.by.clone().unwrap_or_else(|| "-".to_owned());
            table.push(vec![
                iso(one.at).into(),
                by.into(),
                one.name.as_str().into(),
                json::compact(&one.data).into(),
            ]);
        }
        table.print_to(&mut out, Room::of_stdout())?;
    }
    if !waits.is_empty() {
        let mut table = Table::new(&["RUN", "STEP", "EVENT", "UNTIL"]);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        for one in waits {
            table.push(vec![
                one.run.short_id().into(),
                // The time of the next try of a run that could not continue.
                if one.path.is_empty() { "(again)".into() } else { one.path.into() },
                or_none(one.event).into(),
                or_none(one.due.map(iso)).into(),
            ]);
        }
        table.print_to(&mut out, Room::of_stdout())?;
    }
    finish(out)
}
