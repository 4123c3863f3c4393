//! Parts of change sets, and resolutions of conflicts, on a real file system.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use lobster_base::digest::Digest;

use crate::tests::{Bench, Memory, set};
use crate::{ChangeSet, Entry, Keep, RelPath, Resolution, ResolveError, resolve_set};

impl Keep for &Memory {
    fn keep_content(&mut self, content: &mut dyn Read) -> io::Result<(Digest, u64)> {
        let mut text = String::new();
        content.read_to_string(&mut text)?;
        self.file(&text, 0o644);
        Ok((Digest::of_bytes(text.as_bytes()), text.len() as u64))
    }
}

pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }
}

const NAMES: [&str; 9] = ["a", "a-", "b", "d", "d/e", "d/e/f", "d/g", "x", "x/y"];

type Tree = BTreeMap<&'static str, Entry>;

fn random_tree(memory: &Memory, dice: &mut Dice) -> Tree {
    let mut tree = Tree::new();
    for name in NAMES {
        let above = name.rsplit_once('/').map(|(above, _)| above);
        if above.is_some_and(|above| !matches!(tree.get(above), Some(Entry::Directory { .. }))) {
            continue;
        }
        let entry = match dice.roll(6) {
            0 => continue,
            1 => Entry::Link { target: b"a".to_vec().into(), modified: None },
            2 | 3 => Entry::Directory { mode: 0o755, acl: None },
            _ => memory.file(["one", "two", "three"][dice.roll(3)], 0o644),
        };
        tree.insert(name, entry);
    }
    tree
}

fn write_tree(dir: &Path, tree: &Tree, memory: &Memory) {
    for (name, entry) in tree {
        let at = dir.join(name);
        match entry {
            Entry::Directory { mode, .. } => {
                fs::create_dir(&at).unwrap();
                fs::set_permissions(at, fs::Permissions::from_mode(*mode)).unwrap();
            }
            Entry::Link { .. } => symlink("a", at).unwrap(),
            Entry::File { digest, .. } => {
                fs::write(&at, &memory.0.borrow()[digest]).unwrap();
                fs::set_permissions(at, fs::Permissions::from_mode(0o644)).unwrap();
            }
        }
    }
}

fn contents_of(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let kind = path.symlink_metadata().unwrap().file_type();
        let text = if kind.is_dir() {
            found.extend(contents_of(&path));
            "directory".to_owned()
        } else if kind.is_symlink() {
            "link".to_owned()
        } else {
            fs::read_to_string(&path).unwrap()
        };
        found.insert(path, text);
    }
    found
}

/// For any selection, both the selected part and the rest after it can be committed.
#[test]
fn any_part_of_any_change_set_is_one_that_can_be_committed() {
    let mut dice = Dice(11);
    let mut parts = 0;
    for _ in 0..120 {
        let bench = Bench::new();
        let (before, after) = (random_tree(&bench.memory, &mut dice), random_tree(&bench.memory, &mut dice));
        write_tree(&bench.tree(), &before, &bench.memory);
        let changes = NAMES.into_iter().filter_map(|name| {
            let (before, after) = (before.get(name).cloned(), after.get(name).cloned());
            (before != after).then_some((name, before, after))
        });
        let whole = set(&bench.tree(), changes.collect());
        let root = bench.tree().canonicalize().unwrap();
        let changed: Vec<RelPath> = whole.changes().map(|(_, change)| change.path.clone()).collect();
        if changed.is_empty() {
            continue;
        }
        let original = contents_of(&bench.tree());
        let chosen: Vec<&RelPath> = changed.iter().filter(|_| dice.roll(3) == 0).collect();
        let places: Vec<PathBuf> = chosen.iter().map(|path| root.join(path.to_string())).collect();
        let paths: Vec<_> =
            chosen.iter().map(|path| (whole.roots[0].root.clone(), (*path).clone())).collect();
        for (part, is_only) in [(whole.only_at(&places).unwrap(), true), (whole.without_paths(&paths), false)]
        {
            for path in &chosen {
                let is_in = part.changes().any(|(_, change)| change.path == **path);
                assert_eq!(is_in, is_only, "{path} {whole:?}");
            }
            bench.commit(&part).unwrap_or_else(|error| panic!("{error} {part:?} of {whole:?}"));
            parts += usize::from(!part.is_empty() && part != whole);
            bench.commit(&part.inverse()).unwrap();
            assert_eq!(contents_of(&bench.tree()), original);
        }
    }
    assert!(parts > 80, "{parts}");
    let bench = Bench::new();
    let one = bench.memory.file("one", 0o644);
    let whole = set(&bench.tree(), vec![("a", None, Some(one))]);
    assert_eq!(whole.only_at(&[PathBuf::from("/elsewhere")]).unwrap_err().path, Path::new("/elsewhere"));
}

#[test]
fn both_names_of_a_file_are_chosen_or_none() {
    let bench = Bench::new();
    let one = bench.memory.file("one", 0o644);
    let Entry::File { digest, size, mode, .. } = one.clone() else { panic!("a file") };
    let named = Entry::File {
        digest,
        size,
        mode,
        modified: None,
        same_as: Some(RelPath::new("a").unwrap()),
        acl: None,
    };
    let whole = set(
        &bench.tree(),
        vec![("a", None, Some(one.clone())), ("b", None, Some(named)), ("c", None, Some(one))],
    );
    let root = bench.tree().canonicalize().unwrap();
    for name in ["a", "b"] {
        assert_eq!(whole.only_at(&[root.join(name)]).unwrap().changes().count(), 2);
    }
}

