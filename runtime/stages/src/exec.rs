//! `exec`: runs a program or a shell line; its output becomes the items.

pub mod output;

use lobster_base::code::Code;
use std::io::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempPath;

use super::describe::{Arg, option, schema_with_words};
use lobster_base::json::write_compact;
use lobster_stage::{
    Flag, Flow, Host, NativeCommand, NativeOutcome, Payload, Program, Sink, Stage, StageArgs, StageError,
    StageKind, StageSpec, Stop, command_failure,
};

pub(super) static SPEC: StageSpec = StageSpec {
    name: "exec",
    description: "Run an OS command",
    help: "Usage:\n  exec PROGRAM ARG...\n  exec -- PROGRAM --long-option ARG...\n  exec --json PROGRAM ARG...\n  exec --shell \"LINE\"\n  exec --stdin raw|json|jsonl PROGRAM ARG...\n\n\
           Without --shell no shell is involved: variables, ~ and * are not expanded. A single word with\n\
           blanks in it is a shell line. Options of the program need `--` before the program.\n\
           Output: one item for each line that is not empty, or with --json the JSON value, a list item by item.\n\
           With --all-lines empty lines become items as well, so the text can be put together again.\n",
    flags: &[
        option("shell", "LINE", "Run a line with the shell (LOBSTER_SHELL, else /bin/sh)"),
        Flag { name: "json", value: None, help: "Read the output as JSON" },
        Flag { name: "all-lines", value: None, help: "Keep empty lines as items" },
        Flag { name: "stdin", value: Some("raw|json|jsonl"), help: "Give the items to the program's stdin" },
    ],
    args_schema: || {
        schema_with_words(
            &[
                Arg::switch("json", "Read the output as JSON"),
                Arg::text("shell", "Line to run with the shell"),
                Arg::text("stdin", "How to give the items to stdin: raw, json or jsonl"),
            ],
            Some("Program and arguments"),
            true,
        )
    },
    examples: || json!([{"args": {"_": ["git", "status", "-s"]}, "description": "Changed files, one item each"}]),
    side_effects: Some(&["local_exec"]),
    kind: StageKind::Effect,
    build: |args| Ok(Box::new(Exec::new(args)?)),
};

struct Exec {
    program: Program,
    json: bool,
    all_lines: bool,
    stdin: Option<Stdin>,
}

impl Exec {
    fn new(args: &StageArgs) -> Result<Self, StageError> {
        let stdin = match args.text_value("stdin").filter(|mode| !mode.is_empty()) {
            None => None,
            Some(mode) => Some(Stdin::new(mode)?),
        };
        let program = parse_program(args).ok_or_else(|| StageError::permanent("exec requires a command"))?;
        Ok(Self { program, json: args.is_enabled("json"), all_lines: args.is_enabled("all-lines"), stdin })
    }

    /// The program's name in messages.
    fn program_name(&self) -> &str {
        match &self.program {
            Program::Shell(line) => line,
            Program::Argv(argv) => argv.first().map_or("", String::as_str),
        }
    }

    /// `exec command not found: …`, as the incumbent words it.
    fn explain_error(&self, error: StageError) -> StageError {
        if !error.has_code(Code::ProgramNotFound) {
            return error;
        }
        let message = match &self.program {
            Program::Shell(_) => "exec shell not found; check LOBSTER_SHELL".to_owned(),
            Program::Argv(_) => format!("exec command not found: {}", self.program_name()),
        };
        error.with_message(message)
    }
}

fn parse_program(args: &StageArgs) -> Option<Program> {
    if let Some(line) = args.text_value("shell").filter(|line| !line.is_empty()) {
        return Some(Program::Shell(line.to_owned()));
    }
    match args.positional.as_slice() {
        [] => None,
        [line] if line.contains(char::is_whitespace) || args.is_enabled("shell") => {
            Some(Program::Shell(line.clone()))
        }
        // A bare --shell after the words: the words are the line.
        words if args.is_enabled("shell") => Some(Program::Shell(words.join(" "))),
        words => Some(Program::Argv(words.to_vec())),
    }
}

impl Stage for Exec {
    fn process_item(&mut self, item: Value, _: &mut dyn Host, _: &mut dyn Sink) -> Result<Flow, Stop> {
        if let Some(stdin) = &mut self.stdin {
            stdin.push_item(&item)?;
        }
        Ok(Flow::More)
    }

