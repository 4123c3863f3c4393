//! The layers on which a staged process works: its changes to files are kept apart, and become a change set when it
//! succeeds (invariant T1).

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::locked_directory::{LockedDirectory, remove_tree};
use lobster_base::sync::lock;
use lobster_changes::{ChangeSet, Keep, Layer, LayerError, copy_with, lay_over};
use lobster_sandbox::{JailSpec, Overlay, Upper};
use lobster_stage::StageError;
use lobster_store::{Blob, LAYERS_PREFIX, Store};

use super::NativeTask;
use crate::change_sets::{InStore, load_change_set};

/// Largest change set. Garbage collection of the store does not search larger blobs for the names of others, and would
/// treat the contents as unused.
const MAX_CHANGE_SET: usize = 16 << 20;

/// Age of an unlocked layer that is removed. Earlier versions did not lock their layers; one that has not changed for
/// this time was left by a killed process.
const LEFT_BEHIND: Duration = Duration::from_secs(48 * 60 * 60);

/// Layers that are removed while the run continues. Dropping this value waits until they are removed.
#[derive(Default)]
pub(super) struct ThrownAway(Mutex<Vec<JoinHandle<()>>>);

/// Most removals at a time; then the run waits.
const AT_ONCE: usize = 4;

impl ThrownAway {
    /// Removes layers. Removing a layer with many files takes almost as long as committing it, and the commit need not
    /// wait for it.
    pub(super) fn remove_later(&self, layers: Layers) {
        let mut threads = lock(&self.0);
        threads.retain(|thread| !thread.is_finished());
        if threads.len() >= AT_ONCE {
            let _ = threads.remove(0).join();
        }
        // Without a thread they are dropped here.
        let thread = std::thread::Builder::new().name("layers".to_owned()).spawn(move || drop(layers));
        threads.extend(thread);
    }
}

impl Drop for ThrownAway {
    fn drop(&mut self) {
        for thread in lock(&self.0).drain(..) {
            let _ = thread.join();
        }
    }
}

/// The layers of one process.
pub(super) struct Layers {
    layers: Vec<Layer>,
    /// Overlays of directories that it only reads and that have pending changes.
    views: Vec<Overlay>,
    /// True if the kernel does not accept the form of one of them.
    needs_copies: bool,
    /// Declared last, so that it is removed after the layers.
    dir: LockedDirectory,
}

impl Layers {
    /// One layer over each directory that the task names; `None` if it names none.
    pub(super) fn for_task(task: &NativeTask, store: &Store) -> Result<Option<Self>, StageError> {
        if task.layered.is_empty() {
            return Ok(None);
        }
        let roots: Vec<&Path> = task.layered.iter().map(super::HostPath::as_path).collect();
        let dir = place_of_layers(store, &roots).map_err(|error| {
            layer_error(format!(
                "no place for a layer beside the store or in the temporary directory: {error}"
            ))
        })?;
        let layer = |(number, root): (usize, &&Path)| {
            Layer::new(root, dir.path().join(number.to_string()))
                .map_err(|error| layer_error(error.to_string()))
        };
        let layers = roots.iter().enumerate().map(layer).collect::<Result<_, _>>()?;
        let mut layers = Self { layers, views: Vec::new(), needs_copies: false, dir };
        if let Some(pending) = task.pending {
            layers.lay_below(&load_change_set(store, &pending.digest)?, task, store)?;
        }
        Ok(Some(layers))
    }

