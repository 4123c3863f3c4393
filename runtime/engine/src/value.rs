//! Results that are passed between steps: text and items. They may be too large for memory, and are then read from the
//! store only when they are needed.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::{Arc, OnceLock};

use serde::ser::{Error as _, SerializeSeq};
use serde::{Serialize, Serializer};
use serde_json::Value;

use lobster_base::json;
use lobster_stage::{Flow, Payload, Rendering, Sink, Spool, Stop, store_failure};
use lobster_store::{Blob, BlobWriter, Store, StoreError};

/// The input of a step.
#[derive(Clone, Debug)]
pub(crate) enum InputValue {
    Nothing,
    Text(Text),
    Json(Arc<Value>),
}

impl InputValue {
    /// The whole input in memory; `None` if there is none.
    pub(crate) fn load_value(self) -> Result<Option<Arc<Value>>, Stop> {
        Ok(Some(match self {
            Self::Nothing => return Ok(None),
            Self::Text(text) => Arc::new(Value::String(text.load().map_err(store_failure)?.to_string())),
            Self::Json(value) => value,
        }))
    }

    /// Null means no input, and a string is text.
    pub(crate) fn from_value(value: Arc<Value>) -> Self {
        match &*value {
            Value::Null => Self::Nothing,
            Value::String(_) => Self::Text(Text::of_value(value)),
            _ => Self::Json(value),
        }
    }
}

/// Text of a step, decoded as UTF-8 with replacement when it is read.
#[derive(Clone)]
pub(crate) struct Text(Arc<TextInner>);

struct TextInner {
    source: TextSource,
    loaded: OnceLock<Arc<str>>,
}

enum TextSource {
    Inline,
    Value(Arc<Value>),
    Items(Arc<Vec<Value>>),
    Stored(Store, Blob),
    /// The output of the step at this path, which is missing from the record.
    LeftOut(Arc<str>),
}

impl Text {
    pub(crate) fn inline(text: impl Into<Arc<str>>) -> Self {
        Self(Arc::new(TextInner { source: TextSource::Inline, loaded: OnceLock::from(text.into()) }))
    }

    pub(crate) fn from_blob(store: &Store, blob: Blob) -> Self {
        Self::from_source(TextSource::Stored(store.clone(), blob))
    }

    /// A string unchanged, any other value as JSON; written only when it is read.
    pub(crate) fn of_value(value: Arc<Value>) -> Self {
        Self::from_source(TextSource::Value(value))
    }

    /// One item per line if all items are strings, else JSON: of a single item, or of all items as an array. Written
    /// only when it is read.
    pub(crate) fn of_items(items: Arc<Vec<Value>>) -> Self {
        Self::from_source(TextSource::Items(items))
    }

    /// Text that cannot be read.
    pub(crate) fn left_out(path: Arc<str>) -> Self {
        Self::from_source(TextSource::LeftOut(path))
    }

    fn from_source(source: TextSource) -> Self {
        Self(Arc::new(TextInner { source, loaded: OnceLock::new() }))
    }

    /// True if it is the empty text, without loading it.
    pub(crate) fn is_empty(&self) -> bool {
        let is_empty = |value: &Value| value.as_str().is_some_and(str::is_empty);
        match &self.0.source {
            TextSource::Stored(_, blob) => blob.len == 0,
            TextSource::Value(value) => is_empty(value),
            TextSource::Items(items) => match items.as_slice() {
                [] => true,
                [only] => is_empty(only),
                _ => false,
            },
            TextSource::Inline => self.0.loaded.get().is_none_or(|text| text.is_empty()),
            TextSource::LeftOut(_) => false,
        }
    }

    /// Its number of bytes in the store; 0 if the text is in memory.
    pub(crate) fn stored_len(&self) -> u64 {
        match &self.0.source {
            TextSource::Stored(_, blob) => blob.len,
            TextSource::Inline | TextSource::Value(_) | TextSource::Items(_) | TextSource::LeftOut(_) => 0,
        }
    }

