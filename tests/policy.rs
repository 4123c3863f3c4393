//! Policies as operators use them: layers, trust, terms of approval.

use std::io::{Read, Write};

use serde_json::Value;

use crate::home::{Answer, Home};

/// Runs without a sandbox that a build machine may not have.
const DEGRADED: &str = "[sandbox]\nmode = \"degrade\"\nminimum = []\n";

pub(crate) fn allows_printenv(home: &Home, name: &str) {
    home.write(
        name,
        format!(
            "version = 1\n{DEGRADED}[[rule]]\nid = \"t\"\neffect = \"allow\"\nprogram = \"printenv\"\n\
             grant = {{ env = [\"HERE\"] }}\n\
             [[rule]]\nid = \"no\"\neffect = \"deny\"\nprogram = \"id\"\n"
        ),
    );
}

pub(crate) fn project() -> Home {
    let home = Home::new();
    allows_printenv(&home, "app/lobster.policy.toml");
    home.write("app/flows/a.lobster", "steps:\n  - { id: a, exec: [printenv, HERE] }\n")
        .write("app/flows/b.lobster", "steps:\n  - { id: a, exec: [id] }\n");
    home
}

fn run(home: &Home, file: &str) -> Answer {
    home.lobster(["run", "--mode", "tool", file]).env("HERE", "here").run()
}

fn trust(home: &Home) -> Answer {
    home.lobster(["policy", "trust", "app/lobster.policy.toml", "--yes"]).run()
}

#[test]
fn a_project_policy_counts_once_a_person_trusts_its_bytes() {
    let home = project();
    let untrusted = run(&home, "app/flows/a.lobster");
    assert_eq!(untrusted.envelope()["status"], "needs_approval", "{untrusted:?}");
    assert!(untrusted.stderr.contains("is not trusted"), "{untrusted:?}");
    assert!(!untrusted.stdout.contains("trusted"), "{untrusted:?}");
    // What it forbids holds all the same.
    assert!(run(&home, "app/flows/b.lobster").error().contains("policy denied"));
    // The envelope has no fields for a denial's code, reason and hint; its message names them.
    home.write("hard.lobster", "steps:\n  - { id: a, run: 'mkfs.ext4 /dev/sdz' }\n");
    let message = run(&home, "hard.lobster").error();
    assert!(message.contains("[policy_denied, hard:"), "{message}");

    let refused = home.lobster(["policy", "trust", "app/lobster.policy.toml"]).run();
    assert!(refused.code() != 0 && refused.stderr.contains("not a terminal"), "{refused:?}");
    let inside = home
        .lobster(["policy", "trust", "app/lobster.policy.toml", "--yes"])
        .env("LOBSTER_RUN_ID", "x")
        .run();
    assert!(inside.code() != 0 && inside.stderr.contains("cannot trust"), "{inside:?}");
    assert_eq!(trust(&home).code(), 0);
    let trusted = run(&home, "app/flows/a.lobster");
    assert_eq!(trusted.output()[0], "here\n", "{trusted:?}");
    assert_eq!(trusted.stderr, "");
    assert!(home.lobster(["policy", "trust", "--list"]).run().stdout.contains("trusted"));

    let more = home.read("app/lobster.policy.toml") + "# one more line\n";
    home.write("app/lobster.policy.toml", more);
    let changed = run(&home, "app/flows/a.lobster");
    assert!(changed.stderr.contains("has changed since it was trusted"), "{changed:?}");
    assert_eq!(changed.envelope()["status"], "needs_approval");
    assert!(home.lobster(["policy", "trust", "--list"]).run().stdout.contains("changed"));

    assert_eq!(trust(&home).code(), 0);
    assert_eq!(home.lobster(["policy", "untrust", "app/lobster.policy.toml"]).run().code(), 0);
    assert!(run(&home, "app/flows/a.lobster").stderr.contains("is not trusted"));
    let off = home
        .lobster(["run", "--mode", "tool", "app/flows/a.lobster"])
        .env("HERE", "here")
        .env("LOBSTER_PROJECT_POLICY", "off")
        .run();
    assert_eq!(off.output()[0], "here\n");
}

