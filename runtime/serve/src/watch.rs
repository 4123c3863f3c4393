//! `watch:`: workflows that start when files have changed and then stayed unchanged for a while.
//!
//! The folders are checked every second. Size and time show that a file may have changed; the digest of its content,
//! which is kept in the store, shows that it has. So neither a restart nor a second server starts another run for the
//! same content. Files that exist when a watch begins start nothing.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use lobster_runtime::digest::Digest;
use lobster_runtime::glob::glob_match;
use lobster_runtime::json;
use lobster_runtime::language::triggers::{Watch, find_args};
use lobster_runtime::store::StoreError;
use lobster_runtime::store::service::{NewStart, Registered, Service, Watched};
use serde_json::{Value, json};

use crate::workers::Waker;
use crate::workflows::{self, Content, check_args};

/// Interval at which folders are checked.
pub(crate) const LOOK: Duration = Duration::from_secs(1);

/// Most files of one watch.
const MOST_FILES: usize = 10_000;

/// Most bytes of one watched file.
const MOST_BYTES: u64 = 1 << 30;

/// Deepest level of folders for `**`.
const MOST_DEPTH: usize = 32;

type Stamp = (u64, Option<SystemTime>);

/// Files by their names relative to the workflow's folder.
type Files = BTreeMap<String, Digest>;

/// State of one watch in this server.
#[derive(Default)]
struct Seen {
    stamps: BTreeMap<String, Stamp>,
    digests: HashMap<(String, Stamp), Digest>,
    changed: Option<Instant>,
}

/// Checks the files of all watches.
pub(crate) struct Watcher {
    service: Service,
    waker: Waker,
    /// The newest deed when `watching` was read.
    deed: Option<i64>,
    /// The registered workflows that watch files.
    watching: Arc<[(Registered, Content)]>,
    seen: HashMap<String, Seen>,
}

impl Watcher {
    pub(crate) fn new(service: Service, waker: Waker) -> Self {
        Self { service, waker, deed: None, watching: Arc::new([]), seen: HashMap::new() }
    }

    /// Checks all watches once.
    pub(crate) fn check_once(&mut self) -> Result<(), StoreError> {
        // Read before the workflows, so that a registration made meanwhile is noticed the next time.
        let deed = self.service.newest_deed()?;
        if self.deed != Some(deed) {
            let all = self
                .service
                .list_workflows()?
                .into_iter()
                .map(|workflow| (Content::from_registered(&workflow), workflow));
            let watching = all.filter(|(content, _)| !content.triggers.watch.is_empty());
            self.watching = watching.map(|(content, workflow)| (workflow, content)).collect();
            self.deed = Some(deed);
        }
        let mut keys = Vec::new();
        for (workflow, content) in Arc::clone(&self.watching).iter() {
            for (at, watch) in content.triggers.watch.iter().enumerate() {
                let key = key_of(workflow, at, watch);
                self.look_at(&key, workflow, content, watch)?;
                keys.push(key);
            }
        }
        self.seen.retain(|key, _| keys.contains(key));
        Ok(())
    }

    /// Records the files that a watch leaves out, and notifies people of new ones among them.
    fn note_unreadable(
        &self,
        key: &str,
        workflow: &Registered,
        files: &Unreadable,
    ) -> Result<(), StoreError> {
        let key = key_of_unreadable(key);
        let known = self.service.watch_state(&key)?;
        let before: Unreadable =
            known.as_ref().map(|(_, state)| json::parse_as(state).unwrap_or_default()).unwrap_or_default();
        if *files == before {
            return Ok(());
        }
        let new: Vec<&String> = files.keys().filter(|path| !before.contains_key(*path)).collect();
        let start = new.first().map(|first| {
            let others = if new.len() > 1 { format!(", and {} more", new.len() - 1) } else { String::new() };
            let why = files.get(*first).map(String::as_str).unwrap_or_default();
            let why = format!("changes of {first} start no run: {why}{others}");
            tracing::warn!(workflow = workflow.name, "{why}");
            new_start(workflow, json!({ "paths": new }), json!({}), Some(why))
        });
        let revision = known.map(|(revision, _)| revision);
        self.service.set_watched(&key, revision, &json::compact(files), start.as_ref())?;
        Ok(())
    }

