//! Reverts a commit if another program changed a file between the comparison and the commit. Files that are
//! no longer the commit's own are left and named.

use std::io;

use crate::apply::{Halt, bench_of, hold_benches, sync_touched};
use crate::commit_log::Journal;
use crate::files::{Files, RootedPath, What};
use crate::prepare::{new_of, old_of, syncs_each};
use crate::set::RelPath;
use crate::steps::{Act, CommitStep};

/// Reverts all steps, the last first. Returns the places that other programs have changed since, which are
/// left.
pub(crate) fn revert_steps(files: &impl Files, journal: &Journal) -> Result<Vec<RootedPath>, Halt> {
    hold_benches(files, journal);
    let mut left = Vec::new();
    for step in journal.steps.iter().rev() {
        let bench = bench_of(journal, step)?;
        let io = |error: io::Error| Halt::Io(step.place.clone(), error);
        if !revert_step(files, journal, &bench, step).map_err(io)? {
            left.push(step.place.clone());
        }
    }
    sync_touched(files, journal)?;
    Ok(left)
}

/// Reverts a step; false if it was left.
fn revert_step(
    files: &impl Files,
    journal: &Journal,
    bench: &RelPath,
    step: &CommitStep,
) -> io::Result<bool> {
    let (place, new, old) = (&step.place, new_of(bench, step), old_of(bench, step));
    match &step.act {
        Act::TakeOut => put_back(files, &old, place),
        Act::PutIn => {
            if files.read_status(&new)?.is_some() {
                return Ok(true);
            }
            let at = present_place(files, journal, bench, place)?;
            if !is_ours(files, step, &at)? {
                return Ok(false);
            }
            files.rename(&at, &new)?;
            Ok(true)
        }
        Act::Swap => swap_back(files, bench, step),
        Act::Rewrite => {
            let now = files.read_status(place)?;
            if now.is_none_or(|now| step.old.is_none_or(|old| old.inode != now.inode)) {
                return Ok(false);
            }
            files.rewrite_file(&old, place)?;
            Ok(true)
        }
        Act::FileMode { before, mode } => match files.read_status(place)? {
            Some(now) if step.old.is_some_and(|old| old.inode == now.inode) => {
                if now.mode == *mode {
                    files.set_mode(place, *before, syncs_each(files, journal, place.root))?;
                }
                Ok(true)
            }
            _ => Ok(false),
        },
        Act::Name { of } => {
            let at = present_place(files, journal, bench, place)?;
            let source = source_of(files, journal, &RootedPath { root: place.root, path: of.clone() })?;
            if files.read_status(&at)?.is_some_and(|now| Some(now.inode) == source) {
                files.remove_file(&at)?;
                // Unlike renames into or out of the workbench, this is made durable by no other sync.
                files.sync_directory(at.root, at.path.parent().as_ref())?;
            }
            Ok(true)
        }
        Act::Loosen { before, .. } | Act::Settle { before, .. } => {
            if files.read_status(place)?.is_some_and(|now| now.what == What::Directory) {
                files.set_mode(place, *before, syncs_each(files, journal, place.root))?;
            }
            Ok(true)
        }
    }
}

/// Location of a file that a step put into place. After a power cut, the new directory that contains it may
/// still be out of sight.
fn present_place(
    files: &impl Files,
    journal: &Journal,
    bench: &RelPath,
    place: &RootedPath,
) -> io::Result<RootedPath> {
    for above in place.path.ancestors() {
        let made = journal
            .steps
            .iter()
            .find(|step| step.act == Act::PutIn && step.place.root == place.root && step.place.path == above);
        if let Some(made) = made {
            let new = new_of(bench, made);
            if files.read_status(&new)?.is_some()
                && let Some(rest) = place.path.from(&above)
            {
                return Ok(RootedPath { root: place.root, path: rest.prefixed_with(&new.path) });
            }
        }
    }
    Ok(place.clone())
}

/// Inode of the file to which a step added names. It may be out of sight already.
fn source_of(files: &impl Files, journal: &Journal, of: &RootedPath) -> io::Result<Option<u64>> {
    let put = journal
        .steps
        .iter()
        .find(|step| step.place == *of && matches!(step.act, Act::PutIn | Act::Swap))
        .and_then(|step| step.new);
    match put {
        Some(new) => Ok(Some(new.inode)),
        None => Ok(files.read_status(of)?.map(|seen| seen.inode)),
    }
}

fn put_back(files: &impl Files, old: &RootedPath, place: &RootedPath) -> io::Result<bool> {
    if files.read_status(old)?.is_none() {
        return Ok(true);
    }
    let Err(error) = files.rename(old, place) else { return Ok(true) };
    let is_taken = error.kind() == io::ErrorKind::AlreadyExists;
    if is_taken || !has_directory_above(files, place)? { Ok(false) } else { Err(error) }
}

/// True if the parent directory of a place exists. Another program may have put a file or a link there.
fn has_directory_above(files: &impl Files, place: &RootedPath) -> io::Result<bool> {
    let Some(above) = place.path.parent() else { return Ok(true) };
    let above = files.read_status(&RootedPath { root: place.root, path: above })?;
    Ok(above.is_some_and(|above| above.what == What::Directory))
}

/// True if the file is the one that this step put into place, untouched.
fn is_ours(files: &impl Files, step: &CommitStep, at: &RootedPath) -> io::Result<bool> {
    let Some((now, new)) = files.read_status(at)?.zip(step.new) else { return Ok(false) };
    if new.what == What::Directory {
        return Ok((now.what, now.inode) == (new.what, new.inode) && files.list_names(at)?.is_empty());
    }
    Ok(now.is_untouched(&new))
}

fn swap_back(files: &impl Files, bench: &RelPath, step: &CommitStep) -> io::Result<bool> {
    let (place, new, old) = (&step.place, new_of(bench, step), old_of(bench, step));
    let is_new = |place: &RootedPath| -> io::Result<Option<bool>> {
        Ok(files.read_status(place)?.map(|seen| step.new.is_some_and(|new| new.inode == seen.inode)))
    };
    match (is_new(&new)?, is_new(&old)?) {
        // Exchanging is not supported: the old file was taken out, and the new one not put in.
        (Some(true), Some(_)) => put_back(files, &old, place),
        // Not begun, or reverted already.
        (Some(true) | None, None) => Ok(true),
        // Exchanged, but not examined.
        (Some(false), _) => {
            if !is_ours(files, step, place)? {
                return Ok(false);
            }
            files.exchange(&new, place)?;
            Ok(true)
        }
        // Exchanged back just before the crash.
        (None, Some(true)) => {
            files.rename(&old, &new)?;
            Ok(true)
        }
        (None, Some(false)) => {
            if !is_ours(files, step, place)? {
                return Ok(false);
            }
            match files.exchange(&old, place) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    files.rename(place, &new)?;
                    return put_back(files, &old, place);
                }
                Err(error) => return Err(error),
            }
            files.rename(&old, &new)?;
            Ok(true)
        }
    }
}
