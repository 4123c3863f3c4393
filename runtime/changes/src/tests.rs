//! Commits on a real file system.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;

use crate::commit::commit_in;
use crate::commit_log::{Journal, Log, LogFile, Phase};
use crate::{
    ByteText, Change, ChangeSet, CommitError, Content, Contents, Entry, LinkRule, RelPath, RootChanges,
    Terms, commit_changes, recover_commits, recover_for,
};

#[derive(Default)]
pub(crate) struct Memory(pub(crate) RefCell<BTreeMap<Digest, Vec<u8>>>);

impl Memory {
    pub(crate) fn file(&self, text: &str, mode: u32) -> Entry {
        let digest = Digest::of_bytes(text.as_bytes());
        self.0.borrow_mut().insert(digest, text.into());
        Entry::File { digest, size: text.len() as u64, mode, modified: None, same_as: None, acl: None }
    }
}

impl Contents for Memory {
    fn open_content(&self, digest: &Digest) -> io::Result<Content<'_>> {
        let bytes = self.0.borrow().get(digest).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(Content::Bytes(Box::new(io::Cursor::new(bytes))))
    }
}

pub(crate) fn set(root: &Path, changes: Vec<(&str, Option<Entry>, Option<Entry>)>) -> ChangeSet {
    let root = root.canonicalize().unwrap();
    let shared = |path: &str| {
        let found = fs::symlink_metadata(root.join(path)).ok().filter(|found| found.is_file());
        found.filter(|found| found.nlink() > 1).map(|found| found.ino())
    };
    let changes = changes.into_iter().map(|(path, before, after)| Change {
        path: RelPath::new(path).unwrap(),
        before,
        after,
        shared: shared(path),
    });
    let changes: Vec<Change> = changes.collect();
    let root: ByteText = std::os::unix::ffi::OsStringExt::into_vec(root.into_os_string()).into();
    ChangeSet::new(vec![RootChanges { root, changes }])
}

/// Location of a bench.
enum Place {
    Own(tempfile::TempDir),
    Kept(std::path::PathBuf),
}

impl Place {
    fn path(&self) -> &Path {
        match self {
            Self::Own(dir) => dir.path(),
            Self::Kept(dir) => dir,
        }
    }
}

