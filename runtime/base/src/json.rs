//! JSON text as lobster parses and prints it.
//!
//! Values are [`serde_json::Value`] with fields in their original order. The text differs from that of plain
//! `serde_json`: numbers are printed as in ECMAScript (`1.0` → `1`, `1e21` → `1e+21`, `-0` → `0`), except that
//! integers above 2^53 keep all their digits. A number too large for a double is read as `null`, as clients of the
//! incumbent expect (ECMA-262 `Number::toString` and `JSON.stringify`).

pub mod complaint;
pub mod exact;
pub mod raw;
pub mod scan_thread;
pub mod scanner;
pub mod stream;

use std::io::{self, Write};
use std::ops::Range;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};
pub use serde_json::{Map, Number, Value, json};

/// Deepest nesting that is accepted. Parsing, printing and dropping a value all recurse, and the threads that do so
/// have stacks of a matching size.
pub const MAX_DEPTH: usize = 4096;

/// Reason why lobster rejects a text as JSON.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    #[error("{0}")]
    Syntax(#[from] serde_json::Error),
    #[error("JSON is nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
}

/// Parses one JSON value that fills the whole text.
///
/// # Errors
/// If the text is not JSON or is nested too deeply.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    parse_as(text)
}

/// Like [`parse`], into any type.
///
/// # Errors
/// As [`parse`], or if the value does not match the type.
pub fn parse_as<T: DeserializeOwned>(text: &str) -> Result<T, JsonError> {
    // Only text that begins like a list or an object can be nested; other text is not JSON, however many brackets it
    // has.
    if text.trim_start().starts_with(['[', '{']) {
        check_depth(text.as_bytes())?;
    }
    match parse_unlimited(text) {
        Ok(value) => Ok(value),
        Err(error) => match mend_text(text) {
            Some(mended) => Ok(parse_unlimited(&mended)?),
            None => Err(error.into()),
        },
    }
}

/// Deepest nesting that [`parse_message`] accepts: the limit of `serde_json`, which steps written in Rust have as well.
pub const MAX_MESSAGE_DEPTH: usize = 127;

/// Parses a protocol message, which has few levels, on a thread with a small stack. Bytes that are not UTF-8 are read
/// as U+FFFD.
///
/// # Errors
/// If the text is not JSON, is nested more than [`MAX_MESSAGE_DEPTH`] levels deep, or does not match the type.
pub fn parse_message<T: DeserializeOwned>(text: &[u8]) -> serde_json::Result<T> {
    serde_json::from_slice(text).or_else(|error| match mend_text(&String::from_utf8_lossy(text)) {
        Some(mended) => serde_json::from_str(&mended),
        None => Err(error),
    })
}

fn parse_unlimited<T: DeserializeOwned>(text: &str) -> serde_json::Result<T> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    deserializer.disable_recursion_limit();
    let value = T::deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

fn check_depth(text: &[u8]) -> Result<(), JsonError> {
    if is_nested_deeper(text, MAX_DEPTH) { Err(JsonError::TooDeep) } else { Ok(()) }
}

