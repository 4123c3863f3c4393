//! Functions that work on an open descriptor.

use std::os::unix::fs::FileExt;

use bytes::Bytes;
use wasmtime::{Caller, Linker};
use wasmtime_wasi::p2::{InputStream, OutputStream, StreamError};

use super::paths::{put_filestat, set_times};
use super::{
    ALL_RIGHTS, CHUNK, DIRECTORY_RIGHTS, Done, FDFLAG_APPEND, Fd, Mem, NOT_SUPPORTED, RIGHT_FD_READ,
    RIGHT_FD_WRITE, RIGHT_POLL, file_type, run_call, stream_failed,
};
use crate::host::filesystem::ErrorCode;
use crate::host::io::Stdio;
use crate::host::overlay::Kind;
use crate::kind::PREVIEW1;
use crate::state::State;

pub(super) fn link_functions(l: &mut Linker<State>) -> wasmtime::Result<()> {
    type C<'a> = Caller<'a, State>;
    l.func_wrap(PREVIEW1, "fd_advise", |mut c: C<'_>, fd: u32, _: u64, _: u64, _: u32| {
        run_call(&mut c, |_, state| state.preview1.get_fd(fd).map(|_| ()))
    })?;
    l.func_wrap(PREVIEW1, "fd_allocate", |mut c: C<'_>, fd: u32, _: u64, _: u64| {
        run_call(&mut c, |_, state| match state.preview1.get_fd(fd)? {
            Fd::File { .. } => Err(ErrorCode::Unsupported.into()),
            Fd::Directory { .. } | Fd::Stream(..) => Err(ErrorCode::BadDescriptor.into()),
        })
    })?;
    for name in ["fd_datasync", "fd_sync"] {
        l.func_wrap(PREVIEW1, name, |mut c: C<'_>, fd: u32| {
            run_call(&mut c, |_, state| state.preview1.get_fd(fd).map(|_| ()))
        })?;
    }
    l.func_wrap(PREVIEW1, "fd_close", |mut c: C<'_>, fd: u32| {
        run_call(&mut c, |_, state| {
            state.preview1.get_fd(fd)?;
            state.preview1.fds[fd as usize] = None;
            Ok(())
        })
    })?;
    l.func_wrap(PREVIEW1, "fd_renumber", |mut c: C<'_>, from: u32, to: u32| {
        run_call(&mut c, |_, state| {
            state.preview1.get_fd(to)?;
            state.preview1.get_fd(from)?;
            let moved = state.preview1.fds[from as usize].take();
            state.preview1.fds[to as usize] = moved;
            Ok(())
        })
    })?;
    link_attributes(l)?;
    link_preopens(l)?;
    link_contents(l)
}

