//! Changes of consecutive steps that wait: for a person's approval (`changes: review`), for the other branches of a
//! parallel step, or, in a preview, for ever.
//!
//! Each step finds the changes of the steps before it, and none of them is committed yet, until the pile is *settled*:
//! a person approves the sum of all changes, and it is committed as one. A pile is settled before the first step that
//! would not see it, and at the end of the run. It exists only in the record: executing the plan again builds the same
//! pile.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use lobster_base::cancel::CancelToken;
use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_base::sync::lock;
use lobster_changes::{ByteText, Change, ChangeSet, Entry};
use lobster_language::plan::ChangesMode;
use lobster_policy::BoundFile;
use lobster_stage::{StageError, Stop, store_failure};
use lobster_store::Blob;

use super::jail_spec::real_place;
use super::{changes, review};
use crate::binding::Asker;
use crate::path::StepPath;
use crate::run::Run;

/// The changes that wait in one sequence of steps.
#[derive(Debug)]
pub(crate) struct Pile {
    kind: Kind,
    /// The changes that waited when the sequence began; they are settled elsewhere.
    seen: Vec<Waiting>,
    own: Mutex<Vec<Waiting>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Steps one after the other.
    Sequence,
    /// One of several branches, whose staged changes are committed together.
    Branch,
    /// Nothing is ever committed.
    Preview,
}

/// The changes of one step.
#[derive(Clone, Debug)]
struct Waiting {
    path: StepPath,
    set: Blob,
    asker: Asker,
    /// True if a person has to approve it.
    is_asked: bool,
}

/// The sum of the changes in a pile.
pub(crate) struct Total {
    /// Its change set, as a blob.
    pub(crate) blob: Blob,
    pub(crate) set: ChangeSet,
    /// The steps that made it.
    pub(crate) steps: Vec<StepPath>,
}

/// Changes that one question names one by one.
const MAX_NAMED: usize = 500;

impl Total {
    /// The steps with the digest of the change set, and each change with the digest of its content, for a question
    /// about a command that finds these changes.
    pub(super) fn name_changes(&self) -> Vec<String> {
        let short = |digest: &Digest| digest.short();
        let named = self.set.changes().take(MAX_NAMED).map(|(root, change)| {
            let (kind, path) = (change.kind().as_str(), &change.path);
            match &change.after {
                Some(Entry::File { digest, .. }) => format!("{kind} {root}/{path}  {}", short(digest)),
                Some(Entry::Link { target, .. }) => format!("{kind} {root}/{path} -> {target}"),
                Some(Entry::Directory { .. }) | None => format!("{kind} {root}/{path}"),
            }
        });
        let first = format!("of {}, not committed  {}", step_names(&self.steps), short(&self.blob.digest));
        let more = self.set.changes().count().saturating_sub(MAX_NAMED);
        let more = (more > 0).then(|| format!("{more} more"));
        std::iter::once(first).chain(named).chain(more).collect()
    }

    /// Removes the files whose place these changes decide: the command finds the changed file there, or another one.
    pub(super) fn remove_changed(&self, files: &mut Vec<BoundFile>) {
        let changed = by_path(&self.set);
        let is_directory = |entry: &Option<Entry>| matches!(entry, Some(Entry::Directory { .. }));
        let decides = |path: &str| {
            Path::new(path).ancestors().enumerate().any(|(depth, above)| {
                changed.get(above).is_some_and(|change| {
                    depth == 0 || !(is_directory(&change.before) && is_directory(&change.after))
                })
            })
        };
        files.retain(|file| !decides(&file.path) && !decides(file.real_path()));
    }
}

impl Pile {
    /// An empty pile for the steps of a run.
    pub(crate) fn of_run(least_changes: ChangesMode) -> Arc<Self> {
        let kind = if least_changes == ChangesMode::Preview { Kind::Preview } else { Kind::Sequence };
        Arc::new(Self { kind, seen: Vec::new(), own: Mutex::default() })
    }

    /// A pile for a branch, which sees the changes of this one.
    pub(crate) fn new_branch(&self) -> Arc<Self> {
        let kind = if self.kind == Kind::Preview { Kind::Preview } else { Kind::Branch };
        Arc::new(Self { kind, seen: self.all_waiting(), own: Mutex::default() })
    }

