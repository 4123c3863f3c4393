//! What durability costs, in syncs of the real binary, and that processes that
//! meet at one store or one gate lose nothing.

use serde_json::{Value, json};

use crate::faults;
use crate::home::Home;

/// How many syncs a run of these steps asks for; the store is there already.
fn syncs(home: &Home, steps: &Value) -> Option<u64> {
    let shim = faults::shim()?;
    home.write("flow.lobster", json!({ "steps": steps }).to_string());
    let state = home.state().canonicalize().unwrap();
    let count = home.dir().join("count");
    let answer = home
        .lobster(["run", "--mode", "tool", "flow.lobster"])
        .env("LD_PRELOAD", shim)
        .env("LOBSTER_SHIM", format!("0:count:{}", state.display()))
        .env("LOBSTER_SHIM_COUNT", &count)
        .run();
    answer.output();
    let text = home.read("count");
    text.split_whitespace().nth(1).and_then(|number| number.parse().ok())
}

#[test]
fn an_effect_costs_two_syncs_and_parallel_ones_share_them() {
    let home = Home::new();
    home.tool(["exec true"]).envelope();
    let effects = |count: usize| -> Vec<Value> {
        (0..count).map(|n| json!({ "id": format!("s{n}"), "run": "true" })).collect()
    };
    let Some(few) = syncs(&home, &json!(effects(5))) else { return };
    let many = syncs(&home, &json!(effects(25))).unwrap();
    println!("{few} syncs for 5 effects, {many} for 25");
    assert!(many - few <= 2 * 20, "{few} syncs for 5 effects, {many} for 25");

    let pure = syncs(&home, &json!([{ "id": "a", "pipeline": "commands.list | head --n 1" }])).unwrap();
    let branches: Vec<_> = (0..64).map(|n| json!({ "id": format!("b{n}"), "run": "sleep 0.5" })).collect();
    let shared = syncs(&home, &json!([{ "id": "p", "parallel": { "branches": branches } }])).unwrap();
    println!("{pure} syncs without effects, {shared} for 64 parallel ones");
    // Its end; and two more if the log has grown so much that it is folded in.
    assert!(pure <= 3, "{pure} syncs without effects");
    assert!(shared <= pure + 8, "{shared} syncs for 64 parallel effects");
}

/// When the power fails, another process may have synced the log, and so what this one had committed lazily.
#[test]
fn a_commit_that_another_process_made_durable_names_no_blob_that_is_not() {
    let Some(shim) = faults::shim() else { return };
    let home = Home::new();
    home.write(
        "flow.lobster",
        "args: {n: {}}\nsteps:\n  - {id: large, run: 'head -c 100000 /dev/zero | tr \"\\0\" x; echo $LOBSTER_ARG_N'}\n",
    );
    let state = home.state().canonicalize().unwrap();
    let run = |n: u64, how: &str| {
        let arg = format!("n={n}");
        let call =
            home.lobster(["run", "--mode", "tool", "flow.lobster", "--arg", &arg]).env("LD_PRELOAD", shim);
        call.env("LOBSTER_SHIM", format!("{n}:{how}:{}", state.display())).run()
    };
    run(0, "count").output();
    for n in 1.. {
        let answer = run(n, "log");
        let verified = home.lobster(["store", "verify", "--json"]).run();
        let verified: Value = serde_json::from_str(&verified.stdout).unwrap();
        // A file that nothing names yet may be cut.
        let is_left = |problem: &Value| problem["place"].is_string() && problem["namedBy"].is_null();
        assert!(verified["problems"].as_array().unwrap().iter().all(is_left), "call {n}: {verified:#}");
        if answer.code() != 137 {
            assert!(n > 20, "only {n} calls");
            break;
        }
    }
}

