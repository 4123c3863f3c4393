//! Money spent by a run on models, and its limit.
//!
//! The engine reports to the tracker each effect of a step ([`CostTracker::record_effect`]), live or from the
//! journal, and each finished step ([`CostTracker::step_done`]). Model calls are billed from the effects,
//! so a call is billed even if its answer was later dropped, projected, rejected by a schema, or lost
//! with a failed step. A cached answer is not a call. In addition, a value with an object `usage` in the
//! result of a step is billed as a call of some program, unless that usage is known to come from a call
//! of this run or from a cache.

use lobster_base::code::Code;
use lobster_base::sync::lock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::pricing::Pricing;
use super::{CALL, LOOKUP, Spend};
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_stage::{EffectAction, StageError, WorstCase};

/// The limit of a workflow file: `cost_limit`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostLimit {
    /// US dollars; spending exactly this amount is allowed.
    pub max_usd: f64,
    /// The action above the limit.
    pub action: LimitAction,
    /// With [`LimitAction::Stop`], allows calls that cannot be priced.
    pub allows_unpriced: bool,
}

/// The action when a limit is exceeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitAction {
    /// A line on stderr at every check.
    #[default]
    Warn,
    /// The run fails.
    Stop,
}

/// Result of comparing the spending with the limit.
#[derive(Clone, Debug, PartialEq)]
pub enum BudgetVerdict {
    /// Below the limit, or no limit is set.
    Within,
    /// Above the limit; the line is for stderr.
    Warn(String),
    /// Above the limit; the run ends with this error, regardless of `retry` and `on_error`.
    Stop(StageError),
}

/// Spending of one run. [`Spending`] is the part that is saved with the run.
#[derive(Clone, Debug)]
pub struct CostTracker {
    pricing: Pricing,
    limit: Option<CostLimit>,
    spending: Spending,
    /// Calls of unfinished steps, by step. Not kept over a pause: the journal reports them again when the
    /// step runs again.
    open: BTreeMap<String, Vec<Spend>>,
    /// The highest cost of unfinished calls in dollars, by step, plus the spending of a step's
    /// sub-workflow that is not absorbed yet.
    held: BTreeMap<String, f64>,
    /// Steps with a refused call of a priced model: their calls must not go to a model without a price
    /// instead.
    too_dear: BTreeSet<String>,
    /// Calls that an earlier process of this run paid for, with their place in the run, until a step
    /// reports them again. A failure that is retried and a killed call are never reported again.
    earlier: BTreeMap<String, (String, Spend)>,
    /// A paid call without a known bound: the rest of a limit is unknown from then on.
    unbounded: Option<String>,
    /// The tracker of the workflow around this one, and the step that runs this one.
    parent: Option<(Arc<Mutex<CostTracker>>, String)>,
}

/// Spending so far: saved with the run, restored when it is resumed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spending {
    total_input_tokens: u64,
    total_output_tokens: u64,
    /// Not rounded.
    total_usd: f64,
    by_step: Vec<Entry>,
    /// Calls that have been billed, so that none is billed twice when a failed step is retried.
    billed: BTreeSet<String>,
    /// Digests of the usages reported by calls and caches of this run.
    known: BTreeSet<Digest>,
    /// Models without a rate that were already reported.
    warned: BTreeSet<Option<String>>,
}

/// One call in the summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    step_id: String,
    model: Option<String>,
    input_tokens: u64,
    output_tokens: u64,
    cost_usd: f64,
}

/// A call that was paid for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PaidCall {
    pub model: Option<String>,
    pub input_tokens: u64,
    pub output_tokens: u64,
    /// At today's rates; `None` for a model without a rate.
    pub cost_usd: Option<f64>,
}

