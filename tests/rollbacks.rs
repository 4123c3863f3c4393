//! Copies of a store, taken before and after an answer: whichever of them is used, on the same machine, the answered
//! question never opens again unless a person accepts that.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::home::wait_until;
use crate::home::{Answer, Home, copy_tree};
use crate::served::{Served, register, token};

const ASKING: &str = "
name: NAME
steps:
  - id: ask
    approval: Pay for NAME?
  - id: pay
    run: echo NAME >> effects
";

/// The words that every refusal has.
const OLDER: &str = "older than what was recorded";
const REMEDY: &str = "lobster store verify --accept-rollback";

/// A store in which two runs wait, and their questions.
struct Asked {
    home: Home,
    paid: String,
    open: String,
}

impl Asked {
    fn new() -> Self {
        let home = Home::new();
        let [paid, open] = ["paid", "open"].map(|name| ask(&home, name));
        Self { home, paid, open }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.home.dir().join(name)
    }

    /// A command on the copy at `state`.
    fn on(&self, state: &Path, words: &[&str]) -> Answer {
        self.home.lobster(words).env("LOBSTER_STATE_DIR", state).run()
    }

    fn pay(&self) {
        self.home.lobster(["approvals", "approve", &self.paid]).run().output();
    }

    fn assert_effects(&self, effects: &str, what: &str) {
        assert_eq!(self.home.read("effects"), effects, "{what}");
    }

    /// Nothing is answered in the copy at `state`, and everything that reads it says why.
    fn assert_refused(&self, state: &Path, what: &str, why: &str) {
        let effects = self.home.read("effects");
        for words in [
            &["approvals", "approve", &self.paid][..],
            &["resume", "--id", &self.paid, "--approve", "yes"],
            &["approvals", "approve", &self.open],
        ] {
            let refused = self.on(state, words);
            let error = refused.error();
            assert!(error.contains(why) && error.contains(REMEDY), "{what}: {words:?}: {refused:?}");
        }
        for words in
            [&["runs", "--json"][..], &["approvals", "--json"], &["show", "@", "--json"], &["logs", "@"]]
        {
            let answer = self.on(state, words);
            assert!(answer.code() == 0 && answer.stderr.contains(why), "{what}: {words:?}: {answer:?}");
            let is_json = serde_json::from_str::<Value>(&answer.stdout).is_ok();
            assert!(is_json || !words.contains(&"--json"), "{what}: {words:?}: {answer:?}");
        }
        let verified = self.on(state, &["store", "verify"]);
        assert!(verified.code() == 1 && verified.stdout.contains(REMEDY), "{what}: {verified:?}");
        // New work is done, and hides nothing.
        self.on(state, &["run", "--mode", "tool", "exec true"]).output();
        assert!(self.on(state, &["approvals", "approve", &self.paid]).error().contains(why), "{what}");
        self.assert_effects(&effects, what);
    }
}

/// Starts a run that asks, and gives its question.
fn ask(home: &Home, name: &str) -> String {
    home.write("ask.lobster", ASKING.replace("NAME", name)).tool(["ask.lobster"]).token();
    let gates: Value = serde_json::from_str(&home.lobster(["approvals", "--json"]).run().stdout).unwrap();
    gates[0]["id"].as_str().unwrap().to_owned()
}

/// Copies the database and its log alone.
fn copy_database(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("store")).unwrap();
    for name in ["lobster.db", "lobster.db-wal", "lobster.db-shm"] {
        let _ = fs::remove_file(to.join("store").join(name));
        let _ = fs::copy(from.join("store").join(name), to.join("store").join(name));
    }
}

/// How a copy is taken, from the store in whose state it is.
const TAKES: [&str; 4] = ["cp", "backup", "salvage", "database alone"];

fn take(asked: &Asked, how: &str) -> PathBuf {
    let (state, copy) = (asked.home.state(), asked.place(how));
    match how {
        "cp" => copy_tree(&state, &copy),
        "database alone" => copy_database(&state, &copy),
        command => drop(asked.on(&state, &["store", command, copy.to_str().unwrap()])),
    }
    copy
}

/// How a copy is put to use; gives the state directory of it.
const USES: [&str; 5] =
    ["named", "moved to the old place", "database put back", "salvaged again", "backed up again"];