/// Links the functions that read and set attributes of a descriptor or its file.
fn link_attributes(l: &mut Linker<State>) -> wasmtime::Result<()> {
    type C<'a> = Caller<'a, State>;
    l.func_wrap(PREVIEW1, "fd_fdstat_get", |mut c: C<'_>, fd: u32, at: u32| {
        run_call(&mut c, |mem, state| {
            let (kind, flags, rights) = match state.preview1.get_fd(fd)? {
                Fd::Stream(_, rights) => (0, 0, *rights | RIGHT_POLL),
                Fd::Directory { .. } => (3, 0, DIRECTORY_RIGHTS),
                Fd::File { flags, rights, .. } => (4, *flags, *rights),
            };
            let mut stat = [0; 24];
            stat[0] = kind;
            stat[2..4].copy_from_slice(&flags.to_le_bytes());
            stat[8..16].copy_from_slice(&rights.to_le_bytes());
            stat[16..24].copy_from_slice(&ALL_RIGHTS.to_le_bytes());
            mem.put_bytes(at, &stat)
        })
    })?;
    l.func_wrap(PREVIEW1, "fd_fdstat_set_flags", |mut c: C<'_>, fd: u32, new: u32| {
        run_call(&mut c, |_, state| {
            if let Fd::File { flags, .. } = state.preview1.get_fd(fd)? {
                *flags = u16::try_from(new).map_err(|_| ErrorCode::Invalid)?;
            }
            Ok(())
        })
    })?;
    l.func_wrap(PREVIEW1, "fd_fdstat_set_rights", |_: u32, _: u64, _: u64| NOT_SUPPORTED)?;
    l.func_wrap(PREVIEW1, "fd_filestat_get", |mut c: C<'_>, fd: u32, at: u32| {
        run_call(&mut c, |mem, state| match state.preview1.get_fd(fd)? {
            Fd::Stream(..) => mem.put_bytes(at, &[0; 64]),
            Fd::Directory { place, .. } => {
                let place = place.clone();
                put_filestat(mem, state, &place, None, at)
            }
            Fd::File { place, opened, .. } => {
                let (place, size) = (place.clone(), opened.file.metadata()?.len());
                put_filestat(mem, state, &place, Some(size), at)
            }
        })
    })?;
    l.func_wrap(PREVIEW1, "fd_filestat_set_size", |mut c: C<'_>, fd: u32, size: u64| {
        run_call(&mut c, |_, state| match state.preview1.get_fd(fd)? {
            Fd::File { opened, .. } => match &opened.writer {
                Some(writer) => writer.set_len(&opened.file, size),
                None => Err(ErrorCode::NotPermitted.into()),
            },
            Fd::Directory { .. } | Fd::Stream(..) => Err(ErrorCode::Invalid.into()),
        })
    })?;
    l.func_wrap(
        PREVIEW1,
        "fd_filestat_set_times",
        |mut c: C<'_>, fd: u32, _: u64, mtime: u64, flags: u32| {
            run_call(&mut c, |_, state| {
                let place = match state.preview1.get_fd(fd)? {
                    Fd::File { place, .. } | Fd::Directory { place, .. } => place.clone(),
                    Fd::Stream(..) => return Err(ErrorCode::BadDescriptor.into()),
                };
                set_times(state, &place, mtime, flags)
            })
        },
    )?;
    Ok(())
}

/// Links the functions that list the directories open at the start.
fn link_preopens(l: &mut Linker<State>) -> wasmtime::Result<()> {
    type C<'a> = Caller<'a, State>;
    l.func_wrap(PREVIEW1, "fd_prestat_get", |mut c: C<'_>, fd: u32, at: u32| {
        run_call(&mut c, |mem, state| match state.preview1.get_fd(fd)? {
            Fd::Directory { preopen: Some(name), .. } => {
                mem.put_u32(at, 0)?;
                mem.put_u32(at.wrapping_add(4), name.len())
            }
            _ => Err(ErrorCode::BadDescriptor.into()),
        })
    })?;
    l.func_wrap(PREVIEW1, "fd_prestat_dir_name", |mut c: C<'_>, fd: u32, at: u32, len: u32| {
        run_call(&mut c, |mem, state| match state.preview1.get_fd(fd)? {
            Fd::Directory { preopen: Some(name), .. } if name.len() <= len as usize => {
                mem.put_bytes(at, name.as_bytes())
            }
            Fd::Directory { preopen: Some(_), .. } => Err(ErrorCode::NameTooLong.into()),
            _ => Err(ErrorCode::BadDescriptor.into()),
        })
    })?;
    Ok(())
}

