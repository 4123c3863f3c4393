//! Output of commands for people: stdout, or a pager if stdout is a terminal. `less -FRX` leaves short
//! output on the screen.

use crate::stdout::{Stdout, stdout};
use std::io::{self, IsTerminal, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use lobster_runtime::setting::Setting;

/// The setting that chooses a pager for lobster only; `cat` or an empty text turns it off.
pub(crate) const SETTING: Setting<String> = Setting::any_text("LOBSTER_PAGER");

/// The default options of less: quit if the text fits, keep colours, leave the screen.
const LESS: &str = "FRX";

static OFF: AtomicBool = AtomicBool::new(false);

/// Turns the pager off for this process (`--no-pager`).
pub(crate) fn turn_off() {
    OFF.store(true, Ordering::Relaxed);
}

/// Output of text for a person. Dropping it writes the rest and waits for the pager.
pub(crate) enum PagedOutput {
    Stdout(io::BufWriter<Stdout>),
    Pager { child: Child, stdin: Option<io::BufWriter<ChildStdin>> },
}

impl PagedOutput {
    /// Directly to stdout: for programs.
    pub(crate) fn to_stdout() -> Self {
        Self::Stdout(io::BufWriter::new(stdout()))
    }

    /// Through the pager, if stdout is a terminal.
    pub(crate) fn through_pager() -> Self {
        let is_seen = stdout().is_terminal() && io::stdin().is_terminal() && !OFF.load(Ordering::Relaxed);
        if !is_seen || std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
            return Self::to_stdout();
        }
        let words = pager_command(|name| std::env::var(name).ok()).unwrap_or_default();
        let Some((program, arguments)) = words.split_first() else { return Self::to_stdout() };
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped());
        if std::env::var_os("LESS").is_none() {
            command.env("LESS", LESS);
        }
        match command.spawn() {
            Ok(mut child) => {
                let stdin = child.stdin.take().map(io::BufWriter::new);
                Self::Pager { child, stdin }
            }
            // A missing pager must not prevent output.
            Err(_) => Self::to_stdout(),
        }
    }

    /// Output for people, or for programs.
    pub(crate) fn for_reader(is_program: bool) -> Self {
        if is_program { Self::to_stdout() } else { Self::through_pager() }
    }
}

/// The command of the configured pager, or of `less`; `None` if the pager is turned off.
fn pager_command(set: impl Fn(&str) -> Option<String>) -> Option<Vec<String>> {
    let text = set(SETTING.name).or_else(|| set("PAGER")).unwrap_or_else(|| "less".to_owned());
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    (!words.is_empty() && words != ["cat"]).then_some(words)
}

impl Write for PagedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stdout(out) => out.write(bytes),
            Self::Pager { stdin: Some(out), .. } => out.write(bytes),
            Self::Pager { stdin: None, .. } => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stdout(out) => out.flush(),
            Self::Pager { stdin: Some(out), .. } => out.flush(),
            Self::Pager { stdin: None, .. } => Ok(()),
        }
    }
}

impl Drop for PagedOutput {
    fn drop(&mut self) {
        // The reader has left the pager.
        let _ = self.flush();
        if let Self::Pager { child, stdin } = self {
            drop(stdin.take());
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lobsters_own_setting_counts_first_and_cat_is_none() {
        let of = |own: Option<&str>, general: Option<&str>| {
            pager_command(|name| if name == SETTING.name { own } else { general }.map(str::to_owned))
        };
        assert_eq!(of(None, None), Some(vec!["less".to_owned()]));
        assert_eq!(of(None, Some("most -s")), Some(vec!["most".to_owned(), "-s".to_owned()]));
        assert_eq!(of(Some("cat"), Some("less")), None);
        assert_eq!(of(Some(""), Some("less")), None);
        assert_eq!(of(None, Some("cat")), None);
    }
}
