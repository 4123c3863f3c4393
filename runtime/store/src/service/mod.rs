//! Tables of the service: registered workflows, schedules and the ledger of their ticks, starts of runs, deliveries of
//! webhooks, credentials, and the trail.
//!
//! The tables are in the same database as the runs, so that a tick and its start are one transaction. They are created
//! by the first program that calls [`Store::service`]: a store that never served has none, and an older lobster can
//! still read a store that has them. Schedules and messages are text here and are not interpreted.

mod credentials;
mod deliveries;
mod events;
mod notices;
mod passkeys;
mod schedules;
mod starts;
mod trail;
mod verify;
mod waits;
mod watched;
mod workflows;

#[cfg(test)]
mod tests;

use rusqlite::{Connection, Transaction};

use super::Store;
use super::db::{Database, Durability};
use super::error::StoreError;
use super::service_tables::{VERSION, create_tables, layout_version, upgrade_tables};

pub use credentials::{Credential, CredentialKind, NewCredential};
pub use deliveries::{Accepted, Delivery, NewDelivery, SAME_DELIVERY_MS};
pub use events::{MAX_EVENT_DATA, Sent, SentEvent};
pub use notices::{NewNotice, Notice, NoticeState, Occasion};
pub use passkeys::{Counted, Passkey, Signed};
pub use schedules::{NewTick, Retraction, ScheduleRow, Settlement, Tick, TickState};
pub(super) use starts::refuse_waiting_starts;
pub use starts::{ListedStart, NewStart, Standing, Start, StartState};
pub use trail::{Deed, Served};
pub use waits::{NewWait, WaitRow};
pub use watched::Watched;
pub use workflows::{Refuses, Registered, Registration, SpecOfSchedule};

/// The service's part of a store. Clones share it.
#[derive(Clone)]
pub struct Service {
    store: Store,
}

impl Store {
    /// The service's part of the store, created if it is missing.
    ///
    /// # Errors
    /// If it cannot be created, or a newer lobster has changed its layout.
    pub fn service(&self) -> Result<Service, StoreError> {
        let found = self.inner.db.read_snapshot(|db| Ok(layout_version(db)?))?;
        match found {
            Some(VERSION) => {}
            Some(newer) if newer > VERSION => return Err(too_new(self, newer)),
            Some(_) | None => self.write_transaction(Durability::Synced, |tx| match layout_version(tx)? {
                // Another process may have created it in the meantime.
                Some(VERSION) => Ok(()),
                Some(newer) if newer > VERSION => Err(too_new(self, newer)),
                Some(older) => Ok(upgrade_tables(tx, older)?),
                None => Ok(create_tables(tx)?),
            })?,
        }
        Ok(Service { store: self.clone() })
    }

    /// The same for reading, if it exists.
    ///
    /// # Errors
    /// If it cannot be read, or a newer lobster has changed its layout.
    pub fn existing_service(&self) -> Result<Option<Service>, StoreError> {
        match self.inner.db.read_snapshot(|db| Ok(layout_version(db)?))? {
            None => Ok(None),
            Some(_) => self.service().map(Some),
        }
    }
}

fn too_new(store: &Store, found: i64) -> StoreError {
    StoreError::Newer { path: store.inner.db.path().to_owned(), found, supported: VERSION }
}

impl Store {
    /// Removes the service's history before a point in time: entries of ticks, starts that are over, bodies of
    /// deliveries, and deliveries and credentials that are no longer valid. Registrations, current rights and the
    /// trail stay.
    pub(super) fn forget_service_history(&self, before: i64) -> Result<(), StoreError> {
        if self.existing_service()?.is_none() {
            return Ok(());
        }
        let same_since = self.clock_ms().saturating_sub(SAME_DELIVERY_MS);
        self.write_transaction(Durability::Lazy, |tx| {
            deliveries::remove_outdated(tx, before, before.min(same_since))?;
            for sql in [
                "DELETE FROM ticks WHERE last < ?1 AND n NOT IN (SELECT max(n) FROM ticks GROUP BY schedule)",
                "DELETE FROM starts WHERE ended < ?1 AND state IN ('over', 'refused', 'withdrawn')",
                "DELETE FROM credentials WHERE ended < ?1 OR expires < ?1",
                "DELETE FROM events WHERE at < ?1",
                "DELETE FROM notices WHERE ended < ?1",
            ] {
                tx.execute(sql, [before])?;
            }
            tx.execute("DELETE FROM passkeys WHERE credential NOT IN (SELECT id FROM credentials)", [])?;
            tx.execute("DELETE FROM taken_events WHERE event NOT IN (SELECT n FROM events)", [])?;
            Ok(())
        })
    }
}

impl Service {
    /// The store that it is part of.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    fn read_snapshot<T>(&self, work: impl Fn(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.db().read_snapshot(work)
    }

    fn db(&self) -> &Database {
        &self.store.inner.db
    }

    fn write_transaction<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.store.write_transaction(durability, work)
    }

    /// Runs a synced write transaction, which is given the time.
    fn write_durably<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>, i64) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let now = self.now();
        self.write_transaction(Durability::Synced, |tx| work(tx, now))
    }

    fn now(&self) -> i64 {
        self.store.clock_ms()
    }
}
