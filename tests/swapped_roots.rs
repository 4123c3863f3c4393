//! Roots, sockets and policy files that are exchanged for others while a step is
//! started: what was judged is what is used.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use serde_json::Value;

use crate::home::Home;
use crate::setting::number;

const POLICY: &str = "version = 1
[programs]
trusted_dirs = [\"/usr/bin\", \"/bin\"]
[[rule]]
id = \"make\"
effect = \"allow\"
program = \"mktemp\"
grant = { fs_write = [\"@workspace/out\"] }
";

fn tries(default: u64) -> u64 {
    number("LOBSTER_ROOT_SWAPS", default)
}

/// Exchanges two names again and again while `work` goes on; tells how often.
fn while_exchanging<T>(one: &Path, other: &Path, work: impl FnOnce() -> T) -> (T, u64) {
    let (stop, swaps) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                swaps.fetch_add(1, Ordering::Relaxed);
                // Now at once, now so that a whole start fits in between.
                let pause = swaps.load(Ordering::Relaxed) % 7 * 600;
                std::thread::sleep(std::time::Duration::from_micros(pause));
            }
        });
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        done
    });
    (done.unwrap_or_else(|panic| std::panic::resume_unwind(panic)), swaps.into_inner())
}

fn has_jail(home: &Home) -> bool {
    let doctor = home.lobster(["policy", "explain", "--policy", "p.toml", "mktemp out/x"]).run();
    assert_eq!(doctor.code(), 0, "{doctor:?}");
    let tried = home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "one.lobster"]).run();
    let envelope = tried.envelope();
    if envelope["status"] == "ok" {
        return true;
    }
    eprintln!("no jail on this machine: {tried:?}");
    false
}

fn installed() -> Home {
    let home = Home::new();
    home.write("p.toml", POLICY)
        .write("one.lobster", "steps:\n  - id: a\n    exec: [mktemp, out/XXXXXXXX]\n");
    fs::create_dir(home.dir().join("out")).unwrap();
    fs::create_dir(home.state().parent().unwrap().join("outside")).unwrap();
    home
}

fn count(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

#[test]
fn a_root_that_a_link_leads_to_is_not_granted() {
    let home = installed();
    if !has_jail(&home) {
        return;
    }
    let outside = home.state().parent().unwrap().join("outside");
    fs::remove_dir_all(home.dir().join("out")).unwrap();
    for target in [outside.as_path(), Path::new(".git"), Path::new("inner")] {
        let _ = fs::create_dir(home.dir().join("inner"));
        let _ = fs::create_dir(home.dir().join(".git"));
        symlink(target, home.dir().join("out")).unwrap();
        let error = home.tool(["--policy", "p.toml", "one.lobster"]).error();
        assert!(error.contains("symbolic link") && error.contains("Name the real path"), "{error}");
        fs::remove_file(home.dir().join("out")).unwrap();
    }
    assert_eq!(
        (count(&outside), count(&home.dir().join("inner")), count(&home.dir().join(".git"))),
        (0, 0, 0)
    );
}

#[test]
fn a_write_root_exchanged_while_a_step_starts_lets_nothing_outside() {
    let home = installed();
    if !has_jail(&home) {
        return;
    }
    let outside = home.state().parent().unwrap().join("outside");
    // Many starts in one run: each is a try.
    let mut flow = "steps:\n".to_owned();
    for step in 0..10 {
        flow += &format!("  - id: s{step}\n    exec: [mktemp, out/XXXXXXXX]\n    on_error: continue\n");
    }
    home.write("ten.lobster", flow);
    symlink(&outside, home.dir().join("link")).unwrap();
    let tries = tries(30);
    let ((), swaps) = while_exchanging(&home.dir().join("out"), &home.dir().join("link"), || {
        for _ in 0..tries.div_ceil(10) {
            let answer = home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "ten.lobster"]).run();
            assert!(!answer.stderr.contains("panicked"), "{answer:?}");
        }
    });
    let inside = [home.dir().join("out"), home.dir().join("link")];
    let made: usize = inside.iter().filter(|dir| !dir.is_symlink()).map(|dir| count(dir)).sum();
    println!("{tries} starts, {swaps} exchanges, {made} files inside, {} outside", count(&outside));
    assert_eq!(count(&outside), 0, "written outside the granted root");
}

/// The record names the policy that was in force, whatever the file holds by then.
#[test]
fn the_policy_that_is_recorded_is_the_one_that_was_read() {
    let home = Home::new();
    let degraded = "[sandbox]\nmode = \"degrade\"\nminimum = []\n";
    let allows = |program: &str| {
        format!("version = 1\n{degraded}[[rule]]\nid = \"t\"\neffect = \"allow\"\nprogram = \"{program}\"\n")
    };
    home.write("p.toml", allows("printenv")).write("q.toml", allows("env"));
    home.write("flow.lobster", "steps:\n  - id: ask\n    approval: Go?\n");
    let texts: Vec<Vec<u8>> =
        ["p.toml", "q.toml"].map(|name| fs::read(home.dir().join(name)).unwrap()).to_vec();
    let tries = tries(12);
    while_exchanging(&home.dir().join("p.toml"), &home.dir().join("q.toml"), || {
        for _ in 0..tries {
            home.tool(["--policy", "p.toml", "flow.lobster"]).token();
        }
    });
    let db = rusqlite::Connection::open(home.state().join("store/lobster.db")).unwrap();
    let mut statement = db.prepare("SELECT record FROM journal WHERE seq = 1").unwrap();
    let records: Vec<String> =
        statement.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(records.len() as u64, tries);
    // Which document goes with which text: the same in every run, and never crossed.
    let mut pairs = std::collections::BTreeSet::new();
    for record in &records {
        let record: Value = serde_json::from_str(record).unwrap();
        let detail = find(&record, "surroundings").unwrap_or_else(|| panic!("{record:#}"));
        let text = detail["policies"][0]["digest"].as_str().unwrap().to_owned();
        let document = find(&record, "policy").unwrap().as_str().unwrap().to_owned();
        pairs.insert((document, text));
    }
    let documents: std::collections::BTreeSet<_> = pairs.iter().map(|pair| &pair.0).collect();
    assert_eq!(documents.len(), pairs.len(), "a policy is recorded with the other's file: {pairs:?}");
    assert!(pairs.len() <= texts.len(), "{pairs:?}");
}

/// The first value of this name, at any depth.
fn find<'v>(value: &'v Value, name: &str) -> Option<&'v Value> {
    match value {
        Value::Object(fields) => {
            fields.get(name).or_else(|| fields.values().find_map(|value| find(value, name)))
        }
        Value::Array(items) => items.iter().find_map(|value| find(value, name)),
        _ => None,
    }
}
