//! Runs whose records others wrote: whatever such a record says, nothing is done here on the strength of it. And
//! runs of this store whose records are damaged.

use std::path::{Path, PathBuf};

use lobster_runtime::digest::Digest;
use rusqlite::{Connection, params};
use serde_json::{Value, json};

use crate::forged::Bundle;
use crate::home::{Answer, Home};

const STAGED: &str = "name: staged\nsteps:\n  - { id: fix, cwd: tree, changes: staged, run: 'echo new > a' }\n  - { id: no, run: exit 3 }\n";

/// What the record of a change says of a file that nobody here ever changed.
#[derive(Clone, Copy, Debug)]
enum Claim {
    /// It was taken away, so an undo would make it.
    Deleted,
    /// It was made, so a commit would make it.
    Made,
}

/// A run, exported where it was, and another store to import it into.
struct Elsewhere {
    home: Home,
    bundle: Bundle,
    run: String,
    stores: usize,
}

impl Elsewhere {
    fn new(home: Home) -> Self {
        let export = home.lobster(["bundle", "export", "@", "-o", "run.bundle", "--force"]).run();
        assert_eq!(export.code(), 0, "{export:?}");
        let bundle = Bundle::read(&home.dir().join("run.bundle"));
        let run = bundle.manifest["run"].as_str().unwrap().to_owned();
        Self { home, bundle, run, stores: 0 }
    }

    fn staged(workflow: &str) -> Self {
        let home = Home::new();
        home.write("flow.lobster", workflow).write("tree/a", "old\n");
        home.tool(["flow.lobster"]);
        Self::new(home)
    }

    /// A file in the home directory of whoever imports it.
    fn victim(&self) -> PathBuf {
        self.home.dir().parent().unwrap().join("home/authorized_keys")
    }

    /// Replaces the change set of the step, wherever it is named.
    fn forge(&mut self, digest: &str, claim: Claim) {
        let content = b"ssh-ed25519 AAAA attacker\n";
        let file = json!({ "type": "file", "digest": Digest::of_bytes(content).to_string(), "size": content.len(),
            "mode": 0o755, "modified": [1_795_772_901, 0] });
        let victim = self.victim();
        let which = match claim {
            Claim::Deleted => "before",
            Claim::Made => "after",
        };
        let change = json!({ "path": victim.file_name().unwrap().to_str().unwrap(), which: file });
        let set =
            json!({ "version": 1, "roots": [{ "root": victim.parent().unwrap(), "changes": [change] }] });
        let set = set.to_string();
        replace(&mut self.bundle, digest, set.as_bytes());
        self.bundle.put(content);
        for record in &mut self.bundle.records {
            if let Some(changes) = record.pointer_mut("/event/outcome/detail/changes") {
                changes["len"] = json!(set.len());
            }
        }
    }

    fn forge_step(&mut self, claim: Claim) {
        let digest = self.bundle.event("step_ended", "fix")["outcome"]["detail"]["changes"]["digest"].clone();
        self.forge(digest.as_str().unwrap(), claim);
    }

    /// Leaves out what comes after this event.
    fn cut_after(&mut self, kind: &str, path: &str) {
        let is_last = |record: &Value| record["event"]["type"] == kind && record["event"]["path"] == path;
        let last = self.bundle.records.iter().rposition(is_last).unwrap();
        self.bundle.records.truncate(last + 1);
    }

    /// Imports it into a store of its own.
    fn import(&mut self) -> Store<'_> {
        self.stores += 1;
        self.bundle.write(&self.home.dir().join("forged.bundle"));
        let store =
            Store { home: &self.home, state: self.home.second_state(&format!("store-{}", self.stores)) };
        let imported = store.call(&["bundle", "import", "forged.bundle", "--no-replay"]);
        assert_eq!(imported.code(), 0, "{imported:?}");
        store
    }

    #[track_caller]
    fn assert_untouched(&self, what: &dyn std::fmt::Debug) {
        assert!(!self.victim().exists(), "{what:?}");
    }
}

/// Another store than that of the home.
struct Store<'h> {
    home: &'h Home,
    state: PathBuf,
}