pub(crate) struct Bench {
    dir: Place,
    pub(crate) memory: Memory,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tree")).unwrap();
        Self { dir: Place::Own(dir), memory: Memory::default() }
    }

    /// In an existing directory, which is kept.
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: Place::Kept(dir.to_owned()), memory: Memory::default() }
    }

    pub(crate) fn tree(&self) -> std::path::PathBuf {
        self.dir.path().join("tree")
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        let path = self.tree().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
    }

    pub(crate) fn commit(&self, set: &ChangeSet) -> Result<(), CommitError> {
        self.commit_as("test", set, &self.memory, None)
    }

    pub(crate) fn commit_as(
        &self,
        id: &str,
        set: &ChangeSet,
        contents: &dyn Contents,
        links: Option<&LinkRule>,
    ) -> Result<(), CommitError> {
        let (journals, cancel) = (&self.dir.path().join("journals"), &CancelToken::new());
        commit_changes(set, contents, &Terms { journals, id, links, cancel, tell: &|_| Ok(()) })
    }

    fn left(&self) -> Vec<String> {
        let names = fs::read_dir(self.tree()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[test]
fn a_commit_and_its_inverse_lead_there_and_back() {
    let bench = Bench::new();
    bench.put("a", "old");
    bench.put("gone/f", "x");
    symlink("a", bench.tree().join("l")).unwrap();
    let dir_mode = fs::metadata(bench.tree().join("gone")).unwrap().mode() & 0o7777;
    let (old, new) = (bench.memory.file("old", 0o644), bench.memory.file("new", 0o755));
    let x = bench.memory.file("x", 0o644);
    let link = |target: &[u8]| Entry::Link { target: target.to_vec().into(), modified: None };
    let set = set(
        &bench.tree(),
        vec![
            ("a", Some(old), Some(new.clone())),
            ("gone", Some(Entry::Directory { mode: dir_mode, acl: None }), None),
            ("gone/f", Some(x), None),
            ("l", Some(link(b"a")), Some(link(b"\xff"))),
            ("made", None, Some(Entry::Directory { mode: 0o750, acl: None })),
            ("made/it", None, Some(new)),
        ],
    );
    bench.commit(&set).unwrap();
    assert_eq!(bench.left(), ["a", "l", "made"]);
    assert_eq!(fs::read(bench.tree().join("made/it")).unwrap(), b"new");
    assert_eq!(fs::metadata(bench.tree().join("a")).unwrap().mode() & 0o777, 0o755);
    assert_eq!(fs::metadata(bench.tree().join("made")).unwrap().mode() & 0o777, 0o750);
    let text = serde_json::to_string(&set).unwrap();
    assert_eq!(serde_json::from_str::<ChangeSet>(&text).unwrap(), set);
    bench.commit(&set.inverse()).unwrap();
    assert_eq!(bench.left(), ["a", "gone", "l"]);
    assert_eq!(fs::read(bench.tree().join("a")).unwrap(), b"old");
    assert_eq!(fs::read_link(bench.tree().join("l")).unwrap(), Path::new("a"));
    assert_eq!(recover_commits(&bench.dir.path().join("journals"), &|_| Ok(())).unwrap(), []);
}

/// The process ends when the journal enters *applying*.
struct Dies(LogFile);

impl Log for Dies {
    fn write_journal(&self, journal: &Journal) -> io::Result<()> {
        let ends = io::Error::other("the process has ended");
        match journal.phase {
            Phase::Preparing => self.0.write_journal(journal),
            Phase::Applying => self.0.write_journal(journal).and(Err(ends)),
            Phase::Reverting | Phase::Cleaning => Err(ends),
        }
    }

    fn remove_journal(&self) -> io::Result<()> {
        Err(io::Error::other("the process has ended"))
    }
}

#[test]
fn a_commit_whose_workbench_or_tree_is_gone_is_never_told_as_done_and_holds_up_only_its_own_tree() {
    let [bench, other] = [Bench::new(), Bench::new()];
    let (old, new) = (bench.memory.file("old", 0o644), bench.memory.file("new", 0o644));
    let journals = bench.dir.path().join("journals");
    let changes = |bench: &Bench| {
        bench.put("a", "old");
        set(&bench.tree(), vec![("a", Some(old.clone()), Some(new.clone())), ("b", None, Some(new.clone()))])
    };
    let of_tree = changes(&bench);
    let of_other = changes(&other);
    let crash = || {
        fs::create_dir_all(&journals).unwrap();
        let files = crate::disk::Disk::open(&of_tree).unwrap();
        let log = Dies(LogFile::new(&journals, "test"));
        commit_in(&files, &log, "test", &of_tree, &bench.memory).unwrap_err();
    };
    crash();
    let (workbench, away) = (bench.tree().join(".lobster-test"), bench.dir.path().join("away"));
    fs::rename(&workbench, &away).unwrap();
    let unfinished = recover_commits(&journals, &|_| Ok(())).unwrap_err();
    let message = unfinished.to_string();
    assert!(matches!(unfinished, CommitError::Unfinished { .. }), "{message}");
    for part in ["restore that directory", ".lobster-test", "test.commit"] {
        assert!(message.contains(part), "{message}");
    }
    recover_for(&journals, &of_tree, &|_| Ok(())).unwrap_err();
    assert_eq!(recover_for(&journals, &of_other, &|_| Ok(())).unwrap(), []);
    bench.commit_as("other", &of_other, &bench.memory, None).unwrap();
    assert_eq!((bench.left(), other.left()), (vec!["a".to_owned()], vec!["a".to_owned(), "b".to_owned()]));
    fs::rename(&away, &workbench).unwrap();
    assert!(recover_commits(&journals, &|_| Ok(())).unwrap()[0].committed);
    assert_eq!(bench.left(), ["a", "b"]);
    assert_eq!(fs::read(bench.tree().join("a")).unwrap(), b"new");
    bench.commit(&of_tree.inverse()).unwrap();
    crash();
    fs::rename(bench.tree(), &away).unwrap();
    assert!(recover_commits(&journals, &|_| Ok(())).unwrap_err().to_string().contains("cannot open"));
    assert_eq!(recover_for(&journals, &of_other, &|_| Ok(())).unwrap(), []);
    fs::remove_file(journals.join("test.commit")).unwrap();
    assert_eq!(recover_commits(&journals, &|_| Ok(())).unwrap(), []);
}

#[test]
fn a_journal_that_cannot_be_read_or_is_gone_hinders_no_other_commit() {
    let bench = Bench::new();
    bench.put("a", "old");
    let journals = bench.dir.path().join("journals");
    fs::create_dir(&journals).unwrap();
    fs::write(journals.join("damaged.commit"), "{").unwrap();
    // Like a journal whose commit ends while the directory is read: it is listed but missing.
    symlink("nowhere", journals.join("ended.commit")).unwrap();
    let (old, new) = (bench.memory.file("old", 0o644), bench.memory.file("new", 0o644));
    let set = set(&bench.tree(), vec![("a", Some(old), Some(new))]);
    assert_eq!(recover_for(&journals, &set, &|_| Ok(())).unwrap(), []);
    bench.commit(&set).unwrap();
    assert_eq!(fs::read(bench.tree().join("a")).unwrap(), b"new");
    let told = recover_commits(&journals, &|_| Ok(())).unwrap_err().to_string();
    assert!(told.contains("cannot be read") && told.contains("damaged.commit"), "{told}");
}

#[test]
fn every_file_that_changed_meanwhile_is_named_and_nothing_is_done() {
    let bench = Bench::new();
    bench.put("a", "old");
    bench.put("b", "theirs");
    bench.put("c", "theirs");
    let (old, new) = (bench.memory.file("old", 0o644), bench.memory.file("new", 0o644));
    let change = |name| (name, Some(old.clone()), Some(new.clone()));
    let set = set(&bench.tree(), vec![change("a"), change("b"), ("c", None, Some(new.clone())), change("d")]);
    let Err(CommitError::Conflicts(conflicts)) = bench.commit(&set) else { panic!("no conflict") };
    let names: Vec<String> = conflicts.iter().map(|conflict| conflict.path.to_string()).collect();
    assert_eq!(names, ["b", "c", "d"]);
    assert_eq!(fs::read(bench.tree().join("a")).unwrap(), b"old");
    assert_eq!(bench.left(), ["a", "b", "c"]);
}

#[test]
fn a_pair_of_hard_links_stays_one() {
    let bench = Bench::new();
    bench.put("h1", "old");
    fs::hard_link(bench.tree().join("h1"), bench.tree().join("h2")).unwrap();
    let (old, new) = (bench.memory.file("old", 0o644), bench.memory.file("newer", 0o600));
    bench.commit(&set(&bench.tree(), vec![("h1", Some(old), Some(new))])).unwrap();
    for name in ["h1", "h2"] {
        let found = fs::metadata(bench.tree().join(name)).unwrap();
        assert_eq!((found.nlink(), found.mode() & 0o777), (2, 0o600));
        assert_eq!(fs::read(bench.tree().join(name)).unwrap(), b"newer");
    }
}

/// Contents during whose reading another program writes to a file of the tree.
struct Meddling<'m> {
    memory: &'m Memory,
    at: Digest,
    file: std::path::PathBuf,
}

impl Contents for Meddling<'_> {
    fn open_content(&self, digest: &Digest) -> io::Result<Content<'_>> {
        if *digest == self.at {
            fs::write(&self.file, "theirs")?;
        }
        self.memory.open_content(digest)
    }
}

