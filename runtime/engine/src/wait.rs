//! Steps that wait for a time or an event, and pauses between rounds.
//!
//! A run under a service is left when all its threads wait: the waits are recorded, and the process ends. Any other
//! run waits in its process.

use std::sync::Arc;
use std::time::Duration;

use lobster_base::cancel::CancelToken;
use lobster_base::code::Code;
use lobster_language::plan::{Step, WaitFor};
use lobster_language::wait::{deadline_after, event_name, parse_time};
use lobster_stage::{StageError, Stop, store_failure};
use lobster_store::{Durability, SentEvent, Store};
use serde_json::{Value, json};

use super::path::StepPath;
use super::record::{Record, Scope};
use super::run::Run;
use super::workflow::Frame;

/// Longest time between two looks at the clock. A machine that slept, or whose clock was set, is noticed within this
/// time, and so is the end of the run's other work.
const LOOK: Duration = Duration::from_secs(1);

/// Interval at which a step that waits for an event checks for it.
const LOOK_FOR_EVENT: Duration = Duration::from_millis(250);

/// Shortest wait for which a run is left: starting another process would take as long as a shorter one.
const WORTH_LEAVING: Duration = Duration::from_secs(3);

/// A server without a sign of life for this time is dead. It sends one every 2 s.
const SERVER_IS_GONE_MS: i64 = 30_000;

