//! Retention of old runs without manual collection.
//!
//! Once a day, after a command that records runs, a separate process runs
//! `lobster store gc --retention`: commands do not wait for it, and it may run at the same time as others.

use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use lobster_runtime::quantity::{Bytes, Span};
use lobster_runtime::regular_file;
use lobster_runtime::setting::Setting;

/// The variable with the limits: an age, a size, both, or `off`.
pub(crate) const SETTING: Setting<Retention> = Setting::new(
    "LOBSTER_RETENTION",
    "an age, a size or both (90d,4GiB), or `off`, which keeps everything",
    |text| text.parse().ok(),
);

/// The default limits.
const DEFAULT: &str = "365d,10GiB";

/// The time between two collections.
const PAUSE: Duration = Duration::from_secs(24 * 60 * 60);

/// A file in the store's directory: its modification time is the start of the last collection, its
/// content the clock of collections, in milliseconds since 1970.
const MARKER: &str = "collected";

/// The most that this clock may advance from one collection to the next, in milliseconds.
const MOST_AT_ONCE_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// Limits of retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Retention {
    /// Largest age of finished runs, in milliseconds.
    pub(crate) max_age_ms: Option<i64>,
    /// Largest size of all runs, in bytes; the oldest are removed first.
    pub(crate) max_bytes: Option<u64>,
}

impl FromStr for Retention {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut retention = Self::default();
        if text.trim() == "off" {
            return Ok(retention);
        }
        for limit in text.split(',').map(str::trim) {
            if let Ok(age) = limit.parse::<Span>() {
                let age = i64::try_from(age.milliseconds()).unwrap_or(i64::MAX);
                if retention.max_age_ms.replace(age).is_some() {
                    return Err(format!("{limit:?} is a second age"));
                }
            } else if let Ok(size) = limit.parse::<Bytes>() {
                if retention.max_bytes.replace(size.0).is_some() {
                    return Err(format!("{limit:?} is a second size"));
                }
            } else {
                return Err(format!("{limit:?} is neither an age (90d) nor a size (4GiB)"));
            }
        }
        Ok(retention)
    }
}

impl Retention {
    /// The operator's limits.
    pub(crate) fn from_env() -> Result<Self, String> {
        let set = SETTING.read_env(|name| std::env::var_os(name)).map_err(|error| error.to_string())?;
        set.map_or_else(|| DEFAULT.parse(), Ok)
    }

    /// The same limits by the clock of collections, which is never far ahead of the last collection.
    pub(crate) fn by_a_doubtful_clock(self) -> Self {
        let max_age_ms = self.max_age_ms.map(|age| age.saturating_add(doubt_ms()));
        Self { max_age_ms, ..self }
    }

    fn is_off(self) -> bool {
        self == Self::default()
    }
}

/// Starts a collection if the last one was long ago. An error has no other effect.
pub(crate) fn collect_if_due() {
    // An unreadable setting was refused before anything ran.
    let Ok(retention) = Retention::from_env() else { return };
    let Some(dir) = lobster_runtime::store::state_dir(&|name| std::env::var_os(name)) else { return };
    if let Ok(true) = is_due(&dir.join("store"))
        && !retention.is_off()
    {
        start_collection(&dir);
    }
}

/// True if a day has passed; then also notes the current time.
fn is_due(store: &Path) -> io::Result<bool> {
    let marker = store.join(MARKER);
    let now = SystemTime::now();
    let mut file = match regular_file::open_own(File::options().read(true).write(true), &marker) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A new store has nothing to collect; without a store there is no place for the marker.
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&marker)?;
            file.write_all(in_ms(now).to_string().as_bytes())?;
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let last = file.metadata()?.modified()?;
    // A clock that was set back must not stop collections for years.
    let is_due = now.duration_since(last).map_or(true, |gone| gone >= PAUSE);
    if is_due {
        let believed = read_ms(&mut file)?.unwrap_or(in_ms(last)).saturating_add(MOST_AT_ONCE_MS);
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(in_ms(now).min(believed).to_string().as_bytes())?;
        file.set_times(FileTimes::new().set_modified(now))?;
    }
    Ok(is_due)
}

