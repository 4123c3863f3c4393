//! Real shells as the judges of the dialects: no text with the verdict `allow` starts an unjudged
//! program or writes a file.
//!
//! Random text is composed of shell fragments and mutated lines of the corpus. Its programs `p1` to
//! `p9` are canaries: they are the only programs in `PATH`, and no rule covers them. Allowed text runs
//! in the shell for which it was judged. Text that is allowed with bash runs in all three, since the
//! verdicts of a corpus must not depend on the host.
//!
//! `LOBSTER_SHELL_FUZZ_TEXTS` sets the number of texts, and `LOBSTER_SHELL_FUZZ_SEED` selects them.
//! With `LOBSTER_REQUIRE_SHELLS=1`, a missing shell is a failure.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

use super::oracle::{FRAGMENTS, Random};
use super::{DecisionEnv, Dialect, Policy, Proposal, Shell, Verdict};

/// Further fragments: constructs that the shells are known to read differently, and programs of the
/// catalogue, so that more texts are allowed.
const MORE: &[&str] = &[
    "echo a ",
    "echo a ",
    "ls ",
    "cat x ",
    "true ",
    "true; ",
    ": ",
    "test x ",
    "[ a ] ",
    "[ a = b ] && ",
    "x=1 ",
    "y='a b'; ",
    "&>/dev/null ",
    "&>>/dev/null ",
    "&> ",
    ">&/dev/null ",
    "$'\\'",
    "$'\\''",
    "\\'",
    "'\\''",
    "$'a\\tb' ",
    "' #'",
    " #'",
    "# '\n",
    "[[ x || ",
    "[[ x && ",
    "[[ a > ",
    "[[ a < ",
    "[[ ! x || (",
    ") ]]",
    " || ",
    " && ",
    "((p1))",
    "((x",
    "((1",
    "x))",
    "1))",
    "a[1]=",
    "a[0]=p2 ",
    "a+=(",
    "x+=",
    "declare ",
    "typeset x=",
    "local x=",
    "export x=$(echo a) ",
    "readonly ",
    "${x:1}",
    "${x^}",
    "${x@Q}",
    "${x//a/",
    "${x:-'",
    "${x:-\"",
    "\"${x:-'}'}\"",
    "\"${x%'}",
    "'}\"",
    "${x:-`",
    "`}",
    "{a,b}",
    "{1..2}",
    "{fd}>",
    "{fd}</dev/null ",
    "10>/dev/null ",
    "3>&1 ",
    ">&- ",
    "~+",
    "~-",
    "$10",
    "${10}",
    "$_",
    "$RANDOM",
    "for ((;;)); do ",
    "for i do ",
    "for i\nin a\ndo ",
    "; done\n",
    "break; done; ",
    "case x in (a|x) ",
    "case x in x) true;& y) ",
    ";;& *) ",
    "<<$(",
    "<<\\E\n",
    "<<\"E\"\n",
    "<<E\\\nF\n",
    "<<'E F'\n",
    "\nE F\n",
    "<<E;",
    "\nE",
    "E\n",
    "\tE\n",
    "\\\nE\n",
    "\\\n&",
    "&\\\n&",
    "|\\\n|",
    "$\\\n(p1)",
    "$(\\\n",
    "i\\\nf ",
    "\"\\\n\"",
    "\"$(",
    ")\"",
    "\"`",
    "`\"",
    "`echo \"",
    "\\`",
    "\\\\`",
    "echo '\\c' ",
    "echo '\\0160\\061' ",
    "| xargs ",
    "| cat ",
    "|& cat ",
    "printf '%s\\n' ",
    "printf '\\160\\061' ",
    "eval \"",
    "eval '",
    "eval echo ",
    "trap 'p3' EXIT ",
    "alias ls=p4\n",
    "alias x=",
    "set -- ",
    "set -k ",
    "set +B; ",
    "set -o posix; ",
    "shopt -s extglob\n",
    "@(a|b)",
    "!(p1)",
    "?(a)",
    "[^a]",
    "[!a]",
    "function ",
    "function f() { ",
    "f () {\n",
    "f()\n(",
    "f() true; ",
    "echo() { p5; }; ",
    "time -p ",
    "time { ",
    "time (",
    "! ! ",
    "! time ",
    "coproc x { ",
    "select x in ",
    "do ",
    "done ",
    "then ",
    "fi ",
    "else ",
    "elif ",
    "esac ",
    "in ",
    "{",
    "}",
    "}; ",
    "( ",
    "(:)",
    "() ",
    "((",
    "( (",
    "$((",
    "$(( 1 ",
    " ))",
    "$[",
    "]",
    "$(<x)",
    "$(# p1\n",
    "$(case x in x) ",
    ";; esac)",
    "é",
    "\u{e9}\u{4e2d}",
    "=(p6)",
    "x=(",
    "x=~ ",
    "echo a=~ ",
    "export x=~ ",
    "<(",
    ">(",
    "<>x ",
    ">|/dev/null ",
    "2>/dev/null ",
    "</dev/null ",
    "<<<x ",
    "exec ",
    "exec >/dev/null; ",
    "command ",
    "command -v ",
    "builtin ",
    ". ",
    "source ",
    "let x=p1 ",
    "read x ",
    "read -r x; ",
    "unset x; ",
    "chdir; ",
    "cd; ",
    "wait; ",
    "exit; ",
    "return; ",
];

