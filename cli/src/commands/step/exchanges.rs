//! What a case's step asked over HTTP and was answered: recorded once against the world, then
//! answered from the file for ever.
//!
//! The file is `cases/recorded/NAME.json`. Headers that carry secrets are not kept, and
//! requests are compared without them.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lobster_runtime::component::{HostCall, HostCallTrace};
use lobster_runtime::json;
use serde::{Deserialize, Serialize};

use crate::files::replace_file;

/// The name of an HTTP request among the calls of a component.
const HTTP: &str = "http";

/// How the answer to a request that failed begins.
const FAILED: u8 = b'!';

/// What stands in place of a secret.
const HIDDEN: &str = "(not recorded)";

/// What the name of a header has, in lower case, whose value may open a door.
const SECRET_NAMES: &[&str] =
    &["auth", "cookie", "credential", "key", "passw", "secret", "session", "signature", "token"];

/// A request and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exchange {
    request: Request,
    answer: Answer,
}

/// A request as the component layer tells it; of the body only its BLAKE3.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Request {
    method: String,
    uri: String,
    headers: Vec<(String, String)>,
    body: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Answer {
    Response {
        status: u16,
        headers: Vec<(String, String)>,
        body: Body,
    },
    /// What went wrong, in a word of the component layer's.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Body {
    Text(String),
    Base64(String),
}

#[derive(Serialize, Deserialize)]
struct Head {
    status: u16,
    headers: Vec<(String, String)>,
}

/// The recording of one case, being made or being answered from.
pub(super) enum Exchanges {
    Recording(Vec<Exchange>),
    Recorded { left: VecDeque<Exchange>, answered: usize },
}

/// Where the recording of a case is.
pub(super) fn file_of(case: &Path) -> PathBuf {
    let name = case.file_name().unwrap_or_default();
    case.parent().unwrap_or(Path::new(".")).join("recorded").join(name)
}

impl Exchanges {
    pub(super) fn recording() -> Self {
        Self::Recording(Vec::new())
    }

    /// The recording of a case.
    pub(super) fn read(case: &Path) -> Result<Self, String> {
        let file = file_of(case);
        let text = fs::read_to_string(&file).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                "its answers are not recorded yet: `lobster step test --record` asks the world once"
                    .to_owned()
            }
            _ => format!("{}: {error}", file.display()),
        })?;
        let left = json::parse_as(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Self::Recorded { left, answered: 0 })
    }

    /// Keeps what was recorded, or says what the step did not ask any more.
    pub(super) fn finish(self, case: &Path) -> Result<(), String> {
        match self {
            Self::Recording(all) => {
                let file = file_of(case);
                replace_file(&file, &(json::pretty(&all) + "\n"))
                    .map_err(|error| format!("{}: {error}", file.display()))
            }
            Self::Recorded { left, .. } => match left.front() {
                None => Ok(()),
                Some(next) => Err(format!(
                    "the recording has {} here, and the step asks nothing more; `--record` records it again",
                    told(&next.request)
                )),
            },
        }
    }

    fn next(&mut self, asked: &Request) -> Result<Option<Vec<u8>>, String> {
        let Self::Recorded { left, answered } = self else { return Ok(None) };
        let number = *answered + 1;
        let again = "`lobster step test --record` records it again";
        let Some(next) = left.front() else {
            return Err(format!("{} is asked for, and the recording ends before it; {again}", told(asked)));
        };
        if next.request != *asked {
            return Err(format!(
                "request {number} is {}; {}; {again}",
                told(asked),
                differs(&next.request, asked)
            ));
        }
        *answered += 1;
        left.pop_front().map(|exchange| exchange.answer.bytes()).transpose()
    }
}

impl HostCallTrace for Exchanges {
    fn recorded(&mut self, call: &HostCall<'_>) -> Result<Option<Vec<u8>>, String> {
        // Clock and randomness are what the case grants.
        if call.function != HTTP {
            return Ok(None);
        }
        self.next(&Request::of(call.request)?)
    }

    fn record(&mut self, call: &HostCall<'_>, answer: &[u8]) {
        let Self::Recording(all) = self else { return };
        if call.function == HTTP
            && let (Ok(request), Some(answer)) = (Request::of(call.request), Answer::of(answer))
        {
            all.push(Exchange { request, answer });
        }
    }
}

impl Request {
    fn of(bytes: &[u8]) -> Result<Self, String> {
        let mut request: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        hide(&mut request.headers);
        // The order in which a program sets headers means nothing.
        request.headers.sort();
        Ok(request)
    }
}

