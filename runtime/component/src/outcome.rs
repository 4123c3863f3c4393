//! What a run gave.

use crate::StagedWrites;

/// The figures of a run that ended by itself. The output went to the sink.
#[derive(Debug)]
#[must_use = "the writes are lost unless they are committed"]
pub struct Outcome {
    /// Fuel spent; equal on every run of the same pure action.
    pub fuel_used: u64,
    /// Most bytes of linear memory held at once.
    pub peak_memory: u64,
    /// Bytes of output, counting each item with its line end.
    pub output_bytes: u64,
    /// Items put out.
    pub output_items: u64,
    /// Calls from the program into the host, growing memory included. Equal on
    /// every run of the same pure action.
    pub host_calls: u64,
    /// Exit code of a command program; 0 for a step.
    pub exit_code: i32,
    /// The last few KiB of stderr.
    pub stderr_tail: String,
    /// What it wrote into granted directories, not visible before it is committed.
    pub writes: StagedWrites,
    /// Whether it read values of the run or blobs: they are not part of the action,
    /// so the outcome may not be reused for an equal one.
    pub read_state: bool,
    /// Whether it read values of the run, which another run may not have.
    pub read_values: bool,
    /// Hosts and addresses it tried to reach without a grant.
    pub denied: Vec<String>,
}
