//! Writing a bundle.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{self, Write};

use super::format::{BlobEntry, LeftOut, MAGIC, Manifest, RecordEntry};
use super::granted::granted_secrets;
use super::redaction::{Sought, blobs_before_any_step, payload_blobs};
use super::{BundleSummary, ExportOptions, SigningKey, trees};
use crate::changes::changes_in;
use crate::recording::Recording;
use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_engine::envelope::Failure;
use lobster_store::{Blob, Event, Record, RunId, Store, StoreError};

/// Writes the whole bundle of a run.
pub(super) fn write_bundle(
    store: &Store,
    run: RunId,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> Result<BundleSummary, Failure> {
    let journal = store.all_events(run)?;
    let recording = Recording::from_journal(&journal)?;
    let before = store.redacted_parts(run)?;
    let mut redact = steps_to_redact(&recording, &options.redact)?;
    redact.extend(before.steps);
    let sought = match redact.is_empty() {
        true => None,
        false => Some(Sought::from_results(store, &recording, &journal, &redact)?),
    };
    let names = blob_descriptions(&journal);
    let what = |digest: &Digest| names.get(digest).cloned().unwrap_or_else(|| "part of an action".to_owned());
    let payload: HashSet<Digest> = journal.iter().flat_map(|record| payload_blobs(record, &redact)).collect();
    let mut left_out: Vec<LeftOut> = before
        .blobs
        .iter()
        .chain(&payload)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|digest| LeftOut { digest: *digest, what: what(digest) })
        .collect();
    if let Some(missing) = first_missing(store, &recording, &journal, &before.blobs)? {
        let error = StoreError::MissingBlob(missing);
        let message = format!(
            "run {} cannot be put into a bundle without its {}: {error}",
            run.short_id(),
            what(&missing)
        );
        return Err(Failure::new(Code::Recording, message));
    }
    let (mut blobs, mut copies) = (Vec::new(), BTreeSet::new());
    for blob in store.blobs_of_run(run)? {
        let (digest, what) = (blob.digest, what(&blob.digest));
        let is_copy = || sought.as_ref().map_or(Ok(false), |sought| sought.is_in_blob(store, &blob));
        if payload.contains(&digest) {
            continue;
        } else if is_copy()? {
            copies.insert(what.clone());
            left_out.push(LeftOut { digest, what });
        } else {
            blobs.push(BlobEntry { len: blob.len, digest, what });
        }
    }
    let (directories, contents) = trees::of_run(store, &recording, options.directories)?;
    let mut known: HashSet<Digest> = blobs.iter().map(|blob| blob.digest).collect();
    for entry in contents {
        let blob = Blob { digest: entry.digest, len: entry.len };
        if let Some(sought) = &sought
            && sought.is_in_blob(store, &blob)?
        {
            return Err(Failure::parse_error(format!(
                "{} contains a result of a redacted step; export without directories",
                entry.what
            )));
        }
        if known.insert(entry.digest) {
            blobs.push(entry);
        }
    }
    let texts: Vec<(String, Option<Digest>)> = match &sought {
        Some(sought) => journal.iter().map(|record| sought.cut_record(record)).collect::<Result<_, _>>()?,
        None => journal.iter().map(|record| (record.text.clone(), None)).collect(),
    };
    let manifest = Manifest {
        run,
        name: recording.name.clone(),
        records: texts
            .iter()
            .map(|(text, hash)| RecordEntry {
                len: text.len() as u64,
                digest: Digest::of_bytes(text.as_bytes()),
                hash: *hash,
            })
            .collect(),
        blobs,
        redacted: redact.into_iter().collect(),
        left_out,
        directories,
    };
    let key = options.sign.as_deref();
    let bytes = write_content(store, &manifest, &texts, key, out)
        .map_err(|error| Failure::new(Code::Bundle, format!("cannot write the bundle: {error}")))?;
    Ok(BundleSummary {
        run,
        name: manifest.name,
        records: manifest.records.len() as u64,
        blobs: manifest.blobs.len() as u64,
        bytes,
        redacted: manifest.redacted,
        left_out: copies.into_iter().collect(),
        signed_by: key.map(SigningKey::public_key),
        directories: manifest.directories,
        secrets: granted_secrets(store, &recording),
    })
}

/// Finds a blob that the run needs but that neither exists nor was left out before. A bundle without it would
/// be a different run.
fn first_missing(
    store: &Store,
    recording: &Recording,
    journal: &[Record],
    left_out: &[Digest],
) -> Result<Option<Digest>, Failure> {
    let mut needed: BTreeSet<Digest> =
        journal.iter().flat_map(|record| record.event.required_blobs()).collect();
    needed.extend(blobs_before_any_step(store, recording, journal));
    // A change set that is missing itself is among the blobs of its step, or was left out.
    let sets = changes_in(store, journal).unwrap_or_default();
    needed.extend(sets.iter().flat_map(|changes| changes.set.content_digests()));
    for digest in needed {
        if !left_out.contains(&digest) && store.blob_len(&digest)?.is_none() {
            return Ok(Some(digest));
        }
    }
    Ok(None)
}

fn write_content(
    store: &Store,
    manifest: &Manifest,
    texts: &[(String, Option<Digest>)],
    key: Option<&SigningKey>,
    out: &mut dyn Write,
) -> io::Result<u64> {
    let text = json::compact(manifest).into_bytes();
    let head = [&MAGIC[..], &Digest::of_bytes(&text).as_bytes()[..]].concat();
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
        bytes += io::copy(&mut reader, &mut *out)?;
    }
    if let Some(key) = key {
        let signature = key.sign_head(&head);
        out.write_all(&signature)?;
        bytes += signature.len() as u64;
    }
    out.flush()?;
    Ok(bytes)
}

fn steps_to_redact(recording: &Recording, steps: &[String]) -> Result<BTreeSet<String>, Failure> {
    let paths: BTreeSet<String> =
        steps.iter().map(|text| recording.resolve_step(text)).collect::<Result<_, _>>()?;
    let is_effect = |path: &String| recording.steps.get(path).is_some_and(|step| step.effect);
    match paths.first() {
        Some(path) if !paths.iter().any(is_effect) => Err(Failure::parse_error(format!(
            "step '{path}' is pure: its result follows from its inputs, so leaving it out would hide nothing \
             unless an effect that it reads from is redacted too"
        ))),
        _ => Ok(paths),
    }
}

/// Descriptions of the blobs that the journal names.
fn blob_descriptions(journal: &[Record]) -> HashMap<Digest, String> {
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
                for (which, blob) in outcome.kept_streams() {
                    name(blob.digest, format!("{which} of step {path}"));
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
