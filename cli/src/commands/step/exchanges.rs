//! HTTP requests of a case's step with their answers: recorded once from the real hosts, then replayed
//! from the file.
//!
//! The file is `cases/recorded/NAME.json`. Headers with secrets are not stored, and requests are
//! compared without them.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lobster_runtime::component::{HostCall, HostCallTrace};
use lobster_runtime::json;
use serde::{Deserialize, Serialize};

use crate::whole_files::replace_file;

/// The name of an HTTP request among the calls of a component.
const HTTP: &str = "http";

/// The first byte of the answer to a failed request.
const FAILED: u8 = b'!';

/// The text that replaces a secret.
const HIDDEN: &str = "(not recorded)";

/// Parts of header names, in lower case, whose values may be secrets.
const SECRET_NAMES: &[&str] =
    &["auth", "cookie", "credential", "key", "passw", "secret", "session", "signature", "token"];

/// A request and its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exchange {
    request: Request,
    answer: Answer,
}

/// A request as reported by the component layer; of the body only its BLAKE3.
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
    /// The failure, in a word of the component layer.
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

/// The recording of one case, either being made or being replayed.
pub(super) enum Exchanges {
    Recording(Vec<Exchange>),
    Recorded { all: Vec<Exchange>, answered: usize },
}

/// The file of a case's recording.
pub(super) fn file_of(case: &Path) -> PathBuf {
    let name = case.file_name().unwrap_or_default();
    case.parent().unwrap_or(Path::new(".")).join("recorded").join(name)
}

impl Exchanges {
    pub(super) fn new_recording() -> Self {
        Self::Recording(Vec::new())
    }

    /// The recording of a case.
    pub(super) fn read(case: &Path) -> Result<Self, String> {
        let file = file_of(case);
        let text = fs::read_to_string(&file).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                "its answers are not recorded yet; `lobster step test --record` sends the requests once and \
                 records them"
                    .to_owned()
            }
            _ => format!("{}: {error}", file.display()),
        })?;
        let all = json::parse_as(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(Self::Recorded { all, answered: 0 })
    }

    /// Saves the recording, or reports recorded requests that the step no longer sends.
    pub(super) fn finish_case(self, case: &Path) -> Result<(), String> {
        match self {
            Self::Recording(all) => {
                let file = file_of(case);
                replace_file(&file, &(json::pretty(&all) + "\n"))
                    .map_err(|error| format!("{}: {error}", file.display()))
            }
            Self::Recorded { all, answered } => match all.get(answered) {
                None => Ok(()),
                Some(next) => Err(format!(
                    "the recording has {} here, and the step asks nothing more; `--record` records it again",
                    request_line(&next.request)
                )),
            },
        }
    }

    fn next(&mut self, asked: &Request) -> Result<Option<Vec<u8>>, String> {
        let Self::Recorded { all, answered } = self else { return Ok(None) };
        let Some(next) = all.get(*answered).filter(|next| next.request == *asked) else {
            return Err(format!(
                "request {} is {}; {}; `lobster step test --record` records it again",
                *answered + 1,
                request_line(asked),
                explain_mismatch(all, *answered, asked)
            ));
        };
        *answered += 1;
        next.answer.clone().into_bytes().map(Some)
    }
}

impl HostCallTrace for Exchanges {
    fn recorded_answer(&mut self, call: &HostCall<'_>) -> Result<Option<Vec<u8>>, String> {
        // Clock and randomness are granted by the case.
        if call.function != HTTP {
            return Ok(None);
        }
        self.next(&Request::from_bytes(call.request)?)
    }

    fn record_answer(&mut self, call: &HostCall<'_>, answer: &[u8]) {
        let Self::Recording(all) = self else { return };
        if call.function == HTTP
            && let (Ok(request), Some(answer)) =
                (Request::from_bytes(call.request), Answer::from_bytes(answer))
        {
            all.push(Exchange { request, answer });
        }
    }
}

impl Request {
    fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let mut request: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        hide_secrets(&mut request.headers);
        // The order in which a program sets headers has no meaning.
        request.headers.sort();
        Ok(request)
    }
}

impl Answer {
    /// Parses the head as JSON, a newline and the body; or a word after `!`.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if let Some((&FAILED, name)) = bytes.split_first() {
            return Some(Self::Failed(String::from_utf8_lossy(name).into_owned()));
        }
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let Head { status, mut headers } = serde_json::from_slice(bytes.get(..end)?).ok()?;
        hide_secrets(&mut headers);
        let body = bytes.get(end + 1..)?;
        let body = match std::str::from_utf8(body) {
            Ok(text) => Body::Text(text.to_owned()),
            Err(_) => Body::Base64(STANDARD.encode(body)),
        };
        Some(Self::Response { status, headers, body })
    }

    fn into_bytes(self) -> Result<Vec<u8>, String> {
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
                    .map_err(|error| format!("a recorded body is not base64: {error}"))?;
                bytes.extend_from_slice(&body);
            }
        }
        Ok(bytes)
    }
}

