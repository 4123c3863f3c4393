//! What a run has spent on models, and whether it may go on.
//!
//! The engine tells the tracker of every effect that a step is answered
//! ([`CostTracker::effect`]), live or from the journal, and of every step that
//! has ended ([`CostTracker::step_done`]). Calls of models are billed from the
//! effects, so a call counts whatever later happened to its answer: dropped,
//! projected, rejected by a schema, lost with a failed step. An answer from a
//! cache is no call. Besides, a value with an object `usage` in the result of a
//! step counts as a call that some program made, unless that usage is known to
//! come from a call of this run or from a cache.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::pricing::Pricing;
use super::{CALL, LOOKUP, Spend};
use crate::digest::Digest;
use crate::json;
use crate::steps::stages::{EffectAction, StageError};

/// The limit of a workflow file: `cost_limit`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostLimit {
    /// US dollars; spending exactly so much is allowed.
    pub max_usd: f64,
    /// What happens above it.
    pub action: LimitAction,
}

/// What happens when a limit is passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitAction {
    /// A line on stderr at every check.
    #[default]
    Warn,
    /// The run fails.
    Stop,
}

/// How the spending stands against the limit.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Within it, or there is none.
    Within,
    /// Above it; the line is for stderr.
    Warn(String),
    /// Above it; the run ends with this, whatever `retry` and `on_error` say.
    Stop(StageError),
}

/// Spending of one run. [`Spending`] is the part that outlives the process.
#[derive(Clone, Debug)]
pub struct CostTracker {
    pricing: Pricing,
    limit: Option<CostLimit>,
    spending: Spending,
    /// Calls of steps that have not ended, by step. Not kept over a pause: the
    /// journal tells of them again when the step is run again.
    open: BTreeMap<String, Vec<Spend>>,
}

/// What has been spent so far: kept with the run, restored when it is resumed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spending {
    total_input_tokens: u64,
    total_output_tokens: u64,
    /// Not rounded.
    total_usd: f64,
    by_step: Vec<Entry>,
    /// Calls that have been billed, so that none is billed twice when a failed step is tried again.
    billed: BTreeSet<String>,
    /// Digests of the usages that calls and caches of this run gave.
    known: BTreeSet<Digest>,
    /// Models without a rate that a person has been told of.
    warned: BTreeSet<Option<String>>,
}

/// One call as the summary shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    step_id: String,
    model: Option<String>,
    input_tokens: u64,
    output_tokens: u64,
    cost_usd: f64,
}

impl CostTracker {
    /// A tracker for a run that has spent `spending` before.
    #[must_use]
    pub fn new(pricing: Pricing, limit: Option<CostLimit>, spending: Spending) -> Self {
        Self { pricing, limit, spending, open: BTreeMap::new() }
    }

    /// Notes what an effect of `step` was answered. Only calls of models and
    /// look-ups of earlier answers matter; all others are ignored. Telling the
    /// same call twice is telling it once.
    pub fn effect(&mut self, step: &str, action: &EffectAction, answer: &Value) {
        match action.kind.as_str() {
            CALL => {
                for spend in Spend::of_answer(answer) {
                    self.spending.known.insert(usage_digest(&spend.usage));
                    let open = self.open.entry(step.to_owned()).or_default();
                    if !self.spending.billed.contains(&spend.call)
                        && !open.iter().any(|s| s.call == spend.call)
                    {
                        open.push(spend);
                    }
                }
            }
            LOOKUP => {
                if let Some(usage) = answer.pointer("/item/usage").filter(|usage| usage.is_object()) {
                    self.spending.known.insert(usage_digest(usage));
                }
            }
            _ => {}
        }
    }

    /// Bills what `step` called, and what its result shows that other programs
    /// called. `result` is the step's JSON; `None` for a step that failed and
    /// for one whose parts were billed under their own ids (loops, parallel
    /// blocks, sub-workflows). Returns lines for stderr.
    pub fn step_done(&mut self, step: &str, result: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        for spend in self.open.remove(step).unwrap_or_default() {
            self.spending.billed.insert(spend.call);
            warnings.extend(self.bill(step, spend.model, &spend.usage));
        }
        let records = match result {
            Some(Value::Array(items)) => items.as_slice(),
            Some(item) => std::slice::from_ref(item),
            None => &[],
        };
        for record in records {
            if let Some(Value::Object(usage)) = record.get("usage")
                && !self.spending.known.contains(&usage_digest(&record["usage"]))
            {
                let model = record.get("model").and_then(Value::as_str).map(str::to_owned);
                warnings.extend(self.bill(step, model, usage));
            }
        }
        warnings
    }

