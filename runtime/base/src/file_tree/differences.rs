//! Differences between two listings, by name.

use std::cmp::Ordering;
use std::io::{self, Read};

use super::{Records, in_order};

/// Most differences that are listed.
const MAX_NAMED: usize = 10;

/// Differences between two listings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    named: Vec<String>,
    count: usize,
}

impl Differences {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The first names, and the number of further ones.
    #[must_use]
    pub fn named_changes(&self) -> Vec<String> {
        let mut lines = self.named.clone();
        let more = self.count - lines.len();
        if more > 0 {
            lines.push(format!("{more} more"));
        }
        lines
    }

    pub(super) fn add_path(&mut self, path: &[u8], what: &str) {
        self.count += 1;
        if self.named.len() < MAX_NAMED {
            let path = if path.is_empty() { "the root".into() } else { String::from_utf8_lossy(path) };
            self.named.push(format!("{path} ({what})"));
        }
    }
}

/// Compares two listings by their lines, and also by the times of change if `with_times` is true.
pub(super) fn compare_listings(
    before: impl Read,
    now: impl Read,
    with_times: bool,
) -> io::Result<Differences> {
    let (mut before, mut now) = (Records::new(before), Records::new(now));
    let (mut old, mut new) = (before.next()?, now.next()?);
    let mut differences = Differences::default();
    loop {
        let order = match (&old, &new) {
            (None, None) => return Ok(differences),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => in_order(old.path(), new.path()),
        };
        match (&old, &new, order) {
            (Some(old), _, Ordering::Less) => differences.add_path(old.path(), "gone"),
            (_, Some(new), Ordering::Greater) => differences.add_path(new.path(), "new"),
            (Some(old), Some(new), _) if old.line != new.line => differences.add_path(new.path(), "changed"),
            (Some(old), Some(new), _) if with_times && old.bare_stamp() != new.bare_stamp() => {
                let what = if new.line[0] == b'd' { "entries came and went" } else { "written" };
                differences.add_path(new.path(), what);
            }
            _ => {}
        }
        if order != Ordering::Greater {
            old = before.next()?;
        }
        if order != Ordering::Less {
            new = now.next()?;
        }
    }
}
