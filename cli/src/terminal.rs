//! Asking a person at the terminal.

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use lobster_runtime::cancel::CancelToken;
use lobster_runtime::engine::{PromptError, Prompter};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::render::harmless;

/// Whether somebody can be asked: standard input is a terminal.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal()
}

/// Reads answers line by line from standard input, without a buffer that
/// would swallow what belongs to the next prompt.
#[derive(Default)]
pub(crate) struct Terminal {
    /// Bytes that came after the line that was asked for.
    ahead: Mutex<Vec<u8>>,
}

impl Prompter for Terminal {
    fn approve(
        &self,
        prompt: &str,
        timeout: Option<Duration>,
        cancel: &CancelToken,
    ) -> Result<bool, PromptError> {
        show(&format!("{prompt} [y/N] "))?;
        let line = self.read_line(timeout, cancel)?.unwrap_or_default();
        Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
    }

    fn line(&self, intro: &str, cancel: &CancelToken) -> Result<Option<String>, PromptError> {
        show(intro)?;
        self.read_line(None, cancel)
    }
}

fn show(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(harmless(text).as_bytes())?;
    out.flush()
}

impl Terminal {
    fn read_line(
        &self,
        timeout: Option<Duration>,
        cancel: &CancelToken,
    ) -> Result<Option<String>, PromptError> {
        let deadline = timeout.map(|timeout| (Instant::now() + timeout, timeout));
        let mut ahead = self.ahead.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        loop {
            if let Some(end) = ahead.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = ahead.drain(..=end).collect();
                return Ok(Some(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned()));
            }
            if cancel.is_cancelled() {
                return Err(PromptError::Cancelled);
            }
            let wait = match deadline {
                None => None,
                Some((at, timeout)) => {
                    let left = at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(PromptError::TimedOut(timeout));
                    }
                    Some(Timespec::try_from(left).map_err(io::Error::other)?)
                }
            };
            let stdin = io::stdin();
            let event = cancel.pollable()?;
            let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&event, PollFlags::IN)];
            match poll(&mut fds, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
            if fds[0].revents().is_empty() {
                continue;
            }
            let mut buffer = [0; 4096];
            match rustix::io::read(&stdin, &mut buffer) {
                // A terminal that is closed reads as an error; both mean that nobody answers.
                Ok(0) | Err(rustix::io::Errno::IO) => {
                    let rest = std::mem::take(&mut *ahead);
                    let text = String::from_utf8_lossy(&rest).into_owned();
                    return Ok(Some(text).filter(|text| !text.is_empty()));
                }
                Ok(count) => ahead.extend_from_slice(&buffer[..count]),
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
    }
}
