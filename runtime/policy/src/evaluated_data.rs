//! Data that bash evaluates: every way of handing code to a place where bash
//! reads arithmetic, a subscript, a name or shell text, and the real bash as judge.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::shell_fuzz::run_in;
use super::{DecisionEnv, Dialect, Policy, Proposal, Shell, Verdict};

/// Texts around a use of `"$d"`, which then holds code.
const SOURCES: &[&str] = &[
    "d='a[$(p1)]'; {}",
    "d=$(<given); {}",
    "y='a[$(p1)]'; d=y; {}",
    "y='a[$(p1)]'; z=(1 y); d='z[1]'; {}",
    "y='a[$(p1)]'; z='1 + y'; d=z; {}",
    "y='a[$(p1)]'; d=; d+=y; {}",
    "y='a[$(p1)]'; for d in 1 y; do {}; done",
    "for d in *; do {}; done",
    "for d in a*; do {}; done",
    "for e in ?*; do d=$e; {}; done",
    "for e in *; do d=\"$e\"; {}; done",
    "for e in a*; do d=; d+=$e; {}; done",
    "set -- a*; d=$1; {}",
    "n0='a[$(p1)]'; d=n$#; {}",
    "for d in \\;*; do {}; done",
    "for d in \\(*; do {}; done",
    "for d in x=*; do {}; done",
    "d=-v; {}",
];

/// Places where bash evaluates `$d`, or might.
const USES: &[&str] = &[
    ": $((d))",
    ": $(($d))",
    ": $((1 + $d))",
    ": $[d]",
    "((d))",
    "((q = d))",
    "((d ? 1 : 2))",
    "let \"$d\"",
    "let d",
    "let q=d",
    "for ((q = d; q < 1; q++)); do :; done",
    "[[ $d -gt 1 ]]",
    "[[ 1 -eq d ]]",
    "[[ -v $d ]]",
    "[[ -R $d ]]",
    "test -v \"$d\"",
    "[ -v \"$d\" ]",
    "[ \"$d\" 'a[$(p2)]' ]",
    "[ \"$d\" \"$(<given)\" ]",
    "[ $(<option) ]",
    "[ ! $(<option) ]",
    "[ x = y -o $(<option) ]",
    "[ * ]",
    "test [a-]*",
    "[ $d -gt 1 ]",
    "unset \"$d\"",
    "declare -A m; unset \"m[$d]\"",
    "m=(1); unset \"m[$d]\"",
    "m[$d]=1",
    "m[d]=1",
    "m=([$d]=1)",
    "m+=([d]=1)",
    "m=(1); : ${m[$d]}",
    "m=(1); : ${m[d]}",
    "m=(1); : ${#m[d]}",
    "m=abc; : ${m:$d}",
    "m=abc; : ${m:0:d}",
    "m=(1 2); : ${m[@]:d}",
    ": ${@:$d}",
    ": \"${!d}\"",
    ": ${!d:-x}",
    "declare -i n; n=$d",
    "declare -i n; n+=$d",
    "declare -i n=$d",
    "declare -i \"n=$d\"",
    "declare -i n; n[0]=$d",
    "declare -i n; n=(\"$d\")",
    "declare -i n; n=([1]=$d)",
    "declare -i n; read n <<<\"$d\"",
    "declare -i n; read -a n <<<\"$d\"",
    "declare -i n; printf -v n %s \"$d\"",
    "declare -i n; printf -v 'n[0]' %s \"$d\"",
    "declare -i n; for n in \"$d\"; do :; done",
    "declare -i n; mapfile n <<<\"$d\"",
    "declare -i n; : ${n:=$d}",
    "declare -i n; : ${n[1]:=$d}",
    "f() { local -i n=$d; }; f",
    "declare -ai n; n+=(\"$d\")",
    "declare -a m=\"$d\"",
    "declare -a \"m=$d\"",
    "declare -a m; declare m=\"$d\"",
    "m=(1); readonly m=\"$d\"",
    "f() { local -a m=\"$d\"; }; f",
    "declare -a m=\"$(<list)\"",
    "declare -a \"m=$(<list)\"",
    "m=(1); declare m=\"$(<list)\"",
    "m=(1); m=; declare \"m=$(<list)\"",
    "export -a m=\"$(<list)\"",
    "declare \"$d=1\"",
    "declare \"$d\"",
    "readonly \"$d\"",
    "read \"$d\" <<<x",
    "read -a \"$d\" <<<x",
    "mapfile \"$d\" <<<x",
    "printf -v \"$d\" x",
    "printf \"-v$d\" x",
    "printf \"$d\" 'a[$(p2)]' x",
    "printf \"$d\" \"$(<given)\" x",
    "printf \"$(<option)\" x",
    "getopts a \"$d\" -a",
    "wait -p \"$d\"",
    ": {m[d]}>/dev/null",
    ": {m[$d]}>/dev/null",
    "exec {m[d]}>/dev/null",
    "eval \"$d\"",
    "eval $d",
    "eval : \"$d\"",
    "eval : *",
    "trap \"$d\" EXIT",
    "trap \": $d\" EXIT",
    "f() { (( $1 )); }; f \"$d\"",
    "case x in x) let \"$d\";; esac",
    "echo \"$d\" | { read q; let q; }",
    "while let d; do break; done",
    "if ((d)); then :; fi",
    "(let d)",
    ": `let d`",
];

