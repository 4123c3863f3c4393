//! Work beside a run: nobody waits for it until the process is about to end.

use lobster_base::sync::lock;
use std::sync::Mutex;
use std::thread::JoinHandle;

/// What goes on. Whoever starts something bounds how long it takes: dropping
/// this waits for all of it.
#[derive(Default)]
pub struct Background(Mutex<Vec<JoinHandle<()>>>);

impl Background {
    pub(crate) fn start(&self, name: &str, work: impl FnOnce() + Send + 'static) {
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
            // A panic has told its message; nothing depends on the work.
            let _ = thread.join();
        }
    }
}