    /// The whole text.
    pub(crate) fn load(&self) -> Result<Arc<str>, StoreError> {
        if let Some(text) = self.0.loaded.get() {
            return Ok(Arc::clone(text));
        }
        let text = match &self.0.source {
            TextSource::Inline => String::new(),
            TextSource::Value(value) => value_text(value),
            TextSource::Items(items) => items_text(items),
            TextSource::LeftOut(path) => return Err(StoreError::LeftOut(path.to_string())),
            TextSource::Stored(store, blob) => String::from_utf8(store.load_blob(&blob.digest, u64::MAX)?)
                .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
        };
        Ok(Arc::clone(self.0.loaded.get_or_init(|| text.into())))
    }

    /// Its bytes, unchanged, as a stream.
    pub(crate) fn open_reader(&self) -> io::Result<impl BufRead + use<>> {
        let reader = self.to_payload().map_err(io::Error::other)?.open()?;
        Ok(BufReader::with_capacity(PIECE, reader))
    }

    /// The bytes for another step's stdin: shared, not copied. Bytes that are not UTF-8 are passed on unchanged.
    pub(crate) fn to_payload(&self) -> Result<Payload, StoreError> {
        match &self.0.source {
            TextSource::Stored(store, blob) => Ok(match store.blob_file(&blob.digest)? {
                Some(file) => Payload::File(file),
                None => Payload::Bytes(store.load_blob(&blob.digest, u64::MAX)?.into()),
            }),
            TextSource::Inline | TextSource::Value(_) | TextSource::Items(_) | TextSource::LeftOut(_) => {
                Ok(Payload::Bytes(self.load()?.into()))
            }
        }
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.source {
            TextSource::Inline => write!(f, "{:?}", self.0.loaded.get()),
            TextSource::Value(value) => write!(f, "Text({value:?})"),
            TextSource::Items(items) => write!(f, "Text({items:?})"),
            TextSource::Stored(_, blob) => write!(f, "Text({:?}, {} bytes)", blob.digest, blob.len),
            TextSource::LeftOut(path) => write!(f, "Text(left out at {path})"),
        }
    }
}

fn value_text(value: &Value) -> String {
    value.as_str().map_or_else(|| json::compact(value), str::to_owned)
}

fn items_text(items: &[Value]) -> String {
    match items {
        [] => String::new(),
        [only] => value_text(only),
        many if many.iter().all(Value::is_string) => {
            many.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
        }
        many => json::compact(&many),
    }
}

/// Bytes of a text that are read at a time.
const PIECE: usize = 256 << 10;

/// Most items, and most bytes of items, that are held in memory between two steps. More items go to the store as JSON
/// Lines.
const MAX_ITEMS_IN_MEMORY: usize = 4096;
const MAX_BYTES_IN_MEMORY: usize = 4 << 20;

/// A sequence of items, in memory or in the store.
#[derive(Clone, Debug)]
pub(crate) enum Items {
    Memory(Arc<Vec<Value>>),
    Stored { store: StoreHandle, blob: Blob, count: usize },
}

/// A [`Store`] that prints as nothing.
#[derive(Clone)]
pub(crate) struct StoreHandle(pub(crate) Store);

impl fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

impl From<Vec<Value>> for Items {
    fn from(items: Vec<Value>) -> Self {
        Self::Memory(Arc::new(items))
    }
}