#[test]
fn a_step_cannot_trust_a_policy() {
    let home = project();
    for text in [
        "lobster policy trust --yes",
        "env -u LOBSTER_RUN_ID lobster policy trust --yes",
        "sh -c 'lobster policy untrust'",
    ] {
        home.write("x.lobster", format!("steps:\n  - {{ id: a, run: {text:?} }}\n"));
        assert!(home.tool(["x.lobster"]).error().contains("a step may not change the policy"), "{text}");
    }
}

#[test]
fn going_on_finds_the_policy_of_the_project_again() {
    let home = project();
    let asked = run(&home, "app/flows/a.lobster");
    let resumed =
        home.lobster(["resume", "--token", &asked.token(), "--approve", "yes"]).env("HERE", "here").run();
    assert!(resumed.stderr.contains("is not trusted"), "{resumed:?}");
    // It ran: `printenv` was granted nothing by a file that may only forbid.
    assert!(resumed.error().contains("workflow command failed (1)"), "{resumed:?}");
    let asked = run(&home, "app/flows/a.lobster");
    assert_eq!(trust(&home).code(), 0);
    // Allowed by now, so nobody need be asked.
    let allowed =
        home.lobster(["resume", "--token", &asked.token(), "--approve", "yes"]).env("HERE", "here").run();
    assert_eq!(allowed.output()[0], "here\n", "{allowed:?}");
}

#[test]
fn an_organisation_sets_the_ceiling() {
    let home = project();
    assert_eq!(trust(&home).code(), 0);
    home.write("org.toml", format!("version = 1\nprofile = \"readonly\"\n{DEGRADED}"));
    let answer = home
        .lobster(["run", "--mode", "tool", "app/flows/a.lobster"])
        .env("LOBSTER_ORG_POLICY", home.dir().join("org.toml"))
        .run();
    // The project's allow rule is a question under it, and its profile asks nobody.
    assert!(answer.error().contains("policy denied"), "{answer:?}");
}

#[test]
fn terms_of_an_approval_are_kept() {
    let home = Home::new();
    home.write(
        "p.toml",
        format!(
            "version = 1\n{DEGRADED}[[rule]]\nid = \"w\"\neffect = \"ask\"\nprogram = \"printenv\"\n\
             ask = {{ approvers = [\"ann\", \"bob\"], ttl = \"10m\", remember = \"run\" }}\n"
        ),
    );
    home.write(
        "w.lobster",
        "steps:\n  - { id: a, exec: [printenv, HOME] }\n  - { id: b, exec: [printenv, HOME] }\n",
    );
    let asked = home.tool(["--policy", "p.toml", "w.lobster"]);
    let token = asked.token();
    let gates = home.lobster(["approvals", "--json"]).run();
    let gates: Value = serde_json::from_str(&gates.stdout).unwrap();
    assert!(!gates[0]["expiresAt"].is_null(), "{gates}");
    let answer = |by: Option<&str>| {
        let call = home
            .lobster(["resume", "--token", &token, "--approve", "yes"])
            .env("LOBSTER_POLICY", home.dir().join("p.toml"));
        match by {
            Some(by) => call.env("LOBSTER_APPROVAL_APPROVED_BY", by),
            None => call,
        }
        .run()
    };
    assert!(answer(None).error().contains("requires approver identity"));
    assert!(answer(Some("eve")).error().contains("requires approver 'ann' or 'bob'"));
    // One approval is good for the same command in the rest of the run.
    let done = answer(Some("bob"));
    assert_eq!(done.envelope()["status"], "ok", "{done:?}");
}

