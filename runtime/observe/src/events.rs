//! The journals of runs as lines of JSON, written during the run.
//!
//! A line is the exact text of a record in the journal, so a program that follows a run and one that reads its journal
//! later see the same. Secrets are already hidden. A run never fails because its lines cannot be written.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::Mutex;

use lobster_base::sync::lock;
use lobster_store::{Durability, Record, RunId, Store, StoreError, Witness};

/// Writes each record of this process's runs as a line, in the order of the journal.
pub struct EventLines {
    lines: Mutex<Lines>,
    /// Called once, with the reason why no more lines are written.
    report_loss: Box<dyn Fn(&str) + Send + Sync>,
}

struct Lines {
    /// `None` after the first failure.
    to: Option<Box<dyn Write + Send>>,
    /// The last written record of each run.
    last: HashMap<RunId, u64>,
}

impl fmt::Debug for EventLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLines").finish_non_exhaustive()
    }
}

impl EventLines {
    /// Writes lines to `to`; `report_loss` is called if that fails.
    pub fn new(to: impl Write + Send + 'static, report_loss: impl Fn(&str) + Send + Sync + 'static) -> Self {
        let lines = Lines { to: Some(Box::new(to)), last: HashMap::new() };
        Self { lines: Mutex::new(lines), report_loss: Box::new(report_loss) }
    }
}

impl Lines {
    /// The lines for `records`. Records that another thread or process committed before one of them, and that were not
    /// written yet, come first.
    fn text_of(&mut self, store: &Store, records: &[Record]) -> Result<String, StoreError> {
        let mut text = String::new();
        for record in records {
            let last = *self.last.entry(record.run).or_insert(record.seq - 1);
            if record.seq <= last {
                continue;
            }
            let missed = usize::try_from(record.seq - last - 1).unwrap_or(usize::MAX);
            if missed > 0 {
                for earlier in store.events_after(record.run, last, missed)? {
                    push_line(&mut text, &earlier.text);
                }
            }
            push_line(&mut text, &record.text);
            self.last.insert(record.run, record.seq);
        }
        Ok(text)
    }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

impl Witness for EventLines {
    fn records_committed(&self, store: &Store, records: &[Record], _: Durability) -> Result<(), StoreError> {
        let mut lines = lock(&self.lines);
        if lines.to.is_none() {
            return Ok(());
        }
        let text = lines.text_of(store, records).map_err(io::Error::other);
        let written = text.and_then(|text| match &mut lines.to {
            // One write, so that the lines of several processes do not mix.
            Some(to) => to.write_all(text.as_bytes()).and_then(|()| to.flush()),
            None => Ok(()),
        });
        if let Err(error) = written {
            lines.to = None;
            (self.report_loss)(&error.to_string());
        }
        Ok(())
    }

    fn runs_removed(&self, _: &[RunId]) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lobster_base::digest::Digest;
    use lobster_store::{Event, NewRun};
    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn new_run(name: &str) -> NewRun {
        NewRun {
            name: name.to_owned(),
            kind: "workflow".to_owned(),
            plan: Digest::of_bytes(b""),
            args: None,
            mode: "tool".to_owned(),
            actor: None,
            cwd: "/".to_owned(),
            parent: None,
            detail: Value::Null,
        }
    }

    fn note_event(text: String) -> Event {
        Event::Note { path: None, text, detail: Value::Null }
    }

    #[test]
    fn threads_and_other_processes_leave_the_order_of_the_journal() {
        let dir = tempfile::tempdir().unwrap();
        let (store, other) = (Store::open(dir.path()).unwrap(), Store::open(dir.path()).unwrap());
        let kept = Kept::default();
        store.add_witness(EventLines::new(kept.clone(), |why| panic!("{why}")));
        let run = store.create_run(new_run("many")).unwrap();
        std::thread::scope(|scope| {
            for (name, store) in [("a", &store), ("b", &store), ("c", &store), ("other", &other)] {
                scope.spawn(move || {
                    for n in 0..50 {
                        store
                            .append_events(run, vec![note_event(format!("{name} {n}"))], Durability::Lazy)
                            .unwrap();
                    }
                });
            }
        });
        store.append_events(run, vec![note_event("last".to_owned())], Durability::Lazy).unwrap();
        let journal: String =
            store.all_events(run).unwrap().into_iter().map(|record| record.text + "\n").collect();
        assert_eq!(String::from_utf8(kept.0.lock().unwrap().clone()).unwrap(), journal);
    }

    #[test]
    fn a_reader_that_went_away_is_told_once_and_stops_nothing() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let losses = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&losses);
        store.add_witness(EventLines::new(Closed, move |why| told.lock().unwrap().push(why.to_owned())));
        let run = store.create_run(new_run("unheard")).unwrap();
        store.append_events(run, vec![note_event("on".to_owned())], Durability::Lazy).unwrap();
        assert_eq!(losses.lock().unwrap().len(), 1);
        assert_eq!(store.all_events(run).unwrap().len(), 2);
    }
}
