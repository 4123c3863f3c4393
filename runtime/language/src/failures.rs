//! The codes that failures have in envelopes and in the record, and what
//! `lobster help CODE` prints for them. A failure of a workflow file has a number
//! instead: [`super::codes`].

use lobster_base::code::Code;

use super::codes::CodePage;

/// Every code of a failure at run time: first those of steps and of lobster, then
/// those of components.
pub const PAGES: &[CodePage] = &[
    CodePage {
        code: Code::Timeout.as_str(),
        title: "The time of a step is over",
        text: "The step ran longer than its `timeout_ms` (or that of the `parallel` around it), or a component than \
               its wall clock, and was ended with all its processes. Give it more time, or find out what it waits \
               for: `lobster logs RUN STEP` prints what it wrote until then.",
    },
    CodePage {
        code: Code::Cancelled.as_str(),
        title: "The work was cancelled",
        text: "Ctrl-C, a signal, a client that withdrew its call, or the first failure of a `parallel` ended the \
               work. What had ended stays on record: `lobster resume RUN` goes on from there.",
    },
    CodePage {
        code: Code::Interrupted.as_str(),
        title: "The end of an effect was not seen",
        text: "An effect had begun and lobster, or what watched over it, died before its end. Whether it happened \
               is not known, so it is not repeated by itself. Look, then `lobster resume RUN` with \
               --retry-interrupted or --skip-interrupted. `idempotent: true` on a step says that repeating it does \
               no harm.",
    },
    CodePage {
        code: Code::UnknownEnd.as_str(),
        title: "The end of an effect was not seen",
        text: "What watched over the step was killed, or the answer to a call that had been sent was lost. Whether \
               it happened is not known, so `retry:` does not repeat it. Look, then `lobster resume RUN` with \
               --retry-interrupted or --skip-interrupted.",
    },
    CodePage {
        code: Code::PolicyDenied.as_str(),
        title: "The policy does not allow it",
        text: "The message names the rule and what it met. `lobster policy explain -- COMMAND` shows how a command \
               is read and judged, `lobster policy suggest --from RUN` proposes rules for what recorded runs did.",
    },
    CodePage {
        code: Code::ApprovalStale.as_str(),
        title: "What was approved is not what would run now",
        text: "An approval covers the question, the commands, the policy and the bytes of the files that would run. \
               One of them has changed since; the message says which. Start the run again and approve what it \
               shows.",
    },
    CodePage {
        code: Code::ApprovalFiles.as_str(),
        title: "A file that would run cannot be covered",
        text: "An approval covers the bytes of what a command runs, and one of its files cannot be read, is no \
               file, or is too large for that. The message names it.",
    },
    CodePage {
        code: Code::ProgramNotFound.as_str(),
        title: "The program is not there",
        text: "No program of that name is on the step's PATH, or the file is not executable. Install it, write its \
               path, or give the step the variable PATH in `env:`.",
    },
    CodePage {
        code: Code::CommandFailed.as_str(),
        title: "A command ended with a failure",
        text: "The command was started and ended with an exit status other than 0, or by a signal; the message has what it \
               wrote last. `lobster logs RUN STEP` prints all of it. If such an end is no failure for you, say so in the \
               command (`grep x file || true`) or with `on_error: continue`.",
    },
    CodePage {
        code: Code::ProcessOutputLimit.as_str(),
        title: "The process wrote more than it may",
        text: "stdout and stderr together passed `LOBSTER_MAX_OUTPUT_BYTES` (512 MiB unless set), so the process \
               was ended; what it wrote is not cut in silence. Write to a file instead, or raise the limit.",
    },
    CodePage {
        code: Code::DiskLimit.as_str(),
        title: "The step wrote more to disk than it may",
        text: "The policy's `[limits] disk` bounds what a step may add below its write roots. The step was ended.",
    },
    CodePage {
        code: Code::SandboxBlocked.as_str(),
        title: "Something was kept from the command by its sandbox",
        text: "The command failed and its sandbox had refused it something; each line `sandbox_blocked:` names \
               what, and the grant that would allow it. `lobster show RUN --full` prints what was enforced.",
    },
    CodePage {
        code: Code::Changes.as_str(),
        title: "Changes to files cannot be kept apart or committed",
        text: "A step with `changes: staged` or `review` works on a layer over its directory, and something there \
               cannot be layered or committed: another file system mounted in it, a pipe or socket, a set-user-id bit, an \
               extended attribute, a host without namespaces or overlayfs, a full disk. The message names it. \
               Nothing was changed. Mend it, or run the step with `changes: direct`.",
    },
    CodePage {
        code: Code::ChangesConflict.as_str(),
        title: "A file is not what the changes were made from",
        text: "Between the step and the commit of its changes (or the undo) somebody changed one of the files, and \
               nothing is overwritten: no file was changed. The message names each. `lobster changes RUN --patch` \
               shows what was to be done. Put the files back as they were and `lobster resume RUN`, or leave them \
               and run again.",
    },
    CodePage {
        code: Code::RootIsLink.as_str(),
        title: "A granted directory is reached through a link",
        text: "A grant names a path that leads through a symbolic link, which somebody could point elsewhere \
               between the decision and the start. Name the real path.",
    },
    CodePage {
        code: Code::Store.as_str(),
        title: "The store failed",
        text: "The state directory could not be read or written: the message has the system's words. No retry helps \
               until that is mended. `lobster store verify` checks everything, `lobster doctor` tells where the \
               state directory is.",
    },
    CodePage {
        code: Code::Secret.as_str(),
        title: "A secret cannot be had",
        text: "The file of references, or the program that gives the secret, did not give it; the step was not \
               started. docs/secrets.md tells where secrets come from.",
    },
    CodePage {
        code: Code::Setting.as_str(),
        title: "A setting has a value that it cannot take",
        text: "An environment variable or option of lobster has a bad value; the message names it. Nothing was \
               started.",
    },
    CodePage {
        code: Code::Inputs.as_str(),
        title: "A declared input file cannot be read",
        text: "`inputs:` of the step names a file that is missing or cannot be read, so the action has no digest. \
               The step was not started.",
    },
    CodePage {
        code: Code::CostLimit.as_str(),
        title: "The cost limit is reached",
        text: "The next model call could cost more than `cost_limit` of the file leaves, so it was not made. What \
               was paid until then stands in the record: `lobster show RUN`.",
    },
    CodePage {
        code: Code::UnknownCommand.as_str(),
        title: "A pipeline uses an unknown command",
        text: "`lobster commands.list` prints all commands; to run a program, use `exec` or `run:`.",
    },
    CodePage {
        code: Code::BadArguments.as_str(),
        title: "A pipeline command cannot take its arguments",
        text: "An option or word of the command is missing, has a value that it cannot take, or does not fit another one; \
               the message names it. `lobster help COMMAND` prints what the command takes. Nothing was done.",
    },
    CodePage {
        code: Code::CommandError.as_str(),
        title: "A pipeline command failed at its work",
        text: "What came in is not what the command works on, or something that it needs is not there; the message says \
               what. `lobster show RUN` names the stage, `lobster help COMMAND` what it expects.",
    },
    CodePage {
        code: Code::RepeatLimit.as_str(),
        title: "A repeat has had all its rounds",
        text: "The condition under `until` did not hold after `max` rounds of a `repeat`, so the step failed. `lobster \
               logs RUN STEP` prints what the rounds gave. `lobster resume RUN` goes on for as many rounds again; \
               what was done stays done. In the file, `max` and `every` say how long it tries, and \
               `on_error: continue` what a failure means.",
    },
    CodePage {
        code: Code::StepValue.as_str(),
        title: "A step cannot be done with the values that are there",
        text: "A reference of the step has no value, or one of another kind than its field takes (`for_each` wants a list), \
               or an answer does not fit; the message names both. `lobster show RUN` prints what the steps before gave.",
    },
    CodePage {
        code: Code::Model.as_str(),
        title: "A model gave no usable answer",
        text: "The provider could not be reached, refused the call, or answered with something that is no answer or does not \
               fit the schema; the message has its words. `retry:` helps where the cause passes; several providers \
               (`LOBSTER_LLM_POOL`) stand in for each other. docs/models.md tells how they are set.",
    },
    CodePage {
        code: Code::Request.as_str(),
        title: "The request was wrong",
        text: "The options, arguments or answer that lobster was given do not go together or cannot be read; the message \
               names them. Nothing was started and nothing was changed.",
    },
    CodePage {
        code: Code::WorkflowFile.as_str(),
        title: "The workflow file cannot be read",
        text: "There is no such file, it is a directory, or it may not be read. The message names it. `lobster check FILE` \
               reads a file without running anything.",
    },
    CodePage {
        code: Code::WorkflowArguments.as_str(),
        title: "The arguments do not fit the workflow",
        text: "The file says under `args:` which arguments it takes, which of them must be given, and of which type they \
               are. `lobster check FILE` lists them. Give one with --arg NAME=VALUE, all with --args-json JSON.",
    },
    CodePage {
        code: Code::RunState.as_str(),
        title: "The run is over, waits, or is executed elsewhere",
        text: "What is asked for does not fit what the run has come to: one that ended well has nothing to resume, one \
               that waits for a person is answered with `lobster resume`, one that another process executes is left \
               to it, and a copy from a bundle goes on only with --take-over. `lobster show RUN` says how it stands.",
    },
    CodePage {
        code: Code::QuestionClosed.as_str(),
        title: "The question cannot be answered any more",
        text: "It has been answered, it has expired, its run is over, or there never was one. `lobster gates` lists the \
               questions that are open; `lobster resume RUN` asks one that expired again.",
    },
    CodePage {
        code: Code::WorkflowChanged.as_str(),
        title: "The workflow file changed while its run waited",
        text: "The answer belongs to a pipeline that the file no longer has as it was. Undo the change and answer again, \
               or run the workflow anew. The question stays open.",
    },
    CodePage {
        code: Code::Recording.as_str(),
        title: "The record of the run lacks what is needed",
        text: "The journal is damaged, or it does not hold the plan, the policy or the beginning of the run. Nothing is \
               built on such a record, because what was done might be done again. `lobster store verify` tells what is \
               damaged, `lobster show RUN` what is left.",
    },
    CodePage {
        code: Code::NotReplayable.as_str(),
        title: "The run cannot be replayed here",
        text: "Something that the replay needs is not on this machine, or a limit of it stood in the way; that is no \
               difference between the run and its replay. The message says what it was.",
    },
    CodePage {
        code: Code::Bundle.as_str(),
        title: "A bundle cannot be written",
        text: "The file cannot be written, or what was to be left out cannot be found wherever the run repeats it. \
               There is no half-written bundle.",
    },
    CodePage {
        code: Code::Failed.as_str(),
        title: "It could not be done",
        text: "The message says what failed and why; there is no more telling name for it. `lobster show RUN` prints what \
               happened before, `lobster doctor` looks at this machine.",
    },
    CodePage {
        code: Code::McpServer.as_str(),
        title: "An MCP server cannot be used",
        text: "It cannot be started or reached, speaks another protocol, or did not answer in time; the message has \
               its name and its words. docs/mcp.md tells how servers are configured.",
    },
    CodePage {
        code: Code::McpToolError.as_str(),
        title: "An MCP tool says that it failed",
        text: "The server answered, and its answer is an error; the message is the tool's.",
    },
    CodePage {
        code: Code::McpToolUnknown.as_str(),
        title: "The MCP server has no tool of that name",
        text: "The server was asked for its tools, and there is none of that name; nothing was called. `lobster mcp lock` \
               lists what the configured servers offer.",
    },
    CodePage {
        code: Code::McpToolChanged.as_str(),
        title: "An MCP tool is not what was locked",
        text: "The tool's description or schema differs from the lock file. Look at the difference, then `lobster \
               mcp lock` accepts it.",
    },
    CodePage {
        code: Code::McpArguments.as_str(),
        title: "The arguments do not fit the MCP tool",
        text: "They were held against the tool's input schema before the call; nothing was sent.",
    },
    CodePage {
        code: Code::McpAnswerLimit.as_str(),
        title: "The answer of an MCP tool is too large",
        text: "The answer is larger than lobster takes from a tool. The call was made; ask for less.",
    },
    CodePage {
        code: Code::Diverged.as_str(),
        title: "A replay departed from its record",
        text: "A component made another host call, or the same with other arguments, than when the run was \
               recorded. `lobster why RUN STEP` names what differs.",
    },
    CodePage {
        code: Code::Component.as_str(),
        title: "A component cannot be loaded",
        text: "The program is missing, is no component or command that this host runs, or is too much to compile; \
               the message says which. `lobster step inspect FILE` prints what it is.",
    },
    CodePage {
        code: Code::OutOfFuel.as_str(),
        title: "A component used up its fuel",
        text: "Fuel counts the instructions that a component runs. Most often a loop does not end; if the work is \
               really that long, raise `limits: {fuel: …}`. `lobster step run --profile` shows what is used.",
    },
    CodePage {
        code: Code::MemoryLimit.as_str(),
        title: "A component needs more memory than its limit",
        text: "Raise `limits: {memory: 256MiB}`, or have the step stream its input instead of holding it.",
    },
    CodePage {
        code: Code::Trap.as_str(),
        title: "A component trapped",
        text: "The program ran into something from which it cannot go on: a panic, an index out of range, a stack \
               too deep. What it wrote to stderr stands below the message.",
    },
    CodePage {
        code: Code::NotGranted.as_str(),
        title: "A component asks for something that its step does not grant",
        text: "A component gets no file, variable, host or clock by itself. The message names the grant to add.",
    },
    CodePage {
        code: Code::BadGrant.as_str(),
        title: "A grant cannot be given",
        text: "The directory or variable that the step grants is missing or not what it should be; the message \
               names it.",
    },
    CodePage {
        code: Code::BadArgs.as_str(),
        title: "The arguments do not fit a component",
        text: "They were held against the schema of its description before it ran. `lobster step inspect FILE` \
               prints the schema.",
    },
    CodePage {
        code: Code::BadInput.as_str(),
        title: "The input does not fit a component",
        text: "An item of the input is not what the component's description asks for, or the component itself \
               refused it.",
    },
    CodePage {
        code: Code::BadOutput.as_str(),
        title: "A component broke its own output schema",
        text: "Its description promises another form of output; this is a fault of the component.",
    },
    CodePage {
        code: Code::BadDescription.as_str(),
        title: "A component's description cannot be used",
        text: "What `describe` gives is not valid; this is a fault of the component.",
    },
    CodePage {
        code: Code::TableLimit.as_str(),
        title: "A component's tables grow too large",
        text: "Every program may have so many table elements; the message has the figures. Such growth is nearly \
               always a fault of the program.",
    },
    CodePage {
        code: Code::InstanceLimit.as_str(),
        title: "A component is made of too many parts",
        text: "It has more instances, memories or tables than any program is allowed.",
    },
    CodePage {
        code: Code::OutputLimit.as_str(),
        title: "A component put out more than it may",
        text: "Raise `limits: {output: …}` of the step, or have it write to a granted directory.",
    },
    CodePage {
        code: Code::FilesLimit.as_str(),
        title: "A component wrote more than it may",
        text: "What a component writes is kept in a private layer until the step succeeds, and that layer has a \
               size. The message has the figure.",
    },
    CodePage {
        code: Code::HandleLimit.as_str(),
        title: "A component holds too many handles",
        text: "Streams, blobs, files and requests are handles, and the program keeps more of them open than it is \
               allowed. Drop those that are done with.",
    },
    CodePage {
        code: Code::HostCallTooLarge.as_str(),
        title: "A component passed too much in one call",
        text: "One call to the host takes so many bytes; the message has the figure. Pass large data in parts, \
               through a stream or a blob.",
    },
    CodePage {
        code: Code::HostCallTimeout.as_str(),
        title: "A component waited too long in one host call",
        text: "A host that it called did not answer in time. The message has the limit.",
    },
    CodePage {
        code: Code::StackExhausted.as_str(),
        title: "A component's call stack is exhausted",
        text: "Calls were nested deeper than the stack of a step reaches. Most often a recursion does not end.",
    },
    CodePage {
        code: Code::HostMemory.as_str(),
        title: "The host has no memory left for a component",
        text: "The machine ran out of memory, not the component out of its limit. Run fewer steps at once, or lower \
               their `limits: {memory: …}`.",
    },
    CodePage {
        code: Code::NotRecordable.as_str(),
        title: "What a component asks for cannot be recorded",
        text: "It imports something whose answers could not be given again in a replay. The message names the \
               import.",
    },
    CodePage {
        code: Code::StepError.as_str(),
        title: "A component says that it failed",
        text: "The message is the component's own; its code was not given or cannot be a name.",
    },
    CodePage {
        code: Code::InputFailed.as_str(),
        title: "A component's input cannot be read",
        text: "The blob with its input is missing or damaged; `lobster store verify` names what is.",
    },
    CodePage {
        code: Code::OutputFailed.as_str(),
        title: "A component's output cannot be kept",
        text: "The store could not take it; the message has the system's words.",
    },
    CodePage {
        code: Code::StageFailed.as_str(),
        title: "What a component wrote cannot be kept",
        text: "The private layer could not be committed to the granted directory; the message names the file.",
    },
    CodePage {
        code: Code::Instantiate.as_str(),
        title: "A component cannot be started",
        text: "Linking it to its imports, or its start function, failed; the message says how.",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_page() {
        let pages: Vec<_> = PAGES.iter().map(|page| page.code).collect();
        let codes: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(pages, codes);
    }
}
