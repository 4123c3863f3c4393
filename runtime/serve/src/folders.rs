//! The folders of workflow files that a server watches, and the problems of their files.
//!
//! A file that cannot be read or is not registered is reported once, and listed for as long as the problem lasts. It
//! does not keep other files from running.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use lobster_runtime::runtime::Runtime;
use lobster_runtime::store::service::Service;
use lobster_runtime::sync::lock;

use crate::workflows::{self, Word};

/// Interval at which the folders are checked.
const PAUSE: Duration = Duration::from_secs(2);

/// Time after which an unchanged file is read again: files that it refers to may have changed.
const AGAIN: Duration = Duration::from_secs(60);

/// The current problems. Clones share the same list.
#[derive(Clone, Default)]
pub struct Problems(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    found: Vec<String>,
    /// Files by the names under which the service would register them.
    files: BTreeMap<String, PathBuf>,
    look_now: bool,
    stopped: bool,
}

impl Problems {
    /// The problems, as sentences.
    #[must_use]
    pub fn to_sentences(&self) -> Vec<String> {
        lock(&self.0.state).found.clone()
    }

    /// The file with this name in one of the folders.
    pub fn file_of(&self, name: &str) -> Option<PathBuf> {
        lock(&self.0.state).files.get(name).cloned()
    }

    /// The names of the files in the folders.
    #[must_use]
    pub fn file_names(&self) -> Vec<String> {
        lock(&self.0.state).files.keys().cloned().collect()
    }

    /// Triggers a check of the folders now.
    pub fn check_now(&self) {
        lock(&self.0.state).look_now = true;
        self.0.changed.notify_all();
    }

    /// Ends the watch.
    pub fn stop_watching(&self) {
        lock(&self.0.state).stopped = true;
        self.0.changed.notify_all();
    }

    /// Waits until the next check is due. Returns false when the watch ends.
    fn wait_until_due(&self) -> bool {
        let state = lock(&self.0.state);
        let waited =
            self.0.changed.wait_timeout_while(state, PAUSE, |state| !state.look_now && !state.stopped);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.look_now = false;
        !state.stopped
    }
}

/// State of a file when it was read.
struct Known {
    stamp: Option<(u64, SystemTime)>,
    read: Instant,
    problem: Option<String>,
}

/// Watches folders.
pub(crate) struct Folders {
    dirs: Vec<PathBuf>,
    /// Name under which found files are registered without review, if the operator allows that.
    trusted_by: Option<String>,
    known: BTreeMap<PathBuf, Known>,
    problems: Problems,
}

impl Folders {
    /// Creates a watch of these folders. With `trusted_by`, every file in them is registered without review.
    #[must_use]
    pub(crate) fn new(dirs: Vec<PathBuf>, trusted_by: Option<String>) -> (Self, Problems) {
        let problems = Problems::default();
        (Self { dirs, trusted_by, known: BTreeMap::new(), problems: problems.clone() }, problems)
    }

    /// Checks the folders until the watch is stopped. `say` receives each problem once.
    pub(crate) fn watch_until_stopped(mut self, runtime: &Runtime, service: &Service, say: impl Fn(&str)) {
        loop {
            self.check_once(runtime, service, &say);
            if !self.problems.wait_until_due() {
                return;
            }
        }
    }

    /// Checks the folders once.
    pub(crate) fn check_once(&mut self, runtime: &Runtime, service: &Service, say: impl Fn(&str)) {
        let mut problems = Vec::new();
        let mut files = Vec::new();
        for dir in &self.dirs {
            match workflows::files_in(dir) {
                Ok(found) => files.extend(found),
                // Registered workflows of the folder keep starting. Their runs report anything missing.
                Err(why) => problems.push(why),
            }
        }
        self.known.retain(|path, _| files.contains(path));
        for path in &files {
            problems.extend(self.problem_of(path, runtime, service));
        }
        let named = files.iter().filter_map(|path| Some((workflows::name_of(path).ok()?, path.clone())));
        let mut state = lock(&self.problems.0.state);
        state.files = named.collect();
        let news: Vec<String> = problems.iter().filter(|one| !state.found.contains(one)).cloned().collect();
        state.found = problems;
        drop(state);
        news.iter().for_each(|one| say(one));
    }

    /// Returns the problem of a file, which is read again if it may have changed.
    fn problem_of(&mut self, path: &Path, runtime: &Runtime, service: &Service) -> Option<String> {
        let stamp = path.metadata().ok().and_then(|meta| Some((meta.len(), meta.modified().ok()?)));
        let is_fresh =
            |known: &&Known| known.stamp == stamp && known.problem.is_none() && known.read.elapsed() < AGAIN;
        if let Some(known) = self.known.get(path).filter(is_fresh) {
            return known.problem.clone();
        }
        let problem = self.check_file(path, runtime, service).err();
        self.known.insert(path.to_owned(), Known { stamp, read: Instant::now(), problem: problem.clone() });
        problem
    }

    fn check_file(&self, path: &Path, runtime: &Runtime, service: &Service) -> Result<(), String> {
        let candidate = workflows::read_candidate(runtime, path)?;
        let shown = candidate.path.display();
        let word = workflows::compare_registration(service, &candidate).map_err(|error| error.to_string())?;
        let how = match &word {
            Word::Registered => return Ok(()),
            Word::New => "is not registered".to_owned(),
            Word::Changed(_) => "has changed since it was registered".to_owned(),
            Word::Other(known) => {
                return Err(format!(
                    "{shown} has the name of {}, which is registered; rename one of them",
                    known.path
                ));
            }
        };
        match &self.trusted_by {
            Some(by) => workflows::register(service, &candidate, Some(by), "lobster serve --trust"),
            None => Err(format!(
                "{shown} {how}, so nothing starts it: read it, then `lobster schedule register {shown}`"
            )),
        }
    }
}
