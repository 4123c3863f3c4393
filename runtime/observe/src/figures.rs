//! Short texts for times, sizes, numbers and statements.

use serde_json::Value;

/// `2 d 3 h`, `1 h 5 min`, `1 min 20 s`, `1.20 s`, `340.0 ms`, `12 µs`.
#[must_use]
pub fn format_duration(microseconds: u64) -> String {
    let minutes = microseconds / 60_000_000;
    match microseconds {
        0..1_000 => format!("{microseconds} µs"),
        1_000..1_000_000 => format!("{:.1} ms", microseconds as f64 / 1e3),
        1_000_000..60_000_000 => format!("{:.2} s", microseconds as f64 / 1e6),
        _ if minutes < 60 => format!("{minutes} min {} s", microseconds % 60_000_000 / 1_000_000),
        _ if minutes < 24 * 60 => format!("{} h {} min", minutes / 60, minutes % 60),
        _ => format!("{} d {} h", minutes / (24 * 60), minutes / 60 % 24),
    }
}

/// A time in the future, in milliseconds since 1970, relative to now: `in 5 min`, `in 3 h`, `in 2 days`.
#[must_use]
pub fn time_until(now: i64, at: i64) -> String {
    let seconds = (at - now).max(0) / 1000;
    match (seconds, seconds / 60, seconds / 3600, seconds / 86_400) {
        (0..60, ..) => format!("in {seconds} s"),
        (_, minutes @ ..60, ..) => format!("in {minutes} min"),
        (_, _, hours @ ..48, _) => format!("in {hours} h"),
        (.., days) => format!("in {days} days"),
    }
}

/// A time in the past, in milliseconds since 1970, relative to now: `just now`, `5 min ago`, `3 h ago`, `yesterday`,
/// `4 days ago`; after two weeks, the date.
#[must_use]
pub fn time_since(now: i64, at: i64) -> String {
    let seconds = (now - at) / 1000;
    match (seconds, seconds / 60, seconds / 3600, seconds / 86_400) {
        (..0, ..) => lobster_store::iso(at)[..10].to_owned(),
        (0..5, ..) => "just now".to_owned(),
        (0..60, ..) => format!("{seconds} s ago"),
        (_, minutes @ ..60, ..) => format!("{minutes} min ago"),
        (_, _, hours @ ..24, _) => format!("{hours} h ago"),
        (_, _, _, 1) => "yesterday".to_owned(),
        (_, _, _, days @ ..14) => format!("{days} days ago"),
        _ => lobster_store::iso(at)[..10].to_owned(),
    }
}

/// A duration in fewer digits, for running work: `4 ms`, `340 ms`, `1.2 s`, `34 s`.
#[must_use]
pub fn rough_duration(microseconds: u64) -> String {
    match microseconds {
        0..1_000_000 => format!("{} ms", microseconds / 1_000),
        1_000_000..10_000_000 => format!("{:.1} s", microseconds as f64 / 1e6),
        10_000_000..60_000_000 => format!("{} s", microseconds / 1_000_000),
        _ => format_duration(microseconds),
    }
}

/// `12 B`, `3.4 KiB`, `1.0 GiB`.
#[must_use]
pub fn format_bytes(count: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `12,345,678`.
#[must_use]
pub fn format_count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 run`, `1,200 runs`.
#[must_use]
pub fn count_noun(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", format_count(number), if number == 1 { "" } else { "s" })
}

/// The confinement of a step, and the number of missing and denied parts, from its statement: `jail, 1 missing, 2
/// denied`.
#[must_use]
pub fn summarize_enforcement(statement: &Value) -> Option<String> {
    let mut text = match statement.get("asked").and_then(Value::as_str)? {
        "component" if statement["pure"] == true => "wasm (pure)".to_owned(),
        "component" => "wasm".to_owned(),
        "none" => "unconfined".to_owned(),
        level => level.to_owned(),
    };
    for part in ["missing", "denied"] {
        let count = statement[part].as_array().map_or(0, Vec::len);
        if count > 0 {
            text.push_str(&format!(", {count} {part}"));
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [0, 999, 1_500, 2_340_000, 61_000_000].map(format_duration),
            ["0 µs", "999 µs", "1.5 ms", "2.34 s", "1 min 1 s"]
        );
        const HOUR: u64 = 3_600_000_000;
        assert_eq!(
            [HOUR, HOUR - 1, 25 * HOUR - 1, 48 * HOUR].map(format_duration),
            ["1 h 0 min", "59 min 59 s", "1 d 0 h", "2 d 0 h"]
        );
        const MINUTE: i64 = 60_000;
        assert_eq!(
            [0, 30_000, 5 * MINUTE, 180 * MINUTE, 1500 * MINUTE, 4 * 1440 * MINUTE]
                .map(|age| time_since(age, 0)),
            ["just now", "30 s ago", "5 min ago", "3 h ago", "yesterday", "4 days ago"]
        );
        assert_eq!(
            [time_since(20 * 1440 * MINUTE, 0), time_since(0, MINUTE)],
            ["1970-01-01", "1970-01-01"],
            "a clock that was set back tells no lies"
        );
        assert_eq!(
            [0, 59_999, 5 * MINUTE, 47 * 60 * MINUTE, 72 * 60 * MINUTE].map(|at| time_until(0, at)),
            ["in 0 s", "in 59 s", "in 5 min", "in 47 h", "in 3 days"]
        );
        assert_eq!(
            [4_000, 340_000, 1_240_000, 34_900_000].map(rough_duration),
            ["4 ms", "340 ms", "1.2 s", "34 s"]
        );
        assert_eq!([0, 1023, 1024, 5 << 20].map(format_bytes), ["0 B", "1023 B", "1.0 KiB", "5.0 MiB"]);
        assert_eq!([0, 999, 1000, 12_345_678].map(format_count), ["0", "999", "1,000", "12,345,678"]);
        assert_eq!([0, 1, 1000].map(|n| count_noun(n, "run")), ["0 runs", "1 run", "1,000 runs"]);
    }
}
