//! A change set is committed whole or not at all.
//!
//! First everything is compared and laid ready in a directory of the root; a crash
//! throws that away. Then the journal says *applying*: from there each step moves one
//! thing into or out of that directory, by renames that replace nothing, and a crash is
//! followed by the rest of the steps. If a step finds something else than was compared,
//! the journal says *reverting* and the steps are taken back.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
#[cfg(target_os = "linux")]
use std::time::{Duration, Instant};

use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;

use crate::apply::{Halt, Pass, apply};
use crate::commit_log::{Journal, Log, LogFile, Phase};
use crate::files::{Files, Place, Seen, What};
use crate::prepare::{clean, compare, lay_ready, workbench};
use crate::revert::revert;
#[cfg(target_os = "linux")]
use crate::root_locks::{Holder, RootLocks};
use crate::set::{BadChangeSet, ByteText, ChangeSet, RelPath};
use crate::steps::plan;

/// Where contents are found.
pub trait Contents {
    /// A content, by its digest.
    ///
    /// # Errors
    /// When it is not there.
    fn open(&self, digest: &Digest) -> io::Result<Content<'_>>;
}

/// A content, to be read from its beginning.
pub enum Content<'c> {
    /// As a file that nobody writes to. A file system that can share its blocks need not copy them.
    File(File),
    /// As bytes.
    Bytes(Box<dyn Read + 'c>),
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(buffer),
            Self::Bytes(bytes) => bytes.read(buffer),
        }
    }
}

/// One file that is not what the change set was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The directory.
    pub root: ByteText,
    /// The path in it.
    pub path: RelPath,
    /// What is there.
    pub found: Found,
}

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let found = match self.found {
            Found::Nothing => "is gone",
            Found::File => "is another file, or has another content or mode",
            Found::Directory => "is a directory, or has another mode or something new in it",
            Found::Link => "is a symbolic link, or leads elsewhere",
            Found::Other => "is a device, pipe or socket",
        };
        write!(f, "{} in {} {found}", self.path, self.root)
    }
}

/// What lies where a change set expects something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// An ordinary file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Anything else.
    Other,
}

impl Found {
    pub(crate) fn of(seen: Option<&Seen>) -> Self {
        match seen.map(|seen| seen.what) {
            None => Self::Nothing,
            Some(What::File) => Self::File,
            Some(What::Directory) => Self::Directory,
            Some(What::Link) => Self::Link,
            Some(What::Other) => Self::Other,
        }
    }
}

/// Why a change set was not committed. Unless it says otherwise, nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Files are not what the change set was made from.
    #[error("{}", conflict_list(.0))]
    Conflicts(Vec<Conflict>),
    /// A file changed during the commit, which was taken back. What somebody changed
    /// meanwhile was left as it is.
    #[error("{conflict}; the commit was rolled back{}", told_left(.left))]
    Raced {
        /// The file.
        conflict: Conflict,
        /// What could not be taken back, since somebody has changed it too.
        left: Vec<RelPath>,
    },
    /// The change set cannot be one.
    #[error(transparent)]
    Bad(#[from] BadChangeSet),
    /// The file system refused.
    #[error("cannot {doing} {path} in {root}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The directory.
        root: ByteText,
        /// The path in it.
        path: RelPath,
        /// The system's error.
        source: io::Error,
    },
    /// The file system refused in the middle of it, and also to take it back. The journal
    /// is kept, and [`recover`] goes on with it.
    #[error(
        "cannot commit {path} in {root}: {source}; the rest is done when that is mended, by the next command"
    )]
    Stuck {
        /// The directory.
        root: ByteText,
        /// The path in it.
        path: RelPath,
        /// The system's error.
        source: io::Error,
    },
    /// Another process commits in one of the directories, or in one above or below, and does not end.
    #[error("{holder} has been committing changes to files in {root} for {seconds} s")]
    Busy {
        /// The directory.
        root: ByteText,
        /// Who it is.
        holder: String,
        /// For so long this commit has waited.
        seconds: u64,
    },
    /// It was cancelled while it waited for another process that commits in one of the directories.
    #[error("it was cancelled while {holder} was committing changes to files in {root}")]
    Cancelled {
        /// The directory.
        root: ByteText,
        /// Who it was.
        holder: String,
    },
    /// A directory that is to change cannot be opened.
    #[error("cannot open {root}: {source}")]
    Root {
        /// The directory.
        root: ByteText,
        /// The system's error.
        source: io::Error,
    },
    /// A commit that a crash interrupted cannot be finished.
    #[error("{source}; to give it up and leave the files as they are, remove {journal:?}")]
    Unfinished {
        /// Its journal.
        journal: PathBuf,
        /// Why not.
        source: Box<CommitError>,
    },
    /// The journal of a commit that a crash interrupted.
    #[error("the journal of an interrupted commit cannot be read: {0}")]
    Unreadable(io::Error),
    /// The journal of the commit. If it holds the commit all the same, [`recover`] ends that.
    #[error("cannot keep the journal of the commit: {0}")]
    Journal(io::Error),
}

