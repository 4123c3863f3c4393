//! Keeps secret values out of everything that is written (invariant S5).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

use super::disguise::disguises;

/// Shorter values are not looked for: they would be found everywhere.
const SHORTEST: usize = 4;

/// Secret values and what stands in their place: `«secret:NAME»`.
#[derive(Clone, Default)]
pub struct Redactions {
    /// The text looked for and the text put there.
    pairs: Vec<(String, String)>,
    finder: Option<AhoCorasick>,
}

impl Redactions {
    /// Nothing to hide.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Hides `value`, also as it looks when programs quote or encode it. False
    /// when it is too short to be told from other text (under 4 bytes); the
    /// caller should say so.
    #[must_use]
    pub fn add(&mut self, name: &str, value: &str) -> bool {
        if value.len() < SHORTEST {
            return false;
        }
        let before = self.pairs.len();
        for form in disguises(value) {
            if !self.pairs.iter().any(|(known, _)| *known == form) {
                self.pairs.push((form, format!("«secret:{name}»")));
            }
        }
        let forms = self.pairs.iter().map(|(form, _)| form);
        match AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(forms) {
            Ok(finder) => self.finder = Some(finder),
            // Only gigabytes of secrets are too many to look for.
            Err(_) => self.pairs.truncate(before),
        }
        self.pairs.iter().any(|(known, _)| known == value)
    }

    /// The mark of the first secret in `text`.
    #[must_use]
    pub fn first_in(&self, text: &str) -> Option<&str> {
        let found = self.finder.as_ref()?.find(text)?;
        self.pairs.get(found.pattern().as_usize()).map(|(_, mark)| mark.as_str())
    }

    /// Whether there is nothing to hide.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// `text` without secrets.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            // Both the secrets and the marks are whole characters.
            Cow::Owned(clean) => Cow::Owned(String::from_utf8_lossy(&clean).into_owned()),
            Cow::Borrowed(_) => Cow::Borrowed(text),
        }
    }

    /// Hides secrets in all strings and field names of `value`.
    pub fn value(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
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

    /// `bytes` without secrets.
    #[must_use]
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if !self.finder.as_ref().is_some_and(|finder| finder.is_match(bytes)) {
            return Cow::Borrowed(bytes);
        }
        let mut clean = Vec::with_capacity(bytes.len());
        let mut rest = bytes.to_vec();
        self.emit(&mut rest, bytes.len(), &mut clean);
        Cow::Owned(clean)
    }

    /// Moves the beginning of `held` to `clean`, without secrets: all that
    /// stands before `bound`, and a secret that begins before it.
    fn emit(&self, held: &mut Vec<u8>, bound: usize, clean: &mut Vec<u8>) {
        let mut at = 0;
        for found in self.finder.iter().flat_map(|finder| finder.find_iter(&*held)) {
            if found.start() >= bound {
                break;
            }
            clean.extend_from_slice(&held[at..found.start()]);
            clean.extend_from_slice(self.pairs[found.pattern().as_usize()].1.as_bytes());
            at = found.end();
        }
        if at < bound {
            clean.extend_from_slice(&held[at..bound]);
            at = bound;
        }
        held.drain(..at);
    }
}

/// Never shows what it hides.
impl std::fmt::Debug for Redactions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let marks: BTreeSet<_> = self.pairs.iter().map(|(_, mark)| mark).collect();
        f.debug_list().entries(marks).finish()
    }
}

/// Hides secrets in bytes that come in pieces. It holds back as many bytes as
/// could be the beginning of a secret.
pub(crate) struct Redactor {
    redactions: Arc<Redactions>,
    held: Vec<u8>,
    /// One less than the longest secret.
    reach: usize,
}

impl Redactor {
    /// `None` when there is nothing to hide.
    pub(crate) fn new(redactions: Arc<Redactions>) -> Option<Self> {
        let longest = redactions.pairs.iter().map(|(form, _)| form.len()).max()?;
        Some(Self { redactions, held: Vec::new(), reach: longest - 1 })
    }

