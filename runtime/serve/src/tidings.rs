//! Live progress of a run's steps: the length of a model's answer so far, the last line of stderr. It is not in the
//! journal and never complete. A worker sends it to the server that started it, which forgets it when the worker has
//! ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use lobster_runtime::engine::{Heard, Progress};
use lobster_runtime::store::RunId;
use lobster_runtime::sync::lock;
use lobster_runtime::text;
use serde::{Deserialize, Serialize};

/// Shortest interval between two reports of a worker.
const TOLD_EVERY: Duration = Duration::from_millis(500);

/// Most characters of a line that are sent.
const LINE: usize = 200;

/// Most bytes of a message that are read.
const MESSAGE: u64 = 64 << 10;

/// Most places of one run that are remembered.
const PLACES: usize = 1000;

/// One message of a worker, a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    /// The place in the run.
    at: String,
    /// The progress of that place; none when it has ended.
    said: Option<Heard>,
}

/// Live progress of one server's runs. Clones share it.
#[derive(Clone, Default)]
pub struct Tidings(Arc<Mutex<All>>);

#[derive(Default)]
struct All {
    /// Number of messages received.
    count: u64,
    runs: HashMap<RunId, OfRun>,
}

struct OfRun {
    workflow: Option<Arc<str>>,
    /// The number of the newest message from this run.
    newest: u64,
    said: BTreeMap<String, Heard>,
}

impl Tidings {
    /// Receives the messages of a run's worker until its output ends or is not a message.
    pub(crate) fn receive_messages(&self, run: RunId, workflow: Option<&str>, from: impl Read) {
        let mut from = BufReader::new(from);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = from.by_ref().take(MESSAGE).read_until(b'\n', &mut line);
            let Some(told) = read.ok().and_then(|_| serde_json::from_slice::<Told>(&line).ok()) else {
                break;
            };
            self.record_message(run, workflow, told);
        }
        lock(&self.0).runs.remove(&run);
        // A worker that prints anything else must not block, so the rest is read and dropped.
        let _ = std::io::copy(&mut from, &mut std::io::sink());
    }

    fn record_message(&self, run: RunId, workflow: Option<&str>, told: Told) {
        let mut heard = lock(&self.0);
        heard.count += 1;
        let newest = heard.count;
        let of_run = heard.runs.entry(run).or_insert_with(|| OfRun {
            workflow: workflow.map(Arc::from),
            newest,
            said: BTreeMap::new(),
        });
        of_run.newest = newest;
        match told.said {
            Some(said) if of_run.said.len() < PLACES || of_run.said.contains_key(&told.at) => {
                of_run.said.insert(told.at, said);
            }
            Some(_) => {}
            None => drop(of_run.said.remove(&told.at)),
        }
    }

    /// The latest progress of each place of a run.
    #[must_use]
    pub fn of_run(&self, run: RunId) -> BTreeMap<String, Heard> {
        lock(&self.0).runs.get(&run).map(|of_run| of_run.said.clone()).unwrap_or_default()
    }

    /// Returns the progress of a run that is not in `known`, and updates `known`.
    pub fn new_progress(&self, run: RunId, known: &mut BTreeMap<String, Heard>) -> Vec<(String, Heard)> {
        let newest = self.of_run(run);
        let new = newest.iter().filter(|(place, heard)| known.get(*place) != Some(*heard));
        let news = new.map(|(place, heard)| (place.clone(), heard.clone())).collect();
        *known = newest;
        news
    }

    /// Number of messages received.
    pub(crate) fn message_count(&self) -> u64 {
        lock(&self.0).count
    }

    /// The runs with messages after number `count`, with their workflows.
    pub(crate) fn runs_since(&self, count: u64) -> Vec<(RunId, Option<Arc<str>>)> {
        let heard = lock(&self.0);
        let new = heard.runs.iter().filter(|(_, of_run)| of_run.newest > count);
        new.map(|(run, of_run)| (*run, of_run.workflow.clone())).collect()
    }
}

/// Progress in a worker, waiting to be sent to its server.
#[derive(Default)]
struct Waiting {
    /// By place.
    told: BTreeMap<String, Option<Heard>>,
    /// Places that have been reported.
    known: BTreeSet<String>,
    /// True if the server does not listen any longer.
    is_over: bool,
}

/// Reports the progress of a run's steps to a server. A server that does not listen does not block the run.
pub struct Teller(Arc<(Mutex<Waiting>, Condvar)>);

