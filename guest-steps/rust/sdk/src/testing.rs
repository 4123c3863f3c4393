//! Running a step natively, without a host: for unit tests and for the cases
//! under `cases/`, which `lobster step test` runs against the component too.
//!
//! A case is one JSON file:
//!
//! ```json
//! {
//!   "summary": "what it shows",
//!   "args": { "factor": 2 },
//!   "input": { "items": [{ "value": 1 }] },
//!   "read": { "/data": "fixtures/data" },
//!   "files": { "/data/extra.txt": "inline contents" },
//!   "expect": { "items": [{ "value": 2 }] },
//!   "fuel": 1000000
//! }
//! ```
//!
//! `input` is `{items}`, `{text}` or `{base64}`; without it the step has no
//! input. `read` maps guest directories to directories beside the case file,
//! `files` are files with inline contents. `expect` is `{items}`, `{text}`,
//! `{base64}` or `{error: {code, message?}}`, where `message` is a part of the
//! real message. `fuel` is the most the component may use; native runs ignore it.

pub(crate) mod fake;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use serde::Deserialize;
use serde_json::Value;

use crate::input::{Kind, Source};
use crate::output::Sink;
use crate::{Input, Output, Step, StepError};

thread_local! {
    static ROOT: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

pub(crate) fn root() -> Option<PathBuf> {
    ROOT.with_borrow(Clone::clone)
}

/// What a step is given in a test.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Data {
    /// JSON items.
    Items(Vec<Value>),
    /// UTF-8 bytes.
    Text(String),
    /// Any bytes.
    Base64(String),
}

impl Data {
    fn bytes(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::Items(items) => Ok(items.iter().map(|item| format!("{item}\n")).collect::<String>().into()),
            Self::Text(text) => Ok(text.clone().into_bytes()),
            Self::Base64(text) => base64(text).ok_or_else(|| "bad base64".to_owned()),
        }
    }
}

/// What a step gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Given {
    /// Neither items nor bytes.
    #[default]
    Nothing,
    /// Items, in order.
    Items(Vec<Value>),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Given {
    /// The bytes as text, for assertions; items as JSON Lines.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// The bytes; items as JSON Lines.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Items(items) => {
                items.iter().map(|item| format!("{item}\n")).collect::<String>().into_bytes()
            }
            Self::Bytes(bytes) => bytes.clone(),
        }
    }
}

/// Runs a step with these arguments and this input.
///
/// # Errors
/// What the step failed with.
pub fn run<S: Step>(args: &Value, input: Option<Data>) -> Result<Given, StepError> {
    let given = Rc::new(RefCell::new(Given::Nothing));
    let mut input = Input::new(Box::new(TestInput::new(input).map_err(StepError::bad_input)?));
    let mut output = Output::new(Box::new(TestOutput(Rc::clone(&given))));
    crate::run::<S>(&args.to_string(), &mut input, &mut output)?;
    drop(output);
    Ok(given.take())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "summary")]
    _summary: String,
    #[serde(default = "no_args")]
    args: Value,
    input: Option<Data>,
    #[serde(default)]
    read: BTreeMap<String, PathBuf>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    expect: Expect,
    #[serde(rename = "fuel")]
    _fuel: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Expect {
    Items(Vec<Value>),
    Text(String),
    Base64(String),
    Error { code: String, message: Option<String> },
}

fn no_args() -> Value {
    Value::Object(serde_json::Map::new())
}

/// Runs every case of a directory and panics with all that differ.
///
/// # Panics
/// If a case fails or cannot be read, or if there is none.
pub fn run_cases<S: Step>(directory: impl AsRef<Path>) {
    let directory = directory.as_ref();
    let mut cases: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    cases.sort();
    assert!(!cases.is_empty(), "no cases in {}", directory.display());
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|path| run_case::<S>(path).err().map(|why| format!("{}: {why}", path.display())))
        .collect();
    assert!(failures.is_empty(), "{} of {} cases fail\n{}", failures.len(), cases.len(), failures.join("\n"));
}

