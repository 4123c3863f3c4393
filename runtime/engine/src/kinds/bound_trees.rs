//! The trees of files that an approval binds: the command can read them, and the caller can change them.
//!
//! A jail shows a command the roots that the policy grants, and the system's own files. So the granted roots are
//! listed when the question is asked, when the answer arrives and directly before the start; another digest stops the
//! command. The question names as a gap everything that this does not prove.

use std::fs;
use std::path::{Path, PathBuf};

use lobster_base::file_tree::{Listing, TreeError, TreeLimits, TreeReader};
use lobster_base::glob::glob_match;
use lobster_policy::{
    BoundTree, Control, Decision, DecisionEnv, NetGrant, Policy, SYSTEM_READ_ONLY, SYSTEM_ROOTS, SandboxMode,
    expand_root,
};
use lobster_sandbox::{Confinement, Enforcement, HeldPlaceholders, HeldRoot, Missing, Promise, Sandbox};
use lobster_store::COPIES_PREFIX;

use super::bound_files::NotHeld;
use super::jail_spec::real_path;
use super::own_places::kept_from_steps;

/// Largest tree that one approval binds; a larger tree is a gap.
const LIMITS: TreeLimits = TreeLimits { files: 200_000, bytes: 4 << 30 };

/// Largest tree whose files are read at each comparison. Larger trees are compared by the times of their files, which a
/// process that exchanges blocks of files on ext4 does not change.
const ALWAYS_READ: TreeLimits = TreeLimits { files: 2_000, bytes: 64 << 20 };

/// The gap of a tree on a file system such as tmpfs, or on a loop device.
const NO_TIMES: &str =
    "its file system, or one in it, does not show every change of a file while the command runs";

/// Views of the kernel, which have no files and differ at every reading.
pub(super) const KERNEL_VIEWS: [&str; 2] = ["/proc", "/sys"];

/// Directory of the listings, below the state directory.
const KEPT_IN: &str = "store/trees";

/// The trees of one approval, as last listed.
#[derive(Debug)]
pub(crate) struct Trees {
    kept_in: PathBuf,
    keeps: bool,
    /// Patterns that the policy leaves out (`unbound`): names, or paths from the root of the file system.
    unbound: Vec<String>,
    /// Directories of lobster's state that are hidden from the command.
    own: Vec<PathBuf>,
    /// The state directory.
    state: PathBuf,
    /// Placeholders that lobster made after the trees were bound. The command finds an empty directory at their paths
    /// in any case, so the digests leave them out.
    placeholders: Vec<PathBuf>,
    roots: Vec<PathBuf>,
    listings: Vec<Listing>,
    /// Files and data that the command may run, load or read outside the trees, in words.
    pub(crate) gaps: Vec<String>,
}