#[test]
fn an_approval_proposes_a_rule_and_widens_nothing() {
    let home = Home::new();
    home.write(
        "p.toml",
        format!(
            "version = 1\n{DEGRADED}[[rule]]\nid = \"w\"\neffect = \"ask\"\nprogram = \"printenv\"\n\
             ask = {{ remember = \"policy\" }}\n"
        ),
    );
    let flow = "steps:\n  - { id: a, exec: [printenv, HOME] }\n  - { id: b, exec: [printenv, HOME] }\n";
    home.write("w.lobster", flow);
    let call = |words: &[&str]| home.lobster(words).env("LOBSTER_POLICY", home.dir().join("p.toml")).run();
    let asked = call(&["run", "--mode", "tool", "w.lobster"]);
    assert!(call(&["policy", "suggest", "--approved"]).stdout.is_empty(), "nobody has approved anything");
    let done = call(&["resume", "--token", &asked.token(), "--approve", "yes"]);
    assert_eq!(done.envelope()["status"], "ok", "{done:?}");
    let proposed = call(&["policy", "suggest", "--approved"]).stdout;
    let exact = "effect = \"allow\"\nargv = [\"printenv\", \"HOME\"]\n";
    assert!(proposed.contains(exact) && proposed.matches("[[rule]]").count() == 1, "{proposed}");
    let noted = call(&["audit", "--kind", "note"]).stdout;
    assert_eq!(noted.matches("the approval proposes a rule for the policy").count(), 1, "{noted}");
    // The next run is asked again; with the rule in the place of the question it is not.
    call(&["run", "--mode", "tool", "w.lobster"]).token();
    home.write("p.toml", format!("version = 1\n{DEGRADED}{proposed}"));
    let allowed = call(&["run", "--mode", "tool", "w.lobster"]);
    assert_eq!(allowed.envelope()["status"], "ok", "{allowed:?}");
}

/// A module that prints its environment.
const PRINTS_ENVIRONMENT: &str = r#"(module
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $sizes (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_get" (func $environ (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 2)
  (func (export "_start")
    (drop (call $sizes (i32.const 0) (i32.const 4)))
    (drop (call $environ (i32.const 1024) (i32.const 8192)))
    (i32.store (i32.const 8) (i32.const 8192))
    (i32.store (i32.const 12) (i32.load (i32.const 4)))
    (drop (call $write (i32.const 1) (i32.const 8) (i32.const 1) (i32.const 16)))))"#;

#[test]
fn a_policy_decides_about_the_grants_of_components() {
    let home = Home::new();
    home.write("env.wasm", wat::parse_str(PRINTS_ENVIRONMENT).unwrap())
        .write("data/.env", "x")
        .write("inbox/x", "");
    let run = |policy: &str, fields: &str| {
        home.write("p.toml", format!("version = 1\n{policy}"));
        home.write("c.lobster", format!("steps:\n  - {{ id: a, component: env.wasm, {fields} }}\n"));
        home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "c.lobster"])
            .env("HERE", "here")
            .env("TZ", "UTC")
            .run()
    };
    let plain = "[sandbox.env]\npass = [\"HERE\"]\n";
    assert_eq!(run(plain, "grants: { env: [HERE] }").output()[0], "HERE=here\0");
    for (policy, fields, message) in [
        (
            plain,
            "grants: { env: [LANG] }",
            "policy denied the component's grants: components may not be granted the variable LANG",
        ),
        (plain, "grants: { net: ['a.example:443'] }", "may not be granted the host a.example:443"),
        (plain, "grants: { read: [inbox] }", ""),
        (plain, "grants: { read: [/var/lib] }", "may not be granted read of /var/lib"),
        (plain, "grants: { write: [/etc] }", "may not be granted write of /etc"),
        ("[sandbox.fs]\ndeny = [\"**/.env\"]\n", "grants: { read: [data] }", "which the policy denies"),
        ("profile = \"readonly\"\n", "grants: { write: [data] }", "neither writes nor network"),
        ("profile = \"locked\"\n", "grants: { random: true }", "locked.components"),
        ("[components]\nclock = false\n", "grants: { clock: true }", "set components.clock = true"),
    ] {
        let answer = run(policy, fields);
        match message {
            "" => drop(answer.output()),
            message => assert!(answer.error().contains(message), "{fields}: {answer:?}"),
        }
    }
    // Nothing granted, nothing to decide.
    run("profile = \"locked\"\n", "timeout_ms: 30000").output();
    let asked = run("[components]\nask = [\"random\"]\n", "grants: { random: true }");
    assert_eq!(asked.envelope()["status"], "needs_approval");
    let resumed = home
        .lobster(["resume", "--token", &asked.token(), "--approve", "yes"])
        .env("LOBSTER_POLICY", home.dir().join("p.toml"))
        .run();
    resumed.output();
    let told = home.lobster(["audit", "--kind", "decision", "--jsonl"]).run();
    let entries: Vec<Value> = told.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |verdict: &str| entries.iter().filter(|entry| entry["verdict"] == verdict).count();
    // The approved one stands twice: when it was asked about, and with its start.
    assert_eq!((count("allow"), count("deny"), count("ask")), (2, 8, 2), "{told:?}");
    // A replay decides nothing, and a refusal is part of the record.
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    for run in runs.as_array().unwrap() {
        let replay = home.lobster(["replay", run["id"].as_str().unwrap()]).run();
        assert_eq!(replay.code(), 0, "{replay:?}");
    }
}

