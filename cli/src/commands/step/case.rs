//! One case of a step: a JSON file with the input and the expected output.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lobster_runtime::component::{
    Cancel, Ceilings, Component, DirGrant, Grants, HostCallTrace, Input, Invocation, Limits, OutputSink,
    RunError,
};
use lobster_runtime::json;
use lobster_runtime::sync::lock;
use serde::Deserialize;
use serde_json::Value;

use super::alone::Alone;
use super::exchanges::Exchanges;
use crate::render::units;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) summary: String,
    #[serde(default)]
    args: serde_json::Map<String, Value>,
    input: Option<Data>,
    /// Guest directories, and the directories next to the case file that they show.
    #[serde(default)]
    read: BTreeMap<String, PathBuf>,
    /// Guest files and their contents.
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// Variables and their values.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Hosts that may be asked; their answers are recorded next to the case.
    #[serde(default)]
    net: Vec<String>,
    /// Grants the real clock instead of the virtual one.
    #[serde(default)]
    clock: bool,
    /// Grants real randomness instead of the seeded one.
    #[serde(default)]
    random: bool,
    expect: Expect,
    /// The limits of the run.
    fuel: Option<u64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Data {
    Items(Vec<Value>),
    Text(String),
    Base64(String),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expect {
    Items(Vec<Value>),
    Text(String),
    Base64(String),
    Error { code: String, message: Option<String> },
}

/// The output of a step.
#[derive(Debug, Default, PartialEq)]
enum Given {
    #[default]
    Nothing,
    Items(Vec<Value>),
    Bytes(Vec<u8>),
}

impl OutputSink for Given {
    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Bytes(all) => all.extend_from_slice(bytes),
            Self::Nothing | Self::Items(_) => *self = Self::Bytes(bytes.to_vec()),
        }
        Ok(())
    }

    fn write_item(&mut self, text: &str) -> io::Result<()> {
        let item = json::parse(text).map_err(io::Error::other)?;
        match self {
            Self::Items(all) => all.push(item),
            Self::Nothing | Self::Bytes(_) => *self = Self::Items(vec![item]),
        }
        Ok(())
    }
}

impl Given {
    fn describe(&self) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Items(items) => items.iter().map(|item| json::compact(item) + "\n").collect(),
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        }
    }
}

