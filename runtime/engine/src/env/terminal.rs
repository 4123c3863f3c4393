//! The variables of the terminal and the locale. A run keeps them from the process that started it: a person often
//! approves at another terminal, and the command then still runs with the values that were part of its question.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use super::Env;

/// The names. None of these variables is used for secrets, so a record may contain their values.
const NAMES: [&str; 23] = [
    "COLORTERM",
    "COLUMNS",
    "FORCE_COLOR",
    "LANG",
    "LANGUAGE",
    "LC_ADDRESS",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
    "LINES",
    "NO_COLOR",
    "PATH",
    "TERM",
    "TZ",
];

/// Longest value that a record keeps, in bytes. A longer one belongs to the process that runs the command.
const MAX_VALUE: usize = 4096;

impl Env {
    /// The inherited variables of the terminal and the locale that a record may contain: text, and no secret.
    pub(crate) fn terminal_variables(&self, is_clear: &dyn Fn(&str) -> bool) -> BTreeMap<String, String> {
        let kept = |name: &&str| {
            let value = self.inherited.get(OsStr::new(name))?.to_str()?;
            let is_private = self.withheld.contains(OsStr::new(name)) || self.tokens.contains(*name);
            let is_kept = !is_private && value.len() <= MAX_VALUE && is_clear(value);
            is_kept.then(|| ((*name).to_owned(), value.to_owned()))
        };
        NAMES.iter().filter_map(kept).collect()
    }

    /// This environment with the recorded variables of the terminal and the locale in place of its own. Other names in
    /// the record are ignored.
    pub(crate) fn with_terminal_variables(
        &self,
        recorded: &BTreeMap<String, String>,
        is_clear: &dyn Fn(&str) -> bool,
    ) -> Self {
        let own = self.terminal_variables(is_clear);
        if own == *recorded {
            return self.clone();
        }
        let mut inherited = BTreeMap::clone(&self.inherited);
        inherited.retain(|name, _| !name.to_str().is_some_and(|name| own.contains_key(name)));
        let known = recorded.iter().filter(|(name, _)| NAMES.contains(&name.as_str()));
        inherited.extend(known.map(|(name, value)| (OsString::from(name), OsString::from(value))));
        Self { inherited: inherited.into(), ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(vars: &[(&str, &str)]) -> Env {
        Env::from_inherited(vars.iter().map(|(name, value)| (OsString::from(name), OsString::from(value))))
    }

    #[test]
    fn the_terminal_of_the_beginning_is_used_later() {
        let clear = |text: &str| text != "hunter2";
        let began = env(&[("TERM", "xterm"), ("LANG", "hunter2"), ("FOO", "1")]);
        let recorded = began.terminal_variables(&clear);
        assert_eq!(recorded, BTreeMap::from([("TERM".to_owned(), "xterm".to_owned())]));
        assert_eq!(began.with_terminal_variables(&recorded, &clear).get("LANG"), Some("hunter2".to_owned()));
        let later = env(&[("TERM", "dumb"), ("TZ", "UTC"), ("FOO", "2")]);
        let later = later.with_terminal_variables(&recorded, &clear);
        let values = ["TERM", "TZ", "FOO"].map(|name| later.get(name));
        assert_eq!(values, [Some("xterm".to_owned()), None, Some("2".to_owned())]);
        let forged = BTreeMap::from([("LD_PRELOAD".to_owned(), "/tmp/x.so".to_owned())]);
        assert_eq!(env(&[]).with_terminal_variables(&forged, &clear).get("LD_PRELOAD"), None);
    }
}