impl Store<'_> {
    fn call(&self, words: &[&str]) -> Answer {
        self.home.lobster(words).env("LOBSTER_STATE_DIR", &self.state).run()
    }

    fn under(&self, policy: &str, words: &[&str]) -> Answer {
        let call = self.home.lobster(words).env("LOBSTER_STATE_DIR", &self.state);
        call.env("LOBSTER_POLICY", self.home.dir().join(policy)).run()
    }
}

/// Replaces a blob, and its name wherever it stands.
fn replace(bundle: &mut Bundle, digest: &str, content: &[u8]) {
    let named = |blob: &[u8]| Digest::of_bytes(blob).to_string();
    let at = bundle.blobs.iter().position(|blob| named(blob) == digest).unwrap();
    bundle.blobs[at] = content.to_vec();
    let mut renamed = vec![(digest.to_owned(), named(content))];
    let mut next = 0;
    while let Some((from, to)) = renamed.get(next).cloned() {
        next += 1;
        for blob in &mut bundle.blobs {
            let Some(text) = std::str::from_utf8(blob).ok().filter(|text| text.contains(&from)) else {
                continue;
            };
            let changed = text.replace(&from, &to).into_bytes();
            renamed.push((named(blob), named(&changed)));
            *blob = changed;
        }
    }
    for record in &mut bundle.records {
        let text = renamed.iter().fold(record.to_string(), |text, (from, to)| text.replace(from, to));
        *record = serde_json::from_str(&text).unwrap();
    }
}

const UNDOS: [&[&str]; 7] = [
    &["undo", "@"],
    &["undo", "@", "--dry-run"],
    &["undo", "@", "--step", "fix"],
    &["undo", "@", "--conflicts", "keep"],
    &["undo", "@", "--conflicts", "overwrite"],
    &["undo", "@", "--conflicts", "merge"],
    &["undo", "@", "--only", "../home"],
];

const RESUMES: [&[&str]; 6] = [
    &["resume", "@"],
    &["resume", "@", "--take-over"],
    &["resume", "@", "--take-over", "--conflicts", "overwrite"],
    &["resume", "@", "--conflicts", "overwrite"],
    &["resume", "@", "--retry-interrupted"],
    &["resume", "@"],
];

const OTHERS: [&[&str]; 6] = [
    &["changes", "@"],
    &["changes", "@", "--patch"],
    &["audit"],
    &["replay", "@"],
    &["bundle", "export", "@", "-o", "again.bundle", "--force"],
    &["fork", "@"],
];

/// Has every command that reads a record work with what was imported, with and without a policy.
fn assert_does_nothing(elsewhere: &mut Elsewhere, what: &str) {
    elsewhere.home.write("p.toml", "version = 1\n[sandbox.fs]\nwrite = [\"@workspace\"]\n");
    for policy in [None, Some("p.toml")] {
        for commands in [&UNDOS[..], &RESUMES, &OTHERS] {
            let victim = elsewhere.victim();
            let store = elsewhere.import();
            for words in commands {
                let answer = match policy {
                    None => store.call(words),
                    Some(policy) => store.under(policy, words),
                };
                assert!(!victim.exists(), "{what}, {policy:?}, {words:?}: {answer:?}");
                if words[0] == "undo" {
                    assert!(
                        answer.code() == 1 && answer.stderr.contains("nothing is undone here"),
                        "{answer:?}"
                    );
                }
            }
            // What was begun by a fork may be undone; of that, too, nothing is in the record alone.
            store.call(&["undo", "@"]);
            assert!(!victim.exists(), "{what}, {policy:?}: undo of the latest");
        }
    }
}

#[test]
fn a_forged_change_of_files_is_neither_undone_nor_committed() {
    for claim in [Claim::Deleted, Claim::Made] {
        let mut whole = Elsewhere::staged(STAGED);
        whole.forge_step(claim);
        assert_does_nothing(&mut whole, &format!("{claim:?}, failed"));

        // As if it had been killed at each of these places.
        for (kind, path) in
            [("step_ended", "fix"), ("step_started", "fix!changes"), ("step_ended", "fix!changes")]
        {
            let mut cut = Elsewhere::staged(STAGED);
            cut.forge_step(claim);
            cut.cut_after(kind, path);
            assert_does_nothing(&mut cut, &format!("{claim:?}, cut after {kind} of {path}"));
        }
        let mut good = Elsewhere::staged(STAGED.split("  - { id: no").next().unwrap());
        good.forge_step(claim);
        assert_does_nothing(&mut good, &format!("{claim:?}, succeeded"));
    }
}