fn hide_secrets(headers: &mut [(String, String)]) {
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        if SECRET_NAMES.iter().any(|secret| name.contains(secret)) {
            HIDDEN.clone_into(value);
        }
    }
}

fn request_line(request: &Request) -> String {
    format!("{} {}", request.method, request.uri)
}

/// The reason why a request is not the next one of the recording after `answered` others: its position,
/// or the differences from the most similar recorded request.
fn explain_mismatch(all: &[Exchange], answered: usize, asked: &Request) -> String {
    if let Some(at) = all.iter().skip(answered).position(|exchange| exchange.request == *asked) {
        let at = answered + at + 1;
        let before = all.get(answered).map_or_else(String::new, |exchange| request_line(&exchange.request));
        return format!("the recording has it as request {at}, after {before}");
    }
    if let Some(at) = all.iter().take(answered).position(|exchange| exchange.request == *asked) {
        return format!("it is recorded once, as request {}, which was already used", at + 1);
    }
    // Among equals the next request of the recording wins, then the first unused one.
    let order = (answered..all.len()).chain(0..answered);
    let nearest = order.filter_map(|at| Some((at, &all.get(at)?.request)));
    let Some((at, nearest)) = nearest.min_by_key(|(_, recorded)| request_distance(recorded, asked)) else {
        return "the recording is empty".to_owned();
    };
    let ends = if answered == all.len() { "the recording ends before it; " } else { "" };
    format!(
        "{ends}the nearest recorded one is request {}, {}: {}",
        at + 1,
        request_line(nearest),
        list_differences(nearest, asked).join("; ")
    )
}

/// The distance between two requests. The address weighs most, then the method, the body, the headers.
fn request_distance(recorded: &Request, asked: &Request) -> (usize, bool, bool, usize) {
    let (recorded_at, at) = (Address::from_uri(&recorded.uri), Address::from_uri(&asked.uri));
    let host = usize::from(recorded_at.host != at.host) * 4;
    let path = usize::from(recorded_at.path != at.path) * 2;
    let query = usize::from(recorded_at.query != at.query);
    let headers = asked.headers.iter().filter(|header| !recorded.headers.contains(header)).count()
        + recorded.headers.iter().filter(|header| !asked.headers.contains(header)).count();
    (host + path + query, recorded.method != asked.method, recorded.body != asked.body, headers)
}

/// The compared parts of an address.
struct Address<'u> {
    host: &'u str,
    path: &'u str,
    query: Vec<&'u str>,
}

impl<'u> Address<'u> {
    fn from_uri(uri: &'u str) -> Self {
        let (before, query) = uri.split_once('?').unwrap_or((uri, ""));
        let begin = before.find("://").map_or(0, |at| at + 3);
        let end = before[begin..].find('/').map_or(before.len(), |at| begin + at);
        let (host, path) = before.split_at(end);
        Self { host, path, query: query.split('&').filter(|part| !part.is_empty()).collect() }
    }
}

/// The differences between a request and the recorded one, with both sides. Never empty for requests
/// that differ.
fn list_differences(recorded: &Request, asked: &Request) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: &str, recorded: &str, asked: &str| {
        if recorded != asked {
            found.push(format!("its {what} was {recorded}, now {asked}"));
        }
    };
    compare("method", &recorded.method, &asked.method);
    let (before, now) = (Address::from_uri(&recorded.uri), Address::from_uri(&asked.uri));
    compare("host", before.host, now.host);
    compare("path", before.path, now.path);
    for (part, gone) in only_in(&before.query, &now.query) {
        found.push(if gone {
            format!("it had {part} in its query")
        } else {
            format!("{part} is new in its query")
        });
    }
    if recorded.body != asked.body {
        found.push("its body is not the recorded one".to_owned());
    }
    for ((name, value), gone) in only_in(&recorded.headers, &asked.headers) {
        let header = format!("header {name}: {value}");
        found.push(if gone {
            format!("it lacks the recorded {header}")
        } else {
            format!("its {header} is new")
        });
    }
    if found.is_empty() {
        found.push("the order of its query parameters or headers differs".to_owned());
    }
    found
}

