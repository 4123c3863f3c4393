//! The action cache (earlier outcomes of actions), and the values that a run keeps.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use rusqlite::{Transaction, params};
use serde_json::Value;

use super::Store;
use super::blob::TOUCH_EVERY_MS;
use super::db::Durability;
use super::error::StoreError;
use super::event::{RunId, StepOutcome};
use super::journal::run_number;
use super::pending::{Batch, KnownOutcome, in_index_order};
use super::statement::query_one;
use super::transfer::RESERVED;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::sync::lock;

/// Longest delay until this process notices an action cached by another one.
const KNOWN_FOR: Duration = Duration::from_secs(1);

/// Failed lookups before all known actions are read.
const VAIN_MIN: usize = 64;

/// Reading one action's digest among many costs this fraction of a lookup.
const READ_AT_ONCE: usize = 64;

/// All or most of the actions in the database: without it, a loop over new items would look up each of them for
/// nothing.
#[derive(Default)]
pub(super) struct CachedActions {
    /// First bytes of their digests. Actions collected since may be among them.
    actions: HashSet<u64>,
    /// Until then, actions not listed here are not looked up.
    all_until: Option<Instant>,
    /// Failed lookups since the actions were read.
    in_vain: usize,
}

impl CachedActions {
    fn rules_out(&self, action: &Digest) -> bool {
        self.all_until.is_some_and(|until| Instant::now() < until)
            && !self.actions.contains(&digest_prefix(action))
    }

    /// Records a failed lookup, and returns how many actions are worth reading now, if any.
    fn record_miss(&mut self) -> Option<usize> {
        self.in_vain += 1;
        let often = self.in_vain >= VAIN_MIN && self.in_vain.is_power_of_two();
        often.then(|| self.in_vain * READ_AT_ONCE)
    }
}

fn digest_prefix(digest: &Digest) -> u64 {
    digest.as_bytes().iter().take(size_of::<u64>()).fold(0, |number, byte| number << 8 | u64::from(*byte))
}

impl Store {
    /// True if a pure `action` may be in the cache. It can miss an entry that another process added within the last
    /// second, so it must not be used for effects.
    pub fn may_be_cached(&self, action: &Digest) -> bool {
        !lock(&self.inner.known).rules_out(action)
    }

    /// Reads which actions are known, unless there are more than `max`.
    fn read_known(&self, known: &mut CachedActions, max: usize) -> Result<(), StoreError> {
        let found: Vec<u64> = self.inner.db.read_snapshot(|db| {
            let mut statement = db.prepare_cached("SELECT digest FROM actions LIMIT ?1")?;
            let limit = i64::try_from(max).unwrap_or(i64::MAX).saturating_add(1);
            let rows = statement.query_map([limit], |row| row.get::<_, [u8; 32]>(0))?;
            Ok(rows
                .map(|row| row.map(|bytes| digest_prefix(&Digest::from(bytes))))
                .collect::<Result<_, _>>()?)
        })?;
        if found.len() <= max {
            known.actions.extend(found);
            known.all_until = Some(Instant::now() + KNOWN_FOR);
            known.in_vain = 0;
        }
        Ok(())
    }

