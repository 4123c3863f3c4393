//! The files that an approval of a command covers, as they are on the disk:
//! which of the names in its text are files, what those run in turn, and what
//! is in them.
//!
//! Nothing here decides anything. What is not found is said in the question;
//! what is found is bound to the answer, and [`held`] sees to it that nothing
//! else runs.

mod copies;
mod inside;
mod name_watch;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

pub(crate) use copies::Held;

use self::inside::Inside;
use lobster_base::digest::Digest;
use lobster_base::glob::glob_match;
use lobster_base::regular_file;
use lobster_policy::{
    BoundFile, Command, DecisionEnv, Dialect, FileRole, Language, Listing, Lookup, Mention, Mentions, Policy,
    Proposal, Roots, Surroundings,
};

/// Files that one approval covers: more cannot be shown to anybody.
const MAX_FILES: usize = 256;
/// Files inside files that are still followed.
const MAX_DEPTH: usize = 8;
/// Bytes of one file that are read for what it runs.
const MAX_SCRIPT: u64 = 256 << 10;
/// Texts that are analysed for one approval.
const MAX_TEXTS: usize = 512;
/// Entries of directories that are looked at for one approval.
const MAX_ENTRIES: usize = 20_000;
/// Bytes that are read for the digests of one approval.
const MAX_BYTES: u64 = 4 << 30;

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Covered {
    pub(crate) files: Vec<BoundFile>,
    /// What is executed or sourced and is not covered, in words.
    pub(crate) not_covered: Vec<String>,
}

/// Why the files of an approval cannot be told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Uncovered {
    /// Nobody can approve what nobody can read.
    #[error("cannot read {path}, which the command would run: {source}; make it readable for lobster")]
    Unreadable { path: String, source: io::Error },
    /// It is being written just now.
    #[error("{path} changes while it is being looked at; try again when nothing writes it")]
    Unsteady { path: String },
}

/// Where and how the command would run.
pub(crate) struct Place<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) env: &'a DecisionEnv,
    /// The program that is started first, which may be a shell.
    pub(crate) starts: Option<&'a str>,
    /// The `PATH` that the command gets.
    pub(crate) path: Option<String>,
}

/// Finds the files that `proposal` would execute, source or read.
pub(crate) fn covered(place: &Place<'_>, proposal: &Proposal) -> Result<Covered, Uncovered> {
    let cwd = proposal.cwd.clone().unwrap_or_else(|| place.env.workspace.clone());
    let mut search = Search::new(place);
    let mut mentions = place.policy.mentions(&proposal.command, &cwd, place.env, &Surroundings::default());
    if let Some(first) = place.starts.filter(|first| first.contains('/')) {
        mentions.files.push(Mention::program(first));
    }
    if mentions.runs_code {
        search.take(mentions, 0);
        search.follow();
    } else if let Some(first) = place.starts.filter(|first| first.contains('/')) {
        search.add(Path::new(first), &Mention::program(first), &[], 0);
    }
    search.finish()
}

/// One file on the way.
struct Entry {
    real: PathBuf,
    role: FileRole,
    /// Every program that gets it may write it.
    may_write: bool,
    /// What was in it when it was read for what it runs.
    read: Option<Digest>,
    languages: BTreeSet<Language>,
}

/// A file that is still to be read for what it runs.
struct Pending {
    path: PathBuf,
    real: PathBuf,
    language: Language,
    directories: Vec<String>,
    vars: Surroundings,
    depth: usize,
}

struct Search<'a> {
    place: &'a Place<'a>,
    roots: Roots,
    files: BTreeMap<PathBuf, Entry>,
    queue: VecDeque<Pending>,
    written: BTreeSet<PathBuf>,
    /// What may run, load and read more than is found here.
    loads: BTreeSet<String>,
    directories: BTreeSet<String>,
    not_covered: BTreeSet<String>,
    texts: usize,
    entries: usize,
}

impl<'a> Search<'a> {
    fn new(place: &'a Place<'a>) -> Self {
        Self {
            place,
            roots: place.policy.roots(place.env),
            files: BTreeMap::new(),
            queue: VecDeque::new(),
            written: BTreeSet::new(),
            loads: BTreeSet::new(),
            directories: BTreeSet::new(),
            not_covered: BTreeSet::new(),
            texts: 0,
            entries: 0,
        }
    }