/// Fragments after which a variable has another value than the text suggests: at another time, in
/// another scope, or from an environment that the decision does not know. `LOBSTER_RUN_ID` is set when
/// the text runs.
const OVER_TIME: &[&str] = &[
    "x=p1; ",
    "x=ls; ",
    "x=ls\n",
    "y=p2; ",
    "y=ls; ",
    "y=$x; ",
    "x=$y; ",
    "x=ls y=ls; ",
    "$x; ",
    "$y; ",
    "$x a\n",
    "${x:-p3}; ",
    "${x+ls}; ",
    "${z:-ls}; ",
    "${z:=ls}; ",
    "${LOBSTER_RUN_ID:+p4} ",
    "x=${LOBSTER_RUN_ID:+p4}; ",
    "x=${LOBSTER_RUN_ID-ls}; ",
    "${LOBSTER_RUN_ID:-ls} ",
    "f() { local x=ls; }; ",
    "f() { local x; x=p5; }; ",
    "f() { local x; $x; }; ",
    "f() { $x; x=p6; }; ",
    "f() { return; x=ls; }; ",
    "f() { unset x; }; ",
    "f() { ls; }; ",
    "false && f() { ls; }; ",
    "f() { return; p7() { ls; }; }; ",
    "p7() { ls; }; ",
    "unset -f p7; ",
    "p7; ",
    "f; ",
    "f\n",
    "g() { f; }; ",
    "g; ",
    "trap '$x' EXIT; ",
    "trap 'x=p8' EXIT; ",
    "trap f EXIT; ",
    "for i in 1 2 3; do ",
    "for x in ls p9; do ",
    "for x in; do :; ",
    "while [ -n \"$x\" ]; do ",
    "done; ",
    "break; done; ",
    "false && ",
    "true || ",
    "if false; then ",
    "fi; ",
    "{ ",
    "; } <nosuch; ",
    "(",
    "); ",
    "readonly x=p1; ",
    "readonly x; ",
    "x=ls <nosuch; ",
    ": $((1/0)); ",
    ": ${x!}; ",
    "unset x; ",
    "export x; ",
    "sh -c '$x'; ",
    "eval '$x'; ",
    "eval 'x=p2'; ",
    "set -- ls; ",
    "set -- p3; ",
    "set -- p4 ls\n",
    "shift; ",
    "shift 2; ",
    "$1; ",
    "$2; ",
    "\"$*\"; ",
    "${@:1}; ",
    "for x; do ",
    "getopts a: x -a p5; ",
    "$OPTARG; ",
    "OPTARG=ls; ",
    "read x <<E\np6\nE\n",
    "declare -i x; ",
    "local -i x; ",
    "declare x=ls; ",
    "declare -u x=ls; ",
    "x='a[$(p7)]'; ",
    "y='a[x]'; ",
    "\"${!x}\" ",
    "${!y} ",
    "[[ -v $y ]]; ",
    "[[ -v a[x] ]]; ",
    "unset 'a[x]'; ",
    "printf -v 'a[x]' ls; ",
    ": $((x)); ",
    "((x++)); ",
    ": {a[x]}>/dev/null; ",
    "a=(ls); ",
    "a=(p8 ls); ",
    "a+=(p9); ",
    "a=([1]=ls [0]=p1); ",
    "a[0]=p2; ",
    "a[x]=p3; ",
    "unset 'a[0]'; ",
    "$a; ",
    "${a[0]}; ",
    "${a[1]:-ls}; ",
    "\"${a[@]}\"; ",
    "${a[@]:1}; ",
    "hash -p p1 ls; ",
    "hash -rp ./p1 ls; ",
    "BASH_CMDS[ls]=./p1; ",
    "printf -v 'BASH_CMDS[ls]' ./p1; ",
    ": ${BASH_CMDS[ls]:=./p1}; ",
    "shopt -s lastpipe; ",
    "echo p2 | read x; ",
    "wait -p x; ",
    "y=x; ",
    "for x in *; do ",
    "for x in ?*; do ",
    "for RANDOM in ",
    "RANDOM=$x; ",
    "OPTIND+=$x; ",
    "eval \"echo $x\"; ",
    "sh -c \"echo $x\"; ",
    "[ $x ] ",
    "[[ $x -gt 1 ]] ",
    "test -v \"$x\"; ",
    "let \"$x\"; ",
    "declare -a a=\"$x\"; ",
    "declare \"$x\"; ",
    "printf \"$x\" \"$y\" a; ",
    "set \"$x\"; ",
    "x=$(echo *); ",
];

