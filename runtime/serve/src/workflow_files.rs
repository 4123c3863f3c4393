//! The workflow files of a server's folders, as an author reads and saves them.
//!
//! A file is a name in one of the folders. It is opened through the folder's own handle and never through a link or
//! onto another mount, so nothing outside of the operator's folders is ever read or written. A file is replaced as a
//! whole, and only if it is still the version that the author has read.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use lobster_runtime::digest::Digest;
use lobster_runtime::language::source::has_workflow_extension;
use rustix::fs::{
    AtFlags, CWD, FlockOperation, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Uid, fchmod, fchown, flock,
    fstat, fsync, openat, openat2, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

/// Largest file that can be edited here, in bytes.
pub const MOST: u64 = 256 << 10;

/// Paths stay inside the folder, without links and without other mounts.
const INSIDE: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// The folders in which files may be saved.
#[derive(Clone, Debug, Default)]
pub struct WorkflowFiles {
    folders: Vec<PathBuf>,
    /// True if saved files are registered without review.
    pub is_trusted: bool,
}

/// The path of a file that can be saved, even if it does not exist yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavePath {
    folder: PathBuf,
    name: String,
}

/// The content of a file with its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    pub text: String,
    pub digest: Digest,
    /// True if its lines end with CRLF, as on Windows.
    has_carriage_returns: bool,
}

/// Reason why a file cannot be read or saved here.
#[derive(Debug)]
pub enum FileProblem {
    /// The file has changed since the author read it. Holds the current content.
    Changed(Option<Content>),
    /// The file cannot be edited here.
    Unfit(String),
    Io(io::Error),
}

impl From<Errno> for FileProblem {
    fn from(error: Errno) -> Self {
        Self::Io(error.into())
    }
}

impl From<io::Error> for FileProblem {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl SavePath {
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }
}

impl WorkflowFiles {
    #[must_use]
    pub fn new(folders: Vec<PathBuf>, is_trusted: bool) -> Self {
        Self { folders, is_trusted }
    }

    /// True if there are no folders.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// The place of a file, if it is in one of the folders.
    #[must_use]
    pub fn place_of(&self, path: &Path) -> Option<SavePath> {
        let (above, name) = (path.parent()?, path.file_name()?.to_str()?);
        let above = above.canonicalize().ok()?;
        let folder =
            self.folders.iter().find(|folder| folder.canonicalize().is_ok_and(|folder| folder == above))?;
        Some(SavePath { folder: folder.clone(), name: name.to_owned() }).filter(|_| is_fit(name))
    }

    /// The place for a new workflow of this name: in the first folder.
    #[must_use]
    pub fn new_place(&self, workflow: &str) -> Option<SavePath> {
        let name = format!("{workflow}.lobster");
        let folder = self.folders.first().filter(|_| is_fit(&name))?.clone();
        Some(SavePath { folder, name })
    }

    /// Returns the content of a file, or `None` if it does not exist.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if a text field cannot hold its content.
    pub fn read_file(&self, place: &SavePath) -> Result<Option<Content>, FileProblem> {
        Ok(read_in(&open_folder(&place.folder)?, &place.name)?.map(|(_, content)| content))
    }

    /// Saves a text if the file still has the digest `base`, or does not exist if `base` is `None`. A reader sees
    /// either the complete old text or the complete new one.
    ///
    /// # Errors
    /// Fails if the file has changed or cannot be written. The file is then unchanged.
    pub fn save_file(
        &self,
        place: &SavePath,
        base: Option<Digest>,
        text: &str,
    ) -> Result<Digest, FileProblem> {
        let folder = open_folder(&place.folder)?;
        // The lock puts servers in order; the exchange detects changes by other programs.
        flock(&folder, FlockOperation::LockExclusive)?;
        let known = read_in(&folder, &place.name)?;
        if known.as_ref().map(|(_, content)| content.digest) != base {
            return Err(FileProblem::Changed(known.map(|(_, content)| content)));
        }
        let ends = known.as_ref().is_some_and(|(_, content)| content.has_carriage_returns);
        let text = if ends { text.replace('\n', "\r\n") } else { text.to_owned() };
        let draft = Draft::write(&folder, &place.name, &text, known.as_ref().map(|(file, _)| file))?;
        match known {
            None => match renameat_with(&folder, &draft.name, &folder, &place.name, RenameFlags::NOREPLACE) {
                Err(Errno::EXIST) => return Err(FileProblem::Changed(self.read_file(place)?)),
                other => other?,
            },
            Some(_) => exchange_files(&folder, &draft, &place.name, base)?,
        }
        fsync(&folder)?;
        Ok(Digest::of_bytes(text.as_bytes()))
    }
}

