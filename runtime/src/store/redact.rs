//! Keeps secret values out of everything that is written (invariant S5).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

use super::disguise::{Form, disguises};
use super::dump;
use super::spelling::{self, Found, Kind};

/// Shorter values are not looked for: they would be found everywhere.
const SHORTEST: usize = 4;

/// Most bytes that one byte of a secret takes in any form: a line of its own in a dump.
const WIDEST: usize = 18;
/// Lines of a dump that are needed whole besides.
const LINES: usize = 512;

/// Bytes of a stream that are looked through together.
const BATCH: usize = 32 << 10;

/// Secret values and what stands in their place: `«secret:NAME»`.
#[derive(Clone, Default)]
pub struct Redactions {
    /// The texts looked for, each with what is put there.
    pairs: Vec<(Form, String)>,
    /// Length of the longest value.
    longest: usize,
    search: Option<Arc<Search>>,
}

/// How the texts are found.
struct Search {
    /// As they are.
    plain: AhoCorasick,
    /// By two bytes that follow each other in a text: which text, and the place of the second.
    /// The first escape, or the first break between digits, stands before that.
    pairs: Vec<(u32, u32)>,
    /// Where the pairs of each two bytes begin in `pairs`.
    first: Vec<u32>,
    /// A bit for each two bytes that have pairs: small enough to be at hand all the time.
    seen: Vec<u64>,
    /// The texts that begin with a byte.
    begin: Vec<Vec<u32>>,
}

impl Search {
    fn new(forms: &[(Form, String)]) -> Option<Self> {
        let texts = forms.iter().map(|(form, _)| &form.text);
        let plain = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts).ok()?;
        let mut keyed: Vec<(u16, (u32, u32))> = Vec::new();
        let mut begin = vec![Vec::new(); 256];
        for (index, (form, _)) in forms.iter().enumerate().filter(|(_, (form, _))| form.kind.is_some()) {
            let index = u32::try_from(index).ok()?;
            begin[usize::from(form.text.as_bytes()[0])].push(index);
            for (at, two) in form.text.as_bytes().windows(2).enumerate() {
                keyed.push((key(two[0], two[1]), (index, u32::try_from(at + 1).ok()?)));
            }
        }
        keyed.sort_unstable();
        let mut first = vec![0; (1 << 16) + 1];
        let mut seen = vec![0_u64; 1 << 10];
        for (key, _) in &keyed {
            seen[usize::from(*key >> 6)] |= 1 << (key & 63);
            first[usize::from(*key) + 1] += 1;
        }
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        Some(Self { plain, pairs: keyed.into_iter().map(|(_, pair)| pair).collect(), first, seen, begin })
    }

    fn pairs(&self, before: u8, after: u8) -> &[(u32, u32)] {
        let key = key(before, after);
        if self.seen[usize::from(key >> 6)] & 1 << (key & 63) == 0 {
            return &[];
        }
        let key = usize::from(key);
        &self.pairs[self.first[key] as usize..self.first[key + 1] as usize]
    }
}

fn key(before: u8, after: u8) -> u16 {
    u16::from(before) << 8 | u16::from(after)
}

