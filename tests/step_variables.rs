//! The variables of a step's `env`, under a policy: they choose no program and load no code that a rule was not
//! written for, in whichever way the step is started and from wherever they come.

use std::fmt::Write as _;

use crate::home::{Answer, Home};

const RULE: &str = "[[rule]]\nid = \"perl\"\neffect = \"allow\"\nprogram = \"perl\"\n\
    grant = { fs_write = [\"@workspace\"] }\n";

/// What decides which code runs, and what some program runs or loads.
const PROTECTED: [&str; 9] = [
    "PATH",
    "LD_PRELOAD",
    "LD_AUDIT",
    "LD_LIBRARY_PATH",
    "BASH_ENV",
    "ENV",
    "IFS",
    "SHELLOPTS",
    "GCONV_PATH",
];
const LOADED: [&str; 8] = [
    "GIT_EXTERNAL_DIFF",
    "GIT_SSH_COMMAND",
    "PYTHONSTARTUP",
    "PERL5OPT",
    "PERL5LIB",
    "NODE_OPTIONS",
    "RUBYOPT",
    "HOME",
];

const WORK: [&str; 4] = [
    "run: perl x.pl",
    "exec: [perl, x.pl]",
    "pipeline: exec perl x.pl",
    "pipeline: exec --shell 'perl x.pl'",
];

/// A workspace with a program that is not perl and is called so.
fn home(policy: &str) -> Home {
    let home = Home::new();
    home.write("p.toml", format!("version = 1\n{policy}\n{RULE}"))
        .write("x.pl", "print 'ran'")
        .write("bin/perl", "#!/bin/sh\necho evil >>owned\n");
    home
}

fn lacks_jail(answer: &Answer) -> bool {
    answer.stdout.contains("cannot enforce")
}

#[test]
fn what_a_step_sets_is_judged_wherever_it_comes_from() {
    let home = home("[sandbox.env]\nset = { PATH = \"/usr/bin:/bin\" }");
    let value = format!("{}:/usr/bin:/bin", home.dir().join("bin").display());
    let args = serde_json::json!({ "value": value }).to_string();
    for work in WORK {
        let mut steps = String::from("args: { value: { default: x } }\nsteps:\n");
        for (number, name) in PROTECTED.iter().enumerate() {
            for (way, given) in [("literal", value.as_str()), ("argument", "${value}")] {
                let _ = writeln!(
                    steps,
                    "  - {{ id: {way}{number}, env: {{ {name}: '{given}' }}, on_error: continue, {work} }}"
                );
            }
        }
        home.write("flow.lobster", &steps);
        let answer = home.tool(["--policy", "p.toml", "--args-json", &args, "flow.lobster"]);
        if lacks_jail(&answer) {
            return;
        }
        assert_eq!(home.read("owned"), "", "{work}: {answer:#?}");
        let audit = home.lobster(["audit", "--run", "@", "--json"]).run();
        for name in PROTECTED {
            let told = audit.stdout.matches(&format!("the step's env: {name} ")).count();
            assert!(told >= 2, "{work} {name}: {told}, {audit:#?}");
        }
        assert!(!audit.stdout.contains("\"verdict\": \"allow\""), "{work}: {audit:#?}");
    }
}

#[test]
fn the_env_of_the_file_and_of_a_loop_are_judged_as_well() {
    let home = home("[sandbox.env]\nset = { PATH = \"/usr/bin:/bin\" }");
    let bin = home.dir().join("bin").display().to_string();
    for work in WORK {
        for flow in [
            format!("env: {{ PATH: '{bin}' }}\nsteps:\n  - {{ id: a, {work} }}\n"),
            format!(
                "steps:\n  - {{ id: e, js: '[1]' }}\n  - id: l\n    for_each: $e.json\n    env: {{ PATH: '{bin}' }}\n    steps:\n      - {{ id: a, {work} }}\n"
            ),
        ] {
            home.write("flow.lobster", &flow);
            let answer = home.tool(["--policy", "p.toml", "flow.lobster"]);
            if lacks_jail(&answer) {
                return;
            }
            assert!(answer.error().contains("protected-variable"), "{flow}: {answer:#?}");
        }
    }
    assert_eq!(home.read("owned"), "");
}

#[test]
fn what_some_program_loads_is_asked_about_with_its_value() {
    let home = home("[sandbox.env]\nset = { PATH = \"/usr/bin:/bin\" }");
    for work in WORK {
        for name in LOADED {
            home.write(
                "flow.lobster",
                format!("steps:\n  - {{ id: a, env: {{ {name}: './evil it' }}, {work} }}\n"),
            );
            let answer = home.tool(["--policy", "p.toml", "flow.lobster"]);
            if lacks_jail(&answer) {
                return;
            }
            let envelope = answer.envelope();
            assert_eq!(envelope["status"], "needs_approval", "{name} {work}: {answer:#?}");
            let asked = envelope.to_string();
            assert!(asked.contains(&format!("the step's env: {name} decides")), "{asked}");
            assert!(asked.contains(&format!("\"{name}\":\"./evil it\"")), "{asked}");
        }
        // A name that no program is known to load is the author's.
        home.write("flow.lobster", format!("steps:\n  - {{ id: a, env: {{ REGION: eu }}, {work} }}\n"));
        let answer = home.tool(["--policy", "p.toml", "flow.lobster"]);
        assert!(answer.output().to_string().contains("ran"), "{work}: {answer:#?}");
    }
}

