//! Questions that `@clawdbot/lobster` left waiting in the shared state directory.
//!
//! They are listed but never answered. The incumbent's record of a question is an unsigned JSON file in the
//! users' state, with the rest of the pipeline or the path of a file that is read again. A process that can
//! write state (`state.set` is enough) could therefore decide what an approval would run. An import would
//! make such a file equal to a signed gate. So lobster only reports the program that asked and the command
//! that answers it there.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::Value;

use super::resume::Reply;
use lobster_base::json;
use lobster_engine::runtime::Runtime;
use lobster_engine::token::{Token, TokenKind};

/// The release that answers its own questions and the questions of all earlier releases.
const ANSWERED_BY: &str = "2026.9.13";

/// Longest record that is read for its details; a longer record is listed without them.
const MAX_RECORD: u64 = 4 << 20;

/// Longest approval index, which contains a key and a date.
const MAX_INDEX: u64 = 4 << 10;

/// Most entries of the state directory that are read.
const MAX_ENTRIES: usize = 100_000;

/// Marker that the incumbent leaves in place of an answered record.
const CONSUMED: &str = "lobster.consumed-resume-state.v1";

/// A question of the incumbent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncumbentGate {
    /// The token in its envelope.
    pub token: String,
    /// The short id, if it has one.
    pub approval_id: Option<String>,
    /// True if it has been answered already.
    pub is_answered: bool,
    kind: Kind,
    release: Release,
}

/// Kind of question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Approval,
    Input,
    /// The record cannot be read.
    Unknown,
}

/// Releases that write such a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Release {
    /// It names the records that it supersedes.
    From2026_9,
    UpTo2026_6,
    Unknown,
}

impl IncumbentGate {
    /// Explains why lobster does not answer it, and which program does.
    pub(super) fn explain_refusal(&self, state_dir: &Path, reply: Option<&Reply>) -> String {
        let by = match self.release {
            Release::From2026_9 => "@clawdbot/lobster 2026.9.11 or newer",
            Release::UpTo2026_6 => "@clawdbot/lobster 2026.6.11 or older",
            Release::Unknown => "@clawdbot/lobster",
        };
        if self.is_answered {
            return format!("this question was made by {by}, which has already accepted an answer to it");
        }
        format!(
            "this question was made by {by}, in an unsigned file that decides what would run, so lobster does not \
             answer it; use that program instead: `{}`",
            self.answer_command(state_dir, reply)
        )
    }

    /// Command line by which the incumbent accepts an answer.
    #[must_use]
    pub fn answer_command(&self, state_dir: &Path, reply: Option<&Reply>) -> String {
        let name = match &self.approval_id {
            Some(id) => format!("--id {id}"),
            None => format!("--token {}", self.token),
        };
        let answer = match (reply, self.kind) {
            (Some(Reply::Cancel), _) => "--cancel".to_owned(),
            (Some(Reply::Approve | Reply::ApproveOnly(_)), _) => "--approve yes".to_owned(),
            (Some(Reply::Reject), _) => "--approve no".to_owned(),
            (Some(Reply::Response(value)), _) => {
                format!("--response-json {}", shell_quote(&json::compact(value)))
            }
            (None, Kind::Approval) => "--approve yes".to_owned(),
            (None, Kind::Input) => "--response-json JSON".to_owned(),
            (None, Kind::Unknown) => "…".to_owned(),
        };
        let state = shell_quote(&state_dir.display().to_string()).into_owned();
        format!("LOBSTER_STATE_DIR={state} npx -y @clawdbot/lobster@{ANSWERED_BY} resume {name} {answer}")
    }
}

/// Lists the questions that `@clawdbot/lobster` left waiting in this state directory, without unreadable
/// ones.
#[must_use]
pub fn incumbent_gates(runtime: &Runtime) -> Vec<IncumbentGate> {
    waiting_approvals(runtime.state_dir())
}

/// Explains why an approval id without a gate of lobster's cannot be answered here, if it is the incumbent's.
#[must_use]
pub fn incumbent_refusal(runtime: &Runtime, approval_id: &str, reply: Option<&Reply>) -> Option<String> {
    by_id(runtime.state_dir(), approval_id).map(|gate| gate.explain_refusal(runtime.state_dir(), reply))
}

/// The question with the state key of a token.
pub(super) fn by_key(state_dir: &Path, state_key: &str) -> Option<IncumbentGate> {
    let mut gate = read_approval(state_dir, state_key)?;
    gate.approval_id =
        read_indexes(state_dir).into_iter().find(|(_, key)| key == state_key).map(|(id, _)| id);
    Some(gate)
}

