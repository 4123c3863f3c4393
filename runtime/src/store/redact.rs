//! Keeps secret values out of everything that is written (invariant S5).

use std::borrow::Cow;

use serde_json::Value;

/// Shorter values are not looked for: they would be found everywhere.
const SHORTEST: usize = 4;

/// Secret values and what stands in their place: `«secret:NAME»`.
#[derive(Clone, Default)]
pub struct Redactions {
    /// The text looked for and the text put there, longest first.
    pairs: Vec<(String, String)>,
}

impl Redactions {
    /// Nothing to hide.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Hides `value`, also as it looks inside a JSON text. False when it is
    /// too short to be told from other text; the caller should say so.
    #[must_use]
    pub fn add(&mut self, name: &str, value: &str) -> bool {
        if value.len() < SHORTEST {
            return false;
        }
        let quoted = crate::json::compact(&value);
        let inner = &quoted[1..quoted.len() - 1];
        for form in [value, inner] {
            if !self.pairs.iter().any(|(known, _)| known == form) {
                self.pairs.push((form.to_owned(), format!("«secret:{name}»")));
            }
        }
        self.pairs.sort_by_key(|(form, _)| std::cmp::Reverse(form.len()));
        true
    }

    /// Whether there is nothing to hide.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// `text` without secrets.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut clean = Cow::Borrowed(text);
        for (secret, mark) in &self.pairs {
            if clean.contains(secret) {
                clean = Cow::Owned(clean.replace(secret, mark));
            }
        }
        clean
    }

    /// Hides secrets in all strings and field names of `value`.
    pub fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(clean) = self.text(text) {
                    *text = clean;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(map) => {
                if map.keys().any(|key| matches!(self.text(key), Cow::Owned(_))) {
                    *map = std::mem::take(map)
                        .into_iter()
                        .map(|(key, value)| (self.text(&key).into_owned(), value))
                        .collect();
                }
                map.values_mut().for_each(|value| self.value(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// `bytes` without secrets, if they are text; anything else stays as it is.
    #[must_use]
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_empty() {
            return Cow::Borrowed(bytes);
        }
        match std::str::from_utf8(bytes).map(|text| self.text(text)) {
            Ok(Cow::Owned(clean)) => Cow::Owned(clean.into_bytes()),
            _ => Cow::Borrowed(bytes),
        }
    }
}

/// Never shows what it hides.
impl std::fmt::Debug for Redactions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.pairs.iter().map(|(_, mark)| mark)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn secrets(pairs: &[(&str, &str)]) -> Redactions {
        let mut redactions = Redactions::new();
        for (name, value) in pairs {
            assert!(redactions.add(name, value));
        }
        redactions
    }

    #[test]
    fn hides_values_in_strings_keys_and_quoted_text() {
        let redactions = secrets(&[("KEY", "hunter2"), ("Q", "pa\"ss")]);
        let mut value = json!({"hunter2": ["x hunter2 y hunter2", {"t": "{\"p\":\"pa\\\"ss\"}"}], "n": 7});
        redactions.value(&mut value);
        assert_eq!(
            value,
            json!({"«secret:KEY»": ["x «secret:KEY» y «secret:KEY»", {"t": "{\"p\":\"«secret:Q»\"}"}], "n": 7})
        );
        assert_eq!(redactions.bytes(b"\xff hunter2").as_ref(), b"\xff hunter2");
        assert_eq!(format!("{redactions:?}"), r#"["«secret:KEY»", "«secret:Q»", "«secret:Q»"]"#);
    }

    #[test]
    fn the_longer_of_two_overlapping_secrets_wins_and_short_ones_are_refused() {
        let redactions = secrets(&[("A", "token"), ("B", "token-long")]);
        assert_eq!(redactions.text("a token-long token"), "a «secret:B» «secret:A»");
        assert!(!Redactions::new().add("S", "abc"));
    }
}