impl Frame<'_> {
    /// Waits, and returns the step's input or the event's data.
    pub(super) fn run_wait(
        &self,
        step: &Step,
        wait: &WaitFor,
        scope: &Scope<'_>,
        path: &StepPath,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let whose = format!("{} wait", step.id);
        match wait {
            WaitFor::Span(text) => {
                let text = self.fill_template(text, scope, path)?;
                self.wait_until(&whose, path, &text, |now| deadline_after(&text, now), cancel)?;
            }
            WaitFor::Time(text) => {
                let text = self.fill_template(text, scope, path)?;
                self.wait_until(&whose, path, &text, |now| parse_time(&text, now), cancel)?;
            }
            WaitFor::Event { name, timeout } => {
                let name = self.fill_template(name, scope, path)?;
                let limit =
                    timeout.as_ref().map(|limit| self.fill_template(limit, scope, path)).transpose()?;
                let data = self.wait_for_event(&whose, path, &name, limit.as_deref(), cancel)?;
                return Ok(Record::of_value(&step.id, Arc::new(data)));
            }
        }
        self.pass_input(step, scope, path)
    }

    /// Waits until a time that is computed once, when the run first comes here.
    pub(super) fn wait_until(
        &self,
        whose: &str,
        path: &StepPath,
        text: &str,
        decide: impl FnOnce(u64) -> Result<u64, String>,
        cancel: &CancelToken,
    ) -> Result<(), Stop> {
        let deadline = self.recorded_deadline(whose, path, text, decide)?;
        // A replay waits for nothing.
        if !self.run.is_journaled() || now_ms(&self.run.store) >= deadline {
            return Ok(());
        }
        self.run.append_events(Vec::new(), Durability::Synced)?;
        let _outside = self.run.store.leave_commit_group();
        let _paused = self.run.activity.mark_waiting();
        loop {
            let left = Duration::from_millis(deadline.saturating_sub(now_ms(&self.run.store)));
            if left.is_zero() {
                return if cancel.is_cancelled() { Err(Stop::Cancelled) } else { Ok(()) };
            }
            if left >= WORTH_LEAVING && self.run.may_be_left(cancel)? {
                self.run.leave_at(path, Some(deadline), None);
                return Err(Stop::Paused);
            }
            if cancel.sleep_or_cancel(left.min(LOOK)) {
                return Err(Stop::Cancelled);
            }
            self.run.check_not_called_off()?;
        }
    }

    /// The end of a step's wait. It is in the journal before the wait begins, so a resumed run or a fork waits only
    /// for the remainder.
    fn recorded_deadline(
        &self,
        whose: &str,
        path: &StepPath,
        text: &str,
        decide: impl FnOnce(u64) -> Result<u64, String>,
    ) -> Result<u64, Stop> {
        let place = path.gate("wait");
        let decided = self.run.record_value(&place, || {
            let earlier = self.run.overseer().and_then(|overseer| overseer.earlier_decision(&place));
            // Another duration or time is another wait.
            if let Some(earlier) = earlier.filter(|earlier| earlier["for"] == text) {
                return Ok(earlier);
            }
            let until = decide(now_ms(&self.run.store)).map_err(|why| {
                let message = format!("Workflow step {whose}: {why}");
                StageError::permanent(message).with_code(Code::StepValue)
            })?;
            Ok(json!({ "for": text, "until": until }))
        })?;
        Ok(decided["until"].as_u64().unwrap_or_default())
    }

    /// Waits for an event, and returns its data. The choice of the event, or the fact that none came in time, is
    /// recorded once in the journal.
    fn wait_for_event(
        &self,
        whose: &str,
        path: &StepPath,
        name: &str,
        limit: Option<&str>,
        cancel: &CancelToken,
    ) -> Result<Value, Stop> {
        let failed = |why: String| StageError::permanent(format!("Workflow step {whose}: {why}"));
        let name = event_name(name).map_err(|why| {
            self.run.record_failure(path);
            failed(why).with_code(Code::StepValue)
        })?;
        let deadline = match limit {
            None => None,
            Some(limit) => {
                let text = format!("event {name}, at most {limit}");
                Some(self.recorded_deadline(whose, path, &text, |now| deadline_after(limit, now))?)
            }
        };
        let place = path.gate("event");
        let came = match self.run.recorded_value(&place) {
            Some(came) => came,
            None => {
                let earlier = self.run.overseer().and_then(|overseer| overseer.earlier_decision(&place));
                let mut came = match earlier
                    .filter(|earlier| earlier["name"] == name && earlier["late"] != true)
                {
                    Some(earlier) => earlier,
                    None => match self.await_event(path, name, deadline, cancel)? {
                        Some(event) => {
                            json!({ "name": name, "event": event.n, "data": event.data, "at": event.at, "by": event.by })
                        }
                        None => json!({ "name": name, "late": true }),
                    },
                };
                // The sender may not have known what is a secret here.
                self.run.store.hide_in(&mut came);
                self.run.record_value(&place, || Ok(came))?
            }
        };
        if came["late"] == true {
            self.run.record_failure(path);
            let message =
                format!("Workflow step {whose}: no event {name} came within {}", limit.unwrap_or_default());
            return Err(StageError::new(message).with_code(Code::Timeout).into());
        }
        Ok(came["data"].clone())
    }

    /// The event that a path waits for; `None` if it does not come in time.
    fn await_event(
        &self,
        path: &StepPath,
        name: &str,
        deadline: Option<u64>,
        cancel: &CancelToken,
    ) -> Result<Option<SentEvent>, Stop> {
        // Only the record knows which event it was.
        if !self.run.is_journaled() {
            return Err(Stop::Paused);
        }
        self.run.append_events(Vec::new(), Durability::Synced)?;
        let store = &self.run.store;
        let service = store.service().map_err(store_failure)?;
        let since = store.run(self.run.id).map_err(store_failure)?.started_at;
        let _outside = store.leave_commit_group();
        let _paused = self.run.activity.mark_waiting();
        loop {
            let is_late = deadline.is_some_and(|deadline| now_ms(store) >= deadline);
            let found = service.take_event(self.run.id, path.as_str(), name, since).map_err(store_failure)?;
            if found.is_some() || is_late {
                return if cancel.is_cancelled() { Err(Stop::Cancelled) } else { Ok(found) };
            }
            if self.run.may_be_left(cancel)? {
                self.run.leave_at(path, deadline, Some(name));
                return Err(Stop::Paused);
            }
            let left = deadline.map(|deadline| Duration::from_millis(deadline.saturating_sub(now_ms(store))));
            if cancel.sleep_or_cancel(left.unwrap_or(LOOK_FOR_EVENT).min(LOOK_FOR_EVENT)) {
                return Err(Stop::Cancelled);
            }
            self.run.check_not_called_off()?;
        }
    }
}

impl Run<'_> {
    /// True if the service resumes this run when a wait is over, and no other work of the run is active. A step's time
    /// limit is measured in this process, so the run is not left inside such a step.
    fn may_be_left(&self, cancel: &CancelToken) -> Result<bool, Stop> {
        if cancel.is_cancelled() || cancel.has_limit() || !self.activity.is_idle() {
            return Ok(false);
        }
        let Some(service) = self.store.existing_service().map_err(store_failure)? else { return Ok(false) };
        let since = self.store.clock_ms().saturating_sub(SERVER_IS_GONE_MS);
        service.looks_after(self.id, since).map_err(store_failure)
    }
}

fn now_ms(store: &Store) -> u64 {
    u64::try_from(store.clock_ms()).unwrap_or_default()
}
