//! Changes of consecutive steps wait together: each step finds those before it, one question shows what all
//! of them come to, and a preview commits none. Branches that touch one file commit nothing.

use std::fs;

use serde_json::{Value, json};

use crate::home::{Answer, Home};
use crate::staged::tree;

const STEPS: &str = "steps:
  - {id: one, cwd: tree, changes: review, run: 'echo two >> a; rm gone; mkdir -p new/deep; echo n > new/deep/n; rm -r d; ln -s a l'}
  - {id: two, cwd: tree, changes: review, run: 'cat a; ls; echo three >> a; echo more >> new/deep/n; rm l; mkdir d; echo z > d/z'}
  - {id: three, cwd: other, changes: review, run: 'cat ../tree/a ../tree/d/z; ls ../tree; echo p > o2'}
  - {id: four, run: 'cat tree/a; ls tree'}
";

fn home(flow: &str) -> Home {
    let home = Home::new();
    home.write("flow.lobster", flow);
    home.write("tree/a", "one\n")
        .write("tree/gone", "x\n")
        .write("tree/d/f", "in d\n")
        .write("other/o", "o\n");
    home
}

fn say(home: &Home, asked: &Answer, answer: &str) -> Answer {
    home.lobster(["resume", "--token", &asked.token(), "--approve", answer]).run()
}

fn output_of(home: &Home, step: &str) -> String {
    let logs = home.lobster(["logs", "@", step]).run();
    assert_eq!(logs.code(), 0, "{logs:#?}");
    logs.stdout
}

#[test]
fn each_step_finds_the_changes_before_it_and_one_question_shows_what_they_come_to() {
    let home = home(STEPS);
    let before = tree(&home.dir());
    let asked = home.tool(["flow.lobster"]);
    let request = asked.envelope()["requiresApproval"].clone();
    assert_eq!(request["prompt"], "Commit the changes of steps one, two, three to 8 paths?");
    assert!(request["preview"].as_str().unwrap().contains(" one\n+two\n+three\n"), "{request:#}");
    assert_eq!(tree(&home.dir()), before);
    assert!(output_of(&home, "two").contains("one\ntwo\na\nl\nnew\n"));
    assert!(output_of(&home, "three").contains("one\ntwo\nthree\nz\na\nd\nnew\n"));

    let done = say(&home, &asked, "yes");
    assert_eq!(done.output(), json!(["one\ntwo\nthree\na\nd\nnew\n"]));
    let shown: Value = serde_json::from_str(&home.lobster(["changes", "@", "--json"]).run().stdout).unwrap();
    let steps: Vec<_> =
        shown.as_array().unwrap().iter().map(|part| (&part["step"], &part["committed"])).collect();
    assert_eq!(
        steps,
        [(&json!("one"), &json!(true)), (&json!("two"), &json!(true)), (&json!("three"), &json!(true))]
    );
    assert_eq!(home.lobster(["replay", "@"]).run().code(), 0);
    assert_eq!(home.lobster(["undo", "@"]).run().code(), 0);
    assert_eq!(tree(&home.dir()), before);
}

#[test]
fn a_no_drops_all_of_it_and_so_does_a_preview_that_does_every_step() {
    let said_no = home(STEPS);
    let before = tree(&said_no.dir());
    let asked = said_no.tool(["flow.lobster"]);
    assert_eq!(say(&said_no, &asked, "no").envelope()["status"], "cancelled");
    assert_eq!(tree(&said_no.dir()), before);

    let seen = home(STEPS);
    let previewed = seen.lobster(["run", "--mode", "tool", "--preview", "flow.lobster"]).run();
    assert_eq!(previewed.output(), json!(["one\ntwo\nthree\na\nd\nnew\n"]), "{previewed:#?}");
    assert_eq!(tree(&seen.dir()), before);
    assert!(previewed.stderr.contains("Preview: 8 changes to files, and none was made"), "{previewed:#?}");
    let patch = seen.lobster(["changes", "@", "--patch"]).run();
    assert!(patch.stdout.contains("+three\n") && patch.stdout.contains("not committed"), "{patch:#?}");
    let undo = seen.lobster(["undo", "@"]).run();
    assert!(undo.code() != 0 && undo.stderr.contains("committed no changes"), "{undo:#?}");
}

#[test]
fn an_approval_that_follows_shows_the_difference_and_commits_it() {
    let steps = "steps:
  - {id: one, cwd: tree, changes: review, run: 'echo two >> a'}
  - {id: go, approval: 'Ship it?'}
  - {id: after, run: cat tree/a}
";
    let home = home(steps);
    let asked = home.tool(["flow.lobster"]);
    let request = asked.envelope()["requiresApproval"].clone();
    assert_eq!(request["prompt"], "Ship it?");
    assert!(request["preview"].as_str().unwrap().contains("+two\n"), "{request:#}");
    assert!(request["items"][0]["changes"].is_string(), "{request:#}");
    assert_eq!(home.read("tree/a"), "one\n");
    assert_eq!(say(&home, &asked, "yes").output(), json!(["one\ntwo\n"]));
    assert_eq!(home.read("tree/a"), "one\ntwo\n");
}

