//! Listings of file trees: each file with the digest of its content, and one digest of the whole tree.
//!
//! Users cannot set the time of change (ctime) of a file. If the name, number, size and time of change of a file are
//! the same as in an earlier listing, it still has the same bytes and is not read again. This requires two conditions.
//! Two writes must not get the same time, so a file that was too young when it was read is read again. And a write
//! through mapped memory must get a new time, which it does after a sync, so a file changed in the last minute is
//! synced before it is read. Other file systems than those in [`systems`] promise less: their files are always read,
//! and a listing names them, because equal times at its end do not prove that nothing changed while a command ran.
//!
//! ext4 has a request that exchanges blocks of files and gives them no new time (`EXT4_IOC_MOVE_EXT`). A small tree can
//! be read in any case: see [`TreeReader::list_reading_small`].
//!
//! A listing is a file in the order of the walk, so memory does not grow with the tree.

use std::cmp::Ordering;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, fsync, openat, readlinkat, statat, syncfs};

use crate::digest::Digest;
use attributes::digest_attributes;
use differences::compare_listings;
use entries::{FoundEntry, TreeEntry};
use kept::{kept_name, latest_name, remove_oldest};

pub use differences::Differences;

mod attributes;
mod differences;
mod entries;
mod kept;
mod systems;

/// A file that changed within this time is synced before it is read. The kernel writes mapped memory back every 30 s
/// by itself.
const SYNCED_WITHIN: i128 = 60_000_000_000;

/// Two writes within this time can have the same time of change: a kernel's clock has steps of at most 10 ms …
const FINE_CLOCK: i128 = 20_000_000;

/// … and a file system without nanoseconds has steps of a second.
const COARSE_CLOCK: i128 = 2_500_000_000;

/// Most files that are synced one by one; after that, their whole file system is synced.
const SYNCED_ALONE: u32 = 8;

/// Bytes of lines that are hashed and written at a time.
const BUFFER: usize = 64 << 10;

/// Flags that open a directory of the tree.
const OF_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Most gaps of one tree that are listed.
const MAX_GAPS: usize = 20;

/// Reason why a tree has no listing.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// It exceeds the rest of the limits.
    #[error("it has more than {files} files or {} GiB", .bytes >> 30)]
    TooLarge { files: u64, bytes: u64 },
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
}

/// Limits of a listing.
#[derive(Clone, Copy, Debug)]
pub struct TreeLimits {
    pub files: u64,
    pub bytes: u64,
}

/// Settings of a listing.
pub struct TreeReader<'a> {
    /// Directory of the stored listings.
    pub kept_in: &'a Path,
    /// True to store this listing too.
    pub keeps: bool,
    pub limits: TreeLimits,
    /// True for a path, relative to the root, that is excluded together with everything below it.
    pub leaves_out: &'a (dyn Fn(&Path) -> bool + Sync),
}

/// Content of a tree when it was listed.
#[derive(Debug)]
pub struct Listing {
    pub root: PathBuf,
    /// Covers all names, kinds, rights, owners, extended attributes and contents.
    pub digest: Digest,
    pub files: u64,
    pub bytes: u64,
    /// Parts that no digest covers, as messages.
    pub gaps: Vec<String>,
    /// True if every file is on a file system where each write gives it another time.
    pub keeps_times: bool,
    /// Device and number of the root.
    pub identity: (u64, u64),
    /// True if a file was not read, because its times were as in the earlier listing.
    is_by_times: bool,
    records: File,
    /// The directories that were set apart.
    apart: Vec<Record>,
}

