//! Commits a change set completely or not at all.
//!
//! First all files are compared, and new contents are prepared in a directory of the root; after a crash they
//! are discarded. Then the journal enters *applying*. From there, each step moves one file into or out of
//! that directory, by renames that replace nothing, and after a crash the remaining steps are executed. If a
//! step finds a file other than the compared one, the journal enters *reverting* and the steps are reverted.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lobster_base::cancel::CancelToken;
use lobster_base::digest::Digest;

use crate::apply::{Halt, Pass, apply_steps};
use crate::commit_log::{Journal, Log, LogFile, Phase};
use crate::files::{Files, RootedPath, Seen, What};
use crate::links::{LinkRule, StrayLink};
use crate::prepare::{compare_set, lay_ready, remove_prepared, workbench_path};
use crate::revert::revert_steps;
use crate::root_locks::{Holder, RootLocks};
use crate::set::{BadChangeSet, ByteText, ChangeSet, RelPath};
use crate::steps::plan_steps;

/// Source of contents.
pub trait Contents {
    /// Opens a content by its digest.
    ///
    /// # Errors
    /// If it does not exist.
    fn open_content(&self, digest: &Digest) -> io::Result<Content<'_>>;
}

/// A content, to be read from its beginning.
pub enum Content<'c> {
    /// A file that no program writes to. If the file system can share blocks, they need not be copied.
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

/// A file that differs from the one from which the change set was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The directory.
    pub root: ByteText,
    /// The path in it.
    pub path: RelPath,
    /// Kind of file that is there.
    pub found: Found,
}

impl std::fmt::Display for Conflict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let found = match self.found {
            Found::Nothing => "is gone",
            Found::File => "is another file, or has different content or another mode",
            Found::Directory => "is a directory, or has another mode or new entries",
            Found::Link => "is a symbolic link, or has another target",
            Found::Other => "is a device, pipe or socket",
        };
        write!(f, "{} in {} {found}", self.path, self.root)
    }
}

/// Kind of file at a path where a change set expects another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing.
    Nothing,
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// Anything else.
    Other,
}

impl Conflict {
    /// The conflict of a set with the file that was seen at a place.
    pub(crate) fn new(set: &ChangeSet, place: &RootedPath, seen: Option<Seen>) -> Self {
        let found = match seen.map(|seen| seen.what) {
            None => Found::Nothing,
            Some(What::File) => Found::File,
            Some(What::Directory) => Found::Directory,
            Some(What::Link) => Found::Link,
            Some(What::Other) => Found::Other,
        };
        Self { root: root_name(set, place), path: place.path.clone(), found }
    }
}

/// Reason why a change set was not committed. Unless a variant documents otherwise, nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Files differ from those from which the change set was made.
    #[error("{}", conflict_list(.0))]
    Conflicts(Vec<Conflict>),
    /// A file changed during the commit, which was rolled back. Changes that other programs made meanwhile
    /// were left.
    #[error("{conflict}; the commit was rolled back{}", told_left(.left))]
    Raced {
        /// The file.
        conflict: Conflict,
        /// Files that could not be rolled back, because another program has changed them as well.
        left: Vec<RelPath>,
    },
    /// The change set is invalid.
    #[error(transparent)]
    Bad(#[from] BadChangeSet),
    /// A link would lead away.
    #[error("{0}")]
    Link(Box<StrayLink>),
    /// The file system refused.
    #[error("cannot {doing} {path} in {root}: {source}")]
    Io {
        /// The failed operation.
        doing: &'static str,
        /// The directory.
        root: ByteText,
        /// The path in it.
        path: RelPath,
        /// The system's error.
        source: io::Error,
    },
    /// The file system refused an operation in the middle, and also its reversal. The journal is kept, and
    /// [`recover_commits`] continues it.
    #[error(
        "cannot commit {path} in {root}: {source}; after that is repaired, the next command finishes the commit"
    )]
    Stuck {
        /// The directory.
        root: ByteText,
        /// The path in it.
        path: RelPath,
        /// The system's error.
        source: io::Error,
    },
    /// Another process has been committing in one directory of the set, or above or below it, for too long.
    #[error("{holder} has been committing changes to files in {root} for {seconds} s")]
    Busy {
        /// The directory.
        root: ByteText,
        /// The process.
        holder: String,
        /// Time that this commit has waited.
        seconds: u64,
    },
    /// It was cancelled while it waited for another process that was committing in one directory of the set.
    #[error("it was cancelled while {holder} was committing changes to files in {root}")]
    Cancelled {
        /// The directory.
        root: ByteText,
        /// The process.
        holder: String,
    },
    /// A directory to change cannot be opened.
    #[error("cannot open {root}: {source}")]
    Root {
        /// The directory.
        root: ByteText,
        /// The system's error.
        source: io::Error,
    },
    /// A commit that was interrupted by a crash cannot be finished.
    #[error("{source}; to abandon the commit and leave the files unchanged, remove {journal:?}")]
    Unfinished {
        /// Its journal.
        journal: PathBuf,
        /// The reason.
        source: Box<CommitError>,
    },
    /// The journal of a commit that was interrupted by a crash is damaged.
    #[error("the journal of an interrupted commit cannot be read: {0}")]
    Unreadable(io::Error),
    /// The journal cannot be written or read. If it contains the commit nevertheless, [`recover_commits`] ends the
    /// commit.
    #[error("cannot keep the journal of the commit: {0}")]
    Journal(io::Error),
}

