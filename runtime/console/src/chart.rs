//! Charts as SVG: working and waiting times of a run's steps, and the graph of a workflow's steps.

use lobster_runtime::graph::Graph;
use lobster_runtime::replay::timeline::{Line, TimelineSpan};
use maud::{Markup, html};

use crate::words::{clip_line, format_ms, tone_class, url_encode};

/// Most rows of a timeline; the table shows the rest.
const ROWS: usize = 60;

/// Longest idle time that is drawn in proportion, in milliseconds.
const SHORT: i64 = 2_000;

/// The width of a folded time, in percent of the whole.
const FOLD: f64 = 5.0;

/// Maps times to positions: working time in proportion, idle time folded.
pub(crate) struct Axis {
    /// Times with their positions in percent. Between two of them, the position grows evenly.
    stops: Vec<(i64, f64)>,
    /// The folded times: start, end, and true if they were waits for a person.
    folds: Vec<(i64, i64, bool)>,
}

impl Axis {
    pub(crate) fn new(spans: &[TimelineSpan], now: i64) -> Option<Self> {
        let end = |span: &TimelineSpan| span.ended.unwrap_or(now).max(span.begun);
        let first = spans.iter().map(|span| span.begun).min()?;
        let last = spans.iter().map(end).max()?;
        let work = merge_spans(spans.iter().filter(|span| !span.is_wait).map(|span| (span.begun, end(span))));
        let worked: i64 = work.iter().map(|(from, to)| to - from).sum();
        // If nothing worked, only the waiting time is drawn.
        let least = if work.is_empty() { i64::MAX } else { SHORT.max(worked / 2) };
        let mut folds = Vec::new();
        let mut at = first;
        for (from, to) in work.iter().copied().chain([(last, last)]) {
            if from - at > least {
                let is_wait = spans.iter().any(|span| span.is_wait && span.begun < from && end(span) > at);
                folds.push((at, from, is_wait));
            }
            at = to.max(at);
        }
        let folded: i64 = folds.iter().map(|(from, to, _)| to - from).sum();
        let shown = (last - first - folded).max(1) as f64;
        let fold = if folds.len() > 10 { 50.0 / folds.len() as f64 } else { FOLD };
        let room = 100.0 - fold * folds.len() as f64;
        let (mut stops, mut place, mut time) = (vec![(first, 0.0)], 0.0, first);
        for (from, to, _) in &folds {
            place += room * (from - time) as f64 / shown;
            stops.push((*from, place));
            place += fold;
            stops.push((*to, place));
            time = *to;
        }
        stops.push((last.max(first + 1), 100.0));
        Some(Self { stops, folds })
    }

    /// The position of a time, in percent.
    pub(crate) fn percent_at(&self, at: i64) -> f64 {
        for pair in self.stops.windows(2) {
            let [(from, left), (to, right)] = pair else { continue };
            if at <= *to {
                let part = (at - from).max(0) as f64 / (to - from).max(1) as f64;
                return left + (right - left) * part;
            }
        }
        100.0
    }

    /// The total of the times that are drawn in proportion, in milliseconds.
    fn unfolded_ms(&self) -> i64 {
        let whole =
            self.stops.last().map_or(0, |last| last.0) - self.stops.first().map_or(0, |first| first.0);
        whole - self.folds.iter().map(|(from, to, _)| to - from).sum::<i64>()
    }
}

/// Merges times that overlap or touch.
fn merge_spans(spans: impl Iterator<Item = (i64, i64)>) -> Vec<(i64, i64)> {
    let mut all: Vec<_> = spans.collect();
    all.sort_unstable();
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (from, to) in all {
        match joined.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(to),
            _ => joined.push((from, to)),
        }
    }
    joined
}

fn format_percent(place: f64) -> String {
    format!("{place:.2}%")
}

