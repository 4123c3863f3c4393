//! The program that lobster runs in, which it starts again as its own helper.

use std::sync::atomic::{AtomicBool, Ordering};

static ANSWERS: AtomicBool = AtomicBool::new(false);

/// Notes that `main` of this program does the work of a helper when it is started as one.
pub fn note_that_it_answers() {
    ANSWERS.store(true, Ordering::Relaxed);
}

/// True if it does. Any other program would begin its own work once more for each helper.
#[must_use]
pub fn answers() -> bool {
    ANSWERS.load(Ordering::Relaxed)
}
