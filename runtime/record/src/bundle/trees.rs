//! Granted directories in a bundle: a listing, and the contents as blobs, so that a step that read them can
//! be executed again on another machine.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, mkdirat, openat2, symlinkat};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::format::BlobEntry;
use super::read::{BundleError, damaged_error};
use super::write_failure;
use crate::recording::{Recording, parse_digest};
use lobster_base::digest::Digest;
use lobster_base::file_digests::FileDigests;
use lobster_base::json;
use lobster_engine::envelope::Failure;
use lobster_engine::kinds::component::tree_digest;
use lobster_store::Store;

/// Most bytes, and most names, of one directory that a bundle imports or exports.
const MAX_BYTES: u64 = 256 << 20;
const MAX_NAMES: usize = 50_000;

/// A directory that a step could read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directory {
    pub step: String,
    /// Path at which the step saw it.
    pub to: String,
    /// Digest of its names and contents.
    pub tree: Digest,
    /// Blob with its listing, if it is in the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listing: Option<Digest>,
    /// Reason why it is not in the bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Entry {
    path: PathBuf,
    what: What,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum What {
    Directory,
    File(Digest),
    Link(PathBuf),
}

/// The directories that the pure steps of a run could read. With `carry`, also the blobs with their contents,
/// if these are unchanged since the run.
pub(super) fn of_run(
    store: &Store,
    recording: &Recording,
    carry: bool,
) -> Result<(Vec<Directory>, Vec<BlobEntry>), Failure> {
    let (mut directories, mut blobs) = (Vec::new(), Vec::new());
    let mut known: HashMap<Digest, Result<Digest, String>> = HashMap::new();
    for (path, step) in recording.in_order() {
        let Some(action) = recording.read_preimage(store, path).filter(|_| step.kind == "component") else {
            continue;
        };
        let Some(outcome) = &step.outcome else { continue };
        for (index, grant) in action["grants"]["read"].as_array().into_iter().flatten().enumerate() {
            let (Some(to), Some(tree)) = (grant["to"].as_str(), parse_digest(&grant["tree"])) else {
                continue;
            };
            let named = outcome.enforcement["granted"]["read"][index].as_str().unwrap_or_default();
            let host = named.strip_suffix(&format!(" at {to}")).map(PathBuf::from);
            let packed = match (carry, host) {
                (false, _) => Err("it was not requested".to_owned()),
                (true, None) => Err("the record does not have its path".to_owned()),
                (true, Some(host)) => match known.get(&tree) {
                    Some(known) => known.clone(),
                    None => {
                        let packed = pack_directory(store, &host, tree, to, &mut blobs)?;
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

/// Stores and lists the files of a directory.
fn pack_directory(
    store: &Store,
    host: &Path,
    tree: Digest,
    to: &str,
    blobs: &mut Vec<BlobEntry>,
) -> Result<Result<Digest, String>, Failure> {
    let mut entries = Vec::new();
    let mut files = Vec::new();
    let mut bytes = 0;
    let found = walk_directory(host, Path::new(""), &mut entries, &mut files, &mut bytes);
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
    let now = tree_digest(host, &FileDigests::default()).map_err(write_failure)?;
    if now != tree {
        return Ok(Err(format!("{} has changed since the step ran", host.display())));
    }
    let text = json::compact(&entries);
    let listing = store.put_blob(text.as_bytes())?;
    blobs.push(BlobEntry {
        len: listing.len,
        digest: listing.digest,
        what: format!("listing of the directory {to}"),
    });
    Ok(Ok(listing.digest))
}

fn walk_directory(
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
            What::File(Digest::of_bytes(b""))
        } else {
            return Err(cannot_carry(&path, "is neither a file nor a directory nor a link"));
        };
        let target = if let What::Link(to) = &what { to.to_str() } else { Some("") };
        if path.to_str().is_none() || target.is_none() {
            return Err(cannot_carry(&path, "has a name that is not UTF-8"));
        }
        entries.push(Entry { path: path.clone(), what });
        if *bytes > MAX_BYTES || entries.len() > MAX_NAMES {
            return Err(too_large());
        }
        if kind.is_dir() {
            walk_directory(root, &path, entries, files, bytes)?;
        }
    }
    Ok(())
}

fn cannot_carry(path: &Path, why: &str) -> io::Error {
    io::Error::other(format!("{} {why}", path.display()))
}

/// Directories of a bundle, unpacked during its verification.
#[derive(Default)]
pub(crate) struct Unpacked {
    by_tree: HashMap<Digest, PathBuf>,
    /// Removes the directories when it is dropped.
    _root: Option<TempDir>,
}

impl Unpacked {
    /// Location of the directory with this digest.
    pub(crate) fn get(&self, tree: &Digest) -> Option<&Path> {
        self.by_tree.get(tree).map(PathBuf::as_path)
    }

    /// Unpacks the directories that a bundle contains.
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
            unpack(store, &listing, &at).map_err(|error| damaged_error(&object, &error))?;
            if tree_digest(&at, &FileDigests::default()).ok() != Some(directory.tree) {
                return Err(damaged_error(&object, &"is not what the step read"));
            }
            unpacked.by_tree.insert(directory.tree, at);
        }
        Ok(unpacked)
    }
}

/// Restricts the paths of a listing to the directory, without links.
const BENEATH: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

fn unpack(store: &Store, listing: &Digest, at: &Path) -> io::Result<()> {
    const MAX_LISTING: u64 = 64 << 20;
    let text = store.load_blob(listing, MAX_LISTING).map_err(|error| invalid_data(&error))?;
    let entries: Vec<Entry> =
        json::parse_as(&String::from_utf8_lossy(&text)).map_err(|error| invalid_data(&error))?;
    let entries = check_entries(store, entries)?;
    fs::create_dir(at)?;
    let top = fs::File::open(at)?;
    // A directory precedes its entries.
    for (path, what) in &entries {
        let (Some(name), above) = (path.file_name(), path.parent().unwrap_or(Path::new(""))) else {
            continue;
        };
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = openat2(&top, above, flags, Mode::empty(), BENEATH)?;
        match what {
            What::Directory => mkdirat(above, name, Mode::RWXU)?,
            What::File(digest) => {
                let mut reader = store.open_blob(digest).map_err(|error| invalid_data(&error))?;
                let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = openat2(above, name, new, Mode::RUSR | Mode::WUSR, BENEATH)?;
                io::copy(&mut reader, &mut fs::File::from(file))?;
            }
            What::Link(to) => symlinkat(to, above, name)?,
        }
    }
    Ok(())
}

/// The entries of a listing by their paths, if they form a directory and do not exceed the limits of a
/// bundle.
fn check_entries(store: &Store, entries: Vec<Entry>) -> io::Result<BTreeMap<PathBuf, What>> {
    let mut bytes = 0_u64;
    let mut checked = BTreeMap::new();
    if entries.len() > MAX_NAMES {
        return Err(too_large());
    }
    for Entry { path, what } in entries {
        let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_inside || path.file_name().is_none() {
            return Err(invalid_data(&format!("names {}, which is outside", path.display())));
        }
        if let What::File(digest) = &what {
            bytes = bytes
                .saturating_add(store.blob_len(digest).map_err(|error| invalid_data(&error))?.unwrap_or(0));
        }
        // Different spellings of a path become one.
        if checked.insert(path.components().collect(), what).is_some() {
            return Err(invalid_data(&format!("names {} twice", path.display())));
        }
    }
    if bytes > MAX_BYTES {
        return Err(too_large());
    }
    let is_directory = |path: &Path| matches!(checked.get(path), Some(What::Directory));
    let above =
        |path: &PathBuf| path.ancestors().skip(1).all(|up| up.as_os_str().is_empty() || is_directory(up));
    match checked.keys().find(|path| !above(path)) {
        Some(path) => Err(invalid_data(&format!("names {}, which is in no directory of it", path.display()))),
        None => Ok(checked),
    }
}

fn invalid_data(what: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_string())
}

fn too_large() -> io::Error {
    let limit = format!("it has more than {} MiB or {MAX_NAMES} names", MAX_BYTES >> 20);
    io::Error::new(io::ErrorKind::FileTooLarge, limit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn listed(store: &Store, entries: &[Entry]) -> Digest {
        store.put_blob(json::compact(&entries).as_bytes()).unwrap().digest
    }

    fn entry(path: &str, what: What) -> Entry {
        Entry { path: path.into(), what }
    }

    /// Everything below a directory: the paths, the text of files and the target of links.
    fn everything(dir: &Path) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        let mut pending = vec![dir.to_owned()];
        while let Some(at) = pending.pop() {
            for entry in fs::read_dir(&at).unwrap() {
                let path = entry.unwrap().path();
                let text = match fs::symlink_metadata(&path).unwrap().file_type() {
                    kind if kind.is_dir() => {
                        pending.push(path.clone());
                        "directory".to_owned()
                    }
                    kind if kind.is_symlink() => format!("-> {}", fs::read_link(&path).unwrap().display()),
                    _ => fs::read_to_string(&path).unwrap(),
                };
                found.insert(path, text);
            }
        }
        found
    }

    /// A few names, so that they collide: in any order, twice, inside one another, and in different
    /// spellings.
    fn place() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            8 => prop::sample::select(vec!["a", "b", "c"]),
            1 => prop::sample::select(vec!["..", ".", "", "outside"]),
        ];
        (prop::collection::vec(part, 1..4), 0..20).prop_map(|(parts, absolute)| {
            let path = parts.join("/");
            if absolute == 0 { format!("/{path}") } else { path }
        })
    }

    #[derive(Clone, Debug)]
    enum Kind {
        Directory,
        File,
        LinkOutside,
        Link(String),
    }

    fn kind() -> impl Strategy<Value = Kind> {
        prop_oneof![
            3 => Just(Kind::Directory),
            2 => Just(Kind::File),
            2 => Just(Kind::LinkOutside),
            2 => place().prop_map(Kind::Link),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn no_listing_changes_anything_outside(list in prop::collection::vec((place(), kind()), 0..7)) {
            let store = store();
            let blob = store.put_blob(b"content").unwrap().digest;
            let root = tempfile::tempdir().unwrap();
            let (outside, at) = (root.path().join("outside"), root.path().join("tree"));
            fs::create_dir_all(outside.join("a/b")).unwrap();
            fs::write(outside.join("a/c"), "theirs").unwrap();
            let before = everything(root.path());
            let entries: Vec<_> = list.iter().map(|(path, kind)| entry(path, match kind {
                Kind::Directory => What::Directory,
                Kind::File => What::File(blob),
                Kind::LinkOutside => What::Link(outside.clone()),
                Kind::Link(to) => What::Link(to.into()),
            })).collect();
            let unpacked = unpack(store, &listed(store, &entries), &at);
            let after = everything(root.path());
            let left: BTreeMap<_, _> = after.into_iter().filter(|(path, _)| !path.starts_with(&at)).collect();
            prop_assert_eq!(left, before);
            // A valid listing of a directory is unpacked completely.
            if unpacked.is_ok() {
                prop_assert_eq!(everything(&at).len(), entries.len());
            }
        }
    }

    /// One store for all cases, because each store has a database.
    fn store() -> &'static Store {
        static STORE: std::sync::OnceLock<Store> = std::sync::OnceLock::new();
        STORE.get_or_init(|| Store::in_memory().unwrap())
    }

    #[test]
    fn what_is_below_a_link_or_too_much_is_refused() {
        let store = store();
        let root = tempfile::tempdir().unwrap();
        let at = root.path().join("tree");
        let refused = |entries: &[Entry], why: &str| {
            let error = unpack(store, &listed(store, entries), &at).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
            assert!(!at.exists(), "{why}");
        };
        let link = || What::Link(root.path().to_owned());
        refused(&[entry("a", link()), entry("a/x", link())], "names a/x, which is in no directory");
        refused(&[entry("a", What::Directory), entry("a/", link())], "names a/ twice");
        let many: Vec<_> = (0..=MAX_NAMES).map(|n| entry(&n.to_string(), What::Directory)).collect();
        refused(&many, "50000 names");
        let big = vec![0; 9 << 20];
        let big = store.put_blob(&big).unwrap().digest;
        let heavy: Vec<_> = (0..29).map(|n| entry(&n.to_string(), What::File(big))).collect();
        refused(&heavy, "256 MiB");
        let sound = [entry("a/b", What::Link("..".into())), entry("a", What::Directory)];
        unpack(store, &listed(store, &sound), &at).unwrap();
        assert_eq!(fs::read_link(at.join("a/b")).unwrap(), Path::new(".."));
    }
}
