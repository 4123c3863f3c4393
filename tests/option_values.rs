//! Whatever options there are: one without its value, or given twice, is refused by every command before it does
//! anything, and so is one that the command does not have.

use serde_json::Value;

use crate::home::Home;
use crate::unattended::all_commands;

/// Every command with an option of it that takes a value, and whether the option may be repeated.
fn options(described: &Value) -> Vec<(Vec<String>, String, bool)> {
    fn walk(commands: &Value, before: &[&str], found: &mut Vec<(Vec<String>, String, bool)>) {
        for command in commands.as_array().into_iter().flatten() {
            let mut words = before.to_vec();
            words.push(command["name"].as_str().unwrap());
            walk(&command["commands"], &words, found);
            for argument in command["arguments"].as_array().into_iter().flatten() {
                let flags = argument["aliases"].as_array().into_iter().flatten();
                let flags = flags.filter_map(Value::as_str).map(|alias| format!("--{alias}"));
                let flags = flags.chain(argument["flag"].as_str().map(str::to_owned));
                if argument["value"].is_string() {
                    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
                    found.extend(flags.map(|flag| (words.clone(), flag, argument["repeats"] == true)));
                }
            }
        }
    }
    let mut found = Vec::new();
    walk(&described["commands"], &[], &mut found);
    found
}

#[test]
fn an_option_without_its_value_or_given_twice_starts_nothing() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: a\n    run: touch done\n");
    let described: Value = serde_json::from_str(&home.lobster(["--describe"]).run().stdout).unwrap();
    let mut commands = Vec::new();
    all_commands(&described["commands"], &[], &mut commands);
    let options = options(&described);
    assert!(options.len() > 100, "{}", options.len());
    let mut wrong = Vec::new();
    // These two print a text whatever else is said.
    for (name, flag, repeats) in
        options.into_iter().filter(|(name, ..)| *name != ["version"] && *name != ["help"])
    {
        let whole = commands.iter().find(|words| {
            let names = words.iter().take_while(|word| !word.starts_with('-'));
            words.starts_with(&name) && (words.len() == name.len() || names.count() >= name.len())
        });
        // What is required of the command is given, but for the option that is tried.
        let mut words = whole.cloned().unwrap_or_else(|| name.clone());
        if let Some(at) = words.iter().position(|word| *word == flag) {
            words.drain(at..(at + 2).min(words.len()));
        }
        if ["run", "graph", "check"].contains(&name[0].as_str()) {
            words.push("flow.lobster".to_owned());
        }
        let twice = [flag.clone(), "1".to_owned(), format!("{flag}=2")];
        let tries = [vec![flag.clone()], twice.to_vec()];
        for more in tries.iter().take(if repeats { 1 } else { 2 }) {
            // The word `run` may be left out.
            for begin in 0..=usize::from(name == ["run"]) {
                let words: Vec<&String> = words[begin..].iter().chain(more).collect();
                let answer = home.lobster(&words).run();
                if answer.code() != 2 {
                    wrong.push(format!("{words:?}: {answer:#?}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!home.dir().join("done").exists());
    let answer = home.lobster(["run", "flow.lobster", "--mode", "tool", "--policy"]).run();
    assert_eq!((answer.code(), answer.error().as_str()), (2, "--policy needs a value"));
}

#[test]
fn an_option_that_the_command_does_not_have_starts_nothing() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - id: a\n    run: touch done\n");
    let described: Value = serde_json::from_str(&home.lobster(["--describe"]).run().stdout).unwrap();
    let mut commands = Vec::new();
    all_commands(&described["commands"], &[], &mut commands);
    // These two print a text whatever else is said.
    commands.retain(|words| !["version", "help"].contains(&words[0].as_str()));
    for words in &mut commands {
        if ["run", "graph", "check"].contains(&words[0].as_str()) {
            words.push("flow.lobster".to_owned());
        }
    }
    // An answer, which lets the rest of the run happen.
    let asked = home.lobster(["run", "--mode", "tool", "exec echo a | approve | exec touch done"]).run();
    let id = asked.envelope()["requiresApproval"]["approvalId"].as_str().unwrap().to_owned();
    let token = asked.token();
    for answer in [["--id", &id, "--approve", "yes"], ["--token", &token, "--approve", "yes"]] {
        commands.push([&["resume"][..], &answer].concat().into_iter().map(str::to_owned).collect());
    }
    commands.push(["approvals", "approve", &id].map(str::to_owned).to_vec());
    let mut wrong = Vec::new();
    for words in &commands {
        for option in ["--polciy=deny.toml", "-Z"] {
            // As for the incumbent, an answer passes over what means nothing anywhere.
            if option == "-Z" && words.iter().any(|word| word == "--approve") {
                continue;
            }
            let words: Vec<&str> = words.iter().map(String::as_str).chain([option]).collect();
            let answer = home.lobster(&words).run();
            if answer.code() != 2 {
                wrong.push(format!("{words:?}: {answer:#?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(!home.dir().join("done").exists());
    let answer = home.lobster(["resume", "--id", &id, "--approve", "yes", "--policy", "/none.toml"]).run();
    assert!(answer.error().starts_with("resume has no option \"--policy\"; "), "{answer:?}");
}
