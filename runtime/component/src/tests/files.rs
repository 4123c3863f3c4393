use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use lobster_changes::CommitError;
use proptest::prelude::*;

use super::{fixture, load, run};
use crate::host::filesystem::{ErrorCode, Filesystem, FsError, Mount};
use crate::host::overlay::{Kind, Open, StageHost, Tree};
use crate::state::Stop;
use crate::{DirGrant, Grants, RunError, StagedWrites, WritesError, WrittenKind};

/// The stage of a run that has begun, for one directory.
pub(super) fn stage(dir: &Path, budget: u64, stop: Arc<Stop>) -> Arc<StageHost> {
    let stage = StageHost::new(std::env::temp_dir(), budget, stop);
    stage.record_beginning(std::iter::once(dir)).expect("begins");
    stage
}

pub(super) fn tree(dir: &Path) -> Tree {
    Tree::open(dir, true, stage(dir, 1 << 20, Stop::never())).expect("opens")
}

pub(super) fn code<T>(result: Result<T, FsError>) -> Option<ErrorCode> {
    match result {
        Ok(_) => None,
        Err(FsError::Code(code)) => Some(code),
        Err(FsError::Trap(error)) => panic!("{error}"),
    }
}

pub(super) const WRITE: Open = Open { write: true, create: false, exclusive: false, truncate: false };
pub(super) const CREATE: Open = Open { write: true, create: true, exclusive: false, truncate: false };
const READ: Open = Open { write: false, create: false, exclusive: false, truncate: false };

pub(super) fn put(tree: &mut Tree, path: &str, text: &str) {
    let opened = tree.open_file(path, Open { truncate: true, ..CREATE }).expect("opens");
    let writer = opened.writer.expect("is writable");
    assert_eq!(writer.write_at(&opened.file, text.as_bytes(), 0).ok(), Some(text.len()));
}

pub(super) fn get(tree: &mut Tree, path: &str) -> Option<String> {
    let opened = tree.open_file(path, READ).ok()?;
    let mut text = String::new();
    (&*opened.file).read_to_string(&mut text).ok()?;
    Some(text)
}

fn commit(tree: Tree) -> Vec<(String, WrittenKind)> {
    let mounts = vec![Mount { guest: "/w".to_owned(), tree }];
    let staged = StagedWrites::from_mounts(mounts).expect("collects");
    let written = staged.commit().expect("commits");
    written.into_iter().map(|w| (w.guest, w.what)).collect()
}

fn file(text: &str) -> WrittenKind {
    WrittenKind::File { digest: blake3::hash(text.as_bytes()), size: text.len() as u64 }
}

#[test]
fn paths_never_leave_the_directory() {
    let outer = tempfile::tempdir().expect("temporary directory");
    let root = outer.path().join("granted");
    fs::create_dir_all(root.join("sub/deep")).expect("creates");
    fs::write(outer.path().join("secret"), "s").expect("writes");
    fs::write(root.join("sub/file"), "f").expect("writes");
    symlink("/etc/passwd", root.join("absolute")).expect("links");
    symlink("../secret", root.join("up")).expect("links");
    symlink("sub", root.join("inside")).expect("links");
    symlink("loop", root.join("loop")).expect("links");
    symlink("../..", root.join("sub/out")).expect("links");
    let mut tree = tree(&root);
    for (path, expected) in [
        ("../secret", ErrorCode::NotPermitted),
        ("sub/../../secret", ErrorCode::NotPermitted),
        ("/etc/passwd", ErrorCode::NotPermitted),
        ("absolute", ErrorCode::NotPermitted),
        ("up", ErrorCode::NotPermitted),
        ("sub/out/secret", ErrorCode::NotPermitted),
        ("loop", ErrorCode::Loop),
        ("", ErrorCode::NoEntry),
        ("a\0b", ErrorCode::Invalid),
        ("sub/file/x", ErrorCode::NotDirectory),
        ("sub/file/", ErrorCode::NotDirectory),
        ("none/x", ErrorCode::NoEntry),
    ] {
        assert_eq!(code(tree.resolve_path("", path, true)), Some(expected), "{path}");
    }
    assert_eq!(tree.resolve_path("", "inside/./deep/../file", true).ok().as_deref(), Some("sub/file"));
    assert_eq!(tree.resolve_path("", "inside", false).ok().as_deref(), Some("inside"));
    // A handle of a subdirectory does not lead to its parent.
    assert_eq!(code(tree.resolve_path("sub", "..", true)), Some(ErrorCode::NotPermitted));
    assert_eq!(get(&mut tree, "sub/file").as_deref(), Some("f"));
    // A link that the program makes itself is resolved like any other.
    assert_eq!(code(tree.create_symlink("/etc/passwd", "mine", false)), Some(ErrorCode::NotPermitted));
    assert_eq!(code(tree.create_symlink("../secret", "mine", false)), None);
    assert_eq!(code(tree.resolve_path("", "mine", true)), Some(ErrorCode::NotPermitted));
}

