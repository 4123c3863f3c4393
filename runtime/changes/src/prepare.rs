//! Comparing all files and preparing new contents, before any change is visible.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use lobster_base::digest::Digest;

use crate::commit::{CommitError, Conflict, Content, Contents, io_failure};
use crate::commit_log::Journal;
use crate::files::{Files, Looks, RootedPath, Seen, What};
use crate::set::{Change, ChangeSet, Entry, RelPath};
use crate::steps::{Act, CommitStep, ready_mode};

/// Directory for prepared files. It is inside the root itself, so that one rename makes a file visible.
pub(crate) fn workbench_path(id: &str) -> io::Result<RelPath> {
    RelPath::new(format!(".lobster-{id}").into_bytes()).map_err(io::Error::other)
}

/// Place of the prepared file of a step.
pub(crate) fn new_of(bench: &RelPath, step: &CommitStep) -> RootedPath {
    RootedPath { root: step.place.root, path: bench.join(format!("n{}", step.slot).as_bytes()) }
}

/// Place of the file that a step moved out of sight.
pub(crate) fn old_of(bench: &RelPath, step: &CommitStep) -> RootedPath {
    RootedPath { root: step.place.root, path: bench.join(format!("o{}", step.slot).as_bytes()) }
}

/// State of the places of a change set.
#[derive(Default)]
pub(crate) struct Compared {
    /// Status of each place of the set.
    pub(crate) seen: BTreeMap<RootedPath, Seen>,
    /// Files, each with its root, that get a further name and are unchanged otherwise.
    pub(crate) held: BTreeSet<(usize, u64)>,
}

/// Examines every path of a change set. Finds all conflicts, not only the first.
pub(crate) fn compare_set(files: &impl Files, set: &ChangeSet) -> Result<Compared, CommitError> {
    let mut compared = Compared::default();
    let mut conflicts = Vec::new();
    for (root, of_root) in set.roots.iter().enumerate() {
        let becomes: BTreeMap<&RelPath, &Change> =
            of_root.changes.iter().map(|change| (&change.path, change)).collect();
        for change in &of_root.changes {
            let place = RootedPath { root, path: change.path.clone() };
            // A path is missing if its parent directory is still to be made.
            let waits = |above: RelPath| {
                becomes.get(&above).is_some_and(|it| !it.before.as_ref().is_some_and(Entry::is_directory))
            };
            if change.before.is_none() && change.path.ancestors().any(waits) {
                continue;
            }
            let now = files.read_status(&place).map_err(io_failure("look at", set, &place))?;
            let same =
                is_as(files, &place, change.before.as_ref(), now).map_err(io_failure("read", set, &place))?;
            let goes = change.before.as_ref().is_some_and(Entry::is_directory)
                && !change.after.as_ref().is_some_and(Entry::is_directory);
            let has_more = || -> io::Result<bool> {
                let names = files.list_names(&place)?;
                Ok(names.iter().any(|name| !becomes.contains_key(&change.path.join(name))))
            };
            if !same || goes && has_more().map_err(io_failure("list", set, &place))? {
                conflicts.push(Conflict::new(set, &place, now));
            }
            if let Some(now) = now {
                compared.seen.insert(place, now);
            }
            // A further name of a file outside the set: it must be the intended file.
            if let Some(after @ Entry::File { same_as: Some(of), .. }) = &change.after
                && !becomes.contains_key(of)
            {
                let place = RootedPath { root, path: of.clone() };
                let now = files.read_status(&place).map_err(io_failure("look at", set, &place))?;
                if is_as(files, &place, Some(after), now).map_err(io_failure("read", set, &place))? {
                    compared.held.extend(now.map(|now| (root, now.inode)));
                } else {
                    conflicts.push(Conflict::new(set, &place, now));
                }
            }
        }
    }
    if conflicts.is_empty() { Ok(compared) } else { Err(CommitError::Conflicts(conflicts)) }
}

fn is_as(
    files: &impl Files,
    place: &RootedPath,
    entry: Option<&Entry>,
    now: Option<Seen>,
) -> io::Result<bool> {
    let (entry, now) = match (entry, now) {
        (None, now) => return Ok(now.is_none()),
        (Some(_), None) => return Ok(false),
        (Some(entry), Some(now)) => (entry, now),
    };
    Ok(match entry {
        Entry::Directory { mode, .. } => now.what == What::Directory && now.mode == *mode,
        Entry::Link { target, .. } => now.what == What::Link && files.read_link(place)? == *target,
        Entry::File { digest, size, mode, .. } => {
            (now.what, now.size, now.mode) == (What::File, *size, *mode)
                && Digest::of_reader(files.read_file(place)?)? == *digest
        }
    })
}

