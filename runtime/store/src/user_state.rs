//! Users' state: one JSON file per key, as the incumbent stores it.
//!
//! Used by `state.get`, `state.set` and `diff.last`. A change is made under the key's lock, and readers see either the
//! old file or the new one.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::db::sync_dir;
use super::error::StoreError;
use super::file_lock::{FileLock, Sharing};
use super::{claim, fault, private};
use lobster_base::json;
use lobster_base::regular_file;
use lobster_base::setting::read_path;

/// Longest wait for another holder of a key. The holder computes a single value, so a longer wait means that it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time between two checks of an incumbent's lock.
const POLL: Duration = Duration::from_millis(5);

/// Longest file name on Linux file systems.
const NAME_MAX: usize = 255;

/// Directory of the state: `LOBSTER_STATE_DIR` without surrounding blanks, or `.lobster/state` in the home directory.
/// A relative path stays relative to the working directory.
#[must_use]
pub fn state_dir(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if let Some(dir) = env("LOBSTER_STATE_DIR").and_then(read_path) {
        return Some(dir);
    }
    Some(home_dir(env)?.join(".lobster/state"))
}

/// The home directory: `HOME`, or the directory in the password file. `None` if it is not an absolute path.
#[must_use]
pub fn home_dir(env: &dyn Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let home = env("HOME").filter(|home| !home.is_empty()).map(PathBuf::from).or_else(std::env::home_dir)?;
    home.is_absolute().then_some(home)
}

/// The users' state in one directory.
#[derive(Clone, Debug)]
pub struct UserState {
    dir: PathBuf,
    patience: Duration,
}

impl UserState {
    /// The state kept in `dir`, which need not exist.
    #[must_use]
    pub fn in_dir(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), patience: PATIENCE }
    }

    /// Sets the longest wait for another holder of a key; the default is 30 s.
    #[cfg(test)]
    fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The value of `key`, or `None`. Never waits: a file is replaced as a whole, so a complete one can always be
    /// read.
    ///
    /// # Errors
    /// If the key leaves no file name, or the file cannot be read or is not JSON.
    pub fn get(&self, key: &str) -> Result<Option<Value>, StoreError> {
        let path = self.dir.join(file_name(key)?);
        private::check_dir_owner(&self.dir)?;
        read_value(&path)
    }

    /// Replaces the value of `key`, durably.
    ///
    /// # Errors
    /// As [`UserState::with_lock`], or if it cannot be written.
    pub fn set(&self, key: &str, value: &Value) -> Result<(), StoreError> {
        self.with_lock(key, |state| state.set(value))
    }

    /// Runs `work` while no other process or thread can change `key`. Locking the same key again inside waits until
    /// the time limit.
    ///
    /// # Errors
    /// If the key leaves no file name, the directory is unusable, another holder keeps the key for too long, or `work`
    /// fails.
    pub fn with_lock<T, E: From<StoreError>>(
        &self,
        key: &str,
        work: impl FnOnce(&LockedState) -> Result<T, E>,
    ) -> Result<T, E> {
        let name = file_name(key)?;
        let path = self.dir.join(&name);
        let _lock = self.lock_key(&name, &path)?;
        work(&LockedState { path })
    }

    fn lock_key(&self, name: &str, path: &Path) -> Result<FileLock, StoreError> {
        let unusable = |source: io::Error| match StoreError::io("lock", path, source) {
            StoreError::Io { source, .. } => StoreError::Unusable { path: self.dir.clone(), source },
            other => other,
        };
        make_state_dir(&self.dir).map_err(unusable)?;
        private::close_to_others(&self.dir)?;
        let locks = self.dir.join("store").join("locks");
        for dir in [self.dir.join("store"), locks.clone()] {
            match fs::DirBuilder::new().mode(0o700).create(&dir) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(unusable(e)),
                _ => {}
            }
        }
        // Lock files are never removed: a process that still waits for the removed file could hold its lock at the
        // same time as another one.
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        let file = regular_file::open_own(&mut options, &locks.join(name)).map_err(unusable)?;
        let since = Instant::now();
        let held = |holder: String| StoreError::StateLocked {
            path: path.to_owned(),
            holder,
            seconds: self.patience.as_secs(),
        };
        let lock = FileLock::try_acquire(file, Sharing::Exclusive, self.patience)
            .map_err(unusable)?
            .ok_or_else(|| held("another lobster process".to_owned()))?;
        // The incumbent's lock is a directory. If its process is alive, wait for it; if it is dead, ignore the lock.
        while let Some(pid) = live_incumbent(path) {
            if since.elapsed() >= self.patience {
                return Err(held(format!("process {pid}")));
            }
            std::thread::sleep(POLL);
        }
        Ok(lock)
    }
}

/// One key while its lock is held.
pub struct LockedState {
    path: PathBuf,
}

impl LockedState {
    /// As [`UserState::get`].
    ///
    /// # Errors
    /// If the file cannot be read or is not JSON.
    pub fn get(&self) -> Result<Option<Value>, StoreError> {
        read_value(&self.path)
    }

