//! `changes: staged` and `review`: the process works on layers, and its changes to files are committed if it succeeds,
//! all or none (invariants T1 and T2).
//!
//! The commit is an effect of its own, after the effect of the process. Its journal makes it safe to repeat, so a run
//! that was killed half-way through a commit finishes it when it resumes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lobster_base::code::Code;
use lobster_base::digest::Digest;
use lobster_changes::{
    ChangeSet, CommitError, LinkRule, Recovered, Resolution, Terms, find_conflicts, resolve_set,
};
use lobster_language::plan::ChangesMode;
use lobster_policy::{DecisionEnv, LeastChanges, Policy};
use lobster_sandbox::{Confinement, EnforcementMode, JailSpec, Net, Promise};
use lobster_stage::{StageError, Stop, store_failure};
use lobster_store::{Blob, COMMITS, StepOutcome, StepStatus, Store};
use serde_json::{Value, json};

use super::decided::Decided;
use super::decision_env::decision_env;
use super::finished_commits;
pub use super::guarded::system_links;
use super::guarded::{self, Maker, check_repositories};
use super::own_places::hide_state;
use crate::action::{ActionRecord, Preimage};
use crate::path::StepPath;
use crate::run::Run;
use lobster_executor::change_sets::{CHANGES, InStore};
pub use lobster_executor::change_sets::{COMMIT, load_change_set};
use lobster_executor::{Kept, failed_outcome, keep_set, outcome_error};

/// In the value of a failed commit: its change set.
pub const REFUSED: &str = "refused";

/// Temporary directory of a staged step that cannot have its own `/tmp`.
const MEMORY: &str = "/dev/shm";

/// Confines a process to layers, and returns the directories under them: the write roots of the policy if there is
/// one, else the working directory.
pub(super) fn confine_to_layers(
    run: &Run<'_>,
    cwd: &Path,
    decided: &mut Decided,
) -> Result<Vec<PathBuf>, StageError> {
    let failed = |message: String| StageError::permanent(message).with_code(Code::Changes);
    if run.services.has_other_executor() {
        return Err(failed(
            "`changes: staged` and `review` need lobster's own executor: another executor cannot return change sets"
                .to_owned(),
        ));
    }
    match &decided.confinement {
        Confinement::Jail(spec) => {
            let roots: Vec<PathBuf> =
                spec.write.iter().filter(|path| !spec.own.contains(path)).cloned().collect();
            if let Some(file) = roots.iter().find(|root| !root.is_dir()) {
                return Err(failed(format!(
                    "the policy lets the step write {}, which is not a directory, and layers need a directory: \
                     grant the directory that it is in",
                    file.display()
                )));
            }
            refuse_nested(&roots).map_err(failed)?;
            Ok(roots)
        }
        Confinement::LandlockSeccomp(_) => Err(failed("a staged step needs a mount namespace".to_owned())),
        Confinement::None => {
            let root = fs::canonicalize(cwd)
                .map_err(|error| failed(format!("the working directory {}: {error}", cwd.display())))?;
            if root.parent().is_none() {
                return Err(failed(
                    "a staged step cannot have / as its working directory; give it a `cwd`".to_owned(),
                ));
            }
            let mut spec = staging_jail(&root).map_err(|error| failed(format!("cannot list /: {error}")))?;
            hide_state(&mut spec, &run.services.state_dir);
            if !spec.private.iter().any(|path| path == Path::new("/tmp")) {
                decided.env.retain(|(name, _)| name != "TMPDIR");
                decided.env.push(("TMPDIR".into(), MEMORY.into()));
            }
            decided.confinement = Confinement::Jail(spec);
            Ok(vec![root])
        }
    }
}

/// Refuses nested roots: two layers over one file would each have their own content of it.
fn refuse_nested(roots: &[PathBuf]) -> Result<(), String> {
    for root in roots {
        if let Some(inner) = roots.iter().find(|other| *other != root && other.starts_with(root)) {
            return Err(format!(
                "the policy lets the step write {} and {} in it; a staged step needs one grant for both",
                root.display(),
                inner.display()
            ));
        }
    }
    Ok(())
}

/// A jail that may read all that the user may, and write `root`. It has its own temporary directories and reaches no
/// unix socket, since a request to a service could not be undone.
fn staging_jail(root: &Path) -> io::Result<JailSpec> {
    let defaults = JailSpec::default();
    let mut private = defaults.private.clone();
    private.retain(|path| !root.starts_with(path));
    let mut read = Vec::new();
    for entry in fs::read_dir("/")? {
        let path = entry?.path();
        let is_own = private.contains(&path) || ["/proc", "/dev"].iter().any(|own| path == Path::new(own));
        if !is_own {
            read.push(path);
        }
    }
    Ok(JailSpec {
        read,
        write: vec![root.to_owned()],
        private,
        net: Net::Host,
        mode: EnforcementMode::Degrade { minimum: vec![Promise::FsWrite] },
        ..defaults
    })
}

