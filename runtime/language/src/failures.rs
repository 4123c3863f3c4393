//! The codes that failures have in envelopes and in the record, and what
//! `lobster help CODE` prints for them. A failure of a workflow file has a number
//! instead: [`super::codes`].

use lobster_base::code::Code;

use super::codes::CodePage;

/// Every code of a failure at run time: first those of steps and of lobster, then
/// those of components.
pub(super) const PAGES: &[CodePage] = &[
    CodePage {
        code: Code::Timeout.as_str(),
        title: "A step took longer than its time limit",
        text: "The step ran longer than its `timeout_ms` (or that of the `parallel` around it), or a \
               component than its wall-clock limit. It was ended with all its processes. Give it more time, \
               or find out what it waits for: `lobster logs RUN STEP` prints what it had written.",
    },
    CodePage {
        code: Code::Cancelled.as_str(),
        title: "The work was cancelled",
        text: "Ctrl-C, a signal, a client that withdrew its call, or the first failure of a `parallel` ended the \
               work. Finished steps are on record: `lobster resume RUN` continues from there.",
    },
    CodePage {
        code: Code::Interrupted.as_str(),
        title: "The end of an effect was not seen",
        text: "An effect had started, and lobster or its supervisor died before the effect ended. Whether it \
               happened is not known, so it is not repeated automatically. Find out, then run `lobster resume \
               RUN` with --retry-interrupted or --skip-interrupted. `idempotent: true` on a step says that \
               repeating it does no harm.",
    },
    CodePage {
        code: Code::UnknownEnd.as_str(),
        title: "The end of an effect was not seen",
        text: "The supervisor of the step was killed, or the answer to a call that had been sent was lost. \
               Whether the effect happened is not known, so `retry:` does not repeat it. Find out, then run \
               `lobster resume RUN` with --retry-interrupted or --skip-interrupted.",
    },
    CodePage {
        code: Code::PolicyDenied.as_str(),
        title: "The policy does not allow it",
        text: "The message names the rule and what it matched. `lobster policy explain -- COMMAND` shows how a command \
               is read and judged, `lobster policy suggest --from RUN` proposes rules for the commands of \
               recorded runs.",
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
        text: "An approval covers the bytes of the files that a command runs. One of these files cannot be \
               read, is not a regular file, or is too large. The message names it.",
    },
    CodePage {
        code: Code::ProgramNotFound.as_str(),
        title: "The program was not found",
        text: "No program of that name is on the step's PATH, or the file is not executable. Install it, write its \
               path, or give the step the variable PATH in `env:`.",
    },
    CodePage {
        code: Code::CommandFailed.as_str(),
        title: "A command failed",
        text: "The command was started and ended with an exit status other than 0, or by a signal; the \
               message has the end of its output. `lobster logs RUN STEP` prints all of it. If that exit \
               status is not a failure for you, say so in the command (`grep x file || true`) or with \
               `on_error: continue`.",
    },
    CodePage {
        code: Code::ProcessOutputLimit.as_str(),
        title: "The process wrote more than its limit",
        text: "stdout and stderr together passed `LOBSTER_MAX_OUTPUT_BYTES` (512 MiB unless set), so the \
               process was ended. Output is never cut silently. Write to a file instead, or raise the limit.",
    },
    CodePage {
        code: Code::DiskLimit.as_str(),
        title: "The step wrote more to disk than its limit",
        text: "The policy's `[limits] disk` bounds what a step may add below its write roots. The step was ended.",
    },
    CodePage {
        code: Code::SandboxBlocked.as_str(),
        title: "The sandbox refused something to the command",
        text: "The command failed after its sandbox had refused it something. Each line `sandbox_blocked:` \
               names what it was and the grant that would allow it. `lobster show RUN --full` prints what was enforced.",
    },
    CodePage {
        code: Code::Changes.as_str(),
        title: "Changes to files cannot be kept apart or committed",
        text: "A step with `changes: staged` or `review` works on a layer over its directory, and something there \
               cannot be layered or committed: another file system mounted in it, a pipe or socket, a set-user-id bit, an \
               extended attribute, a host without namespaces or overlayfs, a full disk. The message names it. \
               No file was changed. Fix the cause, or run the step with `changes: direct`.",
    },
    CodePage {
        code: Code::ChangesConflict.as_str(),
        title: "A file was changed in the meantime",
        text: "Another program changed one of the files between the step and the commit of its changes (or \
               the undo). lobster does not overwrite such changes, so it changed no file. The message names \
               each file. `lobster changes RUN --patch` shows the intended changes. Restore the files and run \
               `lobster resume RUN`, or continue from what they are now: `lobster resume RUN --conflicts merge` puts both \
               changes together, `keep` leaves these files as they are, `overwrite` overwrites them.",
    },
    CodePage {
        code: Code::Preview.as_str(),
        title: "A preview came to its end early",
        text: "`lobster run --preview` commits nothing, so it ends before a step that cannot be done without \
               consequences: a call of a tool, a request, or a step that works on files which only a commit would \
               make. What the steps before it would change is on record: `lobster changes RUN --patch`. `lobster \
               run --review` does the step, after a yes.",
    },
    CodePage {
        code: Code::RootIsLink.as_str(),
        title: "A granted directory is reached through a link",
        text: "A grant names a path that leads through a symbolic link, which could be changed between the \
               decision and the start. Name the real path.",
    },
    CodePage {
        code: Code::Store.as_str(),
        title: "The store failed",
        text: "The state directory could not be read or written; the message has the error of the \
               system. Retrying \
               does not help until the cause is fixed. `lobster store verify` checks the store, `lobster \
               doctor` names the state directory.",
    },
    CodePage {
        code: Code::Secret.as_str(),
        title: "A secret has no value",
        text: "The configured source of the secret (a variable, a file, a command or a login) did not provide a value. \
               The step was not started. docs/secrets.md describes the sources.",
    },
    CodePage {
        code: Code::Setting.as_str(),
        title: "A setting has an invalid value",
        text: "An environment variable or option of lobster has an invalid value; the message names it. Nothing was \
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
        text: "The next model call could cost more than `cost_limit` of the file leaves, so it was not made. `lobster \
               show RUN` shows what was spent.",
    },
    CodePage {
        code: Code::Budget.as_str(),
        title: "A budget is used up",
        text: "The next model call could use more than a budget of the run leaves: `budget` of the file, its `day`, or \
               `[budget]` of the service. So the call was not made, and the run ended. The message says which budget it \
               is and what is used. `lobster cost` prints what the budgets of a day have left.",
    },
    CodePage {
        code: Code::StepBudget.as_str(),
        title: "The budget of a step is used up",
        text: "The next model call could use more than `budget` of the step leaves, so it was not made, and the step \
               failed. `on_error` of the step decides whether the run goes on.",
    },
    CodePage {
        code: Code::UnknownCommand.as_str(),
        title: "A pipeline uses an unknown command",
        text: "`lobster commands.list` prints all commands; to run a program, use `exec` or `run:`.",
    },
    CodePage {
        code: Code::BadArguments.as_str(),
        title: "A pipeline command has invalid arguments",
        text: "An option or word of the command is missing, has an invalid value, or contradicts another one; \
               the message names it. `lobster help COMMAND` lists the arguments. Nothing was run.",
    },
    CodePage {
        code: Code::CommandError.as_str(),
        title: "A pipeline command failed",
        text: "Its input has the wrong form, or something that it needs is missing; the message says what. \
               `lobster show RUN` names the command, `lobster help COMMAND` describes what it expects.",
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
        title: "A step cannot use the values that it was given",
        text: "A reference of the step has no value or a value of the wrong type (`for_each` needs a list), \
               or an answer does not match its schema; the message names both. `lobster show RUN` prints the \
               results of the earlier steps.",
    },
    CodePage {
        code: Code::Model.as_str(),
        title: "A model gave no usable answer",
        text: "The provider could not be reached, refused the call, or sent an answer that is invalid or does \
               not match the schema; the message quotes it. `retry:` helps if the cause is temporary. With \
               several providers (`LOBSTER_LLM_POOL`), lobster asks the next one. docs/models.md describes how \
               to configure them.",
    },
    CodePage {
        code: Code::Request.as_str(),
        title: "The request was wrong",
        text: "The options, arguments or answer contradict each other or cannot be read; the message names \
               them. Nothing was started and nothing was changed.",
    },
    CodePage {
        code: Code::WorkflowFile.as_str(),
        title: "The workflow file cannot be read",
        text: "The file does not exist, is a directory, or is not readable; the message names it.",
    },
    CodePage {
        code: Code::WorkflowArguments.as_str(),
        title: "The arguments do not fit the workflow",
        text: "`args:` of the file declares the arguments, which of them are required, and their types. Set \
               one with --arg NAME=VALUE, or all with --args-json JSON.",
    },
    CodePage {
        code: Code::RunState.as_str(),
        title: "The run has ended, waits, or is running elsewhere",
        text: "The request does not fit the state of the run. A run that succeeded cannot be resumed; a \
               waiting run needs an answer (`lobster gates`); a run that another process executes is left to \
               that process; a run that was imported from a bundle continues only with --take-over. `lobster \
               show RUN` shows the state.",
    },
    CodePage {
        code: Code::QuestionClosed.as_str(),
        title: "The question can no longer be answered",
        text: "It was answered, it expired, its run has ended, or it never existed. `lobster gates` lists the \
               open questions; `lobster resume RUN` asks an expired one again.",
    },
    CodePage {
        code: Code::PersonRequired.as_str(),
        title: "A person has to answer the question",
        text: "An agent or a step started the run, or the policy says `approvals = { by = \"person\" }`. Then \
               an answer counts from a terminal (not from a shell that an agent opened), from the console, \
               with a passkey, or with the token of an approver (`lobster serve token new --role approver`) in \
               LOBSTER_APPROVAL_TOKEN. The question stays open.",
    },
    CodePage {
        code: Code::WorkflowChanged.as_str(),
        title: "The workflow file changed while its run waited",
        text: "The answer belongs to a pipeline that has since changed in the file. Undo the change and \
               answer again, or start a new run. The question stays open.",
    },
    CodePage {
        code: Code::Recording.as_str(),
        title: "The record of the run lacks what is needed",
        text: "The journal is damaged, or it does not hold the plan, the policy or the beginning of the run. Such \
               a run is not resumed, because effects could run twice. `lobster store verify` lists what is \
               damaged, `lobster show RUN` shows what is left.",
    },
    CodePage {
        code: Code::NotReplayable.as_str(),
        title: "The run cannot be replayed here",
        text: "Something that the replay needs is missing on this machine, or a limit was reached. This does \
               not mean that the run and its replay differ. The message names the cause.",
    },
    CodePage {
        code: Code::Bundle.as_str(),
        title: "A bundle cannot be written",
        text: "The file cannot be written, or --redact cannot find every copy of a result. No partial bundle \
               is left behind.",
    },
    CodePage {
        code: Code::Failed.as_str(),
        title: "The work failed",
        text: "The message says what failed and why; the failure has no more specific code. `lobster show \
               RUN` shows what happened before, `lobster doctor` checks this machine.",
    },
    CodePage {
        code: Code::McpServer.as_str(),
        title: "An MCP server cannot be used",
        text: "It cannot be started or reached, speaks another protocol, or did not answer in time; the \
               message names the server and quotes it. docs/mcp.md describes how to configure servers.",
    },
    CodePage {
        code: Code::McpLogin.as_str(),
        title: "A server wants a login",
        text: "The server does not know who asks, or does not take the token that it was sent: it has run out, was \
               revoked, or allows less than the call needs. The tool did nothing. Or the credential of a step is the token of \
               a login, and nobody is logged in there or the login cannot be renewed. `lobster mcp login NAME` logs in at a \
               server of lobster.mcp.toml; docs/mcp.md describes the other ways to a token.",
    },
    CodePage {
        code: Code::McpToolError.as_str(),
        title: "An MCP tool reported an error",
        text: "The server answered, and its answer is an error; the message is the tool's.",
    },
    CodePage {
        code: Code::McpToolUnknown.as_str(),
        title: "The MCP server has no tool of that name",
        text: "The server does not list a tool of that name. Nothing was called. `lobster mcp lock` \
               lists what the configured servers offer.",
    },
    CodePage {
        code: Code::McpToolChanged.as_str(),
        title: "An MCP tool differs from the lock file",
        text: "The tool's description or schema differs from the lock file. Look at the difference, then `lobster \
               mcp lock` accepts it.",
    },
    CodePage {
        code: Code::McpArguments.as_str(),
        title: "The arguments do not fit the MCP tool",
        text: "The arguments do not match the input schema that the tool's server gives. Nothing was sent to the server.",
    },
    CodePage {
        code: Code::McpAnswerLimit.as_str(),
        title: "The answer of an MCP tool is too large",
        text: "The answer is larger than the limit (`max_bytes`). The call was made. Ask for less data, or \
               raise the limit.",
    },
    CodePage {
        code: Code::ExecutorMissing.as_str(),
        title: "The executor cannot be started",
        text: "`LOBSTER_EXECUTOR` names a program that carries out effects, and that program cannot be \
               started. Nothing was sent to it, so the step failed and had no effect. Set the variable to a \
               command that exists, or unset it, and run the workflow again.",
    },
    CodePage {
        code: Code::ExecutorSilent.as_str(),
        title: "The executor did not answer the hello",
        text: "The program of `LOBSTER_EXECUTOR` was started and did not answer within 30 seconds \
               (`LOBSTER_EXECUTOR_HELLO_MS`), so it was killed. It has to answer the first line on its stdin \
               with a line of its own: `lobster worker --stdio` does. No order was sent, so the step failed and had no \
               effect.",
    },
    CodePage {
        code: Code::ExecutorVersion.as_str(),
        title: "The executor speaks another version",
        text: "The program of `LOBSTER_EXECUTOR` belongs to another version of lobster, whose protocol this \
               one does not speak. Nothing was sent to it, so the step failed and had no effect. Use the same \
               version on both sides.",
    },
    CodePage {
        code: Code::ExecutorGarbled.as_str(),
        title: "The executor sent something that is not a message",
        text: "The stdout of the program of `LOBSTER_EXECUTOR` is for messages, one JSON object a line, and \
               something else came. Often a script prints a line to stdout that belongs on stderr. The executor \
               was killed. Whether the step had an effect is not known. Find out, then run `lobster resume RUN` \
               with --retry-interrupted or --skip-interrupted.",
    },
    CodePage {
        code: Code::ExecutorDied.as_str(),
        title: "The executor is gone",
        text: "The program of `LOBSTER_EXECUTOR` ended, or was killed, before the step ended. Its processes \
               ended with it. Whether the step had an effect is not known. Find out, then run `lobster resume \
               RUN` with --retry-interrupted or --skip-interrupted.",
    },
    CodePage {
        code: Code::ExecutorRefused.as_str(),
        title: "The executor refuses the order",
        text: "The program of `LOBSTER_EXECUTOR` does not execute this kind of step, or lacks something that \
               the order names; the message quotes it. Unset the variable to let lobster execute the step \
               itself.",
    },
    CodePage {
        code: Code::ExecutorBlob.as_str(),
        title: "The executor did not deliver a blob",
        text: "lobster fetches the output of a step from the executor by its digest. The bytes were missing or \
               different, and none of them are used. Whether the step had an effect is not known. Find out, \
               then run `lobster resume RUN` with --retry-interrupted or --skip-interrupted.",
    },
    CodePage {
        code: Code::ExecutorLostOrder.as_str(),
        title: "The executor does not know the order",
        text: "The executor reports that it never received the order whose result it was asked for. Whether \
               the step had an effect is not known. Find out, then run `lobster resume RUN` with \
               --retry-interrupted or --skip-interrupted.",
    },
    CodePage {
        code: Code::Diverged.as_str(),
        title: "A replay made a call that is not recorded",
        text: "A component made another host call, or the same with other arguments, than when the run was \
               recorded. `lobster why RUN STEP` names what differs.",
    },
    CodePage {
        code: Code::Component.as_str(),
        title: "A component cannot be loaded",
        text: "The program is missing, is not a component or command that this host runs, or is too much to compile; \
               the message says which. `lobster step inspect FILE` prints what it is.",
    },
    CodePage {
        code: Code::OutOfFuel.as_str(),
        title: "A component used up its fuel",
        text: "Fuel counts the instructions that a component runs. The usual cause is a loop that does not \
               end. If the work needs more, raise `limits: {fuel: …}`. `lobster step run --profile` shows what is used.",
    },
    CodePage {
        code: Code::MemoryLimit.as_str(),
        title: "A component needs more memory than its limit",
        text: "Raise `limits: {memory: 256MiB}`, or have the step stream its input instead of holding it.",
    },
    CodePage {
        code: Code::Trap.as_str(),
        title: "A component trapped",
        text: "The program cannot continue: a panic, an index out of range, a stack overflow. Its stderr is \
               below the message.",
    },
    CodePage {
        code: Code::NotGranted.as_str(),
        title: "A component asks for something that its step does not grant",
        text: "A component has access to no file, variable, host or clock without a grant. The message names \
               the grant to add.",
    },
    CodePage {
        code: Code::BadGrant.as_str(),
        title: "A grant cannot be given",
        text: "The directory or variable that the step grants is missing or has the wrong type; the message \
               names it.",
    },
    CodePage {
        code: Code::BadArgs.as_str(),
        title: "The arguments do not fit a component",
        text: "They do not match the schema of its description. It was not run. `lobster step inspect FILE` \
               prints the schema.",
    },
    CodePage {
        code: Code::BadInput.as_str(),
        title: "The input does not fit a component",
        text: "An item of the input does not match the schema of the component's description, or the \
               component refused it.",
    },
    CodePage {
        code: Code::BadOutput.as_str(),
        title: "A component broke its own output schema",
        text: "The output does not match the schema of the component's description. This is a bug in the \
               component.",
    },
    CodePage {
        code: Code::BadDescription.as_str(),
        title: "A component's description cannot be used",
        text: "The result of `describe` is not valid. This is a bug in the component.",
    },
    CodePage {
        code: Code::TableLimit.as_str(),
        title: "A component's tables grow too large",
        text: "The number of table elements of a program is limited; the message has the figures. Such growth \
               is nearly always a bug in the program.",
    },
    CodePage {
        code: Code::InstanceLimit.as_str(),
        title: "A component has too many parts",
        text: "It has more instances, memories or tables than any program is allowed.",
    },
    CodePage {
        code: Code::OutputLimit.as_str(),
        title: "A component's output is larger than its limit",
        text: "Raise `limits: {output: …}` of the step, or have it write to a granted directory.",
    },
    CodePage {
        code: Code::FilesLimit.as_str(),
        title: "A component wrote more files than its limit",
        text: "The files that a component writes are kept in a private layer until the step succeeds. The \
               size of that layer is limited; the message has the figure.",
    },
    CodePage {
        code: Code::HandleLimit.as_str(),
        title: "A component holds too many handles",
        text: "Streams, blobs, files and requests are handles, and the program keeps more of them open than \
               allowed. Close those that are no longer needed.",
    },
    CodePage {
        code: Code::HostCallTooLarge.as_str(),
        title: "A component passed too much in one call",
        text: "The size of one call to the host is limited; the message has the figure. Pass large data in \
               parts, through a stream or a blob.",
    },
    CodePage {
        code: Code::HostCallTimeout.as_str(),
        title: "A component waited too long in one host call",
        text: "A host that it called did not answer in time. The message has the limit.",
    },
    CodePage {
        code: Code::StackExhausted.as_str(),
        title: "A component's call stack is exhausted",
        text: "Calls were nested more deeply than the stack of a step allows. The usual cause is a recursion \
               that does not end.",
    },
    CodePage {
        code: Code::HostMemory.as_str(),
        title: "The host has no memory left for a component",
        text: "The machine ran out of memory; the component did not reach its own limit. Run fewer steps at once, or lower \
               their `limits: {memory: …}`.",
    },
    CodePage {
        code: Code::NotRecordable.as_str(),
        title: "A component's calls cannot be recorded",
        text: "It imports something whose answers a replay cannot repeat. The message names the import.",
    },
    CodePage {
        code: Code::StepError.as_str(),
        title: "A component reported an error",
        text: "The message is the component's own. It has no valid code of its own.",
    },
    CodePage {
        code: Code::InputFailed.as_str(),
        title: "A component's input cannot be read",
        text: "The blob with its input is missing or damaged; `lobster store verify` lists the damage.",
    },
    CodePage {
        code: Code::OutputFailed.as_str(),
        title: "A component's output cannot be stored",
        text: "Writing it to the store failed; the message has the error of the system.",
    },
    CodePage {
        code: Code::StageFailed.as_str(),
        title: "A component's files cannot be committed",
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
