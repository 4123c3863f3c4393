//! The way back, when somebody changed a file between the comparison and the commit.
//! What is not ours any more is left alone, and named.

use std::io;

use crate::apply::{Halt, bench_of, sync_touched};
use crate::commit_log::Journal;
use crate::files::{Files, Place, What};
use crate::prepare::{new_of, old_of};
use crate::set::RelPath;
use crate::steps::{Act, Step};

/// Takes all steps back, last first. Gives the places that somebody else has changed
/// since, which stay as they are.
pub(crate) fn revert(files: &impl Files, journal: &Journal) -> Result<Vec<Place>, Halt> {
    let mut left = Vec::new();
    for step in journal.steps.iter().rev() {
        let bench = bench_of(journal, step)?;
        let io = |error: io::Error| Halt::Io(step.place.clone(), error);
        if !backward(files, &bench, step).map_err(io)? {
            left.push(step.place.clone());
        }
    }
    sync_touched(files, journal)?;
    Ok(left)
}

/// Whether the step is taken back.
fn backward(files: &impl Files, bench: &RelPath, step: &Step) -> io::Result<bool> {
    let (place, new, old) = (&step.place, new_of(bench, step), old_of(bench, step));
    match &step.act {
        Act::TakeOut => put_back(files, &old, place),
        Act::PutIn => {
            if files.look(&new)?.is_some() {
                return Ok(true);
            }
            if !is_ours(files, step)? {
                return Ok(false);
            }
            files.rename(place, &new)?;
            Ok(true)
        }
        Act::Swap => swap_back(files, bench, step),
        Act::Rewrite => {
            let now = files.look(place)?;
            if now.is_none_or(|now| step.old.is_none_or(|old| old.inode != now.inode)) {
                return Ok(false);
            }
            files.rewrite(&old, place)?;
            Ok(true)
        }
        Act::FileMode { before, mode } => match files.look(place)? {
            Some(now) if step.old.is_some_and(|old| old.inode == now.inode) => {
                if now.mode == *mode {
                    files.set_mode(place, *before)?;
                }
                Ok(true)
            }
            _ => Ok(false),
        },
        Act::Name { of } => {
            let of = Place { root: place.root, path: of.clone() };
            if let (Some(source), Some(now)) = (files.look(&of)?, files.look(place)?)
                && source.inode == now.inode
            {
                files.remove_file(place)?;
            }
            Ok(true)
        }
        Act::Loosen { before, .. } | Act::Settle { before, .. } => {
            if files.look(place)?.is_some_and(|now| now.what == What::Directory) {
                files.set_mode(place, *before)?;
            }
            Ok(true)
        }
    }
}

fn put_back(files: &impl Files, old: &Place, place: &Place) -> io::Result<bool> {
    if files.look(old)?.is_none() {
        return Ok(true);
    }
    match files.rename(old, place) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Whether what lies at the place is what this step put there, untouched.
fn is_ours(files: &impl Files, step: &Step) -> io::Result<bool> {
    let Some((now, new)) = files.look(&step.place)?.zip(step.new) else { return Ok(false) };
    if new.what == What::Directory {
        return Ok((now.what, now.inode) == (new.what, new.inode) && files.list(&step.place)?.is_empty());
    }
    Ok(now.is_untouched(&new))
}

fn swap_back(files: &impl Files, bench: &RelPath, step: &Step) -> io::Result<bool> {
    let (place, new, old) = (&step.place, new_of(bench, step), old_of(bench, step));
    let is_new = |place: &Place| -> io::Result<Option<bool>> {
        Ok(files.look(place)?.map(|seen| step.new.is_some_and(|new| new.inode == seen.inode)))
    };
    match (is_new(&new)?, is_new(&old)?) {
        // Where nothing can be exchanged it was taken out, and not put in.
        (Some(true), Some(_)) => put_back(files, &old, place),
        // Not begun, or back already.
        (Some(true) | None, None) => Ok(true),
        // Exchanged and looked at no further.
        (Some(false), _) => {
            if !is_ours(files, step)? {
                return Ok(false);
            }
            files.exchange(&new, place)?;
            Ok(true)
        }
        // Exchanged back a moment before the crash.
        (None, Some(true)) => {
            files.rename(&old, &new)?;
            Ok(true)
        }
        (None, Some(false)) => {
            if !is_ours(files, step)? {
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
