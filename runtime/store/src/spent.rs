//! Daily use of model calls, for each owner of a daily budget: a workflow, or the service.
//!
//! A call is added before it is made, with the most that it can use, in the transaction that compares it with the
//! limits; so processes that share a store share the budget. Later this is replaced by the actual use. If the process
//! dies in between, the maximum stays added.
//!
//! The tables are created by the first program that needs them, so that an older lobster can still read the store.

use rusqlite::{Row, Transaction, params};

use super::Store;
use super::db::Durability;
use super::error::StoreError;
use super::spent_tables::{create_if_missing, is_there};
use super::statement::{query_one, query_rows};
use lobster_base::budget::{Amount, Unit, UsageLimits};

const MILLISECONDS_OF_A_DAY: i64 = 86_400_000;

/// A day in UTC, as the number of days since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Day(pub i64);

/// A daily budget that a call needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayLimit {
    /// The owner: the same for all runs that share the budget.
    pub key: String,
    /// The limits of the budget.
    pub limits: UsageLimits,
}

/// A budget without room for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayFull {
    /// Index of the budget in the list that was checked.
    pub index: usize,
    /// The unit whose limit was reached.
    pub unit: Unit,
    /// The use before the call.
    pub used: Amount,
}

/// The use of a daily budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaySpent {
    /// The owner.
    pub key: String,
    /// The limits that the last call was compared with.
    pub limits: UsageLimits,
    /// The amount used, plus the most that current calls may use.
    pub used: Amount,
}

impl Store {
    /// The current day.
    #[must_use]
    pub fn today(&self) -> Day {
        Day(self.clock_ms().div_euclid(MILLISECONDS_OF_A_DAY))
    }

    /// Adds the most that a call can use to all of these budgets of today, durably, or to none if one has no room for
    /// it.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub fn spend_today(
        &self,
        budgets: &[DayLimit],
        amount: Amount,
    ) -> Result<Result<Day, DayFull>, StoreError> {
        let day = self.today();
        self.write_transaction(Durability::Synced, |tx| {
            create_if_missing(tx)?;
            let mut sums = Vec::new();
            for (index, budget) in budgets.iter().enumerate() {
                let used = amount_spent(tx, &budget.key, day)?;
                let sum = used.plus(amount);
                if let Some(unit) = budget.limits.passed_by(&sum) {
                    return Ok(Err(DayFull { index, unit, used }));
                }
                sums.push(sum);
            }
            for (budget, sum) in budgets.iter().zip(sums) {
                set(tx, budget, day, sum)?;
            }
            Ok(Ok(day))
        })
    }

    /// Replaces the reserved amount of that day by the actual use.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub fn settle_day(
        &self,
        budgets: &[DayLimit],
        day: Day,
        reserved: Amount,
        used: Amount,
    ) -> Result<(), StoreError> {
        // If this write is lost, the call keeps the most that it can have used.
        self.write_transaction(Durability::Lazy, |tx| {
            create_if_missing(tx)?;
            for budget in budgets {
                let before = amount_spent(tx, &budget.key, day)?;
                set(tx, budget, day, before.minus(reserved).plus(used))?;
            }
            Ok(())
        })
    }

    /// The use of all budgets of a day.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn spent_on(&self, day: Day) -> Result<Vec<DaySpent>, StoreError> {
        self.inner.db.read_snapshot(|db| {
            if !is_there(db)? {
                return Ok(Vec::new());
            }
            let sql = "SELECT key, calls, tokens, nano_usd, max_calls, max_tokens, max_nano_usd FROM spent
                 WHERE day = ?1 ORDER BY key";
            query_rows(db, sql, [day.0], |row| {
                Ok(DaySpent { key: row.get(0)?, used: amount_at(row, 1)?, limits: limits_at(row, 4)? })
            })
        })
    }

    /// Removes the days before a point in time.
    pub(super) fn forget_days(&self, before: i64) -> Result<(), StoreError> {
        if !self.inner.db.read_snapshot(|db| Ok(is_there(db)?))? {
            return Ok(());
        }
        let (sql, day) = ("DELETE FROM spent WHERE day < ?1", before.div_euclid(MILLISECONDS_OF_A_DAY));
        self.write_statement(Durability::Lazy, sql, [day]).map(drop)
    }

    /// Sets the daily budget of all runs of the service, which applies in addition to their own. With
    /// true, models without a price may be called.
    ///
    /// # Errors
    /// If the store cannot be read or written.
    pub fn set_service_budget(&self, budget: Option<(UsageLimits, bool)>) -> Result<(), StoreError> {
        if budget.is_none() && self.service_budget()?.is_none() {
            return Ok(());
        }
        self.write_transaction(Durability::Synced, |tx| {
            create_if_missing(tx)?;
            tx.execute("DELETE FROM service_budget", [])?;
            if let Some((limits, allows_unpriced)) = budget {
                tx.execute(
                    "INSERT INTO service_budget (max_calls, max_tokens, max_nano_usd, allows_unpriced)
                     VALUES (?1, ?2, ?3, ?4)",
                    params![
                        limits.calls.map(to_sql_integer),
                        limits.tokens.map(to_sql_integer),
                        limits.nano_usd.map(to_sql_integer),
                        allows_unpriced
                    ],
                )?;
            }
            Ok(())
        })
    }

    /// The service's budget, and true if models without a price may be called.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn service_budget(&self) -> Result<Option<(UsageLimits, bool)>, StoreError> {
        self.inner.db.read_snapshot(|db| {
            if !is_there(db)? {
                return Ok(None);
            }
            let sql = "SELECT max_calls, max_tokens, max_nano_usd, allows_unpriced FROM service_budget";
            query_one(db, sql, [], |row| Ok((limits_at(row, 0)?, row.get(3)?)))
        })
    }
}