impl Trees {
    /// Lists the caller's files that a command may read, and names the gaps.
    pub(super) fn list_granted(
        (policy, sandbox): (&Policy, &Sandbox),
        state_dir: &Path,
        decision: &Decision,
        place: &DecisionEnv,
        keeps: bool,
    ) -> Self {
        let mut trees = Self {
            kept_in: state_dir.join(KEPT_IN),
            keeps,
            unbound: policy.file().approvals.unbound.iter().map(|text| expand_root(text, place)).collect(),
            own: hidden_state(state_dir, &granted_paths(decision, place, policy.is_open())),
            state: real_path(state_dir),
            placeholders: Vec::new(),
            roots: granted_roots(decision, place, policy.is_open()),
            listings: Vec::new(),
            gaps: Vec::new(),
        };
        let (mut gaps, mut left) = (Vec::new(), LIMITS);
        for root in &trees.roots {
            if trees.is_unbound(root) {
                continue;
            }
            match trees.list_tree(root, left) {
                Ok(listing) => {
                    left.files -= listing.files;
                    left.bytes -= listing.bytes;
                    let within = listing.gaps.iter().map(|gap| format!("{}/{gap}", root.display()));
                    gaps.extend(within);
                    if !listing.keeps_times {
                        let root = root.display();
                        gaps.push(format!("the tree {root}: {NO_TIMES}"));
                    }
                    trees.listings.push(listing);
                }
                // The most important gap comes first.
                Err(error @ TreeError::TooLarge { .. }) => {
                    trees.gaps.push(format!("the tree {}: {error}", root.display()));
                }
                Err(TreeError::Io { source, .. }) => {
                    gaps.push(format!("the tree {}: it cannot be listed ({source})", root.display()));
                }
            }
        }
        trees.gaps.extend(gaps);
        if trees.roots.iter().any(|root| trees.state.starts_with(root)) && !trees.own.contains(&trees.state) {
            trees.gaps.push(format!("{}/{COPIES_PREFIX}*: lobster's own files", trees.state.display()));
        }
        let unbound = policy.file().approvals.unbound.iter();
        trees.gaps.extend(unbound.map(|name| format!("{name}: the policy leaves it out (unbound)")));
        let grant = &decision.grant;
        if policy.is_open() {
            trees
                .gaps
                .push("what else you can read: without a policy nothing confines the command".to_owned());
        } else {
            if grant.net != NetGrant::None || !grant.listen.is_empty() || !grant.connect.is_empty() {
                trees.gaps.push("what it receives over the network".to_owned());
            }
            trees.gaps.extend(grant.unix.iter().map(|socket| format!("what it receives through {socket}")));
            // In strict mode a command does not start without this protection.
            let wanted = &policy.file().sandbox;
            let is_kept_in = wanted.mode == SandboxMode::Strict || wanted.minimum.contains(&Control::FsRead);
            let reads_are_held = || {
                let probe = sandbox.probe_host();
                probe.is_ok_and(|probe| probe.jail.held.iter().any(|(held, _)| *held == Promise::FsRead))
            };
            if !is_kept_in && !reads_are_held() {
                trees.gaps.push("what else you can read: this system cannot confine the command".to_owned());
            }
        }
        trees
    }

    fn is_unbound(&self, path: &Path) -> bool {
        let (whole, name) = (path.to_string_lossy(), path.file_name().unwrap_or_default().to_string_lossy());
        self.unbound.iter().any(|pattern| match pattern.contains('/') {
            true => glob_match(pattern.trim_end_matches('/'), &whole),
            false => glob_match(pattern, &name),
        })
    }

    fn list_tree(&self, root: &Path, limits: TreeLimits) -> Result<Listing, TreeError> {
        let own: Vec<&Path> = self.own.iter().filter_map(|own| own.strip_prefix(root).ok()).collect();
        let leaves_out = |path: &Path| {
            own.iter().any(|own| own.as_os_str() == path.as_os_str())
                || self.is_own_copy(&root.join(path))
                || (!self.unbound.is_empty() && self.is_unbound(&root.join(path)))
        };
        let reader =
            TreeReader { kept_in: &self.kept_in, keeps: self.keeps, limits, leaves_out: &leaves_out };
        let apart: Vec<&Path> =
            self.placeholders.iter().filter_map(|path| path.strip_prefix(root).ok()).collect();
        reader.list_reading_small(root, &apart, ALWAYS_READ)
    }

    /// True for the copies of approved files, which lobster makes in its state directory between a question and a start.
    fn is_own_copy(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        name.starts_with(COPIES_PREFIX.as_bytes()) && path.parent() == Some(&self.state)
    }

    /// The trees as an approval binds them.
    pub(super) fn to_bound(&self) -> Vec<BoundTree> {
        let bound = |listing: &Listing| BoundTree {
            path: listing.root.display().to_string(),
            digest: listing.digest,
            files: listing.files,
            bytes: listing.bytes,
        };
        self.listings.iter().map(bound).collect()
    }