#[test]
fn a_component_gets_what_its_description_asks_for() {
    let home = Home::new();
    let dist = crate::binary::repository().join("guest-steps/dist");
    home.write("csv.wasm", std::fs::read(dist.join("csv.wasm")).unwrap()).write("inbox/x", "");
    home.write(
        "flow.lobster",
        "steps:\n  - { id: a, component: csv.wasm, stdin: 'a,b', grants: { read: [inbox], net: ['x:1'] } }\n",
    );
    // The csv step asks for nothing, so it gets nothing, and is pure again.
    home.tool(["flow.lobster"]).output();
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let shown = home.lobster(["show", runs[0]["id"].as_str().unwrap(), "--full"]).run();
    for refused in ["read inbox: the component's description does not ask for it", "net x:1: the"] {
        assert!(shown.stdout.contains(refused), "{shown:?}");
    }
    assert!(shown.stdout.contains("wasm (pure)"), "{shown:?}");
}

#[test]
fn the_lowest_limit_wins() {
    let home = Home::new();
    let spin = "(module (memory (export \"memory\") 1) (func (export \"_start\") (loop $again (br $again))))";
    home.write("spin.wasm", wat::parse_str(spin).unwrap());
    home.write("p.toml", "version = 1\n[components.limits]\nfuel = 1234567\n");
    for (own, figure, whose) in
        [("9_000_000", "1234567", "the policy sets this"), ("2000", "2000", "the step sets this")]
    {
        home.write(
            "flow.lobster",
            format!("steps:\n  - {{ id: a, component: spin.wasm, limits: {{ fuel: {own} }} }}\n"),
        );
        let message = home.tool(["--policy", "p.toml", "flow.lobster"]).error();
        assert!(message.contains(&format!("fuel ({figure}); {whose}")), "{message}");
        // Without the policy it ends in the same words.
        let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
        let replayed = home.lobster(["replay", runs[0]["id"].as_str().unwrap()]).run();
        assert_eq!(replayed.code(), 0, "{replayed:?}");
    }
}

#[test]
fn a_command_that_the_sandbox_blocked_is_told_which_grant_it_lacks() {
    let home = Home::new();
    home.write(
        "p.toml",
        "version = 1\n[sandbox.fs]\nread = [\"@workspace\", \"@system-ro\"]\nwrite = [\"@tmp\"]\n\
         [[rule]]\nid = \"t\"\neffect = \"allow\"\nprogram = \"make\"\n",
    )
    .write("Makefile", "all:\n\t@/usr/bin/touch built\n")
    .write("step.lobster", "steps:\n  - { id: a, exec: [make] }\n")
    .write("pipe.lobster", "steps:\n  - { id: a, pipeline: exec make }\n");
    for file in ["step.lobster", "pipe.lobster"] {
        let failed = home.lobster(["run", "--mode", "tool", "--policy", "p.toml", file]).run();
        let message = failed.error();
        if message.contains("cannot enforce") || message.contains("not found") {
            return println!("no jail, or no make, here: {message}");
        }
        let work = home.dir().canonicalize().unwrap();
        let hint = format!(
            "\nsandbox_blocked: it may not write {0}/built; missing grant: fs_write = [\"{0}\"]",
            work.display()
        );
        assert!(message.contains(&hint), "{failed:?}");
    }
}

