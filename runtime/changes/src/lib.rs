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
#[cfg(target_os = "linux")]
mod beginning;
mod commit;
mod commit_log;
#[cfg(target_os = "linux")]
mod copy;
#[cfg(target_os = "linux")]
mod disk;
mod files;
#[cfg(target_os = "linux")]
mod layer;
#[cfg(target_os = "linux")]
mod merge;
mod part;
#[cfg(target_os = "linux")]
mod pile;
mod prepare;
#[cfg(target_os = "linux")]
mod reader;
mod reading;
#[cfg(target_os = "linux")]
mod resolve;
mod revert;
#[cfg(target_os = "linux")]
mod root_locks;
mod set;
mod steps;
#[cfg(target_os = "linux")]
mod written;

#[cfg(all(test, target_os = "linux"))]
mod choices;
#[cfg(all(test, target_os = "linux"))]
mod hard_links;
#[cfg(test)]
mod power_cuts;
#[cfg(test)]
mod simulated;
#[cfg(all(test, target_os = "linux"))]
mod stopped_commits;
#[cfg(all(test, target_os = "linux"))]
mod tests;

#[cfg(target_os = "linux")]
pub use beginning::Beginning;
#[cfg(target_os = "linux")]
pub use commit::conflicts;
pub use commit::{
    CommitError, Conflict, Content, Contents, Found, Recovered, Tell, commit, recover, recover_for,
};
#[cfg(target_os = "linux")]
pub use copy::Room;
#[cfg(target_os = "linux")]
pub use layer::{Keep, Layer, LayerError, copy_with, lay_over};
pub use part::NotChanged;
pub use reading::{Reading, is_executable};
#[cfg(target_os = "linux")]
pub use resolve::{Resolution, ResolveError, resolve};
pub use set::{BadChangeSet, ByteText, Change, ChangeSet, Entry, Kind, RelPath, RootChanges, Time};
#[cfg(target_os = "linux")]
pub use written::{Written, changes_of};
