//! Output of the steps of a run: recorded streams, and the output of steps without a recorded end, because
//! they are running or lobster died.

use std::io::{self, Read};

use lobster_base::digest::Digest;
use lobster_base::place::is_within;
use lobster_store::{Blob, Event, KeptOutput, OutputStream, Record, RunId, StepOutcome, Store, StoreError};
use serde_json::{Value, json};

/// The text of larger streams is left out of JSON.
const MAX_TEXT: u64 = 1 << 20;

/// The recorded streams of one outcome, with their names for people.
#[must_use]
pub fn recorded_streams(outcome: &StepOutcome) -> [(&'static str, Option<Blob>); 2] {
    [("stdout", outcome.kept_stdout().or(outcome.output)), ("stderr", outcome.kept_stderr())]
}

/// Output of steps of a run without a recorded end. Call this before the journal is read, and
/// [`retain_unrecorded`] after it, so that a step that ends meanwhile is in one of the two.
#[must_use]
pub fn kept_outputs(store: &Store, run: RunId, step: Option<&str>) -> Vec<KeptOutput> {
    let mut kept = store.kept_outputs(run);
    kept.retain(|output| step.is_none_or(|step| is_within(&output.path, step)));
    kept
}

/// Drops the output of steps whose end is in this journal.
pub fn retain_unrecorded(kept: &mut Vec<KeptOutput>, journal: &[Record]) {
    kept.retain(|output| !journal.iter().any(|record| ends_output(record, output)));
}

/// True if this record has the end of the step that printed this output.
#[must_use]
pub fn ends_output(record: &Record, output: &KeptOutput) -> bool {
    matches!(&record.event, Event::StepEnded { path, .. } if *path == output.path && record.at >= output.at)
}

/// The last bytes of a stream that is not recorded, or of both streams in order of arrival, and the total
/// number of bytes.
///
/// # Errors
/// If its file cannot be read.
pub fn end_of_output(
    output: &mut KeptOutput,
    stream: Option<OutputStream>,
    most: usize,
) -> io::Result<(Vec<u8>, u64)> {
    let (mut bytes, mut size) = (Vec::new(), 0);
    while let Some(piece) = output.next_piece()? {
        if stream.is_none_or(|stream| stream == piece.stream) {
            size += piece.bytes.len() as u64;
            bytes.extend(piece.bytes);
            if bytes.len() > 2 * most {
                bytes.drain(..bytes.len() - most);
            }
        }
    }
    bytes.drain(..bytes.len().saturating_sub(most));
    Ok((bytes, size))
}

/// Each stream of a run as a JSON object: `step`, `stream`, `size`, `digest`, `text` (invalid bytes are
/// replaced; missing for a large stream), `error`, and `ended`, which is false for a step without a recorded
/// end. The second value is false if a stream cannot be read.
///
/// # Errors
/// If the journal cannot be read.
pub fn streams_as_json(
    store: &Store,
    run: RunId,
    wanted: impl Fn(&str, &str) -> bool,
) -> Result<(Vec<Value>, bool), StoreError> {
    let mut kept = kept_outputs(store, run, None);
    let (journal, _) = store.found_events(run)?;
    retain_unrecorded(&mut kept, &journal);
    let (mut objects, mut is_whole) = (Vec::new(), true);
    for record in &journal {
        let Event::StepEnded { path, outcome, .. } = &record.event else { continue };
        for (name, blob) in recorded_streams(outcome) {
            if let Some(blob) = blob.filter(|blob| blob.len > 0 && wanted(path, name)) {
                let object = stream_as_json(store, run, Some(path), name, blob);
                is_whole &= object["error"].is_null();
                objects.push(object);
            }
        }
    }
    for output in &kept {
        for stream in [OutputStream::Stdout, OutputStream::Stderr] {
            if !wanted(&output.path, stream.name()) {
                continue;
            }
            // Reads each stream from its beginning.
            let Some(mut output) = output.reopen_from_start() else { continue };
            let most = usize::try_from(MAX_TEXT).unwrap_or(usize::MAX);
            let (text, size, error) = match end_of_output(&mut output, Some(stream), most) {
                Ok((_, 0)) => continue,
                Ok((bytes, size)) => (Some(bytes).filter(|_| size <= MAX_TEXT), size, None),
                Err(error) => (None, 0, Some(error.to_string())),
            };
            is_whole &= error.is_none();
            objects.push(json!({
                "step": output.path,
                "stream": stream.name(),
                "size": size,
                "digest": Value::Null,
                "text": text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
                "error": error,
                "ended": false,
            }));
        }
    }
    Ok((objects, is_whole))
}

/// One recorded stream as an object of [`streams_as_json`].
#[must_use]
pub fn stream_as_json(store: &Store, run: RunId, step: Option<&str>, stream: &str, blob: Blob) -> Value {
    let explained =
        |digest: &Digest| store.open_blob(digest).map_err(|error| store.explain_error(run, error));
    let read = || -> Result<Option<String>, String> {
        let mut reader = explained(&blob.digest).map_err(|error| error.to_string())?;
        if reader.len() > MAX_TEXT {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    };
    let (text, error) = match read() {
        Ok(text) => (text, None),
        Err(error) => (None, Some(error)),
    };
    json!({
        "step": step,
        "stream": stream,
        "size": blob.len,
        "digest": blob.digest,
        "text": text,
        "error": error,
        "ended": true,
    })
}