/// Of as many conflicts a message says what is there; of the others it says where they are.
const TOLD: usize = 5;

/// As many conflicts are named in a message.
const NAMED: usize = 1000;

fn conflict_list(conflicts: &[Conflict]) -> String {
    let mut text: Vec<String> = conflicts.iter().take(TOLD).map(ToString::to_string).collect();
    if conflicts.len() > TOLD {
        let others = &conflicts[TOLD..conflicts.len().min(NAMED)];
        let names: Vec<String> = others.iter().map(|conflict| conflict.path.to_string()).collect();
        text.push(format!("and {}", names.join(", ")));
    }
    if conflicts.len() > NAMED {
        text.push(format!("and {} more", conflicts.len() - NAMED));
    }
    format!("changed meanwhile: {}", text.join("; "))
}

fn told_left(left: &[RelPath]) -> String {
    if left.is_empty() {
        return String::new();
    }
    let names: Vec<String> = left.iter().map(ToString::to_string).collect();
    format!(", but for what was changed since: {}", names.join(", "))
}

pub(crate) fn failed(
    doing: &'static str,
    set: &ChangeSet,
    place: &Place,
) -> impl FnOnce(io::Error) -> CommitError {
    let root = root_name(set, place);
    let path = place.path.clone();
    move |source| CommitError::Io { doing, root, path, source }
}

fn root_name(set: &ChangeSet, place: &Place) -> ByteText {
    set.roots.get(place.root).map_or_else(|| Vec::new().into(), |root| root.root.clone())
}

/// What became of a commit that a crash interrupted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The name that it was given.
    pub id: String,
    /// Whether all of it is done now; else none is.
    pub committed: bool,
    /// What was changed by somebody and left so.
    pub left: Vec<RelPath>,
}

/// Tells whoever keeps the record of a commit how it ended, before its journal is forgotten. If it fails, the journal
/// stays, and the next recovery tells it again.
pub type Tell<'t> = &'t dyn Fn(&Recovered) -> io::Result<()>;

/// For so long a commit waits for others in the same directories.
#[cfg(target_os = "linux")]
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks at a lock that is held.
#[cfg(target_os = "linux")]
const POLL: Duration = Duration::from_millis(10);

/// Commits a change set. `journals` is a directory beside the store; `id` names the
/// commit: letters, digits and hyphens. While another process commits in the same directories, it waits, for half a
/// minute or until it is cancelled. What crashes left of other commits there is finished first, and `tell` hears of it.
///
/// # Errors
/// When a file is not what the set was made from (unless every one of them is what it is to
/// become: then there is nothing to do), or the file system refuses. Nothing
/// has changed then, but for [`CommitError::Stuck`], and [`CommitError::Journal`] if the
/// journal was written and the disk did not say so: [`recover`] tells.
#[cfg(target_os = "linux")]
pub fn commit(
    journals: &Path,
    id: &str,
    set: &ChangeSet,
    contents: &dyn Contents,
    cancel: &CancelToken,
    tell: Tell<'_>,
) -> Result<(), CommitError> {
    commit_within(PATIENCE, journals, id, set, contents, cancel, tell)
}