    /// A pile for a step of a graph, which sees the changes of this one and those of the steps that it needs.
    pub(crate) fn of_step(&self, needed: &[Arc<Self>]) -> Arc<Self> {
        let left = needed.iter().flat_map(|pile| lock(&pile.own).clone());
        let seen = self.all_waiting().into_iter().chain(left).collect();
        Arc::new(Self { kind: self.kind, seen, own: Mutex::default() })
    }

    /// Takes over the waiting changes of a graph's steps, in the order of the file.
    pub(crate) fn take_over(&self, steps: &[Arc<Self>]) {
        for pile in steps {
            let left = std::mem::take(&mut *lock(&pile.own));
            lock(&self.own).extend(left);
        }
    }

    pub(crate) fn is_preview(&self) -> bool {
        self.kind == Kind::Preview
    }

    fn all_waiting(&self) -> Vec<Waiting> {
        self.seen.iter().chain(lock(&self.own).iter()).cloned().collect()
    }

    /// The sum of the changes that a step finds if it begins now, or `None`.
    pub(crate) fn total_changes(&self, run: &Run<'_>) -> Result<Option<Total>, Stop> {
        sum_changes(run, &self.all_waiting())
    }

    /// Takes the changes of a step; commits them at once if nothing requires them to wait.
    pub(crate) fn add_changes(
        &self,
        run: &Run<'_>,
        path: &StepPath,
        set: Blob,
        mode: ChangesMode,
        asker: Asker,
    ) -> Result<(), Stop> {
        let is_asked = mode == ChangesMode::Review;
        if self.kind == Kind::Sequence && !is_asked {
            // An effect costs two syncs, and here there is nothing to commit.
            if changes::load_change_set(&run.store, &set.digest).map_err(Stop::Failed)?.is_empty() {
                return Ok(());
            }
            return changes::commit_set(run, path, set.digest, &[]);
        }
        let mut all = self.all_waiting();
        all.push(Waiting { path: path.clone(), set, asker, is_asked });
        // Checked before a question is asked, so that the step that left the link fails.
        if let Some(total) = sum_changes(run, &all)? {
            changes::check_links(run, &total.set).map_err(Stop::Failed)?;
        }
        lock(&self.own).extend(all.pop());
        Ok(())
    }

    /// Settles the pile before a step that would not see it, or whose directory it creates.
    pub(crate) fn make_way(
        &self,
        run: &Run<'_>,
        mode: ChangesMode,
        cwd: &Path,
        cancel: &CancelToken,
    ) -> Result<(), Stop> {
        if self.all_waiting().is_empty() {
            return Ok(());
        }
        let waits = match mode {
            ChangesMode::Direct => false,
            ChangesMode::Staged => self.kind != Kind::Sequence,
            ChangesMode::Review | ChangesMode::Preview => true,
        };
        let replaces_cwd = || -> Result<bool, Stop> {
            Ok(self.total_changes(run)?.is_some_and(|total| total.set.replaces_directory(&real_place(cwd))))
        };
        if waits && !replaces_cwd()? {
            return Ok(());
        }
        if self.is_preview() {
            return Err(StageError::permanent(format!(
                "the preview ends here: the step works in {}, which a step before it makes or replaces, and a \
                 preview makes nothing; run it with --review",
                cwd.display()
            ))
            .with_code(Code::Preview)
            .into());
        }
        self.commit_waiting(run, cancel)
    }

    /// Settles the pile before work on files without a layer. A preview cannot do that, and ends.
    pub(crate) fn make_way_for(&self, run: &Run<'_>, what: &str, cancel: &CancelToken) -> Result<(), Stop> {
        if self.is_preview() {
            return Err(StageError::permanent(format!(
                "the preview ends here: {what}, which cannot be done without consequences; run it with --review"
            ))
            .with_code(Code::Preview)
            .into());
        }
        self.commit_waiting(run, cancel)
    }

    /// Settles the pile before a step that reads or writes files without a layer. In a preview, no changes may be
    /// waiting then.
    pub(crate) fn make_way_unlayered(
        &self,
        run: &Run<'_>,
        path: &StepPath,
        cancel: &CancelToken,
    ) -> Result<(), Stop> {
        if self.is_preview() && self.total_changes(run)?.is_none() {
            return Ok(());
        }
        let what = format!("step {path} would not see what the steps before it changed");
        self.make_way_for(run, &what, cancel)
    }

