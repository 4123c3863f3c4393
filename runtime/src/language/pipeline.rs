//! Pipeline text, as read.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::plan::Span;

/// A pipeline: stages joined by `|`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pipeline {
    pub stages: Vec<StageCall>,
}

/// One stage as called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageCall {
    pub name: String,
    pub args: Map<String, Value>,
    pub raw: String,
    pub span: Span,
}
