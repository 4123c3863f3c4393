//! Components that misbehave, each a named error with its figure, and none of
//! them more than a failed step.

use crate::home::Home;

const IMPORTS: &str = r#"
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (memory (export "memory") 1)
"#;

/// A WASI command with this body, run as a step with these fields.
fn run(home: &Home, fields: &str, start: &str, step: &str) -> String {
    let module = format!("(module {IMPORTS} {fields} (func (export \"_start\") {start}))");
    home.write("step.wasm", wat::parse_str(module).unwrap());
    home.write("flow.lobster", format!("steps:\n  - id: guest\n    component: step.wasm\n{step}"));
    let answer = home.tool(["flow.lobster"]);
    let message = answer.error();
    assert!(message.contains("guest"), "the step is not named: {message}");
    message
}

fn has(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn a_trap_is_named() {
    has(&run(&Home::new(), "", "unreachable", ""), &["unreachable"]);
}

#[test]
fn a_loop_ends_with_its_fuel_or_its_time() {
    let message = run(&Home::new(), "", "(loop $again (br $again))", "    limits: { fuel: 3_000_000 }\n");
    has(&message, &["fuel", "3000000"]);
    let home = Home::new();
    let message = run(&home, "", "(loop $again (br $again))", "    timeout_ms: 200\n");
    has(&message, &["200"]);
}

#[test]
fn deep_recursion_is_an_error() {
    run(&Home::new(), "(func $deeper (call $deeper) (call $deeper))", "(call $deeper)", "");
}

#[test]
fn memory_ends_at_its_limit() {
    let grow = "(loop $again (if (i32.eq (memory.grow (i32.const 16)) (i32.const -1)) (then unreachable)) (br $again))";
    has(&run(&Home::new(), "", grow, "    limits: { memory: 2MiB }\n"), &["memory", "2097152"]);
}

#[test]
fn output_ends_at_its_limit() {
    let print = "(i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 32768))
        (loop $again (br_if $again (i32.eqz (call $fd_write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))";
    has(&run(&Home::new(), "", print, "    limits: { output: 1MB }\n"), &["output", "1000000"]);
}

#[test]
fn nothing_outside_the_grant_can_be_read() {
    // Exits with the error number of opening a path: 0 if it could be opened.
    let open = |path: &str| {
        let data = format!("(data (i32.const 256) \"{path}\")");
        let start = format!(
            "(local $error i32)
             (local.set $error (call $path_open (i32.const 3) (i32.const 1) (i32.const 256) (i32.const {}) (i32.const 0)
               (i64.const 2) (i64.const 0) (i32.const 0) (i32.const 16)))
             (if (local.get $error) (then (call $exit (local.get $error))) (else (call $exit (i32.const 99))))",
            path.len()
        );
        (data, start)
    };
    let home = Home::new();
    home.write("inside/file", "fine").write("secret", "secret");
    std::os::unix::fs::symlink(home.dir().join("secret"), home.dir().join("inside/link")).unwrap();
    std::os::unix::fs::symlink("..", home.dir().join("inside/up")).unwrap();
    let grant = "    grants: { read: [{ from: ./inside, to: /data }] }\n";
    let (data, start) = open("file");
    has(&run(&home, &data, &start, grant), &["99"]);
    for path in ["../secret", "/etc/passwd", "link", "up/secret", "./x/../../secret", "up/../secret"] {
        let (data, start) = open(path);
        let message = run(&home, &data, &start, grant);
        assert!(!message.contains("99"), "{path} was opened: {message}");
    }
    let (data, start) = open("file");
    let message = run(&home, &data, &start, "");
    assert!(!message.contains("99"), "opened without a grant: {message}");
}

#[test]
fn what_is_no_component_is_refused_before_anything_runs() {
    let wrong: [(&str, Vec<u8>); 6] = [
        ("an empty file", Vec::new()),
        ("text", b"#!/bin/sh\necho owned\n".to_vec()),
        ("a cut header", b"\0asm\x01\0\0".to_vec()),
        ("a module without an entry", wat::parse_str("(module)").unwrap()),
        (
            "a module with unknown imports",
            wat::parse_str("(module (import \"env\" \"system\" (func)) (func (export \"_start\")))").unwrap(),
        ),
        (
            "a cut component",
            std::fs::read(crate::binary::repository().join("guest-steps/dist/categorize-mail.wasm")).unwrap()
                [..5000]
                .to_vec(),
        ),
    ];
    for (what, bytes) in wrong {
        let home = Home::new();
        home.write("step.wasm", bytes);
        home.write("flow.lobster", "steps:\n  - id: guest\n    component: step.wasm\n");
        let message = home.tool(["flow.lobster"]).error();
        has(&message, &["guest", "step.wasm"]);
        assert!(!message.contains("panicked"), "{what}: {message}");
    }
}

#[test]
fn a_component_that_is_not_there_is_named() {
    for component in [
        "gone.wasm",
        "../gone.wasm",
        "blake3:0000000000000000000000000000000000000000000000000000000000000000",
        "blake3:xyz",
    ] {
        let home = Home::new();
        home.write("flow.lobster", format!("steps:\n  - id: guest\n    component: \"{component}\"\n"));
        has(&home.tool(["flow.lobster"]).error(), &["guest"]);
    }
}

#[test]
fn arguments_are_checked_before_anything_runs() {
    let home = Home::new();
    let csv = crate::binary::repository().join("guest-steps/dist/csv.wasm");
    let step = |args: &str| {
        format!(
            "steps:\n  - id: first\n    run: echo hi > touched\n  - id: guest\n    component: {}\n    args: {args}\n",
            csv.display()
        )
    };
    home.write("flow.lobster", step("{ columns: [a, 5] }"));
    has(&home.tool(["flow.lobster"]).error(), &["guest", "$.columns[1]", "5 is not of type \"string\""]);
    assert_eq!(home.read("touched"), "", "a step ran before the mistake was found");
    let checked = home.lobster(["check", "flow.lobster"]).run();
    assert_eq!(checked.code(), 1, "{checked:?}");
    has(&checked.stdout, &["flow.lobster", "guest", "$.columns[1]"]);
    // What becomes known only during the run is not judged before.
    home.write("flow.lobster", step("{ columns: [$first.stdout] }"));
    assert_eq!(home.lobster(["check", "flow.lobster"]).run().code(), 0);
}
