//! The two clocks of a run: the machine's, or a virtual one that moves only when the program reads it
//! or sleeps.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::clocks::monotonic_clock;
use wasmtime_wasi::p2::{DynPollable, Pollable, subscribe};
use wasmtime_wasi::{HostWallClock, async_trait};

use crate::host::services::Tracer;
use crate::state::State;
use lobster_base::sync::lock;

/// Step by which each reading moves the virtual clock, so that a program that polls the clock makes
/// progress.
const LOOK: u64 = 1_000;

/// Clock resolution that the program is shown, virtual or not, in ns.
pub(super) const RESOLUTION: u64 = 1_000;

/// Clock of one run. Clones share it.
#[derive(Clone)]
pub(crate) enum Clock {
    Real { start: Instant, tracer: Tracer },
    Virtual(Arc<Mutex<Virtual>>),
}

pub(crate) struct Virtual {
    /// Nanoseconds since the run began.
    now: u64,
    wall_start: Duration,
    /// Number of timers that wait in the current poll, by the time that they wait for.
    waiting: BTreeMap<u64, usize>,
}

impl Clock {
    pub(crate) fn real_time(tracer: Tracer) -> Self {
        Self::Real { start: Instant::now(), tracer }
    }

    pub(crate) fn virtual_from(start: SystemTime) -> Self {
        let wall_start = start.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self::Virtual(Arc::new(Mutex::new(Virtual { now: 0, wall_start, waiting: BTreeMap::new() })))
    }

    /// Skips `nanos` at once if the clock is virtual; false if the caller has to wait.
    pub(super) fn try_skip(&self, nanos: u64) -> bool {
        match self {
            Self::Real { .. } => false,
            Self::Virtual(clock) => {
                let mut clock = lock(clock);
                clock.now = clock.now.saturating_add(nanos);
                true
            }
        }
    }

    /// Nanoseconds since the run began.
    pub(super) fn monotonic_nanos(&self) -> u64 {
        match self {
            Self::Real { start, tracer } => {
                let live = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                u64::from_le_bytes(tracer.traced_answer("monotonic-clock.now", || live().to_le_bytes()))
            }
            Self::Virtual(clock) => lock(clock).read_time(),
        }
    }

    /// Time since the Unix epoch.
    pub(super) fn wall_time(&self) -> Duration {
        match self {
            Self::Real { tracer, .. } => {
                let live = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                let nanos = tracer.traced_answer("wall-clock.now", || live().as_nanos().to_le_bytes());
                nanos_to_duration(u128::from_le_bytes(nanos))
            }
            Self::Virtual(clock) => {
                let mut clock = lock(clock);
                let now = clock.read_time();
                clock.wall_start.saturating_add(Duration::from_nanos(now))
            }
        }
    }
}

fn nanos_to_duration(nanos: u128) -> Duration {
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    Duration::new(seconds, u32::try_from(nanos % 1_000_000_000).unwrap_or(0))
}

impl Virtual {
    fn read_time(&mut self) -> u64 {
        self.now = self.now.saturating_add(LOOK);
        self.now
    }
}

impl HostWallClock for Clock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(RESOLUTION)
    }

    fn now(&self) -> Duration {
        self.wall_time()
    }
}

impl monotonic_clock::Host for State {
    fn now(&mut self) -> wasmtime::Result<u64> {
        Ok(self.clock.monotonic_nanos())
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        Ok(RESOLUTION)
    }

    fn subscribe_instant(&mut self, when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let timer = match &self.clock {
            Clock::Real { start, .. } => Timer::real_until(start.checked_add(Duration::from_nanos(when))),
            Clock::Virtual(clock) => Timer::Virtual { clock: clock.clone(), when },
        };
        let timer = self.table.push(timer)?;
        subscribe(&mut self.table, timer)
    }

    fn subscribe_duration(&mut self, duration: u64) -> wasmtime::Result<Resource<DynPollable>> {
        let timer = match &self.clock {
            Clock::Real { .. } => {
                Timer::real_until(Instant::now().checked_add(Duration::from_nanos(duration)))
            }
            Clock::Virtual(clock) => {
                let when = lock(clock).now.saturating_add(duration);
                Timer::Virtual { clock: clock.clone(), when }
            }
        };
        let timer = self.table.push(timer)?;
        subscribe(&mut self.table, timer)
    }
}

enum Timer {
    Real(tokio::time::Instant),
    /// Later than the clock can represent.
    Never,
    Virtual {
        clock: Arc<Mutex<Virtual>>,
        when: u64,
    },
}

impl Timer {
    fn real_until(when: Option<Instant>) -> Self {
        when.map_or(Self::Never, |when| Self::Real(when.into()))
    }
}

#[async_trait]
impl Pollable for Timer {
    async fn ready(&mut self) {
        match self {
            // Yields at least once: a program that polls in a loop with a timeout
            // of zero must not starve the sockets.
            Self::Real(when) if *when <= tokio::time::Instant::now() => tokio::task::yield_now().await,
            Self::Real(when) => tokio::time::sleep_until(*when).await,
            Self::Never => std::future::pending().await,
            Self::Virtual { clock, when } => virtual_sleep(clock, *when).await,
        }
    }
}

/// Virtual time jumps to a timer only when nothing else in the same poll is
/// ready, and then to the earliest one.
async fn virtual_sleep(clock: &Mutex<Virtual>, when: u64) {
    if lock(clock).now >= when {
        return;
    }
    let _waiting = Waiting::new(clock, when);
    let mut asked_before = false;
    poll_fn(|context| {
        let mut state = lock(clock);
        let earliest = state.waiting.first_key_value().is_none_or(|(first, _)| *first >= when);
        if state.now >= when || (asked_before && earliest) {
            state.now = state.now.max(when);
            return Poll::Ready(());
        }
        asked_before = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

struct Waiting<'a> {
    clock: &'a Mutex<Virtual>,
    when: u64,
}

impl<'a> Waiting<'a> {
    fn new(clock: &'a Mutex<Virtual>, when: u64) -> Self {
        *lock(clock).waiting.entry(when).or_default() += 1;
        Self { clock, when }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut clock = lock(self.clock);
        if let Some(count) = clock.waiting.get_mut(&self.when) {
            *count -= 1;
            if *count == 0 {
                clock.waiting.remove(&self.when);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_jumps_to_the_earliest_timer_only() {
        let Clock::Virtual(clock) = Clock::virtual_from(SystemTime::UNIX_EPOCH) else { panic!("virtual") };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let Ok(runtime) = runtime else { panic!("no runtime") };
        runtime.block_on(async {
            let mut late = Box::pin(virtual_sleep(&clock, 10_000_000_000));
            let mut early = Box::pin(virtual_sleep(&clock, 1_000_000_000));
            let first = poll_fn(|context| {
                let late = late.as_mut().poll(context).is_ready();
                let early = early.as_mut().poll(context).is_ready();
                if late || early { Poll::Ready((late, early)) } else { Poll::Pending }
            })
            .await;
            assert_eq!(first, (false, true));
            drop(early);
            assert_eq!(lock(&clock).now, 1_000_000_000);
            late.await;
            assert_eq!(lock(&clock).now, 10_000_000_000);
        });
        assert!(lock(&clock).waiting.is_empty());
    }

    #[test]
    fn virtual_clock_starts_where_told_and_moves_when_looked_at() {
        let clock = Clock::virtual_from(SystemTime::UNIX_EPOCH + Duration::from_secs(5));
        assert_eq!(clock.wall_time(), Duration::new(5, 1_000));
        assert_eq!(clock.monotonic_nanos(), 2_000);
    }
}
