//! `wasi:filesystem` over the granted directories.
//!
//! Unlike wasmtime's own version, its answers are the same on every machine: names are listed in order,
//! times are the run's start unless the clock is granted, and inode numbers are derived from paths.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use wasmtime::component::Resource;
use wasmtime_wasi::p2::{DynInputStream, DynOutputStream};

pub(crate) use super::file_streams::FsError;
use super::file_streams::{FileReader, StreamWriter, error_code};
use super::overlay::{Kind, Open, Opened, StageHost, Tree, Writer};
use super::wasi_own::wasi::filesystem::{preopens, types};
use crate::state::{State, Stop};
use crate::{Grants, OpenedDirs, RunError};

pub(crate) use types::ErrorCode;

/// Most files and directories that a run may have open at once: they are also open in this process.
pub(super) const MAX_OPEN: usize = 256;

/// Most bytes of names in all listings that a program holds at once.
const MAX_LISTED: u64 = 64 << 20;

/// Size of a listed name besides its letters.
const NAME: u64 = 48;

/// Most bytes that one read returns.
const MAX_READ: u64 = 1 << 20;

/// The file system of one run.
pub(crate) struct Filesystem {
    mounts: Vec<Mount>,
    pub(crate) stage: Arc<StageHost>,
    times: Times,
    open: Arc<AtomicUsize>,
    /// Bytes of names in open listings.
    listed: Arc<AtomicU64>,
}

pub(crate) struct Mount {
    pub(crate) guest: String,
    pub(crate) tree: Tree,
}

/// Times of files that a program sees.
enum Times {
    Real,
    All(SystemTime),
}

impl Filesystem {
    /// Opens the granted directories.
    pub(crate) fn open(
        grants: &Grants,
        opened: OpenedDirs,
        staging: PathBuf,
        budget: u64,
        start: SystemTime,
        stop: Arc<Stop>,
    ) -> Result<Self, RunError> {
        let stage = StageHost::new(staging, budget, stop);
        if !grants.write.is_empty() {
            let dirs = grants.write.iter().map(|grant| grant.host.as_path());
            stage
                .record_beginning(dirs)
                .map_err(|error| RunError::StageFailed { message: error.to_string() })?;
        }
        let bad = |message: &str| RunError::BadGrant {
            grant: "directories".to_owned(),
            message: message.to_owned(),
        };
        if (grants.read.len(), grants.write.len()) != (opened.read.len(), opened.write.len()) {
            return Err(bad("the opened directories are not those of the grants"));
        }
        let read = grants.read.iter().zip(opened.read).map(|(grant, opened)| (grant, opened, false));
        let write = grants.write.iter().zip(opened.write).map(|(grant, opened)| (grant, opened, true));
        let mounts = read
            .chain(write)
            .map(|(grant, opened, writable)| {
                let bad = |message: String| RunError::BadGrant {
                    grant: format!("{} {}", if writable { "write" } else { "read" }, grant.host.display()),
                    message,
                };
                if grant.guest.is_empty() || grant.guest.contains('\0') {
                    return Err(bad("the path inside the program is empty or has a NUL".to_owned()));
                }
                let lower = opened.map_err(bad)?.dir;
                let tree = Tree::new(lower, &grant.host, writable, stage.clone());
                Ok(Mount { guest: grant.guest.clone(), tree })
            })
            .collect::<Result<_, _>>()?;
        let times = if grants.clock { Times::Real } else { Times::All(start) };
        Ok(Self { mounts, stage, times, open: Arc::default(), listed: Arc::default() })
    }

    /// The directories with the program's changes.
    pub(crate) fn into_mounts(self) -> Vec<Mount> {
        self.mounts
    }

    pub(super) fn mounted_tree(&mut self, mount: usize) -> Result<&mut Tree, FsError> {
        self.mounts.get_mut(mount).map(|mount| &mut mount.tree).ok_or_else(|| ErrorCode::BadDescriptor.into())
    }