    /// Shows the process the pending changes: below its layers, and in directories that it only reads.
    fn lay_below(&mut self, pending: &ChangeSet, task: &NativeTask, store: &Store) -> Result<(), StageError> {
        let contents = InStore(store);
        let told = |error: LayerError| {
            layer_error(format!("the changes of earlier steps cannot be laid out: {error}"))
        };
        for layer in &mut self.layers {
            let seen = pending.seen_from(layer.root());
            layer.lay_below(&seen, &contents).map_err(told)?;
        }
        let empty = Vec::new();
        let read = task.confinement.jail_spec().map_or(&empty, |spec| &spec.read);
        for changed in pending.roots.iter().map(|root| Path::new(OsStr::from_bytes(root.root.as_bytes()))) {
            if self.layers.iter().any(|layer| changed.starts_with(layer.root())) {
                continue;
            }
            let inside = read.iter().filter(|path| path.starts_with(changed) && path.is_dir());
            let mut places: Vec<&Path> = inside.map(PathBuf::as_path).collect();
            if read.iter().any(|path| changed.starts_with(path)) && !places.contains(&changed) {
                places.push(changed);
            }
            for place in places {
                let below = self.dir.path().join(format!("view-{}", self.views.len()));
                let is_for_kernel =
                    lay_over(place, &pending.seen_from(place), &below, &contents).map_err(told)?;
                self.needs_copies |= !is_for_kernel;
                let root = place.to_owned();
                self.views.push(Overlay { root, below: Some(below), upper: None, copy: None });
            }
        }
        Ok(())
    }

    /// Lets the process work on the layers.
    pub(super) fn add_to_spec(&self, spec: &mut JailSpec) {
        let own = self.layers.iter().map(|layer| Overlay {
            root: layer.root().to_owned(),
            below: layer.below_dir(),
            upper: Some(Upper { dir: layer.upper_dir(), work: layer.work_dir() }),
            copy: layer.copy_dir(),
        });
        spec.layers = own.chain(self.views.iter().cloned()).collect();
    }

    /// True if the kernel is known to accept none of them.
    pub(super) fn needs_copies(&self) -> bool {
        self.needs_copies || self.layers.iter().any(Layer::needs_copy)
    }

    /// Copies the directories, if the kernel cannot put layers over them.
    pub(super) fn copy_directories(&mut self, store: &Store) -> Result<(), StageError> {
        let told = |error: LayerError| layer_error(error.to_string());
        let mut room = |bytes| leave_room_for(store.dir(), bytes);
        for layer in &mut self.layers {
            layer.make_copy(&mut room).map_err(told)?;
        }
        for (number, view) in self.views.iter_mut().enumerate() {
            if let Some(below) = &view.below {
                let copy = self.dir.path().join(format!("copy-{number}"));
                copy_with(&view.root, below, &copy, &mut room).map_err(told)?;
                view.copy = Some(copy);
            }
        }
        Ok(())
    }

    /// Puts the changes in the layers into the store.
    pub(super) fn change_set(&self, store: &Store) -> Result<Blob, StageError> {
        let mut keep = Kept::new(store);
        let roots = self
            .layers
            .iter()
            .map(|layer| layer.read_changes(&mut keep))
            .collect::<Result<Vec<_>, LayerError>>();
        keep_set(store, &ChangeSet::new(roots.map_err(|error| explain_layer(&error))?))
    }
}

/// The error of a layer that makes no change set.
pub(super) fn explain_layer(error: &LayerError) -> StageError {
    let code = if matches!(error, LayerError::Edited { .. }) { Code::ChangesConflict } else { Code::Changes };
    StageError::permanent(error.to_string()).with_code(code)
}

/// Puts a change set into the store.
pub fn keep_set(store: &Store, set: &ChangeSet) -> Result<Blob, StageError> {
    set.check_valid().map_err(|error| layer_error(error.to_string()))?;
    let text = serde_json::to_vec(set).map_err(|error| layer_error(error.to_string()))?;
    if text.len() > MAX_CHANGE_SET {
        let files = set.changes().count();
        return Err(layer_error(format!(
            "the step changed {files} files, more than one change set can hold; split it, or run it with \
             `changes: direct`"
        )));
    }
    store.put_verbatim(&text).map_err(|error| {
        StageError::new(format!("cannot keep the change set: {error}")).with_code(Code::Store)
    })
}

fn layer_error(message: String) -> StageError {
    StageError::permanent(message).with_code(Code::Changes)
}

