//! Names of environment variables.

use std::ffi::OsStr;

/// Whether a process can be given a variable of this name. The kernel passes on `NAME=VALUE` and nothing more: a
/// name that holds `=` would set another variable than the one which was judged.
#[must_use]
pub fn is_variable_name(name: impl AsRef<OsStr>) -> bool {
    let name = name.as_ref().as_encoded_bytes();
    !name.is_empty() && !name.contains(&b'=') && !name.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_sets_no_other_variable() {
        for name in ["A", "a.b", "BASH_FUNC_x%%", "npm_config_//host/:_auth", "ä", "1", " "] {
            assert!(is_variable_name(name), "{name}");
        }
        for name in ["", "=", "PATH=/x", "PATH=/x:", "=A", "A=", "A\0", "\0"] {
            assert!(!is_variable_name(name), "{name:?}");
        }
    }
}
