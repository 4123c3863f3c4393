//! What `json` and `table` show is the output of a run in tool mode, whatever the items look like: `json` gives the
//! items, `table` the text that a person sees.

use serde_json::{Value, json};

use crate::home::Home;

/// Items that are JSON in a text, that have many digits, or that are nothing.
const LISTS: [&str; 20] = [
    "[]",
    "[[]]",
    "[{}]",
    "[null]",
    "[true]",
    "[0]",
    r#"[""]"#,
    r#"["hello"]"#,
    r#"["null"]"#,
    r#"["[]"]"#,
    r#"["[1,2]"]"#,
    r#"["{\"a\":1}"]"#,
    r#"["9007199254740993.10"]"#,
    r#"["12345678901234567890123456"]"#,
    "[9007199254740993]",
    r#"[" 1 "]"#,
    r#"["\"a\"", "[", "1\n2"]"#,
    "[[1, 2], [[3]]]",
    r#"[{"a": 1, "10": "[1]", "2": 9007199254740993}]"#,
    r#"[1, "1", null]"#,
];

#[test]
fn json_gives_the_items_and_table_gives_the_text() {
    let home = Home::new();
    for list in LISTS {
        home.write("in.json", list);
        let human = |stage: &str| {
            let answer = home.lobster([&format!("exec --json cat in.json | {stage}")]).run();
            assert_eq!(answer.code(), 0, "{list} | {stage}: {answer:?}");
            answer.stdout
        };
        let tool = |stage: &str| home.tool([&format!("exec --json cat in.json | {stage}")]).output();
        let items: Value = serde_json::from_str(list).unwrap();
        assert_eq!(tool("json"), items, "{list} | json");
        assert_eq!(serde_json::from_str::<Value>(&human("json")).unwrap(), items, "{list} | json");
        assert_eq!(tool("table"), json!([human("table")]), "{list} | table");
    }
}

#[test]
fn the_last_rendering_counts_and_items_behind_it_count_more() {
    let home = Home::new();
    for (pipeline, output) in [
        ("exec echo a | json | table", json!(["(no results)\n"])),
        ("exec echo a | table | json", json!([])),
        ("exec echo a | json | exec echo b | table", json!(["b\n"])),
        ("exec echo a | table | exec echo b", json!(["b"])),
    ] {
        assert_eq!(home.tool([pipeline]).output(), output, "{pipeline}");
    }
    // The text of a step is all that was shown.
    let flow = "
steps:
  - {id: a, pipeline: exec echo a | table | json}
  - {id: b, run: cat, stdin: $a.stdout}
";
    home.write("flow.lobster", flow);
    assert_eq!(home.tool(["flow.lobster"]).output(), json!(["a\n[]\n"]));
}
