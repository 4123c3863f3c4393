//! Effects that are cached on their author's word: done once, and again as soon
//! as anything that the author named has changed.

use serde_json::{Value, json};

use crate::faults;
use crate::home::{Answer, Home};

/// A step that leaves a line each time it runs, and prints its input file.
const STEP: &str = "steps:
  - id: count
    run: echo ran >> log; cat data.txt
    inputs: [data.txt]
    cache: true
";

fn home() -> Home {
    let home = Home::new();
    home.write("flow.lobster", STEP).write("data.txt", "one");
    home
}

/// How often the step ran.
fn times(home: &Home) -> usize {
    home.read("log").lines().count()
}

fn run(home: &Home) -> Value {
    home.tool(["flow.lobster"]).output()
}

/// The last run, as `show` tells it.
fn last_run(home: &Home) -> String {
    let runs = home.lobster(["runs", "--json"]).run();
    let runs: Value = serde_json::from_str(&runs.stdout).unwrap();
    runs[0]["id"].as_str().unwrap().to_owned()
}

fn says(answer: &Answer, part: &str) {
    assert!(answer.stdout.contains(part), "{part:?} is not in {answer:#?}");
}

#[test]
fn it_is_done_once_and_again_when_an_input_file_changes() {
    let home = home();
    assert_eq!(run(&home), json!(["one"]));
    assert_eq!(run(&home), json!(["one"]));
    assert_eq!(times(&home), 1);
    let cached = last_run(&home);
    says(&home.lobster(["show", &cached]).run(), "cached");
    // It was decided about and ended, and not started.
    let audit = home.lobster(["audit", "--run", &cached]).run();
    says(&audit, "cached");
    assert!(
        !audit.stdout.lines().any(|line| line.contains("started") && line.contains("native")),
        "{audit:#?}"
    );
    let replay = home.lobster(["replay", &cached]).run();
    assert_eq!(replay.code(), 0, "{replay:#?}");
    // The same size, within the same instant.
    home.write("data.txt", "two");
    assert_eq!(run(&home), json!(["two"]));
    assert_eq!(times(&home), 2);
    let why = home.lobster(["why", &last_run(&home), "count"]).run();
    says(&why, "count differs by the input file data.txt: blake3:");
    // What was known of the first content is still known.
    home.write("data.txt", "one");
    assert_eq!(run(&home), json!(["one"]));
    assert_eq!(times(&home), 2);
    std::fs::remove_file(home.dir().join("data.txt")).unwrap();
    assert!(home.tool(["flow.lobster"]).error().contains("data.txt"));
    assert_eq!(times(&home), 3);
    // A replay reads no files, so what has become of them is no difference.
    let replay = home.lobster(["replay", &cached]).run();
    assert_eq!(replay.code(), 0, "{replay:#?}");
}

#[test]
fn a_bundle_of_it_verifies_where_nothing_else_is() {
    let (home, elsewhere) = (home(), Home::new());
    run(&home);
    run(&home);
    let bundle = elsewhere.dir().join("run.bundle");
    let exported = home.lobster(["bundle", "export", &last_run(&home), "-o", bundle.to_str().unwrap()]).run();
    assert_eq!(exported.code(), 0, "{exported:#?}");
    let verified = elsewhere.lobster(["bundle", "verify", "run.bundle"]).run();
    assert_eq!(verified.code(), 0, "{verified:#?}");
}

