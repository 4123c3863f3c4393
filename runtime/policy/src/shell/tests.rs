use proptest::prelude::*;

use super::*;
use crate::{Decision, DecisionEnv, Dialect, HostPrograms, Policy, Proposal, Shell, Verdict};

fn decide(text: &str, dialect: Dialect) -> Decision {
    let policy = Policy::load("version = 1\n", "p").unwrap();
    policy.decide(&Proposal::shell(text), &DecisionEnv::fixture().with_shell(Shell::example(dialect)))
}

const SHELLS: [Dialect; 3] = [Dialect::Dash, Dialect::Ash, Dialect::Bash];

#[test]
fn ordinary_text_is_of_the_language() {
    for text in [
        "ls -l | grep x && echo \"a $b ${c} $(date +%s)\" || exit 1",
        "if [ -f a ]; then cat a; elif test -d b; then ls b; else echo none; fi",
        "for f in *.md a\\ b 'c d'; do wc -l \"$f\"; done",
        "while read -r line; do echo \"$line\"; done < list",
        "case \"$x\" in a|b) echo 1 ;; *) echo 2 ;; esac",
        "cat <<'EOF' | wc -l\n$(rm -rf /) `x` \\\nEOF\necho done",
        "cat <<EOF\na \\$c\nEOF",
        "cat <<-E\n\ta\n\tE\nls",
        "(cd src && ls) 2>/dev/null; { ls; } >/dev/null 2>&1",
        "y=`ls` true",
        "find . -name '*.rs' -exec grep -l {} \\; | xargs -I{} echo {}",
        "ls \\\n  -l &&\\\n  ls",
        "git log --format='%h %s' HEAD~3..HEAD # the last",
        "# only a comment\n\nls",
        "jq '.a[] | select(.b > 1)' x.json; git show 'stash@{0}' HEAD@{1}",
        "! grep -q x y; time ls; ls & wait",
        "until test -e done; do sleep 1; done",
        "set -eu; X=a.txt; cat \"$X\"",
    ] {
        let script = read_script(text, 64).unwrap();
        assert!(script.is_certain(), "{text}: {script:?}");
        for dialect in SHELLS {
            let decision = decide(text, dialect);
            assert!(decision.reasons.iter().all(|reason| reason.code != LANGUAGE), "{text}: {decision:?}");
        }
    }
}

/// Text beyond the language asks and names the construct, for every shell.
#[test]
fn text_beyond_the_language_asks() {
    for text in [
        "echo $'\\'; ls; echo ' #'",
        "echo $\"x\"",
        "[[ x || ls ]]",
        "command [[ x && wait",
        "\\[[ x ]]",
        "((ls))",
        "(( 3 > 2 )) && echo yes",
        "echo x &>/dev/null",
        "echo x &>>/dev/null",
        "echo a |& cat",
        "cat <<< x",
        "cat <(ls)",
        "function f { ls; }",
        "f() { ls; }; f",
        "ls 10>/dev/null",
        "a=(b c)",
        "a[1]=b",
        "a+=b",
        "echo $[1+1]",
        "echo $((1+1))",
        "case x in x) ls ;& y) ls ;; esac",
        "echo ${x/a/b}",
        "echo ${x^}",
        "echo ${x:-y}",
        "echo ${x%y}",
        "echo ${#x}",
        "echo ${x:1:2}",
        "echo ${!x}",
        "echo ${x@Q}",
        "select x in a; do ls; done",
        "coproc ls",
        "for ((;;)); do ls; done",
        "echo a{b,c}",
        "echo {1..3}",
        "echo ~+",
        "echo $10",
        "ls >&out",
        "echo `echo \\`ls\\``",
        "cat <<a\\b\nx\nab",
        "cat <<E\n$(date)\nE",
        "cat <<E\nx",
        "export a=$(ls)",
        "let x=1",
        "declare x=1",
        "source x",
        "read -a x",
        "printf -v x y",
        "echo '\\056env' | xargs cat",
        "sh -c '[[ a || ls ]]'",
        "busybox sh -c '[[ a || ls ]]'",
        "eval 'ls'",
        "trap 'ls' EXIT",
        "echo $(echo $'\\'; ls; echo ' #')",
        "l\\\ns",
        "l\"\\\n\"s",
        "time cd /",
        "echo $(<x)",
        "set -- a; ls",
        "readonly x=1",
    ] {
        for dialect in SHELLS {
            let decision = decide(text, dialect);
            assert_eq!(decision.verdict, Verdict::Ask, "{dialect:?} {text}: {decision:?}");
            assert!(decision.reasons.iter().any(|r| r.code == LANGUAGE), "{dialect:?} {text}: {decision:?}");
            let readonly = Policy::load("version = 1\nprofile = \"readonly\"\n", "p").unwrap();
            let env = DecisionEnv::fixture().with_shell(Shell::example(dialect));
            assert_eq!(readonly.decide(&Proposal::shell(text), &env).verdict, Verdict::Deny, "{text}");
        }
    }
}

