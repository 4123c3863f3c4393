//! Mistakes that first authors make: each is found, with advice that `check` accepts.
//! A case is a folder of `mistakes/` with `mistake.lobster`, `cured.lobster` (the file
//! as the advice has it) and `says.txt` (what `check` prints of the mistake).

use std::fs;
use std::path::{Path, PathBuf};

use crate::home::Home;

fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("mistakes");
    let mut cases: Vec<PathBuf> = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    cases
}

fn text(case: &Path, name: &str) -> String {
    fs::read_to_string(case.join(name)).unwrap_or_default()
}

#[test]
fn each_is_named_and_its_cure_is_accepted() {
    let home = Home::new();
    let mut wrong = Vec::new();
    let cases = cases();
    assert!(cases.len() >= 40, "{}", cases.len());
    for case in &cases {
        let name = case.file_name().unwrap().to_str().unwrap();
        home.write("case.lobster", text(case, "mistake.lobster"));
        let says = home.lobster(["check", "case.lobster"]).run().stdout;
        if says.contains("case.lobster: ok") || says.contains("[E01") || !says.contains("= help: ") {
            wrong.push(format!("{name}: nothing is said, or no way out: {says}"));
        }
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            fs::write(case.join("says.txt"), &says).unwrap();
        } else if says != text(case, "says.txt") {
            wrong.push(format!("{name}: says\n{says}"));
        }
        home.write("case.lobster", text(case, "cured.lobster"));
        let cured = home.lobster(["check", "--strict", "case.lobster"]).run();
        if cured.code() != 0 {
            wrong.push(format!("{name}: the cure is refused: {}", cured.stdout));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What `--fix` writes has fewer findings, never a new one, and is written whole.
#[test]
fn corrections_are_accepted_too() {
    let home = Home::new();
    let count = || {
        let found = home.lobster(["check", "--json", "case.lobster"]).run();
        let found: serde_json::Value = serde_json::from_str(&found.stdout).unwrap();
        let found = found.as_array().unwrap();
        (found.len(), found.iter().filter(|finding| finding.get("fix").is_some()).count())
    };
    let mut corrected = 0;
    for case in cases() {
        home.write("case.lobster", text(&case, "mistake.lobster"));
        let (before, _) = count();
        let fixed = home.lobster(["check", "--fix", "case.lobster"]).run();
        let after = count();
        assert!(after.0 <= before, "{case:?}: {fixed:?}");
        assert_eq!(after.1, 0, "{case:?}: a correction was left: {fixed:?}");
        corrected += before - after.0;
    }
    assert!(corrected >= 15, "{corrected}");
}

/// A run tells of the mistakes by which something else happens than was meant.
#[test]
fn a_run_tells_what_changes_what_happens() {
    let home = Home::new();
    home.write("case.lobster", text(&cases_named("bare-step-as-stdin"), "mistake.lobster"));
    let ran = home.lobster(["run", "case.lobster"]).run();
    assert!(ran.stderr.contains("`$list` stays plain text"), "{ran:?}");
    home.write("case.lobster", text(&cases_named("argument-pasted-into-shell"), "mistake.lobster"));
    let ran = home.lobster(["run", "case.lobster"]).env("LOBSTER_PROGRESS", "off").run();
    assert_eq!(ran.stderr, "", "{ran:?}");
}

fn cases_named(name: &str) -> PathBuf {
    cases().into_iter().find(|case| case.ends_with(name)).unwrap()
}

/// Words that are nothing that runs are answered with what they were meant to be.
#[test]
fn words_of_run_are_answered_with_what_was_meant() {
    let home = Home::new();
    home.write(
        "case.lobster",
        "name: case\nargs: {who: {default: bob}}\nsteps:\n  - {id: a, run: echo hi}\n",
    );
    for (words, hint) in [
        (
            &["run", "case.lobster", "--args", "who=x"][..],
            "run has no option --args; arguments are given with --arg",
        ),
        (&["run", "case.lobster", "--dryrun"], "run has no option --dryrun; did you mean --dry-run?"),
        (&["run", "case.lobster", "who=x"], "write --arg 'who=x'"),
        (&["case.lobster", "now"], "run takes one workflow file, and \"now\" follows case.lobster"),
        (&["run", "case.lobster", "--arg", "wo=x"], "case.lobster has no argument `wo`; did you mean `who`?"),
        (&["run", "."], ". is a directory; name a workflow file, such as case.lobster"),
        (&["shwo"], "did you mean `lobster show`?"),
        (&["rnu", "case.lobster"], "did you mean `lobster run`?"),
    ] {
        let said = home.lobster(words).run();
        assert!(said.code() != 0 && said.stderr.contains(hint), "{words:?}: {said:?}");
        assert_eq!(said.stdout, "", "{words:?}");
    }
    // A program that calls gets its envelope.
    let said = home.lobster(["run", "--mode", "tool", "case.lobster", "--arg", "wo=x"]).run();
    let envelope: serde_json::Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!((said.code(), &envelope["error"]["type"]), (2, &"parse_error".into()));
}
