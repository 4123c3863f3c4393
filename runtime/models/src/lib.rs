//! Calls of language models: who is asked and how, what is remembered, what it costs.

mod anthropic;
pub mod cache;
pub mod channel;
pub mod cost;
pub(crate) mod envelope;
pub mod health;
pub mod http;
mod openai;
pub mod pool;
pub mod pricing;
pub mod request;

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
pub struct Spend {
    /// A name of its own for each call.
    pub call: String,
    /// The model that is billed.
    pub model: Option<String>,
    /// Token counts as the provider gave them.
    pub usage: Map<String, Value>,
}

impl Spend {
    /// What the answer of a [`CALL`] says was spent.
    fn of_answer(answer: &Value) -> Vec<Self> {
        answer.get("spend").and_then(|spend| Vec::deserialize(spend).ok()).unwrap_or_default()
    }
}