#[test]
fn a_policy_suggested_from_a_run_lets_the_run_happen_again() {
    let home = Home::new();
    home.write("flow.lobster", "steps:\n  - { id: a, run: 'mkdir -p out && touch out/a made; ls' }\n");
    home.tool(["flow.lobster"]).output();
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let run = runs[0]["id"].as_str().unwrap();
    let suggested = home.lobster(["policy", "suggest", "--from", run]).run();
    assert!(suggested.stdout.contains("argv = [\"touch\", \"out/a\", \"made\"]"), "{suggested:?}");
    assert!(suggested.stdout.contains("grant = { fs_write = ["), "{suggested:?}");
    assert!(!suggested.stdout.contains("\"ls\""), "what only reads needs no rule: {suggested:?}");
    home.write("p.toml", &suggested.stdout);
    let checked = home.lobster(["policy", "check", "p.toml", "--against", run]).run();
    assert!(checked.code() == 0 && !checked.stdout.contains("deny:"), "{checked:?}");
    std::fs::remove_dir_all(home.dir().join("out")).unwrap();
    std::fs::remove_file(home.dir().join("made")).unwrap();
    let again = home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "flow.lobster"]).run();
    if again.stdout.contains("cannot enforce") {
        return println!("no jail here: {again:?}");
    }
    again.output();
    assert!(home.dir().join("made").exists() && home.dir().join("out/a").exists());
}

/// A server on the host's loopback interface that greets everybody; gives its port.
fn greeter() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        while let Ok((mut client, _)) = listener.accept() {
            let _ = client.read(&mut [0; 4096]);
            let _ =
                client.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n");
        }
    });
    port
}

/// What a proposal cannot cover is said, and is exactly what is asked about then.
#[test]
fn a_suggestion_says_what_it_does_not_cover() {
    let home = Home::new();
    home.write("s.sh", "echo script\n");
    home.write(
        "f.lobster",
        "steps: [{id: a, run: \"sh \\\"$LOBSTER_WORKFLOW_DIR/s.sh\\\"\"}, {id: b, run: touch made}, {id: c, run: cat s.sh}]\n",
    );
    let run = home.tool(["f.lobster"]);
    assert_eq!(run.code(), 0, "{run:?}");
    let id = home.lobster(["runs"]).run().stdout.lines().nth(1).unwrap()[..8].to_owned();
    let suggested = home.lobster(["policy", "suggest", "--from", &id]).run();
    assert!(suggested.stderr.contains("still asks: ") && suggested.stderr.contains("s.sh"), "{suggested:?}");
    assert_eq!(suggested.stderr.lines().count(), 1, "{suggested:?}");
    assert!(suggested.stdout.contains("argv = [\"touch\", \"made\"]"), "{suggested:?}");
    assert!(!suggested.stdout.contains('‹') && !suggested.stdout.contains("[\"sh\""), "{suggested:?}");
    home.write("p.toml", &suggested.stdout);
    let asked = home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "f.lobster"]).run();
    assert!(asked.stdout.contains("s.sh"), "{asked:?}");
    let done = home.lobster(["resume", "--token", &asked.token(), "--approve", "yes"]).run();
    assert_eq!(done.envelope()["status"], "ok", "{done:?}");
}

