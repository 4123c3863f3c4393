//! `lobster init`: each kind passes `check`, runs, and replaces nothing; and what a shell
//! or a packager asks of the command line.

use serde_json::json;

use crate::home::Home;
use crate::live_view::{shows, steady};
use crate::pty::Terminal;

#[test]
fn each_kind_passes_check_and_runs() {
    for (kind, asks) in [("shell", true), ("javascript", false), ("component", false), ("agent", true)] {
        let home = Home::new();
        let made = home.lobster(["init", "--kind", kind, "my-first"]).run();
        assert_eq!(made.code(), 0, "{made:?}");
        assert!(made.stdout.contains("lobster run ./my-first.lobster"), "{made:?}");
        let checked = home.lobster(["check", "--strict", "my-first.lobster"]).run();
        assert_eq!((checked.code(), checked.stdout.lines().count()), (0, 1), "{checked:?}");
        let ran = home.tool(["my-first.lobster"]);
        if kind == "component" {
            let sold = json!([
                { "product": "apples", "total": 7 },
                { "product": "pears", "total": 5 },
                { "product": "plums", "total": 1 },
            ]);
            assert_eq!(ran.output(), sold);
        }
        if asks {
            ran.token();
            let asked = home.lobster(["approvals", "show", "@"]).run();
            let is_said = kind != "agent" || asked.stdout.contains("│ Try lobster, urgent: false\n");
            assert!(is_said && !asked.stdout.contains("$args"), "{asked:?}");
            let done = home.lobster(["approvals", "approve", "@"]).run();
            assert!(done.output().get(0).is_some(), "{done:?}");
        } else {
            assert!(ran.output().get(0).is_some(), "{ran:?}");
        }
        let replayed = home.lobster(["replay", "@"]).run();
        assert!(replayed.code() == 0 && replayed.stdout.starts_with("the same: my-first"), "{replayed:?}");
        // Nothing of anybody's is replaced.
        home.write("my-first.lobster", "mine");
        let again = home.lobster(["init", "--kind", kind, "my-first"]).run();
        assert!(again.code() == 2 && again.stderr.contains("was not changed"), "{again:?}");
        assert_eq!(home.read("my-first.lobster"), "mine");
    }
}

/// From nothing to the first approved run: two commands, one question.
#[test]
fn a_person_is_asked_for_the_kind_and_then_for_the_approval() {
    let home = Home::new();
    let mut terminal = Terminal::start(home.lobster(["init"]).env("NO_COLOR", "1"), 80, 24);
    terminal.wait_for("Which kind of workflow? [1]");
    terminal.enter("nine").wait_for("Which kind of workflow? [1]");
    let (code, screen) = terminal.enter_and_end("1");
    assert!(code == 0 && screen.text().contains("wrote ./hello.lobster"), "{}", screen.text());
    let mut terminal = Terminal::start(home.lobster(["run", "hello.lobster"]).env("NO_COLOR", "1"), 80, 24);
    terminal.wait_for("Approve? [y/n/s/l/?]");
    let (code, screen) = terminal.enter_and_end("y");
    assert!(code == 0 && screen.text().contains("✓ keep"), "{}", screen.text());
    assert!(home.dir().join("files.txt").exists());
    // Without a terminal nobody is asked.
    let other = Home::new();
    assert_eq!(other.lobster(["init"]).run().code(), 0);
}

#[test]
fn runs_are_named_without_their_ids() {
    let home = Home::new();
    home.write("a.lobster", "name: first one\nsteps: [{ id: a, run: echo a }]\n")
        .write("b.lobster", "name: other\nsteps: [{ id: b, run: echo b }]\n");
    for file in ["a.lobster", "b.lobster", "a.lobster", "a.lobster"] {
        home.tool([file]).output();
    }
    let runs: serde_json::Value =
        serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let id = |at: usize| runs[at]["id"].as_str().unwrap();
    for (text, at) in [
        ("@", 0),
        ("@-", 1),
        ("@-3", 3),
        ("other@-", 2),
        ("other@", 2),
        ("first one@-", 0),
        ("first one@-3", 3),
    ] {
        let shown = home.lobster(["show", text]).run();
        assert!(shown.code() == 0 && shown.stdout.contains(id(at)), "{text}: {shown:?}");
    }
    for words in [
        &["logs", "@"][..],
        &["why", "@", "a"],
        &["diff", "@-", "@"],
        &["replay", "@"],
        &["fork", "@", "--dry-run"],
        &["bundle", "export", "@", "-o", "b"],
        &["store", "pin", "@"],
        &["audit", "--run", "@"],
        &["runs", "--before", "@"],
    ] {
        let answer = home.lobster(words).run();
        assert_eq!(answer.code(), 0, "{words:?}: {answer:?}");
    }
    for (text, why) in [("@-4", "too far back"), ("nobody@-", "no run is named"), ("@x", "no run")] {
        let shown = home.lobster(["show", text]).run();
        assert!(shown.code() == 2 && shown.stderr.contains(why), "{text}: {shown:?}");
    }
    // Nobody can be asked which.
    let none = home.lobster(["show"]).run();
    assert!(none.code() == 2 && none.stderr.contains("@ is the last one"), "{none:?}");
    // A person is.
    let mut terminal =
        Terminal::start(home.lobster(["logs"]).env("NO_COLOR", "1").env("LOBSTER_PAGER", "cat"), 80, 24);
    terminal.wait_for("Which run should `logs` take? [1]");
    let (code, screen) = terminal.enter_and_end("3");
    assert!(code == 0 && screen.text().contains("── b stdout\nb\n"), "{}", screen.text());
    let mut terminal = Terminal::start(home.lobster(["why"]).env("NO_COLOR", "1"), 80, 24);
    terminal.wait_for("Which run should `why` take? [1]");
    terminal.enter("1").wait_for("Which step should `why` take? [1]");
    let (code, screen) = terminal.enter_and_end("1");
    assert!(code == 0 && screen.text().contains("a is the same in both runs"), "{}", screen.text());
    let none = home.lobster(["why", "@"]).run();
    assert!(none.code() == 2 && none.stderr.contains("why needs a step"), "{none:?}");
}

