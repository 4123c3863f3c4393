//! Copies of a whole store: of a live one ([`Store::backup`]), and of the readable rest of a damaged one
//! ([`Store::salvage`]).
//!
//! Both write a state directory under a temporary name and move it into place when it is complete and durable, so a
//! half-written copy never appears.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::params;
use rustix::fs::{CWD, RenameFlags};
use serde::Serialize;
use tempfile::TempDir;

use super::Store;
use super::db::{self, sync_dir};
use super::error::StoreError;
use super::event::RunId;
use super::gc::dir_entries;
use super::rescue::rescue_database;
use super::verify::{Problem, VerifyReport};
use super::wal_file::log_path;
use lobster_base::digest::Digest;
use lobster_base::regular_file;

/// Bytes copied at a time.
const PIECE: usize = 1 << 20;

/// Contents of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CopyReport {
    pub runs: u64,
    pub records: u64,
    pub blobs: u64,
    /// Of all blobs.
    pub bytes: u64,
    /// Missing or damaged parts.
    pub problems: Vec<Problem>,
}

impl Store {
    /// Creates at `target` a state directory with everything that was committed to this store before the call. Other
    /// processes keep working meanwhile; only collections wait. Users' state is included. Blobs are checked as they
    /// are copied; damaged ones are left out and listed. The copy keeps the name of this store, and is rolled back if
    /// this store is.
    ///
    /// # Errors
    /// If `target` exists, the store is damaged, or the copy cannot be written.
    pub fn backup(&self, target: &Path) -> Result<CopyReport, StoreError> {
        self.flush_pending()?;
        let draft = Draft::new(target)?;
        // Keeps blobs that the copy names from being removed before they are copied.
        let _lock = self.lock_collection()?;
        let carried = self.inner.db.read_snapshot(|db| self.inner.high_water.carried_marks(db))?;
        let copy = draft.store_dir().join("lobster.db");
        self.inner.db.read_raw(|db| {
            // One snapshot, without blocking writers.
            db.execute("VACUUM INTO ?1", [path_text(&copy)?])?;
            Ok(())
        })?;
        carried.write_to(&draft.store_dir())?;
        let mut report = CopyReport::default();
        report.problems.extend(carried.rollback.map(Problem::from));
        self.copy_rest(&draft, &mut report)?;
        count_rows(&copy, &mut report)?;
        draft.publish()?;
        Ok(report)
    }

    /// Creates at `target` a state directory with every run of this damaged store whose journal is intact, and with
    /// everything else that can be read. This store stays unchanged. The copy keeps its name, and is rolled back if
    /// this store is.
    ///
    /// # Errors
    /// If `target` exists, nothing can be read, or the copy cannot be written.
    pub fn salvage(&self, target: &Path) -> Result<CopyReport, StoreError> {
        let draft = Draft::new(target)?;
        let _lock = self.lock_collection()?;
        let carried = self.inner.db.read_snapshot(|db| self.inner.high_water.carried_marks(db))?;
        carried.write_to(&draft.store_dir())?;
        let mut report = CopyReport::default();
        let copy = draft.store_dir().join("lobster.db");
        let scratch =
            tempfile::tempdir_in(draft.state_dir()).map_err(|e| StoreError::io("write in", target, e))?;
        let (found, rescued) = rescue_database(self.inner.db.path(), scratch.path())?;
        found.execute("VACUUM INTO ?1", [path_text(&copy)?])?;
        drop(found);
        drop(scratch);
        let lost_records = rescued.lost.iter().any(|rows| rows.table == "journal");
        report.problems.extend(rescued.lost.into_iter().map(|rows| Problem::LostRows { rows }));
        for run in &rescued.rebuilt {
            let why = "its row was lost; it was rebuilt from its journal".to_owned();
            report.problems.push(Problem::Run { run: run.to_string(), why });
        }
        self.copy_rest(&draft, &mut report)?;
        {
            let salvaged = Store::open(draft.state_dir())?;
            for (run, seq, why) in salvaged.broken_runs()? {
                salvaged.remove_run(run)?;
                report.problems.push(Problem::Journal { run, seq, why });
            }
            if lost_records {
                report.problems.extend(salvaged.remove_cut_runs(&rescued.rebuilt)?);
            }
            report.problems.extend(salvaged.rebuild_gates()?);
            let mut strays = VerifyReport::default();
            salvaged.verify_belonging(&mut strays)?;
            report.problems.extend(strays.problems);
            salvaged.remove_strays()?;
            // An intact part that names a lost one stays, and is listed.
            let checked = salvaged.verify()?;
            report.problems.extend(checked.problems);
        }
        count_rows(&copy, &mut report)?;
        draft.publish()?;
        Ok(report)
    }

