//! Rules: whether one speaks of a command.

use super::analysis::{Analysis, Arg};
use super::file::{ArgPattern, ArgShape, Effect, HardRule, Rule};
use lobster_base::percent;

/// Whether `rule` matches the command `args` whose program is called `name`.
///
/// An allow rule matches only what is fully known; a deny rule matches
/// whatever could be meant.
pub(crate) fn matches(
    analysis: &Analysis<'_>,
    rule: &Rule,
    name: &str,
    args: &[Arg],
    program: Option<&str>,
) -> bool {
    if rule.effect == Effect::Allow
        && (program.is_none() || args.iter().any(|a| a.known().is_none() || a.may_be_flag()))
    {
        return false;
    }
    if let Some(pattern) = &rule.argv {
        return matches_exactly(analysis, pattern, args, program);
    }
    let Some(wanted) = &rule.program else {
        return false;
    };
    let same = if wanted.contains('/') {
        program.is_some() && analysis.resolve(wanted).as_deref() == program
    } else {
        wanted == name
            && (program.is_none()
                || rule.effect != Effect::Allow
                || analysis.resolve(wanted).as_deref() == program)
    };
    same && rule.args.as_ref().is_none_or(|shape| {
        let rest = args.get(1..).unwrap_or(&[]);
        matches_shape(shape, rest, rule.effect == Effect::Allow)
    }) && (rule.effect != Effect::Allow || keeps_its_place(rule, args.get(1..).unwrap_or(&[])))
}

fn matches_exactly(
    analysis: &Analysis<'_>,
    pattern: &[ArgPattern],
    args: &[Arg],
    program: Option<&str>,
) -> bool {
    let accepts = |pattern: &ArgPattern, text: &str| match pattern {
        ArgPattern::Exact(exact) => exact == text,
        ArgPattern::OneOf(list) => list.one_of.iter().any(|one| one == text),
    };
    let Some((first, rest)) = pattern.split_first() else {
        return false;
    };
    let same_program = match first {
        ArgPattern::Exact(exact) => program.is_some() && analysis.resolve(exact).as_deref() == program,
        ArgPattern::OneOf(list) => {
            list.one_of.iter().any(|one| program.is_some() && analysis.resolve(one).as_deref() == program)
        }
    };
    same_program
        && args.len() == pattern.len()
        && rest.iter().zip(&args[1..]).all(|(p, a)| a.known().is_some_and(|text| accepts(p, text)))
}

/// Options that lead a client elsewhere than its rule means: to a file, to
/// another configuration, server or account. Words cannot see through them.
const CARRIERS: &[&str] = &[
    "-f",
    "-k",
    "-s",
    "--as",
    "--as-group",
    "--as-uid",
    "--as-user-extra",
    "--cache-dir",
    "--certificate-authority",
    "--client-certificate",
    "--client-key",
    "--cluster",
    "--config",
    "--config-file",
    "--context",
    "--env-file",
    "--file",
    "--filename",
    "--from-file",
    "--host",
    "--insecure-skip-tls-verify",
    "--kubeconfig",
    "--kustomize",
    "--log-file",
    "--password",
    "--password-file",
    "--profile-output",
    "--raw",
    "--server",
    "--template",
    "--tls-server-name",
    "--token",
    "--token-file",
    "--user",
    "--username",
];

/// Options by which the client of a socket takes another one, or another
/// configuration.
const SOCKET_CARRIERS: &[&str] = &[
    "-H",
    "-c",
    "--config",
    "--context",
    "--host",
    "--tlscacert",
    "--tlscert",
    "--tlskey",
    "--url",
    "--connection",
];

