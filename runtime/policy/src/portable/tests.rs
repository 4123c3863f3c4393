use super::*;
use crate::{Decision, DecisionEnv, Dialect, Policy, Proposal, Shell, Verdict};

fn decide(text: &str, dialect: Dialect) -> Decision {
    let policy = Policy::load("version = 1\n", "p").unwrap();
    policy.decide(&Proposal::shell(text), &DecisionEnv::fixture().with_shell(Shell::example(dialect)))
}

#[test]
fn ordinary_text_is_read_alike() {
    for text in [
        "ls -l | grep x && echo \"a $b ${c:-d} $(date +%s)\" || exit 1",
        "if [ -f a ]; then cat a; elif test -d b; then ls b; else echo none; fi",
        "for f in *.md a\\ b 'c d'; do wc -l \"$f\"; done",
        "while read -r line; do echo \"$line\"; done < list",
        "case \"$x\" in a|b) echo 1 ;; *) echo 2 ;; esac",
        "f() { echo \"$1\"; }; f a",
        "cat <<'EOF' | wc -l\n$(rm -rf /) `x` \\\nEOF\necho done",
        "cat <<EOF\na $(date) ${b} \\$c\nEOF",
        "cat <<-E\n\ta\n\tE\nls",
        "(cd src && ls) 2>/dev/null; { ls; } >/dev/null 2>&1",
        "x=$((1 + (2 * 3))) y=`ls` true",
        "find . -name '*.rs' -exec grep -l {} \\; | xargs -I{} echo {}",
        "ls \\\n  -l &&\\\n  ls",
        "git log --format='%h %s' HEAD~3..HEAD # the last",
        "# only a comment\n\nls",
        "jq '.a[] | select(.b > 1)' x.json; git show 'stash@{0}' HEAD@{1}",
        "! grep -q x y; time ls; ls & wait",
        "until test -e done; do sleep 1; done",
    ] {
        let reading = read(text, Flavour::Dash);
        assert!(reading.is_portable(), "{text}: {reading:?}");
        for dialect in [Dialect::Dash, Dialect::Ash, Dialect::Bash] {
            let decision = decide(text, dialect);
            assert!(decision.reasons.iter().all(|reason| reason.code != "dialect"), "{text}: {decision:?}");
        }
    }
}

#[test]
fn what_shells_read_differently_is_refused_under_dash_and_ash() {
    for text in [
        "echo $'\\'; p1; echo ' #'",
        "echo $\"x\"",
        "[[ x || p1 ]]",
        "((p1))",
        "echo x &>/dev/null p1",
        "echo x &>>/dev/null p1",
        "echo a |& cat",
        "cat <<< x",
        "cat <(ls)",
        "function f { ls; }",
        "ls {fd}>/dev/null",
        "ls 10>/dev/null",
        "a=(b c)",
        "a[1]=b",
        "a+=b",
        "echo $[1+1]",
        "case x in x) ls ;& y) ls ;; esac",
        "echo ${x/a/b}",
        "echo ${x^}",
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
        "echo \"${x:-'a'}\"",
        "cat <<a\\b\nx\nab",
        "cat <<$(echo)\na\n$(echo)\n./evil",
        "cat <<E\nx",
        "export a=$(ls)",
        "let x=1",
        "declare x=1",
        "source x",
        "read -a x",
        "printf -v x y",
        "echo '\\056env' | xargs cat",
        "sh -c '[[ a || p1 ]]'",
        "busybox sh -c '[[ a || p1 ]]'",
        "eval '[[ a || p1 ]]'",
        "trap '((p1))' EXIT",
        "echo $(echo $'\\'; p1; echo ' #')",
        "l\\\ns",
        "time cd /",
        "echo $(<x)",
    ] {
        for dialect in [Dialect::Dash, Dialect::Ash] {
            let decision = decide(text, dialect);
            assert_eq!(decision.verdict, Verdict::Deny, "{dialect:?} {text}: {decision:?}");
            let told = decision.reasons.iter().any(|r| matches!(r.code.as_str(), "dialect" | "syntax"));
            assert!(told, "{dialect:?} {text}: {decision:?}");
        }
    }
}

#[test]
fn bash_text_is_refused_where_another_shell_would_start_something() {
    for text in [
        "[[ x || touch ]]",
        "[[ a > out ]]",
        "[[ ! x || (evil) ]]",
        "((reboot))",
        "((id))",
        "echo $'\\'; touch x; echo ' #'",
        "echo x &>/dev/null ./evil",
        "cat README.md &>>/dev/null ./evil",
        "x[1]=./evil",
        "[[ $'\\'' || ./evil ]]",
    ] {
        let decision = decide(text, Dialect::Bash);
        assert_eq!(decision.verdict, Verdict::Deny, "{text}: {decision:?}");
    }
    for text in [
        "echo a{1,2,3}",
        "[[ -d src && ! -e gone ]] && echo ok",
        "(( 3 > 2 )) && echo yes",
        "((i = 3 * (2 + 1))) && echo ok",
        "cat <<< 'a; rm -rf /'",
        "diff <(sort a) <(sort b)",
        "echo ${!prefix*}",
        "echo \"${x//a/b}\" ${y:1:2} $'a\\tb'",
        "ls &>/dev/null",
    ] {
        let decision = decide(text, Dialect::Bash);
        assert_eq!(decision.verdict, Verdict::Allow, "{text}: {decision:?}");
    }
}

#[test]
fn hard_blocks_of_the_open_mode_are_those_of_the_shell_that_runs() {
    for text in [
        "echo x &>/dev/null reboot",
        "((reboot))",
        "[[ x || reboot ]]",
        "echo $'\\'; rm -rf /; echo ' #'",
        "chdir / && rm -rf usr",
        "rm -rf /$RANDOM",
        "sh -c '((reboot))'",
    ] {
        for dialect in [Dialect::Dash, Dialect::Unknown] {
            let env = DecisionEnv::fixture().with_shell(Shell::example(dialect));
            let decision = Policy::builtin().decide(&Proposal::shell(text), &env);
            assert!(decision.reason_code.starts_with("hard:"), "{dialect:?} {text}: {decision:?}");
        }
    }
}

#[test]
fn a_shell_is_known_by_its_file_in_a_trusted_directory() {
    use crate::HostPrograms;
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
