//! The name of a store. It is in the database and in a file beside it, and every copy of the store carries it, so that
//! a copy is compared with all promises made under that name.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension};
use uuid::Uuid;

use super::error::StoreError;
use lobster_base::regular_file;

/// Name of the file, in the directory of the database.
const FILE: &str = "name";

/// The table of the name, created when the store is first written to: a database of an earlier lobster lacks it.
pub(super) const TABLE: &str = "identity";

/// The name in the file and in the database.
pub(super) struct StoreName {
    file: Option<String>,
    database: Option<String>,
}

impl StoreName {
    /// Reads both. Text that is not a name is treated as missing.
    pub(super) fn read(dir: &Path, db: &Connection) -> Self {
        let valid = |name: &str| name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        let file = regular_file::read_own_text(&dir.join(FILE)).map(|text| text.trim().to_owned());
        let select = format!("SELECT name FROM {TABLE}");
        // Without the table, the statement cannot be prepared.
        let database = db
            .prepare_cached(&select)
            .and_then(|mut statement| statement.query_row([], |row| row.get::<_, String>(0)).optional());
        Self {
            file: file.ok().filter(|name| valid(name)),
            database: database.ok().flatten().filter(|name| valid(name)),
        }
    }

    /// `None` if the store has never been written to.
    pub(super) fn get(&self) -> Option<&str> {
        self.database.as_deref().or(self.file.as_deref())
    }

    /// True if the database of another store was put beside the file.
    pub(super) fn is_of_two_stores(&self) -> bool {
        self.file.is_some() && self.database.is_some() && self.file != self.database
    }

    /// Writes the name where it is missing.
    pub(super) fn write_missing(self, dir: &Path, tx: &Connection) -> Result<String, StoreError> {
        let name = self.get().map_or_else(fresh_name, str::to_owned);
        if self.database.is_none() {
            write_table(tx, &name)?;
        }
        if self.file.is_none() {
            // A store without the file is still identified by its database.
            let _ = write_file(dir, &name);
        }
        Ok(name)
    }

    /// Gives the store a new, unique name.
    pub(super) fn assign_new(dir: &Path, tx: &Connection) -> Result<String, StoreError> {
        let name = fresh_name();
        write_table(tx, &name)?;
        write_file(dir, &name).map_err(|error| StoreError::io("write", &dir.join(FILE), error))?;
        Ok(name)
    }

    /// Writes the file of a copy, which keeps the name, and also keeps any disagreement with the database.
    pub(super) fn copy_to(&self, dir: &Path) -> io::Result<()> {
        match self.file.as_deref().or(self.database.as_deref()) {
            Some(name) => write_file(dir, name),
            None => Ok(()),
        }
    }
}

fn fresh_name() -> String {
    Uuid::new_v4().simple().to_string()
}

/// Creates the table if it is missing.
pub(super) fn make_table(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(&format!("CREATE TABLE IF NOT EXISTS {TABLE} (name TEXT NOT NULL) STRICT"))
}

fn write_table(tx: &Connection, name: &str) -> Result<(), StoreError> {
    make_table(tx)?;
    tx.execute(&format!("DELETE FROM {TABLE}"), [])?;
    tx.execute(&format!("INSERT INTO {TABLE} (name) VALUES (?1)"), [name])?;
    Ok(())
}

fn write_file(dir: &Path, name: &str) -> io::Result<()> {
    let mut draft = tempfile::Builder::new().prefix("new-").tempfile_in(dir)?;
    draft.write_all(name.as_bytes())?;
    draft.as_file().set_permissions(fs::Permissions::from_mode(0o600))?;
    draft.persist(dir.join(FILE)).map_err(|error| error.error)?;
    Ok(())
}
