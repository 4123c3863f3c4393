//! The layer of a step, and the change set that is read from it.
//!
//! The kernel stores the changes of a step separately (overlayfs): a new or changed file is in the upper
//! directory, a removed one is a *whiteout* there, and a directory that was made again is *opaque*. Only the
//! upper directory is read, never the tree below.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use lobster_base::digest::Digest;
use lobster_base::locked_directory::remove_tree;

use crate::acl::Acl;
use crate::beginning::Beginning;
use crate::commit::{CommitError, Contents};
use crate::copy::{Copied, CopyError, Room, copy_below};
use crate::disk::Disk;
use crate::pile::{Below, write_upper};
use crate::reader::Reader;
use crate::set::{ByteText, Change, RelPath, RootChanges};

/// Storage for contents.
pub trait Keep {
    /// Stores a content and returns its digest and size.
    ///
    /// # Errors
    /// If it cannot be read or stored.
    fn keep_content(&mut self, content: &mut dyn Read) -> io::Result<(Digest, u64)>;

    /// Stores the whole content of a file. A storage that can share blocks between files need not copy them.
    ///
    /// # Errors
    /// If it cannot be read or stored.
    fn keep_file(&mut self, file: &mut File) -> io::Result<(Digest, u64)> {
        self.keep_content(file)
    }
}

/// Reason why a step has no layer, or its layer no change set.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// The layer cannot be made.
    #[error("cannot make a layer over {root:?}: {source}")]
    Root {
        /// The directory.
        root: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another file system is mounted below the directory.
    #[error(
        "cannot make a layer over {root:?}: another file system is mounted at {mount:?}, which the layer would \
         hide; unmount it, or run the step with `changes: direct`"
    )]
    Mount {
        /// The directory.
        root: PathBuf,
        /// The mount in it.
        mount: PathBuf,
    },
    /// A pipe, socket or device was made, replaced or removed.
    #[error(
        "the step made, replaced or removed {path} in {root}, a pipe, socket or device, and only files, \
         directories and links can be committed and undone; let it do that in /tmp, or run it with \
         `changes: direct`"
    )]
    Special {
        /// The directory.
        root: ByteText,
        /// The path in it.
        path: RelPath,
    },
    /// Another program changed a file below the layer while the step worked on it.
    #[error(
        "{path} in {root} was changed by another program while the step worked on it, so none of the step's \
         changes were committed; run the step again"
    )]
    Edited {
        /// The directory.
        root: ByteText,
        /// The path in it.
        path: RelPath,
    },
    /// A file would run with its owner's rights.
    #[error(
        "the step gave {path} in {root} a set-user-id or set-group-id bit or a capability, which is not \
         committed; remove it in the step"
    )]
    Rights {
        /// The directory.
        root: ByteText,
        /// The path in it.
        path: RelPath,
    },
    /// The step set an extended attribute, which change sets do not support.
    #[error(
        "the step set the extended attribute {attribute} of {path} in {root}, and those cannot be committed; \
         run it with `changes: direct`"
    )]
    Attribute {
        /// The directory.
        root: ByteText,
        /// The path in it.
        path: RelPath,
        /// The attribute.
        attribute: ByteText,
    },
    /// The step changed the mode of the directory itself.
    #[error("the step changed the mode of {root} itself, which is not committed")]
    RootMode {
        /// The directory.
        root: ByteText,
    },
    /// The directory could not be copied for a step without a layer.
    #[error(
        "no layer can be mounted over {root}, and it cannot be copied for the step, at {place}: {source}; run it with \
         `changes: direct`"
    )]
    Copy {
        /// The directory.
        root: ByteText,
        /// The path in it.
        place: ByteText,
        /// The system's error.
        source: io::Error,
    },
    /// A file could not be read or stored.
    #[error("cannot read what the step changed at {path} in {root}: {source}")]
    Read {
        /// The directory.
        root: ByteText,
        /// The path in it.
        path: RelPath,
        /// The system's error.
        source: io::Error,
    },
}

/// A private layer over one directory. Dropping it discards its content.
#[derive(Debug)]
pub struct Layer {
    root: PathBuf,
    dir: PathBuf,
    mode: u32,
    /// Time when it was made.
    made: Beginning,
    /// True if there are uncommitted changes between the directory and the layer.
    over_changes: bool,
    /// True if the kernel does not accept their format.
    needs_copy: bool,
    /// The copy on which the step works instead.
    copied: Option<Copied>,
}

