//! Orders: everything that an executor needs to perform one effect.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::mcp_task::McpReach;
use super::{ComponentTask, HostPath, HostText, HttpTask, McpTask, strict_blob};
use lobster_base::credential::CredentialGrant;
use lobster_base::digest::Digest;
use lobster_sandbox::{Confinement, ProcessLimits, RootId};
use lobster_store::{Blob, RunId};

/// The run, the effect and the attempt that an order is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderId {
    /// The run.
    pub run: RunId,
    /// The path of the effect in the run.
    pub path: String,
    /// The number of the attempt.
    pub attempt: u32,
}

impl OrderId {
    /// Separates the path of an effect from the number of one of its requests.
    const REQUEST: &str = " request ";

    /// The order of the effect's request with this number; a command may send several, to different addresses.
    pub fn of_request(self, number: u32) -> Self {
        Self { path: format!("{}{}{number}", self.path, Self::REQUEST), ..self }
    }

    /// The path of the effect in the run, for any of its requests.
    pub fn place(&self) -> &str {
        self.path.rsplit_once(Self::REQUEST).map_or(&self.path, |(place, _)| place)
    }
}

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of run {}", self.path, self.run)
    }
}

/// One effect to perform.
///
/// An order is plain data. It is never journaled in this form, since its environment has values of which the journal
/// keeps only digests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// The effect that it is for.
    pub id: OrderId,
    /// The action whose start is in the journal.
    pub action: Digest,
    /// The work to do.
    pub task: Task,
}

/// The work of an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Task {
    /// A process.
    Native(Box<NativeTask>),
    /// A WebAssembly component.
    Component(Box<ComponentTask>),
    /// A call of an MCP tool.
    Mcp(Box<McpTask>),
    /// A request of a pipeline command.
    Http(Box<HttpTask>),
}

impl Task {
    /// The name of its kind, as executors list the kinds that they support.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Native(_) => "native",
            Self::Component(_) => "component",
            Self::Mcp(_) => "mcp",
            Self::Http(_) => "http",
        }
    }

    /// The blobs that it names; an executor must have all of them.
    #[must_use]
    pub fn blobs(&self) -> Vec<Blob> {
        match self {
            Self::Native(task) => task.stdin.blob().into_iter().chain(task.pending).collect(),
            Self::Component(task) => {
                let input = task.input.source().and_then(StdinSource::blob);
                let own = [Some(task.program), task.args.blob(), input, task.values];
                own.into_iter().flatten().chain(task.blobs.iter().copied()).collect()
            }
            Self::Mcp(_) => Vec::new(),
            Self::Http(task) => task.body.blob().into_iter().collect(),
        }
    }

    /// The names of the secrets that it needs, by their purpose.
    #[must_use]
    pub fn secrets(&self) -> BTreeMap<String, String> {
        let (variables, credentials) = match self {
            Self::Native(task) => (Some(&task.secrets), task.credentials.as_slice()),
            Self::Component(task) => (Some(&task.secrets), task.credentials.as_slice()),
            Self::Mcp(task) => {
                let reach = task.reach.as_ref();
                (reach.map(McpReach::secrets), reach.map_or(&[][..], McpReach::credentials))
            }
            Self::Http(task) => (task.credential.as_ref().map(|key| &key.secrets), &[][..]),
        };
        let of_host =
            |grant: &CredentialGrant| (format!("credential for {}", grant.host), grant.secret.clone());
        variables.cloned().into_iter().flatten().chain(credentials.iter().map(of_host)).collect()
    }
}

/// A token that is not a secret of a step. It is only in the order itself, and is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OrderToken(String);

impl OrderToken {
    /// The token itself, for the sender of a request.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for OrderToken {
    fn from(token: String) -> Self {
        Self(token)
    }
}

impl fmt::Debug for OrderToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// A process that is to run until it ends, under a decision that was already made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NativeTask {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The error message for a missing program; with `None` it quotes the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_missing: Option<String>,
    /// The input.
    pub stdin: StdinSource,
    /// The complete environment, without secrets.
    pub env: Vec<(HostText, HostText)>,
    /// Secrets by their variables. The executor finds the values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Secrets that are added to the component's requests and never reach the component.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialGrant>,
    /// The directory in which it starts.
    pub cwd: HostPath,
    /// The limits of its resources.
    pub limits: ProcessLimits,
    /// The rights of the program.
    pub confinement: Confinement,
    /// The roots of `confinement` that must be the same files that were judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roots: Vec<RootId>,
    /// The write roots whose changes are kept apart, and become a change set if the process succeeds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layered: Vec<HostPath>,
    /// A change set that is not committed yet, and that the process finds below these roots.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "strict_blob::read_optional"
    )]
    pub pending: Option<Blob>,
    /// True if stdout is checked for JSON while it arrives.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub scan_json: bool,
    /// True if stopping it does not take back the requests that it sent. If it exceeds its time limit, its end is not
    /// known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outlives_timeout: bool,
}

/// The input of a process or a component.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinSource {
    /// Nothing.
    Empty,
    /// A blob.
    Blob(#[serde(deserialize_with = "strict_blob::read")] Blob),
    /// Bytes with a secret, which no store may keep. They are only in the order itself.
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    Secret(Arc<[u8]>),
}

