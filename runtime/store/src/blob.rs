//! The content-addressed store: bytes under the name of their BLAKE3 digest.
//!
//! Small blobs wait in memory for the next transaction and are stored in the database, so that one commit covers an
//! event and all blobs that it names. Larger ones are files, `blobs/ab/<64 hex digits>`, written elsewhere and moved
//! there when complete. Every read checks first: bytes that do not match their name are an error and never reach the
//! reader.

use std::fs::{self, File};
use std::io::{self, Cursor, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::{OptionalExtension, Transaction, params};
use rustix::fs::{FlockOperation, MemfdFlags};
use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use super::error::StoreError;
use super::file_lock::Sharing;
use super::pending::{Batch, Held, in_index_order};
use super::redact::Redactor;
use super::statement::query_one;
use super::{Store, UNFINISHED_BLOB, fault, private};
use lobster_base::digest::Digest;
use lobster_base::locked_directory::create_locked_file;
use lobster_base::regular_file;
use lobster_base::sync::lock;

/// Blobs up to this size are stored in the database.
pub const INLINE_MAX: usize = 64 * 1024;

/// Bytes of a large blob collected before they are written and hashed, since writers of JSON produce a few bytes at a
/// time.
const FILE_BUFFER: usize = 64 * 1024;

/// Larger blobs are written back to disk as soon as they are complete.
const SYNC_AT_ONCE: u64 = 4 * 1024 * 1024;

/// Precision of a blob's last-touched time: recording known content again within this time writes nothing. Far below
/// the grace time of a collection.
pub(super) const TOUCH_EVERY_MS: i64 = 10 * 60 * 1000;

/// Most files remembered as checked and unchanged since.
const CHECKED_MAX: usize = 4096;

/// Name and size of a blob.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Blob {
    /// Of all its bytes.
    pub digest: Digest,
    /// In bytes.
    pub len: u64,
}

/// Detects changes of a file: inode, size, time of change.
pub(super) type Fingerprint = (u64, u64, i64, i64);

fn file_fingerprint(file: &File) -> io::Result<Fingerprint> {
    let meta = file.metadata()?;
    Ok((meta.ino(), meta.len(), meta.ctime(), meta.ctime_nsec()))
}

impl Store {
    /// A writer for a blob of unlimited size.
    #[must_use]
    pub fn blob_writer(&self) -> BlobWriter {
        BlobWriter {
            store: self.clone(),
            sink: Sink::Memory(Vec::new()),
            redactor: self.new_redactor(),
            taken: 0,
            len: 0,
            limit: None,
        }
    }

    /// Like [`Store::blob_writer`], for bytes in which secrets are already hidden.
    #[must_use]
    pub fn verbatim_writer(&self) -> BlobWriter {
        BlobWriter { redactor: None, ..self.blob_writer() }
    }

    /// Records `bytes`.
    ///
    /// # Errors
    /// If they cannot be written.
    pub fn put_blob(&self, bytes: &[u8]) -> Result<Blob, StoreError> {
        if bytes.len() <= INLINE_MAX {
            return self.put_small(&self.current_redactions().hide_in_bytes(bytes));
        }
        let mut writer = self.blob_writer();
        writer.write_all(bytes).map_err(|e| writer.store_error(e))?;
        writer.finish()
    }

    /// Records `bytes` unchanged; secrets are already hidden in them.
    pub fn put_verbatim(&self, bytes: &[u8]) -> Result<Blob, StoreError> {
        if bytes.len() <= INLINE_MAX {
            return self.put_small(bytes);
        }
        let mut writer = self.verbatim_writer();
        writer.write_all(bytes).map_err(|e| writer.store_error(e))?;
        writer.finish()
    }

    /// Records the content of a large file unchanged, sharing its disk blocks. `None` if the file is small, or the
    /// file system cannot share. The content is a snapshot, even if the file is written to meanwhile.
    ///
    /// # Errors
    /// If the blob cannot be stored.
    #[cfg(target_os = "linux")]
    pub fn put_clone(&self, file: &File) -> Result<Option<Blob>, StoreError> {
        let is_large = |file: &File| file.metadata().is_ok_and(|found| found.len() > INLINE_MAX as u64);
        if !is_large(file) {
            return Ok(None);
        }
        let mut clone = self.temp_file()?;
        // A file that was truncated meanwhile belongs in the database.
        if rustix::fs::ioctl_ficlone(&clone, file).is_err() || !is_large(clone.as_file()) {
            return Ok(None);
        }
        let failed = |e| StoreError::io("read in", &self.inner.dir.join("tmp"), e);
        let digest = Digest::of_reader(clone.as_file_mut()).map_err(failed)?;
        let len = clone.as_file().metadata().map_err(failed)?.len();
        self.adopt_file(clone, Blob { digest, len }).map(Some)
    }

