//! How a secret may look in output: quoted, escaped or encoded by the programs
//! that handle it.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};

/// A part or encoding shorter than this would be found everywhere.
const SHORTEST_PART: usize = 4;
/// A line of a secret that is looked for by itself, as in a key file.
const SHORTEST_LINE: usize = 12;
/// Where base64 tools break their lines: coreutils and MIME, PEM.
const WRAPS: [usize; 2] = [76, 64];

/// Every form in which `value` is looked for; the value itself is the first.
pub(super) fn disguises(value: &str) -> Vec<String> {
    let mut forms = vec![value.to_owned()];
    forms.extend(quoted(value));
    forms.extend(percent_encoded(value));
    forms.extend(hex(value));
    forms.extend(base64_forms(value));
    let lines: Vec<&str> = value.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE).collect();
    if value.trim().contains('\n') {
        forms.extend(lines.into_iter().map(str::to_owned));
    }
    forms.retain(|form| form.len() >= SHORTEST_PART);
    forms
}

/// As JSON (once and twice, with and without ASCII escapes), shells and HTML write it.
fn quoted(value: &str) -> Vec<String> {
    let json = json_inside(value);
    let ascii = |text: &str| -> String {
        text.chars()
            .map(|c| match c {
                c if c.is_ascii() => c.to_string(),
                c => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
            })
            .collect()
    };
    let go = json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let html = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let plain = |c: char| c.is_alphanumeric() || "_./:=@%+,-".contains(c);
    let mut forms = vec![ascii(&json), ascii(&json).replace('/', "\\/"), json.replace('/', "\\/"), go, json];
    // JSON text is often a string of other JSON.
    for once in forms.clone() {
        forms.extend([json_inside(&once), ascii(&json_inside(&once))]);
    }
    let quotes = |double: &str, single: &str| html.replace('"', double).replace('\'', single);
    forms.extend([quotes("&quot;", "&#39;"), quotes("&quot;", "&#x27;"), quotes("&#34;", "&#39;")]);
    forms.push(value.replace('\'', "'\\''"));
    forms.push(value.chars().map(|c| if plain(c) { c.to_string() } else { format!("\\{c}") }).collect());
    forms.push(html);
    forms
}

/// The text between the quotes of a JSON string.
fn json_inside(value: &str) -> String {
    let text = crate::json::compact(&value);
    text[1..text.len() - 1].to_owned()
}

/// As the usual libraries encode it for a URL; they differ in what they leave alone.
fn percent_encoded(value: &str) -> Vec<String> {
    const KEPT: [&str; 5] = ["-_.~", "-_.~/", "-_.!~*'()", "-_.*", "-_.!~*'();,/?:@&=+$#"];
    let mut forms = Vec::new();
    for kept in KEPT {
        let encode = |lower: bool, plus: bool| -> String {
            value
                .bytes()
                .map(|byte| match byte {
                    b if b.is_ascii_alphanumeric() || kept.as_bytes().contains(&b) => {
                        char::from(b).to_string()
                    }
                    b' ' if plus => "+".to_owned(),
                    b if lower => format!("%{b:02x}"),
                    b => format!("%{b:02X}"),
                })
                .collect()
        };
        forms.extend([encode(false, false), encode(true, false), encode(false, true), encode(true, true)]);
    }
    forms
}

fn hex(value: &str) -> [String; 2] {
    let lower: String = value.bytes().map(|byte| format!("{byte:02x}")).collect();
    let upper = lower.to_ascii_uppercase();
    [lower, upper]
}

/// Base64 of the value alone, and the digits that stand for it wherever it
/// begins inside a longer text (`user:password`).
fn base64_forms(value: &str) -> Vec<String> {
    let mut forms = vec![STANDARD.encode(value), URL_SAFE.encode(value)];
    // `echo` adds a newline to what it encodes.
    forms.push(STANDARD.encode(format!("{value}\n")));
    for wrap in WRAPS {
        for whole in [STANDARD.encode(value), STANDARD.encode(format!("{value}\n"))] {
            if whole.len() > wrap {
                let lines = whole.as_bytes().chunks(wrap).filter(|line| line.len() >= SHORTEST_LINE);
                forms.extend(lines.map(|line| String::from_utf8_lossy(line).into_owned()));
            }
        }
    }
    for before in 0..3_usize {
        let padded = [vec![0; before], value.as_bytes().to_vec()].concat();
        // Digits that hold bits of a neighbour are not known.
        let (first, end) = ((before * 8).div_ceil(6), padded.len() * 8 / 6);
        for text in [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
            forms.extend(text.get(first..end).map(str::to_owned));
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
        assert!(redactions.add("S", value));
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
            hex(value)[1].clone(),
        ] {
            let clean = redactions.text(&text);
            assert!(clean.contains("«secret:S»"), "{text}: {clean}");
            // What is left of an encoding is a digit that holds bits of its neighbours.
            assert!(clean.replace("«secret:S»", "").len() < 24, "{text}: {clean}");
        }
    }

    #[test]
    fn long_secrets_are_found_when_wrapped_and_line_by_line() {
        let key: String =
            (0..6).map(|n| format!("line-{n}-of-a-private-key-that-is-long-enough\n")).collect();
        let mut redactions = Redactions::new();
        assert!(redactions.add("KEY", key.trim_end()));
        let wrapped = STANDARD.encode(key.as_bytes());
        let lines: Vec<_> =
            wrapped.as_bytes().chunks(76).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        let clean = redactions.text(&lines.join("\n")).into_owned();
        assert!(lines[..lines.len() - 1].iter().all(|line| !clean.contains(line)), "{clean}");
        assert_eq!(redactions.text("x line-3-of-a-private-key-that-is-long-enough y"), "x «secret:KEY» y");
    }
}
