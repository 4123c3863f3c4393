//! Paid model calls in the record of a run.

use std::collections::BTreeMap;

use lobster_store::{Event, Record, StepStatus};

use super::cost::PaidCall;
use super::pricing::Pricing;
use super::{CALL, Spend};

/// The note with the highest cost of a model call: its detail has the call under `spend`.
pub const RESERVED: &str = "reserved";

/// The attempt number that summarises a composite step, which is not an effect.
const SUMMARY: u32 = 0;

/// The model calls of a journal. Every call stays paid, even if its failure is forgotten because of a
/// retry, or if its end is unknown.
#[derive(Clone, Debug, Default)]
pub struct Ledger(BTreeMap<String, Call>);

/// Payments for the attempts at one call.
#[derive(Clone, Debug, Default)]
struct Call {
    /// Start of the last attempt.
    at: i64,
    /// True if the answer was reused from another run, which paid for it.
    is_reused: bool,
    /// Reservations of the running attempt.
    reserved: Vec<Spend>,
    /// Payments for attempts that have ended, and reservations of interrupted attempts.
    counted: Vec<Spend>,
}

/// One paid call.
#[derive(Clone, Debug, PartialEq)]
pub struct Payment {
    /// Path in the run.
    pub path: String,
    /// Time in milliseconds since 1970.
    pub at: i64,
    /// The tokens used.
    pub spend: Spend,
}

impl Payment {
    /// The call with its cost at the rates of `pricing`.
    #[must_use]
    pub fn price_with(&self, pricing: &Pricing) -> PaidCall {
        PaidCall::new(self.spend.clone(), pricing)
    }
}

impl Ledger {
    /// The calls of a whole journal.
    #[must_use]
    pub fn from_journal(journal: &[Record]) -> Self {
        let mut ledger = Self::default();
        journal.iter().for_each(|record| ledger.read_record(record));
        ledger
    }

    /// Adds the next record of a journal.
    pub fn read_record(&mut self, record: &Record) {
        match &record.event {
            Event::StepStarted { path, kind, detail, .. } if kind == CALL => {
                let call = self.0.entry(path.clone()).or_default();
                call.counted.append(&mut call.reserved);
                call.at = record.at;
                call.is_reused = detail["reused"] == true;
            }
            Event::Note { path: Some(path), text, detail } if text == RESERVED => {
                let call = self.0.entry(path.clone()).or_default();
                call.reserved.extend(Spend::on_record(detail));
            }
            Event::StepEnded { path, attempt, outcome, .. } if *attempt != SUMMARY => {
                let Some(call) = self.0.get_mut(path).filter(|call| !call.is_reused) else { return };
                let told = [&outcome.value, &outcome.detail].map(Spend::on_record).concat();
                // If the process died, its reservations stay, since nothing reports the actual use.
                if !told.is_empty() || outcome.status != StepStatus::Interrupted {
                    call.reserved.clear();
                }
                call.counted.extend(told);
            }
            _ => {}
        }
    }

    /// All calls, by path.
    pub fn payments(&self) -> impl Iterator<Item = Payment> {
        self.0.iter().flat_map(|(path, call)| {
            let all = call.counted.iter().chain(&call.reserved);
            all.map(|spend| Payment { path: path.clone(), at: call.at, spend: spend.clone() })
        })
    }
}

#[cfg(test)]
mod tests {
    use lobster_base::digest::Digest;
    use serde_json::{Value, json};

    use super::*;

    fn counted_calls(events: &[Value]) -> Vec<(String, bool)> {
        let record = |(event, seq): (&Value, u64)| Record {
            run: "018f3c2e-0000-7000-8000-000000000001".parse().unwrap(),
            seq,
            at: 5,
            prev: Digest::of_bytes(b""),
            event: serde_json::from_value(event.clone()).unwrap(),
            text: String::new(),
        };
        let journal: Vec<_> = events.iter().zip(1..).map(record).collect();
        Ledger::from_journal(&journal).payments().map(|paid| (paid.spend.call, paid.spend.is_lost)).collect()
    }

    #[test]
    fn every_call_stays_paid_whatever_became_of_it() {
        let begin = |detail: Value| json!({"type": "step_started", "path": "a|0.0", "attempt": 1, "kind": CALL, "effect": true, "detail": detail});
        let spend = |call: &str, lost: bool| json!([{"call": call, "model": "m", "usage": {}, "lost": lost}]);
        let reserve = |call: &str| json!({"type": "note", "path": "a|0.0", "text": RESERVED, "detail": {"spend": spend(call, true)}});
        let end = |status: &str, value: Value, detail: Value| {
            json!({"type": "step_ended", "path": "a|0.0", "attempt": 1,
                   "outcome": {"status": status, "value": value, "duration_us": 1, "detail": detail}})
        };
        let paid = |call: &str, lost: bool| (call.to_owned(), lost);
        let (fresh, none) = (begin(json!(null)), json!(null));
        let answered = end("ok", json!({"spend": spend("r1", false)}), none.clone());
        let failed = end("failed", none.clone(), json!({"spend": spend("r1", true)}));
        let refused = end("failed", none.clone(), none.clone());
        let unseen = end("interrupted", none.clone(), json!({"cut_off": true}));
        let r1 = reserve("r1");
        for (journal, expected) in [
            (vec![&fresh, &answered], vec![paid("r1", false)]),
            (vec![&fresh, &r1, &answered], vec![paid("r1", false)]),
            (vec![&fresh, &r1, &failed], vec![paid("r1", true)]),
            (vec![&fresh, &r1, &refused], vec![]),
            (vec![&fresh, &r1], vec![paid("r1", true)]),
            (vec![&fresh, &r1, &unseen], vec![paid("r1", true)]),
            (vec![&fresh, &r1, &unseen, &fresh, &refused], vec![paid("r1", true)]),
            (vec![&fresh, &r1, &failed, &fresh, &answered], vec![paid("r1", true), paid("r1", false)]),
            (vec![&begin(json!({"reused": true})), &answered], vec![]),
            // The output of another step is not a call.
            (vec![&answered], vec![]),
        ] {
            let journal: Vec<Value> = journal.into_iter().cloned().collect();
            assert_eq!(counted_calls(&journal), expected, "{journal:?}");
        }
    }
}
