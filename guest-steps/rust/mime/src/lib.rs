//! E-mail messages (RFC 5322, MIME) and mailboxes (mbox) to JSON.

mod message;

use std::io::BufReader;

use lobster_step::{Any, Description, Input, JsonSchema, Output, Step, StepError};
use mail_parser::mailbox::mbox::MessageIterator;
use serde::Deserialize;
use serde_json::json;

pub use message::Letter;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Args {
    /// Whether the bytes are a mailbox (mbox) rather than one message.
    pub mbox: bool,
    /// Which bodies are given.
    pub body: Body,
    /// Characters of a body; what is longer is cut and marked by `truncated`.
    pub max_text: usize,
    /// What becomes of attachments.
    pub attachments: Attachments,
    /// Whether all headers are given, decoded where they are text.
    pub headers: bool,
    /// Items: the field that holds the message as text.
    pub field: String,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            mbox: false,
            body: Body::Text,
            max_text: 1_000_000,
            attachments: Attachments::List,
            headers: false,
            field: "raw".to_owned(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "lobster_step::schemars")]
pub enum Body {
    /// None.
    None,
    /// As text; made from the HTML if the message has no text.
    Text,
    /// As HTML; made from the text if the message has no HTML.
    Html,
    /// Both.
    Both,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "lobster_step::schemars")]
pub enum Attachments {
    /// Name, type and size are given.
    List,
    /// They are put into the store as well; `digest` names the blob.
    Store,
    /// They are given as well, as `base64`.
    Inline,
}

/// An item that holds a message; a text without a line break is a line of one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Held {
    Text(String),
    Object(serde_json::Map<String, serde_json::Value>),
}

pub struct Mime;

impl Step for Mime {
    type Args = Args;
    type In = Any;
    type Out = Letter;

    fn describe() -> Description {
        Description::new("mime", env!("CARGO_PKG_VERSION"), "E-mail messages and mailboxes to JSON")
            .memory(256 << 20)
            .example(
                "one message",
                json!({}),
                "From: a@example.org\nSubject: Hi\n\nHello\n",
                "{\"id\":null,\"from\":[{\"address\":\"a@example.org\"}],\"to\":[],\"cc\":[],\"bcc\":[],\"reply_to\":[],\"subject\":\"Hi\",\"date\":null,\"in_reply_to\":[],\"references\":[],\"text\":\"Hello\\n\",\"attachments\":[]}\n",
            )
            .example("a mailbox, attachments into the store", json!({ "mbox": true, "attachments": "store" }), "", "")
    }

    fn run(args: Args, input: &mut Input<Any>, output: &mut Output<Letter>) -> Result<(), StepError> {
        if input.is_items() {
            if args.mbox {
                return Err(StepError::bad_args("`mbox` takes bytes, and the input has items"));
            }
            let mut items = input.items::<Held>().peekable();
            if let Some(Ok(Held::Text(first))) = items.peek()
                && !first.contains('\n')
            {
                return output.emit(&Letter::parse(lines(items)?.as_bytes(), &args, "")?);
            }
            for (at, item) in items.enumerate() {
                let place = || format!("item {}: ", at + 1);
                let raw = match item? {
                    Held::Text(text) => text,
                    Held::Object(mut fields) => match fields.remove(&args.field) {
                        Some(serde_json::Value::String(text)) => text,
                        _ => {
                            return Err(StepError::bad_input(format!(
                                "{}no text in `{}`",
                                place(),
                                args.field
                            )));
                        }
                    },
                };
                output.emit(&Letter::parse(raw.as_bytes(), &args, &place())?)?;
            }
            return Ok(());
        }
        if args.mbox {
            for (at, message) in MessageIterator::new(BufReader::new(input)).enumerate() {
                let message = message?;
                output.emit(&Letter::parse(message.contents(), &args, &format!("message {}: ", at + 1))?)?;
            }
            return Ok(());
        }
        output.emit(&Letter::parse(&input.bytes()?, &args, "")?)
    }
}

/// The message whose lines the items are, as a command gives them.
fn lines(items: impl Iterator<Item = Result<Held, StepError>>) -> Result<String, StepError> {
    let mut all = String::new();
    for (at, item) in items.enumerate() {
        let Held::Text(line) = item? else {
            let message =
                format!("item {} is no text, where the items before are lines of a message", at + 1);
            return Err(StepError::bad_input(message));
        };
        all.push_str(&line);
        all.push('\n');
    }
    Ok(all)
}

lobster_step::export_step!(Mime);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        lobster_step::testing::run_cases::<Mime>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases"));
    }
}