impl Layer {
    /// An empty layer over `root`, stored in the new directory `dir`.
    ///
    /// # Errors
    /// If `root` is not the real path of a directory, or if another file system is mounted below it.
    pub fn new(root: &Path, dir: PathBuf) -> Result<Self, LayerError> {
        let failed = |source| LayerError::Root { root: root.to_owned(), source };
        let found = fs::symlink_metadata(root).map_err(failed)?;
        if !found.is_dir() {
            return Err(failed(io::ErrorKind::NotADirectory.into()));
        }
        if let Some(mount) = mount_below(root).map_err(failed)? {
            return Err(LayerError::Mount { root: root.to_owned(), mount });
        }
        let mode = found.mode() & 0o7777;
        let make = |path: PathBuf, mode: u32| {
            DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
            fs::set_permissions(path, Permissions::from_mode(mode))
        };
        // The step sees the upper directory's own mode and lists as those of the root.
        make(dir.clone(), 0o700)
            .and_then(|()| make(dir.join(UPPER), mode))
            .and_then(|()| give_lists_of(root, &dir.join(UPPER), mode))
            .and_then(|()| make(dir.join(WORK), 0o700))
            .map_err(failed)?;
        let made = Beginning::now(root, &dir).map_err(failed)?;
        let root = root.to_owned();
        Ok(Self { root, dir, mode, made, over_changes: false, needs_copy: false, copied: None })
    }

    /// Puts uncommitted changes below the layer. The step sees them, but they are not among the changes of
    /// the step.
    ///
    /// # Errors
    /// If one of their contents is missing, or if there is no space.
    pub fn lay_below(&mut self, changes: &[Change], contents: &dyn Contents) -> Result<(), LayerError> {
        if !changes.is_empty() {
            self.needs_copy = !lay_over(&self.root, changes, &self.dir.join("below"), contents)?;
            self.over_changes = true;
        }
        Ok(())
    }

    /// True if the kernel cannot mount the layer here, so that a copy is needed.
    #[must_use]
    pub fn needs_copy(&self) -> bool {
        self.needs_copy
    }

    /// Copies everything that the step would see, so that it can work on the copy where the kernel cannot
    /// mount a layer.
    ///
    /// # Errors
    /// If something cannot be read, or if there is no space.
    pub fn make_copy(&mut self, room: Room<'_>) -> Result<(), LayerError> {
        let pile = self.below_dir().map(|below| open_root(&below)).transpose()?;
        let below = Below::new(open_root(&self.root)?, pile);
        let to = self.dir.join(COPY);
        let copied = copy_below(&below, self.mode, &to, room);
        self.copied = Some(copied.map_err(not_copied(&self.root))?);
        give_lists_of(&self.root, &to, self.mode)
            .map_err(|source| LayerError::Root { root: self.root.clone(), source })?;
        Ok(())
    }

    /// The copy on which the step works.
    #[must_use]
    pub fn copy_dir(&self) -> Option<PathBuf> {
        self.copied.is_some().then(|| self.dir.join(COPY))
    }

    /// The uncommitted changes between the directory and the layer.
    #[must_use]
    pub fn below_dir(&self) -> Option<PathBuf> {
        self.over_changes.then(|| self.dir.join("below"))
    }

    /// The directory below the layer.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Directory where the kernel stores the changes of the step.
    #[must_use]
    pub fn upper_dir(&self) -> PathBuf {
        self.dir.join(UPPER)
    }

    /// Work directory that overlayfs requires.
    #[must_use]
    pub fn work_dir(&self) -> PathBuf {
        self.dir.join(WORK)
    }