/// Conflicts that a message describes; further ones are listed by path.
const TOLD: usize = 5;

/// Conflicts that a message lists.
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
    format!(", except for files that changed since: {}", names.join(", "))
}

pub(crate) fn io_failure(
    doing: &'static str,
    set: &ChangeSet,
    place: &RootedPath,
) -> impl FnOnce(io::Error) -> CommitError {
    let root = root_name(set, place);
    let path = place.path.clone();
    move |source| CommitError::Io { doing, root, path, source }
}

fn root_name(set: &ChangeSet, place: &RootedPath) -> ByteText {
    set.roots.get(place.root).map_or_else(|| Vec::new().into(), |root| root.root.clone())
}

/// Result of a commit that was interrupted by a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The id of the commit.
    pub id: String,
    /// True if it is completely done now; otherwise nothing of it is.
    pub committed: bool,
    /// Files that were changed by other programs and left.
    pub left: Vec<RelPath>,
}

/// Reports the result of a commit to the keeper of its record, before its journal is removed. If this fails,
/// the journal is kept, and the next recovery reports again.
pub type Tell<'t> = &'t dyn Fn(&Recovered) -> io::Result<()>;

/// Time for which a commit waits for others in the same directories.
const PATIENCE: Duration = Duration::from_secs(30);

/// Interval between two attempts to take a lock.
const POLL: Duration = Duration::from_millis(10);

/// The terms of a commit.
pub struct Terms<'t> {
    /// A directory beside the store.
    pub journals: &'t Path,
    /// Identifies the commit: letters, digits and hyphens.
    pub id: &'t str,
    /// The rule for links.
    pub links: Option<&'t LinkRule>,
    /// Ends the waiting for another process.
    pub cancel: &'t CancelToken,
    /// Receives the interrupted commits that were finished first.
    pub tell: Tell<'t>,
}

/// Commits a change set. While another process commits in the same directories, this function waits for half
/// a minute or until it is cancelled. Interrupted commits there are finished first.
///
/// # Errors
/// If a file differs from the one from which the set was made (unless all files are as they will be after the
/// commit: then there is nothing to do), if a link would lead away, or if the file system refuses an operation.
/// Nothing has changed then, except for [`CommitError::Stuck`], and for [`CommitError::Journal`] if the journal
/// was written although the disk reported an error: [`recover_commits`] reports the result.
pub fn commit_changes(
    set: &ChangeSet,
    contents: &dyn Contents,
    terms: &Terms<'_>,
) -> Result<(), CommitError> {
    commit_within(PATIENCE, set, contents, terms)
}

pub(crate) fn commit_within(
    patience: Duration,
    set: &ChangeSet,
    contents: &dyn Contents,
    terms: &Terms<'_>,
) -> Result<(), CommitError> {
    set.check_valid()?;
    let _only = lock_roots(patience, set, terms)?;
    let files = crate::disk::Disk::open(set)?;
    terms.links.map_or(Ok(()), |rule| rule.check_on(&files, set))?;
    let done = commit_in(&files, &LogFile::new(terms.journals, terms.id), terms.id, set, contents);
    // After a crash between the end of the commit and its record, everything is done already.
    if matches!(&done, Err(CommitError::Conflicts(_))) && compare_set(&files, &set.inverse()).is_ok() {
        return Ok(());
    }
    done
}