impl Answer {
    /// The head as JSON, a line end, the body; or a word behind `!`.
    fn of(bytes: &[u8]) -> Option<Self> {
        if let Some((&FAILED, name)) = bytes.split_first() {
            return Some(Self::Failed(String::from_utf8_lossy(name).into_owned()));
        }
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let Head { status, mut headers } = serde_json::from_slice(bytes.get(..end)?).ok()?;
        hide(&mut headers);
        let body = bytes.get(end + 1..)?;
        let body = match std::str::from_utf8(body) {
            Ok(text) => Body::Text(text.to_owned()),
            Err(_) => Body::Base64(STANDARD.encode(body)),
        };
        Some(Self::Response { status, headers, body })
    }

    fn bytes(self) -> Result<Vec<u8>, String> {
        let (status, headers, body) = match self {
            Self::Failed(name) => return Ok([&[FAILED], name.as_bytes()].concat()),
            Self::Response { status, headers, body } => (status, headers, body),
        };
        let mut bytes = serde_json::to_vec(&Head { status, headers }).map_err(|error| error.to_string())?;
        bytes.push(b'\n');
        match body {
            Body::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            Body::Base64(text) => {
                let body = STANDARD
                    .decode(text)
                    .map_err(|error| format!("a recorded body is no base64: {error}"))?;
                bytes.extend_from_slice(&body);
            }
        }
        Ok(bytes)
    }
}

fn hide(headers: &mut [(String, String)]) {
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        if SECRET_NAMES.iter().any(|secret| name.contains(secret)) {
            HIDDEN.clone_into(value);
        }
    }
}

fn told(request: &Request) -> String {
    format!("{} {}", request.method, request.uri)
}

/// What of a request is not as it was recorded.
fn differs(recorded: &Request, asked: &Request) -> String {
    if told(recorded) != told(asked) {
        return format!("the recording has {} here", told(recorded));
    }
    if recorded.body != asked.body {
        return "its body is not the recorded one".to_owned();
    }
    let known = |headers: &[(String, String)], header| headers.contains(header);
    let new = asked.headers.iter().find(|header| !known(&recorded.headers, header));
    let gone = recorded.headers.iter().find(|header| !known(&asked.headers, header));
    match (new, gone) {
        (Some((name, value)), _) => format!("the recording does not have its header {name}: {value}"),
        (None, Some((name, value))) => format!("it lacks the recorded header {name}: {value}"),
        (None, None) => "its headers are not the recorded ones".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> serde_json::Value {
        json::parse(text).unwrap()
    }

    fn call(uri: &str, token: &str) -> Vec<u8> {
        let asked = serde_json::json!({
            "method": "GET", "uri": uri, "headers": [["b", "2"], ["Authorization", token], ["X-Goog-Api-Key", token], ["x-vault-token", token], ["a", "1"]], "body": "00",
        });
        serde_json::to_vec(&asked).unwrap()
    }

    fn ask(trace: &mut Exchanges, request: &[u8]) -> Result<Option<Vec<u8>>, String> {
        trace.recorded(&HostCall { function: HTTP, request })
    }

    #[test]
    fn what_was_answered_once_is_answered_again_without_any_secret() {
        let dir = tempfile::tempdir().unwrap();
        let case = dir.path().join("get.json");
        let mut trace = Exchanges::recording();
        for (answer, token) in [
            (
                b"{\"status\":200,\"headers\":[[\"set-cookie\",\"s3cret\"]]}\nhello \xff".as_slice(),
                "s3cret-1",
            ),
            (b"{\"status\":200,\"headers\":[]}\nhello", "s3cret-2"),
            (b"!refused", "s3cret-3"),
        ] {
            let request = call("https://a/b", token);
            assert_eq!(ask(&mut trace, &request), Ok(None));
            trace.record(&HostCall { function: HTTP, request: &request }, answer);
        }
        trace.finish(&case).unwrap();
        let kept = fs::read_to_string(file_of(&case)).unwrap();
        assert!(!kept.contains("s3cret"), "{kept}");
        assert_eq!(value(&kept).as_array().map(Vec::len), Some(3));

        let mut trace = Exchanges::read(&case).unwrap();
        let first = ask(&mut trace, &call("https://a/b", "another")).unwrap().unwrap();
        assert!(first.ends_with(b"\nhello \xff"), "{first:?}");
        assert_eq!(
            ask(&mut trace, &call("https://a/b", "x")).unwrap().unwrap(),
            b"{\"status\":200,\"headers\":[]}\nhello"
        );
        let other = ask(&mut trace, &call("https://a/c", "x")).unwrap_err();
        assert!(other.contains("request 3 is GET https://a/c; the recording has GET https://a/b"), "{other}");
        let left = Exchanges::read(&case).unwrap().finish(&case).unwrap_err();
        assert!(left.contains("asks nothing more"), "{left}");
    }
}
