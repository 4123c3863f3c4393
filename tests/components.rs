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
fn inline_code_sees_every_earlier_step_that_it_could_look_at() {
    let home = Home::new();
    let given =
        "steps:\n  - {id: s, js: '1'}\n  - {id: a, js: '2'}\n  - {id: aa, js: '3'}\n  - {id: web, js: '4'}\n";
    for (code, seen) in [
        ("Object.keys(steps)", r#"["a","aa","s","web"]"#),
        ("const name = 'we' + 'b'; return [steps[name]]", "[4]"),
        ("Object.entries(steps).map(([id, value]) => id + value)", r#"["a2","aa3","s1","web4"]"#),
        ("const ids = []; for (const id in steps) ids.push(id); return ids", r#"["a","aa","s","web"]"#),
        ("[eval('ste' + 'ps.web')]", "[4]"),
        ("Object.keys(arguments[2])", r#"["a","aa","s","web"]"#),
        ("[steps.aa, steps['web'], steps.none === undefined]", "[3,4,true]"),
    ] {
        let code = serde_json::to_string(code).unwrap();
        home.write("flow.lobster", format!("{given}  - {{id: last, js: {code}}}\n"));
        let answer = home.tool(["flow.lobster"]);
        assert_eq!(answer.envelope()["output"].to_string(), seen, "{code}: {answer:?}");
    }
}

#[test]
fn inline_code_has_the_limits_of_its_step_and_no_others() {
    let home = Home::new();
    let flow = |limits: &str| {
        let code = "let n = 0; for (let i = 0; i < 3e6; i++) n += i % 7; const all = []; for (let i = 0; i < 1.2e6; i++) all.push({i}); return all.length";
        home.write("flow.lobster", format!("steps:\n  - id: much\n    js: {code:?}\n{limits}"));
        home.tool(["flow.lobster"])
    };
    // More fuel and more memory than the evaluator's own description speaks of.
    let answer = flow("");
    assert_eq!(answer.envelope()["output"][0], 1_200_000, "{answer:?}");
    let runs = home.lobster(["runs", "--json"]).run().stdout;
    let run = serde_json::from_str::<serde_json::Value>(&runs).unwrap()[0]["id"].as_str().unwrap().to_owned();
    let replayed = home.lobster(["replay", &run]).run();
    assert_eq!(replayed.code(), 0, "{replayed:?}");
    has(&flow("    limits: { fuel: 30_000_000 }\n").error(), &["fuel (30000000)", "the step sets this"]);
    has(&flow("    limits: { memory: 8MiB }\n").error(), &["js-error"]);
}

#[test]
fn deep_recursion_is_an_error() {
    let message = run(&Home::new(), "(func $deeper (call $deeper) (call $deeper))", "(call $deeper)", "");
    has(&message, &["stack"]);
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
    let text = |wat: &str| wat::parse_str(wat).unwrap();
    let command = |import: &str| {
        text(&format!(
            r#"(component
                (import "{import}" (instance))
                (core module $m (func (export "run") (result i32) i32.const 0))
                (core instance $i (instantiate $m))
                (func $run (result (result)) (canon lift (core func $i "run")))
                (instance $e (export "run" (func $run)))
                (export "wasi:cli/run@0.2.0" (instance $e)))"#
        ))
    };
    let half = r#"(component
        (core module $m (func (export "run")))
        (core instance $i (instantiate $m))
        (func $run (canon lift (core func $i "run")))
        (export "run" (func $run)))"#;
    let wrong: [(&str, Vec<u8>, &str); 12] = [
        ("an empty file", Vec::new(), "not WebAssembly"),
        ("text", b"#!/bin/sh\necho owned\n".to_vec(), "not WebAssembly"),
        ("a cut header", b"\0asm\x01\0\0".to_vec(), "the file ends inside its header"),
        ("a header of the future", b"\0asm\x09\0\0\0".to_vec(), "unknown binary version"),
        ("a module without an entry", text("(module)"), "a core WebAssembly module without `_start`"),
        (
            "a module with unknown imports",
            text("(module (import \"env\" \"system\" (func)) (func (export \"_start\")))"),
            "the component imports `env.system`, which this host does not offer",
        ),
        ("a cut component", hostile()[..5000].to_vec(), "malformed WebAssembly"),
        ("no export", text("(component)"), "exports neither `describe` and `run`"),
        ("half a step", text(half), "exports `run` but not `describe`"),
        (
            "another version of the contract",
            text("(component (import \"lobster:step/io@0.9.0\" (instance)))"),
            "speaks lobster:step/io@0.9.0; this host speaks lobster:step 0.1",
        ),
        ("another version of WASI", command("wasi:io/poll@0.3.0"), "this host speaks WASI 0.2"),
        (
            "a foreign import",
            command("acme:db/query@1.0.0"),
            "imports `acme:db/query@1.0.0`, which this host",
        ),
    ];
    for (what, bytes, said) in wrong {
        let home = Home::new();
        home.write("step.wasm", bytes);
        let flow =
            "steps:\n  - id: first\n    run: echo hi > touched\n  - id: guest\n    component: step.wasm\n";
        home.write("flow.lobster", flow);
        let message = home.tool(["flow.lobster"]).error();
        assert!(message.contains(said), "{what}: {message}");
        has(&message, &["guest", "step.wasm"]);
        assert_eq!(home.read("touched"), "", "{what}: a step ran before the mistake was found");
    }
}

/// A step in Rust that attacks, as it is checked in.
fn hostile() -> Vec<u8> {
    std::fs::read(crate::binary::repository().join("tests/guests/dist/hostile.wasm")).unwrap()
}

/// The hostile step with another schema of its arguments, which must not be longer.
fn forged(schema: &str) -> Vec<u8> {
    let mut bytes = hostile();
    let begin = br#"{"type":"object","description":"...."#;
    let at = bytes.windows(begin.len()).position(|part| part == begin).unwrap();
    let room = bytes[at..].iter().position(|byte| *byte == b'}').unwrap() + 1;
    let padded = format!("{schema:<room$}");
    assert_eq!(padded.len(), room, "{schema} has no room");
    bytes[at..at + room].copy_from_slice(padded.as_bytes());
    bytes
}

#[test]
fn a_component_that_lies_in_its_description_is_refused() {
    let twice =
        |from: &str, to: &str| format!(r##""{from}":{{"allOf":[{{"$ref":"#/{to}"}},{{"$ref":"#/{to}"}}]}}"##);
    let loops = format!(r##"{{"$ref":"#/a",{},{}}}"##, twice("a", "b"), twice("b", "a"));
    for (schema, said) in [
        ("{", "args-schema is not a JSON Schema"),
        (r#"{"type":"everything"}"#, "args-schema is not a JSON Schema"),
        (r#"{"$ref":"file:///etc/passwd"}"#, "args-schema is not a JSON Schema"),
        (&loops, "its references multiply"),
        (r#"{"properties":{"a":{"pattern":"((a{999}){999}){999}"}}}"#, "Invalid regular expression"),
    ] {
        let home = Home::new();
        home.write("step.wasm", forged(schema));
        home.write(
            "flow.lobster",
            "steps:\n  - id: guest\n    component: step.wasm\n    args: { do: input }\n",
        );
        has(&home.tool(["flow.lobster"]).error(), &["guest", "the step's description is not usable", said]);
        let inspected = home.lobster(["step", "inspect", "step.wasm"]).run();
        assert_eq!(inspected.code(), 1, "{inspected:?}");
        has(&inspected.stderr, &[said]);
    }
}

#[test]
fn a_step_opens_only_blobs_that_it_was_given() {
    let home = Home::new();
    home.write("step.wasm", hostile());
    // The first step's output lies in the store; whoever can guess it knows its name.
    let secret = "the password is swordfish\n";
    let digest = lobster_runtime::digest::Digest::of_bytes(secret.as_bytes()).to_string();
    let flow = |args: &str| {
        let text = format!(
            "steps:\n  - id: first\n    exec: [echo, the password is swordfish]\n  - id: guest\n    component: step.wasm\n    args: {args}\n"
        );
        home.write("flow.lobster", text);
        home.tool(["flow.lobster"])
    };
    let (begin, end) = digest.split_at(20);
    for what in ["blob", "blob-by-state"] {
        let guessed = flow(&format!("{{ do: {what}, begin: \"{begin}\", end: \"{end}\" }}"));
        has(&guessed.error(), &["guest", "this step was not given blob", &digest]);
    }
    let named = flow(&format!("{{ do: blob, begin: \"{digest}\" }}"));
    has(&named.output().to_string(), &["swordfish"]);
}

#[test]
fn a_limit_is_traced_to_who_set_it() {
    let home = Home::new();
    home.write("step.wasm", hostile());
    let ends = |step: &str, said: &str| {
        let text = format!("steps:\n  - id: guest\n    component: step.wasm\n    args: {step}\n");
        home.write("flow.lobster", text);
        has(&home.tool(["flow.lobster"]).error(), &["guest", said]);
    };
    ends("{ do: memory }", "268435456 allowed; this is the default: give the step limits.memory");
    ends(
        "{ do: memory }\n    limits: { memory: 300MiB }",
        "314572800 allowed; the step sets this: raise its",
    );
    ends(
        "{ do: talk }\n    limits: { output: 1MB }",
        "1000000 bytes; the step sets this: raise its limits.output",
    );
    ends("{ do: loop }", "fuel (2000000000); the component's description sets this");
    ends(
        "{ do: loop }\n    limits: { fuel: 1000000 }",
        "fuel (1000000); the step sets this: raise its limits.fuel",
    );
    let late = home.lobster(["step", "run", "step.wasm", "--arg", "do=loop", "--timeout", "100ms"]).run();
    has(&late.stderr, &["timeout: the step ran longer than 100ms; the step sets this: raise its timeout_ms"]);
}

#[test]
fn a_memory_limit_bounds_the_whole_process() {
    let home = Home::new();
    // Takes what it can get, touches all of it, says so and waits.
    let module = r#"(module
            (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            (data (i32.const 64) "full")
            (func (export "_start")
                (loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1))))
                (memory.fill (i32.const 1024) (i32.const 1)
                    (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 1024)))
                (i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 4))
                (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 8)))
                (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))))"#;
    home.write("step.wasm", wat::parse_str(module).unwrap());
    let words = ["step", "run", "step.wasm", "--memory", "64MiB", "--input", "-"];
    // Compiling is not what is measured.
    assert_eq!(home.lobster(words).run().code(), 0);
    let mut child = std::process::Command::new(crate::binary::lobster())
        .args(words)
        .current_dir(home.dir())
        .env("LOBSTER_STATE_DIR", home.state())
        .stdin(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 4];
    std::io::Read::read_exact(child.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert_eq!(&said, b"full");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let held = |name: &str| -> u64 {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    // The code of an unoptimised build is as large as all the rest.
    let peak = if cfg!(debug_assertions) { held("RssAnon:") } else { held("VmHWM:") };
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert!(peak > 63 << 10 && peak <= (64 + 40) << 10, "{peak} KiB: {status}");
}

#[test]
fn a_damaged_component_does_no_harm() {
    let home = Home::new();
    let whole = hostile();
    // A generator of its own, so that a failure can be repeated.
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % below as u64).unwrap()
    };
    let mut ran = 0;
    for round in 0..24 {
        let mut bytes = whole.clone();
        for _ in 0..=next(3) {
            let at = next(bytes.len());
            bytes[at] = u8::try_from(next(256)).unwrap();
        }
        if round % 6 == 5 {
            bytes.truncate(next(whole.len()));
        }
        home.write("step.wasm", &bytes);
        let words =
            ["step", "run", "step.wasm", "--arg", "do=ambient", "--fuel", "10_000_000", "--memory", "16MiB"];
        let answer = home.lobster(words).run();
        assert!((0..=3).contains(&answer.code()), "round {round}: {answer:?}");
        assert!(!answer.stderr.contains("lobster panicked"), "round {round}: {answer:?}");
        ran += i32::from(answer.code() == 0);
    }
    assert!(ran > 0, "no damage was slight enough to be run");
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
    has(&home.tool(["flow.lobster"]).error(), &["guest", "$.columns[1]", "must be string"]);
    assert_eq!(home.read("touched"), "", "a step ran before the mistake was found");
    let checked = home.lobster(["check", "flow.lobster"]).run();
    assert_eq!(checked.code(), 1, "{checked:?}");
    has(&checked.stdout, &["flow.lobster", "guest", "$.columns[1]"]);
    // What becomes known only during the run is not judged before.
    home.write("flow.lobster", step("{ columns: [$first.stdout] }"));
    assert_eq!(home.lobster(["check", "flow.lobster"]).run().code(), 0);
}

