//! Approval of only some of the file changes that a question shows.

use std::path::PathBuf;

use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_engine::binding::GateQuestion;
use lobster_engine::envelope::Failure;
use lobster_engine::kinds::changes::load_change_set;
use lobster_engine::kinds::review::changes_of_question;
use lobster_store::{Gate, Store};

/// Some of the file changes that a question shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOfChanges {
    /// Their change set.
    pub changes: Digest,
    /// Number of paths they change.
    pub count: usize,
    /// Number of paths in the whole change set.
    pub of: usize,
}

/// The remaining change set of a gate's question if only the changes at these places are approved.
///
/// # Errors
/// If the gate shows no changes, or none at one of the places.
pub fn part_of_question(store: &Store, gate: &Gate, places: &[PathBuf]) -> Result<PartOfChanges, Failure> {
    let question: GateQuestion = serde_json::from_value(gate.detail.clone())
        .map_err(|_| Failure::new(Code::Recording, "the question cannot be read".to_owned()))?;
    let shown = changes_of_question(&question.question).ok_or_else(|| {
        Failure::parse_error(format!(
            "approval {} shows no changes to files, so no part of them can be approved",
            gate.id
        ))
    })?;
    let set = load_change_set(store, &shown)?;
    let part = set.only_at(places).map_err(|error| {
        let what = format!("{error} by approval {0}; `lobster approvals show {0}` names the files", gate.id);
        Failure::parse_error(what)
    })?;
    let text = serde_json::to_vec(&part).map_err(|error| Failure::parse_error(error.to_string()))?;
    let changes = store.put_verbatim(&text)?.digest;
    Ok(PartOfChanges { changes, count: part.changes().count(), of: set.changes().count() })
}