/// Beyond the language, forbidden commands are still found, even without a policy.
#[test]
fn no_construct_hides_a_hard_block() {
    for text in [
        "echo x &>/dev/null; reboot",
        "echo x &>/dev/null reboot",
        "[[ x || reboot ]]",
        "((reboot))",
        "[[ x || y ]] && reboot",
        "[[ 1 -eq 'a[$(reboot)]' ]]",
        "echo $'\\'; rm -rf /; echo ' #'",
        "$'\\x72\\x6d' -rf /",
        "{rm,-rf,/}",
        "r{m,} -rf /",
        "f() { rm -rf \"$1\"; }; f /",
        "bomb() { bomb | bomb & }; bomb",
        "x=(rm -rf /); \"${x[@]}\"",
        "x=r; x+=m; $x -rf /",
        "rm -rf ${x:-/}",
        "rm -rf ${HOME:?}/",
        "${x:-rm} -rf /",
        "echo \"${x:-$(reboot)}\"",
        "echo $((1 + $(reboot)))",
        "cat <(reboot)",
        "eval 'reboot'",
        "trap reboot EXIT",
        "case x in x) ls ;;& y) reboot ;; esac",
        "for ((i=0; i<3; i++)); do reboot; done",
        "for i in 1 2; do reboot; ls ) done",
        "echo 'unfinished; ls\nreboot",
        "ls; reboot; echo \"unfinished",
        "chdir / && rm -rf usr",
        "rm -rf /$RANDOM",
        "sh -c '((reboot))'",
        "X=\"$UNSET\"rm; $X -rf /",
        "for d in src / ; do rm -rf $d; done",
        "x=ls; for i in 1 2; do $x -rf /; x=rm; done",
    ] {
        // Only dash and ash read these in this way.
        let dialects: &[Dialect] = match text {
            "echo $'\\'; rm -rf /; echo ' #'" | "[[ x || reboot ]]" | "echo x &>/dev/null reboot" => {
                &[Dialect::Dash, Dialect::Unknown]
            }
            _ => &[Dialect::Dash, Dialect::Bash, Dialect::Unknown],
        };
        for dialect in dialects {
            let env = DecisionEnv::fixture().with_shell(Shell::example(*dialect));
            let decision = Policy::builtin().decide(&Proposal::shell(text), &env);
            assert!(decision.reason_code.starts_with("hard:"), "{dialect:?} {text}: {decision:?}");
        }
    }
}

#[test]
fn deny_rules_and_secrets_are_found_beyond_the_language() {
    let policy = Policy::load(
        "version = 1\n[[rule]]\nid = \"no-docker\"\neffect = \"deny\"\nprogram = \"docker\"\n",
        "p",
    )
    .unwrap();
    for command in ["docker ps", "cat ~/.ssh/id_rsa", "echo x >.git/config"] {
        for shape in [
            "[[ -f x ]] && A",
            "f() { A; }; f",
            "for ((;;)); do A; done",
            "A; echo $((1+1))",
            "cat <(A)",
            "echo \"${x:-$(A)}\"",
            "case x in x) A ;;& esac",
            "coproc A",
            "A; echo @(a|b)",
        ] {
            let text = shape.replace('A', command);
            let decision = policy.decide(&Proposal::shell(text.clone()), &DecisionEnv::fixture());
            assert_eq!(decision.verdict, Verdict::Deny, "{text}: {decision:?}");
        }
    }
}

#[test]
fn a_variable_with_one_value_is_followed_and_another_value_asks() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/policy/example.toml");
    let policy = Policy::load(&std::fs::read_to_string(path).unwrap(), "example.toml").unwrap();
    for (texts, expected) in [
        (
            &[
                "X=docker; $X ps",
                "set -eu\nX=docker\nY=ps\n$X $Y",
                "X=a.txt; cat $X; X=b.txt; cat $X",
                "d=src; for f in a b; do ls \"$d\" \"$f\"; done",
                "d=src; if test -d \"$d\"; then ls \"$d\"; fi",
            ][..],
            true,
        ),
        (
            &[
                "A=cat; B=cat; for i in 1 2 3; do $A README.md; A=$B; B=./evil; done",
                "X=cat; for i in 1 2; do $X README.md; X=./evil; done",
                "X=cat; for i in 1 2; do X=./evil; continue; X=cat; done; $X README.md",
                "X=cat; false && X=./evil; $X README.md",
                "X=cat <nosuch; $X README.md",
                "X=cat; sh -c '$X ./evil'",
                "X=cat; unset X; $X README.md",
                "read -r X; $X README.md",
                "for i in 1 2; do git diff; cd sub; cd ..; done",
            ],
            false,
        ),
    ] {
        for (text, dialect) in texts.iter().flat_map(|text| SHELLS.map(|dialect| (text, dialect))) {
            let env = DecisionEnv::fixture().with_shell(Shell::example(dialect));
            let decision = policy.decide(&Proposal::shell(*text), &env);
            assert_eq!(decision.verdict == Verdict::Allow, expected, "{text}: {}", decision.message);
        }
    }
}