#[test]
fn what_is_written_to_a_file_with_other_names_while_contents_are_laid_ready_is_a_conflict() {
    // Before its old content is stored, and after that.
    for at in ["newer", "another"] {
        let bench = Bench::new();
        for (name, other) in [("a", "a2"), ("b", "b2")] {
            bench.put(name, "old");
            fs::hard_link(bench.tree().join(name), bench.tree().join(other)).unwrap();
        }
        let file = |text| bench.memory.file(text, 0o644);
        let changes = vec![
            ("a", Some(file("old")), Some(file("newer"))),
            ("b", Some(file("old")), Some(file("another"))),
        ];
        let set = set(&bench.tree(), changes);
        let meddling = Meddling {
            memory: &bench.memory,
            at: Digest::of_bytes(at.as_bytes()),
            file: bench.tree().join("a"),
        };
        let error = bench.commit_as("test", &set, &meddling, None).unwrap_err();
        assert!(error.to_string().contains("a in "), "{error}");
        let read = |name| fs::read_to_string(bench.tree().join(name)).unwrap();
        assert_eq!(
            (read("a"), read("a2"), read("b")),
            ("theirs".into(), "theirs".into(), "old".into()),
            "{at}"
        );
        assert_eq!(bench.left(), ["a", "a2", "b", "b2"]);
    }
}

