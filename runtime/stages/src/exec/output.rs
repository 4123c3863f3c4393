//! A program's output as items, holding at most one item in memory.

use std::fmt;
use std::io::{BufRead, BufReader, Read};

use serde::Deserialize;
use serde_json::Value;

use crate::each::emit_items;
use lobster_base::json;
use lobster_base::json::complaint::js_parse_error;
use lobster_base::json::raw::RawItem;
use lobster_base::json::scanner::Scanner;
use lobster_stage::{Flow, Payload, Sink, StageError, Stop};

/// Output up to this size is read in one go.
const SMALL: u64 = 1 << 20;

/// Size of the pieces in which larger output is read.
const PIECE: usize = 256 << 10;

fn unreadable_output(error: impl fmt::Display) -> StageError {
    StageError::new(format!("exec: the program's output could not be read back: {error}"))
}

/// Emits one item for each line, without empty lines unless `all` is true. Invalid UTF-8 becomes U+FFFD.
pub(super) fn emit_lines(payload: &Payload, all: bool, out: &mut dyn Sink) -> Result<(), Stop> {
    let mut reader = BufReader::with_capacity(64 << 10, payload.open().map_err(unreadable_output)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line).map_err(unreadable_output)? == 0 {
            return Ok(());
        }
        let text = match line.as_slice() {
            [text @ .., b'\r', b'\n'] | [text @ .., b'\n'] => text,
            text => text,
        };
        if (all || !text.is_empty())
            && out.emit_item(String::from_utf8_lossy(text).into_owned().into())? == Flow::Enough
        {
            return Ok(());
        }
    }
}

/// Emits the output as one JSON value, a list item by item, and null if there is no output.
///
/// Later stages may act on the first item at once, so no item is emitted before the whole output is known
/// to be JSON. `plain` is the answer if the output was checked while it arrived; otherwise large output
/// is read twice instead of held.
///
/// Returns true if half a surrogate pair was read as U+FFFD.
pub(super) fn emit_json(payload: &Payload, plain: Option<bool>, out: &mut dyn Sink) -> Result<bool, Stop> {
    let small = match payload {
        Payload::Bytes(_) => true,
        Payload::File(path) => std::fs::metadata(path).is_ok_and(|file| file.len() <= SMALL),
    };
    if small || !plain.unwrap_or_else(|| is_plain_json(payload)) {
        return emit_whole(payload, out);
    }
    match first_byte(payload).map_err(unreadable_output)? {
        Some(b'[') => emit_list(payload, out)?,
        _ => emit_single(payload, out)?,
    }
    Ok(false)
}

/// The first byte that is not blank: the bracket of a list or an object.
pub fn first_byte(payload: &Payload) -> std::io::Result<Option<u8>> {
    Pieces::open(payload)?.first_byte()
}

/// Emits the items of a text that is known to be a JSON list.
pub fn emit_list(payload: &Payload, out: &mut dyn Sink) -> Result<(), Stop> {
    let mut pieces = Pieces::open(payload).map_err(unreadable_output)?;
    let mut scanner = Scanner::by_item();
    while let Some(item) = pieces.next_item(&mut scanner).map_err(unreadable_output)? {
        if out.emit_raw(RawItem::new(item))? == Flow::Enough {
            break;
        }
    }
    Ok(())
}

/// A large value that is not a list.
fn emit_single(payload: &Payload, out: &mut dyn Sink) -> Result<(), Stop> {
    let reader = BufReader::with_capacity(PIECE, payload.open().map_err(unreadable_output)?);
    let mut deserializer = serde_json::Deserializer::from_reader(reader);
    deserializer.disable_recursion_limit();
    out.emit_item(Value::deserialize(&mut deserializer).map_err(unreadable_output)?)?;
    Ok(())
}

/// Decodes JSON text as leniently as programs require: byte order mark, invalid UTF-8, numbers beyond
/// doubles, half a surrogate pair.
fn emit_whole(payload: &Payload, out: &mut dyn Sink) -> Result<bool, Stop> {
    let mut bytes = Vec::new();
    payload.open().and_then(|mut reader| reader.read_to_end(&mut bytes)).map_err(unreadable_output)?;
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    };
    let text = json::trim_js(&text);
    let value = if text.is_empty() {
        Value::Null
    } else {
        json::parse(text).map_err(|error| {
            // Too deep nesting, which JavaScript would accept, has lobster's own message.
            let why = js_parse_error(text).unwrap_or_else(|| error.to_string());
            StageError::permanent(format!("exec --json could not parse stdout as JSON: {why}"))
        })?
    };
    let is_mended = json::has_half_pair(text);
    let Value::Array(items) = value else {
        out.emit_item(value)?;
        return Ok(is_mended);
    };
    emit_items(items, out)?;
    Ok(is_mended)
}

/// True if the output is one JSON value and needs none of the leniency of [`emit_whole`].
pub fn is_plain_json(payload: &Payload) -> bool {
    let scan = || -> std::io::Result<bool> {
        let mut reader = payload.open()?;
        let (mut piece, mut scanner) = (vec![0; PIECE], Scanner::new());
        loop {
            match reader.read(&mut piece)? {
                0 => return Ok(scanner.finish_text().is_ok()),
                length if scanner.push(&piece[..length]).is_err() => return Ok(false),
                _ => {}
            }
        }
    };
    scan().unwrap_or(false)
}

