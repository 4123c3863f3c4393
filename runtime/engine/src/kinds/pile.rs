//! Changes of consecutive steps that wait: for a person's yes (`changes: review`), for the other
//! branches of a parallel step, or, in a preview, for nothing at all.
//!
//! Each step finds the changes of those before it and none of them is done yet, until the pile
//! is *settled*: a person agrees to what all of it comes to, and that is committed as one. A
//! pile is settled before the first step that would not see it, and at the end of the run. It is
//! held nowhere but in the record: going over the plan again piles up the same.

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
use lobster_stage::{StageError, Stop, store_failure};
use lobster_store::Blob;

use super::jail_spec::real_place;
use super::{changes, review};
use crate::binding::Asker;
use crate::path::StepPath;
use crate::run::Run;

/// What waits in one sequence of steps.
#[derive(Debug)]
pub(crate) struct Pile {
    kind: Kind,
    /// What lay there when the sequence began; somebody else settles it.
    seen: Vec<Waiting>,
    own: Mutex<Vec<Waiting>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Steps one after the other.
    Sequence,
    /// One of several branches: what they staged is committed together.
    Branch,
    /// Nothing is ever committed.
    Preview,
}

/// What one step changed.
#[derive(Clone, Debug)]
struct Waiting {
    path: StepPath,
    set: Blob,
    asker: Asker,
    /// A person has to agree to it.
    is_asked: bool,
}

/// What a pile comes to.
pub(crate) struct Total {
    /// Its change set, as a blob.
    pub(crate) blob: Blob,
    pub(crate) set: ChangeSet,
    /// The steps that it is of.
    pub(crate) steps: Vec<StepPath>,
}

impl Pile {
    /// An empty one for the steps of a run.
    pub(crate) fn of_run(least_changes: ChangesMode) -> Arc<Self> {
        let kind = if least_changes == ChangesMode::Preview { Kind::Preview } else { Kind::Sequence };
        Arc::new(Self { kind, seen: Vec::new(), own: Mutex::default() })
    }

    /// One for a branch, which sees what lies here.
    pub(crate) fn branch(&self) -> Arc<Self> {
        let kind = if self.kind == Kind::Preview { Kind::Preview } else { Kind::Branch };
        Arc::new(Self { kind, seen: self.all(), own: Mutex::default() })
    }

    /// One for a step of a graph, which sees what lies here and what the steps that it needs left.
    pub(crate) fn of_step(&self, needed: &[Arc<Self>]) -> Arc<Self> {
        let left = needed.iter().flat_map(|pile| lock(&pile.own).clone());
        let seen = self.all().into_iter().chain(left).collect();
        Arc::new(Self { kind: self.kind, seen, own: Mutex::default() })
    }

    /// Takes over what the steps of a graph left to wait, in the order of the file.
    pub(crate) fn take_over(&self, steps: &[Arc<Self>]) {
        for pile in steps {
            let left = std::mem::take(&mut *lock(&pile.own));
            lock(&self.own).extend(left);
        }
    }

    pub(crate) fn is_preview(&self) -> bool {
        self.kind == Kind::Preview
    }

    fn all(&self) -> Vec<Waiting> {
        self.seen.iter().chain(lock(&self.own).iter()).cloned().collect()
    }

    /// What a step finds that begins now, if anything waits.
    pub(crate) fn total(&self, run: &Run<'_>) -> Result<Option<Total>, Stop> {
        total(run, &self.all())
    }

    /// Takes what a step changed; commits it at once where nothing has to wait.
    pub(crate) fn take(
        &self,
        run: &Run<'_>,
        path: &StepPath,
        set: Blob,
        mode: ChangesMode,
        asker: Asker,
    ) -> Result<(), Stop> {
        let is_asked = mode == ChangesMode::Review;
        if self.kind == Kind::Sequence && !is_asked {
            // An effect costs two syncs, and there is nothing to do.
            if changes::load(&run.store, &set.digest).map_err(Stop::Failed)?.is_empty() {
                return Ok(());
            }
            return changes::commit(run, path, set.digest, &[]);
        }
        lock(&self.own).push(Waiting { path: path.clone(), set, asker, is_asked });
        Ok(())
    }

