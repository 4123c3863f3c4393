//! Prices of models.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use lobster_base::config::config_file;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The variable with the operator's prices.
pub const VARIABLE: &str = "LOBSTER_LLM_PRICING_JSON";

/// The operator's file of prices, `lobster/prices.json` in the configuration directory.
pub fn prices_file(env: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    config_file(env, "prices.json")
}

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct Rate {
    /// For tokens read.
    pub input: f64,
    /// For tokens written.
    pub output: f64,
    /// The rate of long requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongRate>,
}

/// US dollars per million tokens of a call that reads more than `above` tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
pub struct LongRate {
    /// Most tokens for which the ordinary rate applies.
    pub above: u64,
    /// For all tokens read.
    pub input: f64,
    /// For all tokens written.
    pub output: f64,
}

impl Rate {
    /// Dollars for these token counts.
    #[must_use]
    pub fn cost(self, input: u64, output: u64) -> f64 {
        let rate = match self.long {
            Some(long) if input > long.above => Self { input: long.input, output: long.output, long: None },
            _ => self,
        };
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
        let (input, output) = (input as f64, output as f64);
        (input * rate.input + output * rate.output) / 1e6
    }
}

/// The rates by model name. A name that is not listed is looked up without its provider prefix, its date
/// and `-latest` (`openai/gpt-5-2025-08-07` is `gpt-5`).
#[derive(Clone, Debug, PartialEq)]
pub struct Pricing(BTreeMap<String, (Rate, Origin)>);

/// Source of a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// lobster itself, as of [`AS_OF`].
    BuiltIn,
    /// The operator's file.
    File,
    /// `LOBSTER_LLM_PRICING_JSON`.
    Variable,
}

/// Unusable prices of the operator; they are ignored, and the prices of the other sources apply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} is not a table of prices: it must be a JSON object whose model entries have finite non-negative input \
     and output rates"
)]
pub struct BadPrices(pub String);

impl BadPrices {
    /// The warning for stderr; for the variable it is the incumbent's.
    #[must_use]
    pub fn warning(&self) -> String {
        format!(
            "[WARN] Ignoring invalid {}; custom LLM pricing must be a JSON object whose model entries have finite \
             non-negative input and output rates.",
            self.0
        )
    }
}

/// The published rates that the incumbent knows (workflow files rely on them for `cost_limit`).
const BUILT_IN: [(&str, f64, f64); 9] = [
    ("gpt-4o", 2.5, 10.0),
    ("gpt-4o-mini", 0.15, 0.6),
    ("gpt-4-turbo", 10.0, 30.0),
    ("gpt-3.5-turbo", 0.5, 1.5),
    ("claude-opus-4-20250514", 15.0, 75.0),
    ("claude-sonnet-4-5-20250514", 3.0, 15.0),
    ("claude-haiku-3-5", 0.8, 4.0),
    ("gemini-1.5-pro", 1.25, 5.0),
    ("gemini-1.5-flash", 0.075, 0.3),
];

/// The day on which the prices below were last compared with the providers' pages.
pub const AS_OF: &str = "2026-11-23";