#[test]
fn there_is_a_page_of_the_manual_for_each_command() {
    let home = Home::new();
    let made = home.lobster(["man", "pages"]).run();
    assert_eq!(made.code(), 0, "{made:?}");
    let run = home.read("pages/lobster-run.1");
    assert!(run.contains(".TH lobster\\-run 1") || run.contains(".TH lobster-run 1"), "{run}");
    assert!(home.read("pages/lobster.1").contains("lobster\\-show"), "the first page names the others");
    assert!(!home.dir().join("pages/lobster-complete.1").exists());
}

/// What people type by mistake is answered with what they meant.
#[test]
fn near_misses_are_named() {
    let home = Home::new();
    for (words, meant) in [
        (&["shwo"][..], "did you mean `lobster show`?"),
        (&["status"], "`lobster runs`"),
        (&["new"], "`lobster init`"),
        (&["help", "shwo"], "did you mean `lobster help show`?"),
        (&["help", "executor_dead"], "did you mean `lobster help executor_died`?"),
        (&["help", "polcy_denied"], "did you mean `lobster help policy_denied`?"),
        (&["help", "E0300"], "did you mean `lobster help E030"),
        (&["runs", "--statsu", "ok"], "--status"),
        (&["policy", "explian", "ls"], "explain"),
        (&["resume", "abcd1234", "--cancle"], "did you mean --cancel?"),
    ] {
        let answer = home.lobster(words).run();
        let said = format!("{}{}", answer.stdout, answer.stderr);
        assert!(answer.code() != 0 && said.contains(meant), "{words:?}: {answer:?}");
    }
    for words in [&["help", "--help"][..], &["run", "--help"], &["help", "run"]] {
        let answer = home.lobster(words).run();
        assert!(answer.code() == 0 && answer.stdout.contains("--mode"), "{words:?}: {answer:?}");
    }
}

#[test]
fn the_checks_of_doctor_are_told_line_by_line_at_a_terminal() {
    let home = Home::new();
    let (code, screen) = Terminal::start(home.lobster(["doctor"]).env("NO_COLOR", "1"), 100, 24).end();
    let text = screen.text();
    assert_eq!(code, 0, "{text}");
    for line in ["✓  lobster  ", "✓  a run    ", "✓  state    ", "✓  store    ", "sandbox  ", "policy   none"]
    {
        assert!(text.contains(line), "{line:?}: {text}");
    }
    // A program gets the envelope that it always got.
    assert_eq!(home.lobster(["doctor"]).run().output()[0]["toolMode"], true);
    let (code, screen) = Terminal::start(home.lobster(["doctor", "--json"]), 100, 24).end();
    assert!(code == 0 && screen.text().contains("\"toolMode\": true"), "{}", screen.text());
}

#[test]
fn the_options_of_doctor_stand_in_any_order_and_a_mistyped_one_is_refused() {
    let home = Home::new();
    let attacked = home.lobster(["doctor", "--json", "--sandbox"]).run();
    let attacked: serde_json::Value = serde_json::from_str(&attacked.stdout).unwrap();
    assert!(attacked["findings"].as_array().is_some_and(|found| !found.is_empty()), "{attacked}");
    for words in [&["--sandbx"][..], &["a", "--sandbx"], &["--sandbox", "--service"], &["--sandbox", "a"]] {
        let answer = home.lobster(["doctor"].iter().chain(words)).run();
        assert!(answer.code() == 2 && !answer.error().is_empty(), "{words:?}: {answer:?}");
    }
    let notes = home.lobster(["doctor", "a", "--", "--sandbx"]).run().output()[0]["notes"].clone();
    assert_eq!(notes, serde_json::json!(["a", "--sandbx"]));
}

