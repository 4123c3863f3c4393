//! Copies: unfinished imported runs that have not been taken over by this store.

use lobster_base::code::Code;
use lobster_engine::envelope::Failure;
use lobster_engine::runtime::Runtime;
use lobster_store::{Durability, Event, RunId, Store};

/// Treatment of a copy that is to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copied {
    Refused,
    /// It continues here.
    TakenOver,
}

impl Copied {
    /// Returns an error if a run may continue elsewhere and is not taken over.
    pub(crate) fn ensure_taken_over(self, store: &Store, id: RunId) -> Result<(), Failure> {
        if self == Self::TakenOver || !store.is_copy(id)? {
            return Ok(());
        }
        Err(wrong_state(format!(
            "run {id} is a copy of a run in another store (`lobster bundle import`), which may continue \
             there, and then an effect would run twice. If nothing else continues it: `lobster resume {id} \
             --take-over`"
        )))
    }
}

/// Records that a run continues, in the directory of this process if it `moves` there. A copy then belongs to
/// this store.
pub(crate) fn record_resumption(
    runtime: &Runtime,
    store: &Store,
    id: RunId,
    moves: bool,
) -> Result<(), Failure> {
    let is_copy = store.is_copy(id)?;
    let mut detail =
        if is_copy { runtime.beginning_detail(store)? } else { runtime.recorded_surroundings(store)? };
    if moves {
        detail["cwd"] = runtime.recorded_cwd()?.into();
    }
    let event = Event::RunResumed { by: runtime.services.actor(), detail };
    match is_copy {
        true => store.take_over(id, event)?,
        false => store.append_events(id, vec![event], Durability::Lazy)?,
    }
    Ok(())
}

/// A run that is not in a state for what is asked.
pub(crate) fn wrong_state(message: String) -> Failure {
    Failure::new(Code::RunState, message)
}
