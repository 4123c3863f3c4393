//! Filters that are written in Rust: those of the interpreter that know its
//! values, for ours, and what jq has beyond them.

use std::rc::Rc;

use jaq_core::native::{Filter, bome, unary, v};
use jaq_core::{DataT, RunPtr};
use jaq_json::{Map, Val};
use jaq_std::ValT as _;

use crate::matching;
use crate::value::{Error, Json};

pub(crate) fn all<D: for<'a> DataT<V<'a> = Json>>() -> Box<[Filter<RunPtr<D>>]> {
    Box::new([
        ("fromjson", v(0), |cv| bome(from_json(&cv.1))),
        ("tojson", v(0), |cv| bome(Ok(Json::text(&cv.1.to_string())))),
        ("length", v(0), |cv| bome(length(cv.1))),
        ("contains", v(1), |cv| unary(cv, |all, part| contains(&all.0, &part.0).map(Json::from))),
        ("has", v(1), |cv| unary(cv, |value, key| has(&value, &key).map(Json::from))),
        ("indices", v(1), |cv| unary(cv, |value, part| indices(&value, &part))),
        ("bsearch", v(1), |cv| unary(cv, |value, wanted| search(value, &wanted))),
        ("delete_paths", v(1), |cv| unary(cv, delete_paths)),
        ("csv_row", v(0), |cv| bome(row(cv.1, ",", "csv", quoted))),
        ("tsv_row", v(0), |cv| bome(row(cv.1, "\t", "tsv", escaped))),
        ("regex_matches", v(2), |mut cv| {
            let flags = cv.0.pop_var();
            let pattern = cv.0.pop_var();
            bome(matching::matches(&cv.1, &pattern, &flags))
        }),
        ("regex_pieces", v(2), |mut cv| {
            let flags = cv.0.pop_var();
            let pattern = cv.0.pop_var();
            bome(matching::pieces(&cv.1, &pattern, &flags))
        }),
    ])
}

fn from_json(text: &Json) -> Result<Json, Error> {
    let bytes = text.try_as_utf8_bytes()?;
    let parsed = jaq_json::read::parse_single(bytes);
    parsed.map(Json).map_err(|failed| Error::str(format!("cannot parse {text} as JSON: {failed}")))
}

fn length(value: Json) -> Result<Json, Error> {
    match &value.0 {
        Val::Null => Ok(Json::from(0_usize)),
        Val::Num(_) if value < Json::from(0_usize) => -value,
        Val::Num(_) => Ok(value),
        Val::TStr(text) => Ok(String::from_utf8_lossy(text).chars().count().into()),
        Val::BStr(bytes) => Ok(bytes.len().into()),
        Val::Arr(items) => Ok(items.len().into()),
        Val::Obj(fields) => Ok(fields.len().into()),
        Val::Bool(_) => Err(Error::str(format!("{value} has no length"))),
    }
}

fn contains(all: &Val, part: &Val) -> Result<bool, Error> {
    match (all, part) {
        (Val::TStr(all), Val::TStr(part)) => Ok(find(all, part).next().is_some() || part.is_empty()),
        (Val::Arr(all), Val::Arr(parts)) => {
            let inside =
                |part: &Val| all.iter().any(|item| same_kind(item, part) && contains(item, part) == Ok(true));
            Ok(parts.iter().all(inside))
        }
        (Val::Obj(all), Val::Obj(parts)) => Ok(parts.iter().all(|(name, part)| {
            all.get(name).is_some_and(|value| same_kind(value, part) && contains(value, part) == Ok(true))
        })),
        (all, part) if same_kind(all, part) => Ok(all == part),
        (all, part) => Err(Error::str(format!("{all} and {part} cannot have their containment checked"))),
    }
}

fn same_kind(one: &Val, other: &Val) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

fn has(value: &Json, key: &Json) -> Result<bool, Error> {
    match (&value.0, &key.0) {
        (Val::Obj(fields), Val::TStr(_)) => Ok(fields.contains_key(&key.0)),
        (Val::Arr(items), Val::Num(_)) => {
            Ok(key.as_f64().is_some_and(|at| at >= 0.0 && at < items.len() as f64))
        }
        _ => Err(Error::str(format!("cannot check whether {value} has a key {key}"))),
    }
}

fn find(text: &[u8], part: &[u8]) -> impl Iterator<Item = usize> {
    let length = part.len().max(1);
    text.windows(length).enumerate().filter_map(move |(at, window)| (window == part).then_some(at))
}