/// Puts a draft in the place of a file. Reverts that if the file was not the version `base`: another program may have
/// saved it between the check and the exchange.
fn exchange_files(
    folder: &OwnedFd,
    draft: &Draft<'_>,
    name: &str,
    base: Option<Digest>,
) -> Result<(), FileProblem> {
    match renameat_with(folder, &draft.name, folder, name, RenameFlags::EXCHANGE) {
        // The file system cannot exchange files, so the earlier check must be enough.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            return Ok(renameat(folder, &draft.name, folder, name)?);
        }
        other => other?,
    }
    let replaced = read_in(folder, &draft.name);
    let is_it = matches!(&replaced, Ok(Some((_, content))) if Some(content.digest) == base);
    if is_it {
        return Ok(());
    }
    renameat_with(folder, &draft.name, folder, name, RenameFlags::EXCHANGE)?;
    Err(FileProblem::Changed(replaced?.map(|(_, content)| content)))
}

/// A file that will replace another one. Dropping it deletes the file.
struct Draft<'f> {
    folder: &'f OwnedFd,
    name: String,
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        let _ = unlinkat(self.folder, &self.name, AtFlags::empty());
    }
}

impl<'f> Draft<'f> {
    fn write(folder: &'f OwnedFd, of: &str, text: &str, like: Option<&File>) -> Result<Self, FileProblem> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
        // Not the name of a workflow file, so that no server takes it for one.
        let name = format!(".{of}.{:016x}.draft", u64::from_le_bytes(bytes));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(if like.is_some() { 0o600 } else { 0o666 });
        let mut file = File::from(openat(folder, &name, flags, mode)?);
        let draft = Self { folder, name };
        file.write_all(text.as_bytes())?;
        if let Some(like) = like {
            let stat = fstat(like)?;
            let (owner, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            // Without the right to keep the owner, this user becomes the owner, as with any editor.
            let _ = fchown(&file, Some(owner), Some(group));
            fchmod(&file, Mode::from_raw_mode(stat.st_mode & 0o777))?;
        }
        file.sync_all()?;
        Ok(draft)
    }
}

fn open_folder(folder: &Path) -> Result<OwnedFd, FileProblem> {
    // The operator named the folder, so it may be a link.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, folder, flags, Mode::empty())?)
}

/// True if the name can only be the name of a workflow file.
fn is_fit(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    name.len() <= 120
        // A leading dash would make it an option of a program that runs on `*.lobster`.
        && !name.starts_with(['.', '-'])
        && name.chars().all(fits)
        && has_workflow_extension(Path::new(name))
}

fn read_in(folder: &OwnedFd, name: &str) -> Result<Option<(File, Content)>, FileProblem> {
    // Opening a pipe must not block.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let unfit = |why: &str| FileProblem::Unfit(format!("{name} {why}"));
    let mut file = match openat2(folder, name, flags, Mode::empty(), INSIDE) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(unfit("is a link; edit the file that it leads to")),
        Err(Errno::XDEV) => return Err(unfit("is on another mount")),
        Err(error) => return Err(error.into()),
    };
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(unfit("is not a file"));
    }
    let mut bytes = Vec::new();
    (&mut file).take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MOST {
        return Err(unfit("is larger than what can be edited here"));
    }
    let digest = Digest::of_bytes(&bytes);
    let text = String::from_utf8(bytes).map_err(|_| unfit("is not UTF-8 text"))?;
    let plain = text.replace("\r\n", "\n");
    if plain.contains(['\r', '\0']) {
        return Err(unfit("contains control characters that a browser would change"));
    }
    let has_carriage_returns = text.contains("\r\n");
    if has_carriage_returns && plain.replace('\n', "\r\n") != text {
        return Err(unfit("ends some lines with a carriage return and some without"));
    }
    Ok(Some((file, Content { text: plain, digest, has_carriage_returns })))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn temp_folder() -> (tempfile::TempDir, WorkflowFiles) {
        let folder = tempfile::tempdir().unwrap();
        let files = WorkflowFiles::new(vec![folder.path().to_owned()], false);
        (folder, files)
    }

    fn file_names(folder: &tempfile::TempDir) -> Vec<String> {
        let entries = std::fs::read_dir(folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_saved_whole_and_keeps_its_mode_and_line_ends() {
        let (folder, files) = temp_folder();
        let place = files.new_place("report").unwrap();
        let first = files.save_file(&place, None, "steps: []\n").unwrap();
        let path = folder.path().join("report.lobster");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        files.save_file(&place, Some(first), "name: a\nsteps: []\n").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "name: a\nsteps: []\n");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        std::fs::write(&path, "a\r\nb\r\n").unwrap();
        let read = files.read_file(&place).unwrap().unwrap();
        assert_eq!(read.text, "a\nb\n");
        files.save_file(&place, Some(read.digest), "a\nc\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"a\r\nc\r\n");
        assert_eq!(file_names(&folder), ["report.lobster"], "no draft is left");
    }

    #[test]
    fn a_file_that_somebody_else_saved_is_not_replaced() {
        let (folder, files) = temp_folder();
        let place = files.new_place("report").unwrap();
        let base = files.save_file(&place, None, "one\n").unwrap();
        assert!(matches!(files.save_file(&place, None, "two\n"), Err(FileProblem::Changed(Some(_)))));
        std::fs::write(place.path(), "theirs\n").unwrap();
        match files.save_file(&place, Some(base), "mine\n") {
            Err(FileProblem::Changed(Some(now))) => assert_eq!(now.text, "theirs\n"),
            other => panic!("{other:?}"),
        }
        std::fs::remove_file(place.path()).unwrap();
        assert!(matches!(files.save_file(&place, Some(base), "mine\n"), Err(FileProblem::Changed(None))));
        assert!(file_names(&folder).is_empty());
    }

    #[test]
    fn of_many_authors_each_either_saves_or_is_told() {
        let (folder, files) = temp_folder();
        let place = files.new_place("report").unwrap();
        files.save_file(&place, None, "0\n").unwrap();
        let saved: usize = std::thread::scope(|scope| {
            let author = |name: usize| {
                let (files, place) = (files.clone(), place.clone());
                scope.spawn(move || {
                    let mut saved = 0;
                    while saved < 20 {
                        let now = files.read_file(&place).unwrap().unwrap();
                        match files.save_file(&place, Some(now.digest), &format!("{}{name}\n", now.text)) {
                            Ok(_) => saved += 1,
                            Err(FileProblem::Changed(_)) => {}
                            Err(other) => panic!("{other:?}"),
                        }
                    }
                    saved
                })
            };
            let authors: Vec<_> = (1..4).map(author).collect();
            authors.into_iter().map(|author| author.join().unwrap()).sum()
        });
        let text = std::fs::read_to_string(place.path()).unwrap();
        assert_eq!(text.lines().count(), saved + 1, "no author's line is lost");
        assert_eq!(file_names(&folder), ["report.lobster"]);
    }

    #[test]
    fn nothing_outside_of_the_folders_is_reached() {
        let (folder, files) = temp_folder();
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret.lobster"), "secret").unwrap();
        symlink(outside.path().join("secret.lobster"), folder.path().join("link.lobster")).unwrap();
        for name in ["../secret", "a/b", "", ".", "..", ".hidden", "-x", "--help", "a\nb", "ü"] {
            assert!(files.new_place(name).is_none(), "{name:?}");
        }
        assert!(files.place_of(&outside.path().join("secret.lobster")).is_none());
        assert!(files.place_of(&folder.path().join("notes.txt")).is_none());
        let link = files.place_of(&folder.path().join("link.lobster")).unwrap();
        assert!(matches!(files.read_file(&link), Err(FileProblem::Unfit(_))));
        assert!(matches!(files.save_file(&link, None, "x"), Err(FileProblem::Unfit(_))));
        assert_eq!(std::fs::read_to_string(outside.path().join("secret.lobster")).unwrap(), "secret");
        assert!(WorkflowFiles::default().new_place("a").is_none());
    }

    #[test]
    fn what_a_text_field_would_change_is_not_edited() {
        let (_folder, files) = temp_folder();
        let place = files.new_place("odd").unwrap();
        for bytes in [&b"a\0b"[..], b"\xff", b"a\rb", b"a\r\nb\nc", &vec![b'x'; MOST as usize + 1]] {
            std::fs::write(place.path(), bytes).unwrap();
            assert!(matches!(files.read_file(&place), Err(FileProblem::Unfit(_))));
        }
    }
}
