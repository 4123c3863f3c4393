//! Changes of files as data.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::acl::Acl;
use lobster_base::digest::Digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Version of the format that this program writes.
const VERSION: u32 = 1;

/// Bits that run a program with the rights of its owner or group. Change sets never contain them.
const SET_ID: u32 = 0o6000;

/// Bytes that are nearly always text: a string in JSON, or `{"hex": …}`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteText(Vec<u8>);

impl ByteText {
    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl ByteText {
    /// Relative path of a directory inside another one; both are real paths.
    #[must_use]
    pub fn path_in(&self, outer: &Self) -> Option<RelPath> {
        let rest = self.0.strip_prefix(outer.0.as_slice())?;
        let rest = if outer.0.ends_with(b"/") { rest } else { rest.strip_prefix(b"/")? };
        RelPath::new(rest).ok()
    }
}

impl From<Vec<u8>> for ByteText {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for ByteText {
    /// Always on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for char in chunk.valid().chars() {
                if char.is_control() { write!(f, "{}", char.escape_default())? } else { write!(f, "{char}")? }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for ByteText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for ByteText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                Hex { hex: self.0.iter().map(|byte| format!("{byte:02x}")).collect() }.serialize(serializer)
            }
        }
    }
}

impl<'de> Deserialize<'de> for ByteText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Text(String),
            Bytes(Hex),
        }
        match Form::deserialize(deserializer)? {
            Form::Text(text) => Ok(Self(text.into_bytes())),
            Form::Bytes(Hex { hex }) => {
                let digits: Option<Vec<u32>> = hex.chars().map(|digit| digit.to_digit(16)).collect();
                let digits = digits.filter(|digits| digits.len().is_multiple_of(2));
                let digits = digits.ok_or_else(|| serde::de::Error::custom("not pairs of hex digits"))?;
                let byte = |pair: &[u32]| u8::try_from(pair[0] * 16 + pair[1]).unwrap_or_default();
                Ok(Self(digits.chunks_exact(2).map(byte).collect()))
            }
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hex {
    hex: String,
}

/// A path below a root: names separated by single slashes, none of them `.` or `..`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "ByteText", into = "ByteText")]
pub struct RelPath(ByteText);

impl RelPath {
    /// Checks that the path cannot lead out of its root.
    ///
    /// # Errors
    /// If a name is empty, `.`, `..`, or contains a NUL byte.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, BadChangeSet> {
        let text = ByteText(bytes.into());
        let is_name = |name: &[u8]| !name.is_empty() && name != b"." && name != b".." && !name.contains(&0);
        if text.0.split(|byte| *byte == b'/').all(is_name) {
            Ok(Self(text))
        } else {
            Err(BadChangeSet::Path { path: text })
        }
    }

    /// The bytes of the path.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.0
    }

    /// The directory above it, unless that is the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let at = self.as_bytes().iter().rposition(|byte| *byte == b'/')?;
        Some(Self(ByteText(self.as_bytes()[..at].to_vec())))
    }

    /// The last name.
    #[must_use]
    pub fn last_name(&self) -> &[u8] {
        self.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    /// The names, starting at the root.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.as_bytes().split(|byte| *byte == b'/')
    }

    /// The directories above it, the nearest first, without the root.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        std::iter::successors(self.parent(), Self::parent)
    }

    /// The path of a name that a directory lists, or the root itself.
    pub(crate) fn below(dir: Option<&Self>, name: &[u8]) -> Self {
        dir.map_or_else(|| Self(ByteText(name.to_vec())), |dir| dir.join(name))
    }

    /// The same path, relative to a directory that contains its root.
    pub(crate) fn prefixed_with(&self, above: &Self) -> Self {
        above.join(self.as_bytes())
    }

    /// The same path, relative to a directory above it.
    pub(crate) fn from(&self, above: &Self) -> Option<Self> {
        let rest = self.as_bytes().strip_prefix(above.as_bytes())?.strip_prefix(b"/")?;
        Some(Self(ByteText(rest.to_vec())))
    }

    /// The path with one more name, as a directory lists it.
    pub(crate) fn join(&self, name: &[u8]) -> Self {
        Self(ByteText([self.as_bytes(), b"/", name].concat()))
    }

    pub(crate) fn depth(&self) -> usize {
        self.names().count()
    }
}

impl TryFrom<ByteText> for RelPath {
    type Error = BadChangeSet;