/// True if the arrays and objects of a JSON text are nested in more levels than `limit`. Counts brackets outside
/// strings, which is cheap compared with parsing.
#[must_use]
pub fn is_nested_deeper(text: &[u8], limit: usize) -> bool {
    if text.len() <= limit {
        return false; // there are not so many brackets in it
    }
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for byte in text {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// True if a text is a JSON number too large for a double, which `serde_json` rejects.
#[must_use]
pub fn is_too_large_a_number(text: &str) -> bool {
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let rest = text.strip_prefix('-').unwrap_or(text);
    let whole = digits(rest);
    if whole == 0 || whole > 1 && rest.starts_with('0') {
        return false;
    }
    let mut rest = &rest[whole..];
    if let Some(fraction) = rest.strip_prefix('.') {
        match digits(fraction) {
            0 => return false,
            some => rest = &fraction[some..],
        }
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        match digits(exponent) {
            0 => return false,
            some => rest = &exponent[some..],
        }
    }
    rest.is_empty() && text.parse::<f64>().is_ok_and(f64::is_infinite)
}

/// The text in a form that `serde_json` accepts, if `JSON.parse` accepts the original: `null` in place of each number
/// too large for a double, and U+FFFD in place of half a surrogate pair.
fn mend_text(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut found = false;
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c == '"' || c == '-' || c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let end = if from.starts_with('"') {
            let mut escaped = false;
            from.char_indices()
                .skip(1)
                .find(|(_, c)| {
                    let closes = *c == '"' && !escaped;
                    escaped = *c == '\\' && !escaped;
                    closes
                })
                .map_or(from.len(), |(i, _)| i + 1)
        } else {
            from.find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E')).unwrap_or(from.len())
        };
        let (token, after) = from.split_at(end);
        let mut copied = 0;
        for range in half_pairs(token) {
            found = true;
            out.push_str(&token[copied..range.start]);
            out.push_str("\\ufffd");
            copied = range.end;
        }
        let overflows = is_too_large_a_number(token);
        found |= overflows;
        out.push_str(if overflows { "null" } else { &token[copied..] });
        rest = after;
    }
    out.push_str(rest);
    found.then_some(out)
}

/// True if a JSON text contains an escape of half a surrogate pair, which is read as U+FFFD.
#[must_use]
pub fn has_half_pair(text: &str) -> bool {
    half_pairs(text).next().is_some()
}

/// The escapes of half a surrogate pair in a text: `\ud83d` without the `\ude00` after it. Escapes occur only in
/// strings, so a whole JSON text may be passed.
fn half_pairs(text: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let at = from + memchr::memchr(b'\\', bytes.get(from..)?)?;
            from = at + 2;
            match surrogate_at(bytes, at) {
                Some(0xd800..0xdc00) if matches!(surrogate_at(bytes, at + 6), Some(0xdc00..)) => {
                    from = at + 12
                }
                Some(_) => {
                    from = at + 6;
                    return Some(at..from);
                }
                None => {}
            }
        }
    })
}

/// The half of a surrogate pair escaped at this position.
fn surrogate_at(text: &[u8], at: usize) -> Option<u16> {
    let [b'\\', b'u', digits @ ..] = text.get(at..at + 6)? else { return None };
    let digits =
        str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u16::from_str_radix(digits, 16).ok().filter(|unit| matches!(unit, 0xd800..=0xdfff))
}

/// Prints numbers as ECMAScript does; everything else is left to the wrapped formatter.
struct Ecma<F>(F);

/// The text of a number: ECMA-262 `Number::toString`, but integers with all digits.
#[must_use]
pub fn number_text(number: &Number) -> String {
    match (number.as_i64(), number.as_u64(), number.as_f64()) {
        (Some(integer), _, _) => integer.to_string(),
        (_, Some(integer), _) => integer.to_string(),
        (_, _, Some(float)) => float_text(float),
        _ => number.to_string(),
    }
}

/// ECMA-262 `Number::toString` of a double.
#[must_use]
pub fn float_text(float: f64) -> String {
    ryu_js::Buffer::new().format(float).to_owned()
}

macro_rules! forward {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {
        $(fn $name<W: ?Sized + Write>(&mut self, writer: &mut W $(, $arg: $ty)*) -> io::Result<()> {
            self.0.$name(writer $(, $arg)*)
        })*
    };
}

impl<F: Formatter> Formatter for Ecma<F> {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(ryu_js::Buffer::new().format(value).as_bytes())
    }

    forward! {
        begin_array();
        end_array();
        begin_array_value(first: bool);
        end_array_value();
        begin_object();
        end_object();
        begin_object_key(first: bool);
        end_object_key();
        begin_object_value();
        end_object_value();
    }
}

/// Writes `value` on one line, without spaces.
///
/// # Errors
/// The writer's error.
pub fn write_compact(writer: impl Write, value: &impl Serialize) -> serde_json::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(writer, Ecma(CompactFormatter)))
}

/// Writes `value` with two spaces of indentation, without a final newline.
///
/// # Errors
/// The writer's error.
pub fn write_pretty(writer: impl Write, value: &impl Serialize) -> serde_json::Result<()> {
    value.serialize(&mut serde_json::Serializer::with_formatter(writer, Ecma(PrettyFormatter::new())))
}

/// `value` on one line.
#[must_use]
pub fn compact(value: &impl Serialize) -> String {
    write_to_string(|buffer| write_compact(buffer, value))
}

/// `value` indented by two spaces, without a final newline.
#[must_use]
pub fn pretty(value: &impl Serialize) -> String {
    write_to_string(|buffer| write_pretty(buffer, value))
}