impl PaidCall {
    /// A call with its cost at the rates of `pricing`.
    #[must_use]
    pub fn new(spend: Spend, pricing: &Pricing) -> Self {
        let (input_tokens, output_tokens) = used_tokens(&spend.usage);
        let rate = spend.model.as_deref().and_then(|model| pricing.rate(model));
        let cost_usd = rate.map(|rate| round_usd(rate.cost(input_tokens, output_tokens)));
        Self { model: spend.model, input_tokens, output_tokens, cost_usd }
    }
}

/// The paid calls in the recorded answer of an effect.
pub fn paid_calls(answer: &Value, pricing: &Pricing) -> Vec<PaidCall> {
    Spend::on_record(answer).into_iter().map(|spend| PaidCall::new(spend, pricing)).collect()
}

impl CostTracker {
    /// A tracker for a run that has already spent `spending`.
    #[must_use]
    pub fn new(pricing: Pricing, limit: Option<CostLimit>, spending: Spending) -> Self {
        Self {
            pricing,
            limit,
            spending,
            open: BTreeMap::new(),
            held: BTreeMap::new(),
            too_dear: BTreeSet::new(),
            earlier: BTreeMap::new(),
            unbounded: None,
            parent: None,
        }
    }

    /// The same tracker for a run that an earlier process began: `paid` has every recorded call with its
    /// place in the run. A call that its step does not report again is billed from this record.
    #[must_use]
    pub fn with_earlier(mut self, paid: impl IntoIterator<Item = (String, Spend)>) -> Self {
        self.earlier = paid.into_iter().map(|(place, spend)| (spend.call.clone(), (place, spend))).collect();
        self
    }

    /// Removes and returns the earlier calls at places that `is_within` accepts.
    pub fn take_earlier(&mut self, is_within: impl Fn(&str) -> bool) -> Vec<(String, Spend)> {
        self.earlier.extract_if(.., |_, (place, _)| is_within(place)).map(|(_, paid)| paid).collect()
    }

    /// The same tracker for a sub-workflow run by `step`: its spending must also fit the limits around it.
    #[must_use]
    pub fn nested_in(mut self, parent: Arc<Mutex<Self>>, step: &str) -> Self {
        self.parent = Some((parent, step.to_owned()));
        self
    }

    /// The cost of an answer in dollars; `None` if one of its models has no price.
    #[must_use]
    pub fn usd_of(&self, answer: &Value) -> Option<f64> {
        let calls = paid_calls(answer, &self.pricing);
        if calls.is_empty() { None } else { calls.iter().map(|call| call.cost_usd).sum() }
    }

    /// True if a call may be refused because of its possible cost.
    #[must_use]
    pub fn can_refuse_calls(&self) -> bool {
        let parent = |(parent, _): &(Arc<Mutex<Self>>, String)| lock(parent).can_refuse_calls();
        self.limit.is_some_and(|limit| limit.action == LimitAction::Stop)
            || self.parent.as_ref().is_some_and(parent)
    }

    /// Reserves the highest cost of a call of `step` until [`CostTracker::release_reservation`]. Returns the spend to
    /// bill if the actual cost stays unknown, and the line for stderr that names a model without a price,
    /// once.
    ///
    /// The cost of an adapter that chooses its model or the length of its answer is unknown in advance:
    /// its call is free until it is billed, as with the incumbent.
    ///
    /// # Errors
    /// The call could exceed a limit whose action is `stop`, that limit is already exceeded, or the model
    /// has no price and the limit does not allow that.
    pub fn reserve_cost(
        &mut self,
        step: &str,
        worst: &WorstCase,
    ) -> Result<(Spend, Option<String>), StageError> {
        let rate = worst.model.as_deref().and_then(|model| self.pricing.rate(model));
        let unpriced = worst.model.as_deref().filter(|_| rate.is_none());
        let usd = rate.zip(worst.output_tokens).map(|(rate, output)| rate.cost(worst.input_tokens, output));
        if self.can_refuse_calls() {
            if let Some(model) = unpriced {
                self.allow_unpriced(step, model)?;
            }
            if let Some(why) = self.unbounded_before().filter(|_| !self.allows_unpriced()) {
                return Err(over_limit(why));
            }
        }
        let held = self.held.get(step).copied().unwrap_or(0.0) + usd.unwrap_or(0.0);
        if let Err(room) = self.hold_amount(step, held) {
            self.too_dear.insert(step.to_owned());
            return Err(refusal_error(worst, usd, &room));
        }
        let line = match unpriced {
            Some(model) if self.can_refuse_calls() => self.unpriced_warning(Some(model.to_owned())),
            _ => None,
        };
        Ok((Spend::from_worst_case(worst), line))
    }

