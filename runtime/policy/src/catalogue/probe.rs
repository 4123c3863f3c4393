//! The programs themselves as judges of the catalogue: every line of the table, with every option, in a
//! directory full of plug-ins, under a trace of system calls.
//!
//! No line may open a file for writing, and none may run or map a file of the directory. Programs that are
//! not installed are left out; without `strace` the test says so and passes, unless
//! `LOBSTER_REQUIRE_STRACE` is set. `LOBSTER_PROBE_SHARE=1` tries every option, not some of them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::{DecisionEnv, Policy, Proposal, Verdict};
use super::options::{self, VERSIONS};

/// Files that some program loads, runs or takes options from when it finds them beside it.
const DECOYS: &[(&str, &str)] = &[
    ("f", "a:b\nx 1\n"),
    ("args", "--plugin ./evil.so --output=out\n"),
    ("canary", "#!/bin/sh\n: >sung\n"),
    ("conftest.py", "open('sung', 'w')\n"),
    ("sitecustomize.py", "open('sung', 'w')\n"),
    ("usercustomize.py", "open('sung', 'w')\n"),
    ("random.py", "open('sung', 'w')\n"),
    ("pytest.ini", "[pytest]\naddopts = -p conftest\n"),
    ("package.json", "{\"scripts\":{\"preinstall\":\"./canary\"},\"packageManager\":\"pnpm@1.0.0\"}\n"),
    (".npmrc", "script-shell=./canary\nnode-options=--require ./canary.js\n"),
    (".yarnrc", "yarn-path \"./canary.js\"\n"),
    (".yarnrc.yml", "yarnPath: ./canary.js\n"),
    (".pnpmfile.cjs", "require('fs').writeFileSync('sung', '')\n"),
    ("canary.js", "require('fs').writeFileSync('sung', '')\n"),
    (".mvn/jvm.config", "-javaagent:evil.jar\n"),
    ("gradle.properties", "org.gradle.jvmargs=-javaagent:evil.jar\n"),
    ("rust-toolchain.toml", "[toolchain]\npath = \"DIRECTORY/toolchain\"\n"),
    ("toolchain/bin/rustc", "#!/bin/sh\n: >sung\n"),
    ("toolchain/bin/cargo", "#!/bin/sh\n: >sung\n"),
    ("toolchain/bin/rustfmt", "#!/bin/sh\n: >sung\n"),
    ("toolchain/lib/f", ""),
    (".cargo/config.toml", "[build]\nrustc-wrapper = \"./canary\"\n"),
    ("go.mod", "module x\ngo 1.99\ntoolchain go1.99.9\n"),
    ("Gemfile", "File.write('sung', '')\n"),
    ("Rakefile", "File.write('sung', '')\n"),
    ("ansible.cfg", "[defaults]\ncallback_plugins = .\n"),
    ("tools/bazel", "#!/bin/sh\n: >sung\n"),
    (".erlang", "os:cmd(\"./canary\").\n"),
    (".gdbinit", "shell ./canary\n"),
    (".ackrc", "--pager=./canary\n"),
    (".exrc", "!./canary\n"),
    (".jq", "def x: 1;\n"),
    (
        "openssl.cnf",
        "openssl_conf = x\n[x]\nengines = y\n[y]\nz = z\n[z]\ndynamic_path = ./evil.so\ninit = 1\n",
    ),
    ("Makefile", "$(shell ./canary)\nall:\n"),
];

/// Words that lead some program to one of them.
const OPERANDS: &[&[&str]] = &[
    &[],
    &["f"],
    &["f", "out"],
    &["@args"],
    &["@args", "f"],
    &["./evil.so"],
    &["x/evil"],
    &["org.openssl.engine:./evil.so:x"],
    &["passwd", "root"],
    &["--", "f", "out"],
];

fn env_number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn prepare_directory(dir: &Path) {
    for (name, text) in DECOYS {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text.replace("DIRECTORY", &dir.display().to_string())).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let libraries =
        ["/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6", "/lib64/libm.so.6"];
    let library = libraries.iter().find(|path| Path::new(path).exists());
    for name in ["evil.so", "libnss_x/evil.so.2", "libnss_evil.so.2", "evil.jar"] {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        library.map_or_else(|| fs::write(&path, ""), |from| fs::copy(from, &path).map(|_| ())).unwrap();
    }
}

/// The path of an installed program, where a policy's trusted directories have it.
fn find_program(name: &str) -> Option<PathBuf> {
    let places = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"].iter().map(|dir| Path::new(dir).join(name));
    let found = places.into_iter().find(|path| path.exists())?;
    let real = fs::canonicalize(&found).ok()?;
    ["/usr/", "/bin/", "/sbin/"].iter().any(|root| real.starts_with(root)).then_some(found)
}

/// The first line of a trace that no catalogued command may cause.
fn find_misdeed(trace: &str, dir: &str, own: &str) -> Option<String> {
    let path_after = |text: &str| Some(text.split_once('<')?.1.rsplit_once('>')?.0.to_owned());
    let is_own = |path: &str| {
        let is_about_itself = path.starts_with("/proc/") && !path.starts_with("/proc/sys");
        is_about_itself
            || [own, "/dev/", "pipe:", "/tmp/hsperfdata_"].iter().any(|start| path.starts_with(start))
    };
    for line in trace.lines().filter(|line| !line.contains(" = -1 ")) {
        let writes = line.contains("O_WRONLY") || line.contains("O_RDWR") || line.starts_with("creat");
        let result = line.rsplit_once(" = ").map_or("", |(_, result)| result);
        if writes && !path_after(result).is_some_and(|path| is_own(&path)) {
            return Some(format!("writes: {line}"));
        }
        let runs = line.starts_with("execve")
            && line.split('"').nth(1).is_some_and(|path| !path.starts_with('/') || path.starts_with(dir));
        let maps =
            line.starts_with("mmap") && line.contains("PROT_EXEC") && line.contains(&format!("<{dir}"));
        if runs || maps {
            return Some(format!("loads: {line}"));
        }
    }
    None
}

