//! Files that a command reads at run time, through the journal: a replay must see the same bytes.

use std::io::Read;

use serde_json::{Value, json};

use lobster_models::attachment::{Attachment, MAX_FILE};
use lobster_stage::{EffectAction, Host, StageError, Stop};

/// The text of a file.
pub(super) fn read_text(
    command: &str,
    option: &str,
    path: &str,
    host: &mut dyn Host,
) -> Result<String, Stop> {
    let text = read_file(command, option, path, "read_file", host, &|bytes| {
        String::from_utf8(bytes).map(Value::from).map_err(|_| "is not text in UTF-8".to_owned())
    })?;
    match text {
        Value::String(text) => Ok(text),
        _ => Err(StageError::new(format!("{command} --{option} {path} was not read")).into()),
    }
}

/// A file sent with the prompt.
pub(super) fn read_attachment(command: &str, path: &str, host: &mut dyn Host) -> Result<Attachment, Stop> {
    let name = path.rsplit('/').next().unwrap_or(path).to_owned();
    let file = read_file(command, "file", path, "read_attachment", host, &|bytes| {
        Ok(json!(Attachment::of_bytes(&name, bytes)?))
    })?;
    serde_json::from_value(file)
        .map_err(|error| StageError::new(format!("{command} --file {path} was not read: {error}")).into())
}

fn read_file(
    command: &str,
    option: &str,
    path: &str,
    kind: &str,
    host: &mut dyn Host,
    make: &dyn Fn(Vec<u8>) -> Result<Value, String>,
) -> Result<Value, Stop> {
    let detail = json!({"path": path, "cwd": host.working_dir()});
    let action = EffectAction { kind: kind.to_owned(), detail, idempotent: true };
    host.perform_effect(action, &mut |effect| {
        let wrong = |why: String| StageError::permanent(format!("{command} --{option} {path}: {why}"));
        let mut file = (effect.open)(&effect.cwd.join(path)).map_err(|error| wrong(error.to_string()))?;
        let size = file.metadata().map_err(|error| wrong(error.to_string()))?.len();
        if size > MAX_FILE {
            return Err(wrong(format!("has {size} bytes; a model takes at most {MAX_FILE}")));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| wrong(error.to_string()))?;
        make(bytes).map_err(wrong)
    })
}
