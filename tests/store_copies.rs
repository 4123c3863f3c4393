//! Damaged, rolled-back and copied stores: what is hurt is named, what is whole
//! stays usable, and no answer is given twice.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Stdio;

use rusqlite::Connection;
use serde_json::Value;

use crate::home::Home;
use crate::setting::number;

const PAGE: u64 = 4096;

const ASKING: &str = "
name: asks
steps:
  - id: ask
    approval: Go on?
  - id: go
    run: echo gone >> effects
";

/// A store with some finished runs and one that waits, all in the database file.
fn furnished() -> Home {
    let home = Home::new();
    home.write("ask.lobster", ASKING);
    for n in 0..6 {
        home.tool([format!("exec --shell 'seq {n} 1500'")]).output();
    }
    home.tool(["ask.lobster"]);
    home.lobster(["approvals", "approve", &gate(&home)]).run().output();
    home.tool(["ask.lobster"]);
    fold(&home);
    home
}

/// Folds the log into the database.
fn fold(home: &Home) {
    let database = Connection::open(home.state().join("store/lobster.db")).unwrap();
    database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
}

fn ids(home: &Home) -> Vec<String> {
    let runs: Value =
        serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap_or_default();
    let runs = runs.as_array().cloned().unwrap_or_default();
    runs.iter().map(|run| run["id"].as_str().unwrap().to_owned()).collect()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Puts the store back to what it was.
fn put_back(home: &Home, kept: &Path) {
    fs::remove_dir_all(home.state()).unwrap();
    copy(kept, &home.state());
}

fn zero_page(home: &Home, page: u64) {
    let mut file = fs::OpenOptions::new().write(true).open(home.state().join("store/lobster.db")).unwrap();
    file.seek(SeekFrom::Start(page * PAGE)).unwrap();
    file.write_all(&[0; PAGE as usize]).unwrap();
}

/// Every page is damaged in turn: the damage is named, and each run whose journal
/// is whole is shown, replayed and salvaged.
#[test]
fn any_damaged_page_is_named_and_hurts_only_what_was_on_it() {
    let home = furnished();
    let all = ids(&home);
    let gates: Value =
        serde_json::from_str(&home.lobster(["approvals", "--all", "--json"]).run().stdout).unwrap();
    let answered = gates[1]["id"].as_str().unwrap().to_owned();
    let kept = home.dir().join("kept");
    copy(&home.state(), &kept);
    let pages = fs::metadata(home.state().join("store/lobster.db")).unwrap().len() / PAGE;
    assert!(pages >= 40, "only {pages} pages");
    let (mut sound, mut hurt) = (0, 0);
    for page in 0..pages {
        put_back(&home, &kept);
        zero_page(&home, page);
        let verified = home.lobster(["store", "verify"]).run();
        let target = home.dir().join("salvaged");
        let _ = fs::remove_dir_all(&target);
        let salvage = home.lobster(["store", "salvage", target.to_str().unwrap()]).run();
        if verified.code() == 0 {
            // The page was free, or says where free pages are.
            sound += 1;
            continue;
        }
        hurt += 1;
        assert_eq!(verified.code(), 1, "page {page}: {verified:?}");
        assert!(verified.stdout.contains("problem"), "page {page}: {verified:?}");
        assert!(target.join("store/lobster.db").exists(), "page {page}: {salvage:?}");
        // What was salvaged is a store in which all is well, but for lost blobs.
        let salvaged = home.lobster(["runs", "--json"]).env("LOBSTER_STATE_DIR", &target).run();
        let salvaged: Value = serde_json::from_str(&salvaged.stdout).unwrap();
        let salvaged: Vec<&str> =
            salvaged.as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
        // The record of a small store is on few pages: most runs survive most damage.
        assert!(salvaged.len() + 4 >= all.len(), "page {page}: {salvaged:?} of {all:?}: {verified:?}");
        let shown = ids(&home);
        for run in &salvaged {
            assert!(shown.iter().any(|id| id == run), "page {page}: {run} is not listed: {shown:?}");
            let show = home.lobster(["show", run]).run();
            assert!(show.stdout.contains("STEP"), "page {page}: {show:?}");
        }
        let verified = home.lobster(["store", "verify"]).env("LOBSTER_STATE_DIR", &target).run();
        assert!(
            verified.code() == 0 || verified.stdout.contains("is missing, named by"),
            "page {page}: {verified:?}"
        );
        // Nothing is written to a database that is known to be damaged, and no question is answered twice.
        let again = home.lobster(["approvals", "approve", &answered]).env("LOBSTER_STATE_DIR", &target).run();
        assert_eq!(home.read("effects"), "gone\n", "page {page}: {again:?}");
        // A question that is lost with the page is damage, not a wrong request.
        let asked = home.lobster(["approvals", "show", &answered]).run();
        assert_ne!(asked.code(), 2, "page {page}: {asked:?}");
    }
    assert!(hurt > pages / 2, "{hurt} of {pages} pages matter, {sound} do not");
}

#[test]
fn a_record_that_is_no_text_hurts_its_run_alone() {
    let home = furnished();
    let all = ids(&home);
    let database = Connection::open(home.state().join("store/lobster.db")).unwrap();
    let sql =
        "UPDATE journal SET record = CAST(x'ff' || substr(record, 2) AS TEXT) WHERE run = 3 AND seq = 2";
    database.execute(sql, []).unwrap();
    let hurt = &all[all.len() - 3];
    let verified = home.lobster(["store", "verify"]).run();
    assert_eq!(verified.code(), 1, "{verified:?}");
    assert!(verified.stdout.contains(&format!("journal of run {hurt}, record 2")), "{verified:?}");
    assert_eq!(ids(&home), all);
    assert_eq!(home.lobster(["runs"]).run().code(), 0);
    // What the damaged record named nobody knows, so no blob is garbage for certain.
    let collected = home.lobster(["store", "gc", "--keep", "100"]).run();
    assert_eq!(collected.code(), 1, "{collected:?}");
    assert!(
        collected.stderr.contains("no blob was collected") && collected.stderr.contains(hurt),
        "{collected:?}"
    );
    assert_eq!(ids(&home), all);
    let audit = home.lobster(["audit"]).run();
    assert!(audit.stdout.lines().count() > 5, "{audit:?}");
    let target = home.dir().join("salvaged");
    let salvage = home.lobster(["store", "salvage", target.to_str().unwrap()]).run();
    assert_eq!(salvage.code(), 1, "{salvage:?}");
    assert!(salvage.stdout.contains(hurt), "{salvage:?}");
    let verified = home.lobster(["store", "verify"]).env("LOBSTER_STATE_DIR", &target).run();
    assert_eq!(verified.code(), 0, "{verified:?}");
}

fn gate(home: &Home) -> String {
    let gates: Value = serde_json::from_str(&home.lobster(["approvals", "--json"]).run().stdout).unwrap();
    gates[0]["id"].as_str().unwrap().to_owned()
}

/// The files of the database as they were before a question was answered.
#[test]
fn a_database_that_was_rolled_back_answers_no_question_twice() {
    type Damage = fn(&Home, &Path);
    let damages: [(&str, Damage); 4] = [
        ("all put back", |home, before| {
            fs::remove_dir_all(home.state()).unwrap();
            copy(before, &home.state());
        }),
        ("database and log put back", |home, before| {
            for name in ["lobster.db", "lobster.db-wal"] {
                fs::copy(before.join("store").join(name), home.state().join("store").join(name)).unwrap();
            }
            let _ = fs::remove_file(home.state().join("store/lobster.db-shm"));
        }),
        ("log lost", |home, _| {
            for name in ["lobster.db-wal", "lobster.db-shm"] {
                fs::remove_file(home.state().join("store").join(name)).unwrap();
            }
        }),
        ("log cut", |home, before| {
            let len = fs::metadata(before.join("store/lobster.db-wal")).unwrap().len();
            let log =
                fs::OpenOptions::new().write(true).open(home.state().join("store/lobster.db-wal")).unwrap();
            // The room behind the log's end is zeros: cut what was written since.
            log.set_len(len.min(60_000)).unwrap();
            let _ = fs::remove_file(home.state().join("store/lobster.db-shm"));
        }),
    ];
    for (what, damage) in damages {
        let home = Home::new();
        home.write("ask.lobster", ASKING);
        home.tool(["ask.lobster"]);
        fold(&home);
        let id = gate(&home);
        let before = home.dir().join("before");
        copy(&home.state(), &before);
        home.lobster(["approvals", "approve", &id]).run();
        assert_eq!(home.read("effects"), "gone\n", "{what}");
        damage(&home, &before);
        for _ in 0..2 {
            let refused = home.lobster(["approvals", "approve", &id]).run();
            assert_ne!(refused.code(), 0, "{what}: {refused:?}");
            assert!(format!("{refused:?}").contains("older than what was recorded"), "{what}: {refused:?}");
        }
        // Other work goes on, and does not hide it.
        home.tool(["exec true"]).output();
        let refused = home.lobster(["resume", "--id", &id, "--approve", "yes"]).run();
        assert!(format!("{refused:?}").contains("older than what was recorded"), "{what}: {refused:?}");
        assert_eq!(home.read("effects"), "gone\n", "{what}");
        let verified = home.lobster(["store", "verify"]).run();
        assert!(
            verified.stdout.contains("rolled back") && verified.stdout.contains("record"),
            "{what}: {verified:?}"
        );
        assert_eq!(verified.code(), 1, "{what}: {verified:?}");
        // The operator goes on with what is there.
        let accepted = home.lobster(["store", "verify", "--accept-rollback"]).run();
        assert_eq!(accepted.code(), 0, "{what}: {accepted:?}");
        home.lobster(["approvals", "approve", &id]).run();
        assert_eq!(home.read("effects"), "gone\ngone\n", "{what}");
    }
}

#[test]
fn a_backup_holds_what_was_committed_before_it_began() {
    let home = Home::new();
    home.write("ask.lobster", ASKING);
    home.tool(["ask.lobster"]);
    home.tool(["exec --shell 'seq 20000' | head --n 1"]).output();
    home.tool(["exec --shell 'echo 1' --json | state.set kept"]);
    let rounds = number("LOBSTER_BACKUPS", 3);
    let stop = home.dir().join("stop");
    std::thread::scope(|scope| {
        for writer in 0..16 {
            let (home, stop) = (&home, &stop);
            scope.spawn(move || {
                let mut n = 0;
                while !stop.exists() && n < 400 {
                    home.tool([format!("exec --shell 'seq {writer} {n}'")]);
                    n += 1;
                }
            });
        }
        for round in 0..rounds {
            let committed = ids(&home);
            let target = home.dir().join(format!("backup-{round}"));
            let done = home.lobster(["store", "backup", target.to_str().unwrap()]).run();
            assert_eq!(done.code(), 0, "{done:?}");
            // On a machine that does not know what was recorded since.
            let inside = |words: &[&str]| {
                home.lobster(words).env("LOBSTER_STATE_DIR", &target).env("HOME", home.dir()).run()
            };
            let verified = inside(&["store", "verify"]);
            assert_eq!(verified.code(), 0, "{verified:?}");
            let runs: Value =
                serde_json::from_str(&inside(&["runs", "--limit", "100000", "--json"]).stdout).unwrap();
            let copied: Vec<&str> =
                runs.as_array().unwrap().iter().map(|run| run["id"].as_str().unwrap()).collect();
            for run in &committed {
                assert!(copied.contains(&run.as_str()), "round {round}: {run} is not in the backup");
            }
            let waiting = inside(&["approvals"]);
            assert!(waiting.stdout.contains("Go on?"), "{waiting:?}");
        }
        fs::write(&stop, "").unwrap();
    });
    // What is there already is not replaced.
    let again = home.lobster(["store", "backup", home.dir().join("backup-0").to_str().unwrap()]).run();
    assert_eq!(again.code(), 1, "{again:?}");
    assert!(again.stderr.contains("there already"), "{again:?}");
}

#[test]
fn a_database_without_its_log_is_read_on_a_read_only_disk() {
    let home = furnished();
    let all = ids(&home);
    fold(&home);
    for name in ["lobster.db-wal", "lobster.db-shm"] {
        let _ = fs::remove_file(home.state().join("store").join(name));
    }
    // Each command by itself, then the list that is compared.
    let script = "mount --bind \"$STATE\" \"$STATE\" && mount -o remount,ro,bind \"$STATE\" || exit 99
        for words in \"show $RUN\" \"logs $RUN\" \"replay $RUN\" approvals 'store verify' 'store stats' audit; do
            \"$L\" $words >/dev/null || { echo \"$words: $?\" >&2; exit 3; }
        done
        exec \"$L\" runs --json";
    let output = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .env("RUN", all.last().unwrap())
        .env("STATE", home.state())
        .env("L", crate::binary::lobster())
        .env("LOBSTER_STATE_DIR", home.state())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    if matches!(output.status.code(), Some(1 | 99))
        && String::from_utf8_lossy(&output.stderr).contains("unshare")
    {
        eprintln!("not allowed to mount: {output:?}");
        return;
    }
    let runs: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(runs.as_array().unwrap().len(), all.len(), "{output:?}");
}
