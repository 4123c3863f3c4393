//! Another thread replaces a granted directory, and one inside it, by links that lead out, while a run
//! passes its permission check, starts and commits its files.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{RenameFlags, renameat_with};

use super::files::CREATE;
use crate::host::filesystem::Filesystem;
use crate::state::Stop;
use crate::{DirGrant, Grants, StagedWrites};

/// Stops the replacing thread, even if the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// `LOBSTER_TEST_SWAPS` sets the number of swaps.
#[test]
fn what_was_decided_about_is_what_is_written_to() {
    let count = std::env::var("LOBSTER_TEST_SWAPS").ok().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let place = tempfile::tempdir().expect("temporary directory");
    let place = place.path().canonicalize().expect("is there");
    let (out, outside) = (place.join("out"), place.join("outside"));
    fs::create_dir_all(out.join("sub")).expect("makes");
    fs::create_dir_all(outside.join("sub")).expect("makes");
    symlink(&outside, place.join("link")).expect("links");
    symlink(&outside, out.join("link")).expect("links");
    let over = AtomicBool::new(false);
    let [mut written, mut refused, mut failed] = [0; 3];
    std::thread::scope(|scope| {
        let over = &over;
        for (dir, one) in [(place.clone(), "out"), (out.clone(), "sub")] {
            scope.spawn(move || {
                // The directory itself, wherever it is now.
                let at = fs::File::open(&dir).expect("opens");
                while !over.load(Ordering::Relaxed) {
                    let _ = renameat_with(&at, one, &at, "link", RenameFlags::EXCHANGE);
                    std::thread::yield_now();
                }
            });
        }
        let _over = Over(over);
        let allowed = |real: Option<&Path>| real == Some(out.as_path());
        // On a busy machine, so few turns may miss all swaps; then there are more turns.
        let deadline = Instant::now() + Duration::from_secs(120);
        for turn in 0.. {
            if turn >= count && (written > 0 && refused > 0 || Instant::now() > deadline) {
                break;
            }
            let grant = DirGrant { host: out.clone(), guest: "/out".into() };
            let grants = Grants { write: vec![grant], ..Grants::default() };
            let opened = grants.open_dirs();
            if !opened.write_paths().all(allowed) {
                refused += 1;
                continue;
            }
            let staging = std::env::temp_dir();
            let start = SystemTime::UNIX_EPOCH;
            let files =
                Filesystem::open(&grants, opened, staging, 1 << 20, start, Stop::never()).expect("opens");
            let mut mounts = files.into_mounts();
            for path in [format!("f{}", turn % 10), format!("sub/g{}", turn % 10)] {
                // A name below a directory that has become a link is refused.
                let Ok(path) = mounts[0].tree.resolve_path("", &path, true) else { continue };
                if let Ok(opened) = mounts[0].tree.open_file(&path, CREATE) {
                    let writer = opened.writer.expect("writable");
                    assert_eq!(writer.write_at(&opened.file, b"inside", 0).ok(), Some(6));
                }
            }
            match StagedWrites::from_mounts(mounts).map(StagedWrites::commit) {
                Ok(Ok(_)) => written += 1,
                Ok(Err(_)) | Err(_) => failed += 1,
            }
        }
    });
    let names = |dir: &Path| fs::read_dir(dir).expect("lists").count();
    assert_eq!((names(&outside), names(&outside.join("sub"))), (1, 0), "something landed outside");
    // Some swaps did happen in between.
    assert!(written > 0 && refused > 0, "written {written}, refused {refused}, failed {failed}");
}
