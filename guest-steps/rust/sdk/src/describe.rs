//! What a step says about itself.

use std::time::Duration;

use serde_json::Value;

/// A step's self-description. The schemas are added from the step's types.
#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    pub name: String,
    /// The step's own version, not the contract's.
    pub version: String,
    /// One line.
    pub summary: String,
    pub wants: Vec<Want>,
    /// WebAssembly fuel, about one unit an instruction.
    pub fuel: Option<u64>,
    /// Bytes over all memories.
    pub memory: Option<u64>,
    /// Bytes of output.
    pub output: Option<u64>,
    pub timeout: Option<Duration>,
    pub examples: Vec<Example>,
}

/// One capability a step asks for. Asking grants nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    pub capability: Capability,
    /// Why, for the person who decides.
    pub reason: String,
    /// Whether the step can work without it.
    pub optional: bool,
}

/// A right that only a grant gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Capability {
    /// A directory to read, by the path the step looks for it at.
    Read(String),
    /// A directory to write, by the path the step looks for it at.
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

/// One call and what it gives, for help and for trying the step out.
#[derive(Clone, Debug, PartialEq)]
pub struct Example {
    pub summary: String,
    pub args: Value,
    /// JSON items, one a line, or text.
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

    /// The fuel the step was made for.
    #[must_use]
    pub fn fuel(mut self, units: u64) -> Self {
        self.fuel = Some(units);
        self
    }

    /// The memory the step was made for, in bytes.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// The output the step was made for, in bytes.
    #[must_use]
    pub fn output(mut self, bytes: u64) -> Self {
        self.output = Some(bytes);
        self
    }

    /// The wall-clock time the step was made for.
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
