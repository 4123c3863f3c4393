//! The audit: proposals, decisions, approvals, starts and ends, derived entirely from the journals (S4).

mod trail;

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use lobster_base::code::{Code, FailureCode};
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::quantity::Span;
use lobster_policy::Redaction;
use lobster_store::{
    BrokenChain, Event, GateAnswer, Record, RunFilter, RunId, RunSummary, Store, StoreError, UnknownWord, iso,
};

pub use trail::Trail;

/// Largest pre-image of an action; it is small, since its data is named by digests.
const MAX_ACTION: u64 = 16 << 20;

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditKind {
    /// A run began, continued, paused or ended.
    Run,
    /// The policy decided on a proposal: allow, ask or deny.
    Decision,
    /// A person was asked, or answered.
    Approval,
    /// An effect or computation began.
    Start,
    /// An effect or computation ended.
    End,
    /// Any other note.
    Note,
}

impl AuditKind {
    const ALL: [Self; 6] = [Self::Run, Self::Decision, Self::Approval, Self::Start, Self::End, Self::Note];

    /// The spelling of the kind.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Decision => "decision",
            Self::Approval => "approval",
            Self::Start => "start",
            Self::End => "end",
            Self::Note => "note",
        }
    }
}

impl fmt::Display for AuditKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for AuditKind {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or_else(|| UnknownWord::new(text))
    }
}

/// Filter for entries; unset fields match all.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    pub run: Option<RunId>,
    pub actor: Option<String>,
    /// In milliseconds since 1970, inclusive.
    pub since: Option<i64>,
    /// Exclusive.
    pub until: Option<i64>,
    /// `allow`, `ask` or `deny`.
    pub verdict: Option<String>,
    pub kind: Option<AuditKind>,
    /// A program by its name, as in `git`.
    pub program: Option<String>,
}

/// An event, and the record that contains it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AuditEntry {
    pub time: String,
    pub run: RunId,
    /// The record in the run's chain, and its hash.
    pub seq: u64,
    pub hash: Digest,
    pub kind: AuditKind,
    /// The event in a word or two: `denied`, `approved`, `started` …
    pub what: String,
    /// The user or program on whose behalf it happened (`LOBSTER_ACTOR`); for an approval, the person who answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// Evidence of the person who answered: user, terminal and parent processes of a shell, or the credential of a
    /// service.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub author: Value,
    /// The message that led to it (`LOBSTER_MESSAGE_ID`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// The reason, or the error or exit code at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The proposed command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    /// The digest of the action, or of the policy that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Reason why the proposed command is unknown: its record cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
    /// `recording`, if that is due to damage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<FailureCode>,
    #[serde(skip)]
    at: i64,
}

impl AuditFilter {
    fn matches_entry(&self, entry: &AuditEntry) -> bool {
        let is = |wanted: &Option<String>, found: &Option<String>| wanted.is_none() || wanted == found;
        self.since.is_none_or(|since| entry.at >= since)
            && self.until.is_none_or(|until| entry.at < until)
            && self.kind.is_none_or(|kind| entry.kind == kind)
            && is(&self.actor, &entry.actor)
            && is(&self.verdict, &entry.verdict)
            && self.program.as_ref().is_none_or(|program| {
                // If the record is unreadable, its programs are unknown.
                entry.programs.contains(program) || entry.unreadable.is_some()
            })
    }

    /// True if a run may have entries that match.
    fn may_take(&self, run: &RunSummary) -> bool {
        self.run.is_none_or(|wanted| wanted == run.id)
            && self.until.is_none_or(|until| run.started_at < until)
            && self.since.is_none_or(|since| run.ended_at.is_none_or(|end| end >= since))
    }
}

/// Reads the journals, the oldest run first, and passes the matching entries to `take`. Damaged journals are read as
/// far as possible; the result lists the position of each damage.
///
/// # Errors
/// If the database cannot be read, or `take` fails.
pub fn read_entries<E: From<StoreError>>(
    store: &Store,
    filter: &AuditFilter,
    hidden: &[Redaction],
    mut take: impl FnMut(AuditEntry) -> Result<(), E>,
) -> Result<Vec<BrokenChain>, E> {
    let mut damage = Vec::new();
    let mut runs = store.list_runs(&RunFilter::default())?;
    runs.reverse();
    for run in runs.iter().filter(|run| filter.may_take(run)) {
        let (journal, broken) = store.found_events(run.id)?;
        damage.extend(broken);
        for entry in audit_entries(store, &journal) {
            if filter.matches_entry(&entry) {
                take(redact_entry(entry, hidden))?;
            }
        }
    }
    Ok(damage)
}

