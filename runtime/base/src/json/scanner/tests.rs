//! Compares the scanner with `serde_json`, on generated documents, broken ones, and every division into pieces.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::json::raw::RawItem;

/// True if `serde_json` accepts the text.
fn is_json(text: &[u8]) -> bool {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    deserializer.disable_recursion_limit();
    let read = <Value as serde::Deserialize>::deserialize(&mut deserializer);
    read.is_ok() && deserializer.end().is_ok() && crate::json::check_depth(text).is_ok()
}

/// The scanner's result for the text in pieces of these sizes, repeated.
fn scans(text: &[u8], sizes: &[usize]) -> bool {
    let mut scanner = Scanner::new();
    let (mut rest, mut sizes) = (text, sizes.iter().copied().cycle());
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(sizes.next().unwrap_or(rest.len()).clamp(1, rest.len()));
        if scanner.push(piece).is_err() {
            return false;
        }
        rest = after;
    }
    scanner.finish_text().is_ok()
}

fn agree(text: &[u8], sizes: &[usize]) {
    let shown = String::from_utf8_lossy(text);
    assert_eq!(scans(text, sizes), is_json(text), "{shown:?} in pieces of {sizes:?}");
}

/// The items of a list, as separated by the scanner in pieces of one size.
fn items(text: &[u8], size: usize) -> Vec<Vec<u8>> {
    let mut scanner = Scanner::by_item();
    let (mut items, mut current) = (Vec::new(), Vec::new());
    for piece in text.chunks(size) {
        let mut at = 0;
        while let Some(end) = scanner.next(piece, at).unwrap() {
            current.extend_from_slice(&piece[at..end]);
            items.push(std::mem::take(&mut current));
            at = end;
        }
        current.extend_from_slice(&piece[at..]);
    }
    items
}

/// Texts that are JSON or nearly so.
const TEXTS: &[&str] = &[
    "",
    " ",
    "null",
    " true ",
    "fals",
    "nul",
    "nulll",
    "tru e",
    "t",
    "[]",
    "[ ]",
    "{}",
    "{ }",
    "[1,2]",
    "[1,]",
    "[,1]",
    "[1 2]",
    "{\"a\":1}",
    "{\"a\":1,}",
    "{\"a\"}",
    "{\"a\" 1}",
    "{1:2}",
    "{,}",
    "[}",
    "{]",
    "[",
    "]",
    "[[]",
    "[]]",
    "1 2",
    "0",
    "-0",
    "-",
    "01",
    "00",
    "0.5",
    "0.",
    ".5",
    "1.e1",
    "1e",
    "1e+",
    "1e-07",
    "1E400",
    "-1e400",
    "0e999999999999",
    "1e-999999999999",
    "[1e308,1e309]",
    "1.7976931348623157e308",
    "1.7976931348623159e308",
    "+1",
    "1-",
    "Infinity",
    "NaN",
    "12345678901234567890123",
    "-9223372036854775809",
    "\"",
    "\"a",
    "\"a\"b",
    "\"\\\"\"",
    "\"\\\\\"",
    "\"\\x\"",
    "\"\\\"",
    "\"\\u00e9\"",
    "\"\\u00g0\"",
    "\"\\u00e\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"\\ud83dx\"",
    "\"\\ud83d\\n\"",
    "\"\\ud83d\\u0041\"",
    "\"\\ude00\"",
    "\"\\ud83d\\ud83d\"",
    "\"\\uD83D\\uDE00\"",
    "\"é😀\"",
    "\"\u{7f}\"",
    "\"a\nb\"",
    "\"\u{1f}\"",
    "\u{feff}[]",
    "[]\u{feff}",
    "\u{a0}1",
    "[\u{c}1]",
    "{\"a\":1,\"a\":2}",
    "{\"\":[{}]}",
    "'a'",
    "/**/1",
    "[\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\\u0000bbbbbbbbbbbbbbbbbb\", -1.25e-3 , {\"x\" : [ null , true ] } ]",
];

