//! Text of a decision for people.

use std::fmt::Write as _;

use super::decide::{Decision, NetGrant, Verdict};
use super::decision_env::DecisionEnv;
use super::file::LeastChanges;
use super::paths::{name_step_home, rule_path};

impl Decision {
    /// The whole derivation: the verdict, each reason, each command that would start with the resources
    /// that it uses, and the rights that it would get.
    #[must_use]
    pub fn explain(&self, env: &DecisionEnv) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_explanation(&mut out, env);
        out
    }

    fn write_explanation(&self, out: &mut String, env: &DecisionEnv) -> std::fmt::Result {
        writeln!(out, "{}: {} [{}]", self.verdict.as_str(), self.message, self.reason_code)?;
        if let Some(hint) = &self.hint {
            writeln!(out, "  hint: {hint}")?;
        }
        if let Some(ask) = self.ask.as_ref().filter(|_| self.verdict == Verdict::Ask) {
            let who = if ask.approvers.is_empty() {
                "anyone who can answer a question".to_owned()
            } else {
                ask.approvers.join(", ")
            };
            writeln!(out, "  approval: {who}, within {}", ask.ttl)?;
        }
        if self.reasons.len() > 1 {
            writeln!(out, "reasons, strictest first:")?;
            for reason in &self.reasons {
                write!(out, "  {:5} {} [{}]", reason.verdict.as_str(), reason.message, reason.code)?;
                match reason.span {
                    Some(span) => writeln!(out, " at {}..{}", span.start, span.end)?,
                    None => writeln!(out)?,
                }
            }
        }
        if !self.commands.is_empty() {
            writeln!(out, "commands it would start:")?;
        }
        for command in &self.commands {
            let words: Vec<String> =
                command.argv.iter().map(|word| quote_word(&name_step_home(word))).collect();
            writeln!(out, "  {}", words.join(" "))?;
            if let Some(program) = &command.program {
                writeln!(out, "    program: {program}")?;
            }
            if !command.covered_by.is_empty() {
                writeln!(out, "    covered by: {}", command.covered_by.join(", "))?;
            }
            let facts = &command.facts;
            for (name, list) in [("reads", &facts.reads), ("writes", &facts.writes)] {
                if !list.is_empty() {
                    let list: Vec<String> =
                        list.iter().map(|path| quote_word(&rule_path(path, env))).collect();
                    writeln!(out, "    {name}: {}", list.join(" "))?;
                }
            }
            let flags = [
                (facts.net, "uses the network"),
                (facts.opaque, "runs code that cannot be read"),
                (facts.dynamic, "has words only known when it runs"),
            ];
            for (_, text) in flags.iter().filter(|(set, _)| *set) {
                writeln!(out, "    {text}")?;
            }
        }
        if self.is_without_policy() {
            writeln!(out, "confined: no; without a policy file a step has all of your rights")?;
            writeln!(out, "  hint: `lobster policy init` writes a policy file")?;
        } else if self.verdict != Verdict::Deny {
            self.write_grant(out)?;
        }
        writeln!(out, "policy {} engine {}", self.policy.short(), self.engine_version)
    }

    /// True if only hard blocks were checked: then the kernel enforces nothing.
    fn is_without_policy(&self) -> bool {
        matches!(self.reason_code.as_str(), "open" | "not-analysed")
    }

    fn write_grant(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "grant:")?;
        let grant = &self.grant;
        for (name, list) in [
            ("read", &grant.fs_read),
            ("write", &grant.fs_write),
            ("never", &grant.fs_deny),
            ("read-only", &grant.fs_protect),
            ("unix sockets", &grant.unix),
            ("environment", &grant.env),
        ] {
            if !list.is_empty() {
                writeln!(out, "  {name}: {}", list.join(" "))?;
            }
        }
        match &grant.net {
            NetGrant::None => writeln!(out, "  network: none")?,
            NetGrant::Hosts(hosts) => writeln!(out, "  network: {}", hosts.join(" "))?,
            NetGrant::HostNetwork => writeln!(out, "  network: the host's own")?,
        }
        for (name, ports) in [("listens on", &grant.listen), ("connects to", &grant.connect)] {
            if !ports.is_empty() {
                let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                writeln!(out, "  {name}: {} (of the run's own network)", ports.join(" "))?;
            }
        }
        if self.changes != LeastChanges::Direct {
            writeln!(out, "  changes to files: {}", self.changes.describe())?;
        }
        for reason in &grant.unenforceable {
            writeln!(out, "  not enforceable: {reason}")?;
        }
        Ok(())
    }
}

/// Form of a word for people: quoted if it contains blanks or non-ASCII characters, with deceptive
/// characters escaped.
fn quote_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\');
    if !word.is_empty() && word.replace("‹?›", "").chars().all(plain) {
        word.to_owned()
    } else {
        let escaped: String =
            word.split("‹?›").map(|part| part.escape_default().to_string()).collect::<Vec<_>>().join("‹?›");
        format!("\"{escaped}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DecisionEnv, Policy, Proposal};

    #[test]
    fn an_explanation_shows_the_whole_derivation() {
        let policy = Policy::load(
            "version = 1\n[[rule]]\nid = \"web\"\neffect = \"ask\"\nprogram = \"systemctl\"\nargs = { first = [\"restart\"] }\nwhy = \"restarts a service\"\nask = { approvers = [\"operator\"], ttl = \"10m\", remember = \"run\" }\n",
            "p.toml",
        )
        .unwrap();
        let decision =
            policy.decide(&Proposal::shell("systemctl restart nginx && cat 'a b'"), &DecisionEnv::fixture());
        let text = decision.explain(&DecisionEnv::fixture());
        let without_digest = &text[..text.rfind("policy ").unwrap()];
        assert_eq!(
            without_digest.trim_end(),
            r#"ask: systemctl: restarts a service [rule:web]
  approval: operator, within 10m
commands it would start:
  systemctl restart nginx
    program: /usr/bin/systemctl
  cat "a b"
    program: /usr/bin/cat
    covered by: catalogue
    reads: "/srv/repo/a b"
grant:
  read: /srv/repo @system-ro
  network: none"#
        );
    }

    #[test]
    fn without_a_policy_no_right_is_shown_as_held() {
        let env = DecisionEnv::fixture();
        let text = Policy::builtin().decide(&Proposal::shell("git push"), &env).explain(&env);
        assert!(text.contains("confined: no") && !text.contains("network: none"), "{text}");
    }
}