/// The user or program, and the message, on whose behalf records are written.
#[derive(Clone, Debug, Default)]
struct Behalf {
    actor: Option<String>,
    message: Option<String>,
}

impl Behalf {
    fn from_event(event: &Event) -> Option<Self> {
        let (actor, detail) = match event {
            Event::RunStarted { actor, detail, .. } => (actor.clone(), detail),
            Event::RunResumed { by, detail } => (by.clone(), detail),
            // The end of a cancelled run names the person who cancelled it.
            Event::RunEnded { detail, .. } if detail.get("answer").is_some() => {
                (detail.get("actor").and_then(Value::as_str).map(str::to_owned), detail)
            }
            _ => return None,
        };
        Some(Self { actor, message: detail.get("message").and_then(Value::as_str).map(str::to_owned) })
    }
}

fn audit_entries(store: &Store, journal: &[Record]) -> Vec<AuditEntry> {
    let mut behalf = Behalf::default();
    let mut found = Vec::new();
    for (at, record) in journal.iter().enumerate() {
        if let Some(now) = Behalf::from_event(&record.event) {
            behalf = now;
        }
        let whose = match &record.event {
            // An answer is written before the run continues, by the process that then continues it.
            Event::GateAnswered { from: None, .. } | Event::RetryRequested { .. } => {
                journal[at..].iter().find_map(|later| Behalf::from_event(&later.event)).unwrap_or_default()
            }
            _ => behalf.clone(),
        };
        describe_record(store, record, &whose, &mut found);
    }
    found
}

fn describe_record(store: &Store, record: &Record, whose: &Behalf, found: &mut Vec<AuditEntry>) {
    let entry = |kind: AuditKind, what: &str| AuditEntry {
        time: iso(record.at),
        run: record.run,
        seq: record.seq,
        hash: record.hash(),
        kind,
        what: what.to_owned(),
        actor: whose.actor.clone(),
        author: Value::Null,
        message: whose.message.clone(),
        step: record.event.step_path().map(str::to_owned),
        verdict: None,
        reason: None,
        command: None,
        programs: Vec::new(),
        digest: None,
        unreadable: None,
        code: None,
        at: record.at,
    };
    match &record.event {
        Event::RunStarted { name, cwd, detail, .. } => found.push(AuditEntry {
            reason: Some(format!("{name} in {cwd}")),
            digest: text_at(detail, "policy"),
            ..entry(AuditKind::Run, "started")
        }),
        Event::RunResumed { detail, .. } => {
            found.push(AuditEntry { digest: text_at(detail, "policy"), ..entry(AuditKind::Run, "resumed") });
        }
        Event::RunPaused { .. } => found.push(entry(AuditKind::Run, "paused")),
        Event::RunEnded { status, error, .. } => {
            found.push(AuditEntry { reason: error.clone(), ..entry(AuditKind::Run, status.as_str()) });
        }
        Event::Decision { decision, .. } => {
            found.push(describe_decision(entry(AuditKind::Decision, ""), decision, None));
        }
        Event::StepStarted { kind, action, decision, .. } => {
            found.extend(start_entries(store, entry, kind, *action, decision));
        }
        // Internal ends of composite steps and of the engine are not listed.
        Event::StepEnded { attempt: 0, .. } => {}
        Event::StepEnded { path, .. } if path.contains('!') => {}
        Event::StepEnded { begun, outcome, .. } => {
            let mut what = outcome.status.as_str();
            if let Some(begun) = begun {
                let mut entries =
                    start_entries(store, entry, &begun.kind, Some(begun.action), &begun.decision);
                if begun.effect {
                    // It was decided, but then nothing had to be started.
                    entries.retain(|entry| entry.kind != AuditKind::Start);
                    what = "cached";
                }
                found.extend(entries);
            }
            let exit = outcome.exit.map(|code| format!("exit {code}"));
            found.push(AuditEntry { reason: outcome.error.clone().or(exit), ..entry(AuditKind::End, what) });
        }
        Event::GateOpened { gate, kind, binding, .. } => found.push(AuditEntry {
            reason: Some(format!("{kind} {gate}")),
            digest: Some(binding.to_string()),
            ..entry(AuditKind::Approval, "asked")
        }),
        Event::GateAnswered { gate, answer, by, author, binding, from, .. } => found.push(AuditEntry {
            actor: Some(answered_by(by.as_deref(), author, whose)),
            author: author.clone(),
            reason: Some(match from {
                Some(run) => format!("{gate}, reused from run {}", run.short_id()),
                None => gate.clone(),
            }),
            digest: Some(binding.to_string()),
            ..entry(
                AuditKind::Approval,
                match answer {
                    GateAnswer::Approved => "approved",
                    GateAnswer::ApprovedPart { .. } => "approved in part",
                    GateAnswer::Rejected => "rejected",
                    GateAnswer::Response(_) => "answered",
                },
            )
        }),
        Event::GateClosed { gate, status, by, author, .. } => found.push(AuditEntry {
            actor: closed_by(by.as_deref(), author, whose),
            author: author.clone(),
            reason: Some(gate.clone()),
            ..entry(AuditKind::Approval, status.as_str())
        }),
        Event::RetryRequested { by, .. } => found.push(AuditEntry {
            actor: by.clone().or_else(|| whose.actor.clone()),
            ..entry(AuditKind::Run, "retry requested")
        }),
        Event::Note { text, detail, .. } => found.extend(describe_note(entry, text, detail)),
        Event::Unknown(value) => {
            let kind = value.get("type").and_then(Value::as_str).unwrap_or("unknown");
            found.push(entry(AuditKind::Note, kind));
        }
    }
}

