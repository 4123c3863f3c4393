//! Where a run goes on.
//!
//! A run of a person goes on where it is answered, as with the incumbent. One of the service, or one under a policy,
//! stays in its own directory, whoever answers it: the words of its steps mean what they meant when it was
//! registered or decided about.

use std::path::PathBuf;

use lobster_base::code::Code;
use lobster_engine::envelope::Failure;
use lobster_engine::runtime::Runtime;
use lobster_store::{Event, Record as JournalRecord, RunId, Store, StoreError};

/// The directory in which the rest of a run is executed, whoever answers it; none where it is the directory of who
/// answers.
///
/// # Errors
/// When the run's record cannot be read.
pub fn own_directory(runtime: &Runtime, run: RunId) -> Result<Option<PathBuf>, Failure> {
    let store = runtime.store()?;
    kept_directory(runtime, &store, run, || {
        Ok(last_cwd(&store, run, &store.events_after(run, 0, usize::MAX)?)?)
    })
}

/// The same, where `last` gives the directory in which the run was executed last.
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

/// Whether the service has started a run.
fn is_of_service(store: &Store, run: RunId) -> Result<bool, Failure> {
    Ok(match store.existing_service()? {
        None => false,
        Some(service) => service.start_of(run)?.is_some(),
    })
}

/// An error if the directory is gone that a run of the service goes on in.
pub(crate) fn check_directory(store: &Store, run: RunId) -> Result<(), Failure> {
    let gone = PathBuf::from(store.run(run)?.cwd);
    if gone.is_dir() || !is_of_service(store, run)? {
        return Ok(());
    }
    Err(Failure::new(
        Code::RunState,
        format!(
            "run {} goes on in {}, the directory of its workflow, which is not there; put it back, or end the run: \
             `lobster resume {0} --cancel`",
            run.short(),
            gone.display()
        ),
    ))
}

/// The directory that the latest process executed the run in. Where it was executed elsewhere says nothing here.
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
