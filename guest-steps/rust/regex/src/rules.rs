//! What secrets and personal data look like. What a pattern finds is checked
//! where the data carries a checksum, so that an order number is not taken for
//! a card number.

use std::ops::Range;

use lobster_step::JsonSchema;
use regex::Captures;
use serde::{Deserialize, Serialize};

use crate::secret;

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
    /// `Authorization: Bearer …` and its like, and what a field `authorization` of an item holds.
    Bearer,
    /// User and password inside a URL.
    UrlPassword,
    /// `password=…`, `api_key: …`, and what a field of such a name holds in an item.
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

pub(crate) struct Rule {
    pub(crate) kind: Kind,
    pub(crate) name: &'static str,
    pub(crate) pattern: &'static str,
    pub(crate) find: Find,
}

/// What of a match is the secret.
#[derive(Clone, Copy)]
pub(crate) enum Find {
    /// All of it but the groups `keep` before and `rest` after.
    Match,
    /// The parts of it, from the start of a word to the end of one, that pass the
    /// check: a pattern takes the numbers beside a number in as well.
    Parts(fn(&str, Range<usize>) -> bool),
    /// The match stands before the secret; the function says where that is.
    Opens(fn(&str, &Captures<'_>) -> Option<Range<usize>>),
}

pub(crate) const RULES: &[Rule] = &[
    Rule {
        kind: Kind::PrivateKey,
        name: "private-key",
        pattern: r"(?s)-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|\z)",
        find: Find::Match,
    },
    Rule {
        kind: Kind::Jwt,
        name: "jwt",
        pattern: r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
        find: Find::Match,
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
        find: Find::Match,
    },
    Rule {
        kind: Kind::Bearer,
        name: "bearer",
        pattern: r#"(?ix)
            \bauthorization["'\\]{0,2}\s*[:=]\s*["'\\]{0,2}(?:(?<scheme>[a-z][a-z0-9-]*)\s+)?
            | \b(?<word>bearer|basic|token)\s+"#,
        find: Find::Opens(secret::credentials),
    },
    Rule {
        kind: Kind::UrlPassword,
        name: "url-password",
        // To the last `@` of the authority: a password may hold one.
        pattern: r#"(?i)(?<keep>\b[a-z][a-z0-9+.-]*://)[^\s/@:"<>]*:[^\s/"<>]+(?<rest>@)"#,
        find: Find::Match,
    },
    Rule {
        kind: Kind::Assignment,
        name: "assignment",
        pattern: r#"(?ix)
            (?<name>[a-z0-9_.-]*(?:pass(?:word|wd|wort|phrase|code)?|pwd|pw|secret|key|key[_-]?base|token|credentials?))
            (?<quote>["'`\\]{0,2})\s*(?<sign>=>|:=|={1,3}|:)\s*"#,
        find: Find::Opens(secret::assigned),
    },
    Rule {
        kind: Kind::Email,
        name: "email",
        pattern: r"(?i)\b[\p{L}0-9.!#$%&'*+/=?^_`{|}~-]+@[\p{L}0-9](?:[\p{L}0-9-]*[\p{L}0-9])?(?:\.[\p{L}0-9](?:[\p{L}0-9-]*[\p{L}0-9])?)+\b",
        find: Find::Match,
    },
    Rule {
        kind: Kind::Iban,
        name: "iban",
        pattern: r"(?i)\b[A-Z]{2}[0-9]{2}(?:[ \u{a0}-]?[A-Z0-9]){11,30}",
        find: Find::Parts(iban),
    },
    Rule {
        kind: Kind::Card,
        name: "card",
        pattern: r"[0-9](?:[ \u{a0}-]?[0-9]){12,18}",
        find: Find::Parts(card),
    },
    Rule { kind: Kind::Ssn, name: "ssn", pattern: r"\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b", find: Find::Parts(ssn) },
    Rule {
        kind: Kind::Phone,
        name: "phone",
        pattern: r"(?:\+\d{1,3}[ ./-]?(?:\(0?\)[ ]?)?|\(\d{2,5}\)[ ]?|\b0)\d{1,5}(?:[ ./-]?\d{2,5}){1,5}\b|\b\d{3}[.-]\d{3}[.-]\d{4}\b",
        find: Find::Parts(phone),
    },
    Rule { kind: Kind::Ipv4, name: "ipv4", pattern: r"\b\d{1,3}(?:\.\d{1,3}){3}\b", find: Find::Parts(ipv4) },
    Rule {
        kind: Kind::Ipv6,
        name: "ipv6",
        pattern: r"(?i)(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?:%\w+)?",
        find: Find::Parts(ipv6),
    },
];

/// The parts of a match to try: those that begin where it begins and end where
/// a word ends, the longest first.
pub(crate) fn parts(text: &str, found: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let ends = text[found.clone()].char_indices().rev().scan(false, |after_is_word, (at, c)| {
        let is_end = c.is_alphanumeric() && !*after_is_word;
        *after_is_word = c.is_alphanumeric();
        Some(is_end.then_some(at + c.len_utf8()))
    });
    let whole = std::iter::once(found.clone());
    let (start, length) = (found.start, found.len());
    whole.chain(ends.flatten().filter(move |end| *end < length).map(move |end| start..start + end))
}

/// Where the next part may begin: behind the match's first word, or its first sign.
pub(crate) fn after_first_word(text: &str, found: Range<usize>) -> usize {
    let mut chars = text[found.clone()].chars();
    let sign = chars.next().filter(|c| !c.is_alphanumeric()).map(char::len_utf8);
    let word = || text[found.clone()].find(|c: char| !c.is_alphanumeric()).unwrap_or(found.len());
    found.start + sign.unwrap_or_else(word)
}

fn before(text: &str, part: &Range<usize>) -> Option<char> {
    text[..part.start].chars().next_back()
}

fn after(text: &str, part: &Range<usize>) -> Option<char> {
    text[part.end..].chars().next()
}

/// Whether no letter or digit touches the part.
fn stands_alone(text: &str, part: &Range<usize>) -> bool {
    ![before(text, part), after(text, part)].into_iter().flatten().any(char::is_alphanumeric)
}

fn digits(text: &str) -> Vec<u32> {
    text.chars().filter_map(|c| c.to_digit(10)).collect()
}

/// ISO 13616: the first four characters moved to the end, letters as numbers, is 1 modulo 97.
fn iban(text: &str, part: Range<usize>) -> bool {
    let found = &text[part.clone()];
    let compact: Vec<char> = found.chars().filter(char::is_ascii_alphanumeric).collect();
    if !(15..=34).contains(&compact.len()) || !stands_alone(text, &part) {
        return false;
    }
    // Words in lower case are rarely an account: then most of it must be digits.
    let is_upper = !compact.iter().any(char::is_ascii_lowercase);
    if !is_upper && digits(found).len() < 10 {
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
fn card(text: &str, part: Range<usize>) -> bool {
    let digits = digits(&text[part.clone()]);
    if !(13..=19).contains(&digits.len()) || !matches!(digits[0], 2..=6) || !stands_alone(text, &part) {
        return false;
    }
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
    sum.is_multiple_of(10) && (is_all_of_the_digits(text, &part) || is_written_as_cards_are(&text[part]))
}

const CARD_GAPS: [char; 3] = [' ', '\u{a0}', '-'];

/// Whether the part has no further numbers beside it.
fn is_all_of_the_digits(text: &str, part: &Range<usize>) -> bool {
    let (left, right) = (&text[..part.start], &text[part.end..]);
    let goes_on = |gap: Option<&str>, to_digit: fn(&str) -> Option<char>| {
        gap.and_then(to_digit).is_some_and(|c| c.is_ascii_digit())
    };
    !goes_on(left.strip_suffix(CARD_GAPS), |text| text.chars().next_back())
        && !goes_on(right.strip_prefix(CARD_GAPS), |text| text.chars().next())
}

/// One block, or blocks of at least four digits up to the last: in a row of
/// small numbers some always add up.
fn is_written_as_cards_are(part: &str) -> bool {
    let blocks: Vec<&str> = part.split(CARD_GAPS).collect();
    let (_, up_to_last) = blocks.split_last().unwrap_or((&"", &[]));
    up_to_last.iter().all(|block| block.len() >= 4)
}

fn ssn(text: &str, part: Range<usize>) -> bool {
    let text = &text[part];
    text.len() == 11
        && !(text.starts_with("000")
            || text.starts_with("666")
            || text.starts_with('9')
            || &text[4..6] == "00"
            || text.ends_with("0000"))
}

fn phone(text: &str, part: Range<usize>) -> bool {
    let follows_digit = after(text, &part).is_some_and(|c| c.is_ascii_digit());
    let goes_on = text[part.end..].starts_with(|c| " ./-".contains(c))
        && text[part.end + 1..].starts_with(|c: char| c.is_ascii_digit());
    let text = &text[part];
    let count = digits(text).len();
    let is_marked = text.starts_with(['+', '(']);
    let is_date = text.matches(['.', '-', '/']).count() == 2 && count == 8;
    // The beginning of a longer row of numbers is a telephone number only if it says so.
    (8..=15).contains(&count) && !is_date && !follows_digit && (is_marked || (count >= 10 && !goes_on))
}

fn ipv4(text: &str, part: Range<usize>) -> bool {
    text[part].parse::<std::net::Ipv4Addr>().is_ok()
}

fn ipv6(text: &str, part: Range<usize>) -> bool {
    let mut rest = text[part.end..].chars();
    // `abc::def::ghi` is a path of some language.
    let goes_on = rest.next() == Some(':') && rest.next().is_some_and(|c| c == ':' || c.is_alphanumeric());
    let address = text[part].split('%').next().unwrap_or_default();
    // `::` alone is a path separator of many languages.
    !goes_on
        && address.chars().filter(char::is_ascii_hexdigit).count() >= 4
        && address.parse::<std::net::Ipv6Addr>().is_ok()
}
