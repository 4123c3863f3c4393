//! A step says what undoes its effects, and `lobster undo` proposes that after a question.

use std::fs;

use serde_json::Value;

use crate::home::{Answer, Home, wait_until};
use crate::staged::tree;

/// Deploys, in a loop and in a sub-workflow, too; each writes to `log` what it does and what undoes it.
const FLOW: &str = r#"
args: { who: { default: "o'x" } }
steps:
  - { id: edit, changes: staged, cwd: src, run: 'echo new > a' }
  - id: deploy
    run: |
      echo deployed >> log
      echo '{"tag": "v7"}'
    undo: { run: 'echo "rollback $WHO $TAG" >> log', env: { WHO: "${who}", TAG: $deploy.json.tag } }
  - { id: list, js: '["one", "two"]' }
  - id: many
    for_each: $list.json
    steps:
      - id: put
        exec: [sh, -c, 'echo "put $0 $X" | tee -a log', $item.json]
        env: { X: "of $item.json" }
        undo: { exec: [sh, -c, 'cat >> log; echo "by $X" >> log'], stdin: $put.stdout }
  - { id: call, workflow: child.lobster, workflow_args: { name: inner } }
"#;

const CHILD: &str = r#"
args: { name: {} }
steps:
  - id: send
    run: 'echo "sent ${name}" >> log; echo 42'
    undo: { workflow: unsend.lobster, workflow_args: { number: $send.json } }
"#;

const UNSEND: &str = "
args: { number: {} }
steps: [{ id: unsend, run: 'echo \"unsent $LOBSTER_ARG_NUMBER\" >> log' }]
";

fn home() -> Home {
    let home = Home::new();
    home.write("flow.lobster", FLOW).write("child.lobster", CHILD).write("unsend.lobster", UNSEND);
    home.write("src/a", "old\n");
    home
}

fn ran(home: &Home, flow: &str) -> String {
    let answer = home.tool([flow]);
    assert_eq!(answer.envelope()["status"], "ok", "{answer:#?}");
    last_run(home)
}

fn last_run(home: &Home) -> String {
    let runs = home.lobster(["runs", "--json"]).run();
    let runs: Value = serde_json::from_str(&runs.stdout).unwrap();
    runs[0]["id"].as_str().unwrap().to_owned()
}

fn gate_of(asked: &Answer) -> String {
    let answer: Value = serde_json::from_str(&asked.stdout).unwrap_or_default();
    answer["requiresApproval"]["approvalId"].as_str().unwrap_or_else(|| panic!("{asked:#?}")).to_owned()
}

/// Approves one question after the other; gives the last answer.
fn approve_all(home: &Home, mut asked: Answer) -> Answer {
    while asked.stdout.contains("needs_approval") {
        let gate = gate_of(&asked);
        asked = home.lobster(["approvals", "approve", &gate]).run();
    }
    asked
}