    /// Takes over what one text names.
    fn take(&mut self, mentions: Mentions, depth: usize) {
        let Mentions {
            mut files,
            directories,
            written,
            listings,
            dynamic,
            words,
            shell_reads,
            loads,
            not_covered,
            ..
        } = mentions;
        self.loads.extend(loads);
        for file in files.iter_mut().filter(|file| shell_reads && !file.may_write) {
            if file.role == FileRole::Read && file.language == Language::Data {
                // Which shell reads it is not known.
                (file.role, file.language) = (FileRole::Sourced, Language::Shell(Dialect::Unknown));
            }
        }
        self.written.extend(written.into_iter().filter_map(|path| fs::canonicalize(path).ok()));
        self.not_covered.extend(not_covered);
        for mention in &files {
            let paths = self.paths(mention, &directories);
            let is_run = mention.role != FileRole::Read && mention.lookup == Lookup::File;
            let is_script = matches!(mention.language, Language::Unknown | Language::Shell(_));
            if is_run && is_script && !paths.iter().any(|path| path.is_file()) {
                self.loads.insert(mention.name.clone());
            }
            for path in paths {
                self.add(&path, mention, &directories, depth);
            }
        }
        if dynamic {
            self.take_possible_names(&files, &listings, &directories, depth);
            for word in words {
                self.take_possible_name(&word, &directories, depth);
            }
        }
    }

    /// Something runs under a name that only the run shows: it may be any that
    /// a command of the same text lists, or a word of the text.
    fn take_possible_names(
        &mut self,
        files: &[Mention],
        listings: &[Listing],
        directories: &[String],
        depth: usize,
    ) {
        for listing in listings {
            self.not_covered.insert(format!("files that appear in {} only then", listing.starts.join(", ")));
            for path in self.listed(listing) {
                let mention = Mention::program(&path.to_string_lossy());
                self.add(&path, &mention, directories, depth);
            }
        }
        let lists = files.iter().filter(|file| file.role == FileRole::Read && file.lookup == Lookup::File);
        for list in lists {
            for path in self.paths(list, directories) {
                let Some(text) =
                    fs::canonicalize(path).ok().and_then(|real| read_script(&real).ok().flatten())
                else {
                    continue;
                };
                let Ok(text) = std::str::from_utf8(&text) else { continue };
                for word in text.split_whitespace().take(MAX_FILES) {
                    self.take_possible_name(word.trim_matches(['\'', '"']), directories, depth);
                }
            }
        }
    }

    /// A word that may become the name of what runs, if there is such a file.
    fn take_possible_name(&mut self, word: &str, directories: &[String], depth: usize) {
        let mut mention = Mention::program(word);
        if word.contains(['*', '?', '[']) {
            mention.lookup = Lookup::Glob;
        }
        for path in self.paths(&mention, directories) {
            self.add(&path, &mention, directories, depth);
        }
    }

    /// The paths that a name may stand for.
    fn paths(&mut self, mention: &Mention, directories: &[String]) -> Vec<PathBuf> {
        let name = mention.name.as_str();
        let from = |directory: &String| Path::new(directory).join(name);
        match mention.lookup {
            Lookup::Program => self.program(name, directories).into_iter().collect(),
            _ if name.starts_with('/') && mention.lookup != Lookup::Glob => vec![PathBuf::from(name)],
            Lookup::File => directories.iter().map(from).collect(),
            Lookup::Glob if name.starts_with('/') => {
                self.matching(Path::new("/"), name.trim_start_matches('/'))
            }
            Lookup::Glob => {
                directories.iter().flat_map(|directory| self.matching(Path::new(directory), name)).collect()
            }
            Lookup::Upward => {
                let workspace = Path::new(&self.place.env.workspace);
                let upward = |directory: &String| {
                    let above =
                        Path::new(directory).ancestors().take_while(|above| above.starts_with(workspace));
                    above.map(|above| above.join(name)).find(|path| path.is_file())
                };
                directories.iter().filter_map(upward).collect()
            }
        }
    }

    /// The first file of the `PATH` that a name without a slash would run.
    fn program(&self, name: &str, directories: &[String]) -> Option<PathBuf> {
        if name.is_empty() || name.contains('/') {
            return None;
        }
        let path = self.place.path.as_deref()?;
        let here = Path::new(directories.first().map_or("/", String::as_str));
        path.split(':').map(|directory| here.join(directory).join(name)).find(|file| is_executable(file))
    }

    /// The files that a path with wildcards stands for.
    fn matching(&mut self, from: &Path, pattern: &str) -> Vec<PathBuf> {
        let mut found = vec![from.to_owned()];
        for part in pattern.split('/').filter(|part| !part.is_empty() && *part != ".") {
            let mut next = Vec::new();
            for directory in found {
                if !part.contains(['*', '?', '[']) {
                    next.push(directory.join(part));
                    continue;
                }
                for (name, _) in self.entries_of(&directory) {
                    if glob_match(part, &name) {
                        next.push(directory.join(&name));
                    }
                }
            }
            found = next;
        }
        found.sort();
        found
    }

