//! `wasi_snapshot_preview1` for core modules, over the same files, streams,
//! clocks and randomness as the component interfaces.
//!
//! Not by the official adapter: it takes its memory from the module by
//! `memory.grow`, and modules that own all of their memory (Go's) then write
//! over it. Numbers and layouts are those of WASI 0.1's `witx` files.

use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use rand::Rng;
use wasmtime::{Caller, Linker};
use wasmtime_wasi::I32Exit;
use wasmtime_wasi::p2::{InputStream, OutputStream, StreamError};

use super::clocks::Clock;
use super::filesystem::{ErrorCode, FsError, OpenTicket, Place};
use super::io::Stdio;
use super::overlay::{Kind, Open, Opened};
use crate::RunError;
use crate::kind::PREVIEW1;
use crate::state::State;

const FIRST_PREOPEN: u32 = 3;
const ALL_RIGHTS: u64 = (1 << 30) - 1;
const RIGHT_FD_READ: u64 = 1 << 1;
const RIGHT_FD_WRITE: u64 = 1 << 6;
const RIGHT_POLL: u64 = 1 << 27;
const FDFLAG_APPEND: u16 = 1;
const NOT_SUPPORTED: i32 = 58;

/// How long a real wait goes on before it looks whether to stop.
const LOOK: Duration = Duration::from_millis(5);

/// Most bytes of input given at once.
const CHUNK: usize = 64 << 10;

/// What a module sees besides files: its descriptors, command line and so on.
pub(crate) struct Preview1 {
    fds: Vec<Option<Fd>>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) random: Box<dyn Rng + Send>,
}

enum Fd {
    Stream(Stdio, u64),
    Directory {
        place: Place,
        preopen: Option<String>,
        listing: Vec<(String, Kind)>,
        _ticket: Option<OpenTicket>,
    },
    File {
        place: Place,
        opened: Opened,
        at: u64,
        flags: u16,
        rights: u64,
        _ticket: OpenTicket,
    },
}

type Done = Result<(), FsError>;

impl Preview1 {
    pub(crate) fn new(
        pipes: &super::io::Pipes,
        preopens: &[String],
        args: Vec<String>,
        env: Vec<(String, String)>,
        random: Box<dyn Rng + Send>,
    ) -> Self {
        let mut fds = vec![
            Some(Fd::Stream(Stdio::Input(pipes.clone()), RIGHT_FD_READ)),
            Some(Fd::Stream(Stdio::Output(pipes.clone()), RIGHT_FD_WRITE)),
            Some(Fd::Stream(Stdio::Talk(pipes.clone()), RIGHT_FD_WRITE)),
        ];
        fds.extend(preopens.iter().enumerate().map(|(mount, guest)| {
            let place = Place { mount, path: String::new() };
            Some(Fd::Directory { place, preopen: Some(guest.clone()), listing: Vec::new(), _ticket: None })
        }));
        Self { fds, args, env, random }
    }

    fn fd(&mut self, fd: u32) -> Result<&mut Fd, FsError> {
        self.fds.get_mut(fd as usize).and_then(Option::as_mut).ok_or_else(|| ErrorCode::BadDescriptor.into())
    }

    fn dir(&mut self, fd: u32) -> Result<Place, FsError> {
        match self.fd(fd)? {
            Fd::Directory { place, .. } => Ok(place.clone()),
            Fd::File { .. } | Fd::Stream(..) => Err(ErrorCode::NotDirectory.into()),
        }
    }

    fn insert(&mut self, new: Fd) -> u32 {
        let from = FIRST_PREOPEN as usize;
        let at = match self.fds.iter().skip(from).position(Option::is_none) {
            Some(free) => free + from,
            None => {
                self.fds.push(None);
                self.fds.len() - 1
            }
        };
        self.fds[at] = Some(new);
        u32::try_from(at).unwrap_or(u32::MAX)
    }
}

/// The module's memory. Addresses come from the module and are checked.
struct Mem<'a>(&'a mut [u8]);

