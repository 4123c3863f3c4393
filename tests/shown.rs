//! What `show`, `logs`, `runs` and `audit` say of runs that did not go straight
//! through, of stores that lack something, and of texts that others chose.

use std::path::PathBuf;

use serde_json::Value;

use crate::home::{Answer, Home, wait};

fn json(answer: &Answer) -> Value {
    serde_json::from_str(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {answer:#?}"))
}

fn newest(home: &Home) -> String {
    json(&home.lobster(["runs", "--json"]).run())[0]["id"].as_str().unwrap().to_owned()
}

/// The rows of `lobster show`, each as its indentation and its words up to the state.
fn rows(home: &Home, run: &str) -> Vec<String> {
    let shown = home.lobster(["show", run]).run().stdout;
    let table = shown.lines().skip_while(|line| !line.starts_with("STEP ")).skip(1);
    let columns = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let cells: Vec<&str> = line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        format!("{}{}", " ".repeat(indent), cells[..cells.len().min(3)].join(" "))
    };
    // Below a row are its command and what it gave.
    let is_row = |line: &&str| !line.trim_start().starts_with(['$', '│', '!']);
    table.filter(is_row).map(columns).collect()
}

#[test]
fn a_step_that_succeeded_in_the_end_is_shown_so() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        r#"{"name": "comp", "steps": [
            {"id": "list", "run": "echo '[1,2]'"},
            {"id": "loop", "for_each": "$list.json", "steps": [
                {"id": "a", "run": "test -e ok"}, {"id": "b", "js": "1"}]},
            {"id": "both", "parallel": {"branches": [
                {"id": "x", "pipeline": "exec --shell 'sleep 0.3; echo 1' | json"},
                {"id": "y", "pipeline": "exec --shell 'echo 2' | json"}]}},
            {"id": "slow", "run": "test -e fast || { touch begun; sleep 60; }"}]}"#,
    );
    home.tool(["flow.lobster"]).error();
    let run = newest(&home);
    assert_eq!(rows(&home, &run), ["list native ok", "loop for_each failed", "  loop[0]/a native failed"]);

    home.write("ok", "");
    let mut killed = home.lobster(["resume", &run]).start();
    while !home.dir().join("begun").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    killed.kill().unwrap();
    wait(&mut killed, &"resume");
    assert_eq!(rows(&home, &run).last().unwrap(), "slow native interrupted");

    home.write("fast", "").lobster(["resume", &run, "--retry-interrupted"]).run().output();
    let rows = rows(&home, &run);
    let (loops, rest) = rows.split_at(6);
    assert_eq!(
        loops,
        [
            "list native ok",
            "loop for_each ok (failed before)",
            "  loop[0]/a native ok (failed before)",
            "  loop[0]/b component ok",
            "  loop[1]/a native ok",
            "  loop[1]/b component cached",
        ]
    );
    // The branches began in some order.
    let mut branches = rest[1..5].chunks(2).collect::<Vec<_>>();
    branches.sort_unstable();
    let branch = |id| [format!("  both/{id} pipeline ok"), format!("    both/{id}|0.0 native ok")];
    assert_eq!(branches, [branch("x"), branch("y")]);
    assert_eq!([&rest[0], &rest[5]], ["both parallel ok", "slow native ok (interrupted before)"]);
    let shown = home.lobster(["show", &run]).run().stdout;
    assert!(shown.contains("  resumed  2 times, last "), "{shown}");
}

#[test]
fn what_a_run_is_beside_its_steps_is_shown() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "name: n\nargs: { who: { default: bob } }\nsteps:\n  - { id: a, run: echo $who }\n  - { id: b, js: '1' }\n",
    );
    home.tool(["flow.lobster", "--arg", "who=ann"]).output();
    let first = newest(&home);
    let pinned = json(&home.lobster(["store", "pin", &first, "--json"]).run());
    assert_eq!(pinned, serde_json::json!({ "run": first, "pinned": true }));
    home.lobster(["fork", &first, "--from", "a"]).run().output();

    let runs = json(&home.lobster(["runs", "--json"]).run());
    assert_eq!([&runs[0]["pinned"], &runs[1]["pinned"]], [&Value::Bool(false), &Value::Bool(true)]);
    assert!(home.lobster(["runs"]).run().stdout.contains("  ok, pinned  "));
    let shown = home.lobster(["show", &first]).run().stdout;
    assert!(shown.starts_with("n  ok, pinned\n"), "{shown}");
    assert!(shown.contains("\n  args     {\"who\":\"ann\"}\n") && !shown.contains("fork"), "{shown}");
    let shown = home.lobster(["show", &newest(&home)]).run().stdout;
    assert!(shown.contains(&format!("\n  fork     of run {first}, anew from a\n")), "{shown}");
    let said = home.lobster(["store", "unpin", &first]).run().stdout;
    assert_eq!(said, format!("run {} is not pinned\n", &first[28..]));
}