impl TreeReader<'_> {
    /// Lists `root`, a directory or a file.
    ///
    /// # Errors
    /// If the root cannot be read, the tree is too large, or the listing cannot be written.
    pub fn list_root(&self, root: &Path) -> Result<Listing, TreeError> {
        self.list_setting_apart(root, &[])
    }

    /// The same, with directories that the digest does not cover, named relative to the root. It covers their content,
    /// and [`Listing::changes_until`] compares them as well.
    ///
    /// # Errors
    /// As [`Self::list_root`].
    pub fn list_setting_apart(&self, root: &Path, apart: &[&Path]) -> Result<Listing, TreeError> {
        self.walk_tree(root, apart, true)
    }

    /// The same, but a tree within the limits `small` is read even if the times of its files are as in an earlier
    /// listing.
    ///
    /// # Errors
    /// As [`Self::list_root`].
    pub fn list_reading_small(
        &self,
        root: &Path,
        apart: &[&Path],
        small: TreeLimits,
    ) -> Result<Listing, TreeError> {
        let listing = self.walk_tree(root, apart, true)?;
        let is_small = listing.files <= small.files && listing.bytes <= small.bytes;
        if listing.is_by_times && is_small { self.walk_tree(root, apart, false) } else { Ok(listing) }
    }

    fn walk_tree(&self, root: &Path, apart: &[&Path], by_times: bool) -> Result<Listing, TreeError> {
        let of_path = |path: &Path| {
            let path = path.display().to_string();
            move |source: io::Error| TreeError::Io { path, source }
        };
        let latest = self.kept_in.join(latest_name(root));
        if self.keeps {
            fs::create_dir_all(self.kept_in).map_err(of_path(self.kept_in))?;
        }
        let spool = if self.keeps { tempfile::tempfile_in(self.kept_in) } else { tempfile::tempfile() };
        let records = spool.map_err(of_path(self.kept_in))?;
        let known = crate::regular_file::open_own(File::options().read(true), &latest).ok();
        let mut walk = Walk {
            reader: self,
            known: known.map(Records::new),
            next: None,
            is_new: false,
            by_times,
            is_by_times: false,
            out: BufWriter::with_capacity(BUFFER, records),
            hasher: BufWriter::with_capacity(BUFFER, blake3::Hasher::new()),
            devices: Vec::new(),
            synced: Synced::default(),
            set_apart: apart,
            apart: Vec::new(),
            files: 0,
            bytes: 0,
            gaps: Vec::new(),
        };
        walk.is_new = walk.known.is_none();
        walk.read_next().map_err(of_path(&latest))?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let top = openat(rustix::fs::CWD, root, flags, Mode::empty()).map_err(|e| of_path(root)(e.into()))?;
        let stat = fstat(&top).map_err(|error| of_path(root)(error.into()))?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            walk.note_directory((&stat, b""), false, || digest_attributes(&top)).map_err(of_path(root))?;
            entries::each_entry(top, self.leaves_out, |found| walk.note_found(found))?;
        } else {
            // A file is examined by its name in the directory above.
            let above = root.parent().unwrap_or(Path::new("/"));
            let dir = openat(rustix::fs::CWD, above, flags, Mode::empty());
            let dir = dir.map_err(|error| of_path(above)(error.into()))?;
            let name = root.file_name().unwrap_or_default().as_bytes();
            let name = CString::new(name).map_err(|error| of_path(root)(error.into()))?;
            let at = statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(|e| of_path(root)(e.into()))?;
            walk.note_found(FoundEntry::Entry(TreeEntry::new(Arc::new(dir), at, name, 0)))?;
        }
        walk.is_new |= walk.next.is_some();
        let hasher = walk.hasher.into_inner().map_err(|error| of_path(root)(error.into_error()))?;
        let digest = Digest::from(hasher.finalize());
        let records = walk.out.into_inner().map_err(|error| of_path(&latest)(error.into_error()))?;
        let listing = Listing {
            root: root.to_owned(),
            digest,
            files: walk.files,
            bytes: walk.bytes,
            gaps: walk.gaps,
            keeps_times: walk.devices.iter().all(|(_, proves)| *proves),
            identity: file_identity(&stat),
            is_by_times: walk.is_by_times,
            records,
            apart: walk.apart,
        };
        if self.keeps && walk.is_new {
            self.keep_listing(&listing).map_err(of_path(self.kept_in))?;
        }
        Ok(listing)
    }

    /// Stores a listing under two names: as the latest of its root, and by its digest for [`Self::changes_since`].
    fn keep_listing(&self, listing: &Listing) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(self.kept_in)?;
        io::copy(&mut listing.rewound_records()?, &mut file)?;
        let by_digest = self.kept_in.join(kept_name(&listing.root, &listing.digest));
        file.persist(&by_digest)?;
        let latest =
            tempfile::Builder::new().make_in(self.kept_in, |path| fs::hard_link(&by_digest, path))?;
        latest.into_temp_path().persist(self.kept_in.join(latest_name(&listing.root)))?;
        remove_oldest(self.kept_in)
    }

    /// Differences from the tree with this digest; `None` if its listing no longer exists.
    pub fn changes_since(&self, before: &Digest, now: &Listing) -> Option<Differences> {
        let kept = self.kept_in.join(kept_name(&now.root, before));
        let kept = crate::regular_file::open_own(File::options().read(true), &kept).ok()?;
        compare_listings(kept, now.rewound_records().ok()?, false).ok()
    }
}

