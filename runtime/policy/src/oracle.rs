//! bash as the judge of the analysis: the analysis must have seen every command that bash starts.
//!
//! Random text is composed of shell fragments whose commands do not exist. bash, with an empty `PATH`,
//! reports each name that it fails to find. Every such name must be among the commands of the decision,
//! unless the decision refused the text or reported a part that is known only at run time.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command as Process, Stdio};

use super::{DecisionEnv, Policy, Proposal};

pub(super) const FRAGMENTS: &[&str] = &[
    "p1",
    "p2 a",
    "p3 ",
    "(",
    ")",
    "( (",
    ") )",
    "((",
    "))",
    "{ ",
    "; }",
    "$(",
    "$( (",
    "`",
    "\"",
    "'",
    "$((",
    "1+1",
    "&&",
    "||",
    "|",
    ";",
    "\n",
    "&",
    " ",
    " ",
    "if p4; then ",
    "; fi",
    "for i in 1 2; do ",
    "; done",
    "case x in x) ",
    "case x in (x) ",
    ";; esac",
    "x=p5",
    "$x",
    "${x:-p6}",
    "${y:-$(p7)}",
    "<<E\n",
    "\nE\n",
    "<<'E'\n",
    "<<-E\n",
    "$(p8)",
    "eval ",
    "'p9'",
    "\\",
    "#",
    " #",
    "!",
    "! ",
    "<(p1)",
    "[[ -n ",
    " ]]",
    "$'p2'",
    "$\"p3\"",
    "{p4,}",
    "a=(p5 ",
    "${a[0]}",
    "a[$(p6)]=1",
    "f() { ",
    "; f",
    "\\\n",
    "<<<",
    ">/dev/null",
    "time ",
    "echo ",
    "test ",
    "=",
    "${x/a/$(p7)}",
    "${#x}",
    "${!x}",
    "$[1+1]",
    "*",
    "~",
    "\t",
    "set -- p8; ",
    "$1",
    "\"$@\"",
    "select i in a; do ",
    "coproc ",
    "function g { ",
    "; g",
    "until p9; do break",
    "while p1; do break",
    "trap p2 EXIT; ",
    "p3>&1",
    "2>&1",
    ">&2 ",
    "<&-",
    "|&",
    ";&",
    "p4$(:)",
    "unset x; ",
    "x+=p6",
    "export x; ",
    "command p7",
    "builtin eval p8",
    "x='p9 b'",
    "${x% *}",
    "${x#p}",
    "$((x))",
    "let i=1",
    "printf -v x p1; ",
    "read x <<<p2; ",
    "p5\\ ",
    "\\p6",
    "p\"7\"",
    "p'8'",
    "''p9",
    "$(<f)",
];

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn number_below(&mut self, end: usize) -> usize {
        // xorshift64*: only the distribution matters here.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let drawn = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(drawn).unwrap_or(0) % end
    }
}

fn random_texts(count: usize, seed: u64) -> Vec<String> {
    let mut random = Random(seed);
    (0..count)
        .map(|_| {
            (0..1 + random.number_below(9)).map(|_| FRAGMENTS[random.number_below(FRAGMENTS.len())]).collect()
        })
        .collect()
}

/// Names that bash tried to start for each text.
fn started_programs(bash: &Path, texts: &[String]) -> Vec<BTreeSet<String>> {
    let dir = tempfile::tempdir().unwrap();
    let mut script = String::from(
        "command_not_found_handle() { builtin printf '%s\\n' \"$1\" >&9; }\nreadonly -f command_not_found_handle\n",
    );
    for (n, text) in texts.iter().enumerate() {
        let quoted = text.replace('\'', r"'\''");
        let _ = writeln!(
            script,
            "( exec 9>>log.{n}; ulimit -t 2; set --; eval '{quoted}' ) </dev/null >/dev/null 2>&1 & wait $!"
        );
    }
    std::fs::write(dir.path().join("script"), script).unwrap();
    Process::new(bash)
        .args(["--noprofile", "--norc", "script"])
        .current_dir(dir.path())
        .env_clear()
        .env("PATH", "/nonexistent")
        .env("HOME", dir.path())
        .stdin(Stdio::null())
        .status()
        .unwrap();
    (0..texts.len())
        .map(|n| {
            let log = std::fs::read_to_string(dir.path().join(format!("log.{n}"))).unwrap_or_default();
            log.lines().map(str::to_owned).collect()
        })
        .collect()
}

#[test]
fn everything_bash_starts_was_seen() {
    let bash = Path::new("/bin/bash");
    if !bash.exists() {
        return;
    }
    let count = std::env::var("LOBSTER_ORACLE_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_500);
    let seed = std::env::var("LOBSTER_ORACLE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(7);
    let policy = Policy::load("version = 1\n", "p").unwrap();
    let env = DecisionEnv::fixture();
    let texts = random_texts(count, seed);
    let mut missed = Vec::new();
    let mut compared = 0;
    for (text, names) in texts.iter().zip(started_programs(bash, &texts)) {
        let decision = policy.decide(&Proposal::shell(text.clone()), &env);
        let gave_up = !decision.analysed
            || decision.reasons.iter().any(|reason| {
                matches!(
                    reason.code.as_str(),
                    "dynamic-program"
                        | "program-glob"
                        | "opaque-code"
                        | "arithmetic-data"
                        | "protected-variable"
                        | "stdin-code"
                        | "program-name"
                )
            });
        if gave_up {
            continue;
        }
        // bash keeps the tilde of a user that does not exist. A wrapper is not listed, but its command
        // is.
        let names: BTreeSet<&String> = names
            .iter()
            .filter(|name| !name.starts_with('~') && !matches!(name.as_str(), "time" | "gtime"))
            .collect();
        compared += names.len();
        let seen: BTreeSet<&str> =
            decision.commands.iter().filter_map(|c| c.argv.first()).map(String::as_str).collect();
        for name in names.iter().filter(|name| !seen.contains(name.as_str())) {
            missed.push(format!("{name} of {text:?}: {:?}", decision.commands));
        }
    }
    assert_eq!(missed, Vec::<String>::new(), "{} of {compared}", missed.len());
    assert!(compared > count / 50, "only {compared} names were compared");
}
