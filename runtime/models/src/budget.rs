//! Budgets: the most that the model calls of a step, of a run, or of a day may use, in calls, tokens and dollars.
//!
//! Accounts form a chain: the account of a step is inside the account of the run, which is inside the
//! account of the workflow around it. Before a call is made, its highest possible use is added to all of
//! them; if one has no room, the call is not made. The answer replaces this amount by the actual use; the
//! amount of a call that was certainly not computed is subtracted again; the amount of a call whose
//! answer is lost stays.

use std::sync::{Arc, Mutex};

use lobster_base::budget::{Amount, Unit, UsageLimits, nano_usd, usd_text};
use lobster_base::code::Code;
use lobster_base::json;
use lobster_base::sync::lock;
use lobster_stage::{StageError, WorstCase};
use lobster_store::{Day, DayLimit, Store};

use super::Spend;
use super::cost::{final_spend, to_fixed, used_tokens};
use super::pricing::{BadPrices, Pricing};

/// The owner of a budget, which also tells where the budget is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A step with this id.
    Step(String),
    /// A run of a workflow file.
    Run(String),
    /// All runs of a workflow file on one day.
    Day(String),
    /// All runs of a service on one day.
    Service,
}

impl Holder {
    fn name(&self) -> String {
        match self {
            Self::Step(id) => format!("the budget of step {id}"),
            Self::Run(file) => format!("the budget of this run of {file}"),
            Self::Day(file) => format!("the budget of {file} for today (UTC)"),
            Self::Service => "the budget of the service for today (UTC)".to_owned(),
        }
    }

    fn remedy(&self, unit: Unit) -> String {
        let field = unit.field_name();
        match self {
            Self::Run(_) => format!("raise budget.{field} of the file"),
            Self::Step(_) => format!("raise budget.{field} of the step"),
            Self::Day(_) => format!("raise budget.day.{field} of the file, or continue after 00:00 UTC"),
            Self::Service => {
                format!(
                    "raise {field} under [budget] in the configuration of the server, or continue after 00:00 UTC"
                )
            }
        }
    }
}

/// One budget.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The owner.
    pub holder: Holder,
    /// The limits.
    pub limits: UsageLimits,
    /// Models without a price may still be asked.
    pub allows_unpriced: bool,
    /// Key of a day's budget in the store.
    pub day_key: Option<String>,
}

/// Prices of models.
#[derive(Clone, Debug)]
pub struct Prices {
    /// The table.
    pub pricing: Pricing,
    /// Unusable prices of the operator: with them no budget in dollars can be enforced.
    pub bad: Option<BadPrices>,
}

impl Prices {
    /// The use of a call.
    #[must_use]
    pub fn amount_of(&self, spend: &Spend) -> Amount {
        let (input, output) = used_tokens(&spend.usage);
        let rate = spend.model.as_deref().and_then(|model| self.pricing.rate(model));
        Amount {
            calls: 1,
            tokens: input.saturating_add(output),
            nano_usd: rate.map_or(0, |rate| nano_usd(rate.cost(input, output))),
        }
    }
}

/// Limits and use of one step or run.
#[derive(Debug)]
pub struct Account {
    terms: Vec<Terms>,
    used: Mutex<Amount>,
    parent: Option<Arc<Self>>,
    prices: Arc<Prices>,
}

/// A call that was added to the accounts of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booking {
    amount: Amount,
    day: Option<Day>,
}

/// The most that a call may use; `None` if it is not known.
struct Asked<'a> {
    worst: &'a WorstCase,
    tokens: Option<u64>,
    usd: Option<f64>,
    is_unpriced: bool,
    bad_prices: Option<&'a BadPrices>,
}

impl Account {
    /// An account that is in no other account.
    #[must_use]
    pub fn new(prices: Prices, terms: Vec<Terms>, used: Amount) -> Arc<Self> {
        Arc::new(Self { terms, used: Mutex::new(used), parent: None, prices: Arc::new(prices) })
    }

    /// An account inside another one, with `used` from earlier.
    #[must_use]
    pub fn nested_in(parent: &Arc<Self>, terms: Vec<Terms>, used: Amount) -> Arc<Self> {
        let prices = Arc::clone(&parent.prices);
        Arc::new(Self { terms, used: Mutex::new(used), parent: Some(Arc::clone(parent)), prices })
    }