    /// Releases the reservation of a call that was certainly not computed: the connection was refused, or
    /// the server rejected the call before it began.
    pub fn give_back(&mut self, step: &str, reserved: &Spend) {
        if let Some(held) = self.held.get(step).copied() {
            let less = (held - self.usage_cost(reserved.model.as_deref(), &reserved.usage)).max(0.0);
            // Less than the earlier reservation always fits.
            let _ = self.hold_amount(step, less);
        }
    }

    /// Refuses a model without a price, unless the file allows it and no model with a price was refused
    /// for the same call.
    fn allow_unpriced(&self, step: &str, model: &str) -> Result<(), StageError> {
        let name = json::compact(&model);
        if self.too_dear.contains(step) {
            return Err(over_limit(format!(
                "a call of a model with a price was refused, and model {name} has no price that could be lower"
            )));
        }
        if self.allows_unpriced() {
            return Ok(());
        }
        Err(over_limit(format!(
            "model {name} has no price, so the limit could not stop it. Give its price with \
             `lobster models prices --update FILE`, or write `unpriced: allow` under cost_limit"
        )))
    }

    /// True if every limit that stops allows calls without a price.
    fn allows_unpriced(&self) -> bool {
        let parent = |(parent, _): &(Arc<Mutex<Self>>, String)| lock(parent).allows_unpriced();
        self.limit.is_none_or(|limit| limit.action != LimitAction::Stop || limit.allows_unpriced)
            && self.parent.as_ref().is_none_or(parent)
    }

    /// The reason why the rest of the limits is unknown, in this workflow or in one around it.
    fn unbounded_before(&self) -> Option<String> {
        let parent = |(parent, _): &(Arc<Mutex<Self>>, String)| lock(parent).unbounded_before();
        self.unbounded.clone().or_else(|| self.parent.as_ref().and_then(parent))
    }

    /// Releases the reservation of `step`: its call has ended, and is billed if it was answered.
    pub fn release_reservation(&mut self, step: &str) {
        self.too_dear.remove(step);
        if self.held.remove(step).is_none() {
            return;
        }
        if let Some((parent, step)) = &self.parent {
            // Less than the earlier reservation always fits.
            let _ = lock(parent).hold_amount(step, self.committed_usd());
        }
    }

    fn hold_amount(&mut self, step: &str, usd: f64) -> Result<(), Room> {
        let before = self.held.insert(step.to_owned(), usd);
        let committed = self.committed_usd();
        let own = match self.limit {
            Some(limit) if limit.action == LimitAction::Stop && committed > limit.max_usd + SUM_ERROR => {
                Err(Room {
                    limit: limit.max_usd,
                    left: limit.max_usd - (committed - usd + before.unwrap_or(0.0)),
                })
            }
            _ => Ok(()),
        };
        let held = own.and_then(|()| match &self.parent {
            Some((parent, step)) => lock(parent).hold_amount(step, committed),
            None => Ok(()),
        });
        if held.is_err() {
            match before {
                Some(before) => self.held.insert(step.to_owned(), before),
                None => self.held.remove(step),
            };
        }
        held
    }