    /// Other systems do not share blocks here.
    ///
    /// # Errors
    /// Never.
    #[cfg(not(target_os = "linux"))]
    pub fn put_clone(&self, _: &File) -> Result<Option<Blob>, StoreError> {
        Ok(None)
    }

    fn put_small(&self, bytes: &[u8]) -> Result<Blob, StoreError> {
        let blob = Blob { digest: Digest::of_bytes(bytes), len: bytes.len() as u64 };
        let full = lock(&self.inner.pending).hold_blob(blob.digest, bytes);
        if full {
            self.flush_pending()?;
        }
        Ok(blob)
    }

    /// Path of a large blob, whether or not it exists.
    pub(super) fn blob_path(&self, digest: &Digest) -> PathBuf {
        let hex = digest.to_string();
        self.inner.dir.join("blobs").join(&hex[..2]).join(hex)
    }

    /// The size of a blob, if it is known.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub fn blob_len(&self, digest: &Digest) -> Result<Option<u64>, StoreError> {
        let held = lock(&self.inner.pending).find_blob(digest);
        match held {
            Some(Held::Bytes(bytes)) => return Ok(Some(bytes.len() as u64)),
            Some(Held::File(len)) => return Ok(Some(len)),
            None => {}
        }
        self.inner.db.read_snapshot(|db| {
            let sql = "SELECT len FROM blobs WHERE digest = ?";
            let len: Option<i64> = query_one(db, sql, [digest.as_bytes()], |row| row.get(0))?;
            Ok(len.map(i64::cast_unsigned))
        })
    }

    /// The whole blob, if it has at most `max` bytes.
    ///
    /// # Errors
    /// If it is missing, damaged or larger.
    pub fn load_blob(&self, digest: &Digest, max: u64) -> Result<Vec<u8>, StoreError> {
        let reader = self.open_blob(digest)?;
        if reader.len() > max {
            return Err(StoreError::BlobTooLarge { digest: *digest, len: reader.len(), max });
        }
        reader.into_bytes().map_err(|e| StoreError::io("read", &self.blob_path(digest), e))
    }

    /// The blob as text for display, with secrets hidden. `None` if it is missing, longer than `max`, or not text.
    /// Secrets are hidden in the text as a whole, because one may span several lines.
    #[must_use]
    pub fn load_shown_text(&self, blob: &Blob, max: u64) -> Option<String> {
        // Checked before it is opened, since opening a blob hashes all of its bytes.
        if blob.len > max {
            return None;
        }
        let text = String::from_utf8(self.load_blob(&blob.digest, max).ok()?).ok()?;
        (!text.contains('\0')).then(|| self.hide_secrets(&text).into_owned())
    }

    /// Opens a blob whose bytes have been checked against its name.
    ///
    /// # Errors
    /// If it is missing or damaged.
    pub fn open_blob(&self, digest: &Digest) -> Result<BlobReader, StoreError> {
        if let Some(bytes) = self.small_blob(digest)? {
            return Ok(BlobReader(Source::Memory(Cursor::new(bytes))));
        }
        let (file, len) = self.checked_file(digest)?;
        Ok(BlobReader(Source::File { file, len }))
    }

    /// Opens a blob as a file, at its start, for a child's stdin. A small blob becomes an anonymous file in memory.
    ///
    /// # Errors
    /// As [`Store::open_blob`], or if the process has no file descriptor left.
    pub fn open_file(&self, digest: &Digest) -> Result<File, StoreError> {
        let Some(bytes) = self.small_blob(digest)? else {
            return Ok(self.checked_file(digest)?.0);
        };
        let fill = || -> io::Result<File> {
            let mut file = File::from(rustix::fs::memfd_create("lobster-blob", MemfdFlags::CLOEXEC)?);
            file.write_all(&bytes)?;
            file.rewind()?;
            Ok(file)
        };
        fill().map_err(|e| StoreError::io("hand over", self.inner.db.path(), e))
    }

    /// The file of a large blob, checked now; `None` for a small one, which has no file. It must not be written to,
    /// and a collection may remove it once nothing names it.
    ///
    /// # Errors
    /// As [`Store::open_blob`].
    pub fn blob_file(&self, digest: &Digest) -> Result<Option<PathBuf>, StoreError> {
        if self.small_blob(digest)?.is_some() {
            return Ok(None);
        }
        self.checked_file(digest)?;
        Ok(Some(self.blob_path(digest)))
    }

    /// The small, undamaged blobs among `digests`, in one pass. Use [`Store::load_blob`] for the others; it reports what is
    /// wrong with them.
    pub fn small_blobs(&self, digests: &[Digest]) -> Result<Vec<(Digest, Vec<u8>)>, StoreError> {
        self.inner.db.read_snapshot(|db| {
            // One transaction for all, since each statement would otherwise open one.
            let snapshot = db.unchecked_transaction()?;
            let mut statement = snapshot.prepare_cached("SELECT data FROM blobs WHERE digest = ?")?;
            let mut found = Vec::with_capacity(digests.len());
            for digest in digests {
                let row = statement.query_row([digest.as_bytes()], |row| row.get::<_, Option<Vec<u8>>>(0));
                found.extend(row.optional()?.flatten().map(|bytes| (*digest, bytes)));
            }
            found.retain(|(digest, bytes)| Digest::of_bytes(bytes) == *digest);
            Ok(found)
        })
    }

    /// The checked bytes of a blob that is held in memory or in the database.
    fn small_blob(&self, digest: &Digest) -> Result<Option<Arc<[u8]>>, StoreError> {
        let held = lock(&self.inner.pending).find_blob(digest);
        match held {
            Some(Held::Bytes(bytes)) => return Ok(Some(bytes)),
            Some(Held::File(_)) => return Ok(None),
            None => {}
        }
        let sql = "SELECT data FROM blobs WHERE digest = ?";
        let row: Option<Option<Vec<u8>>> =
            self.inner.db.select_one(sql, [digest.as_bytes()], |row| row.get(0))?;
        let Some(Some(bytes)) = row else {
            // Not in the table, but a file may exist if a crash came between the two writes.
            return Ok(None);
        };
        let found = Digest::of_bytes(&bytes);
        if found != *digest {
            let place = format!("in {}", self.inner.db.path().display());
            let damaged = StoreError::DamagedBlob { digest: *digest, found, place };
            return Err(self.note_unreadable(damaged));
        }
        Ok(Some(bytes.into()))
    }

    fn checked_file(&self, digest: &Digest) -> Result<(File, u64), StoreError> {
        let path = self.blob_path(digest);
        let fail = |e| StoreError::io("read", &path, e);
        let mut file = match regular_file::open_own(File::options().read(true), &path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(self.note_unreadable(match self.blob_len(digest)? {
                    Some(_) => StoreError::LostBlob { digest: *digest, path },
                    None => StoreError::MissingBlob(*digest),
                }));
            }
            other => other.map_err(fail)?,
        };
        let print = file_fingerprint(&file).map_err(fail)?;
        if lock(&self.inner.checked).get(digest) == Some(&print) {
            return Ok((file, print.1));
        }
        let found = Digest::of_reader(&mut file).map_err(fail)?;
        if found != *digest {
            let place = path.display().to_string();
            return Err(self.note_unreadable(StoreError::DamagedBlob { digest: *digest, found, place }));
        }
        file.rewind().map_err(fail)?;
        self.remember_checked(*digest, print);
        Ok((file, print.1))
    }

    fn remember_checked(&self, digest: Digest, print: Fingerprint) {
        let mut checked = lock(&self.inner.checked);
        if checked.len() >= CHECKED_MAX {
            checked.clear();
        }
        checked.insert(digest, print);
    }

    /// A temporary file in the store, locked while it is being written.
    fn temp_file(&self) -> Result<NamedTempFile, StoreError> {
        let dir = self.inner.dir.join("tmp");
        let make = || -> io::Result<NamedTempFile> {
            fault::point("blob file")?;
            match create_locked_file(&dir, UNFINISHED_BLOB) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    private::make_dir(&dir)?;
                    create_locked_file(&dir, UNFINISHED_BLOB)
                }
                other => other,
            }
        };
        make().map_err(|e| StoreError::io("write in", &dir, e))
    }

    /// Moves a complete file into place. It always replaces an existing file, which repairs a damaged one and tells
    /// the collection that the blob is wanted.
    fn adopt_file(&self, file: NamedTempFile, blob: Blob) -> Result<Blob, StoreError> {
        let path = self.blob_path(&blob.digest);
        let dir = path.parent().unwrap_or(&self.inner.dir).to_owned();
        let place = || -> io::Result<File> {
            file.as_file().set_permissions(fs::Permissions::from_mode(0o400))?;
            fault::point("blob rename")?;
            let shelf = self.inner.dir.join("blobs");
            if !dir.is_dir() {
                if !shelf.is_dir() {
                    self.inner.db.group.sync_first(&self.inner.dir);
                }
                private::make_dir(&dir)?;
                self.inner.db.group.sync_first(&shelf);
            }
            // A collection checks and removes under the exclusive lock.
            let _shelf = self.lock_shelf(Sharing::Shared)?;
            let file = file.persist(&path).map_err(|e| e.error)?;
            rustix::fs::flock(&file, FlockOperation::Unlock)?;
            fault::point("blob renamed")?;
            Ok(file)
        };
        let file = place().map_err(|e| StoreError::io("write", &path, e))?;
        match file.try_clone() {
            Ok(file) if blob.len > SYNC_AT_ONCE => self.inner.db.group.begin_sync(file, &path),
            _ => self.inner.db.group.sync_first(&path),
        }
        self.inner.db.group.sync_first(&dir);
        if let Ok(print) = file_fingerprint(&file) {
            self.remember_checked(blob.digest, print);
        }
        lock(&self.inner.pending).hold_file(blob);
        Ok(blob)
    }
}

