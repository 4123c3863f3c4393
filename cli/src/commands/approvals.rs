//! `lobster approvals`

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use lobster_runtime::engine::{Ahead, Author, QuestionView, SetsGoing};
use lobster_runtime::json;
use lobster_runtime::replay::changes::part_of_question;
use lobster_runtime::replay::{self, GateRef, Reply, ResumeRequest};
use lobster_runtime::runtime::Runtime;
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{
    Answerer, Gate, GateFilter, GateKind, GateStatus, RunId, Store, StoreError, end_with_run, iso,
};
use serde_json::{Value, json};

use super::changes;
use crate::answering::author_by_token;
use crate::events;
use crate::exit::{CommandError, CommandResult, Exit, print_json};
use crate::live;
use crate::prepare;
use crate::render::pager::PagedOutput;
use crate::render::print_to_stderr;
use crate::render::question::{self, Paper};
use crate::render::text::{cut, wrap};
use crate::render::{Quoting, one_line, units};
use crate::stdout::stdout;
use crate::terminal;
use crate::which;

/// Lists approvals and input requests that wait for a person.
///
/// `LOBSTER_APPROVAL_APPROVED_BY` names the person who answers. The first digits of an id are enough.
/// `approve`, `reject` and `answer` print the envelope of `lobster resume`, even if they fail.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  lobster approvals
  lobster approvals show 4f90
  lobster approvals approve 4f90
  lobster approvals approve 4f90 --only docs
  lobster approvals answer 4f90 '{\"decision\":\"later\"}'
  LOBSTER_APPROVAL_APPROVED_BY=ann lobster approvals approve 4f90"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Option<Task>,
    /// Shows only this one, like `approvals show`.
    id: Option<String>,
    /// Also lists closed ones: answered, cancelled or expired.
    #[arg(long)]
    all: bool,
    /// Prints exact times, and the questions in full.
    #[arg(long)]
    full: bool,
    /// Prints a JSON array, or the object of one.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Shows a question in full, and exactly what an approval would run.
    Show {
        /// The approval or input request, or a run (@) that waits for one answer.
        id: Option<String>,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Approves, and continues the run.
    Approve {
        /// The approval, or a run (@) that waits for one answer.
        id: Option<String>,
        /// Approves only the changes to files at or below this path, and drops the others; may be repeated.
        #[arg(long, value_name = "PATH")]
        only: Vec<PathBuf>,
    },
    /// Rejects, which cancels the run.
    Reject {
        /// The approval, or a run (@) that waits for one answer.
        id: Option<String>,
    },
    /// Answers an input request, and continues the run.
    Answer {
        /// The input request.
        id: String,
        /// The value, which must match the request's schema; `-` reads it from stdin.
        json: String,
    },
    /// Closes an approval or input request without an answer; its token is no longer accepted.
    ///
    /// The run is then listed as interrupted. `lobster resume RUN` asks again under a new id.
    Expire {
        /// The approval or input request, or a run (@) that waits for one answer.
        id: Option<String>,
        /// Prints a JSON object.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(args: &Args) -> CommandResult {
    match &args.task {
        Some(Task::Approve { id, only }) if only.is_empty() => answer(id.as_deref(), || Ok(Reply::Approve)),
        Some(Task::Approve { id, only }) => {
            answer(id.as_deref(), || Ok(Reply::ApproveOnly(changes::resolve_paths(only)?)))
        }
        Some(Task::Reject { id }) => answer(id.as_deref(), || Ok(Reply::Reject)),
        Some(Task::Answer { id, json }) => answer(Some(id), || response(json)),
        Some(Task::Show { id, json }) => {
            let (runtime, store) = open_store()?;
            show(&store, &find(&runtime, &store, id.as_deref(), None)?, *json)
        }
        Some(Task::Expire { id, json }) => {
            let (runtime, store) = open_store()?;
            expire(&runtime, &store, &find(&runtime, &store, id.as_deref(), Some(&Reply::Cancel))?, *json)
        }
        None => {
            let (runtime, store) = open_store()?;
            match &args.id {
                Some(id) => show(&store, &find(&runtime, &store, Some(id), None)?, args.json),
                None => {
                    let exit = list(&store, args)?;
                    tell_of_incumbent(&runtime);
                    Ok(exit)
                }
            }
        }
    }
}

/// Opens the store and closes overdue questions.
fn open_store() -> Result<(Runtime, Store), CommandError> {
    let runtime = prepare::runtime(Mode::Tool)?;
    let store = runtime.store()?;
    match store.expire_gates() {
        // A store that cannot be written shows overdue questions as open.
        Ok(_) | Err(StoreError::ReadOnly { .. }) => {}
        Err(other) => return Err(other.into()),
    }
    Ok((runtime, store))
}

/// Most questions of the incumbent listed in full.
const NAMED: usize = 5;

/// Lists on stderr the open questions of `@clawdbot/lobster` in this state directory.
pub(crate) fn tell_of_incumbent(runtime: &Runtime) {
    let gates = replay::incumbent_gates(runtime);
    let (questions, them) = match gates.len() {
        0 => return,
        1 => ("1 question of @clawdbot/lobster waits".to_owned(), "it"),
        more => (format!("{more} questions of @clawdbot/lobster wait"), "them"),
    };
    let dir = one_line(&runtime.state_dir().display().to_string());
    print_to_stderr(&format!("{questions} in {dir}. lobster cannot answer {them}; use that program:"));
    for gate in gates.iter().take(NAMED) {
        print_to_stderr(&format!("  {}", one_line(&gate.answer_command(runtime.state_dir(), None))));
    }
    if let Some(more) = gates.len().checked_sub(NAMED).filter(|more| *more > 0) {
        print_to_stderr(&format!("  … and {more} more"));
    }
}

fn find(
    runtime: &Runtime,
    store: &Store,
    id: Option<&str>,
    reply: Option<&Reply>,
) -> Result<Gate, CommandError> {
    let Some(id) = id else { return pick(store) };
    if id.contains('@') {
        return question_of(store, which::run(store, id)?);
    }
    let foreign = || replay::incumbent_refusal(runtime, id, reply).map(CommandError::failed);
    store.find_gate(id).or_else(|error| match error {
        unknown @ StoreError::UnknownGate(_) => match which::run(store, id) {
            Ok(run) => question_of(store, run),
            Err(_) => Err(foreign().unwrap_or_else(|| CommandError::usage(unknown))),
        },
        wrong @ (StoreError::ShortGate { .. } | StoreError::AmbiguousGate { .. }) => {
            Err(CommandError::usage(wrong))
        }
        other => Err(other.into()),
    })
}

/// The only open question of a run.
fn question_of(store: &Store, run: RunId) -> Result<Gate, CommandError> {
    let open = GateFilter { status: Some(GateStatus::Open), run: Some(run), limit: 0 };
    let mut gates = store.list_approvals(&open)?;
    match (gates.pop(), gates.len()) {
        (Some(gate), 0) => Ok(gate),
        (None, _) => Err(CommandError::usage(format!("run {} has no open question", run.short_id()))
            .with_hint("`lobster approvals` lists the open questions")),
        (Some(_), _) => {
            Err(CommandError::usage(format!("run {} has several open questions", run.short_id()))
                .with_hint("`lobster approvals` lists them, each with its id"))
        }
    }
}

/// Lets the person at the terminal choose an open question.
fn pick(store: &Store) -> Result<Gate, CommandError> {
    let mut gates =
        store.list_approvals(&GateFilter { status: Some(GateStatus::Open), ..GateFilter::default() })?;
    if gates.is_empty() {
        return Err(CommandError::usage("no open questions"));
    }
    if !which::can_ask() {
        return Err(CommandError::usage("name the approval or input request")
            .with_hint("`lobster approvals` lists them; @ is the one of the last run"));
    }
    let rows: Vec<Vec<String>> = gates
        .iter()
        .map(|gate| {
            let prompt = gate.question.get("prompt").and_then(Value::as_str).unwrap_or_default();
            vec![gate.id.clone(), units::format_age(gate.created_at), cut(&one_line(prompt), 60).into_owned()]
        })
        .collect();
    Ok(gates.swap_remove(which::pick_row(&rows, "Which question?")?))
}

fn list(store: &Store, args: &Args) -> CommandResult {
    let status = (!args.all).then_some(GateStatus::Open);
    let gates = store.list_approvals(&GateFilter { status, ..GateFilter::default() })?;
    let mut out = PagedOutput::for_reader(args.json);
    if args.json {
        return print_json(&mut out, &gates.iter().map(object).collect::<Vec<_>>());
    }
    if gates.is_empty() {
        writeln!(out, "no open questions")?;
    }
    for (index, gate) in gates.iter().enumerate() {
        let view = QuestionView::of_gate(store, gate)?;
        let more = format!("lobster approvals show {}", gate.id);
        let paper = paper(&more);
        if index > 0 {
            writeln!(out)?;
        }
        head(&mut out, gate, &view, &paper, args.full)?;
        let lines = match args.full {
            true => question::screen_lines(&view, &paper.without_limit()),
            false => question::summary_lines(&view, &paper),
        };
        for line in lines {
            writeln!(out, "{line}")?;
        }
        answers(&mut out, gate, args.full)?;
    }
    Ok(Exit::OK)
}

/// Output as wide as the terminal, or as `COLUMNS`.
fn paper(more: &str) -> Paper<'_> {
    let columns = terminal::columns_of_stdout().unwrap_or(100);
    Paper::with_size(Some((columns, question::SUMMARY)), terminal::is_stdout_styled(), more)
}