    /// True if calls may be refused.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.account_chain().any(|account| !account.terms.is_empty())
    }

    /// Adds the most that a call may use. If `has_refused`, a model with a price was too expensive for
    /// the same call, so no model without a price is asked instead.
    ///
    /// # Errors
    /// A budget of the chain has no room or cannot be enforced, or the store fails.
    pub fn book_call(
        &self,
        store: &Store,
        worst: &WorstCase,
        has_refused: bool,
    ) -> Result<Booking, StageError> {
        let rate = worst.model.as_deref().and_then(|model| self.prices.pricing.rate(model));
        let asked = Asked {
            worst,
            tokens: worst.output_tokens.map(|output| worst.input_tokens.saturating_add(output)),
            usd: rate.zip(worst.output_tokens).map(|(rate, output)| rate.cost(worst.input_tokens, output)),
            is_unpriced: rate.is_none(),
            bad_prices: self.prices.bad.as_ref(),
        };
        for terms in self.all_terms() {
            asked.can_be_held(terms, has_refused)?;
        }
        let amount =
            Amount { calls: 1, tokens: asked.tokens.unwrap_or(0), nano_usd: asked.usd.map_or(0, nano_usd) };
        self.add_amount(amount, &asked)?;
        let days = self.day_limits();
        if days.is_empty() {
            return Ok(Booking { amount, day: None });
        }
        let limits: Vec<DayLimit> = days.iter().map(|(_, limit)| limit.clone()).collect();
        match store.spend_today(&limits, amount) {
            Ok(Ok(day)) => Ok(Booking { amount, day: Some(day) }),
            Ok(Err(full)) => {
                self.take_off(amount);
                let (terms, _) = days[full.index];
                Err(asked.refusal_error(terms, full.unit, full.used))
            }
            Err(error) => {
                self.take_off(amount);
                Err(StageError::permanent_from(error).with_code(Code::Store))
            }
        }
    }

    /// The use of a call.
    #[must_use]
    pub fn amount_of(&self, spend: &Spend) -> Amount {
        self.prices.amount_of(spend)
    }

    /// The final spend of an answered call: the spend in the answer if it is valid, else the reserved amount.
    #[must_use]
    pub fn final_spend(&self, reserved: Spend, answered: Option<Spend>) -> Spend {
        final_spend(&self.prices.pricing, reserved, answered)
    }

    /// Replaces the amount added for a call by its actual use, which is nothing if the call was not computed.
    ///
    /// # Errors
    /// The store fails: the call keeps its highest possible use there.
    pub fn settle_booking(&self, store: &Store, booking: &Booking, used: Amount) -> Result<(), StageError> {
        for account in self.account_chain() {
            let mut sum = lock(&account.used);
            *sum = sum.minus(booking.amount).plus(used);
        }
        match booking.day {
            None => Ok(()),
            Some(day) => {
                let limits: Vec<DayLimit> = self.day_limits().into_iter().map(|(_, limit)| limit).collect();
                store
                    .settle_day(&limits, day, booking.amount, used)
                    .map_err(|error| StageError::permanent_from(error).with_code(Code::Store))
            }
        }
    }

    /// Adds to every account, or to none if one has no room.
    fn add_amount(&self, amount: Amount, asked: &Asked<'_>) -> Result<(), StageError> {
        for (depth, account) in self.account_chain().enumerate() {
            let mut sum = lock(&account.used);
            let now = sum.plus(amount);
            let passed = account.terms.iter().filter(|terms| terms.day_key.is_none()).find_map(|terms| {
                terms.limits.passed_by(&now).map(|unit| asked.refusal_error(terms, unit, *sum))
            });
            if let Some(refused) = passed {
                drop(sum);
                for before in self.account_chain().take(depth) {
                    let mut sum = lock(&before.used);
                    *sum = sum.minus(amount);
                }
                return Err(refused);
            }
            *sum = now;
        }
        Ok(())
    }

    fn take_off(&self, amount: Amount) {
        for account in self.account_chain() {
            let mut sum = lock(&account.used);
            *sum = sum.minus(amount);
        }
    }

    fn account_chain(&self) -> impl Iterator<Item = &Self> {
        std::iter::successors(Some(self), |account| account.parent.as_deref())
    }

    fn all_terms(&self) -> impl Iterator<Item = &Terms> {
        self.account_chain().flat_map(|account| &account.terms)
    }

    fn day_limits(&self) -> Vec<(&Terms, DayLimit)> {
        let limit = |terms: &Terms| {
            let key = terms.day_key.clone()?;
            Some(DayLimit { key, limits: terms.limits })
        };
        self.all_terms().filter_map(|terms| limit(terms).map(|limit| (terms, limit))).collect()
    }
}

