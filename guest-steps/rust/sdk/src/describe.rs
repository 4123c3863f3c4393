//! Description of a step.

use std::time::Duration;

use serde_json::Value;

/// A step's description of itself. The schemas are added from the step's types.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    pub name: String,
    /// Version of the step, not of the contract.
    pub version: String,
    /// One line.
    pub summary: String,
    pub wants: Vec<Want>,
    /// WebAssembly fuel, about one unit per instruction.
    pub fuel: Option<u64>,
    /// Bytes over all memories.
    pub memory: Option<u64>,
    /// Bytes of output.
    pub output: Option<u64>,
    pub timeout: Option<Duration>,
    pub examples: Vec<Example>,
}

/// A capability that a step asks for. Asking grants nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    pub capability: Capability,
    /// Reason for the person who decides.
    pub reason: String,
    /// True if the step can work without it.
    pub optional: bool,
}

/// A right that only a grant gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capability {
    /// A directory to read, by its path in the step.
    Read(String),
    /// A directory to write, by its path in the step.
    Write(String),
    /// An environment variable.
    Env(String),
    /// `host:port`, or `host` for the usual ports of http(s).
    Net(String),
    /// The real clock instead of the virtual one.
    Clock,
    /// Real randomness instead of the seeded one.
    Random,
}

/// One call and its output, for help and for trying the step.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    pub summary: String,
    pub args: Value,
    /// JSON items, one per line, or text.
    pub input: Option<String>,
    pub output: Option<String>,
}

impl Description {
    /// A description without wants, limits and examples.
    pub fn new(name: impl Into<String>, version: impl Into<String>, summary: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            version: version.into(),
            summary: summary.into(),
            wants: Vec::new(),
            fuel: None,
            memory: None,
            output: None,
            timeout: None,
            examples: Vec::new(),
        }
    }

    /// Adds a capability without which the step cannot work.
    #[must_use]
    pub fn needs(mut self, capability: Capability, reason: impl Into<String>) -> Self {
        self.wants.push(Want { capability, reason: reason.into(), optional: false });
        self
    }

    /// Adds a capability that some uses of the step need.
    #[must_use]
    pub fn may_use(mut self, capability: Capability, reason: impl Into<String>) -> Self {
        self.wants.push(Want { capability, reason: reason.into(), optional: true });
        self
    }

    /// Sets the fuel that the step is made for.
    #[must_use]
    pub fn fuel(mut self, units: u64) -> Self {
        self.fuel = Some(units);
        self
    }

    /// Sets the memory that the step is made for, in bytes.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Sets the output that the step is made for, in bytes.
    #[must_use]
    pub fn output(mut self, bytes: u64) -> Self {
        self.output = Some(bytes);
        self
    }

    /// Sets the wall-clock time that the step is made for.
    #[must_use]
    pub fn timeout(mut self, time: Duration) -> Self {
        self.timeout = Some(time);
        self
    }

    /// Adds an example. An empty `input` or `output` is left out.
    #[must_use]
    pub fn example(mut self, summary: &str, args: Value, input: &str, output: &str) -> Self {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        self.examples.push(Example {
            summary: summary.to_owned(),
            args,
            input: text(input),
            output: text(output),
        });
        self
    }
}
