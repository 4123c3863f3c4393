//! The one way to stdout. What could not be written there is never success: it is remembered here, whatever the
//! command made of the error, and `dispatch` asks before the program ends.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};

/// The first failure that was no reader's who has seen enough.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// The process's stdout.
pub(crate) struct Stdout(io::Stdout);

pub(crate) fn stdout() -> Stdout {
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    Stdout(io::stdout())
}

/// Prints a line. Whoever has seen enough is no reason to stop what the line tells about, and neither is a full disk.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(stdout(), "{line}");
}

/// Writes what is still held back, and gives what of all that was printed could not be written.
pub(crate) fn take_failure() -> Option<io::Error> {
    let _ = stdout().flush();
    FAILED.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn remembered<T>(result: io::Result<T>) -> io::Result<T> {
    if let Err(error) = &result
        && !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::Interrupted)
    {
        let same = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
        FAILED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(same);
    }
    result
}

impl Stdout {
    pub(crate) fn is_terminal(&self) -> bool {
        self.0.is_terminal()
    }

    /// Whether colours and the like are understood, and wanted.
    pub(crate) fn is_styled(&self) -> bool {
        anstream::AutoStream::choice(&self.0) != anstream::ColorChoice::Never
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        remembered(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        remembered(self.0.flush())
    }
}

impl AsFd for Stdout {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
