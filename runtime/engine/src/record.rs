//! The record of a step for later steps, and the scopes in which records are visible.

use std::borrow::Cow;
use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, OnceLock};
use std::{fmt, io};

use serde_json::Value;

use super::path::StepPath;
use super::value::{ItemSpool, Items, RunOutput, Text};
use lobster_base::json::stream::{self, Compacted};
use lobster_base::json::{self, JsonError};
use lobster_base::sync::lock;
use lobster_language::template::{ExprError, Lookup, Reference, Scope as Lookups};
use lobster_stage::{Stop, store_failure};
use lobster_stages::exec::output;
use lobster_store::{Store, StoreError};

/// The result record of a step, which `$id.path` reads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) stdout: Option<Text>,
    pub(crate) json: Json,
    pub(crate) approved: bool,
    pub(crate) approved_by: Option<String>,
    pub(crate) initiated_by: Option<String>,
    pub(crate) subject: Option<Value>,
    pub(crate) response: Option<Value>,
    pub(crate) skipped: bool,
    pub(crate) error: Option<String>,
    /// Records of branches, which are visible under their own ids.
    pub(crate) inner: Vec<Arc<Record>>,
}

/// The `json` of a record, either given or computed on demand.
#[derive(Clone, Debug, Default)]
pub(crate) enum Json {
    #[default]
    Absent,
    Value(Arc<Value>),
    /// The JSON in stdout; absent if stdout is not JSON.
    OfStdout(Arc<Parsed>),
    /// A single item as it is, several items as an array.
    OfItems(Items, Arc<OnceLock<Arc<Value>>>),
}

/// The function for warnings about a step, and the step's path.
pub(crate) type Warnings = (Arc<dyn Fn(&str) + Send + Sync>, StepPath);

/// The reason why a step has stdout but no JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoValue {
    /// The JSON has more levels than lobster reads.
    TooDeep,
    NotJson,
}

/// Facts about the JSON in a step's stdout.
#[derive(Default)]
pub(crate) struct Parsed {
    warnings: Option<Warnings>,
    value: OnceLock<Option<Arc<Value>>>,
    no_value: OnceLock<NoValue>,
    large: OnceLock<Large>,
    /// The items of a large list; `None` if stdout is something else.
    items: OnceLock<Option<Items>>,
    /// Large JSON without blanks; `None` if it would have to be loaded first.
    compact: OnceLock<Option<Text>>,
    /// Parts of large JSON that were requested, by their paths.
    parts: Mutex<HashMap<Vec<String>, Option<Arc<Value>>>>,
}

/// Tells if text is large JSON, which is passed on and searched without being loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Large {
    No,
    List,
    Object,
}

/// JSON with more bytes than this is not loaded unless all of it is needed.
const LARGE: u64 = 1 << 20;

impl fmt::Debug for Parsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parsed").field("value", &self.value).finish_non_exhaustive()
    }
}

impl Json {
    pub(crate) fn of_stdout() -> Self {
        Self::OfStdout(Arc::default())
    }

    /// The same for a command, whose output may need a warning when it is read.
    pub(crate) fn of_command(warnings: Warnings) -> Self {
        Self::OfStdout(Arc::new(Parsed { warnings: Some(warnings), ..Parsed::default() }))
    }

    pub(crate) fn of_items(items: Items) -> Self {
        Self::OfItems(items, Arc::default())
    }

    pub(crate) fn from_value(value: Value) -> Self {
        Self::Value(Arc::new(value))
    }
}

impl Parsed {
    /// Reads a step's output; only blanks are no output.
    fn parse_output(&self, text: &str) -> Option<Arc<Value>> {
        if text.is_empty() {
            return None;
        }
        match json::parse(text) {
            Ok(value) => {
                if let Some((warn, path)) = self.warnings.as_ref().filter(|_| json::has_half_pair(text)) {
                    warn(&format!(
                        "warning: the output of step {path} escapes half a surrogate pair, which is read as U+FFFD"
                    ));
                }
                Some(Arc::new(value))
            }
            Err(error) => {
                let _ = self.no_value.set(match error {
                    JsonError::TooDeep => NoValue::TooDeep,
                    JsonError::Syntax(_) => NoValue::NotJson,
                });
                None
            }
        }
    }
}

