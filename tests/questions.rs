//! What a person at a terminal is shown before they agree, and what becomes of
//! what they type: whole screens of a real pseudo-terminal.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::home::{Call, Home};
use crate::pty::Terminal;

const ASKS: &str = "Approve? [y/n/s/l/?]";
/// Of a question of the policy, which a rule can answer from the next run on.
const POLICY_ASKS: &str = "Approve? [y/n/e/s/l/?]";

/// A workflow that asks about a list and acts after a yes.
fn list_of(items: &Value) -> Home {
    let home = Home::new();
    home.write("items.json", items.to_string()).write(
        "flow.lobster",
        "name: cleanup\nsteps:\n  - { id: list, run: cat items.json }\n  - id: ask\n    approval: Delete these mails?\n    \
         stdin: $list.json\n  - { id: delete, run: echo deleted >> log; echo deleted }\n",
    );
    home
}

fn mails(count: usize) -> Value {
    let mail = |n: usize| {
        serde_json::json!({
            "file": format!("{n:04}-offer.eml"), "score": n as f64 / 8.0, "from": "Ravi Menon <ravi@northwind.example>",
            "subject": format!("Offer {n}: everything must go"), "labels": ["a", n],
        })
    };
    (1..=count).map(mail).collect()
}

fn call(home: &Home, words: &[&str]) -> Call {
    home.lobster(words).env("TERM", "xterm-256color").env("NO_COLOR", "1").env("LOBSTER_PROGRESS", "off")
}

fn ask(home: &Home, columns: u16) -> Terminal {
    let mut terminal = Terminal::start(call(home, &["run", "flow.lobster"]), columns, 24);
    terminal.wait_for(ASKS);
    terminal
}

/// The status of the only run.
fn status(home: &Home) -> String {
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    assert_eq!(runs.as_array().map(Vec::len), Some(1), "{runs}");
    runs[0]["status"].as_str().unwrap().to_owned()
}

fn gates(home: &Home) -> Vec<Value> {
    let gates: Value = serde_json::from_str(&home.lobster(["approvals", "--json"]).run().stdout).unwrap();
    gates.as_array().unwrap().clone()
}