#[test]
fn only_files_are_opened() {
    let dir = tempfile::tempdir().expect("temporary directory");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .expect("makes a pipe");
    let mut tree = tree(dir.path());
    assert_eq!(tree.path_info("pipe").ok().flatten().map(|info| info.kind), Some(Kind::Other));
    for how in [READ, WRITE] {
        assert_eq!(code(tree.open_file("pipe", how)), Some(ErrorCode::NotPermitted));
    }
    assert_eq!(code(tree.rename("pipe", "x")), Some(ErrorCode::NotPermitted));
}

#[test]
fn writes_are_private_until_committed() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let at = |path: &str| dir.path().join(path);
    fs::create_dir(at("old")).expect("creates");
    fs::write(at("old/a"), "a").expect("writes");
    fs::write(at("b"), "b").expect("writes");
    fs::set_permissions(at("b"), fs::Permissions::from_mode(0o750)).expect("chmod");
    fs::write(at("same"), "same").expect("writes");
    let mut tree = tree(dir.path());
    put(&mut tree, "b", "changed");
    put(&mut tree, "new", "new");
    assert_eq!(code(tree.open_file("same", WRITE)), None);
    assert_eq!(code(tree.remove_dir("old")), Some(ErrorCode::NotEmpty));
    assert_eq!(code(tree.remove_file("old/a")), None);
    assert_eq!(code(tree.remove_dir("old")), None);
    assert_eq!(code(tree.create_dir("dir")), None);
    put(&mut tree, "dir/x", "x");
    assert_eq!(code(tree.rename("dir", "moved")), None);
    assert_eq!(code(tree.create_symlink("moved/x", "link", false)), None);
    assert_eq!(get(&mut tree, "moved/x").as_deref(), Some("x"));
    assert_eq!(get(&mut tree, "dir/x"), None);
    let names: Vec<_> = tree.list_names("").expect("lists").into_keys().collect();
    assert_eq!(names, ["b", "link", "moved", "new", "same"]);
    // None of this is in the real directory.
    assert_eq!(fs::read_to_string(at("b")).ok().as_deref(), Some("b"));
    assert!(at("old/a").exists() && !at("new").exists() && !at("moved").exists());
    assert_eq!(
        commit(tree),
        [
            ("/w/b".to_owned(), file("changed")),
            ("/w/link".to_owned(), WrittenKind::Link { target: "moved/x".into() }),
            ("/w/moved".to_owned(), WrittenKind::Directory),
            ("/w/moved/x".to_owned(), file("x")),
            ("/w/new".to_owned(), file("new")),
            ("/w/old".to_owned(), WrittenKind::Removed),
            ("/w/old/a".to_owned(), WrittenKind::Removed),
        ]
    );
    assert_eq!(fs::read_to_string(at("b")).ok().as_deref(), Some("changed"));
    assert_eq!(fs::metadata(at("b")).map(|m| m.permissions().mode() & 0o777).ok(), Some(0o750));
    assert_eq!(fs::read_to_string(at("link")).ok().as_deref(), Some("x"));
    assert!(!at("old").exists());
    let left: Vec<_> = fs::read_dir(dir.path()).expect("lists").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), 5, "{left:?}");
}

