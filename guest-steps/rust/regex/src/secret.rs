//! What only its place gives away: a value behind the name of a secret, and
//! credentials behind their scheme.

use std::ops::Range;

use regex::Captures;

/// Ends of names, without punctuation and in lower case, whose values are secret.
const ENDS: [&str; 17] = [
    "password",
    "passwd",
    "passwort",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "apikey",
    "accesskey",
    "privatekey",
    "secretkey",
    "secretkeybase",
    "signingkey",
    "encryptionkey",
    "masterkey",
    "accountkey",
    "credentials",
];

/// Last words that are short enough to be the end of an innocent one.
const WORDS: [&str; 2] = ["pass", "pw"];

/// What tokens are called that only page through a list.
const PAGING: [&str; 3] = ["next", "page", "continuation"];

/// Words before a credential in `Authorization`.
const SCHEMES: [&str; 13] = [
    "bearer",
    "basic",
    "token",
    "digest",
    "apikey",
    "api-key",
    "key",
    "negotiate",
    "ntlm",
    "oauth",
    "hawk",
    "signature",
    "aws4-hmac-sha256",
];

/// Schemes whose credentials are a list up to the end of the line.
const LISTS: [&str; 5] = ["digest", "oauth", "hawk", "signature", "aws4-hmac-sha256"];

/// A credential of this length is one, whatever it looks like.
const LONG: usize = 16;

/// A value without quotes that is shorter says rather something about the secret.
const SHORTEST: usize = 3;

/// The longest name looked for behind a comma.
const LONGEST_NAME: usize = 64;

/// Whether a field or variable of this name holds a secret.
pub(crate) fn is_name(name: &str) -> bool {
    let compact: String =
        name.chars().filter(|c| c.is_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect();
    if compact.ends_with("token") {
        return !PAGING.iter().any(|word| compact.contains(word));
    }
    ENDS.iter().any(|end| compact.ends_with(end)) || WORDS.contains(&last_word(name).as_str())
}

/// Whether a field of this name holds a scheme and its credentials.
pub(crate) fn is_authorization(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "authorization" || name == "proxy-authorization"
}

/// Of `DB_PASS`, `db-pass` and `dbPass`, `pass`.
fn last_word(name: &str) -> String {
    let name = name.trim_end_matches(|c: char| !c.is_alphanumeric());
    let start = name.rfind(|c: char| !c.is_alphanumeric()).map_or(0, |at| at + 1);
    let word = &name[start..];
    let capital =
        word.rfind(char::is_uppercase).filter(|at| *at > 0 && word[..*at].ends_with(char::is_lowercase));
    word[capital.unwrap_or(0)..].to_lowercase()
}

/// The value behind `name=`, with its quotes.
pub(crate) fn assigned(text: &str, found: &Captures<'_>) -> Option<Range<usize>> {
    let group = |name| found.name(name).map_or("", |group| group.as_str());
    let name = group("name");
    // `unexpected token: x` and `pass: 120` are no assignments.
    let is_plain = ["token", "pass", "pw"].iter().any(|word| name.eq_ignore_ascii_case(word));
    if !is_name(name) || (is_plain && group("quote").is_empty() && !group("sign").contains('=')) {
        return None;
    }
    let start = found.get_match().end();
    let length = value(&text[start..])?;
    Some(start..start + length)
}

/// The length of the value that a text begins with.
fn value(text: &str) -> Option<usize> {
    let line = text.lines().next()?;
    let first = line.chars().next()?;
    if line.starts_with("\\\"") {
        return Some(escaped_quotes(line)).filter(|end| *end > 4);
    }
    if matches!(first, '"' | '\'' | '`') {
        return Some(quotes(line, first)).filter(|end| *end > 2);
    }
    let end = line
        .char_indices()
        .find(|(at, c)| ends(*c, &line[at + c.len_utf8()..]))
        .map_or(line.len(), |(at, _)| at);
    (line[..end].chars().count() >= SHORTEST).then_some(end)
}

/// Up to the closing quote; without one, up to the end of the line.
fn quotes(line: &str, quote: char) -> usize {
    let mut chars = line.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            // A doubled quote is one inside, as YAML and SQL write it.
            _ if c == quote => match chars.peek() {
                Some((_, next)) if *next == quote => drop(chars.next()),
                _ => return at + c.len_utf8(),
            },
            _ => {}
        }
    }
    line.len()
}

/// The same inside a JSON text, where a quote is `\"`, and one inside it `\\\"`.
fn escaped_quotes(line: &str) -> usize {
    let mut at = 2;
    while let Some(slash) = line[at..].find('\\').map(|offset| at + offset) {
        let rest = &line[slash..];
        if rest.starts_with("\\\"") {
            return slash + 2;
        }
        let skipped = if rest.starts_with("\\\\\\\"") { 4 } else { 2 };
        at = slash + skipped;
        if !line.is_char_boundary(at) || at > line.len() {
            break;
        }
    }
    line.len()
}

