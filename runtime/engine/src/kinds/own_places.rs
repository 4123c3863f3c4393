//! Files that lobster trusts: its state, and the files that its operator names for it. Steps may neither change nor
//! replace them.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};

use lobster_base::code::Code;
use lobster_credentials::login::Logins;
use lobster_sandbox::JailSpec;
use lobster_stage::StageError;
use rustix::fs::{Access, access};

use super::jail_spec::{first_file, real_path, real_place};

/// Most symbolic links on one path, the same as the kernel's limit.
const MOST_LINKS: usize = 40;

/// Keeps a step away from all of them: the state, and `places`.
pub(super) fn protect(
    spec: &mut JailSpec,
    places: &[PathBuf],
    state_dir: &PathBuf,
) -> Result<(), StageError> {
    let refused = |place: &Path, why: String| {
        let message = format!("{} {why}", place.display());
        Err(StageError::permanent(message).with_code(Code::PolicyDenied))
    };
    let state = real_path(state_dir);
    let is_around = spec.write.iter().any(|root| state.starts_with(root));
    let is_kept =
        |root: &PathBuf| ["store", "logins", "models"].iter().any(|name| root.starts_with(state.join(name)));
    let is_in = |root: &&PathBuf| root.starts_with(&state) && is_around || is_kept(root);
    let mut granted = spec.write.iter().filter(|root| !spec.own.contains(root));
    if let Some(root) = granted.find(is_in) {
        let why = "is or is inside lobster's state directory, and the policy lets the step write there; set \
                   LOBSTER_STATE_DIR to a directory of its own";
        return refused(root, why.to_owned());
    }
    for place in places.iter().chain([state_dir]) {
        let replaceable = |link: &PathBuf| spec.write.iter().any(|root| link.starts_with(root));
        if let Some(link) = links_on_the_way(place).into_iter().find(replaceable) {
            let why = format!(
                "is read by lobster itself through a symbolic link that the policy lets the step replace \
                 ({}); name the real path, or grant a smaller directory",
                link.display()
            );
            return refused(place, why);
        }
    }
    let places = places.iter().map(|place| first_file(real_place(place)));
    spec.protect.extend(places.filter(|place| may_be_there(place)));
    hide_state(spec, state_dir);
    Ok(())
}

/// The parts of the state that no step reaches, even if it has roots there.
pub(super) fn kept_from_steps(state_dir: &Path) -> [PathBuf; 2] {
    [state_dir.join("store"), Logins::dir_below(state_dir)]
}

/// Directory of the steps' homes. Each step finds only its own there.
pub(super) fn homes_directory(state_dir: &Path) -> PathBuf {
    state_dir.join("store").join("homes")
}

/// Hides the state, which holds other runs' inputs and outputs, the tokens of open questions and logins, and the
/// trusted policies. A step that may read the directory around it finds nothing there. A step with a root inside it
/// finds that root, and neither the store nor the logins. In any case it finds the directories that were made for it.
pub(super) fn hide_state(spec: &mut JailSpec, state_dir: &Path) {
    let state = real_path(state_dir);
    let covers =
        |spec: &JailSpec, dir: &Path| spec.read.iter().chain(&spec.write).any(|root| dir.starts_with(root));
    let mut granted = spec.read.iter().chain(&spec.write).filter(|root| !spec.own.contains(root));
    let is_granted = granted.any(|root| root.starts_with(&state));
    let dirs = if is_granted {
        spec.protect.push(state.clone());
        kept_from_steps(state_dir).to_vec()
    } else {
        vec![state_dir.to_owned()]
    };
    for dir in dirs {
        // A login may happen while the step runs, so the directory must exist to be hidden.
        if covers(spec, &state) && !dir.exists() {
            let _ = fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        }
        let dir = real_path(&dir);
        if covers(spec, &dir) {
            spec.deny.push(dir);
        }
    }
}

/// True if the directory exists, or could be created by this user, as whom the step runs.
fn may_be_there(place: &Path) -> bool {
    let above = place.ancestors().find(|above| above.symlink_metadata().is_ok());
    above == Some(place) || above.is_some_and(|above| access(above, Access::WRITE_OK).is_ok())
}

/// The symbolic links on an absolute path that are followed, each with the real path of its directory.
fn links_on_the_way(path: &Path) -> Vec<PathBuf> {
    let mut links = Vec::new();
    let mut here = PathBuf::from("/");
    let parts =
        |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
    let mut rest = parts(path);
    while let Some(name) = rest.pop() {
        match Path::new(&name).components().next() {
            Some(Component::Normal(_)) => here.push(&name),
            Some(Component::ParentDir) => _ = here.pop(),
            Some(Component::RootDir) => here = PathBuf::from("/"),
            Some(Component::CurDir | Component::Prefix(_)) | None => {}
        }
        if links.len() < MOST_LINKS
            && let Ok(target) = fs::read_link(&here)
        {
            links.push(here.clone());
            here.pop();
            rest.extend(parts(&target));
        }
    }
    links
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_on_the_way_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        fs::create_dir_all(root.join("data/lobster/state")).unwrap();
        symlink("../data", root.join("data/up")).unwrap();
        symlink(root.join("data/up/lobster"), root.join("dot")).unwrap();
        let found = |path: &str| {
            let links = links_on_the_way(&root.join(path)).into_iter();
            links
                .map(|link| link.strip_prefix(&root).unwrap().to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(found("dot/state/store"), ["dot", "data/up"]);
        assert_eq!(found("dot/../lobster"), ["dot", "data/up"]);
        assert_eq!(found("data/lobster/none"), [""; 0]);
    }

    #[test]
    fn the_state_is_hidden_wherever_it_lies_in_a_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        let state = root.join("home/.lobster/state");
        let hidden = |read: &[&str], write: &[&str]| {
            let roots = |names: &[&str]| names.iter().map(|name| root.join(name)).collect::<Vec<_>>();
            let mut spec = JailSpec { read: roots(read), write: roots(write), ..JailSpec::default() };
            hide_state(&mut spec, &state);
            spec.deny.iter().map(|path| path.strip_prefix(&root).unwrap().to_owned()).collect::<Vec<_>>()
        };
        let whole = [PathBuf::from("home/.lobster/state")];
        assert_eq!(hidden(&["other"], &["home/work"]), Vec::<PathBuf>::new());
        assert!(!state.exists());
        for (read, write) in [(&["home"][..], &[][..]), (&[], &["home"]), (&["other"], &["", "home/work"])] {
            assert_eq!(hidden(read, write), whole, "{read:?} {write:?}");
            assert!(state.exists(), "what is made later would not be hidden");
        }
        let parts = ["home/.lobster/state/store", "home/.lobster/state/logins"].map(PathBuf::from);
        assert_eq!(hidden(&["home/.lobster/state"], &["home"]), parts);
        assert_eq!(hidden(&["home/.lobster/state/models"], &["home"]), parts);
    }
}
