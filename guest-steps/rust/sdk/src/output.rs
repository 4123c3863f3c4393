//! A step's output.

use std::io::{self, Write};
use std::marker::PhantomData;

use serde::Serialize;

use crate::StepError;
use crate::payload::{Any, Bytes};

/// Items are handed to the host in groups, as soon as either figure is reached.
const ITEMS_AT_ONCE: usize = 64;
const ITEM_BYTES_AT_ONCE: usize = 64 * 1024;

/// What takes the output: the host, or a test.
pub(crate) trait Sink {
    fn write(&mut self, bytes: &[u8]) -> Result<(), StepError>;
    fn emit(&mut self, items: &[String]) -> Result<(), StepError>;
}

/// A step's output: items of `T`, or a writer for [`Bytes`], or either for [`Any`].
pub struct Output<T> {
    sink: Box<dyn Sink>,
    items: Vec<String>,
    item_bytes: usize,
    of: PhantomData<fn(T)>,
}

impl<T> Output<T> {
    pub(crate) fn new(sink: Box<dyn Sink>) -> Self {
        Self { sink, items: Vec::new(), item_bytes: 0, of: PhantomData }
    }

    fn emit_one(&mut self, item: &impl Serialize) -> Result<(), StepError> {
        let text = serde_json::to_string(item)
            .map_err(|error| StepError::new("bad-output", format!("an item is not JSON: {error}")))?;
        self.item_bytes += text.len();
        self.items.push(text);
        if self.items.len() >= ITEMS_AT_ONCE || self.item_bytes >= ITEM_BYTES_AT_ONCE {
            self.flush_items()?;
        }
        Ok(())
    }

    /// Hands on what is still buffered. The macro calls it at the end; call it
    /// before a long pause so that the next step can start.
    ///
    /// # Errors
    /// If the host takes no more.
    pub fn flush_items(&mut self) -> Result<(), StepError> {
        if self.items.is_empty() {
            return Ok(());
        }
        self.sink.emit(&self.items)?;
        self.items.clear();
        self.item_bytes = 0;
        Ok(())
    }
}

impl<T: Serialize> Output<T> {
    /// Gives one item.
    ///
    /// # Errors
    /// If the item cannot be JSON, and if the host takes no more.
    pub fn emit(&mut self, item: &T) -> Result<(), StepError> {
        self.emit_one(item)
    }
}

impl Output<Any> {
    /// Gives one item. A step gives items or bytes, not both.
    ///
    /// # Errors
    /// If the item cannot be JSON, and if the host takes no more.
    pub fn item(&mut self, item: &impl Serialize) -> Result<(), StepError> {
        self.emit_one(item)
    }
}

impl Write for Output<Bytes> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.write(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Output<Any> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sink.write(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
