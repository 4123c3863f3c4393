//! A file system that can lose power at every operation.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::rc::Rc;

use crate::commit::Content;
use crate::commit_log::{Journal, Log};
use crate::files::{Files, Looks, RootedPath, Seen, What};
use crate::set::{ByteText, RelPath, Time};

pub(crate) type Names = BTreeMap<Vec<u8>, u64>;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    File { content: Vec<u8>, durable: Vec<u8> },
    Directory(Names),
    Link(Vec<u8>),
}

/// A change of names or modes that may not have reached the disk yet.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Name { dir: u64, name: Vec<u8>, inode: u64 },
    Remove { dir: u64, name: Vec<u8> },
    Rename { from: (u64, Vec<u8>), to: (u64, Vec<u8>) },
    Exchange { a: (u64, Vec<u8>), b: (u64, Vec<u8>) },
    Mode { inode: u64, mode: u32 },
}

impl Op {
    /// The entries that it affects; a mode has a separate entry.
    fn affected_entries(&self) -> Vec<(u64, Vec<u8>)> {
        match self {
            Self::Name { dir, name, .. } | Self::Remove { dir, name } => vec![(*dir, name.clone())],
            Self::Rename { from: a, to: b } | Self::Exchange { a, b } => vec![a.clone(), b.clone()],
            Self::Mode { inode, .. } => vec![(*inode, Vec::new())],
        }
    }
}

pub(crate) const ROOT: u64 = 1;

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) nodes: BTreeMap<u64, (Node, u32, Time)>,
    /// The durable state before the first of `ops`.
    pub(crate) base: BTreeMap<u64, (Node, u32, Time)>,
    pub(crate) ops: Vec<(Op, bool)>,
    pub(crate) next: u64,
    pub(crate) clock: i64,
    pub(crate) journal: Option<Journal>,
    /// A journal whose removal has not reached the disk.
    pub(crate) cleared: Option<Journal>,
    /// True if all files are synced together.
    pub(crate) syncs_as_one: bool,
}

impl World {
    pub(crate) fn new() -> Self {
        let nodes = BTreeMap::from([(ROOT, (Node::Directory(Names::new()), 0o755, Time(0, 0)))]);
        Self {
            base: nodes.clone(),
            nodes,
            ops: Vec::new(),
            next: 2,
            clock: 0,
            journal: None,
            cleared: None,
            syncs_as_one: false,
        }
    }

    fn find_directory(&self, path: Option<RelPath>) -> Option<u64> {
        let mut at = ROOT;
        for name in path.iter().flat_map(RelPath::names) {
            let (Node::Directory(names), ..) = self.nodes.get(&at)? else { return None };
            at = *names.get(name)?;
        }
        matches!(self.nodes.get(&at)?.0, Node::Directory(_)).then_some(at)
    }

    pub(crate) fn find_name(&self, path: &RelPath) -> Option<(u64, Vec<u8>, Option<u64>)> {
        let dir = self.find_directory(path.parent())?;
        let Node::Directory(names) = &self.nodes[&dir].0 else { return None };
        Some((dir, path.last_name().to_vec(), names.get(path.last_name()).copied()))
    }

    pub(crate) fn find_inode(&self, path: &RelPath) -> Option<u64> {
        self.find_name(path)?.2
    }

    pub(crate) fn make_node(&mut self, path: &RelPath, node: Node, mode: u32, time: Time) {
        let (dir, name, _) = self.find_name(path).unwrap();
        let inode = self.next;
        self.next += 1;
        self.nodes.insert(inode, (node.clone(), mode, time));
        // A node without a name cannot be found, so it may be kept.
        let durable = match node {
            Node::File { .. } => Node::File { content: Vec::new(), durable: Vec::new() },
            other => other,
        };
        self.base.insert(inode, (durable, mode, time));
        self.perform_op(Op::Name { dir, name, inode });
    }

    pub(crate) fn perform_op(&mut self, op: Op) {
        apply_op(&mut self.nodes, &op);
        self.ops.push((op, false));
    }

    /// Makes the names of a directory durable, and everything they depend on.
    pub(crate) fn sync_directory(&mut self, dir: u64) {
        let mut keys = BTreeSet::new();
        for (op, durable) in self.ops.iter_mut().rev() {
            let of_op = op.affected_entries();
            if *durable || of_op.iter().any(|key| key.0 == dir || keys.contains(key)) {
                *durable = true;
                keys.extend(of_op);
            }
        }
    }

