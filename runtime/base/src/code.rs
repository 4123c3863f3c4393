//! The names of failures: what a program reads beside a message, and what
//! `lobster help CODE` explains.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why something failed, as far as lobster knows. Every one has a page.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code, in the order of the pages.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name in records, envelopes and on the command line.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

codes! {
    /// A time limit was reached.
    Timeout = "timeout",
    /// Somebody called the work off.
    Cancelled = "cancelled",
    /// An earlier process began an effect and nobody saw its end.
    Interrupted = "interrupted",
    /// What watched over an effect was killed, or its answer was lost.
    UnknownEnd = "unknown_end",
    /// The policy does not allow it.
    PolicyDenied = "policy_denied",
    /// What was approved is not what would run now.
    ApprovalStale = "approval_stale",
    /// A file that would run cannot be covered by an approval.
    ApprovalFiles = "approval_files",
    /// The program, or the shell, is not there.
    ProgramNotFound = "program_not_found",
    /// A command ended with an exit status other than 0.
    CommandFailed = "command_failed",
    /// A process wrote more than it may.
    ProcessOutputLimit = "output_limit",
    /// A step wrote more to disk than a policy lets it.
    DiskLimit = "disk_limit",
    /// A command failed and its sandbox had kept something from it.
    SandboxBlocked = "sandbox_blocked",
    /// Changes to files cannot be kept apart, read or committed.
    Changes = "changes",
    /// A file is not what a change set was made from.
    ChangesConflict = "changes_conflict",
    /// A preview came to something that cannot be done without consequences.
    Preview = "preview",
    /// A granted directory is reached through a link.
    RootIsLink = "root_is_link",
    /// The store failed: no retry and no `on_error` helps.
    Store = "store",
    /// A secret cannot be had.
    Secret = "secret",
    /// A setting has a value that it cannot take.
    Setting = "setting",
    /// A declared input file cannot be read.
    Inputs = "inputs",
    /// The cost limit is reached.
    CostLimit = "cost_limit",
    /// A budget of the run, of its day or of the service has no room for a call.
    Budget = "budget",
    /// The budget of a step has no room for a call.
    StepBudget = "step_budget",
    /// A pipeline uses a command that there is not.
    UnknownCommand = "unknown_command",
    /// A pipeline command cannot take its arguments.
    BadArguments = "bad_arguments",
    /// A pipeline command failed at its work.
    CommandError = "pipeline_command",
    /// A `repeat` has had all its rounds and its condition does not hold.
    RepeatLimit = "repeat_limit",
    /// A step's own fields cannot be used with the values that are there now.
    StepValue = "step_value",
    /// A model gave no usable answer.
    Model = "model",
    /// The request was wrong: nothing was started.
    Request = "request",
    /// A workflow file cannot be read.
    WorkflowFile = "workflow_file",
    /// The arguments do not fit the workflow.
    WorkflowArguments = "workflow_arguments",
    /// What a run has come to does not allow what is asked of it.
    RunState = "run_state",
    /// A question cannot be answered any more.
    QuestionClosed = "question_closed",
    /// A person has to answer a question, and nothing shows that one does.
    PersonRequired = "person_required",
    /// A workflow file is not what it was when its run stopped.
    WorkflowChanged = "workflow_changed",
    /// The record of a run lacks what is needed, or is damaged.
    Recording = "recording",
    /// A run cannot be replayed here.
    NotReplayable = "not_replayable",
    /// A bundle cannot be written.
    Bundle = "bundle",
    /// Lobster could not do it; the message is all that is known.
    Failed = "failed",
    /// An MCP server cannot be used.
    McpServer = "mcp_server",
    /// An MCP server wants a login, or does not take the one that there is.
    McpLogin = "mcp_login",
    /// An MCP tool says that it failed.
    McpToolError = "mcp_tool_error",
    /// The MCP server has no such tool.
    McpToolUnknown = "mcp_tool_unknown",
    /// An MCP tool is not what was locked.
    McpToolChanged = "mcp_tool_changed",
    /// The arguments do not fit the MCP tool.
    McpArguments = "mcp_arguments",
    /// An MCP tool's answer is too large.
    McpAnswerLimit = "mcp_answer_limit",
    /// The executor cannot be started.
    ExecutorMissing = "executor_missing",
    /// The executor did not say hello in time.
    ExecutorSilent = "executor_silent",
    /// The executor speaks another version of the protocol.
    ExecutorVersion = "executor_version",
    /// The executor said something that is not a message.
    ExecutorGarbled = "executor_garbled",
    /// The executor ended, or was killed, before the order did.
    ExecutorDied = "executor_died",
    /// The executor does not carry out this order.
    ExecutorRefused = "executor_refused",
    /// The executor does not have a blob that it named, or sent other bytes for it.
    ExecutorBlob = "executor_blob",
    /// The executor does not know an order that it was given.
    ExecutorLostOrder = "executor_lost_order",
    /// A step departed from its record.
    Diverged = "diverged",
    /// A component cannot be loaded.
    Component = "component",
    /// A component used up its fuel.
    OutOfFuel = "out-of-fuel",
    /// A component needs more memory than its limit.
    MemoryLimit = "memory-limit",
    /// A component trapped.
    Trap = "trap",
    /// A component imports what its step has no grant for.
    NotGranted = "not-granted",
    /// A grant cannot be given.
    BadGrant = "bad-grant",
    /// The arguments do not fit the component.
    BadArgs = "bad-args",
    /// An input item does not fit the component.
    BadInput = "bad-input",
    /// A component broke its own output schema.
    BadOutput = "bad-output",
    /// A component's description is not usable.
    BadDescription = "bad-description",
    /// A component's tables would grow too large.
    TableLimit = "table-limit",
    /// A component has too many instances, memories or tables.
    InstanceLimit = "instance-limit",
    /// A component put out more than it may.
    OutputLimit = "output-limit",
    /// A component wrote more into files and values than it may.
    FilesLimit = "files-limit",
    /// A component holds too many handles.
    HandleLimit = "handle-limit",
    /// A component passed too much in one host call.
    HostCallTooLarge = "host-call-too-large",
    /// A component waited too long in one host call.
    HostCallTimeout = "host-call-timeout",
    /// A component's call stack is exhausted.
    StackExhausted = "stack-exhausted",
    /// The host has no memory left for a component.
    HostMemory = "host-memory",
    /// What comes over an import cannot be recorded.
    NotRecordable = "not-recordable",
    /// A component failed without a usable code of its own.
    StepError = "step-error",
    /// A component's input cannot be read.
    InputFailed = "input-failed",
    /// A component's output cannot be kept.
    OutputFailed = "output-failed",
    /// What a component wrote cannot be kept.
    StageFailed = "stage-failed",
    /// A component cannot be instantiated.
    Instantiate = "instantiate",
}

