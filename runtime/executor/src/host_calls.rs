//! The answers that an effect got from outside: from the clock, from randomness and over HTTP, in the order of the
//! component's calls.
//!
//! The record is a blob. Each call is one line `function request-length answer-length`, the bytes of both, and a line
//! break.

use std::io::{self, BufRead, BufReader, Read, Write};

use lobster_component::{HostCall, HostCallTrace};

use lobster_base::digest::Digest;
use lobster_base::text::{self, Count};
use lobster_store::{Blob, BlobReader, BlobWriter, Store, StoreError};

/// Longest request or answer that is accepted from a record, in bytes: more than a host call can pass.
const MAX_PART: u64 = 64 << 20;

/// Records calls as they happen.
pub(super) struct Recording {
    writer: BlobWriter,
    calls: u64,
    failed: Option<io::Error>,
}

impl Recording {
    pub(super) fn new(store: &Store) -> Self {
        Self { writer: store.blob_writer(), calls: 0, failed: None }
    }

    /// The record, if there were any calls.
    pub(super) fn finish(self) -> Result<Option<Blob>, StoreError> {
        match self.failed {
            Some(error) => Err(self.writer.store_error(error)),
            None if self.calls == 0 => Ok(None),
            None => self.writer.finish().map(Some),
        }
    }

    fn write_call(&mut self, call: &HostCall<'_>, answer: &[u8]) -> io::Result<()> {
        writeln!(self.writer, "{} {} {}", call.function, call.request.len(), answer.len())?;
        self.writer.write_all(call.request)?;
        self.writer.write_all(answer)?;
        self.writer.write_all(b"\n")
    }
}

impl HostCallTrace for Recording {
    fn recorded_answer(&mut self, _: &HostCall<'_>) -> Result<Option<Vec<u8>>, String> {
        Ok(None)
    }

    fn record_answer(&mut self, call: &HostCall<'_>, answer: &[u8]) {
        self.calls += 1;
        if self.failed.is_none() {
            self.failed = self.write_call(call, answer).err();
        }
    }
}

/// Answers a component's calls from the record of an earlier run, and never from the world: a call that is not the
/// next one in the record ends the run.
pub struct RecordedCalls {
    /// `None` if there were no calls.
    reader: Option<BufReader<BlobReader>>,
    calls: u64,
}

impl RecordedCalls {
    /// Opens the record with this digest: `detail.host_calls` of an effect's outcome.
    ///
    /// # Errors
    /// If the store does not have it.
    pub fn open(store: &Store, record: &Digest) -> Result<Self, StoreError> {
        Ok(Self { reader: Some(BufReader::new(store.open_blob(record)?)), calls: 0 })
    }

    /// The record of a component without calls.
    #[must_use]
    pub fn without_calls() -> Self {
        Self { reader: None, calls: 0 }
    }

    /// Checks that every recorded call was made.
    ///
    /// # Errors
    /// The sentence that names the first missing call.
    pub fn check_complete(&mut self) -> Result<(), String> {
        match self.next()? {
            None => Ok(()),
            Some((function, request, _)) => Err(format!(
                "the record has {} here, and nothing more is asked",
                describe_call(&function, &request)
            )),
        }
    }

    /// The recorded answer to this call, which must be the next one.
    fn next_answer(&mut self, call: &HostCall<'_>) -> Result<Vec<u8>, String> {
        let asked = || describe_call(call.function, call.request);
        match self.next()? {
            None => Err(format!("{} is asked for, but the record ends after {} calls", asked(), self.calls)),
            Some((function, request, answer)) if function == call.function && request == call.request => {
                self.calls += 1;
                Ok(answer)
            }
            Some((function, request, _)) => Err(format!(
                "{} is asked for, the record has {} here",
                asked(),
                describe_call(&function, &request)
            )),
        }
    }

