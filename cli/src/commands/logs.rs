//! `lobster logs`

use std::io::{self, Write};
use std::time::Duration;

use lobster_runtime::engine::UnseenEnd;
use lobster_runtime::json;
use lobster_runtime::replay::place::is_within;
use lobster_runtime::replay::step_output::{
    ends_output, kept_outputs, recorded_streams, retain_unrecorded, stream_as_json, streams_as_json,
};
use lobster_runtime::replay::{Standing, read_standing};
use lobster_runtime::stage::Mode;
use lobster_runtime::store::{Blob, BrokenChain, Event, KeptOutput, Record, RunId, Store};
use serde_json::json;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::one_line;
use crate::render::pager::PagedOutput;
use crate::which;

/// Prints the output of a run's steps, or the result of the run.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster logs 3f9a1c2b
  lobster logs 3f9a1c2b fetch --stdout     exactly the bytes of one step
  lobster logs -f @
  lobster logs 3f9a1c2b --json | jq -r '.[] | select(.stream == \"stderr\") | .text'
  lobster logs 3f9a1c2b --output           the result of the whole run, one JSON value a line")]
pub(crate) struct Args {
    /// The run: an id, @ (the last), @- (the one before) or NAME@- (the last of NAME).
    run: Option<String>,
    /// Only this step and the steps inside it, named as in `lobster show`.
    step: Option<String>,
    /// Prints only stdout, without headings.
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,
    /// Prints only stderr, without headings.
    #[arg(long)]
    stderr: bool,
    /// Continues to print what steps write until the run ends.
    #[arg(long, short, conflicts_with_all = ["output", "json"])]
    follow: bool,
    /// Prints the result of the run.
    #[arg(long, conflicts_with_all = ["step", "stdout", "stderr"])]
    output: bool,
    /// Prints a JSON array with the step, size, digest and text of each stream. A large stream has no text,
    /// an unreadable one an error instead. `ended` is false if the step is running or was killed.
    #[arg(long)]
    json: bool,
}

/// Interval at which a followed run is read.
const GLANCE: Duration = Duration::from_millis(100);

/// Most records read at once from a followed run.
const RECORDS: usize = 500;

pub(crate) fn run(args: &Args) -> CommandResult {
    let store = prepare::runtime(Mode::Human)?.store()?;
    let id = which::run_or_ask(&store, args.run.as_deref(), "logs")?;
    let is_program = args.json || args.stdout || args.stderr || args.output || args.follow;
    let mut out = PagedOutput::for_reader(is_program);
    if args.output {
        return print_output(&store, id, args.json, &mut out);
    }
    let mut printer =
        Printer { args, store: &store, run: id, out, at_line_start: true, heading: None, exit: Exit::OK };
    let mut kept = kept_outputs(&store, id, args.step.as_deref());
    let (journal, broken) = prepare::found_journal(&store, id)?;
    let seen = if args.json {
        let (mut objects, is_whole) =
            streams_as_json(&store, id, |path, name| printer.is_wanted(path, name))?;
        if !is_whole {
            printer.exit = Exit::FAILED;
        }
        let seen = !objects.is_empty();
        if seen || args.step.is_none() {
            objects.extend(broken.map(|broken: BrokenChain| json!({ "broken": broken })));
            writeln!(printer.out, "{}", json::pretty(&objects))?;
        }
        seen
    } else {
        let mut seen = false;
        for record in &journal {
            seen |= printer.print_recorded(record)?;
        }
        retain_unrecorded(&mut kept, &journal);
        for output in &mut kept {
            seen |= printer.print_unrecorded(output)?;
        }
        if args.follow {
            let after = journal.last().map_or(0, |record| record.seq);
            printer.follow_run(kept, after)?;
        }
        seen
    };
    if !seen && !args.follow && args.step.is_some() {
        return Err(CommandError::failed("this step has no output on record")
            .with_hint("`lobster show RUN` lists the steps"));
    }
    printer.out.flush()?;
    Ok(printer.exit)
}

/// Prints the result of the run.
fn print_output(store: &Store, id: RunId, as_json: bool, out: &mut PagedOutput) -> CommandResult {
    let run = store.run(id)?;
    let status = read_standing(store, &run);
    let output = run.output.ok_or_else(|| {
        CommandError::failed(format!("run {} is {status} and has no result on record", id.short_id()))
    })?;
    let mut exit = Exit::OK;
    if as_json {
        let len = store.blob_len(&output)?.unwrap_or_default();
        let stream = stream_as_json(store, id, None, "output", Blob { digest: output, len });
        if !stream["error"].is_null() {
            exit = Exit::FAILED;
        }
        writeln!(out, "{}", json::pretty(&[stream]))?;
    } else {
        let mut reader = store.open_blob(&output).map_err(|error| store.explain_error(id, error))?;
        io::copy(&mut reader, out)?;
    }
    out.flush()?;
    Ok(exit)
}