/// Milliseconds that the clock is ahead of the clock of collections: a clock that jumped must not make
/// the whole history old.
fn doubt_ms() -> i64 {
    let Some(dir) = lobster_runtime::store::state_dir(&|name| std::env::var_os(name)) else { return 0 };
    let marker = dir.join("store").join(MARKER);
    let believed = regular_file::open_own(File::options().read(true), &marker);
    let believed = believed.and_then(|mut file| read_ms(&mut file));
    believed.ok().flatten().map_or(0, |believed| in_ms(SystemTime::now()).saturating_sub(believed).max(0))
}

fn read_ms(file: &mut File) -> io::Result<Option<i64>> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text)?;
    Ok(text.trim().parse().ok())
}

fn in_ms(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn start_collection(state_dir: &Path) {
    let (Ok(program), Ok(dir)) = (std::env::current_exe(), fs::canonicalize(state_dir)) else { return };
    let mut command = Command::new(program);
    command
        .args(["store", "gc", "--retention"])
        .current_dir("/")
        .env("LOBSTER_STATE_DIR", dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    // A signal to this command and its children must not stop the collection.
    command.process_group(0);
    if let Err(error) = command.spawn() {
        tracing::warn!(%error, "no collection could be started");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_ages_and_sizes() {
        let read = |text: &str| text.parse::<Retention>().map(|kept| (kept.max_age_ms, kept.max_bytes));
        assert_eq!(read("90d"), Ok((Some(90 * 86_400_000), None)));
        assert_eq!(read("4GiB, 2w"), Ok((Some(14 * 86_400_000), Some(4 << 30))));
        assert_eq!(read("off"), Ok((None, None)));
        assert!(read(DEFAULT).is_ok_and(|(age, size)| age.is_some() && size.is_some()));
        for wrong in ["", "soon", "90d,off", "90d 4GiB", "-1d", "1d,2d", "1GiB,90d,2GiB"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_collection_is_due_once_a_day() {
        let dir = tempfile::tempdir().unwrap();
        assert!(is_due(&dir.path().join("nowhere")).is_err());
        assert!(!is_due(dir.path()).unwrap(), "the store is new");
        assert!(!is_due(dir.path()).unwrap());
        let set = |time| {
            let file = File::options().write(true).open(dir.path().join(MARKER)).unwrap();
            file.set_times(FileTimes::new().set_modified(time)).unwrap();
        };
        set(SystemTime::now() - PAUSE);
        assert!(is_due(dir.path()).unwrap());
        assert!(!is_due(dir.path()).unwrap());
        set(SystemTime::now() + PAUSE);
        assert!(is_due(dir.path()).unwrap(), "the clock was put back");
    }

    #[test]
    fn time_advances_by_a_week_at_most() {
        let dir = tempfile::tempdir().unwrap();
        let marker = dir.path().join(MARKER);
        let long_ago = in_ms(SystemTime::now()) - 400 * 24 * 60 * 60 * 1000;
        fs::write(&marker, long_ago.to_string()).unwrap();
        let old = FileTimes::new().set_modified(SystemTime::now() - PAUSE);
        File::options().write(true).open(&marker).unwrap().set_times(old).unwrap();
        assert!(is_due(dir.path()).unwrap());
        assert_eq!(fs::read_to_string(&marker).unwrap(), (long_ago + MOST_AT_ONCE_MS).to_string());
        // The content is not a number, so the file's modification time is used.
        fs::write(&marker, "x").unwrap();
        File::options().write(true).open(&marker).unwrap().set_times(old).unwrap();
        assert!(is_due(dir.path()).unwrap());
        assert!(fs::read_to_string(&marker).unwrap().parse::<i64>().unwrap() > long_ago);
    }
}
