//! Processes JSON text of any size as a stream: selects one value of it, or copies it without blanks. The text must
//! have been checked by a [`super::scanner::Scanner`].

use std::collections::HashSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufRead, Read, Write};

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use super::number_text;

/// The value at `path`, as [`super::descend`] finds it in the whole value; no other part of the text is stored.
///
/// # Errors
/// If `text` cannot be read, or is not JSON after all.
pub fn select(text: impl Read, path: &[&str]) -> serde_json::Result<Option<Value>> {
    let mut deserializer = serde_json::Deserializer::from_reader(text);
    deserializer.disable_recursion_limit();
    Selection(path).deserialize(&mut deserializer)
}

/// The value at the end of a path.
#[derive(Clone, Copy)]
struct Selection<'p>(&'p [&'p str]);

impl<'de> DeserializeSeed<'de> for Selection<'_> {
    type Value = Option<Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        match self.0 {
            [] => serde::Deserialize::deserialize(deserializer).map(Some),
            [segment, rest @ ..] => deserializer.deserialize_any(Inside { segment, rest: Selection(rest) }),
        }
    }
}

/// Reads a value of which one part is wanted; scalar values have none.
struct Inside<'p> {
    segment: &'p str,
    rest: Selection<'p>,
}

impl<'de> Visitor<'de> for Inside<'_> {
    type Value = Option<Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<String>()? {
            if name == self.segment {
                // As everywhere, the last field with a name wins.
                found = map.next_value_seed(self.rest)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let is_index = self.segment.bytes().all(|byte| byte.is_ascii_digit());
        let wanted = self.segment.parse::<usize>().ok().filter(|_| is_index);
        let mut found = None;
        for at in 0.. {
            if Some(at) == wanted {
                match list.next_element_seed(self.rest)? {
                    Some(value) => found = value,
                    None => break,
                }
            } else if list.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        Ok(found)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Result of [`compact`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compacted {
    Whole,
    /// An object has a name twice. The last value replaces the first in its position, so output that is already
    /// written would have to change.
    RepeatsAName,
}

/// Writes `text` as [`super::write_compact`] writes its value. It stores one name at a time, and eight bytes for each
/// name of the open objects.
///
/// # Errors
/// If `text` cannot be read or is not JSON after all, or `out` cannot be written.
pub fn compact(text: impl BufRead, out: &mut impl Write) -> io::Result<Compacted> {
    Compaction { text, hasher: RandomState::new(), open: Vec::new(), name_comes: false, token: Vec::new() }
        .run(out)
}

struct Compaction<R> {
    text: R,
    hasher: RandomState,
    /// The names of each open object; `None` for a list.
    open: Vec<Option<HashSet<u64>>>,
    /// True if the next string is a name.
    name_comes: bool,
    /// The current name or number.
    token: Vec<u8>,
}

impl<R: BufRead> Compaction<R> {
    fn run(mut self, out: &mut impl Write) -> io::Result<Compacted> {
        while let Some(byte) = self.peek_byte()? {
            if let b'-' | b'0'..=b'9' = byte {
                self.write_number(out)?;
                continue;
            }
            self.text.consume(1);
            match byte {
                b' ' | b'\n' | b'\t' | b'\r' => continue,
                b'"' if self.name_comes => {
                    self.name_comes = false;
                    if !self.write_name(out)? {
                        return Ok(Compacted::RepeatsAName);
                    }
                    continue;
                }
                b'"' => {
                    write_string(&mut self.text, out)?;
                    continue;
                }
                b'{' => self.open.push(Some(HashSet::new())),
                b'[' => self.open.push(None),
                b'}' | b']' => drop(self.open.pop()),
                _ => {}
            }
            if let b'{' | b',' | b'}' = byte {
                let in_object = self.open.last().is_some_and(Option::is_some);
                self.name_comes = byte != b'}' && in_object;
            }
            out.write_all(&[byte])?;
        }
        Ok(Compacted::Whole)
    }

    fn peek_byte(&mut self) -> io::Result<Option<u8>> {
        Ok(self.text.fill_buf()?.first().copied())
    }

    fn write_number(&mut self, out: &mut impl Write) -> io::Result<()> {
        self.token.clear();
        while let Some(byte @ (b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) = self.peek_byte()? {
            self.token.push(byte);
            self.text.consume(1);
        }
        let number: Number = serde_json::from_slice(&self.token)?;
        out.write_all(number_text(&number).as_bytes())
    }

    /// Writes a name; true if it is new in its object.
    fn write_name(&mut self, out: &mut impl Write) -> io::Result<bool> {
        self.token.clear();
        write_string(&mut self.text, &mut self.token)?;
        out.write_all(&self.token)?;
        let hash = self.hasher.hash_one(&self.token);
        // Two names with the same hash are treated as equal: the caller then loads the value.
        Ok(self.open.last_mut().and_then(Option::as_mut).is_some_and(|names| names.insert(hash)))
    }
}

/// Writes the rest of a string, after its opening quote, in the standard spelling.
fn write_string(text: &mut impl BufRead, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"\"")?;
    loop {
        let piece = text.fill_buf()?;
        if piece.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let plain = piece.iter().position(|byte| matches!(byte, b'"' | b'\\')).unwrap_or(piece.len());
        out.write_all(&piece[..plain])?;
        text.consume(plain);
        match text.fill_buf()?.first() {
            Some(b'"') => {
                text.consume(1);
                return out.write_all(b"\"");
            }
            Some(b'\\') => {
                text.consume(1);
                write_escape(text, out)?;
            }
            _ => {}
        }
    }
}

/// Writes the character after a backslash as an escape, or plainly if it needs none.
fn write_escape(text: &mut impl BufRead, out: &mut impl Write) -> io::Result<()> {
    let mut kind = [0];
    text.read_exact(&mut kind)?;
    match kind {
        [b'u'] => {
            let mut units = vec![read_hex(text)?];
            if matches!(units[0], 0xd800..=0xdbff) {
                text.read_exact(&mut [0; 2])?;
                units.push(read_hex(text)?);
            }
            let character = String::from_utf16(&units).map_err(|_| io::ErrorKind::InvalidData)?;
            let quoted = serde_json::to_string(&character)?;
            out.write_all(&quoted.as_bytes()[1..quoted.len() - 1])
        }
        [b'/'] => out.write_all(b"/"),
        [other] => out.write_all(&[b'\\', other]),
    }
}

fn read_hex(text: &mut impl BufRead) -> io::Result<u16> {
    let mut digits = [0; 4];
    text.read_exact(&mut digits)?;
    let digits = str::from_utf8(&digits).map_err(|_| io::ErrorKind::InvalidData)?;
    u16::from_str_radix(digits, 16).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::io::BufReader;

    use proptest::prelude::*;

    use super::super::descend;
    use super::super::{self as json, scanner::Scanner};
    use super::*;

    fn compact_text(text: &str, piece: usize) -> Option<String> {
        let mut out = Vec::new();
        match compact(BufReader::with_capacity(piece, text.as_bytes()), &mut out).expect("reads") {
            Compacted::Whole => Some(String::from_utf8(out).expect("is UTF-8")),
            Compacted::RepeatsAName => None,
        }
    }

    #[test]
    fn spellings_become_the_one_that_is_written() {
        let text = r#" { "a\u0041\/" : [ 1.0 , -0 , 1e21, 9007199254740993, 1E-7 ] ,
            "\ud83d\ude00\u0001\u000a\u0022\\" : "\u00e9 \t \b\f\u007f" , "" : { } , "x":[ ], "t" : [ true,false , null ] } "#;
        let value = json::parse(text).expect("is JSON");
        for piece in [1, 2, 3, 7, 4096] {
            assert_eq!(compact_text(text, piece), Some(json::compact(&value)));
        }
    }

    #[test]
    fn a_name_twice_is_left_to_others() {
        assert_eq!(compact_text(r#"{"a":1,"\u0061":2}"#, 9), None);
        assert_eq!(
            compact_text(r#"[{"a":{"a":1}},{"a":2}]"#, 9).as_deref(),
            Some(r#"[{"a":{"a":1}},{"a":2}]"#)
        );
    }

    #[test]
    fn the_last_of_a_name_is_selected() {
        let select = |path: &[&str]| {
            select(&br#"{"a":{"b":1},"l":[5,{"c":null}],"a":{"d":2}}"#[..], path).expect("reads")
        };
        assert_eq!(select(&["a", "b"]), None);
        assert_eq!(select(&["a", "d"]), Some(2.into()));
        assert_eq!(select(&["l", "1", "c"]), Some(Value::Null));
        assert_eq!(select(&["l", "+1", "c"]), None);
        assert_eq!(select(&["l", "2"]), None);
        assert_eq!(select(&["l", "0", "c"]), None);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::vec(("[ab0-2é\"\\\\\n]{0,2}", inner), 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_flows_is_what_is_loaded(value in any_json(), pretty: bool, piece in 1..64usize, path in proptest::collection::vec("[ab0-2]{1,2}", 0..4)) {
            let text = if pretty { json::pretty(&value) } else { json::compact(&value) };
            let mut scanner = Scanner::new();
            prop_assert!(scanner.push(text.as_bytes()).is_ok() && scanner.finish_text().is_ok());
            let value = json::parse(&text).expect("is JSON");
            prop_assert_eq!(compact_text(&text, piece), Some(json::compact(&value)));
            let path: Vec<_> = path.iter().map(String::as_str).collect();
            prop_assert_eq!(select(text.as_bytes(), &path).expect("reads"), descend(&value, &path).cloned());
        }
    }
}
