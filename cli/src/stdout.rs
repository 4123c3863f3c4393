//! The only way to stdout. A failed write is never a success: it is remembered here, even if the
//! command ignored the error, and `dispatch` checks it before the program ends.

use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, OnceLock};

use lobster_runtime::sync::lock;

/// The first failure that was not caused by a reader who left.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// True if stdout was a terminal when the program began; a terminal that hung up no longer looks like one.
static WAS_TERMINAL: OnceLock<bool> = OnceLock::new();

/// The stdout of the process.
pub(crate) struct Stdout(io::Stdout);

pub(crate) fn stdout() -> Stdout {
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    Stdout(io::stdout())
}

/// Notes if stdout is a terminal, before it can hang up.
pub(crate) fn remember_terminal() {
    let _ = WAS_TERMINAL.set(stdout().is_terminal());
}

/// True if the reader has left: a closed pipe, or a terminal that hung up.
fn is_unread(error: &io::Error) -> bool {
    let has_hung_up = WAS_TERMINAL.get() == Some(&true)
        && error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
    has_hung_up || error.kind() == io::ErrorKind::BrokenPipe
}

/// Prints a line. A reader who left, or a full disk, must not stop the work that the line reports.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(stdout(), "{line}");
}

/// Flushes the output and returns the first failed write.
pub(crate) fn take_failure() -> Option<io::Error> {
    let _ = stdout().flush();
    lock(&FAILED).take()
}

fn remember_error<T>(result: io::Result<T>) -> io::Result<T> {
    if let Err(error) = &result
        && !is_unread(error)
        && error.kind() != io::ErrorKind::Interrupted
    {
        let same = error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
        lock(&FAILED).get_or_insert(same);
    }
    // The message names stdout, so that readers do not look for the fault in the state directory.
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

    /// True if colours and other styles are supported and wanted.
    pub(crate) fn is_styled(&self) -> bool {
        anstream::AutoStream::choice(&self.0) != anstream::ColorChoice::Never
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        remember_error(self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        remember_error(self.0.flush())
    }
}

impl AsFd for Stdout {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
