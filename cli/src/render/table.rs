//! The table of the command line: aligned columns, colours if the terminal has them, fitted to its
//! width. Elsewhere every column and every character is kept.

use std::io::{self, Write};

use anstyle::{AnsiColor, Style};

use super::one_line;
use super::text::{cut, display_width, pad};
use crate::stdout::stdout;

/// Space between two columns.
const GAP: usize = 2;

/// No column is made narrower than this.
const LEAST: usize = 6;

const HEAD: Style = Style::new().dimmed();

/// A text in a table with its colour.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    pub(crate) fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }

    /// A word for a state, in the colour of the state.
    pub(crate) fn state_word(text: impl Into<String>) -> Self {
        let text = text.into();
        let style = state_style(&text);
        Self { text, style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), style: Style::new() }
    }
}

/// The colour of a state, by its first word.
pub(crate) fn state_style(state: &str) -> Style {
    let first = state.split([' ', ',', ';']).next().unwrap_or_default();
    match first {
        "ok" | "approved" | "answered" | "allow" | "allowed" | "held" | "same" => {
            AnsiColor::Green.on_default()
        }
        "failed" | "timed_out" | "refused" | "rejected" | "deny" | "denied" | "broken" | "removed" => {
            AnsiColor::Red.on_default()
        }
        "waiting" | "paused" | "interrupted" | "ask" | "asks" | "asked" | "expired" | "different" => {
            AnsiColor::Yellow.on_default()
        }
        "running" | "started" | "cached" | "reused" | "edited" | "added" => AnsiColor::Cyan.on_default(),
        "cancelled" | "skipped" | "impossible" => Style::new().dimmed(),
        _ => Style::new(),
    }
}

/// The width of the output, and support for styles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) columns: Option<usize>,
    pub(crate) styled: bool,
}

impl Room {
    /// The room of stdout: only a terminal has a width.
    pub(crate) fn of_stdout() -> Self {
        let columns = stdout().is_terminal().then(crate::terminal::columns_of_stdout).flatten();
        Self { columns, styled: crate::terminal::is_stdout_styled() }
    }

    /// The room of a file: nothing is cut.
    pub(crate) fn without_limit() -> Self {
        Self { columns: None, styled: false }
    }

    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        let plain = style == Style::new() || text.is_empty() || !self.styled;
        if plain { text.to_owned() } else { format!("{style}{text}{style:#}") }
    }
}

/// Rows below a head.
#[derive(Debug)]
pub(crate) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
    /// Columns of figures.
    right: Vec<usize>,
    /// Columns that a narrow terminal leaves out, the least important first.
    spare: Vec<usize>,
}

