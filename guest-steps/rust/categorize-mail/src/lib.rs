//! Reads e-mail files from one granted directory and sorts them into categories.
//!
//! Nothing is learned and nothing is sent anywhere: a message gets points from
//! named rules (see [`rules`]), the category with the most points wins, and the
//! rules that made it win are part of the output.

mod letter;
mod mailbox;
mod rules;

use lobster_step::{Capability, Description, Input, JsonSchema, Output, Step, StepError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use letter::Letter;
pub use rules::{Category, CustomRule};

/// The directory the step looks for unless told otherwise.
const MAIL: &str = "/mail";

/// Characters of body text that go along with each message.
const SNIPPET: usize = 160;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Args {
    /// Guest path of the directory with the messages: flat, or a Maildir.
    #[serde(default = "mail")]
    pub dir: String,
    /// The owner's own addresses. With them, a message that is only copied to
    /// the owner counts less as a question to them.
    #[serde(default)]
    pub me: Vec<String>,
    /// Senders that matter more: addresses, or domains as `@example.com`.
    #[serde(default)]
    pub vip: Vec<String>,
    /// Rules of your own, added to the built-in ones.
    #[serde(default)]
    pub rules: Vec<CustomRule>,
    /// Characters of body text in `snippet`.
    #[serde(default = "snippet")]
    pub snippet: usize,
}

fn mail() -> String {
    MAIL.to_owned()
}

fn snippet() -> usize {
    SNIPPET
}

/// One message to look at. Other fields are ignored.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Which {
    /// File name below the directory.
    file: Option<String>,
    /// Used if there is no `file`: the file name, with or without `.eml`.
    id: Option<String>,
}

/// A message with its category.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(crate = "lobster_step::schemars")]
pub struct Sorted {
    /// The message id without angle brackets, or the file name if it has none.
    id: String,
    file: String,
    /// The id of the first message of the conversation.
    thread: String,
    /// `Name <address>`.
    from: String,
    to: Vec<String>,
    subject: String,
    /// RFC 3339, if the message has a date.
    date: Option<String>,
    snippet: String,
    /// File names of the attachments.
    attachments: Vec<String>,
    category: Category,
    /// How sure the rules are, 0 to 1.
    score: f64,
    /// Why, in words.
    reason: String,
    /// The rules that spoke for the category, `name +points`.
    rules: Vec<String>,
}

pub struct CategorizeMail;

impl Step for CategorizeMail {
    type Args = Args;
    type In = Which;
    type Out = Sorted;

    fn describe() -> Description {
        Description::new(
            "categorize-mail",
            env!("CARGO_PKG_VERSION"),
            "Sorts e-mail files into needs_reply, needs_action, newsletter, receipt, calendar, spam, fyi",
        )
        .needs(Capability::Read(MAIL.to_owned()), "the e-mail files")
        .fuel(4_000_000_000)
        .memory(64 << 20)
        .output(16 << 20)
        .example("every message of the granted directory", json!({}), "", "")
        .example(
            "two messages, for their owner",
            json!({ "me": ["ada@example.com"] }),
            "{\"file\":\"0001.eml\"}\n{\"id\":\"0002\"}\n",
            "",
        )
    }

    fn run(args: Args, input: &mut Input<Which>, output: &mut Output<Sorted>) -> Result<(), StepError> {
        let rules = rules::Rules::new(&args.me, &args.vip, &args.rules)?;
        let mailbox = mailbox::Mailbox::open(&args.dir)?;
        if input.is_absent() {
            let files = mailbox.list()?;
            let total = files.len() as u64;
            for (done, file) in files.into_iter().enumerate() {
                output.emit(&sort(&mailbox, file, &rules, args.snippet)?)?;
                lobster_step::host::progress(done as u64 + 1, Some(total), None);
            }
            return Ok(());
        }
        for which in input {
            let file = mailbox.find(&which?)?;
            output.emit(&sort(&mailbox, file, &rules, args.snippet)?)?;
        }
        Ok(())
    }
}

fn sort(
    mailbox: &mailbox::Mailbox,
    file: String,
    rules: &rules::Rules<'_>,
    snippet: usize,
) -> Result<Sorted, StepError> {
    let bytes = mailbox.read(&file)?;
    let letter = Letter::parse(&bytes);
    let verdict = rules.judge(&letter);
    let id = if letter.id.is_empty() { file.clone() } else { letter.id.clone() };
    Ok(Sorted {
        thread: letter.thread.clone().unwrap_or_else(|| id.clone()),
        from: letter.from.to_string(),
        to: letter.to.iter().map(ToString::to_string).collect(),
        snippet: letter::snippet(&letter.own_text, snippet),
        subject: letter.subject,
        date: letter.date,
        attachments: letter.attachments,
        category: verdict.category,
        score: verdict.score,
        reason: verdict.reason,
        rules: verdict.rules,
        id,
        file,
    })
}

lobster_step::export_step!(CategorizeMail);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases() {
        lobster_step::testing::run_cases::<CategorizeMail>(concat!(env!("CARGO_MANIFEST_DIR"), "/cases"));
    }
}