impl Listing {
    /// Differences between this listing and a later one of the same root, including changed times.
    ///
    /// # Errors
    /// If a listing cannot be read.
    pub fn changes_until(&self, later: &Self) -> io::Result<Differences> {
        let mut differences = compare_listings(self.rewound_records()?, later.rewound_records()?, true)?;
        for record in &self.apart {
            if !later.apart.contains(record) {
                differences.add_path(record.path(), "changed");
            }
        }
        for record in &later.apart {
            if self.apart.iter().all(|before| before.path() != record.path()) {
                differences.add_path(record.path(), "new");
            }
        }
        Ok(differences)
    }

    /// True if the listing contains this path, relative to its root.
    ///
    /// # Errors
    /// If the listing cannot be read.
    pub fn contains(&self, path: &Path) -> io::Result<bool> {
        let mut records = Records::new(self.rewound_records()?);
        while let Some(record) = records.next()? {
            match in_order(record.path(), path.as_os_str().as_bytes()) {
                Ordering::Less => {}
                order => return Ok(order == Ordering::Equal),
            }
        }
        Ok(false)
    }

    fn rewound_records(&self) -> io::Result<&File> {
        (&self.records).rewind()?;
        Ok(&self.records)
    }
}

/// One entry: the line that an approval binds, and the stamp that identifies the entry.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    /// The kind, the rights, the owner and the attributes, then the digest, then the path.
    line: Vec<u8>,
    /// Device, number, time of change and size, after a `!` if they do not prove the content.
    stamp: Vec<u8>,
}

impl Record {
    fn path(&self) -> &[u8] {
        self.line.splitn(3, |byte| *byte == b' ').nth(2).unwrap_or_default()
    }

    fn bare_stamp(&self) -> &[u8] {
        self.stamp.strip_prefix(b"!").unwrap_or(&self.stamp)
    }
}

struct Records<R>(BufReader<R>);

impl<R: Read> Records<R> {
    fn new(from: R) -> Self {
        Self(BufReader::with_capacity(BUFFER, from))
    }

    fn next(&mut self) -> io::Result<Option<Record>> {
        let (mut line, mut stamp) = (Vec::with_capacity(128), Vec::with_capacity(64));
        self.0.read_until(0, &mut line)?;
        self.0.read_until(0, &mut stamp)?;
        // A record without its end is invalid.
        Ok((line.pop() == Some(0) && stamp.pop() == Some(0) && !line.is_empty())
            .then_some(Record { line, stamp }))
    }
}

/// The order in which a tree is walked: a directory, its content, then the entries after it.
fn in_order(one: &[u8], other: &[u8]) -> Ordering {
    let names = |path: &'_ [u8]| path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect::<Vec<_>>();
    match one.iter().zip(other).position(|(a, b)| a != b) {
        // In the usual case names need not be split: the first difference is inside a name.
        Some(at) if one[at] != b'/' && other[at] != b'/' => one[at].cmp(&other[at]),
        Some(_) => names(one).cmp(&names(other)),
        None => one.len().cmp(&other.len()),
    }
}

