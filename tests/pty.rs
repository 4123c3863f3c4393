//! A person at a terminal: a real pseudo-terminal, and what its screen shows.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use unicode_width::UnicodeWidthChar;

use crate::home::{Call, wait};

/// No answer of the program may take longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program on a terminal of its own.
pub(crate) struct Terminal {
    master: Option<File>,
    child: Child,
    screen: Screen,
    /// How much had come when something was typed last.
    typed_at: usize,
}

/// Both ends of a pseudo-terminal of this size.
fn open(columns: u16, rows: u16) -> (OwnedFd, OwnedFd) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave =
        rustix::fs::open(name.as_c_str(), OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty())
            .unwrap();
    tcsetwinsize(&slave, Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    (master, slave)
}

impl Terminal {
    /// Starts a call with all three streams on the terminal.
    pub(crate) fn start(call: Call, columns: u16, rows: u16) -> Self {
        Self::start_with(call, columns, rows, None)
    }

    /// The same with stdout elsewhere.
    pub(crate) fn start_with(call: Call, columns: u16, rows: u16, stdout: Option<Stdio>) -> Self {
        let (master, slave) = open(columns, rows);
        let stream = || Stdio::from(slave.try_clone().unwrap());
        let child = call.start_on(stream(), stdout.unwrap_or_else(stream), stream());
        Self {
            master: Some(File::from(master)),
            child,
            screen: Screen::new(columns.into(), rows.into()),
            typed_at: 0,
        }
    }

    /// Only its input is the terminal.
    pub(crate) fn start_unseen(call: Call, stdout: Stdio, stderr: Stdio) -> Self {
        let (master, slave) = open(80, 24);
        let child = call.start_on(Stdio::from(slave), stdout, stderr);
        Self { master: Some(File::from(master)), child, screen: Screen::new(80, 24), typed_at: 0 }
    }

    /// Reads until the screen ends in `text`, the cursor behind it, and not as it did before something was typed.
    pub(crate) fn wait_for(&mut self, text: &str) -> &Screen {
        let begun = Instant::now();
        while self.screen.written <= self.typed_at || !self.screen.ends_with(text) {
            assert!(begun.elapsed() < PATIENCE, "no {text:?} came:\n{}", self.screen.text());
            if !self.read() {
                assert!(self.screen.ends_with(text), "no {text:?} came:\n{}", self.screen.text());
            }
        }
        &self.screen
    }

    /// Reads until what is on the screen now is as wanted.
    pub(crate) fn wait_until(&mut self, wanted: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !wanted(&self.screen.now()) {
            assert!(begun.elapsed() < PATIENCE && self.read(), "it did not come:\n{}", self.screen.text());
        }
    }

    /// The window gets another size; lines that are too long now are broken, as terminals do.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(self.master.as_ref().unwrap(), size).unwrap();
        self.screen.resize(columns.into(), rows.into());
    }

    /// The last line that is typed.
    pub(crate) fn enter_and_end(mut self, line: &str) -> (i32, Screen) {
        self.enter(line);
        self.end()
    }

    /// A line, with Enter.
    pub(crate) fn enter(&mut self, line: &str) -> &mut Self {
        self.send(&format!("{line}\n"))
    }

    pub(crate) fn send(&mut self, keys: &str) -> &mut Self {
        self.typed_at = self.screen.written;
        self.master.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
        self
    }

    /// What is there to be read, for a while; false at the end.
    fn read(&mut self) -> bool {
        let master = self.master.as_mut().unwrap();
        let mut fds = [PollFd::new(master, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 20_000_000 })).unwrap();
        if fds[0].revents().is_empty() {
            return true;
        }
        let mut buffer = [0; 4096];
        match master.read(&mut buffer) {
            Ok(0) | Err(_) => false,
            Ok(count) => {
                self.screen.feed(&buffer[..count]);
                true
            }
        }
    }

    /// The terminal goes away. Gives the exit code.
    pub(crate) fn hang_up(mut self) -> i32 {
        drop(self.master.take());
        code(wait(&mut self.child, &"a program whose terminal was closed"))
    }

    /// Waits for the end. Gives the exit code, and all that was ever on the screen.
    pub(crate) fn end(mut self) -> (i32, Screen) {
        let begun = Instant::now();
        let status = loop {
            self.read();
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if begun.elapsed() > PATIENCE {
                let _ = self.child.kill();
                panic!("still running:\n{}", self.screen.text());
            }
        };
        let before = self.screen.written;
        while self.read() && self.screen.written != before {}
        (code(status), self.screen)
    }
}

fn code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// What a terminal shows: as much of one as the program uses.
pub(crate) struct Screen {
    columns: usize,
    rows: usize,
    /// Every line so far; the screen is the last of them.
    lines: Vec<Vec<Cell>>,
    row: usize,
    column: usize,
    style: String,
    /// Bytes of a sequence or a character that is not complete.
    begun: Vec<u8>,
    written: usize,
}

#[derive(Clone, Default)]
struct Cell {
    /// Empty behind a wide character.
    text: String,
    style: String,
}

impl Screen {
    fn new(columns: usize, rows: usize) -> Self {
        let (lines, begun) = (vec![Vec::new()], Vec::new());
        Self { columns, rows, lines, row: 0, column: 0, style: String::new(), begun, written: 0 }
    }

