//! Matching of rules and commands.

use super::analysis::{Analysis, Arg};
use super::file::{ArgPattern, ArgShape, Effect, HardRule, Rule};
use super::paths::name_step_home;
use lobster_base::percent;

/// True if `rule` matches the command `args` whose program is called `name`.
///
/// An allow rule only matches words that are fully known; a deny rule matches every possible reading.
pub(crate) fn matches_command(
    analysis: &Analysis<'_>,
    rule: &Rule,
    name: &str,
    args: &[Arg],
    program: Option<&str>,
) -> bool {
    let allows = rule.effect == Effect::Allow;
    if allows && (program.is_none() || args.iter().any(|a| a.known_text().is_none() || a.may_be_flag())) {
        return false;
    }
    if let Some(pattern) = &rule.argv {
        return matches_exactly(analysis, pattern, args, program);
    }
    let Some(wanted) = &rule.program else {
        return false;
    };
    let same = if wanted.contains('/') {
        program.is_some() && analysis.resolve_program(wanted).as_deref() == program
    } else {
        wanted == name
            && (program.is_none() || !allows || analysis.resolve_program(wanted).as_deref() == program)
    };
    let rest = args.get(1..).unwrap_or(&[]);
    same && rule.args.as_ref().is_none_or(|shape| matches_shape(shape, rest, allows))
        && (!allows || lists_every_option(analysis, rule, rest))
}

fn matches_exactly<'p>(
    analysis: &Analysis<'_>,
    pattern: &'p [ArgPattern],
    args: &[Arg],
    program: Option<&str>,
) -> bool {
    let texts = |pattern: &'p ArgPattern| match pattern {
        ArgPattern::Exact(exact) => std::slice::from_ref(exact),
        ArgPattern::OneOf(list) => list.one_of.as_slice(),
    };
    let Some((first, rest)) = pattern.split_first() else {
        return false;
    };
    program.is_some()
        && texts(first).iter().any(|name| analysis.resolve_program(name).as_deref() == program)
        && args.len() == pattern.len()
        && rest
            .iter()
            .zip(&args[1..])
            .all(|(p, a)| a.known_text().is_some_and(|text| texts(p).contains(&name_step_home(text))))
}

fn matches_shape(shape: &ArgShape, args: &[Arg], allows: bool) -> bool {
    let ArgShape { first, contains_any, deny_flags, deny_words, .. } = shape;
    if !first.is_empty() && !args.first().is_some_and(|a| first.contains(&a.text)) {
        return false;
    }
    let contains = |arg: &Arg| {
        contains_any.contains(&arg.text)
            || (!allows
                && contains_any.iter().any(|word| normalise_option(word) == normalise_option(&arg.text)))
    };
    if !contains_any.is_empty() && !args.iter().any(contains) {
        return false;
    }
    if gives_denied_flag(deny_flags, args, allows) {
        return false;
    }
    if deny_words.is_empty() {
        return true;
    }
    // An allow rule must not match by deception; a rule that denies or asks must not miss a command
    // because of its spelling.
    if allows {
        !args.iter().any(|arg| says_word(&arg.text, deny_words))
    } else {
        !args.iter().any(|arg| {
            let text = arg.text.to_lowercase();
            text.split(['/', ',', '=', '.', ':'])
                .any(|word| deny_words.iter().any(|denied| denied.to_lowercase() == word))
        })
    }
}

/// True if a flag keeps a rule from matching. A rule does not know which words are values of options:
/// `--` may be one and then does not end the options, and a word that looks like a flag may be one as well.
/// A command that a rule allows must not have the flags anywhere. A rule that denies or asks only lets a
/// command out that certainly has such a flag.
fn gives_denied_flag(deny_flags: &[String], args: &[Arg], allows: bool) -> bool {
    let is_denied = |arg: &Arg| deny_flags.iter().any(|flag| is_flag(&arg.text, flag));
    if allows {
        let is_spelled = |arg: &Arg| {
            deny_flags.iter().any(|flag| is_flag(&normalise_option(&arg.text), &normalise_option(flag)))
        };
        return args.iter().any(|arg| is_denied(arg) || is_spelled(arg));
    }
    let end = args.iter().position(|arg| arg.text == "--").unwrap_or(args.len());
    let may_be_value = |at: usize| at > 0 && args[at - 1].text.starts_with('-');
    (0..end).any(|at| is_denied(&args[at]) && !may_be_value(at))
}