impl Record {
    pub(crate) fn new(id: &str) -> Self {
        Self { id: id.to_owned(), ..Self::default() }
    }

    /// A record whose output is a JSON value.
    pub(crate) fn of_value(id: &str, value: Arc<Value>) -> Self {
        Self { stdout: Some(Text::of_value(Arc::clone(&value))), json: Json::Value(value), ..Self::new(id) }
    }

    /// The `json` value, which is loaded and parsed on the first call.
    pub(crate) fn json(&self) -> Result<Option<&Arc<Value>>, Unreadable> {
        match &self.json {
            Json::Absent => Ok(None),
            Json::Value(value) => Ok(Some(value)),
            Json::OfStdout(parsed) => {
                let cell = &parsed.value;
                if let Some(known) = cell.get() {
                    return Ok(known.as_ref());
                }
                let value = match &self.stdout {
                    Some(text) if !text.is_empty() => parsed.parse_output(json::trim_js(&text.load()?)),
                    _ => None,
                };
                Ok(cell.get_or_init(|| value).as_ref())
            }
            Json::OfItems(items, cell) => {
                if let Some(known) = cell.get() {
                    return Ok(Some(known));
                }
                let items = items.load_all().map_err(Unreadable::new)?;
                let value = match items.as_slice() {
                    [only] => only.clone(),
                    many => Value::Array(many.to_vec()),
                };
                Ok(Some(cell.get_or_init(|| Arc::new(value))))
            }
        }
    }

    /// The JSON of the step, else its response, else the text of its output.
    pub(crate) fn main_value(&self) -> Result<Option<Arc<Value>>, Stop> {
        Ok(match (self.json()?, &self.response, &self.stdout) {
            (Some(value), _, _) => Some(Arc::clone(value)),
            (None, Some(response), _) => Some(Arc::new(response.clone())),
            (None, None, Some(text)) => {
                Some(Arc::new(Value::String(text.load().map_err(store_failure)?.to_string())))
            }
            (None, None, None) => None,
        })
    }

    /// [`Record::json`] for `$id.json`. JSON that is nested too deeply is an error here, since an empty input in its
    /// place would not be noticed.
    fn referenced_json(&self) -> Result<Option<&Arc<Value>>, Unreadable> {
        let value = self.json()?;
        match self.no_value() {
            Some(NoValue::TooDeep) => {
                Err(Unreadable::new(format!("{}; read `${}.stdout` instead", JsonError::TooDeep, self.id)))
            }
            Some(NoValue::NotJson) | None => Ok(value),
        }
    }

    /// The reason why stdout has no JSON value, after [`Record::json`] was called.
    fn no_value(&self) -> Option<NoValue> {
        match &self.json {
            Json::OfStdout(parsed) => parsed.no_value.get().copied(),
            Json::Absent | Json::Value(_) | Json::OfItems(..) => None,
        }
    }

    /// The items of `json` if it is a large list that has not been loaded. Items in text are put into `store`, and
    /// only one of them is in memory at a time.
    pub(crate) fn large_list(&self, store: &Store) -> Result<Option<Items>, Stop> {
        if let Json::OfItems(items @ Items::Stored { .. }, cell) = &self.json {
            return Ok(Some(items).filter(|items| items.len() > 1 && cell.get().is_none()).cloned());
        }
        let Some((parsed, text, Large::List)) = self.large_json().map_err(store_failure)? else {
            return Ok(None);
        };
        if let Some(known) = parsed.items.get() {
            return Ok(known.clone());
        }
        let mut spool = ItemSpool::new(store.clone());
        output::emit_list(&text.to_payload().map_err(store_failure)?, &mut spool)?;
        let items = spool.finish()?;
        Ok(parsed.items.get_or_init(|| Some(items).filter(|items| items.len() > 1)).clone())
    }

