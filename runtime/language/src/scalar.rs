//! Types of plain YAML scalars.

use serde_json::Number;

use super::source::Data;
use lobster_base::json;

/// Set of types for plain scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ScalarSchema {
    /// YAML 1.2 core.
    Core,
    /// YAML 1.1: more booleans, octals with a leading zero, underscores, base 60.
    Yaml11,
}

/// Value of a plain scalar.
pub(super) fn resolve_scalar(text: &str, schema: ScalarSchema) -> Data {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Data::Null,
        "true" | "True" | "TRUE" => return Data::Bool(true),
        "false" | "False" | "FALSE" => return Data::Bool(false),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF" | ".nan"
        | ".NaN" | ".NAN" => return Data::NotFinite,
        _ => {}
    }
    let number = match schema {
        ScalarSchema::Core => core_number(text),
        ScalarSchema::Yaml11 => match text {
            "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Data::Bool(true),
            "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => return Data::Bool(false),
            _ => number_1_1(text),
        },
    };
    number.unwrap_or_else(|| Data::Text(text.to_owned()))
}

fn all_digits(text: &str, radix: u32) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_digit(radix))
}

fn core_number(text: &str) -> Option<Data> {
    if let Some(digits) = text.strip_prefix("0o").filter(|digits| all_digits(digits, 8)) {
        return parse_integer(digits, 8, false);
    }
    if let Some(digits) = text.strip_prefix("0x").filter(|digits| all_digits(digits, 16)) {
        return parse_integer(digits, 16, false);
    }
    let (negative, unsigned) = split_sign(text);
    if all_digits(unsigned, 10) {
        return parse_integer(unsigned, 10, negative);
    }
    is_float(unsigned).then(|| parse_float(text))
}

fn number_1_1(text: &str) -> Option<Data> {
    let (negative, unsigned) = split_sign(text);
    if !unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let plain = unsigned.replace('_', "");
    let based = [("0b", 2), ("0x", 16), ("0", 8)];
    if let Some((digits, radix)) =
        based.iter().find_map(|(prefix, radix)| Some((plain.strip_prefix(prefix)?, *radix)))
        && all_digits(digits, radix)
    {
        return parse_integer(digits, radix, negative);
    }
    if all_digits(&plain, 10) {
        return parse_integer(&plain, 10, negative);
    }
    if plain.contains(':') {
        return base_60(&plain, negative);
    }
    is_float(&plain).then(|| parse_float(&format!("{}{plain}", if negative { "-" } else { "" })))
}

/// Value of `1:30:00` in YAML 1.1 notation (base 60).
fn base_60(text: &str, negative: bool) -> Option<Data> {
    let mut total = 0.0;
    for (index, part) in text.split(':').enumerate() {
        let fits = all_digits(part, 10)
            && (index == 0 || (part.len() <= 2 && part.parse::<u8>().is_ok_and(|n| n < 60)));
        if !fits {
            return None;
        }
        total = total * 60.0 + part.parse::<f64>().ok()?;
    }
    Some(finite_number(if negative { -total } else { total }))
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// True for `.5`, `5.`, `5.5`, each with or without an exponent, and `5e3`.
fn is_float(unsigned: &str) -> bool {
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    if let Some(exponent) = exponent
        && !all_digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent), 10)
    {
        return false;
    }
    match mantissa.split_once('.') {
        Some(("", fraction)) => all_digits(fraction, 10),
        Some((whole, fraction)) => all_digits(whole, 10) && (fraction.is_empty() || all_digits(fraction, 10)),
        None => exponent.is_some() && all_digits(mantissa, 10),
    }
}

fn parse_float(text: &str) -> Data {
    finite_number(text.trim_start_matches('+').parse().unwrap_or(f64::NAN))
}

/// Whole floats become integers, as in ECMAScript, so that `timeout_ms: 5e3` is valid.
fn finite_number(value: f64) -> Data {
    Number::from_f64(value).map_or(Data::NotFinite, Data::Number)
}

/// Keeps integers of up to 64 bits; larger ones become the nearest double.
fn parse_integer(digits: &str, radix: u32, negative: bool) -> Option<Data> {
    if let Ok(value) = u64::from_str_radix(digits, radix) {
        if !negative {
            return Some(Data::Number(value.into()));
        }
        if value == 0 {
            return Some(finite_number(-0.0));
        }
        if let Ok(value) = i64::try_from(-i128::from(value)) {
            return Some(Data::Number(value.into()));
        }
    }
    let value = digits
        .chars()
        .filter_map(|c| c.to_digit(radix))
        .fold(0.0, |total, digit| total * f64::from(radix) + f64::from(digit));
    // Decimal digits are rounded once, as a whole.
    let value = if radix == 10 { digits.parse().unwrap_or(value) } else { value };
    Some(finite_number(if negative { -value } else { value }))
}

/// Key for a map: the kind of the scalar, to distinguish `1` from `"1"`, and its text.
pub(super) fn key_text(data: &Data) -> Option<(u8, String)> {
    match data {
        Data::Null => Some((0, String::new())),
        Data::Bool(value) => Some((1, value.to_string())),
        Data::Number(number) => Some((2, json::number_text(number))),
        Data::Text(text) => Some((3, text.clone())),
        Data::NotFinite | Data::List(_) | Data::Map(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::plan::Span;
    use super::super::source::Node;
    use super::*;

    fn resolved_text(text: &str, schema: ScalarSchema) -> String {
        match resolve_scalar(text, schema) {
            Data::NotFinite => "not finite".to_owned(),
            data => json::compact(&Node { data, span: Span::default() }.to_value()),
        }
    }

    #[test]
    fn core_schema() {
        for (text, expected) in [
            ("", "null"),
            ("~", "null"),
            ("Null", "null"),
            ("nULL", "\"nULL\""),
            ("TRUE", "true"),
            ("tRUE", "\"tRUE\""),
            ("yes", "\"yes\""),
            ("off", "\"off\""),
            ("0o17", "15"),
            ("0x1F", "31"),
            ("0X1F", "\"0X1F\""),
            ("-0x1F", "\"-0x1F\""),
            ("017", "17"),
            ("+12", "12"),
            ("-0", "0"),
            ("1_000", "\"1_000\""),
            ("1:30", "\"1:30\""),
            ("2024-01-02", "\"2024-01-02\""),
            ("1e3", "1000"),
            ("1.", "1"),
            (".5", "0.5"),
            ("-.5E-1", "-0.05"),
            (".", "\".\""),
            ("e5", "\"e5\""),
            ("1e", "\"1e\""),
            ("+", "\"+\""),
            ("--1", "\"--1\""),
            (".inf", "not finite"),
            ("-.INF", "not finite"),
            (".NaN", "not finite"),
            ("1e999", "not finite"),
            ("18446744073709551615", "18446744073709551615"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("100000000000000000000", "100000000000000000000"),
            ("64MiB", "\"64MiB\""),
        ] {
            assert_eq!(resolved_text(text, ScalarSchema::Core), expected, "{text}");
        }
    }

    #[test]
    fn yaml_1_1_types() {
        for (text, expected) in [
            ("yes", json!(true)),
            ("N", json!(false)),
            ("017", json!(15)),
            ("0o17", json!("0o17")),
            ("0b101", json!(5)),
            ("1_000", json!(1000)),
            ("1:30", json!(90.0)),
            ("1:75", json!("1:75")),
            ("1_0.5", json!(10.5)),
            ("_1", json!("_1")),
        ] {
            let data = resolve_scalar(text, ScalarSchema::Yaml11);
            assert_eq!(Node { data, span: Span::default() }.to_value(), expected, "{text}");
        }
    }
}
