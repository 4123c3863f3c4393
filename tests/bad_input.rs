//! Wrong requests and wrong files: exactly one clear error, in the right form.

use std::os::unix::fs::PermissionsExt;

use crate::binary;
use crate::home::{Answer, Home};
use crate::lesser_kernels::NOBODY;

/// Runs this text as a workflow.
fn flow(text: &str) -> (Home, Answer) {
    let home = Home::new();
    let answer = home.write("flow.lobster", text).tool(["flow.lobster"]);
    (home, answer)
}

#[track_caller]
fn refused(answer: &Answer, parts: &[&str]) {
    let message = answer.error();
    for part in parts {
        assert!(message.contains(part), "{part:?} is not in: {message}");
    }
}

#[test]
fn files_that_cannot_be_workflows() {
    let home = Home::new();
    std::fs::create_dir(home.dir().join("dir.lobster")).unwrap();
    home.write("flow.txt", "steps: []");
    for (file, parts) in [
        ("gone.lobster", &["gone.lobster", "no such file"][..]),
        ("dir.lobster", &["dir.lobster", "not a file"]),
        ("flow.txt", &["flow.txt", ".lobster"]),
        ("/dev/null", &["/dev/null"]),
        ("gone/deep.lobster", &["gone/deep.lobster"]),
        ("flow.txt/x.lobster", &["x.lobster"]),
        ("nul\u{1}.lobster", &["no such file"]),
    ] {
        refused(&home.tool(["--file", file]), parts);
        let human = home.lobster(["run", "--file", file]).run();
        assert_eq!((human.code(), human.stdout.as_str()), (2, ""), "{human:?}");
        assert_eq!(human.stderr.matches("Parse error: ").count(), 1, "{human:?}");
    }
}

#[test]
fn a_file_that_may_not_be_read() {
    let home = Home::new();
    home.write("flow.lobster", "steps: [{id: a, run: echo}]");
    let file = home.dir().join("flow.lobster");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o000)).unwrap();
    let words = ["run", "--mode", "tool", "flow.lobster"];
    if !rustix::process::geteuid().is_root() {
        refused(&home.lobster(words).run(), &["flow.lobster", "ermission"]);
        return;
    }
    // Root may read everything, and somebody else starts only what lies where he may look.
    let place = tempfile::tempdir().unwrap();
    std::fs::set_permissions(place.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = place.path().join("lobster");
    binary::copy_program(binary::lobster(), &program);
    let state = place.path().join("state");
    std::fs::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
    std::fs::copy(&file, place.path().join("flow.lobster")).unwrap();
    let user = NOBODY.to_string();
    let call = home.program("setpriv", ["--reuid", &user, "--regid", &user, "--clear-groups"]);
    let call = call.words([program.as_os_str()]).words(words).dir(place.path());
    refused(&call.env("LOBSTER_STATE_DIR", &state).run(), &["flow.lobster", "ermission"]);
}

#[test]
fn a_start_without_room_for_a_thread_is_answered_with_an_envelope() {
    let home = Home::new();
    let limited = ["-c", "ulimit -v 250000; exec \"$0\" run --mode tool \"$@\""];
    let call = home.program("sh", limited).words([binary::lobster()]).words(["exec --shell true"]);
    refused(&call.run(), &["lobster cannot start", "ulimit -v"]);
}

#[test]
fn files_that_are_no_workflow_point_at_the_place() {
    for (text, parts) in [
        ("", &["flow.lobster"][..]),
        ("steps: [", &["flow.lobster:"]),
        ("steps:\n\t- id: a\n", &["flow.lobster:2"]),
        ("steps: 5\n", &["flow.lobster:1", "steps"]),
        ("steps: []\n", &["steps"]),
        ("- a\n- b\n", &["flow.lobster"]),
        ("\"just text\"", &["flow.lobster"]),
        ("steps:\n  - run: echo\n", &["id"]),
        ("steps:\n  - id: a\n    run: [x]\n", &["flow.lobster:2", "run"]),
        ("steps:\n  - id: a\n    run: x\n  - id: a\n    run: y\n", &["flow.lobster:4", "a"]),
        ("steps:\n  - id: a\n    run: x\n    retry: { max: many }\n", &["flow.lobster:4", "max"]),
        ("steps:\n  - id: a\n    run: x\n    timeout_ms: -1\n", &["flow.lobster:4", "timeout_ms"]),
        ("steps:\n  - id: a\n    run: x\n    when: $a.b ==\n", &["flow.lobster:4"]),
        ("steps:\n  - id: a\n    run: x\n    when: $nobody.json\n", &["nobody"]),
        ("steps:\n  - id: a\n    run: x\n    stdin: $nobody.json\n", &["nobody"]),
        ("steps:\n  - id: a\n    for_each: $nobody.json\n    steps: [{ id: b, run: x }]\n", &["nobody"]),
        ("steps:\n  - id: a\n    pipeline: nope.command | head\n", &["nope.command"]),
        ("steps:\n  - id: a\n    pipeline: \"exec echo 'open\"\n", &["a"]),
        ("steps:\n  - id: a\n    workflow: gone.lobster\n", &["gone.lobster"]),
        ("steps:\n  - id: a\n    run: x\n    grants: { red: [.] }\n", &["flow.lobster:4", "red"]),
        ("steps:\n  - id: a\n    run: x\n    limits: { memory: lots }\n", &["flow.lobster:4", "memory"]),
        (
            "steps:\n  - id: a\n    input: { prompt: x, responseSchema: { type: nonsense } }\n",
            &["responseSchema"],
        ),
        ("a: &a [*a]\nsteps: []", &["flow.lobster"]),
        ("steps:\n  - {id: a, run: x}\n---\nsteps: []\n", &["flow.lobster:3"]),
    ] {
        let (home, answer) = flow(&text.replace("run: x", "run: echo ran >> log"));
        refused(&answer, parts);
        assert_eq!(home.read("log"), "", "an effect came before the error in {text:?}");
    }
}

