//! Bundles: a run in one file, which is sufficient to check and replay it on another machine. See
//! `docs/record.md` for the format.

mod destination;
mod format;
mod granted;
mod read;
mod redaction;
mod signature;
mod source;
mod trees;
mod write;

use std::io::{BufReader, Write};
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use destination::{Destination, Refused};
pub use granted::GrantedSecrets;
use read::Bundle;
pub use read::BundleError;
pub(super) use redaction::CUT;
pub use signature::{KeyError, PublicKey, SigningKey};
use source::BundleSource;
pub use trees::Directory;
pub(super) use trees::Unpacked;

use super::replay::{Carried, ReplayOptions, ReplayReport, replay_journal};
use lobster_base::code::Code;
use lobster_engine::envelope::Failure;
use lobster_engine::runtime::Runtime;
use lobster_store::{RunId, Store, StoreError};

/// The failure to write a bundle.
fn write_failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Bundle, error.to_string())
}

/// Settings for writing a bundle.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Key that signs it.
    pub sign: Option<Arc<SigningKey>>,
    /// Steps whose payload is dropped, together with its repetitions; the digest stays. At least one step
    /// must be an effect.
    pub redact: Vec<String>,
    /// Includes the directories that components could read.
    pub directories: bool,
    /// Replaces a file that is not a bundle.
    pub force: bool,
}

/// Settings for importing a bundle.
#[derive(Clone, Debug, Default)]
pub struct ImportOptions {
    /// Required signer.
    pub signer: Option<PublicKey>,
    /// Imports the run without a replay.
    pub unreplayed: bool,
}

/// Content of a bundle.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleSummary {
    pub run: RunId,
    pub name: String,
    pub records: u64,
    pub blobs: u64,
    /// Size of the whole file.
    pub bytes: u64,
    /// Steps whose payload was left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub redacted: Vec<String>,
    /// Other data that repeated the payload of these steps and was left out as well.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Signer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_by: Option<PublicKey>,
    /// Directories that components could read, and whether the bundle contains them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub directories: Vec<Directory>,
    /// Steps that had secrets, reported to the person who writes the bundle.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<GrantedSecrets>,
}

/// Result of checking a bundle. Damage is an error, not a report.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BundleReport {
    pub bundle: BundleSummary,
    pub replay: ReplayReport,
}

/// Writes a run to a file, which appears only when it is complete. An existing file is replaced only if it is
/// a bundle; pipes and devices are written to.
///
/// # Errors
/// If the run is not known or damaged, if a step to redact is not an effect of it, or if the file cannot be
/// written.
pub fn export_bundle(
    runtime: &Runtime,
    run: &str,
    file: &Path,
    options: &ExportOptions,
) -> Result<BundleSummary, Failure> {
    let (store, id) = sound_run(runtime, run)?;
    let refused = |refused: Refused| match refused {
        Refused::NotABundle(_) => Failure::parse_error(refused.to_string()),
        Refused::Io { .. } => Failure::new(Code::Bundle, refused.to_string()),
    };
    let mut destination = Destination::open(file, options.force).map_err(refused)?;
    let summary = write::write_bundle(&store, id, options, destination.writer())?;
    destination.finish().map_err(refused)?;
    Ok(summary)
}

/// Writes a run like [`Runtime::export_bundle`], but to any writer.
///
/// # Errors
/// See [`Runtime::export_bundle`].
pub fn export_bundle_to(
    runtime: &Runtime,
    run: &str,
    out: &mut dyn Write,
    options: &ExportOptions,
) -> Result<BundleSummary, Failure> {
    let (store, id) = sound_run(runtime, run)?;
    write::write_bundle(&store, id, options, out)
}

/// The store and the id of a run whose hash chain is intact.
fn sound_run(runtime: &Runtime, run: &str) -> Result<(Store, RunId), Failure> {
    let store = runtime.store()?;
    let id = store.find_run(run).map_err(|error| Failure::parse_error(error.to_string()))?;
    store.verify_chain(id)?;
    Ok((store, id))
}

