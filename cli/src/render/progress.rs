//! A spinner for what takes long, on a terminal only.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lobster_runtime::engine::Progress;

use super::one_line;

/// Steps shorter than this are over before anyone wonders.
const PATIENCE: Duration = Duration::from_millis(400);

/// Shows on stderr what is running.
pub(crate) struct Spinner {
    bar: ProgressBar,
    running: Mutex<Running>,
}

#[derive(Default)]
struct Running {
    /// What has begun and not ended: its place and its kind.
    steps: Vec<(String, String)>,
    /// Somebody else has the terminal.
    paused: bool,
}

/// The spinner is away until this goes.
pub(crate) struct Paused<'a>(&'a Spinner);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.change(|running| running.paused = false);
    }
}

impl Spinner {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        Self { bar, running: Mutex::default() }
    }

    /// Leaves the terminal to a question.
    pub(crate) fn pause(&self) -> Paused<'_> {
        self.change(|running| running.paused = true);
        Paused(self)
    }

    fn change(&self, change: impl FnOnce(&mut Running)) {
        let mut running = self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut running);
        match running.steps.last().filter(|_| !running.paused) {
            None => {
                self.bar.disable_steady_tick();
                // Nothing of it stays on the screen.
                self.bar.finish_and_clear();
                self.bar.set_draw_target(ProgressDrawTarget::hidden());
            }
            Some((place, kind)) => {
                let more = match running.steps.len() {
                    1 => String::new(),
                    steps => format!(" and {} more", steps - 1),
                };
                self.bar.set_message(one_line(&format!("{place} ({kind}){more}")));
                if self.bar.is_hidden() {
                    self.bar.reset();
                    self.bar.set_draw_target(ProgressDrawTarget::stderr());
                    self.bar.enable_steady_tick(PATIENCE);
                }
            }
        }
    }
}

impl Progress for Spinner {
    fn started(&self, place: &str, kind: &str) {
        self.change(|running| running.steps.push((place.to_owned(), kind.to_owned())));
    }

    fn ended(&self, place: &str) {
        self.change(|running| running.steps.retain(|(known, _)| known != place));
    }
}

/// The spinner of this process, as the runtime knows it.
pub(crate) struct Shared(pub(crate) Arc<Spinner>);

impl Progress for Shared {
    fn started(&self, place: &str, kind: &str) {
        self.0.started(place, kind);
    }

    fn ended(&self, place: &str) {
        self.0.ended(place);
    }
}
