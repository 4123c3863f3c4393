//! Generated command lines: no unknown option is ever covered, and no covered command runs a program or
//! writes a file when the real program reads it.

use std::path::Path;
use std::process::{Command, Stdio};

use super::super::{DecisionEnv, Policy, Proposal, Verdict};
use super::options;

struct Random(u64);

impl Random {
    fn number_below(&mut self, end: usize) -> usize {
        // xorshift64*: only the distribution matters here.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(drawn).unwrap_or(0) % end
    }

    fn pick_piece<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.number_below(from.len())]
    }
}

fn env_number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn example_policy() -> Policy {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/policy/example.toml");
    Policy::load(&std::fs::read_to_string(path).unwrap(), "example.toml").unwrap()
}

/// Options of all kinds that no line of the table has, combined with options of a line that would be
/// covered without them.
#[test]
fn an_unknown_option_is_never_covered() {
    let policy = example_policy();
    let env = DecisionEnv::fixture();
    let mut random = Random(env_number("LOBSTER_ORACLE_SEED", 11) | 1);
    let rounds = env_number("LOBSTER_CATALOGUE_ROUNDS", 12);
    let mut wrong = Vec::new();
    let mut covered = 0;
    for (name, sample) in options::samples::option_samples() {
        let base: Vec<String> = name.split('/').map(str::to_owned).chain(sample.base.clone()).collect();
        let decided = |words: &[String]| policy.decide(&Proposal::argv(words.iter().cloned()), &env);
        let is_covered = decided(&base).verdict == Verdict::Allow;
        covered += usize::from(is_covered);
        for _ in 0..rounds {
            let letters: String = (0..3 + random.number_below(8))
                .map(|_| char::from(b'a' + u8::try_from(random.number_below(26)).unwrap()))
                .collect();
            let letter = char::from(b'A' + u8::try_from(random.number_below(58)).unwrap());
            let known =
                sample.long.get(random.number_below(sample.long.len().max(1))).copied().unwrap_or("colour");
            let known = &known[..1 + random.number_below(known.len())];
            let flag = sample.flags.get(random.number_below(sample.flags.len().max(1))).copied();
            let unknown = match random.number_below(6) {
                0 => format!("--{letters}"),
                1 => format!("--{letters}=x"),
                2 => format!("--{known}"),
                3 => format!("--{known}=--output=x"),
                4 => format!("-{letter}"),
                _ => format!("-{}{letter}out", flag.map(String::from).unwrap_or_default()),
            };
            if sample.knows_option(&unknown) || unknown == "--" {
                continue;
            }
            let at = name.split('/').count();
            let mut words = base.clone();
            words.insert(at, unknown);
            let decision = decided(&words);
            if decision.verdict == Verdict::Allow {
                wrong.push(words.join(" "));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(covered > 120, "only {covered} lines are covered to begin with");
}

/// Parts of command lines, some of them dangerous, for programs that are likely to be installed.
const PROGRAMS: &[(&str, &[&str])] = &[
    (
        "sed",
        &[
            "-n",
            "-E",
            "-s",
            "-z",
            "-e",
            "--expression",
            "--line-length",
            "5",
            "-l",
            "--posix",
            "--debug",
            "-i",
            "-ne",
            "f",
            "--",
            "--quiet",
            "--exp",
            "-f",
            "--null-data",
            "@script",
            "@script",
            "@script",
            "@script",
        ],
    ),
    (
        "awk",
        &[
            "-F", ":", "-v", "x=1", "-f", "f", "--", "-W", "-e", "@program", "@program", "@program",
            "@program",
        ],
    ),
    ("mawk", &["-F", ":", "-v", "x=1", "f", "-W", "dump", "@program", "@program", "@program"]),
    ("gawk", &["-F", ":", "-v", "x=1", "f", "-o", "-i", "@program", "@program", "@program"]),
    (
        "find",
        &[
            ".",
            "-name",
            "a",
            "-exec",
            "./canary",
            ";",
            "+",
            "{}",
            "-delete",
            "-fprint",
            "out",
            "-ok",
            "-newer",
            "f",
            "-newermt",
            "2020",
            "-maxdepth",
            "1",
            "-files0-from",
            "(",
            ")",
            "-D",
            "tree",
            "-O3",
            "-L",
            "-quit",
            "-prune",
            "-o",
            "!",
            "cat",
            "sort",
            "--compress-program=./canary",
            "-execdir",
            "-print",
            "-ls",
        ],
    ),
    (
        "sort",
        &[
            "-k",
            "1",
            "-o",
            "out",
            "--output=out",
            "--compress-program=./canary",
            "--comp",
            "-S",
            "1",
            "-T",
            ".",
            "-t",
            ",",
            "-n",
            "f",
            "--",
            "--parallel",
            "2",
            "--outp",
            "-ko",
            "-no",
            "out2",
            "--debug",
            "-u",
            "-rn",
        ],
    ),
    (
        "tar",
        &[
            "-tf",
            "t.tar",
            "tf",
            "--list",
            "--file=t.tar",
            "--checkpoint=1",
            "--checkpoint-action=exec=./canary",
            "--to-command=./canary",
            "-I",
            "./canary",
            "-xf",
            "-x",
            "--rsh-command=./canary",
            "x:t.tar",
            "--index-file=out",
            "--exclude",
            "-F",
            "-v",
            "--totals",
            "--info-script=./canary",
            "tvf",
            "t",
            "f",
            "-f",
        ],
    ),
    ("uniq", &["-c", "f", "out", "-", "-s", "1", "-d", "--count", "--", "-f"]),
    ("xxd", &["-r", "f", "out", "-s", "1", "-l", "2", "-p", "--", "-c", "-revert"]),
    (
        "openssl",
        &[
            "dgst",
            "-sha256",
            "f",
            "-out",
            "out",
            "--out",
            "-out=out",
            "-sign",
            "-hex",
            "x509",
            "-in",
            "version",
            "-provider-path",
            ".",
            "-engine",
            "./evil.so",
            "prime",
            "7",
            "list",
            "-r",
            "asn1parse",
            "-genconf",
        ],
    ),
    ("split", &["f", "out", "-b", "1"]),
    ("diff", &["f", "t.tar", "-u", "-U", "3", "--output=out", "-o", "out", "--to-file", "-r", "."]),
    ("xargs", &["sort", "-o", "out", "-n1", "./canary", "-I", "{}", "cat", "-a", "f"]),
    ("env", &["-S", "./canary x", "sort", "-o", "out", "-u", "X", "-i", "--", "cat", "f", "-C", "."]),
    ("gzip", COMPRESSORS),
    ("bzip2", COMPRESSORS),
    ("xz", COMPRESSORS),
    ("zstd", COMPRESSORS),
    ("lz4", COMPRESSORS),
    (
        "git",
        &[
            "log",
            "--output=out",
            "-p",
            "--outp",
            "out",
            "diff",
            "-O",
            "f",
            "status",
            "-c",
            "core.pager=./canary",
            "grep",
            "-O./canary",
            "a",
            "--no-index",
            "show",
            "--ext-diff",
            "archive",
            "-o",
            "config",
            "x.y",
            "z",
        ],
    ),
];

/// Arguments that these have in common; `@packed` is a file in the program's own format.
const COMPRESSORS: &[&str] = &[
    "@packed",
    "@packed",
    "@packed",
    "@packed",
    "-t",
    "-d",
    "-l",
    "-c",
    "-td",
    "-dt",
    "-cd",
    "-ld",
    "-f",
    "-k",
    "-q",
    "-1",
    "--test",
    "--list",
    "--stdout",
    "--decompress",
    "--uncompress",
    "--keep",
    "--",
];

const SED: &[&str] = &[
    "p",
    "1",
    "$",
    "/a/",
    "/[/]/",
    "s/a/b/",
    "e",
    "e ./canary",
    "w out",
    ";",
    "\n",
    "}",
    "{",
    "b",
    "a",
    ":x",
    "!",
    "s,x,y,",
    "\\",
    "i\\",
    "g",
    "I",
    "0~4",
    "#n",
    "y/ab/cd/",
    "'",
    "s/./.\\/canary/",
    "W out",
    "r f",
    "c",
    " ",
    "\\%a%",
    "s/[/]/w out/",
    "tx",
    "q",
    "d",
    "N",
    "=",
    ",",
    "w",
    "\\n",
];
const AWK: &[&str] = &[
    "BEGIN",
    "{",
    "}",
    "if(1)",
    "else",
    "/\"/",
    ";",
    "system(\"./canary\")",
    "x=/\"/",
    "print 1",
    ">",
    "\"out\"",
    "|\"./canary\"",
    "(",
    ")",
    "/a/",
    "x++",
    "/",
    "2",
    "$1",
    "getline",
    "\"./canary\"|getline",
    "do",
    "while(0)",
    "\\\n",
    "\n",
    "return",
    "exit",
    "print",
    ",",
    "#",
    "/=/",
    "in",
    "a",
    " ",
    "[",
    "]",
    "/[/]/",
    "!",
    "~",
    "?",
    ":",
];

fn random_words(random: &mut Random, pieces: &[&str]) -> Vec<String> {
    let text = |random: &mut Random, parts: &[&str]| -> String {
        let separators = ["", "", " "];
        (0..1 + random.number_below(7))
            .map(|_| format!("{}{}", random.pick_piece(parts), random.pick_piece(&separators)))
            .collect()
    };
    (0..1 + random.number_below(5))
        .map(|_| match random.pick_piece(pieces) {
            "@script" => text(random, SED),
            "@program" => match random.number_below(3) {
                0 => format!("BEGIN{{{}}}", text(random, AWK)),
                1 => format!("BEGIN{{if(1){};system(\"./canary\")}}", text(random, AWK)),
                _ => text(random, AWK),
            },
            piece => piece.to_owned(),
        })
        .collect()
}

/// File that a compressor would unpack.
fn packed_by(program: &str) -> String {
    let ending = match program {
        "gzip" => "gz",
        "bzip2" => "bz2",
        "zstd" => "zst",
        other => other,
    };
    format!("packed.{ending}")
}

/// Contents of the directory, without access times.
fn directory_contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<(String, Vec<u8>)> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path()).unwrap()))
        .collect();
    all.sort();
    all
}

