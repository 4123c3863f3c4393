//! The filters of `template`: `{{path | filter arg "arg 2"}}`.

use std::borrow::Cow;

use serde_json::{Number, Value};

use super::date;
use super::template::split_outside_quotes;
use lobster_base::json::{js_number, js_string, number_text, pretty, trim_js};
use lobster_stage::StageError;

/// A filter with its arguments, parsed once.
pub(super) enum Filter {
    Upper,
    Lower,
    Trim,
    Truncate(i64),
    Replace {
        from: String,
        to: String,
    },
    Split(String),
    First,
    Last,
    Length,
    Join(String),
    Json,
    Text,
    Default(Option<String>),
    Round(i64),
    Date(Option<String>),
    /// Fails only when it is applied: without items there is no error.
    Unknown(String),
}

/// Input of a filter. Missing (`None`) is not null.
pub(super) struct Call<'a> {
    pub(super) value: Option<Cow<'a, Value>>,
    pub(super) env: &'a dyn Fn(&str) -> Option<String>,
}

impl Filter {
    pub(super) fn parse(text: &str) -> Self {
        let mut words = split_words(text).into_iter();
        let name = words.next().unwrap_or_default();
        let mut next = || words.next();
        match name.as_str() {
            "upper" => Self::Upper,
            "lower" => Self::Lower,
            "trim" => Self::Trim,
            "truncate" => Self::Truncate(next().and_then(|n| leading_integer(&n)).unwrap_or(80)),
            "replace" => Self::Replace { from: next().unwrap_or_default(), to: next().unwrap_or_default() },
            "split" => Self::Split(next().unwrap_or_else(|| ",".to_owned())),
            "first" => Self::First,
            "last" => Self::Last,
            "length" => Self::Length,
            "join" => Self::Join(next().unwrap_or_else(|| ", ".to_owned())),
            "json" => Self::Json,
            "string" => Self::Text,
            "default" => Self::Default(next()),
            "round" => Self::Round(next().and_then(|n| leading_integer(&n)).unwrap_or(0)),
            "date" => Self::Date(next()),
            _ => Self::Unknown(name),
        }
    }

    pub(super) fn apply(&self, call: Call<'_>) -> Result<Option<Value>, StageError> {
        let Call { value, env } = call;
        let text = || match value.as_deref() {
            None | Some(Value::Null) => String::new(),
            Some(value) => js_string(value),
        };
        let of = |text: String| Ok(Some(Value::String(text)));
        match self {
            Self::Upper => of(text().to_uppercase()),
            Self::Lower => of(text().to_lowercase()),
            Self::Trim => of(trim_js(&text()).to_owned()),
            Self::Truncate(max) => of(truncate_text(text(), *max)),
            Self::Replace { from, to } => of(text().replace(from.as_str(), to)),
            Self::Split(separator) => Ok(Some(split_text(&text(), separator))),
            Self::First | Self::Last => Ok(match value.as_deref() {
                Some(Value::Array(items)) => {
                    if matches!(self, Self::First) {
                        items.first().cloned()
                    } else {
                        items.last().cloned()
                    }
                }
                _ => value.map(Cow::into_owned),
            }),
            Self::Length => Ok(Some(match value.as_deref() {
                Some(Value::Array(items)) => items.len().into(),
                Some(Value::String(text)) => text.encode_utf16().count().into(),
                _ => 0.into(),
            })),
            Self::Join(separator) => match value.as_deref() {
                Some(Value::Array(items)) => {
                    let part = |item: &Value| if item.is_null() { String::new() } else { js_string(item) };
                    of(items.iter().map(part).collect::<Vec<_>>().join(separator))
                }
                _ => of(text()),
            },
            Self::Json => Ok(value.map(|value| pretty(&*value).into())),
            Self::Text => of(text()),
            Self::Default(text) => Ok(match value.as_deref() {
                None | Some(Value::Null) => text.clone().map(Value::from),
                Some(Value::String(value)) if value.is_empty() => text.clone().map(Value::from),
                _ => value.map(Cow::into_owned),
            }),
            Self::Round(digits) => round_value(value, *digits),
            Self::Date(format) => Ok(match value.as_deref() {
                None | Some(Value::Null) => None,
                Some(value) => Some(shown_date(value, format.as_deref(), env).into()),
            }),
            Self::Unknown(name) => Err(StageError::permanent(format!("Unknown template filter: {name}"))),
        }
    }
}

/// Splits at spaces. Quotes hold a word together (and may be empty), a backslash takes the next character
/// literally.
fn split_words(text: &str) -> Vec<String> {
    let unquoted = |word: &str| {
        let (mut out, mut quote, mut chars) = (String::new(), None, word.chars());
        while let Some(c) = chars.next() {
            match (quote, c) {
                (_, '\\') => out.extend(chars.next()),
                (Some(open), _) if c == open => quote = None,
                (None, '"' | '\'') => quote = Some(c),
                (Some(_) | None, _) => out.push(c),
            }
        }
        out
    };
    split_outside_quotes(text, ' ').into_iter().filter(|word| !word.is_empty()).map(unquoted).collect()
}

