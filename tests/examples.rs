//! Each example does what its README shows, on a machine without network and keys.

use crate::binary::repository;
use crate::documents::mistakes_of;
use crate::markdown::Document;

/// What the examples show; a folder that is not named here would be missing from the README of `examples/`.
const EXAMPLES: [&str; 13] = [
    "codemod",
    "fetch-notify",
    "fork-why-replay",
    "hello",
    "inbox-triage",
    "languages",
    "mcp-client",
    "mcp-tool",
    "model-cost",
    "policy-project",
    "report",
    "review-change",
    "secrets",
];

#[test]
fn each_folder_is_a_known_example() {
    let mut found: Vec<String> = std::fs::read_dir(repository().join("examples"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    found.sort();
    assert_eq!(found, EXAMPLES);
    let list = Document::read("examples/README.md");
    for name in EXAMPLES {
        assert!(list.text.contains(&format!("]({name}/")), "examples/README.md does not list {name}");
    }
}

/// Runs the README of an example, which must show something.
fn run(name: &str) {
    let document = Document::read(format!("examples/{name}/README.md"));
    assert!(document.blocks().iter().any(|block| block.language == "console"), "{name} shows no command");
    let mistakes = mistakes_of(&document);
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n\n"));
}

macro_rules! examples {
    ($($test:ident: $name:literal,)*) => {
        $(#[test] fn $test() { run($name); })*

        #[test]
        fn each_is_run() {
            assert_eq!([$($name),*], EXAMPLES);
        }
    };
}

examples! {
    codemod: "codemod",
    fetch_notify: "fetch-notify",
    fork_why_replay: "fork-why-replay",
    hello: "hello",
    inbox_triage: "inbox-triage",
    languages: "languages",
    mcp_client: "mcp-client",
    mcp_tool: "mcp-tool",
    model_cost: "model-cost",
    policy_project: "policy-project",
    report: "report",
    review_change: "review-change",
    secrets: "secrets",
}