fn ready(name: &str) -> Vec<u8> {
    std::fs::read(crate::binary::repository().join(format!("guest-steps/dist/{name}.wasm"))).unwrap()
}

/// What `lobster check` says, and whether it lets the file pass.
fn checked(home: &Home) -> (i32, String) {
    let answer = home.lobster(["check", "flow.lobster"]).run();
    (answer.code(), answer.stdout)
}

#[test]
fn a_component_that_cannot_run_is_refused_before_the_first_effect() {
    let home = Home::new();
    let net = r#"(component
        (import "wasi:sockets/network@0.2.0" (instance))
        (core module $m (func (export "run") (result i32) i32.const 0))
        (core instance $i (instantiate $m))
        (func $run (result (result)) (canon lift (core func $i "run")))
        (instance $e (export "run" (func $run)))
        (export "wasi:cli/run@0.2.0" (instance $e)))"#;
    let command = format!("(module {IMPORTS} (func (export \"_start\")))");
    home.write("net.wasm", wat::parse_str(net).unwrap())
        .write("command.wasm", wat::parse_str(command).unwrap())
        .write("csv.wasm", ready("csv"))
        .write("p.toml", "version = 1\n[components]\nclock = false\n");
    let stage = "pipeline: \"exec --json --shell 'echo 1' | component csv.wasm";
    let write = |work: &str| {
        home.write(
            "flow.lobster",
            format!("steps:\n  - id: touch\n    run: echo hi > touched\n  - id: guest\n    {work}\n"),
        );
    };
    let check = |place: &str| {
        let policy = home.dir().join("p.toml");
        let told = home.lobster(["check", "flow.lobster"]).env("LOBSTER_POLICY", policy).run();
        assert_eq!(told.code(), 1, "{told:?}");
        assert!(told.stdout.contains(&format!("flow.lobster:{place}")), "{told:?}");
        told.stdout
    };
    for (work, place, parts) in [
        ("component: net.wasm", "5:5", &["imports `wasi:sockets/network@0.2.0`", "no grant"][..]),
        ("component: csv.wasm\n    args: {nope: 1}", "6:5", &["additional properties ('nope')", "6 |"]),
        ("component: command.wasm\n    args: {argv: text}", "6:5", &["$.argv: it is not a list of words"]),
        ("component: command.wasm\n    args: {a: 1}", "6:5", &["$.a: a command program takes words alone"]),
        ("component: none.wasm", "5:5", &["cannot read"]),
        (&format!("{stage} --arg nope=1\""), "5:47", &["additional properties ('nope')"]),
        (&format!("{stage} --memry 1\""), "5:47", &["unknown option --memry; did you mean --memory?"]),
    ] {
        write(work);
        let answer = home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "flow.lobster"]).run();
        let message = answer.error();
        has(&message, &["guest", &format!("(flow.lobster:{}", &place[..1])]);
        has(&message, parts);
        assert!(message.contains(&format!("(flow.lobster:{place})")), "{place}: {message}");
        assert_eq!(home.read("touched"), "", "{work}: a step ran before the mistake was found");
        check(place);
    }
    // What the policy denies is known beforehand, too; the run comes to it, so that it is on record.
    for (work, place) in [
        ("component: command.wasm\n    grants: {clock: true}", "4:5"),
        ("js: '1'\n    grants: {clock: true}", "4:5"),
        (&format!("{stage} --grant-clock\""), "3:47"),
    ] {
        home.write("flow.lobster", format!("steps:\n  - id: guest\n    {work}\n"));
        has(&check(place), &["set components.clock = true"]);
        let answer = home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "flow.lobster"]).run();
        has(&answer.error(), &["set components.clock = true"]);
    }
    let told = home.lobster(["audit", "--kind", "decision", "--jsonl"]).run();
    assert_eq!(told.stdout.matches("\"verdict\":\"deny\"").count(), 3, "{told:?}");
    home.write("touched", "");
    for (options, part) in
        [("--arg nope=1", "additional properties ('nope')"), ("--fule 1", "did you mean --fuel?")]
    {
        let line = format!("exec --shell 'echo 1 > touched' | component csv.wasm {options}");
        has(&home.tool([line.as_str()]).error(), &[part]);
        assert_eq!(home.read("touched"), "", "{options}: a stage ran before the mistake was found");
    }
}

