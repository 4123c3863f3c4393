//! Runs that earlier versions recorded: they must verify for ever. A change that
//! breaks one of them is wrong, and no file is ever made anew.
//!
//! A version that records something new adds a bundle: write its workflow here,
//! and `cargo test --workspace -- --ignored compatibility::record` makes the file.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::home::Home;

/// Prints a letter that chance decides and a digit that the clock does; without
/// grants both are always the same.
const ASKS: &str = r#"(module
  (import "wasi_snapshot_preview1" "random_get" (func $random (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (drop (call $random (i32.const 100) (i32.const 1)))
    (drop (call $clock (i32.const 0) (i64.const 1) (i32.const 112)))
    (i32.store8 (i32.const 100) (i32.add (i32.const 97) (i32.and (i32.load8_u (i32.const 100)) (i32.const 15))))
    (i32.store8 (i32.const 101) (i32.add (i32.const 48) (i32.wrap_i64 (i64.and (i64.load (i32.const 112)) (i64.const 7)))))
    (i32.store (i32.const 0) (i32.const 100))
    (i32.store (i32.const 4) (i32.const 2))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;

/// Name, workflow, and how many steps are computed, checked and answered.
const RECORDED: [(&str, &str, [u64; 3]); 3] = [
    // Recorded before there was a recipe: a shell step, inline JavaScript, a pipeline.
    ("first", "", [2, 0, 2]),
    (
        "outside",
        "
steps:
  - id: ask
    component: asks.wasm
    grants: { random: true, clock: true }
  - id: look
    component: asks.wasm
    stdin: $ask.stdout
    grants: { read: [mail] }
  - id: say
    run: cat
    stdin: $ask.stdout
",
        [1, 1, 1],
    ),
    (
        "shapes",
        "
args: { n: { default: 2 } }
steps:
  - id: list
    run: printf '[1,%s]' ${n}
  - id: loop
    for_each: $list.json
    steps:
      - id: label
        run: echo \"label $N\"
        env: { N: $item.json }
  - id: both
    parallel:
      branches:
        - id: left
          run: echo left
        - id: right
          pipeline: \"exec --shell 'echo right'\"
  - id: flaky
    run: echo try >> tries; test $(grep -c try tries) -ge 2 && echo done
    retry: { max: 3, delay_ms: 1 }
  - id: broken
    run: exit 3
    on_error: continue
  - id: never
    run: echo never
    when: $flaky.stdout == nothing
  - id: ask
    approval: { prompt: Apply?, preview: $left.stdout }
  - id: apply
    workflow: child.lobster
    workflow_args: { who: $flaky.stdout }
",
        [0, 0, 9],
    ),
];

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("compatibility").join(format!("{name}.bundle"))
}

#[test]
fn every_run_ever_recorded_still_replays() {
    for (name, _, steps) in RECORDED {
        let file = place(name);
        let answer = Home::new().lobster(["bundle", "verify", file.to_str().unwrap(), "--json"]).run();
        assert_eq!(answer.code(), 0, "{name}: {answer:?}");
        let report: Value = serde_json::from_str(&answer.stdout).unwrap();
        let replay = &report["replay"];
        assert_eq!(replay["divergences"], Value::Array(vec![]), "{name}: {report:#}");
        assert_eq!(replay["unverified"], Value::Array(vec![]), "{name}: {report:#}");
        let found = ["computed", "checked", "answered"].map(|count| replay[count].as_u64().unwrap());
        assert_eq!(found, steps, "{name}: {report:#}");
    }
    let files = std::fs::read_dir(place("first").parent().unwrap()).unwrap().count();
    assert_eq!(files, RECORDED.len(), "each file of tests/compatibility stands in the list");
}

#[test]
#[ignore = "makes the files that are missing"]
fn record() {
    for (name, workflow, _) in RECORDED {
        let file = place(name);
        if file.exists() {
            continue;
        }
        let home = Home::new();
        home.write("asks.wasm", wat::parse_str(ASKS).unwrap())
            .write("mail/1.eml", "Subject: one\n\nhello\n")
            .write("child.lobster", "args: { who: {} }\nsteps:\n  - id: greet\n    run: echo hello ${who}\n")
            .write("flow.lobster", format!("name: {name}\n{workflow}"));
        let answer = home.tool(["flow.lobster"]);
        if answer.envelope()["status"] == "needs_approval" {
            let token = answer.token();
            home.lobster(["resume", "--token", &token, "--approve", "yes"]).run().output();
        }
        let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
        let run = runs[0]["id"].as_str().unwrap();
        let words = ["bundle", "export", run, "--with-directories", "-o", file.to_str().unwrap()];
        let exported = home.lobster(words).run();
        assert_eq!(exported.code(), 0, "{exported:?}");
    }
}
