//! Current values of secrets, for a program that runs for a long time. If the operator replaces a file, or a command
//! prints another value, later requests are judged by the new value. A run keeps the values with which it began, and
//! does not use this.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use lobster_base::sync::lock;

use crate::envelope::Failure;

/// A command is run again after this time at the earliest, even if it failed and however many requests arrive
/// meanwhile, since strangers may cause requests.
const AGAIN: Duration = Duration::from_secs(60);

/// The values found, by the names of secrets.
#[derive(Default)]
pub(crate) struct CurrentValues(Mutex<BTreeMap<String, Arc<Slot>>>);

#[derive(Default)]
struct Slot {
    found: Mutex<Option<Found>>,
    /// Locked while a value is read.
    looking: Mutex<()>,
}

#[derive(Clone)]
struct Found {
    value: Result<Arc<str>, Failure>,
    as_of: AsOf,
}

/// The validity of a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AsOf {
    /// As long as the file is this one; `None` if the file was missing.
    File(Option<FileStamp>),
    /// For a limited time from this moment on.
    Time(Instant),
}

/// File metadata that changes with the content.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    file: (u64, u64),
    length: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    pub(crate) fn read_metadata(path: &Path) -> Option<Self> {
        let meta = path.metadata().ok()?;
        Some(Self {
            file: (meta.dev(), meta.ino()),
            length: meta.len(),
            written: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

impl Found {
    fn is_current(&self, now: AsOf) -> bool {
        match (self.as_of, now) {
            (AsOf::File(Some(then)), AsOf::File(Some(now))) => then == now,
            (AsOf::Time(then), AsOf::Time(now)) => now.saturating_duration_since(then) < AGAIN,
            _ => false,
        }
    }
}

impl CurrentValues {
    /// The value of a secret: the known one if it is still valid at `now`, else the result of `look`, which gets the
    /// known value. If many ask at once, one of them reads the value. The others get the known value, or wait if there
    /// is none.
    pub(crate) fn get(
        &self,
        name: &str,
        now: AsOf,
        look: impl FnOnce(Option<&Arc<str>>) -> Result<Arc<str>, Failure>,
    ) -> Result<Arc<str>, Failure> {
        let slot = Arc::clone(lock(&self.0).entry(name.to_owned()).or_default());
        let found = || lock(&slot.found).clone();
        let earlier = found();
        if let Some(found) = earlier.as_ref().filter(|found| found.is_current(now)) {
            return found.value.clone();
        }
        let earlier = earlier.and_then(|found| found.value.ok());
        let _looking = match (slot.looking.try_lock(), &earlier) {
            (Ok(looking), _) => looking,
            (Err(TryLockError::WouldBlock), Some(earlier)) if matches!(now, AsOf::Time(_)) => {
                return Ok(Arc::clone(earlier));
            }
            (Err(_), _) => lock(&slot.looking),
        };
        // Another thread may have read it meanwhile.
        if let Some(found) = found().filter(|found| found.is_current(now)) {
            return found.value;
        }
        let value = match (look(earlier.as_ref()), earlier, now) {
            // A file always has the operator's current value; a command may fail for a while.
            (Err(failure), Some(earlier), AsOf::Time(_)) => {
                tracing::warn!(
                    secret = name,
                    error = failure.message,
                    "the earlier value of a secret stays in use"
                );
                Ok(earlier)
            }
            (value, ..) => value,
        };
        let as_of = match now {
            AsOf::File(_) => now,
            // Reading may have taken long.
            AsOf::Time(then) => AsOf::Time(then.max(Instant::now())),
        };
        *lock(&slot.found) = Some(Found { value: value.clone(), as_of });
        value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use lobster_base::code::Code;

    fn found_value(text: &str) -> Result<Arc<str>, Failure> {
        Ok(text.into())
    }

    fn lookup_failure() -> Result<Arc<str>, Failure> {
        Err(Failure::new(Code::Secret, "it failed"))
    }

    fn unexpected_lookup(_: Option<&Arc<str>>) -> Result<Arc<str>, Failure> {
        panic!("it is not looked for")
    }

    #[test]
    fn a_command_is_asked_once_a_minute_whether_it_fails_or_not() {
        let values = CurrentValues::default();
        let begun = Instant::now();
        let at = |seconds| AsOf::Time(begun + Duration::from_secs(seconds));
        assert!(values.get("a", at(0), |_| lookup_failure()).is_err());
        assert!(values.get("a", at(30), unexpected_lookup).is_err(), "a failure is not tried again at once");
        assert_eq!(values.get("a", at(100), |_| found_value("old")), found_value("old"));
        assert_eq!(values.get("a", at(159), unexpected_lookup), found_value("old"));
        let seen = |earlier: Option<&Arc<str>>| found_value(&format!("after {}", earlier.unwrap()));
        assert_eq!(values.get("a", at(161), seen), found_value("after old"));
        assert_eq!(
            values.get("a", at(300), |_| lookup_failure()),
            found_value("after old"),
            "it may fail for a while"
        );
        assert_eq!(values.get("a", at(301), unexpected_lookup), found_value("after old"));
        assert_eq!(values.get("b", at(301), |_| found_value("other")), found_value("other"));
    }

    #[test]
    fn a_file_is_read_again_when_it_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        let values = CurrentValues::default();
        let now = || AsOf::File(FileStamp::read_metadata(&path));
        let read = |_: Option<&Arc<str>>| match std::fs::read_to_string(&path) {
            Ok(text) => found_value(&text),
            Err(_) => lookup_failure(),
        };
        assert!(values.get("a", now(), read).is_err());
        std::fs::write(&path, "one").unwrap();
        assert_eq!(values.get("a", now(), read), found_value("one"));
        assert_eq!(values.get("a", now(), unexpected_lookup), found_value("one"));
        // A file of the same length, moved to this path.
        std::fs::write(dir.path().join("new"), "two").unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
        assert_eq!(values.get("a", now(), read), found_value("two"));
        std::fs::remove_file(&path).unwrap();
        assert!(values.get("a", now(), read).is_err(), "a file that is gone has no value");
    }

    #[test]
    fn of_many_who_ask_at_once_one_looks() {
        let values = CurrentValues::default();
        let (looks, begin) = (AtomicUsize::new(0), Barrier::new(8));
        let now = AsOf::Time(Instant::now());
        let ask = || {
            begin.wait();
            let found = values.get("a", now, |_| {
                looks.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(50));
                lookup_failure()
            });
            assert!(found.is_err());
        };
        std::thread::scope(|scope| (0..8).for_each(|_| drop(scope.spawn(ask))));
        assert_eq!(looks.load(Ordering::SeqCst), 1);
    }
}