    pub(super) fn take_ticket(&self) -> Result<OpenTicket, FsError> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= MAX_OPEN {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(ErrorCode::Quota.into());
        }
        Ok(OpenTicket(self.open.clone()))
    }

    #[cfg(test)]
    pub(crate) fn root_place(&self, mount: usize) -> NamedEntry {
        NamedEntry { mount, path: String::new() }
    }

    /// Names in a directory, charged for as long as the program holds them.
    pub(crate) fn list_charged(
        &mut self,
        place: &NamedEntry,
    ) -> Result<(BTreeMap<String, Kind>, ListTicket), FsError> {
        let names = self.mounted_tree(place.mount)?.list_names(&place.path)?;
        let bytes = names.keys().map(|name| name.len() as u64 + NAME).sum();
        let ticket = ListTicket { held: self.listed.clone(), bytes };
        if self.listed.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_LISTED {
            return Err(ErrorCode::InsufficientMemory.into());
        }
        Ok((names, ticket))
    }

    fn stat_place(&mut self, place: &NamedEntry) -> Result<types::DescriptorStat, FsError> {
        let info = self.mounted_tree(place.mount)?.path_info(&place.path)?.ok_or(ErrorCode::NoEntry)?;
        let shown = self.shown_time(info.modified);
        let time = shown.and_then(|time| {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
            Some(types::Datetime { seconds: since.as_secs(), nanoseconds: since.subsec_nanos() })
        });
        Ok(types::DescriptorStat {
            type_: descriptor_type(info.kind),
            link_count: 1,
            size: info.size,
            data_access_timestamp: time,
            data_modification_timestamp: time,
            status_change_timestamp: time,
        })
    }

    /// Modification time that the program sees.
    pub(super) fn shown_time(&self, modified: Option<SystemTime>) -> Option<SystemTime> {
        match self.times {
            Times::Real => modified,
            Times::All(start) => Some(start),
        }
    }

    /// Time of a file that is touched now.
    pub(super) fn touch_time(&self) -> SystemTime {
        match self.times {
            Times::Real => SystemTime::now(),
            Times::All(start) => start,
        }
    }

    /// Guest paths of the directories, in the order of their numbers.
    pub(crate) fn guest_paths(&self) -> Vec<String> {
        self.mounts.iter().map(|mount| mount.guest.clone()).collect()
    }

    /// Target of a link, unless it is a path of the host.
    pub(super) fn link_target(&mut self, place: &NamedEntry) -> Result<String, FsError> {
        let tree = self.mounted_tree(place.mount)?;
        match tree.path_info(&place.path)?.map(|info| info.kind) {
            Some(Kind::Link) => {
                let target = tree.read_link(&place.path)?;
                if target.starts_with('/') { Err(ErrorCode::NotPermitted.into()) } else { Ok(target) }
            }
            Some(_) => Err(ErrorCode::Invalid.into()),
            None => Err(ErrorCode::NoEntry.into()),
        }
    }

    fn new_time(&self, time: types::NewTimestamp) -> Result<Option<SystemTime>, FsError> {
        Ok(match time {
            types::NewTimestamp::NoChange => None,
            types::NewTimestamp::Now => Some(self.touch_time()),
            types::NewTimestamp::Timestamp(at) => {
                if at.nanoseconds >= 1_000_000_000 {
                    return Err(ErrorCode::Invalid.into());
                }
                let since = Duration::new(at.seconds, at.nanoseconds);
                Some(SystemTime::UNIX_EPOCH.checked_add(since).ok_or(ErrorCode::Overflow)?)
            }
        })
    }
}

/// A name in a granted directory.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct NamedEntry {
    pub(super) mount: usize,
    pub(super) path: String,
}

impl NamedEntry {
    fn with_path(&self, path: String) -> Self {
        Self { mount: self.mount, path }
    }