/// True if a rule that lets a client reach a resource (a socket, the network, a credential) lists every
/// option of the command, or if the rule grants no such access. An option could redirect the client
/// from the intended place to a file or to another configuration, server or account.
fn lists_every_option(analysis: &Analysis<'_>, rule: &Rule, args: &[Arg]) -> bool {
    let shape = rule.args.as_ref();
    let reaches = || analysis.policy.sensitive_right(rule, analysis.env, analysis.roots).is_some();
    let is_open = shape.is_none_or(|shape| shape.allow_flags.is_empty() && shape.deny_words.is_empty());
    if rule.argv.is_some() || (is_open && !reaches()) {
        return true;
    }
    // The options in a rule's own examples are also listed.
    let examples = rule.matches.iter().flat_map(|example| example.split_whitespace());
    let listed = shape.iter().flat_map(|shape| shape.allow_flags.iter().map(String::as_str));
    let listed: Vec<&str> = listed.chain(examples.filter(|word| word.starts_with('-'))).collect();
    args.iter().all(|arg| is_listed(&arg.text, &listed))
}

/// True if an argument is not an option or is one in `listed`: by its whole name, with or without a
/// value after `=`, or as a cluster of listed letters.
fn is_listed(text: &str, listed: &[&str]) -> bool {
    let named = |flag: &str| flag.split('=').next().map(normalise_option);
    // `-o jsonpath-file=x`, `@x`.
    if text.starts_with('@') || text.contains("-file=") {
        return named(text).is_some_and(|name| listed.iter().any(|flag| named(flag).as_ref() == Some(&name)));
    }
    let Some(rest) = text.strip_prefix('-').filter(|rest| !rest.is_empty()) else { return true };
    if rest.starts_with('-') {
        return listed.iter().any(|flag| flag.starts_with("--") && named(flag) == named(text));
    }
    listed.contains(&text) || rest.chars().all(|c| listed.iter().any(|flag| flag.chars().eq(['-', c])))
}

/// Spelling of a long option for comparison: clients accept `_` for `-`.
fn normalise_option(text: &str) -> String {
    if text.starts_with("--") { text.replace('_', "-").to_lowercase() } else { text.to_owned() }
}

