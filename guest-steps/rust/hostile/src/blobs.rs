//! Attacks with blobs: other steps' blobs, and too many blobs.

use crate::lobster::step::host::{self, BlobError, BlobReader, BlobWriter};
use crate::{Input, Output, StepError, failed, say};

fn error(error: BlobError) -> StepError {
    failed(&error.code, error.message)
}

/// Reads a blob by a digest that it composed itself.
pub(crate) fn open(digest: &str, output: &Output) -> Result<(), StepError> {
    let bytes = BlobReader::open(digest).and_then(|blob| blob.read(1 << 16)).map_err(error)?;
    say(output, &String::from_utf8_lossy(&bytes))
}

/// Reads the blob that its input names, which is allowed.
pub(crate) fn of_input(input: &Input, output: &Output) -> Result<(), StepError> {
    let items = input.next(1).map_err(|error| failed(&error.code, error.message))?;
    open(items.first().map_or("", |item| item.trim_matches('"')), output)
}

/// Gives itself a digest through a value of the run.
pub(crate) fn by_state(digest: &str, output: &Output) -> Result<(), StepError> {
    host::state_set("mine", &format!("\"{digest}\""));
    let kept = host::state_get("mine").unwrap_or_default();
    open(kept.trim_matches('"'), output)
}

/// Starts blobs and never finishes them.
pub(crate) fn hoard() -> Result<(), StepError> {
    let mut all = Vec::new();
    loop {
        let writer = BlobWriter::new();
        writer.write(&[1; 600]).map_err(error)?;
        all.push(writer);
    }
}

/// Writes more than its limit, blob by blob.
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
