//! Collection: removes runs that the policy does not keep, and then every blob that nothing names any more.
//!
//! It works in short transactions while other processes run. Five rules keep it safe. A run that is running or waiting
//! stays, and so does a run that a process has claimed or whose commit of file changes is unfinished, even if the
//! policy would remove it. A blob recorded recently stays, named or not. Before each batch of blobs is removed, names
//! written in the meantime are read. A blob's file is removed only while no process is placing one.
//!
//! If something is damaged, the names in it are unknown, so no blob can be proved unused: then no blob is removed, and
//! the damage is reported.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, Transaction, params};
use serde::Serialize;

use super::clock::longest_wait;
use super::db::Durability;
use super::error::StoreError;
use super::event::{RunId, is_interrupted_end};
use super::file_lock::{FileLock, Sharing};
use super::journal::{record_text_of, run_id};
use super::named_blobs::{Marks, NAMES_AT_MOST, digests_in, looks_like_json, read_json};
use super::statement::{execute, query_one, query_rows};
use super::{Store, claim_tables, fault, private};
use lobster_base::digest::Digest;
use lobster_base::regular_file;

/// Longest wait for a running collection.
const COLLECTION_AT_MOST: Duration = Duration::from_secs(30);

/// Runs decided and removed in one transaction, which takes tens of milliseconds.
const RUNS_AT_ONCE: i64 = 200;

/// Blobs read in one transaction.
const BLOBS_AT_ONCE: i64 = 250;

/// Pages returned to the file system in one transaction.
const PAGES_AT_ONCE: i64 = 2000;

/// Most damage listed in the error; `store verify` lists all.
const NAMED_DAMAGE: usize = 5;

/// Retention policy. The default keeps every run and removes only what nothing names.
#[derive(Clone, Debug, PartialEq)]
pub struct GcPolicy {
    /// Removes runs that ended more than this many milliseconds ago.
    pub max_age_ms: Option<i64>,
    /// Keeps at most this number of ended runs, the newest.
    pub max_runs: Option<u64>,
    /// Removes the oldest runs until the kept data takes at most this many bytes.
    pub max_bytes: Option<u64>,
    /// Treats running and waiting runs without a record for this many milliseconds as ended, unless a process executes
    /// them.
    pub abandoned_ms: Option<i64>,
    /// Keeps blobs recorded within this many milliseconds, named or not, because their run may be about to name them.
    /// Use 0 only for stores that are not in use.
    pub grace_ms: i64,
    /// Only reports what would be removed.
    pub dry_run: bool,
}

impl Default for GcPolicy {
    fn default() -> Self {
        Self {
            max_age_ms: None,
            max_runs: None,
            max_bytes: None,
            abandoned_ms: None,
            grace_ms: 60 * 60 * 1000,
            dry_run: false,
        }
    }
}

/// Removed items, or those to be removed in a dry run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GcReport {
    /// Runs removed, with their journals, gates and values.
    pub runs: u64,
    /// Runs kept.
    pub kept_runs: u64,
    /// Cached outcomes removed.
    pub actions: u64,
    /// Blobs removed.
    pub blobs: u64,
    /// Bytes of these blobs.
    pub bytes: u64,
    /// Files left by dead processes.
    pub leftovers: u64,
}

/// Last row read in each growing table of names.
#[derive(Default)]
struct ReadSoFar {
    journal: i64,
    gates: i64,
    actions: i64,
}

/// A section of the table of blobs.
#[derive(Default)]
struct Page {
    /// The last row read.
    last: i64,
    /// Files whose rows have been removed.
    files: Vec<PathBuf>,
    /// Prevents processes from placing files until these are removed.
    shelf: Option<FileLock>,
}

struct Collector<'a> {
    store: &'a Store,
    policy: &'a GcPolicy,
    now: i64,
    marks: Marks,
    /// Bytes of the data kept so far.
    kept_bytes: u64,
    report: GcReport,
    /// Damaged data that is kept; the names in it are unknown.
    damaged: Vec<String>,
}

