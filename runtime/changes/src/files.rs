//! File system operations of a commit. They are few, so that a simulated file system can fail at each of
//! them.

use std::io::{self, Read};

use crate::acl::Acl;
use crate::commit::Content;
use crate::set::{ByteText, RelPath, Time};
use serde::{Deserialize, Serialize};

/// Status of the file at a path, without following links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) what: What,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) modified: Time,
    /// Permission bits.
    pub(crate) mode: u32,
    /// Number of its names.
    pub(crate) names: u64,
}

impl Seen {
    /// True if this is the same file as before, and no program has written to it since.
    pub(crate) fn is_untouched(&self, before: &Self) -> bool {
        let same = (self.what, self.inode, self.mode) == (before.what, before.inode, before.mode);
        same && (self.what == What::Directory || (self.size, self.modified) == (before.size, before.modified))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    File,
    Directory,
    Link,
    /// A device, pipe or socket.
    Other,
}

/// A path below one of the roots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct RootedPath {
    pub(crate) root: usize,
    pub(crate) path: RelPath,
}

/// The directories of a change set. Operations never follow a link and never leave a root.
pub(crate) trait Files {
    /// Binds this directory: later operations in it use the present directory, without a look-up.
    fn hold_directory(&self, _: &RootedPath) {}
    /// Status of a place; `None` if nothing is there, or if the path above it is not a directory. A link is
    /// not a directory.
    fn read_status(&self, place: &RootedPath) -> io::Result<Option<Seen>>;
    fn read_file<'a>(&'a self, place: &RootedPath) -> io::Result<Box<dyn Read + 'a>>;
    fn read_link(&self, place: &RootedPath) -> io::Result<ByteText>;
    /// Names in a directory.
    fn list_names(&self, place: &RootedPath) -> io::Result<Vec<Vec<u8>>>;
    fn make_directory(&self, place: &RootedPath, mode: u32) -> io::Result<()>;
    /// Sets the access control lists of a new directory, and its mode again.
    fn give_lists(&self, _: &RootedPath, _: &Acl, _mode: u32) -> io::Result<()> {
        Ok(())
    }
    /// Makes a new file, durably if `sync` is set.
    fn make_file(
        &self,
        place: &RootedPath,
        content: &mut Content<'_>,
        look: &Looks<'_>,
        sync: bool,
    ) -> io::Result<()>;
    fn make_link(&self, place: &RootedPath, target: &ByteText, modified: Option<Time>) -> io::Result<()>;
    /// Adds a name to a file.
    fn make_name(&self, of: &RootedPath, place: &RootedPath) -> io::Result<()>;
    /// Fails with `AlreadyExists` and never replaces a file.
    fn rename(&self, from: &RootedPath, to: &RootedPath) -> io::Result<()>;
    /// Exchanges two places in one operation; `Unsupported` if the file system cannot do that.
    fn exchange(&self, a: &RootedPath, b: &RootedPath) -> io::Result<()>;
    /// Durable on return if `sync` is set.
    fn set_mode(&self, place: &RootedPath, mode: u32, sync: bool) -> io::Result<()>;
    /// Copies content, mode and time of one file to another one, which keeps its identity, and syncs it.
    fn rewrite_file(&self, from: &RootedPath, to: &RootedPath) -> io::Result<()>;
    fn remove_file(&self, place: &RootedPath) -> io::Result<()>;
    fn remove_directory(&self, place: &RootedPath) -> io::Result<()>;
    /// True if one sync is to make everything below a root durable after this many steps; otherwise each file
    /// is synced.
    fn syncs_as_one(&self, root: usize, steps: usize) -> bool;
    /// Syncs all contents and modes below a root.
    fn sync_contents(&self, root: usize) -> io::Result<()>;
    /// Syncs the names in a directory, or in the root without a place.
    fn sync_directory(&self, root: usize, place: Option<&RelPath>) -> io::Result<()>;
}

/// Properties of a new file besides its content.
pub(crate) struct Looks<'a> {
    pub(crate) mode: u32,
    pub(crate) modified: Option<Time>,
    /// Gives it the owner and the attributes of this file.
    pub(crate) like: Option<&'a RootedPath>,
    /// Otherwise gives it these access control lists.
    pub(crate) acl: Option<&'a Acl>,
}
