//! Retries a step, within its time limit.

use lobster_base::code::Code;
use std::time::Duration;

use super::path::StepPath;
use super::record::{Record, Scope};
use super::workflow::{Enclosing, Frame};
use lobster_base::cancel::{CancelReason, CancelToken};
use lobster_base::sync::lock;
use lobster_language::plan::{Retry, Step};
use lobster_stage::{StageError, Stop};

/// The longest pause that a server can request, the same as in a pool of channels.
const LONGEST_ASKED: Duration = Duration::from_secs(3600);

impl Frame<'_> {
    /// Runs a step's work until it succeeds or its attempts are used up.
    pub(super) fn run_attempts(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        path: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let max = step.retry.as_ref().map_or(1, |retry| retry.max);
        for number in 1.. {
            let at = path.attempt(number);
            let error = match self.timed_attempt(step, scope, &at, enclosing, cancel) {
                Err(Stop::Failed(error)) => error,
                other => return other,
            };
            let Some(retry) = step.retry.as_ref().filter(|_| {
                number < max && !error.permanent && self.run.may_retry(path) && !cancel.is_cancelled()
            }) else {
                return Err(Stop::Failed(error));
            };
            self.run.clear_failure_within(path);
            if self.run.has_recorded_end(&path.attempt(number + 1)) {
                continue;
            }
            // The attempt may have paid for an answer before a later stage failed.
            if lock(&self.cost).can_refuse_calls() {
                self.count_cost(&step.id, None)?;
            }
            let delay = delay_ms(retry, number).max(asked_pause_ms(&error));
            self.run.services.print_note(&format!(
                "[RETRY] Step '{}' failed (attempt {number}/{max}): {}. Retrying in {delay}ms...",
                step.id, error.message
            ));
            let outside = self.run.store.leave_commit_group();
            let cancelled = cancel.sleep_or_cancel(Duration::from_millis(delay));
            drop(outside);
            if cancelled {
                return Err(Stop::Cancelled);
            }
        }
        Err(Stop::Cancelled)
    }

    fn timed_attempt(
        &self,
        step: &Step,
        scope: &Scope<'_>,
        at: &StepPath,
        enclosing: &Enclosing,
        cancel: &CancelToken,
    ) -> Result<Record, Stop> {
        let Some(limit) = step.timeout_ms else {
            return self.run_attempt(step, scope, at, enclosing, cancel);
        };
        let message = format!("Step '{}' timed out after {limit}ms", step.id);
        with_timeout(cancel, Duration::from_millis(limit), &message, |own| {
            self.run_attempt(step, scope, at, enclosing, own)
        })
    }
}

/// Runs `work` with a token that is cancelled after `limit`; work that ends for this reason fails with `message`. A
/// process then has its `stop_grace`.
pub(super) fn with_timeout<T>(
    cancel: &CancelToken,
    limit: Duration,
    message: &str,
    work: impl FnOnce(&CancelToken) -> Result<T, Stop>,
) -> Result<T, Stop> {
    let own = cancel.limited_child();
    let finished = CancelToken::new();
    let result = std::thread::scope(|threads| {
        let timer = threads.spawn(|| {
            if !finished.sleep_or_cancel(limit) {
                own.cancel(CancelReason::Timeout(message.to_owned()));
            }
        });
        let result = work(&own);
        finished.cancel(CancelReason::Superseded);
        // The timer only waits and signals; it cannot panic.
        let _ = timer.join();
        result
    });
    timeout_as_failure(result, &own)
}

/// Reports work that a time limit cancelled as failed.
pub(super) fn timeout_as_failure<T>(result: Result<T, Stop>, token: &CancelToken) -> Result<T, Stop> {
    match (result, token.reason()) {
        (Err(Stop::Cancelled), Some(CancelReason::Timeout(message))) => {
            Err(Stop::Failed(StageError::new(message).with_code(Code::Timeout)))
        }
        (other, _) => other,
    }
}

/// Pause after `failures` failed attempts, in milliseconds.
fn delay_ms(retry: &Retry, failures: u64) -> u64 {
    let base = if retry.exponential {
        let doublings = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
        (retry.delay_ms * 2f64.powi(doublings)).min(retry.max_delay_ms)
    } else {
        retry.delay_ms
    };
    let delay =
        if retry.jitter { (base * (0.9 + 0.2 * unit_random())).min(retry.max_delay_ms) } else { base };
    // Durations are finite and not negative (checked at load); the cast saturates.
    delay.round().max(0.0) as u64
}

/// The pause that the failed server requests, up to [`LONGEST_ASKED`], in milliseconds. A random addition keeps steps
/// that were refused together from returning together.
fn asked_pause_ms(error: &StageError) -> u64 {
    let Some(asked) = error.retry_after else { return 0 };
    let asked = asked.min(LONGEST_ASKED).mul_f64(1.0 + 0.1 * unit_random());
    u64::try_from(asked.as_millis()).unwrap_or(u64::MAX)
}

/// A number between 0 and 1. It only spreads retries, so poor randomness would do.
fn unit_random() -> f64 {
    let bits = getrandom::u32().unwrap_or(u32::MAX / 2);
    f64::from(bits) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry_settings(exponential: bool, delay_ms: f64, max_delay_ms: f64, jitter: bool) -> Retry {
        Retry { max: 9, exponential, delay_ms, max_delay_ms, jitter }
    }

    #[test]
    fn delays_follow_the_policy() {
        let exponential = retry_settings(true, 10.0, 25.0, false);
        assert_eq!([1, 2, 3, 4].map(|n| delay_ms(&exponential, n)), [10, 20, 25, 25]);
        assert_eq!(delay_ms(&retry_settings(false, 60.0, 5.0, false), 1), 60);
        assert_eq!(delay_ms(&retry_settings(false, 100.0, 10.0, true), 1), 10);
        assert!((90..=110).contains(&delay_ms(&retry_settings(false, 100.0, 30_000.0, true), 3)));
        assert_eq!(delay_ms(&retry_settings(true, 1.0, 30_000.0, false), 5000), 30_000);
    }

    #[test]
    fn a_server_is_given_the_pause_that_it_asks_for() {
        let pause = |asked: Option<u64>| {
            let error = StageError::new("x");
            asked_pause_ms(&StageError { retry_after: asked.map(Duration::from_secs), ..error })
        };
        assert_eq!(pause(None), 0);
        assert!((2_000..=2_200).contains(&pause(Some(2))));
        assert!((3_600_000..=3_960_000).contains(&pause(Some(u64::MAX))));
    }

    #[test]
    fn a_passed_limit_is_a_failure_with_its_message() {
        let result: Result<(), Stop> =
            with_timeout(&CancelToken::new(), Duration::from_millis(5), "too slow", |own| {
                own.sleep_or_cancel(Duration::from_secs(10));
                Err(Stop::Cancelled)
            });
        assert!(matches!(result, Err(Stop::Failed(e)) if e.message == "too slow"));
    }
}
