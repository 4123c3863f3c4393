//! Compares a step's changes with the places that no step may change.
//!
//! The jail shows a step these places read-only. But a component has no jail, and a step on a copy of its directory
//! has the file system of the copy, so each change set is also compared with them before any of it is committed.
//! Without a policy file there are no such places.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use lobster_base::code::Code;
use lobster_changes::{Change, ChangeSet, Entry, LinkRule};
use lobster_policy::{
    DecisionEnv, GIT_RUNS_CODE, Policy, SYSTEM_READ_ONLY, denial_message, protected_places, write_roots,
};
use lobster_stage::StageError;

use super::bound_trees::KERNEL_VIEWS;
use super::jail_spec::{real_path, real_place};

/// The maker of a change set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    /// A process, which may create a repository of its own.
    Process,
    /// A component, which may not.
    Component,
}

/// Refuses a change set of one step that reaches into git's directories. `granted` are the directories that the step
/// may write; one of them has to name git's.
pub(super) fn check_repositories(
    policy: &Policy,
    set: &ChangeSet,
    maker: Maker,
    granted: &[PathBuf],
) -> Result<(), StageError> {
    refuse_repositories(policy, set, maker, granted, None)
}

/// Refuses a change set that no step could have made under the policy. `place` describes the run, `more` lists further
/// protected paths.
pub(super) fn check_all(
    policy: &Policy,
    place: &DecisionEnv,
    more: &[String],
    set: &ChangeSet,
) -> Result<(), StageError> {
    check_protected(policy, place, more, set)?;
    let roots: Vec<PathBuf> = write_roots(policy, place).map(PathBuf::from).collect();
    // If the workspace has no repository, no step may create one there.
    let closed = real_path(&place.workspace).join(".git");
    refuse_repositories(policy, set, Maker::Process, &roots, Some(&closed))
}

/// Refuses a change set that changes a place which the policy protects, or moves or replaces a directory above it.
pub(super) fn check_protected(
    policy: &Policy,
    place: &DecisionEnv,
    more: &[String],
    set: &ChangeSet,
) -> Result<(), StageError> {
    if policy.is_open() {
        return Ok(());
    }
    match protected_change(set, &real_protected(policy, place, more)) {
        Some(path) => Err(refusal_error(&path, "the policy protects it", "no rule can grant it")),
        None => Ok(()),
    }
}

/// The rule for links of a change set. `state` is protected even without a policy.
pub(super) fn link_rule(policy: &Policy, place: &DecisionEnv, more: &[String], state: &Path) -> LinkRule {
    let mut protected = real_protected(policy, place, more);
    protected.push(real_place(state));
    LinkRule { protected, ..system_links() }
}

/// The places that the policy protects, and `more`, without links on the way. An open policy protects nothing itself.
fn real_protected(policy: &Policy, place: &DecisionEnv, more: &[String]) -> Vec<PathBuf> {
    let named = if policy.is_open() { Vec::new() } else { protected_places(policy, place) };
    named.iter().chain(more).map(|path| real_place(Path::new(path))).collect()
}

/// The rule without protected places: absolute links may lead into `@system-ro`, except `/proc` and `/sys`, whose own
/// links lead anywhere.
#[must_use]
pub fn system_links() -> LinkRule {
    let places = SYSTEM_READ_ONLY.iter().filter(|place| !KERNEL_VIEWS.contains(place));
    LinkRule { system: places.map(PathBuf::from).collect(), protected: Vec::new(), restores: false }
}

fn refuse_repositories(
    policy: &Policy,
    set: &ChangeSet,
    maker: Maker,
    granted: &[PathBuf],
    closed: Option<&Path>,
) -> Result<(), StageError> {
    if policy.is_open() {
        return Ok(());
    }
    let granted: Vec<PathBuf> = granted.iter().map(|root| real_place(root)).collect();
    match into_repository(set, maker, &granted, closed) {
        Some(path) => Err(refusal_error(
            &path,
            "git's directories are read-only",
            "a rule has to name the directory: fs_write = [\"@workspace/.git\"], for components [components] write",
        )),
        None => Ok(()),
    }
}

fn refusal_error(path: &Path, why: &str, hint: &str) -> StageError {
    let message =
        format!("{} would change, and {why}; none of the step's changes were committed", path.display());
    StageError::permanent(denial_message("the changes", &message, "protected", Some(hint)))
        .with_code(Code::PolicyDenied)
}

/// All changes by whole paths.
fn whole_path_changes(set: &ChangeSet) -> impl Iterator<Item = (PathBuf, &Change)> {
    set.changes().map(|(root, change)| {
        let root = Path::new(OsStr::from_bytes(root.as_bytes()));
        (root.join(OsStr::from_bytes(change.path.as_bytes())), change)
    })
}

