//! What the templates of `step new` do with the tools that are there, and what they say of those
//! that are not. Whole projects are built where that needs no network; `just templates` builds all.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::binary::repository;
use crate::home::Home;

fn template(language: &str) -> PathBuf {
    repository().join("guest-steps/templates").join(language)
}

/// A directory with a few of the machine's programs, as a `PATH`.
fn bare_path(home: &Home) -> PathBuf {
    let dir = home.dir().join("tools");
    std::fs::create_dir_all(&dir).unwrap();
    for tool in ["bash", "cut", "dirname", "env", "head", "mkdir", "sort"] {
        let from = ["/usr/bin", "/bin"].map(|dir| Path::new(dir).join(tool));
        let from = from.iter().find(|path| path.exists()).unwrap();
        let to = dir.join(tool);
        if !to.exists() {
            std::os::unix::fs::symlink(from, to).unwrap();
        }
    }
    dir
}

fn script(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("#!/usr/bin/env bash\n{text}\n")).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A Python of this machine that is new enough.
fn python() -> Option<Command> {
    let check = "import sys; sys.exit(sys.version_info < (3, 11))";
    let found = Command::new("python3").args(["-c", check]).output().is_ok_and(|done| done.status.success());
    if !found {
        eprintln!("SKIPPED: python3 3.11 or newer is not here");
    }
    found.then(|| Command::new("python3"))
}

#[test]
fn a_missing_tool_is_named_in_every_language() {
    let home = Home::new();
    let path = bare_path(&home);
    for (language, tool, cure) in [
        ("go", "go is not on PATH", "https://go.dev/dl"),
        ("js", "node is not on PATH", "https://nodejs.org"),
        ("ts", "node is not on PATH", "https://nodejs.org"),
        ("python", "python3 is not on PATH", "https://www.python.org/downloads"),
        ("rust", "there is no Rust", "rustup target add wasm32-wasip2"),
    ] {
        let run = |words: &[&str]| {
            home.lobster(words).env("PATH", &path).env("SYSTEM_RUST", home.dir().join("nowhere")).run()
        };
        assert_eq!(run(&["step", "new", "--lang", language, language]).code(), 0);
        let built = run(&["step", "build", language]);
        assert_eq!(built.code(), 1, "{language}: {built:?}");
        assert!(built.stderr.contains(tool) && built.stderr.contains(cure), "{language}: {built:?}");
        assert!(built.stderr.contains("a tool is missing"), "{language}: {built:?}");
    }
}

/// What docs/authoring.md shows for any language: the bindings of wit-bindgen, and two functions.
#[test]
fn a_step_without_an_sdk_needs_the_bindings_alone() {
    let home = Home::new();
    let plain = repository().join("examples/languages/plain");
    let copied = Command::new("cp").arg("-r").args([&plain, &home.dir().join("plain")]).status();
    assert!(copied.unwrap().success());
    let header = std::fs::read_to_string(repository().join("guest-steps/c/gen/step.h")).unwrap();
    let source = home.read("plain/step.cpp");
    let names = source.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    for name in names.filter(|name| name.starts_with("step_") || name.contains("lobster_step_")) {
        assert!(header.contains(name), "the bindings have no {name}");
    }
    let built = home.program("bash", ["plain/build.sh"]).env("LOBSTER_SOURCES", repository()).run();
    if built.stderr.contains("no C compiler for WebAssembly") {
        eprintln!("SKIPPED: {}", built.stderr.lines().next().unwrap_or_default());
        return;
    }
    assert_eq!(built.code(), 0, "{built:?}");
    let tested = home.lobster(["step", "test", "plain"]).run();
    assert!(tested.code() == 0 && tested.stdout.contains("the only case passes"), "{tested:?}");
}

#[test]
fn a_build_that_fails_for_another_reason_is_not_blamed_on_a_tool() {
    let home = Home::new();
    let path = bare_path(&home);
    assert_eq!(home.lobster(["step", "new", "--lang", "c", "x"]).run().code(), 0);
    script(&home.dir().join("x/build.sh"), "echo 'step.c:3: expected ;' >&2; exit 2");
    let built = home.lobster(["step", "build", "x"]).env("PATH", path).run();
    assert!(built.stderr.contains("step.c:3: expected ;"), "{built:?}");
    assert!(built.stderr.contains("the build failed: the lines above say why"), "{built:?}");
    assert!(!built.stderr.contains("ziglang"), "{built:?}");
}