#[test]
fn of_eight_processes_that_resume_a_gate_one_wins_each_time() {
    // tests/bench/record.py does it two hundred times.
    const ROUNDS: usize = 20;
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: ask\n    approval: Go?\n  - id: go\n    run: echo gone >> log\n",
    );
    for round in 1..=ROUNDS {
        let token = home.tool(["flow.lobster"]).token();
        let won: usize = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| home.lobster(["resume", "--token", &token, "--approve", "yes"]).run())
                })
                .collect();
            let answers = racers.into_iter().map(|racer| racer.join().unwrap());
            answers.filter(|answer| answer.envelope()["ok"] == true).count()
        });
        assert_eq!((won, home.read("log").lines().count()), (1, round));
    }
    assert_eq!(home.lobster(["store", "verify"]).run().code(), 0);
}

#[test]
fn sixteen_processes_make_and_write_one_store() {
    let home = Home::new();
    for round in 1..=3 {
        std::thread::scope(|scope| {
            for n in 0..16 {
                let home = &home;
                scope.spawn(move || {
                    assert_eq!(home.tool([format!("exec echo {n}")]).output()[0], n.to_string())
                });
            }
        });
        let listed = home.lobster(["runs", "--json", "--limit", "0"]).run();
        let runs: Value = serde_json::from_str(&listed.stdout).unwrap();
        assert_eq!(runs.as_array().map(Vec::len), Some(16 * round));
    }
    assert_eq!(home.lobster(["store", "verify"]).run().code(), 0);
}

#[test]
fn a_crashed_run_goes_on_from_another_directory_where_it_was() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: a\n    run: echo a >> log\n  - id: b\n    run: echo b >> log\n",
    );
    for point in 1..60 {
        let fault = format!("{point}:kill");
        let answer =
            home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_FAULT", fault).run();
        // Killed between the two: the first is done.
        if answer.code() == 137 && home.read("log") == "a\n" {
            break;
        }
        std::fs::remove_file(home.dir().join("log")).unwrap_or_default();
    }
    let runs: Value =
        serde_json::from_str(&home.lobster(["runs", "--interrupted", "--json"]).run().stdout).unwrap();
    let run = runs[0]["id"].as_str().unwrap();
    home.write("elsewhere/file", "");
    let elsewhere = home.dir().join("elsewhere");
    let words = ["resume", run, "--retry-interrupted"];
    let answer = home.lobster(words).dir(&elsewhere).run();
    assert_eq!(answer.envelope()["status"], "ok", "{answer:?}");
    assert!(home.read("log").ends_with("b\n"), "{:?}", home.read("log"));
    assert_eq!(home.read("elsewhere/log"), "");
    assert_eq!(home.lobster(["replay", run]).run().code(), 0);
}

#[test]
fn the_policy_judges_a_resumed_run_where_it_was() {
    let home = Home::new();
    home.write("policy.toml", "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n");
    home.write("flow.lobster", "steps:\n  - id: a\n    exec: [cat, data]\n");
    let policy = home.dir().join("policy.toml");
    let run = home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_POLICY", &policy).run();
    assert!(run.error().contains("data"), "{run:?}");
    home.write("data", "here").write("elsewhere/data", "elsewhere");
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    // Reading is allowed in the workspace alone, and that is not where the caller happens to stand.
    let resumed = home
        .lobster(["resume", runs[0]["id"].as_str().unwrap()])
        .env("LOBSTER_POLICY", &policy)
        .dir(&home.dir().join("elsewhere"))
        .run();
    assert_eq!(resumed.output()[0], "here", "{resumed:?}");
}

#[test]
fn a_run_whose_gate_was_answered_from_elsewhere_replays() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: a\n    run: pwd\n  - id: ask\n    approval: Go?\n  - id: b\n    run: pwd\n",
    );
    let token = home.tool(["flow.lobster"]).token();
    home.write("elsewhere/file", "");
    let elsewhere = home.dir().join("elsewhere");
    home.lobster(["resume", "--token", &token, "--approve", "yes"]).dir(&elsewhere).run().output();
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let replayed = home.lobster(["replay", runs[0]["id"].as_str().unwrap()]).run();
    assert_eq!(replayed.code(), 0, "{replayed:?}");
}