    fn try_from(text: ByteText) -> Result<Self, BadChangeSet> {
        Self::new(text.0)
    }
}

impl From<RelPath> for ByteText {
    fn from(path: RelPath) -> Self {
        path.0
    }
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A time of a file: seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Time(pub i64, pub u32);

/// State of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Entry {
    /// A regular file.
    File {
        /// Digest of its content.
        digest: Digest,
        /// Size of its content in bytes.
        size: u64,
        /// Permission bits.
        mode: u32,
        /// Time of the last change of its content. Set by a commit, never compared.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        modified: Option<Time>,
        /// The file of which it is another name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        same_as: Option<RelPath>,
        /// Its access control list. Set on a new file; a replaced file keeps its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        acl: Option<Box<Acl>>,
    },
    /// A directory; its entries have paths of their own.
    Directory {
        /// Permission bits.
        mode: u32,
        /// Its access control lists. Set on a new directory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        acl: Option<Box<Acl>>,
    },
    /// A symbolic link.
    Link {
        /// Its target, unchanged.
        target: ByteText,
        /// Time when it was made, or the time that was set. Set by a commit, never compared.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        modified: Option<Time>,
    },
}

impl Entry {
    /// Permission bits; a link has all of them.
    #[must_use]
    pub fn mode(&self) -> u32 {
        match self {
            Self::File { mode, .. } | Self::Directory { mode, .. } => *mode,
            Self::Link { .. } => 0o777,
        }
    }

    /// True if both are the same to a reader, regardless of times and other names.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::File { digest, size, mode, .. },
                Self::File { digest: digest2, size: size2, mode: mode2, .. },
            ) => (digest, size, mode) == (digest2, size2, mode2),
            (Self::Directory { mode, .. }, Self::Directory { mode: mode2, .. }) => mode == mode2,
            (Self::Link { target, .. }, Self::Link { target: target2, .. }) => target == target2,
            (Self::File { .. } | Self::Directory { .. } | Self::Link { .. }, _) => false,
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self, Self::Directory { .. })
    }
}

/// Kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// A new path.
    Create,
    /// Another content, or another kind of file.
    Modify,
    /// A removed path.
    Delete,
    /// Only other permission bits.
    Mode,
    /// A new symbolic link, another target, or another name of a file.
    Link,
}

impl ChangeKind {
    /// The kind of change in one word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "new",
            Self::Modify => "modified",
            Self::Delete => "deleted",
            Self::Mode => "mode",
            Self::Link => "link",
        }
    }
}

/// Change of one path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The path below the root.
    pub path: RelPath,
    /// State before the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Entry>,
    /// State after the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Entry>,
    /// Inode of a file that had other names when the step began. It keeps them, because it is rewritten in
    /// place. A file that was linked here later belongs to another program and is never written to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared: Option<u64>,
}

impl Change {
    /// The same change, relative to a directory that contains the root.
    pub(crate) fn prefixed_with(&self, above: &RelPath) -> Self {
        self.map_paths(|path| Some(path.prefixed_with(above))).unwrap_or_else(|| self.clone())
    }

    /// The same change, relative to a directory of the root, if it is inside that.
    pub(crate) fn from(&self, above: &RelPath) -> Option<Self> {
        self.map_paths(|path| path.from(above))
    }

    fn map_paths(&self, to: impl Fn(&RelPath) -> Option<RelPath>) -> Option<Self> {
        let mut mapped = Self { path: to(&self.path)?, ..self.clone() };
        for entry in [&mut mapped.before, &mut mapped.after] {
            if let Some(Entry::File { same_as, .. }) = entry {
                *same_as = same_as.as_ref().and_then(&to);
            }
        }
        Some(mapped)
    }

    /// True if the states before and after differ.
    pub(crate) fn is_effective(&self) -> bool {
        match (&self.before, &self.after) {
            (None, None) => false,
            (Some(before), Some(after)) => !before.is_same(after),
            (None, Some(_)) | (Some(_), None) => true,
        }
    }

    /// Kind of the change.
    #[must_use]
    pub fn kind(&self) -> ChangeKind {
        match (&self.before, &self.after) {
            (_, None) => ChangeKind::Delete,
            (_, Some(Entry::Link { .. } | Entry::File { same_as: Some(_), .. })) => ChangeKind::Link,
            (None, Some(_)) => ChangeKind::Create,
            (Some(Entry::Directory { .. }), Some(Entry::Directory { .. })) => ChangeKind::Mode,
            (Some(Entry::File { digest, .. }), Some(Entry::File { digest: after, .. }))
                if digest == after =>
            {
                ChangeKind::Mode
            }
            (Some(_), Some(_)) => ChangeKind::Modify,
        }
    }
}

