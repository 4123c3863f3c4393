//! `lobster init`

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::exit::{CommandError, CommandResult, finish};
use crate::stdout::stdout;
use crate::which;
use crate::whole_files::write_new;

/// Writes a first workflow, ready to run.
///
/// At a terminal it asks for the kind. Elsewhere the default is `shell`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster init                             asks, and writes hello.lobster
  lobster init --kind javascript report    writes report.lobster
  lobster init --kind agent add-task       a tool for `lobster mcp --workflows .`")]
pub(crate) struct Args {
    /// The name of the workflow and of its file.
    #[arg(default_value = "hello", value_parser = parse_name)]
    name: String,
    /// The kind of steps.
    #[arg(long, value_name = "KIND")]
    kind: Option<Kind>,
    /// The directory to write to.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Shell commands, with an approval before the one that writes.
    Shell,
    /// JavaScript in a sandbox, without node.
    #[value(alias = "js")]
    Javascript,
    /// A WebAssembly component that reads a table.
    Component,
    /// A tool that an agent calls over MCP.
    Agent,
}

/// A file to write: its path below the directory, and its bytes.
struct File {
    path: String,
    bytes: Vec<u8>,
}

impl Kind {
    fn template_files(self, name: &str) -> Vec<File> {
        let text = match self {
            Self::Shell => include_str!("init/shell.lobster"),
            Self::Javascript => include_str!("init/javascript.lobster"),
            Self::Component => include_str!("init/component.lobster"),
            Self::Agent => include_str!("init/agent.lobster"),
        };
        let file = |path: &str, bytes: &[u8]| File { path: path.to_owned(), bytes: bytes.to_vec() };
        let mut files = vec![file(&format!("{name}.lobster"), text.replace("NAME", name).as_bytes())];
        if self == Self::Component {
            files.push(file("sales.csv", include_bytes!("init/sales.csv")));
            files.push(file("steps/csv.wasm", include_bytes!("../../../guest-steps/dist/csv.wasm")));
        }
        files
    }
}

/// Checks a name, which appears in a file name, in YAML and in printed commands.
fn parse_name(text: &str) -> Result<String, String> {
    let text = text.strip_suffix(".lobster").unwrap_or(text);
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.starts_with(|c: char| c.is_ascii_lowercase()) && text.chars().all(fits) {
        Ok(text.to_owned())
    } else {
        Err("lower-case letters, digits and dashes, beginning with a letter".to_owned())
    }
}

pub(crate) fn run(args: &Args) -> CommandResult {
    // Checked before any question: every kind writes this file.
    let workflow = args.dir.join(format!("{}.lobster", args.name));
    refuse_to_replace(&workflow)?;
    let kind = match args.kind {
        Some(kind) => kind,
        None if which::can_ask() => which::pick_value("Which kind of workflow?")?,
        None => Kind::Shell,
    };
    let files = kind.template_files(&args.name);
    for file in &files {
        refuse_to_replace(&args.dir.join(&file.path))?;
    }
    for file in &files {
        let path = args.dir.join(&file.path);
        write_new(&path, &file.bytes).map_err(CommandError::failed_at(&path))?;
    }
    let mut out = stdout();
    for file in &files {
        writeln!(out, "wrote {}", args.dir.join(&file.path).display())?;
    }
    let shown = workflow.display();
    writeln!(out, "\nNext:\n  lobster run {shown}\n  lobster check {shown}     after each change")?;
    if kind == Kind::Agent {
        writeln!(out, "  lobster mcp --workflows {}     for an agent", args.dir.display())?;
    }
    finish(out)
}

fn refuse_to_replace(path: &Path) -> Result<(), CommandError> {
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(_) => Err(CommandError::usage(format!("{} already exists and was not changed", path.display()))
            .with_hint("choose another name, or another directory with --dir")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        assert_eq!(parse_name("add-task.lobster"), Ok("add-task".to_owned()));
        for wrong in ["", "-a", "A", "a b", "../a", "a.b", "1a", "a'"] {
            assert!(parse_name(wrong).is_err(), "{wrong}");
        }
    }
}