fn put_to_use(asked: &Asked, copy: PathBuf, how: &str) -> PathBuf {
    let state = asked.home.state();
    let again = |command: &str| {
        let target = asked.place(&format!("{command} of it"));
        let done = asked.on(&copy, &["store", command, target.to_str().unwrap()]);
        (target, done)
    };
    match how {
        "named" => copy,
        "moved to the old place" => {
            fs::remove_dir_all(&state).unwrap();
            fs::rename(&copy, &state).unwrap();
            state
        }
        "database put back" => {
            copy_database(&copy, &state);
            state
        }
        "salvaged again" => again("salvage").0,
        _ => again("backup").0,
    }
}

/// Every way to take a copy, before and after the answer, with every way to use it.
#[test]
fn an_answered_question_opens_in_no_copy_of_its_store() {
    for take_it in TAKES {
        for use_it in USES {
            let what = format!("{take_it}, {use_it}");
            let asked = Asked::new();
            let copy = take(&asked, take_it);
            asked.pay();
            let state = put_to_use(&asked, copy, use_it);
            asked.assert_refused(&state, &format!("{what}, before"), OLDER);
            let accepted = asked.on(&state, &["store", "verify", "--accept-rollback"]);
            assert_eq!(accepted.code(), 0, "{what}: {accepted:?}");
            asked.on(&state, &["approvals", "approve", &asked.paid]).output();
            asked.assert_effects("paid\npaid\n", &format!("{what}, accepted"));

            let asked = Asked::new();
            asked.pay();
            let copy = take(&asked, take_it);
            let state = put_to_use(&asked, copy, use_it);
            for words in [
                &["approvals", "approve", &asked.paid][..],
                &["resume", "--id", &asked.paid, "--approve", "yes"],
            ] {
                assert!(!asked.on(&state, words).error().contains(OLDER), "{what}, after");
            }
            // All that was recorded is in the copy, so it is as good as the store.
            let runs = asked.on(&state, &["runs"]);
            assert!(runs.code() == 0 && runs.stderr.is_empty(), "{what}: {runs:?}");
            asked.on(&state, &["approvals", "approve", &asked.open]).output();
            asked.assert_effects("paid\nopen\n", &format!("{what}, after"));
        }
    }
}

#[test]
fn of_two_copies_in_use_one_is_refused() {
    let asked = Asked::new();
    let state = asked.home.state();
    let server = Served::start(&asked.home, &[]);
    let approver = token(&asked.home, "approver", None);
    let copy = take(&asked, "cp");
    asked.on(&copy, &["approvals", "approve", &asked.paid]).output();
    // The server has had the store open all the time.
    let gates = server.get(&approver, "/api/v1/approvals").good();
    let gate = gates["gates"].as_array().unwrap().iter().find(|gate| gate["id"] == asked.paid.as_str());
    let yes = json!({ "decision": "approve", "digest": gate.unwrap()["digest"] });
    let refused = server.post(&approver, &format!("/api/v1/approvals/{}/answer", asked.paid), &yes);
    assert!(refused.status >= 400 && refused.body.contains(OLDER), "{refused:?}");
    drop(server);
    asked.assert_refused(&state, "the original", OLDER);
    let refused = asked.home.lobster(["approvals", "approve", &asked.open]).run().error();
    assert!(refused.contains(copy.to_str().unwrap()), "the newer copy is named: {refused}");
    assert_eq!(asked.home.lobster(["store", "verify", "--accept-rollback"]).run().code(), 0);
    // Now it is a store of its own, and the other one still is what it was.
    asked.on(&copy, &["run", "--mode", "tool", "exec true"]).output();
    asked.on(&state, &["approvals", "approve", &asked.open]).output();
    assert_eq!(asked.on(&copy, &["store", "verify"]).code(), 0);
    assert_eq!(asked.on(&state, &["store", "verify"]).code(), 0);
    asked.assert_effects("paid\nopen\n", "both");
}

