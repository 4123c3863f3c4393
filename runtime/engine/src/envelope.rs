//! The one JSON object with which a run answers.

use std::fmt;
use std::io::{self, Write};

use serde::ser::{SerializeMap, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::RunOutput;
use lobster_base::code::{Code, FailureCode};
use lobster_base::json;
use lobster_base::setting::BadSetting;
use lobster_language::diagnostic::Diagnostic;
use lobster_stage::StageError;
use lobster_store::StoreError;

/// The version of the envelope, in the incumbent's numbering.
pub const PROTOCOL_VERSION: u32 = 1;

/// The result of a run, a resume or another tool call.
#[derive(Debug)]
pub enum Envelope {
    /// Success.
    Done(RunOutput),
    /// A person has to approve; the object is the request with its token.
    NeedsApproval(Value),
    /// A person has to give input; the object is the request with its token.
    NeedsInput(Value),
    /// The run waits for times or events and has no process; the service continues it.
    Waiting(Vec<Value>),
    /// A person rejected or cancelled the run.
    Cancelled,
    /// The run failed.
    Failed(Failure),
}

/// The failure in the envelope's terms.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// Separates a wrong request from failed work.
    pub kind: FailureKind,
    /// The error and its remedy, for people.
    pub message: String,
    /// The code for programs (`policy_denied`, `timeout`, `interrupted`), which `lobster help CODE` explains.
    pub code: FailureCode,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The type of an error; decides the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The request itself was wrong: exit code 2.
    Parse,
    /// The work failed: exit code 1.
    Runtime,
    /// `doctor` found a problem: exit code 1.
    Doctor,
}

impl FailureKind {
    /// The name in the envelope.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Parse => "parse_error",
            Self::Runtime => "runtime_error",
            Self::Doctor => "doctor_error",
        }
    }

    /// The process's exit code.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Parse => 2,
            Self::Runtime | Self::Doctor => 1,
        }
    }
}

impl Failure {
    /// A wrong request.
    pub fn parse_error(message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Parse, message: message.into(), code: Code::Request.into() }
    }

    /// Failed work, with its code.
    pub fn new(code: impl Into<FailureCode>, message: impl Into<String>) -> Self {
        Self { kind: FailureKind::Runtime, message: message.into(), code: code.into() }
    }

    /// The same failure with a more precise code.
    #[must_use]
    pub fn with_code(self, code: impl Into<FailureCode>) -> Self {
        Self { code: code.into(), ..self }
    }
}

impl From<StageError> for Failure {
    fn from(error: StageError) -> Self {
        let code = error.code.unwrap_or(Code::Failed.into());
        Self::new(code, error.message)
    }
}

impl From<&Diagnostic> for Failure {
    fn from(diagnostic: &Diagnostic) -> Self {
        Self::new(FailureCode::from_name(diagnostic.code), diagnostic.one_line_with_snippet())
    }
}

impl From<BadSetting> for Failure {
    fn from(error: BadSetting) -> Self {
        Self::new(Code::Setting, error.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let code = match error {
            StoreError::CalledOff { .. } => Code::RunState,
            _ => Code::Store,
        };
        Self::new(code, error.to_string())
    }
}

impl Envelope {
    /// The exit code of this kind.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(failure) => failure.kind.exit_code(),
            Self::Done(_)
            | Self::NeedsApproval(_)
            | Self::NeedsInput(_)
            | Self::Waiting(_)
            | Self::Cancelled => 0,
        }
    }

    /// Writes the envelope for a tool's client: indented, with one final newline.
    ///
    /// # Errors
    /// If the writer fails, or a part of the output can no longer be read from the store.
    pub fn write_json(&self, mut writer: impl Write) -> io::Result<()> {
        json::write_pretty(&mut writer, self)?;
        writer.write_all(b"\n")?;
        writer.flush()
    }

    /// The envelope as one value, for callers that hold results in memory anyway.
    ///
    /// # Errors
    /// If a part of the output can no longer be read from the store.
    pub fn to_value(&self) -> serde_json::Result<Value> {
        serde_json::to_value(self)
    }
}