impl Mem<'_> {
    fn get(&self, at: u32, len: u32) -> Result<&[u8], FsError> {
        let from = at as usize;
        let to = from.checked_add(len as usize).ok_or(ErrorCode::Invalid)?;
        self.0.get(from..to).ok_or_else(|| ErrorCode::Invalid.into())
    }

    fn put(&mut self, at: u32, bytes: &[u8]) -> Done {
        let from = at as usize;
        let to = from.checked_add(bytes.len()).ok_or(ErrorCode::Invalid)?;
        self.0.get_mut(from..to).ok_or(ErrorCode::Invalid)?.copy_from_slice(bytes);
        Ok(())
    }

    fn put_u32(&mut self, at: u32, value: usize) -> Done {
        let value = u32::try_from(value).map_err(|_| ErrorCode::Overflow)?;
        self.put(at, &value.to_le_bytes())
    }

    fn put_u64(&mut self, at: u32, value: u64) -> Done {
        self.put(at, &value.to_le_bytes())
    }

    fn u32(&self, at: u32) -> Result<u32, FsError> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.get(at, 4)?);
        Ok(u32::from_le_bytes(bytes))
    }

    fn u64(&self, at: u32) -> Result<u64, FsError> {
        Ok(u64::from(self.u32(at)?) | u64::from(self.u32(at.wrapping_add(4))?) << 32)
    }

    fn text(&self, at: u32, len: u32) -> Result<String, FsError> {
        let bytes = self.get(at, len)?.to_vec();
        String::from_utf8(bytes).map_err(|_| ErrorCode::IllegalByteSequence.into())
    }

    /// The buffers of a scattered read or write.
    fn buffers(&self, at: u32, count: u32) -> Result<Vec<(u32, u32)>, FsError> {
        let table = self.get(at, count.checked_mul(8).ok_or(ErrorCode::Invalid)?)?;
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        Ok(table.chunks_exact(8).map(|pair| (word(&pair[..4]), word(&pair[4..]))).collect())
    }
}