/// Writes held-back blobs as part of a transaction. An existing blob is marked as wanted again, and repaired if it was
/// damaged.
pub(super) fn insert_batch(tx: &Transaction<'_>, batch: &Batch, now: i64) -> Result<(), StoreError> {
    if batch.blobs.is_empty() && batch.files.is_empty() {
        return Ok(());
    }
    let mut statement = tx.prepare_cached(
        "INSERT INTO blobs (digest, len, touched, data) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (digest) DO UPDATE SET touched = excluded.touched, data = excluded.data
         WHERE abs(touched - excluded.touched) > ?5 OR data IS NOT excluded.data",
    )?;
    let small = batch.blobs.iter().map(|(digest, bytes)| (digest, bytes.len() as u64, Some(&**bytes)));
    let large = batch.files.iter().map(|(digest, len)| (digest, *len, None));
    for (digest, len, data) in in_index_order(small.chain(large), |(digest, ..)| digest) {
        statement.execute(params![digest.as_bytes(), len.cast_signed(), now, data, TOUCH_EVERY_MS])?;
    }
    Ok(())
}

enum Sink {
    Memory(Vec<u8>),
    File(SpilledBlob),
}

/// A large blob on its way to its file: bytes wait in `buffer` until there are enough for one write and one hash
/// update.
struct SpilledBlob {
    file: NamedTempFile,
    hasher: Box<blake3::Hasher>,
    buffer: Vec<u8>,
}