#[test]
fn the_database_of_another_store_is_refused_and_nothing_is_lost() {
    let (asked, other) = (Asked::new(), Asked::new());
    let own = asked.place("own");
    copy_tree(&asked.home.state(), &own);
    copy_database(&other.home.state(), &asked.home.state());
    let foreign = Asked { paid: other.paid.clone(), open: other.open.clone(), ..asked };
    foreign.assert_refused(&foreign.home.state(), "another store's", "the database of another store");
    for command in ["salvage", "backup"] {
        let copy = foreign.place(command);
        let done = foreign.home.lobster(["store", command, copy.to_str().unwrap()]).run();
        assert!(done.code() == 1 && done.stdout.contains(REMEDY), "{command}: {done:?}");
        foreign.assert_refused(&copy, command, "the database of another store");
    }
    // Its own is put back.
    copy_database(&own, &foreign.home.state());
    assert_eq!(foreign.home.lobster(["store", "verify"]).run().code(), 0);
    // The other one is accepted.
    copy_database(&other.home.state(), &foreign.home.state());
    assert_eq!(foreign.home.lobster(["store", "verify", "--accept-rollback"]).run().code(), 0);
    foreign.home.lobster(["approvals", "approve", &other.paid]).run().output();
    foreign.assert_effects("paid\n", "accepted");
}

fn marks_outside(home: &Home) -> PathBuf {
    let dir = home.dir().parent().unwrap().join("home/.lobster/high-water");
    let files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "one store, one file: {files:?}");
    files[0].clone()
}

#[test]
fn marks_that_are_newer_than_the_store_or_no_marks_are_one_clear_error_or_none() {
    let asked = Asked::new();
    let (state, marks) = (asked.home.state(), marks_outside(&asked.home));
    let text = fs::read_to_string(&marks).unwrap();
    let newest: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    // Bytes that are no mark, and the marks of another store.
    let foreign = text.replace(newest["store"].as_str().unwrap(), "another");
    for odd in ["", "\n\n{}\n[1]\nnull\n{\"store\":", "\u{0}\u{1}\n", &foreign] {
        fs::write(&marks, odd).unwrap();
        assert_eq!(asked.home.lobster(["store", "verify"]).run().code(), 0, "{odd:?}");
    }
    for number in [newest["number"].as_i64().unwrap() + 1, i64::MAX] {
        let mut newer = newest.clone();
        newer["number"] = number.into();
        fs::write(&marks, format!("{text}{newer}\n")).unwrap();
        asked.assert_refused(&state, "newer", OLDER);
    }
    assert_eq!(asked.home.lobster(["store", "verify", "--accept-rollback"]).run().code(), 0);
    asked.pay();
    asked.assert_effects("paid\n", "accepted");
}

/// An earlier version noted its marks outside in a file that is named after the place of the store.
#[test]
fn marks_of_an_earlier_version_are_kept() {
    let asked = Asked::new();
    let (state, before) = (asked.home.state(), asked.place("before"));
    Connection::open(state.join("store/lobster.db")).unwrap().execute_batch("DROP TABLE identity").unwrap();
    copy_tree(&state, &before);
    asked.pay();
    let marks = marks_outside(&asked.home);
    let place = lobster_runtime::digest::Digest::of_bytes(state.join("store").as_os_str().as_encoded_bytes());
    fs::rename(&marks, marks.with_file_name(format!("{}.jsonl", &place.to_string()[..16]))).unwrap();
    fs::remove_dir_all(&state).unwrap();
    copy_tree(&before, &state);
    asked.assert_refused(&state, "an earlier version's", OLDER);
}

/// One changed record is damage: it closes the questions of its own run, and no others.
#[test]
fn a_changed_record_is_not_a_roll_back() {
    let asked = Asked::new();
    let database = Connection::open(asked.home.state().join("store/lobster.db")).unwrap();
    let sql = "UPDATE journal SET record = replace(record, 'gate', 'gaTe') WHERE id = (SELECT max(id) FROM journal)";
    assert_eq!(database.execute(sql, []).unwrap(), 1);
    let verified = asked.home.lobster(["store", "verify"]).run();
    assert_eq!(verified.code(), 1, "{verified:?}");
    let said = format!("{}{}", verified.stdout, verified.stderr);
    assert!(said.contains("journal of run") && said.contains("lobster store salvage DIR"), "{said}");
    assert!(!said.contains("rolled back") && !said.contains("accept-rollback"), "{said}");
    let runs = asked.home.lobster(["runs"]).run();
    assert!(runs.code() == 0 && !runs.stderr.contains(OLDER), "{runs:?}");
    let refused = asked.home.lobster(["approvals", "approve", &asked.open]).run().error();
    assert!(refused.contains("is damaged at record") && !refused.contains("accept-rollback"), "{refused}");
    asked.pay();
    asked.assert_effects("paid\n", "the other run");
}

