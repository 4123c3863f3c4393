//! Copies of approved files, which the step finds in place of the files.
//!
//! Each file is read once: the same bytes are copied, hashed and compared with the approved digest. Only lobster can
//! write to the directory of the copies.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};

use super::name_watch::NameWatch;
use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;
use lobster_base::locked_directory::LockedDirectory;
use lobster_base::regular_file;
use lobster_policy::BoundFile;
use lobster_sandbox::{JailSpec, Replaced};
use lobster_store::COPIES_PREFIX;

/// Total bytes that are copied for one approval; larger files are only compared.
pub(super) const MAX_COPY: u64 = 64 << 20;

/// The reason why nothing is run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotHeld {
    /// A file differs from the approved one.
    #[error(
        "{path} is no longer what was approved: it was changed or replaced{when}. Start the run again and \
         approve what it shows"
    )]
    Changed { path: String, when: &'static str },
    /// The trees that the command reads differ from the approved ones.
    #[error("changed since it was approved: {changes}. Start the run again and approve what it shows")]
    Trees { changes: String },
    #[error("cannot hold on to the approved file {path}: {source}")]
    Io { path: String, source: io::Error },
}

/// Files that keep their approved contents while this value lives.
#[derive(Debug)]
pub(crate) struct HeldCopies {
    replaced: Vec<Replaced>,
    /// Executed or sourced files that are only compared.
    uncopied: Vec<PathBuf>,
    watch: NameWatch,
    /// Declared last, so that the copies are removed last.
    _copies: LockedDirectory,
}

impl HeldCopies {
    /// Copies `files`, which must still be as they were approved.
    pub(crate) fn copy_files(
        files: &[BoundFile],
        state_dir: &Path,
        spec: &JailSpec,
    ) -> Result<Self, NotHeld> {
        let changed = |file: &BoundFile, when| NotHeld::Changed { path: file.path.clone(), when };
        // From here on the watch sees every change of the names.
        let watch = NameWatch::start(files.iter().filter(|file| !file.compared), &spec.write)
            .map_err(|(path, source)| NotHeld::Io { path, source })?;
        let copies = place_for_copies(state_dir)
            .map_err(|source| NotHeld::Io { path: state_dir.display().to_string(), source })?;
        let mut replaced: Vec<Replaced> = Vec::new();
        for (number, file) in files.iter().enumerate() {
            let real = Path::new(file.real_path());
            let is_there = fs::canonicalize(&file.path).is_ok_and(|found| found == real);
            if !is_there {
                return Err(changed(file, " since"));
            }
            // Not copied: the same file under another name, or a file that the step cannot see.
            let again = replaced.iter().any(|other| other.path == real);
            let copy = copies.path().join(number.to_string());
            let wanted = !(file.compared || again) && is_visible(spec, real);
            let digest = digest_and_copy(real, wanted.then_some(&copy), file.bytes)
                .map_err(|source| NotHeld::Io { path: file.path.clone(), source })?;
            if digest != Some(file.digest) {
                return Err(changed(file, " since"));
            }
            if wanted {
                replaced.push(Replaced { path: real.to_owned(), copy });
            }
        }
        let uncopied = files.iter().filter(|file| file.compared).map(|file| PathBuf::from(file.real_path()));
        let uncopied = uncopied.filter(|path| is_visible(spec, path)).collect();
        let held = Self { replaced, uncopied, watch, _copies: copies };
        match held.watch.replaced_file() {
            Some(path) => Err(NotHeld::Changed { path, when: " since" }),
            None => Ok(held),
        }
    }

    /// Puts the copies in place of the files in the step's view.
    pub(crate) fn replace_originals(&self, spec: &mut JailSpec) {
        spec.replaced.clone_from(&self.replaced);
        spec.uncopied.clone_from(&self.uncopied);
        // Hides the copies from a step that may read or write the directory around them.
        let copies = self._copies.path();
        if spec.read.iter().chain(&spec.write).any(|root| copies.starts_with(root)) {
            spec.deny.push(copies.to_owned());
        }
    }

    /// The change to a file that was only compared, if it changed.
    pub(crate) fn uncopied_change(&self) -> Option<NotHeld> {
        let when = " while the command ran";
        self.watch.written_file().map(|path| NotHeld::Changed { path, when })
    }

    /// Runs `work`, and stops it when the name of an approved file is given to another file meanwhile. From then on
    /// the command may run code without approval.
    pub(crate) fn run_guarded<T>(
        &self,
        cancel: &CancelToken,
        work: impl FnOnce(&CancelToken) -> T,
    ) -> (T, Option<NotHeld>) {
        let changed = |path| NotHeld::Changed { path, when: " while the command ran, which was stopped" };
        let (done, path) = self.watch.run_guarded(cancel, work);
        (done, path.map(changed))
    }
}

/// True if the step would find the file at its path.
fn is_visible(spec: &JailSpec, path: &Path) -> bool {
    let granted = spec.read.iter().chain(&spec.write).any(|root| path.starts_with(root));
    granted && !spec.deny.iter().any(|root| path.starts_with(root))
}

/// The digest of a file of `bytes` bytes, which is read once and copied along the way. `None` if the file has grown.
fn digest_and_copy(path: &Path, copy: Option<&PathBuf>, bytes: u64) -> io::Result<Option<Digest>> {
    let source = regular_file::open(path)?;
    let mode = source.metadata()?.permissions().mode() & 0o777;
    let Some(copy) = copy else {
        return Digest::of_reader(source).map(Some);
    };
    let mut target = File::create_new(copy)?;
    let mut tee = Tee { from: source.take(bytes.saturating_add(1)), to: &mut target, copied: 0 };
    let digest = Digest::of_reader(&mut tee)?;
    if tee.copied != bytes {
        return Ok(None);
    }
    target.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(Some(digest))
}

/// A reader that also writes the bytes that it reads.
struct Tee<'a, R> {
    from: R,
    to: &'a mut File,
    copied: u64,
}

impl<R: Read> Read for Tee<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(buffer)?;
        self.to.write_all(&buffer[..length])?;
        self.copied += length as u64;
        Ok(length)
    }
}

/// Creates a directory for copies.
fn place_for_copies(state_dir: &Path) -> io::Result<LockedDirectory> {
    fs::create_dir_all(state_dir)?;
    let mut place = fs::canonicalize(state_dir)?;
    // Programs cannot be run from a `noexec` file system.
    if statvfs(&place).is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::NOEXEC)) {
        place = fs::canonicalize(std::env::temp_dir())?;
    }
    LockedDirectory::new(&place, COPIES_PREFIX)
}