#[test]
fn a_grant_that_cannot_be_given_fails_its_step_alone() {
    let home = Home::new();
    let command = format!("(module {IMPORTS} (func (export \"_start\")))");
    home.write("step.wasm", wat::parse_str(command).unwrap()).write("file", "text").write("dir/file", "text");
    std::fs::create_dir(home.dir().join("empty")).unwrap();
    let mut grants = vec![
        "read: ['./file:/in']",
        "write: ['./file:/in']",
        "read: ['./missing:/in']",
        "read: ['./dir:/in', './empty:/in/']",
        "{read: ['./dir:/in'], write: ['./empty:/in']}",
    ];
    if cfg!(target_os = "linux") {
        grants.push("read: ['/proc/self:/in']");
    }
    for grant in grants {
        let grant = if grant.starts_with('{') { grant.to_owned() } else { format!("{{{grant}}}") };
        let flow = |handling: &str| {
            format!(
                "steps:\n  - id: guest\n    component: step.wasm\n    grants: {grant}\n{handling}  - id: after\n    run: echo after\n"
            )
        };
        home.write("flow.lobster", flow(""));
        let message = home.tool(["flow.lobster"]).error();
        has(&message, &["guest", "the grant ", " cannot be given: "]);
        home.write("flow.lobster", flow("    on_error: continue\n"));
        let answer = home.tool(["flow.lobster"]);
        assert!(answer.envelope()["output"].to_string().contains("after"), "{grant}: {answer:?}");
    }
    home.write(
        "flow.lobster",
        "steps:\n  - id: guest\n    component: step.wasm\n    grants: {read: ['./dir:/in', './empty:/in']}\n",
    );
    let (code, told) = checked(&home);
    assert_eq!(code, 1, "{told}");
    has(&told, &["its path in the program, /in, is already the path of"]);
}

