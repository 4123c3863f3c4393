//! Rules that an approval proposes. A command approved under `remember = "policy"` is recorded as a
//! rule that the operator can read, edit and commit; the rule itself grants nothing.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::Policy;
use super::decide::{Command, Decision, Proposal, Verdict};
use super::decision_env::DecisionEnv;
use super::file::{Effect, Remember, Rule, RuleGrant};
use super::suggest::{Observed, toml_array, toml_string};
use lobster_base::digest::Digest;

/// Field of a note in the journal that holds a proposed rule, as policy file text.
pub const PROPOSED_RULE: &str = "proposed_rule";

impl Policy {
    /// Rules that would let the proposal run without a question, as policy file text. There is one rule
    /// for each command that a rule with `remember = "policy"` asks about, with its exact arguments and
    /// the rights of that rule. A command with a word that is known only at run time gets no rule.
    #[must_use]
    pub fn rules_of_approval(
        &self,
        decision: &Decision,
        cwd: Option<&str>,
        env: &DecisionEnv,
    ) -> Option<String> {
        let mut out = String::new();
        for command in decision.commands.iter().filter(|command| command.covered_by.is_empty()) {
            if command.argv.is_empty() || command.argv.iter().any(|word| word.contains("‹?›")) {
                continue;
            }
            let alone =
                Proposal { command: Command::Argv(command.argv.clone()), cwd: cwd.map(str::to_owned) };
            let alone = self.decide(&alone, env);
            let remembers = alone.ask.as_ref().is_some_and(|terms| terms.remember == Remember::Policy);
            if alone.verdict != Verdict::Ask || !remembers {
                continue;
            }
            let asks = |rule: &&Rule| rule.effect == Effect::Ask && alone.rule_ids.contains(&rule.id);
            let asking: Vec<&Rule> = self.rules().iter().filter(asks).collect();
            // Writing to a String cannot fail.
            let _ = write_rule(&mut out, &command.argv, &asking);
        }
        (!out.is_empty()).then_some(out)
    }

    /// The narrowest rules under which the proposal would run without a question, as policy file text.
    /// There is one rule for each command that nothing allows, with its exact arguments and the paths
    /// that it may write after approval. [`Policy::decide_command`] tells if they suffice.
    ///
    /// # Errors
    /// The reason why no rule can name the command: it is denied, or a word of it is known only at run
    /// time.
    pub fn narrowest_rules(&self, proposal: &Proposal, env: &DecisionEnv) -> Result<String, String> {
        let decision = self.decide(proposal, env);
        if decision.verdict == Verdict::Deny {
            return Err(format!("it is denied: {}", decision.message));
        }
        let mut out = String::new();
        let mut named = BTreeSet::new();
        for command in decision.commands.iter().filter(|command| command.covered_by.is_empty()) {
            let argv = &command.argv;
            if argv.is_empty() || argv.iter().any(|word| word.contains("‹?›")) {
                return Err("a word of it is known only when it runs, so no rule can name it".to_owned());
            }
            if !named.insert(argv) {
                continue;
            }
            let base = argv[0].rsplit('/').next().unwrap_or(&argv[0]);
            let base: String =
                base.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            let name = Digest::of_bytes(argv.join("\0").as_bytes()).short();
            if !out.is_empty() {
                out.push('\n');
            }
            // Writing to a String cannot fail.
            let _ = writeln!(
                out,
                "[[rule]]\nid = {}",
                toml_string(&format!("{}-{name}", base.trim_matches('-')))
            );
            let _ = writeln!(out, "effect = \"allow\"\nargv = {}", toml_array(argv));
            let repository = (base == "git"
                && decision.grant.fs_write.contains(&format!("{}/.git", env.workspace)))
            .then(|| "@workspace/.git".to_owned());
            let writes: Vec<String> =
                self.file().sandbox.fs.write.iter().cloned().chain(repository).collect();
            if !writes.is_empty() {
                let _ = writeln!(out, "grant = {{ fs_write = {} }}", toml_array(&writes));
            }
        }
        if out.is_empty() {
            return Err(format!("it is asked about as a whole: {}", decision.message));
        }
        Ok(out)
    }

    /// Commands that this policy stops and `wider` would let run, each once.
    #[must_use]
    pub fn newly_allowed(&self, wider: &Self, runs: &[Observed], env: &DecisionEnv) -> Vec<Vec<String>> {
        let allowed =
            |(argv, decision): (Vec<String>, Decision)| (decision.verdict == Verdict::Allow).then_some(argv);
        let mut new = BTreeSet::new();
        for run in runs {
            let now: BTreeSet<_> = self.decisions_on(run, env).into_iter().filter_map(allowed).collect();
            let then = wider.decisions_on(run, env).into_iter().filter_map(allowed);
            new.extend(then.filter(|argv| !now.contains(argv)));
        }
        new.into_iter().collect()
    }
}

