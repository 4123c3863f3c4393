//! Group commit: one `fdatasync` of the write-ahead log for all who wait.
//!
//! Whoever finds nobody syncing becomes the leader. It first lets those who are
//! on their way commit, then syncs once for everyone who has. The log is
//! sequential, so a sync also covers every lazy commit before it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::db::{lock, sync_dir};
use super::error::StoreError;
use super::fault;
use super::log::log_path;

/// The longest that a leader waits for others, whatever happens.
const GATHER_AT_MOST: Duration = Duration::from_millis(100);

/// How long it waits for the next of those who are committing right now. They
/// need microseconds, unless another process holds the database.
const COMMIT_AT_MOST: Duration = Duration::from_millis(20);

/// How long a leader waits for one more to arrive while syncs are being shared:
/// about two syncs at first, as waiting longer would not pay.
const WINDOW_MIN: Duration = Duration::from_micros(300);

/// What that time grows to while waiting keeps being worth it.
const WINDOW_MAX: Duration = Duration::from_millis(4);

#[derive(Default)]
struct State {
    /// Writers that asked for durability and have not committed yet.
    on_the_way: usize,
    /// Commits that asked for it.
    committed: u64,
    /// How many of them are durable.
    durable: u64,
    leading: bool,
    /// How many the last sync served: as many are likely to come again.
    last_served: u64,
    /// Whether that was more than the time before.
    growing: bool,
    /// How long to wait for those who are likely to come.
    window: Duration,
    /// The first failure. After it the kernel may have dropped pages that it
    /// could not write, so a later success would prove nothing.
    failed: Option<String>,
    /// Blob files and directories to sync before the log that names them.
    files: Vec<PathBuf>,
    /// Syncs of large blobs that are under way.
    begun: Vec<JoinHandle<io::Result<()>>>,
    log: Option<File>,
    syncs: u64,
}

impl State {
    /// Waits longer the next time if many came, and shorter if fewer did than were waited for.
    fn learn(&mut self, served: u64) {
        self.growing = served > self.last_served;
        self.window = if served >= self.last_served && served > 1 {
            (self.window * 2).clamp(WINDOW_MIN, WINDOW_MAX)
        } else {
            (self.window / 2).max(WINDOW_MIN)
        };
        self.last_served = served;
    }
}

pub(super) struct Group {
    state: Mutex<State>,
    changed: Condvar,
    /// Of the database.
    path: PathBuf,
    /// False only for stores that nobody means to keep.
    sync: bool,
    /// Whether the log's own name may not be durable yet.
    log_is_new: bool,
}

/// A writer that will want its commit durable; the leader waits for it.
pub(super) struct Ticket<'a> {
    group: &'a Group,
    done: bool,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if !self.done {
            lock(&self.group.state).on_the_way -= 1;
            self.group.changed.notify_all();
        }
    }
}

impl Group {
    pub(super) fn new(path: PathBuf, sync: bool, log_is_new: bool) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), path, sync, log_is_new }
    }

    /// Announces a commit that must become durable.
    pub(super) fn enter(&self) -> Ticket<'_> {
        lock(&self.state).on_the_way += 1;
        Ticket { group: self, done: false }
    }

    /// Has `path` synced before the log is, the next time.
    pub(super) fn sync_first(&self, path: &Path) {
        let mut state = lock(&self.state);
        if self.sync && !state.files.iter().any(|p| p == path) {
            state.files.push(path.to_owned());
        }
    }

    /// Begins to sync a large file now, so that there is little to wait for
    /// when it has to be durable.
    pub(super) fn begin_sync(&self, file: File, path: &Path) {
        if !self.sync {
            return;
        }
        let thread = std::thread::Builder::new().name("sync".to_owned());
        match thread.spawn(move || file.sync_data()) {
            Ok(sync) => lock(&self.state).begun.push(sync),
            Err(_) => self.sync_first(path),
        }
    }

    /// How many syncs there have been, of whatever file.
    pub(super) fn syncs(&self) -> u64 {
        lock(&self.state).syncs
    }

    /// Returns once the commit of `ticket` is durable.
    pub(super) fn wait(&self, mut ticket: Ticket<'_>) -> Result<(), StoreError> {
        let mut state = lock(&self.state);
        ticket.done = true;
        state.on_the_way -= 1;
        state.committed += 1;
        let mine = state.committed;
        self.changed.notify_all();
        while state.durable < mine {
            if let Some(first) = &state.failed {
                return Err(StoreError::NotDurable { path: self.path.clone(), first: first.clone() });
            }
            if state.leading {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.leading = true;
            state = self.gather(state);
            let served = state.committed;
            let (files, log) = (std::mem::take(&mut state.files), state.log.take());
            let begun = std::mem::take(&mut state.begun);
            drop(state);
            let result = self.sync_all(begun, &files, log);
            state = lock(&self.state);
            state.leading = false;
            match result {
                Ok((log, syncs)) => {
                    state.log = log;
                    state.syncs += syncs;
                    let count = served - state.durable;
                    state.learn(count);
                    state.durable = served;
                }
                Err(error) => state.failed = Some(error.to_string()),
            }
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Lets those on their way arrive, and while syncs are being shared also
    /// those who are likely to follow.
    fn gather<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let deadline = Instant::now() + GATHER_AT_MOST;
        loop {
            let waiting = state.committed - state.durable;
            let patience = if state.on_the_way > 0 {
                COMMIT_AT_MOST
            } else if waiting < state.last_served {
                state.window
            } else if waiting > 1 && (state.growing || waiting > state.last_served) {
                WINDOW_MIN
            } else {
                return state;
            };
            let left = deadline.saturating_duration_since(Instant::now()).min(patience);
            let seen = state.committed;
            let (next, timeout) =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state = next;
            if timeout.timed_out() && state.committed == seen {
                return state;
            }
        }
    }

    fn sync_all(
        &self,
        begun: Vec<JoinHandle<io::Result<()>>>,
        files: &[PathBuf],
        log: Option<File>,
    ) -> io::Result<(Option<File>, u64)> {
        if !self.sync {
            return Ok((None, 0));
        }
        let mut syncs = (begun.len() + files.len()) as u64 + 1;
        for sync in begun {
            fault::point("sync blob")?;
            sync.join().unwrap_or_else(|_| Err(io::Error::other("a sync has ended early")))?;
        }
        for path in files {
            if path.is_dir() {
                sync_dir(path)?;
                continue;
            }
            fault::point("sync blob")?;
            match File::open(path) {
                Ok(file) => file.sync_data()?,
                // Collected in the meantime: then nothing needs it.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        let log = match log {
            Some(log) => log,
            None => {
                // Every connection keeps the log from being removed, so this stays the right file.
                let log = File::open(log_path(&self.path))?;
                if let (true, Some(dir)) = (self.log_is_new, self.path.parent()) {
                    sync_dir(dir)?;
                    syncs += 1;
                }
                log
            }
        };
        fault::point("sync log")?;
        log.sync_data()?;
        fault::point("synced log")?;
        Ok((Some(log), syncs))
    }
}
