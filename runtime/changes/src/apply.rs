//! Applies the steps of a commit. Each step can be repeated: the inodes at its places show how far it came.

use std::collections::BTreeSet;
use std::io;

use crate::commit_log::Journal;
use crate::files::{Files, RootedPath, Seen, What};
use crate::prepare::{new_of, old_of, syncs_each, workbench_path};
use crate::set::RelPath;
use crate::steps::{Act, CommitStep};

/// Reason why a step stopped.
#[derive(Debug)]
pub(crate) enum Halt {
    /// The file at the place is not the compared one.
    Conflict(RootedPath, Option<Seen>),
    Io(RootedPath, io::Error),
}

/// Number of the pass over the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    First,
    /// A crash interrupted the first pass.
    Again,
}

/// Executes all steps and makes them durable. If a step fails, the steps that may need reverting are left in
/// the journal.
pub(crate) fn apply_steps(files: &impl Files, journal: &mut Journal, pass: Pass) -> Result<(), Halt> {
    hold_benches(files, journal);
    let mut written = BTreeSet::new();
    for at in 0..journal.steps.len() {
        let step = &journal.steps[at];
        let bench = bench_of(journal, step)?;
        let sync = syncs_each(files, journal, step.place.root);
        let inode = step.old.map(|old| (step.place.root, old.inode));
        let may_be_written = pass == Pass::Again || inode.is_some_and(|inode| written.contains(&inode));
        if let Err(halt) = execute_step(files, &bench, step, sync, may_be_written) {
            if pass == Pass::First {
                let is_begun = matches!(halt, Halt::Io(..));
                forget_rewrites(journal, at + usize::from(is_begun));
            }
            return Err(halt);
        }
        if matches!(step.act, Act::Rewrite | Act::FileMode { .. }) {
            written.extend(inode);
        }
    }
    sync_touched(files, journal)
}

/// Removes the in-place rewrites that were not begun from the journal. A rewrite does not show how far it
/// came, so reverting an unbegun rewrite could overwrite changes of other programs.
fn forget_rewrites(journal: &mut Journal, begun: usize) {
    let mut at = 0;
    journal.steps.retain(|step| {
        at += 1;
        at <= begun || step.act != Act::Rewrite
    });
}

/// Holds the workbenches open, where most operations happen.
pub(crate) fn hold_benches(files: &impl Files, journal: &Journal) {
    for root in 0..journal.set.roots.len() {
        if let Ok(path) = workbench_path(&journal.id) {
            files.hold_directory(&RootedPath { root, path });
        }
    }
}

pub(crate) fn bench_of(journal: &Journal, step: &CommitStep) -> Result<RelPath, Halt> {
    workbench_path(&journal.id).map_err(|error| Halt::Io(step.place.clone(), error))
}

/// Makes the changes of names and modes durable.
pub(crate) fn sync_touched(files: &impl Files, journal: &Journal) -> Result<(), Halt> {
    for root in 0..journal.set.roots.len() {
        let has_modes = journal.steps.iter().find(|step| {
            let sets = matches!(step.act, Act::FileMode { .. } | Act::Settle { .. } | Act::Loosen { .. });
            step.place.root == root && sets
        });
        if let Some(step) = has_modes.filter(|_| !syncs_each(files, journal, root)) {
            files.sync_contents(root).map_err(|error| Halt::Io(step.place.clone(), error))?;
        }
    }
    let mut above = BTreeSet::new();
    for step in &journal.steps {
        above.insert((step.place.root, step.place.path.parent()));
        if let Ok(bench) = workbench_path(&journal.id) {
            above.insert((step.place.root, Some(bench)));
        }
        if matches!(step.act, Act::Settle { .. } | Act::Loosen { .. }) {
            above.insert((step.place.root, Some(step.place.path.clone())));
        }
    }
    for (root, path) in above {
        let is_gone = |path: &RelPath| {
            let seen = files.read_status(&RootedPath { root, path: path.clone() });
            seen.is_ok_and(|seen| seen.is_none_or(|seen| seen.what != What::Directory))
        };
        // The names in a directory that is gone are gone as well.
        if path.as_ref().is_some_and(is_gone) {
            continue;
        }
        let at =
            RootedPath { root, path: path.clone().unwrap_or_else(|| journal.steps[0].place.path.clone()) };
        files.sync_directory(root, path.as_ref()).map_err(|error| Halt::Io(at, error))?;
    }
    Ok(())
}