    fn look_at(
        &mut self,
        key: &str,
        workflow: &Registered,
        content: &Content,
        watch: &Watch,
    ) -> Result<(), StoreError> {
        let here = Path::new(&workflow.path).parent().unwrap_or(Path::new("/"));
        let seen = self.seen.entry(key.to_owned()).or_default();
        let stamps = match stamps_of(here, &watch.paths) {
            Ok(stamps) => stamps,
            Err(why) => {
                let all = Unreadable::from([(watch.paths.join(" "), why)]);
                return self.note_unreadable(key, workflow, &all);
            }
        };
        if stamps != seen.stamps || seen.changed.is_none() {
            (seen.stamps, seen.changed) = (stamps, Some(Instant::now()));
        }
        let known = self.service.watch_state(key)?;
        let is_settled =
            seen.changed.is_some_and(|at| at.elapsed() >= Duration::from_millis(watch.settle_ms));
        if known.is_some() && !is_settled {
            return Ok(());
        }
        let before: Files =
            known.as_ref().map(|(_, state)| json::parse_as(state).unwrap_or_default()).unwrap_or_default();
        let Some((files, unreadable)) = digests_of(here, seen, &before) else {
            // The file changed while it was read, so it has not settled.
            seen.changed = Some(Instant::now());
            return Ok(());
        };
        self.note_unreadable(key, workflow, &unreadable)?;
        let state = json::compact(&files);
        let Some((revision, old)) = known else {
            self.service.set_watched(key, None, &state, None)?;
            return Ok(());
        };
        if state == old {
            return Ok(());
        }
        let changed: Vec<&String> = files
            .iter()
            .filter(|(path, digest)| before.get(*path) != Some(*digest))
            .map(|(path, _)| path)
            .collect();
        let start = if changed.is_empty() {
            // Deleted files start nothing. If they come back, they are new.
            None
        } else {
            let brought = json!({ "paths": changed });
            let args = Value::Object(find_args(&watch.args, &brought));
            let unfit = check_args(content, &args).err();
            let refusal =
                unfit.map(|why| format!("the list of changed files does not fit its arguments: {why}"));
            if let Some(why) = &refusal {
                tracing::warn!(workflow = workflow.name, why, "a run after a change of files cannot start");
            }
            Some(new_start(workflow, brought, args, refusal))
        };
        if let Watched::Counted(Some(_)) =
            self.service.set_watched(key, Some(revision), &state, start.as_ref())?
        {
            self.waker.wake();
        }
        Ok(())
    }
}

/// Files that cannot be read, with the reason.
type Unreadable = BTreeMap<String, String>;

/// The key of a watch in the store.
fn key_of(workflow: &Registered, at: usize, watch: &Watch) -> String {
    format!("{}/{at} {}", workflow.name, watch.paths.join(" "))
}

/// The key of a watch's unreadable files in the store.
fn key_of_unreadable(key: &str) -> String {
    format!("unreadable {key}")
}

/// Returns the files that the watches of a workflow leave out because they cannot be read, with the reason.
///
/// # Errors
/// Fails if the store cannot be read.
pub fn unreadable_files(service: &Service, workflow: &Registered) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    for (at, watch) in Content::from_registered(workflow).triggers.watch.iter().enumerate() {
        let known = service.watch_state(&key_of_unreadable(&key_of(workflow, at, watch)))?;
        let files: Unreadable =
            known.map(|(_, state)| json::parse_as(&state).unwrap_or_default()).unwrap_or_default();
        found.extend(files.iter().map(|(path, why)| format!("{path}: {why}")));
    }
    Ok(found)
}

fn new_start(workflow: &Registered, detail: Value, args: Value, refusal: Option<String>) -> NewStart {
    let actor = Some(format!("watch:{}", workflow.name));
    NewStart { actor, refusal, ..workflows::new_start(workflow, "watch", detail, args) }
}

/// Finds the files that match the patterns, with their sizes and times.
fn stamps_of(here: &Path, patterns: &[String]) -> Result<BTreeMap<String, Stamp>, String> {
    let mut found = BTreeMap::new();
    for pattern in patterns {
        let parts: Vec<&str> = pattern.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        if pattern.starts_with('/') {
            let mut below = BTreeMap::new();
            find_matches(Path::new("/"), &parts, &mut String::new(), 0, &mut below)?;
            found.extend(below.into_iter().map(|(path, stamp)| (format!("/{path}"), stamp)));
        } else {
            find_matches(here, &parts, &mut String::new(), 0, &mut found)?;
        }
    }
    Ok(found)
}