/// The question with a short id.
pub(super) fn by_id(state_dir: &Path, id: &str) -> Option<IncumbentGate> {
    let id = id.trim().to_lowercase();
    let key = read_index(state_dir, &id)?;
    let mut gate = read_approval(state_dir, &key)?;
    gate.approval_id = Some(id);
    Some(gate)
}

fn waiting_approvals(state_dir: &Path) -> Vec<IncumbentGate> {
    let indexes = read_indexes(state_dir);
    let mut keys: Vec<_> =
        state_keys(state_dir).into_iter().filter(|name| kind_of_key(name).is_some()).collect();
    keys.sort_unstable();
    keys.iter()
        .filter_map(|key| {
            let mut gate = read_approval(state_dir, key)?;
            gate.approval_id = indexes.iter().find(|(_, named)| named == key).map(|(id, _)| id.clone());
            (!gate.is_answered).then_some(gate)
        })
        .collect()
}

/// The keys of the users' state, from the names of their files.
fn state_keys(state_dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(state_dir) else { return Vec::new() };
    let names = entries.take(MAX_ENTRIES).flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.strip_suffix(".json").map(str::to_owned)).collect()
}

/// The short ids and their state keys.
fn read_indexes(state_dir: &Path) -> Vec<(String, String)> {
    let ids = state_keys(state_dir);
    let ids = ids.iter().filter_map(|name| name.strip_prefix("approval_"));
    ids.filter_map(|id| Some((id.to_owned(), read_index(state_dir, id)?))).collect()
}

fn read_index(state_dir: &Path, id: &str) -> Option<String> {
    let is_id = (1..=64).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let text =
        is_id.then(|| read_text(&state_dir.join(format!("approval_{id}.json")), MAX_INDEX)).flatten()?;
    let index = json::parse(&text?).ok()?;
    let key = index.get("stateKey")?.as_str()?;
    kind_of_key(key).map(|_| key.to_owned())
}

/// The kind of a state key, if a text has the incumbent's format: a kind and a UUID.
fn kind_of_key(key: &str) -> Option<TokenKind> {
    let kinds = [
        ("pipeline_resume_", TokenKind::Pipeline),
        ("workflow_resume_", TokenKind::Workflow),
        ("workflow-resume_", TokenKind::Workflow),
    ];
    let (uuid, kind) = kinds.iter().find_map(|(prefix, kind)| Some((key.strip_prefix(prefix)?, *kind)))?;
    let is_uuid = uuid.len() == 36
        && uuid.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte),
        });
    is_uuid.then_some(kind)
}

fn read_approval(state_dir: &Path, state_key: &str) -> Option<IncumbentGate> {
    let token_kind = kind_of_key(state_key)?;
    let record = read_text(&state_dir.join(format!("{state_key}.json")), MAX_RECORD)?;
    let record = record.and_then(|text| json::parse(&text).ok());
    let has = |field: &str| record.as_ref().and_then(|record| record.get(field));
    let kind = match &record {
        None => Kind::Unknown,
        Some(_) if has("inputSchema").is_some() => Kind::Input,
        Some(_) => Kind::Approval,
    };
    let release = match (&record, has("supersededResumeStateKeys")) {
        (None, _) => Release::Unknown,
        (Some(_), Some(_)) => Release::From2026_9,
        (Some(_), None) => Release::UpTo2026_6,
    };
    let is_answered = has("type").and_then(Value::as_str) == Some(CONSUMED);
    let release = if is_answered { Release::Unknown } else { release };
    let token = Token::encode_key(token_kind, state_key);
    Some(IncumbentGate { token, approval_id: None, is_answered, kind, release })
}

/// The text of a regular file: `None` if there is no file, `Some(None)` if it is longer than `limit` or not
/// text.
fn read_text(path: &Path, limit: u64) -> Option<Option<String>> {
    // Excludes links and pipes without a writer.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file: File = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    let meta = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    if meta.len() > limit {
        return Some(None);
    }
    let mut text = String::new();
    Some(file.take(limit).read_to_string(&mut text).ok().map(|_| text))
}

/// Quotes a word for a shell.
fn shell_quote(word: &str) -> Cow<'_, str> {
    let is_plain = !word.is_empty()
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+:@%,".contains(&byte));
    if is_plain { Cow::Borrowed(word) } else { Cow::Owned(format!("'{}'", word.replace('\'', r"'\''"))) }
}
