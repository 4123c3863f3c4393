//! Secrets and personal data. What a kind finds is checked where the data
//! carries a checksum, so that an order number is not taken for a card number.

use std::collections::HashMap;

use lobster_step::{JsonSchema, StepError, host};
use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// What can be redacted. The order is that of looking: the longer and surer first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(crate = "lobster_step::schemars")]
pub enum Kind {
    /// A PEM block with a private key.
    PrivateKey,
    /// A JSON web token.
    Jwt,
    /// Keys with a known prefix: AWS, GitHub, GitLab, Slack, Stripe, Google, OpenAI and others.
    ApiKey,
    /// `Authorization: Bearer …` and its like.
    Bearer,
    /// User and password inside a URL.
    UrlPassword,
    /// `password=…`, `api_key: …`.
    Assignment,
    Email,
    /// International Bank Account Number, with its check digits.
    Iban,
    /// A payment card number, with its check digit.
    Card,
    /// A US social security number.
    Ssn,
    /// A telephone number, international or with at least ten digits.
    Phone,
    Ipv4,
    Ipv6,
}

struct Rule {
    kind: Kind,
    name: &'static str,
    /// A group `keep` is put back before the mark, `rest` after it.
    pattern: &'static str,
    check: fn(&str) -> bool,
}

const RULES: &[Rule] = &[
    Rule {
        kind: Kind::PrivateKey,
        name: "private-key",
        pattern: r"(?s)-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|\z)",
        check: always,
    },
    Rule {
        kind: Kind::Jwt,
        name: "jwt",
        pattern: r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
        check: always,
    },
    Rule {
        kind: Kind::ApiKey,
        name: "api-key",
        pattern: r"(?x)\b(?:
            (?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{16}
            | gh[pousr]_[A-Za-z0-9]{36,} | github_pat_[A-Za-z0-9_]{50,}
            | gl(?:pat|cbt|dt|rt)-[A-Za-z0-9_-]{20,}
            | xox[abeoprs]-[A-Za-z0-9-]{10,}
            | (?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}
            | sk-(?:[a-z]+-)?[A-Za-z0-9_-]{20,}
            | AIza[A-Za-z0-9_-]{35}
            | SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
            | npm_[A-Za-z0-9]{36} | pypi-[A-Za-z0-9_-]{50,}
            | hf_[A-Za-z0-9]{30,} | dop_v1_[a-f0-9]{64}
        )",
        check: always,
    },
    Rule {
        kind: Kind::Bearer,
        name: "bearer",
        pattern: r"(?i)(?<keep>\b(?:bearer|basic|token)\s+)[A-Za-z0-9._~+/=-]{16,}",
        check: always,
    },
    Rule {
        kind: Kind::UrlPassword,
        name: "url-password",
        pattern: r"(?i)(?<keep>\b[a-z][a-z0-9+.-]*://)[^\s/@:]*:[^\s/@]+(?<rest>@)",
        check: always,
    },
    Rule {
        kind: Kind::Assignment,
        name: "assignment",
        pattern: r#"(?ix)(?<keep>\b(?:[a-z0-9]+[_-])*(?:password|passwd|pwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key|auth[_-]?token|access[_-]?token|refresh[_-]?token|client[_-]?secret)["']?\s*[:=]\s*)(?:"[^"\n]{3,}"|'[^'\n]{3,}'|[^\s"',;&\[]{3,})"#,
        check: always,
    },
    Rule {
        kind: Kind::Email,
        name: "email",
        pattern: r"(?i)\b[\p{L}0-9.!#$%&'*+/=?^_`{|}~-]+@[\p{L}0-9](?:[\p{L}0-9-]*[\p{L}0-9])?(?:\.[\p{L}0-9](?:[\p{L}0-9-]*[\p{L}0-9])?)+\b",
        check: always,
    },
    Rule { kind: Kind::Iban, name: "iban", pattern: r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}\b", check: iban },
    Rule { kind: Kind::Card, name: "card", pattern: r"\b\d(?:[ -]?\d){12,18}\b", check: card },
    Rule { kind: Kind::Ssn, name: "ssn", pattern: r"\b\d{3}-\d{2}-\d{4}\b", check: ssn },
    Rule {
        kind: Kind::Phone,
        name: "phone",
        pattern: r"(?:\+\d{1,3}[ ./-]?(?:\(0?\)[ ]?)?|\(\d{2,5}\)[ ]?|\b0)\d{1,5}(?:[ ./-]?\d{2,5}){1,5}\b|\b\d{3}[.-]\d{3}[.-]\d{4}\b",
        check: phone,
    },
    Rule { kind: Kind::Ipv4, name: "ipv4", pattern: r"\b\d{1,3}(?:\.\d{1,3}){3}\b", check: ipv4 },
    Rule {
        kind: Kind::Ipv6,
        name: "ipv6",
        pattern: r"(?i)(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?:%\w+)?",
        check: ipv6,
    },
];

/// What is found by name and expression, and the check it must pass.
struct Finder {
    name: String,
    regex: Regex,
    check: fn(&str) -> bool,
}