/// SQLite's integers are signed.
fn to_sql_integer(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn from_sql_integer(whole: i64) -> u64 {
    u64::try_from(whole).unwrap_or(0)
}

/// The amount in the columns from `first` on.
fn amount_at(row: &Row<'_>, first: usize) -> rusqlite::Result<Amount> {
    let count = |at: usize| row.get(at).map(from_sql_integer);
    Ok(Amount { calls: count(first)?, tokens: count(first + 1)?, nano_usd: count(first + 2)? })
}

/// The limits in the columns from `first` on.
fn limits_at(row: &Row<'_>, first: usize) -> rusqlite::Result<UsageLimits> {
    let limit = |at: usize| row.get::<_, Option<i64>>(at).map(|limit| limit.map(from_sql_integer));
    Ok(UsageLimits { calls: limit(first)?, tokens: limit(first + 1)?, nano_usd: limit(first + 2)? })
}

fn amount_spent(tx: &Transaction<'_>, key: &str, day: Day) -> Result<Amount, StoreError> {
    let sql = "SELECT calls, tokens, nano_usd FROM spent WHERE key = ?1 AND day = ?2";
    Ok(query_one(tx, sql, params![key, day.0], |row| amount_at(row, 0))?.unwrap_or_default())
}

fn set(tx: &Transaction<'_>, budget: &DayLimit, day: Day, used: Amount) -> rusqlite::Result<()> {
    let limits = budget.limits;
    tx.prepare_cached(
        "INSERT OR REPLACE INTO spent (key, day, calls, tokens, nano_usd, max_calls, max_tokens, max_nano_usd)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?
    .execute(params![
        budget.key,
        day.0,
        to_sql_integer(used.calls),
        to_sql_integer(used.tokens),
        to_sql_integer(used.nano_usd),
        limits.calls.map(to_sql_integer),
        limits.tokens.map(to_sql_integer),
        limits.nano_usd.map(to_sql_integer)
    ])?;
    Ok(())
}