    /// State after a power cut: any part of the unsynced changes, but never a later change of an entry
    /// without an earlier one.
    pub(crate) fn after_power_cut(&self, chance: &mut Chance) -> Self {
        let mut nodes = self.base.clone();
        let mut lost = BTreeSet::new();
        for (op, durable) in &self.ops {
            let keys = op.affected_entries();
            if !durable && (keys.iter().any(|key| lost.contains(key)) || chance.flip_coin()) {
                lost.extend(keys);
            } else {
                apply_op(&mut nodes, op);
            }
        }
        for (inode, (node, ..)) in &mut nodes {
            if let (
                Node::File { content, durable },
                Some((Node::File { content: now, durable: kept }, _, _)),
            ) = (node, self.nodes.get(inode))
            {
                let any = if chance.flip_coin() { kept } else { now };
                content.clone_from(any);
                durable.clone_from(any);
            }
        }
        for (inode, (_, _, time)) in &mut nodes {
            *time = self.nodes[inode].2;
        }
        let base = nodes.clone();
        let cleared = self.cleared.clone().filter(|_| chance.flip_coin());
        let journal = self.journal.clone().or(cleared);
        Self { nodes, base, ops: Vec::new(), journal, cleared: None, ..self.clone() }
    }

    /// The visible state of the tree, including the names that belong to one file.
    pub(crate) fn visible_tree(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut names_of: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        let mut walk = vec![(String::new(), ROOT)];
        while let Some((path, inode)) = walk.pop() {
            let (node, mode, _) = &self.nodes[&inode];
            let told = match node {
                Node::Directory(names) => {
                    let child = |(name, at): (&Vec<u8>, &u64)| {
                        (format!("{path}/{}", String::from_utf8_lossy(name)), *at)
                    };
                    walk.extend(names.iter().map(child));
                    "directory".to_owned()
                }
                Node::File { content, .. } => {
                    names_of.entry(inode).or_default().push(path.clone());
                    format!("file {}", String::from_utf8_lossy(content))
                }
                Node::Link(target) => format!("link {}", String::from_utf8_lossy(target)),
            };
            all.insert(path, format!("{told} {mode:o}"));
        }
        for mut names in names_of.into_values().filter(|names| names.len() > 1) {
            names.sort();
            all.insert(format!("{names:?}"), "one file".to_owned());
        }
        all
    }
}

fn apply_op(nodes: &mut BTreeMap<u64, (Node, u32, Time)>, op: &Op) {
    fn names_in(nodes: &mut BTreeMap<u64, (Node, u32, Time)>, dir: u64) -> &mut Names {
        let Some((Node::Directory(names), ..)) = nodes.get_mut(&dir) else {
            panic!("{dir} is not a directory")
        };
        names
    }
    match op {
        Op::Name { dir, name, inode } => {
            names_in(nodes, *dir).insert(name.clone(), *inode);
        }
        Op::Remove { dir, name } => {
            names_in(nodes, *dir).remove(name);
        }
        Op::Rename { from, to } => {
            if let Some(inode) = names_in(nodes, from.0).remove(&from.1) {
                names_in(nodes, to.0).insert(to.1.clone(), inode);
            }
        }
        Op::Exchange { a, b } => {
            let (first, second) =
                (names_in(nodes, a.0).get(&a.1).copied(), names_in(nodes, b.0).get(&b.1).copied());
            for (at, inode) in [(a, second), (b, first)] {
                if let Some(inode) = inode {
                    names_in(nodes, at.0).insert(at.1.clone(), inode);
                }
            }
        }
        Op::Mode { inode, mode } => nodes.get_mut(inode).unwrap().1 = *mode,
    }
}

/// A small random number generator with the same results on every machine.
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn flip_coin(&mut self) -> bool {
        self.next().is_multiple_of(2)
    }
}

/// Event at one operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    None,
    /// The power fails: no further operation works.
    Cut,
    /// This one operation fails.
    Error,
    /// Another program writes to this file.
    Edit(&'static str),
}

pub(crate) struct Simulated {
    pub(crate) world: RefCell<World>,
    left: Cell<usize>,
    pub(crate) fault: Cell<Fault>,
    pub(crate) is_off: Cell<bool>,
    /// Number of operations so far.
    pub(crate) points: Cell<usize>,
    /// Operation at which the power fails, regardless of earlier events.
    cut_at: Option<usize>,
}

impl Simulated {
    pub(crate) fn new(world: World, at: usize, fault: Fault) -> Rc<Self> {
        Self::cut_at(world, at, fault, None)
    }

    /// A file system whose power fails at an operation, with another fault before.
    pub(crate) fn cut_at(world: World, at: usize, fault: Fault, cut_at: Option<usize>) -> Rc<Self> {
        let (left, fault) = (Cell::new(at), Cell::new(fault));
        Rc::new(Self { world: world.into(), left, fault, is_off: false.into(), points: 0.into(), cut_at })
    }

