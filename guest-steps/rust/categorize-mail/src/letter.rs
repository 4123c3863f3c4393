//! A message as the rules see it: decoded, flat, and with the writer's own
//! words apart from what they quote.

use std::fmt;

use mail_parser::{Addr, Address, HeaderValue, Message, MimeHeaders, PartType};

/// A parsed message. Missing parts are empty.
#[derive(Debug, Default)]
pub(crate) struct Letter {
    pub(crate) id: String,
    /// The first message of the conversation, if this is not it.
    pub(crate) thread: Option<String>,
    pub(crate) from: Person,
    pub(crate) reply_to: Option<Person>,
    pub(crate) to: Vec<Person>,
    pub(crate) cc: Vec<Person>,
    pub(crate) subject: String,
    pub(crate) date: Option<String>,
    pub(crate) is_reply: bool,
    /// What the writer wrote: without quotes, signature and forwarded text.
    pub(crate) own_text: String,
    /// All text.
    pub(crate) text: String,
    /// Link targets of the HTML part with the text they stand behind.
    pub(crate) links: Vec<(String, String)>,
    pub(crate) attachments: Vec<String>,
    /// The iTIP method of the calendar part (RFC 5546), upper case; empty if it names none.
    pub(crate) calendar: Option<String>,
    headers: Vec<(String, String)>,
    /// Whether the file had any header at all.
    pub(crate) is_mail: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) name: String,
    /// Lower case.
    pub(crate) address: String,
}

impl Person {
    pub(crate) fn local(&self) -> &str {
        self.address.split('@').next().unwrap_or_default()
    }

    pub(crate) fn domain(&self) -> &str {
        self.address.rsplit_once('@').map_or("", |(_, domain)| domain)
    }
}

impl fmt::Display for Person {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.name.as_str(), self.address.as_str()) {
            ("", address) => f.write_str(address),
            (name, "") => f.write_str(name),
            (name, address) => write!(f, "{name} <{address}>"),
        }
    }
}

impl Letter {
    /// Parses whatever is there. Bytes that are no message give an empty
    /// letter whose `is_mail` is false.
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let Some(message) = lobster_mail::parse(bytes) else { return Self::default() };
        let text = lobster_mail::body(&message);
        let references = message.references();
        let in_reply_to = first_text(message.in_reply_to());
        Self {
            id: message.message_id().unwrap_or_default().to_owned(),
            thread: first_text(references).or_else(|| in_reply_to.clone()),
            from: people(message.from()).into_iter().next().unwrap_or_default(),
            reply_to: people(message.reply_to()).into_iter().next(),
            to: people(message.to()),
            cc: people(message.cc()),
            subject: one_line(message.subject().unwrap_or_default()),
            date: message.date().filter(|date| date.is_valid()).map(|date| date.to_rfc3339()),
            is_reply: in_reply_to.is_some(),
            own_text: own_text(&text),
            links: message.body_html(0).map(|html| links(&html)).unwrap_or_default(),
            attachments: message
                .attachments()
                .filter_map(|part| part.attachment_name().map(one_line))
                .collect(),
            calendar: calendar(&message),
            is_mail: message.from().is_some() || message.subject().is_some() || message.date().is_some(),
            headers: message
                .headers_raw()
                .map(|(name, value)| (name.to_ascii_lowercase(), one_line(value).to_lowercase()))
                .collect(),
            text,
        }
    }

    /// The first value of a header, unfolded and lower case. `name` is lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}

fn people(addresses: Option<&Address<'_>>) -> Vec<Person> {
    let person = |addr: &Addr<'_>| Person {
        name: one_line(addr.name().unwrap_or_default()),
        address: addr.address().unwrap_or_default().trim().to_lowercase(),
    };
    addresses.map(|addresses| addresses.iter().map(person).collect()).unwrap_or_default()
}