    /// Takes the next piece, gives what is certain by now.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        let bound = self.held.len().saturating_sub(self.reach);
        let mut clean = Vec::with_capacity(bytes.len());
        self.redactions.emit(&mut self.held, bound, &mut clean);
        clean
    }

    /// Gives the rest of a stream that was cut off, without what may be the
    /// beginning of a secret.
    pub(crate) fn finish_cut(mut self) -> Vec<u8> {
        let begun = |(form, _): &(String, String)| {
            let most = self.held.len().min(form.len() - 1);
            (1..=most).rev().find(|len| self.held.ends_with(&form.as_bytes()[..*len])).unwrap_or(0)
        };
        let unsure = self.redactions.pairs.iter().map(begun).max().unwrap_or(0);
        self.held.truncate(self.held.len() - unsure);
        self.finish()
    }

    /// Gives the rest.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let (bound, mut clean) = (self.held.len(), Vec::new());
        self.redactions.emit(&mut self.held, bound, &mut clean);
        clean
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn secrets(pairs: &[(&str, &str)]) -> Redactions {
        let mut redactions = Redactions::new();
        for (name, value) in pairs {
            assert!(redactions.add(name, value));
        }
        redactions
    }

    #[test]
    fn hides_values_in_strings_keys_and_quoted_text() {
        let redactions = secrets(&[("KEY", "hunter2"), ("Q", "pa\"ss"), ("KEY", "hunter2")]);
        let mut value = json!({"hunter2": ["x hunter2 y hunter2", {"t": "{\"p\":\"pa\\\"ss\"}"}], "n": 7});
        redactions.value(&mut value);
        assert_eq!(
            value,
            json!({"«secret:KEY»": ["x «secret:KEY» y «secret:KEY»", {"t": "{\"p\":\"«secret:Q»\"}"}], "n": 7})
        );
        let binary = [b"\xff ".as_slice(), "«secret:KEY»".as_bytes()].concat();
        assert_eq!(redactions.bytes(b"\xff hunter2").as_ref(), binary);
        assert_eq!(format!("{redactions:?}"), r#"["«secret:KEY»", "«secret:Q»"]"#);
    }

    #[test]
    fn the_longer_of_two_overlapping_secrets_wins_and_short_ones_are_refused() {
        let redactions = secrets(&[("A", "token"), ("B", "token-long")]);
        assert_eq!(redactions.text("a token-long token"), "a «secret:B» «secret:A»");
        assert!(!Redactions::new().add("S", "abc"));
    }

    #[test]
    fn a_cut_stream_does_not_end_with_the_beginning_of_a_secret() {
        let redactions = Arc::new(secrets(&[("KEY", "correct horse")]));
        for (text, kept) in [("x correct hors", "x "), ("x correct horse", "x «secret:KEY»"), ("x y", "x y")]
        {
            let mut redactor = Redactor::new(Arc::clone(&redactions)).unwrap();
            let mut clean = redactor.push(text.as_bytes());
            clean.extend(redactor.finish_cut());
            assert_eq!(String::from_utf8_lossy(&clean), kept);
        }
    }

    proptest! {
        #[test]
        fn pieces_do_not_matter(
            words in prop::collection::vec(prop_oneof!["[abc]{1,6}", Just("abcabc".to_owned()), Just("cabb".to_owned())], 0..20),
            cut in 1..9_usize,
        ) {
            let redactions = secrets(&[("A", "abcabc"), ("B", "cabb"), ("C", "abcabca")]);
            let text = words.concat();
            let whole = redactions.bytes(text.as_bytes()).into_owned();
            let mut pieces = Redactor::new(Arc::new(redactions)).unwrap();
            let mut clean: Vec<u8> = text.as_bytes().chunks(cut).flat_map(|piece| pieces.push(piece)).collect();
            clean.extend(pieces.finish());
            prop_assert_eq!(clean, whole);
        }
    }
}