    /// The cached outcome of `action`, unless it is unknown, unreadable (the next outcome replaces it) or too old:
    /// past its own expiry, or older than `ttl_ms` milliseconds. With a limit on age, an outcome dated in the future
    /// is too old as well, because its real age is unknown.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn cached_outcome(
        &self,
        action: &Digest,
        ttl_ms: Option<i64>,
    ) -> Result<Option<StepOutcome>, StoreError> {
        let now = self.now();
        let since = ttl_ms.map_or(i64::MIN, |ttl| now.saturating_sub(ttl));
        let held = lock(&self.inner.pending).find_outcome(action);
        if let Some(held) = held {
            let known_age = held.created <= now || (ttl_ms.is_none() && held.expires.is_none());
            let fresh = known_age && held.created > since && held.expires.is_none_or(|expires| expires > now);
            return Ok(if fresh { read_outcome(action, &held.text) } else { None });
        }
        let sql = "SELECT outcome, used FROM actions
             WHERE digest = ?1 AND (expires IS NULL OR expires > ?2) AND created > ?3
               AND (created <= ?2 OR (?4 AND expires IS NULL))";
        let found = params![action.as_bytes(), now, since, ttl_ms.is_none()];
        let row: Option<(String, i64)> =
            self.inner.db.select_one(sql, found, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let Some((text, used)) = row else {
            let mut known = lock(&self.inner.known);
            if let Some(max) = known.record_miss() {
                self.read_known(&mut known, max)?;
            }
            return Ok(None);
        };
        if (now - used).abs() > TOUCH_EVERY_MS {
            let sql = "UPDATE actions SET used = ?2 WHERE digest = ?1";
            self.write_statement(Durability::Lazy, sql, params![action.as_bytes(), now])?;
        }
        Ok(read_outcome(action, &text))
    }

    /// Caches the outcome of `action`, for `ttl_ms` milliseconds or until collected. It is held for the next
    /// transaction, since a lost entry is computed again.
    ///
    /// # Errors
    /// If too many entries were held and cannot be written.
    pub fn cache_outcome(
        &self,
        action: Digest,
        outcome: &StepOutcome,
        ttl_ms: Option<i64>,
    ) -> Result<(), StoreError> {
        let redactions = self.current_redactions();
        let text = if redactions.is_empty() {
            json::compact(outcome)
        } else {
            let mut value = serde_json::to_value(outcome)
                .map_err(|e| StoreError::Json { what: "an outcome has no JSON text", source: e.into() })?;
            redactions.hide_in_value(&mut value);
            json::compact(&value)
        };
        let created = self.now();
        let expires = ttl_ms.map(|ttl| created.saturating_add(ttl));
        let held = KnownOutcome { text: text.into(), created, expires };
        lock(&self.inner.known).actions.insert(digest_prefix(&action));
        let full = lock(&self.inner.pending).hold_outcome(action, held);
        if full { self.flush_pending() } else { Ok(()) }
    }

    /// The value that `run` keeps under `key`.
    ///
    /// # Errors
    /// If there is no such run, or the database cannot be read.
    pub fn run_value(&self, run: RunId, key: &str) -> Result<Option<Value>, StoreError> {
        let text: Option<String> = self.inner.db.read_snapshot(|db| {
            let n = run_number(db, run)?;
            let sql = "SELECT value FROM run_values WHERE run = ?1 AND key = ?2";
            query_one(db, sql, params![n, key], |row| row.get(0))
        })?;
        let parse = |text: String| {
            json::parse(&text).map_err(|source| StoreError::Json { what: "a value kept by a run", source })
        };
        text.map(parse).transpose()
    }

    /// All values that `run` keeps, by key.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn run_values(&self, run: RunId) -> Result<BTreeMap<String, Value>, StoreError> {
        let sql = "SELECT key, value FROM run_values WHERE run = (SELECT n FROM runs WHERE id = ?1)";
        let kept: Vec<(String, String)> =
            self.inner.db.select_rows(sql, params![run.as_bytes()], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let own = kept.into_iter().filter(|(key, _)| !is_reserved_key(key));
        own.map(|(key, text)| match json::parse(&text) {
            Ok(value) => Ok((key, value)),
            Err(source) => Err(StoreError::Json { what: "a value kept by a run", source }),
        })
        .collect()
    }

    /// Keeps `value` for `run` under `key`, until the run is collected.
    ///
    /// # Errors
    /// If there is no such run, the key is reserved for the store (it begins with a zero byte), or the value cannot be
    /// written.
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
        self.current_redactions().hide_in_value(&mut value);
        self.write_transaction(durability, |tx| {
            let n = run_number(tx, run)?;
            self.check_claim(tx, run)?;
            tx.prepare_cached("INSERT OR REPLACE INTO run_values (run, key, value) VALUES (?1, ?2, ?3)")?
                .execute(params![n, key, json::compact(&value)])?;
            Ok(())
        })
    }
}

/// True if the key of a run's value is reserved for the store.
#[must_use]
pub fn is_reserved_key(key: &str) -> bool {
    key.starts_with(RESERVED)
}

/// Writes held-back outcomes as part of a transaction.
pub(super) fn insert_batch(tx: &Transaction<'_>, batch: &Batch) -> Result<(), StoreError> {
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
