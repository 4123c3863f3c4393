//! Durations and sizes as people write them, the same everywhere in lobster: `120s`, `2GiB`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A span of time, written as a number with `ms`, `s`, `m`, `h`, `d` or `w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// A number of bytes, written as a number with `B`, `KiB`, `MiB`, `GiB`, `TiB`, `KB`,
/// `MB`, `GB` or `TB`; `K`, `M`, `G` and `T` alone are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const SPAN_UNITS: &[(&str, u64)] =
    &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

/// Number of units that are used when a span is written.
const SPAN_UNITS_WRITTEN: usize = 5;

const BYTE_UNITS: &[(&str, u64)] = &[
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("B", 1),
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("K", 1 << 10),
    ("M", 1 << 20),
    ("G", 1 << 30),
    ("T", 1 << 40),
];

/// Number of units that are used when a size is written.
const BYTE_UNITS_WRITTEN: usize = 7;

/// A whole number, optionally with `_` between its digits, and its unit in upper or lower case. `bare` is the factor
/// of a number without a unit, if that is allowed.
fn parse_quantity(text: &str, units: &[(&str, u64)], bare: Option<u64>) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = (text[..end].replace('_', ""), text[end..].trim());
    let scale = match unit {
        "" => bare?,
        unit => units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?.1,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

/// A number without a unit: `2_000_000`.
#[must_use]
pub fn parse_count(text: &str) -> Option<u64> {
    parse_quantity(text, &[], Some(1))
}

impl Span {
    /// Also accepts a number without a unit, in milliseconds.
    #[must_use]
    pub fn parse_or_milliseconds(text: &str) -> Option<Self> {
        parse_quantity(text, SPAN_UNITS, Some(1)).map(|ms| Self(Duration::from_millis(ms)))
    }

    /// The whole milliseconds of the span.
    #[must_use]
    pub fn milliseconds(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Bytes {
    /// Also accepts a number without a unit, in bytes.
    ///
    /// # Errors
    /// If the text is not a size; the error shows how to write one.
    pub fn parse_or_bytes(text: &str) -> Result<Self, String> {
        parse_quantity(text, BYTE_UNITS, Some(1)).map(Self).ok_or_else(|| no_size(text))
    }
}

fn no_size(text: &str) -> String {
    format!("{text:?} is not a size such as \"64KiB\" or \"2GiB\"")
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
        parse_quantity(text, SPAN_UNITS, None)
            .map(|ms| Self(Duration::from_millis(ms)))
            .ok_or_else(|| format!("{text:?} is not a duration such as \"90s\" or \"15m\""))
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_quantity(text, BYTE_UNITS, None).map(Self).ok_or_else(|| no_size(text))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quantity(f, self.milliseconds(), &SPAN_UNITS[..SPAN_UNITS_WRITTEN])
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_quantity(f, self.0, &BYTE_UNITS[..BYTE_UNITS_WRITTEN])
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
            let span: Span = text.parse().unwrap();
            assert_eq!(span.to_string().parse(), Ok(span));
        }
        assert_eq!("64KiB".parse(), Ok(Bytes(65_536)));
        assert_eq!(Bytes(65_536).to_string(), "64KiB");
    }

    #[test]
    fn a_quantity_is_a_whole_number_and_a_unit() {
        let ms = |text: &str| text.parse::<Span>().ok().map(Span::milliseconds);
        assert_eq!(
            ["90s", "36h", "30d", "1w"].map(ms),
            [90_000, 129_600_000, 2_592_000_000, 604_800_000].map(Some)
        );
        assert_eq!(["", "d", "5", "-1d", "1ü", "1.5h", "99999999999999999999s"].map(ms), [None; 7]);
        assert_eq!(Span::parse_or_milliseconds("250"), Some(Span(Duration::from_millis(250))));
        let bytes = |text: &str| Bytes::parse_or_bytes(text).ok().map(|bytes| bytes.0);
        assert_eq!(
            ["0", "1_000", "3K", "2G", "1gib", "8 kB", "64MiB"].map(bytes),
            [0, 1000, 3072, 2 << 30, 1 << 30, 8000, 64 << 20].map(Some)
        );
        assert_eq!(["", "G", "1GG", "-1", "99999999999T", "1.5MiB", "64 bananas"].map(bytes), [None; 7]);
        assert_eq!("1000".parse::<Bytes>().ok(), None);
        assert_eq!(["2_000", "-1", "64MiB", ""].map(parse_count), [Some(2000), None, None, None]);
    }
}
