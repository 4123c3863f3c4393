//! An approval of a command covers the trees that it can read: whatever changes there after the question stops it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::approved_files::{POLICY, approve, ask, call, files, not_covered, workflow};
use crate::home::Home;

/// What the last run's record says of the approval.
fn enforced(home: &Home) -> Value {
    let shown = home.lobster(["show", "@", "--full"]).run().stdout;
    let enforced = shown.lines().find_map(|line| line.trim_start().strip_prefix("enforced "));
    serde_json::from_str(enforced.unwrap_or("null")).unwrap()
}

fn is_held(enforced: &Value) -> bool {
    enforced["held"].to_string().contains("approved-files")
}

/// Between the question and the approval somebody changes what the command would run, however it finds it.
#[test]
fn whatever_is_swapped_after_the_question_does_not_run() {
    let cases: Vec<Value> = include_str!("policy/swaps.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let home = Home::new();
        let mut wrong = Vec::new();
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let id = case["id"].as_str().unwrap();
            let dir = format!("{id}/w");
            workflow(&home, &dir, case["command"].as_str().unwrap());
            let here = home.dir().join(&dir);
            let write = |files: &Value| {
                for (name, text) in files.as_object().unwrap() {
                    home.write(&format!("{dir}/{name}"), text.as_str().unwrap());
                    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
                    std::fs::set_permissions(here.join(name), mode).unwrap();
                }
            };
            let shell = |script: &Value| {
                let Some(script) = script.as_str() else { return };
                let done = std::process::Command::new("sh").args(["-c", script]).current_dir(&here).output();
                let done = done.unwrap();
                assert!(done.status.success(), "{id}: {done:?}");
            };
            write(&case["before"]);
            shell(&case["prepare"]);
            let asked = call(&home, &dir, &["run", "--mode", "tool", "f.lobster"]);
            if asked.envelope()["status"] != "needs_approval" {
                wrong.push(format!("{id} is not asked about: {asked:?}"));
                continue;
            }
            if not_covered(&asked) != "null" {
                wrong.push(format!("{id} has a gap: {}", not_covered(&asked)));
            }
            write(&case["after"]);
            shell(&case["swap"]);
            let done = approve(&home, &dir, &asked);
            let stale =
                done.stdout.contains("is not what would run now") && done.stdout.contains("Changed since");
            if format!("{done:?}").contains("SWAPPED-RAN") || !stale {
                wrong.push(format!("{id}: {done:?}"));
            }
        }
        wrong
    };
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
    });
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

/// The strict policy that runs nothing else than what was approved.
const MINIMUM: &str = "version = 1\n[sandbox]\nmode = \"strict\"\nminimum = [\"approved-files\"]\n[sandbox.fs]\n\
                       read = [\"@system-ro\", \"@workspace\"]\nwrite = [\"@workspace\", \"@tmp\"]\n[sandbox.env]\npass = [\"PATH\"]\n";

#[test]
fn the_record_says_for_which_roots_an_approval_held() {
    let home = Home::new();
    workflow(&home, "a", "sh x.sh");
    home.write("p.toml", MINIMUM).write("a/x.sh", ". ./lib.sh\n").write("a/lib.sh", "echo GOOD\n");
    let asked = ask(&home, "a");
    assert_eq!(approve(&home, "a", &asked).output()[0], "GOOD\n");
    let record = enforced(&home);
    let root = std::fs::canonicalize(home.dir().join("a")).unwrap();
    assert!(is_held(&record), "{record}");
    assert_eq!(record["approved_roots"], serde_json::json!([root]), "{record}");

    // What changes meanwhile may be the command's doing or that of others.
    workflow(&home, "b", "sh x.sh > out.txt");
    home.write("p.toml", MINIMUM).write("b/x.sh", "echo GOOD\n");
    let asked = ask(&home, "b");
    approve(&home, "b", &asked).output();
    let record = enforced(&home);
    assert!(!is_held(&record), "{record}");
    let root = root.with_file_name("b");
    let changed = format!("{}: out.txt (new)", root.display());
    assert_eq!(record["changed_meanwhile"], serde_json::json!([changed]), "{record}");

    // Caches of interpreters stay out of the tree.
    workflow(&home, "c", "python3 p.py");
    home.write("p.toml", MINIMUM).write("c/p.py", "import q\n").write("c/q.py", "print('GOOD')\n");
    let asked = ask(&home, "c");
    assert_eq!(approve(&home, "c", &asked).output()[0], "GOOD\n");
    assert!(is_held(&enforced(&home)) && !home.dir().join("c/__pycache__").exists());

    // What comes over the network is bound by nothing.
    workflow(&home, "d", "sh x.sh");
    let net = "[sandbox.net]\ndefault = \"hosts\"\nhosts = [\"example.com:443\"]\n";
    home.write("p.toml", format!("{MINIMUM}{net}")).write("d/x.sh", "echo GOOD\n");
    let asked = ask(&home, "d");
    assert_eq!(not_covered(&asked), r#"["what it receives over the network"]"#);
    let refused = approve(&home, "d", &asked).error();
    assert!(refused.contains("approved-files") && refused.contains("over the network"), "{refused}");
}

#[test]
fn a_swap_while_the_command_runs_is_never_recorded_as_held() {
    let home = Home::new();
    workflow(&home, "a", "touch started; while ! [ -e go ]; do sleep 0.01; done; cat lib.sh | sh");
    home.write("a/lib.sh", "echo GOOD\n");
    let asked = ask(&home, "a");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !home.dir().join("a/started").exists() {
                std::thread::sleep(Duration::from_millis(5));
            }
            home.write("a/lib.sh", "echo SWAPPED-RAN\n").write("a/go", "");
        });
        approve(&home, "a", &asked).output();
    });
    let record = enforced(&home);
    assert!(
        !is_held(&record) && record["changed_meanwhile"].to_string().contains("lib.sh (changed)"),
        "{record}"
    );
}