    /// Settles it before a step that would not see it, or whose directory it makes.
    pub(crate) fn make_way(
        &self,
        run: &Run<'_>,
        mode: ChangesMode,
        cwd: &Path,
        cancel: &CancelToken,
    ) -> Result<(), Stop> {
        if self.all().is_empty() {
            return Ok(());
        }
        let waits = match mode {
            ChangesMode::Direct => false,
            ChangesMode::Staged => self.kind != Kind::Sequence,
            ChangesMode::Review | ChangesMode::Preview => true,
        };
        let replaces_cwd = || -> Result<bool, Stop> {
            Ok(self.total(run)?.is_some_and(|total| total.set.replaces(&real_place(cwd))))
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
        self.settle(run, cancel)
    }

    /// Settles it before something that works on files without a layer. A preview cannot, and ends.
    pub(crate) fn make_way_for(&self, run: &Run<'_>, what: &str, cancel: &CancelToken) -> Result<(), Stop> {
        if self.is_preview() {
            return Err(StageError::permanent(format!(
                "the preview ends here: {what}, which cannot be done without consequences; run it with --review"
            ))
            .with_code(Code::Preview)
            .into());
        }
        self.settle(run, cancel)
    }

    /// Settles it before a step that reads or writes files without a layer. In a preview, nothing may wait
    /// then.
    pub(crate) fn make_way_unlayered(
        &self,
        run: &Run<'_>,
        path: &StepPath,
        cancel: &CancelToken,
    ) -> Result<(), Stop> {
        if self.is_preview() && self.total(run)?.is_none() {
            return Ok(());
        }
        let what = format!("step {path} would not see what the steps before it changed");
        self.make_way_for(run, &what, cancel)
    }

    /// Settles it when a step of a graph has ended, unless more than that step has to end first.
    pub(crate) fn settle_step(&self, run: &Run<'_>, cancel: &CancelToken) -> Result<(), Stop> {
        if self.kind == Kind::Sequence { self.settle(run, cancel) } else { Ok(()) }
    }

    /// Has a person agree to what waits, if somebody has to, and commits it.
    pub(crate) fn settle(&self, run: &Run<'_>, cancel: &CancelToken) -> Result<(), Stop> {
        let own = lock(&self.own).clone();
        let Some(last) = own.last().filter(|_| !self.is_preview()) else { return Ok(()) };
        if let Some(total) = total(run, &own)? {
            run.refuse_changes_from_elsewhere(&total.steps, &last.path.changes())?;
            let is_asked = own.iter().any(|waiting| waiting.is_asked);
            let part = match is_asked {
                true => review::ask(run, &last.path.gate("review"), &total, last.asker.clone(), cancel)?,
                false => None,
            };
            commit(run, &part_of(run, total, part)?, is_asked.then(|| last.asker.clone()), cancel)?;
        }
        lock(&self.own).clear();
        Ok(())
    }

    /// What an `approval:` has to show besides its own.
    pub(crate) fn render_for(
        &self,
        run: &Run<'_>,
        gate: &StepPath,
    ) -> Result<Option<(Total, review::Shown)>, Stop> {
        let own = if self.is_preview() { self.all() } else { lock(&self.own).clone() };
        let Some(total) = total(run, &own)? else { return Ok(None) };
        if let Some(last) = total.steps.last().filter(|_| !self.is_preview()) {
            run.refuse_changes_from_elsewhere(&total.steps, &last.changes())?;
        }
        let shown = review::render(run, gate, &total)?;
        Ok(Some((total, shown)))
    }

    /// Commits what a person has agreed to: all of it, or a part.
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
        commit(run, &part_of(run, total, part)?, Some(last.asker), cancel)?;
        lock(&self.own).clear();
        Ok(())
    }

