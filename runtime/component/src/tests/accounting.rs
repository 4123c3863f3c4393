//! The host resources of a run's files are counted and bounded, and the run ends in time: in host
//! calls, in reading its writes, and in committing them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use super::files::{CREATE, WRITE, code, get, put, stage, tree};
use crate::host::filesystem::{ErrorCode, Filesystem, Mount};
use crate::host::overlay::{Open, Tree};
use crate::host::stage::MAX_NAMES;
use crate::state::Stop;
use crate::{DirGrant, Grants, Limits, RunError, StagedWrites};

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("temporary directory")
}

fn collect(tree: Tree) -> Result<StagedWrites, RunError> {
    StagedWrites::from_mounts(vec![Mount { guest: "/w".to_owned(), tree }])
}

#[test]
fn a_hole_counts_as_much_as_what_fills_it() {
    let dir = dir();
    let stage = stage(dir.path(), 1 << 30, Stop::never());
    let mut tree = Tree::open(dir.path(), true, stage.clone()).expect("opens");
    let opened = tree.open_file("f", CREATE).expect("opens");
    let writer = opened.writer.expect("writable");
    let full = Some(ErrorCode::InsufficientSpace);
    assert_eq!(code(writer.write_at(&opened.file, b"x", 6 << 30)), full);
    assert_eq!(code(writer.write_at(&opened.file, b"x", u64::MAX)), Some(ErrorCode::FileTooLarge));
    assert_eq!(opened.file.metadata().map(|meta| meta.len()).ok(), Some(0));
    assert_eq!(code(writer.write_at(&opened.file, b"x", (1 << 30) - 2)), None);
    // Overwriting existing bytes costs nothing more.
    for _ in 0..100 {
        assert_eq!(code(writer.write_at(&opened.file, &[1; 4096], 0)), None);
    }
    assert_eq!(code(writer.write_at(&opened.file, b"xyz", (1 << 30) - 1)), full);
}

#[test]
fn holes_stay_holes() {
    let dir = dir();
    let lower = fs::File::create(dir.path().join("lower")).expect("creates");
    lower.set_len(256 << 20).expect("grows");
    std::os::unix::fs::FileExt::write_at(&lower, b"end", (256 << 20) - 3).expect("writes");
    let stage = stage(dir.path(), 1 << 30, Stop::never());
    let mut tree = Tree::open(dir.path(), true, stage).expect("opens");
    let opened = tree.open_file("new", CREATE).expect("opens");
    opened.writer.expect("writable").write_at(&opened.file, b"end", 200 << 20).expect("writes");
    let opened = tree.open_file("lower", WRITE).expect("opens");
    opened.writer.expect("writable").write_at(&opened.file, b"begin", 0).expect("writes");
    let staged = collect(tree).expect("collects");
    let expected: Vec<_> =
        ["lower", "new"].map(|name| staged.written_entries().iter().any(|w| w.guest.ends_with(name))).into();
    assert_eq!(expected, [true, true]);
    staged.commit().expect("commits");
    for (name, len, begin) in [("lower", 256 << 20, &b"begin"[..]), ("new", (200 << 20) + 3, &b"\0\0"[..])] {
        let bytes = fs::read(dir.path().join(name)).expect("reads");
        assert!(bytes.len() == len && bytes.starts_with(begin) && bytes.ends_with(b"end"), "{name}");
        let meta = fs::metadata(dir.path().join(name)).expect("is there");
        assert!(meta.blocks() * 512 < 8 << 20, "{name} takes {} blocks", meta.blocks());
    }
}

#[test]
fn names_are_bounded_in_length_depth_and_sum() {
    let dir = dir();
    let mut tree = tree(dir.path());
    let long = "n".repeat(256);
    let too_long = Some(ErrorCode::NameTooLong);
    assert_eq!(code(tree.resolve_path("", &long, true)), too_long);
    assert_eq!(code(tree.resolve_path("", &long[1..], true)), None);
    // A chain of directories, each made below the one before.
    let mut at = String::new();
    let mut depth = 0;
    let refused = loop {
        match tree.resolve_path(&at, &long[..250], true) {
            Ok(path) => {
                assert_eq!(code(tree.create_dir(&path)), None);
                at = path;
                depth += 1;
            }
            Err(error) => break code::<()>(Err(error)),
        }
    };
    assert_eq!((refused, depth), (too_long, 16));
    let mut at = String::new();
    let depth = (0..).take_while(|_| match tree.resolve_path(&at, "d", true) {
        Ok(path) => {
            at = path;
            tree.create_dir(&at).is_ok()
        }
        Err(_) => false,
    });
    assert_eq!(depth.count(), 256);
    // A directory within the limit must not be moved to a path beyond it.
    assert_eq!(code(tree.create_dir("e")), None);
    assert_eq!(code(tree.create_dir("e/f")), None);
    assert_eq!(code(tree.rename("d", "e/f/d")), too_long);
    // Names and link targets together.
    let target = "t".repeat(4000);
    let made =
        (0..100_000).take_while(|n| tree.create_symlink(&target, &format!("link{n}"), false).is_ok()).count();
    assert!((10_000..17_000).contains(&made), "{made}");
    assert!((made as u64 + 1) * 4100 > MAX_NAMES - (1 << 20), "{made}");
    // Removing a name frees its room.
    for n in 0..100 {
        assert_eq!(code(tree.remove_file(&format!("link{n}"))), None);
    }
    assert_eq!(code(tree.create_symlink(&target, "again", false)), None);
}

