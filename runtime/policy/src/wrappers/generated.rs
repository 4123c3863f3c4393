//! Generated command lines of programs that start, or could start, other programs, with one word that
//! is unknown, missing, several words or a wildcard. Every allowed command line runs in the real shells
//! and must not start a program that no rule covers.
//!
//! `LOBSTER_WRAPPER_TEXTS` sets the number of texts for each shell (`all` for all of them), and
//! `LOBSTER_ORACLE_SEED` selects them.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::time::Duration;

use super::super::oracle::Random;
use super::super::shell_fuzz::run_in;
use super::super::{DecisionEnv, Dialect, Policy, Proposal, Shell, Verdict};

/// Words of a program before its command.
const WRAPPERS: &[&[&str]] = &[
    &["nice"],
    &["nice", "-n", "5"],
    &["nice", "-n5"],
    &["nice", "-5"],
    &["nice", "--adjustment=5"],
    &["nice", "--adjustment", "5"],
    &["timeout", "5"],
    &["timeout", "-s", "TERM", "5"],
    &["timeout", "-k1", "--foreground", "5"],
    &["stdbuf", "-oL"],
    &["stdbuf", "-o", "L", "--error=0"],
    &["nohup"],
    &["setsid", "-w"],
    &["ionice", "-c", "3"],
    &["ionice", "-c2", "-n", "5"],
    &["chrt", "-o", "0"],
    &["taskset", "1"],
    &["taskset", "-c", "0"],
    &["setarch", "-R"],
    &["env"],
    &["env", "-i"],
    &["env", "-u", "X"],
    &["env", "-uX", "LANG=C"],
    &["env", "--unset=X", "--"],
    &["env", "-C", "."],
    &["env", "-S", "nice -n 1"],
    &["time", "-p"],
    &["/usr/bin/time", "-f", "x"],
    &["command"],
    &["command", "-p"],
    &["builtin", "command"],
    &["exec"],
    &["exec", "-a", "x"],
    &["exec", "-cla", "x"],
    &["flock", "/dev/null"],
    &["bash", "-n"],
    &["bash", "-o", "posix", "-c", "ls"],
    &["echo", "x", "|", "xargs"],
    &["echo", "1", "|", "xargs", "-n", "1"],
    &["echo", "1", "|", "xargs", "-I", "{}"],
    &["echo", "1", "|", "xargs", "-r", "-P1"],
    &["printf", "'%s\\n'", "-n", "p", "1e./evil", "README.md", "|", "xargs"],
    &["echo", "\"'p ;e./evil' README.md\"", "|", "xargs"],
];

/// Commands after them, unless a word is moved.
const COMMANDS: &[&[&str]] = &[
    &["cat", "README.md"],
    &["docker", "ps"],
    &["./evil", "docker", "ps"],
    &["cat", "./evil"],
    &["sed", "-n"],
    &["awk", "'BEGIN{system(\"./evil\")}'", "'{print}'", "README.md"],
];

/// Programs of the catalogue that could run other programs.
const READERS: &[&[&str]] = &[
    &["sed", "-n", "-e", "p", "README.md"],
    &["sed", "p", "1e./evil", "README.md"],
    &["sort", "-k", "1", "--parallel=1", "README.md"],
    &["sort", "-nk1", "README.md"],
    &["awk", "-F", ":", "'{print}'", "README.md"],
    &["awk", "-F:", "'BEGIN{system(\"./evil\")}'", "'{print}'", "README.md"],
    &["awk", "-v", "x=1", "'{print}'", "README.md"],
    &["find", ".", "-name", "x", "-newer", "README.md"],
    &["find", ".", "-maxdepth", "1", "-exec", "cat", "{}", "';'"],
    &["find", ".", "-maxdepth", "1", "-exec", "cat", "{}", "+"],
    &["find", ".", "-exec", "./evil", "';'"],
    &["tar", "-t", "-f", "t.tar"],
    &["tar", "tf", "t.tar"],
    &["tar", "./evil", "-tf", "t.tar"],
    &["git", "-c", "color.ui=1", "status"],
    &["git", "--no-pager", "log", "-n", "1", "--format=%H"],
    &["git", "diff", "--stat", "HEAD"],
    &["git", "grep", "-e", "x"],
    &["jq", "--arg", "x", "y", ".", "j.json"],
    &["uniq", "-f", "1", "README.md"],
    &["grep", "-m", "1", "x", "README.md"],
    &["xargs", "sort", "<README.md"],
];