#[test]
fn says_what_serde_json_says() {
    let long = |digit: &str, count| digit.repeat(count);
    let made = [
        long("9", 309),
        format!("1{}", long("0", 308)),
        format!("1{}", long("0", 309)),
        format!("[{}.5]", long("9", 308)),
        format!("{}.{}", long("1", 400), long("2", 10)),
        format!("0.{}1e400", long("0", 400)),
        format!("0.{}1e2", long("0", 900)),
    ];
    let odd: [&[u8]; 14] = [
        b"\"\xff\"",
        b"\"\xc3\"",
        b"\"\xc3\xa9\"",
        b"\"\xc0\x80\"",
        b"\"\xe0\x80\x80\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
        b"\"\xf0\x9f\x98\x80\"",
        b"\"\xf0\x9f\x98\"",
        b"\"\x80\"",
        b"\xef\xbb\xbf1",
        b"[\xc2\xa01]",
        b"\"\xf5\x80\x80\x80\"",
        b"\0",
    ];
    for text in
        TEXTS.iter().map(|text| text.as_bytes()).chain(made.iter().map(|text| text.as_bytes())).chain(odd)
    {
        for size in [1, 2, 3, 7, 8, 9, 1 << 20] {
            agree(text, &[size]);
        }
    }
}

#[test]
fn nesting_is_bounded() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    for size in [1, 4096, 1 << 20] {
        assert!(scans(deep(MAX_DEPTH).as_bytes(), &[size]));
        assert!(!scans(deep(MAX_DEPTH + 1).as_bytes(), &[size]));
    }
}

#[test]
fn items_are_told_apart() {
    let text = r#" [ 1, "a,]\"" ,{"b":[1,2]},[ ] ,-2.5e3,true,null,{} ,"é"] "#.as_bytes();
    for size in [1, 2, 5, 13, 1000] {
        let items = items(text, size);
        let first = items.iter().map(|item| String::from_utf8_lossy(item).into_owned());
        let shown: Vec<_> = first.map(|item| item.trim_matches([' ', ',']).to_owned()).collect();
        let expected =
            ["[ 1", r#""a,]\"""#, r#"{"b":[1,2]}"#, "[ ]", "-2.5e3", "true", "null", "{}", "\"é\""];
        assert_eq!(shown, expected, "in pieces of {size}");
    }
    assert_eq!(items(b"[]", 1).len() + items(b"{\"a\":[1,2]}", 1).len() + items(b"7", 1).len(), 0);
}

/// Any value, with names, texts and numbers that are difficult to write.
fn value() -> impl Strategy<Value = String> {
    let text = prop_oneof![
        any::<String>().prop_map(|text| Value::from(text).to_string()),
        "\"(\\\\[\"\\\\/bfnrtu]|\\\\u[dD][89abAB][0-9a-f]{2}\\\\u[dD][c-fC-F][0-9a-f]{2}|\\\\u[0-9a-f]{4}|[a-z é😀]){0,12}\"",
    ];
    let number = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| format!("{n:e}")),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,12})?([eE][+-]?[0-9]{1,3})?",
    ];
    let leaf = prop_oneof![text.clone(), number, Just("true".to_owned()), Just("null".to_owned())];
    leaf.prop_recursive(5, 48, 6, move |inner| {
        let blank = "[ \n\t]{0,2}";
        prop_oneof![
            (blank, prop::collection::vec(inner.clone(), 0..6))
                .prop_map(|(blank, items)| format!("[{blank}{}{blank}]", items.join(&format!("{blank},")))),
            prop::collection::vec((text.clone(), inner), 0..5).prop_map(|fields| {
                let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn agrees_on_made_documents(text in value(), sizes in prop::collection::vec(1_usize..40, 1..5)) {
        agree(text.as_bytes(), &sizes);
    }

    /// A field found in the text is the field of the parsed value.
    #[test]
    fn fields_are_what_serde_json_reads(text in value()) {
        if !is_json(text.as_bytes()) {
            return Ok(());
        }
        let read = crate::json::parse(&text);
        let (Ok(Value::Object(fields)), raw) = (read, RawItem::new(text.as_bytes())) else { return Ok(()) };
        prop_assert!(raw.find_field("not there").is_none_or(|found| found.is_none()));
        for (name, value) in &fields {
            if let Some(found) = raw.find_field(name) {
                prop_assert_eq!(found.and_then(|raw| raw.parse_value().ok()), Some(value.clone()));
            }
        }
    }

    #[test]
    fn agrees_on_broken_documents(
        text in value(),
        at in any::<prop::sample::Index>(),
        byte in prop_oneof![any::<u8>(), prop::sample::select(b"\"\\{}[]:,0-.eEu \n\x7f\x80\xed".to_vec())],
        how in 0..3,
        sizes in prop::collection::vec(1_usize..40, 1..5),
    ) {
        let mut bytes = text.into_bytes();
        let at = at.index(bytes.len() + 1);
        match how {
            0 => bytes.insert(at, byte),
            1 if at < bytes.len() => bytes[at] = byte,
            _ => bytes.truncate(at),
        }
        agree(&bytes, &sizes);
    }
}
