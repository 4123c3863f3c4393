//! The screen of a question: prompt, subject, and every fact, fitted to the screen. A cut text is
//! always followed by a line that tells how to see the rest.

mod items;

use std::collections::BTreeSet;

use anstyle::{AnsiColor, Style};
use lobster_runtime::engine::{AT_ONCE, Fact, QuestionKind, QuestionView, Weight};
use lobster_runtime::figures::{count_noun, format_count};
use lobster_runtime::json;
use lobster_runtime::text::{Count, prefix};
use lobster_runtime::visible::{BAR, harmless, one_line};
use serde_json::Value;

use self::items::Layout;
use crate::text::{cut, display_width, exact, pad, wrap};

/// Indentation of everything except the prompt.
const INDENT: usize = 2;

/// The assumed size of a screen of unknown size.
const USUAL: (usize, usize) = (80, 24);

/// Least line width, even for narrower screens.
const LEAST_COLUMNS: usize = 20;

/// Most lines of the body in the summary of one question among others.
pub const SUMMARY: usize = 12;

/// The screen on which a question is shown.
#[derive(Clone, Copy, Debug)]
pub struct Paper<'a> {
    pub columns: usize,
    /// Most lines of the whole view; `None` shows all of it.
    pub rows: Option<usize>,
    /// True if styles are supported.
    pub styled: bool,
    /// The hint at the rest: `s shows all`.
    pub more: &'a str,
}

impl<'a> Paper<'a> {
    /// A terminal of this size, if it is known.
    pub fn with_size(size: Option<(usize, usize)>, styled: bool, more: &'a str) -> Self {
        let (columns, rows) = size.unwrap_or(USUAL);
        Self { columns: columns.max(LEAST_COLUMNS), rows: Some(rows), styled, more }
    }

    /// The same without a limit of lines.
    pub fn without_limit(self) -> Self {
        Self { rows: None, ..self }
    }

    pub fn paint(&self, style: Style, text: &str) -> String {
        match self.styled && !text.is_empty() {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }

    fn indented_room(&self) -> usize {
        self.columns.saturating_sub(INDENT)
    }

    /// The width of quoted text.
    fn quoted_room(&self) -> usize {
        self.indented_room().saturating_sub(display_width(BAR))
    }

    fn quote_line(&self, line: &str) -> String {
        format!("{}{}{line}", " ".repeat(INDENT), self.paint(DIM, BAR)).trim_end().to_owned()
    }
}

pub const BOLD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();
const LABEL: Style = AnsiColor::Cyan.on_default();
const WARN: Style = AnsiColor::Yellow.on_default();

/// The plan gets lines last.
const PLAN: u8 = 6;

/// Lines that are shown or cut together.
struct Block {
    lines: Vec<String>,
    /// The fewest lines that make sense.
    least: usize,
    /// The text for the missing lines, if only this number of lines is shown.
    missing: Box<dyn Fn(usize) -> String>,
    /// Blocks with a lower rank get lines first.
    rank: u8,
}

impl Block {
    fn fixed_lines(lines: Vec<String>) -> Self {
        let least = lines.len();
        Self { lines, least, missing: Box::new(|_| String::new()), rank: 0 }
    }

