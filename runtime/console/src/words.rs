//! Small parts of pages: times, states, sizes, and the text of others.

use lobster_runtime::figures;
use lobster_runtime::store::iso;
use lobster_runtime::text::{Count, clip};
use maud::{Markup, html};

/// A time, relative, with the exact one at hand.
pub(crate) fn time(at: i64, now: i64) -> Markup {
    let text = if at > now { figures::after(now, at) } else { figures::before(now, at) };
    html! { time datetime=(iso(at)) title=(iso(at)) { (text) } }
}

/// A time in a list, where the script puts the exact one at hand.
pub(crate) fn time_in_list(at: i64, now: i64) -> Markup {
    // To the second.
    let exact = iso(at);
    let exact = exact.get(..19).map_or_else(|| exact.clone(), |seconds| format!("{seconds}Z"));
    html! { time datetime=(exact) { (figures::before(now, at)) } }
}

/// How long something took, in milliseconds.
pub(crate) fn span(ms: i64) -> String {
    figures::duration(u64::try_from(ms.max(0)).unwrap_or(0).saturating_mul(1000))
}

/// A duration that goes on.
pub(crate) fn since(at: i64, now: i64) -> Markup {
    html! { span data-since=(at) class="fig" { (span(now - at)) } }
}

/// What a state is to a reader: good, bad, waiting, at work, idle, or taken from elsewhere.
pub(crate) fn tone(state: &str) -> &'static str {
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

/// A state: a word, a colour, and a sign, so that nobody has to tell colours apart. The style draws the sign.
pub(crate) fn state(text: &str, is_badge: bool) -> Markup {
    let tone = tone(text);
    let class = if is_badge { format!("state badge {tone}") } else { format!("state {tone}") };
    html! { span class=(class) { (text.replace('_', " ")) } }
}

/// The beginning of a long text of others.
pub(crate) fn short(text: &str, max: usize) -> String {
    let shown = lobster_runtime::visible::one_line(text);
    clip(&shown, max, Count::Chars).into_owned()
}

/// A word in an address.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

/// What stands where there is nothing, with the next thing to do.
pub(crate) fn empty(title: &str, text: &str, command: Option<&str>) -> Markup {
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
        assert_eq!(encoded("loop[3]/a&b=\u{fc}"), "loop%5B3%5D%2Fa%26b%3D%C3%BC");
        assert_eq!((tone("timed_out"), tone("ok (failed twice before)")), ("is-bad", "is-ok"));
    }
}