    /// Changes of the step. Their contents, before and after, are stored in `keep`.
    ///
    /// # Errors
    /// If the step changed something that cannot be committed.
    pub fn read_changes(&self, keep: &mut dyn Keep) -> Result<RootChanges, LayerError> {
        let root: ByteText = self.root.as_os_str().as_bytes().to_vec().into();
        let base = open_root(&self.root)?;
        let pile = self.below_dir().map(|below| open_root(&below)).transpose()?;
        let upper = self.copy_dir().unwrap_or_else(|| self.upper_dir());
        let now =
            fs::metadata(&upper).map_err(|source| LayerError::Root { root: self.root.clone(), source })?;
        if now.mode() & 0o7777 != self.mode {
            return Err(LayerError::RootMode { root });
        }
        let below = Below::new(base, pile);
        let made = self.made.time_bound();
        let made = made.map_err(|source| LayerError::Root { root: self.root.clone(), source })?;
        let mut reader = Reader::new(below, upper, root.clone(), made, keep);
        reader.compare_with(self.copied.as_ref());
        reader.read_directory(None, true, false)?;
        reader.check_origins()?;
        Ok(RootChanges { root, changes: reader.into_changes() })
    }
}

/// Names of the kernel's directories in the directory of a layer.
const UPPER: &str = "upper";
const WORK: &str = "work";

/// Name of the copy in the directory of a layer.
const COPY: &str = "copy";

fn not_copied(root: &Path) -> impl FnOnce(CopyError) -> LayerError {
    let root: ByteText = root.as_os_str().as_bytes().to_vec().into();
    move |(path, source)| {
        let place = path.map_or_else(|| root.clone(), |path| path.as_bytes().to_vec().into());
        LayerError::Copy { root, place, source }
    }
}

/// Copies `root`, with its changes in `below`, to the new directory `to`.
///
/// # Errors
/// If something cannot be read, or if there is no space.
pub fn copy_with(root: &Path, below: &Path, to: &Path, room: Room<'_>) -> Result<(), LayerError> {
    let failed = |source| LayerError::Root { root: root.to_owned(), source };
    let mode = fs::symlink_metadata(root).map_err(failed)?.mode() & 0o7777;
    let below = Below::new(open_root(root)?, Some(open_root(below)?));
    copy_below(&below, mode, to, room).map(drop).map_err(not_copied(root))
}

/// Writes changes of `root` to the new directory `to`, in the format of overlayfs. Returns false if the
/// kernel does not accept it, because no whiteout can be made.
///
/// # Errors
/// If one of their contents is missing, or if there is no space.
pub fn lay_over(
    root: &Path,
    changes: &[Change],
    to: &Path,
    contents: &dyn Contents,
) -> Result<bool, LayerError> {
    let failed = |source| LayerError::Root { root: root.to_owned(), source };
    let mode = fs::symlink_metadata(root).map_err(failed)?.mode() & 0o7777;
    let base = open_root(root)?;
    DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(failed)?;
    let is_for_kernel = write_upper(changes, &base, to, contents).map_err(failed)?;
    fs::set_permissions(to, Permissions::from_mode(mode)).map_err(failed)?;
    Ok(is_for_kernel)
}

/// New files in the directory itself inherit its lists.
fn give_lists_of(root: &Path, to: &Path, mode: u32) -> io::Result<()> {
    let Some(acl) = Acl::of_path(root)? else { return Ok(()) };
    acl.give_to(&File::open(to)?)?;
    fs::set_permissions(to, Permissions::from_mode(mode))
}

pub(crate) fn open_root(root: &Path) -> Result<Disk, LayerError> {
    Disk::of_root(&root.as_os_str().as_bytes().to_vec().into()).map_err(|error| {
        let source = match error {
            CommitError::Root { source, .. } => source,
            other => io::Error::other(other.to_string()),
        };
        LayerError::Root { root: root.to_owned(), source }
    })
}

impl Drop for Layer {
    fn drop(&mut self) {
        // Leftovers are private, and the next collection finds them.
        let _ = remove_tree(&self.dir);
    }
}

/// Finds a mount strictly below a directory, which would look empty in a layer.
fn mount_below(root: &Path) -> io::Result<Option<PathBuf>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let points =
        table.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    let mut paths = points.map(|point| PathBuf::from(OsString::from_vec(decode_octal(point))));
    Ok(paths.find(|path| path.starts_with(root) && path != root))
}

/// Decodes spaces and similar characters, which the mount table writes as `\040`.
fn decode_octal(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, more)) = rest.split_first() {
        let octal =
            more.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            out.push(byte);
            rest = &more[3..];
        } else {
            out.push(*first);
            rest = more;
        }
    }
    out
}