    /// Lines of which at least `least` are shown; the others are counted as lines of `what`.
    fn text_lines(lines: Vec<String>, least: usize, rank: u8, what: &str, paper: &Paper<'_>) -> Self {
        let of = if what.is_empty() { String::new() } else { format!(" of the {what}") };
        let (more, all) = (paper.more.to_owned(), lines.len());
        let missing = move |kept: usize| format!("… {} more{of}: {more}", counted_lines(all - kept));
        Self { least: lines.len().min(least), lines, missing: Box::new(missing), rank }
    }
}

/// The lines of a question.
pub fn screen_lines(view: &QuestionView, paper: &Paper<'_>) -> Vec<String> {
    let mut blocks = vec![title_block(view, paper)];
    let body = body_blocks(view, paper);
    let label = label_width(view);
    let facts: Vec<Block> = view.facts.iter().map(|fact| fact_lines(fact, label, paper)).collect();
    let then = upcoming_steps(view, paper);
    if !body.is_empty() {
        blocks.push(Block::fixed_lines(vec![String::new()]));
        blocks.extend(body);
    }
    blocks.push(Block::fixed_lines(vec![String::new()]));
    let first_fact = blocks.len();
    blocks.extend(facts);
    blocks.extend(then);
    if let Some(rows) = paper.rows {
        fit_blocks(&mut blocks, first_fact, view, rows, paper);
    }
    blocks.into_iter().flat_map(|block| block.lines).collect()
}

/// The lines of one question among others; the caller shows the prompt.
pub fn summary_lines(view: &QuestionView, paper: &Paper<'_>) -> Vec<String> {
    let label = label_width(view);
    let facts = view.facts.iter().filter(|fact| fact.weight != Weight::Minor && fact.label != "digest");
    let facts: Vec<Block> = facts.map(|fact| fact_lines(fact, label, paper)).collect();
    let mut blocks = body_blocks(view, paper);
    blocks.extend(facts);
    let rows = SUMMARY.max(blocks.iter().map(|block| block.least).sum());
    let first_fact = blocks.len();
    fit_blocks(&mut blocks, first_fact, view, rows, paper);
    blocks.into_iter().flat_map(|block| block.lines).collect()
}

/// The whole view as plain text.
pub fn whole_text(view: &QuestionView) -> String {
    screen_lines(view, &Paper { columns: TEXT_COLUMNS, rows: None, styled: false, more: "" }).join("\n")
}

/// The width of plain text.
const TEXT_COLUMNS: usize = 100;

/// The view as plain text of at most `max` bytes, for screens of other programs.
pub fn clipped_text(view: &QuestionView, max: usize, more: &str) -> String {
    let lines = |rows| {
        let paper = Paper { columns: TEXT_COLUMNS, rows: Some(rows), styled: false, more };
        screen_lines(view, &paper).join("\n")
    };
    // Tries fewer and fewer lines; the last resort is the beginning of the shortest view.
    let shown = [80, 60, 40, 30, 20, 12].into_iter().map(lines).find(|text| text.len() <= max);
    shown.unwrap_or_else(|| {
        let text = lines(12);
        let kept = prefix(&text, max, Count::Bytes);
        format!("{kept}… ({} more bytes: {more})", text.len() - kept.len())
    })
}

/// True if [`clipped_text`] with this limit shows every command that an approval may start, and every step of the plan after
/// the question.
pub fn shows_commands(view: &QuestionView, text: &str) -> bool {
    let paper = Paper { columns: TEXT_COLUMNS, rows: None, styled: false, more: "" };
    let shown: BTreeSet<&str> = text.lines().collect();
    let plan = upcoming_steps(view, &paper);
    let mut plan = plan.iter().flat_map(|block| &block.lines).filter(|line| !line.is_empty());
    plan.all(|line| shown.contains(line.as_str())) && shows_every_command(view, &paper, text.lines())
}

/// True if a [`screen_lines`] of this paper shows every command that an approval may start.
pub fn shows_every_command<'l>(
    view: &QuestionView,
    paper: &Paper<'_>,
    shown: impl Iterator<Item = &'l str>,
) -> bool {
    let paper = paper.without_limit();
    let shown: BTreeSet<&str> = shown.collect();
    let commands = view.facts.iter().filter(|fact| ["command", "starts", AT_ONCE].contains(&&*fact.label));
    let label = label_width(view);
    let mut lines = commands.flat_map(|fact| fact_lines(fact, label, &paper).lines);
    lines.all(|line| shown.contains(line.as_str()))
}

/// The width of a view's labels, up to a limit.
fn label_width(view: &QuestionView) -> usize {
    view.facts.iter().map(|fact| display_width(&one_line(&fact.label))).max().unwrap_or(0).min(11)
}