/// Links the functions that read, write and list.
fn link_contents(l: &mut Linker<State>) -> wasmtime::Result<()> {
    type C<'a> = Caller<'a, State>;
    l.func_wrap(PREVIEW1, "fd_read", |mut c: C<'_>, fd: u32, iovs: u32, count: u32, got: u32| {
        run_call(&mut c, |mem, state| read_vectored(mem, state, fd, (iovs, count), None, got))
    })?;
    l.func_wrap(
        PREVIEW1,
        "fd_pread",
        |mut c: C<'_>, fd: u32, iovs: u32, count: u32, offset: u64, got: u32| {
            run_call(&mut c, |mem, state| read_vectored(mem, state, fd, (iovs, count), Some(offset), got))
        },
    )?;
    l.func_wrap(PREVIEW1, "fd_write", |mut c: C<'_>, fd: u32, iovs: u32, count: u32, put: u32| {
        run_call(&mut c, |mem, state| write_vectored(mem, state, fd, (iovs, count), None, put))
    })?;
    l.func_wrap(
        PREVIEW1,
        "fd_pwrite",
        |mut c: C<'_>, fd: u32, iovs: u32, count: u32, offset: u64, put: u32| {
            run_call(&mut c, |mem, state| write_vectored(mem, state, fd, (iovs, count), Some(offset), put))
        },
    )?;
    l.func_wrap(PREVIEW1, "fd_seek", |mut c: C<'_>, fd: u32, offset: i64, whence: u32, to: u32| {
        run_call(&mut c, |mem, state| seek_file(mem, state, fd, offset, whence, to))
    })?;
    l.func_wrap(PREVIEW1, "fd_tell", |mut c: C<'_>, fd: u32, to: u32| {
        run_call(&mut c, |mem, state| seek_file(mem, state, fd, 0, 1, to))
    })?;
    l.func_wrap(
        PREVIEW1,
        "fd_readdir",
        |mut c: C<'_>, fd: u32, at: u32, len: u32, cookie: u64, used: u32| {
            run_call(&mut c, |mem, state| read_directory(mem, state, fd, (at, len), cookie, used))
        },
    )?;
    Ok(())
}

fn read_vectored(
    mem: &mut Mem<'_>,
    state: &mut State,
    fd: u32,
    iovs: (u32, u32),
    offset: Option<u64>,
    got: u32,
) -> Done {
    // The descriptor is checked before the buffers: there may be none.
    state.preview1.get_fd(fd)?;
    let mut total = 0;
    for (at, len) in mem.get_buffers(iovs.0, iovs.1)? {
        if len == 0 {
            continue;
        }
        state.check_stop()?;
        let mut buffer = vec![0; mem.get(at, len)?.len().min(CHUNK)];
        let read = match state.preview1.get_fd(fd)? {
            Fd::Stream(stdio @ Stdio::Input(_), _) if offset.is_none() => {
                match InputStream::read(stdio, buffer.len()) {
                    Ok(bytes) => {
                        buffer[..bytes.len()].copy_from_slice(&bytes);
                        bytes.len()
                    }
                    Err(StreamError::Closed) => 0,
                    Err(error) => return Err(stream_failed(error)),
                }
            }
            Fd::File { opened, at, rights, .. } => {
                if *rights & RIGHT_FD_READ == 0 {
                    return Err(ErrorCode::BadDescriptor.into());
                }
                let read =
                    opened.file.read_at(&mut buffer, offset.map_or(*at, |offset| offset + total as u64))?;
                if offset.is_none() {
                    *at += read as u64;
                }
                state.pipes.count_moved(read);
                read
            }
            Fd::Directory { .. } => return Err(ErrorCode::IsDirectory.into()),
            Fd::Stream(..) => return Err(ErrorCode::BadDescriptor.into()),
        };
        mem.put_bytes(at, &buffer[..read])?;
        total += read;
        if read < len as usize {
            break;
        }
    }
    mem.put_u32(got, total)
}

