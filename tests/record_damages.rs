//! Random damage to records, blobs, gates and the write-ahead log: each is named,
//! runs that it did not touch are shown and replayed, and no gate is answered twice.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use crate::home::{Home, copy_tree};
use crate::random_workflows::Dice;
use crate::setting::number;

const ASKING: &str = "
name: asks
steps:
  - id: ask
    approval: Go on?
  - id: go
    run: echo $MARK >> effects
";

const LARGE: &str = "
name: large
steps:
  - id: make
    run: seq 30000
  - id: use
    run: wc -l
    stdin: $make.stdout
";

/// A store with finished runs, one that waits and one whose gate was answered.
struct Furnished {
    home: Home,
    kept: PathBuf,
    runs: Vec<String>,
    /// The marks that are kept outside, as they were then.
    marks: PathBuf,
    /// An earlier state of the whole store: before the gate was answered.
    earlier: PathBuf,
    answered: String,
    waiting: String,
}

fn json(home: &Home, words: &[&str]) -> Value {
    let answer = home.lobster(words).run();
    serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("{words:?}: {error}: {answer:?}"))
}

fn database(home: &Home) -> Connection {
    Connection::open(home.state().join("store/lobster.db")).unwrap()
}

fn gate_of(home: &Home, at: usize) -> String {
    json(home, &["approvals", "--json"])[at]["id"].as_str().unwrap().to_owned()
}

fn furnished() -> Furnished {
    let home = Home::new();
    home.write("asked.lobster", ASKING.replace("$MARK", "answered"))
        .write("waits.lobster", ASKING.replace("$MARK", "waited"))
        .write("large.lobster", LARGE);
    for n in 0..4 {
        home.tool([format!("exec --shell 'seq {n} 300'")]).output();
    }
    home.tool(["large.lobster"]).output();
    home.tool(["asked.lobster"]).token();
    let answered = gate_of(&home, 0);
    database(&home).query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    // Folding took the log away; this makes another one.
    home.tool(["exec true"]).output();
    let earlier = home.dir().join("earlier");
    copy_tree(&home.state(), &earlier);
    home.lobster(["approvals", "approve", &answered]).run().output();
    home.tool(["waits.lobster"]).token();
    let waiting = gate_of(&home, 0);
    let runs = json(&home, &["runs", "--json"]);
    let runs = runs.as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect();
    let kept = home.dir().join("kept");
    copy_tree(&home.state(), &kept);
    let marks = home.dir().join("marks");
    copy_tree(&marks_of(&home), &marks);
    assert_eq!(home.read("effects"), "answered\n");
    Furnished { home, kept, marks, runs, earlier, answered, waiting }
}

/// Where marks are noted outside of the state directory.
fn marks_of(home: &Home) -> PathBuf {
    home.dir().parent().unwrap().join("home/.lobster/high-water")
}

/// What one damage did.
struct Damage {
    what: String,
    /// Runs that it touched; none when that cannot be told beforehand.
    touched: Option<Vec<String>>,
}

impl Furnished {
    fn put_back(&self) {
        fs::remove_dir_all(self.home.state()).unwrap();
        copy_tree(&self.kept, &self.home.state());
        fs::remove_dir_all(marks_of(&self.home)).unwrap();
        copy_tree(&self.marks, &marks_of(&self.home));
        self.home.write("effects", "answered\n");
    }

    fn log(&self) -> PathBuf {
        self.home.state().join("store/lobster.db-wal")
    }