fn title_block(view: &QuestionView, paper: &Paper<'_>) -> Block {
    let prompt = harmless(&view.prompt);
    let (first, rest) = prompt.split_once('\n').unwrap_or((&prompt, ""));
    let mut lines: Vec<String> = wrap(first, paper.columns);
    let last = lines.last().map_or(0, |line| display_width(line));
    lines = lines.iter().map(|line| paper.paint(BOLD, line)).collect();
    if let (Some(items), Some(line)) = (item_count(view), lines.last_mut())
        && view.item_count() > 1
    {
        let items = format!("  {items}");
        if last + display_width(&items) <= paper.columns {
            line.push_str(&paper.paint(DIM, &items));
        }
    }
    if !rest.is_empty() {
        lines.extend(
            wrap(rest, paper.quoted_room()).iter().map(|line| paper.quote_line(&paper.paint(BOLD, line))),
        );
    }
    Block::text_lines(lines, 3, 1, "", paper)
}

fn counted_lines(number: usize) -> String {
    count_noun(number as u64, "line")
}

/// The subject of a question: preview, items, subject.
fn body_blocks(view: &QuestionView, paper: &Paper<'_>) -> Vec<Block> {
    let mut blocks = Vec::new();
    if let Some(preview) = &view.preview {
        blocks.push(prose_block(&harmless(preview), "preview", paper));
    }
    match &view.subject {
        None => {}
        Some(Value::String(text)) => blocks.push(prose_block(&harmless(text), "subject", paper)),
        Some(Value::Array(items)) => blocks.extend(items_block(items, "rows", paper)),
        // The subject that pipelines pass to a question.
        Some(Value::Object(subject))
            if subject.len() == 1 && subject.get("text").is_some_and(Value::is_string) =>
        {
            let text = subject["text"].as_str().unwrap_or_default();
            blocks.push(prose_block(&harmless(text), "subject", paper));
        }
        Some(other) => blocks.extend(items_block(std::slice::from_ref(other), "fields", paper)),
    }
    blocks.extend(items_block(&view.items, "items", paper));
    blocks
}

fn prose_block(text: &str, what: &str, paper: &Paper<'_>) -> Block {
    let lines = wrap(text.trim_end(), paper.quoted_room());
    Block::text_lines(lines.iter().map(|line| paper.quote_line(line)).collect(), 4, 4, what, paper)
}

fn items_block(items: &[Value], what: &str, paper: &Paper<'_>) -> Option<Block> {
    if items.is_empty() {
        return None;
    }
    let total = items.len();
    let Layout { head, items: shown, left_out } = match paper.rows {
        Some(rows) => items::brief_layout(items, rows, paper.quoted_room()),
        None => items::whole_layout(items, paper.quoted_room()),
    };
    let mut lines = Vec::new();
    if let Some(head) = &head {
        lines.push(paper.quote_line(&paper.paint(DIM, head)));
    }
    // The number of finished items after each line.
    let mut over = vec![0; lines.len()];
    for (index, item) in shown.iter().enumerate() {
        over.extend(std::iter::repeat_n(index, item.len().saturating_sub(1)));
        over.push(index + 1);
        lines.extend(item.iter().map(|line| paper.quote_line(line)));
    }
    let record = total == 1 && head.is_none();
    if left_out > 0 {
        let note = format!("… {} more: {}", count_noun(left_out as u64, "field"), paper.more);
        let at = usize::from(head.is_some());
        lines.insert(at, paper.paint(DIM, &indent_line(&cut(&note, paper.indented_room()))));
        over.insert(at, 0);
    }
    let above = lines.len() - shown.iter().map(Vec::len).sum::<usize>();
    let (more, what, all) = (paper.more.to_owned(), what.to_owned(), lines.len());
    let laid_out = shown.len();
    let missing = move |kept: usize| {
        if record {
            return format!("… {} more: {more}", counted_lines(all - kept));
        }
        let seen = if kept == 0 { 0 } else { over.get(kept - 1).copied().unwrap_or(laid_out) };
        format!("… {} more {what}: {more}", format_count((total - seen) as u64))
    };
    if laid_out < total {
        // Represents all items that were not laid out; the screen has no room for them anyway.
        lines.push(paper.paint(DIM, &indent_line(&cut(&missing(all), paper.indented_room()))));
    }
    let least = lines.len().min(above + 3);
    Some(Block { lines, least, missing: Box::new(missing), rank: 4 })
}

fn indent_line(line: &str) -> String {
    if line.is_empty() { String::new() } else { format!("{}{line}", " ".repeat(INDENT)) }
}