/// A place in a text, and which pair it belongs to.
type Place = (Range<usize>, usize);

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
        let (before, longest) = (self.pairs.len(), self.longest);
        for form in disguises(value) {
            if !self.pairs.iter().any(|(known, _)| known.text == form.text) {
                self.pairs.push((form, format!("«secret:{name}»")));
            }
        }
        self.longest = longest.max(value.len());
        match Search::new(&self.pairs) {
            Some(search) => self.search = Some(Arc::new(search)),
            // Only gigabytes of secrets are too many to look for.
            None => {
                self.pairs.truncate(before);
                self.longest = longest;
            }
        }
        self.pairs.iter().any(|(known, _)| known.text == value)
    }

    /// The mark of the first secret in `text`.
    #[must_use]
    pub fn first_in(&self, text: &str) -> Option<&str> {
        let places = self.places(text.as_bytes());
        self.pairs.get(places.first()?.1).map(|(_, mark)| mark.as_str())
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
        let places = self.places(bytes);
        if places.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut clean = Vec::with_capacity(bytes.len());
        self.replace(bytes, &places, bytes.len(), &mut clean);
        Cow::Owned(clean)
    }

    /// Writes `text` without what stands at `places`: all before `bound`, and what begins
    /// before it. Gives where the rest begins.
    fn replace(&self, text: &[u8], places: &[Place], bound: usize, clean: &mut Vec<u8>) -> usize {
        let mut at = 0;
        for (place, pair) in places.iter().take_while(|(place, _)| place.start < bound) {
            clean.extend_from_slice(&text[at..place.start]);
            clean.extend_from_slice(self.pairs[*pair].1.as_bytes());
            at = place.end;
        }
        if at < bound {
            clean.extend_from_slice(&text[at..bound]);
            at = bound;
        }
        at
    }

    /// Where secrets stand, in order and apart from each other.
    fn places(&self, text: &[u8]) -> Vec<Place> {
        let Some(search) = &self.search else { return Vec::new() };
        let mut places: Vec<Place> =
            search.plain.find_iter(text).map(|found| (found.range(), found.pattern().as_usize())).collect();
        let plain = places.len();
        let mut line = 0;
        let mut dumped = Dumped::default();
        for at in memchr::memchr3_iter(b'%', b'\\', b'&', text) {
            self.spelled_at(search, text, at, &mut places);
        }
        for at in memchr::memchr_iter(b'\n', text) {
            self.wrapped_at(search, text, at, &mut places);
            self.line(search, text, line..at, &mut dumped, &mut places);
            line = at + 1;
        }
        self.line(search, text, line..text.len(), &mut dumped, &mut places);
        dumped.end(search, &mut places);
        if places.len() > plain {
            merge(&mut places);
        }
        places
    }

    /// Texts whose first escape stands at `at`.
    fn spelled_at(&self, search: &Search, text: &[u8], at: usize, places: &mut Vec<Place>) {
        spelling::first_bytes(text, at, |first| {
            for form in &search.begin[usize::from(first)] {
                self.try_at(text, at, *form as usize, 0, places);
            }
            if at > 0 {
                let before = text[at - 1];
                for (form, index) in search.pairs(before, first) {
                    self.try_at(text, at, *form as usize, *index as usize, places);
                }
                if before == b'+' {
                    for (form, index) in search.pairs(b' ', first) {
                        self.try_at(text, at, *form as usize, *index as usize, places);
                    }
                }
            }
            // Digits may be wrapped by an escape.
            if matches!(first, b'\n' | b'\r') {
                self.wrapped_at(search, text, at, places);
            }
        });
    }

    /// Digits whose first break stands at `at`.
    fn wrapped_at(&self, search: &Search, text: &[u8], at: usize, places: &mut Vec<Place>) {
        let start = if at > 0 && text[at - 1] == b'\r' { at - 1 } else { at };
        let Some(&before) = start.checked_sub(1).and_then(|last| text.get(last)) else { return };
        // Nearly always the first byte of the next line tells that nothing goes on there.
        if let Some(&after) = text.get(at + 1)
            && text[at] == b'\n'
            && after.is_ascii_graphic()
            && !spelling::introduces(after)
            && search.pairs(before, after).is_empty()
            && search.pairs(before.to_ascii_lowercase(), after.to_ascii_lowercase()).is_empty()
        {
            return;
        }
        let Some(next) = spelling::after_break(text, start) else { return };
        let Some(&after) = text.get(next) else { return };
        let mut try_all = |before: u8, after: u8| {
            for (form, index) in search.pairs(before, after) {
                if self.pairs[*form as usize].0.kind != Some(Kind::Plain) {
                    self.try_at(text, start, *form as usize, *index as usize, places);
                }
            }
        };
        try_all(before, after);
        // Texts of hexadecimal digits are looked for with small ones.
        let (low_before, low_after) = (before.to_ascii_lowercase(), after.to_ascii_lowercase());
        if (low_before, low_after) != (before, after) {
            try_all(low_before, low_after);
        }
        if spelling::introduces(after) {
            spelling::first_bytes(text, next, |first| try_all(before, first));
        }
    }

    /// One text, of which the first bytes stand unescaped before `at`.
    fn try_at(&self, text: &[u8], at: usize, form: usize, done: usize, places: &mut Vec<Place>) {
        let (Form { text: wanted, kind }, _) = &self.pairs[form];
        let (Some(kind), Some(start)) = (*kind, at.checked_sub(done)) else { return };
        let (head, rest) = wanted.as_bytes().split_at(done);
        let same = |(byte, wanted): (&u8, &u8)| {
            byte == wanted
                || *byte == b'+' && *wanted == b' '
                || kind == Kind::Hex && byte.eq_ignore_ascii_case(wanted)
        };
        if !text[start..at].iter().zip(head).all(same) {
            return;
        }
        if let Found::Whole(end) = spelling::follow_from(text, at, rest, kind, done > 0) {
            places.push((start..end, form));
        }
    }

    fn line(
        &self,
        search: &Search,
        text: &[u8],
        line: Range<usize>,
        dumped: &mut Dumped,
        places: &mut Vec<Place>,
    ) {
        match dump::bytes_of(text, line.clone()) {
            Some(bytes) => dumped.take(bytes, line.end),
            None => dumped.end(search, places),
        }
    }

    /// Most bytes that a secret takes in any form, and what must be seen of the lines around.
    fn reach(&self) -> usize {
        let longest = self.pairs.iter().map(|(form, _)| form.text.len()).max().unwrap_or(0);
        longest.max(self.longest * WIDEST + LINES)
    }

    /// How much of a text that was cut off may be the beginning of a secret.
    fn begun(&self, text: &[u8]) -> usize {
        let from = text.len().saturating_sub(self.reach());
        let begins = |at: usize| {
            self.pairs.iter().any(|(form, _)| {
                let wanted = form.text.as_bytes();
                match form.kind {
                    None => wanted.starts_with(&text[at..]),
                    Some(kind) => spelling::follow(text, at, wanted, kind) == Found::Cut,
                }
            })
        };
        let written = (from..text.len()).find(|at| begins(*at)).unwrap_or(text.len());
        text.len() - written.min(self.begun_in_dump(text))
    }

    /// The same of a dump at the end of the text: where it has to be cut.
    fn begun_in_dump(&self, text: &[u8]) -> usize {
        let last = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut lines = Vec::new();
        let mut end = last;
        while end > 0 && text.len() - end <= self.reach() {
            let start = text[..end - 1].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let Some(bytes) = dump::bytes_of(text, start..end - 1) else { break };
            lines.push(bytes);
            end = start;
        }
        let own = dump::bytes_of(text, last..text.len());
        // A line that breaks off inside a dump may show anything.
        let mut cut = if lines.is_empty() && own.is_none() { text.len() } else { last };
        let shown: Vec<_> = lines.into_iter().rev().flatten().chain(own.into_iter().flatten()).collect();
        let bytes: Vec<u8> = shown.iter().map(|(byte, _)| *byte).collect();
        let values = self.pairs.iter().filter(|(form, _)| form.kind == Some(Kind::Plain));
        for (form, _) in values {
            let most = bytes.len().min(form.text.len() - 1);
            let begun = (1..=most).rev().find(|len| bytes.ends_with(&form.text.as_bytes()[..*len]));
            if let Some(len) = begun {
                cut = cut.min(shown[bytes.len() - len].1.start);
            }
        }
        cut
    }
}

