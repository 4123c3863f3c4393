//! A program's output as items, without holding more of it than one item.

use std::fmt;
use std::io::{BufRead, BufReader, Read};

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::super::{Flow, Payload, Sink, StageError, Stop};
use crate::json::{self, MAX_DEPTH};

/// Output up to this size is read in one go.
const SMALL: u64 = 1 << 20;

fn unreadable(error: impl fmt::Display) -> StageError {
    StageError::new(format!("exec: the program's output could not be read back: {error}"))
}

/// One item for each line that is not empty. Invalid UTF-8 becomes U+FFFD.
pub(super) fn lines(payload: &Payload, out: &mut dyn Sink) -> Result<(), Stop> {
    let mut reader = BufReader::with_capacity(64 << 10, payload.open().map_err(unreadable)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(unreadable)? == 0 {
            return Ok(());
        }
        let text = match line.as_slice() {
            [text @ .., b'\r', b'\n'] | [text @ .., b'\n'] => text,
            text => text,
        };
        if !text.is_empty() && out.item(String::from_utf8_lossy(text).into_owned().into())? == Flow::Enough {
            return Ok(());
        }
    }
}

/// The output as one JSON value; a list item by item, nothing as null.
///
/// What comes later may act on the first item at once, so no item leaves before
/// the whole output is known to be JSON: large output is read twice instead of held.
pub(super) fn json(payload: &Payload, out: &mut dyn Sink) -> Result<(), Stop> {
    let small = match payload {
        Payload::Bytes(_) => true,
        Payload::File(path) => std::fs::metadata(path).is_ok_and(|file| file.len() <= SMALL),
    };
    if small || !is_plain_json(payload) {
        return whole(payload, out);
    }
    let mut emit = Emit { out, stop: None, enough: false };
    let result = stream(payload, &mut emit);
    match (emit.stop, emit.enough, result) {
        (Some(stop), _, _) => Err(stop),
        (None, true, _) | (None, false, Ok(())) => Ok(()),
        (None, false, Err(error)) => Err(unreadable(error).into()),
    }
}

/// Decodes as leniently as JSON text may come: byte order mark, invalid UTF-8,
/// numbers beyond doubles.
fn whole(payload: &Payload, out: &mut dyn Sink) -> Result<(), Stop> {
    let mut bytes = Vec::new();
    payload.open().and_then(|mut reader| reader.read_to_end(&mut bytes)).map_err(unreadable)?;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    };
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let value = if text.is_empty() {
        Value::Null
    } else {
        json::parse(text).map_err(|error| {
            StageError::permanent(format!("exec --json could not parse stdout as JSON: {error}"))
        })?
    };
    let Value::Array(items) = value else {
        out.item(value)?;
        return Ok(());
    };
    for item in items {
        if out.item(item)? == Flow::Enough {
            break;
        }
    }
    Ok(())
}

/// Whether the output is one JSON value and needs none of the leniency of [`whole`].
fn is_plain_json(payload: &Payload) -> bool {
    stream(payload, Skim { depth: 0 }).is_ok()
}

fn stream<'a, T>(payload: &'a Payload, into: T) -> Result<(), Box<dyn std::error::Error>>
where
    T: for<'de> DeserializeSeed<'de, Value = ()>,
{
    let reader = BufReader::with_capacity(64 << 10, payload.open()?);
    let mut deserializer = serde_json::Deserializer::from_reader(reader);
    deserializer.disable_recursion_limit();
    into.deserialize(&mut deserializer)?;
    Ok(deserializer.end()?)
}

/// Reads a value completely and keeps nothing of it.
#[derive(Clone, Copy)]
struct Skim {
    depth: usize,
}

impl Skim {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom("nested too deeply"));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Skim {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! skim_scalars {
    ($($visit:ident($ty:ty);)*) => {
        $(fn $visit<E>(self, _: $ty) -> Result<(), E> { Ok(()) })*
    };
}

impl<'de> Visitor<'de> for Skim {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    skim_scalars! {
        visit_bool(bool);
        visit_i64(i64);
        visit_u64(u64);
        visit_f64(f64);
        visit_str(&str);
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        while items.next_element_seed(inner)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let inner = self.deeper()?;
        while fields.next_key_seed(inner)?.is_some() {
            fields.next_value_seed(inner)?;
        }
        Ok(())
    }
}

/// Hands the items of the outermost list on as they are read.
struct Emit<'a> {
    out: &'a mut dyn Sink,
    stop: Option<Stop>,
    enough: bool,
}