impl Asked<'_> {
    /// Checks that a budget can decide before the call if there is room for it.
    fn can_be_held(&self, terms: &Terms, has_refused: bool) -> Result<(), StageError> {
        let name = terms.holder.name();
        let limits_usd = terms.limits.nano_usd.is_some();
        if let Some(bad) = self.bad_prices.filter(|_| limits_usd) {
            let error = budget_error(&terms.holder, &format!("{name} cannot be enforced: {bad}"));
            return Err(error.with_code(Code::Setting));
        }
        if limits_usd && self.is_unpriced {
            let model = self.worst.model.as_deref().map(|model| json::compact(&model));
            let why = match model {
                Some(_) | None if terms.allows_unpriced && !has_refused => return Ok(()),
                Some(model) if terms.allows_unpriced => format!(
                    "a call of a model with a price was refused, and model {model} has no price that could be lower"
                ),
                Some(model) => format!(
                    "model {model} has no price, so {name} cannot limit it. Give its price with `lobster models \
                     prices --update FILE`, or write `unpriced: allow` under `budget`"
                ),
                None => format!(
                    "the adapter chooses the model, so {name} cannot limit it. Give --model, or write \
                     `unpriced: allow` under `budget`"
                ),
            };
            return Err(budget_error(&terms.holder, &why));
        }
        if self.tokens.is_none() && (limits_usd || terms.limits.tokens.is_some()) {
            let why = format!(
                "the adapter chooses the length of the answer, so {name} cannot limit it. Give --max-output-tokens"
            );
            return Err(budget_error(&terms.holder, &why));
        }
        Ok(())
    }

    fn refusal_error(&self, terms: &Terms, unit: Unit, used: Amount) -> StageError {
        let Terms { holder, limits, .. } = terms;
        let remedy = holder.remedy(unit);
        let remedy = match unit {
            Unit::Calls => capitalise_first(&remedy),
            Unit::Tokens | Unit::Usd => format!("Lower --max-output-tokens, or {remedy}"),
        };
        let tokens = match self.worst.output_tokens {
            Some(output) => format!("at most {} tokens in, {output} out", self.worst.input_tokens),
            None => format!("at most {} tokens in", self.worst.input_tokens),
        };
        let model = self.worst.model.as_deref().unwrap_or("of the adapter's choice");
        let asks = match unit {
            Unit::Calls => "this would be one more".to_owned(),
            Unit::Tokens => format!("it may use {} (model {model}: {tokens})", self.tokens.unwrap_or(0)),
            Unit::Usd => {
                format!(
                    "it may cost up to ${} (model {model}: {tokens})",
                    to_fixed(self.usd.unwrap_or(0.0), 4)
                )
            }
        };
        let used = match unit {
            Unit::Usd => usd_text(used.nano_usd),
            Unit::Calls | Unit::Tokens => used.count_of(unit).to_string(),
        };
        let limit = unit.format_amount(limits.limit_of(unit).unwrap_or(0));
        budget_error(holder, &format!("{} has used {used} of {limit}, and {asks}. {remedy}", holder.name()))
    }
}

fn capitalise_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A step may continue without its call; a run may not.
fn budget_error(holder: &Holder, why: &str) -> StageError {
    let code = match holder {
        Holder::Step(_) => Code::StepBudget,
        Holder::Run(_) | Holder::Day(_) | Holder::Service => Code::Budget,
    };
    StageError::permanent(format!("Budget: the call was not made, since {why}.")).with_code(code)
}