/// A note. An effect that a replay performs again is noted with the decision about it and the person or program that
/// started the replay.
fn describe_note(
    entry: impl Fn(AuditKind, &str) -> AuditEntry,
    text: &str,
    detail: &Value,
) -> Vec<AuditEntry> {
    let performer = &detail["performer"];
    let entry = |kind, what: &str| AuditEntry {
        author: performer["author"].clone(),
        ..match performer.is_object() {
            true => AuditEntry { actor: text_at(performer, "actor"), ..entry(kind, what) },
            false => entry(kind, what),
        }
    };
    let decision = Some(&detail["decision"]).filter(|decision| decision.is_object());
    let decision = decision.map(|decision| describe_decision(entry(AuditKind::Decision, ""), decision, None));
    let reason = text_at(detail, "status").filter(|_| performer.is_object());
    let note = AuditEntry { reason, ..entry(AuditKind::Note, text) };
    decision.into_iter().chain([note]).collect()
}

/// The person who closed a question; `None` if it expired or was opened again.
fn closed_by(name: Option<&str>, author: &Value, whose: &Behalf) -> Option<String> {
    match author {
        Value::Null => name.map(str::to_owned).or_else(|| whose.actor.clone()),
        author => Some(answered_by(name, author, whose)),
    }
}

/// The person who answered: the name if it is known, otherwise the shell.
fn answered_by(name: Option<&str>, author: &Value, whose: &Behalf) -> String {
    let shell = || {
        let uid = author["uid"].as_u64()?;
        let at = author["tty"].as_str().map_or("without a terminal".to_owned(), |tty| format!("at {tty}"));
        Some(format!("uid {uid} {at}"))
    };
    let proven = text_at(author, "name");
    let name = name.map(str::to_owned).or(proven).or_else(|| whose.actor.clone()).or_else(shell);
    name.unwrap_or_else(|| "not recorded".to_owned())
}

fn text_at(value: &Value, key: &str) -> Option<String> {
    value.get(key).and_then(Value::as_str).map(str::to_owned)
}

/// The start of a step, after the decision about it.
fn start_entries(
    store: &Store,
    entry: impl Fn(AuditKind, &str) -> AuditEntry,
    kind: &str,
    action: Option<Digest>,
    decision: &Value,
) -> Vec<AuditEntry> {
    let start = entry(AuditKind::Start, "started");
    let proposed = action.map(|action| Proposed::of_action(store, start.run, &action)).unwrap_or_default();
    let mut programs = program_names(decision);
    programs.extend(proposed.program.clone());
    programs.dedup();
    let start = AuditEntry {
        reason: Some(kind.to_owned()),
        command: proposed.command.clone(),
        programs,
        digest: action.map(|action| action.to_string()),
        unreadable: proposed.unreadable.clone(),
        code: proposed.code.clone(),
        ..start
    };
    let decided = (!decision.is_null())
        .then(|| describe_decision(entry(AuditKind::Decision, ""), decision, Some(proposed)));
    decided.into_iter().chain([start]).collect()
}