/// The runtime that continues the run of a gate, under the policies recorded for it.
fn runtime_of(gate: &Gate) -> Result<Runtime, CommandError> {
    prepare::runtime_of_run(Mode::Tool, None, |_| Some(gate.run))
}

fn show(store: &Store, gate: &Gate, as_json: bool) -> CommandResult {
    let mut view = QuestionView::of_gate(store, gate)?;
    let (ahead, elsewhere) = match gate.status {
        GateStatus::Open => {
            let runtime = runtime_of(gate)?;
            (Some(replay::preview_steps(&runtime, gate)?), another_directory(&runtime, gate)?)
        }
        GateStatus::Answered | GateStatus::Cancelled | GateStatus::Expired => (None, None),
    };
    let changed = ahead.as_ref().is_some_and(|ahead| view.update_sets_going(&SetsGoing::from_ahead(ahead)));
    let mut out = PagedOutput::for_reader(as_json);
    if as_json {
        let mut shown = object(gate);
        shown["facts"] = json!(view.facts);
        shown["ahead"] = ahead.map_or(Value::Null, |ahead| json!(ahead));
        return print_json(&mut out, &shown);
    }
    let paper = paper("").without_limit();
    // The next actions are shown below, as exactly as they can be known.
    let plan = if ahead.is_some() { Vec::new() } else { view.then.clone() };
    for line in question::screen_lines(&QuestionView { then: plan, ..view.clone() }, &paper) {
        writeln!(out, "{line}")?;
    }
    let state = if gate.status == GateStatus::Open { "open" } else { gate.status.as_str() };
    let status = format!("{}, {state}, asked {}", gate.id, units::format_age(gate.created_at));
    writeln!(out, "  {}", paper.paint(question::DIM, &status))?;
    if let Some(ahead) = ahead {
        what_comes(&mut Quoting::new(&mut out), gate, &ahead, changed)?;
        for line in question::plan_lines("the rest of the plan:", ahead.then.lines(), &paper) {
            writeln!(out, "{line}")?;
        }
    }
    if let Some(elsewhere) = elsewhere {
        writeln!(out, "  {elsewhere}")?;
    }
    answers(&mut out, gate, false)?;
    Ok(Exit::OK)
}