#[test]
fn hosts_that_a_step_reached_are_recorded_and_suggested() {
    let home = Home::new();
    let port = greeter();
    let policy = |hosts: &str| {
        format!(
            "version = 1\n[[rule]]\nid = \"t\"\neffect = \"allow\"\nprogram = \"make\"\n\
             grant = {{ net = {{ hosts = [{hosts}] }} }}\n"
        )
    };
    home.write("p.toml", policy(&format!("\"127.0.0.1:{port}\", \"unused.example:443\"")))
        .write(
            "Makefile",
            format!(
                "all:\n\t@/usr/bin/python3 -c 'import urllib.request as u; \
                 print(u.urlopen(\"http://127.0.0.1:{port}/\").read().decode())'\n"
            ),
        )
        .write("flow.lobster", "steps:\n  - { id: a, exec: [make, all] }\n");
    let ran = home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "flow.lobster"]).run();
    if ["cannot enforce", "not found"].iter().any(|lack| ran.stdout.contains(lack)) {
        return println!("no jail, or no make, here: {ran:?}");
    }
    assert_eq!(ran.output()[0], "hello\n\n", "{ran:?}");
    let runs: Value = serde_json::from_str(&home.lobster(["runs", "--json"]).run().stdout).unwrap();
    let run = runs[0]["id"].as_str().unwrap();
    let shown = home.lobster(["show", run, "--full"]).run().stdout;
    assert!(shown.contains(&format!("\"reached\":[\"127.0.0.1:{port}\"]")), "{shown}");
    let suggested = home.lobster(["policy", "suggest", "--from", run]).run().stdout;
    assert!(suggested.contains(&format!("net = {{ hosts = [\"127.0.0.1:{port}\"] }}")), "{suggested}");
    assert!(!suggested.contains("unused.example"), "{suggested}");
    let against = |policy: &str| home.lobster(["policy", "check", policy, "--against", run]).run().stdout;
    let difference = against("p.toml");
    assert!(difference.contains("unused: host unused.example:443"), "{difference}");
    assert!(!difference.contains(&format!("unused: host 127.0.0.1:{port}")), "{difference}");
    home.write("less.toml", policy(""));
    let difference = against("less.toml");
    assert!(difference.contains(&format!("it reaches 127.0.0.1:{port}")), "{difference}");
}

fn under_shell(home: &Home, shell: &str, text: &str) -> Answer {
    home.write("p.toml", format!("version = 1\n{DEGRADED}[sandbox.env]\npass = [\"BASH_ENV\", \"ENV\"]\n"));
    home.write("sh.lobster", format!("steps:\n  - {{ id: a, run: {text:?} }}\n"));
    home.write("loaded.sh", "echo loaded\n");
    home.lobster(["run", "--mode", "tool", "--policy", "p.toml", "sh.lobster"])
        .env("LOBSTER_SHELL", shell)
        .env("BASH_ENV", home.dir().join("loaded.sh"))
        .env("ENV", home.dir().join("loaded.sh"))
        .run()
}

#[test]
fn text_beyond_the_common_language_asks_whatever_shell_runs_it() {
    let home = Home::new();
    for shell in ["/bin/bash", "/bin/dash", "dash"] {
        if !std::path::Path::new("/bin/dash").exists() && shell.ends_with("dash") {
            eprintln!("skipped: dash is not installed");
            continue;
        }
        for text in ["[[ -n x ]] && echo ok", "[[ x || ./evil ]]", "echo $((1 + 1))"] {
            let asked = under_shell(&home, shell, text);
            assert!(asked.stdout.contains("needs_approval"), "{shell} {text}: {asked:?}");
            assert!(asked.stdout.contains("beyond the shell language"), "{shell} {text}: {asked:?}");
        }
        let name = shell.rsplit('/').next().unwrap();
        let told = under_shell(&home, shell, "echo \"$0\" | sed 's/.*\\///'");
        assert_eq!(told.output()[0], format!("{name}\n"));
    }
}

