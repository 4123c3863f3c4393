//! What documents show is so: each code block is run, checked, or marked as a sketch.
//!
//! The words behind the fence say what a block is:
//!
//! | block | what is done with it |
//! |---|---|
//! | `console` | its commands run, and print what it shows (`tests/transcripts.rs`) |
//! | `console terminal` | its one command runs on a terminal, and is answered as shown |
//! | `sh` | runs as a whole, and succeeds |
//! | `sh ci` | each line stands in `.ci/run` or the `justfile`, which runs it |
//! | `yaml workflow`, `json workflow` | `lobster check` finds nothing |
//! | `toml policy`, `toml secrets`, `toml mcp` | is read as that file |
//! | `json`, `jsonl` | is JSON |
//! | `text` | no code: a diagram, a grammar, a screen that another test compares |
//! | any language, and `sketch` | nothing: it leaves out what would make it run |
//!
//! `needs=PROGRAM` runs the block only where that program is; a line `Needs `git`.` does so
//! for a document. `file=NAME` writes the block there first, so that later blocks can use it (a `sh`
//! block with it is a script, and is not run). All blocks of a document share a
//! directory, where `examples/` and `guest-steps/dist/` lie as in the repository.
//!
//! `UPDATE_EXPECTED=1` writes what was printed into the documents where it differs.

use std::path::Path;

use crate::binary::repository;
use crate::home::Home;
use crate::markdown::{Block, Document, documents};
use crate::transcripts::{self, Command, Printed, Session};

/// Lines of a document to be replaced by others.
struct Edit {
    from: usize,
    count: usize,
    lines: Vec<String>,
}

/// Runs what a document shows. Its mistakes, one text each.
pub(crate) fn mistakes_of(document: &Document) -> Vec<String> {
    let blocks = document.blocks();
    let mut mistakes = Vec::new();
    let mut edits = Vec::new();
    if blocks.iter().all(|block| block.has("sketch") || block.language == "text") {
        return mistakes;
    }
    let mut session = Session::new();
    for program in needed_programs(document) {
        if !session.has(&program) {
            eprintln!("skipped: {} needs {program}, which is not here", document.path.display());
            return mistakes;
        }
    }
    for block in &blocks {
        let place = document.place(block.first);
        if let Some(name) = block.value("file") {
            let path = session.root().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, block.text()).unwrap();
        }
        match run_block(block, &mut session, &mut edits) {
            Ok(()) => {}
            Err(why) => mistakes.push(format!("{place}: {why}")),
        }
    }
    let is_file = repository().join(&document.path).exists();
    if std::env::var_os("UPDATE_EXPECTED").is_some() && is_file && !edits.is_empty() {
        let mut lines: Vec<String> = document.text.lines().map(str::to_owned).collect();
        for edit in edits.into_iter().rev() {
            lines.splice(edit.from..edit.from + edit.count, edit.lines);
        }
        std::fs::write(repository().join(&document.path), lines.join("\n") + "\n").unwrap();
    }
    mistakes
}

