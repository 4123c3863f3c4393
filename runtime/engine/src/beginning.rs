//! How a run began in this store: what going on with it starts from.
//!
//! A run that was imported began elsewhere, and others wrote what its record says of that. Nothing is permitted here
//! on the strength of it: here the run begins when somebody takes it over.

use lobster_store::{Event, RunId, Store, StoreError};
use serde_json::Value;

use super::surroundings::Surroundings;

/// What a record says of how its run began.
pub enum Beginning {
    /// In this store.
    Here(Value),
    /// In the store that it was imported from, and nobody has taken it over.
    Elsewhere(Value),
}

impl Beginning {
    /// Reads it; none if the record does not begin as one does.
    ///
    /// # Errors
    /// When there is no such run, or its journal cannot be read.
    pub fn read(store: &Store, run: RunId) -> Result<Option<Self>, StoreError> {
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

    /// What it says.
    #[must_use]
    pub fn detail(&self) -> &Value {
        let (Self::Here(detail) | Self::Elsewhere(detail)) = self;
        detail
    }

    /// What decisions depend on, if this store recorded it.
    pub(crate) fn surroundings(&self) -> Option<Surroundings> {
        match self {
            Self::Here(detail) => Surroundings::recorded(detail),
            Self::Elsewhere(_) => None,
        }
    }
}