    fn record(&self, dice: &mut Dice) -> (i64, String, Vec<u8>) {
        let db = database(&self.home);
        let count: i64 = db.query_row("SELECT count(*) FROM journal", [], |row| row.get(0)).unwrap();
        let at = i64::try_from(dice.below(count.unsigned_abs())).unwrap();
        let sql = "SELECT journal.id, hex(runs.id), CAST(record AS BLOB) FROM journal \
                   JOIN runs ON runs.n = run ORDER BY journal.id LIMIT 1 OFFSET ?1";
        let (id, run, text): (i64, String, Vec<u8>) =
            db.query_row(sql, [at], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
        (id, dashed(&run), text)
    }

    fn set_record(&self, id: i64, text: &[u8]) {
        let sql = "UPDATE journal SET record = CAST(?2 AS TEXT) WHERE id = ?1";
        database(&self.home).execute(sql, params![id, text]).unwrap();
    }

    /// Damages one thing, as the dice say.
    fn damage(&self, dice: &mut Dice) -> Damage {
        let kind = dice.below(10);
        // A connection that is closed folds the log: these are done without one.
        match kind {
            7 => return self.cut_log(dice),
            8 => return self.other_log(dice),
            _ => {}
        }
        let (id, run, mut text) = self.record(dice);
        let at = usize::try_from(dice.below(text.len() as u64)).unwrap();
        let touched = Some(vec![run.clone()]);
        match kind {
            0 => {
                text[at] ^= 1 << dice.below(8);
                self.set_record(id, &text);
                Damage { what: format!("bit flip in byte {at} of record {id} of {run}"), touched }
            }
            1 => {
                self.set_record(id, &text[..at]);
                Damage { what: format!("record {id} of {run} cut at {at}"), touched }
            }
            2 => {
                let mut altered: Value = serde_json::from_slice(&text).unwrap();
                altered["at"] = (altered["at"].as_i64().unwrap_or(0) + 1).into();
                self.set_record(id, altered.to_string().as_bytes());
                Damage { what: format!("record {id} of {run} altered, still JSON"), touched }
            }
            3 => {
                database(&self.home).execute("DELETE FROM journal WHERE id = ?1", [id]).unwrap();
                Damage { what: format!("record {id} of {run} removed"), touched }
            }
            4 => {
                let (other, other_run, other_text) = self.record(dice);
                self.set_record(id, &other_text);
                self.set_record(other, &text);
                let what = format!("records {id} of {run} and {other} of {other_run} exchanged");
                Damage { what, touched: Some(if id == other { vec![] } else { vec![run, other_run] }) }
            }
            5 => self.swap_blobs(dice),
            9 => {
                // A word that a status never has, in the row of the gate that was answered or of the one that waits.
                let gate = if dice.below(2) == 0 { &self.answered } else { &self.waiting };
                let sql = "UPDATE gates SET status = '????' WHERE id = ?1";
                assert_eq!(database(&self.home).execute(sql, [gate]).unwrap(), 1);
                Damage { what: format!("no status of gate {gate}"), touched: None }
            }
            _ => {
                let db = database(&self.home);
                let sql = "UPDATE gates SET status = 'open', answer = NULL, by = NULL, answered = NULL WHERE id = ?1";
                db.execute(sql, [&self.answered]).unwrap();
                Damage { what: "the answered gate opened again".to_owned(), touched: None }
            }
        }
    }

    fn cut_log(&self, dice: &mut Dice) -> Damage {
        let len = fs::metadata(self.log()).unwrap().len();
        let at = dice.below(len);
        fs::OpenOptions::new().write(true).open(self.log()).unwrap().set_len(at).unwrap();
        self.forget_shared_memory();
        Damage { what: format!("log of {len} cut at {at}"), touched: None }
    }

    /// Exchanges the contents of two blobs.
    fn swap_blobs(&self, dice: &mut Dice) -> Damage {
        let db = database(&self.home);
        let blob = |n: u64| -> Option<(i64, Vec<u8>)> {
            let sql = "SELECT id, data FROM blobs WHERE data IS NOT NULL ORDER BY id LIMIT 1 OFFSET ?1";
            db.query_row(sql, [n.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?))).optional().unwrap()
        };
        let count: i64 =
            db.query_row("SELECT count(*) FROM blobs WHERE data IS NOT NULL", [], |row| row.get(0)).unwrap();
        let first = dice.below(count.unsigned_abs());
        let (one, two) = (blob(first).unwrap(), blob((first + 1) % count.unsigned_abs()).unwrap());
        let set = "UPDATE blobs SET data = ?2, len = length(?2) WHERE id = ?1";
        db.execute(set, params![one.0, two.1]).unwrap();
        db.execute(set, params![two.0, one.1]).unwrap();
        Damage { what: format!("blobs {} and {} exchanged", one.0, two.0), touched: None }
    }