/// Prices of the standard tier as published by the providers:
/// <https://developers.openai.com/api/docs/pricing>, <https://platform.claude.com/docs/en/models>. A
/// model with several prices is listed with its highest one, or not at all: a price that is too low would
/// break a limit, while a missing one is refused.
const PUBLISHED: [(&str, f64, f64); 26] = [
    ("claude-fable-5-1", 10.0, 50.0),
    ("claude-haiku-4-5", 1.0, 5.0),
    ("claude-opus-4-0", 15.0, 75.0),
    ("claude-opus-4-1", 15.0, 75.0),
    ("claude-opus-4-5", 5.0, 25.0),
    ("claude-opus-4-6", 5.0, 25.0),
    ("claude-opus-4-7", 5.0, 25.0),
    ("claude-opus-4-8", 5.0, 25.0),
    ("claude-opus-5", 5.0, 25.0),
    ("claude-opus-5-5", 4.0, 20.0),
    ("claude-sonnet-4-5", 3.0, 15.0),
    ("claude-sonnet-4-6", 3.0, 15.0),
    ("claude-sonnet-5", 2.0, 10.0),
    ("claude-sonnet-5-5", 2.0, 10.0),
    ("gpt-4.1", 2.0, 8.0),
    ("gpt-4.1-mini", 0.4, 1.6),
    ("gpt-4.1-nano", 0.1, 0.4),
    ("gpt-5", 1.25, 10.0),
    ("gpt-5-mini", 0.25, 2.0),
    ("gpt-5-nano", 0.05, 0.4),
    ("gpt-5.4-mini", 0.75, 4.5),
    ("gpt-5.4-nano", 0.2, 1.25),
    ("o3", 2.0, 8.0),
    ("o4-mini", 1.1, 4.4),
    ("text-embedding-3-large", 0.13, 0.0),
    ("text-embedding-3-small", 0.02, 0.0),
];

/// Prices that are higher for requests above a number of tokens.
const PUBLISHED_LONG: [(&str, f64, f64, LongRate); 3] = [
    ("gpt-5.4", 2.5, 15.0, LongRate { above: 272_000, input: 5.0, output: 22.5 }),
    ("gpt-5.5", 5.0, 30.0, LongRate { above: 272_000, input: 10.0, output: 45.0 }),
    ("gpt-6.1-sol", 2.0, 10.0, LongRate { above: 272_000, input: 4.0, output: 15.0 }),
];

impl Default for Pricing {
    fn default() -> Self {
        let flat = BUILT_IN.into_iter().chain(PUBLISHED);
        let flat = flat.map(|(name, input, output)| (name, Rate { input, output, long: None }));
        let long = PUBLISHED_LONG
            .into_iter()
            .map(|(name, input, output, long)| (name, Rate { input, output, long: Some(long) }));
        let rates = flat.chain(long).map(|(name, rate)| (name.to_owned(), (rate, Origin::BuiltIn))).collect();
        Self(rates)
    }
}

impl Pricing {
    /// The built-in rates, overridden by the operator's file, which `LOBSTER_LLM_PRICING_JSON` overrides;
    /// and the unusable sources.
    #[must_use]
    pub fn configured(env: impl Fn(&str) -> Option<String>) -> (Self, Vec<BadPrices>) {
        let (mut pricing, mut bad) = (Self::default(), Vec::new());
        if let Some(file) = prices_file(&env) {
            match std::fs::read_to_string(&file) {
                Ok(text) => bad.extend(pricing.add_rates(&text, Origin::File, &file.display().to_string())),
                // A home directory that is not a directory has no file either.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                Err(error) => bad.push(BadPrices(format!("{} ({error})", file.display()))),
            }
        }
        if let Some(text) = env(VARIABLE) {
            bad.extend(pricing.add_rates(&text, Origin::Variable, VARIABLE));
        }
        (pricing, bad)
    }

    /// Adds the rates of a text, all or none, replacing existing ones.
    fn add_rates(&mut self, text: &str, origin: Origin, name: &str) -> Option<BadPrices> {
        if text.trim().is_empty() {
            return None;
        }
        let Some(rates) = read_rates(text) else { return Some(BadPrices(name.to_owned())) };
        self.0.extend(rates.into_iter().map(|(model, rate)| (model, (rate, origin))));
        None
    }

    /// The rate of a model.
    #[must_use]
    pub fn rate(&self, model: &str) -> Option<Rate> {
        self.find_entry(model).map(|(_, rate, _)| rate)
    }

    /// The entry that applies to a model: its listed name, its rate and its source.
    #[must_use]
    pub fn find_entry(&self, model: &str) -> Option<(&str, Rate, Origin)> {
        let known =
            |name: &str| self.0.get_key_value(name).map(|(name, (rate, from))| (name.as_str(), *rate, *from));
        let own = model.rsplit_once('/').map_or(model, |(_, own)| own);
        known(model)
            .or_else(|| known(strip_date(model)))
            .or_else(|| known(own))
            .or_else(|| known(strip_date(own)))
    }

