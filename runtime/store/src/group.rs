//! Group commit: one `fdatasync` of the write-ahead log for all waiting writers.
//!
//! A writer that finds no sync in progress becomes the leader. It first waits for the writers that are about to
//! commit, and for registered members that are not busy elsewhere. Then it syncs once for all of them. Branches that
//! begin together thus share one sync, however busy the machine is. The log is sequential, so a sync also covers every
//! lazy commit before it.
//!
//! Processes share the log, so a lazy commit is durable as soon as any of them syncs. Blob files are therefore made
//! durable before a commit names them.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use lobster_base::sync::lock;
use lobster_base::whole_sync::{can_sync_file_system, sync_file_system};

use super::db::sync_dir;
use super::error::StoreError;
use super::wal_file::log_path;
use super::{Store, fault};

/// Number of files above which one sync of the whole file system is cheaper than one for each file.
const MANY: usize = 64;

/// Longest waits of a leader for other writers.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// In total: by then, as many writers as the machine can run at once have arrived, even if it is busy.
    pub(super) gather: Duration,
    /// For the next writer that is committing now. It needs microseconds, unless another process holds the database.
    pub(super) commit: Duration,
    /// For the next expected member. Each needs some milliseconds, and on a busy machine its turn on a CPU. A member
    /// that takes longer is doing something else first, and the leader ignores it until another member arrives.
    pub(super) arrive: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            gather: Duration::from_secs(1),
            commit: Duration::from_millis(20),
            arrive: Duration::from_millis(100),
        }
    }
}

#[derive(Default)]
struct State {
    patience: Patience,
    /// Writers that asked for durability and have not committed yet.
    on_the_way: usize,
    /// Commits that asked for durability.
    committed: u64,
    /// Number of durable commits among them.
    durable: u64,
    leading: bool,
    /// Members of the group: threads that are likely to ask for a sync soon.
    members: usize,
    /// Number of members that did not arrive in time.
    absent: usize,
    /// The first failure. After it, the kernel may have dropped pages that it could not write, so a later success
    /// would prove nothing.
    failed: Option<String>,
    /// Blob files and directories to sync before a transaction names them.
    files: Vec<PathBuf>,
    /// Syncs of large blobs in progress.
    begun: Vec<JoinHandle<io::Result<()>>>,
    log: Option<File>,
    syncs: u64,
}

impl State {
    /// True if a sync that began now would miss a writer that is about to arrive.
    fn somebody_comes(&mut self) -> bool {
        // An absent member has arrived after all: the others are only slow.
        if self.members < self.absent {
            self.absent = 0;
        }
        self.on_the_way > 0 || self.members > self.absent
    }
}

pub(super) struct Group {
    state: Mutex<State>,
    changed: Condvar,
    /// Held while files are synced: other threads wait, since their own files may be among them.
    syncs_files: Mutex<()>,
    /// Path of the database.
    path: PathBuf,
    /// False only for temporary stores.
    sync: bool,
    /// True if the name of the log may not be durable yet.
    log_is_new: bool,
}

/// A writer that needs its commit to be durable; the leader waits for it.
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

thread_local! {
    /// True if this thread is a member, so that leaders wait for it.
    static IS_MEMBER: Cell<bool> = const { Cell::new(false) };
}

/// A reserved place in the commit group, for a thread that has not started yet.
pub struct CommitGroupPlace<'a>(&'a Group);

/// This thread as a member of the commit group: leaders wait for its syncs.
pub struct CommitGroupMember<'a> {
    _place: CommitGroupPlace<'a>,
}

/// This thread outside the commit group: leaders do not wait for it until this is dropped.
pub struct OutsideCommitGroup<'a> {
    group: &'a Group,
    was_member: bool,
}

impl Store {
    /// Reserves a place for a thread that will work in parallel with others and needs durable writes: the others'
    /// syncs wait for it, so that they are shared.
    pub fn join_commit_group(&self) -> CommitGroupPlace<'_> {
        let group = &self.inner.db.group;
        lock(&group.state).members += 1;
        CommitGroupPlace(group)
    }

    /// Takes this thread out of the commit group during something slow, so that no sync waits for it.
    pub fn leave_commit_group(&self) -> OutsideCommitGroup<'_> {
        self.inner.db.group.step_outside()
    }
}

impl<'a> CommitGroupPlace<'a> {
    /// Called by the thread itself, which is a member until the result is dropped.
    pub fn become_member(self) -> CommitGroupMember<'a> {
        IS_MEMBER.set(true);
        CommitGroupMember { _place: self }
    }
}

impl Drop for CommitGroupPlace<'_> {
    fn drop(&mut self) {
        self.0.remove_member();
    }
}

impl Drop for CommitGroupMember<'_> {
    fn drop(&mut self) {
        IS_MEMBER.set(false);
    }
}

impl Drop for OutsideCommitGroup<'_> {
    fn drop(&mut self) {
        if self.was_member {
            IS_MEMBER.set(true);
            lock(&self.group.state).members += 1;
        }
    }
}

impl Group {
    pub(super) fn new(path: PathBuf, sync: bool, log_is_new: bool) -> Self {
        let (state, syncs_files) = (Mutex::default(), Mutex::default());
        Self { state, changed: Condvar::new(), syncs_files, path, sync, log_is_new }
    }