/// True if a change at `path` changes `place`: the path is at or below the place, or it is above the place and the
/// change is more than creating a directory or changing its mode.
fn changes_place(path: &Path, change: &Change, place: &Path) -> bool {
    let is_directory = |entry: &Entry| matches!(entry, Entry::Directory { .. });
    let stays =
        || change.after.as_ref().is_some_and(is_directory) && change.before.as_ref().is_none_or(is_directory);
    path.starts_with(place) || place.starts_with(path) && !stays()
}

/// The path of the first change to one of these places.
fn protected_change(set: &ChangeSet, protected: &[PathBuf]) -> Option<PathBuf> {
    whole_path_changes(set)
        .find(|(path, change)| protected.iter().any(|place| changes_place(path, change, place)))
        .map(|(path, _)| path)
}

/// The first change in a directory of git that is not granted. The repository `closed` may not even be created.
fn into_repository(
    set: &ChangeSet,
    maker: Maker,
    granted: &[PathBuf],
    closed: Option<&Path>,
) -> Option<PathBuf> {
    let mut bare = BTreeMap::new();
    let made: BTreeSet<PathBuf> =
        whole_path_changes(set).filter(|(_, change)| change.before.is_none()).map(|(path, _)| path).collect();
    let found = whole_path_changes(set).find(|(path, change)| {
        let Some(repository) = repository_of(path).or_else(|| bare_repository_of(path, &mut bare)) else {
            return false;
        };
        // A new repository is the step's own, and git must not be run in it.
        let is_bare = !repository.ends_with(".git");
        let is_own = made.contains(&repository)
            || is_bare && made.contains(&repository.join("HEAD"))
            || repository.symlink_metadata().is_err();
        if is_own && (is_bare || maker == Maker::Process) && closed != Some(&*repository) {
            return false;
        }
        let is_named = granted.iter().any(|root| root.starts_with(&repository) && path.starts_with(root));
        !is_named || GIT_RUNS_CODE.iter().any(|name| changes_place(path, change, &repository.join(name)))
    });
    found.map(|(path, _)| path)
}

/// The outermost `.git` at or above a path, in exactly this spelling.
fn repository_of(path: &Path) -> Option<PathBuf> {
    let all: Vec<Component<'_>> = path.components().collect();
    let at = all.iter().position(|name| name.as_os_str() == ".git")?;
    Some(all[..=at].iter().collect())
}

