//! The audit of a policy: who did what, where it is kept, and what damage to it is found.

use serde_json::Value;

use crate::home::{Answer, Home};
use crate::policy::{allows_printenv, project};

#[test]
fn the_audit_tells_who_did_what() {
    let home = Home::new();
    allows_printenv(&home, "p.toml");
    home.write("ok.lobster", "steps:\n  - { id: a, exec: [printenv, HERE] }\n")
        .write("no.lobster", "steps:\n  - { id: a, exec: [id, -u] }\n")
        .write("ask.lobster", "steps:\n  - { id: a, run: 'curl https://me:pw@example.com/' }\n");
    let call = |words: &[&str], actor: &str| {
        home.lobster(words)
            .env("LOBSTER_POLICY", home.dir().join("p.toml"))
            .env("LOBSTER_ACTOR", actor)
            .env("LOBSTER_MESSAGE_ID", format!("msg-{actor}"))
            .env("HERE", "here")
            .run()
    };
    call(&["run", "--mode", "tool", "ok.lobster"], "ann").output();
    call(&["run", "--mode", "tool", "no.lobster"], "bob").error();
    let asked = call(&["run", "--mode", "tool", "ask.lobster"], "cem");
    call(&["resume", "--token", &asked.token(), "--approve", "no"], "dee");
    let audit = |words: &[&str]| -> Vec<Value> {
        let mut all = vec!["audit", "--jsonl"];
        all.extend(words);
        let answer = home.lobster(all).run();
        assert_eq!(answer.code(), 0, "{answer:?}");
        answer.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let told = |entries: &[Value]| -> Vec<String> {
        let word = |entry: &Value, key: &str| entry[key].as_str().unwrap_or("-").to_owned();
        entries
            .iter()
            .map(|entry| {
                let keys = ["kind", "what", "actor", "message", "command"];
                keys.map(|key| word(entry, key)).join(" ")
            })
            .collect()
    };
    assert_eq!(
        told(&audit(&[])),
        [
            "run started ann msg-ann -",
            "decision allowed ann msg-ann printenv HERE",
            "start started ann msg-ann printenv HERE",
            "end ok ann msg-ann -",
            "run ok ann msg-ann -",
            "run started bob msg-bob -",
            "decision denied bob msg-bob id -u",
            "run failed bob msg-bob -",
            "run started cem msg-cem -",
            "decision asks cem msg-cem curl https://«userinfo»@example.com/",
            "run paused cem msg-cem -",
            "approval asked cem msg-cem -",
            "approval rejected dee msg-dee -",
            "run cancelled dee msg-dee -",
        ]
    );
    assert_eq!(audit(&["--verdict", "deny"]).len(), 1);
    assert_eq!(audit(&["--actor", "bob"]).len(), 3);
    assert_eq!(audit(&["--kind", "decision"]).len(), 3);
    assert_eq!(audit(&["--program", "printenv"]).len(), 2);
    assert_eq!(audit(&["--program", "curl", "--verdict", "ask"]).len(), 1);
    assert_eq!(audit(&["--since", "1h"]).len(), 14);
    assert_eq!(audit(&["--until", "2020-01-01"]).len(), 0);
    let first = audit(&["--actor", "bob"])[0]["run"].as_str().unwrap().to_owned();
    assert_eq!(audit(&["--run", &first]).len(), 3);
    let shown = home.lobster(["audit"]).run();
    assert!(shown.stdout.contains("denied") && !shown.stdout.contains("me:pw"), "{shown:?}");
    let array = home.lobster(["audit", "--json", "--kind", "run"]).run();
    assert_eq!(serde_json::from_str::<Vec<Value>>(&array.stdout).unwrap().len(), 7);
    let wrong = home.lobster(["audit", "--since", "yesterday"]).run();
    assert!(wrong.code() == 2 && wrong.stderr.contains("is not a time"), "{wrong:?}");
}

#[test]
fn verifying_names_the_first_broken_record() {
    let home = Home::new();
    home.tool(["exec echo one"]).output();
    home.tool(["exec echo two"]).output();
    let verify = || home.lobster(["audit", "verify", "--json"]).run();
    let report: Value = serde_json::from_str(&verify().stdout).unwrap();
    assert_eq!((report["runs"].as_u64(), report["broken"].as_array().map(Vec::len)), (Some(2), Some(0)));
    // One letter of one record.
    let script = "import sqlite3, sys\n\
        db = sqlite3.connect(sys.argv[1] + '/store/lobster.db')\n\
        db.execute(\"UPDATE journal SET record = replace(record, 'echo two', 'echo 2wo') WHERE seq = 1\")\n\
        db.commit()\n";
    home.write("edit.py", script);
    let edited = std::process::Command::new("python3")
        .arg(home.dir().join("edit.py"))
        .arg(home.state())
        .status()
        .unwrap();
    assert!(edited.success());
    let answer = verify();
    assert_eq!(answer.code(), 1, "{answer:?}");
    let report: Value = serde_json::from_str(&answer.stdout).unwrap();
    assert_eq!(report["broken"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(report["broken"][0]["seq"], 2, "{report}");
    let told = home.lobster(["audit", "verify"]).run();
    assert!(told.stdout.contains("record 2") && told.stdout.contains("1 chain is broken"), "{told:?}");
}

/// Policy text that allows `printenv` and keeps the audit in `kept`, beside the state directory.
fn keeps_the_audit(home: &Home) -> std::path::PathBuf {
    allows_printenv(home, "p.toml");
    let kept = home.dir().parent().unwrap().join("kept");
    let places = format!("[audit]\npath = \"{0}/copy\"\nanchor = \"{0}/HEAD\"\n", kept.display());
    let text = home.read("p.toml") + &places;
    home.write("p.toml", text);
    home.write("ok.lobster", "steps:\n  - { id: a, exec: [printenv, HERE] }\n")
        .write("no.lobster", "steps:\n  - { id: a, exec: [id, -u] }\n")
        .write("ask.lobster", "steps:\n  - { id: a, run: 'curl https://me:pw@example.com/' }\n");
    kept
}

fn under_audit(home: &Home, words: &[&str]) -> Answer {
    let call = home.lobster(words).env("LOBSTER_POLICY", home.dir().join("p.toml"));
    call.env("LOBSTER_ACTOR", "ann").env("HERE", "here").run()
}

#[test]
fn the_audit_is_copied_where_the_policy_says() {
    let home = Home::new();
    let kept = keeps_the_audit(&home);
    under_audit(&home, &["run", "--mode", "tool", "ok.lobster"]).output();
    under_audit(&home, &["run", "--mode", "tool", "no.lobster"]).error();
    let asked = under_audit(&home, &["run", "--mode", "tool", "ask.lobster"]);
    under_audit(&home, &["resume", "--token", &asked.token(), "--approve", "no"]);

    let files: Vec<_> =
        std::fs::read_dir(kept.join("copy")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!((1..=2).contains(&files.len()), "a file a day: {files:?}");
    let copy: String = files.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let printed = under_audit(&home, &["audit", "--jsonl"]).stdout;
    let entries =
        |text: &str| -> Vec<Value> { text.lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    assert_eq!(entries(&copy), entries(&printed), "{copy}");
    assert!(copy.contains("«userinfo»") && !copy.contains("me:pw"), "{copy}");
    let mode = |path: &std::path::Path| {
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(path).unwrap().permissions()) & 0o777
    };
    assert_eq!((mode(&files[0]), mode(&kept.join("copy")), mode(&kept.join("HEAD"))), (0o600, 0o700, 0o600));

    // Nothing runs that cannot be recorded.
    std::fs::remove_dir_all(&kept).unwrap();
    std::fs::write(&kept, "in the way").unwrap();
    let refused = under_audit(&home, &["run", "--mode", "tool", "ok.lobster"]);
    assert!(refused.error().contains("no run continues without it"), "{refused:?}");
}

#[test]
fn a_cut_or_replaced_store_does_not_fit_its_anchor() {
    let home = Home::new();
    let kept = keeps_the_audit(&home);
    let run = || under_audit(&home, &["run", "--mode", "tool", "ok.lobster"]).output();
    let verify = || under_audit(&home, &["audit", "verify"]);
    run();
    let before = home.dir().parent().unwrap().join("before");
    crate::home::copy_tree(&home.state(), &before);
    run();
    let sound = verify();
    assert!(sound.code() == 0 && sound.stdout.contains("2 runs are anchored in "), "{sound:?}");

    // The store as it was a run earlier: each chain in it holds.
    let now = home.dir().parent().unwrap().join("now");
    std::fs::rename(home.state(), &now).unwrap();
    std::fs::rename(&before, home.state()).unwrap();
    let cut = verify();
    assert!(cut.code() == 1 && cut.stdout.contains("the whole run is missing"), "{cut:?}");
    let elsewhere = home.lobster(["audit", "verify"]).run();
    assert_eq!(elsewhere.code(), 0, "without the policy nobody knows of the anchor: {elsewhere:?}");
    let file = kept.join("HEAD");
    let named = home.lobster(["audit", "verify", "--anchor", file.to_str().unwrap()]).run();
    assert_eq!(named.code(), 1, "{named:?}");
    let json: Value =
        serde_json::from_str(&under_audit(&home, &["audit", "verify", "--json"]).stdout).unwrap();
    assert_eq!((&json["anchored"], json["broken"].as_array().map(Vec::len)), (&Value::from(2), Some(1)));

    // A collection says what it removes.
    std::fs::remove_dir_all(home.state()).unwrap();
    std::fs::rename(&now, home.state()).unwrap();
    let collected = under_audit(&home, &["store", "gc", "--keep", "0", "--older-than", "0s"]);
    assert_eq!(collected.code(), 0, "{collected:?}");
    let sound = verify();
    assert!(sound.code() == 0 && sound.stdout.contains("0 runs are anchored in "), "{sound:?}");
}

#[test]
fn only_the_most_trusted_layer_says_where_the_audit_is_kept() {
    let home = project();
    let text = home.read("app/lobster.policy.toml") + "[audit]\npath = \"@state/audit\"\n";
    home.write("run.toml", text).write("org.toml", "version = 1\n");
    let answer = home
        .lobster(["run", "--mode", "tool", "--policy", "run.toml", "app/flows/a.lobster"])
        .env("LOBSTER_POLICY", home.dir().join("org.toml"))
        .run();
    assert!(
        answer.error().contains("only the most trusted layer says where the audit is kept"),
        "{answer:?}"
    );
    home.write("in.toml", "version = 1\n[audit]\nanchor = \"@workspace/HEAD\"\n");
    let checked = home.lobster(["policy", "check", "in.toml"]).run();
    assert!(checked.code() != 0 && checked.stderr.contains("steps may write there"), "{checked:?}");
}

/// Allows one command that writes.
const ALLOWS_TOUCH: &str = "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n\
    [[rule]]\nid = \"t\"\neffect = \"allow\"\nprogram = \"touch\"\ngrant = { fs_write = [\"@workspace\"] }\n";

#[test]
fn what_a_replay_performs_again_is_decided_and_told() {
    let home = Home::new();
    home.write("p.toml", ALLOWS_TOUCH)
        .write("x.sh", "touch made\n")
        .write("allowed.lobster", "steps:\n  - { id: a, exec: [touch, made] }\n")
        .write("asked.lobster", "steps:\n  - { id: a, run: sh x.sh }\n")
        .write(
            "after.lobster",
            "steps:\n  - { id: q, approval: 'Go on?' }\n  - { id: a, exec: [touch, made] }\n",
        );
    let policy = home.dir().join("p.toml");
    let call = |words: &[&str]| home.lobster(words).env("LOBSTER_POLICY", &policy).run();
    let was_made = || std::fs::remove_file(home.dir().join("made")).is_ok();
    let audited = |what: &str| -> Vec<Value> {
        let told = home.lobster(["audit", "--jsonl"]).run();
        let told = told.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        told.filter(|entry| entry["what"].as_str().is_some_and(|found| found.contains(what))).collect()
    };
    call(&["run", "--mode", "tool", "allowed.lobster"]).output();
    assert!(was_made());
    // The policy of the run is in force, although this environment names none.
    let replayed = home.lobster(["replay", "@", "--live", "a"]).env("LOBSTER_ACTOR", "eve").run();
    assert_eq!((replayed.code(), was_made()), (0, true), "{replayed:?}");
    let decisions = audited("allowed");
    assert_eq!(decisions.len(), 2, "{decisions:?}");
    assert_eq!(decisions[0]["digest"], decisions[1]["digest"], "{decisions:?}");
    assert_eq!((&decisions[1]["command"], &decisions[1]["actor"]), (&"touch made".into(), &"eve".into()));
    let noted = audited("replay --live");
    assert_eq!(noted.len(), 2, "{noted:?}");
    assert!(noted.iter().all(|entry| entry["author"]["uid"].is_u64()), "{noted:?}");
    assert_eq!(call(&["replay", "@"]).code(), 0, "the record replays as before");
    // A policy that forbids it now.
    home.write("deny.toml", ALLOWS_TOUCH.replace("\"allow\"", "\"deny\""));
    let denied =
        home.lobster(["replay", "@", "--live", "a"]).env("LOBSTER_POLICY", home.dir().join("deny.toml"));
    assert_eq!((denied.run().code(), was_made()), (1, false));

    // An answer is for one execution, of whoever gave it.
    for file in ["asked.lobster", "after.lobster"] {
        let asked = call(&["run", "--mode", "tool", file]);
        call(&["resume", "--token", &asked.token(), "--approve", "yes"]).output();
        assert!(was_made(), "{file}");
        for mark in ["CLAUDECODE", "UNRELATED"] {
            let refused =
                home.lobster(["replay", "@", "--live", "a"]).env("LOBSTER_POLICY", &policy).env(mark, "1");
            let refused = refused.run();
            assert!(refused.code() != 0 && !was_made(), "{file}: {refused:?}");
            assert!(refused.stderr.contains("lobster fork"), "{file}: {refused:?}");
        }
    }
    assert_eq!(audited("replay --live").len(), 2);
}
