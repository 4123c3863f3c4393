//! `wasi_snapshot_preview1` for core modules, over the same files, streams, clocks and randomness as
//! the component interfaces.
//!
//! The official adapter is not used: it gets its memory from the module by `memory.grow`, and modules
//! that own all of their memory (Go's) then overwrite it. Numbers and layouts follow the `witx` files
//! of WASI 0.1.

mod descriptors;
mod paths;
mod process;

use std::time::Duration;

use rand::Rng;
use wasmtime::{Caller, Linker};
use wasmtime_wasi::p2::StreamError;

use super::filesystem::{ErrorCode, FsError, ListTicket, NamedEntry, OpenTicket};
use super::io::Stdio;
use super::overlay::{Kind, MAX_PATH, Opened};
use crate::state::State;

const FIRST_PREOPEN: u32 = 3;
const ALL_RIGHTS: u64 = (1 << 30) - 1;
/// Rights that a directory itself has: no seek, truncate or write.
const DIRECTORY_RIGHTS: u64 = ALL_RIGHTS & !(1 << 2 | 1 << 19 | 1 << 22 | RIGHT_FD_WRITE);
const RIGHT_FD_READ: u64 = 1 << 1;
const RIGHT_FD_WRITE: u64 = 1 << 6;
const RIGHT_POLL: u64 = 1 << 27;
const FDFLAG_APPEND: u16 = 1;
const NOT_SOCKET: i32 = 57;
const NOT_SUPPORTED: i32 = 58;

/// Most bytes of input returned at once.
const CHUNK: usize = 64 << 10;

/// Most buffers of one call, as on Linux (`IOV_MAX`).
const MAX_BUFFERS: u32 = 1024;

/// State of a module besides its files: its descriptors, command line and so on.
pub(crate) struct Preview1 {
    fds: Vec<Option<Fd>>,
    pub(crate) args: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) random: Box<dyn Rng + Send>,
}

enum Fd {
    Stream(Stdio, u64),
    Directory {
        place: NamedEntry,
        preopen: Option<String>,
        listing: Vec<(String, Kind)>,
        held: Option<ListTicket>,
        _ticket: Option<OpenTicket>,
    },
    File {
        place: NamedEntry,
        opened: Opened,
        at: u64,
        flags: u16,
        rights: u64,
        _ticket: OpenTicket,
    },
}

impl Fd {
    fn new_directory(place: NamedEntry, preopen: Option<String>, ticket: Option<OpenTicket>) -> Self {
        Self::Directory { place, preopen, listing: Vec::new(), held: None, _ticket: ticket }
    }
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
            let place = NamedEntry { mount, path: String::new() };
            Some(Fd::new_directory(place, Some(guest.clone()), None))
        }));
        Self { fds, args, env, random }
    }

    fn get_fd(&mut self, fd: u32) -> Result<&mut Fd, FsError> {
        self.fds.get_mut(fd as usize).and_then(Option::as_mut).ok_or_else(|| ErrorCode::BadDescriptor.into())
    }

    fn dir_place(&mut self, fd: u32) -> Result<NamedEntry, FsError> {
        match self.get_fd(fd)? {
            Fd::Directory { place, .. } => Ok(place.clone()),
            Fd::File { .. } | Fd::Stream(..) => Err(ErrorCode::NotDirectory.into()),
        }
    }

    fn insert_fd(&mut self, new: Fd) -> u32 {
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

    fn put_bytes(&mut self, at: u32, bytes: &[u8]) -> Done {
        let from = at as usize;
        let to = from.checked_add(bytes.len()).ok_or(ErrorCode::Invalid)?;
        self.0.get_mut(from..to).ok_or(ErrorCode::Invalid)?.copy_from_slice(bytes);
        Ok(())
    }

    fn put_u32(&mut self, at: u32, value: usize) -> Done {
        let value = u32::try_from(value).map_err(|_| ErrorCode::Overflow)?;
        self.put_bytes(at, &value.to_le_bytes())
    }

    fn put_u64(&mut self, at: u32, value: u64) -> Done {
        self.put_bytes(at, &value.to_le_bytes())
    }

    fn get_u32(&self, at: u32) -> Result<u32, FsError> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.get(at, 4)?);
        Ok(u32::from_le_bytes(bytes))
    }

    fn get_u64(&self, at: u32) -> Result<u64, FsError> {
        Ok(u64::from(self.get_u32(at)?) | u64::from(self.get_u32(at.wrapping_add(4))?) << 32)
    }

    fn get_text(&self, at: u32, len: u32) -> Result<String, FsError> {
        let bytes = self.get(at, len)?.to_vec();
        String::from_utf8(bytes).map_err(|_| ErrorCode::IllegalByteSequence.into())
    }

    /// Reads a path; a path that is too long is rejected before it is copied.
    fn get_path(&self, at: u32, len: u32) -> Result<String, FsError> {
        if len as usize > MAX_PATH {
            return Err(ErrorCode::NameTooLong.into());
        }
        self.get_text(at, len)
    }

    /// The buffers of a scattered read or write.
    fn get_buffers(&self, at: u32, count: u32) -> Result<Vec<(u32, u32)>, FsError> {
        if count > MAX_BUFFERS {
            return Err(ErrorCode::Invalid.into());
        }
        let table = self.get(at, count.checked_mul(8).ok_or(ErrorCode::Invalid)?)?;
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        Ok(table.chunks_exact(8).map(|pair| (word(&pair[..4]), word(&pair[4..]))).collect())
    }
}

/// Runs one call over the caller's memory; the result is its error number.
fn run_call(
    caller: &mut Caller<'_, State>,
    work: impl FnOnce(&mut Mem<'_>, &mut State) -> Done,
) -> wasmtime::Result<i32> {
    let Some(memory) = caller.get_export("memory").and_then(wasmtime::Extern::into_memory) else {
        return Ok(error_number(ErrorCode::Invalid));
    };
    let (bytes, state) = memory.data_and_store_mut(caller);
    match work(&mut Mem(bytes), state) {
        Ok(()) => Ok(0),
        Err(FsError::Code(code)) => Ok(error_number(code)),
        Err(FsError::Trap(error)) => Err(error),
    }
}

fn error_number(code: ErrorCode) -> i32 {
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
    process::link_functions(linker)?;
    descriptors::link_functions(linker)?;
    paths::link_functions(linker)
}

fn to_nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