    /// Called for each change of the disk.
    fn pass_point(&self) -> io::Result<()> {
        if self.is_off.get() {
            return Err(io::Error::other("the power is off"));
        }
        if self.cut_at == Some(self.points.get()) {
            self.is_off.set(true);
            return Err(io::Error::other("the power is off"));
        }
        self.points.set(self.points.get() + 1);
        if self.left.get() > 0 {
            self.left.set(self.left.get() - 1);
            return Ok(());
        }
        match self.fault.replace(Fault::None) {
            Fault::None => Ok(()),
            Fault::Cut => {
                self.is_off.set(true);
                Err(io::Error::other("the power is off"))
            }
            Fault::Error => Err(io::ErrorKind::StorageFull.into()),
            Fault::Edit(name) => {
                edit_file(&mut self.world.borrow_mut(), name);
                Ok(())
            }
        }
    }
}

const EDITED: &[u8] = b"somebody's own";

fn edit_file(world: &mut World, name: &str) {
    world.clock += 1;
    let now = Time(world.clock, 7);
    let path = rel_path(name);
    match world.find_inode(&path) {
        Some(inode) => {
            let Some((node, _, time)) = world.nodes.get_mut(&inode) else { return };
            if let Node::File { content, durable } = node {
                *content = EDITED.to_vec();
                *durable = EDITED.to_vec();
                *time = now;
            }
        }
        None if world.find_name(&path).is_some() => {
            let node = Node::File { content: EDITED.to_vec(), durable: EDITED.to_vec() };
            world.make_node(&path, node, 0o644, now);
        }
        None => {}
    }
}

impl Files for Rc<Simulated> {
    fn read_status(&self, place: &RootedPath) -> io::Result<Option<Seen>> {
        if self.is_off.get() {
            return Err(io::Error::other("the power is off"));
        }
        let world = self.world.borrow();
        let Some(inode) = world.find_inode(&place.path) else { return Ok(None) };
        let (node, mode, modified) = &world.nodes[&inode];
        let (what, size) = match node {
            Node::File { content, .. } => (What::File, content.len() as u64),
            Node::Directory(_) => (What::Directory, 0),
            Node::Link(target) => (What::Link, target.len() as u64),
        };
        let count = |node: &(Node, u32, Time)| match &node.0 {
            Node::Directory(names) => names.values().filter(|at| **at == inode).count() as u64,
            Node::File { .. } | Node::Link(_) => 0,
        };
        let names = world.nodes.values().map(count).sum();
        Ok(Some(Seen { what, inode, size, modified: *modified, mode: *mode, names }))
    }

