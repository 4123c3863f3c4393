//! The action of a component step: everything that determines its output.

use std::fs::FileType;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use lobster_component::{DirGrant, DirId, Grants, RunError};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Job, JobInput, Members};
use crate::action::Preimage;
use crate::path::StepPath;
use crate::run::Run;
use crate::value::Items;
use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::file_digests::FileDigests;
use lobster_base::json;
use lobster_stage::{Payload, StageError, Stop, store_failure};
use lobster_store::INLINE_MAX;

/// Builds the pre-image from everything that determines what the component does.
pub(super) fn build_preimage(run: &Run<'_>, path: &StepPath, job: &Job) -> Result<Preimage, Stop> {
    let named = |form: &str, digest: Digest| format!(r#"{{"{form}":"{digest}"}}"#);
    let input = match &job.input {
        JobInput::Empty => "null".to_owned(),
        // Small inputs are kept, so that `why` can show their differences.
        JobInput::Bytes(Payload::Bytes(bytes)) if bytes.len() <= INLINE_MAX => {
            named("bytes", run.store.put_blob(bytes).map_err(store_failure)?.digest)
        }
        JobInput::Bytes(payload) => {
            named("bytes", Digest::of_reader(payload.open().map_err(store_failure)?).map_err(store_failure)?)
        }
        JobInput::Items(Items::Stored { store, blob, .. }) => {
            // A missing blob is reported before anything begins.
            store.0.open_blob(&blob.digest).map_err(store_failure)?;
            named("items", blob.digest)
        }
        JobInput::Items(Items::Memory(items)) => {
            let lines: String = items.iter().map(|item| json::compact(item) + "\n").collect();
            let small = lines.len() <= INLINE_MAX;
            let digest = if small {
                run.store.put_blob(lines.as_bytes()).map_err(store_failure)?.digest
            } else {
                Digest::of_bytes(lines.as_bytes())
            };
            named("items", digest)
        }
    };
    let tree = |kind: &str, dirs: &[DirGrant]| -> Result<Value, Stop> {
        let tree = |dir: &DirGrant| granted_tree(dir, Some(&dir.host), &run.services.files);
        dirs.iter()
            .map(|dir| tree(dir).map_err(|error| unreadable_grant(run, path, kind, dir, &error)))
            .collect()
    };
    let env: Map<_, _> = job
        .grants
        .env
        .iter()
        .map(|(name, value)| (name.clone(), json!(Digest::of_bytes(value.as_bytes()))))
        .collect();
    let grants = if job.grants == Grants::default() {
        NO_GRANTS.to_owned()
    } else {
        canonical_json(&json!({
            "read": tree("read", &job.grants.read)?,
            "write": tree("write", &job.grants.write)?,
            "env": env,
            "net": job.grants.net,
            "clock": job.grants.clock,
            "random": job.grants.random,
        }))?
    };
    let profile = job.profile();
    let (args, given) = canonical_arguments(&job.args.members, &job.args.text)?;
    let given = given.filter(|_| profile.tells_argument_text());
    let given = given.map_or_else(String::new, |given| format!(r#""given":"{given}","#));
    let credentials = match job.credentials.as_slice() {
        [] => String::new(),
        some => format!(r#""credentials":{},"#, canonical_json(&some)?),
    };
    let limits = &job.limits;
    let limits = format!(
        r#"{{"fuel":{},"instances":{},"memory":{},"output":{},"tables":{}}}"#,
        canonical_number(limits.fuel)?,
        limits.instances,
        canonical_number(limits.memory)?,
        canonical_number(limits.output)?,
        canonical_number(limits.tables)?,
    );
    // Thousands of steps may have no more work than this, so the names are written here in canonical order.
    let mut action = format!(
        r#"{{"args":{args},"component":"{}",{credentials}{given}"grants":{grants},"input":{input},"kind":"component","limits":{limits},"profile":{}"#,
        job.program.component.digest().to_hex(),
        canonical_json(&profile)?,
    );
    if !job.secrets.is_empty() {
        action.push_str(r#","secrets":"#);
        action.push_str(&canonical_json(&run.named_secrets(path, &job.secrets))?);
    }
    action.push('}');
    debug_assert_eq!(canonical_json(&json::parse(&action).unwrap_or_default()).ok().as_ref(), Some(&action));
    Ok(Preimage::of_canonical(action))
}

/// The grants of a component without grants, in canonical form.
pub(super) const NO_GRANTS: &str = r#"{"clock":false,"env":{},"net":[],"random":false,"read":[],"write":[]}"#;

/// Arguments in canonical form, and the digest of the program's own text of them if that differs. Canonical JSON sorts
/// members and writes numbers as doubles, and a program can see both.
pub(super) fn canonical_arguments(members: &Members, text: &str) -> Result<(String, Option<Digest>), Stop> {
    let args = if members.is_empty() { "{}".to_owned() } else { canonical_json(members)? };
    let given = (args != text).then(|| Digest::of_bytes(text.as_bytes()));
    Ok((args, given))
}

/// A number in canonical form: plain digits, if every whole number up to it is a double.
fn canonical_number(number: u64) -> Result<String, Stop> {
    if number <= 1 << f64::MANTISSA_DIGITS { Ok(number.to_string()) } else { canonical_json(&number) }
}

/// The canonical JSON of a part (RFC 8785).
fn canonical_json(part: &impl Serialize) -> Result<String, Stop> {
    serde_json_canonicalizer::to_string(part).map_err(store_failure)
}

/// A granted directory in an action. It is read at the path `at`.
fn granted_tree(dir: &DirGrant, at: Option<&Path>, files: &FileDigests) -> io::Result<Value> {
    let tree = match at.map(|at| tree_digest(at, files)).transpose() {
        // The start of the component reports a missing directory and a file in its place; a replay elsewhere has
        // other means.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
        other => other?,
    };
    Ok(json!({ "to": dir.guest, "tree": tree }))
}

/// The failure of a step that grants a directory whose contents cannot all be read. The store is well, so `on_error`
/// applies.
fn unreadable_grant(run: &Run<'_>, path: &StepPath, kind: &str, dir: &DirGrant, error: &io::Error) -> Stop {
    run.record_failure(path);
    let error = RunError::BadGrant {
        grant: format!("{kind} {}", dir.host.display()),
        message: format!("its contents cannot be read: {error}"),
    };
    Stop::Failed(StageError::permanent(error.to_string()).with_code(Code::BadGrant))
}

/// The directories that a component may read. It reads them while it runs, and its action holds their contents before
/// the run.
pub(super) struct ReadDirs {
    grants: Grants,
    /// The identity of each directory that was opened.
    opened: Vec<Option<DirId>>,
    in_action: Value,
}

impl ReadDirs {
    /// The directories of a job that is about to run, if it has any.
    pub(super) fn of_job(job: &Job, action: &Preimage) -> Option<Self> {
        let opened = job.opened.as_ref().filter(|_| !job.grants.read.is_empty())?.read_ids();
        let grants = Grants { read: job.grants.read.clone(), ..Grants::default() };
        Some(Self { grants, opened, in_action: action.to_json()["grants"]["read"].take() })
    }

    /// True if their contents still match the action, so that it is known what the component read.
    pub(super) fn is_unchanged(&self, files: &FileDigests) -> bool {
        let opened = self.grants.open_known(&self.opened, &[]);
        let now =
            self.grants.read.iter().zip(&self.opened).zip(opened.read_paths()).map(|((dir, was), real)| {
                let way = real.and_then(|real| opened.way_to(real));
                // A directory that could be opened before can still be opened.
                let is_there = way.is_some() || was.is_none();
                granted_tree(dir, way.as_deref(), files).ok().filter(|_| is_there)
            });
        now.collect::<Option<Vec<_>>>().is_some_and(|now| self.in_action == Value::Array(now))
    }
}

/// One digest over the names and contents of everything below a directory.
pub fn tree_digest(dir: &Path, files: &FileDigests) -> io::Result<Digest> {
    let mut hasher = blake3::Hasher::new();
    let mut add = |kind: &str, name: &[u8], what: &[u8]| {
        hasher.update(kind.as_bytes()).update(b" ").update(name).update(b"\0").update(what);
    };
    let mut pending = vec![(dir.to_owned(), Vec::new())];
    while let Some((dir, prefix)) = pending.pop() {
        let mut entries: Vec<_> = std::fs::read_dir(&dir)
            .and_then(Iterator::collect::<Result<_, _>>)
            .map_err(|error| at_path(&error, &dir))?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let name = [&prefix, b"/".as_slice(), entry.file_name().as_bytes()].concat();
            let kind = entry.file_type().map_err(|error| at_path(&error, &entry.path()))?;
            if kind.is_dir() {
                add("dir", &name, b"");
                pending.push((entry.path(), name));
            } else if kind.is_symlink() {
                let to = std::fs::read_link(entry.path()).map_err(|error| at_path(&error, &entry.path()))?;
                add("link", &name, &[to.as_os_str().as_bytes(), b"\0"].concat());
            } else if kind.is_file() {
                let digest = files.digest(&entry.path()).map_err(|error| at_path(&error, &entry.path()))?;
                add("file", &name, format!("{digest}\0").as_bytes());
            } else {
                // A program sees that it exists, and whether it is a device, a pipe or a socket.
                add("other", &name, format!("{}\0", special_kind(kind)).as_bytes());
            }
        }
    }
    Ok(hasher.finalize().into())
}

/// The same error with the path in its message.
fn at_path(error: &io::Error, path: &Path) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// The kind of an entry that is neither a file nor a directory nor a link.
fn special_kind(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "pipe"
    } else if kind.is_socket() {
        "socket"
    } else if kind.is_block_device() {
        "block device"
    } else if kind.is_char_device() {
        "character device"
    } else {
        "unknown"
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;

    /// Everything about a directory entry that a program can see.
    #[derive(Clone, Debug, PartialEq)]
    enum What {
        File(&'static str),
        Link(Vec<u8>),
        Directory,
        Pipe,
        Socket,
    }

    fn any_tree() -> impl Strategy<Value = BTreeMap<Vec<u8>, What>> {
        // Some of these names are equal once they are converted to text.
        let name = prop::sample::select(vec![&b"a"[..], b"b", b"a\xff", b"a\xfe", "a\u{fffd}".as_bytes()]);
        let what = prop_oneof![
            prop::sample::select(vec!["", "one", "two"]).prop_map(What::File),
            name.clone().prop_map(|to| What::Link(to.to_vec())),
            Just(What::Directory),
            Just(What::Pipe),
            Just(What::Socket),
        ];
        prop::collection::btree_map(name.prop_map(<[u8]>::to_vec), what, 0..3)
    }

    fn create_tree(dir: &Path, tree: &BTreeMap<Vec<u8>, What>) {
        for (name, what) in tree {
            let at = dir.join(OsString::from_vec(name.clone()));
            match what {
                What::File(text) => std::fs::write(&at, text).unwrap(),
                What::Link(to) => {
                    std::os::unix::fs::symlink(OsString::from_vec(to.clone()), &at).unwrap();
                }
                What::Directory => std::fs::create_dir(&at).unwrap(),
                What::Pipe => {
                    let mode = rustix::fs::Mode::from_raw_mode(0o600);
                    rustix::fs::mknodat(rustix::fs::CWD, &at, rustix::fs::FileType::Fifo, mode, 0).unwrap();
                }
                What::Socket => drop(std::os::unix::net::UnixListener::bind(&at).unwrap()),
            }
        }
    }

    proptest! {
        #[test]
        fn directories_have_one_digest_only_if_a_program_sees_the_same_in_them(
            one in any_tree(),
            other in any_tree(),
        ) {
            let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            create_tree(here.path(), &one);
            create_tree(there.path(), &other);
            let digest = |dir: &tempfile::TempDir| tree_digest(dir.path(), &FileDigests::default()).unwrap();
            prop_assert_eq!(digest(&here) == digest(&there), one == other);
        }
    }

    #[test]
    fn recorded_digests_of_ordinary_directories_hold() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("d/\u{e9}"), "text").unwrap();
        std::os::unix::fs::symlink("d/x", dir.path().join("l")).unwrap();
        let file = Digest::of_bytes(b"text");
        let seen = format!("dir /d\0link /l\0d/x\0file /d/\u{e9}\0{file}\0");
        assert_eq!(
            tree_digest(dir.path(), &FileDigests::default()).unwrap(),
            Digest::of_bytes(seen.as_bytes())
        );
    }

    #[test]
    fn what_changed_in_a_directory_that_is_read_is_noticed() {
        type Change = fn(&Path);
        let changes: [(&str, Change); 4] = [
            ("a file", |dir| std::fs::write(dir.join("file"), "other").unwrap()),
            ("a name", |dir| std::fs::write(dir.join("more"), "").unwrap()),
            ("nothing there", |dir| std::fs::remove_dir_all(dir).unwrap()),
            ("another directory", |dir| {
                std::fs::rename(dir, dir.with_extension("old")).unwrap();
                std::fs::create_dir(dir).unwrap();
                std::fs::write(dir.join("file"), "one").unwrap();
            }),
        ];
        for (what, change) in changes {
            let root = tempfile::tempdir().unwrap();
            let host: PathBuf = root.path().join("dir");
            std::fs::create_dir(&host).unwrap();
            std::fs::write(host.join("file"), "one").unwrap();
            let files = FileDigests::default();
            let dir = DirGrant { host: host.clone(), guest: "/in".to_owned() };
            let in_action = Value::Array(vec![granted_tree(&dir, Some(&host), &files).unwrap()]);
            let grants = Grants { read: vec![dir], ..Grants::default() };
            let opened = grants.open_dirs().read_ids();
            let dirs = ReadDirs { grants, opened, in_action };
            assert!(dirs.is_unchanged(&files));
            change(&host);
            assert!(!dirs.is_unchanged(&files), "{what}");
        }
    }
}