    /// Finishes the database of the draft, and copies users' state and the blobs that the database names. Each blob is
    /// checked. Damaged ones are removed from that database.
    fn copy_rest(&self, draft: &Draft, report: &mut CopyReport) -> Result<(), StoreError> {
        let copy = draft.store_dir().join("lobster.db");
        finish_database(&copy)?;
        let db = db::open_connection(&copy)?;
        let mut damaged = BTreeMap::new();
        {
            let mut statement = db.prepare("SELECT digest, len, data FROM blobs")?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let digest = Digest::from(row.get::<_, [u8; 32]>(0)?);
                let outcome = match row.get_ref(2)?.as_blob() {
                    Ok(bytes) if Digest::of_bytes(bytes) == digest => Ok(()),
                    Ok(_) => Err(format!("in {}", self.inner.db.path().display())),
                    Err(_) => self.copy_blob(&digest, &draft.blob_path(&digest)),
                };
                match outcome {
                    Ok(()) => {
                        report.blobs += 1;
                        report.bytes += row.get::<_, i64>(1)?.cast_unsigned();
                    }
                    Err(place) => {
                        damaged.insert(digest, place);
                    }
                }
            }
        }
        for (digest, place) in damaged {
            db.execute("DELETE FROM blobs WHERE digest = ?1", [digest.as_bytes()])?;
            report.problems.push(Problem::DamagedBlob { digest, place, named_by: Vec::new() });
        }
        self.inner.dir.parent().map_or(Ok(()), |state| copy_user_state(state, draft.state_dir()))
    }

    /// Copies one blob; the error describes its damage.
    fn copy_blob(&self, digest: &Digest, to: &Path) -> Result<(), String> {
        let from = self.blob_path(digest);
        let copy = || -> io::Result<bool> {
            let mut source = regular_file::open_own(File::options().read(true), &from)?;
            DirBuilder::new().recursive(true).mode(0o700).create(to.parent().unwrap_or(Path::new(".")))?;
            let mut target = OpenOptions::new().write(true).create_new(true).mode(0o400).open(to)?;
            let mut hasher = blake3::Hasher::new();
            let mut buffer = vec![0; PIECE];
            loop {
                let count = source.read(&mut buffer)?;
                if count == 0 {
                    break;
                }
                hasher.update(&buffer[..count]);
                target.write_all(&buffer[..count])?;
            }
            let whole = Digest::from(hasher.finalize()) == *digest;
            if whole {
                target.sync_all()?;
            } else {
                fs::remove_file(to)?;
            }
            Ok(whole)
        };
        match copy() {
            Ok(true) => Ok(()),
            Ok(false) => Err(from.display().to_string()),
            Err(error) => Err(format!("{}: {error}", from.display())),
        }
    }

    /// Runs whose journal is not the chain that was written, each with the first bad record.
    fn broken_runs(&self) -> Result<Vec<(RunId, u64, String)>, StoreError> {
        let mut broken = Vec::new();
        for run in self.list_runs(&super::RunFilter::default())? {
            match self.verify_chain(run.id) {
                Ok(()) => {}
                Err(StoreError::BrokenChain { seq, why, .. }) => broken.push((run.id, seq, why)),
                Err(other) => return Err(other),
            }
        }
        Ok(broken)
    }

    pub(super) fn remove_run(&self, run: RunId) -> Result<(), StoreError> {
        self.write_transaction(db::Durability::Lazy, |tx| {
            let n = super::journal::run_number(tx, run)?;
            for sql in [
                "DELETE FROM journal WHERE run = ?1",
                "DELETE FROM gates WHERE run = ?1",
                "DELETE FROM run_values WHERE run = ?1",
                "DELETE FROM runs WHERE n = ?1",
            ] {
                tx.execute(sql, params![n])?;
            }
            Ok(())
        })
    }

    /// Removes rows of runs that do not exist.
    fn remove_strays(&self) -> Result<(), StoreError> {
        self.write_transaction(db::Durability::Lazy, |tx| {
            for table in ["journal", "gates", "run_values"] {
                tx.execute(&format!("DELETE FROM {table} WHERE run NOT IN (SELECT n FROM runs)"), [])?;
            }
            Ok(())
        })
    }
}