/// A snapshot: ids and digests vary, and keep their width.
fn shows(home: &Home, name: &str, screen: &str) {
    let dir = home.dir().canonicalize().unwrap().display().to_string();
    let mut shown = String::new();
    for word in screen.replace(&dir, "DIR").split_inclusive(|c: char| !c.is_ascii_alphanumeric()) {
        let bare = word.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
        let hex = bare.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        match bare.len() {
            8 if hex => shown.push_str(&word.replace(bare, "RUN-GATE")),
            12 if hex => shown.push_str(&word.replace(bare, "DIGEST-DIGES")),
            _ => shown.push_str(word),
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("screens").join(format!("ask-{name}.txt"));
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(&file, &shown).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(expected == shown, "{} is not what is shown now:\n{shown}", file.display());
}

#[test]
fn a_list_is_a_table_that_fits_and_only_an_answer_is_one() {
    for columns in [40, 120] {
        let home = list_of(&mails(3));
        let mut terminal = ask(&home, columns);
        for line in ["?", "x", "", "yes please"] {
            terminal.enter(line).wait_for(ASKS);
            assert_eq!(home.read("log"), "", "{line}");
        }
        let (code, screen) = {
            terminal.enter("y");
            terminal.end()
        };
        assert_eq!((code, home.read("log").as_str(), status(&home).as_str()), (0, "deleted\n", "ok"));
        shows(&home, &format!("3-items-{columns}"), &screen.text());
    }
}

#[test]
fn a_long_list_fits_the_screen_is_shown_whole_and_can_wait() {
    for columns in [40, 120] {
        let home = list_of(&mails(3000));
        let mut terminal = ask(&home, columns);
        let first = terminal.wait_for(ASKS).text();
        assert!(first.lines().count() <= 24 && first.contains("more items: s shows all"), "{first}");
        let pages = if columns < 60 { "[Enter, a, q]" } else { "[Enter: more, a: all, q: back]" };
        terminal.enter("s").wait_for(pages);
        terminal.enter("").wait_for(pages);
        terminal.enter("y").wait_for(pages);
        assert_eq!(home.read("log"), "", "a page is not a question");
        terminal.enter("q").wait_for(ASKS);
        let (code, screen) = {
            terminal.enter("l");
            terminal.end()
        };
        assert_eq!((code, status(&home).as_str()), (0, "waiting"));
        shows(&home, &format!("3000-items-{columns}"), &screen.text());
        // Another process answers what was left.
        let id = gates(&home)[0]["id"].as_str().unwrap().to_owned();
        assert_eq!(home.lobster(["approvals", "approve", &id]).run().envelope()["status"], "ok");
        assert_eq!(home.read("log"), "deleted\n");
    }
}

#[test]
fn everything_can_be_had_at_once() {
    let home = list_of(&mails(400));
    let mut terminal = ask(&home, 120);
    terminal.enter("s").wait_for("q: back]");
    terminal.enter("a").wait_for(ASKS);
    terminal.enter("n");
    let (_, screen) = terminal.end();
    assert!((1..=400).all(|n| screen.text().contains(&format!("{n:04}-offer.eml"))));
}

#[test]
fn a_no_cancels_the_run() {
    let home = list_of(&mails(3));
    let mut terminal = ask(&home, 80);
    terminal.enter("n");
    let (code, screen) = terminal.end();
    assert!(screen.text().contains("Not approved: run "), "{}", screen.text());
    assert_eq!((code, status(&home).as_str(), home.read("log").as_str()), (1, "cancelled", ""));
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let run = runs[0]["id"].as_str().unwrap();
    let again = home.lobster(["resume", run]).run();
    assert!(again.error().contains("a person rejected it"), "{again:?}");
    let shown = home.lobster(["show", run]).run();
    assert!(shown.stdout.contains("rejected"), "{shown:?}");
    let replay = home.lobster(["replay", run]).run();
    assert_eq!(replay.code(), 0, "{replay:?}");
}

#[test]
fn a_no_in_one_branch_ends_the_others() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - id: both\n    parallel:\n      branches:\n        - { id: slow, run: sleep 300 }\n        - { id: ask, approval: Go? }\n  \
         - { id: after, run: echo after >> log }\n",
    );
    let mut terminal = ask(&home, 80);
    terminal.enter("n");
    let (code, _) = terminal.end();
    assert_eq!((code, status(&home).as_str(), home.read("log").as_str()), (1, "cancelled", ""));
}

#[test]
fn a_terminal_that_says_nothing_leaves_the_question_waiting() {
    let home = list_of(&mails(3));
    let mut terminal = ask(&home, 80);
    terminal.send("y").send("\u{4}").send("\u{4}");
    let (code, screen) = terminal.end();
    assert!(
        screen.text().contains("Left waiting: there was no answer from the terminal."),
        "{}",
        screen.text()
    );
    assert_eq!(
        (code, status(&home).as_str(), gates(&home).len(), home.read("log").as_str()),
        (0, "waiting", 1, "")
    );
}

#[test]
fn a_terminal_that_goes_away_leaves_the_question_waiting() {
    // As the controlling terminal, which sends a signal, and as one that is only read from.
    for controlling in [false, true] {
        let home = list_of(&mails(3));
        home.write("told", "");
        let call = if controlling {
            let binary = crate::binary::lobster().display().to_string();
            home.program("setsid", ["--ctty", "--wait", &binary, "run", "flow.lobster"])
        } else {
            home.lobster(["run", "flow.lobster"])
        };
        let told = home.dir().join("told");
        let call = call.env("TERM", "dumb").env("LOBSTER_NOTIFY", format!("cat > {}", told.display()));
        let mut terminal = Terminal::start(call, 80, 24);
        terminal.wait_for(ASKS);
        let code = terminal.hang_up();
        assert!(controlling || code == 0, "{code}");
        assert_eq!((status(&home).as_str(), gates(&home).len()), ("waiting", 1), "{controlling}");
        // Somebody else hears of it.
        let message: Value = serde_json::from_str(&home.read("told")).unwrap();
        assert_eq!((&message["asks"], &message["itemCount"]), (&"approval".into(), &3.into()), "{message:#}");
        let facts = message["facts"].as_array().unwrap();
        assert!(facts.iter().any(|fact| fact["label"] == "digest"), "{message:#}");
        let id = gates(&home)[0]["id"].as_str().unwrap().to_owned();
        assert_eq!(home.lobster(["approvals", "approve", &id]).run().envelope()["status"], "ok");
    }
}