/// Files whose names are code, options and assignments.
const HOSTILE_NAMES: &[&str] = &["a[$(p1)]", ";p2", "`p3`", "-v", "x=a[$(p4)]", "($(p5))"];

/// Runs `text` in a real shell with only these variables, and ends it if it takes too long.
pub(crate) fn run_in(shell: &Shell, text: &str, at: &Path, vars: &[(&str, &OsStr)], patience: Duration) {
    let argv = shell.command_line(text);
    let mut child = Process::new(&argv[0])
        .args(&argv[1..])
        .current_dir(at)
        .env_clear()
        .envs(vars.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > patience {
            let _ = child.kill();
            let _ = child.wait();
            break;
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

struct Canaries {
    dir: tempfile::TempDir,
}

impl Canaries {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bin = dir.path().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        let log = dir.path().join("log");
        for n in 1..=9 {
            let file = bin.join(format!("p{n}"));
            std::fs::write(&file, format!("#!/bin/sh\necho \"$0 $*\" >>'{}'\n", log.display())).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { dir }
    }

    /// Runs `text` and returns any trace of a forbidden effect. With `numbers`, a file whose name is a
    /// number is ignored: `((3 > 2))` is arithmetic in bash, and dash creates such a file.
    fn run(&self, shell: &Shell, text: &str, numbers: bool) -> Option<String> {
        let home = self.dir.path().join("home");
        std::fs::create_dir_all(&home).unwrap();
        for n in 1..=9 {
            let _ = std::os::unix::fs::symlink(format!("../bin/p{n}"), home.join(format!("p{n}")));
        }
        for name in HOSTILE_NAMES {
            let _ = std::fs::write(home.join(name), "");
        }
        let (bin, run) = (self.dir.path().join("bin"), OsStr::new("p1"));
        let vars = [("PATH", bin.as_os_str()), ("HOME", home.as_os_str()), ("LOBSTER_RUN_ID", run)];
        run_in(shell, text, &home, &vars, Duration::from_secs(3));
        self.find_trace(numbers)
    }

    /// Returns any trace since the last check. A background job may finish late; then the trace is
    /// attributed to a later text.
    fn find_trace(&self, numbers: bool) -> Option<String> {
        let log = self.dir.path().join("log");
        let home = self.dir.path().join("home");
        let mut seen = Vec::new();
        if let Ok(started) = std::fs::read_to_string(&log) {
            let _ = std::fs::remove_file(&log);
            seen.push(format!("started {started:?}"));
        }
        for entry in std::fs::read_dir(&home).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_canary = name.starts_with('p') && name.len() == 2;
            if !is_canary && !HOSTILE_NAMES.contains(&name.as_str()) {
                let _ = std::fs::remove_file(entry.path());
                if numbers && name.bytes().all(|b| b.is_ascii_digit()) {
                    continue;
                }
                seen.push(format!("wrote {name:?}"));
            }
        }
        (!seen.is_empty()).then(|| seen.join(", "))
    }
}

/// True if running `text` by mistake could not affect anything outside of the scratch directory.
fn is_confined(text: &str) -> bool {
    let rest = text.replace("/dev/null", "").replace("./p", "");
    !rest.contains('/') && !rest.contains("kill") && !rest.contains("..;") && rest.len() < 400
}

fn corpus_lines() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/policy/corpus.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let commands = lines.map(|line| {
        let case: serde_json::Value = serde_json::from_str(line).unwrap();
        case["command"].as_str().unwrap().to_owned()
    });
    commands.filter(|command| is_confined(command)).collect()
}

/// One line of the corpus with a few fragments inserted or characters removed.
fn mutate_line(line: &str, random: &mut Random) -> String {
    let mut text = line.to_owned();
    for _ in 0..1 + random.number_below(3) {
        let mut at = random.number_below(text.len() + 1);
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        match random.number_below(4) {
            0 if at < text.len() => {
                text.remove(at);
            }
            1 => text.insert_str(at, FRAGMENTS[random.number_below(FRAGMENTS.len())]),
            _ => text.insert_str(at, MORE[random.number_below(MORE.len())]),
        }
    }
    text
}

/// Random texts, some of them composed of fragments that change variables.
fn random_texts(count: usize, seed: u64, over_time: bool) -> Vec<String> {
    let mut random = Random(seed);
    let corpus = corpus_lines();
    let mut text = move || {
        if random.number_below(3) == 0 {
            return mutate_line(&corpus[random.number_below(corpus.len())], &mut random);
        }
        let mut text = String::new();
        let over_time = over_time && random.number_below(3) == 0;
        for _ in 0..1 + random.number_below(7) {
            let list = match random.number_below(3) {
                0 => FRAGMENTS,
                _ if over_time => OVER_TIME,
                _ => MORE,
            };
            text.push_str(list[random.number_below(list.len())]);
        }
        text
    };
    std::iter::from_fn(|| Some(text())).filter(|text| is_confined(text)).take(count).collect()
}

fn find_shell(dialect: Dialect) -> Option<Shell> {
    let names: &[&str] = match dialect {
        Dialect::Dash => &["/usr/bin/dash", "/bin/dash"],
        Dialect::Ash => &["/usr/bin/busybox", "/bin/busybox"],
        Dialect::Bash | Dialect::Unknown => &["/usr/bin/bash", "/bin/bash"],
    };
    let program = names.iter().map(PathBuf::from).find(|path| path.exists());
    if program.is_none() {
        assert!(std::env::var_os("LOBSTER_REQUIRE_SHELLS").is_none(), "{} is not installed", dialect.name());
        eprintln!("skipped: {} is not installed", dialect.name());
    }
    Some(Shell { program: program?, dialect })
}

fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn example_texts(count: u64, over_time: bool) -> Vec<String> {
    let count = usize::try_from(env_number("LOBSTER_SHELL_FUZZ_TEXTS", count)).unwrap();
    random_texts(count, env_number("LOBSTER_SHELL_FUZZ_SEED", 20_261_122).max(1), over_time)
}

/// The generator covers the purpose of the small language: among texts that ask only because of their
/// language, some do start canaries in dash.
#[test]
fn what_asks_for_its_language_would_start_programs() {
    let Some(shell) = find_shell(Dialect::Dash) else {
        return;
    };
    let policy = Policy::load("version = 1\n", "p").unwrap();
    let env = DecisionEnv::fixture().with_shell(Shell::example(Dialect::Dash));
    let canaries = Canaries::new();
    let asked = example_texts(2_000, false).into_iter().take(2_000).filter(|text| {
        let reasons = policy.decide(&Proposal::shell(text.clone()), &env).reasons;
        !reasons.is_empty()
            && reasons.iter().all(|reason| matches!(reason.code.as_str(), "language" | "syntax"))
    });
    let started = asked.filter(|text| canaries.run(&shell, text, false).is_some()).count();
    assert!(started > 0, "the generator no longer reaches what shells read differently");
}

#[test]
fn what_is_allowed_starts_nothing_that_was_not_judged() {
    // A debug build judges a tenth as many in the same time.
    let default = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    let texts = example_texts(default, true);
    let policy = Policy::load("version = 1\n", "p").unwrap();
    let shells: Vec<Shell> =
        [Dialect::Dash, Dialect::Ash, Dialect::Bash].into_iter().filter_map(find_shell).collect();
    let workers = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    let part = texts.len().div_ceil(workers).max(1);
    let results: Vec<(usize, Vec<String>)> = std::thread::scope(|scope| {
        let handles: Vec<_> = texts
            .chunks(part)
            .map(|texts| {
                let (policy, shells) = (&policy, &shells);
                scope.spawn(move || {
                    let canaries = Canaries::new();
                    let (mut ran, mut bad) = (0, Vec::new());
                    for judged in [Dialect::Dash, Dialect::Ash, Dialect::Bash] {
                        let env = DecisionEnv::fixture().with_shell(Shell::example(judged));
                        for text in texts {
                            if policy.decide(&Proposal::shell(text.clone()), &env).verdict != Verdict::Allow {
                                continue;
                            }
                            for shell in
                                shells.iter().filter(|s| judged == Dialect::Bash || s.dialect == judged)
                            {
                                ran += 1;
                                if let Some(seen) = canaries.run(shell, text, judged == Dialect::Bash) {
                                    bad.push(format!(
                                        "{text:?} judged for {judged:?}, in {:?}: {seen}",
                                        shell.dialect
                                    ));
                                }
                            }
                        }
                    }
                    std::thread::sleep(Duration::from_millis(300));
                    bad.extend(canaries.find_trace(true).map(|seen| format!("one of the last texts {seen}")));
                    (ran, bad)
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let ran: usize = results.iter().map(|(ran, _)| ran).sum();
    let bad: Vec<String> = results.into_iter().flat_map(|(_, bad)| bad).collect();
    eprintln!("{} texts, {ran} runs of what was allowed", texts.len());
    assert!(bad.is_empty(), "{} of {ran}:\n{}", bad.len(), bad.join("\n"));
    assert!(ran > texts.len() / 50, "only {ran} runs: the generator no longer writes what is allowed");
}
