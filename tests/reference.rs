//! The reference pages say what the program says: its commands, its settings, its fields.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::binary::repository;
use crate::home::Home;
use crate::markdown::Document;

fn described() -> Value {
    serde_json::from_str(&Home::new().lobster(["--describe"]).run().stdout).unwrap()
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}

fn list<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value[name].as_array().into_iter().flatten()
}

/// Text on one line, which Markdown does not take for a tag.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('<', "\\<")
}

/// What each generated page begins with.
fn heading(title: &str) -> String {
    format!(
        "# {title}\n\n*Reference.* Made from `lobster --describe` by `just docs-update`. `lobster help NAME` prints the same.\n"
    )
}

/// Texts of arguments that many commands have: `docs/commands.md` has them once.
const COMMON: [&str; 3] = [
    "Prints a JSON array",
    "Prints a JSON object",
    "The run: an id, @ (the last), @- (the one before) or NAME@- (the last of NAME)",
];

/// Beginnings of parts of a help that another page has.
const ELSEWHERE: [&str; 3] = [
    "A case is one JSON file:",
    "  { \"summary\": \"what it shows\",",
    "Providers (--provider or LOBSTER_LLM_PROVIDER), each with its variables:",
];

/// A help without the parts that another page has.
fn without_other_pages(help: &str) -> String {
    let here = |part: &&str| !ELSEWHERE.iter().any(|beginning| part.starts_with(beginning));
    help.split("\n\n").filter(here).collect::<Vec<_>>().join("\n\n")
}

/// `docs/commands.md`.
fn commands_page(described: &Value) -> String {
    let mut page = heading("Commands");
    page.push_str(
        "\nEvery command takes `--log FILTER` and `--log-format text|json` ([agents.md](agents.md#logs)), `--no-pager` (as\n\
         `LOBSTER_PAGER=cat`) and `--help`. Without a text, `--json` prints JSON, and `RUN` is an id, `@` (the last run), `@-`\n\
         (the one before) or `NAME@-` (the last of NAME). [authoring.md](authoring.md#cases) describes cases.\n",
    );
    for command in list(described, "commands") {
        push_command(&mut page, command, "lobster", "##");
    }
    page
}

/// `docs/pipeline-commands.md`.
fn pipeline_commands_page(described: &Value) -> String {
    let mut page = heading("Pipeline commands");
    page.push_str(
        "\nA pipeline joins these commands by `|`; each passes JSON items to the next. [models.md](models.md) lists providers.\n",
    );
    for stage in list(described, "stages") {
        let (name, help) = (text(stage, "name"), text(stage, "help"));
        write!(page, "\n## {name}\n\n{}.", text(stage, "description")).unwrap();
        // A second name of a command has the help of the first, which does not mention it.
        let is_first = |other: &&Value| {
            text(other, "help") == help
                && other["flags"] == stage["flags"]
                && help.contains(text(other, "name"))
        };
        let first = list(described, "stages").find(is_first).map(|other| text(other, "name"));
        if let Some(first) = first.filter(|_| !help.contains(name)) {
            let anchor = first.replace('.', "");
            writeln!(page, " Same usage and options as [`{first}`](#{anchor}).").unwrap();
            continue;
        }
        write!(page, "\n\n```text\n{}\n```\n", without_other_pages(help).trim_end()).unwrap();
        push_list(&mut page, flags(stage).into_iter());
    }
    page
}

/// The options of a pipeline command that no table of its help has; other spellings are named with the first.
fn flags(stage: &Value) -> Vec<(String, String)> {
    let mut rows: Vec<(String, String)> = Vec::new();
    for flag in list(stage, "flags") {
        let value = flag["value"].as_str().map(|value| format!(" {value}")).unwrap_or_default();
        let name = format!("{}{value}", text(flag, "flag"));
        if text(stage, "help").contains(&format!("  {name}")) {
            continue;
        }
        let help = text(flag, "help");
        if help.starts_with("same as ")
            && let Some((names, _)) = rows.last_mut()
        {
            write!(names, "`, `{name}").unwrap();
        } else {
            rows.push((name, help.to_owned()));
        }
    }
    rows
}

fn push_command(page: &mut String, command: &Value, before: &str, level: &str) {
    let name = format!("{before} {}", text(command, "name"));
    write!(page, "\n{level} {name}\n\n").unwrap();
    for paragraph in text(command, "about").split("\n\n") {
        let sentence = one_line(paragraph);
        let end = if sentence.ends_with(['.', ':']) { "" } else { "." };
        write!(page, "{sentence}{end}\n\n").unwrap();
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    let own = list(command, "arguments")
        .filter(|argument| !["log", "log_format", "no_pager"].contains(&text(argument, "name")));
    let rows = own.map(|argument| {
        let value = argument["value"].as_str().unwrap_or_default();
        let name = match argument["flag"].as_str() {
            Some(flag) if value.is_empty() => flag.to_owned(),
            Some(flag) => format!("{flag} {value}"),
            None => value.to_owned(),
        };
        (name, text(argument, "help").to_owned())
    });
    push_list(page, rows);
    if let Some(examples) = command["examples"].as_str() {
        let examples = without_other_pages(examples);
        let examples = examples.strip_prefix("Examples:\n").unwrap_or(&examples);
        write!(page, "\n```text\n{}\n```\n", examples.trim_end()).unwrap();
    }
    for inner in list(command, "commands").filter(|inner| text(inner, "name") != "help") {
        push_command(page, inner, &name, "###");
    }
}

fn push_list(page: &mut String, rows: impl Iterator<Item = (String, String)>) {
    for (number, (name, help)) in rows.enumerate() {
        if number == 0 {
            page.push('\n');
        }
        let help = one_line(&help);
        let rest = if COMMON.contains(&help.as_str()) { String::new() } else { format!(": {help}") };
        writeln!(page, "- `{name}`{rest}").unwrap();
    }
}

#[test]
fn the_pages_of_commands_are_what_the_program_says() {
    let described = described();
    for (name, page) in [
        ("commands.md", commands_page(&described)),
        ("pipeline-commands.md", pipeline_commands_page(&described)),
    ] {
        let path = repository().join("docs").join(name);
        if std::env::var_os("UPDATE_EXPECTED").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        let differs = page.lines().zip(found.lines()).find(|(new, old)| new != old);
        assert!(
            page == found,
            "docs/{name} is not what the program says (`just docs-update` makes it): {differs:?}"
        );
    }
}

/// The names in backticks that a page defines: in the first cell of a row, or before the colon of a list item.
fn defined_names(document: &Document) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, line) in document.prose() {
        let first = match line.strip_prefix("- ") {
            Some(item) => item.split(": ").next(),
            None => line.strip_prefix('|').and_then(|row| row.split('|').next()),
        };
        names.extend(first.unwrap_or_default().split('`').skip(1).step_by(2).map(str::to_owned));
    }
    names
}