#[test]
fn a_directory_made_anew_hides_what_was_there() {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::create_dir(dir.path().join("d")).expect("creates");
    fs::write(dir.path().join("d/old"), "old").expect("writes");
    let mut tree = tree(dir.path());
    assert_eq!(code(tree.remove_file("d/old")), None);
    assert_eq!(code(tree.remove_dir("d")), None);
    assert_eq!(code(tree.create_dir("d")), None);
    assert_eq!(tree.list_names("d").map(|l| l.len()).ok(), Some(0));
    put(&mut tree, "d/new", "new");
    assert_eq!(code(tree.rename("d", "e")), None);
    assert_eq!(get(&mut tree, "e/new").as_deref(), Some("new"));
    assert_eq!(code(tree.resolve_path("", "d/old", true)), Some(ErrorCode::NoEntry));
    commit(tree);
    assert!(!dir.path().join("d").exists());
    assert_eq!(fs::read_to_string(dir.path().join("e/new")).ok().as_deref(), Some("new"));
    assert!(!dir.path().join("e/old").exists());
}

#[test]
fn writes_are_bounded() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let stage = stage(dir.path(), 10, Stop::never());
    let mut tree = Tree::open(dir.path(), true, stage.clone()).expect("opens");
    let opened = tree.open_file("f", CREATE).expect("opens");
    let writer = opened.writer.expect("writable");
    assert_eq!(code(writer.write_at(&opened.file, b"0123456789", 0)), None);
    assert_eq!(code(writer.write_at(&opened.file, b"x", 10)), Some(ErrorCode::InsufficientSpace));
    assert_eq!(code(writer.set_len(&opened.file, 1 << 40)), Some(ErrorCode::InsufficientSpace));
    assert!(stage.exceeded.load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn read_grants_are_read_only() {
    let dir = tempfile::tempdir().expect("temporary directory");
    fs::write(dir.path().join("f"), "f").expect("writes");
    let stage = stage(dir.path(), 1 << 20, Stop::never());
    let mut tree = Tree::open(dir.path(), false, stage).expect("opens");
    let read_only = Some(ErrorCode::ReadOnly);
    assert_eq!(code(tree.open_file("f", WRITE)), read_only);
    assert_eq!(code(tree.open_file("g", CREATE)), read_only);
    assert_eq!(code(tree.create_dir("d")), read_only);
    assert_eq!(code(tree.remove_file("f")), read_only);
    assert_eq!(code(tree.rename("f", "g")), read_only);
    assert_eq!(code(tree.create_symlink("f", "l", false)), read_only);
    assert_eq!(get(&mut tree, "f").as_deref(), Some("f"));
    assert!(tree.changes.is_empty());
}

#[test]
fn grants_that_cannot_be_given_are_named() {
    let missing = DirGrant { host: "/nonexistent/dir".into(), guest: "/in".into() };
    let grants = Grants { read: vec![missing], ..Grants::default() };
    let stop = Stop::never();
    let start = std::time::UNIX_EPOCH;
    let opened = Filesystem::open(&grants, grants.open_dirs(), std::env::temp_dir(), 0, start, stop);
    let Err(RunError::BadGrant { grant, .. }) = opened else { panic!("is refused") };
    assert_eq!(grant, "read /nonexistent/dir");
}

/// Operations of a random program, checked against a model of plain names.
#[derive(Clone, Debug)]
enum Op {
    Put(String, String),
    MakeDir(String),
    Remove(String),
    RemoveDir(String),
    Rename(String, String),
    Link(String, String),
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "d", "d/x", "d/y", "e", "e/x", "e/f", "e/f/z", "l", "l/x", "m"])
        .prop_map(str::to_owned)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        (name(), "[a-z]{0,4}").prop_map(|(path, text)| Op::Put(path, text)),
        name().prop_map(Op::MakeDir),
        name().prop_map(Op::Remove),
        name().prop_map(Op::RemoveDir),
        (name(), name()).prop_map(|(from, to)| Op::Rename(from, to)),
        (name(), name()).prop_map(|(target, path)| Op::Link(target, path)),
    ]
}

