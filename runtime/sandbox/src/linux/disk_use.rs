//! Watches how much a step adds to its write roots.
//!
//! Not every file system has a limit for directories. So the free space of the file systems is checked from
//! time to time, which costs next to nothing. When it has shrunk by as much as the step may add, the files
//! changed since the start of the step are measured, to find out whether the step did it. Between two
//! measurements it may write more: this is a watch and not a barrier.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, getpid};

use super::tree;

/// Bytes a second that memory can take. The next check is never later than writes at this speed could fill
/// the remaining space.
const FASTEST: u64 = 2 << 30;

/// Shortest time between two checks.
const SOONEST: Duration = Duration::from_millis(10);
const LATEST: Duration = Duration::from_millis(500);

/// File times may lag behind the clock by a kernel tick.
const TICK: Duration = Duration::from_millis(20);

/// Unit of `st_blocks`.
const BLOCK: u64 = 512;

/// The growth of the write roots of one step.
pub(super) struct Growth {
    limit: u64,
    roots: Vec<PathBuf>,
    /// Start of the step in terms of file times.
    since: (i64, i64),
    /// A root on each file system, and its free space at the last check.
    free: Vec<(PathBuf, u64)>,
    devices: HashSet<u64>,
    /// Bytes used since the files were last measured, and the bytes that may be used before they are measured
    /// again.
    taken: u64,
    room: u64,
    next: Instant,
}

impl Growth {
    /// Starts the watch, without a measurement.
    pub(super) fn start_watch(limit: u64, roots: &[PathBuf]) -> Self {
        let now = SystemTime::now().checked_sub(TICK).unwrap_or(UNIX_EPOCH);
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut devices = HashSet::new();
        let mut free = Vec::new();
        for root in roots {
            if let Ok(metadata) = fs::metadata(root)
                && devices.insert(metadata.dev())
                && let Some(bytes) = free_bytes(root)
            {
                free.push((root.clone(), bytes));
            }
        }
        let mut growth = Self {
            limit,
            roots: roots.to_vec(),
            since: (i64::try_from(since.as_secs()).unwrap_or(i64::MAX), i64::from(since.subsec_nanos())),
            free,
            devices,
            taken: 0,
            room: limit,
            next: Instant::now(),
        };
        growth.schedule_next();
        growth
    }

    /// Time until the next check.
    pub(super) fn due_in(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Checks if it is time to, and returns true if the limit is exceeded.
    pub(super) fn has_passed(&mut self) -> bool {
        if !self.due_in().is_zero() {
            return false;
        }
        for (root, before) in &mut self.free {
            if let Some(now) = free_bytes(root) {
                // Space freed by other programs gives the step no more room.
                self.taken += before.saturating_sub(now);
                *before = now;
            }
        }
        if self.taken >= self.room {
            let added = self.changed_bytes();
            if added > self.limit {
                return true;
            }
            self.taken = 0;
            // Keeps writes of other programs from causing a measurement at every check.
            self.room = (self.limit - added).max(self.limit / 16);
        }
        self.schedule_next();
        false
    }

    fn schedule_next(&mut self) {
        let left = self.room.saturating_sub(self.taken);
        let fill = Duration::from_millis(left.saturating_mul(1000) / FASTEST);
        self.next = Instant::now() + fill.clamp(SOONEST, LATEST);
    }

    /// Bytes of the files that have changed since the start, and of removed files that the step still has
    /// open.
    fn changed_bytes(&self) -> u64 {
        let mut seen = HashSet::new();
        let mut bytes = 0;
        let mut add = |metadata: &Metadata| {
            if metadata.nlink() == 1 || seen.insert((metadata.dev(), metadata.ino())) {
                bytes += metadata.blocks() * BLOCK;
            }
        };
        let mut below = self.roots.clone();
        while let Some(directory) = below.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                // Does not follow links.
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_dir() {
                    below.push(entry.path());
                } else if (metadata.ctime(), metadata.ctime_nsec()) >= self.since {
                    add(&metadata);
                }
            }
        }
        for metadata in step_processes().iter().flat_map(|process| open_files(process)) {
            if metadata.is_file() && metadata.nlink() == 0 && self.devices.contains(&metadata.dev()) {
                add(&metadata);
            }
        }
        bytes
    }
}

/// Process directories of the step: all processes in a process namespace, otherwise the descendants of this
/// process, which adopts orphans.
fn step_processes() -> Vec<PathBuf> {
    let of = |pid: &str| Path::new("/proc").join(pid);
    if getpid() == Pid::INIT {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let all = all.filter_map(|entry| entry.file_name().into_string().ok());
        return all.filter(|name| name.parse::<u32>().is_ok()).map(|pid| of(&pid)).collect();
    }
    let mut found = Vec::new();
    let mut next: Vec<PathBuf> = tree::direct_children().iter().map(|pid| of(&pid.to_string())).collect();
    while let Some(process) = next.pop() {
        for thread in fs::read_dir(process.join("task")).into_iter().flatten().flatten() {
            let below = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            next.extend(below.split_ascii_whitespace().map(of));
        }
        found.push(process);
    }
    found
}

fn open_files(process: &Path) -> impl Iterator<Item = Metadata> + use<> {
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    descriptors.filter_map(|descriptor| fs::metadata(descriptor.path()).ok())
}

fn free_bytes(root: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(root).ok()?;
    stat.f_bfree.checked_mul(stat.f_frsize)
}
