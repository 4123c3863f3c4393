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
const STARTER: &str = r#"# lobster.policy.toml. Use it with `lobster run --policy FILE` or LOBSTER_POLICY=FILE.
# Keep it where no step can write. `lobster policy check FILE` checks it,
# `lobster policy explain 'command'` shows what it decides and why.
version = 1
profile = "default"                  # readonly never asks and only reads; locked runs exactly what [locked] lists
extends = ["builtin:readonly-catalog@1"]
approvals = { by = "person" }        # a shell that an agent marks as its own and that has no terminal answers nothing

[sandbox]
mode = "strict"                      # refuse to run where the kernel cannot hold a promise
minimum = ["fs-write", "net-deny", "no-new-privs", "tree-kill", "env-scrub", "fd-close"]

[sandbox.fs]
read  = ["@workspace", "@system-ro"]
write = ["@workspace", "@tmp"]
deny  = ["~/.ssh", "~/.aws", "~/.gnupg", "~/.netrc", "**/.env"]
protect = ["@workspace/.git/hooks", "@workspace/.git/config"]

[sandbox.net]
default = "none"

[sandbox.env]
pass = ["LANG", "LC_*", "TZ", "TERM", "NO_COLOR"]
set  = { PATH = "{first}/usr/bin:/bin", HOME = "@step-home", PAGER = "cat"{variables} }
"#;

const NODE: &str = r#"
# An npm outside the system's directories must be pinned, with its directory first in PATH and in fs_read:
# [programs]
# pin = { npm = "/home/you/.nvm/versions/node/v22.0.0/bin/npm" }

[[rule]]
id = "npm-scripts"
effect = "allow"
program = "npm"
args = { first = ["test", "run", "ls"] }
grant = { fs_write = ["@workspace"], net = "none" }
why = "runs the project's own code: safe because of the grant, not because of the name"
match = ["npm test", "npm run lint"]
not_match = ["npm install left-pad"]

[[rule]]
id = "npm-packages"
effect = "ask"
program = "npm"
args = { first = ["ci", "install"] }
grant = { fs_write = ["@workspace"], net = { hosts = ["registry.npmjs.org:443"] } }
why = "packages run code of their own when they are installed"
match = ["npm ci", "npm install left-pad"]
"#;

const PYTHON: &str = r#"
[[rule]]
id = "pytest"
effect = "allow"
program = "pytest"
grant = { fs_write = ["@workspace"], net = "none" }
why = "runs the project's own code: safe because of the grant, not because of the name"
match = ["pytest -q"]

[[rule]]
id = "pip-packages"
effect = "ask"
program = "pip"
args = { first = ["install", "download"] }
grant = { fs_write = ["@workspace"], net = { hosts = ["pypi.org:443", "files.pythonhosted.org:443"] } }
why = "packages run code of their own when they are built"
match = ["pip install -r requirements.txt"]
not_match = ["pip list"]
"#;

/// Advice in place of a toolchain.
const RUSTUP: &str = r#"
# A cargo of rustup's is not in a system directory. For the directory that `rustc --print sysroot` prints, put
# DIRECTORY/bin first in PATH above, fs_read = ["DIRECTORY"] into both grants below, and pin cargo:
# [programs]
# pin = { cargo = "DIRECTORY/bin/cargo" }
"#;

const RUST: &str = r#"
[[rule]]
id = "cargo-builds"
effect = "allow"
program = "cargo"
args = { first = ["check", "test", "build", "clippy", "fmt", "tree", "metadata"], deny_flags = ["--config", "-Z"] }
grant = { {read}fs_write = ["@workspace", "~/.cargo/registry:ro"], net = "none" }
why = "compiles and runs project code: safe because of the grant, not because of the name"
match = ["cargo test --workspace", "cargo build --release"]
not_match = ["cargo install ripgrep", "cargo --config x=1 build"]

[[rule]]
id = "cargo-crates"
effect = "ask"
program = "cargo"
args = { first = ["fetch", "add", "update"] }
grant = { {read}fs_write = ["@workspace", "~/.cargo/registry"], net = { hosts = ["index.crates.io:443", "static.crates.io:443"] } }
why = "what is fetched is compiled and run later"
match = ["cargo fetch"]
"#;

const GO: &str = r#"
# A go outside the system's directories must be pinned:
# [programs]
# pin = { go = "/usr/local/go/bin/go" }

[[rule]]
id = "go-builds"
effect = "allow"
program = "go"
args = { first = ["build", "test", "vet", "list"] }
grant = { fs_write = ["@workspace", "~/go/pkg/mod:ro"], net = "none" }
why = "compiles and runs project code: safe because of the grant, not because of the name"
match = ["go test ./...", "go build ./..."]
not_match = ["go install example.com/x@latest"]

[[rule]]
id = "go-modules"
effect = "ask"
program = "go"
args = { first = ["get", "mod"] }
grant = { fs_write = ["@workspace", "~/go/pkg/mod"], net = { hosts = ["proxy.golang.org:443", "sum.golang.org:443"] } }
why = "what is fetched is compiled and run later"
match = ["go mod download"]
"#;

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
