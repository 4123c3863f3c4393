//! `lobster step new`

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::templates::{template_files, template_languages};
use crate::exit::{CommandError, CommandResult, Exit};
use crate::stdout::stdout;
use crate::which;
use crate::whole_files::write_new;

/// The README of every project, independent of the language.
const README: &str = include_str!("readme.md");

/// Creates the project of a step: sources, the contract, a test case and a build script.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster step new --lang rust classify
  lobster step new --lang js tidy-names --dir steps/tidy-names")]
pub(super) struct Args {
    /// The name: lower-case words joined by dashes. At a terminal lobster asks for it.
    #[arg(value_parser = step_name)]
    name: Option<String>,
    /// The programming language. At a terminal lobster asks for it.
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(template_languages()))]
    lang: Option<String>,
    /// The directory to create (default: the name of the step).
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> CommandResult {
    let name = match &args.name {
        Some(name) => name.clone(),
        None if which::can_ask() => which::ask_text("What is the name of the step?", step_name)?,
        None => {
            return Err(CommandError::usage("step new needs a name")
                .with_hint("lobster step new --lang rust classify"));
        }
    };
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from(&name));
    if fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(CommandError::usage(format!("{} exists and is not empty", dir.display()))
            .with_hint("choose another name, or another directory with --dir"));
    }
    let lang = args.lang.clone().map_or_else(ask_language, Ok)?;
    let count = write_template(&dir, &lang, &name).map_err(CommandError::failed_at(&dir))?;
    let dir = dir.display();
    let python = python_version(&lang).map_or_else(String::new, |version| format!(" for Python {version}"));
    writeln!(
        stdout(),
        "{dir}: {count} files{python}\n\nNext:\n  lobster step test {dir}     builds it and runs its cases"
    )?;
    Ok(Exit::OK)
}

/// The Python that is in the component, as the template's builder names it.
fn python_version(language: &str) -> Option<&'static str> {
    let builder = template_files(language).find(|file| file.path == "lobster_build.py")?;
    std::str::from_utf8(builder.bytes).ok()?.split_once("GUEST = \"")?.1.split('"').next()
}

fn ask_language() -> Result<String, CommandError> {
    let known = template_languages();
    if !which::can_ask() {
        let message = format!("name the programming language: --lang {}", known.join("|"));
        return Err(CommandError::usage(message));
    }
    let rows: Vec<_> = known.iter().map(|language| vec![(*language).to_owned()]).collect();
    Ok(known[which::pick_row(&rows, "Which programming language?")?].to_owned())
}

/// Writes the template's files with the step's name filled in and returns their number.
fn write_template(dir: &Path, language: &str, name: &str) -> io::Result<usize> {
    let fill = |text: &str| text.replace("step-name", name).replace("step_name", &name.replace('-', "_"));
    for file in template_files(language) {
        let path = dir.join(fill(file.path));
        match std::str::from_utf8(file.bytes) {
            Ok(text) => write_new(&path, fill(text))?,
            // Binary, such as an object file of the contract's bindings.
            Err(_) => write_new(&path, file.bytes)?,
        }
        if file.path.ends_with(".sh") {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    write_new(&dir.join("README.md"), fill(README))?;
    Ok(template_files(language).count() + 1)
}

/// Checks a step's name.
pub(crate) fn step_name(text: &str) -> Result<String, String> {
    let word =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    if text.starts_with(|c: char| c.is_ascii_lowercase()) && text.split('-').all(word) {
        return Ok(text.to_owned());
    }
    Err("a step's name is lower-case words joined by dashes, such as tidy-names".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_names_its_python() {
        assert_eq!((python_version("python"), python_version("js")), (Some("3.14"), None));
    }

    #[test]
    fn names_are_words_joined_by_dashes() {
        assert_eq!(step_name("tidy-names2"), Ok("tidy-names2".to_owned()));
        for wrong in ["", "-", "a--b", "Tidy", "2tidy", "a_b", "../a", "a-"] {
            assert!(step_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_template_is_a_whole_project_under_its_own_name() {
        assert_eq!(template_languages(), ["c", "go", "js", "python", "rust", "ts"]);
        for language in template_languages() {
            let dir = tempfile::tempdir().unwrap();
            let project = dir.path().join("p");
            let count = write_template(&project, language, "tidy-names").unwrap();
            assert_eq!(count, template_files(language).count() + 1, "{language}: the template and a README");
            let readme = fs::read_to_string(project.join("README.md")).unwrap();
            assert!(
                readme.starts_with("# tidy-names\n") && !readme.contains("step-name"),
                "{language}: {readme}"
            );
            let script = fs::read_to_string(project.join("build.sh")).unwrap();
            assert!(
                script.contains("tidy-names.wasm") && !script.contains("step-name"),
                "{language}: {script}"
            );
            assert!(fs::read_dir(project.join("cases")).unwrap().next().is_some(), "{language} has no case");
        }
    }
}