    fn resize(&mut self, columns: usize, rows: usize) {
        (self.columns, self.rows) = (columns, rows);
        let mut lines = Vec::new();
        for (at, line) in std::mem::take(&mut self.lines).into_iter().enumerate() {
            if at == self.row {
                self.row = lines.len() + self.column / columns;
                self.column %= columns;
            }
            if line.is_empty() {
                lines.push(line);
                continue;
            }
            lines.extend(line.chunks(columns).map(<[Cell]>::to_vec));
        }
        self.lines = lines;
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.written += bytes.len();
        self.begun.extend_from_slice(bytes);
        let bytes = std::mem::take(&mut self.begun);
        let mut rest = bytes.as_slice();
        while let Some(first) = rest.first() {
            let used = if *first == 0x1b {
                let end = rest.iter().skip(2).position(|byte| (0x40..=0x7e).contains(byte));
                let Some(end) = end.map(|end| end + 3) else { break };
                self.command(&String::from_utf8_lossy(&rest[1..end]));
                end
            } else {
                let whole = rest[..rest.len().min(4)].utf8_chunks().next().unwrap();
                let Some(c) = whole.valid().chars().next() else { break };
                self.put(c);
                c.len_utf8()
            };
            rest = &rest[used..];
        }
        self.begun = rest.to_vec();
    }

    fn put(&mut self, c: char) {
        match c {
            '\r' => self.column = 0,
            '\u{8}' => self.column = self.column.saturating_sub(1),
            '\n' => self.down(),
            // A tab or a bell would be a surprise, and is shown as one.
            c if c.is_control() => self.cell(&format!("<{:02x}>", u32::from(c)), 1),
            c => self.cell(&c.to_string(), c.width().unwrap_or(0)),
        }
    }

    fn cell(&mut self, text: &str, width: usize) {
        if width == 0 {
            if let Some(cell) = self.column.checked_sub(1).and_then(|at| self.lines[self.row].get_mut(at)) {
                cell.text.push_str(text);
            }
            return;
        }
        if self.column + width > self.columns {
            self.column = 0;
            self.down();
        }
        let line = &mut self.lines[self.row];
        let blank = Cell { text: " ".to_owned(), style: String::new() };
        line.resize(line.len().max(self.column + width), blank);
        line[self.column] = Cell { text: text.to_owned(), style: self.style.clone() };
        for behind in 1..width {
            line[self.column + behind] = Cell { text: String::new(), style: self.style.clone() };
        }
        self.column += width;
    }

    fn down(&mut self) {
        self.row += 1;
        if self.row == self.lines.len() {
            self.lines.push(Vec::new());
        }
    }

    fn command(&mut self, sequence: &str) {
        let (parameters, kind) = sequence.split_at(sequence.len() - 1);
        let number = || parameters.trim_start_matches('[').parse().unwrap_or(1);
        let top = self.lines.len().saturating_sub(self.rows);
        match kind {
            "m" if matches!(parameters, "[0" | "[") => self.style.clear(),
            "m" => self.style.push_str(parameters.trim_start_matches('[')),
            "A" => self.row = self.row.saturating_sub(number()).max(top),
            "B" => self.row = (self.row + number()).min(self.lines.len() - 1),
            "C" => self.column = (self.column + number()).min(self.columns - 1),
            "D" => self.column = self.column.saturating_sub(number()),
            "G" => self.column = number() - 1,
            "K" if parameters == "[2" => self.lines[self.row].clear(),
            "K" => self.lines[self.row].truncate(self.column),
            "J" if matches!(parameters, "[" | "[0") => {
                self.lines.truncate(self.row + 1);
                self.lines[self.row].truncate(self.column);
            }
            "h" | "l" => {}
            other => panic!("the test's terminal does not know {other:?} of {sequence:?}"),
        }
    }

    fn ends_with(&self, text: &str) -> bool {
        let line: String = self.lines[self.row].iter().map(|cell| cell.text.as_str()).collect();
        self.row + 1 == self.lines.len() && line.trim_end().ends_with(text)
    }

    /// All that was on the screen, also what scrolled away.
    pub(crate) fn text(&self) -> String {
        let line = |line: &Vec<Cell>| line.iter().map(|cell| cell.text.as_str()).collect::<String>();
        self.lines.iter().map(|one| line(one).trim_end().to_owned() + "\n").collect()
    }

    /// What is on the screen now.
    pub(crate) fn now(&self) -> String {
        let text = self.text();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(self.rows)..].join("\n") + "\n"
    }

    /// The same with its styles: `{1:bold words}`.
    pub(crate) fn styled(&self) -> String {
        let mut out = String::new();
        for line in &self.lines[self.lines.len().saturating_sub(self.rows)..] {
            let mut style = "";
            let mut shown = String::new();
            for cell in line {
                if cell.style != style {
                    if !style.is_empty() {
                        shown.push('}');
                    }
                    if !cell.style.is_empty() {
                        shown.push_str(&format!("{{{}:", cell.style));
                    }
                    style = &cell.style;
                }
                shown.push_str(&cell.text);
            }
            if !style.is_empty() {
                shown.push('}');
            }
            out.push_str(shown.trim_end());
            out.push('\n');
        }
        out
    }
}