/// Runs one call over the caller's memory; the result is its error number.
fn call(
    caller: &mut Caller<'_, State>,
    work: impl FnOnce(&mut Mem<'_>, &mut State) -> Done,
) -> wasmtime::Result<i32> {
    let Some(memory) = caller.get_export("memory").and_then(wasmtime::Extern::into_memory) else {
        return Ok(errno(ErrorCode::Invalid));
    };
    let (bytes, state) = memory.data_and_store_mut(caller);
    match work(&mut Mem(bytes), state) {
        Ok(()) => Ok(0),
        Err(FsError::Code(code)) => Ok(errno(code)),
        Err(FsError::Trap(error)) => Err(error),
    }
}

fn errno(code: ErrorCode) -> i32 {
    match code {
        ErrorCode::Access => 2,
        ErrorCode::WouldBlock => 6,
        ErrorCode::Already => 7,
        ErrorCode::BadDescriptor => 8,
        ErrorCode::Busy => 10,
        ErrorCode::Deadlock => 16,
        ErrorCode::Quota => 19,
        ErrorCode::Exist => 20,
        ErrorCode::FileTooLarge => 22,
        ErrorCode::IllegalByteSequence => 25,
        ErrorCode::InProgress => 26,
        ErrorCode::Interrupted => 27,
        ErrorCode::Invalid => 28,
        ErrorCode::Io => 29,
        ErrorCode::IsDirectory => 31,
        ErrorCode::Loop => 32,
        ErrorCode::TooManyLinks => 34,
        ErrorCode::MessageSize => 35,
        ErrorCode::NameTooLong => 37,
        ErrorCode::NoDevice | ErrorCode::NoSuchDevice => 43,
        ErrorCode::NoEntry => 44,
        ErrorCode::NoLock => 46,
        ErrorCode::InsufficientMemory => 48,
        ErrorCode::InsufficientSpace => 51,
        ErrorCode::NotDirectory => 54,
        ErrorCode::NotEmpty => 55,
        ErrorCode::NotRecoverable => 56,
        ErrorCode::Unsupported => NOT_SUPPORTED,
        ErrorCode::NoTty => 59,
        ErrorCode::Overflow => 61,
        ErrorCode::NotPermitted => 63,
        ErrorCode::Pipe => 64,
        ErrorCode::ReadOnly => 69,
        ErrorCode::InvalidSeek => 70,
        ErrorCode::TextFileBusy => 74,
        ErrorCode::CrossDevice => 75,
    }
}

fn file_type(kind: Kind) -> u8 {
    match kind {
        Kind::Directory => 3,
        Kind::File => 4,
        Kind::Link => 7,
        Kind::Other => 0,
    }
}

fn stream_failed(error: StreamError) -> FsError {
    match error {
        StreamError::Closed => ErrorCode::Pipe.into(),
        StreamError::LastOperationFailed(_) => ErrorCode::Io.into(),
        StreamError::Trap(error) => FsError::Trap(error),
    }
}

pub(crate) fn add_to_linker(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    process(linker)?;
    descriptors(linker)?;
    paths(linker)
}

fn process(l: &mut Linker<State>) -> wasmtime::Result<()> {
    type C<'a> = Caller<'a, State>;
    l.func_wrap(PREVIEW1, "args_sizes_get", |mut c: C<'_>, count: u32, size: u32| {
        call(&mut c, |mem, state| sizes(mem, &strings(&state.preview1.args), count, size))
    })?;
    l.func_wrap(PREVIEW1, "args_get", |mut c: C<'_>, table: u32, text: u32| {
        call(&mut c, |mem, state| list(mem, &strings(&state.preview1.args), table, text))
    })?;
    l.func_wrap(PREVIEW1, "environ_sizes_get", |mut c: C<'_>, count: u32, size: u32| {
        call(&mut c, |mem, state| sizes(mem, &environment(&state.preview1.env), count, size))
    })?;
    l.func_wrap(PREVIEW1, "environ_get", |mut c: C<'_>, table: u32, text: u32| {
        call(&mut c, |mem, state| list(mem, &environment(&state.preview1.env), table, text))
    })?;
    l.func_wrap(PREVIEW1, "clock_res_get", |mut c: C<'_>, _: u32, at: u32| {
        call(&mut c, |mem, _| mem.put_u64(at, super::clocks::RESOLUTION))
    })?;
    l.func_wrap(PREVIEW1, "clock_time_get", |mut c: C<'_>, id: u32, _: u64, at: u32| {
        call(&mut c, |mem, state| mem.put_u64(at, time(&state.clock, id)?))
    })?;
    l.func_wrap(PREVIEW1, "random_get", |mut c: C<'_>, at: u32, len: u32| {
        call(&mut c, |mem, state| {
            let mut bytes = vec![0; mem.get(at, len)?.len()];
            state.preview1.random.fill_bytes(&mut bytes);
            state.pipes.moving(bytes.len());
            mem.put(at, &bytes)
        })
    })?;
    l.func_wrap(PREVIEW1, "poll_oneoff", |mut c: C<'_>, from: u32, to: u32, count: u32, got: u32| {
        call(&mut c, |mem, state| poll(mem, state, from, to, count, got))
    })?;
    l.func_wrap(PREVIEW1, "proc_exit", |code: i32| -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(I32Exit(code)))
    })?;
    l.func_wrap(PREVIEW1, "proc_raise", |_: i32| NOT_SUPPORTED)?;
    l.func_wrap(PREVIEW1, "sched_yield", || 0)?;
    l.func_wrap(PREVIEW1, "sock_accept", |_: i32, _: i32, _: i32| NOT_SUPPORTED)?;
    l.func_wrap(PREVIEW1, "sock_recv", |_: i32, _: i32, _: i32, _: i32, _: i32, _: i32| NOT_SUPPORTED)?;
    l.func_wrap(PREVIEW1, "sock_send", |_: i32, _: i32, _: i32, _: i32, _: i32| NOT_SUPPORTED)?;
    l.func_wrap(PREVIEW1, "sock_shutdown", |_: i32, _: i32| NOT_SUPPORTED)?;
    Ok(())
}

fn strings(texts: &[String]) -> Vec<String> {
    texts.to_vec()
}

