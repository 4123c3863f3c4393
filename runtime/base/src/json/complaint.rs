//! The error messages of `JSON.parse` in V8's wording, for text that is not JSON. Programs and people know these
//! messages, and they quote the text.

/// UTF-16 units that V8 quotes before and after the position.
const CONTEXT: usize = 10;

/// The error, and its position.
enum Fault {
    /// The text ends too early.
    End,
    /// A token that is not allowed here.
    Token(usize),
    /// An error with its own message in V8.
    At(&'static str, usize),
}

/// The message of `JSON.parse`; `None` if it accepts the text.
pub fn js_parse_error(text: &str) -> Option<String> {
    let units: Vec<u16> = text.encode_utf16().collect();
    let mut reader = Reader { units: &units, at: 0 };
    let fault = reader.read_document().err()?;
    Some(match fault {
        Fault::End => "Unexpected end of JSON input".to_owned(),
        Fault::At(what, at) => reader.message_at(what, at),
        Fault::Token(at) => reader.token_message(at),
    })
}

/// Reads the text without storing values. Open lists and objects are on a separate stack, so nesting uses no call
/// stack.
struct Reader<'t> {
    units: &'t [u16],
    at: usize,
}

/// An open bracket.
#[derive(Clone, Copy, PartialEq)]
enum Open {
    List,
    Object,
}

type Step<T> = Result<T, Fault>;