#[test]
fn a_changed_program_argument_or_directory_runs_it_again() {
    let home = Home::new();
    home.write("tool", "#!/bin/sh\necho ran >> \"$HOME/log\"; echo one\n").write(
        "flow.lobster",
        "args: {n: {default: 1}}\nsteps:\n  - {id: a, run: ./tool, cache: true, cwd: '${dir}'}\n",
    );
    let runs = |args: &[&str]| home.tool(["flow.lobster", "--arg", "dir=."].iter().chain(args)).output();
    runs(&[]);
    assert_eq!(runs(&[]), json!(["one\n"]));
    home.write("tool", "#!/bin/sh\necho ran >> \"$HOME/log\"; echo two\n");
    assert_eq!(runs(&[]), json!(["two\n"]));
    let why = home.lobster(["why", &last_run(&home), "a"]).run();
    says(&why, "a differs by the program ");
    runs(&["--arg", "n=2"]);
    home.write("sub/tool", "#!/bin/sh\necho three\n");
    assert_eq!(runs(&["--arg", "dir=sub"]), json!(["three\n"]));
}

#[test]
fn failures_are_not_kept() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - {id: a, run: echo ran >> log; test -e ok, cache: true}\n");
    home.tool(["flow.lobster"]).error();
    home.tool(["flow.lobster"]).error();
    home.write("ok", "");
    home.tool(["flow.lobster"]).output();
    home.tool(["flow.lobster"]).output();
    assert_eq!(times(&home), 3);
}

#[test]
fn a_step_that_changes_its_own_inputs_is_not_kept() {
    let home = Home::new();
    home.write("data.txt", "x").write(
        "flow.lobster",
        "steps:\n  - {id: a, run: echo ran >> log; echo y > data.txt, inputs: [data.txt], cache: true}\n",
    );
    for times_ran in [1, 2, 2] {
        home.tool(["flow.lobster"]).output();
        assert_eq!(times(&home), times_ran);
    }
}

#[test]
fn it_is_kept_as_long_as_the_author_says() {
    let home = Home::new();
    let flow = |ttl: &str| format!("steps:\n  - {{id: a, run: echo ran >> log, cache: {{ttl: {ttl}}}}}\n");
    home.write("flow.lobster", flow("1h"));
    run(&home);
    run(&home);
    assert_eq!(times(&home), 1);
    std::thread::sleep(std::time::Duration::from_millis(400));
    // What was kept for an hour is too old for whoever wants it younger.
    home.write("flow.lobster", flow("300ms"));
    run(&home);
    assert_eq!(times(&home), 2);
    std::thread::sleep(std::time::Duration::from_millis(400));
    run(&home);
    assert_eq!(times(&home), 3);
}

#[test]
fn a_pure_step_is_kept_as_long_as_the_author_says() {
    let home = Home::new();
    let state = |home: &Home| {
        let shown = home.lobster(["show", &last_run(home)]).run();
        shown.stdout.contains("cached")
    };
    home.write("flow.lobster", "steps:\n  - {id: a, js: '1', cache: {ttl: 1h}}\n");
    run(&home);
    run(&home);
    assert!(state(&home));
    std::thread::sleep(std::time::Duration::from_millis(400));
    home.write("flow.lobster", "steps:\n  - {id: a, js: '1', cache: {ttl: 300ms}}\n");
    run(&home);
    assert!(!state(&home));
    home.write("flow.lobster", "steps:\n  - {id: a, js: '1', cache: false}\n");
    run(&home);
    assert!(!state(&home));
}

#[test]
fn no_cache_does_everything_and_keeps_what_it_gave() {
    let home = home();
    run(&home);
    home.tool(["--no-cache", "flow.lobster"]).output();
    home.tool(["flow.lobster", "--no-cache"]).output();
    home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_NO_CACHE", "1").run().output();
    assert_eq!(times(&home), 4);
    run(&home);
    assert_eq!(times(&home), 4);
    // It holds to the end of the run, whoever answers its questions.
    home.write(
        "flow.lobster",
        format!(
            "{STEP}  - {{id: ask, approval: Go on?}}\n{}",
            STEP.replace("count", "again").replace("steps:\n", "")
        ),
    );
    let asked = home.tool(["--no-cache", "flow.lobster"]);
    assert_eq!(times(&home), 5);
    home.lobster(["resume", "--token", &asked.token(), "--approve", "yes"]).run().output();
    assert_eq!(times(&home), 6);
    // Or it begins with an answer.
    let asked = home.tool(["flow.lobster"]);
    assert_eq!(times(&home), 6);
    home.lobster(["resume", "--token", &asked.token(), "--approve", "yes", "--no-cache"]).run().output();
    assert_eq!(times(&home), 7);
}