/// The timeline of a run's steps.
pub(crate) fn draw_timeline(run: &str, lines: &[Line], now: i64) -> Option<Markup> {
    let spans: Vec<TimelineSpan> = lines.iter().flat_map(|line| line.spans.iter().copied()).collect();
    let axis = Axis::new(&spans, now)?;
    let drawn: Vec<&Line> = lines.iter().filter(|line| !line.spans.is_empty()).collect();
    let left_out = drawn.len().saturating_sub(ROWS);
    Some(html! {
        div class="timeline" {
            div class="tl-row" {
                span {}
                (draw_scale(&axis))
                span {}
            }
            @for line in drawn.iter().take(ROWS) {
                (draw_row(run, line, &axis, now))
            }
        }
        @if left_out > 0 { p class="muted small" { "… and " (left_out) " more, in the table below." } }
        p class="legend" {
            span class="is-ok" { i {} "worked" }
            span class="is-bad" { i {} "failed" }
            span class="is-run" { i {} "running" }
            span { i class="person" {} "waited for a person" }
            @if !axis.folds.is_empty() { span { "⋯ time without work, folded" } }
        }
    })
}

fn draw_scale(axis: &Axis) -> Markup {
    // Labels of folds have their own line below.
    let height = if axis.folds.is_empty() { 20 } else { 32 };
    html! {
        svg class="chart" width="100%" height=(height) role="img" aria-label=(format!("Work took {}", format_ms(axis.unfolded_ms()))) {
            line x1="0%" x2="100%" y1=(height - 2) y2=(height - 2) class="grid" {}
            text x="0%" y="12" { "0" }
            @for (from, to, is_wait) in &axis.folds {
                @let middle = f64::midpoint(axis.percent_at(*from), axis.percent_at(*to));
                text x=(format_percent(middle)) y="26" text-anchor="middle" {
                    "⋯"
                    title { (format_ms(to - from)) @if *is_wait { " waiting for a person" } @else { " without work" } }
                }
            }
            text x="100%" y="12" text-anchor="end" { (format_ms(axis.unfolded_ms())) " of work" }
        }
    }
}

fn draw_row(run: &str, line: &Line, axis: &Axis, now: i64) -> Markup {
    let total = |is_wait: bool| -> i64 {
        let spans = line.spans.iter().filter(|span| span.is_wait == is_wait);
        spans.map(|span| span.ended.unwrap_or(now) - span.begun).sum()
    };
    let (worked, waited) = (total(false), total(true));
    let is_waiting_only = worked == 0 && waited > 0;
    let href = format!("/runs/{run}/step?path={}", url_encode(&line.path));
    let last = line.spans.len() - 1;
    html! {
        a class="tl-row" href=(href) data-key=(line.path) {
            span class="clip" { (clip_line(&line.path, 60)) }
            svg class="chart" width="100%" height="16" aria-hidden="true" {
                line x1="0%" x2="100%" y1="8" y2="8" class="grid" {}
                @for (from, to, _) in &axis.folds {
                    @let (left, right) = (axis.percent_at(*from), axis.percent_at(*to));
                    rect x=(format_percent(left)) width=(format_percent(right - left)) y="0" height="16" class="gap" {}
                }
                @for (at, span) in line.spans.iter().enumerate() {
                    @let left = axis.percent_at(span.begun);
                    @let wide = (axis.percent_at(span.ended.unwrap_or(now)) - left).max(0.4);
                    @let class = match (span.is_wait, span.ended, at == last) {
                        (true, ..) => "person".to_owned(),
                        (false, None, _) => "work".to_owned(),
                        (false, Some(_), true) => format!("work {}", tone_class(&line.state)),
                        (false, Some(_), false) => "work is-bad".to_owned(),
                    };
                    rect class=(class) x=(format_percent(left.min(99.6))) width=(format_percent(wide)) y="2" height="12" rx="2" {}
                }
            }
            span class="num small muted" {
                @if is_waiting_only { (format_ms(waited)) " wait" } @else { (format_ms(worked)) }
            }
        }
    }
}

// ---- figures

/// A share of a whole as a thin bar.
pub(crate) fn draw_meter(part: u64, whole: u64) -> Markup {
    let wide = 100.0 * part as f64 / whole.max(part).max(1) as f64;
    html! { svg class="chart meter" width="100%" height="3" aria-hidden="true" { rect class="work" width=(format_percent(wide)) height="3" {} } }
}

/// One bar of a chart.
pub(crate) struct Bar {
    pub(crate) href: String,
    /// The meaning of the bar, in words.
    pub(crate) says: String,
    pub(crate) size: u64,
    pub(crate) tone: &'static str,
}

