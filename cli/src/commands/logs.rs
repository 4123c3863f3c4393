//! `lobster logs`

use std::io::{self, Write};

use lobster_runtime::json;
use lobster_runtime::steps::stages::Mode;
use lobster_runtime::store::{Blob, BrokenChain, Event, Store, StoreError};
use serde_json::{Value, json};

use crate::exit::{CommandError, CommandResult, Exit};

/// Prints what the steps of a run wrote to stdout and stderr, or the run's own result.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster logs 3f9a1c2b                    everything, step by step
  lobster logs 3f9a1c2b fetch --stdout     exactly the bytes of one step
  lobster logs 3f9a1c2b --json | jq -r '.[] | select(.stream == \"stderr\") | .text'
  lobster logs 3f9a1c2b --output           the result of the whole run, one JSON value a line")]
pub(crate) struct Args {
    /// The run.
    run: String,
    /// Only steps whose path begins so, as `lobster show` prints it.
    step: Option<String>,
    /// Only stdout, without headings.
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,
    /// Only stderr, without headings.
    #[arg(long)]
    stderr: bool,
    /// The result of the run itself.
    #[arg(long, conflicts_with_all = ["step", "stdout", "stderr"])]
    output: bool,
    /// A JSON array: of each stream its step, size, digest, and text if it is not too large.
    #[arg(long)]
    json: bool,
}

/// Larger streams are named by their digest only in JSON, in bytes.
const MAX_TEXT: u64 = 1 << 20;

pub(crate) fn run(args: &Args) -> CommandResult {
    let store = super::runtime(Mode::Human)?.store()?;
    let id = store.find_run(&args.run).map_err(CommandError::usage)?;
    let mut out = io::stdout().lock();
    if args.output {
        let run = store.run(id)?;
        let status = super::runs::status(&store, &run);
        let output = run.output.ok_or_else(|| {
            CommandError::failed(format!("run {} is {status} and has no result on record", id.short()))
        })?;
        if args.json {
            let len = store.blob_len(&output)?.unwrap_or_default();
            let stream = object(&store, None, "output", Blob { digest: output, len })?;
            writeln!(out, "{}", json::pretty(&[stream]))?;
            return Ok(Exit::OK);
        }
        io::copy(&mut store.open_blob(&output)?, &mut out)?;
        out.flush()?;
        return Ok(Exit::OK);
    }
    let mut seen = false;
    let mut streams_seen = Vec::new();
    let (journal, broken) = super::found_journal(&store, id)?;
    for record in journal {
        let Event::StepEnded { path, outcome, .. } = &record.event else { continue };
        if args.step.as_ref().is_some_and(|step| !path.starts_with(step.as_str())) {
            continue;
        }
        let streams = [
            ("stdout", outcome.stdout.or(outcome.output), !args.stderr),
            ("stderr", outcome.stderr, !args.stdout),
        ];
        for (name, blob, wanted) in streams {
            let Some(blob) = blob.filter(|blob| wanted && blob.len > 0) else { continue };
            seen = true;
            if args.json {
                streams_seen.push(object(&store, Some(path), name, blob)?);
                continue;
            }
            if !args.stdout && !args.stderr {
                writeln!(out, "── {path} {name}")?;
            }
            io::copy(&mut store.open_blob(&blob.digest)?, &mut out)?;
        }
    }
    if !seen && args.step.is_some() {
        return Err(
            CommandError::failed("no such step wrote anything").with_hint("lobster show RUN lists the steps")
        );
    }
    if args.json {
        streams_seen.extend(broken.map(|broken: BrokenChain| json!({ "broken": broken })));
        writeln!(out, "{}", json::pretty(&streams_seen))?;
    }
    out.flush()?;
    Ok(Exit::OK)
}

/// One stream. Bytes that are no text are replaced, which the digest tells.
fn object(store: &Store, step: Option<&str>, stream: &str, blob: Blob) -> Result<Value, StoreError> {
    let text = match blob.len <= MAX_TEXT {
        true => Some(String::from_utf8_lossy(&store.load(&blob.digest, MAX_TEXT)?).into_owned()),
        false => None,
    };
    Ok(json!({ "step": step, "stream": stream, "size": blob.len, "digest": blob.digest, "text": text }))
}
