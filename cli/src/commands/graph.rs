//! `lobster graph`

use std::io::Write;
use std::path::Path;

use lobster_runtime::graph::{self, Format};
use lobster_runtime::json;
use lobster_runtime::language::workflow::merge_args;
use lobster_runtime::runtime::{load_workflow_to_draw, tidy_path};
use serde_json::{Value, json};

use crate::exit::{CommandError, CommandResult, finish};
use crate::option_values;
use crate::stdout::stdout;
use crate::which;

/// Draws the steps of a workflow file and their dependencies.
#[derive(Debug, clap::Args)]
#[command(override_help = "lobster graph — draws the steps of a workflow file and their dependencies

Usage:
  lobster graph --file FILE [--format mermaid|dot|ascii] [--args-json JSON]
  lobster graph FILE [--format mermaid|dot|ascii]

Flags:
  --file       Workflow file path (.lobster, .yaml, .yml, .json)
  --format     Output format: mermaid (default), dot, ascii
  --args-json  JSON object used to resolve workflow args for labels

A condition that `run` would refuse is drawn as it is written, with a warning on stderr.

Examples:
  lobster graph inbox-triage.lobster
  lobster graph --file inbox-triage.lobster --format dot | dot -Tsvg > triage.svg")]
pub(crate) struct Args {
    /// The workflow file.
    #[arg(long, value_name = "PATH")]
    file: Option<String>,
    /// mermaid (default), dot or ascii.
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Arguments to show in the labels, as a JSON object.
    #[arg(long, value_name = "JSON")]
    args_json: Option<String>,
    /// The workflow file.
    path: Option<String>,
}

pub(crate) fn run(words: &[String]) -> CommandResult {
    let (mut file, mut positional, mut format, mut args) = (None, None, None, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut takes =
            |name: &str, into: &mut Option<String>| option_values::take_value(name, word, &mut words, into);
        if takes("--file", &mut file)? || takes("--format", &mut format)? || takes("--args-json", &mut args)?
        {
            continue;
        }
        if word.starts_with("--") || positional.is_some() {
            let what = if word.starts_with("--") { "has no option" } else { "takes one file, not also" };
            return Err(CommandError::usage(format!("graph {what} {word:?}"))
                .with_hint("`lobster graph --help` lists its options"));
        }
        positional = Some(word.clone());
    }
    let file = match file.or(positional).filter(|file| !file.is_empty()) {
        Some(file) => file,
        None if which::can_ask() => which::pick_file("graph")?.display().to_string(),
        None => {
            return Err(CommandError::usage("graph requires a workflow file path (use --file <path>)"));
        }
    };
    let format: Format = match format.as_deref() {
        None | Some("") => Format::default(),
        Some(name) => name.parse().map_err(CommandError::usage)?,
    };
    let given = match args.as_deref() {
        None | Some("") => json!({}),
        Some(text) => {
            json::parse(text).map_err(|_| CommandError::usage("graph --args-json must be valid JSON"))?
        }
    };
    if !matches!(given, Value::Object(_)) {
        return Err(CommandError::usage("graph --args-json must be a JSON object"));
    }
    let path = std::env::current_dir()?.join(Path::new(&file));
    let (workflow, unread) = load_workflow_to_draw(&tidy_path(&path))?;
    for unread in unread {
        crate::render::print_to_stderr(&format!("warning: {unread}; `run` refuses it"));
    }
    let args = merge_args(&workflow, &given);
    let mut out = stdout();
    out.write_all(graph::draw_workflow(&workflow, &args, format).as_bytes())?;
    finish(out)
}
