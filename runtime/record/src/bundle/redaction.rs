//! The results of redacted steps, and the other places in the record of a run that repeat them.
//!
//! The search covers all texts of these results: each as a whole, as compact JSON, and its strings and lines.
//! Texts that the run knew before the step ended reveal nothing about it and are skipped. Values computed
//! from a result that are different texts are not found: steps that express the same in other words must be
//! redacted by name.

use std::collections::{BTreeSet, HashSet};

use aho_corasick::AhoCorasick;
use serde_json::{Value, json};

use super::write_failure;
use crate::recording::Recording;
use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_engine::envelope::Failure;
use lobster_store::{Blob, Event, Record, Store, parse_record};

/// Shorter texts occur in too many places to be meaningful; they are compared, not searched for.
const SHORTEST: usize = 8;

/// Only this much of the beginning of a text is searched for; a copy contains it too.
const LONGEST: usize = 1 << 10;

/// Texts that are searched for at once.
const MOST: usize = 200_000;

/// Largest result that is searched for, and largest blob whose JSON is parsed, in bytes.
const MAX_SOUGHT: u64 = 64 << 20;

/// Fields of an event with words of people and programs.
const WORDS: [&str; 8] = ["value", "error", "detail", "decision", "answer", "text", "code", "by"];

/// The blobs with the results of a redacted step, and with the responses that it received meanwhile. The
/// empty blob reveals nothing and is shared, so it is left out.
pub(super) fn payload_blobs(record: &Record, redact: &BTreeSet<String>) -> Vec<Digest> {
    match &record.event {
        Event::StepEnded { path, outcome, .. } if redact.contains(path) => {
            let detail = &outcome.detail;
            let beside = [&detail["host_calls"], &detail["kept_values"], &detail["changes"]["digest"]];
            outcome
                .kept_streams()
                .filter(|(_, blob)| blob.len > 0)
                .map(|(_, blob)| blob.digest)
                .chain(beside.into_iter().filter_map(|text| text.as_str()?.parse().ok()))
                .filter(|digest| *digest != Digest::of_bytes(b""))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Texts that must not be in the bundle.
pub(super) struct Sought<'a> {
    redact: &'a BTreeSet<String>,
    finder: AhoCorasick,
    /// Texts that are too short to be searched for.
    short: HashSet<Vec<u8>>,
    /// Inputs of the run, which cannot repeat a later result.
    given: HashSet<Digest>,
}

impl<'a> Sought<'a> {
    /// Reads the results of the steps to redact.
    pub(super) fn from_results(
        store: &Store,
        recording: &Recording,
        journal: &[Record],
        redact: &'a BTreeSet<String>,
    ) -> Result<Self, Failure> {
        let given = blobs_before_any_step(store, recording, journal);
        let (mut long, mut short) = (HashSet::new(), HashSet::new());
        for step in redact {
            let mut texts = Texts::default();
            let mut ended = journal.len();
            for (index, record) in journal.iter().enumerate() {
                let Event::StepEnded { path, outcome, .. } = &record.event else { continue };
                if path != step {
                    continue;
                }
                ended = ended.min(index);
                texts.add_value(&outcome.value);
                texts.add_text(outcome.error.as_deref().unwrap_or_default().as_bytes());
                for digest in payload_blobs(record, redact) {
                    // Blobs left out by an earlier redaction cannot be repeated.
                    let Some(len) = store.blob_len(&digest)? else { continue };
                    if len > MAX_SOUGHT {
                        return Err(too_much(step));
                    }
                    texts.add_result(&store.load_blob(&digest, MAX_SOUGHT)?);
                }
            }
            if texts.long.len() > MOST {
                return Err(too_much(step));
            }
            let texts = texts.without_known(&known_before(store, recording, journal, step, ended))?;
            long.extend(texts.long);
            short.extend(texts.short);
        }
        Ok(Self { redact, finder: build_finder(long.into_iter().collect())?, short, given })
    }

    /// True if a blob repeats any of these texts.
    pub(super) fn is_in_blob(&self, store: &Store, blob: &Blob) -> Result<bool, Failure> {
        if self.given.contains(&blob.digest) {
            return Ok(false);
        }
        if blob.len > MAX_SOUGHT {
            let reader = store.open_blob(&blob.digest)?;
            return self
                .finder
                .stream_find_iter(reader)
                .next()
                .transpose()
                .map(|hit| hit.is_some())
                .map_err(write_failure);
        }
        let bytes = store.load_blob(&blob.digest, MAX_SOUGHT)?;
        if self.is_short(bytes.trim_ascii()) {
            return Ok(true);
        }
        let mut found = false;
        each_text(&bytes, &mut |text| found = found || self.finder.is_match(text));
        Ok(found || as_json(&bytes).is_some_and(|action| self.is_read_by(&action)))
    }

    /// True if an action reads a value that is too short to be searched for.
    fn is_read_by(&self, action: &Value) -> bool {
        let args = &action["args"];
        let steps = args["steps"].as_object().into_iter().flat_map(|steps| steps.values());
        [&action["input"], &action["stdin"], &args["input"]]
            .into_iter()
            .chain(steps)
            .any(|value| self.is_short(json::compact(value).as_bytes()))
    }

    fn is_short(&self, text: &[u8]) -> bool {
        self.short.contains(text)
    }

    /// The text of a record without these texts. If that changed it, also its hash in the chain.
    pub(super) fn cut_record(&self, record: &Record) -> Result<(String, Option<Digest>), Failure> {
        let mut whole = json::parse(&record.text).map_err(write_failure)?;
        let before = whole.clone();
        let event = &mut whole["event"];
        if matches!(&record.event, Event::StepEnded { path, .. } if self.redact.contains(path)) {
            let outcome = &mut event["outcome"];
            if let Some(value) = outcome.get_mut("value") {
                *value = json!({ "redacted": Digest::of_json(value).map_err(write_failure)? });
            }
            if let Some(Value::String(error)) = outcome.get_mut("error") {
                *error = cut_text(error);
            }
        }
        self.cut_words(event, false);
        if whole == before {
            return Ok((record.text.clone(), None));
        }
        let text = json::compact(&whole);
        if parse_record(record.run, record.seq, text.clone()).is_err() {
            return Err(Failure::new(
                Code::Bundle,
                format!(
                    "record {} of the run contains a result of a redacted step that cannot be left out there",
                    record.seq
                ),
            ));
        }
        Ok((text, Some(record.hash())))
    }

    /// Replaces the words of an event that repeat any of these texts.
    fn cut_words(&self, value: &mut Value, words: bool) {
        match value {
            Value::String(text) => {
                if words && self.finder.is_match(text.as_bytes()) {
                    *text = cut_text(text);
                }
                return;
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.cut_words(item, words)),
            Value::Object(map) => {
                for (key, value) in map.iter_mut() {
                    self.cut_words(value, words || WORDS.contains(&key.as_str()));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
        // A number, a key, or a whole value.
        let text = json::compact(value);
        if words && self.finder.is_match(text.as_bytes()) {
            *value = json!({ "redacted": Digest::of_bytes(text.as_bytes()) });
        }
    }
}

/// Replacement of a text that was left out.
fn cut_text(text: &str) -> String {
    format!("{CUT}{}", Digest::of_bytes(text.as_bytes()))
}

/// Beginning of the replacement of a text that was left out.
pub(crate) const CUT: &str = "redacted blake3:";

fn too_much(step: &str) -> Failure {
    Failure::new(
        Code::Bundle,
        format!(
            "the result of step '{step}' is too large to search for in the rest of the run, so it cannot be promised that it is left out"
        ),
    )
}

fn build_finder(texts: Vec<Vec<u8>>) -> Result<AhoCorasick, Failure> {
    AhoCorasick::new(texts).map_err(write_failure)
}

/// Blobs that existed before any step: the plan, the arguments, the policy, and components.
pub(super) fn blobs_before_any_step(
    store: &Store,
    recording: &Recording,
    journal: &[Record],
) -> HashSet<Digest> {
    let mut given: HashSet<Digest> =
        [Some(recording.task.plan), recording.task.args].into_iter().flatten().collect();
    for record in journal {
        if let Event::RunStarted { detail, .. } | Event::RunResumed { detail, .. } = &record.event {
            given.extend(detail["policyFile"].as_str().and_then(|text| text.parse::<Digest>().ok()));
        }
    }
    for (path, _) in recording.in_order() {
        let action = recording.read_preimage(store, path);
        given.extend(action.and_then(|action| action["component"].as_str()?.parse::<Digest>().ok()));
    }
    given
}

/// Texts known before a step ended: the inputs of the run, the earlier records, and the action of the step.
fn known_before(
    store: &Store,
    recording: &Recording,
    journal: &[Record],
    step: &str,
    ended: usize,
) -> Vec<Vec<u8>> {
    let action = recording.steps.get(step).and_then(|step| step.action);
    let blobs = [Some(recording.task.plan), recording.task.args, action].into_iter().flatten();
    let blobs = blobs.filter_map(|digest| store.load_blob(&digest, MAX_SOUGHT).ok());
    let records = journal.iter().take(ended).map(|record| record.text.clone().into_bytes());
    blobs.chain(records).collect()
}

/// The texts of a result.
#[derive(Default)]
struct Texts {
    long: HashSet<Vec<u8>>,
    short: HashSet<Vec<u8>>,
}

impl Texts {
    /// Adds a whole result: its bytes, its JSON and its lines.
    fn add_result(&mut self, bytes: &[u8]) {
        self.add_text(bytes);
        match as_json(bytes) {
            Some(value) => self.add_value(&value),
            None => bytes.split(|byte| *byte == b'\n').for_each(|line| {
                self.add_part(line.trim_ascii());
                if let Some(item) = as_json(line) {
                    self.add_value(&item);
                }
            }),
        }
    }

    fn add_value(&mut self, value: &Value) {
        if value.is_null() {
            return;
        }
        self.add_text(json::compact(value).as_bytes());
        match value {
            Value::Array(items) => {
                items.iter().for_each(|item| self.add_part(json::compact(item).as_bytes()))
            }
            Value::Object(map) => map.values().for_each(|item| self.add_part(json::compact(item).as_bytes())),
            _ => {}
        }
        self.add_strings(value);
    }

    fn add_strings(&mut self, value: &Value) {
        match value {
            Value::String(text) => {
                text.lines().for_each(|line| self.add_part(line.trim().as_bytes()));
                self.add_part(text.trim().as_bytes());
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_strings(item)),
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                self.add_part(key.as_bytes());
                self.add_strings(value);
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Adds a result as a whole.
    fn add_text(&mut self, bytes: &[u8]) {
        let text = bytes.trim_ascii();
        let says_nothing = matches!(text, b"" | b"null" | b"true" | b"false" | b"[]" | b"{}" | b"\"\"");
        if text.len() < SHORTEST && !says_nothing {
            self.short.insert(text.to_owned());
        }
        self.add_part(text);
    }

    fn add_part(&mut self, text: &[u8]) {
        if text.len() >= SHORTEST {
            self.long.insert(text[..text.len().min(LONGEST)].to_owned());
        }
    }

    fn without_known(self, known: &[Vec<u8>]) -> Result<Self, Failure> {
        let mut long: Vec<Vec<u8>> = self.long.into_iter().collect();
        let finder = build_finder(long.clone())?;
        let mut seen = vec![false; long.len()];
        for text in known {
            each_text(text, &mut |text| {
                for hit in finder.find_overlapping_iter(text) {
                    seen[hit.pattern().as_usize()] = true;
                }
            });
        }
        let mut seen = seen.into_iter();
        long.retain(|_| !seen.next().unwrap_or(false));
        Ok(Self { long: long.into_iter().collect(), short: self.short })
    }
}

/// Visits a text, and the strings in it if it is JSON, where they may be escaped.
fn each_text(bytes: &[u8], found: &mut impl FnMut(&[u8])) {
    fn each_string(value: &Value, found: &mut impl FnMut(&[u8])) {
        match value {
            Value::String(text) => found(text.as_bytes()),
            Value::Array(items) => items.iter().for_each(|item| each_string(item, found)),
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                found(key.as_bytes());
                each_string(value, found);
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    found(bytes);
    match as_json(bytes) {
        Some(value) => {
            found(json::compact(&value).as_bytes());
            each_string(&value, found);
        }
        None => bytes.split(|byte| *byte == b'\n').filter_map(as_json).for_each(|item| {
            found(json::compact(&item).as_bytes());
            each_string(&item, found);
        }),
    }
}

fn as_json(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes.trim_ascii()).ok()?;
    text.starts_with(['{', '[', '"']).then(|| json::parse(text).ok()).flatten()
}
