//! Letters as the mail steps read them: with `mail-parser`, and right where it is not.

use std::borrow::Cow;
use std::fmt::Write;

use html_escape::NAMED_ENTITIES;
use mail_parser::decoders::html::html_to_text;
use mail_parser::{Message, MessageParser, MimeHeaders, PartType};

/// The longest name of a character, with room to spare.
const LONGEST: usize = 40;

/// Parses a message. One that was cut off before the boundary that ends it is
/// read as if it stood there: otherwise its last part would be an attachment.
pub fn parse(bytes: &[u8]) -> Option<Message<'_>> {
    let message = MessageParser::default().parse(bytes)?;
    if !message.parts.iter().any(|part| part.is_encoding_problem) {
        return Some(message);
    }
    let parts = message.parts.iter().filter(|part| matches!(part.body, PartType::Multipart(_)));
    let boundaries = parts.filter_map(|part| part.content_type()?.attribute("boundary"));
    let ends = boundaries.map(|boundary| format!("--{boundary}--"));
    let missing: Vec<String> = ends.filter(|end| !contains(bytes, end.as_bytes())).collect();
    if missing.is_empty() {
        return Some(message);
    }
    let mut whole = bytes.to_owned();
    for end in missing.iter().rev() {
        whole.extend_from_slice(format!("\n{end}\n").as_bytes());
    }
    MessageParser::default().parse(&whole).map(Message::into_owned)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// All text bodies of a message, those in HTML as text.
pub fn body(message: &Message<'_>) -> String {
    let parts = message.text_body.iter().filter_map(|id| message.part(*id));
    let texts = parts.filter_map(|part| match &part.body {
        PartType::Text(text) => Some(Cow::Borrowed(&**text)),
        PartType::Html(html) => Some(Cow::Owned(text(html))),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// HTML as text.
///
/// `mail-parser` does this too, but its table of named characters is wrong on
/// 32-bit targets (`hashify` 0.2 shortens the hash there), so that `&amp;` stays.
/// Its numbered characters are right: names become numbers first.
pub fn text(html: &str) -> String {
    html_to_text(&numbered(html))
}

/// A text of HTML, or a value of one of its attributes, with its characters decoded.
pub fn decoded(html: &str) -> Cow<'_, str> {
    html_escape::decode_html_entities(html)
}

/// `&amp;` as `&#38;`.
fn numbered(html: &str) -> String {
    let mut out = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let end = rest.bytes().take(LONGEST).position(|byte| !byte.is_ascii_alphanumeric());
        let name = end.filter(|end| rest[*end..].starts_with(';')).map(|end| &rest[..end]);
        match name.and_then(of_name) {
            Some(characters) => {
                for c in characters.chars() {
                    // Writing to a text cannot fail.
                    let _ = write!(out, "&#{};", u32::from(c));
                }
                rest = &rest[name.map_or(0, str::len) + 1..];
            }
            None => out.push('&'),
        }
    }
    out.push_str(rest);
    out
}

fn of_name(name: &str) -> Option<&'static str> {
    let at = NAMED_ENTITIES.binary_search_by(|(known, _)| (*known).cmp(name.as_bytes())).ok()?;
    Some(NAMED_ENTITIES[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_that_is_cut_off_has_its_text() {
        let head = "Content-Type: multipart/mixed; boundary=b\n\n--b\n";
        for (rest, wanted, attachments) in [
            ("Content-Type: text/plain\n\nhello\nworld\n", "hello\nworld\n", 0),
            ("Content-Type: text/plain\nContent-Transfer-Encoding: base64\n\naGVsbG8=\n", "hello", 0),
            ("Content-Type: multipart/alternative; boundary=i\n\n--i\n\nhello", "hello", 0),
            ("\nhello\n--b\nContent-Type: application/pdf\n\nxyz", "hello", 1),
        ] {
            let letter = format!("{head}{rest}");
            let message = parse(letter.as_bytes());
            let given = message.map(|message| (body(&message), message.attachments.len()));
            assert_eq!(given, Some((wanted.to_owned(), attachments)), "{rest}");
        }
    }

    #[test]
    fn named_characters_are_decoded_once() {
        let html = "<p>Tom &amp; J&nbsp;&lt;x &uuml; &euro; &#228;</p>";
        assert_eq!(text(html), "Tom & J\u{a0}<x ü € ä\n");
        assert_eq!(text("&amp;lt; &nosuch; a&b & &amp"), "&lt; &nosuch; a&b & &amp");
        assert_eq!(numbered("&NotEqualTilde;"), "&#8770;&#824;");
    }
}
