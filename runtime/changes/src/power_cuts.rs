//! Proof that a commit leaves either the old tree or the new one after a power cut at any time.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::rc::Rc;

use lobster_base::digest::Digest;

use crate::commit::{CommitError, Content, Contents, commit_in, recover_in};
use crate::commit_log::Phase;
use crate::set::Time;
use crate::set::{Change, ChangeSet, Entry, RootChanges};
use crate::simulated::{Chance, Fault, Names, Node, Op, ROOT, Simulated, World, rel_path};

struct Known;

impl Contents for Known {
    fn open_content(&self, digest: &Digest) -> io::Result<Content<'_>> {
        let all = ["one", "two", "three", "four", ""]
            .into_iter()
            .find(|text| Digest::of_bytes(text.as_bytes()) == *digest);
        all.map(|text| Content::Bytes(Box::new(text.as_bytes())))
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn file_entry(text: &str, mode: u32) -> Option<Entry> {
    let (digest, size) = (Digest::of_bytes(text.as_bytes()), text.len() as u64);
    Some(Entry::File { digest, size, mode, modified: None, same_as: None, acl: None })
}

fn name_of(text: &str, mode: u32, of: &str) -> Option<Entry> {
    let (digest, size) = (Digest::of_bytes(text.as_bytes()), text.len() as u64);
    Some(Entry::File { digest, size, mode, modified: None, same_as: Some(rel_path(of)), acl: None })
}

fn directory_entry(mode: u32) -> Option<Entry> {
    Some(Entry::Directory { mode, acl: None })
}

fn link_entry(target: &str) -> Option<Entry> {
    Some(Entry::Link { target: target.as_bytes().to_vec().into(), modified: None })
}

/// A path with its states before and after.
type Changed = (&'static str, Option<Entry>, Option<Entry>);

/// The cases together have every kind of change.
fn all_cases() -> Vec<Vec<Changed>> {
    vec![
        vec![
            ("a", file_entry("one", 0o644), file_entry("two", 0o644)),
            ("b", None, file_entry("three", 0o600)),
        ],
        vec![
            ("d", directory_entry(0o755), None),
            ("d/e", directory_entry(0o555), None),
            ("d/e/f", file_entry("one", 0o644), None),
            ("new", None, directory_entry(0o555)),
            ("new/in", None, directory_entry(0o755)),
            ("new/in/f", None, file_entry("one", 0o644)),
        ],
        vec![
            ("d", directory_entry(0o755), file_entry("four", 0o644)),
            ("d/f", file_entry("one", 0o644), None),
            ("f", file_entry("two", 0o644), directory_entry(0o755)),
            ("f/g", None, file_entry("three", 0o755)),
            ("l", link_entry("f"), directory_entry(0o700)),
            ("l/m", None, link_entry("../d")),
        ],
        vec![
            ("a", file_entry("one", 0o644), file_entry("one", 0o755)),
            ("d", directory_entry(0o555), directory_entry(0o755)),
            ("d/x", None, file_entry("two", 0o644)),
            ("l", link_entry("a"), link_entry("d")),
            ("m", link_entry("a"), file_entry("three", 0o644)),
            ("n", file_entry("four", 0o644), link_entry("d")),
        ],
        vec![
            ("h1", file_entry("one", 0o644), file_entry("two", 0o640)),
            ("k", None, file_entry("three", 0o644)),
            ("k2", None, name_of("three", 0o644, "k")),
            ("z", file_entry("four", 0o644), name_of("three", 0o644, "k")),
        ],
        vec![
            ("a", file_entry("one", 0o644), file_entry("two", 0o644)),
            ("b", None, name_of("two", 0o644, "a")),
        ],
        // `h3` became a name of the pair since then: it is replaced, and the pair rewritten.
        vec![
            ("h1", file_entry("one", 0o644), file_entry("two", 0o640)),
            ("h3", name_of("one", 0o644, "h1"), file_entry("three", 0o644)),
        ],
    ]
}

fn tree_of<'a>(entries: impl Iterator<Item = (&'a str, &'a Option<Entry>)>) -> World {
    let mut world = World::new();
    for (name, entry) in entries {
        let (node, mode) = match entry {
            None => continue,
            Some(Entry::Directory { mode, .. }) => (Node::Directory(Names::new()), *mode),
            Some(Entry::Link { target, .. }) => (Node::Link(target.as_bytes().to_vec()), 0o777),
            Some(Entry::File { same_as: Some(of), .. }) => {
                let inode = world.find_inode(of).unwrap();
                let (dir, name, _) = world.find_name(&rel_path(name)).unwrap();
                world.perform_op(Op::Name { dir, name, inode });
                continue;
            }
            Some(Entry::File { digest, mode, .. }) => {
                let mut content = Vec::new();
                Known.open_content(digest).unwrap().read_to_end(&mut content).unwrap();
                (Node::File { durable: content.clone(), content }, *mode)
            }
        };
        world.make_node(&rel_path(name), node, mode, Time(1, 1));
    }
    world
}

/// The tree before, the tree after, and the change set between them. In the last case `h2` is another name of
/// `h1`, and stays one.
fn build_case(entries: &[(&'static str, Option<Entry>, Option<Entry>)]) -> (World, World, ChangeSet) {
    let pair = tree_of(entries.iter().map(|(name, before, _)| (*name, before))).find_inode(&rel_path("h1"));
    let changes = entries.iter().map(|(name, before, after)| Change {
        path: rel_path(name),
        before: before.clone(),
        after: after.clone(),
        shared: pair.filter(|_| *name == "h1"),
    });
    let root = b"/root".to_vec().into();
    let set = ChangeSet::new(vec![RootChanges { root, changes: changes.collect() }]);
    let mut worlds = [
        tree_of(entries.iter().map(|(name, before, _)| (*name, before))),
        tree_of(entries.iter().map(|(name, _, after)| (*name, after))),
    ];
    for world in &mut worlds {
        if let Some(inode) = world.find_inode(&rel_path("h1")) {
            world.perform_op(Op::Name { dir: ROOT, name: b"h2".to_vec(), inode });
        }
        world.make_node(&rel_path("bystander"), Node::Link(b"a".to_vec()), 0o777, Time(1, 1));
        world.sync_directory(ROOT);
        world.ops.iter_mut().for_each(|op| op.1 = true);
        let durable = world.after_power_cut(&mut Chance(0));
        let next = world.next;
        *world = World { next, ..durable };
        for (node, ..) in world.nodes.values_mut().chain(world.base.values_mut()) {
            if let Node::File { content, durable } = node {
                durable.clone_from(content);
            }
        }
    }
    let [before, after] = worlds;
    set.check_valid().unwrap();
    (before, after, set)
}

fn recover_all(disk: &Rc<Simulated>) -> Result<Option<bool>, CommitError> {
    let Some(journal) = disk.world.borrow().journal.clone() else { return Ok(None) };
    recover_in(disk, disk, journal, &|_| Ok(())).map(|done| Some(done.committed))
}

/// Recovers after a power cut, first with another power cut at each of its points, and examines the result
/// each time, together with the ends of the two recoveries.
fn recover_repeatedly(world: &World, seed: u64, look: impl Fn(&World, &str)) -> usize {
    let mut images = 0;
    for again in 0.. {
        let disk = Simulated::new(world.after_power_cut(&mut Chance(seed)), again, Fault::Cut);
        let first = recover_all(&disk);
        images += 1;
        let is_off = disk.is_off.get();
        let world = disk.world.borrow().after_power_cut(&mut Chance(seed ^ again as u64));
        let disk = Simulated::new(world, 0, Fault::None);
        let second = recover_all(&disk).unwrap();
        look(&disk.world.borrow(), &format!("{first:?} {second:?}"));
        if !is_off {
            break;
        }
    }
    images
}

/// Checks that the tree is the old or the new one.
fn check_recovery(world: &World, expected: [&BTreeMap<String, String>; 2], seed: u64) -> usize {
    recover_repeatedly(world, seed, |world, told| {
        let shown = world.visible_tree();
        assert!(expected.contains(&&shown), "{told} {shown:#?}");
        assert!(world.journal.is_none());
    })
}

/// Files that another program edits in turn. A file that is rewritten in place keeps its names; only
/// comparisons guard it.
fn edited_names(entries: &[Changed]) -> impl Iterator<Item = &'static str> {
    entries.iter().map(|entry| entry.0).filter(|name| !["h1", "h3"].contains(name))
}

/// Number of random results of each power cut.
const SEEDS: u64 = 6;

#[test]
fn a_power_cut_at_any_operation_leaves_the_old_tree_or_the_new() {
    let mut images = 0;
    for entries in all_cases() {
        for syncs_as_one in [false, true] {
            let (mut before, mut after, set) = build_case(&entries);
            (before.syncs_as_one, after.syncs_as_one) = (syncs_as_one, syncs_as_one);
            // Forward and back, because undo works in the same way.
            for (from, to, set) in [(&before, &after, set.clone()), (&after, &before, set.inverse())] {
                let (old, new) = (from.visible_tree(), to.visible_tree());
                for at in 0.. {
                    let disk = Simulated::new(from.clone(), at, Fault::Cut);
                    let done = commit_in(&disk, &disk, "x", &set, &Known);
                    let is_off = disk.is_off.get();
                    for seed in 0..SEEDS {
                        let expected = if done.is_ok() { [&new, &new] } else { [&old, &new] };
                        images += check_recovery(&disk.world.borrow(), expected, seed * 7919 + at as u64);
                    }
                    if !is_off {
                        done.unwrap();
                        assert_eq!(disk.world.borrow().visible_tree(), new);
                        break;
                    }
                }
            }
        }
    }
    assert!(images >= 20_000, "only {images} power cuts");
}

#[test]
fn a_full_disk_at_any_operation_changes_nothing_or_is_finished_by_the_recovery() {
    for entries in all_cases() {
        for syncs_as_one in [false, true] {
            let (mut before, after, set) = build_case(&entries);
            before.syncs_as_one = syncs_as_one;
            let (old, new) = (before.visible_tree(), after.visible_tree());
            for at in 0.. {
                let disk = Simulated::new(before.clone(), at, Fault::Error);
                let done = commit_in(&disk, &disk, "x", &set, &Known);
                let shown = disk.world.borrow().visible_tree();
                if disk.fault.get() == Fault::Error {
                    assert_eq!(shown, new);
                    break;
                }
                recover_all(&disk).unwrap();
                let shown = disk.world.borrow().visible_tree();
                assert!(shown == old || shown == new, "{done:?} {shown:#?}");
                match done {
                    Ok(()) => assert_eq!(shown, new),
                    // The next recovery decides.
                    Err(CommitError::Journal(_) | CommitError::Stuck { .. }) => {}
                    Err(error) => assert_eq!(shown, old, "{error}"),
                }
            }
        }
    }
}

#[test]
fn an_edit_at_any_moment_is_never_overwritten() {
    for entries in all_cases() {
        let (before, after, set) = build_case(&entries);
        let (old, new) = (before.visible_tree(), after.visible_tree());
        for name in edited_names(&entries) {
            for at in 0.. {
                let disk = Simulated::new(before.clone(), at, Fault::Edit(name));
                let done = commit_in(&disk, &disk, "x", &set, &Known);
                if disk.fault.get() != Fault::None {
                    break;
                }
                let (world, key) = (disk.world.borrow(), format!("/{name}"));
                let shown = world.visible_tree();
                // The edit was made on the file that was there then. The edited file need not exist any more
                // if it was removed as the very file that had been compared.
                let is_edited = shown.get(&key).is_some_and(|told| told.contains("somebody's own"));
                assert!(world.journal.is_none(), "{done:?}");
                match done {
                    Ok(()) => {
                        assert!(is_edited || shown.get(&key) == new.get(&key), "{name} {at} {shown:#?}")
                    }
                    Err(CommitError::Raced { left, .. }) => {
                        assert!(is_edited || shown.get(&key) == old.get(&key), "{name} {at} {shown:#?}");
                        for (other, told) in old.iter().filter(|(other, _)| !other.starts_with(&key)) {
                            let is_left = left.iter().any(|path| other.starts_with(&format!("/{path}")));
                            let linked = other.starts_with('[') || told.is_empty();
                            assert!(
                                is_left || linked || shown.get(other) == Some(told),
                                "{other}: {shown:#?}"
                            );
                        }
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

/// Operations for rewriting a file: an edit during one of them comes after the last comparison.
const REWRITING: usize = 4;

#[test]
fn an_edit_of_a_file_with_other_names_is_overwritten_only_while_it_is_rewritten() {
    for entries in all_cases().into_iter().filter(|entries| entries.iter().any(|entry| entry.0 == "h1")) {
        let (before, after, set) = build_case(&entries);
        let (old, new) = (before.visible_tree(), after.visible_tree());
        let mut overwritten = 0;
        for at in 0.. {
            let disk = Simulated::new(before.clone(), at, Fault::Edit("h1"));
            let done = commit_in(&disk, &disk, "x", &set, &Known);
            if disk.fault.get() != Fault::None {
                break;
            }
            let world = disk.world.borrow();
            let mut shown = world.visible_tree();
            assert!(world.journal.is_none(), "{done:?}");
            if !shown["/h1"].contains("somebody's own") {
                assert!(done.is_ok() && shown == new, "{at} {done:?} {shown:#?}");
                overwritten += 1;
                continue;
            }
            // Everything else is as if no file had been edited.
            let expected = if done.is_ok() { &new } else { &old };
            for (name, told) in &mut shown {
                if told.contains("somebody's own") {
                    told.clone_from(&expected[name]);
                }
            }
            assert_eq!(shown, *expected, "{at} {done:?}");
        }
        assert!(overwritten <= REWRITING, "overwritten at {overwritten} operations");
    }
}

#[test]
fn a_commit_that_was_never_sealed_leaves_nothing_behind() {
    let (before, _, set) = build_case(&all_cases()[0]);
    let disk = Simulated::new(before.clone(), 3, Fault::Cut);
    commit_in(&disk, &disk, "x", &set, &Known).unwrap_err();
    let world = disk.world.borrow().clone();
    assert_eq!(world.journal.as_ref().map(|journal| journal.phase), Some(Phase::Preparing));
    let disk = Simulated::new(world, 0, Fault::None);
    assert_eq!(recover_all(&disk).unwrap(), Some(false));
    assert_eq!(disk.world.borrow().visible_tree(), before.visible_tree());
}

/// The tree without a place, everything inside it, its parent directories, and its hard links.
fn tree_without(tree: &BTreeMap<String, String>, place: &str) -> BTreeMap<String, String> {
    let is_elsewhere = |name: &&String| {
        let is_around = place.starts_with(&format!("{name}/"));
        !name.starts_with(place) && !is_around && !name.contains(&format!("\"{place}\""))
    };
    tree.iter().filter(|(name, _)| is_elsewhere(name)).map(|(a, b)| (a.clone(), b.clone())).collect()
}

/// Checks that the tree is the old or the new one, apart from the edit.
fn survives_edit(world: &World, expected: [&BTreeMap<String, String>; 2], place: &str, seed: u64) -> usize {
    recover_repeatedly(world, seed, |world, told| {
        let shown = world.visible_tree();
        // A file that another program put into a new directory whose name the power cut removed is kept.
        let is_kept =
            |(name, told): (&String, &String)| name.starts_with("/.lobster-") && told.contains("own");
        let bench = if shown.iter().any(is_kept) { "/.lobster-" } else { place };
        let rest = tree_without(&tree_without(&shown, place), bench);
        let is_whole = expected.iter().any(|tree| tree_without(tree, place) == rest);
        assert!(is_whole, "edited {place}: {told} {shown:#?}");
    })
}

/// The same for reverted commits, of which there are many more.
const SEEDS_BACK: u64 = 2;

/// Another program edits a file, so that the commit is reverted, and the power fails during the reversal.
#[test]
fn a_power_cut_on_the_way_back_leaves_the_old_tree_or_the_new() {
    let mut images = 0;
    for entries in all_cases() {
        let (mut before, after, set) = build_case(&entries);
        let (old, new) = (before.visible_tree(), after.visible_tree());
        for name in edited_names(&entries) {
            for at in 0.. {
                before.syncs_as_one = at % 2 == 0;
                let whole = Simulated::new(before.clone(), at, Fault::Edit(name));
                let done = commit_in(&whole, &whole, "x", &set, &Known);
                if whole.fault.get() != Fault::None {
                    break;
                }
                if done.is_ok() {
                    continue;
                }
                // Every third one, in turn, because all of them would take too long.
                for cut in (at + 1..whole.points.get()).filter(|cut| (at + cut) % 3 == 0) {
                    let disk = Simulated::cut_at(before.clone(), at, Fault::Edit(name), Some(cut));
                    commit_in(&disk, &disk, "x", &set, &Known).ok();
                    for seed in 0..SEEDS_BACK {
                        let seed = seed * 7919 + (at * 31 + cut) as u64;
                        images +=
                            survives_edit(&disk.world.borrow(), [&old, &new], &format!("/{name}"), seed);
                    }
                }
            }
        }
    }
    assert!(images >= 20_000, "only {images} power cuts");
}

/// The power fails, then another program edits a file during the recovery, and the power fails again.
#[test]
fn a_power_cut_on_the_way_back_of_a_recovery_leaves_the_old_tree_or_the_new() {
    let mut images = 0;
    for entries in all_cases() {
        let (mut before, after, set) = build_case(&entries);
        let (old, new) = (before.visible_tree(), after.visible_tree());
        for name in edited_names(&entries) {
            for first in 0.. {
                before.syncs_as_one = first % 2 == 0;
                let disk = Simulated::new(before.clone(), first, Fault::Cut);
                commit_in(&disk, &disk, "x", &set, &Known).ok();
                if !disk.is_off.get() {
                    break;
                }
                let cut = disk.world.borrow().after_power_cut(&mut Chance(first as u64));
                for at in 0.. {
                    let whole = Simulated::new(cut.clone(), at, Fault::Edit(name));
                    let done = recover_all(&whole);
                    if whole.fault.get() != Fault::None {
                        break;
                    }
                    // Commits that go forward, or were never sealed, are cut in another test.
                    if !matches!(done, Ok(Some(false))) {
                        continue;
                    }
                    let points = whole.points.get();
                    for again in (at + 1..points).filter(|again| (first + at + again) % 5 == 0) {
                        let disk = Simulated::cut_at(cut.clone(), at, Fault::Edit(name), Some(again));
                        recover_all(&disk).ok();
                        let seed = (first * 961 + at * 31 + again) as u64;
                        let place = format!("/{name}");
                        images += survives_edit(&disk.world.borrow(), [&old, &new], &place, seed);
                    }
                }
            }
        }
    }
    assert!(images >= 20_000, "only {images} power cuts");
}
