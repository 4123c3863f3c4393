//! The cost limit of one effect. An amount is reserved before each call of a model, and is spent unless the answer
//! reports less. The reservation is recorded before the call, so neither a lost answer nor the death of the process
//! gives it back.

use std::cell::{Cell, RefCell};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::path::StepPath;
use super::run::Run;
use lobster_base::budget::Amount;
use lobster_base::sync::lock;
use lobster_language::plan::{self, Step, Workflow};
use lobster_models::budget::{Account, Booking, Holder, Prices, Terms};
use lobster_models::cost::CostTracker;
use lobster_models::http::parse_url;
use lobster_models::pricing::Pricing;
use lobster_models::{CALL, Spend};
use lobster_stage::{EffectAction, StageError, Stop, WorstCase};
use lobster_store::{StepOutcome, StepStatus};

/// The account of a run: the budget of its file, and the service's budget if the service started it.
///
/// # Errors
/// If the store cannot be read.
pub(crate) fn of_run(run: &Run<'_>, workflow: Option<&Workflow>) -> Result<Arc<Account>, Stop> {
    let (pricing, bad) = Pricing::configured(|name| run.services.env.get(name));
    let prices = Prices { pricing, bad: bad.into_iter().next() };
    let mut terms: Vec<Terms> = workflow.map(|workflow| terms_of_file(run, workflow)).unwrap_or_default();
    terms.extend(terms_of_service(run)?);
    let used = used_earlier(run, &StepPath::root(), |spend| prices.amount_of(spend));
    Ok(Account::new(prices, terms, used))
}

/// The account of a sub-workflow at its path.
pub(crate) fn of_child(
    run: &Run<'_>,
    workflow: &Workflow,
    path: &StepPath,
    around: &Arc<Account>,
) -> Arc<Account> {
    match terms_of_file(run, workflow) {
        none if none.is_empty() => Arc::clone(around),
        terms => Account::nested_in(around, terms, used_earlier(run, path, |spend| around.amount_of(spend))),
    }
}

/// The account of a step that has its own budget.
pub(crate) fn of_step(
    run: &Run<'_>,
    step: &Step,
    path: &StepPath,
    around: &Arc<Account>,
) -> Option<Arc<Account>> {
    let budget = step.extras.budget.as_ref()?;
    let terms = Terms {
        holder: Holder::Step(step.id.clone()),
        limits: budget.limits,
        allows_unpriced: budget.allows_unpriced,
        day_key: None,
    };
    Some(Account::nested_in(around, vec![terms], used_earlier(run, path, |spend| around.amount_of(spend))))
}

/// The amount that earlier executions of the run used at a path.
fn used_earlier(run: &Run<'_>, path: &StepPath, amount_of: impl Fn(&Spend) -> Amount) -> Amount {
    let paid = run.paid_earlier();
    let within = paid.iter().filter(|(place, _)| StepPath::from(place.as_str()).is_within(path));
    within.fold(Amount::default(), |sum, (_, spend)| sum.plus(amount_of(spend)))
}

fn terms_of_file(run: &Run<'_>, workflow: &Workflow) -> Vec<Terms> {
    let Some(plan::Budget { limits, day, allows_unpriced }) = &workflow.budget else { return Vec::new() };
    let name = workflow.file.file_name().unwrap_or(workflow.file.as_os_str()).display().to_string();
    let name = run.store.hide_secrets(&name).into_owned();
    let whole = Terms {
        holder: Holder::Run(name.clone()),
        limits: *limits,
        allows_unpriced: *allows_unpriced,
        day_key: None,
    };
    let day = Terms {
        holder: Holder::Day(name),
        limits: *day,
        allows_unpriced: *allows_unpriced,
        // The path of a file that an argument or a result names may contain a secret.
        day_key: Some(run.store.hide_secrets(&day_key(workflow)).into_owned()),
    };
    [whole, day].into_iter().filter(|terms| !terms.limits.is_empty()).collect()
}

/// The key of the amount that all runs of a file use on a day.
fn day_key(workflow: &Workflow) -> String {
    let file = std::fs::canonicalize(&workflow.file).unwrap_or_else(|_| workflow.file.clone());
    format!("file:{}", file.display())
}

/// The key of the amount that all runs of the service use on a day.
pub const SERVICE_KEY: &str = "service";

/// The budget of the service, for a run that it started. The run records that there is one: a call under a budget
/// names its limit of tokens, so a replay must find the same limit.
fn terms_of_service(run: &Run<'_>) -> Result<Option<Terms>, Stop> {
    let place = StepPath::root().gate("service budget");
    if run.recorded_value(&place).is_none() {
        if !run.is_journaled() || run.store.service_budget().map_err(lobster_stage::store_failure)?.is_none()
        {
            return Ok(None);
        }
        let service = run.store.existing_service().map_err(lobster_stage::store_failure)?;
        let start = service.map(|service| service.start_of(run.id)).transpose();
        if start.map_err(lobster_stage::store_failure)?.flatten().is_none() {
            return Ok(None);
        }
        run.record_value(&place, || Ok(Value::Bool(true)))?;
    }
    let found = run.store.service_budget().map_err(lobster_stage::store_failure)?;
    let (limits, allows_unpriced) = found.unwrap_or_default();
    let day_key = Some(SERVICE_KEY.to_owned());
    Ok(Some(Terms { holder: Holder::Service, limits, allows_unpriced, day_key }))
}

