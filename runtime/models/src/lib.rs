//! Calls of language models: channels, requests, cached answers and cost.

pub(crate) mod adapter_answer;
mod anthropic;
pub mod attachment;
pub mod bounds;
pub mod budget;
pub mod cache;
pub mod channel;
pub mod cost;
pub mod embedding;
mod ending;
mod gemini;
pub mod health;
pub mod host_functions;
pub mod http;
pub mod ledger;
mod llm_task;
mod openai;
pub mod pool;
pub mod pricing;
mod reported;
pub mod request;
mod responses;
mod stream;

use lobster_stage::WorstCase;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The kind of the effect that asks a model; its answer contains the spend.
pub const CALL: &str = "llm";
/// The kind of the effect that looks for an earlier answer.
pub const LOOKUP: &str = "llm.lookup";
/// The kind of the effect that stores an answer for later runs.
pub const KEEP: &str = "llm.keep";

/// The warning of an answer that its provider ended at the limit of output tokens.
pub const CUT_SHORT: &str = "the answer was cut at the limit of output tokens";

/// Token counts in the form of an adapter's result.
fn token_usage(input: u64, output: u64) -> Map<String, Value> {
    let total = input.saturating_add(output);
    let counts = [("inputTokens", input), ("outputTokens", output), ("totalTokens", total)];
    counts.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect()
}

/// One call that a provider answered, as recorded in its effect's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spend {
    /// A unique name of the call.
    pub call: String,
    /// The billed model.
    pub model: Option<String>,
    /// Token counts as reported by the provider.
    pub usage: Map<String, Value>,
    /// The actual use is unknown: the counts are the most that the call can have used.
    #[serde(default, rename = "lost", skip_serializing_if = "std::ops::Not::not")]
    pub is_lost: bool,
}

impl Spend {
    /// A call with the most that it can use.
    #[must_use]
    pub fn from_worst_case(worst: &WorstCase) -> Self {
        let mut usage = Map::new();
        usage.insert("inputTokens".into(), worst.input_tokens.into());
        usage.extend(worst.output_tokens.map(|output| ("outputTokens".to_owned(), output.into())));
        Self { call: uuid::Uuid::now_v7().to_string(), model: worst.model.clone(), usage, is_lost: true }
    }

    /// The calls recorded under `spend` in an answer, in a failure's detail, or in a note.
    #[must_use]
    pub fn on_record(value: &Value) -> Vec<Self> {
        value.get("spend").and_then(|spend| Vec::deserialize(spend).ok()).unwrap_or_default()
    }
}
