//! A spinner for what takes long, on a terminal only.

use std::sync::Mutex;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lobster_runtime::engine::Progress;

use super::one_line;

/// Steps shorter than this are over before anyone wonders.
const PATIENCE: Duration = Duration::from_millis(400);

/// Shows on stderr what is running.
pub(crate) struct Spinner {
    bar: ProgressBar,
    running: Mutex<Vec<(String, String)>>,
}

impl Spinner {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            bar.set_style(style);
        }
        Self { bar, running: Mutex::default() }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<(String, String)>)) {
        let mut running = self.running.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut running);
        match running.last() {
            None => {
                self.bar.disable_steady_tick();
                self.bar.set_draw_target(ProgressDrawTarget::hidden());
            }
            Some((place, kind)) => {
                let more = if running.len() > 1 {
                    format!(" and {} more", running.len() - 1)
                } else {
                    String::new()
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
        self.change(|running| running.push((place.to_owned(), kind.to_owned())));
    }

    fn ended(&self, place: &str) {
        self.bar.suspend(|| {});
        self.change(|running| running.retain(|(known, _)| known != place));
        if self.bar.is_hidden() {
            self.bar.finish_and_clear();
        }
    }
}
