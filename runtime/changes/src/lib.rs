//! File changes as transactions (invariants T1 and T2).
//!
//! A [`ChangeSet`] describes changes of files: path by path, the state before and the state after. [`commit`]
//! applies it to its directories completely or not at all, even if a crash occurs at any instruction, and
//! only to the very files from which it was made. [`recover`] finishes commits that were interrupted by a
//! crash. The inverse of a change set is a change set, so undo is an ordinary commit.
//!
//! This crate decides nothing and knows no runs. It must never follow a symbolic link, nor touch anything
//! outside the given directories.

mod acl;
mod apply;
mod beginning;
mod commit;
mod commit_log;
mod copy;
mod disk;
mod files;
mod layer;
mod links;
mod merge;
mod part;
mod pile;
mod prepare;
mod reader;
mod reading;
mod resolve;
mod revert;
mod root_locks;
mod set;
mod steps;
mod written;

#[cfg(test)]
mod choices;
#[cfg(test)]
mod hard_links;
#[cfg(test)]
mod power_cuts;
#[cfg(test)]
mod simulated;
#[cfg(test)]
mod stopped_commits;
#[cfg(test)]
mod tests;

pub use beginning::Beginning;
pub use commit::{
    CommitError, Conflict, Content, Contents, Found, Recovered, Tell, Terms, commit_changes, find_conflicts,
    recover_commits, recover_for,
};
pub use copy::Room;
pub use layer::{Keep, Layer, LayerError, copy_with, lay_over};
pub use links::{LinkRule, Stray, StrayLink};
pub use part::NotChanged;
pub use reading::{Reading, is_executable};
pub use resolve::{Resolution, ResolveError, resolve_set};
pub use set::{BadChangeSet, ByteText, Change, ChangeKind, ChangeSet, Entry, RelPath, RootChanges, Time};
pub use written::{Written, changes_of};