/// A label with its values, one below the other.
fn fact_lines(fact: &Fact, label: usize, paper: &Paper<'_>) -> Block {
    let name = cut(&one_line(&fact.label), label).into_owned();
    let room = paper.indented_room().saturating_sub(label + 2);
    let is_exact = fact.weight == Weight::Exact || fact.label == "starts";
    let mut lines = Vec::new();
    // The number of characters up to the end of each line.
    let mut over = Vec::new();
    let mut characters = 0;
    // Lists that are long and seldom read become one paragraph.
    let joined = (fact.weight == Weight::Minor).then(|| vec![fact.values.join(", ")]);
    for value in joined.as_ref().unwrap_or(&fact.values) {
        let value = if is_exact { exact(value) } else { harmless(value) };
        for line in wrap(&value, room) {
            characters += line.chars().count();
            over.push(characters);
            lines.push(line);
        }
    }
    let style = match fact.label.as_str() {
        "not held" | "confined" => Some(WARN),
        _ if fact.weight == Weight::Exact => Some(BOLD),
        "asked by" | "run" | "digest" | "until" => Some(DIM),
        _ => None,
    };
    let lines: Vec<String> = lines
        .iter()
        .enumerate()
        .map(|(index, line)| {
            let name = if index == 0 { name.as_str() } else { "" };
            // A quoted line cannot look like the next fact.
            let gap = if is_exact && index > 0 { paper.paint(DIM, BAR) } else { "  ".to_owned() };
            let line = style.map_or_else(|| line.clone(), |style| paper.paint(style, line));
            indent_line(&format!("{}{gap}{line}", paper.paint(LABEL, &pad(name, label, false))))
                .trim_end()
                .to_owned()
        })
        .collect();
    let (more, label_text) = (paper.more.to_owned(), one_line(&fact.label));
    let total = characters;
    let all = over.len();
    let whole_room = paper.indented_room();
    let missing = move |kept: usize| {
        let rest = total - if kept == 0 { 0 } else { over[kept - 1] };
        let note = match is_exact {
            true => format!("… {} more characters: {more}", format_count(rest as u64)),
            false => format!("… {} more of {label_text}: {more}", counted_lines(all - kept)),
        };
        // Below the values, if it fits there.
        match label + 2 + display_width(&note) <= whole_room {
            true => format!("{}{note}", " ".repeat(label + 2)),
            false => note,
        }
    };
    let (least, rank) = match fact.weight {
        Weight::Exact => (lines.len().min(5), 2),
        Weight::Main => (lines.len().min(2), 3),
        Weight::Minor => (lines.len().min(2), 5),
    };
    Block { least, lines, missing: Box::new(missing), rank }
}

/// The steps of a plan below `head`, if there are any. Every line has a bar. A second bar, below the first line, is
/// before all other lines of a text, which otherwise could look like a step.
pub fn plan_lines<'l>(head: &str, plan: impl Iterator<Item = &'l str>, paper: &Paper<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    for line in plan {
        // The dry run indents its lines about a step.
        let line = line.strip_prefix("  ").unwrap_or(line);
        let text = line.trim_start_matches(' ');
        let indent = " ".repeat(line.len() - text.len());
        let (is_further, text) = text.strip_prefix(BAR).map_or((false, text), |text| (true, text));
        let text = exact(text);
        let least = LEAST_COLUMNS / 2;
        let room = paper.quoted_room().saturating_sub(indent.len()).max(least + display_width(BAR));
        let mut parts = if is_further { Vec::new() } else { wrap(&text, room) };
        if parts.len() != 1 {
            parts = wrap(&text, room - display_width(BAR));
        }
        for (index, part) in parts.iter().enumerate() {
            let bar = if is_further || index > 0 { paper.paint(DIM, BAR) } else { String::new() };
            lines.push(paper.quote_line(&format!("{indent}{bar}{part}")));
        }
    }
    if !lines.is_empty() {
        lines.insert(0, paper.paint(DIM, &indent_line(&cut(head, paper.indented_room()))));
    }
    lines
}