#[cfg(target_os = "linux")]
pub(crate) fn commit_within(
    patience: Duration,
    journals: &Path,
    id: &str,
    set: &ChangeSet,
    contents: &dyn Contents,
    cancel: &CancelToken,
    tell: Tell<'_>,
) -> Result<(), CommitError> {
    set.check()?;
    let _only = lock(patience, journals, set, cancel, tell)?;
    let files = crate::disk::Disk::open(set)?;
    let done = commit_in(&files, &LogFile::new(journals, id), id, set, contents);
    // A crash between the end of the commit and its record: all is there already.
    if matches!(&done, Err(CommitError::Conflicts(_))) && compare(&files, &set.inverse()).is_ok() {
        return Ok(());
    }
    done
}

/// Nobody else commits in the directories of `set` while this is held, and no interrupted commit is left there.
#[cfg(target_os = "linux")]
fn lock(
    patience: Duration,
    journals: &Path,
    set: &ChangeSet,
    cancel: &CancelToken,
    tell: Tell<'_>,
) -> Result<RootLocks, CommitError> {
    let since = Instant::now();
    let mut has_recovered = false;
    loop {
        match RootLocks::try_take(journals, set).map_err(CommitError::Journal)? {
            Ok(locks) => {
                let pending = LogFile::pending(journals).map_err(CommitError::Journal)?;
                // Whoever writes such a journal has had these locks, and has them no more.
                let is_left = |journal: &io::Result<Journal>| {
                    // One that cannot be cleared is in nobody's way: all of it is done.
                    let is_over = |journal: &Journal| has_recovered && journal.phase == Phase::Cleaning;
                    journal.as_ref().is_ok_and(|journal| set.meets(&journal.set) && !is_over(journal))
                };
                if !pending.iter().any(|(_, journal)| is_left(journal)) {
                    return Ok(locks);
                }
                drop(locks);
                if recover_for(journals, set, tell)?.is_empty() {
                    // A process is at it in another of its directories.
                    std::thread::sleep(POLL);
                }
                has_recovered = true;
            }
            Err(Holder { root, name: holder }) => {
                if cancel.wait(POLL) {
                    return Err(CommitError::Cancelled { root, holder });
                }
                if since.elapsed() >= patience {
                    return Err(CommitError::Busy { root, holder, seconds: patience.as_secs() });
                }
            }
        }
    }
}

/// The files that are not what a change set was made from.
///
/// # Errors
/// When they cannot be compared.
#[cfg(target_os = "linux")]
pub fn conflicts(set: &ChangeSet) -> Result<Vec<Conflict>, CommitError> {
    set.check()?;
    match compare(&crate::disk::Disk::open(set)?, set) {
        Ok(_) => Ok(Vec::new()),
        Err(CommitError::Conflicts(found)) => Ok(found),
        Err(error) => Err(error),
    }
}

/// Finishes the commits that crashes interrupted: forward, or back if that is how far they came. Waits for nobody: a
/// commit that a process is at is left to it. `tell` hears of each of them.
///
/// # Errors
/// [`CommitError::Unfinished`] when one of them cannot be finished: its journal is kept, and the others are
/// finished all the same.
#[cfg(target_os = "linux")]
pub fn recover(journals: &Path, tell: Tell<'_>) -> Result<Vec<Recovered>, CommitError> {
    recover_where(journals, None, tell)
}

/// The same, before `set` is committed: a commit in other directories that cannot be finished does not matter, nor
/// a journal that cannot be read, for what it left half done is not what `set` was made from.
///
/// # Errors
/// As [`recover`].
#[cfg(target_os = "linux")]
pub fn recover_for(journals: &Path, set: &ChangeSet, tell: Tell<'_>) -> Result<Vec<Recovered>, CommitError> {
    recover_where(journals, Some(set), tell)
}

