//! Asking a person at the terminal.
//!
//! A conversation is held where the person sees it: on stderr if that is a
//! terminal, else on stdout if that is one. If neither is, nobody sees a second
//! question, so the first line decides, as the incumbent has it; what is no
//! answer leaves the question waiting.

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

/// Whether somebody can be asked: standard input is a terminal.
pub(crate) fn is_interactive() -> bool {
    io::stdin().is_terminal()
}

/// Why the latest question of this process was left waiting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Left {
    /// The person wants to answer later.
    Later,
    /// The terminal was closed, or its input ended.
    Gone,
    /// What was typed is not an answer, and nobody could be asked again.
    Unanswered(String),
}

/// The runtime knows only that the question waits; how to say so is for the one who asked.
static LEFT: Mutex<Option<Left>> = Mutex::new(None);

/// How a question was left that this process asked, if one was.
pub(crate) fn how_left() -> Option<Left> {
    lock(&LEFT).clone()
}

/// A person at the terminal.
pub(crate) struct Terminal {
    /// One question at a time; the branches of a run may have several.
    lines: Mutex<Lines>,
    sources: Sources,
}

impl Terminal {
    /// Rules that are made at a question go into the policies of `sources`, or the operator's.
    pub(crate) fn new(sources: Sources) -> Self {
        Self { lines: Mutex::default(), sources }
    }
}

impl Prompter for Terminal {
    fn ask(&self, question: &Asked<'_>, cancel: &CancelToken) -> Result<Said, PromptError> {
        let mut lines = lock(&self.lines);
        if cancel.is_cancelled() {
            return Err(PromptError::Cancelled);
        }
        let _quiet = live::pause();
        let (said, left) =
            Conversation::new(question, &self.sources, &mut lines, cancel, Voice::find()).hold()?;
        if let Some(left) = left {
            *lock(&LEFT) = Some(left);
        }
        Ok(said)
    }
}

/// Where a person is talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    Stderr,
    Stdout,
    /// Stdout, which goes to a file or a pipe, as stderr does.
    Unseen,
}

impl Voice {
    fn find() -> Self {
        if io::stderr().is_terminal() {
            Self::Stderr
        } else if stdout().is_terminal() {
            Self::Stdout
        } else {
            Self::Unseen
        }
    }

    fn say(self, text: &str) -> io::Result<()> {
        let mut out: Box<dyn Write> = match self {
            Self::Stderr => Box::new(io::stderr().lock()),
            Self::Stdout | Self::Unseen => Box::new(stdout()),
        };
        out.write_all(text.as_bytes())?;
        out.flush()
    }

    /// Whether colours and the like are understood, and wanted.
    fn is_styled(self) -> bool {
        match self {
            Self::Stderr => anstream::AutoStream::choice(&io::stderr()) != ColorChoice::Never,
            Self::Stdout => stdout().is_styled(),
            Self::Unseen => false,
        }
    }

    fn size(self) -> Option<(usize, usize)> {
        match self {
            Self::Stderr => size(io::stderr()),
            Self::Stdout => size(stdout()),
            Self::Unseen => None,
        }
    }
}

/// The columns and rows of a terminal.
fn size(terminal: impl std::os::fd::AsFd) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then(|| (size.ws_col.into(), size.ws_row.into()))
}

/// The columns and rows of what stderr goes to, if it is a terminal.
pub(crate) fn size_of_stderr() -> Option<(usize, usize)> {
    size(io::stderr())
}

/// The columns of what stdout goes to: of a terminal its own, else what `COLUMNS` says.
pub(crate) fn columns_of_stdout() -> Option<usize> {
    let told = || std::env::var("COLUMNS").ok()?.trim().parse().ok().filter(|columns| *columns > 0);
    size(stdout()).map(|(columns, _)| columns).or_else(told)
}

/// Whether stdout understands styles.
pub(crate) fn is_stdout_styled() -> bool {
    Voice::Stdout.is_styled()
}
