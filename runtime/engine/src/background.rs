//! Work in the background of a run, which is waited for only when the process ends.

use lobster_base::sync::lock;
use std::sync::Mutex;
use std::thread::JoinHandle;

/// The threads with the work. Each piece of work needs a time limit of its own, since dropping this value waits for
/// all of them.
#[derive(Default)]
pub struct Background(Mutex<Vec<JoinHandle<()>>>);

impl Background {
    pub(crate) fn start_task(&self, name: &str, work: impl FnOnce() + Send + 'static) {
        let mut threads = lock(&self.0);
        threads.retain(|thread| !thread.is_finished());
        match std::thread::Builder::new().name(name.to_owned()).spawn(work) {
            Ok(thread) => threads.push(thread),
            Err(error) => tracing::warn!(name, %error, "cannot be started"),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        for thread in std::mem::take(&mut *lock(&self.0)) {
            // A panic has printed its message, and no result depends on the work.
            let _ = thread.join();
        }
    }
}