impl Emit<'_> {
    /// Whether to go on.
    fn item(&mut self, item: Value) -> bool {
        match self.out.item(item) {
            Ok(Flow::More) => return true,
            Ok(Flow::Enough) => self.enough = true,
            Err(stop) => self.stop = Some(stop),
        }
        false
    }

    fn scalar<E: de::Error>(&mut self, value: Value) -> Result<(), E> {
        self.item(value);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &mut Emit<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

macro_rules! emit_scalars {
    ($($visit:ident($ty:ty);)*) => {
        $(fn $visit<E: de::Error>(self, value: $ty) -> Result<(), E> { self.scalar(value.into()) })*
    };
}

impl<'de> Visitor<'de> for &mut Emit<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    emit_scalars! {
        visit_bool(bool);
        visit_i64(i64);
        visit_u64(u64);
        visit_f64(f64);
        visit_str(&str);
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.scalar(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element()? {
            if !self.item(item) {
                return Err(de::Error::custom("no more items are wanted"));
            }
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<(), A::Error> {
        let value = de::Deserialize::deserialize(de::value::MapAccessDeserializer::new(fields))?;
        self.scalar(value)
    }
}

/// The trimmed text, and where there is more than `max` bytes its beginning and end.
pub(super) fn excerpt(payload: &Payload, max: usize) -> std::io::Result<String> {
    let mut reader = payload.open()?;
    let mut head = Vec::new();
    reader.by_ref().take(max as u64 / 2).read_to_end(&mut head)?;
    let (mut tail, mut left_out) = (Vec::new(), 0);
    let mut chunk = vec![0; 64 << 10];
    loop {
        let read = reader.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        tail.extend_from_slice(&chunk[..read]);
        let surplus = tail.len().saturating_sub(max / 2);
        tail.drain(..surplus);
        left_out += surplus;
    }
    if left_out == 0 {
        head.append(&mut tail);
        return Ok(trim(&String::from_utf8_lossy(&head)).to_owned());
    }
    let (head, tail) = (String::from_utf8_lossy(&head), String::from_utf8_lossy(&tail));
    Ok(format!("{}\n... {left_out} bytes left out ...\n{}", head.trim_start(), tail.trim_end()))
}

fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}')
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;

    /// Takes so many items, then has enough.
    struct Collect(Vec<Value>, usize);

    impl Sink for Collect {
        fn item(&mut self, item: Value) -> Result<Flow, Stop> {
            self.0.push(item);
            Ok(if self.0.len() < self.1 { Flow::More } else { Flow::Enough })
        }
    }

    fn read(payload: &Payload, most: usize) -> Result<Vec<Value>, String> {
        let mut out = Collect(Vec::new(), most);
        match json(payload, &mut out) {
            Ok(()) => Ok(out.0),
            Err(Stop::Failed(error)) => Err(format!("{} after {}", error.message, out.0.len())),
            Err(stop) => Err(format!("{stop:?}")),
        }
    }

    fn bytes(text: impl AsRef<[u8]>) -> Payload {
        Payload::Bytes(Arc::from(text.as_ref()))
    }

    #[test]
    fn a_list_is_spread_and_anything_else_is_one_item() {
        for (text, items) in [
            (
                &b"[1.0, 1e2, -0.5, 1E-3, 0, 123456789012]"[..],
                json!([1.0, 100.0, -0.5, 0.001, 0, 123_456_789_012_u64]),
            ),
            (b" \n\xef\xbb\xbf {\"a\": [1]} \xef\xbb\xbf\n", json!([{"a": [1]}])),
            (b"", json!([null])),
            (b" \r\n\xef\xbb\xbf", json!([null])),
            (b"null", json!([null])),
            (b"[]", json!([])),
            (b"[[]]", json!([[]])),
            (b"\"\xff\"", json!(["\u{fffd}"])),
            (b"[1e400, 12345678901234567890]", json!([null, 12_345_678_901_234_567_890_u64])),
            (b"\xc2\xa0[true]", json!([true])),
        ] {
            assert_eq!(
                read(&bytes(text), 99).map(Value::from),
                Ok(items),
                "{}",
                String::from_utf8_lossy(text)
            );
        }
        for text in ["[1,]", "{", "[1] 2", "nope", "[\"\\ud800\"]", "\u{0}"] {
            let error = read(&bytes(text), 99).unwrap_err();
            assert!(
                error.starts_with("exec --json could not parse stdout as JSON: ")
                    && error.ends_with("after 0"),
                "{error}"
            );
        }
    }

    /// Pads with blanks so that the file is read in a stream.
    fn large(text: &str) -> (tempfile::NamedTempFile, Payload) {
        use std::io::Write as _;
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.write_all(&vec![b' '; SMALL as usize + 1]).unwrap();
        let payload = Payload::File(file.path().to_path_buf());
        (file, payload)
    }

    #[test]
    fn large_output_gives_the_same_items() {
        for text in [
            "[1, {\"a\":[null]}, \"\\u00e9\", 1e400]",
            "{\"a\": {\"b\": 1}}",
            "\"x\"",
            "true",
            "null",
            "-1.5",
            "7",
            "",
            "[1,",
        ] {
            let (_file, payload) = large(text);
            assert_eq!(read(&payload, 99), read(&bytes(text), 99), "{text}");
        }
    }

    #[test]
    fn a_mistake_is_found_before_the_first_item_leaves() {
        let (_file, payload) = large("[1, 2, 3, oops]");
        let error = read(&payload, 1).unwrap_err();
        assert!(error.ends_with("after 0"), "{error}");
        let (_file, payload) = large("[1, 2, 3]");
        assert_eq!(read(&payload, 2), Ok(vec![json!(1), json!(2)]));
    }

    #[test]
    fn nesting_is_bounded_in_a_stream_too() {
        let run = || {
            let (_file, payload) =
                large(&format!("{}{}", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1)));
            assert!(read(&payload, 9).unwrap_err().contains("nested more than"));
        };
        std::thread::Builder::new().stack_size(64 << 20).spawn(run).unwrap().join().unwrap();
    }
}
