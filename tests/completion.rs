//! What shells offer when a word of a lobster command is completed: asked of lobster itself, and
//! seen in bash, zsh and fish with the scripts that `lobster completions` prints.

use std::os::unix::fs::symlink;

use crate::home::Home;
use crate::pty::Terminal;

#[test]
fn completion_knows_runs_steps_gates_files_and_arguments() {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "name: triage\nargs: { who: { default: you, description: Whom to greet }, why: { default: 1 } }\n\
         steps:\n  - { id: list, run: echo hi }\n  - { id: ask, approval: Go on? }\n",
    )
    .write("notes.txt", "");
    home.tool(["flow.lobster"]).token();
    let run =
        home.lobster(["runs"]).run().stdout.lines().nth(1).unwrap().split(' ').next().unwrap().to_owned();
    let complete = |words: &[&str]| {
        let answer = home.lobster(["complete", "fish", "--"].iter().chain(words)).run();
        assert_eq!((answer.code(), answer.stderr.as_str()), (0, ""), "{answer:?}");
        let first = |line: &str| line.split('\t').next().unwrap().to_owned();
        answer.stdout.lines().map(first).collect::<Vec<_>>()
    };
    assert_eq!(complete(&["show", ""]), ["@", &run]);
    assert_eq!(complete(&["show", "tri"]), ["triage@-"]);
    assert_eq!(complete(&["logs", "@", "l"]), ["list"]);
    assert_eq!(complete(&["why", &run, "li"]), ["list"]);
    assert_eq!(complete(&["approvals", "approve", ""]).len(), 1);
    assert_eq!(complete(&["run", "f"]), ["flow.lobster"]);
    assert_eq!(complete(&["check", ""]), ["flow.lobster"]);
    assert_eq!(complete(&["run", "flow.lobster", "--arg", "w"]), ["who=", "why="]);
    assert_eq!(complete(&["runs", "--name", ""]), ["triage"]);
    // Nothing is made where there is nothing.
    let empty = Home::cold();
    assert_eq!(empty.lobster(["complete", "fish", "--", "show", ""]).run().stdout, "");
    assert!(!empty.state().join("store").exists());
}

/// A run of `flow.lobster` called triage, and the script of a shell.
fn home_with_script(shell: &str) -> Home {
    let home = Home::new();
    home.write(
        "flow.lobster",
        "name: triage\nargs: { who: { default: you }, why: { default: 1 } }\nsteps: [{ id: a, run: echo a }]\n",
    );
    home.tool(["flow.lobster"]).output();
    std::fs::create_dir(home.dir().join("bin")).unwrap();
    symlink(crate::binary::lobster(), home.dir().join("bin/lobster")).unwrap();
    home.write("script", home.lobster(["completions", shell]).run().stdout);
    home
}

/// Whether a shell is here; where all are wanted, one that is missing fails.
fn is_here(shell: &str) -> bool {
    let found = ["/bin", "/usr/bin", "/usr/local/bin"]
        .iter()
        .any(|dir| std::path::Path::new(dir).join(shell).exists());
    assert!(found || std::env::var_os("LOBSTER_REQUIRE_SHELLS").is_none(), "{shell} is not installed");
    found
}

/// What readline would offer.
#[test]
fn bash_offers_what_lobster_says() {
    let home = home_with_script("bash");
    let offers = |line: &str| {
        let text = format!(
            "source ./script; COMP_LINE='{line}'; COMP_POINT=${{#COMP_LINE}}; _lobster; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let answer = home.program("bash", ["-c", &text]).run();
        answer.stdout.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(offers("lobster appr"), ["approvals"]);
    assert_eq!(offers("lobster runs --status=wai"), ["waiting"], "what is before = stays");
    assert_eq!(offers("lobster show tri"), ["triage@-"]);
    assert_eq!(offers("lobster show triage@"), ["-"], "bash breaks words at @");
    assert_eq!(offers("lobster run flow.lobster --arg who"), ["who="]);
}

#[test]
fn fish_offers_what_lobster_says() {
    if !is_here("fish") {
        return;
    }
    let home = home_with_script("fish");
    let offers = |line: &str| {
        let text = format!("source ./script; complete -C '{line}'");
        let answer = home.program("fish", ["--no-config", "-c", &text]).run();
        assert_eq!(answer.code(), 0, "{answer:?}");
        let word = |line: &str| line.split('\t').next().unwrap().to_owned();
        answer.stdout.lines().map(word).collect::<Vec<_>>()
    };
    assert_eq!(offers("lobster appr"), ["approvals"]);
    assert_eq!(offers("lobster show tri"), ["triage@-"]);
    assert_eq!(offers("lobster logs @ "), ["a"]);
    assert_eq!(offers("lobster run flow.lobster --arg w"), ["who=", "why="]);
}

/// Keys in a real zsh: the word is completed in its line.
#[test]
fn zsh_completes_what_lobster_says() {
    if !is_here("zsh") {
        return;
    }
    let home = home_with_script("zsh");
    let call = home.program("zsh", ["-f", "-i"]).env("TERM", "xterm").env("NO_COLOR", "1");
    let mut terminal = Terminal::start(call, 100, 30);
    terminal.enter("PROMPT='%%%% '; unset zle_bracketed_paste; unsetopt prompt_sp; autoload -Uz compinit; compinit -u -D; source ./script; echo re''ady");
    terminal.wait_until(|screen| screen.contains("\nready"));
    for (typed, completed) in [
        ("lobster appr", "lobster approvals "),
        ("lobster show tri", "lobster show triage@- "),
        ("lobster logs @ ", "lobster logs @ a "),
        ("lobster run flow.lobster --arg who", "lobster run flow.lobster --arg who="),
    ] {
        terminal.send(&format!("{typed}\t"));
        terminal.wait_until(|screen| screen.lines().any(|line| line == format!("%% {completed}").trim_end()));
        // The line is taken back.
        terminal.send("\u{15}");
    }
    terminal.enter("exit");
    terminal.end();
}
