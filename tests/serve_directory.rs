//! A run of the service goes on in the directory of its workflow, wherever the shell stands that answers it.

use std::path::Path;

use crate::home::{Home, wait_until};
use crate::served::{Served, register};

const FLOW: &str = "steps:\n  - {id: ask, approval: 'Deploy?'}\n  - {id: go, run: ./deploy.sh}\n";

fn home() -> Home {
    let home = Home::new();
    home.write("own/rel.lobster", FLOW);
    script(&home, "own/deploy.sh", "echo own >> \"$PLACE\"");
    script(&home, "other/deploy.sh", "echo other >> \"$PLACE\"");
    register(&home, &["own/rel.lobster"]);
    home
}

fn script(home: &Home, name: &str, line: &str) {
    home.write(name, format!("#!/bin/sh\n{line}\n"));
}

/// Has the service start a run, and gives it with its question.
fn asked(home: &Home) -> (String, String) {
    let run = home.lobster(["schedule", "run-now", "rel"]).run().stdout.trim().to_owned();
    let mut id = String::new();
    wait_until("the question", || {
        let all = home.lobster(["approvals", "--json"]).run();
        let all: serde_json::Value = serde_json::from_str(&all.stdout).unwrap();
        let gate = all.as_array().unwrap().iter().find(|gate| gate["run"] == run.as_str());
        id = gate.map(|gate| gate["id"].as_str().unwrap().to_owned()).unwrap_or_default();
        !id.is_empty()
    });
    (run, id)
}

fn say(home: &Home, dir: &Path, words: &[&str]) -> crate::home::Answer {
    home.lobster(words).dir(dir).env("PLACE", home.dir().join("said")).run()
}

#[test]
fn whoever_goes_on_with_a_run_of_the_service_does_it_in_its_own_directory() {
    let home = home();
    let _served = Served::start(&home, &[]);
    let other = home.dir().join("other");
    let own = home.dir().join("own").canonicalize().unwrap();
    let told = format!("its next steps run in {}", own.display());
    // In each way in which a shell goes on with a run.
    for way in [["approvals", "approve", "ID"].as_slice(), &["resume", "--id", "ID", "--approve", "yes"]] {
        let (_, id) = asked(&home);
        let shown = say(&home, &other, &["approvals", "show", &id]);
        assert!(shown.stdout.contains(&told), "{shown:?}");
        assert!(!say(&home, &own, &["approvals", "show", &id]).stdout.contains("next steps run in"));
        let words: Vec<&str> =
            way.iter().map(|word| if *word == "ID" { id.as_str() } else { word }).collect();
        let answer = say(&home, &other, &words);
        assert_eq!(answer.envelope()["status"], "ok", "{answer:?}");
        assert_eq!(answer.stderr.contains(&told), words[0] == "approvals", "{answer:?}");
    }
    script(&home, "own/deploy.sh", "exit 1");
    let (run, id) = asked(&home);
    say(&home, &other, &["approvals", "approve", &id]).error();
    script(&home, "own/deploy.sh", "echo own >> \"$PLACE\"");
    assert_eq!(say(&home, &other, &["resume", &run]).envelope()["status"], "ok");
    assert_eq!(home.read("said"), "own\nown\nown\n");
}

#[test]
fn a_run_whose_directory_is_gone_says_so_and_keeps_its_question() {
    let home = home();
    let _served = Served::start(&home, &[]);
    let (own, gone) = (home.dir().join("own"), home.dir().join("gone"));
    let (_, id) = asked(&home);
    std::fs::rename(&own, &gone).unwrap();
    let answer = say(&home, &home.dir().join("other"), &["approvals", "approve", &id]);
    assert!(answer.error().contains("the directory of its workflow, which does not exist"), "{answer:?}");
    std::fs::rename(&gone, &own).unwrap();
    let answer = say(&home, &home.dir().join("other"), &["approvals", "approve", &id]);
    assert_eq!(answer.envelope()["status"], "ok", "{answer:?}");
    assert_eq!(home.read("said"), "own\n");
}
