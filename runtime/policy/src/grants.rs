//! Separation of the rights of several commands.
//!
//! A text runs in one sandbox, so the rights of one command apply to all. Rights are therefore never
//! merged without a question: a text whose commands draw different rights asks, or is refused if code
//! of unknown origin would get a socket, the network or a credential. A command of the catalogue never
//! gets any rights: if the text also has a command with rights, it asks, unless the rights are of no
//! use to the program.

use super::Policy;
use super::analysis::{Analysis, Draw};
use super::catalogue::is_pure;
use super::decide::{Grant, NetGrant};
use super::decision_env::DecisionEnv;
use super::file::{NetGrantSpec, NetWord, Rule};
use super::paths::{Roots, expand_root, is_under};

const HINT: &str = "give each command its own step";

impl Policy {
    /// Refuses a text that would give one command the rights of another.
    pub(super) fn keep_grants_apart(&self, analysis: &mut Analysis<'_>, env: &DecisionEnv) {
        let (mut ruled, others): (Vec<Draw<'_>>, Vec<Draw<'_>>) =
            analysis.draws.clone().into_iter().partition(|draw| !draw.rules.is_empty());
        if ruled.is_empty() || ruled.len() + others.len() == 1 {
            return;
        }
        // Different rules may grant the same rights.
        let grant = |draw: &Draw<'_>| self.granted_rights(&draw.rules, false, false, env, analysis.roots);
        let mut grants: Vec<Grant> = Vec::new();
        ruled.retain(|draw| {
            let grant = grant(draw);
            let is_new = !grants.contains(&grant);
            if is_new {
                grants.push(grant);
            }
            is_new
        });
        let held = ruled.iter().find_map(|draw| {
            let right = draw.rules.iter().find_map(|rule| self.sensitive_right(rule, env, analysis.roots))?;
            Some((draw, right))
        });
        if let Some((draw, right)) = held {
            let code =
                ruled.iter().chain(&others).find(|other| !std::ptr::eq(*other, draw) && !other.catalogued);
            if let Some(other) = code {
                let message = format!("{} would run with the rights of {}: {right}", other.name, draw.name);
                analysis.deny_hint("mixed-grants", message, HINT);
            } else if let Some(other) = others.first() {
                let message = format!("{} would run with the rights of {}: {right}", other.name, draw.name);
                analysis.ask_hint("mixed-grants", message, HINT);
            }
        } else if let [first, second, ..] = ruled.as_slice() {
            let message = format!("{} and {} would run with the rights of both", first.name, second.name);
            analysis.ask_hint("mixed-grants", message, HINT);
        } else if let Some(ruled) = ruled.first() {
            let talks = grants.iter().any(|grant| grant.net != NetGrant::None);
            let writes = grants.iter().any(|grant| !grant.fs_write.is_empty());
            let reached =
                others.iter().find(|other| talks || (writes && !(other.catalogued && is_pure(&other.name))));
            if let Some(other) = reached {
                let rights = if talks { "the network" } else { "the directories" };
                let message = format!("{} would run with {rights} of {}", other.name, ruled.name);
                analysis.ask_hint("mixed-grants", message, HINT);
            }
        }
    }

