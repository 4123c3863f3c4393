//! Every failure has a code, and `lobster help CODE` explains every code there is.

use lobster_runtime::code::Code;
use serde_json::{Value, json};

use crate::home::{Answer, Home};

#[test]
fn each_is_explained() {
    let home = Home::new();
    let unexplained: Vec<&Code> = Code::ALL
        .iter()
        .filter(|code| {
            let page = home.lobster(["help", code.as_str()]).run();
            page.code() != 0 || !page.stdout.starts_with(&format!("{code} — "))
        })
        .collect();
    assert!(unexplained.is_empty(), "no page for {unexplained:?}");
}

/// The code of the last run: its record says how it ended.
fn recorded(home: &Home) -> Value {
    let shown = home.lobster(["logs", "--events", "last"]).run();
    let ends = shown.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let ends: Vec<Value> = ends.filter(|event| event.to_string().contains("run_ended")).collect();
    ends.last().map_or(Value::Null, |end| end["event"]["detail"]["code"].clone())
}