/// `value` on one line, with the keys of every object sorted by UTF-16 code unit: equal values have the same text.
/// (Not RFC 8785: integers keep all their digits.)
#[must_use]
pub fn stable_text(value: &Value) -> String {
    compact(&sort_keys(value))
}

fn sort_keys(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(sort_keys).collect(),
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            entries.into_iter().map(|(k, v)| (k.clone(), sort_keys(v))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

fn write_to_string(write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>) -> String {
    let mut buffer = Vec::with_capacity(128);
    // Only a map with keys that are not strings fails, and `Value` has none.
    if write(&mut buffer).is_err() {
        return String::new();
    }
    String::from_utf8(buffer).unwrap_or_default()
}

/// ECMA-262 `ToBoolean`; `None` is `undefined`.
#[must_use]
pub fn to_boolean(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => false,
        Some(Value::Bool(value)) => *value,
        Some(Value::Number(number)) => number.as_f64().is_some_and(|n| n != 0.0),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(_) | Value::Object(_)) => true,
    }
}

/// ECMA-262 `String(value)` as in the incumbent's templates: text unchanged, `null` for null, arrays joined by commas,
/// objects `[object Object]`.
#[must_use]
pub fn js_string(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => number_text(n),
        Value::String(s) => s.clone(),
        Value::Array(items) => items
            .iter()
            .map(|item| if item.is_null() { String::new() } else { js_string(item) })
            .collect::<Vec<_>>()
            .join(","),
        Value::Object(_) => "[object Object]".to_owned(),
    }
}

/// True for characters that ECMA-262 `trim` removes.
#[must_use]
pub fn is_js_space(c: char) -> bool {
    c.is_whitespace() && c != '\u{85}' || c == '\u{feff}'
}

/// ECMA-262 `trim`.
#[must_use]
pub fn trim_js(text: &str) -> &str {
    text.trim_matches(is_js_space)
}

/// ECMA-262 `Number(text)`: blank is 0; `0x`/`0o`/`0b`, exponents and `Infinity` are accepted; anything else is NaN.
#[must_use]
pub fn js_number(text: &str) -> f64 {
    let text = trim_js(text);
    if text.is_empty() {
        return 0.0;
    }
    let radix = |digits: &str, radix: u32| {
        (!digits.is_empty() && digits.chars().all(|c| c.is_digit(radix))).then(|| {
            digits
                .chars()
                .filter_map(|c| c.to_digit(radix))
                .fold(0.0, |n, d| n * f64::from(radix) + f64::from(d))
        })
    };
    match text.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => return radix(&text[2..], 16).unwrap_or(f64::NAN),
        Some("0o") => return radix(&text[2..], 8).unwrap_or(f64::NAN),
        Some("0b") => return radix(&text[2..], 2).unwrap_or(f64::NAN),
        _ => {}
    }
    match text {
        "Infinity" | "+Infinity" => f64::INFINITY,
        "-Infinity" => f64::NEG_INFINITY,
        _ if text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) => {
            text.parse().unwrap_or(f64::NAN)
        }
        _ => f64::NAN,
    }
}

