//! A question looks alike wherever it is shown (invariant G5): what a yes sets going
//! stands at the terminal, in `gates`, `gates show`, for `--notify` and over MCP in
//! the same words, references resolved, and is what runs.

use serde_json::{Value, json};

use crate::home::{Call, Home};
use crate::mcp_server::Client;
use crate::pty::Terminal;

const ASKS: &str = "Approve? [y/n/s/l/?]";

/// Plans, with the text of what a yes sets going in each. Where code is looked at behind the
/// question, the evaluator is compiled before it: that takes some seconds, once.
const PLANS: [(&str, &str, &[&str]); 7] = [
    (
        "reference",
        "steps:\n  - { id: pick, js: 40 + 2 }\n  - { id: ask, approval: 'Go?' }\n  \
         - { id: go, run: 'echo $pick.stdout >> log' }\n",
        &["go: /bin/sh -c 'echo 42 >> log'"],
    ),
    (
        "argument",
        "args:\n  to: { default: ann }\nsteps:\n  - { id: who, run: 'printf bob' }\n  - { id: ask, approval: 'Go?' }\n  \
         - { id: words, exec: [printf, '${to}', 'a b', $who.stdout] }\n",
        &["words: printf ann 'a b' bob"],
    ),
    (
        "computed_behind",
        "steps:\n  - { id: warm, js: '1' }\n  - { id: ask, approval: 'Go?' }\n  - { id: pick, js: '\"x;\" + 1' }\n  \
         - { id: go, exec: [echo, $pick.json] }\n",
        &["go: echo 'x;1'"],
    ),
    (
        "branches",
        "steps:\n  - { id: n, js: '7' }\n  - { id: ask, approval: 'Go?' }\n  - id: both\n    parallel:\n      wait: all\n      \
         branches:\n        - { id: a, run: 'echo a $n.stdout >> log' }\n        - { id: b, run: 'echo b $n.stdout >> log' }\n",
        &["both/a: /bin/sh -c 'echo a 7 >> log'", "both/b: /bin/sh -c 'echo b 7 >> log'"],
    ),
    (
        "pipeline",
        "steps:\n  - { id: ask, approval: 'Go?' }\n  - { id: pipe, pipeline: 'exec --shell \"echo x >> log\" | json' }\n",
        &["pipe|0.0: /bin/sh -c 'echo x >> log'"],
    ),
    (
        "fails",
        "steps:\n  - { id: warm, js: '1' }\n  - { id: ask, approval: 'Go?' }\n  - { id: bad, js: 'throw new Error(\"no way\")' }\n",
        &[],
    ),
    (
        "nothing",
        "steps:\n  - { id: warm, js: '1' }\n  - { id: ask, approval: 'Go?' }\n  - { id: pure, js: '1' }\n",
        &[],
    ),
];

/// Without blanks and the marks of other lines, since each screen breaks lines elsewhere.
fn bare(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn values(facts: &Value, label: &str) -> Vec<String> {
    let fact = facts.as_array().into_iter().flatten().find(|fact| fact["label"] == label);
    let values = fact.and_then(|fact| fact["values"].as_array()).cloned().unwrap_or_default();
    values.iter().map(|value| value.as_str().unwrap().to_owned()).collect()
}

fn on_paper(home: &Home, words: &[&str]) -> Call {
    home.lobster(words).env("TERM", "xterm-256color").env("NO_COLOR", "1").env("COLUMNS", "100")
}

fn open_gate(home: &Home) -> String {
    let gates: Value = serde_json::from_str(&home.lobster(["gates", "--json"]).run().stdout).unwrap();
    assert_eq!(gates.as_array().map(Vec::len), Some(1), "{gates}");
    gates[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn what_a_yes_sets_going_is_the_same_text_on_every_screen() {
    for (name, plan, expected) in PLANS {
        let home = Home::new();
        let file = format!("flows/{name}.lobster");
        home.write(&file, format!("name: {name}\n{plan}"));

        // At a terminal, and left for later from there.
        let mut terminal = Terminal::start(on_paper(&home, &["run", &file]), 100, 40);
        let mut screens = vec![("terminal", terminal.wait_for(ASKS).text())];
        terminal.enter("l");
        assert_eq!(terminal.end().0, 0, "{name}");
        let id = open_gate(&home);

        // To the other commands.
        screens.push(("gates", on_paper(&home, &["gates"]).run().stdout));
        screens.push(("gates show", on_paper(&home, &["gates", "show", &id]).run().stdout));
        let shown = home.lobster(["gates", "show", &id, "--json"]).run();
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        assert_eq!(values(&shown["facts"], "at once"), expected, "{name}: {shown:#}");
        assert_eq!(!values(&shown["facts"], "a yes fails").is_empty(), name == "fails", "{shown:#}");
        assert!(home.lobster(["gates", "reject", &id]).run().code() == 0, "{name}");

        // To whoever is told.
        let told = home.dir().join("told.json");
        let notify = format!("cat > '{}'", told.display());
        let waits = home.lobster(["run", "--mode", "tool", "--notify", &notify, &file]).run();
        assert_eq!(waits.envelope()["status"], "needs_approval", "{name}: {waits:?}");
        let message: Value = serde_json::from_slice(&std::fs::read(&told).unwrap()).unwrap();
        assert_eq!(values(&message["facts"], "at once"), expected, "{name}: {message:#}");
        screens.push(("notify", values(&message["facts"], "a yes fails").concat() + &expected.join("\n")));

        // To the user of an MCP client.
        let mut client = Client::ready(&home, &["--workflows", "flows"], Some(json!({"action": "cancel"})));
        client.call(name, json!({}));
        let asked = client.heard.iter().find(|message| message["method"] == "elicitation/create").unwrap();
        screens.push(("MCP", asked["params"]["message"].as_str().unwrap().to_owned()));

        let fails = bare(&values(&shown["facts"], "a yes fails").concat());
        for (screen, text) in &screens {
            let text = bare(text);
            for effect in expected {
                assert!(text.contains(&bare(effect)), "{name}, {screen}: {effect} is not in\n{text}");
            }
            assert!(text.contains(&fails), "{name}, {screen}: {fails} is not in\n{text}");
        }
        assert_eq!(home.read("log"), "", "{name}: showing does nothing");
    }
}