/// The bare repository on disk that contains a path. `known` caches the answer for each directory.
fn bare_repository_of(path: &Path, known: &mut BTreeMap<PathBuf, bool>) -> Option<PathBuf> {
    let mut is_bare = |dir: &Path| {
        *known.entry(dir.to_owned()).or_insert_with(|| {
            dir.join("HEAD").is_file() && dir.join("objects").is_dir() && dir.join("refs").is_dir()
        })
    };
    path.ancestors().find(|dir| is_bare(dir)).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use lobster_base::digest::Digest;
    use lobster_changes::{RelPath, RootChanges};

    const ROOT: &str = "/nowhere/at/all";

    fn file_entry(text: &str) -> Entry {
        let bytes = text.as_bytes();
        Entry::File {
            digest: Digest::of_bytes(bytes),
            size: bytes.len() as u64,
            mode: 0o644,
            modified: None,
            same_as: None,
            acl: None,
        }
    }

    fn set(changes: impl IntoIterator<Item = (String, Option<Entry>, Option<Entry>)>) -> ChangeSet {
        let change = |(path, before, after): (String, _, _)| Change {
            path: RelPath::new(path).unwrap(),
            before,
            after,
            shared: None,
        };
        let changes = changes.into_iter().map(change).collect();
        ChangeSet::new(vec![RootChanges { root: ROOT.as_bytes().to_vec().into(), changes }])
    }

    type Tree = BTreeMap<String, Entry>;

    struct Dice(u64);

    impl Dice {
        fn next(&mut self, below: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % below
        }

        fn random_path(&mut self) -> String {
            let names: Vec<&str> =
                (0..=self.next(3)).map(|_| ["a", "b", "ab", ".git"][self.next(4)]).collect();
            names.join("/")
        }

        /// Puts an entry at a path, or removes the entry there with everything below it. A file on the way becomes a
        /// directory.
        fn change_tree(&mut self, tree: &mut Tree, number: usize) {
            let path = self.random_path();
            let below = format!("{path}/");
            tree.retain(|known, _| *known != path && !known.starts_with(&below));
            for (at, _) in path.match_indices('/') {
                let above = &path[..at];
                if !matches!(tree.get(above), Some(Entry::Directory { .. })) {
                    tree.insert(above.to_owned(), Entry::Directory { mode: 0o755, acl: None });
                }
            }
            let entry = match self.next(4) {
                0 => None,
                1 => Some(Entry::Directory { mode: 0o755, acl: None }),
                2 => Some(Entry::Link { target: b"a".to_vec().into(), modified: None }),
                _ => Some(file_entry(&number.to_string())),
            };
            tree.extend(entry.map(|entry| (path, entry)));
        }
    }

    /// The entries at and below the places, and the directories above each of them.
    fn visible_tree(tree: &Tree, places: &[PathBuf]) -> (Tree, Vec<PathBuf>) {
        let whole = |path: &str| Path::new(ROOT).join(path);
        let mut at_or_below = tree.clone();
        at_or_below.retain(|path, _| places.iter().any(|place| whole(path).starts_with(place)));
        let above = |(path, entry): (&String, &Entry)| {
            let is_above = places.iter().any(|place| place.starts_with(whole(path)));
            (is_above && !matches!(entry, Entry::Directory { .. })).then(|| whole(path))
        };
        (at_or_below, tree.iter().filter_map(above).collect())
    }

    #[test]
    fn a_change_set_that_passes_leaves_each_protected_place_as_it_is() {
        let (mut passed, total) = (0, 20_000);
        for seed in 1..=total {
            let mut dice = Dice(seed);
            let places: Vec<PathBuf> =
                (0..=dice.next(2)).map(|_| Path::new(ROOT).join(dice.random_path())).collect();
            let mut before = Tree::new();
            (0..dice.next(6)).for_each(|number| dice.change_tree(&mut before, number));
            let mut after = before.clone();
            (0..=dice.next(3)).for_each(|number| dice.change_tree(&mut after, 10 + number));
            let paths: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            let changed = paths.into_iter().filter(|path| before.get(*path) != after.get(*path));
            let changed =
                changed.map(|path| (path.clone(), before.get(path).cloned(), after.get(path).cloned()));
            let set = set(changed);
            let stayed = visible_tree(&before, &places) == visible_tree(&after, &places);
            match protected_change(&set, &places) {
                None => {
                    assert!(stayed, "seed {seed}: {places:?} in {set:?}");
                    passed += 1;
                }
                // A file above a place may be removed: it need not be kept.
                Some(path) => assert!(
                    !stayed || places.iter().any(|place| place.starts_with(&path)),
                    "seed {seed}: {} refused",
                    path.display()
                ),
            }
            // None of this is on disk, so a component may change it unless a name is protected.
            let of_git = whole_path_changes(&set).any(|(path, _)| repository_of(&path).is_some());
            assert_eq!(into_repository(&set, Maker::Component, &[], None).is_some(), of_git, "seed {seed}");
        }
        assert!(passed > total / 5 && passed < total * 4 / 5, "{passed}");
    }

    #[test]
    fn what_lies_in_a_repository_is_changed_only_by_a_grant_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let real = std::fs::canonicalize(dir.path()).unwrap();
        for made in ["lib/.git", "bare/objects", "bare/refs"] {
            std::fs::create_dir_all(real.join(made)).unwrap();
        }
        std::fs::write(real.join("bare/HEAD"), "").unwrap();
        let text = real.to_str().unwrap().to_owned();
        let refused = |changes: &[(&str, bool)], maker, granted: &[&str]| {
            let changes = changes.iter().map(|(path, is_new)| {
                (path.to_string(), (!is_new).then(|| file_entry("old")), Some(file_entry("new")))
            });
            let changed =
                RootChanges { root: text.clone().into_bytes().into(), ..set(changes).roots.remove(0) };
            let granted: Vec<PathBuf> = granted.iter().map(|root| real.join(root)).collect();
            into_repository(&ChangeSet::new(vec![changed]), maker, &granted, Some(&real.join("closed/.git")))
                .is_some()
        };
        let both = [Maker::Process, Maker::Component];
        for maker in both {
            for (path, granted, expected) in [
                ("lib/src", "lib", false),
                ("lib/.gitignore", "lib", false),
                ("lib/.GIT/config", "lib", false),
                ("lib/.git/index", "lib", true),
                ("lib/.git/index", "lib/.git", false),
                ("lib/.git/refs/x", "lib/.git/refs", false),
                ("lib/.git/index", "lib/.git/refs", true),
                ("lib/.git/config", "lib/.git", true),
                ("lib/.git/hooks/x", "lib/.git/hooks", true),
                ("lib/.git/objects/info/alternates", "lib/.git", true),
                ("lib/.git/objects/info/packs", "lib/.git", false),
                ("bare/hooks/x", ".", true),
                ("bare/packed-refs", "bare", false),
                ("bare/hooks/x", "bare", true),
            ] {
                assert_eq!(refused(&[(path, true)], maker, &[granted]), expected, "{path} {granted}");
            }
            let new_bare = [("new/HEAD", true), ("new/config", true)];
            assert!(!refused(&new_bare, maker, &["."]));
        }
        assert!(refused(&[("closed/.git", true), ("closed/.git/HEAD", true)], Maker::Process, &["."]));
        let new = [("new/.git", true), ("new/.git/config", true)];
        assert_eq!(both.map(|maker| refused(&new, maker, &["."])), [false, true]);
    }
}