fn matches_shape(shape: &ArgShape, args: &[Arg], allows: bool) -> bool {
    let ArgShape { first, contains_any, deny_flags, deny_words, allow_flags } = shape;
    if !first.is_empty() && !args.first().is_some_and(|a| first.contains(&a.text)) {
        return false;
    }
    if !contains_any.is_empty() && !args.iter().any(|a| contains_any.contains(&a.text)) {
        return false;
    }
    if gives_denied_flag(deny_flags, args, allows) {
        return false;
    }
    if deny_words.is_empty() {
        return true;
    }
    // A rule that allows must not be led astray; one that forbids or asks must
    // not lose sight of a command because of how it is written.
    if allows {
        !args
            .iter()
            .any(|arg| is_carrier(&arg.text, CARRIERS, allow_flags) || says_word(&arg.text, deny_words))
    } else {
        !args.iter().any(|arg| {
            let text = arg.text.to_lowercase();
            text.split(['/', ',', '=', '.', ':'])
                .any(|word| deny_words.iter().any(|denied| denied.to_lowercase() == word))
        })
    }
}

/// Whether a flag keeps a rule from matching. Which words are values of options,
/// a rule does not say: `--` may be one, and does not end the options then, and
/// so may what looks like a flag. What a rule allows has none of the flags
/// anywhere; one that forbids or asks lets only a flag out that is sure to be one.
fn gives_denied_flag(deny_flags: &[String], args: &[Arg], allows: bool) -> bool {
    let is_denied = |arg: &Arg| deny_flags.iter().any(|flag| is_flag(&arg.text, flag));
    if allows {
        return args.iter().any(is_denied);
    }
    let end = args.iter().position(|arg| arg.text == "--").unwrap_or(args.len());
    let may_be_value = |at: usize| at > 0 && args[at - 1].text.starts_with('-');
    (0..end).any(|at| is_denied(&args[at]) && !may_be_value(at))
}

/// Whether a command that reaches a socket by its rule stays with that socket.
fn keeps_its_place(rule: &Rule, args: &[Arg]) -> bool {
    let allowed = rule.args.as_ref().map_or(&[][..], |shape| &shape.allow_flags);
    rule.grant.unix.is_empty()
        || rule.argv.is_some()
        || !args.iter().any(|arg| is_carrier(&arg.text, SOCKET_CARRIERS, allowed))
}

fn is_carrier(text: &str, carriers: &[&str], allowed: &[String]) -> bool {
    let gives = |flag: &str| {
        let is_short = flag.len() == 2;
        // What follows these letters is a value of theirs.
        let in_value = is_short && text.starts_with(['-']) && text[1..].starts_with(['o', 'n', 'l', 'L']);
        !in_value && is_flag(text, flag) && (is_short || text.split('=').next().is_some_and(|t| t.len() > 3))
    };
    let gives_allowed = || allowed.iter().any(|flag| text.split('=').next() == Some(flag.as_str()));
    // `-o jsonpath-file=x`, `@x`.
    let names_file = text.starts_with('@') || text.contains("-file=");
    (names_file || carriers.iter().any(|flag| gives(flag))) && !gives_allowed()
}

/// Whether `text` says one of `words`, in any spelling that a URL knows. What
/// cannot be decoded says all of them.
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

/// Whether `text` gives `flag`, also abbreviated or with its value attached.
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

/// Whether an added hard block names this command.
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

    /// Wherever `--` stands, of what an allow rule covers nothing has a denied flag.
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
    fn options_that_lead_elsewhere_are_carriers() {
        for text in [
            "-f",
            "-fx.yaml",
            "-k",
            "--kubeconfig=x",
            "--kubec=x",
            "--as=a",
            "-Af",
            "--raw",
            "@x",
            "-ojsonpath-file=x",
        ] {
            assert!(is_carrier(text, CARRIERS, &[]), "{text}");
        }
        for text in ["-o", "-ojson", "-nkube-system", "-A", "--all-namespaces", "--tail=100", "-w", "web"] {
            assert!(!is_carrier(text, CARRIERS, &[]), "{text}");
        }
        assert!(!is_carrier("-f", CARRIERS, &["-f".to_owned()]));
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