/// The next steps of the plan.
fn upcoming_steps(view: &QuestionView, paper: &Paper<'_>) -> Vec<Block> {
    if view.then.is_empty() {
        return Vec::new();
    }
    let lines = plan_lines("then, as the plan stands:", view.then.iter().map(String::as_str), paper);
    let gap = Block { rank: PLAN, ..Block::fixed_lines(vec![String::new()]) };
    vec![gap, Block::text_lines(lines, 5, PLAN, "plan", paper)]
}

/// Distributes the lines of the screen: required lines first, then by rank.
fn fit_blocks(
    blocks: &mut Vec<Block>,
    first_fact: usize,
    view: &QuestionView,
    rows: usize,
    paper: &Paper<'_>,
) {
    let need = |blocks: &[Block]| blocks.iter().map(|block| block.least).sum::<usize>();
    let total: usize = blocks.iter().map(|block| block.lines.len()).sum();
    if total > rows && need(blocks) > rows {
        // The minor facts are dropped and named.
        let minor: Vec<usize> = (0..view.facts.len())
            .filter(|at| view.facts[*at].weight == Weight::Minor && first_fact + at < blocks.len())
            .collect();
        if !minor.is_empty() {
            let names: Vec<_> = minor.iter().map(|at| one_line(&view.facts[*at].label)).collect();
            let note = format!("… also {}: {}", names.join(", "), paper.more);
            for at in &minor {
                blocks[first_fact + at] = Block::fixed_lines(Vec::new());
            }
            let note = wrap(&note, paper.indented_room())
                .iter()
                .map(|line| paper.paint(DIM, &indent_line(line)))
                .collect();
            blocks.insert(first_fact + view.facts.len(), Block::fixed_lines(note));
        }
    }
    if need(blocks) > rows {
        // Then the plan is dropped; `lobster approvals show` and the full view have it.
        blocks.retain(|block| block.rank != PLAN);
    }
    // Last, long blocks keep one line and the count of the rest.
    let mut excess = need(blocks).saturating_sub(rows);
    for block in blocks.iter_mut().filter(|block| matches!(block.rank, 2 | 4)) {
        let spare = block.least.saturating_sub(2).min(excess);
        block.least -= spare;
        excess -= spare;
    }
    let mut lines: Vec<usize> = blocks.iter().map(|block| block.least).collect();
    let mut left = rows.saturating_sub(lines.iter().sum());
    let mut order: Vec<usize> = (0..blocks.len()).collect();
    order.sort_by_key(|at| blocks[*at].rank);
    for at in order {
        let more = (blocks[at].lines.len() - lines[at]).min(left);
        lines[at] += more;
        left -= more;
    }
    for (block, lines) in blocks.iter_mut().zip(lines) {
        let all = block.lines.len();
        if lines >= all {
            continue;
        }
        if lines == 0 {
            block.lines.clear();
            continue;
        }
        let kept = lines.saturating_sub(1);
        let note = (block.missing)(kept);
        block.lines.truncate(kept);
        block.lines.push(paper.paint(DIM, &indent_line(&cut(&note, paper.indented_room()))));
    }
}

/// The kind of the requested answer, in a word for lists.
pub fn kind_word(view: &QuestionView) -> &'static str {
    match view.kind {
        QuestionKind::Approval => "approval",
        QuestionKind::Policy => "policy",
        QuestionKind::Input => "input",
    }
}

/// The number of items in words, if there are any.
pub fn item_count(view: &QuestionView) -> Option<String> {
    (view.item_count() > 0).then(|| count_noun(view.item_count() as u64, "item"))
}

