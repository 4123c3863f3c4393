//! Whole runs of small programs.

mod accounting;
#[cfg(target_os = "linux")]
mod bombs;
mod code;
mod exceptions;
mod files;
mod fixture;
mod guests;
mod hostile;
mod limits;
mod preview1;
mod runs;
#[cfg(target_os = "linux")]
mod swaps;
mod wasi;

use std::sync::{Arc, Mutex, OnceLock};

use crate::{Component, Engine, EngineConfig, Invocation, Outcome, RunError};

/// One engine for all tests of the process.
fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new(EngineConfig::default()))
}

fn load(bytes: &[u8]) -> Component {
    engine().load_bytes(bytes).unwrap_or_else(|error| panic!("{error}"))
}

/// Result of a run for the tests.
struct Ran {
    result: Result<Outcome, RunError>,
    output: String,
}

impl Ran {
    fn name(&self) -> &'static str {
        self.result.as_ref().map_or_else(RunError::name, |_| "ok")
    }

    fn outcome(&self) -> &Outcome {
        self.result.as_ref().unwrap_or_else(|error| panic!("{error}"))
    }
}

fn run(component: &Component, args: &str, change: impl FnOnce(&mut Invocation)) -> Ran {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let mut invocation = Invocation::new(args, Box::new(kept.clone()));
    change(&mut invocation);
    let result = component.run(invocation);
    let output = kept.lock().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    Ran { result, output }
}

impl crate::StagedWrites {
    /// Commits the writes and returns them.
    fn commit(self) -> Result<Vec<crate::Written>, crate::WritesError> {
        let journals = tempfile::tempdir().expect("temporary directory");
        self.commit_unrecorded(journals.path(), &lobster_changes::LinkRule::default(), &|_| Ok(()))?;
        Ok(self.written_entries().to_vec())
    }
}