/// A distribution's Rust with more and more of what building takes; each lack is named with its cure.
#[test]
fn what_a_distributions_rust_lacks_is_named() {
    let home = Home::new();
    let (path, root) = (bare_path(&home), home.dir().join("system"));
    let build = || {
        let mut command = Command::new("bash");
        command.arg(template("rust").join("wasm-cargo.sh")).current_dir(home.dir()).env_clear();
        command.env("PATH", &path).env("HOME", home.dir()).env("SYSTEM_RUST", &root);
        command.output().unwrap()
    };
    let sysroot = root.join("sysroot");
    let rustc = |version: &str| {
        let text = format!("[[ $1 == --print ]] && echo {} || echo 'rustc {version} (x)'", sysroot.display());
        script(&root.join("rustc"), &text);
    };
    let lacks = |part: &str| {
        let done = build();
        assert_eq!(done.status.code(), Some(127), "{part}: {}", said(&done));
        assert!(said(&done).contains(part), "{part}: {}", said(&done));
    };
    lacks("there is no Rust. Get it from https://rustup.rs");
    // rustup without a toolchain, and with one that lacks the target.
    script(&path.join("rustup"), "");
    lacks("Run: rustup default stable, then: rustup target add wasm32-wasip2");
    script(&path.join("rustc"), "echo 'rustc 1.96.0 (x)'");
    lacks("the toolchain in use (rustc 1.96.0 (x)) lacks it. Run: rustup target add wasm32-wasip2");
    for tool in ["rustup", "rustc"] {
        std::fs::remove_file(path.join(tool)).unwrap();
    }
    rustc("1.63.0");
    script(&root.join("cargo"), "echo \"cargo $*\"");
    lacks("apt-get install rust-src");
    let source = sysroot.join("lib/rustlib/src/rust/library");
    std::fs::create_dir_all(&source).unwrap();
    std::fs::write(source.join("Cargo.toml"), "").unwrap();
    lacks("is 1.63.0, and the template needs 1.85 or newer");
    rustc("1.96.0");
    lacks("cargo install wasm-component-ld");
    script(&path.join("wasm-component-ld"), "");
    lacks("apt-get install lld");
    // A distribution that packs the target needs none of these.
    std::fs::create_dir_all(sysroot.join("lib/rustlib/wasm32-wasip2")).unwrap();
    let done = build();
    assert!(said(&done).contains("cargo build --release --target wasm32-wasip2 --lib"), "{}", said(&done));
    assert!(!said(&done).contains("build-std"), "{}", said(&done));
}

#[test]
fn the_project_for_go_builds_and_passes_as_it_is_generated() {
    let version = Command::new("go").args(["env", "GOVERSION"]).output();
    let version =
        version.map(|done| String::from_utf8_lossy(&done.stdout).trim().to_owned()).unwrap_or_default();
    let minor = version.strip_prefix("go1.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    if minor.is_none_or(|minor| minor < 24) {
        eprintln!("SKIPPED: go 1.24 or newer is not here ({version})");
        return;
    }
    let home = Home::new();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let run = |words: &[&str]| home.lobster(words).env("PATH", &path).run();
    assert_eq!(run(&["step", "new", "--lang", "go", "tidy-names"]).code(), 0);
    let built = run(&["step", "build", "tidy-names"]);
    assert!(built.stdout.contains("lobster:step component"), "{built:?}");
    let tested = run(&["step", "test", "tidy-names"]);
    assert!(tested.stdout.contains("all 2 cases pass"), "{tested:?}");
}

/// The part of the contract that a Go program carries is the one that wit-bindgen made for C.
#[test]
fn the_contract_of_go_is_that_of_c() {
    let object = std::fs::read(repository().join("guest-steps/c/gen/step_component_type.o")).unwrap();
    let section = std::fs::read(template("go").join("lobster/contract.bin")).unwrap();
    assert!(section.starts_with(&[0]) && section.len() > 1000);
    assert!(object.windows(section.len()).any(|part| part == section));
}

