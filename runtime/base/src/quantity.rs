//! Durations and sizes as a policy writes them: `120s`, `2GiB`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A span of time, written as a number with `ms`, `s`, `m`, `h` or `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes, written as a number with `B`, `KiB`, `MiB`, `GiB`, `KB`,
/// `MB` or `GB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const SPAN_UNITS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

const BYTE_UNITS: &[(&str, u64)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
];

fn parse_quantity(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let scale = units.iter().find(|(name, _)| *name == unit.trim())?.1;
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// Writes `amount` in the largest unit that divides it.
fn write_quantity(f: &mut fmt::Formatter<'_>, amount: u64, units: &[(&str, u64)]) -> fmt::Result {
    let (name, scale) = units
        .iter()
        .filter(|(_, scale)| amount.is_multiple_of(*scale) && amount >= *scale)
        .max_by_key(|(_, scale)| *scale)
        .or(units.iter().min_by_key(|(_, scale)| *scale))
        .copied()
        .unwrap_or(("", 1));
    write!(f, "{}{name}", amount / scale)
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_quantity(text, SPAN_UNITS)
            .map(|ms| Self(Duration::from_millis(ms)))
            .ok_or_else(|| format!("{text:?} is not a duration such as \"90s\" or \"15m\""))
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_quantity(text, BYTE_UNITS)
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not a size such as \"64KiB\" or \"2GiB\""))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quantity(f, u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), SPAN_UNITS)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quantity(f, self.0, BYTE_UNITS)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"})
    }
}

impl JsonSchema for Bytes {
    fn schema_name() -> Cow<'static, str> {
        "Bytes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "pattern": "^[0-9]+(B|KiB|MiB|GiB|KB|MB|GB)$"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_and_write_the_same() {
        for text in ["120s", "15m", "250ms", "2h"] {
            let ms = parse_quantity(text, SPAN_UNITS).unwrap();
            let shown = Span(Duration::from_millis(ms)).to_string();
            assert_eq!(parse_quantity(&shown, SPAN_UNITS), Some(ms));
        }
        assert_eq!(parse_quantity("64KiB", BYTE_UNITS), Some(65_536));
        assert_eq!(Bytes(65_536).to_string(), "64KiB");
        assert_eq!(parse_quantity("99999999999999999999s", SPAN_UNITS), None);
        assert_eq!(parse_quantity("5", SPAN_UNITS), None);
    }
}
