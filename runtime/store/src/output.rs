//! The output of a process, stored as it arrives (invariant E11).
//!
//! While a native step runs, its output is in `output/<run>-<place>`: a line of JSON that names the step, then pieces
//! in the order of arrival, each with its stream and time. The file is created with the first byte and never synced,
//! so it survives the process, but not a power cut. When the end of the step is recorded, its streams are blobs named
//! by the record, and the file is removed. If lobster is killed before that, the file stays and belongs to the run:
//! `logs` reads it, `resume` moves it into the record, and a collection removes it together with the run.
//!
//! The stored output contains no secrets: the caller redacts each stream first ([`super::Redactor`]).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use lobster_base::digest::Digest;
use lobster_base::regular_file;
use lobster_base::sync::lock;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::blob::{Blob, BlobWriter};
use super::error::StoreError;
use super::event::{RunId, StepOutcome};
use super::gc::dir_entries;
use super::{Store, private};

/// The directory within the store.
pub(super) const OUTPUT: &str = "output";

/// Most bytes kept of a stream.
const KEPT_AT_MOST: u64 = 512 << 20;

/// Pieces of one stream within this many milliseconds share an entry of the order.
const ONE_ENTRY_MS: u64 = 10;

/// Longest first line of a file; it contains the path of a step.
const LONGEST_NAME: usize = 64 << 10;

/// Bytes of a piece read at a time.
const CHUNK: usize = 64 << 10;

/// Field of an outcome's detail: the stdout of a process that was stopped. Later steps do not read it.
pub const PARTIAL_STDOUT: &str = "partial_stdout";

/// Field of an outcome's detail: the order in which the pieces of both streams arrived, as entries of [`PIECE`] bytes.
pub const OUTPUT_ORDER: &str = "output_order";

/// Field of an outcome's detail: the whole stderr, if the outcome has only its start and its end.
pub const WHOLE_STDERR: &str = "whole_stderr";

/// Bytes before each piece, and bytes of an entry of the order: the stream (1 or 2), milliseconds since the first byte
/// (8 bytes, little-endian), and the length (4 bytes).
const PIECE: usize = 13;

/// An output stream of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl OutputStream {
    /// The name of the stream.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }

    fn to_number(self) -> u8 {
        match self {
            Self::Stdout => 1,
            Self::Stderr => 2,
        }
    }

    fn of_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Stdout),
            2 => Some(Self::Stderr),
            _ => None,
        }
    }
}

/// First line of a file.
#[derive(Serialize, Deserialize)]
struct Heading {
    path: String,
    /// Arrival of the first byte, in milliseconds since 1970.
    at: i64,
}

fn encode_entry(stream: OutputStream, ms: u64, len: u32) -> [u8; PIECE] {
    let mut entry = [0; PIECE];
    entry[0] = stream.to_number();
    entry[1..9].copy_from_slice(&ms.to_le_bytes());
    entry[9..].copy_from_slice(&len.to_le_bytes());
    entry
}

/// Stores the output of one process while it runs.
pub struct OutputLog {
    store: Store,
    run: RunId,
    path: String,
    began: Instant,
    /// `None` before the first byte, or if no file can be written: then only the blobs at the end are stored.
    file: Option<File>,
    is_lost: bool,
    order: Order,
    /// Bytes of stdout and of stderr in the file.
    kept: [u64; 2],
    left_out: [u64; 2],
}

