//! Other programs that stages start without a shell: `gog`, `gh`, `openclaw`.

use lobster_base::code::Code;
use std::io::Read;

use lobster_base::text::{self, Count};
use lobster_stage::{Host, NativeCommand, Payload, Program, StageError, Stop};

/// Exit status of a program and its output as text.
pub(super) struct Finished {
    pub(super) exit: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Finished {
    pub(super) fn has_succeeded(&self) -> bool {
        self.exit == Some(0)
    }

    /// The failure of `program`, which said this.
    pub(super) fn failure(&self, program: &str, said: &str) -> StageError {
        let said = text::prefix(said, 400, Count::Chars);
        StageError::new(format!("{program} failed ({}): {said}", self.exit_code()))
            .with_code(Code::CommandFailed)
    }

    /// The exit code for messages.
    pub(super) fn exit_code(&self) -> String {
        self.exit.map_or_else(|| "?".to_owned(), |code| code.to_string())
    }
}

/// Runs `argv` until it ends. `explain` may replace the message of a failed start or of an exceeded
/// output cap. If `dispatches`, it sends a message: once started, no retry repeats it, and stopping it
/// leaves unknown whether the message went out.
pub(super) fn run(
    host: &mut dyn Host,
    argv: Vec<String>,
    max_output: Option<u64>,
    dispatches: bool,
    explain: impl Fn(&StageError) -> Option<String>,
) -> Result<Finished, Stop> {
    let finished = run_program(host, argv, max_output, dispatches);
    let is_missing =
        |stop: &Stop| matches!(stop, Stop::Failed(error) if error.has_code(Code::ProgramNotFound));
    if dispatches && !finished.as_ref().is_err_and(is_missing) {
        host.no_retry();
    }
    finished.map_err(|stop| {
        stop.map_failure(|error| match explain(&error) {
            Some(message) => error.with_message(message),
            None => error,
        })
    })
}

fn run_program(
    host: &mut dyn Host,
    argv: Vec<String>,
    max_output: Option<u64>,
    dispatches: bool,
) -> Result<Finished, Stop> {
    if let Some(word) = argv.iter().find(|word| word.len() > MAX_WORD || word.contains('\0')) {
        return Err(StageError::permanent(format!(
            "an argument for {} cannot be passed to a process: it has {} bytes, at most {MAX_WORD} without NUL are possible",
            argv[0],
            word.len(),
        ))
        .into());
    }
    let program = Program::Argv(argv);
    let command = NativeCommand { program, stdin: None, max_output, json: false, dispatches };
    let outcome = host.run_native(command)?;
    Ok(Finished {
        exit: outcome.exit,
        stdout: payload_text(&outcome.stdout)?,
        stderr: payload_text(&outcome.stderr)?,
    })
}

/// Most bytes of one argument that Linux accepts (`MAX_ARG_STRLEN`, less the final NUL).
const MAX_WORD: usize = 128 * 1024 - 1;

/// The whole text of `payload`, with U+FFFD for invalid UTF-8.
fn payload_text(payload: &Payload) -> Result<String, StageError> {
    let mut bytes = Vec::new();
    payload
        .open()
        .and_then(|mut reader| reader.read_to_end(&mut bytes))
        .map_err(|error| StageError::new(format!("cannot read back what the program wrote: {error}")))?;
    Ok(String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

/// The words that start a program: a Node script is run by Node.
pub(super) fn program_words(bin: String) -> Vec<String> {
    let is_script = [".mjs", ".cjs", ".js", ".ts"].iter().any(|suffix| bin.ends_with(suffix));
    if is_script { vec!["node".to_owned(), bin] } else { vec![bin] }
}

/// An option with its value: one word if the value could be taken for an option itself.
pub(super) fn option_words(name: &str, value: &str) -> Vec<String> {
    if value.starts_with('-') {
        vec![format!("{name}={value}")]
    } else {
        vec![name.to_owned(), value.to_owned()]
    }
}