/// Runs every covered command with the real program in a directory with a canary program, and checks
/// that it starts no program and writes nothing.
#[test]
fn what_is_covered_runs_and_writes_nothing() {
    let count = env_number("LOBSTER_CATALOGUE_CASES", 400);
    let mut random = Random(env_number("LOBSTER_ORACLE_SEED", 5) | 1);
    let policy = example_policy();
    let env = DecisionEnv::fixture();
    let place = tempfile::tempdir().unwrap();
    let dir = place.path();
    std::fs::write(dir.join("f"), "a:b\nx 1\n").unwrap();
    std::fs::write(dir.join("canary"), "#!/bin/sh\n: > \"$(dirname \"$0\")/sung\"\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.join("canary"), mode).unwrap();
    let _ = Command::new("tar").args(["-cf", "t.tar", "f"]).current_dir(dir).status();
    for program in ["gzip", "bzip2", "xz", "zstd", "lz4"] {
        if let Ok(packed) = Command::new(program).args(["-c", "f"]).current_dir(dir).output() {
            std::fs::write(dir.join(packed_by(program)), packed.stdout).unwrap();
        }
    }
    let before = directory_contents(dir);
    let mut ran = 0;
    for (program, pieces) in PROGRAMS {
        let file = Path::new("/usr/bin").join(program);
        if !file.exists() {
            continue;
        }
        for _ in 0..count {
            let mut argv = vec![(*program).to_owned()];
            argv.extend(random_words(&mut random, pieces));
            for word in argv.iter_mut().filter(|word| *word == "@packed") {
                *word = packed_by(program);
            }
            if policy.decide(&Proposal::argv(argv.clone()), &env).verdict != Verdict::Allow {
                continue;
            }
            ran += 1;
            let mut child = Command::new("timeout")
                .arg("2")
                .args(&argv)
                .current_dir(dir)
                .env_clear()
                .env("PATH", "/usr/bin:/bin")
                .env("HOME", dir)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            child.wait().unwrap();
            assert!(directory_contents(dir) == before, "{argv:?} changed the directory");
        }
    }
    assert!(ran > 50, "only {ran} commands were covered and run");
}