impl OutputLog {
    /// Appends a piece. If it cannot be written, the step continues, and at its end lobster decides what to store.
    pub fn append_piece(&mut self, stream: OutputStream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let index = usize::from(stream == OutputStream::Stderr);
        if self.kept[index] + bytes.len() as u64 > KEPT_AT_MOST {
            self.left_out[index] += bytes.len() as u64;
            return;
        }
        for bytes in bytes.chunks(u32::MAX as usize) {
            let ms = match self.file.is_some() || self.is_lost {
                true => u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX),
                false => {
                    self.began = Instant::now();
                    0
                }
            };
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            self.order.add_entry(stream, ms, len);
            if !self.is_lost && self.write_piece(&encode_entry(stream, ms, len), bytes).is_err() {
                // Part of a piece may have been written, so no other piece may follow it.
                self.is_lost = true;
            }
            self.kept[index] += bytes.len() as u64;
        }
    }

    fn write_piece(&mut self, entry: &[u8], bytes: &[u8]) -> io::Result<()> {
        let mut text = Vec::new();
        if self.file.is_none() {
            let heading = Heading { path: self.path.clone(), at: self.store.now() };
            text.extend(serde_json::to_vec(&heading)?);
            text.push(b'\n');
            self.file = Some(self.store.create_output(self.run, &self.path)?);
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        text.extend_from_slice(entry);
        if bytes.len() <= CHUNK {
            // A single write: readers see all of it or nothing.
            text.extend_from_slice(bytes);
            return file.write_all(&text);
        }
        file.write_all(&text)?;
        file.write_all(bytes)
    }

    /// Number of bytes of stderr so far.
    #[must_use]
    pub fn stderr_len(&self) -> u64 {
        self.kept[1] + self.left_out[1]
    }

    /// Adds to the detail of an outcome what its streams lack: the order of the pieces, and the whole stderr if the
    /// outcome has only its start and end.
    ///
    /// # Errors
    /// If the blobs cannot be written.
    pub fn finish(mut self, outcome: &mut StepOutcome, stderr_is_short: bool) -> Result<(), StoreError> {
        if stderr_is_short && self.kept[1] > 0 && !self.is_lost {
            let mut writer = self.store.verbatim_writer();
            for path in self.store.own_output(self.run, &self.path) {
                copy_stream(&path, OutputStream::Stderr, &mut writer)?;
            }
            if self.left_out[1] > 0 {
                let note = format!("\n[… {} bytes left out …]\n", self.left_out[1]);
                writer.write_all(note.as_bytes()).map_err(|error| writer.store_error(error))?;
            }
            outcome.add_detail(WHOLE_STDERR, json!(writer.finish()?));
        }
        if let Some(order) = std::mem::replace(&mut self.order, Order::new(&self.store)).finish()? {
            outcome.add_detail(OUTPUT_ORDER, json!(order));
        }
        Ok(())
    }
}

/// The entries of the order.
struct Order {
    writer: BlobWriter,
    entries: u64,
    last: Option<(OutputStream, u64, u32)>,
}

impl Order {
    fn new(store: &Store) -> Self {
        Self { writer: store.verbatim_writer(), entries: 0, last: None }
    }

    fn add_entry(&mut self, stream: OutputStream, ms: u64, len: u32) {
        if let Some((last, since, sum)) = &mut self.last
            && *last == stream
            && ms.saturating_sub(*since) < ONE_ENTRY_MS
            && let Some(more) = sum.checked_add(len)
        {
            *sum = more;
            return;
        }
        self.write_last();
        self.last = Some((stream, ms, len));
    }

    fn write_last(&mut self) {
        if let Some((stream, ms, len)) = self.last.take() {
            self.entries += 1;
            // An order that cannot be written is left out.
            if self.writer.write_all(&encode_entry(stream, ms, len)).is_err() {
                self.entries = u64::MAX / 2;
            }
        }
    }

    /// `None` if there is nothing to store: all output is in one piece.
    fn finish(mut self) -> Result<Option<Blob>, StoreError> {
        self.write_last();
        match self.entries {
            2..0x4000_0000_0000_0000 => self.writer.finish().map(Some),
            _ => Ok(None),
        }
    }
}

/// A piece of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPiece {
    /// The stream of the piece.
    pub stream: OutputStream,
    /// Time of arrival, in milliseconds since 1970.
    pub at: i64,
    /// The bytes of the piece.
    pub bytes: Vec<u8>,
}

/// The output of a running step, or of a step whose process died before its end was recorded.
#[derive(Debug)]
pub struct KeptOutput {
    /// The path of the step.
    pub path: String,
    /// Arrival of the first byte, in milliseconds since 1970.
    pub at: i64,
    name: PathBuf,
    file: File,
    /// Position of the first piece.
    begin: u64,
    /// Position read so far.
    offset: u64,
    piece: Option<(OutputStream, u64, u32)>,
}

impl KeptOutput {
    fn open(name: PathBuf) -> io::Result<Self> {
        let file = regular_file::open_own(File::options().read(true), &name)?;
        let mut line = Vec::new();
        io::BufRead::read_until(
            &mut io::BufReader::new((&file).take(LONGEST_NAME as u64)),
            b'\n',
            &mut line,
        )?;
        let Heading { path, at } = serde_json::from_slice(&line)?;
        let begin = line.len() as u64;
        Ok(Self { path, at, name, file, begin, offset: begin, piece: None })
    }

