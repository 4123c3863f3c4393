//! Components whose results depend on more than their actions: on values that other steps of the run
//! kept, and on files that change meanwhile. A second run, a fork and a replay come to the same.

use std::time::Duration;

use serde_json::Value;

use crate::home::{Home, newest};

/// `set` keeps a value, `get` fails if there is none, `first` gives the last one and keeps its argument.
fn home() -> Home {
    let home = Home::new();
    for name in ["set", "get", "first"] {
        let program = crate::binary::repository().join(format!("tests/guests/values/{name}.wasm"));
        home.write(&format!("{name}.wasm"), std::fs::read(program).unwrap());
    }
    home
}

/// Numbers that look as if they were drawn.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// A flow of such steps, some in loops and some not cached, and the ids at its top.
fn flow(draw: &mut Draw) -> (String, Vec<String>) {
    let mut text = "steps:\n  - id: items\n    exec: [echo, '[1,2,3,4,5,6,7,8]']\n".to_owned();
    let mut ids = Vec::new();
    let mut is_set = false;
    for n in 0..4 {
        let id = format!("s{n}");
        let cache = if draw.below(3) == 0 { "    cache: false\n" } else { "" };
        text += &match draw.below(4) {
            0 => format!("  - id: {id}\n    component: set.wasm\n{cache}"),
            1 if is_set => format!("  - id: {id}\n    component: get.wasm\n{cache}"),
            2 => format!(
                "  - id: {id}\n    for_each: $items.json\n    steps:\n      - id: r\n        component: first.wasm\n        args: {{ argv: [\"$item.json\"] }}\n"
            ),
            _ => format!("  - id: {id}\n    component: first.wasm\n    args: {{ argv: ['10{n}'] }}\n{cache}"),
        };
        is_set = true;
        ids.push(id);
    }
    text += "  - id: last\n    component: first.wasm\n    args: { argv: ['200'] }\n";
    text += "  - id: all\n    exec: [printf, '%s;', $s0.stdout, $s1.stdout, $s2.stdout, $s3.stdout, $last.stdout]\n";
    (text, ids)
}

#[test]
fn runs_forks_and_replays_of_steps_that_keep_values_come_to_the_same() {
    for seed in 0..5 {
        let home = home();
        let (text, ids) = flow(&mut Draw(seed));
        home.write("flow.lobster", &text);
        let first = home.tool(["flow.lobster"]).output();
        let run = newest(&home);
        let same = |what: &str, output: Value| assert_eq!(output, first, "{what} of seed {seed}:\n{text}");
        same("the second run", home.tool(["flow.lobster"]).output());
        let replay = home.lobster(["replay", &run]).run();
        assert_eq!(replay.code(), 0, "{text}\n{replay:#?}");
        for from in ids.iter().step_by(2) {
            same(from, home.lobster(["fork", &run, "--from", from]).run().output());
            let replay = home.lobster(["replay", &newest(&home)]).run();
            assert_eq!(replay.code(), 0, "the fork from {from}:\n{text}\n{replay:#?}");
        }
    }
}

#[test]
fn rounds_that_keep_values_go_one_after_the_other() {
    let home = home();
    home.write(
        "flow.lobster",
        "steps:
  - id: items
    exec: [echo, '[1,2,3,4,5,6,7,8]']
  - id: loop
    for_each: $items.json
    steps:
      - id: r
        component: first.wasm
        args: { argv: [\"$item.json\"] }
",
    );
    let rounds = home.tool(["flow.lobster"]).output();
    let given = rounds.as_array().unwrap().iter().map(|round| round["r"].to_string());
    let given: Vec<_> = given.map(|value| value.trim_matches('"').trim().to_owned()).collect();
    assert_eq!(given[1..], ["1", "2", "3", "4", "5", "6", "7"], "{rounds}");
}

/// Reads a file again and again until it begins with a `C`, and puts it out.
const WAITS: &str = r#"(module
    (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
    (import "wasi_snapshot_preview1" "fd_close" (func $close (param i32) (result i32)))
    (import "wasi_snapshot_preview1" "path_open"
        (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 256) "file")
    (func (export "_start")
        (loop $again
            (if (call $open (i32.const 3) (i32.const 1) (i32.const 256) (i32.const 4) (i32.const 0)
                    (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 16))
                (then unreachable))
            (i32.store (i32.const 0) (i32.const 1024))
            (i32.store (i32.const 4) (i32.const 100))
            (drop (call $read (i32.load (i32.const 16)) (i32.const 0) (i32.const 1) (i32.const 8)))
            (drop (call $close (i32.load (i32.const 16))))
            (br_if $again (i32.ne (i32.load8_u (i32.const 1024)) (i32.const 67))))
        (i32.store (i32.const 4) (i32.load (i32.const 8)))
        (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;

#[test]
fn what_was_read_from_files_that_changed_meanwhile_is_not_reused() {
    for grants in ["read: [{ from: ./in, to: /in }]", "clock: true, read: [{ from: ./in, to: /in }]"] {
        let home = Home::new();
        let flow = |timeout: u64| {
            format!(
                "steps:\n  - id: s\n    component: waits.wasm\n    cache: true\n    timeout_ms: {timeout}\n    limits: {{ fuel: 500_000_000_000 }}\n    grants: {{ {grants} }}\n"
            )
        };
        home.write("waits.wasm", wat::parse_str(WAITS).unwrap()).write("in/file", "original");
        home.write("flow.lobster", flow(60_000));
        let file = home.dir().join("in/file");
        let changing = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_secs(4));
            std::fs::write(file, "CHANGED").unwrap();
        });
        let answer = home.tool(["flow.lobster"]);
        changing.join().unwrap();
        assert!(answer.stdout.contains("CHANGED"), "{answer:#?}");
        let run = newest(&home);
        // The same action as before.
        home.write("in/file", "original").write("flow.lobster", flow(500));
        assert!(home.tool(["flow.lobster"]).error().contains("500"), "nothing is taken from the cache");
        let replay = home.lobster(["replay", &run]).run();
        assert_eq!(replay.code(), 0, "{replay:#?}");
        assert!(replay.stdout.contains("changed while it ran"), "{replay:#?}");
    }
}