/// The programs of a line `Needs `git` and `python3`.`
fn needed_programs(document: &Document) -> Vec<String> {
    let line = document.text.lines().find(|line| line.starts_with("Needs `")).unwrap_or_default();
    line.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn run_block(block: &Block, session: &mut Session, edits: &mut Vec<Edit>) -> Result<(), String> {
    if block.has("sketch") {
        return Ok(());
    }
    if let Some(program) = block.value("needs")
        && !session.has(program)
    {
        eprintln!("skipped: a block of a document needs {program}, which is not here");
        return Ok(());
    }
    match (block.language.as_str(), block.words.first().map(String::as_str)) {
        ("text", _) => Ok(()),
        ("console", kind) => {
            let wrong: Vec<String> = transcripts::commands(block)
                .iter()
                .filter_map(|command| run_command(block, command, kind, session, edits).err())
                .collect();
            if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
        }
        ("sh", Some("ci")) => is_run_by_ci(block),
        (_, Some(word)) if block.language == "sh" && word.starts_with("file=") => Ok(()),
        ("sh", _) => {
            let text = transcripts::with_ids(&block.text(), &session.ids);
            let printed = session.run(&format!("( set -e\n{text}\n)"));
            if printed.code == 0 {
                Ok(())
            } else {
                Err(format!("ends with {}: {}", printed.code, printed.text))
            }
        }
        ("yaml" | "json", Some("workflow")) => check_with(session, block, &["check", "--strict"], "workflow"),
        ("toml", Some("policy")) => check_with(session, &with_version(block), &["policy", "check"], "toml"),
        ("toml", Some("secrets")) => check_secrets(block),
        ("toml", Some("mcp")) => check_servers(block),
        ("json", _) => serde_json::from_str::<serde_json::Value>(&block.text())
            .map(|_| ())
            .map_err(|error| format!("is not JSON: {error}")),
        ("jsonl", _) => block.lines.iter().try_for_each(|line| {
            serde_json::from_str::<serde_json::Value>(line)
                .map(|_| ())
                .map_err(|error| format!("{line} is not JSON: {error}"))
        }),
        (language, word) => Err(format!(
            "a block of kind `{language} {}` is neither run nor marked as a sketch (tests/documents.rs lists the kinds)",
            word.unwrap_or_default()
        )),
    }
}

fn run_command(
    block: &Block,
    command: &Command,
    kind: Option<&str>,
    session: &mut Session,
    edits: &mut Vec<Edit>,
) -> Result<(), String> {
    let text = transcripts::with_ids(&command.text, &session.ids);
    let Printed { text: printed, code } = match kind {
        Some("terminal") => session.run_on_terminal(&text, &command.expected),
        _ => session.run(&text),
    };
    let mut ids = session.ids.clone();
    if code == command.code && transcripts::matches(&command.expected, &printed, &mut ids) {
        session.ids = ids;
        return Ok(());
    }
    transcripts::learn_ids(&command.expected, &printed, &mut session.ids);
    let lines = printed.trim_end().replace(&session.root().display().to_string(), "…");
    let end = (code != 0).then(|| format!("? {code}"));
    edits.push(Edit {
        from: block.first + command.from,
        count: command.expected.len() + usize::from(command.code != 0),
        lines: lines.lines().map(|line| line.trim_end().to_owned()).chain(end).collect(),
    });
    Err(format!(
        "`{}` prints something else. Expected ({}):\n{}\nPrinted ({code}):\n{printed}",
        command.text,
        command.code,
        command.expected.join("\n")
    ))
}

fn is_run_by_ci(block: &Block) -> Result<(), String> {
    let recipes =
        [".ci/run", "justfile"].map(|file| std::fs::read_to_string(repository().join(file)).unwrap());
    for line in block.lines.iter().map(|line| line.split(" #").next().unwrap_or_default().trim()) {
        if !line.is_empty() && !recipes.iter().any(|text| text.contains(line)) {
            return Err(format!("neither .ci/run nor the justfile runs `{line}`"));
        }
    }
    Ok(())
}

/// A policy whose table is shown without the line that each policy begins with.
fn with_version(block: &Block) -> Block {
    let mut block = block.clone();
    if !block.lines.iter().any(|line| line.starts_with("version")) {
        block.lines.insert(0, "version = 1".to_owned());
    }
    block
}

/// Has a command of lobster look at the block as a file, and accept it.
fn check_with(session: &mut Session, block: &Block, words: &[&str], ending: &str) -> Result<(), String> {
    let name = match block.value("file") {
        Some(name) => name.to_owned(),
        None => {
            let ending = if ending == "workflow" { "lobster" } else { ending };
            let name = format!("block-{}.{ending}", block.first);
            std::fs::write(session.root().join(&name), block.text()).unwrap();
            name
        }
    };
    let root = session.root();
    let printed = session.run(&format!("(cd '{}' && lobster {} '{name}')", root.display(), words.join(" ")));
    if printed.code == 0 { Ok(()) } else { Err(printed.text) }
}

/// The file names the secrets; a workflow that asks for the first is told what is wrong with it.
fn check_secrets(block: &Block) -> Result<(), String> {
    let table: toml::Table = block.text().parse().map_err(|error| format!("{error}"))?;
    let home = Home::new();
    home.write("secrets.toml", block.text());
    for name in table["secrets"].as_table().into_iter().flatten().map(|(name, _)| name) {
        home.write(
            "flow.lobster",
            format!("secrets: [{name}]\nsteps: [{{ id: use, run: 'true', secrets: [{name}] }}]\n"),
        );
        let answer = home
            .lobster(["run", "--mode", "tool", "flow.lobster"])
            .env("LOBSTER_SECRETS", "secrets.toml")
            .run();
        // The value itself is not here, and that is what is said.
        let said = answer.stdout.clone() + &answer.stderr;
        if !said.contains(name.as_str()) || said.contains("secrets.toml:") || said.contains("unknown field") {
            return Err(format!("{name}: {said}"));
        }
    }
    Ok(())
}

/// The file names servers; a call of one that it does not name lists those that it does.
fn check_servers(block: &Block) -> Result<(), String> {
    let table: toml::Table = block.text().parse().map_err(|error| format!("{error}"))?;
    let home = Home::new();
    home.write("lobster.mcp.toml", block.text());
    let said = home.tool(["mcp.call --server nobody --tool none"]).error();
    match table["server"].as_table().into_iter().flatten().find(|(name, _)| !said.contains(name.as_str())) {
        None => Ok(()),
        Some((name, _)) => Err(format!("the server {name} is not read: {said}")),
    }
}

fn hold(documents: impl IntoIterator<Item = Document>) {
    let mut mistakes = Vec::new();
    std::thread::scope(|scope| {
        let running: Vec<_> = documents
            .into_iter()
            .map(|document| (document.path.clone(), scope.spawn(move || mistakes_of(&document))))
            .collect();
        for (path, one) in running {
            let panicked = |_| vec![format!("{}: a command did not come to its end (above)", path.display())];
            mistakes.extend(one.join().unwrap_or_else(panicked));
        }
    });
    assert!(
        mistakes.is_empty(),
        "{} blocks are not as they say:\n\n{}",
        mistakes.len(),
        mistakes.join("\n\n")
    );
}

#[test]
fn every_block_of_the_documents_is_as_it_says() {
    hold(documents().into_iter().filter(|document| !document.path.starts_with("examples")));
}

#[test]
fn the_summary_lists_every_page() {
    let summary = Document::read("docs/SUMMARY.md");
    let listed: Vec<String> = summary.links().into_iter().map(|(_, target)| target).collect();
    for document in documents() {
        let page = match document.path.strip_prefix("docs") {
            Ok(page) => page.to_string_lossy().into_owned(),
            Err(_) if document.path != Path::new("README.md") => format!("../{}", document.path.display()),
            Err(_) => continue, // the introduction stands for it
        };
        let count = listed.iter().filter(|target| **target == page).count();
        let wanted = usize::from(page != "SUMMARY.md");
        assert_eq!(count, wanted, "docs/SUMMARY.md names {page} {count} times");
    }
}

#[test]
fn no_link_leads_nowhere() {
    let mut broken = Vec::new();
    for document in documents() {
        for (line, target) in document.links() {
            if target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = match file {
                "" => document.path.clone(),
                file => document.path.parent().unwrap_or(Path::new("")).join(file),
            };
            let there = repository().join(&path);
            if !there.exists() {
                broken.push(format!("{}: {target}: there is no such file", document.place(line)));
            } else if !anchor.is_empty()
                && !Document::read(path).anchors().iter().any(|known| known == anchor)
            {
                broken.push(format!("{}: {target}: there is no such heading", document.place(line)));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// What is wrong in each of these is found: a test that finds nothing would pass for ever.
#[test]
fn each_kind_of_block_can_be_wrong() {
    let wrong = [
        ("python", "print(1)"),
        ("", "lobster runs"),
        ("console", "$ echo one\ntwo"),
        ("console", "$ (exit 3)"),
        (
            "console terminal",
            "$ printf 'Approve? [y/n/s/l/?] '; read answer; echo $answer\nApprove? [y/n/s/l/?] y\nn",
        ),
        ("sh", "true\nfalse\ntrue"),
        ("sh ci", "cargo test --unheard-of"),
        ("yaml workflow", "steps:\n  - id: a\n    run: echo $b.json"),
        ("yaml workflow", "steps:\n  - id: a\n    shell: echo"),
        ("toml policy", "[sandbox]\nmood = \"strict\""),
        ("toml secrets", "[secrets.token]\nenvironment = \"TOKEN\""),
        ("toml mcp", "version = 1\n[server.files]\ncomand = [\"x\"]"),
        ("json", "{ \"a\": }"),
        ("jsonl", "{}\n{"),
    ];
    for (kind, text) in wrong {
        let document = Document { path: "wrong.md".into(), text: format!("# X\n\n```{kind}\n{text}\n```\n") };
        let mistakes = mistakes_of(&document);
        assert_eq!(mistakes.len(), 1, "{kind}: {text}: {mistakes:?}");
        assert!(mistakes[0].starts_with("wrong.md:4: "), "{mistakes:?}");
    }
    let indented = Document { path: "wrong.md".into(), text: "# X\n\n    lobster runs\n".to_owned() };
    assert_eq!(mistakes_of(&indented).len(), 1);
}

#[test]
fn the_glossary_is_sorted_and_has_the_words_of_states() {
    use lobster_runtime::store::{RunStatus, StepStatus};

    let glossary = Document::read("docs/glossary.md");
    let word = |line: &str| Some(line.strip_prefix("- **")?.split_once("**: ")?.0.to_owned());
    let words: Vec<String> = glossary.prose().filter_map(|(_, line)| word(line)).collect();
    let mut sorted = words.clone();
    sorted.sort();
    assert_eq!(words, sorted);
    assert!(words.len() <= 30, "docs/glossary.md has more words than a user must learn: {}", words.len());
    // `ok`, `failed` and `running` say what they say everywhere.
    let plain = ["ok", "failed", "running", "timed_out", "refused"];
    let states = RunStatus::ALL.iter().map(|status| status.as_str());
    let states: Vec<&str> = states.chain(StepStatus::ALL.iter().map(|status| status.as_str())).collect();
    for state in states.into_iter().filter(|state| !plain.contains(state)) {
        assert!(words.iter().any(|word| word == state), "docs/glossary.md does not say what {state} is");
    }
}