fn seed_dir(root: &Path) {
    fs::create_dir_all(root.join("d")).expect("creates");
    fs::create_dir_all(root.join("e/f")).expect("creates");
    for path in ["a", "d/x", "e/f/z"] {
        fs::write(root.join(path), format!("old {path}")).expect("writes");
    }
    symlink("d", root.join("l")).expect("links");
    symlink("e/f/z", root.join("m")).expect("links");
}

/// Everything below `dir`: files with their text, directories without.
fn snapshot(dir: &Path, prefix: &str, into: &mut Vec<(String, Option<String>)>) {
    let mut entries: Vec<_> = fs::read_dir(dir).expect("lists").flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if let Ok(target) = fs::read_link(entry.path()) {
            into.push((name, Some(format!("-> {}", target.display()))));
        } else if entry.path().is_dir() {
            into.push((name.clone(), None));
            snapshot(&entry.path(), &format!("{name}/"), into);
        } else {
            into.push((name, fs::read_to_string(entry.path()).ok()));
        }
    }
}

fn all(dir: &Path) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    snapshot(dir, "", &mut found);
    found
}

proptest! {
    /// The overlay behaves like the operating system, and a commit makes the real directory equal to
    /// it.
    #[test]
    fn overlay_behaves_like_a_directory(ops in prop::collection::vec(op(), 0..24)) {
        let (real, model) = (tempfile::tempdir().expect("dir"), tempfile::tempdir().expect("dir"));
        seed_dir(real.path());
        seed_dir(model.path());
        let before = all(real.path());
        let mut tree = tree(real.path());
        let at = |path: &str| model.path().join(path);
        for op in &ops {
            match op {
                Op::Put(path, text) => {
                    let how = Open { truncate: true, ..CREATE };
                    let opened = tree.resolve_path("", path, true).and_then(|path| tree.open_file(&path, how));
                    if let Ok(opened) = &opened {
                        let writer = opened.writer.as_ref().expect("writable");
                        prop_assert!(writer.write_at(&opened.file, text.as_bytes(), 0).is_ok());
                    }
                    prop_assert_eq!(opened.is_ok(), fs::write(at(path), text).is_ok(), "{:?}", op);
                }
                Op::MakeDir(path) => {
                    let made = tree.resolve_path("", path, false).and_then(|path| tree.create_dir(&path));
                    prop_assert_eq!(made.is_ok(), fs::create_dir(at(path)).is_ok(), "{:?}", op);
                }
                Op::Remove(path) => {
                    let removed = tree.resolve_path("", path, false).and_then(|path| tree.remove_file(&path));
                    prop_assert_eq!(removed.is_ok(), fs::remove_file(at(path)).is_ok(), "{:?}", op);
                }
                Op::RemoveDir(path) => {
                    let removed = tree.resolve_path("", path, false).and_then(|path| tree.remove_dir(&path));
                    prop_assert_eq!(removed.is_ok(), fs::remove_dir(at(path)).is_ok(), "{:?}", op);
                }
                Op::Link(target, path) => {
                    let made = tree.resolve_path("", path, false).and_then(|path| tree.create_symlink(target, &path, false));
                    prop_assert_eq!(made.is_ok(), symlink(target, at(path)).is_ok(), "{:?}", op);
                }
                Op::Rename(from, to) => {
                    let renamed = tree.resolve_path("", from, false).and_then(|from| {
                        let to = tree.resolve_path("", to, false)?;
                        tree.rename(&from, &to)
                    });
                    // Directories that the program did not create are moved by copying.
                    if !matches!(renamed, Err(FsError::Code(ErrorCode::CrossDevice))) {
                        prop_assert_eq!(renamed.is_ok(), fs::rename(at(from), at(to)).is_ok(), "{:?}", op);
                    }
                }
            }
        }
        prop_assert_eq!(all(real.path()), before);
        commit(tree);
        prop_assert_eq!(all(real.path()), all(model.path()));
    }
}