#[test]
fn a_shell_that_no_policy_reads_starts_nothing() {
    let home = Home::new();
    std::fs::copy("/bin/sh", home.dir().join("bash")).unwrap();
    let own = home.dir().join("bash").display().to_string();
    for shell in ["/usr/bin/env", "/nonexistent/zsh", "fish", &own] {
        let answer = under_shell(&home, shell, "echo ran");
        let message = answer.error();
        assert!(message.contains("[policy_denied, shell]"), "{shell}: {message}");
        assert!(message.contains("LOBSTER_SHELL=/bin/bash"), "{shell}: {message}");
        assert!(!answer.stdout.contains("ran\n") && answer.code() != 0, "{shell}: {answer:?}");
    }
}

#[test]
fn an_explanation_names_what_is_beyond_the_language() {
    let home = Home::new();
    home.write("p.toml", "version = 1\n");
    let explain = |shell: &str| {
        home.lobster(["policy", "explain", "--policy", "p.toml", "--shell", shell, "[[ -n x ]] && echo ok"])
            .run()
    };
    for shell in ["bash", "dash", "ash"] {
        let answer = explain(shell);
        assert!(answer.stdout.contains("`[[`") && answer.stdout.contains("[language]"), "{answer:?}");
    }
    assert_eq!(explain("zsh").code(), 2);
}

/// A repository whose settings would run code of the workspace in a git that
/// only reads: what the catalogue covers runs with them switched off.
#[test]
fn a_repository_cannot_make_a_reading_git_run_code() {
    let home = Home::new();
    let git = |words: &[&str]| {
        let done = std::process::Command::new("git")
            .args(["-c", "user.email=a@b", "-c", "user.name=x"])
            .args(words)
            .current_dir(home.dir())
            .env("HOME", home.dir())
            .output();
        done.is_ok_and(|out| out.status.success())
    };
    if !git(&["init", "-q", "."]) {
        return println!("there is no git here");
    }
    home.write(
        "p.toml",
        format!(
            "version = 1\n{DEGRADED}[programs]\ntrusted_dirs = [\"/usr/bin\", \"/usr/local/bin\", \"/bin\"]\n"
        ),
    )
    .write("a.txt", "one\n")
    .write(".gitattributes", "*.txt diff=evil\n")
    .write("evil.sh", "#!/bin/sh\necho FOREIGN CODE RAN\n")
    .write("diff.lobster", "steps:\n  - { id: a, run: git diff }\n")
    .write("status.lobster", "steps:\n  - { id: a, run: git status --short a.txt }\n");
    let evil = home.dir().join("evil.sh");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&evil, mode).unwrap();
    assert!(git(&["add", "a.txt", ".gitattributes"]) && git(&["commit", "-q", "-m", "i"]));
    let evil = evil.display().to_string();
    assert!(git(&["config", "diff.evil.textconv", &evil]) && git(&["config", "core.fsmonitor", &evil]));
    home.write("a.txt", "two\n");
    let run = |file: &str| home.lobster(["run", "--mode", "tool", "--policy", "p.toml", file]).run();
    let diff = run("diff.lobster");
    if diff.stdout.contains("cannot enforce") {
        return println!("no jail here: {diff:?}");
    }
    let shown = diff.envelope()["output"].to_string();
    assert!(shown.contains("+two") && !shown.contains("FOREIGN"), "{diff:?}");
    assert!(run("status.lobster").envelope()["output"].to_string().contains("M a.txt"));
    // Nor can a submodule, whose filter would give its file another content, wherever
    // the file stands that has git look into it.
    home.write("sub/a.txt", "sub\n").write("sub/.gitattributes", "*.txt filter=evil\n");
    let sub = |words: &[&str]| git(&[&["-C", "sub"], words].concat());
    assert!(sub(&["init", "-q", "."]) && sub(&["add", "."]) && sub(&["commit", "-q", "-m", "i"]));
    home.write(".gitmodules", "[submodule \"s\"]\n\tpath = sub\n\turl = ./x\n\tignore = none\n")
        .write("all.lobster", "steps:\n  - { id: a, run: git status --short }\n");
    assert!(git(&["add", "sub", ".gitmodules"]) && git(&["commit", "-q", "-m", "sub"]));
    assert!(sub(&["config", "filter.evil.clean", &evil]));
    let looks_changed = || {
        let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let file = std::fs::File::options().write(true).open(home.dir().join("sub/a.txt")).unwrap();
        file.set_modified(long_ago).unwrap();
    };
    for modules in ["in the directory", "in the index"] {
        looks_changed();
        let status = run("all.lobster");
        let shown = status.envelope()["output"].to_string();
        assert!(shown.contains("M a.txt") && !shown.contains(" sub"), "{modules}: {status:?}");
        let _ = std::fs::remove_file(home.dir().join(".gitmodules"));
    }
    looks_changed();
    let status =
        std::process::Command::new("git").args(["status", "--short"]).current_dir(home.dir()).output();
    assert!(String::from_utf8_lossy(&status.unwrap().stdout).contains("m sub"), "nothing is tested");
    // A program in place of the diff stops git instead.
    assert!(git(&["config", "diff.external", &evil]));
    let stopped = run("diff.lobster");
    assert!(!stopped.stdout.contains("FOREIGN") && stopped.error().contains("cannot run"), "{stopped:?}");
}

