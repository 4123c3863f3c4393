//! Result of a run.

use crate::StagedWrites;

/// Figures of a run that ended by itself. The output went to the sink.
#[derive(Debug)]
#[must_use = "the writes are lost unless they are committed"]
pub struct Outcome {
    /// Fuel spent; equal on every run of the same pure action.
    pub fuel_used: u64,
    /// Highest number of bytes of linear memory in use at one time.
    pub peak_memory: u64,
    /// Bytes of output; each item includes its line end.
    pub output_bytes: u64,
    /// Number of items in the output.
    pub output_items: u64,
    /// Calls from the program into the host, including memory growth. Equal on every run of the same
    /// pure action.
    pub host_calls: u64,
    /// Exit code of a command program; 0 for a step.
    pub exit_code: i32,
    /// The last few KiB of stderr.
    pub stderr_tail: String,
    /// Its writes to granted directories, which are not visible before they are committed.
    pub writes: StagedWrites,
    /// True if it read blobs or values of the run. They are not part of the action, so the outcome must
    /// not be reused for an equal action.
    pub read_state: bool,
    /// True if it read values of the run, which another run may not have.
    pub read_values: bool,
    /// Hosts and addresses it tried to reach without a grant.
    pub denied: Vec<String>,
}