/// A file that was later linked in place of an equal one belongs to another program.
#[test]
fn a_foreign_file_that_was_linked_in_meanwhile_is_not_written_to() {
    for (content, mode) in [("newer", 0o600), ("old", 0o755)] {
        for was_shared in [false, true] {
            let bench = Bench::new();
            bench.put("a", "old");
            if was_shared {
                fs::hard_link(bench.tree().join("a"), bench.tree().join("a2")).unwrap();
            }
            let (old, new) = (bench.memory.file("old", 0o644), bench.memory.file(content, mode));
            let set = set(&bench.tree(), vec![("a", Some(old), Some(new))]);
            let foreign = bench.dir.path().join("foreign");
            fs::write(&foreign, "old").unwrap();
            fs::set_permissions(&foreign, fs::Permissions::from_mode(0o644)).unwrap();
            fs::remove_file(bench.tree().join("a")).unwrap();
            fs::hard_link(&foreign, bench.tree().join("a")).unwrap();
            bench.commit(&set).unwrap();
            assert_eq!(fs::read(bench.tree().join("a")).unwrap(), content.as_bytes());
            let found = fs::metadata(&foreign).unwrap();
            assert_eq!((fs::read(&foreign).unwrap(), found.mode() & 0o777), (b"old".to_vec(), 0o644));
            assert_eq!(found.nlink(), 1);
            bench.commit(&set.inverse()).unwrap();
            assert_eq!(fs::read(bench.tree().join("a")).unwrap(), b"old");
        }
    }
}

