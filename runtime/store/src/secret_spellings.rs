//! Forms of a secret in output: quoted, escaped or encoded by the programs that handle it. Escapes and wrapped digits
//! are not listed here but decoded (see `spelling`), and so are dumps (see `dump`).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

use super::spelling::SpellingKind;

/// A shorter part or encoding would be found everywhere.
const SHORTEST_PART: usize = 4;
/// Shortest line of a secret that is hidden by itself, as in a key file.
const SHORTEST_LINE: usize = 12;

/// A text that represents a secret.
#[derive(Clone)]
pub(super) struct Form {
    pub(super) text: String,
    /// Decoding of the text; `None` if only the exact text is searched for.
    pub(super) kind: Option<SpellingKind>,
}

impl Form {
    fn fixed(text: String) -> Self {
        Self { text, kind: None }
    }
}

/// All forms in which `value` is searched for; the first is the value itself.
pub(super) fn secret_forms(value: &str) -> Vec<Form> {
    let plain = |text: &str| Form { text: text.to_owned(), kind: Some(SpellingKind::Plain) };
    let mut forms = vec![plain(value)];
    if value.trim().contains('\n') {
        let lines = value.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE);
        forms.extend(lines.map(plain));
    }
    // A quote inside quotes, as in shells; a blank in form data.
    forms.push(Form::fixed(value.replace('\'', "'\\''")));
    forms.push(Form::fixed(value.replace('\'', "'\"'\"'")));
    forms.push(Form::fixed(value.replace(' ', "+")));
    forms.extend(hex_forms(value));
    forms.extend(base64_forms(value));
    forms.retain(|form| form.text.len() >= SHORTEST_PART);
    forms
}

/// Hexadecimal digits of each byte: joined, and separated.
fn hex_forms(value: &str) -> Vec<Form> {
    let joined =
        |between: &str| value.bytes().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between);
    let mut forms = vec![Form { text: joined(""), kind: Some(SpellingKind::Hex) }];
    forms.push(Form::fixed(joined("").to_ascii_uppercase()));
    for between in [" ", ":", "-"] {
        forms.push(Form::fixed(joined(between)));
        forms.push(Form::fixed(joined(between).to_ascii_uppercase()));
    }
    forms
}

/// Base64 of the value alone, and the digits that encode it at any position inside a longer text (`user:password`).
fn base64_forms(value: &str) -> Vec<Form> {
    let digits = |text: String| Form { text, kind: Some(SpellingKind::Digits) };
    let mut forms = vec![digits(STANDARD.encode(value)), digits(URL_SAFE.encode(value))];
    // `echo` adds a newline to the encoded text.
    forms.push(digits(STANDARD.encode(format!("{value}\n"))));
    for before in 0..3_usize {
        let padded = [vec![0; before], value.as_bytes().to_vec()].concat();
        // Digits that contain bits of a neighbour are unknown.
        let (first, end) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for text in [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
            forms.extend(text.get(first..end).map(|text| digits(text.to_owned())));
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::super::Redactions;
    use super::*;

    #[test]
    fn a_secret_is_found_however_it_is_written() {
        let value = "p&ss/wörd \"x\" it's+7?";
        let mut redactions = Redactions::new();
        assert!(redactions.add_secret("S", value));
        for text in [
            value.to_owned(),
            serde_json::to_string(value).unwrap(),
            serde_json::to_string(&serde_json::to_string(value).unwrap()).unwrap(),
            "\"p&ss/w\\u00f6rd \\\"x\\\" it's+7?\"".to_owned(),
            "p%26ss%2Fw%C3%B6rd%20%22x%22%20it%27s%2B7%3F".to_owned(),
            "q=p%26ss/w%c3%b6rd+%22x%22+it%27s%2b7%3f&z".to_owned(),
            "p&amp;ss/wörd &quot;x&quot; it&#39;s+7?".to_owned(),
            "'p&ss/wörd \"x\" it'\\''s+7?'".to_owned(),
            STANDARD.encode(value),
            URL_SAFE_NO_PAD.encode(value),
            STANDARD.encode(format!("user:{value}")),
            STANDARD.encode(format!("me:{value}:there")),
            STANDARD.encode(format!("{value}\n")),
            hex_forms(value)[1].text.clone(),
        ] {
            let clean = redactions.hide_in_text(&text);
            assert!(clean.contains("«secret:S»"), "{text}: {clean}");
            // The rest of an encoding is at most digits that contain bits of its neighbours.
            assert!(clean.replace("«secret:S»", "").len() < 24, "{text}: {clean}");
        }
    }

    #[test]
    fn long_secrets_are_found_when_wrapped_and_line_by_line() {
        let key: String =
            (0..6).map(|n| format!("line-{n}-of-a-private-key-that-is-long-enough\n")).collect();
        let mut redactions = Redactions::new();
        assert!(redactions.add_secret("KEY", key.trim_end()));
        let wrapped = STANDARD.encode(key.as_bytes());
        let lines: Vec<_> =
            wrapped.as_bytes().chunks(76).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        let clean = redactions.hide_in_text(&lines.join("\n")).into_owned();
        assert!(lines[..lines.len() - 1].iter().all(|line| !clean.contains(line)), "{clean}");
        assert_eq!(
            redactions.hide_in_text("x line-3-of-a-private-key-that-is-long-enough y"),
            "x «secret:KEY» y"
        );
    }
}