    /// Function, request and answer of the next call.
    fn next(&mut self) -> Result<Option<Call>, String> {
        let number = self.calls + 1;
        let Some(reader) = &mut self.reader else { return Ok(None) };
        let broken =
            |why: &dyn std::fmt::Display| format!("the record of call {number} is unreadable: {why}");
        let mut line = String::new();
        let taken = reader.by_ref().take(256).read_line(&mut line).map_err(|error| broken(&error))?;
        if taken == 0 {
            return Ok(None);
        }
        let mut words = line.split_whitespace();
        let (Some(function), Some(request), Some(answer)) = (words.next(), words.next(), words.next()) else {
            return Err(broken(&"no head"));
        };
        let part = |length: &str| length.parse::<u64>().ok().filter(|length| *length <= MAX_PART);
        let (Some(request), Some(answer)) = (part(request), part(answer)) else {
            return Err(broken(&"lengths that cannot be"));
        };
        let mut bytes = |length: u64| -> Result<Vec<u8>, String> {
            let mut part = Vec::new();
            let taken = reader.by_ref().take(length).read_to_end(&mut part).map_err(|e| broken(&e))?;
            if taken as u64 == length { Ok(part) } else { Err(broken(&"it ends too early")) }
        };
        let (request, answer, end) = (bytes(request)?, bytes(answer)?, bytes(1)?);
        if end != b"\n" {
            return Err(broken(&"no line break after it"));
        }
        Ok(Some((function.to_owned(), request, answer)))
    }
}

/// Function, request and answer.
type Call = (String, Vec<u8>, Vec<u8>);

/// A call, for people: a request of a number as a number, any other as text.
fn describe_call(function: &str, request: &[u8]) -> String {
    const MAX: usize = 160;
    if let Ok(number) = <[u8; 8]>::try_from(request) {
        return format!("{function} ({} bytes)", u64::from_le_bytes(number));
    }
    let text = String::from_utf8_lossy(request);
    match text::clip(&text, MAX, Count::Chars) {
        nothing if nothing.is_empty() => function.to_owned(),
        request => format!("{function} {request}"),
    }
}

impl HostCallTrace for RecordedCalls {
    fn recorded_answer(&mut self, call: &HostCall<'_>) -> Result<Option<Vec<u8>>, String> {
        self.next_answer(call).map(Some)
    }

    fn record_answer(&mut self, _: &HostCall<'_>, _: &[u8]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_call<'a>(function: &'static str, request: &'a [u8]) -> HostCall<'a> {
        HostCall { function, request }
    }

    #[test]
    fn what_was_recorded_answers_in_order_and_nothing_else_does() {
        let store = Store::in_memory().unwrap();
        let mut recording = Recording::new(&store);
        recording.record_answer(&sample_call("random.get", &[8]), b"12\n 45678");
        recording.record_answer(&sample_call("wall-clock.now", b""), b"");
        let blob = recording.finish().unwrap().unwrap();

        let mut recorded = RecordedCalls::open(&store, &blob.digest).unwrap();
        assert_eq!(
            recorded.recorded_answer(&sample_call("random.get", &[8])),
            Ok(Some(b"12\n 45678".to_vec()))
        );
        assert_eq!(recorded.recorded_answer(&sample_call("wall-clock.now", b"")), Ok(Some(Vec::new())));
        let error = recorded.recorded_answer(&sample_call("http", b"")).unwrap_err();
        assert_eq!(error, "http is asked for, but the record ends after 2 calls");
        assert_eq!(recorded.check_complete(), Ok(()));
        assert_eq!(RecordedCalls::without_calls().check_complete(), Ok(()));
        let left = RecordedCalls::open(&store, &blob.digest).unwrap().check_complete().unwrap_err();
        assert!(left.contains("nothing more is asked"), "{left}");

        for other in [sample_call("random.get", &[9]), sample_call("http", &[8])] {
            let mut recorded = RecordedCalls::open(&store, &blob.digest).unwrap();
            assert!(recorded.recorded_answer(&other).unwrap_err().contains("the record has random.get"));
        }
    }

    #[test]
    fn nothing_asked_is_no_record() {
        let store = Store::in_memory().unwrap();
        assert_eq!(Recording::new(&store).finish().unwrap(), None);
    }

    #[test]
    fn a_damaged_record_is_an_error() {
        let store = Store::in_memory().unwrap();
        for text in
            ["random.get 1", "random.get 1 99999999999999\n", "random.get 1 5\n\x08abc", "random.get x y\n"]
        {
            let blob = store.put_blob(text.as_bytes()).unwrap();
            let mut recorded = RecordedCalls::open(&store, &blob.digest).unwrap();
            assert!(
                recorded
                    .recorded_answer(&sample_call("random.get", &[8]))
                    .unwrap_err()
                    .contains("unreadable"),
                "{text:?}"
            );
        }
    }
}