#[test]
fn files_that_would_eat_the_machine() {
    let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..10 {
        let aliases = vec![format!("*a{}", n - 1); 10].join(", ");
        laughs.push_str(&format!("a{n}: &a{n} [{aliases}]\n"));
    }
    let deep = format!("steps: {}{}", "[".repeat(100_000), "]".repeat(100_000));
    for text in [
        laughs + "steps: *a9\n",
        deep,
        "x".repeat(9 << 20),
        "\0".repeat(1000),
        "\u{feff}\u{feff}steps:".to_owned(),
    ] {
        let (_, answer) = flow(&text);
        refused(&answer, &[]);
        assert!(answer.took.as_secs() < 30, "it took {:?}", answer.took);
        assert!(answer.stdout.len() < 8192, "a message of {} bytes", answer.stdout.len());
    }
}

#[test]
fn unknown_fields_are_warned_about_with_the_nearest_name() {
    let (_, answer) = flow("steps:\n  - id: a\n    run: echo hi\n    timeout_msec: 5\n");
    assert_eq!(answer.output()[0], "hi\n");
    assert!(answer.stderr.contains("timeout_msec") && answer.stderr.contains("timeout_ms"), "{answer:?}");
    assert!(answer.stderr.contains("flow.lobster:4"), "{answer:?}");
}

#[test]
fn workflows_that_call_themselves() {
    for (text, child, part) in [
        ("steps: [{ id: a, workflow: flow.lobster }]", "", "step a creates a cycle"),
        (
            "steps: [{ id: a, workflow: child.lobster }]",
            "steps: [{ id: b, workflow: flow.lobster }]",
            "step b creates a cycle",
        ),
        ("steps: [{ id: a, workflow: ./x/../flow.lobster }]", "", "step a calls sub-workflows too deeply"),
    ] {
        let home = Home::new();
        std::fs::create_dir(home.dir().join("x")).unwrap();
        home.write("child.lobster", child).write("flow.lobster", text);
        refused(&home.tool(["flow.lobster"]), &["flow.lobster", part]);
    }
}

#[test]
fn pipelines_that_cannot_be_read() {
    let home = Home::new();
    for (text, part) in [
        ("", "Empty pipeline"),
        (" ", "Empty pipeline"),
        ("|", "Empty command stage"),
        ("exec echo | | head", "Empty command stage"),
        ("| exec x", "Empty command stage"),
        ("exec --shell 'echo done > done' | nope", "Unknown command: nope"),
        ("exec 'open", "Unclosed quote"),
        ("exec \"open", "Unclosed quote"),
        ("nope", "Unknown command: nope"),
        ("where", "where requires an expression"),
        ("exec", "exec requires a command"),
        ("a|b|c", "Unknown command: a"),
        ("exec echo hi | nope.command", "nope.command"),
    ] {
        refused(&home.tool([text]), &[part]);
    }
    assert_eq!(home.read("done"), "", "nothing of a pipeline that cannot be read is done");
}