#[cfg(target_os = "linux")]
fn recover_where(
    journals: &Path,
    before: Option<&ChangeSet>,
    tell: Tell<'_>,
) -> Result<Vec<Recovered>, CommitError> {
    let pending = LogFile::pending(journals).map_err(CommitError::Journal)?;
    let (mut done, mut unfinished) = (Vec::new(), None);
    for (log, journal) in pending {
        let concerns = match (before, &journal) {
            (None, _) => true,
            (Some(set), Ok(journal)) => set.meets(&journal.set),
            (Some(_), Err(_)) => false,
        };
        let one = journal
            .map_err(CommitError::Unreadable)
            .and_then(|found| finish_left(journals, &log, &found, tell));
        match one {
            Ok(one) => done.extend(one),
            Err(source) if concerns => {
                let journal = log.path().to_owned();
                unfinished.get_or_insert(CommitError::Unfinished { journal, source: Box::new(source) });
            }
            Err(_) => {}
        }
    }
    unfinished.map_or(Ok(done), Err)
}

/// Finishes a commit, unless a process is at it; `found` is its journal as it was a moment ago.
#[cfg(target_os = "linux")]
fn finish_left(
    journals: &Path,
    log: &LogFile,
    found: &Journal,
    tell: Tell<'_>,
) -> Result<Option<Recovered>, CommitError> {
    let Ok(_only) = RootLocks::try_take(journals, &found.set).map_err(CommitError::Journal)? else {
        return Ok(None);
    };
    // It may have gone on until now.
    let Some(journal) = log.read().transpose().map_err(CommitError::Unreadable)? else { return Ok(None) };
    if !found.set.has_roots_of(&journal.set) {
        return Ok(None);
    }
    let files = crate::disk::Disk::open(&journal.set)?;
    recover_in(&files, log, journal, tell).map(Some)
}