    /// Forgets what `step` called: a branch that lost, whose calls do not count.
    pub fn discard(&mut self, step: &str) {
        self.open.remove(step);
    }

    /// Bills everything that a sub-workflow billed, under the `step` that ran it.
    pub fn absorb(&mut self, step: &str, child: &Self) {
        self.spending.known.extend(&child.spending.known);
        for entry in &child.spending.by_step {
            self.add(Entry { step_id: step.to_owned(), ..entry.clone() });
        }
    }

    /// Compares the spending with the limit, in constant time.
    #[must_use]
    pub fn check(&self) -> Verdict {
        let Some(limit) = self.limit else { return Verdict::Within };
        let total = rounded(self.spending.total_usd);
        if total <= limit.max_usd {
            return Verdict::Within;
        }
        let (total, max) = (fixed(total, 4), fixed(limit.max_usd, 2));
        match limit.action {
            LimitAction::Warn => Verdict::Warn(format!("[WARN] Cost ${total} exceeds limit ${max}")),
            LimitAction::Stop => Verdict::Stop(
                StageError::permanent(format!("Cost limit exceeded: ${total} > ${max} limit"))
                    .with_code("cost_limit"),
            ),
        }
    }

    /// The summary for `_meta.cost`; `None` when nothing was called.
    #[must_use]
    pub fn summary(&self) -> Option<Value> {
        let spending = &self.spending;
        (!spending.by_step.is_empty()).then(|| {
            json!({
                "totalInputTokens": spending.total_input_tokens,
                "totalOutputTokens": spending.total_output_tokens,
                "estimatedCostUsd": rounded(spending.total_usd),
                "byStep": spending.by_step,
            })
        })
    }

    /// What has been spent, to be kept with the run.
    #[must_use]
    pub fn spending(&self) -> &Spending {
        &self.spending
    }

    fn bill(&mut self, step: &str, model: Option<String>, usage: &Map<String, Value>) -> Option<String> {
        let input = tokens(usage, ["inputTokens", "input_tokens", "prompt_tokens"]);
        let output = tokens(usage, ["outputTokens", "output_tokens", "completion_tokens"]);
        let rate = model.as_deref().and_then(|model| self.pricing.rate(model));
        let warning = (rate.is_none() && self.spending.warned.insert(model.clone())).then(|| {
            let name = json::compact(&model.as_deref().unwrap_or("<missing>"));
            format!(
                "[WARN] No LLM pricing configured for model {name}; recording zero cost. Set \
                 LOBSTER_LLM_PRICING_JSON to enable cost_limit enforcement for this model."
            )
        });
        #[expect(clippy::cast_precision_loss, reason = "token counts are below 2^53, see `tokens`")]
        let cost_usd =
            rate.map_or(0.0, |rate| (input as f64 * rate.input + output as f64 * rate.output) / 1e6);
        self.add(Entry {
            step_id: step.to_owned(),
            model,
            input_tokens: input,
            output_tokens: output,
            cost_usd,
        });
        warning
    }

    fn add(&mut self, entry: Entry) {
        let spending = &mut self.spending;
        spending.total_input_tokens = spending.total_input_tokens.saturating_add(entry.input_tokens);
        spending.total_output_tokens = spending.total_output_tokens.saturating_add(entry.output_tokens);
        spending.total_usd += entry.cost_usd;
        spending.by_step.push(entry);
    }
}

/// Equal for usages that are equal as JSON, whatever the order of their fields.
fn usage_digest(usage: &impl Serialize) -> Digest {
    // Maps of JSON always have a canonical form; were there none, the empty text would stand for it.
    Digest::of_json(usage).unwrap_or_else(|_| Digest::of(b""))
}

/// A token count as ECMAScript's `Number` reads the first field that is there:
/// rounded down, nothing below zero, nothing that is no number.
fn tokens(usage: &Map<String, Value>, names: [&str; 3]) -> u64 {
    let value = names.iter().find_map(|name| usage.get(*name).filter(|value| !value.is_null()));
    let number = match value {
        Some(Value::Number(number)) => number.as_f64().unwrap_or(0.0),
        Some(Value::String(text)) => json::js_number(text),
        Some(Value::Bool(true)) => 1.0,
        _ => 0.0,
    };
    const LARGEST: f64 = 9_007_199_254_740_991.0; // 2^53 - 1, above which a double skips integers
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..2^53")]
    let count = if number.is_finite() { number.floor().clamp(0.0, LARGEST) as u64 } else { 0 };
    count
}

