//! Lines of standard input, without a buffer that would swallow the input of the next question.

use std::io;
use std::time::{Duration, Instant};

use lobster_runtime::cancel::CancelToken;
use lobster_runtime::engine::PromptError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Longest accepted line.
const MAX_LINE: usize = 1 << 20;

/// Input from the terminal.
#[derive(Debug, PartialEq)]
pub(super) enum Typed {
    Line(String),
    /// The end of the input: typed, or the terminal is gone. With the text typed before on that line.
    End(String),
}

/// The input, line by line.
#[derive(Default)]
pub(super) struct Lines {
    /// Bytes after the requested line.
    ahead: Vec<u8>,
}

/// The time limit of an answer.
#[derive(Clone, Copy)]
pub(super) struct Deadline {
    until: Instant,
    whole: Duration,
}

impl Deadline {
    pub(super) fn after(whole: Duration) -> Self {
        Self { until: Instant::now() + whole, whole }
    }
}

impl Lines {
    /// The next line. A terminal that can no longer be read counts as ended.
    pub(super) fn next(
        &mut self,
        deadline: Option<Deadline>,
        cancel: &CancelToken,
    ) -> Result<Typed, PromptError> {
        loop {
            if let Some(end) = self.ahead.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.ahead.drain(..=end).collect();
                return Ok(Typed::Line(line_text(&line)));
            }
            if cancel.is_cancelled() {
                return Err(PromptError::Cancelled);
            }
            let wait = match deadline {
                None => None,
                Some(Deadline { until, whole }) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(PromptError::TimedOut(whole));
                    }
                    Timespec::try_from(left).ok()
                }
            };
            let stdin = io::stdin();
            let Ok(event) = cancel.pollable_fd() else { return Ok(self.end_of_input()) };
            let mut fds = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&event, PollFlags::IN)];
            match poll(&mut fds, wait.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Ok(self.end_of_input()),
            }
            if fds[0].revents().is_empty() {
                continue;
            }
            let mut buffer = [0; 4096];
            match rustix::io::read(&stdin, &mut buffer) {
                Ok(0) => return Ok(self.end_of_input()),
                Ok(count) if self.ahead.len() + count <= MAX_LINE => {
                    self.ahead.extend_from_slice(&buffer[..count]);
                }
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                // An incomplete line, or a closed terminal.
                Ok(_) | Err(_) => return Ok(self.end_of_input()),
            }
        }
    }

    fn end_of_input(&mut self) -> Typed {
        Typed::End(line_text(&std::mem::take(&mut self.ahead)))
    }
}

fn line_text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end_matches(['\r', '\n']).to_owned()
}