#[test]
fn effects_are_undone_in_reverse_order_after_one_question_each() {
    let home = home();
    let run = ran(&home, "flow.lobster");
    assert_eq!(home.read("log"), "deployed\nput one of one\nput two of two\nsent inner\n");
    fs::remove_file(home.dir().join("log")).unwrap();

    let planned = home.lobster(["undo", &run, "--dry-run"]).run();
    assert!(planned.stdout.contains("asks  deploy: run: echo \"rollback"), "{planned:#?}");
    assert!(!planned.stderr.contains("Not undone"), "{planned:#?}");
    let asked = home.lobster(["undo", &run]).run();
    // Files first; what has effects waits for a person.
    assert_eq!((home.read("src/a"), home.read("log")), ("old\n".to_owned(), String::new()));
    assert!(asked.stderr.contains("Undid 1 change in run"), "{asked:#?}");
    let shown = home.lobster(["approvals", "show", &gate_of(&asked)]).run();
    assert!(shown.stdout.contains("Undo step call/send of run"), "{shown:#?}");
    // The question shows the command with its references filled in.
    let next = home.lobster(["approvals", "approve", &gate_of(&asked)]).run();
    let shown = home.lobster(["approvals", "show", &gate_of(&next)]).run();
    assert!(shown.stdout.contains("Undo step many[1]/put of run"), "{shown:#?}");
    assert!(shown.stdout.contains("cat >> log"), "{shown:#?}");
    // While it waits, another undo does not do the same.
    let second = home.lobster(["undo", &run]).run();
    assert!(second.code() != 0 && second.stderr.contains("has not ended"), "{second:#?}");
    let done = approve_all(&home, next);
    assert_eq!(done.envelope()["status"], "ok", "{done:#?}");
    let undone = "unsent 42\nput two of two\nby of two\nput one of one\nby of one\nrollback o'x v7\n";
    assert_eq!(home.read("log"), undone);

    let undo = last_run(&home);
    assert_eq!(home.lobster(["replay", &undo]).run().code(), 0);
    assert_eq!(home.lobster(["replay", &run]).run().code(), 0);
    let again = home.lobster(["undo", &run]).run();
    assert!(again.code() != 0 && again.stderr.contains("is undone already"), "{again:#?}");
    assert_eq!(home.read("log"), undone);
    // The undo's own changes to files can be undone; its commands are effects that nothing undoes.
    let back = home.lobster(["undo", &undo]).run();
    assert!(back.code() == 0 && back.stderr.contains("Not undone: other effects"), "{back:#?}");
    assert_eq!((home.read("src/a"), home.read("log")), ("new\n".to_owned(), undone.to_owned()));
}

#[test]
fn a_refused_undo_ends_it_and_the_rest_is_proposed_again() {
    let home = home();
    let run = ran(&home, "flow.lobster");
    fs::remove_file(home.dir().join("log")).unwrap();
    let asked = home.lobster(["undo", &run]).run();
    let next = home.lobster(["approvals", "approve", &gate_of(&asked)]).run();
    let refused = home.lobster(["approvals", "reject", &gate_of(&next)]).run();
    assert_eq!(refused.envelope()["status"], "cancelled", "{refused:#?}");
    assert_eq!(home.read("log"), "unsent 42\n");
    // One step alone.
    let one = home.lobster(["undo", &run, "--step", "deploy"]).run();
    assert_eq!(approve_all(&home, one).envelope()["status"], "ok");
    assert_eq!(home.read("log"), "unsent 42\nrollback o'x v7\n");
    let rest = home.lobster(["undo", &run, "--dry-run"]).run();
    let told: Vec<&str> = rest.stdout.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(told, ["asks  many[1]/put", "asks  many[0]/put"], "{rest:#?}");
}

#[test]
fn a_step_that_failed_or_was_killed_is_proposed_if_its_undo_can_be_known() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        r#"
steps:
  - { id: one, run: 'echo partly; echo one >> log; exit 3', on_error: continue, undo: { run: 'echo "un$P" >> log', env: { P: $one.stdout } } }
  - { id: two, run: 'echo two >> log; touch begun; sleep 60', undo: { run: 'echo untwo >> log' } }
  - { id: never, run: 'echo never', undo: { run: 'echo unnever >> log' } }
"#,
    );
    let mut child = home.lobster(["run", "--mode", "tool", "flow.lobster"]).start();
    wait_until("the second step began", || home.dir().join("begun").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    home.assert_deserted();
    let run = last_run(&home);
    let planned = home.lobster(["undo", &run, "--dry-run"]).run();
    let told: Vec<&str> = planned.stdout.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(told, ["asks  two", "asks  one"], "{planned:#?}");
    let asked = home.lobster(["undo", &run]).run();
    let shown = home.lobster(["approvals", "show", &gate_of(&asked)]).run();
    assert!(shown.stdout.contains("Its end is not known"), "{shown:#?}");
    let next = home.lobster(["approvals", "approve", &gate_of(&asked)]).run();
    let shown = home.lobster(["approvals", "show", &gate_of(&next)]).run();
    assert!(shown.stdout.contains("It failed"), "{shown:#?}");
    assert_eq!(approve_all(&home, next).envelope()["status"], "ok");
    assert_eq!(home.read("log"), "one\ntwo\nuntwo\nunpartly\n\n");
}

