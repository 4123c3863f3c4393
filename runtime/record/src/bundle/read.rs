//! Reads a bundle and checks every byte of it.

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::format::{BlobEntry, FORMAT, MAGIC, MAX_MANIFEST, MAX_RECORD, Manifest};
use super::redaction::payload_blobs;
use super::{BundleSummary, PublicKey, signature};
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_engine::envelope::Failure;
use lobster_store::{BlobWriter, Event, Record, Redacted, Store, StoreError, parse_record};

/// Reason why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("cannot read {}: {source}; name a file that `lobster bundle export` wrote", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "it is not a lobster bundle, because it does not begin like one; name a file that `lobster bundle export` wrote"
    )]
    NotABundle,
    #[error(
        "it was written by a newer lobster (bundle format {found}, and this lobster reads up to format {FORMAT}); update lobster"
    )]
    Newer { found: u8 },
    #[error("the bundle is damaged, because {object} {why}; get another copy, or export the run again")]
    Damaged { object: String, why: String },
    /// A file, and the damage in it.
    #[error("{}: {why}", .file.display())]
    Useless { file: PathBuf, why: Box<BundleError> },
    #[error(
        "{}: parts of its journal were redacted, so it can be verified but not imported; ask for a bundle without --redact", .0.display()
    )]
    Edited(PathBuf),
    #[error("{} is not signed, but a signature by {wanted} is required; ask for one made with `lobster bundle export --sign`", .file.display())]
    Unsigned { file: PathBuf, wanted: PublicKey },
    #[error("{} is signed by {found}, and not by {wanted} as required", .file.display())]
    OtherSigner { file: PathBuf, found: PublicKey, wanted: PublicKey },
    #[error(
        "{}: {why}; `lobster bundle verify` shows more, `lobster bundle import --no-replay` imports it nevertheless", .file.display()
    )]
    Unverified { file: PathBuf, why: String },
    #[error("{}: interrupted before all of it was checked ({why}); start it again", .file.display())]
    Interrupted { file: PathBuf, why: String },
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("{}", .0.message)]
    Replay(Failure),
}

impl From<Failure> for BundleError {
    fn from(failure: Failure) -> Self {
        Self::Replay(failure)
    }
}

impl BundleError {
    /// Adds the name of the file.
    pub(super) fn in_file(self, file: &Path) -> Self {
        match self {
            Self::NotABundle | Self::Newer { .. } | Self::Damaged { .. } => {
                Self::Useless { file: file.to_owned(), why: Box::new(self) }
            }
            other => other,
        }
    }
}

/// A bundle whose blobs are in a store.
pub(super) struct Bundle {
    pub(super) summary: BundleSummary,
    pub(super) journal: Vec<Record>,
    pub(super) blobs: Vec<BlobEntry>,
    /// Parts left out of the bundle.
    pub(super) redacted: Redacted,
    /// True if the text of a record was changed by redaction.
    pub(super) edited: bool,
}

impl Bundle {
    /// Checks that the required signer signed the bundle.
    pub(super) fn check_signer(&self, file: &Path, wanted: Option<&PublicKey>) -> Result<(), BundleError> {
        let file = file.to_owned();
        match (wanted, self.summary.signed_by) {
            (Some(&wanted), None) => Err(BundleError::Unsigned { file, wanted }),
            (Some(&wanted), Some(found)) if found != wanted => {
                Err(BundleError::OtherSigner { file, found, wanted })
            }
            _ => Ok(()),
        }
    }
}

