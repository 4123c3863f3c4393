//! The lines of the live view, fitted to a terminal.

use std::borrow::Cow;
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use lobster_runtime::store::RunId;

use super::PATIENCE;
use super::model::{Fold, FoldKind, Line, Mark, Model};
use crate::render::text::{cut, display_width, pad};
use crate::render::{one_line, units};

const GREEN: Style = AnsiColor::Green.on_default();
const RED: Style = AnsiColor::Red.on_default().bold();
const CYAN: Style = AnsiColor::Cyan.on_default();
const YELLOW: Style = AnsiColor::Yellow.on_default();
const DIM: Style = Style::new().dimmed();

const FRAMES: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Widest column of names.
const NAME: usize = 28;

/// The columns of a time and of a size: `12 min 34 s`, `1023.9 KiB`.
const TIME: usize = 11;
const SIZE: usize = 10;

/// Least widths of a terminal for sizes and for the work of a step.
const WITH_SIZES: usize = 72;
const WITH_WORK: usize = 50;

/// The screen of the lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    pub(super) columns: usize,
    pub(super) rows: usize,
    pub(super) styled: bool,
}

impl Look {
    fn paint(&self, style: Style, text: &str) -> String {
        if self.styled && !text.is_empty() { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }
}

/// A sign with its colour, and its word for screens without signs.
fn mark_sign(mark: Mark, now: Duration) -> (&'static str, Style, &'static str) {
    match mark {
        Mark::Running => {
            let frame = usize::try_from(now.as_millis() / 100).unwrap_or(0) % FRAMES.len();
            (FRAMES[frame], CYAN, "running")
        }
        Mark::Ok => ("✓", GREEN, "ok"),
        Mark::Reused => ("↻", CYAN, "reused"),
        Mark::Skipped => ("⊘", DIM, "skipped"),
        Mark::Failed => ("✗", RED, "failed"),
        Mark::Rejected => ("✗", YELLOW, "rejected"),
        Mark::Waiting => ("?", YELLOW, "waiting"),
        Mark::Stopped => ("■", YELLOW, "stopped"),
    }
}

/// The line of a step.
pub(super) fn step_line(line: &Line, model: &Model, now: Duration, look: &Look) -> String {
    line_and_width(line, model, now, look).0
}

/// The line with its width.
fn line_and_width(line: &Line, model: &Model, now: Duration, look: &Look) -> (String, usize) {
    // The last column stays free, so that no terminal breaks the line.
    let columns = look.columns.clamp(12, 120) - 1;
    let (sign, style, _) = mark_sign(line.mark, now);
    let took = time_taken(line, now).map(units::rough_duration).unwrap_or_default();
    let size = if line.bytes > 0 && look.columns >= WITH_SIZES {
        units::format_bytes(line.bytes)
    } else {
        String::new()
    };
    let tail = if look.columns >= WITH_SIZES {
        format!(" {} {}", pad(&took, TIME, true), pad(&size, SIZE, true))
    } else {
        format!(" {took}")
    };
    let room = columns.saturating_sub(2 + display_width(&tail));
    let what = if look.columns >= WITH_WORK { describe_work(line, now) } else { short_work(line) };
    let name = one_line(&line.name);
    let (name, what) = if what.is_empty() {
        (pad(&cut(&name, room), room, false), String::new())
    } else {
        let wide = model.widest_name().min(NAME).min(room / 2).max(display_width(&cut(&name, room / 2)));
        let name = pad(&cut(&name, wide), wide, false);
        let left = room.saturating_sub(display_width(&name) + 2);
        (name, format!("  {}", pad(&cut(&one_line(&what), left), left, false)))
    };
    let what_style = if line.mark == Mark::Failed { RED } else { DIM };
    let plain = format!("{sign} {name}{what}{tail}");
    let most = look.columns.max(2) - 1;
    if display_width(plain.trim_end()) > most {
        let text = cut(plain.trim_end(), most).into_owned();
        let wide = display_width(&text);
        return (look.paint(style, &text), wide);
    }
    let name = if line.mark == Mark::Skipped { look.paint(DIM, &name) } else { name };
    let shown = format!(
        "{} {name}{}{}",
        look.paint(style, sign),
        look.paint(what_style, &what),
        look.paint(DIM, tail.trim_end())
    );
    (if look.styled { shown } else { shown.trim_end().to_owned() }, display_width(plain.trim_end()))
}

fn time_taken(line: &Line, now: Duration) -> Option<u64> {
    let took = match line.mark {
        Mark::Running => now.saturating_sub(line.begun),
        Mark::Skipped | Mark::Waiting | Mark::Reused => return None,
        // The time that a person took to answer is of no interest.
        Mark::Ok if line.what == "approval" || line.what == "input" => return None,
        Mark::Ok | Mark::Failed | Mark::Rejected | Mark::Stopped => line.took?,
    };
    Some(u64::try_from(took.as_micros()).unwrap_or(u64::MAX))
}

/// The current or finished work of a step.
fn describe_work(line: &Line, now: Duration) -> String {
    let mut told = Vec::new();
    if line.mark == Mark::Waiting {
        return "waits for an answer".to_owned();
    }
    if line.attempt > 1 {
        told.push(format!("attempt {}", line.attempt));
    }
    match &line.fold {
        Some(fold) => told.push(format_fold(fold, line, now)),
        // The answer is more informative than the question.
        None if line.note.is_some() && matches!(line.what.as_str(), "approval" | "input") => {}
        None => told.push(line.what.clone()),
    }
    match line.mark {
        Mark::Running => told.extend(line.inner_step().map(Cow::into_owned)),
        Mark::Stopped => told.push("stopped".to_owned()),
        Mark::Reused => told.push("reused".to_owned()),
        Mark::Skipped => told = vec!["skipped".to_owned()],
        Mark::Ok | Mark::Failed | Mark::Rejected | Mark::Waiting => {}
    }
    let note_at = usize::from(line.attempt > 1).min(told.len());
    told.splice(note_at..note_at, line.note.clone());
    if line.is_earlier {
        told.push("done before".to_owned());
    }
    told.retain(|part| !part.is_empty());
    told.join(" · ")
}

/// The same for narrow screens.
fn short_work(line: &Line) -> String {
    match &line.fold {
        Some(fold) if line.mark != Mark::Skipped => format_counts(fold),
        _ => String::new(),
    }
}

fn format_counts(fold: &Fold) -> String {
    match (fold.rounds_done(), fold.all) {
        (done, Some(all)) => format!("{done}/{all}"),
        (done, None) => done.to_string(),
    }
}

/// Formats `12/40 rounds, 2 failed, 3.1/s`.
fn format_fold(fold: &Fold, line: &Line, now: Duration) -> String {
    let (noun, many) = match fold.kind {
        FoldKind::Steps => ("step", "steps"),
        FoldKind::Branches => ("branch", "branches"),
        FoldKind::Rounds => ("round", "rounds"),
    };
    let all = fold.all.unwrap_or_else(|| fold.rounds_done());
    let done = fold.rounds_done();
    // A complete count is one figure.
    let mut text = if fold.all.is_none_or(|all| all == done) && line.has_ended() {
        format!("{} {}", units::format_count(done as u64), if done == 1 { noun } else { many })
    } else {
        format!("{} {}", format_counts(fold), if all == 1 { noun } else { many })
    };
    if fold.failed > 0 {
        text.push_str(&format!(", {} failed", fold.failed));
    }
    let seconds = line.took.unwrap_or_else(|| now.saturating_sub(line.begun)).as_secs_f64();
    if fold.kind == FoldKind::Rounds && done > 1 && seconds > 0.5 {
        text.push_str(&format!(", {}", format_rate(done as f64 / seconds)));
    }
    text
}

/// Formats `3.1/s` or `12/min`.
fn format_rate(per_second: f64) -> String {
    match per_second {
        many if many >= 100.0 => format!("{many:.0}/s"),
        some if some >= 1.0 => format!("{some:.1}/s"),
        few => format!("{:.0}/min", few * 60.0),
    }
}

/// The lines that change: from the first step that is still running, each with its width.
pub(super) fn changing_lines(model: &Model, from: usize, now: Duration, look: &Look) -> Vec<(String, usize)> {
    let quiet = |text: String, columns: usize| {
        let text = cut(&text, columns.saturating_sub(1));
        (look.paint(DIM, &text), display_width(&text))
    };
    let lines = model.lines().get(from..).unwrap_or_default();
    let is_due = |line: &&Line| line.has_ended() || now.saturating_sub(line.begun) >= PATIENCE;
    // The last row is the cursor's.
    let most = look.rows.saturating_sub(2).max(1);
    let mut shown = Vec::new();
    let due: Vec<&Line> = lines.iter().filter(is_due).collect();
    for (index, line) in due.iter().enumerate() {
        let left = due.len() - index;
        if shown.len() + usize::from(left > 1) >= most {
            shown.push(quiet(format!("… and {left} more"), look.columns));
            return shown;
        }
        shown.push(line_and_width(line, model, now, look));
        if let Some(words) = line.stderr_line().filter(|_| shown.len() + left < most) {
            shown.push(quiet(format!("  │ {}", one_line(words)), look.columns.min(120)));
        }
    }
    shown
}

/// The line of a finished step, for a file: `ok fetch (1.2 s, 13 B)`.
pub(super) fn plain_line(line: &Line) -> String {
    let (_, _, word) = mark_sign(line.mark, Duration::ZERO);
    let mut facts = Vec::new();
    match &line.fold {
        Some(fold) if line.mark != Mark::Skipped => facts.push(format_fold(fold, line, Duration::ZERO)),
        _ => {}
    }
    facts.extend(line.note.clone());
    facts.extend(time_taken(line, Duration::ZERO).map(units::rough_duration));
    if line.bytes > 0 {
        facts.push(units::format_bytes(line.bytes));
    }
    let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
    one_line(&format!("{word} {}{facts}", line.name))
}

/// The summary line: `run 3f9a1c2b: 3 steps, 1 reused, 1.2 s, 12,345 fuel, $0.0012`.
pub(super) fn summary_line(model: &Model, run: Option<RunId>, now: Duration, look: &Look) -> Option<String> {
    if model.is_empty() || !model.is_lasting() {
        return None;
    }
    let count = |mark| model.lines().iter().filter(|line| line.mark == mark).count() as u64;
    let mut facts = vec![units::count_noun(model.lines().len() as u64, "step")];
    for (mark, word) in [
        (Mark::Reused, "reused"),
        (Mark::Skipped, "skipped"),
        (Mark::Failed, "failed"),
        (Mark::Rejected, "rejected"),
        (Mark::Waiting, "waiting"),
        (Mark::Stopped, "stopped"),
    ] {
        if count(mark) > 0 {
            facts.push(format!("{} {word}", count(mark)));
        }
    }
    facts.push(units::rough_duration(u64::try_from(now.as_micros()).unwrap_or(u64::MAX)));
    if model.sums.fuel > 0 {
        facts.push(format!("{} fuel", units::format_count(model.sums.fuel)));
    }
    facts.extend(model.sums.usd.map(|usd| format!("${usd:.4}")));
    let run = run.map(|run| format!("run {}: ", run.short_id())).unwrap_or_default();
    let mut lines = vec![run];
    let last = facts.len() - 1;
    for (index, fact) in facts.into_iter().enumerate() {
        let fact = if index < last { format!("{fact}, ") } else { fact };
        // A fact is never wrapped.
        match lines.last_mut() {
            Some(line)
                if index == 0 || display_width(line) + display_width(fact.trim_end()) < look.columns =>
            {
                line.push_str(&fact)
            }
            _ => lines.push(format!("  {fact}")),
        }
    }
    let lines: Vec<_> =
        lines.iter().map(|line| cut(line.trim_end(), look.columns.saturating_sub(1))).collect();
    Some(lines.iter().map(|line| look.paint(DIM, line)).collect::<Vec<_>>().join("\n"))
}
