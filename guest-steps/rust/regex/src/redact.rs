//! Replaces secrets and personal data by the name of their kind.

use std::collections::HashMap;
use std::ops::Range;

use lobster_step::{StepError, host};
use regex::Regex;
use serde_json::{Map, Value};

use crate::rules::{self, Find, Kind, RULES};
use crate::secret;

/// What may stand around a value.
const QUOTES: [char; 4] = ['"', '\'', '`', '\\'];

/// What is found, by name and expression.
struct Finder {
    kind: Option<Kind>,
    name: String,
    regex: Regex,
    find: Find,
}

pub(crate) struct Redactor {
    finders: Vec<Finder>,
    marks: Marks,
}

impl Redactor {
    /// # Errors
    /// `bad-args` or `bad-pattern` if a kind of the author's own is no expression.
    pub(crate) fn new(
        kinds: Option<&[Kind]>,
        custom: &Map<String, Value>,
        numbered: bool,
    ) -> Result<Self, StepError> {
        let mut finders = Vec::new();
        for (name, pattern) in custom {
            let pattern = pattern
                .as_str()
                .ok_or_else(|| StepError::bad_args(format!("the expression of kind `{name}` is not text")))?;
            finders.push(Finder {
                kind: None,
                name: name.clone(),
                regex: compile(pattern)?,
                find: Find::Match,
            });
        }
        for rule in RULES.iter().filter(|rule| kinds.is_none_or(|kinds| kinds.contains(&rule.kind))) {
            let regex = compile(rule.pattern)?;
            finders.push(Finder {
                kind: Some(rule.kind),
                name: rule.name.to_owned(),
                regex,
                find: rule.find,
            });
        }
        Ok(Self { finders, marks: Marks { numbered, ..Marks::default() } })
    }

    pub(crate) fn redact(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        for finder in &self.finders {
            let found = finder.find(&text);
            let is_mark = |part: &Range<usize>| {
                let inside = text[part.start..].trim_start_matches(QUOTES);
                let value = text[part.clone()].trim_matches(QUOTES);
                let mark = inside.find(']').map_or("", |end| &inside[..=end]);
                value.starts_with('[')
                    && value.len() <= mark.len()
                    && self.finders.iter().any(|finder| is_mark_of(&finder.name, mark))
            };
            let found: Vec<_> = found.into_iter().filter(|part| !is_mark(part)).collect();
            if found.is_empty() {
                continue;
            }
            let (mut changed, mut copied) = (String::with_capacity(text.len()), 0);
            for part in found {
                changed.push_str(&text[copied..part.start]);
                changed.push_str(&self.marks.mark(&finder.name, &text[part.clone()]));
                copied = part.end;
            }
            changed.push_str(&text[copied..]);
            text = changed;
        }
        text
    }

