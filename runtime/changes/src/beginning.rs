//! Start time of a process's view of a directory. Later changes by other programs are not part of that view.
//!
//! The times of files come from the clock of their file system, which may be on another machine or coarse,
//! and a clock may be set back. So the start time is taken from the file system of the directory, and later
//! compared with a clock that cannot be set. If the clock is set back and then forward again meanwhile, that
//! is not noticed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::set::Time;

/// Permitted difference between two clocks, in addition to a thousandth of the elapsed time: one has a coarse
/// resolution, and may be slowed down or sped up.
const TOLERANCE: Duration = Duration::from_millis(50);

/// Start time of a view of a directory.
#[derive(Clone, Debug)]
pub struct Beginning {
    root: PathBuf,
    spare: PathBuf,
    at: Time,
    since: Instant,
}

impl Beginning {
    /// The present time. If no file can be made in `root`, the clock of the directory `spare` is used.
    ///
    /// # Errors
    /// If no file can be made there either.
    pub fn now(root: &Path, spare: &Path) -> io::Result<Self> {
        let at = time_in(root, spare)?;
        Ok(Self { root: root.to_owned(), spare: spare.to_owned(), at, since: Instant::now() })
    }

    /// Files with a later time than this may have changed since the start.
    pub(crate) fn time_bound(&self) -> io::Result<Time> {
        Ok(compute_bound(self.at, time_in(&self.root, &self.spare)?, self.since.elapsed()))
    }
}

/// Computes the bound. `passed` is the elapsed time between `began` and `now`, which are two times of the
/// same clock.
fn compute_bound(began: Time, now: Time, passed: Duration) -> Time {
    let nanos = |time: Time| i128::from(time.0) * 1_000_000_000 + i128::from(time.1);
    let passed = i128::try_from(passed.as_nanos()).unwrap_or(i128::MAX);
    let tolerance = i128::try_from(TOLERANCE.as_nanos()).unwrap_or_default() + passed / 1000;
    let lost = passed - (nanos(now) - nanos(began));
    let mut bound = nanos(began);
    if lost > tolerance {
        bound -= lost + tolerance;
    } else if began.1 == 0 {
        // With a clock of whole seconds, a file with this time may be older or newer.
        bound -= 1;
    }
    let (seconds, rest) = (bound.div_euclid(1_000_000_000), bound.rem_euclid(1_000_000_000));
    Time(i64::try_from(seconds).unwrap_or(i64::MIN), u32::try_from(rest).unwrap_or_default())
}

fn time_in(root: &Path, spare: &Path) -> io::Result<Time> {
    let made = make_nameless(root)
        .or_else(|_| make_named(root))
        .or_else(|_| make_nameless(spare))
        .or_else(|_| make_named(spare))?;
    Ok(Time(made.ctime(), u32::try_from(made.ctime_nsec()).unwrap_or_default()))
}

/// Makes a file without a name, which no other program can see.
fn make_nameless(dir: &Path) -> io::Result<fs::Metadata> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    File::from(openat(CWD, dir, flags, Mode::from_raw_mode(0o600))?).metadata()
}

fn make_named(dir: &Path) -> io::Result<fs::Metadata> {
    let path = dir.join(format!(".lobster-time-{}", std::process::id()));
    let made = File::options().write(true).create_new(true).open(&path)?.metadata();
    fs::remove_file(path)?;
    made
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    /// A model: a clock with some resolution that is set back at some time, and an edit at any time after the
    /// beginning.
    #[test]
    fn an_edit_is_later_than_the_bound_whatever_the_clock_did() {
        const SECOND: i128 = 1_000_000_000;
        for step in [1, 4_000_000, SECOND] {
            for set_back in [0, SECOND / 5, 3600 * SECOND] {
                for set_at in [SECOND / 100, SECOND, 60 * SECOND] {
                    for edited_at in [2 * step.min(SECOND / 2), SECOND / 2, 2 * SECOND, 90 * SECOND] {
                        let read = |at: i128| {
                            let began = 1_000_000 * SECOND + SECOND / 3;
                            let shown = began + at - if at >= set_at { set_back } else { 0 };
                            let shown = shown - shown % step;
                            Time((shown / SECOND).try_into().unwrap(), (shown % SECOND).try_into().unwrap())
                        };
                        let passed = Duration::from_secs(100);
                        let bound = compute_bound(read(0), read(100 * SECOND), passed);
                        let told = format!("{step} {set_back} {set_at} {edited_at}");
                        assert!(read(edited_at) > bound, "{told}");
                        // A change long before the beginning is certain.
                        assert!(read(-SECOND) <= bound || set_back > 0, "{told}");
                        assert!(read(-2 * 3600 * SECOND) <= bound, "{told}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_directory_keeps_its_look_and_one_that_takes_no_file_has_another_ones_clock() {
        let dir = tempfile::tempdir().unwrap();
        let before = fs::metadata(dir.path()).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let began = Beginning::now(dir.path(), dir.path()).unwrap();
        assert_eq!(fs::metadata(dir.path()).unwrap().mtime_nsec(), before.mtime_nsec());
        assert!(began.at > Time(before.mtime(), u32::try_from(before.mtime_nsec()).unwrap()));
        assert_eq!(began.time_bound().unwrap(), began.at);
        assert!(Beginning::now(Path::new("/proc"), dir.path()).is_ok());
    }
}