/// To six decimals, as `Math.round` does.
fn rounded(usd: f64) -> f64 {
    (usd * 1e6 + 0.5).floor() / 1e6
}

/// ECMA-262 `Number.prototype.toFixed`, which rounds ties up.
fn fixed(number: f64, digits: usize) -> String {
    let scale = 10f64.powi(i32::try_from(digits).unwrap_or(0));
    let scaled = number * scale;
    if scaled.fract() == 0.5 && scaled / scale == number {
        return format!("{:.digits$}", scaled.ceil() / scale);
    }
    format!("{number:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(kind: &str) -> EffectAction {
        EffectAction { kind: kind.into(), detail: Value::Null, idempotent: false }
    }

    fn call(id: &str, model: &str, usage: &Value) -> Value {
        json!({"spend": [{"call": id, "model": model, "usage": usage}], "answer": {}})
    }

    fn tracker(max_usd: f64, action: LimitAction) -> CostTracker {
        CostTracker::new(Pricing::default(), Some(CostLimit { max_usd, action }), Spending::default())
    }

    fn entries(tracker: &CostTracker) -> Value {
        tracker.summary().map_or(Value::Null, |s| s["byStep"].clone())
    }

    #[test]
    fn a_call_is_billed_once_whatever_becomes_of_its_item() {
        let mut t = tracker(1.0, LimitAction::Stop);
        let usage = json!({"inputTokens": 1000, "outputTokens": 500});
        t.effect("a", &action(CALL), &call("c1", "gpt-4o", &usage));
        t.effect("a", &action(CALL), &call("c1", "gpt-4o", &usage));
        assert_eq!(t.summary(), None);
        assert!(
            t.step_done("a", Some(&json!([{"usage": usage, "model": "other"}, {"usage": usage}]))).is_empty()
        );
        // The item goes on to a later step; a failed step is tried again.
        assert!(
            t.step_done("b", Some(&json!({"usage": {"outputTokens": 500, "inputTokens": 1000}}))).is_empty()
        );
        t.effect("a", &action(CALL), &call("c1", "gpt-4o", &usage));
        t.step_done("a", None);
        assert_eq!(
            t.summary(),
            Some(json!({
                "totalInputTokens": 1000, "totalOutputTokens": 500, "estimatedCostUsd": 0.0075,
                "byStep": [{"stepId": "a", "model": "gpt-4o", "inputTokens": 1000, "outputTokens": 500, "costUsd": 0.0075}],
            }))
        );
        assert_eq!(t.check(), Verdict::Within);
    }

    #[test]
    fn every_attempt_counts_and_a_cached_answer_does_not() {
        let mut t = tracker(1.0, LimitAction::Stop);
        t.effect(
            "a",
            &action(CALL),
            &call("c1", "gpt-4o-mini", &json!({"inputTokens": 10, "outputTokens": 20})),
        );
        t.effect(
            "a",
            &action(CALL),
            &call("c2", "gpt-4o-mini", &json!({"inputTokens": 10, "outputTokens": 20})),
        );
        t.effect("a", &action(LOOKUP), &json!({"item": {"usage": {"inputTokens": 7}, "model": "gpt-4o"}}));
        t.effect("a", &action(LOOKUP), &json!({"item": null}));
        t.effect("a", &action("http"), &call("c3", "gpt-4o", &json!({"inputTokens": 9_000_000})));
        t.step_done("a", Some(&json!([{"usage": {"inputTokens": 7}, "model": "gpt-4o"}])));
        assert_eq!(entries(&t).as_array().map(Vec::len), Some(2));
        assert_eq!(entries(&t)[0]["costUsd"], json!(0.000_013_5));
    }

    #[test]
    fn what_programs_print_counts() {
        let mut t = tracker(5.0, LimitAction::Stop);
        let printed = json!({"model": "gpt-4o", "usage": {"input_tokens": "1000000"}});
        t.step_done("a", Some(&printed));
        assert_eq!(t.check(), Verdict::Within);
        t.step_done("b", Some(&json!([printed, 1, {"usage": null}, {"usage": 3}, {"nested": printed}])));
        assert_eq!(t.check(), Verdict::Within);
        t.step_done(
            "c",
            Some(&json!({"model": "gpt-4o", "usage": {"prompt_tokens": 0, "completion_tokens": 1}})),
        );
        let Verdict::Stop(error) = t.check() else { panic!("should stop") };
        assert_eq!(error.message, "Cost limit exceeded: $5.0000 > $5.00 limit");
        assert!(error.permanent);
    }

    #[test]
    fn unknown_models_are_named_once() {
        let mut t = tracker(0.0, LimitAction::Stop);
        let record = |model: Value| json!({"model": model, "usage": {"inputTokens": 5}});
        let lines = t.step_done(
            "a",
            Some(&json!([record(json!("m\"\n")), record(json!(null)), record(json!("m\"\n"))])),
        );
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with(
            "[WARN] No LLM pricing configured for model \"m\\\"\\n\"; recording zero cost. Set "
        ));
        assert!(lines[1].contains("model \"<missing>\";"));
        assert_eq!(t.check(), Verdict::Within);
        assert_eq!(entries(&t)[1]["model"], Value::Null);
    }

    #[test]
    fn warning_repeats_and_spending_survives_a_pause() {
        let mut t = tracker(0.001, LimitAction::Warn);
        t.step_done(
            "a",
            Some(&json!({"model": "gpt-4o", "usage": {"inputTokens": 1000, "outputTokens": 500}})),
        );
        let line = Verdict::Warn("[WARN] Cost $0.0075 exceeds limit $0.00".into());
        assert_eq!((t.check(), t.check()), (line.clone(), line));
        t.effect("open", &action(CALL), &call("c9", "gpt-4o", &json!({"inputTokens": 1})));
        let kept = serde_json::to_string(t.spending()).unwrap();
        let restored: Spending = serde_json::from_str(&kept).unwrap();
        assert_eq!(&restored, t.spending());
        let limit = Some(CostLimit { max_usd: 0.01, action: LimitAction::Stop });
        let mut t = CostTracker::new(Pricing::default(), limit, restored);
        t.step_done(
            "b",
            Some(&json!({"model": "gpt-4o", "usage": {"inputTokens": 1000, "outputTokens": 500}})),
        );
        let Verdict::Stop(error) = t.check() else { panic!("should stop") };
        assert_eq!(error.message, "Cost limit exceeded: $0.0150 > $0.01 limit");
    }

    #[test]
    fn branches_that_lose_and_sub_workflows() {
        let mut t = tracker(1.0, LimitAction::Stop);
        let usage = json!({"inputTokens": 1000});
        t.effect("loser", &action(CALL), &call("c1", "gpt-4o", &usage));
        t.discard("loser");
        t.step_done("loser", None);
        let mut child = CostTracker::new(Pricing::default(), None, Spending::default());
        child.effect("inner", &action(CALL), &call("c2", "gpt-4o", &usage));
        child.step_done("inner", None);
        assert_eq!(child.check(), Verdict::Within);
        t.absorb("sub", &child);
        t.step_done("sub", None);
        t.step_done("later", Some(&json!({"usage": usage})));
        assert_eq!(
            entries(&t),
            json!([{"stepId": "sub", "model": "gpt-4o", "inputTokens": 1000, "outputTokens": 0, "costUsd": 0.0025}])
        );
    }

    #[test]
    fn token_counts_of_all_kinds() {
        let read = |value: Value| {
            tokens(json!({"inputTokens": value}).as_object().unwrap(), ["inputTokens", "b", "c"])
        };
        for (value, count) in [
            (json!(1.9), 1),
            (json!(-3), 0),
            (json!("12"), 12),
            (json!("x"), 0),
            (json!(true), 1),
            (json!([5]), 0),
            (json!(1e300), 9_007_199_254_740_991),
            (json!("Infinity"), 0),
        ] {
            assert_eq!(read(value.clone()), count, "{value}");
        }
        let usage = json!({"a": null, "b": 4, "c": 5});
        assert_eq!(tokens(usage.as_object().unwrap(), ["a", "b", "c"]), 4);
    }

    #[test]
    fn checks_do_not_grow_with_the_record() {
        let mut t = tracker(1e9, LimitAction::Stop);
        let since = std::time::Instant::now();
        for step in 0..20_000 {
            t.step_done("s", Some(&json!({"model": "gpt-4o", "usage": {"inputTokens": step}})));
            assert_eq!(t.check(), Verdict::Within);
        }
        // Summing up at each check took the incumbent 9 s for 32 000 records; this bound is loose even so.
        assert!(since.elapsed().as_secs() < 5, "{:?}", since.elapsed());
    }

    #[test]
    fn amounts_print_as_in_ecmascript() {
        for (number, digits, text) in [
            (0.125, 2, "0.13"),
            (0.005, 2, "0.01"),
            (1.005, 2, "1.00"),
            (2.5, 4, "2.5000"),
            (1e21, 2, "1000000000000000000000.00"),
        ] {
            assert_eq!(fixed(number, digits), text);
        }
        assert_eq!(rounded(2.507_513_5), 2.507_514);
    }
}
