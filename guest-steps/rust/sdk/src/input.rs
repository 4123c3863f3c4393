//! A step's input.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::marker::PhantomData;

use serde::de::DeserializeOwned;

use crate::StepError;
use crate::payload::{Any, Bytes};

/// Items asked of the host at once: few enough to stay small, enough to make
/// the crossing cheap.
const ITEMS_AT_ONCE: u32 = 64;

/// Bytes asked of the host at once.
const BYTES_AT_ONCE: u32 = 64 * 1024;

/// What the host (or a test) gives.
pub(crate) trait Source {
    fn kind(&self) -> Kind;
    fn read(&mut self, max: u32) -> Result<Vec<u8>, StepError>;
    fn next(&mut self, max: u32) -> Result<Vec<String>, StepError>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Empty,
    Bytes,
    Items,
}

/// A step's input. For items it is an iterator of `Result<T, StepError>`, for
/// [`Bytes`] a reader; [`Any`] offers both. It streams: a step that does not
/// keep items can take more than fits its memory.
pub struct Input<T> {
    source: Box<dyn Source>,
    items: VecDeque<String>,
    bytes: VecDeque<u8>,
    taken: u64,
    of: PhantomData<fn() -> T>,
}

impl<T> Input<T> {
    pub(crate) fn new(source: Box<dyn Source>) -> Self {
        Self { source, items: VecDeque::new(), bytes: VecDeque::new(), taken: 0, of: PhantomData }
    }

    /// Whether the step was given no input at all, which is not the same as an
    /// input without items.
    pub fn is_absent(&self) -> bool {
        self.source.kind() == Kind::Empty
    }

    /// Whether the input is a stream of JSON items rather than bytes.
    pub fn is_items(&self) -> bool {
        self.source.kind() == Kind::Items
    }

    fn next_as<I: DeserializeOwned>(&mut self) -> Option<Result<I, StepError>> {
        if self.items.is_empty() {
            match self.source.next(ITEMS_AT_ONCE) {
                Ok(more) => self.items.extend(more),
                Err(error) => return Some(Err(error)),
            }
        }
        let text = self.items.pop_front()?;
        self.taken += 1;
        Some(serde_json::from_str(&text).map_err(|error| {
            StepError::bad_input(format!("input item {} does not fit: {error}", self.taken))
        }))
    }

    fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        if self.bytes.is_empty() {
            self.bytes.extend(self.source.read(BYTES_AT_ONCE)?);
        }
        self.bytes.read(buffer)
    }

    fn all_bytes(&mut self) -> Result<Vec<u8>, StepError> {
        let mut all: Vec<u8> = std::mem::take(&mut self.bytes).into();
        loop {
            let more = self.source.read(BYTES_AT_ONCE)?;
            if more.is_empty() {
                return Ok(all);
            }
            all.extend(more);
        }
    }
}

impl<T: DeserializeOwned> Iterator for Input<T> {
    type Item = Result<T, StepError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_as()
    }
}

impl Read for Input<Bytes> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_some(buffer)
    }
}

impl Read for Input<Any> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_some(buffer)
    }
}

impl Input<Bytes> {
    /// Everything that is left.
    ///
    /// # Errors
    /// If the host cannot give more.
    pub fn bytes(&mut self) -> Result<Vec<u8>, StepError> {
        self.all_bytes()
    }

    /// Everything that is left, as text.
    ///
    /// # Errors
    /// `bad-input` if it is not UTF-8, and if the host cannot give more.
    pub fn text(&mut self) -> Result<String, StepError> {
        text(self.all_bytes()?)
    }
}

impl Input<Any> {
    /// The items, read as `I`. Bytes are one text item.
    pub fn items<I: DeserializeOwned>(&mut self) -> impl Iterator<Item = Result<I, StepError>> {
        std::iter::from_fn(|| self.next_as())
    }

    /// Everything that is left; items come as JSON Lines.
    ///
    /// # Errors
    /// If the host cannot give more.
    pub fn bytes(&mut self) -> Result<Vec<u8>, StepError> {
        self.all_bytes()
    }

    /// Everything that is left, as text; items come as JSON Lines.
    ///
    /// # Errors
    /// `bad-input` if it is not UTF-8, and if the host cannot give more.
    pub fn text(&mut self) -> Result<String, StepError> {
        text(self.all_bytes()?)
    }
}

fn text(bytes: Vec<u8>) -> Result<String, StepError> {
    String::from_utf8(bytes).map_err(|error| {
        StepError::bad_input(format!(
            "the input is not UTF-8: byte {} is wrong",
            error.utf8_error().valid_up_to()
        ))
    })
}