/// The stricter of the step's own mode and the mode that the policy demands. The action holds only the step's own, so
/// that the same record can be read under another policy.
pub(super) fn stricter_mode(run: &Run<'_>, said: ChangesMode) -> ChangesMode {
    let sandbox = &run.services.policy.file().sandbox;
    let of_agent = if run.is_of_agent { sandbox.agent_changes } else { LeastChanges::Direct };
    said.max(mode_of(sandbox.changes.max(of_agent)))
}

/// The mode that a policy demands.
pub(super) fn mode_of(least: LeastChanges) -> ChangesMode {
    match least {
        LeastChanges::Direct => ChangesMode::Direct,
        LeastChanges::Staged => ChangesMode::Staged,
        LeastChanges::Review => ChangesMode::Review,
    }
}

/// Directory of the journals of commits.
fn journals_directory(store: &Store) -> PathBuf {
    store.dir().join(COMMITS)
}

/// Finishes the commits that a crash interrupted, forward or back, and records their ends in their runs.
///
/// # Errors
/// If one of them cannot be finished.
pub fn recover_commits(store: &Store) -> Result<Vec<Recovered>, CommitError> {
    lobster_changes::recover_commits(&journals_directory(store), &|finished| {
        finished_commits::tell_owner(store, finished)
    })
}

/// The change set of a process that succeeded.
pub(super) fn of_outcome(outcome: &StepOutcome) -> Option<Blob> {
    serde_json::from_value(outcome.detail.get(CHANGES)?.clone()).ok()
}

/// True if changes to files are committed after this outcome.
#[must_use]
pub fn has_changes(outcome: &StepOutcome) -> bool {
    outcome.detail.get(CHANGES).is_some()
}

/// Refuses the changes of a step that reach into git's directories; `granted` are the paths that it may write.
pub(super) fn check_made(
    run: &Run<'_>,
    set: &Blob,
    maker: Maker,
    granted: &[PathBuf],
) -> Result<(), StageError> {
    check_repositories(&run.services.policy, &load_change_set(&run.store, &set.digest)?, maker, granted)
}

/// True if the changes that an earlier run of an action made can be committed for this run: the files are as they were
/// before that run, or as it left them. Otherwise the action is executed again.
pub(crate) fn are_applicable(store: &Store, outcome: &StepOutcome) -> bool {
    let Some(blob) = of_outcome(outcome) else { return true };
    let Ok(set) = load_change_set(store, &blob.digest) else { return false };
    let has_all = set.content_digests().iter().all(|digest| matches!(store.blob_len(digest), Ok(Some(_))));
    let fits = |set: &ChangeSet| find_conflicts(set).is_ok_and(|found| found.is_empty());
    has_all && (fits(&set) || fits(&set.inverse()))
}

/// True if the files are as the commit of this outcome left them.
#[must_use]
pub fn is_still_committed(store: &Store, outcome: &StepOutcome) -> bool {
    let digest = |outcome: &StepOutcome| outcome.value.get("committed")?.as_str()?.parse::<Digest>().ok();
    let set = digest(outcome).and_then(|digest| load_change_set(store, &digest).ok());
    set.is_some_and(|set| find_conflicts(&set.inverse()).is_ok_and(|found| found.is_empty()))
}

/// Commits a change set, once a run. `steps` are the steps that made it, if there are several.
pub(crate) fn commit_set(
    run: &Run<'_>,
    path: &StepPath,
    set: Digest,
    steps: &[StepPath],
) -> Result<(), Stop> {
    let own = [path.clone()];
    run.refuse_changes_from_elsewhere(if steps.is_empty() { &own } else { steps }, &path.changes())?;
    commit_checked(run, path, set, steps, |policy, place, more, set| {
        guarded::check_all(policy, place, more, set)?;
        Ok(guarded::link_rule(policy, place, more, &run.services.state_dir))
    })
}

/// Refuses pending changes if their commit would make a link lead away.
pub(super) fn check_links(run: &Run<'_>, set: &ChangeSet) -> Result<(), StageError> {
    let services = run.services;
    let place = decision_env(&services.policy, &run.surroundings, &run.cwd, &services.env);
    guarded::link_rule(&services.policy, &place, &services.protected_paths(), &services.state_dir)
        .check_links(set)
        .map_err(|error| StageError::permanent(error.to_string()).with_code(Code::Changes))
}