/// ECMA-262 `parseInt(text, 10)`.
fn leading_integer(text: &str) -> Option<i64> {
    let text = trim_js(text);
    let digits_at = usize::from(text.starts_with(['-', '+']));
    let digits = text[digits_at..].bytes().take_while(u8::is_ascii_digit).count();
    let number = text.get(..digits_at + digits).filter(|_| digits > 0)?;
    Some(number.parse().unwrap_or(if text.starts_with('-') { i64::MIN } else { i64::MAX }))
}

/// The first `max` UTF-16 units and `...`; a negative `max` cuts from the end.
fn truncate_text(text: String, max: i64) -> String {
    let units: Vec<_> = text.encode_utf16().collect();
    let len = i64::try_from(units.len()).unwrap_or(i64::MAX);
    if len <= max {
        return text;
    }
    let keep = if max < 0 { len.saturating_add(max).max(0) } else { max };
    let kept = units.get(..usize::try_from(keep).unwrap_or(0)).unwrap_or_default();
    format!("{}...", String::from_utf16_lossy(kept))
}

fn split_text(text: &str, separator: &str) -> Value {
    if separator.is_empty() {
        text.chars().map(|c| Value::String(c.to_string())).collect()
    } else {
        text.split(separator).map(Value::from).collect()
    }
}

/// ECMA-262 `Number(value)`; missing is NaN.
fn to_number(value: Option<&Value>) -> f64 {
    match value {
        None => f64::NAN,
        Some(Value::Null) => 0.0,
        Some(Value::Bool(bool)) => f64::from(u8::from(*bool)),
        Some(Value::Number(number)) => number.as_f64().unwrap_or(f64::NAN),
        Some(Value::String(text)) => js_number(text),
        Some(value @ (Value::Array(_) | Value::Object(_))) => js_number(&js_string(value)),
    }
}

/// Most digits of `round`.
const MAX_DIGITS: i64 = 100;

fn round_value(value: Option<Cow<'_, Value>>, digits: i64) -> Result<Option<Value>, StageError> {
    if let Some(Value::Number(number)) = value.as_deref()
        && !number.is_f64()
        && (0..=MAX_DIGITS).contains(&digits)
    {
        return Ok(value.map(Cow::into_owned));
    }
    let number = to_number(value.as_deref());
    if number.is_nan() {
        return Ok(value.map(Cow::into_owned));
    }
    let Some(digits) = usize::try_from(digits).ok().filter(|_| digits <= MAX_DIGITS) else {
        return Err(StageError::permanent(format!(
            "template filter round takes 0 to {MAX_DIGITS} digits, not {digits}"
        )));
    };
    let rounded =
        if number.abs() < 1e21 { to_fixed(number, digits).parse().unwrap_or(number) } else { number };
    Ok(Some(Number::from_f64(rounded).map_or_else(
        || Value::from(lobster_base::json::float_text(rounded)),
        |n| lobster_base::json::parse(&number_text(&n)).unwrap_or(Value::Number(n)),
    )))
}

/// ECMA-262 `Number.prototype.toFixed`: the nearest decimal, ties away from zero.
fn to_fixed(number: f64, digits: usize) -> String {
    // A tie needs a last binary digit at 2^-(digits+1), and then `digits + 1`
    // decimals are the exact value.
    let scale = i32::try_from(digits + 1).map_or(f64::INFINITY, |power| 2f64.powi(power));
    let exact = format!("{number:.*}", digits + 1);
    if (number * scale).fract() == 0.0 && exact.ends_with('5') {
        return format!("{:.*}", digits, away_from_zero(&exact));
    }
    format!("{number:.digits$}")
}

/// The decimal text one unit further from zero in its last digit, as a double, which then rounds the
/// right way.
fn away_from_zero(exact: &str) -> f64 {
    let mut text = exact.to_owned();
    text.pop();
    text.push('9');
    text.parse().unwrap_or(f64::NAN)
}