/// Answers a gate and prints an envelope in every case.
fn answer(id: Option<&str>, reply: impl FnOnce() -> Result<Reply, CommandError>) -> CommandResult {
    end_with_run();
    let envelope = crate::reply::ResultPrinter::for_reader();
    let asked = open_store().and_then(|(runtime, store)| {
        let reply = reply()?;
        let gate = find(&runtime, &store, id, Some(&reply))?;
        check_answer(&gate, &reply)?;
        if let Reply::ApproveOnly(places) = &reply {
            tell_part(&store, &gate, places)?;
        }
        let runtime = prepare::runtime_of_run(envelope.mode, None, |_| Some(gate.run))?;
        events::start_writing(&runtime, None)?;
        if envelope.mode == Mode::Human {
            live::expect_rest_of(&store, gate.run);
        }
        if let Some(told) = another_directory(&runtime, &gate)?.filter(|_| runtime.policy().is_open()) {
            print_to_stderr(&told);
        }
        let gate = GateRef::Id(gate.id);
        let author = author_by_token(&runtime, &gate)?;
        Ok((runtime, ResumeRequest { gate, reply, author }))
    });
    match asked {
        Ok((runtime, request)) => {
            envelope.report_result(&runtime, replay::answer_and_resume(&runtime, &request), false)
        }
        Err(error) => envelope.report_failure(&error.into()),
    }
}

