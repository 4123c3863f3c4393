//! The program that lobster runs in, which it starts again as a helper.

use std::sync::atomic::{AtomicBool, Ordering};

static ANSWERS: AtomicBool = AtomicBool::new(false);

/// Records that this program's `main` acts as a helper when it is started as one.
pub fn note_that_it_answers() {
    ANSWERS.store(true, Ordering::Relaxed);
}

/// True if it does. Any other program would start its own work again for each helper.
#[must_use]
pub fn answers_as_helper() -> bool {
    ANSWERS.load(Ordering::Relaxed)
}
