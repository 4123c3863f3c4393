//! The layers that a staged process works on: what it changes in files is kept apart, and
//! becomes a change set when it succeeds (invariant T1).

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_changes::{ChangeSet, Keep, Layer, LayerError, remove_tree};
use lobster_sandbox::{JailSpec, Overlay};
use lobster_stage::StageError;
use lobster_store::{Blob, Store};
use tempfile::TempDir;

use super::NativeTask;

/// In the detail of an outcome: the blob of its change set.
pub(crate) const CHANGES: &str = "changes";

/// A larger change set is refused: a collection of the store reads no larger blob for the
/// names of others in it, and would take the contents for unused.
const MAX_CHANGE_SET: usize = 16 << 20;

/// A directory of layers that nobody has touched for so long was left by a process that was killed.
const LEFT_BEHIND: Duration = Duration::from_secs(48 * 60 * 60);

/// The layers of one process.
pub(super) struct Layers {
    layers: Vec<Layer>,
    /// Removed after them.
    _dir: TempDir,
}

impl Layers {
    /// One over each directory that the task names; none if it names none.
    pub(super) fn over(task: &NativeTask, store: &Store) -> Result<Option<Self>, StageError> {
        if task.layered.is_empty() {
            return Ok(None);
        }
        let roots: Vec<&Path> = task.layered.iter().map(super::HostPath::as_path).collect();
        let dir = place_of_layers(store, &roots).map_err(|error| {
            failed(format!("no place for a layer beside the store or in the temporary directory: {error}"))
        })?;
        let layer = |(number, root): (usize, &&Path)| {
            Layer::new(root, dir.path().join(number.to_string())).map_err(|error| failed(error.to_string()))
        };
        let layers = roots.iter().enumerate().map(layer).collect::<Result<_, _>>()?;
        Ok(Some(Self { layers, _dir: dir }))
    }

    /// Has the process work on them.
    pub(super) fn confine(&self, spec: &mut JailSpec) {
        spec.layers = self
            .layers
            .iter()
            .map(|layer| Overlay { root: layer.root().to_owned(), upper: layer.upper(), work: layer.work() })
            .collect();
    }

    /// What was changed in them, in the store.
    pub(super) fn change_set(&self, store: &Store) -> Result<Blob, StageError> {
        let mut keep = Kept(store);
        let roots =
            self.layers.iter().map(|layer| layer.changes(&mut keep)).collect::<Result<Vec<_>, LayerError>>();
        let set = ChangeSet::new(roots.map_err(|error| {
            let code = if matches!(error, LayerError::Edited { .. }) {
                Code::ChangesConflict
            } else {
                Code::Changes
            };
            failed(error.to_string()).with_code(code)
        })?);
        set.check().map_err(|error| failed(error.to_string()))?;
        let text = serde_json::to_vec(&set).map_err(|error| failed(error.to_string()))?;
        if text.len() > MAX_CHANGE_SET {
            let files = set.changes().count();
            return Err(failed(format!(
                "the step changed {files} files, more than one change set can hold; split it, or run it with \
                 `changes: direct`"
            )));
        }
        store.put_verbatim(&text).map_err(|error| {
            StageError::new(format!("cannot keep the change set: {error}")).with_code(Code::Store)
        })
    }
}

fn failed(message: String) -> StageError {
    StageError::permanent(message).with_code(Code::Changes)
}

/// Beside the store, unless that lies in one of the directories: the kernel takes no layer
/// that lies in what it covers.
fn place_of_layers(store: &Store, roots: &[&Path]) -> io::Result<TempDir> {
    let fits = |dir: &Path| !roots.iter().any(|root| dir.starts_with(root));
    let beside = fs::canonicalize(store.dir())?.join("layers");
    let make = |dir: &Path| tempfile::Builder::new().prefix("layer-").tempdir_in(dir);
    if fits(&beside) {
        fs::create_dir_all(&beside)?;
        remove_left_behind(&beside);
        return make(&beside);
    }
    let temporary: PathBuf = fs::canonicalize(std::env::temp_dir())?;
    if fits(&temporary) {
        return make(&temporary);
    }
    Err(io::Error::other("both lie in the directory that is to be changed; move LOBSTER_STATE_DIR elsewhere"))
}

fn remove_left_behind(dir: &Path) {
    let is_old = |path: &Path| {
        let modified = fs::metadata(path).and_then(|found| found.modified()).ok()?;
        Some(SystemTime::now().duration_since(modified).ok()? > LEFT_BEHIND)
    };
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if is_old(&entry.path()) == Some(true) {
            let _ = remove_tree(&entry.path());
        }
    }
}

/// Contents go to the store as they are: they are committed, and not shown.
struct Kept<'s>(&'s Store);

impl Keep for Kept<'_> {
    fn keep(&mut self, content: &mut dyn Read) -> io::Result<(Digest, u64)> {
        let mut writer = self.0.verbatim_writer();
        let mut block = vec![0; 128 << 10];
        loop {
            match content.read(&mut block)? {
                0 => break,
                length => writer.write_all(&block[..length])?,
            }
        }
        let blob = writer.finish().map_err(io::Error::other)?;
        Ok((blob.digest, blob.len))
    }
}