/// Syncs since the walk began.
#[derive(Default)]
struct Synced {
    alone: u32,
    /// Time and device of the last sync of a whole file system; a tree seldom has two.
    whole: Option<(i128, u64)>,
}

struct Walk<'a> {
    reader: &'a TreeReader<'a>,
    known: Option<Records<File>>,
    /// The next entry of the earlier listing.
    next: Option<Record>,
    /// True if this listing differs from the earlier one.
    is_new: bool,
    /// True if a file whose times are as in the earlier listing need not be read.
    by_times: bool,
    /// True if a file was not read.
    is_by_times: bool,
    out: BufWriter<File>,
    /// Hashes many lines at a time, because a short line costs as much as a whole block.
    hasher: BufWriter<blake3::Hasher>,
    /// The devices so far, and true if their times prove the content.
    devices: Vec<(u64, bool)>,
    synced: Synced,
    /// Paths of the directories that are to be set apart.
    set_apart: &'a [&'a Path],
    apart: Vec<Record>,
    files: u64,
    bytes: u64,
    gaps: Vec<String>,
}

/// Result of reading a file.
enum Content {
    Digest {
        digest: Digest,
        attributes: Option<Digest>,
        is_proven: bool,
        stat: Box<Stat>,
    },
    /// The reason why there is none.
    Gap(String),
}

