//! What a person sees, whole: `screens/<name>.txt` holds the command, its exit
//! code, stdout and stderr. `UPDATE_EXPECTED=1` writes the files anew.

use std::path::Path;

use crate::home::Home;

const WORKFLOW: &str = "
name: release notes
steps:
  - id: collect
    run: printf '[\"one\",\"two\"]'
  - id: pick
    js: input[0]
    stdin: $collect.json
  - id: ask
    approval: { prompt: Publish?, preview: \"first line\\nsecond line\" }
  - id: publish
    run: echo published
";

const MISTAKES: &str = "
steps:
  - id: a
    run: echo hi
    timeout_msec: 5
  - id: b
    run: echo $c.json
    when: $a.json ==
";

fn waiting() -> Home {
    let home = Home::new();
    home.write("notes.lobster", WORKFLOW).write("mistakes.lobster", MISTAKES);
    home.tool(["notes.lobster"]).token();
    home
}

fn show(home: &Home, name: &str, words: &[&str]) {
    let answer = home.lobster(words).env("COLUMNS", "100").run();
    let shown = format!(
        "$ lobster {}\nexit {}\n--- stdout\n{}--- stderr\n{}",
        words.join(" "),
        answer.code(),
        answer.stdout,
        answer.stderr
    );
    let shown = filtered(&shown, home);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("screens").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &shown).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(expected == shown, "{} is not what is shown now:\n{shown}", file.display());
}

/// Ids, times, sizes of processes and directories vary; so does what the kernel can enforce.
fn filtered(text: &str, home: &Home) -> String {
    let dir = home.dir().canonicalize().unwrap().display().to_string();
    text.replace(&dir, "DIR").lines().map(|line| words(line) + "\n").collect()
}

/// One line with its varying words replaced; columns are two spaces apart, as widths vary too.
fn words(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let columns = line.trim().split("  ").map(str::trim).filter(|column| !column.is_empty()).map(column);
    let shown = " ".repeat(indent) + &columns.collect::<Vec<_>>().join("  ");
    shown.trim_end().to_owned()
}

fn column(column: &str) -> String {
    if column.starts_with("unconfined") {
        return "ENFORCED".to_owned();
    }
    let mut shown: Vec<String> = Vec::new();
    for next in column.split(' ') {
        let unit = match next.trim_end_matches([')', ',']) {
            "µs" | "ms" | "s" | "min" => Some("TIME"),
            "KiB" | "MiB" => Some("SIZE"),
            _ => None,
        };
        let number = |text: &String| {
            let text = text.trim_start_matches('(');
            text == "N" || (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
        };
        match (unit, shown.last_mut().filter(|last| number(last))) {
            (Some(name), Some(last)) => {
                let open = if last.starts_with('(') { "(" } else { "" };
                let close = next.trim_start_matches(|c: char| c.is_alphabetic());
                *last = format!("{open}{name}{close}");
            }
            _ => shown.push(word(next)),
        }
    }
    // How long ago it was depends on how quick the machine is.
    shown.join(" ").replace("TIME ago", "AGO").replace("just now", "AGO")
}

fn word(word: &str) -> String {
    let bare = word.trim_matches(['(', ')', ',', '.', ':', '"', '\'']);
    let hex =
        |text: &str| text.len() >= 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let with = |name: &str| word.replace(bare, name);
    if bare.starts_with("20") && bare.len() >= 10 && bare.as_bytes()[4] == b'-' && bare.as_bytes()[7] == b'-'
    {
        return with("DATE");
    }
    if bare.len() == 8 && bare.matches(':').count() == 2 {
        return with("CLOCK");
    }
    if let Some(digest) = bare.strip_prefix("blake3:").filter(|digest| hex(digest)) {
        return word.replace(digest, "DIGEST");
    }
    if hex(bare) {
        return with("ID");
    }
    if bare.len() > 60 && bare.starts_with("eyJ") {
        return with("TOKEN");
    }
    if !bare.is_empty()
        && bare.contains(['.', ','])
        && bare.bytes().all(|byte| byte.is_ascii_digit() || b".,".contains(&byte))
    {
        return with("N");
    }
    word.to_owned()
}

#[test]
fn help() {
    let home = Home::new();
    show(&home, "help", &["--help"]);
    for command in ["run", "resume", "check", "runs", "show", "approvals", "exec", "approve", "E0301"] {
        show(&home, &format!("help-{command}"), &["help", command]);
    }
}

#[test]
fn history() {
    let home = waiting();
    show(&home, "runs-waiting", &["runs"]);
    show(&home, "approvals", &["approvals"]);
    home.lobster(["resume", "--id", &gate(&home), "--approve", "yes"]).run().output();
    show(&home, "runs", &["runs"]);
    show(&home, "runs-none", &["runs", "--status", "failed"]);
    show(&home, "approvals-none", &["approvals"]);
    home.tool(["exec --shell 'exit 3'"]).error();
    show(&home, "runs-failed", &["runs", "--status", "failed"]);
}

#[test]
fn one_run() {
    let home = waiting();
    home.lobster(["resume", "--id", &gate(&home), "--approve", "yes"]).run().output();
    let runs = home.lobster(["runs", "--json"]).run();
    let runs: serde_json::Value = serde_json::from_str(&runs.stdout).unwrap();
    show(&home, "show", &["show", runs[0]["id"].as_str().unwrap()]);
}

#[test]
fn mistakes() {
    let home = waiting();
    show(&home, "check", &["check", "mistakes.lobster"]);
    show(&home, "check-good", &["check", "notes.lobster"]);
    show(&home, "run-mistakes", &["run", "mistakes.lobster"]);
    show(&home, "run-missing", &["run", "--file", "gone.lobster"]);
    show(&home, "run-human", &["run", "notes.lobster"]);
    show(&home, "run-dry", &["run", "--dry-run", "notes.lobster"]);
}

fn gate(home: &Home) -> String {
    let gates = home.lobster(["approvals", "--json"]).run();
    let gates: serde_json::Value = serde_json::from_str(&gates.stdout).unwrap();
    gates[0]["id"].as_str().unwrap().to_owned()
}

#[test]
fn json_answers_name_their_fields_alike() {
    fn names(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    found.push(name.clone());
                    names(value, found);
                }
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| names(item, found)),
            _ => {}
        }
    }
    let home = Home::new();
    home.write("notes.lobster", "steps: [{ id: pick, js: '1 + 1' }]");
    home.tool(["notes.lobster"]);
    home.tool(["notes.lobster"]);
    let runs: serde_json::Value =
        serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let [after, before] = [0, 1].map(|at| runs[at]["id"].as_str().unwrap());
    for words in [
        &["runs"][..],
        &["diff", before, after],
        &["why", after, "pick", "--vs", before],
        &["replay", after],
        &["logs", after],
        &["store", "stats"],
        &["store", "verify"],
        &["store", "gc", "--dry-run"],
        &["bundle", "export", after, "-o", "run.bundle"],
        &["bundle", "verify", "run.bundle"],
    ] {
        let answer = home.lobster(words.iter().copied().chain(["--json"])).run();
        let value = serde_json::from_str(&answer.stdout).unwrap_or_else(|_| panic!("{words:?}: {answer:#?}"));
        let mut found = Vec::new();
        names(&value, &mut found);
        found.retain(|name| name.contains(['_', '-']));
        assert_eq!(found, Vec::<String>::new(), "{words:?}");
    }
}