#[test]
fn an_undo_that_is_killed_in_the_middle_goes_on_and_does_nothing_twice() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        r#"
steps:
  - { id: one, run: 'echo one >> log', undo: { run: 'echo unone >> log' } }
  - { id: two, run: 'echo two >> log', undo: { run: 'echo untwo >> log; touch begun; while [ ! -e go ]; do sleep 0.05; done' } }
"#,
    );
    let run = ran(&home, "flow.lobster");
    let asked = home.lobster(["undo", &run]).run();
    let mut child = home.lobster(["approvals", "approve", &gate_of(&asked)]).start();
    wait_until("the undo began", || home.dir().join("begun").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    home.assert_deserted();
    home.write("go", "");
    let undo = last_run(&home);
    let again = home.lobster(["undo", &run]).run();
    assert!(again.code() != 0 && again.stderr.contains("has not ended"), "{again:#?}");
    // Nobody saw its end, so a person is asked about it.
    let resumed = home.lobster(["resume", &undo]).run();
    assert!(resumed.error().contains("interrupted"), "{resumed:#?}");
    let retried = home.lobster(["resume", &undo, "--retry-interrupted"]).run();
    assert_eq!(approve_all(&home, retried).envelope()["status"], "ok");
    assert_eq!(home.read("log"), "one\ntwo\nuntwo\nuntwo\nunone\n");
    let again = home.lobster(["undo", &run]).run();
    assert!(again.code() != 0 && again.stderr.contains("is undone already"), "{again:#?}");
}

#[test]
fn a_policy_decides_about_an_undo_as_about_any_command() {
    let home = Home::new();
    home.write("a", "one\n");
    home.write(
        "p.toml",
        "version = 1\n[[rule]]\nid = \"touch\"\neffect = \"allow\"\nprogram = \"touch\"\n\
         grant = { fs_write = [\"@workspace\"] }\n[[rule]]\nid = \"no-rm\"\neffect = \"deny\"\nprogram = \"rm\"\n",
    );
    home.write("flow.lobster", "steps:\n  - { id: make, exec: [touch, made], undo: { exec: [rm, made] } }\n");
    let policy = home.dir().join("p.toml");
    let made = home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_POLICY", &policy).run();
    if made.stdout.contains("cannot enforce") {
        return;
    }
    assert_eq!(made.envelope()["status"], "ok", "{made:#?}");
    let before = tree(&home.dir());
    let asked = home.lobster(["undo", "@"]).env("LOBSTER_POLICY", &policy).run();
    let denied =
        home.lobster(["approvals", "approve", &gate_of(&asked)]).env("LOBSTER_POLICY", &policy).run();
    assert!(denied.error().contains("policy_denied"), "{denied:#?}");
    assert_eq!(tree(&home.dir()), before);
    // The policy of the run holds also where none is in force now.
    let asked = home.lobster(["undo", "@-"]).run();
    let denied = home.lobster(["approvals", "approve", &gate_of(&asked)]).run();
    assert!(denied.error().contains("policy_denied"), "{denied:#?}");
    assert_eq!(tree(&home.dir()), before);
}

/// What can be known is told before anything runs.
#[test]
fn mistakes_in_an_undo_are_errors_of_the_file() {
    let home = Home::new();
    let before = "  - { id: before, run: 'echo x' }\n";
    for (step, told) in [
        ("{ id: a, run: x, undo: { run: y, exec: [z] } }", "takes one of run, exec, component, workflow"),
        ("{ id: a, run: x, undo: { stdin: y } }", "takes one of run, exec, component, workflow"),
        ("{ id: a, run: x, undo: { rum: y } }", "did you mean `run`?"),
        ("{ id: a, run: x, undo: y }", "must be a map"),
        ("{ id: a, run: x, undo: { run: 3 } }", "must be a text"),
        ("{ id: a, js: '1', undo: { run: y } }", "only run, command, exec, pipeline, component"),
        ("{ id: a, approval: sure?, undo: { run: y } }", "only run, command, exec, pipeline, component"),
        (
            "{ id: a, run: x, undo: { run: y, env: { B: $before.stdout } } }",
            "refers to another step: $before.stdout",
        ),
        ("{ id: a, run: x, undo: { exec: [y, $before.json.z] } }", "refers to another step: $before.json.z"),
        ("{ id: a, run: x, undo: { run: y, secrets: [nobody] } }", "nobody"),
        ("{ id: a, run: x, undo: { component: gone.wasm } }", "gone.wasm"),
    ] {
        home.write("flow.lobster", format!("steps:\n{before}  - {step}\n"));
        let checked = home.lobster(["check", "flow.lobster"]).run();
        let said = format!("{}{}", checked.stdout, checked.stderr);
        assert!(checked.code() != 0 && said.contains(told), "{step}: {checked:#?}");
    }
    home.write("flow.lobster", "steps:\n  - { id: a, run: x, undo: { exec: [y, $a.json.z] } }\n");
    let checked = home.lobster(["check", "flow.lobster"]).run();
    assert_eq!(checked.code(), 0, "{checked:#?}");
}

