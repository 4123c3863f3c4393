//! `lobster policy init`

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::exit::{CommandError, CommandResult, Exit};
use crate::which;

/// Kinds of projects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ProjectKind {
    /// Any project: commands that only read run, all others ask.
    Plain,
    /// Node.js: npm runs scripts; installing packages asks.
    Node,
    /// Python: pytest runs; installing packages asks.
    Python,
    /// Rust: cargo builds and tests; fetching crates asks.
    Rust,
    /// Go: go builds and tests; fetching modules asks.
    Go,
}

/// All kinds, with their names and the file that identifies each.
const KINDS: &[(ProjectKind, &str, Option<&str>)] = &[
    (ProjectKind::Plain, "plain", None),
    (ProjectKind::Node, "node", Some("package.json")),
    (ProjectKind::Python, "python", Some("pyproject.toml")),
    (ProjectKind::Rust, "rust", Some("Cargo.toml")),
    (ProjectKind::Go, "go", Some("go.mod")),
];

impl ProjectKind {
    /// Detects the kind from the files of this directory.
    fn detect() -> Self {
        let has = |file: &str| Path::new(file).exists();
        let found = KINDS.iter().find(|(_, _, file)| file.is_some_and(has));
        let python = has("requirements.txt").then_some(Self::Python);
        found.map(|(kind, ..)| *kind).or(python).unwrap_or(Self::Plain)
    }

    /// The policy, with the toolchain of rustup that the user's cargo runs, if any.
    fn policy(self, toolchain: Option<&str>) -> String {
        let (rules, variables) = match self {
            Self::Plain => (String::new(), ""),
            Self::Node => (NODE.to_owned(), ""),
            Self::Python => (PYTHON.to_owned(), ""),
            Self::Rust => (rust_rules(toolchain), ", CARGO_HOME = \"~/.cargo\""),
            Self::Go => (GO.to_owned(), ", GOMODCACHE = \"~/go/pkg/mod\""),
        };
        let first = toolchain.filter(|_| self == Self::Rust);
        let first = first.map_or_else(String::new, |toolchain| format!("{toolchain}/bin:"));
        STARTER.replace("{first}", &first).replace("{variables}", variables) + &rules
    }
}

/// The rules for cargo. A toolchain of rustup is pinned and readable.
fn rust_rules(toolchain: Option<&str>) -> String {
    let (pin, read) = match toolchain {
        Some(toolchain) => (
            format!("\n[programs]\npin = {{ cargo = \"{toolchain}/bin/cargo\" }}\n"),
            format!("fs_read = [\"{toolchain}\"], "),
        ),
        None => (RUSTUP.to_owned(), String::new()),
    };
    pin + &RUST.replace("{read}", &read)
}

/// The default toolchain of rustup, if no cargo is in a system directory.
fn rustup_toolchain() -> Option<String> {
    if ["/usr/bin/cargo", "/bin/cargo"].iter().any(|cargo| Path::new(cargo).exists()) {
        return None;
    }
    let home = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".rustup")))?;
    let settings = std::fs::read_to_string(home.join("settings.toml")).ok()?;
    let default = settings.lines().find_map(|line| line.strip_prefix("default_toolchain = "))?;
    let toolchain = home.join("toolchains").join(default.trim().trim_matches('"')).canonicalize().ok()?;
    toolchain.join("bin/cargo").is_file().then_some(())?;
    // In the policy it is part of quoted texts, and of `PATH`.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    toolchain.to_str().filter(|path| path.chars().all(is_plain)).map(str::to_owned)
}

pub(super) fn run(kind: Option<ProjectKind>, out: &mut impl Write) -> CommandResult {
    let kind = match kind {
        Some(kind) => kind,
        None if which::can_ask() => ask_kind(ProjectKind::detect())?,
        None => ProjectKind::detect(),
    };
    write!(out, "{}", kind.policy(rustup_toolchain().as_deref()))?;
    Ok(Exit::OK)
}

/// Lets a person choose; the detected kind comes first.
fn ask_kind(usual: ProjectKind) -> Result<ProjectKind, CommandError> {
    let mut kinds: Vec<_> = KINDS.iter().collect();
    kinds.sort_by_key(|(kind, ..)| *kind != usual);
    let told = |file: &Option<&str>| file.unwrap_or_default().to_owned();
    let rows: Vec<_> = kinds.iter().map(|(_, name, file)| vec![(*name).to_owned(), told(file)]).collect();
    Ok(kinds[which::pick_row(&rows, "Which kind of project?")?].0)
}

/// A small policy to extend: reading commands run, all others ask.
const STARTER: &str = include_str!("init/starter.toml");

const NODE: &str = include_str!("init/node.toml");

const PYTHON: &str = include_str!("init/python.toml");

/// Advice in place of a toolchain.
const RUSTUP: &str = include_str!("init/rustup.toml");

const RUST: &str = include_str!("init/rust.toml");

const GO: &str = include_str!("init/go.toml");

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use lobster_runtime::policy::Policy;

    use super::*;

    #[test]
    fn each_kind_is_a_policy_whose_examples_hold() {
        for kind in ProjectKind::value_variants() {
            for toolchain in [None, Some("/home/you/.rustup/toolchains/stable-x86_64-unknown-linux-gnu")] {
                let text = kind.policy(toolchain);
                Policy::load(&text, "init").unwrap_or_else(|error| panic!("{kind:?}: {error}"));
                let is_named = toolchain.is_some() && *kind == ProjectKind::Rust;
                assert_eq!(
                    text.matches("/bin/cargo\" }").count() == 1 && !text.contains("# pin"),
                    is_named,
                    "{text}"
                );
                assert_eq!(
                    text.matches(toolchain.unwrap_or("DIRECTORY\"]")).count(),
                    match (kind, is_named) {
                        (ProjectKind::Rust, true) => 4,
                        (ProjectKind::Rust, false) => 1,
                        _ => 0,
                    }
                );
            }
        }
        assert_eq!(KINDS.len(), ProjectKind::value_variants().len());
    }
}