/// `~` is the caller's home and `@step-home` the step's, and each is shown by its name wherever a person reads a path.
#[test]
fn each_home_has_its_own_name() {
    let home = Home::new();
    let caller = home.dir().canonicalize().unwrap().join("../home");
    std::fs::create_dir_all(caller.join("notes")).unwrap();
    let caller = caller.canonicalize().unwrap();
    home.write(
        "p.toml",
        "version = 1\n[sandbox.fs]\nwrite = [\"@workspace\"]\ndeny = [\"~/.netrc\"]\n[[rule]]\nid = \"t\"\neffect = \"allow\"\n\
         program = \"sort\"\ngrant = { fs_read = [\"~/notes\", \"@step-home/in\"] }\n",
    );
    let written = caller.join("made").display().to_string();
    for (text, shown) in [
        ("mkdir ~/.made", "ask: creates a directory: @step-home/.made [write]"),
        ("mkdir \"$HOME/.made\"", "ask: creates a directory: @step-home/.made [write]"),
        ("cd && mkdir .made", "ask: creates a directory: @step-home/.made [write]"),
        ("mkdir ~/.made", "mkdir @step-home/.made\n"),
        ("mkdir ~/.made", "writes: @step-home/.made\n"),
        ("mkdir ~/.made", "never: ~/.netrc\n"),
        (&format!("mkdir {written}"), "deny: ~/made is outside the write roots: creates a directory"),
        ("cat ~/.netrc", "deny: @step-home/.netrc is a secret"),
        (&format!("cat {written}"), "ask: ~/made is outside the read roots"),
        ("sort a", "read: @workspace @system-ro ~/notes @step-home/in\n"),
        ("rm -rf ~", "deny: rm removes @step-home and everything below [hard:rm-root]"),
    ] {
        let shown = shown.replace("@workspace", &home.dir().canonicalize().unwrap().display().to_string());
        let answer = home.lobster(["policy", "explain", "--policy", "p.toml", text]).run();
        assert!(answer.stdout.contains(&shown), "{text}: {answer:?}");
    }

    home.write("a.lobster", "steps:\n  - { id: a, run: 'mkdir ~/.made && ls -d ~/.made' }\n");
    let waits = home.tool(["--policy", "p.toml", "a.lobster"]);
    let question = waits.envelope().to_string();
    if question.contains("cannot enforce") {
        return println!("no jail here: {question}");
    }
    let (word, own) = ("creates a directory: @step-home/.made", caller.display().to_string());
    assert!(question.contains(word) && !question.contains(&own), "{question}");
    let answered = home.lobster(["resume", "--token", &waits.token(), "--approve", "yes"]).run();
    assert!(answered.stdout.contains("/lobster-home-") && answered.stdout.contains("/.made"), "{answered:?}");
    assert!(!caller.join(".made").exists(), "the step's home is not the caller's");
}