/// Prints the streams of steps, each under a heading if people read it.
struct Printer<'a> {
    args: &'a Args,
    store: &'a Store,
    run: RunId,
    out: PagedOutput,
    at_line_start: bool,
    /// The heading of the last printed bytes.
    heading: Option<String>,
    exit: Exit,
}

impl Printer<'_> {
    fn is_wanted(&self, path: &str, name: &str) -> bool {
        self.args.step.as_ref().is_none_or(|step| is_within(path, step))
            && if name == "stdout" { !self.args.stderr } else { !self.args.stdout }
    }

    fn print_heading(&mut self, heading: String) -> io::Result<()> {
        if self.args.stdout || self.args.stderr || self.heading.as_ref() == Some(&heading) {
            return Ok(());
        }
        if !self.at_line_start {
            writeln!(self.out)?;
        }
        self.at_line_start = true;
        writeln!(self.out, "── {heading}")?;
        self.heading = Some(heading);
        Ok(())
    }

    /// Prints the output named by a record; false if it has none.
    fn print_recorded(&mut self, record: &Record) -> io::Result<bool> {
        let Event::StepEnded { path, outcome, .. } = &record.event else { return Ok(false) };
        let mut seen = false;
        if let Some(end) = UnseenEnd::of_outcome(outcome)
            && self.is_wanted(path, "stdout")
            && self.is_wanted(path, "stderr")
        {
            seen = true;
            self.print_heading(format!("{} was interrupted: {}", one_line(path), one_line(&end.reason())))?;
        }
        for (name, blob) in recorded_streams(outcome) {
            let Some(blob) = blob.filter(|blob| blob.len > 0 && self.is_wanted(path, name)) else { continue };
            seen = true;
            // Another attempt gets its own heading.
            self.heading = None;
            self.print_heading(format!("{} {name}", one_line(path)))?;
            match self
                .store
                .open_blob(&blob.digest)
                .map_err(|error| self.store.explain_error(self.run, error))
            {
                Ok(mut stream) => {
                    let mut out = LastByte { to: &mut self.out, at_line_start: &mut self.at_line_start };
                    io::copy(&mut stream, &mut out)?;
                }
                Err(error) => {
                    self.out.flush()?;
                    self.exit = CommandError::failed(format!("{} {name}: {error}", one_line(path))).report();
                }
            }
        }
        Ok(seen)
    }

    /// Prints the output so far of a step without a recorded end; false if there is none.
    fn print_unrecorded(&mut self, output: &mut KeptOutput) -> io::Result<bool> {
        let mut seen = false;
        while let Some(piece) = output.next_piece()? {
            if !self.is_wanted(&output.path, piece.stream.name()) {
                continue;
            }
            seen = true;
            self.print_heading(format!("{} {}, so far", one_line(&output.path), piece.stream.name()))?;
            LastByte { to: &mut self.out, at_line_start: &mut self.at_line_start }.write_all(&piece.bytes)?;
        }
        Ok(seen)
    }

    /// Prints new output until the run ends or is interrupted.
    fn follow_run(&mut self, mut open: Vec<KeptOutput>, mut after: u64) -> Result<(), CommandError> {
        loop {
            self.out.flush()?;
            // Read first, so that everything written before the run's end is printed below.
            let run = self.store.run(self.run)?;
            let goes_on = matches!(
                read_standing(self.store, &run),
                Standing::Running | Standing::Waiting | Standing::Cancelling
            );
            for output in kept_outputs(self.store, self.run, self.args.step.as_deref()) {
                if !open.iter().any(|known| known.file_path() == output.file_path() && known.at == output.at)
                {
                    open.push(output);
                }
            }
            for output in &mut open {
                self.print_unrecorded(output)?;
            }
            loop {
                let records = self.store.events_after(self.run, after, RECORDS)?;
                let Some(last) = records.last() else { break };
                after = last.seq;
                for record in &records {
                    match open.iter().position(|output| ends_output(record, output)) {
                        // The file was removed, but is still open here.
                        Some(number) => {
                            let mut output = open.remove(number);
                            self.print_unrecorded(&mut output)?;
                        }
                        None => {
                            self.print_recorded(record)?;
                        }
                    }
                }
            }
            if !goes_on {
                return Ok(());
            }
            std::thread::sleep(GLANCE);
        }
    }
}

/// Remembers if the output ends with a newline.
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
