//! The settings of this program in the environment: each value is checked before anything runs.

use lobster_runtime::setting::{BadSetting, Checked, check_settings};

use crate::render::pager;
use crate::{events, live, logging, prepare, retention, signals};

/// The settings that only the program reads.
static OWN: [&dyn Checked; 9] = [
    &retention::SETTING,
    &live::SETTING,
    &logging::FILTER,
    &logging::FORMAT,
    &events::SETTING,
    &prepare::NOTIFY_LIMIT,
    &prepare::NOTIFY_ON,
    &signals::DIE_WITH_PARENT,
    &pager::SETTING,
];

/// Commands that ignore all settings: they explain, or complete words.
const WITHOUT: [&str; 11] = [
    "help",
    "-h",
    "--help",
    "version",
    "--version",
    "-v",
    "--describe",
    "completions",
    "complete",
    "man",
    "skill",
];

/// Checks that each setting can be read, unless these words need none.
///
/// # Errors
/// The first setting that cannot be read.
pub(crate) fn check(words: &[String]) -> Result<(), BadSetting> {
    if words.first().is_none_or(|word| WITHOUT.contains(&word.as_str())) {
        return Ok(());
    }
    let env = |name: &str| std::env::var_os(name);
    OWN.iter().try_for_each(|setting| setting.check_env(&env))?;
    check_settings(&env)
}