/// Names of variables that are not settings: they are for tests, or stand for many.
const NO_SETTINGS: [&str; 15] = [
    "LOBSTER_ARG_NAME",
    "LOBSTER_CATALOGUE_CASES",
    "LOBSTER_CATALOGUE_ROUNDS",
    "LOBSTER_CHANGES_TEST_ROLE",
    "LOBSTER_DOCTOR",
    "LOBSTER_DOCTOR_SECRET",
    "LOBSTER_ORACLE_CASES",
    "LOBSTER_ORACLE_SEED",
    "LOBSTER_PROBE_SHARE",
    "LOBSTER_REQUIRE_SHELLS",
    "LOBSTER_REQUIRE_STRACE",
    "LOBSTER_SHELL_FUZZ_SEED",
    "LOBSTER_SHELL_FUZZ_TEXTS",
    "LOBSTER_WRAPPER_TEXTS",
    "LOBSTER_ARG",
];

/// What the names of variables that must be listed begin with.
const PREFIXES: [&str; 2] = ["LOBSTER_", "XDG_"];

/// The variables that the sources name, tests and comments aside.
fn variables_of_the_sources() -> BTreeSet<String> {
    fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
        for path in std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !["tests", "examples", "target", "fault"].contains(&name.as_str()) {
                walk(&path, found);
            } else if name.ends_with(".rs")
                && !["tests.rs", "testing.rs", "fault.rs"].contains(&name.as_str())
            {
                found.push(path);
            }
        }
    }
    let mut files = Vec::new();
    walk(&repository().join("runtime"), &mut files);
    walk(&repository().join("cli/src"), &mut files);
    let mut names = BTreeSet::new();
    for file in files {
        let source = std::fs::read_to_string(file).unwrap();
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
            let after = |prefix| line.split(prefix).skip(1).map(move |rest| (prefix, rest));
            for (prefix, rest) in PREFIXES.into_iter().flat_map(after) {
                let name: String = rest
                    .chars()
                    .take_while(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '_')
                    .collect();
                // Arguments of a workflow, whatever their names.
                if name.starts_with("ARG_") {
                    continue;
                }
                if !name.is_empty() && !name.ends_with('_') {
                    names.insert(format!("{prefix}{name}"));
                }
            }
        }
    }
    NO_SETTINGS.iter().for_each(|name| _ = names.remove(*name));
    names
}

#[test]
fn the_page_of_settings_has_every_variable_and_no_other() {
    let page = defined_names(&Document::read("docs/settings.md"));
    let listed: BTreeSet<String> = page
        .into_iter()
        .filter(|name| PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        .map(|name| name.split('<').next().unwrap_or_default().trim_end_matches('_').to_owned())
        .filter(|name| name != "LOBSTER_ARG")
        .collect();
    let known = variables_of_the_sources();
    let missing: Vec<_> = known.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&known).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/settings.md does not list {missing:?}, and the sources do not have {gone:?}"
    );
}

/// The names of the fields that a schema describes, at any depth.
fn fields_within(schema: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    match schema {
        Value::Object(members) => {
            let fields = members.get("properties").and_then(Value::as_object);
            names.extend(fields.into_iter().flat_map(|fields| fields.keys().cloned()));
            names.extend(members.values().flat_map(fields_within));
        }
        Value::Array(schemas) => names.extend(schemas.iter().flat_map(fields_within)),
        _ => {}
    }
    names
}

#[test]
fn the_page_of_the_language_has_every_field_and_no_other() {
    let workflow = &described()["schemas"]["workflow"];
    let fields =
        |value: &Value| value["properties"].as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let known: BTreeSet<String> = fields(workflow)
        .into_iter()
        .chain(fields(&workflow["definitions"]["step"]))
        .chain(fields_within(&workflow["properties"]["on"]))
        .collect();
    let document = Document::read("docs/language.md");
    let fields_text: String = document
        .text
        .split("## The top of the file")
        .nth(1)
        .and_then(|rest| rest.split("### Caching").next())
        .expect("docs/language.md has its fields")
        .to_owned();
    let named: BTreeSet<String> = fields_text.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    let listed = defined_names(&Document { path: document.path, text: fields_text });
    let missing: Vec<_> = known.difference(&named).collect();
    let gone: Vec<_> = listed.difference(&known).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/language.md does not list {missing:?}, and there is no {gone:?}"
    );
}
