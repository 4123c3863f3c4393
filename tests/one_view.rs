//! A question looks alike wherever it is shown (invariant G5): what a yes sets going
//! stands at the terminal, in `approvals`, `approvals show`, for `--notify` and over MCP in
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
    let gates: Value = serde_json::from_str(&home.lobster(["approvals", "--json"]).run().stdout).unwrap();
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
        screens.push(("approvals", on_paper(&home, &["approvals"]).run().stdout));
        screens.push(("approvals show", on_paper(&home, &["approvals", "show", &id]).run().stdout));
        let shown = home.lobster(["approvals", "show", &id, "--json"]).run();
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        assert_eq!(values(&shown["facts"], "at once"), expected, "{name}: {shown:#}");
        assert_eq!(!values(&shown["facts"], "a yes fails").is_empty(), name == "fails", "{shown:#}");
        assert!(home.lobster(["approvals", "reject", &id]).run().code() == 0, "{name}");

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

/// Values that a command may be given: what hides in a terminal, quotes, lines.
const VALUES: [&str; 10] = [
    "/home/prod",
    "a b",
    "it's",
    "/etc/passwd\n/etc/shadow",
    "\u{1b}[2Jgone",
    "x\u{202e}y",
    "--force",
    "7",
    "$HOME `id`",
    "{\"k\":\"v\"}",
];

#[test]
fn every_value_that_a_yes_uses_is_told() {
    let mut state = 11_u32;
    let mut pick = |count: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as usize % count
    };
    for round in 0..12 {
        let home = Home::new();
        let (mut args, mut env, mut used) = (json!({}), json!({}), Vec::new());
        for name in ["target", "owner-id", "n"].iter().take(1 + pick(3)) {
            let value = VALUES[pick(VALUES.len())];
            args[*name] = json!({ "default": value });
            used.push(value);
        }
        let found = VALUES[pick(VALUES.len())];
        let mut go = json!({"id": "go", "run": "touch went; echo \"$LOBSTER_ARG_TARGET\"; cat"});
        if pick(2) == 0 {
            let value = VALUES[pick(6)];
            env["MODE"] = json!(value);
            used.push(value);
        }
        match pick(3) {
            0 => go["stdin"] = json!("$find.stdout"),
            1 => env["FOUND"] = json!("$find.stdout"),
            _ => go = json!({"id": "go", "exec": ["touch", "went", "$find.stdout"]}),
        }
        used.push(found);
        go["env"] = env;
        let steps =
            json!([{"id": "find", "exec": ["printf", "%s", found]}, {"id": "ask", "approval": "Go?"}, go]);
        let flow = json!({"name": "w", "args": args, "steps": steps}).to_string();
        home.write("flow.json", &flow);
        assert_eq!(home.tool(["flow.json"]).envelope()["status"], "needs_approval", "{flow}");

        let id = open_gate(&home);
        let shown = home.lobster(["approvals", "show", &id, "--json"]).run();
        let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
        let facts: String =
            ["at once", "with", "reads"].iter().flat_map(|label| values(&shown["facts"], label)).collect();
        let text = on_paper(&home, &["approvals", "show", &id]).run().stdout;
        for value in used {
            // A word of a command stands in quotes.
            let told = [value.to_owned(), value.replace('\'', r"'\''")];
            assert!(
                told.iter().any(|told| facts.contains(told)),
                "{round}: {value:?} is not in {facts}\n{flow}"
            );
            let part = value.split(['\n', '\'', '\u{1b}', '\u{202e}']).next_back().unwrap();
            assert!(bare(&text).contains(&bare(part)), "{round}: {value:?} is not in\n{text}");
        }
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
        assert!(!text.contains("unknown at plan time"), "{text}");
        assert!(!home.dir().join("went").exists(), "{round}: showing does nothing");
    }
}

#[test]
fn what_only_the_environment_tells_is_shown_at_the_terminal() {
    let home = Home::new();
    home.write(
        "hidden.lobster",
        "args:\n  target: { default: /home/prod }\nsteps:\n  - { id: find, run: 'echo /etc/passwd' }\n  \
         - { id: ask, approval: 'Go?' }\n  - id: rm\n    run: 'xargs echo rm \"$LOBSTER_ARG_TARGET\"'\n    \
         stdin: $find.stdout\n  - { id: later, run: cat, stdin: $rm.stdout }\n",
    );
    let mut terminal = Terminal::start(on_paper(&home, &["run", "hidden.lobster"]), 100, 40);
    let screen = terminal.wait_for(ASKS).text();
    for told in ["LOBSTER_ARG_TARGET=/home/prod", "/etc/passwd", "$rm.stdout  [output unknown at plan time]"]
    {
        assert!(bare(&screen).contains(&bare(told)), "{told} is not in\n{screen}");
    }
    assert!(!screen.contains("$find.stdout  ["), "{screen}");
    terminal.enter("l");
    assert_eq!(terminal.end().0, 0);
    let id = open_gate(&home);
    let told: Value =
        serde_json::from_str(&home.lobster(["approvals", "show", &id, "--json"]).run().stdout).unwrap();
    assert_eq!(told["ahead"]["next"][0]["variables"]["LOBSTER_ARG_TARGET"], "/home/prod");
    assert_eq!(told["ahead"]["next"][0]["reads"], "/etc/passwd\n");

    // A secret that a step prints is not what is shown of what the next one reads.
    home.write(
        "secret.lobster",
        "steps:\n  - { id: find, run: 'echo sk-0123456789abcdef' }\n  - { id: ask, approval: 'Go?' }\n  \
         - { id: go, run: cat, stdin: $find.stdout, env: { V: $find.stdout } }\n",
    );
    let asks = home.lobster(["run", "--mode", "tool", "secret.lobster"]);
    let asked = asks.env("OPENAI_API_KEY", "sk-0123456789abcdef").run();
    let token = asked.envelope()["requiresApproval"]["approvalId"].as_str().unwrap_or_default().to_owned();
    for words in [["approvals", "show", &token, "--json"].as_slice(), &["approvals", "--json"]] {
        let shown = home.lobster(words).env("OPENAI_API_KEY", "sk-0123456789abcdef").run();
        assert!(!format!("{shown:?}").contains("0123456789abcdef"), "{shown:?}");
    }
}