    fn end_input(&mut self, host: &mut dyn Host, out: &mut dyn Sink) -> Result<(), Stop> {
        // The spooled input must outlive the process.
        let (stdin, _spooled) = match self.stdin.take() {
            Some(stdin) => {
                let (payload, spooled) = stdin.into_payload()?;
                (Some(payload), spooled)
            }
            None => (None, None),
        };
        let command = NativeCommand {
            program: self.program.clone(),
            stdin,
            max_output: None,
            json: self.json,
            dispatches: false,
        };
        let outcome =
            host.run_native(command).map_err(|stop| stop.map_failure(|error| self.explain_error(error)))?;
        if outcome.exit != Some(0) {
            return Err(exec_failure(self.program_name(), &outcome).into());
        }
        if self.json {
            if output::emit_json(&outcome.stdout, outcome.plain_json, out)? {
                host.print_note(
                    "warning: exec --json: the output escapes half a surrogate pair, which is read as U+FFFD",
                );
            }
            Ok(())
        } else {
            output::emit_lines(&outcome.stdout, self.all_lines, out)
        }
    }
}

/// Most bytes of a program's output repeated in an error message.
const MESSAGE_BYTES: usize = 16 << 10;

fn exec_failure(name: &str, outcome: &NativeOutcome) -> StageError {
    let code = outcome.exit.map_or_else(|| "null".to_owned(), |code| code.to_string());
    let said = [&outcome.stderr, &outcome.stdout]
        .into_iter()
        .filter_map(|payload| output::excerpt(payload, MESSAGE_BYTES).ok())
        .find(|text| !text.is_empty());
    let message = format!("exec failed ({code}): {}", said.as_deref().unwrap_or(name));
    command_failure(message, &outcome.withheld, &outcome.blocked).or_code(Code::CommandFailed)
}

/// Input for the program, moved to disk once it is large.
struct Stdin {
    mode: StdinMode,
    memory: Vec<u8>,
    file: Option<tempfile::NamedTempFile>,
    empty: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum StdinMode {
    Raw,
    Json,
    Jsonl,
}

/// Most input kept in memory before it moves to a file.
const MEMORY: usize = 4 << 20;

impl Stdin {
    fn new(mode: &str) -> Result<Self, StageError> {
        let parsed = match mode.to_lowercase().as_str() {
            "raw" => StdinMode::Raw,
            "json" => StdinMode::Json,
            "jsonl" => StdinMode::Jsonl,
            _ => {
                return Err(StageError::permanent(format!(
                    "exec --stdin must be raw, json, or jsonl (got {mode})"
                )));
            }
        };
        Ok(Self { mode: parsed, memory: Vec::new(), file: None, empty: true })
    }

    fn push_item(&mut self, item: &Value) -> Result<(), StageError> {
        let first = std::mem::take(&mut self.empty);
        self.memory.extend_from_slice(match (self.mode, first) {
            (StdinMode::Json, true) => b"[",
            (StdinMode::Json, false) => b",",
            (StdinMode::Raw, false) => b"\n",
            (StdinMode::Raw, true) | (StdinMode::Jsonl, _) => b"",
        });
        match item {
            Value::String(text) if self.mode == StdinMode::Raw => {
                self.memory.extend_from_slice(text.as_bytes())
            }
            item => write_compact(&mut self.memory, item)
                .map_err(|error| StageError::permanent(format!("exec --stdin: {error}")))?,
        }
        if self.mode == StdinMode::Jsonl {
            self.memory.push(b'\n');
        }
        if self.memory.len() > MEMORY { self.spill_to_file() } else { Ok(()) }
    }

    fn spill_to_file(&mut self) -> Result<(), StageError> {
        let failed = |error| {
            StageError::new(format!(
                "exec --stdin: the input could not be kept in a file: {error} (TMPDIR names the directory)"
            ))
        };
        let mut file = match self.file.take() {
            Some(file) => file,
            None => tempfile::Builder::new().prefix("lobster-stdin-").tempfile().map_err(failed)?,
        };
        file.write_all(&self.memory).map_err(failed)?;
        self.memory.clear();
        self.file = Some(file);
        Ok(())
    }

