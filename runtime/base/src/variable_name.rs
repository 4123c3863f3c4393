//! Names of environment variables.

use std::ffi::{OsStr, OsString};

/// A name that no variable can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot name a variable: it is empty, or holds `=` or a NUL character")]
pub struct BadVariableName(pub OsString);

/// True if a variable of this name can be passed to a process. The kernel only passes `NAME=VALUE`, so a name that
/// contains `=` would set a variable other than the one checked.
#[must_use]
pub fn is_variable_name(name: impl AsRef<OsStr>) -> bool {
    let name = name.as_ref().as_encoded_bytes();
    !name.is_empty() && !name.contains(&b'=') && !name.contains(&0)
}

/// Rejects a name of a variable that cannot be passed to a process.
///
/// # Errors
/// The problem of the name.
pub fn check_variable_name(name: impl AsRef<OsStr>) -> Result<(), BadVariableName> {
    let name = name.as_ref();
    if is_variable_name(name) { Ok(()) } else { Err(BadVariableName(name.to_owned())) }
}

/// The name of an argument's variable, without its prefix: `my-arg.v2` becomes `MY_ARG_V2`. Empty if the argument's
/// name contains no letter and no digit that a variable can have.
#[must_use]
pub fn for_argument(argument: &str) -> String {
    let upper = argument.to_uppercase();
    let words = upper.split(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit());
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_sets_no_other_variable() {
        for name in ["A", "a.b", "BASH_FUNC_x%%", "npm_config_//host/:_auth", "ä", "1", " "] {
            assert_eq!(check_variable_name(name), Ok(()), "{name}");
        }
        for name in ["", "=", "PATH=/x", "PATH=/x:", "=A", "A=", "A\0", "\0"] {
            assert_eq!(check_variable_name(name), Err(BadVariableName(name.into())), "{name:?}");
        }
        assert_eq!(
            BadVariableName("A=".into()).to_string(),
            "\"A=\" cannot name a variable: it is empty, or holds `=` or a NUL character"
        );
    }

    #[test]
    fn arguments_have_variables() {
        for (argument, variable) in [
            ("my-arg.v2", "MY_ARG_V2"),
            ("__x__", "X"),
            ("ünï", "N"),
            ("a--b", "A_B"),
            ("a b", "A_B"),
            ("straße", "STRASSE"),
            ("", ""),
            ("日本", ""),
        ] {
            assert_eq!(for_argument(argument), variable);
        }
    }
}
