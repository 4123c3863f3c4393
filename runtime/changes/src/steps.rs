//! The steps of a commit. Each is one move that can be executed and reverted repeatedly.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::files::{RootedPath, Seen};
use crate::prepare::Compared;
use crate::set::{Change, ChangeSet, Entry, RelPath};

/// One move of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CommitStep {
    pub(crate) place: RootedPath,
    pub(crate) act: Act,
    /// Number of the prepared file.
    pub(crate) slot: usize,
    /// Status of the prepared file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) new: Option<Seen>,
    /// Status of the place at the comparison.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) old: Option<Seen>,
}

/// Kind of a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    /// Lets the directory's owner change its entries.
    Loosen { before: u32, mode: u32 },
    /// Moves the file out of sight.
    TakeOut,
    /// Moves the prepared file to its place.
    PutIn,
    /// Exchanges the two.
    Swap,
    /// Rewrites a file that has other names, so that it keeps them.
    Rewrite,
    /// Adds a name to a file.
    Name { of: RelPath },
    /// Sets the permission bits of a file.
    FileMode { before: u32, mode: u32 },
    /// Sets the permission bits of a directory, after its entries are done.
    Settle { before: u32, mode: u32 },
}

/// Position of a move in the order.
fn step_order(step: &CommitStep) -> (u8, usize) {
    let depth = step.place.path.depth();
    let deepest_first = usize::MAX - depth;
    match &step.act {
        Act::Loosen { .. } => (0, depth),
        // Files before their directories.
        Act::TakeOut => (1, deepest_first),
        Act::PutIn | Act::Swap => (2, depth),
        Act::Rewrite | Act::FileMode { .. } => (3, depth),
        Act::Name { .. } => (4, depth),
        Act::Settle { .. } => (5, deepest_first),
    }
}

/// Permissions that a directory's owner needs to change its entries.
const OWN: u32 = 0o700;

/// The moves of a change set, in order.
pub(crate) fn plan_steps(set: &ChangeSet, found: &Compared) -> Vec<CommitStep> {
    let mut steps = Vec::new();
    // Number of names that each file has in the set.
    let mut named: BTreeMap<(usize, u64), u64> = BTreeMap::new();
    for (place, seen) in &found.seen {
        *named.entry((place.root, seen.inode)).or_default() += 1;
    }
    for (root, of_root) in set.roots.iter().enumerate() {
        let becomes: BTreeMap<&RelPath, &Change> =
            of_root.changes.iter().map(|change| (&change.path, change)).collect();
        let names_of = |change: &Change| -> OtherNames {
            let Some(old) = found.seen.get(&RootedPath { root, path: change.path.clone() }) else {
                return OtherNames::None;
            };
            match named.get(&(root, old.inode)) < Some(&old.names) {
                true if change.shared == Some(old.inode) => OtherNames::Kept,
                true => OtherNames::Foreign,
                false => OtherNames::None,
            }
        };
        let split = split_files(root, &becomes, found, names_of);
        for change in &of_root.changes {
            let place = RootedPath { root, path: change.path.clone() };
            let old = found.seen.get(&place).copied();
            let is_split = old.is_some_and(|old| split.contains(&old.inode));
            let names = if is_split { OtherNames::Foreign } else { names_of(change) };
            for act in acts_for(&with_own_content(change, &becomes), names) {
                let slot = steps.len();
                steps.push(CommitStep { place: place.clone(), act, slot, new: None, old });
            }
        }
    }
    steps.sort_by_key(step_order);
    steps
}

/// Files whose names cannot stay names of one file: the set gives them different contents, or adds a further
/// name under which the file is to stay unchanged.
fn split_files(
    root: usize,
    becomes: &BTreeMap<&RelPath, &Change>,
    found: &Compared,
    names_of: impl Fn(&Change) -> OtherNames,
) -> BTreeSet<u64> {
    let of_root = found.held.iter().filter(|(of, _)| *of == root);
    let mut split: BTreeSet<u64> = of_root.map(|(_, inode)| *inode).collect();
    let mut contents: BTreeMap<u64, &Entry> = BTreeMap::new();
    for change in becomes.values() {
        let seen = found.seen.get(&RootedPath { root, path: change.path.clone() });
        let (Some(seen), Some(after @ Entry::File { same_as: None, .. })) = (seen, &change.after) else {
            continue;
        };
        // A file that another program linked there is replaced anyway.
        if names_of(change) != OtherNames::Foreign
            && !contents.entry(seen.inode).or_insert(after).is_same(after)
        {
            split.insert(seen.inode);
        }
    }
    split
}

/// Gives the changed file its own content, unless that equals the content of the file of which it is to be a
/// name.
fn with_own_content(change: &Change, becomes: &BTreeMap<&RelPath, &Change>) -> Change {
    let mut change = change.clone();
    let is_other = |of: &RelPath, own: &Entry| {
        becomes.get(of).is_some_and(|first| !first.after.as_ref().is_some_and(|first| own.is_same(first)))
    };
    if let Some(own @ Entry::File { same_as: Some(of), .. }) = &change.after
        && is_other(of, own)
        && let Some(Entry::File { same_as, .. }) = &mut change.after
    {
        *same_as = None;
    }
    change
}

/// Names of a file outside the set.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OtherNames {
    None,
    /// It had them when the step began, and keeps them.
    Kept,
    /// It got them later: another file was linked here, or this one elsewhere. They stay unchanged.
    Foreign,
}

fn acts_for(change: &Change, names: OtherNames) -> Vec<Act> {
    let put = |after: &Entry| match after {
        Entry::File { same_as: Some(of), .. } => Act::Name { of: of.clone() },
        Entry::File { .. } | Entry::Directory { .. } | Entry::Link { .. } => Act::PutIn,
    };
    let take_out = |before: &Entry| {
        let loosen = match before {
            Entry::Directory { mode, .. } if mode & OWN != OWN => {
                Some(Act::Loosen { before: *mode, mode: mode | OWN })
            }
            _ => None,
        };
        loosen.into_iter().chain([Act::TakeOut])
    };
    let mut acts = Vec::new();
    match (&change.before, &change.after) {
        (None, None) => {}
        (None, Some(after)) => acts.push(put(after)),
        (Some(before), None) => acts.extend(take_out(before)),
        (Some(Entry::Directory { mode: before, .. }), Some(Entry::Directory { mode, .. })) => {
            acts.push(Act::Loosen { before: *before, mode: before | OWN });
            acts.push(Act::Settle { before: before | OWN, mode: *mode });
            return acts;
        }
        (
            Some(Entry::File { digest: before, mode: from, .. }),
            Some(Entry::File { digest, mode, same_as: None, .. }),
        ) => {
            acts.push(match names {
                OtherNames::Foreign => Act::Swap,
                OtherNames::None | OtherNames::Kept if before == digest => {
                    Act::FileMode { before: *from, mode: *mode }
                }
                OtherNames::Kept => Act::Rewrite,
                OtherNames::None => Act::Swap,
            });
        }
        (Some(before), Some(after)) => match put(after) {
            Act::PutIn if !before.is_directory() && !after.is_directory() => acts.push(Act::Swap),
            act => acts.extend(take_out(before).chain([act])),
        },
    }
    if let Some(Entry::Directory { mode, .. }) = &change.after
        && mode & OWN != OWN
    {
        acts.push(Act::Settle { before: mode | OWN, mode: *mode });
    }
    acts
}

/// Mode of a prepared directory.
pub(crate) fn ready_mode(mode: u32) -> u32 {
    mode | OWN
}