    /// Redacts all texts of a value, and everything below a field whose name says
    /// that it is secret. `name` is that of the field which holds the value.
    pub(crate) fn redact_value(&mut self, name: Option<&str>, value: &mut Value) {
        let has = |kind| self.finders.iter().any(|finder| finder.kind == Some(kind));
        if name.is_some_and(secret::is_name) && has(Kind::Assignment) {
            return self.marks.replace(value);
        }
        let is_authorization = name.is_some_and(secret::is_authorization) && has(Kind::Bearer);
        match value {
            Value::String(text) if is_authorization && !text.is_empty() => {
                let start = secret::without_scheme(text);
                let mark = self.marks.mark("bearer", &text[start..]);
                text.replace_range(start.., &mark);
            }
            Value::String(text) => *text = self.redact(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(name, item)),
            Value::Object(fields) => {
                fields.iter_mut().for_each(|(name, field)| self.redact_value(Some(name), field));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Says how much of each kind was found; never what.
    pub(crate) fn log(&self) {
        let mut counts: Vec<(&String, &u64)> = self.marks.counts.iter().collect();
        counts.sort();
        let fields = counts.into_iter().map(|(name, count)| (name.clone(), Value::from(*count))).collect();
        host::log(host::Level::Info, "redacted", &Value::Object(fields));
    }
}

impl Finder {
    /// The secrets in a text, in order and apart from each other.
    fn find(&self, text: &str) -> Vec<Range<usize>> {
        let mut found: Vec<Range<usize>> = Vec::new();
        let mut at = 0;
        match self.find {
            Find::Match => {
                for captures in self.regex.captures_iter(text) {
                    let all = captures.get_match();
                    let start = captures.name("keep").map_or(all.start(), |keep| keep.end());
                    let end = captures.name("rest").map_or(all.end(), |rest| rest.start());
                    found.push(start..end);
                }
            }
            Find::Opens(secret) => {
                while let Some(captures) = self.regex.captures_at(text, at) {
                    let part = secret(text, &captures);
                    at = part.as_ref().map_or(captures.get_match().end(), |part| part.end);
                    found.extend(part);
                }
            }
            Find::Parts(check) => {
                while let Some(candidate) = self.regex.find_at(text, at) {
                    let candidate = candidate.range();
                    at = rules::after_first_word(text, candidate.clone());
                    let passes = rules::parts(text, candidate).find(|part| check(text, part.clone()));
                    match (passes, found.last_mut()) {
                        (Some(part), Some(last)) if part.start < last.end => {
                            last.end = last.end.max(part.end)
                        }
                        (Some(part), _) => found.push(part),
                        (None, _) => {}
                    }
                }
            }
        }
        found
    }
}

/// What stands in place of secrets, and how many there were.
#[derive(Default)]
struct Marks {
    numbered: bool,
    numbers: HashMap<String, Vec<String>>,
    counts: HashMap<String, u64>,
}

impl Marks {
    fn mark(&mut self, name: &str, found: &str) -> String {
        *self.counts.entry(name.to_owned()).or_default() += 1;
        if !self.numbered {
            return format!("[{name}]");
        }
        let known = self.numbers.entry(name.to_owned()).or_default();
        let at = known.iter().position(|text| text == found).unwrap_or_else(|| {
            known.push(found.to_owned());
            known.len() - 1
        });
        format!("[{name}-{}]", at + 1)
    }

    /// Replaces every text and number of a secret value.
    fn replace(&mut self, value: &mut Value) {
        match value {
            Value::String(text) if text.is_empty() => {}
            Value::String(text) => *text = self.mark("assignment", text),
            Value::Number(number) => *value = self.mark("assignment", &number.to_string()).into(),
            Value::Array(items) => items.iter_mut().for_each(|item| self.replace(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.replace(field)),
            Value::Null | Value::Bool(_) => {}
        }
    }
}

/// Whether a text is `[name]` or `[name-1]`.
fn is_mark_of(name: &str, text: &str) -> bool {
    let number = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .and_then(|text| text.strip_prefix(name));
    number.is_some_and(|number| {
        number.is_empty()
            || number.strip_prefix('-').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

fn compile(pattern: &str) -> Result<Regex, StepError> {
    Regex::new(pattern).map_err(|error| StepError::new("bad-pattern", error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redact(text: &str) -> String {
        Redactor::new(None, &Map::new(), false).map(|mut redactor| redactor.redact(text)).unwrap_or_default()
    }

    #[test]
    fn checksums_decide() {
        let redact = |text: &str| {
            let kinds = [Kind::Iban, Kind::Card];
            Redactor::new(Some(&kinds), &Map::new(), false).map(|mut redactor| redactor.redact(text))
        };
        for (text, wanted) in [
            ("DE89 3704 0044 0532 0130 00.", "[iban]."),
            ("DE88 3704 0044 0532 0130 00.", "DE88 3704 0044 0532 0130 00."),
            ("4111 1111 1111 1111, 4111 1111 1111 1112", "[card], 4111 1111 1111 1112"),
        ] {
            assert_eq!(redact(text), Ok(wanted.to_owned()));
        }
    }

    #[test]
    fn neighbours_do_not_hide_a_number() {
        for (text, wanted) in [
            ("card 4111 1111 1111 1111 123", "card [card] 123"),
            ("pay 4111111111111111 12/27", "pay [card] 12/27"),
            ("1 4111111111111111", "1 [card]"),
            ("2026-11-17 4111 1111 1111 1111 077", "2026-11-17 [card] 077"),
            ("4111-1111-1111-1111 5500005555555559", "[card] [card]"),
            ("4111\u{a0}1111\u{a0}1111\u{a0}1111", "[card]"),
            ("card_4111111111111111", "card_[card]"),
            ("IBAN DE89370400440532013000 BIC COBADEFF", "IBAN [iban] BIC COBADEFF"),
            ("AB12 DE89 3704 0044 0532 0130 00 MORE WORDS", "AB12 [iban] MORE WORDS"),
            ("de89 3704 0044 0532 0130 00", "[iban]"),
            ("999.192.0.2.10", "999.[ipv4]"),
            ("addr:2001:db8::8a2e:370:7334: up", "addr:[ipv6]: up"),
            ("+46 31 123 45 67 20261117 12", "[phone] 20261117 12"),
        ] {
            assert_eq!(redact(text), wanted, "{text}");
        }
    }

    #[test]
    fn many_neighbours_take_linear_time() {
        for unit in ["1 ", "AB12", ":", "a=", "token=a,"] {
            let text = unit.repeat(2000);
            assert_eq!(redact(&text).len(), text.len());
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            "order 2026-11842 of 17.11.2026, total 194.40 EUR",
            "std::fs::read and a::b",
            "abc::def::ghi",
            "version 1.2.3.4000",
            "the token is missing",
            "unexpected token: foo, pass: 120",
            "a basic understanding, bearer of news",
            "authorization: required",
            "2026-11-17T02:15:09Z",
            "at 12:30:15",
            "password: [api-key]",
            "password=\"[jwt-2]\"",
            "10 20 30 40 50 60 70 80 90 100 110 120 130 140",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn secrets_go() {
        let cases = [
            ("key AKIAABCDEFGHIJKLMNOP.", "key [api-key]."),
            ("postgres://ada:s3cret@db.example.com/x", "postgres://[url-password]@db.example.com/x"),
            ("postgres://user:p@ss@host/db", "postgres://[url-password]@host/db"),
            ("Authorization: Bearer abcdefghijklmnopqrst", "Authorization: Bearer [bearer]"),
            ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [bearer]"),
            ("-H 'Authorization: Bearer abc' x", "-H 'Authorization: Bearer [bearer]' x"),
            ("Authorization: Digest username=\"a\", response=\"b\"\nx", "Authorization: Digest [bearer]\nx"),
            ("{\"authorization\":\"token abc\"}", "{\"authorization\":\"token [bearer]\"}"),
            ("sent Bearer abc123, and Basic dXNlcjpwYXNz", "sent Bearer [bearer], and Basic [bearer]"),
            ("DB_PASSWORD='hunter 2' x", "DB_PASSWORD=[assignment] x"),
            ("DB_PASS=hunter22", "DB_PASS=[assignment]"),
            ("PGPASSWORD=a,b;c x", "PGPASSWORD=[assignment] x"),
            ("Server=x;Password=abc;User Id=sa", "Server=x;Password=[assignment];User Id=sa"),
            ("GITHUB_TOKEN: abcdef, dbPass = abcdef", "GITHUB_TOKEN: [assignment], dbPass = [assignment]"),
            ("{\"api_key\": \"abc123\"}", "{\"api_key\": [assignment]}"),
            ("\"password\": \"s3cr\\\"et-and-more\", 1", "\"password\": [assignment], 1"),
            ("{\\\"password\\\": \\\"s3cret\\\"}", "{\\\"password\\\": [assignment]}"),
            ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\n", "[private-key]\n"),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0xx.abc-_d", "[jwt]"),
            ("call +46 31 123 45 67 or (031) 123 45 67", "call [phone] or [phone]"),
            ("555-123-4567; 078-05-1120", "[phone]; [ssn]"),
            ("from 192.0.2.10 and 2001:db8::8a2e:370:7334", "from [ipv4] and [ipv6]"),
            ("jörg.müller@bücher.example, a+b@x.example.org.", "[email], [email]."),
        ];
        for (text, wanted) in cases {
            assert_eq!(redact(text), wanted);
        }
    }
}
