//! Listings of directories, with the entries that matter to a walk, remembered from one step to the next.
//!
//! Each entry that is added, removed or renamed updates the change time of its directory, and only the kernel
//! sets that time. While it is unchanged, a remembered listing is up to date. This is used only where it is
//! known to be reliable: on local file systems, and if the change time was in the past by more than the clock
//! resolution when the directory was read. All other directories are read again.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, RawDir, Stat, fstat, fstatfs, statat};
use rustix::time::{ClockId, clock_gettime};

use super::super::patterns::Names;
use lobster_base::sync::lock;

/// If a directory was changed this recently, another change may get the same time from its file system. The
/// coarsest clocks have a resolution of two seconds.
const COARSE: Duration = Duration::from_millis(2_500);

/// Half a second of difference between the clocks means that one has been set.
const CLOCK_WAS_SET: i128 = 500_000_000;

/// Approximate bytes that are remembered for one list of patterns; beyond that the memory is cleared.
const MOST_BYTES: usize = 32 << 20;

/// Lists of patterns with remembered listings, enough for the steps of a run.
const MOST_LISTS: usize = 4;

/// File systems with reliable directory times: only this kernel writes to them.
const LOCAL: [i64; 10] = [
    0xef53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0x0102_1994, // tmpfs
    0x794c_7630, // overlayfs
    0xf2f5_2010, // F2FS
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0x8584_58f6, // ramfs
    0x7371_7368, // SquashFS
];

/// Content of a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RootListing {
    /// Directories, sockets, `.git`, and names that a pattern may match.
    pub(super) of_note: Vec<(OsString, FileType)>,
    /// True if there are other entries.
    pub(super) others: bool,
    /// Number of entries.
    pub(super) entries: u64,
    /// True if it has all entries by which git recognises its own directories.
    pub(super) is_git_like: bool,
}

/// Entries that a walk needs.
#[derive(Clone, Copy)]
pub(super) enum Wanted<'a> {
    All,
    /// Names that patterns may match, in addition to the entries that always matter.
    Names(&'a Names),
}

impl RootListing {
    /// Reads a whole directory.
    ///
    /// # Errors
    /// A read error, or more than `most` entries.
    pub(super) fn read_directory(
        directory: BorrowedFd<'_>,
        wanted: Wanted<'_>,
        most: u64,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Result<Self, Unread> {
        let mut listing = Self::default();
        let mut git_like = 0;
        let mut entries = RawDir::new(directory, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|error| Unread::Error(error.into()))?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            listing.entries += 1;
            if listing.entries > most {
                return Err(Unread::TooMany);
            }
            git_like |= git_name(name);
            let kind = match entry.file_type() {
                FileType::Unknown => kind_of(directory, name),
                kind => kind,
            };
            let of_note = matches!(kind, FileType::Directory | FileType::Socket)
                || name == b".git"
                || match wanted {
                    Wanted::All => true,
                    Wanted::Names(names) => names.may_be(name),
                };
            if of_note {
                listing.of_note.push((OsStr::from_bytes(name).to_owned(), kind));
            } else {
                listing.others = true;
            }
        }
        listing.is_git_like = git_like == 0b111;
        Ok(listing)
    }

    fn memory_use(&self) -> usize {
        self.of_note.iter().map(|(name, _)| 48 + name.len()).sum::<usize>() + 160
    }
}

/// Reason why a directory was not read.
#[derive(Debug)]
pub(super) enum Unread {
    Error(std::io::Error),
    TooMany,
}

fn git_name(name: &[u8]) -> u8 {
    match name {
        b"HEAD" => 1,
        b"objects" => 2,
        b"refs" => 4,
        _ => 0,
    }
}

/// Kind of an entry, for file systems that do not return it with the name.
pub(super) fn kind_of(directory: BorrowedFd<'_>, name: &[u8]) -> FileType {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode))
}

/// Memory shared by walks with the same patterns.
type Shared = Arc<Mutex<Listings>>;

/// Memory of the walks of one sandbox.
#[derive(Debug)]
pub(super) struct Memory {
    /// By the patterns that decide which entries matter; the latest first.
    lists: Mutex<Vec<(Vec<String>, Shared)>>,
    coarse: Duration,
}

impl Default for Memory {
    fn default() -> Self {
        Self { lists: Mutex::default(), coarse: COARSE }
    }
}

impl Memory {
    /// For file systems with better clocks.
    #[cfg(test)]
    pub(super) fn with_clocks_of(coarse: Duration) -> Self {
        Self { coarse, ..Self::default() }
    }