impl Case {
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
        json::parse_as(&text).map_err(|error| format!("not a case: {error}"))
    }

    /// True if there is something to record: the case has hosts.
    pub(super) fn has_hosts(&self) -> bool {
        !self.net.is_empty()
    }

    /// Runs the case in `file` against a component, with the real hosts if it `records` their answers. Returns the
    /// fuel used; an error describes the difference.
    pub(super) fn run(
        &self,
        component: &Component,
        file: &Path,
        records: bool,
        cancel: Cancel,
    ) -> Result<Option<u64>, String> {
        let beside = file.parent().unwrap_or(Path::new("."));
        let exchanges = match (self.net.is_empty(), records) {
            (true, _) => None,
            (false, true) => Some(Exchanges::new_recording()),
            (false, false) => Some(Exchanges::read(file)?),
        };
        let exchanges = exchanges.map(|exchanges| Arc::new(Mutex::new(exchanges)));
        let root = tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
        let read = self
            .lay_out(root.path(), beside)
            .map_err(|error| format!("cannot lay out its files: {error}"))?;
        let given = Arc::new(Mutex::new(Given::Nothing));
        let mut invocation = Invocation::new(json::compact(&self.args), Box::new(Arc::clone(&given)));
        invocation.input = self.open_input()?;
        invocation.argv = self.argv_words();
        invocation.grants = Grants {
            read,
            env: self.env.clone().into_iter().collect(),
            net: self.net.clone(),
            clock: self.clock,
            random: self.random,
            ..Grants::default()
        };
        invocation.trace = exchanges.clone().map(|exchanges| Box::new(exchanges) as Box<dyn HostCallTrace>);
        invocation.limits = Limits::of_step(Ceilings { fuel: self.fuel, ..Ceilings::default() });
        invocation.services = Arc::new(Alone::quiet());
        invocation.cancel = cancel;
        let result = component.run(invocation);
        let given = std::mem::take(&mut *lock(&given));
        let fuel = result.as_ref().ok().map(|outcome| outcome.fuel_used);
        let result = result.and_then(|outcome| match outcome.exit_code {
            0 => Ok(()),
            code => Err(RunError::Step(lobster_runtime::component::StepError {
                code: format!("exit-{code}"),
                message: outcome.stderr_tail,
                retryable: false,
            })),
        });
        match (&self.expect, result) {
            // A run that failed does not replace a recording.
            (Expect::Items(_) | Expect::Text(_) | Expect::Base64(_), Err(error)) if records => {
                return Err(format!("failed, and nothing was recorded: {}", super::describe_error(&error)));
            }
            // A recording is checked when it is replayed, without the secrets that were left out.
            (_, _) if records => {}
            (_, result) => self.check_expectation(&given, result)?,
        }
        if let Some(exchanges) = exchanges {
            let mut exchanges = lock(&exchanges);
            std::mem::replace(&mut *exchanges, Exchanges::new_recording()).finish_case(file)?;
        }
        Ok(fuel)
    }

    fn check_expectation(&self, given: &Given, result: Result<(), RunError>) -> Result<(), String> {
        match (&self.expect, result) {
            (Expect::Error { code, message }, Err(error)) => {
                let (name, said) = match &error {
                    RunError::Step(step) => (step.code.as_str(), step.message.clone()),
                    other => (other.name(), other.to_string()),
                };
                let fits = name == code && message.as_ref().is_none_or(|part| said.contains(part.as_str()));
                if fits { Ok(()) } else { Err(format!("failed otherwise: {name}: {said}")) }
            }
            (Expect::Error { code, .. }, Ok(())) => {
                Err(format!("no error {code}; it gave\n{}", given.describe()))
            }
            (_, Err(error)) => Err(format!("failed: {}", super::describe_error(&error))),
            (Expect::Items(wanted), Ok(())) => match given {
                Given::Bytes(_) => Err(format!("items were expected; it gave bytes:\n{}", given.describe())),
                Given::Nothing if wanted.is_empty() => Ok(()),
                Given::Items(items) if items == wanted => Ok(()),
                Given::Nothing => Err(items_differ(wanted, &[])),
                Given::Items(items) => Err(items_differ(wanted, items)),
            },
            (Expect::Text(text), Ok(())) => bytes_differ(text.as_bytes(), given),
            (Expect::Base64(text), Ok(())) => {
                bytes_differ(&decode_base64(text).ok_or("`expect.base64` is not base64")?, given)
            }
        }
    }

    /// The arguments of a command program as words: `argv: [a, b]`.
    fn argv_words(&self) -> Vec<String> {
        let words = self.args.get("argv").and_then(Value::as_array);
        words.map_or_else(Vec::new, |words| words.iter().map(json::js_string).collect())
    }

    fn open_input(&self) -> Result<Input, String> {
        Ok(match &self.input {
            None => Input::Empty,
            Some(Data::Items(items)) => {
                let lines: Vec<_> = items.iter().map(|item| Ok(json::compact(item))).collect();
                Input::Items(Box::new(lines.into_iter()))
            }
            Some(Data::Text(text)) => Input::Bytes(Box::new(Cursor::new(text.clone().into_bytes()))),
            Some(Data::Base64(text)) => Input::Bytes(Box::new(Cursor::new(
                decode_base64(text).ok_or("`input.base64` is not base64")?,
            ))),
        })
    }

    /// Writes the case's files below `root` and returns the directories to grant: the outermost
    /// directory of each path, so that a file has no invented neighbours.
    fn lay_out(&self, root: &Path, beside: &Path) -> io::Result<Vec<DirGrant>> {
        let mut grants: Vec<DirGrant> = Vec::new();
        let mut grant = |guest: &str, is_file: bool| {
            let absolute = guest.starts_with('/');
            let words: Vec<&str> = guest.split('/').filter(|word| !word.is_empty()).collect();
            let top =
                if words.len() > usize::from(is_file) { words.first().copied().unwrap_or("") } else { "" };
            let name = if absolute || top.is_empty() { format!("/{top}") } else { top.to_owned() };
            if !grants.iter().any(|known| known.guest == name) {
                grants.push(DirGrant { host: root.join(top), guest: name });
            }
        };
        for (guest, host) in &self.read {
            let from = beside.join(host);
            let named = |why: io::Error| io::Error::new(why.kind(), format!("{}: {why}", from.display()));
            copy_tree(&from, &root.join(guest.trim_start_matches('/'))).map_err(named)?;
            grant(guest, false);
        }
        for (guest, contents) in &self.files {
            let at = root.join(guest.trim_start_matches('/'));
            if let Some(parent) = at.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(at, contents)?;
            grant(guest, true);
        }
        Ok(grants)
    }
}