/// A replaced file keeps its owner and gets the time that the step set, and holes stay holes.
#[test]
fn a_commit_keeps_owners_times_and_holes() {
    let bench = Bench::new();
    bench.put("owned", "old");
    bench.put("sparse", "old");
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(bench.tree().join("owned"), Some(12), Some(34)).unwrap();
    }
    let size = 8 << 20;
    let content = {
        let mut content = vec![0; size];
        content[size / 2] = 7;
        content
    };
    let digest = Digest::of_bytes(&content);
    bench.memory.0.borrow_mut().insert(digest, content.clone());
    let time = crate::Time(1_000_000_000, 123_456_789);
    let timed = |entry: Entry| match entry {
        Entry::File { digest, size, mode, same_as, .. } => {
            Entry::File { digest, size, mode, modified: Some(time), same_as, acl: None }
        }
        other => other,
    };
    let (old, new) = (bench.memory.file("old", 0o644), timed(bench.memory.file("new", 0o644)));
    let sparse = Entry::File {
        digest,
        size: size as u64,
        mode: 0o644,
        modified: Some(time),
        same_as: None,
        acl: None,
    };
    let changes = vec![
        ("made", None, Some(new.clone())),
        ("owned", Some(old.clone()), Some(new)),
        ("sparse", Some(old), Some(sparse)),
    ];
    bench.commit(&set(&bench.tree(), changes)).unwrap();
    let of = |name: &str| fs::metadata(bench.tree().join(name)).unwrap();
    for name in ["made", "owned", "sparse"] {
        assert_eq!((of(name).mtime(), of(name).mtime_nsec()), (1_000_000_000, 123_456_789), "{name}");
    }
    if is_root {
        assert_eq!((of("owned").uid(), of("owned").gid()), (12, 34));
    }
    assert_eq!(fs::read(bench.tree().join("sparse")).unwrap(), content);
    let taken = of("sparse").blocks() * 512;
    assert!(taken < size as u64 / 2, "{taken} bytes are taken of {size}");
}

#[test]
fn a_file_that_nobody_may_write_to_keeps_its_attributes() {
    let (bench, attribute) = (Bench::new(), "user.lobster");
    bench.put("kept", "old");
    let at = bench.tree().join("kept");
    match rustix::fs::setxattr(&at, attribute, b"told", rustix::fs::XattrFlags::empty()) {
        Err(rustix::io::Errno::NOTSUP) => return,
        done => done.unwrap(),
    }
    fs::set_permissions(&at, fs::Permissions::from_mode(0o444)).unwrap();
    let change = vec![("kept", Some(bench.memory.file("old", 0o444)), Some(bench.memory.file("new", 0o444)))];
    let set = set(&bench.tree(), change);
    // Root may write to any file.
    let mut own = rustix::thread::capabilities(None).unwrap();
    own.effective.remove(rustix::thread::CapabilitySet::DAC_OVERRIDE);
    rustix::thread::set_capabilities(None, own).unwrap();
    bench.commit(&set).unwrap();
    let mut value = [0; 8];
    let length = rustix::fs::getxattr(&at, attribute, &mut value).unwrap();
    assert_eq!((fs::read_to_string(&at).unwrap().as_str(), &value[..length]), ("new", &b"told"[..]));
    assert_eq!(fs::metadata(&at).unwrap().mode() & 0o7777, 0o444);
}

#[test]
fn no_link_leads_a_commit_out_of_its_root() {
    let bench = Bench::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("f"), "old").unwrap();
    symlink(outside.path(), bench.tree().join("d")).unwrap();
    let (old, new) = (bench.memory.file("old", 0o644), bench.memory.file("new", 0o644));
    for change in [("d/f", Some(old.clone()), Some(new.clone())), ("d/g", None, Some(new.clone()))] {
        bench.commit(&set(&bench.tree(), vec![change])).unwrap_err();
    }
    // Nothing exists behind the link, so the file to be removed there is gone already.
    bench.commit(&set(&bench.tree(), vec![("d/f", Some(old), None)])).unwrap();
    assert_eq!(fs::read(outside.path().join("f")).unwrap(), b"old");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
    // The root itself must not be a link either.
    let link = bench.dir.path().join("other");
    symlink(outside.path(), &link).unwrap();
    let mut set = set(&bench.tree(), vec![("g", None, Some(new))]);
    set.roots[0].root = link.to_str().unwrap().as_bytes().to_vec().into();
    assert!(matches!(bench.commit(&set), Err(CommitError::Root { .. })));
}

