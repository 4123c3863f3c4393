//! The parts of the audit that are kept outside the store, in the places that the policy names: a copy of each entry,
//! and the heads of the chains.
//!
//! The store is the record, but its owner can rewrite it, including the hashes. An anchor in another place reveals
//! that: the records that it names must still exist.

use std::collections::{BTreeMap, HashMap};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use super::{Behalf, ChainReport, describe_record, redact_entry};
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::sync::lock;
use lobster_policy::{AuditPlaces, Redaction};
use lobster_store::{
    BrokenChain, Durability, Event, Record, RunFilter, RunId, RunStatus, Store, StoreError, Witness, iso,
    system_clock,
};

/// Writes the copy and the anchors while the store is written.
#[derive(Debug)]
pub struct Trail {
    places: AuditPlaces,
    hidden: Vec<Redaction>,
    /// On whose behalf this process works: an answer is written before the run continues.
    caller: Behalf,
    /// On whose behalf each run continues.
    behalf: Mutex<HashMap<RunId, Behalf>>,
}

/// A line of an anchor: the last record of a run's chain at the time, or the run's removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Anchor {
    time: String,
    run: RunId,
    #[serde(flatten)]
    head: Head,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Head {
    At {
        seq: u64,
        hash: Digest,
    },
    /// Removed by `lobster store gc`.
    Removed {
        removed: bool,
    },
}

impl Trail {
    /// `None` if the policy names no place.
    pub fn new(
        places: AuditPlaces,
        hidden: Vec<Redaction>,
        actor: Option<String>,
        message: Option<String>,
    ) -> Option<Self> {
        let wanted = places.copy.is_some() || places.anchor.is_some();
        let caller = Behalf { actor, message };
        wanted.then(|| Self { places, hidden, caller, behalf: Mutex::default() })
    }

    /// The lines of the copy, by the day of their file.
    fn lines_by_day(&self, store: &Store, records: &[Record]) -> BTreeMap<String, String> {
        let mut behalf = lock(&self.behalf);
        let mut days = BTreeMap::<String, String>::new();
        for record in records {
            if let Some(now) = Behalf::from_event(&record.event) {
                behalf.insert(record.run, now);
            }
            let whose = match &record.event {
                Event::GateAnswered { .. } | Event::RetryRequested { .. } => &self.caller,
                _ => behalf.get(&record.run).unwrap_or(&self.caller),
            };
            let mut entries = Vec::new();
            describe_record(store, record, whose, &mut entries);
            let day: String = iso(record.at).chars().take("2026-01-01".len()).collect();
            let lines = days.entry(day).or_default();
            for entry in entries {
                lines.push_str(&json::compact(&redact_entry(entry, &self.hidden)));
                lines.push('\n');
            }
            if record.event.run_status().is_some_and(RunStatus::is_over) {
                behalf.remove(&record.run);
            }
        }
        days
    }
}

impl Witness for Trail {
    fn records_committed(
        &self,
        store: &Store,
        records: &[Record],
        durability: Durability,
    ) -> Result<(), StoreError> {
        if let Some(directory) = &self.places.copy {
            for (day, lines) in
                self.lines_by_day(store, records).iter().filter(|(_, lines)| !lines.is_empty())
            {
                append_lines(&directory.join(format!("{day}.jsonl")), lines, durability)?;
            }
        }
        if let Some(file) = &self.places.anchor {
            let mut heads = BTreeMap::new();
            for record in records.iter().filter(|record| is_rest(&record.event)) {
                let head = Head::At { seq: record.seq, hash: record.hash() };
                heads.insert(record.run, Anchor { time: iso(record.at), run: record.run, head });
            }
            append_anchors(file, heads.values(), durability)?;
        }
        Ok(())
    }

    fn runs_removed(&self, runs: &[RunId]) -> Result<(), StoreError> {
        let Some(file) = &self.places.anchor else { return Ok(()) };
        let time = iso((system_clock())());
        let gone =
            |run: &RunId| Anchor { time: time.clone(), run: *run, head: Head::Removed { removed: true } };
        append_anchors(file, &runs.iter().map(gone).collect::<Vec<_>>(), Durability::Synced)
    }
}

/// True if the run rests after this event, or a person has answered.
fn is_rest(event: &Event) -> bool {
    match event {
        Event::GateAnswered { .. } | Event::GateClosed { .. } => true,
        _ => event.run_status().is_some_and(|status| status != RunStatus::Running),
    }
}

fn append_anchors<'a>(
    file: &Path,
    anchors: impl IntoIterator<Item = &'a Anchor>,
    durability: Durability,
) -> Result<(), StoreError> {
    let lines: String = anchors.into_iter().map(|anchor| json::compact(anchor) + "\n").collect();
    if lines.is_empty() { Ok(()) } else { append_lines(file, &lines, durability) }
}

/// Appends lines in one write, so that lines of several processes do not mix.
fn append_lines(path: &Path, lines: &str, durability: Durability) -> Result<(), StoreError> {
    let write = || -> io::Result<()> {
        if let Some(directory) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        // Another user may have put a link there.
        let flags = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let mut file =
            OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path)?;
        file.write_all(lines.as_bytes())?;
        if durability == Durability::Synced { file.sync_data() } else { Ok(()) }
    };
    write().map_err(|source| StoreError::AuditTrail { path: path.to_owned(), source })
}

/// Compares the store with the anchor: the last anchored record of each run must be in its chain, unless a collection
/// has removed the run.
///
/// # Errors
/// If the anchor or the database cannot be read. A missing anchor is treated as empty.
pub(super) fn compare_anchor(
    store: &Store,
    file: &Path,
    only: Option<RunId>,
    report: &mut ChainReport,
) -> Result<(), StoreError> {
    let text = match File::open(file).and_then(io::read_to_string) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(source) => return Err(StoreError::AuditTrail { path: file.to_owned(), source }),
    };
    let mut last = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        match serde_json::from_str::<Anchor>(line) {
            Ok(anchor) => _ = last.insert(anchor.run, anchor.head),
            Err(error) => report.broken.push(BrokenChain {
                run: format!("anchor {}", file.display()),
                seq: number as u64 + 1,
                why: format!("the line is not an anchor: {error}"),
            }),
        }
    }
    let here: Vec<RunId> = store.list_runs(&RunFilter::default())?.into_iter().map(|run| run.id).collect();
    for (run, head) in last.into_iter().filter(|(run, _)| only.is_none_or(|only| only == *run)) {
        let Head::At { seq, hash } = head else { continue };
        report.anchored += 1;
        let found =
            if here.contains(&run) { store.events_after(run, seq.saturating_sub(1), 1)? } else { Vec::new() };
        let why = match found.first() {
            Some(record) if record.seq == seq && record.hash() == hash => continue,
            Some(record) if record.seq == seq => "it differs from the anchored record",
            _ if here.contains(&run) => "it was anchored, but is missing",
            _ => "it was anchored, but the whole run is missing",
        };
        report.broken.push(BrokenChain { run: run.to_string(), seq, why: why.to_owned() });
    }
    Ok(())
}
