//! Functions that work on a path below an open directory.

use std::time::{Duration, SystemTime};

use wasmtime::{Caller, Linker};

use super::{Done, Fd, Mem, NOT_SUPPORTED, RIGHT_FD_WRITE, file_type, run_call, to_nanos};
use crate::host::filesystem::{ErrorCode, FsError, NamedEntry};
use crate::host::overlay::{Kind, Open};
use crate::kind::PREVIEW1;
use crate::state::State;

pub(super) fn link_functions(l: &mut Linker<State>) -> wasmtime::Result<()> {
    type C<'a> = Caller<'a, State>;
    l.func_wrap(PREVIEW1, "path_create_directory", |mut c: C<'_>, fd: u32, at: u32, len: u32| {
        run_call(&mut c, |mem, state| {
            let place = resolve_path(mem, state, fd, (at, len), false)?;
            state.files.mounted_tree(place.mount)?.create_dir(&place.path)
        })
    })?;
    l.func_wrap(
        PREVIEW1,
        "path_filestat_get",
        |mut c: C<'_>, fd: u32, flags: u32, at: u32, len: u32, to: u32| {
            run_call(&mut c, |mem, state| {
                let place = resolve_path(mem, state, fd, (at, len), flags & 1 == 1)?;
                put_filestat(mem, state, &place, None, to)
            })
        },
    )?;
    l.func_wrap(
        PREVIEW1,
        "path_filestat_set_times",
        |mut c: C<'_>, fd: u32, flags: u32, at: u32, len: u32, _: u64, mtime: u64, which: u32| {
            run_call(&mut c, |mem, state| {
                let place = resolve_path(mem, state, fd, (at, len), flags & 1 == 1)?;
                set_times(state, &place, mtime, which)
            })
        },
    )?;
    l.func_wrap(PREVIEW1, "path_link", |_: u32, _: u32, _: u32, _: u32, _: u32, _: u32, _: u32| {
        NOT_SUPPORTED
    })?;
    l.func_wrap(
        PREVIEW1,
        "path_open",
        |mut c: C<'_>,
         fd: u32,
         follow: u32,
         at: u32,
         len: u32,
         how: u32,
         rights: u64,
         _: u64,
         flags: u32,
         to: u32| {
            run_call(&mut c, |mem, state| {
                let place = resolve_path(mem, state, fd, (at, len), follow & 1 == 1)?;
                let opened = open_place(state, place, how, rights, flags)?;
                let fd = state.preview1.insert_fd(opened);
                mem.put_u32(to, fd as usize)
            })
        },
    )?;
    l.func_wrap(
        PREVIEW1,
        "path_readlink",
        |mut c: C<'_>, fd: u32, at: u32, len: u32, to: u32, room: u32, used: u32| {
            run_call(&mut c, |mem, state| {
                let place = resolve_path(mem, state, fd, (at, len), false)?;
                let target = state.files.link_target(&place)?;
                let target = &target.as_bytes()[..target.len().min(room as usize)];
                mem.put_bytes(to, target)?;
                mem.put_u32(used, target.len())
            })
        },
    )?;
    removals_and_links(l)
}

fn removals_and_links(l: &mut Linker<State>) -> wasmtime::Result<()> {
    type C<'a> = Caller<'a, State>;
    l.func_wrap(PREVIEW1, "path_remove_directory", |mut c: C<'_>, fd: u32, at: u32, len: u32| {
        run_call(&mut c, |mem, state| {
            let place = resolve_path(mem, state, fd, (at, len), false)?;
            state.files.mounted_tree(place.mount)?.remove_dir(&place.path)
        })
    })?;
    l.func_wrap(PREVIEW1, "path_unlink_file", |mut c: C<'_>, fd: u32, at: u32, len: u32| {
        run_call(&mut c, |mem, state| {
            let place = resolve_path(mem, state, fd, (at, len), false)?;
            state.files.mounted_tree(place.mount)?.remove_file(&place.path)
        })
    })?;
    l.func_wrap(
        PREVIEW1,
        "path_rename",
        |mut c: C<'_>, fd: u32, at: u32, len: u32, to_fd: u32, to: u32, to_len: u32| {
            run_call(&mut c, |mem, state| {
                let from = resolve_path(mem, state, fd, (at, len), false)?;
                let to = resolve_path(mem, state, to_fd, (to, to_len), false)?;
                if from.mount != to.mount {
                    return Err(ErrorCode::CrossDevice.into());
                }
                state.files.mounted_tree(from.mount)?.rename(&from.path, &to.path)
            })
        },
    )?;
    l.func_wrap(
        PREVIEW1,
        "path_symlink",
        |mut c: C<'_>, old: u32, old_len: u32, fd: u32, at: u32, len: u32| {
            run_call(&mut c, |mem, state| {
                let target = mem.get_path(old, old_len)?;
                let slash = mem.get_path(at, len)?.ends_with('/');
                let place = resolve_path(mem, state, fd, (at, len), false)?;
                state.files.mounted_tree(place.mount)?.create_symlink(&target, &place.path, slash)
            })
        },
    )?;
    Ok(())
}