#[test]
fn listings_that_are_held_are_bounded() {
    let dir = dir();
    for n in 0..2000 {
        fs::write(dir.path().join(format!("{n:0>200}")), "").expect("writes");
    }
    let grant = DirGrant { host: dir.path().to_owned(), guest: "/in".into() };
    let staging = std::env::temp_dir();
    let start = SystemTime::UNIX_EPOCH;
    let grants = Grants { read: vec![grant], ..Grants::default() };
    let mut files =
        Filesystem::open(&grants, grants.open_dirs(), staging, 0, start, Stop::never()).expect("opens");
    let root = files.root_place(0);
    let held: Vec<_> = std::iter::from_fn(|| files.list_charged(&root).ok()).take(10_000).collect();
    assert!((50..300).contains(&held.len()), "{}", held.len());
    drop(held);
    assert!(files.list_charged(&root).is_ok());
}

#[test]
fn with_a_clock_what_is_written_is_new() {
    let dir = dir();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800);
    for name in ["lower", "other"] {
        fs::write(dir.path().join(name), "old").expect("writes");
        let file = fs::File::options().write(true).open(dir.path().join(name)).expect("opens");
        file.set_modified(old).expect("sets");
    }
    let mut tree = tree(dir.path());
    let begun = SystemTime::now() - Duration::from_secs(1);
    let shown = |tree: &Tree, name: &str| {
        let info = tree.path_info(name).ok().flatten();
        info.and_then(|info| info.modified).expect("has a time")
    };
    assert_eq!(shown(&tree, "lower"), old);
    put(&mut tree, "new", "new");
    assert!(shown(&tree, "new") >= begun);
    // Opened for writing, but not written to.
    tree.open_file("lower", WRITE).expect("opens");
    assert_eq!(shown(&tree, "lower"), old);
    put(&mut tree, "lower", "newer");
    assert!(shown(&tree, "lower") >= begun);
    tree.create_dir("d").expect("makes");
    tree.create_symlink("new", "link", false).expect("links");
    assert!(shown(&tree, "d") >= begun && shown(&tree, "link") >= begun);
    for name in ["new", "link"] {
        tree.set_modified(name, old).expect("sets");
        assert_eq!(shown(&tree, name), old);
    }
    tree.set_modified("lower", old).expect("sets");
    put(&mut tree, "lower", "newest");
    assert!(shown(&tree, "lower") >= begun);
    assert_eq!(get(&mut tree, "lower").as_deref(), Some("newest"));
    collect(tree).expect("collects").commit().expect("commits");
    let modified = |name: &str| {
        let meta = fs::symlink_metadata(dir.path().join(name)).expect("is there");
        meta.modified().expect("has a time")
    };
    assert_eq!([modified("new"), modified("link"), modified("other")], [old; 3]);
    assert!(modified("lower") >= begun);
}

/// A commit that is stopped at any check leaves everything unchanged.
#[test]
fn a_commit_that_is_stopped_leaves_nothing() {
    let contents = |dir: &std::path::Path| -> Vec<(String, Option<String>)> {
        let mut found: Vec<_> = fs::read_dir(dir)
            .expect("lists")
            .flatten()
            .map(|e| (e.file_name().to_string_lossy().into_owned(), fs::read_to_string(e.path()).ok()))
            .collect();
        found.sort();
        found
    };
    let some = |name: &str, text: &str| (name.to_owned(), Some(text.to_owned()));
    let before = vec![some("a", "old a"), some("b", "old b"), ("d".to_owned(), None)];
    let after = vec![some("a", "new a"), some("c", "new c"), ("d".to_owned(), None), some("l", "new a")];
    let mut stopped = [0, 0];
    for looks in 0.. {
        let dir = dir();
        fs::write(dir.path().join("a"), "old a").expect("writes");
        fs::write(dir.path().join("b"), "old b").expect("writes");
        fs::create_dir(dir.path().join("d")).expect("makes");
        let left = Arc::new(AtomicU64::new(u64::MAX));
        let seen = left.clone();
        let cancel = Arc::new(move || {
            let left = seen.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
            left.is_err().then(|| "enough".to_owned())
        });
        let stop = Arc::new(Stop { deadline: None, limits: Limits::default(), cancel });
        let stage = stage(dir.path(), 1 << 20, stop);
        let mut tree = Tree::open(dir.path(), true, stage).expect("opens");
        put(&mut tree, "a", "new a");
        put(&mut tree, "c", "new c");
        put(&mut tree, "d/f", "deep");
        tree.create_symlink("a", "l", false).expect("links");
        tree.remove_file("b").expect("removes");
        left.store(looks, Ordering::Relaxed);
        match collect(tree) {
            Err(error) => {
                assert_eq!(error.name(), "cancelled");
                stopped[0] += 1;
            }
            Ok(staged) => match staged.commit() {
                Ok(_) => {
                    assert_eq!(contents(dir.path()), after);
                    assert_eq!(contents(&dir.path().join("d")), [some("f", "deep")]);
                    break;
                }
                Err(error) => {
                    let crate::WritesError::Stopped(reason) = error else { panic!("{error}") };
                    assert_eq!(reason.name(), "cancelled");
                    stopped[1] += 1;
                }
            },
        }
        assert_eq!(contents(dir.path()), before, "after {looks} looks");
        assert!(contents(&dir.path().join("d")).is_empty());
    }
    assert!(stopped.iter().all(|n| *n > 3), "{stopped:?}");
}

#[test]
fn what_is_opened_only_to_be_emptied_is_not_copied() {
    let dir = dir();
    fs::File::create(dir.path().join("huge")).and_then(|file| file.set_len(1 << 40)).expect("creates");
    let mut tree = tree(dir.path());
    assert_eq!(code(tree.open_file("huge", WRITE)), Some(ErrorCode::InsufficientSpace));
    assert_eq!(code(tree.open_file("huge", Open { truncate: true, ..WRITE })), None);
}