impl Table {
    /// A table whose columns have these names; all names are empty for a table without a head.
    pub(crate) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new(), right: Vec::new(), spare: Vec::new() }
    }

    /// Marks the columns with figures.
    pub(crate) fn numeric_columns(mut self, columns: &[&str]) -> Self {
        self.right = self.column_positions(columns);
        self
    }

    /// Marks the columns that a narrow terminal leaves out, the least important first.
    pub(crate) fn optional_columns(mut self, columns: &[&str]) -> Self {
        self.spare = self.column_positions(columns);
        self
    }

    fn column_positions(&self, columns: &[&str]) -> Vec<usize> {
        columns.iter().filter_map(|name| self.head.iter().position(|head| head == name)).collect()
    }

    pub(crate) fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// The lines of the head, if there is one, and of each row.
    pub(crate) fn to_lines(&self, room: Room) -> Vec<String> {
        let mut shown: Vec<usize> = (0..self.head.len()).collect();
        let text = |cell: &Cell| one_line(&cell.text);
        let mut widths: Vec<usize> = (0..self.head.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                cells
                    .map(|cell| display_width(&text(cell)))
                    .max()
                    .unwrap_or(0)
                    .max(display_width(self.head[column]))
            })
            .collect();
        if let Some(columns) = room.columns {
            let is_empty = |column: &usize| {
                self.rows.iter().all(|row| row.get(*column).is_none_or(|cell| cell.text.is_empty()))
            };
            shown.retain(|column| !is_empty(column));
            let total = |shown: &[usize], widths: &[usize]| -> usize {
                shown.iter().map(|at| widths[*at] + GAP).sum()
            };
            let most = columns.saturating_sub(1) + GAP;
            for spare in &self.spare {
                if total(&shown, &widths) <= most {
                    break;
                }
                shown.retain(|column| column != spare);
            }
            // The widest columns are cut until the table fits.
            while total(&shown, &widths) > most {
                let Some(widest) = shown.iter().copied().max_by_key(|at| widths[*at]) else { break };
                if widths[widest] <= LEAST {
                    break;
                }
                let over = total(&shown, &widths) - most;
                widths[widest] =
                    widths[widest].saturating_sub(over.min((widths[widest] / 4).max(1))).max(LEAST);
            }
        }
        let has_head = self.head.iter().any(|name| !name.is_empty());
        let head =
            has_head.then(|| self.head.iter().map(|name| Cell::styled(*name, HEAD)).collect::<Vec<_>>());
        let last = shown.last().copied();
        let line = |row: &Vec<Cell>| {
            let mut line = String::new();
            // Blanks are written only before other text, so that no line ends with them.
            let mut owed = 0;
            for column in &shown {
                let cell = row.get(*column).cloned().unwrap_or_default();
                let text = text(&cell);
                let wide = widths[*column];
                let text = if room.columns.is_some() { cut(&text, wide).into_owned() } else { text };
                let is_right = self.right.contains(column);
                let full = if Some(*column) == last && !is_right { text } else { pad(&text, wide, is_right) };
                let body = full.trim_end();
                if !body.is_empty() {
                    let trimmed = body.trim_start();
                    line.extend(std::iter::repeat_n(' ', owed + body.len() - trimmed.len()));
                    line.push_str(&room.paint(cell.style, trimmed));
                    owed = 0;
                }
                owed += display_width(&full) - display_width(body) + GAP;
            }
            line
        };
        head.iter().chain(&self.rows).map(line).collect()
    }

    /// Prints the lines.
    pub(crate) fn print_to(&self, out: &mut impl Write, room: Room) -> io::Result<()> {
        self.to_lines(room).iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

/// Rows of cells as lines, without a head; the width of the last column is unlimited.
pub(crate) fn align_rows(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let mut table = Table::new(&vec![""; columns]);
    for row in rows {
        table.push(row.iter().map(|cell| Cell::from(cell.as_str())).collect());
    }
    table.to_lines(Room::without_limit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".to_owned(), "long".to_owned()],
            vec!["böse".to_owned(), "x".to_owned(), "y".to_owned()],
            vec!["你好".to_owned(), String::new(), "z".to_owned()],
        ];
        assert_eq!(align_rows(&rows), ["a     long", "böse  x     y", "你好        z"]);
    }

    #[test]
    fn a_cell_makes_no_row_of_its_own() {
        assert_eq!(align_rows(&[vec!["a\nb".to_owned(), "\x1b[2J".to_owned()]]), ["a b  \u{fffd}[2J"]);
    }

    #[test]
    fn a_narrow_terminal_does_without_what_can_be_spared() {
        let mut table = Table::new(&["RUN", "SIZE", "EMPTY", "NAME"])
            .numeric_columns(&["SIZE"])
            .optional_columns(&["SIZE"]);
        table.push(vec!["4f90c468".into(), "12".into(), "".into(), "a name that goes on".into()]);
        table.push(vec!["018f3c2e".into(), "1,234".into(), "".into(), "b".into()]);
        let room = |columns| Room { columns: Some(columns), styled: false };
        assert_eq!(table.to_lines(room(80))[2], "018f3c2e  1,234  b");
        assert_eq!(table.to_lines(room(80))[1], "4f90c468     12  a name that goes on");
        assert_eq!(table.to_lines(room(24))[1], "4f90c468  a name that …");
        assert_eq!(table.to_lines(Room::without_limit())[1], "4f90c468     12         a name that goes on");
        let styled = table.to_lines(Room { columns: Some(80), styled: true });
        assert!(styled[0].contains("\u{1b}[2m") && !styled[1].contains("\u{1b}["), "{styled:?}");
    }

    proptest! {
        #[test]
        fn every_line_fits_where_it_can(
            rows in prop::collection::vec(prop::collection::vec("[a-z漢 \\n]{0,30}", 3), 1..8),
            columns in 30..120_usize,
        ) {
            let mut table = Table::new(&["A", "B", "C"]).optional_columns(&["B"]);
            for row in &rows {
                table.push(row.iter().map(|cell| Cell::from(cell.as_str())).collect());
            }
            for line in table.to_lines(Room { columns: Some(columns), styled: false }) {
                prop_assert!(display_width(&line) < columns, "{line:?}");
                prop_assert!(line.trim_end() == line && !line.contains('\n'));
            }
        }
    }
}
