//! Random steps over files with several names, in a layer like the kernel's. The commit must produce the
//! result in the change set, and undoing it right afterwards must always succeed.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::choices::Dice;
use crate::tests::Bench;
use crate::{ChangeSet, Layer, find_conflicts};

const NAMES: [&str; 6] = ["h1", "h2", "h3", "a0", "m", "z"];

/// Imitates the kernel's layer: the first change of a file copies it, and so separates its names.
struct Overlay {
    lower: PathBuf,
    upper: PathBuf,
}

impl Overlay {
    fn is_whiteout(path: &Path) -> bool {
        path.symlink_metadata().is_ok_and(|found| found.file_type().is_char_device())
    }

    fn has_file(&self, name: &str) -> bool {
        let upper = self.upper.join(name);
        !Self::is_whiteout(&upper) && (upper.exists() || self.lower.join(name).exists())
    }

    fn copied_up(&self, name: &str) -> PathBuf {
        let upper = self.upper.join(name);
        if !upper.exists() {
            fs::copy(self.lower.join(name), &upper).unwrap();
        }
        upper
    }

    fn append_text(&self, name: &str, text: &str) {
        OpenOptions::new()
            .append(true)
            .open(self.copied_up(name))
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
    }

    fn set_mode(&self, name: &str, mode: u32) {
        fs::set_permissions(self.copied_up(name), fs::Permissions::from_mode(mode)).unwrap();
    }

    fn add_link(&self, from: &str, to: &str) {
        let to = self.upper.join(to);
        if Self::is_whiteout(&to) {
            fs::remove_file(&to).unwrap();
        }
        fs::hard_link(self.copied_up(from), to).unwrap();
    }

    /// Does nothing if no whiteout can be made.
    fn remove_name(&self, name: &str) {
        let (upper, spare) = (self.upper.join(name), self.upper.join("spare"));
        if self.lower.join(name).exists() {
            let (device, mode) = (rustix::fs::FileType::CharacterDevice, rustix::fs::Mode::empty());
            if rustix::fs::mknodat(rustix::fs::CWD, &spare, device, mode, 0).is_err() {
                return;
            }
            fs::rename(&spare, &upper).unwrap();
        } else {
            fs::remove_file(&upper).unwrap();
        }
    }

    /// One operation of a step.
    fn random_step(&self, dice: &mut Dice, turn: usize) {
        let (name, other) = (NAMES[dice.roll(NAMES.len())], NAMES[dice.roll(NAMES.len())]);
        match (dice.roll(6), self.has_file(name), self.has_file(other)) {
            (0..=2, true, false) => self.add_link(name, other),
            (0..=3, true, _) => self.append_text(name, &format!("{}\n", dice.roll(2) + turn / 3)),
            (4, true, _) => self.set_mode(name, [0o600, 0o755][dice.roll(2)]),
            (_, true, _) => self.remove_name(name),
            (_, false, _) => {}
        }
    }
}

fn read_tree(dir: &Path) -> BTreeMap<String, (String, u32)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let told = |path: PathBuf| {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        (name, (fs::read_to_string(path).unwrap(), mode))
    };
    entries.map(told).collect()
}

#[test]
fn an_undo_right_after_a_commit_always_succeeds() {
    let mut dice = Dice(7);
    let mut made = 0;
    for round in 0..300 {
        let bench = Bench::new();
        let root = bench.tree().canonicalize().unwrap();
        for (i, name) in NAMES.into_iter().enumerate() {
            // A separate file, an existing one, or none.
            match dice.roll(4) {
                0 => bench.put(name, name),
                1 | 2 if i > 0 && root.join(NAMES[dice.roll(i)]).exists() => {
                    let there: Vec<&str> =
                        NAMES[..i].iter().copied().filter(|n| root.join(n).exists()).collect();
                    fs::hard_link(root.join(there[dice.roll(there.len())]), root.join(name)).unwrap();
                }
                _ => {}
            }
        }
        let original = read_tree(&root);
        // A file from the same instant is treated as edited.
        std::thread::sleep(std::time::Duration::from_millis(15));
        let scratch = tempfile::tempdir().unwrap();
        let layer = Layer::new(&root, scratch.path().join("layer")).unwrap();
        let overlay = Overlay { lower: root.clone(), upper: layer.upper_dir() };
        for turn in 0..1 + dice.roll(6) {
            overlay.random_step(&mut dice, turn);
        }
        let changes =
            layer.read_changes(&mut &bench.memory).unwrap_or_else(|error| panic!("{round}: {error}"));
        let set = ChangeSet::new(vec![changes]);
        bench.commit(&set).unwrap_or_else(|error| panic!("{round}: {error}: {set:?}"));
        assert_eq!(find_conflicts(&set.inverse()).unwrap(), [], "{round}: {set:?}");
        bench.commit(&set.inverse()).unwrap_or_else(|error| panic!("{round}: {error}: {set:?}"));
        assert_eq!(read_tree(&root), original, "{round}: {set:?}");
        made += usize::from(!set.is_empty());
    }
    assert!(made > 100, "{made}");
}
