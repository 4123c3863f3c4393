//! Keeps secret values out of everything that is written (invariant S5).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use aho_corasick::{AhoCorasick, MatchKind};
use serde_json::Value;

use super::dump;
use super::secret_spellings::{Form, secret_forms};
use super::spelling::{self, Glance, SpellingFound, SpellingKind};

/// Shorter values are not hidden, since they would be found everywhere.
const SHORTEST: usize = 4;

/// Most bytes that one byte of a secret takes in any form: a whole line of a dump.
const WIDEST: usize = 18;
/// Further bytes that are needed so that the lines of a dump are complete.
const LINES: usize = 512;

/// Bytes of a stream that are searched together.
const BATCH: usize = 32 << 10;

/// Passing lines on early may take 1/`SHARE` of a stream's duration.
const SHARE: u32 = 20;

/// Additional time for that at the beginning.
const ADVANCE: Duration = Duration::from_millis(50);

/// Secret values and their replacements: `«secret:NAME»`.
#[derive(Clone, Default)]
pub struct Redactions {
    /// The texts to find, each with its replacement.
    pairs: Vec<(Form, String)>,
    /// Length of the longest value.
    longest: usize,
    search: Option<Arc<Search>>,
}

/// Index of the texts.
struct Search {
    /// The unescaped texts.
    plain: AhoCorasick,
    /// For each two consecutive bytes of a text: the text, and the position of the second byte. The first escape, or
    /// the first break between digits, is in front of that byte.
    pairs: Vec<(u32, u32)>,
    /// Start in `pairs` of the entries for each two bytes.
    first: Vec<u32>,
    /// Pairs of bytes that have entries.
    seen: TwoBytes,
    /// Pairs of bytes between which digits may be wrapped.
    wrapped: TwoBytes,
    /// Texts by their first byte.
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
                keyed.push((pair_key(two[0], two[1]), (index, u32::try_from(at + 1).ok()?)));
            }
        }
        keyed.sort_unstable();
        let mut first = vec![0; (1 << 16) + 1];
        let (mut seen, mut wrapped) = (TwoBytes::new(), TwoBytes::new());
        for (two, (form, _)) in &keyed {
            first[usize::from(*two) + 1] += 1;
            seen.add_pair(*two);
            match forms[*form as usize].0.kind {
                Some(SpellingKind::Digits) => wrapped.add_pair(*two),
                // Texts of this kind are in lower case.
                Some(SpellingKind::Hex) => {
                    let [before, after] = two.to_be_bytes();
                    for before in [before, before.to_ascii_uppercase()] {
                        wrapped.add_pair(pair_key(before, after));
                        wrapped.add_pair(pair_key(before, after.to_ascii_uppercase()));
                    }
                }
                Some(SpellingKind::Plain) | None => {}
            }
        }
        for at in 1..first.len() {
            first[at] += first[at - 1];
        }
        let pairs = keyed.into_iter().map(|(_, pair)| pair).collect();
        Some(Self { plain, pairs, first, seen, wrapped, begin })
    }

    /// True if a text may contain these two bytes, with the second one escaped, or may begin with it.
    fn may_spell(&self, before: Option<u8>, first: u8) -> bool {
        !self.begin[usize::from(first)].is_empty()
            || before.is_some_and(|before| {
                self.seen.contains_pair(pair_key(before, first))
                    || before == b'+' && self.seen.contains_pair(pair_key(b' ', first))
            })
    }

    fn forms_with_pair(&self, before: u8, after: u8) -> &[(u32, u32)] {
        let key = pair_key(before, after);
        if !self.seen.contains_pair(key) {
            return &[];
        }
        let key = usize::from(key);
        &self.pairs[self.first[key] as usize..self.first[key + 1] as usize]
    }
}

/// A bit for each pair of bytes: small enough to stay in the CPU's cache.
struct TwoBytes(Box<[u64; 1 << 10]>);

impl TwoBytes {
    fn new() -> Self {
        Self(Box::new([0; 1 << 10]))
    }