fn write_vectored(
    mem: &mut Mem<'_>,
    state: &mut State,
    fd: u32,
    iovs: (u32, u32),
    offset: Option<u64>,
    put: u32,
) -> Done {
    state.preview1.get_fd(fd)?;
    let mut total = 0;
    for (at, len) in mem.get_buffers(iovs.0, iovs.1)? {
        // Every buffer is written completely, in portions that the host can hold.
        for part in mem.get(at, len)?.chunks(CHUNK) {
            state.check_stop()?;
            match state.preview1.get_fd(fd)? {
                Fd::Stream(stdio @ (Stdio::Output(_) | Stdio::Talk(_)), _) if offset.is_none() => {
                    OutputStream::write(stdio, Bytes::copy_from_slice(part)).map_err(stream_failed)?;
                    total += part.len();
                }
                Fd::File { opened, at, flags, rights, .. } => {
                    let Some(writer) = opened.writer.as_ref().filter(|_| *rights & RIGHT_FD_WRITE != 0)
                    else {
                        return Err(ErrorCode::BadDescriptor.into());
                    };
                    if offset.is_none() && *flags & FDFLAG_APPEND != 0 {
                        *at = opened.file.metadata()?.len();
                    }
                    let mut rest = part;
                    while !rest.is_empty() {
                        let to = offset.map_or(*at, |offset| offset + total as u64);
                        let written = writer.write_at(&opened.file, rest, to)?;
                        rest = &rest[written..];
                        total += written;
                        if offset.is_none() {
                            *at += written as u64;
                        }
                    }
                    state.pipes.count_moved(part.len());
                }
                Fd::Directory { .. } => return Err(ErrorCode::IsDirectory.into()),
                Fd::Stream(..) => return Err(ErrorCode::BadDescriptor.into()),
            }
        }
    }
    mem.put_u32(put, total)
}

fn seek_file(mem: &mut Mem<'_>, state: &mut State, fd: u32, offset: i64, whence: u32, to: u32) -> Done {
    match state.preview1.get_fd(fd)? {
        Fd::File { opened, at, .. } => {
            let base = match whence {
                0 => 0,
                1 => *at,
                2 => opened.file.metadata()?.len(),
                _ => return Err(ErrorCode::Invalid.into()),
            };
            *at = base.checked_add_signed(offset).ok_or(ErrorCode::Invalid)?;
            mem.put_u64(to, *at)
        }
        Fd::Stream(..) => Err(ErrorCode::InvalidSeek.into()),
        Fd::Directory { .. } => Err(ErrorCode::BadDescriptor.into()),
    }
}

fn read_directory(
    mem: &mut Mem<'_>,
    state: &mut State,
    fd: u32,
    buffer: (u32, u32),
    cookie: u64,
    used: u32,
) -> Done {
    let place = state.preview1.dir_place(fd)?;
    if cookie == 0 {
        if let Fd::Directory { listing, held, .. } = state.preview1.get_fd(fd)? {
            (*listing, *held) = (Vec::new(), None);
        }
        let (names, ticket) = state.files.list_charged(&place)?;
        let dots = [(".".to_owned(), Kind::Directory), ("..".to_owned(), Kind::Directory)];
        if let Fd::Directory { listing, held, .. } = state.preview1.get_fd(fd)? {
            *listing = dots.into_iter().chain(names).collect();
            *held = Some(ticket);
        }
    }
    let Fd::Directory { listing, .. } = state.preview1.get_fd(fd)? else {
        return Err(ErrorCode::NotDirectory.into());
    };
    mem.get(buffer.0, buffer.1)?;
    let room = buffer.1 as usize;
    let mut bytes = Vec::new();
    let skip = usize::try_from(cookie).unwrap_or(usize::MAX);
    for (index, (name, kind)) in listing.iter().enumerate().skip(skip) {
        let inode = place.resolve_name(name).hash().lower;
        bytes.extend((index as u64 + 1).to_le_bytes());
        bytes.extend(inode.to_le_bytes());
        bytes.extend(u32::try_from(name.len()).unwrap_or(0).to_le_bytes());
        bytes.extend([file_type(*kind), 0, 0, 0]);
        bytes.extend(name.as_bytes());
        if bytes.len() >= room {
            break;
        }
    }
    // A full buffer means that there is more; the last entry may be cut.
    bytes.truncate(room);
    state.pipes.count_moved(bytes.len());
    mem.put_bytes(buffer.0, &bytes)?;
    mem.put_u32(used, bytes.len())
}
