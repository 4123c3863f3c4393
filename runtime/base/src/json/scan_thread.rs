//! Scans text on a separate thread while it arrives.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use super::scanner::{NotPlain, Scanner};

/// Shorter text is not scanned, since its reader parses it as a whole.
const BEGIN: usize = 1 << 20;

/// Bytes that are handed over at a time; the next constant limits the waiting pieces.
const PIECE: usize = 256 << 10;
const AHEAD: usize = 8;

/// Checks that all text is JSON as defined by a [`Scanner`].
#[derive(Default)]
pub struct ScanThread {
    held: Vec<u8>,
    scan: Option<Scan>,
    /// True if the rest need not be checked.
    over: bool,
}

struct Scan {
    pieces: SyncSender<Vec<u8>>,
    thread: JoinHandle<Result<(), NotPlain>>,
}

impl ScanThread {
    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.over {
            return;
        }
        self.held.extend_from_slice(bytes);
        if self.held.len() >= if self.scan.is_some() { PIECE } else { BEGIN } {
            let piece = std::mem::replace(&mut self.held, Vec::with_capacity(2 * PIECE));
            self.over = self.hand_over(piece).is_none();
        }
    }

    /// `None` if the scan has ended.
    fn hand_over(&mut self, piece: Vec<u8>) -> Option<()> {
        if self.scan.is_none() {
            let (pieces, coming) = sync_channel(AHEAD);
            let thread = std::thread::Builder::new().name("json".to_owned());
            self.scan = Some(Scan { pieces, thread: thread.spawn(move || scan_pieces(&coming)).ok()? });
        }
        self.scan.as_ref()?.pieces.send(piece).ok()
    }

    /// The result at the end of the text; `None` if it was too short to be scanned.
    pub fn finish(mut self) -> Option<bool> {
        if self.scan.is_some() && !self.over {
            let rest = std::mem::take(&mut self.held);
            let _ = self.hand_over(rest);
        }
        let Scan { pieces, thread } = self.scan?;
        drop(pieces);
        Some(matches!(thread.join(), Ok(Ok(()))))
    }
}

fn scan_pieces(pieces: &Receiver<Vec<u8>>) -> Result<(), NotPlain> {
    let mut scanner = Scanner::new();
    for piece in pieces {
        scanner.push(&piece)?;
    }
    scanner.finish_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan_verdict(text: &[u8]) -> Option<bool> {
        let mut aside = ScanThread::default();
        text.chunks(50_000).for_each(|chunk| aside.push(chunk));
        aside.finish()
    }

    #[test]
    fn long_text_is_judged_and_short_text_left_alone() {
        let long = |end: &str| format!("[{}{end}", "[1,\"é\"],\n".repeat(400_000)).into_bytes();
        assert_eq!(scan_verdict(&long("2]")), Some(true));
        assert_eq!(scan_verdict(&long("2")), Some(false));
        assert_eq!(scan_verdict(&long("oops]")), Some(false));
        assert_eq!(scan_verdict(&[b"oops".as_slice(), &long("2]")].concat()), Some(false));
        assert_eq!(scan_verdict(b"[1, 2]"), None);
    }
}