fn resolve_path(
    mem: &Mem<'_>,
    state: &mut State,
    fd: u32,
    path: (u32, u32),
    follow: bool,
) -> Result<NamedEntry, FsError> {
    let dir = state.preview1.dir_place(fd)?;
    let path = mem.get_path(path.0, path.1)?;
    let path = state.files.mounted_tree(dir.mount)?.resolve_path(&dir.path, &path, follow)?;
    Ok(NamedEntry { mount: dir.mount, path })
}

fn open_place(
    state: &mut State,
    place: NamedEntry,
    how: u32,
    rights: u64,
    flags: u32,
) -> Result<Fd, FsError> {
    let ticket = state.files.take_ticket()?;
    let wants_dir = how & 2 != 0;
    let how = Open {
        write: rights & RIGHT_FD_WRITE != 0,
        create: how & 1 != 0,
        exclusive: how & 4 != 0,
        truncate: how & 8 != 0,
    };
    let Some(opened) = state.files.mounted_tree(place.mount)?.open_entry(&place.path, how, wants_dir)? else {
        return Ok(Fd::new_directory(place, None, Some(ticket)));
    };
    let flags = u16::try_from(flags).map_err(|_| ErrorCode::Invalid)?;
    Ok(Fd::File { place, opened, at: 0, flags, rights, _ticket: ticket })
}

pub(super) fn put_filestat(
    mem: &mut Mem<'_>,
    state: &mut State,
    place: &NamedEntry,
    size: Option<u64>,
    at: u32,
) -> Done {
    let info = state.files.mounted_tree(place.mount)?.path_info(&place.path)?;
    let (kind, own_size, modified) = match (info, size) {
        (Some(info), _) => (info.kind, info.size, info.modified),
        // An open file outlives its name.
        (None, Some(size)) => (Kind::File, size, None),
        (None, None) => return Err(ErrorCode::NoEntry.into()),
    };
    let shown = state.files.shown_time(modified);
    let time = shown.and_then(|t| t.duration_since(SystemTime::UNIX_EPOCH).ok()).map_or(0, to_nanos);
    let mut stat = [0; 64];
    stat[8..16].copy_from_slice(&place.hash().lower.to_le_bytes());
    stat[16] = file_type(kind);
    stat[24..32].copy_from_slice(&1u64.to_le_bytes());
    stat[32..40].copy_from_slice(&size.unwrap_or(own_size).to_le_bytes());
    for field in [40, 48, 56] {
        stat[field..field + 8].copy_from_slice(&time.to_le_bytes());
    }
    mem.put_bytes(at, &stat)
}

pub(super) fn set_times(state: &mut State, place: &NamedEntry, mtime: u64, flags: u32) -> Done {
    // Access times are not stored, but the request must be valid.
    if flags & 0b0011 == 0b0011 {
        return Err(ErrorCode::Invalid.into());
    }
    let time = match flags & 0b1100 {
        0 => return Ok(()),
        0b0100 => {
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(mtime)).ok_or(ErrorCode::Overflow)?
        }
        0b1000 => state.files.touch_time(),
        _ => return Err(ErrorCode::Invalid.into()),
    };
    state.files.mounted_tree(place.mount)?.set_modified(&place.path, time)
}