/// Excludes other commits in the directories of `set` while the result is held, and leaves no interrupted
/// commit there.
fn lock_roots(patience: Duration, set: &ChangeSet, terms: &Terms<'_>) -> Result<RootLocks, CommitError> {
    let Terms { journals, cancel, tell, .. } = *terms;
    let since = Instant::now();
    let mut has_recovered = false;
    loop {
        match RootLocks::try_take(journals, set).map_err(CommitError::Journal)? {
            Ok(locks) => {
                let pending = LogFile::list_pending(journals).map_err(CommitError::Journal)?;
                // A process holds these locks while it writes such a journal, so the journals found here are left over.
                let is_left = |journal: &io::Result<Journal>| {
                    // A journal that cannot be removed is harmless if its commit is done.
                    let is_over = |journal: &Journal| has_recovered && journal.phase == Phase::Cleaning;
                    journal.as_ref().is_ok_and(|journal| set.overlaps_with(&journal.set) && !is_over(journal))
                };
                if !pending.iter().any(|(_, journal)| is_left(journal)) {
                    return Ok(locks);
                }
                drop(locks);
                if recover_for(journals, set, tell)?.is_empty() {
                    // Another process is recovering it, through a lock on another directory.
                    std::thread::sleep(POLL);
                }
                has_recovered = true;
            }
            Err(Holder { root, name: holder }) => {
                if cancel.sleep_or_cancel(POLL) {
                    return Err(CommitError::Cancelled { root, holder });
                }
                if since.elapsed() >= patience {
                    return Err(CommitError::Busy { root, holder, seconds: patience.as_secs() });
                }
            }
        }
    }
}

/// The files that differ from those from which a change set was made.
///
/// # Errors
/// If they cannot be compared.
pub fn find_conflicts(set: &ChangeSet) -> Result<Vec<Conflict>, CommitError> {
    set.check_valid()?;
    match compare_set(&crate::disk::Disk::open(set)?, set) {
        Ok(_) => Ok(Vec::new()),
        Err(CommitError::Conflicts(found)) => Ok(found),
        Err(error) => Err(error),
    }
}

/// Finishes the commits that were interrupted by crashes: forward, or back if they were being reverted. Does
/// not wait: a commit that a process is executing is left to it. Each result is reported to `tell`.
///
/// # Errors
/// [`CommitError::Unfinished`] if a commit cannot be finished: its journal is kept, and the others are
/// finished nevertheless.
pub fn recover_commits(journals: &Path, tell: Tell<'_>) -> Result<Vec<Recovered>, CommitError> {
    recover_where(journals, None, tell)
}

/// The same, before `set` is committed. An unfinished commit in other directories does not matter, and
/// neither does an unreadable journal, because half-finished changes would conflict with `set`.
///
/// # Errors
/// See [`recover_commits`].
pub fn recover_for(journals: &Path, set: &ChangeSet, tell: Tell<'_>) -> Result<Vec<Recovered>, CommitError> {
    recover_where(journals, Some(set), tell)
}