/// Follows a path through a value: keys of objects and whole-number indexes of arrays only.
#[must_use]
pub fn descend<'v>(value: &'v Value, path: &[&str]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, segment| match value {
        Value::Object(map) => map.get(*segment),
        Value::Array(items) if segment.bytes().all(|b| b.is_ascii_digit()) => {
            items.get(segment.parse::<usize>().ok()?)
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip(text: &str) -> String {
        parse(text).map_or_else(|e| format!("error: {e}"), |v| compact(&v))
    }

    #[test]
    fn numbers_print_as_ecmascript_prints_them() {
        for (input, printed) in [
            ("1.0", "1"),
            ("1E2", "100"),
            ("-0", "0"),
            ("-0.0", "0"),
            ("1e21", "1e+21"),
            ("0.1e-7", "1e-8"),
            ("123456789.123456789", "123456789.12345679"),
            ("12345678901234567890", "12345678901234567890"),
            ("1e400", "null"),
            ("[1e400,\"1e400 \\\" 1e400\",-1e999]", "[null,\"1e400 \\\" 1e400\",null]"),
        ] {
            assert_eq!(round_trip(input), printed, "{input}");
        }
    }

    /// Text that `JSON.parse` accepts is accepted, with U+FFFD for half a surrogate pair. Texts and results are from
    /// node 22, where `toWellFormed` inserts U+FFFD.
    #[test]
    fn half_a_surrogate_pair_reads_as_u_fffd() {
        for (input, printed) in [
            (r#""\ud83d""#, "\"\u{fffd}\""),
            (r#"{"t":"cut \uD83D","n":5}"#, "{\"t\":\"cut \u{fffd}\",\"n\":5}"),
            (r#"{"\ude00":1}"#, "{\"\u{fffd}\":1}"),
            (r#"["\ud83d\ud83d\ude00\ude00"]"#, "[\"\u{fffd}😀\u{fffd}\"]"),
            (r#""\ud83dx\\ud83d\n""#, "\"\u{fffd}x\\\\ud83d\\n\""),
            (r#""\ud83d\u0041\ud83d\\""#, "\"\u{fffd}A\u{fffd}\\\\\""),
            (r#"[1e400,"\ud83d 1e400"]"#, "[null,\"\u{fffd} 1e400\"]"),
        ] {
            assert_eq!(round_trip(input), printed, "{input}");
            assert!(has_half_pair(input));
        }
        let message = parse_message::<Value>(br#"{"t":"\ud83d"}"#);
        assert_eq!(message.ok(), Some(json!({"t": "\u{fffd}"})));
        assert!(parse_message::<Value>(format!("{}\"\\ud83d\"", "[".repeat(99_999)).as_bytes()).is_err());
        for sound in [r#""\ud83d\ude00""#, r#""\\ud83d""#, "{}", r#""\u00e9 \uffff""#] {
            assert!(!has_half_pair(sound), "{sound}");
        }
        for broken in [r#""\ud83""#, r#""\ud83d"#, r#"["\ud83d",]"#, r#""\ud83d\x""#, r"\ud83d"] {
            assert!(parse(broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn last_duplicate_wins_in_the_place_of_the_first() {
        assert_eq!(round_trip(r#"{"a":1,"b":2,"a":3}"#), r#"{"a":3,"b":2}"#);
    }

    #[test]
    fn depth_is_bounded_and_bracket_text_is_not_depth() {
        let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        let run = move || {
            (parse(&deep(3000)).is_ok(), matches!(parse(&deep(MAX_DEPTH + 1)), Err(JsonError::TooDeep)))
        };
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(run);
        assert!(matches!(thread.map(std::thread::JoinHandle::join), Ok(Ok((true, true)))));
        assert!(parse(&format!("\"{}\"", "[".repeat(MAX_DEPTH * 2))).is_ok());
    }

    #[test]
    fn messages_have_one_limit_of_nesting() {
        let deep = |n: usize| format!("{}\"[[\"{}", "[".repeat(n), "]".repeat(n));
        for (levels, fits) in [(1, true), (MAX_MESSAGE_DEPTH, true), (MAX_MESSAGE_DEPTH + 1, false)] {
            let text = deep(levels);
            assert_eq!(parse_message::<Value>(text.as_bytes()).is_ok(), fits, "{levels}");
            assert_eq!(is_nested_deeper(text.as_bytes(), MAX_MESSAGE_DEPTH), !fits, "{levels}");
        }
    }

    #[test]
    fn stable_text_ignores_key_order() {
        assert_eq!(stable_text(&json!({"b": {"d": 1, "c": 2}, "a": []})), r#"{"a":[],"b":{"c":2,"d":1}}"#);
    }

    #[test]
    fn number_reads_text_as_ecmascript_does() {
        for (text, number) in [
            ("", 0.0),
            (" 7 ", 7.0),
            ("0x10", 16.0),
            ("1e3", 1000.0),
            (".5", 0.5),
            ("5.", 5.0),
            ("-Infinity", f64::NEG_INFINITY),
        ] {
            assert!((js_number(text) - number).abs() < f64::EPSILON || js_number(text) == number, "{text}");
        }
        for text in ["inf", "nan", "1_000", "0x", "--1", "1e", "infinity", "0xg"] {
            assert!(js_number(text).is_nan(), "{text}");
        }
    }

    #[test]
    fn string_form_is_ecmascripts() {
        assert_eq!(js_string(&json!([1, null, ["a", 2.50], {"x": 1}])), "1,,a,2.5,[object Object]");
    }
}