    /// Settles the pile after a step of a graph, unless other steps have to end first.
    pub(crate) fn settle_step(&self, run: &Run<'_>, cancel: &CancelToken) -> Result<(), Stop> {
        if self.kind == Kind::Sequence { self.commit_waiting(run, cancel) } else { Ok(()) }
    }

    /// Asks a person to approve the waiting changes, if any of them needs that, and commits them.
    pub(crate) fn commit_waiting(&self, run: &Run<'_>, cancel: &CancelToken) -> Result<(), Stop> {
        let own = lock(&self.own).clone();
        let Some(last) = own.last().filter(|_| !self.is_preview()) else { return Ok(()) };
        if let Some(total) = sum_changes(run, &own)? {
            run.refuse_changes_from_elsewhere(&total.steps, &last.path.changes())?;
            let is_asked = own.iter().any(|waiting| waiting.is_asked);
            let part = match is_asked {
                true => review::request_approval(
                    run,
                    &last.path.gate("review"),
                    &total,
                    last.asker.clone(),
                    cancel,
                )?,
                false => None,
            };
            commit_total(run, &part_of(run, total, part)?, is_asked.then(|| last.asker.clone()), cancel)?;
        }
        lock(&self.own).clear();
        Ok(())
    }

    /// The waiting changes, which an `approval:` shows beside its own items.
    pub(crate) fn render_for(
        &self,
        run: &Run<'_>,
        gate: &StepPath,
    ) -> Result<Option<(Total, review::Shown)>, Stop> {
        let own = if self.is_preview() { self.all_waiting() } else { lock(&self.own).clone() };
        let Some(total) = sum_changes(run, &own)? else { return Ok(None) };
        if let Some(last) = total.steps.last().filter(|_| !self.is_preview()) {
            run.refuse_changes_from_elsewhere(&total.steps, &last.changes())?;
        }
        let shown = review::render_changes(run, gate, &total)?;
        Ok(Some((total, shown)))
    }

    /// Commits the changes that a person has approved: all of them, or a part.
    pub(crate) fn commit_agreed(
        &self,
        run: &Run<'_>,
        total: Total,
        part: Option<Digest>,
        cancel: &CancelToken,
    ) -> Result<(), Stop> {
        let Some(last) = lock(&self.own).last().cloned().filter(|_| !self.is_preview()) else {
            return Ok(());
        };
        commit_total(run, &part_of(run, total, part)?, Some(last.asker), cancel)?;
        lock(&self.own).clear();
        Ok(())
    }

    /// Takes over the changes of branches, and commits those that need not wait. If two branches changed the same
    /// file, nothing of any branch is committed.
    pub(crate) fn join_branches(
        &self,
        run: &Run<'_>,
        branches: &[Arc<Self>],
        cancel: &CancelToken,
    ) -> Result<(), Stop> {
        let mut known: Vec<(BTreeMap<PathBuf, Change>, String)> = Vec::new();
        let mut joined = Vec::new();
        for branch in branches {
            let own = lock(&branch.own).clone();
            let Some(found) = sum_changes(run, &own)? else { continue };
            let changed = by_path(&found.set);
            let name = step_names(&found.steps);
            for (theirs, other) in &known {
                if let Some(path) = conflicting_path(theirs, &changed) {
                    return Err(StageError::permanent(format!(
                        "{other} and {name} run at the same time and both changed {}; nothing that these branches \
                         changed in files was committed. Let one `needs` the other, or put them one after the other",
                        path.display()
                    ))
                    .with_code(Code::ChangesConflict)
                    .into());
                }
            }
            known.push((changed, name));
            joined.extend(own);
        }
        let is_asked = joined.iter().any(|waiting| waiting.is_asked);
        lock(&self.own).extend(joined);
        if is_asked || self.kind != Kind::Sequence { Ok(()) } else { self.commit_waiting(run, cancel) }
    }
}

