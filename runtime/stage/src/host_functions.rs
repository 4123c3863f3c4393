//! Functions of the program that started lobster, available to one run over loopback.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::{Stage, StageArgs};

/// The variable that describes them. Only lobster itself sees its value, and opens it.
pub const HOST_FUNCTIONS: &str = "LOBSTER_HOST_FUNCTIONS";

/// The functions, and the address to reach them.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFunctions {
    /// An address of this machine.
    pub url: String,
    /// The bearer token of this run.
    pub token: String,
    /// Pipeline commands, each with its description. They replace lobster's own commands of the same name.
    #[serde(default)]
    pub commands: BTreeMap<String, String>,
    /// Adapters for models, each with the name of the source in their answers.
    #[serde(default)]
    pub adapters: BTreeMap<String, String>,
}

/// Creates the stage that calls the command of this name.
pub type BuildHostCommand = fn(&Arc<HostFunctions>, &str, &StageArgs) -> Box<dyn Stage + Send>;