/// Gives a database copied by SQLite the settings of a newly created one.
fn finish_database(path: &Path) -> Result<(), StoreError> {
    use std::os::unix::fs::PermissionsExt;
    let made = || -> io::Result<()> {
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(log_path(path))?;
        Ok(())
    };
    made().map_err(|e| StoreError::io("write", path, e))?;
    let db = db::open_connection(path)?;
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))?;
    Ok(())
}

fn count_rows(path: &Path, report: &mut CopyReport) -> Result<(), StoreError> {
    let db = db::open_connection(path)?;
    let one = |table: &str| -> Result<u64, StoreError> {
        Ok(db
            .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get::<_, i64>(0))?
            .cast_unsigned())
    };
    (report.runs, report.records) = (one("runs")?, one("journal")?);
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok(())
}

/// Copies users' state: JSON files beside the store, each of which writers replace as a whole.
fn copy_user_state(from: &Path, to: &Path) -> Result<(), StoreError> {
    for dir in [PathBuf::new(), PathBuf::from("models")] {
        for path in dir_entries(&from.join(&dir)) {
            let is_json = path.extension().is_some_and(|extension| extension == "json");
            let Some(name) = path.file_name().filter(|_| is_json && path.is_file()) else { continue };
            let target = to.join(&dir);
            let copy = || -> io::Result<()> {
                DirBuilder::new().recursive(true).mode(0o700).create(&target)?;
                let mut file =
                    OpenOptions::new().write(true).create_new(true).mode(0o600).open(target.join(name))?;
                file.write_all(&fs::read(&path)?)?;
                file.sync_all()
            };
            copy().map_err(|e| StoreError::io("copy", &path, e))?;
        }
    }
    Ok(())
}

/// SQLite takes file names as text.
fn path_text(path: &Path) -> Result<&str, StoreError> {
    path.to_str().ok_or_else(|| StoreError::NotUnicode { path: path.to_owned() })
}

/// A state directory in preparation, beside its target.
struct Draft {
    dir: TempDir,
    target: PathBuf,
}

impl Draft {
    fn new(target: &Path) -> Result<Self, StoreError> {
        let target = std::path::absolute(target).map_err(|e| StoreError::io("write", target, e))?;
        if fs::symlink_metadata(&target).is_ok() {
            return Err(StoreError::Exists { path: target });
        }
        let parent = target.parent().unwrap_or(Path::new("/"));
        let make = || -> io::Result<TempDir> {
            let dir = tempfile::Builder::new().prefix(".lobster-copy-").tempdir_in(parent)?;
            DirBuilder::new().mode(0o700).create(dir.path().join("store"))?;
            DirBuilder::new().mode(0o700).create(dir.path().join("store/blobs"))?;
            Ok(dir)
        };
        let dir = make().map_err(|e| StoreError::io("write in", parent, e))?;
        Ok(Self { dir, target })
    }

    fn state_dir(&self) -> &Path {
        self.dir.path()
    }

    fn store_dir(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    fn blob_path(&self, digest: &Digest) -> PathBuf {
        let hex = digest.to_string();
        self.store_dir().join("blobs").join(&hex[..2]).join(hex)
    }

    /// Makes the whole draft durable and renames it to its target.
    fn publish(self) -> Result<(), StoreError> {
        let publish = || -> io::Result<()> {
            File::open(self.store_dir().join("lobster.db"))?.sync_all()?;
            for shelf in dir_entries(&self.store_dir().join("blobs")) {
                sync_dir(&shelf)?;
            }
            for dir in [self.store_dir().join("blobs"), self.store_dir(), self.state_dir().to_owned()] {
                sync_dir(&dir)?;
            }
            rustix::fs::renameat_with(CWD, self.state_dir(), CWD, &self.target, RenameFlags::NOREPLACE)?;
            sync_dir(self.target.parent().unwrap_or(Path::new("/")))
        };
        publish().map_err(|e| StoreError::io("write", &self.target, e))?;
        // The directory has its final name now, so it must not be removed.
        let _ = self.dir.keep();
        Ok(())
    }
}