/// Other systems have no renames that replace nothing.
#[cfg(not(target_os = "linux"))]
pub fn commit(
    _: &Path,
    _: &str,
    _: &ChangeSet,
    _: &dyn Contents,
    _: (&CancelToken, Tell<'_>),
) -> Result<(), CommitError> {
    Err(CommitError::Journal(io::ErrorKind::Unsupported.into()))
}

/// Nothing is ever begun there.
#[cfg(not(target_os = "linux"))]
pub fn recover_for(_: &Path, _: &ChangeSet, _: Tell<'_>) -> Result<Vec<Recovered>, CommitError> {
    Ok(Vec::new())
}

/// Nothing is ever begun there.
#[cfg(not(target_os = "linux"))]
pub fn recover(_: &Path, _: Tell<'_>) -> Result<Vec<Recovered>, CommitError> {
    Ok(Vec::new())
}

pub(crate) fn commit_in(
    files: &impl Files,
    log: &impl Log,
    id: &str,
    set: &ChangeSet,
    contents: &dyn Contents,
) -> Result<(), CommitError> {
    if set.is_empty() {
        return Ok(());
    }
    let steps = plan(set, &compare(files, set)?);
    let mut journal =
        Journal { id: id.to_owned(), phase: Phase::Preparing, set: set.clone(), steps, committed: false };
    log.write(&journal.brief()).map_err(CommitError::Journal)?;
    let ready = lay_ready(files, &mut journal, contents).and_then(|()| {
        journal.phase = Phase::Applying;
        log.write(&journal).map_err(CommitError::Journal)
    });
    if let Err(error) = ready {
        finish(files, log, &mut journal, false, || Ok(()));
        return Err(error);
    }
    match apply(files, &mut journal, Pass::First) {
        Ok(()) => {
            finish(files, log, &mut journal, true, || Ok(()));
            Ok(())
        }
        Err(halt) => {
            let left = go_back(files, log, &mut journal)?;
            Err(explain(&journal, halt, left))
        }
    }
}

pub(crate) fn recover_in(
    files: &impl Files,
    log: &impl Log,
    mut journal: Journal,
    tell: Tell<'_>,
) -> Result<Recovered, CommitError> {
    if matches!(journal.phase, Phase::Applying | Phase::Reverting) {
        check_benches(files, &journal)?;
    }
    let (committed, left) = match journal.phase {
        Phase::Preparing => (false, Vec::new()),
        Phase::Cleaning => (journal.committed, Vec::new()),
        Phase::Applying => match apply(files, &mut journal, Pass::Again) {
            Ok(()) => (true, Vec::new()),
            Err(_) => {
                let left = go_back(files, log, &mut journal)?;
                return Ok(Recovered { id: journal.id, committed: false, left });
            }
        },
        Phase::Reverting => {
            let left = go_back(files, log, &mut journal)?;
            return Ok(Recovered { id: journal.id, committed: false, left });
        }
    };
    let recovered = Recovered { id: journal.id.clone(), committed, left };
    finish(files, log, &mut journal, committed, || tell(&recovered));
    Ok(recovered)
}

/// As long as the steps are not over, what is not in its place lies in the workbenches. Without them each step would
/// look done.
fn check_benches(files: &impl Files, journal: &Journal) -> Result<(), CommitError> {
    let path = workbench(&journal.id).map_err(CommitError::Journal)?;
    for root in 0..journal.set.roots.len() {
        let place = Place { root, path: path.clone() };
        let seen = files.look(&place).map_err(failed("look at", &journal.set, &place))?;
        if seen.is_none_or(|seen| seen.what != What::Directory) {
            let gone = "what lay there, ready or moved out of the way, is gone; put that directory back";
            return Err(stuck(journal, Halt::Io(place, io::Error::other(gone))));
        }
    }
    Ok(())
}

/// Takes everything back. Gives what was left as somebody else had made it.
fn go_back(files: &impl Files, log: &impl Log, journal: &mut Journal) -> Result<Vec<RelPath>, CommitError> {
    journal.phase = Phase::Reverting;
    log.write(journal).map_err(CommitError::Journal)?;
    let left = revert(files, journal).map_err(|halt| stuck(journal, halt))?;
    finish(files, log, journal, false, || Ok(()));
    Ok(left.into_iter().map(|place| place.path).collect())
}

/// Throws away what lies ready or out of sight, and forgets the commit. It has succeeded,
/// or failed, by now: what cannot be written or thrown away waits for the next recovery,
/// which finds every step done. As long as the journal does not say *cleaning*, nothing
/// that a step goes by may be thrown away.
fn finish(
    files: &impl Files,
    log: &impl Log,
    journal: &mut Journal,
    committed: bool,
    tell: impl FnOnce() -> io::Result<()>,
) {
    journal.phase = Phase::Cleaning;
    journal.committed = committed;
    let _ = log
        .write(&journal.brief())
        .and_then(|()| clean(files, journal))
        .and_then(|()| tell())
        .and_then(|()| log.clear());
}

fn stuck(journal: &Journal, halt: Halt) -> CommitError {
    let (place, source) = match halt {
        Halt::Io(place, source) => (place, source),
        Halt::Conflict(place, _) => (place, io::Error::other("another file is there")),
    };
    let root = root_name(&journal.set, &place);
    CommitError::Stuck { root, path: place.path, source }
}

fn explain(journal: &Journal, halt: Halt, left: Vec<RelPath>) -> CommitError {
    match halt {
        Halt::Io(place, source) => failed("commit", &journal.set, &place)(source),
        Halt::Conflict(place, seen) => {
            let root = root_name(&journal.set, &place);
            let conflict = Conflict { root, path: place.path, found: Found::of(seen.as_ref()) };
            CommitError::Raced { conflict, left }
        }
    }
}