/// True if each file of a root is made durable by itself; otherwise all are synced together before the
/// journal continues.
pub(crate) fn syncs_each(files: &impl Files, journal: &Journal, root: usize) -> bool {
    !files.syncs_as_one(root, journal.steps.len())
}

/// Prepares the files for the steps durably, and records their status.
pub(crate) fn lay_ready(
    files: &impl Files,
    journal: &mut Journal,
    contents: &dyn Contents,
) -> Result<(), CommitError> {
    let bench = workbench_path(&journal.id).map_err(CommitError::Journal)?;
    let set = &journal.set;
    let entries: BTreeMap<RootedPath, &Change> = set
        .roots
        .iter()
        .enumerate()
        .flat_map(|(root, of_root)| {
            of_root.changes.iter().map(move |change| (RootedPath { root, path: change.path.clone() }, change))
        })
        .collect();
    for root in 0..set.roots.len() {
        let place = RootedPath { root, path: bench.clone() };
        files.make_directory(&place, 0o700).map_err(io_failure("make", set, &place))?;
        files.hold_directory(&place);
    }
    let each: Vec<bool> = (0..set.roots.len()).map(|root| syncs_each(files, journal, root)).collect();
    for step in &mut journal.steps {
        let sync = each[step.place.root];
        let (new, old) = (new_of(&bench, step), old_of(&bench, step));
        let error = |doing| io_failure(doing, set, &step.place);
        let Some(after) = entries.get(&step.place).and_then(|change| change.after.as_ref()) else { continue };
        if !matches!(step.act, Act::PutIn | Act::Swap | Act::Rewrite) {
            continue;
        }
        match after {
            Entry::Directory { mode, acl } => {
                files.make_directory(&new, ready_mode(*mode)).map_err(error("lay ready"))?;
                if let Some(acl) = acl {
                    files.give_lists(&new, acl, ready_mode(*mode)).map_err(error("lay ready"))?;
                }
            }
            Entry::Link { target, modified } => {
                files.make_link(&new, target, *modified).map_err(error("lay ready"))?;
            }
            Entry::File { digest, mode, modified, acl, .. } => {
                let like = step.old.is_some_and(|old| old.what == What::File).then_some(&step.place);
                let mut content = contents.open_content(digest).map_err(error("find the new content of"))?;
                let look = Looks { mode: *mode, modified: *modified, like, acl: acl.as_deref() };
                files.make_file(&new, &mut content, &look, sync).map_err(error("lay ready"))?;
            }
        }
        if step.act == Act::Rewrite {
            let (mode, modified) = step.old.map_or((0o600, None), |old| (old.mode, Some(old.modified)));
            let mut content = Content::Bytes(files.read_file(&step.place).map_err(error("read"))?);
            let look = Looks { mode, modified, like: None, acl: None };
            files.make_file(&old, &mut content, &look, sync).map_err(error("keep"))?;
            // Another program may have written to it since it was compared.
            let kept =
                Digest::of_reader(files.read_file(&old).map_err(error("read"))?).map_err(error("read"))?;
            let before = entries.get(&step.place).and_then(|change| change.before.as_ref());
            if !matches!(before, Some(Entry::File { digest, .. }) if *digest == kept) {
                return Err(CommitError::Conflicts(vec![Conflict::new(set, &step.place, step.old)]));
            }
        }
        step.new = files.read_status(&new).map_err(error("lay ready"))?;
    }
    for (root, each) in each.into_iter().enumerate() {
        let place = RootedPath { root, path: bench.clone() };
        let contents = if each { Ok(()) } else { files.sync_contents(root) };
        contents
            .and_then(|()| files.sync_directory(root, Some(&bench)))
            .and_then(|()| files.sync_directory(root, None))
            .map_err(io_failure("sync", set, &place))?;
    }
    Ok(())
}

/// Removes files that were prepared or moved out of sight.
pub(crate) fn remove_prepared(files: &impl Files, journal: &Journal) -> io::Result<()> {
    let bench = workbench_path(&journal.id)?;
    for root in 0..journal.set.roots.len() {
        let place = RootedPath { root, path: bench.clone() };
        if files.read_status(&place)?.is_none() {
            continue;
        }
        files.hold_directory(&place);
        for name in files.list_names(&place)? {
            let left = RootedPath { root, path: bench.join(&name) };
            match files.read_status(&left)?.map(|seen| seen.what) {
                Some(What::Directory) => files.remove_directory(&left)?,
                Some(What::File | What::Link | What::Other) => files.remove_file(&left)?,
                None => {}
            }
        }
        files.remove_directory(&place)?;
        files.sync_directory(root, None)?;
    }
    Ok(())
}
