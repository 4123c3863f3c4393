//! Granted directories in a bundle: their contents as blobs, with a listing, so
//! that a step that read them can be computed again where they are not.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tempfile::TempDir;

use super::format::BlobEntry;
use super::read::{BundleError, damaged};
use super::unwritten;
use crate::recording::Recording;
use lobster_base::digest::Digest;
use lobster_base::file_digests::FileDigests;
use lobster_base::json;
use lobster_engine::envelope::Failure;
use lobster_engine::kinds::component::tree_digest;
use lobster_store::Store;

/// Most bytes, and most names, of one directory that a bundle takes in.
const MAX_BYTES: u64 = 256 << 20;
const MAX_NAMES: usize = 50_000;

/// A directory that a step could read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    pub step: String,
    /// The path the step saw it at.
    pub to: String,
    /// The digest over its names and contents.
    pub tree: Digest,
    /// The blob that lists it, if it is in the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listing: Option<Digest>,
    /// Why it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    path: PathBuf,
    what: What,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Directory,
    File(Digest),
    Link(PathBuf),
}

/// The directories that the pure steps of a run could read; with `carry` also
/// the blobs that hold them, as far as they are still what they were.
pub(super) fn of_run(
    store: &Store,
    recording: &Recording,
    carry: bool,
) -> Result<(Vec<Directory>, Vec<BlobEntry>), Failure> {
    let (mut directories, mut blobs) = (Vec::new(), Vec::new());
    let mut known: HashMap<Digest, Result<Digest, String>> = HashMap::new();
    for (path, step) in recording.in_order() {
        let Some(action) = recording.preimage(store, path).filter(|_| step.kind == "component") else {
            continue;
        };
        let Some(outcome) = &step.outcome else { continue };
        for (index, grant) in action["grants"]["read"].as_array().into_iter().flatten().enumerate() {
            let (Some(to), Some(tree)) = (grant["to"].as_str(), digest(&grant["tree"])) else { continue };
            let named = outcome.enforcement["granted"]["read"][index].as_str().unwrap_or_default();
            let host = named.strip_suffix(&format!(" at {to}")).map(PathBuf::from);
            let packed = match (carry, host) {
                (false, _) => Err("it was not asked for".to_owned()),
                (true, None) => Err("the record does not say where it was".to_owned()),
                (true, Some(host)) => match known.get(&tree) {
                    Some(known) => known.clone(),
                    None => {
                        let packed = pack(store, &host, tree, to, &mut blobs)?;
                        known.insert(tree, packed.clone());
                        packed
                    }
                },
            };
            let (listing, left_out) = match packed {
                Ok(listing) => (Some(listing), None),
                Err(why) => (None, Some(why)),
            };
            directories.push(Directory { step: path.to_owned(), to: to.to_owned(), tree, listing, left_out });
        }
    }
    Ok((directories, blobs))
}

fn digest(value: &Value) -> Option<Digest> {
    value.as_str()?.parse().ok()
}

/// Puts a directory's files into the store and lists them.
fn pack(
    store: &Store,
    host: &Path,
    tree: Digest,
    to: &str,
    blobs: &mut Vec<BlobEntry>,
) -> Result<Result<Digest, String>, Failure> {
    let mut entries = Vec::new();
    let mut files = Vec::new();
    let mut bytes = 0;
    let found = walk(host, Path::new(""), &mut entries, &mut files, &mut bytes);
    match found {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Ok(Err(error.to_string())),
        Err(error) => return Ok(Err(format!("{} cannot be read: {error}", host.display()))),
    }
    for (at, path) in files {
        let read = fs::File::open(host.join(&path)).and_then(|mut file| {
            let mut writer = store.blob_writer();
            io::copy(&mut file, &mut writer)?;
            Ok(writer)
        });
        let Ok(writer) = read else { return Ok(Err(format!("{} cannot be read", path.display()))) };
        let blob = writer.finish()?;
        if let Some(Entry { what, .. }) = entries.get_mut::<usize>(at) {
            *what = What::File(blob.digest);
        }
        let what = format!("{} of the directory {to}", path.display());
        blobs.push(BlobEntry { len: blob.len, digest: blob.digest, what });
    }
    let now = tree_digest(host, &FileDigests::default()).map_err(unwritten)?;
    if now != tree {
        return Ok(Err(format!("{} is not what it was when the step ran", host.display())));
    }
    let text = json::compact(&entries);
    let listing = store.put(text.as_bytes())?;
    blobs.push(BlobEntry {
        len: listing.len,
        digest: listing.digest,
        what: format!("listing of the directory {to}"),
    });
    Ok(Ok(listing.digest))
}