fn first_text(value: &HeaderValue<'_>) -> Option<String> {
    let text = value.as_text().or_else(|| value.as_text_list()?.first().map(AsRef::as_ref))?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn calendar(message: &Message<'_>) -> Option<String> {
    message.parts.iter().find_map(|part| {
        let kind = part.content_type()?;
        let is_calendar = kind.ctype().eq_ignore_ascii_case("text")
            && kind.subtype().is_some_and(|subtype| subtype.eq_ignore_ascii_case("calendar"));
        let named_ics =
            part.attachment_name().is_some_and(|name| name.to_ascii_lowercase().ends_with(".ics"));
        if !is_calendar && !named_ics {
            return None;
        }
        let said = kind.attribute("method").map(str::to_owned);
        let written = || {
            let PartType::Text(text) = &part.body else { return None };
            text.lines().find_map(|line| line.strip_prefix("METHOD:").map(|method| method.trim().to_owned()))
        };
        Some(said.or_else(written).unwrap_or_default().to_ascii_uppercase())
    })
}

/// Lines before which the writer's own words end.
const QUOTE_STARTS: [&str; 6] = [
    "-----original message-----",
    "-----ursprüngliche nachricht-----",
    "---------- forwarded message",
    "________________________________",
    "begin forwarded message:",
    "-- ",
];

fn own_text(text: &str) -> String {
    let mut own = String::new();
    for line in text.lines() {
        let lower = line.to_lowercase();
        let signature = line.trim_end() == "--";
        if signature || QUOTE_STARTS.iter().any(|start| lower.starts_with(start)) {
            break;
        }
        if line.trim_start().starts_with('>') || is_attribution(lower.trim()) {
            continue;
        }
        own.push_str(line);
        own.push('\n');
    }
    own
}

/// `On Monday, Ada wrote:` and its like.
fn is_attribution(lower: &str) -> bool {
    let opens = ["on ", "am ", "le ", "el "].iter().any(|word| lower.starts_with(word));
    let closes = ["wrote:", "schrieb:", "a écrit :", "a écrit:", "escribió:"];
    (opens && closes.iter().any(|end| lower.ends_with(end)))
        || (lower.contains(" schrieb ") && lower.ends_with(':'))
}

/// `href` and text of the links in an HTML text. A scan, not a parser: a link
/// it does not see costs a hint, never the message.
fn links(html: &str) -> Vec<(String, String)> {
    let lower = html.to_ascii_lowercase();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(start) = lower[at..].find("<a ").map(|offset| at + offset) {
        let Some(tag_end) = lower[start..].find('>').map(|offset| start + offset) else { break };
        let close = lower[tag_end..].find("</a").map_or(lower.len(), |offset| tag_end + offset);
        at = tag_end + 1;
        if let Some(target) = href(&html[start..tag_end]) {
            found.push((target, without_tags(&html[at..close.max(at)])));
            at = close.max(at);
        }
    }
    found
}

fn href(tag: &str) -> Option<String> {
    let at = tag.to_ascii_lowercase().find("href=")? + "href=".len();
    let rest = &tag[at..];
    let target = match rest.chars().next()? {
        quote @ ('"' | '\'') => rest[1..].split(quote).next()?,
        _ => rest.split(|c: char| c.is_whitespace() || c == '>').next()?,
    };
    Some(lobster_mail::decoded(target).into_owned())
}

fn without_tags(html: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for c in html.chars() {
        match c {
            '<' => inside = true,
            '>' => inside = false,
            c if !inside => text.push(c),
            _ => {}
        }
    }
    lobster_mail::decoded(text.trim()).into_owned()
}

/// Unfolds and trims; runs of white space become one space.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The beginning of a text on one line, at most `limit` characters, cut at a word.
pub(crate) fn snippet(text: &str, limit: usize) -> String {
    let line = one_line(text);
    if line.chars().count() <= limit {
        return line;
    }
    let cut: String = line.chars().take(limit.saturating_sub(1)).collect();
    let at = cut.rfind(' ').filter(|at| *at * 2 > cut.len()).unwrap_or(cut.len());
    format!("{}…", cut[..at].trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_and_signatures_are_not_own_words() {
        let text = "Yes.\n\nOn Mon, Ada wrote:\n> can you?\n\nBye\n-- \nGrace\nWhat now?\n";
        assert_eq!(own_text(text), "Yes.\n\n\nBye\n");
    }

    #[test]
    fn links_survive_broken_html() {
        let html = "<A HREF='https://a.example'>b.<b>example</b></a><a name=x><a href=\"ü\">…";
        assert_eq!(
            links(html),
            [("https://a.example".into(), "b.example".into()), ("ü".to_owned(), "…".to_owned())]
        );
        assert_eq!(links("<a href=/?a&amp;b>R&amp;D</a>"), [("/?a&b".into(), "R&D".into())]);
        assert_eq!(links("<a href="), []);
    }

    #[test]
    fn snippets_end_at_words() {
        assert_eq!(snippet("one  two\nthree", 100), "one two three");
        assert_eq!(snippet("eins zwei drei vier", 12), "eins zwei…");
        assert_eq!(snippet("äöüäöüäöü", 4), "äöü…");
        assert_eq!(snippet("abc", 0), "…");
    }

    #[test]
    fn bytes_that_are_no_mail() {
        assert!(!Letter::parse(b"").is_mail);
        assert!(!Letter::parse(&[0xff, 0xfe, 0, 1]).is_mail);
        assert!(!Letter::parse(b"just text\n").is_mail);
    }
}