    /// The spending, billed or not, plus all reservations.
    fn committed_usd(&self) -> f64 {
        let open: f64 = self
            .open
            .values()
            .flatten()
            .map(|spend| self.usage_cost(spend.model.as_deref(), &spend.usage))
            .sum();
        self.spending.total_usd + open + self.earlier_usd() + self.held.values().sum::<f64>()
    }

    fn earlier_usd(&self) -> f64 {
        self.earlier.values().map(|(_, spend)| self.usage_cost(spend.model.as_deref(), &spend.usage)).sum()
    }

    fn usage_cost(&self, model: Option<&str>, usage: &Map<String, Value>) -> f64 {
        let (input, output) = used_tokens(usage);
        model.and_then(|model| self.pricing.rate(model)).map_or(0.0, |rate| rate.cost(input, output))
    }

    /// Records the answer to an effect of `step`. Only model calls and look-ups of earlier answers
    /// matter; all others are ignored. A repeated report of the same call has no effect.
    pub fn record_effect(&mut self, step: &str, action: &EffectAction, answer: &Value) {
        match action.kind.as_str() {
            CALL => {
                if let Some(usage) = answer.pointer("/result/usage").filter(|usage| usage.is_object()) {
                    self.spending.known.insert(usage_digest(usage));
                }
                for spend in Spend::on_record(answer) {
                    self.record_payment(step, spend);
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

    /// Records a call that `step` paid for, regardless of its answer. A repeated report has no effect.
    pub fn record_payment(&mut self, step: &str, spend: Spend) {
        self.earlier.remove(&spend.call);
        if !spend.is_lost {
            self.spending.known.insert(usage_digest(&spend.usage));
        }
        let rate = spend.model.as_deref().and_then(|model| self.pricing.rate(model));
        if rate.is_none() || (spend.is_lost && !spend.usage.contains_key("outputTokens")) {
            let model = json::compact(&spend.model.as_deref().unwrap_or("<missing>"));
            self.unbounded.get_or_insert_with(|| {
                format!(
                    "step '{step}' has paid for a call of model {model} whose cost is not known. Name a model \
                     with a price and --max-output-tokens, or write `unpriced: allow` under cost_limit"
                )
            });
        }
        let open = self.open.entry(step.to_owned()).or_default();
        if !self.spending.billed.contains(&spend.call) && !open.iter().any(|s| s.call == spend.call) {
            open.push(spend);
        }
    }

    /// Bills the calls of `step`, and the calls of other programs found in its result. `result` is the
    /// step's JSON; `None` for a failed step and for a step whose parts were billed under their own ids
    /// (loops, parallel blocks, sub-workflows). Returns lines for stderr.
    pub fn step_done(&mut self, step: &str, result: Option<&Value>) -> Vec<String> {
        let mut warnings = Vec::new();
        for spend in self.open.remove(step).unwrap_or_default() {
            self.spending.billed.insert(spend.call);
            warnings.extend(self.bill_call(step, spend.model, &spend.usage));
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
                warnings.extend(self.bill_call(step, model, usage));
            }
        }
        warnings
    }

    /// Bills everything that a sub-workflow billed to `step`, which ran it.
    pub fn absorb_child(&mut self, step: &str, child: &Self) {
        self.spending.known.extend(&child.spending.known);
        for entry in &child.spending.by_step {
            self.add_entry(Entry { step_id: step.to_owned(), ..entry.clone() });
        }
        // The calls of a failed step, and the calls that an earlier process paid for there.
        for spend in child.open.values().flatten() {
            let (input_tokens, output_tokens) = used_tokens(&spend.usage);
            let cost_usd = self.usage_cost(spend.model.as_deref(), &spend.usage);
            let (step_id, model) = (step.to_owned(), spend.model.clone());
            self.add_entry(Entry { step_id, model, input_tokens, output_tokens, cost_usd });
        }
        self.earlier.extend(child.earlier.clone());
        if self.unbounded.is_none() {
            self.unbounded.clone_from(&child.unbounded);
        }
        self.release_reservation(step);
    }

    /// Compares the spending with the limit, in constant time.
    #[must_use]
    pub fn check_limit(&self) -> BudgetVerdict {
        let Some(limit) = self.limit else { return BudgetVerdict::Within };
        let total = round_usd(self.spending.total_usd);
        if total <= limit.max_usd {
            return BudgetVerdict::Within;
        }
        let (total, max) = (exact_decimals(total, 4), exact_decimals(limit.max_usd, 2));
        match limit.action {
            LimitAction::Warn => BudgetVerdict::Warn(format!("[WARN] Cost ${total} exceeds limit ${max}")),
            LimitAction::Stop => BudgetVerdict::Stop(
                StageError::permanent(format!("Cost limit exceeded: ${total} > ${max} limit"))
                    .with_code(Code::CostLimit),
            ),
        }
    }

    /// The summary for `_meta.cost`; `None` if there was no call.
    #[must_use]
    pub fn summary(&self) -> Option<Value> {
        let mut whole = self.clone();
        for (place, spend) in self.earlier.values() {
            whole.bill_call(place, spend.model.clone(), &spend.usage);
        }
        let spending = &whole.spending;
        (!spending.by_step.is_empty()).then(|| {
            json!({
                "totalInputTokens": spending.total_input_tokens,
                "totalOutputTokens": spending.total_output_tokens,
                "estimatedCostUsd": round_usd(spending.total_usd),
                "byStep": spending.by_step,
            })
        })
    }

    /// The spending, to be saved with the run.
    #[must_use]
    pub fn spending(&self) -> &Spending {
        &self.spending
    }

    fn bill_call(&mut self, step: &str, model: Option<String>, usage: &Map<String, Value>) -> Option<String> {
        let (input, output) = used_tokens(usage);
        let rate = model.as_deref().and_then(|model| self.pricing.rate(model));
        let warning = if rate.is_none() { self.unpriced_warning(model.clone()) } else { None };
        let cost_usd = rate.map_or(0.0, |rate| rate.cost(input, output));
        self.add_entry(Entry {
            step_id: step.to_owned(),
            model,
            input_tokens: input,
            output_tokens: output,
            cost_usd,
        });
        warning
    }

    /// The warning about a model without a rate, once.
    fn unpriced_warning(&mut self, model: Option<String>) -> Option<String> {
        let name = json::compact(&model.as_deref().unwrap_or("<missing>"));
        self.spending.warned.insert(model).then(|| {
            format!(
                "[WARN] No LLM pricing configured for model {name}; recording zero cost. Set \
                 LOBSTER_LLM_PRICING_JSON to enable cost_limit enforcement for this model."
            )
        })
    }

    fn add_entry(&mut self, entry: Entry) {
        let spending = &mut self.spending;
        spending.total_input_tokens = spending.total_input_tokens.saturating_add(entry.input_tokens);
        spending.total_output_tokens = spending.total_output_tokens.saturating_add(entry.output_tokens);
        spending.total_usd += entry.cost_usd;
        spending.by_step.push(entry);
    }
}

/// The final spend of an answered call: the spend in the answer if it is valid and priced, else the
/// reservation.
pub(super) fn final_spend(pricing: &Pricing, reserved: Spend, answered: Option<Spend>) -> Spend {
    let Some(answered) = answered else { return reserved };
    if !says_what_was_used(&answered.usage) {
        return Spend { call: answered.call, ..reserved };
    }
    let priced = |model: &Option<String>| {
        let rate = model.as_deref().and_then(|model| pricing.rate(model))?;
        let (input, output) = used_tokens(&answered.usage);
        Some(rate.cost(input, output))
    };
    match (priced(&reserved.model), priced(&answered.model)) {
        // The answer may name another model, but the provider bills the requested one.
        (Some(asked), said) if said.is_none_or(|said| said < asked) => {
            Spend { model: reserved.model, ..answered }
        }
        _ => answered,
    }
}

/// The limit that a call might exceed, and the rest of it.
struct Room {
    limit: f64,
    left: f64,
}

/// Tolerance for sums of dollars, which are not decimals.
const SUM_ERROR: f64 = 1e-9;

/// The error of a call that is not made.
fn over_limit(why: impl std::fmt::Display) -> StageError {
    StageError::permanent(format!("Cost limit: the call was not made, since {why}."))
        .with_code(Code::CostLimit)
}

/// The error of a call that is not made because of its possible cost, or because of earlier spending.
fn refusal_error(worst: &WorstCase, usd: Option<f64>, room: &Room) -> StageError {
    let left = exact_decimals(round_usd(room.left.max(0.0)), 4);
    let limit = exact_decimals(room.limit, 2);
    match (usd, worst.output_tokens) {
        (Some(usd), Some(output)) => over_limit(format!(
            "it may cost up to ${} (model {}: at most {} tokens in, {output} out) and ${left} of the limit of \
             ${limit} is left. Lower --max-output-tokens, or raise cost_limit.max_usd",
            to_fixed(usd, 4),
            worst.model.as_deref().unwrap_or_default(),
            worst.input_tokens,
        )),
        _ => over_limit(format!("${left} of the limit of ${limit} is left. Raise cost_limit.max_usd")),
    }
}

/// The tokens read and written.
pub(super) fn used_tokens(usage: &Map<String, Value>) -> (u64, u64) {
    (
        token_count(usage, ["inputTokens", "input_tokens", "prompt_tokens"]),
        token_count(usage, ["outputTokens", "output_tokens", "completion_tokens"]),
    )
}

/// True if a provider's counts are plausible: whole, not negative, and not all zero.
fn says_what_was_used(usage: &Map<String, Value>) -> bool {
    const NAMES: [&str; 6] = [
        "inputTokens",
        "input_tokens",
        "prompt_tokens",
        "outputTokens",
        "output_tokens",
        "completion_tokens",
    ];
    let counts = || NAMES.iter().filter_map(|name| usage.get(*name)).filter(|count| !count.is_null());
    let is_count = |count: &Value| match count {
        Value::Number(number) => number.as_f64().is_some_and(|number| number >= 0.0),
        Value::String(text) => json::js_number(text) >= 0.0,
        _ => false,
    };
    counts().all(is_count) && used_tokens(usage) != (0, 0)
}

/// Digest of a usage; independent of the order of its fields.
fn usage_digest(usage: &impl Serialize) -> Digest {
    // A map of JSON always has a canonical form; the empty text is never used.
    Digest::of_json(usage).unwrap_or_else(|_| Digest::of_bytes(b""))
}

/// The token count in the first existing field, as ECMAScript's `Number` reads it: rounded down, not
/// negative, and zero for anything that is not a number.
fn token_count(usage: &Map<String, Value>, names: [&str; 3]) -> u64 {
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

/// Rounds to six decimals, like `Math.round`.
fn round_usd(usd: f64) -> f64 {
    (usd * 1e6 + 0.5).floor() / 1e6
}

/// The amount with `digits` decimals, or with all decimals if rounding would change it.
fn exact_decimals(usd: f64, digits: usize) -> String {
    let short = to_fixed(usd, digits);
    if short.parse() == Ok(usd) { short } else { format!("{usd}") }
}

/// ECMA-262 `Number.prototype.toFixed`, which rounds ties up.
pub(super) fn to_fixed(number: f64, digits: usize) -> String {
    let scale = 10f64.powi(i32::try_from(digits).unwrap_or(0));
    let scaled = number * scale;
    if scaled.fract() == 0.5 && scaled / scale == number {
        return format!("{:.digits$}", scaled.ceil() / scale);
    }
    format!("{number:.digits$}")
}

#[cfg(test)]
mod tests;