#[test]
fn the_path_of_the_caller_leads_to_no_other_program_than_the_one_that_was_judged() {
    let set = home("[sandbox.env]\nset = { PATH = \"/usr/bin:/bin\" }");
    let passed = home("[sandbox.env]\npass = [\"PATH\"]");
    for work in WORK {
        let flow = format!("steps:\n  - {{ id: a, {work} }}\n");
        for (home, dir, said) in [
            (&set, set.dir().join("bin"), "ran"),
            (&passed, passed.dir().join("bin"), "program-path"),
            // It leads elsewhere from each directory, so it reaches no step.
            (&passed, "bin".into(), "ran"),
            (&passed, "".into(), "ran"),
        ] {
            home.write("flow.lobster", &flow);
            let call = home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "flow.lobster"]);
            let answer = call.env("PATH", format!("{}:/usr/bin:/bin", dir.display())).run();
            if lacks_jail(&answer) {
                return;
            }
            assert!(answer.stdout.contains(said), "{work} {}: {answer:#?}", dir.display());
            assert_eq!(home.read("owned"), "", "{work} {}", dir.display());
        }
    }
}

#[test]
fn without_a_policy_nobody_is_asked() {
    let home = home("");
    let bin = home.dir().join("bin").display().to_string();
    for work in WORK {
        home.write(
            "flow.lobster",
            format!("steps:\n  - {{ id: a, env: {{ PATH: '{bin}:/bin', PERL5OPT: '' }}, {work} }}\n"),
        );
        let answer = home.tool(["flow.lobster"]);
        assert_eq!(answer.envelope()["status"], "ok", "{answer:#?}");
    }
    assert_eq!(home.read("owned"), "evil\n".repeat(WORK.len()));
}

/// Passes some variables, one by a pattern, and one more to a command that asks.
const PASSES: &str = "version = 1\n[sandbox]\nmode = \"degrade\"\nminimum = []\n\
    [sandbox.env]\npass = [\"PATH\", \"FOO\", \"PREFIX_*\", \"TERM\", \"LC_ALL\"]\n\
    [[rule]]\nid = \"s\"\neffect = \"ask\"\nprogram = \"printenv\"\ngrant = { env = [\"BAR\"] }\n";

#[test]
fn an_approval_covers_the_values_of_the_variables_that_a_policy_passes() {
    let home = Home::new();
    home.write("p.toml", PASSES)
        .write("f.lobster", "steps:\n  - { id: a, run: printenv FOO BAR PREFIX_A TERM }\n");
    let call = |words: &[&str], vars: &[(&str, &str)]| {
        let call = home.lobster(words).env("LOBSTER_POLICY", home.dir().join("p.toml"));
        vars.iter().fold(call, |call, (name, value)| call.env(name, value)).run()
    };
    let approve = |vars: &[(&str, &str)], later: &[(&str, &str)]| {
        let asked = call(&["run", "--mode", "tool", "f.lobster"], vars);
        assert!(!asked.stdout.contains("approved-value"), "{asked:?}");
        call(&["resume", "--token", &asked.token(), "--approve", "yes"], later)
    };
    let given = ["FOO", "BAR", "PREFIX_A"].map(|name| (name, "approved-value"));
    for (name, _) in given {
        let others: Vec<_> = given.into_iter().filter(|(other, _)| *other != name).collect();
        let swapped: Vec<_> = others.iter().copied().chain([(name, "another-value")]).collect();
        for (asked, later) in [(&given[..], &others), (&given[..], &swapped), (&others[..], &given.to_vec())]
        {
            let error = approve(asked, later).error();
            assert!(error.contains(&format!("the value of the variable {name}.")), "{name}: {error}");
            assert!(!error.contains("-value"), "{error}");
        }
    }
    // A person approves at another terminal; the command runs as in the process that asked.
    let at = |own: &[(&'static str, &'static str)]| [&given[..], own].concat();
    let elsewhere = at(&[("TERM", "dumb"), ("LC_ALL", "C"), ("LANG", "C"), ("PATH", "/bin")]);
    let done = approve(&at(&[("TERM", "xterm")]), &elsewhere);
    assert_eq!(done.output()[0], "approved-value\napproved-value\napproved-value\nxterm\n", "{done:?}");
}