/// The budget of an effect, until the effect has ended.
pub(crate) struct Budget<'a> {
    run: &'a Run<'a>,
    /// The tracker that adds up the costs, and the step's name in it.
    cost: Option<&'a (Arc<Mutex<CostTracker>>, String)>,
    account: &'a Account,
    /// Calls that are spent.
    paid: RefCell<Vec<(Spend, Booking)>>,
    /// Calls in an outcome from the record.
    recalled: RefCell<Vec<Spend>>,
    /// True if a budget had no room for a call of this effect.
    has_refused: Cell<bool>,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(
        run: &'a Run<'a>,
        cost: Option<&'a (Arc<Mutex<CostTracker>>, String)>,
        account: &'a Account,
    ) -> Self {
        let (paid, recalled) = (RefCell::default(), RefCell::default());
        Self { run, cost, account, paid, recalled, has_refused: Cell::new(false) }
    }

    /// Reserves the amount that a call may use. Returns the detail of the note that has to be recorded before the
    /// call, and a line for stderr.
    ///
    /// # Errors
    /// If the budget does not allow the call.
    pub(crate) fn reserve(&self, worst: &WorstCase) -> Result<(Value, Option<String>), StageError> {
        let booked = self.account.book_call(&self.run.store, worst, self.has_refused.get());
        let booking = booked.inspect_err(|_| self.has_refused.set(true))?;
        let reserved = match self.cost {
            Some((cost, step)) => lock(cost).reserve_cost(step, worst),
            None => Ok((Spend::from_worst_case(worst), None)),
        };
        match reserved {
            Ok((spend, line)) => {
                let detail = json!({ "spend": [spend] });
                self.paid.borrow_mut().push((spend, booking));
                Ok((detail, line))
            }
            Err(refused) => {
                self.settle_booking(&booking, Amount::default());
                Err(refused)
            }
        }
    }

    /// Gives back the last reservation.
    pub(crate) fn give_back(&self) {
        let Some((reserved, booking)) = self.paid.borrow_mut().pop() else { return };
        if let Some((cost, step)) = self.cost {
            lock(cost).give_back(step, &reserved);
        }
        self.settle_booking(&booking, Amount::default());
    }

    /// If the store fails now, the whole reservation stays spent, so less is left than there could be.
    fn settle_booking(&self, booking: &Booking, used: Amount) {
        if let Err(error) = self.account.settle_booking(&self.run.store, booking, used) {
            tracing::warn!(%error, "a call is charged with its whole reservation");
        }
    }

    /// The answer of an effect, with every call that was paid for it.
    pub(crate) fn add_paid_calls(&self, mut answer: Value) -> Value {
        let mut paid = self.paid.borrow_mut();
        if let Some((reserved, booking)) = paid.pop() {
            // Calls before the last one were lost: a pool continued with its next channel.
            let answered = Spend::on_record(&answer).pop();
            let spend = self.account.final_spend(reserved, answered);
            self.settle_booking(&booking, self.account.amount_of(&spend));
            paid.push((spend, booking));
            answer["spend"] = json!(paid.iter().map(|(spend, _)| spend).collect::<Vec<_>>());
        }
        answer
    }

    /// The outcome of an effect without an answer, with every call that may have been paid for it.
    pub(crate) fn add_lost_calls(&self, mut outcome: StepOutcome) -> StepOutcome {
        let paid = self.all_paid();
        if !paid.is_empty() {
            if !outcome.detail.is_object() {
                outcome.detail = json!({});
            }
            outcome.detail["spend"] = json!(paid);
        }
        outcome
    }

    /// The outcome of a model's call, with the request's destination and the cost of the answer.
    pub(crate) fn describe_outcome(&self, action: &EffectAction, mut outcome: StepOutcome) -> StepOutcome {
        if action.kind != CALL {
            return outcome;
        }
        if !outcome.detail.is_object() {
            outcome.detail = json!({});
        }
        let detail = &action.detail;
        let places = ["/body/model", "/body/args/model", "/model"];
        let model = places.iter().find_map(|place| detail.pointer(place));
        let url = detail["url"].as_str().and_then(parse_url);
        outcome.detail["request"] = json!({
            "provider": detail["provider"],
            "model": model,
            "server": url.as_ref().and_then(|url| url.host_str()),
            "port": url.as_ref().and_then(|url| url.port_or_known_default()),
        });
        if let Some(operation) = detail.get("operation") {
            outcome.detail["request"]["operation"] = operation.clone();
        }
        if let Some((cost, _)) = self.cost
            && outcome.status == StepStatus::Ok
            && let Some(usd) = lock(cost).usd_of(&outcome.value)
        {
            outcome.detail["costUsd"] = json!(usd);
        }
        outcome
    }

    /// Reads the costs of a recorded failure.
    pub(crate) fn recall_costs(&self, outcome: &StepOutcome) {
        if self.paid.borrow().is_empty() {
            *self.recalled.borrow_mut() = Spend::on_record(&outcome.detail);
        }
    }

    fn all_paid(&self) -> Vec<Spend> {
        let live = self.paid.borrow();
        self.recalled.borrow().iter().chain(live.iter().map(|(spend, _)| spend)).cloned().collect()
    }

    /// Closes the budget of an ended effect: its costs are added up, and the remainder is free again.
    pub(crate) fn close(self, action: &EffectAction, answer: Option<&Value>) {
        let Some((cost, step)) = self.cost else { return };
        let mut cost = lock(cost);
        match answer {
            Some(answer) => cost.record_effect(step, action, answer),
            None => self.all_paid().into_iter().for_each(|spend| cost.record_payment(step, spend)),
        }
        cost.release_reservation(step);
    }
}
