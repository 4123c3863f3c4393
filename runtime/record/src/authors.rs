//! Whose answers a run takes.

use lobster_base::code::Code;
use lobster_engine::author::Author;
use lobster_engine::envelope::Failure;
use lobster_engine::origin::Origin;
use lobster_engine::runtime::Runtime;
use lobster_store::RunId;

use super::resume::{Reply, policy_of};

/// Checks that somebody may answer the questions of a run. Where it began, and the policy that it began under, are in
/// its record, so every process that may read the store decides alike.
///
/// # Errors
/// Why a person has to answer, or that the record cannot be read.
pub(crate) fn check_author(
    runtime: &Runtime,
    run: RunId,
    (author, reply): (&Author, &Reply),
) -> Result<(), Failure> {
    // Ending the run is no answer to what it asks, and anybody may.
    if author.is_person() || *reply == Reply::Cancel {
        return Ok(());
    }
    let origin = match Origin::read(&runtime.store()?, run) {
        // A no starts nothing, so it is taken whatever became of the journal.
        Err(_) if *reply == Reply::Reject => None,
        read => read?,
    };
    let recorded = policy_of(runtime, run).ok().flatten();
    let is_wanted = runtime.policy().wants_person() || recorded.is_some_and(|policy| policy.wants_person());
    let checked = author.check(origin.as_ref(), is_wanted);
    checked.map_err(|why| Failure::new(Code::PersonRequired, why))
}