#[test]
fn a_grant_that_nobody_asks_for_is_spoken_of() {
    let home = Home::new();
    home.write("jq.wasm", ready("jq")).write("sort.wasm", ready("categorize-mail")).write("d/x.txt", "x");
    let step = |component: &str, rest: &str| {
        let grants = "grants: { read: [{ from: ./d, to: /in }] }";
        home.write(
            "flow.lobster",
            format!("steps:\n  - id: guest\n    component: {component}\n    {grants}\n{rest}"),
        );
    };
    let refused = "read /in: the component's description does not ask for it";
    step("jq.wasm", "    args: { filter: 'error(\"x\")' }\n    stdin: '1'\n");
    let (code, said) = checked(&home);
    assert_eq!(code, 0, "{said}");
    has(&said, &["warning[W0812]", "flow.lobster:4:5", refused]);
    let failed = home.tool(["flow.lobster"]);
    has(&failed.error(), &[&format!("(withheld: {refused})")]);
    has(&failed.stderr, &["warning:", refused]);
    let runs: serde_json::Value =
        serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let shown = home.lobster(["show", runs[0]["id"].as_str().unwrap(), "--full"]).run();
    has(&shown.stdout, &[refused]);
    // It asks for a directory, but for another one.
    step("sort.wasm", "");
    has(&checked(&home).1, &[refused]);
    has(&home.tool(["flow.lobster"]).error(), &["cannot read `/mail`", refused]);
    let alone = home.lobster(["step", "run", "jq.wasm", "--read", "d:/in", "--arg", "filter=."]).run();
    assert_eq!(alone.code(), 0, "{alone:?}");
    has(
        &alone.stderr,
        &[&format!("in a workflow the step would not get {}", refused.replace(':', ", because"))],
    );
}