    /// As [`UserState::set`].
    ///
    /// # Errors
    /// If it cannot be written; the old value is then unchanged.
    pub fn set(&self, value: &Value) -> Result<(), StoreError> {
        let mut text = json::pretty(value);
        text.push('\n');
        replace_file(&self.path, text.as_bytes()).map_err(|e| StoreError::io("write", &self.path, e))
    }

    /// Removes the value of the key; true if it had one.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove_value(&self) -> Result<bool, StoreError> {
        let remove = || match fs::remove_file(&self.path) {
            Ok(()) => sync_dir(parent_dir(&self.path)).map(|()| true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(e),
        };
        remove().map_err(|e| StoreError::io("remove", &self.path, e))
    }
}

/// The incumbent's file name for a key: lower case; each run of characters outside `a-z0-9.-` becomes one `_`, and one
/// `_` is cut from either end.
fn file_name(key: &str) -> Result<String, StoreError> {
    let mut name = String::with_capacity(key.len() + 5);
    for c in key.chars().flat_map(char::to_lowercase) {
        let kept = matches!(c, 'a'..='z' | '0'..='9' | '.' | '-');
        if kept || !name.ends_with('_') {
            name.push(if kept { c } else { '_' });
        }
    }
    let name = name.strip_prefix('_').unwrap_or(&name);
    let name = name.strip_suffix('_').unwrap_or(name);
    if name.is_empty() {
        return Err(StoreError::StateKey);
    }
    let name = format!("{name}.json");
    if name.len() > NAME_MAX {
        let source = io::Error::from(io::ErrorKind::InvalidFilename);
        return Err(StoreError::Io { doing: "use the long key", path: name.into(), source });
    }
    Ok(name)
}

fn read_value(path: &Path) -> Result<Option<Value>, StoreError> {
    let mut text = Vec::new();
    // A user may have put a link there.
    match regular_file::open(path).and_then(|mut file| file.read_to_end(&mut text)) {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            return Err(StoreError::Unusable { path: parent_dir(path).to_owned(), source: e });
        }
        Err(e) => return Err(StoreError::io("read", path, e)),
    }
    let damaged = |why: String| StoreError::StateText { path: path.to_owned(), why };
    let text = String::from_utf8(text).map_err(|e| damaged(e.to_string()))?;
    json::parse(&text).map(Some).map_err(|e| damaged(e.to_string()))
}

/// Writes a new file and moves it into place: readers never see half a file, and a symbolic link is replaced, not
/// followed. A mode set by the user is kept.
fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let dir = parent_dir(path);
    fault::point("state file")?;
    let mut draft = tempfile::Builder::new().prefix(".lobster-").suffix(".tmp").tempfile_in(dir)?;
    draft.write_all(bytes)?;
    if let Ok(meta) = fs::symlink_metadata(path)
        && meta.is_file()
    {
        let mode = meta.permissions().mode() & 0o777;
        draft.as_file().set_permissions(fs::Permissions::from_mode(mode))?;
    }
    fault::point("state sync")?;
    draft.as_file().sync_all()?;
    fault::point("state rename")?;
    draft.persist(path).map_err(|e| e.error)?;
    sync_dir(dir)
}

fn parent_dir(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

/// Creates the state directory.
fn make_state_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let missing: Vec<_> = dir.ancestors().take_while(|d| !d.as_os_str().is_empty() && !d.exists()).collect();
    private::make_dir(dir)?;
    missing.iter().filter_map(|d| d.parent()).try_for_each(sync_dir)
}