/// A command that was killed has changed the very files that its approval binds.
#[test]
fn an_interrupted_command_is_asked_about_again() {
    let home = Home::new();
    workflow(&home, "a", "sh x.sh");
    home.write("a/x.sh", "touch started; [ -e again ] || sleep 60; echo DONE\n");
    let asked = ask(&home, "a");
    let here = home.dir().join("a");
    let resume = home.lobster(["resume", "--token", &asked.token(), "--approve", "yes"]);
    let mut resumed = resume.env("LOBSTER_POLICY", home.dir().join("p.toml")).dir(&here).start();
    while !here.join("started").exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    resumed.kill().unwrap();
    resumed.wait().unwrap();
    home.write("a/again", "");
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let again = call(&home, "a", &["resume", runs[0]["id"].as_str().unwrap(), "--retry-interrupted"]);
    assert_eq!(again.envelope()["status"], "needs_approval", "{again:?}");
    // Now the approval holds, and the command still is not repeated without being told to.
    let refused = approve(&home, "a", &again).error();
    assert!(refused.contains("was interrupted"), "{refused}");
    let done = call(&home, "a", &["resume", runs[0]["id"].as_str().unwrap(), "--retry-interrupted"]);
    assert_eq!(done.output()[0], "DONE\n", "{done:?}");
}

#[test]
fn what_no_approval_binds_is_named() {
    let home = Home::new();
    workflow(&home, "a", "sh x.sh");
    let unbound = "[approvals]\nunbound = [\"*.log\", \"@workspace/tmp\"]\n";
    home.write("p.toml", format!("{POLICY}{unbound}"))
        .write("a/x.sh", "cat *.log\n")
        .write("a/a.log", "one\n");
    let asked = ask(&home, "a");
    let gaps = r#"["*.log: the policy leaves it out (unbound)","@workspace/tmp: the policy leaves it out (unbound)"]"#;
    assert_eq!(not_covered(&asked), gaps);
    let item = &asked.envelope()["requiresApproval"]["items"][0];
    let not_compared = serde_json::json!(["@system-ro", "times of files, and their number of names"]);
    assert_eq!(item["not_compared"], not_compared);
    home.write("a/a.log", "two\n").write("a/tmp/x", "");
    assert_eq!(approve(&home, "a", &asked).output()[0], "two\n");
    assert!(!is_held(&enforced(&home)));

    // A tree that is too large is the first thing that the question says of gaps.
    workflow(&home, "b", "sh x.sh");
    home.write("b/x.sh", "echo GOOD\n").write("b/big", "");
    std::fs::File::options().write(true).open(home.dir().join("b/big")).unwrap().set_len(5 << 30).unwrap();
    let asked = ask(&home, "b");
    let gaps = not_covered(&asked);
    assert!(gaps.starts_with("[\"the tree ") && gaps.contains("more than 200000 files or 4 GiB"), "{gaps}");
    assert_eq!(files(&asked), ["x.sh"]);
}

#[test]
fn an_approval_ends_when_the_policy_grants_another_root() {
    let home = Home::new();
    workflow(&home, "a", "sh x.sh");
    home.write("a/x.sh", "cat ../b/text\n").write("b/text", "SWAPPED-RAN\n");
    let asked = ask(&home, "a");
    let root = std::fs::canonicalize(home.dir().join("b")).unwrap();
    let roots = POLICY.replace("read = [", &format!("read = [{root:?}, "));
    home.write("p.toml", roots);
    let refused = approve(&home, "a", &asked).error();
    assert!(refused.contains("is not what would run now"), "{refused}");
}

#[test]
fn a_question_that_cannot_show_every_command_is_not_asked() {
    let home = Home::new();
    let many: Vec<String> = (0..900).map(|number| format!("touch step{number}")).collect();
    workflow(&home, "a", &format!("{}; rm -r ./precious; git push evil HEAD", many.join("; ")));
    let refused = call(&home, "a", &["run", "--mode", "tool", "f.lobster"]).error();
    assert!(
        refused.contains("shows 50 different commands at most") && refused.contains("several steps"),
        "{refused}"
    );
    // The same command several times is one.
    let same = vec!["touch a"; 900].join("; ");
    workflow(&home, "b", &format!("{same}; sh x.sh"));
    let item = ask(&home, "b").envelope()["requiresApproval"]["items"][0].clone();
    assert!(item["commands"].as_array().unwrap().len() <= 3, "{item}");
}