    fn listed(&mut self, listing: &Listing) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut directories: VecDeque<PathBuf> = VecDeque::new();
        for start in &listing.starts {
            if start.contains(['*', '?', '[']) {
                directories.extend(self.matching(Path::new("/"), start));
            } else {
                directories.push_back(PathBuf::from(start));
            }
        }
        let wanted = |name: &str| {
            listing.names.is_empty() || listing.names.iter().any(|pattern| glob_match(pattern, name))
        };
        while let Some(directory) = directories.pop_front() {
            if directory.is_file() {
                found.push(directory);
                continue;
            }
            for (name, is_directory) in self.entries_of(&directory) {
                let path = directory.join(&name);
                if is_directory {
                    // What git keeps is not a script, and there is very much of it.
                    if listing.recursive && name != ".git" {
                        directories.push_back(path);
                    }
                } else if wanted(&name) {
                    found.push(path);
                }
            }
        }
        found
    }

    /// The entries of a directory, each with whether it is one itself.
    fn entries_of(&mut self, directory: &Path) -> Vec<(String, bool)> {
        let mut all = Vec::new();
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if self.entries >= MAX_ENTRIES {
                self.not_covered.insert(format!("files in {}: there are too many", directory.display()));
                break;
            }
            self.entries += 1;
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if let Ok(name) = entry.file_name().into_string() {
                all.push((name, is_directory));
            }
        }
        all.sort();
        all
    }

    /// Takes a path over if it is a file that an approval has to cover.
    fn add(&mut self, path: &Path, mention: &Mention, directories: &[String], depth: usize) {
        let path = plain(path);
        // Neither opened nor waited for: it may be anything.
        let Ok(real) = fs::canonicalize(&path) else { return };
        let Ok(meta) = fs::metadata(&real) else { return };
        if meta.is_dir() && !is_kernels(&real) {
            self.directories.insert(self.relative_name(&path));
        }
        if !meta.is_file() || is_kernels(&real) {
            return;
        }
        let is_system = |path: &Path| self.place.policy.is_system_file(&path.to_string_lossy(), &self.roots);
        if is_system(&real) && is_system(&path) {
            return;
        }
        if self.files.len() >= MAX_FILES && !self.files.contains_key(&path) {
            self.not_covered.insert(format!("more than {MAX_FILES} files"));
            return;
        }
        let entry = self.files.entry(path.clone()).or_insert_with(|| Entry {
            real: real.clone(),
            role: mention.role,
            may_write: true,
            read: None,
            languages: BTreeSet::new(),
        });
        entry.role = entry.role.max(mention.role);
        entry.may_write &= mention.may_write;
        if mention.role == FileRole::Read || !entry.languages.insert(mention.language.clone()) {
            return;
        }
        if is_system(&real) {
            // A program of the system under another name, which may make it another program.
            self.loads.insert(self.relative_name(&path));
            return;
        }
        if depth >= MAX_DEPTH {
            self.not_covered.insert(format!("what {} runs: files run files too deeply", path.display()));
            return;
        }
        self.queue.push_back(Pending {
            path,
            real,
            language: mention.language.clone(),
            directories: directories.to_vec(),
            vars: Surroundings { vars: mention.vars.clone(), is_script: true, dialect: None },
            depth: depth + 1,
        });
    }

    /// Reads what was found for what it runs in turn.
    fn follow(&mut self) {
        while let Some(pending) = self.queue.pop_front() {
            let shown = pending.path.display().to_string();
            if pending.language == Language::Data {
                continue;
            }
            if self.texts >= MAX_TEXTS {
                self.not_covered.insert(format!("what {shown} runs: there is too much to read"));
                continue;
            }
            let content = match read_script(&pending.real) {
                Ok(Some(content)) => content,
                Ok(None) => {
                    self.loads.insert(self.relative_name(&pending.path));
                    continue;
                }
                // Reported with the digests.
                Err(_) => continue,
            };
            if let Some(entry) = self.files.get_mut(&pending.path) {
                entry.read = Some(Digest::of(&content));
            }
            let shell_of = |name: &str| self.shell_of(name, &pending.directories);
            let inside = inside::read(&pending.path, &pending.language, &content, &shell_of);
            self.take_inside(&pending, inside);
        }
    }

    /// The language of the shell that a script or a tool names: a path, or a name for the `PATH`.
    fn shell_of(&self, name: &str, directories: &[String]) -> Dialect {
        let path = match name.contains('/') {
            true => Some(PathBuf::from(name)),
            false => self.program(name, directories),
        };
        let real = path.and_then(|path| fs::canonicalize(path).ok());
        // Anybody can call a program `bash`.
        let real = real.filter(|real| self.place.policy.is_system_file(&real.to_string_lossy(), &self.roots));
        real.map_or(Dialect::Unknown, |real| Dialect::of_file(&real))
    }

    fn take_inside(&mut self, pending: &Pending, inside: Inside) {
        let Inside { shell, files, loads, not_covered } = inside;
        self.not_covered.extend(not_covered);
        if loads {
            self.loads.insert(self.relative_name(&pending.path));
        }
        let mut directories = pending.directories.clone();
        let own = pending.path.parent().map(|parent| parent.display().to_string());
        if let Some(own) = own.filter(|own| !directories.contains(own)) {
            directories.push(own);
        }
        for mention in &files {
            for path in self.paths(mention, &directories) {
                self.add(&path, mention, &directories, pending.depth);
            }
        }
        let first = pending.directories.first().cloned().unwrap_or_else(|| self.place.env.workspace.clone());
        for (dialect, text) in shell {
            self.texts += 1;
            let around = Surroundings { dialect: Some(dialect), ..pending.vars.clone() };
            let mut mentions =
                self.place.policy.mentions(&Command::Shell(text), &first, self.place.env, &around);
            let more = pending.directories.iter().filter(|one| !mentions.directories.contains(one));
            let more: Vec<String> = more.cloned().collect();
            mentions.directories.extend(more);
            let of_script = |note: String| format!("in {}: {note}", pending.path.display());
            mentions.not_covered = mentions.not_covered.into_iter().map(of_script).collect();
            self.take(mentions, pending.depth);
        }
    }

    /// A path as a question's notes name it: within the workspace, if it is there.
    fn relative_name(&self, path: &Path) -> String {
        let inside = path.strip_prefix(&self.place.env.workspace).ok();
        inside.filter(|inside| !inside.as_os_str().is_empty()).unwrap_or(path).display().to_string()
    }

    /// Reads the content of all that was found.
    fn finish(mut self) -> Result<Covered, Uncovered> {
        let mut files = Vec::new();
        let (mut left, mut copies_left) = (MAX_BYTES, copies::MAX_COPY);
        for (path, entry) in &self.files {
            let shown = path.display().to_string();
            let content = regular_file::open(&entry.real).and_then(|file| {
                let bytes = file.metadata()?.len();
                if bytes > left {
                    return Ok(None);
                }
                let digest = Digest::of_reader((&file).take(bytes.saturating_add(1)))?;
                Ok(Some((digest, bytes)))
            });
            let (digest, bytes) = match content {
                Ok(Some(content)) => content,
                Ok(None) => {
                    self.not_covered.insert(format!("{shown}: it is too large to be compared"));
                    continue;
                }
                Err(source) if entry.role == FileRole::Read => {
                    self.not_covered.insert(format!("{shown}: it cannot be read ({source})"));
                    continue;
                }
                Err(source) => return Err(Uncovered::Unreadable { path: shown, source }),
            };
            left -= bytes;
            if entry.read.is_some_and(|read| read != digest) {
                return Err(Uncovered::Unsteady { path: shown });
            }
            let written = self.written.contains(&entry.real);
            if written && entry.role != FileRole::Read {
                self.not_covered
                    .insert(format!("{shown}: what the command itself writes into it before it runs"));
            }
            let target = (entry.real != *path).then(|| entry.real.display().to_string());
            let compared = written || entry.may_write || bytes > copies_left;
            if !compared {
                copies_left -= bytes;
            }
            files.push(BoundFile { path: shown, target, digest, bytes, role: entry.role, compared });
        }
        files.sort();
        for (names, of_one, of_many) in [
            (
                &self.loads,
                "what it runs, loads and reads by itself",
                "what they run, load and read by themselves",
            ),
            (&self.directories, "what is in it", "what is in them"),
        ] {
            let shown: Vec<&str> = names.iter().map(String::as_str).collect();
            let what = if shown.len() == 1 { of_one } else { of_many };
            if !shown.is_empty() {
                self.not_covered.insert(format!("{}: {what}", shown.join(", ")));
            }
        }
        Ok(Covered { files, not_covered: self.not_covered.into_iter().collect() })
    }
}

/// A script's content; `None` when it is too large for one.
fn read_script(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let file = regular_file::open(path)?;
    if file.metadata()?.len() > MAX_SCRIPT {
        return Ok(None);
    }
    let mut content = Vec::new();
    file.take(MAX_SCRIPT + 1).read_to_end(&mut content)?;
    Ok(Some(content))
}

/// Whether a path names an entry of the kernel's views, which are not files.
fn is_kernels(path: &Path) -> bool {
    ["/proc", "/sys", "/dev"].iter().any(|root| path.starts_with(root))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The path without `.`; `..` stays, for it may follow a symbolic link.
fn plain(path: &Path) -> PathBuf {
    path.components().filter(|part| *part != Component::CurDir).collect()
}

#[cfg(test)]
mod tests;
