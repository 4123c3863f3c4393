//! Error codes: programs read them beside the message, and `lobster help CODE` explains them.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Reason of a failure, as far as lobster knows it. Each code has a help page.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// All codes, in the order of the help pages.
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
    /// A person or a program cancelled the work.
    Cancelled = "cancelled",
    /// An earlier process began an effect, and its end is unknown.
    Interrupted = "interrupted",
    /// The process that supervised an effect was killed, or its answer was lost.
    UnknownEnd = "unknown_end",
    /// The policy does not allow it.
    PolicyDenied = "policy_denied",
    /// The step has changed since it was approved.
    ApprovalStale = "approval_stale",
    /// A file that would run cannot be covered by an approval.
    ApprovalFiles = "approval_files",
    /// The program, or the shell, does not exist.
    ProgramNotFound = "program_not_found",
    /// A command ended with an exit status other than 0.
    CommandFailed = "command_failed",
    /// A process wrote more than its limit.
    ProcessOutputLimit = "output_limit",
    /// A step wrote more to disk than the policy allows.
    DiskLimit = "disk_limit",
    /// A command failed after its sandbox had denied it something.
    SandboxBlocked = "sandbox_blocked",
    /// Changes to files cannot be isolated, read or committed.
    Changes = "changes",
    /// A file has changed since the change set was made.
    ChangesConflict = "changes_conflict",
    /// The preview reached an operation that cannot be done without consequences.
    Preview = "preview",
    /// A granted directory is reached through a link.
    RootIsLink = "root_is_link",
    /// The store failed: neither retries nor `on_error` help.
    Store = "store",
    /// A secret cannot be obtained.
    Secret = "secret",
    /// A setting has an invalid value.
    Setting = "setting",
    /// A declared input file cannot be read.
    Inputs = "inputs",
    /// The cost limit is reached.
    CostLimit = "cost_limit",
    /// A budget of the run, of its day or of the service has no room for a call.
    Budget = "budget",
    /// The budget of a step has no room for a call.
    StepBudget = "step_budget",
    /// A pipeline uses an unknown command.
    UnknownCommand = "unknown_command",
    /// The arguments of a pipeline command are invalid.
    BadArguments = "bad_arguments",
    /// A pipeline command failed.
    CommandError = "pipeline_command",
    /// A `repeat` has used all iterations, and its condition is still false.
    RepeatLimit = "repeat_limit",
    /// A step's own fields cannot be used with the current values.
    StepValue = "step_value",
    /// A model gave no usable answer.
    Model = "model",
    /// The request was wrong: nothing was started.
    Request = "request",
    /// A workflow file cannot be read.
    WorkflowFile = "workflow_file",
    /// The arguments do not fit the workflow.
    WorkflowArguments = "workflow_arguments",
    /// The state of the run does not allow the request.
    RunState = "run_state",
    /// A question can no longer be answered.
    QuestionClosed = "question_closed",
    /// A person has to answer a question, and there is no evidence of one.
    PersonRequired = "person_required",
    /// A workflow file has changed since its run stopped.
    WorkflowChanged = "workflow_changed",
    /// The record of a run is incomplete or damaged.
    Recording = "recording",
    /// A run cannot be replayed here.
    NotReplayable = "not_replayable",
    /// A bundle cannot be written.
    Bundle = "bundle",
    /// Lobster could not do it; only the message is known.
    Failed = "failed",
    /// An MCP server cannot be used.
    McpServer = "mcp_server",
    /// An MCP server requires a login, or rejects the current one.
    McpLogin = "mcp_login",
    /// An MCP tool reported an error.
    McpToolError = "mcp_tool_error",
    /// The MCP server does not have the tool.
    McpToolUnknown = "mcp_tool_unknown",
    /// An MCP tool differs from the locked one.
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
    /// The executor sent something that is not a message.
    ExecutorGarbled = "executor_garbled",
    /// The executor ended, or was killed, before the order was complete.
    ExecutorDied = "executor_died",
    /// The executor rejects this order.
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
    /// A component imports something that its step has no grant for.
    NotGranted = "not-granted",
    /// A grant cannot be given.
    BadGrant = "bad-grant",
    /// The arguments do not fit the component.
    BadArgs = "bad-args",
    /// An input item does not fit the component.
    BadInput = "bad-input",
    /// A component's output does not match its own schema, or lobster refused it.
    BadOutput = "bad-output",
    /// A component's description is not usable.
    BadDescription = "bad-description",
    /// A component's tables would grow too large.
    TableLimit = "table-limit",
    /// A component has too many instances, memories or tables.
    InstanceLimit = "instance-limit",
    /// A component wrote more output than its limit.
    OutputLimit = "output-limit",
    /// A component wrote more to files and values than its limit.
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
    /// A value that passes an import cannot be recorded.
    NotRecordable = "not-recordable",
    /// A component failed without a usable code.
    StepError = "step-error",
    /// A component's input cannot be read.
    InputFailed = "input-failed",
    /// A component's output cannot be stored.
    OutputFailed = "output-failed",
    /// The files that a component wrote cannot be stored.
    StageFailed = "stage-failed",
    /// A component cannot be instantiated.
    Instantiate = "instantiate",
}

