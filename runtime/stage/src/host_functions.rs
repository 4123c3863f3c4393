//! Functions of the program that started lobster, lent to it over loopback for one run.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::{Stage, StageArgs};

/// The variable that describes them. Only lobster itself sees it: it opens them.
pub const HOST_FUNCTIONS: &str = "LOBSTER_HOST_FUNCTIONS";

/// The functions, and how they are reached.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFunctions {
    /// An address of this machine.
    pub url: String,
    /// The bearer token of this run.
    pub token: String,
    /// Pipeline commands, each with its description. They replace lobster's own of the same name.
    #[serde(default)]
    pub commands: BTreeMap<String, String>,
    /// Ways to models, each with the name of the source that their answers carry.
    #[serde(default)]
    pub adapters: BTreeMap<String, String>,
}

/// Makes the stage that calls the command of this name.
pub type BuildHostCommand = fn(&Arc<HostFunctions>, &str, &StageArgs) -> Box<dyn Stage + Send>;
