use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::thread::sleep;

use super::*;

const LIMITS: TreeLimits = TreeLimits { files: 10_000, bytes: 1 << 30 };

struct Place {
    state: tempfile::TempDir,
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self { state: tempfile::tempdir().unwrap(), dir: tempfile::tempdir().unwrap() };
        for name in ["a", "sub/b", "sub/deep/c", "sub.d/e", "sub-d", ".hidden", "z/z"] {
            place.write(name, name);
        }
        place
    }

    fn root(&self) -> PathBuf {
        fs::canonicalize(self.dir.path()).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn list_with(
        &self,
        limits: TreeLimits,
        leaves_out: &(dyn Fn(&Path) -> bool + Sync),
    ) -> Result<Listing, TreeError> {
        TreeReader { kept_in: self.state.path(), keeps: true, limits, leaves_out }.list_root(&self.root())
    }

    fn list_root(&self) -> Listing {
        self.list_with(LIMITS, &|_| false).unwrap()
    }

    fn since(&self, before: &Listing) -> Vec<String> {
        let now = self.list_root();
        let reader =
            TreeReader { kept_in: self.state.path(), keeps: false, limits: LIMITS, leaves_out: &|_| false };
        reader.changes_since(&before.digest, &now).unwrap().named_changes()
    }
}

fn keeps_times(dir: &Path) -> bool {
    let dir = File::open(dir).unwrap();
    systems::keeps_times(dir.as_fd(), dir.as_fd())
}

/// Waits until the time of a file just written differs from that of its next version.
fn settle() {
    sleep(Duration::from_millis(40));
}

#[test]
fn every_change_is_named() {
    type Change = fn(&Place);
    let changes: &[(Change, &[&str])] = &[
        (|p| p.write("sub/b", "B"), &["sub/b (changed)"]),
        (|p| p.write("conftest.py", ""), &["conftest.py (new)"]),
        (|p| fs::remove_file(p.root().join("sub/b")).unwrap(), &["sub/b (gone)"]),
        (|p| fs::rename(p.root().join("a"), p.root().join("b")).unwrap(), &["a (gone)", "b (new)"]),
        (
            |p| {
                fs::remove_file(p.root().join("a")).unwrap();
                symlink("z/z", p.root().join("a")).unwrap();
            },
            &["a (changed)"],
        ),
        (
            |p| {
                let path = p.root().join("a");
                fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
            },
            &["a (changed)"],
        ),
        (
            |p| {
                fs::rename(p.root().join("sub"), p.root().join("old")).unwrap();
                fs::rename(p.root().join("z"), p.root().join("sub")).unwrap();
            },
            &[
                "old (new)",
                "old/b (new)",
                "old/deep (new)",
                "old/deep/c (new)",
                "sub/b (gone)",
                "sub/deep (gone)",
                "sub/deep/c (gone)",
                "sub/z (new)",
                "z (gone)",
                "z/z (gone)",
            ],
        ),
    ];
    for (change, expected) in changes {
        let place = Place::new();
        let before = place.list_root();
        assert_eq!((before.files, before.bytes), (7, 38));
        assert_eq!(place.list_root().digest, before.digest);
        change(&place);
        assert_eq!(place.since(&before), *expected);
    }
}

#[test]
fn owners_and_attributes_are_covered() {
    use rustix::fs::{XattrFlags, setxattr};
    let place = Place::new();
    settle();
    let mut before = place.list_root();
    for (path, named) in
        [("a", "a (changed)"), ("sub/deep", "sub/deep (changed)"), ("", "the root (changed)")]
    {
        for value in [b"one", b"two"] {
            let done = setxattr(place.root().join(path), "user.lobster", value, XattrFlags::empty());
            if done == Err(rustix::io::Errno::OPNOTSUPP) {
                return;
            }
            done.unwrap();
            assert_eq!(place.since(&before), [named]);
            before = place.list_root();
        }
    }
    if rustix::process::geteuid().is_root() {
        for (path, named) in [("a", "a (changed)"), ("sub", "sub (changed)")] {
            std::os::unix::fs::chown(place.root().join(path), Some(1), None).unwrap();
            assert_eq!(place.since(&before), [named]);
            before = place.list_root();
        }
    }
}

#[test]
fn a_write_that_hides_itself_is_found() {
    let place = Place::new();
    settle();
    let before = place.list_root();
    let path = place.root().join("sub/b");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    // The same size, and the time of modification reset.
    place.write("sub/b", "SUB/B");
    File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    assert_eq!(place.since(&before), ["sub/b (changed)"]);
    // By another name, from outside the tree.
    let before = place.list_root();
    let outside = tempfile::tempdir_in(place.state.path()).unwrap();
    fs::hard_link(&path, outside.path().join("x")).unwrap();
    fs::write(outside.path().join("x"), "Sub/b").unwrap();
    assert_eq!(place.since(&before), ["sub/b (changed)"]);
    // Another file with the same name, size and times.
    let before = place.list_root();
    fs::write(outside.path().join("y"), "suB/b").unwrap();
    fs::rename(outside.path().join("y"), &path).unwrap();
    assert_eq!(place.since(&before), ["sub/b (changed)"]);
}