impl Walk<'_> {
    fn read_next(&mut self) -> io::Result<()> {
        self.next = match &mut self.known {
            Some(known) => known.next()?,
            None => None,
        };
        Ok(())
    }

    /// The record of this path in the earlier listing.
    fn take_known(&mut self, path: &[u8]) -> io::Result<Option<Record>> {
        while let Some(next) = &self.next {
            match in_order(next.path(), path) {
                Ordering::Less => {
                    self.is_new = true;
                    self.read_next()?;
                }
                Ordering::Equal => {
                    let found = self.next.take();
                    self.read_next()?;
                    return Ok(found);
                }
                Ordering::Greater => break,
            }
        }
        Ok(None)
    }

    fn note_found(&mut self, found: FoundEntry) -> Result<(), TreeError> {
        let entry = match found {
            FoundEntry::Entry(entry) => entry,
            FoundEntry::Gap(path, why) => {
                self.add_gap(&path, &why);
                return Ok(());
            }
        };
        let (path, stat) = (entry.path(), &entry.stat);
        let wrong = wrong_at(path);
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => self.note_file(&entry)?,
            FileType::Directory if self.is_set_apart(path) => {
                self.apart.push(make_record(b'd', stat, None, None, path));
            }
            FileType::Directory => {
                let proves = self.device_proves(&entry);
                // The walk itself reports a directory that cannot be opened.
                let opened = || openat(&entry.dir, entry.name(), OF_DIRECTORY, Mode::empty());
                let attributes = || opened().map_or(Ok(None), digest_attributes);
                self.note_directory((stat, path), proves, attributes).map_err(wrong)?;
            }
            FileType::Symlink => {
                let target = readlinkat(&entry.dir, entry.name(), Vec::new());
                let target = Digest::of_bytes(target.map_err(|error| wrong(error.into()))?.as_bytes());
                self.note_entry(b'l', stat, Some((target, true)), path).map_err(wrong)?;
            }
            _ => {
                self.note_entry(b'p', stat, None, path).map_err(wrong)?;
                self.add_gap(path, "it is a pipe, a socket or a device");
            }
        }
        Ok(())
    }

    fn is_set_apart(&self, path: &[u8]) -> bool {
        self.set_apart.iter().any(|apart| apart.as_os_str().as_bytes() == path)
    }

    fn note_file(&mut self, entry: &TreeEntry) -> Result<(), TreeError> {
        let (path, stat) = (entry.path(), &entry.stat);
        let wrong = wrong_at(path);
        self.files += 1;
        self.bytes = self.bytes.saturating_add(u64::try_from(stat.st_size).unwrap_or(0));
        let TreeLimits { files, bytes } = self.reader.limits;
        if self.files > files || self.bytes > bytes {
            return Err(TreeError::TooLarge { files, bytes });
        }
        let proves = self.device_proves(entry);
        let known = self.take_known(path).map_err(wrong)?;
        let stamp = file_stamp(stat);
        let has_known_times = known.as_ref().is_some_and(|known| proves && known.stamp == stamp.as_bytes());
        if let Some(known) = known.as_ref().filter(|_| has_known_times && self.by_times) {
            self.is_by_times = true;
            return self.write_record(known).map_err(wrong);
        }
        let record = match self.read_content(entry, has_known_times) {
            Content::Digest { digest, attributes, is_proven, stat } => {
                make_record(b'f', &stat, Some((digest, is_proven && proves)), attributes, path)
            }
            Content::Gap(why) => {
                self.add_gap(path, &why);
                make_record(b'f', stat, None, None, path)
            }
        };
        self.is_new |= known.as_ref() != Some(&record);
        self.write_record(&record).map_err(wrong)
    }

    /// Adds a directory. Its attributes are not read again if its times prove that they are the same.
    fn note_directory(
        &mut self,
        (stat, path): (&Stat, &[u8]),
        proves: bool,
        read_attributes: impl FnOnce() -> io::Result<Option<Digest>>,
    ) -> io::Result<()> {
        let known = self.take_known(path)?;
        if let Some(known) =
            known.as_ref().filter(|known| proves && known.stamp == file_stamp(stat).as_bytes())
        {
            return self.write_record(known);
        }
        let is_proven = proves && is_settled(stat, since_epoch());
        let attributes = read_attributes().unwrap_or_else(|error| {
            self.add_gap(path, &format!("its attributes cannot be read ({error})"));
            None
        });
        let mut record = make_record(b'd', stat, None, attributes, path);
        if !is_proven {
            record.stamp.insert(0, b'!');
        }
        self.is_new |= known.as_ref() != Some(&record);
        self.write_record(&record)
    }

    /// Reads a file that does not change meanwhile. A file with known times was synced after its last change.
    fn read_content(&mut self, entry: &TreeEntry, has_known_times: bool) -> Content {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let unreadable = |error: io::Error| Content::Gap(format!("it cannot be read ({error})"));
        let file = match openat(&entry.dir, entry.name(), flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(error) => return unreadable(error.into()),
        };
        for _ in 0..3 {
            let looked = fstat(&file).map_err(io::Error::from).and_then(|before| {
                if file_identity(&before) != file_identity(&entry.stat) {
                    return Err(io::Error::other("another file took its name"));
                }
                let now = since_epoch();
                let is_synced = has_known_times && file_stamp(&before) == file_stamp(&entry.stat);
                if !is_synced && now - change_time(&before) < SYNCED_WITHIN {
                    self.sync_written(&file, &before, now)?;
                }
                let read_from = since_epoch();
                (&file).rewind()?;
                let size = u64::try_from(before.st_size).unwrap_or(0);
                let digest = Digest::of_reader((&file).take(size.saturating_add(1)))?;
                let attributes = digest_attributes(&file)?;
                let after = fstat(&file)?;
                let is_proven = is_settled(&after, read_from);
                let is_same = file_stamp(&before) == file_stamp(&after);
                Ok(is_same.then(|| Content::Digest { digest, attributes, is_proven, stat: Box::new(after) }))
            });
            match looked {
                Ok(Some(content)) => return content,
                Ok(None) => {}
                Err(error) => return unreadable(error),
            }
        }
        Content::Gap("it is being written".to_owned())
    }

    /// Writes back changes in memory, so that the next one gives the file another time.
    fn sync_written(&mut self, file: &File, stat: &Stat, now: i128) -> io::Result<()> {
        let (device, _) = file_identity(stat);
        if let Some((at, whole)) = self.synced.whole
            && whole == device
            && change_time(stat) < at
        {
            return Ok(());
        }
        if self.synced.alone < SYNCED_ALONE {
            self.synced.alone += 1;
            fsync(file)?;
        } else {
            syncfs(file)?;
            self.synced.whole = Some((now, device));
        }
        Ok(())
    }

    /// True if, on this device, a file with the same times has the same bytes.
    fn device_proves(&mut self, entry: &TreeEntry) -> bool {
        let (device, _) = file_identity(&entry.stat);
        if let Some((_, proves)) = self.devices.iter().find(|(known, _)| *known == device) {
            return *proves;
        }
        // A single file may be mounted into the directory.
        let file = openat(&entry.dir, entry.name(), systems::LOOK, Mode::empty());
        let proves = file.is_ok_and(|file| systems::keeps_times(file.as_fd(), entry.dir.as_fd()));
        self.devices.push((device, proves));
        proves
    }

    /// Adds an entry, which the earlier listing may contain.
    fn note_entry(
        &mut self,
        kind: u8,
        stat: &Stat,
        digest: Option<(Digest, bool)>,
        path: &[u8],
    ) -> io::Result<()> {
        let record = make_record(kind, stat, digest, None, path);
        let known = self.take_known(path)?;
        self.is_new |= !known.is_some_and(|known| known.line == record.line && known.stamp == record.stamp);
        self.write_record(&record)
    }

    fn write_record(&mut self, record: &Record) -> io::Result<()> {
        self.hasher.write_all(&record.line)?;
        self.hasher.write_all(&[0])?;
        for part in [&record.line, &record.stamp] {
            self.out.write_all(part)?;
            self.out.write_all(&[0])?;
        }
        Ok(())
    }

    fn add_gap(&mut self, path: &[u8], why: &str) {
        match self.gaps.len().cmp(&MAX_GAPS) {
            Ordering::Less => self.gaps.push(format!("{}: {why}", String::from_utf8_lossy(path))),
            Ordering::Equal => self.gaps.push("more files that cannot be read".to_owned()),
            Ordering::Greater => {}
        }
    }
}