    /// Takes over what branches left, and commits what need not wait. No two of them may have
    /// changed one file: nothing of any is done then.
    pub(crate) fn join(
        &self,
        run: &Run<'_>,
        branches: &[Arc<Self>],
        cancel: &CancelToken,
    ) -> Result<(), Stop> {
        let mut known: Vec<(BTreeMap<PathBuf, Change>, String)> = Vec::new();
        let mut joined = Vec::new();
        for branch in branches {
            let own = lock(&branch.own).clone();
            let Some(found) = total(run, &own)? else { continue };
            let changed = by_path(&found.set);
            let name = names(&found.steps);
            for (theirs, other) in &known {
                if let Some(path) = clash(theirs, &changed) {
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
        if is_asked || self.kind != Kind::Sequence { Ok(()) } else { self.settle(run, cancel) }
    }
}

/// The part of it that a person agreed to.
fn part_of(run: &Run<'_>, total: Total, part: Option<Digest>) -> Result<Total, Stop> {
    let Some(digest) = part else { return Ok(total) };
    let set = changes::load(&run.store, &digest).map_err(Stop::Failed)?;
    Ok(Total { blob: Blob { digest, ..total.blob }, set, steps: total.steps })
}

/// Commits it, or the change set that a person put in its place after a conflict. If somebody had to agree,
/// that is asked about, too.
fn commit(run: &Run<'_>, total: &Total, asker: Option<Asker>, cancel: &CancelToken) -> Result<(), Stop> {
    let Some(last) = total.steps.last() else { return Ok(()) };
    let several: &[StepPath] = if total.steps.len() > 1 { &total.steps } else { &[] };
    let mut digest = run.resolved(total.blob.digest);
    if let Some(asker) = asker
        && digest != total.blob.digest
    {
        let set = changes::load(&run.store, &digest).map_err(Stop::Failed)?;
        if !set.is_empty() {
            let gate = last.gate(&format!("review-{}", digest.short()));
            let resolved = Total { blob: Blob { digest, ..total.blob }, set, steps: total.steps.clone() };
            if let Some(part) = review::ask(run, &gate, &resolved, asker, cancel)? {
                digest = part;
            }
        }
    }
    changes::commit(run, last, digest, several).inspect_err(|_| run.record_failure(last))
}

/// What waits, put together; none if that changes nothing.
fn total(run: &Run<'_>, waiting: &[Waiting]) -> Result<Option<Total>, Stop> {
    let steps: Vec<StepPath> = waiting.iter().map(|waiting| waiting.path.clone()).collect();
    let load = |waiting: &Waiting| changes::load(&run.store, &waiting.set.digest).map_err(Stop::Failed);
    let (set, blob) = match waiting {
        [] => return Ok(None),
        [only] => (load(only)?, only.set),
        several => {
            let sets: Vec<ChangeSet> = several.iter().map(load).collect::<Result<_, _>>()?;
            let set = ChangeSet::compose(&sets.iter().collect::<Vec<_>>());
            let text = serde_json::to_vec(&set).map_err(store_failure)?;
            let blob = if run.journals() {
                run.store.put_verbatim(&text).map_err(store_failure)?
            } else {
                Blob { digest: Digest::of(&text), len: text.len() as u64 }
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

/// A path that two branches changed, or that one changed in what the other took away. Both may
/// have made the same directory.
fn clash<'c>(one: &'c BTreeMap<PathBuf, Change>, other: &'c BTreeMap<PathBuf, Change>) -> Option<&'c Path> {
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

/// Steps as a sentence names them.
pub(crate) fn names(steps: &[StepPath]) -> String {
    let list: Vec<&str> = steps.iter().map(StepPath::as_str).collect();
    match list.as_slice() {
        [only] => format!("step {only}"),
        several => format!("steps {}", several.join(", ")),
    }
}
