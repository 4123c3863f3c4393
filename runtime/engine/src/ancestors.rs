//! The ancestors of this process, as the kernel lists them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// This process, or one of its ancestors.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) program: String,
    parent: u32,
    session: u32,
}

/// Most ancestors that are read; a longer chain is a loop in a damaged listing.
const MAX_DEPTH: usize = 256;

impl Process {
    fn read_stat(pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program's name may contain blanks and parentheses.
        let (head, tail) = text.rsplit_once(") ")?;
        let program = head.split_once('(')?.1.to_owned();
        // State, parent, process group, session.
        let mut fields = tail.split(' ').skip(1);
        let parent = fields.next()?.parse().ok()?;
        let session = fields.nth(1)?.parse().ok()?;
        Some(Self { pid, program, parent, session })
    }

    /// A variable of the environment with which the process was started, if this user may read it.
    pub(crate) fn env_variable(&self, name: &str) -> Option<OsString> {
        let bytes = std::fs::read(format!("/proc/{}/environ", self.pid)).ok()?;
        let mut entries = bytes.split(|byte| *byte == 0);
        let value = entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        Some(OsStr::from_bytes(value).to_owned())
    }
}

/// This process's parent, its parent, and so on.
pub(crate) fn ancestor_processes() -> impl Iterator<Item = Process> {
    let parent = Process::read_stat(std::process::id()).and_then(|own| Process::read_stat(own.parent));
    std::iter::successors(parent, |process| Process::read_stat(process.parent)).take(MAX_DEPTH)
}

/// The ancestors in this process's terminal session, including its leader.
pub(crate) fn ancestors_in_session() -> impl Iterator<Item = Process> {
    let session = Process::read_stat(std::process::id()).map(|own| own.session);
    ancestor_processes().take_while(move |process| Some(process.session) == session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_ends_at_the_first_process() {
        let all: Vec<Process> = ancestor_processes().collect();
        assert!(!all.is_empty() && all.len() < MAX_DEPTH, "{all:?}");
        assert_eq!(all.last().map(|process| process.parent), Some(0), "{all:?}");
        let in_session = ancestors_in_session().count();
        assert!(in_session <= all.len());
        assert!(all[0].env_variable("PATH").is_some(), "the test's parent has a PATH");
    }
}
