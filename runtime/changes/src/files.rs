//! What a commit asks of a file system: few operations, so that a simulated one can
//! stop at each of them.

use std::io::{self, Read};

use crate::acl::Acl;
use crate::commit::Content;
use crate::set::{ByteText, RelPath, Time};
use serde::{Deserialize, Serialize};

/// What is seen at a path, not behind a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) what: What,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) modified: Time,
    /// Permission bits.
    pub(crate) mode: u32,
    /// How many names it has.
    pub(crate) names: u64,
}

impl Seen {
    /// Whether this is the thing seen before, and nobody wrote to it since.
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

/// A place below one of the roots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Place {
    pub(crate) root: usize,
    pub(crate) path: RelPath,
}

/// The directories that a change set is about. No operation follows a link, and none
/// leaves a root.
pub(crate) trait Files {
    /// From now on what is done in this directory is done in the very one that lies there now, and needs no look-up.
    fn hold(&self, _: &Place) {}
    /// `None` when nothing is there, or what is above it is not a directory: a link is none either.
    fn look(&self, place: &Place) -> io::Result<Option<Seen>>;
    fn read<'a>(&'a self, place: &Place) -> io::Result<Box<dyn Read + 'a>>;
    fn read_link(&self, place: &Place) -> io::Result<ByteText>;
    /// The names in a directory.
    fn list(&self, place: &Place) -> io::Result<Vec<Vec<u8>>>;
    fn make_directory(&self, place: &Place, mode: u32) -> io::Result<()>;
    /// Gives a new directory its access control lists. Its mode is set again.
    fn give_lists(&self, _: &Place, _: &Acl, _mode: u32) -> io::Result<()> {
        Ok(())
    }
    /// A new file, durable if `sync` says so.
    fn make_file(
        &self,
        place: &Place,
        content: &mut Content<'_>,
        look: &Looks<'_>,
        sync: bool,
    ) -> io::Result<()>;
    fn make_link(&self, place: &Place, target: &ByteText, modified: Option<Time>) -> io::Result<()>;
    /// Another name of a file.
    fn make_name(&self, of: &Place, place: &Place) -> io::Result<()>;
    /// Fails with `AlreadyExists` rather than replacing anything.
    fn rename(&self, from: &Place, to: &Place) -> io::Result<()>;
    /// Both at once; `Unsupported` where the file system cannot.
    fn exchange(&self, a: &Place, b: &Place) -> io::Result<()>;
    /// Durable when it returns, if `sync` says so.
    fn set_mode(&self, place: &Place, mode: u32, sync: bool) -> io::Result<()>;
    /// Puts the content, mode and time of one file into another, which stays the same file, and syncs it.
    fn rewrite(&self, from: &Place, to: &Place) -> io::Result<()>;
    fn remove_file(&self, place: &Place) -> io::Result<()>;
    fn remove_directory(&self, place: &Place) -> io::Result<()>;
    /// Whether one sync is to make all below a root durable after so many steps; else each file is synced.
    fn syncs_as_one(&self, root: usize, steps: usize) -> bool;
    /// All contents and modes below a root.
    fn sync_contents(&self, root: usize) -> io::Result<()>;
    /// The names in a directory; of the root without a place.
    fn sync_directory(&self, root: usize, place: Option<&RelPath>) -> io::Result<()>;
}

/// What a new file has besides its content.
pub(crate) struct Looks<'a> {
    pub(crate) mode: u32,
    pub(crate) modified: Option<Time>,
    /// It has the owner and the attributes of this one.
    pub(crate) like: Option<&'a Place>,
    /// Else it has these access control lists.
    pub(crate) acl: Option<&'a Acl>,
}
