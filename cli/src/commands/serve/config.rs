//! The file of `lobster serve --config`.

use std::path::{Path, PathBuf};

use lobster_runtime::budget::{Limits, MOST_USD, nano_usd};
use lobster_runtime::quantity::{Bytes, Span};
use lobster_serve::notify::Target;
use serde::Deserialize;

use crate::exit::CommandError;

/// The settings of a server. An option on the command line counts before the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Config {
    pub(super) listen: Option<String>,
    /// Relative to the file.
    #[serde(default)]
    pub(super) workflows: Vec<PathBuf>,
    #[serde(default)]
    pub(super) allow_host: Vec<String>,
    #[serde(default)]
    pub(super) behind_proxy: bool,
    /// Relative to the file, as is the key.
    pub(super) tls_cert: Option<PathBuf>,
    pub(super) tls_key: Option<PathBuf>,
    pub(super) max_runs: Option<u64>,
    pub(super) max_time: Option<String>,
    pub(super) max_memory: Option<String>,
    pub(super) max_cpu: Option<String>,
    pub(super) stop_after: Option<String>,
    #[serde(default)]
    pub(super) trust: bool,
    /// What links in notices begin with.
    pub(super) url: Option<String>,
    #[serde(default)]
    pub(super) notify: Vec<Target>,
    /// What model calls of all runs that it starts may use together on one day, in UTC.
    pub(super) budget: Option<Budget>,
}

/// `[budget]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Budget {
    calls: Option<u64>,
    tokens: Option<u64>,
    usd: Option<f64>,
    unpriced: Option<Unpriced>,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unpriced {
    Allow,
    Refuse,
}

impl Budget {
    /// Its limits, and whether models without a price are asked all the same.
    pub(super) fn terms(&self) -> (Limits, bool) {
        let limits = Limits { calls: self.calls, tokens: self.tokens, nano_usd: self.usd.map(nano_usd) };
        (limits, self.unpriced == Some(Unpriced::Allow))
    }
}

impl Config {
    pub(super) fn read(path: &Path) -> Result<Self, CommandError> {
        let wrong = |why: String| CommandError::usage(format!("--config {}: {why}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let mut config: Self = toml::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        if config.max_runs == Some(0) {
            return Err(wrong("max_runs must be at least 1".to_owned()));
        }
        if let Some(budget) = &config.budget {
            if budget.usd.is_some_and(|usd| !(0.0..=MOST_USD).contains(&usd)) {
                return Err(wrong(format!("usd under [budget] must be dollars, from 0 to {MOST_USD}")));
            }
            if budget.terms().0.is_empty() {
                return Err(wrong("[budget] limits nothing: it needs calls, tokens or usd".to_owned()));
            }
        }
        let mut names: Vec<_> = config.notify.iter().map(|target| &target.name).collect();
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(wrong(format!("two of [[notify]] have the name {:?}", twice[0])));
        }
        let here = path.parent().unwrap_or(Path::new("."));
        config.tls_cert = config.tls_cert.map(|file| here.join(file));
        config.tls_key = config.tls_key.map(|file| here.join(file));
        config.workflows = config.workflows.iter().map(|dir| here.join(dir)).collect();
        Ok(config)
    }

    /// An amount of memory of the file.
    pub(super) fn size(&self, name: &str, text: Option<&str>) -> Result<Option<Bytes>, CommandError> {
        let parse = |text: &str| {
            text.parse::<Bytes>().map_err(|error| CommandError::usage(format!("{name} = {text:?}: {error}")))
        };
        text.map(parse).transpose()
    }

    /// A duration of the file.
    pub(super) fn time(&self, name: &str, text: Option<&str>) -> Result<Option<Span>, CommandError> {
        let parse = |text: &str| {
            text.parse::<Span>().map_err(|error| CommandError::usage(format!("{name} = {text:?}: {error}")))
        };
        text.map(parse).transpose()
    }
}
