//! Strict JSON (RFC 8259) with the position of every value.

use std::collections::HashMap;
use std::sync::Arc;

use lobster_base::json::is_too_large_a_number;
use serde_json::Number;

use super::codes;
use super::diagnostic::{Checked, Diagnostic};
use super::plan::Span;
use super::source::{Data, MAX_DEPTH, MappingEntry, Node, Source};

/// Parses the source as one JSON value. Duplicate keys are allowed; the last one wins.
pub(super) fn parse(source: &Arc<Source>) -> Checked<Node> {
    let mut reader = Reader { source, text: &source.text, at: 0, depth: 0 };
    let node = reader.read_value()?;
    reader.skip_blanks();
    if reader.at < reader.text.len() {
        return Err(reader.unexpected_token("after the end of the JSON value"));
    }
    Ok(node)
}

struct Reader<'a> {
    source: &'a Arc<Source>,
    text: &'a str,
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn peek_byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek_byte(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn error_at(&self, code: &'static str, start: usize, message: impl Into<String>) -> Box<Diagnostic> {
        let width = self.text[start.min(self.text.len())..].chars().next().map_or(0, char::len_utf8);
        Diagnostic::error(self.source, code, Span { start, end: start + width }, message)
    }

    fn unexpected_token(&self, place: &str) -> Box<Diagnostic> {
        match self.text[self.at..].chars().next() {
            None => self.error_at(codes::JSON_SYNTAX, self.at, "Unexpected end of JSON input"),
            Some(c) => {
                let message =
                    format!("Unexpected token {c:?} {place}, at position {} of the JSON text", self.at);
                let error = self.error_at(codes::JSON_SYNTAX, self.at, message);
                let help = match c {
                    '/' | '#' => "JSON has no comments; name the file .lobster or .yaml to use YAML",
                    '\u{feff}' => "remove the byte order mark",
                    '\'' => "JSON strings are in double quotes",
                    '}' | ']' => "there is a comma too many before it, or a value is missing",
                    _ => return error,
                };
                error.with_help(help).into()
            }
        }
    }

    fn read_value(&mut self) -> Checked<Node> {
        self.skip_blanks();
        let start = self.at;
        let data = match self.peek_byte() {
            Some(b'{') => self.read_nested(Self::read_map)?,
            Some(b'[') => self.read_nested(Self::read_list)?,
            Some(b'"') => Data::Text(self.read_string()?),
            Some(b'-' | b'0'..=b'9') => self.read_number()?,
            Some(b't') => self.read_word("true", Data::Bool(true))?,
            Some(b'f') => self.read_word("false", Data::Bool(false))?,
            Some(b'n') => self.read_word("null", Data::Null)?,
            _ => return Err(self.unexpected_token("where a value is expected")),
        };
        Ok(Node { data, span: Span { start, end: self.at } })
    }

    fn read_nested(&mut self, read: fn(&mut Self) -> Checked<Data>) -> Checked<Data> {
        if self.depth >= MAX_DEPTH {
            let message = format!("The file is nested more than {MAX_DEPTH} levels deep");
            return Err(self.error_at(codes::TOO_DEEP, self.at, message));
        }
        self.depth += 1;
        self.at += 1;
        let data = read(self);
        self.depth -= 1;
        data
    }

    fn read_word(&mut self, word: &str, data: Data) -> Checked<Data> {
        if !self.text[self.at..].starts_with(word) {
            return Err(self.unexpected_token("where a value is expected"));
        }
        self.at += word.len();
        Ok(data)
    }

    fn read_list(&mut self) -> Checked<Data> {
        let mut items = Vec::new();
        self.skip_blanks();
        if self.peek_byte() == Some(b']') {
            self.at += 1;
            return Ok(Data::List(items));
        }
        loop {
            items.push(self.read_value()?);
            self.skip_blanks();
            match self.peek_byte() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Data::List(items));
                }
                _ => return Err(self.unexpected_token("where `,` or `]` is expected")),
            }
        }
    }

    fn read_map(&mut self) -> Checked<Data> {
        let mut entries: Vec<MappingEntry> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        self.skip_blanks();
        if self.peek_byte() == Some(b'}') {
            self.at += 1;
            return Ok(Data::Map(entries));
        }
        loop {
            self.skip_blanks();
            let key_start = self.at;
            if self.peek_byte() != Some(b'"') {
                return Err(self.unexpected_token("where a double-quoted property name is expected"));
            }
            let key = self.read_string()?;
            let key_span = Span { start: key_start, end: self.at };
            self.skip_blanks();
            if self.peek_byte() != Some(b':') {
                return Err(self.unexpected_token("where `:` should stand"));
            }
            self.at += 1;
            let value = self.read_value()?;
            let entry = MappingEntry { key: key.clone(), key_span, value };
            match places.get(&key).and_then(|place| entries.get_mut(*place)) {
                Some(earlier) => *earlier = entry,
                None => {
                    places.insert(key, entries.len());
                    entries.push(entry);
                }
            }
            self.skip_blanks();
            match self.peek_byte() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Data::Map(entries));
                }
                _ => return Err(self.unexpected_token("where `,` or `}` is expected")),
            }
        }
    }

    fn read_number(&mut self) -> Checked<Data> {
        let start = self.at;
        while matches!(self.peek_byte(), Some(b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')) {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        match serde_json::from_str::<Number>(text) {
            Ok(number) => Ok(Data::Number(number)),
            // Too large for a double, but still a number.
            Err(_) if is_too_large_a_number(text) => Ok(Data::NotFinite),
            Err(_) => {
                let span = Span { start, end: self.at };
                let message = format!("{text} is not a JSON number, at position {start} of the JSON text");
                Err(Diagnostic::error(self.source, codes::JSON_SYNTAX, span, message))
            }
        }
    }

    /// A string from its opening to its closing quote.
    fn read_string(&mut self) -> Checked<String> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain = rest.find(|c: char| c == '"' || c == '\\' || c < ' ').unwrap_or(rest.len());
            out.push_str(&rest[..plain]);
            self.at += plain;
            match self.peek_byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => out.push(self.read_escape()?),
                Some(_) => {
                    let message = format!("Bad control character in a JSON string, at position {}", self.at);
                    return Err(self.error_at(codes::JSON_SYNTAX, self.at, message));
                }
                None => {
                    let message = format!("Unterminated string in JSON, begun at position {start}");
                    return Err(self.error_at(codes::JSON_SYNTAX, start, message));
                }
            }
        }
    }

    fn read_escape(&mut self) -> Checked<char> {
        let start = self.at;
        self.at += 1;
        let escaped = self.peek_byte();
        self.at += 1;
        Ok(match escaped {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.read_unicode_escape(start),
            _ => return Err(self.bad_escape(start)),
        })
    }

    fn bad_escape(&self, start: usize) -> Box<Diagnostic> {
        let message = format!("Bad escaped character in a JSON string, at position {start}");
        self.error_at(codes::JSON_SYNTAX, start, message)
    }

    fn read_hex_unit(&mut self, start: usize) -> Checked<u32> {
        let digits = self.text.get(self.at..self.at + 4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
        let unit = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let Some(unit) = unit else { return Err(self.bad_escape(start)) };
        self.at += 4;
        Ok(unit)
    }

    /// Half a surrogate pair is not a character and is read as U+FFFD.
    fn read_unicode_escape(&mut self, start: usize) -> Checked<char> {
        let first = self.read_hex_unit(start)?;
        if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with("\\u") {
            let before = self.at;
            self.at += 2;
            let second = self.read_hex_unit(before)?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or('\u{fffd}'));
            }
            self.at = before;
        }
        Ok(char::from_u32(first).unwrap_or('\u{fffd}'))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse_text(text: &str) -> Result<serde_json::Value, String> {
        let source = Arc::new(Source::new("t.json", "/t.json", text.as_bytes()));
        parse(&source)
            .map(|node| node.to_value())
            .map_err(|e| format!("{}:{} {}", e.line, e.column, e.message))
    }

    #[test]
    fn values() {
        assert_eq!(
            parse_text(r#" {"a":[1,-2.5e1,true,null,"\u00e9\ud83d\ude00\ud800\n"],"b":{},"a2":1e400} "#),
            Ok(json!({"a": [1, -25.0, true, null, "é😀\u{fffd}\n"], "b": {}, "a2": null}))
        );
        assert_eq!(parse_text(r#"{"a":1,"b":2,"a":3}"#), Ok(json!({"a": 3, "b": 2})));
    }

    #[test]
    fn refusals_say_where() {
        for (text, place) in [
            ("", "1:1 Unexpected end"),
            ("{oops", "1:2 Unexpected token 'o'"),
            ("\u{feff}{}", "1:1 Unexpected token"),
            ("{\"a\":1,}", "1:8 Unexpected token '}'"),
            ("[1,\n 2,]", "2:4 Unexpected token ']'"),
            ("[1] x", "1:5 Unexpected token 'x'"),
            ("[01]", "1:2 01 is not"),
            ("\"a\nb\"", "1:3 Bad control"),
            ("\"\\x\"", "1:2 Bad escaped"),
            ("\"abc", "1:1 Unterminated"),
            ("// x", "1:1 Unexpected token '/'"),
            ("tru", "1:1 Unexpected token 't'"),
        ] {
            let error = parse_text(text).expect_err(text);
            assert!(error.starts_with(place), "{text}: {error}");
        }
        assert!(parse_text(&"[".repeat(100_000)).expect_err("deep").contains("nested more than"));
    }
}