#[test]
fn a_step_in_a_directory_that_an_earlier_one_makes_is_asked_about_before_and_ends_a_preview() {
    let steps = "steps:
  - {id: one, changes: review, run: 'mkdir -p made/in && echo 1 > made/in/f'}
  - {id: two, cwd: made/in, changes: review, run: 'cat f; echo 2 > f'}
";
    let made = home(steps);
    let first = made.tool(["flow.lobster"]);
    assert!(first.stdout.contains("step one"), "{first:#?}");
    let second = say(&made, &first, "yes");
    assert!(second.stdout.contains("step two"), "{second:#?}");
    assert_eq!(say(&made, &second, "yes").output(), json!([1]));
    assert_eq!(made.read("made/in/f"), "2\n");

    let seen = home(steps);
    let error = seen.lobster(["run", "--mode", "tool", "--preview", "flow.lobster"]).run().error();
    assert!(error.contains("the preview ends here") && error.contains("made/in"), "{error}");
    assert!(!seen.dir().join("made").exists());
}

#[test]
fn branches_that_change_one_file_commit_nothing_and_others_are_committed_together() {
    let flow = |one: &str, two: &str| {
        format!(
            "steps:\n  - id: both\n    parallel:\n      branches:\n        \
             - {{id: one, cwd: tree, changes: staged, run: '{one}'}}\n        \
             - {{id: two, cwd: tree, changes: staged, run: '{two}'}}\n"
        )
    };
    for (one, two, file) in [
        ("echo 1 >> a; echo 1 > x", "echo 2 >> a; echo 2 > y", "tree/a"),
        ("rm -r d; echo 1 > x", "echo new > d/new", "tree/d/new"),
    ] {
        let home = home(&flow(one, two));
        let before = tree(&home.dir().join("tree"));
        let error = home.tool(["flow.lobster"]).error();
        assert!(error.contains("both changed") && error.contains(file), "{error}");
        assert!(error.contains("one") && error.contains("two"), "{error}");
        assert_eq!(tree(&home.dir().join("tree")), before);
    }
    let home = home(&flow("echo 1 >> a; mkdir -p n; echo 1 > n/1", "rm gone; mkdir -p n; echo 2 > n/2"));
    let before = tree(&home.dir().join("tree"));
    assert_eq!(home.tool(["flow.lobster"]).code(), 0);
    assert_eq!((home.read("tree/a"), home.read("tree/n/2")), ("one\n1\n".to_owned(), "2\n".to_owned()));
    assert!(!home.dir().join("tree/gone").exists() && home.dir().join("tree/n/1").exists());
    assert_eq!(home.lobster(["undo", "@"]).run().code(), 0);
    assert_eq!(tree(&home.dir().join("tree")), before);
}

/// The model: a random program cut into steps that are reviewed together is the same program done at once.
#[test]
fn steps_that_wait_together_come_to_what_they_do_directly() {
    for (seed, plant, program) in crate::staged_model::programs(12) {
        // Whether a later step parts two names of one file, a layer cannot tell.
        let lines: Vec<&str> = program.lines().filter(|line| !line.contains("( ln '")).collect();
        let steps: String = (0..)
            .zip(lines.chunks(lines.len().div_ceil(3)))
            .map(|(number, part)| {
                let script = part.join("\n").replace('\n', "\n      ");
                format!("  - id: s{number}\n    cwd: tree\n    run: |\n      umask 022\n      {script}\n      true\n")
            })
            .collect();
        let [reviewed, direct] = ["review", "direct"].map(|mode| {
            let home = Home::new();
            let dir = home.dir().join("tree");
            fs::create_dir(&dir).unwrap();
            plant(&dir);
            home.write("flow.lobster", format!("changes: {mode}\nsteps:\n{steps}"));
            home
        });
        let before = tree(&reviewed.dir());
        assert_eq!(reviewed.lobster(["run", "--preview", "flow.lobster"]).run().code(), 0, "seed {seed}");
        assert_eq!(tree(&reviewed.dir()), before, "seed {seed}, previewed:\n{program}");
        direct.tool(["flow.lobster"]).output();
        let asked = reviewed.tool(["flow.lobster"]);
        if asked.envelope()["status"] == "needs_approval" {
            let done = say(&reviewed, &asked, "yes");
            assert_eq!(done.envelope()["status"], "ok", "seed {seed}:\n{program}\n{done:#?}");
        }
        let trees = [&reviewed, &direct].map(|home| tree(&home.dir().join("tree")));
        assert_eq!(trees[0], trees[1], "seed {seed}:\n{program}");
    }
}

#[test]
fn a_cached_step_costs_a_commit_where_its_files_are_as_they_were_and_is_done_anew_elsewhere() {
    let home = home(
        "steps:\n  - {id: fix, cwd: tree, changes: staged, cache: true, run: 'sed -i s/one/1/ a; echo done'}\n",
    );
    let before = tree(&home.dir().join("tree"));
    let is_cached = || {
        let shown = home.lobster(["show", "@", "--json"]).run();
        assert_eq!(shown.code(), 0, "{shown:#?}");
        shown.stdout.contains("\"cached\": true")
    };
    assert_eq!(home.tool(["flow.lobster"]).code(), 0);
    assert!(!is_cached());
    assert_eq!(home.lobster(["undo", "@"]).run().code(), 0);
    assert_eq!(tree(&home.dir().join("tree")), before);
    assert_eq!(home.tool(["flow.lobster"]).output(), json!(["done\n"]));
    assert!(is_cached());
    assert_eq!(home.read("tree/a"), "1\n");
    home.write("tree/a", "one more\n");
    assert_eq!(home.tool(["flow.lobster"]).code(), 0);
    assert!(!is_cached());
    assert_eq!(home.read("tree/a"), "1 more\n");
}