fn environment(env: &[(String, String)]) -> Vec<String> {
    env.iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn sizes(mem: &mut Mem<'_>, texts: &[String], count: u32, size: u32) -> Done {
    mem.put_u32(count, texts.len())?;
    mem.put_u32(size, texts.iter().map(|text| text.len() + 1).sum())
}

fn list(mem: &mut Mem<'_>, texts: &[String], table: u32, text: u32) -> Done {
    let (mut slot, mut at) = (table, text);
    for text in texts {
        mem.put_u32(slot, at as usize)?;
        mem.put(at, text.as_bytes())?;
        let end = at.wrapping_add(u32::try_from(text.len()).map_err(|_| ErrorCode::Overflow)?);
        mem.put(end, &[0])?;
        (slot, at) = (slot.wrapping_add(4), end.wrapping_add(1));
    }
    Ok(())
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn time(clock: &Clock, id: u32) -> Result<u64, FsError> {
    match id {
        0 => Ok(nanos(clock.wall())),
        // CPU time is what the program could tell about the machine; it gets the other clock.
        1..=3 => Ok(clock.monotonic()),
        _ => Err(ErrorCode::Invalid.into()),
    }
}

/// Streams and files are always ready, so a wait is one for a clock alone.
fn poll(mem: &mut Mem<'_>, state: &mut State, from: u32, to: u32, count: u32, got: u32) -> Done {
    mem.get(from, count.checked_mul(48).ok_or(ErrorCode::Invalid)?)?;
    let mut ready = Vec::new();
    let mut timers = Vec::new();
    for index in 0..count {
        let at = from + index * 48;
        let (user, tag) = (mem.u64(at)?, mem.get(at + 8, 1)?[0]);
        if tag != 0 {
            let known = state.preview1.fd(mem.u32(at + 16)?).is_ok();
            ready.push((user, tag, if known { 0 } else { errno(ErrorCode::BadDescriptor) }));
            continue;
        }
        let (id, wanted) = (mem.u32(at + 16)?, mem.u64(at + 24)?);
        let absolute = mem.get(at + 40, 1)?[0] & 1 == 1;
        let left = if absolute { wanted.saturating_sub(time(&state.clock, id)?) } else { wanted };
        timers.push((left, user));
    }
    if ready.is_empty() {
        let first = timers.iter().map(|(left, _)| *left).min().ok_or(ErrorCode::Invalid)?;
        wait(state, Duration::from_nanos(first))?;
        ready.extend(timers.iter().filter(|(left, _)| *left == first).map(|(_, user)| (*user, 0, 0)));
    }
    let mut at = to;
    for (user, tag, error) in &ready {
        let mut event = [0; 32];
        event[..8].copy_from_slice(&user.to_le_bytes());
        event[8..10].copy_from_slice(&u16::try_from(*error).unwrap_or(0).to_le_bytes());
        event[10] = *tag;
        event[16] = u8::from(*tag != 0);
        mem.put(at, &event)?;
        at = at.wrapping_add(32);
    }
    mem.put_u32(got, ready.len())
}

fn wait(state: &State, duration: Duration) -> Done {
    if state.clock.skip(nanos(duration)) {
        return Ok(());
    }
    let start = Instant::now();
    let limit = state.stop.limits.host_call;
    while let Some(left) = duration.checked_sub(start.elapsed()).filter(|left| !left.is_zero()) {
        let stop = state
            .stop
            .reason()
            .or_else(|| (start.elapsed() > limit).then_some(RunError::HostCallTimeout { limit }));
        if let Some(reason) = stop {
            return Err(FsError::Trap(wasmtime::Error::new(reason)));
        }
        std::thread::sleep(left.min(LOOK));
    }
    Ok(())
}

fn descriptors(l: &mut Linker<State>) -> wasmtime::Result<()> {
    type C<'a> = Caller<'a, State>;
    l.func_wrap(PREVIEW1, "fd_advise", |mut c: C<'_>, fd: u32, _: u64, _: u64, _: u32| {
        call(&mut c, |_, state| state.preview1.fd(fd).map(|_| ()))
    })?;
    l.func_wrap(PREVIEW1, "fd_allocate", |_: u32, _: u64, _: u64| NOT_SUPPORTED)?;
    for name in ["fd_datasync", "fd_sync"] {
        l.func_wrap(PREVIEW1, name, |mut c: C<'_>, fd: u32| {
            call(&mut c, |_, state| state.preview1.fd(fd).map(|_| ()))
        })?;
    }
    l.func_wrap(PREVIEW1, "fd_close", |mut c: C<'_>, fd: u32| {
        call(&mut c, |_, state| {
            state.preview1.fd(fd)?;
            state.preview1.fds[fd as usize] = None;
            Ok(())
        })
    })?;
    l.func_wrap(PREVIEW1, "fd_renumber", |mut c: C<'_>, from: u32, to: u32| {
        call(&mut c, |_, state| {
            state.preview1.fd(to)?;
            state.preview1.fd(from)?;
            let moved = state.preview1.fds[from as usize].take();
            state.preview1.fds[to as usize] = moved;
            Ok(())
        })
    })?;
    l.func_wrap(PREVIEW1, "fd_fdstat_get", |mut c: C<'_>, fd: u32, at: u32| {
        call(&mut c, |mem, state| {
            let (kind, flags, rights) = match state.preview1.fd(fd)? {
                Fd::Stream(_, rights) => (0, 0, *rights | RIGHT_POLL),
                Fd::Directory { .. } => (3, 0, ALL_RIGHTS),
                Fd::File { flags, rights, .. } => (4, *flags, *rights),
            };
            let mut stat = [0; 24];
            stat[0] = kind;
            stat[2..4].copy_from_slice(&flags.to_le_bytes());
            stat[8..16].copy_from_slice(&rights.to_le_bytes());
            stat[16..24].copy_from_slice(&ALL_RIGHTS.to_le_bytes());
            mem.put(at, &stat)
        })
    })?;
    l.func_wrap(PREVIEW1, "fd_fdstat_set_flags", |mut c: C<'_>, fd: u32, new: u32| {
        call(&mut c, |_, state| {
            if let Fd::File { flags, .. } = state.preview1.fd(fd)? {
                *flags = u16::try_from(new).map_err(|_| ErrorCode::Invalid)?;
            }
            Ok(())
        })
    })?;
    l.func_wrap(PREVIEW1, "fd_fdstat_set_rights", |_: u32, _: u64, _: u64| NOT_SUPPORTED)?;
    l.func_wrap(PREVIEW1, "fd_filestat_get", |mut c: C<'_>, fd: u32, at: u32| {
        call(&mut c, |mem, state| match state.preview1.fd(fd)? {
            Fd::Stream(..) => mem.put(at, &[0; 64]),
            Fd::Directory { place, .. } => {
                let place = place.clone();
                filestat(mem, state, &place, None, at)
            }
            Fd::File { place, opened, .. } => {
                let (place, size) = (place.clone(), opened.file.metadata()?.len());
                filestat(mem, state, &place, Some(size), at)
            }
        })
    })?;
    l.func_wrap(PREVIEW1, "fd_filestat_set_size", |mut c: C<'_>, fd: u32, size: u64| {
        call(&mut c, |_, state| match state.preview1.fd(fd)? {
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
            call(&mut c, |_, state| {
                let place = match state.preview1.fd(fd)? {
                    Fd::File { place, .. } | Fd::Directory { place, .. } => place.clone(),
                    Fd::Stream(..) => return Err(ErrorCode::BadDescriptor.into()),
                };
                set_times(state, &place, mtime, flags)
            })
        },
    )?;
    l.func_wrap(PREVIEW1, "fd_prestat_get", |mut c: C<'_>, fd: u32, at: u32| {
        call(&mut c, |mem, state| match state.preview1.fd(fd)? {
            Fd::Directory { preopen: Some(name), .. } => {
                mem.put_u32(at, 0)?;
                mem.put_u32(at.wrapping_add(4), name.len())
            }
            _ => Err(ErrorCode::BadDescriptor.into()),
        })
    })?;
    l.func_wrap(PREVIEW1, "fd_prestat_dir_name", |mut c: C<'_>, fd: u32, at: u32, len: u32| {
        call(&mut c, |mem, state| match state.preview1.fd(fd)? {
            Fd::Directory { preopen: Some(name), .. } if name.len() <= len as usize => {
                mem.put(at, name.as_bytes())
            }
            Fd::Directory { preopen: Some(_), .. } => Err(ErrorCode::NameTooLong.into()),
            _ => Err(ErrorCode::BadDescriptor.into()),
        })
    })?;
    l.func_wrap(PREVIEW1, "fd_read", |mut c: C<'_>, fd: u32, iovs: u32, count: u32, got: u32| {
        call(&mut c, |mem, state| read(mem, state, fd, (iovs, count), None, got))
    })?;
    l.func_wrap(
        PREVIEW1,
        "fd_pread",
        |mut c: C<'_>, fd: u32, iovs: u32, count: u32, offset: u64, got: u32| {
            call(&mut c, |mem, state| read(mem, state, fd, (iovs, count), Some(offset), got))
        },
    )?;
    l.func_wrap(PREVIEW1, "fd_write", |mut c: C<'_>, fd: u32, iovs: u32, count: u32, put: u32| {
        call(&mut c, |mem, state| write(mem, state, fd, (iovs, count), None, put))
    })?;
    l.func_wrap(
        PREVIEW1,
        "fd_pwrite",
        |mut c: C<'_>, fd: u32, iovs: u32, count: u32, offset: u64, put: u32| {
            call(&mut c, |mem, state| write(mem, state, fd, (iovs, count), Some(offset), put))
        },
    )?;
    l.func_wrap(PREVIEW1, "fd_seek", |mut c: C<'_>, fd: u32, offset: i64, whence: u32, to: u32| {
        call(&mut c, |mem, state| seek(mem, state, fd, offset, whence, to))
    })?;
    l.func_wrap(PREVIEW1, "fd_tell", |mut c: C<'_>, fd: u32, to: u32| {
        call(&mut c, |mem, state| seek(mem, state, fd, 0, 1, to))
    })?;
    l.func_wrap(
        PREVIEW1,
        "fd_readdir",
        |mut c: C<'_>, fd: u32, at: u32, len: u32, cookie: u64, used: u32| {
            call(&mut c, |mem, state| readdir(mem, state, fd, (at, len), cookie, used))
        },
    )?;
    Ok(())
}

