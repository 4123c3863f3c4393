//! Rules: whether one speaks of a command.

use super::analysis::{Analysis, Arg};
use super::file::{ArgPattern, ArgShape, Effect, HardRule, Rule};

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
        && (program.is_none() || args.iter().any(|a| a.unknown || a.may_be_flag()))
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
        matches_shape(shape, rest)
    })
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

fn matches_shape(shape: &ArgShape, args: &[Arg]) -> bool {
    let ArgShape { first, contains_any, deny_flags, deny_words } = shape;
    if !first.is_empty() && !args.first().is_some_and(|a| first.contains(&a.text)) {
        return false;
    }
    if !contains_any.is_empty() && !args.iter().any(|a| contains_any.contains(&a.text)) {
        return false;
    }
    let before_end = args.iter().take_while(|a| a.text != "--");
    for arg in before_end {
        if deny_flags.iter().any(|flag| is_flag(&arg.text, flag)) {
            return false;
        }
    }
    !args.iter().any(|arg| {
        let text = arg.text.to_lowercase();
        text.split(['/', ',', '=', '.', ':'])
            .any(|word| deny_words.iter().any(|denied| denied.to_lowercase() == word))
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
