//! Whatever options there are: one without its value, or given twice, is refused by every command before it does
//! anything.

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