    /// The path of its file, which is unique.
    #[must_use]
    pub fn file_path(&self) -> &Path {
        &self.name
    }

    /// The same output, from the start.
    #[must_use]
    pub fn reopen_from_start(&self) -> Option<Self> {
        let file = self.file.try_clone().ok()?;
        let (path, name) = (self.path.clone(), self.name.clone());
        Some(Self { path, name, file, offset: self.begin, piece: None, ..*self })
    }

    /// The next piece, or the next part of a long piece. `None` at the end of the output so far; more may arrive
    /// later.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn next_piece(&mut self) -> io::Result<Option<OutputPiece>> {
        let (stream, ms, left) = match self.piece {
            Some(piece) => piece,
            None => {
                let mut head = [0; PIECE];
                if !read_all_at(&self.file, &mut head, self.offset)? {
                    return Ok(None);
                }
                let Some(stream) = OutputStream::of_number(head[0]) else { return Ok(None) };
                self.offset += PIECE as u64;
                let (mut ms, mut len) = ([0; 8], [0; 4]);
                ms.copy_from_slice(&head[1..9]);
                len.copy_from_slice(&head[9..]);
                (stream, u64::from_le_bytes(ms), u32::from_le_bytes(len))
            }
        };
        let mut bytes = vec![0; CHUNK.min(left as usize)];
        let length = self.file.read_at(&mut bytes, self.offset)?;
        bytes.truncate(length);
        self.offset += length as u64;
        let left = left - u32::try_from(length).unwrap_or(left);
        self.piece = (left > 0).then_some((stream, ms, left));
        let at = self.at.saturating_add(i64::try_from(ms).unwrap_or(i64::MAX));
        Ok((length > 0).then_some(OutputPiece { stream, at, bytes }))
    }
}