fn shown_date(value: &Value, format: Option<&str>, env: &dyn Fn(&str) -> Option<String>) -> String {
    let text = js_string(value);
    let epoch_ms = match value {
        Value::Number(number) => number.as_f64().map(f64::trunc),
        Value::String(text) if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) => {
            text.parse().ok()
        }
        Value::String(text) => date::parse(text, &|| env("TZ")),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let Some(moment) = epoch_ms.and_then(date::Moment::from_epoch_ms) else { return text };
    format.map_or_else(|| moment.iso_text(), |format| moment.format_with(format))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::template::Template;
    use super::*;

    fn fill_text(template: &str, item: &Value) -> String {
        Template::new(template)
            .fill_placeholders(item, &|_| Some("UTC".to_owned()))
            .unwrap_or_else(|e| format!("error: {e}"))
    }

    #[test]
    fn filters_do_what_they_say() {
        let item = json!({
            "s": "banana", "l": [1, "a", null, true], "e": [], "nul": null, "num": 3.16159, "neg": -2.5, "t": true,
            "o": {"a": [1, "x"]}, "p": "a|b,c", "emoji": "😀é", "w": " x ", "nest": [[1, 2], {"a": 1}], "empty": "",
        });
        for (template, text) in [
            ("{{s|upper}}{{o|upper}}{{w|trim}}", "BANANA[OBJECT OBJECT]x"),
            ("[{{nope|upper}}{{nul|trim}}{{nope|truncate 2}}]", "[]"),
            (
                "{{s|truncate 2}} {{s|truncate}} {{s|truncate 0}} {{s|truncate -1}} {{s|truncate x}} {{s|truncate 3x}}",
                "ba... banana ... banan... banana ban...",
            ),
            (
                "{{s|replace a o}} {{s|replace a}} {{s|replace \"a\" \"\\\"\"}} {{s|replace a $&}}",
                "bonono bnn b\"n\"n\" b$&n$&n$&",
            ),
            ("{{p|replace \"|\" \"/\"}} {{p|split}} {{p|split \"\" | length}}", "a/b,c [\"a|b\",\"c\"] 5"),
            ("{{p|replace \"\" '-'}}", "-a-|-b-,-c-"),
            ("{{p|split ',' | first}}{{p|split ','|last}}[{{e|first}}]{{s|first}}", "a|bc[]banana"),
            ("{{l|length}}{{emoji|length}}{{o|length}}{{x|length}}", "4300"),
            (
                "{{l|join \"-\"}} {{l|join}} {{s|join x}} {{nest|join '-'}}",
                "1-a--true 1, a, , true banana 1,2-[object Object]",
            ),
            (
                "{{o|json}}|{{nope|json}}|{{nul|json}}|{{s|json}}",
                "{\n  \"a\": [\n    1,\n    \"x\"\n  ]\n}||null|\"banana\"",
            ),
            ("{{o|string}} {{l|string}} [{{nul|string}}]", "[object Object] 1,a,,true []"),
            (
                "{{nope|default \"not set\"}}{{nul|default x}}{{empty|default y}}{{t|default z}}[{{nul|default}}]",
                "not setxytrue[]",
            ),
            (
                "{{num|round 2}} {{num|round}} {{neg|round}} {{t|round}} {{nul|round}} {{s|round}} {{nope|round}}",
                "3.16 3 -3 1 0 banana ",
            ),
            ("{{num|round 101}}", "error: template filter round takes 0 to 100 digits, not 101"),
            ("{{num|round -1}}", "error: template filter round takes 0 to 100 digits, not -1"),
            ("{{s|default 'a\\'b' | replace \"n\" ' ' }}", "ba a a"),
        ] {
            assert_eq!(fill_text(template, &item), text, "{template}");
        }
    }

    #[test]
    fn rounding_is_to_the_nearest_decimal_with_ties_away_from_zero() {
        for (number, digits, text) in [
            (2.5, 0, "3"),
            (-2.5, 0, "-3"),
            (0.5, 0, "1"),
            (1.5, 0, "2"),
            (1.005, 2, "1"),
            (1.25, 1, "1.3"),
            (-1.35, 1, "-1.4"),
            (0.125, 2, "0.13"),
            (-0.2, 0, "0"),
            (9.5, 0, "10"),
            (2.1, 2, "2.1"),
            (1e21, 3, "1e+21"),
            (123_456_789.987_654_3, 4, "123456789.9877"),
            (5e-324, 100, "0"),
        ] {
            assert_eq!(
                fill_text(&format!("{{{{.|round {digits}}}}}"), &json!(number)),
                text,
                "{number} {digits}"
            );
        }
        assert_eq!(fill_text("{{.|round 2}}", &json!(9_007_199_254_740_993_i64)), "9007199254740993");
    }

    #[test]
    fn dates_are_shown_in_utc() {
        for (value, template, text) in [
            (json!("2026-01-02T03:04:05Z"), "{{.|date \"YYYY-MM-DD HH:mm:ss\"}}", "2026-01-02 03:04:05"),
            (json!("2024-03-05T23:30:00-02:00"), "{{.|date \"YYYY-MM-DD HH:mm:ss\"}}", "2024-03-06 01:30:00"),
            (json!("2024-03-05T06:07:08Z"), "{{.|date \"YYYY YYYY MM MM\"}}", "2024 2024 03 03"),
            (json!(0), "{{.|date}}", "1970-01-01T00:00:00.000Z"),
            (json!("86400000"), "{{.|date}}", "1970-01-02T00:00:00.000Z"),
            (json!(1.9), "{{.|date}}", "1970-01-01T00:00:00.001Z"),
            (json!("soon"), "{{.|date}}", "soon"),
            (json!(true), "{{.|date}}", "true"),
            (json!(1e300), "{{.|date}}", "1e+300"),
            (json!(null), "[{{.|date}}]", "[]"),
            (json!({}), "[{{x|date | default none}}]", "[none]"),
        ] {
            assert_eq!(fill_text(template, &value), text, "{value} {template}");
        }
    }
}
