//! A policy demands that changes to files are kept apart: a rule of its commands, or of what agents start.

use serde_json::json;

use crate::home::{Answer, Home};
use crate::mcp_server::Client;
use crate::served::token;

fn gate_of(asked: &Answer) -> String {
    let envelope = asked.envelope();
    envelope["requiresApproval"]["approvalId"].as_str().unwrap_or_else(|| panic!("{asked:#?}")).to_owned()
}

/// What an agent starts over MCP is reviewed, what a person starts is not.
#[test]
fn runs_of_agents_are_reviewed_where_the_policy_says_so() {
    let home = Home::new();
    home.write(
        "p.toml",
        "version = 1\n[sandbox]\nagent_changes = \"review\"\n[[rule]]\nid = \"touch\"\neffect = \"allow\"\n\
         program = \"touch\"\ngrant = { fs_write = [\"@workspace\"] }\n",
    );
    home.write("flows/make.lobster", "steps:\n  - { id: make, exec: [touch, made] }\n");
    let shown = home.lobster(["policy", "check", "p.toml"]).run();
    assert!(shown.stdout.contains("changes to files of runs that agents start: review"), "{shown:#?}");
    let policy = home.dir().join("p.toml");
    let own =
        home.lobster(["run", "--mode", "tool", "flows/make.lobster"]).env("LOBSTER_POLICY", &policy).run();
    if own.stdout.contains("cannot enforce") {
        return;
    }
    assert_eq!(own.envelope()["status"], "ok", "{own:#?}");
    std::fs::remove_file(home.dir().join("made")).unwrap();
    let mut client = Client::ready(&home, &["--workflows", "flows", "--policy", "p.toml"], None);
    let asked = client.call("make", json!({}));
    assert_eq!(asked["status"], "needs_approval", "{asked}");
    assert!(asked.to_string().contains("made"), "{asked}");
    assert!(!home.dir().join("made").exists());
    // Whoever answers: it is still the agent's run.
    let gate = asked["requiresApproval"]["approvalId"].as_str().unwrap();
    let person = token(&home, "approver", None);
    let done = home.lobster(["approvals", "approve", gate]).env("LOBSTER_APPROVAL_TOKEN", person).run();
    assert_eq!(done.envelope()["status"], "ok", "{done:#?}");
    assert!(home.dir().join("made").exists());
}

#[test]
fn a_rule_demands_at_least_a_mode() {
    let home = Home::new();
    home.write("a", "one\n");
    let rule = |changes: &str| {
        format!(
            "version = 1\n[[rule]]\nid = \"perl\"\neffect = \"allow\"\nprogram = \"perl\"\n{changes}\
             grant = {{ fs_write = [\"@workspace\"] }}\n[[rule]]\nid = \"sh\"\neffect = \"allow\"\nprogram = \"touch\"\n\
             grant = {{ fs_write = [\"@workspace\"] }}\n"
        )
    };
    home.write("x.pl", "open(my $h, '>>', 'a'); print $h \"two\\n\"; close $h; exit($ARGV[0] // 0);");
    home.write(
        "flow.lobster",
        "steps:\n  - { id: a, exec: [perl, x.pl, '3'], on_error: continue }\n  - { id: b, exec: [touch, b] }\n",
    );
    let policy = home.dir().join("p.toml");
    home.write("p.toml", rule("changes = \"staged\"\n"));
    let shown = home.lobster(["policy", "check", "p.toml"]).run();
    assert!(shown.stdout.contains("changes to files of rule perl: staged"), "{shown:#?}");
    let explained = home.lobster(["policy", "explain", "perl x.pl"]).env("LOBSTER_POLICY", &policy).run();
    assert!(explained.stdout.contains("changes to files: staged"), "{explained:#?}");
    let ran = home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_POLICY", &policy).run();
    if ran.stdout.contains("cannot enforce") {
        return;
    }
    // The failed step left nothing; the other one is as it was.
    assert_eq!(home.read("a"), "one\n", "{ran:#?}");
    assert!(home.dir().join("b").exists());
    home.write("flow.lobster", "steps:\n  - { id: a, exec: [perl, x.pl] }\n");
    home.write("p.toml", rule("changes = \"review\"\n"));
    let asked = home.lobster(["run", "--mode", "tool", "flow.lobster"]).env("LOBSTER_POLICY", &policy).run();
    assert_eq!(home.read("a"), "one\n");
    let done = home.lobster(["approvals", "approve", &gate_of(&asked)]).env("LOBSTER_POLICY", &policy).run();
    assert_eq!(done.envelope()["status"], "ok", "{done:#?}");
    assert_eq!(home.read("a"), "one\ntwo\n");
    home.write(
        "p.toml",
        rule("")
            .replace("\"allow\"", "\"deny\"")
            .replace("program = \"perl\"", "program = \"perl\"\nchanges = \"staged\""),
    );
    let wrong = home.lobster(["policy", "check", "p.toml"]).run();
    assert!(wrong.code() != 0, "{wrong:#?}");
}
