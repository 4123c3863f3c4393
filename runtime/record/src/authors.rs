//! Checks who may answer the questions of a run.

use lobster_base::code::Code;
use lobster_engine::author::Author;
use lobster_engine::envelope::Failure;
use lobster_engine::origin::Origin;
use lobster_engine::runtime::Runtime;
use lobster_store::RunId;

use super::resume::{Reply, policy_of};

/// Checks that the author may answer the questions of a run. The record contains the run's origin and its
/// first policy, so every process that can read the store decides alike.
///
/// # Errors
/// The reason why a person has to answer, or a record that cannot be read.
pub(crate) fn check_author(
    runtime: &Runtime,
    run: RunId,
    (author, reply): (&Author, &Reply),
) -> Result<(), Failure> {
    // Cancelling a run answers none of its questions, and anyone may do it.
    if author.is_person() || *reply == Reply::Cancel {
        return Ok(());
    }
    let origin = match Origin::from_journal(&runtime.store()?, run) {
        // A rejection starts nothing, so it is accepted even if the journal is damaged.
        Err(_) if *reply == Reply::Reject => None,
        read => read?,
    };
    let recorded = policy_of(runtime, run).ok().flatten();
    let is_wanted = runtime.policy().wants_person() || recorded.is_some_and(|policy| policy.wants_person());
    let checked = author.check_may_answer(origin.as_ref(), is_wanted);
    checked.map_err(|why| Failure::new(Code::PersonRequired, why))
}
