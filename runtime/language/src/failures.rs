//! The codes that failures have in envelopes and in the record, and what
//! `lobster help CODE` prints for them. A failure of a workflow file has a number
//! instead: [`super::codes`].

use super::codes::CodePage;

/// Every code of a failure at run time: first those of steps and of lobster, then
/// those of components.
pub const PAGES: &[CodePage] = &[
    CodePage {
        code: "timeout",
        title: "The time of a step is over",
        text: "The step ran longer than its `timeout_ms` (or that of the `parallel` around it), or a component than \
               its wall clock, and was ended with all its processes. Give it more time, or find out what it waits \
               for: `lobster logs RUN STEP` prints what it wrote until then.",
    },
    CodePage {
        code: "cancelled",
        title: "The work was cancelled",
        text: "Ctrl-C, a signal, a client that withdrew its call, or the first failure of a `parallel` ended the \
               work. What had ended stays on record: `lobster resume RUN` goes on from there.",
    },
    CodePage {
        code: "interrupted",
        title: "The end of an effect was not seen",
        text: "An effect had begun and lobster, or what watched over it, died before its end. Whether it happened \
               is not known, so it is not repeated by itself. Look, then `lobster resume RUN` with \
               --retry-interrupted or --skip-interrupted. `idempotent: true` on a step says that repeating it does \
               no harm.",
    },
    CodePage {
        code: "unknown_end",
        title: "The end of an effect was not seen",
        text: "What watched over the step was killed, or the answer to a call that had been sent was lost. Whether \
               it happened is not known, so `retry:` does not repeat it. Look, then `lobster resume RUN` with \
               --retry-interrupted or --skip-interrupted.",
    },
    CodePage {
        code: "policy_denied",
        title: "The policy does not allow it",
        text: "The message names the rule and what it met. `lobster policy explain -- COMMAND` shows how a command \
               is read and judged, `lobster policy suggest --from RUN` proposes rules for what recorded runs did.",
    },
    CodePage {
        code: "approval_stale",
        title: "What was approved is not what would run now",
        text: "An approval covers the question, the commands, the policy and the bytes of the files that would run. \
               One of them has changed since; the message says which. Start the run again and approve what it \
               shows.",
    },
    CodePage {
        code: "approval_files",
        title: "A file that would run cannot be covered",
        text: "An approval covers the bytes of what a command runs, and one of its files cannot be read, is no \
               file, or is too large for that. The message names it.",
    },
    CodePage {
        code: "program_not_found",
        title: "The program is not there",
        text: "No program of that name is on the step's PATH, or the file is not executable. Install it, write its \
               path, or give the step the variable PATH in `env:`.",
    },
    CodePage {
        code: "output_limit",
        title: "The process wrote more than it may",
        text: "stdout and stderr together passed `LOBSTER_MAX_OUTPUT_BYTES` (512 MiB unless set), so the process \
               was ended; what it wrote is not cut in silence. Write to a file instead, or raise the limit.",
    },
    CodePage {
        code: "disk_limit",
        title: "The step wrote more to disk than it may",
        text: "The policy's `[limits] disk` bounds what a step may add below its write roots. The step was ended.",
    },
    CodePage {
        code: "sandbox_blocked",
        title: "Something was kept from the command by its sandbox",
        text: "The command failed and its sandbox had refused it something; each line `sandbox_blocked:` names \
               what, and the grant that would allow it. `lobster show RUN --full` prints what was enforced.",
    },
    CodePage {
        code: "root_is_link",
        title: "A granted directory is reached through a link",
        text: "A grant names a path that leads through a symbolic link, which somebody could point elsewhere \
               between the decision and the start. Name the real path.",
    },
    CodePage {
        code: "store",
        title: "The store failed",
        text: "The state directory could not be read or written: the message has the system's words. No retry helps \
               until that is mended. `lobster store verify` checks everything, `lobster doctor` tells where the \
               state directory is.",
    },
    CodePage {
        code: "secret",
        title: "A secret cannot be had",
        text: "The file of references, or the program that gives the secret, did not give it; the step was not \
               started. docs/secrets.md tells where secrets come from.",
    },
    CodePage {
        code: "setting",
        title: "A setting has a value that it cannot take",
        text: "An environment variable or option of lobster has a bad value; the message names it. Nothing was \
               started.",
    },
    CodePage {
        code: "inputs",
        title: "A declared input file cannot be read",
        text: "`inputs:` of the step names a file that is missing or cannot be read, so the action has no digest. \
               The step was not started.",
    },
    CodePage {
        code: "cost_limit",
        title: "The cost limit is reached",
        text: "The next model call could cost more than `cost_limit` of the file leaves, so it was not made. What \
               was paid until then stands in the record: `lobster show RUN`.",
    },
    CodePage {
        code: "unknown_command",
        title: "A pipeline uses an unknown command",
        text: "`lobster commands.list` prints all commands; to run a program, use `exec` or `run:`.",
    },
    CodePage {
        code: "mcp_server",
        title: "An MCP server cannot be used",
        text: "It cannot be started or reached, speaks another protocol, or did not answer in time; the message has \
               its name and its words. docs/mcp.md tells how servers are configured.",
    },
    CodePage {
        code: "mcp_tool_error",
        title: "An MCP tool says that it failed",
        text: "The server answered, and its answer is an error; the message is the tool's.",
    },
    CodePage {
        code: "mcp_tool_unknown",
        title: "The MCP server has no tool of that name",
        text: "The server was asked for its tools, and there is none of that name; nothing was called. `lobster mcp lock` \
               lists what the configured servers offer.",
    },
    CodePage {
        code: "mcp_tool_changed",
        title: "An MCP tool is not what was locked",
        text: "The tool's description or schema differs from the lock file. Look at the difference, then `lobster \
               mcp lock` accepts it.",
    },
    CodePage {
        code: "mcp_arguments",
        title: "The arguments do not fit the MCP tool",
        text: "They were held against the tool's input schema before the call; nothing was sent.",
    },
    CodePage {
        code: "mcp_answer_limit",
        title: "The answer of an MCP tool is too large",
        text: "The answer is larger than lobster takes from a tool. The call was made; ask for less.",
    },
    CodePage {
        code: "diverged",
        title: "A replay departed from its record",
        text: "A component made another host call, or the same with other arguments, than when the run was \
               recorded. `lobster why RUN STEP` names what differs.",
    },
    CodePage {
        code: "component",
        title: "A component cannot be loaded",
        text: "The program is missing, is no component or command that this host runs, or is too much to compile; \
               the message says which. `lobster step inspect FILE` prints what it is.",
    },
    CodePage {
        code: "out-of-fuel",
        title: "A component used up its fuel",
        text: "Fuel counts the instructions that a component runs. Most often a loop does not end; if the work is \
               really that long, raise `limits: {fuel: …}`. `lobster step run --profile` shows what is used.",
    },
    CodePage {
        code: "memory-limit",
        title: "A component needs more memory than its limit",
        text: "Raise `limits: {memory: 256MiB}`, or have the step stream its input instead of holding it.",
    },
    CodePage {
        code: "trap",
        title: "A component trapped",
        text: "The program ran into something from which it cannot go on: a panic, an index out of range, a stack \
               too deep. What it wrote to stderr stands below the message.",
    },
    CodePage {
        code: "not-granted",
        title: "A component asks for something that its step does not grant",
        text: "A component gets no file, variable, host or clock by itself. The message names the grant to add.",
    },
    CodePage {
        code: "bad-grant",
        title: "A grant cannot be given",
        text: "The directory or variable that the step grants is missing or not what it should be; the message \
               names it.",
    },
    CodePage {
        code: "bad-args",
        title: "The arguments do not fit a component",
        text: "They were held against the schema of its description before it ran. `lobster step inspect FILE` \
               prints the schema.",
    },
    CodePage {
        code: "bad-input",
        title: "The input does not fit a component",
        text: "An item of the input is not what the component's description asks for, or the component itself \
               refused it.",
    },
    CodePage {
        code: "bad-output",
        title: "A component broke its own output schema",
        text: "Its description promises another form of output; this is a fault of the component.",
    },
    CodePage {
        code: "bad-description",
        title: "A component's description cannot be used",
        text: "What `describe` gives is not valid; this is a fault of the component.",
    },
    CodePage {
        code: "table-limit",
        title: "A component's tables grow too large",
        text: "Every program may have so many table elements; the message has the figures. Such growth is nearly \
               always a fault of the program.",
    },
    CodePage {
        code: "instance-limit",
        title: "A component is made of too many parts",
        text: "It has more instances, memories or tables than any program is allowed.",
    },
    CodePage {
        code: "output-limit",
        title: "A component put out more than it may",
        text: "Raise `limits: {output: …}` of the step, or have it write to a granted directory.",
    },
    CodePage {
        code: "files-limit",
        title: "A component wrote more than it may",
        text: "What a component writes is kept in a private layer until the step succeeds, and that layer has a \
               size. The message has the figure.",
    },
    CodePage {
        code: "handle-limit",
        title: "A component holds too many handles",
        text: "Streams, blobs, files and requests are handles, and the program keeps more of them open than it is \
               allowed. Drop those that are done with.",
    },
    CodePage {
        code: "host-call-too-large",
        title: "A component passed too much in one call",
        text: "One call to the host takes so many bytes; the message has the figure. Pass large data in parts, \
               through a stream or a blob.",
    },
    CodePage {
        code: "host-call-timeout",
        title: "A component waited too long in one host call",
        text: "A host that it called did not answer in time. The message has the limit.",
    },
    CodePage {
        code: "stack-exhausted",
        title: "A component's call stack is exhausted",
        text: "Calls were nested deeper than the stack of a step reaches. Most often a recursion does not end.",
    },
    CodePage {
        code: "host-memory",
        title: "The host has no memory left for a component",
        text: "The machine ran out of memory, not the component out of its limit. Run fewer steps at once, or lower \
               their `limits: {memory: …}`.",
    },
    CodePage {
        code: "not-recordable",
        title: "What a component asks for cannot be recorded",
        text: "It imports something whose answers could not be given again in a replay. The message names the \
               import.",
    },
    CodePage {
        code: "step-error",
        title: "A component says that it failed",
        text: "The message is the component's own; its code was not given or cannot be a name.",
    },
    CodePage {
        code: "input-failed",
        title: "A component's input cannot be read",
        text: "The blob with its input is missing or damaged; `lobster store verify` names what is.",
    },
    CodePage {
        code: "output-failed",
        title: "A component's output cannot be kept",
        text: "The store could not take it; the message has the system's words.",
    },
    CodePage {
        code: "stage-failed",
        title: "What a component wrote cannot be kept",
        text: "The private layer could not be committed to the granted directory; the message names the file.",
    },
    CodePage {
        code: "instantiate",
        title: "A component cannot be started",
        text: "Linking it to its imports, or its start function, failed; the message says how.",
    },
];