impl SpilledBlob {
    fn new(file: NamedTempFile) -> Self {
        Self { file, hasher: Box::new(blake3::Hasher::new()), buffer: Vec::with_capacity(FILE_BUFFER) }
    }

    fn push(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.buffer.len() + bytes.len() > FILE_BUFFER {
            self.write_buffer()?;
        }
        if bytes.len() >= FILE_BUFFER {
            return self.write_through(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn write_buffer(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let result = self.write_through(&buffer);
        buffer.clear();
        self.buffer = buffer;
        result
    }

    fn write_through(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        fault::point("blob write")?;
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        Ok(())
    }

    /// The file with all bytes written, and their digest.
    fn finish(mut self) -> io::Result<(NamedTempFile, Digest)> {
        self.write_buffer()?;
        Ok((self.file, self.hasher.finalize().into()))
    }
}

/// Collects the bytes of one blob. If it is dropped without [`BlobWriter::finish`], nothing is stored.
pub struct BlobWriter {
    store: Store,
    sink: Sink,
    redactor: Option<Redactor>,
    /// Bytes written to it.
    taken: u64,
    /// Bytes in the sink.
    len: u64,
    limit: Option<u64>,
}

impl BlobWriter {
    /// Sets a limit: the write that would exceed `limit` bytes fails, and nothing is stored.
    #[must_use]
    pub fn with_limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// True if the blob will contain exactly the bytes written, with nothing hidden.
    #[must_use]
    pub fn is_verbatim(&self) -> bool {
        self.redactor.is_none()
    }

    /// Number of bytes written to it.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.taken
    }

    /// The blob of all bytes written. It is durable with the next synced event.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(mut self) -> Result<Blob, StoreError> {
        let rest = self.redactor.take().map(Redactor::finish);
        self.finish_with(rest)
    }

    /// The blob of a stream that was cut off: the start of a secret at its end is removed.
    ///
    /// # Errors
    /// As [`BlobWriter::finish`].
    pub fn finish_cut(mut self) -> Result<Blob, StoreError> {
        let rest = self.redactor.take().map(Redactor::finish_cut);
        self.finish_with(rest)
    }

    fn finish_with(mut self, rest: Option<Vec<u8>>) -> Result<Blob, StoreError> {
        if let Some(rest) = rest {
            self.append_to_sink(&rest).map_err(|e| self.store_error(e))?;
        }
        match self.sink {
            Sink::Memory(bytes) => self.store.put_small(&bytes),
            Sink::File(spilled) => {
                let (file, digest) = spilled
                    .finish()
                    .map_err(|e| StoreError::io("write in", &self.store.inner.dir.join("tmp"), e))?;
                self.store.adopt_file(file, Blob { digest, len: self.len })
            }
        }
    }

    /// The store's own error inside an error of this writer.
    #[must_use]
    pub fn store_error(&self, error: io::Error) -> StoreError {
        match error.downcast::<StoreError>() {
            Ok(own) => own,
            Err(other) => StoreError::io("write in", &self.store.inner.dir.join("tmp"), other),
        }
    }
}

impl BlobWriter {
    fn append_to_sink(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Sink::Memory(held) = &mut self.sink {
            if held.len() + bytes.len() <= INLINE_MAX {
                held.extend_from_slice(bytes);
                self.len += bytes.len() as u64;
                return Ok(());
            }
            let mut spilled = SpilledBlob::new(self.store.temp_file()?);
            spilled.push(held)?;
            self.sink = Sink::File(spilled);
        }
        if let Sink::File(spilled) = &mut self.sink {
            spilled.push(bytes)?;
            self.len += bytes.len() as u64;
        }
        Ok(())
    }
}

impl Write for BlobWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.taken + bytes.len() as u64;
        if let Some(limit) = self.limit.filter(|limit| taken > *limit) {
            return Err(StoreError::OverLimit { limit }.into());
        }
        match &mut self.redactor {
            None => self.append_to_sink(bytes)?,
            Some(redactor) => {
                let clean = redactor.push(bytes);
                self.append_to_sink(&clean)?;
            }
        }
        self.taken = taken;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Source {
    Memory(Cursor<Arc<[u8]>>),
    File { file: File, len: u64 },
}

/// The checked bytes of one blob, from the start.
pub struct BlobReader(Source);

impl BlobReader {
    /// The size of the blob in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.0 {
            Source::Memory(cursor) => cursor.get_ref().len() as u64,
            Source::File { len, .. } => *len,
        }
    }

    /// True if the blob is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file of a large blob, at the position read so far. It must not be written to.
    ///
    /// # Errors
    /// The reader itself if the blob is small, and so has no file.
    pub fn into_file(self) -> Result<File, Self> {
        match self.0 {
            Source::File { file, .. } => Ok(file),
            memory @ Source::Memory(_) => Err(Self(memory)),
        }
    }

    fn into_bytes(self) -> io::Result<Vec<u8>> {
        match self.0 {
            Source::Memory(cursor) => Ok(cursor.into_inner().to_vec()),
            Source::File { mut file, len } => {
                let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
                file.read_to_end(&mut bytes)?;
                Ok(bytes)
            }
        }
    }
}

impl Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Source::Memory(cursor) => cursor.read(buffer),
            Source::File { file, .. } => file.read(buffer),
        }
    }
}
