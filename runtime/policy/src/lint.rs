//! Remarks for the reviewer of a policy: it loads, but it says less or grants more than it seems to.

use serde::Serialize;

use super::Policy;
use super::decision_env::DecisionEnv;
use super::file::{Effect, NetGrantSpec, NetWord, Rule};
use super::inline_code::is_interpreter;
use super::paths::{expand_root, normalise_path};
use super::wrappers::is_shell;

/// Kind of a remark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LintKind {
    /// A grant that the kernel cannot enforce, which the rule declares.
    Unenforceable,
    /// A grant that the kernel cannot enforce, which the rule does not declare.
    UndeclaredUnenforceable,
    /// A rule that covers any code: a shell, interpreter or wrapper.
    AnyCode,
    /// An allow rule for every use of a program.
    AnyArguments,
    /// An allow rule without an example that must match.
    NoExample,
    /// A grant of the host's whole network.
    HostNetwork,
    /// A granted host that no command reaches.
    NoEffect,
    /// A write grant over a secret, a protected path or a vital directory.
    WideWrite,
    /// A trusted directory that steps may write.
    WritableProgramDirectory,
    /// Steps may write to the audit record.
    WritableAudit,
}

/// One remark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lint {
    /// Its kind.
    pub kind: LintKind,
    /// Rule of the remark; `None` for the whole file.
    pub rule: Option<String>,
    /// Description and advice.
    pub message: String,
}

impl Policy {
    /// Remarks about this policy that a reviewer should have read.
    #[must_use]
    pub fn lint(&self, env: &DecisionEnv) -> Vec<Lint> {
        let mut out = Vec::new();
        let roots = self.resolve_roots(env);
        for rule in self.rules() {
            self.lint_rule(rule, env, &mut out);
        }
        for dir in &self.programs().trusted_dirs {
            if roots.is_writable(dir) {
                out.push(Lint {
                    kind: LintKind::WritableProgramDirectory,
                    rule: None,
                    message: format!("programs.trusted_dirs holds {dir}, which steps may write; remove it"),
                });
            }
        }
        let audit = &self.file().audit;
        for (key, path) in [("path", &audit.path), ("anchor", &audit.anchor)] {
            let Some(path) = path.as_ref().map(|path| normalise_path("/", &expand_root(path, env))) else {
                continue;
            };
            if roots.is_writable(&path) {
                out.push(Lint {
                    kind: LintKind::WritableAudit,
                    rule: None,
                    message: format!("audit.{key} {path} is inside a write root; move it to @state"),
                });
            }
        }
        out
    }

    fn lint_rule(&self, rule: &Rule, env: &DecisionEnv, out: &mut Vec<Lint>) {
        let mut push = |kind, message: String| {
            out.push(Lint { kind, rule: Some(rule.id.clone()), message });
        };
        let grant = &rule.grant;
        match &grant.unenforceable {
            Some(reason) => push(LintKind::Unenforceable, reason.clone()),
            None if !grant.unix.is_empty() => push(
                LintKind::UndeclaredUnenforceable,
                format!(
                    "the service on {} decides what the command may do; say so with \
                     unenforceable = \"...\"",
                    grant.unix.join(", ")
                ),
            ),
            None => {}
        }
        if rule.effect == Effect::Deny {
            return;
        }
        if grant.net == Some(NetGrantSpec::Word(NetWord::HostNetwork)) {
            push(LintKind::HostNetwork, "name the hosts instead of granting host-network".to_owned());
        }
        let hosts = match &grant.net {
            Some(NetGrantSpec::Hosts(list)) => list.hosts.as_slice(),
            _ => &[],
        };
        for host in hosts.iter().filter(|host| is_localhost(host)) {
            let port = host.rsplit_once(':').map_or("PORT", |(_, port)| port);
            push(
                LintKind::NoEffect,
                format!(
                    "{host} is the step's own loopback interface; name this machine's as 127.0.0.1:{port}"
                ),
            );
        }
        let roots = self.resolve_roots(env);
        for path in grant.fs_write.iter().filter(|path| !path.ends_with(":ro")) {
            let path = normalise_path("/", &expand_root(path, env));
            if roots.is_secret(&path) || roots.is_protected(&path) || roots.is_vital(&path) {
                push(LintKind::WideWrite, format!("a step should not get the right to write {path}"));
            }
        }
        if rule.effect != Effect::Allow {
            return;
        }
        if let Some(program) = &rule.program {
            let name = program.rsplit('/').next().unwrap_or(program);
            let any_code = is_shell(name)
                || is_interpreter(name)
                || matches!(name, "env" | "xargs" | "find" | "sudo" | "make" | "npx" | "ssh" | "awk");
            if any_code {
                push(LintKind::AnyCode, format!("{name} runs any code it is given; use an exact argv"));
            } else if rule.args.is_none() {
                push(
                    LintKind::AnyArguments,
                    format!("every use of {name} is allowed; narrow it with args.first"),
                );
            }
        }
        if rule.matches.is_empty() {
            push(LintKind::NoExample, "add an example under match: it is checked at load".to_owned());
        }
    }
}

/// True for a `host:port` that names the loopback interface by its name.
fn is_localhost(entry: &str) -> bool {
    let host = entry.rsplit_once(':').map_or(entry, |(host, _)| host);
    host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unenforceable_and_wide_grants_are_listed() {
        let policy = Policy::load(
            r#"
version = 1
[[rule]]
id = "docker"
effect = "allow"
program = "docker"
args = { first = ["ps"] }
grant = { unix = ["/run/docker.sock"], unenforceable = "the socket is root" }
match = ["docker ps"]
[[rule]]
id = "dbus"
effect = "ask"
program = "busctl"
grant = { unix = ["/run/dbus/system_bus_socket"], net = { hosts = ["localhost:8080", "127.0.0.1:8080"] } }
[[rule]]
id = "py"
effect = "allow"
program = "python3"
grant = { fs_write = ["~", "@workspace"] }
"#,
            "p.toml",
        )
        .unwrap();
        let found: Vec<(LintKind, Option<String>)> =
            policy.lint(&DecisionEnv::fixture()).into_iter().map(|l| (l.kind, l.rule)).collect();
        let of = |kind, rule: &str| (kind, Some(rule.to_owned()));
        assert_eq!(
            found,
            [
                of(LintKind::Unenforceable, "docker"),
                of(LintKind::UndeclaredUnenforceable, "dbus"),
                of(LintKind::NoEffect, "dbus"),
                of(LintKind::WideWrite, "py"),
                of(LintKind::AnyCode, "py"),
                of(LintKind::NoExample, "py"),
            ]
        );
    }
}