fn read(
    mem: &mut Mem<'_>,
    state: &mut State,
    fd: u32,
    iovs: (u32, u32),
    offset: Option<u64>,
    got: u32,
) -> Done {
    let mut total = 0;
    for (at, len) in mem.buffers(iovs.0, iovs.1)? {
        if len == 0 {
            continue;
        }
        let mut buffer = vec![0; mem.get(at, len)?.len().min(CHUNK)];
        let read = match state.preview1.fd(fd)? {
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
                state.pipes.moving(read);
                read
            }
            Fd::Directory { .. } => return Err(ErrorCode::IsDirectory.into()),
            Fd::Stream(..) => return Err(ErrorCode::BadDescriptor.into()),
        };
        mem.put(at, &buffer[..read])?;
        total += read;
        if read < len as usize {
            break;
        }
    }
    mem.put_u32(got, total)
}

fn write(
    mem: &mut Mem<'_>,
    state: &mut State,
    fd: u32,
    iovs: (u32, u32),
    offset: Option<u64>,
    put: u32,
) -> Done {
    let mut total = 0;
    for (at, len) in mem.buffers(iovs.0, iovs.1)? {
        // Every part in full, in portions that the host can hold.
        for part in mem.get(at, len)?.chunks(CHUNK) {
            match state.preview1.fd(fd)? {
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
                    state.pipes.moving(part.len());
                }
                Fd::Directory { .. } => return Err(ErrorCode::IsDirectory.into()),
                Fd::Stream(..) => return Err(ErrorCode::BadDescriptor.into()),
            }
        }
    }
    mem.put_u32(put, total)
}