impl Store {
    /// Collects by `policy`. Only one collection runs at a time; all other work may continue meanwhile.
    ///
    /// # Errors
    /// [`StoreError::GcBusy`] if another collection does not end in time; also if the store cannot be read or written.
    /// Data removed before the error stays removed, and the store remains consistent.
    pub fn collect_garbage(&self, policy: &GcPolicy) -> Result<GcReport, StoreError> {
        self.gc_with(policy, Marks::new())
    }

    pub(super) fn gc_with(&self, policy: &GcPolicy, marks: Marks) -> Result<GcReport, StoreError> {
        self.flush_pending()?;
        let _lock = self.lock_collection()?;
        let mut collector = Collector {
            store: self,
            policy,
            now: self.now(),
            marks,
            kept_bytes: 0,
            report: GcReport::default(),
            damaged: Vec::new(),
        };
        collector.check_database()?;
        collector.run_collection()?;
        Ok(collector.report)
    }
}

impl Collector<'_> {
    fn run_collection(&mut self) -> Result<(), StoreError> {
        let mut read = self.read_aside(|db| {
            let newest = |table: &str, column: &str| -> Result<i64, StoreError> {
                let sql = format!("SELECT coalesce(max({column}), 0) FROM {table}");
                Ok(db.query_row(&sql, [], |row| row.get(0))?)
            };
            Ok(ReadSoFar {
                journal: newest("journal", "id")?,
                gates: newest("gates", "n")?,
                actions: newest("actions", "n")?,
            })
        })?;
        self.forget_actions()?;
        self.mark_actions()?;
        self.decide_runs()?;
        self.check_names()?;
        self.sweep_blobs(&mut read)?;
        self.sweep_files(&mut read)?;
        if !self.policy.dry_run {
            if let Some(age) = self.policy.max_age_ms {
                self.store.forget_service_history(self.now.saturating_sub(age))?;
                self.store.forget_days(self.now.saturating_sub(age))?;
                self.store.forget_answers(age)?;
            }
            self.give_back_space()?;
        }
        Ok(())
    }

    /// Fails if the database is damaged: an index that lost a row would hide the names in a run.
    fn check_database(&self) -> Result<(), StoreError> {
        let db = &self.store.inner.db;
        let said: String =
            db.read_raw(|db| Ok(db.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?))?;
        if said == "ok" {
            return Ok(());
        }
        Err(StoreError::Damaged { path: db.path().to_owned(), what: said })
    }

    /// Fails if names may be missing among the marks.
    fn check_names(&self) -> Result<(), StoreError> {
        if self.damaged.is_empty() {
            return Ok(());
        }
        let named = self.damaged.iter().take(NAMED_DAMAGE).cloned().collect::<Vec<_>>().join("; ");
        let more = match self.damaged.len().saturating_sub(NAMED_DAMAGE) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        Err(StoreError::CannotCollect { runs: self.report.runs, damage: named + &more })
    }

    fn read_aside<T>(&self, work: impl Fn(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.store.inner.db.read_aside(work)
    }

    /// Removes outdated cached outcomes. An outcome that has only just expired stays, since it may still be in use.
    fn forget_actions(&mut self) -> Result<(), StoreError> {
        let ran_out = self.now - self.policy.grace_ms;
        let unused = self.policy.max_age_ms.map_or(i64::MIN, |age| self.now.saturating_sub(age).min(ran_out));
        let count = "SELECT count(*) FROM actions WHERE expires < ?1 OR used < ?2";
        let gone: i64 =
            self.read_aside(|db| Ok(db.query_row(count, [ran_out, unused], |row| row.get(0))?))?;
        self.report.actions = gone.cast_unsigned();
        if gone > 0 && !self.policy.dry_run {
            let delete = "DELETE FROM actions WHERE expires < ?1 OR used < ?2";
            self.store.write_statement(Durability::Lazy, delete, [ran_out, unused])?;
        }
        Ok(())
    }

    /// Marks the blobs that cached outcomes name.
    fn mark_actions(&mut self) -> Result<(), StoreError> {
        let (store, sql) = (self.store, "SELECT n, outcome FROM actions WHERE n > ?1 ORDER BY n LIMIT ?2");
        let look = |_, text: String| self.mark_text(text.as_bytes());
        store.inner.db.each_row(sql, BLOBS_AT_ONCE, |row| row.get(1), look)
    }

    /// Goes through the runs from the newest to the oldest: keeps each and marks the blobs that it names, or removes
    /// it.
    fn decide_runs(&mut self) -> Result<(), StoreError> {
        let mut before = i64::MAX;
        let mut over_kept = 0;
        loop {
            let page: Vec<Candidate> = self.read_aside(|db| {
                let sql = "SELECT n, status, pinned, ended, started, head_seq, id FROM runs WHERE n < ?1 ORDER BY n DESC LIMIT ?2";
                query_rows(db, sql, [before, RUNS_AT_ONCE], candidate_from_row)
            })?;
            let Some(last) = page.last() else { return Ok(()) };
            before = last.n;
            // Claims are listed first: a commit begins under a claim, so the journal of a commit without a claim is in
            // the list that follows. A commit that begins later changes the run's record, which keeps it.
            let mut busy: HashSet<RunId> =
                page.iter().map(|run| run.id).filter(|run| self.store.is_claimed(*run)).collect();
            // A commit interrupted by a crash is completed in the name of its run.
            busy.extend(self.store.unfinished_commits()?);
            let mut doomed = Vec::new();
            for run in page {
                if self.is_kept(&run, busy.contains(&run.id), &mut over_kept)? {
                    self.keep_run(&run)?;
                } else {
                    doomed.push(run);
                }
            }
            self.remove_runs(&doomed)?;
        }
    }

    /// True if the policy keeps `run`. `over_kept` is the number of ended runs kept so far.
    fn is_kept(&self, run: &Candidate, is_busy: bool, over_kept: &mut u64) -> Result<bool, StoreError> {
        if run.pinned || is_busy {
            return Ok(true);
        }
        let was_heard = |silence: i64| Ok(self.last_heard(run)? > self.now.saturating_sub(silence));
        let Some(ended) = run.ended else { return self.policy.abandoned_ms.map_or(Ok(true), was_heard) };
        let stays = self.policy.max_age_ms.is_none_or(|age| ended >= self.now.saturating_sub(age))
            && self.policy.max_runs.is_none_or(|most| *over_kept < most)
            && self.policy.max_bytes.is_none_or(|most| self.kept_bytes < most);
        if !stays && run.has_failed && self.is_interrupted(run)? {
            return self.policy.abandoned_ms.map_or(Ok(true), was_heard);
        }
        *over_kept += u64::from(stays);
        Ok(stays)
    }

    /// True for a run stopped by a signal or by an effect of unknown outcome: it can be resumed.
    fn is_interrupted(&self, run: &Candidate) -> Result<bool, StoreError> {
        Ok(self.last_record(run)?.is_some_and(|record| is_interrupted_end(&record["event"]["detail"])))
    }

    /// Time of the last record of a run.
    fn last_heard(&self, run: &Candidate) -> Result<i64, StoreError> {
        let at = self.last_record(run)?.and_then(|record| record["at"].as_i64());
        Ok(at.unwrap_or(run.started))
    }

    fn last_record(&self, run: &Candidate) -> Result<Option<serde_json::Value>, StoreError> {
        let text: Option<String> = self.read_aside(|db| {
            let sql = "SELECT record FROM journal WHERE run = ?1 AND seq = ?2";
            query_one(db, sql, [run.n, run.head_seq], |row| record_text_of(row, 0))
        })?;
        Ok(text.and_then(|text| lobster_base::json::parse(&text).ok()))
    }

    fn keep_run(&mut self, run: &Candidate) -> Result<(), StoreError> {
        self.report.kept_runs += 1;
        match self.store.follow_chain(run.id, |_| {}) {
            Ok(()) => {}
            Err(StoreError::BrokenChain { run, seq, why }) => {
                self.damaged.push(format!("run {run}, record {seq}: {why}"));
            }
            // Another process has removed it meanwhile.
            Err(StoreError::UnknownRun(_)) => return Ok(()),
            Err(other) => return Err(other),
        }
        let texts: Vec<String> = self.read_aside(|db| texts_of_run(db, run.n))?;
        for text in &texts {
            self.kept_bytes += text.len() as u64;
            self.mark_text(text.as_bytes())?;
        }
        Ok(())
    }

    fn remove_runs(&mut self, doomed: &[Candidate]) -> Result<(), StoreError> {
        if self.policy.dry_run || doomed.is_empty() {
            self.report.runs += doomed.len() as u64;
            return Ok(());
        }
        // A run may have been claimed, resumed or pinned since it was checked. A process that claims it after this
        // point cannot write to it before it is removed, and an effect begins only after its intent is written.
        let (spared, removed) = self.store.write_transaction(Durability::Lazy, |tx| {
            let (mut spared, mut removed) = (Vec::new(), Vec::new());
            for run in doomed {
                let same = "SELECT 1 FROM runs WHERE n = ?1 AND head_seq = ?2 AND pinned = 0";
                if self.store.is_claimed(run.id) || !tx.prepare_cached(same)?.exists([run.n, run.head_seq])? {
                    spared.push(*run);
                    continue;
                }
                for table in ["journal", "gates", "run_values"] {
                    execute(tx, &format!("DELETE FROM {table} WHERE run = ?1"), [run.n])?;
                }
                let id = tx
                    .prepare_cached("DELETE FROM runs WHERE n = ?1 RETURNING id")?
                    .query_row([run.n], |row| run_id(row, 0))?;
                claim_tables::remove_claim(tx, id.as_bytes())?;
                removed.push(id);
            }
            Ok((spared, removed))
        })?;
        for witness in self.store.witnesses().iter() {
            witness.runs_removed(&removed)?;
        }
        self.report.runs += (doomed.len() - spared.len()) as u64;
        spared.into_iter().try_for_each(|run| self.keep_run(&run))
    }

    /// Marks all digests in `text`, and those in the blobs that it names in turn.
    fn mark_text(&mut self, text: &[u8]) -> Result<(), StoreError> {
        let mut fresh = Vec::new();
        digests_in(text, |digest| fresh.push(digest));
        while let Some(digest) = fresh.pop() {
            let is_new = self.marks.add(&digest);
            if !self.marks.begin_to_read(&digest) {
                continue;
            }
            let Some((len, data)) = self.read_aside(|db| row_of_blob(db, &digest))? else { continue };
            self.kept_bytes += if is_new { len } else { 0 };
            let path = self.store.blob_path(&digest);
            let content = match data {
                Some(data) => Ok(data),
                None if len <= NAMES_AT_MOST => read_json(&path),
                None => continue,
            };
            match content {
                Ok(content) if !looks_like_json(&content) => {}
                Ok(content) if Digest::of_bytes(&content) == digest => {
                    digests_in(&content, |digest| fresh.push(digest));
                }
                Ok(_) => self.damaged.push(format!("blob {digest} was changed after it was written")),
                // A missing blob leads to no others; `verify` reports it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.damaged.push(format!("blob {digest} cannot be read: {error}")),
            }
        }
        Ok(())
    }

    /// Marks the names written since `read`. Called inside the transaction that removes, so that nothing can be added
    /// in between.
    fn catch_up(&mut self, tx: &Transaction<'_>, read: &mut ReadSoFar) -> Result<(), StoreError> {
        for (sql, after) in [
            ("SELECT id, record FROM journal WHERE id > ?1 ORDER BY id", &mut read.journal),
            (
                "SELECT n, lower(hex(question)) || ' ' || detail FROM gates WHERE n > ?1 ORDER BY n",
                &mut read.gates,
            ),
            ("SELECT n, outcome FROM actions WHERE n > ?1 ORDER BY n", &mut read.actions),
        ] {
            let mut statement = tx.prepare_cached(sql)?;
            let mut rows = statement.query([*after])?;
            while let Some(row) = rows.next()? {
                *after = row.get(0)?;
                let text = record_text_of(row, 1)?;
                self.mark_text(text.as_bytes())?;
            }
        }
        Ok(())
    }

    fn sweep_blobs(&mut self, read: &mut ReadSoFar) -> Result<(), StoreError> {
        let store = self.store;
        let mut page = Page::default();
        loop {
            let after = page.last;
            // The rows are removed first and durably, so that no row or run outlives its file. A file left by a crash
            // is removed by the next collection.
            page = store.write_transaction(Durability::Synced, |tx| self.sweep_page(tx, read, after))?;
            for path in &page.files {
                self.remove_file(path)?;
            }
            page.shelf = None;
            if page.last == after {
                return Ok(());
            }
        }
    }

    /// Removes the rows of the unmarked blobs in the next page.
    fn sweep_page(
        &mut self,
        tx: &Transaction<'_>,
        read: &mut ReadSoFar,
        after: i64,
    ) -> Result<Page, StoreError> {
        self.catch_up(tx, read)?;
        self.check_names()?;
        let mut page = Page { last: after, ..Page::default() };
        let mut statement = tx.prepare_cached(
            "SELECT id, digest, len, touched, data IS NULL FROM blobs WHERE id > ?1 ORDER BY id LIMIT ?2",
        )?;
        let mut rows = statement.query([after, BLOBS_AT_ONCE])?;
        while let Some(row) = rows.next()? {
            page.last = row.get(0)?;
            let digest: Digest = row.get::<_, [u8; 32]>(1)?.into();
            // A time in the future was recorded before the clock was set back; it is treated as now.
            if row.get::<_, i64>(3)? > self.now - self.policy.grace_ms || self.marks.may_contain(&digest) {
                continue;
            }
            let in_file: bool = row.get(4)?;
            if in_file && !self.policy.dry_run {
                if page.shelf.is_none() {
                    page.shelf = Some(self.store.lock_shelf(Sharing::Exclusive)?);
                }
                let path = self.store.blob_path(&digest);
                if !self.is_old(&path)? {
                    continue;
                }
                page.files.push(path);
            }
            self.report.blobs += 1;
            self.report.bytes += row.get::<_, i64>(2)?.cast_unsigned();
            if !self.policy.dry_run {
                execute(tx, "DELETE FROM blobs WHERE id = ?1", [page.last])?;
            }
        }
        Ok(page)
    }

    /// True if a file was not written recently, or is missing.
    fn is_old(&self, path: &Path) -> Result<bool, StoreError> {
        match fs::metadata(path) {
            Ok(meta) => Ok(!is_recent(&meta, self.policy.grace_ms)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(e) => Err(StoreError::io("look at", path, e)),
        }
    }

    /// Removes a file; its writer may have removed or renamed it already.
    fn remove_file(&self, path: &Path) -> Result<(), StoreError> {
        let removed = fault::point("remove").and_then(|()| fs::remove_file(path));
        let is_gone = removed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if is_gone { Ok(()) } else { removed.map_err(|error| StoreError::io("remove", path, error)) }
    }

    /// Removes a file unless it was written recently; false if it stays.
    fn remove_if_old(&self, path: &Path) -> Result<bool, StoreError> {
        let old = self.is_old(path)?;
        if old && !self.policy.dry_run {
            self.remove_file(path)?;
        }
        Ok(old)
    }

    /// Removes blob files without a row (after a crash between the two), and files left by dead writers.
    fn sweep_files(&mut self, read: &mut ReadSoFar) -> Result<(), StoreError> {
        let dir = self.store.inner.dir.clone();
        for shelf in dir_entries(&dir.join("blobs")) {
            let orphans: Vec<_> = dir_entries(&shelf)
                .into_iter()
                .filter_map(|path| Some((path.file_name()?.to_str()?.parse::<Digest>().ok()?, path)))
                .filter(|(digest, _)| !self.marks.may_contain(digest))
                .collect();
            for (digest, path) in orphans {
                if self.read_aside(|db| row_exists(db, &digest))? {
                    continue;
                }
                let store = self.store;
                let len = fs::metadata(&path).map_or(0, |meta| meta.len());
                let gone = store.write_transaction(Durability::Lazy, |tx| {
                    self.catch_up(tx, read)?;
                    self.check_names()?;
                    if self.marks.may_contain(&digest) || row_exists(tx, &digest)? {
                        return Ok(false);
                    }
                    let _shelf = store.lock_shelf(Sharing::Exclusive)?;
                    self.remove_if_old(&path)
                })?;
                self.report.blobs += u64::from(gone);
                self.report.bytes += if gone { len } else { 0 };
            }
        }
        let state = dir.parent().unwrap_or(&dir).to_owned();
        let drafts = dir_entries(&dir.join("tmp"))
            .into_iter()
            .chain(dir_entries(&dir).into_iter().filter(|path| is_named(path, "new-", "")))
            .chain(dir_entries(&state).into_iter().filter(|path| is_named(path, ".lobster-", ".tmp")));
        for path in drafts {
            // A file that is still being written is locked by its writer.
            if path.is_dir() {
                continue;
            }
            let free = regular_file::open_own(File::options().read(true), &path)
                .and_then(|file| FileLock::try_acquire(file, Sharing::Exclusive, Duration::ZERO))
                .is_ok_and(|lock| lock.is_some());
            if free && self.remove_if_old(&path)? {
                self.report.leftovers += 1;
            }
        }
        let store = self.store;
        let is_known = |run: RunId| self.read_aside(|db| run_exists(db, run));
        let dry_run = self.policy.dry_run;
        let swept = store.sweep_outputs(&is_known, dry_run)? + store.sweep_claims(&is_known, dry_run)?;
        self.report.leftovers += swept
            + match dry_run {
                true => store.left_directories().len() as u64,
                false => store.remove_left_directories(),
            };
        Ok(())
    }

    fn give_back_space(&self) -> Result<(), StoreError> {
        loop {
            let free: i64 =
                self.read_aside(|db| Ok(db.query_row("PRAGMA freelist_count", [], |row| row.get(0))?))?;
            if free == 0 {
                return Ok(());
            }
            let freed = self.store.write_transaction(Durability::Lazy, |tx| {
                let mut statement = tx.prepare(&format!("PRAGMA incremental_vacuum({PAGES_AT_ONCE})"))?;
                let mut rows = statement.query([])?;
                while rows.next()?.is_some() {}
                drop(rows);
                Ok(tx.query_row("PRAGMA freelist_count", [], |row| row.get::<_, i64>(0))? < free)
            })?;
            if !freed {
                return Ok(());
            }
        }
    }
}

/// A run, as far as the policy needs it.
#[derive(Clone, Copy)]
struct Candidate {
    n: i64,
    id: RunId,
    pinned: bool,
    /// `None` while it is running or waiting.
    ended: Option<i64>,
    started: i64,
    head_seq: i64,
    has_failed: bool,
}

fn candidate_from_row(row: &rusqlite::Row<'_>) -> rusqlite::Result<Candidate> {
    let status: super::event::RunStatus = super::journal::read_word(row, 1)?;
    let started: i64 = row.get(4)?;
    let ended: Option<i64> = row.get(3)?;
    Ok(Candidate {
        n: row.get(0)?,
        id: run_id(row, 6)?,
        pinned: row.get(2)?,
        ended: status.is_over().then(|| ended.unwrap_or(started)),
        started,
        head_seq: row.get(5)?,
        has_failed: status == super::event::RunStatus::Failed,
    })
}

/// All texts of a run that may name blobs.
fn texts_of_run(db: &Connection, n: i64) -> Result<Vec<String>, StoreError> {
    let mut texts = Vec::new();
    for sql in [
        "SELECT record FROM journal WHERE run = ?1",
        "SELECT value FROM run_values WHERE run = ?1",
        "SELECT lower(hex(question)) || ' ' || detail || ' ' || coalesce(answer, '') FROM gates WHERE run = ?1",
    ] {
        let mut statement = db.prepare_cached(sql)?;
        let rows = statement.query_map(params![n], |row| record_text_of(row, 0))?;
        for text in rows {
            texts.push(text?);
        }
    }
    Ok(texts)
}

type BlobRow = (u64, Option<Vec<u8>>);

/// Size of a blob and, if it is in the database, its bytes; only for blobs that may name others.
fn row_of_blob(db: &Connection, digest: &Digest) -> Result<Option<BlobRow>, StoreError> {
    let sql = "SELECT len, iif(substr(data, 1, 1) IN (x'7b', x'5b') OR data IS NULL, data, x'') FROM blobs WHERE digest = ?1";
    query_one(db, sql, [digest.as_bytes()], |row| Ok((row.get::<_, i64>(0)?.cast_unsigned(), row.get(1)?)))
}

fn run_exists(db: &Connection, run: RunId) -> Result<bool, StoreError> {
    Ok(db.prepare_cached("SELECT 1 FROM runs WHERE id = ?1")?.exists([run.as_bytes()])?)
}

fn row_exists(db: &Connection, digest: &Digest) -> Result<bool, StoreError> {
    Ok(db.prepare_cached("SELECT 1 FROM blobs WHERE digest = ?1")?.exists([digest.as_bytes()])?)
}

/// True if a file was written within `grace_ms`, or at a time in the future.
fn is_recent(meta: &fs::Metadata, grace_ms: i64) -> bool {
    let grace = Duration::from_millis(u64::try_from(grace_ms).unwrap_or(0));
    let age = meta.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    grace > Duration::ZERO && age.is_none_or(|age| age < grace)
}

/// The paths in a directory; none if it cannot be read.
pub(super) fn dir_entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(listing) = fs::read_dir(dir) else { return Vec::new() };
    listing.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn is_named(path: &Path, prefix: &str, suffix: &str) -> bool {
    path.file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with(prefix) && name.ends_with(suffix))
}

impl Store {
    /// Prevents collections while the lock is held. Waits for a running one, which a command may have started unasked.
    pub(super) fn lock_collection(&self) -> Result<FileLock, StoreError> {
        let path = self.inner.dir.join("gc.lock");
        let open = regular_file::open_own(
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600),
            &path,
        );
        open.and_then(|file| FileLock::try_acquire(file, Sharing::Exclusive, COLLECTION_AT_MOST))
            .map_err(|e| StoreError::io("lock", &path, e))?
            .ok_or(StoreError::GcBusy)
    }

    /// Locks the directory of blob files: shared for adding one, exclusive for removing one.
    pub(super) fn lock_shelf(&self, sharing: Sharing) -> Result<FileLock, StoreError> {
        let shelf = self.inner.dir.join("blobs");
        let take = || {
            private::make_dir(&shelf)?;
            FileLock::try_acquire(File::open(&shelf)?, sharing, longest_wait())
        };
        take()
            .map_err(|e| StoreError::io("lock", &shelf, e))?
            .ok_or(StoreError::Busy { path: shelf, seconds: longest_wait().as_secs() })
    }
}
