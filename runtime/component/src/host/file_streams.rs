//! Files as streams, and the errors of files.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use rustix::io::Errno;
use wasmtime::component::ResourceTableError;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{InputStream, OutputStream, Pollable, StreamError, StreamResult};

use super::filesystem::ErrorCode;
use super::overlay::Writer;

/// Most bytes that a stream reads or writes at once.
const STREAM_CHUNK: usize = 64 << 10;

/// An error code for the program, or the end of the run.
#[derive(Debug)]
pub(crate) enum FsError {
    Code(ErrorCode),
    Trap(wasmtime::Error),
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => write!(f, "{code}"),
            Self::Trap(error) => write!(f, "{error}"),
        }
    }
}

impl From<ErrorCode> for FsError {
    fn from(code: ErrorCode) -> Self {
        Self::Code(code)
    }
}

impl From<ResourceTableError> for FsError {
    fn from(error: ResourceTableError) -> Self {
        Self::Trap(error.into())
    }
}

impl From<io::Error> for FsError {
    fn from(error: io::Error) -> Self {
        Self::Code(error_code(&error))
    }
}

pub(super) fn error_code(error: &io::Error) -> ErrorCode {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT) => ErrorCode::NoEntry,
        Some(Errno::ACCESS) => ErrorCode::Access,
        // The kernel reports a path that would leave the directory as `XDEV`.
        Some(Errno::PERM | Errno::XDEV) => ErrorCode::NotPermitted,
        Some(Errno::NOTDIR) => ErrorCode::NotDirectory,
        Some(Errno::ISDIR) => ErrorCode::IsDirectory,
        Some(Errno::EXIST) => ErrorCode::Exist,
        Some(Errno::LOOP) => ErrorCode::Loop,
        Some(Errno::NAMETOOLONG) => ErrorCode::NameTooLong,
        Some(Errno::NOSPC) => ErrorCode::InsufficientSpace,
        Some(Errno::FBIG) => ErrorCode::FileTooLarge,
        Some(Errno::INVAL) => ErrorCode::Invalid,
        Some(Errno::ROFS) => ErrorCode::ReadOnly,
        Some(Errno::NXIO) => ErrorCode::NotPermitted,
        Some(_) => ErrorCode::Io,
        None => match error.kind() {
            io::ErrorKind::NotFound => ErrorCode::NoEntry,
            io::ErrorKind::PermissionDenied => ErrorCode::NotPermitted,
            _ => ErrorCode::Io,
        },
    }
}

pub(super) struct FileReader {
    pub(super) file: Arc<File>,
    pub(super) offset: u64,
}

#[async_trait]
impl Pollable for FileReader {
    async fn ready(&mut self) {}
}

#[async_trait]
impl InputStream for FileReader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let mut buffer = vec![0; size.min(STREAM_CHUNK)];
        let read = self.file.read_at(&mut buffer, self.offset).map_err(stream_error)?;
        if read == 0 && size > 0 {
            return Err(StreamError::Closed);
        }
        self.offset += read as u64;
        buffer.truncate(read);
        Ok(buffer.into())
    }
}

pub(super) struct StreamWriter {
    pub(super) file: Arc<File>,
    pub(super) writer: Writer,
    /// `None` appends.
    pub(super) offset: Option<u64>,
}

#[async_trait]
impl Pollable for StreamWriter {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for StreamWriter {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let mut at = match self.offset {
            Some(offset) => offset,
            None => self.file.metadata().map_err(stream_error)?.len(),
        };
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let written = self.writer.write_at(&self.file, rest, at).map_err(|error| match error {
                FsError::Code(code) => StreamError::LastOperationFailed(wasmtime::Error::new(code)),
                FsError::Trap(error) => StreamError::Trap(error),
            })?;
            at += written as u64;
            rest = &rest[written..];
        }
        if let Some(offset) = &mut self.offset {
            *offset = at;
        }
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(STREAM_CHUNK)
    }
}

fn stream_error(error: io::Error) -> StreamError {
    StreamError::LastOperationFailed(wasmtime::Error::new(error))
}
