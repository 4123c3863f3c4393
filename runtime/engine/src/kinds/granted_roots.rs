//! Opens granted roots, once. The opened directory itself is judged, and the step gets that directory or nothing.
//!
//! A step may change the workspace and the policy's write roots, so it could replace another step's granted root by a
//! link to any place. So below these directories no link may lead to a granted root. Links on the way to these
//! directories are the operator's.

use lobster_base::code::Code;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use lobster_policy::{DecisionEnv, Policy, write_roots};
use lobster_sandbox::HeldRoot;
use lobster_stage::StageError;

/// Opens granted roots; knows the directories into which steps may have put links.
pub(super) struct RootOpener {
    changeable: Vec<PathBuf>,
}

impl RootOpener {
    pub(super) fn from_policy(policy: &Policy, place: &DecisionEnv) -> Self {
        let mut changeable = vec![PathBuf::from(&place.workspace)];
        changeable.extend(write_roots(policy, place).map(PathBuf::from));
        // If the working directory is `/`, that does not make every path the step's.
        changeable.retain(|above| above.parent().is_some());
        Self { changeable }
    }

    /// Opens the granted `path`; `None` if it does not exist. `to` is the step's access to it, for messages.
    pub(super) fn open_root(&self, to: &str, path: &str) -> Result<Option<HeldRoot>, StageError> {
        let failed =
            |why: String| StageError::permanent(format!("the policy lets the command {to} {path:?}, {why}"));
        let held = match HeldRoot::open(Path::new(path)) {
            Ok(held) => held,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => return Err(failed(format!("which cannot be opened: {error}"))),
        };
        let Some((above, rest)) = self.outermost_above(Path::new(path)) else { return Ok(Some(held)) };
        let expected = fs::canonicalize(above)
            .map_err(|error| failed(format!("but {} cannot be opened: {error}", above.display())))?
            .join(rest);
        if held.path() == expected {
            return Ok(Some(held));
        }
        let why = format!(
            "but a symbolic link makes that {}; a step may have put the link there. Name the real path in the \
             policy, or remove the link",
            held.path().display()
        );
        Err(failed(why).with_code(Code::RootIsLink))
    }

    /// The changeable directory that contains `path`, and the rest of the path below it.
    fn outermost_above<'p>(&self, path: &'p Path) -> Option<(&Path, &'p Path)> {
        let inside = self.changeable.iter().filter_map(|above| {
            let rest = path.strip_prefix(above).ok()?;
            (!rest.as_os_str().is_empty()).then_some((above.as_path(), rest))
        });
        inside.min_by_key(|(above, _)| above.components().count())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_below_what_a_step_may_change_leads_to_no_grant() {
        let dir = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(dir.path()).unwrap();
        for name in ["work/out/deep", "work/.git/hooks", "outside/x"] {
            fs::create_dir_all(real.join(name)).unwrap();
        }
        symlink("work", real.join("mine")).unwrap();
        symlink("../outside", real.join("work/away")).unwrap();
        symlink(".git", real.join("work/inside")).unwrap();
        symlink("gone", real.join("work/dangling")).unwrap();
        let below = |root: &str| RootOpener { changeable: vec![real.join(root)] };
        let open = |roots: &RootOpener, path: &str| {
            let path = real.join(path);
            let held = roots.open_root("write", path.to_str().unwrap());
            held.map(|held| held.map(|held| held.path().strip_prefix(&real).unwrap().to_owned()))
        };
        for (root, path, found) in [
            ("work", "work", "work"),
            ("work", "work/out/deep", "work/out/deep"),
            // The operator named the link itself.
            ("mine", "mine", "work"),
            ("mine", "mine/out", "work/out"),
            ("other", "work/away/x", "outside/x"),
        ] {
            assert_eq!(open(&below(root), path).unwrap(), Some(PathBuf::from(found)), "{path} in {root}");
        }
        for (root, path) in [
            ("work", "work/away"),
            ("work", "work/away/x"),
            ("work", "work/inside"),
            ("work", "work/inside/hooks"),
            ("mine", "mine/away/x"),
            (".", "mine/out"),
        ] {
            let error = open(&below(root), path).unwrap_err();
            assert!(error.to_string().contains("symbolic link"), "{path} in {root}: {error}");
        }
        assert_eq!(open(&below("work"), "work/dangling").unwrap(), None);
        assert_eq!(open(&below("work"), "work/none").unwrap(), None);
        assert_eq!(open(&below("work"), "outside/x/none").unwrap(), None);
    }
}
