//! Answers that exceed the caller's limit: they always contain the state of the run.

use std::io::{self, Write};

use lobster_runtime::code::Code;
use lobster_runtime::envelope::{Envelope, Failure};
use lobster_runtime::json;
use lobster_runtime::text;
use serde_json::{Value, json};

/// Fields of a request that people see in addition to its prompt; the longest is dropped first. Tokens,
/// ids and the schema of the answer stay, since an answer needs them.
const LEFT_OUT: [&str; 4] = ["items", "preview", "subject", "defaults"];

/// The envelope as a value of about `max` bytes at most.
pub(super) fn bound_envelope(envelope: Envelope, max: usize) -> Value {
    let mut text = Capped { bytes: Vec::new(), max };
    let problem = match envelope.write_json(&mut text) {
        Ok(()) => match json::parse(&String::from_utf8_lossy(&text.bytes)) {
            Ok(value) => return value,
            Err(error) => error.to_string(),
        },
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            let kept = "its record has all of it (`show`)";
            match envelope {
                Envelope::Failed(failure) => return value_of(&Envelope::Failed(clip_failure(failure, max))),
                // A waiting run has not failed.
                waiting @ (Envelope::NeedsApproval(_) | Envelope::NeedsInput(_)) => {
                    return shorten_request(value_of(&waiting), max);
                }
                Envelope::Done(_) => {
                    format!("lobster output exceeded maxStdoutBytes ({max}); the run ended ok, and {kept}")
                }
                Envelope::Waiting(_) | Envelope::Cancelled => {
                    format!("lobster output exceeded maxStdoutBytes ({max}); {kept}")
                }
            }
        }
        Err(error) => format!("the run's output cannot be read back: {error}"),
    };
    value_of(&Envelope::Failed(Failure::new(Code::ProcessOutputLimit, problem)))
}

fn value_of(envelope: &Envelope) -> Value {
    envelope.to_value().unwrap_or(Value::Null)
}

fn clip_failure(failure: Failure, max: usize) -> Failure {
    // Leaves room for the rest of the envelope, and for characters that JSON escapes.
    let message = text::clip_telling_rest(&failure.message, max / 4).into_owned();
    Failure { message, ..failure }
}

/// A request to a person, shortened to the limit. `note` describes the omission.
fn shorten_request(mut envelope: Value, max: usize) -> Value {
    let mut notes = Vec::new();
    for key in LEFT_OUT {
        let excess = json::pretty(&envelope).len().saturating_sub(max);
        if excess == 0 {
            break;
        }
        let requests = ["requiresApproval", "requiresInput"];
        let Some(request) = requests.iter().find(|name| envelope[**name].is_object()) else { break };
        let Some(request) = envelope[*request].as_object_mut() else { break };
        match request.get_mut(key) {
            Some(Value::Array(items)) => notes.push(format!("{} of {key}", drop_items(items, excess))),
            Some(_) => {
                let value = request.shift_remove(key).unwrap_or_default();
                notes.push(format!("{key} ({} bytes)", json::compact(&value).len()));
            }
            None => {}
        }
    }
    if !notes.is_empty() {
        let notes = notes.join(", ");
        envelope["note"] = json!(format!("left out to keep to maxStdoutBytes ({max}): {notes}"));
    }
    envelope
}

/// Drops the last items until `excess` bytes are removed; returns the number of dropped items.
fn drop_items(items: &mut Vec<Value>, excess: usize) -> usize {
    let (mut gone, before) = (0, items.len());
    while gone < excess
        && let Some(item) = items.pop()
    {
        gone += json::pretty(&item).len();
    }
    before - items.len()
}

struct Capped {
    bytes: Vec<u8>,
    max: usize,
}

impl Write for Capped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lobster_runtime::envelope::FailureKind;

    use super::*;

    const MAX: usize = 1024;

    #[test]
    fn no_size_changes_how_a_run_stands() {
        let request = |large: &str| {
            let mut request = json!({"prompt": "p", "resumeToken": "t".repeat(200), "approvalId": "id"});
            request["items"] = json!(["first"]);
            request[large] = match large {
                "items" => json!(["x".repeat(300), "y".repeat(300), "z".repeat(300), "w".repeat(300)]),
                _ => json!("\u{1}".repeat(MAX)),
            };
            request
        };
        for large in LEFT_OUT {
            for (envelope, key, status) in [
                (Envelope::NeedsApproval(request(large)), "requiresApproval", "needs_approval"),
                (Envelope::NeedsInput(request(large)), "requiresInput", "needs_input"),
            ] {
                let value = bound_envelope(envelope, MAX);
                assert_eq!((&value["ok"], &value["status"]), (&json!(true), &json!(status)), "{value}");
                assert_eq!(value[key]["resumeToken"], "t".repeat(200), "{value}");
                assert_eq!(value[key]["prompt"], "p", "{value}");
                assert!(value["note"].as_str().unwrap().contains(large), "{value}");
                assert!(json::pretty(&value).len() < MAX + 200, "{value}");
            }
        }
        let value = bound_envelope(Envelope::NeedsApproval(request("items")), MAX);
        assert_eq!(value["requiresApproval"]["items"].as_array().unwrap().len(), 1, "as many as fit");
        let failure = Failure::new(Code::Timeout, "é".repeat(MAX));
        let value = bound_envelope(Envelope::Failed(Failure { kind: FailureKind::Parse, ..failure }), MAX);
        assert_eq!(value["error"]["type"], "parse_error", "{value}");
        assert!(json::pretty(&value).len() < MAX, "{value}");
        assert_eq!(bound_envelope(Envelope::Cancelled, MAX)["status"], "cancelled");
        assert_eq!(bound_envelope(Envelope::Waiting(Vec::new()), MAX)["status"], "waiting");
    }
}
