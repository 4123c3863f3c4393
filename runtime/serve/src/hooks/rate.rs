//! How many deliveries of one webhook are taken in a time.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lobster_runtime::sync::lock;

/// Deliveries of one webhook a second, in the long run.
const RATE: f64 = 100.0;

/// So many may come at once.
const BURST: f64 = 1000.0;

/// What is left of each webhook's share.
#[derive(Default)]
pub(crate) struct Rates(Mutex<HashMap<String, Share>>);

struct Share {
    left: f64,
    at: Instant,
}

impl Rates {
    /// Takes one delivery.
    ///
    /// # Errors
    /// After how long the next one is taken.
    pub(crate) fn take(&self, hook: &str) -> Result<(), Duration> {
        self.take_at(hook, Instant::now())
    }

    fn take_at(&self, hook: &str, now: Instant) -> Result<(), Duration> {
        let mut all = lock(&self.0);
        let share = all.entry(hook.to_owned()).or_insert(Share { left: BURST, at: now });
        let passed = now.saturating_duration_since(share.at).as_secs_f64();
        *share = Share { left: (share.left + passed * RATE).min(BURST), at: now.max(share.at) };
        if share.left < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - share.left) / RATE));
        }
        share.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_taken_at_once_and_a_flood_at_its_rate() {
        let (rates, begun) = (Rates::default(), Instant::now());
        let taken = (0..3000).filter(|_| rates.take_at("a", begun).is_ok()).count();
        assert_eq!(taken, 1000);
        assert!(rates.take_at("a", begun).is_err_and(|wait| wait <= Duration::from_millis(10)));
        assert!(rates.take_at("b", begun).is_ok(), "each has its own");
        let later = begun + Duration::from_secs(2);
        assert_eq!((0..3000).filter(|_| rates.take_at("a", later).is_ok()).count(), 200);
        assert!(rates.take_at("a", begun).is_err(), "a clock that jumps back gives nothing");
    }
}