#[test]
fn a_rewrite_within_the_same_instant_is_found() {
    let place = Place::new();
    let mut seen = BTreeMap::new();
    for round in 0..100 {
        place.write("a", &format!("{round:04}"));
        assert_eq!(seen.insert(place.list_root().digest, round), None);
    }
}

#[test]
fn what_has_not_changed_is_not_read_again() {
    let place = Place::new();
    settle();
    let before = place.list_root();
    // A listing with another digest for a settled file is trusted: the file was not read.
    let latest = place.state.path().join(latest_name(&place.root()));
    let text = fs::read(&latest).unwrap();
    let (was, other) = (Digest::of_bytes(b"sub/b").to_string(), Digest::of_bytes(b"remembered").to_string());
    let at = text.windows(64).position(|part| part == was.as_bytes()).unwrap();
    let changed = [&text[..at], other.as_bytes(), &text[at + 64..]].concat();
    fs::write(&latest, changed).unwrap();
    let proves = keeps_times(&place.root());
    assert_eq!(place.list_root().digest != before.digest, proves);
    // Half a listing is ignored.
    fs::write(&latest, &text[..text.len() / 2]).unwrap();
    assert_eq!(place.list_root().digest, before.digest);
}

/// An exchange of blocks, which keeps the times of a file, is found only by reading it.
#[test]
fn a_small_tree_is_read_even_if_no_time_changed() {
    let place = Place::new();
    settle();
    let before = place.list_root();
    let reader =
        TreeReader { kept_in: place.state.path(), keeps: true, limits: LIMITS, leaves_out: &|_| false };
    // The earlier listing has other bytes for a file with the same times.
    let latest = place.state.path().join(latest_name(&place.root()));
    let text = fs::read(&latest).unwrap();
    let (was, other) = (Digest::of_bytes(b"sub/b").to_string(), Digest::of_bytes(b"remembered").to_string());
    let at = text.windows(64).position(|part| part == was.as_bytes()).unwrap();
    fs::write(&latest, [&text[..at], other.as_bytes(), &text[at + 64..]].concat()).unwrap();
    let proves = keeps_times(&place.root());
    for small in [TreeLimits { files: 6, bytes: 38 }, TreeLimits { files: 7, bytes: 37 }] {
        let listing = reader.list_reading_small(&place.root(), &[], small).unwrap();
        assert_eq!(listing.digest != before.digest, proves);
    }
    let earlier = place.list_root();
    let small = TreeLimits { files: 7, bytes: 38 };
    let now = reader.list_reading_small(&place.root(), &[], small).unwrap();
    assert_eq!(now.digest, before.digest);
    // The end of a command is compared by bytes and times.
    let changes = earlier.changes_until(&now).unwrap().named_changes();
    assert_eq!(changes, if proves { vec!["sub/b (changed)"] } else { Vec::new() });
    // It is the latest listing now.
    assert_eq!(place.list_root().digest, before.digest);
}

#[test]
fn what_changes_and_is_put_back_meanwhile_is_found() {
    let place = Place::new();
    settle();
    let before = place.list_root();
    place.write("sub/b", "evil!");
    place.write("sub/b", "sub/b");
    place.write("z/conftest.py", "");
    fs::remove_file(place.root().join("z/conftest.py")).unwrap();
    let now = place.list_root();
    assert_eq!(now.digest, before.digest);
    let changes = before.changes_until(&now).unwrap();
    assert_eq!(changes.named_changes(), ["sub/b (written)", "z (entries came and went)"]);
}

#[test]
fn a_directory_that_is_set_apart_is_only_compared() {
    let place = Place::new();
    let list = |apart: &[&Path]| {
        let reader =
            TreeReader { kept_in: place.state.path(), keeps: true, limits: LIMITS, leaves_out: &|_| false };
        reader.list_setting_apart(&place.root(), apart).unwrap()
    };
    let changes = |before: &Listing, now: &Listing| before.changes_until(now).unwrap().named_changes();
    let (bare, path) = (list(&[]), Path::new("z/own"));
    fs::create_dir(place.root().join(path)).unwrap();
    settle();
    assert_ne!(list(&[]).digest, bare.digest);
    let before = list(&[path]);
    assert_eq!(before.digest, bare.digest);
    assert!(before.contains(Path::new("z/z")).unwrap() && !before.contains(path).unwrap());
    assert_eq!(changes(&before, &list(&[path])), [""; 0]);
    // The times of the directory around it show what comes and goes.
    place.write("z/evil", "");
    fs::remove_file(place.root().join("z/evil")).unwrap();
    let now = list(&[path]);
    assert_eq!(
        (now.digest, changes(&before, &now)),
        (bare.digest, vec!["z (entries came and went)".to_owned()])
    );
    // So do the times of the directory itself, and the digest covers its content.
    place.write("z/own/evil", "");
    assert_ne!(list(&[path]).digest, bare.digest);
    fs::remove_file(place.root().join("z/own/evil")).unwrap();
    assert_eq!(changes(&now, &list(&[path])), ["z/own (changed)"]);
    fs::remove_dir(place.root().join(path)).unwrap();
    let named = changes(&now, &list(&[path]));
    assert!(named.contains(&"z/own (changed)".to_owned()), "{named:?}");
}

