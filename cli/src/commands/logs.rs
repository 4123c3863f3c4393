//! `lobster logs`

use std::io::{self, Read, Write};

use lobster_runtime::digest::Digest;
use lobster_runtime::engine::UnseenEnd;
use lobster_runtime::json;
use lobster_runtime::replay::place::is_within;
use lobster_runtime::replay::standing;
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{Blob, BlobReader, BrokenChain, Event, RunId, Store, StoreError};
use serde_json::{Value, json};

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::one_line;
use crate::render::pager::Output;
use crate::which;

/// Prints the output of a run's steps, or the result of the run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster logs 3f9a1c2b                    everything, step by step
  lobster logs 3f9a1c2b fetch --stdout     exactly the bytes of one step
  lobster logs 3f9a1c2b --json | jq -r '.[] | select(.stream == \"stderr\") | .text'
  lobster logs 3f9a1c2b --output           the result of the whole run, one JSON value a line")]
pub(crate) struct Args {
    /// The run: an id, @ for the last run, @- for the one before, or NAME@- for the last run of that name.
    run: Option<String>,
    /// Only this step and the steps inside it. The path of the step as `lobster show` prints it.
    step: Option<String>,
    /// Prints only stdout, without headings.
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,
    /// Prints only stderr, without headings.
    #[arg(long)]
    stderr: bool,
    /// Prints the result of the run.
    #[arg(long, conflicts_with_all = ["step", "stdout", "stderr"])]
    output: bool,
    /// Prints a JSON array with the step, size, digest and text of each stream. A large stream has no text,
    /// and an unreadable one has an error instead.
    #[arg(long)]
    json: bool,
}

/// Larger streams are named by their digest only in JSON, in bytes.
const MAX_TEXT: u64 = 1 << 20;

pub(crate) fn run(args: &Args) -> CommandResult {
    let store = prepare::runtime(Mode::Human)?.store()?;
    let id = which::run_or_ask(&store, args.run.as_deref(), "logs")?;
    let streams = Streams { store: &store, run: id };
    let mut out = Output::for_reader(args.json || args.stdout || args.stderr || args.output);
    let mut exit = Exit::OK;
    if args.output {
        let run = store.run(id)?;
        let status = standing(&store, &run);
        let output = run.output.ok_or_else(|| {
            CommandError::failed(format!("run {} is {status} and has no result on record", id.short()))
        })?;
        if !args.json {
            io::copy(&mut streams.open(&output)?, &mut out)?;
            out.flush()?;
            return Ok(exit);
        }
        let len = store.blob_len(&output)?.unwrap_or_default();
        let stream = streams.object(None, "output", Blob { digest: output, len }, &mut exit);
        writeln!(out, "{}", json::pretty(&[stream]))?;
        return Ok(exit);
    }
    let mut seen = false;
    let mut objects = Vec::new();
    let mut at_line_start = true;
    let (journal, broken) = prepare::found_journal(&store, id)?;
    for record in journal {
        let Event::StepEnded { path, outcome, .. } = &record.event else { continue };
        if args.step.as_ref().is_some_and(|step| !is_within(path, step)) {
            continue;
        }
        if let Some(end) = UnseenEnd::of_outcome(outcome)
            && !(args.json || args.stdout || args.stderr)
        {
            seen = true;
            if !at_line_start {
                writeln!(out)?;
            }
            at_line_start = true;
            writeln!(out, "── {} was interrupted: {}", one_line(path), one_line(&end.reason()))?;
        }
        let both = [
            ("stdout", outcome.stdout.or(outcome.output), !args.stderr),
            ("stderr", outcome.stderr, !args.stdout),
        ];
        for (name, blob, wanted) in both {
            let Some(blob) = blob.filter(|blob| wanted && blob.len > 0) else { continue };
            seen = true;
            if args.json {
                objects.push(streams.object(Some(path), name, blob, &mut exit));
                continue;
            }
            let mut out = LastByte { to: &mut out, at_line_start: &mut at_line_start };
            if !args.stdout && !args.stderr {
                if !*out.at_line_start {
                    writeln!(out)?;
                }
                writeln!(out, "── {} {name}", one_line(path))?;
            }
            match streams.open(&blob.digest) {
                Ok(mut stream) => {
                    io::copy(&mut stream, &mut out)?;
                }
                Err(error) => {
                    out.flush()?;
                    exit = CommandError::failed(format!("{} {name}: {error}", one_line(path))).report();
                }
            }
        }
    }
    if !seen && args.step.is_some() {
        return Err(CommandError::failed("this step has no output on record").with_hint(
            "`lobster show RUN` lists the \
                steps",
        ));
    }
    if args.json {
        objects.extend(broken.map(|broken: BrokenChain| json!({ "broken": broken })));
        writeln!(out, "{}", json::pretty(&objects))?;
    }
    out.flush()?;
    Ok(exit)
}

/// What the steps of a run wrote.
struct Streams<'a> {
    store: &'a Store,
    run: RunId,
}

impl Streams<'_> {
    fn open(&self, digest: &Digest) -> Result<BlobReader, StoreError> {
        self.store.open_blob(digest).map_err(|error| self.store.explained(self.run, error))
    }

    /// One stream. Bytes that are not text are replaced, which the digest tells; of one
    /// that cannot be had it says why, and `exit` is a failure.
    fn object(&self, step: Option<&str>, stream: &str, blob: Blob, exit: &mut Exit) -> Value {
        let read = || -> Result<Option<String>, CommandError> {
            let mut reader = self.open(&blob.digest)?;
            if reader.len() > MAX_TEXT {
                return Ok(None);
            }
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes)?;
            Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
        };
        let (text, error) = match read() {
            Ok(text) => (text, None),
            Err(error) => {
                *exit = Exit::FAILED;
                (None, Some(error.message))
            }
        };
        json!({
            "step": step,
            "stream": stream,
            "size": blob.len,
            "digest": blob.digest,
            "text": text,
            "error": error,
        })
    }
}

/// Remembers whether what was written ends with a line.
struct LastByte<'a, W> {
    to: W,
    at_line_start: &'a mut bool,
}

impl<W: Write> Write for LastByte<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        if let Some(last) = bytes[..written].last() {
            *self.at_line_start = *last == b'\n';
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
