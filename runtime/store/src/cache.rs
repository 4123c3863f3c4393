//! The action cache (what an action gave before) and the values a run keeps for itself.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use rusqlite::{OptionalExtension, Transaction, params};
use serde_json::Value;

use super::Store;
use super::blob::TOUCH_EVERY_MS;
use super::db::Durability;
use super::error::StoreError;
use super::event::{RunId, StepOutcome};
use super::journal::run_number;
use super::pending::{Batch, KnownOutcome, in_index_order};
use super::transfer::RESERVED;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::sync::lock;

/// How long it may take until an action is known that another process has cached.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// So many lookups in vain have to come before all known actions are read.
const VAIN_MIN: usize = 64;

/// Reading an action's digest beside many others costs this small part of a lookup.
const READ_AT_ONCE: usize = 64;

/// The actions that the database knows, or most of them: a loop over new items
/// would look each of them up in vain.
#[derive(Default)]
pub(super) struct Known {
    /// By the beginnings of their digests. What was collected since may be among them.
    actions: HashSet<u64>,
    /// Until when no others are worth a lookup.
    all_until: Option<Instant>,
    /// Lookups that found nothing since the actions were read.
    in_vain: usize,
}

impl Known {
    fn rules_out(&self, action: &Digest) -> bool {
        self.all_until.is_some_and(|until| Instant::now() < until)
            && !self.actions.contains(&beginning(action))
    }

    /// Notes a lookup that found nothing; says how many actions are worth reading now, if any.
    fn missed(&mut self) -> Option<usize> {
        self.in_vain += 1;
        let often = self.in_vain >= VAIN_MIN && self.in_vain.is_power_of_two();
        often.then(|| self.in_vain * READ_AT_ONCE)
    }
}