/// On tmpfs, a write to mapped memory changes the bytes and no time.
#[cfg(target_os = "linux")]
#[test]
fn a_file_system_that_does_not_keep_times_is_named() {
    let place = Place::new();
    let proves = keeps_times(&place.root());
    assert_eq!(place.list_root().keeps_times, proves);
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    fs::write(memory.path().join("a"), "a").unwrap();
    let reader =
        TreeReader { kept_in: place.state.path(), keeps: true, limits: LIMITS, leaves_out: &|_| false };
    let before = reader.list_root(memory.path()).unwrap();
    assert!(!before.keeps_times);
    // A listing is not trusted there: the file is read again.
    let latest = place.state.path().join(latest_name(memory.path()));
    let text = fs::read(&latest).unwrap();
    let (was, other) = (Digest::of_bytes(b"a").to_string(), Digest::of_bytes(b"remembered").to_string());
    let at = text.windows(64).position(|part| part == was.as_bytes()).unwrap();
    fs::write(&latest, [&text[..at], other.as_bytes(), &text[at + 64..]].concat()).unwrap();
    assert_eq!(reader.list_root(memory.path()).unwrap().digest, before.digest);
}

#[test]
fn what_no_digest_covers_is_a_gap() {
    let place = Place::new();
    rustix::fs::mknodat(rustix::fs::CWD, place.root().join("pipe"), FileType::Fifo, 0o600.into(), 0).unwrap();
    let listing = place.list_root();
    assert_eq!(listing.gaps, ["pipe: it is a pipe, a socket or a device"]);
    // Excluded entries are not listed at all.
    let listing =
        place.list_with(LIMITS, &|path| path == Path::new("pipe") || path.starts_with("sub")).unwrap();
    assert_eq!((listing.gaps.len(), listing.files), (0, 5));
    let few = TreeLimits { files: 6, ..LIMITS };
    assert!(matches!(place.list_with(few, &|_| false), Err(TreeError::TooLarge { .. })));
    let small = TreeLimits { bytes: 20, ..LIMITS };
    assert!(matches!(place.list_with(small, &|_| false), Err(TreeError::TooLarge { .. })));
}

#[test]
fn a_file_is_listed_by_itself() {
    let place = Place::new();
    let reader =
        TreeReader { kept_in: place.state.path(), keeps: true, limits: LIMITS, leaves_out: &|_| false };
    let file = place.root().join("a");
    let before = reader.list_root(&file).unwrap();
    place.write("sub/b", "other");
    assert_eq!(reader.list_root(&file).unwrap().digest, before.digest);
    place.write("a", "other");
    assert_ne!(reader.list_root(&file).unwrap().digest, before.digest);
    assert!(reader.list_root(&place.root().join("none")).is_err());
}

/// Compares with a model: after any changes, the second listing names exactly the paths that differ.
#[test]
fn random_changes_are_named() {
    let mut seed = 7_u64;
    let mut below = |bound: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % bound
    };
    let names = ["a", "a/b", "a.b", "a-b", "b", "b/a/c", "é", "new\nline", "a b"];
    let place = Place { state: tempfile::tempdir().unwrap(), dir: tempfile::tempdir().unwrap() };
    let mut model: BTreeMap<String, String> = BTreeMap::new();
    for _ in 0..150 {
        let (before, was) = (place.list_root(), model.clone());
        for _ in 0..=below(3) {
            let name = names[below(names.len())];
            let path = place.root().join(name);
            let is_in = |other: &str| other == name || other.starts_with(&format!("{name}/"));
            let blocked = model.keys().any(|other| name.starts_with(&format!("{other}/")));
            if blocked {
                continue;
            }
            model.retain(|other, _| !is_in(other));
            if path.is_dir() {
                fs::remove_dir_all(&path).unwrap();
            } else {
                let _ = fs::remove_file(&path);
            }
            if below(3) > 0 {
                let text = below(1000).to_string();
                place.write(name, &text);
                model.insert(name.to_owned(), text);
            }
        }
        let now = place.list_root();
        let reader =
            TreeReader { kept_in: place.state.path(), keeps: false, limits: LIMITS, leaves_out: &|_| false };
        let differences = reader.changes_since(&before.digest, &now).unwrap();
        let lines = differences.named_changes();
        for name in was.keys().chain(model.keys()) {
            let is_named = lines.iter().any(|line| line.rsplit_once(" (").unwrap().0 == name);
            let differs = was.get(name) != model.get(name);
            // A directory may have replaced the file.
            assert!(
                is_named == differs || (is_named && place.root().join(name).is_dir()),
                "{name}: {lines:?}"
            );
        }
        assert_eq!(now.files, model.len() as u64);
    }
}