/// Adds the path in the tree to an error.
fn wrong_at(path: &[u8]) -> impl Fn(io::Error) -> TreeError + Copy + '_ {
    |source| TreeError::Io { path: String::from_utf8_lossy(path).into_owned(), source }
}

fn make_record(
    kind: u8,
    stat: &Stat,
    digest: Option<(Digest, bool)>,
    attributes: Option<Digest>,
    path: &[u8],
) -> Record {
    let mut line = vec![kind];
    let (digest, is_proven) = match digest {
        Some((digest, is_proven)) => (digest.to_string(), is_proven),
        None => ("-".to_owned(), kind != b'f'),
    };
    let attributes = attributes.map(|digest| format!(":{digest}")).unwrap_or_default();
    let (mode, user, group) = (stat.st_mode & 0o7777, stat.st_uid, stat.st_gid);
    line.extend_from_slice(format!("{mode:o}:{user}:{group}{attributes} {digest} ").as_bytes());
    line.extend_from_slice(path);
    let mark = if is_proven { "" } else { "!" };
    Record { line, stamp: format!("{mark}{}", file_stamp(stat)).into_bytes() }
}

/// Identifies a file and its state.
fn file_stamp(stat: &Stat) -> String {
    format!("{:x} {:x} {:x} {:x}", stat.st_dev, stat.st_ino, change_time(stat), stat.st_size)
}

/// True if a change after `read_from` gets another time than the last change before.
fn is_settled(stat: &Stat, read_from: i128) -> bool {
    let clock = if change_time(stat) % 1_000_000_000 == 0 { COARSE_CLOCK } else { FINE_CLOCK };
    change_time(stat) + clock <= read_from
}

/// Time of the last change in nanoseconds since 1970.
fn change_time(stat: &Stat) -> i128 {
    i128::from(stat.st_ctime) * 1_000_000_000 + i128::from(stat.st_ctime_nsec)
}

fn file_identity(stat: &Stat) -> (u64, u64) {
    #[allow(clippy::useless_conversion, clippy::unnecessary_fallible_conversions)]
    (u64::try_from(stat.st_dev).unwrap_or(0), stat.st_ino)
}

fn since_epoch() -> i128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i128::try_from(now.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests;
