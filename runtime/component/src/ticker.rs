//! The thread that advances the engine's epoch while a run is active, so that running code regularly
//! checks if it should stop.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use lobster_base::sync::lock;
use wasmtime::EngineWeak;

/// Longest delay before a timeout or a cancellation is noticed.
const TICK: Duration = Duration::from_millis(5);

/// Time for which the thread stays after the last run; starting a thread costs more than a small step.
const LINGER: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Ticker(std::sync::Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    active: usize,
    last_end: Option<Instant>,
    ticking: bool,
}

impl Ticker {
    /// Ticks until the guard is dropped.
    pub(crate) fn start_ticking(&self, engine: &wasmtime::Engine) -> std::io::Result<Ticking<'_>> {
        let mut state = lock(&self.0);
        if !state.ticking {
            let (shared, engine) = (self.0.clone(), engine.weak());
            std::thread::Builder::new()
                .name("lobster-ticker".to_owned())
                .stack_size(64 << 10)
                .spawn(move || tick_until_idle(&shared, &engine))?;
            state.ticking = true;
        }
        state.active += 1;
        Ok(Ticking(self))
    }
}

pub(crate) struct Ticking<'a>(&'a Ticker);

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.0);
        state.active -= 1;
        if state.active == 0 {
            state.last_end = Some(Instant::now());
        }
    }
}

fn tick_until_idle(shared: &Mutex<State>, engine: &EngineWeak) {
    loop {
        std::thread::sleep(TICK);
        let engine = engine.upgrade();
        let mut state = lock(shared);
        let idle = state.active == 0 && state.last_end.is_none_or(|end| end.elapsed() > LINGER);
        match engine {
            Some(engine) if !idle => engine.increment_epoch(),
            Some(_) | None => {
                state.ticking = false;
                return;
            }
        }
    }
}
