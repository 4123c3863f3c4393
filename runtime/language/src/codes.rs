//! Codes of diagnostics and their pages for `lobster help <code>`. Together with the codes of failures
//! at run time (`failures.rs`), these are all pages.

/// One code and its page.
#[derive(Clone, Copy, Debug)]
pub struct CodePage {
    pub code: &'static str,
    pub title: &'static str,
    pub text: &'static str,
}

/// All pages: first the mistakes in files, then the failures at run time.
pub fn all_pages() -> impl Iterator<Item = &'static CodePage> {
    PAGES.iter().chain(super::failures::PAGES.iter())
}

/// Finds the page of a code, in any letter case.
#[must_use]
pub fn find_page(code: &str) -> Option<&'static CodePage> {
    all_pages().find(|page| page.code.eq_ignore_ascii_case(code))
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $title:literal, $text:literal;)*) => {
        $(pub const $name: &str = $code;)*
        /// All codes in order.
        const PAGES: &[CodePage] = &[$(CodePage { code: $code, title: $title, text: $text },)*];
    };
}

codes! {
    YAML_SYNTAX = "E0101", "The file is not YAML",
    "The text could not be read as YAML 1.2. Reading stopped at the marked place; the cause is often just \
     before it.\n\nCommon causes: a value that contains `: ` or begins with one of `{ [ & * ! | > % @` and \
     is not quoted; indentation with tabs; a list item that is indented differently from its siblings.\n\n\
         run: curl -H Accept: text/plain      # wrong: a second `: `\n\
         run: \"curl -H 'Accept: text/plain'\"  # right";
    JSON_SYNTAX = "E0102", "The file is not JSON",
    "Files that end in .json are strict JSON: double quotes, no comments, no commas at the end, no byte order \
     mark. Rename the file to .lobster or .yaml to use YAML.";
    DUPLICATE_KEY = "E0103", "A key appears twice in one map",
    "YAML maps cannot hold the same key twice; one of the two values would be lost. Remove one, or give the \
     second its own step.";
    MULTIPLE_DOCUMENTS = "E0104", "The file holds more than one YAML document",
    "A workflow file is one document. A line `---` after the first content, or content after `...`, begins \
     another one. Put each workflow in a separate file and call it with `workflow:`.";
    ALIAS = "E0105", "A YAML alias cannot be resolved",
    "`*name` repeats the value marked with `&name` earlier in the file. The anchor must come first, may not \
     contain itself, and aliases together may not blow the file up beyond a fixed size.";
    TOO_DEEP = "E0106", "The file is nested too deeply",
    "Maps and lists may be nested up to 200 levels. Move large constant data into a separate file and let a \
     step read it.";

    NOT_A_WORKFLOW = "E0201", "The file is not a workflow",
    "A workflow file is a map with a non-empty list `steps`:\n\n    name: hello\n    steps:\n      - id: greet\n        \
     run: echo hello";
    STEP_SHAPE = "E0202", "A step is incomplete",
    "A step is a map with a non-empty text `id`, and either one kind of work (run, command, pipeline, workflow, \
     parallel, for_each, repeat, switch, component, js, mcp, exec, wait), or asks a person (approval, input).";
    FIELD_TYPE = "E0203", "A field has an invalid value",
    "The message lists the accepted values. Note that in YAML 1.2 only true and false are booleans: yes, no, on \
     and off are texts, and numbers with underscores or units are texts too.";
    CONFLICT = "E0204", "Two fields exclude each other",
    "A step does one kind of work. Split it into two steps; a later step can read an earlier one with \
     `stdin: $id.json`.";
    DUPLICATE_ID = "E0205", "Two steps have the same id",
    "References such as `$id.json` must mean one step, so ids are unique over all steps and parallel branches of \
     a file. The ids of a loop's sub-steps must differ from each other and from its variables.";
    GATE_TYPE = "E0206", "An approval has an invalid value",
    "`approval` takes true, a prompt, or a map with prompt, items, preview, initiated_by, required_approver and \
     require_different_approver. Any other value is refused: if it were ignored, the step would run without \
     approval.";
    INPUT_SCHEMA = "E0207", "An input step's schema cannot be used",
    "`input.responseSchema` is a JSON Schema (draft 7). The message is the schema compiler's.";
    SECRET = "E0208", "A step asks for a secret that the file does not declare",
    "List every secret under `secrets:` at the top of the file, so that a reader can see which secrets the \
     workflow can reach.";
    CACHE = "E0209", "A step's outcome cannot be reused",
    "`cache: true` (or `{ttl: 10m}`) reuses the outcome of an equal action instead of running the step. Steps of \
     the kinds run, command, exec, component and js take it. It is refused for steps with secrets, because \
     their values are not part of the action, and for components that write files, because the files would \
     not be written. `inputs` names the files that belong to the action of a run, command or exec step:\n\n    \
     - id: count\n      run: wc -l data/*.csv\n      inputs: [data/*.csv]\n      cache: true";

    TRIGGER = "E0210", "A trigger cannot be used",
    "`on:` lists the triggers of the workflow under a service: `schedule`, `webhook`, `after` and `watch`. Mistakes \
     that would only appear when the trigger is due are errors of the file: a pattern that is never due, a \
     time zone that does not exist, an argument that the file does not declare. `notify:` lists the recipients of \
     notifications about the runs: names of the server's targets, never a command or an address. `lobster run` still \
     runs the file, because it uses neither.";
    TRIGGER_DATA = "E0211", "The data of a trigger becomes part of a command",
    "The sender of a webhook, and a workflow that ended before this one, decide the value of the argument. In \
     the text of a command or a pipeline, the value could start another command. Pass it as data: in shell text read \
     \"$LOBSTER_ARG_NAME\"; elsewhere use `stdin:` or `env:`.";

    CONDITION = "E0301", "A condition cannot be read",
    "Conditions compare references and constants:\n\n    when: $check.json.count > 3 && $ask.approved\n\n\
     Operators: == != < <= > >= && || ! and parentheses. Strings are quoted, numbers plain; a bare word may stand \
     only on the right of a comparison. Not available: arithmetic, functions, =, ===, and, or, not, `${arg}`, \
     `[0]` (write `.0`). References are `$id.field`, with the output under `.json` or `.stdout`.";
    UNKNOWN_REFERENCE = "E0302", "A reference names no earlier step",
    "`$id.path` in stdin, for_each or a condition needs a step or parallel branch of that id that comes earlier. \
     The ids of a loop's sub-steps are known only inside the loop, those of a sub-workflow only inside it.";
    NOT_A_LIST = "E0303", "A loop does not name a list",
    "`for_each` is exactly one reference to a list, such as `$collect.json.items`. Text around the reference \
     makes it text. To loop over a list argument, let a step turn it into JSON first:\n\n    - {id: list, run: cat, \
     stdin: \"${list}\"}\n    - {id: each, for_each: $list.json, steps: [...]}";

    NEEDS_CIRCLE = "E0304", "Steps wait for each other",
    "In a file in which a step has `needs`, a step begins when the steps that it needs have ended. A step \
     also needs every step that it refers to. The message shows the steps that need each other, and the help shows the \
     fields: none of these steps could ever begin. Remove one of the needs, or split a step in two.";

    ARGUMENT = "E0401", "An argument is missing or has the wrong type",
    "The workflow declares the argument with required, type or enum, and the value given does not fit. Arguments \
     are given with --args-json '{\"name\": value}', or by a parent workflow with workflow_args.";

    CHILD = "E0501", "A sub-workflow cannot be used",
    "The file named by `workflow:` was read along with its parent and has an error, which is shown in the \
     message. A child that may fail can be marked with on_error: continue.";
    CHILD_DEPTH = "E0502", "Sub-workflows are nested too deeply",
    "Workflows call each other more than 32 levels deep, or a file has more than 1000 sub-workflows in all.";

    CHILD_CYCLE = "E0503", "A workflow calls itself",
    "A step's `workflow:` names a file that is already being executed when the step runs: the workflow itself, or \
     one that called it. Nothing runs, unless the step may fail (`on_error`). If the path of the file comes from an \
     argument or a result, the run fails when it reaches the step. To repeat steps, use for_each.";

    UNKNOWN_COMMAND = "E0601", "A pipeline uses an unknown command",
    "`pipeline:` takes lobster commands, joined by `|`. To run a program, use `run:`, or the command `exec` \
     inside a pipeline. `lobster commands.list` prints all commands.";
    PIPELINE_SYNTAX = "E0602", "A pipeline cannot be read",
    "Stages are joined by `|`; words are separated by spaces; quotes must be closed.";

    COMPONENT = "E0603", "A component cannot run in this step",
    "Before anything runs, lobster loads the component and compares it with the step. It cannot be loaded, \
     does not accept the arguments, imports something that the step does not grant, or the policy denies a \
     grant. `lobster step inspect FILE` prints its arguments and the grants that it asks for.";

    STAGE_ARGUMENTS = "E0604", "A pipeline command has invalid arguments",
    "An option or word of the command is missing, is not known, or has an invalid value; the message names it. \
     `lobster help COMMAND` lists the arguments. Nothing runs, unless the step may fail (`on_error`). Arguments with \
     `${name}` or `$id.path` are checked when the step is reached.";

    UNKNOWN_FIELD = "W0701", "A field is not known",
    "The field has no effect. Usually it is a misspelling (timeoutMs for timeout_ms) or belongs to another tool.";
    IGNORED_VALUE = "W0702", "A value has no effect",
    "The value has a type that this field does not use. It is ignored, as older runtimes do. \
     Environment values, for example, must be texts: quote numbers.";
    CHILD_MISSING = "W0703", "A sub-workflow cannot be read now",
    "The file does not exist or cannot be read at the moment. The step will fail unless an earlier step creates it.";

    STAGE_AS_SHELL = "W0801", "A lobster command is run by the shell",
    "`run:` and `command:` are texts for /bin/sh, which does not know lobster's own commands such as approve, \
     where or state.set. Use `pipeline:` for them; for approvals, use an `approval:` step.";
    FIELD_WITHOUT_JSON = "W0802", "A reference lacks .json or .stdout",
    "The output of a step is in `.json` (if it is JSON) or `.stdout`. `$id.field` looks for a field of \
     the step itself, finds nothing and gives an empty text; a condition on it is false.";
    PASTED_ARGUMENT = "W0803", "An argument is pasted into shell text",
    "`${arg}` is replaced by the argument's text before the shell sees it, so a value with spaces, quotes or `;` \
     changes the command. Read the environment variable instead, which the shell treats as data: \
     \"$LOBSTER_ARG_NAME\".";
    BRACED_REFERENCE = "W0804", "A reference is written in braces",
    "`${step.json.x}` is not a reference and reaches the shell unchanged, which reports `bad substitution`. Write \
     `$step.json.x`.";
    REFERENCE_ORDER = "W0805", "A reference in text names no earlier step",
    "Inside text, a reference to an unknown step stays unchanged (it might be meant for the shell), so the \
     command would see the letters `$id.path`.";
    BRACKET_INDEX = "W0806", "A list is indexed with brackets",
    "List elements are written `$id.json.0`, not `$id.json[0]`. The text `[0]` stays unchanged.";
    ARGUMENT_SPEC = "W0807", "An argument's declaration is invalid",
    "A declaration is a map with default, required, type, enum and description.";
    PASTED_REFERENCE = "W0808", "A step's output is pasted into shell text",
    "The output replaces the reference before the shell sees the command: a quote, a space or `$(...)` in it \
     changes the command. Pass it with `stdin: $id.json`, or through `env:`.";
    INPUT_OUTSIDE = "W0809", "A field has no effect on this kind of step",
    "The field belongs to another kind of step and is ignored here.";
    STAGE_OPTION = "W0810", "An option or word of a pipeline command has no effect",
    "The command does not know the option, or takes no words besides its options, and ignores it. `lobster help \
     <command>` lists what it takes.";
    IDLE_INPUTS = "W0811", "Input files have no effect on caching",
    "`inputs` makes files part of the step's action, so that `lobster why` names the one that changed and `lobster \
     fork` runs the step again. A new run still runs the step, unless `cache: true` lets it reuse the outcome \
     of an equal action. `cache: false` confirms that this is intended.";
    UNASKED_GRANT = "W0812", "A component does not get a grant",
    "A component gets the files, variables and hosts that its step grants and its description asks for. A \
     grant that the description does not ask for has no effect, and the component fails as if nothing had \
     been granted. Remove the grant, or add it to `wants` in the component.";
    BARE_NAME = "W0813", "A reference names no part of a step",
    "`$id` alone is text. The output of a step is in `.json` (if it is JSON) or `.stdout`, the answer to an \
     approval under `.approved`, to an input step under `.response`. Arguments are written `${name}`.\n\n    \
     - {id: count, run: wc -l, stdin: $collect.stdout}";
    FOREIGN_NOTATION = "W0814", "Text is not filled in",
    "Arguments are written `${name}` and results `$id.json.field`; `{{name}}`, `${{ args.name }}`, `$args.name` and \
     `$steps.id.outputs.x` belong to other tools. In shell text, arguments are read from the environment: \
     \"$LOBSTER_ARG_NAME\". The texts of an approval are shown as written: give the approval a `stdin`, and \
     the person sees that.";
    SHELL_VARIABLE = "W0815", "A shell variable has the name of an argument or a step",
    "In shell text `$name` is a variable of the shell, and lobster sets no variable of that name, so it is empty. Arguments \
     are in the environment as \"$LOBSTER_ARG_NAME\"; pass the output of a step with `stdin:` or `env:`.";

    IDLE_SECRET = "W0816", "A secret is not used",
    "The step is granted the secret as a variable that none of its commands uses. A command that needs a key \
     takes the one from the environment instead. A model takes its key as OPENAI_API_KEY, ANTHROPIC_API_KEY or the \
     `key_env` of its channel, a gateway as OPENCLAW_TOKEN, a component what `--grant-env` names, `exec` any variable.";

    REFUSING_LIMIT = "W0817", "A limit refuses a model call",
    "`cost_limit` with `action: stop`, or a `budget`, compares a call with what it leaves before the call is made: with \
     the price of its model and the most tokens that its answer may have. The message says which of them the call \
     lacks, or that a single answer may use more than the limit allows. `lobster models prices` lists the prices.";

    BOUND_SECRET = "W0818", "A secret is used where it does not go",
    "The operator has bound the secret: with `hosts` it is only added to what steps send to these hosts, with `login` to \
     what they send to the server of the login. No step receives it, and it is sent to no other host, so a run with this \
     step is refused. Use `credentials: {HOST: NAME}` with such a host. `lobster secrets list` shows the hosts.";

    JS_WITHOUT_RETURN = "W0819", "JavaScript returns nothing",
    "The text of `js:` is an expression, whose value the step gives, or statements, which are the body of a function. \
     A body without `return` gives null.\n\n    \
     js: |\n      const late = input.filter(task => task.due < args.today);\n      return late;";

    HALF_PAIR = "W0820", "A text escapes half a surrogate pair",
    "`\\ud83d` is the first half of a character that needs two, such as an emoji. Alone it is not a character, and is read \
     as U+FFFD. A program that cuts text after a number of UTF-16 units (`slice` in JavaScript) may leave such a half.";
    LINE_END = "W0821", "A condition compares output that ends with a line break",
    "`.stdout` is everything that a command prints, with the line break at its end, so it is not equal to a text \
     without one: `echo eu` prints `eu` and a line break. Print without one (`printf %s eu`, or `tr -d '\\n'` at the end \
     of the command), or print JSON and compare `.json`, which has no line break.\n\n    \
     - {id: where, run: 'printf %s \"$REGION\"'}\n    - {id: eu, run: ./deploy.sh, when: $where.stdout == \"eu\"}";
    OUTPUT_AS_TRUTH = "W0822", "Any output is true as a condition",
    "A text is true unless it is empty, even the text `false`, `0` or `no`. Compare the text, or let the step print JSON \
     and test `.json`: `false` and `0` are JSON.";
    UNFILLED_VARIABLE = "W0823", "A variable in `env` is not filled in",
    "Values of `env:` are not read by a shell. `${name}` of an argument and `$id.stdout` of a step are filled in; any \
     other `$NAME` stays as it is written. `${env.NAME}` inserts the value that lobster itself was started with:\n\n    \
     env:\n      PATH: \"./tools:${env.PATH}\"";
    ONE_VARIABLE = "W0824", "Two arguments have one variable",
    "Steps read an argument as LOBSTER_ARG_ and its name in capitals, where each character that is no letter, digit or \
     underscore is an underscore: `my-arg` and `my_arg` are both LOBSTER_ARG_MY_ARG, which holds the value of the one \
     that comes last. Rename one of them, or read them as `${my-arg}` and `${my_arg}` outside shell text.";
    WITHHELD = "W0825", "A step names a variable that it does not receive",
    "Keys of models and gateways belong to lobster, and steps do not inherit them. The step uses such a key, which is set \
     here. Grant it by name, without its value:\n\n    env: { OPENAI_API_KEY: $OPENAI_API_KEY }\n\n`LOBSTER_INHERIT_TOKENS=1` \
     passes all of them to every step. The list is in docs/secrets.md.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_sorted_and_explained() {
        let errors: Vec<_> = PAGES.iter().map(|page| page.code).collect();
        let mut sorted = errors.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(errors, sorted);
        let unique: std::collections::HashSet<_> = all_pages().map(|page| page.code).collect();
        assert_eq!(unique.len(), all_pages().count());
        for page in all_pages() {
            assert!(page.text.len() > 60 && !page.title.ends_with('.'), "{}", page.code);
        }
        assert_eq!(find_page("e0301").map(|page| page.code), Some(CONDITION));
        assert!(find_page("E9999").is_none());
    }
}