/// The output in pieces; the bytes of an unfinished item are kept.
struct Pieces {
    reader: Box<dyn Read + Send>,
    bytes: Vec<u8>,
    /// Beginning of the current item.
    begin: usize,
    scanned: usize,
}

impl Pieces {
    fn open(payload: &Payload) -> std::io::Result<Self> {
        Ok(Self { reader: payload.open()?, bytes: Vec::new(), begin: 0, scanned: 0 })
    }

    /// The first byte that is not blank.
    fn first_byte(&mut self) -> std::io::Result<Option<u8>> {
        loop {
            if let Some(byte) = self.bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
                return Ok(Some(*byte));
            }
            if !self.read_more()? {
                return Ok(None);
            }
        }
    }

    /// Drops the bytes before the current item and reads more.
    fn read_more(&mut self) -> std::io::Result<bool> {
        self.bytes.drain(..self.begin);
        self.scanned -= std::mem::take(&mut self.begin);
        let held = self.bytes.len();
        self.bytes.resize(held + PIECE, 0);
        let length = self.reader.read(&mut self.bytes[held..])?;
        self.bytes.truncate(held + length);
        Ok(length > 0)
    }

    /// The text of the next item; `None` after the last one.
    fn next_item(&mut self, scanner: &mut Scanner) -> std::io::Result<Option<&[u8]>> {
        let changed = |_| std::io::Error::other("it has changed");
        loop {
            if let Some(end) = scanner.next(&self.bytes, self.scanned).map_err(changed)? {
                self.scanned = end;
                let begin = std::mem::replace(&mut self.begin, end);
                return Ok(Some(item_of(&self.bytes[begin..end])));
            }
            self.scanned = self.bytes.len();
            if !self.read_more()? {
                return Ok(None);
            }
        }
    }
}

/// An item without the list's bracket, comma and blanks before it.
fn item_of(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii_start();
    match text {
        [b'[' | b',', rest @ ..] => rest.trim_ascii_start(),
        text => text,
    }
}

/// The trimmed text; of more than `max` bytes only the beginning and the end.
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
        return Ok(json::trim_js(&String::from_utf8_lossy(&head)).to_owned());
    }
    let (head, tail) = (String::from_utf8_lossy(&head), String::from_utf8_lossy(&tail));
    Ok(format!("{}\n... {left_out} bytes left out ...\n{}", head.trim_start(), tail.trim_end()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use lobster_base::json::MAX_DEPTH;

    /// Takes a number of items, then has enough.
    struct Collect(Vec<Value>, usize);

    impl Sink for Collect {
        fn emit_item(&mut self, item: Value) -> Result<Flow, Stop> {
            self.0.push(item);
            Ok(if self.0.len() < self.1 { Flow::More } else { Flow::Enough })
        }
    }

    fn read_json(payload: &Payload, most: usize) -> Result<Vec<Value>, String> {
        let mut out = Collect(Vec::new(), most);
        match emit_json(payload, None, &mut out) {
            Ok(_) => Ok(out.0),
            Err(Stop::Failed(error)) => Err(format!("{} after {}", error.message, out.0.len())),
            Err(stop) => Err(format!("{stop:?}")),
        }
    }

    fn bytes_payload(text: impl AsRef<[u8]>) -> Payload {
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
            (br#"["\ud800", "\ud83d\ude80"]"#, json!(["\u{fffd}", "🚀"])),
        ] {
            assert_eq!(
                read_json(&bytes_payload(text), 99).map(Value::from),
                Ok(items),
                "{}",
                String::from_utf8_lossy(text)
            );
        }
        for text in ["[1,]", "{", "[1] 2", "nope", "[\"\\ud80\"]", "\u{0}", "\u{85}1"] {
            let error = read_json(&bytes_payload(text), 99).unwrap_err();
            assert!(
                error.starts_with("exec --json could not parse stdout as JSON: ")
                    && error.ends_with("after 0"),
                "{error}"
            );
        }
    }

    /// Pads with blanks, so that the file is read in pieces.
    fn large_file(text: &str) -> (tempfile::NamedTempFile, Payload) {
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
            "[{\"\\ud83d\": \"\\ude80\"}]",
            "\"x\"",
            "true",
            "null",
            "-1.5",
            "7",
            "",
            "[1,",
        ] {
            let (_file, payload) = large_file(text);
            assert_eq!(read_json(&payload, 99), read_json(&bytes_payload(text), 99), "{text}");
        }
    }

    #[test]
    fn a_mistake_is_found_before_the_first_item_leaves() {
        let (_file, payload) = large_file("[1, 2, 3, oops]");
        let error = read_json(&payload, 1).unwrap_err();
        assert!(error.ends_with("after 0"), "{error}");
        let (_file, payload) = large_file("[1, 2, 3]");
        assert_eq!(read_json(&payload, 2), Ok(vec![json!(1), json!(2)]));
    }

    #[test]
    fn nesting_is_bounded_in_a_stream_too() {
        let run = || {
            let (_file, payload) =
                large_file(&format!("{}{}", "[".repeat(MAX_DEPTH + 1), "]".repeat(MAX_DEPTH + 1)));
            assert!(read_json(&payload, 9).unwrap_err().contains("nested more than"));
        };
        std::thread::Builder::new().stack_size(64 << 20).spawn(run).unwrap().join().unwrap();
    }
}