/// The bytes of the lines of one dump.
#[derive(Default)]
struct Dumped {
    bytes: Vec<u8>,
    /// Of each byte where it begins, and where its line ends.
    places: Vec<(usize, usize)>,
}

impl Dumped {
    fn take(&mut self, bytes: Vec<dump::Shown>, line_end: usize) {
        for (byte, place) in bytes {
            self.bytes.push(byte);
            self.places.push((place.start, line_end));
        }
    }

    /// Looks for secrets in a dump that is over. What follows one in its last line
    /// goes with it: there the characters stand once more.
    fn end(&mut self, search: &Search, places: &mut Vec<Place>) {
        for found in search.plain.find_iter(&self.bytes) {
            let (start, end) = (self.places[found.start()].0, self.places[found.end() - 1].1);
            places.push((start..end, found.pattern().as_usize()));
        }
        self.bytes.clear();
        self.places.clear();
    }
}

/// Makes one of places that overlap.
fn merge(places: &mut Vec<Place>) {
    places.sort_by(|(a, _), (b, _)| a.start.cmp(&b.start).then(b.end.cmp(&a.end)));
    places.dedup_by(|(next, _), (kept, _)| {
        let overlap = next.start < kept.end;
        if overlap {
            kept.end = kept.end.max(next.end);
        }
        overlap
    });
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
    reach: usize,
}

impl Redactor {
    /// `None` when there is nothing to hide.
    pub(crate) fn new(redactions: Arc<Redactions>) -> Option<Self> {
        if redactions.is_empty() {
            return None;
        }
        let reach = redactions.reach();
        Some(Self { redactions, held: Vec::new(), reach })
    }

    /// Takes the next piece, gives what is certain by now.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(bytes);
        // What is held back is looked through again each time.
        if self.held.len() < self.reach + BATCH.max(self.reach) {
            return Vec::new();
        }
        let sure = self.held.len() - self.reach;
        // What is left must begin with a whole line, so that lines of dumps are known.
        let line = self.held[sure.saturating_sub(BATCH / 2)..sure].iter().rposition(|byte| *byte == b'\n');
        let bound = line.map_or(sure, |at| sure.saturating_sub(BATCH / 2) + at + 1);
        let mut clean = Vec::with_capacity(bound);
        let places = self.redactions.places(&self.held);
        let rest = self.redactions.replace(&self.held, &places, bound, &mut clean);
        self.held.drain(..rest);
        clean
    }

    /// Gives the rest of a stream that was cut off, without what may be the
    /// beginning of a secret.
    pub(crate) fn finish_cut(mut self) -> Vec<u8> {
        let unsure = self.redactions.begun(&self.held);
        // A secret that is there whole is hidden, not cut.
        let whole = self.redactions.places(&self.held).last().map_or(0, |(place, _)| place.end);
        self.held.truncate((self.held.len() - unsure).max(whole));
        self.finish()
    }

    /// Gives the rest.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.redactions.bytes(&self.held).into_owned()
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