/// Reports the approved part of the changes shown by a gate.
fn tell_part(store: &Store, gate: &Gate, places: &[PathBuf]) -> Result<(), CommandError> {
    let part = part_of_question(store, gate, places).map_err(CommandError::from)?;
    let count = units::count_noun(part.of as u64, "change");
    print_to_stderr(&format!(
        "approving {} of {count} as change set {}; the others are dropped",
        part.count,
        part.changes.short()
    ));
    Ok(())
}

/// A hint at the directory in which the next steps run, if it is not the directory of the run's start
/// and of its answer.
fn another_directory(runtime: &Runtime, gate: &Gate) -> Result<Option<String>, CommandError> {
    let Ok(here) = std::env::current_dir() else { return Ok(None) };
    let there = PathBuf::from(runtime.store()?.run(gate.run)?.cwd);
    let own = replay::own_directory(runtime, gate.run)?;
    let path = |dir: &Path| one_line(&dir.display().to_string());
    Ok(match own {
        Some(own) => (own != here).then(|| format!("its next steps run in {}", path(&own))),
        None => (there != here).then(|| {
            format!("the run was started in {}; its next steps run in {}", path(&there), path(&here))
        }),
    })
}

fn response(json: &str) -> Result<Reply, CommandError> {
    let text = prepare::or_stdin(json, "approvals answer")?;
    let value = json::parse(&text)
        .map_err(|error| CommandError::usage(format!("the answer must be JSON ({error})")))?;
    Ok(Reply::Response(value))
}

/// Checks that the gate is still open and asks for an answer of this kind.
fn check_answer(gate: &Gate, reply: &Reply) -> Result<(), CommandError> {
    // The errors of `resume` do not name who answered first.
    match gate.status {
        GateStatus::Open => {}
        GateStatus::Expired => {
            return Err(CommandError::failed(format!(
                "{} has expired; `lobster resume {}` asks again",
                gate.id,
                gate.run.short_id()
            )));
        }
        GateStatus::Answered | GateStatus::Cancelled => {
            let by = gate.answered_by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
            let at = gate.answered_at.map(|at| format!(" at {}", iso(at))).unwrap_or_default();
            return Err(CommandError::failed(format!("{} was already {}{by}{at}", gate.id, gate.status)));
        }
    }
    match (gate.kind, reply) {
        (GateKind::Input, Reply::Approve | Reply::ApproveOnly(_) | Reply::Reject) => {
            let hint = format!("lobster approvals answer {} JSON", gate.id);
            Err(CommandError::usage("this input request asks for a value, not for yes or no").with_hint(hint))
        }
        (GateKind::Approval, Reply::Response(_)) => {
            let hint = format!("lobster approvals approve {0}, or: lobster approvals reject {0}", gate.id);
            Err(CommandError::usage("this approval asks for yes or no, not for a value").with_hint(hint))
        }
        _ => Ok(()),
    }
}

fn expire(runtime: &Runtime, store: &Store, gate: &Gate, as_json: bool) -> CommandResult {
    let by = std::env::var("LOBSTER_APPROVAL_APPROVED_BY").ok();
    let author = Author::of_process(&runtime.services.env).detail;
    let name = by.as_deref().map(str::trim).filter(|by| !by.is_empty());
    store.expire_gate(gate.key, Answerer { name, author: &author })?;
    let mut out = stdout();
    if as_json {
        writeln!(out, "{}", json::pretty(&object(&store.approval_by_key(gate.key)?)))?;
    } else {
        writeln!(out, "{} is closed; `lobster resume {}` asks again", gate.id, gate.run.short_id())?;
    }
    Ok(Exit::OK)
}

