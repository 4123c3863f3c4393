//! What a person at a terminal sees while a run goes on and when it is over: a real
//! pseudo-terminal, wide and narrow. `live/*.txt` hold the screens; `UPDATE_EXPECTED=1`
//! writes them anew.

use std::path::Path;

use crate::binary;
use crate::home::{Call, Home, wait_until};
use crate::pty::{Screen, Terminal};

const FLOW: &str = "
name: release
steps:
  - id: fetch
    run: echo 'getting the list' >&2; sleep 0.7; echo '[1,2,3]'
  - id: each
    for_each: $fetch.json
    steps:
      - { id: work, run: echo ok }
      - { id: calc, js: input }
  - id: both
    parallel:
      branches:
        - { id: left, run: echo left }
        - { id: right, run: echo right }
  - { id: maybe, run: echo no, when: $fetch.json == 7 }
  - { id: a-step-whose-name-is-long, js: input.length, stdin: $fetch.json }
";

/// Of a spinner.
const FRAMES: [char; 10] = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];

fn call(home: &Home, words: &[&str]) -> Call {
    home.lobster(words).env("TERM", "xterm").env("NO_COLOR", "1").env("LOBSTER_PAGER", "cat")
}

/// The screen with what varies replaced: times, rates, ids; blanks as far as they only align.
pub(crate) fn steady(screen: &str) -> String {
    let words = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        for at in 1..words.len() {
            let is_unit = matches!(words[at].trim_end_matches([',', ')']), "ms" | "s" | "µs" | "min" | "MiB");
            let figure = words[at - 1].trim_start_matches('(');
            if is_unit && figure.parse::<f64>().is_ok() {
                words[at - 1] = words[at - 1].replace(figure, "N");
            }
        }
        for word in &mut words {
            let bare = word.trim_matches([',', ':']);
            if bare.len() == 8 && bare.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                *word = word.replace(bare, "ID");
            } else if bare.ends_with("/s") || bare.ends_with("/min") {
                *word = word.replace(bare, "RATE");
            }
        }
        let text = words.join(" ").replace("N µs", "N ms").replace("N s", "N ms");
        let text = text.replace("just now", "N ms ago");
        format!("{}{text}\n", " ".repeat(indent))
    };
    screen.lines().map(words).collect::<String>().replace(", RATE", "")
}

pub(crate) fn shows(name: &str, screen: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("live").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, screen).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(screen, expected, "{name}; UPDATE_EXPECTED=1 accepts");
}

fn run(home: &Home, words: &[&str], columns: u16) -> (i32, Screen) {
    Terminal::start(call(home, words), columns, 40).end()
}

#[test]
fn each_step_is_one_true_line_when_the_run_is_over() {
    let home = Home::new();
    home.write("flow.lobster", FLOW);
    // The pure steps come from the cache the second time, and are there all the same.
    for (columns, name, sum) in [
        (120_u16, "first-120", ": 5 steps, 1 skipped,"),
        (120, "second-120", ": 5 steps, 1 reused,"),
        (40, "second-40", ": 5 steps, 1 reused,"),
    ] {
        let (code, screen) = run(&home, &["run", "flow.lobster"], columns);
        let text = screen.text();
        assert!(code == 0 && text.contains(sum), "{text}");
        assert!(text.lines().all(|line| line.chars().count() < usize::from(columns)), "{text}");
        // Where the sum is broken depends on its figures.
        let steps = steady(&text);
        shows(name, &(steps.split("\nrun ID").next().unwrap().to_owned() + "\n"));
    }
}

#[test]
fn a_running_step_shows_what_it_wrote_last_and_nothing_of_it_stays() {
    let worker = format!("{} worker --stdio", binary::lobster().display());
    // A key that lobster itself uses is hidden, also while it is unsure what the end of a stream becomes.
    for (name, value) in
        [("NOTHING", ""), ("OPENAI_API_KEY", "sk-hidden-0123456789"), ("LOBSTER_EXECUTOR", &worker)]
    {
        let home = Home::new();
        home.write(
            "flow.lobster",
            "steps:\n  - { id: slow, run: \"echo first >&2; echo second >&2; while ! test -e go; do sleep 0.05; done\" }\n",
        );
        let call = call(&home, &["run", "flow.lobster"]).env(name, value);
        let mut terminal = Terminal::start(call, 80, 24);
        terminal.wait_until(|screen| screen.contains("│ second") && screen.contains(" slow  echo"));
        home.write("go", "");
        let (code, screen) = terminal.end();
        let text = screen.text();
        assert!(code == 0 && text.starts_with("✓ slow") && !text.contains("second\n"), "{name}: {text}");
        assert!(!text.contains(FRAMES), "no frozen spinner: {text}");
    }
}