fn read_all_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<bool> {
    match file.read_exact_at(buffer, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// Copies one stream of a file.
fn copy_stream(path: &Path, stream: OutputStream, to: &mut BlobWriter) -> Result<(), StoreError> {
    let failed = |error| StoreError::io("read", path, error);
    let mut kept = KeptOutput::open(path.to_owned()).map_err(failed)?;
    while let Some(piece) = kept.next_piece().map_err(failed)? {
        if piece.stream == stream {
            to.write_all(&piece.bytes).map_err(|error| to.store_error(error))?;
        }
    }
    Ok(())
}

impl StepOutcome {
    /// Adds a field to the detail.
    pub fn add_detail(&mut self, name: &str, what: serde_json::Value) {
        if self.detail.is_null() {
            self.detail = json!({});
        }
        self.detail[name] = what;
    }

    fn noted_blob(&self, name: &str) -> Option<Blob> {
        serde_json::from_value(self.detail.get(name)?.clone()).ok()
    }

    /// All streams of the step that the record keeps, each with its display name.
    pub fn kept_streams(&self) -> impl Iterator<Item = (&'static str, Blob)> {
        let noted = [
            (PARTIAL_STDOUT, "unfinished stdout"),
            (WHOLE_STDERR, "whole stderr"),
            (OUTPUT_ORDER, "order of stdout and stderr"),
        ]
        .map(|(field, name)| (name, self.noted_blob(field)));
        [("output", self.output), ("stdout", self.stdout), ("stderr", self.stderr)]
            .into_iter()
            .chain(noted)
            .filter_map(|(name, blob)| Some((name, blob?)))
    }

    /// The output on stdout, even if the process was stopped.
    #[must_use]
    pub fn kept_stdout(&self) -> Option<Blob> {
        self.stdout.or_else(|| self.noted_blob(PARTIAL_STDOUT))
    }

    /// The whole output on stderr.
    #[must_use]
    pub fn kept_stderr(&self) -> Option<Blob> {
        self.noted_blob(WHOLE_STDERR).or(self.stderr)
    }
}

impl Store {
    /// Stores the output of the step at `path` while it runs.
    #[must_use]
    pub fn output_log(&self, run: RunId, path: &str) -> OutputLog {
        OutputLog {
            store: self.clone(),
            run,
            path: path.to_owned(),
            began: Instant::now(),
            file: None,
            is_lost: false,
            order: Order::new(self),
            kept: [0; 2],
            left_out: [0; 2],
        }
    }

    fn output_dir(&self) -> PathBuf {
        self.inner.dir.join(OUTPUT)
    }

    fn create_output(&self, run: RunId, path: &str) -> io::Result<File> {
        let dir = self.output_dir();
        let mut name = output_name(run, path);
        let open =
            |name: &str| OpenOptions::new().write(true).create_new(true).mode(0o600).open(dir.join(name));
        for another in 2.. {
            match open(&name) {
                Ok(file) => {
                    lock(&self.inner.outputs).insert((run, path.to_owned()), dir.join(name));
                    return Ok(file);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound && !dir.is_dir() => {
                    private::make_dir(&dir)?;
                }
                // An earlier process that died has left its own file.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && another < 100 => {
                    name = format!("{}.{another}", output_name(run, path));
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// The files of this step written by this process.
    fn own_output(&self, run: RunId, path: &str) -> Vec<PathBuf> {
        lock(&self.inner.outputs).get(&(run, path.to_owned())).cloned().into_iter().collect()
    }

    fn left_output(&self, run: RunId, path: &str) -> Vec<PathBuf> {
        let begin = output_name(run, path);
        let mut found = dir_entries(&self.output_dir());
        found.retain(|file| {
            file.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&begin))
        });
        found.sort();
        found
    }

    /// Adds the output of a step to its outcome if the outcome lacks it: the output stored by this process, or that
    /// left by a dead one (`was_left`). [`Store::forget_output`] removes the files once the outcome is recorded.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn add_kept_output(
        &self,
        run: RunId,
        path: &str,
        was_left: bool,
        outcome: &mut StepOutcome,
    ) -> Result<(), StoreError> {
        if outcome.kept_stdout().is_some() || outcome.stderr.is_some() {
            return Ok(());
        }
        let files = if was_left { self.left_output(run, path) } else { self.own_output(run, path) };
        if files.is_empty() {
            return Ok(());
        }
        let mut streams = [self.verbatim_writer(), self.verbatim_writer()];
        let mut order = Order::new(self);
        for file in &files {
            let failed = |error| StoreError::io("read", file, error);
            // A file that is not an output names no step, and stays.
            let Ok(mut kept) = KeptOutput::open(file.clone()) else { continue };
            let begun = kept.at;
            while let Some(piece) = kept.next_piece().map_err(failed)? {
                let writer = &mut streams[usize::from(piece.stream == OutputStream::Stderr)];
                writer.write_all(&piece.bytes).map_err(|error| writer.store_error(error))?;
                let ms = u64::try_from(piece.at - begun).unwrap_or_default();
                order.add_entry(piece.stream, ms, u32::try_from(piece.bytes.len()).unwrap_or(u32::MAX));
            }
        }
        let [stdout, stderr] = streams;
        outcome.add_detail(PARTIAL_STDOUT, json!(stdout.finish()?));
        outcome.stderr = Some(stderr.finish()?);
        if let Some(order) = order.finish()? {
            outcome.add_detail(OUTPUT_ORDER, json!(order));
        }
        Ok(())
    }

    /// True if a dead process has left output of this step.
    #[must_use]
    pub fn has_left_output(&self, run: RunId, path: &str) -> bool {
        !self.left_output(run, path).is_empty()
    }

    /// Removes the files of a step, after an outcome with all their content was recorded.
    pub fn forget_output(&self, run: RunId, path: &str, was_left: bool) {
        let own = lock(&self.inner.outputs).remove(&(run, path.to_owned()));
        let left = if was_left { self.left_output(run, path) } else { Vec::new() };
        for file in own.into_iter().chain(left) {
            // If this fails, the file is ignored by readers and removed with its run.
            let _ = fs::remove_file(file);
        }
    }

    /// Removes the outputs of runs that no longer exist, and returns their number.
    pub(super) fn sweep_outputs(
        &self,
        is_known: &dyn Fn(RunId) -> Result<bool, StoreError>,
        dry_run: bool,
    ) -> Result<u64, StoreError> {
        let mut swept = 0;
        for file in dir_entries(&self.output_dir()) {
            let Some(run) = run_of_output(&file) else { continue };
            if self.is_claimed(run) || is_known(run)? {
                continue;
            }
            swept += 1;
            if !dry_run {
                fs::remove_file(&file).map_err(|error| StoreError::io("remove", &file, error))?;
            }
        }
        Ok(swept)
    }

    /// The outputs of a run that are not (yet) in its record, in the order of their first byte.
    #[must_use]
    pub fn kept_outputs(&self, run: RunId) -> Vec<KeptOutput> {
        let begin = format!("{run}-");
        let is_of_run = |file: &PathBuf| {
            file.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&begin))
        };
        let files = dir_entries(&self.output_dir()).into_iter().filter(is_of_run);
        let mut found: Vec<_> = files.filter_map(|file| KeptOutput::open(file).ok()).collect();
        found.sort_by(|a, b| (a.at, &a.path).cmp(&(b.at, &b.path)));
        found
    }
}

fn output_name(run: RunId, path: &str) -> String {
    let place = Digest::of_bytes(path.as_bytes()).to_string();
    format!("{run}-{}", &place[..16])
}

/// The run that an output file belongs to.
fn run_of_output(file: &Path) -> Option<RunId> {
    file.file_name()?.to_str()?.rsplit_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::StepStatus;

    fn read_pieces(kept: &mut KeptOutput) -> Vec<(OutputStream, String)> {
        let mut found = Vec::new();
        while let Some(piece) = kept.next_piece().unwrap() {
            found.push((piece.stream, String::from_utf8(piece.bytes).unwrap()));
        }
        found
    }

    #[test]
    fn pieces_are_read_in_order_while_they_come_and_become_blobs() {
        use OutputStream::{Stderr, Stdout};
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let run = RunId::new().unwrap();
        let mut log = store.output_log(run, "a/b");
        assert!(store.kept_outputs(run).is_empty(), "a step that prints nothing has no file");
        log.append_piece(Stdout, b"o1\n");
        log.append_piece(Stderr, b"e1\n");
        let mut kept = store.kept_outputs(run);
        assert_eq!(kept[0].path, "a/b");
        assert_eq!(read_pieces(&mut kept[0]), [(Stdout, "o1\n".to_owned()), (Stderr, "e1\n".to_owned())]);
        let long = "x".repeat(3 * CHUNK);
        log.append_piece(Stdout, long.as_bytes());
        let more: String = read_pieces(&mut kept[0]).into_iter().map(|(_, text)| text).collect();
        assert_eq!(more, long);
        assert!(store.kept_outputs(RunId::new().unwrap()).is_empty());

        // The process died.
        drop(log);
        lock(&store.inner.outputs).clear();
        let mut outcome = StepOutcome::new(StepStatus::Interrupted);
        store.add_kept_output(run, "a/b", false, &mut outcome).unwrap();
        assert_eq!(outcome.kept_stdout(), None);
        store.add_kept_output(run, "a/b", true, &mut outcome).unwrap();
        let load =
            |blob: Option<Blob>| String::from_utf8(store.load_blob(&blob.unwrap().digest, u64::MAX).unwrap());
        assert_eq!(load(outcome.kept_stdout()).unwrap(), format!("o1\n{long}"));
        assert_eq!(load(outcome.kept_stderr()).unwrap(), "e1\n");
        let order = store.load_blob(&outcome.noted_blob(OUTPUT_ORDER).unwrap().digest, u64::MAX).unwrap();
        let entries: Vec<(u8, u32)> = order
            .chunks(PIECE)
            .map(|entry| (entry[0], u32::from_le_bytes(entry[9..].try_into().unwrap())))
            .collect();
        assert_eq!(entries, [(1, 3), (2, 3), (1, 3 * CHUNK as u32)]);
        store.forget_output(run, "a/b", true);
        assert!(store.kept_outputs(run).is_empty());
    }

    #[test]
    fn a_file_that_breaks_off_is_read_to_its_last_byte() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let run = RunId::new().unwrap();
        let mut log = store.output_log(run, "a");
        log.append_piece(OutputStream::Stdout, b"first");
        log.append_piece(OutputStream::Stderr, b"second");
        let name = store.kept_outputs(run)[0].file_path().to_owned();
        let whole = fs::read(&name).unwrap();
        let heading = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for length in 0..whole.len() {
            fs::write(&name, &whole[..length]).unwrap();
            let found: String =
                store.kept_outputs(run).iter_mut().flat_map(read_pieces).map(|(_, text)| text).collect();
            assert!("firstsecond".starts_with(&found));
            let payload = length.saturating_sub(heading + PIECE).min(5)
                + length.saturating_sub(heading + 2 * PIECE + 5);
            assert_eq!(found.len(), payload, "{length}");
        }
    }
}