#[test]
fn requests_that_are_wrong() {
    let home = Home::new();
    home.write("flow.lobster", "args: { n: { type: integer } }\nsteps: [{ id: a, run: echo ran >> log }]");
    for words in [
        &["run", "--mode", "tool", "--file", "flow.lobster", "--args-json", "{"][..],
        &["run", "--mode", "tool", "--file", "flow.lobster", "--args-json", "[]"],
        &["run", "--mode", "tool", "--file", "flow.lobster", "--args-json", "5"],
        &["run", "--mode", "tool", "--file", "flow.lobster", "--arg", "novalue"],
        &["run", "--mode", "tool", "--file", "flow.lobster", "--args-json", "{\"n\": \"x\"}"],
        &["resume"],
        &["resume", "--token"],
        &["resume", "--token", "x"],
        &["resume", "--token", "x", "--approve", "perhaps"],
        &["resume", "--token", "x", "--approve", "yes", "--cancel"],
        &["resume", "--id", "x", "--response-json", "{"],
        &["resume", "ffffffff"],
        &["resume", "'; DROP TABLE runs"],
    ] {
        home.lobster(words).run().error();
    }
    assert_eq!(home.read("log"), "");
    for words in [
        &["run", "--mode", "robot", "exec echo"][..],
        &["show"],
        &["show", "ffffffff"],
        &["runs", "--status", "x"],
        &["logs", "zz"],
    ] {
        let answer = home.lobster(words).run();
        assert_eq!((answer.code(), answer.stdout.as_str()), (2, ""), "{words:?}: {answer:?}");
        assert!(!answer.stderr.is_empty() && !answer.stderr.contains("panicked"), "{answer:?}");
    }
}

#[test]
fn arguments_larger_than_a_word_of_the_system() {
    let home = Home::new();
    // One word of a command line holds 128 KiB on Linux; so does one variable.
    let long = "x".repeat(126 * 1024);
    home.write("flow.lobster", "args: { text: {} }\nsteps:\n  - id: a\n    run: wc -c\n    stdin: ${text}\n");
    let answer = home.tool(["flow.lobster", "--args-json", &format!("{{\"text\":\"{long}\"}}")]);
    assert_eq!(answer.output()[0], 126 * 1024, "{}", answer.stderr);

    home.write("word.lobster", "steps:\n  - id: big\n    run: head -c 200000 /dev/zero | tr '\\0' x\n  - id: a\n    exec: [printf, '%s', $big.stdout]\n");
    let message = home.tool(["word.lobster"]).error();
    assert!(
        message.len() < 4096 && message.contains('a'),
        "a message of {} bytes: {:.300}",
        message.len(),
        message
    );

    home.write("env.lobster", "steps:\n  - id: big\n    run: head -c 200000 /dev/zero | tr '\\0' x\n  - id: a\n    run: printf '%s' \"$BIG\" | wc -c\n    env: { BIG: $big.stdout }\n");
    let answer = home.tool(["env.lobster"]);
    assert!(answer.stdout.len() < 4096, "{:.300}", answer.stdout);
    let envelope = answer.envelope();
    assert!(envelope["ok"] == false || envelope["output"][0] == 200_000, "a value was cut: {envelope}");
}

#[test]
fn a_directory_that_is_gone() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: a\n    run: pwd\n    cwd: ./gone\n");
    refused(&home.tool(["flow.lobster"]), &["gone"]);
}

#[test]
fn programs_that_are_not_there() {
    let (_, answer) = flow("steps:\n  - id: a\n    exec: [no-such-program-anywhere, x]\n");
    refused(&answer, &["no-such-program-anywhere"]);
    let (_, answer) = flow("steps:\n  - id: a\n    exec: []\n");
    refused(&answer, &["exec"]);
    let (_, answer) = flow("steps:\n  - id: a\n    exec: [/etc]\n");
    refused(&answer, &["/etc"]);
}

#[test]
fn a_working_directory_that_is_no_text_is_refused_before_anything_runs() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let home = Home::new();
    let odd = home.dir().join(OsStr::from_bytes(b"bad\xffdir"));
    std::fs::create_dir(&odd).unwrap();
    home.write("flow.lobster", "steps: [{id: a, run: touch ran}]");
    let file = home.dir().join("flow.lobster");
    for words in [
        vec!["run", "--mode", "tool", "exec touch ran"],
        vec!["run", "--mode", "tool", file.to_str().unwrap()],
    ] {
        let answer = home.lobster(words).dir(&odd).run();
        refused(&answer, &["working directory", "bad", "not UTF-8"]);
    }
    assert!(!odd.join("ran").exists());
    assert_eq!(home.lobster(["runs", "--json"]).run().stdout.trim(), "[]");
}