/// Commits if `check` accepts the change set, under the rule for links that it returns.
fn commit_checked(
    run: &Run<'_>,
    path: &StepPath,
    set: Digest,
    steps: &[StepPath],
    check: impl Fn(&Policy, &DecisionEnv, &[String], &ChangeSet) -> Result<LinkRule, StageError>,
) -> Result<(), Stop> {
    let (path, set) = (path.changes(), run.resolved_set(set));
    let record = ActionRecord {
        kind: COMMIT.to_owned(),
        preimage: Preimage::from_json(&json!({ "kind": COMMIT, CHANGES: set }))?,
        decision: Value::Null,
        // The journal of the commit makes it so.
        idempotent: true,
        on_record: None,
        variables: Arc::default(),
    };
    let perform = || match load_change_set(&run.store, &set).and_then(|changes| {
        let services = run.services;
        let place = decision_env(&services.policy, &run.surroundings, &run.cwd, &services.env);
        let links = check(&services.policy, &place, &services.protected_paths(), &changes)?;
        perform_commit(run, &path, &changes, &links)
    }) {
        Ok(files) => {
            let mut outcome = StepOutcome::new(StepStatus::Ok);
            outcome.value = json!({ "committed": set, "files": files });
            if !steps.is_empty() {
                outcome.value["steps"] = json!(steps);
            }
            outcome
        }
        Err(error) => {
            let mut outcome = failed_outcome(&error);
            outcome.value = json!({ REFUSED: set });
            outcome
        }
    };
    run.perform_once(&path, &record, perform, |outcome| match outcome.status {
        StepStatus::Ok => Ok(()),
        _ => Err(Stop::Failed(outcome_error(outcome))),
    })
}

fn perform_commit(
    run: &Run<'_>,
    path: &StepPath,
    set: &ChangeSet,
    links: &LinkRule,
) -> Result<usize, StageError> {
    let (journals, contents) = (journals_directory(&run.store), InStore(&run.store));
    let id = finished_commits::commit_id(run.id, path.as_str());
    let tell = |finished: &Recovered| finished_commits::tell_owner(&run.store, finished);
    let step = path.as_str().trim_end_matches("!changes");
    let terms = Terms { journals: &journals, id: &id, links: Some(links), cancel: &run.cancel, tell: &tell };
    let committed = lobster_changes::recover_for(&journals, set, &tell)
        .and_then(|_| lobster_changes::commit_changes(set, &contents, &terms));
    match committed {
        Ok(()) => Ok(set.changes().count()),
        Err(error @ CommitError::Link(_)) => {
            let hint = if links.restores {
                "Remove or redirect this link, or undo only other paths (`--only`)"
            } else {
                "Let the step copy what the link leads to, or link to something in the same directory"
            };
            let message = format!(
                "step {step}: its changes to files were not committed, none of them: {error}. {hint}"
            );
            Err(StageError::permanent(message).with_code(Code::Changes))
        }
        Err(error @ (CommitError::Conflicts(_) | CommitError::Raced { .. })) => {
            let message = format!(
                "step {step}: its changes to files were not committed, none of them: {error}. Restore these files and \
                 `lobster resume {0}` commits; `lobster resume {0} --conflicts merge`, `keep` or `overwrite` continues from what \
                 they are now; `lobster changes {0} --patch` shows the changes",
                run.id.short_id()
            );
            Err(StageError::permanent(message).with_code(Code::ChangesConflict))
        }
        Err(error) => {
            let message = format!(
                "step {step}: its changes to files were not committed: {error}. The record keeps them: fix that, and \
                 `lobster resume {}` commits them",
                run.id.short_id()
            );
            Err(StageError::permanent(message).with_code(Code::Changes))
        }
    }
}

/// Makes a change set that can be committed in place of one that conflicts.
///
/// # Errors
/// If a conflict cannot be resolved this way, or the store cannot be read or written.
pub fn resolve_conflicts(store: &Store, digest: &Digest, how: Resolution) -> Result<Digest, StageError> {
    let set = resolve_set(&load_change_set(store, digest)?, how, &InStore(store), &mut Kept::new(store))
        .map_err(|error| StageError::permanent(error.to_string()).with_code(Code::ChangesConflict))?;
    Ok(keep_set(store, &set)?.digest)
}

/// Commits the change set that a step of an undo names.
pub(crate) fn commit_step(run: &Run<'_>, path: &StepPath, set: Digest) -> Result<(), Stop> {
    // It could be read when the plan was made, so a failure is the store's.
    load_change_set(&run.store, &set).map_err(store_failure)?;
    run.refuse_plan_from_elsewhere()?;
    // The inverse of a commit: a repository that the commit added is removed with it.
    commit_checked(run, path, set, &[], |policy, place, more, set| {
        guarded::check_protected(policy, place, more, set)?;
        let rule = guarded::link_rule(policy, place, more, &run.services.state_dir);
        Ok(LinkRule { restores: true, ..rule })
    })
}