    /// All entries in the order of their names.
    pub fn entries(&self) -> impl Iterator<Item = (&str, Rate, Origin)> {
        self.0.iter().map(|(name, (rate, from))| (name.as_str(), *rate, *from))
    }
}

/// The name of a model without the date of its snapshot: `-2025-08-07`, `-20250807`, `@20250807`, `-latest`.
fn strip_date(model: &str) -> &str {
    let is_date = |text: &str| match text.len() {
        8 => text.bytes().all(|byte| byte.is_ascii_digit()),
        10 => text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        }),
        _ => false,
    };
    if let Some(name) = model.strip_suffix("-latest") {
        return name;
    }
    let cut = |length: usize| {
        let at = model.len().checked_sub(length + 1)?;
        let (name, date) = (model.get(..at)?, model.get(at + 1..)?);
        (!name.is_empty() && matches!(model.as_bytes()[at], b'-' | b'@') && is_date(date)).then_some(name)
    };
    cut(10).or_else(|| cut(8)).unwrap_or(model)
}

/// The rates of a text by model; `None` if one of them is not a price.
#[must_use]
pub fn read_rates(text: &str) -> Option<BTreeMap<String, Rate>> {
    let Ok(Value::Object(map)) = lobster_base::json::parse(text) else { return None };
    map.into_iter()
        .map(|(name, value)| {
            let rate: Rate = value.is_object().then(|| serde_json::from_value(value).ok())??;
            let usable = |n: f64| n.is_finite() && n >= 0.0;
            let usable_long =
                rate.long.is_none_or(|long| usable(long.input) && usable(long.output) && long.above > 0);
            (!name.trim().is_empty() && usable(rate.input) && usable(rate.output) && usable_long)
                .then_some((name, rate))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prices with the variable's, and the error in it.
    fn configured_with(variable: &str) -> (Pricing, Vec<BadPrices>) {
        Pricing::configured(|name| (name == VARIABLE).then(|| variable.to_owned()))
    }

    #[test]
    fn the_variable_is_over_the_file_and_both_over_what_is_built_in() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("lobster/prices.json");
        std::fs::create_dir(file.parent().unwrap()).unwrap();
        let table = r#"{"gpt-4o":{"input":1,"output":2},"own":{"input":3,"output":4}}"#;
        std::fs::write(&file, table).unwrap();
        let env = |variable: Option<&str>| {
            let (variable, home) = (variable.map(str::to_owned), home.path().display().to_string());
            move |name: &str| match name {
                VARIABLE => variable.clone(),
                "XDG_CONFIG_HOME" => Some(home.clone()),
                _ => None,
            }
        };
        let known = |pricing: &Pricing, model: &str| {
            pricing.find_entry(model).map(|(name, rate, from)| (name.to_owned(), rate.input, from))
        };
        let (pricing, bad) = Pricing::configured(env(Some(r#"{"own":{"input":5,"output":4}}"#)));
        assert_eq!(bad, []);
        assert_eq!(
            known(&pricing, "openai/gpt-4o-2024-08-06"),
            Some(("gpt-4o".to_owned(), 1.0, Origin::File))
        );
        assert_eq!(known(&pricing, "own"), Some(("own".to_owned(), 5.0, Origin::Variable)));
        assert_eq!(known(&pricing, "o3"), Some(("o3".to_owned(), 2.0, Origin::BuiltIn)));
        assert_eq!(pricing.entries().count(), Pricing::default().entries().count() + 1);
        // Each source is used independently of the others.
        std::fs::write(&file, "{").unwrap();
        let (pricing, bad) = Pricing::configured(env(Some(r#"{"own":{"input":5,"output":4}}"#)));
        assert_eq!(bad, [BadPrices(file.display().to_string())]);
        assert_eq!(known(&pricing, "own"), Some(("own".to_owned(), 5.0, Origin::Variable)));
    }

    #[test]
    fn overrides_are_merged_by_model() {
        let (pricing, bad) =
            configured_with(r#"{"gpt-4o":{"input":1,"output":2},"mine":{"input":0,"output":0.5}}"#);
        assert_eq!(bad, []);
        assert_eq!(pricing.rate("gpt-4o"), Some(Rate { input: 1.0, output: 2.0, long: None }));
        assert_eq!(pricing.rate("mine"), Some(Rate { input: 0.0, output: 0.5, long: None }));
        assert_eq!(pricing.rate("gpt-4o-mini"), Some(Rate { input: 0.15, output: 0.6, long: None }));
        assert_eq!(pricing.rate("GPT-4o"), None);
    }

    #[test]
    fn names_with_a_date_or_a_provider_are_known() {
        let pricing = Pricing::default();
        for (name, known) in [
            ("gpt-4o-2024-08-06", "gpt-4o"),
            ("openai/gpt-5-2025-08-07", "gpt-5"),
            ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
            ("anthropic/claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
            ("claude-opus-4-5-latest", "claude-opus-4-5"),
        ] {
            assert_eq!(
                (pricing.rate(name), strip_date(name.rsplit('/').next().unwrap())),
                (pricing.rate(known), known)
            );
            assert!(pricing.rate(name).is_some(), "{name}");
        }
        // A suffix that is not a date belongs to another model, perhaps a more expensive one.
        for name in [
            "gpt-5-pro",
            "gpt-4o-audio-preview",
            "gpt-5.5-pro",
            "gpt-4o-1234567",
            "gpt-4o-2024x08x06",
            "-20250807",
            "é0250807",
            "",
            "/",
        ] {
            assert_eq!(pricing.rate(name), None, "{name}");
        }
        let (own, _) = configured_with(r#"{"gpt-4o-2024-08-06":{"input":1,"output":2}}"#);
        assert_eq!(own.rate("gpt-4o-2024-08-06").map(|rate| rate.input), Some(1.0));
        assert_eq!(own.rate("gpt-4o").map(|rate| rate.input), Some(2.5));
    }

    #[test]
    fn long_requests_cost_what_the_provider_says() {
        let rate = Pricing::default().rate("gpt-5.5").unwrap();
        assert_eq!((rate.cost(272_000, 0), rate.cost(272_001, 0)), (1.36, 2.720_01));
        let text = r#"{"m":{"input":1,"output":1,"long":{"above":10,"input":2,"output":3}}}"#;
        let rate = configured_with(text).0.rate("m").unwrap();
        assert_eq!((rate.cost(10, 10), rate.cost(11, 10)), (20e-6, 52e-6));
        let rate_of =
            |long: &str| configured_with(&format!(r#"{{"m":{{"input":1,"output":1,"long":{long}}}}}"#)).1;
        for bad in ["1", "{}", r#"{"above":0,"input":1,"output":1}"#, r#"{"above":9,"input":-1,"output":1}"#]
        {
            assert_eq!(rate_of(bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn one_defect_discards_all_of_them() {
        for bad in [
            "x",
            "[]",
            "null",
            r#"{"m":1}"#,
            r#"{"m":[1,2]}"#,
            r#"{"m":{"input":1}}"#,
            r#"{"m":{"input":"1","output":1}}"#,
            r#"{"m":{"input":-1,"output":1}}"#,
            r#"{"m":{"input":1e400,"output":1}}"#,
            r#"{" ":{"input":1,"output":1}}"#,
            r#"{"ok":{"input":1,"output":1},"m":{}}"#,
        ] {
            let (pricing, wrong) = configured_with(bad);
            assert_eq!(pricing, Pricing::default(), "{bad}");
            let [wrong] = wrong.as_slice() else { panic!("{bad}: {wrong:?}") };
            assert!(wrong.warning().starts_with("[WARN] Ignoring invalid LOBSTER_LLM_PRICING_JSON;"));
        }
        assert_eq!(configured_with(" "), (Pricing::default(), vec![]));
        assert_eq!(Pricing::configured(|_| None), (Pricing::default(), vec![]));
    }
}
