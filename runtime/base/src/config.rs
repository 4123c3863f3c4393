//! Paths of the operator's files.

use std::path::PathBuf;

/// A file in the directory `lobster` of the configuration directory: `XDG_CONFIG_HOME` if it is an absolute path,
/// otherwise `~/.config` (XDG Base Directory Specification). `None` without a home directory.
pub fn config_file(env: impl Fn(&str) -> Option<String>, name: &str) -> Option<PathBuf> {
    let set = |variable: &str| env(variable).filter(|value| !value.trim().is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").filter(|dir| dir.is_absolute());
    let config = config.or_else(|| Some(set("HOME")?.join(".config")))?;
    Some(config.join("lobster").join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_directory_is_that_of_the_specification() {
        let place = |variables: &[(&str, &str)]| {
            let env = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            config_file(env, "x.toml")
        };
        assert_eq!(place(&[("HOME", "/h")]), Some("/h/.config/lobster/x.toml".into()));
        assert_eq!(place(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "/c")]), Some("/c/lobster/x.toml".into()));
        assert_eq!(
            place(&[("HOME", "/h"), ("XDG_CONFIG_HOME", "c")]),
            Some("/h/.config/lobster/x.toml".into())
        );
        assert_eq!(place(&[("HOME", " ")]), None);
    }
}
