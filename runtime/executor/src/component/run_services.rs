//! Host services for a component during a run, and the destination of its output.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use lobster_component::{BlobError, BlobRead, BlobWrite, HostServices, Level, OutputSink};
use serde_json::Value;

use crate::Scratch;
use lobster_base::digest::Digest;
use lobster_base::json;
use lobster_base::sync::lock;
use lobster_store::{Blob, BlobReader, BlobWriter, Durability, RunId, Store, StoreError, is_reserved_key};

/// Output that is written to the store: bytes, or items as JSON Lines.
pub(super) struct StoredOutput {
    pub(super) writer: BlobWriter,
    pub(super) items: Option<u64>,
}

impl OutputSink for StoredOutput {
    fn write_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.writer.write_all(bytes)
    }

    fn write_item(&mut self, json: &str) -> io::Result<()> {
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

/// The host's services for a component during a run.
pub struct RunServices {
    store: Store,
    values: Keeper,
    /// Values that the component keeps for the rest of the run.
    changed: Mutex<BTreeMap<String, Value>>,
    /// Blobs that the component wrote.
    wrote: Arc<Mutex<Vec<Blob>>>,
}

/// The place in which components keep values for the rest of a run.
pub enum Keeper {
    /// In the store.
    Run(RunId),
    /// In an execution that is not recorded.
    Scratch(Scratch),
    /// In an order, which contains the values; its outcome returns the values that the component keeps.
    Order(BTreeMap<String, Value>),
}

impl RunServices {
    /// Services with the blobs of `store`.
    pub fn new(store: Store, values: Keeper) -> Self {
        Self { store, values, changed: Mutex::default(), wrote: Arc::default() }
    }

    /// Values that the component keeps for the rest of the run, as a JSON object.
    pub fn kept_values(&self) -> Result<Option<Blob>, StoreError> {
        let changed = lock(&self.changed);
        if changed.is_empty() {
            return Ok(None);
        }
        self.store.put_blob(json::compact(&*changed).as_bytes()).map(Some)
    }

    /// The blobs that the component wrote.
    pub(super) fn written_blobs(&self) -> Vec<Blob> {
        std::mem::take(&mut *lock(&self.wrote))
    }
}

impl HostServices for RunServices {
    fn log(&self, level: Level, message: &str, fields: &str) {
        let (message, fields) = (self.store.hide_secrets(message), self.store.hide_secrets(fields));
        let fields = &*fields;
        match level {
            Level::Error => tracing::error!(target: "step", fields, "{message}"),
            Level::Warn => tracing::warn!(target: "step", fields, "{message}"),
            Level::Info => tracing::info!(target: "step", fields, "{message}"),
            Level::Debug => tracing::debug!(target: "step", fields, "{message}"),
            Level::Trace => tracing::trace!(target: "step", fields, "{message}"),
        }
    }

    fn report_progress(&self, done: u64, total: Option<u64>, message: Option<&str>) {
        let message = message.map(|message| self.store.hide_secrets(message));
        let message = message.as_deref();
        tracing::info!(target: "progress", done, total, message);
    }

    fn state_get(&self, key: &str) -> Option<String> {
        match &self.values {
            Keeper::Run(run) => {
                self.store.run_value(*run, key).ok().flatten().map(|value| json::compact(&value))
            }
            Keeper::Scratch(scratch) => lock(scratch).get(key).map(json::compact),
            Keeper::Order(brought) => {
                let changed = lock(&self.changed);
                changed.get(key).or_else(|| brought.get(key)).map(json::compact)
            }
        }
    }

    fn state_set(&self, key: &str, text: &str) -> io::Result<()> {
        let value = json::parse(text).map_err(io::Error::other)?;
        match &self.values {
            Keeper::Run(run) => {
                self.store.set_run_value(*run, key, &value, Durability::Lazy).map_err(io::Error::other)?;
            }
            Keeper::Scratch(scratch) => drop(lock(scratch).insert(key.to_owned(), value.clone())),
            Keeper::Order(_) if is_reserved_key(key) => {
                return Err(io::Error::other(StoreError::StateKey));
            }
            Keeper::Order(_) => {}
        }
        lock(&self.changed).insert(key.to_owned(), value);
        Ok(())
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
        Ok(Box::new(NewBlob { writer: self.store.blob_writer(), wrote: Arc::clone(&self.wrote) }))
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

struct NewBlob {
    writer: BlobWriter,
    wrote: Arc<Mutex<Vec<Blob>>>,
}

impl Write for NewBlob {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BlobWrite for NewBlob {
    fn finish(self: Box<Self>) -> Result<String, BlobError> {
        let blob = self.writer.finish().map_err(io::Error::other)?;
        lock(&self.wrote).push(blob);
        Ok(blob.digest.to_string())
    }
}