#[test]
fn a_pager_is_used_at_a_terminal_only_and_can_be_turned_off() {
    let home = Home::new();
    home.tool(["exec true"]).output();
    home.write("pager", "#!/bin/sh\necho paged\ncat\n");
    let pager = home.dir().join("pager").display().to_string();
    let shown = |words: &[&str]| {
        let call = home.lobster(words).env("LOBSTER_PAGER", &pager).env("NO_COLOR", "1");
        Terminal::start(call.env("TERM", "xterm"), 100, 24).end().1.text()
    };
    assert!(shown(&["runs"]).starts_with("paged\nRUN "), "{}", shown(&["runs"]));
    assert!(shown(&["runs", "--no-pager"]).starts_with("RUN "));
    assert!(shown(&["runs", "--json"]).starts_with('['));
    let piped = home.lobster(["runs"]).env("LOBSTER_PAGER", &pager).run();
    assert!(piped.stdout.starts_with("RUN "), "{piped:?}");
}

#[test]
fn tables_fit_the_terminal() {
    let home = Home::new();
    let flow = |end: &str| {
        format!(
            "name: a-workflow-whose-name-is-longer-than-a-narrow-terminal-is-wide\n\
             steps:\n  - {{ id: collect, run: \"seq 1 20\" }}\n  - {{ id: ask, approval: Go on? }}\n  - {{ id: last, run: \"{end}\" }}\n"
        )
    };
    home.write("flow.lobster", flow("echo because >&2; exit 4"));
    home.tool(["flow.lobster"]).token();
    home.lobster(["approvals", "approve", "@"]).run().error();
    home.write("flow.lobster", flow("echo fine"));
    home.tool(["flow.lobster"]).token();
    for columns in [120_u16, 40] {
        for (name, words) in [
            ("runs", &["runs"][..]),
            ("show", &["show", "@-"]),
            ("approvals", &["approvals"]),
            ("diff", &["diff", "@-", "@"]),
            ("logs", &["logs", "@"]),
        ] {
            let call = home.lobster(words).env("LOBSTER_PAGER", "cat").env("NO_COLOR", "1");
            let (_, screen) = Terminal::start(call, columns, 60).end();
            let text = screen.text();
            if name == "runs" {
                assert!(text.lines().all(|line| line.chars().count() < columns.into()), "{text}");
            }
            // What stands above the table of steps has places and times of all lengths.
            let text = text.find("\nSTEP").map_or(text.as_str(), |at| &text[at + 1..]);
            let shown: String = steady(text)
                .lines()
                .filter(|line| !line.starts_with("  run ") && !line.contains("N ms ago") || name == "runs")
                .map(|line| match line.rsplit_once(' ') {
                    // Where a line is cut depends on figures before it.
                    Some((begin, last)) if last.ends_with('…') => format!("{begin} …\n"),
                    _ => format!("{line}\n"),
                })
                .collect();
            shows(&format!("{name}-{columns}"), &shown);
        }
    }
}

/// What can be known from the project's files comes first, and a number chooses something else.
#[test]
fn a_person_is_asked_for_the_language_of_a_step_and_the_kind_of_a_project() {
    let home = Home::new();
    let call = home.lobster(["step", "new", "tidy"]).env("NO_COLOR", "1");
    let mut terminal = Terminal::start(call, 80, 24);
    let languages = terminal.wait_for("Which programming language? [1]").text();
    let c = languages.lines().position(|line| line.trim().ends_with(" c")).expect("C is offered");
    let first = languages.lines().position(|line| line.trim().starts_with("1 ")).expect("a first one");
    let (code, screen) = terminal.enter_and_end(&(c - first + 1).to_string());
    assert!(code == 0 && home.dir().join("tidy/README.md").exists(), "{}", screen.text());
    assert!(home.read("tidy/README.md").starts_with("# tidy\n"));
    let refused = home.lobster(["step", "new", "other"]).run();
    assert!(refused.code() == 2 && refused.stderr.contains("--lang "), "{refused:?}");

    home.write("package.json", "{}");
    let call = home.lobster(["policy", "init"]).env("NO_COLOR", "1");
    let mut terminal = Terminal::start(call, 80, 100);
    terminal.wait_for("Which kind of project? [1]");
    let (code, screen) = terminal.enter_and_end("");
    assert!(code == 0 && screen.text().contains("npm-scripts"), "{}", screen.text());
    assert!(home.lobster(["policy", "init"]).run().stdout.contains("npm-scripts"));
    assert!(!home.lobster(["policy", "init", "--kind", "plain"]).run().stdout.contains("[[rule]]"));
}