#[test]
fn bad_change_sets_are_refused() {
    for path in ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "a\0"] {
        RelPath::new(path).unwrap_err();
    }
    let bench = Bench::new();
    let with = |mode| bench.memory.file("x", mode);
    for mode in [0o4755, 0o2755, 0o10644] {
        let set = set(&bench.tree(), vec![("a", None, Some(with(mode)))]);
        assert!(matches!(bench.commit(&set), Err(CommitError::Bad(_))), "{mode:o}");
    }
    let mut twice = set(&bench.tree(), vec![("a", None, Some(with(0o644)))]);
    let again = twice.roots[0].changes[0].clone();
    twice.roots[0].changes.push(again);
    assert!(matches!(bench.commit(&twice), Err(CommitError::Bad(_))));
    assert_eq!(bench.left(), [""; 0]);
}

#[test]
fn long_paths_and_many_files_are_committed() {
    let bench = Bench::new();
    let name = "n".repeat(200);
    let mut changes = Vec::new();
    let mut paths: Vec<String> = vec![name.clone()];
    for _ in 0..30 {
        paths.push(format!("{}/{name}", paths[paths.len() - 1]));
    }
    for path in &paths {
        changes.push((path.as_str(), None, Some(Entry::Directory { mode: 0o755, acl: None })));
    }
    let deep = format!("{}/f", paths[paths.len() - 1]);
    assert!(deep.len() > 4096);
    changes.push((&deep, None, Some(bench.memory.file("deep", 0o644))));
    let many: Vec<String> = (0..100).map(|number| format!("m{number}")).collect();
    changes.extend(many.iter().map(|name| (name.as_str(), None, Some(bench.memory.file(name, 0o644)))));
    let set = set(&bench.tree(), changes);
    bench.commit(&set).unwrap();
    assert_eq!(bench.left().len(), 101);
    bench.commit(&set.inverse()).unwrap();
    assert_eq!(bench.left(), [""; 0]);
}

#[test]
fn the_draft_of_a_journal_that_a_killed_process_left_is_removed_once_it_is_old() {
    let bench = Bench::new();
    let journals = bench.dir.path().join("journals");
    fs::create_dir_all(&journals).unwrap();
    let (old, fresh) = (journals.join("old.new"), journals.join("fresh.new"));
    for draft in [&old, &fresh] {
        fs::write(draft, "{").unwrap();
    }
    let times = fs::FileTimes::new()
        .set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(7200));
    fs::File::options().write(true).open(&old).unwrap().set_times(times).unwrap();
    assert_eq!(recover_commits(&journals, &|_| Ok(())).unwrap(), []);
    assert!(!old.exists() && fresh.exists());
}

/// A tree with bare repositories, and a directory that stands for the system's.
fn lay_out_links(tree: &Path, system: &Path) {
    for name in ["d/e", "kept", ".git", "bare/objects", "bare/refs", "half/objects"] {
        fs::create_dir_all(tree.join(name)).unwrap();
    }
    for name in ["bare/HEAD", "half/HEAD"] {
        fs::write(tree.join(name), "").unwrap();
    }
    for (name, target) in [("in", "/usr/bin"), ("out", "/etc/ssl"), ("back", tree.to_str().unwrap())] {
        symlink(target, system.join(name)).unwrap();
    }
}

