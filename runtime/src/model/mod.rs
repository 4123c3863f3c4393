//! Calls of language models: who is asked and how, what is remembered, what it costs.

mod anthropic;
pub(crate) mod cache;
pub(crate) mod channel;
pub mod cost;
pub(crate) mod envelope;
pub(crate) mod health;
pub(crate) mod http;
mod openai;
pub(crate) mod pool;
pub mod pricing;
pub(crate) mod request;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The kind of the effect that asks a model: its answer holds what was spent.
pub const CALL: &str = "llm";
/// The kind of the effect that looks for an earlier answer.
pub const LOOKUP: &str = "llm.lookup";
/// The kind of the effect that keeps an answer for later runs.
pub const KEEP: &str = "llm.keep";

/// One call that a provider answered, as its effect's answer records it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spend {
    /// A name of its own for each call.
    pub(crate) call: String,
    /// The model that is billed.
    pub(crate) model: Option<String>,
    /// Token counts as the provider gave them.
    pub(crate) usage: Map<String, Value>,
}

impl Spend {
    /// What the answer of a [`CALL`] says was spent.
    fn of_answer(answer: &Value) -> Vec<Self> {
        answer.get("spend").and_then(|spend| Vec::deserialize(spend).ok()).unwrap_or_default()
    }
}
