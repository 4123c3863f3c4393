//! Finds the runs that need a damaged blob: their records name it, or name another blob that leads to it, such as the
//! pre-image of an action.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use rusqlite::Row;

use super::Store;
use super::error::StoreError;
use super::event::RunId;
use super::named_blobs::{NAMES_AT_MOST, digests_in, looks_like_json, read_json};
use super::verify::Problem;
use lobster_base::digest::Digest;

/// Blobs read at a time.
const ROWS_AT_ONCE: i64 = 200;

/// Most runs that are named; the rest are counted.
const RUNS_NAMED: usize = 10_000;

/// A missing or damaged blob.
struct Damaged {
    /// Location of the wrong bytes; `None` if the bytes are missing.
    place: Option<String>,
    /// The first step of each run that needs it.
    runs: BTreeMap<RunId, String>,
    unnamed_runs: u64,
    last: Option<RunId>,
}

/// The damaged blobs of a store, and what needs them.
#[derive(Default)]
pub(super) struct DamagedBlobs {
    damaged: BTreeMap<Digest, Damaged>,
    /// Blobs that lead to damaged ones, each with the damaged ones.
    leading: HashMap<Digest, BTreeSet<Digest>>,
}

impl DamagedBlobs {
    pub(super) fn add_damaged(&mut self, digest: Digest, place: Option<String>) {
        let damaged = Damaged { place, runs: BTreeMap::new(), unnamed_runs: 0, last: None };
        self.damaged.insert(digest, damaged);
    }

    /// Finds the blobs that lead to damaged ones, through any number of others.
    pub(super) fn find_leading(&mut self, store: &Store) -> Result<(), StoreError> {
        if self.damaged.is_empty() {
            return Ok(());
        }
        loop {
            let mut is_new = false;
            store.each_blob_with_names(|digest, content| {
                let mut reached = BTreeSet::new();
                digests_in(content, |named| {
                    if named == digest {
                        return;
                    }
                    if self.damaged.contains_key(&named) {
                        reached.insert(named);
                    }
                    reached.extend(self.leading.get(&named).into_iter().flatten());
                });
                if !reached.is_empty() && self.leading.get(&digest) != Some(&reached) {
                    self.leading.insert(digest, reached);
                    is_new = true;
                }
            })?;
            if !is_new {
                return Ok(());
            }
        }
    }

    /// Adds the damaged blobs that a record of `run` needs; `text` is the record's JSON.
    pub(super) fn note_needed(&mut self, run: RunId, text: &str, name: impl Fn() -> String) {
        if self.damaged.is_empty() {
            return;
        }
        let mut needed = BTreeSet::new();
        digests_in(text.as_bytes(), |digest| {
            if self.damaged.contains_key(&digest) {
                needed.insert(digest);
            }
            needed.extend(self.leading.get(&digest).into_iter().flatten());
        });
        for digest in needed {
            let Some(damaged) = self.damaged.get_mut(&digest) else { continue };
            if damaged.last.replace(run) == Some(run) {
                continue;
            }
            if damaged.runs.len() < RUNS_NAMED {
                damaged.runs.insert(run, name());
            } else {
                damaged.unnamed_runs += 1;
            }
        }
    }
}

impl From<DamagedBlobs> for Vec<Problem> {
    fn from(blobs: DamagedBlobs) -> Self {
        let problem = |(digest, Damaged { place, runs, unnamed_runs, .. })| {
            let mut named_by: Vec<String> = runs.into_values().collect();
            if unnamed_runs > 0 {
                named_by.push(format!("{unnamed_runs} more runs"));
            }
            match place {
                Some(place) => Problem::DamagedBlob { digest, place, named_by },
                None => {
                    named_by.insert(0, "the table of blobs; its file is gone".to_owned());
                    Problem::MissingBlob { digest, named_by: named_by.join(", ") }
                }
            }
        };
        blobs.damaged.into_iter().map(problem).collect()
    }
}

impl Store {
    /// Calls `look` with each blob whose content may name others. Unreadable ones are skipped: they are damaged
    /// themselves.
    fn each_blob_with_names(&self, mut look: impl FnMut(Digest, &[u8])) -> Result<(), StoreError> {
        let sql = "SELECT id, digest, len, data FROM blobs WHERE id > ?1 \
             AND (data IS NULL OR substr(data, 1, 1) IN (x'7b', x'5b')) ORDER BY id LIMIT ?2";
        let read = |row: &Row<'_>| -> rusqlite::Result<(Digest, u64, Option<Vec<u8>>)> {
            let (digest, data): ([u8; 32], Option<Vec<u8>>) = (row.get(1)?, row.get(3)?);
            Ok((Digest::from(digest), row.get::<_, i64>(2)?.cast_unsigned(), data))
        };
        self.inner.db.each_row(
            sql,
            ROWS_AT_ONCE,
            read,
            |_, (digest, len, data): (_, u64, Option<Vec<u8>>)| {
                let content = match data {
                    Some(data) => Some(data),
                    None if len <= NAMES_AT_MOST => read_json(&self.blob_path(&digest)).ok(),
                    None => None,
                };
                if let Some(content) = content.filter(|content| looks_like_json(content)) {
                    look(digest, &content);
                }
                Ok(())
            },
        )
    }
}