#[test]
fn an_interrupt_in_the_question_interrupts_the_run() {
    let home = list_of(&mails(3));
    let binary = crate::binary::lobster().display().to_string();
    let call =
        home.program("setsid", ["--ctty", "--wait", &binary, "run", "flow.lobster"]).env("TERM", "dumb");
    let mut terminal = Terminal::start(call, 80, 24);
    terminal.wait_for(ASKS);
    terminal.send("\u{3}");
    let (code, _) = terminal.end();
    assert_eq!((code, status(&home).as_str(), gates(&home).len()), (130, "interrupted", 0));
}

const POLICY: &str = "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n\
    [[rule]]\nid = \"push\"\neffect = \"ask\"\nprogram = \"git\"\n\
    grant = { net = { hosts = [\"git.example:443\"] }, fs_write = [\"@workspace\"], env = [\"GIT_TOKEN\"] }\n\
    ask = { approvers = [\"ann\"], ttl = \"15m\" }\n";

fn policy_question(home: &Home, columns: u16) -> Terminal {
    // A directory that is not the test's own has the same width everywhere.
    home.write("p.toml", POLICY.replace("@workspace", if columns < 60 { "@tmp" } else { "@workspace" }));
    let call = call(home, &["run", "--policy", "p.toml", "flow.lobster"]);
    let mut terminal = Terminal::start(call.env("LOBSTER_APPROVAL_APPROVED_BY", "eve"), columns, 24);
    terminal.wait_for(POLICY_ASKS);
    terminal
}

#[test]
fn a_policy_question_shows_the_command_and_what_it_gets() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "name: release\nsteps:\n  - { id: push, run: 'git push --force https://git.example/x main; git tag \"v 1\"' }\n  - { id: tell, run: echo told }\n",
    );
    let mut terminal = policy_question(&home, 120);
    let screen = terminal.wait_for(POLICY_ASKS).text();
    for part in [
        "--force https://git.example/x main",
        "git tag 'v 1'",
        "git.example:443",
        "only ann",
        "step push of flow.lobster",
    ] {
        assert!(screen.contains(part), "{part}:\n{screen}");
    }
    // Who may not say yes is told so, and the question stays.
    terminal.enter("y").wait_for(POLICY_ASKS);
    terminal.enter("l");
    let (code, screen) = terminal.end();
    assert_eq!((code, status(&home).as_str()), (0, "waiting"));
    shows(&home, "policy-120", &steady(&screen.text()));
    // The same facts, wherever it is looked at.
    let id = gates(&home)[0]["id"].as_str().unwrap().to_owned();
    let listed = home.lobster(["approvals"]).env("COLUMNS", "100").run();
    let shown = home.lobster(["approvals", "show", &id]).env("COLUMNS", "100").run();
    let whole: Value =
        serde_json::from_str(&home.lobster(["approvals", "show", &id, "--json"]).run().stdout).unwrap();
    for part in ["--force https://git.example/x main", "git.example:443", "only ann"] {
        for answer in [&listed, &shown] {
            assert!(answer.stdout.contains(part), "{part}: {answer:?}");
        }
        assert!(whole["facts"].to_string().contains(part), "{whole:#}");
    }
    assert!(shown.stdout.contains("GIT_TOKEN"), "{shown:?}");
}