/// Changes below one directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RootChanges {
    /// The directory, by its real path.
    pub root: ByteText,
    /// Sorted by path, each once.
    pub changes: Vec<Change>,
}

/// Changes of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeSet {
    version: u32,
    /// Sorted by directory. None is inside another.
    pub roots: Vec<RootChanges>,
}

impl ChangeSet {
    /// Makes a change set with sorted paths.
    #[must_use]
    pub fn new(mut roots: Vec<RootChanges>) -> Self {
        roots.retain(|root| !root.changes.is_empty());
        for root in &mut roots {
            root.changes.sort_by(|a, b| a.path.cmp(&b.path));
        }
        Self { version: VERSION, roots }
    }

    /// The set with its directories only.
    pub(crate) fn without_changes(&self) -> Self {
        let bare = |of_root: &RootChanges| RootChanges { root: of_root.root.clone(), changes: Vec::new() };
        Self { version: self.version, roots: self.roots.iter().map(bare).collect() }
    }

    /// True if nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.roots.iter().all(|root| root.changes.is_empty())
    }

    /// True if a directory of this set equals, contains or is inside a directory of the other set.
    pub(crate) fn overlaps_with(&self, other: &Self) -> bool {
        let meet = |a: &ByteText, b: &ByteText| a == b || a.path_in(b).is_some() || b.path_in(a).is_some();
        self.roots.iter().any(|own| other.roots.iter().any(|other| meet(&own.root, &other.root)))
    }

    /// True if this set has all roots of another one.
    pub(crate) fn has_roots_of(&self, other: &Self) -> bool {
        other.roots.iter().all(|other| self.roots.iter().any(|own| own.root == other.root))
    }

    /// All changes, with their roots.
    pub fn changes(&self) -> impl Iterator<Item = (&ByteText, &Change)> {
        self.roots.iter().flat_map(|root| root.changes.iter().map(move |change| (&root.root, change)))
    }

    /// All contents in the set, before and after.
    #[must_use]
    pub fn content_digests(&self) -> BTreeSet<Digest> {
        let entries = self.changes().flat_map(|(_, change)| [&change.before, &change.after]);
        let digest = |entry: &Entry| match entry {
            Entry::File { digest, .. } => Some(*digest),
            Entry::Directory { .. } | Entry::Link { .. } => None,
        };
        entries.flatten().filter_map(digest).collect()
    }

    /// The change set that reverts these changes.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let swapped = |change: &Change| Change {
            path: change.path.clone(),
            before: change.after.clone(),
            after: change.before.clone(),
            shared: change.shared,
        };
        let roots = self.roots.iter().map(|root| RootChanges {
            root: root.root.clone(),
            changes: root.changes.iter().map(swapped).collect(),
        });
        Self::new(roots.collect())
    }

    /// The combination of several change sets, one after the other. A directory inside another one becomes
    /// part of that.
    #[must_use]
    pub fn compose(sets: &[&Self]) -> Self {
        let all: BTreeSet<&ByteText> =
            sets.iter().flat_map(|set| &set.roots).map(|root| &root.root).collect();
        let outermost = |root: &ByteText| {
            let outer = all.iter().find(|outer| root.path_in(outer).is_some());
            outer.map_or((root.clone(), None), |outer| ((**outer).clone(), root.path_in(outer)))
        };
        let mut roots: BTreeMap<ByteText, BTreeMap<RelPath, Change>> = BTreeMap::new();
        for (root, change) in sets.iter().flat_map(|set| set.changes()) {
            let (root, above) = outermost(root);
            let change = above.map_or_else(|| change.clone(), |above| change.prefixed_with(&above));
            let of_root = roots.entry(root).or_default();
            match of_root.get_mut(&change.path) {
                Some(first) => {
                    first.after = change.after;
                    first.shared = first.shared.or(change.shared);
                }
                None => {
                    of_root.insert(change.path.clone(), change);
                }
            }
        }
        roots.values_mut().for_each(unite_names);
        let roots = roots.into_iter().map(|(root, changes)| RootChanges {
            root,
            changes: changes.into_values().filter(Change::is_effective).collect(),
        });
        Self::new(roots.collect())
    }

    /// Checks conditions that the types do not ensure, because a change set may come from a file.
    ///
    /// # Errors
    /// If a root is not an absolute path, a path occurs twice, or a mode would give rights.
    pub fn check_valid(&self) -> Result<(), BadChangeSet> {
        if self.version != VERSION {
            return Err(BadChangeSet::Version { version: self.version });
        }
        for root in &self.roots {
            let path = root.root.as_bytes();
            if path.first() != Some(&b'/') || path.contains(&0) {
                return Err(BadChangeSet::Path { path: root.root.clone() });
            }
            for pair in root.changes.windows(2) {
                if pair[0].path >= pair[1].path {
                    return Err(BadChangeSet::Order { path: pair[1].path.clone() });
                }
            }
            for change in &root.changes {
                check_change(change)?;
            }
        }
        Ok(())
    }
}

