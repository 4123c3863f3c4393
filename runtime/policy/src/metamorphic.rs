//! Wrapping a command must never make it look more harmless. Every dangerous command of the corpus is
//! put through every wrapper, through pairs of wrappers, and through other quotings of its name.

use std::path::Path;

use super::{Command, DecisionEnv, Dialect, Policy, Proposal, Shell, Verdict};

struct Case {
    id: String,
    command: String,
    cwd: Option<String>,
    expect: String,
}

fn load_corpus() -> (Policy, Vec<Case>) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/policy");
    let policy =
        Policy::load(&std::fs::read_to_string(dir.join("example.toml")).unwrap(), "example.toml").unwrap();
    let cases = std::fs::read_to_string(dir.join("corpus.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        // The other profiles would deny it for their own reasons.
        .filter(|case| case["policy_profile"] == "default")
        .map(|case| Case {
            id: case["id"].as_str().unwrap().to_owned(),
            command: case["command"].as_str().unwrap().to_owned(),
            cwd: case["cwd"].as_str().map(str::to_owned),
            expect: case["expect"].as_str().unwrap().to_owned(),
        })
        .filter(|case| case.command.len() < 4_096)
        .collect();
    (policy, cases)
}

fn single_quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn escape_backquotes(text: &str) -> String {
    text.replace('\\', r"\\").replace('`', r"\`")
}

type Wrap = fn(&str) -> String;

/// Wrappers without effects of their own: the wrapped command decides.
const TRANSPARENT: &[(&str, Wrap)] = &[
    ("subshell", |t| format!("( {t}\n)")),
    ("nested subshell", |t| format!("( ( {t}\n) )")),
    ("group", |t| format!("{{ {t}\n}}")),
    ("if", |t| format!("if true; then\n{t}\nfi")),
    ("else", |t| format!("if false; then :; else\n{t}\nfi")),
    ("for", |t| format!("for i in 1; do\n{t}\ndone")),
    ("while", |t| format!("while true; do\n{t}\nbreak; done")),
    ("until", |t| format!("until false; do\n{t}\nbreak; done")),
    ("case", |t| format!("case x in (x)\n{t}\n;; esac")),
    ("function", |t| format!("wrapped() {{\n{t}\n}}; wrapped")),
    ("and", |t| format!("true && {{\n{t}\n}}")),
    ("or", |t| format!("false || {{\n{t}\n}}")),
    ("not", |t| format!("! {{\n{t}\n}}")),
    ("time", |t| format!("time {{\n{t}\n}}")),
    ("background", |t| format!("{{\n{t}\n}} &")),
    ("first of a pipe", |t| format!("{{\n{t}\n}} | cat")),
    ("last of a pipe", |t| format!("true | {{\n{t}\n}}")),
    ("substitution", |t| format!("echo \"$(\n{t}\n)\"")),
    ("backquotes", |t| format!("echo `{}\n`", escape_backquotes(t))),
    ("process substitution", |t| format!("cat <(\n{t}\n)")),
    ("assignment", |t| format!("x=$(\n{t}\n)")),
    ("test", |t| format!("[[ -n $(\n{t}\n) ]]")),
    ("sequence", |t| format!("ls; {t}")),
    ("before", |t| format!("{t}\nls")),
    ("sh -c", |t| format!("sh -c {}", single_quote(t))),
    ("bash -lc", |t| format!("bash -lc {}", single_quote(t))),
    ("env", |t| format!("env sh -c {}", single_quote(t))),
    ("env with a variable", |t| format!("env LC_ALL=C bash -c {}", single_quote(t))),
    ("nice", |t| format!("nice -n 5 sh -c {}", single_quote(t))),
    ("timeout", |t| format!("timeout -s KILL 5 bash -c {}", single_quote(t))),
    ("nohup", |t| format!("nohup setsid sh -c {} &", single_quote(t))),
    ("stdbuf", |t| format!("stdbuf -oL sh -c {}", single_quote(t))),
    ("ionice", |t| format!("ionice -c2 -n7 sh -c {}", single_quote(t))),
    ("find -exec", |t| format!("find . -maxdepth 0 -exec sh -c {} \\;", single_quote(t))),
    ("eval", |t| format!("eval {}", single_quote(t))),
    ("command eval", |t| format!("command eval {}", single_quote(t))),
    ("trap", |t| format!("trap {} EXIT", single_quote(t))),
    ("exec", |t| format!("exec sh -c {}", single_quote(t))),
    ("here-string", |t| format!("bash <<< {}", single_quote(t))),
    ("here-document", |t| format!("sh <<'WRAPPED'\n{t}\nWRAPPED")),
    ("busybox", |t| format!("busybox sh -c {}", single_quote(t))),
    ("variable", |t| format!("c={}; sh -c \"$c\"", single_quote(t))),
    ("elif", |t| format!("if false; then :; elif {{\n{t}\n}}; then :; fi")),
    ("condition", |t| format!("if {{\n{t}\n}}; then :; fi")),
    ("both streams piped", |t| format!("{{\n{t}\n}} |& cat")),
    ("redirected group", |t| format!("{{\n{t}\n}} > /dev/null 2>&1")),
    ("output substitution", |t| format!("echo x > >(\n{t}\n)")),
    ("default of a parameter", |t| format!("echo \"${{unset_one:-$(\n{t}\n)}}\"")),
    ("exported", |t| format!("export x=\"$(\n{t}\n)\"")),
    ("builtin eval", |t| format!("builtin eval {}", single_quote(t))),
    ("command sh", |t| format!("command sh -c {}", single_quote(t))),
    ("sh -ec with arguments", |t| format!("sh -ec {} name one", single_quote(t))),
    ("eval in a substitution", |t| format!("x=\"$(eval {})\"", single_quote(t))),
];

/// Wrappers that ask by themselves.
const OPAQUE: &[(&str, Wrap)] = &[
    ("pipe into sh", |t| format!("printf %s {} | sh", single_quote(t))),
    ("xargs", |t| format!("echo x | xargs sh -c {}", single_quote(t))),
    ("flock", |t| format!("flock /tmp/l -c {}", single_quote(t))),
    ("watch", |t| format!("watch -n1 {}", single_quote(t))),
    ("script", |t| format!("script -qc {} /dev/null", single_quote(t))),
    ("sudo", |t| format!("sudo sh -c {}", single_quote(t))),
    ("parallel", |t| format!("parallel sh -c {} ::: 1", single_quote(t))),
    ("unshare", |t| format!("unshare -r sh -c {}", single_quote(t))),
    ("variable split", |t| format!("c={}; $c", single_quote(t))),
    ("zsh", |t| format!("zsh -c {}", single_quote(t))),
];

/// Other spellings of the first word, if it is a plain one.
fn other_spellings(text: &str) -> Vec<String> {
    const KEYWORDS: &[&str] =
        &["if", "for", "while", "until", "case", "time", "function", "coproc", "select", "alias"];
    let end = text.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(text.len());
    let (word, rest) = text.split_at(end);
    let is_word = rest.is_empty() || rest.starts_with(' ');
    if word.len() < 2 || !is_word || KEYWORDS.contains(&word) {
        return Vec::new();
    }
    let (head, tail) = word.split_at(1);
    let hex: String = word.bytes().map(|b| format!("\\x{b:02x}")).collect();
    let octal: String = word.bytes().map(|b| format!("\\{b:03o}")).collect();
    [
        format!("\\{word}"),
        format!("'{word}'"),
        format!("\"{head}\"{tail}"),
        format!("{head}''{tail}"),
        format!("{head}\\{tail}"),
        format!("{head}\\\n{tail}"),
        format!("$'{hex}'"),
        format!("$'{octal}'"),
        format!("{{{word},}}"),
        format!("command {word}"),
    ]
    .into_iter()
    .map(|word| format!("{word}{rest}"))
    .collect()
}

fn decide_verdict(policy: &Policy, env: &DecisionEnv, case: &Case, text: String) -> Verdict {
    let proposal = Proposal { command: Command::Shell(text), cwd: case.cwd.clone() };
    policy.decide(&proposal, env).verdict
}

/// True if the text can be wrapped. A here-document only ends at its delimiter outside of quotes and
/// other here-documents, and a comment or an unfinished line swallows the rest; such texts are wrapped
/// only where their bytes stay unchanged.
fn is_plain(text: &str) -> bool {
    !text.contains("<<") && !text.contains("WRAPPED")
}

#[test]
fn no_wrapping_of_a_dangerous_command_is_allowed() {
    let (policy, cases) = load_corpus();
    let env = DecisionEnv::fixture();
    let all: Vec<&(&str, Wrap)> = TRANSPARENT.iter().chain(OPAQUE).collect();
    let mut generated = std::collections::HashSet::new();
    let mut wrong = Vec::new();
    let mut check = |case: &Case, how: String, text: String| {
        // A text that arises in two ways is used once.
        if !generated.insert((case.cwd.clone(), text.clone())) {
            return;
        }
        if decide_verdict(&policy, &env, case, text.clone()) == Verdict::Allow {
            wrong.push(format!("{} by {how}: {text:?}", case.id));
        }
    };
    for (n, case) in cases.iter().filter(|case| case.expect != "allow").enumerate() {
        let proposal = Proposal { command: Command::Shell(case.command.clone()), cwd: case.cwd.clone() };
        if policy.decide(&proposal, &env).reason_code == "syntax" {
            // Text that is not shell may become shell between other words.
            continue;
        }
        for (name, wrap) in &all {
            check(case, (*name).to_owned(), wrap(&case.command));
        }
        for text in other_spellings(&case.command) {
            check(case, "requoting".to_owned(), text);
        }
        if !is_plain(&case.command) {
            continue;
        }
        // Three levels deep, by text and by syntax.
        for i in (n % 7..all.len()).step_by(7) {
            let [(a, outer), (b, middle), (c, inner)] =
                [0, 1, 2].map(|depth| *all[(i + depth * 17 + n * 5) % all.len()]);
            check(case, format!("{a} of {b} of {c}"), outer(&middle(&inner(&case.command))));
        }
        // Pairs: a different selection for every command.
        for (i, (outer_name, outer)) in all.iter().enumerate().filter(|(i, _)| (i + n) % 2 == 0) {
            let inner_at = (i * 7 + n * 13) % all.len();
            let (inner_name, inner) = all[inner_at];
            check(case, format!("{outer_name} of {inner_name}"), outer(&inner(&case.command)));
            for text in other_spellings(&case.command).into_iter().skip(n % 5).step_by(5) {
                check(case, format!("{outer_name} of requoting"), outer(&text));
            }
        }
    }
    let generated = generated.len();
    println!("{generated} different texts");
    assert_eq!(wrong, Vec::<String>::new(), "{} of {generated}", wrong.len());
    assert!(generated >= 40_000, "only {generated} different texts were generated");
}

#[test]
fn no_wrapping_of_a_benign_command_is_denied() {
    let (policy, cases) = load_corpus();
    let env = DecisionEnv::fixture();
    let ash = DecisionEnv::fixture().with_shell(Shell::example(Dialect::Ash));
    let mut wrong = Vec::new();
    for case in cases.iter().filter(|case| case.expect == "allow" && is_plain(&case.command)) {
        for (name, wrap) in TRANSPARENT {
            // Inside a substitution, the parser rejects `case` arms without an opening parenthesis;
            // refusing is the safe side.
            let inside = matches!(
                *name,
                "substitution" | "assignment" | "test" | "default of a parameter" | "exported"
            );
            if inside && case.command.contains(" in C*)") {
                continue;
            }
            // busybox reads it as ash does.
            if *name == "busybox"
                && decide_verdict(&policy, &ash, case, case.command.clone()) == Verdict::Deny
            {
                continue;
            }
            let text = wrap(&case.command);
            if decide_verdict(&policy, &env, case, text.clone()) == Verdict::Deny {
                wrong.push(format!("{} by {name}: {text:?}", case.id));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new(), "{}", wrong.len());
}