/// An answered value, short enough for one line.
pub fn answer_line(value: &Value, columns: usize) -> String {
    cut(&one_line(&json::compact(value)), columns).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain_paper(columns: usize, rows: usize) -> Paper<'static> {
        Paper { columns, rows: Some(rows), styled: false, more: "s shows all" }
    }

    fn sample_view(items: usize, command: Option<&str>) -> QuestionView {
        let fact = |label: &str, value: &str, weight| Fact {
            label: label.to_owned(),
            values: vec![value.to_owned()],
            weight,
        };
        let mut facts = Vec::new();
        if let Some(command) = command {
            facts.push(fact("command", command, Weight::Exact));
            facts.push(fact("network", "evil.example:443", Weight::Main));
            facts.push(fact("variables", "A, B", Weight::Minor));
        }
        facts.push(fact("digest", "0123456789ab", Weight::Main));
        QuestionView {
            kind: QuestionKind::Approval,
            prompt: "Go on?".to_owned(),
            preview: None,
            items: (0..items).map(|n| serde_json::json!({"n": n, "name": format!("item {n}")})).collect(),
            subject: None,
            facts,
            then: vec!["  2. apply".to_owned(), "     run: touch x".to_owned()],
        }
    }

    #[test]
    fn a_text_that_hides_a_step_after_the_question_does_not_show_its_commands() {
        for (steps, is_shown) in [(5, true), (70, false)] {
            let then = (0..steps).map(|n| format!("     run: touch {}{n}", "x".repeat(90))).collect();
            let view = QuestionView { then, ..sample_view(1, Some("true")) };
            let shown = clipped_text(&view, 8 << 10, "all");
            assert_eq!(shows_commands(&view, &shown), is_shown, "{shown}");
        }
    }

    #[test]
    fn only_the_first_line_of_a_text_is_in_the_column_of_a_step() {
        let text = format!("     run: {}4. c  [no-op]", "x ".repeat(30));
        let plan = ["  3. b  [shell]", text.as_str(), "     │ 4. c  [no-op]", "     │ ", "     │   end"];
        for columns in [20, 40, 80] {
            let paper = plain_paper(columns, 24);
            let lines = plan_lines("then:", plan.into_iter(), &paper);
            let starts = |start: &str| lines.iter().filter(|line| line.starts_with(start)).count();
            assert_eq!((lines[0].as_str(), starts("  │ ")), ("  then:", lines.len() - 1), "{lines:#?}");
            // The step, its field, and all other lines with a second bar.
            assert_eq!((starts("  │ 3. b"), starts("  │    run: x")), (1, 1), "{lines:#?}");
            assert_eq!(starts("  │    │"), lines.len() - 3, "{lines:#?}");
            assert!(lines.iter().all(|line| display_width(line) <= columns), "{lines:#?}");
        }
        assert_eq!(plan_lines("then:", [].into_iter(), &plain_paper(80, 24)), [""; 0]);
    }

    #[test]
    fn whatever_is_asked_fits_the_screen_and_says_what_is_missing() {
        for columns in [20, 40, 80, 120] {
            for rows in [12, 20, 24, 40] {
                if columns * rows < 400 {
                    continue;
                }
                for items in [0, 1, 3, 3000] {
                    for command in [None, Some("x"), Some("y ".repeat(2500).as_str())] {
                        let view = sample_view(items, command);
                        let lines = screen_lines(&view, &plain_paper(columns, rows));
                        let shown = lines.join("\n");
                        assert!(
                            lines.len() <= rows,
                            "{columns}x{rows}, {items}: {} lines\n{shown}",
                            lines.len()
                        );
                        assert!(
                            lines.iter().all(|line| display_width(line) <= columns),
                            "{columns}:\n{shown}"
                        );
                        assert!(shown.contains("digest"), "{shown}");
                        if columns < 40 {
                            // The notes exist and are cut themselves.
                            continue;
                        }
                        let cut = shown.contains("more items: s");
                        assert!(cut == (items == 3000) || (rows < 20 && items == 3), "{shown}");
                        let long = command.is_some_and(|command| command.len() > 4 * columns * rows);
                        assert!(!long || shown.contains("more characters"), "{shown}");
                    }
                }
            }
        }
        let all = screen_lines(&sample_view(3000, None), &plain_paper(40, 24).without_limit());
        assert!(
            all.iter().any(|line| line.contains("item 2999"))
                && all.iter().any(|line| line.contains("touch x"))
        );
    }

    #[test]
    fn a_text_for_another_screen_is_bounded() {
        let shown = clipped_text(
            &sample_view(3000, Some(&"y ".repeat(60_000))),
            4000,
            "`lobster approvals show 1` shows all",
        );
        assert!(
            shown.len() <= 4100 && shown.contains("more characters: `lobster approvals show 1` shows all"),
            "{shown}"
        );
        assert!(shown.contains("more items"), "{shown}");
    }
}