fn seek(mem: &mut Mem<'_>, state: &mut State, fd: u32, offset: i64, whence: u32, to: u32) -> Done {
    match state.preview1.fd(fd)? {
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

fn readdir(
    mem: &mut Mem<'_>,
    state: &mut State,
    fd: u32,
    buffer: (u32, u32),
    cookie: u64,
    used: u32,
) -> Done {
    let place = state.preview1.dir(fd)?;
    if cookie == 0 {
        let names = state.files.tree(place.mount)?.list(&place.path)?;
        let dots = [(".".to_owned(), Kind::Directory), ("..".to_owned(), Kind::Directory)];
        if let Fd::Directory { listing, .. } = state.preview1.fd(fd)? {
            *listing = dots.into_iter().chain(names).collect();
        }
    }
    let Fd::Directory { listing, .. } = state.preview1.fd(fd)? else {
        return Err(ErrorCode::NotDirectory.into());
    };
    mem.get(buffer.0, buffer.1)?;
    let room = buffer.1 as usize;
    let mut bytes = Vec::new();
    let skip = usize::try_from(cookie).unwrap_or(usize::MAX);
    for (index, (name, kind)) in listing.iter().enumerate().skip(skip) {
        let inode = place.child(name).hash().lower;
        bytes.extend((index as u64 + 1).to_le_bytes());
        bytes.extend(inode.to_le_bytes());
        bytes.extend(u32::try_from(name.len()).unwrap_or(0).to_le_bytes());
        bytes.extend([file_type(*kind), 0, 0, 0]);
        bytes.extend(name.as_bytes());
        if bytes.len() >= room {
            break;
        }
    }
    // A full buffer says that there is more; the last entry may be cut.
    bytes.truncate(room);
    state.pipes.moving(bytes.len());
    mem.put(buffer.0, &bytes)?;
    mem.put_u32(used, bytes.len())
}

fn filestat(mem: &mut Mem<'_>, state: &mut State, place: &Place, size: Option<u64>, at: u32) -> Done {
    let info = state.files.tree(place.mount)?.info(&place.path)?;
    let (kind, own_size, modified) = match (info, size) {
        (Some(info), _) => (info.kind, info.size, info.modified),
        // An open file outlives its name.
        (None, Some(size)) => (Kind::File, size, None),
        (None, None) => return Err(ErrorCode::NoEntry.into()),
    };
    let shown = state.files.shown_time(modified);
    let time = shown.and_then(|t| t.duration_since(SystemTime::UNIX_EPOCH).ok()).map_or(0, nanos);
    let mut stat = [0; 64];
    stat[8..16].copy_from_slice(&place.hash().lower.to_le_bytes());
    stat[16] = file_type(kind);
    stat[24..32].copy_from_slice(&1u64.to_le_bytes());
    stat[32..40].copy_from_slice(&size.unwrap_or(own_size).to_le_bytes());
    for field in [40, 48, 56] {
        stat[field..field + 8].copy_from_slice(&time.to_le_bytes());
    }
    mem.put(at, &stat)
}

fn set_times(state: &mut State, place: &Place, mtime: u64, flags: u32) -> Done {
    let time = match flags & 0b1100 {
        0 => return Ok(()),
        0b0100 => {
            SystemTime::UNIX_EPOCH.checked_add(Duration::from_nanos(mtime)).ok_or(ErrorCode::Overflow)?
        }
        0b1000 => state.files.now(),
        _ => return Err(ErrorCode::Invalid.into()),
    };
    state.files.tree(place.mount)?.set_modified(&place.path, time)
}

fn paths(l: &mut Linker<State>) -> wasmtime::Result<()> {
    type C<'a> = Caller<'a, State>;
    l.func_wrap(PREVIEW1, "path_create_directory", |mut c: C<'_>, fd: u32, at: u32, len: u32| {
        call(&mut c, |mem, state| {
            let place = resolve(mem, state, fd, (at, len), false)?;
            state.files.tree(place.mount)?.create_dir(&place.path)
        })
    })?;
    l.func_wrap(
        PREVIEW1,
        "path_filestat_get",
        |mut c: C<'_>, fd: u32, flags: u32, at: u32, len: u32, to: u32| {
            call(&mut c, |mem, state| {
                let place = resolve(mem, state, fd, (at, len), flags & 1 == 1)?;
                filestat(mem, state, &place, None, to)
            })
        },
    )?;
    l.func_wrap(
        PREVIEW1,
        "path_filestat_set_times",
        |mut c: C<'_>, fd: u32, flags: u32, at: u32, len: u32, _: u64, mtime: u64, which: u32| {
            call(&mut c, |mem, state| {
                let place = resolve(mem, state, fd, (at, len), flags & 1 == 1)?;
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
            call(&mut c, |mem, state| {
                let place = resolve(mem, state, fd, (at, len), follow & 1 == 1)?;
                let opened = open(state, place, how, rights, flags)?;
                let fd = state.preview1.insert(opened);
                mem.put_u32(to, fd as usize)
            })
        },
    )?;
    l.func_wrap(
        PREVIEW1,
        "path_readlink",
        |mut c: C<'_>, fd: u32, at: u32, len: u32, to: u32, room: u32, used: u32| {
            call(&mut c, |mem, state| {
                let place = resolve(mem, state, fd, (at, len), false)?;
                let target = state.files.link_target(&place)?;
                let target = &target.as_bytes()[..target.len().min(room as usize)];
                mem.put(to, target)?;
                mem.put_u32(used, target.len())
            })
        },
    )?;
    l.func_wrap(PREVIEW1, "path_remove_directory", |mut c: C<'_>, fd: u32, at: u32, len: u32| {
        call(&mut c, |mem, state| {
            let place = resolve(mem, state, fd, (at, len), false)?;
            state.files.tree(place.mount)?.remove_dir(&place.path)
        })
    })?;
    l.func_wrap(PREVIEW1, "path_unlink_file", |mut c: C<'_>, fd: u32, at: u32, len: u32| {
        call(&mut c, |mem, state| {
            let place = resolve(mem, state, fd, (at, len), false)?;
            state.files.tree(place.mount)?.remove_file(&place.path)
        })
    })?;
    l.func_wrap(
        PREVIEW1,
        "path_rename",
        |mut c: C<'_>, fd: u32, at: u32, len: u32, to_fd: u32, to: u32, to_len: u32| {
            call(&mut c, |mem, state| {
                let from = resolve(mem, state, fd, (at, len), false)?;
                let to = resolve(mem, state, to_fd, (to, to_len), false)?;
                if from.mount != to.mount {
                    return Err(ErrorCode::CrossDevice.into());
                }
                state.files.tree(from.mount)?.rename(&from.path, &to.path)
            })
        },
    )?;
    l.func_wrap(
        PREVIEW1,
        "path_symlink",
        |mut c: C<'_>, old: u32, old_len: u32, fd: u32, at: u32, len: u32| {
            call(&mut c, |mem, state| {
                let target = mem.text(old, old_len)?;
                let place = resolve(mem, state, fd, (at, len), false)?;
                state.files.tree(place.mount)?.symlink(&target, &place.path)
            })
        },
    )?;
    Ok(())
}