    /// Another store's log, this store's older one, or one with a changed byte.
    fn other_log(&self, dice: &mut Dice) -> Damage {
        let which = dice.below(3);
        match which {
            0 => {
                let other = Home::new();
                other.tool(["exec true"]).output();
                fs::copy(other.state().join("store/lobster.db-wal"), self.log()).unwrap();
            }
            1 => drop(fs::copy(self.earlier.join("store/lobster.db-wal"), self.log()).unwrap()),
            _ => {
                let len = fs::metadata(self.log()).unwrap().len();
                let mut file = fs::OpenOptions::new().write(true).open(self.log()).unwrap();
                file.seek(SeekFrom::Start(dice.below(len))).unwrap();
                file.write_all(&[0xa5; 64]).unwrap();
            }
        }
        self.forget_shared_memory();
        let names = ["another store's log", "an older log", "64 bytes of the log overwritten"];
        Damage { what: names[usize::try_from(which).unwrap()].to_owned(), touched: None }
    }

    fn forget_shared_memory(&self) {
        let _ = fs::remove_file(self.home.state().join("store/lobster.db-shm"));
    }

    /// Runs that verification says nothing about, of those that are still listed.
    fn intact(&self, verified: &str, shown: &[String]) -> Vec<String> {
        self.runs
            .iter()
            .filter(|run| shown.contains(run) && !verified.contains(run.as_str()))
            .cloned()
            .collect()
    }

    /// Salvages the damaged store: no gate that was answered is open in the copy.
    fn salvage(&self, seed: u64) {
        self.put_back();
        let what = self.damage(&mut Dice::new(seed)).what;
        let (home, target) = (&self.home, self.home.dir().join("salvaged"));
        let _ = fs::remove_dir_all(&target);
        let salvaged = home.lobster(["store", "salvage", target.to_str().unwrap()]).run();
        assert!(!salvaged.stderr.contains("panicked"), "{seed}: {what}: {salvaged:?}");
        for gate in [&self.answered, &self.answered, &self.waiting, &self.waiting] {
            for words in [&["approvals", "approve", gate][..], &["resume", "--id", gate, "--approve", "yes"]]
            {
                let _ = home.lobster(words).env("LOBSTER_STATE_DIR", &target).run();
            }
        }
        let effects = home.read("effects");
        assert_eq!(effects.matches("answered").count(), 1, "{seed}: {what}: {salvaged:?}: {effects}");
        assert!(effects.matches("waited").count() <= 1, "{seed}: {what}: {salvaged:?}: {effects}");
    }

    fn hold(&self, seed: u64) {
        self.salvage(seed);
        self.put_back();
        let Damage { what, touched } = self.damage(&mut Dice::new(seed));
        let home = &self.home;
        let verified = home.lobster(["store", "verify", "--json"]).run();
        let said = format!("{}{}", verified.stdout, verified.stderr);
        assert!(!said.contains("panicked"), "{seed}: {what}: {said}");
        let (hurt, log_only) = (verified.code() != 0, what.contains("log"));
        // The unused end of a log may be changed: nothing is lost by it.
        assert!(hurt || log_only || touched.as_deref() == Some(&[]), "{seed}: {what}: not noticed: {said}");
        for run in touched.iter().flatten() {
            assert!(said.contains(run.as_str()), "{seed}: {what}: {run} is not named: {said}");
        }
        let shown: Vec<String> = json(home, &["runs", "--json"])
            .as_array()
            .unwrap()
            .iter()
            .map(|run| run["id"].as_str().unwrap().to_owned())
            .collect();
        if !log_only {
            assert_eq!(shown.len(), self.runs.len(), "{seed}: {what}: {shown:?}");
        }
        for run in self.intact(&said, &shown) {
            let show = home.lobster(["show", &run]).run();
            // Whatever is read around damage says so, by its exit code too.
            let is_warned = show.stderr.contains("is damaged, so results may be missing");
            assert_eq!(show.code(), i32::from(is_warned), "{seed}: {what}: {show:?}");
            assert!(!is_warned || log_only, "{seed}: {what}: {show:?}");
            let waits = show.stdout.contains("waiting");
            let replay = home.lobster(["replay", &run]).run();
            // A rollback may have left a run in the middle; what is whole replays.
            assert!(replay.code() == 0 || waits || hurt && log_only, "{seed}: {what}: {replay:?}");
        }
        if hurt {
            self.collect_nothing(seed, &what);
        }
        for gate in [&self.answered, &self.answered, &self.waiting, &self.waiting] {
            let _ = home.lobster(["approvals", "approve", gate]).run();
            let _ = home.lobster(["resume", "--id", gate, "--approve", "yes"]).run();
        }
        let effects = home.read("effects");
        assert_eq!(effects.matches("answered").count(), 1, "{seed}: {what}: {effects}");
        assert!(effects.matches("waited").count() <= 1, "{seed}: {what}: {effects}");
    }