/// Checks every byte of a bundle and replays its run from nothing but the bundle. If `signer` is given, it
/// must have signed the bundle.
///
/// # Errors
/// [`BundleError::Useless`] with the damaged object, [`BundleError::Unsigned`], [`BundleError::OtherSigner`].
pub fn verify_bundle(
    runtime: &Runtime,
    file: &Path,
    signer: Option<&PublicKey>,
) -> Result<BundleReport, BundleError> {
    let (store, bundle) = read_signed(runtime, file, signer)?;
    let replay = replay_bundle(runtime, &store, &bundle)?;
    Ok(BundleReport { bundle: bundle.summary, replay })
}

/// Imports the run of a bundle into this store, after checking every byte of it and replaying it.
///
/// # Errors
/// See [`Runtime::verify_bundle`]; [`BundleError::Unverified`]; if the run is in the store already; if parts
/// of its journal were redacted, because its chain would no longer be intact.
pub fn import_bundle(
    runtime: &Runtime,
    file: &Path,
    options: &ImportOptions,
) -> Result<BundleSummary, BundleError> {
    // The file is read once, so exactly the checked bytes are imported, and no part of a damaged or foreign
    // bundle reaches the store.
    let (checked, bundle) = read_signed(runtime, file, options.signer.as_ref())?;
    if !options.unreplayed {
        let unverified = |why: String| BundleError::Unverified { file: file.to_owned(), why };
        let replay = replay_bundle(runtime, &checked, &bundle).map_err(|error| match error {
            BundleError::Replay(failure) if failure.code.known_code() != Some(Code::Cancelled) => {
                unverified(failure.message)
            }
            other => other,
        })?;
        if !replay.is_faithful() {
            return Err(unverified("it does not replay as it was recorded".to_owned()));
        }
    }
    if bundle.edited {
        return Err(BundleError::Edited(file.to_owned()));
    }
    let store = runtime.store()?;
    for entry in &bundle.blobs {
        let name = format!("blob {} ({})", entry.digest, entry.what);
        let mut writer = store.blob_writer();
        let unread = |source| {
            let path = checked.dir().to_owned();
            BundleError::Store(StoreError::Io { doing: "read", path, source })
        };
        read::copy_into(&mut checked.open_blob(&entry.digest)?, &mut writer, unread)?;
        let found = writer.finish()?.digest;
        if found != entry.digest {
            return Err(
                read::damaged_error(&name, &format!("has other bytes: they hash to {found}")).in_file(file)
            );
        }
    }
    let texts = bundle.journal.into_iter().map(|record| record.text).collect();
    store.import_run(texts, &bundle.redacted)?;
    Ok(bundle.summary)
}

/// Reads a bundle into a separate store and checks its signer.
fn read_signed(
    runtime: &Runtime,
    file: &Path,
    signer: Option<&PublicKey>,
) -> Result<(Store, Bundle), BundleError> {
    let store = scratch_store(runtime)?;
    let bundle = read_file(runtime, file, &store)?;
    bundle.check_signer(file, signer)?;
    Ok((store, bundle))
}

/// A store for the content of a bundle, beside the runtime's own store, or among temporary files if that
/// cannot be written.
fn scratch_store(runtime: &Runtime) -> Result<Store, StoreError> {
    let beside = runtime.state_dir().join("store").join("tmp");
    Store::scratch_in(&beside).or_else(|_| Store::scratch_in(&std::env::temp_dir()))
}

/// Replays the run of a bundle from nothing but the bundle.
fn replay_bundle(runtime: &Runtime, store: &Store, bundle: &Bundle) -> Result<ReplayReport, BundleError> {
    let carried = Carried {
        redacted: bundle.redacted.steps.iter().cloned().collect(),
        left_out: bundle.redacted.blobs.iter().copied().collect(),
        directories: Unpacked::of_bundle(store, &bundle.summary.directories)?,
    };
    Ok(replay_journal(runtime, store, &bundle.journal, &ReplayOptions::default(), carried)?)
}

fn read_file(runtime: &Runtime, file: &Path, store: &Store) -> Result<Bundle, BundleError> {
    let unreadable = |source| BundleError::Unreadable { path: file.to_owned(), source };
    let cancel = &runtime.services.cancel;
    let source = BundleSource::open(file, cancel).map_err(unreadable)?;
    let bundle = read::read_bundle(BufReader::new(source), store);
    match cancel.reason() {
        Some(reason) => Err(BundleError::Interrupted { file: file.to_owned(), why: reason.message() }),
        None => bundle.map_err(|error| error.in_file(file)),
    }
}

#[cfg(test)]
mod tests;