/// The elements of only one of two lists; `true` if the first list has it.
fn only_in<'t, T: PartialEq>(before: &'t [T], now: &'t [T]) -> Vec<(&'t T, bool)> {
    let gone = before.iter().filter(|part| !now.contains(part)).map(|part| (part, true));
    let new = now.iter().filter(|part| !before.contains(part)).map(|part| (part, false));
    gone.chain(new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_json(text: &str) -> serde_json::Value {
        json::parse(text).unwrap()
    }

    fn call_bytes(uri: &str, token: &str) -> Vec<u8> {
        let asked = serde_json::json!({
            "method": "GET", "uri": uri, "headers": [["b", "2"], ["Authorization", token], ["X-Goog-Api-Key", token], ["x-vault-token", token], ["a", "1"]], "body": "00",
        });
        serde_json::to_vec(&asked).unwrap()
    }

    fn ask_trace(trace: &mut Exchanges, request: &[u8]) -> Result<Option<Vec<u8>>, String> {
        trace.recorded_answer(&HostCall { function: HTTP, request })
    }

    #[test]
    fn what_was_answered_once_is_answered_again_without_any_secret() {
        let dir = tempfile::tempdir().unwrap();
        let case = dir.path().join("get.json");
        let mut trace = Exchanges::new_recording();
        for (answer, token) in [
            (
                b"{\"status\":200,\"headers\":[[\"set-cookie\",\"s3cret\"]]}\nhello \xff".as_slice(),
                "s3cret-1",
            ),
            (b"{\"status\":200,\"headers\":[]}\nhello", "s3cret-2"),
            (b"!refused", "s3cret-3"),
        ] {
            let request = call_bytes("https://a/b", token);
            assert_eq!(ask_trace(&mut trace, &request), Ok(None));
            trace.record_answer(&HostCall { function: HTTP, request: &request }, answer);
        }
        trace.finish_case(&case).unwrap();
        let kept = fs::read_to_string(file_of(&case)).unwrap();
        assert!(!kept.contains("s3cret"), "{kept}");
        assert_eq!(parse_json(&kept).as_array().map(Vec::len), Some(3));

        let mut trace = Exchanges::read(&case).unwrap();
        let first = ask_trace(&mut trace, &call_bytes("https://a/b", "another")).unwrap().unwrap();
        assert!(first.ends_with(b"\nhello \xff"), "{first:?}");
        assert_eq!(
            ask_trace(&mut trace, &call_bytes("https://a/b", "x")).unwrap().unwrap(),
            b"{\"status\":200,\"headers\":[]}\nhello"
        );
        let other = ask_trace(&mut trace, &call_bytes("https://a/c", "x")).unwrap_err();
        assert_eq!(
            other,
            "request 3 is GET https://a/c; the nearest recorded one is request 3, GET https://a/b: its path was /b, \
             now /c; `lobster step test --record` records it again"
        );
        let left = Exchanges::read(&case).unwrap().finish_case(&case).unwrap_err();
        assert!(left.contains("asks nothing more"), "{left}");
    }
    #[test]
    fn a_request_that_is_not_recorded_is_held_against_the_nearest_one() {
        let exchange = |method: &str, uri: &str, headers: &[(&str, &str)], body: &str| Exchange {
            request: Request {
                method: method.to_owned(),
                uri: uri.to_owned(),
                headers: headers
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
                body: body.to_owned(),
            },
            answer: Answer::Failed("refused".to_owned()),
        };
        let all = [
            exchange("GET", "https://a.example/list?page=1&size=9", &[("accept", "text/csv")], "00"),
            exchange("GET", "https://a.example/list?page=2&size=9", &[], "00"),
            exchange("POST", "https://a.example/add", &[], "00"),
        ];
        for (answered, asked, wanted) in [
            (
                0,
                exchange("GET", "https://a.example/list?size=9&page=3", &[("accept", "text/csv")], "00"),
                "the nearest recorded one is request 1, GET https://a.example/list?page=1&size=9: it had page=1 in its \
                 query; page=3 is new in its query",
            ),
            (
                0,
                exchange("POST", "https://a.example/add", &[], "11"),
                "the nearest recorded one is request 3, POST https://a.example/add: its body is not the recorded one",
            ),
            (
                0,
                exchange("PUT", "https://b.example/add", &[("accept", "x")], "00"),
                "the nearest recorded one is request 3, POST https://a.example/add: its method was POST, now PUT; its \
                 host was https://a.example, now https://b.example; its header accept: x is new",
            ),
            (
                0,
                exchange("GET", "https://a.example/list?page=1&size=9", &[], "00"),
                "the nearest recorded one is request 1, GET https://a.example/list?page=1&size=9: it lacks the recorded \
                 header accept: text/csv",
            ),
            (
                0,
                all[2].clone(),
                "the recording has it as request 3, after GET https://a.example/list?page=1&size=9",
            ),
            (1, all[0].clone(), "it is recorded once, as request 1, which was already used"),
            (
                3,
                exchange("GET", "https://a.example/add", &[], "00"),
                "the recording ends before it; the nearest recorded one is request 3, POST https://a.example/add: its \
                 method was POST, now GET",
            ),
            (
                1,
                exchange("GET", "https://a.example/list?size=9&page=2", &[], "00"),
                "the nearest recorded one is request 2, GET https://a.example/list?page=2&size=9: the order \
                 of its query parameters or headers differs",
            ),
        ] {
            assert_eq!(explain_mismatch(&all, answered, &asked.request), wanted);
        }
        assert_eq!(explain_mismatch(&[], 0, &all[0].request), "the recording is empty");
    }
}