fn object(gate: &Gate) -> Value {
    json!({
        "id": gate.id,
        "run": gate.run.to_string(),
        "path": gate.path,
        "kind": gate.kind,
        "status": gate.status,
        "createdAt": iso(gate.created_at),
        "expiresAt": gate.expires_at.map(iso),
        "requiredApprover": gate.required_approver,
        "answeredBy": gate.answered_by,
        "answeredAt": gate.answered_at.map(iso),
        "binding": gate.binding,
        "request": gate.question,
        "commands": commands(gate),
    })
}

/// The gate in a list: its id, its question in one line, and its time.
fn head(
    out: &mut impl Write,
    gate: &Gate,
    view: &QuestionView,
    paper: &Paper<'_>,
    is_exact: bool,
) -> std::io::Result<()> {
    let kind = if gate.status == GateStatus::Open { question::kind_word(view) } else { gate.status.as_str() };
    let room = paper.columns.saturating_sub(gate.id.len() + kind.len() + 4);
    let prompt = paper.paint(question::BOLD, &cut(&one_line(&view.prompt), room));
    writeln!(out, "{}  {kind}  {prompt}", paper.paint(question::DIM, &gate.id))?;
    let expires_at = gate.expires_at.filter(|_| gate.status == GateStatus::Open);
    let until =
        expires_at.map(|at| format!(", expires {}", units::format_future(at, is_exact))).unwrap_or_default();
    let items = question::item_count(view).map(|items| format!(", {items}")).unwrap_or_default();
    let (run, path) = (gate.run.short_id(), one_line(&gate.path));
    let line =
        format!("run {run} at {path}, asked {}{until}{items}", units::format_time(gate.created_at, is_exact));
    for line in wrap(&line, paper.columns.saturating_sub(2)) {
        writeln!(out, "  {}", paper.paint(question::DIM, &line))?;
    }
    Ok(())
}

/// The commands that answer a gate.
fn commands(gate: &Gate) -> Vec<String> {
    let id = &gate.id;
    match (gate.status, gate.kind) {
        (GateStatus::Open, GateKind::Approval) => {
            vec![format!("lobster approvals approve {id}"), format!("lobster approvals reject {id}")]
        }
        (GateStatus::Open, GateKind::Input) => vec![format!("lobster approvals answer {id} JSON")],
        (GateStatus::Expired, _) => vec![format!("lobster resume {}", gate.run.short_id())],
        (GateStatus::Answered | GateStatus::Cancelled, _) => Vec::new(),
    }
}

fn answers(out: &mut impl Write, gate: &Gate, is_exact: bool) -> std::io::Result<()> {
    if let Some(at) = gate.answered_at {
        let by = gate.answered_by.as_ref().map(|by| format!(" by {}", one_line(by))).unwrap_or_default();
        let said =
            gate.answer.as_ref().map(|answer| format!(": {}", json::compact(answer))).unwrap_or_default();
        writeln!(out, "  {}{by} {}{said}", gate.status, units::format_time(at, is_exact))?;
    }
    commands(gate).iter().try_for_each(|command| writeln!(out, "  {command}"))
}

/// Prints the consequences of an answer, in addition to the view.
fn what_comes(out: &mut impl Write, gate: &Gate, ahead: &Ahead, changed: bool) -> std::io::Result<()> {
    if ahead.stale {
        writeln!(out, "  an answer would be refused: the question, the plan or the policy has changed")?;
    }
    if changed {
        writeln!(
            out,
            "  the actions that an approval starts have changed since the question was asked; these are the current ones"
        )?;
    }
    if ahead.next.is_empty() {
        match gate.kind {
            GateKind::Input => writeln!(out, "  the next steps depend on the answer")?,
            GateKind::Approval => writeln!(out, "  an approval starts nothing outside lobster immediately")?,
        }
    }
    let others: Vec<_> = ahead.asks.iter().filter(|path| **path != gate.path).cloned().collect();
    if !others.is_empty() {
        writeln!(out, "  it is also asked at {}", one_line(&others.join(", ")))?;
    }
    Ok(())
}