/// True if a change removes or replaces a directory above the path.
pub(crate) fn is_cut_off(path: &RelPath, changes: &BTreeMap<&RelPath, &Change>) -> bool {
    let ends = |above: RelPath| {
        changes.get(&above).is_some_and(|change| !change.after.as_ref().is_some_and(Entry::is_directory))
    };
    path.ancestors().any(ends)
}

/// Gives all names of a file the same content, because a later step may have changed it under one name.
fn unite_names(changes: &mut BTreeMap<RelPath, Change>) {
    let content = |changes: &BTreeMap<RelPath, Change>, of: &RelPath| {
        changes.get(of).and_then(|change| change.after.clone())
    };
    let names: Vec<(RelPath, RelPath)> = changes
        .iter()
        .filter_map(|(path, change)| match &change.after {
            Some(Entry::File { same_as: Some(of), .. }) => Some((path.clone(), of.clone())),
            _ => None,
        })
        .collect();
    for (path, of) in names {
        let first = content(changes, &of);
        let Some(change) = changes.get_mut(&path) else { continue };
        match first {
            Some(Entry::File { digest, size, mode, modified, acl, .. }) => {
                change.after = Some(Entry::File { digest, size, mode, modified, same_as: Some(of), acl });
            }
            // The file of which it was another name is gone, or existed all the time.
            Some(Entry::Directory { .. } | Entry::Link { .. }) | None => {
                let is_gone = changes.get(&of).is_some();
                if let (true, Some(Change { after: Some(Entry::File { same_as, .. }), .. })) =
                    (is_gone, changes.get_mut(&path))
                {
                    *same_as = None;
                }
            }
        }
    }
}

fn check_change(change: &Change) -> Result<(), BadChangeSet> {
    let path = || change.path.clone();
    if change.before.is_none() && change.after.is_none() {
        return Err(BadChangeSet::Empty { path: path() });
    }
    let (before, after) = (change.before.as_ref().map_or(0, Entry::mode), change.after.as_ref());
    let Some(after) = after else { return Ok(()) };
    // Directories inherit a group from the one above; files must not get another user's rights.
    let gives_rights = !after.is_directory() && after.mode() & SET_ID & !before != 0;
    if gives_rights || after.mode() & !0o7777 != 0 {
        return Err(BadChangeSet::Mode { path: path(), mode: after.mode() });
    }
    Ok(())
}

/// Reason why a change set is invalid.
#[derive(Debug, thiserror::Error)]
pub enum BadChangeSet {
    /// A later version of lobster wrote it.
    #[error("change set version {version} is not known; it was written by another version of lobster")]
    Version {
        /// The version.
        version: u32,
    },
    /// A path could lead out of its root.
    #[error("a change set names the path \"{path}\", which is not below its directory")]
    Path {
        /// The path.
        path: ByteText,
    },
    /// A path occurs twice or in the wrong order.
    #[error("a change set names {path} twice or in the wrong order")]
    Order {
        /// The path.
        path: RelPath,
    },
    /// A path has no state before or after.
    #[error("a change set has no state for {path}")]
    Empty {
        /// The path.
        path: RelPath,
    },
    /// Set-user-id, or an invalid mode.
    #[error(
        "{path} would get mode {mode:04o}: files that run with their owner's rights are not committed; \
         remove the bit in the step (chmod u-s,g-s)"
    )]
    Mode {
        /// The path.
        path: RelPath,
        /// The mode.
        mode: u32,
    },
}