fn recover_where(
    journals: &Path,
    before: Option<&ChangeSet>,
    tell: Tell<'_>,
) -> Result<Vec<Recovered>, CommitError> {
    let pending = LogFile::list_pending(journals).map_err(CommitError::Journal)?;
    let (mut done, mut unfinished) = (Vec::new(), None);
    for (log, journal) in pending {
        let concerns = match (before, &journal) {
            (None, _) => true,
            (Some(set), Ok(journal)) => set.overlaps_with(&journal.set),
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

/// Finishes a commit, unless a process is executing it; `found` is its journal from a moment before.
fn finish_left(
    journals: &Path,
    log: &LogFile,
    found: &Journal,
    tell: Tell<'_>,
) -> Result<Option<Recovered>, CommitError> {
    let Ok(_only) = RootLocks::try_take(journals, &found.set).map_err(CommitError::Journal)? else {
        return Ok(None);
    };
    // It may have continued meanwhile.
    let Some(journal) = log.read_journal().transpose().map_err(CommitError::Unreadable)? else {
        return Ok(None);
    };
    if !found.set.has_roots_of(&journal.set) {
        return Ok(None);
    }
    let files = crate::disk::Disk::open(&journal.set)?;
    recover_in(&files, log, journal, tell).map(Some)
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
    let steps = plan_steps(set, &compare_set(files, set)?);
    let mut journal =
        Journal { id: id.to_owned(), phase: Phase::Preparing, set: set.clone(), steps, committed: false };
    log.write_journal(&journal.without_steps()).map_err(CommitError::Journal)?;
    let ready = lay_ready(files, &mut journal, contents).and_then(|()| {
        journal.phase = Phase::Applying;
        log.write_journal(&journal).map_err(CommitError::Journal)
    });
    if let Err(error) = ready {
        finish_commit(files, log, &mut journal, false, || Ok(()));
        return Err(error);
    }
    match apply_steps(files, &mut journal, Pass::First) {
        Ok(()) => {
            finish_commit(files, log, &mut journal, true, || Ok(()));
            Ok(())
        }
        Err(halt) => {
            let left = go_back(files, log, &mut journal)?;
            Err(explain_halt(&journal, halt, left))
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
    let end = match journal.phase {
        Phase::Preparing => Some(false),
        Phase::Cleaning => Some(journal.committed),
        Phase::Applying => apply_steps(files, &mut journal, Pass::Again).ok().map(|()| true),
        Phase::Reverting => None,
    };
    let Some(committed) = end else {
        let left = go_back(files, log, &mut journal)?;
        return Ok(Recovered { id: journal.id, committed: false, left });
    };
    let recovered = Recovered { id: journal.id.clone(), committed, left: Vec::new() };
    finish_commit(files, log, &mut journal, committed, || tell(&recovered));
    Ok(recovered)
}

/// Checks that the workbenches exist. Until all steps are done, files that are not in their places are there.
/// Without a workbench, each step would seem to be done.
fn check_benches(files: &impl Files, journal: &Journal) -> Result<(), CommitError> {
    let path = workbench_path(&journal.id).map_err(CommitError::Journal)?;
    for root in 0..journal.set.roots.len() {
        let place = RootedPath { root, path: path.clone() };
        let seen = files.read_status(&place).map_err(io_failure("look at", &journal.set, &place))?;
        if seen.is_none_or(|seen| seen.what != What::Directory) {
            let gone = "files prepared or moved there are missing; restore that directory";
            return Err(stuck_error(journal, Halt::Io(place, io::Error::other(gone))));
        }
    }
    Ok(())
}

/// Reverts all steps. Returns the paths that were left because other programs had changed them.
fn go_back(files: &impl Files, log: &impl Log, journal: &mut Journal) -> Result<Vec<RelPath>, CommitError> {
    journal.phase = Phase::Reverting;
    log.write_journal(journal).map_err(CommitError::Journal)?;
    let left = revert_steps(files, journal).map_err(|halt| stuck_error(journal, halt))?;
    finish_commit(files, log, journal, false, || Ok(()));
    Ok(left.into_iter().map(|place| place.path).collect())
}

/// Removes files that were prepared or moved out of sight, and the journal. The commit has succeeded or
/// failed by now. If something cannot be written or removed, the next recovery does it, and finds all steps
/// done. Until the journal enters *cleaning*, files that show the progress of a step must not be removed.
fn finish_commit(
    files: &impl Files,
    log: &impl Log,
    journal: &mut Journal,
    committed: bool,
    tell: impl FnOnce() -> io::Result<()>,
) {
    journal.phase = Phase::Cleaning;
    journal.committed = committed;
    let _ = log
        .write_journal(&journal.without_steps())
        .and_then(|()| remove_prepared(files, journal))
        .and_then(|()| tell())
        .and_then(|()| log.remove_journal());
}

fn stuck_error(journal: &Journal, halt: Halt) -> CommitError {
    let (place, source) = match halt {
        Halt::Io(place, source) => (place, source),
        Halt::Conflict(place, _) => (place, io::Error::other("another file is there")),
    };
    let root = root_name(&journal.set, &place);
    CommitError::Stuck { root, path: place.path, source }
}

fn explain_halt(journal: &Journal, halt: Halt, left: Vec<RelPath>) -> CommitError {
    match halt {
        Halt::Io(place, source) => io_failure("commit", &journal.set, &place)(source),
        Halt::Conflict(place, seen) => {
            CommitError::Raced { conflict: Conflict::new(&journal.set, &place, seen), left }
        }
    }
}