    /// The text of `json`, without blanks, if it is large text that has not been parsed. The text is put into `store`;
    /// little more than its names is held in memory.
    pub(crate) fn large_text(&self, store: &Store) -> Result<Option<Text>, Stop> {
        let Some((parsed, text, _)) = self.large_json().map_err(store_failure)? else { return Ok(None) };
        if let Some(known) = parsed.compact.get() {
            return Ok(known.clone());
        }
        let mut writer = store.blob_writer();
        let compacted = stream::compact(text.open_reader().map_err(store_failure)?, &mut writer)
            .map_err(store_failure)?;
        let compact = match compacted {
            Compacted::Whole => Some(Text::from_blob(store, writer.finish().map_err(store_failure)?)),
            Compacted::RepeatsAName => None,
        };
        Ok(parsed.compact.get_or_init(|| compact).clone())
    }

    /// The part of `json` at `path`, if `json` is large text that has not been parsed; only this part is loaded.
    fn large_part(&self, path: &[&str]) -> Result<Option<Option<Arc<Value>>>, Unreadable> {
        let Some((parsed, text, _)) = self.large_json().map_err(Unreadable::new)? else { return Ok(None) };
        let mut parts = lock(&parsed.parts);
        let key: Vec<_> = path.iter().map(|&segment| segment.to_owned()).collect();
        if let Some(known) = parts.get(&key) {
            return Ok(Some(known.clone()));
        }
        let found = stream::select(text.open_reader().map_err(Unreadable::new)?, path)
            .map_err(Unreadable::new)?
            .map(Arc::new);
        parts.insert(key, found.clone());
        Ok(Some(found))
    }

    /// Stdout and the known facts about it, if it is large JSON that has not been parsed.
    fn large_json(&self) -> io::Result<Option<(&Parsed, &Text, Large)>> {
        let (Json::OfStdout(parsed), Some(text)) = (&self.json, &self.stdout) else { return Ok(None) };
        if text.stored_len() <= LARGE || parsed.value.get().is_some() {
            return Ok(None);
        }
        let large = match parsed.large.get() {
            Some(known) => *known,
            None => {
                let payload = text.to_payload().map_err(io::Error::other)?;
                let large = match output::first_byte(&payload)? {
                    Some(b'[') if output::is_plain_json(&payload) => Large::List,
                    Some(b'{') if output::is_plain_json(&payload) => Large::Object,
                    _ => Large::No,
                };
                *parsed.large.get_or_init(|| large)
            }
        };
        Ok((large != Large::No).then_some((parsed, text, large)))
    }

    /// The items of this record as a workflow's output. They are copied only if the record is shared.
    pub(crate) fn into_output(self: Arc<Self>) -> Result<RunOutput, Unreadable> {
        if let Json::OfItems(items, _) = &self.json
            && items.len() > 1
        {
            return Ok(RunOutput::from_items(items.clone()));
        }
        if let Some(value) = self.json()?.cloned() {
            drop(self);
            return Ok(array_or_single(Arc::unwrap_or_clone(value)).into());
        }
        if let Some(response) = &self.response {
            return Ok(array_or_single(response.clone()).into());
        }
        Ok(self.stdout.clone().map_or_else(RunOutput::empty, RunOutput::from_text))
    }

    fn get(&self, key: &str) -> Result<Option<Cow<'_, Value>>, Unreadable> {
        let text = |text: &Option<String>| text.clone().map(|text| Cow::Owned(Value::String(text)));
        Ok(match key {
            "id" => Some(Cow::Owned(Value::String(self.id.clone()))),
            "stdout" => match &self.stdout {
                Some(text) => Some(Cow::Owned(Value::String(text.load()?.to_string()))),
                None => None,
            },
            "json" => self.referenced_json()?.map(|value| Cow::Borrowed(&**value)),
            "approved" => self.approved.then_some(Cow::Owned(Value::Bool(true))),
            "approvedBy" => text(&self.approved_by),
            "initiatedBy" => text(&self.initiated_by),
            "subject" => self.subject.as_ref().map(Cow::Borrowed),
            "response" => self.response.as_ref().map(Cow::Borrowed),
            "skipped" => self.skipped.then_some(Cow::Owned(Value::Bool(true))),
            "error" => self.error.as_ref().map(|_| Cow::Owned(Value::Bool(true))),
            "errorMessage" => text(&self.error),
            _ => None,
        })
    }
}

