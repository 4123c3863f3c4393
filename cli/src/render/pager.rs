//! Where a command's text for people goes: stdout, or through a pager if that is a
//! terminal. `less -FRX` leaves what fits on the screen as it is.

use crate::stdout::{Stdout, stdout};
use std::io::{self, IsTerminal, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use lobster_runtime::setting::Setting;

/// What people set to choose a pager for lobster alone; `cat` or nothing turns it off.
pub(crate) const SETTING: Setting<String> = Setting::text("LOBSTER_PAGER");

/// What less does if nobody says otherwise: quit if it fits, keep colours, leave the screen.
const LESS: &str = "FRX";

static OFF: AtomicBool = AtomicBool::new(false);

/// Turns the pager off for this process (`--no-pager`).
pub(crate) fn turn_off() {
    OFF.store(true, Ordering::Relaxed);
}

/// Text for a person. What is left when it goes is written, and a pager is waited for.
pub(crate) enum Output {
    Stdout(io::BufWriter<Stdout>),
    Pager { child: Child, stdin: Option<io::BufWriter<ChildStdin>> },
}

impl Output {
    /// Straight to stdout: for programs.
    pub(crate) fn straight() -> Self {
        Self::Stdout(io::BufWriter::new(stdout()))
    }

    /// Through the pager, where somebody sits before it.
    pub(crate) fn paged() -> Self {
        let is_seen = stdout().is_terminal() && io::stdin().is_terminal() && !OFF.load(Ordering::Relaxed);
        if !is_seen || std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
            return Self::straight();
        }
        let words = match chosen(|name| std::env::var(name).ok()) {
            Some(words) => words,
            None => return Self::straight(),
        };
        let Some((program, arguments)) = words.split_first() else { return Self::straight() };
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
            // There is none, which is no reason to show nothing.
            Err(_) => Self::straight(),
        }
    }

    /// The one for people or the one for programs.
    pub(crate) fn for_reader(is_program: bool) -> Self {
        if is_program { Self::straight() } else { Self::paged() }
    }
}

/// The words of the pager that is set, or of `less`; none if it is turned off.
fn chosen(set: impl Fn(&str) -> Option<String>) -> Option<Vec<String>> {
    let text = set(SETTING.name).or_else(|| set("PAGER")).unwrap_or_else(|| "less".to_owned());
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    (!words.is_empty() && words != ["cat"]).then_some(words)
}

impl Write for Output {
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

impl Drop for Output {
    fn drop(&mut self) {
        // Whoever left the pager has seen enough.
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
            chosen(|name| if name == SETTING.name { own } else { general }.map(str::to_owned))
        };
        assert_eq!(of(None, None), Some(vec!["less".to_owned()]));
        assert_eq!(of(None, Some("most -s")), Some(vec!["most".to_owned(), "-s".to_owned()]));
        assert_eq!(of(Some("cat"), Some("less")), None);
        assert_eq!(of(Some(""), Some("less")), None);
        assert_eq!(of(None, Some("cat")), None);
    }
}