/// Target of `path`, link by link; `None` if it is outside of `root`.
fn end_of_links(root: &Path, path: &Path) -> Option<PathBuf> {
    let (mut at, mut left) = (PathBuf::new(), vec![path.to_owned()]);
    for _ in 0..100 {
        let Some(next) = left.pop() else { return Some(at) };
        let mut parts = next.components();
        match parts.next() {
            None => continue,
            Some(Component::ParentDir) => {
                if !at.pop() {
                    return None;
                }
            }
            Some(Component::Normal(name)) => at.push(name),
            Some(Component::CurDir) => {}
            Some(Component::RootDir | Component::Prefix(_)) => return None,
        }
        left.push(parts.as_path().to_owned());
        if let Ok(target) = fs::read_link(root.join(&at)) {
            at.pop();
            left.push(target);
        }
    }
    Some(at) // a loop leads nowhere
}

proptest! {
    /// A hostile program changes a tree, run after run. No committed link leads out of the tree or into
    /// `.git`. `PROPTEST_CASES` sets the number of trees.
    #[test]
    fn no_committed_link_leads_away(
        runs in prop::collection::vec(prop::collection::vec(
            prop_oneof![
                4 => (
                    prop::sample::select(vec![
                        "..", "../a", "../../a", "../../../a", "d/..", "d/../../a", "l/../..", ".", "./..", "a", "e/f", "l/x",
                        "../.git", ".git/config", "../.GIT/config", "../e/../../a", "f/../../..", "m/..", "../d/x",
                    ]).prop_map(str::to_owned),
                    name(),
                ).prop_map(|(target, path)| Op::Link(target, path)),
                4 => op(),
            ],
            1..6,
        ), 1..6),
    ) {
        let real = tempfile::tempdir().expect("dir");
        seed_dir(real.path());
        fs::create_dir(real.path().join(".git")).expect("creates");
        for ops in &runs {
            let mut tree = tree(real.path());
            for op in ops {
                // A forbidden operation fails, and the program continues.
                let _ = match op {
                    Op::Put(path, _) | Op::MakeDir(path) => {
                        tree.resolve_path("", path, false).and_then(|path| tree.create_dir(&path))
                    }
                    Op::Remove(path) => tree.resolve_path("", path, false).and_then(|path| tree.remove_file(&path)),
                    Op::RemoveDir(path) => tree.resolve_path("", path, false).and_then(|path| tree.remove_dir(&path)),
                    Op::Link(target, path) => {
                        tree.resolve_path("", path, false).and_then(|path| tree.create_symlink(target, &path, false))
                    }
                    Op::Rename(from, to) => tree.resolve_path("", from, false).and_then(|from| {
                        let to = tree.resolve_path("", to, false)?;
                        tree.rename(&from, &to)
                    }),
                };
            }
            let mounts = vec![Mount { guest: "/w".to_owned(), tree }];
            let committed = StagedWrites::from_mounts(mounts).expect("collects").commit();
            let is_fine = matches!(committed, Ok(_) | Err(WritesError::Commit(CommitError::Link(_))));
            prop_assert!(is_fine, "{:?}", committed.err());
            for (path, what) in all(real.path()) {
                if what.is_some_and(|what| what.starts_with("-> ")) {
                    let end = end_of_links(real.path(), Path::new(&path));
                    prop_assert!(end.as_ref().is_some_and(|end| !end.starts_with(".git")), "{path}: {end:?}");
                }
            }
        }
    }
}

#[test]
fn a_link_that_leads_away_is_refused_with_its_path() {
    let outer = tempfile::tempdir().expect("temporary directory");
    let root = outer.path().join("out");
    fs::create_dir(&root).expect("creates");
    symlink("../kept", root.join("old")).expect("links");
    for (path, target, why) in [
        ("result.txt", "../.git/config", Some("out of the granted directory")),
        ("x", ".git/config", Some("into `.git`")),
        ("old", "../kept", None),
        ("x", "result.txt", None),
    ] {
        let mut tree = tree(&root);
        let _ = tree.remove_file(path);
        assert_eq!(code(tree.create_symlink(target, path, false)), None);
        let staged =
            StagedWrites::from_mounts(vec![Mount { guest: "/w".to_owned(), tree }]).expect("collects");
        let said = staged.commit().err().map(|error| error.to_string());
        let link = root.join(path);
        let wanted =
            why.map(|why| format!("the step left a link that leads {why}: {} -> {target}", link.display()));
        assert_eq!(said, wanted);
    }
}

