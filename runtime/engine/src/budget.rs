//! What one effect may cost: put aside before each call of a model, kept as spent unless the answer
//! says otherwise, and on record before the call is made, so that neither a lost answer nor the
//! death of the process gives it back.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use lobster_base::sync::lock;
use lobster_models::cost::CostTracker;
use lobster_models::http::parse_url;
use lobster_models::{CALL, Spend};
use lobster_stage::{EffectAction, StageError, WorstCase};
use lobster_store::{StepOutcome, StepStatus};

/// What an effect may cost, until it is over.
pub(crate) struct Budget<'a> {
    /// Who counts, and under which step.
    cost: Option<&'a (Arc<Mutex<CostTracker>>, String)>,
    /// Calls that count as spent.
    paid: RefCell<Vec<Spend>>,
}

impl<'a> Budget<'a> {
    pub(crate) fn new(cost: Option<&'a (Arc<Mutex<CostTracker>>, String)>) -> Self {
        Self { cost, paid: RefCell::default() }
    }

    /// Puts aside what a call may cost. Gives the detail of the note that is to be on record before
    /// the call is made, and a line for stderr.
    ///
    /// # Errors
    /// When the call may not be made.
    pub(crate) fn reserve(&self, worst: &WorstCase) -> Result<Option<(Value, Option<String>)>, StageError> {
        let Some((cost, step)) = self.cost else { return Ok(None) };
        let (spend, line) = lock(cost).reserve(step, worst)?;
        let detail = json!({ "spend": [spend] });
        self.paid.borrow_mut().push(spend);
        Ok(Some((detail, line)))
    }

    /// Gives back what was put aside last.
    pub(crate) fn give_back(&self) {
        if let (Some((cost, step)), Some(reserved)) = (self.cost, self.paid.borrow_mut().pop()) {
            lock(cost).give_back(step, &reserved);
        }
    }

    /// The answer of an effect, with every call that it was paid for.
    pub(crate) fn settle(&self, mut answer: Value) -> Value {
        let mut paid = self.paid.borrow_mut();
        if let (Some((cost, _)), Some(reserved)) = (self.cost, paid.pop()) {
            // Calls before the last one were lost: a pool went on to its next channel.
            let answered = Spend::on_record(&answer).pop();
            paid.push(lock(cost).settle(reserved, answered));
            answer["spend"] = json!(*paid);
        }
        answer
    }

    /// The outcome of an effect that has no answer, with every call that it may have paid for.
    pub(crate) fn lose(&self, mut outcome: StepOutcome) -> StepOutcome {
        let paid = self.paid.borrow();
        if !paid.is_empty() {
            if !outcome.detail.is_object() {
                outcome.detail = json!({});
            }
            outcome.detail["spend"] = json!(*paid);
        }
        outcome
    }

    /// The outcome of a call of a model, with who was asked and what the answer did cost.
    pub(crate) fn describe(&self, action: &EffectAction, mut outcome: StepOutcome) -> StepOutcome {
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

    /// Takes from a recorded failure what it was paid for.
    pub(crate) fn recall(&self, outcome: &StepOutcome) {
        let mut paid = self.paid.borrow_mut();
        if paid.is_empty() {
            *paid = Spend::on_record(&outcome.detail);
        }
    }

    /// The effect is over: what it was paid for is counted, and the rest is free again.
    pub(crate) fn close(self, action: &EffectAction, answer: Option<&Value>) {
        let Some((cost, step)) = self.cost else { return };
        let mut cost = lock(cost);
        match answer {
            Some(answer) => cost.effect(step, action, answer),
            None => self.paid.into_inner().into_iter().for_each(|spend| cost.paid(step, spend)),
        }
        cost.release(step);
    }
}
