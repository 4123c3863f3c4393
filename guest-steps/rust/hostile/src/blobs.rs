//! Blobs of others, and too many of its own.

use crate::lobster::step::host::{self, BlobError, BlobReader, BlobWriter};
use crate::{Input, Output, StepError, failed, say};

fn error(error: BlobError) -> StepError {
    failed(&error.code, error.message)
}

/// Reads a blob whose digest it put together itself.
pub(crate) fn open(digest: &str, output: &Output) -> Result<(), StepError> {
    let bytes = BlobReader::open(digest).and_then(|blob| blob.read(1 << 16)).map_err(error)?;
    say(output, &String::from_utf8_lossy(&bytes))
}

/// Reads the blob that its input names, which is its right.
pub(crate) fn of_input(input: &Input, output: &Output) -> Result<(), StepError> {
    let items = input.next(1).map_err(|error| failed(&error.code, error.message))?;
    open(items.first().map_or("", |item| item.trim_matches('"')), output)
}

/// Gives itself a digest, by a value of the run.
pub(crate) fn by_state(digest: &str, output: &Output) -> Result<(), StepError> {
    host::state_set("mine", &format!("\"{digest}\""));
    let kept = host::state_get("mine").unwrap_or_default();
    open(kept.trim_matches('"'), output)
}

/// Begins blobs and never ends them.
pub(crate) fn hoard() -> Result<(), StepError> {
    let mut all = Vec::new();
    loop {
        let writer = BlobWriter::new();
        writer.write(&[1; 600]).map_err(error)?;
        all.push(writer);
    }
}

/// More than it may write, blob by blob.
pub(crate) fn fill() -> Result<(), StepError> {
    let block = vec![1_u8; 1 << 16];
    for n in 0_u64.. {
        let writer = BlobWriter::new();
        writer.write(&n.to_le_bytes()).map_err(error)?;
        for _ in 0..8 {
            writer.write(&block).map_err(error)?;
        }
        BlobWriter::finish(writer).map_err(error)?;
    }
    Ok(())
}