/// Opens `path` (at 2048) below the first preopen, and writes `text` (at 2560) to it or reads it.
/// Prints the text that it read, or "E" and the error number.
fn opener(path: &str, create: bool, text: &str) -> Vec<u8> {
    let fields = format!(
        r#"(data (i32.const 2048) "{path}") (data (i32.const 2560) "{text}") (data (i32.const 2559) "E")"#
    );
    let (flags, rights) = if create { (9, 0x40) } else { (0, 0x2) };
    let act = if create {
        format!("(call $put (local.get $fd) (i32.const 2560) (i32.const {}))", text.len())
    } else {
        "(i32.store (i32.const 16) (i32.const 4096)) (i32.store (i32.const 20) (i32.const 4096))
         (drop (call $fd_read (local.get $fd) (i32.const 16) (i32.const 1) (i32.const 24)))
         (call $put (i32.const 1) (i32.const 4096) (i32.load (i32.const 24)))"
            .to_owned()
    };
    let start = format!(
        "(local.set $n (call $path_open (i32.const 3) (i32.const 1) (i32.const 2048) (i32.const {})
            (i32.const {flags}) (i64.const {rights}) (i64.const 0) (i32.const 0) (i32.const 32)))
         (if (local.get $n) (then
            (i32.store8 (i32.const 2558) (local.get $n))
            (call $put (i32.const 1) (i32.const 2559) (i32.const 1))
            (call $exit (local.get $n))))
         (local.set $fd (i32.load (i32.const 32)))
         {act}",
        path.len(),
    );
    fixture::command(&fields, &start)
}

#[test]
fn a_program_reads_what_is_granted_and_nothing_else() {
    let outer = tempfile::tempdir().expect("temporary directory");
    let root = outer.path().join("granted");
    fs::create_dir(&root).expect("creates");
    fs::write(root.join("file"), "inside").expect("writes");
    fs::write(outer.path().join("secret"), "outside").expect("writes");
    symlink("../secret", root.join("link")).expect("links");
    let grants = Grants { read: vec![DirGrant { host: root, guest: "/in".into() }], ..Grants::default() };
    let read = |path: &str, grants: &Grants| {
        let ran = run(&load(&opener(path, false, "")), "", |i| i.grants = grants.clone());
        let code = ran.outcome().exit_code;
        (ran.output, code)
    };
    assert_eq!(read("file", &grants), ("inside".into(), 0));
    // Error numbers of preview 1: 63 is EPERM, 44 ENOENT, 8 EBADF.
    for escape in ["../secret", "link", "/etc/passwd", "/proc/self/environ", "./../granted/../secret"] {
        let (output, code) = read(escape, &grants);
        assert_eq!((output.as_str(), code), ("E", 63), "{escape}");
    }
    assert_eq!(read("none", &grants), ("E".into(), 44));
    assert_eq!(read("file", &Grants::default()), ("E".into(), 8));
    let ran = run(&load(&opener("file", true, "x")), "", |i| i.grants = grants);
    assert_eq!((ran.outcome().exit_code, ran.outcome().writes.written_entries().len()), (69, 0));
}

#[test]
fn a_program_writes_into_its_layer() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let writer = load(&opener("new", true, "text"));
    let grant = DirGrant { host: dir.path().to_owned(), guest: "/out".into() };
    let write = || run(&writer, "", |i| i.grants.write = vec![grant.clone()]);
    let discarded = write();
    assert_eq!(discarded.outcome().writes.written_entries().len(), 1);
    drop(discarded);
    assert!(!dir.path().join("new").exists());
    let Ok(outcome) = write().result else { panic!("runs") };
    let written = outcome.writes.commit().expect("commits");
    assert_eq!((written[0].guest.as_str(), &written[0].what), ("/out/new", &file("text")));
    assert_eq!(fs::read_to_string(dir.path().join("new")).ok().as_deref(), Some("text"));
    // Over the limit, nothing is left to commit.
    let ran = run(&writer, "", |i| {
        i.grants.write = vec![grant.clone()];
        i.limits.files = 3;
    });
    assert_eq!(ran.name(), "files-limit");
}
