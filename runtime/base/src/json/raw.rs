//! A value as its JSON text, which can be examined without parsing all of it.

use serde::Deserialize;
use serde_json::Value;

use super::scanner::end_of_plain;

/// The text of one value, checked by a [`super::scanner::Scanner`].
#[derive(Clone, Copy, Debug)]
pub struct RawItem<'t>(&'t [u8]);

impl<'t> RawItem<'t> {
    /// Takes the text of one JSON value that was scanned before.
    pub fn new(text: &'t [u8]) -> Self {
        Self(text)
    }

    /// Parses the value.
    ///
    /// # Errors
    /// If the text is not JSON after all.
    pub fn parse_value(self) -> serde_json::Result<Value> {
        let mut deserializer = serde_json::Deserializer::from_slice(self.0);
        deserializer.disable_recursion_limit();
        Value::deserialize(&mut deserializer)
    }

    /// The value of a field of an object; `None` if a quick scan cannot tell: the text is not an object, or a field's
    /// name contains escapes.
    pub fn find_field(self, name: &str) -> Option<Option<Self>> {
        let mut found = None;
        for field in self.object_fields()? {
            let (field, value) = field?;
            // As everywhere, the last field with a name wins.
            if field == name.as_bytes() {
                found = Some(value);
            }
        }
        Some(found)
    }

    /// Names and values of an object; `None` for a name with escapes.
    fn object_fields(self) -> Option<Fields<'t>> {
        (self.0.first() == Some(&b'{')).then_some(Fields { text: self.0, at: 1 })
    }
}

struct Fields<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Iterator for Fields<'t> {
    type Item = Option<(&'t [u8], RawItem<'t>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let text = self.text;
        let begin = self.skip_to(|byte| byte == b'"' || byte == b'}')?;
        if text[begin] == b'}' {
            return None;
        }
        let end = end_of_text(text, begin + 1);
        let name = text.get(begin + 1..end)?;
        self.at = end + 1;
        self.at = self.skip_to(|byte| byte == b':')? + 1;
        let value = self.skip_to(|byte| !matches!(byte, b' ' | b'\n' | b'\t' | b'\r'))?;
        self.at = end_of_value(text, value);
        if name.contains(&b'\\') {
            return Some(None);
        }
        Some(Some((name, RawItem(text.get(value..self.at)?))))
    }
}

impl Fields<'_> {
    /// Position of the next byte of this kind.
    fn skip_to(&self, wanted: impl Fn(u8) -> bool) -> Option<usize> {
        Some(self.at + self.text.get(self.at..)?.iter().position(|byte| wanted(*byte))?)
    }
}

/// Position of the closing quote of the string that contains `at`.
fn end_of_text(text: &[u8], mut at: usize) -> usize {
    loop {
        at = end_of_plain(text, at);
        match text.get(at) {
            None | Some(b'"') => return at,
            Some(b'\\') => at += 2,
            Some(_) => at += 1,
        }
        if at > text.len() {
            return text.len();
        }
    }
}

/// End of the value that begins at `at`.
fn end_of_value(text: &[u8], mut at: usize) -> usize {
    let mut depth = 0_usize;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => at = end_of_text(text, at + 1),
            b'[' | b'{' => depth += 1,
            b']' | b'}' if depth == 0 => return at,
            b']' | b'}' => depth -= 1,
            b',' if depth == 0 => return at,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 1;
        if depth == 0 {
            return at.min(text.len());
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_and_the_last_counts() {
        let text =
            br#"{"a" : {"b":["}",{}]} ,"x":[1,[2]],"n":-1.5e3 ,"t":"q\"}\\","u":"\u00e9","a":7,"e":{} }"#;
        let field = |name: &str| RawItem::new(text).find_field(name);
        let value = |name: &str| field(name).flatten().map(|raw| raw.parse_value().unwrap().to_string());
        for (name, expected) in [
            ("a", "7"),
            ("x", "[1,[2]]"),
            ("n", "-1500.0"),
            ("t", r#""q\"}\\""#),
            ("u", "\"é\""),
            ("e", "{}"),
        ] {
            assert_eq!(value(name).as_deref(), Some(expected), "{name}");
        }
        assert!(matches!(field("b"), Some(None)));
        assert!(matches!(RawItem::new(b"{}").find_field("a"), Some(None)));
        for unclear in [&br#"{"\u0061":1}"#[..], b"[1]", b"7", b"\"a\"", b"null"] {
            assert!(RawItem::new(unclear).find_field("a").is_none());
        }
    }
}
