//! An answer can be given from any process: every way into a question against
//! every way to answer it. Nothing changed: it is accepted. One thing changed: it is not.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::home::{Answer, Home};
use crate::served::token;

const DEGRADED: &str = "[sandbox]\nmode = \"degrade\"\nminimum = []\n";

/// Readers are allowed, `touch` is asked about, `cp` may write the workspace.
fn policy() -> String {
    format!(
        "version = 1\nextends = [\"builtin:readonly-catalog@1\"]\n{DEGRADED}\
         [[rule]]\nid = \"t\"\neffect = \"ask\"\nprogram = \"touch\"\ngrant = {{ fs_write = [\"@workspace\"] }}\n\
         [[rule]]\nid = \"c\"\neffect = \"allow\"\nprogram = \"cp\"\ngrant = {{ fs_write = [\"@workspace\"] }}\n"
    )
}

/// How the run comes to its question.
#[derive(Clone, Copy, Debug, PartialEq)]
enum In {
    Option,
    Environment,
    Both,
    Project,
    Mcp,
    McpWithPolicy,
}

/// How it is answered.
#[derive(Clone, Copy, Debug)]
enum Out {
    Token,
    Id,
    Gates,
    /// From another directory, in an environment with another home and another path, with the state directory alone.
    Elsewhere,
    /// With the policy in the environment.
    WithPolicy,
}

/// Starts `text` as a pipeline or a workflow, and gives the question.
fn ask(home: &Home, how: In, workflow: bool) -> Value {
    let command = "exec --shell 'touch made'";
    home.write("flow.lobster", "steps:\n  - id: make\n    run: touch made\n");
    let target: Vec<&str> = if workflow { vec!["flow.lobster"] } else { vec![command] };
    let policy_file = home.dir().join("p.toml");
    let tool = |before: &[&str], env: Option<&Path>| {
        let words: Vec<&str> =
            ["run", "--mode", "tool"].iter().chain(before).copied().chain(target.clone()).collect();
        let mut call = home.lobster(words);
        if let Some(policy) = env {
            call = call.env("LOBSTER_POLICY", policy);
        }
        call.run().envelope()
    };
    match how {
        In::Option => {
            fs::write(&policy_file, policy()).unwrap();
            tool(&["--policy", "p.toml"], None)
        }
        In::Environment => {
            fs::write(&policy_file, policy()).unwrap();
            tool(&[], Some(&policy_file))
        }
        In::Both => {
            fs::write(&policy_file, policy()).unwrap();
            home.write("more.toml", format!("version = 1\n{DEGRADED}"));
            tool(&["--policy", "more.toml"], Some(&policy_file))
        }
        In::Project => {
            home.write("lobster.policy.toml", policy());
            let trusted = home.lobster(["policy", "trust", "--yes"]).run();
            assert_eq!(trusted.code(), 0, "{trusted:?}");
            tool(&[], None)
        }
        In::Mcp => through_a_server(home, &[], command),
        In::McpWithPolicy => {
            fs::write(&policy_file, policy()).unwrap();
            through_a_server(home, &["--policy", "p.toml"], command)
        }
    }
}

/// What a client that can ask nobody gets for a pipeline; the server has ended then.
fn through_a_server(home: &Home, words: &[&str], pipeline: &str) -> Value {
    let words: Vec<&str> = ["mcp", "--approvals", "operator"].iter().chain(words).copied().collect();
    let mut server = home.lobster(words).start_piped();
    let mut to = server.stdin.take().unwrap();
    let mut from = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut request = |id: u64, method: &str, params: Value| {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        writeln!(to, "{message}").unwrap();
        loop {
            let answer: Value = serde_json::from_str(&from.next().unwrap().unwrap()).unwrap();
            if answer["id"] == json!(id) {
                return answer;
            }
        }
    };
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    request(1, "initialize", hello);
    let answer = request(2, "tools/call", json!({"name": "run", "arguments": {"pipeline": pipeline}}));
    drop(to);
    let _ = server.wait();
    answer["result"]["structuredContent"].clone()
}

fn id(question: &Value) -> String {
    question["requiresApproval"]["approvalId"].as_str().unwrap_or_else(|| panic!("{question}")).to_owned()
}

fn answer(home: &Home, question: &Value, how: Out) -> Answer {
    answer_as(home, question, how, None)
}

/// `person`: the token of an approver, which the runs of agents want.
fn answer_as(home: &Home, question: &Value, how: Out, person: Option<&str>) -> Answer {
    let id = id(question);
    let call = match how {
        Out::Token => {
            let token = question["requiresApproval"]["resumeToken"].as_str().unwrap();
            home.lobster(["resume", "--token", token, "--approve", "yes"])
        }
        Out::Id => home.lobster(["resume", "--id", &id, "--approve", "yes"]),
        Out::Gates => home.lobster(["approvals", "approve", &id]),
        Out::Elsewhere => {
            let other = home.state().parent().unwrap().join("elsewhere");
            fs::create_dir_all(&other).unwrap();
            let call = home.lobster(["resume", "--id", &id, "--approve", "yes"]).dir(&other);
            call.env("HOME", &other).env("PATH", "/bin").env("LANG", "C").env("EXTRA", "1")
        }
        Out::WithPolicy => {
            let call = home.lobster(["approvals", "approve", &id]);
            call.env("LOBSTER_POLICY", home.dir().join("p.toml"))
        }
    };
    match person {
        Some(token) => call.env("LOBSTER_APPROVAL_TOKEN", token).run(),
        None => call.run(),
    }
}