#[test]
fn deep_and_long_text_is_refused() {
    let policy = Policy::load("version = 1\n", "p").unwrap();
    let env = DecisionEnv::fixture();
    for text in [
        "(".repeat(400),
        "$(".repeat(3_000),
        "if true; then ".repeat(2_000),
        "${a:-".repeat(2_000),
        "a".repeat(70_000),
        format!("{}ls{}", "{ ".repeat(70), "; }".repeat(70)),
    ] {
        assert_eq!(policy.decide(&Proposal::shell(text), &env).verdict, Verdict::Deny);
    }
    for text in ["`".repeat(5_000), "! ".repeat(20_000), "\"$(".repeat(9_000), "$((".repeat(9_000)] {
        assert_ne!(policy.decide(&Proposal::shell(text), &env).verdict, Verdict::Allow);
    }
    for (open, close) in [("{ ", "; }"), ("if true; then ", "; fi"), ("( ", " )"), ("echo $(", ")")] {
        for (command, verdict) in [("ls", Verdict::Allow), ("reboot", Verdict::Deny)] {
            let text = format!("{}{command}{}", open.repeat(60), close.repeat(60));
            assert_eq!(policy.decide(&Proposal::shell(text), &env).verdict, verdict, "{open}");
        }
    }
}

#[test]
fn unshowable_characters_are_found() {
    for text in ["a\u{1b}[2K", "a\u{202e}b", "a\u{200b}", "a\rb", "a\0", "a\u{2028}b", "a\u{e0041}"] {
        assert!(find_unshowable(text).is_some(), "{text:?}");
    }
    for text in ["x\u{fe0f}.sh", "a\u{2800}b", "a\u{1bca0}", "sh x\u{fe00}"] {
        assert!(find_unshowable(text).is_some(), "{text:?}");
    }
    assert_eq!(find_unshowable("café 你好 😀 ☁\u{fe0f} 1\u{fe0f}\u{20e3} \t\n"), None);
    assert_eq!(decide("echo $'\\e[2K'", Dialect::Bash).reason_code, "unshowable");
}

#[test]
fn a_shell_is_known_by_its_file_in_a_trusted_directory() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("bash");
    std::fs::copy("/bin/sh", &copy).unwrap();
    let policy = Policy::load("version = 1\n", "p").unwrap();
    let find = |asked: &str| Shell::find(asked, &policy, &["/usr/bin".into()], &HostPrograms);
    assert_eq!(find(copy.to_str().unwrap()).dialect, Dialect::Unknown);
    assert_eq!(find("/nonexistent/bash").dialect, Dialect::Unknown);
    assert_eq!(find("/usr/bin/env").dialect, Dialect::Unknown);
    let shell = find("/bin/sh");
    assert_eq!(shell.dialect, Dialect::of_file(&shell.program));
    let env = DecisionEnv::fixture().with_shell(find("/usr/bin/env"));
    let decision = policy.decide(&Proposal::shell("ls"), &env);
    assert_eq!((decision.verdict, decision.reason_code.as_str()), (Verdict::Deny, "shell"));
    assert_eq!(Policy::builtin().decide(&Proposal::shell("ls"), &env).verdict, Verdict::Allow);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_500))]

    #[test]
    fn any_text_gets_the_same_answer_twice(
        words in proptest::collection::vec(
            prop_oneof![
                prop::sample::select(vec![
                    "$(", ")", "((", "))", "`", "\"", "'", "\\", "${x:-", "}", "{a,b", "<<E\n", "\nE\n", "|", "&",
                    ";", ">", "rm -rf /", "x=1", "$x", "~9", "{1..99999999999999999999}", "$'\\x", "for i in", "do",
                    "done", "a[$", "xargs -I{}", "env -S", "find . -exec", "sed -e s/a", "awk '{", "git -c a=",
                ]).prop_map(str::to_owned),
                "[a-z /.*?=-]{0,6}",
                "\\PC{0,3}",
            ],
            0..14,
        ),
        glue in prop_oneof![Just(" "), Just("")],
    ) {
        let text = words.join(glue);
        let policy = Policy::load("version = 1\n", "p").unwrap();
        let env = DecisionEnv::fixture();
        let first = policy.decide(&Proposal::shell(text.clone()), &env);
        prop_assert_eq!(&first, &policy.decide(&Proposal::shell(text.clone()), &env));
        let open = Policy::builtin().decide(&Proposal::shell(text), &env);
        prop_assert!(open.verdict != Verdict::Ask);
    }
}
