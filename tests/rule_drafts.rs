//! Making a rule of the policy out of a question of the policy, at a pseudo-terminal.

use std::fs;

use crate::home::{Call, Home};
use crate::pty::Terminal;

const ASKS: &str = "Approve? [y/n/e/s/l/?]";
const RULE: &str = "Rule? [k: keep, e: edit, q: back to the question]";
const POLICY: &str = "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n";

fn home_with(run: &str) -> Home {
    let home = Home::new();
    home.write("p.toml", POLICY).write("flow.lobster", format!("steps:\n  - {{ id: t, run: {run} }}\n"));
    home
}

fn call(home: &Home) -> Call {
    home.lobster(["run", "--policy", "p.toml", "flow.lobster"])
        .env("TERM", "xterm-256color")
        .env("NO_COLOR", "1")
        .env("LOBSTER_PROGRESS", "off")
}

fn start(call: Call) -> Terminal {
    let mut terminal = Terminal::start(call, 120, 40);
    terminal.wait_for(ASKS);
    terminal
}

fn policy(home: &Home) -> String {
    fs::read_to_string(home.dir().join("p.toml")).unwrap()
}

/// An editor that replaces what it is given.
fn editor(home: &Home, sed: &str) -> String {
    home.write("editor", format!("#!/bin/sh\nexec sed -i '{sed}' \"$1\"\n"));
    format!("sh {}/editor", home.dir().display())
}

#[test]
fn the_narrowest_rule_is_kept_and_the_next_run_is_not_asked() {
    let home = home_with("touch made");
    let mut terminal = start(call(&home));
    let screen = terminal.enter("e").wait_for(RULE).text();
    assert!(screen.contains("argv = [\"touch\", \"made\"]"), "{screen}");
    assert!(screen.contains("and also: no other recorded command"), "{screen}");
    terminal.enter("k").wait_for(ASKS);
    assert!(policy(&home).starts_with(POLICY) && policy(&home).contains("argv = [\"touch\", \"made\"]"));
    // The rule is for later runs: this one still waits for a word.
    assert!(!home.dir().join("made").exists());
    terminal.enter("n");
    let (code, _) = terminal.end();
    assert_eq!((code, home.dir().join("made").exists()), (1, false));
    let next = home.tool(["--policy", "p.toml", "flow.lobster"]);
    assert_eq!(next.envelope()["status"], "ok", "{next:?}");
    assert!(home.dir().join("made").exists());
}

#[test]
fn an_edited_rule_tells_what_else_it_would_allow_or_why_it_cannot_be_kept() {
    let home = home_with("touch made");
    // What was recorded: another command, which the wider rule covers too.
    home.write("other.lobster", "steps:\n  - { id: o, run: touch other }\n");
    home.tool(["other.lobster"]);
    let mut terminal = start(call(&home).env("EDITOR", editor(&home, "s/^argv.*/program = \"touch\"/")));
    terminal.enter("e").wait_for(RULE);
    let screen = terminal.enter("e").wait_for(RULE).text();
    assert!(
        screen.contains("program = \"touch\"") && screen.contains("and also: `/bin/sh -c touch other`"),
        "{screen}"
    );
    terminal.enter("q").wait_for(ASKS);
    assert_eq!(policy(&home), POLICY);
    terminal.enter("l");
    terminal.end();
    for (sed, why) in
        [("s/^argv.*/argv = [\"touch\", \"else\"]/", "it would be stopped"), ("s/^argv.*/arg = 1/", "arg")]
    {
        let mut terminal = start(call(&home).env("VISUAL", editor(&home, sed)).env("EDITOR", "false"));
        terminal.enter("e").wait_for(RULE);
        let screen = terminal.enter("e").wait_for("Rule? [e: edit, q: back]").text();
        assert!(screen.contains(why), "{screen}");
        // What lifts nothing is not kept, whatever is typed.
        terminal.enter("k").wait_for("Rule? [e: edit, q: back]");
        terminal.enter("q").wait_for(ASKS);
        terminal.enter("n");
        terminal.end();
        assert_eq!(policy(&home), POLICY);
    }
}

#[test]
fn a_file_that_changed_meanwhile_stays_as_it_is() {
    let home = home_with("touch made");
    let mut terminal = start(call(&home).env("EDITOR", "false"));
    terminal.enter("e").wait_for(RULE);
    let screen = terminal.enter("e").wait_for(RULE).text();
    assert!(screen.contains("`false` failed"), "{screen}");
    let theirs = format!("{POLICY}# theirs\n");
    home.write("p.toml", &theirs);
    let screen = terminal.enter("k").wait_for(RULE).text();
    assert!(screen.contains("was changed in the meantime; nothing was written"), "{screen}");
    terminal.enter("q").wait_for(ASKS);
    terminal.enter("n");
    terminal.end();
    assert_eq!(policy(&home), theirs);
}

#[test]
fn a_project_policy_stays_trusted() {
    let home = home_with("touch made");
    fs::rename(home.dir().join("p.toml"), home.dir().join("lobster.policy.toml")).unwrap();
    let run = || {
        home.lobster(["run", "flow.lobster"])
            .env("TERM", "xterm-256color")
            .env("NO_COLOR", "1")
            .env("LOBSTER_PROGRESS", "off")
    };
    let trusted = home.lobster(["policy", "trust", "--yes"]).run();
    assert_eq!(trusted.code(), 0, "{trusted:?}");
    let mut terminal = start(run());
    terminal.enter("e").wait_for(RULE);
    let screen = terminal.enter("k").wait_for(ASKS).text();
    assert!(screen.contains("Saved in"), "{screen}");
    terminal.enter("n");
    terminal.end();
    let next = home.tool(["flow.lobster"]);
    assert_eq!(next.envelope()["status"], "ok", "{next:?}");
}

#[test]
fn where_a_rule_wants_the_question_no_other_takes_it_away() {
    let home = home_with("touch made");
    home.write("p.toml", format!("{POLICY}[[rule]]\nid = \"look\"\neffect = \"ask\"\nprogram = \"touch\"\n"));
    let mut terminal = start(call(&home));
    let screen = terminal.enter("e").wait_for("Rule? [e: edit, q: back]").text();
    assert!(screen.contains("it would be stopped"), "{screen}");
    terminal.enter("q").wait_for(ASKS);
    terminal.enter("n");
    terminal.end();
}