    fn read_file<'a>(&'a self, place: &RootedPath) -> io::Result<Box<dyn Read + 'a>> {
        let world = self.world.borrow();
        match world.find_inode(&place.path).map(|inode| &world.nodes[&inode].0) {
            Some(Node::File { content, .. }) => Ok(Box::new(io::Cursor::new(content.clone()))),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn read_link(&self, place: &RootedPath) -> io::Result<ByteText> {
        let world = self.world.borrow();
        match world.find_inode(&place.path).map(|inode| &world.nodes[&inode].0) {
            Some(Node::Link(target)) => Ok(target.clone().into()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list_names(&self, place: &RootedPath) -> io::Result<Vec<Vec<u8>>> {
        let world = self.world.borrow();
        match world.find_inode(&place.path).map(|inode| &world.nodes[&inode].0) {
            Some(Node::Directory(names)) => Ok(names.keys().cloned().collect()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn make_directory(&self, place: &RootedPath, mode: u32) -> io::Result<()> {
        self.pass_point()?;
        self.world.borrow_mut().make_node(&place.path, Node::Directory(Names::new()), mode, Time(0, 0));
        Ok(())
    }

    fn make_file(
        &self,
        place: &RootedPath,
        content: &mut Content<'_>,
        look: &Looks<'_>,
        sync: bool,
    ) -> io::Result<()> {
        self.pass_point()?;
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes)?;
        let durable = if sync { bytes.clone() } else { Vec::new() };
        let mut world = self.world.borrow_mut();
        world.clock += 1;
        let time = look.modified.unwrap_or(Time(world.clock, 0));
        world.make_node(&place.path, Node::File { content: bytes, durable }, look.mode, time);
        Ok(())
    }

    fn make_link(&self, place: &RootedPath, target: &ByteText, modified: Option<Time>) -> io::Result<()> {
        self.pass_point()?;
        let node = Node::Link(target.as_bytes().to_vec());
        self.world.borrow_mut().make_node(&place.path, node, 0o777, modified.unwrap_or(Time(0, 0)));
        Ok(())
    }

    fn make_name(&self, of: &RootedPath, place: &RootedPath) -> io::Result<()> {
        self.pass_point()?;
        let mut world = self.world.borrow_mut();
        let inode = world.find_inode(&of.path).ok_or(io::ErrorKind::NotFound)?;
        let (dir, name, _) = world.find_name(&place.path).ok_or(io::ErrorKind::NotFound)?;
        world.perform_op(Op::Name { dir, name, inode });
        Ok(())
    }

    fn rename(&self, from: &RootedPath, to: &RootedPath) -> io::Result<()> {
        self.pass_point()?;
        let mut world = self.world.borrow_mut();
        let (from, to) = (world.find_name(&from.path), world.find_name(&to.path));
        // Another program may have put a file in place of a directory.
        let ((dir, name, found), (dir2, name2, taken)) = from.zip(to).ok_or(io::ErrorKind::NotADirectory)?;
        if taken.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        found.ok_or(io::ErrorKind::NotFound)?;
        world.perform_op(Op::Rename { from: (dir, name), to: (dir2, name2) });
        Ok(())
    }

    fn exchange(&self, a: &RootedPath, b: &RootedPath) -> io::Result<()> {
        self.pass_point()?;
        let mut world = self.world.borrow_mut();
        let (a, b) = (world.find_name(&a.path), world.find_name(&b.path));
        let ((dir, name, one), (dir2, name2, other)) = a.zip(b).ok_or(io::ErrorKind::NotFound)?;
        one.zip(other).ok_or(io::ErrorKind::NotFound)?;
        world.perform_op(Op::Exchange { a: (dir, name), b: (dir2, name2) });
        Ok(())
    }

    fn set_mode(&self, place: &RootedPath, mode: u32, sync: bool) -> io::Result<()> {
        self.pass_point()?;
        let mut world = self.world.borrow_mut();
        let inode = world.find_inode(&place.path).ok_or(io::ErrorKind::NotFound)?;
        world.perform_op(Op::Mode { inode, mode });
        if sync {
            world.sync_directory(inode);
        }
        Ok(())
    }

    fn rewrite_file(&self, from: &RootedPath, to: &RootedPath) -> io::Result<()> {
        self.pass_point()?;
        let (bytes, mode, time, inode) = {
            let world = self.world.borrow();
            let find = |place: &RootedPath| world.find_inode(&place.path).ok_or(io::ErrorKind::NotFound);
            let (node, mode, time) = &world.nodes[&find(from)?];
            let Node::File { content, .. } = node else { return Err(io::ErrorKind::NotFound.into()) };
            (content.clone(), *mode, *time, find(to)?)
        };
        for part in [&bytes[..0], &bytes[..bytes.len() / 2], &bytes[..]] {
            if let Some((Node::File { content, .. }, ..)) = self.world.borrow_mut().nodes.get_mut(&inode) {
                *content = part.to_vec();
            }
            self.pass_point()?;
        }
        let mut world = self.world.borrow_mut();
        world.perform_op(Op::Mode { inode, mode });
        world.sync_directory(inode);
        if let Some((node, _, old_time)) = world.nodes.get_mut(&inode) {
            *node = Node::File { content: bytes.clone(), durable: bytes };
            *old_time = time;
        }
        Ok(())
    }

    fn remove_file(&self, place: &RootedPath) -> io::Result<()> {
        self.pass_point()?;
        let mut world = self.world.borrow_mut();
        let (dir, name, found) = world.find_name(&place.path).ok_or(io::ErrorKind::NotFound)?;
        found.ok_or(io::ErrorKind::NotFound)?;
        world.perform_op(Op::Remove { dir, name });
        Ok(())
    }

    fn remove_directory(&self, place: &RootedPath) -> io::Result<()> {
        if !self.list_names(place)?.is_empty() {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        self.remove_file(place)
    }

    fn syncs_as_one(&self, _: usize, _: usize) -> bool {
        self.world.borrow().syncs_as_one
    }

    fn sync_contents(&self, _: usize) -> io::Result<()> {
        self.pass_point()?;
        let mut world = self.world.borrow_mut();
        for (node, ..) in world.nodes.values_mut() {
            if let Node::File { content, durable } = node {
                durable.clone_from(content);
            }
        }
        for (op, durable) in &mut world.ops {
            *durable |= matches!(op, Op::Mode { .. });
        }
        Ok(())
    }

    fn sync_directory(&self, _: usize, path: Option<&RelPath>) -> io::Result<()> {
        self.pass_point()?;
        let mut world = self.world.borrow_mut();
        let dir = world.find_directory(path.cloned()).ok_or(io::ErrorKind::NotFound)?;
        world.sync_directory(dir);
        Ok(())
    }
}

impl Log for Rc<Simulated> {
    fn write_journal(&self, journal: &Journal) -> io::Result<()> {
        self.pass_point()?;
        let mut world = self.world.borrow_mut();
        (world.journal, world.cleared) = (Some(journal.clone()), None);
        drop(world);
        self.pass_point()
    }

    fn remove_journal(&self) -> io::Result<()> {
        self.pass_point()?;
        let mut world = self.world.borrow_mut();
        world.cleared = world.journal.take();
        drop(world);
        self.pass_point()
    }
}

pub(crate) fn rel_path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}
