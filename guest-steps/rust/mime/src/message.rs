//! One message.

use std::borrow::Cow;

use lobster_step::{JsonSchema, StepError, host};
use mail_parser::decoders::base64::base64_decode;
use mail_parser::decoders::quoted_printable::quoted_printable_decode;
use mail_parser::{Addr, Address, Encoding, HeaderValue, Message, MessagePart, MimeHeaders, PartType};
use serde::Serialize;

use crate::{Args, Attachments, Body};

/// Messages attached to messages are followed this far.
const DEPTH: usize = 8;

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Letter {
    /// The message id, without angle brackets.
    id: Option<String>,
    from: Vec<Mailbox>,
    to: Vec<Mailbox>,
    cc: Vec<Mailbox>,
    bcc: Vec<Mailbox>,
    reply_to: Vec<Mailbox>,
    subject: Option<String>,
    /// RFC 3339.
    date: Option<String>,
    in_reply_to: Vec<String>,
    references: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    html: Option<String>,
    /// Whether a body was cut at `max_text`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    attachments: Vec<Attachment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Vec<Header>>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(crate = "lobster_step::schemars")]
struct Mailbox {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(crate = "lobster_step::schemars")]
struct Attachment {
    name: Option<String>,
    /// The media type.
    r#type: String,
    /// Bytes, decoded.
    size: usize,
    /// Whether it is shown inside the message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    inline: bool,
    /// What `cid:` links in the HTML call it.
    #[serde(skip_serializing_if = "Option::is_none")]
    content_id: Option<String>,
    /// The BLAKE3 digest of the blob, if attachments are stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// An attached message.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Box<Letter>>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(crate = "lobster_step::schemars")]
struct Header {
    name: String,
    value: String,
}

impl Letter {
    /// # Errors
    /// `not-mail` if no line `Name: value` stands before the body; `place` opens the message. And
    /// whatever the store says to an attachment.
    pub(crate) fn parse(bytes: &[u8], args: &Args, place: &str) -> Result<Self, StepError> {
        let message = lobster_mail::parse(bytes)
            .filter(|_| has_header(bytes))
            .ok_or_else(|| StepError::new("not-mail", format!("{place}there is no e-mail header")))?;
        Self::new(&message, args, DEPTH)
    }

    fn new(message: &Message<'_>, args: &Args, depth: usize) -> Result<Self, StepError> {
        let mut truncated = false;
        let mut cut = |text: String| {
            let end = text.char_indices().nth(args.max_text).map_or(text.len(), |(at, _)| at);
            truncated |= end < text.len();
            text[..end].to_owned()
        };
        let text = matches!(args.body, Body::Text | Body::Both).then(|| cut(lobster_mail::body(message)));
        let html = matches!(args.body, Body::Html | Body::Both).then(|| {
            let parts: Vec<_> =
                (0..message.html_body_count()).filter_map(|at| message.body_html(at)).collect();
            cut(parts.join("\n"))
        });
        Ok(Self {
            id: message.message_id().map(str::to_owned),
            from: mailboxes(message.from()),
            to: mailboxes(message.to()),
            cc: mailboxes(message.cc()),
            bcc: mailboxes(message.bcc()),
            reply_to: mailboxes(message.reply_to()),
            subject: message.subject().map(one_line),
            date: message.date().filter(|date| date.is_valid()).map(|date| date.to_rfc3339()),
            in_reply_to: texts(message.in_reply_to()),
            references: texts(message.references()),
            attachments: message
                .attachments()
                .map(|part| attachment(message, part, args, depth))
                .collect::<Result<_, _>>()?,
            headers: args.headers.then(|| headers(message)),
            text,
            html,
            truncated,
        })
    }
}

/// Whether a line `Name:` stands before the first empty one.
fn has_header(bytes: &[u8]) -> bool {
    let head = bytes.split(|byte| *byte == b'\n').take_while(|line| !line.trim_ascii().is_empty());
    head.into_iter().any(|line| {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        name.len() < line.len() && !name.is_empty() && name.trim_ascii_end().iter().all(u8::is_ascii_graphic)
    })
}

fn mailboxes(addresses: Option<&Address<'_>>) -> Vec<Mailbox> {
    let mailbox = |addr: &Addr<'_>| Mailbox {
        name: addr.name().map(one_line).filter(|name| !name.is_empty()),
        address: addr.address().map(str::to_owned),
    };
    addresses.map(|addresses| addresses.iter().map(mailbox).collect()).unwrap_or_default()
}

fn texts(value: &HeaderValue<'_>) -> Vec<String> {
    match value.as_text_list() {
        Some(list) => list.iter().map(|text| text.to_string()).collect(),
        None => value.as_text().map(str::to_owned).into_iter().collect(),
    }
}

fn headers(message: &Message<'_>) -> Vec<Header> {
    message
        .headers()
        .iter()
        .map(|header| {
            let start = header.offset_start() as usize;
            let end = header.offset_end() as usize;
            let raw = message.raw_message().get(start..end).unwrap_or_default();
            let value = match header.value() {
                HeaderValue::Text(text) => one_line(text),
                _ => one_line(&String::from_utf8_lossy(raw)),
            };
            Header { name: header.name().to_owned(), value }
        })
        .collect()
}

fn attachment(
    message: &Message<'_>,
    part: &MessagePart<'_>,
    args: &Args,
    depth: usize,
) -> Result<Attachment, StepError> {
    let kind = part.content_type().map_or_else(
        || if part.is_message() { "message/rfc822".to_owned() } else { "text/plain".to_owned() },
        |kind| format!("{}/{}", kind.ctype(), kind.subtype().unwrap_or("*")).to_lowercase(),
    );
    let contents = contents(message, part);
    let contents = &*contents;
    let message = match part.message() {
        Some(message) if depth > 0 => Some(Box::new(Letter::new(message, args, depth - 1)?)),
        _ => None,
    };
    Ok(Attachment {
        name: part.attachment_name().map(one_line),
        r#type: kind,
        size: contents.len(),
        inline: matches!(part.body, PartType::InlineBinary(_))
            || part.content_disposition().is_some_and(mail_parser::ContentType::is_inline),
        content_id: part.content_id().map(str::to_owned),
        digest: match args.attachments {
            Attachments::Store => Some(host::put_blob(contents)?),
            Attachments::List | Attachments::Inline => None,
        },
        base64: (args.attachments == Attachments::Inline).then(|| base64(contents)),
        message,
    })
}

/// The bytes of an attachment as they were before the mail: the transfer
/// encoding is undone, the character set of a text is not touched.
fn contents<'m>(message: &'m Message<'_>, part: &'m MessagePart<'_>) -> Cow<'m, [u8]> {
    match &part.body {
        PartType::Message(message) => Cow::Borrowed(message.raw_message()),
        PartType::Text(_) | PartType::Html(_) => {
            let (start, end) = (part.offset_body as usize, part.offset_end as usize);
            let raw = message.raw_message().get(start..end).unwrap_or_default();
            let decoded = match part.encoding {
                Encoding::None => return Cow::Borrowed(raw),
                Encoding::QuotedPrintable => quoted_printable_decode(raw),
                Encoding::Base64 => base64_decode(raw),
            };
            decoded.map_or_else(|| Cow::Borrowed(part.contents()), Cow::Owned)
        }
        _ => Cow::Borrowed(part.contents()),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Standard base64 (RFC 4648 §4).
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0_u32, |bits, byte| (bits << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let sextet = (bits >> (18 - 6 * at)) & 63;
            text.push(if at <= chunk.len() { char::from(ALPHABET[sextet as usize]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_the_standard_one() {
        let cases = ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="];
        for (length, wanted) in cases.iter().enumerate() {
            assert_eq!(base64(&b"foobar"[..length]), *wanted);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }
}
