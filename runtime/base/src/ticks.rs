//! Clock ticks, in which Linux reports the times of processes (`/proc/PID/stat`).

use std::time::Duration;

/// The duration of a number of ticks.
#[must_use]
pub fn time_of_ticks(ticks: u64) -> Duration {
    let in_a_second = rustix::param::clock_ticks_per_second().max(1);
    let rest = ticks % in_a_second * 1_000_000_000 / in_a_second;
    Duration::from_secs(ticks / in_a_second) + Duration::from_nanos(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_as_many_ticks_as_the_system_says() {
        let in_a_second = rustix::param::clock_ticks_per_second();
        assert_eq!(time_of_ticks(in_a_second), Duration::from_secs(1));
        assert_eq!(time_of_ticks(0), Duration::ZERO);
        assert!(time_of_ticks(u64::MAX) > time_of_ticks(u64::MAX / 2));
    }
}