#[test]
fn steps_that_read_bytes_read_the_lines_of_a_pipeline() {
    let home = Home::new();
    for name in ["csv", "mime", "html-text"] {
        home.write(&format!("{name}.wasm"), ready(name));
    }
    home.write("p.csv", "name,price\npear,4\nfig,12\n")
        .write("m.eml", "Subject: hello\r\nFrom: a@b.example\r\n\r\nfirst\r\n\r\nlast\r\n")
        .write("h.html", "<h1>Title</h1>\n<p>one\ntwo</p>\n");
    let first = |line: &str| home.tool([line]).output()[0].clone();
    assert_eq!(
        first("exec cat p.csv | component ./csv.wasm --text | where 'price>10'"),
        serde_json::json!({ "name": "fig", "price": "12" })
    );
    let mail = first("exec --all-lines -- cat m.eml | component ./mime.wasm --text");
    assert_eq!((&mail["subject"], &mail["text"]), (&"hello".into(), &"first\n\nlast".into()), "{mail}");
    assert_eq!(first("exec cat h.html | component ./html-text.wasm --text"), "# Title\n\none two\n");
    let wrong = home.tool(["exec --json --shell 'echo [1,2]' | component ./csv.wasm --text"]).error();
    has(&wrong, &["component --text: item 1 is not text: 1"]);
}