#[test]
fn arguments_that_are_no_text_are_refused() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let home = Home::new();
    let answer = home.lobster([OsStr::new("run"), OsStr::from_bytes(b"bad\xff.lobster")]).run();
    assert_eq!(answer.code(), 2, "{answer:?}");
    assert!(answer.stderr.contains("argument 2") && answer.stderr.contains("not UTF-8"), "{answer:?}");
    let words =
        [OsStr::new("run"), OsStr::new("--mode"), OsStr::new("tool"), OsStr::from_bytes(b"exec echo \xff")];
    refused(&home.lobster(words).run(), &["argument 4", "not UTF-8"]);
    // These answer a program with an envelope whatever they are given.
    let resume = [OsStr::new("resume"), OsStr::new("--token"), OsStr::from_bytes(b"\xff")];
    refused(&home.lobster(resume).run(), &["argument 3", "not UTF-8"]);
    refused(&home.lobster([OsStr::new("doctor"), OsStr::from_bytes(b"\xff")]).run(), &["argument 2"]);
    refused(&home.lobster(["doctor", "--bogus"]).run(), &["--bogus"]);
}

#[test]
fn json_that_is_nested_too_deeply_is_no_empty_input() {
    let home = Home::new();
    let deep = "python3 -c 'print(\"[\" * 5000 + \"]\" * 5000)'";
    home.write(
        "flow.lobster",
        format!(
            "steps:\n  - id: deep\n    run: {deep}\n  - id: reads\n    run: wc -c\n    stdin: $deep.json\n"
        ),
    );
    refused(&home.tool(["flow.lobster"]), &["deep.json", "4096 levels", "$deep.stdout"]);
    // Nobody reads it as JSON: it is text.
    home.write("text.lobster", format!("steps:\n  - id: deep\n    run: {deep}\n"));
    home.tool(["text.lobster"]).output();
}

#[test]
fn a_directory_for_temporary_files_that_is_missing_is_named() {
    let home = Home::new();
    let flow = "steps:\n  - {id: a, run: seq 900000}\n  - {id: b, run: tail -n 1, stdin: $a.stdout}\n  - id: c\n    pipeline: exec --stdin raw cat\n    stdin: $a.stdout\n";
    home.write("flow.lobster", flow);
    // What commands read is in the store; what a pipeline collects for one goes to a file.
    let run = || home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("TMPDIR", "/no/such/place");
    let answer = run().run();
    refused(&answer, &["/no/such/place", "TMPDIR"]);
}

#[test]
fn a_worker_without_a_state_directory_names_it() {
    let home = Home::new();
    home.write("file", "");
    let state = home.dir().join("file/state");
    let worker = home.lobster(["worker", "--stdio"]).env("LOBSTER_STATE_DIR", &state).run();
    assert!(worker.code() != 0, "{worker:?}");
    for part in [state.to_str().unwrap(), "LOBSTER_STATE_DIR"] {
        assert!(worker.stderr.contains(part), "{worker:?}");
    }
}

#[test]
fn check_finds_a_workflow_that_calls_itself() {
    let home = Home::new();
    home.write("rec.lobster", "steps:\n  - id: a\n    run: echo x\n  - id: b\n    workflow: ./rec.lobster\n    when: $a.json.more\n");
    home.write("one.lobster", "steps: [{id: a, workflow: two.lobster}]");
    home.write("two.lobster", "steps: [{id: a, workflow: one.lobster}]");
    for (file, place) in [("rec.lobster", "rec.lobster:4"), ("one.lobster", "two.lobster:1")] {
        let answer = home.lobster(["check", file]).run();
        assert_eq!(answer.code(), 1, "{answer:?}");
        for part in ["E0503", "creates a cycle", place] {
            assert!(answer.stdout.contains(part), "{part}: {answer:?}");
        }
    }
}

/// Shell text under a policy is judged for the shell that runs it, and a policy that cannot be
/// read is none: one clear error each, and nothing runs.
#[test]
fn a_shell_that_nobody_can_judge_and_a_policy_that_is_not_there() {
    let home = Home::new();
    home.write("policy.toml", "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n")
        .write("flow.lobster", "steps:\n  - { id: a, run: touch made }\n")
        .write("shell", "#!/bin/sh\ntouch made\n");
    for shell in ["/nonexistent/sh".to_owned(), home.dir().join("shell").display().to_string()] {
        let answer = home
            .lobster(["run", "--mode", "tool", "--policy", "policy.toml", "flow.lobster"])
            .env("LOBSTER_SHELL", &shell)
            .run();
        let error = answer.error();
        assert!(error.contains(&shell) && error.contains("not dash, busybox ash or bash"), "{answer:?}");
        assert!(error.contains("hint: set LOBSTER_SHELL="), "{answer:?}");
    }
    let named = home.lobster(["run", "--mode", "tool", "--policy", "gone.toml", "flow.lobster"]).run();
    let inherited = home
        .lobster(["run", "--mode", "tool", "flow.lobster"])
        .env("LOBSTER_POLICY", home.dir().join("gone.toml"))
        .run();
    for answer in [named, inherited] {
        let error = answer.error();
        assert!(error.contains("cannot read the policy") && error.contains("gone.toml"), "{answer:?}");
    }
    assert!(!home.dir().join("made").exists());
}