/// Least number of positions for bars; unused ones stay empty.
const FEW: usize = 24;

/// Figures of consecutive runs, oldest on the left.
pub(crate) fn draw_bars(bars: &[Bar], about: &str) -> Markup {
    let most = bars.iter().map(|bar| bar.size).max().unwrap_or(0).max(1);
    let wide = 100.0 / bars.len().max(FEW) as f64;
    let first = FEW.saturating_sub(bars.len());
    html! {
        svg class="chart" width="100%" height="72" role="group" aria-label=(about) {
            line class="grid" x1="0" x2="100%" y1="70" y2="70" {}
            @for (at, bar) in bars.iter().enumerate() {
                @let high = 4.0 + 62.0 * bar.size as f64 / most as f64;
                a href=(bar.href) aria-label=(bar.says) {
                    rect class=(format!("work {}", bar.tone)) x=(format_percent(wide * (first + at) as f64 + wide * 0.15)) width=(format_percent(wide * 0.7)) y=(format!("{:.1}", 70.0 - high)) height=(format!("{high:.1}")) rx="2" {
                        title { (bar.says) }
                    }
                }
            }
        }
    }
}

// ---- the steps of a workflow

const NODE: (usize, usize) = (220, 46);
const GAP: (usize, usize) = (28, 34);

/// The steps of a workflow from top to bottom. `href` returns the link of a step, and `state` its state.
pub(crate) fn draw_graph(
    graph: &Graph,
    href: &dyn Fn(&str) -> Option<String>,
    state: &dyn Fn(&str) -> Option<String>,
) -> Markup {
    let layers = assign_layers(graph);
    let place = |node: usize| {
        let row = layers.iter().position(|layer| layer.contains(&node)).unwrap_or(0);
        let column = layers[row].iter().position(|other| *other == node).unwrap_or(0);
        (column, row)
    };
    let widest = layers.iter().map(Vec::len).max().unwrap_or(1);
    let lane = 40;
    let width = widest * NODE.0 + (widest - 1) * GAP.0 + 2 * lane;
    let height = layers.len() * (NODE.1 + GAP.1);
    let left = |(column, row): (usize, usize)| {
        let wide = layers[row].len() * NODE.0 + (layers[row].len() - 1) * GAP.0;
        (width - wide) / 2 + column * (NODE.0 + GAP.0)
    };
    let top = |row: usize| row * (NODE.1 + GAP.1) + 4;
    let mut drawn: Vec<(usize, usize, bool)> = Vec::new();
    for edge in &graph.edges {
        let is_data = edge.label != "next" && edge.label != "needs";
        match drawn.iter_mut().find(|(from, to, _)| (*from, *to) == (edge.from, edge.to)) {
            Some(known) => known.2 &= is_data,
            None if edge.from != edge.to => drawn.push((edge.from, edge.to, is_data)),
            None => {}
        }
    }
    html! {
        div class="scroll" tabindex="0" {
            svg class="chart graph" width=(width) height=(height) viewBox=(format!("0 0 {width} {height}")) role="group" aria-label="Steps" {
                @for (from, to, is_data) in &drawn {
                    @let (from, to) = (place(*from), place(*to));
                    @let (x1, y1) = (left(from) + NODE.0 / 2, top(from.1) + NODE.1);
                    @let (x2, y2) = (left(to) + NODE.0 / 2, top(to.1));
                    @let path = if to.1 == from.1 + 1 {
                        format!("M{x1} {y1}C{x1} {} {x2} {} {x2} {}", y1 + GAP.1 / 2, y2 - GAP.1 / 2, y2 - 5)
                    } else {
                        // Drawn to the right of the steps in between.
                        let side = left(from).max(left(to)) + NODE.0;
                        let (out, y1, y2) = (side + 14 + 5 * (to.1 % 4), top(from.1) + NODE.1 / 2, top(to.1) + NODE.1 / 2);
                        format!("M{} {y1}H{}Q{out} {y1} {out} {}V{}Q{out} {y2} {} {y2}H{}", left(from) + NODE.0, out - 8, y1 + 8, y2 - 8, out - 8, left(to) + NODE.0 + 6)
                    };
                    path class=(if *is_data { "edge data" } else { "edge" }) d=(path) {}
                    @if to.1 == from.1 + 1 {
                        path class="tip" d=(format!("M{} {}l4 -7h-8z", x2, y2)) {}
                    } @else {
                        path class="tip" d=(format!("M{} {}l7 -4v8z", left(to) + NODE.0, top(to.1) + NODE.1 / 2)) {}
                    }
                }
                @for (index, node) in graph.nodes.iter().enumerate() {
                    @let at = place(index);
                    @let (x, y) = (left(at), top(at.1));
                    @let tone = state(&node.id).map(|state| tone_class(&state)).unwrap_or("");
                    @let inner = html! {
                        rect x=(x) y=(y) width=(NODE.0) height=(NODE.1) rx=(if node.gate { 22 } else { 7 }) {}
                        text class="label" x=(x + 14) y=(y + 19) { (clip_line(&node.id, 26)) }
                        text x=(x + 14) y=(y + 36) { (clip_line(node.detail.as_deref().unwrap_or(node.kind), 28)) }
                        title { (node.id) @if let Some(detail) = &node.detail { "\n" (detail) } @if let Some(state) = state(&node.id) { "\n" (state) } }
                    };
                    g class=(format!("node {tone}")) {
                        @match href(&node.id) {
                            Some(href) => { a href=(href) { (inner) } }
                            None => { (inner) }
                        }
                    }
                }
            }
        }
    }
}

