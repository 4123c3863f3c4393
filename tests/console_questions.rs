//! One view, two renderers: a question has the same text in a terminal and on its page, whatever texts
//! others put into it and however large it is.

use lobster_runtime::visible::{exact, harmless};
use serde_json::{Value, json};

use crate::browser::{Browser, bare};
use crate::home::Home;
use crate::served::Served;
use crate::setting::number;

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }

    /// A text that an attacker might put into a question.
    fn text(&mut self) -> String {
        const PIECES: [&str; 26] = [
            "<b>",
            "</b>",
            "<script>alert(1)</script>",
            "\"><img src=x onerror=alert(1)>",
            "&lt;",
            "&amp;amp;",
            "</textarea>",
            "</title>",
            "'",
            "\"",
            "\u{202e}",
            "\u{2066}",
            "\u{200b}",
            "\u{1b}[2J",
            "\u{7f}",
            "\u{9b}",
            "\u{feff}",
            "e\u{301}",
            "😀",
            "中文",
            " word ",
            "rm -rf /",
            "{{x}}",
            "]]>",
            "<!--",
            "javascript:",
        ];
        (0..1 + self.roll(12)).map(|_| PIECES[self.roll(PIECES.len())]).collect()
    }
}

/// A question of a workflow that is written for it, and its two renderings.
struct Shown {
    facts: Value,
    page: String,
    terminal: String,
    bytes: usize,
}

fn ask(home: &Home, workflow: &Value) -> String {
    home.write("asks.lobster", workflow.to_string());
    let asked = home.lobster(["run", "--mode", "tool", "asks.lobster"]).run();
    let gate = asked.envelope()["requiresApproval"]["approvalId"].clone();
    gate.as_str().unwrap_or_else(|| panic!("{asked:?}")).to_owned()
}

fn show(home: &Home, browser: &Browser<'_>, gate: &str) -> Shown {
    let path = format!("/questions/{gate}");
    let page = browser.page(&path);
    page.assert_tame(&path);
    let terminal = home.lobster(["approvals", "show", gate]).env("COLUMNS", "100").env("NO_COLOR", "1").run();
    let facts = home.lobster(["approvals", "show", gate, "--json"]).run();
    let facts: Value = serde_json::from_str(&facts.stdout).unwrap();
    let bytes = page.text.len();
    Shown {
        facts: facts["facts"].clone(),
        page: unmarked(&page.text),
        terminal: unmarked(&terminal.stdout),
        bytes,
    }
}

/// Without blanks, and without the marks before what a terminal quotes: each screen breaks lines elsewhere.
fn unmarked(text: &str) -> String {
    bare(text).replace('│', "")
}

impl Shown {
    /// Whether both say a text: hidden characters marked or named, and in the same way.
    fn assert_says(&self, text: &str) {
        let forms = [unmarked(&harmless(text)), unmarked(&exact(text))];
        let says = |screen: &str| forms.iter().any(|form| screen.contains(form.as_str()));
        let head: String = text.chars().take(200).collect();
        assert!(says(&self.page), "the page does not say {head:?}");
        assert!(says(&self.terminal), "the terminal does not say {head:?}");
    }

    fn assert_says_facts(&self) {
        for fact in self.facts.as_array().unwrap() {
            for value in fact["values"].as_array().unwrap() {
                self.assert_says(value.as_str().unwrap());
            }
        }
    }
}

#[test]
fn a_page_says_what_the_terminal_says_of_any_question() {
    let home = Home::new();
    let served = Served::start(&home, &[]);
    let browser = Browser::log_in(&home, &served, "approver");
    let seed = number("LOBSTER_QUESTION_SEED", 23);
    let count = number("LOBSTER_QUESTIONS", 8);
    let mut dice = Dice(seed);
    for number in 0..count {
        let (prompt, preview) = (dice.text(), dice.text());
        // Alike they are a table, else a list.
        let is_table = dice.roll(3) > 0;
        let items: Vec<Value> = (0..dice.roll(5))
            .map(|at| if is_table { json!({ "n": at, "text": dice.text() }) } else { json!(dice.text()) })
            .collect();
        home.write("items.json", json!(items).to_string());
        let workflow = json!({ "steps": [
            { "id": "rows", "run": "cat items.json" },
            { "id": "ask", "stdin": "$rows.json", "approval": { "prompt": format!("Go {number}? {prompt}"), "preview": preview } },
            { "id": "go", "run": format!(": {}", dice.text().replace('\'', "")) },
        ] });
        let gate = ask(&home, &workflow);
        let shown = show(&home, &browser, &gate);
        shown.assert_says(&prompt);
        shown.assert_says(&preview);
        for item in &items {
            shown.assert_says(item["text"].as_str().or(item.as_str()).unwrap());
        }
        shown.assert_says_facts();
        assert_eq!(home.lobster(["approvals", "reject", &gate]).run().code(), 0, "{number}");
    }
}

#[test]
fn questions_of_any_size_are_shown_and_answered() {
    let home = Home::new();
    let served = Served::start(&home, &[]);
    let browser = Browser::log_in(&home, &served, "approver");
    // 3,000 items are all there.
    let items: Vec<Value> =
        (0..3000).map(|n| json!({ "n": n, "who": format!("customer-{n}-{}", n * 7919) })).collect();
    home.write("items.json", json!(items).to_string());
    let approval = |extra: Value| {
        json!({ "steps": [
            { "id": "rows", "run": "cat items.json" },
            { "id": "ask", "stdin": "$rows.json", "approval": extra },
        ] })
    };
    let gate = ask(&home, &approval(json!({ "prompt": "Send all?" })));
    let shown = show(&home, &browser, &gate);
    for item in &items {
        shown.assert_says(item["who"].as_str().unwrap());
    }
    // A megabyte without a blank, with a mark that turns the writing at its end.
    home.write("items.json", "[]");
    let long = format!("{}\u{202e}<i>end</i>", "x".repeat(1 << 20));
    let gate = ask(&home, &approval(json!({ "prompt": "Read it?", "preview": long })));
    let shown = show(&home, &browser, &gate);
    assert!(shown.page.contains("\u{fffd}<i>end</i>") && shown.bytes > 1 << 20, "{}", shown.bytes);
    shown.assert_says_facts();
    // Changes of 5 MB are told of, and the page stays one that opens.
    let lines = |word: &str| (0..120_000).map(|n| format!("{word} {n} {:032}\n", n * 31)).collect::<String>();
    home.write("big.txt", lines("old"));
    home.write("new.txt", lines("new"));
    let gate = ask(
        &home,
        &json!({ "steps": [{ "id": "write", "run": "cat new.txt > big.txt", "changes": "review", "grants": { "write": ["."] } }] }),
    );
    let shown = show(&home, &browser, &gate);
    shown.assert_says_facts();
    assert!(shown.page.contains("big.txt") && shown.bytes < 2 << 20, "{}", shown.bytes);
    let page = browser.page(&format!("/questions/{gate}"));
    let digest = page.field("digest").to_owned();
    let yes = browser.post(&format!("/questions/{gate}"), &[("decision", "approve"), ("digest", &digest)]);
    assert_eq!(yes.status, 303, "{yes:?}");
    crate::home::wait_until("it is committed", || home.read("big.txt").starts_with("new 0 "));
}