    pub(super) fn child(&self, name: &str) -> Self {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) };
        self.with_path(path)
    }

    /// Place of a listed name: `.` is the directory itself, and no name leads above the granted
    /// directory.
    pub(super) fn resolve_name(&self, name: &str) -> Self {
        match name {
            "." => self.clone(),
            ".." => self.with_path(self.path.rsplit_once('/').map_or("", |(above, _)| above).to_owned()),
            name => self.child(name),
        }
    }

    /// The same for the same name in every run.
    pub(super) fn hash(&self) -> types::MetadataHashValue {
        let hash = blake3::Hasher::new()
            .update(&(self.mount as u64).to_le_bytes())
            .update(self.path.as_bytes())
            .finalize();
        let half = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&hash.as_bytes()[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        types::MetadataHashValue { lower: half(0), upper: half(8) }
    }
}

/// Counts an open descriptor until it is dropped.
pub(super) struct OpenTicket(Arc<AtomicUsize>);

impl Drop for OpenTicket {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts a directory listing until it is dropped.
pub(crate) struct ListTicket {
    held: Arc<AtomicU64>,
    bytes: u64,
}

impl Drop for ListTicket {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A program's handle of a file or directory.
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct Descriptor {
    place: NamedEntry,
    flags: types::DescriptorFlags,
    file: Option<Opened>,
    _ticket: Option<OpenTicket>,
}

/// The rest of a directory listing.
#[expect(unreachable_pub, reason = "the generated bindings re-export it")]
pub struct Listing {
    rest: std::vec::IntoIter<types::DirectoryEntry>,
    _ticket: ListTicket,
}

impl Descriptor {
    fn opened_file(&self) -> Result<&Opened, FsError> {
        self.file.as_ref().ok_or_else(|| ErrorCode::IsDirectory.into())
    }

    fn dir_place(&self) -> Result<&NamedEntry, FsError> {
        if self.file.is_some() { Err(ErrorCode::NotDirectory.into()) } else { Ok(&self.place) }
    }

    fn file_and_writer(&self) -> Result<(&Arc<File>, &Writer), FsError> {
        let opened = self.file.as_ref().ok_or(ErrorCode::BadDescriptor)?;
        match &opened.writer {
            Some(writer) if self.flags.contains(types::DescriptorFlags::WRITE) => Ok((&opened.file, writer)),
            _ => Err(ErrorCode::NotPermitted.into()),
        }
    }
}

fn descriptor_type(kind: Kind) -> types::DescriptorType {
    match kind {
        Kind::Directory => types::DescriptorType::Directory,
        Kind::File => types::DescriptorType::RegularFile,
        Kind::Link => types::DescriptorType::SymbolicLink,
        Kind::Other => types::DescriptorType::Unknown,
    }
}

type Fs<T> = Result<T, FsError>;

impl preopens::Host for State {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        let mut directories = Vec::new();
        for (mount, granted) in self.files.mounts.iter().enumerate() {
            let mut flags = types::DescriptorFlags::READ;
            if granted.tree.is_writable() {
                flags |= types::DescriptorFlags::MUTATE_DIRECTORY;
            }
            let place = NamedEntry { mount, path: String::new() };
            let root = Descriptor { place, flags, file: None, _ticket: None };
            directories.push((self.table.push(root)?, granted.guest.clone()));
        }
        Ok(directories)
    }
}

impl types::Host for State {
    fn convert_error_code(&mut self, error: FsError) -> wasmtime::Result<ErrorCode> {
        match error {
            FsError::Code(code) => Ok(code),
            FsError::Trap(error) => Err(error),
        }
    }

    fn filesystem_error_code(
        &mut self,
        error: Resource<wasmtime::Error>,
    ) -> wasmtime::Result<Option<ErrorCode>> {
        let error = self.table.get(&error)?;
        if let Some(code) = error.downcast_ref::<ErrorCode>() {
            return Ok(Some(*code));
        }
        Ok(error.downcast_ref::<io::Error>().map(error_code))
    }
}

impl State {
    fn descriptor_place(&self, fd: &Resource<Descriptor>) -> Fs<NamedEntry> {
        Ok(self.table.get(fd)?.place.clone())
    }

