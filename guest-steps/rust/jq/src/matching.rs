//! Regular expressions, with Unicode's classes and cases.

use std::cell::RefCell;
use std::collections::HashMap;

use jaq_core::ValT as _;
use jaq_json::Val;
use jaq_std::ValT as _;
use regex::{Captures, Regex, RegexBuilder};

use crate::value::{Error, Json};

/// Compiled expressions that are kept: a filter runs for each item.
const KEPT: usize = 64;

/// Bytes that a compiled expression may take.
const SIZE: usize = 8 << 20;

thread_local! {
    static COMPILED: RefCell<HashMap<(String, String), Regex>> = RefCell::default();
}

#[derive(Clone)]
struct Pattern {
    regex: Regex,
    all: bool,
    skip_empty: bool,
}

/// The matches of a text, as jq's `match` gives them.
pub(crate) fn matches(text: &Json, pattern: &Json, flags: &Json) -> Result<Json, Error> {
    let (text, pattern) = (as_text(text)?, Pattern::new(pattern, flags)?);
    let mut place = Place::default();
    pattern.captures(&text).map(|captures| object(&pattern.regex, &captures, &text, &mut place)).collect()
}

/// The texts between the matches, and the matches.
pub(crate) fn pieces(text: &Json, pattern: &Json, flags: &Json) -> Result<Json, Error> {
    let (text, pattern) = (as_text(text)?, Pattern::new(pattern, flags)?);
    let (mut place, mut pieces, mut end) = (Place::default(), Vec::new(), 0);
    for captures in pattern.captures(&text) {
        let found = captures.get_match();
        pieces.push(Json::text(&text[end..found.start()]));
        pieces.push(object(&pattern.regex, &captures, &text, &mut place)?);
        end = found.end();
    }
    pieces.push(Json::text(&text[end..]));
    Ok(pieces.into_iter().collect())
}

fn as_text(value: &Json) -> Result<String, Error> {
    let bytes = value
        .as_utf8_bytes()
        .ok_or_else(|| Error::str(format!("{value} cannot be matched, as it is not a string")))?;
    Ok(String::from_utf8_lossy(bytes).into_owned())
}

impl Pattern {
    /// `pattern` may be a list of the expression and its flags.
    fn new(pattern: &Json, flags: &Json) -> Result<Self, Error> {
        let (pattern, flags) = match (&pattern.0, &flags.0) {
            (Val::Arr(both), Val::Null) => {
                let part = |at: usize| Json(both.get(at).cloned().unwrap_or_default());
                (part(0), part(1))
            }
            _ => (pattern.clone(), flags.clone()),
        };
        let (source, flags) =
            (as_text(&pattern)?, if flags == Json::null() { String::new() } else { as_text(&flags)? });
        let regex = match COMPILED.with_borrow(|known| known.get(&(source.clone(), flags.clone())).cloned()) {
            Some(regex) => regex,
            None => {
                let regex = compile(&source, &flags)?;
                COMPILED.with_borrow_mut(|known| {
                    if known.len() == KEPT {
                        known.clear();
                    }
                    known.insert((source, flags.clone()), regex.clone());
                });
                regex
            }
        };
        Ok(Self { regex, all: flags.contains('g'), skip_empty: flags.contains('n') })
    }

    fn captures<'t>(&self, text: &'t str) -> impl Iterator<Item = Captures<'t>> {
        let found = self.regex.captures_iter(text);
        found.filter(|captures| !(self.skip_empty && captures.get_match().is_empty())).take(if self.all {
            usize::MAX
        } else {
            1
        })
    }
}

fn compile(source: &str, flags: &str) -> Result<Regex, Error> {
    let mut builder = RegexBuilder::new(source);
    builder.size_limit(SIZE);
    for flag in flags.chars() {
        match flag {
            'g' | 'n' => &mut builder,
            'i' => builder.case_insensitive(true),
            'm' => builder.multi_line(true),
            's' => builder.dot_matches_new_line(true),
            'l' => builder.swap_greed(true),
            'x' => builder.ignore_whitespace(true),
            'p' => builder.multi_line(true).dot_matches_new_line(true),
            other => return Err(Error::str(format!("invalid regex flag: {other}"))),
        };
    }
    builder.build().map_err(|failed| Error::str(format!("invalid regex: {failed}")))
}

/// Counts characters up to a byte, from where it counted last.
#[derive(Default)]
struct Place {
    bytes: usize,
    chars: usize,
}

impl Place {
    fn of(&mut self, text: &str, byte: usize) -> usize {
        if byte < self.bytes {
            *self = Self::default();
        }
        self.chars += text[self.bytes..byte].chars().count();
        self.bytes = byte;
        self.chars
    }
}

fn object(regex: &Regex, captures: &Captures<'_>, text: &str, place: &mut Place) -> Result<Json, Error> {
    let mut fields = |group: Option<regex::Match<'_>>| match group {
        Some(found) => vec![
            ("offset", Json::from(place.of(text, found.start()))),
            ("length", Json::from(found.as_str().chars().count())),
            ("string", Json::text(found.as_str())),
        ],
        None => {
            vec![("offset", Json::from(-1_isize)), ("length", Json::from(0_usize)), ("string", Json::null())]
        }
    };
    let map = |fields: Vec<(&str, Json)>| {
        Json::from_map(fields.into_iter().map(|(name, value)| (Json::text(name), value)))
    };
    let mut whole = fields(captures.get(0));
    let groups = captures.iter().zip(regex.capture_names()).skip(1).map(|(group, name)| {
        let mut fields = fields(group);
        fields.push(("name", name.map_or_else(Json::null, Json::text)));
        map(fields)
    });
    let groups = groups.collect::<Result<Json, _>>()?;
    whole.push(("captures", groups));
    map(whole)
}
