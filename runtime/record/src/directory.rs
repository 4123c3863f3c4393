//! Determines the directory in which a run continues.
//!
//! A run of a person continues in the directory where it is answered, as with the incumbent. A run of the
//! service or under a policy stays in its own directory, so that the commands of its steps mean the same as
//! when it was registered or approved.

use std::path::PathBuf;

use super::copied::wrong_state;
use lobster_engine::envelope::Failure;
use lobster_engine::runtime::Runtime;
use lobster_store::{Event, Record as JournalRecord, RunId, Store, StoreError};

/// The directory in which the rest of a run is executed, for any answerer; `None` if it is the answerer's
/// directory.
///
/// # Errors
/// If the run's record cannot be read.
pub fn own_directory(runtime: &Runtime, run: RunId) -> Result<Option<PathBuf>, Failure> {
    let store = runtime.store()?;
    kept_directory(runtime, &store, run, || {
        Ok(last_cwd(&store, run, &store.events_after(run, 0, usize::MAX)?)?)
    })
}

/// The same; `last` returns the directory in which the run was last executed.
pub(crate) fn kept_directory(
    runtime: &Runtime,
    store: &Store,
    run: RunId,
    last: impl FnOnce() -> Result<Option<PathBuf>, Failure>,
) -> Result<Option<PathBuf>, Failure> {
    if is_of_service(store, run)? {
        return Ok(Some(store.run(run)?.cwd.into()));
    }
    if runtime.services.policy.is_open() { Ok(None) } else { last() }
}

/// True if the service started the run.
fn is_of_service(store: &Store, run: RunId) -> Result<bool, Failure> {
    Ok(match store.existing_service()? {
        None => false,
        Some(service) => service.start_of(run)?.is_some(),
    })
}

/// Returns an error if the directory of a service's run is gone.
pub(crate) fn check_directory(store: &Store, run: RunId) -> Result<(), Failure> {
    let gone = PathBuf::from(store.run(run)?.cwd);
    if gone.is_dir() || !is_of_service(store, run)? {
        return Ok(());
    }
    Err(wrong_state(format!(
        "run {} continues in {}, the directory of its workflow, which does not exist; restore it, or end the run: \
         `lobster resume {0} --cancel`",
        run.short_id(),
        gone.display()
    )))
}

/// The directory in which the latest process executed the run. Executions in other stores are ignored.
pub(crate) fn last_cwd(
    store: &Store,
    run: RunId,
    journal: &[JournalRecord],
) -> Result<Option<PathBuf>, StoreError> {
    let imported = store.imported_records(run)?.unwrap_or_default();
    let own = journal.iter().filter(|record| record.seq > imported);
    Ok(own.rev().find_map(|record| match &record.event {
        Event::RunStarted { cwd, .. } => Some(PathBuf::from(cwd)),
        Event::RunResumed { detail, .. } => detail["cwd"].as_str().map(PathBuf::from),
        _ => None,
    }))
}