fn resolve(
    mem: &Mem<'_>,
    state: &mut State,
    fd: u32,
    path: (u32, u32),
    follow: bool,
) -> Result<Place, FsError> {
    let path = mem.text(path.0, path.1)?;
    let dir = state.preview1.dir(fd)?;
    let path = state.files.tree(dir.mount)?.resolve(&dir.path, &path, follow)?;
    Ok(Place { mount: dir.mount, path })
}

fn open(state: &mut State, place: Place, how: u32, rights: u64, flags: u32) -> Result<Fd, FsError> {
    let ticket = state.files.ticket()?;
    let wants_dir = how & 2 != 0;
    let how = Open {
        write: rights & RIGHT_FD_WRITE != 0,
        create: how & 1 != 0,
        exclusive: how & 4 != 0,
        truncate: how & 8 != 0,
    };
    let tree = state.files.tree(place.mount)?;
    let kind = tree.info(&place.path)?.map(|info| info.kind);
    if kind == Some(Kind::Directory) {
        if how.create && how.exclusive {
            return Err(ErrorCode::Exist.into());
        }
        if how.truncate || (how.write && !wants_dir) {
            return Err(ErrorCode::IsDirectory.into());
        }
        return Ok(Fd::Directory { place, preopen: None, listing: Vec::new(), _ticket: Some(ticket) });
    }
    if wants_dir {
        return Err(if kind.is_some() { ErrorCode::NotDirectory } else { ErrorCode::NoEntry }.into());
    }
    let opened = tree.open_file(&place.path, how)?;
    let flags = u16::try_from(flags).map_err(|_| ErrorCode::Invalid)?;
    Ok(Fd::File { place, opened, at: 0, flags, rights, _ticket: ticket })
}