    /// Right of a rule that no other command may get: a socket, the network, ports, a credential, or a
    /// right that the kernel cannot enforce.
    pub(super) fn sensitive_right(&self, rule: &Rule, env: &DecisionEnv, roots: &Roots) -> Option<String> {
        let sandbox = &self.file().sandbox;
        let grant = &rule.grant;
        if let Some(socket) = grant.unix.first() {
            return Some(format!("the socket {socket}"));
        }
        if !matches!(grant.net, None | Some(NetGrantSpec::Word(NetWord::None))) {
            return Some("the network".to_owned());
        }
        if !(grant.listen.is_empty() && grant.connect.is_empty()) {
            return Some("ports of the run's network".to_owned());
        }
        if let Some(name) = grant.env.iter().find(|name| !sandbox.env.pass.contains(name)) {
            return Some(format!("the variable {name}"));
        }
        if let Some(what) = &grant.unenforceable {
            return Some(what.clone());
        }
        let base: Vec<String> = sandbox.fs.read.iter().map(|root| expand_root(root, env)).collect();
        let is_credential = |path: &str| {
            let path = expand_root(path, env);
            !base.iter().any(|root| is_under(&path, root)) && !roots.is_readable(&path)
        };
        let read = grant.fs_read.iter().find(|path| is_credential(path));
        let secret = grant.fs_write.iter().filter_map(|path| path.strip_suffix(":ro"));
        let secret = secret.filter(|path| roots.is_secret(&expand_root(path, env))).map(str::to_owned).next();
        read.cloned().or(secret).map(|path| format!("reading {path}"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Decision, DecisionEnv, NetGrant, Policy, Proposal, Verdict};

    fn decide_command(text: &str) -> Decision {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/policy/example.toml");
        let policy = Policy::load(&std::fs::read_to_string(path).unwrap(), "example.toml").unwrap();
        policy.decide(&Proposal::shell(text), &DecisionEnv::fixture())
    }

    #[test]
    fn a_path_to_read_may_have_the_mark_of_a_path_that_is_not_written() {
        for grant in ["fs_read = [\"~/lib\"]", "fs_read = [\"~/lib:ro\"]", "fs_write = [\"~/lib:ro\"]"] {
            let rule = "[[rule]]\nid = \"g\"\neffect = \"allow\"\nprogram = \"touch\"\n";
            let text = format!("version = 1\n{rule}grant = {{ {grant} }}\n");
            let policy = Policy::load(&text, "p.toml").unwrap();
            let granted = policy.decide(&Proposal::shell("touch a"), &DecisionEnv::fixture()).grant;
            assert!(granted.fs_read.contains(&"~/lib".to_owned()), "{grant}: {granted:?}");
            assert!(granted.fs_write.iter().all(|root| !root.contains("lib")), "{grant}: {granted:?}");
        }
    }

    /// Shapes of a text with two commands, each with true if the shape itself has a command of the
    /// catalogue.
    const SHAPES: &[(&str, bool)] = &[
        ("A; B", false),
        ("B\nA", false),
        ("A && B", false),
        ("A || B", false),
        ("A | B", false),
        ("A & B", false),
        ("if A; then B; fi", false),
        ("while A; do B; done", false),
        ("(A); B", false),
        ("{ A; }; B", false),
        ("f() { A; }; f; B", false),
        ("echo \"$(A)\"; B", false),
        ("x=$(A; B)", false),
        ("sh -c 'A; B'", false),
        ("bash -c 'A'; B", false),
        ("eval 'A'; B", false),
        ("env A; nice B", false),
        ("timeout 5 A; nohup B", false),
        ("trap 'A' EXIT; B", false),
        ("cat <(A); B", true),
        ("find . -exec A \\; -exec B \\;", true),
        ("case x in (*) A;; esac; B", false),
    ];

    #[test]
    fn the_rights_of_two_commands_are_never_united() {
        use Verdict::{Allow, Ask, Deny};
        for (a, b, expected) in [
            ("docker ps", "docker logs web", Allow),
            ("docker ps", "kubectl get pods", Deny),
            ("docker ps", "npm test", Deny),
            ("docker ps", "./evil", Deny),
            ("docker ps", "sh deploy.sh", Deny),
            ("docker ps", "make", Deny),
            ("docker ps", "cat README.md", Ask),
            ("kubectl get pods", "cargo test", Deny),
            ("kubectl get pods", "wc -l", Ask),
            ("npm test", "cargo test", Ask),
            ("npm test", "npm run lint", Allow),
            ("npm test", "cat README.md", Allow),
            ("npm test", "git status", Ask),
            ("cargo build", "sort -n", Ask),
            ("docker ps", "jq . a", Ask),
            ("cargo build", "tail -n 20", Allow),
            ("npm test", "./evil", Ask),
            ("cat a", "wc -l b", Allow),
            ("docker ps", "echo done", Allow),
        ] {
            for (shape, with_catalogue) in SHAPES {
                for (first, second) in [(a, b), (b, a)] {
                    let text = shape.replace('A', first).replace('B', second);
                    let decision = decide_command(&text);
                    let sensitive = a.starts_with("docker") || a.starts_with("kubectl");
                    // A write directory is of no use to `cat`, but may be to `find`.
                    let gets_rights = *with_catalogue && (sensitive || shape.contains("find"));
                    let has_rights = sensitive || a.starts_with("npm") || a.starts_with("cargo");
                    let expected = if gets_rights && has_rights { expected.max(Ask) } else { expected };
                    // Text beyond the language asks by itself.
                    let is_beyond = ["f()", "eval", "trap", "<("].iter().any(|word| shape.contains(word));
                    let expected = if is_beyond { expected.max(Ask) } else { expected };
                    // After find and wrappers, echo is a program.
                    let wraps = ["find", "env", "timeout"].iter().any(|wrapper| shape.contains(wrapper));
                    let is_program = wraps && b.starts_with("echo");
                    assert!(
                        decision.verdict == expected || is_program,
                        "{text}: {:?} {}",
                        decision.verdict,
                        decision.message
                    );
                    if decision.verdict == Deny {
                        assert_eq!(decision.reason_code, "mixed-grants", "{text}");
                        assert!(decision.grant.unix.is_empty() && decision.grant.net == NetGrant::None);
                    }
                }
            }
        }
    }

    #[test]
    fn one_command_keeps_all_of_its_rights() {
        let decision = decide_command("docker ps > out.txt");
        assert_eq!((decision.verdict, decision.reason_code.as_str()), (Verdict::Ask, "write"));
        assert_eq!(decision.grant.unix, ["/run/docker.sock"]);
        assert_eq!(decide_command("cd src && docker ps && true").verdict, Verdict::Allow);
    }

    #[test]
    fn the_catalogue_never_gets_the_network() {
        let text = "version = 1\n[sandbox.fs]\nread = [\"@workspace\"]\n[sandbox.net]\ndefault = \"host-network\"\n\
                    [programs]\ntrusted_dirs = [\"/usr/bin\"]\n\
                    [[rule]]\nid = \"t\"\neffect = \"allow\"\nprogram = \"npm\"\n";
        let policy = Policy::load(text, "p").unwrap();
        let decide = |text: &str| policy.decide(&Proposal::shell(text), &DecisionEnv::fixture());
        for text in ["cat README.md", "echo x", "git status", "cat a | wc -l", "python3 --version"] {
            let decision = decide(text);
            assert_eq!((decision.verdict, &decision.grant.net), (Verdict::Allow, &NetGrant::None), "{text}");
        }
        assert_eq!(decide("npm test").grant.net, NetGrant::HostNetwork);
        let mixed = decide("npm test | tail");
        assert_eq!((mixed.verdict, mixed.reason_code.as_str()), (Verdict::Ask, "mixed-grants"));
    }
}