impl Code {
    /// The code with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == name)
    }

    /// True if the record's name is this code's.
    #[must_use]
    pub fn matches_name(self, name: Option<&str>) -> bool {
        name == Some(self.as_str())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The code of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailureCode {
    /// A code of lobster.
    Lobster(Code),
    /// A name from a component, from a mistake in a workflow file, or from another version of lobster.
    Other(Box<str>),
}

impl FailureCode {
    /// The code for a name in a record or an answer.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        Code::from_name(name).map_or_else(|| Self::Other(name.into()), Self::Lobster)
    }

    /// Lobster's codes that a component may give: they describe what a step can know about its own failure, and
    /// lobster decides nothing by them.
    const OF_STEPS: [Code; 6] = [
        Code::BadArgs,
        Code::BadInput,
        Code::BadOutput,
        Code::NotGranted,
        Code::OutputLimit,
        Code::StepError,
    ];

    /// The code of a component's failure. A component cannot use lobster's codes except those meant for it, because
    /// lobster decides by the others, and their help pages describe other failures.
    #[must_use]
    pub fn of_component(name: &str) -> Self {
        match Code::from_name(name) {
            Some(code) if !Self::OF_STEPS.contains(&code) => Self::Other(format!("step-{name}").into()),
            _ => Self::from_name(name),
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

    /// The code of lobster, if it is known.
    #[must_use]
    pub fn known_code(&self) -> Option<Code> {
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
        Ok(Self::from_name(&Cow::<str>::deserialize(deserializer)?))
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
            assert_eq!(Code::from_name(code.as_str()), Some(*code));
            let json = serde_json::to_value(FailureCode::from(*code)).unwrap();
            assert_eq!(json, code.as_str());
            assert_eq!(serde_json::from_value::<FailureCode>(json).unwrap().known_code(), Some(*code));
        }
        assert_eq!(FailureCode::from_name("rate-limited"), FailureCode::Other("rate-limited".into()));
    }

    #[test]
    fn a_component_cannot_claim_what_lobster_decides_by() {
        let of = |name| FailureCode::of_component(name).to_string();
        assert_eq!(
            ["rate-limited", "bad-input", "store", "budget", "timeout"].map(of),
            ["rate-limited", "bad-input", "step-store", "step-budget", "step-timeout"]
        );
        let known: Vec<Code> = Code::ALL
            .iter()
            .filter_map(|code| FailureCode::of_component(code.as_str()).known_code())
            .collect();
        let mut allowed = FailureCode::OF_STEPS.to_vec();
        allowed.sort_by_key(|code| Code::ALL.iter().position(|other| other == code));
        assert_eq!(known, allowed);
    }
}
