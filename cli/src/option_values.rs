//! Options with a value, for the commands whose words no argument parser reads: `run`, `resume` and `graph`.
//!
//! An option without its value, or given twice, is an error as in every other command: lobster must
//! never guess which policy or answer was meant, and least of all ignore it.

use crate::exit::CommandError;

/// True if `word` is the option `name`. Its value is then put into `into`: the text after `=`, else the
/// next word.
///
/// # Errors
/// The option has no value, or `into` already has one.
pub(crate) fn take_value<'w>(
    name: &str,
    word: &str,
    rest: &mut impl Iterator<Item = &'w String>,
    into: &mut Option<String>,
) -> Result<bool, CommandError> {
    let Some(value) = match_option(name, word, rest)? else { return Ok(false) };
    if into.replace(value).is_some() {
        return Err(CommandError::usage(format!("{name} is given twice")));
    }
    Ok(true)
}

/// The value of the option `name`, if `word` is that option.
///
/// # Errors
/// It has no value. A word that begins with `--` is not a value but the next option; `--name=--value`
/// has a value.
pub(crate) fn match_option<'w>(
    name: &str,
    word: &str,
    rest: &mut impl Iterator<Item = &'w String>,
) -> Result<Option<String>, CommandError> {
    let Some(attached) = word.strip_prefix(name) else { return Ok(None) };
    if let Some(value) = attached.strip_prefix('=') {
        return Ok(Some(value.to_owned()));
    }
    if !attached.is_empty() {
        return Ok(None);
    }
    match rest.next() {
        Some(next) if !next.starts_with("--") => Ok(Some(next.clone())),
        _ => Err(CommandError::usage(format!("{name} needs a value"))),
    }
}