/// True if `text` contains one of `words` in any spelling that URLs allow. Text that cannot be decoded
/// contains all of them.
fn says_word(text: &str, words: &[String]) -> bool {
    let mut text = text.to_owned();
    while text.contains('%') {
        match percent::decode(&text) {
            Some(decoded) => text = decoded,
            None => return true,
        }
    }
    let split = |text: &str| -> Vec<String> {
        let parts = text.split(|c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
        parts.map(str::to_lowercase).collect()
    };
    let said = split(&text);
    words.iter().any(|word| {
        let word = split(word);
        !word.is_empty() && said.windows(word.len()).any(|part| part == word)
    })
}

/// True if `text` is `flag`, even if it is abbreviated or has its value attached.
pub(crate) fn is_flag(text: &str, flag: &str) -> bool {
    if let Some(long) = flag.strip_prefix("--") {
        let Some(given) = text.strip_prefix("--") else {
            return false;
        };
        let given = given.split('=').next().unwrap_or(given);
        return !given.is_empty() && long.starts_with(given);
    }
    match flag.strip_prefix('-') {
        Some(short) if short.chars().count() == 1 => {
            !text.starts_with("--") && text.starts_with('-') && text.contains(short)
        }
        Some(_) | None => text == flag || text.split('=').next() == Some(flag),
    }
}

/// True if an additional hard block names this command.
pub(crate) fn hard_rule_matches(rule: &HardRule, name: &str, args: &[Arg]) -> bool {
    (rule.program == name || rule.program.rsplit('/').next() == Some(name))
        && (rule.contains_any.is_empty()
            || args.iter().any(|a| a.unknown || rule.contains_any.contains(&a.text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_seen_in_every_spelling() {
        let words = ["secret".to_owned(), "secrets".to_owned()];
        for text in [
            "secrets",
            "Secret/x",
            "pods,secrets",
            "--raw=/api/v1/secrets?limit=1",
            "/api/v1/%73ecrets",
            "/api/v1/%2573ecrets",
            "/api/v1/secrets#",
            "/api/v1/secrets;x",
            "secrets.v1.",
            "100%",
            "%zz",
            "%ff",
        ] {
            assert!(says_word(text, &words), "{text}");
        }
        for text in ["pods", "web-0", "--tail=100", "secretariat", "-A", "a%20b"] {
            assert!(!says_word(text, &words), "{text}");
        }
    }

    /// Wherever `--` occurs, no command that an allow rule covers has a denied flag.
    #[test]
    fn no_double_dash_hides_a_denied_flag() {
        let policy = r#"
            version = 1
            [[rule]]
            id = "tar"
            effect = "allow"
            program = "tar"
            args = { first = ["-cf"], deny_flags = ["-I", "-F", "--to-command", "--use-compress-program"] }
            [[rule]]
            id = "commit"
            effect = "allow"
            program = "git"
            args = { first = ["commit"], deny_flags = ["--no-verify", "-n"] }
            [[rule]]
            id = "cargo"
            effect = "allow"
            program = "cargo"
            args = { first = ["test"], deny_flags = ["--config", "-Z"] }
            [[rule]]
            id = "push"
            effect = "deny"
            program = "hg"
            args = { first = ["push"], deny_flags = ["--dry-run"] }
        "#;
        let policy = crate::Policy::load(policy, "p").unwrap();
        let env = crate::DecisionEnv::fixture();
        let verdict = |words: &[&str]| {
            policy.decide(&crate::Proposal::argv(words.iter().map(|word| (*word).to_owned())), &env).verdict
        };
        for (covered, flags) in [
            (&["tar", "-cf", "x.tar", "--exclude", "a", "b", "c"][..], &["-I", "-vI", "--use-comp=./x"][..]),
            (&["git", "commit", "-m", "a", "-F", "b", "c"], &["-n", "-qn", "--no-ver", "--no-verify"]),
            (&["cargo", "test", "-p", "a", "--features", "b", "c"], &["-Zx", "--config=x", "--conf"]),
        ] {
            assert_eq!(verdict(covered), crate::Verdict::Allow, "{covered:?}");
            for flag in flags {
                for (dashes, at) in (2..=covered.len()).flat_map(|a| (a..=covered.len()).map(move |b| (a, b)))
                {
                    let mut words = covered.to_vec();
                    words.insert(at, flag);
                    words.insert(dashes, "--");
                    assert_ne!(verdict(&words), crate::Verdict::Allow, "{words:?}");
                }
            }
        }
        assert_eq!(verdict(&["hg", "push", "--opt", "--dry-run"]), crate::Verdict::Deny);
        assert_eq!(verdict(&["hg", "push", "--", "--dry-run"]), crate::Verdict::Deny);
        assert_ne!(verdict(&["hg", "push", "--dry-run"]), crate::Verdict::Deny);
    }

    #[test]
    fn a_rule_that_reaches_something_lists_its_options() {
        let listed = ["-A", "-o", "-n", "--tail", "--all-namespaces", "--cert-file"];
        for text in [
            "pods",
            "web-0",
            "-A",
            "-An",
            "--tail",
            "--tail=5",
            "--Tail",
            "--all_namespaces",
            "--cert-file=x",
        ] {
            assert!(is_listed(text, &listed), "{text}");
        }
        for text in [
            "--",
            "-f",
            "-Af",
            "-ojson",
            "--tai",
            "--tail-x",
            "---tail",
            "--kubeconfig=x",
            "--kube_config",
            "@x",
            "jsonpath-file=x",
            "--insecure_skip_tls_verify",
            "-tail",
        ] {
            assert!(!is_listed(text, &listed), "{text}");
        }
    }

    /// Every option of a client, in every spelling, against a rule of each kind that lists none of
    /// them.
    #[test]
    fn no_spelling_of_an_option_passes_a_rule_that_does_not_list_it() {
        let options =
            ["kubeconfig", "insecure-skip-tls-verify", "certificate-authority", "as-uid", "kuberc", "host"];
        let spell = |name: &str| {
            let spelled = [
                name.to_owned(),
                name.replace('-', "_"),
                name.to_uppercase(),
                name[..name.len() - 1].to_owned(),
            ];
            spelled.map(|name| [format!("--{name}"), format!("--{name}=x"), format!("-{name}")]).concat()
        };
        for grant in [
            "net = { hosts = [\"k8s.internal:6443\"] }",
            "net = \"host-network\"",
            "unix = [\"/run/x.sock\"], unenforceable = \"x\"",
            "fs_read = [\"~/.kube/config\"]",
            "env = [\"TOKEN\"]",
            "connect = [80]",
        ] {
            let text = format!(
                "version = 1\n[[rule]]\nid = \"k\"\neffect = \"allow\"\nprogram = \"kubectl\"\n\
                 args = {{ first = [\"get\"], allow_flags = [\"-A\"] }}\ngrant = {{ {grant} }}\n\
                 match = [\"kubectl get pods --tail=3\"]\n"
            );
            let policy = crate::Policy::load(&text, "p").unwrap();
            let env = crate::DecisionEnv::fixture();
            let verdict = |word: &str| {
                policy.decide(&crate::Proposal::argv(["kubectl", "get", "pods", word]), &env).verdict
            };
            for word in options.iter().flat_map(|name| spell(name)) {
                assert_ne!(verdict(&word), crate::Verdict::Allow, "{grant}: {word}");
            }
            for word in ["-A", "--tail=7", "web"] {
                assert_eq!(verdict(word), crate::Verdict::Allow, "{grant}: {word}");
            }
        }
    }

    #[test]
    fn flags_are_seen_abbreviated_attached_and_in_clusters() {
        assert!(is_flag("--config", "--config"));
        assert!(is_flag("--config=x", "--config"));
        assert!(is_flag("--conf", "--config"));
        assert!(is_flag("-Zunstable", "-Z"));
        assert!(is_flag("-qZ", "-Z"));
        assert!(!is_flag("--color", "--config"));
        assert!(!is_flag("-z", "-Z"));
        assert!(!is_flag("--", "--config"));
    }
}
