//! `lobster doctor`

use std::io::Write;
use std::time::{Duration, Instant};

use lobster_runtime::code::Code;
use lobster_runtime::engine::RunOutput;
use lobster_runtime::envelope::{Envelope, Failure, FailureKind, PROTOCOL_VERSION};
use lobster_runtime::json;
use lobster_runtime::runtime::{RunRequest, Runtime, Target};
use lobster_runtime::sandbox::{Sandbox, SandboxConfig};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{Event, RunId, Store};
use serde_json::json;

use crate::COMPATIBLE_WITH;
use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::table::{Cell, Room, Table, state_style};
use crate::render::units;
use crate::stdout::stdout;

/// Checks that lobster works here: the shell, the state directory and the store.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Attacks the sandbox of this machine and lists which of its promises hold.
    #[arg(long, conflicts_with_all = ["service", "notes"])]
    sandbox: bool,
    /// Attacks the running servers of this store and lists which of their promises hold.
    #[arg(long, conflicts_with = "notes")]
    service: bool,
    /// Prints JSON, even at a terminal.
    #[arg(long)]
    json: bool,
    /// Words to repeat in the answer.
    notes: Vec<String>,
}

/// A pipeline that tests if anything runs. `@` ignores it.
pub(crate) const PROBE: &str = "exec --json --shell 'echo [1]'";

pub(crate) fn run(args: &Args) -> CommandResult {
    if args.sandbox {
        return attack_sandbox(args.json);
    }
    if args.service {
        return attack_servers(args.json);
    }
    let reply = crate::reply::ResultPrinter::new(Mode::Tool);
    let runtime = match prepare::runtime(Mode::Tool) {
        Ok(runtime) => runtime,
        // A problem that prevents all runs is part of the findings.
        Err(error) if !stdout().is_terminal() || args.json => {
            let failure = Failure { kind: FailureKind::Doctor, ..Failure::from(error) };
            return reply.print_envelope(&Envelope::Failed(failure));
        }
        Err(error) => return Err(error),
    };
    // Through the whole engine, like any pipeline: shell, sandbox, journal, store.
    let request = RunRequest { target: Target::Pipeline(PROBE.to_owned()), args: None };
    let begun = Instant::now();
    let result = runtime.run(&request);
    let envelope = match result.envelope {
        Envelope::Done(output) if output.to_vec().is_ok_and(|items| items == [json!(1)]) => {
            let mut item =
                json!({ "toolMode": true, "protocolVersion": PROTOCOL_VERSION, "version": COMPATIBLE_WITH });
            if !args.notes.is_empty() {
                item["notes"] = json!(args.notes);
            }
            Envelope::Done(RunOutput::from(vec![item]))
        }
        Envelope::Failed(failure) => Envelope::Failed(Failure { kind: FailureKind::Doctor, ..failure }),
        _ => Envelope::Failed(Failure {
            kind: FailureKind::Doctor,
            ..Failure::new(Code::Failed, "the shell did not print the expected result of `echo [1]`")
        }),
    };
    if stdout().is_terminal() && !args.json {
        let exit = Exit::Code(envelope.exit_code());
        print_findings(&runtime, &envelope, result.run, begun.elapsed())?;
        super::approvals::tell_of_incumbent(&runtime);
        return Ok(exit);
    }
    super::approvals::tell_of_incumbent(&runtime);
    prepare::note_withheld_keys(&runtime);
    reply.print_envelope(&envelope)
}

