//! Whichever encoding a program uses for a secret, and in whichever pieces it prints it, the secret is hidden, and
//! nothing else is changed.

use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;

use crate::redact::Redactor;
use crate::{Redactions, dump};

const MARK: &str = "«secret:S»";

/// The output of a stream that is cut into pieces of these sizes.
fn masked(secret: &str, text: &[u8], pieces: &[usize]) -> String {
    let mut redactions = Redactions::new();
    assert!(redactions.add_secret("S", secret));
    let mut redactor = Redactor::new(&Arc::new(redactions.into())).unwrap();
    let (mut clean, mut rest, mut sizes) = (Vec::new(), text, pieces.iter().cycle());
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
        clean.extend(redactor.push(piece));
        rest = more;
    }
    clean.extend(redactor.finish());
    String::from_utf8_lossy(&clean).into_owned()
}

fn wrapped(digits: &str, width: usize, end: &str) -> String {
    let lines: Vec<_> =
        digits.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect();
    lines.join(end)
}

fn xxd(bytes: &[u8], columns: usize) -> String {
    let mut text = String::new();
    for (line, bytes) in bytes.chunks(columns).enumerate() {
        let mut hex = String::new();
        for pair in bytes.chunks(2) {
            pair.iter().for_each(|byte| write!(hex, "{byte:02x}").unwrap());
            hex.push(' ');
        }
        writeln!(text, "{:08x}: {hex:<w$} {}", line * columns, printable(bytes), w = columns / 2 * 5 + 2)
            .unwrap();
    }
    text
}

fn hexdump(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (line, bytes) in bytes.chunks(16).enumerate() {
        let mut hex = String::new();
        for (at, byte) in bytes.iter().enumerate() {
            write!(hex, "{}{byte:02x} ", if at == 8 { " " } else { "" }).unwrap();
        }
        writeln!(text, "{:08x}  {hex:<50}|{}|", line * 16, printable(bytes)).unwrap();
    }
    write!(text, "{:08x}", bytes.len()).unwrap();
    text
}

fn od(bytes: &[u8], columns: usize, cell: impl Fn(u8) -> String) -> String {
    let mut text = String::new();
    for (line, bytes) in bytes.chunks(columns).enumerate() {
        let cells: String = bytes.iter().map(|byte| cell(*byte)).collect();
        writeln!(text, "{:07o}{cells}", line * columns).unwrap();
    }
    writeln!(text, "{:07o}", bytes.len()).unwrap();
    text
}

fn od_c(byte: u8) -> String {
    match byte {
        b'\n' => "  \\n".to_owned(),
        0x20..0x7f => format!("   {}", char::from(byte)),
        _ => format!(" {byte:03o}"),
    }
}

fn printable(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| if (0x20..0x7f).contains(byte) { char::from(*byte) } else { '.' }).collect()
}

/// One character as spelled by the encoder with this number.
fn spelled(c: char, how: u8) -> String {
    let code = u32::from(c);
    let units = |upper: bool| -> String {
        let unit = |unit: &u16| if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") };
        c.encode_utf16(&mut [0; 2]).iter().map(unit).collect()
    };
    let bytes = |form: &dyn Fn(u8) -> String| c.to_string().bytes().map(form).collect::<String>();
    match how % 10 {
        0 => bytes(&|byte| format!("%{byte:02X}")),
        1 => bytes(&|byte| format!("%{byte:02x}")),
        2 => units(false),
        3 => units(true),
        4 => format!("&#{code};"),
        5 => format!("&#x{code:X};"),
        6 => units(false).replace('\\', "\\\\"),
        7 => bytes(&|byte| format!("\\x{byte:02x}")),
        8 => bytes(&|byte| format!("\\{byte:03o}")),
        _ => c.to_string(),
    }
}

/// Letters and digits, signs, and characters outside ASCII, 8 to 40 bytes.
fn secret() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9/+=_.@!ö€ -]{8,32}".prop_filter("not all the same", |text| {
        text.trim() == text && text.chars().collect::<std::collections::BTreeSet<_>>().len() > 4
    })
}

fn pieces() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![1..40_usize, 1000..70_000_usize], 1..6)
}