#[test]
fn an_undo_that_was_planned_elsewhere_is_not_done() {
    let home = Home::new();
    home.write("flow.lobster", STAGED.split("  - { id: no").next().unwrap()).write("tree/a", "old\n");
    home.tool(["flow.lobster"]).output();
    assert_eq!(home.lobster(["undo", "@"]).run().code(), 0);
    let mut undo = Elsewhere::new(home);
    let committed = undo.bundle.event("step_ended", "undo!changes")["outcome"]["value"]["committed"].clone();
    undo.forge(committed.as_str().unwrap(), Claim::Made);
    assert_does_nothing(&mut undo, "an undo");
    let store = undo.import();
    let forked = store.call(&["fork", "@"]);
    assert!(forked.stdout.contains("planned where the run was imported from"), "{forked:?}");
    // Nor by a fork of the fork.
    store.call(&["fork", "@"]);
    undo.assert_untouched(&"fork of a fork");
    undo.bundle.records.truncate(1);
    assert_does_nothing(&mut undo, "an undo that has not begun");
}

#[test]
fn an_honest_run_is_undone_where_it_was() {
    let mut honest = Elsewhere::staged(STAGED.split("  - { id: no").next().unwrap());
    let run = honest.run.clone();
    let state = {
        let store = honest.import();
        store.state
    };
    let home = &honest.home;
    let refused = |state: &Path| {
        let answer = home.lobster(["undo", &run]).env("LOBSTER_STATE_DIR", state).run();
        assert!(answer.code() == 1 && answer.stderr.contains("was imported"), "{answer:?}");
        assert!(answer.stderr.contains("`lobster undo ") && answer.stderr.contains("--patch`"), "{answer:?}");
        assert_eq!(home.read("tree/a"), "new\n");
    };
    refused(&state);
    // The mark stays whatever becomes of the store, and does not come with the bundle.
    let here = |words: &[&str]| home.lobster(words).env("LOBSTER_STATE_DIR", &state).run();
    assert_eq!(here(&["store", "gc", "--keep", "1"]).code(), 0);
    refused(&state);
    let copy = home.dir().join("copy");
    let backup = here(&["store", "backup", copy.to_str().unwrap()]);
    assert_eq!(backup.code(), 0, "{backup:?}");
    refused(&copy);
    let salvaged = home.dir().join("salvaged");
    let salvage = here(&["store", "salvage", salvaged.to_str().unwrap()]);
    assert_eq!(salvage.code(), 0, "{salvage:?}");
    refused(&salvaged);
    assert_eq!(here(&["bundle", "export", &run, "-o", "again.bundle"]).code(), 0);
    let third = home.second_state("third");
    let again = home.lobster(["bundle", "import", "again.bundle"]).env("LOBSTER_STATE_DIR", &third).run();
    assert_eq!(again.code(), 0, "{again:?}");
    refused(&third);
    assert_eq!(home.lobster(["undo", &run]).run().code(), 0);
    assert_eq!(home.read("tree/a"), "old\n");
}