/// Prints the findings for a person, line by line.
fn print_findings(
    runtime: &Runtime,
    envelope: &Envelope,
    run: Option<RunId>,
    took: Duration,
) -> Result<(), CommandError> {
    let room = Room::of_stdout();
    let mut table = Table::new(&["", "", ""]);
    let mut line = |sign: &str, what: &str, found: String| {
        let style = state_style(match sign {
            "✓" => "ok",
            "✗" => "failed",
            _ => "waiting",
        });
        table.push(vec![Cell::styled(sign, style), what.into(), found.into()]);
    };
    line("✓", "lobster", format!("{}, compatible with {COMPATIBLE_WITH}", env!("CARGO_PKG_VERSION")));
    let took = units::rough_duration(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    match envelope {
        Envelope::Failed(failure) => line("✗", "a run", failure.message.clone()),
        _ => {
            line("✓", "a run", format!("`echo [1]` through the shell, the journal and the store, in {took}"))
        }
    }
    line("✓", "state", runtime.state_dir().display().to_string());
    let store = runtime.store();
    match &store {
        Ok(store) => match store.stats() {
            Ok(stats) => line(
                "✓",
                "store",
                format!(
                    "{}, {}, {}",
                    units::count_noun(stats.runs, "run"),
                    units::count_noun(stats.open_gates, "open question"),
                    units::format_bytes(stats.database_bytes + stats.blob_file_bytes)
                ),
            ),
            Err(error) => line("✗", "store", format!("{error}; `lobster store verify` lists the damage")),
        },
        Err(error) => line("✗", "store", error.to_string()),
    }
    match store.ok().zip(run).and_then(|(store, run)| sandbox_of(&store, run)) {
        Some(held) => line("✓", "sandbox", format!("{held}; `lobster doctor --sandbox` tests it")),
        None => line("!", "sandbox", "not known; `lobster doctor --sandbox` tests it".to_owned()),
    }
    let files = runtime.services.policy_files.iter();
    let policies: Vec<String> = files.map(|file| file.path.display().to_string()).collect();
    match policies.as_slice() {
        [] => line(
            "!",
            "policy",
            "none: all commands run unrestricted; `lobster policy init` writes one".to_owned(),
        ),
        files => line("✓", "policy", files.join(", ")),
    }
    let withheld = runtime.withheld_keys();
    if let Some(first) = withheld.first() {
        let names = withheld.join(", ");
        line("!", "keys", format!("steps do not receive {names}; `env: {{ {first}: ${first} }}` grants one"));
    }
    let mut out = stdout();
    table.print_to(&mut out, room)?;
    Ok(())
}

/// The confinement of the run's command.
fn sandbox_of(store: &Store, run: RunId) -> Option<String> {
    let (records, _) = store.found_events(run).ok()?;
    let held = records.iter().find_map(|record| match &record.event {
        Event::StepEnded { outcome, .. } => Some(super::show::describe_sandbox(&outcome.enforcement)),
        _ => None,
    })?;
    Some(match held.as_str() {
        "unconfined" => "not used (no policy)".to_owned(),
        _ => held,
    })
}

/// Attacks the servers of this store and reports the results.
fn attack_servers(as_json: bool) -> CommandResult {
    let service = prepare::service()?;
    let servers = service.running_servers()?;
    if servers.is_empty() {
        return Err(CommandError::failed("no server is running on this store; `lobster serve` starts one"));
    }
    let mut rows = Vec::new();
    for server in &servers {
        let address = server.listen.parse().map_err(|_| {
            CommandError::failed(format!("server {} does not publish its address", server.id))
        })?;
        let found = lobster_serve::probe::attack(address, &server.url).map_err(CommandError::failed)?;
        rows.extend(found.into_iter().map(|finding| (server.listen.clone(), finding)));
    }
    let mut out = stdout();
    if as_json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(server, one)| json!({ "server": server, "promise": one.promise, "tries": one.tries, "broken": one.broken }))
            .collect();
        writeln!(out, "{}", json::pretty(&rows))?;
    } else {
        let mut table = Table::new(&["SERVER", "PROMISE", "RESULT", "TRIES", ""]);
        for (server, one) in &rows {
            let verdict = if one.broken.is_empty() { "held" } else { "broken" };
            table.push(vec![
                server.as_str().into(),
                one.promise.into(),
                Cell::state_word(verdict),
                one.tries.to_string().into(),
                one.broken.join(", ").into(),
            ]);
        }
        table.print_to(&mut out, Room { columns: None, ..Room::of_stdout() })?;
    }
    Ok(if rows.iter().all(|(_, one)| one.broken.is_empty()) { Exit::OK } else { Exit::FAILED })
}

/// Attacks lobster's own sandbox and reports the results.
fn attack_sandbox(as_json: bool) -> CommandResult {
    let checkup = Sandbox::new(SandboxConfig::default()).attack_jail().map_err(CommandError::failed)?;
    let mut out = stdout();
    if as_json {
        writeln!(out, "{}", json::pretty(&checkup))?;
    } else {
        let mut table = Table::new(&["PROMISE", "RESULT", "ATTACK", ""]);
        for finding in &checkup.findings {
            let verdict = json::js_string(&json!(finding.verdict));
            table.push(vec![
                finding.promise.to_string().into(),
                Cell::state_word(verdict),
                finding.action.as_str().into(),
                finding.detail.as_str().into(),
            ]);
        }
        table.print_to(&mut out, Room { columns: None, ..Room::of_stdout() })?;
    }
    Ok(if checkup.is_sound() { Exit::OK } else { Exit::FAILED })
}