/// Ways in which `V` is given `$d`.
const ASSIGNMENTS: &[&str] = &[
    "V=$d",
    "V+=$d",
    "V[0]=$d",
    "V=(\"$d\")",
    "for V in \"$d\"; do :; done",
    "read V <<<\"$d\"",
    "read -a V <<<\"$d\"",
    "mapfile V <<<\"$d\"",
    "printf -v V %s \"$d\"",
    "declare V=$d",
    "declare \"V=$d\"",
    "export V=\"$d\"",
    "f() { local V=$d; }; f",
    ": ${V:=$d}",
    "V=$d true",
    "V=$d eval :",
    "getopts \"$d\" V -a",
];

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("bin")).unwrap();
        std::fs::create_dir_all(at("home")).unwrap();
        for name in ["p1", "p2"] {
            let program = at("bin").join(name);
            let text = format!("#!/bin/sh\necho {name} >>'{}'\n", at("log").display());
            std::fs::write(&program, text).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        for (name, text) in [
            ("a[$(p1)]", ""),
            (";p1", ""),
            ("($(p1))", ""),
            ("x=a[$(p1)]", ""),
            ("-v", ""),
            ("given", "a[$(p1)]\n"),
            ("list", "($(p1))\n"),
            ("option", "-v a[$(p1)]\n"),
        ] {
            std::fs::write(at("home").join(name), text).unwrap();
        }
        Self { dir }
    }

    /// Whether running `text` starts a program.
    fn starts_a_program(&self, shell: &Shell, text: &str) -> bool {
        let (home, bin, log) =
            (self.dir.path().join("home"), self.dir.path().join("bin"), self.dir.path().join("log"));
        let vars = [("PATH", bin.as_os_str()), ("HOME", home.as_os_str())];
        run_in(shell, text, &home, &vars, Duration::from_secs(3));
        std::fs::remove_file(log).is_ok()
    }
}

/// Every variable that bash has by itself.
fn variables_of(bash: &Path) -> Vec<String> {
    let listed = Command::new(bash)
        .args(["--norc", "--noprofile", "-c", "compgen -v"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    let more = ["REPLY", "MAPFILE", "OPTARG", "COLUMNS", "LINES", "TMOUT", "HISTSIZE", "EPOCHSECONDS"];
    let listed = String::from_utf8(listed.stdout).unwrap();
    listed.split_whitespace().chain(more).map(str::to_owned).collect()
}

fn texts(bash: &Path) -> Vec<String> {
    let mut texts: Vec<String> =
        SOURCES.iter().flat_map(|source| USES.iter().map(move |place| source.replace("{}", place))).collect();
    for name in variables_of(bash) {
        for way in ASSIGNMENTS {
            let way = way.replace('V', &name);
            for source in [SOURCES[0], SOURCES[1], SOURCES[2], SOURCES[8]] {
                texts.push(source.replace("{}", &way));
            }
        }
    }
    texts
}

/// No text with which bash runs code that stands in data is allowed.
#[test]
fn data_that_bash_evaluates_is_never_allowed() {
    let Some(program) = ["/usr/bin/bash", "/bin/bash"].map(PathBuf::from).into_iter().find(|p| p.exists())
    else {
        assert!(std::env::var_os("LOBSTER_REQUIRE_SHELLS").is_none(), "bash is not installed");
        return;
    };
    let texts = texts(&program);
    let shell = Shell { program, dialect: Dialect::Bash };
    let policy = Policy::load("version = 1\n", "p").unwrap();
    let env = DecisionEnv::fixture().with_shell(Shell::example(Dialect::Bash));
    let place = Place::new();
    let (mut allowed, mut refused_with_reason) = (0, 0);
    let mut bad = Vec::new();
    for (at, text) in texts.iter().enumerate() {
        let may_run = policy.decide(&Proposal::shell(text.clone()), &env).verdict == Verdict::Allow;
        allowed += usize::from(may_run);
        // Of what is refused a part shows that the texts are worth refusing.
        if !may_run && at % 10 != 0 {
            continue;
        }
        match (may_run, place.starts_a_program(&shell, text)) {
            (true, true) => bad.push(text.clone()),
            (false, true) => refused_with_reason += 1,
            (true | false, false) => {}
        }
    }
    eprintln!("{} texts, {allowed} allowed, {refused_with_reason} refused with reason", texts.len());
    assert!(bad.is_empty(), "{} of {allowed}:\n{}", bad.len(), bad.join("\n"));
    assert!(refused_with_reason > 50, "only {refused_with_reason} texts show that bash evaluates data");
    assert!(allowed > 100, "only {allowed} texts are allowed, so that nothing is tested");
}
