//! `lobster step run`

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use lobster_runtime::component::{
    Component, Input, Invocation, Kind, Outcome, OutputSink, WritesError, cancelled_by,
};
use lobster_runtime::json;
use lobster_runtime::replay::changes::{system_links, tell_owner};
use lobster_runtime::stage::Mode;
use lobster_runtime::sync::lock;
use serde_json::{Map, Value};

use super::alone::Alone;
use super::grants::{GrantArgs, LimitArgs};
use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::print_to_stderr;
use crate::render::{Quoting, one_line, table, units};
use crate::stdout::stdout;

/// Runs one component outside a workflow. Nothing is recorded.
///
/// The input is passed as bytes, or as one item a line with --items. stdout has the output: bytes unchanged,
/// items as one JSON text a line. The exit code is 0, or 1 if the step fails: stderr then has the name of the
/// error. A command program ends with its own exit code.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster step run classify.wasm --arg model=small --input mails.jsonl --items
  cat page.html | lobster step run html-text.wasm --input -
  lobster step run triage.wasm --read ./inbox:/mail --profile")]
pub(super) struct Args {
    /// The component, or a WASI command module.
    file: PathBuf,
    /// The arguments of the step as a JSON object.
    #[arg(long, value_name = "JSON")]
    args_json: Option<String>,
    /// One argument of the step. VALUE is read as JSON if it is JSON, otherwise as text.
    #[arg(long, value_name = "NAME=VALUE")]
    arg: Vec<String>,
    /// The input: a file, or - for stdin (default: none).
    #[arg(long, value_name = "FILE|-")]
    input: Option<PathBuf>,
    /// Reads the input as JSON Lines, one item a line.
    #[arg(long, requires = "input")]
    items: bool,
    #[command(flatten)]
    grants: GrantArgs,
    #[command(flatten)]
    limits: LimitArgs,
    /// Prints the fuel, memory and time of the run on stderr.
    #[arg(long)]
    profile: bool,
    /// Words for a command program, after `--`.
    #[arg(last = true, value_name = "WORD")]
    words: Vec<String>,
}

pub(super) fn run(args: &Args) -> CommandResult {
    let runtime = prepare::runtime(Mode::Human)?;
    let began = Instant::now();
    let limits = args.limits.to_limits();
    let component = super::load_component(&runtime, &args.file, &super::compile_patience(&runtime))?;
    let loaded = began.elapsed();
    let out = Arc::new(Mutex::new(Out {
        to: BufWriter::new(output_stream(stdout(), stdout().is_terminal())),
        closed: false,
    }));
    let given = json::compact(&parse_arguments(args)?);
    let mut invocation = Invocation::new(given.as_str(), Box::new(Arc::clone(&out)));
    invocation.argv = argv_words(args, &component, &given)?;
    invocation.input = open_input(args)?;
    invocation.stderr = output_stream(io::stderr(), io::stderr().is_terminal());
    invocation.grants = args.grants.to_grants()?;
    if let Ok(Some(description)) = component.describe() {
        for refused in description.withhold_unwanted(&mut invocation.grants.clone()) {
            print_to_stderr(&format!(
                "warning: in a workflow the step would not get {}, because the component's description does \
                 not ask for it",
                one_line(&refused)
            ));
        }
    }
    invocation.limits = limits;
    invocation.services = Arc::new(Alone::default());
    invocation.cancel = cancelled_by(runtime.cancel());
    let began = Instant::now();
    let result = component.run(invocation);
    let ran = began.elapsed();
    let mut out = lock(&out);
    let outcome = match result {
        Ok(outcome) => outcome,
        // The reader of the output has closed it.
        Err(_) if out.closed => return Ok(Exit::OK),
        Err(error) => return Err(CommandError::failed(super::describe_error(&error))),
    };
    out.to.flush()?;
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    if args.profile {
        print_profile(&outcome, micros(loaded), micros(ran));
    }
    for denied in &outcome.denied {
        print_to_stderr(&format!("denied: {} (grant it with --net)", one_line(denied)));
    }
    let exit = outcome.exit_code;
    if exit == 0 {
        let journals = runtime.state_dir().join("store/commits");
        // If a crash interrupted a commit of a run, that commit is finished first and noted in the
        // record of that run.
        let tell = |finished: &_| tell_owner(&runtime.store().map_err(io::Error::other)?, finished);
        outcome.writes.commit_unrecorded(&journals, &system_links(), &tell).map_err(|error| match error {
            WritesError::Stopped(reason) => CommandError::failed(super::describe_error(&reason)),
            error => CommandError::failed(error),
        })?;
    }
    Ok(Exit::Code(u8::try_from(exit).unwrap_or(1)))
}

