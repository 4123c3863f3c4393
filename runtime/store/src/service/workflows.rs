//! Registered workflows: the file and version that the service runs, and who registered it.

use rusqlite::{Connection, Row, Transaction, params};
use serde_json::json;

use super::Service;
use super::schedules::{self, TickState};
use super::trail::note_deed;
use crate::error::StoreError;
use crate::statement::{execute, query_one, query_rows};
use lobster_base::digest::Digest;

/// A registered workflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    pub n: i64,
    pub name: String,
    /// The file, as an absolute path.
    pub path: String,
    /// Digest of the registered plan; other plans are not run.
    pub digest: Digest,
    /// Description of that version, as JSON.
    pub content: String,
    pub registered_by: Option<String>,
    /// In milliseconds since 1970.
    pub registered_at: i64,
}

/// A schedule of a version to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecOfSchedule {
    pub name: String,
    /// The schedule as JSON; a different text is a new revision.
    pub spec: String,
    /// First due time, in milliseconds since 1970.
    pub next: Option<i64>,
}

/// A version to be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    pub name: String,
    pub path: String,
    pub digest: Digest,
    pub content: String,
    pub schedules: Vec<SpecOfSchedule>,
}

/// Returns the reason why a version conflicts with another registered workflow, if it does.
pub type Refuses<'r> = &'r dyn Fn(&Registered) -> Option<String>;

impl Service {
    /// Registers a version of a workflow in place of an earlier one. Its schedules begin now; schedules with the same
    /// text continue. Ticks of a changed or removed schedule that are due and undecided are recorded as superseded.
    /// `refuses` is called for each other registered workflow.
    ///
    /// # Errors
    /// If it is refused or cannot be written.
    pub fn register_workflow(
        &self,
        new: &Registration,
        actor: Option<&str>,
        origin: &str,
        refuses: Option<Refuses<'_>>,
    ) -> Result<i64, StoreError> {
        self.write_durably(|tx, now| {
            if let Some(refuses) = refuses {
                let others = all_registered(tx)?.into_iter().filter(|other| other.name != new.name);
                if let Some(why) = others.into_iter().find_map(|other| refuses(&other)) {
                    return Err(StoreError::Refused(why));
                }
            }
            let sql = "SELECT n, digest FROM workflows WHERE name = ?1";
            let known: Option<(i64, [u8; 32])> =
                query_one(tx, sql, [&new.name], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let sql = "INSERT INTO workflows (name, path, digest, content, by, registered) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (name) DO UPDATE SET
                 path = ?2, digest = ?3, content = ?4, by = ?5, registered = ?6, removed = NULL";
            execute(tx, sql, params![new.name, new.path, new.digest.as_bytes(), new.content, actor, now])?;
            let n: i64 = tx
                .prepare_cached("SELECT n FROM workflows WHERE name = ?1")?
                .query_row([&new.name], |row| row.get(0))?;
            replace_schedules(tx, n, &new.schedules, now)?;
            let was = known.map(|(_, digest)| Digest::from(digest).to_string());
            let detail = json!({ "path": new.path, "digest": new.digest, "was": was });
            note_deed(tx, now, "register", &new.name, (actor, origin), &detail)?;
            Ok(n)
        })
    }

    /// Unregisters a workflow: the service no longer starts it.
    ///
    /// # Errors
    /// If it cannot be written. False if it is not registered.
    pub fn unregister_workflow(
        &self,
        name: &str,
        actor: Option<&str>,
        origin: &str,
    ) -> Result<bool, StoreError> {
        self.write_durably(|tx, now| {
            let sql = "UPDATE workflows SET removed = ?2 WHERE name = ?1 AND removed IS NULL RETURNING n";
            let found: Option<i64> = query_one(tx, sql, params![name, now], |row| row.get(0))?;
            let Some(n) = found else { return Ok(false) };
            replace_schedules(tx, n, &[], now)?;
            let sql = "UPDATE starts SET state = 'withdrawn', why = 'the workflow was unregistered', ended = ?2
                 WHERE workflow = ?1 AND state = 'queued' AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.id = starts.run)";
            execute(tx, sql, [n, now])?;
            note_deed(tx, now, "unregister", name, (actor, origin), &json!({}))?;
            Ok(true)
        })
    }

