//! Logs on stderr, on request: `--log` and `--log-format`, else `LOBSTER_LOG` and `LOBSTER_LOG_FORMAT`.
//! Without them, logging costs nothing.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::{FilterFn, LevelFilter, filter_fn};
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use lobster_runtime::setting::Setting;

use crate::exit::CommandError;
use crate::option_values;

/// The requested logging.
#[derive(Clone, Debug, Default, PartialEq, clap::Args)]
pub(crate) struct Options {
    /// Writes a log to stderr: `info`, `debug`, `lobster_models=debug` (`LOBSTER_LOG`).
    #[arg(long, global = true, value_name = "FILTER")]
    pub(crate) log: Option<String>,
    /// The form of the log lines: `text` or `json` (`LOBSTER_LOG_FORMAT`).
    #[arg(long, global = true, value_name = "FORMAT")]
    pub(crate) log_format: Option<String>,
}

/// Takes the options out of words that no argument parser reads.
///
/// # Errors
/// An option has no value, or two.
pub(crate) fn take_options(words: &[String]) -> Result<(Options, Vec<String>), CommandError> {
    let (mut options, mut rest) = (Options::default(), Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let is_ours = option_values::take_value("--log", word, &mut words, &mut options.log)?
            || option_values::take_value("--log-format", word, &mut words, &mut options.log_format)?;
        if !is_ours {
            rest.push(word.clone());
        }
    }
    Ok((options, rest))
}

/// The filter if only a format is given.
const DEFAULT: &str = "info";

/// `LOBSTER_LOG`.
pub(crate) const FILTER: Setting<String> =
    Setting::new("LOBSTER_LOG", "a filter, such as debug or lobster_models=debug,info", |text| {
        is_filter(text).then(|| text.to_owned())
    });

/// True if a filter can match something of this program: a bare word is a level or a target.
fn is_filter(text: &str) -> bool {
    let means_us = |word: &str| word.starts_with("lobster") || word.parse::<LevelFilter>().is_ok();
    let mut directives = text.split(',').map(str::trim).filter(|directive| !directive.is_empty());
    EnvFilter::try_new(text).is_ok()
        && directives.all(|directive| directive.contains(['=', '[']) || means_us(directive))
}

/// `LOBSTER_LOG_FORMAT`.
pub(crate) const FORMAT: Setting<String> = Setting::new("LOBSTER_LOG_FORMAT", "text or json", |text| {
    ["text", "json"].contains(&text).then(|| text.to_owned())
});

/// Starts logging as requested, or else with a default filter.
///
/// # Errors
/// The request is neither a filter nor a format.
pub(crate) fn start(options: &Options, otherwise: Option<&str>) -> Result<(), CommandError> {
    let set = |setting: &Setting<String>| setting.read_env(|name| std::env::var_os(name));
    let asked = options.log.clone().or_else(|| options.log_format.as_ref().map(|_| DEFAULT.to_owned()));
    let (filter, name) = match (asked, set(&FILTER)?) {
        (Some(filter), _) => (filter, "--log"),
        (None, Some(filter)) => (filter, FILTER.name),
        (None, None) => match otherwise {
            Some(filter) => (filter.to_owned(), "--log"),
            None => return Ok(()),
        },
    };
    let filter = EnvFilter::try_new(&filter).map_err(|error| {
        CommandError::usage(format!("{name} {filter:?} is not a filter: {error}"))
            .with_hint("info, debug, or lobster_models=debug,info")
    })?;
    let (format, name) = match (&options.log_format, set(&FORMAT)?) {
        (Some(format), _) => (format.clone(), "--log-format"),
        (None, format) => (format.unwrap_or_else(|| "text".to_owned()), FORMAT.name),
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_span_events(FmtSpan::CLOSE);
    let started = match format.as_str() {
        "json" => builder.json().finish().with(own_targets()).try_init(),
        "text" => builder.with_ansi(std::io::stderr().is_terminal()).finish().with(own_targets()).try_init(),
        other => return Err(CommandError::usage(format!("{name} must be text or json, not {other:?}"))),
    };
    // It can be set only once, and this is the only place.
    let _ = started;
    Ok(())
}

/// Lines of this program only: libraries log the messages that they carry, including any secrets.
fn own_targets() -> FilterFn {
    filter_fn(|metadata| metadata.target().starts_with("lobster"))
}