    /// Number of remembered directories.
    #[cfg(test)]
    pub(super) fn listing_count(&self) -> usize {
        let lists = lock(&self.lists);
        lists.iter().map(|(_, list)| lock(list).by_place.len()).sum()
    }

    /// Memory for walks with these patterns, starting now.
    pub(super) fn recall_for(&self, patterns: &[String]) -> Recall {
        let mut lists = lock(&self.lists);
        let known = lists.iter().position(|(list, _)| list == patterns);
        let list = known.map_or_else(|| (patterns.to_vec(), Arc::default()), |known| lists.remove(known));
        let listings = Arc::clone(&list.1);
        lists.insert(0, list);
        lists.truncate(MOST_LISTS);
        drop(lists);
        let now = clock_nanoseconds(ClockId::Realtime);
        let shift = now - clock_nanoseconds(ClockId::Boottime);
        let mut known = lock(&listings);
        if (known.shift - shift).abs() > CLOCK_WAS_SET {
            *known = Listings { shift, ..Listings::default() };
        }
        drop(known);
        Recall { listings, settled: now - i128::try_from(self.coarse.as_nanos()).unwrap_or(i128::MAX) }
    }
}

fn clock_nanoseconds(clock: ClockId) -> i128 {
    let time = clock_gettime(clock);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}

/// Listings of directories by device and inode.
#[derive(Debug, Default)]
struct Listings {
    by_place: HashMap<(u64, u64), (Stamp, Arc<RootListing>)>,
    /// True if the file system of a device is one of [`LOCAL`].
    local: HashMap<u64, bool>,
    bytes: usize,
    /// Difference between the time of day and the time since the start.
    shift: i128,
}

/// Change times of a directory: its inode, and its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp(i128, i128);

impl Stamp {
    fn from_stat(stat: &Stat) -> Self {
        let time = |seconds, nanoseconds| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        Self(time(stat.st_ctime, stat.st_ctime_nsec), time(stat.st_mtime, stat.st_mtime_nsec))
    }
}

/// The memory of one walk.
pub(super) struct Recall {
    listings: Shared,
    /// Changes before this time cannot be followed by others with the same time.
    settled: i128,
}

impl Recall {
    /// Content of the directory with this status, if it is unchanged since it was read.
    pub(super) fn get(&self, stat: &Stat) -> Option<Arc<RootListing>> {
        let listings = lock(&self.listings);
        let (stamp, listing) = listings.by_place.get(&(stat.st_dev, stat.st_ino))?;
        (*stamp == Stamp::from_stat(stat)).then(|| Arc::clone(listing))
    }

    /// Reads a directory, and remembers it if that is safe.
    ///
    /// # Errors
    /// See [`RootListing::read_directory`].
    pub(super) fn read_directory(
        &self,
        directory: BorrowedFd<'_>,
        names: &Names,
        most: u64,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Result<Arc<RootListing>, Unread> {
        // Taken before reading: a change during the reading has a later time.
        let stat = fstat(directory).map_err(|error| Unread::Error(error.into()))?;
        let listing = Arc::new(RootListing::read_directory(directory, Wanted::Names(names), most, buffer)?);
        let stamp = Stamp::from_stat(&stat);
        if stamp.0.max(stamp.1) < self.settled {
            self.remember_listing(directory, &stat, stamp, &listing);
        }
        Ok(listing)
    }

    fn remember_listing(
        &self,
        directory: BorrowedFd<'_>,
        stat: &Stat,
        stamp: Stamp,
        listing: &Arc<RootListing>,
    ) {
        let mut listings = lock(&self.listings);
        let is_local = *listings.local.entry(stat.st_dev).or_insert_with(|| {
            fstatfs(directory).is_ok_and(|system| LOCAL.iter().any(|magic| is_magic(&system, *magic)))
        });
        if !is_local {
            return;
        }
        if listings.bytes > MOST_BYTES {
            *listings = Listings { shift: listings.shift, ..Listings::default() };
        }
        listings.bytes += listing.memory_use();
        let place = (stat.st_dev, stat.st_ino);
        if let Some((_, old)) = listings.by_place.insert(place, (stamp, Arc::clone(listing))) {
            listings.bytes -= old.memory_use();
        }
    }
}

fn is_magic(system: &rustix::fs::StatFs, magic: i64) -> bool {
    #[expect(clippy::unnecessary_cast, reason = "the field has another width on other machines")]
    let own = system.f_type as i64;
    own & 0xffff_ffff == magic
}