pub(crate) struct Redactor {
    finders: Vec<Finder>,
    numbered: bool,
    numbers: HashMap<String, Vec<String>>,
    counts: HashMap<String, u64>,
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
            finders.push(Finder { name: name.clone(), regex: compile(pattern)?, check: always });
        }
        for rule in RULES.iter().filter(|rule| kinds.is_none_or(|kinds| kinds.contains(&rule.kind))) {
            finders.push(Finder {
                name: rule.name.to_owned(),
                regex: compile(rule.pattern)?,
                check: rule.check,
            });
        }
        Ok(Self { finders, numbered, numbers: HashMap::new(), counts: HashMap::new() })
    }

    pub(crate) fn redact(&mut self, text: &str) -> String {
        let mut text = text.to_owned();
        let Self { finders, numbered, numbers, counts } = self;
        for Finder { name, regex, check } in finders.iter() {
            let changed = regex.replace_all(&text, |captures: &Captures<'_>| {
                let found = captures.get_match().as_str();
                if !check(found) {
                    return found.to_owned();
                }
                *counts.entry(name.clone()).or_default() += 1;
                let group = |name| captures.name(name).map_or("", |group| group.as_str());
                let mark = if *numbered { number(numbers, name, found) } else { format!("[{name}]") };
                format!("{}{mark}{}", group("keep"), group("rest"))
            });
            text = changed.into_owned();
        }
        text
    }

    /// Says how much of each kind was found; never what.
    pub(crate) fn log(&self) {
        let mut counts: Vec<(&String, &u64)> = self.counts.iter().collect();
        counts.sort();
        let fields = counts.into_iter().map(|(name, count)| (name.clone(), Value::from(*count))).collect();
        host::log(host::Level::Info, "redacted", &Value::Object(fields));
    }
}

fn number(numbers: &mut HashMap<String, Vec<String>>, name: &str, found: &str) -> String {
    let known = numbers.entry(name.to_owned()).or_default();
    let at = known.iter().position(|text| text == found).unwrap_or_else(|| {
        known.push(found.to_owned());
        known.len() - 1
    });
    format!("[{name}-{}]", at + 1)
}

fn compile(pattern: &str) -> Result<Regex, StepError> {
    Regex::new(pattern).map_err(|error| StepError::new("bad-pattern", error.to_string()))
}

fn always(_: &str) -> bool {
    true
}

fn digits(text: &str) -> Vec<u32> {
    text.chars().filter_map(|c| c.to_digit(10)).collect()
}

/// ISO 13616: the first four characters moved to the end, letters as numbers, is 1 modulo 97.
fn iban(text: &str) -> bool {
    let compact: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    if !(15..=34).contains(&compact.len()) {
        return false;
    }
    let turned = compact[4..].iter().chain(&compact[..4]);
    let rest = turned.fold(0, |rest, c| match c.to_digit(36) {
        Some(value) if value > 9 => (rest * 100 + value) % 97,
        Some(value) => (rest * 10 + value) % 97,
        None => rest,
    });
    rest == 1
}

/// ISO/IEC 7812: the Luhn sum ends in 0.
fn card(text: &str) -> bool {
    let digits = digits(text);
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(at, digit)| match (at % 2, digit * 2) {
            (0, _) => *digit,
            (_, double) if double > 9 => double - 9,
            (_, double) => double,
        })
        .sum();
    sum.is_multiple_of(10) && digits.iter().any(|digit| *digit != 0) && matches!(digits[0], 2..=6)
}

fn ssn(text: &str) -> bool {
    !(text.starts_with("000")
        || text.starts_with("666")
        || text.starts_with('9')
        || &text[4..6] == "00"
        || text.ends_with("0000"))
}

fn phone(text: &str) -> bool {
    let count = digits(text).len();
    let is_date = text.matches(['.', '-', '/']).count() == 2 && count == 8;
    (8..=15).contains(&count) && !is_date && (text.starts_with(['+', '(']) || count >= 10)
}

fn ipv4(text: &str) -> bool {
    text.parse::<std::net::Ipv4Addr>().is_ok()
}

fn ipv6(text: &str) -> bool {
    let address = text.split('%').next().unwrap_or_default();
    // `::` alone is a path separator of many languages.
    address.chars().filter(char::is_ascii_hexdigit).count() >= 4
        && address.parse::<std::net::Ipv6Addr>().is_ok()
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
    fn what_is_no_secret_stays() {
        for text in [
            "order 2026-11842 of 17.11.2026, total 194.40 EUR",
            "std::fs::read and a::b",
            "version 1.2.3.4000",
            "the token is missing",
            "2026-11-17T02:15:09Z",
            "at 12:30:15",
            "password: [api-key]",
        ] {
            assert_eq!(redact(text), text);
        }
    }

    #[test]
    fn secrets_go() {
        let cases = [
            ("key AKIAABCDEFGHIJKLMNOP.", "key [api-key]."),
            ("postgres://ada:s3cret@db.example.com/x", "postgres://[url-password]@db.example.com/x"),
            ("Authorization: Bearer abcdefghijklmnopqrst", "Authorization: Bearer [bearer]"),
            ("DB_PASSWORD='hunter 2' x", "DB_PASSWORD=[assignment] x"),
            ("{\"api_key\": \"abc123\"}", "{\"api_key\": [assignment]}"),
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