/// Finds the files below a folder that match the rest of a pattern.
fn find_matches(
    dir: &Path,
    parts: &[&str],
    name: &mut String,
    depth: usize,
    found: &mut BTreeMap<String, Stamp>,
) -> Result<(), String> {
    let Some((first, rest)) = parts.split_first() else { return Ok(()) };
    if *first == ".." {
        return in_part(name, "..", |name| find_matches(&dir.join(".."), rest, name, depth, found));
    }
    if *first == "**" {
        // `**` matches any number of folders, including none.
        find_matches(dir, rest, name, depth, found)?;
    }
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        // The folder may be created later.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(format!("{}: {error}", dir.display())),
    };
    for entry in entries.flatten() {
        // Patterns are text, so other names cannot match.
        let Some(own) = entry.file_name().to_str().map(str::to_owned) else { continue };
        let Ok(kind) = entry.file_type() else { continue };
        // A star does not match hidden files, as in a shell.
        let is_hidden = own.starts_with('.') && !first.starts_with('.');
        if is_hidden {
            continue;
        }
        if *first == "**" {
            if kind.is_dir() && depth < MOST_DEPTH {
                in_part(name, &own, |name| find_matches(&entry.path(), parts, name, depth + 1, found))?;
            }
        } else if glob_match(first, &own) {
            match std::fs::metadata(entry.path()) {
                Ok(meta) if meta.is_dir() => {
                    in_part(name, &own, |name| find_matches(&entry.path(), rest, name, depth, found))?;
                }
                Ok(meta) if meta.is_file() && rest.is_empty() => {
                    let path = if name.is_empty() { own } else { format!("{name}/{own}") };
                    found.insert(path, (meta.len(), meta.modified().ok()));
                    if found.len() > MOST_FILES {
                        return Err(format!("more than {MOST_FILES} files fit; name fewer"));
                    }
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Calls `work` with a part appended to the path.
fn in_part<T>(name: &mut String, part: &str, work: impl FnOnce(&mut String) -> T) -> T {
    let before = name.len();
    if before > 0 {
        name.push('/');
    }
    name.push_str(part);
    let done = work(name);
    name.truncate(before);
    done
}

/// Returns the digests of the files, and the files that cannot be read. An unreadable file keeps its digest from
/// `before`, and does not stop the others from being watched. Returns `None` if a file has changed since it was listed.
fn digests_of(here: &Path, seen: &mut Seen, before: &Files) -> Option<(Files, Unreadable)> {
    let mut files = Files::new();
    let mut digests = HashMap::new();
    let mut unreadable = Unreadable::new();
    for (path, stamp) in &seen.stamps {
        let at = (path.clone(), *stamp);
        let digest = match seen.digests.get(&at) {
            Some(known) => *known,
            None => {
                let file = here.join(path);
                let read = digest_of(&file);
                let now = std::fs::metadata(&file).map(|meta| (meta.len(), meta.modified().ok()));
                match (read, now) {
                    (Ok(digest), Ok(now)) if now == *stamp => digest,
                    (Err(why), Ok(now)) if now == *stamp => {
                        unreadable.insert(path.clone(), why.to_string());
                        files.extend(before.get(path).map(|digest| (path.clone(), *digest)));
                        continue;
                    }
                    _ => return None,
                }
            }
        };
        digests.insert(at, digest);
        files.insert(path.clone(), digest);
    }
    seen.digests = digests;
    Some((files, unreadable))
}

fn digest_of(path: &Path) -> std::io::Result<Digest> {
    let file = File::open(path)?;
    if file.metadata()?.len() > MOST_BYTES {
        return Err(std::io::Error::other(format!("it is larger than {MOST_BYTES} bytes")));
    }
    Digest::of_reader(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_find_what_a_shell_would() {
        let dir = tempfile::tempdir().unwrap();
        for file in ["in/a.csv", "in/b.txt", "in/.c.csv", "in/deep/er/d.csv", "e.csv"] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        let found = |patterns: &[&str]| {
            let patterns: Vec<String> = patterns.iter().map(|one| (*one).to_owned()).collect();
            stamps_of(dir.path(), &patterns).unwrap().into_keys().collect::<Vec<_>>()
        };
        assert_eq!(found(&["in/*.csv"]), ["in/a.csv"]);
        assert_eq!(found(&["./in/.*.csv"]), ["in/.c.csv"]);
        assert_eq!(found(&["**/*.csv"]), ["e.csv", "in/a.csv", "in/deep/er/d.csv"]);
        assert_eq!(found(&["i?/[ab].*", "nowhere/*"]), ["in/a.csv", "in/b.txt"]);
        assert_eq!(found(&["in/../*.csv"]), ["in/../e.csv"]);
        let whole = format!("{}/in/*.txt", dir.path().display());
        assert_eq!(found(&[&whole]), [format!("{}/in/b.txt", dir.path().display())]);
    }
}