/// Assigns steps to rows: each step is below all steps that it needs.
fn assign_layers(graph: &Graph) -> Vec<Vec<usize>> {
    let mut row = vec![0_usize; graph.nodes.len()];
    // The edges of a file lead forward, except for a step that reads itself.
    for _ in 0..graph.nodes.len().min(200) {
        let mut is_done = true;
        for edge in graph.edges.iter().filter(|edge| edge.from < edge.to) {
            if row[edge.to] < row[edge.from] + 1 {
                row[edge.to] = row[edge.from] + 1;
                is_done = false;
            }
        }
        if is_done {
            break;
        }
    }
    let mut layers = vec![Vec::new(); row.iter().max().map_or(0, |last| last + 1)];
    for (node, row) in row.into_iter().enumerate() {
        layers[row].push(node);
    }
    layers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed_span(begun: i64, ended: i64, is_wait: bool) -> TimelineSpan {
        TimelineSpan { begun, ended: Some(ended), is_wait }
    }

    #[test]
    fn days_of_waiting_do_not_squash_seconds_of_work() {
        const DAY: i64 = 86_400_000;
        let spans = [
            timed_span(0, 4_000, false),
            timed_span(4_000, 2 * DAY, true),
            timed_span(2 * DAY, 2 * DAY + 6_000, false),
        ];
        let axis = Axis::new(&spans, 3 * DAY).unwrap();
        assert_eq!(axis.folds, [(4_000, 2 * DAY, true)]);
        assert_eq!(axis.unfolded_ms(), 10_000);
        assert!(
            (axis.percent_at(4_000) - 38.0).abs() < 0.01 && (axis.percent_at(2 * DAY) - 43.0).abs() < 0.01
        );
        assert!((axis.percent_at(2 * DAY + 6_000) - 100.0).abs() < 0.01);
    }

    #[test]
    fn places_grow_with_time_and_stay_in_the_picture() {
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from((seed >> 33) % below).unwrap()
        };
        for _ in 0..500 {
            let spans: Vec<TimelineSpan> = (0..1 + next(8))
                .map(|_| {
                    let begun = next(1_000_000);
                    let ended = (next(4) > 0).then(|| begun + next(500_000));
                    TimelineSpan { begun, ended, is_wait: next(3) == 0 }
                })
                .collect();
            let axis = Axis::new(&spans, 2_000_000).unwrap();
            let mut before = 0.0;
            for at in (0..2_100_000).step_by(9_973) {
                let place = axis.percent_at(at);
                assert!(
                    place.is_finite() && (0.0..=100.001).contains(&place) && place + 1e-9 >= before,
                    "{spans:?}"
                );
                before = place;
            }
        }
    }
}
