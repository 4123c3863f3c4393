//! Merges two versions of a text with a common base, line by line.

use similar::{Algorithm, DiffOp, capture_diff_slices};

/// Lines of the base that one version has replaced.
#[derive(Clone, Copy)]
struct Hunk {
    begin: usize,
    end: usize,
    /// Number of the new lines.
    len: usize,
}

/// Merges the changes of both sides, if they affect different lines or are equal. Otherwise returns the
/// number, counted from 1, of the first line of the base that both changed.
pub(crate) fn merge_texts(base: &[u8], one: &[u8], other: &[u8]) -> Result<Vec<u8>, usize> {
    let [base, one, other] = [base, one, other].map(lines_of);
    let hunks = [hunks_of(&base, &one), hunks_of(&base, &other)];
    let versions = [&one, &other];
    let (mut next, mut moved, mut at) = ([0, 0], [0_isize, 0], 0);
    let mut merged = Vec::new();
    loop {
        let ahead = [0, 1].map(|side| hunks[side].get(next[side]).map(|hunk| hunk.begin));
        let Some(begin) = ahead.into_iter().flatten().min() else { break };
        // All hunks that touch each other form one region.
        let (mut end, before, mut touched) = (begin, moved, [false, false]);
        loop {
            let mut grown = false;
            for side in [0, 1] {
                while let Some(hunk) = hunks[side].get(next[side]).filter(|hunk| hunk.begin <= end) {
                    end = end.max(hunk.end);
                    moved[side] += to_signed(hunk.len) - to_signed(hunk.end - hunk.begin);
                    next[side] += 1;
                    touched[side] = true;
                    grown = true;
                }
            }
            if !grown {
                break;
            }
        }
        let region = |side: usize| {
            let from = to_signed(begin) + before[side];
            let to = to_signed(end) + moved[side];
            &versions[side][from.unsigned_abs()..to.unsigned_abs()]
        };
        merged.extend_from_slice(&base[at..begin]);
        match touched {
            [true, true] if region(0) != region(1) => return Err(begin + 1),
            [true, _] => merged.extend_from_slice(region(0)),
            [false, _] => merged.extend_from_slice(region(1)),
        }
        at = end;
    }
    merged.extend_from_slice(&base[at..]);
    Ok(merged.concat())
}

fn lines_of(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|byte| *byte == b'\n').collect()
}

fn hunks_of(base: &[&[u8]], version: &[&[u8]]) -> Vec<Hunk> {
    let hunk = |op: DiffOp| match op {
        DiffOp::Equal { .. } => None,
        DiffOp::Delete { old_index, old_len, .. } => {
            Some(Hunk { begin: old_index, end: old_index + old_len, len: 0 })
        }
        DiffOp::Insert { old_index, new_len, .. } => {
            Some(Hunk { begin: old_index, end: old_index, len: new_len })
        }
        DiffOp::Replace { old_index, old_len, new_len, .. } => {
            Some(Hunk { begin: old_index, end: old_index + old_len, len: new_len })
        }
    };
    capture_diff_slices(Algorithm::Myers, base, version).into_iter().filter_map(hunk).collect()
}

/// A text in memory never has more lines than fit into this type.
fn to_signed(lines: usize) -> isize {
    isize::try_from(lines).unwrap_or(isize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged_text(base: &str, one: &str, other: &str) -> Result<String, usize> {
        merge_texts(base.as_bytes(), one.as_bytes(), other.as_bytes())
            .map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn changes_of_different_lines_are_put_together_and_those_of_one_line_are_not() {
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(merged_text("a\nb\nc\nd\n", "A\nb\nc\nd\n", "a\nb\nc\nD\n"), ok("A\nb\nc\nD\n"));
        assert_eq!(merged_text("a\nb\nc\n", "a\nc\n", "a\nb\nc\nd\n"), ok("a\nc\nd\n"));
        assert_eq!(merged_text("a\nb\n", "x\na\nb\n", "a\nb\ny"), ok("x\na\nb\ny"));
        assert_eq!(merged_text("a\nb\nc\n", "a\nX\nc\n", "a\nX\nc\n"), ok("a\nX\nc\n"));
        assert_eq!(merged_text("", "a\n", ""), ok("a\n"));
        assert_eq!(merged_text("a\nb\nc\n", "a\nX\nc\n", "a\nY\nc\n"), Err(2));
        assert_eq!(merged_text("a\nb\n", "X\nb\n", "a\nY\n"), Err(1));
        assert_eq!(merged_text("", "a\n", "b\n"), Err(1));
    }

    /// A change of one side alone is the result, and the order of the sides does not matter.
    #[test]
    fn random_texts() {
        let mut dice = 7_u64;
        let mut roll = |below: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % below
        };
        let mut clean = 0;
        for _ in 0..3000 {
            let base: Vec<String> = (0..roll(12)).map(|_| format!("{}\n", roll(6))).collect();
            let mut edited = || -> String {
                let mut lines = base.clone();
                for _ in 0..roll(4) {
                    let at = usize::try_from(roll(lines.len() as u64 + 1)).unwrap();
                    match roll(3) {
                        0 => lines.insert(at, format!("new {}\n", roll(3))),
                        1 if at < lines.len() => drop(lines.remove(at)),
                        _ if at < lines.len() => lines[at] = format!("other {}\n", roll(3)),
                        _ => {}
                    }
                }
                lines.concat()
            };
            let (one, other) = (edited(), edited());
            let base = base.concat();
            assert_eq!(merged_text(&base, &one, &base), Ok(one.clone()));
            assert_eq!(merged_text(&base, &base, &one), Ok(one.clone()));
            assert_eq!(merged_text(&base, &one, &one), Ok(one.clone()));
            let both = merged_text(&base, &one, &other);
            assert_eq!(both, merged_text(&base, &other, &one), "{base:?} {one:?} {other:?}");
            clean += usize::from(both.is_ok() && one != other && one != base && other != base);
        }
        assert!(clean > 300, "{clean}");
    }
}