fn items_differ(wanted: &[Value], given: &[Value]) -> String {
    if wanted.len() != given.len() {
        let lines: String = given.iter().map(|item| json::compact(item) + "\n").collect();
        return format!(
            "expected {}, {} came:\n{lines}",
            units::count_noun(wanted.len() as u64, "item"),
            given.len()
        );
    }
    let at = wanted.iter().zip(given).position(|(wanted, given)| wanted != given).unwrap_or(0);
    format!(
        "item {at} differs\nexpected {}\n   given {}",
        json::compact(&wanted[at]),
        json::compact(&given[at])
    )
}

fn bytes_differ(wanted: &[u8], given: &Given) -> Result<(), String> {
    match given {
        Given::Bytes(bytes) if bytes == wanted => Ok(()),
        Given::Nothing if wanted.is_empty() => Ok(()),
        Given::Items(_) => Err(format!("bytes were expected; it gave items:\n{}", given.describe())),
        Given::Nothing | Given::Bytes(_) => {
            Err(format!("expected\n{}\ngiven\n{}", String::from_utf8_lossy(wanted), given.describe()))
        }
    }
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy_tree(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    if let Some(parent) = to.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::copy(from, to).map(drop)
}

/// Decodes standard base64 (RFC 4648 §4); white space is skipped.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let text: String = text.split_ascii_whitespace().collect();
    STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests {
    use lobster_runtime::component::SetBy;

    use super::*;

    fn parse_case(text: &str) -> Case {
        json::parse_as(text).unwrap()
    }

    #[test]
    fn base64_is_the_standard_one() {
        assert_eq!(decode_base64("AP8Q/g==\n"), Some(vec![0, 255, 16, 254]));
        assert_eq!(decode_base64("a-b"), None);
    }

    #[test]
    fn what_comes_out_is_compared_as_a_whole() {
        let items = parse_case(r#"{"summary": "", "expect": {"items": [{"a": 1, "b": 2}]}}"#);
        let given = |text: &str| Given::Items(vec![json::parse(text).unwrap()]);
        assert_eq!(items.check_expectation(&given(r#"{"b": 2, "a": 1}"#), Ok(())), Ok(()));
        assert_eq!(
            items.check_expectation(&given("1"), Ok(())),
            Err("item 0 differs\nexpected {\"a\":1,\"b\":2}\n   given 1".to_owned())
        );
        assert!(items.check_expectation(&Given::Nothing, Ok(())).is_err());
        assert!(items.check_expectation(&Given::Bytes(b"x".to_vec()), Ok(())).is_err());

        let error =
            parse_case(r#"{"summary": "", "expect": {"error": {"code": "out-of-fuel", "message": "(7)"}}}"#);
        let out_of_fuel = |limit| RunError::OutOfFuel { limit, set_by: SetBy::Step };
        assert_eq!(error.check_expectation(&Given::Nothing, Err(out_of_fuel(7))), Ok(()));
        assert!(error.check_expectation(&Given::Nothing, Err(out_of_fuel(8))).is_err());
        assert!(error.check_expectation(&Given::Nothing, Ok(())).is_err());
    }

    #[test]
    fn files_are_laid_out_and_their_outermost_directory_is_granted() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("beside/fixtures")).unwrap();
        fs::write(dir.path().join("beside/fixtures/f"), "1").unwrap();
        let root = dir.path().join("root");
        let case = parse_case(
            r#"{"summary": "", "read": {"/data/in": "fixtures"}, "files": {"/data/x": "2", "/m/a/b": "3"}, "expect": {"text": ""}}"#,
        );
        let grants = case.lay_out(&root, &dir.path().join("beside")).unwrap();
        let wanted = ["data", "m"].map(|name| DirGrant { host: root.join(name), guest: format!("/{name}") });
        assert_eq!(grants, wanted);
        assert_eq!(fs::read_to_string(root.join("data/in/f")).unwrap(), "1");
        assert_eq!(fs::read_to_string(root.join("m/a/b")).unwrap(), "3");
        let absent = parse_case(r#"{"summary": "", "read": {"/data": "none"}, "expect": {"text": ""}}"#);
        let error = absent.lay_out(&root, &dir.path().join("beside")).unwrap_err();
        assert!(error.to_string().contains("beside/none: "), "{error}");
    }

    #[test]
    fn a_mistyped_field_is_said() {
        let error = json::parse_as::<Case>(r#"{"summary": "", "expects": {}}"#).unwrap_err().to_string();
        assert!(error.contains("expects"), "{error}");
    }
}