impl Reader<'_> {
    fn read_document(&mut self) -> Step<()> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            // A value begins here.
            match self.next() {
                Some(b'[') => {
                    self.at += 1;
                    if self.next() != Some(b']') {
                        open.push(Open::List);
                        continue;
                    }
                    self.at += 1;
                }
                Some(b'{') => {
                    self.at += 1;
                    if self.next() != Some(b'}') {
                        self.read_name("Expected property name or '}'")?;
                        open.push(Open::Object);
                        continue;
                    }
                    self.at += 1;
                }
                _ => self.read_scalar()?,
            }
            // A value has ended: its list or object continues or ends.
            loop {
                let next = self.next();
                let Some(inner) = open.last().copied() else {
                    return match next {
                        None if self.at == self.units.len() => Ok(()),
                        _ => Err(Fault::At("Unexpected non-whitespace character after JSON", self.at)),
                    };
                };
                match (inner, next) {
                    (Open::List, Some(b',')) => {
                        self.at += 1;
                        break;
                    }
                    (Open::Object, Some(b',')) => {
                        self.at += 1;
                        self.read_name("Expected double-quoted property name")?;
                        break;
                    }
                    (Open::List, Some(b']')) | (Open::Object, Some(b'}')) => {
                        self.at += 1;
                        open.pop();
                    }
                    (Open::List, _) => {
                        return Err(Fault::At("Expected ',' or ']' after array element", self.at));
                    }
                    (Open::Object, _) => {
                        return Err(Fault::At("Expected ',' or '}' after property value", self.at));
                    }
                }
            }
        }
    }

    /// A field's name and its colon.
    fn read_name(&mut self, wanted: &'static str) -> Step<()> {
        if self.next() != Some(b'"') {
            return Err(Fault::At(wanted, self.at));
        }
        self.read_string()?;
        if self.next() != Some(b':') {
            return Err(Fault::At("Expected ':' after property name", self.at));
        }
        self.at += 1;
        Ok(())
    }

    fn read_scalar(&mut self) -> Step<()> {
        match self.next() {
            Some(b'"') => self.read_string(),
            Some(b'-' | b'0'..=b'9') => self.read_number(),
            Some(b't') => self.read_literal("true"),
            Some(b'f') => self.read_literal("false"),
            Some(b'n') => self.read_literal("null"),
            _ => Err(self.unexpected_fault()),
        }
    }

    fn read_literal(&mut self, word: &str) -> Step<()> {
        for expected in word.bytes() {
            if self.peek_ascii() != Some(expected) {
                return Err(self.unexpected_fault());
            }
            self.at += 1;
        }
        Ok(())
    }

    fn read_number(&mut self) -> Step<()> {
        if self.peek_ascii() == Some(b'-') {
            self.at += 1;
            if !self.peek_ascii().is_some_and(|c| c.is_ascii_digit()) {
                return Err(Fault::At("No number after minus sign", self.at));
            }
        }
        if self.peek_ascii() == Some(b'0') {
            self.at += 1;
            if self.peek_ascii().is_some_and(|c| c.is_ascii_digit()) {
                return Err(Fault::At("Unexpected number", self.at));
            }
        } else {
            self.read_digits();
        }
        if self.peek_ascii() == Some(b'.') {
            self.at += 1;
            if !self.read_digits() {
                return Err(Fault::At("Unterminated fractional number", self.at));
            }
        }
        if matches!(self.peek_ascii(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek_ascii(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            if !self.read_digits() {
                return Err(Fault::At("Exponent part is missing a number", self.at));
            }
        }
        Ok(())
    }

    fn read_digits(&mut self) -> bool {
        let begin = self.at;
        while self.peek_ascii().is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
        }
        self.at > begin
    }

    fn read_string(&mut self) -> Step<()> {
        self.at += 1;
        loop {
            match self.units.get(self.at).copied() {
                None => return Err(Fault::At("Unterminated string", self.at)),
                Some(0..=0x1f) => {
                    return Err(Fault::At("Bad control character in string literal", self.at));
                }
                Some(0x22) => {
                    self.at += 1;
                    return Ok(());
                }
                Some(0x5c) => {
                    self.at += 1;
                    self.read_escape()?;
                }
                Some(_) => self.at += 1,
            }
        }
    }

    fn read_escape(&mut self) -> Step<()> {
        match self.peek_ascii() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek_ascii().is_some_and(|c| c.is_ascii_hexdigit()) {
                        return Err(Fault::At("Bad Unicode escape", self.at));
                    }
                    self.at += 1;
                }
            }
            None if self.at == self.units.len() => return Err(Fault::End),
            _ => return Err(Fault::At("Bad escaped character", self.at)),
        }
        Ok(())
    }

    /// The current character, if it is ASCII.
    fn peek_ascii(&self) -> Option<u8> {
        self.units.get(self.at).and_then(|unit| u8::try_from(*unit).ok()).filter(u8::is_ascii)
    }

    /// The next character that is not a blank, if it is ASCII.
    fn next(&mut self) -> Option<u8> {
        while matches!(self.peek_ascii(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.peek_ascii()
    }

    fn unexpected_fault(&self) -> Fault {
        match self.peek_ascii() {
            None if self.at == self.units.len() => Fault::End,
            Some(b'"') => Fault::At("Unexpected string", self.at),
            Some(b'-' | b'0'..=b'9') => Fault::At("Unexpected number", self.at),
            _ => Fault::Token(self.at),
        }
    }

    fn message_at(&self, what: &str, at: usize) -> String {
        let before = &self.units[..at];
        let line = before.iter().filter(|unit| **unit == 0x0a).count() + 1;
        let begin = before.iter().rposition(|unit| *unit == 0x0a).map_or(0, |at| at + 1);
        let whole = if what.ends_with("JSON") { "" } else { " in JSON" };
        format!("{what}{whole} at position {at} (line {line} column {})", at - begin + 1)
    }

    fn token_message(&self, at: usize) -> String {
        let all = String::from_utf16_lossy(self.units);
        if matches!(all.as_str(), "NaN" | "Infinity" | "undefined" | "[object Object]") {
            return format!("\"{all}\" is not valid JSON");
        }
        let shown = |range: std::ops::Range<usize>| String::from_utf16_lossy(&self.units[range]);
        let (length, token) = (self.units.len(), shown(at..at + 1));
        let context = if length <= 2 * CONTEXT {
            format!("\"{all}\"")
        } else if at < CONTEXT {
            format!("\"{}\"...", shown(0..at + CONTEXT))
        } else if at < length - CONTEXT {
            format!("...\"{}\"...", shown(at - CONTEXT..at + CONTEXT))
        } else {
            format!("...\"{}\"", shown(at - CONTEXT..length))
        };
        format!("Unexpected token '{token}', {context} is not valid JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts with the messages of `JSON.parse` in V8 12.4, one pair per line.
    const SAID: &str = include_str!("complaints.jsonl");

    #[test]
    fn complaints_are_those_of_v8() {
        let mut wrong = Vec::new();
        for line in SAID.lines() {
            let (text, said): (String, Option<String>) = serde_json::from_str(line).unwrap();
            let ours = js_parse_error(&text);
            if ours != said {
                wrong.push(format!("{text:?}: {ours:?} instead of {said:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics_and_json_has_no_complaint(text in r#"[\[\]{}:,"\\0-9eE+.truefalsn é😀\n-]{0,30}"#) {
            let is_json = serde_json::from_str::<serde::de::IgnoredAny>(&text).is_ok();
            proptest::prop_assert!(!is_json || js_parse_error(&text).is_none(), "{}", text);
        }
    }
}
