//! The origin of a run, as far as it decides who may answer its questions (invariant G9).

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ancestors::ancestor_processes;
use super::beginning::Beginning;
use super::env::Env;
use super::known_settings::FOR_AGENT;
use super::services::Caller;
use lobster_store::{Event, RunId, Store, StoreError};

/// The field of a run's first record.
const FIELD: &str = "origin";

/// The cause of a run that was not started by a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// An agent, over MCP or with its own token.
    Agent(String),
    /// A step of this run.
    Step(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Agent(name) => write!(f, "the agent {name} started the run"),
            Self::Step(run) => write!(f, "a step of run {run} started the run"),
        }
    }
}

impl Origin {
    /// The origin of a run that this process starts for this caller; `None` if a person or the operator's own program
    /// starts it.
    pub(crate) fn of_process(env: &Env, caller: &Caller) -> Option<Self> {
        let by_agent = || {
            let agent = caller.actor.clone().unwrap_or_else(|| "mcp".to_owned());
            is_of_agent(&caller.detail).then_some(Self::Agent(agent))
        };
        let for_agent = || env.non_blank(FOR_AGENT.name).map(Self::Agent);
        surrounding_run(env).map(Self::Step).or_else(by_agent).or_else(for_agent)
    }

    /// Adds the origin to the run's first record.
    pub(crate) fn add_to_detail(&self, detail: &mut Value) {
        detail[FIELD] = serde_json::to_value(self).unwrap_or(Value::Null);
    }

    fn from_detail(detail: &Value) -> Option<Self> {
        let by_agent = || {
            let client = detail["caller"]["client"]["name"].as_str().unwrap_or("mcp");
            // Before runs recorded their origin.
            is_of_agent(&detail["caller"]).then(|| Self::Agent(client.to_owned()))
        };
        serde_json::from_value(detail[FIELD].clone()).ok().or_else(by_agent)
    }

    /// The origin of a recorded run: of the run itself, or of its transfer from another store.
    ///
    /// # Errors
    /// If the run does not exist, or its journal cannot be read.
    pub fn from_journal(store: &Store, run: RunId) -> Result<Option<Self>, StoreError> {
        let first = store.events_after(run, 0, 1)?.into_iter().next();
        let began = first.and_then(|record| match record.event {
            Event::RunStarted { detail, .. } => Self::from_detail(&detail),
            _ => None,
        });
        let taken_over =
            || Ok(Beginning::from_journal(store, run)?.and_then(|here| Self::from_detail(here.detail())));
        began.map_or_else(taken_over, |origin| Ok(Some(origin)))
    }
}

/// The mode of `lobster mcp` in which the operator trusts an agent to report its user's answers.
pub const TOKEN_MODE: &str = "token";

/// True if the recorded caller is an agent whose answers are not those of a person.
fn is_of_agent(caller: &Value) -> bool {
    caller["via"] == "mcp" && caller["approvals"] != TOKEN_MODE
}

/// True if a step started this process, or one of its ancestors.
#[must_use]
pub fn is_inside_a_run() -> bool {
    surrounding_run(&Env::from_inherited(std::env::vars_os())).is_some()
}

/// The run that this process belongs to as part of a step. A step cannot hide that by removing the variable.
pub(crate) fn surrounding_run(env: &Env) -> Option<String> {
    let name = RunId::VARIABLE;
    let above = || {
        ancestor_processes()
            .find_map(|process| process.env_variable(name))
            .and_then(|id| id.into_string().ok())
    };
    env.non_blank(name).or_else(above).filter(|id| !id.is_empty())
}