/// Fails until there is a directory, after it was allowed.
const ALLOWED: &str = "name: asked\nsteps:\n  - { id: make, run: touch out/made }\n";
const ASKS: &str = "
version = 1
[[rule]]
id = \"touchy\"
effect = \"ask\"
program = \"touch\"
grant = { fs_write = [\"@workspace\"] }
ask = { approvers = [\"alice\"], ttl = \"1h\" }
";

const APPROVED: &str =
    "name: asked\nsteps:\n  - { id: ask, approval: Make it? }\n  - { id: make, run: touch out/made }\n";

/// A run that was allowed to make `out/made` elsewhere, and failed at it.
fn answered_elsewhere(workflow: &str, policy: &str) -> Elsewhere {
    let home = Home::new();
    home.write("flow.lobster", workflow).write("p.toml", policy);
    let call = |words: &[&str]| {
        let call = home.lobster(words).env("LOBSTER_APPROVAL_APPROVED_BY", "alice");
        if policy.is_empty() {
            call.run()
        } else {
            call.env("LOBSTER_POLICY", home.dir().join("p.toml")).run()
        }
    };
    let token = call(&["run", "--mode", "tool", "flow.lobster"]).token();
    call(&["resume", "--token", &token, "--approve", "yes"]).error();
    std::fs::create_dir(home.dir().join("out")).unwrap();
    Elsewhere::new(home)
}

#[test]
fn an_answer_that_was_given_elsewhere_is_asked_for_here() {
    for (workflow, policy) in [(ALLOWED, ASKS), (APPROVED, "")] {
        for (takes_over, is_old) in [(false, false), (true, false), (true, true)] {
            let mut elsewhere = answered_elsewhere(workflow, policy);
            let made = elsewhere.home.dir().join("out/made");
            let store = elsewhere.import();
            if is_old {
                // Earlier versions marked only that it is a copy.
                let database = Connection::open(store.state.join("store/lobster.db")).unwrap();
                let gone = database.execute("DELETE FROM run_values WHERE key = ?1", ["\0imported"]).unwrap();
                assert_eq!(gone, 1);
            }
            let call = |words: &[&str]| match policy {
                "" => store.call(words),
                _ => store.under("p.toml", words),
            };
            let refused = call(&["resume", "@"]);
            assert!(refused.error().contains("--take-over"), "{refused:?}");
            if !takes_over {
                // Nor does a fork of it.
                let forked = call(&["fork", "@", "--mode", "tool"]);
                assert!(!made.exists(), "{forked:?}");
                continue;
            }
            let asked = call(&["resume", "@", "--take-over"]);
            assert!(!made.exists(), "{asked:?}");
            let token = asked.token();
            // Nobody goes on by another way, and whoever goes on later is asked as well.
            for words in [
                &["resume", "@"][..],
                &["resume", "@", "--take-over"],
                &["resume", "@", "--retry-interrupted"],
            ] {
                let answer = store.call(words);
                assert!(answer.error().contains("waits for a person"), "{answer:?}");
                assert!(!made.exists(), "{answer:?}");
            }
            let by = |who: &str| {
                let call = store.home.lobster(["resume", "--token", &token, "--approve", "yes"]);
                let call =
                    call.env("LOBSTER_STATE_DIR", &store.state).env("LOBSTER_APPROVAL_APPROVED_BY", who);
                if policy.is_empty() {
                    call.run()
                } else {
                    call.env("LOBSTER_POLICY", store.home.dir().join("p.toml")).run()
                }
            };
            if !policy.is_empty() {
                assert!(by("mallory").error().contains("requires approver 'alice'"));
                assert!(!made.exists());
            }
            by("alice").output();
            assert!(made.exists());
        }
    }
}

#[test]
fn taking_over_under_another_policy_gives_nothing_away() {
    let mut elsewhere = answered_elsewhere(ALLOWED, ASKS);
    elsewhere
        .home
        .write("no.toml", "version = 1\n[[rule]]\nid = \"no\"\neffect = \"deny\"\nprogram = \"touch\"\n");
    let made = elsewhere.home.dir().join("out/made");
    let store = elsewhere.import();
    let denied = store.under("no.toml", &["resume", "@", "--take-over"]);
    assert!(!denied.error().is_empty() && !made.exists(), "{denied:?}");
    // It goes on under the policy that it was taken over under.
    for words in [&["resume", "@"][..], &["resume", "@", "--take-over"], &["fork", "@", "--mode", "tool"]] {
        let answer = store.call(words);
        assert!(answer.code() != 0 && !made.exists(), "{words:?}: {answer:?}");
    }
    let asked = store.under("p.toml", &["resume", "@"]);
    assert!(!made.exists(), "{asked:?}");
}

#[test]
fn what_a_record_from_elsewhere_says_of_the_policy_in_force_does_not_count() {
    // The record claims that it began under the very policy that is in force here, and brings one that allows all.
    let home = Home::new();
    home.write("flow.lobster", ALLOWED).write("all.toml", "version = 1\n[[rule]]\nid = \"t\"\neffect = \"allow\"\nprogram = \"touch\"\ngrant = { fs_write = [\"@workspace\"] }\n");
    home.write("no.toml", "version = 1\n[[rule]]\nid = \"no\"\neffect = \"deny\"\nprogram = \"touch\"\n");
    let all = home.dir().join("all.toml");
    home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_POLICY", &all).run().error();
    std::fs::create_dir(home.dir().join("out")).unwrap();
    let mut elsewhere = Elsewhere::new(home);
    let file = elsewhere.home.dir().join("no.toml");
    let digest = Digest::of_bytes(&std::fs::read(&file).unwrap()).to_string();
    elsewhere.bundle.records[0]["event"]["detail"]["surroundings"]["policies"] =
        json!([{ "path": file.canonicalize().unwrap(), "digest": digest }]);
    let made = elsewhere.home.dir().join("out/made");
    for words in [&["fork", "@", "--mode", "tool"][..], &["resume", "@", "--take-over"], &["resume", "@"]] {
        let store = elsewhere.import();
        if words == ["resume", "@"] {
            store.under("no.toml", &["resume", "@", "--take-over"]);
        }
        let answer = store.under("no.toml", words);
        assert!(answer.code() != 0 && !made.exists(), "{words:?}: {answer:?}");
    }
}

#[test]
fn nothing_is_undone_by_a_damaged_record() {
    let home = Home::new();
    home.write("flow.lobster", STAGED.split("  - { id: no").next().unwrap()).write("tree/a", "old\n");
    home.tool(["flow.lobster"]).output();
    let records = || -> Vec<(i64, String)> {
        let database = Connection::open(home.state().join("store/lobster.db")).unwrap();
        let mut statement = database.prepare("SELECT id, record FROM journal ORDER BY id").unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    };
    let write = |id: i64, text: &str| {
        let database = Connection::open(home.state().join("store/lobster.db")).unwrap();
        database.execute("UPDATE journal SET record = ?2 WHERE id = ?1", params![id, text]).unwrap();
    };
    let sound = records();
    assert!(sound.len() > 5, "{sound:?}");
    for (id, text) in &sound {
        // Another text of the same, and none.
        for damaged in [format!("{text} "), "nothing".to_owned()] {
            write(*id, &damaged);
            for words in UNDOS {
                let answer = home.lobster(words).run();
                assert!(
                    answer.code() != 0 && answer.stderr.contains("damaged at record"),
                    "{words:?}: {answer:?}"
                );
                assert_eq!(home.read("tree/a"), "new\n", "{words:?}");
            }
            let changes = home.lobster(["changes", "@"]).run();
            assert!(changes.stderr.contains("may not be what happened"), "{changes:?}");
            let changes = home.lobster(["changes", "@", "--json"]).run();
            assert!(changes.stdout.contains("\"broken\""), "{changes:?}");
            let audit = home.lobster(["audit"]).run();
            assert!(audit.code() == 1 && audit.stderr.contains("may not be what happened"), "{audit:?}");
        }
        write(*id, text);
    }
    assert_eq!(records(), sound);
    assert_eq!(home.lobster(["undo", "@"]).run().code(), 0);
    assert_eq!(home.read("tree/a"), "old\n");
}

#[test]
fn the_audit_goes_on_behind_a_record_that_cannot_be_read() {
    let home = Home::new();
    for number in 0..3 {
        home.write(
            "flow.lobster",
            format!("name: run-{number}\nsteps:\n  - {{ id: s, run: echo {number} }}\n"),
        );
        home.tool(["flow.lobster"]).output();
    }
    let database = Connection::open(home.state().join("store/lobster.db")).unwrap();
    let broken = "UPDATE journal SET record = 'nothing' WHERE run = 2 AND seq = (SELECT max(seq) FROM journal WHERE run = 2)";
    assert_eq!(database.execute(broken, []).unwrap(), 1);
    for words in [&["audit"][..], &["audit", "--json"], &["audit", "--jsonl"]] {
        let answer = home.lobster(words).run();
        for number in 0..3 {
            assert!(answer.stdout.contains(&format!("run-{number}")), "{words:?}: {answer:?}");
        }
        assert!(
            answer.code() == 1 && answer.stderr.matches("may not be what happened").count() == 1,
            "{answer:?}"
        );
    }
}