#[test]
fn a_run_is_found_by_any_beginning_of_what_the_list_shows() {
    let home = Home::new();
    home.tool(["exec true"]).output();
    home.tool(["exec true"]).output();
    let (run, listed) = (newest(&home), home.lobster(["runs"]).run().stdout);
    let short = listed.lines().nth(1).unwrap().split(' ').next().unwrap();
    for piece in [short, &short[..7], &short[..4], &short[4..], &run, &run.to_uppercase()] {
        let shown = home.lobster(["show", piece]).run();
        assert!(shown.stdout.contains(&run), "{piece}: {shown:?}");
    }
    let both = home.lobster(["show", &run[..4]]).run();
    assert!(both.code() == 2 && both.stderr.contains("could be any of"), "{both:?}");
    assert!(both.stderr.contains(&run), "{both:?}");
    assert_eq!(home.lobster(["show", &short[..3]]).run().code(), 2);
}

/// The file of the largest blob in the store.
fn large_blob(home: &Home) -> PathBuf {
    let shelves = std::fs::read_dir(home.state().join("store/blobs")).unwrap();
    let files = shelves.flatten().flat_map(|shelf| std::fs::read_dir(shelf.path()).unwrap().flatten());
    files.map(|file| file.path()).max_by_key(|file| file.metadata().unwrap().len()).unwrap()
}

#[test]
fn a_lost_stream_is_named_and_the_others_are_printed() {
    for size in [100_000, 2_000_000] {
        let home = Home::new();
        home.write(
            "flow.lobster",
            format!(
                "steps:\n  - {{ id: a, run: echo first }}\n  - {{ id: b, run: head -c {size} /dev/zero }}\n  - {{ id: c, run: echo last }}\n"
            ),
        );
        home.tool(["flow.lobster"]).output();
        let (run, file) = (newest(&home), large_blob(&home));
        std::fs::remove_file(&file).unwrap();
        let gone = format!("its file {} is gone", file.display());
        let shown = home.lobster(["logs", &run, "--json"]).run();
        let streams = json(&shown);
        let texts: Vec<_> = streams.as_array().unwrap().iter().map(|stream| &stream["text"]).collect();
        assert_eq!(texts, [&"first\n".into(), &Value::Null, &"last\n".into()], "{streams:#}");
        assert!(streams[1]["error"].as_str().unwrap().contains(&gone), "{streams:#}");
        assert_eq!((&streams[0]["error"], shown.code()), (&Value::Null, 1));
        let shown = home.lobster(["logs", &run]).run();
        assert_eq!(shown.stdout, "── a stdout\nfirst\n── b stdout\n── c stdout\nlast\n");
        assert!(shown.code() == 1 && shown.stderr.contains("b stdout: blob "), "{shown:?}");
        assert!(shown.stderr.contains(&gone) && shown.stderr.contains("backup"), "{shown:?}");
        let verified = home.lobster(["store", "verify"]).run().stdout;
        assert!(verified.ends_with(": 1 problem\n") && verified.contains("1 run, "), "{verified}");
    }
}

#[test]
fn a_stream_that_was_redacted_is_called_so() {
    let (home, there) = (Home::new(), Home::new());
    home.write("flow.lobster", "steps:\n  - { id: a, run: echo sensitive }\n");
    home.tool(["flow.lobster"]).output();
    let run = newest(&home);
    let words = ["bundle", "export", &run, "-o", "b", "--redact", "a"];
    assert_eq!(home.lobster(words).run().code(), 0);
    there.write("b", std::fs::read(home.dir().join("b")).unwrap());
    assert_eq!(there.lobster(["bundle", "import", "b"]).run().code(), 0);
    let shown = there.lobster(["logs", &run, "--json"]).run();
    let error = json(&shown)[0]["error"].as_str().unwrap().to_owned();
    assert!(shown.code() == 1 && error.contains("left out of the bundle"), "{shown:?}");
}

#[test]
fn logs_of_a_step_are_those_of_that_step() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - { id: s, run: printf 'no newline' }\n  - { id: sum, run: printf 8 >&2 }\n  - { id: s.t, run: echo dot }\n  - { id: p, pipeline: \"exec --shell 'echo 3' | json\" }\n",
    );
    home.tool(["flow.lobster"]).output();
    let run = newest(&home);
    let logs = |words: &[&str]| home.lobster(["logs", &run].iter().chain(words)).run().stdout;
    assert_eq!(logs(&["s", "--stdout"]), "no newline");
    assert_eq!(logs(&["s", "--stderr"]), "");
    assert!(logs(&["p"]).starts_with("── p|0.0 stdout\n3\n"), "{}", logs(&["p"]));
    assert!(logs(&[]).starts_with("── s stdout\nno newline\n── sum stderr\n8\n── s.t stdout\ndot\n"));
}

