//! What a component is lent during a run: where its output goes, and the
//! services of the host.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use lobster_component::{BlobError, BlobRead, BlobWrite, HostServices, Level, OutputSink};

use crate::run::{Scratch, lock};
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_store::{BlobReader, BlobWriter, Durability, RunId, Store, StoreError};

/// Output on its way into the store: bytes, or items as JSON Lines.
pub(super) struct Sink {
    pub(super) writer: BlobWriter,
    pub(super) items: Option<u64>,
}

impl OutputSink for Sink {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    fn item(&mut self, json: &str) -> io::Result<()> {
        *self.items.get_or_insert(0) += 1;
        self.writer.write_all(json.as_bytes())?;
        self.writer.write_all(b"\n")
    }
}

pub(super) struct SharedWriter(pub(super) Arc<Mutex<BlobWriter>>);

impl Write for SharedWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the host does for a component during a run.
pub(super) struct RunServices {
    pub(super) store: Store,
    pub(super) run: RunId,
    /// Values of an execution that is not recorded.
    pub(super) scratch: Option<Scratch>,
}

impl HostServices for RunServices {
    fn log(&self, level: Level, message: &str, fields: &str) {
        let (message, fields) = (self.store.hide(message), self.store.hide(fields));
        let fields = &*fields;
        match level {
            Level::Error => tracing::error!(target: "step", fields, "{message}"),
            Level::Warn => tracing::warn!(target: "step", fields, "{message}"),
            Level::Info => tracing::info!(target: "step", fields, "{message}"),
            Level::Debug => tracing::debug!(target: "step", fields, "{message}"),
            Level::Trace => tracing::trace!(target: "step", fields, "{message}"),
        }
    }

    fn progress(&self, done: u64, total: Option<u64>, message: Option<&str>) {
        let message = message.map(|message| self.store.hide(message));
        let message = message.as_deref();
        tracing::info!(target: "progress", done, total, message);
    }

    fn state_get(&self, key: &str) -> Option<String> {
        if let Some(scratch) = &self.scratch {
            return lock(scratch).get(key).map(json::compact);
        }
        self.store.run_value(self.run, key).ok().flatten().map(|value| json::compact(&value))
    }

    fn state_set(&self, key: &str, text: &str) -> io::Result<()> {
        let value = json::parse(text).map_err(io::Error::other)?;
        if let Some(scratch) = &self.scratch {
            lock(scratch).insert(key.to_owned(), value);
            return Ok(());
        }
        self.store.set_run_value(self.run, key, &value, Durability::Lazy).map_err(io::Error::other)
    }

    fn blob_open(&self, digest: &str) -> Result<Box<dyn BlobRead>, BlobError> {
        let known: Digest = digest.parse().map_err(|_| BlobError::NotFound(digest.to_owned()))?;
        match self.store.open_blob(&known) {
            Ok(reader) => Ok(Box::new(StoredBlob(reader))),
            Err(StoreError::MissingBlob(_)) => Err(BlobError::NotFound(digest.to_owned())),
            Err(error) => Err(BlobError::Io(io::Error::other(error))),
        }
    }

    fn blob_create(&self) -> Result<Box<dyn BlobWrite>, BlobError> {
        Ok(Box::new(NewBlob(self.store.blob_writer())))
    }
}

struct StoredBlob(BlobReader);

impl io::Read for StoredBlob {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl BlobRead for StoredBlob {
    fn size(&self) -> u64 {
        self.0.len()
    }
}

struct NewBlob(BlobWriter);

impl Write for NewBlob {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BlobWrite for NewBlob {
    fn finish(self: Box<Self>) -> Result<String, BlobError> {
        let blob = self.0.finish().map_err(io::Error::other)?;
        Ok(blob.digest.to_string())
    }
}