/// The secret cannot be read in a dump, neither in its bytes nor beside them.
fn is_unreadable(clean: &str, secret: &str) -> Result<(), TestCaseError> {
    prop_assert!(clean.contains(MARK), "{clean}");
    let (mut bytes, mut at) = (Vec::new(), 0);
    for line in clean.split_inclusive('\n') {
        let range = at..at + line.trim_end_matches('\n').len();
        bytes.extend(dump::bytes_of(clean.as_bytes(), range).into_iter().flatten().map(|(byte, _)| byte));
        at += line.len();
    }
    prop_assert!(!String::from_utf8_lossy(&bytes).contains(secret));
    for part in secret.as_bytes().windows(8) {
        prop_assert!(!clean.contains(&*String::from_utf8_lossy(part)), "{clean}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn characters_are_hidden_however_they_are_spelled(
        secret in secret(),
        how in prop::collection::vec(0..10_u8, 1..8),
        mixed in any::<bool>(),
        before in 0..70_000_usize,
        pieces in pieces(),
    ) {
        let spelled: String = secret
            .chars()
            .enumerate()
            .map(|(at, c)| spelled(c, if mixed { how[at % how.len()] } else { how[0] }))
            .collect();
        let filler = "a line\n".repeat(before / 7);
        let text = format!("{filler}<{spelled}> and more\n");
        let clean = masked(&secret, text.as_bytes(), &pieces);
        prop_assert_eq!(&clean[filler.len()..], format!("<{MARK}> and more\n"));
        prop_assert!(clean.starts_with(&filler));
    }

    #[test]
    fn digits_are_hidden_however_they_are_wrapped(
        secret in secret(),
        width in 1..80_usize,
        end in prop::sample::select(vec!["\n", "\r\n", "\n  ", "\\n"]),
        around in 0..3_usize,
        kind in 0..4_u8,
        pieces in pieces(),
    ) {
        let whole = format!("{}{secret}{}", "x".repeat(around), "y".repeat(around));
        let digits = match kind {
            0 => STANDARD.encode(&whole),
            1 => URL_SAFE_NO_PAD.encode(&whole),
            2 => whole.bytes().map(|byte| format!("{byte:02x}")).collect(),
            _ => whole.bytes().map(|byte| format!("{byte:02X}")).collect(),
        };
        let text = wrapped(&digits, width, end);
        let clean = masked(&secret, format!("head: {text}\ntail").as_bytes(), &pieces);
        prop_assert!(clean.contains(MARK), "{text}: {clean}");
        // Digits that contain bits of neighbours may remain, with the breaks between them.
        let left = clean.replace(MARK, "").replace(end, "").len();
        prop_assert!(left <= "head: \ntail".len() + 4 * around + 8, "{text}: {clean}");
    }

    #[test]
    fn dumps_are_unreadable(
        secret in secret(),
        before in prop_oneof![0..40_usize, 5_000..12_000_usize],
        after in 0..40_usize,
        columns in prop::sample::select(vec![4_usize, 8, 10, 16, 32]),
        kind in 0..5_u8,
        pieces in pieces(),
    ) {
        let filler = |len: usize| "0123 abc\n".bytes().cycle().take(len).collect::<Vec<u8>>();
        let bytes = [filler(before), secret.clone().into_bytes(), filler(after)].concat();
        let text = match kind {
            0 => xxd(&bytes, columns),
            1 => hexdump(&bytes),
            2 => od(&bytes, columns, od_c),
            3 => od(&bytes, columns, |byte| format!(" {byte:02x}")),
            _ => {
                let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                wrapped(&digits, columns * 2 - 1, "\n")
            }
        };
        is_unreadable(&masked(&secret, text.as_bytes(), &pieces), &secret)?;
    }

    #[test]
    fn what_holds_no_secret_passes_unchanged(
        words in prop::collection::vec(
            prop_oneof!["[ -~]{0,40}", "[a-zA-Z0-9+/]{60}", "(%[0-9a-f]{2}|\\\\u00[0-9a-f]{2}|&#[0-9]{2};){1,12}",
                        "0000[0-9a-f]{4}: [0-9a-f]{4} [0-9a-f]{4}  [a-f.]{4}"],
            0..60,
        ),
        pieces in pieces(),
    ) {
        let text = words.join("\n");
        prop_assert_eq!(masked("kJ7§-never-printed-9Q", text.as_bytes(), &pieces), text);
    }
}

#[test]
fn a_cut_stream_ends_before_a_secret_in_any_spelling() {
    let secret = "correct-horse-7";
    for (text, kept) in [
        ("x %63%6f%72%72", "x "),
        ("x \\u0063\\u006", "x "),
        ("x &#99;&#111;&#1", "x "),
        ("x Y29ycmVj\ndC1o", "x "),
        ("00000000: 2020 636f 7272 6563           corr\n", "00000000: 2020 "),
        // An incomplete line of a dump is removed as a whole.
        ("00000000: 2020 636f 7272 6563", ""),
        ("nothing here", "nothing here"),
    ] {
        let mut redactions = Redactions::new();
        assert!(redactions.add_secret("S", secret));
        let mut redactor = Redactor::new(&Arc::new(redactions.into())).unwrap();
        let mut clean = redactor.push(text.as_bytes());
        clean.extend(redactor.finish_cut());
        assert_eq!(String::from_utf8_lossy(&clean), kept, "{text}");
    }
}