/// Words that may expand to other words, no word or several.
const HAZARDS: &[&str] = &[
    "$#",
    "$!",
    "$?",
    "$((1))",
    "$((0-1))",
    "$U",
    "\"$U\"",
    "\"\"$U",
    "${U:-1}",
    "$@",
    "$@$U",
    "\"$@\"",
    "$LINES",
    "./e*",
    "*",
    "-*",
    "$(echo x)",
    "\"$(echo ./evil)\"",
    "$(echo '1 ./evil')",
    "\"1\"$(echo ' ./evil')",
    "$(echo '-- ./evil')",
    "$(echo '-exec ./evil ;')",
    "\"$(echo ';')\"",
    "$(echo '; -exec ./evil ;')",
    "$(nproc)",
    "$(nproc --version)",
    "$(id -u)",
    "$(wc -l <README.md)",
    "$(date +%s)",
    "$(date +-exec)",
    "$(date +'0 ./evil')",
    "$(stat -c './evil' README.md)",
    "$(expr ./evil)",
    "$!-exec",
    "$E",
    "$f",
    "\"$f\"",
    "\"$2\"",
    "\"$*\"",
    "-$U",
    "-n$#",
    "-$(echo 'n 1 ./evil')",
    "-I$(echo './evil')",
    "\"-$(echo e1e./evil)\"",
    "\"$(echo --compress-program=.)/evil\"",
    "$(echo -exec .)/evil",
    "\"$(echo a)\"",
    "\"$(echo -a)\"",
    "\"$(echo I)\"",
    "\"$(echo '-c core.fsmonitor=./evil')\"",
    "$(printf 'ui=1 -c core.fsmonitor=./evil')",
    "$(echo '-O./evil')",
    "--",
    "+",
];

/// Text with `hazard` at word `at` of `words`.
fn with_hazard(words: &[&str], at: usize, hazard: &str, kind: usize) -> String {
    let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    match kind {
        0 => words.insert(at, hazard.to_owned()),
        1 => words[at] = hazard.to_owned(),
        2 => words[at].push_str(hazard),
        _ => words[at].insert_str(0, hazard),
    }
    let text = words.join(" ");
    match hazard {
        "$E" => format!("E=; {text}"),
        "$f" | "\"$f\"" => format!("for f in ./e*; do {text}; done"),
        "\"$2\"" | "\"$*\"" => format!("set -- $(echo 1 ./evil); {text}"),
        _ => text,
    }
}

fn random_texts() -> Vec<String> {
    let mut lines: Vec<Vec<&str>> = READERS.iter().map(|words| words.to_vec()).collect();
    for wrapper in WRAPPERS {
        lines.extend(COMMANDS.iter().map(|command| [*wrapper, *command].concat()));
    }
    let mut texts = Vec::new();
    for words in &lines {
        texts.push(words.join(" "));
        let from = words.iter().position(|word| *word == "|").map_or(1, |at| at + 2);
        for at in from..words.len() {
            for (hazard, kind) in HAZARDS.iter().flat_map(|hazard| (0..4).map(move |kind| (hazard, kind))) {
                texts.push(with_hazard(words, at, hazard, kind));
            }
        }
    }
    texts
}

/// A directory with programs that leave a mark when they start.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        let program = |name: &str, text: &str| {
            std::fs::write(at.join(name), text).unwrap();
            std::fs::set_permissions(at.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        std::fs::create_dir(at.join("bin")).unwrap();
        program("bin/docker", "#!/bin/sh\n");
        let mark = at.join("bin/mark").display().to_string();
        for name in ["evil", "e1", "-evil", "1"] {
            program(name, &format!("#!/bin/sh\necho \"$0 $*\" >>'{mark}'\n"));
        }
        std::fs::write(at.join("README.md"), "x 1\ny 2\n").unwrap();
        std::fs::write(at.join("j.json"), "{}\n").unwrap();
        let quiet = |program: &str, words: &[&str]| {
            let mut command = Process::new(program);
            command.args(words).current_dir(at).stdout(Stdio::null()).stderr(Stdio::null());
            let _ = command.status();
        };
        quiet("tar", &["-cf", "t.tar", "README.md"]);
        quiet("git", &["init", "-q"]);
        Self { dir }
    }

    /// Programs that `text` started, if any.
    fn run(&self, shell: &Shell, text: &str) -> Option<String> {
        let at = self.dir.path();
        let bin = at.join("bin");
        let path = format!("/usr/bin:/bin:{}", bin.display());
        let vars = [("PATH", OsStr::new(&path)), ("HOME", bin.as_os_str()), ("TERM", OsStr::new("dumb"))];
        run_in(shell, text, at, &vars, Duration::from_secs(2));
        let mark = at.join("bin/mark");
        let started = std::fs::read_to_string(&mark).ok()?;
        let _ = std::fs::remove_file(&mark);
        Some(started)
    }
}

