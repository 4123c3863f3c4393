//! Directories that no layer can lie over, or that are not there any more when a commit comes; and undos of what
//! cannot be undone. One clear error with its code each, and nothing is lost.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::home::{Answer, Home};
use crate::staged::tree;
use crate::unusable_disks::{in_a_namespace, text};

const STAGED: &str = "steps:\n  - { id: s, cwd: tree, changes: staged, run: 'echo new > a; echo b > b' }\n";
const REVIEWED: &str = "steps:\n  - { id: s, cwd: tree, changes: review, run: 'echo new > a; echo b > b' }\n";

fn home(flow: &str) -> Home {
    let home = Home::new();
    home.write("flow.lobster", flow).write("tree/a", "old\n");
    home
}

fn gate_of(asked: &Answer) -> String {
    asked.envelope()["requiresApproval"]["approvalId"].as_str().unwrap().to_owned()
}

/// The code of the last run's failure, and a part of what is said.
fn assert_fails(home: &Home, answer: &Answer, code: &str, said: &str, what: &str) {
    let envelope = answer.envelope();
    let events = home.lobster(["show", "@", "--json"]).run();
    assert!(events.stdout.contains(&format!("\"code\": \"{code}\"")), "{what}: {events:#?}");
    let message = envelope["error"]["message"].as_str().unwrap();
    assert!(message.contains(said), "{what}: {answer:#?}");
    assert_eq!(answer.stderr.matches("panicked").count(), 0, "{what}: {answer:#?}");
}

/// What becomes of the directory while a person thinks about the question.
type Accident = fn(&Home);

#[test]
fn a_directory_that_is_replaced_before_the_commit_is_named_and_nothing_is_lost() {
    let accidents: [(&str, Accident, &str, &str); 5] = [
        (
            "vanished",
            |home| fs::rename(home.dir().join("tree"), home.dir().join("kept")).unwrap(),
            "changes",
            "tree",
        ),
        (
            "a link",
            |home| {
                fs::rename(home.dir().join("tree"), home.dir().join("kept")).unwrap();
                symlink("kept", home.dir().join("tree")).unwrap();
            },
            "changes",
            "tree",
        ),
        (
            "a file",
            |home| {
                fs::rename(home.dir().join("tree"), home.dir().join("kept")).unwrap();
                home.write("tree", "a file\n");
            },
            "changes",
            "tree",
        ),
        (
            "an empty directory",
            |home| {
                fs::rename(home.dir().join("tree"), home.dir().join("kept")).unwrap();
                fs::create_dir(home.dir().join("tree")).unwrap();
            },
            "changes_conflict",
            "a in ",
        ),
        (
            "edited",
            |home| fs::write(home.dir().join("tree/a"), "theirs\n").unwrap(),
            "changes_conflict",
            "a in ",
        ),
    ];
    for (what, accident, code, said) in accidents {
        let home = home(REVIEWED);
        let asked = home.tool(["flow.lobster"]);
        accident(&home);
        let before = tree(&home.dir());
        let answered = home.lobster(["approvals", "approve", &gate_of(&asked)]).run();
        assert_fails(&home, &answered, code, said, what);
        assert_eq!(tree(&home.dir()), before, "{what}");
        // It can be mended: the changes are still in the record.
        let _ = fs::remove_file(home.dir().join("tree"));
        let _ = fs::remove_dir_all(home.dir().join("tree"));
        if home.dir().join("kept").exists() {
            fs::rename(home.dir().join("kept"), home.dir().join("tree")).unwrap();
        } else {
            home.write("tree/a", "old\n");
        }
        let resumed = home.lobster(["resume", "@"]).run();
        let done = match resumed.envelope()["status"].as_str() {
            Some("needs_approval") => home.lobster(["approvals", "approve", &gate_of(&resumed)]).run(),
            _ => resumed,
        };
        assert_eq!(done.envelope()["status"], "ok", "{what}: {done:#?}");
        assert_eq!((home.read("tree/a"), home.read("tree/b")), ("new\n".into(), "b\n".into()), "{what}");
    }
}

/// A working directory that is a link means the directory that it leads to.
#[test]
fn a_working_directory_that_is_a_link_is_the_one_it_leads_to() {
    let home = home(STAGED);
    fs::rename(home.dir().join("tree"), home.dir().join("real")).unwrap();
    symlink("real", home.dir().join("tree")).unwrap();
    let done = home.tool(["flow.lobster"]);
    assert_eq!(done.envelope()["status"], "ok", "{done:#?}");
    assert_eq!(home.read("real/a"), "new\n");
    assert!(home.dir().join("tree").is_symlink());
    assert_eq!(home.lobster(["undo", "@"]).run().code(), 0);
    assert_eq!(home.read("real/a"), "old\n");
}

#[test]
fn a_working_directory_that_is_not_there_runs_nothing() {
    let home = Home::new();
    home.write("flow.lobster", STAGED);
    let failed = home.tool(["flow.lobster"]);
    assert_fails(&home, &failed, "changes", "tree", "not there");
    home.write("tree", "a file\n");
    let failed = home.tool(["flow.lobster"]);
    assert!(failed.code() != 0, "{failed:#?}");
    assert_eq!(home.read("tree"), "a file\n");
}