/// Whether a value without quotes ends before `c`.
fn ends(c: char, rest: &str) -> bool {
    match c {
        '&' => true,
        c if c.is_whitespace() => true,
        '"' | '\'' | ')' | ']' | '}' | '>' => closes(rest),
        ',' | ';' | '|' => closes(rest) || begins_assignment(rest),
        _ => false,
    }
}

fn closes(rest: &str) -> bool {
    rest.chars().next().is_none_or(|c| c.is_whitespace() || "\"'()[]{}<>,;|&".contains(c))
}

fn begins_assignment(rest: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "_.- ".contains(c);
    let end = rest.chars().take(LONGEST_NAME).take_while(|c| is_name(*c)).map(char::len_utf8).sum::<usize>();
    end > 0 && rest[end..].starts_with(['=', ':'])
}

/// What stands behind `Authorization: Bearer`, or behind `Bearer` alone.
pub(crate) fn credentials(text: &str, found: &Captures<'_>) -> Option<Range<usize>> {
    let start = found.get_match().end();
    if let Some(word) = found.name("word") {
        let token = |c: char| c.is_ascii_alphanumeric() || "._~+/=-".contains(c);
        let length = text[start..].find(|c| !token(c)).unwrap_or(text.len() - start);
        let value = &text[start..start + length];
        let has_digit = value.contains(|c: char| c.is_ascii_digit());
        let is_secret = length >= LONG
            || match word.as_str().to_ascii_lowercase().as_str() {
                "bearer" => length >= 6 && has_digit,
                "basic" => is_user_and_password(value),
                _ => false,
            };
        return is_secret.then_some(start..start + length);
    }
    let scheme = found
        .name("scheme")
        .filter(|scheme| SCHEMES.iter().any(|known| scheme.as_str().eq_ignore_ascii_case(known)));
    let begin = match (scheme, found.name("scheme")) {
        (Some(_), _) | (None, None) => start,
        // A first word that is no scheme belongs to the credential.
        (None, Some(word)) => word.start(),
    };
    let rest = &text[begin..];
    let is_list =
        scheme.is_some_and(|scheme| LISTS.iter().any(|list| scheme.as_str().eq_ignore_ascii_case(list)));
    let length = if is_list {
        rest.lines().next().map_or(0, str::len)
    } else {
        rest.find(|c: char| c.is_whitespace() || "\"',;\\<>".contains(c)).unwrap_or(rest.len())
    };
    let value = &rest[..length];
    let looks_secret = length >= LONG || value.contains(|c: char| c.is_ascii_digit());
    (length > 0 && (scheme.is_some() || looks_secret)).then_some(begin..begin + length)
}

/// The part of an `authorization` field that is secret: all but a scheme.
pub(crate) fn without_scheme(value: &str) -> usize {
    let word = value.split_whitespace().next().unwrap_or_default();
    let is_scheme = SCHEMES.iter().any(|known| word.eq_ignore_ascii_case(known));
    let start = value.find(word).unwrap_or(0);
    let behind = start + word.len();
    let gap = value[behind..].len() - value[behind..].trim_start().len();
    if is_scheme && behind + gap < value.len() { behind + gap } else { 0 }
}

/// Whether base64 holds `user:password`.
fn is_user_and_password(text: &str) -> bool {
    let (mut bits, mut held) = (0_u32, 0_u32);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return false,
        };
        bits = (bits << 6) | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            let decoded = (bits >> held) as u8;
            if decoded == b':' {
                return true;
            }
            if !(decoded >= b' ' && decoded != 0x7f) {
                return false;
            }
            bits &= (1 << held) - 1;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_secrets() {
        for name in [
            "password",
            "DB_PASSWORD",
            "dbPass",
            "DB_PASS",
            "pass",
            "x-api-key",
            "apiKey",
            "GITHUB_TOKEN",
            "token",
            "client_secret",
            "aws_secret_access_key",
            "SECRET_KEY_BASE",
            "PGPASSWORD",
        ] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "bypass",
            "compass",
            "key",
            "primary_key",
            "next_page_token",
            "max_tokens",
            "passed",
            "secretary",
        ] {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn values_end_where_they_end() {
        for (text, wanted) in [
            ("hunter2 and", Some("hunter2")),
            ("a,b;c x", Some("a,b;c")),
            ("abc, user: x", Some("abc")),
            ("abc;User Id=sa", Some("abc")),
            ("abc&x=1", Some("abc")),
            ("abc\"}, {", Some("abc")),
            (r#""s3cr\"et-and-more", "x""#, Some(r#""s3cr\"et-and-more""#)),
            (r#"\"s3cr\\\"et\", \"x\""#, Some(r#"\"s3cr\\\"et\""#)),
            ("'it''s'; x", Some("'it''s'")),
            ("\"open end", Some("\"open end")),
            ("[abc", Some("[abc")),
            ("\"\"", None),
            ("no", None),
            ("", None),
        ] {
            assert_eq!(value(text).map(|end| &text[..end]), wanted, "{text}");
        }
    }
}
