//! Secrets are hidden in every encoding, even if a text arrives in pieces.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn secrets(pairs: &[(&str, &str)]) -> Redactions {
    let mut redactions = Redactions::new();
    for (name, value) in pairs {
        assert!(redactions.add_secret(name, value));
    }
    redactions
}

#[test]
fn hides_values_in_strings_keys_and_quoted_text() {
    let redactions = secrets(&[("KEY", "hunter2"), ("Q", "pa\"ss"), ("KEY", "hunter2")]);
    let mut value = json!({"hunter2": ["x hunter2 y hunter2", {"t": "{\"p\":\"pa\\\"ss\"}"}], "n": 7});
    redactions.hide_in_value(&mut value);
    assert_eq!(
        value,
        json!({"«secret:KEY»": ["x «secret:KEY» y «secret:KEY»", {"t": "{\"p\":\"«secret:Q»\"}"}], "n": 7})
    );
    let binary = [b"\xff ".as_slice(), "«secret:KEY»".as_bytes()].concat();
    assert_eq!(redactions.hide_in_bytes(b"\xff hunter2").as_ref(), binary);
    assert_eq!(format!("{redactions:?}"), r#"["«secret:KEY»", "«secret:Q»"]"#);
}

#[test]
fn the_longer_of_two_overlapping_secrets_wins_and_short_ones_are_refused() {
    let redactions = secrets(&[("A", "token"), ("B", "token-long")]);
    assert_eq!(redactions.hide_in_text("a token-long token"), "a «secret:B» «secret:A»");
    assert!(!Redactions::new().add_secret("S", "abc"));
}

#[test]
fn a_cut_stream_does_not_end_with_the_beginning_of_a_secret() {
    let redactions = Arc::new(secrets(&[("KEY", "correct horse")]).into());
    for (text, kept) in [("x correct hors", "x "), ("x correct horse", "x «secret:KEY»"), ("x y", "x y")] {
        let mut redactor = Redactor::new(&redactions).unwrap();
        let mut clean = redactor.push(text.as_bytes());
        clean.extend(redactor.finish_cut());
        assert_eq!(String::from_utf8_lossy(&clean), kept);
    }
}

proptest! {
    #[test]
    fn pieces_do_not_matter(
        words in prop::collection::vec(prop_oneof!["[abc\n]{1,6}", Just("abcabc".to_owned()), Just("cabb".to_owned())], 0..20),
        cut in 1..9_usize,
        by_lines in any::<bool>(),
    ) {
        let redactions = secrets(&[("A", "abcabc"), ("B", "cabb"), ("C", "abcabca")]);
        let text = words.concat();
        let whole = redactions.hide_in_bytes(text.as_bytes()).into_owned();
        let mut pieces = Redactor::new(&Arc::new(redactions.into())).unwrap();
        let mut clean: Vec<u8> =
            text.as_bytes().chunks(cut).flat_map(|piece| pieces.take_piece(piece, by_lines)).collect();
        clean.extend(pieces.finish());
        prop_assert_eq!(clean, whole);
    }
}

/// An encoding in which a program prints a value.
#[derive(Clone, Copy, Debug)]
enum Encoding {
    Plain,
    Percent { all: bool, large: bool },
    Json { all: bool },
    JsonTwice,
    Octal,
    Entities { hexadecimal: bool },
    Base64 { before: usize, width: usize, break_: usize },
    Hex { large: bool, width: usize },
    Xxd { before: usize, width: usize },
    Od { before: usize, width: usize },
    OdCharacters { before: usize },
}

const BREAKS: [&str; 5] = ["\n", "\r\n", "\\n", "\n  ", "%0A"];

fn wrapped(digits: &str, width: usize, between: &str) -> String {
    let lines: Vec<&str> =
        digits.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
    lines.join(between)
}

fn lines_of(value: &str, before: usize, width: usize, line: impl Fn(usize, &[u8]) -> String) -> String {
    let bytes = [vec![b'.'; before], value.as_bytes().to_vec(), b".".to_vec()].concat();
    let lines = bytes.chunks(width).enumerate().map(|(number, bytes)| line(number * width, bytes));
    format!("\n{}", lines.collect::<String>())
}

impl Encoding {
    fn print(self, value: &str) -> String {
        let each = |print: &dyn Fn(u8) -> String| value.bytes().map(print).collect::<String>();
        match self {
            Self::Plain => value.to_owned(),
            Self::Percent { all, large } => each(&|byte| match byte {
                byte if !all && byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
                byte if large => format!("%{byte:02X}"),
                byte => format!("%{byte:02x}"),
            }),
            Self::Json { all: true } => each(&|byte| format!("\\u{byte:04x}")),
            Self::Json { all: false } => serde_json::to_string(value).unwrap(),
            Self::JsonTwice => serde_json::to_string(&serde_json::to_string(value).unwrap()).unwrap(),
            Self::Octal => each(&|byte| format!("\\{byte:03o}")),
            Self::Entities { hexadecimal: true } => each(&|byte| format!("&#x{byte:x};")),
            Self::Entities { hexadecimal: false } => each(&|byte| match byte {
                b'&' => "&amp;".to_owned(),
                b'"' => "&quot;".to_owned(),
                byte if byte.is_ascii_alphabetic() => char::from(byte).to_string(),
                byte => format!("&#{byte};"),
            }),
            Self::Base64 { before, width, break_ } => {
                let digits = STANDARD.encode(format!("{}{value}tail", &"abc"[..before]));
                wrapped(&digits, width, BREAKS[break_])
            }
            Self::Hex { large: true, width } => wrapped(&each(&|byte| format!("{byte:02X}")), width, "\n"),
            Self::Hex { large: false, width } => wrapped(&each(&|byte| format!("{byte:02x}")), width, "\n"),
            Self::Xxd { before, width } => lines_of(value, before, width, |place, bytes| {
                let groups: Vec<String> = bytes
                    .chunks(2)
                    .map(|two| two.iter().map(|byte| format!("{byte:02x}")).collect())
                    .collect();
                format!("{place:08x}: {}  {}\n", groups.join(" "), String::from_utf8_lossy(bytes))
            }),
            Self::Od { before, width } => lines_of(value, before, width, |place, bytes| {
                let bytes: String = bytes.iter().map(|byte| format!(" {byte:02x}")).collect();
                format!("{place:07o}{bytes}\n")
            }),
            Self::OdCharacters { before } => lines_of(value, before, 16, |place, bytes| {
                let cells: String = bytes.iter().map(|byte| format!("   {}", char::from(*byte))).collect();
                format!("{place:07o}{}\n", cells.replace("   \\", "  \\\\"))
            }),
        }
    }

    /// True if the value can be read in the output.
    fn gives_away(self, value: &str, shown: &str) -> bool {
        let printed = self.print(value);
        match self {
            // Digits at the edges contain bits of a neighbour.
            Self::Base64 { before, .. } => {
                let digits = |text: &str| {
                    let text = BREAKS.iter().fold(text.to_owned(), |text, it| text.replace(it, ""));
                    text.bytes().filter(u8::is_ascii_alphanumeric).map(char::from).collect::<String>()
                };
                let begin = (before * 8).div_ceil(6);
                let whole = digits(&STANDARD.encode(format!("{}{value}tail", &"abc"[..before])));
                whole.get(begin + 1..whole.len() - 8).is_some_and(|kernel| digits(shown).contains(kernel))
            }
            Self::Json { all: false } | Self::JsonTwice => shown.contains(printed.trim_matches(['"', '\\'])),
            Self::Xxd { .. } | Self::Od { .. } | Self::OdCharacters { .. } => {
                let lines = shown.lines().filter_map(|line| dump::bytes_of(line.as_bytes(), 0..line.len()));
                let bytes: Vec<u8> = lines.flatten().map(|(byte, _)| byte).collect();
                bytes.windows(value.len()).any(|bytes| bytes == value.as_bytes())
            }
            _ => shown.contains(&printed),
        }
    }
}

fn encodings() -> impl Strategy<Value = Encoding> {
    let before = 0..40_usize;
    prop_oneof![
        Just(Encoding::Plain),
        any::<(bool, bool)>().prop_map(|(all, large)| Encoding::Percent { all, large }),
        any::<bool>().prop_map(|all| Encoding::Json { all }),
        Just(Encoding::JsonTwice),
        Just(Encoding::Octal),
        any::<bool>().prop_map(|hexadecimal| Encoding::Entities { hexadecimal }),
        (0..3_usize, 1..80_usize, 0..BREAKS.len()).prop_map(|(before, width, break_)| Encoding::Base64 {
            before,
            width,
            break_
        }),
        (any::<bool>(), 1..80_usize).prop_map(|(large, width)| Encoding::Hex { large, width }),
        (before.clone(), 1..33_usize).prop_map(|(before, width)| Encoding::Xxd { before, width }),
        (before.clone(), 1..33_usize).prop_map(|(before, width)| Encoding::Od { before, width }),
        before.prop_map(|before| Encoding::OdCharacters { before }),
    ]
}

/// Text around a secret, with beginnings of every searched form.
fn surroundings() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-z ]{0,12}",
        "[%&\\\\\n\r+\" ]{0,4}",
        "%[0-9a-f]{2}|&amp;|&#[0-9]{2};|\\\\u00[0-9a-f]{2}|\\\\n|\\\\\\\\n",
        "[A-Za-z0-9+/]{20,90}",
        "\n0000[0-9a-f]{4}: [0-9a-f]{4} [0-9a-f]{4}  ....\n",
    ];
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_encoding_is_hidden_however_the_text_is_cut(
        value in "[A-Za-z0-9_/+&\" %.-]{10,40}[A-Za-z0-9]",
        encoding in encodings(),
        around in (surroundings(), surroundings()),
        filler in 0..6_usize,
        cuts in prop::collection::vec(1..20_000_usize, 1..8),
    ) {
        let redactions = Arc::new(secrets(&[("S", &value), ("OTHER", "an/other+secret")]).into());
        // Long enough that the secret can span two searched pieces.
        let filler = "some plain text of a log\n".repeat(filler * 500);
        let text = format!("{filler}{} {} {}{filler}", around.0, encoding.print(&value), around.1);
        let clean_by = |by_lines: bool| {
            let mut redactor = Redactor::new(&redactions).unwrap();
            let (mut clean, mut rest) = (Vec::new(), text.as_bytes());
            for cut in cuts.iter().cycle() {
                let (piece, after) = rest.split_at((*cut).min(rest.len()));
                clean.extend(redactor.take_piece(piece, by_lines));
                rest = after;
                if rest.is_empty() {
                    break;
                }
            }
            clean.extend(redactor.finish());
            String::from_utf8_lossy(&clean).into_owned()
        };
        let clean = clean_by(false);
        // A followed stream gives the same bytes.
        prop_assert_eq!(&clean_by(true), &clean);
        prop_assert!(clean.contains("«secret:"), "{:?}: {}", encoding, encoding.print(&value));
        prop_assert!(!encoding.gives_away(&value, &clean), "{:?}: {}", encoding, encoding.print(&value));
    }

    #[test]
    fn a_glance_overlooks_nothing(text in surroundings()) {
        let text = text.as_bytes();
        let found: Vec<usize> = mark_positions(text).collect();
        let naive: Vec<usize> = (0..text.len()).filter(|at| MARKS.contains(&text[*at])).collect();
        prop_assert_eq!(&found, &naive);
        for at in naive.into_iter().filter(|at| spelling::begins_escape(text[*at])) {
            let glance = spelling::classify_escape(text, at);
            spelling::first_bytes(text, at, |first| {
                let is_told = match glance {
                    Glance::Nothing => false,
                    Glance::Bytes(one, other) => first == one || first == other,
                    Glance::Break(one, other, _) => first == one || first == other,
                    Glance::Unclear => true,
                };
                assert!(is_told, "{first:?} at {at} of {:?}: {glance:?}", String::from_utf8_lossy(text));
            });
        }
    }

    #[test]
    fn a_byte_is_marked_as_it_is(bytes in any::<[u8; 8]>()) {
        let expected = bytes.iter().rev().fold(0_u64, |found, byte| {
            found << 8 | if MARKS.contains(byte) { 0x80 } else { 0 }
        });
        prop_assert_eq!(marked_bytes(u64::from_le_bytes(bytes)), expected);
    }
}

#[test]
fn a_line_of_a_dump_that_breaks_off_hides_what_the_lines_before_it_began() {
    let value = "a _\"aAAAA_A";
    let redactions = Arc::new(secrets(&[("S", value)]).into());
    let dump = Encoding::Od { before: 14, width: 12 }.print(value);
    // The last line begins like a line that shows a byte.
    let at = dump.find("0000030").unwrap() + 2;
    let mut redactor = Redactor::new(&redactions).unwrap();
    let mut clean = redactor.push_lines(&dump.as_bytes()[..at]);
    clean.extend(redactor.push_lines(&dump.as_bytes()[at..]));
    clean.extend(redactor.finish());
    let clean = String::from_utf8_lossy(&clean).into_owned();
    assert!(clean.contains("«secret:S»") && !clean.contains("61 20 5f"), "{clean}");
}