/// A policy with this rule for `printenv`, for machines without a sandbox too.
fn policy(home: &Home, rule: &str) {
    let text = format!(
        "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n\
         [[rule]]\nid = \"r\"\nprogram = \"printenv\"\n{rule}\n"
    );
    home.write("policy.toml", text);
}

#[test]
fn the_policy_has_the_first_word() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - {id: a, exec: [printenv, HERE], cache: true}\n");
    let call = |here: &str| {
        let policy = home.dir().join("policy.toml");
        let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]);
        call.env("LOBSTER_POLICY", policy).env("HERE", here).run()
    };
    let cached = || home.lobster(["show", &last_run(&home)]).run().stdout.contains("cached");
    policy(&home, "effect = \"allow\"\ngrant = { env = [\"HERE\"] }");
    assert_eq!(call("1").output(), json!([1]));
    assert_eq!((call("1").output(), cached()), (json!([1]), true));
    // What a policy lets through belongs to what is cached.
    assert_eq!((call("2").output(), cached()), (json!([2]), false));
    policy(&home, "effect = \"deny\"");
    assert!(call("1").error().contains("policy"));
    // A question is asked each time.
    policy(&home, "effect = \"ask\"\ngrant = { env = [\"HERE\"] }");
    for known in [false, true] {
        let asked = call("1");
        let resume = home.lobster(["resume", "--token", &asked.token(), "--approve", "yes"]);
        let done = resume.env("LOBSTER_POLICY", home.dir().join("policy.toml")).env("HERE", "1").run();
        assert_eq!((done.output(), cached()), (json!([1]), known));
    }
}

#[test]
fn a_fork_takes_over_does_again_and_sees_changed_files() {
    let home = home();
    run(&home);
    let first = last_run(&home);
    let fork = |words: &[&str]| {
        let answer = home.lobster(["fork", &first].iter().chain(words)).run();
        assert_eq!(answer.code(), 0, "{answer:#?}");
    };
    fork(&[]);
    assert_eq!(times(&home), 1);
    fork(&["--from", "count"]);
    assert_eq!(times(&home), 2);
    home.write("data.txt", "two");
    fork(&[]);
    assert_eq!(times(&home), 3);
    assert_eq!(home.lobster(["replay", &last_run(&home)]).run().code(), 0);
}

#[test]
fn inputs_alone_say_why_and_keep_nothing() {
    let home = Home::new();
    home.write("in/a", "1").write("in/b", "1").write(
        "flow.lobster",
        "steps:\n  - {id: a, run: echo ran >> log, inputs: [in, 'none/*'], cache: false}\n",
    );
    run(&home);
    home.write("in/b", "2");
    run(&home);
    assert_eq!(times(&home), 2);
    says(&home.lobster(["why", &last_run(&home), "a"]).run(), "a differs by the input file in/b: ");
    home.write("none/x", "2");
    run(&home);
    let why = home.lobster(["why", &last_run(&home), "a", "--full"]).run();
    says(&why, "none/x");
}