#[test]
fn a_failed_step_stays_and_a_resume_begins_with_what_was_done() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "name: f\nsteps:\n  - { id: list, run: echo list }\n  - { id: push, run: \"echo no such place >&2; test -e ok\" }\n  - { id: last, run: echo last }\n",
    );
    let (code, failed) = run(&home, &["run", "flow.lobster"], 100);
    assert_eq!(code, 1);
    shows("failed", &steady(&failed.text()));
    home.write("ok", "");
    let (code, resumed) = run(&home, &["resume", "@"], 100);
    assert_eq!(code, 0, "{}", resumed.text());
    shows("resumed", &steady(&resumed.text()));
    let (code, forked) = run(&home, &["fork", "@", "--from", "push"], 100);
    assert_eq!(code, 0, "{}", forked.text());
    shows("forked", &steady(&forked.text()));
}

#[test]
fn a_question_has_the_terminal_for_itself_and_its_step_is_told_after_it() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - { id: list, run: echo hi }\n  - { id: ask, approval: Go? }\n  - { id: last, run: echo last }\n",
    );
    let mut terminal = Terminal::start(call(&home, &["run", "flow.lobster"]), 100, 40);
    terminal.wait_for("Approve? [y/n/s/l/?]");
    let (code, screen) = terminal.enter_and_end("l");
    let text = screen.text();
    assert!(code == 0 && text.contains("\n? ask   waits for an answer"), "{text}");
    // Answered from another command, on the same terminal.
    let (code, screen) = run(&home, &["approvals", "approve", "@"], 100);
    let text = screen.text();
    assert!(code == 0 && text.contains("✓ last") && text.contains("done before"), "{text}");
    assert!(text.trim_end().ends_with("[\n  \"last\\n\"\n]"), "no envelope for a person: {text}");
}

/// Ctrl-S stops the terminal, not the run; Ctrl-Q shows what came meanwhile.
#[test]
fn a_stopped_terminal_does_not_hold_the_run() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - { id: slow, run: \"touch begun; while ! test -e go; do echo waits >&2; sleep 0.1; done\" }\n  \
         - { id: next, run: touch next }\n  - { id: end, run: \"seq 100000 >&2; touch all\" }\n",
    );
    let mut terminal = Terminal::start(call(&home, &["run", "flow.lobster"]), 80, 24);
    terminal.wait_until(|screen| screen.contains("│ waits"));
    terminal.send("\u{13}");
    home.write("go", "");
    for name in ["next", "all"] {
        wait_until(name, || home.dir().join(name).exists());
    }
    terminal.send("\u{11}");
    let (code, screen) = terminal.end();
    let text = screen.text();
    assert!(code == 0 && text.contains("✓ slow") && text.contains("✓ end"), "{text}");
}

/// For pipes and terminals that cannot go back: a line for each step, no signs, no colours.
#[test]
fn elsewhere_there_are_plain_lines() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - { id: fetch, run: \"echo '[1,2,3]'\" }\n  - { id: each, for_each: $fetch.json, steps: [{ id: x, run: echo x }] }\n  \
         - { id: maybe, run: echo no, when: $fetch.json == 7 }\n  - { id: known, run: echo known, cache: true }\n",
    );
    home.tool(["flow.lobster"]).output();
    let piped = home.lobster(["run", "flow.lobster"]).run();
    assert_eq!(piped.stdout, "[\n  \"known\\n\"\n]\n");
    shows("piped", &steady(&piped.stderr));
    let (_, dumb) = Terminal::start(call(&home, &["run", "flow.lobster"]).env("TERM", "dumb"), 80, 24).end();
    let text = dumb.text();
    assert!(text.contains("ok fetch (") && text.contains("reused known") && !text.contains('✓'), "{text}");
    let quiet = home.lobster(["run", "flow.lobster"]).env("LOBSTER_PROGRESS", "off").run();
    assert_eq!(quiet.stderr, "");
    // A program's answer is not touched.
    let tool = home.tool(["flow.lobster"]);
    assert_eq!(tool.stderr, "");
    // A pipeline is on the screen as a whole.
    let (_, pipeline) = run(&home, &["exec --shell 'echo hi' | json"], 80);
    assert_eq!(pipeline.text().trim_end(), "[\n  \"hi\"\n]", "{}", pipeline.styled());
}

#[test]
fn a_window_that_is_made_narrower_keeps_whole_lines() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "steps:\n  - { id: slow, run: \"while ! test -e go; do sleep 0.05; done # a comment that makes the line long\" }\n",
    );
    let mut terminal = Terminal::start(call(&home, &["run", "flow.lobster"]), 100, 24);
    terminal.wait_until(|screen| screen.contains(" slow  while"));
    terminal.resize(40, 24);
    // It is drawn anew for the narrower window while the step is at work.
    terminal
        .wait_until(|screen| screen.contains("slow") && screen.lines().all(|line| line.chars().count() < 40));
    home.write("go", "");
    let (code, screen) = terminal.end();
    let text = screen.text();
    assert!(code == 0 && text.lines().filter(|line| line.contains("slow")).count() == 1, "{text}");
    assert!(text.lines().all(|line| line.chars().count() < 40), "{text}");
}
