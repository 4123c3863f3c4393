//! The one way to stdout. What could not be written there is never success: it is remembered here, whatever the
//! command made of the error, and `dispatch` asks before the program ends.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, OnceLock};

use lobster_runtime::sync::lock;

/// The first failure that was no reader's who has seen enough.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Whether stdout was a terminal when the program began: one that has hung up is none any more.
static WAS_TERMINAL: OnceLock<bool> = OnceLock::new();

/// The process's stdout.
pub(crate) struct Stdout(io::Stdout);

pub(crate) fn stdout() -> Stdout {
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    Stdout(io::stdout())
}

/// Notes what stdout is, before it can hang up.
pub(crate) fn begin() {
    let _ = WAS_TERMINAL.set(stdout().is_terminal());
}

/// Whether nobody reads any more: a pipe that was closed, or a terminal that has hung up.
fn is_unread(error: &io::Error) -> bool {
    let has_hung_up = WAS_TERMINAL.get() == Some(&true)
        && error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    has_hung_up || error.kind() == io::ErrorKind::BrokenPipe
}

/// Prints a line. Whoever has seen enough is no reason to stop what the line tells about, and neither is a full disk.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(stdout(), "{line}");
}

/// Writes what is still held back, and gives what of all that was printed could not be written.
pub(crate) fn take_failure() -> Option<io::Error> {
    let _ = stdout().flush();
    lock(&FAILED).take()
}

fn remembered<T>(result: io::Result<T>) -> io::Result<T> {
    if let Err(error) = &result
        && !is_unread(error)
        && error.kind() != io::ErrorKind::Interrupted
    {
        let same = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
        lock(&FAILED).get_or_insert(same);
    }
    // Whoever reads of it must not look for the fault in the state directory.
    result.map_err(|error| match error.kind() {
        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => error,
        _ if is_unread(&error) => error,
        kind => io::Error::new(kind, format!("the output could not be written: {error}")),
    })
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
