//! `--events` and `LOBSTER_EVENTS`: prints the events of a run as lines while it runs.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;

use lobster_runtime::events::EventLines;
use lobster_runtime::runtime::Runtime;
use lobster_runtime::setting::Setting;

use crate::exit::CommandError;
use crate::render::print_to_stderr;

/// The setting for all runs; only the operator can set it.
pub(crate) const SETTING: Setting<String> =
    Setting::new("LOBSTER_EVENTS", FORM, |text| parse_destination("", text).is_ok().then(|| text.to_owned()));

/// The accepted forms of the setting.
const FORM: &str = "jsonl or jsonl:FILE";

/// The destination of the lines.
#[derive(Debug, PartialEq)]
enum Destination<'a> {
    Stderr,
    File(&'a str),
}

/// Parses `jsonl` or `jsonl:FILE`.
fn parse_destination<'a>(name: &str, value: &'a str) -> Result<Destination<'a>, CommandError> {
    match value.split_once(':') {
        None if value == "jsonl" => Ok(Destination::Stderr),
        Some(("jsonl", file)) if !file.is_empty() => Ok(Destination::File(file)),
        _ => Err(CommandError::usage(format!("{name} must be {FORM}, not {value:?}"))),
    }
}

/// Writes the events of this process's runs, if that is requested.
///
/// # Errors
/// The requested format is invalid, or the file cannot be opened. Under a policy a file named on the
/// command line is refused: a program that may only start lobster could use it to write outside the
/// policy.
pub(crate) fn start_writing(runtime: &Runtime, flag: Option<&str>) -> Result<(), CommandError> {
    let variable = SETTING.read_env(|name| std::env::var_os(name))?;
    let (name, value) = match (flag, &variable) {
        (Some(value), _) => ("--events", value),
        (None, Some(value)) => (SETTING.name, value.as_str()),
        (None, None) => return Ok(()),
    };
    let lines = match parse_destination(name, value)? {
        Destination::Stderr => EventLines::new(std::io::stderr(), |_| ()),
        Destination::File(file) => {
            if flag.is_some() && !runtime.policy().is_open() {
                return Err(CommandError::usage(format!(
                    "--events jsonl:FILE writes a file that no policy is asked about, and there is a policy: \
                     the operator names the file with {}",
                    SETTING.name
                )));
            }
            // Another user may have put a link there.
            let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
            let mut options = OpenOptions::new();
            let opened = options.append(true).create(true).mode(0o600).custom_flags(flags).open(file);
            let opened = opened
                .map_err(|error| CommandError::usage(format!("{name}: {file} cannot be written: {error}")))?;
            let file = file.to_owned();
            EventLines::new(opened, move |why| {
                print_to_stderr(&format!("warning: no more events are written to {file}: {why}"));
            })
        }
    };
    runtime.store()?.add_witness(lines);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_may_name_a_file() {
        let parsed = |value| parse_destination("--events", value).map_err(|error| error.message);
        assert_eq!(parsed("jsonl"), Ok(Destination::Stderr));
        assert_eq!(parsed("jsonl:a:b"), Ok(Destination::File("a:b")));
        for wrong in ["", "json", "jsonl:", "events.jsonl"] {
            assert_eq!(
                parsed(wrong),
                Err(format!("--events must be jsonl or jsonl:FILE, not {wrong:?}")),
                "{wrong}"
            );
        }
    }
}