fn write_rule(out: &mut String, argv: &[String], asking: &[&Rule]) -> std::fmt::Result {
    let ids: Vec<&str> = asking.iter().map(|rule| rule.id.as_str()).collect();
    let name = Digest::of_bytes(argv.join("\0").as_bytes()).short();
    if !out.is_empty() {
        out.push('\n');
    }
    writeln!(
        out,
        "# Applies only if {} no longer asks about this command: a question overrides a permission.",
        ids.join(", ").escape_debug()
    )?;
    writeln!(
        out,
        "[[rule]]\nid = {}",
        toml_string(&format!("{}-{name}", ids.first().unwrap_or(&"approved")))
    )?;
    writeln!(out, "effect = \"allow\"\nargv = {}", toml_array(argv))?;
    // If several rules ask, a person decides whose rights the command needs.
    let grants: Vec<&RuleGrant> = asking.iter().map(|rule| &rule.grant).collect();
    if let [grant] = grants.as_slice()
        && let Ok(toml::Value::Table(mut table)) = toml::Value::try_from(grant)
    {
        table.retain(|_, value| value.as_array().is_none_or(|entries| !entries.is_empty()));
        if !table.is_empty() {
            writeln!(out, "grant = {}", toml::Value::Table(table))?;
        }
    }
    writeln!(out, "why = \"proposed by an approval; not reviewed yet\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suggest::ObservedCommand;

    #[test]
    fn an_approval_proposes_the_exact_command_with_the_rights_of_its_rule() {
        let policy = Policy::load(
            "version = 1\nextends = [\"builtin:readonly-catalog@1\"]\n\
             [[rule]]\nid = \"deps\"\neffect = \"ask\"\nprogram = \"cargo\"\nargs = { first = [\"fetch\"] }\n\
             grant = { net = { hosts = [\"registry.example:443\"] } }\nask = { remember = \"policy\" }\n\
             [[rule]]\nid = \"web\"\neffect = \"ask\"\nprogram = \"systemctl\"\nask = { remember = \"run\" }\n",
            "p.toml",
        )
        .unwrap();
        let env = DecisionEnv::fixture();
        let rules = |text: &str| {
            let decision = policy.decide(&Proposal::shell(text), &env);
            assert_eq!(decision.verdict, Verdict::Ask, "{text}");
            policy.rules_of_approval(&decision, None, &env)
        };
        let proposed = rules("ls && cargo fetch --locked").unwrap();
        let lines: Vec<&str> = proposed.lines().collect();
        assert_eq!(lines[1], "[[rule]]", "{proposed}");
        assert!(lines[2].starts_with("id = \"deps-"), "{proposed}");
        assert_eq!(
            lines[3..],
            [
                "effect = \"allow\"",
                "argv = [\"cargo\", \"fetch\", \"--locked\"]",
                "grant = { net = { hosts = [\"registry.example:443\"] } }",
                "why = \"proposed by an approval; not reviewed yet\"",
            ]
        );
        // A person can commit it: it loads, and allows only this command.
        let committed = Policy::load(&format!("version = 1\n{proposed}"), "p.toml").unwrap();
        let verdict = |text: &str| committed.decide(&Proposal::shell(text), &env).verdict;
        assert_eq!(verdict("cargo fetch --locked"), Verdict::Allow);
        assert_eq!(verdict("cargo fetch"), Verdict::Ask);
        // The narrowest rule helps if only the default asks.
        let plain =
            Policy::load("version = 1\nextends = [\"builtin:readonly-catalog@1\"]\n", "p.toml").unwrap();
        let pasted = Proposal::shell("ls && npm test && npm test -- --watch");
        let narrow = plain.narrowest_rules(&pasted, &env).unwrap();
        assert_eq!(narrow.matches("[[rule]]").count(), 2, "{narrow}");
        let wider = Policy::load(
            &format!("version = 1\nextends = [\"builtin:readonly-catalog@1\"]\n{narrow}"),
            "p.toml",
        );
        let wider = wider.unwrap();
        assert_eq!(wider.decide(&pasted, &env).verdict, Verdict::Allow);
        assert_eq!(wider.decide(&Proposal::shell("npm test -- --ci"), &env).verdict, Verdict::Ask);
        let command = |argv: &[&str]| ObservedCommand {
            argv: argv.iter().map(|&word| word.to_owned()).collect(),
            ..ObservedCommand::default()
        };
        let commands = vec![command(&["ls"]), command(&["npm", "test"]), command(&["npm", "ci"])];
        let runs = [Observed { commands, ..Observed::default() }];
        assert_eq!(plain.newly_allowed(&wider, &runs, &env), [["npm", "test"]]);
        for (text, why) in [("npm test $(cat list)", "known only when it runs"), ("sudo ls", "denied")] {
            let refused = plain.narrowest_rules(&Proposal::shell(text), &env).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
        // No rule for a command that asks on other terms, and none for a command with an unknown word.
        assert_eq!(rules("systemctl restart nginx"), None);
        assert_eq!(rules("cargo fetch $(cat list)"), None);
    }
}
