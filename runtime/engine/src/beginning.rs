//! The beginning of a run in this store, from which it is resumed.
//!
//! An imported run began elsewhere, and its record of that was written by others, so it permits nothing here. In this
//! store such a run begins when a person takes it over.

use lobster_store::{Event, RunId, Store, StoreError};
use serde_json::Value;

use super::surroundings::Surroundings;

/// The recorded beginning of a run.
pub enum Beginning {
    /// In this store.
    Here(Value),
    /// In the store from which the run was imported, and the run was not taken over here.
    Elsewhere(Value),
}

impl Beginning {
    /// Reads the beginning; `None` if the first record is not a beginning.
    ///
    /// # Errors
    /// If the run does not exist, or its journal cannot be read.
    pub fn from_journal(store: &Store, run: RunId) -> Result<Option<Self>, StoreError> {
        let imported = store.imported_records(run)?;
        if let Some(imported) = imported {
            let own = store.events_after(run, imported, usize::MAX)?;
            let resumed = own.into_iter().find_map(|record| match record.event {
                Event::RunResumed { detail, .. } => Some(Self::Here(detail)),
                _ => None,
            });
            if resumed.is_some() {
                return Ok(resumed);
            }
        }
        let first = store.events_after(run, 0, 1)?.into_iter().next();
        Ok(first.and_then(|record| match (record.event, imported) {
            (Event::RunStarted { detail, .. }, None) => Some(Self::Here(detail)),
            (Event::RunStarted { detail, .. }, Some(_)) => Some(Self::Elsewhere(detail)),
            _ => None,
        }))
    }

    /// The detail of the beginning.
    #[must_use]
    pub fn detail(&self) -> &Value {
        let (Self::Here(detail) | Self::Elsewhere(detail)) = self;
        detail
    }

    /// The facts for decisions, if this store recorded them.
    pub(crate) fn surroundings(&self) -> Option<Surroundings> {
        match self {
            Self::Here(detail) => Surroundings::from_detail(detail),
            Self::Elsewhere(_) => None,
        }
    }
}