/// The part that a person approved.
fn part_of(run: &Run<'_>, total: Total, part: Option<Digest>) -> Result<Total, Stop> {
    let Some(digest) = part else { return Ok(total) };
    let set = changes::load_change_set(&run.store, &digest).map_err(Stop::Failed)?;
    Ok(Total { blob: Blob { digest, ..total.blob }, set, steps: total.steps })
}

/// Commits the changes, or the change set that a person chose after a conflict. If the changes needed approval, that
/// choice needs it as well.
fn commit_total(
    run: &Run<'_>,
    total: &Total,
    asker: Option<Asker>,
    cancel: &CancelToken,
) -> Result<(), Stop> {
    let Some(last) = total.steps.last() else { return Ok(()) };
    let several: &[StepPath] = if total.steps.len() > 1 { &total.steps } else { &[] };
    let mut digest = run.resolved_set(total.blob.digest);
    if let Some(asker) = asker
        && digest != total.blob.digest
    {
        let set = changes::load_change_set(&run.store, &digest).map_err(Stop::Failed)?;
        if !set.is_empty() {
            let gate = last.gate(&format!("review-{}", digest.short()));
            let resolved = Total { blob: Blob { digest, ..total.blob }, set, steps: total.steps.clone() };
            if let Some(part) = review::request_approval(run, &gate, &resolved, asker, cancel)? {
                digest = part;
            }
        }
    }
    changes::commit_set(run, last, digest, several).inspect_err(|_| run.record_failure(last))
}

/// The sum of the waiting changes; `None` if they change nothing.
fn sum_changes(run: &Run<'_>, waiting: &[Waiting]) -> Result<Option<Total>, Stop> {
    let steps: Vec<StepPath> = waiting.iter().map(|waiting| waiting.path.clone()).collect();
    let load =
        |waiting: &Waiting| changes::load_change_set(&run.store, &waiting.set.digest).map_err(Stop::Failed);
    let (set, blob) = match waiting {
        [] => return Ok(None),
        [only] => (load(only)?, only.set),
        several => {
            let sets: Vec<ChangeSet> = several.iter().map(load).collect::<Result<_, _>>()?;
            let set = ChangeSet::compose(&sets.iter().collect::<Vec<_>>());
            let text = serde_json::to_vec(&set).map_err(store_failure)?;
            let blob = if run.is_journaled() {
                run.store.put_verbatim(&text).map_err(store_failure)?
            } else {
                Blob { digest: Digest::of_bytes(&text), len: text.len() as u64 }
            };
            (set, blob)
        }
    };
    Ok((!set.is_empty()).then_some(Total { blob, set, steps }))
}

/// Changes by whole paths.
fn by_path(set: &ChangeSet) -> BTreeMap<PathBuf, Change> {
    let whole = |(root, change): (&ByteText, &Change)| {
        let root = Path::new(OsStr::from_bytes(root.as_bytes()));
        (root.join(OsStr::from_bytes(change.path.as_bytes())), change.clone())
    };
    set.changes().map(whole).collect()
}

/// A path that two branches changed, or that one changed inside a directory which the other removed. Both may have
/// created the same directory.
fn conflicting_path<'c>(
    one: &'c BTreeMap<PathBuf, Change>,
    other: &'c BTreeMap<PathBuf, Change>,
) -> Option<&'c Path> {
    let is_directory = |change: &Change| matches!(change.after, Some(Entry::Directory { .. }));
    let within = |inner: &'c BTreeMap<PathBuf, Change>, outer: &BTreeMap<PathBuf, Change>| {
        inner.keys().map(PathBuf::as_path).find(|path| {
            let mut above = path.ancestors().skip(1);
            above.any(|above| outer.get(above).is_some_and(|change| !is_directory(change)))
        })
    };
    let both = one.iter().find(|(path, change)| {
        other.get(*path).is_some_and(|theirs| !is_directory(change) || change.after != theirs.after)
    });
    both.map(|(path, _)| path.as_path()).or_else(|| within(one, other)).or_else(|| within(other, one))
}

/// Names steps for a sentence.
pub(crate) fn step_names(steps: &[StepPath]) -> String {
    let list: Vec<&str> = steps.iter().map(StepPath::as_str).collect();
    match list.as_slice() {
        [only] => format!("step {only}"),
        several => format!("steps {}", several.join(", ")),
    }
}