#[test]
fn a_promise_that_cannot_be_kept_is_refused_at_its_line() {
    for (step, message) in [
        (
            "{id: a, pipeline: json, cache: true}",
            "only run, command, exec, component and js steps can be cached",
        ),
        ("{id: a, workflow: x.lobster, cache: {ttl: 1m}}", "only run, command, exec, component and js"),
        ("{id: a, js: '1', inputs: [x]}", "only run, command and exec steps take input files"),
        ("{id: a, run: x, secrets: [T], cache: true}", "a step with secrets or credentials is never cached"),
        (
            "{id: a, run: x, credentials: {api.test: T}, cache: true}",
            "secrets or credentials is never cached",
        ),
        ("{id: a, component: x.wasm, grants: {write: [o]}, cache: true}", "may write files is never cached"),
    ] {
        let home = Home::new();
        home.write("flow.lobster", format!("secrets: [T]\nsteps:\n  - {step}\n"));
        let checked = home.lobster(["check", "flow.lobster"]).run();
        let said = format!("{}{}", checked.stdout, checked.stderr);
        assert!(said.contains(message) && said.contains("flow.lobster:3:"), "{step}: {said}");
        assert_ne!(checked.code(), 0);
        assert!(home.tool(["flow.lobster"]).error().contains(message), "{step}");
    }
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - {id: a, run: 'true', inputs: [x]}\n");
    let checked = home.lobster(["check", "flow.lobster"]).run();
    assert!(format!("{}{}", checked.stdout, checked.stderr).contains("inputs without cache"), "{checked:#?}");
}

#[test]
fn a_program_that_is_told_the_same_in_another_order_is_another_action() {
    let home = Home::new();
    home.write(
        "keys.lobster",
        "steps:
  - id: data
    run: cat data.json
  - id: keys
    js: Object.keys(input).join()
    stdin: $data.json
",
    );
    for (data, keys) in
        [(r#"{"a":1,"b":2}"#, "a,b"), (r#"{"b":2,"a":1}"#, "b,a"), (r#"{"a":1,"b":2}"#, "a,b")]
    {
        home.write("data.json", data);
        assert_eq!(home.tool(["keys.lobster"]).output(), json!([keys]));
        assert_eq!(home.lobster(["replay", &last_run(&home)]).run().code(), 0);
    }
    says(&home.lobster(["show", &last_run(&home)]).run(), "cached");
    says(
        &home.lobster(["why", &last_run(&home), "keys"]).run(),
        "keys differs by the order or spelling of the arguments: ",
    );
}

#[test]
fn what_a_clock_that_ran_ahead_dated_is_not_young() {
    let Some(shim) = faults::shim() else { return };
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - {id: a, run: echo ran >> log, cache: {ttl: 2s}}\n");
    let ahead = |days: i64| {
        let call = home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LD_PRELOAD", shim);
        call.env("LOBSTER_SHIM_CLOCK", (days * 86_400).to_string()).run().output();
    };
    ahead(10);
    ahead(0);
    assert_eq!(times(&home), 2);
}

#[test]
fn a_step_that_names_no_path_is_the_same_action_in_two_directories_and_is_done_in_each() {
    let home = Home::new();
    let flow = "steps:\n  - id: a\n    run: cat data.txt; echo ran >> log\n    cache: true\n  \
                - {id: b, run: pwd > here, cwd: sub}\n  - {id: c, run: 'true', cwd: /}\n";
    for (dir, text) in [("one", "first"), ("two", "second")] {
        home.write(&format!("{dir}/flow.lobster"), flow)
            .write(&format!("{dir}/data.txt"), text)
            .write(&format!("{dir}/sub/x"), "");
        let run = || home.lobster(["run", "--mode", "tool", "flow.lobster"]).dir(&home.dir().join(dir)).run();
        run().output();
        run().output();
        // What is cached here is not had there: the command may read what its author did not name.
        assert_eq!(home.read(&format!("{dir}/log")), "ran\n");
        assert!(home.read(&format!("{dir}/sub/here")).trim().ends_with(&format!("{dir}/sub")));
    }
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let id = |at: usize| runs[at]["id"].as_str().unwrap();
    for step in ["a", "b", "c"] {
        let why = home.lobster(["why", id(0), step, "--vs", id(3), "--full"]).run();
        assert!(why.stdout.contains("the same") && !why.stdout.contains("differs"), "{step}: {why:#?}");
    }
    for run in [id(0), id(3)] {
        let replay = home.lobster(["replay", run]).run();
        assert_eq!(replay.code(), 0, "{replay:#?}");
    }
}
