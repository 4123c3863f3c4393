//! The host of a program that runs outside a workflow.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::sync::{Arc, Mutex, OnceLock};

use crate::render::{harmless, print_to_stderr};
use lobster_runtime::component::{BlobError, BlobRead, BlobWrite, HostServices, Level};
use lobster_runtime::digest::Digest;
use lobster_runtime::sync::lock;
use tempfile::{NamedTempFile, TempDir};

/// Log and progress go to stderr; values and blobs are kept until the run ends.
#[derive(Default)]
pub(super) struct Alone {
    quiet: bool,
    state: Mutex<HashMap<String, String>>,
    /// Created for the first blob.
    blobs: OnceLock<Arc<TempDir>>,
}

impl Alone {
    /// A host that prints nothing.
    pub(super) fn quiet() -> Self {
        Self { quiet: true, ..Self::default() }
    }
}

impl HostServices for Alone {
    fn log(&self, level: Level, message: &str, fields: &str) {
        if self.quiet {
            return;
        }
        let level = format!("{level:?}").to_lowercase();
        let gap = if fields.is_empty() { "" } else { " " };
        print_to_stderr(&format!("{level}: {}{gap}{}", harmless(message), harmless(fields)));
    }

    fn report_progress(&self, done: u64, total: Option<u64>, message: Option<&str>) {
        if self.quiet {
            return;
        }
        let total = total.map(|total| format!("/{total}")).unwrap_or_default();
        print_to_stderr(&format!("progress: {done}{total} {}", harmless(message.unwrap_or_default())));
    }

    fn state_get(&self, key: &str) -> Option<String> {
        lock(&self.state).get(key).cloned()
    }

    fn state_set(&self, key: &str, json: &str) -> io::Result<()> {
        lock(&self.state).insert(key.to_owned(), json.to_owned());
        Ok(())
    }

    fn blob_open(&self, digest: &str) -> Result<Box<dyn BlobRead>, BlobError> {
        let missing = || BlobError::NotFound(digest.to_owned());
        let name: Digest = digest.parse().map_err(|_| missing())?;
        let file = File::open(self.blobs.get().ok_or_else(missing)?.path().join(name.to_string())).map_err(
            |error| if error.kind() == io::ErrorKind::NotFound { missing() } else { error.into() },
        )?;
        let size = file.metadata()?.len();
        Ok(Box::new(Blob { file, size }))
    }

    fn blob_create(&self) -> Result<Box<dyn BlobWrite>, BlobError> {
        let dir = match self.blobs.get() {
            Some(dir) => dir,
            None => {
                let new = Arc::new(tempfile::tempdir()?);
                self.blobs.get_or_init(|| new)
            }
        };
        Ok(Box::new(NewBlob { file: NamedTempFile::new_in(dir.path())?, dir: Arc::clone(dir) }))
    }
}

struct Blob {
    file: File,
    size: u64,
}

impl Read for Blob {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer)
    }
}

impl BlobRead for Blob {
    fn size(&self) -> u64 {
        self.size
    }
}

struct NewBlob {
    file: NamedTempFile,
    dir: Arc<TempDir>,
}

impl Write for NewBlob {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl BlobWrite for NewBlob {
    fn finish(mut self: Box<Self>) -> Result<String, BlobError> {
        self.file.rewind()?;
        let name = Digest::of_reader(&mut self.file)?.to_string();
        self.file.persist(self.dir.path().join(&name)).map_err(|error| error.error)?;
        Ok(name)
    }
}
