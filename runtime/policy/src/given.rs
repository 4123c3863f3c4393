//! Variables that a step's workflow sets in `env`, beside its command.
//!
//! They reach the program like assignments in the text, so they are judged in the same way.

use super::analysis::{Analysis, Arg};
use super::command::is_harmless_variable;
use super::file::Profile;
use lobster_base::variable_name::check_variable_name;

/// Prefix of lobster's own variables, which control lobster and have no effect on other programs.
const OWN: &str = "LOBSTER_";

/// Programs that lobster's own variables control.
const STEERED: [&str; 3] = ["lobster", "openclaw.invoke", "clawd.invoke"];

impl Analysis<'_> {
    /// Judges the variables that the step is given. A variable that the operator has set to the same
    /// value is no finding.
    pub(crate) fn check_given(&mut self) {
        let (env, before) = (self.env, self.findings.len());
        let steers = self.commands.iter().any(|command| {
            let name = command.argv.first().and_then(|program| program.rsplit('/').next());
            name.is_some_and(|name| STEERED.contains(&name))
        });
        let is_locked = self.policy.file().profile == Profile::Locked;
        // A service on a socket can do anything, and so can rights that the kernel cannot enforce: such
        // a command asks about every variable that is not known to be harmless.
        let right = self.draws.iter().flat_map(|draw| &draw.rules).find_map(|rule| {
            let socket = rule.grant.unix.first().map(|socket| format!("the socket {socket}"));
            socket.or_else(|| rule.grant.unenforceable.clone())
        });
        self.span = None;
        for (name, value) in &env.given {
            if let Err(error) = check_variable_name(name) {
                self.add_denial("variable-name", error.to_string());
                continue;
            }
            let is_operators = self.policy.file().sandbox.env.set.get(name) == Some(value);
            if !is_operators && (steers || !name.starts_with(OWN)) {
                let judged = self.findings.len();
                self.check_assignment(name, &Arg::literal(value.clone()));
                let is_known = is_harmless_variable(name) || name.starts_with(OWN);
                if judged == self.findings.len() && !is_known && (is_locked || right.is_some()) {
                    let with = right.as_ref().map(|right| format!(", and a rule gives the command {right}"));
                    let with = with.unwrap_or_default();
                    let message = format!("{name} is not among the variables known to be harmless{with}");
                    self.require_approval("variable", message);
                }
            }
        }
        for finding in &mut self.findings[before..] {
            finding.message = format!("the step's env: {}", finding.message);
            finding.hint.get_or_insert("the operator can set it for every step, under [sandbox.env] set");
        }
        if self.findings.len() > before && is_locked {
            self.add_denial("locked", "the profile is locked and lists no command with this variable");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DecisionEnv, Policy, Proposal};

    /// A policy under which `ls` is covered by the catalogue, and `docker ps` and `lobster run` by one
    /// rule each.
    const POLICY: &str = "version = 1\n[sandbox.env]\nset = { PATH = \"/usr/bin:/bin\", GIT_PAGER = \"cat\" }\n\
        [[rule]]\nid = \"docker\"\neffect = \"allow\"\nargv = [\"docker\", \"ps\"]\ngrant = { unix = [\"/run/docker.sock\"] , unenforceable = \"x\" }\n\
        [[rule]]\nid = \"lobster\"\neffect = \"allow\"\nargv = [\"lobster\", \"doctor\"]\n[locked]\nargv = [[\"ls\"]]\n";

    fn decide_verdict(policy: &str, proposal: &Proposal, name: &str, value: &str) -> String {
        let policy = Policy::load(policy, "p.toml").unwrap();
        let given = [(name.to_owned(), value.to_owned())].into();
        let decision = policy.decide(proposal, &DecisionEnv { given, ..DecisionEnv::fixture() });
        format!("{} {}", decision.verdict.as_str(), decision.reason_code)
    }

    #[test]
    fn a_variable_of_the_step_is_judged_as_one_of_the_text() {
        let protected = [
            "PATH",
            "LD_PRELOAD",
            "LD_AUDIT",
            "LD_LIBRARY_PATH",
            "BASH_ENV",
            "ENV",
            "IFS",
            "SHELLOPTS",
            "PS4",
            "BASH_FUNC_ls%%",
            "GCONV_PATH",
            "GLIBC_TUNABLES",
        ];
        let loaded = [
            "GIT_EXTERNAL_DIFF",
            "GIT_SSH_COMMAND",
            "GIT_CONFIG_COUNT",
            "PYTHONSTARTUP",
            "PYTHONPATH",
            "PERL5OPT",
            "NODE_OPTIONS",
            "RUBYOPT",
            "PAGER",
            "HOME",
            "LESSOPEN",
            "MAKEFILES",
            "GREP",
            "RUSTUP_TOOLCHAIN",
            "GOFLAGS",
        ];
        let fine =
            ["LANG", "LC_ALL", "NO_COLOR", "NODE_ENV", "LOBSTER_ARG_X", "LOBSTER_SHELL", "LOBSTER_POLICY"];
        let unknown = ["NAME", "DOCKER_CONTEXT", "AWS_ENDPOINT_URL", "COMPOSE_FILE"];
        let other = ["", "PATH=/x:", "PATH=", "=PATH", "BASH_ENV=/x.sh", "LOBSTER_ARG_X=y", "LANG=C", "A\0"];
        for shape in [
            Proposal::shell("docker ps"),
            Proposal::argv(["docker", "ps"]),
            Proposal::shell("ls"),
            Proposal::argv(["ls"]),
        ] {
            let has_socket = shape != Proposal::shell("ls") && shape != Proposal::argv(["ls"]);
            let of_unknown = if has_socket { "ask variable" } else { "allow covered" };
            for (names, expected) in [
                (&unknown[..], of_unknown),
                (&protected[..], "deny protected-variable"),
                (&other, "deny variable-name"),
                (&loaded, "ask variable"),
                (&fine, "allow covered"),
            ] {
                for name in names {
                    assert_eq!(decide_verdict(POLICY, &shape, name, "./x"), expected, "{name} {shape:?}");
                    // The text is never judged less strictly.
                    if expected != "allow covered" && expected != "deny variable-name" && !name.contains('%')
                    {
                        let text = Proposal::shell(format!("{name}=./x docker ps"));
                        assert_eq!(decide_verdict(POLICY, &text, "A", "b"), expected, "{name}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_the_operator_says_too_is_fine_and_lobster_is_not_steered() {
        let ls = Proposal::shell("ls");
        assert_eq!(decide_verdict(POLICY, &ls, "PATH", "/usr/bin:/bin"), "allow covered");
        assert_eq!(decide_verdict(POLICY, &ls, "GIT_PAGER", "cat"), "allow covered");
        assert_eq!(
            decide_verdict(POLICY, &Proposal::shell("lobster doctor"), "LOBSTER_POLICY", ""),
            "deny protected-variable"
        );
        assert_eq!(decide_verdict(POLICY, &ls, "PAGER", "rm -rf /"), "deny hard:rm-root");
        let locked = POLICY.replace("version = 1\n", "version = 1\nprofile = \"locked\"\n");
        for (name, expected) in [
            ("LANG", "allow covered"),
            ("LC_ALL", "allow covered"),
            ("LOBSTER_ARG_X", "allow covered"),
            ("NAME", "deny locked"),
            ("SOME_TOOLS_OWN", "deny locked"),
            ("PAGER", "deny locked"),
            ("PATH", "deny protected-variable"),
            ("PATH=/x:", "deny variable-name"),
        ] {
            assert_eq!(decide_verdict(&locked, &ls, name, "x"), expected, "{name}");
        }
        // Without a policy file, nothing asks.
        let open = Policy::builtin().decide(
            &ls,
            &DecisionEnv { given: [("PATH".to_owned(), "x".to_owned())].into(), ..DecisionEnv::fixture() },
        );
        assert_eq!(open.reason_code, "open");
    }
}