    fn into_payload(mut self) -> Result<(Payload, Option<TempPath>), StageError> {
        if self.mode == StdinMode::Json {
            self.memory.extend_from_slice(if self.empty { b"[]" } else { b"]" });
        }
        if self.file.is_some() {
            self.spill_to_file()?;
        }
        Ok(match self.file {
            None => (Payload::Bytes(Arc::from(self.memory)), None),
            Some(file) => {
                let path = file.into_temp_path();
                (Payload::File(path.to_path_buf()), Some(path))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{failure_message, run};
    use super::*;

    #[test]
    fn lines_become_items() {
        for (text, items) in [
            (r"exec printf 'a\n\n  \n b \n'", json!(["a", "  ", " b "])),
            (r"exec printf 'a\r\nb\r\n'", json!(["a", "b"])),
            (r"exec printf 'a\nb\r'", json!(["a", "b\r"])),
            (r"exec printf '\357\273\277x\n\377\n'", json!(["\u{feff}x", "\u{fffd}"])),
            ("exec printf %s '$HOME;*'", json!(["$HOME;*"])),
            ("exec 'echo a && echo b'", json!(["a", "b"])),
            ("exec --shell 'echo a' b c", json!(["a"])),
            ("exec echo a b --shell", json!(["a b"])),
            ("exec true", json!([])),
            ("exec echo a --b c d", json!(["a d"])),
            ("exec -- echo a --b c d", json!(["a --b c d"])),
            ("exec --json -- 'echo [1,2]'", json!([1, 2])),
            ("exec --json 'echo [1,2,3]'", json!([1, 2, 3])),
            ("exec --json printf '{\"a\":%s}' 1", json!([{"a": 1}])),
            ("exec --all-lines printf '%s|' '' b \"\"", json!(["|b||"])),
            ("exec echo 1 | exec cat", json!([])),
        ] {
            assert_eq!(run(text, json!([])), items, "{text}");
        }
    }

    #[test]
    fn items_reach_stdin_in_the_encoding_asked_for() {
        let items = json!(["a", {"x": 1.0}, 3, null, true]);
        for (text, expected) in [
            ("exec --stdin jsonl cat", json!(["\"a\"", "{\"x\":1}", "3", "null", "true"])),
            ("exec --stdin RAW sed 's/$/$/'", json!(["a$", "{\"x\":1}$", "3$", "null$", "true$"])),
            ("exec --stdin json sed 's/$/$/'", json!(["[\"a\",{\"x\":1},3,null,true]$"])),
            ("exec cat --stdin", json!([])),
            ("exec --stdin raw true", json!([])),
        ] {
            assert_eq!(run(text, items.clone()), expected, "{text}");
        }
        assert_eq!(run("exec --stdin json cat", json!([])), json!(["[]"]));
        assert_eq!(
            run("exec --stdin jsonl wc -c", json!([])).to_string().trim_matches(|c: char| !c.is_numeric()),
            "0"
        );
        assert_eq!(run("exec --stdin jsonl wc -l", json!(["a\nb", {"c": "\n"}])), json!(["2"]));
    }

    #[test]
    fn large_input_goes_through_a_file() {
        let line = "x".repeat(1 << 20);
        let items: Vec<_> = (0..9).map(|_| json!(line)).collect();
        assert_eq!(run("exec --stdin jsonl wc -c", json!(items)), json!([(9 * ((1 << 20) + 3)).to_string()]));
        assert_eq!(run("exec --stdin json tail -c 2", json!(items)), json!(["\"]"]));
    }

    #[test]
    fn failures_say_what_the_program_said() {
        for (text, message) in [
            ("exec --shell 'echo bad >&2; echo out; exit 7'", "exec failed (7): bad"),
            ("exec --shell 'echo only out; exit 3'", "exec failed (3): only out"),
            ("exec false", "exec failed (1): false"),
            ("exec --shell 'kill -9 $$'", "exec failed (null): kill -9 $$"),
            ("exec no-such-program-x a", "exec command not found: no-such-program-x"),
            ("exec 'ls;true'", "exec command not found: ls;true"),
            ("exec 'echo hi' there", "exec command not found: echo hi"),
            ("exec", "exec requires a command"),
            ("exec --json", "exec requires a command"),
            ("exec --shell ''", "exec requires a command"),
            ("exec --stdin yaml cat", "exec --stdin must be raw, json, or jsonl (got yaml)"),
        ] {
            assert_eq!(failure_message(text, json!([])), message, "{text}");
        }
        let long = failure_message("exec --shell 'yes 0123456789 | head -c 3000000 >&2; exit 1'", json!([]));
        assert!(long.len() < 2 * MESSAGE_BYTES && long.contains("bytes left out"), "{}", long.len());
    }
}