/// Reads a whole bundle, with its blobs into `store`.
pub(super) fn read_bundle(mut from: impl Read, store: &Store) -> Result<Bundle, BundleError> {
    let mut magic = [0; MAGIC.len()];
    from.read_exact(&mut magic).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => BundleError::NotABundle,
        _ => damaged_error("the header", &error),
    })?;
    match magic.strip_prefix(&MAGIC[..MAGIC.len() - 1]) {
        Some(&[FORMAT]) => {}
        Some(&[found]) if found > FORMAT => return Err(BundleError::Newer { found }),
        _ => return Err(BundleError::NotABundle),
    }
    let manifest_digest = {
        let mut digest = [0; 32];
        from.read_exact(&mut digest).map_err(|error| cut_header(&error))?;
        Digest::from(digest)
    };
    let mut len = [0; 8];
    from.read_exact(&mut len).map_err(|error| cut_header(&error))?;
    let len = u64::from_le_bytes(len);
    let text = read_checked(&mut from, len, MAX_MANIFEST, &manifest_digest, || "the manifest".to_owned())?;
    let manifest: Manifest = json::parse_as(&String::from_utf8_lossy(&text))
        .map_err(|error| damaged_error("the manifest", &error))?;
    let mut bytes = (MAGIC.len() + 32 + 8) as u64 + len;

    let mut journal: Vec<Record> = Vec::new();
    let mut prev = Digest::from([0; 32]);
    for (entry, seq) in manifest.records.iter().zip(1_u64..) {
        let name = || format!("record {seq} of the journal");
        let text = read_checked(&mut from, entry.len, MAX_RECORD, &entry.digest, name)?;
        bytes += entry.len;
        let text = String::from_utf8(text).map_err(|error| damaged_error(&name(), &error))?;
        let record = parse_record(manifest.run, seq, text).map_err(|error| damaged_error(&name(), &error))?;
        if record.prev != prev {
            return Err(damaged_error(&name(), &"does not carry the hash of the record before"));
        }
        if let (Event::RunStarted { name, .. }, None) = (&record.event, entry.hash)
            && *name != manifest.name
        {
            return Err(damaged_error(
                "the manifest",
                &"names the run differently from record 1 of the journal",
            ));
        }
        prev = entry.hash.unwrap_or(entry.digest);
        journal.push(record);
    }
    for entry in &manifest.blobs {
        let name = || format!("blob {} ({})", entry.digest, entry.what);
        let mut writer = store.blob_writer();
        let unread = |error: io::Error| damaged_error(&name(), &error);
        let copied = copy_into(&mut (&mut from).take(entry.len), &mut writer, unread)?;
        if copied < entry.len {
            return Err(damaged_error(&name(), &"is cut off"));
        }
        let blob = writer.finish()?;
        if blob.digest != entry.digest {
            return Err(damaged_error(&name(), &format!("has other bytes: they hash to {}", blob.digest)));
        }
        bytes += entry.len;
    }
    let head = [&magic[..], &manifest_digest.as_bytes()[..]].concat();
    let (signed_by, tail) = read_signer(from, &head)?;
    bytes += tail;
    // The first bundles do not list what they left out.
    let redact = manifest.redacted.iter().cloned().collect();
    let given = journal.iter().flat_map(|record| payload_blobs(record, &redact));
    let left_out: BTreeSet<Digest> = manifest.left_out.iter().map(|blob| blob.digest).chain(given).collect();
    let names: BTreeSet<String> = manifest.left_out.into_iter().map(|blob| blob.what).collect();
    let own: Vec<String> = manifest.redacted.iter().map(|step| format!(" of step {step}")).collect();
    Ok(Bundle {
        redacted: Redacted { steps: manifest.redacted.clone(), blobs: left_out.into_iter().collect() },
        edited: manifest.records.iter().any(|entry| entry.hash.is_some()),
        summary: BundleSummary {
            run: manifest.run,
            name: manifest.name,
            records: manifest.records.len() as u64,
            blobs: manifest.blobs.len() as u64,
            bytes,
            redacted: manifest.redacted,
            left_out: names
                .into_iter()
                .filter(|name| name.starts_with("action") || !own.iter().any(|step| name.ends_with(step)))
                .collect(),
            signed_by,
            directories: manifest.directories,
            secrets: Vec::new(),
        },
        journal,
        blobs: manifest.blobs,
    })
}

/// The signer, if a signature follows the last blob, and the length of the signature.
fn read_signer(from: impl Read, head: &[u8]) -> Result<(Option<PublicKey>, u64), BundleError> {
    let object = "the signature";
    let mut tail = Vec::new();
    from.take(signature::LENGTH as u64 + 1)
        .read_to_end(&mut tail)
        .map_err(|error| damaged_error("the end of the file", &error))?;
    if tail.is_empty() {
        return Ok((None, 0));
    }
    let marked = tail.len().min(signature::MARK.len());
    if tail[..marked] != signature::MARK[..marked] || tail.len() > signature::LENGTH {
        return Err(damaged_error("the end of the file", &"is followed by other data"));
    }
    if tail.len() < signature::LENGTH {
        return Err(damaged_error(object, &"is cut off"));
    }
    let key = signature::verify_signature(head, &tail)
        .ok_or_else(|| damaged_error(object, &"does not match the bundle"))?;
    Ok((Some(key), tail.len() as u64))
}

fn cut_header(error: &io::Error) -> BundleError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged_error("the header", &"is cut off"),
        _ => damaged_error("the header", error),
    }
}

/// Exactly `len` bytes that hash to `digest`.
fn read_checked(
    from: &mut impl Read,
    len: u64,
    max: u64,
    digest: &Digest,
    name: impl Fn() -> String,
) -> Result<Vec<u8>, BundleError> {
    if len > max {
        return Err(damaged_error(&name(), &format!("claims {len} bytes, more than the {max} it may have")));
    }
    let mut bytes = Vec::new();
    from.take(len).read_to_end(&mut bytes).map_err(|error| damaged_error(&name(), &error))?;
    if (bytes.len() as u64) < len {
        return Err(damaged_error(&name(), &"is cut off"));
    }
    let found = Digest::of_bytes(&bytes);
    if found != *digest {
        return Err(damaged_error(&name(), &format!("has other bytes: they hash to {found}")));
    }
    Ok(bytes)
}

/// Copies all of `from` into a blob. Read errors and write errors are separate, because a bundle is not
/// damaged if the disk is full.
pub(super) fn copy_into(
    from: &mut impl Read,
    writer: &mut BlobWriter,
    unread: impl FnOnce(io::Error) -> BundleError,
) -> Result<u64, BundleError> {
    let mut piece = vec![0; 64 << 10];
    let mut copied = 0;
    loop {
        let read = match from.read(&mut piece) {
            Ok(0) => return Ok(copied),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(unread(error)),
        };
        writer.write_all(&piece[..read]).map_err(|error| writer.store_error(error))?;
        copied += read as u64;
    }
}

pub(super) fn damaged_error(object: &str, why: &impl std::fmt::Display) -> BundleError {
    BundleError::Damaged { object: object.to_owned(), why: why.to_string() }
}