impl StdinSource {
    /// The blob, if the input is one.
    #[must_use]
    pub fn blob(&self) -> Option<Blob> {
        match self {
            Self::Blob(blob) => Some(*blob),
            Self::Empty | Self::Secret(_) => None,
        }
    }
}

impl fmt::Debug for StdinSource {
    /// Without confidential values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Blob(blob) => f.debug_tuple("Blob").field(blob).finish(),
            Self::Secret(bytes) => write!(f, "Secret({} bytes)", bytes.len()),
        }
    }
}

fn to_base64<S: Serializer>(bytes: &Arc<[u8]>, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&STANDARD.encode(bytes))
}

fn from_base64<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[u8]>, D::Error> {
    let text = String::deserialize(from)?;
    STANDARD.decode(text).map(Arc::from).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// An order of each kind of task and of each form of its parts.
    fn sample_orders() -> Vec<Value> {
        let digest = Digest::of_bytes(b"x").to_string();
        let blob = json!({ "digest": digest, "len": 1 });
        let id = json!({ "run": "01890a5d-ac96-774b-bcce-b302099a8057", "path": "pay", "attempt": 1 });
        let time = json!({ "secs": 1, "nanos": 0 });
        let raw = json!({ "bytes": [255] });
        let root = json!({ "path": "/w", "device": 1, "inode": 2 });
        let credential = json!({
            "host": "api.example.com", "secret": "KEY", "header": "authorization",
            "scheme": { "word": "Bearer" }, "methods": ["GET"], "paths": ["/v1"],
            "variables": [["API", "{url}"]],
        });
        let limits = json!(ProcessLimits::default());
        let mut jail = json!(lobster_sandbox::JailSpec::default());
        jail["replaced"] = json!([{ "path": "/a", "copy": "/b" }]);
        jail["net"] = json!({ "hosts": [{ "host": "example.com", "port": 443 }] });
        jail["ports"] = json!({ "network": "n", "listen": [1], "connect": [2] });
        let process = json!({
            "argv": ["sh"], "env": [["A", raw], ["B", "b"]], "secrets": { "K": "KEY" },
            "credentials": [credential], "cwd": raw, "limits": limits, "confinement": { "jail": jail },
            "roots": [root],
        });
        let mut native = process.clone();
        native["kind"] = json!("native");
        native["stdin"] = json!({ "blob": blob });
        native["pending"] = blob.clone();
        let mcp = |reach: Value, pin: Value| {
            json!({
                "kind": "mcp", "server": "s", "session": id, "reach": reach, "tool": "t", "args": {},
                "pin": pin, "max_bytes": 1, "timeout": time,
            })
        };
        let address = json!({
            "url": "https://x", "token": "t", "secrets": { "K": "KEY" }, "credential": credential,
        });
        let http = |body: Value| {
            json!({
                "kind": "http", "url": "https://x", "headers": [["a", "b"]],
                "credential": { "header": "x-key", "token": "t", "secrets": { "K": "KEY" } }, "body": body,
                "idle": time, "max_body": 1,
            })
        };
        let component = |input: Value| {
            json!({
                "kind": "component", "program": blob, "args": { "text": "{}" }, "input": input,
                "grants": {
                    "read": [{ "host": "/w", "to": "/r", "judged": root }], "write": [{ "host": raw, "to": "/w" }],
                },
                "secrets": { "K": "KEY" }, "credentials": [credential],
                "limits": lobster_component::Limits::default(), "spent_us": 0, "described_limits": false,
                "blobs": [blob], "values": blob,
            })
        };
        let tasks = [
            native,
            component(json!({ "bytes": { "blob": blob } })),
            component(json!({ "items": { "secret": "AA==" } })),
            mcp(
                json!({ "program": process }),
                json!({ "pinned": { "digest": digest, "inputSchema": true } }),
            ),
            mcp(json!({ "address": address }), json!("any")),
            http(json!({ "text": "{}" })),
            http(json!({ "blob": blob })),
        ];
        tasks.map(|task| json!({ "id": id, "action": digest, "task": task })).into()
    }

    /// The paths of all objects whose fields are fixed by the format of orders; arguments of a tool are free.
    fn find_objects(value: &Value, at: &str, found: &mut Vec<String>) {
        if let Value::Object(fields) = value {
            if at != "/task/args" || fields.contains_key("text") {
                found.push(at.to_owned());
            }
            fields.iter().for_each(|(name, value)| find_objects(value, &format!("{at}/{name}"), found));
        } else if let Value::Array(items) = value {
            items.iter().enumerate().for_each(|(n, value)| find_objects(value, &format!("{at}/{n}"), found));
        }
    }

    #[test]
    fn a_field_that_is_not_known_is_refused_at_every_depth() {
        for order in sample_orders() {
            let read = serde_json::from_str::<Order>(&order.to_string());
            assert!(read.is_ok(), "{read:?}: {order:#}");
            let mut places = Vec::new();
            find_objects(&order, "", &mut places);
            for place in places {
                let mut more = order.clone();
                more.pointer_mut(&place).unwrap()["unknown"] = json!(1);
                let read = serde_json::from_str::<Order>(&more.to_string());
                assert!(read.is_err(), "{place} takes an unknown field: {more:#}");
            }
        }
    }
}