#[test]
fn python_finds_modules_and_files_that_are_gone() {
    let Some(mut python) = python() else { return };
    let home = Home::new();
    home.write("app/lazy.py", "import deep.inner\nVALUE = deep.inner.text()\n");
    home.write("app/deep/__init__.py", "");
    home.write("app/deep/inner.py", "import importlib.resources\ndef text():\n    return importlib.resources.files('deep').joinpath('data.txt').read_text() + open(__file__).readline()\n");
    home.write("app/deep/data.txt", "packed ");
    home.write("app/.hidden/secret.py", "");
    home.write("foreign/pip/__init__.py", "");
    home.write("foreign/other.py", "");
    home.write(
        "main.py",
        r#"
import importlib.resources, os, shutil, sys
app = os.path.abspath("app")
sys.path[:0] = [sys.argv[1], os.path.abspath("foreign"), app]
import lobster_files
lobster_files.drop_foreign()
assert not [path for path in sys.path if path.endswith("foreign")], sys.path
lobster_files.keep([app])
shutil.rmtree("app")
assert os.path.isdir(f"{app}/deep") and os.path.isfile(f"{app}/lazy.py")
assert sorted(os.listdir(f"{app}/deep")) == ["__init__.py", "data.txt", "inner.py"]
assert not os.path.exists(f"{app}/.hidden") and not os.path.exists(f"{app}/none")
sys.path.insert(0, app)
import lazy
assert lazy.VALUE == "packed import importlib.resources\n", lazy.VALUE
try:
    open(f"{app}/lazy.py", "w")
    raise SystemExit("a packed file was opened for writing")
except PermissionError:
    pass
try:
    import pandas_that_is_not_there.frame
    raise SystemExit("found")
except ModuleNotFoundError as error:
    print(str(error) + lobster_files.cure(error))
with open("new.txt", "w") as file:
    file.write("x")
print(open("new.txt").read(), os.stat(f"{app}/deep/data.txt").st_size)
"#,
    );
    let done = python.arg("main.py").arg(template("python")).current_dir(home.dir()).output().unwrap();
    assert!(done.status.success(), "{}", said(&done));
    assert_eq!(
        String::from_utf8_lossy(&done.stdout),
        "No module named 'pandas_that_is_not_there'; the module pandas_that_is_not_there is not in the component: name \
         its package in requirements.txt, and import it at the top of the file\nx 7\n"
    );
}

#[test]
fn python_packages_are_those_of_both_lists_and_failures_name_their_cause() {
    let Some(mut python) = python() else { return };
    let home = Home::new();
    home.write("requirements.txt", "# a comment\ncomponentize-py==0.25.1\nicalendar>=6\n\n");
    home.write("pyproject.toml", "[project]\nname = 'x'\ndependencies = ['tzdata']\n");
    home.write("main.py", r#"
import sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import lobster_build as build
assert build.dependencies() == ["icalendar>=6", "tzdata"], build.dependencies()
told = '''Traceback (most recent call last):
  File "/x/componentize-py", line 8, in <module>
    sys.exit(script())
             ^^^^^^^^
AssertionError: Traceback (most recent call last):
  File "/0/app.py", line 3, in <module>
    import yaml.loader
ModuleNotFoundError: No module named 'yaml.loader'

Caused by:
    ModuleNotFoundError: No module named 'yaml.loader'

Stack backtrace:
   0: anyhow::Error::new
'''
why = build.explain(told)
assert 'File "/0/app.py", line 3' in why and "The module yaml was not found" in why, why
assert "anyhow" not in why and "sys.exit" not in why, why
gone = build.explain(told.replace("yaml.loader", "ctypes"))
assert "has no module ctypes" in gone and "requirements.txt" not in gone, gone
other = build.explain(told.replace("ModuleNotFoundError: No module named 'yaml.loader'", "SyntaxError: invalid"))
assert other.startswith("app.py could not be imported:\n") and "SyntaxError" in other, other
assert build.explain("failed to read WIT") == "failed to read WIT"
"#);
    let done = python.arg("main.py").arg(template("python")).current_dir(home.dir()).output().unwrap();
    assert!(done.status.success(), "{}", said(&done));
}

/// A package whose requirements depend on the version gets those of the step's Python, not of the one that builds.
#[test]
fn python_packages_are_chosen_for_the_python_of_the_component() {
    let Some(mut python) = python() else { return };
    let home = Home::new();
    home.write("requirements.txt", "asks\n");
    home.write(
        "main.py",
        r#"
import os, sys, zipfile
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import lobster_build as build

def wheel(name, *metadata):
    with zipfile.ZipFile(f"wheels/{name}-1-py3-none-any.whl", "w") as file:
        about = f"{name}-1.dist-info"
        file.writestr(f"{name}.py", "")
        file.writestr(f"{about}/METADATA", "\n".join(["Metadata-Version: 2.1", f"Name: {name}", "Version: 1", *metadata, ""]))
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "")

os.mkdir("wheels")
needs = ['Requires-Dist: gone; python_version >= "3.14"', 'Requires-Dist: other; sys_platform == "linux"']
wheel("asks", "Requires-Python: >=3.14", *needs)
wheel("gone")
wheel("other")
os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS="wheels")
try:
    import venv
    venv.create(build.VENV, with_pip=True)
except Exception:
    sys.exit("SKIPPED: no venv with pip can be made here")
build.install_packages()
print(sorted(path.name for path in build.PACKAGES.glob("*.py")))
"#,
    );
    let done = python.arg("main.py").arg(template("python")).current_dir(home.dir()).output().unwrap();
    if said(&done).contains("SKIPPED") {
        eprintln!("{}", said(&done));
        return;
    }
    assert_eq!(String::from_utf8_lossy(&done.stdout), "['asks.py', 'gone.py']\n", "{}", said(&done));
}