    /// The changes since these trees were bound, file by file as long as the earlier listing is kept.
    pub(super) fn changes_since(&self, asked: &[BoundTree]) -> Vec<String> {
        let mut changes = Vec::new();
        let now = self.to_bound();
        for (listing, tree) in self.listings.iter().zip(&now) {
            match asked.iter().find(|asked| asked.path == tree.path) {
                Some(asked) if asked.digest == tree.digest => {}
                Some(asked) => changes.extend(self.name_differences(&asked.digest, listing)),
                None => changes.push(format!("{} (newly read)", tree.path)),
            }
        }
        let gone = asked.iter().filter(|asked| now.iter().all(|tree| tree.path != asked.path));
        changes.extend(gone.map(|asked| format!("{} (no longer read)", asked.path)));
        changes
    }

    fn name_differences(&self, before: &lobster_base::digest::Digest, now: &Listing) -> Vec<String> {
        let leaves_out = |_: &Path| false;
        let reader =
            TreeReader { kept_in: &self.kept_in, keeps: false, limits: LIMITS, leaves_out: &leaves_out };
        match reader.changes_since(before, now) {
            Some(differences) if !differences.is_empty() => differences.named_changes(),
            _ => vec![format!("{} (its earlier listing is gone)", now.root.display())],
        }
    }

    /// Lists the trees again directly before the start: they must be as approved, and be the very directories that the
    /// jail shows.
    pub(super) fn check_before_start(
        &self,
        held: &[HeldRoot],
        placeholders: &HeldPlaceholders,
    ) -> Result<Self, NotHeld> {
        placeholders.wait_for_clock();
        let was_bound = |path: &Path| {
            let within = |listing: &Listing| Some(listing.contains(path.strip_prefix(&listing.root).ok()?));
            self.listings.iter().filter_map(within).any(|found| found.unwrap_or(true))
        };
        let mut now = Self {
            kept_in: self.kept_in.clone(),
            keeps: self.keeps,
            unbound: self.unbound.clone(),
            own: self.own.clone(),
            state: self.state.clone(),
            placeholders: placeholders.paths().filter(|path| !was_bound(path)).map(Path::to_owned).collect(),
            roots: self.roots.clone(),
            listings: Vec::new(),
            gaps: self.gaps.clone(),
        };
        let changed = |changes: Vec<String>| NotHeld::Trees { changes: changes.join(", ") };
        let is_known = |path: &Path| is_system(path) || self.roots.iter().any(|root| path.starts_with(root));
        if let Some(new) = held.iter().find(|held| !held.is_socket() && !is_known(held.path())) {
            return Err(changed(vec![format!("{} (newly read)", new.path().display())]));
        }
        for before in &self.listings {
            let root = &before.root;
            let listing = now
                .list_tree(root, LIMITS)
                .map_err(|error| changed(vec![format!("{} ({error})", root.display())]))?;
            if listing.digest != before.digest {
                return Err(changed(self.name_differences(&before.digest, &listing)));
            }
            if held.iter().any(|held| held.path() == *root && held.identity() != listing.identity) {
                return Err(changed(vec![format!("{} (replaced)", root.display())]));
            }
            now.listings.push(listing);
        }
        Ok(now)
    }

    /// Adds to the statement of a step that ended: the trees that stayed as approved, and the changes during the step,
    /// by the step itself where it may write, or by others.
    ///
    /// The placeholders around the process still exist, so equal times prove that nothing was written.
    pub(super) fn judge_end(&self, confinement: &Confinement, statement: &mut serde_json::Value) {
        if !matches!(confinement, Confinement::Jail(_)) {
            return;
        }
        let Ok(mut enforcement) = serde_json::from_value::<Enforcement>(statement.clone()) else { return };
        for before in &self.listings {
            let changes = self
                .list_tree(&before.root, LIMITS)
                .map_err(|error| error.to_string())
                .and_then(|now| before.changes_until(&now).map_err(|error| error.to_string()))
                .map_or_else(|error| vec![error], |differences| differences.named_changes());
            if changes.is_empty() && before.keeps_times {
                enforcement.approved_roots.push(before.root.display().to_string());
            }
            enforcement
                .changed_meanwhile
                .extend(changes.into_iter().map(|change| format!("{}: {change}", before.root.display())));
        }
        if !enforcement.changed_meanwhile.is_empty() {
            let held = enforcement.held.len();
            enforcement.held.retain(|(promise, _)| *promise != Promise::ApprovedFiles);
            if enforcement.held.len() < held {
                let why = "files changed while the command ran, by itself or by others".to_owned();
                enforcement.missing.push(Missing { promise: Promise::ApprovedFiles, why });
            }
        }
        if let Ok(value) = serde_json::to_value(enforcement) {
            *statement = value;
        }
    }
}

