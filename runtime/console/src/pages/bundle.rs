//! A run as one file that another machine can verify. The results of its effects are left out unless requested.

use std::io::{self, Write};

use lobster_runtime::figures::format_bytes;
use lobster_runtime::replay::bundle::{ExportOptions, export_bundle_to};
use lobster_runtime::store::{Event, Record};
use lobster_serve::http::{App, Asked, Problem, RouteReply, run_of};

use super::output::as_download;

/// Largest bundle that is made here, in bytes; a terminal makes larger ones.
const MOST: usize = 64 << 20;

/// A buffer of at most [`MOST`] bytes.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.0.len() + more.len() > MOST {
            return Err(io::Error::other(format!(
                "it is larger than {}; `lobster bundle export` writes it into a file",
                format_bytes(MOST as u64)
            )));
        }
        self.0.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The places of effects. Values computed only from their results are left out with them.
fn effect_paths(journal: &[Record]) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for record in journal {
        if let Event::StepStarted { path, .. } = &record.event
            && !found.contains(path)
        {
            found.push(path.clone());
        }
    }
    found
}

pub(crate) fn show(app: &App, asked: &Asked) -> Result<RouteReply, Problem> {
    let id = run_of(app, asked)?;
    let is_whole = asked.query("results") == Some("with");
    let redact = if is_whole { Vec::new() } else { effect_paths(&app.store.found_events(id)?.0) };
    let options = ExportOptions { redact, ..ExportOptions::default() };
    let mut out = Bounded(Vec::new());
    export_bundle_to(&app.runtime, &id.to_string(), &mut out, &options)
        .map_err(|failure| Problem::conflict("not_bundled", failure.message))?;
    Ok(as_download("application/octet-stream", &format!("{}.lobster-bundle", id.short_id()), out.0))
}