fn walk(
    root: &Path,
    below: &Path,
    entries: &mut Vec<Entry>,
    files: &mut Vec<(usize, PathBuf)>,
    bytes: &mut u64,
) -> io::Result<()> {
    for entry in fs::read_dir(root.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        let kind = entry.file_type()?;
        let what = if kind.is_dir() {
            What::Directory
        } else if kind.is_symlink() {
            What::Link(fs::read_link(entry.path())?)
        } else if kind.is_file() {
            *bytes += entry.metadata()?.len();
            files.push((entries.len(), path.clone()));
            What::File(Digest::of(b""))
        } else {
            continue;
        };
        entries.push(Entry { path: path.clone(), what });
        if *bytes > MAX_BYTES || entries.len() > MAX_NAMES {
            let limit = format!("it has more than {} MiB or {MAX_NAMES} names", MAX_BYTES >> 20);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, limit));
        }
        if kind.is_dir() {
            walk(root, &path, entries, files, bytes)?;
        }
    }
    Ok(())
}

/// Directories of a bundle, laid out for the time of its verification.
#[derive(Default)]
pub(crate) struct Unpacked {
    by_tree: HashMap<Digest, PathBuf>,
    /// Removed with it.
    _root: Option<TempDir>,
}

impl Unpacked {
    /// Where the directory with this digest is.
    pub(crate) fn get(&self, tree: &Digest) -> Option<&Path> {
        self.by_tree.get(tree).map(PathBuf::as_path)
    }

    /// Lays out the directories that a bundle carries.
    pub(super) fn of_bundle(store: &Store, directories: &[Directory]) -> Result<Self, BundleError> {
        let mut unpacked = Self::default();
        for directory in directories {
            let Some(listing) = directory.listing.filter(|_| unpacked.get(&directory.tree).is_none()) else {
                continue;
            };
            let root = match &unpacked._root {
                Some(root) => root.path().to_owned(),
                None => {
                    let made = TempDir::new()
                        .map_err(|source| BundleError::Unreadable { path: std::env::temp_dir(), source })?;
                    unpacked._root.insert(made).path().to_owned()
                }
            };
            let at = root.join(directory.tree.to_string());
            let object = format!("the directory {} of step {}", directory.to, directory.step);
            unpack(store, &listing, &at).map_err(|error| damaged(&object, &error))?;
            if tree_digest(&at, &FileDigests::default()).ok() != Some(directory.tree) {
                return Err(damaged(&object, &"is not what the step read"));
            }
            unpacked.by_tree.insert(directory.tree, at);
        }
        Ok(unpacked)
    }
}

fn unpack(store: &Store, listing: &Digest, at: &Path) -> io::Result<()> {
    const MAX_LISTING: u64 = 64 << 20;
    let wrong = |what: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, what.to_string());
    let text = store.load(listing, MAX_LISTING).map_err(|error| wrong(&error))?;
    let entries: Vec<Entry> =
        json::parse_as(&String::from_utf8_lossy(&text)).map_err(|error| wrong(&error))?;
    fs::create_dir(at)?;
    // Links come last: nothing is written through one.
    let (links, rest): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| matches!(entry.what, What::Link(_)));
    for entry in rest.into_iter().chain(links) {
        if !entry.path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(wrong(&format!("names {}, which is outside", entry.path.display())));
        }
        let path = at.join(&entry.path);
        match entry.what {
            What::Directory => fs::create_dir(path)?,
            What::File(digest) => {
                let mut reader = store.open_blob(&digest).map_err(|error| wrong(&error))?;
                io::copy(&mut reader, &mut fs::File::create_new(path)?)?;
            }
            What::Link(to) => std::os::unix::fs::symlink(to, path)?,
        }
    }
    Ok(())
}
