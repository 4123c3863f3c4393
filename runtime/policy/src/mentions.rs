//! Names in a command's text that may be those of files.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::analysis::Arg;
use super::dialect::Dialect;

/// Names collected from one text; beyond it the rest is not covered.
pub(crate) const MAX_MENTIONS: usize = 4_096;
/// Longer names are none that a file can have, in bytes.
pub(crate) const MAX_NAME: usize = 4096;
/// Working directories that a relative name may belong to.
const MAX_DIRECTORIES: usize = 16;

/// What a file is to the command that an approval covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileRole {
    /// It is read, or handed to a program that may read it.
    Read,
    /// A program takes its instructions from it.
    Sourced,
    /// It is run.
    Executed,
}

/// How the words after a path are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lookup {
    /// A path, relative to the working directory if it begins with no slash.
    File,
    /// A path with wildcards.
    Glob,
    /// The name of a program, looked for on the `PATH`.
    Program,
    /// A path that may also be that of a file in a directory above.
    Upward,
}

/// In which language a file holds instructions, as far as those can be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Language {
    /// Whatever its first line says.
    Unknown,
    /// That of the shell which runs it.
    Shell(Dialect),
    Make,
    Just,
    /// `package.json`, of which these scripts run; all, if none is named.
    Package(BTreeSet<String>),
    /// The scripts of an interpreter, such as `python`.
    Script(&'static str),
    /// Nothing that is run.
    Data,
}

/// A name in a command's text.
#[derive(Clone, Debug)]
pub struct Mention {
    pub name: String,
    pub lookup: Lookup,
    pub role: FileRole,
    pub language: Language,
    /// The program that gets it may write it as well, so that no read-only copy
    /// can stand in its place.
    pub may_write: bool,
    /// The values of the shell's variables where it is named.
    pub vars: BTreeMap<String, Vec<Arg>>,
}

impl Mention {
    /// A file that is run, whatever it is.
    pub fn program(name: &str) -> Self {
        Self::new(name, Lookup::File, FileRole::Executed, Language::Unknown)
    }

    /// A name that is looked for in this way and used for this.
    pub fn new(name: &str, lookup: Lookup, role: FileRole, language: Language) -> Self {
        Self { name: name.to_owned(), lookup, role, language, may_write: false, vars: BTreeMap::new() }
    }
}

/// A command that lists files, whose output may become names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    pub starts: Vec<String>,
    /// Patterns of which a file's name matches one; any, if there is none.
    pub names: Vec<String>,
    pub recursive: bool,
}

/// All that one text names.
#[derive(Debug, Default)]
pub struct Mentions {
    pub files: Vec<Mention>,
    /// Directories that relative names may belong to, the first one first.
    pub directories: Vec<String>,
    /// Files that the text is known to write.
    pub written: BTreeSet<String>,
    pub listings: Vec<Listing>,
    /// Something is executed whose name only the run will show.
    pub dynamic: bool,
    /// The words and values of the text, which that name may be one of.
    pub words: BTreeSet<String>,
    /// A shell runs what it reads, which may be what any command read before.
    pub shell_reads: bool,
    /// Something runs that is not known to do no more than read and write.
    pub runs_code: bool,
    /// Programs that are not known to run, load and read no more than the text names.
    pub loads: BTreeSet<String>,
    /// What is executed or sourced and cannot be covered, in words.
    pub not_covered: BTreeSet<String>,
}

impl Mentions {
    pub(crate) fn add(&mut self, mention: Mention) {
        if self.files.len() < MAX_MENTIONS {
            self.files.push(mention);
        } else {
            self.not_covered.insert("the rest of a very long command".to_owned());
        }
    }

    pub(crate) fn add_directory(&mut self, directory: &str) {
        if self.directories.len() < MAX_DIRECTORIES
            && !self.directories.iter().any(|known| known == directory)
        {
            self.directories.push(directory.to_owned());
        }
    }
}
