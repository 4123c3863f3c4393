//! What models cost.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct Rate {
    /// For tokens that are read.
    pub input: f64,
    /// For tokens that are written.
    pub output: f64,
}

impl Rate {
    /// Dollars for so many tokens.
    #[must_use]
    pub fn cost(self, input: u64, output: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
        let (input, output) = (input as f64, output as f64);
        (input * self.input + output * self.output) / 1e6
    }
}

/// The rates by model name; names match exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct Pricing(BTreeMap<String, Rate>);

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

impl Default for Pricing {
    fn default() -> Self {
        let rate = |(name, input, output): (&str, f64, f64)| (name.to_owned(), Rate { input, output });
        Self(BUILT_IN.into_iter().map(rate).collect())
    }
}

impl Pricing {
    /// The built-in rates with those of `LOBSTER_LLM_PRICING_JSON` over them,
    /// and a warning for stderr when that text is of no use and ignored.
    #[must_use]
    pub fn new(overrides: Option<&str>) -> (Self, Option<String>) {
        let mut pricing = Self::default();
        let Some(text) = overrides.filter(|text| !text.trim().is_empty()) else { return (pricing, None) };
        match rates(text) {
            Some(rates) => {
                pricing.0.extend(rates);
                (pricing, None)
            }
            None => (
                pricing,
                Some(
                    "[WARN] Ignoring invalid LOBSTER_LLM_PRICING_JSON; custom LLM pricing must be a JSON \
                     object whose model entries have finite non-negative input and output rates."
                        .to_owned(),
                ),
            ),
        }
    }

    /// The rate of a model.
    #[must_use]
    pub fn rate(&self, model: &str) -> Option<Rate> {
        self.0.get(model).copied()
    }
}

fn rates(text: &str) -> Option<Vec<(String, Rate)>> {
    let Ok(Value::Object(map)) = lobster_base::json::parse(text) else { return None };
    map.into_iter()
        .map(|(name, value)| {
            let rate: Rate = value.is_object().then(|| serde_json::from_value(value).ok())??;
            let usable = |n: f64| n.is_finite() && n >= 0.0;
            (!name.trim().is_empty() && usable(rate.input) && usable(rate.output)).then_some((name, rate))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overrides_are_merged_by_model() {
        let (pricing, warning) =
            Pricing::new(Some(r#"{"gpt-4o":{"input":1,"output":2},"mine":{"input":0,"output":0.5}}"#));
        assert_eq!(warning, None);
        assert_eq!(pricing.rate("gpt-4o"), Some(Rate { input: 1.0, output: 2.0 }));
        assert_eq!(pricing.rate("mine"), Some(Rate { input: 0.0, output: 0.5 }));
        assert_eq!(pricing.rate("gpt-4o-mini"), Some(Rate { input: 0.15, output: 0.6 }));
        assert_eq!(pricing.rate("GPT-4o"), None);
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
            let (pricing, warning) = Pricing::new(Some(bad));
            assert_eq!(pricing, Pricing::default(), "{bad}");
            assert!(
                warning.is_some_and(|w| w.starts_with("[WARN] Ignoring invalid LOBSTER_LLM_PRICING_JSON;"))
            );
        }
        assert_eq!(Pricing::new(Some(" ")), (Pricing::default(), None));
        assert_eq!(Pricing::new(None), (Pricing::default(), None));
    }
}
