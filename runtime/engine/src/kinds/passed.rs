//! The variables that a command gets from the environment of the run, by the `pass` of the policy or the `env` of a
//! rule. An approval is bound to their values.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use serde_json::Value;

use crate::env::Env;
use crate::run::Run;
use lobster_base::digest::Digest;
use lobster_policy::Grant;

/// A step's environment in which the terminal and the locale are those of the process that started the run.
pub(crate) fn restore_terminal(run: &Run<'_>, env: &Env) -> Env {
    match &run.surroundings.terminal {
        Some(recorded) if !run.services.policy.is_open() => {
            env.with_terminal_variables(recorded, &|text| run.services.is_clear(text))
        }
        _ => env.clone(),
    }
}

/// The variables of the environment that a grant passes to a command.
pub(super) fn list_passed(grant: &Grant, env: &Env) -> BTreeMap<OsString, OsString> {
    let passes = |name: &str| {
        if env.is_token(OsStr::new(name)) {
            // A pattern may match tokens that nobody recognised as such, so lobster's own keys need an exact name.
            return grant.env.iter().any(|exact| exact == name);
        }
        grant.env.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => pattern == name,
        })
    };
    let passed = env.for_operator().filter(|(name, _)| name.to_str().is_some_and(passes));
    passed.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The same by the digests of their values, without those that the policy sets. A key of lobster's own is left out,
/// like a secret: only its name belongs to the question.
pub(super) fn digest_passed(run: &Run<'_>, grant: &Grant, env: &Env) -> BTreeMap<String, Digest> {
    let policy = &run.services.policy;
    if policy.is_open() {
        return BTreeMap::new();
    }
    let is_set = |name: &str| name == "HOME" || policy.file().sandbox.env.set.contains_key(name);
    let digest = |(name, value): (OsString, OsString)| {
        let name = name.into_string().ok().filter(|name| !is_set(name) && !env.is_token(OsStr::new(name)))?;
        Some((name, Digest::of_bytes(value.as_encoded_bytes())))
    };
    list_passed(grant, &restore_terminal(run, env)).into_iter().filter_map(digest).collect()
}

/// The variables that a component is granted, by the digests of their values, without lobster's own keys.
pub(super) fn digest_granted(granted: &[(String, String)], env: &Env) -> BTreeMap<String, Digest> {
    let granted = granted.iter().filter(|(name, _)| !env.is_token(OsStr::new(name)));
    granted.map(|(name, value)| (name.clone(), Digest::of_bytes(value.as_bytes()))).collect()
}

/// The variables whose values are not those of the question, given the question's field.
pub(super) fn list_changes(asked: Value, now: &BTreeMap<String, Digest>) -> Vec<String> {
    // Questions of earlier versions are without it.
    let Ok(asked) = serde_json::from_value::<BTreeMap<String, Digest>>(asked) else { return Vec::new() };
    let mut names: Vec<&String> = asked.keys().chain(now.keys()).collect();
    names.sort();
    names.dedup();
    names.retain(|name| asked.get(*name) != now.get(*name));
    names.into_iter().map(|name| format!("the value of the variable {name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_variable_is_named_without_its_value() {
        let of = |vars: &[(&str, &str)]| -> BTreeMap<String, Digest> {
            vars.iter()
                .map(|(name, value)| ((*name).to_owned(), Digest::of_bytes(value.as_bytes())))
                .collect()
        };
        let asked = serde_json::to_value(of(&[("A", "1"), ("B", "1"), ("C", "1")])).unwrap();
        let now = of(&[("A", "1"), ("B", "2"), ("D", "1")]);
        let expected = ["B", "C", "D"].map(|name| format!("the value of the variable {name}"));
        assert_eq!(list_changes(asked, &now), expected);
        assert_eq!(list_changes(Value::Null, &now), Vec::<String>::new());
    }
}
