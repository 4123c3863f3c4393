//! Placeholders for missing protected paths, held around the start and the end of a process.

use std::path::Path;
use std::time::Duration;

use super::platform;

/// Longest step of a kernel's clock. Changes of a directory within one step get the same time.
const CLOCK_STEP: Duration = Duration::from_millis(10);

/// Placeholders that stay until this value is dropped.
#[derive(Debug, Default)]
pub struct HeldPlaceholders(pub(super) platform::Placeholders);

impl HeldPlaceholders {
    /// Their paths. An empty directory that others made may be among them.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.paths()
    }

    /// Waits until a later change of the directories around them gets another time than their creation.
    pub fn wait_for_clock(&self) {
        if let Some(left) = self.0.made().and_then(|made| CLOCK_STEP.checked_sub(made.elapsed())) {
            std::thread::sleep(left);
        }
    }
}
