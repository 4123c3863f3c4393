//! Disks that are full, read-only or damaged, and clocks that jump: one clear
//! error each, nothing half-done, and afterwards all goes on.

use std::process::{Command, Output};

use serde_json::Value;

use crate::home::Home;
use crate::{binary, faults};

const WORKFLOW: &str = "
steps:
  - id: ask
    approval: Go?
  - id: go
    run: echo gone >> log
";

/// Runs shell text in a mount namespace of its own, with the binary as `$L`;
/// `None` where this is not allowed.
pub(crate) fn in_a_namespace(home: &Home, script: &str) -> Option<Output> {
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", home.dir())
        .env("L", binary::lobster())
        .env("STATE", home.state())
        .env("LOBSTER_STATE_DIR", home.state())
        .current_dir(home.dir())
        .output()
        .ok()?;
    if output.status.code() == Some(99) || String::from_utf8_lossy(&output.stderr).contains("unshare:") {
        eprintln!("not allowed to mount: {output:?}");
        return None;
    }
    Some(output)
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn gate(home: &Home) -> String {
    let gates: Value = serde_json::from_str(&home.lobster(["approvals", "--json"]).run().stdout).unwrap();
    gates[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_full_disk_is_said_to_be_full_and_the_run_goes_on_when_it_is_not() {
    let home = Home::new();
    home.write("flow.lobster", WORKFLOW);
    // 400 KiB: room for the store, not for what the step prints.
    home.write(
        "big.lobster",
        "steps:\n  - id: big\n    run: echo ran >> big.log; head -c 3000000 /dev/zero | tr '\\0' x\n  - id: after\n    run: echo after >> big.log\n",
    );
    let script = "mount -t tmpfs -o size=400k tmpfs \"$STATE\" || exit 99
        \"$L\" run --mode tool big.lobster; echo \"exit $?\"
        mount -o remount,size=40m \"$STATE\"
        \"$L\" runs
        id=$(\"$L\" runs --json | sed -n 's/.*\"id\": \"\\(.*\\)\".*/\\1/p' | head -1)
        \"$L\" resume $id
        \"$L\" resume $id --retry-interrupted | grep -c '\"status\": \"ok\"'
        \"$L\" store verify";
    let Some(output) = in_a_namespace(&home, script) else { return };
    let said = text(&output);
    assert!(said.contains("no space left") && said.contains("free some space"), "{said}");
    assert!(said.contains("exit 1") && said.contains("all is well"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    // The step was done and what it gave was lost: it is done again on request alone.
    assert!(said.contains("was interrupted"), "{said}");
    assert_eq!(home.read("big.log"), "ran\nran\nafter\n", "{said}");
}

#[test]
fn an_effect_whose_result_found_no_room_is_listed_as_interrupted() {
    let home = Home::new();
    home.write(
        "fill.lobster",
        "steps:\n  - id: fill\n    run: head -c 9000000 /dev/zero > \"$STATE/fill\"; head -c 100000 /dev/zero | tr '\\0' x\n",
    );
    let script = "mount -t tmpfs -o size=3m tmpfs \"$STATE\" || exit 99
        \"$L\" run --mode tool 'exec true' >/dev/null
        \"$L\" run --mode tool fill.lobster; echo \"exit $?\"
        rm \"$STATE/fill\"
        \"$L\" runs --interrupted --json";
    let Some(output) = in_a_namespace(&home, script) else { return };
    let said = text(&output);
    assert!(said.contains("no space left") && said.contains("exit 1"), "{said}");
    assert!(said.contains("\"status\": \"interrupted\""), "{said}");
}

#[test]
fn a_disk_that_is_full_from_the_beginning_starts_nothing() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: go\n    run: echo gone >> log\n");
    let script = "mount -t tmpfs -o size=24k tmpfs \"$STATE\" || exit 99
        \"$L\" run --mode tool flow.lobster; echo \"exit $?\"";
    let Some(output) = in_a_namespace(&home, script) else { return };
    let said = text(&output);
    assert!(said.contains("no space left") && said.contains("exit 1"), "{said}");
    assert_eq!(home.read("log"), "");
}

#[test]
fn a_disk_that_became_read_only_is_said_to_be_one() {
    let home = Home::new();
    home.write("flow.lobster", WORKFLOW).tool(["flow.lobster"]).token();
    let id = gate(&home);
    let script = format!(
        "mount --bind \"$STATE\" \"$STATE\" && mount -o remount,bind,ro \"$STATE\" || exit 99
        \"$L\" resume --id {id} --approve yes; echo \"exit $?\"
        \"$L\" run --mode tool flow.lobster; echo \"exit $?\"
        \"$L\" store gc; echo \"exit $?\"
        R=$(\"$L\" runs --json | grep -o '[0-9a-f-]\\{{36\\}}' | head -n 1)
        for c in runs approvals \"show $R\" \"logs $R\" \"replay $R\" \"diff $R $R\" \"store stats\" \"store verify\" \"audit\" \
            \"bundle export $R -o run.bundle\" \"bundle verify run.bundle\"
        do \"$L\" $c >/dev/null && echo read; done"
    );
    let Some(output) = in_a_namespace(&home, &script) else { return };
    let said = text(&output);
    assert!(said.contains("read-only") && said.contains("LOBSTER_STATE_DIR"), "{said}");
    assert_eq!(said.matches("exit 1").count(), 3, "{said}");
    assert_eq!(said.matches("read\n").count(), 11, "what was recorded can be read: {said}");
    assert_eq!(home.read("log"), "");
    assert_eq!(home.lobster(["approvals", "approve", &id]).run().envelope()["status"], "ok");
    assert_eq!(home.read("log"), "gone\n");
}

#[test]
fn a_damaged_blob_is_named_and_harms_nobody_else() {
    let home = Home::new();
    home.write(
        "big.lobster",
        "name: big\nsteps:\n  - id: big\n    run: head -c 300000 /dev/urandom | base64\n",
    );
    home.tool(["big.lobster"]).output();
    home.tool(["exec echo small"]).output();
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let (small, big) = (runs[0]["id"].as_str().unwrap(), runs[1]["id"].as_str().unwrap());
    let found =
        Command::new("find").arg(home.state().join("store/blobs")).args(["-type", "f"]).output().unwrap();
    let files = String::from_utf8_lossy(&found.stdout).into_owned();
    // The run's answer repeats what the step printed as JSON, which is longer.
    let size = |file: &&str| std::fs::metadata(file).unwrap().len();
    let file = files.lines().min_by_key(size).expect("the output is a file of its own");
    let digest = file.rsplit('/').next().unwrap();
    let mut bytes = std::fs::read(file).unwrap();
    bytes[1000] ^= 1;
    std::fs::remove_file(file).unwrap();
    std::fs::write(file, &bytes).unwrap();

    let verified = home.lobster(["store", "verify"]).run();
    assert!(verified.code() == 1 && verified.stdout.contains(digest), "{verified:?}");
    let logs = home.lobster(["logs", big]).run();
    assert!(logs.code() == 1 && logs.stderr.contains(digest) && logs.stderr.contains("damaged"), "{logs:?}");
    assert_eq!(home.lobster(["logs", small, "--output"]).run().code(), 0);
    let bundle = home.lobster(["bundle", "export", big, "-o", "x.bundle"]).run();
    assert!(bundle.code() == 1 && bundle.stderr.contains(digest), "{bundle:?}");
    std::fs::remove_file(file).unwrap();
    let logs = home.lobster(["logs", big]).run();
    assert!(logs.code() == 1 && logs.stderr.contains(&format!("its file {file} is gone")), "{logs:?}");
}

#[test]
fn a_database_cut_anywhere_is_damage_and_whole_again_when_put_back() {
    let home = Home::new();
    home.write("flow.lobster", WORKFLOW).tool(["flow.lobster"]).token();
    let id = gate(&home);
    // A log that has grown is folded into the database.
    for _ in 0..14 {
        home.tool(["exec --shell 'head -c 45000 /dev/urandom | base64 -w0'"]).output();
    }
    let path = home.state().join("store/lobster.db");
    let whole = std::fs::read(&path).unwrap();
    let log = home.state().join("store/lobster.db-wal");
    let whole_log = std::fs::read(&log).unwrap();
    for len in [0, 50, 4096, 20_000, whole.len() / 2, whole.len() - 4096] {
        std::fs::write(&path, &whole[..len]).unwrap();
        for words in [
            &["runs"][..],
            &["run", "--mode", "tool", "flow.lobster"],
            &["approvals", "approve", &id],
            &["store", "gc"],
            &["store", "verify"],
        ] {
            let answer = home.lobster(words).run();
            let said = format!("{}{}", answer.stdout, answer.stderr);
            assert_eq!(answer.code(), 1, "cut at {len}: {words:?}: {answer:?}");
            assert!(
                said.contains("damaged") && !said.contains("panicked"),
                "cut at {len}: {words:?}: {said}"
            );
        }
        assert_eq!(std::fs::read(&path).unwrap(), whole[..len], "cut at {len}");
    }
    assert_eq!(home.read("log"), "");
    std::fs::write(&path, &whole).unwrap();
    std::fs::write(&log, &whole_log).unwrap();
    assert_eq!(home.lobster(["approvals", "approve", &id]).run().envelope()["status"], "ok");
    assert_eq!(home.lobster(["store", "verify"]).run().code(), 0);
}

#[test]
fn a_changed_record_is_named() {
    let home = Home::new();
    home.tool(["exec echo first"]).output();
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    // A log that has grown is folded into the database, where a byte of a record is changed. (In the log
    // itself a changed byte is the end of what a power cut left.)
    for _ in 0..14 {
        home.tool(["exec --shell 'head -c 45000 /dev/urandom | base64 -w0'"]).output();
    }
    let path = home.state().join("store/lobster.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let needle = b"\"type\":\"run_ended\"";
    // A page may also hold copies that are no record any more.
    let found: Vec<_> = bytes
        .windows(needle.len())
        .enumerate()
        .filter(|(_, window)| window == needle)
        .map(|(at, _)| at)
        .collect();
    assert!(!found.is_empty(), "the log was folded in");
    found.into_iter().for_each(|at| bytes[at + 10] = b'q');
    std::fs::write(&path, &bytes).unwrap();
    let verified = home.lobster(["store", "verify"]).run();
    assert_eq!(verified.code(), 1, "{verified:?}");
    let run = runs[0]["id"].as_str().unwrap();
    assert!(verified.stdout.contains(run), "{verified:?}");
    let replayed = home.lobster(["replay", run]).run();
    assert!(replayed.code() == 1 && replayed.stderr.contains("is damaged at record"), "{replayed:?}");
}

#[test]
fn a_clock_that_jumps_changes_no_order_and_collects_nothing() {
    const YEARS: i64 = 20 * 366 * 86_400;
    let Some(shim) = faults::shim() else { return };
    let home = Home::new();
    home.write("flow.lobster", WORKFLOW);
    let at = |later: i64, words: &[&str]| {
        home.lobster(words).env("LD_PRELOAD", shim).env("LOBSTER_SHIM_CLOCK", later.to_string()).run()
    };
    let runs =
        || -> Vec<Value> { serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap() };
    at(0, &["run", "--mode", "tool", "exec echo now"]).output();
    at(-YEARS, &["run", "--mode", "tool", "flow.lobster"]).token();
    at(YEARS, &["run", "--mode", "tool", "exec echo then"]).output();
    let runs_before = runs();
    let years: Vec<_> =
        runs_before.iter().map(|run| run["startedAt"].as_str().unwrap()[..4].to_owned()).collect();
    assert!(years[0] > years[2] && years[1] < years[2], "newest first, whatever the clock said: {years:?}");

    // What was recorded lately by another clock is not taken for old.
    let collected = at(0, &["store", "gc"]);
    assert_eq!(collected.code(), 0, "{collected:?}");
    assert_eq!(runs(), runs_before);
    assert_eq!(home.lobster(["store", "verify"]).run().code(), 0);
    let answer = at(-2 * YEARS, &["approvals", "approve", &gate(&home)]);
    assert_eq!(answer.envelope()["status"], "ok", "{answer:?}");
    assert_eq!(home.read("log"), "gone\n");
    for run in runs() {
        let replayed = home.lobster(["replay", run["id"].as_str().unwrap()]).run();
        assert_eq!(replayed.code(), 0, "{replayed:?}");
    }
}
