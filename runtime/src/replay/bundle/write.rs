//! Writing a bundle.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Write};

use serde_json::{Value, json};

use super::format::{BlobEntry, MAGIC, Manifest, RecordEntry};
use super::{BundleSummary, ExportOptions, SigningKey, trees};
use crate::digest::Digest;
use crate::envelope::Failure;
use crate::json;
use crate::replay::recording::Recording;
use crate::replay::verify::failure;
use crate::store::{Event, Record, RunId, Store};

/// Writes the whole bundle of a run.
pub(super) fn write(
    store: &Store,
    run: RunId,
    options: &ExportOptions,
    out: &mut impl Write,
) -> Result<BundleSummary, Failure> {
    let journal = store.events(run).map_err(failure)?;
    let recording = Recording::read(&journal)?;
    let redact = steps_to_redact(&recording, &options.redact)?;
    let dropped: HashSet<Digest> = journal.iter().flat_map(|record| payload(record, &redact)).collect();
    let texts: Vec<(String, Option<Digest>)> =
        journal.iter().map(|record| redacted_text(record, &redact)).collect::<Result<_, _>>()?;
    let names = names(&journal);
    let (directories, contents) = trees::of_run(store, &recording, options.directories)?;
    let mut blobs: Vec<BlobEntry> = store
        .blobs_of_run(run)
        .map_err(failure)?
        .into_iter()
        .filter(|blob| !dropped.contains(&blob.digest))
        .map(|blob| BlobEntry {
            len: blob.len,
            digest: blob.digest,
            what: names.get(&blob.digest).cloned().unwrap_or_else(|| "part of an action".to_owned()),
        })
        .collect();
    let mut known: HashSet<Digest> = blobs.iter().map(|blob| blob.digest).collect();
    blobs.extend(contents.into_iter().filter(|blob| known.insert(blob.digest)));
    let manifest = Manifest {
        run,
        name: recording.name.clone(),
        records: texts
            .iter()
            .map(|(text, hash)| RecordEntry {
                len: text.len() as u64,
                digest: Digest::of(text.as_bytes()),
                hash: *hash,
            })
            .collect(),
        blobs,
        redacted: redact.into_iter().collect(),
        directories,
    };
    let key = options.sign.as_deref();
    let bytes = copy(store, &manifest, &texts, key, out)
        .map_err(|error| Failure::runtime(format!("cannot write the bundle: {error}")))?;
    Ok(BundleSummary {
        run,
        name: manifest.name,
        records: manifest.records.len() as u64,
        blobs: manifest.blobs.len() as u64,
        bytes,
        redacted: manifest.redacted,
        signed_by: key.map(SigningKey::public),
        directories: manifest.directories,
    })
}

fn copy(
    store: &Store,
    manifest: &Manifest,
    texts: &[(String, Option<Digest>)],
    key: Option<&SigningKey>,
    out: &mut impl Write,
) -> io::Result<u64> {
    let text = json::compact(manifest).into_bytes();
    let head = [&MAGIC[..], &Digest::of(&text).as_bytes()[..]].concat();
    out.write_all(&head)?;
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(&text)?;
    let mut bytes = (head.len() + 8 + text.len()) as u64;
    for (text, _) in texts {
        out.write_all(text.as_bytes())?;
        bytes += text.len() as u64;
    }
    for blob in &manifest.blobs {
        let mut reader = store.open_blob(&blob.digest).map_err(io::Error::other)?;
        bytes += io::copy(&mut reader, out)?;
    }
    if let Some(key) = key {
        let signature = key.sign(&head);
        out.write_all(&signature)?;
        bytes += signature.len() as u64;
    }
    out.flush()?;
    Ok(bytes)
}

fn steps_to_redact(recording: &Recording, steps: &[String]) -> Result<BTreeSet<String>, Failure> {
    steps
        .iter()
        .map(|text| {
            let path = recording.meant(text)?;
            match recording.steps.get(&path) {
                Some(step) if step.effect => Ok(path),
                _ => Err(Failure::parse(format!(
                    "step '{path}' is pure: what it gave follows from its inputs, so leaving it out would hide nothing"
                ))),
            }
        })
        .collect()
}

/// The blobs of what a redacted step gave, and of what it was told by others on
/// the way. The empty one says nothing, and others share it.
fn payload(record: &Record, redact: &BTreeSet<String>) -> Vec<Digest> {
    match &record.event {
        Event::StepEnded { path, outcome, .. } if redact.contains(path) => {
            let blobs = [outcome.stdout, outcome.stderr, outcome.output].into_iter().flatten();
            let beside = [&outcome.detail["host_calls"], &outcome.detail["partial_stdout"]["digest"]];
            blobs
                .filter(|blob| blob.len > 0)
                .map(|blob| blob.digest)
                .chain(beside.into_iter().filter_map(|text| text.as_str()?.parse().ok()))
                .filter(|digest| *digest != Digest::of(b""))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// The text of a record without redacted values; with its hash in the chain if that changed it.
fn redacted_text(record: &Record, redact: &BTreeSet<String>) -> Result<(String, Option<Digest>), Failure> {
    let keep = || Ok((record.text.clone(), None));
    let Event::StepEnded { path, outcome, .. } = &record.event else { return keep() };
    if !redact.contains(path) || (outcome.value.is_null() && outcome.error.is_none()) {
        return keep();
    }
    let mut whole = json::parse(&record.text).map_err(failure)?;
    let outcome = &mut whole["event"]["outcome"];
    if !outcome["value"].is_null() {
        let digest = Digest::of_json(&outcome["value"]).map_err(failure)?;
        outcome["value"] = json!({ "redacted": digest });
    }
    if let Value::String(error) = &outcome["error"] {
        outcome["error"] = Value::from(format!("redacted blake3:{}", Digest::of(error.as_bytes())));
    }
    Ok((json::compact(&whole), Some(record.hash())))
}

/// What people call the blobs that the journal names.
fn names(journal: &[Record]) -> HashMap<Digest, String> {
    let mut names = HashMap::new();
    let mut name = |digest: Digest, what: String| {
        names.entry(digest).or_insert(what);
    };
    for record in journal {
        match &record.event {
            Event::RunStarted { plan, args, detail, .. } => {
                name(*plan, "plan".to_owned());
                if let Some(args) = args {
                    name(*args, "arguments".to_owned());
                }
                if let Some(policy) = detail["policyFile"].as_str().and_then(|text| text.parse().ok()) {
                    name(policy, "policy".to_owned());
                }
            }
            Event::StepStarted { path, action: Some(action), .. } => {
                name(*action, format!("action of step {path}"))
            }
            Event::StepEnded { path, begun, outcome, .. } => {
                if let Some(begun) = begun {
                    name(begun.action, format!("action of step {path}"));
                }
                for (blob, which) in
                    [(outcome.output, "output"), (outcome.stdout, "stdout"), (outcome.stderr, "stderr")]
                {
                    if let Some(blob) = blob {
                        name(blob.digest, format!("{which} of step {path}"));
                    }
                }
            }
            Event::GateOpened { path, question, .. } => name(*question, format!("question at {path}")),
            Event::RunEnded { output: Some(output), .. } => {
                name(output.digest, "output of the run".to_owned())
            }
            _ => {}
        }
    }
    names
}