#[test]
fn a_link_is_followed_as_the_files_will_be() {
    let link = |target: &str| Some(Entry::Link { target: target.as_bytes().to_vec().into(), modified: None });
    let dir = || Some(Entry::Directory { mode: 0o755, acl: None });
    let (out, git) = (Some("out of the granted directory"), Some("into `.git`"));
    // What is there; what is committed; where a link leads then.
    type Links<'l> = &'l [(&'l str, &'l str)];
    for (there, made, why) in [
        (&[][..], &[("a", "d/f")][..], None),
        (&[], &[("a", "../x")], out),
        (&[], &[("d/a", "../d/f")], None),
        (&[], &[("d/a", "../../tree/d/f")], out),
        (&[], &[("a", "none/../x")], None),
        (&[], &[("a", "none/../../x")], out),
        (&[], &[("a", "/usr/bin/env")], None),
        (&[], &[("a", "/usr/../etc/passwd")], out),
        (&[], &[("a", "/usr/src/.git/config")], out),
        (&[], &[("a", "/etc/passwd")], out),
        (&[], &[("a", "TREE/d/f")], None),
        (&[], &[("a", "TREE/../x")], out),
        (&[], &[("a", "TREE")], None),
        (&[], &[("a", ".git/config")], git),
        (&[], &[("a", "d/.GIT")], Some("into `.GIT`")),
        (&[], &[(".git/a", "config")], None),
        (&[], &[("a", "b"), ("b", "a")], None),
        (&[], &[("a", "kept/f")], Some("into `TREE/kept`")),
        (&[], &[("a", "KEPT")], Some("into `TREE/kept`")),
        // Through a link that somebody made.
        (&[("o", "../x")], &[("a", "d/f")], None),
        (&[("o", "../x")], &[("a", "o/f")], out),
        (&[("g", ".git")], &[("a", "g/config")], git),
        // Another link leads away since this one is there, or gone.
        (&[("m", "l/../x")], &[("l", ".")], out),
        (&[("m", "n/l/../../x")], &[("n", "e"), ("e", ".")], out),
        (&[("m", "l/../../x"), ("l", "d/e")], &[("l", "")], out),
        (&[("m", "d/../x")], &[("l", ".")], None),
        (&[("m", "l/../f")], &[("l", "kept/..")], Some("into `TREE/kept`")),
        // One that leads away already does not lead elsewhere.
        (&[("o", "../x")], &[("d/a", "e")], None),
        (&[("o", "l/../../x")], &[("l", "none")], None),
        (&[("o", "l/../../x")], &[("l", ".")], out),
        (&[("o", "d/../LONG")], &[("a", "LONG")], None),
        // Through a link into the system, and through the system's own links.
        (&[], &[("y", "/usr/bin"), ("a", "y/../lib/x")], None),
        (&[], &[("y", "/usr/bin"), ("a", "y/../../etc/shadow")], out),
        (&[], &[("y", "/usr/bin"), ("a", "y/../..TREE/d/f")], out),
        (&[("y", "/usr/none")], &[("a", "y/../../etc")], out),
        (&[("y", "/usr")], &[("d/a", "../y/..")], out),
        (&[("y", "d"), ("o", "y/../d/f")], &[("y", "/usr/bin")], None),
        (&[("y", "d/e"), ("o", "y/../../d")], &[("y", "/usr/bin")], out),
        (&[], &[("a", "SYSTEM/in")], None),
        (&[], &[("a", "SYSTEM/out")], out),
        (&[], &[("a", "SYSTEM/out/f")], out),
        (&[], &[("a", "SYSTEM/back/../d")], out),
        (&[], &[("a", "SYSTEM/back/d")], None),
        (&[], &[("a", "SYSTEM/back/kept/f")], Some("into `TREE/kept`")),
        // A repository without a `.git`, and what git takes for one.
        (&[], &[("a", "bare")], Some("into `bare`")),
        (&[], &[("a", "d/../bare/hooks/x")], Some("into `bare`")),
        (&[], &[("bare/a", "hooks")], None),
        (&[("o", "half/hooks")], &[("half/refs", "../d")], Some("into `half`")),
    ] as [(Links<'_>, Links<'_>, Option<&str>); 48]
    {
        let bench = Bench::new();
        let tree = bench.tree().canonicalize().unwrap();
        let named =
            |text: &str| text.replace("TREE", tree.to_str().unwrap()).replace("LONG", &"n".repeat(300));
        let system = tempfile::tempdir().unwrap();
        let system = system.path().canonicalize().unwrap();
        lay_out_links(&tree, &system);
        let named = |text: &str| named(text).replace("SYSTEM", system.to_str().unwrap());
        for (path, target) in there {
            symlink(named(target), tree.join(path)).unwrap();
        }
        let protected = vec![tree.join("kept")];
        let rule = LinkRule { system: vec!["/usr".into(), system.clone()], protected, restores: false };
        let before = |path: &str| there.iter().find(|(known, _)| *known == path).and_then(|(_, to)| link(to));
        let after = |target: &str| if target.is_empty() { None } else { link(&named(target)) };
        let mut changes: Vec<_> =
            made.iter().map(|(path, target)| (*path, before(path), after(target))).collect();
        changes.push(("new", None, dir()));
        let set = set(&tree, changes);
        let done = bench.commit_as("test", &set, &bench.memory, Some(&rule));
        match (done, why) {
            (Ok(()), None) => {}
            (Err(CommitError::Link(stray)), Some(why)) => {
                let said = stray.to_string();
                assert!(said.contains(&format!("that leads {}: ", named(why))), "{made:?}: {said}");
                assert!(!tree.join("new").exists());
            }
            (done, why) => panic!("{there:?} {made:?}: {done:?}, not {why:?}"),
        }
        assert_eq!(rule.check_links(&set).is_err(), why.is_some());
    }
}