impl Teller {
    /// Starts a thread that reports on `to`.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub fn start(mut to: impl Write + Send + 'static) -> std::io::Result<Self> {
        let shared = Arc::new((Mutex::<Waiting>::default(), Condvar::new()));
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new().name("tidings".to_owned()).spawn(move || {
            let (waiting, changed) = &*of_thread;
            loop {
                let mut waiting_now = lock(waiting);
                while waiting_now.told.is_empty() {
                    waiting_now =
                        changed.wait(waiting_now).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
                let told = std::mem::take(&mut waiting_now.told);
                drop(waiting_now);
                if told.into_iter().any(|(at, said)| write_message(&mut to, &Told { at, said }).is_err()) {
                    let mut waiting = lock(waiting);
                    *waiting = Waiting { is_over: true, ..Waiting::default() };
                    return;
                }
                std::thread::sleep(TOLD_EVERY);
            }
        })?;
        Ok(Self(shared))
    }

    fn tell_of(&self, place: &str, said: Option<Heard>) {
        let mut waiting = lock(&self.0.0);
        if waiting.is_over {
            return;
        }
        match &said {
            Some(_) => drop(waiting.known.insert(place.to_owned())),
            None if !waiting.known.remove(place) => return,
            None => {}
        }
        waiting.told.insert(place.to_owned(), said);
        drop(waiting);
        self.0.1.notify_one();
    }
}

fn write_message(to: &mut impl Write, told: &Told) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(told)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

impl Progress for Teller {
    fn work_started(&self, _: &str, _: &str) {}

    fn work_ended(&self, place: &str) {
        self.tell_of(place, None);
    }

    fn output_arrived(&self, place: &str, heard: &Heard) {
        let said = match heard {
            Heard::Stderr(line) => Heard::Stderr(text::prefix(line, LINE, text::Count::Chars).to_owned()),
            Heard::Answering(_) => heard.clone(),
        };
        self.tell_of(place, Some(said));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    struct Lines(mpsc::Sender<String>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.send(String::from_utf8_lossy(bytes).into_owned()).map_err(std::io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_steps_say_comes_to_the_server_and_is_forgotten_with_them() {
        let run: RunId = "019aa000-0000-7000-8000-000000000001".parse().unwrap();
        let tidings = Tidings::default();
        let (tell, told) = mpsc::channel();
        let teller = Teller::start(Lines(tell)).unwrap();
        teller.output_arrived("ask", &Heard::Answering(1234));
        teller.work_ended("never reported");
        let mut said = told.recv().unwrap();
        teller.output_arrived("build", &Heard::Stderr("second".to_owned()));
        said += &told.recv().unwrap();
        assert_eq!(tidings.runs_since(0), []);
        let (take, mut give) = std::io::pipe().unwrap();
        let of_thread = tidings.clone();
        let listening = std::thread::spawn(move || of_thread.receive_messages(run, Some("nightly"), take));
        give.write_all(said.as_bytes()).unwrap();
        let until = |count| {
            while tidings.message_count() < count {
                std::thread::sleep(Duration::from_millis(1));
            }
            tidings.of_run(run).into_iter().map(|(at, said)| format!("{at}: {said}")).collect::<Vec<_>>()
        };
        assert_eq!(until(2), ["ask: 1234 characters of the answer so far", "build: second"]);
        assert_eq!(tidings.runs_since(1), [(run, Some(Arc::from("nightly")))]);
        assert_eq!(tidings.runs_since(2), []);
        teller.work_ended("ask");
        give.write_all(told.recv().unwrap().as_bytes()).unwrap();
        assert_eq!(until(3), ["build: second"]);
        drop(give);
        listening.join().unwrap();
        assert!(tidings.of_run(run).is_empty());
    }

    #[test]
    fn whoever_does_not_listen_holds_up_nothing() {
        let (tell, told) = mpsc::channel();
        drop(told);
        let teller = Teller::start(Lines(tell)).unwrap();
        let begun = std::time::Instant::now();
        while !lock(&teller.0.0).is_over {
            teller.output_arrived("ask", &Heard::Answering(1));
            assert!(begun.elapsed() < Duration::from_secs(30));
        }
        teller.output_arrived("ask", &Heard::Answering(2));
        assert!(lock(&teller.0.0).told.is_empty());
    }
}
