//! A failed run says which step failed and where it stands, its last words, and
//! the next command; each of these commands works.

use crate::home::{Answer, Home};

fn failing(file: &str) -> (Home, Answer) {
    let home = Home::new();
    home.write("flow.lobster", file);
    let ran = home.lobster(["run", "flow.lobster"]).run();
    assert_eq!((ran.code(), ran.stdout.as_str()), (1, ""), "{ran:?}");
    (home, ran)
}

/// The words of the command that begins so.
fn command(ran: &Answer, begins: &str) -> Vec<String> {
    let line = ran.stderr.lines().find(|line| line.trim_start().starts_with(begins));
    let line = line.unwrap_or_else(|| panic!("no {begins}: {}", ran.stderr));
    let words = line.trim().split("  ").next().unwrap_or_default().split(' ').skip(1);
    words.map(|word| word.trim_matches('\'').to_owned()).collect()
}

#[test]
fn the_step_its_place_and_the_next_commands_are_told() {
    let (home, ran) = failing(
        "name: f\nsteps:\n  - {id: first, run: echo ok}\n  - id: second\n    run: |\n      seq 20 >&2\n      exit 3\n",
    );
    assert!(ran.stderr.contains("\n  step second, flow.lobster:4\n"), "{ran:?}");
    let logs = home.lobster(command(&ran, "lobster logs")).run();
    assert!(logs.code() == 0 && logs.stdout.contains("20"), "{logs:?}");
    home.write("flow.lobster", "name: other\nsteps: [{id: second, run: echo ok}]\n");
    // The place is not told of a file that is another one by now, and the plan is the recorded one.
    let again = home.lobster(command(&ran, "lobster resume")).run();
    assert!(
        again.stderr.contains("workflow command failed (3)") || again.stdout.contains("(3)"),
        "{again:?}"
    );
    assert!(!again.stderr.contains("flow.lobster:"), "{again:?}");
}

#[test]
fn a_step_in_a_loop_is_named_with_its_round_and_a_code_is_explained() {
    let (home, ran) = failing(
        "name: g\nsteps:\n  - {id: list, run: \"echo '[1,2]'\"}\n  - id: each\n    for_each: $list.json\n    steps:\n      - id: slow\n        run: sleep 9\n        timeout_ms: 200\n",
    );
    assert!(ran.stderr.contains("\n  step each[0]/slow, flow.lobster:7\n"), "{ran:?}");
    let help = home.lobster(command(&ran, "lobster help")).run();
    assert!(help.code() == 0 && help.stdout.starts_with("timeout — "), "{help:?}");
}

/// A run that failed after a commit can be taken back by what it says; one that changed nothing offers nothing.
#[test]
fn what_was_committed_before_the_failure_can_be_taken_back() {
    let (_home, ran) =
        failing("name: u\nsteps:\n  - {id: no, run: 'echo new >file && exit 1', changes: staged}\n");
    assert!(!ran.stderr.contains("lobster undo"), "{ran:?}");
    let (home, ran) = failing(
        "name: v\nchanges: staged\nsteps:\n  - {id: write, run: echo new >file}\n  - {id: stop, run: exit 1}\n",
    );
    assert_eq!(home.read("file"), "new\n");
    let undone = home.lobster(command(&ran, "lobster undo")).run();
    assert_eq!(undone.code(), 0, "{undone:?}");
    assert!(!home.dir().join("file").exists());
}

/// A terminal is not commanded by what a step wrote.
#[test]
fn last_words_are_harmless() {
    let (_home, ran) =
        failing("name: h\nsteps:\n  - id: rude\n    js: 'throw new Error(\"\\u001b[2J\\u202eevil\")'\n");
    assert!(!ran.stderr.contains(['\u{1b}', '\u{202e}']), "{:?}", ran.stderr);
    assert!(ran.stderr.contains("step rude, flow.lobster:3"), "{ran:?}");
}