/// A stream for the program's output: unchanged, unless it is a terminal.
fn output_stream(stream: impl Write + Send + 'static, is_terminal: bool) -> Box<dyn Write + Send> {
    if is_terminal { Box::new(Quoting::new(stream)) } else { Box::new(stream) }
}

/// The arguments of a command program: the words after `--`, or `argv`.
fn argv_words(args: &Args, component: &Component, given: &str) -> Result<Vec<String>, CommandError> {
    let named = component
        .command_words(given)
        .map_err(|error| CommandError::failed(super::describe_error(&error)).with_hint(WORDS_HINT))?;
    if component.kind() == Kind::Step && !args.words.is_empty() {
        return Err(CommandError::usage("words after `--` are for command programs; a step has --arg"));
    }
    if !named.is_empty() && !args.words.is_empty() {
        return Err(CommandError::usage("give the words either after `--` or as `argv`, not both"));
    }
    Ok(if named.is_empty() { args.words.clone() } else { named })
}

const WORDS_HINT: &str = "write the words for a command program after `--`";

fn parse_arguments(args: &Args) -> Result<Map<String, Value>, CommandError> {
    let mut all = match &args.args_json {
        None => Map::new(),
        Some(text) => match json::parse(text) {
            Ok(Value::Object(map)) => map,
            Ok(_) => return Err(CommandError::usage("--args-json must be a JSON object")),
            Err(error) => return Err(CommandError::usage(format!("--args-json is not JSON: {error}"))),
        },
    };
    for text in &args.arg {
        let Some((name, value)) = text.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            return Err(CommandError::usage(format!("--arg {text}: write NAME=VALUE")));
        };
        all.insert(name.to_owned(), json::parse(value).unwrap_or_else(|_| Value::String(value.to_owned())));
    }
    Ok(all)
}

fn open_input(args: &Args) -> Result<Input, CommandError> {
    let Some(path) = &args.input else { return Ok(Input::Empty) };
    let reader: Box<dyn Read + Send> = if path.as_os_str() == "-" {
        Box::new(io::stdin())
    } else {
        Box::new(File::open(path).map_err(CommandError::usage_at(path))?)
    };
    if !args.items {
        return Ok(Input::Bytes(reader));
    }
    let lines = BufReader::new(reader)
        .lines()
        .filter(|line| line.as_ref().map_or(true, |line| !line.trim().is_empty()));
    Ok(Input::Items(Box::new(lines)))
}

fn print_profile(outcome: &Outcome, loaded: u64, ran: u64) {
    let row = |name: &str, value: String| vec![name.to_owned(), value];
    let rows = [
        row("load", units::format_duration(loaded)),
        row("run", units::format_duration(ran)),
        row("fuel", units::format_count(outcome.fuel_used)),
        row("peak memory", units::format_bytes(outcome.peak_memory)),
        row("output", units::format_bytes(outcome.output_bytes)),
        row("items", units::format_count(outcome.output_items)),
        row("host calls", units::format_count(outcome.host_calls)),
        row("names written", units::format_count(outcome.writes.written_entries().len() as u64)),
    ];
    for line in table::align_rows(&rows) {
        print_to_stderr(&line);
    }
}

/// Standard output; remembers if its reader has closed it.
struct Out {
    to: BufWriter<Box<dyn Write + Send>>,
    closed: bool,
}

impl Out {
    fn write_parts(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        let result = parts.iter().try_for_each(|part| self.to.write_all(part));
        self.closed |= result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
        result
    }
}

impl OutputSink for Out {
    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_parts(&[bytes])
    }

    fn write_item(&mut self, json: &str) -> io::Result<()> {
        self.write_parts(&[json.as_bytes(), b"\n"])
    }
}
