//! Tests that lobster accepts every command line shown in messages, help and documents.

use std::path::{Path, PathBuf};

use clap::CommandFactory;
use clap::error::ErrorKind;

use super::Cli;

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// The command lines of a text: the text between backticks, and whole lines of examples.
fn command_lines(text: &str, is_prose: bool) -> Vec<String> {
    let spans = text.split('`').skip(1).step_by(2).filter(|span| !span.contains("\n\n"));
    // In prose, whole lines are between fences.
    let fences = text.split("```").enumerate();
    let shown = fences.filter(|(at, _)| !is_prose || at % 2 == 1).map(|(_, part)| part);
    let lines = shown.flat_map(str::lines).map(|line| line.trim_start_matches([' ', '$', '"', '/', '#']));
    // A next command that a program prints is on its own indented line.
    let literals = text.split('"').flat_map(|part| part.split("\\n"));
    let literals = literals.filter(|part| part.starts_with("  ")).map(str::trim_start);
    let all = spans.chain(lines).chain(literals.filter(|_| !is_prose)).map(str::to_owned);
    let ours = all.filter(|line| line.starts_with("lobster "));
    // In a text of the source a line may continue on the next one; two spaces or a comment end it.
    ours.map(|line| {
        let line = line.split("\\n").next().unwrap_or_default().replace("\\\n", " ");
        line.split("  ").next().unwrap_or_default().split(" #").next().unwrap_or_default().to_owned()
    })
    .collect()
}

/// The words of a command line whose options can be checked: one of lobster's commands, without shell
/// operators.
fn command_words(line: &str) -> Option<Vec<String>> {
    let line = line.trim().trim_end_matches(['.', ',', ';', ':', '"', '\\', ')', ']']);
    let words: Vec<String> =
        line.split_whitespace().map(|word| word.trim_matches(['\'', '"', '[', ']']).to_owned()).collect();
    let is_of_a_shell =
        line.contains(['|', '>', '<', '&', '\'', '$', '(', '…', '*', '=']) || line.contains("...");
    let known = Cli::command();
    let name = words.get(1)?;
    (known.find_subcommand(name).is_some() && !is_of_a_shell).then_some(words)
}

#[test]
fn command_lines_in_texts_are_taken() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut all = vec![root.join("README.md")];
    for dir in ["cli/src", "runtime", "docs", "examples"] {
        all.extend(files_below(&root.join(dir)));
    }
    let texts = all.iter().filter(|file| {
        file.extension()
            .is_some_and(|extension| ["rs", "md", "lobster", "txt"].iter().any(|known| extension == *known))
            && !file.ends_with("printed.rs")
            && !file.components().any(|part| part.as_os_str() == "target")
    });
    let (mut wrong, mut count) = (Vec::new(), 0);
    for file in texts {
        let Ok(text) = std::fs::read_to_string(file) else { continue };
        let is_prose = file.extension().is_some_and(|extension| extension == "md");
        for line in command_lines(&text, is_prose) {
            let Some(words) = command_words(&line) else { continue };
            count += 1;
            // A missing argument is no fault, since the text decides what must be given.
            if let Err(error) = Cli::command().try_get_matches_from(&words)
                && matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand)
            {
                wrong.push(format!(
                    "{}: {line}: {}",
                    file.display(),
                    error.to_string().lines().next().unwrap_or_default()
                ));
            }
        }
    }
    assert!(count > 300, "only {count} were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