/// A decision about a proposal that is `proposed`, or that the decision itself holds.
fn describe_decision(entry: AuditEntry, decision: &Value, proposed: Option<Proposed>) -> AuditEntry {
    let proposed =
        proposed.or_else(|| decision.get("proposal").map(Proposed::of_proposal)).unwrap_or_default();
    let verdict = text_at(decision, "verdict");
    let what = match verdict.as_deref() {
        Some("allow") => "allowed",
        Some("ask") => "asks",
        Some("deny") => "denied",
        _ => "decided",
    };
    let reason = match (text_at(decision, "reason_code"), text_at(decision, "message")) {
        (Some(code), Some(message)) => Some(format!("{code}: {message}")),
        (code, message) => code.or(message),
    };
    let mut programs = program_names(decision);
    if programs.is_empty() {
        programs.extend(proposed.program);
    }
    AuditEntry {
        what: what.to_owned(),
        verdict,
        reason,
        programs,
        digest: text_at(decision, "policy"),
        command: proposed.command,
        unreadable: proposed.unreadable,
        code: proposed.code,
        ..entry
    }
}

/// The names of the programs in a decision.
fn program_names(decision: &Value) -> Vec<String> {
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let listed = decision.get("programs").and_then(Value::as_array).into_iter().flatten();
    let commands = decision.get("commands").and_then(Value::as_array).into_iter().flatten();
    let mut names: Vec<String> = listed
        .filter_map(Value::as_str)
        .chain(commands.filter_map(|command| command.get("argv")?.get(0)?.as_str()))
        .map(base)
        .collect();
    names.dedup();
    names
}

/// A proposed command.
#[derive(Clone, Default)]
struct Proposed {
    command: Option<String>,
    program: Option<String>,
    unreadable: Option<String>,
    /// `recording`, if that is due to damage.
    code: Option<FailureCode>,
}

impl Proposed {
    fn of_command(command: String) -> Self {
        Self { command: Some(command), ..Self::default() }
    }

    /// Reads the pre-image of an action.
    fn of_action(store: &Store, run: RunId, action: &Digest) -> Self {
        let not_json = |source| StoreError::Json { what: "the action", source };
        let loaded = store.load_blob(action, MAX_ACTION).map_err(|error| store.explain_error(run, error));
        let read = loaded.and_then(|bytes| json::parse(&String::from_utf8_lossy(&bytes)).map_err(not_json));
        let action = match read {
            Ok(action) => action,
            Err(error) => {
                let is_damage =
                    !matches!(error, StoreError::RedactedBlob(_) | StoreError::BlobTooLarge { .. });
                let code = is_damage.then(|| Code::Recording.into());
                return Self { unreadable: Some(error.to_string()), code, ..Self::default() };
            }
        };
        match action.get("component").and_then(Value::as_str) {
            Some(digest) => Self::of_command(format!("component blake3:{digest}")),
            None => Self::of_words(action.get("argv")),
        }
    }

    /// Reads the proposal of a decision.
    fn of_proposal(proposal: &Value) -> Self {
        match proposal.get("command") {
            Some(command) if command.get("shell").is_some() => {
                Self { command: text_at(command, "shell"), ..Self::default() }
            }
            Some(command) if command.get("argv").is_some() => Self::of_words(command.get("argv")),
            Some(Value::String(text)) => Self::of_command(text.clone()),
            _ => Self::default(),
        }
    }

    fn of_words(words: Option<&Value>) -> Self {
        let words: Vec<&str> =
            words.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
        match words.as_slice() {
            [] => Self::default(),
            // A shell's text is more informative than the shell's name.
            [_, flag, text] if matches!(*flag, "-c" | "-lc") => Self::of_command((*text).to_owned()),
            [program, ..] => Self {
                command: Some(words.join(" ")),
                program: program.rsplit('/').next().map(str::to_owned),
                ..Self::default()
            },
        }
    }
}

/// Hides what the policy keeps out of audit records. The journal contains no secrets anyway.
fn redact_entry(mut entry: AuditEntry, hidden: &[Redaction]) -> AuditEntry {
    for text in [&mut entry.command, &mut entry.reason].into_iter().flatten() {
        if hidden.contains(&Redaction::UrlUserinfo) {
            *text = without_userinfo(text);
        }
        if hidden.contains(&Redaction::HighEntropyArgs) {
            *text = without_keys(text);
        }
    }
    entry
}

/// `scheme://user:password@host` without the part before the `@`.
fn without_userinfo(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        clean.push_str(before);
        let authority = after.find(|c: char| "/?#'\"` \t\n|&;()<>".contains(c)).unwrap_or(after.len());
        match after[..authority].rfind('@') {
            Some(end) => {
                clean.push_str("«userinfo»");
                rest = &after[end..];
            }
            None => rest = after,
        }
    }
    clean + rest
}