/// Writes what it reads into `undone` of the directory that it may write.
const UNDOES: &str = r#"(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open"
    (func $open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 16) "undone")
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 1024))
    (i32.store (i32.const 4) (i32.const 512))
    (if (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable))
    (i32.store (i32.const 4) (i32.load (i32.const 8)))
    (if (call $open (i32.const 3) (i32.const 0) (i32.const 16) (i32.const 6) (i32.const 1)
          (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 12)) (then unreachable))
    (if (call $write (i32.load (i32.const 12)) (i32.const 0) (i32.const 1) (i32.const 8)) (then unreachable))))"#;

/// Each form of an undo, each by a question that shows it, under a policy that allows them.
#[test]
fn a_component_a_program_a_script_and_a_workflow_undo_steps() {
    let home = Home::new();
    home.write("undoes.wasm", wat::parse_str(UNDOES).unwrap());
    home.write("unsend.lobster", UNSEND);
    fs::create_dir(home.dir().join("out")).unwrap();
    home.write(
        "flow.lobster",
        r#"
steps:
  - id: sent
    run: 'echo sent >> log; echo 7'
    undo: { workflow: unsend.lobster, workflow_args: { number: $sent.json } }
  - id: made
    exec: [sh, -c, 'echo made >> log; echo v7']
    undo: { component: undoes.wasm, stdin: $made.stdout, grants: { write: [out] } }
  - id: called
    run: 'echo called >> log; echo c9'
    undo: { exec: [sh, -c, 'echo "uncalled $0" >> log', $called.stdout] }
  - id: said
    run: 'echo said >> log'
    undo: { run: 'echo unsaid >> log' }
"#,
    );
    let run = ran(&home, "flow.lobster");
    fs::remove_file(home.dir().join("log")).unwrap();
    let planned = home.lobster(["undo", &run, "--dry-run"]).run();
    let told: Vec<&str> = planned.stdout.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(told, ["asks  said", "asks  called", "asks  made", "asks  sent"], "{planned:#?}");
    let mut asked = home.lobster(["undo", &run]).run();
    let mut questions = Vec::new();
    while asked.stdout.contains("needs_approval") {
        let gate = gate_of(&asked);
        questions.push(home.lobster(["approvals", "show", &gate]).run().stdout);
        asked = home.lobster(["approvals", "approve", &gate]).run();
    }
    assert_eq!(asked.envelope()["status"], "ok", "{asked:#?}");
    assert_eq!(questions.len(), 4, "{questions:#?}");
    assert!(questions[2].contains("undoes.wasm") && questions[2].contains("made"), "{questions:#?}");
    assert_eq!(home.read("log"), "unsaid\nuncalled c9\n\nunsent 7\n");
    assert_eq!(home.read("out/undone"), "v7\n");
    let undo = last_run(&home);
    assert_eq!(home.lobster(["replay", &undo]).run().code(), 0);
    let again = home.lobster(["undo", &run]).run();
    assert!(again.code() != 0 && again.stderr.contains("is undone already"), "{again:#?}");
    // What the component wrote is a change set, which an undo of the undo reverts.
    assert_eq!(home.lobster(["undo", &undo]).run().code(), 0);
    assert!(!home.dir().join("out/undone").exists());
}