    /// Announces a commit that must become durable.
    pub(super) fn announce_commit(&self) -> Ticket<'_> {
        lock(&self.state).on_the_way += 1;
        Ticket { group: self, done: false }
    }

    /// Has `path` synced before the next transaction that names a file.
    pub(super) fn sync_first(&self, path: &Path) {
        let mut state = lock(&self.state);
        if self.sync && !state.files.iter().any(|p| p == path) {
            state.files.push(path.to_owned());
        }
    }

    /// Makes all placed files durable. Called before the commit of a transaction that names one: the log is shared, so
    /// another process may make the commit durable at any moment.
    pub(super) fn sync_files(&self) -> Result<(), StoreError> {
        let _outside = self.step_outside();
        let _alone = lock(&self.syncs_files);
        let mut state = lock(&self.state);
        if let Some(first) = &state.failed {
            return Err(self.not_durable(first));
        }
        let (files, begun) = (std::mem::take(&mut state.files), std::mem::take(&mut state.begun));
        drop(state);
        let result = sync_all_files(begun, &files);
        let mut state = lock(&self.state);
        match result {
            Ok(syncs) => {
                state.syncs += syncs;
                Ok(())
            }
            Err(error) => {
                let first = state.failed.insert(error.to_string());
                Err(self.not_durable(first))
            }
        }
    }

    fn not_durable(&self, first: &str) -> StoreError {
        StoreError::NotDurable { path: self.path.clone(), first: first.to_owned() }
    }

    /// Starts the sync of a large file now, so that little remains to wait for when it has to be durable.
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

    /// Sets other waits, so that a test does not depend on the machine's speed.
    #[cfg(test)]
    pub(super) fn set_patience(&self, patience: Patience) {
        lock(&self.state).patience = patience;
    }

    /// Number of syncs so far, of all files.
    pub(super) fn sync_count(&self) -> u64 {
        lock(&self.state).syncs
    }

    fn step_outside(&self) -> OutsideCommitGroup<'_> {
        let was_member = IS_MEMBER.replace(false);
        if was_member {
            self.remove_member();
        }
        OutsideCommitGroup { group: self, was_member }
    }

    fn remove_member(&self) {
        lock(&self.state).members -= 1;
        self.changed.notify_all();
    }

    /// Returns once the commit of `ticket` is durable.
    pub(super) fn wait_until_durable(&self, mut ticket: Ticket<'_>) -> Result<(), StoreError> {
        let _outside = self.step_outside();
        let mut state = lock(&self.state);
        ticket.done = true;
        state.on_the_way -= 1;
        state.committed += 1;
        let mine = state.committed;
        self.changed.notify_all();
        while state.durable < mine {
            if let Some(first) = &state.failed {
                return Err(self.not_durable(first));
            }
            if state.leading {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.leading = true;
            state = self.wait_for_writers(state);
            let served = state.committed;
            let log = state.log.take();
            drop(state);
            let result = self.sync_log(log);
            state = lock(&self.state);
            state.leading = false;
            match result {
                Ok((log, syncs)) => {
                    state.log = log;
                    state.syncs += syncs;
                    state.durable = served;
                }
                Err(error) => state.failed = Some(error.to_string()),
            }
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Waits for writers that are about to commit, and for expected members.
    fn wait_for_writers<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let patience = state.patience;
        let deadline = Instant::now() + patience.gather;
        while state.somebody_comes() {
            let next = if state.members > state.absent { patience.arrive } else { patience.commit };
            let left = deadline.saturating_duration_since(Instant::now()).min(next);
            let seen = (state.committed, state.members);
            let (next, timeout) =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
            state = next;
            if timeout.timed_out() && (state.committed, state.members) == seen {
                state.absent = state.members;
                return state;
            }
        }
        state
    }

    /// Makes the log durable, and returns the number of syncs that it took.
    fn sync_log(&self, log: Option<File>) -> io::Result<(Option<File>, u64)> {
        if !self.sync {
            return Ok((None, 0));
        }
        let mut syncs = 1;
        let log = match log {
            Some(log) => log,
            None => {
                // Every connection keeps the log from being removed, so this remains the right file.
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

/// Makes files and directories durable, and returns the number of syncs that it took.
fn sync_all_files(begun: Vec<JoinHandle<io::Result<()>>>, files: &[PathBuf]) -> io::Result<u64> {
    let syncs = (begun.len() + files.len()) as u64;
    for sync in begun {
        fault::point("sync blob")?;
        sync.join().unwrap_or_else(|_| Err(io::Error::other("a sync has ended early")))?;
    }
    // The file system of the files, which may not be that of the database.
    if files.len() > MANY
        && let Some(place) = files.iter().find_map(|path| File::open(path).ok())
        && can_sync_file_system(&place)
    {
        fault::point("sync blob")?;
        sync_file_system(&place)?;
        return Ok(syncs - files.len() as u64 + 1);
    }
    for path in files {
        if path.is_dir() {
            sync_dir(path)?;
            continue;
        }
        fault::point("sync blob")?;
        match File::open(path) {
            Ok(file) => file.sync_data()?,
            // Collected in the meantime, so it is not needed.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok(syncs)
}