/// What only mounts can bring about: each says what is wrong, and the tree is as it was.
#[test]
fn other_read_only_and_full_file_systems_are_told_or_worked_on() {
    // Another file system than that of the store: contents are laid ready on it.
    let other = "mount -t tmpfs -o size=20m tmpfs tree || exit 99; echo old > tree/a
        \"$L\" run --mode tool flow.lobster >/dev/null; echo \"exit $?\"; cat tree/a tree/b
        \"$L\" undo @ >/dev/null; echo \"undo $?\"; cat tree/a; ls -A tree";
    let home1 = home(STAGED);
    let Some(output) = in_a_namespace(&home1, other) else { return };
    assert!(text(&output).contains("exit 0\nnew\nb\nundo 0\nold\na\n"), "{}", text(&output));

    // A read-only one: the step sees it, its changes are refused, nothing changes.
    let read_only = "mount --bind tree tree && mount -o remount,bind,ro tree || exit 99
        \"$L\" run --mode tool flow.lobster; echo \"exit $?\"; cat tree/a; ls -A tree";
    let home2 = home(STAGED);
    if let Some(output) = in_a_namespace(&home2, read_only) {
        let said = text(&output);
        assert!(said.contains("exit 1\nold\na\n"), "{said}");
        assert!(said.to_lowercase().contains("read-only"), "{said}");
    }

    // Something mounted inside would be hidden.
    let inside = "mkdir tree/m && mount -t tmpfs tmpfs tree/m && echo x > tree/m/x || exit 99
        \"$L\" run --mode tool flow.lobster; echo \"exit $?\"; cat tree/a tree/m/x";
    let home3 = home(STAGED);
    if let Some(output) = in_a_namespace(&home3, inside) {
        let said = text(&output);
        assert!(
            said.contains("exit 1\nold\nx\n") && said.contains("another file system is mounted at"),
            "{said}"
        );
    }

    // No room for the layer: the step is told, and the tree is as it was.
    let full = "mount -t tmpfs -o size=6m tmpfs \"$STATE\" || exit 99
        \"$L\" run --mode tool big.lobster; echo \"exit $?\"; cat tree/a; ls -A tree
        mount -o remount,size=80m \"$STATE\"
        \"$L\" run --mode tool flow.lobster >/dev/null; echo \"exit $?\"; cat tree/a";
    let home4 = home(STAGED);
    home4.write(
        "big.lobster",
        "steps:\n  - { id: s, cwd: tree, changes: staged, run: 'echo new > a; head -c 30000000 /dev/zero > big' }\n",
    );
    if let Some(output) = in_a_namespace(&home4, full) {
        let said = text(&output);
        assert!(said.contains("exit 1\nold\na\n"), "{said}");
        assert!(said.to_lowercase().contains("no space left"), "{said}");
        assert!(said.ends_with("exit 0\nnew\n") || said.contains("exit 0\nnew\n"), "{said}");
    }

    // No room for the commit on the disk of the tree: all of it or nothing.
    let full_tree = "mount -t tmpfs -o size=1m tmpfs tree || exit 99; echo old > tree/a
        \"$L\" run --mode tool big.lobster; echo \"exit $?\"; cat tree/a; ls -A tree";
    let home5 = home(STAGED);
    home5.write(
        "big.lobster",
        "steps:\n  - { id: s, cwd: tree, changes: staged, run: 'echo new > a; head -c 3000000 /dev/urandom > big' }\n",
    );
    if let Some(output) = in_a_namespace(&home5, full_tree) {
        let said = text(&output);
        assert!(said.contains("exit 1\nold\na\n"), "{said}");
        assert!(said.to_lowercase().contains("no space left"), "{said}");
    }
    for home in [home1, home2, home3, home4, home5] {
        assert_eq!(home.read("tree/a").lines().count(), 1);
    }
}

#[test]
fn an_undo_of_what_cannot_be_undone_says_why() {
    let home = home(STAGED);
    let unknown = home.lobster(["undo", "ffffffff"]).run();
    assert!(unknown.code() != 0 && unknown.stderr.contains("no run"), "{unknown:#?}");
    let nothing = home.lobster(["undo", "@"]).run();
    assert!(nothing.code() != 0 && nothing.stderr.contains("no run is recorded"), "{nothing:#?}");
    assert_eq!(home.tool(["flow.lobster"]).code(), 0);
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let run = runs[0]["id"].as_str().unwrap().to_owned();
    let step = home.lobster(["undo", &run, "--step", "other"]).run();
    assert!(step.code() != 0 && step.stderr.contains("step other of run"), "{step:#?}");
    let only = home.lobster(["undo", &run, "--only", "elsewhere"]).run();
    assert!(only.code() != 0 && only.stderr.contains("elsewhere"), "{only:#?}");
    assert_eq!(home.lobster(["undo", &run]).run().code(), 0);
    let again = home.lobster(["undo", &run]).run();
    assert!(again.code() != 0 && again.stderr.contains("is undone already"), "{again:#?}");
    assert_eq!((home.read("tree/a"), home.read("tree/b")), ("old\n".to_owned(), String::new()));
    // Once the record is collected there is nothing to undo by.
    assert_eq!(home.tool(["flow.lobster"]).code(), 0);
    let collected = home.lobster(["store", "gc", "--keep", "0"]).run();
    assert_eq!(collected.code(), 0, "{collected:#?}");
    let before = tree(&home.dir().join("tree"));
    let gone = home.lobster(["undo", &run]).run();
    assert!(gone.code() != 0 && gone.stderr.contains("no run"), "{gone:#?}");
    assert_eq!(tree(&home.dir().join("tree")), before);
}
