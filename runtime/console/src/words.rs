//! Small parts of pages: times, states, sizes, and text from outside.

use lobster_runtime::figures;
use lobster_runtime::store::iso;
use lobster_runtime::text::{Count, clip};
use maud::{Markup, html};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// A relative time, with the exact time in its tooltip.
pub(crate) fn relative_time(at: i64, now: i64) -> Markup {
    let text = if at > now { figures::time_until(now, at) } else { figures::time_since(now, at) };
    html! { time datetime=(iso(at)) title=(iso(at)) { (text) } }
}

/// A relative time in a list, for which the script adds the tooltip.
pub(crate) fn time_in_list(at: i64, now: i64) -> Markup {
    // The exact time, without fractions of a second.
    let exact = iso(at);
    let exact = exact.get(..19).map_or_else(|| exact.clone(), |seconds| format!("{seconds}Z"));
    html! { time datetime=(exact) { (figures::time_since(now, at)) } }
}

/// A duration in milliseconds, as text.
pub(crate) fn format_ms(ms: i64) -> String {
    figures::format_duration(u64::try_from(ms.max(0)).unwrap_or(0).saturating_mul(1000))
}

/// A duration that is still growing.
pub(crate) fn running_time(at: i64, now: i64) -> Markup {
    html! { span data-since=(at) class="fig" { (format_ms(now - at)) } }
}

/// The class of a state: good, bad, waiting, running, idle, or reused.
pub(crate) fn tone_class(state: &str) -> &'static str {
    let word = state.split([' ', '_']).next().unwrap_or_default();
    match word {
        "ok" | "approved" | "answered" | "allow" | "fired" | "live" | "whole" => "is-ok",
        "failed" | "timed" | "refused" | "rejected" | "deny" | "missed" | "damaged" | "error" => "is-bad",
        "waiting" | "interrupted" | "ask" | "skipped!" | "caught" | "expired" | "open" | "warning" => {
            "is-wait"
        }
        "running" | "started" | "cancelling" => "is-run",
        "cached" | "edited" | "backfilled" | "reused" => "is-reuse",
        _ => "is-idle",
    }
}

/// A state as a word with a colour and a sign, so that the colour is not needed to understand it. The style draws the
/// sign.
pub(crate) fn state_label(text: &str, is_badge: bool) -> Markup {
    let tone = tone_class(text);
    let class = if is_badge { format!("state badge {tone}") } else { format!("state {tone}") };
    html! { span class=(class) { (text.replace('_', " ")) } }
}

/// The beginning of a long text from outside.
pub(crate) fn clip_line(text: &str, max: usize) -> String {
    let shown = lobster_runtime::visible::one_line(text);
    clip(&shown, max, Count::Chars).into_owned()
}

/// Encodes a word for an address.
pub(crate) fn url_encode(text: &str) -> String {
    const REPLACED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, REPLACED).to_string()
}

/// The placeholder of an empty part, with the next thing to do.
pub(crate) fn empty_placeholder(title: &str, text: &str, command: Option<&str>) -> Markup {
    html! {
        div class="empty" {
            strong { (title) }
            p { (text) }
            @if let Some(command) = command { pre { (command) } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_addresses_have_no_meaning_there() {
        assert_eq!(url_encode("loop[3]/a&b=\u{fc}"), "loop%5B3%5D%2Fa%26b%3D%C3%BC");
        assert_eq!((tone_class("timed_out"), tone_class("ok (failed twice before)")), ("is-bad", "is-ok"));
    }
}