/// An array's elements, or the value alone.
pub(crate) fn array_or_single(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        other => vec![other],
    }
}

/// A result that cannot be read back from the store.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unreadable(#[source] Arc<dyn Error + Send + Sync>);

impl Unreadable {
    pub(crate) fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self(Arc::from(error.into()))
    }
}

impl From<StoreError> for Unreadable {
    fn from(error: StoreError) -> Self {
        Self::new(error)
    }
}

impl From<Unreadable> for Stop {
    fn from(error: Unreadable) -> Self {
        store_failure(error)
    }
}

/// The results visible at one place: its own, then the enclosing scope's. A loop's rounds and a parallel step's
/// branches have scopes of their own, so the number of earlier results does not matter.
#[derive(Default)]
pub(crate) struct Scope<'p> {
    parent: Option<&'p Scope<'p>>,
    own: HashMap<String, Arc<Record>>,
    last_completed: Option<Arc<Record>>,
}

impl<'p> Scope<'p> {
    pub(crate) fn nested_in(parent: &'p Self) -> Self {
        Self { parent: Some(parent), ..Self::default() }
    }

    /// Makes a record visible, together with the records of its branches.
    pub(crate) fn insert_record(&mut self, record: Arc<Record>) {
        self.show_inner(&record);
        if !record.skipped && record.error.is_none() {
            self.last_completed = Some(Arc::clone(&record));
        }
        self.own.insert(record.id.clone(), record);
    }

    fn show_inner(&mut self, record: &Record) {
        for inner in &record.inner {
            self.show_inner(inner);
            self.own.insert(inner.id.clone(), Arc::clone(inner));
        }
    }

    /// A record of this scope, not of an enclosing one.
    pub(crate) fn get_own(&self, id: &str) -> Option<&Arc<Record>> {
        self.own.get(id)
    }

    /// The record of the last step that completed here.
    pub(crate) fn last_completed(&self) -> Option<&Arc<Record>> {
        self.last_completed.as_ref()
    }

    /// All visible records; inner ones hide outer ones.
    pub(crate) fn visible_records(&self) -> Vec<&Arc<Record>> {
        let mut seen = self.parent.map_or_else(Vec::new, Self::visible_records);
        seen.retain(|record| !self.own.contains_key(&record.id));
        seen.extend(self.own.values());
        seen
    }

    pub(crate) fn get(&self, id: &str) -> Option<&Arc<Record>> {
        self.own.get(id).or_else(|| self.parent.and_then(|parent| parent.get(id)))
    }
}

impl Lookups for Scope<'_> {
    fn look_up_path(&self, id: &str, path: &[&str]) -> Result<Lookup<'_>, ExprError> {
        let Some(record) = self.get(id) else { return Ok(Lookup::UnknownStep) };
        let Some((first, rest)) = path.split_first() else { return Ok(Lookup::Missing) };
        let unreadable = |error: Unreadable| ExprError::Unreadable {
            reference: Reference {
                id: id.to_owned(),
                path: path.iter().map(|&segment| segment.to_owned()).collect(),
            },
            source: error.0,
        };
        if *first == "json"
            && !rest.is_empty()
            && let Some(part) = record.large_part(rest).map_err(unreadable)?
        {
            let part = part.map(|part| Cow::Owned(Arc::unwrap_or_clone(part)));
            return Ok(part.map_or(Lookup::Missing, Lookup::Found));
        }
        Ok(match record.get(first).map_err(unreadable)? {
            None if *first == "json" && record.no_value() == Some(NoValue::NotJson) => Lookup::NotJson,
            None => Lookup::Missing,
            Some(value) if rest.is_empty() => Lookup::Found(value),
            Some(Cow::Borrowed(value)) => {
                json::descend(value, rest).map_or(Lookup::Missing, |v| Lookup::Found(Cow::Borrowed(v)))
            }
            Some(Cow::Owned(value)) => {
                json::descend(&value, rest).map_or(Lookup::Missing, |v| Lookup::Found(Cow::Owned(v.clone())))
            }
        })
    }
}
