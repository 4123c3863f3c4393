//! Asks a person at the terminal.
//!
//! A conversation takes place where the person sees it: on stderr if that is a terminal, else on stdout
//! if that is one. If neither is a terminal, a second question would not be seen, so the first line
//! decides, as with the incumbent; a line that is not an answer leaves the question waiting.

mod conversation;
mod rule;
mod stdin_lines;

use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;

use anstream::ColorChoice;
use lobster_runtime::cancel::CancelToken;
use lobster_runtime::engine::{Asked, PromptError, Prompter, Said};
use lobster_runtime::sync::lock;

use self::conversation::Conversation;
pub(crate) use self::rule::Sources;
use self::stdin_lines::Lines;
use crate::live;
use crate::stdout::stdout;

/// The reason why the latest question of this process was left waiting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Left {
    /// The person wants to answer later.
    Later,
    /// The terminal was closed, or its input ended.
    Gone,
    /// The line was not an answer, and it was not possible to ask again.
    Unanswered(String),
}

/// The runtime knows only that the question waits; the asking command reports the reason.
static LEFT: Mutex<Option<Left>> = Mutex::new(None);

/// The reason why this process left a question waiting, if it did.
pub(crate) fn how_left() -> Option<Left> {
    lock(&LEFT).clone()
}

/// Questions to a person at the terminal.
pub(crate) struct Terminal {
    /// Locked for one question at a time; the branches of a run may have several.
    lines: Mutex<Lines>,
    sources: Sources,
}

impl Terminal {
    /// Rules made at a question are added to the policies of `sources`, or to the operator's.
    pub(crate) fn new(sources: Sources) -> Self {
        Self { lines: Mutex::default(), sources }
    }
}

impl Prompter for Terminal {
    fn prompt_person(&self, question: &Asked<'_>, cancel: &CancelToken) -> Result<Said, PromptError> {
        let mut lines = lock(&self.lines);
        if cancel.is_cancelled() {
            return Err(PromptError::Cancelled);
        }
        let _quiet = live::hide_view();
        let (said, left) =
            Conversation::new(question, &self.sources, &mut lines, cancel, Voice::choose_stream())
                .ask_until_answered()?;
        if let Some(left) = left {
            *lock(&LEFT) = Some(left);
        }
        Ok(said)
    }
}

/// The stream for talking to a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    Stderr,
    Stdout,
    /// Stdout, while both stdout and stderr go to files or pipes.
    Unseen,
}

impl Voice {
    fn choose_stream() -> Self {
        if io::stderr().is_terminal() {
            Self::Stderr
        } else if stdout().is_terminal() {
            Self::Stdout
        } else {
            Self::Unseen
        }
    }

    fn print_text(self, text: &str) -> io::Result<()> {
        let mut out: Box<dyn Write> = match self {
            Self::Stderr => Box::new(io::stderr().lock()),
            Self::Stdout | Self::Unseen => Box::new(stdout()),
        };
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// True if colours and other styles are supported and wanted.
    fn is_styled(self) -> bool {
        match self {
            Self::Stderr => anstream::AutoStream::choice(&io::stderr()) != ColorChoice::Never,
            Self::Stdout => stdout().is_styled(),
            Self::Unseen => false,
        }
    }

    fn screen_size(self) -> Option<(usize, usize)> {
        match self {
            Self::Stderr => terminal_size(io::stderr()),
            Self::Stdout => terminal_size(stdout()),
            Self::Unseen => None,
        }
    }
}

/// The columns and rows of a terminal; `None` for a file or a pipe.
pub(crate) fn terminal_size(terminal: impl std::os::fd::AsFd) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then(|| (size.ws_col.into(), size.ws_row.into()))
}

/// The columns of stdout: the terminal's own, else the value of `COLUMNS`.
pub(crate) fn columns_of_stdout() -> Option<usize> {
    let told = || std::env::var("COLUMNS").ok()?.trim().parse().ok().filter(|columns| *columns > 0);
    terminal_size(stdout()).map(|(columns, _)| columns).or_else(told)
}

/// True if stdout supports styles.
pub(crate) fn is_stdout_styled() -> bool {
    Voice::Stdout.is_styled()
}