    fn add_pair(&mut self, key: u16) {
        self.0[usize::from(key >> 6)] |= 1 << (key & 63);
    }

    fn contains_pair(&self, key: u16) -> bool {
        self.0[usize::from(key >> 6)] & 1 << (key & 63) != 0
    }
}

fn pair_key(before: u8, after: u8) -> u16 {
    u16::from(before) << 8 | u16::from(after)
}

/// A range in a text, and the index of the secret found there.
type Place = (Range<usize>, usize);

impl Redactions {
    /// Hides nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Hides `value`, including its quoted and encoded forms. Returns false if it is too short to distinguish from other
    /// text (under 4 bytes); the caller should report that.
    #[must_use]
    pub fn add_secret(&mut self, name: &str, value: &str) -> bool {
        if value.len() < SHORTEST {
            return false;
        }
        let (before, longest) = (self.pairs.len(), self.longest);
        for form in secret_forms(value) {
            if !self.pairs.iter().any(|(known, _)| known.text == form.text) {
                self.pairs.push((form, format!("«secret:{name}»")));
            }
        }
        self.longest = longest.max(value.len());
        match Search::new(&self.pairs) {
            Some(search) => self.search = Some(Arc::new(search)),
            // Only gigabytes of secrets are too many to search for.
            None => {
                self.pairs.truncate(before);
                self.longest = longest;
            }
        }
        self.pairs.iter().any(|(known, _)| known.text == value)
    }

    /// The replacement of the first secret in `text`.
    #[must_use]
    pub fn first_in(&self, text: &str) -> Option<&str> {
        let places = self.find_secrets(text.as_bytes());
        self.pairs.get(places.first()?.1).map(|(_, mark)| mark.as_str())
    }

    /// Number of unescaped secrets in `text`: a lower bound for the cost of any search.
    #[must_use]
    #[doc(hidden)]
    pub fn plain_pass(&self, text: &[u8]) -> usize {
        self.search.as_ref().map_or(0, |search| search.plain.find_iter(text).count())
    }