fn beginning(digest: &Digest) -> u64 {
    digest.as_bytes().iter().take(size_of::<u64>()).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Store {
    /// Whether it is worth asking what a pure `action` gave. What another process
    /// cached within the last second may be overlooked, so never ask this of an effect.
    pub fn may_be_cached(&self, action: &Digest) -> bool {
        !lock(&self.inner.known).rules_out(action)
    }

    /// Reads which actions are known, unless they are more than `max`.
    fn read_known(&self, known: &mut Known, max: usize) -> Result<(), StoreError> {
        let found: Vec<u64> = self.inner.db.read(|db| {
            let mut statement = db.prepare_cached("SELECT digest FROM actions LIMIT ?1")?;
            let limit = i64::try_from(max).unwrap_or(i64::MAX).saturating_add(1);
            let rows = statement.query_map([limit], |row| row.get::<_, [u8; 32]>(0))?;
            Ok(rows.map(|row| row.map(|bytes| beginning(&Digest::from(bytes)))).collect::<Result<_, _>>()?)
        })?;
        if found.len() <= max {
            known.actions.extend(found);
            known.all_until = Some(Instant::now() + KNOWN_FOR);
            known.in_vain = 0;
        }
        Ok(())
    }

    /// What `action` gave, unless it is unknown, cannot be read (the next outcome then
    /// takes the place of such an entry) or too old: past the time that it was cached
    /// for, or `ttl_ms` milliseconds ago. Where time counts, what comes from the future
    /// is too old as well: nobody knows how long ago a clock that was wrong ran.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn cached_outcome(
        &self,
        action: &Digest,
        ttl_ms: Option<i64>,
    ) -> Result<Option<StepOutcome>, StoreError> {
        let now = self.now();
        let since = ttl_ms.map_or(i64::MIN, |ttl| now.saturating_sub(ttl));
        let held = lock(&self.inner.pending).outcome(action);
        if let Some(held) = held {
            let known_age = held.created <= now || (ttl_ms.is_none() && held.expires.is_none());
            let fresh = known_age && held.created > since && held.expires.is_none_or(|expires| expires > now);
            return Ok(if fresh { read_outcome(action, &held.text) } else { None });
        }
        let row: Option<(String, i64)> = self.inner.db.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT outcome, used FROM actions
                 WHERE digest = ?1 AND (expires IS NULL OR expires > ?2) AND created > ?3
                   AND (created <= ?2 OR (?4 AND expires IS NULL))",
            )?;
            let found = params![action.as_bytes(), now, since, ttl_ms.is_none()];
            Ok(statement.query_row(found, |row| Ok((row.get(0)?, row.get(1)?))).optional()?)
        })?;
        let Some((text, used)) = row else {
            let mut known = lock(&self.inner.known);
            if let Some(max) = known.missed() {
                self.read_known(&mut known, max)?;
            }
            return Ok(None);
        };
        if (now - used).abs() > TOUCH_EVERY_MS {
            self.write(Durability::Lazy, |tx| {
                tx.prepare_cached("UPDATE actions SET used = ?2 WHERE digest = ?1")?
                    .execute(params![action.as_bytes(), now])?;
                Ok(())
            })?;
        }
        Ok(read_outcome(action, &text))
    }

    /// Remembers what `action` gave, for `ttl_ms` milliseconds or until collected.
    /// It is held for the next transaction: a lost entry is computed again.
    ///
    /// # Errors
    /// When too much was held and cannot be written.
    pub fn cache_outcome(
        &self,
        action: Digest,
        outcome: &StepOutcome,
        ttl_ms: Option<i64>,
    ) -> Result<(), StoreError> {
        let redactions = self.redactions();
        let text = if redactions.is_empty() {
            json::compact(outcome)
        } else {
            let mut value = serde_json::to_value(outcome)
                .map_err(|e| StoreError::Json { what: "an outcome has no JSON text", source: e.into() })?;
            redactions.value(&mut value);
            json::compact(&value)
        };
        let created = self.now();
        let expires = ttl_ms.map(|ttl| created.saturating_add(ttl));
        let held = KnownOutcome { text: text.into(), created, expires };
        lock(&self.inner.known).actions.insert(beginning(&action));
        let full = lock(&self.inner.pending).hold_outcome(action, held);
        if full { self.flush() } else { Ok(()) }
    }

    /// A value that `run` keeps under `key`.
    ///
    /// # Errors
    /// When there is no such run, or the database cannot be read.
    pub fn run_value(&self, run: RunId, key: &str) -> Result<Option<Value>, StoreError> {
        let text: Option<String> = self.inner.db.read(|db| {
            let n = run_number(db, run)?;
            let mut statement =
                db.prepare_cached("SELECT value FROM run_values WHERE run = ?1 AND key = ?2")?;
            Ok(statement.query_row(params![n, key], |row| row.get(0)).optional()?)
        })?;
        let parse = |text: String| {
            json::parse(&text).map_err(|source| StoreError::Json { what: "a value kept by a run", source })
        };
        text.map(parse).transpose()
    }

    /// All values that `run` keeps, by their keys.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub fn run_values(&self, run: RunId) -> Result<BTreeMap<String, Value>, StoreError> {
        let kept: Vec<(String, String)> = self.inner.db.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT key, value FROM run_values WHERE run = (SELECT n FROM runs WHERE id = ?1)",
            )?;
            let rows = statement.query_map(params![run.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })?;
        let own = kept.into_iter().filter(|(key, _)| !is_reserved_key(key));
        own.map(|(key, text)| match json::parse(&text) {
            Ok(value) => Ok((key, value)),
            Err(source) => Err(StoreError::Json { what: "a value kept by a run", source }),
        })
        .collect()
    }

    /// Keeps `value` for `run` under `key`; it goes when the run is collected.
    ///
    /// # Errors
    /// When there is no such run, the key is one of the store's own (it begins with a
    /// zero byte), or it cannot be written.
    pub fn set_run_value(
        &self,
        run: RunId,
        key: &str,
        value: &Value,
        durability: Durability,
    ) -> Result<(), StoreError> {
        if is_reserved_key(key) {
            return Err(StoreError::StateKey);
        }
        let mut value = value.clone();
        self.redactions().value(&mut value);
        self.write(durability, |tx| {
            let n = run_number(tx, run)?;
            self.check_claim(tx, run)?;
            tx.prepare_cached("INSERT OR REPLACE INTO run_values (run, key, value) VALUES (?1, ?2, ?3)")?
                .execute(params![n, key, json::compact(&value)])?;
            Ok(())
        })
    }
}

/// Whether a key of a run's values is one of the store's own.
#[must_use]
pub fn is_reserved_key(key: &str) -> bool {
    key.starts_with(RESERVED)
}

/// Writes held-back outcomes as part of a transaction.
pub(super) fn insert(tx: &Transaction<'_>, batch: &Batch) -> Result<(), StoreError> {
    if batch.outcomes.is_empty() {
        return Ok(());
    }
    let mut statement = tx.prepare_cached(
        "INSERT OR REPLACE INTO actions (digest, outcome, created, used, expires) VALUES (?1, ?2, ?3, ?3, ?4)",
    )?;
    for (action, known) in in_index_order(batch.outcomes.iter(), |(action, _)| action) {
        statement.execute(params![action.as_bytes(), &*known.text, known.created, known.expires])?;
    }
    Ok(())
}

fn read_outcome(action: &Digest, text: &str) -> Option<StepOutcome> {
    let warn = |error: &json::JsonError| tracing::warn!(%action, %error, "a cached outcome cannot be read");
    json::parse_as(text).inspect_err(warn).ok()
}