#[test]
fn texts_of_others_command_no_terminal_and_forge_no_row() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        r#"{"name": "good\ndeadbeef  ok  bad", "steps": [
            {"id": "a\u001b[2J", "run": "echo \u001b[2J; exit 0"},
            {"id": "ask", "approval": {"prompt": "Go?\n00000000  approval  Forged?", "preview": "p\u001b[8m"}}]}"#,
    );
    home.tool(["flow.lobster"]).token();
    let run = newest(&home);
    for words in
        [&["runs"][..], &["show", &run], &["show", &run, "--full"], &["audit", "--run", &run], &["approvals"]]
    {
        let shown = home.lobster(words).run();
        assert!(shown.code() == 0 && !shown.stdout.contains('\u{1b}'), "{shown:?}");
        let forged = |line: &&str| line.starts_with("deadbeef") || line.starts_with("00000000");
        assert_eq!(shown.stdout.lines().find(forged), None, "{words:?}");
    }
    let logged = home.lobster(["logs", &run]).run().stdout;
    assert!(logged.starts_with("── a\u{fffd}%5B2J stdout\n"), "{logged:?}");
    let failed = home.lobster(["exec --shell 'exit 3 # \u{1b}[2J'"]).run();
    assert!(failed.code() == 1 && !failed.stderr.contains('\u{1b}'), "{failed:?}");
}

#[test]
fn what_programs_ask_for_they_get_in_one_form() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - { id: ask, approval: Go? }\n");
    home.tool(["flow.lobster"]).token();
    let gate = json(&home.lobster(["approvals", "--json"]).run())[0].clone();
    for task in [&["approve", "ffffffff"][..], &["reject", "ffffffff"], &["answer", "ffffffff", "1"]] {
        let answer = home.lobster(["approvals"].iter().chain(task)).run();
        assert!(answer.error().contains("lobster approvals"), "{answer:?}");
    }
    let closed = json(&home.lobster(["approvals", "expire", gate["id"].as_str().unwrap(), "--json"]).run());
    assert_eq!((&closed["id"], &closed["status"]), (&gate["id"], &"expired".into()));
    let keys = json(&home.lobster(["bundle", "keygen", "k.pem", "--json"]).run());
    assert_eq!((&keys["privateFile"], &keys["publicFile"]), (&"k.pem".into(), &"k.pem.pub".into()));

    let waiting = newest(&home);
    home.tool(["flow.lobster"]).token();
    let diff = ["diff", &waiting, &newest(&home)];
    let compared = json(&home.lobster(diff.iter().chain(&["--json"])).run());
    assert_eq!([&compared["statusBefore"], &compared["statusAfter"]], ["interrupted", "waiting"]);
    assert!(home.lobster(diff).run().stdout.contains("status interrupted → waiting"));
}

#[test]
fn a_file_that_is_not_what_it_should_be_is_named() {
    let home = Home::new();
    home.write("binary.lobster", b"\x7fELF\x02\x01\0\0\0\xff\xfe").write("text", "x".repeat(99));
    let missing = home.tool(["nosuch.lobster"]).error();
    assert_eq!(missing, "Unknown command: nosuch.lobster (and there is no such file)");
    assert_eq!(home.tool(["exec echo nosuch.lobster"]).output()[0], "nosuch.lobster");
    let binary = home.tool(["binary.lobster"]).error();
    assert!(binary.contains("is not text") && !binary.contains("Tabs"), "{binary}");
    for (file, why) in [("text", "is not a lobster bundle"), ("gone", "No such file"), (".", "directory")] {
        for task in ["verify", "import"] {
            let said = home.lobster(["bundle", task, file]).run();
            let names = said.stderr.contains(&format!("{file}:")) && said.stderr.contains("bundle export");
            assert!(names && said.stderr.contains(why), "{said:?}");
        }
    }
    home.tool(["exec true"]).output();
    assert_eq!(home.lobster(["bundle", "export", &newest(&home), "-o", "b"]).run().code(), 0);
    let whole = std::fs::read(home.dir().join("b")).unwrap();
    home.write("b", &whole[..whole.len() - 1]);
    let cut = home.lobster(["bundle", "verify", "b"]).run().stderr;
    assert!(cut.starts_with("Error: b: ") && cut.contains("is cut off; get another copy"), "{cut}");
}