    /// True if there is nothing to hide.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// `text` with secrets replaced.
    #[must_use]
    pub fn hide_in_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.hide_in_bytes(text.as_bytes()) {
            // Both the secrets and their replacements are valid UTF-8.
            Cow::Owned(clean) => Cow::Owned(String::from_utf8_lossy(&clean).into_owned()),
            Cow::Borrowed(_) => Cow::Borrowed(text),
        }
    }

    /// Hides secrets in all strings and field names of `value`.
    pub fn hide_in_value(&self, value: &mut Value) {
        if self.is_empty() {
            return;
        }
        match value {
            Value::String(text) => {
                if let Cow::Owned(clean) = self.hide_in_text(text) {
                    *text = clean;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide_in_value(item)),
            Value::Object(map) => {
                if map.keys().any(|key| matches!(self.hide_in_text(key), Cow::Owned(_))) {
                    *map = std::mem::take(map)
                        .into_iter()
                        .map(|(key, value)| (self.hide_in_text(&key).into_owned(), value))
                        .collect();
                }
                map.values_mut().for_each(|value| self.hide_in_value(value));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// `bytes` with secrets replaced.
    #[must_use]
    pub fn hide_in_bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let places = self.find_secrets(bytes);
        if places.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut clean = Vec::with_capacity(bytes.len());
        self.replace_secrets(bytes, &places, bytes.len(), &mut clean);
        Cow::Owned(clean)
    }

    /// Writes `text` up to `bound` with the secrets at `places` replaced, including secrets that begin before `bound`
    /// and end after it. Returns the position of the rest.
    fn replace_secrets(&self, text: &[u8], places: &[Place], bound: usize, clean: &mut Vec<u8>) -> usize {
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

    /// Ranges of the secrets, in order and without overlaps.
    fn find_secrets(&self, text: &[u8]) -> Vec<Place> {
        let Some(search) = &self.search else { return Vec::new() };
        let mut places: Vec<Place> =
            search.plain.find_iter(text).map(|found| (found.range(), found.pattern().as_usize())).collect();
        let plain = places.len();
        let mut line = 0;
        let mut dumped = Dumped::default();
        for at in mark_positions(text) {
            if text[at] == b'\n' {
                self.wrapped_at(search, text, at, &mut places);
                self.search_line(search, text, line..at, &mut dumped, &mut places);
                line = at + 1;
            } else if may_matter(search, text, at) {
                self.spelled_at(search, text, at, &mut places);
            }
        }
        self.search_line(search, text, line..text.len(), &mut dumped, &mut places);
        dumped.finish_dump(search, text, &mut places);
        if places.len() > plain {
            merge_ranges(&mut places);
        }
        places
    }

    /// Finds texts whose first escape is at `at`.
    fn spelled_at(&self, search: &Search, text: &[u8], at: usize, places: &mut Vec<Place>) {
        spelling::first_bytes(text, at, |first| {
            for form in &search.begin[usize::from(first)] {
                self.try_at(text, at, *form as usize, 0, places);
            }
            if at > 0 {
                let before = text[at - 1];
                for (form, index) in search.forms_with_pair(before, first) {
                    self.try_at(text, at, *form as usize, *index as usize, places);
                }
                if before == b'+' {
                    for (form, index) in search.forms_with_pair(b' ', first) {
                        self.try_at(text, at, *form as usize, *index as usize, places);
                    }
                }
            }
            // An escape can stand for a line break that wraps digits.
            if matches!(first, b'\n' | b'\r') {
                self.wrapped_at(search, text, at, places);
            }
        });
    }

    /// Finds digits whose first break is at `at`.
    fn wrapped_at(&self, search: &Search, text: &[u8], at: usize, places: &mut Vec<Place>) {
        let start = if at > 0 && text[at - 1] == b'\r' { at - 1 } else { at };
        let Some(&before) = start.checked_sub(1).and_then(|last| text.get(last)) else { return };
        // The first byte of the next line nearly always shows that the digits do not continue there.
        if text[at] == b'\n' && !may_go_on(search, before, text, at + 1) {
            return;
        }
        let Some(next) = spelling::after_break(text, start) else { return };
        let Some(&after) = text.get(next) else { return };
        let mut try_all = |before: u8, after: u8| {
            for (form, index) in search.forms_with_pair(before, after) {
                if self.pairs[*form as usize].0.kind != Some(SpellingKind::Plain) {
                    self.try_at(text, start, *form as usize, *index as usize, places);
                }
            }
        };
        try_all(before, after);
        // Texts of hexadecimal digits are searched for in lower case.
        let (low_before, low_after) = (before.to_ascii_lowercase(), after.to_ascii_lowercase());
        if (low_before, low_after) != (before, after) {
            try_all(low_before, low_after);
        }
        if spelling::begins_escape(after) {
            spelling::first_bytes(text, next, |first| try_all(before, first));
        }
    }

    /// Tries one text whose first bytes are unescaped before `at`.
    fn try_at(&self, text: &[u8], at: usize, form: usize, done: usize, places: &mut Vec<Place>) {
        let (Form { text: wanted, kind }, _) = &self.pairs[form];
        let (Some(kind), Some(start)) = (*kind, at.checked_sub(done)) else { return };
        let (head, rest) = wanted.as_bytes().split_at(done);
        let same = |(byte, wanted): (&u8, &u8)| {
            byte == wanted
                || *byte == b'+' && *wanted == b' '
                || kind == SpellingKind::Hex && byte.eq_ignore_ascii_case(wanted)
        };
        if !text[start..at].iter().zip(head).all(same) {
            return;
        }
        if let SpellingFound::Whole(end) = spelling::follow_from(text, at, rest, kind, done > 0) {
            places.push((start..end, form));
        }
    }

    fn search_line(
        &self,
        search: &Search,
        text: &[u8],
        line: Range<usize>,
        dumped: &mut Dumped,
        places: &mut Vec<Place>,
    ) {
        if !dumped.take_line(text, line) {
            dumped.finish_dump(search, text, places);
        }
    }

    /// Most bytes that a secret takes in any form, plus the surrounding lines needed to recognise it.
    fn search_reach(&self) -> usize {
        let longest = self.pairs.iter().map(|(form, _)| form.text.len()).max().unwrap_or(0);
        longest.max(self.longest * WIDEST + LINES)
    }

    /// A text that was cut off, without a possible start of a secret at its end.
    fn hide_in_truncated(&self, text: &[u8]) -> Vec<u8> {
        let sure = text.len() - self.partial_secret_len(text);
        // A secret that is complete is hidden, not cut.
        let whole = self.find_secrets(text).last().map_or(0, |(place, _)| place.end);
        self.hide_in_bytes(&text[..sure.max(whole)]).into_owned()
    }

    /// Number of bytes at the end of a truncated text that may be the start of a secret.
    fn partial_secret_len(&self, text: &[u8]) -> usize {
        let from = text.len().saturating_sub(self.search_reach());
        let begins = |at: usize| {
            self.pairs.iter().any(|(form, _)| {
                let wanted = form.text.as_bytes();
                match form.kind {
                    None => wanted.starts_with(&text[at..]),
                    Some(kind) => spelling::follow_form(text, at, wanted, kind) == SpellingFound::Cut,
                }
            })
        };
        let written = (from..text.len()).find(|at| begins(*at)).unwrap_or(text.len());
        text.len() - written.min(self.begun_in_dump(text))
    }

    /// Position at which a dump at the end of the text has to be cut for the same reason.
    fn begun_in_dump(&self, text: &[u8]) -> usize {
        let last = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let mut lines = Vec::new();
        let mut end = last;
        while end > 0 && text.len() - end <= self.search_reach() {
            let start = text[..end - 1].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let Some(bytes) = dump::bytes_of(text, start..end - 1) else { break };
            lines.push(bytes);
            end = start;
        }
        // An incomplete line of a dump may show any bytes, and may continue a secret from the lines before it.
        let is_dump = !lines.is_empty() || dump::bytes_of(text, last..text.len()).is_some();
        let mut cut = if is_dump { last } else { text.len() };
        let shown: Vec<_> = lines.into_iter().rev().flatten().collect();
        let bytes: Vec<u8> = shown.iter().map(|(byte, _)| *byte).collect();
        let values = self.pairs.iter().filter(|(form, _)| form.kind == Some(SpellingKind::Plain));
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

/// Positions of possible escapes and of line ends. Texts have many of them close together, so eight bytes are checked
/// at a time.
fn mark_positions(text: &[u8]) -> impl Iterator<Item = usize> {
    let (words, rest) = text.as_chunks::<8>();
    let rest_begins = text.len() - rest.len();
    let in_words = words.iter().enumerate().flat_map(|(number, word)| {
        let mut found = marked_bytes(u64::from_le_bytes(*word));
        std::iter::from_fn(move || {
            // The highest bit of each matching byte is set.
            let byte = (found != 0).then(|| found.trailing_zeros() / 8)?;
            found &= found - 1;
            Some(number * 8 + byte as usize)
        })
    });
    let in_rest = rest.iter().enumerate().filter(|(_, byte)| MARKS.contains(byte));
    in_words.chain(in_rest.map(move |(at, _)| rest_begins + at))
}

const MARKS: [u8; 4] = [b'%', b'\\', b'&', b'\n'];

/// Sets the highest bit of each byte that is in [`MARKS`], and no other bit.
fn marked_bytes(word: u64) -> u64 {
    const LOW: u64 = u64::MAX / 0xff * 0x7f;
    let is_zero = |bytes: u64| !(((bytes & LOW) + LOW) | bytes | LOW);
    MARKS.iter().fold(0, |found, mark| found | is_zero(word ^ (u64::MAX / 0xff * u64::from(*mark))))
}

/// A quick check that rules out nearly every escape: false if no text can have its first escape at `at`.
fn may_matter(search: &Search, text: &[u8], at: usize) -> bool {
    let before = at.checked_sub(1).map(|last| text[last]);
    match spelling::classify_escape(text, at) {
        Glance::Nothing => false,
        Glance::Bytes(first, second) => search.may_spell(before, first) || search.may_spell(before, second),
        // The escape may wrap digits.
        Glance::Break(first, other, next) => {
            search.may_spell(before, first)
                || search.may_spell(before, other)
                || before.is_some_and(|before| may_go_on(search, before, text, next))
        }
        Glance::Unclear => true,
    }
}

/// True if digits may continue after a line break that ends at `next`.
fn may_go_on(search: &Search, before: u8, text: &[u8], next: usize) -> bool {
    let rest = &text[next..];
    let indent = rest.iter().take(spelling::INDENT).take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let fits = |after: u8| search.wrapped.contains_pair(pair_key(before, after));
    match rest.get(indent) {
        None => false,
        Some(b'\r' | b'\n') => true,
        Some(_) if before == b'\r' => true,
        Some(after) if spelling::begins_escape(*after) => {
            match spelling::classify_escape(text, next + indent) {
                Glance::Nothing => fits(*after),
                Glance::Bytes(first, second) => fits(*after) || fits(first) || fits(second),
                Glance::Break(..) | Glance::Unclear => true,
            }
        }
        Some(after) => fits(*after),
    }
}

/// The bytes of the lines of one dump.
#[derive(Default)]
struct Dumped {
    bytes: Vec<u8>,
    /// Index of each line's first byte, and the line.
    lines: Vec<(usize, Range<usize>)>,
}

impl Dumped {
    /// Takes a line if it is part of a dump.
    fn take_line(&mut self, text: &[u8], line: Range<usize>) -> bool {
        let before = self.bytes.len();
        let is_one = dump::read_line(&text[line.clone()], |byte, _| self.bytes.push(byte));
        if is_one {
            self.lines.push((before, line));
        } else {
            self.bytes.truncate(before);
        }
        is_one
    }

    /// Searches a dump that has ended. The rest of a secret's last line is hidden as well, because it repeats the
    /// bytes as characters.
    fn finish_dump(&mut self, search: &Search, text: &[u8], places: &mut Vec<Place>) {
        if self.lines.is_empty() {
            return;
        }
        for found in search.plain.find_iter(&self.bytes) {
            let (first, shown) = self.line_of(found.start());
            let Some((_, place)) = dump::bytes_of(text, first).and_then(|mut all| all.drain(shown..).next())
            else {
                continue;
            };
            let (last, _) = self.line_of(found.end() - 1);
            places.push((place.start..last.end, found.pattern().as_usize()));
        }
        self.bytes.clear();
        self.lines.clear();
    }

    /// The line that shows a byte, and the number of bytes before it on that line.
    fn line_of(&self, byte: usize) -> (Range<usize>, usize) {
        // A line without bytes has the same index as the next one.
        let number = self.lines.partition_point(|(first, _)| *first <= byte) - 1;
        let (first, line) = &self.lines[number];
        (line.clone(), byte - first)
    }
}

/// Merges overlapping ranges.
fn merge_ranges(places: &mut Vec<Place>) {
    places.sort_by(|(a, _), (b, _)| a.start.cmp(&b.start).then(b.end.cmp(&a.end)));
    places.dedup_by(|(next, _), (kept, _)| {
        let overlap = next.start < kept.end;
        if overlap {
            kept.end = kept.end.max(next.end);
        }
        overlap
    });
}

/// Does not show the secrets.
impl std::fmt::Debug for Redactions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let marks: BTreeSet<_> = self.pairs.iter().map(|(_, mark)| mark).collect();
        f.debug_list().entries(marks).finish()
    }
}

/// The secrets to hide now. A login may be renewed while steps that use it run, so this grows while their output
/// arrives.
#[derive(Default)]
pub(crate) struct Current(RwLock<Arc<Redactions>>);

impl From<Redactions> for Current {
    fn from(redactions: Redactions) -> Self {
        Self(RwLock::new(Arc::new(redactions)))
    }
}

impl Current {
    pub(crate) fn get(&self) -> Arc<Redactions> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set(&self, redactions: Redactions) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(redactions);
    }
}

/// Hides secrets in bytes that arrive in pieces. It holds back as many bytes as may be the start of a secret.
pub struct Redactor {
    current: Arc<Current>,
    redactions: Arc<Redactions>,
    held: Vec<u8>,
    reach: usize,
    begun: Instant,
    /// Time spent on passing lines on early.
    spent: Duration,
}

impl Redactor {
    /// `None` if there is nothing to hide.
    pub(crate) fn new(current: &Arc<Current>) -> Option<Self> {
        let redactions = current.get();
        if redactions.is_empty() {
            return None;
        }
        let reach = redactions.search_reach();
        let current = Arc::clone(current);
        let begun = Instant::now();
        Some(Self { current, redactions, held: Vec::new(), reach, begun, spent: Duration::ZERO })
    }

    /// Takes over secrets that became known since; earlier output cannot contain them.
    fn refresh_redactions(&mut self) {
        let now = self.current.get();
        if !Arc::ptr_eq(&now, &self.redactions) {
            self.reach = now.search_reach();
            self.redactions = now;
        }
    }

    /// Takes the next piece, and returns the checked bytes in large portions.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.take_piece(bytes, false)
    }

    /// Takes the next piece, and returns each line as soon as it is checked, for readers that follow a stream. This
    /// costs more, so a stream of many small pieces is returned in large portions too.
    pub fn push_lines(&mut self, bytes: &[u8]) -> Vec<u8> {
        let may_look = self.spent <= self.begun.elapsed() / SHARE + ADVANCE;
        self.take_piece(bytes, may_look)
    }

    fn take_piece(&mut self, bytes: &[u8], by_lines: bool) -> Vec<u8> {
        self.refresh_redactions();
        self.held.extend_from_slice(bytes);
        // Bytes that are held back are searched again each time.
        let bound = if self.held.len() >= self.batch_size() {
            let sure = self.held.len() - self.reach;
            // The rest must begin with a whole line, so that lines of dumps are recognised.
            let line = memchr::memrchr(b'\n', &self.held[sure.saturating_sub(BATCH / 2)..sure]);
            line.map_or(sure, |at| sure.saturating_sub(BATCH / 2) + at + 1)
        } else if by_lines && memchr::memchr(b'\n', bytes).is_some() {
            let now = Instant::now();
            let sure = self.held.len() - self.redactions.partial_secret_len(&self.held);
            let bound = memchr::memrchr(b'\n', &self.held[..sure]).map_or(0, |at| at + 1);
            self.spent += now.elapsed();
            bound
        } else {
            0
        };
        if bound == 0 {
            return Vec::new();
        }
        let places = self.redactions.find_secrets(&self.held);
        let is_clean = places.first().is_none_or(|(place, _)| place.start >= bound);
        let mut clean = if is_clean { Vec::new() } else { Vec::with_capacity(bound) };
        let rest = if is_clean {
            bound
        } else {
            self.redactions.replace_secrets(&self.held, &places, bound, &mut clean)
        };
        let mut held = Vec::with_capacity(self.batch_size() + bytes.len());
        held.extend_from_slice(&self.held[rest..]);
        let mut done = std::mem::replace(&mut self.held, held);
        if is_clean {
            done.truncate(bound);
            return done;
        }
        clean
    }

    /// Number of bytes searched at once. Bytes that are held back are searched again, and should be the smaller part.
    fn batch_size(&self) -> usize {
        self.reach + BATCH.max(4 * self.reach)
    }

    /// Returns the rest of a stream that was cut off, without a possible start of a secret at its end.
    pub fn finish_cut(mut self) -> Vec<u8> {
        self.refresh_redactions();
        self.redactions.hide_in_truncated(&self.held)
    }

    /// Returns the rest.
    pub fn finish(mut self) -> Vec<u8> {
        self.refresh_redactions();
        self.redactions.hide_in_bytes(&self.held).into_owned()
    }
}

#[cfg(test)]
mod tests;