    fn resolve_place(
        &mut self,
        fd: &Resource<Descriptor>,
        flags: types::PathFlags,
        path: &str,
    ) -> Fs<NamedEntry> {
        let dir = self.table.get(fd)?.dir_place()?.clone();
        let follow = flags.contains(types::PathFlags::SYMLINK_FOLLOW);
        let path = self.files.mounted_tree(dir.mount)?.resolve_path(&dir.path, path, follow)?;
        Ok(dir.with_path(path))
    }

    fn set_times_of(
        &mut self,
        place: &NamedEntry,
        accessed: types::NewTimestamp,
        modified: types::NewTimestamp,
    ) -> Fs<()> {
        // Access times are not stored: programs cannot rely on them anyway (`noatime`).
        self.files.new_time(accessed)?;
        match self.files.new_time(modified)? {
            Some(time) => self.files.mounted_tree(place.mount)?.set_modified(&place.path, time),
            None => Ok(()),
        }
    }
}

impl types::HostDescriptor for State {
    fn read_via_stream(&mut self, fd: Resource<Descriptor>, offset: u64) -> Fs<Resource<DynInputStream>> {
        let descriptor = self.table.get(&fd)?;
        let file = descriptor.opened_file()?.file.clone();
        if !descriptor.flags.contains(types::DescriptorFlags::READ) {
            return Err(ErrorCode::NotPermitted.into());
        }
        let stream: DynInputStream = Box::new(FileReader { file, offset });
        Ok(self.table.push(stream)?)
    }

    fn write_via_stream(&mut self, fd: Resource<Descriptor>, offset: u64) -> Fs<Resource<DynOutputStream>> {
        let (file, writer) = self.table.get(&fd)?.file_and_writer()?;
        let stream: DynOutputStream =
            Box::new(StreamWriter { file: file.clone(), writer: writer.clone(), offset: Some(offset) });
        Ok(self.table.push(stream)?)
    }

    fn append_via_stream(&mut self, fd: Resource<Descriptor>) -> Fs<Resource<DynOutputStream>> {
        let (file, writer) = self.table.get(&fd)?.file_and_writer()?;
        let stream: DynOutputStream =
            Box::new(StreamWriter { file: file.clone(), writer: writer.clone(), offset: None });
        Ok(self.table.push(stream)?)
    }

    /// Advice may be ignored, but an invalid handle is an error.
    fn advise(&mut self, fd: Resource<Descriptor>, _: u64, _: u64, _: types::Advice) -> Fs<()> {
        self.table.get(&fd)?.opened_file().map(|_| ())
    }

    /// Nothing is durable before the run's writes are committed.
    fn sync_data(&mut self, fd: Resource<Descriptor>) -> Fs<()> {
        self.descriptor_place(&fd).map(|_| ())
    }

    fn sync(&mut self, fd: Resource<Descriptor>) -> Fs<()> {
        self.descriptor_place(&fd).map(|_| ())
    }

    fn get_flags(&mut self, fd: Resource<Descriptor>) -> Fs<types::DescriptorFlags> {
        Ok(self.table.get(&fd)?.flags)
    }

    fn get_type(&mut self, fd: Resource<Descriptor>) -> Fs<types::DescriptorType> {
        let descriptor = self.table.get(&fd)?;
        Ok(descriptor_type(if descriptor.file.is_some() { Kind::File } else { Kind::Directory }))
    }

    fn set_size(&mut self, fd: Resource<Descriptor>, size: u64) -> Fs<()> {
        let (file, writer) = self.table.get(&fd)?.file_and_writer()?;
        writer.set_len(file, size)
    }

    fn set_times(
        &mut self,
        fd: Resource<Descriptor>,
        accessed: types::NewTimestamp,
        modified: types::NewTimestamp,
    ) -> Fs<()> {
        let place = self.descriptor_place(&fd)?;
        self.set_times_of(&place, accessed, modified)
    }

    fn set_times_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: types::PathFlags,
        path: String,
        accessed: types::NewTimestamp,
        modified: types::NewTimestamp,
    ) -> Fs<()> {
        let place = self.resolve_place(&fd, flags, &path)?;
        self.set_times_of(&place, accessed, modified)
    }