/// The JSON Schema of every envelope.
#[must_use]
pub fn json_schema() -> Value {
    use serde_json::json;
    let closed = |properties: Value, required: &[&str]| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let text = || json!({ "type": "string" });
    let good = |status: &[&str], approval: &str, input: &str| {
        closed(
            json!({
                "protocolVersion": { "const": PROTOCOL_VERSION },
                "ok": { "const": true },
                "status": { "enum": status },
                "output": { "type": "array", "description": "the items of the last step; empty while a person is asked" },
                "requiresApproval": { "$ref": format!("#/definitions/{approval}") },
                "requiresInput": { "$ref": format!("#/definitions/{input}") },
            }),
            &["protocolVersion", "ok", "status", "output", "requiresApproval", "requiresInput"],
        )
    };
    let types: Vec<_> = [FailureKind::Parse, FailureKind::Runtime, FailureKind::Doctor]
        .iter()
        .map(|kind| kind.name())
        .collect();
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "lobster envelope",
        "oneOf": [
            good(&["ok", "cancelled", "waiting"], "none", "none"),
            good(&["needs_approval"], "approval", "none"),
            good(&["needs_input"], "none", "input"),
            closed(
                json!({
                    "protocolVersion": { "const": PROTOCOL_VERSION },
                    "ok": { "const": false },
                    "error": closed(json!({ "type": { "enum": types }, "message": text() }), &["type", "message"]),
                }),
                &["protocolVersion", "ok", "error"],
            ),
        ],
        "definitions": {
            "none": { "type": "null" },
            "approval": closed(
                json!({
                    "type": { "const": "approval_request" }, "prompt": text(), "items": { "type": "array" },
                    "preview": text(), "initiatedBy": text(), "requiredApprover": text(),
                    "requireDifferentApprover": { "const": true }, "resumeToken": text(), "approvalId": text(),
                }),
                &["type", "prompt", "items", "resumeToken", "approvalId"],
            ),
            "input": closed(
                json!({
                    "type": { "const": "input_request" }, "prompt": text(),
                    "responseSchema": { "type": ["object", "boolean"] }, "defaults": {}, "subject": {}, "resumeToken": text(),
                }),
                &["type", "prompt", "responseSchema", "resumeToken"],
            ),
        },
    })
}

impl Serialize for Envelope {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("protocolVersion", &PROTOCOL_VERSION)?;
        map.serialize_entry("ok", &!matches!(self, Self::Failed(_)))?;
        let (status, approval, input) = match self {
            Self::Failed(failure) => {
                map.serialize_entry("error", &ErrorFields(failure))?;
                return map.end();
            }
            Self::Done(_) => ("ok", &Value::Null, &Value::Null),
            Self::NeedsApproval(request) => ("needs_approval", request, &Value::Null),
            Self::NeedsInput(request) => ("needs_input", &Value::Null, request),
            Self::Waiting(_) => ("waiting", &Value::Null, &Value::Null),
            Self::Cancelled => ("cancelled", &Value::Null, &Value::Null),
        };
        map.serialize_entry("status", status)?;
        match self {
            Self::Done(output) => map.serialize_entry("output", output)?,
            _ => map.serialize_entry("output", &NoItems)?,
        }
        map.serialize_entry("requiresApproval", approval)?;
        map.serialize_entry("requiresInput", input)?;
        map.end()
    }
}

struct NoItems;

impl Serialize for NoItems {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_seq(Some(0))?.end()
    }
}

struct ErrorFields<'a>(&'a Failure);

impl Serialize for ErrorFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("type", self.0.kind.name())?;
        map.serialize_entry("message", &self.0.message)?;
        map.end()
    }
}