fn indices(value: &Json, part: &Json) -> Result<Json, Error> {
    match (&value.0, &part.0) {
        (Val::Null, _) => Ok(Json::null()),
        (Val::TStr(text), Val::TStr(part)) => {
            let (mut counted, mut chars) = (0, 0_usize);
            let places = find(text, part).map(|at| {
                chars += String::from_utf8_lossy(&text[counted..at]).chars().count();
                counted = at;
                Json::from(chars)
            });
            Ok(places.collect())
        }
        (Val::Arr(items), Val::Arr(part)) if !part.is_empty() => {
            let windows = items.windows(part.len()).enumerate();
            Ok(windows
                .filter(|(_, window)| *window == part.as_slice())
                .map(|(at, _)| Json::from(at))
                .collect())
        }
        (Val::Arr(_), Val::Arr(_)) => Ok(Json::null()),
        (Val::Arr(items), part) => Ok(items
            .iter()
            .enumerate()
            .filter(|(_, item)| *item == part)
            .map(|(at, _)| Json::from(at))
            .collect()),
        _ => Err(Error::index(value.clone(), part.clone())),
    }
}

fn search(value: Json, wanted: &Json) -> Result<Json, Error> {
    let Val::Arr(items) = &value.0 else { return Err(Error::typ(value, "array")) };
    let at = items.binary_search(&wanted.0).map_or_else(|at| -1 - at as isize, |at| at as isize);
    Ok(Json::from(at))
}

/// The last paths first, so that none moves what another means.
fn delete_paths(value: Json, paths: Json) -> Result<Json, Error> {
    let not_paths = |paths| Error::typ(paths, "list of paths");
    let mut paths: Vec<Json> = paths.into_seq().map_err(not_paths)?;
    paths.sort();
    paths.dedup();
    paths.into_iter().rev().try_fold(value, |value, path| {
        let path: Vec<Json> = path.into_seq().map_err(not_paths)?;
        delete(value.0, &path).map(Json)
    })
}

fn delete(value: Val, path: &[Json]) -> Result<Val, Error> {
    let Some((key, rest)) = path.split_first() else { return Ok(Val::Null) };
    match (value, &key.0) {
        (Val::Null, _) => Ok(Val::Null),
        (Val::Obj(mut fields), Val::TStr(_)) => {
            if fields.contains_key(&key.0) {
                let map: &mut Map = Rc::make_mut(&mut fields);
                if rest.is_empty() {
                    map.shift_remove(&key.0);
                } else if let Some(child) = map.get_mut(&key.0) {
                    *child = delete(std::mem::take(child), rest)?;
                }
            }
            Ok(Val::Obj(fields))
        }
        (Val::Arr(mut items), Val::Num(_)) => {
            if let Some(at) = key.place(items.len()).filter(|at| *at < items.len()) {
                let list = Rc::make_mut(&mut items);
                if rest.is_empty() {
                    list.remove(at);
                } else {
                    list[at] = delete(std::mem::take(&mut list[at]), rest)?;
                }
            }
            Ok(Val::Arr(items))
        }
        (Val::Arr(mut items), Val::Obj(slice)) => {
            let bounds = Json::slice(slice, items.len())?;
            let kept = if rest.is_empty() {
                Rc::default()
            } else {
                match delete(items[bounds.clone()].iter().cloned().collect(), rest)? {
                    Val::Arr(kept) => kept,
                    other => return Err(Error::typ(Json(other), "array")),
                }
            };
            Rc::make_mut(&mut items).splice(bounds, kept.iter().cloned());
            Ok(Val::Arr(items))
        }
        (other, _) => Err(Error::str(format!("cannot delete {key} of {other}"))),
    }
}

/// A line of a table: null is empty, texts are written by `text`.
fn row(value: Json, separator: &str, format: &str, text: fn(&str) -> String) -> Result<Json, Error> {
    let cells: Vec<Json> = value.into_seq().map_err(|value| Error::typ(value, "list of cells"))?;
    let cell = |cell: &Json| match &cell.0 {
        Val::Null => Ok(String::new()),
        Val::Bool(_) | Val::Num(_) => Ok(cell.to_string()),
        Val::TStr(bytes) => Ok(text(&String::from_utf8_lossy(bytes))),
        _ => Err(Error::str(format!("{cell} is not valid in a {format} row"))),
    };
    let cells = cells.iter().map(cell).collect::<Result<Vec<_>, _>>()?;
    Ok(Json::from(cells.join(separator)))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}