impl Items {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Memory(items) => items.len(),
            Self::Stored { count, .. } => *count,
        }
    }

    /// Passes each item to `take` until it returns that it wants no more.
    pub(crate) fn for_each<E: From<io::Error>>(
        &self,
        mut take: impl FnMut(Value) -> Result<Flow, E>,
    ) -> Result<(), E> {
        self.visit_each(|item| take(item.into_owned()))
    }

    /// Shows each item to `take` until it returns that it wants no more.
    pub(crate) fn visit_each<E: From<io::Error>>(
        &self,
        mut take: impl FnMut(Cow<'_, Value>) -> Result<Flow, E>,
    ) -> Result<(), E> {
        match self {
            Self::Memory(items) => {
                for item in items.iter() {
                    if take(Cow::Borrowed(item))? == Flow::Enough {
                        break;
                    }
                }
            }
            Self::Stored { store, blob, .. } => {
                let reader =
                    store.0.open_blob(&blob.digest).map_err(|error| E::from(io::Error::other(error)))?;
                for line in BufReader::with_capacity(64 << 10, reader).lines() {
                    let item = json::parse(&line?).map_err(|error| E::from(io::Error::other(error)))?;
                    if take(Cow::Owned(item))? == Flow::Enough {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// All items at once.
    pub(crate) fn load_all(&self) -> io::Result<Arc<Vec<Value>>> {
        if let Self::Memory(items) = self {
            return Ok(Arc::clone(items));
        }
        let mut items = Vec::with_capacity(self.len());
        self.for_each(|item| {
            items.push(item);
            Ok::<_, io::Error>(Flow::More)
        })?;
        Ok(Arc::new(items))
    }
}

/// Collects items, and moves them to the store when there are many.
pub(crate) struct ItemSpool {
    store: Store,
    memory: Vec<Value>,
    bytes: usize,
    spilled: Option<(BlobWriter, usize)>,
}

impl ItemSpool {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, memory: Vec::new(), bytes: 0, spilled: None }
    }

    pub(crate) fn push(&mut self, item: Value) -> io::Result<()> {
        if let Some((writer, count)) = &mut self.spilled {
            *count += 1;
            return write_line(writer, &item);
        }
        self.bytes += memory_size(&item);
        self.memory.push(item);
        if self.memory.len() > MAX_ITEMS_IN_MEMORY || self.bytes > MAX_BYTES_IN_MEMORY {
            let mut writer = self.store.blob_writer();
            for item in &self.memory {
                write_line(&mut writer, item)?;
            }
            self.spilled = Some((writer, std::mem::take(&mut self.memory).len()));
        }
        Ok(())
    }

    /// Takes back the spool that was lent to a stage.
    pub(crate) fn taken_back(spool: Box<dyn Spool>) -> io::Result<Box<Self>> {
        spool.into_any().downcast().map_err(|_| io::Error::other("the items were collected by another host"))
    }

    pub(crate) fn finish(self) -> io::Result<Items> {
        match self.spilled {
            None => Ok(self.memory.into()),
            Some((writer, count)) => {
                let blob = writer.finish().map_err(io::Error::other)?;
                Ok(Items::Stored { store: StoreHandle(self.store), blob, count })
            }
        }
    }
}

impl Spool for ItemSpool {
    fn push_item(&mut self, item: Value) -> io::Result<()> {
        Self::push(self, item)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Sink for ItemSpool {
    fn emit_item(&mut self, item: Value) -> Result<Flow, Stop> {
        self.push(item)?;
        Ok(Flow::More)
    }
}

fn write_line(writer: &mut impl Write, item: &Value) -> io::Result<()> {
    json::write_compact(&mut *writer, item)?;
    writer.write_all(b"\n")
}

/// Writes items as one JSON array on one line.
pub(crate) fn write_array(mut writer: &mut impl Write, items: &Items) -> io::Result<()> {
    let mut separator: &[u8] = b"[";
    items.visit_each(|item| {
        writer.write_all(separator)?;
        separator = b",";
        json::write_compact(&mut writer, &*item)?;
        Ok::<_, io::Error>(Flow::More)
    })?;
    writer.write_all(if items.len() == 0 { b"[]" } else { b"]" })
}

/// The approximate size of a value in memory, in bytes.
fn memory_size(value: &Value) -> usize {
    const CELL: usize = size_of::<Value>();
    CELL + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(memory_size).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| CELL + key.len() + memory_size(value)).sum(),
    }
}

/// The output of a pipeline's renderers.
#[derive(Debug, Default)]
pub(crate) struct Rendered {
    text: String,
    /// Start of the last rendering, and its kind.
    last: Option<(usize, Rendering)>,
}

impl Rendered {
    pub(crate) fn push(&mut self, text: &str, rendering: Rendering) {
        self.last = Some((self.text.len(), rendering));
        self.text.push_str(text);
    }

    /// All renderings, one after the other, if they have any text.
    pub(crate) fn all_text(&self) -> Option<Text> {
        (!self.text.is_empty()).then(|| Text::inline(self.text.as_str()))
    }

    /// The last rendering alone.
    pub(crate) fn last_output(&self) -> Option<RunOutput> {
        let (start, rendering) = self.last?;
        let text = Text::inline(&self.text[start..]);
        Some(match rendering {
            Rendering::Text => RunOutput::from_text(text),
            Rendering::List => RunOutput(Parts::List(text)),
        })
    }
}

/// The output of a finished run: the envelope's `output`.
#[derive(Clone, Debug)]
pub struct RunOutput(Parts);

#[derive(Clone, Debug)]
enum Parts {
    Items(Items),
    Text(Text),
    /// The elements of a list that was rendered as JSON.
    List(Text),
}

impl RunOutput {
    /// No items.
    #[must_use]
    pub fn empty() -> Self {
        Vec::new().into()
    }

    pub(crate) fn from_items(items: Items) -> Self {
        Self(Parts::Items(items))
    }

    /// One item, the text, unless it is empty.
    pub(crate) fn from_text(text: Text) -> Self {
        if text.is_empty() { Self::empty() } else { Self(Parts::Text(text)) }
    }

    /// True if there is nothing to print.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Parts::Items(items) => items.len() == 0,
            Parts::Text(text) | Parts::List(text) => text.is_empty(),
        }
    }

    /// The blob with the items, if they were too many for memory.
    pub(crate) fn stored_blob(&self) -> Option<Blob> {
        match &self.0 {
            Parts::Items(Items::Stored { blob, .. }) => Some(*blob),
            Parts::Items(Items::Memory(_)) | Parts::Text(_) | Parts::List(_) => None,
        }
    }

    /// One item per line, as JSON, unless that is more than `max` bytes.
    pub(crate) fn json_lines(&self, max: usize) -> io::Result<Option<Vec<u8>>> {
        let items = match &self.0 {
            Parts::Items(items) => items.clone(),
            Parts::Text(_) | Parts::List(_) => self.to_vec()?.into(),
        };
        let mut lines = Vec::new();
        items.visit_each(|item| {
            write_line(&mut lines, &item)?;
            Ok::<_, io::Error>(if lines.len() > max { Flow::Enough } else { Flow::More })
        })?;
        Ok((lines.len() <= max).then_some(lines))
    }

    /// All items in memory.
    ///
    /// # Errors
    /// If the store cannot return them.
    pub fn to_vec(&self) -> io::Result<Vec<Value>> {
        match &self.0 {
            Parts::Items(items) => Ok(items.load_all()?.to_vec()),
            Parts::Text(text) => Ok(vec![Value::String(text.load().map_err(io::Error::other)?.to_string())]),
            Parts::List(text) => {
                let text = text.load().map_err(io::Error::other)?;
                // An item of the greatest permitted depth is one level deeper inside a list, and stays text.
                Ok(json::parse_as(&text).unwrap_or_else(|_| vec![Value::String(text.to_string())]))
            }
        }
    }
}

impl From<Vec<Value>> for RunOutput {
    fn from(items: Vec<Value>) -> Self {
        Self(Parts::Items(items.into()))
    }
}

impl Serialize for RunOutput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Parts::Items(items) = &self.0 else {
            return self.to_vec().map_err(S::Error::custom)?.serialize(serializer);
        };
        let mut seq = serializer.serialize_seq(Some(items.len()))?;
        let mut failure = None;
        let read = items.visit_each(|item| {
            if let Err(error) = seq.serialize_element(&*item) {
                failure = Some(error);
                return Ok(Flow::Enough);
            }
            Ok::<_, io::Error>(Flow::More)
        });
        if let Some(error) = failure {
            return Err(error);
        }
        read.map_err(S::Error::custom)?;
        seq.end()
    }
}

/// All bytes of a reader, at most `max` of them.
pub(crate) fn read_to_end(mut reader: impl Read, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.by_ref().take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}