/// Without what differs from run to run, and from machine to machine.
fn steady(screen: &str) -> String {
    let varies = ["until ", "programs ", "protected ", "hidden ", "may read "];
    let lines =
        screen.lines().filter(|line| !varies.iter().any(|label| line.trim_start().starts_with(label)));
    lines.map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn a_long_command_is_shown_or_says_how_much_is_missing() {
    for columns in [40, 120] {
        let home = Home::new();
        let words: Vec<String> = (0..700).map(|n| format!("w{n:05}")).collect();
        let command = format!("git push {}", words.join(" "));
        assert!(command.len() > 4900);
        home.write(
            "flow.lobster",
            serde_json::json!({"steps": [{"id": "push", "run": command}]}).to_string(),
        );
        let mut terminal = policy_question(&home, columns);
        let screen = terminal.wait_for(POLICY_ASKS).text();
        assert!(screen.lines().count() <= 24, "{screen}");
        let seen = words.iter().filter(|word| screen.contains(word.as_str())).count();
        assert!(seen < words.len() && screen.contains("more characters: s shows all"), "{screen}");
        terminal.enter("s").wait_for("]");
        terminal.enter("a").wait_for(POLICY_ASKS);
        terminal.enter("n");
        let (_, all) = terminal.end();
        let all = all.text();
        assert!(words.iter().all(|word| all.contains(word.as_str())));
        let first: String = screen.lines().map(|line| line.to_owned() + "\n").collect();
        shows(&home, &format!("long-command-{columns}"), &steady(&first));
    }
}

#[test]
fn what_cannot_be_seen_is_made_visible() {
    let home = Home::new();
    home.write(
        "items.json",
        serde_json::json!([
            {"name\u{1b}[2J": "a\u{1b}[31mred", "note": "\u{202e}txt.exe\u{200b}"},
            {"name\u{1b}[2J": "line\nline\ttab", "note": "\u{feff}\u{ad}é👩\u{200d}🚀"},
        ])
        .to_string(),
    )
    .write(
        "flow.lobster",
        serde_json::json!({"steps": [
            {"id": "list", "run": "cat items.json"},
            {"id": "ask", "approval": "Delete?\u{1b}[2K\rKeep \u{200b}\u{202e}all?", "stdin": "$list.json"},
            {"id": "push", "run": "git push \u{1b}[8mhidden\u{202e} git\u{200b}hub # \u{7f}"},
        ]})
        .to_string(),
    );
    let mut terminal = Terminal::start(call(&home, &["run", "flow.lobster"]), 80, 40);
    terminal.wait_for(ASKS);
    terminal.enter("s").wait_for(ASKS);
    terminal.enter("l");
    let (_, screen) = terminal.end();
    let screen = screen.text();
    for hidden in ['\u{1b}', '\u{202e}', '\u{200b}', '\u{feff}', '\u{ad}'] {
        assert!(!screen.contains(hidden), "{hidden:?}:\n{screen}");
    }
    assert!(screen.contains("git push ^[[8mhidden<U+202E> git<U+200B>hub # ^?"), "{screen}");
    shows(&home, "hidden-characters", &screen);
    let listed = home.lobster(["approvals"]).run().stdout;
    assert!(!listed.contains(['\u{1b}', '\u{202e}', '\u{200b}', '\u{7f}']), "{listed:?}");
}

#[test]
fn colours_are_for_terminals_that_want_them() {
    let screen = |name: &str, value: &str| {
        let home = list_of(&mails(3));
        let mut terminal = Terminal::start(
            home.lobster(["run", "flow.lobster"])
                .env("TERM", "xterm-256color")
                .env("LOBSTER_PROGRESS", "off")
                .env(name, value),
            80,
            24,
        );
        terminal.wait_for(ASKS);
        terminal.enter("y");
        let (code, screen) = terminal.end();
        assert_eq!(code, 0);
        (home, screen)
    };
    let (home, styled) = screen("A", "b");
    shows(&home, "styled", &styled.styled());
    for (name, value) in [("NO_COLOR", "1"), ("TERM", "dumb")] {
        let (_, plain) = screen(name, value);
        assert_eq!(plain.styled(), plain.now(), "{name}");
        assert_eq!(
            plain.now().lines().next(),
            styled.now().lines().next(),
            "the words are the same with {name}"
        );
    }
}

#[test]
fn a_request_for_input_says_what_fits_and_asks_again() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "name: order\nsteps:\n  - { id: stock, run: 'echo ''[{\"part\":\"bolt\",\"left\":3}]''' }\n  - id: ask\n    input:\n      prompt: How many?\n      \
         responseSchema:\n        type: object\n        required: [count]\n        properties:\n          count: { type: integer, minimum: 1, description: pieces }\n          \
         speed: { enum: [slow, fast], default: slow }\n  - { id: say, run: 'echo $ask.response.count' }\n",
    );
    let asks = "Answer [JSON; :s all, :l later, :? help]";
    let mut terminal = Terminal::start(call(&home, &["run", "flow.lobster"]), 80, 24);
    terminal.wait_for(asks);
    for line in ["five", "{\"count\": 0}", ":?", "{\"count\": 2, \"speed\": \"warp\"}"] {
        terminal.enter(line).wait_for(asks);
    }
    terminal.enter("{\"count\": 5}");
    let (code, screen) = terminal.end();
    assert_eq!((code, status(&home).as_str()), (0, "ok"));
    shows(&home, "input", &screen.text());

    let mut terminal = Terminal::start(call(&home, &["run", "flow.lobster"]), 80, 24);
    terminal.wait_for(asks);
    terminal.enter(":l");
    let (code, screen) = terminal.end();
    assert!(code == 0 && screen.text().contains("lobster approvals answer "), "{}", screen.text());
}