    /// Collection takes no blob of a store whose names cannot all be read.
    fn collect_nothing(&self, seed: u64, what: &str) {
        let blobs = || files_below(&self.home.state().join("store/blobs"));
        let before = blobs();
        let collected = self.home.lobster(["store", "gc"]).run();
        assert!(!collected.stderr.contains("panicked"), "{seed}: {what}: {collected:?}");
        assert_eq!(blobs(), before, "{seed}: {what}: {collected:?}");
    }
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files_below(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// `0123…` as `01234567-89ab-…`.
fn dashed(hex: &str) -> String {
    let hex = hex.to_lowercase();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[test]
fn random_damage_is_named_and_answers_no_gate_twice() {
    if let Some(seed) = std::env::var("LOBSTER_DAMAGE").ok().and_then(|text| text.parse().ok()) {
        furnished().hold(seed);
        return;
    }
    let first = number("LOBSTER_DAMAGE_SEED", 1) * 1_000_000;
    let furnished = furnished();
    for seed in first..first + number("LOBSTER_DAMAGES", 14) {
        furnished.hold(seed);
    }
}

/// A blob that nothing seems to name stays while a journal that may name it is damaged.
#[test]
fn nothing_is_collected_that_a_damaged_record_may_name() {
    let home = Home::new();
    home.write("large.lobster", LARGE);
    home.tool(["large.lobster"]).output();
    let old = || {
        let db = database(&home);
        db.execute("UPDATE blobs SET touched = 0", []).unwrap();
        let files = files_below(&home.state().join("store/blobs"));
        for file in &files {
            let past = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
            fs::File::open(file).unwrap().set_modified(past).unwrap();
        }
        (db.query_row("SELECT count(*) FROM blobs", [], |row| row.get::<_, i64>(0)).unwrap(), files)
    };
    let before = old();
    assert!(!before.1.is_empty());
    // The record that names the large blob names another one now.
    let sql = "UPDATE journal SET record = replace(record, 'stdout', 'stdouT') WHERE record LIKE '%stdout%'";
    let digest = before.1[0].file_name().unwrap().to_str().unwrap().to_owned();
    assert!(database(&home).execute(sql, []).unwrap() > 0);
    let sql = "UPDATE journal SET record = replace(record, ?1, ?2)";
    let other = format!("{}0", &digest[..digest.len() - 1]);
    database(&home).execute(sql, [&digest, &other]).unwrap();
    let collected = home.lobster(["store", "gc"]).run();
    assert_eq!(collected.code(), 1, "{collected:?}");
    assert!(
        collected.stderr.contains("no blob was collected") && collected.stderr.contains("record"),
        "{collected:?}"
    );
    assert_eq!(old(), before);
    // With the run, the damage goes, and what it may have named.
    let collected = home.lobster(["store", "gc", "--keep", "0"]).run();
    assert_eq!(collected.code(), 0, "{collected:?}");
    assert_eq!(files_below(&home.state().join("store/blobs")), Vec::<PathBuf>::new());
}