/// The parts of lobster's state that a command does not see. If it has a root in the state, it sees the rest of the
/// state as well when a granted root is around it.
fn hidden_state(state_dir: &Path, granted: &[PathBuf]) -> Vec<PathBuf> {
    let state = real_path(state_dir);
    match granted.iter().any(|root| root.starts_with(&state)) {
        true => kept_from_steps(&state).iter().map(real_path).collect(),
        false => vec![state],
    }
}

/// The roots that a command may read, without the system's and without roots inside other roots.
fn granted_roots(decision: &Decision, place: &DecisionEnv, is_open: bool) -> Vec<PathBuf> {
    let all = granted_paths(decision, place, is_open);
    let mut roots = all.clone();
    roots.retain(|root| !all.iter().any(|other| root != other && root.starts_with(other)));
    roots
}

/// The real paths of all granted roots, without the system's.
fn granted_paths(decision: &Decision, place: &DecisionEnv, is_open: bool) -> Vec<PathBuf> {
    let granted = decision.grant.fs_read.iter().chain(&decision.grant.fs_write);
    let granted = granted.filter(|root| !root.starts_with('@') && !is_system(Path::new(root)));
    let mut roots: Vec<PathBuf> = match is_open {
        true => vec![PathBuf::from(&place.workspace)],
        false => granted.map(|root| PathBuf::from(expand_root(root, place))).collect(),
    };
    roots = roots.iter().filter_map(|root| fs::canonicalize(root).ok()).collect();
    roots.retain(|root| !is_system(root));
    roots.sort();
    roots.dedup();
    roots
}

/// The granted roots that belong to the system. Its package manager changes them, so they are not compared.
pub(super) fn system_roots(decision: &Decision) -> Vec<&str> {
    let granted = decision.grant.fs_read.iter().map(String::as_str);
    granted.filter(|root| *root == SYSTEM_ROOTS || is_system(Path::new(root))).collect()
}

/// True for the system's own directories. A project may be inside one, as in `/usr/src/app`.
fn is_system(root: &Path) -> bool {
    let is_view = KERNEL_VIEWS.iter().any(|view| root.starts_with(view));
    is_view || SYSTEM_READ_ONLY.iter().any(|system| root == Path::new(system))
}

#[cfg(test)]
mod tests {
    use lobster_policy::Proposal;

    use super::*;

    #[test]
    fn only_hidden_parts_of_the_state_are_left_out() {
        let state = Path::new("/nowhere/work/state");
        let hidden =
            |granted: &[&str]| hidden_state(state, &granted.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(hidden(&["/nowhere/work", "/nowhere/states"]), [state]);
        let parts = [state.join("store"), state.join("logins")];
        for root in ["/nowhere/work/state/x", "/nowhere/work/state"] {
            assert_eq!(hidden(&["/nowhere/work", root]), parts, "{root}");
        }
    }

    #[test]
    fn a_project_inside_of_a_system_directory_is_bound() {
        let policy =
            "version = 1\n[sandbox.fs]\nread = [\"@workspace\", \"@system-ro\", \"/usr\", \"/usr/share\"]\n";
        let policy = Policy::load(policy, "p.toml").unwrap();
        let place = DecisionEnv { workspace: "/usr/lib".to_owned(), ..DecisionEnv::fixture() };
        let decision = policy.decide(&Proposal::argv(["sh", "x.sh"].map(str::to_owned).to_vec()), &place);
        let bound = ["/usr/lib", "/usr/share"].map(PathBuf::from);
        assert_eq!(granted_roots(&decision, &place, policy.is_open()), bound);
        assert_eq!(system_roots(&decision), [SYSTEM_ROOTS, "/usr"]);
    }
}