    fn read(&mut self, fd: Resource<Descriptor>, length: u64, offset: u64) -> Fs<(Vec<u8>, bool)> {
        let descriptor = self.table.get(&fd)?;
        let file = &descriptor.opened_file()?.file;
        if !descriptor.flags.contains(types::DescriptorFlags::READ) {
            return Err(ErrorCode::NotPermitted.into());
        }
        let mut buffer = vec![0; usize::try_from(length.min(MAX_READ)).unwrap_or(0)];
        let read = file.read_at(&mut buffer, offset)?;
        let at_end = read == 0 && length > 0;
        buffer.truncate(read);
        self.pipes.count_moved(read);
        Ok((buffer, at_end))
    }

    fn write(&mut self, fd: Resource<Descriptor>, buffer: Vec<u8>, offset: u64) -> Fs<u64> {
        self.pipes.count_moved(buffer.len());
        let (file, writer) = self.table.get(&fd)?.file_and_writer()?;
        Ok(writer.write_at(file, &buffer, offset)? as u64)
    }

    fn read_directory(&mut self, fd: Resource<Descriptor>) -> Fs<Resource<Listing>> {
        let place = self.table.get(&fd)?.dir_place()?.clone();
        let (names, ticket) = self.files.list_charged(&place)?;
        self.pipes.count_moved(names.len() * 64);
        let entries: Vec<_> = names
            .into_iter()
            .map(|(name, kind)| types::DirectoryEntry { type_: descriptor_type(kind), name })
            .collect();
        Ok(self.table.push(Listing { rest: entries.into_iter(), _ticket: ticket })?)
    }

    fn create_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> Fs<()> {
        let place = self.resolve_place(&fd, types::PathFlags::empty(), &path)?;
        self.files.mounted_tree(place.mount)?.create_dir(&place.path)
    }

    fn stat(&mut self, fd: Resource<Descriptor>) -> Fs<types::DescriptorStat> {
        let place = self.descriptor_place(&fd)?;
        let open = self.table.get(&fd)?.file.as_ref().map(|opened| opened.file.clone());
        let stat = self.files.stat_place(&place);
        match (stat, open) {
            // An open file outlives its name and has its own size.
            (stat, Some(file)) => {
                let size = file.metadata()?.len();
                Ok(match stat {
                    Ok(stat) => types::DescriptorStat { size, ..stat },
                    Err(_) => types::DescriptorStat {
                        type_: types::DescriptorType::RegularFile,
                        link_count: 0,
                        size,
                        data_access_timestamp: None,
                        data_modification_timestamp: None,
                        status_change_timestamp: None,
                    },
                })
            }
            (stat, None) => stat,
        }
    }