fn run_case<S: Step>(path: &Path) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let case: Case = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let beside = path.parent().unwrap_or(Path::new("."));
    let root = lay_out(&case, beside).map_err(|error| error.to_string())?;
    ROOT.set(Some(root.path().to_owned()));
    let result = run::<S>(&case.args, case.input);
    ROOT.set(None);
    match (case.expect, result) {
        (Expect::Error { code, message }, Err(error)) => {
            let fits = error.code == code && message.is_none_or(|part| error.message.contains(&part));
            if fits { Ok(()) } else { Err(format!("failed otherwise: {error}")) }
        }
        (Expect::Error { code, .. }, Ok(given)) => Err(format!("no `{code}`, but gave\n{}", given.text())),
        (_, Err(error)) => Err(format!("failed: {error}")),
        (Expect::Items(wanted), Ok(given)) => {
            let items = match given {
                Given::Nothing => Vec::new(),
                Given::Items(items) => items,
                Given::Bytes(_) => return Err(format!("gave bytes: {}", given.text())),
            };
            same(&wanted, &items)
        }
        (Expect::Text(wanted), Ok(given)) => same(&wanted, &given.text()),
        (Expect::Base64(wanted), Ok(given)) => same(&Data::Base64(wanted).bytes()?, &given.bytes()),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(wanted: &T, given: &T) -> Result<(), String> {
    if wanted == given { Ok(()) } else { Err(format!("wanted\n  {wanted:#?}\ngave\n  {given:#?}")) }
}

/// Lays the case's directories out below a temporary root.
fn lay_out(case: &Case, beside: &Path) -> std::io::Result<tempfile::TempDir> {
    let root = tempfile::tempdir()?;
    for (guest, host) in &case.read {
        let at = root.path().join(guest.trim_start_matches('/'));
        copy(&beside.join(host), &at)?;
    }
    for (guest, contents) in &case.files {
        let at = root.path().join(guest.trim_start_matches('/'));
        if let Some(parent) = at.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(at, contents)?;
    }
    Ok(root)
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    if from.is_dir() {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    fs::copy(from, to).map(drop)
}

struct TestInput {
    kind: Kind,
    items: std::vec::IntoIter<Value>,
    bytes: std::io::Cursor<Vec<u8>>,
}

impl TestInput {
    fn new(data: Option<Data>) -> Result<Self, String> {
        let kind = match &data {
            None => Kind::Empty,
            Some(Data::Items(_)) => Kind::Items,
            Some(_) => Kind::Bytes,
        };
        let bytes = data.as_ref().map(Data::bytes).transpose()?.unwrap_or_default();
        let items = match data {
            None => Vec::new(),
            Some(Data::Items(items)) => items,
            // The contract: bytes are one text item.
            Some(_) => vec![Value::String(String::from_utf8_lossy(&bytes).into_owned())],
        };
        Ok(Self { kind, items: items.into_iter(), bytes: std::io::Cursor::new(bytes) })
    }
}

impl Source for TestInput {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn read(&mut self, max: u32) -> Result<Vec<u8>, StepError> {
        let mut chunk = vec![0; max as usize];
        let length = std::io::Read::read(&mut self.bytes, &mut chunk)?;
        chunk.truncate(length);
        Ok(chunk)
    }

    fn next(&mut self, max: u32) -> Result<Vec<String>, StepError> {
        Ok(self.items.by_ref().take(max as usize).map(|item| item.to_string()).collect())
    }
}

struct TestOutput(Rc<RefCell<Given>>);

impl Sink for TestOutput {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StepError> {
        let given = &mut *self.0.borrow_mut();
        match given {
            Given::Nothing => *given = Given::Bytes(bytes.to_vec()),
            Given::Bytes(all) => all.extend(bytes),
            Given::Items(_) => return Err(StepError::new("mixed-output", "bytes after items")),
        }
        Ok(())
    }

    fn emit(&mut self, items: &[String]) -> Result<(), StepError> {
        let given = &mut *self.0.borrow_mut();
        if *given == Given::Nothing {
            *given = Given::Items(Vec::new());
        }
        let Given::Items(all) = given else {
            return Err(StepError::new("mixed-output", "items after bytes"));
        };
        for item in items {
            all.push(
                serde_json::from_str(item)
                    .map_err(|error| StepError::new("invalid-json", error.to_string()))?,
            );
        }
        Ok(())
    }
}

/// Standard base64 (RFC 4648 §4); whitespace is skipped.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut held) = (0_u32, 0_u32);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=') {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_standard_one() {
        assert_eq!(base64("AP8Q/g==\n"), Some(vec![0, 255, 16, 254]));
        assert_eq!(base64(""), Some(Vec::new()));
        assert_eq!(base64("a-b"), None);
    }
}
