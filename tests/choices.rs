//! A person agrees to a part of what a step changed, and goes on from what somebody else has changed meanwhile.

use std::fs;

use serde_json::{Value, json};

use crate::home::{Answer, Home};
use crate::staged::tree;

fn home(flow: &str) -> Home {
    let home = Home::new();
    home.write("flow.lobster", flow);
    home.write("tree/src/a", "1\n2\n3\n4\n").write("tree/src/b", "b\n").write("tree/notes", "n\n");
    home
}

const REVIEWED: &str = "steps:
  - {id: edit, cwd: tree, changes: review, run: 'sed -i s/1/one/ src/a; echo more >> src/b; rm notes; mkdir new; echo x > new/x'}
";

fn gate_of(asked: &Answer) -> String {
    asked.envelope()["requiresApproval"]["approvalId"].as_str().unwrap().to_owned()
}

fn committed(home: &Home) -> Vec<String> {
    let shown = home.lobster(["changes", "@", "--json"]).run();
    assert_eq!(shown.code(), 0, "{shown:#?}");
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    let parts = shown.as_array().unwrap().iter().filter(|part| part["committed"] == true);
    let paths = parts.flat_map(|part| part["changes"].as_array().unwrap());
    paths.map(|change| change["path"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_part_is_approved_committed_shown_and_undone() {
    let home = home(REVIEWED);
    let before = tree(&home.dir().join("tree"));
    let asked = home.tool(["flow.lobster"]);
    let gate = gate_of(&asked);
    let wrong = home.lobster(["approvals", "approve", &gate, "--only", "tree/other"]).run();
    assert!(wrong.error().contains("tree/other"), "{wrong:#?}");
    let done =
        home.lobster(["approvals", "approve", &gate, "--only", "tree/src/a", "--only", "tree/new/x"]).run();
    assert_eq!(done.envelope()["status"], "ok", "{done:#?}");
    // The new directory is part of it, or the file could not be there.
    assert!(done.stderr.contains("approving 3 of 5 changes as change set"), "{done:#?}");
    assert_eq!(
        (home.read("tree/src/a"), home.read("tree/src/b")),
        ("one\n2\n3\n4\n".to_owned(), "b\n".to_owned())
    );
    assert_eq!((home.read("tree/new/x"), home.read("tree/notes")), ("x\n".to_owned(), "n\n".to_owned()));
    assert_eq!(committed(&home), ["new", "new/x", "src/a"]);
    let shown = home.lobster(["show", "@", "--full"]).run();
    assert!(shown.stdout.contains("approved in part"), "{shown:#?}");
    assert_eq!(home.lobster(["replay", "@"]).run().code(), 0);
    assert_eq!(home.lobster(["undo", "@"]).run().code(), 0);
    assert_eq!(tree(&home.dir().join("tree")), before);
}

#[test]
fn a_part_of_what_several_steps_changed_is_approved() {
    let home = home(
        "steps:
  - {id: one, cwd: tree, changes: review, run: 'echo 1 > p; echo 1 > q'}
  - {id: two, cwd: tree, changes: review, run: 'echo 2 >> p'}
  - {id: go, approval: 'All right?'}
",
    );
    let asked = home.tool(["flow.lobster"]);
    let done = home.lobster(["approvals", "approve", &gate_of(&asked), "--only", "tree/p"]).run();
    assert_eq!(done.envelope()["status"], "ok", "{done:#?}");
    assert_eq!(home.read("tree/p"), "1\n2\n");
    assert!(!home.dir().join("tree/q").exists());
    assert_eq!(home.lobster(["undo", "@"]).run().code(), 0);
    assert!(!home.dir().join("tree/p").exists());
}

#[test]
fn a_question_without_changes_has_no_part() {
    let home = home("steps:\n  - {id: go, approval: 'All right?'}\n");
    let asked = home.tool(["flow.lobster"]);
    let error = home.lobster(["approvals", "approve", &gate_of(&asked), "--only", "tree"]).run().error();
    assert!(error.contains("no changes to files"), "{error}");
    // It is open still.
    assert_eq!(home.lobster(["approvals", "approve", &gate_of(&asked)]).run().code(), 0);
}

/// A step that fails by a conflict in two lines of one file, of which somebody changed another one.
fn conflicting(mode: &str) -> (Home, Answer) {
    let home = home(&format!(
        "steps:\n  - {{id: edit, cwd: tree, changes: {mode}, run: 'sed -i s/1/one/ src/a; echo more >> src/b'}}\n  - {{id: after, run: cat tree/src/a}}\n"
    ));
    let asked = home.tool(["flow.lobster"]);
    home.write("tree/src/a", "1\n2\n3\nfour\n");
    let failed = home.lobster(["approvals", "approve", &gate_of(&asked)]).run();
    let error = failed.error();
    assert!(error.contains("src/a") && error.contains("--conflicts merge"), "{error}");
    assert_eq!(
        (home.read("tree/src/a"), home.read("tree/src/b")),
        ("1\n2\n3\nfour\n".to_owned(), "b\n".to_owned())
    );
    (home, failed)
}

#[test]
fn a_conflict_is_merged_overwritten_or_kept_and_asked_about_again() {
    for (how, expected) in
        [("merge", "one\n2\n3\nfour\n"), ("overwrite", "one\n2\n3\n4\n"), ("keep", "1\n2\n3\nfour\n")]
    {
        let (home, _) = conflicting("review");
        let asked = home.lobster(["resume", "@", "--conflicts", how]).run();
        let envelope = asked.envelope();
        assert_eq!(envelope["status"], "needs_approval", "{how}: {asked:#?}");
        let preview = envelope["requiresApproval"]["preview"].as_str().unwrap().to_owned();
        assert_eq!(preview.contains("four"), how != "keep", "{how}: {preview}");
        let done = home.lobster(["approvals", "approve", &gate_of(&asked)]).run();
        assert_eq!(done.output(), json!([expected]), "{how}: {done:#?}");
        assert_eq!(
            (home.read("tree/src/a"), home.read("tree/src/b")),
            (expected.to_owned(), "b\nmore\n".to_owned())
        );
        assert_eq!(home.lobster(["replay", "@"]).run().code(), 0, "{how}");
        assert_eq!(home.lobster(["undo", "@"]).run().code(), 0, "{how}");
        assert_eq!(home.read("tree/src/a"), "1\n2\n3\nfour\n", "{how}");
    }
}

#[test]
fn a_text_that_both_changed_in_one_line_is_not_merged() {
    let (home, _) = conflicting("review");
    home.write("tree/src/a", "uno\n2\n3\n4\n");
    let error = home.lobster(["resume", "@", "--conflicts", "merge"]).run().error();
    assert!(error.contains("line 1") && error.contains("src/a"), "{error}");
    assert_eq!(home.read("tree/src/b"), "b\n");
    // Another way out is still there.
    let asked = home.lobster(["resume", "@", "--conflicts", "keep"]).run();
    assert_eq!(home.lobster(["approvals", "approve", &gate_of(&asked)]).run().code(), 0);
    assert_eq!(
        (home.read("tree/src/a"), home.read("tree/src/b")),
        ("uno\n2\n3\n4\n".to_owned(), "b\nmore\n".to_owned())
    );
    let error = home.lobster(["resume", "@", "--conflicts", "keep"]).run().error();
    assert!(error.contains("has succeeded"), "{error}");
}

#[test]
fn an_undo_goes_on_from_what_was_edited_since() {
    for (how, expected) in [
        (&["--conflicts", "merge"][..], ["1\n2\n3\nfour\n", "b\n"]),
        (&["--conflicts", "keep"], ["one\n2\n3\nfour\n", "b\n"]),
        (&["--conflicts", "overwrite"], ["1\n2\n3\n4\n", "b\n"]),
        (&["--only", "tree/src/b"], ["one\n2\n3\nfour\n", "b\n"]),
    ] {
        let home = home(&REVIEWED.replace("review", "staged"));
        assert_eq!(home.tool(["flow.lobster"]).code(), 0);
        home.write("tree/src/a", "one\n2\n3\nfour\n");
        let refused = home.lobster(["undo", "@"]).run();
        assert!(refused.code() != 0 && refused.stderr.contains("src/a"), "{refused:#?}");
        let undone = home.lobster(["undo", "@"].iter().chain(how)).run();
        assert_eq!(undone.code(), 0, "{how:?}: {undone:#?}");
        assert_eq!(["tree/src/a", "tree/src/b"].map(|name| home.read(name)), expected, "{how:?}");
        assert_eq!(fs::exists(home.dir().join("tree/new")).unwrap(), how[0] == "--only");
        assert_eq!(home.lobster(["undo", "@"]).run().code(), 0, "{how:?}");
        assert_eq!(home.read("tree/src/a"), "one\n2\n3\nfour\n", "{how:?}");
    }
}

#[test]
fn a_fork_commits_again_what_was_undone() {
    let home = home(
        "steps:
  - {id: one, cwd: tree, changes: staged, run: 'echo 1 > p; echo done'}
  - {id: two, run: 'cat tree/p 2>/dev/null; echo $LOBSTER_ARG_X'}
args: {x: {default: a}}
",
    );
    assert_eq!(home.tool(["flow.lobster"]).code(), 0);
    let run = home.lobster(["runs", "--json"]).run();
    let run = serde_json::from_str::<Value>(&run.stdout).unwrap()[0]["id"].as_str().unwrap().to_owned();
    for is_undone in [false, true] {
        if is_undone {
            assert_eq!(home.lobster(["undo", &run]).run().code(), 0);
            assert!(!home.dir().join("tree/p").exists());
        }
        let forked = home.lobster(["fork", &run, "--set", "args.x=b"]).run();
        assert_eq!(forked.output(), json!(["1\nb\n"]), "{forked:#?}");
        assert_eq!(home.read("tree/p"), "1\n");
    }
}