/// Rows of questions that cannot be trusted: what a salvaged store has of them is what the journals say.
#[test]
fn a_salvaged_question_is_what_its_journal_says() {
    let odd = [
        "status = '????'",
        "status = 'open', answer = NULL, by = NULL, answered = NULL",
        "status = 'open', id = 'ffffffff'",
        "detail = '{'",
        "key = x'00'",
        "binding = x'0102'",
        "path = 'elsewhere'",
        "run = 77",
    ];
    for change in odd {
        for hurts_paid in [true, false] {
            let asked = Asked::new();
            asked.pay();
            let id = if hurts_paid { &asked.paid } else { &asked.open };
            let database = Connection::open(asked.home.state().join("store/lobster.db")).unwrap();
            assert_eq!(
                database.execute(&format!("UPDATE gates SET {change} WHERE id = ?1"), [id]).unwrap(),
                1
            );
            drop(database);
            let copy = asked.place("salvaged");
            let salvaged = asked.home.lobster(["store", "salvage", copy.to_str().unwrap()]).run();
            // An open question is open already.
            let is_same = !hurts_paid && change.ends_with("answered = NULL");
            assert_eq!(salvaged.code(), i32::from(!is_same), "{change}: {salvaged:?}");
            for id in [&asked.paid, &asked.paid, &asked.open, &asked.open] {
                asked.on(&copy, &["approvals", "approve", id]);
            }
            let verified = asked.on(&copy, &["store", "verify"]);
            assert_eq!(verified.code(), 0, "{change}: {salvaged:?}: {verified:?}");
            let effects = asked.home.read("effects");
            assert_eq!(effects.matches("paid").count(), 1, "{change}: {salvaged:?}: {effects}");
            assert!(effects.matches("open").count() <= 1, "{change}: {effects}");
            // Only the row that is hurt may be lost, and then its run can be asked again.
            if hurts_paid {
                assert_eq!(effects, "paid\nopen\n", "{change}: {salvaged:?}");
            }
        }
    }
}

/// What waited in a copy may have run in the store since: it does not run again, also when the copy is accepted.
#[test]
fn a_start_that_waited_in_a_copy_runs_once() {
    let home = Home::new();
    home.write("counts.lobster", "steps:\n  - { id: a, run: echo ran >> effects }\n");
    register(&home, &["counts.lobster"]);
    for _ in 0..3 {
        assert_eq!(home.lobster(["schedule", "run-now", "counts"]).run().code(), 0);
    }
    let copy = home.dir().join("copy");
    assert_eq!(home.lobster(["store", "backup", copy.to_str().unwrap()]).run().code(), 0);
    let server = Served::start(&home, &[]);
    wait_until("all have run", || home.read("effects") == "ran\nran\nran\n");
    drop(server);
    fs::rename(home.state(), home.dir().join("state-before")).unwrap();
    fs::rename(&copy, home.state()).unwrap();

    let operator = token(&home, "operator", None);
    let refused = || {
        let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
        runs.as_array().unwrap().iter().filter(|run| run["status"] == "refused").count()
    };
    let server = Served::start(&home, &[]);
    let ready = || server.get(&operator, "/readyz");
    wait_until("it says why nothing begins", || ready().body.contains(OLDER));
    assert_eq!((home.read("effects").as_str(), refused()), ("ran\nran\nran\n", 0));
    drop(server);
    assert_eq!(home.lobster(["store", "verify", "--accept-rollback"]).run().code(), 0);
    let server = Served::start(&home, &[]);
    assert_eq!(refused(), 3);
    // A new start runs, after whatever waited before it.
    assert_eq!(home.lobster(["schedule", "run-now", "counts"]).run().code(), 0);
    wait_until("the new one has run", || home.read("effects") == "ran\nran\nran\nran\n");
    drop(server);
}