/// Hides words that look like keys: they have a known prefix, or are too irregular for a name.
fn without_keys(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "+/=_-".contains(c);
    let mut clean = String::with_capacity(text.len());
    for part in text.split_inclusive(|c| !is_word(c)) {
        let word = part.trim_end_matches(|c| !is_word(c));
        if looks_like_key(word) {
            clean.push_str("«key»");
            clean.push_str(&part[word.len()..]);
        } else {
            clean.push_str(part);
        }
    }
    clean
}

fn looks_like_key(word: &str) -> bool {
    const BEGINNINGS: [&str; 11] =
        ["AKIA", "ASIA", "ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "sk-", "AIza"];
    const SHORTEST: usize = 24;
    /// Bits per character; hexadecimal digests have at most 4, names and paths fewer.
    const IRREGULAR: f64 = 4.2;
    if word.len() >= 16 && BEGINNINGS.iter().any(|beginning| word.starts_with(beginning)) {
        return true;
    }
    let mixed = word.bytes().any(|b| b.is_ascii_digit())
        && word.bytes().any(|b| b.is_ascii_lowercase())
        && word.bytes().any(|b| b.is_ascii_uppercase());
    let mut counts = [0_u32; 256];
    word.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
    let len = word.len() as f64;
    let bits: f64 = counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| f64::from(*count) / len)
        .map(|p| -p * p.log2())
        .sum();
    word.len() >= SHORTEST && mixed && bits >= IRREGULAR
}

/// Parses a time as people write it: RFC 3339, a date, or an age (`90m`, `7d`).
///
/// # Errors
/// If it is none of these.
pub fn parse_time(text: &str, now: i64) -> Result<i64, String> {
    let text = text.trim();
    if let Ok(time) = text.parse::<Timestamp>() {
        return Ok(time.as_millisecond());
    }
    if let Ok(time) = format!("{text}T00:00:00Z").parse::<Timestamp>() {
        return Ok(time.as_millisecond());
    }
    if let Ok(Span(ago)) = text.parse::<Span>() {
        return Ok(now.saturating_sub(i64::try_from(ago.as_millis()).unwrap_or(i64::MAX)));
    }
    Err(format!("{text:?} is not a time: give 2026-05-01T12:00:00Z, 2026-05-01, or how long ago (90m, 7d)"))
}

/// Result of checking all chains.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ChainReport {
    pub runs: u64,
    pub records: u64,
    /// Runs whose last head is kept outside the store.
    pub anchored: u64,
    /// The first broken record of each damaged run.
    pub broken: Vec<BrokenChain>,
}

/// Checks the chain of every run, or of one, and compares it with an anchor outside the store.
///
/// # Errors
/// If the database or the anchor cannot be read.
pub fn verify_chains(
    store: &Store,
    only: Option<RunId>,
    anchor: Option<&Path>,
) -> Result<ChainReport, StoreError> {
    let mut report = ChainReport::default();
    let runs = store.list_runs(&RunFilter::default())?;
    for run in runs.iter().filter(|run| only.is_none_or(|only| only == run.id)) {
        report.runs += 1;
        report.records += run.records;
        match store.verify_chain(run.id) {
            Ok(()) => {}
            Err(StoreError::BrokenChain { run, seq, why }) => {
                report.broken.push(BrokenChain { run, seq, why });
            }
            Err(other) => return Err(other),
        }
    }
    if let Some(anchor) = anchor {
        trail::compare_anchor(store, anchor, only, &mut report)?;
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_commands_are_hidden() {
        for (text, clean) in [
            ("git clone https://me:pw@example.com/x.git", "git clone https://«userinfo»@example.com/x.git"),
            ("curl http://a.b/c?d=e@f", "curl http://a.b/c?d=e@f"),
            ("curl -H 'X: ghp_abcdefghijklmnopqrst1234' u", "curl -H 'X: «key»' u"),
            ("x --key=9fX2kQ7vLpZr4TbWn8YcHs3Jd6", "x «key»"),
            (
                "git show 3f786850e387550fdab836ed7e6dc881de23001b",
                "git show 3f786850e387550fdab836ed7e6dc881de23001b",
            ),
            ("cargo test some_very_long_test_name_2", "cargo test some_very_long_test_name_2"),
        ] {
            assert_eq!(without_keys(&without_userinfo(text)), clean);
        }
    }

    #[test]
    fn times_are_given_in_three_ways() {
        let now = 1_000_000_000_000;
        assert_eq!(parse_time("2001-09-09T01:46:40Z", now), Ok(now));
        assert_eq!(parse_time("2001-09-09", now), Ok(now - 6_400_000));
        assert_eq!(parse_time("90m", now), Ok(now - 90 * 60_000));
        assert!(parse_time("yesterday", now).is_err());
    }
}
