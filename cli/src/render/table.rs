//! Columns, aligned, without a trailing blank.

use super::one_line;

/// Rows of cells as lines; the last column is as wide as it likes.
pub(crate) fn lines(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    rows.iter()
        .map(|row| {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&one_line(cell));
                line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
            }
            line.trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["a".to_owned(), "long".to_owned()],
            vec!["böse".to_owned(), "x".to_owned(), "y".to_owned()],
        ];
        assert_eq!(lines(&rows), ["a     long", "böse  x     y"]);
    }
    #[test]
    fn a_cell_makes_no_row_of_its_own() {
        assert_eq!(lines(&[vec!["a\nb".to_owned(), "\x1b[2J".to_owned()]]), ["a b  \u{fffd}[2J"]);
    }
}