#[test]
fn another_name_of_a_protected_file_is_refused() {
    let bench = Bench::new();
    bench.put(".git/config", "x");
    let Entry::File { digest, size, mode, .. } = bench.memory.file("x", 0o644) else { panic!() };
    let same_as = Some(RelPath::new(".git/config").unwrap());
    let name = Entry::File { digest, size, mode, modified: None, same_as, acl: None };
    let set = set(&bench.tree(), vec![("out", None, Some(name))]);
    let done = bench.commit_as("test", &set, &bench.memory, Some(&LinkRule::default()));
    assert!(matches!(done, Err(CommitError::Link(_))), "{done:?}");
}

#[test]
fn an_undo_restores_a_link_that_led_away_and_makes_none() {
    let link = |target: &str| Some(Entry::Link { target: target.as_bytes().to_vec().into(), modified: None });
    // The links that are there; the link that is restored; whether it may be.
    for (there, path, target, is_restored) in [
        (&[][..], "x", "../out", true),
        (&[], "x", "/etc/shadow", true),
        (&[], "d/x", "../../out", true),
        (&[], "x", ".git/config", true),
        (&[], "sub/.git", "../d", true),
        (&[("y", "../out")], "x", "y/f", true),
        // What is on its way may have been something else.
        (&[], "x", "d/../../out", false),
        (&[("y", "/usr/bin")], "x", "y/../../out", false),
        (&[("y", ".")], "x", "y/.git/config", false),
        (&[("y", "../out"), ("z", "y")], "x", "z/f", false),
        // What it redirects.
        (&[("o", "d/y/../../f")], "d/y", ".", false),
    ] as [(&[(&str, &str)], &str, &str, bool); 11]
    {
        let bench = Bench::new();
        let tree = bench.tree();
        for name in ["d", "sub", ".git"] {
            fs::create_dir_all(tree.join(name)).unwrap();
        }
        for (path, target) in there {
            symlink(target, tree.join(path)).unwrap();
        }
        let set = set(&tree, vec![(path, None, link(target))]);
        let rule = LinkRule { system: vec!["/usr".into()], protected: Vec::new(), restores: true };
        let done = bench.commit_as("undo", &set, &bench.memory, Some(&rule));
        assert_eq!(done.is_ok(), is_restored, "{there:?} {path} {target}: {done:?}");
        assert_eq!(tree.join(path).is_symlink(), is_restored);
    }
    let bench = Bench::new();
    fs::create_dir_all(bench.tree().join("sub/r")).unwrap();
    let set = set(&bench.tree(), vec![("sub/.git", None, link("r"))]);
    let done = bench.commit_as("test", &set, &bench.memory, Some(&LinkRule::default()));
    let Err(CommitError::Link(stray)) = done else { panic!("{done:?}") };
    assert!(stray.to_string().contains("the step left a link in the place of git's directory: "), "{stray}");
}