#[test]
fn no_word_that_is_not_known_moves_the_command() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/policy/example.toml");
    let policy = Policy::load(&std::fs::read_to_string(path).unwrap(), "example.toml").unwrap();
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse::<u64>().ok());
    let all = random_texts();
    let count = match std::env::var("LOBSTER_WRAPPER_TEXTS").as_deref() {
        Ok("all") => all.len(),
        _ => usize::try_from(number("LOBSTER_WRAPPER_TEXTS").unwrap_or(3_000)).unwrap(),
    };
    let seed = number("LOBSTER_ORACLE_SEED").unwrap_or(13) | 1;
    let shells = [(Dialect::Dash, "/bin/dash"), (Dialect::Ash, "/bin/busybox"), (Dialect::Bash, "/bin/bash")];
    let results: Vec<(usize, Vec<String>)> = std::thread::scope(|scope| {
        let handles: Vec<_> = shells
            .iter()
            .map(|(dialect, program)| {
                let (policy, all) = (&policy, &all);
                scope.spawn(move || {
                    let env = DecisionEnv::fixture().with_shell(Shell::example(*dialect));
                    let shell = Shell { program: PathBuf::from(program), dialect: *dialect };
                    let (place, mut random) = (Place::new(), Random(seed));
                    let (mut ran, mut bad) = (0, Vec::new());
                    for at in 0..count {
                        let at = if count == all.len() { at } else { random.number_below(all.len()) };
                        let text = &all[at];
                        if policy.decide(&Proposal::shell(text.clone()), &env).verdict != Verdict::Allow {
                            continue;
                        }
                        ran += 1;
                        if let Some(started) =
                            shell.program.exists().then(|| place.run(&shell, text)).flatten()
                        {
                            bad.push(format!("{dialect:?} {text}: {}", started.trim_end()));
                        }
                    }
                    (ran, bad)
                })
            })
            .collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    let ran: usize = results.iter().map(|(ran, _)| ran).sum();
    let bad: Vec<String> = results.into_iter().flat_map(|(_, bad)| bad).collect();
    eprintln!("{} texts, {ran} allowed", all.len());
    assert!(bad.is_empty(), "{} of {ran}:\n{}", bad.len(), bad.join("\n"));
    assert!(ran > count / 100, "only {ran} texts were allowed");
}

#[test]
fn words_that_keep_their_place_ask_nothing() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/policy/example.toml");
    let policy = Policy::load(&std::fs::read_to_string(path).unwrap(), "example.toml").unwrap();
    let env = DecisionEnv::fixture().with_shell(Shell::example(Dialect::Bash));
    for text in [
        "nice -n \"$N\" cat README.md",
        "timeout -s \"$SIGNAL\" 5 docker ps",
        "env -u \"$NAME\" cat README.md",
        "exec -a \"$NAME\" cat README.md",
        "printf '%s\\n' a b | xargs -n1 cat",
        "echo a b | xargs -P \"$(nproc)\" cat",
        "ls | xargs -I{} head -n 1 {}",
        "ls | xargs -I{} env -u {} cat README.md",
        "head -n $N README.md",
        "sort -k \"$K\" README.md",
        "find . -newer \"$F\"",
        "find . -name '*.rs' -exec grep -n x {} +",
        "jq --arg x \"$V\" '.a' j.json",
        "s=$(date +%s); echo \"$s\"",
        "cd /srv/repo && git status",
        "git -C /srv/repo status",
        "E=; cat $E README.md",
    ] {
        let decision = policy.decide(&Proposal::shell(text), &env);
        assert_eq!(decision.verdict, Verdict::Allow, "{text}: {}", decision.message);
    }
}