/// Creates the directory of the layers next to the store, unless the store is inside one of `roots`: the kernel
/// accepts no layer inside a directory that it covers.
fn place_of_layers(store: &Store, roots: &[&Path]) -> io::Result<LockedDirectory> {
    let fits = |dir: &Path| !roots.iter().any(|root| dir.starts_with(root));
    let beside = fs::canonicalize(store.dir())?.join("layers");
    if fits(&beside) {
        remove_left_behind(&beside);
        return LockedDirectory::new(&beside, LAYERS_PREFIX);
    }
    let temporary: PathBuf = fs::canonicalize(std::env::temp_dir())?;
    if fits(&temporary) {
        return LockedDirectory::new(&temporary, LAYERS_PREFIX);
    }
    Err(io::Error::other("both are in the directory that is to be changed; move LOBSTER_STATE_DIR elsewhere"))
}

fn remove_left_behind(dir: &Path) {
    let is_old = |path: &Path| {
        let modified = fs::metadata(path).and_then(|found| found.modified()).ok()?;
        Some(SystemTime::now().duration_since(modified).ok()? > LEFT_BEHIND)
    };
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let is_unlocked = entry.file_name().as_encoded_bytes().starts_with(b"layer-");
        if is_unlocked && is_old(&entry.path()) == Some(true) {
            let _ = remove_tree(&entry.path());
        }
    }
}

/// Space on the store's disk that is left to others: this much, or a twentieth of a small disk.
const LEAST_FREE: u64 = 64 << 20;

/// Bytes after which the free space is checked again.
const LOOK_EVERY: usize = 16 << 20;

/// Fails before the disk is full, since other programs need the space, and so does the record of the failure.
fn leave_room(dir: &Path) -> io::Result<()> {
    leave_room_for(dir, 0)
}

/// The same, before `bytes` bytes are written.
fn leave_room_for(dir: &Path, bytes: u64) -> io::Result<()> {
    let Ok(stat) = rustix::fs::statvfs(dir) else { return Ok(()) };
    let [free, all] = [stat.f_bavail, stat.f_blocks].map(|blocks| blocks.saturating_mul(stat.f_frsize));
    if free.saturating_sub(bytes) >= LEAST_FREE.min(all / 20) {
        return Ok(());
    }
    let needed = if bytes > 0 { format!(" and {bytes} are needed") } else { String::new() };
    let message = format!(
        "the disk of the store ({}) is almost full, {free} bytes are free{needed}: remove old runs with `lobster store gc`, \
         or set LOBSTER_STATE_DIR to another disk",
        dir.display()
    );
    Err(io::Error::new(io::ErrorKind::StorageFull, message))
}

/// Puts contents into the store unchanged: they are committed, and not shown.
pub struct Kept<'s> {
    store: &'s Store,
    block: Vec<u8>,
    /// Bytes kept since the free space was checked.
    unlooked: usize,
}

impl<'s> Kept<'s> {
    pub fn new(store: &'s Store) -> Self {
        Self { store, block: vec![0; 128 << 10], unlooked: LOOK_EVERY }
    }

    /// Checks the free space for the bytes kept since the last check, and for `more` bytes.
    fn leave_room(&mut self, more: usize) -> io::Result<()> {
        self.unlooked = self.unlooked.saturating_add(more);
        if self.unlooked < LOOK_EVERY {
            return Ok(());
        }
        self.unlooked = 0;
        leave_room(self.store.dir())
    }
}

impl Keep for Kept<'_> {
    fn keep_file(&mut self, file: &mut File) -> io::Result<(Digest, u64)> {
        self.leave_room(0)?;
        match self.store.put_clone(file).map_err(io::Error::other)? {
            Some(blob) => Ok((blob.digest, blob.len)),
            None => {
                // A sparse file takes no space on its own disk, and its full length in the store.
                leave_room_for(self.store.dir(), file.metadata()?.len())?;
                self.keep_content(file)
            }
        }
    }

    fn keep_content(&mut self, content: &mut dyn Read) -> io::Result<(Digest, u64)> {
        let mut writer = self.store.verbatim_writer();
        self.leave_room(0)?;
        loop {
            match content.read(&mut self.block)? {
                0 => break,
                length => {
                    writer.write_all(&self.block[..length])?;
                    self.leave_room(length)?;
                }
            }
        }
        let blob = writer.finish().map_err(io::Error::other)?;
        Ok((blob.digest, blob.len))
    }
}