#[test]
fn stages_have_limits() {
    let home = Home::new();
    home.write("jq.wasm", ready("jq"));
    let filter = "component jq.wasm --arg 'filter=[range(1000)]|length' --input-json 1";
    assert_eq!(home.tool([filter]).output()[0], 1000);
    for (options, parts) in [
        ("--fuel 1_000", &["fuel (1000)", "the step sets this"][..]),
        ("--memory 64KiB", &["memory", "65536"]),
        ("--output 2", &["2 bytes", "the step sets this"]),
    ] {
        has(&home.tool([format!("{filter} {options}")]).error(), parts);
    }
    has(&home.tool(["js 'for (;;);' --fuel 5_000_000"]).error(), &["fuel (5000000)"]);
    has(&home.tool(["js 'for (;;);' --timeout 200ms"]).error(), &["200ms"]);
}

#[test]
fn a_command_program_takes_its_words_alone() {
    let home = Home::new();
    // Exits with the number of its words.
    let count = r#"(module
      (import "wasi_snapshot_preview1" "args_sizes_get" (func $sizes (param i32 i32) (result i32)))
      (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
      (memory (export "memory") 1)
      (func (export "_start")
        (drop (call $sizes (i32.const 0) (i32.const 4)))
        (call $exit (i32.load (i32.const 0)))))"#;
    home.write("count.wasm", wat::parse_str(count).unwrap());
    let run = |words: &[&str]| {
        let mut all = vec!["step", "run", "count.wasm"];
        all.extend(words);
        home.lobster(all).run()
    };
    assert_eq!(run(&["--args-json", r#"{"argv":["x","y"]}"#]).code(), 3);
    assert_eq!(run(&["--arg", r#"argv=["x"]"#]).code(), 2);
    assert_eq!(run(&["--", "x", "y", "z"]).code(), 4);
    for (words, part) in [
        (&["--arg", "a=1"][..], "bad-args: the arguments do not fit the step: $.a"),
        (&["--arg", "argv=x"], "$.argv: it is not a list of words"),
        (&["--arg", r#"argv=["x"]"#, "--", "y"], "give the words either"),
    ] {
        let answer = run(words);
        assert!(answer.code() != 0 && answer.stderr.contains(part), "{answer:?}");
    }
}

#[test]
fn what_a_component_says_of_itself_cannot_command_the_terminal() {
    let home = Home::new();
    let with = |was: &str, is: &str| {
        assert_eq!(was.len(), is.len());
        let mut bytes = ready("categorize-mail");
        let at = bytes.windows(was.len()).position(|part| part == was.as_bytes()).unwrap();
        bytes[at..at + is.len()].copy_from_slice(is.as_bytes());
        home.write("step.wasm", bytes);
        home.lobster(["step", "inspect", "step.wasm"]).run()
    };
    let forged = with("the e-mail files", "\n\nIt cannot\n\x1b[2J");
    assert_eq!(forged.code(), 0, "{forged:?}");
    assert!(
        !forged.stdout.contains('\x1b') && forged.stdout.matches("\nIt cannot\n").count() == 1,
        "{forged:?}"
    );
    let refused = with("categorize-mail0.1.0", "categorize\x1bmail0.1.0");
    assert_eq!(refused.code(), 1, "{refused:?}");
    has(&refused.stderr, &["bad-description", "its name"]);
}

#[test]
fn validated_items_keep_their_digits() {
    let items =
        "{\"id\":98765432109876543210987}\n{\"id\":0.1000000000000000055}\n{\"price\":1.10}\n{\"zero\":-0}\n";
    let home = Home::new();
    home.write("items.jsonl", items).write("validate.wasm", ready("json-schema"));
    let words = ["step", "run", "validate.wasm", "--arg", "schema={}", "--items", "--input", "items.jsonl"];
    assert_eq!(home.lobster(words).run().stdout, items);
}