    fn stat_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: types::PathFlags,
        path: String,
    ) -> Fs<types::DescriptorStat> {
        let place = self.resolve_place(&fd, flags, &path)?;
        self.files.stat_place(&place)
    }

    /// Hard links are not supported: a layer is committed name by name and cannot hold one file under
    /// two names.
    fn link_at(
        &mut self,
        _: Resource<Descriptor>,
        _: types::PathFlags,
        _: String,
        _: Resource<Descriptor>,
        _: String,
    ) -> Fs<()> {
        Err(ErrorCode::Unsupported.into())
    }

    fn open_at(
        &mut self,
        fd: Resource<Descriptor>,
        path_flags: types::PathFlags,
        path: String,
        open: types::OpenFlags,
        flags: types::DescriptorFlags,
    ) -> Fs<Resource<Descriptor>> {
        let place = self.resolve_place(&fd, path_flags, &path)?;
        let parent = self.table.get(&fd)?.flags;
        let may_change = parent.contains(types::DescriptorFlags::MUTATE_DIRECTORY);
        let how = Open {
            write: flags.contains(types::DescriptorFlags::WRITE),
            create: open.contains(types::OpenFlags::CREATE),
            exclusive: open.contains(types::OpenFlags::EXCLUSIVE),
            truncate: open.contains(types::OpenFlags::TRUNCATE),
        };
        let ticket = self.files.take_ticket()?;
        let wants_dir = open.contains(types::OpenFlags::DIRECTORY);
        let file = self.files.mounted_tree(place.mount)?.open_entry(&place.path, how, wants_dir)?;
        let flags = if file.is_some() {
            flags
        } else {
            let wanted = flags & (types::DescriptorFlags::READ | types::DescriptorFlags::MUTATE_DIRECTORY);
            if wanted.contains(types::DescriptorFlags::MUTATE_DIRECTORY) && !may_change {
                return Err(ErrorCode::ReadOnly.into());
            }
            // A directory opened from a writable one is writable.
            wanted | parent
        };
        let descriptor = Descriptor { place, flags, file, _ticket: Some(ticket) };
        Ok(self.table.push(descriptor)?)
    }

    fn readlink_at(&mut self, fd: Resource<Descriptor>, path: String) -> Fs<String> {
        let place = self.resolve_place(&fd, types::PathFlags::empty(), &path)?;
        self.files.link_target(&place)
    }

    fn remove_directory_at(&mut self, fd: Resource<Descriptor>, path: String) -> Fs<()> {
        let place = self.resolve_place(&fd, types::PathFlags::empty(), &path)?;
        self.files.mounted_tree(place.mount)?.remove_dir(&place.path)
    }

    fn rename_at(
        &mut self,
        fd: Resource<Descriptor>,
        from: String,
        to_fd: Resource<Descriptor>,
        to: String,
    ) -> Fs<()> {
        let from = self.resolve_place(&fd, types::PathFlags::empty(), &from)?;
        let to = self.resolve_place(&to_fd, types::PathFlags::empty(), &to)?;
        if from.mount != to.mount {
            return Err(ErrorCode::CrossDevice.into());
        }
        self.files.mounted_tree(from.mount)?.rename(&from.path, &to.path)
    }

    fn symlink_at(&mut self, fd: Resource<Descriptor>, target: String, path: String) -> Fs<()> {
        let place = self.resolve_place(&fd, types::PathFlags::empty(), &path)?;
        self.files.mounted_tree(place.mount)?.create_symlink(&target, &place.path, path.ends_with('/'))
    }

    fn unlink_file_at(&mut self, fd: Resource<Descriptor>, path: String) -> Fs<()> {
        let place = self.resolve_place(&fd, types::PathFlags::empty(), &path)?;
        self.files.mounted_tree(place.mount)?.remove_file(&place.path)
    }

    fn is_same_object(
        &mut self,
        one: Resource<Descriptor>,
        other: Resource<Descriptor>,
    ) -> wasmtime::Result<bool> {
        Ok(self.table.get(&one)?.place == self.table.get(&other)?.place)
    }

    fn metadata_hash(&mut self, fd: Resource<Descriptor>) -> Fs<types::MetadataHashValue> {
        Ok(self.descriptor_place(&fd)?.hash())
    }

    fn metadata_hash_at(
        &mut self,
        fd: Resource<Descriptor>,
        flags: types::PathFlags,
        path: String,
    ) -> Fs<types::MetadataHashValue> {
        let place = self.resolve_place(&fd, flags, &path)?;
        match self.files.mounted_tree(place.mount)?.path_info(&place.path)? {
            Some(_) => Ok(place.hash()),
            None => Err(ErrorCode::NoEntry.into()),
        }
    }

    fn drop(&mut self, fd: Resource<Descriptor>) -> wasmtime::Result<()> {
        self.table.delete(fd)?;
        Ok(())
    }
}

impl types::HostDirectoryEntryStream for State {
    fn read_directory_entry(&mut self, listing: Resource<Listing>) -> Fs<Option<types::DirectoryEntry>> {
        Ok(self.table.get_mut(&listing)?.rest.next())
    }

    fn drop(&mut self, listing: Resource<Listing>) -> wasmtime::Result<()> {
        self.table.delete(listing)?;
        Ok(())
    }
}
