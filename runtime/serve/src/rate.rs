//! The limits of starts, one for each sender and one for the queue: the same for webhooks, the API, the console and
//! agents.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lobster_runtime::sync::lock;

/// Most starts that may wait; further ones are refused for a while.
pub(crate) const QUEUE_AT_MOST: u64 = 10_000;

/// Starts per second of one sender, on average.
const RATE: f64 = 100.0;

/// Most starts of one sender in a burst.
const BURST: f64 = 1000.0;

/// The remaining share of each sender.
#[derive(Default)]
pub(crate) struct Rates(Mutex<HashMap<String, Share>>);

struct Share {
    left: f64,
    at: Instant,
}

impl Rates {
    /// Takes one start from a sender's share.
    ///
    /// # Errors
    /// Returns the time after which the next one is accepted.
    pub(crate) fn take_start(&self, sender: &str) -> Result<(), Duration> {
        self.take_at(sender, Instant::now())
    }

    fn take_at(&self, sender: &str, now: Instant) -> Result<(), Duration> {
        let mut all = lock(&self.0);
        let share = all.entry(sender.to_owned()).or_insert(Share { left: BURST, at: now });
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