#[test]
fn data_goes_to_stdout_and_talk_to_the_terminal() {
    let home = list_of(&mails(3));
    let file = std::fs::File::create(home.dir().join("out.json")).unwrap();
    let mut terminal =
        Terminal::start_with(call(&home, &["run", "flow.lobster"]), 80, 24, Some(Stdio::from(file)));
    terminal.wait_for(ASKS);
    terminal.enter("y");
    let (code, screen) = terminal.end();
    assert!(code == 0 && screen.text().contains("0003-offer.eml"), "{}", screen.text());
    let data: Value = serde_json::from_str(&home.read("out.json")).unwrap();
    assert_eq!(data, serde_json::json!(["deleted\n"]));
}

#[test]
fn a_pipeline_shows_its_preview() {
    let home = list_of(&mails(30));
    let text = "exec --json --shell 'cat items.json' | approve --preview-from-stdin --limit 5 --prompt 'Send?' | pick file";
    let mut terminal = Terminal::start(call(&home, &[text]), 80, 24);
    let screen = terminal.wait_for(ASKS).text();
    assert!(screen.contains("Send?  30 items") && screen.contains("0001-offer.eml"), "{screen}");
    assert!(screen.contains("3. pick file"), "{screen}");
    terminal.enter("n");
    assert_eq!(terminal.end().0, 1);
}

#[test]
fn where_nobody_sees_the_question_only_a_clear_answer_counts() {
    for (typed, code, what) in
        [("y\n", 0, "ok"), ("n\n", 1, "cancelled"), ("perhaps\n", 1, "waiting"), ("\u{4}", 1, "waiting")]
    {
        let home = list_of(&mails(3));
        let file = || std::fs::File::create(home.dir().join("out")).unwrap();
        let mut terminal =
            Terminal::start_unseen(home.lobster(["run", "flow.lobster"]), file().into(), Stdio::null());
        terminal.send(typed);
        let (ended, _) = terminal.end();
        assert_eq!((ended, status(&home).as_str()), (code, what), "{typed:?}");
        let out = home.read("out");
        assert!(out.contains("0003-offer.eml") && out.contains("Delete these mails? [y/N] "), "{out}");
    }
}