/// Executes one step. `may_be_written` means that a crash or an earlier step may have written to the file
/// already.
fn execute_step(
    files: &impl Files,
    bench: &RelPath,
    step: &CommitStep,
    sync: bool,
    may_be_written: bool,
) -> Result<(), Halt> {
    let place = &step.place;
    let io = |error: io::Error| Halt::Io(place.clone(), error);
    match &step.act {
        Act::TakeOut => take_out(files, bench, step),
        Act::PutIn => {
            let new = new_of(bench, step);
            if files.read_status(&new).map_err(io)?.is_none() {
                return Ok(());
            }
            match files.rename(&new, place) {
                Ok(()) => Ok(()),
                Err(error) => Err(conflict_or(files, place, error, io::ErrorKind::AlreadyExists)),
            }
        }
        Act::Swap => swap_files(files, bench, step),
        Act::Rewrite => {
            let now = files.read_status(place).map_err(io)?;
            // After a crash in the middle, it is the same file with partial content.
            let is_it = |now: &Seen, old: &Seen| {
                (now.what, now.inode) == (What::File, old.inode) && (may_be_written || now.is_untouched(old))
            };
            if !now.zip(step.old).is_some_and(|(now, old)| is_it(&now, &old)) {
                return Err(Halt::Conflict(place.clone(), now));
            }
            files.rewrite_file(&new_of(bench, step), place).map_err(io)
        }
        Act::FileMode { mode, .. } => {
            let now = files.read_status(place).map_err(io)?;
            let same =
                |now: &Seen| step.old.is_some_and(|old| old.is_untouched(&Seen { mode: old.mode, ..*now }));
            if !now.is_some_and(|now| same(&now)) {
                return Err(Halt::Conflict(place.clone(), now));
            }
            files.set_mode(place, *mode, sync).map_err(io)
        }
        Act::Name { of } => {
            let of = RootedPath { root: place.root, path: of.clone() };
            let (source, now) = (files.read_status(&of).map_err(io)?, files.read_status(place).map_err(io)?);
            match (source, now) {
                (Some(source), Some(now)) if source.inode == now.inode => Ok(()),
                (Some(_), None) => files.make_name(&of, place).map_err(io),
                (_, now) => Err(Halt::Conflict(place.clone(), now)),
            }
        }
        Act::Loosen { mode, .. } | Act::Settle { mode, .. } => {
            match files.read_status(place).map_err(io)? {
                Some(now) if now.what == What::Directory => files.set_mode(place, *mode, sync).map_err(io),
                // Done before; the directory has been moved out of sight since then.
                None if matches!(step.act, Act::Loosen { .. }) => Ok(()),
                now => Err(Halt::Conflict(place.clone(), now)),
            }
        }
    }
}

fn conflict_or(files: &impl Files, place: &RootedPath, error: io::Error, kind: io::ErrorKind) -> Halt {
    if error.kind() == kind {
        Halt::Conflict(place.clone(), files.read_status(place).ok().flatten())
    } else {
        Halt::Io(place.clone(), error)
    }
}

fn take_out(files: &impl Files, bench: &RelPath, step: &CommitStep) -> Result<(), Halt> {
    let (place, old) = (&step.place, old_of(bench, step));
    let io = |error: io::Error| Halt::Io(place.clone(), error);
    let is_out = files.read_status(&old).map_err(io)?.is_some();
    if !is_out {
        let Some(now) = files.read_status(place).map_err(io)? else {
            return Err(Halt::Conflict(place.clone(), None));
        };
        if now.what == What::Directory {
            // Files moved out of the directory must be gone from it durably before the directory itself is
            // moved.
            files.sync_directory(place.root, Some(&place.path)).map_err(io)?;
            if !files.list_names(place).map_err(io)?.is_empty() {
                return Err(Halt::Conflict(place.clone(), Some(now)));
            }
        }
        files.rename(place, &old).map_err(io)?;
    }
    let moved = files.read_status(&old).map_err(io)?;
    let is_it = moved.zip(step.old).is_some_and(|(moved, before)| {
        // A later step may have written to it under another name.
        let is_shared = is_out && before.names > 1 && moved.inode == before.inode;
        is_shared || is_same(&moved, &before)
    });
    let is_full =
        || Ok(moved.is_some_and(|it| it.what == What::Directory) && !files.list_names(&old)?.is_empty());
    if !is_it || is_full().map_err(io)? {
        return Err(Halt::Conflict(place.clone(), moved));
    }
    Ok(())
}

/// True if it is the same file or directory. The mode of a directory may have been loosened.
fn is_same(now: &Seen, before: &Seen) -> bool {
    if before.what == What::Directory {
        (now.what, now.inode) == (What::Directory, before.inode)
    } else {
        now.is_untouched(before)
    }
}

/// Exchanges two files. The file at the prepared place shows how far the step came.
fn swap_files(files: &impl Files, bench: &RelPath, step: &CommitStep) -> Result<(), Halt> {
    let (place, new) = (&step.place, new_of(bench, step));
    let io = |error: io::Error| Halt::Io(place.clone(), error);
    let is_new = |seen: &Seen| step.new.is_some_and(|new| new.inode == seen.inode);
    let Some(mut ready) = files.read_status(&new).map_err(io)? else { return Ok(()) };
    let was_exchanged = !is_new(&ready);
    if !was_exchanged {
        match files.exchange(&new, place) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                take_out(files, bench, step)?;
                return files
                    .rename(&new, place)
                    .map_err(|error| conflict_or(files, place, error, io::ErrorKind::AlreadyExists));
            }
            Err(error) => return Err(conflict_or(files, place, error, io::ErrorKind::NotFound)),
        }
        ready = files.read_status(&new).map_err(io)?.ok_or_else(|| Halt::Conflict(place.clone(), None))?;
    }
    // The file that came out must be the compared one; otherwise it is exchanged back at once.
    let is_it = step.old.is_some_and(|before| {
        // A later step may have written to it under another name.
        let is_shared = was_exchanged && before.names > 1 && ready.inode == before.inode;
        is_shared || ready.is_untouched(&before)
    });
    if is_it {
        return Ok(());
    }
    // Another program may have put another file there since then, or written to this one.
    let is_ours = |now: &Seen| step.new.is_some_and(|new| now.is_untouched(&new));
    if files.read_status(place).map_err(io)?.as_ref().is_some_and(is_ours) {
        files.exchange(&new, place).map_err(io)?;
    }
    Err(Halt::Conflict(place.clone(), Some(ready)))
}
