//! Settings in environment variables, and the parsing of their values.
//!
//! A value that cannot be parsed is an error that names the variable, and is never treated as unset: if a limit or a
//! rule was set, lobster must not run without it.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::text::{self, Count};

/// A variable, and the meaning of its value.
#[derive(Clone, Copy)]
pub struct Setting<T> {
    /// The variable.
    pub name: &'static str,
    /// Description of valid values, after "must be".
    allowed: &'static str,
    /// Parses a trimmed value that is not blank.
    read: fn(&str) -> Option<T>,
    /// True if an error must not repeat the value.
    is_secret: bool,
}

/// A setting whose value cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSetting {
    /// Its value is not text, or not valid.
    #[error("{name} must be {allowed}, not {value}")]
    Value { name: &'static str, allowed: &'static str, value: String },
    /// The same, and the value is a secret.
    #[error("{name} must be {allowed}")]
    Hidden { name: &'static str, allowed: &'static str },
}

/// Most characters shown of a value; more would hide the problem.
const MOST_SHOWN: usize = 80;

impl<T> Setting<T> {
    /// A setting whose values are parsed by `read`.
    pub const fn new(name: &'static str, allowed: &'static str, read: fn(&str) -> Option<T>) -> Self {
        Self { name, allowed, read, is_secret: false }
    }

    /// The same, but no message repeats its value.
    #[must_use]
    pub const fn kept_secret(self) -> Self {
        Self { is_secret: true, ..self }
    }

    /// The value in the environment; `None` if it is unset or blank.
    ///
    /// # Errors
    /// If the value is not text, or not valid.
    pub fn read_env(&self, env: impl Fn(&str) -> Option<OsString>) -> Result<Option<T>, BadSetting> {
        env(self.name).map_or(Ok(None), |value| self.parse_value(&value))
    }

    /// The parsed value; `None` if it is blank.
    ///
    /// # Errors
    /// As [`Setting::read_env`].
    pub fn parse_value(&self, value: &OsStr) -> Result<Option<T>, BadSetting> {
        let name = self.name;
        let refused = |allowed| match self.is_secret {
            true => BadSetting::Hidden { name, allowed },
            false => BadSetting::Value { name, allowed, value: quote_clipped(value) },
        };
        match value.to_str().map(str::trim) {
            None => Err(refused("text (UTF-8)")),
            Some("") => Ok(None),
            Some(text) => (self.read)(text).map(Some).ok_or_else(|| refused(self.allowed)),
        }
    }
}

impl Setting<String> {
    /// Accepts any text.
    pub const fn any_text(name: &'static str) -> Self {
        Self::new(name, "text (UTF-8)", |text| Some(text.to_owned()))
    }
}

impl Setting<bool> {
    /// On or off.
    pub const fn switch(name: &'static str) -> Self {
        Self::new(name, "on or off (or true, yes, y, 1; false, no, n, 0)", read_switch)
    }
}

/// A setting whose value can be checked, whichever type it has.
pub trait Checked: Sync {
    /// The variable.
    fn variable_name(&self) -> &'static str;

    /// Checks that the value in the environment can be parsed.
    ///
    /// # Errors
    /// If it cannot.
    fn check_env(&self, env: &dyn Fn(&str) -> Option<OsString>) -> Result<(), BadSetting>;
}

impl<T> Checked for Setting<T> {
    fn variable_name(&self) -> &'static str {
        self.name
    }

    fn check_env(&self, env: &dyn Fn(&str) -> Option<OsString>) -> Result<(), BadSetting> {
        self.read_env(env).map(|_| ())
    }
}

/// The path in a value, whose bytes need not be text; `None` if it is blank.
#[must_use]
pub fn read_path(value: OsString) -> Option<PathBuf> {
    match value.to_str().map(str::trim) {
        None => Some(value.into()),
        Some("") => None,
        Some(text) => Some(text.into()),
    }
}

/// The meaning of a word for yes or no.
fn read_switch(word: &str) -> Option<bool> {
    match word.to_ascii_lowercase().as_str() {
        "on" | "true" | "yes" | "y" | "1" => Some(true),
        "off" | "false" | "no" | "n" | "0" => Some(false),
        _ => None,
    }
}

/// A whole number above 0.
#[must_use]
pub fn read_count(text: &str) -> Option<u64> {
    text.parse().ok().filter(|count| *count > 0)
}

/// The value in quotes; bytes that are not text, and control characters, are escaped.
fn quote_clipped(value: &OsStr) -> String {
    text::clip(&format!("{value:?}"), MOST_SHOWN, Count::Chars).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    const SIZE: Setting<u64> = Setting::new("SIZE", "a whole number above 0", read_count);

    fn parse_bytes<T>(setting: &Setting<T>, bytes: &[u8]) -> Result<Option<T>, String> {
        setting.parse_value(&OsString::from_vec(bytes.to_vec())).map_err(|error| error.to_string())
    }

    #[test]
    fn a_value_is_read_or_refused_and_never_passed_over() {
        assert_eq!(parse_bytes(&SIZE, b" 7 "), Ok(Some(7)));
        assert_eq!(parse_bytes(&SIZE, b"  "), Ok(None));
        assert_eq!(SIZE.read_env(|_| None), Ok(None));
        assert_eq!(
            parse_bytes(&SIZE, b"0"),
            Err(r#"SIZE must be a whole number above 0, not "0""#.to_owned())
        );
        assert_eq!(
            parse_bytes(&SIZE, b"\xff\x1b[2J"),
            Err(r#"SIZE must be text (UTF-8), not "\xFF\u{1b}[2J""#.to_owned())
        );
        let long = parse_bytes(&SIZE, &[b'x'; 5000]).unwrap_err();
        assert!(long.len() < 200 && long.ends_with('…'), "{long}");
        assert_eq!(
            parse_bytes(&Setting::any_text("KEY").kept_secret(), b"s3cret\xff"),
            Err("KEY must be text (UTF-8)".to_owned())
        );
    }

    #[test]
    fn a_switch_is_on_or_off() {
        let switch = Setting::switch("S");
        for word in ["1", "true", "YES", "y", "on"] {
            assert_eq!(parse_bytes(&switch, word.as_bytes()), Ok(Some(true)), "{word}");
        }
        for word in ["0", "False", "no", "n", "off"] {
            assert_eq!(parse_bytes(&switch, word.as_bytes()), Ok(Some(false)), "{word}");
        }
        assert!(parse_bytes(&switch, b"maybe").is_err());
    }
}