impl Code {
    /// The code with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == name)
    }

    /// Whether it is what a record names.
    #[must_use]
    pub fn is(self, name: Option<&str>) -> bool {
        name == Some(self.as_str())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The code of one failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureCode {
    /// One of lobster's own.
    Lobster(Code),
    /// A name that a component gave, that a mistake in a workflow file has, or that another version
    /// of lobster wrote.
    Other(Box<str>),
}

impl FailureCode {
    /// The code that a record or an answer names.
    #[must_use]
    pub fn read(name: &str) -> Self {
        Code::named(name).map_or_else(|| Self::Other(name.into()), Self::Lobster)
    }

    /// The codes of lobster's that a component may give: they say what a step can know of its own
    /// failure, and nothing is decided by them.
    const OF_STEPS: [Code; 6] = [
        Code::BadArgs,
        Code::BadInput,
        Code::BadOutput,
        Code::NotGranted,
        Code::OutputLimit,
        Code::StepError,
    ];

    /// The code that a component gave its failure. It cannot claim a code of lobster's, but for those
    /// that are meant for it: by the others lobster decides, and their pages are about other things.
    #[must_use]
    pub fn of_component(name: &str) -> Self {
        match Code::named(name) {
            Some(code) if !Self::OF_STEPS.contains(&code) => Self::Other(format!("step-{name}").into()),
            _ => Self::read(name),
        }
    }

    /// The name in records, envelopes and on the command line.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Lobster(code) => code.as_str(),
            Self::Other(name) => name,
        }
    }

    /// Which of lobster's own codes it is.
    #[must_use]
    pub fn known(&self) -> Option<Code> {
        match self {
            Self::Lobster(code) => Some(*code),
            Self::Other(_) => None,
        }
    }
}

impl From<Code> for FailureCode {
    fn from(code: Code) -> Self {
        Self::Lobster(code)
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for FailureCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for FailureCode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::read(&Cow::<str>::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_read_back() {
        let names: BTreeSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for code in Code::ALL {
            assert_eq!(Code::named(code.as_str()), Some(*code));
            let json = serde_json::to_value(FailureCode::from(*code)).unwrap();
            assert_eq!(json, code.as_str());
            assert_eq!(serde_json::from_value::<FailureCode>(json).unwrap().known(), Some(*code));
        }
        assert_eq!(FailureCode::read("rate-limited"), FailureCode::Other("rate-limited".into()));
    }

    #[test]
    fn a_component_cannot_claim_what_lobster_decides_by() {
        let of = |name| FailureCode::of_component(name).to_string();
        assert_eq!(
            ["rate-limited", "bad-input", "store", "budget", "timeout"].map(of),
            ["rate-limited", "bad-input", "step-store", "step-budget", "step-timeout"]
        );
        let known: Vec<Code> =
            Code::ALL.iter().filter_map(|code| FailureCode::of_component(code.as_str()).known()).collect();
        let mut allowed = FailureCode::OF_STEPS.to_vec();
        allowed.sort_by_key(|code| Code::ALL.iter().position(|other| other == code));
        assert_eq!(known, allowed);
    }
}