fn made(home: &Home) -> PathBuf {
    home.dir().join("made")
}

#[test]
fn every_way_in_against_every_way_out() {
    for how in [In::Option, In::Environment, In::Both, In::Project, In::Mcp, In::McpWithPolicy] {
        let over_mcp = matches!(how, In::Mcp | In::McpWithPolicy);
        for workflow in if over_mcp { &[false][..] } else { &[false, true] } {
            for out in [Out::Token, Out::Id, Out::Gates, Out::Elsewhere, Out::WithPolicy] {
                // An operator's server hands out no token; the other two have no policy file of that name.
                if (over_mcp && matches!(out, Out::Token))
                    || (matches!(how, In::Project | In::Mcp) && matches!(out, Out::WithPolicy))
                {
                    continue;
                }
                let home = Home::new();
                let question = ask(&home, how, *workflow);
                assert_eq!(question["status"], "needs_approval", "{how:?}: {question}");
                let person = over_mcp.then(|| token(&home, "approver", None));
                let answered = answer_as(&home, &question, out, person.as_deref());
                assert_eq!(answered.code(), 0, "{how:?} {workflow} {out:?}: {answered:?}");
                assert!(made(&home).exists(), "{how:?} {workflow} {out:?}: {answered:?}");
            }
        }
    }
}

/// A policy names the secrets of its runs and keeps their audit: both are there for whoever answers.
#[test]
fn an_answer_finds_the_secrets_and_the_audit_of_the_policy() {
    for out in [Out::Token, Out::Id, Out::Gates, Out::Elsewhere, Out::WithPolicy] {
        for origin in ["file = \"tok\"", "command = [\"cat\", \"tok\"]"] {
            let home = Home::new();
            let dir = home.dir().display().to_string();
            let origin = origin.replace("\"tok\"", &format!("\"{dir}/tok\""));
            home.write("tok", "the-very-secret\n").write(
                "p.toml",
                format!(
                    "version = 1\n[audit]\npath = \"{dir}/audit\"\n{DEGRADED}\
                     [sandbox.env]\nsecrets = [\"tok\"]\n[[rule]]\nid = \"t\"\neffect = \"allow\"\n\
                     argv = [\"printenv\", \"TOK\"]\n[secrets.tok]\n{origin}\n"
                ),
            );
            home.write(
                "w.lobster",
                "secrets: [tok]\nsteps:\n  - {id: ask, approval: 'Go?'}\n\
                 \x20 - {id: use, exec: [printenv, TOK], secrets: {TOK: tok}}\n",
            );
            let asked = home.tool(["--policy", "p.toml", "w.lobster"]).envelope();
            let done = answer(&home, &asked, out);
            assert_eq!(done.code(), 0, "{out:?} {origin}: {done:?}");
            assert!(!done.stdout.contains("the-very-secret"), "{done:?}");
            let days = fs::read_dir(home.dir().join("audit")).unwrap().flatten();
            let audit: String = days.map(|day| fs::read_to_string(day.path()).unwrap()).collect();
            assert!(audit.contains("\"approved\"") && audit.contains("printenv"), "{out:?} {audit}");
        }
    }
}

#[test]
fn what_changed_since_is_not_what_was_approved() {
    // The policy that the answerer's environment names was changed since.
    let home = Home::new();
    let question = ask(&home, In::Environment, true);
    let changed = policy().replace("id = \"t\"", "id = \"other\"");
    fs::write(home.dir().join("p.toml"), changed).unwrap();
    let refused = answer(&home, &question, Out::WithPolicy);
    assert_ne!(refused.code(), 0, "{refused:?}");
    assert!(format!("{refused:?}").contains("the policy"), "{refused:?}");
    assert!(!made(&home).exists());
    // Back to what it was, the answer is good.
    fs::write(home.dir().join("p.toml"), policy()).unwrap();
    assert_eq!(answer(&home, &question, Out::WithPolicy).code(), 0);
    assert!(made(&home).exists());
}

#[test]
fn a_policy_that_is_not_there_is_an_error_before_anything() {
    let home = Home::new();
    let question = ask(&home, In::Option, true);
    let missing = home.dir().join("gone.toml");
    let id = id(&question);
    let refused =
        home.lobster(["resume", "--id", &id, "--approve", "yes"]).env("LOBSTER_POLICY", &missing).run();
    assert!(refused.error().contains("gone.toml"), "{refused:?}");
    let run = home.lobster(["run", "--mode", "tool", "--policy", "gone.toml", "exec true"]).run();
    assert!(run.error().contains("gone.toml"), "{run:?}");
    // The question stands.
    assert_eq!(answer(&home, &question, Out::Id).code(), 0);
    assert!(made(&home).exists());
}

/// The policy file is not a step's to change, before a question and after it.
#[test]
fn the_policy_stays_protected_behind_a_question() {
    for out in [Out::Id, Out::Elsewhere, Out::WithPolicy] {
        let home = Home::new();
        fs::write(home.dir().join("p.toml"), policy()).unwrap();
        home.write("evil.txt", "evil");
        home.write(
            "flow.lobster",
            "steps:\n  - id: ask\n    approval: Go on?\n  - id: swap\n    run: cp evil.txt p.toml\n",
        );
        let question = home.tool(["--policy", "p.toml", "flow.lobster"]).envelope();
        let answered = answer(&home, &question, out);
        assert_eq!(home.read("p.toml"), policy(), "{out:?}: {answered:?}");
        assert_ne!(answered.code(), 0, "{out:?}: {answered:?}");
    }
}
