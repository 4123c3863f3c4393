//! Options with a value, for the commands whose words no argument parser reads: `run`, `resume` and `graph`.
//!
//! An option without its value, and one that is given twice, is an error there as in every other command: which
//! policy or which answer was meant must never be guessed, least of all as none.

use crate::exit::CommandError;

/// Whether `word` is the option `name`. If so, its value is put into `into`: what stands behind `=`, else the next word.
///
/// # Errors
/// When there is no value, and when there is one already.
pub(crate) fn take<'w>(
    name: &str,
    word: &str,
    rest: &mut impl Iterator<Item = &'w String>,
    into: &mut Option<String>,
) -> Result<bool, CommandError> {
    let Some(value) = value(name, word, rest)? else { return Ok(false) };
    if into.replace(value).is_some() {
        return Err(CommandError::usage(format!("{name} is given twice")));
    }
    Ok(true)
}

/// The value of the option `name`, if `word` is that option.
///
/// # Errors
/// When it has none. A word that begins with `--` is no value, but the next option; `--name=--value` is one.
pub(crate) fn value<'w>(
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