/// Runs one command; none if it does nothing that it may not do.
fn probe_command(argv: &[String], program: &Path, dir: &Path, own: &Path) -> Option<String> {
    let traces = tempfile::tempdir_in(own).unwrap();
    let mut strace = Command::new("strace");
    strace.args([
        "-ff",
        "-y",
        "-qq",
        "-s",
        "200",
        "-e",
        "trace=open,openat,openat2,creat,execve,execveat,mmap",
    ]);
    strace
        .arg("-o")
        .arg(traces.path().join("t"))
        .args(["timeout", "-k", "1", "1"])
        .arg(program)
        .args(&argv[1..]);
    strace
        .current_dir(dir)
        .env_clear()
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .env("HOME", own.join("home"));
    strace.env("TMPDIR", own).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    strace.status().unwrap();
    let (dir, own) = (dir.display().to_string(), own.display().to_string());
    fs::read_dir(traces.path()).unwrap().find_map(|trace| {
        let trace = fs::read(trace.unwrap().path()).unwrap();
        find_misdeed(&String::from_utf8_lossy(&trace), &dir, &own)
    })
}

/// Every line of the table with each of its options, and every question for a version.
fn command_forms(share: usize) -> BTreeSet<Vec<String>> {
    let mut all = BTreeSet::new();
    let mut count = 0;
    for (name, sample) in options::samples::option_samples() {
        // What git runs is its repository's choice, and has tests of its own.
        if name.starts_with("git/") {
            continue;
        }
        let start: Vec<String> = name.split('/').map(str::to_owned).collect();
        let long = sample.long.iter().flat_map(|name| {
            ["--NAME", "--NAME=f", "-NAME", "--NAME f"].map(|form| form.replace("NAME", name))
        });
        let short = sample.flags.iter().map(|flag| format!("-{flag}"));
        let valued = sample.valued.iter().flat_map(|flag| [format!("-{flag} f"), format!("-{flag}1")]);
        let every = [String::new()].into_iter().chain(long).chain(short).chain(valued);
        for (at, option) in every.enumerate() {
            for operands in OPERANDS {
                count += 1;
                if at > 0 && count % share != 0 {
                    continue;
                }
                let operands = operands.iter().map(|word| (*word).to_owned());
                let words = option.split_whitespace().map(str::to_owned);
                all.insert(
                    start.iter().cloned().chain(sample.base.clone()).chain(words).chain(operands).collect(),
                );
            }
        }
    }
    for (question, programs) in VERSIONS {
        all.extend(programs.iter().map(|name| vec![(*name).to_owned(), (*question).to_owned()]));
    }
    all
}

#[test]
fn no_line_of_the_catalogue_writes_or_loads_what_the_directory_holds() {
    let works = Command::new("strace").args(["-o", "/dev/null", "true"]).status();
    if !works.is_ok_and(|status| status.success()) {
        assert!(std::env::var_os("LOBSTER_REQUIRE_STRACE").is_none(), "strace is required, and cannot trace");
        eprintln!("skipped: strace is not installed, or may not trace");
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let root = fs::canonicalize(place.path()).unwrap();
    let (dir, own) = (root.join("workspace"), root.join("own"));
    fs::create_dir_all(own.join("home")).unwrap();
    fs::create_dir(&dir).unwrap();
    prepare_directory(&dir);
    // The probe sees what it is to see.
    let seen = |words: &[&str]| {
        let argv: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        probe_command(&argv, &find_program(words[0]).unwrap(), &dir, &own)
    };
    assert!(seen(&["cp", "f", "out"]).is_some_and(|why| why.starts_with("writes")));
    assert!(seen(&["sh", "-c", "./canary"]).is_some_and(|why| why.starts_with("loads")));
    fs::remove_file(dir.join("out")).unwrap();
    let _ = fs::remove_file(dir.join("sung"));

    let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/policy/example.toml");
    let policy = Policy::load(&fs::read_to_string(policy).unwrap(), "example.toml").unwrap();
    let env = DecisionEnv::fixture();
    let is_covered =
        |argv: &Vec<String>| policy.decide(&Proposal::argv(argv.clone()), &env).verdict == Verdict::Allow;
    let covered: Vec<(Vec<String>, PathBuf)> = command_forms(env_number("LOBSTER_PROBE_SHARE", 40))
        .into_iter()
        .filter_map(|argv| find_program(&argv[0]).map(|program| (argv, program)))
        .filter(|(argv, _)| is_covered(argv))
        .collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some((argv, program)) = covered.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Some(why) = probe_command(argv, program, &dir, &own) {
                        wrong.lock().unwrap().push(format!("{}: {why}", argv.join(" ")));
                    }
                }
            });
        }
    });
    let programs: BTreeSet<&Path> = covered.iter().map(|(_, program)| program.as_path()).collect();
    eprintln!("{} forms of {} installed programs ran", covered.len(), programs.len());
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), covered.len(), wrong.join("\n"));
    assert!(!dir.join("sung").exists() && programs.len() > 40, "{programs:?}");
}