struct Edited {
    bench: Bench,
    set: ChangeSet,
}

/// A change set of three texts and a new file. Another program has edited two of the texts and the new file.
fn edited_set() -> Edited {
    let bench = Bench::new();
    let file = |text| Some(bench.memory.file(text, 0o644));
    for (name, text) in [("clean", "1\n"), ("far", "1\n2\n3\n4\n"), ("near", "1\n")] {
        bench.put(name, text);
    }
    let set = set(
        &bench.tree(),
        vec![
            ("clean", file("1\n"), file("one\n")),
            ("far", file("1\n2\n3\n4\n"), file("one\n2\n3\n4\n")),
            ("near", file("1\n"), file("one\n")),
            ("new", None, file("ours\n")),
        ],
    );
    bench.put("far", "1\n2\n3\nfour\n");
    bench.put("near", "uno\n");
    bench.put("new", "theirs\n");
    bench.commit(&set).unwrap_err();
    Edited { bench, set }
}

#[test]
fn what_conflicts_is_kept_overwritten_or_merged_and_can_be_undone() {
    for (how, expected) in [
        (Resolution::Keep, ["one\n", "1\n2\n3\nfour\n", "uno\n", "theirs\n"]),
        (Resolution::Overwrite, ["one\n", "one\n2\n3\n4\n", "one\n", "ours\n"]),
    ] {
        let Edited { bench, set } = edited_set();
        let original = contents_of(&bench.tree());
        let resolved = resolve_set(&set, how, &bench.memory, &mut &bench.memory).unwrap();
        bench.commit(&resolved).unwrap();
        let texts =
            ["clean", "far", "near", "new"].map(|name| fs::read_to_string(bench.tree().join(name)).unwrap());
        assert_eq!(texts, expected);
        bench.commit(&resolved.inverse()).unwrap();
        assert_eq!(contents_of(&bench.tree()), original);
    }
    let Edited { bench, set } = edited_set();
    let merge = |set: &ChangeSet| resolve_set(set, Resolution::Merge, &bench.memory, &mut &bench.memory);
    let Err(ResolveError::Unresolved { conflict, why }) = merge(&set) else {
        panic!("both changed one line")
    };
    assert_eq!(conflict.path.to_string(), "near");
    assert!(why.contains("line 1"), "{why}");
    let root = set.roots[0].root.clone();
    let rest = set.without_paths(&["near", "new"].map(|name| (root.clone(), RelPath::new(name).unwrap())));
    bench.commit(&merge(&rest).unwrap()).unwrap();
    assert_eq!(fs::read_to_string(bench.tree().join("far")).unwrap(), "one\n2\n3\nfour\n");
}

/// Another program edits 300 files while the change set waits: each is named, and none is lost.
#[test]
fn three_hundred_edits_are_each_named_and_none_is_overwritten() {
    let bench = Bench::new();
    let names: Vec<String> = (0..900).map(|number| format!("f{number:03}")).collect();
    let (old, new) = (bench.memory.file("old", 0o644), bench.memory.file("new", 0o644));
    names.iter().for_each(|name| bench.put(name, "old"));
    let set = set(
        &bench.tree(),
        names.iter().map(|name| (name.as_str(), Some(old.clone()), Some(new.clone()))).collect(),
    );
    let edited: Vec<&String> = names.iter().step_by(3).collect();
    edited.iter().for_each(|name| bench.put(name, "edited"));
    let Err(crate::CommitError::Conflicts(found)) = bench.commit(&set) else { panic!("no conflict") };
    let found: Vec<String> = found.iter().map(|conflict| conflict.path.to_string()).collect();
    assert_eq!(found.iter().collect::<Vec<_>>(), edited);
    let kept = resolve_set(&set, Resolution::Keep, &bench.memory, &mut &bench.memory).unwrap();
    bench.commit(&kept).unwrap();
    for name in &names {
        let expected = if edited.contains(&name) { "edited" } else { "new" };
        assert_eq!(fs::read_to_string(bench.tree().join(name)).unwrap(), expected);
    }
}

#[test]
fn what_is_new_in_a_directory_that_goes_is_a_conflict_and_keeps_it() {
    let bench = Bench::new();
    bench.put("d/f", "one");
    let mode = fs::metadata(bench.tree().join("d")).unwrap().permissions().mode() & 0o7777;
    let one = bench.memory.file("one", 0o644);
    let set = set(
        &bench.tree(),
        vec![("d", Some(Entry::Directory { mode, acl: None }), None), ("d/f", Some(one), None)],
    );
    bench.put("d/theirs", "x");
    let Err(crate::CommitError::Conflicts(found)) = bench.commit(&set) else { panic!("no conflict") };
    assert_eq!(found.iter().map(|conflict| conflict.path.to_string()).collect::<Vec<_>>(), ["d"]);
    for how in [Resolution::Overwrite, Resolution::Merge] {
        resolve_set(&set, how, &bench.memory, &mut &bench.memory).unwrap_err();
    }
    let kept = resolve_set(&set, Resolution::Keep, &bench.memory, &mut &bench.memory).unwrap();
    bench.commit(&kept).unwrap();
    assert_eq!(contents_of(&bench.tree()).len(), 2);
}