/// The living incumbent process that holds `path`, if any: `<path>.lock/owner` contains `<pid>:<start time or
/// nothing>:<nonce>`.
fn live_incumbent(path: &Path) -> Option<u32> {
    let mut owner = path.as_os_str().to_owned();
    owner.push(".lock/owner");
    let text = regular_file::read_own_text(Path::new(&owner)).ok()?;
    let mut fields = text.trim().split(':');
    let pid: u32 = fields.next()?.parse().ok()?;
    let started = fields.next()?;
    let now = claim::process_start_time(pid)?.to_string();
    // Without a start time, the pid may belong to another process by now. Waiting for that one has a time limit, while
    // ignoring a real holder would be unsafe.
    (started.is_empty() || started == now).then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    fn state_in(dir: &tempfile::TempDir) -> UserState {
        UserState::in_dir(dir.path()).with_patience(Duration::from_millis(150))
    }

    #[test]
    fn names_are_the_incumbents() {
        for (key, name) in [
            ("A B/C", "a_b_c.json"),
            ("../../etc/x", ".._.._etc_x.json"),
            ("_x_", "x.json"),
            ("__x__", "x.json"),
            (".", "..json"),
            ("..", "...json"),
            ("true", "true.json"),
            ("é-1", "-1.json"),
        ] {
            assert_eq!(file_name(key).ok().as_deref(), Some(name), "{key}");
        }
        for key in ["", "日本", "_", "///"] {
            assert!(matches!(file_name(key), Err(StoreError::StateKey)), "{key}");
        }
        assert!(file_name(&"k".repeat(250)).is_ok());
        assert!(matches!(file_name(&"k".repeat(251)), Err(StoreError::Io { .. })));
    }

    #[test]
    fn text_mode_and_atomicity_are_the_incumbents() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let state = state_in(&dir);
        assert_eq!(state.get("k")?, None);
        state.set("K", &json!({"b": [1.0, true], "a": {}}))?;
        let path = dir.path().join("k.json");
        assert_eq!(fs::read_to_string(&path)?, "{\n  \"b\": [\n    1,\n    true\n  ],\n  \"a\": {}\n}\n");
        assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        state.set("k", &json!(1))?;
        assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o644);

        let target = dir.path().join("target");
        fs::write(&target, "kept")?;
        std::os::unix::fs::symlink(&target, dir.path().join("link.json"))?;
        state.set("link", &json!(2))?;
        assert_eq!((fs::read_to_string(&target)?, state.get("link")?), ("kept".into(), Some(json!(2))));

        let remove = || state.with_lock("k", |state| state.remove_value());
        assert!(remove()? && !remove()?);
        let left: Vec<_> = fs::read_dir(dir.path())?.filter_map(|e| Some(e.ok()?.file_name())).collect();
        assert!(!left.iter().any(|n| n.to_string_lossy().ends_with(".tmp")), "{left:?}");
        Ok(())
    }

    #[test]
    fn long_keys_work_and_damaged_files_say_where() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let state = state_in(&dir);
        let key = "k".repeat(250);
        state.set(&key, &json!([]))?;
        assert_eq!(state.get(&key)?, Some(json!([])));
        fs::write(dir.path().join("bad.json"), "{")?;
        assert!(
            matches!(state.get("bad"), Err(StoreError::StateText { path, .. }) if path.ends_with("bad.json"))
        );
        Ok(())
    }

    #[test]
    fn changes_are_not_lost() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let state = UserState::in_dir(dir.path());
                scope.spawn(move || {
                    for _ in 0..20 {
                        let done = state.with_lock("ctr", |ctr| {
                            let n = ctr.get()?.and_then(|v| v.as_u64()).unwrap_or(0);
                            ctr.set(&json!(n + 1))
                        });
                        assert!(done.is_ok(), "{done:?}");
                    }
                });
            }
        });
        assert_eq!(UserState::in_dir(dir.path()).get("ctr")?, Some(json!(160)));
        Ok(())
    }

    #[test]
    fn leftovers_of_the_incumbent_do_not_block_but_its_living_processes_do()
    -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let state = state_in(&dir);
        let lock = dir.path().join("k.json.lock");
        fs::write(&lock, "a regular file")?;
        state.set("k", &json!(1))?;
        fs::remove_file(&lock)?;
        fs::create_dir(&lock)?;
        state.set("k", &json!(2))?;
        fs::write(lock.join("owner"), "999999999:1:abc\n")?;
        state.set("k", &json!(3))?;
        let me = std::process::id();
        fs::write(lock.join("owner"), format!("{me}:1:abc\n"))?;
        state.set("k", &json!(4))?;
        let stat = fs::read_to_string("/proc/self/stat")?;
        let start = stat.rsplit_once(')').and_then(|(_, s)| s.split_whitespace().nth(19)).unwrap_or_default();
        fs::write(lock.join("owner"), format!("{me}:{start}:abc\n"))?;
        let held = state.set("k", &json!(5));
        assert!(
            matches!(&held, Err(StoreError::StateLocked { holder, .. }) if *holder == format!("process {me}"))
        );
        assert_eq!(state.get("k")?, Some(json!(4)));
        Ok(())
    }

    #[test]
    fn a_held_key_and_an_unusable_directory_are_errors() -> Result<(), Box<dyn std::error::Error>> {
        let dir = tempfile::tempdir()?;
        let state = state_in(&dir);
        let twice = state.with_lock("k", |_| state.set("k", &json!(1)));
        assert!(matches!(twice, Err(StoreError::StateLocked { .. })), "{twice:?}");
        let nowhere = UserState::in_dir(Path::new("/dev/null/x"));
        assert!(matches!(nowhere.set("k", &json!(1)), Err(StoreError::Unusable { .. })));
        assert!(nowhere.get("k").is_err());
        Ok(())
    }

    #[test]
    fn the_directory_comes_from_the_environment() {
        let env = |name: &str| match name {
            "LOBSTER_STATE_DIR" => Some("  rel/dir ".into()),
            _ => None,
        };
        assert_eq!(state_dir(&env), Some("rel/dir".into()));
        let env = |name: &str| match name {
            "LOBSTER_STATE_DIR" => Some("  ".into()),
            "HOME" => Some("/h".into()),
            _ => None,
        };
        assert_eq!(state_dir(&env), Some("/h/.lobster/state".into()));
        assert_eq!(
            state_dir(&|name| (name == "HOME").then(|| "h".into())),
            None,
            "a home that moves with the caller"
        );
        let odd = OsStr::from_bytes(b"/s\xff");
        assert_eq!(state_dir(&|_| Some(odd.to_owned())), Some(odd.into()), "a path need not be text");
    }
}
