//! The machine code of the programs that tests run most: compiling the evaluator takes seconds of a processor,
//! and each test has a state directory of its own.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::binary;
use crate::home::Home;

/// What is compiled once for all tests, in `guest-steps/dist`.
const PROGRAMS: [&str; 5] = ["js-eval", "csv", "jq", "render", "categorize-mail"];

/// Puts the code into the cache of a state directory.
pub(crate) fn link_into(state: &Path) {
    link_tree(kept(), &state.join("store/code"));
}

/// Where the code is kept for this target. It stays for the next process: lobster itself sees by the names whether
/// it is that of this compiler and of these programs, and by the digests whether it is whole.
fn kept() -> &'static Path {
    static KEPT: OnceLock<PathBuf> = OnceLock::new();
    KEPT.get_or_init(|| {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiled-code");
        let home = Home::cold();
        let code = home.state().join("store/code");
        link_tree(&kept, &code);
        let before = names(&code);
        compile(&home);
        if names(&code) != before {
            // Another compiler or other programs.
            let _ = fs::remove_dir_all(&kept);
            link_tree(&code, &kept);
        }
        kept
    })
}

fn compile(home: &Home) {
    let files = PROGRAMS.map(|name| binary::repository().join(format!("guest-steps/dist/{name}.wasm")));
    std::thread::scope(|scope| {
        for file in &files {
            let call = home.lobster([OsStr::new("step"), "inspect".as_ref(), file.as_ref()]);
            scope.spawn(move || assert_eq!(call.run().code(), 0));
        }
    });
}

/// The files of code, each with its number: code that is compiled again is another file.
fn names(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.metadata() {
            Ok(found) if found.is_dir() => names.extend(self::names(&path)),
            Ok(found) if is_code(&path) => names.push((path, found.ino())),
            _ => {}
        }
    }
    names.sort();
    names
}

/// Code and the record of its digest; locks and notes are of one cache.
pub(crate) fn is_code(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "cwasm" || extension == "blake3")
}

/// The same files, not copies of them, in directories that are the user's alone. What another process has just
/// replaced is left out, and lobster compiles it.
fn link_tree(from: &Path, to: &Path) {
    DirBuilder::new().recursive(true).mode(0o700).create(to).unwrap();
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            link_tree(&path, &target);
        } else if is_code(&path) {
            let linked = fs::hard_link(&path, &target);
            if linked.is_err_and(|error| error.kind() == io::ErrorKind::CrossesDevices) {
                let _ = fs::copy(&path, &target);
            }
        }
    }
}
