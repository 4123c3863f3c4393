//! Components in orders: data with digests.

use std::collections::BTreeMap;

use lobster_component::{DirGrant, DirId, Grants, Limits};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{HostPath, OrderText, StdinSource, strict_blob};
use lobster_base::credential::CredentialGrant;
use lobster_store::Blob;

/// A component that is to run until it ends, with the grants that were decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentTask {
    /// The component's bytes.
    #[serde(deserialize_with = "strict_blob::read")]
    pub program: Blob,
    /// The JSON text of its arguments.
    pub args: OrderText,
    /// The command line of a command program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// The input.
    pub input: ComponentInput,
    /// The grants.
    pub grants: ComponentGrants,
    /// Granted secrets by their variables. The executor finds the values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// Secrets that are added to the component's requests and never reach the component.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<CredentialGrant>,
    /// The limits of its resources.
    pub limits: Limits,
    /// Always 0: loading a component has its own limit. Executors of version 1 expect the field.
    pub spent_us: u64,
    /// True if its description may lower the limits.
    pub described_limits: bool,
    /// Blobs that its arguments or its input name, so that it may open them.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "strict_blob::read_list")]
    pub blobs: Vec<Blob>,
    /// A JSON object: the values that the run keeps for its components.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "strict_blob::read_optional"
    )]
    pub values: Option<Blob>,
    /// The statement about its grants for its outcome, without the accesses that were denied.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub enforcement: Value,
    /// The part of an error message about withheld grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
}

/// The input of a component.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ComponentInput {
    /// It has no input.
    Nothing,
    /// A stream of bytes.
    Bytes(StdinSource),
    /// Items: JSON texts, one per line.
    Items(StdinSource),
}

impl ComponentInput {
    /// The source of its bytes.
    #[must_use]
    pub fn source(&self) -> Option<&StdinSource> {
        match self {
            Self::Nothing => None,
            Self::Bytes(source) | Self::Items(source) => Some(source),
        }
    }
}

/// The rights of a component, as decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentGrants {
    /// Directories to read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<ComponentDir>,
    /// Directories to read and write.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<ComponentDir>,
    /// Variables with their values, without secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, String)>,
    /// `host:port` pairs to connect to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub net: Vec<String>,
    /// The real clock.
    #[serde(default)]
    pub clock: bool,
    /// Real randomness.
    #[serde(default)]
    pub random: bool,
}

/// A directory that a component may reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ComponentDir {
    /// Its path on the host.
    pub host: HostPath,
    /// Its path for the component.
    pub to: String,
    /// Identity of the directory that was judged; `None` if it could not be opened then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<DirId>,
}

impl ComponentGrants {
    /// The grants in an order's terms: `read` and `write` are the directories that were judged.
    pub fn from_decided(grants: Grants, read: Vec<Option<DirId>>, write: Vec<Option<DirId>>) -> Self {
        let dirs = |dirs: Vec<DirGrant>, judged: Vec<Option<DirId>>| {
            let dir =
                |(dir, judged): (DirGrant, _)| ComponentDir { host: dir.host.into(), to: dir.guest, judged };
            dirs.into_iter().zip(judged).map(dir).collect()
        };
        let Grants { read: to_read, write: to_write, env, net, clock, random } = grants;
        Self { read: dirs(to_read, read), write: dirs(to_write, write), env, net, clock, random }
    }

    /// The grants in the component's terms.
    pub(super) fn to_grants(&self) -> Grants {
        let dirs = |dirs: &[ComponentDir]| {
            let grant =
                |dir: &ComponentDir| DirGrant { host: dir.host.as_path().to_owned(), guest: dir.to.clone() };
            dirs.iter().map(grant).collect()
        };
        let Self { read, write, env, net, clock, random } = self;
        Grants {
            read: dirs(read),
            write: dirs(write),
            env: env.clone(),
            net: net.clone(),
            clock: *clock,
            random: *random,
        }
    }
}