    /// The registered workflows, by name.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn list_workflows(&self) -> Result<Vec<Registered>, StoreError> {
        self.read_snapshot(all_registered)
    }

    /// A registered workflow.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn find_workflow(&self, name: &str) -> Result<Option<Registered>, StoreError> {
        let sql = format!("{SELECT} WHERE name = ?1 AND removed IS NULL");
        self.db().select_one(&sql, [name], registered_from_row)
    }

    /// A text that changes with the registered workflows: their versions and times of registration.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn registration_stamp(&self) -> Result<String, StoreError> {
        let sql = "SELECT group_concat(n || hex(digest) || registered) FROM workflows WHERE removed IS NULL";
        self.read_snapshot(|db| {
            Ok(db
                .prepare_cached(sql)?
                .query_row([], |row| row.get::<_, Option<String>>(0))?
                .unwrap_or_default())
        })
    }

    /// A workflow by its number, even if it is no longer registered.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn workflow_by_number(&self, n: i64) -> Result<Option<Registered>, StoreError> {
        self.db().select_one(&format!("{SELECT} WHERE n = ?1"), [n], registered_from_row)
    }
}

/// Replaces the schedules of the previous version.
fn replace_schedules(
    tx: &Transaction<'_>,
    workflow: i64,
    wanted: &[SpecOfSchedule],
    now: i64,
) -> Result<(), StoreError> {
    let known = schedules::of_workflow(tx, workflow)?;
    for row in &known {
        let kept = wanted.iter().find(|one| one.name == row.name);
        if !row.is_removed && kept.is_some_and(|kept| kept.spec == row.spec) {
            continue;
        }
        if !row.is_removed && row.next.is_some_and(|next| next <= now) {
            // Due ticks are decided before a registration; these became due since.
            let why = if kept.is_some() { "the schedule was changed" } else { "the schedule was removed" };
            schedules::note_stretch(tx, row, now, TickState::Superseded, why)?;
        }
        match kept {
            Some(kept) => tx
                .prepare_cached(
                    "UPDATE schedules SET spec = ?2, revision = revision + 1, decided = ?3, next = ?4, removed = NULL
                     WHERE n = ?1",
                )?
                .execute(params![row.n, kept.spec, now, kept.next])?,
            None if row.is_removed => 0,
            None => tx
                .prepare_cached("UPDATE schedules SET removed = ?2, next = NULL, decided = ?2 WHERE n = ?1")?
                .execute([row.n, now])?,
        };
    }
    for new in wanted.iter().filter(|new| !known.iter().any(|row| row.name == new.name)) {
        let sql = "INSERT INTO schedules (workflow, name, revision, spec, decided, next) VALUES (?1, ?2, 1, ?3, ?4, ?5)";
        execute(tx, sql, params![workflow, new.name, new.spec, now, new.next])?;
    }
    Ok(())
}

fn all_registered(db: &Connection) -> Result<Vec<Registered>, StoreError> {
    query_rows(db, &format!("{SELECT} WHERE removed IS NULL ORDER BY name"), [], registered_from_row)
}

const SELECT: &str = "SELECT n, name, path, digest, content, by, registered FROM workflows";

fn registered_from_row(row: &Row<'_>) -> rusqlite::Result<Registered> {
    Ok(Registered {
        n: row.get(0)?,
        name: row.get(1)?,
        path: row.get(2)?,
        digest: row.get::<_, [u8; 32]>(3)?.into(),
        content: row.get(4)?,
        registered_by: row.get(5)?,
        registered_at: row.get(6)?,
    })
}
